# SPDX-License-Identifier: Apache-2.0
"""FPGA targets: a hub that tests itself, and the boards it is built for."""
