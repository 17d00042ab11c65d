# SPDX-License-Identifier: Apache-2.0
"""Counts acknowledged bytes per tile and says when a tile is complete."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import OpKind, scoreboard_types
from .tile_limits import TileLimits

__all__ = ["TileCounters"]


class TileCountersObserve(NamedTuple):
    """What a proof may see of :class:`TileCounters`."""

    tiles: Ram  #: the counters, per (group, bank)
    limits: TileLimits  #: what they may hold
    tile: data.View  #: the counter that is changed


class Kinds(NamedTuple):
    """What an operation does to its tile."""

    acks: Signal  #: bytes of a live bank, or of an armed range
    clears: Signal
    told: Signal  #: a verdict announces the last, partial tile
    some: Signal  #: it has bytes
    aims: Signal  #: an aim announces the last, partial tile, if it holds these bytes


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
        m.submodules.limits = limits = TileLimits(cfg)
        op = self.i_op
        m.d.comb += [
            self.clearing.eq(tiles.clearing | limits.clearing),
            limits.i_valid.eq(self.i_valid),
            limits.i_op.eq(op),
            limits.geometry_write.eq(self.geometry_write),
            limits.dep_write.eq(self.dep_write),
            limits.live_write.eq(self.live_write),
            limits.live_value.eq(self.live_value),
            tiles.r_en.eq(self.i_valid),
            tiles.r_addr.eq(Cat(op.group, op.bank)),
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
        op = Signal(types.op)
        tile = Signal(types.tile)
        self.observe = TileCountersObserve(tiles, limits, tile)
        follows = Signal()
        same_tile = Signal()
        room = Signal(cfg.tile_width + 1)
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
            room.eq(limits.bytes - self.o_op.bytes[: cfg.tile_width]),
            self.rows.eq(limits.rows),
            self.live.eq(limits.live),
        ]
        self._change(m, op, tile, room, self._kinds(m))
        return m

    def _kinds(self, m):
        """What the operation that is to be changed does: {acks, clears, told, some, aims}."""
        names = ("acks", "clears", "told", "some", "aims")
        kinds, op, live = (
            Kinds(*(Signal(name=name) for name in names)),
            self.o_op,
            m.submodules.limits.live,
        )
        m.d.sync += [
            kinds.acks.eq(self.o_valid & (op.kind == OpKind.ACK) & live),
            kinds.clears.eq(self.o_valid & (op.kind == OpKind.CLEAR)),
            kinds.told.eq(self.o_valid & (op.kind == OpKind.FINISH) & op.part),
            kinds.some.eq(op.bytes.any()),
            kinds.aims.eq(self.o_valid & (op.kind == OpKind.AIM) & op.part & live),
        ]
        return kinds

    def _change(self, m, op, tile, room, kinds):
        """The counter after the operation, and what that means."""
        cfg, tiles = self._cfg, m.submodules.tiles
        acks, clears, told, some, aims = kinds
        total = Signal(cfg.tile_width)
        full = Signal()
        spilt = Signal()
        meets = Signal()
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
