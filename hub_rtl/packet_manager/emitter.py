# SPDX-License-Identifier: Apache-2.0
"""Turns locked entries into records: closes the tag, lets the last stores land, sends what is
there."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT_BYTES
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, ones, tree_sum
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue

from .records import pool_types_of

__all__ = ["Emitter"]

#: Cycles from a lock until the last store that found the tag has its mask written: tag read (1),
#: closed (2), found for the last time (3), payload (4), mask (5).
LANDS = 5
PICK = 4  # cycles from the pick of a rank to its lock, the strobe for room included


class EmitterObserve(NamedTuple):
    """What a proof may see of an :class:`Emitter`."""

    queue: RegisterQueue  #: locked entries that have landed
    steps: list  #: the others, the last one first
    sent: Signal  #: parts that are sent of the first one
    had: Signal  #: parts of the one at the output


class Emitter(wiring.Component):
    """Sends locked entries as records, in the order of their locks.

    Contract: a record has a beat for each part with bytes, in order; header and the byte mask of
    the whole block stand beside all of them. A ``dead`` entry is dropped in its turn. ``room`` is
    there for as many locks as keep the output busy, no more: what is locked is chosen.

    Latency: the first beat is valid LANDS + 1 cycles after the lock; one beat per cycle. ``leaves``
    comes with the beat or later: the words of the last beat have been read.

    Parameters: ``cfg``. Ports: ``opened`` In; ``ready`` In,
    why they are; ``lock`` In; ``granted``, ``missed`` In, ``room`` Out; ``closing`` Out; ``peek``
    Out, ``had`` In; ``look`` Out, ``whole`` In; ``fetch`` Out; ``info``, ``mask``, ``data`` In,
    what was fetched; ``o_record`` Out, valid is a register; ``tail`` Out; ``leaves`` Out;
    ``o_sent`` Out, two cycles after a row packet's last beat was taken; ``idle`` Out, nothing is
    locked; ``full``, ``partial``, ``expired`` Out strobes: what was locked.
    """

    observe: EmitterObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        self._ahead = PICK + LANDS if t.parts == 1 else 2 + -(-(PICK + LANDS) // t.parts)
        super().__init__(
            {
                "opened": In(t.opened),
                "ready": In(t.ready),
                "lock": In(t.lock),
                "granted": In(1),
                "missed": In(1),
                "room": Out(1),
                "closing": Out(t.closing),
                "peek": Out(t.entry),
                "had": In(t.had),
                "look": Out(t.entry),
                "whole": In(1),
                "fetch": Out(t.fetch),
                "info": In(t.info),
                "mask": In(cfg.packet_bytes),
                "data": In(t.bytes["data"].shape),
                "o_record": Out(stream.Signature(t.record)),
                "tail": Out(t.tail),
                "leaves": Out(t.leaves),
                "o_sent": Out(t.sent),
                "idle": Out(1),
                "full": Out(1),
                "partial": Out(1),
                "expired": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        t, record = self._types, self.o_record
        steps, lands = self._land(m)
        item = Signal(data.StructLayout({"lock": t.lock, "had": t.had}))
        m.submodules.queue = queue = RegisterQueue(item.shape(), self._ahead)
        sent = Signal(t.parts)
        now = Signal.like(item)
        left = Signal(t.parts)
        part = Signal(t.parts)
        some, last, fetch, moves, finish = (
            Signal(name=n) for n in ("some", "last", "fetch", "moves", "finish")
        )
        header = record.p.header
        had = Signal(t.parts)
        self.observe = EmitterObserve(queue, steps, sent, had)
        m.d.comb += [
            item.lock.eq(lands),
            item.had.eq(self.had),
            now.eq(Mux(queue.o.valid, queue.o.payload, item)),
            some.eq(queue.o.valid | lands.en),
            left.eq(now.had.parts & ~sent),
            part.eq(lowest_set(m, left, "part")),
            last.eq(now.lock.dead | ~(left & ~part).any()),
            moves.eq(~record.valid | record.ready),
            fetch.eq(mutant("packet_manager.fetches_over_waiting", some & moves, some)),
            finish.eq(fetch & last),
            queue.i.payload.eq(item),
            queue.i.valid.eq(lands.en & (queue.o.valid | ~finish)),
            queue.o.ready.eq(finish),
            self.fetch.en.eq(fetch),
            self.fetch.index.eq(now.lock.index),
            self.fetch.part.eq(encode(part)),
        ]
        with m.If(fetch):
            m.d.sync += [
                sent.eq(Mux(last, 0, mutant("packet_manager.part_sent_twice", sent, 0) | part)),
                had.eq(now.had.parts),
                header.cls.eq(~now.had.normal),
                record.p.part.eq(encode(part)),
                record.p.last.eq(last),
            ]
        with m.If(moves):
            m.d.sync += record.valid.eq(fetch & ~now.lock.dead)
        m.d.sync += [
            self.leaves.en.eq(finish),
            self.leaves.sunk.eq(now.lock.dead),
            self.leaves.index.eq(now.lock.index),
        ]
        self._record(m, had)
        self._tell(m)
        m.d.comb += [
            self.leaves.rank.eq(self.info.key.rank),
            self.tail.waits.eq(record.valid & record.p.last),
            self.tail.taken.eq(record.valid & record.p.last & record.ready),
            self.tail.rank.eq(self.info.key.rank),
        ]
        ahead = Signal(range(self._ahead + 1))
        ahead_next = Signal(range(self._ahead + 2))
        m.d.comb += [
            ahead_next.eq(ahead + self.granted - self.missed - finish),
            self.idle.eq(ahead == 0),
        ]
        m.d.sync += [ahead.eq(ahead_next), self.room.eq(ahead_next < self._ahead)]
        return m

    def _land(self, m):
        """Closes the tag of a locked entry; gives it when its last store has landed."""
        t, depth = self._types, self._cfg.pool_depth
        m.submodules.places = places = Ram(t.place, depth, bypass=False, quick=depth <= 64)
        m.submodules.expireds = expireds = Ram(1, depth, bypass=False, quick=depth <= 64)
        steps, before = [], self.lock
        for n in range(LANDS):
            steps.append(Signal(t.lock, name=f"locked_{n + 1}"))
            m.d.sync += steps[-1].eq(before)
            before = steps[-1]
        landed = Signal(t.lock)
        told = Signal(t.lock)
        landed_now, too_soon = (step.as_value() for step in (steps[-1], steps[-2]))
        m.d.comb += landed.eq(mutant("packet_manager.sent_before_landed", landed_now, too_soon))
        m.d.sync += told.eq(landed)
        m.d.comb += [
            places.w_en.eq(self.opened.en),
            places.w_addr.eq(self.opened.index),
            places.w_data.eq(self.opened.place),
            places.r_en.eq(1),
            places.r_addr.eq(self.lock.index),
            self.closing.en.eq(steps[0].en),
            self.closing.place.eq(places.r_data),
            self.peek.en.eq(1),
            self.peek.index.eq(steps[-2].index),
            self.look.en.eq(1),
            self.look.index.eq(landed.index),
            expireds.w_en.eq(self.ready.en),
            expireds.w_addr.eq(self.ready.index),
            expireds.w_data.eq(self.ready.expired),
            expireds.r_en.eq(1),
            expireds.r_addr.eq(landed.index),
        ]
        leaves = told.en & ~told.dead
        m.d.comb += [
            self.full.eq(leaves & self.whole),
            self.partial.eq(leaves & ~self.whole),
            self.expired.eq(
                leaves
                & mutant("packet_manager.full_counts_as_expired", ~self.whole, 1)
                & expireds.r_data
            ),
        ]
        return steps, landed

    def _record(self, m, had):
        """What was fetched, as a record: a part's mask counts only if the entry has the part."""
        record, key = self.o_record.p, self.info.key
        header, row = record.header, self.info.key.body.row
        m.d.comb += [
            header.plain.eq(key.plain),
            header.rank.eq(key.rank),
            header.link.eq(self.info.link),
            header.region.eq(Mux(key.plain, 0, row.region)),
            header.epoch.eq(Mux(key.plain, 0, row.epoch)),
            header.rowid.eq(Mux(key.plain, 0, row.rowid)),
            header.block.eq(Mux(key.plain, key.body.block, row.block)),
            record.mask.eq(self.mask & Cat(bit.replicate(self._types.slice_bytes) for bit in had)),
            record.data.eq(self.data),
        ]

    def _tell(self, m):
        """Bytes of the row packet whose last beat was taken, in two steps."""
        info = self.info
        taken = Signal(self.o_sent.shape())
        counts = [
            Signal(FLIT_BYTES.bit_length(), name=f"bytes_{n}")
            for n in range(len(self.mask) // FLIT_BYTES)
        ]
        m.d.sync += [
            taken.en.eq(self.tail.taken & ~info.key.plain),
            taken.dest.eq(info.dest),
            taken.bank.eq(info.key.body.row.epoch[0]),
            *(
                count.eq(ones(m, self.o_record.p.mask.word_select(n, FLIT_BYTES), f"ones_{n}"))
                for n, count in enumerate(counts)
            ),
            self.o_sent.eq(taken),
            self.o_sent.bytes.eq(tree_sum(counts)),
        ]
