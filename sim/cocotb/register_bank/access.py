# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the register bank: the bus, addresses, bits that are written to be cleared,
interrupts, answers."""

from hub_rtl.contract.registers import IRQ_SOURCES
from sim.golden.register_bank import OKAY, SLVERR
from sim.quality.coverage import cover

from .geometry import BREAK, good_geometry, stage_geometry
from .rig import QUIET, BankRig

ACCESS_CYCLES = 5  # from the address to the answer of an access that waits for no other
TURN_CYCLES = 4  # from one to the next while reads and writes wait
RULES = ("row_bytes", "stride", "base", "capacity", "rows")  # that a geometry can break all at once


@BankRig.test()
async def bus_in_turn(rig, cfg, rng):
    """Reads and writes wait all the time: served by turns, each answered as if it were alone."""
    fields = [
        address
        for path, address, register in rig.map
        if not register.order and not register.external
    ]
    pages = sorted({address >> 12 for address in fields})
    for again in range(6):
        written = rng.sample(pages, len(pages) // 2)
        writes = [
            (
                rng.choice([address for address in fields if address >> 12 in written]),
                rng.getrandbits(32),
                0xF if not again or rng.random() < 0.8 else rng.randrange(15),
            )
            for _ in range(20)
        ]
        reads = [
            rng.choice([address for address in fields if address >> 12 not in written])
            for _ in range(20)
        ]
        first = rig.cycle
        for write in writes:
            rig.axil.put_write(*write)
        for address in reads:
            rig.axil.put_read(address)
        answers = await rig.axil.r.recv_all(len(reads)), await rig.axil.b.recv_all(len(writes))
        assert [(one["data"], one["resp"]) for one in answers[0]] == [
            rig.model.read(address) for address in reads
        ]
        assert [one["resp"] for one in answers[1]] == [rig.model.write(*write) for write in writes]
        if again == 0:
            stamps = sorted(
                [(at, "read") for at in rig.axil.r.stamps if at >= first]
                + [(at, "write") for at in rig.axil.b.stamps if at >= first]
            )
            assert all(
                one[1] != two[1] and two[0] - one[0] == TURN_CYCLES
                for one, two in zip(stamps, stamps[1:], strict=False)
            ), f"not by turns, or slow: {stamps}"
        rig.pause("random" if again % 2 else "cyclic", rig.axil.b, rig.axil.r)
    rig.pause(None, rig.axil.b, rig.axil.r)
    await rig.cycles(8)
    for path in ("id.MAGIC", "control.TIMEOUT"):
        await rig.check(path)
        assert rig.axil.r.stamps[-1] - rig.axil.ar.stamps[-1] == ACCESS_CYCLES
    await rig.write("control.TIMEOUT", 7)
    assert rig.axil.b.stamps[-1] - rig.axil.aw.stamps[-1] == ACCESS_CYCLES
    await rig.check_all()
    cover("register_bank.bus_in_turn")


@BankRig.test()
async def addresses(rig, cfg, rng):
    """One bit of an address other than it should be: another register, or none; the two lowest bits
    do not count."""
    for path, _, register in rig.map:
        if not register.order and not register.external:
            await rig.write(path, rng.getrandbits(32))
    mapped = {address for _, address, _ in rig.map}
    for _, address, register in rig.map:
        for bit in rng.sample(range(2, 16), 1 if register.external else 3):
            other = address ^ 1 << bit
            await rig.check(other | rng.randrange(4))
            if other not in mapped:
                assert await rig.write(other, rng.getrandbits(32)) == SLVERR
        if not register.external:
            await rig.check(address | rng.randrange(4))
    await rig.check_all()
    for page, size in (
        ("handles", cfg.handles),
        ("regions", cfg.regions),
        ("deps", cfg.dep_ranges),
        ("windows", cfg.ranks),
    ):
        top = 1 << rig.map.register(f"{page}.INDEX").fields[0].width
        for index in range(top):
            await rig.write(f"{page}.INDEX", index)
            for order in ("QUERY", "COMMAND") if page == "regions" else ("COMMIT",):
                response = await rig.write(f"{page}.{order}", rng.choice((1, 2)))
                assert response == (OKAY if index < size else SLVERR)
                await rig.cycles(QUIET)
    rig.same_effects("handle", "dep", "window")
    assert rig.o_region_command.items == rig.effects("region_command")
    cover("register_bank.addresses")


@BankRig.test()
async def bits_cleared(rig, cfg, rng):
    """Bits that are written to be cleared: each alone, and no other; one that is being set
    stays."""
    cleared = [
        (path, field)
        for path, _, register in rig.map
        for field in register.fields
        if field.access == "w1c"
    ]
    for again in range(3):
        g = good_geometry(cfg, rng)
        for rule in RULES:
            BREAK[rule](cfg, rng, g)
        await stage_geometry(rig, 0, g)
        rig.model.banks[0, 0] = {"state": 1}
        await rig.order("regions.COMMIT")
        await rig.tell("event_error", "error")
        await rig.tell("refused", "refusal")
        bad = again % cfg.lanes, again, 9
        await rig.tell_bad(*bad)
        rig.inputs_bad(*bad)
        failed = {
            "op": rng.randrange(4),
            "region": cfg.regions - 1 - again % cfg.regions,
            "epoch": rng.randrange(16),
        }
        reason = rng.randrange(8)
        await rig.tell(
            "region_error", "command", "regions.COMMAND_ERROR", command=failed, reason=reason
        )
        rig.inputs("regions.COMMAND_ERROR", reason=reason, **failed)
        await rig.tell_timeout(0, 1)
        rig.inputs("hang.TIMEOUT", bank=1)
        await rig.cycles(QUIET)
        await rig.check_all()
        for path in {path for path, _ in cleared}:
            await rig.write(path, 0)
            await rig.check(path)
        for path, field in rng.sample(cleared, len(cleared)):
            await rig.write(path, 1 << field.low)
            await rig.check(path)
        await rig.check_all()
    for port, name in (("event_error", "error"), ("refused", "refusal")):
        rig.set(port, 1)
        await rig.write("control.IRQ_STATUS", 0xFFFFFFFF)
        rig.set(port, 0)
        rig.model.raised("control.IRQ_STATUS", name)
        await rig.check("control.IRQ_STATUS")
    cover("register_bank.bits_cleared")


@BankRig.test()
async def interrupts(rig, cfg, rng):
    """The line is 1 exactly while an enabled source is, whatever others are; answers of commands
    are shown as they come."""
    pulses = {
        "error": "event_error",
        "refusal": "refused",
        "command": "region_error",
        "bad_packet": "bad",
        "timeout": "timed_out",
    }
    for _ in range(40):
        level = rng.randrange(2)
        rig.set("event_valid", level)
        name = rng.choice(list(pulses))
        await rig.pulse(pulses[name])
        await rig.cycles(QUIET if name == "timeout" else 1)
        raised = await rig.read("control.IRQ_STATUS")
        assert raised & 1 == level and raised >> list(IRQ_SOURCES).index(name) & 1
        for enable in (rng.getrandbits(7), 1 << rng.randrange(7)):
            await rig.try_write("control.IRQ_ENABLE", enable)
            await rig.cycles(2)
            assert rig.get("irq") == bool(raised & enable), (
                f"irq with {raised:#x} raised, {enable:#x} enabled"
            )
        await rig.try_write("control.IRQ_STATUS", rng.getrandbits(7))
    for status in range(16):
        await rig.order("control.COMMAND", rng.getrandbits(12))
        rig.i_command_response.port.write(rng.getrandbits(4 + cfg.tag_width))
        await rig.check("control.ANSWER")
        for order in ("control.COMMAND", "control.ANNOUNCE"):
            assert await rig.write(order, 0) == SLVERR
        await rig.answer(status)
        rig.i_command_response.port.write(rng.getrandbits(4 + cfg.tag_width))
        await rig.check("control.ANSWER")
        await rig.check("control.STATUS")
    cover("register_bank.interrupts")
