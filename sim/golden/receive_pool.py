# SPDX-License-Identifier: Apache-2.0
"""Golden model of a slice's receive pool: what comes out, who may send, what is granted.

Packet-level, no cycles. The pool decides when it grants, the model holds what it grants against
what there is.
"""

from collections import Counter, defaultdict, deque

__all__ = ["PoolModel", "SourceBook", "whole_record"]

TOTALS = 4096  # totals are told modulo this
RESERVE = 2  # places that every source has


def whole_record(beats, slice_bytes):
    """The record as the pool hands it out: with a beat for each part that the mask names, those
    behind the last one lost; with one beat if it names none. A cut packet is poisoned."""
    *_, end = beats
    mask, came = end["mask"], {beat["part"]: beat for beat in beats}
    named = {
        part
        for part in range(-(-mask.bit_length() // slice_bytes))
        if mask >> part * slice_bytes & (1 << slice_bytes) - 1
    }
    parts = sorted(named or {end["part"]})
    absent = {"lost": 1, "data": 0}
    head = end["header"] | ({"poison": 1} if end["lost"] else {})
    return [
        {
            **end,
            **came.get(part, absent),
            "header": head,
            "part": part,
            "last": int(part == parts[-1]),
        }
        for part in parts
    ]


class SourceBook:
    """What a source knows: grants it has left. Totals count from reset, modulo 4096."""

    def __init__(self, first):
        self.left, self.heard, self.returned = first, 0, 0

    def granted(self, total, back):
        """A message of the pool. Returns the new total that it has given back, or None."""
        gain = (total - self.heard) % TOTALS
        if gain < TOTALS // 2:
            self.left += gain
            self.heard = total
        part = (self.left + 1) // 4  # nothing of the reserve
        if not back or not part:
            return None
        self.left -= part
        self.returned = (self.returned + part) % TOTALS
        return self.returned


class PoolModel:
    """A pool of ``places``, of which each of ``ranks`` - 1 sources has an equal share at first.

    ``arrives`` a packet's record of a source over a link, to its end; ``leaves`` one, which must be
    the next of its source and of some link. ``granted``, ``gave_back``: totals. ``has`` of a
    source: places it holds, or was told that it may use.
    """

    def __init__(self, places, ranks, most=None):
        self.places, self.first = places, places // (ranks - 1)
        self.most = places - RESERVE * (ranks - 2) if most is None else most
        self.inside = defaultdict(deque)  # by (source, link), records
        self.arrived, self.held, self.told, self.back = Counter(), Counter(), Counter(), Counter()

    def begins(self, src):
        self.arrived[src] += 1
        self.held[src] += 1
        assert sum(self.held.values()) <= self.places, "more packets than places"

    def arrives(self, src, link, record):
        self.inside[src, link].append(record)

    def leaves(self, src, record, same):
        """``same(a, b)``: the records are one."""
        for (source, _), queue in self.inside.items():
            if source == src and queue and same(record, queue[0]):
                self.held[src] -= 1
                return queue.popleft()
        first = [queue[0] for (source, _), queue in self.inside.items() if source == src and queue]
        raise AssertionError(f"of source {src} came\n  {record}\n  next are\n  {first}")

    def granted(self, src, total):
        self.told[src] += (total - self.told[src]) % TOTALS
        assert self.has(src) <= self.most, f"source {src} has {self.has(src)} of {self.most} places"

    def gave_back(self, src, total):
        self.back[src] += (total - self.back[src]) % TOTALS

    def unused(self, src):
        """Packets that the source may still send."""
        return self.first + self.told[src] - self.back[src] - self.arrived[src]

    def has(self, src):
        return self.unused(src) + self.held[src]

    def check(self, sources):
        """Nobody has less than its reserve but for what is being granted, all have no more than
        there is."""
        total = sum(self.has(src) for src in sources)
        assert total <= self.places, f"{total} places are held or granted of {self.places}"
