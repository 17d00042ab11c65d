# SPDX-License-Identifier: Apache-2.0
"""What a run showed, in the checker's words: no rule is judged here."""

from dataclasses import dataclass, field

from hub_rtl.contract.packets import BODIES, unpack
from hub_rtl.contract.registers import register_map

from .draw import QUERY

__all__ = [
    "Bank",
    "Row",
    "Violation",
    "group_bytes",
    "landed",
    "memory_map",
    "packets",
    "registers",
    "timeline",
]


class Violation(AssertionError):
    """A promise was broken; the text is ``rule: values``, one line."""


@dataclass(eq=False)
class Row:
    """``stored``, ``acked``: a bit per byte that was accepted from the producer, that memory has
    acknowledged."""

    src: int
    data: bytearray
    stored: int = 0
    acked: int = 0
    placed: bool = False

    def write(self, at, mask, data):
        """Bytes of a store whose sector begins at byte ``at``."""
        for n in range(mask.bit_length()):
            if mask >> n & 1:
                self.data[at + n] = data[n]
        self.stored |= mask << at


@dataclass
class Bank:
    """One opening of a region: rows by slot, announced tiles with their rows, (kind, status,
    refused) of the last event."""

    slots: list = field(default_factory=list)
    tiles: dict = field(default_factory=dict)
    end: tuple = ()

    def due(self, tile_rows):
        """All its tiles, with their rows."""
        return {
            n: len(self.slots[n * tile_rows : (n + 1) * tile_rows])
            for n in range(-(-len(self.slots) // tile_rows))
        }


def memory_map(plan, rank):
    """Places that the hub may write: sorted [(low, high, kind, region, bank)]."""
    areas = [(*plan.windows[rank][0], "plain", 0, 0)]
    for r, g in enumerate(plan.regions[rank]):
        areas += [(g.base[b], g.base[b] + g.capacity * g.stride, "row", r, b) for b in range(2)]
        areas += [
            (g.spill_base[b], g.spill_base[b] + 8 * g.row_span, "spill", r, b) for b in range(2)
        ]
        if g.flag_base is not None:
            areas.append((g.flag_base, g.flag_base + 8 * g.tiles, "flag", r, 0))
    return sorted(areas)


def landed(plan, result):
    """(rank, address) -> cycle of memory's answer, of each byte in the windows of plain stores."""
    out = {}
    for rank, windows in enumerate(plan.windows):
        beats, (low, high) = result.log("beats", rank), windows[0]
        for beat in beats[(beats["addr"] >= low) & (beats["addr"] < high)]:
            addr, mask = int(beat["addr"]), int(beat["strobe"])
            out |= {(rank, addr + b): int(beat["answered"]) for b in range(16) if mask >> b & 1}
    return out


def timeline(*logs):
    """(cycle, number of the log, record) of (records, name of their cycle) pairs; of one cycle, the
    first log is first."""
    steps = [
        (int(record[name]), number, record)
        for number, (log, name) in enumerate(logs)
        for record in log
    ]
    return sorted(steps, key=lambda step: step[:2])


def packets(result, log, rank, *kinds):
    """(record, src, dst, body fields with ``type``) of the packets of some types."""
    for record in result.log(log, rank):
        word = int(record["low"]) | int(record["high"]) << 64
        if word & 15 in kinds:
            yield (
                record,
                word >> 15 & 127,
                word >> 8 & 127,
                unpack(BODIES[word & 15], word) | {"type": word & 15},
            )


def registers(plan, result, rank):
    """(n, region) -> {register: value}, as software read them after the end of an epoch."""
    paths = {register_map(plan.cfg).address(f"regions.{name}"): name for name in QUERY}
    out, last = {}, {}
    for read in result.log("reads", rank):
        if not read["mark"]:
            last[paths.get(int(read["address"]))] = int(read["value"])
        elif plan.asked(int(read["address"])):
            out[plan.asked(int(read["address"]))] = dict(last)
    return out


def group_bytes(dep, group, addresses):
    """How many of the addresses lie in a group of a dependency range."""
    base = dep.base + (group - dep.group_base << dep.log2_stride)
    return sum(base + b in addresses for b in range(1 << dep.log2_stride))
