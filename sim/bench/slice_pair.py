# SPDX-License-Identifier: Apache-2.0
"""A wide slice's way from records to records: two hubs' halves, joined by wires.

Hub 0 sends, hub 1 receives. Each packet of a slice goes over the link that it names.
"""

from amaranth import Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import received_of, record_of, types_of
from hub_rtl.link.credits import ReceiveCredits
from hub_rtl.link.deserializer import Deserializer
from hub_rtl.link.link_tx import LinkTx
from hub_rtl.link.serializer import Serializer
from hub_rtl.link.slice_credits import CreditPackets, SliceCredits
from hub_rtl.receive_pool.receive_pool import ReceivePool

__all__ = ["SlicePair"]

SENDER, RECEIVER = 0, 1


class SlicePair(wiring.Component):
    """``i_record`` per link, of records whose credit was taken, to ``o_record``.

    Serializer, LinkTx, Deserializer per link, one ReceivePool; its grants go back over a link of
    their own to SliceCredits. ``take``, ``ready``: credits. ``violation``, ``bad``: nobody may see
    them.
    """

    def __init__(self, cfg, slice_bytes, links, places, period):
        self._cfg, self._links, self._slice_bytes = cfg, links, slice_bytes
        self._pool = ReceivePool(cfg, slice_bytes, links, places, period=period)
        self._places = places
        super().__init__(
            {
                "i_record": In(stream.Signature(record_of(cfg, slice_bytes))).array(links),
                "o_record": Out(stream.Signature(received_of(cfg, slice_bytes))),
                "take": In(types_of(cfg).rank_strobe),
                "ready": Out(cfg.ranks),
                "hold": In(cfg.ranks),
                "clearing": Out(1),
                "wrong": Out(links + 3),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pool = m.submodules.pool = self._pool
        for n, record in enumerate(self.i_record):
            m.submodules[f"serializer_{n}"] = serializer = Serializer(self._cfg, self._slice_bytes)
            wiring.connect(m, wiring.flipped(record), serializer.i_record)
            rx = self._link(m, f"data_{n}", serializer.o_packet, SENDER, n)
            wiring.connect(m, rx.o_source, pool.i_source[n])
            wiring.connect(m, rx.o_beat, pool.i_beat[n])
            m.d.comb += self.wrong[n].eq(rx.bad.en | rx.seq_error | rx.truncated)
        m.submodules.credits = credits = SliceCredits(self._cfg, self._places)
        m.submodules.grants = grants = CreditPackets(self._cfg)
        m.submodules.returns = returns = CreditPackets(self._cfg)
        wiring.connect(m, pool.o_grant, grants.i_grant)
        wiring.connect(m, credits.o_returned, returns.i_returned)
        wiring.connect(m, pool.o_record, wiring.flipped(self.o_record))
        to_sender = self._link(m, "grants", grants.o_packet, RECEIVER, 0)
        to_pool = self._link(m, "returns", returns.o_packet, SENDER, 0)
        m.d.comb += [
            pool.rank.eq(RECEIVER),
            pool.hold.eq(self.hold),
            pool.returned.eq(to_pool.returned),
            credits.granted.eq(to_sender.granted),
            credits.take.eq(self.take),
            self.ready.eq(credits.ready),
            self.clearing.eq(pool.clearing | credits.clearing),
            self.wrong[self._links :].eq(
                pool.violation | pool.impossible << 1 | credits.bad_total << 2
            ),
        ]
        return m

    def _link(self, m, name, packets, sender, lane):
        """A link's transmitter and its receiving end at the other hub."""
        m.submodules[f"tx_{name}"] = tx = LinkTx(self._cfg)
        m.submodules[f"books_{name}"] = books = ReceiveCredits(self._cfg)
        m.submodules[f"rx_{name}"] = rx = Deserializer(self._cfg, self._slice_bytes)
        wiring.connect(m, packets, tx.i_packet)
        wiring.connect(m, tx.reports, books.reports)
        m.d.comb += [
            tx.rank.eq(sender),
            rx.rank.eq(Const(SENDER + RECEIVER) - sender),
            *(end.lane.eq(lane) for end in (tx, rx)),
            rx.rx.tvalid.eq(tx.tx.tvalid),
            rx.rx.tdata.eq(tx.tx.tdata),
            rx.rx.tlast.eq(tx.tx.tlast),
            tx.tx.tready.eq(rx.rx.tready),
        ]
        return rx
