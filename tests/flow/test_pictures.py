# SPDX-License-Identifier: Apache-2.0
"""The style of pictures: one width, sharp, the same bytes for the same drawing."""

import struct

import pytest

from flow.pictures import SHARP, STYLE, WIDTH, legend_below, picture
from sim.bench.runner import ROOT

README = 830  # pixels that a README leaves for a picture


def _draw(path):
    with picture(path, 2) as figure:
        axes = figure.subplots()
        axes.plot([1, 2], label="a line")
        legend_below(figure)


def test_same_drawing_same_bytes(tmp_path):
    for name in ("a", "b"):
        _draw(tmp_path / "folder" / f"{name}.png")
    first, second = ((tmp_path / "folder" / f"{name}.png").read_bytes() for name in ("a", "b"))
    assert first == second and first[:4] == b"\x89PNG"
    assert struct.unpack(">II", first[16:24]) == (round(WIDTH * SHARP), 2 * SHARP)


def test_text_can_be_read_in_a_readme():
    """At that width no letter is lower than twelve pixels."""
    sizes = [
        value for name, value in STYLE.items() if name.endswith("size") and "marker" not in name
    ]
    assert len(sizes) > 5 and min(sizes) * README / WIDTH / 72 >= 12


@pytest.mark.parametrize("top", ["flow", "sim", "moe_hub"])
def test_pictures_have_one_style(top):
    """Nobody else makes figures of their own."""
    for path in (ROOT / top).rglob("*.py"):
        if path != ROOT / "flow" / "pictures.py":
            text = path.read_text()
            assert "pyplot" not in text and "rc_context" not in text, path
