# SPDX-License-Identifier: Apache-2.0
"""SlotAllocator: gives each arriving row a dense place in its region."""

from typing import NamedTuple

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import SpillSignature
from hub_rtl.contract.records import received_of, types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import bug
from hub_rtl.parts.onehot import select, tree_sum

from .address_table import AddressTable
from .range_table import RangeTable
from .records import REASONS, slice_types_of
from .row_lookup import RowLookup
from .spill import SpillEngine
from .victim_store import VictimStore

__all__ = ["SlotAllocator"]


class SlotAllocatorObserve(NamedTuple):
    """What a proof may see of a :class:`SlotAllocator`: its parts."""

    lanes: list  #: RowLookup per slice
    table: AddressTable
    engine: SpillEngine
    store: VictimStore | None  #: None without ``cfg.victim_sets``
    ranges: RangeTable


class SlotAllocator(wiring.Component):
    """The consumer's allocator (AAU): one :class:`RowLookup` per slice, one :class:`AddressTable`,
    one :class:`SpillEngine`, behind a :class:`VictimStore` if ``cfg.victim_sets`` are not 0.

    Every packet of a row goes to the row's slot; slots are given out in arrival order, dense from
    0; what may not be placed is sunk and told (`o_refused`). See `docs/blocks/slot_allocator.md`
    for the full contract.

    Latency: a record's first beat in to write out 11 cycles for a new row, 8 for a known one. One
    beat and one packet per cycle and slice. Order is kept per slice, for writes, beats and
    refusals. Waits only for memory: `o_write`, `o_data`, `spill` (and
    `o_refused`, which the scoreboard always drains).

    Input is trusted: whole records, as a receive pool gives them. Parameters: ``cfg``. Ports:
    ``i_record`` In, streams of received records; ``o_write``, ``o_data``,
    ``o_refused`` Out, streams; ``geometry_write``, ``region_update``, ``window_write``,
    ``dep_write`` In, broadcasts; ``rows_query`` In, ``rows``, ``slots``, ``moved`` Out; ``purge``
    In, ``purging`` Out, from the next cycle on; ``o_overlap`` Out, strobe; ``spill`` Out;
    ``obs_alloc`` Out, observation; ``waiting`` Out, per slice; ``counts`` Out, increments;
    ``clearing`` Out, tables are being cleared after reset: writes would be lost.

    Source: paper section on the Address Allocation Unit; docs/interfaces.md section 6.
    """

    observe: SlotAllocatorObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._types, self._own = cfg, types, own
        super().__init__(
            {
                "i_record": In(stream.Signature(received_of(cfg, cfg.slice_bytes))).array(
                    cfg.slices
                ),
                "o_write": Out(stream.Signature(types.write)).array(cfg.slices),
                "o_data": Out(stream.Signature(types.beat)).array(cfg.slices),
                "o_refused": Out(stream.Signature(types.refusal)).array(cfg.slices),
                "geometry_write": In(types.geometry_write),
                "region_update": In(types.region_update),
                "window_write": In(types.window_write),
                "dep_write": In(types.dep_write),
                "rows_query": In(own.bank),
                "rows": Out(cfg.slot_width + 1),
                "slots": Out(cfg.slot_width),
                "moved": Out(cfg.slot_width),
                "purge": In(own.purge),
                "purging": Out(1),
                "o_overlap": Out(own.overlap),
                "spill": Out(SpillSignature()),
                "obs_alloc": Out(own.obs_alloc),
                "waiting": Out(own.waiting).array(cfg.slices),
                "counts": Out(own.counts),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, flipped = self._cfg, wiring.flipped
        m.submodules.table = table = AddressTable(cfg)
        lanes = [RowLookup(cfg) for _ in range(cfg.slices)]
        m.submodules.ranges = ranges = RangeTable(cfg)
        spilled, engine, store = self._spill(m, lanes)
        stores = [store] if store else []
        tellers = [lane.o_overlap for lane in lanes] + [each.o_lost for each in stores]
        m.submodules.overlaps = overlaps = RoundRobin(len(tellers))
        self.observe = SlotAllocatorObserve(lanes, table, engine, store, ranges)
        for n, lane in enumerate(lanes):
            m.submodules[f"slice{n}"] = lane
            wiring.connect(m, flipped(self.i_record[n]), lane.i_record)
            wiring.connect(m, lane.o_write, flipped(self.o_write[n]))
            wiring.connect(m, lane.o_data, flipped(self.o_data[n]))
            wiring.connect(m, lane.o_refused, flipped(self.o_refused[n]))
            wiring.connect(m, lane.o_alloc, table.i_request[n])
            wiring.connect(m, lane.o_spill, spilled.i_request[n])
            m.d.comb += [
                lane.reply_en.eq(table.reply_en[n]),
                lane.reply.eq(table.reply),
                lane.spill_done.eq(spilled.done[n]),
                lane.spill_reply.eq(spilled.reply),
                lane.purge.eq(self.purge),
                lane.geometry_write.eq(self.geometry_write),
                lane.region_update.eq(self.region_update),
                lane.window_write.eq(self.window_write),
                lane.ranges.eq(ranges.ranges),
                self.waiting[n].eq(lane.waiting),
            ]
        chosen = Signal(self._own.bank)
        if (asked := bug("slot_allocator.overlaps_wait_for_purge")) is not None:
            with m.If(asked):
                m.d.comb += overlaps.hold.eq(self.purge.en)
        m.d.comb += [
            table.geometry_write.eq(self.geometry_write),
            table.region_update.eq(self.region_update),
            ranges.dep_write.eq(self.dep_write),
            table.rows_query.eq(self.rows_query),
            self.rows.eq(table.rows),
            self.slots.eq(table.slots),
            self.moved.eq(table.moved),
            self.obs_alloc.eq(table.obs_alloc),
            self.purging.eq(Cat(part.purging for part in (*lanes, *stores)).any()),
            self.clearing.eq(Cat(part.clearing for part in (table, engine, *lanes, *stores)).any()),
            overlaps.requests.eq(Cat(each.valid for each in tellers)),
            *(each.ready.eq(overlaps.grant_onehot[n]) for n, each in enumerate(tellers)),
            overlaps.advance.eq(1),
            chosen.eq(select(overlaps.grant_onehot, [each.payload.as_value() for each in tellers])),
        ]
        m.d.sync += [
            self.o_overlap.en.eq(overlaps.requests.any()),
            self.o_overlap.region.eq(chosen.region),
            self.o_overlap.bank.eq(chosen.bank),
            self.counts.rat_new.eq(table.obs_alloc.en),
            self.counts.written_out.eq(Cat(each.written_out for each in stores).any()),
        ]
        for name in self._own.summed:
            told = [lane.strobes[name] for lane in lanes]
            if name == "spill_errors":
                told += [each.errors for each in stores]
            m.d.sync += self.counts[name].eq(tree_sum(told))
        for reason in REASONS:
            m.d.sync += self.counts.refused[reason].eq(
                tree_sum([lane.strobes.refused & (lane.strobes.reason == reason) for lane in lanes])
            )
        return m

    def _spill(self, m, lanes):
        """To the spill table: whom the slices ask, the engine, the store if there is one."""
        cfg = self._cfg
        m.submodules.engine = engine = SpillEngine(cfg, 1 if cfg.victim_sets else cfg.slices)
        wiring.connect(m, engine.mem, wiring.flipped(self.spill))
        m.d.comb += engine.geometry_write.eq(self.geometry_write)
        if not cfg.victim_sets:
            return engine, engine, None
        m.submodules.store = store = VictimStore(cfg)
        wiring.connect(m, store.o_request, engine.i_request[0])
        m.d.comb += [
            store.answered.eq(engine.done[0]),
            store.answer.eq(engine.reply),
            store.purge.eq(self.purge),
            store.settled.eq(~Cat(lane.purging for lane in lanes).any()),
        ]
        return store, engine, store
