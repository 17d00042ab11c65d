# SPDX-License-Identifier: Apache-2.0
"""Whole systems that are too full, aborted, reset or ordered about wrongly: refused, named, and
exact afterwards."""

from flow.driver import Handle
from hub_rtl.contract.packets import EventKind, OrderError, Reason, RegionState
from sim.golden.system import SystemModel
from sim.quality.coverage import cover
from sim.system.four_hubs import CFG, ROW, all_to_all, finish, region, scatter
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    TRAVEL,
    VICTIM,
    WRONG,
    Unmodelled,
    ends,
    playground,
    send,
    start,
    unmodelled,
)


def test_region_and_overflow_region_are_full(simulate):
    """Rows beyond the region and its overflow region are refused, each named once; both regions
    complete."""
    s, rng, registers = start()
    for index in (WRONG, WRONG + 1):
        s.region(
            VICTIM,
            index,
            region(index, capacity=3, expected=1, overflow=WRONG + 1 if index == WRONG else None),
        )
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
    assert {(EventKind.ALL, WRONG, 0, 0, 1), (EventKind.ALL, WRONG + 1, 0, 0, 0)} <= set(
        ends(result, VICTIM)
    )


def test_thrashing_rat(simulate):
    """More rows in flight than places: rows are spilled and restored, counted, and every byte is
    where it must be."""
    s, rng, registers = start(streams=48, burst=1, use_can_accept=0)
    all_to_all(s, regions=1, capacity=128, row_span=128, base=(0x4000, 0x20000))
    rows = [
        (rank, VICTIM, rank * 32 + n, rng.randbytes(ROW))
        for n in range(32)
        for rank in range(CFG.ranks)
    ]
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
    """A region aborted while rows stream into it: the rest is sunk, fences complete, and its next
    epoch is exact."""
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


def test_overflow_region_given_back_before_its_primary(simulate):
    """Half a row lies in an overflow region that is aborted, moved and opened for epoch 2: the
    row's late half is refused, not written to the old place and not counted for epoch 2; its own
    region ends in ERROR, epoch 2 is exact."""
    s, rng, registers = start()
    over, other, length = WRONG + 1, HANDLE + 1, 256
    old, new = region(over).base, (0x38000, 0x3A000)
    fields = {"row_bytes": length, "log2_tile": 0, "expected": 1}
    s.region(VICTIM, over, region(over, group_base=40, **fields))
    s.region(VICTIM, WRONG, region(WRONG, group_base=60, capacity=1, overflow=over, **fields))
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=length))
    all_to_all(s)
    late = rng.randbytes(128)
    with unmodelled(s):
        send(s, CULPRIT, 7, rng.randbytes(length))
        send(s, CULPRIT, ROWID, rng.randbytes(128))
    s.barrier()
    s.drivers[VICTIM].abort(over, 0)
    free = registers.wait_free(VICTIM, over, 0)
    s.program(VICTIM).mark(1)
    s.region(VICTIM, over, region(over, group_base=40, base=new, **fields), epochs=(2,))
    s.handle(CULPRIT, other, Handle(targets=((VICTIM, over),), row_bytes=length, epoch=2))
    s.barrier()
    row = rng.randbytes(length)
    send(s, CULPRIT, 5, row[:128], handle=other, epoch=2)
    with unmodelled(s):
        send(s, CULPRIT, ROWID, late, row_off=8)
        s.close(CULPRIT, HANDLE)
    s.program(CULPRIT).fence()
    s.program(CULPRIT).wait_cycles(TRAVEL)
    s.barrier()
    half, primary = registers.bank(VICTIM, over, 2), registers.bank(VICTIM, WRONG, 0)
    s.program(VICTIM).mark(2)
    s.barrier()
    send(s, CULPRIT, 5, row[128:], handle=other, epoch=2, row_off=8)
    s.close(CULPRIT, other, 2)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    s.query(VICTIM, over, 2)
    s.hidden += [(old[0], old[0] + 128), region(WRONG).base]
    result = simulate(s, but=[Unmodelled(VICTIM, WRONG, 0), Unmodelled(VICTIM, over, 0, until=1)])
    assert free(result)
    ready = [
        e
        for e in result.log("events", VICTIM)
        if (e["kind"], e["region"], e["epoch"], e["plain"]) == (EventKind.READY, over, 2, 0)
    ]
    assert len(ready) == 1 and ready[0]["cycle"] > result.marks(VICTIM)[2]
    assert half(result)["acked"] == 128
    assert (primary(result)["state"], primary(result)["error"]) == (
        RegionState.DONE,
        Reason.INCOMPLETE,
    )
    mine = [e for e in ends(result, VICTIM) if e[1] in (WRONG, over)]
    assert mine == [
        (EventKind.ERROR, WRONG, 0, Reason.INCOMPLETE, 0),
        (EventKind.ALL, over, 2, 0, 0),
    ]
    cover("misuse.overflow_given_back")


def test_orders_that_an_open_region_refuses(simulate):
    """Geometry, OPEN and RELEASE of open regions while others store to them: flagged with
    interrupts, nothing changes."""
    s, rng, registers = start()
    all_to_all(s)
    s.drivers[VICTIM].region(0, region(0, capacity=1, base=(0x20000, 0x22000)))
    error = registers.read(VICTIM, "regions.ERROR")
    s.drivers[VICTIM].open(0, 2)
    first = registers.read(VICTIM, "regions.COMMAND_ERROR")
    registers.write(VICTIM, "regions.COMMAND_ERROR", 1)
    s.drivers[VICTIM].release(1, 0)
    second, irq = (
        registers.read(VICTIM, "regions.COMMAND_ERROR"),
        registers.read(VICTIM, "control.IRQ_STATUS"),
    )
    scatter(s, rng, rows=8)
    finish(s)
    result = simulate(s)
    assert [name for name, value in error(result).items() if value] == ["busy"]
    assert first(result) == {
        "valid": 1,
        "op": 0,
        "epoch": 2,
        "region": 0,
        "reason": OrderError.IN_USE,
    }
    assert second(result) == {
        "valid": 1,
        "op": 1,
        "epoch": 0,
        "region": 1,
        "reason": OrderError.NOT_DONE,
    }
    assert irq(result)["geometry"] == irq(result)["command"] == 1


def test_reset_in_traffic(simulate):
    """All hubs are reset while everything is on its way; the run after it is as the first one would
    have been."""
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
                s.handle(
                    rank, dest * 2 + index, Handle(targets=((dest, index),), row_bytes=ROW, epoch=1)
                )
    s.barrier()
    scatter(s, rng, rows=8, epoch=1)
    finish(s, epochs=(1,))
    log, counts = (
        [registers.log(rank) for rank in range(CFG.ranks)],
        [registers.counters(rank) for rank in range(CFG.ranks)],
    )
    result = simulate(s, since=at)
    assert all((result.log("packets", rank)["first"] < at).any() for rank in range(CFG.ranks))
    for rank in range(CFG.ranks):
        assert log[rank](result) == []
        assert not any(
            counts[rank](result)[name]
            for name in ("seq_errors", "bad_packets", "truncated", "credit_violations")
        )


def test_faults_are_repeatable(harness):
    """The same damage on one and on two threads: the same packets, placements and events, cycle for
    cycle."""
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
        logs.append(
            [
                result.log(name, rank).tobytes()
                for rank in range(CFG.ranks)
                for name in ("events", "allocs", "packets")
            ]
        )
        assert result.summary["faulted"] == 3
        result.remove()
    assert logs[0] == logs[1]
