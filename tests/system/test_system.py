# SPDX-License-Identifier: Apache-2.0
"""Whole systems on the generated Verilog: hubs, switch, memories and programs against the golden
model."""

import json
import random

import numpy as np
import pytest

from flow.driver import DepRange, Handle
from hub_rtl.contract.packets import EventKind, LaneMode, Reason
from sim.bench.runner import bench_seed, run_bench
from sim.quality.coverage import cover
from sim.system.baseline import baseline_programs, check_baseline
from sim.system.four_hubs import (
    CFG,
    PATTERNS,
    PLAIN,
    ROW,
    SPILL,
    all_to_all,
    finish,
    region,
    scatter,
    scenario,
    verify,
)
from sim.system.layer import hub_programs, plan_layer
from sim.system.layer_check import check_layer
from sim.system.system import hub_verilog, row_operand
from sim.workload.models import model
from sim.workload.traces import generate


@pytest.mark.parametrize("idle", PATTERNS)
@pytest.mark.parametrize("pressure", PATTERNS)
def test_rows_all_to_all(harness, idle, pressure):
    """Rows of four producers, on the grid of idle and back-pressure patterns of stores, links,
    memory and events."""
    stall = PATTERNS[pressure]
    s = scenario(
        store_idle=PATTERNS[idle],
        mem_stall=stall,
        link_stall=stall,
        event_stall=stall,
        response_stall=stall,
        mem_jitter=8,
    )
    all_to_all(s)
    scatter(s, random.Random(bench_seed()), rows=6)
    finish(s)
    verify(s, harness)
    cover(f"system.grid.{idle}.{pressure}")


def test_masks_and_plain_stores(harness):
    """Byte masks, odd offsets and runs of bytes to addresses; bytes outside the masks stay
    untouched."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        for source in range(CFG.ranks):
            s.window(rank, source, PLAIN, PLAIN + 0x8000)
        s.dep_range(
            rank,
            0,
            DepRange(
                base=PLAIN, limit=PLAIN + 0x4000, log2_stride=10, group_base=32, threshold=256
            ),
        )
    s.barrier()
    for rank in range(CFG.ranks):
        for dest in range(CFG.ranks):
            s.plain(rank, dest, PLAIN + rank * 0x400, rng.randbytes(256))
            area = PLAIN + 0x4000 + rank * 0x400
            for n in range(8):
                s.plain_store(
                    rank, dest, area + 64 * n, rng.randbytes(32), rng.getrandbits(32) or 1
                )
            s.plain(rank, dest, area + 0x200 + 5, rng.randbytes(100), cls=1)
        s.sync(rank)
        s.program(rank).fence()
        s.program(rank).wait_events(EventKind.READY, CFG.ranks, plain=True)
    verify(s, harness)


def unit_store(s, rank, dest, unit, data, operand=None, addr=None):
    """One 16-byte unit of a row or of a plain area, as a store of half a sector."""
    half = 16 * (unit % 2)
    sector = bytes(half) + data[16 * unit : 16 * unit + 16] + bytes(16 - half)
    if operand is not None:
        return s.store(rank, operand(unit), sector, 0xFFFF << half, dest=dest)
    return s.plain_store(rank, dest, addr + 32 * (unit // 2), sector, 0xFFFF << half)


#: Units of plain blocks of 128 bytes: sectors with one unit stay so. Each pair of ends, and holes.
UNITS = (0x55, 0xAA, 0x02, 0x7E, 0x82, 0xC6)


def half_of_all(s, rng, rank, half, rows, plain):
    """The lower or the upper units of all sectors of a producer, in random order."""
    for dest, data in rows.items():

        def operand(unit, dest=dest):
            return row_operand(2 * dest, 0, rank * 16, unit)

        units = range(half, ROW // 16, 2)
        for unit in rng.sample(units, len(units)):
            assert unit_store(s, rank, dest, unit, data, operand=operand) == Reason.OK
        for n, piece in enumerate(plain):
            addr = PLAIN + 0x400 * rank + 128 * n
            for unit in range(half, 8, 2):
                if UNITS[n] >> unit & 1:
                    assert unit_store(s, rank, dest, unit, piece, addr=addr) == Reason.OK


@pytest.mark.parametrize("first", [0, 1], ids=["lower", "upper"])
def test_half_sectors(harness, first):
    """The lower or the upper units of all sectors leave first, by a fence, then the others: no byte
    of them is touched."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        for source in range(CFG.ranks):
            s.window(rank, source, PLAIN, PLAIN + 0x8000)
    all_to_all(s)
    for rank in range(CFG.ranks):
        rows = {dest: rng.randbytes(ROW) for dest in range(CFG.ranks)}
        plain = [rng.randbytes(128) for _ in UNITS]
        for half in (first, 1 - first):
            half_of_all(s, rng, rank, half, rows, plain)
            s.sync(rank)
            s.program(rank).fence()
        s.close_all(rank)
    finish(s)
    verify(s, harness)
    cover(f"system.half_sectors.{('lower', 'upper')[first]}")


def test_refusals_disturb_nobody(harness):
    """Wrong stores among good ones: each is answered with its reason, the good rows arrive."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s)
    for rank in range(CFG.ranks):
        data, dest = rng.randbytes(ROW), (rank + 1) % CFG.ranks
        handle = dest * 2
        good = row_operand(handle, 0, rank * 16)
        s.row(rank, handle, rank * 16, data)
        wrong = [
            (row_operand(20, 0, 1), {}),
            (good, {"owner": 5}),
            (row_operand(handle, 3, 1), {}),
            (row_operand(handle, 12, 1), {}),
            (row_operand(handle, 0, 1, 18), {}),
            (good, {"lane": 1 - s.lane(rank, good)}),
        ]
        reasons = [
            s.store(rank, operand, bytes(32), 0xFFFFFFFF, dest=dest, **more)
            for operand, more in wrong
        ]
        assert reasons == [
            Reason.UNKNOWN,
            Reason.FOREIGN,
            Reason.EPOCH_EARLY,
            Reason.EPOCH_STALE,
            Reason.ROW_OVERRUN,
            Reason.BAD_LANE,
        ]
        assert s.plain_store(rank, 99, 0, bytes(32), 1) == Reason.UNKNOWN
        s.sync(rank)
        assert s.close(rank, 20) == Reason.UNKNOWN
        s.close_all(rank)
        assert s.store(rank, good, bytes(32), 1, dest=dest) == Reason.AFTER_CLOSE
    finish(s)
    verify(s, harness)


def test_refusals_of_the_consumer(harness):
    """Full region, rows out of range, stores outside the window: sunk, counted, rejected once per
    row; the rest arrives."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s, capacity=5, row_span=48)
    for rank in range(CFG.ranks):
        s.window(rank, 0, PLAIN, PLAIN + 0x100)
    for rank in range(CFG.ranks):
        for n in range(2):
            s.row(rank, (rank + 1) % 4 * 2, rank * 8 + n, rng.randbytes(ROW))
            s.row(rank, 0, rank * 8 + 4 + n, rng.randbytes(ROW))
        s.row(rank, (rank + 1) % 4 * 2, 50, rng.randbytes(ROW))
        s.plain(rank, (rank + 1) % 4, PLAIN + 0x400, rng.randbytes(128))
        s.close_all(rank)
    finish(s)
    verify(s, harness)


def test_overflow_region(harness):
    """What finds region 0 full goes to region 2; both end all-ready with their rows."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        s.region(rank, 2, region(2, expected=1))
        s.region(rank, 0, region(0, capacity=6, overflow=2))
        for dest in range(CFG.ranks):
            s.handle(rank, dest, Handle(targets=((dest, 0),), row_bytes=ROW))
    s.barrier()
    for rank in range(CFG.ranks):
        for n in range(3):
            s.row(rank, (rank + n) % 4, rank * 16 + n, rng.randbytes(ROW))
            s.row(rank, 0, rank * 16 + 8 + n, rng.randbytes(ROW))
        s.close_all(rank)
        s.program(rank).wait_events(EventKind.ALL, 2)
    verify(s, harness)


def test_spill_and_restore(harness):
    """More rows in flight than the RAT has places: rows go to memory and come back, and nothing is
    wrong."""
    rng, s = random.Random(bench_seed()), scenario(streams=48, burst=2, use_can_accept=0)
    all_to_all(s, regions=1, capacity=128, row_span=128, base=(0x4000, 0x20000))
    rows = [
        (rank, rank * 32 + n, rng.randbytes(ROW)) for n in range(32) for rank in range(CFG.ranks)
    ]
    for rank, rowid, data in rows:
        s.row(rank, 0, rowid, data[:128])
    for rank in range(CFG.ranks):  # every row is begun before one is completed
        s.sync(rank)
        s.program(rank).fence()
    s.barrier()
    for rank, rowid, data in rows:
        s.row(rank, 0, rowid, data[128:], row_off=8)
    for rank in range(CFG.ranks):
        s.close_all(rank)
    finish(s, regions=1)
    verify(s, harness)


def test_two_epochs_and_reuse(harness):
    """Producers run one epoch ahead; banks are released and opened again for epoch 2."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s, epochs=(0, 1))
    for rank in range(CFG.ranks):
        for epoch in (0, 1):
            for n in range(4):
                s.row(rank, (rank + n) % 8, rank * 16 + n, rng.randbytes(ROW), epoch=epoch)
            s.close_all(rank, epoch)
        s.program(rank).wait_events(EventKind.ALL, 4)
    s.barrier()
    for rank in range(CFG.ranks):
        for index in range(2):
            s.drivers[rank].release(index, 0)
    s.barrier()
    for rank in range(CFG.ranks):
        s.program(rank).wait_cycles(300)
        for index in range(2):
            s.open(rank, index, 2)
    s.barrier()
    for rank in range(CFG.ranks):
        s.program(rank).wait_cycles(50)
        for n in range(4):
            s.row(rank, (rank + 3 * n) % 8, rank * 16 + n, rng.randbytes(ROW), epoch=2)
        s.close_all(rank, 2)
        s.program(rank).wait_events(EventKind.ALL, 6)
    s.barrier()
    for rank in range(CFG.ranks):
        for index in range(2):
            s.query(rank, index, 2)
            s.query(rank, index, 1)
    # epoch 0's memory is reused by epoch 2: only the last bytes are compared, in the order of
    # writing
    verify(s, harness)


def test_replicas_and_lane_modes(harness):
    """Rows spread over two replicas by hash; handles pinned by hash and fixed."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        for index in range(2):
            s.region(rank, index, region(index, expected=4, capacity=16))
        for pair in range(2):
            targets = ((2 * pair, 0), (2 * pair + 1, 0))
            s.handle(rank, pair, Handle(targets=targets, row_bytes=ROW, lane_mode=LaneMode.HASH))
        for dest in range(CFG.ranks):
            s.handle(
                rank,
                4 + dest,
                Handle(
                    targets=((dest, 1),), row_bytes=ROW, lane_mode=LaneMode.FIXED, lane=dest % 2
                ),
            )
    s.barrier()
    for rank in range(CFG.ranks):
        for n in range(4):
            s.row(rank, n % 2, rank * 16 + n, rng.randbytes(ROW))
            s.row(rank, 4 + n, rank * 16 + n, rng.randbytes(ROW))
        s.close_all(rank)
    finish(s)
    verify(s, harness)


def layer_plan():
    shape = model("tiny")
    routing = generate(tokens=40, top_k=shape.top_k, experts=shape.experts, seed=bench_seed())
    return plan_layer(shape, routing, ranks=4, lanes=2, tile_rows=4, base=CFG)


@pytest.mark.parametrize("threads", [1, 2])
def test_whole_layer(harness, threads):
    """Dispatch, expert stand-in and combine; every byte, event and register as the model says."""
    plan = layer_plan()
    result = hub_programs(plan, latency=32, window=32, threads=threads, max_cycles=60_000).run(
        harness
    )
    verdict = check_layer(plan, result)
    result.remove()
    assert verdict.differences == []
    assert verdict.rows == 80


def test_layer_does_not_depend_on_threads_or_window(harness):
    """Cycle for cycle the same with one or two threads; G7."""
    plan, logs = layer_plan(), []
    for threads in (1, 2):
        result = hub_programs(plan, latency=32, window=32, threads=threads, max_cycles=60_000).run(
            harness
        )
        logs.append(
            [
                result.log(name, rank).tobytes()
                for rank in range(4)
                for name in ("events", "allocs", "packets")
            ]
        )
        result.remove()
    assert logs[0] == logs[1]


def test_layer_the_address_centric_way(harness):
    """The baseline's memory is as the model says too, so that the comparison is of like with
    like."""
    plan = layer_plan()
    result = baseline_programs(plan, latency=32, window=32, max_cycles=60_000).run(harness)
    verdict = check_baseline(plan, result)
    result.remove()
    assert verdict.differences == []


def test_cocotb_and_harness_agree(harness, tmp_path):
    """The pins of one hub, recorded in a native run, are the same under cocotb in every cycle; so
    are events and memory."""
    rng, s = random.Random(bench_seed()), scenario(record=1, drain=200)
    all_to_all(s, regions=1)
    for rank in range(CFG.ranks):
        for n in range(3):
            s.row(rank, 1 if n else rank, rank * 16 + n, rng.randbytes(ROW))
        s.close_all(rank)
    finish(s, regions=1)
    result = s.run(harness, folder=tmp_path / "run")
    assert s.differences(result) == []
    out = tmp_path / "out.json"
    run_bench(
        hub_verilog(CFG),
        name="moehub",
        module="sim.cocotb.system.replay",
        cfg=CFG,
        params={"pins": str(tmp_path / "run" / "rank1.pins"), "out": str(out)},
    )
    seen = json.loads(out.read_text())
    events = result.log("events", 1)
    names = ("cycle", "kind", "plain", "region", "epoch", "group", "rows", "status", "refused")
    assert seen["events"] == [[int(e[name]) for name in names] for e in events]
    image = np.zeros(s.arena, dtype=np.uint8)
    for address, byte in seen["memory"]:
        image[address] = byte
    memory = np.array(result.memory(1))
    memory[SPILL[0] : SPILL[1]] = 0
    assert np.array_equal(image, memory)
