# SPDX-License-Identifier: Apache-2.0
"""Who notices the mutants of meaning (:mod:`hub_rtl.parts.mutants`), tier by tier: the block's
bench, the quick proofs, all proofs. The proofs come from above, as a function."""

import re

from flow.tables import markdown

from .blocks import BLOCKS, MEANT
from .names import catalogue
from .page import KILLED
from .run import MEANING as SECTION
from .run import campaign

__all__ = ["SECTION", "TIERS", "bench", "found", "lines", "missed", "with_section", "words"]

TIERS = ("bench", "quick", "all")
#: Blocks of which nothing may survive all tiers.
WHOLE = ("link", "producer", "scoreboard", "slot_allocator")
SHARED = "parts"  # its mutants are in the netlists of all blocks
TARGET = 95  # percent of those not proved equivalent that bench and quick proofs notice


def words():
    """The blocks that have mutants."""
    return sorted({each.block for each in catalogue().values()})


def bench(chosen, **options):
    """{name: verdict} of the benches of the blocks ``chosen`` (:func:`.run.campaign`); a mutant
    that several have is noticed when one of them notices, and equivalent when it is in the own
    ones of all blocks. Variants, and what no bench has, are not in it."""
    verdicts = {}
    for name, block in MEANT.items():
        if {block.word or name, SHARED}.isdisjoint(chosen):
            continue
        own = name in BLOCKS  # of another one only what it notices counts: it is asked no proofs
        result = campaign(name, meaning=True, **options | ({} if own else {"prove": False}))
        for mutant in result["mutants"]:
            verdict = result["verdicts"][mutant.number]["verdict"]
            open_yet = own and verdicts.get(mutant.name, "equivalent") == "equivalent"
            if verdict in KILLED or open_yet:
                verdicts[mutant.name] = verdict
    return verdicts


def found(chosen, proofs=None, quick=False, **options):
    """{name: {tier: who notices, "" for nobody}} of the mutants of the blocks ``chosen``; a tier is
    there when it was asked, which is about what those before it miss. ``equivalent`` is there when
    the bench's netlist shows no difference to anybody. ``proofs(name, quick)`` gives the check that
    notices; None: no proofs are run. ``quick``: the quick ones only."""
    benches = bench(chosen, **options)
    noticed = {}
    for each in catalogue().values():
        if each.block not in chosen:
            continue
        verdict = benches.get(each.name)
        noticed[each.name] = who = {"bench": "bench" if verdict in KILLED else ""}
        if verdict == "equivalent":
            who["equivalent"] = True
        elif proofs:
            for tier in TIERS[1 : 2 if quick else 3]:
                if not any(who.values()):
                    who[tier] = proofs(each.name, tier == "quick")
    return noticed


def _counts(word, noticed):
    """Of one block: mutants, equivalent ones, and how many each tier and those before it notice."""
    own = [who for name, who in noticed.items() if name.startswith(f"{word}.")]
    left = [who for who in own if "equivalent" not in who]
    sums = [sum(any(who.get(tier) for tier in TIERS[:n]) for who in left) for n in (1, 2, 3)]
    return len(own), len(own) - len(left), *sums


def missed(noticed):
    """Blocks whose target is missed."""
    names = []
    for word in sorted({name.partition(".")[0] for name in noticed}):
        count, equal, _, early, late = _counts(word, noticed)
        if early < TARGET / 100 * (count - equal) or word in WHOLE and late < count - equal:
            names.append(word)
    return names


def lines(noticed, page=""):
    """The section of the results page; blocks of which nothing is in ``noticed`` as ``page`` has
    them."""
    rows, left = _known(page)
    late = missed(noticed)
    for word in {name.partition(".")[0] for name in noticed}:
        rows[word] = word, *_counts(word, noticed), "missed" if word in late else "met"
        left[word] = _left(word, noticed)
    head = "| Block | Mutants | Equivalent | Bench | With quick proofs | With all | |"
    heads = "Not noticed by bench or quick proofs", "Where", "Right", "Wrong", "Noticed by"
    return [
        SECTION,
        "",
        "Written by `moe-hub mutate --meaning`. Each mutant has a name in the source, beside",
        "the expression that it makes wrong (`hub_rtl/parts/mutants.py`). *Bench*: a cocotb test",
        "of the block fails; *with quick*: or a promise of the short set, *with all*: or one of",
        "any check. Proofs are asked about what the bench misses. Equivalent ones are proved to",
        "be, on the bench's configuration.",
        "",
        *markdown(head, (rows[word] for word in sorted(rows)), "|---|--:|--:|--:|--:|--:|---|"),
        "",
        f"Target: with quick proofs {TARGET} % of those not equivalent; with all, all of them in "
        f"{', '.join(WHOLE)}.",
        "",
        *markdown(heads, (row for word in sorted(left) for row in left[word])),
    ]


def _left(word, noticed):
    """Rows of a block's mutants that neither bench nor quick proofs notice."""
    rows = []
    for name, who in noticed.items():
        early = who["bench"] or who.get("quick") or "equivalent" in who
        if not early and name.startswith(f"{word}."):
            each = catalogue()[name]
            sides = [f"`{side}`".replace("|", "\\|") if side else "" for side in _sides(each)]
            late = who.get("all") or ("nobody" if "all" in who else "not asked")
            rows.append((f"`{name}`", each.file, *sides, late))
    return rows


def _known(page):
    """Of the section in ``page``: {block: its row}, {block: rows of what is not noticed early}."""
    rows, left = {}, {}
    for line in page.partition(SECTION)[2].split("\n"):
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        if found := re.match(r"\| (\w+) \| \d", line):
            rows[found[1]] = cells
        elif found := re.match(r"\| `(\w+)\.", line):
            left.setdefault(found[1], []).append(cells)
    return rows, left


def _sides(each):
    return [" ".join(side.split()) for side in (each.right, each.wrong)]


def with_section(page, text):
    """``page`` with its section of mutants of meaning, at the end, replaced by ``text``."""
    return page.partition(SECTION)[0].rstrip() + "\n\n" + "\n".join(text) + "\n"
