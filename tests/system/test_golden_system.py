# SPDX-License-Identifier: Apache-2.0
"""The whole-system golden model alone: slots, events, images, refusals by hand-worked cases."""

import numpy as np
import pytest

from flow.driver import DepRange, Handle, Region
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import BODIES, HEADER, PacketType, Reason, pack
from sim.golden.observed import check_arrivals, expert_rows
from sim.golden.system import ModelError, SystemModel
from sim.system.formats import ALLOC, PACKET
from sim.system.system import plain_operand, row_operand

CFG = preset("small")
READY, ALL, ERROR = 0, 1, 2


def geometry(**changes):
    return Region(
        **{
            "base": (0x1000, 0x8000),
            "stride": 128,
            "row_bytes": 64,
            "capacity": 8,
            "group_base": 4,
            "log2_tile": 1,
            "expected": 2,
            "row_span": 100,
            **changes,
        }
    )


def model(epochs=(0,), **changes):
    m = SystemModel(CFG)
    m.region(1, 0, geometry(**changes))
    for epoch in epochs:
        m.open(1, 0, epoch)
    for rank in (0, 2):
        m.handle(rank, 5, Handle(targets=((1, 0),), row_bytes=64))
    return m


def fill(m, rank, rowid, byte=None, epoch=0):
    return m.row(rank, row_operand(5, epoch, rowid), bytes([rowid if byte is None else byte]) * 64)


def place(m, rowid, slot, overflow=0, bank=0):
    m.allocate(1, 0, bank, rowid, slot, overflow)


def close(m):
    """Both producers close epoch 0."""
    for rank in (0, 2):
        m.close(rank, 5, 0)


def ready(group, rows, region=0):
    return READY, 0, region, 0, group, rows, 0, 0


def ended(rows, refused=0, region=0):
    return ALL, 0, region, 0, 0, rows, 0, refused


def totals(m, sent, refused, rows, region=0):
    """The registers show that all that was not refused was acknowledged."""
    want = {"sent": sent, "acked": sent - refused, "refused": refused, "rows": rows}
    return m.totals(1, region, 0) == want


def test_rows_get_dense_slots_in_the_observed_order():
    m = model()
    for rowid in (3, 1, 2):
        assert fill(m, 0, rowid) == Reason.OK
    close(m)
    for slot, rowid in enumerate((2, 3, 1)):
        place(m, rowid, slot)
    m.settle()
    image, written = m.image(1, 0x2000)
    assert image[0x1000] == 2 and image[0x1080] == 3 and image[0x1100] == 1 and image[0x1040] == 0
    assert written == 192
    assert m.events(1) == [
        ready(4, 2),
        ready(5, 1),
        ended(3),
    ]
    assert totals(m, 192, 0, 3)


@pytest.mark.parametrize("wrong, text", [((9, 0), "no such row"), ((3, 1), "dense")])
def test_impossible_placements_are_named(wrong, text):
    m = model()
    fill(m, 0, 3)
    with pytest.raises(ModelError, match=text):
        place(m, *wrong)


def test_a_row_is_placed_once():
    m = model()
    fill(m, 0, 3)
    place(m, 3, 0)
    with pytest.raises(ModelError, match="slot already"):
        place(m, 3, 1)


def test_a_row_without_slot_in_a_region_with_room_is_an_error():
    m = model()
    fill(m, 0, 3)
    with pytest.raises(ModelError, match="never placed"):
        m.settle()


def test_without_all_closes_only_full_tiles_are_ready():
    m = model()
    for slot, rowid in enumerate((1, 2, 3)):
        fill(m, 0, rowid)
        place(m, rowid, slot)
    m.close(0, 5, 0)
    m.settle()
    assert m.events(1) == [ready(4, 2)]


def test_region_without_rows_is_all_ready_with_none():
    m = model()
    close(m)
    m.settle()
    assert m.events(1) == [ended(0)]


def test_incomplete_row_ends_in_error():
    m = model()
    m.row(0, row_operand(5, 0, 7), bytes(32))
    place(m, 7, 0)
    close(m)
    m.settle()
    assert m.events(1) == [(ERROR, 0, 0, 0, 0, 0, int(Reason.INCOMPLETE), 0)]


def test_full_region_refuses_once_per_row():
    m = model(capacity=2)
    for rowid in range(4):
        fill(m, 0, rowid)
    close(m)
    for slot, rowid in enumerate((1, 3)):
        place(m, rowid, slot)
    with pytest.raises(ModelError, match="full"):
        place(m, 2, 2)
    m.settle()
    assert m.refusals[1] == [(Reason.REGION_FULL, 0, 0, 0, 0), (Reason.REGION_FULL, 0, 0, 0, 2)]
    assert m.events(1)[-1] == ended(2, refused=1)
    assert totals(m, 256, 128, 2)


def test_overflow_region_takes_what_finds_the_first_full():
    m = model(capacity=2, overflow=1)
    m.region(1, 1, geometry(base=(0x4000, 0x4000), group_base=20, expected=1))
    m.open(1, 1, 0)
    for rowid in range(3):
        fill(m, 0, rowid)
    close(m)
    place(m, 0, 0)
    place(m, 1, 1)
    with pytest.raises(ModelError, match="overflow"):
        place(m, 2, 0)
    place(m, 2, 0, overflow=1)
    m.settle()
    assert {ready(20, 1, region=1), ended(1, region=1), ended(2)} <= set(m.events(1))
    assert totals(m, 192, 0, 2)
    assert totals(m, 64, 0, 1, region=1)
    assert m.image(1, 0x5000)[0][0x4000] == 2


def test_answers_of_the_producer():
    m = model()
    good = row_operand(5, 0, 1)
    data = bytes(range(32))
    assert m.store(0, row_operand(6, 0, 1), data, 1) == Reason.UNKNOWN
    assert m.store(0, good, data, 1, owner=3) == Reason.FOREIGN
    assert m.store(0, row_operand(5, 1, 1), data, 1) == Reason.EPOCH_EARLY
    assert m.store(0, row_operand(5, 15, 1), data, 1) == Reason.EPOCH_STALE
    assert m.store(0, row_operand(5, 0, 1, 4), data, 1) == Reason.ROW_OVERRUN
    assert m.store(0, row_operand(5, 0, 1, 4), data, 0) == Reason.OK
    assert m.store(0, plain_operand(9, 0), data, 1) == Reason.UNKNOWN
    assert m.close(0, 5, 0) == Reason.OK
    assert m.store(0, good, data, 1) == Reason.AFTER_CLOSE
    assert m.close(0, 5, 0) == Reason.AFTER_CLOSE


def test_masked_store_touches_only_its_bytes():
    m = model()
    m.window(1, 0, 0x100, 0x200)
    m.store(0, plain_operand(1, 0x120), bytes(range(1, 33)), 0x80000013)
    image, written = m.image(1, 0x1000)
    assert np.flatnonzero(image).tolist() == [0x120, 0x121, 0x124, 0x13F] and written == 4


def test_window_refuses_and_dependency_ranges_count():
    m = model()
    m.window(1, 0, 0x100, 0x300)
    m.dep_range(
        1, 0, DepRange(base=0x100, limit=0x200, log2_stride=7, group_base=40, threshold=128)
    )
    m.plain(0, 1, 0x100, bytes(256))
    m.plain(0, 1, 0x200, bytes(64))
    m.plain(0, 1, 0x400, bytes(64))
    assert m.events(1) == [(READY, 1, 0, 0, 40, 0, 0, 0), (READY, 1, 0, 0, 41, 0, 0, 0)]
    assert m.refusals[1] == [(Reason.WINDOW, 0, None, 0, 0x400)]


def test_two_epochs_of_a_region_use_two_banks():
    m = model(epochs=(0, 1))
    fill(m, 0, 1)
    m.close(0, 5, 0)
    assert fill(m, 0, 1, byte=9, epoch=1) == Reason.OK
    place(m, 1, 0, bank=1)
    place(m, 1, 0)
    m.settle()
    image, _ = m.image(1, 0x9000)
    assert image[0x1000] == 1 and image[0x8000] == 9


def test_expert_rows():
    rows = np.array([[1, 2], [255, 0]], dtype=np.uint8)
    out = expert_rows(rows, 2, 5)
    assert out.tolist() == [
        [(r[j % 2] * 5 + 58 + j // 2 * 17 + 7) % 256 for j in range(5)] for r in rows.tolist()
    ]


def test_arrivals_are_checked():
    packets = np.zeros(1, dtype=PACKET)
    body = pack(BODIES[PacketType.ROW], region=3, epoch=6, rowid=77)
    header = pack(HEADER, type=PacketType.ROW) | body
    packets["low"], packets["high"], packets["first"] = header & (1 << 64) - 1, header >> 64, 50
    allocs = np.zeros(1, dtype=ALLOC)
    allocs["region"], allocs["rowid"], allocs["cycle"] = 3, 77, 60
    assert check_arrivals(allocs, packets) == 1
    allocs["cycle"] = 50
    with pytest.raises(ModelError, match="first packet"):
        check_arrivals(allocs, packets)
    allocs["rowid"] = 78
    with pytest.raises(ModelError, match="no packet"):
        check_arrivals(allocs, packets)
