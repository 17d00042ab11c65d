# SPDX-License-Identifier: Apache-2.0
"""Promises of StoreSteer, StoreMerge and of the remainders that choose a lane (section 2 of
docs/interfaces.md)."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW
from hub_rtl.contract.records import layout_of
from hub_rtl.decoder.steer import INSIDE, StoreMerge, StoreSteer
from hub_rtl.parts.residue import is_residue, residue, residue_parts

__all__ = ["MergeKeepsStores", "ResidueIsExact", "SteerFindsTheLane"]


class ResidueIsExact(Spec):
    """The parts of a 12-bit value stand for its remainder by ``divisor``, and for no other number
    below it."""

    def __init__(self, divisor):
        super().__init__()
        self._divisor = divisor

    def build(self, m):
        value, number = (
            self.constant(12, "value"),
            self.constant(range(max(2, self._divisor)), "number"),
        )
        parts = residue_parts(m, value, self._divisor)
        rest = Signal(12)
        m.d.comb += rest.eq(value % self._divisor)
        self.always("remainder", residue(parts, self._divisor) == rest)
        self.always(
            "is the remainder",
            is_residue(parts, number, self._divisor) == (rest == number),
            when=number < self._divisor,
        )


class SteerFindsTheLane(Spec):
    """Stores leave once, unchanged, in order over all lanes, each on the lane of its address block
    or of (RowID + handle), both mod 4096, mod lanes. Compared: operand, class, owner, tag and byte
    0; the other bytes are wires like it."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = StoreSteer(cfg)
        self.free_inputs(dut)
        self.always_held_all(dut)

        def word(store):
            return Cat(
                store.operand, store.cls, store.owner, store.tag, store.data[:8], store.mask[0]
            )

        takes = Cat(moves(o) for o in dut.o_store)
        self.always(
            "one lane at a time",
            (Cat(o.valid for o in dut.o_store) & (Cat(o.valid for o in dut.o_store) - 1)) == 0,
        )
        left = Signal(len(word(dut.i_store.payload)))
        put = moves(dut.i_store)
        for n, o in enumerate(dut.o_store):
            with m.If(o.valid):
                m.d.comb += left.eq(word(o.payload))
            row, plain = (
                layout_of(OPERAND_ROW)(o.payload.operand),
                layout_of(OPERAND_PLAIN)(o.payload.operand),
            )
            key = Signal(12, name=f"key{n}")
            m.d.comb += key.eq(
                Mux(row.plain, plain.addr >> ceil_log2(cfg.packet_bytes), row.rowid + row.handle)
            )
            self.always(f"lane {n}", key % cfg.lanes == n, when=o.valid)
        self.always_fifo(
            "stores", put, word(dut.i_store.payload), takes.any(), left, 4, placed=True
        )


class MergeKeepsStores(Spec):
    """Stores of all lanes leave once, unchanged, in the order of acceptance; ``flushing`` is 1
    exactly as long as a store is inside that came up to the strobe. Compared: all fields but the
    data and mask above byte 0, which are wires like it."""

    def __init__(self, cfg, count):
        super().__init__(cfg)
        self._count = count

    def build(self, m):
        m.submodules.dut = dut = StoreMerge(self._cfg, self._count)
        self.free_inputs(dut)

        def word(store):
            return (
                Cat(
                    store[name]
                    for name in (
                        "plain",
                        "cls",
                        "rank",
                        "region",
                        "epoch",
                        "rowid",
                        "block",
                        "part",
                        "full",
                        "dest",
                    )
                ),
                store.data[:8],
                store.mask[0],
            )

        accepted = Cat(moves(i) for i in dut.i_store)
        came = Signal(len(Cat(word(dut.o_store.payload))))
        for n, i in enumerate(dut.i_store):
            with m.If(accepted[n]):
                m.d.comb += came.eq(Cat(word(i.payload)))
        put, take = accepted.any(), moves(dut.o_store)
        inside, *_ = self.always_fifo(
            "stores", put, came, take, Cat(word(dut.o_store.payload)), INSIDE
        )
        self.always("one at a time", (accepted & (accepted - 1)) == 0)
        strobed = Signal()
        since = Signal(2)
        m.d.sync += [
            strobed.eq(strobed | dut.flush),
            since.eq(Mux(dut.flush, 0, Mux(since == INSIDE, since, since + put))),
        ]
        self.always("flushing exact", dut.flushing == (strobed & (inside > since)))
