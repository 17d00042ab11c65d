# SPDX-License-Identifier: Apache-2.0
"""Whole systems whose software opens the wrong epochs, or whose producers are far ahead: refused,
or ERROR, never a hang."""

from flow.driver import Handle
from hub_rtl.contract.packets import EventKind, OrderError, Reason, RegionOp, RegionState
from sim.system.four_hubs import ROW, all_to_all, finish, region, scatter
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    TRAVEL,
    VICTIM,
    WRONG,
    ends,
    playground,
    send,
    start,
)

OTHER = 3  # second producer of the region


def to_region(**more):
    return Handle(targets=((VICTIM, WRONG),), row_bytes=ROW, **more)


def two_producers(s):
    """The culprit's region, with a second producer; its epoch 0 is over and given back."""
    playground(s, expected=2)
    s.handle(OTHER, HANDLE, to_region())
    for rank in (CULPRIT, OTHER):
        s.close(rank, HANDLE)
    s.program(VICTIM).wait_events(EventKind.ALL, 1)
    s.drivers[VICTIM].release(WRONG, 0)
    s.barrier()


def close_of(s, rank, epoch):
    """The producer goes to the epoch by itself and closes it; the close has arrived when its
    program goes on."""
    s.handle(rank, HANDLE, to_region(epoch=epoch))
    s.close(rank, HANDLE, epoch)
    s.program(rank).fence()
    s.program(rank).wait_cycles(TRAVEL)


def refused_open(s, registers, epoch):
    """An OPEN that the hub must refuse; gives a look at why it did."""
    s.drivers[VICTIM].open(WRONG, epoch)
    error = registers.read(VICTIM, "regions.COMMAND_ERROR")
    registers.write(VICTIM, "regions.COMMAND_ERROR", 1)
    return error


def epoch_error(epoch):
    return {
        "valid": 1,
        "op": RegionOp.OPEN,
        "epoch": epoch,
        "region": WRONG,
        "reason": OrderError.EPOCH,
    }


def test_open_that_skips_epochs(simulate):
    """A producer closes epoch 10 while the bank's last one is 0. OPEN 10 is refused; after FORGET
    it is an ERROR, no hang."""
    s, rng, registers = start()
    two_producers(s)
    close_of(s, CULPRIT, 10)
    s.barrier()
    error = refused_open(s, registers, 10)
    s.forget(VICTIM, WRONG, 10)
    s.open(VICTIM, WRONG, 10)
    s.barrier()
    close_of(s, OTHER, 10)
    s.barrier()
    s.drivers[VICTIM].release(WRONG, 10)
    s.open(VICTIM, WRONG, 12)  # and goes on
    s.barrier()
    for rank in (CULPRIT, OTHER):
        close_of(s, rank, 12)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 4)
    finish(s)
    counts = registers.counters(VICTIM)
    result = simulate(s)
    assert error(result) == epoch_error(10)
    assert counts(result)["close_stale"] == 1
    assert [e for e in ends(result, VICTIM) if e[1] == WRONG] == [
        (EventKind.ALL, WRONG, 0, 0, 0),
        (EventKind.ERROR, WRONG, 10, Reason.EPOCH_EARLY, 0),
        (EventKind.ALL, WRONG, 12, 0, 0),
    ]


def test_open_of_past_epochs(simulate):
    """The epoch just released, those before it and those eight and more ahead are refused; the next
    one is exact."""
    s, rng, registers = start()
    two_producers(s)
    wrong = (0, 14, 12, 10, 8)
    errors = [refused_open(s, registers, epoch) for epoch in wrong]
    status = registers.bank(VICTIM, WRONG, 0)
    s.open(VICTIM, WRONG, 6)
    s.barrier()
    for rank in (CULPRIT, OTHER):
        close_of(s, rank, 6)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 4)
    finish(s)
    result = simulate(s)
    assert [error(result) for error in errors] == [epoch_error(epoch) for epoch in wrong]
    assert status(result)["state"] == RegionState.FREE


def test_rows_before_a_late_first_epoch(simulate):
    """A bank that was never opened gets a row and a close of epoch 6: its OPEN is ALL with refused
    rows, and no hang."""
    s, rng, registers = start()
    s.region(VICTIM, WRONG, region(WRONG, expected=1), epochs=())
    s.handle(CULPRIT, HANDLE, to_region(epoch=6))
    all_to_all(s)
    send(s, CULPRIT, ROWID, rng.randbytes(ROW), epoch=6)
    s.close(CULPRIT, HANDLE, 6)
    s.program(CULPRIT).wait_cycles(TRAVEL)
    s.barrier()
    s.open(VICTIM, WRONG, 6)
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_cycles(2 * TRAVEL)
    status = registers.bank(VICTIM, WRONG, 6)
    finish(s)
    result = simulate(s)
    bank = status(result)
    assert (bank["state"], bank["refused"], bank["sent"]) == (RegionState.DONE, ROW, ROW)
    assert [e for e in ends(result, VICTIM) if e[1] == WRONG] == [(EventKind.ALL, WRONG, 6, 0, 1)]
