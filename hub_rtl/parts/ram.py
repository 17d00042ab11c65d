# SPDX-License-Identifier: Apache-2.0
"""The one memory wrapper: every table of the hub is an instance, so that a memory macro can replace
it."""

from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width

from .mutants import mutant

__all__ = ["Ram"]


class RamObserve(NamedTuple):
    """What a proof may see of a :class:`Ram`."""

    memory: Memory  #: may be given further ports while it is not elaborated
    walk: Signal | None  #: words that the walker has cleared; None without ``clear``


class Ram(wiring.Component):
    """Memory with one read and one write port (1R1W), and a walker that clears it after reset.

    A read takes one cycle: ``r_data`` belongs to the ``r_addr`` of the cycle before with ``r_en``,
    and holds until the next read. **Collision rule:** a read of the word written in the same cycle
    gives the *new* data (bypass register outside the macro), for every write-enable granule.
    Without ``bypass`` the user never reads the word written in the same cycle, or does not use what
    it gets, which is for a proof of the user to show. One read and one write per cycle. While
    ``clearing`` is high (``depth`` cycles after reset, if ``clear``) the walker owns the write port
    and writes by the user are lost: wait for it.

    Parameters: ``shape``, the word; ``depth``, words, 1 or more; ``granules``, write-enable bits
    per word (must divide its width); ``clear``, zero the words after reset; ``quick``, FPGA tools
    are asked for distributed memory, whose word is there early in the cycle; ``bypass``, see the
    collision rule. Ports: ``r_en`` In, ``r_addr`` In, ``r_data`` Out; ``w_en`` In, ``granules``
    bits; ``w_addr`` In; ``w_data`` In; ``clearing`` Out.
    """

    observe: RamObserve  # once elaborated

    def __init__(self, shape, depth, granules=1, clear=False, quick=False, bypass=True):
        self._width = len(Signal(shape).as_value() if not isinstance(shape, int) else Signal(shape))
        if self._width % granules:
            raise ValueError(f"granules = {granules}: must divide the word width {self._width}")
        super().__init__(
            {
                "r_en": In(1),
                "r_addr": In(index_width(depth)),
                "r_data": Out(shape),
                "w_en": In(granules),
                "w_addr": In(index_width(depth)),
                "w_data": In(shape),
                "clearing": Out(1),
            }
        )
        self.depth, self.clear = depth, clear
        self._granules, self._bypass = granules, bypass
        self._attrs = {"ram_style": "distributed"} if quick else {}

    def elaborate(self, platform):
        m = Module()
        grain = self._width // self._granules
        m.submodules.memory = memory = Memory(
            shape=self._width, depth=max(2, self.depth), init=[], attrs=self._attrs
        )
        write = memory.write_port(granularity=grain if self._granules > 1 else None)
        read = memory.read_port(
            domain="sync"
        )  # macro returns the old word on a collision; the bypass repairs it

        w_en = Signal(self._granules)
        w_addr = Signal.like(self.w_addr)
        w_data = Signal(self._width)
        m.d.comb += [
            w_en.eq(self.w_en),
            w_addr.eq(self.w_addr),
            w_data.eq(self.w_data),
        ]
        walk = None
        if self.clear:
            walk = Signal(range(self.depth + 1))
            m.d.comb += self.clearing.eq(walk != self.depth)
            with m.If(self.clearing):
                m.d.sync += walk.eq(walk + 1)
                m.d.comb += [
                    w_en.eq(Const(-1, self._granules)),
                    w_addr.eq(walk),
                    w_data.eq(mutant("parts.ram_cleared_with_written_word", 0, self.w_data)),
                ]
        m.d.comb += [
            write.en.eq(w_en),
            write.addr.eq(w_addr),
            write.data.eq(w_data),
            read.en.eq(self.r_en),
            read.addr.eq(self.r_addr),
        ]
        self.observe = RamObserve(memory, walk)
        if not self._bypass:
            m.d.comb += Value.cast(self.r_data).eq(read.data)
            return m
        # Bypass: a collision in the read cycle is remembered with the written data until the next
        # read.
        hit = Signal(self._granules)
        kept = Signal(self._width)
        with m.If(self.r_en):
            m.d.sync += [
                hit.eq(
                    mutant("parts.ram_collision_reads_old", Mux(w_addr == self.r_addr, w_en, 0), 0)
                ),
                kept.eq(w_data),
            ]
        for n in range(self._granules):
            part = slice(n * grain, (n + 1) * grain)
            m.d.comb += (
                self.r_data.as_value()[part].eq(Mux(hit[n], kept[part], read.data[part]))
                if hasattr(self.r_data, "as_value")
                else self.r_data[part].eq(Mux(hit[n], kept[part], read.data[part]))
            )
        return m
