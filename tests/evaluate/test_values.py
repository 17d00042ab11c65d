# SPDX-License-Identifier: Apache-2.0
"""Numbers in the text of the results page."""

import re

import pytest

from flow.pages.fill import fill
from flow.pages.values import VALUE, WrongOrder, look_up
from sim.evaluate.commands import PAGE

ROWS = {
    "one": [
        {"system": "a", "error, %": "-12.5", "mean": "1.25"},
        {"system": "b", "error, %": "4", "mean": "2.5"},
        {"system": "c", "error, %": "", "mean": "3"},
    ],
    "two": [{"system": "a", "error, %": "30", "mean": "1"}],
}


@pytest.mark.parametrize(
    "order, text",
    [
        ("one; mean; system=b", "2.50"),
        ("one; error, %; system=a; as +.0f", "−12"),
        ("one; count", "3"),
        ("one; count; system!=a", "2"),
        ("one; count; abs error, %<=10", "1"),
        ("one + two; count; abs error, %>=10", "2"),
        ("one; max mean", "3.00"),
        ("one; min mean; system!=a", "2.50"),
        ("one; mean mean; system!=c; as .3f", "1.875"),
        ("one + two; median abs error, %; as .1f", "12.5"),
        ("one; error, %; system=c", "–"),
    ],
)
def test_a_number_is_looked_up(order, text):
    assert look_up(order, ROWS.__getitem__) == text


@pytest.mark.parametrize(
    "order, said",
    [
        ("one; mean", "3 rows fit"),
        ("one; mean; system=z", "0 rows fit"),
        ("one; max mean; system=z", "0 rows fit"),
        ("one; speed; system=a", "column = 'speed'"),
        ("one; mean; speed=1", "column = 'speed'"),
        ("one; mean; system", "'system' is no condition"),
    ],
)
def test_a_number_that_is_not_there_is_one_line(order, said):
    with pytest.raises(WrongOrder) as error:
        look_up(order, ROWS.__getitem__)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_every_number_of_the_page_has_been_looked_up():
    text = PAGE.read_text()
    found = VALUE.findall(text)
    assert len(found) == text.count("<!-- = ") > 50
    assert not [order for order, number in found if not re.fullmatch(r"[+−]?[\d,.]+", number)]


def test_the_page_is_filled(tmp_path):
    (tmp_path / "one.csv").write_text("system,mean\na,1.25\n")
    text = (
        "It is <!-- = one; mean; system=a -->9<!-- . -->, or <!-- = one; count; mean>=1 -->9"
        "<!-- . -->, or <!-- = gone; mean -->7<!-- . -->."
    )
    filled = fill(text, tmp_path, {})
    assert filled == text.replace(">9<", ">1.25<", 1).replace(">9<", ">1<", 1)
    assert fill(filled, tmp_path, {}) == filled
