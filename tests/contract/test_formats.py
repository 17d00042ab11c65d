# SPDX-License-Identifier: Apache-2.0
"""Bit formats: layouts, packing, and the pure functions of placement."""

import itertools
import random

import pytest

from hub_rtl.contract import packets
from hub_rtl.contract.fields import EPOCH, ROWID
from hub_rtl.contract.packets import (
    BODIES,
    HEADER,
    NEWS_ENTRY,
    OPERAND_PLAIN,
    OPERAND_ROW,
    SPILL_WORD,
    LaneMode,
    PacketType,
    Reason,
    lane_of,
    pack,
    replica_of,
    row_hash,
    unpack,
)
from hub_rtl.contract.records import header_layout

LAYOUTS = {
    "operand_row": (OPERAND_ROW, 64),
    "operand_plain": (OPERAND_PLAIN, 64),
    "header": (HEADER, 128),
    "spill_word": (SPILL_WORD, 64),
    "news_entry": (NEWS_ENTRY, 64),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_fields_fit_and_do_not_overlap(name):
    layout, width = LAYOUTS[name]
    taken = 0
    for low, size in layout.values():
        bits = (1 << size) - 1 << low
        assert size > 0 and low + size <= width
        assert not taken & bits
        taken |= bits


def test_header_and_spill_word_have_no_holes():
    assert sum(size for _, size in HEADER.values()) == 128
    assert sum(size for _, size in SPILL_WORD.values()) == 64


@pytest.mark.parametrize("kind", BODIES)
def test_bodies_stay_in_the_body(kind):
    low, size = HEADER["body"]
    end = low
    for first, width in BODIES[kind].values():
        assert first >= end and first + width <= low + size
        end = first + width


def test_widths_agree():
    assert OPERAND_ROW["epoch"][1] == EPOCH and OPERAND_ROW["rowid"][1] == ROWID
    for kind in (PacketType.ROW, PacketType.REJECT):
        assert BODIES[kind]["rowid"][1] == ROWID and BODIES[kind]["epoch"][1] == EPOCH
    assert max(Reason) < 1 << BODIES[PacketType.REJECT]["reason"][1]
    assert max(PacketType) < 1 << HEADER["type"][1]


def test_pack_and_unpack_are_inverse():
    rng = random.Random(1)
    for layout, width in LAYOUTS.values():
        covered = sum((1 << size) - 1 << low for low, size in layout.values())
        for _ in range(20):
            word = rng.getrandbits(width) & covered
            assert pack(layout, **unpack(layout, word)) == word


def test_known_words():
    assert (
        pack(OPERAND_ROW, handle=1, epoch=2, rowid=3, row_off=4) == 4 << 39 | 3 << 15 | 2 << 11 | 1
    )
    assert (
        pack(OPERAND_PLAIN, addr=0x123456789ABC, rank=5, plain=1)
        == 1 << 63 | 5 << 48 | 0x123456789ABC
    )
    assert (
        pack(HEADER, type=PacketType.REJECT, dst=1, src=2, lane=3, seq=4)
        == 4 << 86 | 3 << 22 | 2 << 15 | 1 << 8 | 4
    )
    assert (
        pack(NEWS_ENTRY, region=3, tell=1, close=1, ragged=1, epoch=5, bytes16=7)
        == 7 << 34 | 5 << 17 | 1 << 16 | 3 << 11 | 3
    )


def test_pack_refuses():
    with pytest.raises(
        ValueError,
        match="^row: no such field; the fields are handle, epoch, rowid, row_off, plain$",
    ):
        pack(OPERAND_ROW, row=1)
    with pytest.raises(ValueError, match="^epoch = 16: must fit 4 bits$"):
        pack(OPERAND_ROW, epoch=16)
    with pytest.raises(ValueError, match="^epoch = -1: must fit 4 bits$"):
        pack(OPERAND_ROW, epoch=-1)


@pytest.mark.parametrize("kind", [None, *BODIES])
def test_hardware_layout_is_the_same(kind):
    """The struct that the RTL uses takes the fields from the same bits as the Python functions."""
    from amaranth.lib import data

    layout = header_layout(kind)
    word = random.Random(2).getrandbits(128)
    constant = data.Const(layout, word)
    for name, value in unpack(
        {**HEADER, **(BODIES[kind] if kind is not None else {})}, word
    ).items():
        assert constant[name] == value


def test_row_hash_is_even():
    for start in (0, 12345, (1 << ROWID) - 4096):
        start -= start % 4096
        assert len({row_hash(start + n) for n in range(4096)}) == 4096
    assert 0 <= row_hash((1 << ROWID) - 1) < 4096


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_replica_of(replicas):
    chosen = [replica_of(n, replicas) for n in range(400)]
    assert set(chosen) == set(range(replicas))
    assert max(chosen.count(n) for n in range(replicas)) <= 400 // replicas + 1


@pytest.mark.parametrize("lanes", [1, 3, 18])
def test_lanes_pin_whole_rows(lanes):
    """All sectors of a row have one lane, in every mode; consecutive rows use all lanes evenly."""
    for mode, handle in itertools.product((LaneMode.ROTATE, LaneMode.HASH), (0, 7)):
        used = []
        for rowid in range(lanes * 20):
            words = [
                pack(OPERAND_ROW, handle=handle, rowid=rowid, row_off=off, epoch=off % 16)
                for off in (0, 2, 511)
            ]
            assert len({lane_of(word, lanes, 128, mode) for word in words}) == 1
            used.append(lane_of(words[0], lanes, 128, mode))
        assert all(used.count(lane) == 20 for lane in range(lanes))


def test_fixed_lane():
    word = pack(OPERAND_ROW, handle=3, rowid=99)
    assert lane_of(word, 4, 128, LaneMode.FIXED, fixed=2) == 2
    assert lane_of(word, 2, 128, LaneMode.FIXED, fixed=3) == 1


@pytest.mark.parametrize("packet_bytes", [128, 256])
def test_plain_stores_of_a_block_share_a_lane(packet_bytes):
    base = 77 * packet_bytes
    lanes = {
        lane_of(pack(OPERAND_PLAIN, addr=base + off, rank=off % 8, plain=1), 5, packet_bytes)
        for off in range(0, packet_bytes, 32)
    }
    assert lanes == {77 % 5}


def test_exports_exist():
    for name in packets.__all__:
        assert hasattr(packets, name)
