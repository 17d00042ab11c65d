# SPDX-License-Identifier: Apache-2.0
"""A cocotb test that is for no configuration."""

import cocotb

from sim.bench.runner import needs


@cocotb.test()
@needs(lambda cfg: False)
async def for_none(dut):
    raise AssertionError("it is skipped")
