# SPDX-License-Identifier: Apache-2.0
"""The targets, and what was found for each."""

from dataclasses import dataclass

from .census import UNITS
from .peers import LUT_RATIO, peer_of
from .processes import memory_area, process_of
from .sweeps import fit_line, slice_and_shared

__all__ = [
    "FPGA_MHZ",
    "TARGET_PRESET",
    "Target",
    "area_of_hub",
    "fpga_targets",
    "judge",
    "sweep_values",
]

TARGET_PRESET = "fpga"  # of what is asked on an FPGA
FPGA_MHZ, FPGA_GBS, FPGA_LUT = 100, 6, 65_000  # whole hub, ECP5-85F, speed 8
SEEDS = 3  # placements that a median is taken of, at least, where the clock is near the target:
NEAR = 0.1  # placements differ by less
HUB_KGE, LINK_GBS, KGE_PER_GBS = 1500, 25, 3.3  # 8 ranks, 256 regions, memories apart
MECHANISM_MM2 = 0.32  # the paper: 0.49 for its hub, 7 nm
BUFFERS_MM2 = 0.30  # the receive pools of all slices
ELABORATION_SECONDS = 120
OFF_THE_LINE = 0.05  # largest distance of a point from the line through the lanes
NOT_GIVEN = "library not given"
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


def fpga_targets(found, slice_bytes):
    """Targets of ``{part: {"ecp5": figures}}``: the hub's clock, payload and size, and the LUTs of
    blocks beside the peer's."""
    for name, flows in found.items():
        figures, peer = flows.get("ecp5"), peer_of(name)
        if name == "hub":
            few = bool(figures) and len(figures["runs"]) < SEEDS
            mhz = figures["mhz"] if figures else 0
            gbs = mhz * slice_bytes / 1000
            near = few and abs(min(mhz / FPGA_MHZ, gbs / FPGA_GBS) - 1) < NEAR
            yield Target(
                f"hub: a slice carries at least {FPGA_GBS} GB/s at {FPGA_MHZ} MHz or more on ECP5",
                f"{gbs:.1f} GB/s at {mhz:.0f} MHz" + (f", {LEAST_SEEDS}" if few else "")
                if figures
                else "-",
                None if not figures or near else mhz >= FPGA_MHZ and gbs >= FPGA_GBS,
            )
            yield Target(
                f"hub: at most {FPGA_LUT:,} LUTs on ECP5",
                f"{figures['lut']:,} LUTs" if figures else "-",
                figures["lut"] <= FPGA_LUT if figures else None,
            )
        elif peer and peer.judged:
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
    cfg = measurement.hub_cfg
    yield from fpga_targets(measurement.blocks(), measurement.block_cfg.slice_bytes)
    gbs = cfg.lanes * cfg.slice_links * LINK_GBS
    for library in (None, *measurement.libraries):
        census = measurement.census(cfg, library)
        title = process_of(library).title if library else "NAND2 equivalents"
        kge = census and sum(each["kge"] * census[1][name] for name, each in census[0].items())
        yield Target(
            f"hub: at most {HUB_KGE:,} kGE and {KGE_PER_GBS} kGE per GB/s, {title}",
            f"{kge:,.0f} kGE, {kge / gbs:.1f} per GB/s" if kge else "-",
            kge <= HUB_KGE and kge / gbs <= KGE_PER_GBS if kge else None,
        )
    timed = [library for library in measurement.libraries if process_of(library).limit_ps]
    for library in timed:
        process, whole = process_of(library), measurement.whole(library)
        yield Target(
            f"a slice and all that is shared: at most {process.limit_ps:g} ps register to "
            f"register, {process.title}",
            f"{whole['ps']:.0f} ps, {whole['start']} → {whole['end']}" if whole else "-",
            whole["ps"] <= process.limit_ps if whole else None,
        )
    if not timed:
        yield Target("a slice and all that is shared: register to register", NOT_GIVEN, None)
    seconds = measurement.elaboration_seconds()
    yield Target(
        f"hub of {cfg.lanes} slices elaborated, Python to RTLIL: under {ELABORATION_SECONDS} "
        "s of CPU time",
        "-" if seconds is None else f"{seconds:.0f} s",
        None if seconds is None else seconds < ELABORATION_SECONDS,
    )
    dense = [library for library in measurement.libraries if process_of(library).bit_um2]
    for what, most, counted in (
        ("what the mechanism adds", MECHANISM_MM2, _mechanism),
        ("receive pools", BUFFERS_MM2, "receive_pool".__eq__),
    ):
        for library in dense:
            area = area_of_hub(measurement, library)
            total = area and sum(
                (logic + memory) / 1e6 for name, (_, logic, memory) in area.items() if counted(name)
            )
            yield Target(
                f"{what}: at most {most} mm², {process_of(library).title}",
                "-" if total is None else f"{total:.3f} mm²",
                None if total is None else total <= most,
            )
        if not dense:
            yield Target(f"{what}: at most {most} mm²", NOT_GIVEN, None)
    for name, sweep in measurement.sweeps.items():
        refusal, points = sweep.refusal(), None
        if refusal:
            yield Target(f"sweep over {sweep.axis}", f"not possible: {refusal}", False)
            continue
        points = sweep_values(measurement, sweep)
        if name == "lanes":
            line = points and fit_line([x for x, *_ in points], [total for *_, total in points])
            yield Target(
                f"area grows linearly with slices: no point further than {OFF_THE_LINE:.0%} "
                "from the line",
                f"{line.slope:.1f} kGE per slice, R² {line.r2:.5f}, furthest {line.worst:.1%}"
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
    """``[(value, slice kGE, shared kGE, hub kGE)]`` of a sweep, or None when a point is missing."""
    points = []
    for value, cfg in sweep.configurations():
        census = measurement.census(cfg, library)
        if census is None:
            return None
        points.append(
            (
                value,
                *slice_and_shared(
                    {name: each["kge"] for name, each in census[0].items()}, census[1], cfg
                ),
            )
        )
    return points
