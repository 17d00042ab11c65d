# SPDX-License-Identifier: Apache-2.0
"""Whole systems that are too full, aborted, reset or ordered about wrongly: refused, named, and
exact afterwards."""

from hub_rtl.contract.packets import EventKind, OrderError, Reason, RegionOp
from sim.golden.system import SystemModel
from sim.quality.coverage import cover
from sim.system.four_hubs import (
    CFG,
    RANKS,
    all_to_all,
    everything_logged,
    finish,
    name_regions,
    region,
    scatter,
    thrash,
)
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    VICTIM,
    WRONG,
    Unmodelled,
    aim,
    ends,
    error_of,
    next_epoch,
    order_error,
    others,
    playground,
    send,
    start,
    unmodelled,
)


def test_region_and_overflow_region_are_full(simulate):
    """Rows beyond the region and its overflow region are refused, each named once; both regions
    complete."""
    s, registers = start()
    s.region(VICTIM, WRONG, region(WRONG, capacity=3, expected=1, overflow=WRONG + 1))
    s.region(VICTIM, WRONG + 1, region(WRONG + 1, capacity=3, expected=1))
    aim(s)
    all_to_all(s)
    for n in range(9):
        s.row(CULPRIT, HANDLE, n)
    others(s, ends=4)
    for index in (WRONG, WRONG + 1):
        s.query(VICTIM, index)
    log, other, counts = registers.log(), registers.log(CULPRIT), registers.counters()
    result = simulate(s)
    refused = {key[4] for key in s.model.refusals[VICTIM]}
    assert len(refused) == 3
    for entries, rank, remote in ((log(result), CULPRIT, 0), (other(result), VICTIM, 1)):
        assert {e["rowid"] for e in entries} == refused and len(entries) == 3
        want = (Reason.REGION_FULL, WRONG, rank, remote)
        assert all((e["reason"], e["number"], e["rank"], e["remote"]) == want for e in entries)
    assert counts(result)["refused_region_full"] >= 3
    assert {(EventKind.ALL, WRONG, 0, 0, 1), (EventKind.ALL, WRONG + 1, 0, 0, 0)} <= set(
        ends(result)
    )


def test_thrashing_rat(simulate):
    """More rows in flight than places: rows are spilled and restored, counted, and every byte is
    where it must be."""
    s, registers = start(streams=48, burst=1, use_can_accept=0)
    thrash(s, VICTIM)
    counts = registers.counters()
    result = simulate(s)
    assert counts(result)["spills"] == counts(result)["restores"] > 0
    assert counts(result)["spill_errors"] == 0


def test_abort_in_traffic_and_reuse(simulate):
    """A region aborted while rows stream into it: the rest is sunk, fences complete, and its next
    epoch is exact."""
    s, registers = start()
    playground(s)
    with unmodelled(s):
        for n in range(16):
            s.row(CULPRIT, HANDLE, n)
    s.wait(VICTIM, 90)
    s.drivers[VICTIM].abort(WRONG, 0)
    free = registers.wait_free()
    counts = registers.counters()
    s.sync(CULPRIT)
    with unmodelled(s):
        s.close(CULPRIT, HANDLE)
    s.settle(CULPRIT)
    s.barrier()
    next_epoch(s)
    others(s, ends=3)
    s.query(VICTIM, WRONG, 2)
    result = simulate(s, but=[Unmodelled(until=1)])
    placed = result.log("allocs", VICTIM)
    before = (placed["region"] == WRONG) & (placed["cycle"] < result.marks(VICTIM)[1])
    assert 0 < before.sum() < 16
    assert free(result) and counts(result)["refused_epoch_stale"] > 0


def test_overflow_region_given_back_before_its_primary(simulate):
    """Half a row lies in an overflow region that is aborted, moved and opened for epoch 2: the
    row's late half is refused, not written to the old place and not counted for epoch 2; its own
    region ends in ERROR, epoch 2 is exact."""
    s, registers = start()
    over, other, length = WRONG + 1, HANDLE + 1, 256
    old, new = region(over).base, (0x38000, 0x3A000)
    fields = {"row_bytes": length, "log2_tile": 0, "expected": 1}
    s.region(VICTIM, over, region(over, group_base=40, **fields))
    s.region(VICTIM, WRONG, region(WRONG, group_base=60, capacity=1, overflow=over, **fields))
    aim(s, row_bytes=length)
    all_to_all(s)
    late = s.rng.randbytes(128)
    with unmodelled(s):
        send(s, rowid=7, data=s.rng.randbytes(length))
        send(s, data=s.rng.randbytes(128))
    s.barrier()
    s.drivers[VICTIM].abort(over, 0)
    free = registers.wait_free(VICTIM, over, 0)
    s.mark(VICTIM, 1)
    s.region(VICTIM, over, region(over, group_base=40, base=new, **fields), epochs=(2,))
    aim(s, handle=other, region=over, row_bytes=length, epoch=2)
    s.barrier()
    row = s.rng.randbytes(length)
    send(s, rowid=5, data=row[:128], handle=other, epoch=2)
    with unmodelled(s):
        send(s, data=late, row_off=8)
        s.close(CULPRIT, HANDLE)
    s.settle(CULPRIT)
    s.barrier()
    half, primary = registers.bank(VICTIM, over, 2), registers.bank()
    s.mark(VICTIM, 2)
    s.barrier()
    send(s, rowid=5, data=row[128:], handle=other, epoch=2, row_off=8)
    s.close(CULPRIT, other, 2)
    others(s, ends=3)
    s.query(VICTIM, over, 2)
    s.hidden += [(old[0], old[0] + 128), region(WRONG).base]
    result = simulate(s, but=[Unmodelled(), Unmodelled(VICTIM, over, 0, until=1)])
    assert free(result)
    named = ("kind", "region", "epoch", "plain")
    ready = [
        e["cycle"]
        for e in result.log("events", VICTIM)
        if [e[name] for name in named] == [EventKind.READY, over, 2, 0]
    ]
    assert len(ready) == 1 and ready[0] > result.marks(VICTIM)[2]
    assert half(result)["acked"] == 128
    assert error_of(primary(result)) == Reason.INCOMPLETE
    mine = ends(result, WRONG, over)
    assert mine == [
        (EventKind.ERROR, WRONG, 0, Reason.INCOMPLETE, 0),
        (EventKind.ALL, over, 2, 0, 0),
    ]
    cover("misuse.overflow_given_back")


def test_orders_that_an_open_region_refuses(simulate):
    """Geometry, OPEN and RELEASE of open regions while others store to them: flagged with
    interrupts, nothing changes."""
    s, registers = start()
    all_to_all(s)
    s.drivers[VICTIM].region(0, region(0, capacity=1, base=(0x20000, 0x22000)))
    error = registers.read("regions.ERROR")
    s.drivers[VICTIM].open(0, 2)
    first = registers.read("regions.COMMAND_ERROR")
    registers.write(VICTIM, "regions.COMMAND_ERROR", 1)
    s.drivers[VICTIM].release(1, 0)
    second, irq = registers.read("regions.COMMAND_ERROR"), registers.read("control.IRQ_STATUS")
    others(s, rows=8)
    result = simulate(s)
    assert [name for name, value in error(result).items() if value] == ["busy"]
    assert first(result) == order_error(RegionOp.OPEN, 2, OrderError.IN_USE, number=0)
    assert second(result) == order_error(RegionOp.RELEASE, 0, OrderError.NOT_DONE, number=1)
    assert irq(result)["geometry"] == irq(result)["command"] == 1


def test_reset_in_traffic(simulate):
    """All hubs are reset while everything is on its way; the run after it is as the first one would
    have been."""
    at = 2500
    s, registers = start(max_cycles=60_000)
    s.system.setting("reset", at)
    all_to_all(s)
    for rank in RANKS:
        s.wait(rank, 800)
        for n in range(48):
            s.row(rank, n % 8, rank * 16 + n % 16, epoch=0)
        s.wait(rank, at)
    s.model, s.hidden = SystemModel(CFG), [*s.hidden, *(region(index).base for index in range(2))]
    for rank in RANKS:
        s.drivers[rank].start(rank)
    all_to_all(s, epochs=(1,))
    for rank in RANKS:
        name_regions(s, rank, epoch=1)
    s.barrier()
    scatter(s, rows=8, epoch=1)
    finish(s, epochs=(1,))
    log, counts = (
        [registers.log(rank) for rank in RANKS],
        [registers.counters(rank) for rank in RANKS],
    )
    result = simulate(s, since=at)
    assert all((result.log("packets", rank)["first"] < at).any() for rank in RANKS)
    for rank in RANKS:
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
        s, _ = start(threads=threads, mem_jitter=9, max_cycles=9000)
        for kind, lane in (("corrupt", 0), ("drop", 1), ("truncate", 0)):
            s.system.fault(kind, dest=VICTIM, link=lane, index=7 + len(kind), bit=9)
        all_to_all(s)
        scatter(s, rows=8)
        for rank in RANKS:
            s.wait(rank, 3000)
        result = s.run(harness)
        logs.append(everything_logged(result))
        assert result.summary["faulted"] == 3
        result.remove()
    assert logs[0] == logs[1]
