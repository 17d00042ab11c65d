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
    nands, buffers = _areas(plain, r"\w*nand2\w*"), _areas(plain, r"\w*buf_?x?\d+\w*")
    if not nands:
        raise ValueError("liberty: no two-input NAND cell found, its area is the unit of gate equivalents")
    if not buffers:
        raise ValueError("liberty: no buffer cell found, it stands for what drives a register's output net")
    named = " ".join(f"-liberty {each.name}" for each in plain)
    # With constraints ABC buffers and sizes, and takes the nets of registers to be driven by a cell, not by an ideal source.
    drive = sorted(buffers, key=buffers.get)[len(buffers) // 4]
    (folder / "top.constr").write_text(f"set_driving_cell {drive}\nset_load 1 [all_outputs]\n")
    run_yosys([*READ, BLACK_BOXES, "synth -top top -run coarse:fine", "techmap", "opt -full", "rename -wire t:$_*DFF*",
               f"dfflibmap {named}", f"abc {named} -D {target_ps} -constr top.constr", "opt_clean -purge",
               f"tee -q -o stat.json stat -json {named}", "write_verilog -noattr mapped.v"], folder)
    area = json.loads((folder / "stat.json").read_text())["design"]["area"]
    ps, start, end = _sta(plain, folder) if shutil.which("sta") else (_abc_delay(folder), "", "")
    return CellsResult(area=round(area, 1), kge=round(area / min(nands.values()) / 1000, 2), ps=ps,
                       timer="OpenSTA" if start else "ABC", start=start, end=end)


def _plain(path, folder):
    """The library, unpacked, in ``folder``."""
    target = folder / path.name.removesuffix(".gz")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as source, open(target, "wb") as sink:
        shutil.copyfileobj(source, sink)
    return target


def _areas(libraries, pattern):
    """{cell whose name matches: area}."""
    cell = re.compile(rf'\bcell\s*\(\s*"?({pattern})"?\s*\)\s*\{{(?:(?!cell\s*\().)*?area\s*:\s*"?([\d.]+)', re.S | re.I)
    return {name: float(area) for each in libraries for name, area in cell.findall(each.read_text(errors="replace"))}


def _abc_delay(folder):
    found = re.findall(r"Delay =\s*([\d.]+) ps", (folder / "yosys.log").read_text(errors="replace"))
    return float(found[-1]) if found else 0.0


def _sta(libraries, folder):
    """Period in ps of the slowest register-to-register path, its first and last register."""
    mapped = folder / "mapped.v"
    # The timer reads no parameters; memories are boxes to it.
    mapped.write_text(re.sub(r"^(  MEMORY) #\(.*?\n  \) ", r"\1 ", mapped.read_text(), flags=re.S | re.M))
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
    return round((float(arrival[1]) - float(setup[1] if setup else 0)) * scale, 1), _register(start[1]), _register(end[1])


def _register(instance):
    """The signal of the RTL that a mapped register was named after."""
    return re.sub(r"_?\$_.*", "", instance).replace("\\", "")


def _time_unit(library):
    return re.search(r"time_unit\s*:\s*\"?(\w+)", library.read_text(errors="replace"))[1]
