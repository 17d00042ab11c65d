# SPDX-License-Identifier: Apache-2.0
"""Systems that run a Mixture-of-Experts layer, one file per family; each file's ``SCHEMES`` maps
names to schemes.

A scheme is a function of a :class:`sim.evaluate.machine.engine.Cluster`, see there. :data:`SCHEMES`
has all of them by name.
"""

from importlib import import_module
from pkgutil import iter_modules

__all__ = ["SCHEMES", "UnknownScheme", "scheme"]


class UnknownScheme(ValueError):
    """There is no scheme of that name; one line with the name and what there is."""


SCHEMES = {}
for _module in sorted(iter_modules(__path__), key=lambda module: module.name):
    SCHEMES |= getattr(import_module(f"{__name__}.{_module.name}"), "SCHEMES", {})


def scheme(name):
    """The scheme called ``name``. Raises :class:`UnknownScheme`."""
    if name not in SCHEMES:
        raise UnknownScheme(f"system = {name!r}: must be one of {', '.join(SCHEMES)}")
    return SCHEMES[name]
