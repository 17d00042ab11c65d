# SPDX-License-Identifier: Apache-2.0
"""Lines and branches of the generated Verilog that the benches reached, as Verilator counts them.

``moe-hub coverage`` runs all tests with counting programs for the benches of :data:`BLOCKS`, prints
a line per block and writes ``docs/results/coverage.md``; with names of blocks it runs and counts
only their tests. It tells where no bench has been; whether a bench *notices* what is wrong there is
mutation's question. Of the points only the guard ``dump_module`` that Yosys writes into each
process is left out; reset branches of unused defaults and the like count as missed.
"""

import json
import os
import re
import shutil
import subprocess
import sys

from flow.tables import markdown
from sim.folders import BUILD, ROOT, lock

from . import coverage

__all__ = ["BLOCKS", "count", "keep", "main"]

FOLDER = BUILD / "code_coverage"
PAGE = ROOT / "docs" / "results" / "coverage.md"
KINDS = ("line", "branch")

#: Part: (bench whose program counts, modules of it by a pattern, folder of its tests, ``-k``).
BLOCKS = {
    "decoder": ("decoder_odd", "", "decoder", "odd"),
    "steer, merge": ("decoder_parts", "", "decoder", "parts"),
    "packet manager": ("packet_manager_tiny", "", "packet_manager", "tiny"),
    "link port": ("link_small", "", "link", "small or first_rank"),
    "loop port": ("loop_port", "", "link", "loop_port"),
    "serializer": ("serializer_256_32", "", "link", "serializer and 256-32"),
    "deserializer": ("deserializer_256_32", "", "link", "deserializer and 256-32"),
    "slice credits": ("slice_credits", "", "link", "slice_credits"),
    "receive pool": ("receive_pool_odd", "", "receive_pool", "odd or policy"),
    "fence asks": ("remote_fence_asks_odd", "", "remote_fence", "asks and odd"),
    "fence answers": ("remote_fence_answers_odd", "", "remote_fence", "answers and odd"),
    "slot allocator": ("slot_allocator_tiny", "", "slot_allocator", "test_tiny"),
    "slot allocator with a store": (
        "slot_allocator_store_tiny",
        "",
        "slot_allocator",
        "store_tiny",
    ),
    "memory writer": ("writer_odd", "", "memory", "odd"),
    "shared 64-bit port": ("spill_port", "", "memory", "shared"),
    "scoreboard": ("scoreboard_tiny", "", "scoreboard", "tiny"),
    "producer control": ("producer_odd", "", "producer", "odd"),
    "send ledger": ("ledger_odd", "", "producer", "ledger and odd"),
    "lanes of news": ("news_lanes", "", "producer", "news_lanes"),
    "news splitter": ("news_split_32", "", "hub", "news_split and 32"),
    "reject sender": ("report_reject_odd", "", "refusals", "reject and odd"),
    "refusal log": ("report_log_odd", "", "refusals", "log and odd"),
    "registers": ("csr_small", "", "register_bank", "csr_small"),
    "stream register": ("lib_register", "", "parts", "register"),
    "stream queue": ("lib_queue_5", "", "parts", "queue"),
    "stream merge": ("lib_merge", "", "parts", "merge"),
    "packet merge": ("lib_merge_packets", "", "parts", "merge"),
}

_RECORD = re.compile(r"^C '(.*)' (\d+)$", re.M)


def keep(bench, text, dat):
    """Adds the counts in Verilator's file ``dat`` of a run of ``bench`` with the Verilog ``text``
    to ``build/code_coverage/<bench>.json``; counts of another text are forgotten."""
    lines, path = ["", *text.splitlines()], FOLDER / f"{bench}.json"
    with lock(FOLDER / f"{bench}.lock"):
        known = json.loads(path.read_text()) if path.exists() else {}
        points = known["points"] if known.get("text") == text else {}
        for body, number in _RECORD.findall(dat.read_text()):
            field = dict(part.split("\x02", 1) for part in body.split("\x01")[1:])
            if field["t"] in KINDS and "dump_module" not in lines[int(field["l"])]:
                point = " ".join(field[name] for name in ("t", "h", "l", "n", "o"))
                points[point] = points.get(point, 0) + int(number)
        path.write_text(json.dumps({"text": text, "points": points}))


def count(bench, modules=""):
    """``{kind: (reached, all)}`` of the points in modules whose name has the pattern ``modules``,
    and the missed ones, ``kind, module, Verilog line``, over all runs that were kept."""
    known = json.loads((FOLDER / f"{bench}.json").read_text())
    lines, figures, missed = ["", *known["text"].splitlines()], dict.fromkeys(KINDS, (0, 0)), []
    for point, number in known["points"].items():
        kind, module, line = point.split()[:3]
        if re.search(modules, module):
            reached, points = figures[kind]
            figures[kind] = (reached + bool(number), points + 1)
            if not number:
                missed.append(f"{kind} of {module}: {lines[int(line)].strip()}")
    return figures, missed


def _run(blocks):
    benches, tests = ",".join(dict.fromkeys(BLOCKS[name][0] for name in blocks)), ["tests"]
    for bench in benches.split(","):
        (FOLDER / f"{bench}.json").unlink(missing_ok=True)
    if len(blocks) == len(BLOCKS):
        shutil.rmtree(coverage.FOLDER, ignore_errors=True)
    else:
        chosen = " or ".join(f"({BLOCKS[name][2]} and ({BLOCKS[name][3]}))" for name in blocks)
        tests = [
            *dict.fromkeys(f"tests/{BLOCKS[name][2]}" for name in blocks),
            "-k",
            f"not planted and ({chosen})",
        ]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *tests]
    env = {**os.environ, "MOE_HUB_CODE_COVERAGE": benches}
    return subprocess.run(command, cwd=ROOT, env=env).returncode


def _page(figures, bins):
    rows = (
        (
            name,
            *(f"{found[kind][0]:,} of {found[kind][1]:,}" for kind in KINDS),
            f"{100 * found['branch'][0] / max(1, found['branch'][1]):.1f}",
        )
        for name, found in figures.items()
    )
    return "\n".join(
        [
            "# Coverage",
            "",
            "Written by `make coverage`; how to read it: [running.md](../running.md#coverage).",
            "",
            f"Functional bins of the test plan: {bins[0]} of {bins[1]}.",
            "",
            *markdown("| Part | Lines reached | Branches reached | % |", rows, "|---|--:|--:|--:|"),
            "",
        ]
    )


def main(given=(), judged=False, missed=False):
    """``moe-hub coverage``; returns the exit code, 1 when tests fail, a bin is missed or a part was
    not built. ``given``: names of parts, all without any; ``judged``: no new run; ``missed``: lists
    the missed points."""
    blocks = given or list(BLOCKS)
    if not judged and _run(blocks):
        print("tests failed: nothing is counted")
        return 1
    figures = {}
    for name in blocks:
        if not (FOLDER / f"{BLOCKS[name][0]}.json").exists():
            print(f"{name}: no test has built its bench {BLOCKS[name][0]}: nothing is counted")
            continue
        figures[name], points = count(*BLOCKS[name][:2])
        told = ", ".join(f"{kind} {a}/{b}" for kind, (a, b) in figures[name].items())
        print(f"{name}: {told}")
        for point in points if missed else ():
            print(f"  {point}")
    planned, hit = coverage.planned_bins(), coverage.hit_bins()
    bins = (sum(name in hit for name in planned), len(planned))
    print(f"{bins[0]} of {bins[1]} planned bins hit")
    whole = len(figures) == len(blocks)
    if whole and not given:
        PAGE.write_text(_page(figures, bins))
    return 0 if whole and (given or bins[0] == bins[1]) else 1
