# SPDX-License-Identifier: Apache-2.0
"""The slow way of a packet: rows between the RAT and the spill table."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import RANK, REASON, bits_of
from hub_rtl.contract.packets import SPILL_WORD, Reason
from hub_rtl.contract.records import layout_of
from hub_rtl.parts.mutants import mutant

from .records import VictimRank, slice_types_of

__all__ = ["WORD", "SpillPath"]

WORD = layout_of(SPILL_WORD)  # a spill word as a struct


class SpillPathObserve(NamedTuple):
    """What a proof may see of a :class:`SpillPath`."""

    states: dict  #: name of a state of its machine: 1 while it is in it
    served: Signal  #: all is done for the packet in R3


class SpillPath(wiring.Component):
    """Works on the packet that stands in R3 while its row is ``absent`` and the filter says
    ``maybe``, or the row ``lacks`` a way: reads its spill word, restores the row or finds nothing;
    makes place by spilling or dropping the victim of the set; takes the restored row's word out of
    the table. ``holds`` from the packet's first cycle in R3 on until that is done; then the packets
    behind are looked at again (``again``), since counters and bank states were looked at for
    others.

    A way is given up only when each command before is issued (``filled``): then the data part knows
    every slot. A packet is served in the step that restores its row, so a restored row has always
    served one before it is a victim. A restore that memory refuses, or of another source: the
    packet is refused (``refuse``). A spill that memory refuses: ``lost``, the bank is told.

    Parameters: ``cfg``. Ports: ``absent``, ``maybe``, ``lacks`` In; ``move`` In, the packet leaves;
    ``holds`` Out; ``row``, ``src``, ``counter`` (of the row in the filter) In; ``o_spill`` Out,
    stream; ``spill_done`` In, strobe with ``spill_reply``; ``look_set`` Out: read the tags of its
    set; ``filled`` In; ``search`` Out, ``searched`` In, and of the victim ``victim_rank``,
    ``victim_slot``, ``victim_index``, ``victim_tag``, ``victim_missing`` In; ``freed`` Out, its way
    is the packet's; ``look``, ``index``, ``up``, ``down`` Out, of the filter; ``found`` Out with
    ``missing``: the row is restored; ``restored``, ``slot`` Out, held until the packet leaves;
    ``refuse`` Out with ``reason``; ``lost`` Out with ``lost_bank``, ``losing`` before it,
    ``may_tell`` In; ``again`` Out; ``spills``, ``restores``, ``filter_false``, ``dropped``,
    ``spill_errors`` Out, strobes."""

    observe: SpillPathObserve  # once elaborated

    def __init__(self, cfg):
        own = slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        self._index_width = ceil_log2(cfg.filter_depth)
        super().__init__(
            {
                "absent": In(1),
                "maybe": In(1),
                "lacks": In(1),
                "move": In(1),
                "holds": Out(1),
                "row": In(own.row),
                "src": In(RANK),
                "counter": In(self._index_width),
                "o_spill": Out(stream.Signature(own.spill_request)),
                "spill_done": In(1),
                "spill_reply": In(own.spill_reply),
                "look_set": Out(1),
                "filled": In(1),
                "search": Out(1),
                "searched": In(1),
                "victim_rank": In(bits_of(VictimRank)),
                "victim_slot": In(own.slot),
                "victim_index": In(self._index_width),
                "victim_tag": In(own.tag),
                "victim_missing": In(cfg.row_bytes_width),
                "freed": Out(1),
                "look": Out(1),
                "index": Out(self._index_width),
                "up": Out(1),
                "down": Out(1),
                "found": Out(1),
                "missing": Out(cfg.row_bytes_width),
                "restored": Out(1),
                "slot": Out(own.slot),
                "refuse": Out(1),
                "reason": Out(REASON),
                "losing": Out(1),
                "lost": Out(1),
                "lost_bank": Out(own.bank),
                "may_tell": In(1),
                "again": Out(1),
                **dict.fromkeys(
                    ("spills", "restores", "filter_false", "dropped", "spill_errors"), Out(1)
                ),
            }
        )

    def elaborate(self, platform):
        m = Module()
        served = Signal()
        begins = Signal()
        m.d.comb += [
            begins.eq(self.absent & (self.maybe | self.lacks) & ~served),
            self.spill_errors.eq(self.spill_done & self.spill_reply.error),
        ]
        with m.If(self.move):
            m.d.sync += [
                served.eq(0),
                self.restored.eq(0),
            ]
        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(begins):
                    m.next = "LOOK"
                    with m.If(self.maybe):
                        m.next = "FETCH"
            self._fetch(m)
            self._make_place(m)
            self._spill(m)
            self._erase(m)
            with m.State("AGAIN"):
                m.d.comb += self.again.eq(1)
                m.d.sync += served.eq(1)
                m.next = "IDLE"
        states = {name: fsm.ongoing(name) for name in fsm.encoding}
        m.d.comb += self.holds.eq(begins | ~states["IDLE"])
        self.observe = SpillPathObserve(states, served)
        self._request(m, states)
        return m

    def _request(self, m, states):
        """The victim's word is written; that of the packet's own row is read, or overwritten with
        0."""
        spill, victim, slot = self.o_spill, self.victim_tag, self.victim_slot
        m.d.comb += [
            spill.valid.eq(states["FETCH"] | states["SPILL"] | states["ERASE"]),
            spill.p.write.eq(~states["FETCH"]),
            spill.p.region.eq(self.row.region),
            spill.p.bank.eq(self.row.epoch[0]),
            spill.p.rowid.eq(self.row.rowid),
        ]
        with m.If(states["SPILL"]):
            m.d.comb += [
                spill.p.region.eq(victim.region),
                spill.p.bank.eq(victim.epoch[0]),
                spill.p.rowid.eq(victim.rowid),
                spill.p.word.eq(
                    _word(
                        valid=1,
                        epoch=victim.epoch,
                        overflow=slot.overflow,
                        slot=slot.slot,
                        missing=self.victim_missing,
                        src=victim.src,
                        rowtag=victim.rowid,
                    )
                ),
            ]

    def _placed(self, m):
        """The packet has what it needs; a restored row's word goes."""
        m.next = "AGAIN"
        with m.If(self.restored):
            m.next = "RECOUNT"

    def _fetch(self, m):
        """Was the row spilled?"""
        found = Signal(WORD)
        row = self.row
        m.d.comb += [
            found.eq(self.spill_reply.word),
            self.missing.eq(found.missing),
        ]
        # A damaged word may name a slot beyond what a request holds: it must not become another
        # row's.
        width = self._cfg.slot_width
        slot = Mux(found.slot[width:].any(), Const(-1, width), found.slot[:width])
        none = (
            ~found.valid
            | (found.epoch != row.epoch)
            | (found.rowtag != row.rowid[: len(found.rowtag)])
        )
        with m.State("FETCH"):
            with m.If(self.o_spill.ready):
                m.next = "FETCHED"
        with m.State("FETCHED"):
            with m.If(self.spill_done):
                m.d.sync += [
                    self.slot.slot.eq(slot),
                    self.slot.overflow.eq(found.overflow),
                ]
                m.next = "FOUND"
                with m.If(self.spill_reply.error):
                    m.d.comb += [
                        self.refuse.eq(1),
                        self.reason.eq(Reason.MEM_ERROR),
                    ]
                    m.next = "AGAIN"
                with m.Elif(none):
                    m.d.comb += self.filter_false.eq(1)
                with m.Elif(found.src != self.src):
                    m.d.comb += [
                        self.refuse.eq(1),
                        self.reason.eq(Reason.FOREIGN),
                    ]
                    m.next = "AGAIN"
                with m.Else():
                    m.d.sync += self.restored.eq(1)
                    m.d.comb += [
                        self.found.eq(1),
                        self.restores.eq(1),
                    ]
        with m.State("FOUND"):  # what the row misses is known now, so whether it needs a way
            with m.If(self.lacks):
                m.next = "LOOK"
            with m.Else():
                self._placed(m)

    def _make_place(self, m):
        """A way is needed: a victim is chosen once every row of the set has its answer in the data
        part."""
        m.d.comb += self.index.eq(self.counter)
        with m.State("LOOK"):
            m.d.comb += self.look_set.eq(1)
            m.next = "DRAIN"
        with m.State("DRAIN"):
            with m.If(
                mutant(
                    "slot_allocator.no_place_while_it_waits",
                    self.filled,
                    self.filled & ~self.absent,
                )
            ):
                m.next = "SCAN"
        with m.State("SCAN"):
            m.d.comb += self.search.eq(1)
            with m.If(self.searched):
                m.next = "VICTIM"
        with m.State("VICTIM"):
            m.d.comb += [
                self.freed.eq(1),
                self.look.eq(1),
                self.index.eq(
                    mutant(
                        "slot_allocator.victim_counted_at_own_row", self.victim_index, self.counter
                    )
                ),
            ]
            with m.If(self.victim_rank == VictimRank.PLACED):
                m.next = "COUNT"
            with m.Else():
                m.d.comb += self.dropped.eq(1)
                self._placed(m)

    def _spill(self, m):
        """The victim's mapping goes to the table."""
        m.d.comb += [
            self.lost_bank.region.eq(
                mutant(
                    "slot_allocator.fault_told_to_packets_region",
                    self.victim_tag.region,
                    self.row.region,
                )
            ),
            self.lost_bank.bank.eq(
                mutant(
                    "slot_allocator.fault_told_to_packets_bank",
                    self.victim_tag.epoch[0],
                    self.row.epoch[0],
                )
            ),
        ]
        with m.State("COUNT"):
            m.d.comb += [
                self.up.eq(mutant("slot_allocator.spill_not_counted", 1, 0)),
                self.spills.eq(1),
            ]
            m.next = "SPILL"
        with m.State("SPILL"):
            with m.If(self.o_spill.ready):
                m.next = "SPILLED"
        with m.State("SPILLED"):
            with m.If(self.spill_done):
                with m.If(self.spill_reply.error):
                    m.next = "LOST"
                with m.Else():
                    self._placed(m)
        with m.State("LOST"):
            m.d.comb += [
                self.losing.eq(1),
                self.lost.eq(self.may_tell),
            ]
            with m.If(self.may_tell):
                self._placed(m)

    def _erase(self, m):
        """The restored row's word is no longer counted, and overwritten."""
        with m.State("RECOUNT"):
            m.d.comb += self.look.eq(1)  # the victim's counter was looked at since
            m.next = "UNCOUNT"
        with m.State("UNCOUNT"):
            m.d.comb += self.down.eq(1)
            m.next = "ERASE"
        with m.State("ERASE"):
            with m.If(self.o_spill.ready):
                m.next = "ERASED"
        with m.State("ERASED"):
            with m.If(self.spill_done):
                m.next = "AGAIN"


def _word(**fields):
    """A spill word as one value; fields are cut or filled with zeros to their width."""
    return Cat(
        Cat(fields[name], Const(0, width))[:width] for name, (_, width) in SPILL_WORD.items()
    )
