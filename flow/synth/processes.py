# SPDX-License-Identifier: Apache-2.0
"""What is known of the processes whose libraries may be given: goals, limits, and what a memory bit
takes."""

from dataclasses import dataclass

__all__ = ["Process", "memory_area", "process_of"]

#: A memory of fewer bits is counted as flip-flops: macros this small do not exist, or are no
#: denser.
SMALL_BITS = 1024


@dataclass(frozen=True)
class Process:
    """title: for tables. goal_ps: what the mapper aims for. limit_ps: the slowest path that meets
    the target, or None. bit_um2: area of a memory bit with one read and one write port, its share
    of the periphery included, or None."""

    title: str
    goal_ps: int
    limit_ps: float | None = None
    bit_um2: float | None = None


#: FakeRAM2.0 (ABKGroup/FakeRAM2.0, utils/area.py), the generator whose ASAP7 macros OpenROAD's flow
#: scripts carry: a cell of 8 fins (27 nm) by 2 gates (54 nm), 20 % more in each direction for the
#: periphery. It knows one port; for two, twice the area.
ASAP7_BIT_UM2 = 2 * (8 * 0.027) * (2 * 0.054) * 1.2 * 1.2

PROCESSES = {
    "asap7": Process("ASAP7 (predictive 7 nm, typical)", 200, 670, ASAP7_BIT_UM2),
    "sg13g2": Process("SG13G2 (130 nm, typical)", 1000),
}


def process_of(library):
    """The :class:`Process` of a library, by its name; an unknown one has no limits."""
    return next(
        (process for start, process in PROCESSES.items() if library.name.lower().startswith(start)),
        Process(library.name, 1000),
    )


def memory_area(memories, process, library):
    """Area of ``memories`` [{depth, width}] in µm², or None when the process has no bit density."""
    if process.bit_um2 is None:
        return None
    bits = [each["depth"] * each["width"] for each in memories]
    return sum(n * (library.register_area if n < SMALL_BITS else process.bit_um2) for n in bits)
