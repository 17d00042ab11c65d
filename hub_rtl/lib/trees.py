"""Balanced trees over many operands, with or without a register per level."""

from amaranth import Signal

__all__ = ["add_tree", "tree_levels"]


def tree_levels(count):
    """Levels of a binary tree over ``count`` operands: 0 for one."""
    return (count - 1).bit_length()


def add_tree(m, values, width, registered=False, name="sum"):
    """Sum of ``values`` modulo ``2**width``. With ``registered`` it comes :func:`tree_levels` cycles later, one per cycle."""
    level = list(values)
    for depth in range(tree_levels(len(level))):
        sums = []
        for n in range(0, len(level) - 1, 2):
            part = Signal(width, name=f"{name}_{depth}_{n // 2}")
            m.d[("sync" if registered else "comb")] += part.eq(level[n] + level[n + 1])
            sums.append(part)
        if len(level) % 2:
            part = Signal(width, name=f"{name}_{depth}_odd")
            m.d[("sync" if registered else "comb")] += part.eq(level[-1])
            sums.append(part)
        level = sums
    return level[0]
