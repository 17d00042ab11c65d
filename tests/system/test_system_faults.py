# SPDX-License-Identifier: Apache-2.0
"""Whole systems that go wrong: errors, stalls, dead ranks, damaged links; each harms only itself
and is noticed."""

import pytest

from hub_rtl.contract.packets import EventKind, Reason
from sim.system.four_hubs import RANKS, FourHubs, all_to_all, region
from sim.system.system import row_operand


def test_memory_error_is_reported_as_error(harness):
    """A region whose memory answers SLVERR ends in ERROR; the others are all-ready."""
    s = FourHubs()
    all_to_all(s)
    bad = region(1).base[0]
    s.system.setting("memory_of", 2, "mem_error", bad, bad + 0x2000)
    for rank in RANKS:
        for dest in RANKS:
            for index in range(2):
                s.row(rank, dest * 2 + index, rank * 16 + dest)
        s.close_all(rank)
        if rank == 2:
            s.program(rank).wait_events(EventKind.ERROR, 1)
        else:
            s.wait_all(rank, 2)
    result = s.run(harness)
    events = {rank: result.log("events", rank) for rank in RANKS}
    result.remove()
    assert not result.timed_out
    for rank in RANKS:
        ends = [
            (int(e["kind"]), int(e["region"]), int(e["status"]))
            for e in events[rank]
            if e["kind"] != EventKind.READY
        ]
        want = (EventKind.ERROR, 1, Reason.MEM_ERROR) if rank == 2 else (EventKind.ALL, 1, 0)
        assert sorted(ends) == sorted([(EventKind.ALL, 0, 0), want])


def test_stalled_memory_harms_only_its_rank(harness):
    """Rank 3's memory stands still for 6,000 cycles: the others finish long before, rank 3 when it
    goes on."""
    s = FourHubs()
    s.system.setting("memory_of", 3, "mem_frozen", 0, 9000)
    all_to_all(s)
    for rank in RANKS:
        for n in range(4):
            s.row(rank, (rank % 3 * 2 + n) % 6, rank * 16 + n)
        if rank != 3:
            s.row(rank, 6, rank * 16 + 9)
        s.close_all(rank)
        s.wait_all(rank, 2)
        s.mark(rank, 1)
    result = s.run(harness)
    ends = [result.marks(rank).get(1, 0) for rank in RANKS]
    differences = s.differences(result)
    result.remove()
    assert differences == []
    assert max(ends[:3]) < 9000 < ends[3]


def test_dead_peer_is_drained(harness):
    """Rank 3 is dead and declared so: stores to it are refused, closes complete, the other ranks'
    layer is complete."""
    s = FourHubs()
    s.system.setting("dead", 3, 10)
    for rank in range(3):
        s.drivers[rank].drain([3])
        s.model.drain(rank, [3])
    all_to_all(s, expected=3)
    for rank in range(3):
        for n in range(3):
            s.row(rank, n * 2, rank * 16 + n)
        assert s.store(rank, row_operand(6, 0, 5), bytes(32), 1, dest=3) == Reason.PEER_DEAD
        s.close_all(rank)
        s.wait_all(rank, 2)
    result = s.run(harness)
    differences = [d for d in s.differences(result) if not d.startswith("rank 3")]
    result.remove()
    assert differences == []


@pytest.mark.parametrize("kind", ["drop", "duplicate", "corrupt"])
def test_damaged_links_never_pass_unnoticed(harness, kind):
    """A lost, doubled or damaged packet shows in counters or events; never as a quiet all-ready
    with wrong rows."""
    s = FourHubs(max_cycles=12_000)
    s.system.fault(kind, dest=1, link=0, index=5, bit=13)
    all_to_all(s)
    for rank in RANKS:
        for n in range(6):
            s.row(rank, 2 + n % 2, rank * 16 + n)
        s.close_all(rank)
    for rank in RANKS:
        s.wait(rank, 4000)
        s.drivers[rank].snapshot()
        for pair in s.drivers[rank].counters().values():
            s.program(rank).read(pair[0])
    result = s.run(harness)
    reads = result.reads(1)
    counters = {name: reads[low] for name, (low, _) in s.drivers[1].counters().items()}
    differences = s.differences(result)
    assert result.summary["faulted"] == 1
    result.remove()
    noticed = (
        counters["seq_errors"]
        + counters["bad_packets"]
        + counters["truncated"]
        + counters["credit_violations"]
    )
    assert noticed > 0
    if kind == "duplicate":
        assert differences == []


@pytest.mark.parametrize("bit", [128 + 5, 3 * 128 + 77])
def test_planted_flipped_bit_is_caught(harness, bit):
    """A bit of a row that flips on the way (there is no CRC yet) is found by the comparison: proof
    that it compares."""
    s = FourHubs()
    all_to_all(s)
    for index in range(6):
        s.system.fault("corrupt", dest=1, link=0, index=index, bit=bit)
    for rank in RANKS:
        s.row(rank, 2, rank * 16)
        s.row(rank, 3, rank * 16 + 1)
        s.close_all(rank)
        s.wait(rank, 3000)
    result = s.run(harness)
    differences = s.differences(result)
    result.remove()
    assert differences
