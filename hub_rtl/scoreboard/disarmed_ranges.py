# SPDX-License-Identifier: Apache-2.0
"""Which groups a dependency range had, when software writes it off."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import ADDR
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode
from hub_rtl.parts.ram import Ram

__all__ = ["DisarmedRanges"]


class DisarmedRangesObserve(NamedTuple):
    """What a proof may see of :class:`DisarmedRanges`."""

    is_in: dict  #: 1 in that state, by its name


class DisarmedRanges(wiring.Component):
    """Keeps the dependency ranges, and finds the groups of those that were written off.

    Contract: ``some`` while a range was written with ``armed`` = 0 and not asked for since. ``ask``
    takes the lowest of them; ``done`` tells that ``groups`` from ``base`` on are its own, 0 if it
    was never armed, and stays until the next ``ask``. Latency: ``done`` 3 cycles after ``ask`` and
    one more for each bit of ``log2_stride``. Illegal input: ``ask`` without ``some``, or before
    ``done``.

    Parameters: ``cfg``. Ports: ``dep_write`` In; ``some`` Out; ``ask`` In strobe; ``done``,
    ``base``, ``groups`` Out.
    """

    observe: DisarmedRangesObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg = cfg
        super().__init__(
            {
                "dep_write": In(types_of(cfg).dep_write),
                "some": Out(1),
                "ask": In(1),
                "done": Out(1),
                "base": Out(cfg.group_width),
                "groups": Out(cfg.group_width + 1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, write = self._cfg, self.dep_write
        m.submodules.ranges = ranges = Ram(types_of(cfg).dep_range, cfg.dep_ranges, quick=True)
        dirty = Signal(cfg.dep_ranges)
        written = Signal(cfg.dep_ranges)
        first = lowest_set(m, dirty, "dirty_first")
        m.d.comb += [
            ranges.w_en.eq(write.en),
            ranges.w_addr.eq(write.index),
            ranges.w_data.eq(write.range),
            ranges.r_en.eq(self.ask),
            ranges.r_addr.eq(encode(first)),
            written.eq((write.en & ~write.range.armed) << write.index),
            self.some.eq(dirty.any()),
        ]
        m.d.sync += dirty.eq((dirty & ~Mux(self.ask, first, 0)) | written)
        span = Signal(ADDR)
        shift = Signal(6)
        armed = Signal()  # the range that was written off had been armed
        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(self.ask):
                    m.d.sync += self.done.eq(0)
                    m.next = "RANGE"
            with m.State("RANGE"):
                gone = ranges.r_data
                # limit - base - 1, and a carry if the limit is above the base.
                m.d.sync += [
                    Cat(span, armed).eq(gone.limit + (~gone.base)[:ADDR]),
                    shift.eq(
                        mutant(
                            "scoreboard.strides_below_4_gib",
                            gone.log2_stride,
                            gone.log2_stride[:5],
                        )
                    ),
                    self.base.eq(gone.group_base),
                ]
                m.next = "SHIFT"
            with m.State("SHIFT"):  # one bit per cycle: no 48-bit shifter for a rare command
                with m.If(armed & (shift != 0)):
                    m.d.sync += [
                        shift.eq(shift - 1),
                        span.eq(span >> 1),
                    ]
                with m.Else():
                    m.d.sync += self.done.eq(1)
                    m.d.sync += self.groups.eq(
                        Mux(
                            armed,
                            Mux(span >= cfg.groups, cfg.groups, span[: cfg.group_width] + 1),
                            0,
                        )
                    )
                    m.next = "IDLE"
        self.observe = DisarmedRangesObserve({name: fsm.ongoing(name) for name in fsm.encoding})
        return m
