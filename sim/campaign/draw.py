# SPDX-License-Identifier: Apache-2.0
"""What a campaign's seed stands for: a configuration, what software sets up, and the traffic.

Seeds ``4n .. 4n + 3`` share one configuration, so that a hub is built once for four runs; all else
is drawn per seed. What is drawn is legal by docs/programming.md, but for what :class:`Plan` counts
as wrong on purpose: stores that a decoder must refuse, rows out of range, full regions, plain
stores outside the window, rows that lack 16 bytes. Two things are left out: an overflow region is
never aborted, and epochs of a bank follow each other without a gap.
"""

import random
from dataclasses import dataclass, field

from flow.driver import DepRange, Driver, Handle, Region
from hub_rtl.contract.config import ConfigError, HubConfig
from hub_rtl.contract.packets import LaneMode, RegionState, replica_of
from hub_rtl.contract.registers import register_map
from sim.system.system import System, plain_operand, row_operand

__all__ = ["QUERY", "SHARE", "Plan", "draw_config", "draw_plan"]

SHARE = 4  # seeds that share one configuration
PACKETS = 60  # full packets that a slice should see, at most; fewer where memory is slow
CYCLES = 5_000  # ... so that they take about so long
BOUND = 100_000  # cycles after which a run counts as hung: at least ten times what is usual
LATENCIES = (30, 30, 30, 200, 200, 600)  # of memory, at most
QUERY = ("SENT_LO", "ACKED_LO", "REFUSED_LO", "ROWS")
FULL = 0xFFFFFFFF
OPENED, ASKED = 100, 10_000  # marks: epoch n is open everywhere; registers of (n, region) were read


@dataclass
class Plan:
    """One seed: ``system`` runs it; the rest is what software knows, by rank."""

    seed: int
    cfg: HubConfig
    system: System
    first: int  # first epoch; the n-th opening of a rank's regions is for epoch first + n, mod 16
    epochs: int
    regions: list = field(default_factory=list)  # rank -> [Region]
    handles: list = field(default_factory=list)  # rank -> {index: Handle}
    windows: list = field(default_factory=list)  # rank -> [(base, limit)] by source
    deps: list = field(default_factory=list)  # rank -> [DepRange]
    stores: list = field(default_factory=list)  # rank -> stores in its program
    fences: list = field(default_factory=list)  # rank -> fences in its program

    def epoch(self, n):
        return (self.first + n) % 16

    def asked(self, number):
        """(n, region) of the registers' mark."""
        return divmod(number - ASKED, self.cfg.regions) if number >= ASKED else None


def draw_config(seed):
    """The configuration of a seed: the first legal one that its group of seeds draws."""
    rng = random.Random(f"campaign configuration {seed // SHARE}")
    while True:
        lanes = rng.choice((1, 1, 1, 2, 3))
        ranks = rng.choice((2, 3, 3, 4, 5))
        fields = {
            "ranks": ranks,
            "lanes": lanes,
            "loop_lanes": rng.choice((1, 1, lanes)) if lanes < 3 else 1,
            "packet_bytes": rng.choice((128, 256)),
            "handles": rng.randint(8, 24),
            "replicas": rng.choice((1, 2)),
            "regions": rng.randint(1, 5),
            "groups": rng.choice((16, 32, 64)),
            "capacity": rng.randint(2, 40),
            "max_row_bytes": 16 * rng.randint(2, 48),
            "pool_depth": rng.choice((4, 8, 8, 16)),
            "rat_sets": rng.choice((1, 1, 2, 4)),
            "rat_ways": rng.randint(1, 4),
            "filter_depth": rng.choice((2, 4, 8, 16)),
            "filter_width": rng.randint(1, 3),
            "pool_places": rng.randint(2 * ranks - 2, 6 * ranks),
            "ctl_credits": rng.randint(1, 3),
            "write_depth": rng.randint(2, 24),
            "dep_ranges": rng.randint(1, 3),
            "combine_depth": rng.randint(1, 4),
            "log_depth": rng.randint(1, 8),
            "reject_depth": rng.randint(1, 4),
            "tag_width": rng.randint(1, 10),
            "slice_links": rng.choice((1, 3, 2, 1)),
            "victim_sets": rng.choice((0, 1, 2, 4)),
        }
        try:
            cfg = HubConfig(name=f"campaign{seed // SHARE}", **fields)
        except ConfigError:
            continue
        if cfg.ranks * cfg.regions <= cfg.handles:
            return cfg


def draw_plan(seed):
    """The :class:`Plan` of a seed; the same seed gives the same plan."""
    return _Draw(seed).plan


class _Draw:
    def __init__(self, seed):
        self.rng, self.cfg = random.Random(f"campaign traffic {seed}"), draw_config(seed)
        rng, cfg = self.rng, self.cfg
        most = rng.choice(LATENCIES)
        self.latency = [rng.randint(0, most) for _ in range(cfg.ranks)]
        self.plan = Plan(
            seed,
            cfg,
            System(cfg, **self._settings(seed)),
            rng.randrange(16),
            rng.choice((1, 2, 3, 4)),
        )
        self.map = register_map(cfg)
        self.pairs = range(cfg.ranks)
        self._shapes()
        for rank in self.pairs:
            self._consumer(rank)
        self._handles()
        for rank in self.pairs:
            self._set_up(rank)
        rows = self._rows()
        plain = self._plain()
        for rank in self.pairs:
            self._consume(rank)
            self._produce(rank, rows[rank], plain[rank])
            self._fence(rank)

    # -- surroundings ------------------------------------------------------------------------------

    def _stall(self, most):
        return self.rng.choice(((0, 0), (0, 0), (1, 0), (2, self.rng.randint(5, most))))

    def _settings(self, seed):
        rng = self.rng
        latency = rng.randint(1, 150)
        return {
            "seed": seed,
            "watch": 1,
            "latency": latency,
            "window": latency,
            "drain": 1500,
            "max_cycles": BOUND,
            "threads": 1,
            "streams": rng.choice((1, 2, 4, 16)),
            "burst": rng.randint(1, 6),
            "lookahead": rng.randint(1, 48),
            "use_can_accept": rng.random() < 0.8,
            "store_idle": self._stall(60),
            "response_stall": self._stall(60),
            "link_stall": self._stall(50),
            "event_stall": self._stall(80),
            "mem_stall": self._stall(50),
        }

    def _memory(self, rank):
        rng, system = self.rng, self.plan.system
        system.setting("memory_of", rank, "mem_latency", self.latency[rank])
        if rng.random() < 0.5:
            system.setting("memory_of", rank, "mem_jitter", rng.randint(1, 80))
        if rng.random() < 0.15:
            start = rng.randint(500, 6000)
            system.setting("memory_of", rank, "mem_frozen", start, start + rng.randint(100, 1500))

    # -- what software sets up ---------------------------------------------------------------------

    def _shapes(self):
        """What is the same at all ranks: row lengths, and whether the last region takes what others
        have no place for."""
        rng, cfg = self.rng, self.cfg
        self.row_bytes = [16 * rng.randint(1, cfg.max_row_bytes // 16) for _ in range(cfg.regions)]
        self.sink = cfg.regions - 1 if cfg.regions > 1 and rng.random() < 0.5 else None
        self.primaries = ()
        if self.sink is not None:
            self.primaries = sorted(rng.sample(range(self.sink), rng.randint(1, self.sink)))
            for index in self.primaries:
                self.row_bytes[index] = self.row_bytes[self.sink]
        self.sink_has_producers = rng.random() < 0.3

    def _space(self, rank, size, step):
        """Address of ``size`` bytes in a rank's memory, behind what was given before and a gap."""
        memory = self.plan.system.ranks[rank]
        base = -(-self.free[rank] // step) * step + self.rng.randint(0, 2) * step
        self.free[rank] = base + size
        memory.arena = -(-(self.free[rank] + 4096) // 4096) * 4096
        return base

    def _consumer(self, rank):
        rng, cfg, plan = self.rng, self.cfg, self.plan
        if rank == 0:
            self.free = [rng.randint(0, 3) * 256 for _ in self.pairs]
        self._memory(rank)
        regions, share, group = (
            [],
            cfg.groups // (cfg.regions + 1),
            rng.randint(0, cfg.groups // (cfg.regions + 1) - 1),
        )
        for index in range(cfg.regions):
            log2_tile = rng.randint(0, 3)
            capacity = rng.randint(1, min(cfg.capacity, share << log2_tile))
            stride = cfg.packet_bytes * (
                -(-self.row_bytes[index] // cfg.packet_bytes) + rng.choice((0, 0, 1))
            )
            stride = min(stride, (1 << cfg.stride_width) - cfg.packet_bytes)
            span = capacity * 2 + rng.randint(0, 16)
            geometry = {
                "base": tuple(
                    self._space(rank, capacity * stride, cfg.packet_bytes) for _ in range(2)
                ),
                "stride": stride,
                "row_bytes": self.row_bytes[index],
                "capacity": capacity,
                "group_base": group,
                "log2_tile": log2_tile,
                "row_first": rng.choice((0, rng.randint(0, (1 << 24) - span))),
                "row_span": span,
                "expected": 0,
                "spill_base": tuple(self._space(rank, span * 8, 8) for _ in range(2)),
                "overflow": self.sink if index in self.primaries else None,
                "flag_base": self._space(rank, share * 8, 8) if rng.random() < 0.4 else None,
            }
            regions.append(geometry)
            group += -(-capacity // (1 << log2_tile))
        self.dep_group = group
        plan.regions.append(regions)
        self._plain_area(rank, group)

    def _plain_area(self, rank, group):
        rng, cfg = self.rng, self.cfg
        log2 = cfg.packet_bytes.bit_length() - 1 + rng.randint(0, 1)
        count = rng.randint(0, min(3, cfg.groups - group))
        base = self._space(rank, 8 << log2, 1 << log2)
        self.plan.windows.append([(base, base + (6 << log2))] * cfg.ranks)
        deps = []
        if count:
            deps.append(
                DepRange(
                    base=base,
                    limit=base + (count << log2),
                    log2_stride=log2,
                    group_base=group,
                    threshold=rng.randint(1, 1 << log2),
                )
            )
        self.plan.deps.append(deps)

    def _handles(self):
        """Handles of every producer: the same regions everywhere, in another order; two replicas
        where there may be two."""
        rng, cfg, plan = self.rng, self.cfg, self.plan
        wanted = [n for n in range(cfg.regions) if n != self.sink or self.sink_has_producers]
        for _ in self.pairs:
            groups = []
            for index in wanted:
                dests = [dest for dest in self.pairs if rng.random() < 0.9]
                rng.shuffle(dests)
                while dests:
                    two = cfg.replicas == 2 and len(dests) > 1 and rng.random() < 0.4
                    groups.append((tuple((dests.pop(), index) for _ in range(1 + two)), index))
            numbers = rng.sample(range(cfg.handles), len(groups))
            handles = {}
            for number, (targets, index) in zip(numbers, groups, strict=True):
                mode = rng.choice(tuple(LaneMode))
                handles[number] = Handle(
                    targets=targets,
                    row_bytes=self.row_bytes[index],
                    epoch=plan.first,
                    owner=rng.choice((0, 3)),
                    lane_mode=mode,
                    lane=rng.randrange(cfg.lanes),
                )
                for dest, region in targets:
                    plan.regions[dest][region]["expected"] += 1
            plan.handles.append(handles)
        for regions in plan.regions if self.primaries else ():
            # One that no producer has is never opened.
            closing = [index for index in self.primaries if regions[index]["expected"]]
            regions[self.sink]["expected"] += len(closing)

    def _set_up(self, rank):
        rng, cfg, plan = self.rng, self.cfg, self.plan
        program = plan.system.ranks[rank].program(1)
        driver = Driver(cfg, program)
        driver.start(
            rank,
            merge_timeout=rng.choice((0, 16, 100, 512)),
            age_limit=rng.choice((1, 200, 2000)),
            timeout=rng.choice((0, 50, 5000)),
            max_entries=rng.randint(1, cfg.pool_depth),
        )
        plan.regions[rank] = [Region(**geometry) for geometry in plan.regions[rank]]
        for number, handle in plan.handles[rank].items():
            driver.handle(number, handle)
        for index, region in enumerate(plan.regions[rank]):
            driver.region(index, region)
        for source in self.pairs:
            driver.window(source, *plan.windows[rank][source])
        for index, dep in enumerate(plan.deps[rank]):
            driver.dep_range(index, dep)
        for n in range(min(2, plan.epochs)):
            self._open(driver, rank, n)
        program.barrier()
        for n in range(min(2, plan.epochs)):
            program.mark(OPENED + n)

    def _used(self, rank):
        """Regions that get closes, those that spill over first, their overflow region last."""
        return [n for n, region in enumerate(self.plan.regions[rank]) if region.expected]

    def _open(self, driver, rank, n):
        for index in reversed(self._used(rank)):
            driver.open(index, self.plan.epoch(n))

    # -- programs ----------------------------------------------------------------------------------

    def _consume(self, rank):
        """Thread 1: waits for the end of every epoch, reads its registers, gives the bank back,
        opens it again."""
        rng, plan, registers = self.rng, self.plan, self.map
        program = plan.system.ranks[rank].program(1)
        driver = Driver(self.cfg, program)
        for n in range(plan.epochs):
            epoch = plan.epoch(n)
            for index in self._used(rank):
                program.wait_end(index, epoch)
                program.write(registers.address("regions.INDEX"), index)
                self._ask(program, epoch)
                for name in QUERY:
                    program.read(registers.address(f"regions.{name}"))
                program.mark(ASKED + n * self.cfg.regions + index)
                (driver.abort if index != self.sink and rng.random() < 0.2 else driver.release)(
                    index, epoch
                )
                self._free(program, epoch)
            if n + 2 < plan.epochs:
                self._open(driver, rank, n + 2)
                program.barrier()
                program.mark(OPENED + n + 2)

    def _ask(self, program, epoch):
        program.write(self.map.address("regions.QUERY"), epoch & 1)
        status = next(
            f.low for f in self.map.register("control.STATUS").fields if f.name == "query_busy"
        )
        program.poll(self.map.address("control.STATUS"), 1 << status, 0)

    def _free(self, program, epoch):
        """Asks until the bank is FREE."""
        self._ask(program, epoch)
        program.read(self.map.address("regions.STATE"))
        state = next(f for f in self.map.register("regions.STATE").fields if f.name == "state")
        program.again(3, (1 << state.width) - 1 << state.low, RegionState.FREE << state.low)

    def _fence(self, rank):
        """Thread 2: fences, whatever the others do."""
        program, count = self.plan.system.ranks[rank].program(2), self.rng.randint(0, 4)
        program.wait_mark(OPENED)
        for _ in range(count):
            program.wait_cycles(self.rng.randint(0, 2500))
            program.fence(owner=self.rng.randrange(16), remote=self.rng.random() < 0.5)
        self.plan.fences.append(count)

    def _produce(self, rank, rows, plain):
        """Thread 0: per epoch all stores in some order, then the closes in some order."""
        rng, plan = self.rng, self.plan
        program, handles = plan.system.ranks[rank].program(0), plan.handles[rank]
        count = 0
        for n in range(plan.epochs):
            program.wait_mark(OPENED + n)
            stores = [*rows[n], *self._wrong(rank, n), *(plain if n == 0 else ())]
            order = rng.choice(("given", "shuffled", "near"))
            if order == "shuffled":
                rng.shuffle(stores)
            elif order == "near":
                stores = [
                    store
                    for _, store in sorted(
                        (i + rng.uniform(0, 60), store) for i, store in enumerate(stores)
                    )
                ]
            for operand, dest, data, mask, lane, owner in stores:
                program.store(
                    operand, dest, data, mask, lane=lane, owner=owner, cls=rng.randrange(2)
                )
            count += len(stores)
            program.sync()
            owners = {handle.owner for handle in handles.values()}
            if rng.random() < 0.3:
                for owner in sorted(owners):
                    program.close_all(plan.epoch(n), owner)
            else:
                for number in rng.sample(sorted(handles), len(handles)):
                    program.close(number, plan.epoch(n), handles[number].owner)
        plan.stores.append(count)

    # -- stores ------------------------------------------------------------------------------------

    def _budget(self):
        """Packets per slice that a run should see: memory's latency bounds how fast a small table
        and few writes can be."""
        cfg, pattern = self.cfg, self.plan.system.settings["mem_stall"][0]
        slow = max(self.latency) * (1 + pattern)
        spill = 2 * slow // (cfg.rat_sets * cfg.rat_ways)
        return min(PACKETS, max(6, CYCLES // (30 + slow // cfg.write_depth + spill)))

    def _rows(self):
        """rank -> [stores of epoch n]. RowIDs are dealt out per region and epoch; some regions get
        more than they hold."""
        rng, cfg, plan = self.rng, self.cfg, self.plan
        out = [[[] for _ in range(plan.epochs)] for _ in self.pairs]
        ways = {}  # (dest, region) -> producers with their handle
        for rank in self.pairs:
            for number, handle in plan.handles[rank].items():
                for target in handle.targets:
                    ways.setdefault(target, []).append((rank, number, handle))
        budget = self._budget() * cfg.slices / (plan.epochs * max(1, len(ways) // cfg.ranks))
        for (dest, index), producers in sorted(ways.items()):
            region = plan.regions[dest][index]
            for n in range(plan.epochs):
                most = max(1, int(budget / -(-region.row_bytes // cfg.packet_bytes)))
                count = rng.randint(
                    0, min(region.capacity + 6 if rng.random() < 0.3 else region.capacity, most)
                )
                names = rng.sample(
                    range(region.row_first, region.row_first + region.row_span),
                    min(count, region.row_span),
                )
                if rng.random() < 0.1:
                    names.append(
                        (region.row_first + region.row_span + rng.randint(0, 9)) % (1 << 24)
                    )
                whole = index in self.primaries or index == self.sink or rng.random() > 0.1
                short = None if whole or not names else rng.choice(names)
                for name in names:
                    rank, number, handle = rng.choice(producers)
                    if self._target(handle, name) == (dest, index):
                        out[rank][n] += self._row(
                            dest, number, handle, plan.epoch(n), name, name == short
                        )
        return out

    @staticmethod
    def _target(handle, rowid):
        return handle.targets[replica_of(rowid, len(handle.targets))]

    def _row(self, dest, number, handle, epoch, rowid, short):
        """Stores of one row, its sectors in some order; ``short``: 16 bytes of it are never
        stored."""
        rng, out = self.rng, []
        mode = rng.choice(("whole", "units", "bytes", "mixed"))
        lost = rng.randrange(handle.row_bytes // 16) if short else None
        for sector in range(-(-handle.row_bytes // 32)):
            mask = FULL if (sector + 1) * 32 <= handle.row_bytes else 0xFFFF
            if lost is not None and lost // 2 == sector:
                mask &= ~(0xFFFF << 16 * (lost % 2))
            for part in self._cut(mask, mode):
                operand = row_operand(number, epoch, rowid, sector * 2 + rng.randrange(2))
                lane = self.plan.system.lane(operand, mode=handle.lane_mode, fixed=handle.lane)
                out.append((operand, dest, rng.randbytes(32), part, lane, handle.owner))
        if rng.random() < 0.5:
            rng.shuffle(out)
        return out

    def _cut(self, mask, mode):
        """Disjoint masks that make up ``mask``, now and then an empty one."""
        rng = self.rng
        if mode == "mixed":
            mode = rng.choice(("whole", "whole", "units", "bytes"))
        if mode == "whole":
            parts = [mask]
        elif mode == "units":
            parts = [mask & 0xFFFF, mask & 0xFFFF0000]
        else:
            first, second = rng.getrandbits(32), rng.getrandbits(32)
            parts = [mask & first, mask & ~first & second, mask & ~first & ~second]
        parts = [part for part in parts if part or rng.random() < 0.05]
        rng.shuffle(parts)
        return parts

    def _plain(self):
        """rank -> plain stores: every group of a range gets its bytes from somebody, and a few go
        outside the window."""
        rng, plan = self.rng, self.plan
        out = [[] for _ in self.pairs]
        for dest in self.pairs:
            low, high = plan.windows[dest][0]
            wanted = {}  # sector -> bytes to store
            for dep in plan.deps[dest]:
                for group in range(dep.limit - dep.base >> dep.log2_stride):
                    span = 1 << dep.log2_stride
                    count = (
                        dep.threshold if rng.random() < 0.8 else rng.randint(0, dep.threshold - 1)
                    )
                    start = dep.base + group * span + rng.randint(0, span - dep.threshold)
                    for addr in range(start, start + count):
                        wanted[addr // 32] = wanted.get(addr // 32, 0) | 1 << addr % 32
                low = dep.limit
            for sector in rng.sample(range(low // 32, high // 32), min(8, (high - low) // 32)):
                wanted[sector] = rng.getrandbits(32) or 1
            for sector in rng.sample(range(high // 32, high // 32 + 8), rng.randint(0, 3)):
                wanted[sector] = rng.getrandbits(32) or 1
            for sector, mask in sorted(wanted.items()):
                rank = rng.choice(self.pairs)
                for part in self._cut(mask, "mixed"):
                    operand = plain_operand(dest, sector * 32 + rng.randrange(32))
                    out[rank].append(
                        (
                            operand,
                            dest,
                            rng.randbytes(32),
                            part,
                            plan.system.lane(operand),
                            rng.randrange(16),
                        )
                    )
        return out

    def _wrong(self, rank, n):
        """Stores that the decoder must refuse, of every kind; the checker finds out why."""
        rng, cfg, plan = self.rng, self.cfg, self.plan
        handles, out = plan.handles[rank], []
        for number in rng.sample(sorted(handles), min(len(handles), rng.choice((0, 0, 1, 3)))):
            handle = handles[number]
            region = plan.regions[handle.targets[0][0]][handle.targets[0][1]]
            epoch, owner, off, lane, wrong = plan.epoch(n), handle.owner, 0, None, rng.randrange(6)
            if wrong == 0:
                number = next((free for free in range(cfg.handles) if free not in handles), 2000)
            elif wrong == 1:
                owner = 9
            elif wrong == 2:
                epoch = (epoch + 3) % 16
            elif wrong == 3:
                epoch = (epoch - 3) % 16
            elif wrong == 4:
                off = min(1022, handle.row_bytes // 16 + 1)
            operand = row_operand(number, epoch, region.row_first, off)
            right = plan.system.lane(operand, mode=handle.lane_mode, fixed=handle.lane)
            lane = (right + 1) % cfg.lanes if wrong == 5 else right
            if wrong == 5 and cfg.lanes == 1:
                continue
            out.append((operand, handle.targets[0][0], bytes(32), FULL, lane, owner))
        return out
