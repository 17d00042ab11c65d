# SPDX-License-Identifier: Apache-2.0
"""Promises of the finisher's divider (``hub_rtl/scoreboard/region_finish.py``)."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.scoreboard.region_finish import Divider

__all__ = ["DividerDivides", "divides"]


def divides(spec, m, name, dividend, divisor, quotient, remainder, left, runs):
    """Lemma: what the divider has so far. ``runs``: it works, or has worked, on ``dividend``."""
    width = len(quotient)
    mask, part = Signal(width, name=f"{name}_mask"), Signal(width, name=f"{name}_part")
    m.d.comb += [
        mask.eq((1 << width) - 1 >> left),
        part.eq(quotient & mask),
    ]
    spec.lemma(
        f"{name} so far",
        (part * divisor + remainder == dividend >> left) & (remainder < divisor),
        when=runs,
    )
    rest = (dividend << (width - left)[: width.bit_length()])[:width]
    spec.lemma(f"{name} to come", (quotient & ~mask) == rest, when=runs)
    spec.lemma(f"{name} steps", left <= width)


class DividerDivides(Spec):
    """``width`` cycles after ``start``, quotient * divisor + remainder = dividend and remainder <
    divisor."""

    def __init__(self, width, divisor_width):
        super().__init__()
        self._width, self._divisor_width = width, divisor_width

    def build(self, m):
        dut = Divider(self._width, self._divisor_width)
        m.submodules.dut = dut
        left = observe(dut).left
        self.free(dut.start, dut.dividend)
        dividend = Signal(self._width)
        known = Signal()
        age = Signal(range(self._width + 2))
        divisor = self.constant(self._divisor_width, "divisor")
        m.d.comb += dut.divisor.eq(divisor)
        self.suppose("the divisor is not 0", divisor != 0)
        with m.If(dut.start):
            m.d.sync += [
                dividend.eq(dut.dividend),
                known.eq(1),
                age.eq(0),
            ]
        with m.Elif(age <= self._width):
            m.d.sync += age.eq(age + 1)
        self.always("busy for so many cycles", dut.busy == (age < self._width), when=known)
        self.always(
            "the quotient",
            (dut.quotient * divisor + dut.remainder == dividend) & (dut.remainder < divisor),
            when=known & (age >= self._width),
        )
        divides(self, m, "division", dividend, divisor, dut.quotient, dut.remainder, left, known)
        self.lemma("age", (left == Mux(age < self._width, self._width - age, 0)), when=known)
