# SPDX-License-Identifier: Apache-2.0
"""Division remainders by a constant without a divider: two small tables and one addition."""

from amaranth import Const, Module, Mux, Signal

from .mutants import mutant

__all__ = ["is_residue", "residue", "residue_parts"]

CHUNK = 6  # inputs of one table: one FPGA look-up table per output bit


def residue_parts(m: Module, value, divisor, name="residue"):
    """Signals, each below ``divisor``, whose sum is congruent to the 12-bit ``value`` modulo
    ``divisor``.

    One part when the divisor is a power of two (its low bits), else two: a table of 64 words for
    each half. Register them and finish with :func:`is_residue` or :func:`residue`.
    """
    width = max(1, (divisor - 1).bit_length())
    if divisor & (divisor - 1) == 0:
        part = Signal(width, name=f"{name}_low")
        m.d.comb += part.eq(value[:width] if divisor > 1 else 0)
        return [part]
    parts = []
    for n in range(2):
        part = Signal(width, name=f"{name}_{n}")
        with m.Switch(value[n * CHUNK : (n + 1) * CHUNK]):
            for word in range(1 << CHUNK):
                with m.Case(word):
                    m.d.comb += part.eq((word << (n * CHUNK)) % divisor)
        parts.append(part)
    return parts


def is_residue(parts, number, divisor):
    """1 when the parts stand for ``number`` (below ``divisor``): one addition, two comparisons side
    by side."""
    if len(parts) == 1:
        return parts[0] == number
    total = parts[0] + parts[1]
    return mutant(
        "parts.residue_of_first_turn_only",
        (total == number) | (total == number + Const(divisor)),
        total == number,
    )


def residue(parts, divisor):
    """The remainder that the parts stand for."""
    if len(parts) == 1:
        return parts[0]
    total = parts[0] + parts[1]
    return Mux(
        total >= divisor, mutant("parts.residue_not_subtracted", total - divisor, total), total
    )[: len(parts[0])]
