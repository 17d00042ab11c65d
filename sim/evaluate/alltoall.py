# SPDX-License-Identifier: Apache-2.0
"""NCCL's all-to-all by size, beside every published time of one."""

from statistics import median

from sim.evaluate.page.charts import Panel, Plot
from sim.evaluate.schemes import nccl

from .own_machine import machine_asked
from .published import figures, nccl_alltoall_us
from .published_machines import hardware
from .study import Report
from .systems import replaced

__all__ = ["SIZES", "alltoall_report"]

SIZES = tuple(1 << power for power in range(12, 31, 2))  # bytes of a rank, its own part included
#: Those with a published time, and the one that is judged: hardware of published.toml, GPUs.
MACHINES = (("h100", 4), ("h100", 8), ("h20", 8), ("b200", 8), ("h800", 8))


def _published():
    """{(machine, GPUs, bytes): figure} of all-to-alls."""
    return {
        (one.hardware, one.ranks, one.options["bytes"]): one
        for one in figures()
        if one.metric == "alltoall_us"
    }


def _machines(options):
    """[(name, machine)] as asked for, or of :data:`MACHINES`."""
    if options.machine or options.ranks is not None:
        made = machine_asked(options.machine or "h100", options.ranks or 8)
        found = [(made.name, made)]
    else:
        found = [(name, hardware(name, ranks)[0]) for name, ranks in MACHINES]
    gpu, fabric = dict(options.gpu), dict(options.fabric)
    return [(name, made.changed(gpu=gpu, fabric=fabric)) for name, made in found]


def _row(name, made, size, figure):
    us, how = nccl_alltoall_us(name, made, size), nccl.way(made, size // made.ranks)
    return {
        "machine": name,
        "GPUs": made.ranks,
        "bytes": size,
        "protocol": "LL" if how.low_latency else "Simple",
        "channels per peer": how.channels,
        "us": us,
        "GB/s": size * (made.ranks - 1) / made.ranks / us / 1e3,
        "published, us": figure.value if figure else None,
        "error, %": 100 * (us / figure.value - 1) if figure else None,
        "role": figure.role if figure else "",
    }


def _kbytes(size):
    return size / 1024 if size % 1024 else size // 1024


def alltoall_report(options, results):
    known, rows = _published(), []
    with replaced(options.constants):
        for name, made in _machines(options):
            own = {size for machine, ranks, size in known if (machine, ranks) == (name, made.ranks)}
            for size in sorted({*SIZES, *own}):
                rows.append(_row(name, made, size, known.get((name, made.ranks, size))))
    notes = ["GB/s: what crosses the links, per GPU and direction"]
    panels = []
    for name, ranks in dict.fromkeys((row["machine"], row["GPUs"]) for row in rows):
        own = [row for row in rows if (row["machine"], row["GPUs"]) == (name, ranks)]
        errors = [abs(row["error, %"]) for row in own if row["role"] == "test"]
        if errors:
            notes.append(
                f"{ranks} x {name}: {len(errors)} figures not fitted on, median error "
                f"{median(errors):.1f} %"
            )
        panels.append(
            Panel(
                title=f"{ranks} x {name}",
                kind="lines",
                x=tuple(_kbytes(row["bytes"]) for row in own),
                xlabel="KB of a GPU",
                ylabel="us",
                log_x=True,
                log_y=True,
                series={
                    "model": tuple(row["us"] for row in own),
                    "published": tuple(row["published, us"] for row in own),
                },
            )
        )
    errors = [abs(row["error, %"]) for row in rows if row["role"] == "test"]
    if errors:
        notes.append(f"all: {len(errors)} figures, median error {median(errors):.1f} %")
    plot = Plot(title="NCCL's all-to-all", panels=panels, columns=2)
    return Report(rows=rows, summary=rows, plot=plot, notes=notes)
