# SPDX-License-Identifier: Apache-2.0
"""Payload and byte masks of the entries, what they have of their parts, and when they are full."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import FLIT_BYTES, LANE_KEY
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import tree_sum
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.residue import residue, residue_parts

from .records import BUCKETS, LOW, PLAIN, SLOTS, pool_types_of

__all__ = ["Entries"]


class EntriesObserve(NamedTuple):
    """What a proof may see of :class:`Entries`."""

    waiting: Ram
    payload: Ram
    op: Signal  #: a store in C4
    merging: Signal  #: ... in C5
    state: Ram
    state_out: Ram
    masks: Ram
    masks_out: Ram
    done: Ram  #: parts that have all their bytes, of each entry
    last: Signal  #: a store in C6:
    had_6: Signal  #: parts before it,
    whole: Signal  #: units of its part that are whole,
    needed: Signal  #: ... that the block shall have,
    parts: Signal  #: parts that it shall have


class Entries(wiring.Component):
    """The bytes of all entries.

    Contract: the bytes of a store wait until ``found`` says whose they are, then join its entry; of
    a byte stored twice the newer one stays. A part's mask counts only if the entry has the part
    (``had``), so nothing is ever cleared.

    Latency, with ``found`` in cycle C3: C4 payload and identity written; C5 mask and ``had``; C6
    the whole units are known, and with them ``full``. One store per cycle. ``had`` answers to
    ``peek``, ``whole`` to ``look``, payload, mask and ``info`` to ``fetch`` one cycle later and
    until the next one; what is looked at is what was written before or in the same cycle, but
    payload and mask only what was written before.

    Parameters: ``cfg``. Ports: ``arrives`` In {en, bytes}, ``slot`` Out, where
    they wait; ``found`` In; ``policy`` In; ``full`` Out {en, index, list}: with this store
    every byte that the block shall have is there; ``opened`` Out, C4; ``early`` Out, a store that a
    fence covers is in C4; ``overlap`` Out strobe; ``peek`` In entry, ``had`` Out; ``look`` In
    entry, ``whole`` Out, it is full; ``fetch`` In, ``data``, ``mask`` (of all parts), ``info`` Out.
    """

    observe: EntriesObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "arrives": In(t.arrives),
                "slot": Out(range(SLOTS)),
                "found": In(t.found),
                "policy": In(t.policy),
                "full": Out(t.ready),
                "opened": Out(t.opened),
                "early": Out(1),
                "overlap": Out(1),
                "peek": In(t.entry),
                "had": Out(t.had),
                "look": In(t.entry),
                "whole": Out(1),
                "fetch": In(t.fetch),
                "data": Out(t.bytes["data"].shape),
                "mask": Out(cfg.packet_bytes),
                "info": Out(t.info),
            }
        )

    def elaborate(self, platform):
        m = Module()
        t, depth = self._types, self._cfg.pool_depth
        m.submodules.waiting = waiting = Ram(t.bytes, SLOTS, bypass=False, quick=True)
        m.submodules.payload = payload = Ram(
            t.bytes["data"].shape, depth * t.parts, granules=t.slice_bytes, bypass=False
        )
        m.submodules.infos = infos = Ram(t.info, depth, bypass=False, quick=depth <= 64)
        m.d.sync += self.slot.eq(self.slot + self.arrives.en)
        op = Signal(t.found)  # C4
        part = Signal(t.parts)
        m.d.sync += op.eq(self.found)
        store, written = op.store, waiting.r_data
        m.d.comb += [
            waiting.w_en.eq(self.arrives.en),
            waiting.w_addr.eq(self.slot),
            waiting.w_data.eq(self.arrives.bytes),
            waiting.r_en.eq(1),
            waiting.r_addr.eq(self.found.store.slot),
            part.eq(1 << store.part),
            payload.w_en.eq(Mux(op.en, written.mask, 0)),
            payload.w_addr.eq(self._word(op.index, store.part)),
            payload.w_data.eq(written.data),
            payload.r_en.eq(self.fetch.en),
            payload.r_addr.eq(self._word(self.fetch.index, self.fetch.part)),
            self.data.eq(payload.r_data),
            infos.w_en.eq(op.en & op.new),
            infos.w_addr.eq(op.index),
            infos.w_data.eq(self.opened.info),
            infos.r_en.eq(self.fetch.en),
            infos.r_addr.eq(self.fetch.index),
            self.info.eq(infos.r_data),
            self.opened.en.eq(op.en & op.new),
            self.opened.index.eq(op.index),
            self.opened.place.eq(op.place),
            self.opened.info.key.eq(store.key),
            self.opened.info.dest.eq(store.dest),
            self.opened.info.link.eq(Mux(store.key.plain, self._link(m, store.key.body.block), 0)),
            self.opened.early.eq(op.early),
            self.early.eq(op.en & op.early),
        ]
        merging = Signal(t.merging)  # C5
        m.d.sync += [
            merging.en.eq(op.en),
            merging.new.eq(op.new),
            merging.index.eq(op.index),
            merging.part.eq(part),
            merging.units.eq(store.units),
            merging.cls.eq(store.cls),
            merging.plain.eq(store.key.plain),
            merging.list.rank.eq(store.key.rank),
            merging.list.number.eq(
                (store.key.body.row.rowid >> self.policy.bucket_shift)[: BUCKETS.bit_length() - 1]
            ),
            merging.mask.eq(written.mask),
        ]
        states, had, normal = self._had(m, op, merging)
        masks, whole = self._merge(m, op, merging, had)
        completing = self._complete(m, merging, had, normal, whole)
        self.observe = EntriesObserve(waiting, payload, op, merging, *states, *masks, *completing)
        return m

    def _link(self, m, block):
        """The link of a plain entry: :func:`~hub_rtl.contract.packets.link_of`."""
        lanes, links = self._cfg.lanes, self._cfg.slice_links
        if links == 1:
            return Const(0)
        place = residue(residue_parts(m, block[:LANE_KEY], lanes * links, "block"), lanes * links)
        over = tree_sum([place >= lanes * n for n in range(1, links)])
        return mutant("packet_manager.plain_entries_of_first_link", over, 0)

    def _word(self, index, part):
        return Cat(part, index) if self._types.parts > 1 else index

    def _had(self, m, op, merging):
        """C5: parts with bytes before this store, and a normal store with it: read in C4; twice,
        the sender looks as well."""
        t = self._types
        had = Signal(t.parts)
        normal = Signal()
        states = []
        for name, en, index in (
            ("state", 1, op.index),
            ("state_out", self.peek.en, self.peek.index),
        ):
            m.submodules[name] = ram = Ram(t.had, self._cfg.pool_depth, quick=True)
            states.append(ram)
            m.d.comb += [
                ram.r_en.eq(en),
                ram.r_addr.eq(index),
                ram.w_en.eq(merging.en),
                ram.w_addr.eq(merging.index),
                ram.w_data.parts.eq(had | merging.part),
                ram.w_data.normal.eq(normal),
            ]
            if name == "state":
                m.d.comb += [
                    had.eq(
                        Mux(
                            mutant("packet_manager.parts_of_entry_before", merging.new, 0),
                            0,
                            ram.r_data.parts,
                        )
                    ),
                    normal.eq(~merging.cls | (~merging.new & ram.r_data.normal)),
                ]
            else:
                m.d.comb += self.had.eq(ram.r_data)
        return states, had, normal

    def _merge(self, m, op, merging, had):
        """C5: the mask of the store's part; which of its units are whole, one cycle later."""
        t, size = self._types, self._types.slice_bytes
        m.submodules.masks = masks = Ram(
            size, self._cfg.pool_depth * t.parts, quick=self._cfg.pool_depth <= 64
        )
        m.submodules.masks_out = masks_out = Ram(
            self._cfg.packet_bytes, self._cfg.pool_depth, granules=t.parts, bypass=False
        )
        known = Signal()
        mask = Signal(size)
        place = Signal.like(masks.w_addr)
        whole = Signal(t.units)
        twice = Signal(t.units)
        m.d.sync += place.eq(masks.r_addr)
        m.d.comb += [
            masks.r_en.eq(1),
            masks.r_addr.eq(self._word(op.index, op.store.part)),
            known.eq((had & merging.part).any()),
            mask.eq(
                merging.mask
                | Mux(mutant("packet_manager.mask_of_entry_before", known, 1), masks.r_data, 0)
            ),
            masks.w_en.eq(merging.en),
            masks.w_addr.eq(place),
            masks.w_data.eq(mask),
            masks_out.w_en.eq(Mux(merging.en, merging.part, 0)),
            masks_out.w_addr.eq(merging.index),
            masks_out.w_data.eq(mask.replicate(t.parts)),
            masks_out.r_en.eq(self.fetch.en),
            masks_out.r_addr.eq(self.fetch.index),
            self.mask.eq(masks_out.r_data),
            self.overlap.eq(twice.any()),
        ]
        both = Mux(merging.en & known, masks.r_data & merging.mask, 0)
        for n in range(t.units):
            m.d.sync += [
                whole[n].eq(mask.word_select(n, FLIT_BYTES).all()),
                twice[n].eq(both.word_select(n, FLIT_BYTES).any()),
            ]
        return (masks, masks_out), whole

    def _complete(self, m, merging, had, normal, whole):
        """C6: the store's part has all its bytes, and so have all others that the block shall
        have."""
        t, depth = self._types, self._cfg.pool_depth
        m.submodules.done = done = Ram(t.parts, depth, quick=True)
        m.submodules.fulls = fulls = Ram(1, depth, quick=True)
        last = Signal.like(merging)
        had_6 = Signal(t.parts)
        normal_6 = Signal()
        needed = Signal(t.units)
        parts = Signal(t.parts)
        m.d.sync += [
            last.eq(merging),
            had_6.eq(had),
            normal_6.eq(normal),
            parts.eq(Cat(merging.units > n * t.units for n in range(t.parts))),
        ]
        for unit in range(t.units):
            asks = Cat(
                (merging.units > n * t.units + unit) & merging.part[n] for n in range(t.parts)
            )
            m.d.sync += needed[unit].eq(asks.any())
        before = Signal(t.parts)
        part_done = Signal()
        full = Signal()
        m.d.comb += [
            done.r_en.eq(1),
            done.r_addr.eq(merging.index),
            before.eq(done.r_data & had_6),
            part_done.eq((whole | ~needed).all()),
            done.w_en.eq(last.en),
            done.w_addr.eq(last.index),
            done.w_data.eq(Mux(part_done, before | last.part, before & ~last.part)),
            full.eq(part_done & (before | last.part | ~parts).all()),
            fulls.w_en.eq(last.en),
            fulls.w_addr.eq(last.index),
            fulls.w_data.eq(full),
            fulls.r_en.eq(self.look.en),
            fulls.r_addr.eq(self.look.index),
            self.whole.eq(fulls.r_data),
            self.full.en.eq(last.en & full),
            self.full.index.eq(last.index),
            self.full.list.rank.eq(last.list.rank),
            self.full.list.number.eq(Mux(~normal_6, LOW, Mux(last.plain, PLAIN, last.list.number))),
        ]
        return done, last, had_6, whole, needed, parts
