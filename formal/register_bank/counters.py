# SPDX-License-Identifier: Apache-2.0
"""Promises of the event counters (``hub_rtl/register_bank/counters.py``)."""

from amaranth import Array, Mux, Signal, Value

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, same
from hub_rtl.contract.registers import COUNTERS
from hub_rtl.register_bank.counters import Counters

__all__ = ["CountsAreExact"]

NUMBER = len(COUNTERS)


class CountsAreExact(Spec):
    """The copy of any one counter is, modulo 2**width, the sum of its increments since the cycle
    after the last CLEAR that was not ignored, up to its visit in the last round of copies, without
    those of frozen cycles; visits go in turn, and the round begins in the cycle after SNAPSHOT.
    ``busy`` exactly while a round clears or copies. The memory that is added to is never read where
    it is written: it has no bypass."""

    WIDTH = 34  # both halves of a copy

    def build(self, m):
        m.submodules.dut = dut = Counters(self._cfg, self.WIDTH)
        inner = observe(dut)
        self.free_inputs(dut)
        counter = self.constant(range(NUMBER), "counter")
        self.suppose("a counter", counter < NUMBER)
        fields = [Value.cast(dut.counts[name]) for name in COUNTERS]
        most = Array([(1 << len(field)) - 1 for field in fields])[counter]

        # The books: whose visit it is, rounds under way, the sum, the sum at the last visit that
        # copies.
        turn, clearing, copying = (
            Signal(range(NUMBER + 1), init=init, name=name)
            for name, init in (("turn", 0), ("clearing", NUMBER), ("copying", NUMBER))
        )
        m.d.sync += turn.eq(Mux(turn == NUMBER - 1, 0, turn + 1))
        idle = (clearing == 0) & (copying == 0)
        for left, order in ((clearing, dut.clear), (copying, dut.snapshot)):
            m.d.sync += left.eq(Mux(left != 0, left - 1, Mux(order & idle, NUMBER, 0)))
        restart = self.past(dut.clear & idle, "restart") & self.started
        total = Signal(self.WIDTH)
        copy = Signal(self.WIDTH)
        copied = Signal()
        add = Mux(dut.freeze, 0, Array(fields)[counter])
        m.d.sync += total.eq(Mux(restart, 0, total) + add)
        visit = turn == counter
        with m.If(visit & (copying != 0)):
            m.d.sync += [
                copy.eq(Mux(restart, 0, total)),
                copied.eq(1),
            ]

        self.always("busy as told", dut.busy == ~idle)
        asked = (
            self.past(dut.read_en & (dut.read_index[1:] == counter) & copied, "asked")
            & self.started
        )
        shown, high = self.past(copy, "shown"), self.past(dut.read_index[0], "high")
        self.always(
            "copy is the sum", dut.read_data == Mux(high, shown[32:], shown[:32]), when=asked
        )
        live = inner.live
        self.always(
            "nothing is read as it is written",
            ~(live.r_en & live.w_en & (live.r_addr == live.w_addr)),
        )

        # Helpers: what the registers and memories mean.
        self.lemma("turn in range", (turn < NUMBER) & (clearing <= NUMBER) & (copying <= NUMBER))
        self.lemma("place", same(inner, place=turn, visited=1 << turn))
        self.lemma(
            "the place before",
            inner.valid & (inner.at == Mux(turn == 0, NUMBER - 1, turn - 1)),
            when=self.started,
        )
        for name, left, under_way, books in (
            ("clears", inner.visits, inner.clears, clearing),
            ("copies", inner.copying, inner.copies_too, copying),
        ):
            self.lemma(name, (under_way == (books != 0)) & (~under_way | (left == books)))
        self.lemma(
            "a round starts", (inner.start_clear == restart) & (~restart | (clearing == NUMBER))
        )
        since = Signal(range(NUMBER + 1))  # cycles since its visit
        m.d.comb += since.eq(Mux(turn > counter, turn - counter, NUMBER + turn - counter))
        front = Array(inner.fronts)[counter]
        taken = Signal(self.WIDTH)
        late = Signal()
        stored = Signal(self.WIDTH)
        base = Signal(self.WIDTH)
        pending = NUMBER - since < clearing  # its clearing visit is still to come
        m.d.comb += [
            late.eq(inner.valid & (inner.at == counter)),
            stored.eq(peek(m, live, counter)),
            taken.eq(Mux(late, inner.taken, 0)),
            base.eq(Mux(pending | (late & inner.fresh), 0, stored)),
        ]
        self.lemma("accumulator holds a round", front <= most * since)
        self.lemma(
            "the sum is in parts", total == (base + taken + front)[: self.WIDTH], when=~restart
        )
        self.lemma("word at hand", live.r_data == stored, when=late)
        kept = late & inner.keep
        self.lemma(
            "copy under way", copy == (Mux(inner.fresh, 0, stored) + taken)[: self.WIDTH], when=kept
        )
        self.lemma("copy stored", peek(m, inner.copies, counter) == copy, when=copied & ~kept)
        self.lemma("copied is under way", copied, when=kept)
