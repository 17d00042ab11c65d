"""Proofs that code-coverage points cannot be reached: Yosys writes each point as an output, ABC proves outputs constant 0.

A point is turned into an expression over the nets of its module: the conditions on the way to a branch, the values of an
expression's terms, a bit that leaves its reset value. Inputs and reset are free in every cycle, but for the named assumptions
of the block. ``lcorr`` (constant and equal registers) proves constant bits by the thousand, ``pdr`` takes the rest one by one.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["expression", "paths", "unreachable"]

PDR_SECONDS = 10        # for one point
PDR_TOTAL = 200         # for all points of a bench; none is tried after that
WIDE = 100      # bits per word: memories of packet data are left out, and what they give is free

_IF = re.compile(r"(end else )?if \((.*)\)( begin)?$")
_CASE = re.compile(r"casez? \((.*)\)$")
_ITEM = re.compile(r"((?:\d+'h[0-9a-f]+(?:, )?|\d+'b[01?]+(?:, )?)+|default):$")
_CHOICE = re.compile(r"(?:assign .*?|\S+ *)<?= (.*?) \? .* : .*;$")
_TERM = re.compile(r"\(?(.*?)((?:\[\d+\])?)==([01])\)?")
_PORT = re.compile(r"^ *(input|output) *(\[[^]]*\])? *(\\\S+ |\w+) *;", re.M)


def _all(conditions):
    return " && ".join(f"({condition})" for condition in conditions) or "1"


def _matches(selector, items):
    tests = []
    for item in items.split(", "):
        width, digits = item.split("'")
        if digits[0] == "b" and "?" in digits:
            mask = digits[1:].replace("0", "1").replace("?", "0")
            tests.append(f"(({selector}) & {width}'b{mask}) == {width}'b{digits[1:].replace('?', '0')}")
        else:
            tests.append(f"({selector}) == {item}")
    return " || ".join(tests)


def paths(lines):
    """``{line: (conditions on the way to it, its own condition)}`` of each ``if`` and case item in Yosys' regular Verilog."""
    found, stack = {}, []       # stack of [kind, conditions that hold inside, selector, items seen]
    for number, line in enumerate(lines):
        text = line.strip()
        way = [condition for frame in stack for condition in frame[1]]
        if text.endswith("begin end"):
            continue
        if match := _IF.match(text):
            before = []
            if match[1]:
                _, inside, *_ = stack.pop()
                before = [*inside[:-1], f"!({inside[-1]})"]
                way = [condition for frame in stack for condition in frame[1]]
            found[number] = ([*way, *before], match[2])
            if match[3]:
                stack.append(["if", [*before, match[2]], None, None])
        elif text == "end else begin":
            _, inside, *_ = stack.pop()
            stack.append(["if", [*inside[:-1], f"!({inside[-1]})"], None, None])
        elif match := _CASE.match(text):
            stack.append(["case", [], match[1], []])
        elif stack and stack[-1][0] == "case" and (match := _ITEM.match(text)):
            frame = stack[-1]
            if match[1] == "default":
                own = _all(f"!({item})" for item in frame[3])
            else:
                own = _matches(frame[2], match[1])
                frame[3].append(own)
            frame[1] = []
            found[number] = ([condition for each in stack for condition in each[1]], own)
            frame[1] = [own]
        elif text in ("end", "endcase"):
            stack.pop()
        elif text.endswith("begin"):
            stack.append(["block", [], None, None])
    return found


def _escaped(text):
    return re.sub(r"(?<![\w$.'\\])[A-Za-z_$][\w$.]*", lambda name: f"\\{name[0]} ", text).replace("{32'h1{", "{1{")


def expression(point, source, ways):
    """Verilog of the conditions that ``point`` needs, each at some time (a toggle: the bit is 1, it is 0); none: not known."""
    text = source.text(point.line)
    if point.kind == "toggle":
        name, bits = source.declared(point.line)[0], re.findall(r"\[(\d+)\]", point.what)
        bit = f"{name} [{bits[-1]}]" if bits else f"{name} "
        return bit, f"!{bit}"
    if point.kind == "expr":
        values, terms = point.what.split(" => ")[0][1:-1].split(" && "), []
        for value in values:
            operand, bit, wanted = _TERM.fullmatch(value).groups()
            terms.append(f"((({_escaped(operand)}) >> {bit[1:-1] or 0}) & 1) == {wanted}")
        return (_all(terms),)
    if point.what in ("cond_then", "cond_else") and (choice := _CHOICE.match(text)):
        return (choice[1] if point.what == "cond_then" else f"!({choice[1]})",)
    if point.line in ways and point.what in ("if", "elsif", "case", "else"):
        way, own = ways[point.line]
        return (_all([*way, f"!({own})" if point.what == "else" else own]),)
    return ()


def _instrumented(text, source, conditions, assumptions):
    """The Verilog with a wire ``cover_<n>`` per condition, below a top in which inputs keep to the assumptions."""
    added = {}
    for number, (line, condition, _) in enumerate(conditions):
        added.setdefault(source.module(line), []).append(
            f"  (* keep *) wire cover_{number} ;\n  assign cover_{number} = {condition} ;")
    out, module = [], None
    for line in text.splitlines():
        if line.startswith("module "):
            module = source.module_name(line)
        if line == "endmodule":
            out += added.get(module, [])
        out.append(line)
    top = source.module_name(next(line for line in text.splitlines() if line.startswith("module ")))
    body = text.split("\nendmodule", 1)[0]
    ports = [(way, width or "", name.strip()) for way, width, name in _PORT.findall(body)]
    lines = [f"module cover_top({', '.join(f'{name} ' for way, _, name in ports if way == 'input')});"]
    for way, width, name in ports:
        if way == "input":
            lines.append(f"  input {width} {name} ;\n  wire {width} \\given.{name.lstrip(chr(92))} ;")
            holds, otherwise = assumptions.get(name.lstrip("\\"), ("1", "0"))
            lines.append(f"  assign \\given.{name.lstrip(chr(92))} = ({holds}) ? {name} : {otherwise} ;")
    links = ", ".join(f".{name} (\\given.{name.lstrip(chr(92))} )" for way, _, name in ports if way == "input")
    return "\n".join([*out, *lines, f"  \\{top} dut ({links});", "endmodule", ""])


_YOSYS = """import sys
from pyosys import libyosys as ys
design = ys.Design()
for step in sys.argv[1:]:
    ys.run_pass("tee -q " + step, design)
"""


def _aiger(folder):
    """Writes ``points.aig`` and ``points.map`` in ``folder`` from ``points.v``."""
    steps = [f"read_verilog {folder}/points.v", "hierarchy -check -top cover_top", "proc -noopt", "flatten",
             "select -set points w:*cover_*", "expose @points", "opt_clean", "opt -nodffe -nosdff", "memory -nordff -nomap",
             "opt_clean", f"delete t:$mem_v2 r:WIDTH>={WIDE} %i", "memory_map -formal",
             "setundef -undriven -expose", "opt -full -nodffe -nosdff",
             "techmap", "async2sync", "dffunmap", "opt_clean", "aigmap", "opt_clean",
             f"write_aiger -zinit -map {folder}/points.map {folder}/points.aig",
             "delete t:*", f"write_json {folder}/constants.json"]
    done = subprocess.run([sys.executable, "-c", _YOSYS, *steps], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Yosys: {(done.stdout + done.stderr)[-2000:]}")


def _abc(folder, script, seconds):
    import pyosys
    tool = Path(pyosys.__file__).parent / "yosys-abc"
    try:
        return subprocess.run([tool, "-q", script], cwd=folder, capture_output=True, text=True, timeout=seconds).stdout
    except subprocess.TimeoutExpired:
        return ""


def _outputs(path):
    """(rest of the header, latch lines, output lines, gates) of a binary AIGER file."""
    with open(path, "rb") as file:
        _, highest, inputs, latches, outputs, gates, *_ = file.readline().split()
        lines = [[file.readline() for _ in range(int(count))] for count in (latches, outputs)]
        return (highest, inputs, latches, gates), *lines, file.read()


def _pdr(folder, number):
    """Is output ``number`` of ``left.aig`` proven constant 0?"""
    (highest, inputs, latches, gates), states, outputs, rest = _outputs(folder / "left.aig")
    header = b" ".join((b"aig", highest, inputs, latches, b"1", gates)) + b"\n"
    (folder / "one.aig").write_bytes(b"".join((header, *states, outputs[number], rest)))
    return "Property proved" in _abc(folder, f"read_aiger one.aig; scleanup; pdr -T {PDR_SECONDS}", 2 * PDR_SECONDS)


def unreachable(text, source, conditions, assumptions=None):
    """Which of ``conditions`` are never true, as a list of bool.

    ``conditions``: [(line of the Verilog, expression in that line's module, is it worth ``pdr``)];
    ``assumptions``: {input of the top: (what holds for it in each cycle, value it has otherwise)}.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "points.v").write_text(_instrumented(text, source, conditions, assumptions or {}))
        _aiger(folder)
        _abc(folder, "read_aiger points.aig; strash; scleanup; lcorr; write_aiger left.aig", 600)
        outputs, end = _outputs(folder / "left.aig")[2], time.monotonic() + PDR_TOTAL
        never = [set() for _ in conditions]     # the verdicts on each instance of the module
        for name, port in json.loads((folder / "constants.json").read_text())["modules"]["cover_top"]["ports"].items():
            if port["bits"][0] in ("0", "1") and "cover_" in name:
                never[int(name.rpartition("cover_")[2])].add(port["bits"][0] == "0")
        for number, name in re.findall(r"^output (\d+) 0 (.*)$", (folder / "points.map").read_text(), re.M):
            point = int(name.rpartition("cover_")[2])
            never[point].add(int(outputs[int(number)]) == 0 or (
                conditions[point][2] and False not in never[point] and time.monotonic() < end and _pdr(folder, int(number))))
    if not all(never):
        raise RuntimeError("a point was lost on the way to the proof")
    return [verdicts == {True} for verdicts in never]
