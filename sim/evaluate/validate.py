# SPDX-License-Identifier: Apache-2.0
"""The network model against the multi-hub RTL simulation: the same layers on both, times compared
rank by rank.

    moe-hub evaluate validate --model olmoe-1b-7b --trace routes.jsonl --tokens 1 --tokens 16

runs each layer (dispatch, expert stand-in, combine) on the generated Verilog of eight hubs, as
``moe-hub run`` does, and on :func:`sim.evaluate.machine.rtl_layer.model_layer`, prints the
comparison and writes ``docs/results/network_validation.md``. A model name without a log takes
made-up routing. Nothing in the model is adjusted to a layer: its latencies are those of
``data/hub.json``, all else is the mechanism.

The order in which rows overtake each other is chaotic: one cycle more of fabric latency changes
which row waits for which, and so a time. Each layer is therefore run at several latencies around
the nominal one, on both sides; means are compared, and the spread of the RTL is reported beside the
error.
"""

import json
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from flow.kept import digest, write
from flow.tables import screen
from hub_rtl.contract.packets import EventKind
from sim.bench.runner import BUILD, ROOT
from sim.evaluate.machine.rtl_layer import Harness, model_layer
from sim.evaluate.page.rows import markdown
from sim.system.building import build, harness_sources, hub_verilog
from sim.system.layer import MARK_START, MARK_STORED, hub_programs, plan_layer
from sim.system.layer_check import check_layer
from sim.workload.asked import asked_routing, asked_shape

__all__ = ["LIMIT", "Case", "Comparison", "page", "times_by_rank", "validate", "validation_table"]

LIMIT = 0.05  # largest error of what is judged
PAGE = ROOT / "docs" / "results" / "network_validation.md"
# Name, over the ranks: what of each rank's times, how the whole layer's figure comes from the
# ranks', and whether it is judged.
FIGURES = {
    "first_ready": ("first tile ready", min, True),
    "last_ready": ("last tile ready", max, True),
    "all_ready": ("last region's ALL", max, True),
    "first_answers": ("first answers ready", min, False),
    "all_answers": ("all answers ready", max, True),
}
JUDGED = tuple(name for name, (_, _, judged) in FIGURES.items() if judged)
SPREAD = tuple(range(-8, 9, 2))  # cycles around the fabric's latency: some times spread by 4 %
ALONE = (0,)  # of a whole log, half an hour's run on the RTL
TILE_ROWS = 128  # whatever the model, so that first tiles wait for the fabric
BATCHES = 1, 16  # packets of a batch; the first is judged
MAX_CYCLES = 50_000_000
INTRODUCTION = """# The network model against the RTL

Written by `moe-hub evaluate validate --model MODEL --trace LOG ...`. Each layer (dispatch, expert stand-in, combine) runs on
the generated Verilog of eight hubs with one lane each, and on the network model of `moe-hub evaluate`
with the same rows, the same kind of crossbar and the same stand-in ([running.md](../running.md)), 250 ns per hop: 781 cycles from
hub to hub. Times are cycles since the layer's start, means of runs with slightly different fabric latencies: the order in which
rows overtake each other is chaotic, one cycle more changes it; *spread* is the standard deviation of the RTL's own runs. At the
nominal latency every byte of every memory was compared with the golden model. The error judged is that of the whole layer's
figure, earliest or latest over the ranks.

The model has no parameter that was adjusted to a layer. Latencies are measured one by one on idle hubs
(`sim/evaluate/calibrate.py`), those of news and of the finisher from one signal of a run to the next; the rest is mechanism, as
the blocks' pages have it: round robin over destinations, within one the
[packet manager's](../blocks/packet_manager.md) lists and their turns, the pool with one reserved entry per destination and
`can_accept`, the [receive pool's](../blocks/receive_pool.md) visits and periods, whose grants come back through the sender's own ingress queue,
announcements and closes that [share packets](../blocks/producer.md), tells that wait for each other, marks that meet, entries of news
that a scoreboard takes one by one, regions that a [finisher](../blocks/scoreboard.md) looks at one by one, streams of stores that take turns, answers that share the links with rows
still being sent."""
BATCH_TEXT = """The model moves batches of packets. In the comparison above a batch is one packet; the model of a whole machine
uses larger ones, as a GPU has 8 to 36 such lanes. Error of the same layers with larger batches:"""
CAVEATS = """## What this does not show

*First tile ready* is the time of one tile of one expert on one rank; in layers of a few tokens it hangs on a single row that is
alone at its expert, and on when the last producer has told what comes to it. No packet of these layers waits for its merge timer:
a row's last one is full with the bytes that are left.

The harness has one lane per hub; links of many lanes and switch planes are the same mechanism with other numbers, but were not
simulated as RTL here. The routing logs are public files without a licence and not part of the project; without a log the command
takes made-up routing."""


@dataclass(frozen=True)
class Case:
    """One layer: a model of :mod:`sim.workload.models`, a routing log or None (made-up routing),
    tokens per rank (0: all)."""

    model: str
    trace: Path | None = None
    tokens: int = 64
    ranks: int = 8
    seed: int = 1

    def plan(self):
        """The layer as ``moe-hub run`` lays it out, in large tiles; all cases share one
        simulator."""
        shape = asked_shape(self.model, self.trace)
        routing = asked_routing(shape, self.trace, self.ranks, self.tokens, self.seed)
        return plan_layer(shape, routing, ranks=self.ranks, seed=self.seed, tile_rows=TILE_ROWS)


@dataclass
class Comparison:
    """A case on both sides. Times are cycles since the start of the layer; arrays [run, rank] per
    figure.

    ``rtl``; ``model[batch]``; ``wire_bytes``: of the nominal run, RTL and by batch; ``latencies``:
    of the fabric, by run; ``seconds[batch]``: what one run of the model took.
    """

    case: Case
    plan: object
    rtl: dict
    model: dict
    wire_bytes: dict
    latencies: tuple
    seconds: dict

    def whole(self, times, name):
        """The layer's figure of each run."""
        over_ranks = FIGURES[name][1]
        return np.array([over_ranks(run) for run in times[name]])

    def error(self, name, batch=BATCHES[0]):
        """Relative error of the mean over the runs, of the whole layer's figure."""
        return self.whole(self.model[batch], name).mean() / self.whole(self.rtl, name).mean() - 1

    def rank_errors(self, name, batch=BATCHES[0]):
        """The same for each rank."""
        return self.model[batch][name].mean(axis=0) / self.rtl[name].mean(axis=0) - 1

    def spread(self, name, times=None):
        """Standard deviation over the runs, relative to the mean; of the RTL unless ``times`` are
        given."""
        values = self.whole(self.rtl if times is None else times, name)
        return values.std() / values.mean()

    @property
    def good(self):
        return all(
            abs(self.error(name)) <= LIMIT for name, (_, _, judged) in FIGURES.items() if judged
        )


def times_by_rank(ready, done, answers):
    """First and last of each rank's times, by the name of the figure."""
    return {
        "first_ready": [min(t) for t in ready],
        "last_ready": [max(t) for t in ready],
        "all_ready": [max(t) for t in done],
        "first_answers": [min(t) for t in answers],
        "all_answers": [max(t) for t in answers],
    }


def _rtl_times(result, ranks):
    """Times of a run from its logs, by rank, from the rank's own mark of the start."""
    ready, done, answers = [], [], []
    for rank in range(ranks):
        events, start = result.log("events", rank), result.marks(rank)[MARK_START]
        cycle, plain = events["cycle"].astype(np.int64) - start, events["plain"] == 1
        ready.append(cycle[(events["kind"] == EventKind.READY) & ~plain])
        done.append(cycle[events["kind"] == EventKind.ALL])
        answers.append(cycle[(events["kind"] == EventKind.READY) & plain])
    times = {
        name: [int(value) for value in values]
        for name, values in times_by_rank(ready, done, answers).items()
    }
    times["stored"] = [
        result.marks(rank)[MARK_STORED] - result.marks(rank)[MARK_START] for rank in range(ranks)
    ]
    return times | {"wire_bytes": 16 * sum(rank["tx_flits"] for rank in result.ranks)}


_verilog = cache(
    hub_verilog
)  # all runs of a comparison are of one text, whatever is edited meanwhile


def _programs():
    """Text of what makes the programs of a layer."""
    return [(ROOT / path).read_text() for path in ("sim/system/layer.py", "flow/driver.py")]


def rtl_layer(plan, harness, check, threads=1):
    """One run on the RTL: its times, from the build folder when the same design, harness and layer
    were run before.

    ``check``: compare every byte with the golden model. Raises AssertionError when the run is wrong
    or does not end.
    """
    sources = harness_sources()
    verilog = _verilog(plan.cfg)
    key = digest(
        verilog,
        *sources,
        *_programs(),
        repr((harness, plan.shape, plan.tile_rows, plan.seed)),
        plan.routing.experts.tobytes().hex(),
        length=20,
    )
    kept = BUILD / "evaluate" / "validate" / f"{key}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    system = hub_programs(
        plan,
        expert_cycles=harness.expert_cycles,
        expert_units=harness.expert_units,
        latency=harness.latency,
        window=harness.latency,
        mem_latency=harness.mem_latency,
        threads=threads,
        max_cycles=MAX_CYCLES,
        seed=plan.seed,
    )
    result = system.run(build(plan.cfg, verilog=verilog))
    try:
        if result.timed_out:
            raise AssertionError(f"validate: the layer did not end within {MAX_CYCLES} cycles")
        if check and (differences := check_layer(plan, result).differences):
            raise AssertionError(f"validate: {differences[0]}")
        times = _rtl_times(result, plan.cfg.ranks)
    finally:
        result.remove()
    write(kept, json.dumps(times))
    return times


def compare(case, spread=SPREAD, batches=BATCHES, threads=1, progress=print):
    """Runs a case on both sides: a :class:`Comparison`.

    ``spread``: cycles around the nominal latency of the fabric, one run each; 0, which is checked
    byte by byte, is among them. Raises ValueError when it is not.
    """
    if 0 not in spread:
        raise ValueError(f"spread = {tuple(spread)}: must contain 0, the run that is checked")
    plan = case.plan()
    harnesses = [Harness(latency=Harness.latency + more) for more in spread]
    rtl, model, seconds = [], {batch: [] for batch in batches}, {}
    wire = {"rtl": None}
    for harness in harnesses:
        nominal = harness == Harness()
        progress(f"{case.model}: RTL, latency {harness.latency}")
        rtl.append(rtl_layer(plan, harness, check=nominal, threads=threads))
        for batch in batches:
            start = time.perf_counter()
            times = model_layer(plan, harness, batch_packets=batch)
            seconds[batch] = time.perf_counter() - start
            model[batch].append(times_by_rank(times.ready, times.done, times.answers))
            if nominal:
                wire |= {"rtl": rtl[-1]["wire_bytes"], batch: times.wire_bytes}

    def gathered(runs):
        return {name: np.array([run[name] for run in runs], dtype=float) for name in FIGURES}

    return Comparison(
        case,
        plan,
        gathered(rtl),
        {batch: gathered(runs) for batch, runs in model.items()},
        wire,
        tuple(harness.latency for harness in harnesses),
        seconds,
    )


def validate(cases, spread=SPREAD, batches=BATCHES, threads=1, progress=print):
    """Runs all cases; returns a :class:`Comparison` for each. ``threads``: of the RTL
    simulation."""
    return [
        compare(case, spread if case.tokens else ALONE, batches, threads, progress)
        for case in cases
    ]


def _percent(value):
    return f"{100 * value:+.1f}"


def _lines(comparison):
    """Rows of the comparison: figure, RTL, its spread, model, error, worst rank, judged."""
    for name, (text, _, judged) in FIGURES.items():
        rtl = comparison.whole(comparison.rtl, name).mean()
        ranks = comparison.rank_errors(name)
        worst = ranks[np.argmax(np.abs(ranks))]
        met = ("yes" if abs(comparison.error(name)) <= LIMIT else "NO") if judged else "-"
        yield (
            text,
            f"{rtl:,.0f}",
            f"{100 * comparison.spread(name):.1f}",
            f"{comparison.whole(comparison.model[BATCHES[0]], name).mean():,.0f}",
            _percent(comparison.error(name)),
            f"{100 * np.sqrt(np.mean(ranks**2)):.1f}",
            _percent(worst),
            met,
        )
    rtl, model = comparison.wire_bytes["rtl"], comparison.wire_bytes[BATCHES[0]]
    yield (
        "bytes on the wires",
        f"{rtl:,}",
        "",
        f"{model:,.0f}",
        _percent(model / rtl - 1),
        "",
        "",
        "-",
    )


HEAD = (
    "figure",
    "RTL",
    "spread, %",
    "model",
    "error, %",
    "ranks, rms %",
    "worst rank, %",
    "within 5 %",
)


def _title(comparison):
    plan = comparison.plan
    return (
        f"{plan.shape.name}: {plan.routing.tokens} tokens, top-{plan.routing.top_k} of "
        f"{plan.shape.experts}, "
        f"{plan.cfg.ranks} ranks, tiles of {plan.tile_rows} rows"
    )


def validation_table(comparison):
    """One comparison as a rich table."""
    return screen(HEAD, _lines(comparison), title=_title(comparison), right=HEAD[1:])


def _batches(comparisons):
    """Rows of the table of batch sizes: errors of what is judged, and the time of one run."""
    for comparison in comparisons:
        for batch in comparison.model:
            yield (
                comparison.plan.shape.name,
                f"{comparison.plan.routing.tokens:,}",
                batch,
                *(_percent(comparison.error(name, batch)) for name in JUDGED),
            )


def page(comparisons):
    """The results page, Markdown."""
    parts = [INTRODUCTION]
    for comparison in comparisons:
        latencies = ", ".join(map(str, comparison.latencies))
        parts += [
            f"## {_title(comparison)}",
            f"Fabric latencies of the runs: {latencies} cycles.",
            markdown(HEAD, _lines(comparison)).rstrip(),
        ]
    parts += [
        "## Batches",
        BATCH_TEXT,
        markdown(
            (
                "model",
                "tokens",
                "packets of a batch",
                *(f"{FIGURES[name][0]}, error %" for name in JUDGED),
            ),
            _batches(comparisons),
        ).rstrip(),
        CAVEATS,
    ]
    return "\n\n".join(parts) + "\n"
