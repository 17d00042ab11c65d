# SPDX-License-Identifier: Apache-2.0
"""RAT: which rows of a slice have a slot."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import RANK
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["RowTags"]


class RowTagsObserve(NamedTuple):
    """What a proof may see of a :class:`RowTags`."""

    ram: Ram  #: per set, a tag per way
    passed: Signal  #: ways of the set in view that were written in the cycle of the look
    kept: data.View  #: what was written there
    same: Signal  #: that is the row that was looked for


class RowTags(wiring.Component):
    """Tag part of a slice's RAT, set-associative.

    ``look`` reads a set; from the next cycle on, until the next ``look``, ``tags`` shows it, and
    ``seen`` what it holds for the packet of ``row`` and ``src``, which is the one that was looked
    for, if the set is that row's (``fold_key``). A write is seen by every later ``look``, and by
    one in the same cycle; what is in view does not change.

    Parameters: ``cfg``. Ports: ``look``, ``set`` In; ``twin`` In, with ``look``: the row that is
    looked for is the one that is written in this cycle, if one is; ``row``, ``src`` In; ``tags``
    Out, an array over ways; ``seen`` Out; ``write`` In, one bit per way, ``write_set``, ``tag`` In;
    ``clearing`` Out, after reset."""

    observe: RowTagsObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "look": In(1),
                "set": In(max(1, own.set_width)),
                "twin": In(1),
                "row": In(own.row),
                "src": In(RANK),
                "tags": Out(data.ArrayLayout(own.tag, cfg.rat_ways)),
                "seen": Out(own.seen),
                "write": In(cfg.rat_ways),
                "write_set": In(max(1, own.set_width)),
                "tag": In(own.tag),
                "clearing": Out(1),
            }
        )

    def _is_row(self, tag):
        """Is this the row? The set's number is the lowest bits of the RowID XOR all others
        (`fold_key`): the others tell two rows of a set apart."""
        skipped, row = self._own.set_width, self.row
        return (
            tag.valid
            & (tag.region == row.region)
            & (tag.epoch == row.epoch)
            & (tag.rowid[skipped:] == row.rowid[skipped:])
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own, ways = self._cfg, self._own, self._cfg.rat_ways
        m.submodules.ram = ram = Ram(
            data.ArrayLayout(own.tag, ways),
            cfg.rat_sets,
            granules=ways,
            clear=True,
            quick=cfg.rat_sets <= 64,
            bypass=False,
        )
        # A tag written while its set is read goes past the memory.
        passed = Signal(ways)
        kept = Signal(own.tag)
        same = Signal()
        self.observe = RowTagsObserve(ram, passed, kept, same)
        here = self.write_set == self.set
        with m.If(self.look):
            m.d.sync += [
                passed.eq(mutant("slot_allocator.tag_not_passed", Mux(here, self.write, 0), 0)),
                kept.eq(self.tag),
                same.eq(mutant("slot_allocator.passed_tag_not_compared", self.twin, 0)),
            ]
        match = Signal(ways)
        used = Signal(ways)
        for n in range(ways):
            stored, tag = ram.r_data[n], self.tags[n]
            m.d.comb += [
                tag.eq(Mux(passed[n], kept, stored)),
                used[n].eq(tag.valid),
                match[n].eq(Mux(passed[n], same & kept.valid, self._is_row(stored))),
                ram.w_data[n].eq(self.tag),
            ]
        m.d.comb += [
            ram.r_en.eq(self.look),
            ram.r_addr.eq(self.set),
            ram.w_en.eq(
                mutant(
                    "slot_allocator.tag_not_written_while_looked_at",
                    self.write,
                    Mux(self.look, 0, self.write),
                )
            ),
            ram.w_addr.eq(self.write_set),
            self.seen.match.eq(match),
            self.seen.used.eq(used),
            self.seen.stranger.eq(
                Cat(match[n] & (self.tags[n].src != self.src) for n in range(ways)).any()
            ),
            self.clearing.eq(ram.clearing),
        ]
        return m
