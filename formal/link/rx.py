# SPDX-License-Identifier: Apache-2.0
"""Promises of the receiving side of a link (``hub_rtl/link/deserializer.py``, docs/interfaces.md
section 5)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, same
from hub_rtl.contract.packets import PacketType, Reason
from hub_rtl.contract.records import header_layout
from hub_rtl.link.deserializer import Deserializer
from hub_rtl.link.link import LinkPort

from .tx import CONTROL_TYPES, DATA_TYPES, at_a_place, is_type

__all__ = ["ControlArrives", "HeadersAreJudged", "Receiver"]


def header_reason(cfg, header, flit, rank, lane):
    """What docs/interfaces.md says of a header: OK, BAD_HEADER or BAD_LANE."""
    row, plain = header_layout(PacketType.ROW)(flit), header_layout(PacketType.PLAIN)(flit)
    units = cfg.packet_flits
    unit = Mux(header.type == PacketType.ROW, row.row_off % units, plain.addr16 % units)
    is_data = is_type(header, *DATA_TYPES)
    known = is_type(header, *DATA_TYPES, *CONTROL_TYPES, PacketType.CREDIT, PacketType.ACK)
    count = header_layout(PacketType.NEWS)(flit).count
    pairs = [Cat(count == 2 * n - 1, count == 2 * n).any() & (header.len == n) for n in range(1, 9)]
    shape = Mux(
        header.type == PacketType.NEWS,
        Cat(pairs).any() & ~header.masked,
        Mux(
            is_data,
            (header.len != 0) & (unit + header.len <= units),
            (header.len == 0) & ~header.masked,
        ),
    )
    ranks = (header.src < cfg.ranks) & (header.src != rank) & (header.dst == rank)
    return Mux(
        known & shape & ranks & ~header.fan,
        Mux(header.lane == lane, Reason.OK, Reason.BAD_LANE),
        Reason.BAD_HEADER,
    )


class Receiver(Spec):
    """A receiver, ``part``, with free inputs, and each flit two cycles after it was on the wire:
    ``came``, ``flit``, ``last``, ``first`` of its frame (what ``tlast`` delimits), and for a first
    flit what it means."""

    unused = ()  # ports without inputs here

    def build(self, m):
        cfg = self._cfg
        dut = self.prepare(self.part())
        m.submodules.dut = dut
        self.free_inputs(dut, but=("rank", "lane", *self.unused))
        self.rank, self.lane = at_a_place(self, dut, cfg)
        rx, past = dut.rx, self.past
        self.comes, self.next_flit, self.next_last = (
            past(rx.tvalid & rx.tready),
            past(rx.tdata),
            past(rx.tlast),
        )
        self.came, self.flit, self.last = (
            past(self.comes),
            past(self.next_flit, "flit"),
            past(self.next_last, "last"),
        )
        within = Signal()
        self.first = Signal()
        expected = Signal(10)
        ahead = Signal(10)
        m.d.comb += [self.first.eq(self.came & ~within)]
        with m.If(self.came):
            m.d.sync += within.eq(~self.last)
        self.header = header = header_layout()(self.flit)
        self.within, self.expected = within, expected
        self.idle = self.first & (header.type == PacketType.IDLE) & self.last
        numbered = self.first & ~self.idle
        m.d.comb += ahead.eq(header.seq - expected)
        with m.If(numbered):
            m.d.sync += expected.eq(header.seq + 1)
        self.off_sequence, repeat = numbered & (ahead != 0), ahead >= 512
        self.reason = header_reason(cfg, header, self.flit, self.rank, self.lane)
        self.bad = numbered & ~repeat & (self.reason != Reason.OK)
        self.good = numbered & ~repeat & (self.reason == Reason.OK)
        self.src = header.src[: cfg.rank_width]
        self.data = self.good & is_type(header, *DATA_TYPES)
        self.control = self.good & is_type(header, *CONTROL_TYPES)
        self.credit = self.good & (header.type == PacketType.CREDIT)
        self.length = header.len + Mux(header.masked, cfg.mask_flits, 0)
        self.specify(m, dut)

    def part(self):
        """The part under proof."""
        return LinkPort(self._cfg)

    def prepare(self, dut):
        """It, changed if need be; ``self.inside``, what its Deserializer shows."""
        self.inside = observe(observe(dut).rx)
        return dut

    def arrival_lemmas(self, check):
        """The receiver's first two stages (``check``: what it shows) hold the flits in sight here,
        and judge alike."""
        numbered, checked = self.first & ~self.idle, check.checked
        self.lemma("flit comes", self.comes == check.first.valid)
        self.lemma(
            "next flit",
            (self.next_flit == check.first.data) & (self.next_last == check.first.last),
            when=self.comes,
        )
        self.lemma("flit came", self.came == check.arrived.valid)
        self.lemma(
            "flit in sight",
            (self.flit == check.arrived.data) & (self.last == check.arrived.last),
            when=self.came,
        )
        self.lemma("frame in sight", check.within == Mux(self.came, ~self.last, self.within))
        self.lemma(
            "number in sight",
            check.expected == Mux(numbered, (self.header.seq + 1)[:10], self.expected),
        )
        self.lemma(
            "header in sight",
            same(
                checked,
                begins=numbered,
                off_sequence=self.off_sequence,
                bad=self.bad,
                data=self.data,
                control=self.control,
                credit=self.credit,
            ),
        )
        self.lemma("packets arrive within frames", self.within, when=check.inside)


class HeadersAreJudged(Receiver):
    """Every header is judged once, in this order: IDLE frames are skipped; a number that is not the
    expected one is told, a repeat dropped; a bad header is told with its reason and dropped;
    anything else is accepted. The total of each good header, what a CREDIT flit says, and control
    flits are passed on. A frame that is not as long as its header says is told."""

    def part(self):
        return Deserializer(self._cfg, self._cfg.slice_bytes)

    def prepare(self, dut):
        self.inside = observe(dut)
        return dut

    def specify(self, m, dut):
        header, src = self.header, self.src
        self.arrival_lemmas(self.inside)
        source = self.inside.sources.i
        self.always("packet accepted", source.valid == self.data)
        self.always("packet of its source", source.payload == src, when=self.data)
        self.always("control flit passed on", dut.control.en == self.control)
        self.always("as it came", dut.control.header == self.flit, when=self.control)
        self.always("wrong number told", dut.seq_error == self.past(self.off_sequence))
        self.always("bad header told", dut.bad.en == self.bad)
        self.always(
            "bad header shown",
            same(dut.bad, header=self.flit, reason=self.reason),
            when=dut.bad.en,
        )
        self.always("flit told", dut.busy == self.past(dut.rx.tvalid & dut.rx.tready))
        self.always("total passed on", dut.total.en == (self.data | self.control | self.credit))
        self.always(
            "total of its source", same(dut.total, rank=src, total=header.credit), when=dut.total.en
        )
        body = header_layout(PacketType.CREDIT)(self.flit)
        self.always("grant passed on", dut.granted.en == (self.credit & body.grants))
        self.always("return passed on", dut.returned.en == (self.credit & body.returns))
        self.always("question passed on", dut.asked.en == (self.credit & body.asks))
        self.always("answer passed on", dut.answered.en == (self.credit & body.answers))
        self.always(
            "grant as it was said",
            same(dut.granted.what, rank=src, total=body.granted, back=body.back),
            when=dut.granted.en,
        )
        self.always(
            "return as it was said",
            same(dut.returned.what, rank=src, total=body.returned),
            when=dut.returned.en,
        )
        self.always(
            "question as it was said",
            same(dut.asked.what, rank=src, total=body.plains, phase=body.phase),
            when=dut.asked.en,
        )
        self.always(
            "answer as it was said",
            same(dut.answered.what, rank=src, bad=body.bad),
            when=dut.answered.en,
        )
        # Length: flits still to come of an accepted packet.
        left = Signal(5)
        with m.If(self.first):
            m.d.sync += left.eq(Mux(self.data & ~self.last, self.length, 0))
        with m.Elif(self.came & (left != 0)):
            m.d.sync += left.eq(Mux(self.last, 0, left - 1))
        inside = self.inside
        self.lemma(
            "flits to come",
            (inside.inside == (left != 0))
            & (
                ~inside.inside
                | (
                    (inside.masks_to_come + inside.data_to_come == left)
                    & (inside.data_to_come != 0)
                )
            ),
        )
        wrong = (
            (self.data & self.last)
            | ((self.control | self.credit) & ~self.last)
            | (self.came & ~self.first & (left != 0) & ((left == 1) != self.last))
        )
        for name, outcome in (
            ("packet", self.data),
            ("repeat", self.off_sequence & ~self.good & ~self.bad),
            ("IDLE", self.idle),
            ("bad lane", self.bad & (self.reason == Reason.BAD_LANE)),
            ("CREDIT", self.credit),
            ("too long", self.came & (left == 1) & ~self.last),
        ):
            self.reach(name, outcome)
        self.always("wrong length told", dut.truncated == self.past(wrong))


class ControlArrives(Spec):
    """Every control flit of a source that has room is handed out once, in order and unchanged,
    however late it is taken; it finds a place, also if sources do not keep their credits. Its
    buffer is freed in the next cycle; what is not let in is told. Transmitter and deserializer are
    cut out: totals are reported in any cycle, control flits come in any. With two ranks; shown for
    bits 31:0."""

    def build(self, m):
        cfg, limit = self._cfg, self._cfg.ctl_credits
        m.submodules.dut = dut = LinkPort(cfg)
        port = observe(dut)
        for part in (port.tx, port.rx):
            cut(self, part)
        self.free_inputs(dut, but=("rank", "lane"))
        rank, _ = at_a_place(self, dut, cfg)
        comes = port.rx.control
        src = header_layout()(comes.header).src[: cfg.rank_width]
        self.suppose("of a peer", (src < cfg.ranks) & (src != rank), when=comes.en)
        books, queue = observe(port.buffers), port.controls
        full = port.buffers.full.bit_select(src, 1)
        accepted, frees = comes.en & ~full, moves(dut.o_control)
        self.always_fifo(
            "control", accepted, comes.header[:32], frees, dut.o_control.payload[:32], most=limit
        )
        violated = self.past(comes.en & full)
        self.always("told if not", dut.counts.credit_violations == violated)
        out, free = header_layout()(dut.o_control.payload), port.buffers.free
        self.always("freed", free.en == self.past(frees))
        self.always(
            "freed of its source", free.rank == self.past(out.src[: cfg.rank_width]), when=free.en
        )
        # Helper invariant: where the buffers of the one peer are.
        inside = Signal(range(limit + 2))
        m.d.sync += inside.eq(inside + accepted - self.past(frees))
        for n in range(cfg.ranks):
            peer, held = rank != n, books.unreported[n] + books.room[n]
            self.lemma(f"buffers of rank {n}", held + inside == limit, when=peer)
            self.lemma(f"full of rank {n}", port.buffers.full[n] == (books.room[n] == 0), when=peer)
        self.lemma("pushed", queue.push == self.past(accepted))
