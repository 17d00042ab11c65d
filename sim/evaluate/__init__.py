# SPDX-License-Identifier: Apache-2.0
"""Event-driven model of N GPUs running Mixture-of-Experts layers, with the hub and with software:
``moe-hub evaluate``."""
