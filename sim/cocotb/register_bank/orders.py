# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank: orders that overlap, how long each is busy, geometries at the
edge of the rules."""

from collections import deque
from itertools import count

import cocotb

from hub_rtl.contract.packets import RegionOp
from hub_rtl.contract.records import types_of
from hub_rtl.contract.registers import COUNTERS
from sim.bench.streams import bus_pulse, bus_write
from sim.golden.register_bank import OKAY, SLVERR
from sim.quality.coverage import cover

from .geometry import good_geometry, stage_geometry
from .rig import QUIET, SWEEP, Setup

SHOWN = 3  # cycles from the moment that a read shows to its answer
REGION_SETTLE = 8  # `region_busy` stays for so many cycles after a region command is done
WIDE = ("BASE0", "BASE1", "SPILL_BASE0", "SPILL_BASE1", "FLAG_BASE")


@cocotb.test()
async def geometry_edges(dut):
    """Fields at the edges of the rules, one bit more or less, several at a time: exactly the broken
    rules are named."""
    s = Setup(dut, "edges")
    cfg, rng = s.cfg, s.rng
    await s.bench.reset()

    def near(*values):
        value = rng.choice(values)
        return (
            max(0, value + rng.choice((0, 0, -1, 1, -16, 16)))
            if rng.random() < 0.6
            else value ^ 1 << rng.randrange(10)
        )

    changes = {
        "ROW_BYTES": lambda: rng.choice(
            (near(cfg.max_row_bytes), 1 << rng.randrange(15), 16 * rng.randint(1, 16))
        ),
        "STRIDE": lambda: rng.choice(
            (
                near(s.model.get("regions.ROW_BYTES")),
                1 << rng.randrange(15),
                cfg.packet_bytes * rng.randint(1, 8),
            )
        ),
        "CAPACITY": lambda: rng.choice((near(cfg.capacity), 1 << rng.randrange(5), 0)),
        "GROUP_BASE": lambda: rng.choice((near(cfg.groups - 1), rng.randrange(cfg.groups))),
        "FLAGS": lambda: (
            1 | rng.getrandbits(2) << 1 | rng.randrange(16) << 4 | rng.getrandbits(20) << 8
        ),
        "ROW_FIRST": lambda: (
            rng.choice((rng.getrandbits(24), (1 << 24) - (1 << rng.randrange(25)))) % (1 << 24)
        ),
        "ROW_SPAN": lambda: rng.choice(
            (
                rng.getrandbits(25),
                1 << rng.randrange(25),
                (1 << 24)
                - s.model.get("regions.ROW_FIRST")
                + rng.choice((0, 1 << rng.randrange(24))),
            )
        ),
    }
    for _ in range(12):
        await stage_geometry(s, rng.randrange(cfg.regions), good_geometry(cfg, rng))
        for _ in range(14):
            if rng.random() < 0.2:
                name = rng.choice(WIDE)
                await s.write(
                    f"regions.{name}_LO",
                    rng.getrandbits(32) & ~255 | rng.choice((0, 1 << rng.randrange(8))),
                )
            else:
                name = rng.choice(list(changes))
                await s.write(f"regions.{name}", changes[name]() & 0xFFFFFFFF)
            await s.write("regions.COMMIT", 1, expect=OKAY)
            await s.check("regions.ERROR")
            await s.write("regions.ERROR", 0xFFFFFFFF)
    # Long tiles of few rows: the most rows a tile may have.
    g = good_geometry(cfg, rng) | {"group_base": 0}
    for log2_tile in range(16):
        await stage_geometry(
            s, 0, g | {"log2_tile": log2_tile, "capacity": rng.randint(1, cfg.capacity)}
        )
        await s.write("regions.COMMIT", 1, expect=OKAY)
        await s.check("regions.ERROR")
        await s.write("regions.ERROR", 0xFFFFFFFF)
    s.same_effects("geometry")
    cover("register_bank.geometry_edges")


@cocotb.test()
async def fetch_any(dut):
    """Entries come back as they were committed, whatever was staged meanwhile; `fetch_busy` says
    when."""
    s = Setup(dut, "fetch", late=True)
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    fields = [
        path
        for path, _, register in s.map
        if path.startswith("handles.") and not register.order and path != "handles.INDEX"
    ]
    for index in range(s.cfg.handles):
        for path in fields:
            await s.write(path, s.rng.getrandbits(32))
        await s.write("handles.INDEX", index)
        await s.write("handles.COMMIT", 1, expect=OKAY)
    for _ in range(12):
        for path in fields:
            await s.write(path, s.rng.getrandbits(32))
        await s.write("handles.INDEX", s.rng.randrange(s.cfg.handles))
        s.axil.ar.put(*2 * [{"addr": s.map.address("control.STATUS")}])
        await s.write("handles.FETCH", 1, expect=OKAY)
        answers = await s.axil.r.recv_all(2)
        for at, answer in zip(s.axil.r.stamps[-2:], answers, strict=True):
            # A read that comes right behind the order sees it under way.
            after = at - s.axil.b.stamps[-1]
            assert answer["data"] >> 3 & 1 == (0 < after <= 4), (
                f"fetch_busy {after} cycles after the order"
            )
        for path in (*fields, "control.STATUS"):
            await s.check(path)
    s.same_effects("handle")
    cover("register_bank.fetch_any")


@cocotb.test()
async def queries_and_timeouts(dut):
    """Queries while timeouts are looked up, the next writes behind them: each shows its own bank,
    and keeps it.

    Of two timeouts in a few cycles the page shows the later.
    """
    s = Setup(dut, "queries", late=True)
    cfg, rng = s.cfg, s.rng
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    results = [
        path
        for path, _, _ in s.map
        if path.startswith(
            (
                "regions.STATE",
                "regions.SENT",
                "regions.ACKED",
                "regions.REFUSED",
                "regions.ROWS",
                "regions.MISSING",
                "hang.TIMEOUT",
            )
        )
    ]
    query = s.map.address("regions.QUERY")
    for _ in range(40):
        s.model.banks = {
            (region, bank): {
                "state": rng.randrange(3),
                "epoch": rng.randrange(16),
                "closes": rng.randint(0, cfg.ranks),
                "sent": rng.getrandbits(34),
                "acked": rng.getrandbits(34),
                "refused": rng.getrandbits(34),
                "rows": rng.randrange(cfg.capacity),
                "error": rng.randrange(16),
                "missing": rng.getrandbits(cfg.ranks),
            }
            for region in range(cfg.regions)
            for bank in range(2)
        }
        await s.write("regions.INDEX", rng.randrange(cfg.regions))
        where = rng.randrange(cfg.regions), rng.randrange(2)
        bank, early = rng.randrange(2), rng.randrange(8)
        again = rng.randrange(2)
        for value in (bank, bank ^ 1)[: 1 + again]:
            s.axil.aw.put({"addr": query})
            s.axil.w.put({"data": value, "strb": 0xF})
        other = rng.randrange(cfg.regions)
        s.axil.aw.put({"addr": s.map.address("regions.INDEX")})
        s.axil.w.put({"data": other, "strb": 0xF})
        await s.bench.cycles(early)
        await bus_pulse(
            s.bench,
            "timed_out",
            {"en": 1, "region": where[0], "bank": where[1]},
            types_of(cfg).bank_strobe,
        )
        if rng.randrange(2):
            await s.bench.cycles(rng.randrange(8))
            where = rng.randrange(cfg.regions), rng.randrange(2)
            await bus_pulse(
                s.bench,
                "timed_out",
                {"en": 1, "region": where[0], "bank": where[1]},
                types_of(cfg).bank_strobe,
            )
        assert [one["resp"] for one in await s.axil.b.recv_all(2 + again)] == [
            OKAY,
            *again * [SLVERR],
            OKAY,
        ]
        s.model.write(query, bank)
        s.model.write(s.map.address("regions.INDEX"), other)
        s.model.raised("hang.TIMEOUT", "valid")
        s.model.raised("control.IRQ_STATUS", "timeout")
        s.model.inputs |= {
            "hang.TIMEOUT.bank": where[1],
            "hang.TIMEOUT.region": where[0],
            "hang.TIMEOUT.epoch": s.model.banks[where]["epoch"],
            "hang.TIMEOUT_MISSING0.value": s.model.banks[where]["missing"],
        }
        await s.bench.cycles(QUIET)
        s.model.banks = {}
        for path in (*results, "control.STATUS"):
            await s.check(path)
    cover("register_bank.queries_and_timeouts")


@cocotb.test()
async def region_busy(dut):
    """`region_busy` from a region command until some cycles after it is done: when taken; OPEN:
    when the next may be taken."""
    s = Setup(dut, "busy")
    await s.bench.reset()
    stop, script = {"now": True}, deque()
    s.region_commands.set_pause(script.popleft() if script else stop["now"] for _ in count())
    status = s.map.address("control.STATUS")
    for op in RegionOp:
        for hold in (0, 9):
            for delay in range(12):
                stop["now"] = True
                await s.axil.write(s.map.address("regions.COMMAND"), op)
                assert await s.axil.read(status) >> 2 & 1
                script.extend([False] + hold * [True])
                stop["now"] = False
                await s.bench.cycles(1 + hold + delay)
                done = s.region_commands.stamps[-1] + (1 + hold if op == RegionOp.OPEN else 0)
                busy = await s.axil.read(status) >> 2 & 1
                after = s.axil.r.stamps[-1] - SHOWN - done
                assert busy == (after <= REGION_SETTLE), (
                    f"op {op}, hold {hold}: busy = {busy} after {after} cycles"
                )
                await s.bench.cycles(QUIET)
    cover("register_bank.region_busy")


@cocotb.test()
async def counter_sweeps(dut):
    """Reads while a sweep copies show a counter before or after it, nothing else; a sweep takes one
    visit of each counter."""
    s = Setup(dut, "sweeps")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    layout = types_of(s.cfg).counts
    most = {name: (1 << field.width) - 1 for name, field in layout}
    shown, totals = dict.fromkeys(COUNTERS, 0), dict.fromkeys(COUNTERS, 0)
    status, words = (
        s.map.address("control.STATUS"),
        [(name, half) for name in COUNTERS for half in range(2)],
    )

    async def add(cycles):
        values = {name: s.rng.randint(most[name] // 2, most[name]) for name in COUNTERS}
        bus_write(dut, "counts", values, layout)
        for _ in range(0, cycles, 1000):
            s.bench.moved()
            await s.bench.cycles(min(cycles, 1000))
        dut.counts.value = 0
        for name, value in values.items():
            totals[name] = (totals[name] + cycles * value) % s.counter_limit

    async def read(name, half, *allowed):
        word = await s.axil.read(s.map.address(f"counters.{name.upper()}_{('LO', 'HI')[half]}"))
        assert word in [one[name] >> 32 * half & 0xFFFFFFFF for one in allowed], (
            f"{name}, word {half}: {word:#x}"
        )

    for word in words:  # before the first snapshot
        await read(*word, shown)
    for again in range(16):
        await add(5000 if not again else s.rng.randint(1, 60))
        assert await s.axil.write_resp(s.map.address("counters.SNAPSHOT"), 1) == OKAY
        start = s.bench.cycle
        for order in ("SNAPSHOT", "CLEAR"):
            assert await s.axil.write_resp(s.map.address(f"counters.{order}"), 1) == SLVERR
        while await s.axil.read(status) >> 5 & 1:
            for _ in range(3):
                await read(*s.rng.choice(words[::2]), shown, totals)
        took = s.bench.cycle - start
        assert len(COUNTERS) - 5 <= took <= len(COUNTERS) + 25, f"a snapshot took {took} cycles"
        shown = dict(totals)
        await add(s.rng.randint(1, 20))
        for word in s.rng.sample(words, 10):
            await read(*word, shown)
    cover("register_bank.counter_sweeps")


@cocotb.test()
async def clear_in_traffic(dut):
    """CLEAR while everything counts: what comes from two cycles before its answer on counts,
    nothing earlier; STATUS shows the sweep to a read behind the answer, and orders meanwhile are
    refused."""
    s = Setup(dut, "clear in traffic")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    layout = types_of(s.cfg).counts
    most = {name: (1 << field.width) - 1 for name, field in layout}
    driven, history = dict.fromkeys(COUNTERS, 0), []
    s.bench.on_sample(lambda cycle: history.append((cycle, driven)))

    async def traffic(cycles):
        nonlocal driven
        for _ in range(cycles):
            driven = {name: s.rng.randint(0, most[name]) for name in COUNTERS}
            bus_write(dut, "counts", driven, layout)
            await s.bench.cycles(1)

    for _ in range(8):
        running = cocotb.start_soon(traffic(60))
        await s.bench.cycles(s.rng.randint(1, 40))
        assert await s.axil.write_resp(s.map.address("counters.CLEAR"), 1) == OKAY
        answered = s.axil.b.stamps[-1]
        assert await s.axil.read(s.map.address("control.STATUS")) >> 5 & 1, (
            "no sweep right behind the answer"
        )
        for order in ("SNAPSHOT", "CLEAR"):
            assert await s.axil.write_resp(s.map.address(f"counters.{order}"), 1) == SLVERR
        await running
        driven = dict.fromkeys(COUNTERS, 0)
        dut.counts.value = 0
        await s.bench.cycles(SWEEP)
        await s.write("counters.SNAPSHOT", 1, expect=OKAY)
        s.model.snapshot = {
            name: sum(values[name] for cycle, values in history if cycle >= answered - 2)
            % s.counter_limit
            for name in COUNTERS
        }
        await s.bench.cycles(SWEEP)
        for name in COUNTERS:
            await s.check(f"counters.{name.upper()}_LO")
        history.clear()
    cover("register_bank.clear_in_traffic")
