# SPDX-License-Identifier: Apache-2.0
"""RAT: which rows of a slice have a slot, and in which order they came."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import EPOCH, ROWID
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["RowTags"]


class RowTags(wiring.Component):
    """Tag part of a slice's RAT: set-associative, with the age order of each set.

    ``look`` reads a set; from the next cycle on (until the next ``look``) ``tags``, ``match`` and
    ``free`` show it. ``match`` is one-hot: the way that holds (region, epoch, rowid), if the set is
    that row's (``fold_key``); ``free`` is one-hot: the lowest way without a row. A write goes to
    the set looked at last, one cycle later: a ``look`` in the cycle after ``write`` sees it, what
    the set showed stays for that cycle. ``install`` makes the way the youngest of its set. ``age``
    of a way counts the ways that are older. One operation per cycle.

    Parameters: ``cfg``. Ports: ``look`` In, ``set`` In; ``region``, ``epoch``, ``rowid`` In,
    compared in the cycle after ``look``, held from ``look`` on; ``tags``, ``ages`` Out, arrays over
    ways; ``match``, ``free`` Out; ``write`` In, one bit per way, ``install`` In, ``tag`` In;
    ``clearing`` Out, after reset."""

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "look": In(1),
                "set": In(max(1, own.set_width)),
                "region": In(cfg.region_width),
                "epoch": In(EPOCH),
                "rowid": In(ROWID),
                "tags": Out(data.ArrayLayout(own.tag, cfg.rat_ways)),
                "ages": Out(data.ArrayLayout(own.way_width, cfg.rat_ways)),
                "match": Out(cfg.rat_ways),
                "free": Out(cfg.rat_ways),
                "write": In(cfg.rat_ways),
                "install": In(1),
                "tag": In(own.tag),
                "clearing": Out(1),
            }
        )

    def _is_row(self, tag, skipped=0):
        """Is this the row? Of the RowID, the ``skipped`` lowest bits are not compared."""
        return (
            tag.valid
            & (tag.region == self.region)
            & (tag.epoch == self.epoch)
            & (tag.rowid[skipped:] == self.rowid[skipped:])
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own, ways = self._cfg, self._own, self._cfg.rat_ways
        m.submodules.tag_ram = tag_ram = Ram(
            data.ArrayLayout(own.tag, ways),
            cfg.rat_sets,
            granules=ways,
            clear=True,
            quick=cfg.rat_sets <= 64,
            bypass=False,
        )
        m.submodules.age_ram = age_ram = Ram(
            data.ArrayLayout(own.way_width, ways),
            cfg.rat_sets,
            clear=True,
            quick=cfg.rat_sets <= 64,
        )
        # What to write is known late in a cycle: it goes to memory in the next one, in which the
        # set can be looked at again.
        writing, installing, written = Signal(ways), Signal(), Signal(own.tag)
        m.d.sync += [
            writing.eq(self.write),
            installing.eq(self.install),
            written.eq(self.tag),
        ]
        looked = Signal.like(self.set)
        # A tag written while its set is read goes past the memory; it is compared a cycle before
        # those that are read.
        passed, kept, same = Signal(ways), Signal(own.tag), Signal()
        with m.If(self.look):
            m.d.sync += [
                looked.eq(self.set),
                passed.eq(
                    mutant("slot_allocator.tag_not_passed", Mux(looked == self.set, writing, 0), 0)
                ),
                kept.eq(written),
                same.eq(mutant("slot_allocator.passed_tag_not_compared", self._is_row(written), 0)),
            ]
        valid = Signal(ways)
        for n in range(ways):
            tag = tag_ram.r_data[n]
            m.d.comb += [
                self.tags[n].eq(Mux(passed[n], kept, tag)),
                valid[n].eq(self.tags[n].valid),
                # Ages are kept XOR the way number: the cleared memory then says that way n has n
                # older ones.
                self.ages[n].eq(age_ram.r_data[n] ^ n),
                # The set's number is the lowest bits XOR all others (`fold_key`): the others tell
                # two rows of a set apart.
                self.match[n].eq(
                    (passed[n] & same) | (~passed[n] & self._is_row(tag, skipped=own.set_width))
                ),
                tag_ram.w_data[n].eq(written),
            ]
        m.d.comb += [
            tag_ram.r_en.eq(self.look),
            tag_ram.r_addr.eq(self.set),
            age_ram.r_en.eq(self.look),
            age_ram.r_addr.eq(self.set),
            tag_ram.w_en.eq(
                mutant(
                    "slot_allocator.tag_not_written_while_looked_at",
                    writing,
                    Mux(self.look, 0, writing),
                )
            ),
            tag_ram.w_addr.eq(looked),
            age_ram.w_addr.eq(looked),
            age_ram.w_en.eq(installing & writing.any()),
            self.free.eq(lowest_set(m, ~valid, "free_way")),
            self.clearing.eq(tag_ram.clearing | age_ram.clearing),
        ]
        old_age = Signal(own.way_width)
        m.d.comb += old_age.eq(
            Cat(
                (Cat(writing[n] & self.ages[n][bit] for n in range(ways))).any()
                for bit in range(own.way_width)
            )
        )
        for n in range(ways):
            younger = Signal(own.way_width, name=f"age_next{n}")
            m.d.comb += [
                younger.eq(
                    Mux(
                        writing[n],
                        Const(ways - 1, own.way_width),
                        Mux(self.ages[n] > old_age, self.ages[n] - 1, self.ages[n]),
                    )
                ),
                age_ram.w_data[n].eq(younger ^ n),
            ]
        return m
