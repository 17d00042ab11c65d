# SPDX-License-Identifier: Apache-2.0
"""The FPGA self-test: passes on the real hub, and notices what is broken."""

from functools import partial

import pytest
from amaranth.sim import Simulator
from typer.testing import CliRunner

from flow.fpga.mirror import Mirror
from flow.fpga.plan import Plan
from flow.fpga.selftest import CODES, SelfTest
from hub_rtl.contract.packets import HEADER, pack
from moe_hub.command.cli import app
from sim.bench.runner import run_bench

PLAN = Plan(rounds=3)


def run(code=0):
    """One build, in which a wrong bit can be planted."""
    run_bench(
        partial(SelfTest, PLAN, fault=True),
        name="selftest",
        module="sim.cocotb.system.fpga",
        cfg=PLAN.cfg,
        params={"limit": 30000, "code": code},
    )


@pytest.mark.night
def test_passes():
    run()


@pytest.mark.night
def test_one_wrong_bit():
    """A bit that is wrong on its way is found in memory."""
    run(code=1 << CODES.index("row memory"))


def test_the_mirror_exchanges_ends():
    """Of each packet's first flit, whatever the flits look like and wherever the line pauses."""
    mirror = Mirror()

    def ends(src, dst):
        return pack(HEADER, src=src, dst=dst, len=7, body=0x5A5A)

    packets = [[ends(1, 0)], [ends(0, 1), ends(0, 1), ends(1, 0)], [ends(0, 1)], [ends(1, 1)] * 2]
    sent = [(flit, n == len(one) - 1) for one in packets for n, flit in enumerate(one)]
    back = [[ends(0, 1)], [ends(1, 0), ends(0, 1), ends(1, 0)], [ends(1, 0)], [ends(1, 1)] * 2]
    seen = []

    async def bench(sim):
        cycle = 0
        for flit, last in sent:
            sim.set(mirror.i.tdata, flit)
            sim.set(mirror.i.tlast, last)
            sim.set(mirror.i.tvalid, 1)
            for ready in [0] * (cycle % 3) + [1]:
                sim.set(mirror.o.tready, ready)
                assert sim.get(mirror.i.tready) == ready
                if ready:
                    seen.append((sim.get(mirror.o.tdata), bool(sim.get(mirror.o.tlast))))
                await sim.tick()
                cycle += 1
            sim.set(mirror.i.tvalid, 0)
            await sim.tick().repeat(1 + cycle % 2)
            assert not sim.get(mirror.o.tvalid)

    simulator = Simulator(mirror)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [(flit, n == len(one) - 1) for one in back for n, flit in enumerate(one)]


def test_the_plan_fits_the_hub():
    """RAT and victim store hold fewer rows than are under way, so mappings go to memory; every
    access is one of a register."""
    cfg = PLAN.cfg
    on_chip = cfg.rat_sets * cfg.rat_ways * cfg.slices + 4 * cfg.victim_sets
    assert on_chip < PLAN.region_rows <= cfg.capacity
    assert [step.kind for step in PLAN.steps()].count("go") == PLAN.rounds
    assert PLAN.steps()[-1].kind == "end"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--board", "x"], "board = 'x': must be one of ecp5_5g_evn, ulx3s_85f, arty_a7_100"),
        (["--rows", "5"], "rows = 5: must be a power of two between 4 and 32"),
    ],
)
def test_wrong_words(words, said):
    done = CliRunner().invoke(app, ["fpga", *words])
    assert done.exit_code == 2 and said in done.stderr
