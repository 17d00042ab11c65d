# SPDX-License-Identifier: Apache-2.0
"""Turns READY events into flag writes to memory."""

from typing import NamedTuple

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.packets import EventKind
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.stream import StreamQueue

from .bank_queue import SMALL
from .records import scoreboard_types

__all__ = ["EventFlags"]


class EventFlagsObserve(NamedTuple):
    """What a proof may see of :class:`EventFlags`."""

    words: Ram  #: per region {en, base, group_base}
    queue: StreamQueue  #: flags for memory
    valid: Signal  #: a READY came a cycle ago
    group: Signal  #: its group
    data: Signal  #: what its flag says


class EventFlags(wiring.Component):
    """One 64-bit flag per READY of a region with flag_en.

    Contract: address flag_base + 8 * (group - group_base); data: kind in bits 1:0, epoch in 5:2,
    rows from bit 6. A READY has at least one row, so a flag is never 0. The flag is made when the
    event leaves the pending bits, after all its bytes were acknowledged. Latency 3 cycles from
    ``loaded``; one flag per cycle. Order that of the events. Stall: ``room`` is low while three
    flags wait for memory.

    Parameters: ``cfg``. Ports: ``loaded`` In, ``event`` In: an event leaves the pending bits;
    ``room`` Out; ``o_flag`` Out stream {addr, data}; ``geometry_write`` In; ``clearing`` Out.
    """

    observe: EventFlagsObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        types = types_of(cfg)
        super().__init__(
            {
                "loaded": In(1),
                "event": In(types.event),
                "room": Out(1),
                "o_flag": Out(stream.Signature(self._types.flag)),
                "geometry_write": In(types.geometry_write),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.words = words = Ram(
            self._types.flag_word, cfg.regions, clear=True, quick=cfg.regions <= SMALL
        )
        m.submodules.queue = queue = StreamQueue(self._types.flag, 4)
        geometry = self.geometry_write.geometry
        ready = self.loaded & (self.event.kind == EventKind.READY) & ~self.event.plain
        m.d.comb += [
            self.clearing.eq(words.clearing),
            words.w_en.eq(self.geometry_write.en),
            words.w_addr.eq(self.geometry_write.region),
            words.w_data.en.eq(geometry.flag_en),
            words.w_data.base.eq(geometry.flag_base),
            words.w_data.group_base.eq(geometry.group_base),
            words.r_en.eq(1),
            words.r_addr.eq(self.event.region),
        ]
        valid = Signal()
        group = Signal(cfg.group_width)
        data = Signal(64)
        self.observe = EventFlagsObserve(words, queue, valid, group, data)
        m.d.sync += [
            valid.eq(ready),
            group.eq(self.event.group),
            data.eq(Cat(self.event.kind, self.event.epoch, self.event.rows)),
        ]
        distance = Signal(cfg.group_width)
        m.d.comb += [
            distance.eq(group - words.r_data.group_base),
            queue.i.valid.eq(valid & words.r_data.en),
            queue.i.payload.data.eq(data),
            queue.i.payload.addr.eq(words.r_data.base + (distance << 3)),
            # Two more may be on their way: the one in the table's output, and the one this allows.
            self.room.eq(
                mutant("scoreboard.flag_queue_overrun", queue.level <= 2, queue.level <= 3)
            ),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.o_flag))
        return m
