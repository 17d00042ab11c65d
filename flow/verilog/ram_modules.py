# SPDX-License-Identifier: Apache-2.0
"""Memories as modules of their own, one per shape, so that an engineer can put a macro in the place
of each.

Works on RTLIL: in each module with a memory, the memory and its two ports become an instance of
``moehub_ram_<depth>x<width>`` (``_we<n>`` behind it when a word has n write enables, ``_2clk`` when
its ports have a clock each). What is around it, the bypass and the walker of
:class:`~hub_rtl.parts.ram.Ram`, stays where it is.
"""

import re
from dataclasses import dataclass

from hub_rtl.contract.config import index_width

from .licence import SPDX

__all__ = ["RamShape", "ram_modules_verilog", "with_ram_modules"]

_MODULES = re.compile(r"^(?=module )", re.M)
_MEMORY = re.compile(r"^(?:  attribute .*\n)*  memory width (\d+) size (\d+) \\(\S+)\n+", re.M)
_PORTS = re.compile(
    r"^(?:  attribute .*\n)*  cell \$(mem(?:init|rd|wr)_v2) \S+\n((?:    .*\n)*)  end\n+", re.M
)
_CONNECT = re.compile(r"^    connect \\(\S+) (.*)$", re.M)
_PARAMETER = re.compile(r"^    parameter \\(\S+) (.*)$", re.M)
_CHUNK = re.compile(r"(\d+)'([01]+)|(\\\S+|\$\S+)(?: \[(\d+)(?::(\d+))?\])?")


@dataclass(frozen=True, order=True)
class RamShape:
    """Words, bits of a word, write enables of a word; clocks of its ports."""

    depth: int
    width: int
    granules: int = 1
    clocks: int = 1

    @property
    def name(self):
        return f"moehub_ram_{self.depth}x{self.width}" + (
            (f"_we{self.granules}" if self.granules > 1 else "")
            + ("_2clk" if self.clocks > 1 else "")
        )


def _enables(text, shape):
    """The write enables, highest first, as RTLIL, of a port that has one per bit."""
    bits = []
    for constant, name, high, low in ((m[2], m[3], m[4], m[5]) for m in _CHUNK.finditer(text)):
        if constant:
            bits += [f"1'{bit}" for bit in constant]
        elif high is None:
            bits.append(name)
        else:
            bits += [f"{name} [{n}]" for n in range(int(high), int(low or high) - 1, -1)]
    grain = shape.width // shape.granules
    groups = [set(bits[n : n + grain]) for n in range(0, len(bits), grain)]
    if len(bits) != shape.width or any(len(group) != 1 for group in groups):
        raise ValueError(f"{shape.name}: the write enables are not {shape.granules} equal parts")
    return "{ " + " ".join(group.pop() for group in groups) + " }"


def _instance(part, granules):
    """One RTLIL module with its memory as an instance; the shape."""
    width, depth, _ = _MEMORY.search(part).groups()
    ports = {kind: dict(_CONNECT.findall(body)) for kind, body in _PORTS.findall(part)}
    read, write = ports["memrd_v2"], ports["memwr_v2"]
    clocks = {"r_clk": read["CLK"], "w_clk": write["CLK"]}
    shape = RamShape(int(depth), int(width), granules, len(set(clocks.values())))
    plain = {
        "CLK_ENABLE": "1",
        "CLK_POLARITY": "1",
        "TRANSPARENCY_MASK": "1'0",
        "COLLISION_X_MASK": "1'0",
    }
    for kind, body in _PORTS.findall(part):
        given = dict(_PARAMETER.findall(body))
        if kind != "meminit_v2" and any(
            given.get(name, value) != value for name, value in plain.items()
        ):
            raise ValueError(f"{shape.name}: a port of this kind has no place in a memory module")
    if re.search(r"'[0x]*1", ports["meminit_v2"]["DATA"]):
        raise ValueError(f"{shape.name}: a memory with contents cannot be a macro")
    pins = {
        **(clocks if shape.clocks > 1 else {"clk": read["CLK"]}),
        "r_en": read["EN"],
        "r_addr": read["ADDR"],
        "r_data": read["DATA"],
        "w_en": _enables(write["EN"], shape),
        "w_addr": write["ADDR"],
        "w_data": write["DATA"],
    }
    connections = "".join(f"    connect \\{pin} {value}\n" for pin, value in pins.items())
    cell = f"  cell \\{shape.name} \\ram\n{connections}  end\n\n"
    part = _MEMORY.sub("", part)
    return _PORTS.sub(lambda match: cell if match[1] == "memrd_v2" else "", part), shape


def with_ram_modules(texts, memory_list):
    """RTLIL texts with every memory of ``memory_list`` (:func:`~flow.verilog.netlist.memories`) as
    an instance; the shapes."""
    granules = {memory["module"]: memory["granules"] for memory in memory_list}
    shapes, out = set(), []
    for text in texts:
        parts = _MODULES.split(text)
        for n, part in enumerate(parts):
            found = _MEMORY.findall(part)
            if found:
                if len(found) != 1 or len(_PORTS.findall(part)) != 3:
                    raise ValueError(
                        f"{part.splitlines()[0]}: must have one memory with one read and "
                        "one write port"
                    )
                parts[n], shape = _instance(part, granules[re.match(r"module \\(\S+)", part)[1]])
                shapes.add(shape)
        out.append("".join(parts))
    return out, sorted(shapes)


def _module(shape):
    address = f"[{index_width(shape.depth) - 1}:0]"
    grain = shape.width // shape.granules
    zero = f"{{{shape.width}{{1'b0}}}}"
    if shape.granules == 1:
        write = "if (w_en) memory[w_addr] <= w_data;"
    else:
        write = (
            f"for (part = 0; part < {shape.granules}; part = part + 1)\n"
            f"    if (w_en[part]) memory[w_addr][part*{grain} +: {grain}] <= "
            f"w_data[part*{grain} +: {grain}];"
        )
    clocks = ("r_clk", "w_clk") if shape.clocks > 1 else ("clk", "clk")
    pins = ",\n".join(f"  input  wire {pin}" for pin in dict.fromkeys(clocks))
    return f"""
module {shape.name} (
{pins},
  input  wire r_en,
  input  wire {address} r_addr,
  output reg  [{shape.width - 1}:0] r_data,
  input  wire {f"[{shape.granules - 1}:0] " if shape.granules > 1 else ""}w_en,
  input  wire {address} w_addr,
  input  wire [{shape.width - 1}:0] w_data
);
  reg [{shape.width - 1}:0] memory [0:{shape.depth - 1}];
  integer word{", part" if shape.granules > 1 else ""};
  initial for (word = 0; word < {shape.depth}; word = word + 1) memory[word] = {zero};
  always @(posedge {clocks[0]}) if (r_en) r_data <= memory[r_addr];
  always @(posedge {clocks[1]}) {write}
endmodule
"""


def ram_modules_verilog(shapes):
    """Verilog of the memory modules, as tools infer memories from it."""
    return (
        f"// {SPDX}\n"
        "// Memories of the MoE-Hub, one module per shape. Generated; put macros in the "
        "place of these. A read takes one\n"
        "// cycle and holds. Of a word written in the same cycle the written bits may read "
        "as anything, the others not.\n"
        "// One file holds them all, so that module and file names differ:\n/* verilator "
        "lint_off DECLFILENAME */\n"
        + "".join(map(_module, shapes))
        + "/* verilator lint_on DECLFILENAME */\n"
    )
