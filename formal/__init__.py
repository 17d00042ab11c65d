"""Formal proofs: specifications of what the hub promises, and the runner that has SymbiYosys prove them."""
