# SPDX-License-Identifier: Apache-2.0
"""Receive pool of a wide slice: buffers for what its links bring, shared by need, handed out
source by source."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import BYTE
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin, lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, select
from hub_rtl.parts.ram import Ram

from .admission import Admission
from .grants import Grants
from .records import pool_types_of
from .source_lists import SourceLists

__all__ = ["PERIOD", "ReceivePool"]

PERIOD = 1024  # cycles: a round trip of a microsecond


class ReceivePoolObserve(NamedTuple):
    """What a proof may see of a :class:`ReceivePool`: its parts."""

    admission: Admission
    lists: SourceLists
    grants: Grants


class ReceivePool(wiring.Component):
    """Buffers of one slice for the packets of its links, granted to their sources by need.

    Contract: every packet whose source had a grant comes out once, as it came in, beat after beat;
    of one source and one link in order. Places are never more used than there are: what is granted
    has one. Every source has two places, whatever the others do; the rest is granted by need
    (:class:`~hub_rtl.receive_pool.grants.Grants`). A packet that stands still inside, or is not
    taken, holds its own place only.

    Latency: the first beat is valid 3 cycles after the last one came in, if nothing else waits.
    Throughput: a beat per cycle in, of all links together, and out, also from one source alone.

    Ordering and stalls: sources with a packet take turns, ``hold`` excepts some of them: from the
    next cycle on none of their packets is chosen, the two before it may still come. A record once
    begun goes on beat by beat while it is taken, whatever comes in meanwhile. ``i_beat`` waits for
    other links and for its packet's ticket, never for ``o_record``.

    Illegal input: a packet without grant is dropped and told (``violation``). Beats are trusted as
    :class:`~hub_rtl.link.deserializer.Deserializer` gives them.

    Parameters: ``cfg``; ``slice_bytes``, 16 to ``packet_bytes``, a power of two; ``links`` of the
    slice; ``places``, packets that find room, two per source to 2047; ``most``, of them for one
    source, by default all but the others' reserve; ``period``, cycles of the policy, about a round
    trip. Ports, per link: ``i_source`` In stream(rank), ``i_beat`` In stream(received record). For
    all: ``o_record`` Out stream(received record), straight from memory; ``hold`` In ``ranks``;
    ``rank`` In, own number; ``o_grant`` Out stream(grant), to be told; ``returned`` In {en, what};
    ``violation``, ``impossible`` Out strobes; ``clearing`` Out, ``ranks`` cycles after reset, while
    beats wait. Source: docs/blocks/receive_pool.md, docs/formats.md.
    """

    observe: ReceivePoolObserve  # once elaborated

    def __init__(self, cfg, slice_bytes, links, places, most=None, period=PERIOD):
        self._cfg, self._links, self._period = cfg, links, period
        self._types = t = pool_types_of(cfg, slice_bytes, places, most)
        self._slice_bytes, shared = slice_bytes, types_of(cfg)
        super().__init__(
            {
                "i_source": In(stream.Signature(cfg.rank_width)).array(links),
                "i_beat": In(stream.Signature(t.record)).array(links),
                "o_record": Out(stream.Signature(t.record)),
                "hold": In(cfg.ranks),
                "rank": In(cfg.rank_width),
                "o_grant": Out(stream.Signature(shared.grant)),
                "returned": In(shared.messages["returned"]),
                "violation": Out(1),
                "impossible": Out(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, t, flipped = self._cfg, self._types, wiring.flipped
        m.submodules.admission = admission = Admission(cfg, t, self._links)
        m.submodules.lists = lists = SourceLists(cfg, t)
        m.submodules.grants = grants = Grants(cfg, t, self._period)
        m.submodules.payload = payload = Ram(
            self._slice_bytes * BYTE, t.places * t.parts, bypass=False
        )
        m.submodules.kept = kept = Ram(t.kept, t.places, bypass=False)
        self.observe = ReceivePoolObserve(admission, lists, grants)
        for outer, inner in zip(self.i_source, admission.i_source, strict=True):
            wiring.connect(m, flipped(outer), inner)
        wiring.connect(m, grants.o_grant, flipped(self.o_grant))
        m.d.comb += [
            grants.rank.eq(self.rank),
            grants.returned.eq(self.returned),
            grants.arrived.eq(admission.arrived),
            grants.clearing.eq(admission.clearing),
            admission.look.eq(grants.look),
            admission.limit_write.eq(grants.limit_write),
            self.violation.eq(admission.violation),
            self.impossible.eq(grants.impossible),
            self.clearing.eq(admission.clearing),
        ]
        self._take(m, admission, lists, payload, kept)
        self._hand_out(m, admission, lists, grants, payload, kept)
        return m

    def _at(self, place, part):
        """Address of a packet's part in the payload memory."""
        parts = self._types.parts
        return Cat(part, place) if parts > 1 else place

    def _take(self, m, admission, lists, payload, kept):
        """Of the links with a beat and a ticket one writes; at a packet's end it is listed."""
        t, size = self._types, self._slice_bytes
        m.submodules.turns = turns = RoundRobin(self._links)
        grant = turns.grant_onehot
        beat = Signal(t.record)
        ticket = Signal(t.ticket)
        word = Signal(t.kept)
        body = Signal(t.kept["body"].width)
        row = Signal(t.row)
        moves = Signal()
        named = Signal(t.parts)
        m.d.comb += [
            turns.advance.eq(1),
            beat.eq(select(grant, [each.p for each in self.i_beat])),
            ticket.eq(select(grant, [each.p for each in admission.o_ticket])),
        ]
        for n, (source, ticket_of) in enumerate(zip(self.i_beat, admission.o_ticket, strict=True)):
            m.d.comb += [
                turns.requests[n].eq(source.valid & ticket_of.valid),
                source.ready.eq(grant[n] & ticket_of.valid),
                ticket_of.ready.eq(grant[n] & source.valid & source.p.last),
            ]
        header, append = beat.header, lists.append
        m.d.comb += [
            moves.eq(turns.requests.any() & ticket.admitted),
            *(row[name].eq(header[name]) for name in dict(t.row)),
            body.eq(Mux(header.plain, header.block, row.as_value())),
            *(word[name].eq(header[name]) for name in ("plain", "phase", "cls", "news")),
            word.poison.eq(
                header.poison | mutant("receive_pool.cut_packet_not_poisoned", beat.lost, 0)
            ),
            word.lost.eq(beat.lost),
            word.lost_from.eq(beat.part),
            word.body.eq(body),
            word.mask.eq(beat.mask),
            payload.w_en.eq(moves),
            payload.w_addr.eq(self._at(ticket.place, beat.part)),
            payload.w_data.eq(beat.data),
            kept.w_en.eq(moves & beat.last),
            kept.w_addr.eq(ticket.place),
            kept.w_data.eq(word),
            # All parts come out, also those that did not come in.
            named.eq(Cat(beat.mask.word_select(n, size).any() for n in range(t.parts))),
            append.en.eq(mutant("receive_pool.listed_at_first_beat", moves & beat.last, moves)),
            append.src.eq(header.rank),
            append.node.place.eq(ticket.place),
            append.node.parts.eq(Mux(named.any(), named, 1 << beat.part)),
        ]

    def _hand_out(self, m, admission, lists, grants, payload, kept):
        """Chooses a source, reads its packet's parts; frees the place with the last one."""
        cfg, t, out, node = self._cfg, self._types, self.o_record, lists.picked
        m.submodules.sources = sources = RoundRobin(cfg.ranks)
        busy, begun, load, ends = (Signal(name=name) for name in ("busy", "begun", "load", "ends"))
        left, parts, rest = (Signal(t.parts, name=name) for name in ("left", "parts", "rest"))
        src = Signal(cfg.rank_width)
        place = Signal(t.place_width)
        first = lowest_set(m, parts, "part")
        part = encode(first) if t.parts > 1 else Const(0, 1)
        m.d.comb += [
            parts.eq(Mux(begun, left, node.parts)),
            rest.eq(parts & ~first),
            load.eq(busy & (out.ready | mutant("receive_pool.offered_when_asked", ~out.valid, 0))),
            ends.eq(load & ~rest.any()),
            sources.requests.eq(
                lists.filled & ~mutant("receive_pool.held_source_chosen", self.hold, 0)
            ),
            sources.advance.eq(lists.pick.en),
            lists.pick.en.eq((ends | ~busy) & sources.requests.any()),
            lists.pick.src.eq(encode(sources.grant_onehot)),
            payload.r_en.eq(load),
            payload.r_addr.eq(self._at(node.place, part)),
            kept.r_en.eq(load & ~begun),
            kept.r_addr.eq(node.place),
        ]
        with m.If(ends | ~busy):
            m.d.sync += busy.eq(lists.pick.en)
        with m.If(lists.pick.en):
            m.d.sync += src.eq(lists.pick.src)
        with m.If(out.ready | ~out.valid):
            m.d.sync += out.valid.eq(load)
        with m.If(load):
            m.d.sync += [
                begun.eq(rest.any()),
                left.eq(rest),
                place.eq(node.place),
                out.p.header.rank.eq(src),
                out.p.part.eq(part),
                out.p.last.eq(~rest.any()),
            ]
        word, header = kept.r_data, out.p.header
        row = t.row(word.body[: t.row.size])
        leaves = Signal()
        m.d.comb += [
            *(header[name].eq(word[name]) for name in ("plain", "phase", "cls", "news", "poison")),
            *(header[name].eq(row[name]) for name in ("region", "epoch", "rowid")),
            header.block.eq(Mux(word.plain, word.body, row.block)),
            out.p.mask.eq(word.mask),
            out.p.lost.eq(
                word.lost
                & mutant("receive_pool.parts_behind_are_there", out.p.part >= word.lost_from, 0)
            ),
            out.p.data.eq(payload.r_data),
            leaves.eq(
                out.valid
                & out.ready
                & mutant("receive_pool.place_freed_at_every_beat", out.p.last, 1)
            ),
            admission.free.en.eq(leaves),
            admission.free.place.eq(place),
            grants.freed.en.eq(leaves),
            grants.freed.src.eq(header.rank),
        ]
