# SPDX-License-Identifier: Apache-2.0
"""Parts of ProducerControl's bench: stores on their way, queues with the flush handshake."""

from collections import deque

__all__ = ["Pipe", "Store"]


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
