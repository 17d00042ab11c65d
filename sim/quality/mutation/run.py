# SPDX-License-Identifier: Apache-2.0
"""``moe-hub mutate [BLOCK...]``: mutants of each block against its own bench, proofs for those that
nobody noticed: that they are no different, or else the block's checks of the short set.

Prints a table and writes ``docs/results/mutation.md``: of the blocks asked for, the others stay as
they were; not with ``--no-proofs`` for some blocks only. Exit code 1 when a target is missed.
Verdicts are kept in ``build/mutation/<block>/``, bound to the netlist and to every file of the
project that the bench has loaded; when only those files change, the test that killed a mutant last
time is tried first. ``--jobs`` mutants run at a time (1).
"""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from flow.kept import digest
from flow.kept import write as write_file
from sim.bench.runner import BUILD, ROOT, lock, run_bench

from .blocks import BLOCKS, CREDITS, MEANT
from .equivalence import Prover
from .netlist import meant, mutated
from .page import page, table, with_blocks

COUNT, SEED, FACTOR = 500, 1, 5
FOLDER = BUILD / "mutation"
MEANING = "## Mutants of meaning"  # the page's last section, written by --meaning


def campaign(
    name,
    count=COUNT,
    seed=SEED,
    jobs=1,
    kept=False,
    prove=True,
    write=print,
    meaning=False,
    ask=None,
):
    """Verdicts of one block: {"mutants": [Mutant], "verdicts": {number: {"verdict": ..., ...}},
    "seconds"}.

    A verdict is ``killed`` (with ``test``), ``timeout`` or ``crash`` (killed, too), ``equivalent``,
    ``noticed`` (survived, and a check notices: ``asked``), ``different`` (survived, and some input
    shows it), or ``open`` (survived, no proof in the time allowed). ``kept``: the last run's
    verdicts, whatever has changed in the bench since; without ``prove`` no new proofs are tried.
    ``meaning``: the block's mutants of meaning in place of ``count`` mutants of its netlist drawn
    with ``seed``. ``ask(netlist, mutant)`` gives the check that notices, "" for none; its answers
    are kept as long as its ``key``.
    """
    block = (MEANT if meaning else BLOCKS)[name]
    kind = "meant" if meaning else "mutants"
    folder = FOLDER / name / kind if meaning else FOLDER / name
    started = time.monotonic()
    with lock(folder / "lock"):
        netlist = (
            meant(block.make(), f"{kind}_{name}", folder)
            if meaning
            else mutated(block.make(), f"{kind}_{name}", count, seed, folder)
        )
        known = _load(folder / "verdicts.json")
        known = known if known.get("key") == netlist.key else {}
        bench = _hash(block.module, block.tests, block.params)
        if not (kept and known) and (
            known.get("bench") != bench or not _same(known.get("sources", {}))
        ):
            known = _simulate(block, f"{kind}_{name}", netlist, known, jobs, folder, write) | {
                "key": netlist.key,
                "bench": bench,
                "prover": known.get("prover"),
                "proofs": known.get("proofs", {}),
                "asked": known.get("asked", {}),
            }
            write_file(folder / "verdicts.json", json.dumps(known))
        prover = _hash(_source("equivalence"), _source("miter"), block.strobes)
        if known["prover"] != prover:
            known |= {"prover": prover, "proofs": {}}
        if prove:
            _prove(known, netlist, block.strobes, jobs, folder, write)
        if ask:
            _ask(known, netlist, ask, folder)
    verdicts = {
        int(number): verdict if verdict["verdict"] != "survived" else _left(known, number)
        for number, verdict in known["verdicts"].items()
    }
    return {"mutants": netlist.mutants, "verdicts": verdicts, "seconds": time.monotonic() - started}


def _simulate(block, name, netlist, known, jobs, folder, write):
    """Runs the bench on all mutants, then on the unmutated design, which must pass."""
    out = folder / "out.jsonl"
    out.unlink(missing_ok=True)
    hints = {
        number: verdict["test"]
        for number, verdict in known.get("verdicts", {}).items()
        if "test" in verdict
    }
    options = {
        "count": len(netlist.mutants),
        "hints": hints,
        "folder": str(folder),
        "jobs": jobs,
        "factor": FACTOR,
    }
    write(f"{name}: {options['count']} mutants under {block.module}")
    run_bench(
        netlist.verilog,
        name=name,
        module=f"sim.quality.mutation.driver,{block.module}",
        cfg=block.cfg,
        tests=["mutants", *block.tests] if block.tests else None,
        params=block.params | {"mutation": options},
        seed=1,
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    sources, plain, verdicts = lines[0]["sources"], lines[1:3], lines[3:]
    if any(each["verdict"] != "survived" for each in plain) or len(verdicts) != options["count"]:
        raise SystemExit(f"{name}: the unmutated design fails its own bench: {plain}")
    return {"sources": sources, "verdicts": {str(each.pop("mutant")): each for each in verdicts}}


def _prove(known, netlist, strobes, jobs, folder, write):
    """Decides what survived, ``jobs`` at a time; proofs depend on the netlist only, so they
    stay."""
    left = [
        number
        for number, verdict in known["verdicts"].items()
        if verdict["verdict"] == "survived" and number not in known["proofs"]
    ]
    if not left:
        return
    left.sort(
        key=lambda number: len(known["verdicts"][number]["seen"])
    )  # those never seen at a port are the likely ones
    prover = Prover(netlist, strobes)
    with ThreadPoolExecutor(jobs) as pool:
        asked = {pool.submit(prover.decide, int(number)): number for number in left}
        for done in as_completed(asked):
            number = asked[done]
            known["proofs"][number] = done.result()
            write(f"  {known['proofs'][number]:<10} {netlist.mutants[int(number) - 1]}")
            write_file(folder / "verdicts.json", json.dumps(known))


def _ask(known, netlist, ask, folder):
    """Asks the checks for what survived and is not known to be equivalent."""
    if known["asked"].get("key") != ask.key:
        known["asked"] = {"key": ask.key}
    for number, verdict in known["verdicts"].items():
        left = verdict["verdict"] == "survived" and known["proofs"].get(number) != "equivalent"
        if left and number not in known["asked"]:
            known["asked"][number] = ask(netlist, netlist.mutants[int(number) - 1])
            write_file(folder / "verdicts.json", json.dumps(known))


def _left(known, number):
    """The verdict of a mutant that survived the bench."""
    proof, check = known["proofs"].get(number, "open"), known["asked"].get(number)
    return {"verdict": "noticed" if check else proof} | ({} if check is None else {"asked": check})


def _source(name):
    return Path(__file__).with_name(f"{name}.py").read_text()


def _hash(*parts):
    return digest(repr(parts))


def _same(sources):
    """All files are as they were."""
    return bool(sources) and all(
        (ROOT / path).exists()
        and hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16] == known
        for path, known in sources.items()
        if not path.startswith("hub_rtl/")
    )


def _load(path):
    return json.loads(path.read_text()) if path.exists() else {}


def main(blocks=(), jobs=1, kept=False, prove=True, checks=None):
    """``moe-hub mutate``; returns the exit code. ``blocks``: names, all without any;
    ``checks(word)`` is whom to ask about a block of the tree (:func:`campaign`'s ``ask``); the rest
    as there."""
    results = {
        name: campaign(
            name,
            jobs=jobs,
            kept=kept,
            prove=prove,
            ask=checks(BLOCKS[name].word or name) if checks and prove else None,
        )
        for name in blocks or BLOCKS
    }
    rows, missed = table(results, BLOCKS, CREDITS)
    print("\n".join(rows))
    path = ROOT / "docs" / "results" / "mutation.md"
    text, *meaning = path.read_text().partition(MEANING) if path.exists() else ("",)
    if not blocks:
        text = page(results, BLOCKS, CREDITS, SEED)
    elif prove and text:  # without proofs, a look only
        text = with_blocks(text.rstrip() + "\n", results, BLOCKS, CREDITS, SEED)
    else:
        return 1 if missed else 0
    path.write_text(text + ("\n" + "".join(meaning) if any(meaning) else ""))
    return 1 if missed else 0
