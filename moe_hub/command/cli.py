# SPDX-License-Identifier: Apache-2.0
"""The command ``moe-hub``: all verbs of the registry."""

from .program import program
from .verbs import VERBS

__all__ = ["app"]

app = program("MoE-Hub: a GPU hub for Mixture-of-Experts communication, in Verilog.", VERBS)
