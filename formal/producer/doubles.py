# SPDX-License-Identifier: Apache-2.0
"""Doubles of the producer's queues, whose contents a proof sees at once, and what makes them
such."""

from amaranth import Array, Const, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.lib import wiring

from formal.kit.inside import observe, stand_in
from formal.kit.spec import Spec, moves
from formal.parts.parts import nodes_in_use
from hub_rtl.parts.multi_queue import MultiQueue

from .tables import OpenRam

__all__ = ["AnyLists", "FilledIsExact", "OpenLists", "OpenQueue"]


class OpenQueue(wiring.Component):
    """Stands for ``queue``, a :class:`~hub_rtl.parts.ram_queue.RamQueue` (``parts.ram_queue``): it
    accepts up to ``depth`` items (that one takes one more)."""

    def __init__(self, queue):
        super().__init__(queue.signature)
        self.places = Array(
            Signal.like(queue.i.payload, name=f"place{n}") for n in range(queue.depth)
        )
        self.level = Signal(range(queue.depth + 1))
        stand_in(queue, self)

    def elaborate(self, platform):
        m = Module()
        put, take = moves(self.i), moves(self.o)
        m.d.comb += [
            self.i.ready.eq(self.level != len(self.places)),
            self.o.valid.eq(self.level != 0),
            self.o.payload.eq(self.places[0]),
        ]
        m.d.sync += self.level.eq(self.level + put - take)
        with m.If(take):
            m.d.sync += [
                place.eq(behind)
                for place, behind in zip(self.places, list(self.places)[1:], strict=False)
            ]
        with m.If(put):
            m.d.sync += self.places[self.level - take].eq(self.i.payload)
        return m


def orders_before(m, lists):
    """The append of the cycle before, the pops of the last two."""
    put = Signal.like(lists.append)
    pop1 = Signal.like(lists.pop)
    pop2 = Signal.like(lists.pop)
    m.d.sync += [
        put.eq(lists.append),
        pop1.eq(lists.pop),
        pop2.eq(pop1),
    ]
    return put, pop1, pop2


class OpenLists(MultiQueue):
    """Stands for ``lists``, a :class:`~hub_rtl.parts.multi_queue.MultiQueue`
    (``parts.multi_queue``, ``filled`` by :class:`FilledIsExact`): all nodes in one row, the oldest
    first."""

    def __init__(self, lists):
        nodes = lists.nodes
        super().__init__(lists.shape, lists.count, nodes)
        stand_in(lists, self)
        self.row = Array(Signal.like(self.append, name=f"row{n}") for n in range(nodes))
        self.level = Signal(range(nodes + 1))

    def has(self, node):
        """Whether ``node`` is in some queue."""
        return sum((n < self.level) & (each.node == node) for n, each in enumerate(self.row)) != 0

    def elaborate(self, platform):
        m = Module()
        append, pop, popped = self.append, self.pop, self.popped
        put, pop1, pop2 = orders_before(m, self)
        m.d.sync += self.level.eq(self.level + append.en - popped.en)
        m.d.comb += [
            self.may_append.eq(~(pop.en | pop1.en)),
            popped.en.eq(pop2.en),
        ]
        moves = Const(0)  # places behind the popped one
        for n, (each, behind) in enumerate(
            zip(self.row, [*list(self.row)[1:], append], strict=True)
        ):
            here = (n < self.level) & (each.queue == pop2.queue)
            with m.If(here & ~moves):
                m.d.comb += [
                    popped.node.eq(each.node),
                    popped.body.eq(each.body),
                ]
            moves = moves | here
            with m.If(pop2.en & moves):
                m.d.sync += each.eq(behind)
        with m.If(append.en):
            m.d.sync += self.row[self.level - popped.en].eq(append)
        for q in range(self.count):
            inside = sum((n < self.level) & (each.queue == q) for n, each in enumerate(self.row))
            m.d.comb += self.filled[q].eq(
                inside > (put.en & (put.queue == q)) + (pop2.en & (pop2.queue == q))
            )
        return m


class AnyLists(MultiQueue):
    """As :class:`OpenLists`, but a pop gives any node of its queue, in any order."""

    def __init__(self, lists):
        shape, count, nodes = lists.shape, lists.count, lists.nodes
        super().__init__(shape, count, nodes)
        stand_in(lists, self)
        self.inside = Signal(nodes)
        self.queues = Array(Signal(range(count), name=f"queue{n}") for n in range(nodes))
        self.bodies = Array(Signal(shape, name=f"body{n}") for n in range(nodes))

    def elaborate(self, platform):
        m = Module()
        append, pop, popped = self.append, self.pop, self.popped
        put, pop1, pop2 = orders_before(m, self)
        m.d.comb += self.may_append.eq(~(pop.en | pop1.en))
        wish = Signal(len(popped.node))
        listed = Signal(self.nodes)
        m.d.comb += wish.eq(AnySeq(len(wish)))
        for n in range(self.nodes):
            m.d.comb += listed[n].eq(self.inside[n] & (self.queues[n] == pop2.queue))
        first = 0
        for n in reversed(range(self.nodes)):
            first = Mux(listed[n], n, first)
        m.d.comb += [
            popped.en.eq(pop2.en),
            popped.node.eq(Mux(listed.bit_select(wish, 1), wish, first)),
            popped.body.eq(self.bodies[popped.node]),
        ]
        for q in range(self.count):
            m.d.comb += self.filled[q].eq(
                sum(self.inside[n] & (self.queues[n] == q) for n in range(self.nodes))
                > (put.en & (put.queue == q)) + (pop2.en & (pop2.queue == q))
            )
        with m.If(popped.en):
            m.d.sync += self.inside.bit_select(popped.node, 1).eq(0)
        with m.If(append.en):
            m.d.sync += [
                self.inside.bit_select(append.node, 1).eq(1),
                self.queues[append.node].eq(append.queue),
                self.bodies[append.node].eq(append.body),
            ]
        return m


class FilledIsExact(Spec):
    """``filled`` of any queue is 1 exactly while it has more nodes than were appended in the cycle
    before and are popped now.

    As in ``parts.multi_queue``: a node is in one queue at a time; only a filled queue is popped, at
    least 3 cycles after the pop before; appends come only with ``may_append``."""

    def __init__(self, count, nodes):
        super().__init__()
        self._count, self._nodes = count, nodes

    def build(self, m):
        m.submodules.dut = dut = MultiQueue(1, self._count, self._nodes)
        for ram in observe(dut):
            OpenRam(ram)
        self.free_inputs(dut)
        append, pop, past = dut.append, dut.pop, self.past
        queue = self.constant(range(self._count), "queue")
        recent = past(pop.en) | past(past(pop.en))
        used = nodes_in_use(m, dut, self._nodes)
        self.suppose(
            "queues exist",
            (pop.queue < self._count) & (append.queue < self._count) & (queue < self._count),
        )
        self.suppose(
            "a new node",
            (append.node < self._nodes) & ~used.bit_select(append.node, 1),
            when=append.en,
        )
        self.suppose("append when allowed", dut.may_append, when=append.en)
        self.suppose(
            "pop what is filled", dut.filled.bit_select(pop.queue, 1) & ~recent, when=pop.en
        )
        put, leaves = append.en & (append.queue == queue), past(past(pop.en & (pop.queue == queue)))
        inside = Signal(range(self._nodes + 2))
        m.d.sync += inside.eq(inside + put - leaves)
        self.always("filled", dut.filled.bit_select(queue, 1) == (inside > past(put) + leaves))
        self.always("no more than the nodes", inside <= self._nodes)
        self.reach("all in one queue", inside == self._nodes)
