"""cocotb tests of the packet manager against its golden model."""

import random

import cocotb

from hub_rtl.pool.pool_types import pool_types_of
from hub_rtl.types import types_of
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, Codec, StreamSink, StreamSource, bus_write, start_clock
from sim.golden.packet_manager import PacketManagerGolden

SECTOR = 32


class Credits:
    """The link's books: ``dest_ready`` while a rank has credits; a take shows after ``delay`` cycles (1 or 2)."""

    def __init__(self, env, each, give_back=None, delay=1, rng=None):
        self.env, self.left = env, [each] * env.cfg.ranks
        self._give_back, self._rng = give_back, rng
        self._seen = [[each] * env.cfg.ranks] * delay
        self.limit = each
        self.word = None
        env.bench.add(self)

    def take(self, rank):
        assert self.left[rank] > 0, f"cycle {self.env.bench.cycle}: rank {rank} was taken without a credit"
        self.left[rank] -= 1
        cover("pm.credit.last", self.left[rank] == 0)

    def drive(self):
        if self._give_back is not None:
            for r, left in enumerate(self.left):
                if left < self.limit and self._rng.random() < self._give_back:
                    self.left[r] += 1
        self._seen = [*self._seen[1:], list(self.left)]
        word = sum((min(a, b) > 0) << r for r, (a, b) in enumerate(zip(self._seen[0], self.left, strict=True)))
        if word != self.word:
            self.env.dut.dest_ready.value = word
            self.word = word

    def sample(self):
        pass

    def clear(self, forget=True):
        self.word = None

    def __str__(self):
        return f"credits {self.left}"


class Env:
    """The block with its drivers, its golden model and a watcher of all side ports."""

    def __init__(self, dut, *, idle=None, stall=None, credits=1000, give_back=None, delay=1, seed=0, watchdog=3000, **limits):
        self.cfg, self.params, self.rng = bench_params(seed)
        self.dut, self.limits = dut, limits
        self.types = pool_types_of(self.cfg)
        self.bench = start_clock(dut, watchdog)
        self.credits = Credits(self, credits, give_back, delay, self.rng)
        self.source = StreamSource(self.bench, "i_store", types_of(self.cfg).resolved, idle, self.rng)
        self.sink = StreamSink(self.bench, "o_packet", types_of(self.cfg).flit, stall, self.rng)
        self.codecs = {name: Codec(getattr(self.types, layout)) for name, layout in
                       (("take", "take"), ("sent", "sent"), ("counts", "counts"), ("oldest", "oldest"))}
        self.marks, self.dead = [], 0
        self.golden = None
        self.source.on_item(lambda item, cycle: self.golden.store(item, cycle))
        self.sink.on_item(lambda item, cycle: self.golden.flit(item, cycle))
        self.bench.on_sample(self._watch)

    async def start(self):
        """Reset, with a fresh golden model and empty counters."""
        self.golden = PacketManagerGolden(self.cfg, **self.limits)
        self.counted = dict.fromkeys(("merges", "overlaps", "packets_full", "packets_partial", "packets_timeout", "sunk",
                                      "stall_pool", "stall_credit"), 0)
        self.taken, self.sent_stamps = [], []
        self.dut.peer_dead.value = self.dead = 0
        self.dut.mark.value = 0
        self.dut.merge_timeout.value = self.golden.merge_timeout
        self.dut.age_limit.value = self.golden.age_limit
        self.dut.max_entries.value = self.golden.max_entries
        self.credits.left = [self.credits.limit] * self.cfg.ranks
        await self.bench.reset()

    def _watch(self, cycle):
        dut, golden = self.dut, self.golden
        take = self.codecs["take"].unpack(int(dut.o_take.value))
        if take["en"]:
            self.taken.append(cycle)
            self.credits.take(take["rank"])
            golden.take(take["rank"], cycle)
        sent = self.codecs["sent"].unpack(int(dut.o_sent.value))
        if sent["en"]:
            self.sent_stamps.append(cycle)
            golden.o_sent(sent, cycle)
        for everything, handle, when in self.marks:
            if when == cycle:
                golden.mark(everything, handle, cycle)
        word = int(dut.counts.value)
        if word:
            for name, on in self.codecs["counts"].unpack(word).items():
                self.counted[name] += on
        golden.cycle(cycle, ready=int(dut.i_store__ready.value), dest_ready=int(dut.dest_ready.value), peer_dead=self.dead,
                     draining=int(dut.draining.value))

    async def mark(self, handle=None):
        """One pulse of ``mark``, of a handle or of all."""
        self.marks = [(handle is None, handle, self.bench.cycle)]
        bus_write(self.dut, "mark", {"en": 1, "all": handle is None, "handle": handle or 0}, self.types.mark)
        await self.bench.cycles(1)
        self.dut.mark.value = 0

    def kill(self, word):
        self.dut.peer_dead.value = self.dead = word

    async def quiet(self, limit=6000):
        """Everything accepted has left; ``draining`` is 0."""
        golden = self.golden

        def idle():
            return not (self.source.pending or golden.arriving or golden.pending or golden.takes or golden.sent)
        await self.bench.until(idle, limit, "all packets")
        await self.bench.cycles(12)
        assert int(self.dut.draining.value) == 0, "still draining with nothing left"
        assert int(self.dut.o_packet__valid.value) == 0, "an extra packet"

    async def whole_pool(self, traffic):
        """No place was lost: one rank can have all entries but one per other rank, without a stall."""
        cfg, stalls = self.cfg, self.golden.totals["stall_pool"]
        self.golden.max_entries = self.dut.max_entries.value = cfg.pool_depth
        self.credits.limit, kept = 0, self.credits.limit
        self.credits.left = [0] * cfg.ranks
        await self.bench.cycles(3)
        dest = self.rng.choice(list(traffic.dests))
        for _ in range(cfg.pool_depth - cfg.ranks + 1):
            self.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, 8))
        await self.source.drained()
        await self.bench.cycles(4)
        assert self.golden.totals["stall_pool"] == stalls, "the pool has lost a place"
        self.credits.limit, self.credits.left = kept, [kept] * cfg.ranks
        await self.mark()
        await self.quiet()

    def finish(self):
        """Golden model is content and every strobe was counted right."""
        golden = self.golden
        golden.finish()
        exact = ("packets_full", "packets_partial", "stall_pool")
        if not any(since is not None for since in golden.dead_since):
            exact += ("merges", "overlaps", "sunk")
        for name in exact:
            seen, wanted = self.counted[name], golden.totals[name]
            assert seen == wanted, f"{name}: {seen} strobes, {wanted} expected"
        assert self.counted["packets_timeout"] <= self.counted["packets_partial"]
        assert len(self.sent_stamps) == sum(not p.plain for p in golden.packets)
        for name, count in self.counted.items():
            cover(f"pm.count.{name}", count > 0)
        for packet in golden.packets:
            cover(f"pm.packet.{'plain' if packet.plain else 'row'}.{'full' if packet.full else 'partial'}"
                  f".{'nop' if packet.nop else 'normal'}")


class Traffic:
    """Stores of rows and of plain addresses. A row's bytes are stored once; plain ones also overlap."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng, self.next_row = cfg, rng, 1
        pairs = [(rank, region) for rank in range(cfg.ranks) for region in range(cfg.regions)]
        rng.shuffle(pairs)
        self.dests = dict(enumerate(pairs[:cfg.dests]))

    def row(self, rowid=None, dest=None, block=0, full=None, epoch=0, **fields):
        dest = self.rng.choice(list(self.dests)) if dest is None else dest
        rank, region = self.dests[dest]
        if rowid is None:
            rowid = self.next_row = self.next_row + 1
        return {"plain": 0, "rank": rank, "region": region, "epoch": epoch, "rowid": rowid, "block": block, "dest": dest,
                "full": full or self.cfg.packet_bytes, "cls": 0, "sector": 0} | fields

    def plain(self, rank, block, **fields):
        return {"plain": 1, "rank": rank, "region": 0, "epoch": 0, "rowid": 0, "block": block, "dest": 0,
                "full": self.cfg.packet_bytes, "cls": 0, "sector": 0} | fields

    def bytes_of(self, base, first, count):
        """Stores for the bytes first .. first + count - 1 of a block, one per sector."""
        stores, last = [], first + count
        while first < last:
            end = min(last, first // SECTOR * SECTOR + SECTOR)
            mask = (1 << end - first) - 1 << first % SECTOR
            stores.append(base | {"sector": first // SECTOR, "mask": mask, "data": self.rng.getrandbits(256)})
            first = end
        return stores

    def block(self, base, style):
        """The stores of one block: ``whole`` sectors, ``ragged`` cuts anywhere, ``holes`` some are missing."""
        if style == "whole":
            return self.bytes_of(base, 0, base["full"])
        cuts = sorted({0, base["full"], *(self.rng.randrange(base["full"]) for _ in range(self.rng.randint(1, 5)))})
        stores = [s for a, b in zip(cuts, cuts[1:], strict=False) for s in self.bytes_of(base, a, b - a)]
        if style == "holes":
            stores = [s for s in stores if self.rng.random() < 0.7] or stores[:1]
        return stores

    def mix(self, count, window=6, plain=0.25, styles=("whole", "whole", "ragged", "holes"), nop=0.2, ranks=None):
        """``count`` blocks, ``window`` of them at a time, stores of different blocks interleaved at random."""
        rng, out, opened = self.rng, [], []
        size, longest = self.cfg.packet_bytes, self.cfg.max_row_bytes
        dests = [dest for dest, (rank, _) in self.dests.items() if ranks is None or rank in ranks]
        for _ in range(count):
            if rng.random() < plain:
                rank = rng.choice(sorted({self.dests[d][0] for d in dests}))
                stores = self.block(self.plain(rank, rng.randrange(4) + (1 << 38)), rng.choice(styles))
                if rng.random() < 0.3:
                    stores += [s | {"data": rng.getrandbits(256)} for s in rng.sample(stores, len(stores) // 2)]
            else:
                block = rng.randrange(max(1, longest // size))
                full = min(rng.choice((size, size, size, 48, 16, size - 16)), longest)
                stores = self.block(self.row(dest=rng.choice(dests), block=block, full=full, epoch=rng.randrange(4)),
                                    rng.choice(styles))
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

    def _draw(self, opened):
        n = self.rng.randrange(len(opened))
        store = opened[n].pop(0)
        if not opened[n]:
            opened.pop(n)
        return store


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_traffic(dut, grid):
    """Random stores, with marks and changing limits: golden model on every packet; reset in traffic, then all over again."""
    idle, stall = grid
    number = GRID.index(grid)
    rng = random.Random(number)
    env = Env(dut, idle=idle, stall=stall, seed=f"random{number}", credits=rng.choice((1, 2, 20)), delay=1 + number % 2,
              give_back=rng.choice((0.05, 0.3)), merge_timeout=rng.choice((0, 40, 300)), age_limit=rng.choice((100, 4000)))
    depth = env.cfg.pool_depth
    env.limits["max_entries"] = env.rng.choice((0, 2, depth // 2, depth))
    for again in range(2):
        await env.start()
        traffic = Traffic(env.cfg, env.rng)
        env.source.put(*traffic.mix(50, window=env.rng.choice((2, depth, 2 * depth))))
        while env.source.pending:
            await env.bench.cycles(env.rng.choice((5, 40, 150)))
            if env.rng.random() < 0.6:
                await env.mark(env.rng.choice((None, *range(min(4, env.cfg.handles)))))
            if not again and env.source.pending < 60:
                break
        if again:
            await env.mark()
            await env.quiet()
            await env.whole_pool(traffic)
            env.finish()
        cover("pm.reset.in_traffic", not again and env.source.pending)
    cover(f"pm.grid.{idle}.{stall}")


@cocotb.test()
async def latency(dut):
    """A store that completes a packet: header valid 8 cycles after it was accepted, for first, later and full-mask stores."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    for count in (1, 2, env.cfg.packet_sectors):
        stores = traffic.bytes_of(traffic.row(full=SECTOR * count), 0, SECTOR * count)
        for store in stores:
            await env.bench.cycles(7)
            await env.source.send(store)
        await env.quiet()
        packet = env.golden.packets[-1]
        cycles = packet.head - env.source.stamps[-1]
        assert cycles <= 8, f"{count} stores: header {cycles} cycles after the last store"
        assert packet.last - packet.head == 2 * count
        cover("pm.latency.8", cycles == 8)
    env.finish()


@cocotb.test()
@cocotb.parametrize(spread=["one", "all"])
async def back_to_back(dut, spread):
    """Packets of 64 bytes and of full size leave without a gap, to one rank or to many: the link is busy while data waits."""
    env = Env(dut, seed=spread)
    traffic = Traffic(env.cfg, env.rng)
    dests = {rank: dest for dest, (rank, _) in traffic.dests.items()}
    size = env.cfg.packet_bytes
    for full in (64, size):
        await env.start()
        count = 40
        for n in range(count):
            dest = list(dests.values())[n % len(dests) if spread == "all" else 0]
            env.source.put(*traffic.bytes_of(traffic.row(dest=dest, full=full), 0, full))
        await env.quiet()
        env.finish()
        flits = 1 + full // 16
        assert env.sink.count and len(env.sink.items) == count * flits
        cycles = env.sink.stamps[-1] - env.sink.stamps[0] + 1
        assert cycles == count * flits, f"{count} packets of {flits} flits took {cycles} cycles"
        cover(f"pm.back_to_back.{'full' if full == size else '64'}.{spread}")


@cocotb.test()
async def wire_efficiency(dut):
    """32-byte stores of as many interleaved rows as the shared pool holds leave as full packets only."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    cfg = env.cfg
    rows = [traffic.row(dest=next(iter(traffic.dests))) for _ in range(cfg.pool_depth - cfg.ranks + 1)]
    blocks = max(2, min(6, cfg.max_row_bytes // cfg.packet_bytes))
    for block in range(blocks):
        parts = [traffic.bytes_of(row | {"block": block}, 0, cfg.packet_bytes) for row in rows]
        for sector in range(cfg.packet_sectors):
            env.source.put(*(part[sector] for part in parts))
    await env.quiet()
    env.finish()
    assert len(env.golden.packets) == len(rows) * blocks and all(p.full for p in env.golden.packets)
    payload = len(rows) * blocks * cfg.packet_bytes
    assert payload * (cfg.packet_flits + 1) == 16 * len(env.sink.items) * cfg.packet_flits
    cover("pm.efficiency.interleaved")


@cocotb.test()
async def sustained(dut):
    """Full-rate stores that come faster than the link: busy in at least 99 of 100 cycles once the first packet has left."""
    env = Env(dut)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    env.source.put(*traffic.mix(150, window=1, plain=0.3, styles=("whole",)))
    await env.quiet()
    env.finish()
    packets = env.golden.packets
    idle = waiting = 0
    for p, q in zip(packets, packets[1:], strict=False):
        if q.eligible is not None and q.eligible <= p.last - 6:     # it could have been ready when p ended
            waiting += q.last - p.last
            idle += q.head - p.last - 1 if p.last - p.head >= 4 else 0
    assert waiting > 100 and idle * 100 <= waiting, f"{idle} of {waiting} cycles idle"
    cover("pm.sustained")


@cocotb.test()
async def order(dut):
    """Without credit entries gather; then they leave in the promised order: full, normal before .nop, kinds in turn, RowID."""
    env = Env(dut, merge_timeout=60, age_limit=3000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    dest = next(iter(traffic.dests))
    rank = traffic.dests[dest][0]
    size = cfg.packet_bytes
    env.credits.left = [0] * cfg.ranks
    await env.bench.cycles(3)
    places = cfg.pool_depth - cfg.ranks + 1
    wanted = [(f"{full}{nop}", traffic.row(rowid=rowid, dest=dest, cls=nop), size if full else 16)
              for full, nop, rowid in ((0, 1, 1), (1, 0, 9), (1, 0, 7), (1, 1, 5), (0, 0, 2), (0, 0, 8), (1, 1, 3), (0, 1, 4))]
    wanted = wanted[:places]
    for _, base, count in wanted:
        env.source.put(*traffic.bytes_of(base, 0, count))
    await env.source.drained()
    await env.bench.cycles(60 + 3 * cfg.pool_depth)
    env.credits.left[rank] = 100
    await env.quiet()
    env.finish()
    ranking = sorted(wanted, key=lambda w: (w[2] != size, w[1]["cls"], w[1]["rowid"]))
    assert [p.rowid for p in env.golden.packets] == [base["rowid"] for _, base, _ in ranking]
    cover("pm.order.class_and_row")

    # Plain and row-sparse packets of equal rank take turns.
    await env.start()
    env.credits.left = [0] * cfg.ranks
    await env.bench.cycles(3)
    half = max(1, places // 2)
    for _ in range(half):
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, size))
    for n in range(half):
        env.source.put(*traffic.bytes_of(traffic.plain(rank, n), 0, size))
    await env.source.drained()
    await env.bench.cycles(6)
    env.credits.left[rank] = 100
    await env.quiet()
    env.finish()
    kinds = [p.plain for p in env.golden.packets]
    assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False)), kinds
    cover("pm.order.alternate")


@cocotb.test()
@cocotb.parametrize(limit=[20, 300])
async def starvation(dut, limit):
    """A .nop packet with a large RowID leaves in spite of an endless stream of better ones, even if those grow old as well."""
    env = Env(dut, merge_timeout=50, age_limit=limit, seed=limit, credits=1, give_back=0.03)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    dest = next(iter(traffic.dests))
    env.source.put(*traffic.bytes_of(traffic.row(rowid=0xFFFFFF, dest=dest, cls=1), 0, 16))
    for _ in range(60):
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, cfg.packet_bytes))
    await env.quiet()
    env.finish()
    victim = next(p for p in env.golden.packets if p.rowid == 0xFFFFFF)
    overtaken = [p for p in env.golden.packets if victim.stores[0].placed + limit + 3 * cfg.pool_depth <= p.take < victim.take]
    assert len(overtaken) <= 2 * cfg.pool_depth, f"{len(overtaken)} packets left after it had become old"
    assert victim is not env.golden.packets[-1]
    cover(f"pm.order.old.{limit}")


@cocotb.test()
async def timers(dut):
    """A partial entry leaves after the merge timeout and within two sweeps; the oldest entry is shown meanwhile."""
    env = Env(dut)
    cfg = env.cfg
    for timeout in (0, 50, 257):
        env.limits["merge_timeout"] = timeout
        await env.start()
        traffic = Traffic(cfg, env.rng)
        base = traffic.row(epoch=5)
        env.source.put(*traffic.bytes_of(base, 3, 20))
        await env.source.drained()
        if timeout == 257:
            await env.bench.cycles(4 * cfg.pool_depth)
            await env.bench.sampled()
            oldest = env.codecs["oldest"].unpack(int(dut.oldest.value))
            assert {name: oldest[name] for name in ("valid", "plain", "rank", "region", "epoch", "rowid")} == \
                {"valid": 1} | {name: base[name] for name in ("plain", "rank", "region", "epoch", "rowid")}
            assert cfg.pool_depth <= oldest["age"] <= 4 * cfg.pool_depth + 4
            cover("pm.oldest")
        await env.quiet()
        env.finish()
        packet = env.golden.packets[0]
        late = packet.take - packet.stores[0].placed - timeout
        assert 0 <= late <= 2 * cfg.pool_depth + 8, f"timeout {timeout}: left {late} cycles late"
        assert env.counted["packets_timeout"] == 1
        await env.bench.cycles(2 * cfg.pool_depth + 4)
        await env.bench.sampled()
        assert not env.codecs["oldest"].unpack(int(dut.oldest.value))["valid"]
    cover("pm.timer")


@cocotb.test()
async def pool_full(dut):
    """Partial rows fill the pool: stores stall, the pool makes room by itself; a rank without entries gets its reserve."""
    env = Env(dut, merge_timeout=60000, age_limit=60000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    by_rank = {}
    for dest, (rank, _) in traffic.dests.items():
        by_rank.setdefault(rank, dest)
    env.source.put(*(traffic.bytes_of(traffic.row(), 0, 8)[0] for _ in range(3 * cfg.pool_depth)))
    await env.source.drained()
    await env.mark()
    await env.quiet()
    assert env.counted["stall_pool"] > 0
    env.finish()

    # All shared entries belong to a rank without credit: others still pass, each with the entry reserved for it.
    await env.start()
    stuck, *others = by_rank
    env.credits.left[stuck] = 0
    await env.bench.cycles(3)
    for _ in range(cfg.pool_depth - cfg.ranks + 1):
        env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[stuck]), 0, 8))
    for rank in others:
        for _ in range(3):
            env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8))
    await env.source.drained()
    await env.bench.cycles(20)
    assert int(dut.can_accept.value) >> stuck & 1 == 0
    env.credits.left[stuck] = 1000
    await env.mark()
    await env.quiet()
    env.finish()
    cover("pm.pool.full")
    cover("pm.pool.reserve")

    # The maximum of one rank holds only that rank up.
    env.limits["max_entries"] = 2
    await env.start()
    env.credits.left[stuck] = 0
    await env.bench.cycles(3)
    env.source.put(*(traffic.bytes_of(traffic.row(dest=by_rank[stuck]), 0, 8)[0] for _ in range(2)))
    env.source.put(*(traffic.bytes_of(traffic.row(dest=by_rank[rank]), 0, 8)[0] for rank in others))
    await env.source.drained()
    await env.bench.cycles(8)
    assert not env.golden.packets and env.counted["stall_pool"] == 0
    env.source.put(*traffic.bytes_of(traffic.row(dest=by_rank[stuck]), 0, 8))
    await env.bench.cycles(40)
    assert env.counted["stall_pool"] > 0 and not env.golden.packets, "others must not be squeezed for this rank's maximum"
    env.credits.left[stuck] = 1000
    await env.mark()
    await env.quiet()
    env.finish()
    cover("pm.pool.maximum")


@cocotb.test()
async def can_accept(dut):
    """A crossbar that stops at ``can_accept`` and has up to 8 stores on the way never meets a stall (pool large enough)."""
    env = Env(dut, merge_timeout=60, age_limit=2000, give_back=0.2, credits=2)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    assert cfg.pool_depth - cfg.ranks >= 11, "this test needs a larger pool"
    rank = 0                                # one rank: others could use their reserve, for which the promise is one place
    dests = [dest for dest, (to, _) in traffic.dests.items() if to == rank]
    stopped, way = 0, []
    for _ in range(1200):
        await env.bench.sampled()
        go = int(dut.can_accept.value) >> rank & 1
        await env.bench.cycles(1)
        stopped += not go
        way.append(go)
        if len(way) > 7 and way.pop(0):
            env.source.put(*traffic.bytes_of(traffic.row(dest=env.rng.choice(dests)), 0, env.rng.choice((8, 32))))
    assert stopped > 100
    await env.mark()
    await env.quiet()
    env.finish()
    assert env.counted["stall_pool"] == 0
    cover("pm.can_accept")


@cocotb.test()
async def fence_and_close(dut):
    """Marks: of one handle only its entries leave; of all, everything; also with the link blocked, and with stores going on."""
    env = Env(dut, merge_timeout=60000, age_limit=60000)
    await env.start()
    cfg = env.cfg
    traffic = Traffic(cfg, env.rng)
    handles = sorted({dest // cfg.replicas for dest in traffic.dests})
    dests = [handle * cfg.replicas for handle in handles][:max(1, cfg.pool_depth - cfg.ranks)]
    for dest in dests:
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 5, 30))
    await env.source.drained()
    await env.bench.cycles(20)
    assert not env.golden.packets
    await env.mark(dests[0] // cfg.replicas)
    await env.bench.cycles(60)
    assert [p.stores[0].dest for p in env.golden.packets] == dests[:1]
    assert int(dut.draining.value) == 0
    cover("pm.mark.handle")

    # Mark in the very cycle in which a store is accepted, in which a last flit waits, and around it.
    for wait in range(26):
        await env.mark()
        await env.quiet()
        env.sink.set_pause([False] * 9 + [True] * 3 + [False] * 500)
        env.source.put(*traffic.bytes_of(traffic.row(dest=dests[0], full=32), 0, 32))
        env.source.put(*traffic.bytes_of(traffic.row(dest=dests[-1]), 0, 16))
        await env.bench.cycles(1 + wait)
        await env.mark()
        await env.source.drained()
        await env.bench.cycles(40)
        env.sink.set_pause(None)
    cover("pm.mark.every_stage")
    await env.mark()
    await env.quiet()
    env.finish()

    # A blocked link: draining holds until the bytes are out.
    await env.start()
    env.sink.set_pause("stop")
    env.source.put(*traffic.bytes_of(traffic.row(dest=dests[0]), 0, 16), *traffic.bytes_of(traffic.row(dest=dests[0]), 0, 16))
    await env.source.drained()
    await env.mark()
    await env.bench.cycles(100)
    assert int(dut.draining.value) == 1 << traffic.dests[dests[0]][0]
    env.sink.set_pause(None)
    await env.quiet()
    env.finish()
    cover("pm.mark.blocked")


@cocotb.test()
async def dead_peer(dut):
    """A peer dies with entries in the pool, at the output and still arriving: they are sunk and counted, others go on."""
    env = Env(dut, merge_timeout=500, age_limit=4000)
    cfg = env.cfg
    for victim in range(min(2, cfg.ranks)):
        await env.start()
        traffic = Traffic(cfg, env.rng)
        env.source.put(*traffic.mix(60, window=cfg.pool_depth))
        await env.bench.cycles(60)
        await env.mark()
        env.kill(1 << victim)
        await env.source.drained()
        await env.mark()
        await env.quiet()
        golden = env.golden
        golden.finish()
        assert len(golden.sunk_tags) <= env.counted["sunk"] <= golden.sunk_stores, "sunk entries"
        others = [p for p in golden.packets if p.rank != victim]
        assert others
        cover("pm.dead.sunk", env.counted["sunk"] > 0)
        cover("pm.count.sunk", env.counted["sunk"] > 0)

        # Alive again: works as before.
        env.kill(0)
        golden.dead_since[victim] = None
        before = len(golden.packets)
        dest = next(dest for dest, (rank, _) in traffic.dests.items() if rank == victim)
        env.source.put(*traffic.bytes_of(traffic.row(dest=dest), 0, cfg.packet_bytes))
        await env.quiet()
        assert len(golden.packets) == before + 1
    cover("pm.dead.back")


@cocotb.test()
async def same_address(dut):
    """Stores to one address, without pause: the bytes leave in order, the newest last, whatever is locked meanwhile."""
    env = Env(dut, stall="random", seed="same", merge_timeout=20, age_limit=4000, credits=2, give_back=0.1)
    await env.start()
    traffic = Traffic(env.cfg, env.rng)
    for _ in range(120):
        base = traffic.plain(env.rng.randrange(env.cfg.ranks), 7)
        env.source.put(*traffic.bytes_of(base, env.rng.randrange(4), env.rng.choice((1, 8, env.cfg.packet_bytes - 4))))
    await env.quiet()
    env.finish()
    assert env.counted["overlaps"] > 20
    cover("pm.same_address")
