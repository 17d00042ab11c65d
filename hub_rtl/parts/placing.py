# SPDX-License-Identifier: Apache-2.0
"""Where a component is built: in place, or once for all its instances."""

__all__ = ["placer"]


def placer(library):
    """``place(name, make)`` of a library of modules (``flow.verilog.netlist.ModuleLibrary``), which
    writes a component once however often it is placed; without one (simulation, proofs) every part
    is built where it stands."""
    return library.place if library is not None else lambda name, make: make()
