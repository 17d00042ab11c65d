# SPDX-License-Identifier: Apache-2.0
"""cocotb tests, one module per block; run through ``sim.bench.runner.run_bench`` from
``tests/``."""
