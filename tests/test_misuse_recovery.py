"""Whole systems that are too full, aborted, reset or ordered about wrongly: refused, named, and exact afterwards."""


from hub_rtl.formats import EventKind, Reason
from hub_rtl.driver import Handle
from sim.four_hubs import CFG, ROW, all_to_all, finish, region, scatter
from sim.golden.system import SystemModel
from sim.misuse import CULPRIT, HANDLE, TRAVEL, VICTIM, WRONG, Unmodelled, ends, playground, start, unmodelled


def test_region_and_overflow_region_are_full(simulate):
    """Rows beyond the region and its overflow region are refused, each named once; both regions complete."""
    s, rng, registers = start()
    for index in (WRONG, WRONG + 1):
        s.region(VICTIM, index, region(index, capacity=3, expected=1, overflow=WRONG + 1 if index == WRONG else None))
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    all_to_all(s)
    for n in range(9):
        s.row(CULPRIT, HANDLE, n, rng.randbytes(ROW))
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 4)
    for index in (WRONG, WRONG + 1):
        s.query(VICTIM, index)
    finish(s)
    log, other, counts = registers.log(VICTIM), registers.log(CULPRIT), registers.counters(VICTIM)
    result = simulate(s)
    refused = {key[4] for key in s.model.refusals[VICTIM]}
    assert len(refused) == 3
    for entries, rank, remote in ((log(result), CULPRIT, 0), (other(result), VICTIM, 1)):
        assert {e["rowid"] for e in entries} == refused and len(entries) == 3
        want = (Reason.REGION_FULL, WRONG, rank, remote)
        assert all((e["reason"], e["number"], e["rank"], e["remote"]) == want for e in entries)
    assert counts(result)["refused_region_full"] >= 3
    assert {(EventKind.ALL, WRONG, 0, 0, 1), (EventKind.ALL, WRONG + 1, 0, 0, 0)} <= set(ends(result, VICTIM))


def test_thrashing_rat(simulate):
    """More rows in flight than places: rows are spilled and restored, counted, and every byte is where it must be."""
    s, rng, registers = start(streams=48, burst=1, use_can_accept=0)
    all_to_all(s, regions=1, capacity=128, row_span=128, base=(0x4000, 0x20000))
    rows = [(rank, VICTIM, rank * 32 + n, rng.randbytes(ROW)) for n in range(32) for rank in range(CFG.ranks)]
    for rank, handle, rowid, data in rows:
        s.row(rank, handle, rowid, data[:128])
    for rank in range(CFG.ranks):
        s.sync(rank)
        s.program(rank).fence()
    s.barrier()
    for rank, handle, rowid, data in rows:
        s.row(rank, handle, rowid, data[128:], row_off=8)
    for rank in range(CFG.ranks):
        s.close_all(rank)
    finish(s, regions=1)
    counts = registers.counters(VICTIM)
    result = simulate(s)
    assert counts(result)["spills"] == counts(result)["restores"] > 0
    assert counts(result)["spill_errors"] == 0


def test_abort_in_traffic_and_reuse(simulate):
    """A region aborted while rows stream into it: the rest is sunk, fences complete, and its next epoch is exact."""
    s, rng, registers = start()
    playground(s)
    with unmodelled(s):
        for n in range(16):
            s.row(CULPRIT, HANDLE, n, rng.randbytes(ROW))
    s.program(VICTIM).wait_cycles(90)
    s.drivers[VICTIM].abort(WRONG, 0)
    free = registers.wait_free(VICTIM, WRONG, 0)
    counts = registers.counters(VICTIM)
    s.sync(CULPRIT)
    with unmodelled(s):
        s.close(CULPRIT, HANDLE)
    s.program(CULPRIT).fence()
    s.program(CULPRIT).wait_cycles(TRAVEL)
    s.barrier()
    s.program(VICTIM).mark(1)
    s.open(VICTIM, WRONG, 2)
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW, epoch=2))
    s.barrier()
    for n in range(5):
        s.row(CULPRIT, HANDLE, n, rng.randbytes(ROW), epoch=2)
    s.sync(CULPRIT)
    s.close(CULPRIT, HANDLE, 2)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    s.query(VICTIM, WRONG, 2)
    s.hidden.append((region(WRONG).base[0] + 5 * 384, region(WRONG).base[1]))
    result = simulate(s, but=[Unmodelled(VICTIM, WRONG, 0, until=1)])
    placed = result.log("allocs", VICTIM)
    before = (placed["region"] == WRONG) & (placed["cycle"] < result.marks(VICTIM)[1])
    assert 0 < before.sum() < 16
    assert free(result) and counts(result)["refused_epoch_stale"] > 0


def test_orders_that_an_open_region_refuses(simulate):
    """Geometry, OPEN and RELEASE of open regions while others store to them: flagged with interrupts, nothing changes."""
    s, rng, registers = start()
    all_to_all(s)
    s.drivers[VICTIM].region(0, region(0, capacity=1, base=(0x20000, 0x22000)))
    error = registers.read(VICTIM, "regions.ERROR")
    s.drivers[VICTIM].open(0, 2)
    first = registers.read(VICTIM, "regions.COMMAND_ERROR")
    registers.write(VICTIM, "regions.COMMAND_ERROR", 1)
    s.drivers[VICTIM].release(1, 0)
    second, irq = registers.read(VICTIM, "regions.COMMAND_ERROR"), registers.read(VICTIM, "control.IRQ_STATUS")
    scatter(s, rng, rows=8)
    finish(s)
    result = simulate(s)
    assert [name for name, value in error(result).items() if value] == ["busy"]
    assert first(result) == {"valid": 1, "op": 0, "epoch": 2, "region": 0}
    assert second(result) == {"valid": 1, "op": 1, "epoch": 0, "region": 1}
    assert irq(result)["geometry"] == irq(result)["command"] == 1


def test_reset_in_traffic(simulate):
    """All hubs are reset while everything is on its way; the run after it is as the first one would have been."""
    at = 2500
    s, rng, registers = start(max_cycles=60_000)
    s.system.setting("reset", at)
    all_to_all(s)
    for rank in range(CFG.ranks):
        s.program(rank).wait_cycles(800)
        for n in range(48):
            s.row(rank, n % 8, rank * 16 + n % 16, rng.randbytes(ROW), epoch=0)
        s.program(rank).wait_cycles(at)
    s.model, s.hidden = SystemModel(CFG), [*s.hidden, *(region(index).base for index in range(2))]
    for rank in range(CFG.ranks):
        s.drivers[rank].start(rank)
    all_to_all(s, epochs=(1,))
    for rank in range(CFG.ranks):
        for dest in range(CFG.ranks):
            for index in range(2):
                s.handle(rank, dest * 2 + index, Handle(targets=((dest, index),), row_bytes=ROW, epoch=1))
    s.barrier()
    scatter(s, rng, rows=8, epoch=1)
    finish(s, epochs=(1,))
    log, counts = [registers.log(rank) for rank in range(CFG.ranks)], [registers.counters(rank) for rank in range(CFG.ranks)]
    result = simulate(s, since=at)
    assert all((result.log("packets", rank)["first"] < at).any() for rank in range(CFG.ranks))
    for rank in range(CFG.ranks):
        assert log[rank](result) == []
        assert not any(counts[rank](result)[name] for name in ("seq_errors", "bad_packets", "truncated", "credit_violations"))


def test_faults_are_repeatable(harness):
    """The same damage on one and on two threads: the same packets, placements and events, cycle for cycle."""
    logs = []
    for threads in (1, 2):
        s, rng, _ = start(threads=threads, mem_jitter=9, max_cycles=9000)
        for kind, lane in (("corrupt", 0), ("drop", 1), ("truncate", 0)):
            s.system.fault(kind, dest=VICTIM, lane=lane, index=7 + len(kind), bit=9)
        all_to_all(s)
        scatter(s, rng, rows=8)
        for rank in range(CFG.ranks):
            s.program(rank).wait_cycles(3000)
        result = s.run(harness)
        logs.append([result.log(name, rank).tobytes() for rank in range(CFG.ranks) for name in ("events", "allocs", "packets")])
        assert result.summary["faulted"] == 3
        result.remove()
    assert logs[0] == logs[1]
