# SPDX-License-Identifier: Apache-2.0
"""Golden model of the packet manager: judges what was seen at its ports, cycle stamps included.

The exact order of packets depends on timing, so the model does not predict it. It keeps every
accepted store until a packet carries it, rebuilds each record byte by byte, and checks the promises
of order, drain and accounting on the stamps. Written from architecture 6.2, interfaces sections 1
and 4, and the order of the block's page. All cycles are those in which something is seen at a port.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from hub_rtl.contract.packets import link_of

__all__ = ["PacketManagerGolden", "Store", "Packet"]

STEPS = 4  # cycles without a stall from a store's acceptance, itself included, to its entry
SEEN = 10  # cycles from the last store of a full entry until it can be chosen
CLOSES = 2, 4  # cycles after a lock in which the entry still surely, and perhaps, merges
TURNS = 3  # packets of another rank before which a rank with a full one has its turn
LEDGER = 3  # cycles from o_sent to the ledger
BUCKETS, REST_SHARE = 8, 4
BUCKET, PLAIN, LOW, PARTIAL = range(4)  # classes of packets, the better ones first
ROWS_FIRST, IN_TURNS, PLAIN_FIRST = range(3)  # values of control.PRIORITY


@dataclass(eq=False)
class Store:
    """An accepted store; ``placed`` is the cycle in which it went into its entry, None while it
    waits, when ``steps`` to its entry are left."""

    fields: dict
    accepted: int
    placed: int | None = None
    marked: int | None = None
    gone: bool = False  # in the ledger, or sunk
    steps: int = STEPS

    def __getattr__(self, name):
        if name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Packet:
    """A packet that left. ``take``: cycle of its lock; ``kind``: its class; ``eligible``: cycle
    since when it was full (None if it was not, or something else may have made it ready)."""

    rank: int
    take: int
    head: int
    last: int
    bytes: int
    kind: int
    rowid: int
    stores: list = field(repr=False)
    ready_since: list = field(default_factory=list, repr=False)
    eligible: int | None = None

    @property
    def age(self):
        return self.take - self.stores[0].placed

    @property
    def full(self):
        return self.kind != PARTIAL

    @property
    def nop(self):
        return all(s.cls for s in self.stores)

    @property
    def plain(self):
        return bool(self.stores[0].plain)


class PacketManagerGolden:
    """Checks one packet manager. Raises AssertionError with the reason.

    Parameters: ``cfg``; ``merge_timeout``, ``age_limit``, ``max_entries``, ``bucket_shift``,
    ``priority`` as driven. Attributes: ``packets``, all that left, in order; ``totals``, Counter of
    the strobes that must have come; ``ledger``, Counter of bytes by (dest, bank); ``died``, a peer
    has died.
    """

    def __init__(
        self,
        cfg,
        merge_timeout=200,
        age_limit=2000,
        max_entries=None,
        bucket_shift=0,
        priority=ROWS_FIRST,
    ):
        self.cfg = cfg
        self.merge_timeout, self.age_limit = merge_timeout, age_limit
        self.max_entries = cfg.pool_depth if max_entries is None else max_entries
        self.bucket_shift, self.priority = bucket_shift, priority
        self.sweep = 2 * cfg.pool_depth + 8  # an entry is visited within so many cycles
        self.pending = {}  # tag: deque of stores that no packet has carried
        self.arriving = deque()  # accepted stores that are not placed
        self.takes = deque()  # (cycle, rank, ready_since)
        self.beats, self.head = [], 0
        self.sent = deque()  # (last beat's cycle, {dest, bank, bytes}, stores)
        self.done = deque()  # (cycle of o_sent, stores)
        self.covered = [[] for _ in range(cfg.ranks)]
        self.packets, self.totals, self.ledger = [], Counter(), Counter()
        self.in_flight = Counter()  # packets taken and not yet wholly out, by rank
        self.out_at = [-100] * cfg.ranks  # cycle in which the last of them was
        self.ready_since = [0] * cfg.ranks
        self.died = False
        self.dead_since = [None] * cfg.ranks
        self.old_at = [-(10**6)] * cfg.ranks  # last cycle with an old entry
        self.circle = [set(range(BUCKETS)) for _ in range(cfg.ranks)]  # that may be the last one
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
        """A beat of a packet was taken from the output."""
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
        for r in range(self.cfg.ranks):
            if not dest_ready >> r & 1:
                self.ready_since[r] = cycle + 1
            if not peer_dead >> r & 1:
                self.dead_since[r] = None
            elif self.dead_since[r] is None:
                self.dead_since[r], self.died = cycle, True
        self._step(stalled, cycle)
        while self.done and self.done[0][0] + LEDGER <= cycle:
            for s in self.done.popleft()[1]:
                s.gone = True
        for r in range(self.cfg.ranks):
            self.covered[r] = [s for s in self.covered[r] if not s.gone]
            if self.dead_since[r] is None and any(s.marked < cycle for s in self.covered[r]):
                assert draining >> r & 1, (
                    f"cycle {cycle}: rank {r} does not drain, marked bytes are not in the ledger"
                )
        self.draining = draining
        for queue in self.pending.values():
            if cycle - queue[0].placed >= self.age_limit:
                self.old_at[queue[0].rank] = cycle

    def sunk(self, rank):
        """All entries of a dead rank have been sunk, which cannot be seen from outside: forgets
        them; returns (tags, stores)."""
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

    def _place(self, s, cycle):
        s.placed = cycle
        self.pending.setdefault(self.tag(s), deque()).append(s)
        if self.died:
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

    def base(self, s):
        """Number of a store's first byte within the block."""
        return s.part * self.cfg.slice_bytes

    def merged(self, stores):
        """{mask, data (bytes), bytes} of stores written in order: the newer bytes win."""
        mask, data = 0, bytearray(self.cfg.packet_bytes)
        for s in stores:
            base = self.base(s)
            mask |= s.mask << base
            for n in range(s.mask.bit_length()):
                if s.mask >> n & 1:
                    data[base + n] = s.data >> 8 * n & 0xFF
        return {"mask": mask, "data": data, "bytes": mask.bit_count()}

    def content(self, stores):
        """The packet that these stores make."""
        got = self.merged(stores)
        return got["mask"], bytes(got["data"]), int(all(s.cls for s in stores))

    def read(self, beats, where):
        """(rank, tag, content) of a record that came."""
        header, mask = beats[0]["header"], beats[0]["mask"]
        assert not header["news"], f"{where}: news"
        link = link_of(header["block"], self.cfg.lanes, self.cfg.slice_links)
        assert header["link"] == (link if header["plain"] else 0), f"{where}: link"
        data, size = bytearray(self.cfg.packet_bytes), self.cfg.slice_bytes
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

    def _packet(self, beats, head, last):
        assert self.takes, f"cycle {last}: packet without a credit"
        take, rank, ready_since = self.takes.popleft()
        self.in_flight[rank] -= 1
        self.out_at[rank] = last
        where = f"packet of cycles {head}..{last} (locked in {take})"
        to, tag, came = self.read(beats, where)
        assert to == rank, f"{where}: goes to {to}, the credit was for {rank}"
        queue = self.pending.get(tag)
        assert queue, f"{where}: nothing was stored for {tag}"
        must, may = (sum(s.placed <= take + close for s in queue) for close in CLOSES)
        for count in range(max(must, 1), may + 1):
            stores = list(queue)[:count]
            if self.content(stores) == came:
                break
        else:
            expected = self.content(list(queue)[: max(may, 1)])
            raise AssertionError(
                f"{where}: {tag}\n  came     {came}\n"
                f"  expected {expected} or with fewer stores ({must}..{may})"
            )
        size, kind = self.merged(stores)["bytes"], self.kind(stores)
        packet = Packet(
            rank, take, head, last, size, kind, stores[0].rowid, stores, ready_since=ready_since
        )
        early = self.early(stores, stores[-1].placed)
        if packet.full and not early:
            packet.eligible = stores[-1].placed + SEEN
        assert packet.full or self.early(stores, take), (
            f"{where}: partial, and nothing made it ready (age {packet.age})"
        )
        self._nothing_better(packet, early, tag, where)
        for _ in range(count):
            queue.popleft()
        if not queue:
            del self.pending[tag]
        self._account(packet)

    def _account(self, packet):
        stores, seen = packet.stores, 0
        for s in stores:
            mask = s.mask << self.base(s)
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

    def kind(self, stores):
        """Class of the packet that these stores make."""
        if self.merged(stores)["bytes"] != stores[0].full:
            return PARTIAL
        if all(s.cls for s in stores):
            return LOW
        return PLAIN if stores[0].plain else BUCKET

    def completed(self, stores):
        """The cycle in which these stores had all bytes of their block."""
        counts = range(1, len(stores) + 1)
        return next(
            stores[n - 1].placed
            for n in counts
            if self.merged(stores[:n])["bytes"] == stores[0].full
        )

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

    def _nothing_better(self, x, early, tag, where):
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
        if x.kind == BUCKET and not early:
            mine = self.bucket(x.rowid)
            self.circle[x.rank] = {mine} if others else circle | {mine}
        if self.old_at[x.rank] >= x.take - 2 * self.sweep or not others:
            return
        before = [p.kind for p in self.packets if p.rank == x.rank][1 - REST_SHARE :]
        turn = len(before) < REST_SHARE - 1 or all(kind == BUCKET for kind in before)
        for kind, stores in others:
            ahead = self._ahead(kind, x, turn)
            if kind == x.kind == BUCKET and not early:
                near, far = self.bucket(stores[0].rowid), self.bucket(x.rowid)
                ahead = all((near - at) % BUCKETS < (far - at) % BUCKETS for at in circle)
                ahead |= near == far and stores[-1].placed + SEEN < self.completed(x.stores)
            assert not ahead, f"{where}: left before {stores[0].fields}, which was better"

    def _ahead(self, kind, x, turn):
        """A packet of this class goes before ``x`` of another one. ``turn``: it may be the turn of
        one that is no full row."""
        held = x.plain and x.kind != LOW  # full .nop ones have their turn, plain or not
        if kind == BUCKET and x.kind != BUCKET:
            if self.priority == PLAIN_FIRST:
                return False  # a plain one that is not full may have held it back
            return not turn or (self.priority == ROWS_FIRST and held)
        if x.kind == BUCKET:
            return self.priority == PLAIN_FIRST and kind == PLAIN
        # Full plain ones may have been behind a row that is not full.
        hidden = self.priority == ROWS_FIRST and kind == PLAIN and not held
        return kind < x.kind and not hidden

    def fairness(self):
        """No rank is served again and again while another one waits with a full packet and a
        credit. Call at the end."""
        for n, q in enumerate(self.packets):
            if q.eligible is None:
                continue
            start, between = max(q.eligible, q.ready_since[q.rank] + 2), Counter()
            for p in reversed(self.packets[:n]):
                if p.take < start or p.rank == q.rank:
                    break
                between[p.rank] += 1
            assert all(count < TURNS for count in between.values()), (
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
