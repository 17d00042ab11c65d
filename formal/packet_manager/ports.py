# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's ports beside those that carry stores and records: each with the
one part that makes it, the other parts cut out."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, moves
from hub_rtl.contract.fields import FLIT_BYTES
from hub_rtl.packet_manager.packet_manager import PacketManager
from hub_rtl.packet_manager.quota import ON_THE_WAY
from hub_rtl.packet_manager.records import LISTS, SLOTS
from hub_rtl.parts.onehot import tree_sum

__all__ = [
    "AcceptsWhatHasRoom",
    "EntriesLeaveWithCredit",
    "LocksFindRoom",
    "OldestWasOpened",
    "PacketsAreTold",
    "StoresTakeWhatThereIs",
]


class _Ports(Spec):
    """The block with free inputs; of its parts all but ``kept`` are cut out."""

    kept = ()

    def build(self, m):
        m.submodules.dut = self.dut = dut = PacketManager(self._cfg)
        self.inside = inside = observe(dut)
        for part in inside:
            if all(part is not getattr(inside, kept) for kept in self.kept):
                cut(self, part, but=self.given(part))
        self.free_inputs(dut)
        self.promise(m)

    def given(self, part):
        """Outputs of a part that the specification drives."""
        return ()

    def ago(self, value, cycles):
        """``value`` so many cycles ago."""
        for _ in range(cycles):
            value = self.past(value)
        return value


class AcceptsWhatHasRoom(_Ports):
    """``can_accept`` of a rank says exactly whether, two cycles ago, it had no entry; or there was
    room, in the shared part and under its maximum, for all stores that may be on their way. An
    entry that is taken counts a cycle later."""

    kept = ("quota",)

    def given(self, part):
        return ("asks", "asks_again") if part is self.inside.tags else ()

    def promise(self, m):
        cfg, dut, tags = self._cfg, self.dut, self.inside.tags
        ask = Signal(range(cfg.ranks))
        most = dut.policy.max_entries
        before, leaves = self.past(ask), self.inside.emitter.leaves
        self.free(ask)
        m.d.comb += [tags.asks.eq(1 << ask), tags.asks_again.eq(ask == before)]
        takes = tags.found.en & tags.found.new
        took = self.past(takes)
        counts = Array(
            Signal(range(cfg.pool_depth + 1), name=f"entries_{r}") for r in range(cfg.ranks)
        )
        for r, count in enumerate(counts):
            here = count + (took & (before == r)) - (leaves.en & (leaves.rank == r))
            m.d.sync += count.eq(here)
        self.suppose("ranks exist", (ask < cfg.ranks) & (leaves.rank < cfg.ranks))
        self.suppose("takes only a place that there is", self.inside.quota.place, when=takes)
        self.suppose("maximum stays", most == self.past(most), when=self.started)
        self.suppose(
            "frees an entry that has been there for a cycle",
            counts[leaves.rank] != 0,
            when=leaves.en,
        )
        spare = cfg.pool_depth - cfg.ranks
        shared = spare - tree_sum([Mux(count > 1, count - 1, 0) for count in counts])
        room = min(ON_THE_WAY, spare)
        for r, count in enumerate(counts):
            accepts = (count == 0) | ((shared >= room) & (count + room <= most))
            self.always(
                f"can_accept of rank {r}", dut.can_accept[r] == self.past(accepts), self.started
            )


class EntriesLeaveWithCredit(_Ports):
    """``o_take`` takes a credit that is there, while ``dest_ready`` shows a take in the next cycle.
    Each entry that is locked for a live peer has taken one, two cycles before at the earliest; none
    is taken for anything else."""

    kept = ("lists",)

    def promise(self, m):
        dut, inside = self.dut, self.inside
        rank, most = self.constant(range(self._cfg.ranks), "rank"), 3
        credits = Signal(range(most + 1), init=1)
        returned = Signal()
        taken = Signal(2)
        self.free(returned)
        take, lock, ready = dut.o_take, inside.lists.lock, inside.sweep.ready
        takes, locks = take.en & (take.rank == rank), lock.en & ~lock.dead
        m.d.sync += [
            credits.eq(credits + returned - takes),
            taken.eq(taken + take.en - locks),
        ]
        self.suppose("credits that exist come back", credits != most, when=returned)
        self.suppose("lists exist", ready.list.number < LISTS, when=ready.en)
        self.suppose(
            "ready only with a credit", credits != 0, when=dut.dest_ready.bit_select(rank, 1)
        )
        self.always("credit was there", credits != 0, when=takes)
        self.always("locked with a credit", (taken + take.en) != 0, when=locks)
        self.always("taken for what is locked", taken <= 2)
        recent = take.en | self.ago(take.en, 1) | self.ago(take.en, 2)
        self.always("locked in two cycles", (taken == 0) | recent)


class LocksFindRoom(_Ports):
    """An entry is locked only while the emitter has a place for it, one that gets free in that
    cycle included."""

    kept = ("lists", "emitter")

    def promise(self, m):
        lists, emitter = self.inside.lists, self.inside.emitter
        most = len(observe(observe(emitter).queue).items)
        inside = Signal(range(most + 2))
        lock = lists.lock
        m.d.sync += inside.eq(inside + lock.en - emitter.leaves.en)
        self.suppose(
            "lists exist",
            self.inside.sweep.ready.list.number < LISTS,
            when=self.inside.sweep.ready.en,
        )
        self.always("room for the lock", inside - emitter.leaves.en < most, when=lock.en)
        self.reach("full", inside == most)


class StoresTakeWhatThereIs(_Ports):
    """A store opens an entry only where the quota has a place; what arrives at the entries has a
    byte, and a place of its own until it is found; an entry becomes ready for a list that there
    is."""

    kept = ("tags", "entries", "sweep")

    def promise(self, m):
        tags, arrives = self.inside.tags, self.inside.entries.arrives
        ready = self.inside.sweep.ready
        takes = tags.found.en & tags.found.new
        self.always("takes only a place that there is", self.inside.quota.place, when=takes)
        self.always("stores have a byte", arrives.bytes.mask.any(), when=arrives.en)
        self.always("lists exist", ready.list.number < LISTS, when=ready.en)
        slot, found = self.inside.entries.slot, tags.found.store.slot
        waits = Signal(SLOTS)  # places of bytes that are of a store on its way through the tags
        came = Mux(arrives.en, 1 << slot, 0)
        m.d.sync += waits.eq((waits | came) & ~Mux(tags.found.en, 1 << found, 0))
        self.always("a store that came", waits.bit_select(found, 1), when=tags.found.en)
        self.always("bytes in a free place", ~waits.bit_select(slot, 1), when=arrives.en)


class PacketsAreTold(_Ports):
    """Two cycles after a row packet's last beat was taken, and only then, ``o_sent`` says who got
    how many bytes of which bank. ``counts``: an entry that is locked for a live peer counts seven
    cycles later as full, if it is whole, or else as partial, which alone may have expired; a sunk
    one counts when it leaves; the others get what their part told a cycle ago."""

    kept = ("emitter",)

    def promise(self, m):
        dut, inside, record = self.dut, self.inside, self.dut.o_record
        sent, header, units = dut.o_sent, record.p.header, len(record.p.mask) // FLIT_BYTES
        tells = moves(record) & record.p.last & ~header.plain
        size = tree_sum(
            [tree_sum(list(record.p.mask.word_select(n, FLIT_BYTES))) for n in range(units)]
        )
        self.always("tells of row packets", sent.en == self.ago(tells, 2))
        for name, value in (
            ("dest", inside.entries.info.dest),
            ("bank", header.epoch[0]),
            ("bytes", size),
        ):
            self.always(f"its {name}", sent[name] == self.ago(value, 2), when=sent.en)
        lock, counts = inside.lists.lock, dut.counts
        live = self.ago(lock.en & ~lock.dead, 7)
        whole = self.past(inside.entries.whole)
        self.always("full", counts.packets_full == (live & whole))
        self.always("partial", counts.packets_partial == (live & ~whole))
        self.always("expired", counts.packets_partial, when=counts.packets_timeout)
        leaves = inside.emitter.leaves
        for name, strobe in (
            ("sunk", leaves.en & leaves.sunk),
            ("merges", inside.tags.merged),
            ("overlaps", inside.entries.overlap),
            ("stall_pool", inside.tags.stalls),
            ("stall_credit", inside.lists.starved),
        ):
            self.always(f"counts {name}", counts[name] == self.past(strobe))


class OldestWasOpened(_Ports):
    """``oldest`` shows the name under which an entry was opened, the last one before it was met in
    its place of the pool. (Of an arbitrary place.)"""

    kept = ("sweep",)

    def promise(self, m):
        dut, opened = self.dut, self.inside.entries.opened
        sweep = observe(self.inside.sweep)
        words, aging, judged = sweep.visits
        best, place = sweep.best, self.constant(range(self._cfg.pool_depth), "place")
        first = self._shown(opened.info)
        name, best_name, oldest_name = (
            Signal.like(first, name=f"{what}_name") for what in ("entry", "best", "oldest")
        )
        with m.If(opened.en & (opened.index == place)):
            m.d.sync += name.eq(first)
        best_at = Signal.like(place)  # their places
        oldest_at = Signal.like(place)
        older = ~best.valid | judged.turn | (judged.age > best.age)
        with m.If(sweep.goes & judged.en & judged.here & older):
            m.d.sync += [best_at.eq(judged.index), best_name.eq(name)]
        with m.If(sweep.goes & judged.turn):
            m.d.sync += [oldest_at.eq(best_at), oldest_name.eq(best_name)]
        shown = self._name(dut.oldest, dut.oldest)
        its = dut.oldest.valid & (oldest_at == place)
        self.always("its name when it was opened", shown == oldest_name, when=its)
        its = best.valid & (best_at == place)
        self.lemma("the oldest yet", self._name(best, best) == best_name, its)
        look = aging.look.shape()
        stored, read = look(peek(m, sweep.looks, place)), look(sweep.looks.r_data)
        for what, seen, index, there in (
            ("in the pool", stored, place, sweep.present.bit_select(place, 1)),
            ("read", read, words.index, words.en & self._here(sweep, words)),
            ("aging", aging.look, aging.index, aging.en & self._here(sweep, aging)),
            ("judged", judged.look, judged.index, judged.en & judged.here),
        ):
            self.lemma(what, self._name(seen, seen.name) == name, there & (index == place))

    @staticmethod
    def _here(sweep, visit):
        return sweep.present.bit_select(visit.index, 1)

    @staticmethod
    def _name(who, row):
        return Cat(who.plain, who.rank, row.region, row.epoch, row.rowid)

    def _shown(self, info):
        """The name under which an entry is shown: of a plain one there is no row."""
        who, row = info.key, info.key.body.row
        return Cat(who.plain, who.rank, Mux(who.plain, 0, Cat(row.region, row.epoch, row.rowid)))
