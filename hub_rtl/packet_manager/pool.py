# SPDX-License-Identifier: Apache-2.0
"""Fully associative pool of the packet manager: matching, merging, allocation, and the state of
each entry."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import EPOCH, ROWID
from hub_rtl.parts.arbiter import lowest_set
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select

from .records import decode, encode, pool_types_of

__all__ = ["Pool"]


class Pool(wiring.Component):
    """Finds or makes the entry of each store, and keeps what selection needs to know of the
    entries.

    Contract: at most one unlocked entry per tag (kind, rank, and region, epoch, RowID, block or
    address block). A store whose tag is there and not locked always merges, and the entry takes the
    higher class; otherwise it gets a new entry if the quota allows. An entry being locked in this
    cycle is already closed to stores. A store with an empty mask is taken and does nothing.

    Latency: a store is accepted (cycle 0, match against all entries), finds its entry and goes to
    the memories (1), is merged (2), and is known to fill the entry or not (3); the entry is seen as
    full in cycle 4. One store per cycle.

    Stalls: only for a place. While a store waits and no entry that could make room is being sent or
    has just left, partial entries become eligible (``squeeze``): all of them when no shared entry
    is free, those of the store's own rank when that is at its maximum.

    Marks: all entries and accepted stores (of the handle, or all) are marked in the cycle of
    ``mark``; a mark goes with the store into its entry.

    Parameters: ``cfg``, HubConfig. Ports: ``i_store`` In stream(resolved); ``asks`` Out, one-hot
    rank, ``place``, ``at_max`` In, ``claim`` Out: the quota; ``find`` Out {en, index}, the entry of
    the store if it has one, ``opens`` Out {en, index}, the new entry that it gets, ``write``,
    ``info`` Out: to the memories; ``full_now`` In {en, index}; ``lock_onehot`` In, entry being
    locked (never one claimed in the cycle before), ``locking`` In, the same or an entry that is not
    there; ``freed`` In, entry that leaves; ``visit`` In; ``mark`` In; per entry Out: ``valid``,
    ``locked``, ``fresh``, ``full``, ``expired``, ``old``, ``nop``, ``plain``, ``marked``,
    ``eligible`` (one bit each), ``rank_onehot``, ``rowid``; ``sectors`` Out: sectors with bytes of
    the entry being locked; ``waiting`` Out {en, rank}: a marked store is not yet in an entry;
    ``hint`` Out {en, rank}: an entry has just become full; ``merged``, ``stalled`` Out strobes.

    Source: docs/interfaces.md section 4 (merge); paper: Runtime Packet Manager.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t, depth = self._types, cfg.pool_depth
        flags = (
            "valid",
            "locked",
            "fresh",
            "full",
            "expired",
            "old",
            "nop",
            "plain",
            "marked",
            "eligible",
        )
        super().__init__(
            {name: Out(depth) for name in flags}
            | {
                "i_store": In(stream.Signature(t.resolved)),
                "asks": Out(cfg.ranks),
                "place": In(1),
                "at_max": In(1),
                "claim": Out(1),
                "find": Out(t.entry),
                "opens": Out(t.entry),
                "write": Out(t.write),
                "info": Out(t.info),
                "full_now": In(t.entry),
                "locking": In(depth),
                "lock_onehot": In(depth),
                "freed": In(depth),
                "visit": In(t.visit),
                "mark": In(t.mark),
                "rank_onehot": Out(cfg.ranks).array(depth),
                "rowid": Out(ROWID).array(depth),
                "sectors": Out(cfg.packet_sectors),
                "waiting": Out(t.take),
                "hint": Out(t.take),
                "merged": Out(1),
                "stalled": Out(1),
            }
        )
        self._log2_replicas = ceil_log2(cfg.replicas)

    def _key(self, store):
        """What identifies a block beside kind and rank; the low bits of a row's key are its
        RowID."""
        cfg = self._cfg
        row = Cat(store.rowid, store.block[: cfg.row_block_width], store.epoch, store.region)
        plain = store.block[: cfg.addr_block_width]
        width = max(ROWID + cfg.row_block_width + EPOCH + cfg.region_width, cfg.addr_block_width)
        key = Signal(width)
        return key, key.eq(Mux(store.plain, plain, row))

    def _handle_marked(self, plain, dest):
        """``mark`` covers a store or entry of this kind and destination."""
        return self.mark.en & (
            self.mark.all | (~plain & ((dest >> self._log2_replicas) == self.mark.handle))
        )

    def elaborate(self, platform):
        m = Module()
        depth = self._cfg.pool_depth
        keys, ranks, dests, sectors = self._entries()

        # Cycle 0: match against all open entries and against the entry that the store in front is
        # just getting.
        store, incoming = Signal(self._types.resolved), self.i_store.p
        waits, marked = Signal(), Signal()  # a store is in cycle 1; a mark covers it
        key, same_rank = Signal.like(keys[0]), Signal(depth)
        in_key, set_in_key = self._key(incoming)
        hit, new, go = Signal(depth), Signal(depth), Signal()
        equal_tag, equal_front, was_new = Signal(depth), Signal(), Signal(depth)
        opened, stays = (
            Signal(depth),
            Signal(depth),
        )  # valid and not locked, now and in the next cycle
        m.d.comb += [
            set_in_key,
            self.i_store.ready.eq(~waits | go),
            stays.eq(opened & ~self.lock_onehot & ~self.freed),
            same_rank.eq(Cat(store.rank == rank for rank in ranks)),
        ]
        with m.If(self.i_store.ready):
            m.d.sync += [
                waits.eq(self.i_store.valid & incoming.mask.any()),
                store.eq(incoming),
                key.eq(in_key),
                marked.eq(self._handle_marked(incoming.plain, incoming.dest)),
                self.asks.eq(1 << incoming.rank),
            ]
        # A store tries once: if it waits on, it has met no open entry of its tag, and there will be
        # none before its own.
        tries = Signal()
        claimed, last_index = Signal(), Signal(self._types.index_width)
        m.d.sync += [
            claimed.eq(self.claim),
            last_index.eq(self.opens.index),
            tries.eq(self.i_store.valid & self.i_store.ready & incoming.mask.any()),
            was_new.eq(new),
            equal_front.eq(
                (in_key == key) & (incoming.rank == store.rank) & (incoming.plain == store.plain)
            ),
        ]
        for n in range(depth):
            m.d.sync += equal_tag[n].eq(
                (in_key == keys[n])
                & (incoming.rank == ranks[n])
                & (incoming.plain == self.plain[n])
                & mutant("packet_manager.merges_into_closed", stays[n], opened[n])
            )

        # Cycle 1: hit or allocate.
        marked_now, is_hit = Signal(), Signal()
        free_entry, free_index = self._free_entry(m, claimed)
        # The entry of the store in front has its key only now; it is not locked in its first cycle.
        same, front, any_same = Signal(depth), Signal(), Signal()
        m.d.comb += [
            same.eq(
                mutant("packet_manager.locked_entry_merges", equal_tag & ~self.locking, equal_tag)
            ),
            any_same.eq(same.any()),
            front.eq(equal_front & claimed),
            # Of an entry that is being locked nobody asks for the number.
            self.find.en.eq(tries),
            self.find.index.eq(
                Cat(encode(equal_tag, self._types.index_width)) | Mux(front, last_index, 0)
            ),
            self.opens.en.eq(self.claim),
            self.opens.index.eq(free_index),
            marked_now.eq(marked | self._handle_marked(store.plain, store.dest)),
            hit.eq(Mux(tries, same | Mux(front, was_new, 0), 0)),
            is_hit.eq(tries & (any_same | front)),
            self.claim.eq(waits & ~is_hit & self.place),
            new.eq(free_entry & self.claim.replicate(depth)),
            go.eq(is_hit | self.place),
            self.merged.eq(is_hit),
            self.stalled.eq(waits & ~go),
            self.waiting.en.eq(waits & marked),
            self.waiting.rank.eq(store.rank),
            self.write.en.eq(waits & go),
            self.write.index.eq(Mux(is_hit, self.find.index, free_index)),
            self.write.fresh.eq(~is_hit),
        ]
        m.d.comb += [
            self.write[name].eq(store[name]) for name in ("sector", "full", "data", "mask")
        ]
        m.d.comb += [
            self.info[name].eq(store[name])
            for name in ("plain", "rank", "region", "epoch", "rowid", "block", "dest")
        ]
        with m.If(waits & ~go):
            m.d.sync += marked.eq(marked_now)

        # A locked entry is a place soon, one that has just left is a place in the next cycle, when
        # the quota knows it: only without one must partial entries go. Nothing arrives meanwhile,
        # so this ends.
        squeeze, among, left = Signal(), Signal(depth), Signal(depth)
        soon, any_soon, mine_soon = Signal(depth), Signal(), Signal()
        m.d.comb += [
            soon.eq(mutant("packet_manager.squeezes_in_vain", self.locked | left, self.locked)),
            any_soon.eq(soon.any()),
            mine_soon.eq((soon & same_rank).any()),
        ]
        m.d.sync += [
            left.eq(self.freed),
            squeeze.eq(self.stalled & ~Mux(self.at_max, mine_soon, any_soon)),
            among.eq(
                mutant(
                    "packet_manager.room_made_for_own_rank_only",
                    Mux(self.at_max, same_rank, (1 << depth) - 1),
                    same_rank,
                )
            ),
        ]
        self._flags(
            m, hit, new, free_entry, Mux(squeeze, among, 0), store, marked_now, dests, opened, stays
        )

        # The entry that comes next takes everything from each store; claimed or not, nobody looks
        # at it until it is valid.
        for n in range(depth):
            with m.If(free_entry[n]):
                m.d.sync += [
                    keys[n].eq(key),
                    ranks[n].eq(store.rank),
                    dests[n].eq(store.dest),
                    sectors[n].eq(1 << store.sector),
                ]
            with m.Elif(hit[n]):
                m.d.sync += sectors[n].eq(sectors[n] | (1 << store.sector))
            m.d.comb += [
                self.rowid[n].eq(keys[n][:ROWID]),
                self.rank_onehot[n].eq(1 << ranks[n]),
            ]
        m.d.comb += self.write.had.eq(Cat(select(hit, sectors)))
        for s in range(self._cfg.packet_sectors):
            m.d.comb += self.sectors[s].eq(
                (self.lock_onehot & Cat(sectors[n][s] for n in range(depth))).any()
            )

        # Cycle 3 ends: the memories have said that the entry is full.
        rank_2, rank_3 = Signal.like(store.rank), Signal.like(store.rank)
        m.d.sync += [
            rank_2.eq(store.rank),
            rank_3.eq(rank_2),
            self.hint.en.eq(self.full_now.en),
            self.hint.rank.eq(rank_3),
        ]
        return m

    def _entries(self):
        cfg, t = self._cfg, self._types
        width = len(self._key(Signal(t.resolved))[0])
        return tuple(
            [Signal(bits, name=f"{name}_{n}") for n in range(cfg.pool_depth)]
            for name, bits in (
                ("key", width),
                ("rank", cfg.rank_width),
                ("dest", cfg.dest_width),
                ("sectors", cfg.packet_sectors),
            )
        )

    def _free_entry(self, m, claimed):
        """One-hot and number of an entry for the next new block, chosen one cycle ahead; 0 if the
        quota has no place either: it learns of a freed entry as late as this does."""
        depth, width = self._cfg.pool_depth, self._types.index_width
        chosen, number = Signal(depth, name="free_entry"), Signal(width, name="free_index")
        # Whether the one chosen has been claimed is known late: both outcomes are kept, and chosen
        # from in the next cycle.
        first, other = Signal(depth, init=1, name="first_q"), Signal(depth, name="other_q")
        m.d.sync += [
            first.eq(lowest_set(m, ~self.valid, "first_free")),
            other.eq(lowest_set(m, ~self.valid & ~chosen, "other_free")),
        ]
        m.d.comb += [
            chosen.eq(Mux(claimed, other, first)),
            number.eq(Cat(encode(chosen, width))),
        ]
        return chosen, number

    def _flags(self, m, hit, new, free_entry, squeeze, store, marked_now, dests, opened, stays):
        """One bit per entry each."""
        depth = self._cfg.pool_depth
        freed = self.freed
        filled = decode(m, self.full_now.index, depth, self.full_now.en, "filled")
        visited = Signal(depth)
        m.d.comb += visited.eq(
            decode(m, self.visit.index, depth, self.visit.en, "visited") & self.valid
        )
        marks = Signal(depth)
        for n in range(depth):
            m.d.comb += marks[n].eq(self.valid[n] & self._handle_marked(self.plain[n], dests[n]))
        old = ~free_entry  # entries that are not about to be allocated
        m.d.sync += [
            self.valid.eq((self.valid | new) & ~freed),
            self.locked.eq((self.locked | self.lock_onehot) & ~freed & old),
            opened.eq(stays | new),
            self.fresh.eq((self.fresh & ~visited) | new),
            self.full.eq((self.full | filled) & old),
            self.expired.eq((self.expired | (visited & self.visit.expired.replicate(depth))) & old),
            self.old.eq((self.old | (visited & self.visit.old.replicate(depth))) & old),
            self.plain.eq(Mux(store.plain, self.plain | free_entry, self.plain & old)),
            self.nop.eq(Mux(store.cls, self.nop | free_entry, self.nop & old & ~hit)),
            self.marked.eq(
                Mux(marked_now, self.marked | marks | free_entry | hit, (self.marked | marks) & old)
            ),
        ]
        m.d.comb += self.eligible.eq(
            opened & (self.full | self.expired | self.old | self.marked | squeeze)
        )
