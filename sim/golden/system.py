# SPDX-License-Identifier: Apache-2.0
"""Golden model of a whole system: what N hubs must do with the stores of N ranks, in plain Python
and NumPy.

Written from ``docs/architecture.md`` and ``docs/interfaces.md``; shares nothing with the RTL but
the formats. What depends on timing alone, the order in which rows are placed, is taken from the
hubs' observation ports, and is itself checked: each row once, dense slots, and never before one of
its packets has arrived (``sim/golden/observed.py``). Everything else follows: slots, every byte of
every memory, READY / ALL / ERROR events with their rows, refusals, totals.

Use: set up (``handle``, ``region``, ``window``, ``dep_range``, ``open``), give the programs
(``store``, ``row``, ``plain``, ``close``, ``close_all``; the result is the Reason of the answer),
replay the placements (``allocate``), then ask (``events``, ``image``, ``totals``). Epochs must have
been opened before stores for them arrive (a barrier in the program), unless ``timed`` says that
barriers and fences fix the order of everything that matters: then stores for epochs that are not
open, and for rows of another producer, are refused as the order tells.
"""

from dataclasses import dataclass, field

import numpy as np

from hub_rtl.contract.packets import (
    OPERAND_PLAIN,
    OPERAND_ROW,
    EventKind,
    Reason,
    lane_of,
    replica_of,
    unpack,
)

__all__ = ["SystemModel", "ModelError"]


class ModelError(AssertionError):
    """What was observed cannot happen by the specification, or the program breaks the model's
    assumptions."""


@dataclass
class Row:
    """One row of one epoch, as its producer sent it. ``parts``: (offset, bytes)."""

    src: int
    rowid: int
    parts: list = field(default_factory=list)
    slot: int | None = None
    overflow: bool = False

    @property
    def bytes(self):
        return sum(len(data) for _, data in self.parts)


@dataclass
class Bank:
    """One epoch of one region."""

    region: int
    epoch: int
    rows: dict = field(default_factory=dict)  # RowID -> Row
    placed: list = field(
        default_factory=list
    )  # rows in slot order, own and of primaries that overflow into this one
    overflowed: list = field(
        default_factory=list
    )  # own rows that were placed in the overflow region
    closes: set = field(default_factory=set)
    sent: int = 0
    refused: dict = field(
        default_factory=dict
    )  # (RowID, Reason) -> bytes, for packets that no bank may take
    broken: Reason | None = None  # what the first close that broke its word makes of it
    tainted: bool = False  # news of it was lost: its bank kept another epoch's


def _runs(mask):
    """(start, stop) of the runs of ones in a 32-bit mask."""
    edges = [n for n in range(33) if (mask << 1 ^ mask) >> n & 1]
    return list(zip(edges[::2], edges[1::2], strict=True))


class SystemModel:
    """All ranks of a system.

    Parameters: ``cfg``, the configuration of every hub; ``timed``, see above.
    """

    def __init__(self, cfg, timed=False):
        self.cfg, self.timed = cfg, timed
        ranks = range(cfg.ranks)
        self.handles = [{} for _ in ranks]  # rank -> {index: [entry, epoch, closed]}
        self.regions = [{} for _ in ranks]  # rank -> {index: geometry}
        self.banks = [
            {} for _ in ranks
        ]  # rank -> {(region, bank): [Bank, ...] in the order of opening}
        self.early = [
            {} for _ in ranks
        ]  # rank -> {(region, epoch): Bank}: news of an epoch before its OPEN
        self.last = [{} for _ in ranks]  # rank -> {(region, bank): epoch}: history of the banks
        self.marks = [
            set() for _ in ranks
        ]  # rank -> {(region, epoch)}: news of it was dropped as over
        self.windows = [{} for _ in ranks]
        self.deps = [{} for _ in ranks]
        self.dep_bytes = [{} for _ in ranks]  # rank -> {(range, group): bytes}
        self.plain_writes = [[] for _ in ranks]
        self.refusals = [
            [] for _ in ranks
        ]  # by the consumer: (Reason, source, region or None, epoch, RowID), once per row
        self.dead = [set() for _ in ranks]
        # Of the entries' epochs: rank -> {(handle, replica): bytes}, promised and stored.
        self.told, self.stored = [{} for _ in ranks], [{} for _ in ranks]

    # -- set-up ------------------------------------------------------------------------------------

    def handle(self, rank, index, entry):
        self.handles[rank][index] = [entry, entry.epoch, entry.closed]

    def region(self, rank, index, geometry):
        self.regions[rank][index] = geometry

    def window(self, rank, source, base, limit):
        self.windows[rank][source] = (base, limit)

    def dep_range(self, rank, index, dep):
        self.deps[rank][index] = dep

    def open(self, rank, region, epoch):
        key, last = (region, epoch & 1), self.last[rank].get((region, epoch & 1))
        if last is not None and not self._ahead(last, epoch):
            raise ModelError(f"rank {rank} region {region}: OPEN {epoch} after {last} is refused")
        bank = self.early[rank].pop((region, epoch), None) or Bank(region, epoch)
        bank.tainted |= (region, epoch) in self.marks[rank]
        for other in self._kept(rank, region, epoch):
            other.tainted = True  # what is not opened next is lost
        self.marks[rank] = {
            mark
            for mark in self.marks[rank]
            if (mark[0], mark[1] & 1) != key
            or self._ahead(epoch, mark[1])
            or (last is None and mark[1] != epoch)
        }
        self.last[rank][key] = epoch
        self.banks[rank].setdefault(key, []).append(bank)

    def forget(self, rank, region, bank):
        """The history of a FREE bank is forgotten; what it kept is lost."""
        self.last[rank].pop((region, bank & 1), None)
        for kept in [
            key for key in self.early[rank] if key[0] == region and key[1] & 1 == bank & 1
        ]:
            del self.early[rank][kept]
            self.marks[rank].add(kept)

    @staticmethod
    def _ahead(last, epoch):
        return 1 <= (epoch - last) % 16 <= 7

    def drain(self, rank, peers):
        """The rank has declared these peers dead, before the stores that follow."""
        self.dead[rank] = set(peers)

    # -- programs ----------------------------------------------------------------------------------

    def _entry_reason(self, rank, handle, epoch, owner):
        if handle not in self.handles[rank] or not self.handles[rank][handle][0].valid:
            return Reason.UNKNOWN
        entry, current, closed = self.handles[rank][handle]
        if any(r >= self.cfg.ranks or region >= self.cfg.regions for r, region in entry.targets):
            return Reason.UNKNOWN
        if entry.owner != owner:
            return Reason.FOREIGN
        if epoch != current:
            if closed and (epoch + 1) % 16 == current:
                return Reason.AFTER_CLOSE
            return Reason.EPOCH_EARLY if 1 <= (epoch - current) % 16 <= 7 else Reason.EPOCH_STALE
        return Reason.OK

    def store(self, rank, operand, data, mask, owner=0, lane=None):
        """One store of a 32-byte sector; returns the Reason of its answer. ``lane``: where it was
        offered, if it matters."""
        cfg = self.cfg
        f = unpack(OPERAND_PLAIN, operand)
        if f["plain"]:
            if f["rank"] >= cfg.ranks:
                return Reason.UNKNOWN
            if lane is not None and lane != lane_of(operand, cfg.lanes, cfg.packet_bytes):
                return Reason.BAD_LANE
            if f["rank"] in self.dead[rank]:
                return Reason.PEER_DEAD
            for start, stop in _runs(mask):
                self._plain(rank, f["rank"], f["addr"] // 32 * 32 + start, data[start:stop])
            return Reason.OK
        f = unpack(OPERAND_ROW, operand)

        def in_lane(entry):
            right = lane_of(operand, cfg.lanes, cfg.packet_bytes, entry.lane_mode, entry.lane)
            return lane in (None, right)

        sector = f["row_off"] // 2 * 32
        end = sector + mask.bit_length() if mask else 0
        reason, target = self._row_target(rank, f, owner, end, in_lane)
        for start, stop in _runs(mask) if not reason else ():
            self._sparse(rank, target, f["epoch"], f["rowid"], sector + start, data[start:stop])
            self._stored(rank, f, stop - start)
        return reason

    def row(self, rank, operand, data, owner=0):
        """Stores of ``data`` from the operand's row_off on, all in the row's lane; returns the
        Reason."""
        f = unpack(OPERAND_ROW, operand)
        first = f["row_off"] * 16
        reason, target = self._row_target(rank, f, owner, first + len(data))
        if not reason:
            self._sparse(rank, target, f["epoch"], f["rowid"], first, data)
            self._stored(rank, f, len(data))
        return reason

    def _row_target(self, rank, f, owner, end, in_lane=lambda entry: True):
        """(Reason, (rank, region)) of a store of a row's bytes up to ``end``."""
        if reason := self._entry_reason(rank, f["handle"], f["epoch"], owner):
            return reason, None
        entry = self.handles[rank][f["handle"]][0]
        if not in_lane(entry):
            return Reason.BAD_LANE, None
        if end > entry.row_bytes:
            return Reason.ROW_OVERRUN, None
        target = entry.targets[replica_of(f["rowid"], len(entry.targets))]
        return Reason.PEER_DEAD if target[0] in self.dead[rank] else Reason.OK, target

    def plain(self, rank, dest, addr, data):
        """Plain stores of ``data``; returns the Reason."""
        if dest >= self.cfg.ranks:
            return Reason.UNKNOWN
        if dest in self.dead[rank]:
            return Reason.PEER_DEAD
        self._plain(rank, dest, addr, data)
        return Reason.OK

    def _bank(self, rank, region, epoch):
        for bank in self.banks[rank].get((region, epoch & 1), []):
            if bank.epoch == epoch:
                return bank
        return None

    def _not_open(self, rank, region, epoch):
        """Reason for refusing bytes of an epoch that is not open, and the Bank that remembers them,
        if any."""
        if region not in self.regions[rank]:
            return Reason.UNKNOWN, None
        if not self.timed:
            raise ModelError(
                f"rank {rank} region {region} epoch {epoch} was never opened: what happens "
                "depends on time"
            )
        opened, last = (
            self.banks[rank].get((region, epoch & 1), []),
            self.last[rank].get((region, epoch & 1)),
        )
        # The allocator knows neither "never opened" nor FORGET: the reason is its, the bytes are
        # the books' affair.
        viewed = opened[-1].epoch if opened else 14 + (epoch & 1)
        reason = Reason.EPOCH_EARLY if self._ahead(viewed, epoch) else Reason.EPOCH_STALE
        if last is not None and not self._ahead(last, epoch):
            self.marks[rank].add((region, epoch))
            return reason, None
        lost = any(not other.tainted for other in self._kept(rank, region, epoch))
        return reason, self.early[rank].setdefault(
            (region, epoch), Bank(region, epoch, tainted=lost)
        )

    def _kept(self, rank, region, epoch):
        """What the bank has of other epochs to come."""
        return [
            bank
            for key, bank in self.early[rank].items()
            if key != (region, epoch) and (key[0], key[1] & 1) == (region, epoch & 1)
        ]

    def _refuse(self, rank, reason, src, region, epoch, rowid):
        key = (reason, src, region, epoch, rowid)
        if key not in self.refusals[rank]:
            self.refusals[rank].append(key)

    def _row_reason(self, geometry, row, src, rowid, end):
        if end > geometry.row_bytes:
            return Reason.ROW_OVERRUN
        if not geometry.row_first <= rowid < geometry.row_first + geometry.row_span:
            return Reason.ROW_RANGE
        if row is None or row.src == src:
            return Reason.OK
        if not self.timed or row.bytes >= geometry.row_bytes:
            raise ModelError(
                f"RowID {rowid} comes from ranks {row.src} and {src}: the first to arrive wins"
            )
        return Reason.FOREIGN

    def _sparse(self, src, target, epoch, rowid, offset, data):
        rank, region = target
        geometry, bank, reason = (
            self.regions[rank].get(region),
            self._bank(rank, region, epoch),
            None,
        )
        if bank is None:
            reason, bank = self._not_open(rank, region, epoch)
            if bank is None:
                self._refuse(rank, reason, src, region, epoch, rowid)
                return
        bank.sent += len(data)
        reason = reason or self._row_reason(
            geometry, bank.rows.get(rowid), src, rowid, offset + len(data)
        )
        if reason:
            bank.refused[rowid, reason] = bank.refused.get((rowid, reason), 0) + len(data)
            self._refuse(rank, reason, src, region, epoch, rowid)
            return
        bank.rows.setdefault(rowid, Row(src, rowid)).parts.append((offset, data))

    def _plain(self, src, dest, addr, data):
        low, high = self.windows[dest].get(src, (0, 0))
        if not low <= addr < high:
            self._refuse(dest, Reason.WINDOW, src, None, 0, addr)
            return
        self.plain_writes[dest].append((addr, data))
        for index in sorted(self.deps[dest]):
            dep = self.deps[dest][index]
            if dep.armed and dep.base <= addr < dep.limit:
                self._count(dest, index, dep, addr, len(data))
                return

    def _count(self, dest, index, dep, addr, length):
        """Bytes of one run of stores by group: the run may span several."""
        while length:
            group = (addr - dep.base) >> dep.log2_stride
            step = min(length, dep.base + ((group + 1) << dep.log2_stride) - addr)
            key = index, dep.group_base + group
            self.dep_bytes[dest][key] = self.dep_bytes[dest].get(key, 0) + step
            addr, length = addr + step, length - step

    def _stored(self, rank, f, size):
        """Bytes of a handle's replica; they may be the last that it promised."""
        handle, stored = f["handle"], self.stored[rank]
        key = handle, replica_of(f["rowid"], len(self.handles[rank][handle][0].targets))
        stored[key] = stored.get(key, 0) + size
        self._spent(rank, handle)

    def _spent(self, rank, handle):
        """A handle whose replicas have all sent what they promised closes by itself."""
        entry, epoch, _ = self.handles[rank][handle]
        told, stored = self.told[rank], self.stored[rank]
        keys = [(handle, n) for n in range(len(entry.targets))]
        if all(key in told and stored.get(key, 0) >= told[key] for key in keys):
            self.close(rank, handle, epoch, entry.owner)

    def announce(self, rank, handle, epoch, size, replica=0, owner=0):
        """Promises bytes to one replica of a handle; returns the Reason."""
        if reason := self._entry_reason(rank, handle, epoch, owner):
            return reason
        if replica >= len(self.handles[rank][handle][0].targets):
            return Reason.UNKNOWN
        if (handle, replica) in self.told[rank]:
            return Reason.AFTER_CLOSE
        self.told[rank][handle, replica] = size
        self._spent(rank, handle)
        return Reason.OK

    def announce_all(self, rank, epoch, owner=0):
        """Promises nothing to all replicas that were promised nothing yet."""
        for handle, (entry, current, _) in sorted(self.handles[rank].items()):
            if entry.valid and entry.owner == owner and current == epoch:
                for replica in range(len(entry.targets)):
                    self.told[rank].setdefault((handle, replica), 0)
                self._spent(rank, handle)
        return Reason.OK

    def close(self, rank, handle, epoch, owner=0, abort=False):
        """Closes an epoch of a handle; returns the Reason."""
        reason = self._entry_reason(rank, handle, epoch, owner)
        if reason:
            return reason
        state = self.handles[rank][handle]
        state[1:] = [(epoch + 1) % 16, True]
        for replica, (dest, region) in enumerate(state[0].targets):
            stored = self.stored[rank].pop((handle, replica), 0)
            missing = self.told[rank].pop((handle, replica), stored) - stored
            bank = self._bank(dest, region, epoch)
            if bank is None and self.timed:
                bank = self._not_open(dest, region, epoch)[1]
            if bank is not None and dest not in self.dead[rank]:
                bank.closes.add(rank)
                if missing or abort:
                    word = Reason.OVERLAP if missing < 0 and not abort else Reason.INCOMPLETE
                    bank.broken = bank.broken or word
        return Reason.OK

    def close_all(self, rank, epoch, owner=0):
        for handle, (entry, current, _) in sorted(self.handles[rank].items()):
            if entry.valid and entry.owner == owner and current == epoch:
                self.close(rank, handle, epoch, owner)
        return Reason.OK

    # -- placement ---------------------------------------------------------------------------------

    def allocate(self, rank, region, bank, rowid, slot, overflow):
        """Replays one observed allocation; raises ModelError when it must not happen."""
        where = f"rank {rank} region {region} bank {bank} RowID {rowid}"
        for epoch in self.banks[rank].get((region, bank), []):
            row = epoch.rows.get(rowid)
            if row is not None and row.slot is None:
                break
        else:
            raise ModelError(
                f"{where}: placed, but no such row is to come, or it has a slot already"
            )
        geometry, home = self.regions[rank][region], epoch
        if len(epoch.placed) >= geometry.capacity:
            home = self._overflow_bank(rank, geometry, epoch)
            if home is None or len(home.placed) >= self.regions[rank][geometry.overflow].capacity:
                raise ModelError(f"{where}: placed in a full region")
        if bool(overflow) != (home is not epoch):
            raise ModelError(
                f"{where}: overflow = {overflow}, but {len(epoch.placed)} of "
                f"{geometry.capacity} slots are taken"
            )
        if slot != len(home.placed):
            raise ModelError(
                f"{where}: slot {slot}, must be {len(home.placed)}: slots are dense in the "
                "order of placement"
            )
        row.slot, row.overflow = slot, home is not epoch
        home.placed.append((geometry, row))
        if home is not epoch:
            epoch.overflowed.append(row)

    def _overflow_bank(self, rank, geometry, epoch):
        if geometry.overflow is None or geometry.overflow not in self.regions[rank]:
            return None
        if self.regions[rank][geometry.overflow].row_bytes != geometry.row_bytes:
            return None
        return self._bank(rank, geometry.overflow, epoch.epoch)

    def settle(self):
        """After the last allocation: every row without a slot must have found its region full; its
        bytes count as refused."""
        for rank, region, bank in self._all_banks():
            geometry = self.regions[rank].get(region)
            for row in bank.rows.values():
                if row.slot is not None or not row.parts:
                    continue
                home = self._overflow_bank(rank, geometry, bank)
                full = len(bank.placed) >= geometry.capacity
                if not full or (
                    home is not None
                    and len(home.placed) < self.regions[rank][geometry.overflow].capacity
                ):
                    raise ModelError(
                        f"rank {rank} region {region} RowID {row.rowid}: never placed "
                        "although there are slots"
                    )
                bank.refused[row.rowid, Reason.REGION_FULL] = row.bytes
                self._refuse(rank, Reason.REGION_FULL, row.src, region, bank.epoch, row.rowid)

    def _all_banks(self):
        for rank, banks in enumerate(self.banks):
            for (region, _), epochs in sorted(banks.items()):
                for bank in epochs:
                    yield rank, region, bank

    # -- verdicts ----------------------------------------------------------------------------------

    def events(self, rank):
        """Sorted list of (kind, plain, region, epoch, group, rows, status, refused), fields without
        meaning as 0.

        ``group`` counts for READY, ``rows`` for READY and ALL of regions, ``status`` for ERROR.
        """
        out = []
        for r, region, bank in self._all_banks():
            if r == rank and region in self.regions[rank]:
                out += self._region_events(rank, region, bank)
        for (index, group), count in self.dep_bytes[rank].items():
            out += [(int(EventKind.READY), 1, index, 0, group, 0, 0, 0)] * (
                count // self.deps[rank][index].threshold
            )
        return sorted(out)

    def _region_events(self, rank, region, bank):
        geometry = self.regions[rank][region]
        if bank.tainted:
            return [(int(EventKind.ERROR), 0, region, bank.epoch, 0, 0, int(Reason.EPOCH_EARLY), 0)]
        tile_rows, events = 1 << geometry.log2_tile, []
        placed = [row for _, row in bank.placed]
        own = [row for row in placed if bank.rows.get(row.rowid) is row] + bank.overflowed
        done = self._complete(rank, region, bank) and not bank.broken
        whole = all(row.bytes == geometry.row_bytes for row in own)
        sums = self.totals(rank, region, bank.epoch)
        full = len(placed) == geometry.capacity
        full &= sums["sent"] - sums["refused"] >= geometry.capacity * geometry.row_bytes
        for first in range(0, len(placed), tile_rows):
            tile = placed[first : first + tile_rows]
            if len(tile) == tile_rows or (done and (whole or full)):
                if all(row.bytes == geometry.row_bytes for row in tile):
                    group = geometry.group_base + first // tile_rows
                    events.append(
                        (int(EventKind.READY), 0, region, bank.epoch, group, len(tile), 0, 0)
                    )
        if any(row.bytes > geometry.row_bytes for row in own):
            events.append(
                (int(EventKind.ERROR), 0, region, bank.epoch, 0, 0, int(Reason.OVERLAP), 0)
            )
        elif bank.broken:
            events.append((int(EventKind.ERROR), 0, region, bank.epoch, 0, 0, int(bank.broken), 0))
        elif done and whole:
            events.append(
                (
                    int(EventKind.ALL),
                    0,
                    region,
                    bank.epoch,
                    0,
                    len(placed),
                    0,
                    int(bool(bank.refused)),
                )
            )
        elif done:
            events.append(
                (int(EventKind.ERROR), 0, region, bank.epoch, 0, 0, int(Reason.INCOMPLETE), 0)
            )
        return events

    def _complete(self, rank, region, bank):
        """Have all producers, and all primaries that overflow into this region, closed?"""
        closes = set(bank.closes)
        for index, geometry in self.regions[rank].items():
            if geometry.overflow == region:
                primary = self._bank(rank, index, bank.epoch)
                if primary is not None and self._complete(rank, index, primary):
                    closes.add(("primary", index))
        return len(closes) >= self.regions[rank][region].expected

    def totals(self, rank, region, epoch):
        """{sent, acked, refused, rows} of one epoch, bytes and rows, as the region's registers must
        show them at its end.

        What primaries left in an overflow region counts there too; ``rows`` are those that lie in
        the region.
        """
        bank = self._bank(rank, region, epoch)
        brought = sum(row.bytes for _, row in bank.placed if bank.rows.get(row.rowid) is not row)
        refused = sum(bank.refused.values())
        return {
            "sent": bank.sent + brought,
            "acked": bank.sent - refused + brought,
            "refused": refused,
            "rows": len(bank.placed),
        }

    def address(self, rank, region, epoch, slot):
        """Address of a slot."""
        geometry = self.regions[rank][region]
        return geometry.base[epoch & 1] + slot * geometry.stride

    def image(self, rank, size):
        """(memory image of ``size`` bytes, bytes written with repetition); what was never written
        is 0."""
        image, written = np.zeros(size, dtype=np.uint8), 0
        for r, region, bank in self._all_banks():
            if r != rank:
                continue
            for slot, (_, row) in enumerate(bank.placed):
                base = self.address(rank, region, bank.epoch, slot)
                for offset, data in row.parts:
                    image[base + offset : base + offset + len(data)] = np.frombuffer(
                        data, dtype=np.uint8
                    )
                    written += len(data)
        for addr, data in self.plain_writes[rank]:
            image[addr : addr + len(data)] = np.frombuffer(data, dtype=np.uint8)
            written += len(data)
        return image, written
