# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the FPGA self-test: it ends, with the right verdict."""

import cocotb

from sim.bench.clock import start_clock
from sim.bench.runner import bench_params


@cocotb.test()
async def verdict(dut):
    """The verdict comes within the time that is left to it, and says what was planted."""
    params = bench_params()[1]
    bench = start_clock(dut, watchdog=0)
    dut.fault.value = params["code"] != 0
    await bench.reset()
    await bench.until(
        lambda: int(dut.passed.value) or int(dut.failed.value), params["limit"], "a verdict"
    )
    assert (int(dut.passed.value), int(dut.failed.value)) == (
        params["code"] == 0,
        params["code"] != 0,
    ), f"code {int(dut.code.value):#04x} after {int(dut.cycles.value)} cycles"
    assert int(dut.code.value) & params["code"] == params["code"]
    before = int(dut.cycles.value)
    await bench.cycles(50)
    assert int(dut.cycles.value) == before and not int(dut.running.value)
