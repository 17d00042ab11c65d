# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank: the bus, addresses, bits that are written to be cleared,
interrupts, answers."""

import cocotb

from hub_rtl.contract.records import types_of
from hub_rtl.contract.registers import IRQ_SOURCES
from sim.bench.streams import bus_pulse, bus_write
from sim.golden.register_bank import OKAY, SLVERR
from sim.quality.coverage import cover

from .geometry import BREAK, good_geometry, stage_geometry
from .rig import QUIET, SWEEP, Setup

ACCESS_CYCLES = 5  # from the address to the answer of an access that waits for no other
TURN_CYCLES = 4  # from one to the next while reads and writes wait
RULES = ("row_bytes", "stride", "base", "capacity", "rows")  # that a geometry can break all at once


@cocotb.test()
async def bus_in_turn(dut):
    """Reads and writes wait all the time: served by turns, each answered as if it were alone."""
    s = Setup(dut, "turns")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    fields = [
        address for path, address, register in s.map if not register.order and not register.external
    ]
    pages = sorted({address >> 12 for address in fields})
    for again in range(6):
        written = s.rng.sample(pages, len(pages) // 2)
        writes = [
            (
                s.rng.choice([address for address in fields if address >> 12 in written]),
                s.rng.getrandbits(32),
                0xF if not again or s.rng.random() < 0.8 else s.rng.randrange(15),
            )
            for _ in range(20)
        ]
        reads = [
            s.rng.choice([address for address in fields if address >> 12 not in written])
            for _ in range(20)
        ]
        first = s.bench.cycle
        for address, value, strobe in writes:
            s.axil.aw.put({"addr": address})
            s.axil.w.put({"data": value, "strb": strobe})
        s.axil.ar.put(*({"addr": address} for address in reads))
        answers = await s.axil.r.recv_all(len(reads)), await s.axil.b.recv_all(len(writes))
        assert [(one["data"], one["resp"]) for one in answers[0]] == [
            s.model.read(address) for address in reads
        ]
        assert [one["resp"] for one in answers[1]] == [s.model.write(*write) for write in writes]
        if again == 0:
            stamps = sorted(
                [(at, "read") for at in s.axil.r.stamps if at >= first]
                + [(at, "write") for at in s.axil.b.stamps if at >= first]
            )
            assert all(
                one[1] != two[1] and two[0] - one[0] == TURN_CYCLES
                for one, two in zip(stamps, stamps[1:], strict=False)
            ), f"not by turns, or slow: {stamps}"
        for channel in (s.axil.b, s.axil.r):
            channel.set_pause("random" if again % 2 else "cyclic", s.rng)
    for channel in (s.axil.b, s.axil.r):
        channel.set_pause("none")
    await s.bench.cycles(8)
    for path in ("id.MAGIC", "control.TIMEOUT"):
        await s.check(path)
        assert s.axil.r.stamps[-1] - s.axil.ar.stamps[-1] == ACCESS_CYCLES
    await s.write("control.TIMEOUT", 7)
    assert s.axil.b.stamps[-1] - s.axil.aw.stamps[-1] == ACCESS_CYCLES
    await s.check_all()
    cover("register_bank.bus_in_turn")


@cocotb.test()
async def addresses(dut):
    """One bit of an address other than it should be: another register, or none; the two lowest bits
    do not count."""
    s = Setup(dut, "addresses")
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    for path, _, register in s.map:
        if not register.order and not register.external:
            await s.write(path, s.rng.getrandbits(32))
    mapped = {address for _, address, _ in s.map}
    for _, address, register in s.map:
        for bit in s.rng.sample(range(2, 16), 1 if register.external else 3):
            other = address ^ 1 << bit
            await s.check(other | s.rng.randrange(4))
            if other not in mapped:
                assert await s.write(other, s.rng.getrandbits(32)) == SLVERR
        if not register.external:
            await s.check(address | s.rng.randrange(4))
    await s.check_all()
    for page, size in (
        ("handles", s.cfg.handles),
        ("regions", s.cfg.regions),
        ("deps", s.cfg.dep_ranges),
        ("windows", s.cfg.ranks),
    ):
        top = 1 << s.map.register(f"{page}.INDEX").fields[0].width
        for index in range(top):
            await s.write(f"{page}.INDEX", index)
            for order in ("QUERY", "COMMAND") if page == "regions" else ("COMMIT",):
                response = await s.write(f"{page}.{order}", s.rng.choice((1, 2)))
                assert response == (OKAY if index < size else SLVERR)
                await s.bench.cycles(QUIET)
    s.same_effects("handle", "dep", "window")
    assert s.region_commands.items == [
        value for kind, value in s.model.effects if kind == "region_command"
    ]
    cover("register_bank.addresses")


@cocotb.test()
async def bits_cleared(dut):
    """Bits that are written to be cleared: each alone, and no other; one that is being set
    stays."""
    s = Setup(dut, "bits")
    c = types_of(s.cfg)
    await s.bench.reset()
    await s.bench.cycles(SWEEP)
    cleared = [
        (path, field)
        for path, _, register in s.map
        for field in register.fields
        if field.access == "w1c"
    ]
    for again in range(3):
        g = good_geometry(s.cfg, s.rng)
        for rule in RULES:
            BREAK[rule](s.cfg, s.rng, g)
        await stage_geometry(s, 0, g)
        s.model.banks[0, 0] = {"state": 1}
        await s.write("regions.COMMIT", 1, expect=OKAY)
        for port, name in (("event_error", "error"), ("refused", "refusal")):
            await bus_pulse(s.bench, port, 1)
            s.model.raised("control.IRQ_STATUS", name)
        await bus_pulse(
            s.bench,
            "bad",
            {"en": 1, "lane": again % s.cfg.lanes, "header": again, "reason": 9},
            c.first_bad,
        )
        failed = {
            "op": s.rng.randrange(4),
            "region": s.cfg.regions - 1 - again % s.cfg.regions,
            "epoch": s.rng.randrange(16),
        }
        reason = s.rng.randrange(8)
        error = {"en": 1, "command": failed, "reason": reason}
        await bus_pulse(s.bench, "region_error", error, c.command_error)
        await bus_pulse(s.bench, "timed_out", {"en": 1, "region": 0, "bank": 1}, c.bank_strobe)
        for path in ("logs.BAD", "regions.COMMAND_ERROR", "hang.TIMEOUT"):
            s.model.raised(path, "valid")
        for name in ("bad_packet", "command", "timeout"):
            s.model.raised("control.IRQ_STATUS", name)
        s.model.inputs |= {
            "logs.BAD.reason": 9,
            "logs.BAD.lane": again % s.cfg.lanes,
            "logs.BAD_HEADER0.value": again,
            "hang.TIMEOUT.bank": 1,
            "regions.COMMAND_ERROR.reason": reason,
            **{f"regions.COMMAND_ERROR.{name}": failed[name] for name in failed},
        }
        await s.bench.cycles(QUIET)
        await s.check_all()
        for path in {path for path, _ in cleared}:
            await s.write(path, 0)
            await s.check(path)
        for path, field in s.rng.sample(cleared, len(cleared)):
            await s.write(path, 1 << field.low)
            await s.check(path)
        await s.check_all()
    for port, name in (("event_error", "error"), ("refused", "refusal")):
        getattr(dut, port).value = 1
        await s.write("control.IRQ_STATUS", 0xFFFFFFFF)
        getattr(dut, port).value = 0
        s.model.raised("control.IRQ_STATUS", name)
        await s.check("control.IRQ_STATUS")
    cover("register_bank.bits_cleared")


@cocotb.test()
async def interrupts(dut):
    """The line is 1 exactly while an enabled source is, whatever others are; answers of commands
    are shown as they come."""
    s = Setup(dut, "interrupts")
    c = types_of(s.cfg)
    await s.bench.reset()
    status = s.map.address("control.IRQ_STATUS")
    pulses = {
        "error": ("event_error", 1, None),
        "refusal": ("refused", 1, None),
        "command": ("region_error", {"en": 1}, c.command_error),
        "bad_packet": ("bad", {"en": 1}, c.first_bad),
        "timeout": ("timed_out", {"en": 1}, c.bank_strobe),
    }
    for _ in range(40):
        level = s.rng.randrange(2)
        dut.event_valid.value = level
        name = s.rng.choice(list(pulses))
        port, value, shape = pulses[name]
        bus_write(dut, port, value, shape)
        await s.bench.cycles(1)
        getattr(dut, port).value = 0
        await s.bench.cycles(QUIET if name == "timeout" else 1)
        raised = await s.axil.read(status)
        assert raised & 1 == level and raised >> list(IRQ_SOURCES).index(name) & 1
        for enable in (s.rng.getrandbits(7), 1 << s.rng.randrange(7)):
            await s.axil.write(s.map.address("control.IRQ_ENABLE"), enable)
            await s.bench.cycles(2)
            assert int(dut.irq.value) == bool(raised & enable), (
                f"irq with {raised:#x} raised, {enable:#x} enabled"
            )
        await s.axil.write(status, s.rng.getrandbits(7))
    for status in range(16):
        await s.write("control.COMMAND", s.rng.getrandbits(12), expect=OKAY)
        dut.i_command_response__payload.value = s.rng.getrandbits(4 + s.cfg.tag_width)
        await s.check("control.ANSWER")
        assert await s.write("control.COMMAND", 0) == SLVERR
        dut.i_command_response__payload.value = status << s.cfg.tag_width
        await bus_pulse(s.bench, "i_command_response__valid", 1)
        s.model.answered(status)
        dut.i_command_response__payload.value = s.rng.getrandbits(4 + s.cfg.tag_width)
        await s.check("control.ANSWER")
        await s.check("control.STATUS")
    cover("register_bank.interrupts")
