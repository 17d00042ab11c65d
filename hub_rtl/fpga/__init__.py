"""FPGA targets: a self-testing system of two hubs, and the boards it is built for."""
