# SPDX-License-Identifier: Apache-2.0
"""Speed figures: link use, merging, latencies, hub against address-centric, rate of the simulation.
``moe-hub bench``.

Everything runs on the generated Verilog of preset ``small``, if not said otherwise; the lines on
merging with a pool of 32 entries, those on a whole layer with eight ranks.
"""

import json
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from amaranth.sim import Simulator

from flow.driver import Handle, Region
from flow.tables import markdown, screen
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import EventKind, PacketType, RegionState
from hub_rtl.slot_allocator.address_table import AddressTable
from sim.workload.asked import asked_routing
from sim.workload.models import model
from sim.workload.traces import fit_skew, generate

from .building import build, hub_verilog
from .fabric import HOP_NS, one_way
from .figures import TIMES, measured
from .layer import plan_layer
from .scenario import Scenario
from .ways import BASELINES, WAYS

__all__ = [
    "SMALL",
    "TABLES",
    "Line",
    "close",
    "measure",
    "one_to_many",
    "row_packets",
    "run_checked",
    "speed_table",
]

MEMORY = 1 << 20
BASE = 0x10000
HEADS = ("figure", "value", "unit", "target", "met")


@dataclass(frozen=True)
class Line:
    """One figure. ``target``: what it must reach, by ``sense`` (``>=``, ``<=``), or None when it
    only informs."""

    name: str
    figure: float
    unit: str
    sense: str = ""
    target: float | None = None

    @property
    def met(self):
        if self.target is None:
            return True
        return self.figure >= self.target if self.sense == ">=" else self.figure <= self.target

    def as_dict(self):
        return {**asdict(self), "met": self.met}


SMALL = preset("small")


def one_to_many(
    cfg, row_bytes, *, producers=(0,), consumers=(1, 2, 3), tile=3, span=4096, **settings
):
    """A scenario in which ``producers`` may send rows to region 0 of each consumer; handle number =
    consumer."""
    s = Scenario(cfg, arena=4 * MEMORY, hidden=[(0, BASE)], mem_spill=(0, BASE), **settings)
    stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
    for rank in consumers:
        s.region(
            rank,
            0,
            Region(
                base=(BASE, BASE),
                stride=stride,
                row_bytes=row_bytes,
                capacity=min(1024, cfg.groups << tile),
                group_base=0,
                log2_tile=tile,
                expected=len(producers),
                row_span=span,
                spill_base=(0, 0),
            ),
        )
    for rank in producers:
        for dest in consumers:
            s.handle(rank, dest, Handle(targets=((dest, 0),), row_bytes=row_bytes))
    s.barrier()
    return s


def close(s, producers, consumers):
    """The producers close all handles; the consumers wait for ALL of their region."""
    for rank in producers:
        s.close_all(rank)
    for rank in consumers:
        s.program(rank).wait_events(EventKind.ALL, 1)


def run_checked(s, cfg, optimise=None):
    """Runs a scenario and checks it; a figure of a wrong run is worth nothing. ``optimise``: see
    :func:`sim.system.system.build`."""
    result = s.run(build(cfg, optimise=optimise))
    differences = s.differences(result)
    if differences:
        result.remove()
        raise AssertionError(f"bench: {differences[0]}")
    return result


def row_packets(result, ranks):
    """ROW packets received by these ranks."""
    packets = np.concatenate([result.log("packets", rank) for rank in ranks])
    return packets[(packets["low"] & np.uint64(15)) == PacketType.ROW]


def _busy(packets):
    """Share of cycles with a flit, from the first to the last packet; a packet's flits are never
    apart."""
    return (
        100
        * float(packets["flits"].sum())
        / float(packets["last"].max() - packets["first"].min() + 1)
    )


def link_use():
    """A producer with full rows for three peers: its link never idles."""
    cfg, rng = SMALL, np.random.default_rng(1)
    s = one_to_many(cfg, 2048)
    for n in range(48):
        s.row(0, 1 + n % 3, n, rng.bytes(2048))
    close(s, (0,), (1, 2, 3))
    result = run_checked(s, cfg)
    busy = _busy(row_packets(result, (1, 2, 3)))
    result.remove()
    return [Line("link busy while rows of 2,048 bytes wait", busy, "%", ">=", 99)]


def rows_back_to_back():
    """1,000 rows of one packet each from three producers: every packet opens a row, the receiver's
    link never idles."""
    cfg, rng = SMALL, np.random.default_rng(2)
    s = one_to_many(cfg, 128, producers=(1, 2, 3), consumers=(0,), tile=4)
    for n in range(1000):
        s.row(1 + n % 3, 0, n, rng.bytes(128))
    close(s, (1, 2, 3), (0,))
    result = run_checked(s, cfg)
    allocs, packets = result.log("allocs", 0), row_packets(result, (0,))
    spacing = np.diff(allocs["cycle"].astype(np.int64))
    busy = _busy(packets)
    result.remove()
    return [
        Line("link busy while 1,000 rows of one packet are opened", busy, "%", ">=", 99),
        Line("cycles from row to row, median", float(np.median(spacing)), "cycles", "<=", 9),
    ]


def rows_in_the_address_table():
    """1,000 new rows of one region, offered to the address table one after the other: cycles that
    it takes for them."""
    cfg = preset("small")
    table = AddressTable(cfg)
    geometry = {"valid": 1, "stride": 128, "row_bytes": 128, "capacity": 1000, "log2_tile": 4}
    slots, took = [], 0

    async def requests(ctx):
        nonlocal took
        await ctx.tick().until(~table.clearing)
        ctx.set(table.geometry_write, {"en": 1, "region": 1, "geometry": geometry})
        ctx.set(
            table.region_update,
            {"en": 1, "region": 1, "bank": 0, "state": RegionState.OPEN, "epoch": 0},
        )
        await ctx.tick()
        ctx.set(table.geometry_write.en, 0)
        ctx.set(table.region_update.en, 0)
        await ctx.tick().repeat(8)
        ctx.set(table.i_request[0].valid, 1)
        for rowid in range(1000):
            ctx.set(table.i_request[0].payload, {"region": 1, "rowid": rowid})
            taken = False
            while not taken:
                *_, taken = await ctx.tick().sample(table.i_request[0].ready)
                took += 1
        ctx.set(table.i_request[0].valid, 0)
        await ctx.tick().repeat(8)

    async def answers(ctx):
        async for *_, en, slot in ctx.tick().sample(table.reply_en, table.reply.slot):
            if en:
                slots.append(slot)

    simulator = Simulator(table)
    simulator.add_clock(1e-6)
    simulator.add_testbench(requests)
    simulator.add_testbench(answers, background=True)
    simulator.run()
    if slots != list(range(1000)):
        raise AssertionError(f"bench: {len(slots)} slots, must be 0 to 999 in order")
    return [Line("1,000 rows of one region in the address table", took, "cycles", "<=", 1000)]


def merging():
    """32-byte stores of 16 rows in turn: wire efficiency with packets of 128 and 256 bytes, and
    when nothing can merge."""
    lines, rng = [], np.random.default_rng(3)
    for packet_bytes, target in ((128, 88.8), (256, 94.0)):
        cfg = SMALL.replace(
            packet_bytes=packet_bytes, pool_depth=32
        )  # room for 16 rows of one peer beside the others' share
        lines.append(
            Line(
                f"wire efficiency, stores of 16 rows in turn, {packet_bytes}-byte packets",
                _wire_efficiency(cfg, 2048, 48, rng, streams=16, burst=1),
                "%",
                ">=",
                target,
            )
        )
    single = _wire_efficiency(SMALL, 32, 200, rng, tile=4)
    text = "wire efficiency of single 32-byte stores (nothing to merge)"
    return [*lines, Line(text, single, "%", ">=", 66.6)]


def _wire_efficiency(cfg, row_bytes, rows, rng, **settings):
    """Of so many rows to rank 1, percent."""
    s = one_to_many(cfg, row_bytes, consumers=(1,), **settings)
    for n in range(rows):
        s.row(0, 1, n, rng.bytes(row_bytes))
    close(s, (0,), (1,))
    result = run_checked(s, cfg)
    found = _efficiency(row_packets(result, (1,)))
    result.remove()
    return found


def _efficiency(packets):
    return 100 * float(packets["bytes"].sum()) / (16 * float(packets["flits"].sum()))


def latencies():
    """One full packet through idle hubs."""
    cfg = SMALL
    s = one_to_many(cfg, 128, consumers=(1,), tile=0, window=1)
    s.row(0, 1, 0, bytes(range(128)))
    s.program(0).sync()
    s.program(0).wait_cycles(300)
    close(s, (0,), (1,))
    result = run_checked(s, cfg)
    sender, receiver = result.ranks[0], result.ranks[1]
    packet, events = row_packets(result, (1,))[0], result.log("events", 1)
    ready = int(events["cycle"][events["kind"] == EventKind.READY][0])
    sent, written = (
        sender["first_flit"] - sender["last_accept"],
        receiver["first_write"] - int(packet["first"]),
    )
    lines = [
        Line("last store of a packet to header on the link", sent, "cycles", "<=", 14),
        Line("header from the link to write address", written, "cycles", "<=", 14),
        Line("memory's answer to READY", ready - receiver["last_answer"], "cycles", "<=", 8),
    ]
    result.remove()
    return lines


def turnover(regions=32):
    """All regions of a rank are given back and opened for the epoch after next: one order, or two
    to each region."""
    cfg, lines = SMALL.replace(name="small", regions=regions, groups=2 * regions), []
    for text, ranged in (("one order", True), ("an order each", False)):
        s = Scenario(cfg, arena=4 * MEMORY, hidden=[(0, BASE)], mem_spill=(0, BASE))
        for index in range(regions):
            geometry = Region(
                base=(BASE, BASE),
                stride=128,
                row_bytes=128,
                capacity=8,
                group_base=2 * index,
                log2_tile=2,
                expected=1,
            )
            s.region(1, index, geometry)
            s.handle(0, index, Handle(targets=((1, index),), row_bytes=128))
        s.barrier()
        s.close_all(0)
        s.wait_all(1, regions)
        s.mark(1, 0)
        if ranged:
            s.drivers[1].release(0, 0, regions, again=True)
        for index in range(0 if ranged else regions):
            s.drivers[1].release(index, 0)
            s.drivers[1].open(index, 2)
        s.mark(1, 1)
        result = s.run(build(cfg))
        marks = result.marks(1)
        lines.append(
            Line(
                f"{regions} regions released and opened, {text}",
                marks[1] - marks[0],
                "cycles",
                *(("<=", 300) if ranged else ()),
            )
        )
        result.remove()
    return lines


def spills(hop_ns, slow=600):
    """What memory that takes ``slow`` cycles costs where rows are spilled: 32 rows in turn through
    a RAT of 16 entries and a victim store of 64, and a layer with half of all choices at one
    rank."""
    cfg = SMALL.replace(name="spills", rat_sets=4, victim_sets=16, pool_depth=64)
    times, latency = [], one_way(hop_ns)
    for cycles in (20, slow):
        rng = np.random.default_rng(5)
        s = one_to_many(
            cfg, 2048, consumers=(1,), streams=32, burst=1, mem_latency=cycles, max_cycles=500_000
        )
        s.mark(1, 0)
        for n in range(96):
            s.row(0, 1, n, rng.bytes(2048))
        close(s, (0,), (1,))
        s.mark(1, 1)
        result = run_checked(s, cfg)
        marks = result.marks(1)
        times.append(marks[1] - marks[0])
        result.remove()
    shape = model("deepseek-v3")
    plan = plan_layer(shape, asked_routing(shape, None, 8, 4, 1, 50), ranks=8, tile_rows=4)
    settings = {"latency": latency, "window": latency, "threads": 2, "max_cycles": 2_000_000}
    hot = [
        measured(plan, "hub", mem_latency=cycles, **settings)["layer_cycles"]
        for cycles in (20, slow)
    ]
    memory = f"memory of {slow} cycles over one of 20"
    turns, crowd = times[1] / times[0], hot[1] / hot[0]
    return [
        Line(f"32 rows in turn through a RAT of 16, {memory}", turns, "times", "<=", 1.2),
        Line(f"layer, half of all choices at one rank, {memory}", crowd, "times", "<=", 1.15),
    ]


def layers(hop_ns):
    """A layer of eight ranks both ways, routing as skewed as OLMoE's on questions (Gini 0.295)."""
    shape, threads = model("qwen3-30b-a3b"), 2
    skew = fit_skew(top_k=shape.top_k, experts=shape.experts, gini=0.295)
    routing = generate(tokens=64, top_k=shape.top_k, experts=shape.experts, skew=skew)
    plan, latency = plan_layer(shape, routing, ranks=8), one_way(hop_ns)
    settings = {"latency": latency, "window": latency, "threads": threads, "max_cycles": 2_000_000}
    reports = {name: measured(plan, name, **settings) for name in WAYS}
    hub, lines = reports["hub"], []
    for text, get in TIMES:
        lines += [
            Line(f"{text}, {WAYS[name].title}", get(report), "cycles")
            for name, report in reports.items()
        ]
    for name in BASELINES:
        title, layer = WAYS[name].title, reports[name]["layer_cycles"]
        target = (">=", 1) if name == "address" else ()
        lines.append(
            Line(f"layer, {title} over hub", layer / hub["layer_cycles"], "times", *target)
        )
    lines.append(Line("layer, the wire's own share", 100 * hub["efficiency"], "%"))
    rate = hub["hub_cycles_per_second"]
    return [*lines, Line("simulation of the layer, hub cycles per second", rate, "1/s")]


def real_size(hop_ns):
    """A layer of DeepSeek-V3's shape on eight hubs of preset ``nvl8`` as it is, 16 tokens per rank;
    every byte checked."""
    shape, cfg = model("deepseek-v3"), preset("nvl8")
    latency = one_way(hop_ns, cfg)
    routing = generate(tokens=8 * 16, top_k=shape.top_k, experts=shape.experts)
    plan = plan_layer(shape, routing, ranks=8, base=cfg)
    report = measured(plan, "hub", latency=latency, window=latency, threads=2, max_cycles=1_000_000)
    lines = [Line(f"nvl8, {text}", get(report), "cycles") for text, get in TIMES]
    rate = report["hub_cycles_per_cpu_second"]
    return [
        *lines,
        Line("nvl8, the wire's own share of the layer", 100 * report["efficiency"], "%"),
        Line("simulation of nvl8, hub cycles per CPU second", rate, "1/s", ">=", 15_000),
    ]


def simulation_rate():
    """Hub cycles per second of the native harness on preset small in traffic, and of cocotb on the
    same pins."""
    from sim.bench.runner import run_bench

    cfg, rng = SMALL, np.random.default_rng(4)
    rates = []
    for rows in (400, 8):
        folder = Path(tempfile.mkdtemp(prefix="moe-hub-"))
        s = one_to_many(
            cfg,
            2048,
            producers=(0, 1, 2, 3),
            consumers=(0, 1, 2, 3),
            threads=2,
            latency=64,
            window=64,
            **({"record": 1} if rows == 8 else {}),
        )
        for rank in range(4):
            for n in range(rows // 4):
                s.row(rank, n % 4, rank * rows + n, rng.bytes(2048))
        close(s, range(4), range(4))
        result = s.run(build(cfg), folder=folder)
        if rows == 8:
            run_bench(
                hub_verilog(cfg),
                name="moehub",
                module="sim.cocotb.system.replay",
                cfg=cfg,
                params={"pins": str(folder / "rank1.pins"), "out": str(folder / "out.json")},
            )
            out = json.loads((folder / "out.json").read_text())
            rates.append(out["cycles"] / out["seconds"])
        else:
            rates.append(result.summary["hub_cycles_per_second"])
        result.remove()
    return [
        Line("native harness, preset small, hub cycles per second", rates[0], "1/s", ">=", 100_000),
        Line("cocotb on the same pins, cycles per second", rates[1], "1/s"),
        Line("native harness over cocotb", rates[0] / rates[1], "times", ">=", 20),
    ]


def measure(quick=False, hop_ns=HOP_NS, report=lambda text: None):
    """All lines of the bench, in order; ``quick`` leaves out the layers and the rates. ``hop_ns``:
    of the layers' fabric. ``report`` is told what is measured."""
    slow = (*(partial(part, hop_ns) for part in (spills, layers, real_size)), simulation_rate)
    parts = (
        link_use,
        rows_back_to_back,
        rows_in_the_address_table,
        merging,
        latencies,
        turnover,
        *(() if quick else slow),
    )
    lines = []
    for part in parts:
        report(f"measuring: {getattr(part, 'func', part).__name__.replace('_', ' ')}")
        lines += part()
    return lines


def _number(value):
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _cells(line):
    """Figure, value, unit, target and whether it is met, as text."""
    target = f"{line.sense} {_number(line.target)}" if line.target is not None else ""
    return (
        line.name,
        _number(line.figure),
        line.unit,
        target,
        ("yes" if line.met else "NO") if target else "",
    )


def speed_table(lines):
    """The lines as a rich table."""
    title, numbers = "speed on the generated Verilog", ("value", "target")
    return screen(HEADS, map(_cells, lines), title=title, right=numbers)


def _page_table(folder):
    """The lines of a run, for the page."""
    lines = json.loads((Path(folder) / "bench.json").read_text(encoding="utf-8"))
    fields = [{name: line[name] for name in line if name != "met"} for line in lines]
    rows = (_cells(Line(**each)) for each in fields)
    return "\n".join([*markdown(HEADS, rows, "|---|--:|---|--:|---|"), ""])


#: Of ``docs/results/speed.md``, for :func:`flow.pages.fill.fill`.
TABLES = {"speed": _page_table}
