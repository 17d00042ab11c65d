"""Slot allocator: the whole block under cocotb, the address table alone in Amaranth's simulator."""

import importlib

import pytest

from hub_rtl.config import preset
from hub_rtl.slot_allocator import SlotAllocator
from sim.bench.planted import assert_caught, planted
from sim.bench.runner import run_bench

ODD = {"regions": 3, "ranks": 3, "rat_ways": 3, "capacity": 5, "packet_bytes": 256, "max_row_bytes": 512}
COMMON = ["traffic", "thrash", "full_regions", "spill_faults", "purge", "old_rows", "reset_in_traffic", "latency"]


def run_allocator(cfg, name, tests, component=SlotAllocator):
    run_bench(component(cfg), name=f"slot_allocator_{name}", module="sim.cocotb.slot_allocator", tests=tests, cfg=cfg)


def test_tiny():
    run_allocator(preset("tiny"), "tiny", COMMON)


def test_small():
    """Three slices; also the rates."""
    run_allocator(preset("small", lanes=2), "small", [*COMMON, "full_rate", "rows_per_cycle"])


def test_odd():
    run_allocator(preset("tiny", **ODD), "odd", COMMON)
