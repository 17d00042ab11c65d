# SPDX-License-Identifier: Apache-2.0
"""Random epochs for the scoreboard's bench: rows cut into acknowledgements, refusals, closes, and
faults."""

from dataclasses import dataclass, field

import cocotb

from hub_rtl.contract.packets import RegionOp, RegionState
from sim.quality.coverage import cover

__all__ = [
    "FAULTS",
    "Plan",
    "all_banks",
    "begin",
    "plan_epoch",
    "feed",
    "live",
    "one_region",
    "setup_regions",
]

FAULTS = ("memory", "poison", "twice", "missing", "abort", "ragged", "overlap")


@dataclass
class Plan:
    """One epoch of one region."""

    region: int
    epoch: int
    rows: int = 0
    acks: list = field(default_factory=list)  # (context, ok)
    refusals: list = field(default_factory=list)
    closes: list = field(default_factory=list)
    fault: str = None


async def setup_regions(rig, rng, **fixed):
    """Gives every region its own groups and a random geometry that fits them."""
    cfg = rig.cfg
    share = max(1, cfg.groups // cfg.regions)
    for region in range(cfg.regions):
        log2_tile = rng.randrange(min(3, cfg.capacity.bit_length()))
        capacity = min(cfg.capacity, rng.randint(1, share << log2_tile))
        row_bytes = 16 * rng.randint(1, min(cfg.max_row_bytes // 16, 24))
        await rig.set_geometry(
            region,
            **{
                "row_bytes": row_bytes,
                "log2_tile": log2_tile,
                "group_base": region * share,
                "capacity": capacity,
                "expected": rng.randint(1, cfg.ranks),
                "flag_en": rng.randrange(2),
                "flag_base": rng.getrandbits(44) << 3,
                **fixed,
            },
        )


def cut(rng, total, packet):
    """Sizes of the packets of a row."""
    mode = rng.choice(("full", "full", "random", "bytes"))
    sizes = []
    while total:
        size = min(
            total,
            packet
            if mode == "full"
            else 16 * rng.randint(1, packet // 16)
            if mode == "random"
            else rng.randint(1, packet),
        )
        sizes.append(size)
        total -= size
    return sizes


def row_acks(cfg, rng, geometry, region, bank, slot, place=None):
    """Acknowledgements of one row in ``slot`` of ``place`` (default: of the region)."""
    group = geometry["group_base"] + (slot >> geometry["log2_tile"])
    return [
        (
            {
                "plain": 0,
                "region": region,
                "place": region if place is None else place,
                "bank": bank,
                "group": group,
                "dep": rng.randrange(cfg.dep_ranges),
                "bytes": size,
                "poison": 0,
            },
            1,
        )
        for size in cut(rng, geometry["row_bytes"], cfg.packet_bytes)
    ]


def noise(cfg, rng):
    """A refusal with all fields random."""
    return {
        "known": rng.randrange(2),
        "plain": rng.randrange(2),
        "report": rng.randrange(2),
        "region": rng.getrandbits(11),
        "epoch": rng.randrange(16),
        "rowid": rng.getrandbits(24),
        "src": rng.getrandbits(7),
        "reason": rng.randrange(1, 16),
        "bytes": rng.randrange(cfg.packet_bytes + 1),
    }


def plan_epoch(rig, rng, region, epoch, fault=None, rows=None):
    """A random epoch: rows of random producers, some refused rows, closes with exact totals,
    perhaps one fault."""
    cfg, geometry = rig.cfg, rig.model.geometry[region]
    plan = Plan(region, epoch, fault=fault)
    plan.rows = (
        rng.choice((0, geometry["capacity"], rng.randint(0, geometry["capacity"])))
        if rows is None
        else rows
    )
    if fault and not plan.rows:
        plan.rows = 1
    sources = rng.sample(range(cfg.ranks), geometry["expected"])
    sent = dict.fromkeys(sources, 0)
    for slot in range(plan.rows):
        plan.acks += row_acks(cfg, rng, geometry, region, epoch & 1, slot)
        sent[rng.choice(sources)] += geometry["row_bytes"]
    for _ in range(rng.choice((0, 0, 1, 3))):
        source = rng.choice(sources)
        for size in cut(rng, geometry["row_bytes"], cfg.packet_bytes):
            plan.refusals.append(
                {
                    **noise(cfg, rng),
                    "known": 1,
                    "plain": 0,
                    "region": region,
                    "epoch": epoch,
                    "bytes": size,
                }
            )
            sent[source] += size
    plan.refusals += [
        {**noise(cfg, rng), **rng.choice(({"known": 0}, {"plain": 1}))}
        for _ in range(rng.randrange(4))
    ]
    plan.closes = [
        {"region": region, "epoch": epoch, "src": source, "sent": total}
        for source, total in sent.items()
    ]
    cover("scoreboard.rows.none", not plan.rows)
    cover("scoreboard.rows.full", plan.rows == geometry["capacity"])
    cover("scoreboard.rows.partial", plan.rows % (1 << geometry["log2_tile"]) > 0)
    cover("scoreboard.refused", bool(plan.refusals))
    _inject(plan, rng)
    for part in (plan.acks, plan.refusals, plan.closes):
        rng.shuffle(part)
    if fault == "twice":
        plan.acks.insert(0, plan.acks[-1])
    return plan


def _inject(plan, rng):
    fault = plan.fault
    cover(f"scoreboard.fault.{fault}", fault is not None)
    at = rng.randrange(len(plan.acks)) if plan.acks else 0
    if fault == "memory":
        plan.acks[at] = (plan.acks[at][0], 0)
    elif fault == "poison":
        plan.acks[at] = ({**plan.acks[at][0], "poison": 1}, 1)
    elif fault == "missing":
        lost = plan.acks.pop(at)[0]["bytes"]
        close = max(plan.closes, key=lambda close: close["sent"])
        close["sent"] -= min(lost, close["sent"])
    elif fault in ("abort", "ragged"):
        rng.choice(plan.closes)[fault] = 1


async def feed(rig, rng, plan, part=1.0):
    """Puts a plan's items into the sources, all kinds mixed; with ``part`` < 1 the rest never
    comes."""
    items = [("ack", item) for item in plan.acks] + [("refusal", item) for item in plan.refusals]
    closes = [("close", item) for item in plan.closes]
    if plan.fault == "twice":
        closes_last = closes  # the byte too many must not come after the verdict
    else:
        items, closes_last = items + closes, []
        first = items[:1]
        rng.shuffle(items)
        items = items or first
    for kind, item in items[: int(len(items) * part)]:
        if kind == "ack":
            rig.put_ack(*item)
        elif kind == "refusal":
            rig.refusals.put(item)
        else:
            rig.closes.put(item)
        if rng.random() < 0.2:
            await rig.bench.cycles(rng.randint(1, 8))
    if closes_last:
        await rig.drained()
        rig.closes.put(*(item for _, item in closes_last))


async def begin(rig, rng, plan, part=1.0):
    """Opens a plan's epoch, with its rows placed, and feeds it."""
    rig.model.rows[plan.region, plan.epoch & 1] = plan.rows
    await rig.open(plan.region, plan.epoch)
    await feed(rig, rng, plan, part)


async def live(rig, rng, region, bank, epochs, faults=(), early=False):
    """Software's life with one bank: OPEN, traffic, wait for the last event, look at the counters,
    RELEASE; and again."""
    number = bank
    for _ in range(epochs):
        fault = rng.choice(faults) if faults and rng.random() < 0.6 else None
        plan = plan_epoch(rig, rng, region, number, fault)
        if early and fault != "twice" and rng.random() < 0.7:
            count = rng.randint(1, len(plan.closes)) if plan.closes else 0
            rig.closes.put(*plan.closes[:count])
            rig.refusals.put(*plan.refusals)
            plan.closes, plan.refusals = plan.closes[count:], []
            cover("scoreboard.early.close")
            if rng.random() < 0.5:
                await rig.drained()
        rig.model.rows[region, bank] = plan.rows
        await rig.open(region, number)
        if fault == "overlap":  # while bytes are missing: it must not race with the verdict
            await rig.pulse_overlap(region, bank)
        await feed(rig, rng, plan)
        final = await rig.final(region, bank)
        await rig.drained()
        if rig.model.banks[region, bank].state == RegionState.DONE:
            await rig.check_status(region, bank)
        cover("scoreboard.event.refused", bool(final["refused"]))
        cover("scoreboard.epoch.wrap", number + 2 > 15)
        await rig.give_back(RegionOp.RELEASE, region, number)
        number = (number + 2) % 16


async def all_banks(rig, rng, epochs, **more):
    """Every bank of every region lives at the same time."""
    tasks = [
        cocotb.start_soon(live(rig, rng, region, bank, epochs, **more))
        for region in range(rig.cfg.regions)
        for bank in (0, 1)
    ]
    for task in tasks:
        await task
    await rig.finish()


async def one_region(rig, **fields):
    """Region 0 with two-row tiles and one producer."""
    await rig.set_geometry(
        0,
        **{
            "row_bytes": min(32, rig.cfg.max_row_bytes),
            "log2_tile": 1 if rig.cfg.capacity > 1 else 0,
            "capacity": min(4, rig.cfg.capacity),
            "expected": 1,
            **fields,
        },
    )
