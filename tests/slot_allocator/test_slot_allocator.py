# SPDX-License-Identifier: Apache-2.0
"""Slot allocator: the whole block under cocotb, the address table alone in Amaranth's simulator."""

from functools import partial

import pytest
from amaranth.sim import Simulator

from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.slot_allocator.address_table import AddressTable
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught
from sim.quality.coverage import cover

ODD = {
    "regions": 3,
    "ranks": 3,
    "rat_ways": 3,
    "capacity": 5,
    "packet_bytes": 256,
    "max_row_bytes": 512,
}
COMMON = [
    "traffic",
    "thrash",
    "full_regions",
    "spill_faults",
    "overlap",
    "purge",
    "blocked_outputs",
    "opened_in_a_row",
    "old_rows",
    "reset_in_traffic",
    "latency",
    "plain_bounds",
    "range_groups",
    "refusals_told_apart",
    "row_bounds",
    "epochs",
    "state_changes_in_check",
    "tables_written_again",
    "every_slot",
    "damaged_words",
    "reset_forgets",
    "overflow_region_ends_first",
    "answers_wait",
    "queues_stay_full",
    "all_at_once",
    "turns",
    "turns_of_words",
    "opened_while_answering",
    "ended_while_answering",
    "purge_each",
    "purge_in_turns",
    "purge_waits",
    "overflow_region_opens",
    "sources",
    "turns_of_overlaps",
    "hits_do_not_wait",
    "row_back_to_back",
    "waits_named",
    "stalls_counted",
    "tables_change_in_check",
    "reset_when_full",
    "spilled_row_waits",
    "many_moved",
    "overflow_region_differs",
    "tables_written_in_thrash",
    "window_changes_in_check",
    "geometry_changes_in_check",
    "offsets",
    "restored_rows_end",
    "any_rows_thrash",
    "row_range_bits",
]
MODULES = ",".join(
    f"sim.cocotb.slot_allocator.{part}"
    for part in ("tests", "limits", "pressure", "turns", "moments", "store")
)
#: A store of two sets, with several slices and banks; of one, with rows of all numbers.
STORES = {
    "store": preset("small", lanes=2, victim_sets=2),
    "store_tiny": preset("tiny", victim_sets=1, capacity=64),
}
IN_STORE = [
    "words_stay",
    "rows_alike",
    "words_are_lost",
    "purge_waits_for_loss",
    "purge_forgets_words",
    "purge_keeps_others",
    "damaged_in_memory",
    "losses_meet_overlaps",
]


def run_allocator(component, cfg, name, tests, bug=None):
    run_bench(
        partial(component, cfg),
        name=f"slot_allocator_{name}",
        module=MODULES,
        tests=tests,
        cfg=cfg,
        bug=bug,
    )


def test_tiny():
    """One set of two ways: nearly every row is spilled once."""
    run_allocator(SlotAllocator, preset("tiny"), "tiny", COMMON)


SMALL = preset("small", lanes=2, victim_sets=0)


@pytest.mark.night
def test_small():
    """Three slices."""
    run_allocator(SlotAllocator, SMALL, "small", COMMON)


def test_rates():
    """Of three slices."""
    rates = ["full_rate", "packet_per_cycle", "rows_per_cycle"]
    run_allocator(SlotAllocator, SMALL, "small", rates)


def test_odd():
    """Three regions, ranks and ways, five slots, packets of 256 bytes."""
    run_allocator(SlotAllocator, preset("tiny", **ODD), "odd", COMMON)


@pytest.mark.parametrize("name", [pytest.param("store", marks=pytest.mark.night), "store_tiny"])
def test_store(name):
    """With a victim store in front of the spill table."""
    run_allocator(SlotAllocator, STORES[name], name, [*COMMON, *IN_STORE])


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        # Rows whose numbers differ in their upper bits only share a line.
        ("slot_allocator.lines_of_16_bits", "rows_alike"),
        # A restored row's word stays: the next row of that number is taken for it.
        ("slot_allocator.erased_line_stays", "rows_alike"),
        # What was written out is never looked for.
        ("slot_allocator.written_out_unnoticed", "rows_alike"),
        # A purge ends before its bank has heard of a word that memory lost.
        ("slot_allocator.purge_overtakes_loss", "purge_waits_for_loss"),
    ],
)
def test_bugs_of_the_store(name, test):
    cfg = STORES["store_tiny"]
    assert_caught(lambda: run_allocator(SlotAllocator, cfg, "store_tiny", [test], bug=name))


@pytest.mark.parametrize("name", ["tiny", pytest.param("small", marks=pytest.mark.night), "odd"])
def test_moments(name):
    """Faults between banks, and two events at one register."""
    configs = {
        "tiny": preset("tiny"),
        "small": SMALL,
        "odd": preset("tiny", **ODD),
    }
    cfg = configs[name]
    run_allocator(SlotAllocator, cfg, name, ["spill_faults_between_banks", "purge_meets_row"])


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test, lanes",
    [
        # A spill that is lost is told to the bank of the packet that took the place, not to its
        # row's.
        ("slot_allocator.fault_told_to_packets_bank", "spill_faults_between_banks", None),
        ("slot_allocator.fault_told_to_packets_region", "spill_faults_between_banks", None),
        # A spill that the filter does not count: the row comes back as a new one and gets a second
        # slot.
        ("slot_allocator.spill_not_counted", "thrash", 1),
        # Rows of a run's last bank are still known in its next epoch.
        ("slot_allocator.last_bank_not_purged", "purge_each", None),
        # A part without a byte between others gets no beat; a record without a byte lies elsewhere.
        ("slot_allocator.missing_parts_left_out", "traffic", None),
        ("slot_allocator.empty_record_at_first_unit", "traffic", None),
    ],
)
def test_mutants(name, test, lanes):
    cfg = preset("tiny", lanes=lanes) if lanes else preset("tiny")
    assert_caught(lambda: run_allocator(SlotAllocator, cfg, f"tiny{lanes}", [test], bug=name))


def simulate(dut, bench):
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


def table_region(dut, ctx, number, **fields):
    ctx.set(
        dut.geometry_write,
        {"en": 1, "region": number, "geometry": {"valid": 1, "row_bytes": 256, **fields}},
    )


def test_address_table_one_row_per_cycle():
    """1,000 new rows back to back in one region, then more than fit: one answer per cycle, slots
    dense, addresses right."""
    cfg = preset("small", lanes=2)
    dut = AddressTable(cfg)
    count, stride = 1000, 3 * cfg.packet_bytes
    replies = []

    async def bench(ctx):
        while ctx.get(dut.clearing):
            await ctx.tick()
        table_region(
            dut, ctx, 3, base=[0, 1 << 40], stride=stride, capacity=count, group_base=5, log2_tile=3
        )
        await ctx.tick()
        ctx.set(dut.geometry_write, {"en": 0})
        ctx.set(
            dut.region_update,
            {"en": 1, "region": 3, "bank": 1, "state": RegionState.OPEN, "epoch": 1},
        )
        await ctx.tick()
        ctx.set(dut.region_update, {"en": 0})
        for port in dut.i_request:
            ctx.set(port.valid, 1)
            ctx.set(port.payload, {"region": 3, "bank": 1})
        taken = 0
        while len(replies) < count + 10:
            taken += sum(ctx.get(port.ready) for port in dut.i_request)
            if ctx.get(dut.reply_en):
                reply = ctx.get(dut.reply)
                replies.append((taken, reply.reason, reply.slot, reply.addr, reply.group))
            await ctx.tick()

    simulate(dut, bench)
    for n, (taken, reason, slot, addr, group) in enumerate(replies):
        assert taken == n + 5, "one request per cycle, answered four cycles after it was taken"
        if n < count:
            assert (reason, slot, addr, group) == (
                Reason.OK,
                n,
                (1 << 40) + n * stride,
                5 + (n >> 3) & 63,
            )
        else:
            assert reason == Reason.REGION_FULL
    cover("slot_allocator.table.one_per_cycle")


def test_address_table_overflow_keeps_order():
    """Requests that overflow take three cycles more; those behind them, in other regions or the
    same, keep their order."""
    cfg = preset("small", lanes=2)
    dut = AddressTable(cfg)
    replies, events = [], []

    async def bench(ctx):
        while ctx.get(dut.clearing):
            await ctx.tick()
        regions = {
            0: {"capacity": 2, "overflow_en": 1, "overflow": 2},
            1: {"capacity": 9},
            2: {"capacity": 3},
        }
        for number, fields in regions.items():
            table_region(dut, ctx, number, base=[number << 20, 0], stride=256, **fields)
            ctx.set(
                dut.region_update,
                {"en": 1, "region": number, "bank": 0, "state": RegionState.OPEN, "epoch": 2},
            )
            await ctx.tick()
        ctx.set(dut.geometry_write, {"en": 0})
        ctx.set(dut.region_update, {"en": 0})
        port = dut.i_request[1]
        for region in (0, 1, 0, 0, 1, 0, 0, 0, 1):
            ctx.set(port.valid, 1)
            ctx.set(port.payload, {"region": region, "bank": 0})
            while not ctx.get(port.ready):
                await ctx.tick()
                look(ctx)
            await ctx.tick()
            look(ctx)
        ctx.set(port.valid, 0)
        ctx.set(dut.rows_query, {"region": 0, "bank": 0})
        for _ in range(20):
            await ctx.tick()
            look(ctx)
        events.append((ctx.get(dut.slots), ctx.get(dut.moved), ctx.get(dut.rows)))

    def look(ctx):
        if ctx.get(dut.reply_en):
            assert ctx.get(dut.reply_en) == 0b10
            reply = ctx.get(dut.reply)
            replies.append(
                (reply.reason, reply.place, reply.slot if reply.reason == Reason.OK else None)
            )

    simulate(dut, bench)
    full = (Reason.REGION_FULL, 2, None)
    assert replies == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (0, 2, 0),
        (0, 1, 1),
        (0, 2, 1),
        (0, 2, 2),
        full,
        (0, 1, 2),
    ]
    assert events == [(2, 3, 5)]
    cover("slot_allocator.table.overflow_order")


def test_address_table_waits_for_overflow_geometry():
    """A slot of the overflow region is asked for: not answered while that region's geometry is
    written, then with the new one; writing another region delays nothing."""
    cfg = preset("small", lanes=2)
    dut = AddressTable(cfg)
    replies = []

    async def bench(ctx):
        while ctx.get(dut.clearing):
            await ctx.tick()
        table_region(dut, ctx, 0, base=[0, 0], stride=256, capacity=2, overflow_en=1, overflow=1)
        await ctx.tick()
        table_region(dut, ctx, 1, base=[0, 0], stride=256, capacity=9)
        await ctx.tick()
        port = dut.i_request[0]
        for written in (1, 2):
            ctx.set(port.valid, 1)
            ctx.set(
                port.payload, {"region": 0, "bank": 0, "translate": 1, "overflow": 1, "slot": 5}
            )
            for cycle in range(24):
                ctx.set(dut.geometry_write.en, 0)
                if cycle < 12:
                    table_region(dut, ctx, written, base=[cycle << 20, 0], stride=256, capacity=9)
                if ctx.get(dut.reply_en):
                    replies.append(
                        (written, cycle, ctx.get(dut.reply.reason), ctx.get(dut.reply.addr))
                    )
                await ctx.tick()
                ctx.set(port.valid, 0)

    simulate(dut, bench)
    address = (11 << 20) + 5 * 256
    # The last write is in cycle 11, the overflow region is read in the next; undisturbed it is 2
    # cycles after the request.
    assert replies == [(1, 12 + 4, Reason.OK, address), (2, 2 + 4, Reason.OK, address)]
