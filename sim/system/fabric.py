# SPDX-License-Identifier: Apache-2.0
"""The fabric between hubs, in time and in cycles of the hub's clock."""

__all__ = ["HOPS", "HOP_NS", "HUB_GHZ", "cycle_ns", "hub_cycles", "link_clock", "one_way"]

HUB_GHZ = 1.5625  # docs/architecture.md: 16 bytes a cycle make 25 GB/s, one NVLink4 lane
HOP_NS = 250.0  # of a link, as the paper simulates it
HOPS = 2  # hub to switch, switch to hub
LINK_CLOCK = 3, 2  # cycles of the links' own clock in cycles of the hub's


def link_clock(cfg):
    """Cycles of the links' clock, and of the hub's in the same time; the links run at HUB_GHZ."""
    return LINK_CLOCK if cfg.link_clock else (1, 1)


def cycle_ns(cfg):
    """Nanoseconds of a cycle of the hub's clock."""
    fast, slow = link_clock(cfg)
    return fast / slow / HUB_GHZ


def hub_cycles(cfg, ticks):
    """Cycles of the hub that so many of its links take, rounded up."""
    fast, slow = link_clock(cfg)
    return -(-ticks * slow // fast)


def one_way(hop_ns, cfg=None):
    """Cycles of the hub from hub to hub, rounded; at least one. Without a configuration the hub has
    the clock of its links."""
    fast, slow = link_clock(cfg) if cfg else (1, 1)
    return max(1, int(HOPS * hop_ns * HUB_GHZ * slow / fast + 0.5))
