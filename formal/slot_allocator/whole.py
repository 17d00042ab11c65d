# SPDX-License-Identifier: Apache-2.0
"""Promises of the slot allocator as a whole (``hub_rtl/slot_allocator/slot_allocator.py``) and of a
slice (``hub_rtl/slot_allocator/row_lookup.py``)."""

from amaranth import Cat, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, streams
from hub_rtl.slot_allocator.records import REASONS, slice_types_of
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator

__all__ = ["AllocatorJoinsItsParts"]


class AllocatorJoinsItsParts(Spec):
    """Whatever its parts say: each slice has its own packets, writes, beats, refusals and waiting
    cause; every slice hears every broadcast; each overlap that a slice tells leaves as one
    ``o_overlap``; ``purging`` and ``clearing`` are 1 while any part's is; ``counts`` are the sums
    of one cycle before; the spill port is the engine's, the rest the table's. The dependency ranges
    that the slices see are those of the table of ranges."""

    def build(self, m):
        m.submodules.dut = dut = SlotAllocator(self._cfg)
        lanes, table, engine, ranges = observe(dut)
        for part in (*lanes, table, engine, ranges):
            cut(self, part)
        self.free_inputs(dut)
        for name, _, port in streams(engine.mem):
            outer = getattr(dut.spill, name)
            self.always(
                f"spill {name}",
                (port.valid == outer.valid)
                & (port.ready == outer.ready)
                & (plain(port.payload) == plain(outer.payload)),
            )
        broadcasts = ("purge", "geometry_write", "region_update", "window_write")
        for n, lane in enumerate(lanes):
            for name in ("i_record", "o_write", "o_data", "o_refused"):
                inner, outer = getattr(lane, name), getattr(dut, name)[n]
                self.always(
                    f"{name} of {n}",
                    (inner.valid == outer.valid)
                    & (inner.ready == outer.ready)
                    & (plain(inner.payload) == plain(outer.payload)),
                )
            for name, inner, outer in (
                ("rows", lane.o_alloc, table.i_request[n]),
                ("words", lane.o_spill, engine.i_request[n]),
            ):
                self.always(
                    f"{name} of {n}",
                    (inner.valid == outer.valid)
                    & (inner.ready == outer.ready)
                    & (plain(inner.payload) == plain(outer.payload)),
                )
            self.always(
                f"answers to {n}",
                (lane.reply_en == table.reply_en[n])
                & (plain(lane.reply) == plain(table.reply))
                & (lane.spill_done == engine.done[n])
                & (plain(lane.spill_reply) == plain(engine.reply)),
            )
            self.always(
                f"broadcasts to {n}",
                Cat(
                    plain(getattr(lane, name)) == plain(getattr(dut, name)) for name in broadcasts
                ).all(),
            )
            self.always(f"waiting of {n}", plain(dut.waiting[n]) == plain(lane.waiting))
        self.always(
            "table and engine hear",
            (plain(table.geometry_write) == plain(dut.geometry_write))
            & (plain(table.region_update) == plain(dut.region_update))
            & (plain(table.rows_query) == plain(dut.rows_query))
            & (plain(engine.geometry_write) == plain(dut.geometry_write)),
        )
        self.always(
            "table tells",
            (dut.rows == table.rows)
            & (dut.slots == table.slots)
            & (dut.moved == table.moved)
            & (plain(dut.obs_alloc) == plain(table.obs_alloc)),
        )
        self.always("purging while any", dut.purging == Cat(lane.purging for lane in lanes).any())
        self.always(
            "clearing while any",
            dut.clearing
            == Cat(
                table.clearing,
                engine.clearing,
                *(lane.clearing for lane in lanes),
            ).any(),
        )
        # Dependency ranges.
        self.always("ranges hear", plain(ranges.dep_write) == plain(dut.dep_write))
        for n, lane in enumerate(lanes):
            self.always(f"ranges at {n}", plain(lane.ranges) == plain(ranges.ranges))
        # Overlaps: one slice is heard in each cycle, none twice.
        heard, which = Signal(), Signal(dut.o_overlap.shape())
        m.d.comb += [
            heard.eq(Cat(lane.o_overlap.valid & lane.o_overlap.ready for lane in lanes).any()),
            which.en.eq(heard),
        ]
        for lane in lanes:
            with m.If(lane.o_overlap.valid & lane.o_overlap.ready):
                m.d.comb += [
                    which.region.eq(lane.o_overlap.p.region),
                    which.bank.eq(lane.o_overlap.p.bank),
                ]
        self.always(
            "one overlap at a time",
            sum(lane.o_overlap.valid & lane.o_overlap.ready for lane in lanes) <= 1,
        )
        self.always("overlaps heard", heard, when=Cat(lane.o_overlap.valid for lane in lanes).any())
        self.always("overlap tells", dut.o_overlap.en == self.past(heard, "heard"))
        self.always(
            "overlap named",
            plain(dut.o_overlap) == self.past(which, "which"),
            when=dut.o_overlap.en,
        )
        # Counters.
        for name in slice_types_of(self._cfg).summed:
            self.always(
                f"count {name}",
                dut.counts[name]
                == self.past(sum(lane.strobes[name] for lane in lanes), f"sum_{name}"),
            )
        reason = self.constant(4, "reason")
        self.suppose("reasons of this block", Cat(reason == each for each in REASONS).any())
        self.always(
            "count refused",
            dut.counts.refused[reason]
            == self.past(
                sum(lane.strobes.refused & (lane.strobes.reason == reason) for lane in lanes),
                "refusals",
            ),
        )
        self.always("count new rows", dut.counts.rat_new == self.past(table.obs_alloc.en, "given"))


def plain(value):
    """Bits of a value with a layout."""
    return value.as_value() if hasattr(value, "as_value") else value
