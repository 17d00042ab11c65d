# SPDX-License-Identifier: Apache-2.0
"""From the design to files: Verilog, sidecar, header, manual; and lint."""
