# SPDX-License-Identifier: Apache-2.0
"""Whole systems on the generated Verilog: hubs, switch, memories and programs against the golden
model."""

import json

import numpy as np
import pytest

from flow.driver import DepRange, Handle
from hub_rtl.contract.packets import CommandOp, EventKind, LaneMode, Reason
from sim.bench.runner import bench_seed, run_bench
from sim.quality.coverage import cover
from sim.system import building, fixed_slots
from sim.system.building import hub_verilog
from sim.system.formats import OpKind
from sim.system.four_hubs import (
    CFG,
    PATTERNS,
    PLAIN,
    RANKS,
    ROW,
    SPILL,
    FourHubs,
    all_to_all,
    everything_logged,
    finish,
    region,
    scatter,
    thrash,
    verify,
)
from sim.system.layer import TELLER, hub_programs, plan_layer
from sim.system.layer_check import check_layer
from sim.system.system import row_operand
from sim.system.ways import BASELINES, WAYS
from sim.workload.models import model
from sim.workload.traces import generate


@pytest.mark.parametrize("idle", PATTERNS)
@pytest.mark.parametrize("pressure", PATTERNS)
def test_rows_all_to_all(harness, idle, pressure):
    """Rows of four producers, on the grid of idle and back-pressure patterns of stores, links,
    memory and events."""
    stall = PATTERNS[pressure]
    s = FourHubs(
        store_idle=PATTERNS[idle],
        mem_stall=stall,
        link_stall=stall,
        event_stall=stall,
        response_stall=stall,
        mem_jitter=8,
    )
    all_to_all(s)
    scatter(s, rows=6)
    finish(s)
    verify(s, harness)
    cover(f"system.grid.{idle}.{pressure}")


def open_windows(s):
    """Everybody may store to the first plain addresses of everybody."""
    for rank in RANKS:
        for source in RANKS:
            s.window(rank, source, PLAIN, PLAIN + 0x8000)


def test_masks_and_plain_stores(harness):
    """Byte masks, odd offsets and runs of bytes to addresses; bytes outside the masks stay
    untouched."""
    s = FourHubs()
    open_windows(s)
    blocks = DepRange(
        base=PLAIN, limit=PLAIN + 0x4000, log2_stride=10, group_base=32, threshold=256
    )
    for rank in RANKS:
        s.dep_range(rank, 0, blocks)
    s.barrier()
    for rank in RANKS:
        for dest in RANKS:
            s.plain(rank, dest, PLAIN + rank * 0x400, s.rng.randbytes(256))
            area = PLAIN + 0x4000 + rank * 0x400
            for n in range(8):
                s.plain_store(
                    rank, dest, area + 64 * n, s.rng.randbytes(32), s.rng.getrandbits(32) or 1
                )
            s.plain(rank, dest, area + 0x200 + 5, s.rng.randbytes(100), cls=1)
        s.sync(rank)
        s.fence(rank)
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


def half_of_all(s, rank, half, rows, plain):
    """The lower or the upper units of all sectors of a producer, in random order."""
    for dest, data in rows.items():

        def operand(unit, dest=dest):
            return row_operand(2 * dest, 0, rank * 16, unit)

        units = range(half, ROW // 16, 2)
        for unit in s.rng.sample(units, len(units)):
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
    s = FourHubs()
    open_windows(s)
    all_to_all(s)
    for rank in RANKS:
        rows = {dest: s.rng.randbytes(ROW) for dest in RANKS}
        plain = [s.rng.randbytes(128) for _ in UNITS]
        for half in (first, 1 - first):
            half_of_all(s, rank, half, rows, plain)
            s.sync(rank)
            s.fence(rank)
        s.close_all(rank)
    finish(s)
    verify(s, harness)
    cover(f"system.half_sectors.{('lower', 'upper')[first]}")


def test_refusals_disturb_nobody(harness):
    """Wrong stores among good ones: each is answered with its reason, the good rows arrive."""
    s = FourHubs()
    all_to_all(s)
    for rank in RANKS:
        data, dest = s.rng.randbytes(ROW), (rank + 1) % CFG.ranks
        handle = dest * 2
        good = row_operand(handle, 0, rank * 16)
        s.row(rank, handle, rank * 16, data)
        wrong = {
            Reason.UNKNOWN: (row_operand(20, 0, 1), {}),
            Reason.FOREIGN: (good, {"owner": 5}),
            Reason.EPOCH_EARLY: (row_operand(handle, 3, 1), {}),
            Reason.EPOCH_STALE: (row_operand(handle, 12, 1), {}),
            Reason.ROW_OVERRUN: (row_operand(handle, 0, 1, 18), {}),
            Reason.BAD_LANE: (good, {"lane": 1 - s.lane(rank, good)}),
        }
        for reason, (operand, more) in wrong.items():
            assert s.store(rank, operand, bytes(32), 0xFFFFFFFF, dest=dest, **more) == reason
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
    s = FourHubs()
    all_to_all(s, capacity=5, row_span=48)
    for rank in RANKS:
        s.window(rank, 0, PLAIN, PLAIN + 0x100)
    for rank in RANKS:
        for n in range(2):
            s.row(rank, (rank + 1) % 4 * 2, rank * 8 + n)
            s.row(rank, 0, rank * 8 + 4 + n)
        s.row(rank, (rank + 1) % 4 * 2, 50)
        s.plain(rank, (rank + 1) % 4, PLAIN + 0x400, s.rng.randbytes(128))
        s.close_all(rank)
    finish(s)
    verify(s, harness)


def test_overflow_region(harness):
    """What finds region 0 full goes to region 2; both end all-ready with their rows."""
    s = FourHubs()
    for rank in RANKS:
        s.region(rank, 2, region(2, expected=1))
        s.region(rank, 0, region(0, capacity=6, overflow=2))
        for dest in RANKS:
            s.handle(rank, dest, Handle(targets=((dest, 0),), row_bytes=ROW))
    s.barrier()
    for rank in RANKS:
        for n in range(3):
            s.row(rank, (rank + n) % 4, rank * 16 + n)
            s.row(rank, 0, rank * 16 + 8 + n)
        s.close_all(rank)
        s.wait_all(rank, 2)
    verify(s, harness)


def test_spill_and_restore(harness):
    """More rows in flight than the RAT has places: rows go to memory and come back, and nothing is
    wrong."""
    s = FourHubs(streams=48, burst=2, use_can_accept=0)
    thrash(s, 0)
    verify(s, harness)


def test_two_epochs_and_reuse(harness):
    """Producers run one epoch ahead; banks are released and opened again for epoch 2."""
    s = FourHubs()
    all_to_all(s, epochs=(0, 1))
    for rank in RANKS:
        for epoch in (0, 1):
            for n in range(4):
                s.row(rank, (rank + n) % 8, rank * 16 + n, epoch=epoch)
            s.close_all(rank, epoch)
        s.wait_all(rank, 4)
    s.barrier()
    for rank in RANKS:
        for index in range(2):
            s.drivers[rank].release(index, 0)
    s.barrier()
    for rank in RANKS:
        s.wait(rank, 300)
        for index in range(2):
            s.open(rank, index, 2)
    s.barrier()
    for rank in RANKS:
        s.wait(rank, 50)
        for n in range(4):
            s.row(rank, (rank + 3 * n) % 8, rank * 16 + n, epoch=2)
        s.close_all(rank, 2)
        s.wait_all(rank, 6)
    s.barrier()
    for rank in RANKS:
        for index in range(2):
            s.query(rank, index, 2)
            s.query(rank, index, 1)
    # epoch 0's memory is reused by epoch 2: only the last bytes are compared, in the order of
    # writing
    verify(s, harness)


def test_replicas_and_lane_modes(harness):
    """Rows spread over two replicas by hash; handles pinned by hash and fixed."""
    s = FourHubs()
    for rank in RANKS:
        for index in range(2):
            s.region(rank, index, region(index, expected=4, capacity=16))
        for pair in range(2):
            targets = ((2 * pair, 0), (2 * pair + 1, 0))
            s.handle(rank, pair, Handle(targets=targets, row_bytes=ROW, lane_mode=LaneMode.HASH))
        fixed = {"row_bytes": ROW, "lane_mode": LaneMode.FIXED}
        for dest in RANKS:
            s.handle(rank, 4 + dest, Handle(targets=((dest, 1),), lane=dest % 2, **fixed))
    s.barrier()
    for rank in RANKS:
        for n in range(4):
            s.row(rank, n % 2, rank * 16 + n)
            s.row(rank, 4 + n, rank * 16 + n)
        s.close_all(rank)
    finish(s)
    verify(s, harness)


def test_every_producer_tells_every_expert():
    """Once, what its rows bring, nothing too; the last one sends what is listed."""
    shape = model("olmoe-1b-7b")
    routing = generate(tokens=8 * 2, top_k=shape.top_k, experts=shape.experts, seed=5)
    plan = plan_layer(shape, routing, ranks=8)
    for rank in hub_programs(plan).ranks:
        told = rank.program(TELLER).array()
        told = told[(told["kind"] == OpKind.COMMAND)]
        assert (told["a"] == CommandOp.ANNOUNCE).all()
        assert told["b"].tolist() == list(range(shape.experts))
        own = routing.experts[2 * rank.number : 2 * rank.number + 2]
        rows = np.bincount(own.ravel(), minlength=shape.experts)
        assert (16 * told["n"] == rows * plan.row_bytes).all() and not rows.all()
        assert told["m"].tolist() == [1] * (shape.experts - 1) + [0]


def run_layer(plan, harness, programs=hub_programs, **settings):
    return programs(plan, latency=32, window=32, max_cycles=60_000, **settings).run(harness)


def layer_plan():
    shape = model("tiny")
    routing = generate(tokens=40, top_k=shape.top_k, experts=shape.experts, seed=bench_seed())
    return plan_layer(shape, routing, ranks=4, lanes=2, tile_rows=4, base=CFG)


@pytest.mark.parametrize("threads", [1, 2])
def test_whole_layer(harness, threads):
    """Dispatch, expert stand-in and combine; every byte, event and register as the model says."""
    plan = layer_plan()
    result = run_layer(plan, harness, threads=threads)
    verdict = check_layer(plan, result)
    result.remove()
    assert verdict.differences == []
    assert verdict.rows == 80


def test_layer_does_not_depend_on_threads_or_window(harness):
    """Cycle for cycle the same with one or two threads; G7."""
    plan, logs = layer_plan(), []
    for threads in (1, 2):
        result = run_layer(plan, harness, threads=threads)
        logs.append(everything_logged(result))
        result.remove()
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", BASELINES)
def test_layer_without_the_hub(harness, name):
    """A baseline's memory is as the model says too, so that the comparison is of like with like."""
    plan, way = layer_plan(), WAYS[name]
    result = run_layer(plan, harness, way.programs)
    verdict, usable = way.check(plan, result), sum(way.usable(plan, result), [])
    result.remove()
    assert verdict.differences == []
    assert len(usable) >= len(plan.experts(0)) and min(usable) > 0


@pytest.mark.night
@pytest.mark.parametrize("name", ["flags", "rowflag"])
def test_software_that_does_not_wait_is_found(harness, name, monkeypatch):
    """Sets used without a look at flags or last words: answers of rows that are not there yet."""
    for watch in ("watch_flag", "watch_rows"):
        monkeypatch.setattr(fixed_slots, watch, lambda plan, watcher, piece: None)
    plan, way = layer_plan(), WAYS[name]
    result = run_layer(plan, harness, way.programs)
    verdict = way.check(plan, result)
    result.remove()
    assert verdict.differences != []


def test_harness_is_built_without_the_hub(harness, monkeypatch):
    """A change of the harness leaves the verilated hub as it was, and one of a flag does not."""
    made = []
    monkeypatch.setattr(building, "made_in", lambda folder, *_: made.append(folder) or folder)
    for change in ("harness_sources", None, "CXX_FLAGS"):
        with monkeypatch.context() as patch:
            if change == "harness_sources":
                patch.setattr(building, change, lambda: ["another text"])
            elif change:
                patch.setattr(building, change, ("OPT_FAST=-O3",))
            building.build(CFG)
    changed, kept, flagged = zip(made[::2], made[1::2], strict=True)
    assert kept[1] == harness.parent
    assert changed[0] == kept[0] and changed[1] != kept[1]
    assert flagged[0] != kept[0] and flagged[1] != kept[1]


@pytest.mark.night
def test_blocks_and_one_piece_agree(harness, monkeypatch):
    """Hubs of many lanes are verilated block by block: the same in every cycle as in one piece."""
    monkeypatch.setattr(building, "BLOCKS_FROM", 1)
    logs = []
    for program in (harness, building.build(CFG, optimise=False)):
        s = FourHubs()
        some_rows(s)
        result = s.run(program)
        logs.append(everything_logged(result))
        result.remove()
    assert all(logs[0]) and logs[0] == logs[1]


def some_rows(s):
    """Three rows from every rank, one of them to itself."""
    all_to_all(s, regions=1)
    for rank in RANKS:
        for n in range(3):
            s.row(rank, 1 if n else rank, rank * 16 + n)
        s.close_all(rank)
    finish(s, regions=1)


@pytest.mark.night
def test_cocotb_and_harness_agree(harness, tmp_path):
    """The pins of one hub, recorded in a native run, are the same under cocotb in every cycle; so
    are events and memory."""
    s = FourHubs(record=1, drain=200)
    some_rows(s)
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
