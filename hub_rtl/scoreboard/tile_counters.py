# SPDX-License-Identifier: Apache-2.0
"""Counts acknowledged bytes per tile and says when a tile is complete."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .records import OpKind, bank_index, scoreboard_types

__all__ = ["TileCounters"]


class TileCountersObserve(NamedTuple):
    """What a proof may see of :class:`TileCounters`."""

    tiles: Ram  #: the counters, per (group, bank)
    thresholds: Ram  #: per region {bytes, log2_tile}
    deps: Ram  #: per dependency range {bytes, armed}
    lives: Ram  #: a bit per bank
    tile: data.View  #: the counter that is changed


class TileCounters(wiring.Component):
    """First half of the scoreboard's pipeline: one read-modify-write of a tile counter per cycle.

    Contract: ``hit`` when this operation's bytes make the tile complete (row_bytes << log2_tile, or
    the range's threshold), once per tile and epoch, or when an AIM that may announce finds exactly
    its bytes; ``over`` when a tile gets more than it holds; ``held``: the bytes that it holds then.
    The counters of a bank that is FREE, and of a range that is not armed, do not move. A dependency
    range starts again from 0 after each hit. Latency: an operation valid in cycle 0 appears at
    ``o_op`` in cycle 1, its verdict in cycle 2: the counter is read, then registered, then changed.
    Throughput one per cycle, also for the same tile back to back: the table's collision rule and
    the register behind it forward the sum. Never stalls. Illegal input: none; a row-sparse tile
    that was announced keeps ``fired`` until a CLEAR.

    Parameters: ``cfg``. Ports: ``i_op`` In {valid, op}; ``o_op`` Out {valid, op}; ``hit``,
    ``over``, ``held``, ``live``, ``rows`` Out one cycle later (rows of a full tile);
    ``geometry_write``, ``dep_write`` In; ``live_write`` In {en, region, bank, live}; ``clearing``
    Out. Source: docs/interfaces.md section 8; rule R1 of docs/architecture.md.
    """

    observe: TileCountersObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        types = types_of(cfg)
        super().__init__(
            {
                "i_valid": In(1),
                "i_op": In(self._types.op),
                "o_valid": Out(1),
                "o_op": Out(self._types.op),
                "hit": Out(1),
                "over": Out(1),
                "held": Out(cfg.tile_width),
                "live": Out(1),
                "rows": Out(cfg.slot_width),
                "geometry_write": In(types.geometry_write),
                "dep_write": In(types.dep_write),
                "live_write": In(self._types.bank_strobe),
                "live_value": In(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        m.submodules.tiles = tiles = Ram(types.tile, 2 * cfg.groups, clear=True)
        m.submodules.thresholds = thresholds = Ram(
            types.threshold, cfg.regions, clear=True, quick=cfg.regions <= SMALL
        )
        m.submodules.deps = deps = Ram(types.dep_threshold, cfg.dep_ranges, clear=True, quick=True)
        m.submodules.lives = lives = Ram(1, types.banks, clear=True, quick=types.banks <= SMALL)
        m.d.comb += self.clearing.eq(
            tiles.clearing | thresholds.clearing | deps.clearing | lives.clearing
        )

        # Thresholds are multiplied out once, when software writes the geometry.
        geometry = self.geometry_write.geometry
        write_en, write_at = Signal(), Signal.like(self.geometry_write.region)
        write_word = Signal(types.threshold)
        m.d.sync += [
            write_en.eq(self.geometry_write.en),
            write_at.eq(self.geometry_write.region),
            write_word.bytes.eq((geometry.row_bytes << geometry.log2_tile)[: cfg.tile_width]),
            write_word.log2_tile.eq(geometry.log2_tile),
        ]
        m.d.comb += [
            thresholds.w_en.eq(write_en),
            thresholds.w_addr.eq(write_at),
            thresholds.w_data.eq(write_word),
            deps.w_en.eq(self.dep_write.en),
            deps.w_addr.eq(self.dep_write.index),
            deps.w_data.armed.eq(self.dep_write.range.armed),
            deps.w_data.bytes.eq(self.dep_write.range.threshold),
            lives.w_en.eq(self.live_write.en),
            lives.w_data.eq(self.live_value),
            lives.w_addr.eq(bank_index(self.live_write.region, self.live_write.bank)),
        ]

        op = self.i_op
        m.d.comb += [
            tiles.r_en.eq(self.i_valid),
            tiles.r_addr.eq(Cat(op.group, op.bank)),
            thresholds.r_en.eq(self.i_valid),
            thresholds.r_addr.eq(op.region),
            deps.r_en.eq(self.i_valid),
            deps.r_addr.eq(op.dep),
            lives.r_en.eq(self.i_valid),
            lives.r_addr.eq(bank_index(op.region, op.bank)),
        ]
        m.d.sync += [
            self.o_valid.eq(
                mutant(
                    "scoreboard.range_order_never_arrives", self.i_valid, self.i_valid & ~op.plain
                )
            ),
            self.o_op.eq(op),
        ]

        # What was read, registered; the operation in front may be changing that very tile.
        op, tile = Signal(types.op), Signal(types.tile)
        self.observe = TileCountersObserve(tiles, thresholds, deps, lives, tile)
        follows, same_tile = Signal(), Signal()
        room, acks, clears, told, some, aims = (
            Signal(cfg.tile_width + 1),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
        )
        limit = Mux(self.o_op.plain, deps.r_data.bytes, thresholds.r_data.bytes)
        live = Mux(self.o_op.plain, deps.r_data.armed, lives.r_data)
        m.d.comb += follows.eq(tiles.w_en & same_tile)
        m.d.sync += [
            same_tile.eq((self.i_op.group == self.o_op.group) & (self.i_op.bank == self.o_op.bank)),
            op.eq(self.o_op),
            tile.eq(
                mutant(
                    "scoreboard.tile_in_front_missed",
                    Mux(follows, tiles.w_data, tiles.r_data),
                    tiles.r_data,
                )
            ),
            # What the tile may hold before this operation; its top bit is set when that is less
            # than nothing.
            room.eq(limit - self.o_op.bytes[: cfg.tile_width]),
            self.rows.eq(
                Mux(self.o_op.plain, 0, (1 << thresholds.r_data.log2_tile)[: cfg.slot_width])
            ),
            self.live.eq(live),
            acks.eq(self.o_valid & (self.o_op.kind == OpKind.ACK) & live),
            clears.eq(self.o_valid & (self.o_op.kind == OpKind.CLEAR)),
            told.eq(self.o_valid & (self.o_op.kind == OpKind.FINISH) & self.o_op.part),
            some.eq(self.o_op.bytes.any()),
            aims.eq(self.o_valid & (self.o_op.kind == OpKind.AIM) & self.o_op.part & live),
        ]

        total = Signal(cfg.tile_width)
        full, spilt, meets = Signal(), Signal(), Signal()
        m.d.comb += [
            total.eq(tile.bytes + op.bytes[: cfg.tile_width]),
            full.eq(tile.bytes == room),
            spilt.eq(tile.fired | room[-1] | (tile.bytes > room[: cfg.tile_width])),
            meets.eq(aims & ~tile.fired & (tile.bytes == op.bytes[: cfg.tile_width])),
            self.hit.eq(
                (
                    mutant("scoreboard.tile_fires_twice", acks & some & ~tile.fired, acks & some)
                    & full
                )
                | meets
            ),
            self.held.eq(total),
            self.over.eq(acks & some & spilt),
            tiles.w_addr.eq(Cat(op.group, op.bank)),
            tiles.w_en.eq(acks | clears | told | meets),
            tiles.w_data.fired.eq(
                told
                | mutant("scoreboard.rest_not_marked", meets, 0)
                | (acks & ~op.plain & (tile.fired | self.hit))
            ),
        ]
        # A tile with too many bytes stands still: its region is about to become ERROR.
        with m.If(
            acks & mutant("scoreboard.range_count_not_cleared", ~self.hit, ~self.hit | op.plain)
        ):
            m.d.comb += tiles.w_data.bytes.eq(Mux(self.over, tile.bytes, total))
        return m
