# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank: orders that overlap, how long each is busy, geometries at the
edge of the rules."""

from collections import deque
from itertools import chain, count, repeat

import cocotb

from hub_rtl.contract.packets import RegionOp
from hub_rtl.contract.registers import COUNTERS
from sim.golden.register_bank import OKAY, SLVERR
from sim.quality.coverage import cover

from .geometry import good_geometry, stage_geometry
from .rig import QUIET, SWEEP, BankRig

SHOWN = 3  # cycles from the moment that a read shows to its answer
REGION_SETTLE = 8  # `region_busy` stays for so many cycles after a region command is done
WIDE = ("BASE0", "BASE1", "SPILL_BASE0", "SPILL_BASE1", "FLAG_BASE")


async def commit(rig):
    """Commits what is staged: just the broken rules are named."""
    await rig.order("regions.COMMIT")
    await rig.check("regions.ERROR")
    await rig.write("regions.ERROR", 0xFFFFFFFF)


@BankRig.test()
async def geometry_edges(rig, cfg, rng):
    """Fields at the edges of the rules, one bit more or less, several at a time: exactly the broken
    rules are named."""

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
                near(rig.model.get("regions.ROW_BYTES")),
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
                - rig.model.get("regions.ROW_FIRST")
                + rng.choice((0, 1 << rng.randrange(24))),
            )
        ),
    }
    for _ in range(12):
        await stage_geometry(rig, rng.randrange(cfg.regions), good_geometry(cfg, rng))
        for _ in range(14):
            if rng.random() < 0.2:
                name = rng.choice(WIDE)
                await rig.write(
                    f"regions.{name}_LO",
                    rng.getrandbits(32) & ~255 | rng.choice((0, 1 << rng.randrange(8))),
                )
            else:
                name = rng.choice(list(changes))
                await rig.write(f"regions.{name}", changes[name]() & 0xFFFFFFFF)
            await commit(rig)
    # Long tiles of few rows: the most rows a tile may have.
    g = good_geometry(cfg, rng) | {"group_base": 0}
    for log2_tile in range(16):
        await stage_geometry(
            rig, 0, g | {"log2_tile": log2_tile, "capacity": rng.randint(1, cfg.capacity)}
        )
        await commit(rig)
    rig.same_effects("geometry")
    cover("register_bank.geometry_edges")


@BankRig.test(late=True)
async def fetch_any(rig, cfg, rng):
    """Entries come back as they were committed, whatever was staged meanwhile; `fetch_busy` says
    when."""
    fields = [
        path
        for path, _, register in rig.map
        if path.startswith("handles.") and not register.order and path != "handles.INDEX"
    ]
    for index in range(cfg.handles):
        for path in fields:
            await rig.write(path, rng.getrandbits(32))
        await rig.write("handles.INDEX", index)
        await rig.order("handles.COMMIT")
    for _ in range(12):
        for path in fields:
            await rig.write(path, rng.getrandbits(32))
        await rig.write("handles.INDEX", rng.randrange(cfg.handles))
        for _ in range(2):
            rig.axil.put_read(rig.map.address("control.STATUS"))
        await rig.order("handles.FETCH")
        answers = await rig.axil.r.recv_all(2)
        for at, answer in zip(rig.axil.r.stamps[-2:], answers, strict=True):
            # A read that comes right behind the order sees it under way.
            after = at - rig.axil.b.stamps[-1]
            assert answer["data"] >> 3 & 1 == (0 < after <= 4), (
                f"fetch_busy {after} cycles after the order"
            )
        for path in (*fields, "control.STATUS"):
            await rig.check(path)
    rig.same_effects("handle")
    cover("register_bank.fetch_any")


@BankRig.test(late=True)
async def queries_and_timeouts(rig, cfg, rng):
    """Queries while timeouts are looked up, the next writes behind them: each shows its own bank,
    and keeps it.

    Of two timeouts in a few cycles the page shows the later.
    """
    shown = ("STATE", "SENT", "ACKED", "REFUSED", "ROWS", "MISSING")
    results = [path for path in rig.paths("regions") if path.partition(".")[2].startswith(shown)]
    results += [path for path in rig.paths("hang") if path.startswith("hang.TIMEOUT")]
    query = rig.map.address("regions.QUERY")
    for _ in range(40):
        rig.model.banks = {
            (region, bank): rig.any_status() for region in range(cfg.regions) for bank in range(2)
        }
        await rig.write("regions.INDEX", rng.randrange(cfg.regions))
        where = rng.randrange(cfg.regions), rng.randrange(2)
        bank, early = rng.randrange(2), rng.randrange(8)
        again = rng.randrange(2)
        for value in (bank, bank ^ 1)[: 1 + again]:
            rig.axil.put_write(query, value)
        other = rng.randrange(cfg.regions)
        rig.axil.put_write(rig.map.address("regions.INDEX"), other)
        await rig.cycles(early)
        await rig.tell_timeout(*where)
        if rng.randrange(2):
            await rig.cycles(rng.randrange(8))
            where = rng.randrange(cfg.regions), rng.randrange(2)
            await rig.tell_timeout(*where)
        assert [one["resp"] for one in await rig.axil.b.recv_all(2 + again)] == [
            OKAY,
            *again * [SLVERR],
            OKAY,
        ]
        rig.model.write(query, bank)
        rig.model.write(rig.map.address("regions.INDEX"), other)
        rig.inputs_timeout(*where)
        await rig.cycles(QUIET)
        rig.model.banks = {}
        for path in (*results, "control.STATUS"):
            await rig.check(path)
    cover("register_bank.queries_and_timeouts")


@BankRig.test()
async def region_busy(rig, cfg, rng):
    """`region_busy` from a region command until some cycles after it is done: when the next may be
    taken."""
    stop, script = {"now": True}, deque()
    rig.o_region_command.set_pause(script.popleft() if script else stop["now"] for _ in count())
    for op, again in (*((op, 0) for op in RegionOp), (RegionOp.RELEASE, 1)):
        for hold in (0, 9):
            for delay in range(12):
                stop["now"] = True
                await rig.try_write("regions.COMMAND", ranged(op, again=again))
                assert await rig.read("control.STATUS") >> 2 & 1
                script.extend([False] + hold * [True])
                stop["now"] = False
                await rig.cycles(1 + hold + delay)
                done = rig.o_region_command.stamps[-1] + 1 + hold
                busy = await rig.read("control.STATUS") >> 2 & 1
                after = rig.axil.r.stamps[-1] - SHOWN - done
                assert busy == (after <= REGION_SETTLE), (
                    f"op {op}, hold {hold}: busy = {busy} after {after} cycles"
                )
                await rig.cycles(QUIET)
    cover("register_bank.region_busy")


def ranged(op, epoch=0, again=0, more=0):
    """Word of an order to ``more`` regions behind INDEX."""
    return op | again << 4 | epoch << 8 | more << 16


@BankRig.test(stall="random")
async def region_ranges(rig, cfg, rng):
    """An order to a range goes to the scoreboard with its last region, and whether what is given
    back is opened again. A range beyond the last region, and OPENs behind another order, are
    refused whole."""
    spans = [(first, more) for first in range(cfg.regions) for more in range(cfg.regions)]
    for first, more in rng.sample(spans, min(12, len(spans))):
        await rig.order("regions.INDEX", first)
        for op in RegionOp:
            for again in range(2):
                rig.o_region_command.set_pause(rng.choice(("none", "random")), rng)
                good = first + more < cfg.regions and (not again or op == RegionOp.RELEASE)
                word = ranged(op, rng.randrange(16), again, more)
                await rig.write("regions.COMMAND", word, expect=OKAY if good else SLVERR)
                due = len(rig.effects("region_command"))
                await rig.cycles(rng.randrange(40))
                while await rig.read("control.STATUS") >> 2 & 1:
                    pass
                assert rig.o_region_command.count == due, "not busy, and commands to come"
    assert rig.o_region_command.items == rig.effects("region_command")
    cover("register_bank.region_ranges")


@BankRig.test(fits=lambda cfg: cfg.regions > 1)
async def commit_within_range(rig, cfg, rng):
    """A COMMIT of the last region of a range that is under way is refused as in use; once it is
    done, it is not."""
    outcomes, command = set(), rig.o_region_command.port

    def look(cycle):
        if (write := rig.strobe("geometry_write")) and command.is_valid():
            given = command.unpack(command.read())
            assert not given["region"] <= write["region"] <= given["last"], (
                "written and ordered at once"
            )

    rig.on_sample(look)
    for held in range(96):
        first = rig.o_region_command.count
        await stage_geometry(rig, 1, good_geometry(cfg, rng))
        await rig.order("regions.INDEX", 0)
        rig.o_region_command.set_pause(chain(repeat(True, held), repeat(False)))
        await rig.order("regions.COMMAND", ranged(RegionOp.OPEN, more=1))
        await rig.order("regions.INDEX", 1)
        seen = len(rig.seen)
        await rig.try_write("regions.COMMIT", 1)
        errors = await rig.read("regions.ERROR")
        written = [value for kind, value in rig.seen[seen:] if kind == "geometry"]
        assert errors == (not written), f"errors = {errors:#x}, written {len(written)} times"
        await rig.write("regions.ERROR", 0xFFFFFFFF)
        while await rig.read("control.STATUS") >> 2 & 1:
            pass
        assert rig.o_region_command.count == first + 1
        outcomes.add(errors)
    assert outcomes == {0, 1}, "a COMMIT behind the order, and one within it"
    cover("register_bank.commit_within_range")


@BankRig.test()
async def announced_in_turn(rig, cfg, rng):
    """Each ANNOUNCE is of the handle that `ANNOUNCE_TO` names, which then names the next one."""
    for _ in range(8):
        await rig.order("control.ANNOUNCE_TO", rng.getrandbits(32))
        for _ in range(3):
            await rig.order("control.ANNOUNCE", rng.getrandbits(32))
            await rig.check("control.ANNOUNCE_TO")
            await rig.until(lambda: rig.o_command.count == len(rig.effects("command")))
            await rig.answer(rng.randrange(16))
            await rig.cycles(2)
    commands = [{k: v for k, v in item.items() if k != "tag"} for item in rig.o_command.items]
    assert commands == rig.effects("command")
    cover("register_bank.announced_in_turn")


@BankRig.test()
async def counter_sweeps(rig, cfg, rng):
    """Reads while a sweep copies show a counter before or after it, nothing else; a sweep takes one
    visit of each counter."""
    most = rig.most_counts()
    shown, totals = dict.fromkeys(COUNTERS, 0), dict.fromkeys(COUNTERS, 0)
    words = [(name, half) for name in COUNTERS for half in range(2)]

    async def add(cycles):
        values = {name: rng.randint(most[name] // 2, most[name]) for name in COUNTERS}
        rig.set("counts", values)
        for _ in range(0, cycles, 1000):
            rig.moved()
            await rig.cycles(min(cycles, 1000))
        rig.set("counts", 0)
        rig.add_counts(totals, values, cycles)

    async def read(name, half, *allowed):
        word = await rig.read(f"counters.{name.upper()}_{('LO', 'HI')[half]}")
        assert word in [one[name] >> 32 * half & 0xFFFFFFFF for one in allowed], (
            f"{name}, word {half}: {word:#x}"
        )

    for word in words:  # before the first snapshot
        await read(*word, shown)
    for again in range(16):
        await add(5000 if not again else rng.randint(1, 60))
        assert await rig.try_write("counters.SNAPSHOT", 1) == OKAY
        start = rig.cycle
        for order in ("SNAPSHOT", "CLEAR"):
            assert await rig.try_write(f"counters.{order}", 1) == SLVERR
        while await rig.read("control.STATUS") >> 5 & 1:
            for _ in range(3):
                await read(*rng.choice(words[::2]), shown, totals)
        took = rig.cycle - start
        assert len(COUNTERS) - 5 <= took <= len(COUNTERS) + 25, f"a snapshot took {took} cycles"
        shown = dict(totals)
        await add(rng.randint(1, 20))
        for word in rng.sample(words, 10):
            await read(*word, shown)
    cover("register_bank.counter_sweeps")


@BankRig.test()
async def clear_in_traffic(rig, cfg, rng):
    """CLEAR while everything counts: what comes from two cycles before its answer on counts,
    nothing earlier; STATUS shows the sweep to a read behind the answer, and orders meanwhile are
    refused."""
    most = rig.most_counts()
    driven, history = dict.fromkeys(COUNTERS, 0), []
    rig.on_sample(lambda cycle: history.append((cycle, driven)))

    async def traffic(cycles):
        nonlocal driven
        for _ in range(cycles):
            driven = {name: rng.randint(0, most[name]) for name in COUNTERS}
            rig.set("counts", driven)
            await rig.cycles(1)

    for _ in range(8):
        running = cocotb.start_soon(traffic(60))
        await rig.cycles(rng.randint(1, 40))
        assert await rig.try_write("counters.CLEAR", 1) == OKAY
        answered = rig.axil.b.stamps[-1]
        assert await rig.read("control.STATUS") >> 5 & 1, "no sweep right behind the answer"
        for order in ("SNAPSHOT", "CLEAR"):
            assert await rig.try_write(f"counters.{order}", 1) == SLVERR
        await running
        driven = dict.fromkeys(COUNTERS, 0)
        rig.set("counts", 0)
        await rig.cycles(SWEEP)
        await rig.order("counters.SNAPSHOT")
        rig.model.snapshot = {
            name: sum(values[name] for cycle, values in history if cycle >= answered - 2)
            % rig.counter_limit
            for name in COUNTERS
        }
        await rig.cycles(SWEEP)
        for name in COUNTERS:
            await rig.check(f"counters.{name.upper()}_LO")
        history.clear()
    cover("register_bank.clear_in_traffic")
