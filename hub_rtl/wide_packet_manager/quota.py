# SPDX-License-Identifier: Apache-2.0
"""Free entries, and who may take one: one reserved per rank, a maximum per rank, the rest
shared."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import wide_types_of

__all__ = ["FreeList", "Quota", "ON_THE_WAY"]

#: Stores that may be between the crossbar and this block when ``can_accept`` falls, and those
#: inside it that do not count yet.
ON_THE_WAY = 8 + 6


class FreeList(wiring.Component):
    """Numbers of the free entries, first in first out; those that were never used come first.

    Contract: the user takes only what is there. ``free`` is the next one, ``takes`` takes it,
    ``gives`` gives one back; one of each per cycle, and what is given can be taken in the next
    cycle. Both words that may come next are read, so ``takes`` may be late in its cycle.

    Parameters: ``cfg``, ``slice_bytes``. Ports: ``free`` Out; ``takes`` In; ``gives`` In.
    """

    def __init__(self, cfg, slice_bytes):
        self._cfg, self._types = cfg, wide_types_of(cfg, slice_bytes)
        t = self._types
        super().__init__({"free": Out(t.index_width), "takes": In(1), "gives": In(t.leaves)})

    def elaborate(self, platform):
        m = Module()
        t = self._types
        unused, newest, oldest = Signal(t.count_width), Signal(t.index_width), Signal(t.index_width)
        all_used, took = Signal(), Signal()
        words = [Ram(t.index_width, self._cfg.pool_depth, quick=True) for _ in range(2)]
        for n, word in enumerate(words):
            m.submodules[f"word_{n}"] = word
            m.d.comb += [
                word.w_en.eq(self.gives.en),
                word.w_addr.eq(newest),
                word.w_data.eq(self.gives.index),
                word.r_en.eq(1),
                word.r_addr.eq(oldest + n),
            ]
        m.d.comb += [
            all_used.eq(unused[-1]),
            self.free.eq(Mux(all_used, Mux(took, words[1].r_data, words[0].r_data), unused)),
        ]
        m.d.sync += [
            newest.eq(newest + self.gives.en),
            oldest.eq(oldest + (self.takes & all_used)),
            took.eq(self.takes & all_used),
            unused.eq(unused + (self.takes & ~all_used)),
        ]
        return m


class Quota(wiring.Component):
    """Counts the entries of each rank and decides whether one more is allowed.

    Contract: free entries are never fewer than ranks without one, so a rank without an entry always
    gets one; a rank with entries gets another while it has fewer than ``max_entries`` (0 counts as
    1) and a shared one is free. ``can_accept[r]`` promises entries for ON_THE_WAY stores, or for as
    many as there are shared ones if that is fewer, or the reserved one of a rank that has none.

    Latency: ``place`` answers ``asks`` in the same cycle; an entry that is taken counts one cycle
    later, and until then the answer supposes that it was a shared one: a store can wait for one
    cycle in vain. ``can_accept`` is registered.

    Parameters: ``cfg``, ``slice_bytes``. Ports: ``asks`` In, one-hot rank; ``asks_again`` In, it is
    the rank that asked in the cycle before; ``takes`` In; ``place`` Out; ``at_max`` Out, the rank's
    own maximum forbids it; ``leaves`` In; ``max_entries`` In, from the next cycle on;
    ``can_accept`` Out ranks; ``entries`` Out, of each rank, as of the next cycle.
    """

    def __init__(self, cfg, slice_bytes):
        self._cfg, self._types = cfg, wide_types_of(cfg, slice_bytes)
        t = self._types
        super().__init__(
            {
                "asks": In(cfg.ranks),
                "asks_again": In(1),
                "takes": In(1),
                "place": Out(1),
                "at_max": Out(1),
                "leaves": In(t.leaves),
                "max_entries": In(t.count_width),
                "can_accept": Out(cfg.ranks),
                "entries": Out(t.count_width).array(cfg.ranks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, width = self._cfg, self._types.count_width
        spare = cfg.pool_depth - cfg.ranks
        room = min(ON_THE_WAY, spare)
        shared, shared_next = Signal(width, init=spare), Signal(width)
        some, two = Signal(init=1), Signal(init=spare > 1)
        took, taker, comes, goes = (
            Signal(),
            *(Signal(cfg.ranks, name=n) for n in ("taker", "comes", "goes")),
        )
        none, one = Signal(cfg.ranks, init=-1), Signal(cfg.ranks)
        below, below_then = Signal(cfg.ranks, init=-1), Signal(cfg.ranks, init=-1)
        first, less, more = Signal(), Signal(), Signal()
        m.d.comb += [
            comes.eq(Mux(took, taker, 0)),
            goes.eq(Mux(self.leaves.en, 1 << self.leaves.rank, 0)),
            # A rank's first entry comes out of its reserve, its last one goes back there.
            less.eq(took & ~(taker & none).any()),
            more.eq(self.leaves.en & ~(goes & one & ~comes).any()),
            shared_next.eq(shared + more - less),
        ]
        m.d.sync += [
            took.eq(self.takes),
            taker.eq(self.asks),
            shared.eq(shared_next),
            some.eq(shared_next != 0),
            two.eq(shared_next > 1),
        ]
        for r in range(cfg.ranks):
            count, after = Signal(width, name=f"count_{r}"), self.entries[r]
            m.d.comb += after.eq(count + comes[r] - goes[r])
            m.d.sync += [
                count.eq(after),
                none[r].eq(after == 0),
                one[r].eq(after == 1),
                below[r].eq(after < self.max_entries),
                below_then[r].eq(after + 1 < self.max_entries),
                self.can_accept[r].eq(
                    none[r]
                    | (
                        (shared >= room)
                        & mutant(
                            "wide_packet_manager.one_entry_over_maximum",
                            count + room <= self.max_entries,
                            count + room <= self.max_entries + 1,
                        )
                    )
                ),
            ]
        again, allowed = Signal(), Signal()
        m.d.comb += [
            again.eq(took & mutant("wide_packet_manager.taker_not_seen", self.asks_again, 0)),
            first.eq((self.asks & none).any() & ~again),
            allowed.eq((self.asks & Mux(again, below_then, below)).any()),
            self.place.eq(first | (allowed & Mux(took, two, some))),
            self.at_max.eq(~first & ~allowed),
        ]
        return m
