# SPDX-License-Identifier: Apache-2.0
"""Promises of the whole packet manager: what its parts suppose of one another holds, and what its
ports show."""

from amaranth import Array, Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.cuts import cut
from formal.kit.spec import Spec
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.parts.onehot import tree_sum

from .parts import look_into, peek

__all__ = ["PartsFitTogether"]


class PartsFitTogether(Spec):
    """In the whole packet manager each part keeps to what the proofs of the others suppose of it:
    locks, sinks, fetches and releases are of entries that allow it, a place is an entry that was
    free in the cycle before, each rank's entries are counted, nothing is picked while an entry is
    pending. So at the ports: ``o_take`` comes only three cycles after ``dest_ready`` of its rank,
    and not for a dead one; a rank gets a further entry only below its maximum (of the cycle
    before), and its first one always; ``can_accept`` of a rank without an entry is 1 in the next
    cycle; before the first store nothing happens. An entry that has left counts one cycle longer as
    its rank's.

    Contents of payload, masks and units do not matter here and may be anything, but that each
    sector of a locked entry has a byte (``packet_manager.bytes_merge``,
    ``packet_manager.bytes_counted``).
    """

    def build(self, m):
        cfg, depth = self._cfg, self._cfg.pool_depth
        m.submodules.dut = dut = PacketManager(cfg)
        top = look_into(dut)
        self.free_inputs(dut)
        pool, memory, quota, timer, selector, emitter = (
            getattr(top, name)
            for name in ("pool", "memory", "quota", "timer", "selector", "emitter")
        )
        entries, stored, books, scan, select, sends = map(
            look_into, (pool, memory, quota, timer, selector, emitter)
        )
        for ram in (
            stored.payload,
            stored.mask,
            stored.block_mask,
            stored.done,
            stored.m.submodules.units,
        ):
            cut(self, ram)

        # What the parts suppose.
        lock, sink, release, locked = selector.lock, timer.sink, emitter.release, memory.locked
        sectors = Cat(locked.some.word_select(n, 2).any() for n in range(cfg.packet_sectors))
        self.suppose(
            "sectors have bytes",
            locked.sectors.any() & (locked.sectors == sectors),
            when=sends.pending,
        )
        there = pool.valid & ~pool.locked
        self.always("locks what is there", there.bit_select(lock.index, 1), when=lock.en)
        self.always(
            "locks nothing in its first cycle",
            ~entries.was_new.bit_select(lock.index, 1),
            when=lock.en,
        )
        self.always(
            "sinks what is there",
            there.bit_select(sink.index, 1) & ~release.en & ~(lock.en & (lock.index == sink.index)),
            when=sink.en,
        )
        self.always(
            "releases what is locked",
            (pool.valid & pool.locked).bit_select(release.index, 1),
            when=release.en,
        )
        fetch = emitter.fetch
        self.always(
            "fetches what is locked",
            (pool.valid & pool.locked).bit_select(fetch.index, 1),
            when=fetch.en,
        )
        self.always(
            "sunk one way or the other",
            timer.sinks == Mux(sink.en, 1 << sink.index, 0),
            when=~release.en,
        )
        self.always(
            "locking is the lock, or gone",
            (selector.locking & pool.valid) == Mux(lock.en, 1 << lock.index, 0),
        )
        self.always(
            "locked one way or the other", selector.lock_onehot == Mux(lock.en, 1 << lock.index, 0)
        )
        just_freed = self.past(pool.freed, "just_freed")
        self.always("a place is a free entry", ~(pool.valid | just_freed).all(), when=quota.place)
        self.always("takes a place that there is", quota.place, when=quota.take)
        self.always("eligible entries are there and not locked", (pool.eligible & ~there) == 0)
        self.always("nothing is pending at a lock", ~sends.pending, when=lock.en)
        self.always("nothing is picked while one is pending", ~select.pick, when=sends.pending)
        ranks = Array(entries.ranks)
        for name, way in (("release", release), ("sink", sink)):
            self.always(f"{name} names its rank", way.rank == ranks[way.index], when=way.en)
        self.always("lock names its rank", dut.o_take.rank == ranks[lock.index], when=dut.o_take.en)
        self.always(
            "ends of packets are apart", ~self.past(release.en, "released"), when=release.en
        )
        dead = Cat((top.dead >> rank)[0] for rank in entries.ranks)
        self.always("dead entries are not locked", ~dead.bit_select(lock.index, 1), when=lock.en)

        # What the ports show.
        taken = self.past(self.past(self.past(dut.dest_ready, "ready_1"), "ready_2"), "ready_3")
        self.always(
            "a credit is taken when one was left",
            taken.bit_select(dut.o_take.rank, 1),
            when=dut.o_take.en,
        )
        self.always(
            "no credit of a dead peer is taken",
            ~self.past(dut.peer_dead, "were_dead").bit_select(dut.o_take.rank, 1),
            when=dut.o_take.en,
        )
        self.always("each lock takes one", dut.o_take.en == lock.en)
        of = [
            tree_sum([pool.valid[n] & (entries.ranks[n] == r) for n in range(depth)])
            for r in range(cfg.ranks)
        ]
        mine = Array(of)[entries.store.rank]
        most = self.past(dut.policy.max_entries, "most")
        self.always(
            "a further entry only below the maximum", (mine == 0) | (mine < most), when=pool.claim
        )
        none = [
            (number == 0) & self.past(number == 0, f"had_none_{r}") for r, number in enumerate(of)
        ]
        self.always(
            "a first entry always",
            quota.place,
            when=entries.waits & Array(none)[entries.store.rank],
        )
        for r, each in enumerate(none):
            self.always(
                f"can accept without an entry, {r}",
                dut.can_accept[r],
                when=self.past(each, f"none_before_{r}"),
            )
        self.always("oldest as the scanner says", dut.oldest.as_value() == timer.oldest.as_value())
        empty = Signal(init=1)
        with m.If(dut.i_store.valid & dut.i_store.ready):
            m.d.sync += empty.eq(0)
        self.always(
            "nothing from nothing",
            ~(
                dut.o_take.en
                | dut.o_packet.valid
                | dut.o_sent.en
                | dut.oldest.valid
                | dut.counts.as_value().any()
            ),
            when=empty,
        )
        self.reach("all entries in use", pool.valid.all())
        self.reach("a packet sent while another one is locked", dut.o_sent.en & lock.en)

        # Helpers: where locked entries are, and what the books mean.
        self.lemma("one selection at a time", (select.step & (select.step - 1)) == 0)
        self.lemma("none pending in a selection", ~sends.pending, when=select.step.any())
        others = pool.locked | Cat(pool.rank_onehot[n] != select.picked for n in range(depth))
        self.lemma(
            "runners were there",
            (select.could_run & pool.locked & pool.valid) == 0,
            when=select.step[0],
        )
        self.lemma(
            "runners are of the rank, not locked",
            ((select.alive & select.best_0 & pool.valid) & others) == 0,
            when=select.step[1],
        )
        self.lemma(
            "the best one is of the rank, not locked", (select.winner & pool.valid & others) == 0
        )
        self.lemma("winner is no new one", (select.winner & entries.was_new) == 0)
        self.lemma(
            "one winner, when it is time",
            ((select.winner & (select.winner - 1)) == 0) & ((select.winner == 0) | select.step[2]),
        )
        self.lemma("one rank picked", (select.picked & (select.picked - 1)) == 0)
        self.lemma(
            "sent entry is locked",
            (pool.valid & pool.locked).bit_select(sends.index, 1)
            & (sends.current.rank == ranks[sends.index]),
            when=sends.busy,
        )
        self.lemma(
            "pending entry is locked",
            (pool.valid & pool.locked).bit_select(locked.index, 1)
            & (locked.info.rank == ranks[locked.index]),
            when=sends.pending,
        )
        self.lemma(
            "sent and pending differ", locked.index != sends.index, when=sends.busy & sends.pending
        )
        for n in range(depth):
            self.lemma(
                f"locked is on its way, {n}",
                (sends.busy & (sends.index == n)) | (sends.pending & (locked.index == n)),
                when=pool.locked[n],
            )
            for name in ("info", "scan"):
                self.lemma(
                    f"rank in {name} {n}",
                    data.View(memory._types.info, peek(m, getattr(stored, name), n)).rank
                    == entries.ranks[n],
                    when=pool.valid[n],
                )
        after = (scan.index + 1)[: len(scan.index)]
        self.lemma("one entry at hand", scan.here == 1 << scan.index)
        self.lemma(
            "one after the other",
            (scan.ahead == after)
            | (~self.started & ~pool.valid.any() & (scan.ahead == scan.index)),
        )
        self.lemma(
            "rank at its visit",
            timer.scanned.rank == ranks[scan.index],
            when=pool.valid.bit_select(scan.index, 1),
        )
        leaves = [quota.release.en & (quota.release.rank == r) for r in range(cfg.ranks)]
        counts = [getattr(books, f"count_{r}") for r in range(cfg.ranks)]
        late = books.claims  # the claim of the cycle before is not yet in the books
        full = [number + leaves[r] for r, number in enumerate(of)]
        for r, number in enumerate(full):
            self.lemma(f"rank {r} counted", counts[r] + late[r] == number)
        self.lemma(
            "one leaves at a time",
            (quota.release.en == just_freed.any())
            & ((just_freed & (just_freed - 1)) == 0)
            & ((just_freed & pool.valid) == 0),
        )
        some = Signal()
        free_now = depth - tree_sum([pool.valid[n] | just_freed[n] for n in range(depth)])
        without = tree_sum([number == 0 for number in full])
        m.d.comb += some.eq(free_now > without)
        self.lemma(
            "shared part counted", books.shared + without == free_now + (late & ~books.none).any()
        )
        self.lemma("who claimed", tree_sum(list(books.claimer)) == 1, when=books.claimed)
        for name, flags in (
            ("none", [count == 0 for count in counts]),
            ("one", [count == 1 for count in counts]),
        ):
            self.lemma(f"ranks with {name}", getattr(books, name) == Cat(flags))
        for name, places in (("", books.places), (" after a claim", books.places_after)):
            self.lemma(
                f"places told{name}",
                places == Cat((number == 0) | ((number < most) & some) for number in full),
                when=self.started & (books.claimed if name else ~books.claimed),
            )
        self.lemma("places at first", books.places.all() & ~books.claimed, when=~self.started)
        self.lemma("rank that asks", pool.asks == 1 << entries.store.rank, when=entries.waits)
        self.lemma("opened is there and not locked", entries.opened == there)
        free = ~(pool.valid | just_freed)
        self.lemma(
            "next entry is the first free one", entries.free_entry == (free & (~free + 1))[:depth]
        )
        self.lemma("its number", entries.free_entry == Mux(free.any(), 1 << entries.free_index, 0))
        self.lemma(
            "nothing inside",
            ~(
                entries.waits
                | pool.valid.any()
                | sends.busy
                | sends.pending
                | emitter.tail.waiting
                | scan.best.valid
                | scan.seen.valid
            ),
            when=empty,
        )
        self.lemma(
            "flits are left", (sends.left != 0) & (sends.left > sends.masks_left), when=sends.busy
        )
        self.lemma("none is left when idle", sends.left == 0, when=~sends.busy)
