"""Verification closure in figures: bins of the test plan, and line, branch, expression and toggle coverage of each block.

``python -m sim.bench.code_coverage`` (``make coverage``) runs all tests, with counting programs for the benches of
:data:`BLOCKS`, prints a table and writes ``docs/results/coverage.md``; exit code 1 while a target of :data:`TARGETS` is missed.
With names of blocks it runs and judges only their tests; ``--judge`` judges what the last run counted.

Of a counted point that no run reached there are three kinds: *proven*, it cannot be reached whatever the inputs do
(:mod:`sim.bench.unreachable`); *named*, in ``exclusions.toml`` with its reason; *missed*. Not counted at all: the guard
``dump_module`` that Yosys writes into each process, and toggles of anything but ports and registers (memory words are
judged by their ports).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field

from . import coverage
from .coverage_points import FOLDER, KINDS, read
from .coverage_report import markdown, table
from .runner import BUILD, ROOT
from .unreachable import expression, paths, unreachable

__all__ = ["BLOCKS", "TARGETS", "Verdict", "judge"]

TARGETS = {"line": 100, "branch": 100, "expr": 100, "toggle": 95}
RULES = ROOT / "sim" / "bench" / "exclusions.toml"
PROOFS = BUILD / "code_coverage_proofs"
PAGE = ROOT / "docs" / "results" / "coverage.md"

#: Block: (bench whose program is counted, modules of it by a pattern, test file, names of the tests that run the bench).
BLOCKS = {
    "decoder": ("decoder_odd", "", "test_decoder", "odd"),
    "steer, merge, ledger": ("decoder_parts", "", "test_decoder", "parts"),
    "packet manager": ("packet_manager_tiny", "", "test_packet_manager", "tiny or saturated"),
    "link port": ("link_small", "", "test_link", "small or first_rank"),
    "loop port": ("link_mesh_odd", r"\.loop\b", "test_link", "switch"),
    "slot allocator": ("slot_allocator_tiny", "", "test_slot_allocator", "tiny"),
    "memory writer": ("writer_odd", "", "test_memory_writer", "odd"),
    "shared 64-bit port": ("spill_port", "", "test_memory_writer", "shared"),
    "scoreboard": ("scoreboard_tiny", "", "test_scoreboard", "tiny"),
    "producer control": ("producer_odd", "", "test_producer_control", "odd"),
    "reject sender": ("report_reject_odd", "", "test_report", "reject and odd"),
    "refusal log": ("report_log_odd", "", "test_report", "log and odd"),
    "registers": ("csr_small", "", "test_csr", "csr_small"),
    "stream register": ("lib_register", "", "test_lib", "register"),
    "stream queue": ("lib_queue_5", "", "test_lib", "queue"),
    "stream merge": ("lib_merge", "", "test_lib", "merge"),
    "packet merge": ("lib_merge_packets", "", "test_lib", "merge"),
}


@dataclass
class Verdict:
    """What became of a block's points: counts by kind, of the named ones by reason, and the missed points."""

    source: object
    hit: Counter = field(default_factory=Counter)
    proven: Counter = field(default_factory=Counter)
    named: Counter = field(default_factory=Counter)     # by (kind, reason)
    missed: list = field(default_factory=list)

    def figures(self, kind):
        """(reached, to be reached)"""
        return self.hit[kind], self.hit[kind] + sum(point.kind == kind for point in self.missed)

    def met(self, kind):
        reached, points = self.figures(kind)
        return 100 * reached >= TARGETS[kind] * points


def _counted(point, source):
    if point.kind != "toggle":
        return "dump_module" not in source.lines[point.line]
    name, array = source.declared(point.line)
    module = source.module(point.line)
    return not array and (name in source.ports[module] or name in source.registers[module])


def _prove(source, points, assumptions):
    """Those of ``points`` that cannot be reached; verdicts are kept by content."""
    ways, text = paths(source.lines), "\n".join([*source.lines[1:], ""])
    wanted = {point: [(point.line, each, point.kind != "toggle") for each in expression(point, source, ways)]
              for point in points}
    path = PROOFS / (hashlib.sha256(repr((text, assumptions)).encode()).hexdigest()[:16] + ".json")
    known = {tuple(key): verdict for *key, verdict in json.loads(path.read_text())} if path.exists() else {}
    todo = [key for key in dict.fromkeys(key for keys in wanted.values() for key in keys) if key not in known]
    if todo:
        known.update(zip(todo, unreachable(text, source, todo, assumptions), strict=True))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([[*key, verdict] for key, verdict in known.items()]))
    return {point for point, keys in wanted.items() if any(known[key] for key in keys)}


def judge(bench, modules, rules):
    """The :class:`Verdict` on the modules of ``bench`` whose name has the pattern ``modules``; ``rules``: content of
    ``exclusions.toml`` for this bench, of which the used ones are marked."""
    source, counts = read(bench)
    verdict = Verdict(source)
    points = [point for point in counts if re.search(modules, point.module) and _counted(point, source)]
    unhit = [point for point in points if not counts[point]]
    verdict.hit = Counter(point.kind for point in points if counts[point])
    rest = []
    for point in unhit:
        for rule in rules.get("exclude", ()):
            if point.kind in rule["kinds"] and re.search(rule.get("module", ""), source.module(point.line)) \
                    and re.search(rule["line"], source.text(point.line)) and re.search(rule.get("what", ""), point.what):
                verdict.named[point.kind, rule["reason"]] += 1
                rule["used"] = True
                break
        else:
            rest.append(point)
    assumed = {each["input"]: (each["holds"], each.get("otherwise", "0")) for each in rules.get("assume", ())}
    proven = _prove(source, rest, assumed)
    verdict.proven = Counter(point.kind for point in proven)
    verdict.missed = [point for point in rest if point not in proven]
    return verdict


def _run(blocks):
    benches, tests = ",".join(dict.fromkeys(BLOCKS[name][0] for name in blocks)), ["tests"]
    for bench in benches.split(","):
        shutil.rmtree(FOLDER / bench, ignore_errors=True)
    if len(blocks) == len(BLOCKS):
        shutil.rmtree(coverage.FOLDER, ignore_errors=True)
    else:
        chosen = " or ".join(f"({BLOCKS[name][2]} and ({BLOCKS[name][3]}))" for name in blocks)
        tests = [*dict.fromkeys(f"tests/{BLOCKS[name][2]}.py" for name in blocks), "-k", f"not planted and ({chosen})"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "MOE_HUB_CODE_COVERAGE": benches}).returncode


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="make coverage", description=__doc__.split("\n")[0])
    parser.add_argument("blocks", nargs="*", metavar="BLOCK", help=f"one of: {', '.join(BLOCKS)}; all by default")
    parser.add_argument("--judge", action="store_true", help="judge what the last run counted")
    parser.add_argument("--missed", action="store_true", help="list the missed points")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.blocks if name not in BLOCKS]
    if unknown:
        parser.error(f"no such block: {', '.join(unknown)}")
    blocks = given.blocks or list(BLOCKS)
    if not given.judge and _run(blocks):
        print("tests failed: nothing is judged")
        return 1
    rules = tomllib.loads(RULES.read_text())
    verdicts = {name: judge(*BLOCKS[name][:2], rules.get(BLOCKS[name][0], {})) for name in blocks}
    stale = [f"{bench}: {rule['reason']}" for bench in dict.fromkeys(BLOCKS[name][0] for name in blocks)
             for rule in rules.get(bench, {}).get("exclude", ()) if "used" not in rule]
    planned, hit = coverage.planned_bins(), coverage.hit_bins()
    bins = (sum(name in hit for name in planned), len(planned))
    for name, verdict in verdicts.items() if given.missed else ():
        for point in sorted(verdict.missed, key=lambda point: (point.kind, point.line)):
            print(f"{name}: {point.kind} {point.line} {point.what} | {verdict.source.text(point.line)[:120]}")
    print(table(verdicts, bins, TARGETS))
    for text in stale:
        print(f"an exclusion that excludes nothing: {text}")
    if not given.blocks:
        PAGE.write_text(markdown(verdicts, bins, TARGETS, rules))
    met = all(verdict.met(kind) for verdict in verdicts.values() for kind in KINDS)
    return 0 if met and not stale and (given.blocks or bins[0] == bins[1]) else 1


if __name__ == "__main__":
    sys.exit(main())
