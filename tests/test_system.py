"""Whole systems on the generated Verilog: hubs, switch, memories and programs against the golden model.

Preset ``small`` with two lanes, four hubs; the native harness is built once.
"""

import json
import random

import numpy as np
import pytest

from hub_rtl.config import preset
from hub_rtl.formats import EventKind, LaneMode, PacketType, Reason
from hub_rtl.models import model
from sim.baseline import baseline_programs, check_baseline
from sim.bench.coverage import cover
from sim.bench.runner import bench_seed, run_bench
from sim.driver import DepRange, Handle, Region
from sim.layer import hub_programs, plan_layer
from sim.layer_check import check_layer
from sim.scenario import Scenario
from sim.system import build, hub_verilog, row_operand
from sim.traces import generate

CFG = preset("small", lanes=2, regions=8)
ROWS = 0x4000           # first region's memory
SPILL = (0x1000, 0x4000)
PLAIN = 0x30000         # memory for plain stores
PATTERNS = {"none": (0, 0), "cyclic": (1, 0), "random": (2, 50)}


@pytest.fixture(scope="session")
def harness():
    return build(CFG)


def region(index, **changes):
    """A region of 16 slots with rows of 272 bytes (two full packets and one unit), tiles of 4."""
    base = ROWS + index * 0x4000
    fields = {"base": (base, base + 0x2000), "stride": 384, "row_bytes": 272, "capacity": 16, "group_base": 4 * index,
              "log2_tile": 2, "expected": 4, "row_span": 64,
              "spill_base": (SPILL[0] + index * 1024, SPILL[0] + index * 1024 + 512)}
    return Region(**{**fields, **changes})


def scenario(**settings):
    """Four ranks with seed and spill tables set up; settings of the harness."""
    return Scenario(CFG, hidden=[SPILL], seed=bench_seed(), mem_spill=SPILL, **settings)


def all_to_all(s, regions=2, epochs=(0,), **changes):
    """Every rank has `regions` regions open; handle rank * regions + index names them at every producer."""
    for rank in range(CFG.ranks):
        for index in range(regions):
            s.region(rank, index, region(index, **changes), epochs)
        for dest in range(CFG.ranks):
            for index in range(regions):
                s.handle(rank, dest * regions + index, Handle(targets=((dest, index),), row_bytes=272))
    s.barrier()


def finish(s, regions=2, epochs=(0,)):
    """Closes everything, waits for ALL, reads the regions' registers."""
    for rank in range(CFG.ranks):
        s.program(rank).wait_events(EventKind.ALL, regions * len(epochs))
    s.barrier()
    for rank in range(CFG.ranks):
        for index in range(regions):
            for epoch in epochs:
                s.query(rank, index, epoch)


def verify(s, harness):
    result = s.run(harness)
    differences = s.differences(result)
    if not differences:
        note_bins(result)
    result.remove()
    assert differences == []


def note_bins(result):
    """Coverage: what the run was seen to do."""
    for rank in range(CFG.ranks):
        events, packets, allocs = (result.log(name, rank) for name in ("events", "packets", "allocs"))
        kinds, masked = packets["low"] & np.uint64(15), packets["low"] >> np.uint64(5) & np.uint64(1)
        cover("system.masked_packet", bool(((kinds == PacketType.ROW) & (masked == 1)).any()))
        cover("system.own_rank", bool((allocs["rowid"] // 16 == rank).any()))
        cover("system.last_tile_partial", bool(((events["kind"] == EventKind.READY) & (events["rows"] % 4 != 0)).any()))
        cover("system.overflow", bool(allocs["overflow"].any()))
        cover("system.spill", result.ranks[rank]["spill_writes"] > 0)
        cover("system.region_full", bool((events["refused"] == 1).any()))


def scatter(s, rng, rows=10, epoch=0):
    """Each rank sends `rows` rows to random regions, in pieces of random order."""
    for rank in range(CFG.ranks):
        for n in range(rows):
            handle, rowid = rng.randrange(8), rank * 16 + n
            data = rng.randbytes(272)
            cuts = sorted({0, *rng.sample(range(2, 17, 2), 2)})
            pieces = list(zip(cuts, [*cuts[1:], 17], strict=True))
            rng.shuffle(pieces)
            for low, high in pieces:
                s.row(rank, handle, rowid, data[low * 16:high * 16], epoch=epoch, row_off=low, cls=rng.randrange(2))
        s.close_all(rank, epoch)


@pytest.mark.parametrize("idle", PATTERNS)
@pytest.mark.parametrize("pressure", PATTERNS)
def test_rows_all_to_all(harness, idle, pressure):
    """Rows of four producers, on the grid of idle and back-pressure patterns of stores, links, memory and events."""
    stall = PATTERNS[pressure]
    s = scenario(store_idle=PATTERNS[idle], mem_stall=stall, link_stall=stall, event_stall=stall, response_stall=stall, mem_jitter=8)
    all_to_all(s)
    scatter(s, random.Random(bench_seed()), rows=6)
    finish(s)
    verify(s, harness)
    cover(f"system.grid.{idle}.{pressure}")


def test_masks_and_plain_stores(harness):
    """Byte masks, odd offsets and runs of bytes to addresses; bytes outside the masks stay untouched."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        for source in range(CFG.ranks):
            s.window(rank, source, PLAIN, PLAIN + 0x8000)
        s.dep_range(rank, 0, DepRange(base=PLAIN, limit=PLAIN + 0x4000, log2_stride=10, group_base=32, threshold=256))
    s.barrier()
    for rank in range(CFG.ranks):
        for dest in range(CFG.ranks):
            s.plain(rank, dest, PLAIN + rank * 0x400, rng.randbytes(256))
            area = PLAIN + 0x4000 + rank * 0x400
            for n in range(8):
                s.plain_store(rank, dest, area + 64 * n, rng.randbytes(32), rng.getrandbits(32) or 1)
            s.plain(rank, dest, area + 0x200 + 5, rng.randbytes(100), cls=1)
        s.sync(rank)
        s.program(rank).fence()
        s.program(rank).wait_events(EventKind.READY, CFG.ranks, plain=True)
    verify(s, harness)


def test_refusals_disturb_nobody(harness):
    """Wrong stores among good ones: each is answered with its reason, the good rows arrive."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s)
    for rank in range(CFG.ranks):
        data, dest = rng.randbytes(272), (rank + 1) % CFG.ranks
        handle = dest * 2
        good = row_operand(handle, 0, rank * 16)
        s.row(rank, handle, rank * 16, data)
        wrong = [(row_operand(20, 0, 1), {}), (good, {"owner": 5}), (row_operand(handle, 3, 1), {}), (row_operand(handle, 12, 1), {}),
                 (row_operand(handle, 0, 1, 18), {}), (good, {"lane": 1 - s.lane(rank, good)})]
        reasons = [s.store(rank, operand, bytes(32), 0xFFFFFFFF, dest=dest, **more) for operand, more in wrong]
        assert reasons == [Reason.UNKNOWN, Reason.FOREIGN, Reason.EPOCH_EARLY, Reason.EPOCH_STALE, Reason.ROW_OVERRUN, Reason.BAD_LANE]
        assert s.plain_store(rank, 99, 0, bytes(32), 1) == Reason.UNKNOWN
        s.sync(rank)
        assert s.close(rank, 20) == Reason.UNKNOWN
        s.close_all(rank)
        assert s.store(rank, good, bytes(32), 1, dest=dest) == Reason.AFTER_CLOSE
    finish(s)
    verify(s, harness)


def test_refusals_of_the_consumer(harness):
    """Full region, rows out of range, stores outside the window: sunk, counted, rejected once per row; the rest arrives."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s, capacity=5, row_span=48)
    for rank in range(CFG.ranks):
        s.window(rank, 0, PLAIN, PLAIN + 0x100)
    for rank in range(CFG.ranks):
        for n in range(4):
            s.row(rank, (rank + 1) % 4 * 2, rank * 8 + n, rng.randbytes(272))
            s.row(rank, 0, rank * 8 + 4 + n, rng.randbytes(272))
        s.row(rank, (rank + 1) % 4 * 2, 50, rng.randbytes(272))
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
            s.handle(rank, dest, Handle(targets=((dest, 0),), row_bytes=272))
    s.barrier()
    for rank in range(CFG.ranks):
        for n in range(3):
            s.row(rank, (rank + n) % 4, rank * 16 + n, rng.randbytes(272))
            s.row(rank, 0, rank * 16 + 8 + n, rng.randbytes(272))
        s.close_all(rank)
        s.program(rank).wait_events(EventKind.ALL, 2)
    verify(s, harness)


def test_spill_and_restore(harness):
    """More rows in flight than the RAT has places: rows go to memory and come back, and nothing is wrong."""
    rng, s = random.Random(bench_seed()), scenario(streams=48, burst=2, use_can_accept=0)
    all_to_all(s, regions=1, capacity=64, row_span=64, stride=384, group_base=0)
    for rank in range(CFG.ranks):
        for n in range(16):
            s.row(rank, 0, rank * 16 + n, rng.randbytes(272))
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
                s.row(rank, (rank + n) % 8, rank * 16 + n, rng.randbytes(272), epoch=epoch)
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
            s.row(rank, (rank + 3 * n) % 8, rank * 16 + n, rng.randbytes(272), epoch=2)
        s.close_all(rank, 2)
        s.program(rank).wait_events(EventKind.ALL, 6)
    s.barrier()
    for rank in range(CFG.ranks):
        for index in range(2):
            s.query(rank, index, 2)
            s.query(rank, index, 1)
    # epoch 0's memory is reused by epoch 2: only the last bytes are compared, in the order of writing
    verify(s, harness)


def test_replicas_and_lane_modes(harness):
    """Rows spread over two replicas by hash; handles pinned by hash and fixed."""
    rng, s = random.Random(bench_seed()), scenario()
    for rank in range(CFG.ranks):
        for index in range(2):
            s.region(rank, index, region(index, expected=4, capacity=16))
        for pair in range(2):
            targets = ((2 * pair, 0), (2 * pair + 1, 0))
            s.handle(rank, pair, Handle(targets=targets, row_bytes=272, lane_mode=LaneMode.HASH))
        for dest in range(CFG.ranks):
            s.handle(rank, 4 + dest, Handle(targets=((dest, 1),), row_bytes=272, lane_mode=LaneMode.FIXED, lane=dest % 2))
    s.barrier()
    for rank in range(CFG.ranks):
        for n in range(4):
            s.row(rank, n % 2, rank * 16 + n, rng.randbytes(272))
            s.row(rank, 4 + n, rank * 16 + n, rng.randbytes(272))
        s.close_all(rank)
    finish(s)
    verify(s, harness)


def test_memory_error_is_reported_as_error(harness):
    """A region whose memory answers SLVERR ends in ERROR; the others are all-ready."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s)
    bad = region(1).base[0]
    s.system.setting("memory_of", 2, "mem_error", bad, bad + 0x2000)
    for rank in range(CFG.ranks):
        for dest in range(CFG.ranks):
            for index in range(2):
                s.row(rank, dest * 2 + index, rank * 16 + dest, rng.randbytes(272))
        s.close_all(rank)
        s.program(rank).wait_events(EventKind.ERROR if rank == 2 else EventKind.ALL, 1 if rank == 2 else 2)
    result = s.run(harness)
    events = {rank: result.log("events", rank) for rank in range(CFG.ranks)}
    result.remove()
    assert not result.timed_out
    for rank in range(CFG.ranks):
        ends = [(int(e["kind"]), int(e["region"]), int(e["status"])) for e in events[rank] if e["kind"] != EventKind.READY]
        want = (EventKind.ERROR, 1, Reason.MEM_ERROR) if rank == 2 else (EventKind.ALL, 1, 0)
        assert sorted(ends) == sorted([(EventKind.ALL, 0, 0), want])


def test_stalled_memory_harms_only_its_rank(harness):
    """Rank 3's memory stands still for 6,000 cycles: the others finish long before, rank 3 when it goes on."""
    s = scenario()
    s.system.setting("memory_of", 3, "mem_frozen", 0, 9000)
    all_to_all(s)
    rng = random.Random(bench_seed())
    for rank in range(CFG.ranks):
        for n in range(4):
            s.row(rank, (rank % 3 * 2 + n) % 6, rank * 16 + n, rng.randbytes(272))
        if rank != 3:
            s.row(rank, 6, rank * 16 + 9, rng.randbytes(272))
        s.close_all(rank)
        s.program(rank).wait_events(EventKind.ALL, 2)
        s.program(rank).mark(1)
    result = s.run(harness)
    ends = [result.marks(rank).get(1, 0) for rank in range(CFG.ranks)]
    differences = s.differences(result)
    result.remove()
    assert differences == []
    assert max(ends[:3]) < 9000 < ends[3]


def test_dead_peer_is_drained(harness):
    """Rank 3 is dead and declared so: stores to it are refused, closes complete, the other ranks' layer is complete."""
    rng, s = random.Random(bench_seed()), scenario()
    s.system.setting("dead", 3, 10)
    for rank in range(3):
        s.drivers[rank].drain([3])
        s.model.drain(rank, [3])
    all_to_all(s, expected=3)
    for rank in range(3):
        for n in range(3):
            s.row(rank, n * 2, rank * 16 + n, rng.randbytes(272))
        assert s.store(rank, row_operand(6, 0, 5), bytes(32), 1, dest=3) == Reason.PEER_DEAD
        s.close_all(rank)
        s.program(rank).wait_events(EventKind.ALL, 2)
    result = s.run(harness)
    differences = [d for d in s.differences(result) if not d.startswith("rank 3")]
    result.remove()
    assert differences == []


@pytest.mark.parametrize("kind", ["drop", "duplicate", "corrupt"])
def test_damaged_links_never_pass_unnoticed(harness, kind):
    """A lost, doubled or damaged packet shows in counters or events; never as a quiet all-ready with wrong rows."""
    rng, s = random.Random(bench_seed()), scenario(max_cycles=12_000)
    s.system.fault(kind, dest=1, lane=0, index=5, bit=13)
    all_to_all(s)
    for rank in range(CFG.ranks):
        for n in range(6):
            s.row(rank, 2 + n % 2, rank * 16 + n, rng.randbytes(272))
        s.close_all(rank)
    for rank in range(CFG.ranks):
        s.program(rank).wait_cycles(4000)
        s.drivers[rank].snapshot()
        for pair in s.drivers[rank].counters().values():
            s.program(rank).read(pair[0])
    result = s.run(harness)
    reads = result.reads(1)
    counters = {name: reads[low] for name, (low, _) in s.drivers[1].counters().items()}
    differences = s.differences(result)
    assert result.summary["faulted"] == 1
    result.remove()
    noticed = counters["seq_errors"] + counters["bad_packets"] + counters["truncated"] + counters["credit_violations"]
    assert noticed > 0
    if kind == "duplicate":
        assert differences == []


def layer_plan(**changes):
    shape = model("tiny")
    routing = generate(tokens=40, top_k=shape.top_k, experts=shape.experts, seed=bench_seed())
    return plan_layer(shape, routing, ranks=4, lanes=2, tile_rows=4, **changes)


@pytest.fixture(scope="session")
def layer_harness():
    return build(layer_plan().cfg)


@pytest.mark.parametrize("threads", [1, 2])
def test_whole_layer(layer_harness, threads):
    """Dispatch, expert stand-in and combine; every byte, event and register as the model says."""
    plan = layer_plan()
    result = hub_programs(plan, latency=32, window=32, threads=threads, max_cycles=60_000).run(layer_harness)
    verdict = check_layer(plan, result)
    result.remove()
    assert verdict.differences == []
    assert verdict.rows == 80


def test_layer_does_not_depend_on_threads_or_window(layer_harness):
    """Cycle for cycle the same with one or two threads; G7."""
    plan, logs = layer_plan(), []
    for threads in (1, 2):
        result = hub_programs(plan, latency=32, window=32, threads=threads, max_cycles=60_000).run(layer_harness)
        logs.append([result.log(name, rank).tobytes() for rank in range(4) for name in ("events", "allocs", "packets")])
        result.remove()
    assert logs[0] == logs[1]


def test_layer_the_address_centric_way(layer_harness):
    """The baseline's memory is as the model says too, so that the comparison is of like with like."""
    plan = layer_plan()
    result = baseline_programs(plan, latency=32, window=32, max_cycles=60_000).run(layer_harness)
    verdict = check_baseline(plan, result)
    result.remove()
    assert verdict.differences == []


def test_cocotb_and_harness_agree(harness, tmp_path):
    """The pins of one hub, recorded in a native run, are the same under cocotb in every cycle; so are events and memory."""
    rng, s = random.Random(bench_seed()), scenario(record=1, drain=200)
    all_to_all(s, regions=1)
    for rank in range(CFG.ranks):
        for n in range(3):
            s.row(rank, 1 if n else rank, rank * 16 + n, rng.randbytes(272))
        s.close_all(rank)
    finish(s, regions=1)
    result = s.run(harness, folder=tmp_path / "run")
    assert s.differences(result) == []
    out = tmp_path / "out.json"
    run_bench(hub_verilog(CFG), name="moehub", module="sim.cocotb.replay", cfg=CFG,
              params={"pins": str(tmp_path / "run" / "rank1.pins"), "out": str(out)})
    seen = json.loads(out.read_text())
    events = result.log("events", 1)
    names = ("cycle", "kind", "plain", "region", "epoch", "group", "rows", "status", "refused")
    assert seen["events"] == [[int(e[name]) for name in names] for e in events]
    image = np.zeros(s.arena, dtype=np.uint8)
    for address, byte in seen["memory"]:
        image[address] = byte
    memory = np.array(result.memory(1))
    memory[SPILL[0]:SPILL[1]] = 0
    assert np.array_equal(image, memory)


@pytest.mark.parametrize("bit", [128 + 5, 3 * 128 + 77])
def test_planted_flipped_bit_is_caught(harness, bit):
    """A bit of a row that flips on the way (there is no CRC yet) is found by the comparison: proof that it compares."""
    rng, s = random.Random(bench_seed()), scenario()
    all_to_all(s)
    for index in range(6):
        s.system.fault("corrupt", dest=1, lane=0, index=index, bit=bit)
    for rank in range(CFG.ranks):
        s.row(rank, 2, rank * 16, rng.randbytes(272))
        s.row(rank, 3, rank * 16 + 1, rng.randbytes(272))
        s.close_all(rank)
        s.program(rank).wait_cycles(3000)
    result = s.run(harness)
    differences = s.differences(result)
    result.remove()
    assert differences
