# SPDX-License-Identifier: Apache-2.0
"""Functional coverage: named bins that tests hit, and the report against the test plan.

``cover("slot_allocator.full")`` in a cocotb test (or in plain Python) notes that the situation was
reached. Bins of runs that passed are merged into ``build/coverage/<bench>.json``. ``moe-hub bins``
lists what the test plan (``docs/testplan/*.toml``) asks for and what was hit; its exit code is 1
while a bin is missed. With ``--short`` it lists only the missed bins and the total, and always ends
with 0.
"""

import json
import os
import tomllib

from sim.folders import BUILD, ROOT, lock

__all__ = ["cover", "hit_bins", "merge", "planned_bins", "report"]

FOLDER = BUILD / "coverage"
PLAN = ROOT / "docs" / "testplan"

noted = set()  # by this process


def cover(name, condition=True):
    """Notes that the bin ``name`` was hit, if ``condition`` holds."""
    if not condition or name in noted:
        return
    noted.add(name)
    target = os.environ.get("MOE_HUB_COVERAGE")
    if target:
        with open(target, "a") as file:  # at once: a simulator does not always run exit handlers
            file.write(name + "\n")
    else:
        merge("python", [name])


def merge(bench, bins):
    """Adds bins to those of ``bench``."""
    path = FOLDER / f"{bench}.json"
    with lock(FOLDER / f"{bench}.lock"):
        known = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps(sorted({*known, *bins}), indent=0) + "\n")


def hit_bins():
    """``{bin: [benches that hit it]}`` of all runs since the folder was cleared."""
    hit = {}
    for path in sorted(FOLDER.glob("*.json")):
        for name in json.loads(path.read_text()):
            hit.setdefault(name, []).append(path.stem)
    return hit


def planned_bins():
    """``{bin: id of the test-plan item}``."""
    planned = {}
    for path in sorted(PLAN.glob("*.toml")):
        for item in tomllib.loads(path.read_text()).get("item", []):
            for name in item.get("bins", []):
                planned.setdefault(name, item["id"])
    return planned


def report(write=print, short=False):
    """Writes the coverage report, of the missed bins only if ``short``; returns the missed bins."""
    planned, hit = planned_bins(), hit_bins()
    missed = [name for name in planned if name not in hit]
    for name, item in planned.items():
        if short and name in hit:
            continue
        write(
            (
                f"{'hit   ' if name in hit else 'MISSED'}  {name:<40} {item:<24} "
                f"{', '.join(hit.get(name, []))}"
            ).rstrip()
        )
    for name in sorted(set(hit) - set(planned)) if not short else ():
        write(f"extra   {name:<40} {'(not in the test plan)':<24} {', '.join(hit[name])}")
    write(f"{len(planned) - len(missed)} of {len(planned)} planned bins hit, {len(missed)} missed")
    return missed
