# SPDX-License-Identifier: Apache-2.0
"""Bench around two joined hubs: stores, commands, memories, registers and events of each, and the
golden system model."""

from flow.driver import Driver, Handle, Recorder, Region
from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, lane_of, pack, replica_of, unpack
from hub_rtl.contract.ports import hub_interfaces
from hub_rtl.contract.registers import register_map
from sim.bench.axi import AxiLiteMaster, AxiMemory, ByteMemory
from sim.bench.fabric import Switch
from sim.bench.ports import reader
from sim.bench.rig import Testbench
from sim.bench.streams import StreamSink, StreamSource, hub_port
from sim.golden.system import SystemModel

from .pair import SIDES

__all__ = ["HubRig", "Node", "MEMORY", "log", "region", "status"]

MEMORY = 1 << 20  # bytes of a rank's memory that regions and ranges use


class Node:
    """One hub with everything around it."""

    def __init__(self, rig, rank, idle, stall):
        cfg, dut, rng = rig.cfg, rig.dut, rig.rng
        self.rig, self.rank, prefix = rig, rank, f"{SIDES[rank]}_"
        interfaces = {i.name: i for i in hub_interfaces(cfg)}

        def source(name):
            return StreamSource(rig, hub_port(dut, interfaces[name], prefix), pause=idle, rng=rng)

        def sink(name):
            return StreamSink(rig, hub_port(dut, interfaces[name], prefix), pause=stall, rng=rng)

        def memory(name, **more):
            return AxiMemory(
                rig,
                f"{prefix}m_axi_{name}_",
                memory=self.memory,
                latency=(2, 9),
                pause=stall,
                rng=rng,
                **more,
            )

        self.stores = [source(f"s_store{n}") for n in range(cfg.lanes)]
        self.answers = [sink(f"m_response{n}") for n in range(cfg.lanes)]
        self.commands, self.command_answers = source("s_command"), sink("m_command_response")
        self.events = sink("m_event")
        self.memory = ByteMemory(0)
        self.errors = set()  # addresses of bursts that memory refuses
        self.writers = [
            memory(f"mem{n}", error=lambda addr, length: addr in self.errors)
            for n in range(cfg.slices)
        ]
        self.spill = memory("spill")
        self.csr = AxiLiteMaster(rig, f"{prefix}s_axil_csr_")
        self.wanted = [[] for _ in range(cfg.lanes)]  # reasons of the stores' answers
        ports = interfaces["obs_alloc"].ports
        self._obs = {p.field: reader(getattr(dut, f"{prefix}{p.name}")) for p in ports}
        self.cleared, self.irq = getattr(dut, f"{prefix}cleared"), getattr(dut, f"{prefix}irq")
        self.allocs = []
        rig.on_sample(self._watch)

    def _watch(self, cycle):
        if self._obs["en"]():
            self.allocs.append({name: read() for name, read in self._obs.items()})

    def forget(self):
        """What has been before does not count any more."""
        self.wanted = [[] for _ in range(self.rig.cfg.lanes)]
        self.allocs.clear()
        for sink in (*self.answers, self.command_answers, self.events):
            sink.items.clear()
            sink.count = 0

    # -- registers ---------------------------------------------------------------------------------

    async def drive(self, orders):
        """Runs ``orders(driver)`` and brings what it recorded to the hub."""
        recorder = Recorder()
        orders(Driver(self.rig.cfg, recorder))
        for kind, address, value, mask in recorder.accesses:
            if kind == "write":
                await self.csr.write(address, value)
            else:
                for _ in range(400):
                    if (await self.csr.read(address)) & mask == value:
                        break
                else:
                    raise AssertionError(
                        f"rank {self.rank}: register {address:#x} never showed {value:#x} "
                        f"under {mask:#x}"
                    )

    async def read(self, path):
        return await self.csr.read(self.rig.map.address(path))

    async def field(self, path, name):
        field = next(f for f in self.rig.map.register(path).fields if f.name == name)
        return (await self.read(path)) >> field.low & ((1 << field.width) - 1)

    async def write(self, path, value):
        await self.csr.write(self.rig.map.address(path), value)

    async def region(self, index, geometry):
        self.rig.model.region(self.rank, index, geometry)
        await self.drive(lambda d: d.region(index, geometry))

    async def handle(self, index, entry=None, **fields):
        """An entry, or the fields of one."""
        entry = entry or Handle(**fields)
        self.rig.model.handle(self.rank, index, entry)
        await self.drive(lambda d: d.handle(index, entry))

    async def handle_to(self, index, rank, region, row_bytes, **more):
        """An entry with one target."""
        await self.handle(index, targets=((rank, region),), row_bytes=row_bytes, **more)

    async def open(self, region, epoch):
        self.rig.model.open(self.rank, region, epoch)
        await self.drive(lambda d: d.open(region, epoch))

    async def open_region(self, index, epoch, **fields):
        """A region as :func:`region` makes it, open in an epoch."""
        await self.region(index, region(self.rig.cfg, index, **fields))
        await self.open(index, epoch)

    async def counters(self):
        """All counters, by name."""
        await self.drive(lambda d: d.snapshot())
        addresses = Driver(self.rig.cfg, None).counters()
        return {
            name: await self.csr.read(low) | await self.csr.read(high) << 32
            for name, (low, high) in addresses.items()
        }

    # -- traffic -----------------------------------------------------------------------------------

    def store(self, operand, data, mask, lane=None, owner=0, cls=0):
        """One store of 32 bytes; the model says how it must be answered."""
        cfg, model = self.rig.cfg, self.rig.model
        if lane is None:
            row = unpack(OPERAND_ROW, operand)
            known = {} if row["plain"] else model.handles[self.rank]
            entry = known.get(row["handle"], [None])[0]
            lane = lane_of(
                operand,
                cfg.lanes,
                cfg.packet_bytes,
                *((entry.lane_mode, entry.lane) if entry else ()),
            )
        reason = model.store(self.rank, operand, data, mask, owner, lane)
        self.wanted[lane].append(int(reason))
        plain = unpack(OPERAND_PLAIN, operand)
        at = plain["addr"] if plain["plain"] else 16 * unpack(OPERAND_ROW, operand)["row_off"]
        at = at % cfg.slice_bytes // 32 * 32  # of the sector in its slice
        self.stores[lane].put(
            {
                "operand": operand,
                "data": int.from_bytes(data, "little") << 8 * at,
                "mask": mask << at,
                "owner": owner,
                "cls": cls,
                "tag": (len(self.wanted[lane]) - 1) % (1 << cfg.tag_width),
            }
        )
        return reason

    async def command(self, op, handle=0, epoch=0, owner=0):
        """A command through the port; returns the status."""
        unsaid = dict.fromkeys(("abort", "replica", "bytes16", "more"), 0)
        about = {"handle": handle, "epoch": epoch, "owner": owner}
        self.commands.put({"op": op, **about, **unsaid, "tag": 1})
        return (await self.command_answers.recv())["status"]

    async def close(self, handle, epoch):
        wanted = self.rig.model.close(self.rank, handle, epoch)
        status = await self.command(1, handle, epoch)
        assert status == wanted, (
            f"rank {self.rank}: close of {handle}, epoch {epoch} answered {status}, must be "
            f"{wanted!r}"
        )

    async def close_all(self, count, epoch):
        """The first handles."""
        for handle in range(count):
            await self.close(handle, epoch)

    @property
    def answered(self):
        return all(
            len(sink.items) == len(wanted)
            for sink, wanted in zip(self.answers, self.wanted, strict=True)
        )

    @property
    def complete(self):
        """Epochs with their ALL."""
        return sum(item["kind"] == 1 for item in self.events.items)

    def check(self):
        """Answers, events and memory against the model, which knows all placements."""
        cfg, model = self.rig.cfg, self.rig.model
        for lane, (sink, wanted) in enumerate(zip(self.answers, self.wanted, strict=True)):
            got = [(item["tag"], item["status"]) for item in sink.items]
            assert got == [(n % (1 << cfg.tag_width), reason) for n, reason in enumerate(wanted)], (
                f"answers of lane {lane}"
            )
        got = sorted(self.plain_event(item) for item in self.events.items)
        wanted = model.events(self.rank)
        assert got == wanted, f"rank {self.rank}: events\n  came     {got}\n  expected {wanted}"
        self.check_order()
        image, _ = model.image(self.rank, MEMORY)
        for addr, byte in self.memory.written().items():
            assert addr >= MEMORY or byte == image[addr], (
                f"rank {self.rank}: byte {addr:#x} is {byte:#x}, must be {image[addr]:#x}"
            )
        for addr in image.nonzero()[0]:
            assert self.memory.read(int(addr), 1)[0] == image[addr], (
                f"rank {self.rank}: byte {addr:#x} was not written"
            )

    @staticmethod
    def plain_event(item):
        """The event with fields that have no meaning set to 0, as the model gives it."""
        kind, plain = item["kind"], item["plain"]
        return (
            kind,
            plain,
            item["region"],
            0 if plain else item["epoch"],
            item["group"] if kind == 0 else 0,
            0 if plain or kind == 2 else item["rows"],
            item["status"] if kind == 2 else 0,
            item["refused"] if kind == 1 else 0,
        )

    def check_order(self):
        """Nothing of an epoch comes after its ALL or ERROR."""
        over = set()
        for item in self.events.items:
            if not item["plain"]:
                key = item["region"], item["epoch"]
                assert key not in over, (
                    f"rank {self.rank}: event after the last one of its epoch: {item}"
                )
                if item["kind"]:
                    over.add(key)


class HubRig(Testbench):
    """Two nodes and the model."""

    def __init__(self, dut, salt, idle=None, stall=None, watchdog=6000):
        super().__init__(dut, salt, watchdog)
        self.map = register_map(self.cfg)
        self.model = SystemModel(self.cfg)
        self.nodes = [Node(self, rank, idle, stall) for rank in range(2)]
        if self.cfg.slice_links > 1:
            self.switch = Switch(
                self.wires,
                2,
                self.cfg.links,
                lambda rank, link: f"{SIDES[rank]}_m_axis_link{link}_",
                lambda rank, link: f"{SIDES[rank]}_s_axis_link{link}_",
                latency=(1, 60),
                rng=self.rng,
            )

    async def start(self, **settings):
        """Reset, tables cleared, ranks and timers set."""
        settings = {"merge_timeout": 40, "age_limit": 300} | settings
        await self.reset()
        for node in self.nodes:
            await node.drive(lambda d, node=node: d.start(node.rank, **settings))

    def sectors(self, operand, data, whole=True):
        """A row's stores: (operand, 32 bytes, mask) of each sector of ``data``, masks split at
        random unless ``whole``."""
        fields = unpack(OPERAND_ROW, operand)
        for first in range(0, len(data), 32):
            piece = data[first : first + 32]
            mask = (1 << len(piece)) - 1
            here = pack(OPERAND_ROW, **fields | {"row_off": fields["row_off"] + first // 16})
            cut = mask if whole else self.rng.getrandbits(32)
            parts = [part for part in (mask & cut, mask & ~cut) if part]
            for part in parts:
                yield here, piece.ljust(32, b"\0"), part

    def put_row(self, node, operand, size, **more):
        """A whole row of random bytes from a node."""
        for store in self.sectors(operand, self.bytes(size)):
            node.store(*store, **more)

    async def answered(self, limit=5000):
        """Every store is answered."""
        await self.until(lambda: all(node.answered for node in self.nodes), limit, "answers")

    def bytes(self, count):
        """Random bytes without zeros, so that a missing byte shows."""
        return bytes(self.rng.randrange(1, 256) for _ in range(count))

    def target(self, node, handle, rowid):
        entry = self.model.handles[node.rank][handle][0]
        return entry.targets[replica_of(rowid, len(entry.targets))]

    async def settle(self, events, limit=20000):
        """Waits until each node has given so many events and every store is answered, then a while
        for what must not come."""
        await self.answered(limit)
        await self.until(
            lambda: all(
                node.events.count >= count for node, count in zip(self.nodes, events, strict=True)
            ),
            limit,
            f"events {events}",
        )
        await self.cycles(200)

    def check(self):
        """Everything both hubs did, against the model."""
        for node in self.nodes:
            for alloc in node.allocs:
                self.model.allocate(
                    node.rank,
                    *(alloc[name] for name in ("region", "bank", "rowid", "slot", "overflow")),
                )
        self.model.settle()
        for node in self.nodes:
            node.check()


def region(cfg, index, *, row_bytes=None, rows=None, log2_tile=0, expected=2, **more):
    """A region with its own memory and groups; all regions of one hub share the groups evenly."""
    row_bytes = row_bytes or min(256, cfg.max_row_bytes)
    stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
    share = cfg.groups // cfg.regions
    rows = rows or min(cfg.capacity, share << log2_tile)
    base = index * 0x10000
    return Region(
        base=(base, base + 0x8000),
        stride=stride,
        row_bytes=row_bytes,
        capacity=rows,
        group_base=index * share,
        log2_tile=log2_tile,
        expected=expected,
        spill_base=(0x100000 + index * 0x4000, 0x102000 + index * 0x4000),
        row_span=1024,
        **more,
    )


async def status(node, index, epoch):
    """What the registers say about one epoch of a region."""
    await node.write("regions.INDEX", index)
    await node.write("regions.QUERY", epoch & 1)
    while await node.field("control.STATUS", "query_busy"):
        pass
    wide = {}
    for name in ("sent", "acked", "refused"):
        low, high = [await node.read(f"regions.{name.upper()}_{half}") for half in ("LO", "HI")]
        wide[name] = low | high << 32
    return wide | {
        "rows": await node.read("regions.ROWS"),
        "state": await node.field("regions.STATE", "state"),
        "epoch": await node.field("regions.STATE", "epoch"),
        "missing": await node.read("regions.MISSING0"),
    }


async def log(node):
    """Entries of the refusal log, as {field: value}."""
    entries = []
    for index in range(await node.read("logs.COUNT")):
        await node.write("logs.INDEX", index)
        word = {
            field.name: await node.field("logs.ENTRY", field.name)
            for field in node.rig.map.register("logs.ENTRY").fields
        }
        entries.append(
            word | {name: await node.field("logs.ENTRY_ROW", name) for name in ("rowid", "rank")}
        )
    return entries
