# SPDX-License-Identifier: Apache-2.0
"""Packet manager of a slice: merges stores into full packets and decides what leaves next, for
whom. The paper's RPM, with tags and lists in memories."""

from typing import NamedTuple

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import UNIT

from .emitter import Emitter
from .entries import Entries
from .fence import Fence
from .quota import FreeList, Quota
from .ready_lists import ReadyLists
from .records import pool_types_of
from .sweep import Sweep
from .tags import Tags

__all__ = ["PacketManager"]


class PacketManagerObserve(NamedTuple):
    """What a proof may see of a :class:`PacketManager`: its parts."""

    tags: Tags
    entries: Entries
    free_list: FreeList
    quota: Quota
    fence: Fence
    sweep: Sweep
    lists: ReadyLists
    emitter: Emitter


class PacketManager(wiring.Component):
    """Pool of unsent packets of a slice: stores merge into them, ready ones leave as records.

    Contract: every byte of an accepted store leaves in exactly one packet, unless a later store to
    the same place overwrote it before (counted ``overlaps``) or the peer is dead (entry sunk,
    counted). Two stores to one place leave in order. An entry is ready when it is full, its merge
    timer has expired, it is old, a mark covers it, its peer is dead, or a store waits for its
    place; it stays in the list in which it became ready.

    Order: ranks with ``dest_ready`` in turn. Within a rank full packets of normal rows by RowID, in
    a circle of eight buckets of ``RowID >> bucket_shift``, first in first out within one; one
    packet in four at least is for the rest, if there is any: full plain ones, then full .nop ones,
    then those that are not full. ``priority`` ROWS: plain ones wait while a row is ready; PLAIN:
    rows, while a plain one is. A rank with an entry of age ``age_limit`` serves its twelve lists
    in turn until that has left: less than sixteen packets of its rank for every entry in front of
    it in its list overtake it.

    Latency and throughput: one store per cycle, any mix; 14 cycles from the store that completes a
    packet to its first beat when nothing else is ready, 20 through a list; one beat per cycle, a
    full packet every packet_bytes / slice_bytes cycles, to one rank as to many (every second cycle,
    if that is more, to one).

    Ordering and stalls: ``i_store`` stalls for an entry, as the pool is full or the rank at its
    maximum; rarely for a way of the tags; every sixteenth cycle at most for an entry that nothing
    but full ones would let pass. Waiting makes room: it ends when a rank with a credit, or for a
    way the store's own, has an entry. ``dest_ready`` must show a taken credit in the very next
    cycle.

    Illegal input: none is checked, the decoder has done so. Bytes stored twice are counted, the
    newer ones win.

    Parameters: ``cfg``, HubConfig (``pool_depth``, ``packet_bytes``, ``slice_bytes``,
    ``ranks``, ``handles``, ``replicas``).

    Ports: ``i_store`` In stream(store): ``part`` and ``full`` count ``slice_bytes`` and bytes;
    ``o_record`` Out stream(record); ``can_accept`` Out ranks; ``dest_ready`` In ranks; ``o_take``
    Out {en, rank}; ``peer_dead`` In ranks; ``mark`` In {en, all, handle}; ``draining`` Out ranks;
    ``o_sent`` Out {en, dest, bank, bytes}; ``policy`` In {``merge_timeout``, ``age_limit``, cycles;
    ``max_entries``, most entries of one rank; ``bucket_shift``; ``priority``}; ``oldest`` Out, once
    per sweep;
    ``counts`` Out, strobes.

    Source: paper arXiv 2605.05888, Runtime Packet Manager; docs/interfaces.md sections 1 and 4.
    """

    observe: PacketManagerObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "i_store": In(stream.Signature(t.store)),
                "o_record": Out(stream.Signature(t.record)),
                "can_accept": Out(cfg.ranks),
                "dest_ready": In(cfg.ranks),
                "o_take": Out(t.take),
                "peer_dead": In(cfg.ranks),
                "mark": In(t.mark),
                "draining": Out(cfg.ranks),
                "o_sent": Out(t.sent),
                "policy": In(t.policy),
                "oldest": Out(t.oldest),
                "counts": Out(t.counts),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.tags = tags = Tags(cfg)
        m.submodules.entries = entries = Entries(cfg)
        m.submodules.free_list = free_list = FreeList(cfg)
        m.submodules.quota = quota = Quota(cfg)
        m.submodules.fence = fence = Fence(cfg)
        m.submodules.sweep = sweep = Sweep(cfg)
        m.submodules.lists = lists = ReadyLists(cfg)
        m.submodules.emitter = emitter = Emitter(cfg)
        parts = tags, entries, free_list, quota, fence, sweep, lists, emitter
        self.observe = PacketManagerObserve(*parts)
        wiring.connect(m, emitter.o_record, wiring.flipped(self.o_record))
        for source, names, sinks in (
            (self, ("mark",), (tags, fence)),
            (self, ("policy",), (entries, quota, sweep, lists)),
            (self, ("dest_ready",), (lists,)),
            (tags, ("found",), (entries,)),
            (tags, ("asks", "asks_again"), (quota,)),
            (tags, ("waits",), (sweep,)),
            (entries, ("opened",), (emitter, fence, sweep)),
            (entries, ("full",), (sweep,)),
            (entries, ("had", "whole", "info", "mask", "data"), (emitter,)),
            (free_list, ("free",), (tags,)),
            (quota, ("place", "at_max"), (tags,)),
            (quota, ("can_accept",), (self,)),
            (fence, ("covered", "mark_now"), (sweep,)),
            (fence, ("draining",), (self,)),
            (sweep, ("ready",), (lists, emitter)),
            (sweep, ("pause",), (tags,)),
            (sweep, ("innocent",), (fence,)),
            (sweep, ("old",), (lists,)),
            (sweep, ("oldest",), (self,)),
            (lists, ("lock",), (emitter, sweep)),
            (lists, ("granted", "missed"), (emitter,)),
            (emitter, ("room",), (lists,)),
            (emitter, ("closing",), (tags,)),
            (emitter, ("peek", "look", "fetch"), (entries,)),
            (emitter, ("leaves",), (quota, fence, sweep)),
            (emitter, ("tail",), (fence,)),
            (emitter, ("o_sent",), (self,)),
        ):
            for name in names:
                m.d.comb += [getattr(sink, name).eq(getattr(source, name)) for sink in sinks]
        dead = Signal(cfg.ranks)
        takes = tags.found.en & tags.found.new
        m.d.sync += dead.eq(self.peer_dead)
        m.d.comb += [
            lists.dead.eq(dead),
            sweep.dead.eq(dead),
            sweep.marks.eq(self.mark.en),
            sweep.idle.eq(emitter.idle & ~lists.asking),
            quota.takes.eq(takes),
            free_list.takes.eq(takes),
            free_list.gives.eq(emitter.leaves),
            fence.early.eq(tags.early | entries.early),
            self.o_take.eq(lists.take),
            *(fence.entries[r].eq(quota.entries[r]) for r in range(cfg.ranks)),
        ]
        self._arrive(m, tags, entries)
        self._count(m, tags, entries, lists, emitter)
        return m

    def _arrive(self, m, tags, entries):
        """A store goes to the tags, its bytes wait for what they find. One without bytes is taken
        and forgotten."""
        store = self.i_store.p
        some = Signal()
        key, row = tags.i.p.key, tags.i.p.key.body.row
        m.d.comb += [
            some.eq(self.i_store.valid & store.mask.any()),
            self.i_store.ready.eq(tags.i.ready),
            tags.i.valid.eq(some),
            *(tags.i.p[name].eq(store[name]) for name in ("cls", "part", "dest")),
            tags.i.p.slot.eq(entries.slot),
            tags.i.p.units.eq(store.full >> UNIT),
            key.plain.eq(store.plain),
            key.rank.eq(store.rank),
            entries.arrives.en.eq(some & tags.i.ready),
            entries.arrives.bytes.data.eq(store.data),
            entries.arrives.bytes.mask.eq(store.mask),
        ]
        with m.If(store.plain):
            m.d.comb += key.body.block.eq(store.block)
        with m.Else():
            m.d.comb += [
                row[name].eq(store[name]) for name in ("rowid", "block", "epoch", "region")
            ]

    def _count(self, m, tags, entries, lists, emitter):
        m.d.sync += [
            self.counts.merges.eq(tags.merged),
            self.counts.overlaps.eq(entries.overlap),
            self.counts.packets_full.eq(emitter.full),
            self.counts.packets_partial.eq(emitter.partial),
            self.counts.packets_timeout.eq(emitter.expired),
            self.counts.sunk.eq(emitter.leaves.en & emitter.leaves.sunk),
            self.counts.stall_pool.eq(tags.stalls),
            self.counts.stall_credit.eq(lists.starved),
        ]
