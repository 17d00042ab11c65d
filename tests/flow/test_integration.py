# SPDX-License-Identifier: Apache-2.0
"""What takes the hub into other flows: AXI wrapper, constraints, FuseSoC core, reset."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from amaranth import ResetInserter, Signal
from amaranth.sim import Simulator

from flow.synth.yosys import run_yosys
from flow.verilog.axi_wrapper import AXI_TOP, axi_sidecar, axi_wrapper
from flow.verilog.flow_files import PERIOD, WAIVED, constraints
from flow.verilog.generate import RAMS, TOP, Generated, write_files
from flow.verilog.testbench import BENCH, self_checking_bench
from hub_rtl.contract.config import preset
from hub_rtl.contract.ports import CLOCKS as CLOCK_PINS
from hub_rtl.contract.ports import clocks, hub_interfaces, hub_ports
from hub_rtl.hub.hub import Hub
from sim.bench.runner import ROOT, verilator_env
from sim.generated import generated

TINY = preset("tiny")
WIDE = preset("tiny", ranks=3, lanes=3, loop_lanes=2, tag_width=8)
CLOCKS = preset("tiny", slice_links=3, slice_bytes=64, link_clock=True)
TOOLS = Path(sys.executable).parent

#: Signals of the AMBA specifications (IHI 0022, IHI 0051), by channel, as a master of that kind has
#: them.
WRITE = {
    "awid",
    "awaddr",
    "awlen",
    "awsize",
    "awburst",
    "awlock",
    "awcache",
    "awprot",
    "awqos",
    "awregion",
    "awvalid",
    "awready",
    "wdata",
    "wstrb",
    "wlast",
    "wvalid",
    "wready",
    "bid",
    "bresp",
    "bvalid",
    "bready",
}
READ = {name.replace("aw", "ar") for name in WRITE if name.startswith("aw")} | {
    "rid",
    "rdata",
    "rresp",
    "rlast",
    "rvalid",
    "rready",
}
LITE = {
    "awaddr",
    "awprot",
    "awvalid",
    "awready",
    "wdata",
    "wstrb",
    "wvalid",
    "wready",
    "bresp",
    "bvalid",
    "bready",
    "araddr",
    "arprot",
    "arvalid",
    "arready",
    "rdata",
    "rresp",
    "rvalid",
    "rready",
}
SIGNALS = {
    r"m_axi_\d+": WRITE,
    "m_axi_spill": WRITE | READ,
    "s_axil": LITE,
    r"m_axis_tx\d+": {"tdata", "tvalid", "tready", "tlast", "tdest"},
    r"s_axis_rx\d+": {"tdata", "tvalid", "tready", "tlast"},
    r"s_axis_(store\d+|command)": {"tdata", "tvalid", "tready"},
    r"m_axis_(response\d+|command_response|event)": {"tdata", "tvalid", "tready"},
}


def stub(cfg, body=""):
    """A hub with its ports and nothing inside."""
    inputs = [f"input {pin}" for domain in clocks(cfg) for pin in CLOCK_PINS[domain]]
    ways = {"in": "input", "out": "output"}
    ports = ", ".join(
        [
            *inputs,
            *(f"{ways[p.direction]} [{p.width - 1}:0] {p.name}" for p in hub_ports(cfg)),
        ]
    )
    return f"module {TOP} ({ports});\n{body}endmodule\n"


# -- AXI wrapper -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[TINY, WIDE], ids=["tiny", "wide"])
def netlist(request, tmp_path_factory):
    """Configuration, text and Yosys' netlist of the wrapper around a hub without inside."""
    cfg, folder = request.param, tmp_path_factory.mktemp("wrapper")
    text = axi_wrapper(cfg, TOP)
    (folder / "axi.v").write_text(text)
    (folder / "stub.v").write_text("(* blackbox *)\n" + stub(cfg))
    run_yosys(
        [
            "read_verilog stub.v axi.v",
            f"hierarchy -check -top {AXI_TOP}",
            "opt_clean",
            "write_json out.json",
        ],
        folder,
    )
    return cfg, text, json.loads((folder / "out.json").read_text())["modules"][AXI_TOP]


def test_wrapper_has_the_signals_of_amba(netlist):
    """Each interface has all signals of its kind, no others, under `<interface>_<signal>`, with
    byte-wide `tdata`."""
    cfg, _, module = netlist
    left, found = set(module["ports"]), []
    for pattern, signals in SIGNALS.items():
        names = {
            match[1]
            for match in (re.fullmatch(f"({pattern})_[a-z]+", port) for port in module["ports"])
            if match
        }
        for name in names:
            assert {f"{name}_{signal}" for signal in signals} <= left, name
            left -= {f"{name}_{signal}" for signal in signals}
            assert len(module["ports"].get(f"{name}_tdata", {"bits": []})["bits"]) % 8 == 0
        found += names
    assert len(found) == 4 * cfg.lanes + cfg.slices + 5
    assert {re.sub(r"\d+$", "", name) for name in left} == {
        "aclk",
        "aresetn",
        "irq",
        "cleared",
        "can_accept",
        "obs_alloc_en",
        "obs_alloc_region",
        "obs_alloc_bank",
        "obs_alloc_rowid",
        "obs_alloc_slot",
        "obs_alloc_overflow",
    }


def test_wrapper_is_wires(netlist):
    """Every bit of the hub's ports is one bit of the wrapper's, as the sidecar says; what is left
    over is 0; reset inverted."""
    cfg, _, module = netlist
    cells = module["cells"]
    hub = next(cell for cell in cells.values() if cell["type"] == TOP)
    inverter = next(cell for cell in cells.values() if cell["type"] == "$not")
    assert len(cells) == 2 + sum(
        cell["type"] in ("$reduce_and", "$scopeinfo") for cell in cells.values()
    )
    assert inverter["connections"]["A"] == module["ports"]["aresetn"]["bits"]
    assert inverter["connections"]["Y"] == hub["connections"]["rst"]
    assert hub["connections"]["clk"] == module["ports"]["aclk"]["bits"]
    inside = {port.name: port for port in hub_ports(cfg)}
    for interface in axi_sidecar(cfg)["interfaces"]:
        for outer in interface["ports"]:
            bits = module["ports"][outer["name"]]["bits"]
            assert (
                module["ports"][outer["name"]]["direction"].startswith(outer["direction"])
                and len(bits) == outer["width"]
            )
            rest = list(bits)
            for part in outer["hub"]:
                port = inside.pop(part["name"])
                assert (port.direction, port.width) == (outer["direction"], part["width"])
                assert (
                    bits[part["low"] : part["low"] + part["width"]] == hub["connections"][port.name]
                )
                rest[part["low"] : part["low"] + part["width"]] = [None] * part["width"]
                field = port.name.rpartition("_")[2]
                if outer["field"] == "tdata" and field != "tdata":
                    assert part["low"] % 8 == 0
                else:
                    assert len(outer["hub"]) == 1 and outer["name"].endswith(field)
            assert outer["direction"] == "in" or set(rest) <= {None, "0"}, outer["name"]
    assert not inside


def test_wrapper_fields():
    """The layout of a store, to the bit."""
    store = next(i for i in axi_sidecar(TINY)["interfaces"] if i["name"] == "s_axis_store0")
    assert [(part["name"], part["low"], part["width"]) for part in store["ports"][0]["hub"]] == [
        ("s_store0_operand", 0, 64),
        ("s_store0_cls", 64, 1),
        ("s_store0_owner", 72, 4),
        ("s_store0_data", 80, 256),
        ("s_store0_mask", 336, 32),
        ("s_store0_tag", 368, 4),
    ]


def test_wrapper_attributes(netlist):
    """Vivado's attributes: each port's interface and signal, each interface's parameters once, the
    clock's interfaces."""
    _, text, module = netlist
    rows = re.findall(
        r'X_INTERFACE_INFO = "xilinx.com:(\w+):(\w+):1.0 (\w+) (\w+)" \*\)\n((?:  \(\*.*\n| '
        r" //.*\n)*)"
        r"  (?:input |output) wire (?:\[\d+:0\] )?(\w+)",
        text,
    )
    kinds = {"axis": r"[sm]_axis_.*", "aximm": "m_axi_.*|s_axil"}
    buses = []
    for group, kind, name, signal, more, port in rows:
        if group == "interface":
            assert port == f"{name}_{signal.lower()}" and re.fullmatch(kinds[kind], name)
            if "X_INTERFACE_PARAMETER" in more:
                assert f"XIL_INTERFACENAME {name}, " in more
                buses.append(name)
    assert {row[5] for row in rows} == {
        port for port in module["ports"] if not port.startswith(("can_", "obs_", "cleared"))
    }
    assert (
        len(buses) == len(set(buses))
        and f"ASSOCIATED_BUSIF {':'.join(buses)}, ASSOCIATED_RESET aresetn" in text
    )
    assert set(buses) == {row[2] for row in rows if row[0] == "interface"}
    assert "POLARITY ACTIVE_LOW" in text and "SENSITIVITY LEVEL_HIGH" in text


def test_period_is_measured():
    """Of the whole hub on an ECP5, by the page of area and clock; rounded up to 0.1 ns."""
    page = (ROOT / "docs" / "results" / "ppa.md").read_text()
    [mhz] = re.findall(r"^\| `hub` \|(?:[^|]*\|){4} (\d+) \|(?: \d+)+ \|", page, re.M)
    assert math.ceil(10_000 / int(mhz)) / 10 == PERIOD


def test_constraints(netlist):
    """Each port but the clock has exactly one delay, of its direction."""
    cfg, _, module = netlist
    text = constraints(cfg)
    assert (
        "create_clock -name aclk -period $period [get_ports aclk]" in text
        and "set_false_path" not in text
    )
    delays = {
        way: names.split()
        for way, names in re.findall(
            r"^set_(input|output)_delay -clock aclk \$outside \[get_ports \{\n([^}]*)\}\]$",
            text,
            re.M,
        )
    }
    for name, port in module["ports"].items():
        hits = [
            way
            for way, patterns in delays.items()
            for pattern in patterns
            if fnmatchcase(name, pattern)
        ]
        assert set(hits) == (set() if name == "aclk" else {port["direction"]}), name


# -- tools -----------------------------------------------------------------------------------------


def fusesoc(folder, *arguments):
    env = verilator_env()
    env["PATH"] = f"{TOOLS}{os.pathsep}{env['PATH']}"
    return subprocess.run(
        [str(TOOLS / "fusesoc"), "--cores-root", str(folder), "run", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )


def check_ram_modules(texts):
    """No memory is left in the hub's modules; the sidecar names each one's module, and they are
    there, with their shapes."""
    assert not re.search(r"^  reg .*\] \S+ \[\d+:0\];", texts.verilog, re.M)
    modules = dict(re.findall(r"^module (moehub_ram_\w+) \((.*?)^\);", texts.rams, re.M | re.S))
    assert {memory["ram"] for memory in texts.sidecar["memories"]} == set(modules) and len(
        modules
    ) > 20
    for memory in texts.sidecar["memories"]:
        assert (
            f"[{memory['width'] - 1}:0] w_data" in modules[memory["ram"]]
            and f"_{memory['depth']}x" in memory["ram"]
        )
        text = texts.verilog[texts.verilog.index(f"\nmodule {memory['module']}(") :]
        assert text[: text.index("\nendmodule")].count(f"\n  {memory['ram']} ram (") == 1


@pytest.mark.night
def test_fusesoc_lint(tmp_path):
    """FuseSoC finds the core and lints hub, memory modules and wrapper; only the hub's file has
    waivers."""
    texts = generated(TINY, ram_modules=True)
    write_files(tmp_path, texts.files())
    done = fusesoc(tmp_path, "--target=lint", "moe-hub:hub:moehub")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = next((tmp_path / "build").glob("*/lint/*.vc")).read_text()
    assert all(
        name in listed
        for name in (
            f"{TOP}.v",
            RAMS,
            f"{AXI_TOP}.v",
            f"{TOP}.vlt",
            "-Wall",
            f"--top-module {AXI_TOP}",
        )
    )
    waivers = (tmp_path / f"{TOP}.vlt").read_text()
    assert re.findall(r'^lint_off -rule (\w+) -file "\*moehub.v"$', waivers, re.M) == list(WAIVED)
    assert all(f"// {reason}\n" in waivers for reason in WAIVED.values()) and waivers.count(
        "lint_off"
    ) == len(WAIVED)
    check_ram_modules(texts)
    assert (
        max(memory["depth"] for memory in texts.sidecar["memories"] if memory["cleared"]) == 8
    )  # see test_reset


@pytest.fixture(scope="module")
def tiny():
    """{file name: text}."""
    return generated(TINY).files()


def simulated(tiny, tmp_path, old="", new=""):
    """What FuseSoC's target `sim` prints and returns on Icarus, with a line of the bench
    changed."""
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog: not installed (Debian package: iverilog)")
    assert old in tiny[f"{BENCH}.v"]
    write_files(tmp_path, tiny | {f"{BENCH}.v": tiny[f"{BENCH}.v"].replace(old, new)})
    done = fusesoc(tmp_path, "--target=sim", "moe-hub:hub:moehub", "--tool=icarus")
    return done.returncode, done.stdout + done.stderr


def test_fusesoc_sim(tiny, tmp_path):
    code, said = simulated(tiny, tmp_path)
    assert code == 0 and "PASS: a row in memory, READY, ALL" in said and "FAIL" not in said


@pytest.mark.night
@pytest.mark.parametrize(
    "line, found",
    [
        (("= m_axi_1_wdata[8*lane +: 8];", "= 1;"), "a byte in memory is wrong"),
        (("= m_axi_1_wdata[8*lane +: 8];", "= 8'bx;"), "a byte in memory is wrong"),
        (
            ("m_axis_event_tdata[0 +: 2] !== 0", "m_axis_event_tdata[0 +: 2] !== 1"),
            "READY is wrong",
        ),
        (("m_axi_1_bvalid <= 1;", "m_axi_1_bvalid <= 0;"), "nothing happened for 5000 cycles"),
    ],
)
def test_fusesoc_sim_fails(line, found, tiny, tmp_path):
    """A wrong byte, an unknown one, a wrong event, a memory that does not answer."""
    code, said = simulated(tiny, tmp_path, *line)
    assert code != 0 and f"FAIL: {found}" in said and "PASS" not in said


@pytest.mark.parametrize("cfg", [TINY, WIDE, CLOCKS], ids=["tiny", "wide", "clocks"])
def test_bench_elaborates(cfg, tmp_path):
    """The bench has every port of the wrapper; Verilator, with delays, takes it."""
    files = {
        "bench.v": self_checking_bench(cfg),
        "axi.v": axi_wrapper(cfg, TOP),
        "stub.v": stub(cfg),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["verilator", "--lint-only", "--timing", "-Wno-WIDTH", "--top-module", BENCH, *files],
        cwd=tmp_path,
        env=verilator_env(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_fusesoc_lint_finds(tmp_path):
    """A hub that drives nothing, and an unused wire in the wrapper, are findings."""
    files = Generated(TINY, stub(TINY), "", {}).files()
    files[f"{AXI_TOP}.v"] = files[f"{AXI_TOP}.v"].replace(
        "endmodule", "  wire idle = aclk;\nendmodule"
    )
    write_files(tmp_path, files)
    done = fusesoc(tmp_path, "--target=lint", "moe-hub:hub:moehub")
    assert (
        done.returncode
        and "UNDRIVEN" in done.stdout + done.stderr
        and "'idle'" in done.stdout + done.stderr
    )


def test_fusesoc_synth_setup(tmp_path):
    """The synthesis target hands Verilog and constraints to Vivado (its project is written, nothing
    is run)."""
    write_files(tmp_path, Generated(TINY, stub(TINY), "", {}).files())
    done = fusesoc(
        tmp_path, "--setup", "--target=synth", "moe-hub:hub:moehub", "--part=xcvu9p-flga2104-2-i"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    script = "".join(path.read_text() for path in (tmp_path / "build").rglob("*.tcl"))
    assert f"set_property top {AXI_TOP}" in script and re.search(r"read_xdc .*moehub\.sdc", script)
    assert all(
        re.search(rf"read_verilog .*{name}", script) for name in (r"moehub\.v", r"moehub_axi\.v")
    )


# -- guide -----------------------------------------------------------------------------------------


def test_guide():
    """docs/integration.md lists the interfaces and the files there are, and the right bits of a
    store."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (ROOT / "docs" / "integration.md").read_text().splitlines()
        if line.startswith("|")
    ]
    names = {name for row in rows for name in re.findall(r"`([\w<>*.]+)`", row[0])}
    files = {name for name in names if "." in name}
    assert files == {*Generated(TINY, "", "", {}).files(), RAMS}
    interfaces = {
        re.sub(r"<\w>$", "0", name).removesuffix("_*")
        for name in names - files
        if re.match(r"[ms]_axi|can_|obs_|irq|cleared", name) and not name.endswith("tdata")
    }
    assert interfaces == {
        interface["name"]
        for interface in axi_sidecar(TINY)["interfaces"]
        if interface["name"] != "m_axi_1"
    }
    fields, bits = (
        next(row for row in rows if row[0] == first)
        for first in ("Field", "bits of `s_axis_store0_tdata`")
    )
    store = next(i for i in axi_sidecar(TINY)["interfaces"] if i["name"] == "s_axis_store0")
    assert dict(zip(fields[1:], bits[1:], strict=True)) == {
        name.rpartition("_")[2]: f"{low + width - 1}:{low}" if width > 1 else str(low)
        for name, low, width in (part.values() for part in store["ports"][0]["hub"])
    }


# -- reset -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, deepest", [({}, 8), ({"handles": 32}, 64)], ids=["tiny", "ledger"]
)
def test_reset(changes, deepest):
    """One cycle of reset is enough: nothing is offered, and `cleared` comes 2 or 3 cycles after the
    last word of the deepest memory that is cleared."""
    cfg = preset("tiny", **changes)
    hub, reset = Hub(cfg), Signal()
    simulator = Simulator(ResetInserter(reset)(hub))
    simulator.add_clock(1e-6)
    offers = [
        port.name
        for interface in hub_interfaces(cfg)
        for port in interface.ports
        if port.direction == "out" and port.field.endswith("valid")
    ]
    cleared = []

    async def bench(ctx):
        for _ in range(2):  # the second time out of operation
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            cleared.append(0)
            while not ctx.get(hub.cleared):
                assert not any(ctx.get(getattr(hub, name)) for name in offers)
                await ctx.tick()
                cleared[-1] += 1
            await ctx.tick().repeat(5)

    simulator.add_testbench(bench)
    simulator.run()
    assert cleared[0] == cleared[1] and deepest + 2 <= cleared[0] <= deepest + 3
