# SPDX-License-Identifier: Apache-2.0
"""MoE-Hub RTL: a synthesizable GPU hub that gives rows an address on arrival."""
