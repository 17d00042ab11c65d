# SPDX-License-Identifier: Apache-2.0
"""Promises of the link port as a whole (``hub_rtl/link/link.py``, docs/interfaces.md section 5):
its books and what it tells."""

from amaranth import Signal

from formal.kit.inside import observe
from formal.kit.spec import moves, same
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout

from .credits import books_lemmas
from .rx import Receiver

__all__ = ["PortKeepsBooks", "PortTellsEvents", "PortTellsSending"]


class PortKeepsBooks(Receiver):
    """``ctl_ready`` of a rank is set exactly while its credits are not used up: the configured
    number, less the control flits sent, plus what the totals of its good headers say, four cycles
    after the wire. A total that would give more than the configured number is counted and changes
    nothing."""

    def specify(self, m, dut):
        cfg, header, past, limit = self._cfg, self.header, self.past, self._cfg.ctl_credits
        self.arrival_lemmas(self.inside)
        peer = self.constant(cfg.rank_width, "peer")
        self.suppose("peer exists", peer < cfg.ranks)
        dst = header_layout()(dut.i_control.payload).dst[: cfg.rank_width]
        ready = dut.ctl_ready
        takes = moves(dut.i_control) & ready.bit_select(dst, 1) & (dst == peer)
        left = Signal(range(limit + 1), init=limit)
        heard = Signal(8)
        news = Signal(8)
        hears = Signal()
        refused = Signal()
        told = past(header.credit, "told")
        says = self.data | self.control | self.credit
        m.d.comb += [
            hears.eq(past(says & (self.src == peer))),
            news.eq(told - heard),
            refused.eq(hears & (news + left > limit)),
        ]
        with m.If(hears & ~refused):
            m.d.sync += [
                heard.eq(told),
                left.eq(left + news - takes),
            ]
        with m.Else():
            m.d.sync += left.eq(left - takes)
        self.always("ready exactly with a credit left", ready.bit_select(peer, 1) == (left != 0))
        self.always(
            "impossible totals counted",
            dut.counts.bad_totals == past(refused),
            when=past(past(self.src == peer)),
        )
        send = observe(dut).send
        books_lemmas(self, cfg.ranks, send, peer, left, heard, told, hears)
        books = observe(send)
        self.lemma(
            "told of the same source",
            (books.src == peer) == past(self.src == peer),
            when=books.told,
        )
        self.reach("a credit comes back", hears & (news != 0) & ~refused & (left == 0))


class PortTellsEvents(Receiver):
    """The port tells each dropped header on ``o_bad``, each wrong number, each flit that came; of a
    control flit without credit or of a wrong length only if its header was good."""

    def specify(self, m, dut):
        self.arrival_lemmas(self.inside)
        counts, past = dut.counts, self.past
        self.always("bad header told", dut.o_bad.en == self.bad)
        self.always(
            "bad header shown",
            same(dut.o_bad, header=self.flit, reason=self.reason),
            when=dut.o_bad.en,
        )
        for name, event in (
            ("seq_errors", past(self.off_sequence)),
            ("rx_busy", past(dut.rx.tvalid & dut.rx.tready)),
        ):
            self.always(f"{name} told", counts[name] == event)
        self.always(
            "no credit only of good control flits",
            past(self.control),
            when=counts.credit_violations,
        )
        self.always("wrong length only of flits", past(self.came), when=counts.truncated)


class PortTellsSending(Receiver):
    """The port tells each flit that left, each cycle in which a flit waits for the wire and each in
    which a control flit waits for a credit, each control flit sunk for a dead peer, each CREDIT
    flit."""

    def specify(self, m, dut):
        counts, past, tx, control = dut.counts, self.past, dut.tx, dut.i_control
        dst = header_layout()(control.payload).dst[: self._cfg.rank_width]
        no_credit = control.valid & ~dut.ctl_ready.bit_select(dst, 1)
        sunk = no_credit & dut.peer_dead.bit_select(dst, 1)
        moved = tx.tvalid & tx.tready
        for name, event in (
            ("tx_busy", past(moved)),
            ("credit_stall", past(no_credit)),
            ("control_sunk", past(sunk)),
        ):
            self.always(f"{name} told", counts[name] == event)
        self.always("sunk at once", control.ready, when=sunk)
        self.always(
            "waiting for the wire told",
            counts.tx_idle_waiting,
            when=past(
                (tx.tvalid | dut.i_packet.valid | control.valid | dut.i_message.valid) & ~moved
            ),
        )
        self.always("no wait told while flits move", ~counts.tx_idle_waiting, when=past(moved))
        # A CREDIT flit is on the wire two cycles after it was chosen if the wire is free.
        header = header_layout()(tx.tdata)
        on_wire = Signal()
        with m.If(moved):
            m.d.sync += on_wire.eq(~tx.tlast)
        credit = moved & ~on_wire & (header.type == PacketType.CREDIT)
        self.suppose(
            "packets are no CREDIT",
            header_layout()(dut.i_packet.payload.data).type != PacketType.CREDIT,
            when=dut.i_packet.valid & dut.i_packet.payload.first,
        )
        self.suppose(
            "control flits are no CREDIT",
            header_layout()(control.payload).type != PacketType.CREDIT,
            when=control.valid,
        )
        self.suppose(
            "messages are CREDIT flits",
            header_layout()(dut.i_message.payload.data).type == PacketType.CREDIT,
            when=dut.i_message.valid,
        )
        within = Signal()
        with m.If(moves(dut.i_packet)):
            m.d.sync += within.eq(~dut.i_packet.payload.last)
        self.suppose(
            "packets are whole", dut.i_packet.payload.first == ~within, when=dut.i_packet.valid
        )
        self.always_fifo("credit", counts.credits_sent, 0, past(credit), 0, most=3, placed=True)
