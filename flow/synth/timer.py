# SPDX-License-Identifier: Apache-2.0
"""Register-to-register timing of mapped netlists by OpenSTA: no wires, ideal clock."""

import re
import shutil
import subprocess
from dataclasses import dataclass

from hub_rtl.contract.ports import CLOCKS

__all__ = ["Path", "has_timer", "slowest_paths", "time_unit_ps"]

#: What the timer says of a netlist that it has not understood; the first kind explains most.
_WRONG = (
    r"^Error.* line .*",
    r"^Error.*",
    r"^Warning: .* port \S+ (?:not found|size \d+ does not match).*",
)


def has_timer():
    """Is OpenSTA (the program ``sta``) installed?"""
    return shutil.which("sta") is not None


def time_unit_ps(library):
    """Picoseconds in the time unit of a Liberty file."""
    found = re.search(
        r"time_unit\s*:\s*\"?\s*([\d.]+)\s*(ps|ns)", library.read_text(errors="replace")
    )
    if not found:
        raise ValueError(f"{library.name}: no time_unit in ps or ns")
    return float(found[1]) * (1000 if found[2] == "ns" else 1)


@dataclass(frozen=True)
class Path:
    """ps: with the last register's set-up time. start, end: registers. gates: cells between."""

    ps: float
    start: str
    end: str
    gates: int


def slowest_paths(libraries, netlists, folder):
    """``{clock: Path}``: the slowest register-to-register path of ``top``, of each of its clocks.

    ``libraries``, ``netlists``: paths, absolute or from ``folder``, where the script and all that
    the timer says stay. Raises ValueError when the timer finds an error or no path.
    """
    clocks = [pins[0] for pins in CLOCKS.values()]
    lines = [
        *(f"read_liberty {each}" for each in libraries),
        *(f"read_verilog {each}" for each in netlists),
        "link_design top",
        *(
            f"if {{[llength [get_ports -quiet {clock}]]}} {{\n"
            f"  create_clock -name {clock} -period 100000 [get_ports {clock}]\n}}"
            for clock in clocks
        ),
        # A clock that comes in may drive no register: what joins the units has none of the links'.
        *(
            f"if {{[llength [get_clocks -quiet {clock}]] "
            f"&& [llength [all_registers -clock_pins -clock {clock}]]}} {{\n"
            f'  puts "clock {clock}"\n'
            f"  report_checks -from [all_registers -clock_pins -clock {clock}] "
            f"-to [all_registers -data_pins -clock {clock}] -digits 4\n}}"
            for clock in clocks
        ),
    ]
    (folder / "sta.tcl").write_text("\n".join(lines) + "\nexit\n")
    done = subprocess.run(
        ["sta", "-no_splash", "-exit", "sta.tcl"], cwd=folder, capture_output=True, text=True
    )
    text = done.stdout + done.stderr
    (folder / "sta.log").write_text(text)
    wrong = next((found for pattern in _WRONG if (found := re.search(pattern, text, re.M))), None)
    if done.returncode or wrong:
        raise ValueError(
            f"OpenSTA: {wrong[0] if wrong else f'exit code {done.returncode}'} (see "
            f"{folder / 'sta.log'})"
        )
    unit = time_unit_ps(folder / libraries[0])
    _, *parts = re.split(r"^clock (\S+)$", text, flags=re.M)
    paths = {
        clock: path
        for clock, part in zip(parts[::2], parts[1::2], strict=True)
        if (path := _path(part, unit))
    }
    if not paths:
        raise ValueError(f"OpenSTA: no register-to-register path (see {folder / 'sta.log'})")
    return paths


def _path(text, unit_ps):
    """The :class:`Path` of a report, or None."""
    arrival = re.search(r"([\d.]+)\s+data arrival time", text)
    setup = re.search(r"(-?[\d.]+)\s+-?[\d.]+\s+library setup time", text)
    start, end = (re.search(rf"{word}point: (\S+)", text) for word in ("Start", "End"))
    if not (arrival and setup and start and end):
        return None
    between = (
        len(re.findall(r"^\s+[\d.]+\s+[\d.]+ [v^] ", text.split("data arrival time")[0], re.M)) - 3
    )
    ps = round((float(arrival[1]) - float(setup[1])) * unit_ps, 1)
    return Path(ps, _register(start[1]), _register(end[1]), max(0, between))


def _register(instance):
    """The signal of the RTL that a mapped register was named after."""
    return re.sub(r"_?\$_.*", "", instance).replace("\\", "")
