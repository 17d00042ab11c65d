"""Whole systems in which somebody stalls, dies, never closes, stores twice, overflows, is aborted or reset: named, survived."""

import pytest

from hub_rtl.formats import EventKind, Reason, RegionState
from sim.driver import Handle
from sim.four_hubs import CFG, ROW, all_to_all, finish, region, scatter
from sim.golden.system import SystemModel
from sim.misuse import CULPRIT, HANDLE, ROWID, TRAVEL, VICTIM, WRONG, Runs, Unmodelled, ends, send, start, unmodelled
from sim.system import build, row_operand

OTHERS = [rank for rank in range(CFG.ranks) if rank != VICTIM]


@pytest.fixture(scope="session")
def harness():
    return build(CFG)


@pytest.fixture
def simulate(harness):
    runs = Runs(harness)
    yield runs
    runs.remove()


def playground(s, **changes):
    """Region 3 of the victim, for the culprit's handle."""
    s.region(VICTIM, WRONG, region(WRONG, **{"expected": 1, **changes}))
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    all_to_all(s)


# -- bytes stored twice, or not at all ---------------------------------------------------------------------------------

def test_overlap_before_emission(simulate):
    """A sector stored twice while it waits in the pool: counted at the producer, the newer bytes win."""
    s, rng, registers = start(streams=1)
    playground(s)
    operand = row_operand(HANDLE, 0, ROWID)
    s.program(CULPRIT).store(operand, VICTIM, rng.randbytes(32), 0xFFFFFFFF, lane=s.lane(CULPRIT, operand))
    s.row(CULPRIT, HANDLE, ROWID, rng.randbytes(ROW))
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    counts = [registers.counters(rank) for rank in range(CFG.ranks)]
    result = simulate(s)
    assert [count(result)["overlaps"] for count in counts] == [0, 1, 0, 0]


def test_overlap_after_emission(simulate):
    """The same bytes sent three times: the row gets more than it has, its region ends in ERROR OVERLAP, at once."""
    s, rng, registers = start()
    playground(s)
    data = rng.randbytes(128)
    for _ in range(3):
        send(s, CULPRIT, ROWID, data)
    scatter(s, rng, rows=4)
    finish(s)
    status, counts = registers.bank(VICTIM, WRONG, 0), registers.counters(VICTIM)
    result = simulate(s)
    assert (status(result)["state"], status(result)["error"]) == (RegionState.DONE, Reason.OVERLAP)
    assert counts(result)["row_overlaps"] == 1


def test_rowid_used_again(simulate):
    """A RowID of a row that is complete: a new row with a slot of its own; nothing of the first one is touched."""
    s, rng, registers = start()
    playground(s)
    first, second = rng.randbytes(ROW), rng.randbytes(ROW)
    with unmodelled(s):
        send(s, CULPRIT, ROWID, first)
        send(s, CULPRIT, ROWID, second)
        s.close(CULPRIT, HANDLE)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    status = registers.bank(VICTIM, WRONG, 0)
    s.hidden.append(region(WRONG).base)
    result = simulate(s, but=[Unmodelled(VICTIM, WRONG, 0)])
    assert (status(result)["rows"], status(result)["acked"]) == (2, 2 * ROW)
    base, memory = region(WRONG).base[0], result.memory(VICTIM)
    assert [bytes(memory[base + n * 384:base + n * 384 + ROW]) for n in range(2)] == [first, second]


def test_row_without_all_its_bytes(simulate):
    """A producer that closes with 16 bytes missing: ERROR INCOMPLETE."""
    s, rng, registers = start()
    playground(s)
    s.row(CULPRIT, HANDLE, ROWID, rng.randbytes(256))
    scatter(s, rng, rows=4)
    finish(s)
    s.program(VICTIM).wait_events(EventKind.ERROR, 1)
    status = registers.bank(VICTIM, WRONG, 0)
    result = simulate(s)
    assert (status(result)["state"], status(result)["error"]) == (RegionState.DONE, Reason.INCOMPLETE)


# -- somebody stands still ---------------------------------------------------------------------------------------------

def test_consumer_that_takes_no_events(simulate):
    """No event is taken for 9,000 cycles: all data is in memory, all regions are done; then every event comes, once."""
    s, rng, registers = start()
    s.system.setting("events_held", VICTIM, 0, 9000)
    all_to_all(s)
    scatter(s, rng, rows=8)
    for rank in OTHERS:
        s.program(rank).wait_events(EventKind.ALL, 2)
        s.program(rank).mark(1)
    s.program(VICTIM).wait_cycles(4000)
    early = [registers.bank(VICTIM, index, 0) for index in range(2)]
    irq = registers.read(VICTIM, "control.IRQ_STATUS")
    s.program(VICTIM).mark(1)
    finish(s)
    result = simulate(s)
    assert all(result.marks(rank)[1] < 9000 for rank in range(CFG.ranks))
    assert irq(result)["event"] == 1
    for index, look in enumerate(early):
        status, totals = look(result), s.model.totals(VICTIM, index, 0)
        assert status["state"] == RegionState.DONE and {name: status[name] for name in totals} == totals
    assert result.log("events", VICTIM)["cycle"].min() >= 9000


@pytest.mark.parametrize("what", ["mem_frozen", "paused"])
def test_peer_that_stalls(simulate, what):
    """Memory or clock of one rank stands still: rows to it wait at their producers and are named, all others finish."""
    s, rng, registers = start()
    if what == "paused":
        s.system.setting("paused", VICTIM, 2000, 12000)
    else:
        s.system.setting("memory_of", VICTIM, what, 0, 12000)
    all_to_all(s, capacity=64, row_span=64)
    for rank in range(CFG.ranks):
        if what == "paused" and rank != VICTIM:
            s.program(rank).wait_cycles(2000)
        if rank == VICTIM:
            s.close_all(VICTIM)
            s.program(VICTIM).wait_cycles(5000)
            continue
        for n in range(8):
            dest = OTHERS[(rank + n) % 3]
            s.row(rank, dest * 2 + n % 2, rank * 16 + n, rng.randbytes(ROW))
        s.sync(rank)
        for handle in (0, 1, 2, 3, 6, 7):
            s.close(rank, handle)
        for n in range(16):
            s.row(rank, VICTIM * 2, rank * 16 + n, rng.randbytes(ROW), cls=n & 1)
        s.program(rank).wait_events(EventKind.ALL, 2)
        s.program(rank).mark(1)
        s.program(rank).wait_cycles(1500)
    stuck = [registers.hang(CULPRIT, lane) for lane in range(CFG.lanes)]
    here = [registers.hang(VICTIM, lane) for lane in range(CFG.lanes)] if what == "mem_frozen" else []
    counts = registers.counters(CULPRIT)
    for rank in OTHERS:
        s.program(rank).mark(2)
        s.close_all(rank)
    finish(s)
    result = simulate(s)
    assert all(result.marks(rank)[mark] < 12000 for rank in OTHERS for mark in (1, 2))
    for page in stuck:
        assert page(result)["NO_CREDIT0"] >> VICTIM & 1
        assert page(result)["OLDEST"]["valid"] == 1 and page(result)["OLDEST"]["rank"] == VICTIM
    for page in here:
        assert page(result)["OUTSTANDING"] > 0
    assert counts(result)["stall_credit"] > 0
    assert result.log("events", VICTIM)["cycle"].min() >= 12000


def test_producer_that_never_closes(simulate):
    """The stall is reported once, with region, epoch and missing producers; nothing is done until the close comes, late."""
    s, rng, registers = start()
    s.handle(0, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    registers.write(VICTIM, "control.TIMEOUT", 1000)
    registers.write(VICTIM, "control.IRQ_ENABLE", 1 << 2)
    playground(s, expected=2)
    for rank in (0, CULPRIT):
        s.row(rank, HANDLE, ROWID + rank, rng.randbytes(ROW))
        s.sync(rank)
    s.close(0, HANDLE)
    for rank in range(CFG.ranks):
        for handle in range(8):
            s.row(rank, handle, rank * 16, rng.randbytes(ROW))
        s.sync(rank)
        for handle in range(8):
            s.close(rank, handle)
    finish(s)
    registers.wait(VICTIM, "hang.TIMEOUT", valid=1)
    timeout, missing = registers.read(VICTIM, "hang.TIMEOUT"), registers.word(VICTIM, "hang.TIMEOUT_MISSING0")
    irq = registers.read(VICTIM, "control.IRQ_STATUS")
    s.program(VICTIM).wait_cycles(4000)
    status, counts = registers.bank(VICTIM, WRONG, 0), registers.counters(VICTIM)
    s.barrier()
    s.close(CULPRIT, HANDLE)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    s.query(VICTIM, WRONG)
    result = simulate(s)
    assert timeout(result) == {"valid": 1, "bank": 0, "epoch": 0, "region": WRONG} and irq(result)["timeout"] == 1
    assert missing(result) == status(result)["missing"] == 0b1110
    assert status(result)["state"] == RegionState.OPEN and counts(result)["timeouts"] == 1
    assert result.ranks[VICTIM]["irq_cycles"] > 4000


def test_peer_that_dies_in_traffic(simulate):
    """Rank 3 stops in mid-traffic: it is named by the timeout, drained, its regions are aborted, and the three others go on."""
    s, rng, registers = start()
    dead, alive = 3, range(3)
    s.system.setting("dead", dead, 2500)         # traffic runs from about 2,300 to 3,000
    for rank in alive:
        registers.write(rank, "control.TIMEOUT", 1500)
    all_to_all(s, capacity=64)
    with unmodelled(s):
        for rank in range(CFG.ranks):
            s.program(rank).wait_cycles(1500)
            for n in range(16):
                s.row(rank, n % 8, rank * 16 + n, rng.randbytes(ROW))
            for n in range(16 if rank != dead else 0):
                s.row(rank, dead * 2, rank * 16 + n, rng.randbytes(ROW), cls=1)
        s.program(dead).wait_cycles(1 << 20)
        for rank in alive:
            registers.wait(rank, "hang.TIMEOUT", valid=1)
    looks = []
    for rank in alive:
        looks.append((registers.read(rank, "hang.TIMEOUT"), registers.word(rank, "hang.TIMEOUT_MISSING0")))
        s.drivers[rank].drain([dead])
        s.sync(rank)
        s.program(rank).fence()
        s.program(rank).close_all(0)
        s.program(rank).wait_cycles(TRAVEL)
    s.barrier()
    free = []
    for rank in alive:
        s.model.drain(rank, [dead])
        registers.write(rank, "logs.CLEAR", 1)
        for index in range(2):
            s.drivers[rank].abort(index, 0)
            free.append(registers.wait_free(rank, index, 0))
            s.region(rank, index, region(index, expected=3), epochs=(1,))
        for dest in range(CFG.ranks):
            for index in range(2):
                s.handle(rank, dest * 2 + index, Handle(targets=((dest, index),), row_bytes=ROW, epoch=1))
    s.barrier()
    for rank in alive:
        for handle in range(6):
            s.row(rank, handle, rank * 16 + handle, rng.randbytes(ROW), epoch=1)
        s.sync(rank)
        s.program(rank).store(row_operand(6, 1, 5), dead, bytes(32), 1, lane=s.lane(rank, row_operand(6, 1, 5)))
        s.sync(rank)
        s.close_all(rank, 1)
        s.program(rank).wait_events(EventKind.ALL, 2)
    counts = [registers.counters(rank) for rank in alive]
    logs = [registers.log(rank) for rank in alive]
    s.hidden += [(region(index).base[0], region(index).base[1]) for index in range(2)]
    result = simulate(s, but=[Unmodelled(rank, index, 0) for rank in range(CFG.ranks) for index in range(2)], dead=[dead])
    for timeout, missing in looks:
        assert timeout(result)["epoch"] == 0 and missing(result) >> dead & 1
    assert all(look(result) for look in free)
    for count, log in zip(counts, logs, strict=True):
        assert count(result)["sunk"] > 0 and count(result)["closes_dropped"] > 0
        entry, = log(result)
        named = [entry[name] for name in ("reason", "side", "number", "epoch", "rowid")]
        assert named == [Reason.PEER_DEAD, 1, 6, 1, 5]


# -- too much ----------------------------------------------------------------------------------------------------------

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


# -- software intervenes -----------------------------------------------------------------------------------------------

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
    first = len(s.system.ranks[0].program().array())
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
    assert first > 0 and any((result.log("packets", rank)["first"] < at).any() for rank in range(CFG.ranks))
    for rank in range(CFG.ranks):
        assert log[rank](result) == []
        assert not any(counts[rank](result)[name] for name in ("seq_errors", "bad_packets", "truncated", "credit_violations"))
