# SPDX-License-Identifier: Apache-2.0
"""Merges acknowledgements of one tile while they wait for the scoreboard's shared pipeline."""

from typing import NamedTuple

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant

from .ack_bank import ack_banks, fold
from .records import OpKind, scoreboard_types

__all__ = ["AckCombiner"]


class AckCombinerObserve(NamedTuple):
    """What a proof may see of an :class:`AckCombiner`: its accumulators, in lists or by bit."""

    keys: Array  #: {plain, bank, group, dep, region, place}
    totals: Array  #: bytes
    mem: Signal  #: one had a memory error
    poison: Signal  #: one had poison
    old: Signal  #: inside at the last sweep
    valid: Signal  #: in use
    some: Signal  #: one is
    head: Signal  #: the oldest
    tail: Signal  #: the next to be used
    second: Signal  #: the head's ACK has gone, its OVER is due
    sums: Signal  #: the bank of sums of what is offered


class AckCombiner(wiring.Component):
    """Queue of accumulators in front of the shared pipeline, one per consumer slice.

    Contract: the bytes that leave in operations of a key {plain, region, place, bank, group, dep}
    are the bytes that came in with ``ok``; a key with a memory error or poison leaves with that
    flag. Nothing else changes. An acknowledgement with ``counted`` = 0 is taken and disappears.
    Latency: an acknowledgement taken in cycle 0 is offered in cycle 1. Throughput: one per cycle
    in; an idle hub merges nothing, a busy one merges what waits behind the oldest accumulator (the
    oldest is closed, so that no grant reaches ``i.ready``). Order: the oldest accumulator leaves
    first; an overflowed row's leaves twice (ACK for the place, OVER for the region). Stall:
    ``i.ready`` is low while all accumulators are in use and none that is open has the key. With
    depth 3 or more it comes from registers: what merges while all are in use waits one cycle. Depth
    1 never merges.

    Parameters: ``cfg``. Ports: ``i`` In stream(ack); ``o`` Out stream(op); ``sums`` Out: the bank
    of sums of ``o``'s name (:func:`~hub_rtl.scoreboard.ack_bank.bank_of`), from a register;
    ``sweep`` In strobe: what is inside now is old; ``sweeping`` Out: something old is still inside;
    ``merged`` Out: strobe, an acknowledgement was merged; ``enable`` In. Source: docs/interfaces.md
    section 8.
    """

    observe: AckCombinerObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        self._key = data.StructLayout(
            {
                "plain": 1,
                "bank": 1,
                "group": cfg.group_width,
                "dep": cfg.dep_width,
                "region": cfg.region_width,
                "place": cfg.region_width,
            }
        )
        super().__init__(
            {
                "i": In(stream.Signature(types_of(cfg).ack)),
                "o": Out(stream.Signature(self._types.op)),
                "sums": Out(index_width(ack_banks(cfg))),
                "sweep": In(1),
                "sweeping": Out(1),
                "merged": Out(1),
                "enable": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth, acc_width = self._cfg.combine_depth, self._types.acc_width
        context = self.i.payload.context
        key = Signal(self._key.size)
        m.d.comb += key.eq(Cat(context[name] for name, _ in self._key))

        keys = Array(Signal(len(key), name=f"key_{n}") for n in range(depth))
        totals = Array(Signal(acc_width, name=f"bytes_{n}") for n in range(depth))
        mem, poison, old, valid = (
            Signal(depth, name=name) for name in ("mem", "poison", "old", "valid")
        )
        head, tail = (Signal(index_width(depth), name=name) for name in ("head", "tail"))
        some = Signal()
        second = Signal()  # the head's ACK has gone, its OVER is due
        self.observe = AckCombinerObserve(
            keys, totals, mem, poison, old, valid, some, head, tail, second, self.sums
        )

        match, taken = self._take(m, key, keys, totals, valid, head)
        self._leave(m, key)
        self._add(m, key, taken, match)
        with m.If(self.sweep):
            m.d.sync += old.eq(mutant("scoreboard.sweep_spares_matching", valid, valid & ~match))
        m.d.comb += self.sweeping.eq((old & valid).any())
        return m

    def _following(self, pointer):
        return Mux(pointer == self._cfg.combine_depth - 1, 0, pointer + 1)

    def _take(self, m, key, keys, totals, valid, head):
        """Which accumulator has the key and takes more, and whether the input is taken."""
        depth = self._cfg.combine_depth
        # The head may leave in this cycle, and an accumulator whose top bit is set has no room:
        # both take no more.
        match = Signal(depth)
        for n in range(depth):
            m.d.comb += match[n].eq(valid[n] & (head != n) & (keys[n] == key) & ~totals[n][-1])
        fits = match.any()
        if (
            depth > 2
            # from a register, so that ``ready`` hangs on no key: what waited merges now, or the
            # head has left. One key alone fills two
        ):
            fits = Signal()
            m.d.sync += fits.eq(self.i.valid & ~self.i.ready & match.any())
        m.d.comb += self.i.ready.eq(
            self.enable
            & (mutant("scoreboard.full_combiner_stalls", ~valid.all() | fits, ~valid.all()))
        )
        taken = Signal()
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready & self.i.payload.context.counted),
            self.merged.eq(taken & match.any()),
        ]
        return match, taken

    def _add(self, m, key, taken, match):
        """The acknowledgement begins an accumulator or is added to one."""
        keys, totals, mem, poison, old, valid, some, _, tail, *_ = self.observe
        ok, context = self.i.payload.ok, self.i.payload.context
        # An accumulator that is not in use follows the input: whether something merges decides on
        # one bit only, `valid`.
        grown = Mux(ok, context.bytes, 0)
        for n in range(self._cfg.combine_depth):
            with m.If(~valid[n]):
                m.d.sync += [
                    keys[n].eq(key),
                    totals[n].eq(grown),
                    mem[n].eq(~ok),
                    poison[n].eq(context.poison),
                    old[n].eq(0),
                ]
            with m.Elif(taken & match[n]):
                m.d.sync += [
                    totals[n].eq(
                        mutant("scoreboard.merged_bytes_replace", totals[n] + grown, grown)
                    ),
                    mem[n].eq(
                        mutant(
                            "scoreboard.last_acknowledgement_decides",
                            mutant("scoreboard.merged_error_forgotten", mem[n] | ~ok, mem[n]),
                            ~ok,
                        )
                    ),
                    poison[n].eq(
                        mutant(
                            "scoreboard.poison_needs_two",
                            poison[n] | context.poison,
                            poison[n] & context.poison,
                        )
                    ),
                ]
            with m.If(taken & ~match.any() & (tail == n)):
                m.d.sync += valid[n].eq(1)
        with m.If(taken & ~match.any()):
            m.d.sync += [
                tail.eq(self._following(tail)),
                some.eq(mutant("scoreboard.comes_unseen_as_one_leaves", 1, ~(some & self.o.ready))),
            ]

    def _leave(self, m, key):
        """The oldest accumulator leaves, that of an overflowed row twice."""
        cfg = self._cfg
        keys, totals, mem, poison, _, valid, some, head, _, second, _ = self.observe
        oldest = data.View(self._key, Signal(self._key.size, name="oldest"))
        twice = Signal()
        op = self.o.payload
        m.d.comb += [
            oldest.eq(keys[head]),
            twice.eq(~oldest.plain & (oldest.region != oldest.place)),
            self.o.valid.eq(some),
            op.kind.eq(Mux(second, OpKind.OVER, OpKind.ACK)),
            op.region.eq(Mux(second, oldest.region, oldest.place)),
            op.bank.eq(oldest.bank),
            op.plain.eq(oldest.plain),
            op.dep.eq(oldest.dep),
            op.group.eq(oldest.group),
            op.bytes.eq(totals[head]),
            op.mem.eq(mem.bit_select(head, 1)),
            op.poison.eq(poison.bit_select(head, 1)),
        ]
        following = self._following(head)
        coming = data.View(self._key, key)
        # Where nothing follows, what comes does.
        successor = data.View(self._key, Signal(self._key.size, name="successor"))
        m.d.comb += successor.eq(
            mutant(
                "scoreboard.sums_of_the_one_before",
                Mux(valid.bit_select(following, 1), keys[following], key),
                keys[head],
            )
        )
        with m.If(~self.o.valid):
            m.d.sync += self.sums.eq(fold(cfg, coming.bank, coming.group))
        with m.Elif(self.o.ready):
            with m.If(
                mutant(
                    "scoreboard.second_half_lost_when_even",
                    twice & ~second,
                    twice & ~second & op.bytes[0],
                )
            ):
                m.d.sync += [
                    second.eq(1),
                    self.sums.eq(fold(cfg, oldest.bank, oldest.region)),
                ]
            with m.Else():
                m.d.sync += [
                    second.eq(0),
                    head.eq(following),
                    valid.bit_select(head, 1).eq(0),
                    some.eq((valid & ~(Const(1, len(valid)) << head)[: len(valid)]).any()),
                    self.sums.eq(fold(cfg, successor.bank, successor.group)),
                ]
