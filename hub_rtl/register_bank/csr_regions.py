# SPDX-License-Identifier: Apache-2.0
"""Region side of the registers: geometry check and commit, commands, state queries, timeouts."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import EPOCH, ROWID
from hub_rtl.contract.packets import RegionOp, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.contract.registers import GEOMETRY_RULES
from hub_rtl.parts.mutants import mutant

__all__ = ["GeometryCheck", "RegionAccess"]

QUERY_CYCLES = (
    4  # from `query` to a stable `status`: two in the scoreboard, two for registers on the way
)
SETTLE_CYCLES = 8  # from a command being done to its state being visible to a query


class GeometryCheck(wiring.Component):
    """Checks a geometry against the rules in :data:`~hub_rtl.contract.registers.GEOMETRY_RULES`,
    but for ``busy``.

    Latency: two cycles from ``geometry`` to ``errors``.

    Parameters: ``cfg``. Ports: ``region`` In; ``geometry`` In; ``errors`` Out, one bit per rule,
    ``busy`` always 0.
    """

    def __init__(self, cfg):
        t = types_of(cfg)
        super().__init__(
            {
                "region": In(cfg.region_width),
                "geometry": In(t.geometry),
                "errors": Out(len(GEOMETRY_RULES)),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, g = self._cfg, self.geometry
        low = ceil_log2(cfg.packet_bytes)
        tiles = Signal(cfg.slot_width + 1)
        tile_bytes = Signal(cfg.row_bytes_width + 15)
        m.d.sync += tiles.eq((g.capacity + (Const(1, 16) << g.log2_tile) - 1) >> g.log2_tile)
        m.d.sync += tile_bytes.eq(g.row_bytes << g.log2_tile)
        bad = {
            "busy": Const(0, 1),
            "row_bytes": (g.row_bytes[:4] != 0)
            | (g.row_bytes == 0)
            | _above(g.row_bytes, cfg.max_row_bytes),
            "stride": (g.stride[:low] != 0)
            | (
                mutant(
                    "register_bank.dense_stride_refused",
                    g.stride < g.row_bytes,
                    g.stride <= g.row_bytes,
                )
            ),
            "base": (g.base[0][:low] != 0)
            | (g.base[1][:low] != 0)
            | (g.spill_base[0][:3] != 0)
            | (g.spill_base[1][:3] != 0)
            | (g.flag_base[:3] != 0),
            "capacity": (g.capacity == 0) | _above(g.capacity, cfg.capacity),
            "groups": (g.group_base + tiles > cfg.groups)
            | (g.log2_tile > 10)
            | (tile_bytes >= 1 << cfg.tile_width),
            "rows": (g.row_span == 0) | (g.row_first + g.row_span > 1 << ROWID),
            "overflow": g.overflow_en
            & ((g.overflow == self.region) | _above(g.overflow, cfg.regions - 1)),
            "valid": mutant("register_bank.commit_without_valid", ~g.valid, Const(0, 1)),
        }
        m.d.sync += self.errors.eq(Cat(bad[name] for name in GEOMETRY_RULES))
        return m


def _above(value, limit):
    """``value > limit``, and nothing at all where every value of that width is allowed."""
    return value > limit if limit < (1 << len(value)) - 1 else Const(0, 1)


class RegionAccessObserve(NamedTuple):
    """What a proof may see of a :class:`RegionAccess`."""

    commit: Signal  #: a COMMIT waits or is being checked
    checks: Value  #: it is being checked


class RegionAccess(wiring.Component):
    """Does what software orders for a region, one thing at a time.

    Contract: a geometry is written, atomically, only if both banks of the region are FREE, no
    command for it is on its way and every rule holds; otherwise ``errors`` pulses and nothing
    changes. A command waits here until the scoreboard takes it. A query and a timeout read the
    scoreboard's state and keep it. Latency: commit about 12 cycles (``busy``), query 6 cycles.
    Stalls: ``command_busy`` from a command until the scoreboard has done it, which it shows by
    taking the next one, and SETTLE_CYCLES have passed; never waits for anything else. Illegal
    input: orders while their busy is 1 are the caller's to refuse. A second timeout replaces one
    whose lookup has not begun; one that comes later is looked up next.

    Parameters: ``cfg``. Ports: ``region`` In; ``geometry`` In; ``commit`` In strobe; ``busy`` Out;
    ``errors`` Out strobe per rule; ``geometry_write`` Out; ``command_en`` In strobe, ``command``
    In; ``command_busy`` Out; ``o_command`` Out stream(region_order); ``query_en`` In strobe,
    ``query_bank`` In; ``query_busy`` Out; ``result``, ``missing``, ``mute`` Out, kept; ``timeout``
    In {en, region, bank}; ``timeout_set`` Out strobe; ``timeout_result`` Out {bank, epoch, region},
    ``timeout_missing``, ``timeout_mute`` Out, kept; to the scoreboard: ``query`` Out, ``status``,
    ``missing_from``, ``silent`` In. Source: docs/interfaces.md section 9, docs/registers.md.
    """

    observe: RegionAccessObserve  # once elaborated

    def __init__(self, cfg):
        t = types_of(cfg)
        super().__init__(
            {
                "region": In(cfg.region_width),
                "geometry": In(t.geometry),
                "commit": In(1),
                "busy": Out(1),
                "errors": Out(len(GEOMETRY_RULES)),
                "geometry_write": Out(t.geometry_write),
                "command_en": In(1),
                "command": In(t.region_order),
                "command_busy": Out(1),
                "o_command": Out(stream.Signature(t.region_order)),
                "query_en": In(1),
                "query_bank": In(1),
                "query_busy": Out(1),
                "result": Out(t.status),
                "missing": Out(cfg.ranks),
                "mute": Out(cfg.ranks),
                "timeout": In(t.bank_strobe),
                "timeout_set": Out(1),
                "timeout_result": Out(
                    data.StructLayout({"bank": 1, "epoch": EPOCH, "region": cfg.region_width})
                ),
                "timeout_missing": Out(cfg.ranks),
                "timeout_mute": Out(cfg.ranks),
                "query": Out(t.bank_name),
                "status": In(t.status),
                "missing_from": In(cfg.ranks),
                "silent": In(cfg.ranks),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = GeometryCheck(self._cfg)
        m.d.comb += [
            check.region.eq(self.region),
            check.geometry.eq(self.geometry),
        ]
        self._keep_command(m)
        # Waiting orders: query, commit, timeout.
        asked = Signal()
        commit = Signal()
        seen = Signal()
        asked_at = Signal.like(self.query)
        seen_at = Signal.like(self.query)
        self._keep_orders(m, asked, asked_at, commit)
        checks = self._look(m, check, asked, asked_at, commit, seen, seen_at)
        self.observe = RegionAccessObserve(commit, checks)
        with m.If(self.timeout.en):
            m.d.sync += [
                seen.eq(1),
                seen_at.region.eq(self.timeout.region),
                seen_at.bank.eq(self.timeout.bank),
            ]
        return m

    def _keep_command(self, m):
        """A command waits here until it is taken; ``command_busy`` a while longer."""
        # Kept here until taken. The scoreboard takes no other before it has done this one; only
        # then, and a while later, do a query and a commit see what it did.
        settle = Signal(range(SETTLE_CYCLES + 1))
        working = Signal()
        command = self.o_command
        with m.If(self.command_en):
            m.d.sync += [
                command.valid.eq(1),
                command.payload.eq(self.command),
                settle.eq(SETTLE_CYCLES),
            ]
        with m.Elif(command.valid & command.ready):
            m.d.sync += [
                command.valid.eq(0),
                working.eq(
                    mutant(
                        "register_bank.release_done_when_taken",
                        1,
                        (command.payload.op == RegionOp.OPEN) | command.payload.again,
                    )
                ),
            ]
        with m.Elif(working):
            m.d.sync += working.eq(~command.ready)
        with m.Elif(~command.valid & (settle != 0)):
            m.d.sync += settle.eq(settle - 1)
        m.d.comb += self.command_busy.eq(settle != 0)

    def _keep_orders(self, m, asked, asked_at, commit):
        """A query and a commit wait until no other is looked up."""
        with m.If(self.query_en):
            m.d.sync += [
                asked.eq(1),
                asked_at.region.eq(self.region),
                asked_at.bank.eq(self.query_bank),
            ]
        with m.If(self.commit):
            m.d.sync += commit.eq(1)
        # One cycle longer than the commit: by then `errors` is in its register, and the next access
        # reads it; the staged fields are what is written, so they must stay. A register, as every
        # access looks at it.
        m.d.sync += self.busy.eq(
            mutant("register_bank.busy_for_one_cycle", self.commit | commit, self.commit)
        )
        m.d.comb += [
            self.query_busy.eq(asked),
            self.geometry_write.region.eq(self.region),
            self.geometry_write.geometry.eq(self.geometry),
        ]

    def _look(self, m, check, asked, asked_at, commit, seen, seen_at):
        """One order at a time asks the scoreboard: a commit for both banks, the others for one.
        Returns whether that is a commit."""
        command = self.o_command
        wait = Signal(range(QUERY_CYCLES + 1))
        blocked = Signal()  # bank 0 was not FREE, or about to leave it
        ordered = (
            self.command_busy
            & (self.region >= command.payload.region)
            & mutant(
                "register_bank.range_is_its_first",
                self.region <= command.payload.last,
                self.region == command.payload.region,
            )
        )
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        m.d.sync += [
            self.errors.eq(0),
            self.geometry_write.en.eq(0),
            self.timeout_set.eq(0),
        ]
        with m.FSM() as fsm:
            with m.State("idle"):
                m.d.sync += wait.eq(QUERY_CYCLES)
                with m.If(commit):
                    m.d.sync += [
                        self.query.region.eq(self.region),
                        self.query.bank.eq(0),
                    ]
                    m.next = "bank0"
                with m.Elif(asked):
                    m.d.sync += self.query.eq(asked_at)
                    m.next = "query"
                with m.Elif(seen):
                    # From here on another timeout waits for its own turn.
                    m.d.sync += [
                        self.query.eq(seen_at),
                        seen.eq(0),
                    ]
                    m.next = "timeout"
            with m.State("bank0"):
                with m.If(wait == 0):
                    m.d.sync += [
                        blocked.eq(
                            mutant(
                                "register_bank.orders_do_not_block",
                                ordered | (self.status.state != RegionState.FREE),
                                self.status.state != RegionState.FREE,
                            )
                        ),
                        self.query.bank.eq(1),
                        wait.eq(QUERY_CYCLES),
                    ]
                    m.next = "bank1"
            with m.State("bank1"):
                with m.If(wait == 0):
                    errors = check.errors | (
                        mutant("register_bank.blocked_region_written", blocked | ordered, ordered)
                        | (self.status.state != RegionState.FREE)
                    )
                    m.d.sync += [
                        self.errors.eq(errors),
                        self.geometry_write.en.eq(
                            mutant(
                                "register_bank.bad_geometry_written",
                                mutant("register_bank.geometry_not_checked", errors == 0, 1),
                                ~blocked,
                            )
                        ),
                        commit.eq(0),
                    ]
                    m.next = "idle"
            with m.State("query"):
                with m.If(wait == 0):
                    m.d.sync += [
                        self.result.eq(self.status),
                        self.missing.eq(self.missing_from),
                        self.mute.eq(self.silent),
                        asked.eq(0),
                    ]
                    m.next = "idle"
            with m.State("timeout"):
                with m.If(wait == 0):
                    m.d.sync += [
                        self.timeout_set.eq(1),
                        self.timeout_result.region.eq(self.query.region),
                        self.timeout_result.bank.eq(self.query.bank),
                        self.timeout_result.epoch.eq(self.status.epoch),
                        self.timeout_missing.eq(self.missing_from),
                        self.timeout_mute.eq(self.silent),
                    ]
                    m.next = "idle"
        return fsm.ongoing("bank0") | fsm.ongoing("bank1")
