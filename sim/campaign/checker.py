# SPDX-License-Identifier: Apache-2.0
"""Judges one run from what its pins showed, by docs/architecture.md, interfaces.md, formats.md and
programming.md.

It knows the plan (what software set up), and of the run: stores and commands with their answers,
slots as observed, writes in the cycle of memory's answer, packets sent, events, registers as
software read them. It follows promises, not the design.
"""

from bisect import bisect_right
from collections import Counter
from itertools import product

from hub_rtl.contract.packets import (
    OPERAND_PLAIN,
    OPERAND_ROW,
    CommandOp,
    EventKind,
    PacketType,
    Reason,
    lane_of,
    replica_of,
    unpack,
)

from .evidence import (
    Bank,
    Row,
    Violation,
    group_bytes,
    landed,
    memory_map,
    packets,
    registers,
    timeline,
)
from .fences import FENCES, judge_fences

__all__ = ["judge"]


class Judge:
    def __init__(self, plan, result):
        self.plan, self.cfg, self.result, self.figures = plan, plan.cfg, result, Counter()
        self.rows = {}  # (dest, region, n, rowid) -> Row; n counts openings
        self.plain = [{} for _ in range(plan.cfg.ranks)]  # by rank: address -> byte
        self.landed = landed(plan, result)
        self.closes = {}  # (dest, region, n) -> cycles at which closes began

    def must(self, good, rule, *values):
        if not good:
            raise Violation(f"{rule}: " + " ".join(map(str, (*self.at, *values))))

    # -- producers: every store and command has the answer that the rules give it ------------------

    def producer(self, rank):
        self.flat = []  # plain stores: (accepted, inside the window, [(rank, address), ...])
        self.left, stores, commands = (
            [],
            self.result.log("stores", rank),
            self.result.log("commands", rank),
        )
        fences = [c for c in commands if c["op"] in FENCES]
        good = (len(stores), len(fences)) == (self.plan.stores[rank], self.plan.fences[rank])
        self.must(
            good, "one answer per store and fence", len(stores), self.plan.stores[rank], len(fences)
        )
        table = {
            number: [handle, 0] for number, handle in self.plan.handles[rank].items()
        }  # and openings closed
        for cycle, kind, item in timeline((commands, "begun"), (stores, "accepted")):
            self.at = "rank", rank, "cycle", cycle
            (self.command, self.store)[kind](rank, table, item)
        judge_fences(self, rank, fences)

    def store(self, rank, table, s):
        operand, data, size = int(s["operand"]), bytes(s["data"]), self.cfg.slice_bytes
        mask = int.from_bytes(bytes(s["mask"]), "little")
        f = unpack(OPERAND_PLAIN if operand >> 63 else OPERAND_ROW, operand)
        handle, n = table.get(f.get("handle"), (None, 0))
        mode = (handle.lane_mode, handle.lane) if handle else ()
        bad_lane = lane_of(operand, self.cfg.lanes, self.cfg.packet_bytes, *mode) != s["lane"]
        checks, dest = (
            [(bad_lane, Reason.BAD_LANE)] if f["plain"] else [(True, Reason.UNKNOWN)],
            f.get("rank"),
        )
        if handle:  # section 2 of interfaces.md, in its order
            ahead, at = (f["epoch"] - self.plan.epoch(n)) % 16, 16 * f["row_off"] // size * size
            dest, region = handle.targets[replica_of(f["rowid"], len(handle.targets))]
            checks = [
                (handle.owner != s["owner"], Reason.FOREIGN),
                (ahead == 15 and n > 0, Reason.AFTER_CLOSE),
                (1 <= ahead <= 7, Reason.EPOCH_EARLY),
                (ahead, Reason.EPOCH_STALE),
                (bad_lane, Reason.BAD_LANE),
                (mask and at + mask.bit_length() > handle.row_bytes, Reason.ROW_OVERRUN),
            ]
        reason = next((reason for wrong, reason in checks if wrong), Reason.OK)
        good = s["status"] == reason and s["echo"] == s["tag"] and s["answered"] > s["accepted"]
        self.must(good, "a store's answer", hex(operand), "status", s["status"], "must be", reason)
        self.figures["stores refused"] += reason != Reason.OK
        if reason or not mask:
            return
        bits = [b for b in range(size) if mask >> b & 1]
        if f["plain"]:
            low, high = self.plan.windows[dest][rank]
            at, key = f["addr"] // size * size, (dest, f["addr"] // self.cfg.packet_bytes)
            inside = low <= at < high
            self.plain[dest].update((at + b, data[b]) for b in bits if inside)
            self.flat.append((int(s["accepted"]), inside, [(dest, at + b) for b in bits]))
        else:
            key = (dest, region, f["epoch"], f["rowid"])
            row = self.rows.setdefault(
                (dest, region, n, f["rowid"]), Row(rank, bytearray(handle.row_bytes))
            )
            row.write(at, mask, data)
        self.left.append((int(s["accepted"]), key, len(bits)))

    def command(self, rank, table, c):
        remote = c["op"] == CommandOp.FENCE_REMOTE
        self.must(
            c["status"] == Reason.OK or remote and c["status"] == Reason.INCOMPLETE,
            "a command's answer",
            CommandOp(c["op"]).name,
            c["handle"],
            c["status"],
        )
        closed = {CommandOp.CLOSE: (int(c["handle"]),), **dict.fromkeys(FENCES, ())}
        closed = closed.get(c["op"], table)
        for entry in (table[number] for number in closed):
            if entry[0].owner == c["owner"] and self.plan.epoch(entry[1]) == c["epoch"]:
                for target in entry[0].targets:
                    self.closes.setdefault((*target, entry[1]), []).append(int(c["begun"]))
                entry[1] += 1

    # -- a consumer: slots, bytes and events in the order of their cycles --------------------------

    def consumer(self, rank):
        self.rank, self.banks, self.ends, self.seen, self.fired = rank, {}, Counter(), set(), set()
        self.geometry, self.areas = self.plan.regions[rank], memory_map(self.plan, rank)
        allocs, beats, events = (
            self.result.log(name, rank) for name in ("allocs", "beats", "events")
        )
        for cycle, kind, item in timeline(
            (allocs, "cycle"), (beats, "answered"), (events, "cycle")
        ):
            self.at = "rank", rank, "cycle", cycle
            (self.slot, self.beat, self.event)[kind](cycle, item)
        self.at = ("rank", rank)
        self.finish(rank)

    def opening(self, region, odd):
        """(n, bank): openings of a bank take turns, each after the end of the one before."""
        n = ((int(odd) ^ self.plan.first) & 1) + 2 * self.ends[region, int(odd)]
        return n, self.banks.setdefault((region, n), Bank())

    def slot(self, cycle, a):
        own, rowid = int(a["region"]), int(a["rowid"])
        n, bank = self.opening(own, a["bank"])
        row, g, what = (
            self.rows.get((self.rank, own, n, rowid)),
            self.geometry[own],
            ("region", own, "n", n, "row", rowid),
        )
        self.must(
            row and not row.placed and 0 <= rowid - g.row_first < g.row_span,
            "a slot per row that was sent",
            *what,
        )
        if a["overflow"]:
            self.must(
                len(bank.slots) == g.capacity and g.overflow is not None,
                "overflow only when full",
                *what,
            )
            own, bank = g.overflow, self.banks.setdefault((g.overflow, n), Bank())
        self.must(
            a["slot"] == len(bank.slots) < self.geometry[own].capacity,
            "slots are dense",
            *what,
            "slot",
            a["slot"],
        )
        row.placed = True
        bank.slots.append(row)

    def beat(self, cycle, beat):
        addr, mask, data = int(beat["addr"]), int(beat["strobe"]), bytes(beat["data"])
        at, bits = (
            bisect_right(self.areas, (addr, float("inf"))),
            [b for b in range(16) if mask >> b & 1],
        )
        low, high, kind, region, odd = self.areas[at - 1] if at else (0, 0, "", 0, 0)
        good = addr + mask.bit_length() <= high and (beat["port"] == self.cfg.slices) == (
            kind in ("spill", "flag")
        )
        self.must(good, "bytes lie in their place", hex(addr))
        self.figures["spill words"] += kind == "spill"
        if kind == "plain":
            fresh, known = {addr + b for b in bits}, self.plain[self.rank]
            good = all(known.get(addr + b) == data[b] for b in bits) and not fresh & self.seen
            self.must(good, "a plain byte as stored, once", hex(addr))
            self.seen |= fresh
        elif kind == "flag":  # it may come after the event that ended the opening
            word = int.from_bytes(data[:8], "little")
            n, bank = self.opening(region, word >> 2 & 1)
            late = self.plan.epoch(n) != word >> 2 & 15
            bank = self.banks.get((region, n - 2 * late), bank)
            self.tile(bank, self.geometry[region], (addr - low) // 8, word >> 6, "a flag")
        elif kind == "row":
            slot, off = divmod(addr - low, self.geometry[region].stride)
            slots = self.opening(region, odd)[1].slots
            what = hex(addr), "region", region, "slot", slot, "offset", off
            self.must(slot < len(slots), "no write to a slot that nobody has", *what)
            row, good = slots[slot], all(slots[slot].data[off + b] == data[b] for b in bits)
            self.must(
                good and not mask << off & (~row.stored | row.acked),
                "a row's byte as stored, once",
                *what,
            )
            row.acked |= mask << off
            self.figures["bytes"] += len(bits)

    def tile(self, bank, g, tile, rows, name):
        mine = bank.slots[tile * g.tile_rows : (tile + 1) * g.tile_rows]
        acked = [row.acked.bit_count() for row in mine]
        self.must(
            rows == len(mine) > 0 and set(acked) == {g.row_bytes},
            f"{name} when all bytes of the tile are in memory",
            "tile",
            tile,
            "rows",
            rows,
            "of",
            len(mine),
            "acknowledged",
            acked,
            "of",
            g.row_bytes,
        )

    def event(self, cycle, e):
        kind, region, group, rows = (int(e[name]) for name in ("kind", "region", "group", "rows"))
        what = EventKind(kind).name, "region", region, "group", group
        self.figures["events"] += 1
        if e["plain"]:
            dep = self.plan.deps[self.rank][region]
            good = (
                kind == EventKind.READY
                and group not in self.fired
                and group_bytes(dep, group, self.seen) >= dep.threshold
            )
            self.must(good, "a dependency group at its threshold, once", *what)
            self.fired.add(group)
            return
        (n, bank), g = self.opening(region, e["epoch"] & 1), self.geometry[region]
        self.must(
            self.plan.epoch(n) == e["epoch"] and n < self.plan.epochs,
            "an event of an open epoch",
            *what,
            e["epoch"],
        )
        if kind == EventKind.READY:
            tile = group - g.group_base
            self.must(0 <= tile < g.tiles and tile not in bank.tiles, "each tile once", *what)
            self.tile(bank, g, tile, rows, "READY")
            bank.tiles[tile] = rows
        else:
            bank.end = (kind, int(e["status"]), int(e["refused"]))
            self.ends[region, int(e["epoch"] & 1)] += 1
        if kind == EventKind.ALL:
            closes = sum(begun < cycle for begun in self.closes.get((self.rank, region, n), ()))
            closes += sum(
                bool(self.banks[r, n].end)
                for r, m in self.banks
                if m == n and self.geometry[r].overflow == region
            )
            good = (
                closes >= g.expected
                and bank.tiles == bank.due(g.tile_rows)
                and rows == len(bank.slots)
            )
            self.must(
                good,
                "ALL after all closes and tiles",
                *what,
                closes,
                bank.tiles,
                bank.due(g.tile_rows),
                rows,
            )

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, rank):
        """Everything has ended as it must; what was refused had to be; books agree; plain stores
        are complete."""
        books = registers(self.plan, self.result, rank)
        for (region, g), n in product(enumerate(self.geometry), range(self.plan.epochs)):
            if g.expected:
                self.region_ends(rank, region, n, books.get((n, region), {}))
        for dep in self.plan.deps[rank]:
            for group in range(
                dep.group_base, dep.group_base + (dep.limit - dep.base >> dep.log2_stride)
            ):
                due = group_bytes(dep, group, self.plain[rank]) >= dep.threshold
                self.must(
                    (group in self.fired) == due,
                    "a dependency group fires when full",
                    "group",
                    group,
                )
        self.must(len(self.seen) == len(self.plain[rank]), "every plain byte is in memory")

    def region_ends(self, rank, region, n, books):
        g, bank, what = (
            self.geometry[region],
            self.banks.get((region, n), Bank()),
            ("region", region, "n", n),
        )
        mine = {key[3]: row for key, row in self.rows.items() if key[:3] == (rank, region, n)}
        full = len(bank.slots) == g.capacity
        if full and g.overflow is not None:
            full = (
                len(self.banks.get((g.overflow, n), bank).slots)
                == self.geometry[g.overflow].capacity
            )
        lost = [rowid for rowid, row in mine.items() if not row.placed]
        turned_away = [
            rowid for rowid in lost if 0 <= rowid - g.row_first < g.row_span and not full
        ]
        self.must(
            not turned_away, "a row in range is placed while there is room", *what, turned_away[:4]
        )
        gaps = [rowid for rowid, row in mine.items() if row.acked != row.stored * row.placed]
        self.must(not gaps, "every accepted byte is in memory", *what, gaps[:4])
        short = any(row.stored.bit_count() != g.row_bytes for row in bank.slots)
        want = (
            (EventKind.ERROR, Reason.INCOMPLETE)
            if short
            else (EventKind.ALL, Reason.OK, int(bool(lost)))
        )
        self.must(
            bank.end[: len(want)] == want, "how an epoch ends", *what, bank.end, "must be", want
        )
        sent, acked = (
            sum(getattr(row, name).bit_count() for row in mine.values())
            for name in ("stored", "acked")
        )
        guests = sum(row.acked.bit_count() for row in set(bank.slots) - set(mine.values()))
        want = {"SENT_LO": sent + guests, "ACKED_LO": acked + guests, "REFUSED_LO": sent - acked}
        got = {name: books.get(name) for name in want}
        self.must(got == want, "the region's books", *what, got, "must be", want)
        self.figures.update(rows=len(bank.slots), **{"rows refused": len(lost)})

    def rejects(self, rank):
        """A REJECT names a row of this rank that has no place."""
        for _, dest, _, b in packets(self.result, "packets", rank, PacketType.REJECT):
            row = self.rows.get(
                (dest, b["region"], (b["epoch"] - self.plan.first) % 16, b["rowid"])
            )
            good = b["reason"] == Reason.WINDOW or (row and row.src == rank and not row.placed)
            self.must(good, "a REJECT names a refused row", b)


def judge(plan, result):
    """(lines of broken rules: the first that each step finds; figures)."""
    judge, found = Judge(plan, result), []
    if result.timed_out:
        found.append(
            f"nothing hangs: operations reached, by rank and thread: "
            f"{[r['pc'] for r in result.ranks]}"
        )
    for step, rank in product(
        (judge.producer, judge.consumer, judge.rejects), range(plan.cfg.ranks)
    ):
        judge.at = ("rank", rank)
        try:
            step(rank)
        except (
            Violation,
            LookupError,
            ValueError,
        ) as broken:  # the others: the run shows what does not exist
            found.append(
                f"{type(broken).__name__}: at {judge.at}: {broken}"
                if type(broken) is not Violation
                else str(broken)
            )
    return found, judge.figures
