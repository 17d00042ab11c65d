# SPDX-License-Identifier: Apache-2.0
"""Whole systems in which somebody stores twice or not all, stalls, dies, never closes: named in
registers, survived."""

import pytest

from flow.driver import Handle
from hub_rtl.contract.packets import EventKind, Reason, RegionState
from sim.system.four_hubs import CFG, ROW, all_to_all, finish, region, scatter
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    TRAVEL,
    VICTIM,
    WRONG,
    Unmodelled,
    playground,
    send,
    start,
    unmodelled,
)
from sim.system.system import row_operand

OTHERS = [rank for rank in range(CFG.ranks) if rank != VICTIM]


# -- bytes stored twice, or not at all -------------------------------------------------------------


def test_overlap_before_emission(simulate):
    """A sector stored twice while it waits in the pool: counted at the producer, the newer bytes
    win."""
    s, rng, registers = start(streams=1)
    playground(s)
    operand = row_operand(HANDLE, 0, ROWID)
    s.program(CULPRIT).store(
        operand, VICTIM, rng.randbytes(32), 0xFFFFFFFF, lane=s.lane(CULPRIT, operand)
    )
    s.row(CULPRIT, HANDLE, ROWID, rng.randbytes(ROW))
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    counts = [registers.counters(rank) for rank in range(CFG.ranks)]
    result = simulate(s)
    assert [count(result)["overlaps"] for count in counts] == [0, 1, 0, 0]


def test_overlap_after_emission(simulate):
    """The same bytes sent three times: the row gets more than it has, its region ends in ERROR
    OVERLAP, at once."""
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
    """A RowID of a row that is complete: a new row with a slot of its own; nothing of the first one
    is touched."""
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
    assert [bytes(memory[base + n * 384 : base + n * 384 + ROW]) for n in range(2)] == [
        first,
        second,
    ]


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
    assert (status(result)["state"], status(result)["error"]) == (
        RegionState.DONE,
        Reason.INCOMPLETE,
    )


# -- somebody stands still -------------------------------------------------------------------------


def test_consumer_that_takes_no_events(simulate):
    """No event is taken for 9,000 cycles: all data is in memory, all regions are done; then every
    event comes, once."""
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
        assert (
            status["state"] == RegionState.DONE
            and {name: status[name] for name in totals} == totals
        )
    assert result.log("events", VICTIM)["cycle"].min() >= 9000


@pytest.mark.parametrize("what", ["mem_frozen", "paused"])
def test_peer_that_stalls(simulate, what):
    """Memory or clock of one rank stands still: rows to it wait at their producers and are named,
    all others finish."""
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
    here = (
        [registers.hang(VICTIM, lane) for lane in range(CFG.lanes)] if what == "mem_frozen" else []
    )
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
    """The stall is reported once, with region, epoch and missing producers; nothing is done until
    the close comes, late."""
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
    timeout, missing = (
        registers.read(VICTIM, "hang.TIMEOUT"),
        registers.word(VICTIM, "hang.TIMEOUT_MISSING0"),
    )
    irq = registers.read(VICTIM, "control.IRQ_STATUS")
    s.program(VICTIM).wait_cycles(4000)
    status, counts = registers.bank(VICTIM, WRONG, 0), registers.counters(VICTIM)
    s.barrier()
    s.close(CULPRIT, HANDLE)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    s.query(VICTIM, WRONG)
    result = simulate(s)
    assert (
        timeout(result) == {"valid": 1, "bank": 0, "epoch": 0, "region": WRONG}
        and irq(result)["timeout"] == 1
    )
    assert missing(result) == status(result)["missing"] == 0b1110
    assert status(result)["state"] == RegionState.OPEN and counts(result)["timeouts"] == 1
    assert result.ranks[VICTIM]["irq_cycles"] > 4000


def test_peer_that_dies_in_traffic(simulate):
    """Rank 3 stops in mid-traffic: it is named by the timeout, drained, its regions are aborted,
    and the three others go on."""
    s, rng, registers = start()
    dead, alive = 3, range(3)
    s.system.setting("dead", dead, 2500)  # traffic runs from about 2,300 to 3,000
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
        looks.append(
            (registers.read(rank, "hang.TIMEOUT"), registers.word(rank, "hang.TIMEOUT_MISSING0"))
        )
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
                s.handle(
                    rank, dest * 2 + index, Handle(targets=((dest, index),), row_bytes=ROW, epoch=1)
                )
    s.barrier()
    for rank in alive:
        for handle in range(6):
            s.row(rank, handle, rank * 16 + handle, rng.randbytes(ROW), epoch=1)
        s.sync(rank)
        s.program(rank).store(
            row_operand(6, 1, 5), dead, bytes(32), 1, lane=s.lane(rank, row_operand(6, 1, 5))
        )
        s.sync(rank)
        s.close_all(rank, 1)
        s.program(rank).wait_events(EventKind.ALL, 2)
    counts = [registers.counters(rank) for rank in alive]
    logs = [registers.log(rank) for rank in alive]
    s.hidden += [(region(index).base[0], region(index).base[1]) for index in range(2)]
    result = simulate(
        s,
        but=[Unmodelled(rank, index, 0) for rank in range(CFG.ranks) for index in range(2)],
        dead=[dead],
    )
    for timeout, missing in looks:
        assert timeout(result)["epoch"] == 0 and missing(result) >> dead & 1
    assert all(look(result) for look in free)
    for count, log in zip(counts, logs, strict=True):
        assert count(result)["sunk"] > 0 and count(result)["closes_dropped"] > 0
        (entry,) = log(result)
        named = [entry[name] for name in ("reason", "side", "number", "epoch", "rowid")]
        assert named == [Reason.PEER_DEAD, 1, 6, 1, 5]
