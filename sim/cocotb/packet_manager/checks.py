# SPDX-License-Identifier: Apache-2.0
"""What the packet manager promises beside the packets: side ports while nothing moves, drains that
end, kinds in turn."""

from collections import Counter

from hub_rtl.packet_manager.pool_quota import ON_THE_WAY
from sim.golden.packet_manager import NOT_BETTER, SEEN_FULL, PacketManagerGolden

__all__ = ["Judge", "SidePorts"]

STILL = 10  # cycles without any movement after which the side ports have settled
FALLS = 6  # cycles from a marked packet's last flit until `draining` falls
DRAINED = 9  # cycles after the last reason to drain, seen from outside
# flits of a packet that are not yet taken when the next one is locked: 4 to load, and the pipeline
LEFT_AT_LOCK = 6


class Judge(PacketManagerGolden):
    """The golden model, with the turns of the two kinds, the time of a lock, and how often an old
    packet is overtaken."""

    _taken = (
        None  # flits of the packet at the output that had been taken when the next one was locked
    )

    def take(self, rank, cycle):
        ahead = len(self.takes)
        assert ahead < 2 or (ahead == 2 and not self.beats), f"cycle {cycle}: locked two ahead"
        if ahead:
            self._taken = len(self.beats)
        super().take(rank, cycle)

    def _packet(self, beats, head, last):
        if self._taken is not None:
            assert len(beats) - self._taken <= LEFT_AT_LOCK, (
                f"cycle {last}: the next packet was locked too early"
            )
            self._taken = None
        super()._packet(beats, head, last)

    def _nothing_better(self, x, tag, where):
        super()._nothing_better(x, tag, where)
        if (
            not self.packets
            or x.plain != self.packets[-1].plain
            or x.take - x.stores[0].placed >= self.age_limit
        ):
            return
        since = x.take - NOT_BETTER - SEEN_FULL
        for other, queue in self.pending.items():
            stores = [s for s in queue if s.placed <= since]
            if (
                other[1] == x.rank
                and bool(other[0]) != x.plain
                and stores
                and not any(s.marked for s in (*x.stores, *stores))
            ):
                full = self.merged(stores)["bytes"] == stores[0].full
                nop = all(s.cls for s in queue if s.placed <= x.take)
                assert not (full and full == x.full and nop == x.nop), (
                    f"{where}: the other kind's turn, {other} waited"
                )

    def finish(self):
        super().finish()
        depth = self.cfg.pool_depth
        for n, q in enumerate(self.packets):
            old = q.stores[0].placed + self.age_limit + 3 * depth
            overtaken = sum(p.rank == q.rank and p.take >= old for p in self.packets[:n])
            assert overtaken <= 2 * depth, (
                f"{overtaken} packets left after that of cycle {q.head} had become old"
            )

    def timeouts(self):
        """(least, most) packets that left because of their merge timer: an entry reacts within two
        sweeps."""
        late = 2 * self.cfg.pool_depth + 4
        ages = [
            p.take - p.stores[0].placed - self.merge_timeout for p in self.packets if not p.full
        ]
        return sum(age >= late for age in ages), sum(age >= 0 for age in ages)


class SidePorts:
    """``can_accept``, ``counts.stall_credit``, ``oldest`` and ``draining``, as they follow from the
    entries."""

    still, falls = STILL, FALLS
    on_the_way = ON_THE_WAY

    def __init__(self, rig):
        self._rig, self._still, self._recent, self._shown = rig, 0, {}, None
        self._drained = 0
        self._clear, self._leaving = (
            Counter(),
            Counter(),
        )  # cycles without a reason to drain, by rank

    def look(self, cycle, moved, mark):
        golden = self._rig.golden
        for tag in golden.pending:
            self._recent[tag] = cycle
        busy = golden.arriving or golden.takes or golden.beats or golden.died
        self._still = 0 if moved or mark or busy else self._still + 1
        self._oldest(cycle)
        self._drains(cycle, mark)
        if self._still >= self.still:
            self._can_accept()
            self._credit(cycle)

    def _can_accept(self):
        rig, cfg, golden = self._rig, self._rig.cfg, self._rig.golden
        counts = Counter(tag[1] for tag in golden.pending)
        spare = cfg.pool_depth - cfg.ranks
        shared = spare - sum(count - 1 for count in counts.values())
        room = min(self.on_the_way, spare)
        wanted = [
            int(not counts[rank] or (counts[rank] + room <= golden.max_entries and shared >= room))
            for rank in range(cfg.ranks)
        ]
        word = rig.get("can_accept")
        assert [word >> rank & 1 for rank in range(cfg.ranks)] == wanted, (
            f"can_accept with entries {dict(counts)}"
        )

    def _eligible(self, queue, cycle):
        """(this entry may surely leave, perhaps)."""
        golden, depth = self._rig.golden, self._rig.cfg.pool_depth
        age = cycle - queue[0].placed
        surely = (
            golden.merged(queue)["bytes"] == queue[0].full
            or any(s.marked is not None for s in queue)
            or age >= golden.merge_timeout + 2 * depth + 4
        )
        perhaps = age >= min(golden.merge_timeout, golden.age_limit) - STILL
        return surely, perhaps or cycle - golden.stalled_at < 2 * STILL

    def _credit(self, cycle):
        rig, golden = self._rig, self._rig.golden
        surely, perhaps = set(), set()
        for tag, queue in golden.pending.items():
            sure, possible = self._eligible(queue, cycle)
            if sure:
                surely.add(tag[1])
            elif possible:
                perhaps.add(tag[1])
        ready = rig.get("dest_ready")
        if any(
            ready >> rank & 1 and cycle - since <= self.still
            for rank, since in enumerate(golden.ready_since)
        ):
            return  # a credit has just come
        assert not any(ready >> rank & 1 for rank in surely), (
            f"an entry of {surely} may leave, but does not"
        )
        stalls = rig.get("counts")["stall_credit"]
        assert stalls == bool(surely) or perhaps, f"stall_credit = {stalls}, eligible: {surely}"

    def _sweeps(self):
        """Cycles: that an entry is shown for after it has left; until all have been visited; by
        which the age shown is behind, and the oldest entry is not the oldest."""
        depth = self._rig.cfg.pool_depth
        return 3 * depth + 2, 3 * depth + STILL, 3 * depth + 4, 2 * depth + 2

    def _oldest(self, cycle):
        rig, golden, depth = self._rig, self._rig.golden, self._rig.cfg.pool_depth
        shown, (gone, settle, behind, younger) = rig.get("oldest"), self._sweeps()
        settled = self._still > settle
        if shown == self._shown and not (settled and self._still % depth == 0):
            return
        self._shown = shown
        if settled:
            assert shown["valid"] == bool(golden.pending), "oldest, with nothing or all there"
        if not shown["valid"]:
            return
        fields = tuple(shown[name] for name in ("rank", "region", "epoch", "rowid"))
        same = [
            tag
            for tag, at in self._recent.items()
            if cycle - at <= gone
            and (fields == (tag[1], 0, 0, 0) if tag[0] else fields == tag[1:5])
            and tag[0] == shown["plain"]
        ]
        assert same, f"the oldest entry is {shown}, which is not there"
        if settled:
            placed = {tag: queue[0].placed for tag, queue in golden.pending.items()}
            ages = [cycle - placed[tag] for tag in same if tag in placed]
            assert any(min(age, 0xFFFF) - behind <= shown["age"] <= age for age in ages), (
                f"{shown}, of age {ages}"
            )
            first = cycle - min(placed.values())
            assert max(ages) >= first - younger, (
                f"{shown} is not the oldest, another has {first} cycles"
            )

    def _drains(self, cycle, mark):
        rig, golden = self._rig, self._rig.golden
        word = rig.get("draining")
        for rank in range(rig.cfg.ranks):
            assert not self._idle(cycle, mark, rank) or not word >> rank & 1, (
                f"rank {rank} drains without a reason"
            )
            if self._drained & ~word & 1 << rank and not golden.died:
                last = max(
                    (
                        p.last
                        for p in golden.packets
                        if p.rank == rank  # a mark shows from the next cycle on
                        and any(s.marked is not None and s.marked < cycle for s in p.stores)
                    ),
                    default=-99,
                )
                assert cycle - last >= self.falls, (
                    f"rank {rank} has drained {cycle - last} cycles after its last beat"
                )
        self._drained = word

    def _idle(self, cycle, mark, rank):
        """There has been no reason to drain for so long that it is seen."""
        golden = self._rig.golden
        # A mark covers a packet that is just leaving whatever its handle.
        self._leaving[rank] = bool(golden.in_flight[rank]) and (mark or self._leaving[rank])
        reason = mark or self._leaving[rank] or golden.covered[rank] or golden.died
        self._clear[rank] = 0 if reason else self._clear[rank] + 1
        return self._clear[rank] >= DRAINED
