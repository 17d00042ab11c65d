# SPDX-License-Identifier: Apache-2.0
"""What the results page says beside its figures: how each was measured and what it does not say."""

from .ecp5 import LARGE
from .parts import PARTS
from .processes import ASAP7_BIT_UM2, SMALL_BITS
from .sweeps import REFERENCE
from .targets import FPGA_MHZ, MECHANISM_MM2

__all__ = [
    "AREA",
    "CELLS",
    "COMMANDS",
    "FPGA",
    "GATES",
    "GROWTH",
    "HEAD",
    "MEMORIES",
    "PEERS_TEXT",
    "SLICE",
]

_HUB = f"preset `{REFERENCE[0]}` with " + ", ".join(
    f"{value} {field}" for field, value in REFERENCE[1].items()
)

HEAD = """# Area and clock

Written by `make ppa`. Every figure is of generated RTL that went through a tool; none is an estimate unless it says
so. *Not measured* means that the step has not been run on this RTL. Nothing here is a silicon frequency or a placed
area: there are no wires outside of the ECP5 flow."""

COMMANDS = """
## Commands

```
make ppa                                                         # gates, sweeps, ECP5 place and route
make ppa LIBERTY="a.lib.gz b.lib.gz ..."                         # with standard cells; files of several libraries may be mixed
make ppa LIBERTY="..." ARGS="--only units-cells --jobs 1"         # one step; the others are shown as they were kept
```

Results are kept by content in `build/synth`: a second call runs nothing, a call that was interrupted goes on where it
stood, and a change of a block runs that block again. The libraries are IHP SG13G2 (IHP Open PDK,
`sg13g2_stdcell_typ_1p20V_25C.lib`) and ASAP7 (OpenROAD flow scripts,
`asap7sc7p5t_{SIMPLE,INVBUF,SEQ,AO,OA}_RVT_TT_nldm`); this repository does not contain them."""

FPGA = f"""
## FPGA

Preset `fpga`, each block out of context (registers inside, no pins), Yosys and nextpnr, ECP5-85F speed 8, the placer
aiming for 200 MHz. Parts whose netlist has {LARGE:,} LUT4 cells or more, the slot allocator and the hub, are placed
by nextpnr's placer `static`, which leaves them less wire; of the smaller parts it makes some faster and others
slower, so that they, and the peers, have the default one. *LUT* counts logic cells as placed, with carries and
memories; *MHz* is the median of the seeds. The hub, one slice and one loopback slice, is to reach {FPGA_MHZ} MHz."""

PEERS_TEXT = """
### Peers

Open modules through the same flow and device, out of context, one seed, the placer aiming for 400 MHz. Their figures
were measured once and stand in `flow/synth/peers.py`; `make ppa` does not fetch and measure them again. A peer
does a job that resembles the block's, never all of it: our blocks also check, refuse and count. Blocks without a line
have no peer of their kind. Peers' cells were mapped with Yosys' own script, which leaves large fan-outs to small
gates, and their memories are flip-flops there: a comparison of cell figures is not fair to them."""

GATES = f"""
## Gates of the blocks

Preset `fpga`, {len(PARTS)} parts. A gate counts by its transistors in static CMOS, a NAND2 has four, a flip-flop 24.
Memories are apart. *Gates in a row*: longest chain between registers, before any mapping to a library."""

SLICE = f"""
## One slice, and what all slices share

The reference hub is {_HUB}. It is taken apart into units; each is measured once with its ports as they are, and what
joins them with the units as black boxes. A slice, with its links, is an even share of all units of kind *lane* and
*slice*; *shared* is the whole hub less its slices and loopback slices, so that every merge, arbiter and sum over the
slices counts there. Nothing is simplified across units: in preset `tiny` the sum of the units is 6 % above the flat
hub. With standard cells, kGE is area by the library's smallest NAND2, and *ps* the slowest path within the unit, of
either clock."""

CELLS = """
## Timing of a whole slice

The mapped netlists of slice 0, of the first loopback slice and of everything shared are put together again, and
OpenSTA looks for the slowest register-to-register path of each clock, within and between units. Typical corner, no
wires, ideal clocks; between the two clocks there is nothing to time but synchronisers. A memory stands there as
registers at its ports: paths to and from it are timed as if it were as fast as a flip-flop, so what a macro needs
beyond that must fit into the rest of the cycle. ABC maps for delay, buffers and sizes (`flow/synth/cells.py`)."""

AREA = f"""
## The area of 18 links

The MoE-Hub paper (arXiv 2605.05888) gives 0.49 mm² in 7 nm for its hub and says nothing of what is in it. Counted
here, on the reference hub, six slices of three links and two loopback slices (the target is {MECHANISM_MM2}):

- *the mechanism*: decoder, packet manager (pool), send ledger, row lookup (RAT, and the queue in which a packet waits
  for its last flit), address table (APT), spill engine, scoreboard with its combiners, producer control; all
  instances;
- apart: `receive_pool` and `link` (any link has receive buffers and credits), and *all else*: memory writers,
  loopback ports, registers and counters, logs, what joins the units;
- logic: sum of the cells' areas as ABC sized them, 100 % utilisation, no wires, no clock tree, no scan;
- memories: {ASAP7_BIT_UM2:.4f} µm² per bit. FakeRAM2.0 (ABKGroup/FakeRAM2.0, `utils/area.py`), which made the ASAP7
  macros of OpenROAD's flow scripts, takes a cell of 8 fin pitches by 2 gate pitches (27 and 54 nm) and 20 % more in
  each direction for the periphery, with one port; ours have one read and one write port, for which twice the area is
  counted. Memories under {SMALL_BITS:,} bits are counted as flip-flops of the library instead."""

MEMORIES = """
### Memories of the reference hub

Each is an instance of `hub_rtl/parts/ram.py` or the storage of a queue; [integration.md](../integration.md) says how a
macro replaces it."""

GROWTH = """
## Growth

One size is varied at a time in preset `nvl8`, with one slice and one loopback slice unless slices are varied. Units that
do not change are not measured again."""
