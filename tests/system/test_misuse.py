# SPDX-License-Identifier: Apache-2.0
"""Every reason for a refusal or an ERROR, provoked in a whole system: named in registers, and
nobody else is disturbed.

Rank 1 is the culprit, region 3 of rank 2 its playground; all four ranks send rows to each other
beside it.
"""

import pytest

from flow.driver import Handle
from hub_rtl.contract.packets import HEADER, EventKind, LaneMode, Reason, RegionState, pack
from sim.quality.coverage import cover
from sim.system.four_hubs import CFG, PLAIN, ROW, all_to_all, finish, region, scatter
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    TRAVEL,
    VICTIM,
    WRONG,
    Registers,
    Unmodelled,
    ends,
    playground,
    send,
    start,
    unmodelled,
)
from sim.system.system import row_operand


def entry(reason, rank, **more):
    """A log entry as it must be."""
    fields = {
        "side": 0,
        "remote": 0,
        "plain": 0,
        "owner": 0,
        "epoch": 0,
        "number": WRONG,
        "rowid": ROWID,
    }
    return {"reason": int(reason), "rank": rank, **fields, **more}


def full_region(s, rng):
    s.region(VICTIM, WRONG, region(WRONG, capacity=1, expected=1))
    yield
    send(s, CULPRIT, 7, rng.randbytes(ROW))
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def unknown_region(s, rng):
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def wrong_row(s, rng):
    s.region(VICTIM, WRONG, region(WRONG, row_first=ROWID + 1, expected=1))
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def too_long_row(s, rng):
    s.region(VICTIM, WRONG, region(WRONG, row_bytes=256, expected=1))
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(256))
    send(s, CULPRIT, ROWID, rng.randbytes(16), row_off=16)


def early_epoch(s, rng):
    s.region(VICTIM, WRONG, region(WRONG, expected=1), epochs=())
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def tainted_epoch(s, rng):
    """Two epochs ahead: the bank is in use."""
    s.region(VICTIM, WRONG, region(WRONG, expected=1), epochs=(14,))
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def stale_epoch(s, rng):
    s.region(VICTIM, WRONG, region(WRONG, expected=1), epochs=(4,))
    yield
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))


def foreign_row(s, rng):
    """Rank 3 has sent half of its row when the culprit uses the same RowID."""
    s.region(VICTIM, WRONG, region(WRONG, expected=2))
    s.handle(3, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    yield
    data = rng.randbytes(ROW)
    send(s, 3, ROWID, data[:128])
    s.barrier()
    send(s, CULPRIT, ROWID, rng.randbytes(ROW))
    s.barrier()
    send(s, 3, ROWID, data[128:], row_off=8)
    s.close(3, HANDLE)


# reason -> (what the culprit does, events that end the region: kind, status, refused)
WRONGS = {
    "unknown": (unknown_region, Reason.UNKNOWN, None),
    "foreign": (foreign_row, Reason.FOREIGN, (EventKind.ALL, 0, 1)),
    "region_full": (full_region, Reason.REGION_FULL, (EventKind.ALL, 0, 1)),
    "epoch_stale": (stale_epoch, Reason.EPOCH_STALE, None),
    "epoch_early": (early_epoch, Reason.EPOCH_EARLY, (EventKind.ALL, 0, 1)),
    "epoch_tainted": (tainted_epoch, Reason.EPOCH_EARLY, (EventKind.ERROR, Reason.EPOCH_EARLY, 0)),
    "row_overrun": (too_long_row, Reason.ROW_OVERRUN, (EventKind.ALL, 0, 1)),
    "row_range": (wrong_row, Reason.ROW_RANGE, (EventKind.ALL, 0, 1)),
}


@pytest.mark.parametrize("case", WRONGS)
def test_consumer_refuses(simulate, case):
    """A row that the consumer must not place is sunk, counted, logged with its source and RowID,
    and told to the producer."""
    provoke, reason, end = WRONGS[case]
    s, rng, registers = start()
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    steps = provoke(s, rng)
    next(steps)
    all_to_all(s)
    next(steps, None)
    s.close(CULPRIT, HANDLE)
    s.program(CULPRIT).wait_cycles(TRAVEL)
    s.barrier()
    if case == "epoch_early":
        s.open(VICTIM, WRONG, 0)
    if case == "epoch_tainted":
        s.drivers[VICTIM].abort(WRONG, 14)
        registers.wait_free(VICTIM, WRONG, 14)
        s.open(VICTIM, WRONG, 0)
    scatter(s, rng, rows=6)
    if end and end[0] == EventKind.ALL:
        s.program(VICTIM).wait_events(EventKind.ALL, 3)
        s.query(VICTIM, WRONG)
    finish(s)
    logs = [registers.log(rank) for rank in range(CFG.ranks)]
    counts = [registers.counters(rank) for rank in range(CFG.ranks)]
    irq = registers.read(VICTIM, "control.IRQ_STATUS")
    with_end = [] if end is None else [(int(end[0]), WRONG, 0, int(end[1]), int(end[2]))]

    result = simulate(s)
    assert [e for e in ends(result, VICTIM) if e[1] == WRONG] == with_end
    want = [[], [entry(reason, VICTIM, remote=1)], [entry(reason, CULPRIT)], []]
    assert [log(result) for log in logs] == want
    at_victim, at_culprit = counts[VICTIM](result), counts[CULPRIT](result)
    refused = {
        name: value for name, value in at_victim.items() if name.startswith("refused_") and value
    }
    refused.pop("refused_stale", None)
    assert set(refused) == {f"refused_{reason.name.lower()}"}
    assert (at_victim["reports"], at_victim["rejects_sent"], at_culprit["rejects_received"]) == (
        1,
        1,
        1,
    )
    assert irq(result)["refusal"] == 1
    cover(f"misuse.consumer_refuses.{case}")


def test_own_rank_refuses(simulate):
    """The same through the loopback lane: the rank is told by its own log, from both sides."""
    s, rng, registers = start()
    s.handle(VICTIM, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW))
    s.region(VICTIM, WRONG, region(WRONG, row_span=ROWID, expected=1))
    all_to_all(s)
    send(s, VICTIM, ROWID, rng.randbytes(ROW))
    scatter(s, rng, rows=4)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    log = registers.log(VICTIM)
    result = simulate(s)
    wanted = [entry(Reason.ROW_RANGE, VICTIM), entry(Reason.ROW_RANGE, VICTIM, remote=1)]
    assert sorted(log(result), key=lambda e: e["remote"]) == wanted


def test_store_outside_the_window(simulate):
    """A plain store outside its source's window writes nothing; source and reason are logged on
    both sides."""
    s, rng, registers = start()
    s.window(VICTIM, CULPRIT, PLAIN, PLAIN + 0x1000)
    s.window(VICTIM, 0, PLAIN + 0x1000, PLAIN + 0x2000)
    all_to_all(s)
    s.plain(CULPRIT, VICTIM, PLAIN + 0x1080, rng.randbytes(128))  # the window of rank 0
    s.plain(CULPRIT, VICTIM, PLAIN, rng.randbytes(256))
    s.plain(0, VICTIM, PLAIN + 0x1000, rng.randbytes(256))
    scatter(s, rng, rows=4)
    finish(s)
    logs = [registers.log(rank) for rank in range(CFG.ranks)]
    counts = registers.counters(VICTIM)
    result = simulate(s)
    here, there = logs[VICTIM](result), logs[CULPRIT](result)
    assert [(e["reason"], e["rank"], e["plain"], e["side"], e["remote"]) for e in here] == [
        (Reason.WINDOW, CULPRIT, 1, 0, 0)
    ]
    assert [(e["reason"], e["rank"], e["side"], e["remote"]) for e in there] == [
        (Reason.WINDOW, VICTIM, 0, 1)
    ]
    assert logs[0](result) == logs[3](result) == []
    assert counts(result)["refused_window"] == 1


def test_decoder_refuses(simulate):
    """Every reason of a decoder: answered, logged with owner, handle, epoch and RowID, counted, and
    the interrupt is up."""
    s, rng, registers = start(streams=1)
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW, owner=3))
    s.region(VICTIM, WRONG, region(WRONG, expected=1))
    all_to_all(s)
    registers.write(CULPRIT, "control.IRQ_ENABLE", 1 << 3)
    good = row_operand(HANDLE, 0, ROWID)

    def wrong(operand, **more):
        s.sync(CULPRIT)
        return s.store(CULPRIT, operand, bytes(32), 0xFFFFFFFF, dest=VICTIM, **{"owner": 3, **more})

    assert wrong(row_operand(29, 0, ROWID)) == Reason.UNKNOWN
    assert wrong(good, owner=5) == Reason.FOREIGN
    assert wrong(row_operand(HANDLE, 3, ROWID)) == Reason.EPOCH_EARLY
    assert wrong(row_operand(HANDLE, 12, ROWID)) == Reason.EPOCH_STALE
    assert wrong(good, lane=1 - s.lane(CULPRIT, good)) == Reason.BAD_LANE
    assert wrong(row_operand(HANDLE, 0, ROWID, 18)) == Reason.ROW_OVERRUN
    s.sync(CULPRIT)
    assert s.close(CULPRIT, HANDLE, owner=5) == Reason.FOREIGN
    assert s.close(CULPRIT, HANDLE, owner=3) == Reason.OK
    assert wrong(good) == Reason.AFTER_CLOSE
    assert s.close(CULPRIT, HANDLE, owner=3) == Reason.AFTER_CLOSE
    s.sync(CULPRIT)
    assert s.plain_store(CULPRIT, 99, PLAIN, bytes(32), 1) == Reason.UNKNOWN
    s.sync(CULPRIT)
    scatter(s, rng, rows=4)
    finish(s)
    log, counts = registers.log(CULPRIT), registers.counters(CULPRIT)
    result = simulate(s)
    by_store = {"side": 1, "owner": 3, "number": HANDLE}
    want = [
        entry(Reason.UNKNOWN, 0, **{**by_store, "number": 29}),
        entry(Reason.FOREIGN, 0, **{**by_store, "owner": 5}),
        entry(Reason.EPOCH_EARLY, 0, **by_store, epoch=3),
        entry(Reason.EPOCH_STALE, 0, **by_store, epoch=12),
        entry(Reason.BAD_LANE, 0, **by_store),
        entry(Reason.ROW_OVERRUN, 0, **by_store),
        entry(Reason.AFTER_CLOSE, 0, **by_store),
    ]
    got = log(result)
    assert [e | {"rank": 0} for e in got[:-1]] == want
    assert (got[-1]["reason"], got[-1]["plain"], got[-1]["rank"]) == (Reason.UNKNOWN, 1, 99)
    assert counts(result)["stores_refused"] == 8
    assert result.ranks[CULPRIT]["irq_cycles"] > 0


@pytest.mark.parametrize(
    "field, at, reason",
    [
        ("type", 3, Reason.BAD_HEADER),
        ("fan", 0, Reason.BAD_HEADER),
        ("dst", 0, Reason.BAD_HEADER),
        ("src", 6, Reason.BAD_HEADER),
        ("lane", 0, Reason.BAD_LANE),
        ("len", 4, Reason.BAD_HEADER),
    ],
)
def test_damaged_header(simulate, field, at, reason):
    """A packet damaged in type, fan, dst, src, lane or len is dropped and shown; its region hangs,
    is named and reused."""
    bit = HEADER[field][0] + at
    s, rng, registers = start()
    s.region(VICTIM, WRONG, region(WRONG, expected=1))
    s.handle(
        CULPRIT,
        HANDLE,
        Handle(targets=((VICTIM, WRONG),), row_bytes=ROW, lane_mode=LaneMode.FIXED, lane=0),
    )
    registers.write(VICTIM, "control.TIMEOUT", 1500)
    s.system.fault("corrupt", dest=VICTIM, lane=0, index=0, bit=bit)
    all_to_all(s)
    with unmodelled(s):
        send(s, CULPRIT, ROWID, rng.randbytes(ROW))
        s.close(CULPRIT, HANDLE)
    s.barrier()
    scatter(s, rng, rows=6)
    finish(s)
    registers.wait(VICTIM, "hang.TIMEOUT", valid=1)
    stuck = registers.bank(VICTIM, WRONG, 0)
    timeout, missing = (
        registers.read(VICTIM, "hang.TIMEOUT"),
        registers.word(VICTIM, "hang.TIMEOUT_MISSING0"),
    )
    irq, bad = registers.read(VICTIM, "control.IRQ_STATUS"), registers.read(VICTIM, "logs.BAD")
    header = [registers.word(VICTIM, f"logs.BAD_HEADER{n}") for n in range(4)]
    log, counts = registers.log(VICTIM), registers.counters(VICTIM)
    s.drivers[VICTIM].abort(WRONG, 0)
    free = registers.wait_free(VICTIM, WRONG, 0)
    s.program(VICTIM).mark(1)
    s.open(VICTIM, WRONG, 2)
    s.handle(CULPRIT, HANDLE, Handle(targets=((VICTIM, WRONG),), row_bytes=ROW, epoch=2))
    s.barrier()
    for n in range(5):
        s.row(CULPRIT, HANDLE, n, rng.randbytes(ROW), epoch=2)
    s.sync(CULPRIT)
    s.close(CULPRIT, HANDLE, 2)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    s.query(VICTIM, WRONG, 2)
    s.hidden.append((region(WRONG).base[0] + 5 * 384, region(WRONG).base[1]))
    result = simulate(s, but=[Unmodelled(VICTIM, WRONG, 0, until=1)])

    sent = pack(HEADER, type=1, cls=0, dst=VICTIM, src=CULPRIT, len=8) ^ 1 << bit
    shown = sum(word(result) << 32 * n for n, word in enumerate(header))
    mask = (1 << 32) - 1
    assert shown & mask == sent & mask
    assert bad(result) == {"valid": 1, "reason": int(reason), "lane": 0}
    src = CULPRIT ^ 64 if field == "src" else CULPRIT
    assert log(result) == [entry(reason, src, side=1, remote=1)]
    assert (
        counts(result)["bad_packets"] == 1
        and irq(result)["bad_packet"] == 1 == irq(result)["timeout"]
    )
    assert (timeout(result)["region"], timeout(result)["epoch"], missing(result)) == (
        WRONG,
        0,
        0b1101,
    )
    assert (
        stuck(result)["state"] == RegionState.OPEN
        and stuck(result)["sent"] - stuck(result)["acked"] == 128
    )
    assert free(result)
    cover(f"misuse.damaged_header.{bit}")


def ends_in_error(s, simulate, reason, **more):
    """Runs; region 3 of the victim must have ended in ERROR with a reason, in its event and its
    register."""
    registers = Registers(s)
    registers.wait(VICTIM, "control.STATUS", query_busy=0)
    status, counts = registers.bank(VICTIM, WRONG, 0), registers.counters(VICTIM)
    result = simulate(s, **more)
    assert [e for e in ends(result, VICTIM) if e[1] == WRONG] == [
        (EventKind.ERROR, WRONG, 0, reason, 0)
    ]
    assert (status(result)["state"], status(result)["error"]) == (RegionState.DONE, reason)
    return counts(result)


def test_truncated_packet(simulate):
    """A packet that lost its last flit is padded: its region ends in ERROR INCOMPLETE, never
    all-ready."""
    s, rng, _ = start()
    s.system.fault("truncate", dest=VICTIM, lane=0, index=1)
    playground(s)
    with unmodelled(s):
        send(s, CULPRIT, ROWID, rng.randbytes(ROW))
        s.close(CULPRIT, HANDLE)
    s.barrier()
    scatter(s, rng, rows=6)
    finish(s)
    s.hidden.append(region(WRONG).base)
    counts = ends_in_error(s, simulate, Reason.INCOMPLETE, but=[Unmodelled(VICTIM, WRONG, 0)])
    assert (counts["truncated"], counts["poisoned"], counts["bad_packets"]) == (1, 1, 0)


def test_memory_error(simulate):
    """Memory refuses one row: ERROR MEM_ERROR, counted; the region's other bank and all others are
    whole."""
    s, rng, _ = start()
    bad = region(WRONG).base[0]
    s.system.setting("memory_of", VICTIM, "mem_error", bad, bad + 128)
    playground(s)
    s.open(VICTIM, WRONG, 1)
    with unmodelled(s):
        send(s, CULPRIT, ROWID, rng.randbytes(ROW))
        s.close(CULPRIT, HANDLE)
    for n in range(3):
        s.row(CULPRIT, HANDLE, n, rng.randbytes(ROW), epoch=1)
    s.sync(CULPRIT)
    s.close(CULPRIT, HANDLE, 1)
    s.barrier()
    scatter(s, rng, rows=6)
    s.program(VICTIM).wait_events(EventKind.ALL, 3)
    finish(s)
    s.hidden.append(region(WRONG).base)
    registers = Registers(s)
    status = registers.bank(VICTIM, WRONG, 0)
    result = simulate(s, but=[Unmodelled(VICTIM, WRONG, 0)])
    assert [e for e in ends(result, VICTIM) if e[1] == WRONG] == [
        (EventKind.ERROR, WRONG, 0, Reason.MEM_ERROR, 0),
        (EventKind.ALL, WRONG, 1, 0, 0),
    ]
    assert status(result)["error"] == Reason.MEM_ERROR
    assert result.ranks[VICTIM]["mem_failed"] == 1
