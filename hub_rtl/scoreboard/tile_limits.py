# SPDX-License-Identifier: Apache-2.0
"""What a tile may hold, and whether its bank or range counts."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .records import bank_index, scoreboard_types

__all__ = ["TileLimits"]


class TileLimitsObserve(NamedTuple):
    """What a proof may see of :class:`TileLimits`."""

    thresholds: Ram  #: per region {bytes, log2_tile}
    deps: Ram  #: per dependency range {bytes, armed}
    lives: Ram  #: a bit per bank


class TileLimits(wiring.Component):
    """Tables of the tile counters: what software says of regions and ranges, which banks live.

    Contract: of the operation that ``i_op`` showed a cycle before, ``bytes``: the tile is complete
    with so many (row_bytes << log2_tile of the region, or the range's threshold); ``rows``: a full
    tile of the region has so many; ``live``: the bank is not FREE, or the range is armed. Latency
    one cycle; a geometry counts two cycles after its write, all else in the next one. Throughput
    one per cycle. Never stalls. Illegal input: none.

    Parameters: ``cfg``. Ports: ``i_valid``, ``i_op`` In; ``bytes``, ``rows``, ``live`` Out;
    ``geometry_write``, ``dep_write`` In; ``live_write`` In {en, region, bank}, ``live_value`` In;
    ``clearing`` Out.
    """

    observe: TileLimitsObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        types = types_of(cfg)
        super().__init__(
            {
                "i_valid": In(1),
                "i_op": In(self._types.op),
                "bytes": Out(cfg.tile_width),
                "rows": Out(cfg.slot_width),
                "live": Out(1),
                "geometry_write": In(types.geometry_write),
                "dep_write": In(types.dep_write),
                "live_write": In(self._types.bank_strobe),
                "live_value": In(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, types, op = self._cfg, self._types, self.i_op
        m.submodules.thresholds = thresholds = Ram(
            types.threshold, cfg.regions, clear=True, quick=cfg.regions <= SMALL
        )
        m.submodules.deps = deps = Ram(types.dep_threshold, cfg.dep_ranges, clear=True, quick=True)
        m.submodules.lives = lives = Ram(1, types.banks, clear=True, quick=types.banks <= SMALL)
        self.observe = TileLimitsObserve(thresholds, deps, lives)
        # Thresholds are multiplied out once, when software writes the geometry.
        geometry = self.geometry_write.geometry
        plain = Signal()
        m.d.sync += [
            thresholds.w_en.eq(self.geometry_write.en),
            thresholds.w_addr.eq(self.geometry_write.region),
            thresholds.w_data.bytes.eq(
                (geometry.row_bytes << geometry.log2_tile)[: cfg.tile_width]
            ),
            thresholds.w_data.log2_tile.eq(geometry.log2_tile),
            plain.eq(op.plain),
        ]
        m.d.comb += [
            self.clearing.eq(thresholds.clearing | deps.clearing | lives.clearing),
            thresholds.r_en.eq(self.i_valid),
            thresholds.r_addr.eq(op.region),
            deps.w_en.eq(self.dep_write.en),
            deps.w_addr.eq(self.dep_write.index),
            deps.w_data.armed.eq(self.dep_write.range.armed),
            deps.w_data.bytes.eq(self.dep_write.range.threshold),
            deps.r_en.eq(self.i_valid),
            deps.r_addr.eq(op.dep),
            lives.w_en.eq(self.live_write.en),
            lives.w_addr.eq(bank_index(self.live_write.region, self.live_write.bank)),
            lives.w_data.eq(self.live_value),
            lives.r_en.eq(self.i_valid),
            lives.r_addr.eq(bank_index(op.region, op.bank)),
            self.bytes.eq(Mux(plain, deps.r_data.bytes, thresholds.r_data.bytes)),
            self.rows.eq(Mux(plain, 0, (1 << thresholds.r_data.log2_tile)[: cfg.slot_width])),
            self.live.eq(Mux(plain, deps.r_data.armed, lives.r_data)),
        ]
        return m
