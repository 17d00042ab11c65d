# SPDX-License-Identifier: Apache-2.0
"""Which packets wait, a first-in first-out list per source, linked through one memory."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

__all__ = ["SourceLists"]


class SourceListsObserve(NamedTuple):
    """What a proof may see of :class:`SourceLists`."""

    counts: list  #: packets of each source


class SourceLists(wiring.Component):
    """A list of packets per source.

    Contract: ``picked`` is the first packet of the source that was picked in the cycle before, and
    holds until the next pick. Only a source whose ``filled`` bit is set is picked; a place that
    is in a list is not appended again.

    Latency: a packet appended in this cycle can be picked in the next. An append and a pick per
    cycle, of any sources, also all of one.

    How: a source's packets go into two lists in turn, so each of them is read and relinked every
    second cycle at most. A list's first node stands in one of two memories: where an append to an
    empty list wrote it, or where the pick before it did.

    Parameters: ``cfg``, ``types``. Ports: ``append`` In {en, src, node}; ``pick`` In {en, src};
    ``picked`` Out node; ``filled`` Out ``ranks``, registers.
    """

    observe: SourceListsObserve  # once elaborated

    def __init__(self, cfg, types):
        super().__init__(
            {
                "append": In(types.append),
                "pick": In(types.pick),
                "picked": Out(types.node),
                "filled": Out(cfg.ranks),
            }
        )
        self._cfg, self._types = cfg, types

    def elaborate(self, platform):
        m = Module()
        t, lists = self._types, 2 * self._cfg.ranks
        m.submodules.tails = tails = Ram(t.place_width, lists)
        m.submodules.after = after = Ram(t.node, t.places)
        m.submodules.begun = begun = Ram(t.node, lists)  # first nodes: of lists that were empty
        m.submodules.moved = moved = Ram(t.node, lists)  # those that a pick left
        alone = Signal()  # the list is empty
        to = Signal()  # which of a source's two
        at = Signal()
        relinked = Signal()
        self._count(m, alone, to, at, relinked)

        put = Signal.like(self.append)
        linked = Signal(range(lists))
        again = Signal()
        picked = Signal()
        from_move = Signal()
        more = Signal(range(lists))
        m.d.sync += [
            put.eq(self.append),
            linked.eq(Cat(to, self.append.src)),
            again.eq(alone),
            picked.eq(self.pick.en),
            more.eq(Cat(at, self.pick.src)),
        ]
        with m.If(self.pick.en):
            m.d.sync += from_move.eq(relinked)
        # Append: the node before is known one cycle later.
        m.d.comb += [
            tails.r_en.eq(self.append.en),
            tails.r_addr.eq(Cat(to, self.append.src)),
            tails.w_en.eq(put.en),
            tails.w_addr.eq(linked),
            tails.w_data.eq(put.node.place),
            after.w_en.eq(put.en & ~again),
            after.w_addr.eq(tails.r_data),
            after.w_data.eq(put.node),
            begun.w_en.eq(put.en & again),
            begun.w_addr.eq(linked),
            begun.w_data.eq(put.node),
        ]
        # Pick: the first node one cycle later, the node behind it two.
        follows = Signal()
        which = Signal(range(lists))
        m.d.sync += [follows.eq(picked), which.eq(more)]
        m.d.comb += [
            *(ram.r_en.eq(self.pick.en) for ram in (begun, moved)),
            *(ram.r_addr.eq(Cat(at, self.pick.src)) for ram in (begun, moved)),
            self.picked.eq(Mux(from_move, moved.r_data, begun.r_data)),
            after.r_en.eq(picked),
            after.r_addr.eq(self.picked.place),
            moved.w_en.eq(follows),
            moved.w_addr.eq(which),
            moved.w_data.eq(after.r_data),
        ]
        return m

    def _count(self, m, alone, to, at, relinked):
        """Packets of each source, whose turn its two lists are, and where their first nodes are."""
        counts = []
        appended, picked = self.append, self.pick
        for n in range(self._cfg.ranks):
            count, comes, goes = (
                Signal(range(self._types.places + 1), name=f"count_{n}"),
                Signal(name=f"comes_{n}"),
                Signal(name=f"goes_{n}"),
            )
            next_in, next_out, is_moved, empty = (
                Signal(name=f"next_in_{n}"),
                Signal(name=f"next_out_{n}"),
                Signal(2, name=f"is_moved_{n}"),
                Signal(name=f"empty_{n}"),
            )
            counts.append(count)
            m.d.comb += [
                comes.eq(appended.en & (appended.src == n)),
                goes.eq(picked.en & (picked.src == n)),
                # Of two lists that are filled in turn the one that is next has the half, rounded
                # down.
                empty.eq(
                    mutant(
                        "receive_pool.pick_at_append_not_seen",
                        (count <= 1) | ((count == 2) & goes),
                        count <= 1,
                    )
                ),
            ]
            m.d.sync += [
                next_in.eq(next_in ^ comes),
                next_out.eq(next_out ^ goes),
            ]
            # The count without a pick and with one; the pick chooses, it is not added up.
            before = Signal.like(count, name=f"before_{n}")
            m.d.comb += before.eq(count + comes)
            m.d.sync += [
                count.eq(Mux(goes, before - 1, before)),
                self.filled[n].eq(Mux(goes, before != 1, before != 0)),
            ]
            with m.If(goes & (count > 2)):
                m.d.sync += is_moved.bit_select(next_out, 1).eq(1)
            with m.If(comes & empty):
                m.d.sync += is_moved.bit_select(next_in, 1).eq(0)
            with m.If(appended.src == n):
                m.d.comb += [to.eq(next_in), alone.eq(empty)]
            with m.If(picked.src == n):
                m.d.comb += [
                    at.eq(mutant("receive_pool.lists_not_in_turn", next_out, 0)),
                    relinked.eq(is_moved.bit_select(next_out, 1)),
                ]
        self.observe = SourceListsObserve(counts)
