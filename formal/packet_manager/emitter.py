# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's output (``hub_rtl/packet_manager/emitter.py``)."""

from functools import reduce
from operator import and_

from amaranth import Array, Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, same
from hub_rtl.packet_manager.emitter import LANDS, Emitter
from hub_rtl.packet_manager.records import pool_types_of
from hub_rtl.parts.onehot import tree_sum

__all__ = ["RecordsAreEntries"]


class RecordsAreEntries(Spec):
    """Each locked entry leaves once, in the order of the locks: as a record with a beat for each of
    its parts, in order, the last one marked, beside all of them its header and its mask; or, of a
    dead peer, without a beat. Its parts are those of LANDS cycles after the lock, when its last
    store has landed; it is given back with its last beat at the output.

    An arbitrary lock is followed. There are no more locks at a time than ``room`` allows, and a
    locked entry has a part.
    """

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = Emitter(cfg)
        self.inner = observe(dut)
        t, most = pool_types_of(cfg), len(observe(self.inner.queue).items)
        self.free_inputs(dut)
        lock, fetch, leaves, out = dut.lock, dut.fetch, dut.leaves, dut.o_record
        inside = Signal(range(most + 2))
        chosen = Signal()
        self.free(chosen)
        m.d.sync += inside.eq(inside + lock.en - leaves.en)
        self.locks = [lock.en]
        for n in range(LANDS):
            self.locks.append(self.past(self.locks[-1], f"locked_{n + 1}"))
        lands = self.locks[-1]
        self.suppose("room for the lock", inside - leaves.en < most, when=lock.en)
        self.suppose("a locked entry has a part", dut.had.parts.any(), when=lands)

        # The followed one: who is in front of it, how long ago it was locked, what was sent of it.
        layout = data.StructLayout({"index": t.index_width, "dead": 1, "had": t.had})
        kept = Signal(layout)
        since = Signal(range(LANDS + 2))
        follows = Signal()
        ahead = Signal(range(most + 2))
        at_output = Signal()
        sent = Signal(t.parts)
        left = Signal(t.parts)
        front = Signal()
        here = Signal(range(most + 2))
        had = Signal(t.had)
        gone = Signal()
        m.d.comb += [
            gone.eq(leaves.en & (ahead == 0)),
            here.eq(ahead - leaves.en),
            front.eq(follows & ~gone & (here == 0)),
            had.eq(Mux(since == LANDS, dut.had, kept.had)),
            left.eq(had.parts & ~sent),
        ]
        with m.If(follows):
            m.d.sync += [
                ahead.eq(here),
                follows.eq(~gone),
                since.eq(Mux(since == LANDS + 1, since, since + 1)),
                kept.had.eq(had),
            ]
        with m.Elif(lock.en & chosen & ~at_output):
            m.d.sync += [
                follows.eq(1),
                ahead.eq(inside - leaves.en),
                since.eq(1),
                sent.eq(0),
                kept.index.eq(lock.index),
                kept.dead.eq(lock.dead),
            ]
        takes = front & fetch.en
        part = Signal(t.parts)
        m.d.comb += part.eq(1 << fetch.part)
        with m.If(takes):
            m.d.sync += sent.eq(sent | part)
        self.flag(at_output, takes & ~kept.dead, fetch.en | (out.valid & out.ready))

        self.always("nothing invented", inside != 0, when=leaves.en)
        self.always("its words are fetched", fetch.index == kept.index, when=takes)
        lowest = (left & ((part << 1) - 1)) == part
        self.always("its parts in order", lowest & (since >= LANDS), when=takes & ~kept.dead)
        self.always("given back once", (leaves.index == kept.index), when=follows & gone)
        self.always("sunk if dead", leaves.sunk == kept.dead, when=follows & gone)
        whole = (left == 0) | kept.dead
        self.always("given back when all is fetched", whole, when=follows & gone)
        complete = self.past(takes & ((left == part) | kept.dead), "complete")
        self.always("given back at once", gone & follows, when=complete)
        beat = self.past(takes & ~kept.dead, "beat")
        self.always(
            "a beat for each part",
            same(out.p, part=self.past(fetch.part), last=self.past(left == part))
            & out.valid
            & (out.p.header.cls == ~had.normal),
            when=beat,
        )
        self.always("no beat of a dead one", ~out.valid, when=self.past(takes & kept.dead, "sinks"))
        self.always("fetched for a free output", ~blocked(out), when=fetch.en)
        self.always("no other beat", self.past(fetch.en | blocked(out), "some"), when=out.valid)
        granules = Cat(bit.replicate(cfg.slice_bytes) for bit in kept.had.parts)
        self.always("mask of its parts", out.p.mask == (dut.mask & granules), when=at_output)
        key, header = dut.info.key, out.p.header
        self.always("data as fetched", out.p.data == dut.data, when=out.valid)
        self.always(
            "header of the entry",
            same(header, plain=key.plain, rank=key.rank, news=0)
            & (header.block == Mux(key.plain, key.body.block, key.body.row.block))
            & (
                key.plain
                | same(header, **{n: key.body.row[n] for n in ("region", "epoch", "rowid")})
            ),
            when=out.valid,
        )
        self._lemmas(kept, since, follows & ~gone, here, front, sent, inside - leaves.en, at_output)

    def _lemmas(self, kept, since, follows, here, front, sent, inside, at_output):
        """Where the followed one is."""
        inner = self.inner
        queue = observe(inner.queue)
        full, items, steps = queue.full, queue.items, inner.steps
        count = tree_sum(full)
        self.lemma(
            "queue fills up", reduce(and_, (a | ~b for a, b in zip(full, full[1:], strict=False)))
        )
        self.lemma("counted", inside == count + tree_sum([step.en for step in steps]))
        self.lemma("places", inside <= len(items))
        for n, item in enumerate(items):
            self.lemma(f"item {n} has a part", item.had.parts.any(), when=full[n])
        rest = items[0].had.parts & ~inner.sent
        self.lemma("some left", full[0] & rest.any() & ~items[0].lock.dead, when=inner.sent.any())
        self.lemma("locked", since != 0, when=follows)
        for n, step in enumerate(steps):
            self.lemma(f"step {n}", step.en == self.locks[n + 1])
            older = tree_sum([each.en for each in steps[n + 1 :]]) if steps[n + 1 :] else 0
            self.lemma(
                f"in step {n}",
                step.en & same(step, index=kept.index, dead=kept.dead) & (here == count + older),
                when=follows & (since == n + 1),
            )
        mine = Signal.like(items[0])
        self.m.d.comb += mine.eq(Array(items)[here])
        self.lemma(
            "in the queue",
            (here < count)
            & same(mine.lock, index=kept.index, dead=kept.dead)
            & (mine.had.as_value() == kept.had.as_value()),
            when=follows & (since == LANDS + 1),
        )
        self.lemma("since", since <= LANDS + 1)
        self.lemma("sent", sent == Mux(front, inner.sent, 0), when=follows)
        valid = self.parts[0].o_record.valid
        self.lemma("at the output", valid & (inner.had == kept.had.parts), when=at_output)
        self.lemma("at the output when landed", since == LANDS + 1, when=at_output)
