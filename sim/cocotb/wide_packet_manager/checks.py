# SPDX-License-Identifier: Apache-2.0
"""What the wide packet manager promises beside the packets: side ports while nothing moves, drains
that end."""

from collections import Counter

from hub_rtl.wide_packet_manager.quota import ON_THE_WAY

__all__ = ["SidePorts"]

STILL = 24  # cycles without any movement after which the side ports have settled
FALLS = 5  # cycles from a marked packet's last beat until `draining` falls, at least


class SidePorts:
    """``can_accept``, ``counts.stall_credit``, ``oldest`` and ``draining``, as they follow from the
    entries."""

    def __init__(self, rig):
        self._rig, self._still, self._recent, self._shown = rig, 0, {}, None
        self._drained, self._clear = 0, Counter()  # cycles without a reason to drain, by rank
        self._out = Counter()  # last cycle with a packet under way, by rank

    def look(self, cycle, moved, mark):
        golden = self._rig.golden
        for tag in golden.pending:
            self._recent[tag] = cycle
        busy = golden.arriving or golden.takes or golden.beats or self._rig.died
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
            int(not counts[r] or (counts[r] + room <= golden.max_entries and shared >= room))
            for r in range(cfg.ranks)
        ]
        word = rig.get("can_accept")
        assert [word >> r & 1 for r in range(cfg.ranks)] == wanted, (
            f"can_accept with entries {dict(counts)}"
        )

    def _credit(self, cycle):
        rig, golden = self._rig, self._rig.golden
        surely, perhaps = set(), set()
        for tag, queue in golden.pending.items():
            age = cycle - queue[0].placed
            timeout = min(golden.merge_timeout, golden.age_limit)
            if (
                golden.kind(queue) < 3
                or any(s.marked is not None and cycle - s.marked > golden.sweep for s in queue)
                or age >= timeout + golden.sweep
            ):
                surely.add(tag[1])
            elif golden.early(list(queue), cycle + STILL):
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
        assert stalls == bool(surely) or perhaps, f"stall_credit = {stalls}, ready: {surely}"

    def _oldest(self, cycle):
        rig, golden, sweep = self._rig, self._rig.golden, self._rig.golden.sweep
        shown = rig.get("oldest")
        settled = self._still > 2 * sweep + STILL
        if shown == self._shown and not (settled and self._still % sweep == 0):
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
            assert max(ages) == cycle - min(placed.values()), f"{shown} is not the oldest"

    def _drains(self, cycle, mark):
        rig, golden = self._rig, self._rig.golden
        word = rig.get("draining")
        waits = any(s.marked is not None for s in golden.arriving)
        for rank in range(rig.cfg.ranks):
            # A mark covers all until a sweep has told the others, and what is just leaving.
            met = any(
                tag[1] == rank and queue[0].placed <= golden.met
                for tag, queue in golden.pending.items()
            )
            reason = mark or met or golden.covered[rank] or waits or rig.died
            self._clear[rank] = 0 if reason else self._clear[rank] + 1
            if golden.in_flight[rank]:
                self._out[rank] = cycle
            late = cycle - self._out[rank] < STILL or self._clear[rank] < 2 * golden.sweep + STILL
            assert late or not word >> rank & 1, f"rank {rank} drains without a reason"
            if self._drained & ~word & 1 << rank and not rig.died:
                last = max(
                    (
                        p.last
                        for p in golden.packets
                        if p.rank == rank
                        and any(s.marked is not None and s.marked < cycle for s in p.stores)
                    ),
                    default=-99,
                )
                assert cycle - last >= FALLS, (
                    f"rank {rank} has drained {cycle - last} cycles after its last beat"
                )
        self._drained = word
