# SPDX-License-Identifier: Apache-2.0
"""Layers at the paper's latency, the hub's way and software's: the runs behind
``docs/results/layers.md``, and the page. ``moe-hub compare``.

What a run gave is kept in the build folder under a key of all that it came from, so that an
interrupted page goes on where it stopped.
"""

from dataclasses import dataclass
from pathlib import Path

from flow.kept import digest, keep, recall
from flow.tables import markdown
from sim.bench.runner import BUILD, ROOT
from sim.workload.asked import asked_routing, asked_shape

from .building import harness_sources, hub_verilog
from .fabric import HOP_NS, one_way
from .figures import TIMES, behind, figure_rows, measured
from .layer import plan_layer
from .ways import BASELINES, WAYS

__all__ = ["Case", "compare", "page"]

MODEL, RANKS, SEED = "deepseek-v3", 8, 1  # what `moe-hub run` takes
NEAR = 20.48  # nanoseconds of a hop, 64 cycles one way: what older pages took
CREDITS = (("pool_places", 1024), ("ctl_credits", 15))
SOURCES = ("sim/system", "sim/workload", "flow/driver.py")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of ``moe-hub run``, as far as it differs from the demo; ``changes``: pairs of field
    and value; ``trace``: file of a routing log, of which ``tokens`` 0 takes all."""

    tokens: int
    model: str = MODEL
    trace: Path | None = None
    latency: float = HOP_NS
    tile_rows: int | None = None
    changes: tuple = ()
    hot: int | None = None
    baselines: tuple = ()

    @property
    def cycles(self):
        return one_way(self.latency)

    @property
    def command(self):
        """The call that runs it."""
        words = ["moe-hub run", f"--tokens {self.tokens}"]
        words += [f"--model {self.model}"] if self.model != MODEL else []
        words += [f"--trace {self.trace.name}"] if self.trace else []
        words += [f"--latency {self.latency:g}"] if self.latency != HOP_NS else []
        words += [f"--tile-rows {self.tile_rows}"] if self.tile_rows else []
        words += [f"--set {field}={value}" for field, value in self.changes]
        words += [f"--hot {self.hot}"] if self.hot is not None else []
        words += [f"--baseline {','.join(self.baselines)}"] if self.baselines else []
        return " ".join(words)

    def plan(self):
        shape = asked_shape(self.model, self.trace)
        routing = asked_routing(shape, self.trace, RANKS, self.tokens, SEED, self.hot)
        return plan_layer(
            shape,
            routing,
            ranks=RANKS,
            tile_rows=self.tile_rows,
            seed=SEED,
            changes=dict(self.changes),
        )

    def reports(self, threads=2, progress=lambda text: None):
        """{name of the way: its report}."""
        plan, out = self.plan(), {}
        log = self.trace.read_text() if self.trace else ""
        key = digest(hub_verilog(plan.cfg), *harness_sources(), *_programs(), log)
        for name in ("hub", *self.baselines):
            progress(f"{self.command}: {WAYS[name].title}")
            asked = (self.model, self.tokens, self.cycles, self.tile_rows, self.hot)
            call = digest(plan.cfg, *asked, name)
            path = BUILD / "compare" / f"{call}.json"
            out[name] = recall(path, key) or keep(
                path,
                key,
                measured(
                    plan,
                    name,
                    latency=self.cycles,
                    window=self.cycles,
                    threads=threads,
                    max_cycles=50_000_000,
                    seed=SEED,
                ),
            )
        return out


def _programs():
    """Text of what makes programs and figures, without this file."""
    files = [path for each in SOURCES for path in (ROOT / each).rglob("*.py")]
    files += [ROOT / each for each in SOURCES if each.endswith(".py")]
    return [path.read_text() for path in sorted(files) if path.name != "compare.py"]


WAITING = (
    Case(tokens=1, tile_rows=4, latency=NEAR),
    Case(tokens=1, tile_rows=4),
    Case(tokens=4, tile_rows=4, latency=NEAR),
    Case(tokens=4, tile_rows=4),
    Case(tokens=4, tile_rows=4, latency=2 * HOP_NS),
    Case(tokens=16, tile_rows=4),
    Case(tokens=1, tile_rows=4, changes=CREDITS),
    Case(tokens=4, tile_rows=4, changes=CREDITS),
)
BESIDE = (
    Case(tokens=1, tile_rows=4, baselines=BASELINES),
    Case(tokens=4, tile_rows=4, latency=NEAR, baselines=BASELINES),
    Case(tokens=4, tile_rows=4, baselines=BASELINES),
    Case(tokens=16, tile_rows=4, baselines=BASELINES),
)
HOT = (
    Case(tokens=4, tile_rows=4, latency=NEAR, hot=50, baselines=("rowflag",)),
    Case(tokens=4, tile_rows=4, hot=50, baselines=("rowflag",)),
)
INTRODUCTION = """# Layers at the paper's latency

Written by `moe-hub compare`; the same design gives the same bytes. One layer, there and back, on
eight hubs of one lane in Verilog ([running.md](../running.md)), where a packet takes 250 ns per
hop, 781 cycles of the hub's clock one way, unless a line says otherwise; and the same layer as
software does it on the same hubs, links and memory. Every byte of every memory was compared: no
mismatch in any run. All times are cycles. Made-up routing of DeepSeek-V3 shape first, then whole
logs of real models. The same tables for the design before slices were wide and closes travelled as
news: [before.md](before.md).

*First*, *median*, *last*: when a piece of work became usable, counted from the layer's start: the
hub's tile of any producers' rows at its READY, software's tile or set of rows as the
[way](../running.md#without-the-hub---baseline) says. *Bound* is the wire's own time: the flits of
the fullest link in one direction. *Efficiency* is its share of the layer's time.

These are figures of the communication alone, not the speed-up of a layer on a GPU: the software has
no kernel launches, polling or device barriers, which real systems pay for, and the expert stand-in
takes a fixed time per tile."""
WAITING_TEXT = """## What the hub waits for

The far fabric beside a near one, and more of what a round trip takes away: places of the receive
pool, which the receiver grants, and control credits."""
BESIDE_TEXT = """## Beside software

`flags`: fixed slots, a flag per source and expert behind a fence. `row-flag`: fixed slots, counts
sent at once, the last word of every packet watched, no fence and no flag."""
HOT_TEXT = """## Half of all choices at one rank

Four of each token's eight choices are experts of rank 0."""
LOGS_TEXT = """## Whole logs of real models

Public files of vLLM's route loggers without a licence, so they are not part of the project; tiles
of 128 rows."""
LOGS_END = """A tile is usable long before all rows have arrived, because rows of all producers fill
one region densely and readiness is counted per tile; software has to wait for the flags of every
producer with rows in the tile. The *last* tile can be later with the hub (below 1 in the table):
answers already use the links while rows are still on their way. What the wire's own time leaves
idle is the skew of the routing, and ranks that have finished while others still send."""


def _cycles(*values):
    return ["-" if value is None else f"{value:,}" for value in values]


def _times(report):
    return _cycles(*(get(report) for _, get in TIMES))


def _share(report):
    return f"{100 * report['efficiency']:.0f} %"


def _commands(cases):
    return "\n".join(["```sh", *(case.command for case in cases), "```"])


def _waiting(cases, run):
    head = ("tokens per rank", "one way", "places / control credits", "layer", "bound")
    rows = []
    for case in cases:
        hub, cfg = run(case)["hub"], case.plan().cfg
        rows.append(
            (
                case.tokens,
                *_cycles(case.cycles),
                f"{cfg.pool_places} / {cfg.ctl_credits}",
                *_cycles(hub["layer_cycles"], hub["bound_cycles"]),
                _share(hub),
                *_cycles(hub["last_close"]),
                *_times(hub)[:3],
            )
        )
    more = ("efficiency", "last CLOSE", *(text for text, _ in TIMES[:3]))
    return _table((*head, *more), rows)


def _table(head, rows, marks=None):
    return "\n".join(markdown(head, rows, marks or "|" + "--:|" * len(head)))


def _beside(case, run):
    """A table of all ways, and sentences on where the hub is not ahead."""
    small = Case(tokens=case.tokens, latency=case.latency, tile_rows=1)
    reports, one = run(case), run(small)["hub"]
    named = [(f"hub, tiles of {reports['hub']['tile_rows']}", reports["hub"])]
    named += [("hub, tiles of 1", one)]
    named += [(WAYS[name].title, reports[name]) for name in case.baselines]
    rows = [
        (name, *_times(report), *_cycles(report["bound_cycles"]), _share(report))
        for name, report in named
    ]
    software = {name: reports[name] for name in case.baselines}
    tiny = behind({"hub": one, **software})
    return [
        f"### {case.tokens} token(s) per rank, {case.cycles} cycles one way",
        _commands([case, small]),
        _table(("way", *(text for text, _ in TIMES), "bound", "efficiency"), rows),
        "\n".join(f"* {text}" for text in behind(reports)),
        "With tiles of one row:\n\n" + "\n".join(f"* {text}" for text in tiny),
    ]


def _hot(cases, run):
    rows, sentences = [], []
    for case in cases:
        for name, report in run(case).items():
            first = report.get("all_ready", {}).get("first")
            crowd = report["last_row"][0] if "last_row" in report else None
            rows.append(
                (*_cycles(case.cycles), WAYS[name].title, *_times(report), *_cycles(first, crowd))
            )
            if first is not None:
                order = "after" if first >= crowd else "before"
                sentences.append(
                    f"* At {case.cycles} cycles the first region of all ends "
                    f"{abs(first - crowd):,} cycles {order} the last row has come to rank 0."
                )
        sentences += [f"* At {case.cycles} cycles: {text}" for text in behind(run(case))]
    head = ("one way", "way", *(text for text, _ in TIMES), "first ALL", "last row at rank 0")
    return [_table(head, rows), "\n".join(sentences)]


def logs_of(pairs):
    """The cases of whole logs. ``pairs``: a model's name and its log's file."""
    return [
        Case(tokens=0, model=model, trace=Path(log), baselines=BASELINES) for model, log in pairs
    ]


def _log(case, run):
    """A table of all figures of one log."""
    routing, reports = case.plan().routing, run(case)
    head = ("", *(WAYS[name].title for name in reports))
    return [
        f"### {case.model}: {routing.tokens:,} tokens, top-{routing.top_k} of "
        f"{routing.num_experts} experts",
        f"Busiest expert over mean {routing.busiest_over_mean:.2f}, Gini {routing.gini:.3f}.",
        _table(head, figure_rows(reports), "|---|" + "--:|" * len(reports)),
    ]


def _logs(cases, run):
    rows = []
    for case in cases:
        hub, *software = run(case).values()
        for text, get in TIMES:
            rows.append(
                (f"{case.model}: {text}", *(f"{get(way) / get(hub):.2f}" for way in software))
            )
    head = ("software over hub", *(WAYS[name].title for name in BASELINES))
    parts = [LOGS_TEXT, _commands(cases)]
    for case in cases:
        parts += _log(case, run)
    return [*parts, _table(head, rows, "|---|" + "--:|" * len(BASELINES)), LOGS_END]


def page(run, logs=()):
    """The page, Markdown. ``run(case)`` gives the reports of a case; ``logs``: cases of whole
    logs."""
    parts = [INTRODUCTION, WAITING_TEXT, _waiting(WAITING, run), _commands(WAITING), BESIDE_TEXT]
    for case in BESIDE:
        parts += _beside(case, run)
    parts += [HOT_TEXT, *_hot(HOT, run), _commands(HOT)]
    parts += _logs(logs, run) if logs else []
    return "\n\n".join(parts) + "\n"


def compare(logs=(), threads=2, progress=lambda text: None):
    """Runs all cases and gives the page. ``logs``: a model's name and its log's file, in pairs.
    Raises AssertionError when a run was wrong, TraceError and OSError for a log."""
    cases = logs_of(logs)
    for case in cases:
        case.plan()  # a log that cannot be read is found before the first run
    return page(lambda case: case.reports(threads, progress), cases)
