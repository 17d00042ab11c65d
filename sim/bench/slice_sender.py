# SPDX-License-Identifier: Apache-2.0
"""Records, and what stands for the packet manager in benches of slices."""

from collections import Counter, deque

from hub_rtl.contract.packets import link_of
from hub_rtl.contract.records import record_of, types_of
from sim.bench.ports import Codec, reader

__all__ = ["Sender", "as_stream", "random_mask", "random_record"]


def as_stream(flits):
    """Flits as items of a packet stream."""
    return [
        {"data": data, "first": int(n == 0), "last": int(n == len(flits) - 1), "err": 0}
        for n, data in enumerate(flits)
    ]


def random_mask(cfg, rng):
    """Some bytes of a block: all, a span of units, any, or one."""
    size = cfg.packet_bytes
    low = 16 * rng.randrange(cfg.packet_flits)
    high = 16 * rng.randint(low // 16 + 1, cfg.packet_flits)
    span = (1 << high) - (1 << low)
    holes = span & ~(0xFFFF << 16 * rng.randrange(cfg.packet_flits))
    ends = 1 << low | 1 << high - 1
    drawn = (1 << size) - 1, span, holes, ends, span & rng.getrandbits(size), 1 << low
    return rng.choice(drawn) or 1


def random_record(cfg, size, rng, mask=None, news=0, **fields):
    """A record as beats of ``size`` bytes: these bytes of a block, else some; or so many news."""
    header = Codec(record_of(cfg, size)["header"].shape)
    head = header.unpack(rng.getrandbits(header.width)) | {"news": int(news > 0)} | fields
    if news:
        mask, head = (1 << 8 * news) - 1, head | {"plain": 0, "cls": 0}
    head["phase"] &= head["plain"]
    units = (0 if head["plain"] else cfg.max_row_bytes) // cfg.packet_bytes
    head["block"] %= units or 1 << cfg.addr_block_width
    head["link"] = head["plain"] and link_of(head["block"], cfg.lanes, cfg.slice_links)
    mask = random_mask(cfg, rng) if mask is None else mask
    there = [n for n in range(cfg.packet_bytes // size) if mask >> n * size & (1 << size) - 1]
    return [
        {
            "header": head,
            "mask": mask,
            "part": part,
            "last": int(part == there[-1]),
            "data": rng.getrandbits(8 * size),
        }
        for part in there
    ]


class Sender:
    """Stands for the packet manager: takes a credit for each packet, then hands it over. Any rank
    with credits goes."""

    def __init__(self, bench, cfg, source, prefix=""):
        self.bench, self.source = bench, source
        self.taken = Counter()
        self._take = getattr(bench.dut, prefix + "take")
        self._ready = reader(getattr(bench.dut, prefix + "dest_ready"))
        self._codec = Codec(types_of(cfg).rank_strobe)
        self._queues = {rank: deque() for rank in range(cfg.ranks)}
        self._turn = 0
        self.on_take = []
        self.clear()
        bench.add(self)

    def put(self, dst, beats):
        self._queues[dst].append(beats)

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
            self.source.put(*self._queues[self._last].popleft())
            self.taken[self._last] += 1
            for function in self.on_take:
                function(self._last)
        if self._last is not None or self._driven:
            self._driven = self._last is not None
            self._take.value = self._codec.pack({"en": self._driven, "rank": self._last or 0})

    def sample(self):
        self._credits = self._ready()

    def __str__(self):
        return f"sender: {self.pending} beats or records waiting, credits {self._credits:#b}"
