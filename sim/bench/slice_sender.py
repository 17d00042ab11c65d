# SPDX-License-Identifier: Apache-2.0
"""What stands for the packet manager in benches of slices."""

from collections import Counter, deque

from hub_rtl.contract.records import types_of
from sim.bench.streams import Codec

__all__ = ["Sender", "as_stream"]


def as_stream(flits):
    """Flits as items of a packet stream."""
    return [
        {"data": data, "first": int(n == 0), "last": int(n == len(flits) - 1), "err": 0}
        for n, data in enumerate(flits)
    ]


class Sender:
    """Stands for the packet manager: takes a credit for each packet, then hands it over. Any rank
    with credits goes."""

    def __init__(self, bench, cfg, source, prefix=""):
        self.bench, self.source = bench, source
        self.taken = Counter()
        self._take = getattr(bench.dut, prefix + "take")
        self._ready = getattr(bench.dut, prefix + "dest_ready")
        self._codec = Codec(types_of(cfg).rank_strobe)
        self._queues = {rank: deque() for rank in range(cfg.ranks)}
        self._turn = 0
        self.on_take = []
        self.clear()
        bench.add(self)

    def put(self, dst, flits):
        self._queues[dst].append(flits)

    @property
    def pending(self):
        return sum(map(len, self._queues.values())) + self.source.pending

    def clear(self, forget=True):
        self._credits, self._last = 0, None
        self._take.value = 0
        self._driven = False
        for queue in self._queues.values():
            queue.clear()

    def drive(self):
        ranks = len(self._queues)
        able = [
            rank
            for rank in self._queues
            if self._queues[rank] and self._credits >> rank & 1 and rank != self._last
        ]
        self._last = None
        if able and self.source.pending < 40:
            self._last = min(able, key=lambda rank: (rank - self._turn) % ranks)
        if self._last is not None:
            self._turn = self._last + 1
            self.source.put(*as_stream(self._queues[self._last].popleft()))
            self.taken[self._last] += 1
            for function in self.on_take:
                function(self._last)
        if self._last is not None or self._driven:
            self._driven = self._last is not None
            self._take.value = self._codec.pack({"en": self._driven, "rank": self._last or 0})

    def sample(self):
        self._credits = int(self._ready.value)

    def __str__(self):
        return f"sender: {self.pending} flits or packets waiting, credits {self._credits:#b}"
