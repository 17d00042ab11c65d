# SPDX-License-Identifier: Apache-2.0
"""Values of an order against their rules: one line that names the value and the rule."""

__all__ = ["checked", "one_of"]


def checked(limits, **values):
    """Raises ValueError for a value below the first or above the second of its ``limits``, {name:
    (smallest, largest)}; None is not given."""
    for name, value in values.items():
        low, high = limits[name]
        if value is not None and not low <= value <= high:
            raise ValueError(f"{name} = {value}: must be between {low} and {high}")


def one_of(what, names, name):
    """``name``, if it is one of ``names``. Raises ValueError."""
    if name not in names:
        raise ValueError(f"{what} = {name!r}: must be one of {', '.join(names)}")
    return name
