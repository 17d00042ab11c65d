# SPDX-License-Identifier: Apache-2.0
"""Promises of the receive pool's lists and places (docs/blocks/receive_pool.md)."""

from amaranth import Mux, Signal

from formal.kit.spec import Spec, moves
from hub_rtl.receive_pool.admission import Admission
from hub_rtl.receive_pool.records import pool_types_of
from hub_rtl.receive_pool.source_lists import SourceLists

__all__ = ["ListsInOrder", "PlacesGivenOnce"]

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
        listed, place = Signal(t.places), dut.append.node.place
        picked, picks, comes = Signal(), Signal(), Signal()
        leaves = Signal(t.places)
        m.d.comb += [
            comes.eq(dut.append.en & (dut.append.src == source)),
            picks.eq(dut.pick.en & (dut.pick.src == source)),
            leaves.eq(Mux(self.past(dut.pick.en, "left"), 1 << dut.picked.place, 0)),
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
        place, held = self.constant(range(t.places), "place"), Signal()
        ticket = dut.o_ticket[0]
        given = moves(ticket) & ticket.p.admitted
        takes = given & (ticket.p.place == place)
        frees = dut.free.en & (dut.free.place == place)
        m.d.sync += held.eq((held | takes) & ~frees)
        out = Signal(range(t.places + 1))
        m.d.sync += out.eq(out + given - dut.free.en)
        self.suppose("frees what is held", held, when=frees)
        self.suppose("frees no more than is held", out != 0, when=dut.free.en)
        self.suppose("places exist", dut.free.place < t.places)
        self.suppose("sources exist", dut.i_source[0].payload < cfg.ranks)
        self.suppose("limits of sources", dut.limit_write.rank < cfg.ranks)
        self.always("place was free", ~held, when=takes)
        self.always("place exists", ticket.p.place < t.places, when=given)
        self.always("no more than there are", out != t.places, when=given)
