# SPDX-License-Identifier: Apache-2.0
"""Spreads a slice's records over its links."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import record_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select

__all__ = ["RecordSpread"]


class RecordSpreadObserve(NamedTuple):
    """What a proof may see of a :class:`RecordSpread`."""

    turn: Signal  #: the link of the next record that is not plain, one bit each


class RecordSpread(wiring.Component):
    """Gives each record of a slice to one of its links, whole.

    Contract: rows and news go round the links, one after the other; plain records go to the link
    that their header names, which is their block's: what is stored to one place stays on one link,
    in order. Latency none, one beat per cycle. Stalls: a record waits
    for its link. Input is trusted: whole records.

    Parameters: ``cfg`` (``slice_links``, ``slice_bytes``). Ports: ``i_record`` In,
    ``o_record`` Out per link, stream(record). Source: our specification, rule R1: only plain
    records of one place have an order.
    """

    observe: RecordSpreadObserve  # once elaborated

    def __init__(self, cfg):
        record = stream.Signature(record_of(cfg, cfg.slice_bytes))
        super().__init__({"i_record": In(record), "o_record": Out(record).array(cfg.slice_links)})
        self._links = cfg.slice_links

    def elaborate(self, platform):
        m = Module()
        links, record, header = self._links, self.i_record, self.i_record.p.header
        turn = Signal(links, init=1)
        target = Signal(links)
        self.observe = RecordSpreadObserve(turn)
        m.d.comb += [
            target.eq(
                Mux(mutant("link.plain_record_in_turn", header.plain, 0), 1 << header.link, turn)
            ),
            record.ready.eq(select(target, [out.ready for out in self.o_record])),
        ]
        for n, out in enumerate(self.o_record):
            m.d.comb += [out.valid.eq(record.valid & target[n]), out.payload.eq(record.payload)]
        ends = mutant("link.record_parted", record.p.last, 1) & ~header.plain
        with m.If(record.valid & record.ready & ends):
            m.d.sync += turn.eq(turn.rotate_left(1))
        return m
