# SPDX-License-Identifier: Apache-2.0
"""What the receiving end of a link does first: each flit's place in its frame, each header
judged."""

from amaranth import Const, Mux, Signal

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import LEN, SEQ
from hub_rtl.contract.packets import (
    CONTROL_TYPES,
    DATA_TYPES,
    NEWS_ENTRIES,
    PacketType,
)
from hub_rtl.contract.records import header_layout
from hub_rtl.parts.mutants import mutant

from .records import link_types_of

__all__ = ["judge"]


def judge(m, cfg, rx, rank, lane):
    """Two register stages: the flit as it came; then the flit and, for a header, its number and
    its fields judged. Returns both, the judgement, and what numbers are held against."""
    own = link_types_of(cfg)
    first = Signal(own.arrived)
    m.d.sync += [
        first.valid.eq(rx.tvalid & rx.tready),
        first.data.eq(rx.tdata),
        first.last.eq(rx.tlast),
    ]
    header = header_layout()(first.data)
    kinds = {
        name: Signal(name=f"is_{name}") for name in ("idle", "data", "control", "credit", "ack")
    }
    types = {
        "idle": (PacketType.IDLE,),
        "data": DATA_TYPES,
        "control": CONTROL_TYPES,
        "credit": (PacketType.CREDIT,),
        "ack": (PacketType.ACK,),
    }
    for name, values in types.items():
        m.d.comb += kinds[name].eq(
            sum((header.type == value for value in values), Const(0, 1)) != 0
        )
    # A span is good when it stays inside its packet-sized block of `packet_flits` 16-byte
    # units.
    unit_bits = ceil_log2(cfg.packet_flits)
    unit = Signal(unit_bits)
    span = Signal(LEN + 1)
    good_len = Signal()
    good = Signal()
    entries = header_layout(PacketType.NEWS)(first.data).count
    good_news = (
        entries.any()
        & mutant("link.news_of_17_entries_taken", entries <= NEWS_ENTRIES, 1)
        & (header.len == (entries + 1) >> 1)
        & ~header.masked
    )
    m.d.comb += [
        unit.eq(
            Mux(
                header.type == PacketType.ROW,
                header_layout(PacketType.ROW)(first.data).row_off[:unit_bits],
                header_layout(PacketType.PLAIN)(first.data).addr16[:unit_bits],
            )
        ),
        span.eq(unit + header.len),
        good_len.eq(
            Mux(
                header.type == PacketType.NEWS,
                good_news,
                Mux(
                    kinds["data"],
                    header.len.any() & (span <= cfg.packet_flits),
                    ~header.len.any() & ~header.masked,
                ),
            )
        ),
        good.eq(
            (kinds["data"] | kinds["control"] | kinds["credit"] | kinds["ack"])
            & good_len
            & ~header.fan
            & (header.src < cfg.ranks)
            & (header.src != mutant("link.own_rank_is_lane", rank, lane))
            & (header.dst == rank)
        ),
    ]
    # What delimits frames is ``tlast`` alone: which flit is a header, and its number, hang on no
    # judgement of it.
    within = Signal()
    begins = Signal()
    fresh = Signal()
    right = Signal()
    expected = Signal(SEQ)
    ahead = Signal(SEQ)
    m.d.comb += [
        begins.eq(first.valid & ~within & ~(kinds["idle"] & first.last)),
        ahead.eq(header.seq - expected),
        fresh.eq(begins & ~ahead[-1]),  # less than half the numbers ahead: not a repeat
        right.eq(fresh & good & (header.lane == lane)),
    ]
    with m.If(first.valid):
        m.d.sync += within.eq(~first.last)
    with m.If(begins):
        m.d.sync += expected.eq(header.seq + 1)
    arrived = Signal(own.arrived)
    checked = Signal(own.checked)
    m.d.sync += [
        arrived.eq(first),
        checked.begins.eq(begins),
        checked.off_sequence.eq(begins & (header.seq != expected)),
        checked.bad.eq(fresh & ~(good & (header.lane == lane))),
        checked.bad_lane.eq(good),
        *(checked[name].eq(right & kinds[name]) for name in ("data", "control", "credit")),
    ]
    return first, arrived, checked, within, expected
