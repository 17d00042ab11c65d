# SPDX-License-Identifier: Apache-2.0
"""Many queues that share one memory: linked lists of numbered nodes."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width

from .mutants import mutant
from .ram import Ram

__all__ = ["MultiQueue"]


class MultiQueueObserve(NamedTuple):
    """What a proof may see of a :class:`MultiQueue`: its memories."""

    head: Ram  #: by queue, its first node
    tail: Ram  #: by queue, its last node
    after: Ram  #: by node, the next one in its queue
    body: Ram  #: by node, what it holds


class MultiQueue(wiring.Component):
    """``count`` first-in first-out queues over ``nodes`` places that the user numbers.

    Contract: a node is in one queue at a time and not appended again before it was popped; the user
    sees to it. Only a queue whose ``filled`` bit is set may be popped.

    Latency: ``filled`` rises 2 cycles after ``append``; ``popped`` comes 2 cycles after ``pop``,
    and with the last one ``filled`` falls in that cycle. One append per cycle while ``may_append``,
    which is 0 in the cycle of a pop and in the one after; pops at least 3 cycles apart. Order per
    queue is kept.

    Parameters: ``shape``, what is kept per node; ``count``, queues, 1 or more; ``nodes``, 1 or
    more. Ports: ``append`` In {en, queue, node, body}; ``may_append`` Out; ``pop`` In {en, queue};
    ``popped`` Out {en, node, body}; ``filled`` Out ``count``.
    """

    observe: MultiQueueObserve  # once elaborated

    def __init__(self, shape, count, nodes):
        queue, node = index_width(count), index_width(nodes)
        super().__init__(
            {
                "append": In(
                    data.StructLayout({"en": 1, "queue": queue, "node": node, "body": shape})
                ),
                "may_append": Out(1),
                "pop": In(data.StructLayout({"en": 1, "queue": queue})),
                "popped": Out(data.StructLayout({"en": 1, "node": node, "body": shape})),
                "filled": Out(count),
            }
        )
        self.shape, self.count, self.nodes = shape, count, nodes

    def elaborate(self, platform):
        m = Module()
        node = index_width(self.nodes)
        m.submodules.head = head = Ram(node, self.count)
        m.submodules.tail = tail = Ram(node, self.count)
        m.submodules.after = after = Ram(node, self.nodes)
        m.submodules.body = body = Ram(self.shape, self.nodes)
        self.observe = MultiQueueObserve(head, tail, after, body)
        pop1 = Signal.like(self.pop)
        pop2 = Signal.like(self.pop)
        put = Signal.like(self.append)
        node2 = Signal(node)
        last1 = Signal()
        behind = Signal()
        m.d.sync += [
            pop1.eq(self.pop),
            pop2.eq(pop1),
            put.eq(self.append),
            node2.eq(head.r_data),
        ]
        m.d.comb += [
            # The tail is read by an append and, to see whether its node is the last one, by a pop.
            self.may_append.eq(~(self.pop.en | pop1.en)),
            tail.r_en.eq(self.append.en | self.pop.en),
            tail.r_addr.eq(Mux(self.pop.en, self.pop.queue, self.append.queue)),
            head.r_en.eq(self.pop.en),
            head.r_addr.eq(self.pop.queue),
            # Second cycle of an append: link it behind the tail. An empty queue's tail is a node
            # that others may use now.
            behind.eq(self.filled.bit_select(put.queue, 1)),
            tail.w_en.eq(put.en),
            tail.w_addr.eq(put.queue),
            tail.w_data.eq(put.node),
            after.w_en.eq(put.en & behind),
            after.w_addr.eq(tail.r_data),
            after.w_data.eq(put.node),
            body.w_en.eq(put.en),
            body.w_addr.eq(put.node),
            body.w_data.eq(put.body),
            # Second cycle of a pop: the first node and its successor.
            last1.eq(mutant("parts.multi_queue_ends_after_one", head.r_data == tail.r_data, 1)),
            after.r_en.eq(pop1.en),
            after.r_addr.eq(head.r_data),
            body.r_en.eq(pop1.en),
            body.r_addr.eq(head.r_data),
            # Third cycle: the successor is the first one now. Never together with the second cycle
            # of an append.
            head.w_en.eq(pop2.en | (put.en & ~behind)),
            head.w_addr.eq(Mux(pop2.en, pop2.queue, put.queue)),
            head.w_data.eq(Mux(pop2.en, after.r_data, put.node)),
            self.popped.en.eq(pop2.en),
            self.popped.node.eq(node2),
            self.popped.body.eq(body.r_data),
        ]
        for n in range(self.count):
            with m.If(pop1.en & last1 & (pop1.queue == n)):
                m.d.sync += self.filled[n].eq(0)
            with m.Elif(put.en & (put.queue == n)):
                m.d.sync += self.filled[n].eq(1)
        return m
