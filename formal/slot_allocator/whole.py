# SPDX-License-Identifier: Apache-2.0
"""Promises of the slot allocator as a whole (``hub_rtl/slot_allocator/slot_allocator.py``) and of a
slice (``hub_rtl/slot_allocator/row_lookup.py``)."""

from amaranth import Cat, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, streams
from hub_rtl.slot_allocator.records import REASONS, slice_types_of
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator

__all__ = ["AllocatorJoinsItsParts"]


class AllocatorJoinsItsParts(Spec):
    """Whatever its parts say: each slice has its own packets, writes, beats, refusals and waiting
    cause; every slice hears every broadcast; each overlap that a slice tells leaves as one
    ``o_overlap``; ``purging`` and ``clearing`` are 1 while any part's is; ``counts`` are the sums
    of one cycle before; the spill port is the engine's, the rest the table's. Slices ask the victim
    store, if there is one, and that asks the engine; it hears of purges, and that slices are done,
    and what it loses leaves as ``o_overlap`` too. The dependency ranges that the slices see are
    those of the table of ranges."""

    def build(self, m):
        m.submodules.dut = dut = SlotAllocator(self._cfg)
        lanes, table, engine, store, ranges = observe(dut)
        stores = [store] if store else []
        for part in (*lanes, table, engine, *stores, ranges):
            cut(self, part)
        spilled = store or engine
        tellers = [*(lane.o_overlap for lane in lanes), *(each.o_lost for each in stores)]
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
                ("words", lane.o_spill, spilled.i_request[n]),
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
                & (lane.spill_done == spilled.done[n])
                & (plain(lane.spill_reply) == plain(spilled.reply)),
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
        purges = Cat(lane.purging for lane in lanes).any()
        self.always(
            "purging while any",
            dut.purging == Cat(purges, *(each.purging for each in stores)).any(),
        )
        for each in stores:
            asked, engaged = each.o_request, engine.i_request[0]
            self.always(
                "store at the engine",
                (asked.valid == engaged.valid)
                & (asked.ready == engaged.ready)
                & (plain(asked.payload) == plain(engaged.payload))
                & (each.answered == engine.done)
                & (plain(each.answer) == plain(engine.reply)),
            )
            self.always(
                "store purges",
                (plain(each.purge) == plain(dut.purge)) & (each.settled == ~purges),
            )
        self.always(
            "clearing while any",
            dut.clearing
            == Cat(
                table.clearing,
                engine.clearing,
                *(part.clearing for part in (*lanes, *stores)),
            ).any(),
        )
        # Dependency ranges.
        self.always("ranges hear", plain(ranges.dep_write) == plain(dut.dep_write))
        for n, lane in enumerate(lanes):
            self.always(f"ranges at {n}", plain(lane.ranges) == plain(ranges.ranges))
        # Overlaps: one part is heard in each cycle, none twice.
        heard = Signal()
        which = Signal(dut.o_overlap.shape())
        m.d.comb += [
            heard.eq(Cat(moves(each) for each in tellers).any()),
            which.en.eq(heard),
        ]
        for each in tellers:
            with m.If(moves(each)):
                m.d.comb += [
                    which.region.eq(each.p.region),
                    which.bank.eq(each.p.bank),
                ]
        self.always("one overlap at a time", sum(moves(each) for each in tellers) <= 1)
        self.always("overlaps heard", heard, when=Cat(each.valid for each in tellers).any())
        self.always("overlap tells", dut.o_overlap.en == self.past(heard, "heard"))
        self.always(
            "overlap named",
            plain(dut.o_overlap) == self.past(which, "which"),
            when=dut.o_overlap.en,
        )
        # Counters.
        for name in slice_types_of(self._cfg).summed:
            told = [lane.strobes[name] for lane in lanes]
            if name == "spill_errors":
                told += [each.errors for each in stores]
            width = len(dut.counts[name])
            self.always(
                f"count {name}", dut.counts[name] == self.past(sum(told), f"sum_{name}")[:width]
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
        for store in stores:
            out = self.past(store.written_out, "out")
            self.always("count written out", dut.counts.written_out == out)


def plain(value):
    """Bits of a value with a layout."""
    return value.as_value() if hasattr(value, "as_value") else value
