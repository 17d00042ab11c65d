# SPDX-License-Identifier: Apache-2.0
"""Promise of the lookup stage (``hub_rtl/slot_allocator/lookup.py``) about banks that are not open
any more."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.spec import Spec
from hub_rtl.contract.packets import RegionState
from hub_rtl.slot_allocator.lookup import Lookup
from hub_rtl.slot_allocator.records import Kind

from .inner import Inside

__all__ = ["ClosedRowsAreSunk"]


class ClosedRowsAreSunk(Spec):
    """For any region and epoch: after a purge (of whatever bank) that began while the region's bank
    was not OPEN in that epoch, no packet of that epoch is placed, spilled rows' packets included,
    until the bank is opened in it again. A packet that is placed was looked up while its bank was
    OPEN in its epoch. User: the next purge comes when ``purging`` is 0; nothing is written and no
    header comes while clearing (slot_allocator.split)."""

    def build(self, m):
        cfg, dut = self._cfg, Lookup(self._cfg)
        inside = Inside(m, dut)
        self.free_inputs(dut)
        own, head, command, purge = inside["own"], dut.i_head, dut.o_command, dut.purge
        body, update = data.View(own.row_body, head.p.body), dut.region_update
        self.suppose("one purge at a time", ~dut.purging, when=purge.en)
        self.suppose("bytes with the head", head.valid, when=dut.i_bytes.valid)
        self.suppose("no header while clearing", ~head.valid & ~update.en, when=dut.clearing)
        region, epoch = self.constant(cfg.region_width, "region"), self.constant(4, "epoch")
        self.suppose("region exists", region < cfg.regions)
        ours = ~head.p.plain & (body.region == region) & (body.epoch == epoch)

        # Whether the bank is open in the epoch, and has not been since a purge began that has
        # ended.
        was_open, is_open, shut, barred = Signal(), Signal(), Signal(), Signal()
        mine = update.en & (update.region == region) & (update.bank == epoch[0])
        m.d.comb += is_open.eq(
            Mux(mine, (update.state == RegionState.OPEN) & (update.epoch == epoch), was_open)
        )
        m.d.sync += was_open.eq(is_open)
        ended = self.past(dut.purging, "went") & ~dut.purging
        m.d.sync += [
            shut.eq(~is_open & (purge.en | shut)),
            barred.eq(~is_open & (barred | ended & shut)),
        ]
        placed = command.valid & command.ready & (command.p.kind == Kind.ROW) & ours
        self.always("nothing of a closed epoch is placed", ~placed, when=barred)
        self.reach("a packet is placed", placed)
        self.reach("one that is not any more", barred & command.valid & ours)
        looked_open = Signal()
        with m.If(inside["look"]):
            m.d.sync += looked_open.eq(is_open)
        self.always("it was open when it was looked up", looked_open, when=placed)

        # Lemmas: the slice's own view, and what the check found.
        state = inside.state
        walking = Cat(state(name) for name in ("PURGE", "WIPE", "LEAVE")).any()
        looking = ~walking & ~state("READ")
        states = inside["rows.states"]
        at = Cat(epoch[0], region)
        layout = data.StructLayout({"state": 2, "epoch": 4})
        word = layout(inside.word(m, "rows.states.memory", at, "view"))

        def opens(each):
            kept = each.epoch ^ Cat(epoch[0], 1, 1, 1)
            return (each.state == RegionState.OPEN) & (kept == epoch)

        self.lemma("the view", opens(word) == was_open, when=~dut.clearing)
        self.lemma("the view starts FREE", ~was_open, when=dut.clearing)
        self.lemma(
            "cleared so far",
            word.state == RegionState.FREE,
            when=dut.clearing & (inside["rows.states.walk"] > at),
        )
        self.lemma("head stays", head.valid, when=looking)
        self.lemma("waits for clearing", ~dut.clearing, when=~state("READ"))
        self.lemma("acting", inside["acting"] == state("ACT"))
        self.lemma("walks while purging", dut.purging, when=walking)
        self.lemma("what was read", opens(states.r_data) == looked_open, when=state("CHECK") & ours)
        self.lemma("what is looked at", inside["rows.with_state"] == state("CHECK"))
        self.lemma(
            "the packet's own epoch",
            (inside["rows.wanted"] == body.epoch) & (inside["rows.bank"] == body.epoch[0]),
            when=state("CHECK"),
        )
        checked = looking & ~state("CHECK") & ours
        self.lemma("what was found", inside["rows.alive"] == looked_open, when=checked)
        self.lemma("barred before the look", ~looked_open, when=barred & looking & ours)
