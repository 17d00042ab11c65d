# SPDX-License-Identifier: Apache-2.0
"""The AXI agents of the bench: they carry data right and catch what is wrong."""

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import Axi4, AxiLite, SpillSignature
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught


class Joined(wiring.Component):
    """Each ``s`` port is wired to its ``m`` port."""

    def __init__(self):
        ports = {"": Axi4(48, 128), "s": SpillSignature(), "l": AxiLite(12)}
        super().__init__(
            {
                side + name: flow(signature)
                for name, signature in ports.items()
                for side, flow in (("s", In), ("m", Out))
            }
            | {"ticks": Out(8)}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.ticks.eq(self.ticks + 1)  # the bench needs a clock
        for name in ("", "s", "l"):
            wiring.connect(
                m,
                wiring.flipped(getattr(self, "s" + name)),
                wiring.flipped(getattr(self, "m" + name)),
            )
        return m


def run(*tests):
    run_bench(Joined(), name="axi_joined", module="sim.cocotb.bench.axi_agents", tests=list(tests))


def test_memory():
    run("memory_image", "spill_words", "lite")


@pytest.mark.parametrize("mistake", ["wrong_last", "across_page", "no_answer"])
def test_mistake_caught(mistake):
    assert assert_caught(lambda: run(mistake)) == [mistake]
