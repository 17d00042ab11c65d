# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager's ready lists: which list of a rank is next, and which rank.

The entries are all in their lists before a credit comes, so that the order of the block's page is
one only.
"""

from collections import deque

from sim.quality.coverage import cover

from .rig import PoolRig

BUCKETS, REST_SHARE = 8, 4
PLAIN, LOW, TAIL, REMNANT = range(BUCKETS, BUCKETS + 4)
ROWS, PLAINS = {*range(BUCKETS), TAIL}, {PLAIN, REMNANT}  # normal rows; what is plain
ROWS_FIRST, PLAIN_FIRST = 0, 2  # values of control.PRIORITY
TIMEOUT = 60


class Turns:
    """The lists of a rank, and which of them is next, as the block's page says it."""

    def __init__(self, old=False):
        self._lists = {}  # number: entries, those of partial ones in any order
        self._old, self._passed = old, 0
        self._bucket, self._rest = 0, None  # where the circles stand

    def add(self, number, tag):
        self._lists.setdefault(number, deque()).append(tag)

    def __len__(self):
        return sum(map(len, self._lists.values()))

    def next(self, priority):
        """(list, tags of which one leaves)."""
        there = {number for number, entries in self._lists.items() if entries}
        rest = [number for number in there if number >= BUCKETS]
        may = there - self._behind(there, priority)
        buckets = [number for number in may if number < BUCKETS]
        others = [number for number in may if number >= BUCKETS]
        if others and (not buckets or self._passed == REST_SHARE - 1):
            number, self._passed = self._circle(others, self._rest), 0
            self._rest = number + 1 if self._old else None
        else:
            number = self._circle(buckets, self._bucket)
            self._bucket = number + self._old
            if self._old:
                self._passed = REST_SHARE - 1
            elif rest:
                self._passed = min(self._passed + 1, REST_SHARE - 1)
        entries = self._lists[number]
        return number, [entries[0]] if number < TAIL else list(entries)

    def leaves(self, number, tag):
        self._lists[number].remove(tag)

    def _behind(self, there, priority):
        if self._old:
            return set()
        if priority == ROWS_FIRST and there & ROWS:
            return PLAINS
        return ROWS if priority == PLAIN_FIRST and there & PLAINS else set()

    @staticmethod
    def _circle(numbers, start):
        """The first one from ``start`` on."""
        return min(numbers, key=lambda number: (start is not None and number < start, number))


class Lists:
    """Fills the lists, and sees that the entries leave in the order of :class:`Turns`."""

    def __init__(self, rig, old=False):
        self.rig, self.rng = rig, rig.rng
        self.turns = [Turns(old) for _ in range(rig.cfg.ranks)]
        self._names, self._met = set(), len(rig.packets)

    def __len__(self):
        return sum(map(len, self.turns))

    def put(self, rank, number):
        """An entry for this list of a rank."""
        rig, rng, size = self.rig, self.rng, self.rig.cfg.packet_bytes
        plain = number in PLAINS or (number == LOW and rng.random() < 0.3)
        name = self._new_name(number if number < BUCKETS else None)
        cls = int(number == LOW)
        if plain:
            base, full = rig.traffic.plain(rank, name, cls=cls), size
        else:
            full = size if number == TAIL else rng.choice((16, 32))
            dest = rng.choice([d for d, (to, _) in rig.traffic.dests.items() if to == rank])
            base = rig.traffic.row(rowid=name, dest=dest, full=full, cls=cls)
        rig.put(base, 0, 8 if number >= TAIL else full)
        self.turns[rank].add(number, name)

    def _new_name(self, bucket):
        """A RowID, of this bucket, or block, that was not used before."""
        shift = self.rig.golden.bucket_shift
        while True:
            name = self.rng.getrandbits(24)
            if bucket is not None:
                name = (name & ~(BUCKETS - 1 << shift) | bucket << shift) & 0xFFFFFF
            if name not in self._names:
                self._names.add(name)
                return name

    async def settle(self):
        """All are in their lists."""
        await self.rig.stored(TIMEOUT + self.rig.late)

    async def leave(self, rank, count):
        """So many credits for a rank: so many packets leave in order."""
        rig, priority = self.rig, self.rig.golden.priority
        rig.credits.left[rank] += count
        await rig.until(lambda: len(rig.packets) == self._met + count, 400, "packets")
        for packet in rig.packets[self._met :]:
            first = packet.stores[0]
            number, may = self.turns[rank].next(priority)
            came = first.block if packet.plain else first.rowid
            assert packet.rank == rank and came in may, (
                f"packet {came:x}, not {number}: {may}, of {self.turns[rank]}"
            )
            self.turns[rank].leaves(number, came)
        self._met += count
        await rig.cycles(4)


async def rounds(rig, cfg, rng, lists, count, late):
    """So many times: entries gather in lists, then leave, by ones or many in a row; ``late``: so
    likely another one comes meanwhile."""
    for _ in range(count):
        rig.set_policy(bucket_shift=rng.choice((0, rng.randrange(22))))
        numbers = rng.sample(range(REMNANT + 1), rng.randint(3, REMNANT + 1))
        busy = rng.randrange(cfg.ranks)
        for _ in range(rig.places - 2):
            rank = busy if rng.random() < 0.8 else rng.randrange(cfg.ranks)
            lists.put(rank, rng.choice(numbers))
        await lists.settle()
        while len(lists):
            if len(lists) < rig.places and rng.random() < late:
                lists.put(busy, rng.choice([number for number in numbers if number < TAIL] or [0]))
                await rig.stored(rig.way)
            rank = rng.choice([rank for rank in range(cfg.ranks) if len(lists.turns[rank])])
            await lists.leave(rank, rng.randint(1, rng.choice((1, len(lists.turns[rank])))))


@PoolRig.test(
    cases={"priority": ["rows", "turns", "plain"]},
    credits=0,
    merge_timeout=TIMEOUT,
    age_limit=60000,
)
async def lists(rig, cfg, rng, priority):
    """Entries in any of a rank's lists leave in the one order that the rules allow, whatever the
    bucket shift, by ones or in a row, also if others come meanwhile."""
    rig.set_policy(priority=("rows", "turns", "plain").index(priority))
    await rounds(rig, cfg, rng, Lists(rig), 16, late=0.3)
    await rig.emptied()
    cover(f"packet_manager.lists.{priority}")


@PoolRig.test(cases={"priority": [0, 2]}, credits=0, merge_timeout=TIMEOUT, age_limit=TIMEOUT)
async def old_lists(rig, cfg, rng, priority):
    """Of a rank with old entries buckets and rest take turns, and so do the lists within them; it
    knows no priority."""
    rig.set_policy(priority=priority)
    await rounds(rig, cfg, rng, Lists(rig, old=True), 12, late=0)
    await rig.emptied()
    cover("packet_manager.lists.old")


@PoolRig.test(credits=0, merge_timeout=TIMEOUT, age_limit=60000)
async def bucket_after_bucket(rig, cfg, rng):
    """A row of any bucket leaves behind one of any other, when there is nothing else."""
    lists = Lists(rig)
    # Bucket 0 comes last: what it had had at first is seen by all others.
    pairs = [(one, other) for one in reversed(range(BUCKETS)) for other in range(one, BUCKETS)]
    order = [number for pair in pairs for number in (*pair, pair[0])]
    for rank in range(cfg.ranks):
        for first in (1, 2):
            for _ in range(first):
                lists.put(0, 0)
            await rig.stored(rig.way)
            await lists.leave(0, first)
            for number in order:
                lists.put(rank, number)
                await rig.stored(16)
                await lists.leave(rank, 1)
    await rig.emptied()
    cover("packet_manager.lists.pairs")


@PoolRig.test(credits=0, merge_timeout=60000, age_limit=60000)
async def list_begins(rig, cfg, rng):
    """A list gets its first entry in every cycle around the one in which another list loses its."""
    lists = Lists(rig)
    for rank in range(cfg.ranks):
        for number, begins in ((0, PLAIN), (1, LOW)):
            for wait in range(rig.way):
                lists.put(rank, number)
                await rig.stored(rig.way)
                lists.put(rank, begins)
                await rig.stored(wait)
                await lists.leave(rank, 1)
                await rig.cycles(rig.way)
                await lists.leave(rank, 1)
    await rig.emptied()
    cover("packet_manager.lists.begins")
