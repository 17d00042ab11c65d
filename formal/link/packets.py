# SPDX-License-Identifier: Apache-2.0
"""Promise of the receiving side of a link lane as to packets (``hub_rtl/link/link.py``,
docs/interfaces.md section 5)."""

from amaranth import Cat, Const, Mux, Signal, signed

from formal.kit.inside import observe
from formal.kit.spec import moves, same
from hub_rtl.contract.records import header_layout

from .places import FlitsFindAPlace

__all__ = ["PacketsArriveWhole"]


class PacketsArriveWhole(FlitsFindAPlace):
    """Every accepted packet is handed out once, in order, with exactly the flits that its header
    announces: those that came, unchanged, then as many with ``err`` and data 0 as were missing;
    surplus flits, and all of dropped packets, are nowhere. Its buffer is freed in the cycle after
    its last flit was taken. Queue and transmitter as in link.flits_find_a_place. Shown for bits
    31:0 of the header, 7:0 of the others."""

    def specify(self, m, dut):
        rx = self.port.rx
        out, accepted = dut.o_packet, rx.accept.en[0]
        taken = moves(out)
        ends = taken & out.payload.last
        # An arbitrary packet is followed, and an arbitrary flit of it, first from the wire ...
        chosen, follows, inside, ahead = Signal(), Signal(), Signal(3), Signal(3)
        place, header, kept, length = self.constant(4, "place"), Signal(32), Signal(8), Signal(5)
        arriving, got = Signal(), Signal(5)
        self.free(chosen)
        begins = accepted & chosen & ~follows
        m.d.sync += inside.eq(inside + accepted - ends)
        with m.If(begins):
            m.d.sync += [
                follows.eq(1),
                ahead.eq(inside - ends),
                header.eq(self.flit),
                length.eq(self.length),
                got.eq(0),
                arriving.eq(~self.last),
            ]
        with m.Elif(self.came & arriving):
            m.d.sync += [
                got.eq(got + 1),
                arriving.eq(~self.last & (got + 1 != length)),
            ]
            with m.If(got + 1 == place):
                m.d.sync += kept.eq(self.flit)
        # ... then at o_packet.
        flit, number, mine = out.payload, Signal(5), Signal()
        m.d.comb += mine.eq(out.valid & follows & (ahead == 0))
        with m.If(follows & ends & (ahead != 0)):
            m.d.sync += ahead.eq(ahead - 1)
        with m.If(mine & taken):
            m.d.sync += number.eq(Mux(ends, 0, number + 1))
            with m.If(ends):
                m.d.sync += follows.eq(0)
        self.always("nothing invented", inside != 0, when=out.valid)
        self.always(
            "first and last",
            same(flit, first=number == 0, last=number == length),
            when=mine,
        )
        self.always(
            "header as it came", (flit.data[:32] == header) & ~flit.err, when=mine & (number == 0)
        )
        self.always("no flit before it came", (number <= got) | ~arriving, when=mine)
        self.always("missing flits are marked", flit.err == (number > got), when=mine)
        self.always("missing flits are 0", flit.data == 0, when=mine & flit.err)
        self.always(
            "flit as it came",
            flit.data[:8] == kept,
            when=mine & ~flit.err & (number == place) & (number != 0),
        )
        self.always("freed", rx.free.en == self.past(ends))
        src = header_layout()(Cat(header, Const(0, 96))).src[: self._cfg.rank_width]
        self.always(
            "freed of its source", rx.free.rank == self.past(src), when=self.past(ends & mine)
        )
        self.reach("padded after a flit", mine & flit.err & (number == 2))
        self.reach(
            "behind a whole packet",
            mine & (self.past(ahead) == 1) & (number == 0) & ~arriving & (got == length),
        )
        self._lemmas(
            m,
            begins,
            (follows, arriving, ahead, inside),
            (place, kept),
            (header, length, src),
            (got, number),
        )

    def _lemmas(self, m, begins, state, one, kind, counts):
        """Where the followed packet is: its flit ``n`` is item ``base + n`` of the queue, or has
        left if that is negative."""
        (follows, arriving, ahead, inside), (place, kept), (header, length, src), (got, number) = (
            state,
            one,
            kind,
            counts,
        )
        headers, packets = self.packet_lemmas()
        rx, port, queue = self.inside, self.packets.queue, observe(self.packets.queue)
        leaving, padding = rx.leaving, rx.padding
        to_leave = rx.data_to_leave + rx.masks_to_leave
        depth = len(queue.items)
        base, end, count = Signal(signed(8)), Signal(signed(8)), Signal(range(depth + 1))
        leaves = moves(port.o)
        m.d.comb += [
            count.eq(sum(queue.full[n] for n in range(depth))),
            end.eq(base + got),
        ]
        with m.If(begins):
            m.d.sync += base.eq(count - leaves)
        with m.Elif(leaves & (base > -32)):
            m.d.sync += base.eq(base - 1)
        self.lemma("flits find a place", port.i.ready, when=port.i.valid)
        self.lemma("packets counted", inside == packets)
        self.lemma("only what is followed arrives", follows, when=arriving)
        bits = header_layout()(Cat(header, Const(0, 96)))
        self.lemma(
            "length",
            (length == bits.len + Mux(bits.masked, self._cfg.mask_flits, 0))
            & (length != 0)
            & (length < self._cfg.frame_flits)
            & (got <= length),
            when=follows,
        )
        self.lemma("source", self._source_exists(src), when=follows)
        self.lemma(
            "goes on arriving",
            (got < length) & (end == count - 1) & rx.arriving & (rx.to_arrive == length - got),
            when=arriving,
        )
        self.lemma("has arrived", end < count, when=follows)
        self.lemma("leaves or waits", (number != 0) == (leaving & (ahead == 0)), when=follows)
        self.lemma("none leaves", number == 0, when=~follows)
        self.lemma("waits", (base >= 0) & (base < depth), when=follows & (number == 0))
        self.lemma(
            "leaves", (to_leave == length + 1 - number) & (rx.leaver == src), when=number != 0
        )
        self.lemma("pads", (number > got) & ~arriving, when=(number != 0) & padding)
        self.lemma(
            "not yet pads",
            (base == -number) & ((number <= got) | (arriving & (number == got + 1))),
            when=(number != 0) & ~padding,
        )
        before = leaving
        for n, item in enumerate(queue.items):
            here, (starts, _) = follows & queue.full[n], headers[n]
            self.lemma(f"packets ahead of item {n}", ahead == before, when=here & (base == n))
            self.lemma(
                f"header at {n}", starts & (item.data[:32] == header), when=here & (base == n)
            )
            self.lemma(f"within the packet at {n}", ~starts, when=here & (base < n) & (end >= n))
            self.lemma(f"goes on at {n}", ~item.last, when=here & (base <= n) & (end > n))
            self.lemma(
                f"ends at {n}",
                (item.last | (got == length)) == ~arriving,
                when=here & (end == n) & (base <= n),
            )
            self.lemma(
                f"flit at {n}",
                item.data[:8] == kept,
                when=here & (base + place == n) & (place != 0) & (place <= got),
            )
            before = before + starts
