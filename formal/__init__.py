# SPDX-License-Identifier: Apache-2.0
"""Formal proofs: specifications of what the hub promises, and the runner that has SymbiYosys prove
them."""
