# SPDX-License-Identifier: Apache-2.0
"""Golden model of the slot allocator: what each packet leads to, from the specification alone.

Exact for everything that does not depend on timing: given each slice's packets in order and the
order in which slots were given out, it predicts every write, beat, refusal, spill access, overlap
and count.
"""

import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass

from hub_rtl.contract import packets
from hub_rtl.contract.packets import Reason, RegionState

__all__ = ["SlotAllocatorModel", "fold"]


@dataclass
class Row:
    """One mapping: the row's slot, or why it has none, and its bytes that are still to come."""

    region: int
    epoch: int
    rowid: int
    src: int
    missing: int
    reason: int
    slot: int = 0
    overflow: int = 0

    @property
    def bank(self):
        return self.epoch & 1


class Slice:
    """State of one slice."""

    def __init__(self, cfg):
        self.sets = [[None] * cfg.rat_ways for _ in range(cfg.rat_sets)]
        self.order = [
            list(range(cfg.rat_ways)) for _ in range(cfg.rat_sets)
        ]  # ways, oldest installation first
        self.filter = [0] * cfg.filter_depth
        self.refused_before = None
        # {row: (region, rowid) or (0, 0), written, fresh: it asked for a slot, over: of bytes,
        self.packets = []
        #  slow: in so many steps with the spill memory, or with a victim}
        self.writes, self.beats, self.refusals = [], [], []


def fold(value, size):
    """Index below ``size`` (a power of two): XOR of all digits of ``value`` in base ``size``."""
    index = 0
    while value and size > 1:
        index, value = index ^ (value % size), value // size
    return index


class SlotAllocatorModel:
    """One allocator. Tell it the configuration with ``geometry``, ``state``, ``window``, ``dep``;
    then ``run`` packets.

    Results: ``slices[n].writes``, ``.beats``,
    ``.refusals``; ``memory`` {address: spill word}; ``accesses`` {address: [(kind, word)]} in
    order; ``overlaps`` and ``counts`` (Counter). ``bad_reads``,
    ``bad_writes``: addresses at which memory answers with an error.
    """

    def __init__(self, cfg):
        self.cfg = cfg
        self.slices = [Slice(cfg) for _ in range(cfg.slices)]
        self.regions = {}
        # A bank that was never opened counts as if epoch 14 (bank 0) or 15 (bank 1) were over.
        self.banks = {
            (r, b): {"state": RegionState.FREE, "epoch": 14 + b}
            for r in range(cfg.regions)
            for b in (0, 1)
        }
        self.slots, self.moved = Counter(), Counter()
        self.windows = {}
        self.deps = [None] * cfg.dep_ranges
        self.memory, self.accesses = {}, defaultdict(list)
        self.bad_reads, self.bad_writes = set(), set()
        self.overlaps, self.counts = Counter(), Counter()
        self.allocations = []

    # -- set-up ------------------------------------------------------------------------------------

    def geometry(self, region, geometry):
        self.regions[region] = geometry

    def state(self, region, bank, state, epoch):
        self.banks[region, bank] = {"state": state, "epoch": epoch}
        if state == RegionState.OPEN:
            self.slots[region, bank] = self.moved[region, bank] = 0

    def window(self, rank, base, limit):
        self.windows[rank] = (base, limit)

    def dep(self, index, dep_range):
        self.deps[index] = dep_range

    def purge(self, region, bank):
        for each in self.slices:
            for ways in each.sets:
                for n, row in enumerate(ways):
                    if row and (row.region, row.bank) == (region, bank):
                        ways[n] = None

    def rows(self, region, bank):
        """Rows placed for producers of the region: own slots and overflowed ones."""
        return self.slots[region, bank] + self.moved[region, bank]

    # -- packets -----------------------------------------------------------------------------------

    def run(self, packets, allocations):
        """``packets``: per slice a list of records, each a list of beats as a receive pool gives
        them. ``allocations``: the slots given out, (region, bank, rowid, slot, overflow) in
        order."""
        workers = {n: self._slice(n, queue) for n, queue in enumerate(packets)}
        waiting = {}
        for n in list(workers):
            self._step(workers, waiting, n, None)
        for seen in [*allocations, None]:
            # Requests that nothing can satisfy any more get their refusal; they leave no trace in
            # the order.
            while full := [
                n for n, (region, bank, _) in waiting.items() if self._place(region, bank) is None
            ]:
                self._step(workers, waiting, full[0], (Reason.REGION_FULL, 0, 0))
            if seen is None:
                break
            asked = [n for n, request in waiting.items() if request == seen[:3]]
            if len(asked) != 1:
                raise AssertionError(
                    f"a slot was given out for {seen}, but the slices ask for {waiting}"
                )
            region, bank, _ = seen[:3]
            place = self._place(region, bank)
            slot, overflow = self.slots[place, bank], int(place != region)
            if (slot, overflow) != seen[3:]:
                raise AssertionError(f"{seen[:3]} got slot {seen[3:]}, expected {(slot, overflow)}")
            self.slots[place, bank] += 1
            self.moved[region, bank] += overflow
            self.counts["rat_new"] += 1
            self.allocations.append(seen)
            self._step(workers, waiting, asked[0], (Reason.OK, slot, overflow))
        if waiting:
            raise AssertionError(f"no slot was given out for {waiting}")

    def _step(self, workers, waiting, n, answer):
        waiting.pop(n, None)
        with contextlib.suppress(StopIteration):
            waiting[n] = workers[n].send(answer)

    def _place(self, region, bank):
        """Region that would take the next row, None when there is no place."""
        own = self.regions[region]
        if self.slots[region, bank] < own["capacity"]:
            return region
        if own["overflow_en"]:
            other = self.regions.get(own["overflow"])
            if (
                other
                and other["valid"]
                and other["row_bytes"] == own["row_bytes"]
                and self.banks[own["overflow"], bank]["state"] == RegionState.OPEN
                and self.banks[own["overflow"], bank]["epoch"] == self.banks[region, bank]["epoch"]
                and self.slots[own["overflow"], bank] < other["capacity"]
            ):
                return own["overflow"]
        return None

    def _slice(self, number, queue):
        each, cfg = self.slices[number], self.cfg
        for record in queue:
            head, mask = record[0]["header"], record[0]["mask"]
            units = [n for n in range(cfg.packet_flits) if mask >> 16 * n & 0xFFFF]
            # A record without a byte is one of the first unit of its part.
            units = units or [record[0]["part"] * cfg.slice_bytes // 16]
            info = {
                "src": head["rank"],
                "count": mask.bit_count(),
                "unit": head["block"] * cfg.packet_flits + units[0],
                "len": units[-1] - units[0] + 1,
                "mask": mask,
                "beats": {beat["part"]: beat for beat in record},
                "poison": head["poison"],
                "phase": head["phase"],
            }
            note, written = (
                {"row": (0, 0), "written": False, "fresh": False, "over": False, "slow": 0},
                len(each.writes),
            )
            each.packets.append(note)
            if head["plain"]:
                self._plain(each, info, info["unit"] * 16)
            else:
                note["row"] = head["region"], head["rowid"]
                yield from self._row(each, info, head)
            note["written"] = len(each.writes) > written

    def _plain(self, each, info, addr):
        base, limit = self.windows.get(info["src"], (0, 0))
        if not (base <= addr and addr + 16 * info["len"] <= limit):
            self._refuse(each, info, Reason.WINDOW, None, known=0)
            return
        context = {
            "counted": 0,
            "plain": 1,
            "region": 0,
            "place": 0,
            "bank": 0,
            "group": 0,
            "dep": 0,
            "src": info["src"],
            "phase": info["phase"],
        }
        for n, dep in enumerate(self.deps):
            if dep and dep["armed"] and dep["base"] <= addr < dep["limit"]:
                group = dep["group_base"] + ((addr - dep["base"]) >> dep["log2_stride"])
                context.update(counted=1, dep=n, group=group % (1 << self.cfg.group_width))
                break
        self._write(each, info, addr, context)

    def _row(self, each, info, head):
        region, epoch, rowid = head["region"], head["epoch"], head["rowid"]
        bank = epoch & 1
        geometry = self.regions.get(region)
        if region >= self.cfg.regions or not geometry or not geometry["valid"]:
            self._refuse(each, info, Reason.UNKNOWN, head, known=0)
            return
        now = self.banks[region, bank]
        if now["state"] != RegionState.OPEN or now["epoch"] != epoch:
            early = 1 <= (epoch - now["epoch"]) % 16 <= 7
            self._refuse(each, info, Reason.EPOCH_EARLY if early else Reason.EPOCH_STALE, head)
            return
        if 16 * (info["unit"] + info["len"]) > geometry["row_bytes"]:
            self._refuse(each, info, Reason.ROW_OVERRUN, head)
            return
        if not geometry["row_first"] <= rowid < geometry["row_first"] + geometry["row_span"]:
            self._refuse(each, info, Reason.ROW_RANGE, head)
            return

        key = rowid ^ (2 * region + bank) << 12
        index = fold(key, self.cfg.rat_sets)
        ways = each.sets[index]
        at = next(
            (
                n
                for n, row in enumerate(ways)
                if row and (row.region, row.epoch, row.rowid) == (region, epoch, rowid)
            ),
            None,
        )
        row, first = ways[at] if at is not None else None, False
        if row is not None:
            if row.src != info["src"]:
                self._refuse(each, info, Reason.FOREIGN, head)
                return
            self.counts["rat_hits"] += 1
        else:
            row = yield from self._absent(
                each, info, region, epoch, rowid, key, geometry, ways, index
            )
            if row is None:
                return
            first = each.packets[-1]["fresh"] = True
        self._count(each, info, row, ways, index, at)
        self._issue(each, info, row, head, first)

    def _absent(self, each, info, region, epoch, rowid, key, geometry, ways, index):
        """The row is not in the RAT: restored from memory, or new; None when it was refused."""
        bank = epoch & 1
        counter = fold(key, self.cfg.filter_depth)
        restored = None
        if each.filter[counter]:
            addr = self._spill_addr(region, bank, rowid)
            each.packets[-1]["slow"] += 1
            word, error = self._access(addr, None)
            found = packets.unpack(packets.SPILL_WORD, word)
            if error:
                self.counts["spill_errors"] += 1
                self._refuse(each, info, Reason.MEM_ERROR, self._name(region, epoch, rowid))
                return None
            if found["valid"] and found["epoch"] == epoch and found["rowtag"] == rowid % 65536:
                if found["src"] != info["src"]:
                    self._refuse(each, info, Reason.FOREIGN, self._name(region, epoch, rowid))
                    return None
                self.counts["restores"] += 1
                restored = Row(
                    region,
                    epoch,
                    rowid,
                    info["src"],
                    found["missing"],
                    Reason.OK,
                    found["slot"],
                    found["overflow"],
                )
            else:
                self.counts["filter_false"] += 1
        total = restored.missing if restored else geometry["row_bytes"]
        if info["count"] < total and all(ways):
            self._evict(each, ways, index)
        if restored:
            each.packets[-1]["slow"] += 1
            self._filter_step(each, counter, -1)
            self._access(addr, 0)
            place = self.regions.get(geometry["overflow"]) if restored.overflow else geometry
            if (
                (restored.overflow and not geometry["overflow_en"])
                or not place
                or restored.slot >= place["capacity"]
            ):
                restored.reason = Reason.MEM_ERROR  # the word in memory was damaged
            return restored
        reason, slot, overflow = yield (region, bank, rowid)
        return Row(region, epoch, rowid, info["src"], geometry["row_bytes"], reason, slot, overflow)

    def _evict(self, each, ways, index):
        """Oldest row whose epoch is over, else oldest with a slot (which alone is spilled), else
        oldest refused one."""

        def rank(row):
            now = self.banks[row.region, row.bank]
            if now["state"] != RegionState.OPEN or now["epoch"] != row.epoch:
                return 0
            return 1 if row.reason == Reason.OK else 2

        each.packets[-1]["slow"] += 1
        victim = min(
            each.order[index], key=lambda way: rank(ways[way])
        )  # min keeps the first, so the oldest, of equals
        row, ways[victim] = ways[victim], None
        if rank(row) != 1:
            self.counts["dropped"] += 1
            return
        self.counts["spills"] += 1
        self._filter_step(
            each, fold(row.rowid ^ (2 * row.region + row.bank) << 12, self.cfg.filter_depth), 1
        )
        word = packets.pack(
            packets.SPILL_WORD,
            rowtag=row.rowid % 65536,
            src=row.src,
            missing=row.missing,
            slot=row.slot,
            overflow=row.overflow,
            epoch=row.epoch,
            valid=1,
        )
        _, error = self._access(self._spill_addr(row.region, row.bank, row.rowid), word)
        if error:
            self.overlaps[row.region, row.bank] += 1

    def _count(self, each, info, row, ways, index, at):
        """Bytes go off the row's missing ones; it is kept while some are missing."""
        if info["count"] > row.missing:
            self.overlaps[row.region, row.bank] += 1
            each.packets[-1]["over"] = True
        left = max(0, row.missing - info["count"])
        if at is None and left:
            at = ways.index(None)
            each.order[index].remove(at)
            each.order[index].append(at)
        if at is not None:
            ways[at] = row if left else None
        row.missing = left

    def _issue(self, each, info, row, head, first):
        if row.reason != Reason.OK:
            self._refuse(each, info, row.reason, head, report=int(first))
            return
        place = self.regions[row.region]["overflow"] if row.overflow else row.region
        geometry = self.regions[place]
        group = geometry["group_base"] + (row.slot >> geometry["log2_tile"])
        addr = geometry["base"][row.bank] + row.slot * geometry["stride"] + 16 * info["unit"]
        self._write(
            each,
            info,
            addr,
            {
                "counted": 1,
                "plain": 0,
                "region": row.region,
                "place": place,
                "bank": row.bank,
                "group": group % (1 << self.cfg.group_width),
                "dep": 0,
                "src": 0,
                "phase": 0,
            },
        )

    # -- results -----------------------------------------------------------------------------------

    def _write(self, each, info, addr, context):
        """Beats from the packet's first part to its last."""
        size, first = self.cfg.slice_bytes, info["unit"] % self.cfg.packet_flits * 16
        parts = range(first // size, (first + 16 * info["len"] - 1) // size + 1)
        each.writes.append(
            {
                "addr": addr // size * size,
                "beats": len(parts),
                "context": {**context, "bytes": info["count"], "poison": info["poison"]},
            }
        )
        for part in parts:
            beat = info["beats"].get(part, {"lost": 1, "data": 0})
            strb = 0 if beat["lost"] else info["mask"] >> part * size & (1 << size) - 1
            bits = sum(0xFF << 8 * n for n in range(size) if strb >> n & 1)
            each.beats.append(
                {"data": beat["data"] & bits, "strb": strb, "last": int(part == parts[-1])}
            )

    def _refuse(self, each, info, reason, head, known=1, report=None):
        name = {
            "plain": int(head is None),
            "src": info["src"],
            "region": head["region"] if head else 0,
            "epoch": head["epoch"] if head else 0,
            "rowid": head["rowid"] if head else 0,
        }
        if report is None:
            report = int(each.refused_before != name)
        each.refused_before = name
        each.refusals.append(
            {
                **name,
                "phase": 0 if head else info["phase"],
                "known": known,
                "report": report,
                "reason": int(reason),
                "bytes": info["count"],
            }
        )
        self.counts[f"refused_{Reason(reason).name}"] += 1
        self.counts["reports"] += report

    # -- spill table -------------------------------------------------------------------------------

    @staticmethod
    def _name(region, epoch, rowid):
        return {"region": region, "epoch": epoch, "rowid": rowid}

    def _spill_addr(self, region, bank, rowid):
        geometry = self.regions[region]
        return geometry["spill_base"][bank] + 8 * (rowid - geometry["row_first"])

    def _access(self, addr, word):
        """Reads (word None) or writes; gives (word, error)."""
        self.accesses[addr].append(("read" if word is None else "write", word or 0))
        if word is None:
            return self.memory.get(addr, 0), addr in self.bad_reads
        if addr in self.bad_writes:
            self.counts["spill_errors"] += 1
            return word, True
        self.memory[addr] = word
        return word, False

    def _filter_step(self, each, counter, step):
        """A counter at its maximum no longer knows its count and stays."""
        if each.filter[counter] != (1 << self.cfg.filter_width) - 1:
            each.filter[counter] += step
