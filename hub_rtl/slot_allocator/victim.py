# SPDX-License-Identifier: Apache-2.0
"""Which row of a full set of the RAT makes place for another."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import EPOCH, bits_of
from hub_rtl.contract.packets import Reason
from hub_rtl.parts.onehot import select

from .records import VictimRank, fold_key, slice_types_of

__all__ = ["VictimSearch"]


class VictimSearchObserve(NamedTuple):
    """What a proof may see of a :class:`VictimSearch`."""

    step: Signal
    scanned: Signal  #: way whose bank is looked at
    looked: Signal  #: whose slot is looked at
    rated: Signal  #: that is compared with the best so far
    alive: Signal  #: its bank is
    age: Signal  #: its age
    looked_index: Signal  #: counter of the filter of the way whose slot is looked at
    rated_index: Signal  #: of the one that is compared
    best: data.View  #: {age, rank} of the best so far


class VictimSearch(wiring.Component):
    """Looks at one way of a set after the other while ``run``: its bank, a cycle later its slot, in
    the third cycle it is compared with the best so far. The victim is the oldest row whose epoch is
    over, else the oldest with a slot, else the oldest that was refused.

    ``done`` in the last of ``ways + 2`` cycles; from the next cycle on ``way`` (one-hot), ``rank``,
    ``slot`` and ``index`` are the victim's, until ``run`` comes again. Tags, ages and data part
    hold still meanwhile.

    Parameters: ``cfg``. Ports: ``run`` In; ``tags``, ``ages`` In, ``set`` In, of the set;
    ``look_bank``, ``region``, ``epoch`` Out, ``alive`` In next cycle; ``look_slot``, ``slot_index``
    Out, ``slot_found`` In next cycle, an allocation answer; ``done`` Out; ``way``, ``rank``,
    ``slot``, ``index`` (of its counter in the filter) Out."""

    observe: VictimSearchObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "run": In(1),
                "tags": In(data.ArrayLayout(own.tag, cfg.rat_ways)),
                "ages": In(data.ArrayLayout(own.way_width, cfg.rat_ways)),
                "set": In(max(1, own.set_width)),
                "look_bank": Out(1),
                "region": Out(cfg.region_width),
                "epoch": Out(EPOCH),
                "alive": In(1),
                "look_slot": Out(1),
                "slot_index": Out(own.index_width),
                "slot_found": In(own.alloc_reply),
                "done": Out(1),
                "way": Out(cfg.rat_ways),
                "rank": Out(bits_of(VictimRank)),
                "slot": Out(own.slot),
                "index": Out(ceil_log2(cfg.filter_depth)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        own, ways = self._own, self._cfg.rat_ways
        # Compared as one number: rank first, then age. Oldest first: fewer older ways give a larger
        # key.
        key_layout = data.StructLayout({"age": own.way_width, "rank": bits_of(VictimRank)})
        key = Signal(key_layout)
        best = Signal(key_layout)
        step = Signal(range(ways + 2))
        scanned = Signal(ways, init=1)
        looked = Signal(ways)
        rated = Signal(ways)
        alive = Signal()
        age = Signal(own.way_width)
        looked_index = Signal.like(self.index)
        rated_index = Signal.like(self.index)
        self.observe = VictimSearchObserve(
            *(step, scanned, looked, rated, alive, age, looked_index, rated_index, best)
        )
        tag = Signal(own.tag)
        found = self.slot_found
        placed = Mux(found.reason == Reason.OK, VictimRank.PLACED, VictimRank.REFUSED)
        slot_step = Signal(range(ways + 2))
        m.d.comb += [
            tag.eq(select(scanned, list(self.tags))),
            self.look_bank.eq(self.run),
            self.region.eq(tag.region),
            self.epoch.eq(tag.epoch),
            slot_step.eq(step - 1),
            self.look_slot.eq(self.run & looked.any()),
            self.slot_index.eq(Cat(slot_step[: ceil_log2(ways)], self.set[: own.set_width])),
            key.age.eq(~age),
            key.rank.eq(Mux(alive, placed, VictimRank.OVER)),
            self.done.eq(step == ways + 1),
            self.rank.eq(best.rank),
        ]
        with m.If(self.run):
            m.d.sync += [
                step.eq(step + 1),
                scanned.eq(scanned << 1),
                looked.eq(scanned),
                looked_index.eq(fold_key(tag.region, tag.epoch[0], tag.rowid, len(self.index))),
                rated.eq(looked),
                rated_index.eq(looked_index),
                alive.eq(self.alive),
                age.eq(select(looked, list(self.ages))),
            ]
            with m.If(step == 0):
                m.d.sync += best.eq(0)
            with m.Elif(rated.any() & (key.as_value() > best.as_value())):
                m.d.sync += [
                    best.eq(key),
                    self.way.eq(rated),
                    self.index.eq(rated_index),
                    self.slot.slot.eq(found.slot),
                    self.slot.overflow.eq(found.overflow),
                ]
        with m.If(~self.run | self.done):
            m.d.sync += [
                step.eq(0),
                scanned.eq(1),
                looked.eq(0),
                rated.eq(0),
            ]
        return m
