# SPDX-License-Identifier: Apache-2.0
"""What a token's bytes cost on the links."""

from sim.evaluate.machine.hardware import load_data
from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.study import (
    ABLATIONS,
    HUB,
    IN_SWITCH,
    PAPER_SYSTEMS,
    Report,
    grid,
    rows_of,
    systems_of,
    tokens_of,
)

from .shared import BASELINE_MODELS, BASELINES, by_model, cases

__all__ = ["energy_points", "energy_report"]

ENERGY_TOKENS = 8192


def energy_points(options):
    return grid(
        options,
        systems_of(
            options,
            (*PAPER_SYSTEMS, "deepep_v1_normal", ABLATIONS[0], *BASELINES[:-1], *IN_SWITCH),
        ),
        options.models or BASELINE_MODELS,
        tokens_of(options, (ENERGY_TOKENS,)),
    )


def energy_report(options, results):
    """Energy of the links alone: memory, switch and everything that computes are not in it."""
    points = [point for point in energy_points(options) if results[point].wire_bytes]
    link = {name: entry["value"] for name, entry in load_data("energy.toml")["link"].items()}

    def microjoules(point):
        bits = 8 * results[point].wire_bytes * link["hops"]
        return bits * link["pj_per_bit"] * 1e-6 / point.tokens

    summary = []
    for (model, tokens), own in cases(points, lambda p: (p.model, p.tokens)).items():
        hub = next(microjoules(point) for point in own if point.system == HUB)
        for point in own:
            result = results[point]
            summary.append(
                {
                    "model": model,
                    "tokens": tokens,
                    "system": point.system,
                    "wire, bytes per token": result.wire_bytes / tokens,
                    "of it payload, %": 100 * result.payload_bytes / result.wire_bytes,
                    "links, uJ per token": microjoules(point),
                    "over the hub": microjoules(point) / hub,
                }
            )
    panels = [
        Panel(
            title=model,
            kind="bars",
            x=tuple(row["system"] for row in own),
            series={"links": tuple(row["links, uJ per token"] for row in own)},
            ylabel="µJ per token and layer",
        )
        for model, own in by_model(summary).items()
    ]
    return Report(
        rows=[
            row | {"links, uJ per token": microjoules(point)}
            for row, point in zip(rows_of(results, points), points, strict=True)
        ],
        summary=summary,
        plot=Plot(title="Energy on the links, a layer there and back", panels=panels),
        notes=[
            f"{link['pj_per_bit']} pJ per bit and link, {link['hops']} links; headers, flags and "
            "credits are in it, memory and the switch are not"
        ],
    )
