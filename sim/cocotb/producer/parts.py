# SPDX-License-Identifier: Apache-2.0
"""Parts of ProducerControl's bench: stores on their way, queues with the flush handshake, random
entries."""

from collections import deque

__all__ = ["Pipe", "Store", "random_entry"]

OWNERS = (1, 1, 1, 2)


class Store:
    """A store that the bench's decoder accepted."""

    def __init__(self, number, dest, epoch, rank, size):
        self.number, self.dest, self.epoch = number, dest, epoch
        self.rank, self.size, self.marked = rank, size, False


class Pipe:
    """A decoder's or merge's queue with the flush handshake."""

    def __init__(self, depth):
        self.items, self.older, self.depth = deque(), 0, depth

    def flush(self):
        self.older = len(self.items)

    def leave(self):
        self.older = max(0, self.older - 1)
        return self.items.popleft()


def random_entry(cfg, rng):
    """A usable decoder entry."""
    return {
        "valid": 1,
        "owner": rng.choice(OWNERS),
        "epoch": rng.randrange(16),
        "closed": rng.randrange(2),
        "row_bytes": 16 * rng.randint(1, cfg.max_row_bytes // 16),
        "lane_mode": rng.randrange(4),
        "lane": rng.getrandbits(cfg.lane_width),
        "log2_replicas": rng.randrange(cfg.replicas.bit_length()),
        "replica": [
            {"rank": rng.randrange(cfg.ranks), "region": rng.randrange(cfg.regions)}
            for _ in range(cfg.replicas)
        ],
    }
