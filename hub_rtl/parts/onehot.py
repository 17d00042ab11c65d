# SPDX-License-Identifier: Apache-2.0
"""One-hot multiplexers and encoders as balanced trees: depth grows with the logarithm of the
width."""

from amaranth import Cat, Const, Mux, Signal, Value

__all__ = ["select", "encode", "ones", "several", "tree_sum"]


def select(onehot, values):
    """The value whose bit is set in ``onehot``, 0 when none is; values may be integers, signals or
    structs."""
    parts = [Mux(onehot[n], Value.cast(value), 0) for n, value in enumerate(values)]
    while len(parts) > 1:
        parts = [
            Cat(parts[n]) if n + 1 == len(parts) else parts[n] | parts[n + 1]
            for n in range(0, len(parts), 2)
        ]
    return parts[0]


def encode(onehot):
    """Number of the set bit, 0 when none is set."""
    return select(onehot, range(len(onehot)))


def several(bits):
    """Two or more bits are set."""
    pairs = [(bit, Const(0, 1)) for bit in bits]  # of each part: one is set, two are
    while len(pairs) > 1:
        odd = pairs[len(pairs) & ~1 :]
        pairs = [
            (a | b, c | d | (a & b))
            for (a, c), (b, d) in zip(pairs[::2], pairs[1::2], strict=False)
        ] + odd
    return pairs[0][1]


def tree_sum(values):
    """Sum of unsigned values."""
    values = list(values)
    while len(values) > 1:
        values = [sum(values[n + 1 : n + 2], values[n]) for n in range(0, len(values), 2)]
    return values[0]


def ones(m, bits, name):
    """How many bits are set: full adders column by column, fewer gates than a tree of sums. Each
    adder's outputs are signals of ``m``, ``name`` first: as expressions they would be written out
    wherever they are used."""
    columns, total, weight = [list(bits)], [], 0
    while weight < len(columns):
        column = columns[weight]
        if len(columns) == weight + 1 and len(column) > 1:
            columns.append([])
        while len(column) > 1:
            a, b, *rest = column[:3]
            c = rest[0] if rest else None
            half, low, high = (
                Signal(name=f"{name}_{part}_{1 << weight}_{len(column)}")
                for part in ("half", "sum", "carry")
            )
            m.d.comb += [
                half.eq(a ^ b),
                low.eq(half ^ c if rest else half),
                high.eq((a & b) | (half & c) if rest else a & b),
            ]
            columns[weight + 1].append(high)
            column = columns[weight] = [*column[3 if rest else 2 :], low]
        total.append(column[0] if column else Const(0, 1))
        weight += 1
    return Cat(total)
