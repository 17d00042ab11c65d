# SPDX-License-Identifier: Apache-2.0
"""Whole systems set up wrongly in ways that no register can refuse: the harm stays where its cause
is, and is seen."""

import numpy as np

from flow.driver import Handle
from hub_rtl.contract.packets import SPILL_WORD, EventKind, LaneMode, Reason, pack
from sim.quality.coverage import cover
from sim.system.four_hubs import CFG, RANKS, ROW, TRAVEL, all_to_all, finish, region, scatter
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

OTHERS = [rank for rank in RANKS if rank != CULPRIT]
APART, FIRST = WRONG + 2, 2 * CFG.ranks  # region and first handle of what OTHERS exchange
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
    assert set(of_both(result)) == {
        (EventKind.ALL, WRONG, 0),
        (EventKind.ERROR, WRONG + 1, Reason.OVERLAP),
    }
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


# -- a hub that is not the one its peers know ------------------------------------------------------


def pair(s, source, dest, index):
    """A region of ``dest`` for rows of ``source``, all in lane 0."""
    s.region(dest, index, region(index, expected=1))
    lane = {"lane_mode": LaneMode.FIXED, "lane": 0}
    s.handle(source, HANDLE, Handle(targets=((dest, index),), row_bytes=ROW, **lane))


def exchange(s, rows=2):
    """Everybody but the culprit stores to everybody but the culprit, closes and waits for ALL."""
    for rank in OTHERS:
        s.region(rank, APART, region(APART, expected=len(OTHERS)))
        for dest in OTHERS:
            s.handle(rank, FIRST + dest, Handle(targets=((dest, APART),), row_bytes=ROW))
    s.barrier()
    for rank in OTHERS:
        for dest in OTHERS:
            for n in range(rows):
                s.row(rank, FIRST + dest, 16 * rank + n)
        s.sync(rank)
        for dest in OTHERS:
            s.close(rank, FIRST + dest)
        s.program(rank).wait_end(APART, 0)


def timeout(s, registers):
    """The victim's look at what does not move for 1500 cycles: (region, whether ``rank``'s close is
    missing)."""
    registers.write(VICTIM, "control.TIMEOUT", 1500)
    registers.wait("hang.TIMEOUT", valid=1)
    named, missing = registers.timeout()
    return lambda result, rank: (named(result)["region"], missing(result) >> rank & 1)


def faults(counters):
    """What the link counted, but for zeros."""
    names = ("seq_errors", "bad_packets", "truncated", "bad_totals", "credit_violations")
    return {name: counters[name] for name in names if counters[name]}


def bytes_of(result, rank, index, rows):
    """How many bytes of ``rows`` (by RowID) lie in a region, each where it must; no other does."""
    low, high = region(index).base
    image, memory = np.zeros(high - low, dtype=np.uint8), np.array(result.memory(rank)[low:high])
    for each in result.log("allocs", rank):
        if each["region"] == index:
            at = 384 * int(each["slot"])
            image[at : at + ROW] = np.frombuffer(rows[each["rowid"]], dtype=np.uint8)
    there = memory != 0
    assert (memory[there] == image[there]).all()
    return int(there.sum())


def test_reset_of_one_hub(simulate):
    """A hub is reset after its traffic, set up again, and exchanges rows with the victim. What its
    peer counted goes on, its own starts again: a packet has an unexpected number, the peer's totals
    cannot be, its own look old, so that the peer's packets wait when it has used the grants that it
    had; at most as many as ``pool_places`` pass each way. TIMEOUT names the region and the hub;
    drained as if it were dead it is no more in the victim's way. Who exchanges nothing with it does
    not notice."""
    s, registers = start(max_cycles=60_000, use_can_accept=0)
    at, again = 12_000, WRONG + 1
    s.system.setting("reset_of", CULPRIT, at)
    both = ((CULPRIT, VICTIM), (VICTIM, CULPRIT))
    for source, dest in both:
        pair(s, source, dest, WRONG)
    all_to_all(s)
    for source, _ in both:
        for rowid in range(12):  # so that what was granted is more than all places
            s.row(source, HANDLE, rowid)
    scatter(s)
    finish(s)
    s.mark(CULPRIT, 1)
    s.wait(CULPRIT, at)
    s.drivers[CULPRIT].start(CULPRIT)
    for source, dest in both:
        pair(s, source, dest, again)
    s.barrier()
    rows = {source: [s.rng.randbytes(ROW) for _ in range(4)] for source, _ in both}
    with unmodelled(s):
        for source, _ in both:
            for rowid, data in enumerate(rows[source]):
                s.row(source, HANDLE, rowid, data)
            s.sync(source)
            s.wait(source, TRAVEL)
    page = registers.hang(VICTIM, 0)
    named = timeout(s, registers)
    s.drivers[VICTIM].drain([CULPRIT])
    s.model.drain(VICTIM, [CULPRIT])
    exchange(s)
    counts = [registers.counters(rank) for rank in RANKS]
    s.hide(again)
    but = [Unmodelled(rank, again, 0) for rank in (CULPRIT, VICTIM)]
    result = simulate(s, but=but, dead={CULPRIT})
    assert result.marks(CULPRIT)[1] < at
    assert named(result, CULPRIT) == (again, 1)
    waits = page(result)
    assert waits["NO_CREDIT0"] >> CULPRIT & 1 and waits["OLDEST"]["rank"] == CULPRIT
    found = [faults(count(result)) for count in counts]
    assert found[0] == found[3] == found[VICTIM] == {}
    assert found[CULPRIT].keys() == {"bad_totals", "seq_errors"}
    assert found[CULPRIT]["seq_errors"] == 1
    for source, dest in both:
        assert 0 < bytes_of(result, dest, again, rows[source]) <= CFG.pool_places * 128
    cover("misuse.reset_of_one")


def test_rank_of_another_hub(simulate):
    """A hub has the number of rank 3 and stores to the victim: its rows and its close count as rank
    3's, and it uses rank 3's grants: when rank 3 uses all that it was granted, while the victim's
    memory stands still, as many of its packets are dropped and counted. TIMEOUT names rank 3. The
    culprit drops what is sent to its place. Nothing of the others' memory is touched but the region
    it names, and what they store is exact as far as it comes."""
    s, registers = start(max_cycles=60_000, use_can_accept=0)
    twin, waiting = 3, WRONG + 1
    s.system.setting("memory_of", VICTIM, "mem_frozen", 8_000, 14_000)
    registers.write(CULPRIT, "id.RANK", twin)
    pair(s, CULPRIT, VICTIM, WRONG)
    pair(s, 0, CULPRIT, WRONG)
    pair(s, twin, VICTIM, waiting)
    s.barrier()
    rows = {rank: [s.rng.randbytes(ROW) for _ in range(12)] for rank in RANKS}
    with unmodelled(s):
        for rowid, data in enumerate(rows[CULPRIT][:2]):
            send(s, rowid=rowid, data=data)
        s.close(CULPRIT, HANDLE)
        send(s, 0, 0, rows[0][0])
    s.program(VICTIM).wait_end(WRONG, 0)
    exchange(s, rows=1)
    s.barrier()
    s.wait(twin, 8_000)
    with unmodelled(s):
        for rowid, data in enumerate(rows[twin]):
            s.row(twin, HANDLE, rowid, data)
        s.sync(twin)
        s.wait(twin, TRAVEL)
    named = timeout(s, registers)
    counts = [registers.counters(rank) for rank in RANKS]
    s.hide(WRONG, waiting)
    but = [Unmodelled(VICTIM, index, 0) for index in (WRONG, waiting)]
    result = simulate(s, but=but, dead={CULPRIT})
    assert named(result, twin) == (waiting, 1)
    found = [faults(count(result)) for count in counts]
    assert found[0] == found[twin] == {}
    used = 2 * len(range(0, ROW, 128)) + 1  # packets of two rows, and the close
    assert found[VICTIM] == {"credit_violations": used}
    assert found[CULPRIT].keys() == {"bad_packets"}
    assert (EventKind.ALL, WRONG, 0, 0, 0) in ends(result)
    assert bytes_of(result, VICTIM, WRONG, rows[CULPRIT]) > 0
    assert 0 < bytes_of(result, VICTIM, waiting, rows[twin]) < 12 * ROW
    assert not any(bytes_of(result, rank, WRONG, []) for rank in (0, CULPRIT, twin))
    cover("misuse.rank_of_another")
