# SPDX-License-Identifier: Apache-2.0
"""Every reason for a refusal or an ERROR, provoked in a whole system: named in registers, and
nobody else is disturbed.

Rank 1 is the culprit, region 3 of rank 2 its playground; all four ranks send rows to each other
beside it.
"""

import pytest

from hub_rtl.contract.packets import HEADER, EventKind, Reason, RegionState, pack
from sim.quality.coverage import cover
from sim.system.four_hubs import PLAIN, RANKS, ROW, TRAVEL, all_to_all, region
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    ROWID,
    VICTIM,
    WRONG,
    Registers,
    Unmodelled,
    aim,
    ends,
    error_of,
    next_epoch,
    others,
    playground,
    rows_and_close,
    send,
    start,
    unmodelled,
    unmodelled_row,
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


def two_rows(s):
    send(s, rowid=7)
    send(s)


def too_long_row(s):
    send(s, data=s.rng.randbytes(256))
    send(s, data=s.rng.randbytes(16), row_off=16)


def foreign_row(s):
    """Rank 3 has sent half of its row when the culprit uses the same RowID."""
    aim(s, rank=3)
    data = s.rng.randbytes(ROW)
    send(s, 3, data=data[:128])
    s.barrier()
    send(s)
    s.barrier()
    send(s, 3, data=data[128:], row_off=8)
    s.close(3, HANDLE)


# case -> reason, events that end the region (kind, status, refused), what the culprit sends, epochs
# that are open, changes of the region (none: no such region)
ALL_BUT_ONE = EventKind.ALL, 0, 1
EARLY = Reason.EPOCH_EARLY
WRONGS = {
    "unknown": (Reason.UNKNOWN, None, send, (), None),
    "foreign": (Reason.FOREIGN, ALL_BUT_ONE, foreign_row, (0,), {"expected": 2}),
    "region_full": (Reason.REGION_FULL, ALL_BUT_ONE, two_rows, (0,), {"capacity": 1}),
    "epoch_stale": (Reason.EPOCH_STALE, None, send, (4,), {}),
    "epoch_early": (EARLY, ALL_BUT_ONE, send, (), {}),
    # one epoch ahead: the bank is in use, and keeps what was refused for its next epoch
    "epoch_in_use": (EARLY, ALL_BUT_ONE, send, (14,), {}),
    "row_overrun": (Reason.ROW_OVERRUN, ALL_BUT_ONE, too_long_row, (0,), {"row_bytes": 256}),
    "row_range": (Reason.ROW_RANGE, ALL_BUT_ONE, send, (0,), {"row_first": ROWID + 1}),
}


@pytest.mark.parametrize("case", WRONGS)
def test_consumer_refuses(simulate, case):
    """A row that the consumer must not place is sunk, counted, logged with its source and RowID,
    and told to the producer."""
    reason, end, provoke, epochs, changes = WRONGS[case]
    s, registers = start()
    aim(s)
    if changes is not None:
        s.region(VICTIM, WRONG, region(WRONG, **{"expected": 1, **changes}), epochs)
    all_to_all(s)
    provoke(s)
    s.close(CULPRIT, HANDLE)
    s.wait(CULPRIT, TRAVEL)
    s.barrier()
    if case == "epoch_early":
        s.open(VICTIM, WRONG, 0)
    if case == "epoch_in_use":
        s.drivers[VICTIM].abort(WRONG, 14)
        registers.wait_free(VICTIM, WRONG, 14)
        s.open(VICTIM, WRONG, 0)
    placed = end == ALL_BUT_ONE
    others(s, rows=6, ends=3 if placed else 0)
    if placed:
        s.query(VICTIM, WRONG)
    logs = [registers.log(rank) for rank in RANKS]
    counts = [registers.counters(rank) for rank in RANKS]
    irq = registers.read("control.IRQ_STATUS")
    result = simulate(s)
    assert ends(result, WRONG) == ([(end[0], WRONG, 0, *end[1:])] if end else [])
    want = [[], [entry(reason, VICTIM, remote=1)], [entry(reason, CULPRIT)], []]
    assert [log(result) for log in logs] == want
    at_victim, at_culprit = counts[VICTIM](result), counts[CULPRIT](result)
    refused = {name for name, value in at_victim.items() if name.startswith("refused_") and value}
    assert refused - {"refused_stale"} == {f"refused_{reason.name.lower()}"}
    assert at_victim["reports"] == at_victim["rejects_sent"] == 1 == at_culprit["rejects_received"]
    assert irq(result)["refusal"] == 1
    cover(f"misuse.consumer_refuses.{case}")


def test_own_rank_refuses(simulate):
    """The same through the loopback lane: the rank is told by its own log, from both sides."""
    s, registers = start()
    aim(s, rank=VICTIM)
    s.region(VICTIM, WRONG, region(WRONG, row_span=ROWID, expected=1))
    all_to_all(s)
    send(s, VICTIM)
    others(s, ends=3)
    log = registers.log()
    result = simulate(s)
    wanted = [entry(Reason.ROW_RANGE, VICTIM), entry(Reason.ROW_RANGE, VICTIM, remote=1)]
    assert sorted(log(result), key=lambda e: e["remote"]) == wanted


def test_store_outside_the_window(simulate):
    """A plain store outside its source's window writes nothing; source and reason are logged on
    both sides."""
    s, registers = start()
    s.window(VICTIM, CULPRIT, PLAIN, PLAIN + 0x1000)
    s.window(VICTIM, 0, PLAIN + 0x1000, PLAIN + 0x2000)
    all_to_all(s)
    s.plain(CULPRIT, VICTIM, PLAIN + 0x1080, s.rng.randbytes(128))  # the window of rank 0
    s.plain(CULPRIT, VICTIM, PLAIN, s.rng.randbytes(256))
    s.plain(0, VICTIM, PLAIN + 0x1000, s.rng.randbytes(256))
    others(s)
    logs = [registers.log(rank) for rank in RANKS]
    counts = registers.counters()
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
    s, registers = start(streams=1)
    aim(s, owner=3)
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
    others(s)
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
    s, registers = start()
    registers.write(VICTIM, "control.TIMEOUT", 1500)
    s.system.fault("corrupt", dest=VICTIM, link=0, index=0, bit=bit)
    playground(s)
    unmodelled_row(s)
    others(s, rows=6)
    registers.wait("hang.TIMEOUT", valid=1)
    stuck = registers.bank()
    timeout, missing = registers.timeout()
    irq, bad = registers.read("control.IRQ_STATUS"), registers.read("logs.BAD")
    header = registers.word("logs.BAD_HEADER0")
    log, counts = registers.log(), registers.counters()
    s.drivers[VICTIM].abort(WRONG, 0)
    free = registers.wait_free()
    next_epoch(s)
    s.wait_all(VICTIM, 3)
    s.query(VICTIM, WRONG, 2)
    result = simulate(s, but=[Unmodelled(until=1)])

    sent = pack(HEADER, type=1, cls=0, dst=VICTIM, src=CULPRIT, len=8) ^ 1 << bit
    assert header(result) == sent & (1 << 32) - 1
    assert bad(result) == {"valid": 1, "reason": int(reason), "lane": 0}
    src = CULPRIT ^ 64 if field == "src" else CULPRIT
    assert log(result) == [entry(reason, src, side=1, remote=1)]
    assert counts(result)["bad_packets"] == 1
    assert irq(result)["bad_packet"] == 1 == irq(result)["timeout"]
    assert timeout(result) == {"valid": 1, "bank": 0, "epoch": 0, "region": WRONG}
    assert missing(result) == 0b1101
    bank = stuck(result)
    assert bank["state"] == RegionState.OPEN and bank["sent"] - bank["acked"] == 128
    assert free(result)
    cover(f"misuse.damaged_header.{bit}")


def ends_in_error(s, simulate, reason, **more):
    """Runs; region 3 of the victim must have ended in ERROR with a reason, in its event and its
    register."""
    registers = Registers(s)
    registers.wait("control.STATUS", query_busy=0)
    status, counts = registers.bank(), registers.counters()
    result = simulate(s, **more)
    assert ends(result, WRONG) == [(EventKind.ERROR, WRONG, 0, reason, 0)]
    assert error_of(status(result)) == reason
    return counts(result)


def test_truncated_packet(simulate):
    """A packet that lost its last flit is padded: its region ends in ERROR INCOMPLETE, never
    all-ready."""
    s, _ = start()
    s.system.fault("truncate", dest=VICTIM, link=0, index=1)
    playground(s)
    unmodelled_row(s)
    others(s, rows=6)
    s.hide(WRONG)
    counts = ends_in_error(s, simulate, Reason.INCOMPLETE, but=[Unmodelled()])
    assert (counts["truncated"], counts["poisoned"], counts["bad_packets"]) == (1, 1, 0)


def test_memory_error(simulate):
    """Memory refuses one row: ERROR MEM_ERROR, counted; the region's other bank and all others are
    whole."""
    s, _ = start()
    bad = region(WRONG).base[0]
    s.system.setting("memory_of", VICTIM, "mem_error", bad, bad + 128)
    playground(s)
    s.open(VICTIM, WRONG, 1)
    with unmodelled(s):
        send(s)
        s.close(CULPRIT, HANDLE)
    rows_and_close(s, 3, epoch=1)
    s.barrier()
    others(s, rows=6, ends=3)
    s.hide(WRONG)
    registers = Registers(s)
    status = registers.bank()
    result = simulate(s, but=[Unmodelled()])
    assert ends(result, WRONG) == [
        (EventKind.ERROR, WRONG, 0, Reason.MEM_ERROR, 0),
        (EventKind.ALL, WRONG, 1, 0, 0),
    ]
    assert status(result)["error"] == Reason.MEM_ERROR
    assert result.ranks[VICTIM]["mem_failed"] == 1
