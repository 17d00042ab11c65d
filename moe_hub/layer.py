# SPDX-License-Identifier: Apache-2.0
"""A whole MoE layer on the generated Verilog, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.config import preset as preset_of
from sim.system.building import build
from sim.system.fabric import HOP_NS, cycle_ns, one_way
from sim.system.figures import TIMES, layer_report
from sim.system.history import BIN, USES, History, history, link_use
from sim.system.layer import MARK_START, plan_layer
from sim.system.views import write_views
from sim.system.ways import WAYS
from sim.workload.asked import asked_routing, asked_shape

from .files import write_text
from .limits import checked, one_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LIMITS", "LONGEST", "Run", "Tells", "run"]

LONGEST = 10**9  # cycles that a wait can be told to take

#: Smallest and largest value of each number that an order has.
LIMITS = {
    "ranks": (2, 128),
    "tokens": (0, 1 << 20),
    "lanes": (1, 32),
    "hot": (0, 100),
    "experts": (1, 2048),
    "row_bytes": (16, 16384),
    "packet_bytes": (128, 256),
    "tile_rows": (1, 1024),
    "expert_cycles": (0, LONGEST),
    "hop_ns": (0, 1_000_000),
    "memory_latency": (1, 1 << 20),
    "prefix_cycles": (0, LONGEST),
    "threads": (1, 128),
    "max_cycles": (1, 10**12),
    "seed": (0, 2**32 - 1),
}


class Tells(Protocol):
    """Who is told how far a run is."""

    def stage(self, text: str) -> object:
        """Something else begins."""

    def show(self, text: str) -> object:
        """How far it is; called often."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What ``run`` found.

    ``config``: of every hub. ``reports``: by way (``hub``, then the baselines), figures as
    ``report.json`` has them; cycles are of the hub's clock. ``histories``: by way, what happened in
    the order of time, of those that ended before ``max_cycles``.
    """

    config: HubConfig
    reports: Mapping[str, dict[str, Any]]
    histories: Mapping[str, History]

    @property
    def good(self) -> bool:
        """Every byte, event and register of every way is as the golden model says."""
        return not any(self.differences.values())

    @property
    def differences(self) -> dict[str, list[str]]:
        """By way, a line for each thing that is not as the golden model says; empty lists are
        good."""
        return {way: report["differences"] for way, report in self.reports.items()}

    @property
    def ended(self) -> bool:
        """No way was stopped at ``max_cycles``."""
        return self.reports.keys() == self.histories.keys()

    def us(self, cycles: float) -> float:
        """Microseconds that so many cycles of the hub's clock take."""
        return cycles * cycle_ns(self.config) / 1000

    def frame(self) -> pd.DataFrame:
        """A row for each way that ended.

        Index ``way``; ``title``; ``first_usable_us``, ``median_usable_us``, ``last_usable_us``:
        when a consumer could begin with its first, median and last tile (or set of rows);
        ``layer_us``;
        ``layer_over_hub``: its time over the hub's; ``efficiency``: share of the layer that the
        fullest link needs; ``links_busy``: mean share; ``packets``, ``link_bytes``, ``stores``,
        ``rows``; ``mismatches``, bytes and events that are wrong.
        """
        pandas = _pandas()
        hub = self.reports["hub"].get("layer_cycles")
        rows = {
            way: {
                "title": WAYS[way].title,
                **{f"{name.replace(' ', '_')}_us": self._us(of(report)) for name, of in TIMES},
                "layer_over_hub": report["layer_cycles"] / hub if hub else None,
                **{
                    name: report[name]
                    for name in (
                        "efficiency",
                        "links_busy",
                        "packets",
                        "link_bytes",
                        "stores",
                        "rows",
                        "mismatches",
                    )
                },
            }
            for way, report in self.reports.items()
            if way in self.histories
        }
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("way")

    def _us(self, cycles):
        return None if cycles is None else self.us(cycles)

    def links(self) -> pd.DataFrame:
        """What the links did, in the order of time: a row for each way, rank, bin and use.

        ``way``, ``rank``, ``us`` (start of the bin, since the layer's start), ``use`` (in words: of
        ``sim.system.history.USES``), ``share``: of that rank's links in that bin, 0 to 1.
        """
        return _pandas().DataFrame(self._links())

    def _links(self) -> Iterator[dict[str, Any]]:
        for way, told in self.histories.items():
            cycles = told.use.sum(axis=2)
            for rank, bins in enumerate(cycles):
                for number, uses in enumerate(bins):
                    total = max(1, uses.sum())
                    for kind, use in USES.items():
                        yield {
                            "way": way,
                            "rank": rank,
                            "us": self.us(number * told.bin),
                            "use": use.words,
                            "share": uses[kind] / total,
                        }

    def usable(self) -> pd.DataFrame:
        """When each tile, or set of rows, could be used: ``way``, ``rank``, ``us`` since the
        layer's start, in the order of time."""
        return _pandas().DataFrame(
            [
                {"way": way, "rank": rank, "us": self.us(cycle)}
                for way, told in self.histories.items()
                for rank, cycles in enumerate(told.usable)
                for cycle in cycles
            ],
            columns=["way", "rank", "us"],
        )

    def tiles(self) -> pd.DataFrame:
        """The hub's tiles in the order of their READY: ``rank``, ``region``, ``tile`` (its number
        in the region), ``rows``, ``first_us`` (a slot was taken for its first row),
        ``ready_us``."""
        told = self.histories.get("hub")
        return _pandas().DataFrame(
            [
                {
                    "rank": rank,
                    "region": tile.region,
                    "tile": tile.number,
                    "rows": tile.rows,
                    "first_us": self.us(tile.first),
                    "ready_us": self.us(tile.ready),
                }
                for rank, tiles in enumerate(told.tiles if told else [])
                for tile in tiles
            ],
            columns=["rank", "region", "tile", "rows", "first_us", "ready_us"],
        )

    def write(self, folder: str | Path) -> list[Path]:
        """Writes ``report.json`` and the files of ``sim.system.views.VIEWS`` that there is
        something to show in; returns their paths. Raises OSError."""
        folder = Path(folder)
        report = folder / "report.json"
        write_text(report, json.dumps(self.reports, indent=1) + "\n")
        return [report, *write_views(self.histories, self.reports, folder)]

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return self.frame().round(3).to_html()


def _pandas():
    """The library; read late, a second of every command that draws no table of it."""
    import pandas

    return pandas


class _Silent:
    """Is told, says nothing."""

    def stage(self, text):
        pass

    show = stage


def simulate(tell, title, system, folder, plan):
    """Builds and runs; returns the result."""
    tell.stage(f"{title}: building {plan.cfg.ranks} hubs from Verilog")
    program = build(plan.cfg)
    tell.stage(f"{title}: simulating")

    def show(cycle, done, seconds):
        rate = cycle * plan.cfg.ranks / max(seconds, 0.1)
        tell.show(
            f"{title}: cycle {cycle:,}, {done} of {plan.cfg.ranks} ranks done, {rate:,.0f} "
            "hub cycles/s"
        )

    return system.run(program, folder=folder, progress=show)


def run(
    model: str = "deepseek-v3",
    *,
    ranks: int = 8,
    tokens: int = 16,
    lanes: int | None = None,
    trace: str | Path | None = None,
    hot: int | None = None,
    experts: int | None = None,
    row_bytes: int | None = None,
    packet_bytes: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, int] | None = None,
    tile_rows: int | None = None,
    numbering: str = "token",
    order: str = "token",
    expert_cycles: int = 200,
    hop_ns: float = HOP_NS,
    memory_latency: int = 20,
    baselines: Sequence[str] = (),
    close_at_end: bool = False,
    prefix_cycles: int = 500,
    threads: int = 2,
    max_cycles: int = 50_000_000,
    seed: int = 1,
    keep: str | Path | None = None,
    progress: Tells | None = None,
) -> Run:
    """Runs one MoE layer through the generated Verilog of ``ranks`` hubs and compares every byte,
    event and register with the golden model.

    Minutes for a real layer; the harness is built once for each configuration (a minute) and kept
    in ``build/``. Same order, same result, whatever ``threads`` is.

    Parameters:
        model: Shape of the layer, a name of ``sim.workload.models.MODELS``.
        ranks: GPUs, each with its hub.
        tokens: Per rank; 0 with ``trace``: all of the log.
        lanes: Lanes of each hub; the preset's by default.
        trace: File of a routing log (docs/routing_log.md) in place of made-up routing.
        hot: Percent of made-up choices that go to experts of rank 0.
        experts: In place of the model's.
        row_bytes: Bytes of a dispatched row without its return column, in place of the model's.
        packet_bytes: Largest payload of a packet, bytes: 128, or the preset's.
        preset: Hubs of this preset in place of a roomy one.
        changes: Fields of the configuration, in place of the preset's.
        tile_rows: Rows of a tile, a power of two.
        numbering: What a RowID is, a name of ``sim.workload.numbering.NUMBERINGS``.
        order: In which a rank stores its rows, a name of ``sim.system.layer.ORDERS``.
        expert_cycles: Cycles of the hub that the expert stand-in takes per tile.
        hop_ns: Nanoseconds of a hop; a packet takes two, hub to switch and switch to hub.
        memory_latency: Cycles until memory answers, also for spilled rows.
        baselines: Ways of software to run the same layer beside the hub, names of
            ``sim.system.ways.BASELINES``.
        close_at_end: Producers do not tell what comes; they close when all is stored.
        prefix_cycles: Cycles of the prefix sums of baseline ``address``.
        threads: Of the simulation.
        max_cycles: Watchdog, cycles; a way that takes longer has not ended.
        seed: Of data and made-up routing.
        keep: Folder in which logs and memory images stay, one folder for each way.
        progress: Is told how far the run is.

    Returns:
        The ``Run``; look at ``Run.good``: a wrong byte does not raise.

    Raises:
        ValueError: The order is wrong (of ``hub_rtl.contract.config.ConfigError``, what the
            hubs cannot be).
        OSError: The log cannot be read.
        sim.system.building.HarnessError: The simulation could not be built.
    """
    asked = locals()
    checked(LIMITS, **{name: asked[name] for name in LIMITS})
    baselines = [one_of("baselines", WAYS, name) for name in baselines]
    tell = progress or _Silent()
    log = None if trace is None else Path(trace)
    shape = asked_shape(model, log, experts, row_bytes)
    plan = plan_layer(
        shape,
        asked_routing(shape, log, ranks, tokens, seed, hot),
        ranks=ranks,
        lanes=lanes,
        tile_rows=tile_rows,
        seed=seed,
        packet_bytes=packet_bytes,
        base=preset_of(preset) if preset else None,
        changes=dict(changes or {}),
        numbering=numbering,
        order=order,
    )
    cycles = one_way(hop_ns, plan.cfg)
    surroundings = {
        "latency": cycles,
        "window": cycles,
        "mem_latency": memory_latency,
        "threads": threads,
        "max_cycles": max_cycles,
        "bin": BIN,
        "bin_from": MARK_START,
        "seed": seed,
        "expert_cycles": expert_cycles,
    }
    own = {
        "hub": {"close_at_end": close_at_end},
        "address": {"prefix_cycles": prefix_cycles},
    }
    systems = {
        name: WAYS[name].programs(plan, **surroundings, **own.get(name, {}))
        for name in dict.fromkeys(["hub", *baselines])
    }
    reports, histories = {}, {}
    for name, system in systems.items():
        title = WAYS[name].title
        result = simulate(tell, title, system, Path(keep) / name if keep else None, plan)
        tell.stage(f"{title}: comparing every byte with the golden model")
        verdict = WAYS[name].check(plan, result)
        if result.timed_out:
            reports[name] = {"way": name, "differences": verdict.differences}
        else:
            histories[name] = history(plan, result, name)
            reports[name] = layer_report(plan, result, verdict, name) | {
                "latency_cycles": cycles,
                "link_use": link_use(histories[name]),
            }
        if not keep:
            result.remove()
    return Run(config=plan.cfg, reports=reports, histories=histories)
