"""One-hot multiplexers and encoders as balanced trees: depth grows with the logarithm of the width."""

from amaranth import Cat, Mux, Value

__all__ = ["select", "encode", "tree_sum"]


def select(onehot, values):
    """The value whose bit is set in ``onehot``, 0 when none is; values may be integers, signals or structs."""
    parts = [Mux(onehot[n], Value.cast(value), 0) for n, value in enumerate(values)]
    while len(parts) > 1:
        parts = [Cat(parts[n]) if n + 1 == len(parts) else parts[n] | parts[n + 1] for n in range(0, len(parts), 2)]
    return parts[0]


def encode(onehot):
    """Number of the set bit, 0 when none is set."""
    return select(onehot, range(len(onehot)))


def tree_sum(values):
    """Sum of unsigned values."""
    values = list(values)
    while len(values) > 1:
        values = [sum(values[n + 1:n + 2], values[n]) for n in range(0, len(values), 2)]
    return values[0]
