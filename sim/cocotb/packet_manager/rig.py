# SPDX-License-Identifier: Apache-2.0
"""Rig of the packet manager's bench: drivers, golden model and watcher of the side ports, and the
traffic."""

from hub_rtl.contract.registers import policies
from hub_rtl.packet_manager.packet_manager import PacketManager
from sim.bench.rig import Rig
from sim.golden.packet_manager import PacketManagerGolden
from sim.quality.coverage import cover

from .checks import SidePorts


class Credits:
    """The link's books: ``dest_ready`` while a rank has credits; a take shows in the next cycle."""

    def __init__(self, rig, each, give_back=None, rng=None):
        self.rig, self._rng = rig, rng
        self.set(each, give_back)
        self.word = None
        rig.add(self)

    def set(self, each, give_back):
        """So many for each rank, and how they come back, from now on."""
        self.limit, self._give_back = each, give_back
        self.give(each)

    def give(self, count):
        """So many for each rank."""
        self.left = [count] * self.rig.cfg.ranks

    def take(self, rank):
        assert self.left[rank] > 0, (
            f"cycle {self.rig.cycle}: rank {rank} was taken without a credit"
        )
        self.left[rank] -= 1
        cover("packet_manager.credit.last", self.left[rank] == 0)

    def drive(self):
        if self._give_back is not None:
            for r, left in enumerate(self.left):
                if left < self.limit and self._rng.random() < self._give_back:
                    self.left[r] += 1
        word = sum((left > 0) << r for r, left in enumerate(self.left))
        if word != self.word:
            self.rig.set("dest_ready", word)
            self.word = word

    def sample(self):
        pass

    def clear(self, forget=True):
        self.word = None

    def __str__(self):
        return f"credits {self.left}"


class PoolRig(Rig):
    """The block with its drivers, its golden model and a watcher of all side ports. ``limits``:
    arguments of the golden model."""

    block = PacketManager
    settles = 30  # cycles after the last packet has left
    way = 20  # cycles: more than a store is on its way to an idle output

    def __init__(
        self,
        dut,
        salt,
        idle=None,
        stall=None,
        credits=1000,
        give_back=None,
        watchdog=3000,
        **limits,
    ):
        super().__init__(dut, salt, idle, stall, watchdog)
        self.limits = limits
        self.credits = Credits(self, credits, give_back, self.rng)
        self.places = self.cfg.pool_depth - self.cfg.ranks + 1  # that one rank can have
        self.marks, self.dead = [], 0
        self.golden = None
        self.i_store.on_item(lambda item, cycle: self.golden.store(item, cycle))
        self.o_record.on_item(lambda item, cycle: self.golden.beat(item, cycle))
        self.on_sample(self._watch)
        self.new_rows()

    @property
    def packets(self):
        """All that have left."""
        return self.golden.packets

    async def stored(self, cycles=0):
        """All stores were taken so many cycles ago."""
        await self.i_store.drained()
        await self.cycles(cycles)

    async def anew(self):
        """Reset, and other destinations and RowIDs."""
        await self.start()
        self.new_rows()

    def new_rows(self):
        """Other destinations and RowIDs from now on."""
        self.traffic = Traffic(self.cfg, self.rng)

    def vary(self, rng):
        """Other limits and credits, at random."""
        each, back = rng.choice((1, 2, 20)), rng.choice((0.05, 0.3))
        self.credits.set(each, back)
        depth = self.cfg.pool_depth
        self.limits |= {
            "merge_timeout": rng.choice((0, 40, 300)),
            "age_limit": rng.choice((100, 4000)),
            "max_entries": rng.choice((0, 2, depth // 2, depth)),
            "bucket_shift": rng.choice((0, 1, 3)),
            "priority": rng.randrange(3),
        }

    async def start(self):
        """Reset, with a fresh golden model and empty counters."""
        self.golden, self.ports = PacketManagerGolden(self.cfg, **self.limits), SidePorts(self)
        self.counted = dict.fromkeys(self.get("counts"), 0)
        self.taken, self.sent_stamps = [], []
        self.kill(0)
        self.set("mark", 0)
        self.set_policy()
        self.credits.give(self.credits.limit)
        await self.reset()

    def set_policy(self, **changes):
        """The golden model and the block go by these registers from now on."""
        self.changed = self.cycle
        for name, value in changes.items():
            setattr(self.golden, name, value)
        self.set("policy", {name: getattr(self.golden, name) for name in policies(self.cfg)})

    def _watch(self, cycle):
        golden = self.golden
        if take := self.strobe("o_take"):
            self.taken.append(cycle)
            self.credits.take(take["rank"])
            golden.take(take["rank"], cycle)
        if sent := self.strobe("o_sent"):
            self.sent_stamps.append(cycle)
            golden.o_sent(sent, cycle)
        marked = [mark for mark in self.marks if mark[2] == cycle]
        for everything, handle, _ in marked:
            golden.mark(everything, handle, cycle)
        for name, on in (self.shown("counts") or {}).items():
            self.counted[name] += on
        golden.cycle(
            cycle,
            stalled=bool(self.get("counts")["stall_pool"]),
            dest_ready=self.get("dest_ready"),
            peer_dead=self.dead,
            draining=self.get("draining"),
        )
        moved = cycle in (*self.i_store.stamps[-1:], *self.o_record.stamps[-1:]) or take
        self.ports.look(cycle, moved, bool(marked))

    @property
    def late(self):
        """Cycles within which a timer that has expired makes an entry leave."""
        return self.golden.sweep + 16

    async def sunk(self, rank):
        """Until nothing is left of a dead peer; (least, most) entries that were sunk."""
        await self.cycles(4 * self.golden.sweep + 20 * self.cfg.pool_depth)
        found = self.golden.sunk(rank)
        await self.quiet()
        return found

    async def mark(self, handle=None):
        """One pulse of ``mark``, of a handle or of all."""
        self.marks = [(handle is None, handle, self.cycle)]
        await self.pulse("mark", all=handle is None, handle=handle or 0)

    def kill(self, word):
        self.dead = word
        self.set("peer_dead", word)

    def put(self, base, first, count):
        """Stores for these bytes of a block."""
        self.i_store.put(*self.traffic.bytes_of(base, first, count))

    def put_row(self, count, **fields):
        """Stores for the first bytes of a new row."""
        self.put(self.traffic.row(**fields), 0, count)

    def put_rows(self, count, **fields):
        """A few bytes of so many rows."""
        for _ in range(count):
            self.put_row(8, **fields)

    def put_blocks(self, count, **fields):
        """So many rows' whole first blocks."""
        for _ in range(count):
            self.put_row(self.cfg.packet_bytes, **fields)

    async def quiet(self, limit=6000):
        """Everything accepted has left; ``draining`` is 0."""
        golden = self.golden

        def idle():
            return not (
                self.i_store.pending
                or golden.arriving
                or golden.pending
                or golden.takes
                or golden.sent
            )

        await self.until(idle, limit, "all packets")
        await self.cycles(self.settles)
        assert self.get("draining") == 0, "still draining with nothing left"
        assert self.o_record.port.is_valid() == 0, "an extra packet"

    async def flush(self):
        """A mark of all, until everything has left."""
        await self.mark()
        await self.quiet()

    async def emptied(self):
        """Everything has left, and was right."""
        await self.quiet()
        self.judge()

    async def flushed(self):
        await self.mark()
        await self.emptied()

    async def whole_pool(self):
        """No place was lost: one rank can have all entries but one per other rank, without a
        stall."""
        stalls, kept = self.golden.totals["stall_pool"], self.credits.limit
        self.set_policy(max_entries=self.cfg.pool_depth)
        self.credits.limit = 0
        self.credits.give(0)
        await self.cycles(3)
        self.put_rows(self.places, dest=self.rng.choice(list(self.traffic.dests)))
        await self.i_store.drained()
        await self.cycles(4)
        assert self.golden.totals["stall_pool"] == stalls, "the pool has lost a place"
        self.credits.limit = kept
        self.credits.give(kept)
        await self.flush()

    def judge(self):
        """Golden model is content and every strobe was counted right."""
        golden = self.golden
        golden.finish()
        exact = ("packets_full", "packets_partial", "stall_pool")
        if not golden.died:
            exact += ("merges", "overlaps", "sunk")
        for name in exact:
            seen, wanted = self.counted[name], golden.totals[name]
            assert seen == wanted, f"{name}: {seen} strobes, {wanted} expected"
        least, most = golden.timeouts()
        assert least <= self.counted["packets_timeout"] <= most, (
            f"timeouts {self.counted}, not {least} to {most}"
        )
        assert len(self.sent_stamps) == sum(not p.plain for p in golden.packets)
        for name, count in self.counted.items():
            cover(f"packet_manager.count.{name}", count > 0)
        for packet in golden.packets:
            cover(
                f"packet_manager.packet.{'plain' if packet.plain else 'row'}"
                f".{'full' if packet.full else 'partial'}.{'nop' if packet.nop else 'normal'}"
            )


class Traffic:
    """Stores of rows and of plain addresses, a part of a block at most each. A row's bytes are
    stored once; plain ones also overlap."""

    def __init__(self, cfg, rng):
        self.size = cfg.slice_bytes
        self.cfg, self.rng, self.next_row = cfg, rng, rng.getrandbits(23)
        pairs = [(rank, region) for rank in range(cfg.ranks) for region in range(cfg.regions)]
        rng.shuffle(pairs)
        self.dests = dict(enumerate(pairs[: cfg.dests]))
        self.first = 0, pairs[0][0]  # a destination and its rank
        self.by_rank = {rank: dest for dest, (rank, _) in self.dests.items()}  # one of each

    def row(self, rowid=None, dest=None, block=0, full=None, epoch=0, **fields):
        dest = self.rng.choice(list(self.dests)) if dest is None else dest
        rank, region = self.dests[dest]
        if rowid is None:
            rowid = self.next_row = self.next_row + 1
        row = {"region": region, "epoch": epoch, "rowid": rowid, "dest": dest}
        return self.base(0, rank, block, **row | fields | ({"full": full} if full else {}))

    def base(self, plain, rank, block, **fields):
        """What the stores of a block have in common."""
        zeros = dict.fromkeys(("region", "epoch", "rowid", "dest", "cls", "part"), 0)
        block = {"plain": plain, "rank": rank, "block": block, "full": self.cfg.packet_bytes}
        return zeros | block | fields

    def plain(self, rank, block, **fields):
        return self.base(1, rank, block, **fields)

    def bytes_of(self, base, first, count):
        """Stores for the bytes first .. first + count - 1 of a block, one per part."""
        stores, last = [], first + count
        while first < last:
            end = min(last, first // self.size * self.size + self.size)
            mask = (1 << end - first) - 1 << first % self.size
            part = {"part": first // self.size}
            stores.append(base | part | {"mask": mask, "data": self.data()})
            first = end
        return stores

    def data(self):
        return self.rng.getrandbits(8 * self.size)

    def block(self, base, style):
        """The stores of one block: ``whole`` parts, ``ragged`` cuts anywhere, ``holes`` some are
        missing."""
        if style == "whole":
            return self.bytes_of(base, 0, base["full"])
        cuts = sorted(
            {
                0,
                base["full"],
                *(self.rng.randrange(base["full"]) for _ in range(self.rng.randint(1, 5))),
            }
        )
        stores = [
            s for a, b in zip(cuts, cuts[1:], strict=False) for s in self.bytes_of(base, a, b - a)
        ]
        if style == "holes":
            stores = [s for s in stores if self.rng.random() < 0.7] or stores[:1]
        return stores

    def mix(
        self,
        count,
        window=6,
        plain=0.25,
        styles=("whole", "whole", "ragged", "holes"),
        nop=0.2,
        ranks=None,
    ):
        """``count`` blocks, ``window`` of them at a time, stores of different blocks interleaved at
        random."""
        rng, out, opened = self.rng, [], []
        size, longest = self.cfg.packet_bytes, self.cfg.max_row_bytes
        dests = [dest for dest, (rank, _) in self.dests.items() if ranks is None or rank in ranks]
        for _ in range(count):
            if rng.random() < plain:
                rank = rng.choice(sorted({self.dests[d][0] for d in dests}))
                stores = self.block(
                    self.plain(rank, rng.randrange(4) + (1 << 38)), rng.choice(styles)
                )
                if rng.random() < 0.3:
                    stores += [
                        s | {"data": self.data()} for s in rng.sample(stores, len(stores) // 2)
                    ]
            else:
                block = rng.randrange(max(1, longest // size))
                full = min(rng.choice((size, size, size, 48, 16, size - 16)), longest)
                stores = self.block(
                    self.row(
                        dest=rng.choice(dests), block=block, full=full, epoch=rng.randrange(4)
                    ),
                    rng.choice(styles),
                )
            low = rng.random() < nop
            stores = [s | {"cls": int(low and rng.random() < 0.9)} for s in stores]
            if rng.random() < 0.05:
                stores.insert(0, stores[0] | {"mask": 0})
            opened.append(stores)
            while len(opened) >= window or (opened and rng.random() < 0.2):
                out.append(self._draw(opened))
        while opened:
            out.append(self._draw(opened))
        return out

    def rows(self, count, ranks, window):
        """Stores of ``count`` whole packets, rows of eight blocks, each store moved by less than
        ``window`` places."""
        blocks = min(8, self.cfg.max_row_bytes // self.cfg.packet_bytes)
        stores = []
        for number in range(count):
            if number % blocks == 0:
                row = self.row(dest=self.by_rank[self.rng.choice(list(ranks))])
            block = row | {"block": number % blocks}
            stores += self.bytes_of(block, 0, self.cfg.packet_bytes)
        for n in range(len(stores) if window else 0):
            other = min(len(stores) - 1, n + self.rng.randrange(window))
            stores[n], stores[other] = stores[other], stores[n]
        return stores

    def _draw(self, opened):
        n = self.rng.randrange(len(opened))
        store = opened[n].pop(0)
        if not opened[n]:
            opened.pop(n)
        return store
