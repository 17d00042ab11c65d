# SPDX-License-Identifier: Apache-2.0
"""Checks of row packets against the slice's own view of the regions."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import EPOCH, LEN, REASON, ROW_OFF, ROWID, STATE, UNIT
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import EPOCH_NEVER, slice_types_of

__all__ = ["RowCheck"]


class RowCheckObserve(NamedTuple):
    """What a proof may see of a :class:`RowCheck`."""

    views: Ram  #: per region {valid, row_bytes, row_first, row_behind}
    states: Ram  #: per (region, bank) {state, epoch}; epochs relative to EPOCH_NEVER
    wanted: Signal  #: the epoch of what was looked at last


class RowCheck(wiring.Component):
    """May this row packet be placed? Keeps the slice's copy of each region's row geometry and of
    each bank's {state, epoch}.

    A pipeline of two steps. ``look`` reads the region and the bank of ``region`` and ``epoch``;
    from the next cycle on, until the next ``look``, ``alive`` says whether the bank is OPEN with
    that epoch, and they are compared with ``body`` and ``len``, the packet that was looked at. Its
    ``move`` takes over what was found: then ``reason`` (OK or why not), ``refused`` (not OK),
    ``known`` and ``row_bytes`` hold until the next ``move``. ``look_bank`` reads the bank only, for
    ``alive`` of another row: before the next ``move`` comes another ``look``. A check that starts
    in the cycle of a ``region_update`` sees the new state. Checks, first wins: UNKNOWN (number out
    of range, or no geometry), EPOCH_EARLY, EPOCH_STALE, ROW_OVERRUN, ROW_RANGE.

    Parameters: ``cfg``. Ports: ``look``, ``look_bank`` In; ``region``, ``epoch`` In, of what is
    looked at; ``move`` In; ``body``, ``len`` In; ``reason``, ``refused``, ``known``, ``row_bytes``
    Out; ``alive`` Out; ``geometry_write``, ``region_update`` In; ``clearing`` Out, after reset."""

    observe: RowCheckObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types, self._own = cfg, types_of(cfg), slice_types_of(cfg)
        super().__init__(
            {
                "look": In(1),
                "look_bank": In(1),
                "move": In(1),
                "body": In(self._own.row_body),
                "len": In(LEN),
                "region": In(cfg.region_width),
                "epoch": In(EPOCH),
                "alive": Out(1),
                "reason": Out(REASON),
                "refused": Out(1),
                "known": Out(1),
                "row_bytes": Out(cfg.row_bytes_width),
                "geometry_write": In(self._types.geometry_write),
                "region_update": In(self._types.region_update),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, body = self._cfg, self.body
        # The first row behind the region is worked out when the geometry is written, so a check
        # only compares.
        view = data.StructLayout(
            {
                "valid": 1,
                "row_bytes": cfg.row_bytes_width,
                "row_first": ROWID,
                "row_behind": ROWID + 2,
            }
        )
        state = data.StructLayout({"state": STATE, "epoch": EPOCH})
        m.submodules.views = views = Ram(view, cfg.regions, clear=True, quick=cfg.regions <= 64)
        m.submodules.states = states = Ram(
            state, 2 * cfg.regions, clear=True, quick=cfg.regions <= 32
        )
        write, update = self.geometry_write, self.region_update
        seen_epoch = Signal(EPOCH)
        m.d.comb += [
            views.w_en.eq(write.en),
            views.w_addr.eq(write.region),
            *(
                views.w_data[name].eq(write.geometry[name])
                for name in ("valid", "row_bytes", "row_first")
            ),
            views.w_data.row_behind.eq(write.geometry.row_first + write.geometry.row_span),
            states.w_en.eq(update.en),
            states.w_addr.eq(Cat(update.bank, update.region)),
            states.w_data.state.eq(update.state),
            states.w_data.epoch.eq(_kept(update.epoch, update.bank)),
            views.r_en.eq(self.look),
            views.r_addr.eq(self.region),
            states.r_en.eq(self.look | self.look_bank),
            states.r_addr.eq(Cat(self.epoch[0], self.region)),
            self.clearing.eq(views.clearing | states.clearing),
        ]
        wanted = Signal(EPOCH)
        self.observe = RowCheckObserve(views, states, wanted)
        with m.If(self.look | self.look_bank):
            m.d.sync += wanted.eq(self.epoch)
        ahead = Signal(EPOCH)
        m.d.comb += [
            seen_epoch.eq(_kept(states.r_data.epoch, wanted[0])),
            ahead.eq(wanted - seen_epoch),
            self.alive.eq((states.r_data.state == RegionState.OPEN) & (ahead == 0)),
        ]
        unknown = Signal()
        alive = Signal()
        early = Signal()
        overrun = Signal()
        outside = Signal()
        end = Signal(ROW_OFF + 1)
        m.d.comb += end.eq(body.row_off + self.len)
        with m.If(self.move):
            m.d.sync += [
                self.row_bytes.eq(views.r_data.row_bytes),
                unknown.eq((body.region >= cfg.regions) | ~views.r_data.valid),
                alive.eq(self.alive),
                early.eq(
                    mutant(
                        "slot_allocator.own_epoch_is_early", (ahead >= 1) & (ahead <= 7), ahead <= 7
                    )
                ),
                overrun.eq(end > views.r_data.row_bytes[UNIT:]),
                outside.eq(
                    (body.rowid < views.r_data.row_first) | ~(body.rowid < views.r_data.row_behind)
                ),
            ]
        self._judge(m, unknown, alive, early, overrun, outside)
        return m

    def _judge(self, m, unknown, alive, early, overrun, outside):
        """The first rule that is broken is the reason."""
        with m.If(unknown):
            m.d.comb += self.reason.eq(Reason.UNKNOWN)
        with m.Elif(~alive):
            m.d.comb += self.reason.eq(Mux(early, Reason.EPOCH_EARLY, Reason.EPOCH_STALE))
        with m.Elif(overrun):
            m.d.comb += self.reason.eq(Reason.ROW_OVERRUN)
        with m.Elif(outside):
            m.d.comb += self.reason.eq(Reason.ROW_RANGE)
        m.d.comb += self.refused.eq(
            unknown
            | mutant("slot_allocator.early_rows_pass", ~alive, ~alive & ~early)
            | overrun
            | outside
        )
        # Whether the epoch is over is for the scoreboard's books to say: they also know of banks
        # without a history.
        m.d.comb += self.known.eq(~unknown)


def _kept(epoch, bank):
    """Epoch as kept in memory and back: the cleared word means EPOCH_NEVER of its bank."""
    return epoch ^ Cat(bank, EPOCH_NEVER >> 1 & 1, EPOCH_NEVER >> 2 & 1, EPOCH_NEVER >> 3 & 1)
