# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the packet manager's tags: keys that meet in the same sets fill all their ways.

A key has four ways in each of two sets that its hash names, and its rank's own one. Which of them a
new tag gets follows from what came and went before; where both sets are as full as each other, it
may be either.
"""

from hub_rtl.packet_manager.records import WAYS, pool_types_of
from hub_rtl.packet_manager.tags import DEGREE, POLYNOMIAL
from sim.bench.streams import Codec
from sim.quality.coverage import cover

from .rig import PoolRig

LATE = 60000  # cycles: no timer makes an entry leave
UNIT = 16
HOME = "home"  # the way of the rank alone


def deep(cfg):
    """One rank can have more entries than a key has ways."""
    return cfg.pool_depth - cfg.ranks > 2 * WAYS + 2


def name_of(store):
    """What no other block has: RowID, or number of the block."""
    return store["rowid"] or store["block"]


class Keys:
    """New blocks whose tags belong to given sets."""

    def __init__(self, rig):
        self._rig, types = rig, pool_types_of(rig.cfg)
        self._key, self._row = Codec(types.key), Codec(types.row)
        self.count, self._width = types.set_count, (types.set_count - 1).bit_length()

    def sets(self, base):
        """(set of the first memory, of the second one)."""
        names = ("rowid", "block", "epoch", "region")
        row = self._row.pack({name: base[name] for name in names}) if not base["plain"] else 0
        body = base["block"] if base["plain"] else row
        key = {"plain": base["plain"], "rank": base["rank"], "body": body}
        rest = self._key.pack(key) << DEGREE
        while rest >> DEGREE:
            rest ^= POLYNOMIAL << rest.bit_length() - 1 - DEGREE
        ones = (1 << self._width) - 1
        return rest & ones, rest >> self._width & ones

    def new(self, rank, sets):
        """A row of two units, or a plain block."""
        rig, rng = self._rig, self._rig.rng
        plain = rng.random() < 0.25
        dests = [dest for dest, (to, _) in rig.traffic.dests.items() if to == rank]
        while True:
            base = rig.traffic.row(
                rowid=rng.getrandbits(24),
                dest=rng.choice(dests),
                epoch=rng.randrange(16),
                full=2 * UNIT,
            )
            if plain:
                base = rig.traffic.plain(rank, rng.getrandbits(rig.cfg.addr_block_width))
            if self.sets(base) == sets:
                return base

    def some(self):
        """Sets and a rank, at random."""
        rng = self._rig.rng
        sets = rng.randrange(self.count), rng.randrange(self.count)
        return sets, rng.randrange(self._rig.cfg.ranks)


class Table:
    """Where the open tags may stand: all ways in which that can have come about."""

    def __init__(self):
        self._worlds = [{}]  # {name: (memory, set), or (HOME, rank)}

    def opens(self, row, sets, left):
        """A new tag; ``left``: name of the entry that had to leave for it, None if none had to."""
        worlds, name, home = [], name_of(row), (HOME, row["rank"])
        for world in self._worlds:
            places = [*enumerate(sets)]
            used = [list(world.values()).count(place) for place in places]
            if min(used) < WAYS:
                fits = [
                    place for place, count in zip(places, used, strict=True) if count == min(used)
                ]
            else:
                fits = [home]
            holder = next((each for each, place in world.items() if place == home), None)
            if fits == [home] and holder != left or fits != [home] and left is not None:
                continue
            rest = {each: place for each, place in world.items() if each != left}
            worlds += [rest | {name: place} for place in fits]
        assert worlds, f"{name:x} in {sets}: {left} left, which no way of placing tags explains"
        self._keep(worlds)

    def closes(self, row):
        self._keep([{n: p for n, p in w.items() if n != name_of(row)} for w in self._worlds])

    def _keep(self, worlds):
        self._worlds = [dict(each) for each in {frozenset(world.items()) for world in worlds}]


@PoolRig.test(fits=deep, merge_timeout=LATE, age_limit=LATE)
async def ways(rig, cfg, rng):
    """Keys of few sets come and go: a store waits just if all of its ways are in use, and then the
    entry in its rank's own one leaves; a store to an open key finds it wherever it stands."""
    keys = Keys(rig)
    for _ in range(24):
        await rig.anew()
        table, opened = Table(), []
        lows, highs = rng.choice(((1, 1), (1, 2), (2, 1), (2, 2)))
        pairs = [
            (low, high)
            for low in rng.sample(range(keys.count), lows)
            for high in rng.sample(range(keys.count), highs)
        ]
        busy, few, sets = rng.randrange(cfg.ranks), rng.choice((0.03, 0.25)), pairs[0]
        for _ in range(40):
            sets = rng.choice(pairs) if rng.random() < 0.3 else sets
            if opened and (len(opened) > rig.places - 2 or rng.random() < few):
                row = opened.pop(rng.randrange(len(opened)))
                rig.put(row, UNIT, row["full"] - UNIT)
                await rig.stored(2 * rig.way)
                table.closes(row)
            elif opened and rng.random() < few:
                rig.put(rng.choice(opened), 0, rng.randint(1, UNIT))
                await rig.stored(4)
            else:
                await open_one(rig, keys, table, opened, busy, sets)
        await rig.flushed()
    cover("packet_manager.ways")


async def open_one(rig, keys, table, opened, busy, sets):
    """A store with a new key; if it waits, one entry leaves for it."""
    rng, before, stalls = rig.rng, len(rig.packets), rig.counted["stall_pool"]
    row = keys.new(busy if rng.random() < 0.8 else rng.randrange(rig.cfg.ranks), sets)
    # What the one in front could have had is not taken: that is a store of other sets, and is none.
    other = [(each + 1) % keys.count for each in sets]
    front = rig.traffic.bytes_of(keys.new((row["rank"] + 1) % rig.cfg.ranks, (*other,)), 0, 1)[0]
    rig.i_store.put(front | {"mask": 0})
    rig.put(row, 0, UNIT)
    await rig.stored(10)
    left = None
    if rig.counted["stall_pool"] > stalls:
        await rig.until(lambda: len(rig.packets) > before, 200, "a way")
        await rig.cycles(rig.way)
        left = name_of(rig.packets[-1].stores[0].fields)
        opened[:] = [each for each in opened if name_of(each) != left]
    assert len(rig.packets) == before + (left is not None)
    table.opens(row, sets, left)
    opened.append(row)


@PoolRig.test(fits=deep, merge_timeout=LATE, age_limit=LATE)
async def ways_at_once(rig, cfg, rng):
    """Stores at full rate, whose keys are all of the same sets: each finds a way, and its own
    bytes, as long as there is one, also one that was given back just now."""
    keys = Keys(rig)
    for round_ in range(40):
        await rig.anew()
        sets, rank = keys.some()
        rows = [keys.new(rank, sets) for _ in range(2 * WAYS + 1)]
        stores = [store for row in rows for store in rig.traffic.bytes_of(row, 0, UNIT)]
        again = [store for row in rows for store in rig.traffic.bytes_of(row, 4, 8)]
        rng.shuffle(again)
        for store in again if round_ % 2 else []:
            stores.insert(rng.randint(0, len(stores)), store)
        rig.i_store.put(*stores)
        await rig.stored(2 * rig.way)
        assert not rig.packets, "nine have their ways"
        # Some leave, and as many others come, at any distance.
        for row in rng.sample(rows, rng.randint(1, len(rows))):
            rows.remove(row)
            rig.put(row, UNIT, row["full"] - UNIT)
        await rig.stored(rng.randrange(rig.way))
        for _ in range(2 * WAYS + 1 - len(rows)):
            row = keys.new(rank, sets)
            rig.put(row, 0, 8)
            rig.put(row, 8, 4)
        await rig.stored()
        await rig.flushed()
    cover("packet_manager.ways.at_once")


@PoolRig.test(fits=deep, merge_timeout=LATE, age_limit=LATE)
async def behind_one_that_waits(rig, cfg, rng):
    """While a store waits for a place or a way, those behind it find what is open, and what is
    closed meanwhile they do not; it takes no way that another one has."""
    keys = Keys(rig)
    for _ in range(80):
        await rig.anew()
        sets, rank = keys.some()
        count = rng.choice((2 * WAYS + 1, rng.randint(1, 2 * WAYS)))
        rig.set_policy(max_entries=rng.choice((count, cfg.pool_depth)))
        rows = [keys.new(rank, sets) for _ in range(count + 1)]
        for row in rows[:-1]:
            rig.put(row, 0, UNIT)
        if rng.random() < 0.6:
            await rig.stored(rig.way)
        rig.put(rows[-1], 0, UNIT)
        for row in rng.choices(rows, k=3):
            rig.put(row, 4, 8)
        await rig.cycles(rng.randrange(2 * WAYS))
        await rig.mark()
        await rig.stored(rig.way)
        for row in rows:
            rig.put(row, 0, 4)
        await rig.stored(rig.way)
        await rig.flushed()
    cover("packet_manager.ways.behind")
