# SPDX-License-Identifier: Apache-2.0
"""What the hub costs and how fast it runs: Yosys, ECP5 place and route, standard cells."""
