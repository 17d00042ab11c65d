# SPDX-License-Identifier: Apache-2.0
"""Promises of the tile counters (``hub_rtl/scoreboard/tile_counters.py``)."""

from amaranth import Cat, Mux, Signal
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.tile_counters import TileCounters

__all__ = ["RangeTilesFireExactly", "TileFiresExactly"]


class _Tiles(Spec):
    """TileCounters with free operations, one arbitrary counter (``group``, ``bank``) and its owner
    watched."""

    def build(self, m):
        cfg, types = self._cfg, scoreboard_types(self._cfg)
        self.dut = dut = TileCounters(cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.free_inputs(dut)
        self.group, self.bank = self.constant(cfg.group_width, "group"), self.constant(1, "bank")
        self.suppose(
            "nothing comes while clearing",
            ~dut.i_valid & ~dut.geometry_write.en & ~dut.dep_write.en & ~dut.live_write.en,
            when=dut.clearing,
        )
        op = dut.i_op
        self.mine = mine = Signal()
        m.d.comb += mine.eq(dut.i_valid & (op.group == self.group) & (op.bank == self.bank))
        self.at_read = self.past(mine, "mine_read")
        self.at_out = self.past(
            self.at_read, "mine_out"
        )  # the verdict of a watched operation is out
        self.op = Signal(types.op)  # that operation
        m.d.sync += self.op.eq(dut.o_op)
        self.always(
            "an operation leaves after one cycle",
            dut.o_valid == self.past(dut.i_valid, "valid_before"),
        )
        self.always(
            "an operation leaves as it came",
            dut.o_op.as_value() == self.past(op, "op_before"),
            when=dut.o_valid,
        )
        word, self.known = known_word(self, self.inside.tiles, Cat(self.group, self.bank), "tile")
        self.tile = View(types.tile, word)

    def count(self, m, acks, full, forget, told, again, aims=0):
        """The exact count: ``acks`` counts an operation, ``full`` bytes make the tile, or as many
        as one that ``aims`` says; ``again``: it starts again then."""
        dut, op, width = self.dut, self.op, self._cfg.tile_width
        total = Signal(width)
        fired = Signal()
        spoiled = Signal()
        counts = Signal()
        now = Signal(width + 1)
        bytes_fit = op.bytes < (1 << width)
        m.d.comb += [
            counts.eq(acks & op.bytes.any()),
            now.eq(total + op.bytes[:width]),
        ]
        self.suppose(
            "an operation has at most the bytes that a tile may have", bytes_fit, when=counts
        )
        too_many = fired | (now > full)
        shoots = aims & ~fired & (total == op.bytes[:width])
        with m.If(forget):
            m.d.sync += [
                total.eq(0),
                fired.eq(0),
                spoiled.eq(0),
            ]
        with m.Elif(told | shoots):
            m.d.sync += [
                total.eq(0),
                fired.eq(1),
            ]
        with m.Elif(counts):
            m.d.sync += spoiled.eq(spoiled | too_many)
            with m.If(~spoiled & ~too_many):
                m.d.sync += [
                    total.eq(now),
                    fired.eq(0 if again else now == full),
                ]
                with m.If(now == full):
                    m.d.sync += total.eq(0)
        good = ~spoiled
        self.always(
            "ready exactly with the last byte",
            dut.hit == (~fired & (now == full)),
            when=counts & good,
        )
        self.always("too many bytes are noticed", dut.over == too_many, when=counts & good)
        if not again:  # aims are of regions
            self.always("an aim fires exactly on its bytes", dut.hit == shoots, when=aims & good)
        self.always("what it holds", dut.held == now[:width], when=counts & good & ~dut.over)
        self.always(
            "nothing else fires",
            (~dut.hit | aims) & ~dut.over,
            when=~(acks & op.bytes.any()) & self.at_out,
        )
        self.lemma(
            "the word is the count",
            (self.tile.bytes == total) & (self.tile.fired == fired),
            when=self.known & good,
        )
        kept = self.inside.tile
        self.lemma(
            "the count at the change",
            (kept.bytes == total) & (kept.fired == fired),
            when=self.at_out & good,
        )
        self.lemma("nothing yet", (total == 0) & ~fired & ~spoiled, when=~self.known)
        if again:
            self.lemma("a range starts again", ~fired)
        self.reach("fires", counts & good & dut.hit)


class TileFiresExactly(_Tiles):
    """A tile of a live bank is hit by exactly the acknowledgement that brings its bytes to
    row_bytes << log2_tile, or by the finisher's aim at exactly the bytes that it has, once until it
    is cleared or announced by the finisher; every byte beyond is reported with that operation."""

    def build(self, m):
        super().build(m)
        cfg, dut, types = self._cfg, self.dut, scoreboard_types(self._cfg)
        region = self.constant(cfg.region_width, "region")
        op = self.op
        self.suppose(
            "a group belongs to one region",
            ~dut.i_op.plain & (dut.i_op.region == region),
            when=self.mine,
        )
        geometry = dut.geometry_write.geometry
        writes = dut.geometry_write.en & (dut.geometry_write.region == region)
        tile_bytes = geometry.row_bytes << geometry.log2_tile
        self.suppose(
            "a tile has at least one byte and less than its counter holds",
            tile_bytes.any() & (tile_bytes < (1 << cfg.tile_width)),
            when=writes,
        )
        # What the geometry says, and since when the bank is live; a geometry is in force after two
        # cycles.
        full = Signal(cfg.tile_width)
        rows = Signal(cfg.slot_width, init=1)
        live = Signal()
        with m.If(writes):
            m.d.sync += [
                full.eq(tile_bytes),
                rows.eq(1 << geometry.log2_tile),
            ]
        live_now = Signal()
        wakes = (
            dut.live_write.en
            & (dut.live_write.region == region)
            & (dut.live_write.bank == self.bank)
        )
        m.d.comb += live_now.eq(Mux(wakes, dut.live_value, live))
        m.d.sync += live.eq(live_now)
        live_out = self.past(self.past(live_now, "live_read"), "live_out")
        before = self.past(writes, "writes_before")
        self.suppose("geometry rests while operations come", ~writes & ~before, when=self.mine)
        self.suppose(
            "geometry rests while the bank is live",
            ~live_now & ~self.at_read & ~self.at_out,
            when=writes,
        )
        named = self.past(
            self.past(
                dut.i_valid
                & (dut.i_op.region == region)
                & (dut.i_op.bank == self.bank)
                & ~dut.i_op.plain,
                "named_read",
            ),
            "named",
        )
        self.always("live as the books say", dut.live == live_out, when=named)
        self.always("rows of a full tile", dut.rows == rows, when=self.at_out)
        self.count(
            m,
            acks=self.at_out & (op.kind == OpKind.ACK) & live_out,
            full=full,
            forget=self.at_out & (op.kind == OpKind.CLEAR),
            told=self.at_out & (op.kind == OpKind.FINISH) & op.part,
            again=False,
            aims=self.at_out & (op.kind == OpKind.AIM) & op.part & live_out,
        )
        word, known = known_word(self, observe(self.inside.limits).thresholds, region, "threshold")
        threshold = View(types.threshold, word)
        self.lemma(
            "threshold",
            (threshold.bytes == full) & (((1 << threshold.log2_tile)[: cfg.slot_width]) == rows),
            when=known & ~before,
        )
        self.lemma("no geometry yet", (full == 0) & (rows == 1), when=~known)
        word, known = known_word(
            self, observe(self.inside.limits).lives, Cat(self.bank, region), "life"
        )
        self.lemma("life", word == live, when=known)
        self.lemma("not yet alive", ~live, when=~known)


class RangeTilesFireExactly(_Tiles):
    """A group of an armed dependency range is hit by exactly the acknowledgement that brings it to
    the threshold, and counts again from 0; what goes beyond is reported. A range that is not armed
    counts nothing."""

    def build(self, m):
        super().build(m)
        cfg, dut, types = self._cfg, self.dut, scoreboard_types(self._cfg)
        dep = self.constant(cfg.dep_width, "dep")
        op = self.op
        self.suppose(
            "a group belongs to one range",
            dut.i_op.plain
            & (dut.i_op.dep == dep)
            & ((dut.i_op.kind == OpKind.ACK) | (dut.i_op.kind == OpKind.CLEAR)),
            when=self.mine,
        )
        setting = dut.dep_write.range
        writes = dut.dep_write.en & (dut.dep_write.index == dep)
        full = Signal(cfg.tile_width)
        armed = Signal()
        armed_now = Signal()
        full_now = Signal(cfg.tile_width)
        m.d.comb += [
            full_now.eq(Mux(writes, setting.threshold, full)),
            armed_now.eq(Mux(writes, setting.armed, armed)),
        ]
        m.d.sync += [
            full.eq(full_now),
            armed.eq(armed_now),
        ]
        full_out, armed_out = (
            self.past(self.past(now, f"{name}_read"), f"{name}_out")
            for name, now in (("full", full_now), ("armed", armed_now))
        )
        named = self.past(
            self.past(dut.i_valid & (dut.i_op.dep == dep) & dut.i_op.plain, "named_read"), "named"
        )
        self.always("armed as written", dut.live == armed_out, when=named)
        self.always("no rows", dut.rows == 0, when=named)
        # A threshold that is written below what a group has makes its next bytes too many.
        self.count(
            m,
            acks=self.at_out & (op.kind == OpKind.ACK) & armed_out,
            full=full_out,
            forget=self.at_out & (op.kind == OpKind.CLEAR),
            told=0,
            again=True,
        )
        word, known = known_word(self, observe(self.inside.limits).deps, dep, "threshold")
        threshold = View(types.dep_threshold, word)
        self.lemma("threshold", (threshold.bytes == full) & (threshold.armed == armed), when=known)
        self.lemma("no threshold yet", (full == 0) & ~armed, when=~known)
