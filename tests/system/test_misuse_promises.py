# SPDX-License-Identifier: Apache-2.0
"""Whole systems whose producers promise and do not keep it, or promise late, twice or nothing: ALL
only of kept words, ERROR names the guilty, no hang that nobody is named for."""

import pytest

from hub_rtl.contract.packets import EventKind, Reason, replica_of
from sim.quality.coverage import cover
from sim.system.four_hubs import ROW, region
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    VICTIM,
    WRONG,
    aim,
    ends,
    error_of,
    others,
    playground,
    start,
)
from sim.system.system import row_operand

OTHER = 3  # second producer of the region
ALL, ERROR = EventKind.ALL, EventKind.ERROR
QUIET = 400  # cycles in which a handle that kept its word has closed


def rows(s, count, rank=CULPRIT, first=0, epoch=0):
    """So many rows of a producer to the region."""
    for rowid in range(first, first + count):
        s.row(rank, HANDLE, rowid, epoch=epoch)


def two_producers(s, **changes):
    playground(s, expected=2, **changes)
    aim(s, rank=OTHER)


def blamed(result, registers_blame):
    """The rank that BLAME names, None if none."""
    blame = registers_blame(result)
    return blame["rank"] if blame["valid"] else None


def test_kept(simulate):
    """Two epochs without a close of software's: each ends with the last byte; CLOSE_ALL finds
    nothing to do, the first store after it is of the next epoch."""
    s, _ = start()
    playground(s)
    for epoch in range(2):
        if epoch:
            s.open(VICTIM, WRONG, epoch)
            s.barrier()
        s.announce(CULPRIT, HANDLE, 6 * ROW, epoch=epoch)
        rows(s, 6, epoch=epoch)
        s.sync(CULPRIT)
        s.wait(CULPRIT, QUIET)
        s.barrier()
        s.wait_all(VICTIM, 1 + epoch)
        s.barrier()
    others(s, ends=4)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, epoch, 0, 0) for epoch in range(2)]


def test_less_then_close(simulate):
    """Less than promised, then CLOSE: ERROR INCOMPLETE, and BLAME names the rank; the other one
    kept its word."""
    s, registers = start()
    two_producers(s)
    s.announce(OTHER, HANDLE, 2 * ROW)
    rows(s, 2, rank=OTHER, first=8)
    s.announce(CULPRIT, HANDLE, 3 * ROW)
    rows(s, 2)
    s.settle(OTHER)
    s.settle(CULPRIT)
    s.barrier()
    assert s.close(CULPRIT, HANDLE) == Reason.OK
    others(s)
    s.program(VICTIM).wait_events(ERROR, 1)
    status, blame = registers.bank(), registers.read("regions.BLAME")
    result = simulate(s)
    assert error_of(status(result)) == Reason.INCOMPLETE and blamed(result, blame) == CULPRIT
    cover("misuse.promise_less")


def test_less_and_silence(simulate):
    """Less than promised, and no close: the region stays OPEN; at the timeout exactly the guilty is
    missing, and nobody is silent."""
    s, registers = start()
    two_producers(s)
    registers.write(VICTIM, "control.TIMEOUT", 2000)
    s.announce(OTHER, HANDLE, 2 * ROW)
    rows(s, 2, rank=OTHER, first=8)
    s.announce(CULPRIT, HANDLE, 3 * ROW)
    rows(s, 2)
    s.sync(CULPRIT)
    s.barrier()
    s.wait(VICTIM, 5000)
    told, missing = registers.timeout()
    silent = registers.word("hang.TIMEOUT_SILENT0")
    s.barrier()
    others(s)  # and closes, `short`
    s.program(VICTIM).wait_events(ERROR, 1)
    result = simulate(s)
    assert told(result)["valid"] and told(result)["region"] == WRONG
    producers = 1 << CULPRIT | 1 << OTHER  # the victim knows how many there are, not who
    assert missing(result) & producers == 1 << CULPRIT and not silent(result) & producers
    assert ends(result, WRONG) == [(ERROR, WRONG, 0, Reason.INCOMPLETE, 0)]
    cover("misuse.promise_silent")


def test_more(simulate):
    """More than promised: the rows stored before the handle closed are told `over`: ERROR OVERLAP,
    with the culprit's name."""
    s, registers = start()
    two_producers(s)
    s.close(OTHER, HANDLE)
    rows(s, 3)
    s.sync(CULPRIT)
    s.settle(CULPRIT)
    s.announce(CULPRIT, HANDLE, 2 * ROW)
    others(s)
    s.program(VICTIM).wait_events(ERROR, 1)
    status, blame = registers.bank(), registers.read("regions.BLAME")
    result = simulate(s)
    assert error_of(status(result)) == Reason.OVERLAP and blamed(result, blame) == CULPRIT
    cover("misuse.promise_more")


def test_more_after_the_end(simulate):
    """A row after the promise was kept: AFTER_CLOSE, and the region has all that was promised."""
    s, _ = start()
    playground(s)
    s.announce(CULPRIT, HANDLE, 2 * ROW)
    rows(s, 2)
    s.sync(CULPRIT)
    s.wait(CULPRIT, QUIET)
    operand = row_operand(HANDLE, 0, 9, 0)
    assert s.store(CULPRIT, operand, bytes(32), 1) == Reason.AFTER_CLOSE
    others(s, ends=3)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


def test_less_here_more_there(simulate):
    """One less, another as much more: the sum is right, and no ALL."""
    s, registers = start()
    two_producers(s)
    rows(s, 3, rank=OTHER, first=8)
    s.settle(OTHER)
    s.announce(CULPRIT, HANDLE, 3 * ROW)
    rows(s, 2)
    s.settle(CULPRIT)
    s.barrier()
    s.announce(OTHER, HANDLE, 2 * ROW)
    s.wait(OTHER, QUIET)
    s.barrier()
    s.close(CULPRIT, HANDLE)
    others(s)
    s.program(VICTIM).wait_events(ERROR, 1)
    registers.bank()
    blame = registers.read("regions.BLAME")
    result = simulate(s)
    assert ends(result, WRONG) == [(ERROR, WRONG, 0, Reason.OVERLAP, 0)]
    assert blamed(result, blame) == OTHER


def test_nothing(simulate):
    """Nothing is promised, nothing sent: the region is empty and complete; so is one that only the
    rest tells."""
    s, _ = start()
    two_producers(s)
    s.announce(CULPRIT, HANDLE, 0)
    s.wait(CULPRIT, QUIET)
    s.announce_all(OTHER)
    s.program(VICTIM).wait_events(ALL, 1)
    s.barrier()
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


def test_one_tells_one_closes(simulate):
    """A producer that tells, and one that only closes."""
    s, _ = start()
    two_producers(s)
    s.announce(CULPRIT, HANDLE, 2 * ROW)
    rows(s, 2)
    rows(s, 3, rank=OTHER, first=8)
    s.sync(OTHER)
    s.close(OTHER, HANDLE)
    others(s, ends=3)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


@pytest.mark.parametrize("more", [False, True])
def test_told_twice(simulate, more):
    """The second promise is refused, the first one holds; also when the program awaits neither
    answer."""
    s, _ = start()
    playground(s)
    assert s.announce(CULPRIT, HANDLE, 2 * ROW, more=more) == Reason.OK
    assert s.announce(CULPRIT, HANDLE, 5 * ROW, more=more) == Reason.AFTER_CLOSE
    rows(s, 2)
    others(s, ends=3)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


def test_told_late(simulate):
    """Promised when all has been stored: spent at once."""
    s, _ = start()
    playground(s)
    rows(s, 2)
    s.sync(CULPRIT)
    s.settle(CULPRIT)
    s.announce(CULPRIT, HANDLE, 2 * ROW)
    s.program(VICTIM).wait_events(ALL, 1)
    others(s, ends=3)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


def test_gives_up(simulate):
    """A producer that told nothing closes with `abort`: ERROR INCOMPLETE, though its bytes came."""
    s, registers = start()
    playground(s)
    rows(s, 2)
    s.sync(CULPRIT)
    s.close(CULPRIT, HANDLE, abort=True)
    others(s)
    s.program(VICTIM).wait_events(ERROR, 1)
    registers.bank()
    blame = registers.read("regions.BLAME")
    result = simulate(s)
    assert ends(result, WRONG) == [(ERROR, WRONG, 0, Reason.INCOMPLETE, 0)]
    assert blamed(result, blame) == CULPRIT


def test_some_replicas_told(simulate):
    """A handle with two replicas closes when both are told; the rest of them with ANNOUNCE_ALL."""
    s, _ = start()
    playground(s, expected=1)
    second = WRONG - 1
    s.region(VICTIM, second, region(second, expected=1))
    aim(s, targets=((VICTIM, WRONG), (VICTIM, second)))
    s.barrier()
    sizes = [0, 0]
    for rowid in range(4):
        sizes[replica_of(rowid, 2)] += ROW
        s.row(CULPRIT, HANDLE, rowid)
    for replica in range(2):
        s.announce(CULPRIT, HANDLE, sizes[replica], replica=replica)
    s.sync(CULPRIT)
    s.program(VICTIM).wait_events(ALL, 2)
    s.barrier()
    result = simulate(s)
    assert len(ends(result, WRONG, second)) == 2


def test_entry_rewritten(simulate):
    """Software writes the entry again while it is told: the promise stays, and ends the epoch."""
    s, _ = start()
    playground(s)
    s.announce(CULPRIT, HANDLE, 2 * ROW)
    aim(s)
    rows(s, 2)
    others(s, ends=3)
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, 0, 0, 0)]


def test_told_before_open(simulate):
    """Promises and rows of the next epoch of the other bank are told before it is opened: kept for
    it."""
    s, registers = start()
    playground(s)
    s.announce(CULPRIT, HANDLE, 0)
    s.wait(CULPRIT, QUIET)
    s.announce(CULPRIT, HANDLE, 2 * ROW, epoch=1)
    s.wait(CULPRIT, QUIET)
    s.barrier()
    s.open(VICTIM, WRONG, 1)
    s.barrier()
    rows(s, 2, epoch=1)
    s.sync(CULPRIT)
    others(s, ends=4)
    counts = registers.counters()
    result = simulate(s)
    assert ends(result, WRONG) == [(ALL, WRONG, epoch, 0, 0) for epoch in range(2)]
    assert counts(result)["early_kept"] == 1
