# SPDX-License-Identifier: Apache-2.0
"""Bench parts: building and running cocotb tests, stream and AXI agents, planted bugs, functional
coverage."""
