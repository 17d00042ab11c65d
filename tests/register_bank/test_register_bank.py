# SPDX-License-Identifier: Apache-2.0
"""The register bank: description, hardware against the golden model, manual."""

from functools import partial

import pytest

from flow.verilog.register_text import registers_header, registers_markdown
from hub_rtl.contract.config import PRESETS, preset
from hub_rtl.contract.register_map import Field, Page, Register, RegisterMap
from hub_rtl.contract.registers import register_map
from hub_rtl.register_bank.register_bank import CsrBank
from sim.bench.runner import ROOT, run_bench
from sim.quality.caught import assert_caught

SMALL = preset("small")
ODD = preset(
    "tiny",
    ranks=5,
    pool_depth=8,
    handles=5,
    regions=3,
    dep_ranges=3,
    lanes=3,
    loop_lanes=2,
    log_depth=5,
    capacity=13,
    replicas=4,
    groups=16,
    packet_bytes=256,
    max_row_bytes=1040,
)
LEAST = preset(
    "tiny",
    handles=1,
    regions=1,
    capacity=1,
    dep_ranges=1,
    log_depth=1,
    tag_width=1,
    max_row_bytes=16,
)
MODULES = (
    "sim.cocotb.register_bank.tests,sim.cocotb.register_bank.access,sim.cocotb.register_bank.orders"
)
TESTS = [
    "random_access",
    "geometry",
    "views",
    "views_change",
    "every_bit",
    "counters",
    "not_cleared",
    "rank_stays",
    "reset_in_traffic",
]
EDGES = [
    "bus_in_turn",
    "addresses",
    "bits_cleared",
    "interrupts",
    "geometry_edges",
    "fetch_any",
    "queries_and_timeouts",
    "region_busy",
    "region_ranges",
    "commit_within_range",
    "announced_in_turn",
    "counter_sweeps",
    "clear_in_traffic",
]


@pytest.mark.parametrize(
    "name, cfg, tests, width",
    [
        ("csr_small", SMALL, TESTS + EDGES, 48),
        ("csr_odd", ODD, [*TESTS, "counter_sweeps", "clear_in_traffic"], 14),
    ],
)
def test_csr(name, cfg, tests, width):
    run_bench(
        CsrBank(cfg, width),
        module=MODULES,
        name=name,
        tests=tests,
        cfg=cfg,
        params={"counter_width": width},
    )


@pytest.mark.night
def test_csr_least():
    run_bench(
        CsrBank(LEAST),
        module="sim.cocotb.register_bank.tests",
        name="csr_least",
        tests=["random_access", "reset_in_traffic"],
        cfg=LEAST,
    )


def changed_bank(test, bug, module="sim.cocotb.register_bank.tests"):
    """The tests that notice the bug."""
    return assert_caught(
        lambda: run_bench(
            partial(CsrBank, ODD),
            module=module,
            name="csr",
            tests=[test],
            cfg=ODD,
            bug=bug,
        )
    )


@pytest.mark.night
@pytest.mark.parametrize("bug", ["geometry_not_checked", "commit_without_valid"])
def test_unchecked_geometry_is_noticed(bug):
    assert changed_bank("geometry", f"register_bank.{bug}") == ["geometry"]


@pytest.mark.night
@pytest.mark.parametrize(
    "bug", ["register_bank.rank_changes_in_traffic", "register_bank.rank_beyond_ranks"]
)
def test_changed_rank_is_noticed(bug):
    assert changed_bank("rank_stays", bug) == ["rank_stays"]


@pytest.mark.night
def test_announcement_of_same_handle_is_noticed():
    bug, test = "register_bank.announces_same_handle", "announced_in_turn"
    assert changed_bank(test, bug, "sim.cocotb.register_bank.orders") == [test]


@pytest.mark.night
@pytest.mark.parametrize(
    "bug, test",
    [
        ("range_one_short", "region_ranges"),
        ("range_beyond_regions", "region_ranges"),
        ("range_is_its_first", "commit_within_range"),
        ("release_done_when_taken", "region_busy"),
    ],
)
def test_bug_of_ranges(bug, test):
    """The last regions are left out; one that does not exist is ordered something; the last region
    of a range is written a geometry; `region_busy` does not wait for the end of a RELEASE."""
    module = "sim.cocotb.register_bank.orders"
    assert changed_bank(test, f"register_bank.{bug}", module) == [test]


@pytest.mark.parametrize("name", PRESETS)
def test_register_map(name):
    registers = register_map(PRESETS[name])
    addresses = [address for _, address, _ in registers]
    assert addresses == sorted(set(addresses)) and all(address % 4 == 0 for address in addresses)
    assert (
        registers.address("control.IRQ_STATUS") == 0x1004
        and registers.address("hang.SLICE") == 0x9000
    )
    assert registers.register("id.MAGIC").fields[0].reset == 0x4D485542


def test_register_map_rules():
    with pytest.raises(ValueError, match=r"A\.two = 3\+2: must lie in 32 bits, alone"):
        Register("A", 0, (Field("one", 0, 4, "rw"), Field("two", 3, 2, "rw")))
    with pytest.raises(ValueError, match=r"A\.one = 30\+4"):
        Register("A", 0, (Field("one", 30, 4, "rw"),))
    one = Register("A", 0, (Field("one", 0, 4, "rw"),))
    with pytest.raises(ValueError, match=r"p\.A = 0x0: must be a free word of its page"):
        RegisterMap([Page("p", 0, (one, one))], ())


def test_manual_is_current():
    """docs/registers.md is what the description says; `moe-hub registers -o docs/registers.md`
    writes it."""
    assert (ROOT / "docs" / "registers.md").read_text() == registers_markdown(SMALL)


def test_header():
    text = registers_header(SMALL)
    assert "#define MOEHUB_CONTROL_TIMEOUT 0x1018u\n" in text
    assert (
        "#define MOEHUB_REGIONS_FLAGS_EXPECTED_SHIFT 8\n#define "
        "MOEHUB_REGIONS_FLAGS_EXPECTED_MASK 0x0000ff00u\n" in text
    )
    assert text.count("#ifndef") == 1 and text.endswith("#endif\n")
