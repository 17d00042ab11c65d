# SPDX-License-Identifier: Apache-2.0
"""Promise of the row lookup (``hub_rtl/slot_allocator/row_pipe.py``) about banks that are not open
any more."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import known_word, observe
from hub_rtl.contract.packets import RegionState
from hub_rtl.slot_allocator.records import Kind

from .pipe import PipeSpec

__all__ = ["ClosedRowsAreSunk"]


class ClosedRowsAreSunk(PipeSpec):
    """For any region and epoch: after a purge (of whatever bank) that began while the region's bank
    was not OPEN in that epoch, no packet of that epoch is placed, spilled rows' packets included,
    until the bank is opened in it again. A packet that is placed was looked up, for the last time,
    while its bank was OPEN in its epoch. User: the next purge comes when ``purging`` is 0; nothing
    is written and no header comes while clearing (slot_allocator.split)."""

    FREE = ()

    def build(self, m):
        cfg = self._cfg
        self.pipe(m)
        inside, dut, command, purge = self.inside, self.dut, self.dut.o_command, self.dut.purge
        update = dut.region_update
        self.suppose("no update while clearing", ~update.en, when=dut.clearing)
        region, epoch = self.constant(cfg.region_width, "region"), self.constant(4, "epoch")
        self.suppose("region exists", region < cfg.regions)

        # Whether the bank is open in the epoch, and has not been since a purge began that has
        # ended.
        was_open = Signal()
        is_open = Signal()
        shut = Signal()
        barred = Signal()
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
        first, second, third = self.stages

        def ours(packet):
            body = self.body(packet)
            return self.is_row(packet) & (body.region == region) & (body.epoch == epoch)

        placed = command.valid & command.ready & (command.p.kind == Kind.ROW) & ours(third)
        self.always("nothing of a closed epoch is placed", ~placed, when=barred)
        self.reach("a packet is placed", placed)
        self.reach("one that is not any more", barred & command.valid & ours(third))
        # Of the packet at each stage.
        looked_open = Signal()
        second_open = Signal()
        third_open = Signal()
        with m.If(inside.take | inside.path.again):
            m.d.sync += looked_open.eq(is_open)
        with m.If(inside.move):
            m.d.sync += [
                second_open.eq(looked_open),
                third_open.eq(second_open),
            ]
        self.always("it was open when it was looked up", third_open, when=placed)
        # What the checks are told: they rest on it.
        rows, plain = inside.rows, inside.plain
        asked = Signal(self.own.row)
        of_packet = Signal()
        with m.If(rows.look | rows.look_bank):
            m.d.sync += [
                asked.region.eq(rows.region),
                asked.epoch.eq(rows.epoch),
                of_packet.eq(rows.look),
            ]
        named = self.named(first)
        same = of_packet & (asked.region == named.region) & (asked.epoch == named.epoch)
        judged = self.is_row(first) & inside.move
        self.always("judged by what was looked at", same, when=judged)
        self.always("what is looked at goes in", inside.move, when=plain.look)

        # Lemmas: the slice's own view, and what the check found.
        _, states, wanted = observe(inside.rows)
        at = Cat(epoch[0], region)
        word, known = known_word(self, states, at, "view")
        layout = states.r_data.shape()
        word = layout(word)

        def opens(each):
            kept = each.epoch ^ Cat(epoch[0], 1, 1, 1)
            return (each.state == RegionState.OPEN) & (kept == epoch)

        self.lemma("the view", opens(word) == was_open, when=~dut.clearing)
        self.lemma("the view starts FREE", ~was_open, when=dut.clearing)
        self.lemma("cleared so far", word.state == RegionState.FREE, when=dut.clearing & known)
        self.stage_lemmas()
        still = self.slow["IDLE"]
        body = self.body(first)
        self.lemma("what was read", opens(states.r_data) == looked_open, when=ours(first) & still)
        self.lemma("epoch looked for", wanted == body.epoch, when=self.is_row(first) & still)
        still_same = self.is_row(first) & still
        self.lemma("looked at", same, when=still_same)
        self.lemma("R2 refused", second_open | rows.refused, when=ours(second))
        self.lemma("R3 refused", third_open | third.refused, when=ours(third))
        for name, packet, open_ in (
            ("R1", first, looked_open),
            ("R2", second, second_open),
            ("R3", third, third_open),
        ):
            seen = open_ & (still if name == "R1" else 1)
            self.lemma(f"barred before the look of {name}", ~seen, when=barred & ours(packet))
