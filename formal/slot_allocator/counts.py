# SPDX-License-Identifier: Apache-2.0
"""Promises of the address table (``hub_rtl/slot_allocator/address_table.py``) about its counts of
rows."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe, peek
from formal.kit.spec import same

from .table import TableSpec

__all__ = ["QueriesCountRows"]


class QueriesCountRows(TableSpec):
    """For any bank: two cycles after ``rows_query`` names it, ``slots`` is the number of slots
    given out in it, to whomever, ``moved`` that of its own rows that went to its overflow region,
    both since it was opened, and ``rows`` their sum. A slot is counted in the cycle after its
    ``obs_alloc``, a row moved two cycles after. For queries from ``SETTLES`` cycles after the
    bank's opening on; a bank never opened has none."""

    SETTLES = 4

    def build(self, m):
        cfg = self._cfg
        self.table(m)
        dut, inside = self.dut, self.inside
        region, bank = self.constant(cfg.region_width, "region"), self.constant(1, "bank")
        self.suppose("region exists", region < cfg.regions)
        opens = self.bank_of(m, region, bank)
        seen = dut.obs_alloc
        here = Signal()
        away = Signal()
        place = Mux(seen.overflow, self.region(seen.region).overflow, seen.region)
        m.d.comb += [
            here.eq(seen.en & (place == region) & (seen.bank == bank)),
            away.eq(seen.en & seen.overflow & (seen.region == region) & (seen.bank == bank)),
        ]
        slots = Signal(cfg.slot_width)
        moved = Signal(cfg.slot_width)
        moved_before = Signal(cfg.slot_width)
        fresh = Signal(range(self.SETTLES + 2))  # cycles until the counts are settled
        m.d.sync += [
            slots.eq(Mux(opens, 0, slots + here)),
            moved.eq(Mux(opens, 0, moved + away)),
            moved_before.eq(moved),
            fresh.eq(Mux(opens, self.SETTLES + 1, fresh - fresh.any())),
        ]
        asked = same(dut.rows_query, region=region, bank=bank) & ~dut.clearing
        told = self.past(self.past(asked, "asked"), "told") & (fresh == 0)
        self.always("slots exact", dut.slots == slots, when=told)
        self.always("moved exact", dut.moved == moved_before, when=told)
        self.always("rows are both", dut.rows == dut.slots + dut.moved)
        self.reach("a row moved", told & (dut.moved == 1) & (dut.slots == 1))
        again = Signal()
        with m.If(opens & (slots == 2)):
            m.d.sync += again.eq(1)
        self.reach("opened again", again & told & (dut.slots == 1))

        # Helper invariants: the words of both memories; openings on their way.
        items, full = observe(inside.opened)
        pending = Cat(
            full[n] & (item.region == region) & (item.bank == bank) for n, item in enumerate(items)
        ).any()
        for name in ("pointers", "shown"):
            ram = getattr(inside, name)
            word = ram.r_data.shape()(peek(m, ram, Cat(bank, region)))
            self.lemma(
                f"{name} kept",
                same(word, slots=slots + here, moved=moved),
                when=~dut.clearing & ~pending,
            )
        self.lemma("settled", ~pending, when=fresh == 0)
