# SPDX-License-Identifier: Apache-2.0
"""MoE-Hub from Python: the functions behind the command, with results as tables.

:func:`run` simulates a layer on the generated Verilog, :func:`generate` writes the Verilog,
:func:`predict` asks the model of the whole machine about one layer, :func:`evaluate` runs its
experiments. ``import moe_hub`` reads no library; what a function needs is read when it is first
named.
"""

import importlib
from typing import TYPE_CHECKING

from .needs import need

if TYPE_CHECKING:
    from .evaluation import Evaluation, Prediction, evaluate, predict
    from .layer import Run, run
    from .verilog import Verilog, generate

__all__ = [
    "Evaluation",
    "Prediction",
    "Run",
    "Verilog",
    "evaluate",
    "generate",
    "predict",
    "run",
]

_RUN = ("numpy", "matplotlib", "pandas")

#: Modules by name: what they hold, the libraries and whether the checkout it needs.
_MODULES = {
    "evaluation": (("Evaluation", "Prediction", "evaluate", "predict"), (*_RUN, "simpy"), True),
    "layer": (("Run", "run"), _RUN, True),
    "verilog": (("Verilog", "generate"), (), False),
}


def __getattr__(name):
    for module, (names, libraries, checkout) in _MODULES.items():
        if name in names:
            need(f"moe_hub.{name}", libraries, checkout)
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
