# SPDX-License-Identifier: Apache-2.0
"""Standard cells: area, and register-to-register timing without wires, for Liberty files that the
user names."""

import json
import re
from dataclasses import asdict, dataclass

from .generic import READ
from .memory_models import MODEL, memory_cells, memory_models
from .timer import Path, has_timer, slowest_paths
from .yosys import run_yosys

__all__ = ["NETLIST", "CellsResult", "map_cells"]

NETLIST = "mapped.v"

#: Delay-driven mapping, then trees of buffers and cells of the size that their loads ask for.
#: Yosys' own script leaves large fan-outs to the smallest gates. ``{goal}``: ps.
ABC = """strash
dch -f
map -B 0.9
topo
buffer -c -N 10
topo
upsize -c -D {goal}
dnsize -c -D {goal}
upsize -c -D {goal}
dnsize -c -D {goal}
stime -p
"""


#: Timers do not read lists of bits on the left of an assignment. No name of the RTL has braces, so
#: that none is met twice. Ports of black boxes are split too, as those of the modules that will
#: stand in their places.
SINGLE_BITS = (
    "setattr -mod -set box 1 =A:blackbox",
    "setattr -mod -unset blackbox =A:box",
    "splitnets -format {} -ports =*",
    "setattr -mod -set blackbox 1 A:box",
)


@dataclass
class CellsResult:
    """area: in the library's units, memories apart. kge: thousands of the library's smallest NAND2.
    ps: slowest path between registers of one clock (OpenSTA), or, without OpenSTA, the slowest
    logic between registers (ABC). timer: which of the two. gates: cells on the path. start, end:
    its registers by their names in the RTL."""

    area: float
    kge: float
    ps: float
    timer: str
    start: str = ""
    end: str = ""
    gates: int = 0

    def as_dict(self):
        return asdict(self)


def map_cells(rtlil, library, goal_ps, folder):
    """The :class:`CellsResult` of a part, mapped to the cells of ``library``
    (:class:`~.liberty.Library`) with ``goal_ps`` as the mapper's goal. The netlist is ``mapped.v``
    in ``folder``: only cells, instances and aliases of single bits.

    Raises YosysError, OSError; ValueError when the library lacks a NAND2, a buffer or a flip-flop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(rtlil)
    files = library.unpack()
    run_yosys([*READ, "write_json memories.json", "write_rtlil flat.il"], folder)
    models, placed = memory_models(memory_cells(folder / "memories.json"))
    (folder / "memories.v").write_text(models)
    named = " ".join(f"-liberty {each}" for each in files)
    # With constraints ABC buffers and sizes, and takes the nets of registers to be driven by a
    # cell, not by an ideal source.
    (folder / "top.abc").write_text(ABC.format(goal=goal_ps))
    (folder / "top.constr").write_text(
        f"set_driving_cell {library.driver}\nset_load 1 [all_outputs]\n"
    )
    run_yosys(
        [
            "read_rtlil flat.il",
            *placed,
            *(["read_verilog memories.v"] if models else []),
            "hierarchy -top top",
            "proc",
            "synth -top top -run coarse:fine",
            "techmap",
            "opt -full",
            "simplemap",
            "rename -wire t:$_*DFF*",
            f"dfflibmap {named}",
            "simplemap",
            f"abc {named} -script top.abc -constr top.constr",
            "setundef -zero",
            *SINGLE_BITS,
            "opt_clean -purge",
            f"tee -q -o stat.json stat -json {named}",
            f"write_verilog -noattr -noexpr -nodec {NETLIST}",
        ],
        folder,
    )
    area = _own_area(folder / "stat.json")
    slowest = (
        max(slowest_paths(files, [NETLIST], folder).values(), key=lambda path: path.ps)
        if has_timer()
        else Path(_abc_delay(folder), "", "", 0)
    )
    return CellsResult(
        area=round(area, 1),
        kge=round(area / library.nand_area / 1000, 2),
        ps=slowest.ps,
        timer="OpenSTA" if slowest.start else "ABC",
        start=slowest.start,
        end=slowest.end,
        gates=slowest.gates,
    )


def _own_area(path):
    """Area of ``top`` without the stand-ins of memories."""
    modules = {
        name.lstrip("\\"): each.get("area", 0)
        for name, each in json.loads(path.read_text())["modules"].items()
    }
    return modules["top"] - sum(area for name, area in modules.items() if name.startswith(MODEL))


def _abc_delay(folder):
    found = re.findall(r"Delay =\s*([\d.]+) ps", (folder / "yosys.log").read_text(errors="replace"))
    return max(map(float, found), default=0.0)
