# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""The drawings of the blocks' pages are of this design, and each is on a page with its caption."""

import json
import re

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.memory.memory import MemoryWriter
from sim.bench.runner import ROOT
from sim.drawings.pictures import FOLDER, pictures
from sim.drawings.scene import Recording
from sim.drawings.symbol import symbol_svg
from sim.drawings.timing import DIAGRAMS, Diagram, Port, Wire, wavejson


@pytest.mark.night
def test_drawings_are_of_this_design():
    """`moe-hub draw` would write nothing."""
    drawn = pictures()
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)
    stale = [name for name, text in drawn.items() if (FOLDER / name).read_text() != text]
    assert not stale, f"not as drawn from this design: {stale}: moe-hub draw"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_captions(name):
    """A diagram is shown on the page of its block, with its caption."""
    text = DIAGRAMS[name].text
    pages = [path.read_text() for path in (ROOT / "docs" / "blocks").glob("*.md")]
    [page] = [page for page in pages if f"blocks/{name}_timing.svg" in page]
    assert f"![{text}]" in page and f"*{text[0].upper()}{text[1:]}.*" in page


def test_waves():
    """What is not valid is not shown; ready is shown where something waits; equal values are one
    box."""
    signals = {
        (0, "block", "o__valid"): [9, 9, 0, 1, 1, 1, 0],
        (0, "block", "o__ready"): [9, 9, 1, 0, 1, 1, 1],
        (0, "block", "o__payload.rank"): [9, 9, 3, 5, 5, 6, 0],
        (0, "block", "o_sent.bytes"): [9, 9, 0, 0, 300, 300, 0],
    }
    ports = (Port("o", ("rank",)), Wire("o_sent.bytes", number=True))
    drawn = json.loads(wavejson(Diagram((0, "block"), 0, 4, ports, ""), Recording(signals, 2)))
    rows = {row["name"].strip(): row for row in drawn["signal"]}
    waves = {name: row["wave"] for name, row in rows.items()}
    assert waves == {
        "clk": "p....",
        "o.valid": "01..0",
        "o.ready": "101..",
        "o.rank": "x=.=x",
        "o_sent.bytes": "=.=.=",
    }
    assert rows["o.rank"]["data"] == ["5", "6"]
    assert rows["o_sent.bytes"]["data"] == ["0", "0x12c", "0"]


def test_symbol():
    """Each port once, streams with all their wires."""
    block = MemoryWriter(preset("tiny"))
    text = symbol_svg(block)
    for name in block.signature.members:
        assert len(re.findall(rf">{name}<", text)) == 1
