# SPDX-License-Identifier: Apache-2.0
"""The fabric between hubs, in time and in cycles of the hub's clock."""

__all__ = ["HOPS", "HOP_NS", "HUB_GHZ", "one_way"]

HUB_GHZ = 1.5625  # docs/architecture.md: 16 bytes a cycle make 25 GB/s, one NVLink4 lane
HOP_NS = 250.0  # of a link, as the paper simulates it
HOPS = 2  # hub to switch, switch to hub


def one_way(hop_ns):
    """Cycles from hub to hub, rounded; at least one."""
    return max(1, int(HOPS * hop_ns * HUB_GHZ + 0.5))
