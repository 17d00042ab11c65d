# SPDX-License-Identifier: Apache-2.0
"""The table of a campaign and the results page."""

import re

from flow.tables import markdown
from hub_rtl.contract.config import preset

__all__ = ["page", "table", "with_blocks"]

HEAD = "| Block | Mutants | Killed | By proofs | Equivalent | Survivors | Rate | Target | |"
KILLED = ("killed", "timeout", "crash")
SURVIVORS = "## Survivors of the benches\n"
#: A line that belongs to one block: its row of the table, or its configuration.
OF_BLOCK = re.compile(r"(\|) (\w+)[^|]* \|.*\| (?:met|missed) \||(\*) (\w+): preset .*")


def _row(name, numbers, verdicts, target):
    """One line of the table, and whether the target was met."""
    killed = sum(verdicts[n]["verdict"] in KILLED for n in numbers)
    noticed = sum(verdicts[n]["verdict"] == "noticed" for n in numbers)
    equivalent = sum(verdicts[n]["verdict"] == "equivalent" for n in numbers)
    different = len(numbers) - equivalent
    left = different - killed - noticed
    rate = 100 * (different - left) / different if different else 100.0
    met = rate >= target
    asked = any("asked" in verdicts[n] for n in numbers)
    counts = len(numbers), killed, noticed if asked else "-", equivalent, left
    return (name, *counts, f"{rate:.1f} %", f"{target} %", "met" if met else "missed"), met


def table(results, blocks, credits):
    """Lines of the table in Markdown, and the names of the rows whose target was missed."""
    rows, missed = [], []
    for name, result in results.items():
        parts = [(name, blocks[name].target, [mutant.number for mutant in result["mutants"]])]
        inside = [mutant.number for mutant in result["mutants"] if credits in mutant.source]
        if inside:
            parts.append((f"{name}: credits", 100, inside))
        for title, target, numbers in parts:
            row, met = _row(title, numbers, result["verdicts"], target)
            rows.append(row)
            missed += [] if met else [title]
    return markdown(HEAD, rows, "|---|--:|--:|--:|--:|--:|--:|--:|---|"), missed


def page(results, blocks, credits, seed):
    """docs/results/mutation.md: nothing in it depends on the day or the machine."""
    rows, missed = table(results, blocks, credits)
    lines = [
        "# Mutation testing",
        "",
        f"Written by `make mutate` (Yosys `mutate`, seed {seed}). How it works:",
        "[running.md](../running.md#mutation-testing).",
        "",
        *rows,
        "",
        "Killed: a test of the block's bench fails. By proofs: the bench does not notice, but a",
        "check of the short set fails, or its proof no longer goes through, when its design has",
        "the change of the source that the mutant is proved to be (-: not asked). Equivalent:",
        "proved to be. Rate: killed or noticed of those not equivalent. A mutant without a proof",
        "counts as not equivalent; `open`: neither a proof nor an input that shows a difference",
        "was found, or none was tried (`--no-proofs`).",
        "",
        f"Missed: {', '.join(missed)}." if missed else "Every target is met.",
    ]
    if left := [name for name in blocks if name not in results]:
        lines.append(f"Not run: {', '.join(left)}.")
    lines += ["", "## Configurations", ""]
    for name in results:
        block = blocks[name]
        tiny = preset("tiny").as_dict()
        changes = [
            f"{field}={value}"
            for field, value in block.cfg.as_dict().items()
            if value != tiny[field]
        ]
        lines.append(
            f"* {name}: preset `tiny`{' with ' if changes else ''}{', '.join(changes)}; "
            f"{block.module}" + (f": {', '.join(block.tests)}" if block.tests else ", all tests")
        )
    lines += ["", SURVIVORS]
    for name, result in results.items():
        left = [
            mutant
            for mutant in result["mutants"]
            if result["verdicts"][mutant.number]["verdict"] in ("noticed", "different", "open")
        ]
        if left:
            rows = (
                (
                    m.number,
                    f"{m.mode} `{m.cell}.{m.port}[{m.bit}]`",
                    f"`{m.wire}`" if m.wire else "",
                    m.source,
                    _said(result["verdicts"][m.number]),
                )
                for m in left
            )
            heads = "Mutant", "Change", "Signal", "Source", "Proof"
            lines += [f"### {name}", "", *markdown(heads, rows, "|--:|---|---|---|---|"), ""]
    return "\n".join(lines).rstrip() + "\n"


def _said(verdict):
    if verdict["verdict"] == "noticed":
        return f"noticed: `{verdict['asked']}`"
    return verdict["verdict"]


def with_blocks(text, results, blocks, credits, seed):
    """The page ``text``, which ends with the survivors, with the blocks of ``results`` judged anew
    and all others as they stood, in the order of ``blocks``."""
    (head, left), (new_head, new_left) = (
        each.split(SURVIVORS) for each in (text, page(results, blocks, credits, seed))
    )
    known, new = _lines_of_blocks(head), _lines_of_blocks(new_head)
    merged, done = [], set()
    for line in head.split("\n"):
        if not (found := OF_BLOCK.fullmatch(line)):
            merged.append(line)
        elif (kind := found[1] or found[3]) not in done:
            done.add(kind)
            for name in blocks:
                merged += (new if name in results else known).get((kind, name), [])
    head = "\n".join(merged)
    missed = re.findall(r"^\| ([^|]+) \|.*\| missed \|$", head, re.MULTILINE)
    verdict = f"Missed: {', '.join(missed)}." if missed else "Every target is met."
    head = re.sub(r"^(Missed: .*|Every target is met\.)$", verdict, head, flags=re.MULTILINE)
    sections, new = _sections(left), _sections(new_left)
    order = [name for name in blocks if name in (new if name in results else sections)]
    texts = [(new if name in results else sections)[name] for name in order]
    return (f"{head}{SURVIVORS}\n" + "\n\n".join(texts)).rstrip() + "\n"


def _lines_of_blocks(head):
    """{(kind, block): its lines}; kind ``|`` for rows of the table, ``*`` for configurations."""
    lines = {}
    for found in filter(None, map(OF_BLOCK.fullmatch, head.split("\n"))):
        lines.setdefault((found[1] or found[3], found[2] or found[4]), []).append(found[0])
    return lines


def _sections(text):
    """Survivors of each block: {name: its section}."""
    parts = re.split(r"^(?=### )", text, flags=re.MULTILINE)[1:]
    return {part.split("\n")[0].removeprefix("### "): part.rstrip() for part in parts}
