# SPDX-License-Identifier: Apache-2.0
"""Promises of the receive pool's lists and places (docs/blocks/receive_pool.md)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, one_of
from hub_rtl.parts.onehot import select
from hub_rtl.receive_pool.admission import TICKETS, Admission
from hub_rtl.receive_pool.receive_pool import ReceivePool
from hub_rtl.receive_pool.records import pool_types_of
from hub_rtl.receive_pool.source_lists import SourceLists

__all__ = ["BeatsFollowTheirSource", "ListsInOrder", "PlacesComeBack", "PlacesGivenOnce"]

SLICE = 128  # a packet is one part


class ListsInOrder(Spec):
    """The packets of a source leave its list in the order in which they came, each once, with its
    parts; a source is filled exactly while it has one. Packets come and are picked in any cycles,
    of any sources."""

    def __init__(self, cfg, places):
        super().__init__(cfg)
        self._types = pool_types_of(cfg, SLICE, places)

    def build(self, m):
        cfg, t = self._cfg, self._types
        m.submodules.dut = dut = SourceLists(cfg, t)
        self.free_inputs(dut)
        source = self.constant(range(cfg.ranks), "source")
        listed = Signal(t.places)
        place = dut.append.node.place
        picked = Signal()
        picks = Signal()
        comes = Signal()
        leaves = Signal(t.places)
        picks_before = self.past(dut.pick.en, "left")
        m.d.comb += [
            comes.eq(dut.append.en & (dut.append.src == source)),
            picks.eq(dut.pick.en & (dut.pick.src == source)),
            leaves.eq(Mux(picks_before, 1 << dut.picked.place, 0)),
        ]
        m.d.sync += [
            picked.eq(picks),
            listed.eq((listed & ~leaves) | Mux(dut.append.en, 1 << place, 0)),
        ]
        self.suppose("sources exist", (dut.append.src < cfg.ranks) & (dut.pick.src < cfg.ranks))
        self.suppose("places exist", place < t.places)
        self.suppose("a place is listed once", ~listed.bit_select(place, 1), when=dut.append.en)
        self.suppose(
            "what is picked is there", dut.filled.bit_select(dut.pick.src, 1), when=dut.pick.en
        )
        inside, _, _ = self.always_fifo(
            "list", comes, dut.append.node, picked, dut.picked, t.places + 1
        )
        stays = dut.picked.as_value() == self.past(dut.picked.as_value(), "before")
        self.always("picked stays", stays, when=self.started & ~picks_before)
        there = inside - picked  # but for the one that was picked in the cycle before
        self.always("filled while there is one", dut.filled.bit_select(source, 1) == (there != 0))


class PlacesGivenOnce(Spec):
    """No place is given to two packets at a time; nobody gets more places than its limit says, or
    one that does not exist. Limits rise and fall in any way."""

    def __init__(self, cfg, places):
        super().__init__(cfg)
        self._types = pool_types_of(cfg, SLICE, places)

    def build(self, m):
        cfg, t = self._cfg, self._types
        m.submodules.dut = dut = Admission(cfg, t, 1)
        self.free_inputs(dut)
        place = self.constant(range(t.places), "place")
        held = Signal()
        ticket = dut.o_ticket[0]
        given = moves(ticket) & ticket.p.admitted
        takes = given & (ticket.p.place == place)
        frees = dut.free.en & (dut.free.place == place)
        m.d.sync += held.eq((held | takes) & ~frees)
        out = Signal(range(t.places + 1))
        m.d.sync += out.eq(out + given - dut.free.en)
        self.suppose("frees what is held", held, when=frees)
        self.suppose("frees no more than is held", out != 0, when=dut.free.en)
        self.suppose("places exist", dut.free.place < t.places, when=dut.free.en)
        self.suppose("sources exist", dut.i_source[0].payload < cfg.ranks)
        self.suppose("limits of sources", dut.limit_write.rank < cfg.ranks, when=dut.limit_write.en)
        self.always("place was free", ~held, when=takes)
        self.always("place exists", ticket.p.place < t.places, when=given)
        self.always("no more than there are", out != t.places, when=given)


class _Pool(Spec):
    """A pool of two parts for a packet with free inputs; of its parts all but ``kept`` are cut
    out."""

    kept = ""

    def __init__(self, cfg, places, links):
        super().__init__(cfg)
        self._places, self._links = places, links

    def build(self, m):
        m.submodules.dut = dut = ReceivePool(self._cfg, SLICE // 2, self._links, self._places)
        inside = observe(dut)
        for part in inside:
            if part is not getattr(inside, self.kept, None):
                cut(self, part)
        self.free_inputs(dut)
        self.promise(m, dut, inside)


class BeatsFollowTheirSource(_Pool):
    """A link's packet is taken only when its source was taken before: by then the packet has its
    ticket. Until the tables are cleared none is taken, and no place comes back."""

    kept = "admission"

    def promise(self, m, dut, inside):
        link = self.constant(range(self._links), "link")
        self.suppose("link exists", link < self._links)
        sources = Signal(self._links)
        beats = Signal(self._links)
        m.d.comb += [
            sources.eq(Cat(moves(each) for each in dut.i_source)),
            beats.eq(Cat(moves(each) & each.p.last for each in dut.i_beat)),
        ]
        behind = Signal(range(2 * TICKETS + 2))
        came, gone = sources.bit_select(link, 1), beats.bit_select(link, 1)
        m.d.sync += behind.eq(behind + came - gone)
        self.always("source first", behind != 0, when=gone)
        self.always("a ticket for each source ahead", behind <= TICKETS + 1)
        self.always("nothing is taken while tables are cleared", ~beats.any(), when=dut.clearing)


class PlacesComeBack(_Pool):
    """A packet is listed for each place that was given to one, with its last beat. A source is
    picked only if it has a packet; each packet picked gives its place back once, in order, when its
    last beat has left, and counts for its source then. Lists, places and grants are cut out."""

    def promise(self, m, dut, inside):
        cfg = self._cfg
        admission, lists, grants = inside
        pick, append, free = lists.pick, lists.append, admission.free
        chosen = self.past(pick.en)
        stays = lists.picked.as_value() == self.past(lists.picked.as_value(), "before")
        self.suppose("picked stays", stays, when=self.started & ~chosen)
        self.always("what is picked is there", lists.filled.bit_select(pick.src, 1), when=pick.en)
        self.always("sources exist", pick.src < cfg.ranks, when=pick.en)
        self.always_fifo(
            "place",
            chosen,
            Cat(lists.picked.place, self.past(pick.src)),
            free.en,
            Cat(free.place, grants.freed.src),
            most=3,
        )
        self.always("counts as it comes back", grants.freed.en == free.en)
        used = [moves(ticket) & ticket.p.admitted for ticket in admission.o_ticket]
        self.always("one at a time", one_of(Cat(used), 0, *(1 << n for n in range(len(used)))))
        self.always("listed with its ticket", append.en == Cat(used).any())
        places = [ticket.p.place for ticket in admission.o_ticket]
        self.always("in its place", append.node.place == select(Cat(used), places), when=append.en)
