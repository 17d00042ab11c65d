# SPDX-License-Identifier: Apache-2.0
"""Forgets the rows of banks."""

from typing import NamedTuple

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant

from .records import of_run, slice_types_of

__all__ = ["Purge"]


class PurgeObserve(NamedTuple):
    """What a proof may see of a :class:`Purge`."""

    states: dict  #: name of a state of its machine: 1 while it is in it
    walk: Signal  #: set that is looked at
    run: data.View  #: of banks that are purged


class Purge(wiring.Component):
    """Walks the RAT and removes the rows of a run of banks, while no packet is in the pipe.

    ``purging`` is 1 from the cycle after ``purge`` on; no packet comes in then. When the pipe is
    ``empty`` each set is looked at and wiped, two cycles each; ``purging`` ends when nothing of
    earlier packets is left behind the pipe (``issue_idle``).

    Parameters: ``cfg``. Ports: ``purge`` In, ``purging`` Out; ``empty``, ``issue_idle`` In;
    ``look``, ``set`` Out, ``tags`` In next cycle, ``wipe`` Out then, one bit per way."""

    observe: PurgeObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "purge": In(own.purge),
                "purging": Out(1),
                "empty": In(1),
                "issue_idle": In(1),
                "look": Out(1),
                "set": Out(max(1, own.set_width)),
                "tags": In(data.ArrayLayout(own.tag, cfg.rat_ways)),
                "wipe": Out(cfg.rat_ways),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        run = Signal(self._own.purge)
        walk = Signal(range(cfg.rat_sets + 1))
        with m.If(self.purge.en):
            m.d.sync += [
                self.purging.eq(1),
                run.eq(self.purge),
            ]
        m.d.comb += self.set.eq(walk)
        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.sync += walk.eq(0)
                with m.If(self.purging & self.empty):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += self.look.eq(walk != cfg.rat_sets)
                m.next = "WIPE"
                with m.If(
                    mutant(
                        "slot_allocator.last_set_not_purged",
                        walk == cfg.rat_sets,
                        walk == cfg.rat_sets - 1,
                    )
                ):
                    m.next = "LEAVE"
            with m.State("WIPE"):
                m.d.comb += self.wipe.eq(
                    Cat(
                        of_run(run, each.region, each.epoch[0])
                        for each in (self.tags[n] for n in range(cfg.rat_ways))
                    )
                )
                m.d.sync += walk.eq(walk + 1)
                m.next = "LOOK"
            with m.State("LEAVE"):
                with m.If(self.issue_idle):
                    m.d.sync += self.purging.eq(0)
                    m.next = "IDLE"
        states = {name: fsm.ongoing(name) for name in fsm.encoding}
        self.observe = PurgeObserve(states, walk, run)
        return m
