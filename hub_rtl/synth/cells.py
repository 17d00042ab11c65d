"""Standard cells: area, and register-to-register timing without wires, for Liberty files that the user names."""

import gzip
import json
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from .generic import BLACK_BOXES, READ
from .yosys import run_yosys

__all__ = ["CellsResult", "map_cells"]


@dataclass
class CellsResult:
    """area: in the library's units, memories apart. kge: thousands of the library's smallest NAND2. ps: slowest path between
    registers (OpenSTA), or, without OpenSTA, the slowest logic between them (ABC). timer: which of the two."""

    area: float
    kge: float
    ps: float
    timer: str
    start: str = ""
    end: str = ""

    def as_dict(self):
        return asdict(self)


def map_cells(rtlil, libraries, target_ps, folder):
    """The :class:`CellsResult` of a part, mapped to the cells of ``libraries`` (Liberty files, plain or ``.gz``) with
    ``target_ps`` as the goal. Raises YosysError, OSError; ValueError when no library has a NAND2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(rtlil)
    plain = [_plain(Path(each), folder) for each in libraries]
    named = " ".join(f"-liberty {each.name}" for each in plain)
    # With constraints, however few, ABC buffers and sizes too.
    (folder / "top.constr").write_text("set_load 1 [all_outputs]\n")
    run_yosys([*READ, BLACK_BOXES, "synth -top top -run coarse:fine", "techmap", "opt -full", f"dfflibmap {named}",
               f"abc {named} -D {target_ps} -constr top.constr", "opt_clean -purge",
               f"tee -q -o stat.json stat -json {named}", "write_verilog -noattr mapped.v"], folder)
    area = json.loads((folder / "stat.json").read_text())["design"]["area"]
    nand = min(filter(None, (_nand2(each) for each in plain)), default=None)
    if nand is None:
        raise ValueError("libraries: no two-input NAND cell found, its area is the unit of gate equivalents")
    ps, start, end = _sta(plain, folder) if shutil.which("sta") else (_abc_delay(folder), "", "")
    return CellsResult(area=round(area, 1), kge=round(area / nand / 1000, 2), ps=ps, timer="OpenSTA" if start else "ABC",
                       start=start, end=end)


def _plain(path, folder):
    """The library, unpacked, in ``folder``."""
    target = folder / path.name.removesuffix(".gz")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink)
    return target


def _nand2(library):
    """Area of the library's smallest two-input NAND."""
    cells = re.findall(r'cell\s*\(\s*"?(\w*(?:nand2|NAND2)\w*)"?\s*\)\s*\{(?:(?!cell\s*\().)*?area\s*:\s*"?([\d.]+)',
                       library.read_text(errors="replace"), re.S)
    return min((float(area) for _, area in cells), default=None)


def _abc_delay(folder):
    found = re.findall(r"Delay =\s*([\d.]+) ps", (folder / "yosys.log").read_text(errors="replace"))
    return float(found[-1]) if found else 0.0


def _sta(libraries, folder):
    """Period in ps of the slowest register-to-register path, its first and last register."""
    lines = [*(f"read_liberty {each.name}" for each in libraries), "read_verilog mapped.v", "link_design top",
             "create_clock -name clk -period 1000 [get_ports clk]",
             "report_checks -from [all_registers -clock_pins] -to [all_registers -data_pins] -digits 4"]
    (folder / "sta.tcl").write_text("\n".join(lines) + "\nexit\n")
    command = ["sta", "-no_splash", "-exit", "sta.tcl"]
    text = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    arrival = re.search(r"([\d.]+)\s+data arrival time", text)
    setup = re.search(r"(-?[\d.]+)\s+[\d.]+\s+library setup time", text)
    start, end = (re.search(rf"{word}point: (\S+)", text) for word in ("Start", "End"))
    if not (arrival and start and end):
        raise OSError(1, "OpenSTA reports no register-to-register path", str(folder / "sta.tcl"))
    scale = 1000 if "ns" in _time_unit(libraries[0]) else 1
    return round((float(arrival[1]) - float(setup[1] if setup else 0)) * scale, 1), start[1], end[1]


def _time_unit(library):
    return re.search(r"time_unit\s*:\s*\"?(\w+)", library.read_text(errors="replace"))[1]
