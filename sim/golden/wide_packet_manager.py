# SPDX-License-Identifier: Apache-2.0
"""Golden model of the wide packet manager: judges what was seen at its ports, cycle stamps
included.

The exact order of packets depends on timing, so the model does not predict it. It keeps every
accepted store until a packet carries it, rebuilds each packet byte by byte, and checks the promises
of order, drain and accounting on the stamps. Written from architecture 6.2, interfaces sections 1
and 4, and the order of the block's page. All cycles are those in which something is seen at a port.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

__all__ = ["Packet", "Store", "WidePacketManagerGolden"]

STEPS = 4  # cycles without a stall from a store's acceptance, itself included, to its entry
CLOSES = (2, 4)  # cycles from a lock's credit until the entry takes no store: surely not, surely
SEEN = 10  # cycles from the last store of a full entry until it can be chosen
LEDGER = 3  # cycles from o_sent to the ledger
BUCKETS, REST_SHARE = 8, 4
BUCKET, PLAIN, LOW, PARTIAL = range(4)  # classes of packets, the better ones first


@dataclass(eq=False)
class Store:
    """An accepted store; ``placed``: the cycle in which it found its entry, None while it has
    not."""

    fields: dict
    accepted: int
    steps: int = STEPS
    placed: int | None = None
    marked: int | None = None
    gone: bool = False

    def __getattr__(self, name):
        if name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Packet:
    """A packet that left. ``take``: cycle of its credit; ``kind``: its class; ``eligible``: since
    when it could be chosen, None if it was not full."""

    rank: int
    take: int
    head: int
    last: int
    bytes: int
    kind: int
    nop: bool
    plain: bool
    rowid: int
    stores: list = field(repr=False)
    eligible: int | None = None
    ready_since: list = field(default_factory=list, repr=False)

    @property
    def full(self):
        return self.kind != PARTIAL

    @property
    def age(self):
        return self.take - self.stores[0].placed


class WidePacketManagerGolden:
    """Checks one packet manager. Raises AssertionError with the reason.

    Parameters: ``cfg``; ``slice_bytes``; ``merge_timeout``, ``age_limit``, ``max_entries``,
    ``bucket_shift`` as driven. Attributes: ``packets``, all that left, in order; ``totals``,
    Counter of the strobes that must have come; ``ledger``, Counter of bytes by (dest, bank).
    """

    def __init__(
        self, cfg, slice_bytes, merge_timeout=200, age_limit=2000, max_entries=None, bucket_shift=0
    ):
        self.cfg, self.slice_bytes = cfg, slice_bytes
        self.merge_timeout, self.age_limit, self.bucket_shift = (
            merge_timeout,
            age_limit,
            bucket_shift,
        )
        self.max_entries = cfg.pool_depth if max_entries is None else max_entries
        self.sweep = 2 * cfg.pool_depth + 8  # an entry is visited within so many cycles
        self.pending = {}  # tag: deque of placed stores that no packet has carried
        self.arriving = deque()  # accepted stores that are not placed
        self.takes = deque()  # (cycle, rank, ready_since)
        self.beats, self.head = [], 0
        self.sent = deque()  # (cycle of the last beat, o_sent, stores)
        self.done = deque()  # (cycle of o_sent, stores)
        self.covered = [[] for _ in range(cfg.ranks)]
        self.packets, self.totals, self.ledger = [], Counter(), Counter()
        self.in_flight = Counter()  # packets taken and not yet wholly out, by rank
        self.out_at = [-100] * cfg.ranks
        self.ready_since = [0] * cfg.ranks
        self.old_at = [-(10**6)] * cfg.ranks  # last cycle with an old entry
        self.circle = [
            set(range(BUCKETS)) for _ in range(cfg.ranks)
        ]  # buckets that may be the last
        self.dead_since = [None] * cfg.ranks
        self.stalls, self.stalled = [], 0  # cycles; so many in a row
        self.draining, self.met = 0, -1  # as shown in the cycle before; last marks that met

    # -- inputs ------------------------------------------------------------------------------------

    def tag(self, s):
        if s.plain:
            return (1, s.rank, s.block)
        return (0, s.rank, s.region, s.epoch, s.rowid, s.block)

    def store(self, fields, cycle):
        """A store was accepted."""
        if fields["mask"]:
            self.arriving.append(Store(fields, cycle))

    def inside(self):
        """All stores whose bytes the ledger does not show yet."""
        yield from self.arriving
        for queue in self.pending.values():
            yield from queue
        for *_, carried in (*self.sent, *self.done):
            yield from carried

    def mark(self, everything, handle, cycle):
        """All stores accepted up to this cycle, this one included, drain. Call after :meth:`store`
        of the same cycle. A mark that meets another one makes everything ready."""
        if self.draining:
            self.met = cycle
        for s in self.inside():
            if s.marked is None and (
                everything or (not s.plain and s.dest // self.cfg.replicas == handle)
            ):
                s.marked = cycle
                self.covered[s.rank].append(s)

    def take(self, rank, cycle):
        """A credit was taken: an entry of this rank is locked."""
        since = self.dead_since[rank]
        assert since is None or cycle <= since + 1, f"cycle {cycle}: lock for dead rank {rank}"
        self.takes.append((cycle, rank, list(self.ready_since)))
        self.in_flight[rank] += 1

    def beat(self, beat, cycle):
        """A beat was taken from ``o_record``."""
        if not self.beats:
            self.head = cycle
        self.beats.append(beat)
        if beat["last"]:
            beats, self.beats = self.beats, []
            self._packet(beats, self.head, cycle)

    def o_sent(self, item, cycle):
        """``o_sent`` pulsed."""
        assert self.sent, f"cycle {cycle}: o_sent without a row packet"
        last, expected, stores = self.sent.popleft()
        assert item == expected, f"cycle {cycle}: o_sent is {item}, the packet had {expected}"
        assert 0 <= cycle - last <= 2, f"o_sent {cycle - last} cycles after the last beat"
        self.ledger[item["dest"], item["bank"]] += item["bytes"]
        self.done.append((cycle, stores))

    def cycle(self, cycle, *, stalled, dest_ready, peer_dead, draining):
        """End of a cycle, after all that was seen in it. ``stalled``: a store waited in the cycle
        before."""
        self._step(stalled, cycle - 1)
        self.draining = draining
        for r in range(self.cfg.ranks):
            if not dest_ready >> r & 1:
                self.ready_since[r] = cycle + 1
            if not peer_dead >> r & 1:
                self.dead_since[r] = None
            elif self.dead_since[r] is None:
                self.dead_since[r] = cycle
        for queue in self.pending.values():
            if cycle - queue[0].placed >= self.age_limit:
                self.old_at[queue[0].rank] = cycle
        while self.done and self.done[0][0] + LEDGER <= cycle:
            for s in self.done.popleft()[1]:
                s.gone = True
        for r in range(self.cfg.ranks):
            self.covered[r] = [s for s in self.covered[r] if not s.gone]
            if self.dead_since[r] is None and any(s.marked < cycle for s in self.covered[r]):
                assert draining >> r & 1, (
                    f"cycle {cycle}: rank {r} does not drain, marked bytes are not in the ledger"
                )

    def sunk(self, rank):
        """All entries of a dead rank have been sunk: forgets them; returns (tags, stores)."""
        tags = [tag for tag in self.pending if tag[1] == rank]
        stores = [s for tag in tags for s in self.pending.pop(tag)]
        for s in stores:
            s.gone = True
        return len(tags), len(stores)

    # -- judgement ---------------------------------------------------------------------------------

    def _step(self, stalled, cycle):
        """The stores inside have moved, or one waits."""
        if stalled:
            self.totals["stall_pool"] += 1
            self.stalls.append(cycle)
            self.stalled += 1
            self._stalled(cycle)
            return
        self.stalled = 0
        for s in self.arriving:
            s.steps -= s.accepted <= cycle
        if self.arriving and self.arriving[0].steps == 0:
            self._place(self.arriving.popleft(), cycle)

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

    def _place(self, s, cycle):
        s.placed = cycle
        self.pending.setdefault(self.tag(s), deque()).append(s)
        if any(since is not None for since in self.dead_since):
            return  # when an entry is sunk cannot be seen from outside
        tags = sum(1 for tag in self.pending if tag[1] == s.rank) - self.in_flight[s.rank]
        assert tags <= max(1, self.max_entries), (
            f"cycle {cycle}: rank {s.rank} holds {tags} entries"
        )
        total = len(self.pending) - self.in_flight.total()
        others = self.cfg.ranks - len({tag[1] for tag in self.pending})
        assert total + others <= self.cfg.pool_depth, (
            f"cycle {cycle}: no place left for {others} ranks"
        )

    def merged(self, stores):
        """(mask, data) of stores written in order: the newer bytes win."""
        mask, data = 0, bytearray(self.cfg.packet_bytes)
        for s in stores:
            base = s.part * self.slice_bytes
            mask |= s.mask << base
            for n in range(self.slice_bytes):
                if s.mask >> n & 1:
                    data[base + n] = s.data >> 8 * n & 0xFF
        return mask, data

    def _packet(self, beats, head, last):
        assert self.takes, f"cycle {last}: packet without a credit"
        take, rank, ready_since = self.takes.popleft()
        self.in_flight[rank] -= 1
        self.out_at[rank] = last
        where = f"packet of cycles {head}..{last} (locked in {take})"
        header, mask = beats[0]["header"], beats[0]["mask"]
        assert header["rank"] == rank, (
            f"{where}: goes to {header['rank']}, the credit was for {rank}"
        )
        data = bytearray(self.cfg.packet_bytes)
        for beat in beats:
            assert (beat["header"], beat["mask"]) == (header, mask), f"{where}: header changes"
            base = beat["part"] * self.slice_bytes
            data[base : base + self.slice_bytes] = beat["data"].to_bytes(self.slice_bytes, "little")
        ones = (1 << self.slice_bytes) - 1
        parts = [
            p for p in range(len(data) // self.slice_bytes) if mask >> p * self.slice_bytes & ones
        ]
        assert [beat["part"] for beat in beats] == parts, f"{where}: beats for other parts"
        assert [beat["last"] for beat in beats] == [0] * (len(beats) - 1) + [1], f"{where}: last"
        tag = self.tag(Store(header, 0))
        queue = self.pending.get(tag)
        assert queue, f"{where}: nothing was stored for {tag}"
        must, may = (sum(s.placed <= take + close for s in queue) for close in CLOSES)
        for count in range(max(must, 1), may + 1):
            stores = list(queue)[:count]
            kept, wanted = self.merged(stores)
            if (
                kept == mask
                and all(not mask >> n & 1 or data[n] == wanted[n] for n in range(len(data)))
                and header["cls"] == all(s.cls for s in stores)
            ):
                break
        else:
            raise AssertionError(
                f"{where}: {tag}\n  came     {mask:x} {data.hex()}\n"
                f"  expected {must} to {may} of {list(queue)}"
            )
        kind = self.kind(stores)
        packet = Packet(
            rank,
            take,
            head,
            last,
            mask.bit_count(),
            kind,
            all(s.cls for s in stores),
            bool(stores[0].plain),
            stores[0].rowid,
            stores,
            ready_since=ready_since,
        )
        if packet.full:
            packet.eligible = stores[-1].placed + SEEN
        self._may_leave(packet, where)
        self._nothing_better(packet, tag, where)
        for _ in range(count):
            queue.popleft()
        if not queue:
            del self.pending[tag]
        self._account(packet)

    def kind(self, stores):
        """Class of the packet that these stores make."""
        if self.merged(stores)[0].bit_count() != stores[0].full:
            return PARTIAL
        if all(s.cls for s in stores):
            return LOW
        return PLAIN if stores[0].plain else BUCKET

    def bucket(self, rowid):
        return rowid >> self.bucket_shift & BUCKETS - 1

    def _account(self, packet):
        stores, seen = packet.stores, 0
        for s in stores:
            mask = s.mask << self.slice_bytes * s.part
            self.totals["overlaps"] += bool(mask & seen)
            seen |= mask
        self.totals["merges"] += len(stores) - 1
        self.totals["packets_full" if packet.full else "packets_partial"] += 1
        self.packets.append(packet)
        if packet.plain:
            for s in stores:
                s.gone = True
        else:
            first = stores[0]
            expected = {"en": 1, "dest": first.dest, "bank": first.epoch & 1, "bytes": packet.bytes}
            self.sent.append((packet.last, expected, stores))

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
        others = []
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

    def fairness(self):
        """No rank is served twice while another one waits with a full packet and a credit. Call at
        the end."""
        for n, q in enumerate(self.packets):
            if q.eligible is None or self.early(q.stores, q.stores[-1].placed):
                continue
            start = max(q.eligible, q.ready_since[q.rank] + 2)
            between = Counter()
            for p in reversed(self.packets[:n]):
                if p.take < start or p.rank == q.rank:
                    break
                between[p.rank] += 1
            assert all(count < 3 for count in between.values()), (
                f"rank {q.rank} waited from cycle {start} to {q.take}, others left: {dict(between)}"
            )

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

    def finish(self):
        """Everything that was accepted has left or was sunk, and nothing is under way."""
        left = {tag: len(q) for tag, q in self.pending.items() if q}
        assert not left and not self.arriving, f"never left: {left}, waiting: {len(self.arriving)}"
        assert not self.takes and not self.beats and not self.sent, "a packet is not complete"
        self.fairness()
