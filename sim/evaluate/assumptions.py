# SPDX-License-Identifier: Apache-2.0
"""How far the model can be trusted: what the speed-ups hang on, and everything published beside
what the model says."""

import numpy as np

from sim.evaluate.machine.compute import Gemm, grouped_gemm_us
from sim.evaluate.machine.hardware import load_data, machine
from sim.evaluate.machine.network_settings import HUB_GHZ
from sim.evaluate.machine.workload import SKEW_EXPERTS, TYPICAL_SKEW
from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.schemes import SCHEMES
from sim.workload.models import model as shape

from .host import extreme
from .own_machine import machine_asked
from .predictions import PAGE as RECORD
from .predictions import blind
from .published import figures, median_error, points_of
from .published import rows as asked
from .published_machines import fitted_of
from .study import (
    HUB,
    JUDGED,
    PAPER_SYSTEMS,
    Report,
    grid,
    mean,
    models_of,
    speedup,
    systems_of,
    tokens_of,
)
from .systems import SYSTEMS, constants, parameters

__all__ = [
    "gemm_report",
    "published_points",
    "published_report",
    "sensitivity_points",
    "sensitivity_report",
]

#: name: (where it is: the machine's ``gpu`` or ``fabric``, or a section of systems.toml; factors)
ASSUMPTIONS = {
    "bf16_efficiency": ("gpu", 0.75, 1.15),
    "hbm_efficiency": ("gpu", 0.8, 1.2),
    "tile_overhead_us": ("gpu", 0.5, 2.0),
    "l2_mbytes": ("gpu", 0.5, 2.0),
    "sm_copy_gbps": ("gpu", 0.5, 2.0),
    "launch_us": ("gpu", 0.5, 2.0),
    "launch_latency_us": ("gpu", 0.5, 2.0),
    "kernel_gap_us": ("gpu", 0.5, 2.0),
    "host_sync_us": ("gpu", 0.5, 2.0),
    "poll_us": ("gpu", 0.5, 2.0),
    "hop_ns": ("fabric", 0.5, 2.0),
    "link_gbps": ("fabric", 0.5, 2.0),
    "header_flits": ("fabric", 1.0, 2.0),
    "eager_op_us": ("host", 0.5, 2.0, 4.0),
    "simple_base_us": ("nccl", 0.5, 2.0),
    "ll_base_us": ("nccl", 0.5, 2.0),
    "chunk_bytes": ("nccl", 0.25, 1.0),
    "channels": ("nccl", 0.5, 1.0),
    "nccl_channel_gbps": ("gpu", 0.5, 2.0),
}


def _fitted():
    """(section of systems.toml, constant, (less, more)) of all that are fitted."""
    for part in SYSTEMS:
        for name, (_, low, high, _) in parameters(part).items():
            now = getattr(constants(part), name)
            yield part, name, (max(low, 3 * now / 4), min(high, 4 * now / 3))


def _schemes_of(part):
    """The systems that a section of systems.toml is about; NCCL's are those that use it."""
    if part == "nccl":
        return PAPER_SYSTEMS
    return tuple(name for name in SCHEMES if name == part or name.startswith(f"{part}_fp"))


def _cases(options):
    """{(assumption, value): points}; the first case changes nothing."""
    systems, tokens = systems_of(options, PAPER_SYSTEMS), tokens_of(options, (512, 8192))
    preset = machine_asked(options.machine or JUDGED, 8)
    fitted = [name for part, *_ in _fitted() for name in _schemes_of(part)]
    everything = systems_of(options, (*PAPER_SYSTEMS, *fitted))
    cases = {("as it is", ""): grid(options, everything, models_of(options), tokens)}
    for name, (part, *factors) in ASSUMPTIONS.items():
        of_machine = part in ("gpu", "fabric")
        now = getattr(getattr(preset, part) if of_machine else constants(part), name)
        for value in [type(now)(now * factor) for factor in factors if factor != 1.0]:
            changed = (
                {part: ((name, value),)} if of_machine else {"constants": ((part, name, value),)}
            )
            cases[name, f"{value:g}"] = grid(
                options, systems, models_of(options), tokens, **changed
            )
    # What was fitted is an assumption too: three quarters and four thirds of it, within its bounds.
    for part, name, values in _fitted():
        for value in values:
            cases[f"{part}.{name}", f"{value:.4g}"] = grid(
                options,
                systems_of(options, _schemes_of(part)),
                models_of(options),
                tokens,
                constants=((part, name, value),),
            )
    for skew in (0.0, 0.05):
        cases["skew", f"{skew:g}"] = grid(options, systems, models_of(options), tokens, skew=skew)
    for name, high in (("least", False), ("most", True)):
        cases["all host costs", name] = grid(
            options, systems, models_of(options), tokens, constants=extreme(high)
        )
    # The paper's number taken as that of each expert, however many there are, in place of holding
    # the coefficient of variation.
    cases["skew of each expert", f"{TYPICAL_SKEW:g}"] = [
        point
        for model in models_of(options)
        for point in grid(
            options,
            systems,
            (model,),
            tokens,
            skew=TYPICAL_SKEW * shape(model).experts / SKEW_EXPERTS,
        )
    ]
    for ghz in (HUB_GHZ / 2, HUB_GHZ / 8):
        cases["hub's clock, GHz", f"{ghz:g}"] = grid(
            options, systems, models_of(options), tokens, network=(("hub_ghz", ghz),)
        )
    return cases


def sensitivity_points(options):
    return [point for points in _cases(options).values() for point in points]


def sensitivity_report(options, results):
    summary, base = [], None
    for (name, value), points in _cases(options).items():
        systems = [system for system in dict.fromkeys(p.system for p in points) if system != HUB]
        means = {s: mean(speedup(results, p) for p in points if p.system == s) for s in systems}
        base = base or means
        summary.append(
            {"assumption": name, "value": value}
            | {system: means.get(system) for system in base}
            | {
                "largest change, %": 100
                * max((abs(means[s] / base[s] - 1) for s in systems), default=0.0)
            }
        )
    shown = [row for row in summary if "." not in row["assumption"]]
    panel = Panel(
        title="mean speed-up of the hub",
        kind="bars",
        x=tuple(f"{row['assumption']} {row['value']}" for row in shown),
        ylabel="a system's time over the hub's",
        line=1.0,
        series={s: tuple(row[s] for row in shown) for s in systems_of(options, PAPER_SYSTEMS)[:-1]},
    )
    return Report(
        rows=summary,
        summary=summary,
        plot=Plot(title="What the speed-ups hang on", panels=[panel], columns=1),
    )


def gemm_report(options, results):
    data = load_data("gemm_published.toml")
    gpu, rows = machine(data["machine"], 8).gpu, []
    for entry in data["measured"]:
        gemm = Gemm(entry["n"], entry["k"], "fp8", 1)
        us = grouped_gemm_us(gpu, gemm, [entry["rows"]] * entry["groups"])
        ours = entry["groups"] * gemm.flops(entry["rows"]) / us / 1e6
        rows.append(entry | {"ours": ours, "error, %": 100 * (ours / entry["tflops"] - 1)})
    errors = [abs(row["error, %"]) for row in rows if row["role"] == "test"]
    x = tuple(f"{row['groups']}x{row['rows']}x{row['n']}x{row['k']}" for row in rows)
    panel = Panel(
        title="FP8 on H800",
        kind="bars",
        x=x,
        ylabel="TFLOP/s",
        series={
            "published": tuple(r["tflops"] for r in rows),
            "model": tuple(r["ours"] for r in rows),
        },
    )
    return Report(
        rows=rows,
        summary=rows,
        plot=Plot(title="Grouped GEMM model against DeepGEMM", panels=[panel]),
        notes=[
            data["source"],
            f"median error of the rows not fitted on: {np.median(errors):.1f} %",
        ],
    )


def _wanted(options):
    return lambda figure: (
        figure.role in ("fit", "test") and (not options.systems or figure.system in options.systems)
    )


def published_points(options):
    """The layers that figures are about."""
    return [
        point
        for figure in figures()
        if _wanted(options)(figure)
        for layers in points_of(figure).values()
        for point in layers
    ]


def published_report(options, results):
    """Every published figure that the model can be asked, of the systems chosen: ours, error,
    whether its target is met."""
    found = asked(_wanted(options), results=results)
    record = RECORD.read_text(encoding="utf-8")
    summary = [
        {
            "figure": row.figure.id,
            "role": row.figure.role,
            "published": float(row.figure.value),
            "ours": float(row.ours),
            "unit": row.figure.unit,
            "error, %": 100 * row.error,
            "target, %": 100 * row.figure.target,
            "met": "yes" if row.met else "no",
            "blind": "yes" if blind(row.figure.id, record) else "",
            "workload": row.figure.workload or row.figure.set or "",
        }
        for row in found
    ]
    rows = [
        row
        | {
            name: getattr(one.figure, name)
            for name in ("system", "metric", "group", "hardware", "source", "note")
        }
        | fitted_of(one.figure.hardware)
        for row, one in zip(summary, found, strict=True)
    ]
    notes = []
    for role, group in dict.fromkeys((row.figure.role, row.figure.group) for row in found):
        own = [row for row in found if (row.figure.role, row.figure.group) == (role, group)]
        notes.append(
            f"{role}{', ' + group if group else ''}: {len(own)} figures, median error "
            f"{100 * median_error(own, role, group):.1f} %, {sum(row.met for row in own)} "
            "within their targets"
        )
    panel = Panel(
        title="every figure",
        kind="bars",
        x=tuple(row["figure"] for row in summary),
        ylabel="ours over the published one",
        line=1.0,
        series={
            role: tuple(
                row["ours"] / row["published"] if row["role"] == role else None for row in summary
            )
            for role in ("fit", "test")
        },
    )
    return Report(
        rows=rows,
        summary=summary,
        notes=notes,
        plot=Plot(title="Published figures", panels=[panel], columns=1),
    )
