"""Promises of the address table (``hub_rtl/rows/address_table.py``)."""

from amaranth import Array, Cat, Mux, Signal

from hub_rtl.formats import Reason, RegionState
from hub_rtl.rows.address_table import AddressTable

from .rows_inner import Inside
from .spec import Spec

__all__ = ["TableGivesDenseSlots"]


class TableSpec(Spec):
    """Address table with arbitrary constant geometries, written while nothing is asked.

    A bank is opened only after every request taken before it was left is answered (it is purged in between), and new rows of
    a bank are asked for from the cycle after its opening until it is left (the slices look at the bank first).
    """

    GEOMETRY = ("valid", "stride", "row_bytes", "capacity", "group_base", "log2_tile", "overflow_en", "overflow", "base")

    def __init__(self, cfg):
        super().__init__()
        self._cfg = cfg

    def table(self, m):
        """Builds the table and its environment."""
        cfg = self._cfg
        self.dut = dut = AddressTable(cfg)
        self.inside = Inside(m, dut)
        self.free_inputs(dut)
        write = dut.geometry_write
        self.regions = [self.constant(write.geometry.shape(), f"region{n}") for n in range(cfg.regions)]
        asked = Cat(each.valid for each in dut.i_request).any()
        busy = Signal()
        with m.If(asked):
            m.d.sync += busy.eq(1)
        self.taken, self.inflight = Signal(), Signal(4)
        m.d.comb += self.taken.eq(Cat(each.valid & each.ready for each in dut.i_request).any())
        m.d.sync += self.inflight.eq(self.inflight + self.taken - dut.reply_en.any())
        for n, region in enumerate(self.regions):
            self.suppose(f"geometry {n} constant", Cat(write.geometry[name] == region[name] for name in self.GEOMETRY).all(),
                         when=write.en & (write.region == n))
            written = Signal(name=f"written{n}")
            with m.If(write.en & (write.region == n)):
                m.d.sync += written.eq(1)
            self.suppose(f"geometry {n} written", written, when=asked)
        self.suppose("geometry before rows", ~write.en, when=asked | busy)
        self.suppose("nothing while clearing", ~(write.en | dut.region_update.en | asked), when=dut.clearing)

    def region(self, number):
        """Constant geometry of a region."""
        return Array(self.regions)[number]

    def bank_of(self, m, region, bank):
        """Environment of one bank: its updates, when it was left, requests for it. Returns the cycle of its opening."""
        dut = self.dut
        update = dut.region_update
        ours = update.en & (update.region == region) & (update.bank == bank)
        opens = Signal()
        m.d.comb += opens.eq(ours & (update.state == RegionState.OPEN))
        is_open, older = Signal(), Signal(4)            # older: requests taken before the bank was left, unanswered
        with m.If(ours):
            m.d.sync += is_open.eq(opens)
        answered = dut.reply_en.any()
        with m.If(is_open):
            m.d.sync += older.eq(self.inflight + self.taken - answered)
        with m.Elif(answered & older.any()):
            m.d.sync += older.eq(older - 1)
        self.is_open = is_open
        self.suppose("opened when free", ~is_open & ~older.any(), when=opens)
        for n, each in enumerate(dut.i_request):
            self.suppose(f"bank open for {n}", is_open, when=each.valid & ~each.p.translate & (each.p.region == region) &
                         (each.p.bank == bank))
        return opens


class TableGivesDenseSlots(TableSpec):
    """For any bank: the slots given out in it since it was opened, to its own rows and to those of regions that overflow into it,
    are 0, 1, 2 and so on, all below its capacity."""

    def build(self, m):
        cfg = self._cfg
        self.table(m)
        dut = self.dut
        region, bank = self.constant(cfg.region_width, "region"), self.constant(1, "bank")
        opens = self.bank_of(m, region, bank)
        seen, count, mine = dut.obs_alloc, Signal(cfg.slot_width), Signal()
        place = Mux(seen.overflow, self.region(seen.region).overflow, seen.region)
        m.d.comb += mine.eq(seen.en & (place == region) & (seen.bank == bank))
        with m.If(opens):
            m.d.sync += count.eq(0)
        with m.Elif(mine):
            m.d.sync += count.eq(count + 1)
        self.always("next slot", seen.slot == count, when=mine)
        self.always("below capacity", seen.slot < self.region(region).capacity, when=mine)
        self.reach("overflow", mine & seen.overflow)
        again = Signal()
        with m.If(opens & (count != 0)):
            m.d.sync += again.eq(1)
        self.reach("opened again", mine & again)
