# SPDX-License-Identifier: Apache-2.0
"""Loop lane: the own rank's packets, from the packet manager straight to the slot allocator."""

from amaranth import Module, Signal
from amaranth.lib import wiring

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram_queue import RamQueue

from .link import inner_ports

__all__ = ["LoopPort"]

LOOP_PACKETS = (
    4  # packets in the queue: covers the packet manager's choosing time with short packets
)


class LoopPort(wiring.Component):
    """The inner ports of a :class:`~hub_rtl.link.link.LinkPort`, without a wire.

    Contract: everything offered comes out once, in order, with ``src`` and ``dst`` the own rank and
    ``lane`` the own lane. The only destination with credits is the own rank: four data credits,
    ``ctl_credits`` control credits, given back as the last flit (the control flit) leaves.

    Latency one cycle, one flit per cycle, no bubble. Control and packets do not wait for each
    other. Input is trusted, it comes from this hub.

    Parameters: ``cfg``; ``words``, flits in the queue of packets, by default four packets. Ports:
    :func:`~hub_rtl.link.link.inner_ports`; of ``counts`` only tx_busy,
    tx_idle_waiting, credit_stall and rx_busy ever rise. Source: our specification, section 3.
    """

    def __init__(self, cfg, words=None):
        super().__init__(inner_ports(cfg))
        self._cfg, self._words = cfg, words or LOOP_PACKETS * cfg.frame_flits

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.packets = packets = RamQueue(
            types_of(cfg).flit, self._words, quick=self._words <= 64
        )
        m.submodules.controls = controls = RamQueue(FLIT, cfg.ctl_credits)
        wiring.connect(m, packets.o, wiring.flipped(self.o_packet))
        wiring.connect(m, controls.o, wiring.flipped(self.o_control))

        def fill(name, source, target):
            """Header fields of a flit that is one."""
            header = Signal(header_layout(), name=f"{name}_header")
            m.d.comb += [
                header.eq(source),
                header.src.eq(self.rank),
                header.dst.eq(self.rank),
                header.lane.eq(self.lane),
                target.eq(header),
            ]

        m.d.comb += [
            packets.i.valid.eq(self.i_packet.valid),
            self.i_packet.ready.eq(packets.i.ready),
            packets.i.payload.eq(self.i_packet.payload),
        ]
        with m.If(
            mutant(
                "link.loop_packet_starts_at_last",
                self.i_packet.payload.first,
                self.i_packet.payload.last,
            )
        ):
            fill("packet", self.i_packet.payload.data, packets.i.payload.data)
        fill("control", self.i_control.payload, controls.i.payload)

        left = Signal(range(LOOP_PACKETS + 1), init=LOOP_PACKETS)
        control_left = Signal(range(cfg.ctl_credits + 1), init=cfg.ctl_credits)
        freed = self.o_packet.valid & self.o_packet.ready & self.o_packet.payload.last
        control_taken = Signal()
        m.d.sync += [
            left.eq(
                left
                - (
                    mutant(
                        "link.loop_place_taken_by_any_rank",
                        self.take.en & (self.take.rank == self.rank),
                        self.take.en,
                    )
                )
                + freed
            ),
            control_left.eq(
                control_left - control_taken + (self.o_control.valid & self.o_control.ready)
            ),
        ]
        m.d.comb += [
            controls.i.valid.eq(self.i_control.valid & control_left.any()),
            self.i_control.ready.eq(control_left.any()),
            control_taken.eq(self.i_control.valid & self.i_control.ready),
            self.dest_ready.eq(left.any() << self.rank),
            self.ctl_ready.eq(control_left.any() << self.rank),
        ]
        moved, came = (
            self.i_packet.valid & self.i_packet.ready,
            self.o_packet.valid & self.o_packet.ready,
        )
        m.d.sync += [
            self.counts.tx_busy.eq(moved),
            self.counts.rx_busy.eq(came),
            self.counts.tx_idle_waiting.eq(self.i_packet.valid & ~self.i_packet.ready),
            self.counts.credit_stall.eq(self.i_control.valid & ~self.i_control.ready),
        ]
        return m
