# SPDX-License-Identifier: Apache-2.0
"""The targets, and what was found for each."""

from dataclasses import dataclass

from .census import UNITS
from .peers import LUT_RATIO, peer_of
from .processes import memory_area, process_of
from .sweeps import fit_line, lane_and_shared

__all__ = [
    "BLOCK_MHZ",
    "HUB_MHZ",
    "HUB_MM2",
    "LANE_KGE",
    "SHARED_KGE",
    "TARGET_PRESET",
    "Target",
    "area_of_hub",
    "clock_targets",
    "judge",
    "sweep_values",
]

TARGET_PRESET = "fpga"  # of the clocks on an FPGA
BLOCK_MHZ, HUB_MHZ = 150, 125  # ECP5-85F, speed 8, out of context
SEEDS = 3  # placements that a median is taken of, at least
LANE_KGE, SHARED_KGE = 100, 60  # 8 ranks, 256 regions, memories apart
HUB_MM2 = 0.49  # the paper's figure for its hub, 7 nm
ELABORATION_SECONDS = 120
OFF_THE_LINE = 0.05  # largest distance of a point from the line through the lanes
LEAST_SEEDS = f"median of fewer than {SEEDS} seeds"


@dataclass(frozen=True)
class Target:
    """text: what is asked. value: what was found. met: True, False, or None when it was not
    measured."""

    text: str
    value: str
    met: bool | None

    @property
    def word(self):
        return {True: "met", False: "MISSED", None: "not measured"}[self.met]


def clock_targets(found):
    """Targets of ``{part: {"ecp5": figures}}``: clock, and LUTs beside the peer's."""
    for name, flows in found.items():
        figures, peer = flows.get("ecp5"), peer_of(name)
        goal = HUB_MHZ if name == "hub" else BLOCK_MHZ
        few = bool(figures) and len(figures["runs"]) < SEEDS
        yield Target(
            f"{name}: at least {goal} MHz on ECP5",
            "-"
            if not figures
            else f"{figures['mhz']:.0f} MHz" + (f", {LEAST_SEEDS}" if few else ""),
            None if not figures or few else figures["mhz"] >= goal,
        )
        if peer:
            most = LUT_RATIO * peer.lut
            yield Target(
                f"{name}: at most {LUT_RATIO:g} times the LUTs of {peer.name} ({peer.lut:,})",
                f"{figures['lut']:,} LUTs, {figures['lut'] / peer.lut:.2f} times"
                if figures
                else "-",
                figures["lut"] <= most if figures else None,
            )


def judge(measurement):
    """Every :class:`Target` of area and clock, in the order of the page."""
    found = measurement.blocks()
    yield from clock_targets(found)
    cfg = measurement.hub_cfg
    for library in (None, *measurement.libraries):
        census = measurement.census(cfg, library)
        title = process_of(library).title if library else "NAND2 equivalents"
        lane = shared = None
        if census:
            figures, counts = census
            lane, shared, _ = lane_and_shared(
                {name: each["kge"] for name, each in figures.items()}, counts, cfg
            )
        for what, kge, most in (("one lane", lane, LANE_KGE), ("shared part", shared, SHARED_KGE)):
            yield Target(
                f"{what}: at most {most} kGE, {title}",
                "-" if kge is None else f"{kge:.1f} kGE",
                None if kge is None else kge <= most,
            )
    timed = [library for library in measurement.libraries if process_of(library).limit_ps]
    for library in timed:
        process, whole = process_of(library), measurement.whole(library)
        yield Target(
            f"whole lane: at most {process.limit_ps:g} ps register to register, {process.title}",
            f"{whole['ps']:.0f} ps, {whole['start']} → {whole['end']}" if whole else "-",
            whole["ps"] <= process.limit_ps if whole else None,
        )
    if not timed:
        yield Target(
            "whole lane: at most 640 ps register to register, ASAP7", "library not given", None
        )
    seconds = measurement.elaboration_seconds()
    yield Target(
        f"hub of {cfg.lanes} lanes elaborated, Python to RTLIL: under {ELABORATION_SECONDS} "
        "s of CPU time",
        "-" if seconds is None else f"{seconds:.0f} s",
        None if seconds is None else seconds < ELABORATION_SECONDS,
    )
    dense = [library for library in measurement.libraries if process_of(library).bit_um2]
    for library in dense:
        area = area_of_hub(measurement, library)
        total = (
            area
            and sum(logic + memory for name, (_, logic, memory) in area.items() if _mechanism(name))
            / 1e6
        )
        yield Target(
            f"what the mechanism adds, {cfg.lanes} lanes: under {HUB_MM2} mm², "
            f"{process_of(library).title}",
            "-" if total is None else f"{total:.3f} mm²",
            None if total is None else total < HUB_MM2,
        )
    if not dense:
        yield Target(
            f"what the mechanism adds, {cfg.lanes} lanes: under {HUB_MM2} mm², ASAP7",
            "library not given",
            None,
        )
    for name, sweep in measurement.sweeps.items():
        refusal, points = sweep.refusal(), None
        if refusal:
            yield Target(f"sweep over {sweep.axis}", f"not possible: {refusal}", False)
            continue
        points = sweep_values(measurement, sweep)
        if name == "lanes":
            line = points and fit_line([x for x, *_ in points], [total for *_, total in points])
            yield Target(
                f"area grows linearly with lanes: no point further than {OFF_THE_LINE:.0%} "
                "from the line",
                f"{line.slope:.1f} kGE per lane, R² {line.r2:.5f}, furthest {line.worst:.1%}"
                if line
                else "-",
                line.worst <= OFF_THE_LINE if line else None,
            )
        else:
            yield Target(
                f"sweep over {sweep.axis} measured",
                f"{len(points)} points" if points else "-",
                True if points else None,
            )


def _mechanism(name):
    return name in UNITS and UNITS[name].mechanism


def area_of_hub(measurement, library):
    """``{unit: (instances, µm² of logic, µm² of memories)}`` of the reference hub, sums over the
    instances; None when a unit, or the size of a bit, is not known."""
    cfg, process = measurement.hub_cfg, process_of(library)
    mapped, plain = measurement.census(cfg, library), measurement.census(cfg)
    if not mapped or not plain or process.bit_um2 is None:
        return None
    return {
        name: (
            count,
            count * mapped[0][name]["area"],
            count * memory_area(plain[0][name]["memories"], process, library),
        )
        for name, count in plain[1].items()
    }


def sweep_values(measurement, sweep, library=None):
    """``[(value, lane kGE, shared kGE, hub kGE)]`` of a sweep, or None when a point is missing."""
    points = []
    for value, cfg in sweep.configurations():
        census = measurement.census(cfg, library)
        if census is None:
            return None
        points.append(
            (
                value,
                *lane_and_shared(
                    {name: each["kge"] for name, each in census[0].items()}, census[1], cfg
                ),
            )
        )
    return points
