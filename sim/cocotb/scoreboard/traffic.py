# SPDX-License-Identifier: Apache-2.0
"""Random epochs for the scoreboard's bench: rows cut into acknowledgements, refusals, news, and
faults."""

from dataclasses import dataclass, field

import cocotb

from hub_rtl.contract.packets import RegionState
from sim.quality.coverage import cover

from .rig import entry

FAULTS = ("memory", "poison", "twice", "missing", "overlap", "abort", "ragged", "short", "over")
WORDS = FAULTS[5:]  # what a close may say


@dataclass
class Plan:
    """One epoch of one region."""

    region: int
    epoch: int
    rows: int = 0
    acks: list = field(default_factory=list)  # arguments of `put_ack`
    refusals: list = field(default_factory=list)
    news: list = field(default_factory=list)
    fault: str = None


async def setup_regions(rig, **fixed):
    """Gives every region its own groups and a random geometry that fits them."""
    cfg, rng = rig.cfg, rig.rng
    share = max(1, cfg.groups // cfg.regions)
    for region in range(cfg.regions):
        log2_tile = rng.randrange(min(3, cfg.capacity.bit_length()))
        fields = {
            "row_bytes": 16 * rng.randint(1, min(cfg.max_row_bytes // 16, 24)),
            "log2_tile": log2_tile,
            "group_base": region * share,
            "capacity": min(cfg.capacity, rng.randint(1, share << log2_tile)),
            "expected": rng.randint(1, cfg.ranks),
            "flag_en": rng.randrange(2),
            "flag_base": rng.getrandbits(44) << 3,
        }
        await rig.set_geometry(region, **fields | fixed)


def cut(rig, total):
    """Sizes of the packets of a row."""
    rng, packet = rig.rng, rig.cfg.packet_bytes
    mode = rng.choice(("full", "full", "random", "bytes"))
    sizes = []
    while total:
        size = packet
        if mode == "random":
            size = 16 * rng.randint(1, packet // 16)
        elif mode == "bytes":
            size = rng.randint(1, packet)
        sizes.append(min(total, size))
        total -= sizes[-1]
    return sizes


def row_acks(rig, geometry, region, bank, slot, place=None):
    """Acknowledgements of one row in ``slot`` of ``place`` (default: of the region)."""
    return [
        {
            "region": region,
            "place": region if place is None else place,
            "bank": bank,
            "group": geometry["group_base"] + (slot >> geometry["log2_tile"]),
            "dep": rig.rng.randrange(rig.cfg.dep_ranges),
            "bytes": size,
        }
        for size in cut(rig, geometry["row_bytes"])
    ]


def noise(rig, **fields):
    """A refusal with all other fields random."""
    codec = rig.i_refused.port.codec
    word = codec.unpack(rig.rng.getrandbits(codec.width))
    least = {
        "reason": rig.rng.randrange(1, 16),
        "bytes": rig.rng.randrange(rig.cfg.packet_bytes + 1),
    }
    return word | least | fields


def plan_epoch(rig, region, epoch, fault=None, rows=None):
    """A random epoch: rows of random producers, some refused rows, tells with exact totals and
    closes, in one entry or two, perhaps one fault."""
    rng, geometry = rig.rng, rig.geometry[region]
    capacity, row_bytes = geometry["capacity"], geometry["row_bytes"]
    plan = Plan(region, epoch, fault=fault)
    plan.rows = rng.choice((0, capacity, rng.randint(0, capacity))) if rows is None else rows
    if fault and not plan.rows:
        plan.rows = 1
    sent = dict.fromkeys(rng.sample(range(rig.cfg.ranks), geometry["expected"]), 0)
    for slot in range(plan.rows):
        plan.acks += row_acks(rig, geometry, region, epoch & 1, slot)
        sent[rng.choice([*sent])] += row_bytes
    for _ in range(rng.choice((0, 0, 1, 3))):
        source = rng.choice([*sent])
        for size in cut(rig, row_bytes):
            plan.refusals.append(
                noise(rig, known=1, plain=0, region=region, epoch=epoch, bytes=size)
            )
            sent[source] += size
    plan.refusals += [
        noise(rig, **rng.choice(({"known": 0}, {"plain": 1}))) for _ in range(rng.randrange(4))
    ]
    cover("scoreboard.rows.none", not plan.rows)
    cover("scoreboard.rows.full", plan.rows == capacity)
    cover("scoreboard.rows.partial", plan.rows % (1 << geometry["log2_tile"]) > 0)
    cover("scoreboard.refused", bool(plan.refusals))
    _inject(rig, plan, sent)
    for part in (plan.acks, plan.refusals, plan.news):
        rng.shuffle(part)
    if fault == "twice":
        plan.acks.insert(0, plan.acks[-1])
    return plan


def _inject(rig, plan, sent):
    rng, fault = rig.rng, plan.fault
    cover(f"scoreboard.fault.{fault}", fault is not None)
    at = rng.randrange(len(plan.acks)) if plan.acks else 0
    if fault == "memory":
        plan.acks[at]["ok"] = 0
    elif fault == "poison":
        plan.acks[at]["poison"] = 1
    elif fault == "missing":
        lost = plan.acks.pop(at)["bytes"]
        source = max(sent, key=sent.get)
        sent[source] -= lost - lost % 16
        plan.refusals.append(
            noise(rig, known=1, plain=0, region=plan.region, epoch=plan.epoch, bytes=lost % 16)
        )
    culprit = rng.choice([*sent])
    for source, total in sent.items():
        word = {fault: 1} if fault in WORDS and source == culprit else {}
        about = plan.region, plan.epoch, source
        # Only what closes in the entry in which it tells may be ragged.
        apart = fault != "ragged" and rng.random() < 0.6
        cover("scoreboard.told_apart", apart)
        if apart:
            plan.news.append(entry(*about, total, tell=1))
        plan.news.append(entry(*about, 0 if apart else total, tell=int(not apart), close=1, **word))


async def feed(rig, plan, part=1.0):
    """Puts a plan's items into the sources, all kinds mixed; with ``part`` < 1 the rest never
    comes."""
    rng = rig.rng
    items = [("ack", item) for item in plan.acks] + [("refusal", item) for item in plan.refusals]
    if plan.fault != "twice":
        items += [("news", item) for item in plan.news]
        rng.shuffle(items)
    for kind, item in items[: int(len(items) * part)]:
        if kind == "ack":
            rig.put_ack(**item)
        elif kind == "refusal":
            rig.i_refused.put(item)
        else:
            rig.i_news.put(item)
        if rng.random() < 0.2:
            await rig.cycles(rng.randint(1, 8))
    if plan.fault == "twice":  # the byte too many must not come after the verdict
        await rig.drained()
        rig.i_news.put(*plan.news)


async def open_plan(rig, plan):
    """Opens a plan's epoch, with its rows placed."""
    rig.model.rows[plan.region, plan.epoch & 1] = plan.rows
    await rig.open(plan.region, plan.epoch)


async def begin(rig, region, epoch, rows=None, part=1.0):
    """Opens a random epoch and feeds it."""
    plan = plan_epoch(rig, region, epoch, rows=rows)
    await open_plan(rig, plan)
    await feed(rig, plan, part)


async def begin_full(rig, region, epoch):
    """An epoch with as many rows as the region can have."""
    await begin(rig, region, epoch, rig.geometry[region]["capacity"])


async def live(rig, region, bank, epochs, faults=(), early=False):
    """Software's life with one bank: OPEN, traffic, wait for the last event, look at the counters,
    RELEASE; and again."""
    rng, number = rig.rng, bank
    for _ in range(epochs):
        fault = rng.choice(faults) if faults and rng.random() < 0.6 else None
        plan = plan_epoch(rig, region, number, fault)
        if early and fault != "twice" and rng.random() < 0.7:
            count = rng.randint(1, len(plan.news)) if plan.news else 0
            rig.i_news.put(*plan.news[:count])
            rig.i_refused.put(*plan.refusals)
            plan.news, plan.refusals = plan.news[count:], []
            cover("scoreboard.early.close")
            if rng.random() < 0.5:
                await rig.drained()
        await open_plan(rig, plan)
        if fault == "overlap":  # while bytes are missing: it must not race with the verdict
            await rig.pulse_overlap(region, bank)
        await feed(rig, plan)
        final = await rig.final(region, bank)
        await rig.drained()
        if rig.model.banks[region, bank].state == RegionState.DONE:
            await rig.check_status(region, bank)
        cover("scoreboard.event.refused", bool(final["refused"]))
        cover("scoreboard.epoch.wrap", number + 2 > 15)
        await rig.release(region, number)
        number = (number + 2) % 16


async def lives(rig, keys, epochs, **more):
    """These banks live at the same time."""
    tasks = [cocotb.start_soon(live(rig, *key, epochs, **more)) for key in keys]
    for task in tasks:
        await task


async def all_banks(rig, epochs, **more):
    """Every bank of every region lives at the same time."""
    await lives(rig, rig.model.banks, epochs, **more)


async def one_region(rig, **fields):
    """Region 0 with two-row tiles and one producer."""
    few = {
        "row_bytes": min(32, rig.cfg.max_row_bytes),
        "log2_tile": 1 if rig.cfg.capacity > 1 else 0,
        "capacity": min(4, rig.cfg.capacity),
    }
    await rig.set_geometry(0, **few | fields)
