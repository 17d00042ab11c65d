# SPDX-License-Identifier: Apache-2.0
"""Golden model of the packet manager: judges what was seen at its ports, cycle stamps included.

The exact order of packets depends on timing, so the model does not predict it. It keeps every
accepted store until a packet carries it, rebuilds each packet bit by bit, and checks the promises
of order, drain and accounting on the stamps. Written from architecture 6.2 and interfaces sections
1 and 4. All cycles are those in which something is seen at a port.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from hub_rtl.contract.packets import BODIES, HEADER, PacketType, pack, unpack

__all__ = ["PacketManagerGolden", "Store", "Packet"]

SEEN_FULL = 3  # cycles from "in its entry" to "the entry is seen as full"
NOT_BETTER = 4  # nothing is locked while a better entry has been eligible for this long
LEDGER = 3  # cycles from o_sent to the ledger
SLACK = 4  # pipeline slack where only the content decides


@dataclass
class Store:
    """An accepted store; ``placed`` is the cycle in which it went into its entry, None while it
    waits."""

    fields: dict
    accepted: int
    placed: int | None = None
    marked: int | None = None
    gone: bool = False  # in the ledger, or sunk

    def __getattr__(self, name):
        if name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Packet:
    """A packet that left. ``take``: cycle of its lock; ``eligible``: cycle since when it was full
    (None if it was not); ``kind``: its class, where the block has some."""

    rank: int
    take: int
    head: int
    last: int
    bytes: int
    full: bool
    nop: bool
    plain: bool
    rowid: int
    stores: list = field(repr=False)
    eligible: int | None = None
    ready_since: list = field(default_factory=list, repr=False)
    kind: int | None = None

    @property
    def age(self):
        return self.take - self.stores[0].placed


class PacketManagerGolden:
    """Checks one packet manager. Raises AssertionError with the reason.

    Parameters: ``cfg``; ``merge_timeout``, ``age_limit``, ``max_entries``, ``bucket_shift`` as
    driven. Attributes: ``packets``, all that left, in order; ``totals``, Counter of the strobes
    that must have come; ``ledger``, Counter of bytes by (dest, bank); ``died``, a peer has died.
    """

    closes = (-SLACK, 0)  # cycles after a lock in which the entry still surely, and perhaps, merges
    seen = SEEN_FULL
    turns = 2  # packets of another rank before which a rank with a full one has its turn

    def __init__(self, cfg, merge_timeout=200, age_limit=2000, max_entries=None, bucket_shift=0):
        self.cfg = cfg
        self.merge_timeout, self.age_limit = merge_timeout, age_limit
        self.max_entries = cfg.pool_depth if max_entries is None else max_entries
        self.bucket_shift = bucket_shift
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
        self.sunk_tags, self.sunk_stores = set(), 0
        self.stalled_at = -100

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
        of the same cycle."""
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
        """End of a cycle, after all that was seen in it. ``stalled``: a store waits."""
        for r in range(self.cfg.ranks):
            if not dest_ready >> r & 1:
                self.ready_since[r] = cycle + 1
            if not peer_dead >> r & 1:
                self.dead_since[r] = None
            elif self.dead_since[r] is None:
                self.dead_since[r], self.died = cycle, True
            elif cycle > self.dead_since[r] + 1:
                self._sink(r)
        self._step(stalled, cycle)
        while self.done and self.done[0][0] + LEDGER <= cycle:
            for s in self.done.popleft()[1]:
                s.gone = True
        for r in range(self.cfg.ranks):
            self.covered[r] = [s for s in self.covered[r] if not s.gone]
            if self._drains(r) and any(s.marked < cycle for s in self.covered[r]):
                assert draining >> r & 1, (
                    f"cycle {cycle}: rank {r} does not drain, marked bytes are not in the ledger"
                )

    # -- judgement ---------------------------------------------------------------------------------

    def _drains(self, rank):
        """It is known which stores of this rank are still inside."""
        return True

    def _step(self, stalled, cycle):
        """The stores inside have moved, or one waits."""
        if stalled:
            self._stalled(cycle)
        elif self.arriving and self.arriving[0].accepted < cycle:
            self._place(self.arriving.popleft(), cycle)

    def _stalled(self, cycle):
        self.totals["stall_pool"] += 1
        self.stalled_at = cycle
        assert self.arriving and self.arriving[0].accepted < cycle, (
            f"cycle {cycle}: i_store stalls, nobody waits"
        )
        s = self.arriving[0]
        here = any(q for tag, q in self.pending.items() if tag[1] == s.rank)
        assert (
            here
            or self.in_flight[s.rank]
            or cycle - self.out_at[s.rank] < 3
            or self.dead_since[s.rank] is not None
        ), f"cycle {cycle}: rank {s.rank} has no entry and does not get its reserved one"
        queue = self.pending.get(self.tag(s))
        excused = self.in_flight[s.rank] or self.dead_since[s.rank] is not None
        assert not queue or excused, f"cycle {cycle}: a store that could merge stalls"

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

    def _sink(self, rank):
        for tag in [tag for tag in self.pending if tag[1] == rank]:
            if self.in_flight[rank]:
                continue  # locked before the peer died: leaves
            for s in self.pending.pop(tag):
                s.gone = True
                self.sunk_stores += 1
            self.sunk_tags.add(tag)

    def base(self, s):
        """Number of a store's first byte within the block."""
        return 32 * s.sector

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
        cfg, s = self.cfg, stores[0]
        got = self.merged(stores)
        units = [got["mask"] >> 16 * n & 0xFFFF for n in range(cfg.packet_flits)]
        used = [n for n, unit in enumerate(units) if unit]
        first, final = used[0], used[-1]
        masked = any(unit != 0xFFFF for unit in units[first : final + 1])
        header = {
            "type": PacketType.PLAIN if s.plain else PacketType.ROW,
            "cls": int(all(x.cls for x in stores)),
            "masked": int(masked),
            "dst": s.rank,
            "len": final - first + 1,
        }
        place = s.block * cfg.packet_flits + first
        if s.plain:
            body = pack(BODIES[PacketType.PLAIN], addr16=place)
        else:
            body = pack(
                BODIES[PacketType.ROW], region=s.region, epoch=s.epoch, rowid=s.rowid, row_off=place
            )
        flits = [pack(HEADER, **header) | body]
        if masked:
            flits += [got["mask"] >> 128 * n & (1 << 128) - 1 for n in range(cfg.mask_flits)]
        flits += [
            int.from_bytes(got["data"][16 * n : 16 * n + 16], "little")
            for n in range(first, final + 1)
        ]
        return flits

    def read(self, beats, where):
        """(rank, tag, content) of a packet that came."""
        assert [beat["first"] for beat in beats] == [1] + [0] * (len(beats) - 1), f"{where}: first"
        assert not any(beat["err"] for beat in beats)
        flits = [beat["data"] for beat in beats]
        header, size = unpack(HEADER, flits[0]), self.cfg.packet_flits
        if header["type"] == PacketType.ROW:
            body = unpack(BODIES[PacketType.ROW], flits[0])
            place = body["region"], body["epoch"], body["rowid"], body["row_off"] // size
            return header["dst"], (0, header["dst"], *place), flits
        assert header["type"] == PacketType.PLAIN, f"{where}: type {header['type']}"
        block = unpack(BODIES[PacketType.PLAIN], flits[0])["addr16"] // size
        return header["dst"], (1, header["dst"], block), flits

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
        must, may = (sum(s.placed <= take + close for s in queue) for close in self.closes)
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
        size = self.merged(stores)["bytes"]
        packet = Packet(
            rank,
            take,
            head,
            last,
            size,
            size == stores[0].full,
            all(s.cls for s in stores),
            bool(stores[0].plain),
            stores[0].rowid,
            stores,
            ready_since=ready_since,
        )
        if packet.full:
            packet.eligible = stores[-1].placed + self.seen
        self._may_leave(packet, where)
        self._nothing_better(packet, tag, where)
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

    def _may_leave(self, packet, where):
        age = packet.age
        reasons = (
            packet.full,
            age >= min(self.merge_timeout, self.age_limit),
            packet.take - self.stalled_at <= 8,
            any(s.marked is not None for s in packet.stores),
        )
        assert any(reasons), f"{where}: partial, and nothing made it eligible (age {age})"

    def _nothing_better(self, x, tag, where):
        """No entry of the rank that has surely been eligible for long enough is surely better than
        ``x``."""
        if x.age >= self.age_limit:
            return  # may be old: first of all
        since = x.take - NOT_BETTER
        for other, queue in self.pending.items():
            if other == tag or other[1] != x.rank:
                continue
            stores = [s for s in queue if s.placed <= since - SEEN_FULL]
            if not stores:
                continue
            full = self.merged(stores)["bytes"] == stores[0].full
            eligible = (
                full
                or any(s.marked is not None and s.marked <= since - SEEN_FULL for s in stores)
                or since - stores[0].placed
                >= self.merge_timeout + 2 * self.cfg.pool_depth + 2 * self.cfg.packet_flits
            )
            if not eligible or full < x.full:
                continue
            nop = all(s.cls for s in stores)
            rows = not x.plain and not other[0]
            better = (
                full > x.full
                or nop < x.nop
                or (nop == x.nop and rows and stores[0].rowid < x.rowid)
            )
            assert not better, (
                f"{where}: left before {other}, which was better for {NOT_BETTER} cycles or more"
            )

    def _waits_from(self, packet):
        """The cycle since when this packet could have left, None if it is not known."""
        if packet.eligible is None:
            return None
        return max(packet.eligible, packet.ready_since[packet.rank]) + SLACK

    def fairness(self):
        """No rank is served twice while another one waits with a full packet and a credit. Call at
        the end."""
        for n, q in enumerate(self.packets):
            start = self._waits_from(q)
            if start is None:
                continue
            between = Counter()
            for p in reversed(self.packets[:n]):
                if p.take < start or p.rank == q.rank:
                    break
                between[p.rank] += 1
            assert all(count < self.turns for count in between.values()), (
                f"rank {q.rank} waited from cycle {start} to {q.take}, others left: {dict(between)}"
            )

    def finish(self):
        """Everything that was accepted has left or was sunk, and nothing is under way."""
        left = {tag: len(q) for tag, q in self.pending.items() if q}
        assert not left and not self.arriving, f"never left: {left}, waiting: {len(self.arriving)}"
        assert not self.takes and not self.beats and not self.sent, "a packet is not complete"
        self.fairness()
