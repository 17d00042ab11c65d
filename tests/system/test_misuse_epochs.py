# SPDX-License-Identifier: Apache-2.0
"""Whole systems whose software opens the wrong epochs, or whose producers are far ahead: refused,
or ERROR, never a hang."""

from hub_rtl.contract.packets import EventKind, OrderError, Reason, RegionOp, RegionState
from sim.system.four_hubs import ROW, TRAVEL, all_to_all, finish, region, scatter
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    VICTIM,
    WRONG,
    aim,
    ends,
    order_error,
    others,
    playground,
    send,
    start,
)

OTHER = 3  # second producer of the region


def two_producers(s):
    """The culprit's region, with a second producer; its epoch 0 is over and given back."""
    playground(s, expected=2)
    aim(s, rank=OTHER)
    for rank in (CULPRIT, OTHER):
        s.close(rank, HANDLE)
    s.wait_all(VICTIM, 1)
    s.drivers[VICTIM].release(WRONG, 0)
    s.barrier()


def close_of(s, rank, epoch):
    """The producer goes to the epoch by itself and closes it; the close has arrived when its
    program goes on."""
    aim(s, rank=rank, epoch=epoch)
    s.close(rank, HANDLE, epoch)
    s.settle(rank)


def refused_open(s, registers, epoch):
    """An OPEN that the hub must refuse; gives a look at why it did."""
    s.drivers[VICTIM].open(WRONG, epoch)
    error = registers.read("regions.COMMAND_ERROR")
    registers.write(VICTIM, "regions.COMMAND_ERROR", 1)
    return error


def test_open_that_skips_epochs(simulate):
    """A producer closes epoch 10 while the bank's last one is 0. OPEN 10 is refused; after FORGET
    it is an ERROR, no hang."""
    s, registers = start()
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
    others(s, ends=4)
    counts = registers.counters()
    result = simulate(s)
    assert error(result) == order_error(RegionOp.OPEN, 10, OrderError.EPOCH)
    assert counts(result)["close_stale"] == 1
    assert ends(result, WRONG) == [
        (EventKind.ALL, WRONG, 0, 0, 0),
        (EventKind.ERROR, WRONG, 10, Reason.EPOCH_EARLY, 0),
        (EventKind.ALL, WRONG, 12, 0, 0),
    ]


def test_open_of_past_epochs(simulate):
    """The epoch just released, those before it and those eight and more ahead are refused; the next
    one is exact."""
    s, registers = start()
    two_producers(s)
    wrong = (0, 14, 12, 10, 8)
    errors = [refused_open(s, registers, epoch) for epoch in wrong]
    status = registers.bank()
    s.open(VICTIM, WRONG, 6)
    s.barrier()
    for rank in (CULPRIT, OTHER):
        close_of(s, rank, 6)
    others(s, ends=4)
    result = simulate(s)
    assert [error(result) for error in errors] == [
        order_error(RegionOp.OPEN, epoch, OrderError.EPOCH) for epoch in wrong
    ]
    assert status(result)["state"] == RegionState.FREE


def test_rows_before_a_late_first_epoch(simulate):
    """A bank that was never opened gets a row and a close of epoch 6: its OPEN is ALL with refused
    rows, and no hang."""
    s, registers = start()
    s.region(VICTIM, WRONG, region(WRONG, expected=1), epochs=())
    aim(s, epoch=6)
    all_to_all(s)
    send(s, epoch=6)
    s.close(CULPRIT, HANDLE, 6)
    s.wait(CULPRIT, TRAVEL)
    s.barrier()
    s.open(VICTIM, WRONG, 6)
    scatter(s, rows=4)
    s.wait(VICTIM, 2 * TRAVEL)
    status = registers.bank(epoch=6)
    finish(s)
    result = simulate(s)
    bank = status(result)
    assert (bank["state"], bank["refused"], bank["sent"]) == (RegionState.DONE, ROW, ROW)
    assert ends(result, WRONG) == [(EventKind.ALL, WRONG, 6, 0, 1)]
