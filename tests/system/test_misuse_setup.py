# SPDX-License-Identifier: Apache-2.0
"""Whole systems set up wrongly in ways that no register can refuse: the harm stays where its cause
is, and is seen."""

from hub_rtl.contract.packets import SPILL_WORD, EventKind, Reason, pack
from sim.system.four_hubs import ROW, TRAVEL, all_to_all, region
from sim.system.misuse import (
    CULPRIT,
    HANDLE,
    VICTIM,
    WRONG,
    Unmodelled,
    aim,
    ends,
    error_of,
    others,
    playground,
    send,
    start,
    unmodelled,
)

BOTH = [Unmodelled(), Unmodelled(VICTIM, WRONG + 1, 0)]


def of_both(result):
    """Ends of the two regions that were set up wrongly."""
    return [
        (kind, number, status) for kind, number, _, status, _ in ends(result) if number >= WRONG
    ]


def two_regions(s, second):
    """Region 3 of the victim, and region 4 as ``second`` says, each with a handle of the
    culprit."""
    for n, changes in enumerate(({}, second)):
        s.region(VICTIM, WRONG + n, region(WRONG + n, **{"expected": 1, **changes}))
        aim(s, handle=HANDLE + n, region=WRONG + n)
    all_to_all(s)


def four_rows_to_each(s):
    """Four rows to one region, which is closed then, and four to the other."""
    with unmodelled(s):
        for handle in (HANDLE, HANDLE + 1):
            for rowid in range(4):
                send(s, rowid=rowid, handle=handle)
            s.close(CULPRIT, handle)


def test_two_regions_share_groups(simulate):
    """Two regions with the same groups: the first keeps its READY and ALL, the second ends in ERROR
    OVERLAP, not in READY."""
    s, registers = start()
    two_regions(s, {"group_base": region(WRONG).group_base})
    four_rows_to_each(s)
    others(s, ends=3)
    counts = registers.counters()
    s.hide(WRONG, WRONG + 1)
    result = simulate(s, but=BOTH)
    assert of_both(result) == [
        (EventKind.ALL, WRONG, 0),
        (EventKind.ERROR, WRONG + 1, Reason.OVERLAP),
    ]
    assert counts(result)["row_overlaps"] + counts(result)["overlaps"] > 0


def test_two_regions_share_memory(simulate):
    """Two regions with the same addresses: nothing can tell; each has its events, and no byte
    elsewhere is touched."""
    s, _ = start()
    two_regions(s, {"base": region(WRONG).base})
    four_rows_to_each(s)
    others(s, ends=4)
    s.hide(WRONG)
    result = simulate(s, but=BOTH)
    assert of_both(result) == [(EventKind.ALL, WRONG, 0), (EventKind.ALL, WRONG + 1, 0)]


def test_two_handles_of_one_region(simulate):
    """Two handles of one producer name one region: its second close is reported, and the region
    ends in ERROR OVERLAP."""
    s, registers = start()
    playground(s)
    aim(s, handle=HANDLE + 1)
    s.barrier()
    with unmodelled(s):
        for n in range(2):
            send(s, rowid=n, handle=HANDLE + n)
        for n in range(2):
            s.close(CULPRIT, HANDLE + n)
            s.wait(CULPRIT, TRAVEL)
    others(s)
    status, counts = registers.bank(), registers.counters()
    s.hide(WRONG)
    result = simulate(s, but=BOTH[:1])
    assert error_of(status(result)) == Reason.OVERLAP
    assert counts(result)["close_twice"] == 1


def test_overflow_region_opened_too_late(simulate):
    """The overflow region is not open when its primary runs over: rows are refused as REGION_FULL,
    and nothing hangs."""
    s, registers = start()
    s.region(VICTIM, WRONG + 1, region(WRONG + 1, expected=1), epochs=())
    s.region(VICTIM, WRONG, region(WRONG, capacity=1, expected=1, overflow=WRONG + 1))
    aim(s)
    all_to_all(s)
    with unmodelled(s):
        for rowid in range(3):
            send(s, rowid=rowid)
        s.close(CULPRIT, HANDLE)
        s.wait(CULPRIT, TRAVEL)
    s.barrier()
    s.drivers[VICTIM].open(WRONG + 1, 0)
    others(s, ends=4)
    log = registers.log(CULPRIT)
    s.hide(WRONG, WRONG + 1)
    result = simulate(s, but=BOTH)
    found = ends(result)
    assert {(EventKind.ALL, WRONG, 0, 0, 1), (EventKind.ALL, WRONG + 1, 0, 0, 0)} <= set(found)
    told = [(entry["reason"], entry["rowid"]) for entry in log(result)]
    assert told == [(Reason.REGION_FULL, 1), (Reason.REGION_FULL, 2)]


#: Region 3 with more rows than the RAT has places, and a spill table for them.
CROWD, TABLE = 128, (0x2800, 0x2C00)
CROWDED = {
    "base": (0x10000, 0x20000),
    "capacity": CROWD,
    "row_span": CROWD,
    "spill_base": TABLE,
}


def old_words():
    """What an epoch of the same number could have left: every row in slot 0, no byte there yet."""
    words = [
        pack(SPILL_WORD, rowtag=n, src=CULPRIT, missing=ROW, slot=0, overflow=0, epoch=0, valid=1)
        for n in range(CROWD)
    ]
    return b"".join(word.to_bytes(8, "little") for word in words)


def test_spill_table_that_is_not_zero(simulate):
    """Rows find words of old rows in the spill table: they take those slots, the region ends in
    ERROR OVERLAP, and nobody else notices."""
    s, registers = start(streams=48, burst=1, use_can_accept=0)
    s.window(VICTIM, CULPRIT, *TABLE)
    playground(s, **CROWDED)
    s.plain(CULPRIT, VICTIM, TABLE[0], old_words())
    s.sync(CULPRIT)
    s.settle(CULPRIT)
    rows = [s.rng.randbytes(ROW) for _ in range(CROWD)]
    with unmodelled(s):
        for low, high in ((0, 128), (128, ROW)):
            for rowid, data in enumerate(rows):
                s.row(CULPRIT, HANDLE, rowid, data[low:high], row_off=low // 16)
            s.sync(CULPRIT)
            s.settle(CULPRIT)
        s.close(CULPRIT, HANDLE)
    others(s)
    status, counts = registers.bank(), registers.counters()
    s.hidden.append((CROWDED["base"][0], CROWDED["base"][0] + CROWD * 384))
    result = simulate(s, but=BOTH[:1])
    seen = counts(result)
    assert error_of(status(result)) == Reason.OVERLAP
    assert seen["restores"] > 0 and seen["spill_errors"] == 0
    assert ends(result, WRONG) == [(EventKind.ERROR, WRONG, 0, Reason.OVERLAP, 0)]
