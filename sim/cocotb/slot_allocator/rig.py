# SPDX-License-Identifier: Apache-2.0
"""The slot allocator with its agents and the golden model beside it: everything that comes out is
compared."""

import random
from collections import Counter, defaultdict

from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.slot_allocator.records import slice_types_of
from sim.bench.axi import SpillMemory
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, StreamSink, StreamSource, bus_pulse, bus_write, start_clock
from sim.golden.slot_allocator import SlotAllocatorModel
from sim.quality.coverage import cover

from .traffic import Traffic
from .waits import WaitMonitor


class AllocatorBench:
    """The design with all its agents, and the model beside it. ``run`` sends packets and compares
    everything."""

    def __init__(self, dut, idle="none", stall="none", salt=""):
        self.cfg, _, self.rng = bench_params(salt)
        cfg, rng, types, own = self.cfg, self.rng, types_of(self.cfg), slice_types_of(self.cfg)
        self.dut, self.types = dut, types
        self.bench = bench = start_clock(dut, watchdog=3000)
        self.traffic, self.bad = Traffic(cfg, rng), set()

        def fresh():
            return random.Random(rng.random())

        self.memory = SpillMemory(
            bench,
            "spill__",
            latency=(1, 12),
            rng=fresh(),
            error=lambda addr, _: addr in self.bad,
            pause=dict.fromkeys(("aw", "w", "b", "ar", "r"), stall),
        )
        self.sources = [
            StreamSource(bench, f"i_packet__{n}", types.flit, idle, fresh())
            for n in range(cfg.slices)
        ]
        self.writes = [
            StreamSink(bench, f"o_write__{n}", types.write, stall, fresh())
            for n in range(cfg.slices)
        ]
        self.beats = [
            StreamSink(bench, f"o_data__{n}", types.beat, stall, fresh()) for n in range(cfg.slices)
        ]
        self.refused = [
            StreamSink(bench, f"o_refused__{n}", types.refusal, stall, fresh())
            for n in range(cfg.slices)
        ]
        self._obs, self._counts, self._bank = (
            Codec(own.obs_alloc),
            Codec(own.counts),
            Codec(own.purge),
        )
        bench.on_sample(self._sample)
        self.waits = WaitMonitor(self)

    def _sample(self, cycle):
        raw = int(self.dut.obs_alloc.value)
        if raw & 1:
            self.obs.append(self._obs.unpack(raw))
            self.obs_stamps.append(cycle)
        raw = int(self.dut.o_overlap.value)
        if raw & 1:
            bank = self._bank.unpack(raw)
            self.overlaps[bank["region"], bank["bank"]] += 1
            self.overlap_order.append(bank["region"])
        raw = int(self.dut.counts.value)
        if raw:
            for name, value in self._counts.unpack(raw).items():
                if name == "refused":
                    for reason, count in enumerate(value):
                        name = f"refused_{Reason(reason).name}"
                        self.counts[name] += count
                        self.peak[name] = max(self.peak[name], count)
                else:
                    self.counts[name] += value

    async def start(self, cycles=2):
        """Resets design, memory and model, and waits until the tables are cleared."""
        self.model = SlotAllocatorModel(self.cfg)
        self.obs, self.obs_stamps, self.overlaps, self.counts = [], [], Counter(), Counter()
        self.overlap_order = []  # regions
        self.peak = Counter()  # most refusals of a reason in one cycle
        for name in (
            "geometry_write",
            "region_update",
            "window_write",
            "dep_write",
            "purge",
            "rows_query",
        ):
            getattr(self.dut, name).value = 0
        await self.bench.reset(cycles)
        start = self.bench.cycle
        self.memory.writes.clear()
        self.memory.reads.clear()
        self.checked = {"obs": 0}
        self.waits.reset()
        await self.bench.cycles(1)
        await self.bench.until(lambda: not int(self.dut.clearing.value), what="clearing")
        cfg = self.cfg
        words = max(cfg.filter_depth, cfg.rat_sets, cfg.ranks, 2 * cfg.regions)  # one in each cycle
        assert self.bench.cycle - start == words + 1, (
            f"tables of up to {words} words: {self.bench.cycle - start} cycles"
        )

    async def region(self, number, **fields):
        """Sets a region's geometry; sensible values for what is not given."""
        cfg = self.cfg
        row_bytes = fields.get("row_bytes", min(cfg.max_row_bytes, 2 * cfg.packet_bytes))
        stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
        draw = (
            self.rng.getrandbits
        )  # addresses, and what the allocator does not look at, are anything
        room = 1 << 27  # of a region or of a spill table, below the end of memory
        bases = [
            at - at % cfg.packet_bytes
            for at in (self.rng.randrange((1 << 48) - room) for _ in range(2))
        ]
        tables = [8 * self.rng.randrange((1 << 45) - room // 8) for _ in range(2)]
        values = {
            "valid": 1,
            "base": bases,
            "stride": stride,
            "row_bytes": row_bytes,
            "capacity": cfg.capacity,
            "group_base": number % (1 << cfg.group_width),
            "log2_tile": 1,
            "row_first": 0,
            "row_span": 1 << 24,
            "spill_base": tables,
            "overflow_en": 0,
            "overflow": 0,
            "expected": draw(8),
            "flag_en": draw(1),
            "flag_base": draw(48),
            **fields,
        }
        self.model.geometry(number, values)
        unit = cfg.packet_bytes  # lower bits of base and stride are ignored
        noisy = {
            "base": [base + draw(16) % unit for base in values["base"]],
            "stride": values["stride"] + draw(16) % unit,
        }
        await bus_pulse(
            self.bench,
            "geometry_write",
            {"en": 1, "region": number, "geometry": values | noisy},
            self.types.geometry_write,
        )

    async def state(self, region, state, epoch):
        self.model.state(region, epoch & 1, state, epoch)
        await bus_pulse(
            self.bench,
            "region_update",
            {"en": 1, "region": region, "bank": epoch & 1, "state": state, "epoch": epoch},
            self.types.region_update,
        )

    async def window(self, rank, base, limit):
        self.model.window(rank, base, limit)
        await bus_pulse(
            self.bench,
            "window_write",
            {"en": 1, "rank": rank, "window": {"base": base, "limit": limit}},
            self.types.window_write,
        )

    async def dep(self, index, **fields):
        self.model.dep(index, fields)
        await bus_pulse(
            self.bench,
            "dep_write",
            {"en": 1, "index": index, "range": fields},
            self.types.dep_write,
        )

    def send(self, number, packets):
        for flits in packets:
            last = len(flits) - 1
            self.sources[number].put(
                *(
                    {"data": data, "err": err, "first": n == 0, "last": n == last}
                    for n, (data, err) in enumerate(flits)
                )
            )

    async def settle(self, quiet=80):
        """Until everything was taken and nothing has moved for a while."""
        bench = self.bench
        await bench.until(
            lambda: (
                not any(source.pending for source in self.sources)
                and self.memory.idle
                and bench.cycle - bench._moved > quiet
            ),
            limit=200000,
            what="traffic",
        )

    async def run(self, packets):
        """Sends ``packets`` (a list per slice), waits until all is done, compares."""
        for number, queue in enumerate(packets):
            self.send(number, queue)
        await self.settle()
        self.check(packets)

    def check(self, packets):
        fresh = [
            (e["region"], e["bank"], e["rowid"], e["slot"], e["overflow"])
            for e in self.obs[self.checked["obs"] :]
        ]
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
        wanted = {
            addr: [word for kind, word in log if kind == "write"]
            for addr, log in model.accesses.items()
        }
        assert writes == {addr: words for addr, words in wanted.items() if words}, (
            "spill words differ"
        )
        wanted = Counter(
            addr for addr, log in model.accesses.items() for kind, _ in log if kind == "read"
        )
        assert reads == wanted, (
            f"spill reads: {reads - wanted} too many, {wanted - reads} too few, "
            f"{[(hex(a), model.accesses[a]) for a in (reads - wanted) + (wanted - reads)]}"
        )
        assert +self.overlaps == +model.overlaps, (
            f"overlaps {self.overlaps}, expected {model.overlaps}"
        )
        for reason in Reason:
            cover(f"slot_allocator.refused.{reason.name}", model.counts[f"refused_{reason.name}"])
        for name in ("spills", "restores", "filter_false", "dropped", "spill_errors"):
            cover(f"slot_allocator.{name}", model.counts[name])
        self.waits.check()

    async def rows(self, region, bank):
        bus_write(
            self.dut, "rows_query", {"region": region, "bank": bank}, slice_types_of(self.cfg).bank
        )
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
