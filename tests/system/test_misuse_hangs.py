# SPDX-License-Identifier: Apache-2.0
"""Whole systems in which somebody stores twice or not all, stalls, dies, never closes: named in
registers, survived."""

import pytest

from hub_rtl.contract.packets import EventKind, Reason, RegionState
from sim.system.four_hubs import (
    CFG,
    RANKS,
    ROW,
    TRAVEL,
    all_to_all,
    finish,
    name_regions,
    region,
    scatter,
)
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    VICTIM,
    WRONG,
    Unmodelled,
    aim,
    error_of,
    others,
    playground,
    send,
    start,
    unmodelled,
)
from sim.system.system import row_operand

OTHERS = [rank for rank in RANKS if rank != VICTIM]


# -- bytes stored twice, or not at all -------------------------------------------------------------


def test_overlap_before_emission(simulate):
    """A sector stored twice while it waits in the pool: counted at the producer, the newer bytes
    win."""
    s, registers = start(streams=1)
    playground(s)
    operand = row_operand(HANDLE, 0, ROWID)
    s.program(CULPRIT).store(
        operand, VICTIM, s.rng.randbytes(32), 0xFFFFFFFF, lane=s.lane(CULPRIT, operand)
    )
    s.row(CULPRIT, HANDLE, ROWID)
    others(s, ends=3)
    counts = [registers.counters(rank) for rank in RANKS]
    result = simulate(s)
    assert [count(result)["overlaps"] for count in counts] == [0, 1, 0, 0]


def test_overlap_after_emission(simulate):
    """The same bytes sent three times: the row gets more than it has, its region ends in ERROR
    OVERLAP, at once."""
    s, registers = start()
    playground(s)
    data = s.rng.randbytes(128)
    for _ in range(3):
        send(s, data=data)
    others(s)
    status, counts = registers.bank(), registers.counters()
    result = simulate(s)
    assert error_of(status(result)) == Reason.OVERLAP
    assert counts(result)["row_overlaps"] == 1


def test_rowid_used_again(simulate):
    """A RowID of a row that is complete: a new row with a slot of its own; nothing of the first one
    is touched."""
    s, registers = start()
    playground(s)
    first, second = s.rng.randbytes(ROW), s.rng.randbytes(ROW)
    with unmodelled(s):
        send(s, data=first)
        send(s, data=second)
        s.close(CULPRIT, HANDLE)
    others(s, ends=3)
    status = registers.bank()
    s.hide(WRONG)
    result = simulate(s, but=[Unmodelled()])
    assert (status(result)["rows"], status(result)["acked"]) == (2, 2 * ROW)
    base, memory = region(WRONG).base[0], result.memory(VICTIM)
    assert [bytes(memory[at : at + ROW]) for at in (base, base + 384)] == [first, second]


def test_row_without_all_its_bytes(simulate):
    """A producer that closes with 16 bytes missing: ERROR INCOMPLETE."""
    s, registers = start()
    playground(s)
    s.row(CULPRIT, HANDLE, ROWID, s.rng.randbytes(256))
    others(s)
    s.program(VICTIM).wait_events(EventKind.ERROR, 1)
    status = registers.bank()
    result = simulate(s)
    assert error_of(status(result)) == Reason.INCOMPLETE


# -- somebody stands still -------------------------------------------------------------------------


def test_consumer_that_takes_no_events(simulate):
    """No event is taken for 9,000 cycles: all data is in memory, all regions are done; then every
    event comes, once."""
    s, registers = start()
    s.system.setting("events_held", VICTIM, 0, 9000)
    all_to_all(s)
    scatter(s, rows=8)
    for rank in OTHERS:
        s.wait_all(rank, 2)
        s.mark(rank, 1)
    s.wait(VICTIM, 4000)
    early = [registers.bank(VICTIM, index, 0) for index in range(2)]
    irq = registers.read("control.IRQ_STATUS")
    s.mark(VICTIM, 1)
    finish(s)
    result = simulate(s)
    assert all(result.marks(rank)[1] < 9000 for rank in RANKS)
    assert irq(result)["event"] == 1
    for index, look in enumerate(early):
        totals = s.model.totals(VICTIM, index, 0)
        assert look(result).items() >= {"state": RegionState.DONE, **totals}.items()
    assert result.log("events", VICTIM)["cycle"].min() >= 9000


@pytest.mark.parametrize("what", ["mem_frozen", "paused"])
def test_peer_that_stalls(simulate, what):
    """Memory or clock of one rank stands still: rows to it wait at their producers and are named,
    all others finish."""
    s, registers = start()
    if what == "paused":
        s.system.setting("paused", VICTIM, 2000, 12000)
    else:
        s.system.setting("memory_of", VICTIM, what, 0, 12000)
    all_to_all(s, capacity=64, row_span=64)
    for rank in RANKS:
        if what == "paused" and rank != VICTIM:
            s.wait(rank, 2000)
        if rank == VICTIM:
            s.close_all(VICTIM)
            s.wait(VICTIM, 5000)
            continue
        for n in range(8):
            dest = OTHERS[(rank + n) % 3]
            s.row(rank, dest * 2 + n % 2, rank * 16 + n)
        s.sync(rank)
        for handle in (0, 1, 2, 3, 6, 7):
            s.close(rank, handle)
        for n in range(16):
            s.row(rank, VICTIM * 2, rank * 16 + n, cls=n & 1)
        s.wait_all(rank, 2)
        s.mark(rank, 1)
        s.wait(rank, 1500)
    stuck = [registers.hang(CULPRIT, lane) for lane in range(CFG.lanes)]
    here = [registers.hang(VICTIM, lane) for lane in range(CFG.lanes) if what == "mem_frozen"]
    counts = registers.counters(CULPRIT)
    for rank in OTHERS:
        s.mark(rank, 2)
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
    s, registers = start()
    aim(s, rank=0)
    registers.write(VICTIM, "control.TIMEOUT", 1000)
    registers.write(VICTIM, "control.IRQ_ENABLE", 1 << 2)
    playground(s, expected=2)
    for rank in (0, CULPRIT):
        s.row(rank, HANDLE, ROWID + rank)
        s.sync(rank)
    s.close(0, HANDLE)
    for rank in RANKS:
        for handle in range(8):
            s.row(rank, handle, rank * 16)
        s.sync(rank)
        for handle in range(8):
            s.close(rank, handle)
    finish(s)
    registers.wait("hang.TIMEOUT", valid=1)
    timeout, missing = registers.timeout()
    irq = registers.read("control.IRQ_STATUS")
    s.wait(VICTIM, 4000)
    status, counts = registers.bank(), registers.counters()
    s.barrier()
    s.close(CULPRIT, HANDLE)
    s.wait_all(VICTIM, 3)
    s.query(VICTIM, WRONG)
    result = simulate(s)
    assert timeout(result) == {"valid": 1, "bank": 0, "epoch": 0, "region": WRONG}
    assert irq(result)["timeout"] == 1
    assert missing(result) == status(result)["missing"] == 0b1110
    assert status(result)["state"] == RegionState.OPEN and counts(result)["timeouts"] == 1
    assert result.ranks[VICTIM]["irq_cycles"] > 4000


def test_peer_that_dies_in_traffic(simulate):
    """Rank 3 stops in mid-traffic: it is named by the timeout, drained, its regions are aborted,
    and the three others go on."""
    s, registers = start()
    dead, alive = 3, range(3)
    s.system.setting("dead", dead, 2500)  # traffic runs from about 2,300 to 3,000
    for rank in alive:
        registers.write(rank, "control.TIMEOUT", 1500)
    all_to_all(s, capacity=64)
    with unmodelled(s):
        for rank in RANKS:
            s.wait(rank, 1500)
            for n in range(16):
                s.row(rank, n % 8, rank * 16 + n)
            for n in range(16 if rank != dead else 0):
                s.row(rank, dead * 2, rank * 16 + n, cls=1)
        s.wait(dead, 1 << 20)
        for rank in alive:
            registers.wait("hang.TIMEOUT", rank, valid=1)
    looks = []
    for rank in alive:
        looks.append(registers.timeout(rank))
        s.drivers[rank].drain([dead])
        s.sync(rank)
        s.fence(rank)
        s.program(rank).close_all(0)
        s.wait(rank, TRAVEL)
    s.barrier()
    free = []
    for rank in alive:
        s.model.drain(rank, [dead])
        registers.write(rank, "logs.CLEAR", 1)
        for index in range(2):
            s.drivers[rank].abort(index, 0)
            free.append(registers.wait_free(rank, index, 0))
            s.region(rank, index, region(index, expected=3), epochs=(1,))
        name_regions(s, rank, epoch=1)
    s.barrier()
    for rank in alive:
        for handle in range(6):
            s.row(rank, handle, rank * 16 + handle, epoch=1)
        s.sync(rank)
        s.program(rank).store(
            row_operand(6, 1, 5), dead, bytes(32), 1, lane=s.lane(rank, row_operand(6, 1, 5))
        )
        s.sync(rank)
        s.close_all(rank, 1)
        s.wait_all(rank, 2)
    counts = [registers.counters(rank) for rank in alive]
    logs = [registers.log(rank) for rank in alive]
    s.hide(0, 1)
    result = simulate(
        s,
        but=[Unmodelled(rank, index, 0) for rank in RANKS for index in range(2)],
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
