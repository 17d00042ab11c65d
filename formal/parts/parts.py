# SPDX-License-Identifier: Apache-2.0
"""Promises of the small parts that every block is built from (``hub_rtl/parts``): queues, merges,
arbiters."""

import importlib

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.spec import Spec, moves
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.early_queue import EarlyQueue
from hub_rtl.parts.flush import FlushCounter
from hub_rtl.parts.multi_queue import MultiQueue
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.stream import StreamMerge

__all__ = [
    "EarlyQueueKeepsItems",
    "FlushCovers",
    "MergeKeepsItems",
    "MultiQueueKeepsItems",
    "QueueKeepsItems",
    "RamReturnsLastWrite",
    "RoundRobinServes",
]


class QueueKeepsItems(Spec):
    """Items leave a queue once, in order and unchanged; at most ``most`` are inside; with fewer
    than ``room`` inside it accepts; an item that came ``latency`` cycles ago is offered, if those
    before it have left. So a queue that is neither full nor empty takes and gives one item per
    cycle.

    ``part``: ``module:Class``, its ``arguments``.
    """

    def __init__(self, part, most, room, latency=1, **arguments):
        super().__init__()
        module, _, name = part.partition(":")
        self._part = getattr(importlib.import_module(module), name)(**arguments)
        self._most, self._room, self._latency = most, room, latency

    def build(self, m):
        m.submodules.dut = dut = self._part
        self.free_inputs(dut)
        self.always_held_all(dut)
        put, take = moves(dut.i), moves(dut.o)
        inside, *_ = self.always_fifo("items", put, dut.i.payload, take, dut.o.payload, self._most)
        self.always("accepts while there is room", dut.i.ready, when=inside < self._room)
        young = 0
        for n in range(1, self._latency):
            put = self.past(put, f"put{n}")
            young = young + put
        self.always("offers what has come", dut.o.valid, when=inside > young)
        self.reach("full", inside == self._most)
        if "level" in dut.signature.members:
            self.always("level counts the items", dut.level == inside)


class EarlyQueueKeepsItems(Spec):
    """What was at ``early`` in the cycle before ``push`` leaves the queue once, in order and
    unchanged; one that came in the cycle before is offered, if those before it have left. At most
    ``depth`` items are inside when one is pushed."""

    def __init__(self, width, depth):
        super().__init__()
        self._width, self._depth = width, depth

    def build(self, m):
        m.submodules.dut = dut = EarlyQueue(self._width, self._depth)
        self.free_inputs(dut)
        self.always_held_all(dut)
        take = moves(dut.o)
        inside, *_ = self.always_fifo(
            "items",
            dut.push,
            self.past(dut.early, "early_before"),
            take,
            dut.o.payload,
            self._depth + 1,
        )
        self.suppose("pushed after it was written", self.past(dut.write, "written"), when=dut.push)
        self.suppose(
            "pushed while there is room", inside - dut.o.valid < self._depth, when=dut.push
        )
        self.always("offers what has come", dut.o.valid == (inside != 0))
        self.reach("full", inside == self._depth + 1)


class MergeKeepsItems(Spec):
    """Items of all inputs leave a merge once, unchanged, in the order in which they were accepted,
    packets whole. One is accepted whenever there is a place and one may go; while an input waits,
    every other one begins at most one packet or item."""

    def __init__(self, count, packets):
        super().__init__()
        self._count, self._packets = count, packets

    def build(self, m):
        count, packets = self._count, self._packets
        shape = data.StructLayout({"body": 2, "first": 1, "last": 1})
        m.submodules.dut = dut = StreamMerge(shape, count, packets)
        self.free_inputs(dut)
        self.always_held_all(dut)
        accepted = Cat(moves(i) for i in dut.i)
        item = Signal(shape)
        for n, i in enumerate(dut.i):
            with m.If(accepted[n]):
                m.d.comb += item.eq(i.payload)
        take = moves(dut.o)
        inside, *_ = self.always_fifo(
            "items", accepted.any(), item.as_value(), take, dut.o.payload.as_value(), 2
        )
        self.always("one at a time", (accepted & (accepted - 1)) == 0)

        holder = Signal(count)  # who sent last
        in_packet = Signal()  # its packet goes on
        with m.If(accepted.any()):
            m.d.sync += [
                holder.eq(accepted),
                in_packet.eq(packets & ~item.last),
            ]
        may_go = Mux(in_packet, holder, -1) & Cat(i.valid for i in dut.i)
        self.always("accepts while there is room", accepted.any(), when=may_go.any() & (inside < 2))
        if packets:
            self.always("packets are whole", accepted == holder, when=accepted.any() & in_packet)
        # Fairness: any two inputs.
        mine, other = Signal(count, name="mine"), Signal(count, name="other")
        for each in (mine, other):
            m.d.comb += each.eq(1 << self.constant(range(count), "index"))
        waits = Signal()
        begun = Signal(range(4))
        begins = (accepted & other).any() & ~in_packet
        m.d.comb += waits.eq((Cat(i.valid for i in dut.i) & mine & ~accepted).any())
        m.d.sync += begun.eq(Mux(waits, begun + begins, 0))
        self.always("others pass at most once", begun <= 1, when=mine != other)
        self.reach("one passed", (begun == 1) & (mine != other))


class RoundRobinServes(Spec):
    """At most one grant, and with ``hold`` low only to a request, and always one if there is any; a
    request that stays is served within ``count`` uses of the grant. With ``hold`` the grant stays
    with whom it served last."""

    def __init__(self, count):
        super().__init__()
        self._count = count

    def build(self, m):
        count = self._count
        m.submodules.dut = dut = RoundRobin(count)
        self.free_inputs(dut)
        grant, requests = dut.grant_onehot, dut.requests
        used = dut.advance & grant.any()
        last = Signal(count)
        with m.If(used):
            m.d.sync += last.eq(grant)
        self.always("one grant", (grant & (grant - 1)) == 0)
        self.always("only to a request", (grant & ~requests) == 0, when=~dut.hold)
        self.always("to some request", grant.any(), when=~dut.hold & requests.any())
        self.always("hold keeps", grant == last, when=dut.hold & last.any())
        mine = Signal(count)
        uses = Signal(range(count + 2))
        m.d.comb += mine.eq(1 << self.constant(range(count), "index"))
        # The holder's uses during one grant are one turn.
        m.d.sync += uses.eq(
            Mux(
                (requests & mine).any() & ~(used & (grant & mine).any()),
                uses + (used & ~dut.hold),
                0,
            )
        )
        self.always("served in turn", uses < count)
        self.reach("all others first", uses == count - 1)


class RamReturnsLastWrite(Spec):
    """A read gives what was written last to that word and granule, also by a write in the same
    cycle, and 0 if nothing was written since the walker cleared it; the data stay until the next
    read. Followed: any one granule of any one word.

    The user does not write while the walker works."""

    def __init__(self, width, depth, granules=1, clear=False):
        super().__init__()
        self._width, self._depth, self._granules, self._clear = width, depth, granules, clear

    def build(self, m):
        m.submodules.dut = dut = Ram(self._width, self._depth, self._granules, self._clear)
        self.free_inputs(dut)
        where, granule = (
            self.constant(range(self._depth), "where"),
            self.constant(range(self._granules), "granule"),
        )
        grain = self._width // self._granules
        self.suppose("granule exists", granule < self._granules)
        self.suppose("word exists", where < self._depth)
        self.suppose("reads exist", dut.r_addr < self._depth, when=dut.r_en)
        self.suppose("writes exist", dut.w_addr < self._depth, when=dut.w_en.any())
        known = Signal(init=self._clear)
        value = Signal(grain)
        new_known = Signal()
        new_value = Signal(grain)
        writes = dut.w_en.bit_select(granule, 1) & (dut.w_addr == where)
        m.d.comb += [
            new_known.eq(known | writes),
            new_value.eq(Mux(writes, dut.w_data.word_select(granule, grain), value)),
        ]
        m.d.sync += [
            known.eq(new_known),
            value.eq(new_value),
        ]
        shown = Signal()
        expected = Signal(grain)
        with m.If(dut.r_en):
            m.d.sync += [
                shown.eq((dut.r_addr == where) & new_known & ~dut.clearing),
                expected.eq(new_value),
            ]
        self.always(
            "last write is read", dut.r_data.word_select(granule, grain) == expected, when=shown
        )
        if self._clear:
            self.suppose("no write during clearing", ~dut.w_en.any(), when=dut.clearing)
            cycles = Signal(range(self._depth + 2))
            m.d.sync += cycles.eq(Mux(cycles == self._depth, cycles, cycles + 1))
            self.always("cleared in depth cycles", dut.clearing == (cycles != self._depth))
        else:
            self.always("nothing to clear", ~dut.clearing)


class FlushCovers(Spec):
    """After a strobe ``flushing`` is 1 exactly as long as something is inside that entered up to
    the strobe's cycle; ``occupied`` tells that anything is inside.

    Things leave in order, and no more than ``depth`` are inside: the block around it sees to it."""

    def __init__(self, depth):
        super().__init__()
        self._depth = depth

    def build(self, m):
        m.submodules.dut = dut = FlushCounter(self._depth)
        self.free_inputs(dut)
        inside = Signal(range(self._depth + 1))
        since = Signal(range(self._depth + 1))
        strobed = Signal()
        self.suppose("leaves only what is inside", (inside != 0) | dut.enter, when=dut.leave)
        self.suppose("fits", (inside != self._depth) | dut.leave, when=dut.enter)
        m.d.sync += [
            inside.eq(inside + dut.enter - dut.leave),
            strobed.eq(strobed | dut.flush),
            since.eq(Mux(dut.flush, 0, Mux(since == self._depth, since, since + dut.enter))),
        ]
        self.always("flushing exact", dut.flushing == (strobed & (inside > since)))
        self.always("occupied exact", dut.occupied == (inside != 0))
        self.reach(
            "later traffic does not count", strobed & ~dut.flushing & (inside == self._depth)
        )


def nodes_in_use(m, dut, nodes):
    """A bit for each node of a MultiQueue: it is in some queue."""
    used = Signal(nodes)
    with m.If(dut.append.en):
        m.d.sync += used.bit_select(dut.append.node, 1).eq(1)
    with m.If(dut.popped.en):
        m.d.sync += used.bit_select(dut.popped.node, 1).eq(0)
    return used


class MultiQueueKeepsItems(Spec):
    """Each queue gives its nodes once, in order, with their bodies, two cycles after ``pop``, and
    nothing that it did not get; ``filled`` is 1 from two cycles after an append to the empty queue
    until its last node is on its way out. Followed: any one queue; the other ones share the memory
    with it.

    A node is in one queue at a time; only a filled queue is popped, at least 3 cycles after the pop
    before; appends come only with ``may_append``."""

    def __init__(self, count, nodes, width):
        super().__init__()
        self._count, self._nodes, self._width = count, nodes, width

    def build(self, m):
        count, nodes = self._count, self._nodes
        m.submodules.dut = dut = MultiQueue(self._width, count, nodes)
        self.free_inputs(dut)
        append, pop, popped = dut.append, dut.pop, dut.popped
        queue = self.constant(range(count), "queue")
        used = nodes_in_use(m, dut, nodes)
        recent = [self.past(pop.en, "popped_before")]
        recent.append(self.past(recent[0], "popped_twice_before"))
        self.suppose("queues exist", (pop.queue < count) & (append.queue < count) & (queue < count))
        self.suppose(
            "a new node", (append.node < nodes) & ~used.bit_select(append.node, 1), when=append.en
        )
        self.suppose("append when allowed", dut.may_append, when=append.en)
        self.suppose(
            "pop what is filled",
            dut.filled.bit_select(pop.queue, 1) & ~Cat(recent).any(),
            when=pop.en,
        )
        mine = self.past(recent[0] & self.past(pop.queue == queue, "mine_before"), "mine")
        self.always("answers after two cycles", popped.en == recent[1])
        put, take = append.en & (append.queue == queue), popped.en & mine
        inside, *_ = self.always_fifo(
            "nodes",
            put,
            Cat(append.node, append.body),
            take,
            Cat(popped.node, popped.body),
            nodes,
            placed=True,
        )
        put1 = self.past(put, "put_before")
        # Nodes asked for have left in this sense.
        ask = self.past(pop.en & (pop.queue == queue), "asked")
        asked = ask + self.past(ask, "asked_before")
        shown = dut.filled.bit_select(queue, 1)
        self.always("filled when something is there", shown, when=inside > put1 + asked)
        self.always("empty when nothing is there", ~shown, when=inside == 0)
        self.always("append allowed except around a pop", dut.may_append == ~(pop.en | recent[0]))
