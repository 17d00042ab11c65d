# SPDX-License-Identifier: Apache-2.0
"""Figures of a layer's run, as a dictionary for ``report.json`` and as a table."""

import numpy as np

from flow.tables import screen
from hub_rtl.contract.packets import EventKind, PacketType
from hub_rtl.contract.registers import COUNTERS, register_map

from .building import build
from .fabric import hub_cycles
from .layer import MARK_CLOSED, MARK_END, MARK_START, MARK_STORED
from .ways import WAYS

__all__ = ["TIMES", "behind", "counters_of", "figure_rows", "layer_report", "measured", "table"]

#: Times of a layer in which ways are compared: name, and where its report has them.
TIMES = (
    ("first usable", lambda r: r["usable"]["first"]),
    ("median usable", lambda r: r["usable"]["median"]),
    ("last usable", lambda r: r["usable"]["last"]),
    ("layer", lambda r: r["layer_cycles"]),
)

STALLS = tuple(name for name in COUNTERS if "stall" in name or "waiting" in name)


def counters_of(cfg, result, rank):
    """{counter: value} as read at the end of the run."""
    registers, values = register_map(cfg), result.reads(rank)
    out = {}
    for name in COUNTERS:
        low, high = (registers.address(f"counters.{name.upper()}_{half}") for half in ("LO", "HI"))
        if low in values:
            out[name] = values[low] | values.get(high, 0) << 32
    return out


def _fabric(result, ranks):
    """Packets, flits and payload bytes on the links, by type."""
    packets = np.concatenate([result.log("packets", rank) for rank in range(ranks)])
    kinds = packets["low"] & np.uint64(15)
    data = np.isin(kinds, (PacketType.ROW, PacketType.PLAIN))
    return {
        "packets": int(data.sum()),
        "control_packets": int((~data).sum()),
        "row_packets": int((kinds == PacketType.ROW).sum()),
        "plain_packets": int((kinds == PacketType.PLAIN).sum()),
        "link_flits": int(packets["flits"].sum()),
        "link_bytes": int(packets["bytes"][data].sum()),
        "masked_packets": int((data & (packets["low"] >> np.uint64(5) & np.uint64(1) == 1)).sum()),
    }


def _events(result, rank, kind, plain=False):
    log = result.log("events", rank)
    return log[(log["kind"] == kind) & (log["plain"] == plain)]


def _span(cycles):
    return (
        {"first": int(min(cycles)), "last": int(max(cycles))}
        if len(cycles)
        else {"first": None, "last": None}
    )


def _common(plan, result, verdict):
    fabric = _fabric(result, plan.cfg.ranks)
    counters = dict.fromkeys(COUNTERS, 0)
    for rank in range(plan.cfg.ranks):
        for name, value in counters_of(plan.cfg, result, rank).items():
            counters[name] += value
    start = [result.marks(rank).get(MARK_START, 0) for rank in range(plan.cfg.ranks)]
    end = [
        result.marks(rank).get(MARK_END, result.summary["cycles"]) for rank in range(plan.cfg.ranks)
    ]
    combine = [
        cycle - start[rank]
        for rank in range(plan.cfg.ranks)
        for cycle in _events(result, rank, EventKind.READY, True)["cycle"].tolist()
    ]
    link_cycles = plan.cfg.ranks * plan.cfg.links * (max(end) - min(start))
    busy = hub_cycles(plan.cfg, fabric["link_flits"]) / max(1, link_cycles)
    return {
        "rows": int(plan.routing.tokens * plan.routing.top_k),
        "stores": result.total("stores"),
        "store_bytes": result.total("store_bytes"),
        **fabric,
        "wire_efficiency": fabric["link_bytes"] / max(1, 16 * fabric["link_flits"]),
        "merge_ratio": counters["stores"]
        / max(1, counters["packets_full"] + counters["packets_partial"]),
        "layer_cycles": max(end) - min(start),
        "links_busy": busy,
        "answers": _span(combine),
        "stalls": {name: counters[name] for name in STALLS},
        "counters": counters,
        "mismatches": verdict.mismatches,
        "differences": verdict.differences,
        "compared_bytes": verdict.compared_bytes,
        "cycles": result.summary["cycles"],
        "seconds": result.summary["seconds"],
        "hub_cycles_per_second": result.summary["hub_cycles_per_second"],
        "hub_cycles_per_cpu_second": plan.cfg.ranks
        * result.summary["cycles"]
        / max(result.summary["cpu_seconds"], 0.001),
    }


def _setup(plan):
    return {
        "model": plan.shape.name,
        "routing": plan.routing.source,
        "tokens": plan.routing.tokens,
        "top_k": plan.routing.top_k,
        "row_bytes": plan.row_bytes,
        "answer_bytes": plan.shape.combine_bytes,
        "tile_rows": plan.tile_rows,
        "busiest_over_mean": plan.routing.busiest_over_mean,
        "config": plan.cfg.as_dict(),
    }


def _hub_figures(plan, result, counters):
    """What only a run the hub's way has."""
    ranks = range(plan.cfg.ranks)
    marks = [result.marks(rank) for rank in ranks]
    start = [m.get(MARK_START, 0) for m in marks]
    packets = [result.log("packets", rank) for rank in ranks]
    closes = [
        log["last"][log["low"] & np.uint64(15) == PacketType.NEWS].astype(np.int64) - start[rank]
        for rank, log in enumerate(packets)
    ]
    rows = [
        log["last"][log["low"] & np.uint64(15) == PacketType.ROW].astype(np.int64) - start[rank]
        for rank, log in enumerate(packets)
    ]
    done = [
        _events(result, rank, EventKind.ALL)["cycle"].astype(np.int64) - start[rank]
        for rank in ranks
    ]
    return {
        "rows_placed": sum(len(result.log("allocs", rank)) for rank in ranks),
        "all_ready": _span(np.concatenate(done)),
        "last_close": _span(np.concatenate(closes))["last"],
        "last_row": [_span(cycles)["last"] for cycles in rows],  # by rank, over its links
        "rat_hits": counters["rat_hits"],
        "spills": counters["spills"],
        "restores": counters["restores"],
        "stored": max(m.get(MARK_STORED, 0) - m.get(MARK_START, 0) for m in marks),
        "closed": max(m.get(MARK_CLOSED, 0) - m.get(MARK_START, 0) for m in marks),
    }


def layer_report(plan, result, verdict, name="hub"):
    """All figures of a run the way called ``name``. Cycles count from the start of the layer at the
    rank they belong to.

    ``bound_cycles``: flits of the fullest link in one direction, which is how long the wire alone
    would take, in cycles of the hub; ``efficiency``: its share of the layer's time.
    """
    usable, common = sum(WAYS[name].usable(plan, result), []), _common(plan, result, verdict)
    fullest = max(max(rank["tx_flits"], rank["rx_flits"]) for rank in result.ranks)
    bound = hub_cycles(plan.cfg, -(-fullest // plan.cfg.links))
    return {
        "way": name,
        **_setup(plan),
        **common,
        "events": verdict.events,
        "tiles": len(usable),
        "usable": _span(usable) | {"median": int(np.median(usable)) if usable else None},
        "bound_cycles": bound,
        "efficiency": bound / max(1, common["layer_cycles"]),
        **(_hub_figures(plan, result, common["counters"]) if name == "hub" else {}),
    }


def measured(plan, name, **settings):
    """The report on a run the way called ``name``; raises AssertionError when it was wrong: its
    figures would be worth nothing. ``settings``: as :func:`~sim.system.layer.new_system` takes
    them."""
    way = WAYS[name]
    result = way.programs(plan, **settings).run(build(plan.cfg))
    verdict = way.check(plan, result)
    if not verdict.good:
        result.remove()
        raise AssertionError(f"{way.title}: {verdict.differences[0]}")
    report = layer_report(plan, result, verdict, name)
    result.remove()
    return report


def behind(reports):
    """A sentence for each way of software: where the hub is not ahead of it. ``reports``: by name
    of the way, the hub's among them."""
    hub, out = reports["hub"], []
    for name, report in reports.items():
        if name == "hub":
            continue
        found = [
            f"{text} ({_number(get(hub))} against {_number(get(report))})"
            for text, get in TIMES
            if get(hub) >= get(report)
        ]
        title = WAYS[name].title
        out.append(
            f"The hub is not ahead of {title} in: {', '.join(found)}."
            if found
            else f"The hub is ahead of {title} in every column."
        )
    return out


def _number(value):
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def figure_rows(by_way, *, speed=False):
    """Lines of text, all figures of reports by name of their way: what it is, and its value in each
    way. ``speed``: with the simulation's own, which no other run repeats."""
    reports = list(by_way.values())
    figures = {
        "rows dispatched": lambda r: r["rows"],
        "bytes stored": lambda r: r["store_bytes"],
        "bytes over links": lambda r: r["link_bytes"],
        "packets over links": lambda r: r["packets"],
        "wire efficiency, %": lambda r: 100 * r["wire_efficiency"],
        "stores per packet": lambda r: r["merge_ratio"],
        "RAT hits / spills": lambda r: (
            f"{_number(r['rat_hits'])} / {_number(r['spills'])}" if "rat_hits" in r else None
        ),
        "first tile or set usable, cycles": lambda r: r["usable"]["first"],
        "median tile or set usable, cycles": lambda r: r["usable"]["median"],
        "last tile or set usable, cycles": lambda r: r["usable"]["last"],
        "last CLOSE at its region, cycles": lambda r: r.get("last_close"),
        "first answers ready, cycles": lambda r: r["answers"]["first"],
        "layer, cycles": lambda r: r["layer_cycles"],
        "the wire's own time, cycles": lambda r: r["bound_cycles"],
        "efficiency, %": lambda r: 100 * r["efficiency"],
        "links busy, %": lambda r: 100 * r["links_busy"],
    }
    for name in STALLS:
        if any(r["stalls"][name] for r in reports):
            figures[f"  {COUNTERS[name]}"] = lambda r, name=name: r["stalls"][name]
    figures |= {
        "bytes compared": lambda r: r["compared_bytes"],
        "mismatches": lambda r: r["mismatches"],
    }
    if speed:
        figures["hub cycles per second"] = lambda r: int(r["hub_cycles_per_second"])
    return [(text, *(_number(get(r)) for r in reports)) for text, get in figures.items()]


def table(by_way):
    """Reports, by name of their way, as a rich table with a column for each."""
    report, *_ = by_way.values()
    cfg = report["config"]
    ways = tuple(WAYS[name].title for name in by_way)
    return screen(
        ("figure", *ways),
        figure_rows(by_way, speed=True),
        title=f"{report['model']}: {report['tokens']} tokens, top-{report['top_k']}, "
        f"{cfg['ranks']} ranks, {cfg['lanes']} x {cfg['slice_links']} links",
        right=ways,
    )
