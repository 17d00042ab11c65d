# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank against its golden model."""

import cocotb

from hub_rtl.contract.records import LOG_ENTRY, types_of
from hub_rtl.contract.registers import COUNTERS, GEOMETRY_RULES, IRQ_SOURCES
from sim.bench.streams import GRID, Codec, bus_pulse, bus_write
from sim.golden.register_bank import OKAY, SLVERR, CsrModel
from sim.quality.coverage import cover

from .geometry import BREAK, good_geometry, stage_geometry
from .rig import QUIET, SWEEP, Setup


@cocotb.test()
@cocotb.parametrize(grid=GRID[::2])
async def random_access(dut, grid):
    """Random reads and writes over mapped and unmapped addresses; every answer, every order and
    every value agrees."""
    s = Setup(dut, f"random{grid}")
    for channel, pattern in (
        ("aw", grid[0]),
        ("w", grid[0]),
        ("ar", grid[0]),
        ("b", grid[1]),
        ("r", grid[1]),
    ):
        getattr(s.axil, channel).set_pause(pattern, s.rng)
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    await s.check_all()
    registers = list(s.map)
    slow = {"counters.SNAPSHOT": SWEEP, "counters.CLEAR": SWEEP}
    for _ in range(250):
        path, address, register = s.rng.choice(registers)
        if s.rng.random() < 0.1:
            address = s.rng.randrange(0, 1 << 16)
            page, _, name = next(
                (p for p, a, _ in registers if a == address & ~3), "none.none"
            ).partition(".")
            path = f"{page}.{name}"
        if s.rng.random() < 0.5:
            await s.check(address)
            cover("register_bank.read_unmapped", path == "none.none")
        else:
            strobe = 0xF if s.rng.random() < 0.95 else s.rng.randrange(15)
            response = await s.write(
                address, s.rng.choice((0, s.rng.getrandbits(32), s.rng.getrandbits(5))), strobe
            )
            cover("register_bank.write_unmapped", path == "none.none")
            cover("register_bank.write_partial", strobe != 0xF)
            cover(
                "register_bank.index_out_of_range",
                path.endswith("COMMIT") and response == SLVERR and strobe == 0xF,
            )
            await s.bench.cycles(slow.get(path, QUIET))
        if s.model.command_busy and s.rng.random() < 0.3:
            await s.bench.until(
                lambda: s.commands.count == sum(kind == "command" for kind, _ in s.model.effects)
            )
            status = s.rng.randrange(16)
            s.dut.i_command_response__payload.value = status << s.cfg.tag_width
            await bus_pulse(s.bench, "i_command_response__valid", 1)
            s.model.answered(status)
            await s.bench.cycles(2)
        cover(
            "register_bank.command_while_busy", s.model.command_busy and path == "control.COMMAND"
        )
    await s.check_all()
    s.same_effects("handle", "geometry", "dep", "window", "clear_log")
    assert [{k: v for k, v in item.items() if k != "tag"} for item in s.commands.items] == [
        value for kind, value in s.model.effects if kind == "command"
    ]
    assert s.region_commands.items == [
        value for kind, value in s.model.effects if kind == "region_command"
    ]
    outputs = {
        "rank": "id.RANK",
        "merge_timeout": "control.MERGE_TIMEOUT",
        "age_limit": "control.AGE_LIMIT",
        "timeout": "control.TIMEOUT",
        "max_entries": "peers.MAX_ENTRIES",
    }
    for port, path in outputs.items():
        assert int(getattr(dut, port).value) == s.model.get(path)
    assert int(dut.peer_dead.value) == sum(
        s.model.get(f"peers.DRAIN{n}") << 32 * n for n in range(-(-s.cfg.ranks // 32))
    )


@cocotb.test()
async def geometry(dut):
    """Good geometries are written as staged; one that breaks a rule, or whose region is in use, is
    not, and says why."""
    s = Setup(dut, "geometry")
    await s.bench.reset()
    await s.write("control.IRQ_ENABLE", 1 << list(IRQ_SOURCES).index("geometry"))
    for rule in (
        [None, *BREAK, "busy", "disabled"] * 3 + ["base"] * 40 + ["row_bytes", "stride"] * 10
    ):
        index = s.rng.randrange(s.cfg.regions)
        g = good_geometry(s.cfg, s.rng) | {"index": index}
        if s.cfg.regions > 1:
            g |= {
                "overflow_en": s.rng.randrange(2),
                "overflow": (index + s.rng.randrange(1, s.cfg.regions)) % s.cfg.regions,
            }
        s.model.banks = {(n, bank): {"state": 0} for n in range(s.cfg.regions) for bank in range(2)}
        if rule == "busy":
            s.model.banks[index, s.rng.randrange(2)] = {"state": s.rng.choice((1, 2))}
        elif rule == "disabled":
            g.update(valid=0, stride=0, row_bytes=0)
        elif rule:
            BREAK[rule](s.cfg, s.rng, g)
        before = len(s.model.effects)
        await stage_geometry(s, index, g)
        await s.write("regions.COMMIT", 1, expect=OKAY)
        # At once: the bus waits until the staged fields are no longer needed.
        await s.write("regions.STRIDE", 0)
        await s.check("regions.ERROR")
        errors = [name for name in GEOMETRY_RULES if s.model.get("regions.ERROR", name)]
        wanted = {None: [], "disabled": []}.get(rule, [rule])
        assert set(wanted) <= set(errors) and bool(errors) == bool(wanted), (
            f"{rule}: flagged {errors}"
        )
        assert (len(s.model.effects) == before + 1) == (not wanted)
        for name in errors:
            cover(f"register_bank.geometry_{name}")
        await s.bench.cycles(2)
        assert int(dut.irq.value) == bool(errors)
        await s.write("regions.ERROR", 0xFFFFFFFF)
        await s.write("control.IRQ_STATUS", 0xFFFFFFFF)
        await s.bench.cycles(2)
        assert int(dut.irq.value) == 0
    s.same_effects("geometry")
    # An OPEN that the scoreboard has not taken yet, or not yet shown, also counts as in use.
    s.region_commands.set_pause("stop")
    g = good_geometry(s.cfg, s.rng)
    await stage_geometry(s, 0, g)
    await s.write("regions.COMMAND", 0x300, expect=OKAY)
    response = await s.axil.write_resp(s.map.address("regions.COMMAND"), 0)
    assert response == SLVERR, "a second command while one waits"
    assert await s.axil.read(s.map.address("control.STATUS")) >> 2 & 1
    seen = len(s.seen)
    await s.axil.write(s.map.address("regions.COMMIT"), 1)
    assert await s.axil.read(s.map.address("regions.ERROR")) == 1 and len(s.seen) == seen
    s.region_commands.set_pause("none")
    await s.bench.until(lambda: s.region_commands.count == 1)
    assert s.region_commands.items == [{"op": 0, "epoch": 3, "region": 0}]
    cover("register_bank.commit_behind_command")


@cocotb.test()
async def views(dut):
    """Status of regions, logs, HANG page, interrupt sources: software reads what the blocks
    show."""
    s = Setup(dut, "views")
    cfg, rng = s.cfg, s.rng
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    c = types_of(cfg)
    for _ in range(10):
        where = rng.randrange(cfg.regions), rng.randrange(2)
        s.model.banks[where] = {
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
        await s.write("regions.INDEX", where[0])
        await s.write("regions.QUERY", where[1], expect=OKAY)
        await s.bench.cycles(QUIET)
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
            await s.check(f"regions.{name}")
        # A timeout keeps what was missing then.
        await bus_pulse(
            s.bench, "timed_out", {"en": 1, "region": where[0], "bank": where[1]}, c.bank_strobe
        )
        await s.bench.cycles(QUIET)
        s.model.raised("hang.TIMEOUT", "valid")
        s.model.raised("control.IRQ_STATUS", "timeout")
        s.model.inputs |= {
            "hang.TIMEOUT.bank": where[1],
            "hang.TIMEOUT.region": where[0],
            "hang.TIMEOUT.epoch": s.model.banks[where]["epoch"],
            "hang.TIMEOUT_MISSING0.value": s.model.banks[where]["missing"],
        }
        await s.check("hang.TIMEOUT")
        await s.check("hang.TIMEOUT_MISSING0")
    view = {
        "oldest": {
            "valid": 1,
            "plain": 0,
            "rank": cfg.ranks - 1,
            "region": cfg.regions - 1,
            "epoch": 9,
            "rowid": 0xABCDEF,
            "age": 77,
        },
        "waiting": {"valid": 1, "cause": 3, "region": 5, "rowid": 0x123456},
        "outstanding": 17,
        "no_credit": 1,
        "no_ctl_credit": 2,
    }
    bus_write(dut, "view", view, c.view)
    for name in ("valid", "plain", "epoch", "rank", "region"):
        s.model.inputs[f"hang.OLDEST.{name}"] = view["oldest"][name]
    for name in ("valid", "cause", "region"):
        s.model.inputs[f"hang.WAITING.{name}"] = view["waiting"][name]
    s.model.inputs |= {
        "hang.OLDEST_ROWID.value": 0xABCDEF,
        "hang.OLDEST_AGE.value": 77,
        "hang.WAITING_ROWID.value": 0x123456,
        "hang.OUTSTANDING.value": 17,
        "hang.NO_CREDIT0.value": 1,
        "hang.NO_CTL_CREDIT0.value": 2,
    }
    await s.write("hang.SLICE", cfg.slices - 1)
    assert int(dut.slice.value) == cfg.slices - 1
    entry = {
        "reason": 6,
        "side": 1,
        "remote": 0,
        "plain": 0,
        "owner": 3,
        "epoch": 12,
        "number": 700,
        "rowid": 99,
        "rank": 2,
    }
    bus_write(dut, "log_entry", entry, LOG_ENTRY)
    for name in ("reason", "side", "remote", "plain", "owner", "epoch", "number"):
        s.model.inputs[f"logs.ENTRY.{name}"] = entry[name]
    s.model.inputs |= {
        "logs.ENTRY_ROW.rowid": 99,
        "logs.ENTRY_ROW.rank": 2,
        "logs.COUNT.value": 1,
        "logs.LOST.value": 1 << 31,
    }
    dut.log_count.value, dut.log_lost.value = 1, 1 << 31
    # Two bad packets: the first is kept.
    for reason, header in ((10, 0x0123456789ABCDEF_FEDCBA9876543210), (9, 5)):
        await bus_pulse(
            s.bench,
            "bad",
            {"en": 1, "lane": cfg.lanes - 1, "header": header, "reason": reason},
            c.first_bad,
        )
    s.model.raised("logs.BAD", "valid")
    s.model.raised("control.IRQ_STATUS", "bad_packet")
    s.model.inputs |= {"logs.BAD.reason": 10, "logs.BAD.lane": cfg.lanes - 1}
    for n in range(4):
        s.model.inputs[f"logs.BAD_HEADER{n}.value"] = (
            0x0123456789ABCDEF_FEDCBA9876543210 >> 32 * n & 0xFFFFFFFF
        )
    for n in range(2):  # two failing commands: the first is kept
        failed = {"en": 1, "command": {"op": 1 + n, "region": 0, "epoch": 4 + n}, "reason": 5 - n}
        await bus_pulse(s.bench, "region_error", failed, c.command_error)
    s.model.raised("regions.COMMAND_ERROR", "valid")
    s.model.raised("control.IRQ_STATUS", "command")
    s.model.inputs |= {
        "regions.COMMAND_ERROR.op": 1,
        "regions.COMMAND_ERROR.epoch": 4,
        "regions.COMMAND_ERROR.region": 0,
        "regions.COMMAND_ERROR.reason": 5,
    }
    for port, name in (("event_error", "error"), ("refused", "refusal")):
        await bus_pulse(s.bench, port, 1)
        s.model.raised("control.IRQ_STATUS", name)
    for port in ("cleared", "purging", "in_flight", "range_busy", "event_valid"):
        getattr(dut, port).value = 1
        s.model.inputs[
            "control.IRQ_STATUS.event" if port == "event_valid" else f"control.STATUS.{port}"
        ] = 1
    await s.bench.cycles(2)
    await s.check_all()
    # Each source alone raises the line, and only when enabled.
    for bit, name in enumerate(IRQ_SOURCES):
        value = (await s.axil.read(s.map.address("control.IRQ_STATUS"))) >> bit & 1
        await s.write("control.IRQ_ENABLE", 1 << bit)
        await s.bench.cycles(2)
        assert int(dut.irq.value) == value, name
        cover(f"register_bank.irq_{name}", value == 1)
    await s.write("control.IRQ_ENABLE", 0)
    await s.bench.cycles(2)
    assert int(dut.irq.value) == 0
    # Clearing: w1c bits go, the level stays.
    await s.write("control.IRQ_STATUS", 0xFFFFFFFF)
    await s.check("control.IRQ_STATUS")


@cocotb.test()
async def views_change(dut):
    """What the blocks show is read as it is, whatever it is."""
    s = Setup(dut, "change")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    shape = types_of(s.cfg).view
    codec, log = Codec(shape), Codec(LOG_ENTRY)
    for _ in range(16):
        view, entry = (
            codec.unpack(s.rng.getrandbits(codec.width)),
            log.unpack(s.rng.getrandbits(log.width)),
        )
        count, lost = s.rng.randint(0, s.cfg.log_depth), s.rng.getrandbits(32)
        bus_write(dut, "view", view, shape)
        bus_write(dut, "log_entry", entry, LOG_ENTRY)
        dut.log_count.value, dut.log_lost.value = count, lost
        for kind in ("oldest", "waiting"):
            for name in (
                ("valid", "plain", "epoch", "rank", "region")
                if kind == "oldest"
                else ("valid", "cause", "region")
            ):
                s.model.inputs[f"hang.{kind.upper()}.{name}"] = view[kind][name]
            s.model.inputs[f"hang.{kind.upper()}_ROWID.value"] = view[kind]["rowid"]
        for name in ("reason", "side", "remote", "plain", "owner", "epoch", "number"):
            s.model.inputs[f"logs.ENTRY.{name}"] = entry[name]
        s.model.inputs |= {
            "hang.OLDEST_AGE.value": view["oldest"]["age"],
            "hang.OUTSTANDING.value": view["outstanding"],
            "hang.NO_CREDIT0.value": view["no_credit"],
            "hang.NO_CTL_CREDIT0.value": view["no_ctl_credit"],
            "logs.ENTRY_ROW.rowid": entry["rowid"],
            "logs.ENTRY_ROW.rank": entry["rank"],
            "logs.COUNT.value": count,
            "logs.LOST.value": lost,
        }
        header, reason, lane = (
            s.rng.getrandbits(128),
            s.rng.choice((9, 10)),
            s.rng.randrange(s.cfg.lanes),
        )
        await s.write("logs.BAD", 0xFFFFFFFF)
        await bus_pulse(
            s.bench,
            "bad",
            {"en": 1, "lane": lane, "header": header, "reason": reason},
            types_of(s.cfg).first_bad,
        )
        s.model.raised("logs.BAD", "valid")
        s.model.inputs |= {"logs.BAD.reason": reason, "logs.BAD.lane": lane}
        s.model.inputs |= {
            f"logs.BAD_HEADER{n}.value": header >> 32 * n & 0xFFFFFFFF for n in range(4)
        }
        await s.bench.cycles(2)
        for path, _, register in s.map:
            if path.startswith(("hang.", "logs.")) and not register.external:
                await s.check(path)


@cocotb.test()
async def every_bit(dut):
    """Fields of tables and limits are written with all kinds of values, read back, committed, and
    handles fetched again."""
    s = Setup(dut, "bits")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    sizes = {
        "handles": s.cfg.handles,
        "windows": s.cfg.ranks,
        "deps": s.cfg.dep_ranges,
        "control": 0,
        "peers": 0,
    }
    orders = ("INDEX", "COMMIT", "FETCH", "COMMAND")
    for _ in range(10):
        for page, size in sizes.items():
            fields = [
                path
                for path, _, register in s.map
                if path.startswith(page + ".")
                and not register.external
                and path.partition(".")[2] not in orders
            ]
            for path in fields:
                await s.write(path, s.rng.getrandbits(32))
                await s.check(path)
            if size:
                await s.write(f"{page}.INDEX", s.rng.randrange(size))
                await s.write(f"{page}.COMMIT", 1, expect=OKAY)
                await s.bench.cycles(QUIET)
            if page == "handles":
                await s.write("handles.FETCH", 1, expect=OKAY)
                await s.bench.cycles(QUIET)
                for path in fields:
                    await s.check(path)
    s.same_effects("handle", "dep", "window")


@cocotb.test()
async def counters(dut):
    """No increment is lost at the highest rate; snapshot, freeze and clear do what they say."""
    s = Setup(dut, "counters")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    layout = types_of(s.cfg).counts
    most = {name: (1 << field.width) - 1 for name, field in layout}
    totals = dict.fromkeys(COUNTERS, 0)

    async def add(cycles, pick, counted=True):
        for _ in range(cycles):
            values = {name: pick(most[name]) for name in COUNTERS}
            bus_write(dut, "counts", values, layout)
            await s.bench.cycles(1)
            if counted:
                for name, value in values.items():
                    totals[name] = (totals[name] + value) % s.counter_limit
        dut.counts.value = 0

    async def compare():
        await s.write("counters.SNAPSHOT", 1, expect=OKAY)
        s.model.snapshot = dict(totals)
        await s.bench.cycles(SWEEP)
        for name in COUNTERS:
            await s.check(f"counters.{name.upper()}_LO")
            await s.check(f"counters.{name.upper()}_HI")

    await compare()
    await add(3 * len(COUNTERS), lambda limit: limit)
    cover("register_bank.counters_highest_rate")
    await compare()
    await add(60, lambda limit: s.rng.randint(0, limit))
    await compare()
    await s.write("counters.CONTROL", 1)
    await add(20, lambda limit: limit, counted=False)
    await s.write("counters.CONTROL", 0)
    await compare()
    # Busy: a second order is refused until the sweep is over.
    assert await s.axil.write_resp(s.map.address("counters.CLEAR"), 1) == OKAY
    assert await s.axil.write_resp(s.map.address("counters.SNAPSHOT"), 1) == SLVERR
    cover("register_bank.counters_busy")
    totals.update(dict.fromkeys(COUNTERS, 0))
    await add(10, lambda limit: s.rng.randint(0, limit))  # while the sweep runs
    await s.bench.cycles(SWEEP)
    await compare()


@cocotb.test()
async def not_cleared(dut):
    """Until the tables are cleared, and while a dependency range is being cleared, orders that
    would be lost are refused."""
    s = Setup(dut, "clear")
    await s.bench.reset()
    dut.cleared.value = 0
    for path in (
        "control.COMMAND",
        "handles.COMMIT",
        "handles.FETCH",
        "regions.COMMIT",
        "regions.COMMAND",
        "regions.QUERY",
        "deps.COMMIT",
        "windows.COMMIT",
    ):
        assert await s.axil.write_resp(s.map.address(path), 0) == SLVERR, path
    dut.cleared.value, dut.range_busy.value = 1, 1
    assert await s.axil.write_resp(s.map.address("deps.COMMIT"), 0) == SLVERR
    dut.range_busy.value = 0
    assert await s.axil.write_resp(s.map.address("deps.COMMIT"), 0) == OKAY
    await s.bench.cycles(QUIET)
    assert [kind for kind, _ in s.seen] == ["dep"]
    cover("register_bank.order_before_cleared")


@cocotb.test()
async def rank_stays(dut):
    """The own rank is one of the system's, and stays once a store is held or a flit has moved, be
    it for one cycle only; until the next reset."""
    s = Setup(dut, "rank")
    counts = Codec(types_of(s.cfg).counts)
    for port, value in (
        ("in_flight", 1),
        *(("counts", counts.pack({name: 1})) for name in ("stores", "tx_busy", "rx_busy")),
    ):
        await s.bench.reset()
        s.model.reset()
        for rank in (s.cfg.ranks - 1, s.cfg.ranks, 1 << s.cfg.rank_width, 1 << 31, 0):
            await s.write("id.RANK", rank)
            await s.check("id.RANK")
        getattr(dut, port).value = value
        await s.bench.cycles(1)
        getattr(dut, port).value = 0
        s.model.used = True
        await s.write("id.RANK", s.cfg.ranks - 1, expect=SLVERR)
        await s.check("id.RANK")
    cover("register_bank.rank_stays")


@cocotb.test()
async def reset_in_traffic(dut):
    """A reset in the middle of accesses and orders: afterwards every register is as after
    power-up."""
    s = Setup(dut, "reset")
    for _ in range(4):
        await s.bench.reset()
        s.model = CsrModel(s.cfg, s.map.as_dict())
        s.model.inputs["control.STATUS.cleared"] = 1
        await s.bench.cycles(SWEEP)
        await s.check_all()
        for path in ("regions.COMMIT", "control.COMMAND", "regions.COMMAND", "regions.QUERY"):
            await s.axil.write_resp(s.map.address(path), s.rng.getrandbits(32))
        for path in ("id.RANK", "control.TIMEOUT", "handles.FLAGS", "regions.STRIDE"):
            await s.axil.write_resp(s.map.address(path), 0xFFFFFFFF)
        s.axil.aw.put({"addr": s.map.address("handles.COMMIT")})
        s.axil.w.put({"data": 1, "strb": 0xF})
        s.axil.ar.put({"addr": 0})
        await s.bench.cycles(s.rng.randint(1, 8))
    cover("register_bank.reset_in_traffic")
