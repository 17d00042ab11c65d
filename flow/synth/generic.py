# SPDX-License-Identifier: Apache-2.0
"""Technology-independent figures: gates as NAND2 equivalents, registers, memory bits, longest
topological path."""

import json
import re
from dataclasses import asdict, dataclass

from .yosys import run_yosys

__all__ = ["BLACK_BOXES", "READ", "GenericResult", "measure_generic"]

#: Gates have no state at power-up, every register that matters is reset. A choice among constants
#: is logic, no memory.
READ = (
    "read_rtlil top.il",
    "hierarchy -top top",
    "proc -norom",
    "flatten",
    "setattr -unset init w:*",
    "opt -full",
    "memory -nomap",
    "opt_clean",
)
#: Memories become cells of an unknown type: nothing that feeds them is lost, and no path goes
#: through them.
BLACK_BOXES = "chtype -set MEMORY t:$mem_v2"

#: Transistors of a static CMOS gate; a NAND2 has four.
TRANSISTORS = {
    "$_NOT_": 2,
    "$_NAND_": 4,
    "$_NOR_": 4,
    "$_AND_": 6,
    "$_OR_": 6,
    "$_XOR_": 12,
    "$_XNOR_": 12,
    "$_MUX_": 12,
    "$_ANDNOT_": 6,
    "$_ORNOT_": 6,
    "$_AOI3_": 6,
    "$_OAI3_": 6,
    "$_AOI4_": 8,
    "$_OAI4_": 8,
    "$_BUF_": 4,
}
REGISTER = 24


@dataclass
class GenericResult:
    """cells: gates and registers. kge: thousands of NAND2 equivalents, memories apart. registers:
    bits. memories: [{name, depth, width, read_ports, write_ports}]. memory_bits: their sum. depth:
    gates on the longest path between registers."""

    cells: int
    kge: float
    registers: int
    memories: list
    memory_bits: int
    depth: int

    def as_dict(self):
        return asdict(self)


def measure_generic(rtlil, folder):
    """The :class:`GenericResult` of a part. Raises YosysError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(rtlil)
    run_yosys(
        [
            *READ,
            "write_json memories.json",
            BLACK_BOXES,
            "synth -top top -run coarse:fine",
            "techmap",
            "opt -full",
            "abc -g NAND,NOR,AND,OR,XOR,XNOR,MUX,ANDNOT,ORNOT",
            "opt_clean",
            "tee -q -o stat.json stat -json",
            "delete =A:blackbox",
            "tee -q -o path.txt ltp -noff",
        ],
        folder,
    )
    counts = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]
    registers = sum(count for name, count in counts.items() if "DFF" in name)
    gates = sum(count * TRANSISTORS[name] for name, count in counts.items() if name in TRANSISTORS)
    depth = re.search(
        r"Longest topological path in \S+ \(length=(\d+)\)", (folder / "path.txt").read_text()
    )
    memories = _memories(folder / "memories.json")
    return GenericResult(
        cells=sum(count for name, count in counts.items() if name.startswith("$_")),
        kge=round((gates + REGISTER * registers) / 4000, 2),
        registers=registers,
        memories=memories,
        memory_bits=sum(each["depth"] * each["width"] for each in memories),
        depth=int(depth[1]) if depth else 0,
    )


def _memories(path):
    cells = json.loads(path.read_text())["modules"]["top"]["cells"]
    found = []
    for _, cell in sorted(cells.items()):
        if cell["type"] == "$mem_v2":
            numbers = {
                key: int(value, 2)
                for key, value in cell["parameters"].items()
                if key in ("SIZE", "WIDTH", "RD_PORTS", "WR_PORTS")
            }
            found.append(
                {
                    "name": cell["parameters"]["MEMID"].lstrip("\\"),
                    "depth": numbers["SIZE"],
                    "width": numbers["WIDTH"],
                    "read_ports": numbers["RD_PORTS"],
                    "write_ports": numbers["WR_PORTS"],
                }
            )
    return found
