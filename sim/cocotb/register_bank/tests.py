# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank against its golden model."""

from hub_rtl.contract.registers import COUNTERS, GEOMETRY_RULES, IRQ_SOURCES, policies
from sim.bench.streams import GRID
from sim.golden.register_bank import OKAY, SLVERR
from sim.quality.coverage import cover

from .geometry import BREAK, good_geometry, stage_geometry
from .rig import QUIET, SWEEP, BankRig


@BankRig.test(grid=GRID[::2])
async def random_access(rig, cfg, rng, grid):
    """Random reads and writes over mapped and unmapped addresses; every answer, every order and
    every value agrees."""
    await rig.check_all()
    registers = list(rig.map)
    slow = {"counters.SNAPSHOT": SWEEP, "counters.CLEAR": SWEEP}
    slow["regions.COMMAND"] = QUIET * cfg.regions
    command = next(entry for entry in registers if entry[0] == "control.COMMAND")
    for _ in range(250):
        busy = rig.model.command_busy
        path, address, register = rng.choice(registers)
        if rng.random() < (0.2 if busy else 0.04):  # among hundreds it would hardly ever be met
            path, address, register = command
        elif rng.random() < 0.1:
            address = rng.randrange(0, 1 << 16)
            path = next((p for p, a, _ in registers if a == address & ~3), "none")
        if rng.random() < 0.5:
            await rig.check(address)
            cover("register_bank.read_unmapped", path == "none")
        else:
            strobe = 0xF if rng.random() < 0.95 else rng.randrange(15)
            response = await rig.write(
                address, rng.choice((0, rng.getrandbits(32), rng.getrandbits(5))), strobe
            )
            cover("register_bank.write_unmapped", path == "none")
            cover("register_bank.write_partial", strobe != 0xF)
            cover("register_bank.command_while_busy", busy and path == "control.COMMAND")
            cover(
                "register_bank.index_out_of_range",
                path.endswith("COMMIT") and response == SLVERR and strobe == 0xF,
            )
            await rig.cycles(slow.get(path, QUIET))
        if rig.model.command_busy and rng.random() < 0.3:
            await rig.until(lambda: rig.o_command.count == len(rig.effects("command")))
            await rig.answer(rng.randrange(16))
            await rig.cycles(2)
    await rig.check_all()
    rig.same_effects("handle", "geometry", "dep", "window", "clear_log")
    commands = [{k: v for k, v in item.items() if k != "tag"} for item in rig.o_command.items]
    assert commands == rig.effects("command")
    assert rig.o_region_command.items == rig.effects("region_command")
    outputs = {
        "rank": "id.RANK",
        "timeout": "control.TIMEOUT",
    }
    for port, path in outputs.items():
        assert rig.get(port) == rig.model.get(path)
    assert rig.get("policy") == {name: rig.model.get(path) for name, path in policies(cfg).items()}
    assert rig.get("peer_dead") == sum(
        rig.model.get(f"peers.DRAIN{n}") << 32 * n for n in range(-(-cfg.ranks // 32))
    )


@BankRig.test()
async def geometry(rig, cfg, rng):
    """Good geometries are written as staged; one that breaks a rule, or whose region is in use, is
    not, and says why."""
    await rig.write("control.IRQ_ENABLE", 1 << list(IRQ_SOURCES).index("geometry"))
    for rule in [None, *BREAK, "busy"] * 3 + ["base"] * 40 + ["row_bytes", "stride"] * 10:
        index = rng.randrange(cfg.regions)
        g = good_geometry(cfg, rng) | {"index": index}
        if cfg.regions > 1:
            g |= {
                "overflow_en": rng.randrange(2),
                "overflow": (index + rng.randrange(1, cfg.regions)) % cfg.regions,
            }
        rig.model.banks = {(n, bank): {"state": 0} for n in range(cfg.regions) for bank in range(2)}
        if rule == "busy":
            rig.model.banks[index, rng.randrange(2)] = {"state": rng.choice((1, 2))}
        elif rule:
            BREAK[rule](cfg, rng, g)
        before = len(rig.model.effects)
        await stage_geometry(rig, index, g)
        await rig.order("regions.COMMIT")
        # At once: the bus waits until the staged fields are no longer needed.
        await rig.write("regions.STRIDE", 0)
        await rig.check("regions.ERROR")
        errors = [name for name in GEOMETRY_RULES if rig.model.get("regions.ERROR", name)]
        wanted = [rule] if rule else []
        assert set(wanted) <= set(errors) and bool(errors) == bool(wanted), (
            f"{rule}: flagged {errors}"
        )
        assert (len(rig.model.effects) == before + 1) == (not wanted)
        for name in errors:
            cover(f"register_bank.geometry_{name}")
        await rig.cycles(2)
        assert rig.get("irq") == bool(errors)
        await rig.write("regions.ERROR", 0xFFFFFFFF)
        await rig.write("control.IRQ_STATUS", 0xFFFFFFFF)
        await rig.cycles(2)
        assert rig.get("irq") == 0
    rig.same_effects("geometry")
    # An OPEN that the scoreboard has not taken yet, or not yet shown, also counts as in use.
    rig.o_region_command.set_pause("stop")
    g = good_geometry(cfg, rng)
    await stage_geometry(rig, 0, g)
    await rig.order("regions.COMMAND", 0x300)
    response = await rig.try_write("regions.COMMAND", 0)
    assert response == SLVERR, "a second command while one waits"
    assert await rig.read("control.STATUS") >> 2 & 1
    seen = len(rig.seen)
    assert await rig.try_write("regions.COMMIT", 1) == OKAY
    assert await rig.read("regions.ERROR") == 1 and len(rig.seen) == seen
    rig.o_region_command.set_pause("none")
    await rig.until(lambda: rig.o_region_command.count == 1)
    assert rig.o_region_command.items == [{"op": 0, "epoch": 3, "region": 0, "last": 0, "again": 0}]
    cover("register_bank.commit_behind_command")


@BankRig.test()
async def views(rig, cfg, rng):
    """Status of regions, logs, HANG page, interrupt sources: software reads what the blocks
    show."""
    for _ in range(10):
        where = rng.randrange(cfg.regions), rng.randrange(2)
        rig.model.banks[where] = rig.any_status()
        await rig.write("regions.INDEX", where[0])
        await rig.order("regions.QUERY", where[1])
        await rig.cycles(QUIET)
        for name in (
            "STATE",
            "SENT_LO",
            "SENT_HI",
            "ACKED_LO",
            "ACKED_HI",
            "REFUSED_LO",
            "REFUSED_HI",
            "ROWS",
            "MISSING0",
        ):
            await rig.check(f"regions.{name}")
        await rig.tell_timeout(*where)
        rig.inputs_timeout(*where)
        await rig.cycles(QUIET)
        await rig.check("hang.TIMEOUT")
        await rig.check("hang.TIMEOUT_MISSING0")
    view, entry = rig.codec("view"), rig.codec("log_entry")
    rig.show(
        view.unpack(rng.getrandbits(view.width)),
        entry.unpack(rng.getrandbits(entry.width)),
        1,
        1 << 31,
    )
    await rig.write("hang.SLICE", cfg.slices - 1)
    assert rig.get("slice") == cfg.slices - 1
    # Two bad packets: the first is kept.
    first = (cfg.lanes - 1, 0x0123456789ABCDEF_FEDCBA9876543210, 10)
    for packet in (first, (cfg.lanes - 1, 5, 9)):
        await rig.tell_bad(*packet)
    rig.inputs_bad(*first)
    for n in range(2):  # two failing commands: the first is kept
        command = {"op": 1 + n, "region": 0, "epoch": 4 + n}
        await rig.tell(
            "region_error", "command", "regions.COMMAND_ERROR", command=command, reason=5 - n
        )
    rig.inputs("regions.COMMAND_ERROR", op=1, epoch=4, region=0, reason=5)
    await rig.tell("event_error", "error")
    await rig.tell("refused", "refusal")
    for port in ("cleared", "purging", "in_flight", "range_busy", "event_valid"):
        rig.set(port, 1)
        rig.model.inputs[
            "control.IRQ_STATUS.event" if port == "event_valid" else f"control.STATUS.{port}"
        ] = 1
    await rig.cycles(2)
    await rig.check_all()
    # Each source alone raises the line, and only when enabled.
    for bit, name in enumerate(IRQ_SOURCES):
        value = (await rig.read("control.IRQ_STATUS")) >> bit & 1
        await rig.write("control.IRQ_ENABLE", 1 << bit)
        await rig.cycles(2)
        assert rig.get("irq") == value, name
        cover(f"register_bank.irq_{name}", value == 1)
    await rig.write("control.IRQ_ENABLE", 0)
    await rig.cycles(2)
    assert rig.get("irq") == 0
    # Clearing: w1c bits go, the level stays.
    await rig.write("control.IRQ_STATUS", 0xFFFFFFFF)
    await rig.check("control.IRQ_STATUS")


@BankRig.test()
async def views_change(rig, cfg, rng):
    """What the blocks show is read as it is, whatever it is."""
    codec, log = rig.codec("view"), rig.codec("log_entry")
    for _ in range(16):
        view, entry = (each.unpack(rng.getrandbits(each.width)) for each in (codec, log))
        rig.show(view, entry, rng.randint(0, cfg.log_depth), rng.getrandbits(32))
        bad = rng.randrange(cfg.lanes), rng.getrandbits(128), rng.choice((9, 10))
        await rig.write("logs.BAD", 0xFFFFFFFF)
        await rig.tell_bad(*bad)
        rig.inputs_bad(*bad)
        await rig.cycles(2)
        await rig.check_pages("hang", "logs")


@BankRig.test()
async def every_bit(rig, cfg, rng):
    """Fields of tables and limits are written with all kinds of values, read back, committed, and
    handles fetched again."""
    sizes = {
        "handles": cfg.handles,
        "windows": cfg.ranks,
        "deps": cfg.dep_ranges,
        "control": 0,
        "peers": 0,
    }
    orders = ("INDEX", "COMMIT", "FETCH", "COMMAND")
    for _ in range(10):
        for page, size in sizes.items():
            fields = [path for path in rig.paths(page) if path.partition(".")[2] not in orders]
            for path in fields:
                await rig.write(path, rng.getrandbits(32))
                await rig.check(path)
            if size:
                await rig.write(f"{page}.INDEX", rng.randrange(size))
                await rig.order(f"{page}.COMMIT")
                await rig.cycles(QUIET)
                beyond = (1 << rig.map.register(f"{page}.INDEX").fields[0].width) - 1
                if beyond >= size:
                    await rig.write(f"{page}.INDEX", beyond)
                    assert await rig.write(f"{page}.COMMIT", 1) == SLVERR
                    await rig.write(f"{page}.INDEX", rng.randrange(size))
                    cover("register_bank.index_out_of_range")
            if page == "handles":
                await rig.order("handles.FETCH")
                await rig.cycles(QUIET)
                for path in fields:
                    await rig.check(path)
    rig.same_effects("handle", "dep", "window")


@BankRig.test()
async def counters(rig, cfg, rng):
    """No increment is lost at the highest rate; snapshot, freeze and clear do what they say."""
    most = rig.most_counts()
    totals = dict.fromkeys(COUNTERS, 0)

    async def add(cycles, pick, counted=True):
        for _ in range(cycles):
            values = {name: pick(most[name]) for name in COUNTERS}
            rig.set("counts", values)
            await rig.cycles(1)
            if counted:
                rig.add_counts(totals, values)
        rig.set("counts", 0)

    async def compare():
        await rig.order("counters.SNAPSHOT")
        rig.model.snapshot = dict(totals)
        await rig.cycles(SWEEP)
        for name in COUNTERS:
            await rig.check(f"counters.{name.upper()}_LO")
            await rig.check(f"counters.{name.upper()}_HI")

    await compare()
    await add(3 * len(COUNTERS), lambda limit: limit)
    cover("register_bank.counters_highest_rate")
    await compare()
    await add(60, lambda limit: rng.randint(0, limit))
    await compare()
    await rig.write("counters.CONTROL", 1)
    await add(20, lambda limit: limit, counted=False)
    await rig.write("counters.CONTROL", 0)
    await compare()
    # Busy: a second order is refused until the sweep is over.
    assert await rig.try_write("counters.CLEAR", 1) == OKAY
    assert await rig.try_write("counters.SNAPSHOT", 1) == SLVERR
    cover("register_bank.counters_busy")
    totals.update(dict.fromkeys(COUNTERS, 0))
    await add(10, lambda limit: rng.randint(0, limit))  # while the sweep runs
    await rig.cycles(SWEEP)
    await compare()


@BankRig.test()
async def not_cleared(rig, cfg, rng):
    """Until the tables are cleared, and while a dependency range is being cleared, orders that
    would be lost are refused."""
    rig.set("cleared", 0)
    for path in (
        "control.COMMAND",
        "control.ANNOUNCE",
        "handles.COMMIT",
        "handles.FETCH",
        "regions.COMMIT",
        "regions.COMMAND",
        "regions.QUERY",
        "deps.COMMIT",
        "windows.COMMIT",
    ):
        assert await rig.try_write(path, 0) == SLVERR, path
    rig.set("cleared", 1)
    rig.set("range_busy", 1)
    assert await rig.try_write("deps.COMMIT", 0) == SLVERR
    rig.set("range_busy", 0)
    assert await rig.try_write("deps.COMMIT", 0) == OKAY
    await rig.cycles(QUIET)
    assert [kind for kind, _ in rig.seen] == ["dep"]
    cover("register_bank.order_before_cleared")


@BankRig.test()
async def rank_stays(rig, cfg, rng):
    """The own rank is one of the system'rig, and stays once a store is held or a flit has moved, be
    it for one cycle only; until the next reset."""
    strobes = [{name: 1} for name in ("stores", "tx_busy", "rx_busy")]
    for port, value in (("in_flight", 1), *(("counts", strobe) for strobe in strobes)):
        await rig.reset()
        rig.model.reset()
        for rank in (cfg.ranks - 1, cfg.ranks, 1 << cfg.rank_width, 1 << 31, 0):
            await rig.write("id.RANK", rank)
            await rig.check("id.RANK")
        rig.set(port, value)
        await rig.cycles(1)
        rig.set(port, 0)
        rig.model.used = True
        await rig.write("id.RANK", cfg.ranks - 1, expect=SLVERR)
        await rig.check("id.RANK")
    cover("register_bank.rank_stays")


@BankRig.test()
async def reset_in_traffic(rig, cfg, rng):
    """A reset in the middle of accesses and orders: afterwards every register is as after
    power-up."""
    for _ in range(4):
        await rig.start()
        rig.forget()
        await rig.check_all()
        for path in ("regions.COMMIT", "control.COMMAND", "regions.COMMAND", "regions.QUERY"):
            await rig.try_write(path, rng.getrandbits(32))
        for path in ("id.RANK", "control.TIMEOUT", "handles.FLAGS", "regions.STRIDE"):
            await rig.try_write(path, 0xFFFFFFFF)
        rig.axil.put_write(rig.map.address("handles.COMMIT"), 1)
        rig.axil.put_read(0)
        await rig.cycles(rng.randint(1, 8))
    cover("register_bank.reset_in_traffic")
