# SPDX-License-Identifier: Apache-2.0
"""One netlist that holds all mutants of a block, chosen by its input ``mutsel``; value 0 is the
unmutated design.

A mutant of meaning has a name in the source (:mod:`hub_rtl.parts.mutants`). A mutant of the netlist
is one change at one bit of one cell's port, by Yosys' ``mutate``: inverted, constant, or inverted
when another bit of the port is 0 or 1. Mutants of clock pins are left out: a design has either a
clock or no behaviour.
"""

import hashlib
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sim.bench.planted import SELECT, WIDTH, with_mutants
from sim.bench.runner import ROOT

from .names import catalogue

__all__ = ["SELECT", "Meant", "Mutant", "Mutated", "meant", "mutated"]

# A register whose output is mutated loses its initial value: so all are made to start at 0. This is
# `opt -full` in its parts: its last one stops at the initial values of registers that the others
# have found to be constant. Memories become single cells (`memory_collect`), for what they hold at
# the start is no pin; `pmuxtree` says what comes when a mutant selects two.
TIDY = 2 * [
    "opt_expr -full",
    "opt_merge",
    "opt_muxtree",
    "opt_reduce -full",
    "opt_share",
    "opt_dff",
    "setattr -unset init w:*",
    "opt_clean",
    "zinit -all",
]
READ = "\n".join(
    [
        "read_rtlil design.il",
        "hierarchy -top {core}",
        "proc -norom",
        "flatten",
        "pmuxtree",
        "zinit -all",
        *TIDY,
        "wreduce",
        "memory_collect",
        "opt_clean -purge",
    ]
)
WRITE = [
    "opt_clean -purge",
    "write_verilog -noattr core.v",
    "memory_map",
    "opt_clean",
    "techmap",
    "simplemap",
    "dffunmap",
    "opt_clean -purge",
    "aigmap",
    "setundef -init -undriven -zero",
    "write_aiger -ascii -zinit -symbols netlist.aag",
]
_PORT = re.compile(r"^  (input|output) (?:wire )?(\[\d+:0\] )?(\w+);$", re.M)
SOURCE = re.compile(r"(?:.*/)?((?:hub_rtl|sim|amaranth)/.*)$")


@dataclass(frozen=True)
class Mutant:
    """Value of ``mutsel``, what it changes, and where that comes from; ``control``: the bit on
    which an inversion depends."""

    number: int
    mode: str
    cell: str
    port: str
    bit: int
    wire: str
    source: str
    control: int | None = None

    def __str__(self):
        where = f"{self.wire} at " if self.wire else ""
        return (
            f"{self.number}: {self.mode} {self.cell}.{self.port}[{self.bit}] ({where}{self.source})"
        )


@dataclass(frozen=True)
class Meant:
    """A mutant of meaning: value of ``mutsel``, its name, where it is written."""

    number: int
    name: str
    source: str

    def __str__(self):
        return f"{self.number}: {self.name} ({self.source})"


@dataclass(frozen=True)
class Mutated:
    """``verilog`` with a top module ``name``; ``mutants``; ``aiger``, the same netlist as
    and-inverter graph (ASCII); ``key``, different for different netlists.
    """

    verilog: str
    mutants: list
    aiger: Path
    key: str


def mutated(component, name, count, seed, folder):
    """The :class:`Mutated` netlist of an Amaranth component with ``count`` mutants drawn with
    ``seed``.

    Files stay in ``folder`` and are made anew when the design or this file has changed.
    """
    from amaranth.back import rtlil

    folder.mkdir(parents=True, exist_ok=True)
    core = f"{name}_core"
    design, known = rtlil.convert(component, name=core), folder / "key"
    what = design.replace(f"{ROOT}/", ""), count, seed, Path(__file__).read_text()
    key = hashlib.sha256(repr(what).encode()).hexdigest()
    fresh = known.exists() and known.read_text() == key
    if not fresh:
        known.unlink(missing_ok=True)
        (folder / "design.il").write_text(design)
        yosys(
            folder,
            "list",
            *READ.format(core=core).splitlines(),
            f"mutate -list {count + count // 4} -seed {seed} -o list",
            "write_rtlil flat.il",
        )
    # Some more are asked for than are kept, for those of clock pins are not.
    commands = [
        line
        for line in (folder / "list").read_text().splitlines()
        if not re.search(r"-port \S*CLK ", line)
    ][:count]
    mutants = [_mutant(n, command) for n, command in enumerate(commands, 1)]
    if not fresh:
        yosys(
            folder,
            "build",
            "read_rtlil flat.il",
            *(
                command.replace("mutate ", f"mutate -ctrl {SELECT} {WIDTH} {mutant.number} ", 1)
                for mutant, command in zip(mutants, commands, strict=True)
            ),
            *WRITE,
        )
        known.write_text(key)
    text = (folder / "core.v").read_text()
    return Mutated(text + _wrapper(text, name, core, folder), mutants, folder / "netlist.aag", key)


def meant(component, name, folder):
    """The :class:`Mutated` netlist of an Amaranth component with all its mutants of meaning
    (:mod:`hub_rtl.parts.mutants`), variants left out, in the order of elaboration."""
    from amaranth.back import rtlil

    folder.mkdir(parents=True, exist_ok=True)
    core = f"{name}_core"
    design, numbers = with_mutants(
        component, lambda whole: rtlil.convert(whole, name=core, emit_src=False)
    )
    known, program = folder / "key", Path(__file__).read_text()
    key = hashlib.sha256(repr((design, numbers, program)).encode()).hexdigest()
    if not (known.exists() and known.read_text() == key):
        known.unlink(missing_ok=True)
        (folder / "design.il").write_text(design)
        yosys(folder, "build", *READ.format(core=core).splitlines(), *WRITE)
        known.write_text(key)
    text = (folder / "core.v").read_text()
    named = catalogue()
    mutants = [
        Meant(number, each, f"{named[each].file}:{named[each].line}" if each in named else "?")
        for each, number in numbers.items()
    ]
    return Mutated(text + _wrapper(text, name, core, folder), mutants, folder / "netlist.aag", key)


def yosys(folder, name, *commands):
    """Runs Yosys commands in ``folder`` as script ``name``.ys, in a process of its own: an error
    ends the process."""
    script, log = folder / f"{name}.ys", folder / f"{name}.log"
    script.write_text("\n".join(commands) + "\n")
    call = (
        f"from pyosys import libyosys; libyosys.run_pass('tee -q -o {log.name} script "
        f"{script.name}')"
    )
    done = subprocess.run([sys.executable, "-c", call], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Yosys failed, see {log}: {log.read_text()[-300:]}")


def _mutant(number, command):
    words = shlex.split(command.replace("\\", "\\\\"))[1:]
    options = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(key.lstrip("-"), value.lstrip("\\"))
    sources = [
        SOURCE.sub(r"\1", value)
        for key, value in zip(words[::2], words[1::2], strict=True)
        if key == "-src"
    ]
    own = [source for source in sources if source.startswith("hub_rtl")] or sources or ["?"]
    wire = options.get("wire", "")
    inside = [source for source in own if source.startswith("hub_rtl/link/credits")]
    return Mutant(
        number,
        options["mode"],
        options["cell"].replace("$flatten\\", "").replace("\\", ""),
        options["port"],
        int(options["portbit"]),
        f"{wire}[{options['wirebit']}]" if wire else "",
        (inside or own)[0],
        int(options["ctrlbit"]) if "ctrlbit" in options else None,
    )


def _wrapper(text, name, core, folder):
    """The top: nothing but the ports, so that only these are public and the netlist below can be
    optimised.

    While its input ``recording`` is not 0 it writes what is at the ports at each edge, for
    ``replay.cpp``.
    """
    body = text[text.index(f"module {core}(") :]
    ports = [(flow, bits, port) for flow, bits, port in _PORT.findall(body)]
    inputs = [port for flow, _, port in ports if flow == "input" and port not in ("clk", SELECT)]
    outputs = [port for flow, _, port in ports if flow == "output"]
    macros = {"INPUTS": inputs, "OUTPUTS": outputs}
    (folder / "ports.h").write_text(
        "".join(  # Verilator's C++ names: no double underscores
            f"#define {macro}(X) {' '.join(f'X({port})' for port in names)}\n".replace(
                "__", "___05F"
            )
            for macro, names in macros.items()
        )
    )
    words = ["32'd0 | rising", "32'd0 | recording", *inputs, *outputs]
    lines = [
        f"\nmodule {name}({', '.join(port for _, _, port in ports)}, recording);",
        "  input [7:0] recording;",
    ]
    lines += [f"  {flow} {bits}{port};" for flow, bits, port in ports]
    lines += [
        f"  {core} core({', '.join(f'.{port}({port})' for _, _, port in ports)});",
        "  integer file = 0;",
        "  task record(input rising); begin",
        f'    if (file == 0) file = $fopen("{folder / "trace.bin"}", "wb");',
        f'    $fwrite(file, "{"%u" * len(words)}", {", ".join(words)});',
        "  end endtask",
        "  always @(posedge clk) if (recording != 0) record(1'b1);",
        "  always @(negedge clk) if (recording != 0) record(1'b0);",
        "endmodule",
        "",
    ]
    return "\n".join(lines)
