# SPDX-License-Identifier: Apache-2.0
"""Promises of the sums of acknowledgements that wait (``hub_rtl/scoreboard/ack_bank.py``)."""

from amaranth import Cat, Mux, Signal
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec, moves
from hub_rtl.scoreboard.ack_bank import AckBank, ack_banks, bank_of
from hub_rtl.scoreboard.records import OpKind, scoreboard_types

from .sources import ring_entries

__all__ = [
    "SumsConserveBytes",
    "SumsKeepBadNews",
    "SumsSweep",
]


class _Sums(Spec):
    """One of two banks with free operations of its names; one arbitrary name with its owner is
    watched."""

    def build(self, m):
        cfg, types = self._cfg, scoreboard_types(self._cfg)
        self.dut = dut = AckBank(cfg)
        m.submodules.dut = dut
        self.inside = inside = observe(dut)
        self.free_inputs(dut, but=("i",))
        self.free(dut.i.valid, dut.i.payload)  # what is offered may change: an arbiter chooses it
        self.bank = self.constant(1, "this_bank")
        op, out = dut.i.payload, dut.o.payload
        self.limit = (1 << types.acc_width - 1) + cfg.packet_bytes
        given = dut.i.valid
        self.suppose("nothing comes while clearing", ~dut.i.valid, when=dut.clearing)
        self.suppose(
            "acknowledgements come to the bank of their name",
            ((op.kind == OpKind.ACK) | (op.kind == OpKind.OVER)) & (bank_of(cfg, op) == self.bank),
            when=given,
        )
        self.suppose("the second half is of a region", ~op.plain, (op.kind == OpKind.OVER) & given)
        self.suppose("no more than an accumulator holds", op.bytes < self.limit, when=given)

        # The watched name, as an operation of it, and where it waits.
        self.key = key = self.constant(types.op, "key")
        self.suppose(
            "a name of this bank",
            ((key.kind == OpKind.ACK) | (key.kind == OpKind.OVER))
            & (bank_of(cfg, key) == self.bank)
            & (~key.plain | (key.kind == OpKind.ACK)),
        )
        self.name, self.owner = self._name(m, key, "key"), self._owner(key)
        self.place = Signal.like(inside.at, name="key_place")
        m.d.comb += self.place.eq(dut.place(self.name))
        self.mine_in = Signal()
        self.mine_out = Signal()
        shown = self._is_mine(m, out, "out")
        m.d.comb += [
            self.mine_in.eq(moves(dut.i) & self._is_mine(m, op, "in")),
            self.mine_out.eq(moves(dut.o) & shown),
        ]
        self._look(m, shown)
        self._rest(m)
        self.promise(m)

    def _name(self, m, op, title):
        name = Signal(self.dut.name, name=f"{title}_name")
        over = op.kind == OpKind.OVER
        m.d.comb += [
            name.over.eq(over),
            name.bank.eq(op.bank),
            name.index.eq(Mux(over, op.region, op.group)),
        ]
        return name

    @staticmethod
    def _owner(op):
        return Cat(op.plain, Mux(op.plain, op.dep, op.region))

    def _is_mine(self, m, op, title):
        name = self._name(m, op, title)
        return (name.as_value() == self.name.as_value()) & (self._owner(op) == self.owner)

    def _owns(self, total):
        return Cat(total.plain, total.owner) == self.owner

    def _look(self, m, shown):
        """Where the watched sum is: on its way to its word, in the word, offered; and lemmas about
        words and names."""
        dut, inside = self.dut, self.inside
        came, ring = inside.came, inside.ring
        word, self.known = known_word(self, inside.sums, self.place, "sum")
        self.word = word = View(dut.sum, word)
        self.comes = Signal()
        self.waits = Signal()
        self.offered = Signal()
        here = came.name.as_value() == self.name.as_value()
        m.d.comb += [
            self.comes.eq(inside.valid & here & self._owns(came.sum)),
            self.waits.eq(self.known & word.some & self._owns(word)),
            self.offered.eq(dut.o.valid & shown),
        ]
        busy = inside.valid | inside.visits
        self.lemma("nothing before it is clear", ~busy & ~dut.o.valid, when=dut.clearing)
        self.lemma("a visit or an operation", ~inside.valid | ~inside.visits)
        self.lemma("what comes has a sum", came.sum.some, when=inside.valid)
        self.lemma("what comes is no more", came.sum.bytes < self.limit, when=inside.valid)
        self.most = most = (1 << len(word.bytes) - 1) + self.limit  # the last one still fits
        self.lemma("what is offered is a sum", dut.o.payload.bytes < most, dut.o.valid)
        self.lemma(
            "what comes is of its region",
            ~came.sum.plain & (came.sum.owner == came.name.index),
            when=inside.valid & came.name.over,
        )
        self.lemma("its place", inside.at == dut.place(came.name), when=busy)
        self._in_bank("what comes", came.name, busy)
        self._in_bank("what is shown", ring.o.payload, ring.o.valid)

        # Each name that waits is in the ring once, but for the one that is visited.
        self.entries, self.used, self.ahead = entries, used, _ = ring_entries(self, ring)
        names = [self.dut.name(entry) for entry in entries]
        for n, name in enumerate(names):
            self._in_bank(f"entry {n}", name, used[n])
        some = []
        for place in range(dut.places):
            word, known = known_word(self, inside.sums, place, f"sum_{place}")
            total = View(dut.sum, word)
            each = known & total.some
            read = inside.sums.r_data.as_value() == word
            self.lemma(f"sum {place} has room", total.bytes < self.most, when=known)
            self.lemma(f"sum {place} was read", read, when=busy & (inside.at == place))
            some.append(each & ~(inside.visits & (inside.at == place)))
            at = [use & (dut.place(name) == place) for use, name in zip(used, names, strict=True)]
            self.lemma(f"sum {place} waits once", sum(at[1:], at[0]) == some[-1])
            self.lemma(f"sum {place} is there", each, when=inside.visits & (inside.at == place))
            if place >= self._tiles():
                region = place - self._tiles()  # with two banks
                owned = ~total.plain & (total.owner == region)
                self.lemma(f"sum {place} is of its region", owned, when=each)
        self.lemma("no more than there are places", ring.level == sum(some[1:], some[0]))

    def _rest(self, m):
        """For how many cycles nothing came and nothing was offered; after four nothing is left."""
        dut, inside = self.dut, self.inside
        self.quiet = quiet = Signal(range(5))
        m.d.sync += quiet.eq(Mux(dut.i.valid | dut.o.valid, 0, quiet + (quiet != 4)))
        level, shown = inside.ring.level, inside.ring.o.valid
        self.lemma("has come", ~inside.valid, when=quiet >= 1)
        self.lemma("is shown", ~level.any() | shown | inside.visits, when=quiet >= 2)
        self.lemma("is visited", ~level.any() | inside.visits, when=quiet >= 3)
        self.lemma("is gone", ~level.any() & ~inside.visits, when=quiet == 4)

    def _tiles(self):
        return (2 << self._cfg.group_width) // ack_banks(self._cfg)

    def _in_bank(self, title, name, when):
        """Lemma: such a name is one of this bank."""
        cfg = self._cfg
        index = Cat(name.bank, name.index)
        bits = index[0]
        for bit in index[1:]:
            bits = bits ^ bit
        fits = ~name.over | ~(name.index >> cfg.region_width).any()
        self.lemma(f"{title} is of this bank", (bits == self.bank) & fits, when=when)


class SumsConserveBytes(_Sums):
    """For every name and owner, the bytes that leave are those that came: never more, and none is
    left behind when for four cycles nothing came and nothing was offered. Only acknowledgements and
    their second halves leave."""

    def promise(self, m):
        dut, inside = self.dut, self.inside
        owed = Signal(32)
        m.d.sync += owed.eq(
            owed
            + Mux(self.mine_in, dut.i.payload.bytes, 0)
            - Mux(self.mine_out, dut.o.payload.bytes, 0)
        )
        self.always("nothing invented", dut.o.payload.bytes <= owed, when=self.mine_out)
        self.always("nothing kept back", owed == 0, when=self.quiet == 4)
        kind = dut.o.payload.kind
        self.always("only these", (kind == OpKind.ACK) | (kind == OpKind.OVER), when=dut.o.valid)
        self.always_held(dut.o, "o")
        parts = (
            (self.comes, inside.came.sum.bytes),
            (self.waits, self.word.bytes),
            (self.offered, dut.o.payload.bytes),
        )
        self.lemma("inside", owed == sum(Mux(there, count, 0) for there, count in parts))
        self.reach("some merge", dut.merged & self.comes)


class SumsKeepBadNews(_Sums):
    """A memory error and a poison leave with an operation of their name and owner, and nobody else
    gets one."""

    def promise(self, m):
        dut = self.dut
        for field in ("mem", "poison"):
            due, seen = Signal(name=f"{field}_due"), Signal(name=f"{field}_seen")
            came, shown = self.mine_in & dut.i.payload[field], dut.o.payload[field]
            with m.If(came):
                m.d.sync += [
                    due.eq(1),
                    seen.eq(1),
                ]
            with m.Elif(self.mine_out & shown):
                m.d.sync += due.eq(0)
            inside = (
                (self.comes & self.inside.came.sum[field])
                | (self.waits & self.word[field])
                | (self.offered & shown)
            )
            self.always(f"{field} told", ~due, when=self.quiet == 4)
            self.always(f"{field} not invented", seen, when=self.mine_out & shown)
            self.lemma(f"{field} inside", inside, when=due)
            self.lemma(f"{field} came", seen, when=inside)


class SumsSweep(_Sums):
    """What came before a ``sweep`` or with it has left when ``sweeping`` is 0 again: an operation
    with a memory error is followed."""

    def promise(self, m):
        dut, inside = self.dut, self.inside
        came, gone = self.mine_in & dut.i.payload.mem, self.mine_out & dut.o.payload.mem
        due = Signal()
        swept = Signal()
        over = Signal()
        self.suppose("one of this name is followed", ~over, when=came)
        with m.If(came):
            m.d.sync += [
                over.eq(1),
                due.eq(1),
                swept.eq(dut.sweep),
            ]
        with m.Elif(gone):
            m.d.sync += due.eq(0)
        with m.Elif(dut.sweep):
            m.d.sync += swept.eq(1)
        self.always("sweeping while it waits", dut.sweeping, when=due & swept)

        # Lemmas: where it is, and that it is old there.
        ring = inside.ring
        comes = self.comes & inside.came.sum.mem
        waits, offered = self.waits & self.word.mem, self.offered & dut.o.payload.mem
        self.lemma("it is somewhere", (comes | waits | offered) == due)
        self.lemma("it has come", over, when=due)
        self.lemma("in one place", comes + waits + offered <= 1)
        self.lemma("no more old ones than names", inside.old <= ring.level)
        self.lemma("just come", inside.fresh, when=comes & swept)
        self.lemma("offered old", inside.old_out, when=offered & swept)
        visited = inside.visits & (inside.at == self.place)
        self.lemma("visited old", inside.old_came | inside.fresh, when=waits & swept & visited)
        for n, entry in enumerate(self.entries):
            here = self.used[n] & (entry == self.name.as_value())
            self.lemma(
                f"entry {n} is old",
                inside.fresh | (self.ahead[n] < inside.old),
                when=waits & swept & here,
            )
