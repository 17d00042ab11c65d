# SPDX-License-Identifier: Apache-2.0
"""Rig of the packet manager's bench: drivers, golden model and watcher of the side ports, and the
traffic."""

from hub_rtl.contract.records import types_of
from hub_rtl.packet_manager.records import pool_types_of
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, StreamSink, StreamSource, bus_write, start_clock
from sim.quality.coverage import cover

from .checks import Judge, SidePorts

SECTOR = 32


class Credits:
    """The link's books: ``dest_ready`` while a rank has credits; a take shows after ``delay``
    cycles (1 or 2)."""

    def __init__(self, env, each, give_back=None, delay=1, rng=None):
        self.env, self.left = env, [each] * env.cfg.ranks
        self._give_back, self._rng = give_back, rng
        self._seen = [[each] * env.cfg.ranks] * delay
        self.limit = each
        self.word = None
        env.bench.add(self)

    def take(self, rank):
        assert self.left[rank] > 0, (
            f"cycle {self.env.bench.cycle}: rank {rank} was taken without a credit"
        )
        self.left[rank] -= 1
        cover("packet_manager.credit.last", self.left[rank] == 0)

    def drive(self):
        if self._give_back is not None:
            for r, left in enumerate(self.left):
                if left < self.limit and self._rng.random() < self._give_back:
                    self.left[r] += 1
        self._seen = [*self._seen[1:], list(self.left)]
        word = sum(
            (min(a, b) > 0) << r
            for r, (a, b) in enumerate(zip(self._seen[0], self.left, strict=True))
        )
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

    def __init__(
        self,
        dut,
        *,
        idle=None,
        stall=None,
        credits=1000,
        give_back=None,
        delay=1,
        seed=0,
        watchdog=3000,
        **limits,
    ):
        self.cfg, self.params, self.rng = bench_params(seed)
        self.dut, self.limits = dut, limits
        self.types = pool_types_of(self.cfg)
        self.bench = start_clock(dut, watchdog)
        self.credits = Credits(self, credits, give_back, delay, self.rng)
        self.source = StreamSource(
            self.bench, "i_store", types_of(self.cfg).resolved, idle, self.rng
        )
        self.sink = StreamSink(self.bench, "o_packet", types_of(self.cfg).flit, stall, self.rng)
        self.codecs = {
            name: Codec(getattr(self.types, layout))
            for name, layout in (
                ("take", "take"),
                ("sent", "sent"),
                ("counts", "counts"),
                ("oldest", "oldest"),
            )
        }
        self.marks, self.dead = [], 0
        self.golden = None
        self.source.on_item(lambda item, cycle: self.golden.store(item, cycle))
        self.sink.on_item(lambda item, cycle: self.golden.flit(item, cycle))
        self.bench.on_sample(self._watch)

    async def start(self):
        """Reset, with a fresh golden model and empty counters."""
        self.golden, self.ports = Judge(self.cfg, **self.limits), SidePorts(self)
        self.counted = dict.fromkeys(
            (
                "merges",
                "overlaps",
                "packets_full",
                "packets_partial",
                "packets_timeout",
                "sunk",
                "stall_pool",
                "stall_credit",
            ),
            0,
        )
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
        marked = [mark for mark in self.marks if mark[2] == cycle]
        for everything, handle, _ in marked:
            golden.mark(everything, handle, cycle)
        word = int(dut.counts.value)
        if word:
            for name, on in self.codecs["counts"].unpack(word).items():
                self.counted[name] += on
        golden.cycle(
            cycle,
            ready=int(dut.i_store__ready.value),
            dest_ready=int(dut.dest_ready.value),
            peer_dead=self.dead,
            draining=int(dut.draining.value),
        )
        moved = cycle in (*self.source.stamps[-1:], *self.sink.stamps[-1:]) or take["en"]
        self.ports.look(cycle, moved, bool(marked))

    async def mark(self, handle=None):
        """One pulse of ``mark``, of a handle or of all."""
        self.marks = [(handle is None, handle, self.bench.cycle)]
        bus_write(
            self.dut,
            "mark",
            {"en": 1, "all": handle is None, "handle": handle or 0},
            self.types.mark,
        )
        await self.bench.cycles(1)
        self.dut.mark.value = 0

    def kill(self, word):
        self.dut.peer_dead.value = self.dead = word

    async def quiet(self, limit=6000):
        """Everything accepted has left; ``draining`` is 0."""
        golden = self.golden

        def idle():
            return not (
                self.source.pending
                or golden.arriving
                or golden.pending
                or golden.takes
                or golden.sent
            )

        await self.bench.until(idle, limit, "all packets")
        await self.bench.cycles(12)
        assert int(self.dut.draining.value) == 0, "still draining with nothing left"
        assert int(self.dut.o_packet__valid.value) == 0, "an extra packet"

    async def whole_pool(self, traffic):
        """No place was lost: one rank can have all entries but one per other rank, without a
        stall."""
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
    """Stores of rows and of plain addresses. A row's bytes are stored once; plain ones also
    overlap."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng, self.next_row = cfg, rng, rng.getrandbits(23)
        pairs = [(rank, region) for rank in range(cfg.ranks) for region in range(cfg.regions)]
        rng.shuffle(pairs)
        self.dests = dict(enumerate(pairs[: cfg.dests]))

    def row(self, rowid=None, dest=None, block=0, full=None, epoch=0, **fields):
        dest = self.rng.choice(list(self.dests)) if dest is None else dest
        rank, region = self.dests[dest]
        if rowid is None:
            rowid = self.next_row = self.next_row + 1
        return {
            "plain": 0,
            "rank": rank,
            "region": region,
            "epoch": epoch,
            "rowid": rowid,
            "block": block,
            "dest": dest,
            "full": full or self.cfg.packet_bytes,
            "cls": 0,
            "sector": 0,
        } | fields

    def plain(self, rank, block, **fields):
        return {
            "plain": 1,
            "rank": rank,
            "region": 0,
            "epoch": 0,
            "rowid": 0,
            "block": block,
            "dest": 0,
            "full": self.cfg.packet_bytes,
            "cls": 0,
            "sector": 0,
        } | fields

    def bytes_of(self, base, first, count):
        """Stores for the bytes first .. first + count - 1 of a block, one per sector."""
        stores, last = [], first + count
        while first < last:
            end = min(last, first // SECTOR * SECTOR + SECTOR)
            mask = (1 << end - first) - 1 << first % SECTOR
            stores.append(
                base | {"sector": first // SECTOR, "mask": mask, "data": self.rng.getrandbits(256)}
            )
            first = end
        return stores

    def block(self, base, style):
        """The stores of one block: ``whole`` sectors, ``ragged`` cuts anywhere, ``holes`` some are
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
                        s | {"data": rng.getrandbits(256)}
                        for s in rng.sample(stores, len(stores) // 2)
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

    def _draw(self, opened):
        n = self.rng.randrange(len(opened))
        store = opened[n].pop(0)
        if not opened[n]:
            opened.pop(n)
        return store
