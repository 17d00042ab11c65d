# SPDX-License-Identifier: Apache-2.0
"""Free entries, and who may take one: one reserved per rank, a maximum per rank, the rest
shared."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import pool_types_of

__all__ = ["FreeList", "Quota", "ON_THE_WAY"]

#: Stores that may be between the crossbar and this block when ``can_accept`` falls, and those
#: inside it that do not count yet.
ON_THE_WAY = 8 + 6


class FreeList(wiring.Component):
    """Numbers of the free entries, first in first out; those that were never used come first.

    Contract: the user takes only what is there. ``free`` is the next one, ``takes`` takes it,
    ``gives`` gives one back; one of each per cycle, and what is given can be taken in the next
    cycle. Words lie in two memories, of even and of odd places, and both that may come next are
    read, so ``takes`` may be late in its cycle.

    Parameters: ``cfg``. Ports: ``free`` Out; ``takes`` In; ``gives`` In.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__({"free": Out(t.index_width), "takes": In(1), "gives": In(t.leaves)})

    def elaborate(self, platform):
        m = Module()
        t = self._types
        unused = Signal(t.count_width)
        newest = Signal(t.index_width)
        oldest = Signal(t.index_width)
        all_used = Signal()
        even, odd = (Ram(t.index_width, self._cfg.pool_depth // 2, quick=True) for _ in range(2))
        m.submodules.even, m.submodules.odd = even, odd
        for half, gives, place in (
            (even, ~newest[0], (oldest + 1)[1 : len(oldest)]),
            (odd, newest[0], oldest[1:]),
        ):
            m.d.comb += [
                half.w_en.eq(self.gives.en & gives),
                half.w_addr.eq(newest[1:]),
                half.w_data.eq(self.gives.index),
                half.r_en.eq(1),
                half.r_addr.eq(mutant("packet_manager.given_word_read_late", place, oldest[1:])),
            ]
        m.d.comb += [
            all_used.eq(unused[-1]),
            self.free.eq(Mux(all_used, Mux(oldest[0], odd.r_data, even.r_data), unused)),
        ]
        m.d.sync += newest.eq(newest + self.gives.en)
        with m.If(self.takes & all_used):
            m.d.sync += oldest.eq(oldest + 1)
        with m.If(self.takes & ~all_used):
            m.d.sync += unused.eq(unused + 1)
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

    Parameters: ``cfg``. Ports: ``asks`` In, one-hot rank; ``asks_again`` In, it is
    the rank that asked in the cycle before; ``takes`` In; ``place`` Out; ``at_max`` Out, the rank's
    own maximum forbids it; ``leaves`` In; ``policy`` In, from the next cycle on;
    ``can_accept`` Out ranks; ``entries`` Out, of each rank, as of the next cycle.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "asks": In(cfg.ranks),
                "asks_again": In(1),
                "takes": In(1),
                "place": Out(1),
                "at_max": Out(1),
                "leaves": In(t.leaves),
                "policy": In(t.policy),
                "can_accept": Out(cfg.ranks),
                "entries": Out(t.count_width).array(cfg.ranks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, width = self._cfg, self._types.count_width
        spare = cfg.pool_depth - cfg.ranks
        room = min(ON_THE_WAY, spare)
        shared = Signal(width, init=spare)
        some = Signal()  # shared ones in the next cycle: any
        two = Signal()  # more than one
        took, first, less, more = (Signal(name=name) for name in ("took", "first", "less", "more"))
        taker, comes, goes = (Signal(cfg.ranks, name=name) for name in ("taker", "comes", "goes"))
        none = Signal(cfg.ranks, init=-1)
        one = Signal(cfg.ranks)
        # May a rank have one more: if nobody took one in the cycle before, if another one did, if
        # it did itself. All are written as if the one taken had been a shared one.
        quiet, after_other, after_own, below = (
            Signal(cfg.ranks, init=-1, name=name)
            for name in ("quiet", "after_other", "after_own", "below")
        )
        most = self.policy.max_entries
        limits = [Signal(width, name=f"limit_{n}") for n in range(3)]  # most, less one, less two
        m.d.comb += [
            comes.eq(Mux(took, taker, 0)),
            goes.eq(Mux(self.leaves.en, 1 << self.leaves.rank, 0)),
            # A rank's first entry comes out of its reserve, its last one goes back there.
            first.eq((taker & none).any()),
            less.eq(took & ~first),
            more.eq(self.leaves.en & ~(goes & one & ~comes).any()),
            some.eq(_choice(more, less, shared != 0, Const(1), shared > 1)),
            two.eq(_choice(more, less, shared > 1, shared != 0, shared > 2)),
        ]
        m.d.sync += [
            took.eq(self.takes),
            taker.eq(self.asks),
            shared.eq(shared + more - less),
            *(limit.eq(Mux(most > n, most - n, 0)) for n, limit in enumerate(limits)),
        ]
        for r in range(cfg.ranks):
            count, up, down = Signal(width, name=f"count_{r}"), comes[r], goes[r]
            empty, under, under_then = (
                Signal(name=f"{name}_{r}") for name in ("empty", "under", "under_then")
            )
            m.d.comb += [
                self.entries[r].eq(count + up - down),
                empty.eq(_choice(up, down, none[r], Const(0), one[r])),
                under.eq(
                    _choice(up, down, count < limits[0], count < limits[1], count <= limits[0])
                ),
                under_then.eq(
                    _choice(up, down, count < limits[1], count < limits[2], count < limits[0])
                ),
            ]
            m.d.sync += [
                count.eq(self.entries[r]),
                none[r].eq(empty),
                one[r].eq(_choice(up, down, one[r], none[r], count == 2)),
                below[r].eq(empty | under),
                quiet[r].eq(empty | (under & some)),
                after_other[r].eq(empty | (under & two)),
                after_own[r].eq(under_then & two),
                self.can_accept[r].eq(
                    none[r]
                    | (
                        (shared >= room)
                        & mutant(
                            "packet_manager.one_entry_over_maximum",
                            count + room <= most,
                            count + room <= most + 1,
                        )
                    )
                ),
            ]
        again = took & mutant("packet_manager.taker_not_seen", self.asks_again, 0)
        m.d.comb += [
            self.place.eq((self.asks & Mux(again, after_own, Mux(took, after_other, quiet))).any()),
            self.at_max.eq(~(self.asks & below).any()),
        ]
        return m


def _choice(up, down, same, more, less):
    """What holds in the next cycle of a number that may go up or down."""
    return Mux(up & ~down, more, Mux(down & ~up, less, same))
