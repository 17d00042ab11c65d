"""cocotb tests of the slot allocator: every write, beat, refusal, spill access and count against the golden model."""

import random
from collections import Counter, defaultdict

import cocotb

from hub_rtl.formats import BODIES, HEADER, SPILL_WORD, PacketType, Reason, RegionState, pack, unpack
from hub_rtl.rows.slice_types import WaitCause, slice_types_of
from hub_rtl.types import types_of
from sim.bench.axi import SpillMemory
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, Codec, StreamSink, StreamSource, bus_pulse, bus_write, start_clock
from sim.golden.slot_allocator import SlotAllocatorModel, fold

OPEN, DONE, FREE = RegionState.OPEN, RegionState.DONE, RegionState.FREE


def packet(src=0, data=(), *, mask=None, errs=(), poison=0, mask_flits=1, **body):
    """A packet as a list of (data, err) flits; ``addr`` makes it a plain one."""
    kind = PacketType.PLAIN if "addr" in body else PacketType.ROW
    if kind == PacketType.PLAIN:
        body = {"addr16": body["addr"] // 16}
    fields = {"type": kind, "masked": mask is not None, "poison": poison, "src": src, "len": len(data)}
    head = pack(HEADER, **fields) | pack(BODIES[kind], **body)
    flits = [(mask >> 128 * n & (1 << 128) - 1, 0) for n in range(mask_flits)] if mask is not None else []
    flits += [(word, 0) for word in data]
    return [(head, 0)] + [(word, int(n in errs)) for n, (word, _) in enumerate(flits)]


class Traffic:
    """Makes packets of rows: each row in packet-sized blocks, a block whole, in two spans, or in two masked parts."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng

    def words(self, count):
        return [self.rng.getrandbits(128) for _ in range(count)]

    def block(self, units, first, src, body):
        """Packets that cover ``units`` 16-byte units of a row from unit ``first``, all in one block, each byte once."""
        rng, cfg = self.rng, self.cfg
        kind = rng.choice(("whole", "whole", "spans", "masked"))
        if kind == "spans" and units > 1:
            cut = rng.randrange(1, units)
            return [packet(src, self.words(cut), row_off=first, **body),
                    packet(src, self.words(units - cut), row_off=first + cut, **body)]
        if kind == "masked":
            low = 16 * (first % cfg.packet_flits)
            whole = ((1 << 16 * units) - 1) << low
            one = rng.getrandbits(16 * units) << low | 1 << low
            out = []
            for mask in (one, whole & ~one):
                if mask:
                    bits = [n for n in range(8 * cfg.packet_bytes) if mask >> n & 1]
                    start, stop = bits[0] // 16, bits[-1] // 16 + 1
                    out.append(packet(src, self.words(stop - start), mask=mask, mask_flits=cfg.mask_flits,
                                      row_off=first - first % cfg.packet_flits + start, **body))
            return out
        return [packet(src, self.words(units), row_off=first, **body)]

    def row(self, row_bytes, src, **body):
        """All packets of one row, in random order."""
        out = []
        for first in range(0, row_bytes // 16, self.cfg.packet_flits):
            out += self.block(min(self.cfg.packet_flits, row_bytes // 16 - first), first, src, body)
        self.rng.shuffle(out)
        return out

    def plain(self, ranks, span=4096):
        rng, cfg = self.rng, self.cfg
        first = rng.randrange(cfg.packet_flits)
        units = rng.randrange(1, cfg.packet_flits - first + 1)
        addr = rng.randrange(span // cfg.packet_bytes) * cfg.packet_bytes + 16 * first
        mask = rng.getrandbits(16 * units) << 16 * first if rng.random() < 0.3 else None
        return packet(rng.randrange(ranks), self.words(units), addr=addr, mask=mask, mask_flits=cfg.mask_flits)

    def weave(self, rows, window):
        """One list of packets; ``window`` rows are on their way at a time."""
        rng, rows, live, out = self.rng, list(rows), [], []
        while rows or live:
            while rows and len(live) < window:
                live.append(list(rows.pop(0)))
            each = rng.choice(live)
            out.append(each.pop(0))
            if not each:
                live.remove(each)
        return out


class AllocatorBench:
    """The design with all its agents, and the model beside it. ``run`` sends packets and compares everything."""

    def __init__(self, dut, idle="none", stall="none", salt=""):
        self.cfg, _, self.rng = bench_params(salt)
        cfg, rng, types, own = self.cfg, self.rng, types_of(self.cfg), slice_types_of(self.cfg)
        self.dut, self.types = dut, types
        self.bench = bench = start_clock(dut, watchdog=3000)
        self.traffic, self.bad = Traffic(cfg, rng), set()

        def fresh():
            return random.Random(rng.random())
        self.memory = SpillMemory(bench, "spill__", latency=(1, 12), rng=fresh(), error=lambda addr, _: addr in self.bad,
                                  pause=dict.fromkeys(("aw", "w", "b", "ar", "r"), stall))
        self.sources = [StreamSource(bench, f"i_packet__{n}", types.flit, idle, fresh()) for n in range(cfg.slices)]
        self.writes = [StreamSink(bench, f"o_write__{n}", types.write, stall, fresh()) for n in range(cfg.slices)]
        self.beats = [StreamSink(bench, f"o_data__{n}", types.beat, stall, fresh()) for n in range(cfg.slices)]
        self.refused = [StreamSink(bench, f"o_refused__{n}", types.refusal, stall, fresh()) for n in range(cfg.slices)]
        self._obs, self._counts, self._bank = Codec(own.obs_alloc), Codec(own.counts), Codec(own.purge)
        self._waiting = Codec(own.waiting)
        self.causes = Counter()
        bench.on_sample(self._sample)

    def _sample(self, cycle):
        raw = int(self.dut.obs_alloc.value)
        if raw & 1:
            self.obs.append(self._obs.unpack(raw))
            self.obs_stamps.append(cycle)
        raw = int(self.dut.o_overlap.value)
        if raw & 1:
            bank = self._bank.unpack(raw)
            self.overlaps[bank["region"], bank["bank"]] += 1
        raw = int(self.dut.counts.value)
        if raw:
            for name, value in self._counts.unpack(raw).items():
                if name == "refused":
                    for reason, count in enumerate(value):
                        self.counts[f"refused_{Reason(reason).name}"] += count
                else:
                    self.counts[name] += value
        for n in range(self.cfg.slices):
            raw = int(getattr(self.dut, f"waiting__{n}").value)
            if raw & 1:
                self.causes[WaitCause(self._waiting.unpack(raw)["cause"]).name] += 1

    async def start(self):
        """Resets design, memory and model, and waits until the tables are cleared."""
        self.model = SlotAllocatorModel(self.cfg)
        self.obs, self.obs_stamps, self.overlaps, self.counts = [], [], Counter(), Counter()
        for name in ("geometry_write", "region_update", "window_write", "dep_write", "purge", "rows_query"):
            getattr(self.dut, name).value = 0
        await self.bench.reset()
        self.memory.writes.clear()
        self.memory.reads.clear()
        self.checked = {"obs": 0}
        await self.bench.cycles(1)
        await self.bench.until(lambda: not int(self.dut.clearing.value), what="clearing")

    async def region(self, number, **fields):
        """Sets a region's geometry; sensible values for what is not given."""
        cfg = self.cfg
        row_bytes = fields.get("row_bytes", min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
        stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
        values = {"valid": 1, "base": [(number + 1) << 32, (number + 1) << 32 | 1 << 31], "stride": stride,
                  "row_bytes": row_bytes,
                  "capacity": cfg.capacity, "group_base": number % (1 << cfg.group_width), "log2_tile": 1, "row_first": 0,
                  "row_span": 1 << 24, "spill_base": [(number + 1) << 40, (number + 1) << 40 | 1 << 39], "overflow_en": 0,
                  "overflow": 0, **fields}
        self.model.geometry(number, values)
        await bus_pulse(self.bench, "geometry_write", {"en": 1, "region": number, "geometry": values},
                        self.types.geometry_write)

    async def state(self, region, state, epoch):
        self.model.state(region, epoch & 1, state, epoch)
        await bus_pulse(self.bench, "region_update", {"en": 1, "region": region, "bank": epoch & 1, "state": state,
                                                      "epoch": epoch},
                        self.types.region_update)

    async def window(self, rank, base, limit):
        self.model.window(rank, base, limit)
        await bus_pulse(self.bench, "window_write", {"en": 1, "rank": rank, "window": {"base": base, "limit": limit}},
                        self.types.window_write)

    async def dep(self, index, **fields):
        self.model.dep(index, fields)
        await bus_pulse(self.bench, "dep_write", {"en": 1, "index": index, "range": fields}, self.types.dep_write)

    def send(self, number, packets):
        for flits in packets:
            last = len(flits) - 1
            self.sources[number].put(*({"data": data, "err": err, "first": n == 0, "last": n == last}
                                       for n, (data, err) in enumerate(flits)))

    async def settle(self, quiet=80):
        """Until everything was taken and nothing has moved for a while."""
        bench = self.bench
        await bench.until(lambda: not any(source.pending for source in self.sources) and self.memory.idle
                          and bench.cycle - bench._moved > quiet, limit=200000, what="traffic")

    async def run(self, packets):
        """Sends ``packets`` (a list per slice), waits until all is done, compares."""
        for number, queue in enumerate(packets):
            self.send(number, queue)
        await self.settle()
        self.check(packets)

    def check(self, packets):
        fresh = [(e["region"], e["bank"], e["rowid"], e["slot"], e["overflow"]) for e in self.obs[self.checked["obs"]:]]
        self.checked["obs"] = len(self.obs)
        model = self.model
        model.bad_reads = model.bad_writes = self.bad
        model.run(packets, fresh)
        for n, each in enumerate(model.slices):
            compare(f"write of slice {n}", self.writes[n].items, each.writes)
            compare(f"beat of slice {n}", self.beats[n].items, each.beats)
            compare(f"refusal of slice {n}", self.refused[n].items, each.refusals)
        timing = {name for name in self.counts if name.startswith("stall_")}
        assert {k: v for k, v in (+self.counts).items() if k not in timing} == dict(+model.counts)
        reads, writes = Counter(each["addr"] for each in self.memory.reads), defaultdict(list)
        for each in self.memory.writes:
            writes[each["addr"]].append(each["word"])
        wanted = {addr: [word for kind, word in log if kind == "write"] for addr, log in model.accesses.items()}
        assert writes == {addr: words for addr, words in wanted.items() if words}, "spill words differ"
        wanted = Counter(addr for addr, log in model.accesses.items() for kind, _ in log if kind == "read")
        assert reads == wanted, f"spill reads: {reads - wanted} too many, {wanted - reads} too few, " \
                                f"{[(hex(a), model.accesses[a]) for a in (reads - wanted) + (wanted - reads)]}"
        assert +self.overlaps == +model.overlaps, f"overlaps {self.overlaps}, expected {model.overlaps}"
        for reason in Reason:
            cover(f"alloc.refused.{reason.name}", model.counts[f"refused_{reason.name}"])
        for name in ("spills", "restores", "filter_false", "dropped", "spill_errors"):
            cover(f"alloc.{name}", model.counts[name])
        for cause in self.causes:
            cover(f"alloc.waits.{cause}")

    async def rows(self, region, bank):
        bus_write(self.dut, "rows_query", {"region": region, "bank": bank}, slice_types_of(self.cfg).bank)
        await self.bench.cycles(2)
        await self.bench.sampled()
        values = tuple(int(getattr(self.dut, name).value) for name in ("slots", "moved", "rows"))
        await self.bench.cycles(1)
        return values

    async def check_rows(self):
        for region in range(self.cfg.regions):
            for bank in (0, 1):
                slots, moved = self.model.slots[region, bank], self.model.moved[region, bank]
                assert await self.rows(region, bank) == (slots, moved, slots + moved)


def compare(what, came, wanted):
    for n, (left, right) in enumerate(zip(came, wanted, strict=False)):
        assert left == right, f"{what} {n}:\n  came     {left}\n  expected {right}"
    assert len(came) == len(wanted), f"{len(came)} times {what}, expected {len(wanted)}"


async def mixed_traffic(top, rows, epoch, faults=0.1):
    """One epoch of rows in all regions, with plain packets, foreign, early, late, overlong and strange packets in between."""
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    lists = [[] for _ in range(cfg.slices)]
    for region in range(cfg.regions):
        geometry = top.model.regions[region]
        first, row_bytes = geometry["row_first"], geometry["row_bytes"]
        outside = [first + geometry["row_span"], (1 << 24) - 1, max(first - 1, 0) or (1 << 24) - 1]
        for n in range(rows):
            rowid = first + n * 3
            src = rng.randrange(cfg.ranks)
            body = {"region": region, "epoch": epoch, "rowid": rowid}
            out = traffic.row(row_bytes, src, **body)
            extra = []
            if rng.random() < faults:
                extra.append(packet((src + 1) % cfg.ranks, traffic.words(1), row_off=0, **body))         # FOREIGN if late
            if rng.random() < faults:
                extra.append(packet(src, traffic.words(1), row_off=0, **{**body, "epoch": (epoch + rng.randrange(1, 16)) % 16}))
            if rng.random() < faults:
                extra.append(packet(src, traffic.words(2), row_off=row_bytes // 16 - 1, **body))         # ROW_OVERRUN
            if rng.random() < faults:
                extra.append(packet(src, traffic.words(1), row_off=0, **{**body, "rowid": rng.choice(outside)}))
            if rng.random() < faults:
                extra.append(packet(src, traffic.words(1), row_off=0, **{**body, "region": cfg.regions + rng.randrange(2)}))
            if rng.random() < faults:
                out.append(packet(src, traffic.words(1), row_off=0, poison=1, errs=(0,), **body))        # overlap or a new row
            if rng.random() < faults:
                units = 2 if row_bytes > 16 else 1                                                       # mask lost, or empty
                extra.append(packet(src, traffic.words(units), row_off=0, errs=(0,) if units > 1 else (),
                                    mask=0xFFFF if units > 1 else 0, mask_flits=cfg.mask_flits, **body))
            for each in extra:
                out.insert(rng.randrange(len(out) + 1), each)
            lists[rng.randrange(cfg.slices)].append(out)
            if rng.random() < 0.3:
                lists[rng.randrange(cfg.slices)].append([traffic.plain(cfg.ranks) for _ in range(rng.randrange(1, 4))])
    for each in lists:
        rng.shuffle(each)
    await top.run([traffic.weave(each, rng.choice((1, 3, 6))) for each in lists])


async def set_up(top, **more):
    """Regions of mixed geometry (region 0 overflows into the last one), windows, ranges."""
    cfg = top.cfg
    long = min(cfg.max_row_bytes, 3 * cfg.packet_bytes)
    for region in range(cfg.regions):
        row_bytes = (long, max(16, long - 16), 16, long)[region % 4] if region != cfg.regions - 1 else long
        fields = {"row_bytes": row_bytes, "stride": (region % 2 + -(-row_bytes // cfg.packet_bytes)) * cfg.packet_bytes,
                  "row_first": 5 * region, "row_span": 4000, "capacity": min(cfg.capacity, 6 + region), "log2_tile": region % 3}
        fields["stride"] = min(fields["stride"], 2 * max(cfg.max_row_bytes, cfg.packet_bytes))
        if region == 0 and cfg.regions > 1:
            fields |= {"overflow_en": 1, "overflow": cfg.regions - 1, "capacity": min(cfg.capacity, 3)}
        await top.region(region, **{**fields, **more})
    await top.window(0, 0, 4096)
    await top.window(1, 1024, 3072)
    for index in range(cfg.dep_ranges):
        await top.dep(index, armed=index % 2 ^ 1, base=300 * index, limit=600 + 900 * index, log2_stride=5 + index,
                      group_base=index, threshold=1000)


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Mixed traffic over two epochs in both banks, on all idle and back-pressure patterns."""
    top = AllocatorBench(dut, *grid, salt=str(grid))
    await top.start()
    await set_up(top)
    rows = 6 if top.cfg.regions > 4 else 10
    for epoch in (0, 1, 2):
        for region in range(top.cfg.regions):
            await top.state(region, OPEN, epoch)
        await mixed_traffic(top, rows, epoch)
        await top.check_rows()
        for region in range(top.cfg.regions):
            await top.state(region, DONE, epoch)
            if epoch != 1:
                await top.state(region, FREE, epoch)
    cover(f"alloc.grid.{grid[0]}.{grid[1]}")
    cover("alloc.overflow", any(top.model.moved.values()) or any(e["overflow"] for e in top.obs))
    cover("alloc.overlap", any(top.model.overlaps.values()))


@cocotb.test()
async def thrash(dut):
    """Far more open rows than ways: rows are spilled and restored again and again, the filter saturates, nothing is lost."""
    top = AllocatorBench(dut, salt="thrash")
    await top.start()
    cfg = top.cfg
    row_bytes = min(cfg.max_row_bytes, 4 * cfg.packet_bytes)
    count = min(cfg.capacity, 3 * cfg.rat_sets * cfg.rat_ways)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes, capacity=count, row_first=100 * region)
        await top.state(region, OPEN, 3)
    lists = [[] for _ in range(cfg.slices)]
    for region in range(min(cfg.regions, 3)):
        for n in range(count):
            body = {"region": region, "epoch": 3, "rowid": 100 * region + n}
            out = [packet(1, top.traffic.words(1), row_off=unit, **body) for unit in range(row_bytes // 16)][:12]
            whole = row_bytes // 16 <= 12
            lists[n % cfg.slices].append(out if whole else out + [packet(
                1, top.traffic.words(min(cfg.packet_flits, row_bytes // 16 - unit)), row_off=unit, **body)
                for unit in range(cfg.packet_flits * -(-12 // cfg.packet_flits), row_bytes // 16, cfg.packet_flits)])
    await top.run([top.traffic.weave(each, 4 * cfg.rat_sets * cfg.rat_ways) for each in lists])
    assert top.model.counts["restores"] > 10
    cover("alloc.thrash")


@cocotb.test()
async def full_regions(dut):
    """Full regions: own slots, then the overflow region's, then refusals; unusable overflow regions are not used."""
    top = AllocatorBench(dut, salt="full")
    await top.start()
    cfg, rng, traffic = top.cfg, top.rng, top.traffic
    last = cfg.regions - 1
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for case in ("usable", "closed", "epoch", "row_bytes", "none"):
        await top.start()
        for region in range(cfg.regions):
            fields = {"row_bytes": row_bytes, "capacity": 2, "overflow_en": int(case != "none" and region != last),
                      "overflow": last}
            if case == "row_bytes" and region == last:
                fields |= {"row_bytes": 16}
            await top.region(region, **fields)
            if not (case == "closed" and region == last):
                await top.state(region, OPEN, 7 if case == "epoch" and region == last else 5)
        lists = [[] for _ in range(cfg.slices)]
        for region in range(min(last, 3) or 1):
            for n in range(6):
                lists[rng.randrange(cfg.slices)].append(traffic.row(row_bytes, 0, region=region, epoch=5, rowid=n))
        await top.run([traffic.weave(each, 4) for each in lists])
        await top.check_rows()
        assert top.model.counts["refused_REGION_FULL"]
        assert bool(any(top.model.moved.values())) == (case == "usable" and last > 0)
        cover(f"alloc.full.{case}")


@cocotb.test()
async def spill_faults(dut):
    """Memory errors on spill accesses, damaged words, words of others: the row is refused or the bank told."""
    top = AllocatorBench(dut, salt="faults")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes, capacity=min(cfg.capacity, 1000))
    await top.state(0, OPEN, 1)
    ways = cfg.rat_ways
    ids = [n for n in range(1 << 16) if _set_of(cfg, n) == 0][:ways + 2]

    def part(rowid, unit, src=0):
        return packet(src, traffic.words(1), row_off=unit, region=0, epoch=1, rowid=rowid)
    base = top.model.regions[0]["spill_base"][1]
    if len(ids) > cfg.capacity:
        return
    # The first row is spilled by one more row than there are ways; then its word is read, each time in another condition.
    await top.run([[part(rowid, 0) for rowid in ids[:ways + 1]]] + [[]] * (cfg.slices - 1))
    addr = base + 8 * ids[0]
    assert top.model.counts["spills"] == 1
    top.bad.add(addr)
    await top.run([[part(ids[0], 1)]] + [[]] * (cfg.slices - 1))
    assert top.model.counts["refused_MEM_ERROR"] == 1
    top.bad.clear()
    await top.run([[part(ids[0], 1, src=1)]] + [[]] * (cfg.slices - 1))
    assert top.model.counts["refused_FOREIGN"] == 1
    word = top.model.memory[addr]
    damaged = word & ~pack(SPILL_WORD, slot=(1 << 20) - 1) | pack(SPILL_WORD, slot=(1 << cfg.slot_width) - 1)
    assert unpack(SPILL_WORD, damaged)["slot"] >= min(cfg.capacity, 1000)
    top.model.memory[addr] = damaged
    top.memory.memory.write(addr, damaged.to_bytes(8, "little"))
    # Restoring it evicts the next row, whose spill fails: the bank is told.
    top.bad.add(base + 8 * ids[1])
    await top.run([[part(ids[0], 1), part(ids[0], 2)]] + [[]] * (cfg.slices - 1))
    assert top.model.counts["refused_MEM_ERROR"] == 3
    assert top.model.overlaps[0, 1] == 1
    cover("alloc.spill_faults")


def _set_of(cfg, rowid):
    return fold(rowid ^ 1 << 12, cfg.rat_sets)


@cocotb.test()
async def purge(dut):
    """A purge with packets under way: `purging` lasts until they have left, then the bank's rows are new again."""
    top = AllocatorBench(dut, salt="purge")
    await top.start()
    cfg, traffic, bench = top.cfg, top.traffic, top.bench
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes)
        for epoch in (0, 1):
            await top.state(region, OPEN, epoch)

    def parts(unit):
        return [[packet(0, traffic.words(1), row_off=unit, region=region, epoch=epoch, rowid=number)
                 for region in range(cfg.regions) for epoch in (0, 1)][:max(2, cfg.rat_ways)] for number in range(cfg.slices)]
    for sink in top.writes + top.beats:
        sink.set_pause("stop")
    first = parts(0)
    for number, queue in enumerate(first):
        top.send(number, queue)
    await bench.cycles(60)
    await bus_pulse(bench, "purge", {"en": 1, "region": 0, "bank": 0}, slice_types_of(cfg).purge)
    for _ in range(40 + 2 * cfg.rat_sets):
        await bench.sampled()
        assert int(dut.purging.value), "purging ended with packets inside"
        await bench.cycles(1)
    for sink in top.writes + top.beats:
        sink.set_pause(None)
    await bench.until(lambda: not int(dut.purging.value), what="purge")
    await top.settle()
    top.check(first)
    top.model.purge(0, 0)
    hits = top.model.counts["rat_hits"]
    await top.run(parts(1))
    assert top.model.counts["rat_hits"] > hits or cfg.rat_ways == 1
    assert top.model.slots[0, 0] >= 2, "the purged row was not new again"
    cover("alloc.purge")


@cocotb.test()
async def old_rows(dut):
    """Rows left over from an epoch that ended in an error are never hit again, and are dropped rather than spilled."""
    top = AllocatorBench(dut, salt="old")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes)
    count = min(cfg.capacity, 2 * cfg.rat_sets * cfg.rat_ways)
    for epoch in (2, 4):
        for region in range(cfg.regions):
            await top.state(region, OPEN, epoch)
        await top.run([[packet(0, traffic.words(1), row_off=unit, region=number % cfg.regions, epoch=epoch, rowid=n)
                        for unit in (0, 1) for n in range(count)] for number in range(cfg.slices)])
        for region in range(cfg.regions):
            await top.state(region, DONE, epoch)
    assert top.model.counts["dropped"]
    cover("alloc.old_rows")


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with packets everywhere and memory stopped; afterwards everything is as new."""
    top = AllocatorBench(dut, stall="random", salt="reset")
    await top.start()
    await set_up(top)
    for region in range(top.cfg.regions):
        await top.state(region, OPEN, 1)
    for number in range(top.cfg.slices):
        top.send(number, [top.traffic.plain(2) for _ in range(10)] + [flits for n in range(4) for flits in top.traffic.row(
            top.model.regions[0]["row_bytes"], 0, region=0, epoch=1, rowid=10 * number + n)])
    await top.bench.cycles(45)
    await top.start()
    await set_up(top)
    for region in range(top.cfg.regions):
        await top.state(region, OPEN, 1)
    await mixed_traffic(top, 4, 1)
    cover("alloc.reset_in_traffic")


@cocotb.test()
async def latency(dut):
    """Header in to write out on an idle block, in cycles."""
    top = AllocatorBench(dut, salt="latency")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 2 * cfg.packet_bytes)
    await top.region(0, row_bytes=row_bytes)
    await top.state(0, OPEN, 0)
    await top.window(0, 0, 4096)
    body = {"region": 0, "epoch": 0, "rowid": 9}

    async def measure(flits):
        before, sent = top.writes[0].count, top.sources[0].count
        await top.run([[flits]] + [[]] * (cfg.slices - 1))
        return top.writes[0].stamps[before] - top.sources[0].stamps[sent]
    new = await measure(packet(0, traffic.words(4), row_off=0, **body))
    hit = await measure(packet(0, traffic.words(4), row_off=4, **body))
    full = await measure(packet(0, traffic.words(cfg.packet_flits), row_off=0, **{**body, "rowid": 10}))
    plain = await measure(packet(0, traffic.words(4), addr=64))
    assert new <= 9, f"new row: {new} cycles"
    assert hit <= 6, f"known row: {hit} cycles"
    assert plain <= 6, f"plain: {plain} cycles"
    assert full <= max(9, cfg.packet_flits + 2), f"new row, full packet: {full} cycles"
    dut._log.info(f"latency: new {new}, hit {hit}, full packet {full}, plain {plain}")
    cover("alloc.latency")


@cocotb.test()
async def full_rate(dut):
    """One flit per cycle on every slice, without a bubble: 64-byte packets, full packets, plain ones; new rows, new regions."""
    top = AllocatorBench(dut, salt="rate")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    row_bytes = min(cfg.max_row_bytes, 1024)
    regions = min(cfg.regions, 4)
    for region in range(cfg.regions):
        await top.region(region, row_bytes=row_bytes, capacity=cfg.capacity)
        await top.state(region, OPEN, 0)
    await top.window(0, 0, 1 << 20)
    sizes = [4] if cfg.packet_flits < 8 else [4, cfg.packet_flits]
    start = 0
    for size in [*sizes, "plain", "masked"]:
        lists = []
        for number in range(cfg.slices):
            queue = []
            for n in range(24 // max(1, row_bytes // 512)):
                body = {"region": n % regions, "epoch": 0, "rowid": start + n * cfg.slices + number}
                if size == "plain":
                    queue += [packet(0, traffic.words(4), addr=64 * (n + k)) for k in range(4)]
                elif size == "masked":
                    queue += [packet(0, traffic.words(4), row_off=unit, mask=((1 << 64) - 1) << 16 * (unit % cfg.packet_flits),
                                     mask_flits=cfg.mask_flits, **body) for unit in range(0, row_bytes // 16, 4)]
                else:
                    queue += [packet(0, traffic.words(size), row_off=unit, **body) for unit in range(0, row_bytes // 16, size)]
            lists.append(queue)
        start += 1000
        before = [source.count for source in top.sources]
        await top.run(lists)
        for n, source in enumerate(top.sources):
            stamps = source.stamps[before[n]:]
            lost = stamps[-1] - stamps[0] + 1 - len(stamps)
            assert lost == 0, f"slice {n}, {size}: {lost} cycles lost in {len(stamps)} flits"
    cover("alloc.full_rate")


@cocotb.test()
async def rows_per_cycle(dut):
    """New rows back to back in one region from all slices: with three slices or more one slot is given out per cycle."""
    top = AllocatorBench(dut, salt="rows")
    await top.start()
    cfg, traffic = top.cfg, top.traffic
    await top.region(0, row_bytes=16)
    await top.state(0, OPEN, 0)
    each = 1000 // cfg.slices
    await top.run([[packet(0, traffic.words(1), row_off=0, region=0, epoch=0,
                           rowid=n * cfg.slices + number) for n in range(each)]
                   for number in range(cfg.slices)])
    cycles = top.obs_stamps[-1] - top.obs_stamps[0] + 1
    dut._log.info(f"{len(top.obs)} rows in {cycles} cycles")
    assert len(top.obs) == each * cfg.slices
    assert cycles <= len(top.obs) * 1.02 + 10
    cover("alloc.rows_per_cycle")
