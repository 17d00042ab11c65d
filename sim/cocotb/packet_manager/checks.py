# SPDX-License-Identifier: Apache-2.0
"""What the packet manager promises beside the packets: side ports while nothing moves, drains that
end."""

from collections import Counter

from hub_rtl.packet_manager.quota import ON_THE_WAY

__all__ = ["SidePorts"]

STILL = 24  # cycles without any movement after which the side ports have settled
FALLS = 5  # cycles from a marked packet's last beat until `draining` falls


class SidePorts:
    """``can_accept``, ``counts.stall_credit``, ``oldest`` and ``draining``, as they follow from the
    entries."""

    def __init__(self, rig):
        self._rig, self._still, self._recent, self._shown = rig, 0, {}, None
        self._drained, self._marked = 0, False
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
        if self._still >= STILL:
            self._can_accept()
            self._credit(cycle)

    def _can_accept(self):
        rig, cfg, golden = self._rig, self._rig.cfg, self._rig.golden
        counts = Counter(tag[1] for tag in golden.pending)
        spare = cfg.pool_depth - cfg.ranks
        shared = spare - sum(count - 1 for count in counts.values())
        room = min(ON_THE_WAY, spare)
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
        golden = self._rig.golden
        timeout = min(golden.merge_timeout, golden.age_limit)
        surely = (
            golden.merged(queue)["bytes"] == queue[0].full
            or any(s.marked is not None and cycle - s.marked > golden.sweep for s in queue)
            or cycle - max(queue[0].placed + timeout, self._rig.changed) >= golden.sweep
        )
        return surely, golden.early(list(queue), cycle + STILL)

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
            ready >> rank & 1 and cycle - since <= STILL
            for rank, since in enumerate(golden.ready_since)
        ):
            return  # a credit has just come
        assert not any(ready >> rank & 1 for rank in surely), (
            f"an entry of {surely} may leave, but does not"
        )
        stalls = rig.get("counts")["stall_credit"]
        assert stalls == bool(surely) or perhaps, f"stall_credit = {stalls}, eligible: {surely}"

    def _oldest(self, cycle):
        rig, golden, depth = self._rig, self._rig.golden, self._rig.cfg.pool_depth
        shown, sweep = rig.get("oldest"), golden.sweep
        settled = self._still > 2 * sweep + STILL  # all have been visited
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
            if cycle - at <= 3 * sweep
            and (fields == (tag[1], 0, 0, 0) if tag[0] else fields == tag[1:5])
            and tag[0] == shown["plain"]
        ]
        assert same, f"the oldest entry is {shown}, which is not there"
        if settled:
            placed = {tag: queue[0].placed for tag, queue in golden.pending.items()}
            ages = [cycle - placed[tag] for tag in same if tag in placed]
            assert any(min(age, 0xFFFF) - 2 * sweep <= shown["age"] <= age for age in ages), (
                f"{shown}, of age {ages}"
            )
            # Each had its age when it was visited: within a sweep the later visit adds to it.
            first = cycle - min(placed.values())
            assert max(ages) + depth >= first, (
                f"{shown} is not the oldest, another has {first} cycles"
            )

    def _drains(self, cycle, mark):
        rig, golden = self._rig, self._rig.golden
        word = rig.get("draining")
        assert self._marked or not word, f"{word:b} drains, and there was no mark"
        self._marked |= mark
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
                assert cycle - last >= FALLS, (
                    f"rank {rank} has drained {cycle - last} cycles after its last beat"
                )
        self._drained = word

    def _idle(self, cycle, mark, rank):
        """There has been no reason to drain for so long that it is seen."""
        # A mark covers all until a sweep has told the others, and what is just leaving.
        golden = self._rig.golden
        met = golden.met >= 0 and any(
            tag[1] == rank and queue[0].placed <= golden.met
            for tag, queue in golden.pending.items()
        )
        waits = any(s.marked is not None for s in golden.arriving)
        reason = mark or met or golden.covered[rank] or waits or golden.died
        self._clear[rank] = 0 if reason else self._clear[rank] + 1
        if golden.in_flight[rank]:
            self._leaving[rank] = cycle
        return (
            cycle - self._leaving[rank] >= STILL and self._clear[rank] >= 2 * golden.sweep + STILL
        )
