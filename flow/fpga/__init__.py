# SPDX-License-Identifier: Apache-2.0
"""FPGA targets: a self-testing system of two hubs, and the boards it is built for."""
