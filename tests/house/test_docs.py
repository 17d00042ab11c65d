# SPDX-License-Identifier: Apache-2.0
"""The documents tell the truth: tables against code, links against files."""

import re
from pathlib import Path

import pytest

from hub_rtl.contract import packets, words
from moe_hub.command.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def tables(text):
    """Markdown tables as {first header cell: {row's first cell: remaining cells}}."""
    found = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in block.splitlines()
        ]
        found[rows[0][0]] = {row[0]: row[1:] for row in rows[2:]}
    return found


def bits(layout):
    return {name: f"{low + width - 1}:{low}" for name, (low, width) in layout.items()}


FORMATS = (ROOT / "docs/formats.md").read_text()


@pytest.mark.parametrize(
    "section, title, layout",
    [
        ("Store operand", "Row-sparse", packets.OPERAND_ROW),
        ("Store operand", "Plain", packets.OPERAND_PLAIN),
        ("Header flit", "Field", packets.HEADER),
        ("Spill word", "Field", packets.SPILL_WORD),
        ("News entry", "Field", packets.NEWS_ENTRY),
        *[("Header flit", f"{kind.name} body", body) for kind, body in packets.BODIES.items()],
    ],
)
def test_format_tables_match_code(section, title, layout):
    text = next(part for part in FORMATS.split("\n## ") if part.startswith(section))
    assert {name: cells[0] for name, cells in tables(text)[title].items()} == bits(layout)


def test_reason_table_matches_code():
    documented = {int(value): cells[0] for value, cells in tables(FORMATS)["Value"].items()}
    assert documented == {int(reason): reason.name for reason in packets.Reason}
    refused = {int(value): cells[0] for value, cells in tables(FORMATS)["Code"].items()}
    assert refused == {int(error): error.name for error in packets.OrderError if error}


def test_enumerations_match_code():
    documented = {name: cells[0] for name, cells in tables(FORMATS)["Enumeration"].items()}
    assert documented == {
        name: words.values_text(each) for name, each in words.ENUMERATIONS.items()
    }


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target} does not exist"


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("docs/results/[a-z]*.md")), ids=lambda page: page.stem
)
def test_a_results_page_begins_with_what_wrote_it(page):
    """A verb of ``moe-hub`` or a target of the Makefile, before any table."""
    begin = page.read_text().partition("\n|")[0]
    verbs = {verb.name for verb in VERBS}
    named = re.findall(r"moe-hub ([a-z]+)", begin)
    assert re.search(r"`make (ppa|mutate|coverage|formal)\b", begin) or verbs & {*named}, begin
