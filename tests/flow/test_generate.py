# SPDX-License-Identifier: Apache-2.0
"""Generated files: same bytes every time, complete, clean, and never half written."""

import hashlib
import json
import os
import re
import subprocess
import sys

import pytest

from flow.verilog.axi_wrapper import AXI_TOP
from flow.verilog.generate import TOP, generate, named, write_files
from flow.verilog.lint import MISSING, TOOLS, WAIVED, lint_verilog
from flow.verilog.netlist import ModuleLibrary, memories, module_names, to_rtlil, to_verilog
from hub_rtl.contract.config import preset
from hub_rtl.contract.ports import hub_ports, ports_markdown
from hub_rtl.hub.hub import Hub
from sim.bench.runner import ROOT
from sim.generated import generated

TINY = preset("tiny")
ODD = preset(
    "tiny",
    ranks=3,
    pool_depth=8,
    lanes=3,
    loop_lanes=2,
    handles=5,
    regions=3,
    capacity=13,
    replicas=2,
    dep_ranges=3,
    rat_ways=3,
    log_depth=5,
    reject_depth=3,
    write_depth=5,
    packet_bytes=256,
    groups=8,
    combine_depth=3,
)
LEAST = preset(
    "tiny",
    handles=1,
    regions=1,
    capacity=1,
    dep_ranges=1,
    log_depth=1,
    reject_depth=1,
    tag_width=1,
    max_row_bytes=16,
    rat_ways=1,
    pool_places=2,
    combine_depth=1,
    write_depth=2,
    filter_depth=2,
    filter_width=1,
)


@pytest.fixture(scope="module")
def tiny():
    return generated(TINY)


@pytest.mark.night
def test_same_bytes_for_every_hash_seed(tiny):
    """Another process with another hash seed writes the same files."""
    script = (
        "import hashlib, sys\nfrom hub_rtl.contract.config import preset\nfrom "
        "flow.verilog.generate import generate\n"
        "for name, text in generate(preset('tiny')).files().items():\n"
        "    print(name, hashlib.sha256(text.encode()).hexdigest())\n"
    )
    there = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert there.stderr == ""
    here = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in tiny.files().items()}
    assert dict(line.split() for line in there.stdout.splitlines()) == here


def test_ports(tiny):
    """The top module has exactly the ports of the sidecar, with their widths and directions."""
    text = tiny.verilog[tiny.verilog.index(f"module {TOP}(") :]
    found = {
        name: ({"input": "in", "output": "out"}[way], int(high or 0) + 1)
        for way, high, name in re.findall(
            r"^  (input|output) (?:reg )?(?:\[(\d+):0\] )?(\w+)",
            text[: text.index("\nendmodule")],
            re.M,
        )
    }
    wanted = {
        port["name"]: (port["direction"], port["width"])
        for interface in tiny.sidecar["interfaces"]
        for port in interface["ports"]
    }
    assert found == wanted | {"clk": ("in", 1), "rst": ("in", 1)}
    assert list(wanted) == [port.name for port in hub_ports(TINY)]


def test_port_table():
    """The hub's page shows the ports as they are."""
    assert ports_markdown(preset("small")) in (ROOT / "docs" / "blocks" / "hub.md").read_text()


def test_sidecar(tiny):
    side = json.loads(json.dumps(tiny.sidecar))
    assert side["parameters"]["ranks"] == 2 and side["derived"]["slices"] == 2
    assert side["registers"]["control.TIMEOUT"] == 0x1018 and side["address_map"]["hang"] == 0x9000
    assert len({memory["path"] for memory in side["memories"]}) == len(side["memories"]) > 20
    one = next(m for m in side["memories"] if m["path"].endswith("csr.counters.copies"))
    assert (one["width"], one["collision"]) == (48, "new data, by a bypass outside the memory")
    for path, granules, cleared in (
        ("allocator.engine.views", 1, True),
        ("decoder0.table", 1, True),
        ("csr.counters.copies", 1, False),
        ("table.pointers", 2, True),
    ):
        one = next(m for m in side["memories"] if path in m["path"])
        assert (one["granules"], one["cleared"], one["collision"][:8]) == (
            granules,
            cleared,
            "new data",
        )
    one = next(m for m in side["memories"] if "pool0.entries.payload" in m["path"])
    assert (one["granules"], one["cleared"], one["collision"]) == (32, False, "not used")
    modules = set(re.findall(r"^module (\w+)\(", tiny.verilog, re.M))
    assert {memory["module"] for memory in side["memories"]} <= modules


def test_names(tiny):
    """Every module is named after its place, plainly, and once; above it stands what it is. Every
    port has a name."""
    modules = re.findall(r"^module (\S+?)\(", tiny.verilog, re.M)
    assert len(modules) == len(set(modules)) and all(
        re.fullmatch(r"moehub\w*", name) for name in modules
    )
    assert (
        not re.search(r"\b(ROOT|/work|/home|/tmp)\b", tiny.verilog) and "(* src" not in tiny.verilog
    )
    assert "$auto$" not in tiny.verilog
    assert not re.search(r"^  (?:in|out)put (?:\[\d+:0\] )?port_\d", tiny.verilog, re.M)
    told = re.findall(
        r"^// (?:hub_rtl|amaranth)\.[^:]*: .*\n(?:// .*\n)*module (\w+)\(",
        tiny.sources()["moehub.v"],
        re.M,
    )
    assert told == modules


@pytest.mark.night
@pytest.mark.parametrize("cfg", [ODD, LEAST], ids=["odd", "least"])
def test_lint(cfg):
    """Hub and wrapper, each alone; by day two in one design are linted."""
    around = generated(cfg).sources()
    assert lint_verilog(around.pop(f"{TOP}.v"), TOP, around=around, top=AXI_TOP) == []


def test_lint_finds():
    """The linter is not blind: undriven nets, width errors in ports and latches are found."""
    bad = f"module {TOP}(input clk, output [1:0] q);\n  wire a;\n  assign q[0] = a;\nendmodule\n"
    found = lint_verilog(bad, TOP)
    assert any("UNDRIVEN" in finding for finding in found) and any(
        "yosys" in finding for finding in found
    )
    unused = (
        f"module outer(input clk, output [1:0] q);\n  wire idle = clk;\n  {TOP} "
        "hub(.clk(clk), .q(q));\nendmodule\n"
    )
    good = (
        f"module {TOP}(input clk, output [1:0] q);\n  wire a = clk;\n  assign q = "
        f"{{clk, clk}};\nendmodule\n"
    )
    assert (
        lint_verilog(good, TOP) == []
    )  # what is waived for the hub is not waived for what is around it
    assert any(
        "'idle'" in finding
        for finding in lint_verilog(good, TOP, around={"outer.v": unused}, top="outer")
    )
    assert all(len(reason) > 20 for reason in WAIVED.values())


@pytest.mark.parametrize(
    "tool, inside",
    [
        ("verilator", "assign q = missing;"),
        ("yosys", "wire b; assign q = a & b;"),
        ("slang", "assign q = a; wire q;"),
        ("icarus", "assign q = a; absent inner(.a(a));"),
    ],
)
def test_each_tool_finds(tool, inside):
    """By itself, a fault planted for it, and nothing without."""
    if tool in MISSING:
        pytest.skip(f"not installed: {tool} ({MISSING[tool]})")
    text = f"module {TOP}(input a, output q);\n  {{}}\nendmodule\n"
    assert lint_verilog(text.format("assign q = a;"), TOP, tools=[tool]) == []
    [finding] = lint_verilog(text.format(inside), TOP, tools=[tool])
    assert finding.startswith(f"{tool}: ")


@pytest.fixture(scope="module")
def two_hubs(tiny):
    """Files of two hubs of unequal configuration, by their names."""
    return named(tiny.files(), "near"), named(generated(LEAST, ram_modules=True).files(), "far_2")


def test_names_follow(two_hubs, tiny):
    near, far = two_hubs
    assert not set(near) & set(far) and {"near.v", "near_axi.v", "near_regs.h"} <= set(near)
    modules = []
    for files in two_hubs:
        assert not any(re.search("moehub", text, re.I) for text in files.values())
        verilog = "".join(text for name, text in files.items() if name.endswith(".v"))
        modules.append(set(re.findall(r"^module (\S+)\(", verilog, re.M)))
    assert len(modules[0]) > 100 and not modules[0] & modules[1]
    assert "#define NEAR_CONTROL_TIMEOUT" in near["near_regs.h"]
    assert "name: moe-hub:hub:far_2:" in far["far_2.core"]
    assert named(tiny.files(), TOP) == tiny.files()


def test_every_signal_has_a_name(tiny, two_hubs):
    """A nameless one is called after what made it."""
    for files in (tiny.files(), *two_hubs):
        for name, text in files.items():
            if name.endswith(".v"):
                assert not re.search(r"\\\$(signal|like|signature)", text), name


def joined(wrappers):
    """A module with an instance of each wrapper, {module: its text}, all of whose ports are its
    own."""
    ports, instances = [], []
    for module, text in wrappers.items():
        found = re.findall(r"^  (input |output) wire (\[\d+:0\] )?(\w+)", text, re.M)
        ports += [f"  {way} wire {size}{module}_{port}" for way, size, port in found]
        joins = ", ".join(f".{port}({module}_{port})" for _, _, port in found)
        instances.append(f"  {module} {module}_hub({joins});")
    return "\n".join(["module both(", ",\n".join(ports), ");", *instances, "endmodule", ""])


@pytest.mark.parametrize("tool", TOOLS)
def test_two_hubs_in_one_design(two_hubs, tool):
    """One module with an instance of each; clean, as each alone."""
    if tool in MISSING:
        pytest.skip(f"not installed: {tool} ({MISSING[tool]})")
    files = {}
    for prefix, texts in zip(("near", "far_2"), two_hubs, strict=True):
        listed = texts[f"{prefix}.f"].splitlines()[1:]
        files |= {name: texts[name] for name in listed}
    files["both.v"] = joined({name: files[f"{name}.v"] for name in ("near_axi", "far_2_axi")})
    # One file, as Verilator's waivers go by the file's name.
    assert lint_verilog("\n".join(files.values()), "both", tools=[tool]) == []


def test_bench_of_another_hub(two_hubs, tmp_path):
    """The bench of the least hub, under another name, passes: its row is what that hub may have."""
    if "icarus" in MISSING:
        pytest.skip(f"not installed: icarus ({MISSING['icarus']})")
    _, far = two_hubs
    sources = [name for name in far if name.endswith(".v")]
    write_files(tmp_path, far)
    build = ["iverilog", "-g2005", "-s", "far_2_tb", "-o", "bench", *sources]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(["vvp", "-n", "bench"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("PASS: "), done.stdout


def test_instance_and_list(tmp_path):
    """Each port of the wrapper is in the template; in a module, beside the listed files, it
    elaborates, and lacks nothing but who drives its wires."""
    files = generated(LEAST, ram_modules=True).files()
    write_files(tmp_path, files)
    ports = r"^  (?:input |output) wire (?:\[\d+:0\] )?(\w+)"
    assert re.findall(r"^  \.(\w+)\(\1\)", files["moehub_axi.vt"], re.M) == re.findall(
        ports, files["moehub_axi.v"], re.M
    )
    use = tmp_path / "use.v"
    use.write_text(f"module use_it;\n{files['moehub_axi.vt']}endmodule\n")
    listed = [tmp_path / line for line in files["moehub.f"].splitlines() if line[:2] != "//"]
    _, said = TOOLS["yosys"]([use, *listed], "use_it", [])
    warnings = re.findall("^Warning: (.*)", said, re.M)
    assert warnings and all("used but has no driver" in each for each in warnings), said
    assert re.findall("ERROR: (.*) in", said) == [f"Found {len(warnings)} problems"]


@pytest.mark.parametrize("name", ["", "Hub", "2hubs", "a-b", "a" * 32])
def test_name_refused(name):
    with pytest.raises(ValueError, match=f"name = {name}: must be a lower-case letter"):
        named({}, name)


@pytest.mark.night
def test_lanes_are_shared(tiny):
    """Twice the lanes do not mean twice the text: lane-level modules are written once."""
    one, four = tiny.verilog, generate(TINY.replace(lanes=4 * TINY.lanes)).verilog
    assert len(four) < 1.5 * len(one)
    assert four.count("module moehub_packet_manager(") == 1
    assert len(re.findall(r"^  moehub_packet_manager ", four, re.M)) == 5


@pytest.mark.night
def test_flat_hub_is_the_same_machine():
    """Without a library the hub is one tree: same memories at the same places."""
    flat = to_rtlil(Hub(TINY), TOP)
    library = ModuleLibrary()
    top = to_rtlil(Hub(TINY, library), TOP)
    shapes = [
        sorted((m["path"], m["depth"], m["width"], m["granules"]) for m in memories(texts, TOP))
        for texts in ([flat], [*library.rtlil.values(), top])
    ]
    assert shapes[0] == shapes[1]
    assert "moehub_packet_manager" not in module_names(flat)
    assert f"module {TOP}(" in to_verilog([flat])


def test_nothing_half_written(tmp_path):
    """A file that cannot be written leaves the older ones as they are, and no rubbish."""
    write_files(tmp_path, {"a": "old", "b": "old"})
    with pytest.raises(TypeError):
        write_files(tmp_path, {"a": "new", "b": None})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}
