# SPDX-License-Identifier: Apache-2.0
"""Promises of the link port as a whole (``hub_rtl/link/link.py``, docs/interfaces.md section 5):
its books and what it tells."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import moves, same
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.link.link import LinkPort

from .credits import books_lemmas
from .rx import Receiver

__all__ = ["PortKeepsBooks", "PortTellsEvents", "PortTellsSending"]


class PortKeepsBooks(Receiver):
    """``dest_ready`` and ``ctl_ready`` of a rank are set exactly while its credits are not used up:
    the configured number, less the packets taken (control flits sent), plus what the totals of its
    good headers say, four cycles after the wire. A total that would give more than the configured
    number is counted and changes nothing."""

    part = LinkPort

    def prepare(self, dut):
        self.inside = observe(observe(dut).rx)
        return dut

    def specify(self, m, dut):
        cfg, header, past = self._cfg, self.header, self.past
        self.arrival_lemmas(self.inside)
        peer = self.constant(cfg.rank_width, "peer")
        self.suppose("peer exists", peer < cfg.ranks)
        body = header_layout(PacketType.CREDIT)(self.flit)
        dst = header_layout()(dut.i_control.payload).dst[: cfg.rank_width]
        sends = moves(dut.i_control) & dut.ctl_ready.bit_select(dst, 1) & (dst == peer)
        books = (
            (
                cfg.rx_credits,
                dut.take.en & (dut.take.rank == peer),
                dut.dest_ready,
                body.total0,
                "data",
            ),
            (cfg.ctl_credits, sends, dut.ctl_ready, body.total1, "control"),
        )
        refused = Signal(2)
        for cls, (limit, takes, ready, total, name) in enumerate(books):
            left, heard = (
                Signal(range(limit + 1), init=limit, name=f"{name}_left"),
                Signal(8, name=f"{name}_heard"),
            )
            news, hears = Signal(8, name=f"{name}_news"), Signal(name=f"{name}_hears")
            told = past(Mux(self.credit, total, header.credit), f"{name}_told")
            m.d.comb += [
                hears.eq(
                    past(
                        (self.credit | ((self.data | self.control) & (header.credit_cls == cls)))
                        & (self.src == peer)
                    )
                ),
                news.eq(told - heard),
                refused[cls].eq(hears & (news + left > limit)),
            ]
            self.suppose(f"{name} taken only when ready", ready.bit_select(peer, 1), when=takes)
            with m.If(hears & ~refused[cls]):
                m.d.sync += [
                    heard.eq(told),
                    left.eq(left + news - takes),
                ]
            with m.Else():
                m.d.sync += left.eq(left - takes)
            self.always(
                f"{name} ready exactly with a credit left", ready.bit_select(peer, 1) == (left != 0)
            )
            send = observe(dut).send
            books_lemmas(self, cfg.ranks, send, cls, peer, left, heard, told, hears)
            books = observe(send)
            self.lemma(
                f"{name} told of the same source",
                (books.src[cls] == peer) == past(self.src == peer),
                when=books.told[cls],
            )
            self.reach(
                f"{name} credit comes back", hears & (news != 0) & ~refused[cls] & (left == 0)
            )
        from_peer = past(past(self.src == peer))
        self.always(
            "impossible totals counted",
            dut.counts.bad_totals == past(refused.any()),
            when=from_peer,
        )


class PortTellsEvents(Receiver):
    """The port tells each dropped header on ``o_bad``, each wrong number, each flit that came; of a
    packet without credit or of wrong length only if its header was good. The wire never waits."""

    part = LinkPort

    def prepare(self, dut):
        self.inside = observe(observe(dut).rx)
        return dut

    def specify(self, m, dut):
        self.arrival_lemmas(self.inside)
        counts, past = dut.counts, self.past
        self.always("the wire never waits", dut.rx.tready, when=self.started)
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
            "no credit only of good packets",
            past(self.data | self.control),
            when=counts.credit_violations,
        )
        self.always("wrong length only of flits", past(self.came), when=counts.truncated)


class PortTellsSending(Receiver):
    """The port tells each flit that left, each cycle in which a flit waits for the wire and each in
    which a control flit waits for a credit, each control flit sunk for a dead peer, each CREDIT
    flit."""

    part = LinkPort

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
            when=past((tx.tvalid | dut.i_packet.valid | control.valid) & ~moved),
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
        within = Signal()
        with m.If(moves(dut.i_packet)):
            m.d.sync += within.eq(~dut.i_packet.payload.last)
        self.suppose(
            "packets are whole", dut.i_packet.payload.first == ~within, when=dut.i_packet.valid
        )
        self.always_fifo("credit", counts.credits_sent, 0, past(credit), 0, most=3, placed=True)
