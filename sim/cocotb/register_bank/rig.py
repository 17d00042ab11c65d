# SPDX-License-Identifier: Apache-2.0
"""The register bank with the blocks that answer it, its golden model, and accesses that compare
both."""

from hub_rtl.contract.fields import COUNTER
from hub_rtl.contract.records import types_of
from hub_rtl.contract.registers import COUNTERS, register_map
from sim.bench.axi import AxiLiteMaster
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, StreamSink, start_clock
from sim.golden.register_bank import OKAY, CsrModel

QUIET = 30  # cycles after which every order but SNAPSHOT and CLEAR is done
SWEEP = 2 * len(COUNTERS) + 8  # ... and these two


class Scoreboard:
    """Answers ``query`` so many cycles later, from the model's banks."""

    def __init__(self, bench, cfg, model, cycles):
        self.bench, self.model = bench, model
        self._query = Codec(types_of(cfg).bank_strobe)  # {en, region, bank}; a query has no en
        self._status = Codec(types_of(cfg).status)
        self._pipe = [(0, 0)] * cycles
        self._region_width = cfg.region_width
        bench.add(self)

    def clear(self, forget=True):
        self._pipe = [(0, 0)] * len(self._pipe)

    def drive(self):
        status = self.model.banks.get(self._pipe[0], {})
        self.bench.dut.status.value = self._status.pack(
            {k: v for k, v in status.items() if k != "missing"}
        )
        self.bench.dut.missing_from.value = status.get("missing", 0)

    def sample(self):
        word = int(self.bench.dut.query.value)
        self._pipe = [
            *self._pipe[1:],
            (word & ((1 << self._region_width) - 1), word >> self._region_width & 1),
        ]


class Table:
    """The decoder table of the producer side: takes writes, shows an entry so many cycles after it
    was asked for."""

    def __init__(self, bench, cfg, cycles):
        self.bench, self._cycles = bench, cycles
        self._write, self._handle = Codec(types_of(cfg).handle_write), Codec(types_of(cfg).handle)
        bench.add(self)
        self.clear()

    def clear(self, forget=True):
        self._entries, self._asked, self._shown = {}, [0] * self._cycles, {}

    def drive(self):
        if self._asked[0] & 1:
            self._shown = self._entries.get(self._asked[0] >> 1, {})
        self.bench.dut.handle_data.value = self._handle.pack(self._shown)

    def sample(self):
        write = self._write.unpack(int(self.bench.dut.handle_write.value))
        if write["en"]:
            self._entries[write["index"]] = write["handle"]
        self._asked = [*self._asked[1:], int(self.bench.dut.handle_read.value)]


class Setup:
    """Design, model and everything around them. ``late``: with as many registers on the way to
    blocks as there may be."""

    def __init__(self, dut, salt, pause="none", late=False):
        self.dut = dut
        self.cfg, params, self.rng = bench_params(salt)
        self.counter_limit = 1 << params.get("counter_width", COUNTER)
        self.bench = start_clock(dut, watchdog=2000)
        self.map = register_map(self.cfg)
        self.model = CsrModel(self.cfg, self.map.as_dict())
        self.axil = AxiLiteMaster(
            self.bench,
            "axil__",
            pause=dict.fromkeys(("aw", "w", "b", "ar", "r"), pause),
            rng=self.rng,
        )
        Scoreboard(self.bench, self.cfg, self.model, 4 if late else 2)
        Table(self.bench, self.cfg, 3 if late else 2)
        self.commands = StreamSink(self.bench, "o_command", types_of(self.cfg).command)
        self.region_commands = StreamSink(
            self.bench, "o_region_command", types_of(self.cfg).region_command
        )
        t = types_of(self.cfg)
        self._writes = {
            "handle": ("handle_write", Codec(types_of(self.cfg).handle_write)),
            "geometry": ("geometry_write", Codec(t.geometry_write)),
            "dep": ("dep_write", Codec(t.dep_write)),
            "window": ("window_write", Codec(t.window_write)),
        }
        self.seen = []
        self.bench.on_sample(self._watch)
        self.model.inputs["control.STATUS.cleared"] = 1
        for name in (
            "counts",
            "log_entry",
            "view",
            "bad",
            "timed_out",
            "region_error",
            "status",
            "missing_from",
            "handle_data",
            "event_valid",
            "event_error",
            "refused",
            "log_count",
            "log_lost",
            "cleared",
            "purging",
            "in_flight",
            "range_busy",
            "i_command_response__valid",
            "i_command_response__payload",
        ):
            getattr(dut, name).value = 0
        dut.cleared.value = 1

    def _watch(self, cycle):
        for kind, (port, codec) in self._writes.items():
            value = codec.unpack(int(getattr(self.dut, port).value))
            if value.pop("en"):
                self.seen.append((kind, value))
        if int(self.dut.log_clear.value):
            self.seen.append(("clear_log", {}))

    async def write(self, path, value=0, strobe=0xF, expect=None):
        address = path if isinstance(path, int) else self.map.address(path)
        response = await self.axil.write_resp(address, value, strobe)
        wanted = self.model.write(address, value, strobe)
        assert response == wanted, (
            f"write {value:#x} to {path}: answered {response}, expected {wanted}"
        )
        assert expect is None or response == expect, (
            f"write {value:#x} to {path}: answered {response}, the test wants {expect}"
        )
        return response

    async def fields(self, path, **fields):
        register = self.map.register(path)
        low = {f.name: f.low for f in register.fields}
        await self.write(
            path, sum(int(value) << low[name] for name, value in fields.items()), expect=OKAY
        )

    async def check(self, path):
        address = path if isinstance(path, int) else self.map.address(path)
        got, wanted = await self.axil.read_resp(address), self.model.read(address)
        assert got == wanted, (
            f"read of {path}: ({got[0]:#x}, {got[1]}), expected ({wanted[0]:#x}, {wanted[1]})"
        )
        return got[0]

    async def check_all(self):
        for path, _, register in self.map:
            if not register.external:
                await self.check(path)

    def same_effects(self, *kinds):
        wanted = [effect for effect in self.model.effects if effect[0] in kinds]
        got = [effect for effect in self.seen if effect[0] in kinds]
        assert got == wanted, f"orders differ\n  came     {got}\n  expected {wanted}"
