# SPDX-License-Identifier: Apache-2.0
"""Loop slice: the own rank's records, from the packet manager straight to the slot allocator."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import header_layout, received_of, record_of, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue

__all__ = ["LoopPort", "inner_ports"]

LOOP_PACKETS = 4  # on their way: covers the packet manager's choosing time with short packets


def inner_ports(cfg):
    """Ports of a slice on the hub's side, common to those with links and to loop slices."""
    types = types_of(cfg)
    return {
        "i_record": In(stream.Signature(record_of(cfg, cfg.slice_bytes))),
        "i_control": In(stream.Signature(FLIT)),
        "o_record": Out(stream.Signature(received_of(cfg, cfg.slice_bytes))),
        "o_control": Out(stream.Signature(FLIT)),
        "dest_ready": Out(cfg.ranks),
        "ctl_ready": Out(cfg.ranks),
        "take": In(types.rank_strobe),
        "i_ask": In(stream.Signature(types.ask)),
        "asked": Out(types.messages["asked"]),
        "i_answer": In(stream.Signature(types.answer)),
        "answered": Out(types.messages["answered"]),
        "rank": In(cfg.rank_width),
    }


class LoopPort(wiring.Component):
    """The inner ports of a slice with links, without a wire.

    Contract: every record comes out once, in order; the rank that it names is the own one, which it
    goes to and comes from. The only destination with credits is the own rank: four data credits,
    ``ctl_credits`` control credits, given back as the record's last beat (the control flit) leaves.

    Latency one cycle, a beat per cycle, no bubble; asks and answers of fences pass in the same
    cycle. Control and records do not wait for each other. Input is trusted, it comes from this hub.

    Parameters: ``cfg``. Ports: :func:`inner_ports`; ``counts`` Out ``link_counts``, of which only
    tx_busy, tx_idle_waiting, credit_stall and rx_busy ever rise. Source: our specification, section
    3.
    """

    def __init__(self, cfg):
        super().__init__(inner_ports(cfg) | {"counts": Out(types_of(cfg).link_counts)})
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, record = self._cfg, self.i_record
        parts = cfg.packet_bytes // cfg.slice_bytes
        m.submodules.records = records = RamQueue(
            record.p.shape(), LOOP_PACKETS * parts, quick=True
        )
        m.submodules.controls = controls = RamQueue(FLIT, cfg.ctl_credits)
        wiring.connect(m, wiring.flipped(record), records.i)
        wiring.connect(m, controls.o, wiring.flipped(self.o_control))
        came, out = records.o.p, self.o_record
        names = (name for name, _ in came.header.shape() if name != "link")  # there is none
        m.d.comb += [
            out.valid.eq(records.o.valid),
            records.o.ready.eq(out.ready),
            *(out.p[name].eq(came[name]) for name in ("mask", "part", "last", "data")),
            *(out.p.header[name].eq(came.header[name]) for name in names),
        ]
        self._credits(m, controls)
        for said, heard in ((self.i_ask, self.asked), (self.i_answer, self.answered)):
            m.d.comb += [said.ready.eq(1), heard.en.eq(said.valid), heard.what.eq(said.p)]
        m.d.sync += [
            self.counts.tx_busy.eq(record.valid & record.ready),
            self.counts.rx_busy.eq(out.valid & out.ready),
            self.counts.tx_idle_waiting.eq(record.valid & ~record.ready),
            self.counts.credit_stall.eq(self.i_control.valid & ~self.i_control.ready),
        ]
        return m

    def _credits(self, m, controls):
        """Credits of both kinds; control flits find a place by theirs."""
        cfg, control = self._cfg, header_layout()(controls.i.payload)
        sender = header_layout()(self.i_control.payload).src
        left = Signal(range(LOOP_PACKETS + 1), init=LOOP_PACKETS)
        control_left = Signal(range(cfg.ctl_credits + 1), init=cfg.ctl_credits)
        freed = Signal()
        control_taken = Signal()
        takes = self.take.en & (self.take.rank == self.rank)
        m.d.sync += [
            left.eq(
                left - mutant("link.loop_place_taken_by_any_rank", takes, self.take.en) + freed
            ),
            control_left.eq(
                control_left - control_taken + (self.o_control.valid & self.o_control.ready)
            ),
        ]
        m.d.comb += [
            controls.i.payload.eq(self.i_control.payload),
            control.src.eq(mutant("link.loop_control_keeps_sender", self.rank, sender)),
            control.dst.eq(self.rank),
            freed.eq(self.o_record.valid & self.o_record.ready & self.o_record.p.last),
            controls.i.valid.eq(self.i_control.valid & control_left.any()),
            self.i_control.ready.eq(control_left.any()),
            control_taken.eq(self.i_control.valid & self.i_control.ready),
            self.dest_ready.eq(left.any() << self.rank),
            self.ctl_ready.eq(control_left.any() << self.rank),
        ]
