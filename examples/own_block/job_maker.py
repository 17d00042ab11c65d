# SPDX-License-Identifier: Apache-2.0
"""A block of one's own beside the hub: it makes a job of each tile that is ready."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.packets import EventKind
from hub_rtl.contract.ports import event_fields, hub_ports
from hub_rtl.hub.hub import Hub

__all__ = ["HubWithJobs", "Job", "JobMaker"]

#: Work for an accelerator: ``rows`` rows from byte ``address`` on.
Job = data.StructLayout({"address": 48, "rows": 8})


class JobMaker(wiring.Component):
    """READY events to jobs, in their order.

    Contract: a job for each READY of a region; ``complete`` is 1 for the cycle in which ALL is
    taken, behind the region's last job. An event waits in the hub until its job is taken: the hub
    loses nothing. Latency: none. Other events are dropped.

    Parameters: ``cfg``, of the hub; ``base``, address of slot 0 for even and odd epochs;
    ``tile_bytes``, stride times rows of a tile, a power of two. Ports: ``i_event`` In, the hub's
    event stream; ``o_job`` Out, stream of :data:`Job`; ``complete`` Out.
    """

    def __init__(self, cfg, base, tile_bytes):
        if tile_bytes <= 0 or tile_bytes & (tile_bytes - 1):
            raise ValueError(f"tile_bytes = {tile_bytes}: must be a power of two")
        self._base, self._shift = base, tile_bytes.bit_length() - 1
        event = data.StructLayout(event_fields(cfg))
        super().__init__(
            {
                "i_event": In(stream.Signature(event)),
                "o_job": Out(stream.Signature(Job)),
                "complete": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        event, job = self.i_event.payload, self.o_job.payload
        with m.If(event.epoch[0]):
            m.d.comb += job.address.eq(self._base[1] + (event.group << self._shift))
        with m.Else():
            m.d.comb += job.address.eq(self._base[0] + (event.group << self._shift))
        m.d.comb += [job.rows.eq(event.rows), self.i_event.ready.eq(1)]
        with m.If((event.kind == EventKind.READY) & ~event.plain):
            m.d.comb += [
                self.o_job.valid.eq(self.i_event.valid),
                self.i_event.ready.eq(self.o_job.ready),
            ]
        with m.If(self.i_event.valid & (event.kind == EventKind.ALL)):
            m.d.comb += self.complete.eq(1)
        return m


class HubWithJobs(wiring.Component):
    """A hub whose events go to a :class:`JobMaker`; all its other ports are handed through.

    Parameters: as :class:`JobMaker`. Ports: those of :func:`~hub_rtl.contract.ports.hub_ports` but
    ``m_event_*``; ``o_job``, ``complete``.
    """

    def __init__(self, cfg, base, tile_bytes):
        self._hub, self._jobs = Hub(cfg), JobMaker(cfg, base, tile_bytes)
        self._through = [p for p in hub_ports(cfg) if not p.name.startswith("m_event_")]
        super().__init__(
            {p.name: (In if p.direction == "in" else Out)(p.width) for p in self._through}
            | {"o_job": Out(stream.Signature(Job)), "complete": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub, m.submodules.jobs = hub, jobs = self._hub, self._jobs
        for port in self._through:
            outer, inner = getattr(self, port.name), getattr(hub, port.name)
            m.d.comb += inner.eq(outer) if port.direction == "in" else outer.eq(inner)
        # The hub's streams to the outside have a port per field.
        for name in jobs.i_event.payload.shape().members:
            m.d.comb += getattr(jobs.i_event.payload, name).eq(getattr(hub, f"m_event_{name}"))
        m.d.comb += [
            jobs.i_event.valid.eq(hub.m_event_valid),
            hub.m_event_ready.eq(jobs.i_event.ready),
            self.complete.eq(jobs.complete),
        ]
        wiring.connect(m, jobs.o_job, wiring.flipped(self.o_job))
        return m
