# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ``job_maker.py``: rows go in, jobs come out, and each finds its rows in
memory."""

from examples.own_block.job_maker import Job
from flow.driver import Driver, Handle, Recorder, Region
from hub_rtl.contract.packets import OPERAND_ROW, pack
from hub_rtl.contract.ports import hub_interfaces, hub_ports
from sim.bench.axi import AxiLiteMaster, AxiMemory, ByteMemory
from sim.bench.rig import Testbench
from sim.bench.streams import StreamSink, StreamSource, hub_port

ROW_BYTES, STRIDE, TILE, CAPACITY = 64, 128, 2, 8  # bytes, bytes, rows, rows


class JobRig(Testbench):
    """The design with an agent at each port that the tests use; the links rest.

    ``idle``, ``stall``: how the stores and the accelerator pause, see :mod:`sim.bench.pauses`.
    """

    def __init__(self, dut, salt="", idle=None, stall=None):
        super().__init__(dut, salt)
        interfaces = {interface.name: interface for interface in hub_interfaces(self.cfg)}
        for port in hub_ports(self.cfg):  # what no agent drives rests
            if port.direction == "in":
                getattr(dut, port.name).value = 0
        random = {"rng": self.rng}
        self.registers = AxiLiteMaster(self, "s_axil_csr_")
        store = hub_port(dut, interfaces["s_store0"])
        self.stores = StreamSource(self, store, pause=idle, **random)
        self.answers = StreamSink(self, hub_port(dut, interfaces["m_response0"]))
        self.memory = ByteMemory()
        for name in (*(f"mem{n}" for n in range(self.cfg.slices)), "spill"):
            # Bytes are there when their answer is given, not before.
            AxiMemory(self, f"m_axi_{name}_", memory=self.memory, latency=(2, 20), **random)
        self.jobs = StreamSink(self, "o_job", Job, pause=stall, **random)
        self.jobs.on_item(self._begin)
        self.completed = 0
        self.on_sample(self._count)
        self.found = []  # the rows that each job found when it began

    def _begin(self, job, cycle):
        rows = range(job["address"], job["address"] + STRIDE * job["rows"], STRIDE)
        self.found.append([self.memory.read(at, ROW_BYTES) for at in rows])

    def _count(self, cycle):
        self.completed += int(self.dut.complete.value)

    async def start(self):
        await self.reset()
        base = self.params["base"]
        room = {"base": base, "stride": STRIDE, "capacity": CAPACITY, "row_span": CAPACITY}
        tiles = {"group_base": 0, "log2_tile": TILE.bit_length() - 1, "expected": 1}
        spill = {"spill_base": (0x8000, 0x9000)}

        def orders(driver):
            driver.start(rank=0)
            driver.region(0, Region(row_bytes=ROW_BYTES, **room, **tiles, **spill))

        for at in (0x8000, 0x9000):
            self.memory.write(at, bytes(8 * CAPACITY))  # software zeroes the spill tables
        await self.order(orders)

    async def order(self, orders):
        """Runs ``orders(driver)`` and brings what it recorded to the hub."""
        recorder = Recorder()
        orders(Driver(self.cfg, recorder))
        for kind, address, value, mask in recorder.accesses:
            if kind == "write":
                await self.registers.write(address, value)
            while kind == "poll" and await self.registers.read(address) & mask != value:
                pass

    async def send(self, rows, epoch):
        """Stores whole rows, each byte once, and tells how much came."""

        def orders(driver):
            driver.open(0, epoch)
            driver.handle(0, Handle(targets=((0, 0),), row_bytes=ROW_BYTES, epoch=epoch))
            driver.announce(0, epoch, [sum(map(len, rows))])

        await self.order(orders)
        for rowid, row in enumerate(rows):
            for at in range(0, ROW_BYTES, 32):
                where = {"handle": 0, "epoch": epoch, "rowid": rowid, "row_off": at // 16}
                self.stores.put(
                    {
                        "operand": pack(OPERAND_ROW, plain=0, **where),
                        "data": int.from_bytes(row[at : at + 32], "little"),
                        "mask": (1 << 32) - 1,
                        **{"cls": 0, "owner": 0, "tag": 0},
                    }
                )

    async def finish(self):
        await self.cycles(50)
        assert all(answer["status"] == 0 for answer in self.answers.items)


@JobRig.test(grid=[(None, None), (None, "random"), ("random", "random")])
async def jobs_find_their_rows(rig, cfg, rng, grid):
    """Three rows are a full tile and half of one: two jobs, whatever the accelerator's pauses; what
    a job finds is what was stored. The next epoch uses the other bank."""
    for epoch in (0, 1):
        rows = [rng.randbytes(ROW_BYTES) for _ in range(3)]
        await rig.send(rows, epoch)
        await rig.until(lambda epoch=epoch: rig.completed == epoch + 1, what="ALL")
        jobs, found = rig.jobs.items[2 * epoch :], rig.found[2 * epoch :]
        base = rig.params["base"][epoch]
        assert [(job["address"], job["rows"]) for job in jobs] == [
            (base, 2),
            (base + TILE * STRIDE, 1),
        ]
        assert sorted(row for tile in found for row in tile) == sorted(rows)
