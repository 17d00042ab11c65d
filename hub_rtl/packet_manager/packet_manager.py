# SPDX-License-Identifier: Apache-2.0
"""PacketManager: merges small stores into full packets and decides what leaves next, for whom. The
paper's RPM."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant, variant

from .emitter import Emitter
from .pool import Pool
from .pool_memory import PoolMemory
from .pool_quota import PoolQuota
from .pool_timer import PoolTimer
from .records import by_rank, decode, pool_types_of
from .selector import Selector

__all__ = ["PacketManager"]

LEDGER_CYCLES = 3  # from o_sent until the ledger shows the bytes, at most


class PacketManager(wiring.Component):
    """Pool of unsent packets of one lane: stores merge into them, the best one leaves.

    Contract: every byte of an accepted store leaves in exactly one packet, unless a later store to
    the same place overwrote it before (counted ``overlaps``) or the peer is dead (entry sunk,
    counted). Two stores to one place leave in order. An entry is eligible when it is full, its
    merge timer has expired, it is old, it is marked, or a store waits for its place. Order: ranks
    with ``dest_ready`` in turn; within a rank old, full, normal before ``.nop``, plain and
    row-sparse in turn, smallest RowID; nothing is locked while a better entry of the rank has been
    eligible for 4 cycles.

    Latency and throughput: one store per cycle; store accepted to header valid 9 cycles when it
    completes a packet and the block is idle; packets with payloads of 64 bytes and more leave back
    to back, one flit per cycle, at most one locked ahead.

    Ordering and stalls: ``i_store`` stalls only when the pool has no place; the wait makes partial
    entries eligible, so it ends as soon as a rank with credit has an entry. ``o_packet`` never has
    a bubble inside a packet. ``dest_ready`` must show a taken credit in the cycle after ``o_take``
    or in the one after that.

    Illegal input: none is checked, the decoder has done so. Bytes stored twice are counted, the
    newer ones win.

    Parameters: ``cfg``, HubConfig (``pool_depth``, ``packet_bytes``, ``ranks``, ``handles``,
    ``replicas``).

    Ports: ``i_store`` In stream(resolved); ``o_packet`` Out stream(flit); ``can_accept`` Out ranks;
    ``dest_ready`` In ranks; ``o_take`` Out {en, rank}; ``peer_dead`` In ranks; ``mark`` In {en,
    all, handle}; ``draining`` Out ranks; ``o_sent`` Out {en, dest, bank, bytes}; ``policy`` In:
    ``merge_timeout``, ``age_limit``, cycles (an entry reacts up to two sweeps of ``pool_depth``
    cycles later), ``max_entries``, most entries of one rank; ``oldest`` Out, refreshed once per
    sweep;
    ``counts`` Out, strobes.

    Source: paper arXiv 2605.05888, Runtime Packet Manager; docs/interfaces.md sections 1 and 4.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "i_store": In(stream.Signature(t.resolved)),
                "o_packet": Out(stream.Signature(t.flit)),
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
        m.submodules.pool = pool = Pool(cfg)
        m.submodules.memory = memory = PoolMemory(cfg)
        m.submodules.quota = quota = PoolQuota(cfg)
        m.submodules.timer = timer = PoolTimer(cfg)
        m.submodules.selector = selector = Selector(cfg)
        m.submodules.emitter = emitter = Emitter(cfg)
        wiring.connect(m, wiring.flipped(self.i_store), pool.i_store)
        wiring.connect(m, emitter.o_packet, wiring.flipped(self.o_packet))
        dead = Signal(cfg.ranks)
        m.d.sync += [
            dead.eq(self.peer_dead),
            quota.release.eq(Mux(timer.sink.en, timer.sink, emitter.release)),
        ]

        m.d.comb += [
            # Store side.
            quota.asks.eq(pool.asks),
            quota.take.eq(pool.claim),
            pool.place.eq(quota.place),
            pool.at_max.eq(quota.at_max),
            quota.policy.eq(self.policy),
            self.can_accept.eq(quota.can_accept),
            memory.find.eq(pool.find),
            memory.opens.eq(pool.opens),
            memory.write.eq(pool.write),
            memory.info.eq(pool.info),
            pool.full_now.eq(memory.full),
            pool.mark.eq(self.mark),
            # Scanner. One entry is freed per cycle: sinking gives way to the end of a packet.
            memory.look.eq(timer.scan),
            timer.scanned.eq(memory.looked),
            timer.of_dead.eq(Cat((dead & rank).any() for rank in pool.rank_onehot)),
            timer.policy.eq(self.policy),
            timer.busy.eq(mutant("packet_manager.timer_sinks_over_release", emitter.release.en, 0)),
            timer.valid.eq(pool.valid),
            timer.locked.eq(pool.locked),
            timer.fresh.eq(pool.fresh),
            timer.old.eq(pool.old),
            pool.visit.eq(timer.visit),
            self.oldest.eq(timer.oldest),
            pool.freed.eq(Mux(emitter.release.en, 1 << emitter.release.index, timer.sinks)),
            # Selection.
            selector.dest_ready.eq(self.dest_ready),
            selector.peer_dead.eq(self.peer_dead),
            selector.go.eq(emitter.go),
            selector.hint.eq(pool.hint),
            self.o_take.eq(selector.take),
            pool.lock_onehot.eq(selector.lock_onehot),
            pool.locking.eq(selector.locking),
            memory.lock.eq(selector.lock),
            memory.sectors.eq(pool.sectors),
            memory.nop.eq((pool.nop & selector.lock_onehot).any()),
            # Sending.
            emitter.lock.eq(selector.lock.en),
            emitter.locked.eq(memory.locked),
            memory.fetch.eq(emitter.fetch),
            emitter.payload.eq(memory.payload),
        ]
        m.d.comb += [
            getattr(selector, name).eq(getattr(pool, name))
            for name in ("valid", "eligible", "old", "full", "nop", "plain")
        ]
        for n in range(cfg.pool_depth):
            m.d.comb += [
                selector.rank_onehot[n].eq(pool.rank_onehot[n]),
                selector.rowid[n].eq(pool.rowid[n]),
            ]
        self._sent(m, pool, emitter)
        self._counts(m, pool, memory, timer, selector)
        return m

    def _sent(self, m, pool, emitter):
        """Bytes sent, and what still drains: marked stores, entries, the last flit, bytes that the
        ledger does not show yet."""
        cfg, tail = self._cfg, emitter.tail
        m.d.sync += [
            self.o_sent.en.eq(emitter.tail_taken & tail.row),
            self.o_sent.dest.eq(tail.dest),
            self.o_sent.bank.eq(tail.bank),
            self.o_sent.bytes.eq(emitter.tail_bytes),
        ]
        # A mark during these last cycles covers them whatever their handle: that is only a few
        # cycles too careful.
        released_marked, tail_marked = Signal(), Signal()
        m.d.comb += released_marked.eq(
            mutant(
                "packet_manager.mark_misses_released",
                pool.marked.bit_select(emitter.release.index, 1) | self.mark.en,
                pool.marked.bit_select(emitter.release.index, 1),
            )
        )
        with m.If(emitter.release.en):
            m.d.sync += tail_marked.eq(released_marked)
        with m.Elif(self.mark.en):
            m.d.sync += tail_marked.eq(mutant("packet_manager.tail_not_marked", 1, tail_marked))
        sources = [(pool.waiting.en, pool.waiting.rank), (tail.waiting & tail_marked, tail.rank)]
        valid, marked, rank = emitter.tail_taken, tail_marked | self.mark.en, tail.rank
        for n in range(variant("packet_manager.drained_before_ledger", LEDGER_CYCLES + 1, 1)):
            valid_q, marked_q, rank_q = (
                Signal(name=f"ledger_{n}"),
                Signal(name=f"ledger_marked_{n}"),
                Signal.like(tail.rank),
            )
            m.d.sync += [
                valid_q.eq(valid),
                marked_q.eq(marked),
                rank_q.eq(rank),
            ]
            sources.append((valid_q & marked_q, rank_q))
            valid, marked, rank = valid_q, marked_q | self.mark.en, rank_q

        entries = by_rank(
            m,
            mutant(
                "packet_manager.left_entries_stay_marked", pool.valid & pool.marked, pool.marked
            ),
            pool.rank_onehot,
            cfg.ranks,
            "drains",
        )
        others = 0
        for n, (flag, rank) in enumerate(sources):
            others = others | decode(m, rank, cfg.ranks, flag, f"drains_late_{n}")
        drains, just_marked = Signal(cfg.ranks), Signal()
        m.d.sync += [
            drains.eq(entries | others),
            just_marked.eq(self.mark.en),
        ]
        # In the cycle after a mark nobody has been looked through yet.
        m.d.comb += self.draining.eq(drains | just_marked.replicate(cfg.ranks))

    def _counts(self, m, pool, memory, timer, selector):
        """A packet is counted two cycles after its lock, when its last store has been merged and is
        known to fill it."""
        depth = self._cfg.pool_depth
        just_locked, locked = Signal(depth), Signal(depth)
        full, expired = Signal(), Signal()
        counts = self.counts
        m.d.sync += [
            just_locked.eq(selector.lock_onehot),
            locked.eq(just_locked),
        ]
        m.d.comb += [
            full.eq((locked & pool.full).any()),
            expired.eq((locked & pool.expired).any()),
        ]
        m.d.sync += [
            counts.merges.eq(pool.merged),
            counts.overlaps.eq(memory.overlap),
            counts.sunk.eq(timer.sink.en),
            counts.stall_pool.eq(pool.stalled),
            counts.stall_credit.eq(selector.starved),
            counts.packets_full.eq(full),
            counts.packets_partial.eq(locked.any() & ~full),
            counts.packets_timeout.eq(
                mutant("packet_manager.full_counts_as_expired", expired & ~full, expired)
            ),
        ]
