# SPDX-License-Identifier: Apache-2.0
"""Golden model of the wide packet manager: that of today's, with records instead of flits, buckets
and a share of the rest as its order, and stores that take a few steps to their entries.

Written from architecture 6.2, interfaces sections 1 and 4, and the order of the block's page. All
cycles are those in which something is seen at a port.
"""

from dataclasses import dataclass

from .packet_manager import PacketManagerGolden, Store

__all__ = ["WidePacketManagerGolden"]

STEPS = 4  # cycles without a stall from a store's acceptance, itself included, to its entry
SEEN = 10  # cycles from the last store of a full entry until it can be chosen
BUCKETS, REST_SHARE = 8, 4
BUCKET, PLAIN, LOW, PARTIAL = range(4)  # classes of packets, the better ones first


@dataclass(eq=False)
class WideStore(Store):
    """``steps`` to its entry are left."""

    steps: int = STEPS


class WidePacketManagerGolden(PacketManagerGolden):
    """Checks one wide packet manager.

    Parameters: ``cfg``; ``slice_bytes``; ``limits`` as of today's.
    """

    closes = (2, 4)
    seen = SEEN
    turns = 3

    def __init__(self, cfg, slice_bytes, **limits):
        super().__init__(cfg, **limits)
        self.slice_bytes = slice_bytes
        self.sweep = 2 * cfg.pool_depth + 8  # an entry is visited within so many cycles
        self.old_at = [-(10**6)] * cfg.ranks  # last cycle with an old entry
        self.circle = [
            set(range(BUCKETS)) for _ in range(cfg.ranks)
        ]  # buckets that may be the last
        self.stalls, self.stalled = [], 0  # cycles; so many in a row
        self.draining, self.met = 0, -1  # as shown in the cycle before; last marks that met

    # -- inputs ------------------------------------------------------------------------------------

    def store(self, fields, cycle):
        if fields["mask"]:
            self.arriving.append(WideStore(fields, cycle))

    def mark(self, everything, handle, cycle):
        """A mark that meets another one makes everything ready."""
        if self.draining:
            self.met = cycle
        super().mark(everything, handle, cycle)

    def cycle(self, cycle, **seen):
        """``stalled``: a store waited in the cycle before."""
        super().cycle(cycle, **seen)
        self.draining = seen["draining"]
        for queue in self.pending.values():
            if cycle - queue[0].placed >= self.age_limit:
                self.old_at[queue[0].rank] = cycle

    def sunk(self, rank):
        """All entries of a dead rank have been sunk: forgets them; returns (tags, stores)."""
        tags = [tag for tag in self.pending if tag[1] == rank]
        stores = [s for tag in tags for s in self.pending.pop(tag)]
        for s in stores:
            s.gone = True
        return len(tags), len(stores)

    # -- judgement ---------------------------------------------------------------------------------

    def _step(self, stalled, cycle):
        if stalled:
            self.totals["stall_pool"] += 1
            self.stalls.append(cycle - 1)
            self.stalled += 1
            self._stalled(cycle - 1)
            return
        self.stalled = 0
        for s in self.arriving:
            s.steps -= s.accepted < cycle
        if self.arriving and self.arriving[0].steps == 0:
            self._place(self.arriving.popleft(), cycle - 1)

    def _stalled(self, cycle):
        waits = self.arriving and self.arriving[0]
        assert waits and waits.steps == 1, f"cycle {cycle}: a stall, and nobody waits"
        here = any(tag[1] == waits.rank for tag in self.pending)
        excused = self.in_flight[waits.rank] or cycle - self.out_at[waits.rank] < 8
        excused = excused or self.dead_since[waits.rank] is not None or self.stalled < 3
        assert here or excused, (
            f"cycle {cycle}: rank {waits.rank} has no entry and does not get its reserved one"
        )
        assert self.tag(waits) not in self.pending or excused, (
            f"cycle {cycle}: a store that could merge stalls"
        )

    def _sink(self, rank):
        """When an entry is sunk cannot be seen from outside: see :meth:`sunk`."""

    def _drains(self, rank):
        return self.dead_since[rank] is None

    def base(self, s):
        return s.part * self.slice_bytes

    def content(self, stores):
        got = self.merged(stores)
        return got["mask"], bytes(got["data"]), int(all(s.cls for s in stores))

    def read(self, beats, where):
        header, mask = beats[0]["header"], beats[0]["mask"]
        data, size = bytearray(self.cfg.packet_bytes), self.slice_bytes
        for beat in beats:
            assert (beat["header"], beat["mask"]) == (header, mask), f"{where}: header changes"
            base = beat["part"] * size
            data[base : base + size] = beat["data"].to_bytes(size, "little")
        ones = (1 << size) - 1
        parts = [p for p in range(len(data) // size) if mask >> p * size & ones]
        assert [beat["part"] for beat in beats] == parts, f"{where}: beats for other parts"
        assert [beat["last"] for beat in beats] == [0] * (len(beats) - 1) + [1], f"{where}: last"
        kept = bytes(byte if mask >> n & 1 else 0 for n, byte in enumerate(data))
        return header["rank"], self.tag(Store(header, 0)), (mask, kept, header["cls"])

    def kind(self, stores):
        """Class of the packet that these stores make."""
        if self.merged(stores)["bytes"] != stores[0].full:
            return PARTIAL
        if all(s.cls for s in stores):
            return LOW
        return PLAIN if stores[0].plain else BUCKET

    def bucket(self, rowid):
        return rowid >> self.bucket_shift & BUCKETS - 1

    def early(self, stores, until):
        """Something but its bytes may have made this entry ready by then."""
        opened = stores[0].placed
        return (
            until - opened >= min(self.merge_timeout, self.age_limit)
            or any(s.marked is not None and s.marked <= until for s in stores)
            or self.met >= opened - STEPS
            or any(cycle >= opened for cycle in self.stalls[-1:])
            or any(since is not None for since in self.dead_since)
        )

    def _may_leave(self, packet, where):
        assert packet.full or self.early(packet.stores, packet.take), (
            f"{where}: partial, and nothing made it ready (age {packet.age})"
        )

    def _nothing_better(self, x, tag, where):
        """No entry of the rank that could surely be chosen was surely to leave before ``x``."""
        x.kind, others = self.kind(x.stores), []
        for other, queue in self.pending.items():
            stores = [s for s in queue if s.placed <= x.take - SEEN]
            if other == tag or other[1] != x.rank or not stores:
                continue
            kind = self.kind(stores)
            if kind != PARTIAL and not self.early(stores, stores[-1].placed):
                others.append((kind, stores))
        # An entry that comes when nothing waits is locked at once: it does not move the circle.
        circle = self.circle[x.rank]
        if x.kind == BUCKET and not self.early(x.stores, x.stores[-1].placed):
            mine = self.bucket(x.rowid)
            self.circle[x.rank] = {mine} if others else circle | {mine}
        else:
            self.circle[x.rank] = circle
        if self.old_at[x.rank] >= x.take - 2 * self.sweep or not others:
            return
        before = [p.kind for p in self.packets if p.rank == x.rank][1 - REST_SHARE :]
        turn = len(before) < REST_SHARE - 1 or all(kind == BUCKET for kind in before)
        for kind, stores in others:
            ahead = kind < x.kind and (kind != BUCKET or not turn)
            if kind == x.kind == BUCKET and not self.early(x.stores, x.stores[-1].placed):
                near, far = self.bucket(stores[0].rowid), self.bucket(x.rowid)
                ahead = all((near - at) % BUCKETS < (far - at) % BUCKETS for at in circle)
                ahead |= near == far and stores[-1].placed + SEEN < x.stores[-1].placed
            assert not ahead, f"{where}: left before {stores[0].fields}, which was better"

    def _waits_from(self, packet):
        if packet.eligible is None or self.early(packet.stores, packet.stores[-1].placed):
            return None
        return max(packet.eligible, packet.ready_since[packet.rank] + 2)

    def timeouts(self):
        """(least, most) packets whose merge timer made them ready."""
        partial = [p for p in self.packets if not p.full]
        surely = [
            p
            for p in partial
            if p.age >= self.merge_timeout + 2 * self.sweep
            and self.age_limit > self.merge_timeout + 2 * self.sweep
            and not any(s.marked for s in p.stores)
            and not any(p.stores[0].placed <= cycle <= p.take for cycle in self.stalls)
        ]
        return len(surely), sum(p.age >= self.merge_timeout for p in partial)
