"""From the design to files: Verilog, sidecar, header, manual; and lint."""
