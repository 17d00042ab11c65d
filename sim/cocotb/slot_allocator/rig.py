# SPDX-License-Identifier: Apache-2.0
"""The slot allocator with its agents and the golden model beside it: everything that comes out is
compared."""

from collections import Counter, defaultdict
from itertools import product

from hub_rtl.contract.packets import SPILL_WORD, Reason, RegionState, unpack
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator
from sim.bench.axi import SpillMemory
from sim.bench.rig import Rig
from sim.golden.link import beats_of
from sim.golden.receive_pool import whole_record
from sim.golden.slot_allocator import SlotAllocatorModel
from sim.quality.coverage import cover

from .traffic import Traffic, packet
from .waits import WaitMonitor


def in_memory(cfg):
    """Every spilled word is in memory: no store keeps some of them."""
    return not cfg.victim_sets


class AllocatorRig(Rig):
    """``run`` sends packets and compares everything."""

    block = SlotAllocator

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall)
        self.traffic, self.bad = Traffic(self.cfg, self.rng), set()
        self._known_counts = {}
        #: Cycles that a purge of the victim store takes, of one region.
        self.store_purge = 2 + self.cfg.victim_sets if self.cfg.victim_sets else 0
        self.row_bytes = min(self.cfg.max_row_bytes, 2 * self.cfg.packet_bytes)  # if no other
        self.memory = SpillMemory(
            self,
            "spill__",
            latency=(1, 12),
            rng=self.rng,
            error=lambda addr, _: addr in self.bad,
            pause=stall,
        )
        self.on_sample(self._sample)
        self.waits = WaitMonitor(self)

    def _sample(self, cycle):
        if placed := self.strobe("obs_alloc"):
            self.obs.append(placed)
            self.obs_stamps.append(cycle)
        if bank := self.strobe("o_overlap"):
            self.overlaps[bank["region"], bank["bank"]] += 1
            self.overlap_order.append(bank["region"])
        for name, count in self._counted(self.port_word("counts")):
            self.counts[name] += count
            self.peak[name] = max(self.peak[name], count)

    def _counted(self, word):
        """The counts that are not 0, as (name, count); the same few words come again and again."""
        if word not in self._known_counts:
            counts = self.codec("counts").unpack(word)
            for reason, count in enumerate(counts.pop("refused")):
                counts[f"refused_{Reason(reason).name}"] = count
            self._known_counts[word] = [(name, count) for name, count in counts.items() if count]
        return self._known_counts[word]

    @property
    def keys(self):
        """(region, bank) of all banks."""
        return [*product(range(self.cfg.regions), (0, 1))]

    async def start(self, cycles=2):
        """Resets design, memory and model, and waits until the tables are cleared."""
        self.model = SlotAllocatorModel(self.cfg)
        self.obs, self.obs_stamps, self.overlaps, self.counts = [], [], Counter(), Counter()
        self.overlap_order = []  # regions
        self.peak = Counter()  # most of each count in one cycle
        await self.reset(cycles)
        start = self.cycle
        self.memory.writes.clear()
        self.memory.reads.clear()
        self.checked = 0  # of `obs`
        self.waits.reset()
        await self.cycles(1)
        await self.until(lambda: not self.get("clearing"), what="clearing")
        cfg = self.cfg
        words = max(  # one in each cycle
            cfg.filter_depth, cfg.rat_sets, cfg.ranks, 2 * cfg.regions, cfg.victim_sets
        )
        assert self.cycle - start == words + 1, (
            f"tables of up to {words} words: {self.cycle - start} cycles"
        )

    async def region(self, number, **fields):
        """Sets a region's geometry; sensible values for what is not given."""
        cfg = self.cfg
        row_bytes = fields.get("row_bytes", self.row_bytes)
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
        await self.pulse("geometry_write", region=number, geometry=values | noisy)

    async def regions(self, **fields):
        """The same geometry for all regions."""
        for region in range(self.cfg.regions):
            await self.region(region, **fields)

    async def overflow_into(self, last, slots, own):
        """Regions of so many slots of their own whose rows overflow into the last one."""
        for region in range(self.cfg.regions):
            await self.region(
                region,
                row_bytes=16,
                capacity=min(self.cfg.capacity, slots if region == last else own),
                overflow_en=int(region != last),
                overflow=last,
            )

    async def update(self, region, state, epoch):
        """A broadcast that the model is told of by the test."""
        await self.pulse("region_update", region=region, bank=epoch & 1, state=state, epoch=epoch)

    async def state(self, region, state, epoch):
        self.model.state(region, epoch & 1, state, epoch)
        await self.update(region, state, epoch)

    async def over(self, region, epoch):
        """The epoch is DONE and its bank FREE."""
        for state in (RegionState.DONE, RegionState.FREE):
            await self.state(region, state, epoch)

    async def states(self, state, epoch):
        """All regions."""
        for region in range(self.cfg.regions):
            await self.state(region, state, epoch)

    async def window(self, rank, base, limit):
        self.model.window(rank, base, limit)
        await self.pulse("window_write", rank=rank, window={"base": base, "limit": limit})

    async def dep(self, index, **fields):
        self.model.dep(index, fields)
        await self.pulse("dep_write", index=index, range=fields)

    async def purge(self, region, bank, last=None):
        """Of that region, or of all up to ``last``."""
        last = region if last is None else last
        await self.pulse("purge", region=region, last=last, bank=bank)

    async def still_purging(self):
        """Longer than a purge of an idle block takes."""
        for _ in range(40 + 2 * self.cfg.rat_sets):
            await self.sampled()
            assert self.get("purging"), "purging ended with packets inside"
            await self.cycles(1)

    async def purged(self):
        await self.cycles(1)  # what was seen last is of before the purge
        await self.until(lambda: not self.get("purging"), what="purge")

    def part(self, rowid, epoch, unit=0, count=1, *, src=0, region=0, **more):
        """A packet with some units of a row."""
        body = {"row_off": unit, "region": region, "epoch": epoch, "rowid": rowid}
        return packet(src, self.traffic.words(count), **body, **more)

    def plain(self, addr, count=1, src=0):
        """A packet to an address."""
        return packet(src, self.traffic.words(count), addr=addr, phase=self.rng.getrandbits(1))

    def alone(self, number, queue):
        """Packets for one slice, none for the others."""
        return [queue if n == number else [] for n in range(self.cfg.slices)]

    def record(self, flits):
        """The record of a packet, as the receive pool gives it."""
        size = self.cfg.slice_bytes
        return whole_record(beats_of(self.cfg, size, flits), size)

    def send(self, number, packets):
        for flits in packets:
            self.i_record[number].put(*self.record(flits))

    def send_all(self, packets):
        """``packets``: a list per slice."""
        for number, queue in enumerate(packets):
            self.send(number, queue)

    async def settle(self, quiet=80):
        """Until everything was taken and nothing has moved for a while."""
        await self.until(
            lambda: (
                not any(source.pending for source in self.i_record)
                and self.memory.idle
                and self.cycle - self._moved > quiet
            ),
            limit=200000,
            what="traffic",
        )

    async def run(self, packets):
        """Sends ``packets``, waits until all is done, compares."""
        self.send_all(packets)
        await self.check_settled(packets)

    async def check_settled(self, packets, quiet=80):
        """All that was sent is done and as the model says."""
        await self.settle(quiet)
        self.check(packets)

    def expect(self, packets, until=None):
        """The model sees the packets; of the slots given out those ``until`` this number."""
        fresh = [
            (e["region"], e["bank"], e["rowid"], e["slot"], e["overflow"])
            for e in self.obs[self.checked : until]
        ]
        self.checked += len(fresh)
        self.model.bad_reads = self.model.bad_writes = self.bad
        self.model.run([[self.record(flits) for flits in queue] for queue in packets], fresh)

    def check(self, packets):
        self.expect(packets)
        model = self.model
        for n, each in enumerate(model.slices):
            compare(f"write of slice {n}", self.o_write[n].items, each.writes)
            compare(f"beat of slice {n}", map(written, self.o_data[n].items), each.beats)
            compare(f"refusal of slice {n}", self.o_refused[n].items, each.refusals)
        timing = {name for name in self.counts if name.startswith("stall_")}
        out = sum(unpack(SPILL_WORD, each["word"])["valid"] for each in self.memory.writes)
        wanted = model.counts + Counter(written_out=out if self.cfg.victim_sets else 0)
        assert {k: v for k, v in (+self.counts).items() if k not in timing} == dict(+wanted)
        self._check_words()
        assert +self.overlaps == +model.overlaps, (
            f"overlaps {self.overlaps}, expected {model.overlaps}"
        )
        for reason in Reason:
            cover(f"slot_allocator.refused.{reason.name}", model.counts[f"refused_{reason.name}"])
        for name in ("spills", "restores", "filter_false", "dropped", "spill_errors"):
            cover(f"slot_allocator.{name}", model.counts[name])
        self.waits.check()

    def _check_words(self):
        """What memory saw of the spill words: all that slices read and wrote, or, behind a victim
        store, some of it, the writes of each word in order."""
        model = self.model
        reads, writes = Counter(each["addr"] for each in self.memory.reads), defaultdict(list)
        for each in self.memory.writes:
            writes[each["addr"]].append(each["word"])
        wanted = {
            addr: [word for kind, word in log if kind == "write"]
            for addr, log in model.accesses.items()
        }
        if self.cfg.victim_sets:
            for addr, words in writes.items():
                left = iter(wanted.get(addr, ()))
                assert all(word in left for word in words), f"spill words at {addr:#x}: {words}"
        else:
            assert writes == {addr: words for addr, words in wanted.items() if words}, (
                "spill words differ"
            )
        wanted = Counter(
            addr for addr, log in model.accesses.items() for kind, _ in log if kind == "read"
        )
        few = not self.cfg.victim_sets and wanted - reads
        assert not reads - wanted and not few, (
            f"spill reads: {reads - wanted} too many, {wanted - reads} too few, "
            f"{[(hex(a), model.accesses[a]) for a in (reads - wanted) + (wanted - reads)]}"
        )

    async def rows(self, region, bank):
        self.set("rows_query", {"region": region, "bank": bank})
        await self.cycles(2)
        await self.sampled()
        values = tuple(map(self.get, ("slots", "moved", "rows")))
        await self.cycles(1)
        return values

    async def check_rows(self):
        for key in self.keys:
            slots, moved = self.model.slots[key], self.model.moved[key]
            assert await self.rows(*key) == (slots, moved, slots + moved)


def written(beat):
    """A beat with 0 in bytes that are not written."""
    bits = sum(0xFF << 8 * n for n in range(beat["strb"].bit_length()) if beat["strb"] >> n & 1)
    return beat | {"data": beat["data"] & bits}


def compare(what, came, wanted):
    came = list(came)
    for n, (left, right) in enumerate(zip(came, wanted, strict=False)):
        assert left == right, f"{what} {n}:\n  came     {left}\n  expected {right}"
    assert len(came) == len(wanted), f"{len(came)} times {what}, expected {len(wanted)}"
