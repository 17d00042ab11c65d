# SPDX-License-Identifier: Apache-2.0
"""The device memories of the self-test: one that checks every write of rows, and a real one for
spilled mappings."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import Axi4, Axi4Write
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import ADDR, BYTE

from .plan import BANK, SPILL, STRIDE
from .traffic import unit_of

__all__ = ["RowChecker", "SpillMemory"]


class RowChecker(wiring.Component):
    """Takes the row writes of one slice and checks each beat as it comes; keeps no data.

    Contract: ``error`` is set for good when an address lies outside the open bank, a unit of 16
    bytes is not the one that belongs there, a byte is missing, a slot gets beats of two rows, or a
    beat comes twice in an epoch. ``units`` counts those of this epoch. Latency and throughput: one
    beat per cycle but for pauses, made at random by ``noise``; an answer per burst.

    Parameters: ``plan``. Ports: ``mem`` In, AXI4 write channels; ``start`` In, strobe, ``epoch``
    In: what is open from now on; ``noise`` In, two random bits; ``units`` Out; ``error`` Out.
    """

    def __init__(self, plan):
        self._plan = plan
        self._count = plan.region_rows * plan.units
        super().__init__(
            {
                "mem": In(Axi4Write(ADDR, plan.cfg.slice_bytes * BYTE)),
                "start": In(1),
                "epoch": In(4),
                "noise": In(2),
                "units": Out(range(self._count + 1)),
                "error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        plan, mem = self._plan, self.mem
        size, slot_bits = plan.cfg.slice_bytes, plan.slot_width
        shift, part_bits = ceil_log2(size), ceil_log2(STRIDE // size)
        last = (plan.units * 16 - 1) // size  # part of the row's last unit
        busy = Signal()
        address = Signal(ADDR)
        epoch = Signal(4)
        part, slot = address[shift:][:part_bits], address[shift + part_bits :][:slot_bits]
        answers = Signal(range(plan.cfg.write_depth + 1))
        with m.If(self.start):
            m.d.sync += [
                epoch.eq(self.epoch),
                self.units.eq(0),
            ]
        m.d.comb += [
            mem.awready.eq(~busy & self.noise[0]),
            mem.wready.eq(busy & self.noise[1]),
        ]
        beat = mem.wvalid & mem.wready
        ends = Signal()
        m.d.comb += ends.eq(beat & mem.wlast)
        with m.If(mem.awvalid & mem.awready):
            m.d.sync += [
                address.eq(mem.awaddr),
                busy.eq(1),
            ]
        with m.If(beat):
            m.d.sync += [
                address.eq(address + size),
                busy.eq(~mem.wlast),
                self.units.eq(
                    self.units + Mux(part == last, plan.units - last * size // 16, size // 16)
                ),
            ]
        m.d.sync += answers.eq(answers + ends - (mem.bvalid & mem.bready))
        m.d.comb += mem.bvalid.eq(answers != 0)

        # Where it is, and whose it says it is.
        rowid, per = mem.wdata[:slot_bits], shift - 4
        has = [Cat(Const(n, per), part) < plan.units for n in range(size // 16)]
        base = Mux(epoch[0], 2 * BANK, BANK)
        wrong = (
            (address - base >= STRIDE * plan.region_rows)
            | (part > last)
            | (mem.wstrb != Cat(there.replicate(16) for there in has))
            | Cat(
                there
                & (mem.wdata.word_select(n, 128) != unit_of(rowid, Cat(Const(n, per), part), epoch))
                for n, there in enumerate(has)
            ).any()
        )
        m.submodules.slots = slots = Memory(
            shape=data.StructLayout({"epoch": 4, "rowid": slot_bits, "used": 1}),
            depth=1 << slot_bits,
            init=[],
        )
        m.submodules.seen = seen = Memory(shape=5, depth=1 << slot_bits + part_bits, init=[])

        # A cycle later: what this slot and this part have had before.
        late = Signal()
        late_rowid = Signal(slot_bits)
        late_slot = Signal(slot_bits)
        late_part = Signal(part_bits)
        owner = slots.read_port()
        put_owner = slots.write_port()
        before = seen.read_port()
        put_seen = seen.write_port()
        m.d.sync += [
            late.eq(beat),
            late_rowid.eq(rowid),
            late_slot.eq(slot),
            late_part.eq(part),
        ]
        m.d.comb += [
            owner.addr.eq(slot),
            before.addr.eq(Cat(part, slot)),
            put_owner.en.eq(late),
            put_owner.addr.eq(late_slot),
            put_owner.data.epoch.eq(epoch),
            put_owner.data.rowid.eq(late_rowid),
            put_owner.data.used.eq(1),
            put_seen.en.eq(late),
            put_seen.addr.eq(Cat(late_part, late_slot)),
            put_seen.data.eq(Cat(epoch, 1)),
        ]
        # The slot's word is not read while it is written: beats of one burst name the same row, and
        # bursts are apart.
        known = owner.data.used & (owner.data.epoch == epoch)
        twice = (before.data == Cat(epoch, 1)) & late
        with m.If((beat & wrong) | twice | (late & known & (owner.data.rowid != late_rowid))):
            m.d.sync += self.error.eq(1)
        return m


class SpillMemory(wiring.Component):
    """64-bit words behind AXI4, one at a time: both spill tables. All zero at power-up.

    Parameters: ``plan``. Ports: ``mem`` In, AXI4; ``error`` Out: an access outside the tables, or a
    burst.
    """

    def __init__(self, plan):
        self._plan = plan
        super().__init__({"mem": In(Axi4(ADDR, 64)), "error": Out(1)})

    def elaborate(self, platform):
        m = Module()
        mem, bits = self.mem, self._plan.slot_width + 1
        m.submodules.words = words = Memory(shape=64, depth=1 << bits, init=[])
        read = words.read_port()
        write = words.write_port(granularity=8)

        def outside(address, length):
            return (address - SPILL >= 8 << bits) | (length != 0)

        # Both parts of a write are taken at once.
        writes = mem.awvalid & mem.wvalid & ~mem.bvalid
        m.d.comb += [
            mem.awready.eq(writes),
            mem.wready.eq(writes),
            write.addr.eq(mem.awaddr[3:]),
            write.data.eq(mem.wdata),
            write.en.eq(Mux(writes, mem.wstrb, 0)),
        ]
        fetched = Signal()
        m.d.comb += [
            mem.arready.eq(~fetched & ~mem.rvalid),
            read.addr.eq(mem.araddr[3:]),
            read.en.eq(mem.arready),
            mem.rdata.eq(read.data),
            mem.rlast.eq(1),
        ]
        m.d.sync += [
            mem.bvalid.eq(writes | (mem.bvalid & ~mem.bready)),
            fetched.eq(mem.arvalid & mem.arready),
            mem.rvalid.eq(fetched | (mem.rvalid & ~mem.rready)),
        ]
        with m.If(
            (writes & outside(mem.awaddr, mem.awlen))
            | (mem.arvalid & mem.arready & outside(mem.araddr, mem.arlen))
        ):
            m.d.sync += self.error.eq(1)
        return m
