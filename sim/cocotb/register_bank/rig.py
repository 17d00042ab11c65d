# SPDX-License-Identifier: Apache-2.0
"""The register bank with the blocks that answer it, its golden model, and accesses that compare
both."""

from hub_rtl.contract.fields import COUNTER
from hub_rtl.contract.registers import COUNTERS, register_map
from hub_rtl.register_bank.register_bank import CsrBank
from sim.bench.axi import AxiLiteMaster
from sim.bench.rig import Rig
from sim.golden.register_bank import OKAY, CsrModel

QUIET = 30  # cycles after which every order but SNAPSHOT and CLEAR is done
SWEEP = 2 * len(COUNTERS) + 8  # ... and these two


class Scoreboard:
    """Answers ``query`` so many cycles later, from the model's banks."""

    def __init__(self, rig, cycles):
        self.rig, self._cycles = rig, cycles
        self.clear()
        rig.add(self)

    def clear(self, forget=True):
        self._pipe = [(0, 0)] * self._cycles

    def drive(self):
        status = dict(self.rig.model.banks.get(self._pipe[0], {}))
        self.rig.set("missing_from", status.pop("missing", 0))
        self.rig.set("silent", status.pop("silent", 0))
        self.rig.set("status", status)

    def sample(self):
        self._pipe = [*self._pipe[1:], tuple(self.rig.get("query").values())]


class Table:
    """The decoder table of the producer side: takes writes, shows an entry so many cycles after it
    was asked for."""

    def __init__(self, rig, cycles):
        self.rig, self._cycles = rig, cycles
        self.clear()
        rig.add(self)

    def clear(self, forget=True):
        self._entries, self._asked, self._shown = {}, [None] * self._cycles, {}

    def drive(self):
        if asked := self._asked[0]:
            self._shown = self._entries.get(asked["index"], {})
        self.rig.set("handle_data", self._shown)

    def sample(self):
        if write := self.rig.strobe("handle_write"):
            self._entries[write["index"]] = write["handle"]
        self._asked = [*self._asked[1:], self.rig.strobe("handle_read")]


class BankRig(Rig):
    """Design, model and everything around them. ``late``: with as many registers on the way to
    blocks as there may be."""

    def __init__(self, dut, salt, idle=None, stall=None, late=False):
        super().__init__(dut, salt, watchdog=2000)
        self.counter_limit = 1 << self.counter_width
        self.map = register_map(self.cfg)
        pause = dict.fromkeys(("aw", "w", "ar"), idle) | dict.fromkeys(("b", "r"), stall)
        self.axil = AxiLiteMaster(self, "axil__", pause=pause, rng=self.rng)
        self.forget()
        Scoreboard(self, 4 if late else 2)
        Table(self, 3 if late else 2)
        self.seen = []
        self.on_sample(self._watch)

    @property
    def counter_width(self):
        return self.params.get("counter_width", COUNTER)

    def component(self):
        return CsrBank(self.cfg, self.counter_width)

    def forget(self):
        """The model as after a reset."""
        self.model = CsrModel(self.cfg, self.map.as_dict())
        self.model.inputs["control.STATUS.cleared"] = 1

    async def start(self):
        self.set("cleared", 1)
        await self.reset()
        await self.cycles(SWEEP)

    def _watch(self, cycle):
        for kind in ("handle", "geometry", "dep", "window"):
            if value := self.strobe(f"{kind}_write"):
                del value["en"]
                self.seen.append((kind, value))
        if self.get("log_clear"):
            self.seen.append(("clear_log", {}))

    # -- what the blocks show ----------------------------------------------------------------------

    def any_status(self):
        """A random state of a bank."""
        rng, ranks = self.rng, self.cfg.ranks
        totals = {name: rng.getrandbits(34) for name in ("sent", "acked", "refused")}
        return totals | {
            "state": rng.randrange(3),
            "epoch": rng.randrange(16),
            "told": rng.randint(0, ranks),
            "closes": rng.randint(0, ranks),
            "rows": rng.randrange(self.cfg.capacity),
            "error": rng.randrange(16),
            "blame": {"valid": rng.getrandbits(1), "rank": rng.randrange(ranks)},
            "missing": rng.getrandbits(ranks),
            "silent": rng.getrandbits(ranks),
        }

    def inputs(self, register, **fields):
        """The model is told what a register shows."""
        self.model.inputs |= {f"{register}.{name}": value for name, value in fields.items()}

    async def tell(self, port, irq, register=None, **fields):
        """A pulse of a block, which the model is told of: interrupt and ``valid`` of a register."""
        await self.pulse(port, **fields)
        self.model.raised("control.IRQ_STATUS", irq)
        if register:
            self.model.raised(register, "valid")

    async def tell_bad(self, lane, header, reason):
        await self.tell("bad", "bad_packet", "logs.BAD", lane=lane, header=header, reason=reason)

    def inputs_bad(self, lane, header, reason):
        """The first bad packet."""
        self.inputs("logs.BAD", reason=reason, lane=lane)
        for n in range(4):
            self.inputs(f"logs.BAD_HEADER{n}", value=header >> 32 * n & 0xFFFFFFFF)

    async def tell_timeout(self, region, bank):
        await self.tell("timed_out", "timeout", "hang.TIMEOUT", region=region, bank=bank)

    def inputs_timeout(self, region, bank):
        """A timeout keeps what was missing then."""
        status = self.model.banks[region, bank]
        self.inputs("hang.TIMEOUT", bank=bank, region=region, epoch=status["epoch"])
        self.inputs("hang.TIMEOUT_MISSING0", value=status["missing"])
        self.inputs("hang.TIMEOUT_SILENT0", value=status["silent"])

    def show(self, view, entry, count, lost):
        """The view of a slice, the oldest entry of the log, and how many it has and has lost."""
        self.set("view", view)
        self.set("log_entry", entry)
        self.set("log_count", count)
        self.set("log_lost", lost)
        for kind, names in (
            ("oldest", ("valid", "plain", "epoch", "rank", "region")),
            ("waiting", ("valid", "cause", "region")),
        ):
            page = f"hang.{kind.upper()}"
            self.inputs(page, **{name: view[kind][name] for name in names})
            self.inputs(f"{page}_ROWID", value=view[kind]["rowid"])
        self.inputs("hang.OLDEST_AGE", value=view["oldest"]["age"])
        self.inputs("hang.OUTSTANDING", value=view["outstanding"])
        self.inputs("hang.NO_CREDIT0", value=view["no_credit"])
        self.inputs("hang.NO_CTL_CREDIT0", value=view["no_ctl_credit"])
        names = ("reason", "side", "remote", "plain", "owner", "epoch", "number")
        self.inputs("logs.ENTRY", **{name: entry[name] for name in names})
        self.inputs("logs.ENTRY_ROW", rowid=entry["rowid"], rank=entry["rank"])
        self.inputs("logs.COUNT", value=count)
        self.inputs("logs.LOST", value=lost)

    def paths(self, *pages):
        """Registers of these pages that the bank keeps itself."""
        return [
            path
            for path, _, register in self.map
            if path.partition(".")[0] in pages and not register.external
        ]

    def add_counts(self, totals, values, times=1):
        for name, value in values.items():
            totals[name] = (totals[name] + times * value) % self.counter_limit

    def most_counts(self):
        """The largest increment of each counter in a cycle."""
        codec = self.codec("counts")
        return codec.unpack((1 << codec.width) - 1)

    async def answer(self, status):
        """A command is answered."""
        await self.i_command_response.send({"status": status})
        self.model.answered(status)

    # -- accesses ----------------------------------------------------------------------------------

    async def try_write(self, path, value=0):
        """The response; the model is not told."""
        return await self.axil.write_resp(self.map.address(path), value)

    async def read(self, path):
        return await self.axil.read(self.map.address(path))

    async def order(self, path, value=1):
        await self.write(path, value, expect=OKAY)

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
        await self.order(path, sum(int(value) << low[name] for name, value in fields.items()))

    async def check(self, path):
        address = path if isinstance(path, int) else self.map.address(path)
        got, wanted = await self.axil.read_resp(address), self.model.read(address)
        assert got == wanted, (
            f"read of {path}: ({got[0]:#x}, {got[1]}), expected ({wanted[0]:#x}, {wanted[1]})"
        )
        return got[0]

    async def check_pages(self, *pages):
        for path in self.paths(*pages):
            await self.check(path)

    async def check_all(self):
        await self.check_pages(*{path.partition(".")[0] for path, _, _ in self.map})

    def effects(self, *kinds):
        """What orders of these kinds must have done."""
        return [value for kind, value in self.model.effects if kind in kinds]

    def same_effects(self, *kinds):
        wanted = [effect for effect in self.model.effects if effect[0] in kinds]
        got = [effect for effect in self.seen if effect[0] in kinds]
        assert got == wanted, f"orders differ\n  came     {got}\n  expected {wanted}"
