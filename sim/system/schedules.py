# SPDX-License-Identifier: Apache-2.0
"""Announcements under random schedules: producers, a network without order, a memory, and the
golden scoreboard as the consumer's books; judged from the rows, never from counters.

A packet is half a row. Whatever lies between two blocks may be late and overtake, news may come
twice, some producers lie. What the books conclude is compared with what the rows say: no READY too
early, twice or late, ALL complete, ERROR only with a cause and blame only of the guilty, at a
standstill ``missing`` names exactly those who owe, and every epoch ends. Not modelled: cycles,
credits, packing, dead peers. :data:`BUGS` are the mistakes that this must find.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

from hub_rtl.contract.packets import EventKind, Reason, RegionOp, RegionState
from sim.golden.scoreboard import ScoreboardModel

__all__ = ["BUGS", "Schedule", "Wrong"]

PIECE, PIECES, EPOCHS = 16, 2, 4  # bytes of a packet, packets of a row
ROW = PIECE * PIECES
REGIONS, OVER = (0, 1), 2  # those with producers, and one that they may overflow into
HONEST, LIARS = ("tells", "closes"), ("short", "over", "torn", "mute", "quits")
OWING = ("mute", "short", "quits")  # who may wait for ever, unless software ends what they owe


class Wrong(Exception):
    """The books have concluded what the rows do not say."""


def need(condition, text):
    if not condition:
        raise Wrong(text)


@dataclass(eq=False)
class Row:
    """A row of a producer, and what has become of its packets."""

    src: int
    region: int
    epoch: int
    pieces: int = PIECES
    outside: bool = False  # its RowID is out of range
    place: tuple = None  # (region, slot)
    looked_up: bool = False
    stored: int = 0
    acked: int = 0
    refused: int = 0


class Producer:
    """One handle with its replicas. ``left``: bytes told less bytes gone, per (region, epoch)."""

    def __init__(self, schedule, src, regions):
        self.schedule, self.src, self.regions = schedule, src, regions
        self.left, self.told, self.pool, self.closing = Counter(), set(), [], []
        self.modes = {}
        self.epoch = -1
        self.begin()

    def begin(self):
        """The next epoch: its rows, and what the producer makes of its word."""
        rng = self.schedule.rng
        self.epoch += 1
        honest = rng.random() < self.schedule.honesty
        self.mode = self.modes[self.epoch] = rng.choice(HONEST if honest else LIARS)
        self.accepts, self.spent, self.promise, self.todo = self.epoch, set(), {}, []
        self.late = rng.random() < 0.3
        for region in self.regions:
            rows = [self._row(region) for _ in range(rng.randrange(6))]
            self.promise[region] = ROW * (len(rows) + (self.mode in ("short", "mute")))
            if self.mode == "over" and rng.random() < 0.7:
                rows += [Row(self.src, region, self.epoch) for _ in range(rng.choice((1, 2)))]
            if self.mode == "torn" and rows:  # the right bytes in too many rows
                rows[-1:] = [Row(self.src, region, self.epoch, 1) for _ in range(PIECES)]
            self.schedule.rows[region, self.epoch] += rows
            self.todo += [row for row in rows for _ in range(row.pieces)]
        rng.shuffle(self.todo)

    def _row(self, region):
        outside = self.schedule.rng.random() < self.schedule.outside
        return Row(self.src, region, self.epoch, outside=outside)

    def moves(self):
        """What it may do next."""
        moves = [self.emit] * bool(self.pool)
        if self.accepts == self.epoch:
            moves += self._moves_in_epoch()
        elif not self.closing:
            moves += [self.begin] * self.schedule.may_begin(self.epoch + 1, self.regions)
        return moves + [
            lambda item=item: self.send_close(*item)
            for item in self.closing
            if self.may_close(item)
        ]

    def _moves_in_epoch(self):
        rng = self.schedule.rng
        untold = [region for region in self.regions if (region, self.epoch) not in self.told]
        speaks = untold and self.mode != "closes"
        if self.late and self.todo and rng.random() < 0.7:
            speaks = False
        ends = self.mode in ("closes", "short") or self.mode == "quits" and not untold
        moves = [self.store] * bool(self.todo)
        moves += [lambda: self.tell(untold[0])] * bool(speaks)
        return moves + [lambda: self.close(self.mode == "quits")] * (ends and not self.todo)

    def store(self):
        row = self.todo.pop()
        row.stored += 1
        self.pool.append(row)
        need(
            self.schedule.ended.get((row.region, row.epoch)) != EventKind.ALL,
            f"store accepted after ALL of {row.region, row.epoch}",
        )

    def tell(self, region):
        key = region, self.epoch
        self.told.add(key)
        self.left[key] = self.promise[region] + self.sent_before(key)
        self.schedule.send(region, self.epoch, self.src, tell=1, size=self.promise[region])
        self.look(key)

    def sent_before(self, key):
        """What has gone before the tell counts as gone, as less than nothing."""
        return self.left[key]

    def emit(self):
        row = self.pool.pop(self.schedule.rng.randrange(len(self.pool)))
        self.schedule.network.append(("row", row))
        key = row.region, row.epoch
        self.left[key] -= PIECE
        self.look(key)

    def gone(self, left):
        return left <= 0

    def look(self, key):
        """When the bytes of all replicas have gone, the hub closes the handle by itself."""
        if key in self.told and self.gone(self.left[key]):
            if key[1] == self.epoch == self.accepts:
                self.spent.add(key[0])
                if len(self.spent) == len(self.regions):
                    self.close(False)

    def close(self, abort):
        """The entry moves first: what is stored from now on is AFTER_CLOSE."""
        if (self.epoch, abort) not in self.closing:
            self.step()
            self.closing.append((self.epoch, abort))

    def step(self):
        self.accepts, self.todo = self.epoch + 1, []

    def may_close(self, item):
        """The message goes when the handle's older stores are out."""
        return all(row.epoch != item[0] for row in self.pool)

    def send_close(self, epoch, abort):
        self.closing.remove((epoch, abort))
        self.accepts = self.epoch + 1
        for region in self.regions:
            left, told = self.left.pop((region, epoch), 0), (region, epoch) in self.told
            self.told.discard((region, epoch))
            word = {"short": told and left > 0, "over": told and left < 0, "abort": abort}
            size = 0 if told else -left
            self.schedule.send(region, epoch, self.src, tell=not told, close=1, size=size, **word)


class Schedule:
    """One random run. ``books``, ``producer``: classes of the two sides, to plant bugs in."""

    def __init__(self, seed, books=ScoreboardModel, producer=Producer):
        self.rng = rng = random.Random(seed)
        self.honesty, self.outside = rng.choice((1, 1, 0.6)), rng.choice((0, 0, 0.3))
        self.slow, self.start = rng.random() < 0.5, 2 * rng.randrange(8)
        self.tile, count = rng.choice((2, 4)), rng.choice((2, 3))
        capacity = [rng.choice((2, 4, 6, 40)), rng.choice((3, 5, 40)), rng.choice((3, 5, 40))]
        self.overflows = rng.random() < 0.5
        self.books = books(SimpleNamespace(regions=3, ranks=4, groups=64))
        for region in (*REGIONS, OVER):
            self.books.geometry[region] = {
                "valid": 1,
                "row_bytes": ROW,
                "log2_tile": self.tile.bit_length() - 1,
                "group_base": 20 * region,
                "capacity": capacity[region],
                "expected": count if region in REGIONS else len(REGIONS),
                "overflow_en": self.overflows and region in REGIONS,
                "overflow": OVER,
            }
        self.capacity, self.order = capacity, (OVER, *REGIONS) if self.overflows else REGIONS
        self.rows = {(region, epoch): [] for region in REGIONS for epoch in range(EPOCHS)}
        self.slots, self.moved, self.waits = Counter(), Counter(), Counter()
        self.network, self.memory, self.aborted = [], [], False
        self.fired, self.ended, self.stats = {}, {}, Counter()
        self.producers = [
            producer(self, src, regions)
            for regions in rng.choice(([[0, 1]], [[0], [1]]))  # two replicas, or two handles
            for src in range(count)
        ]

    # -- what lies between ---------------------------------------------------------------------

    def number(self, epoch):
        return (self.start + epoch) % 16

    def opened(self, region, bank):
        """The epoch that the bank has had last."""
        last = self.books.banks[region, bank].last
        return None if last is None else (last - self.start) % 16

    def bank(self, region, epoch):
        """The bank, if it is in use for that epoch."""
        bank = self.books.banks[region, epoch & 1]
        used = bank.state != RegionState.FREE and bank.epoch.number == self.number(epoch)
        return bank if used else None

    def is_open(self, region, epoch):
        bank = self.bank(region, epoch)
        return bank is not None and bank.state == RegionState.OPEN

    def send(self, region, epoch, src, tell=0, close=0, size=0, short=0, over=0, abort=0):
        item = {"region": region, "epoch": self.number(epoch), "src": src, "tell": tell}
        item |= {"close": close, "short": short, "over": over, "abort": abort, "ragged": 0}
        entry = "news", item | {"bytes16": size // 16}
        self.network += [entry] * (1 + (self.rng.random() < 0.1))

    def may_begin(self, epoch, regions):
        """Software's rule: one epoch more than a bank has seen opened may be on its way."""
        used = {*regions, OVER} if self.overflows else regions
        lasts = [self.opened(region, epoch & 1) for region in used]
        return epoch < EPOCHS and (
            epoch < 2 or all(last is not None and last >= epoch - 2 for last in lasts)
        )

    def deliver(self):
        kind, item = self.network.pop(self.rng.randrange(len(self.network)))
        if kind == "row":
            self.arrive(item)
        else:
            self.books.news(item)

    def arrive(self, row):
        """A packet of a row: it has its slot, finds one, or is sunk."""
        if row.outside or not self.is_open(row.region, row.epoch):
            return self.refuse(row)
        if not row.looked_up:
            row.looked_up, row.place = True, self.find_slot(row)
        if row.place is None:
            return self.refuse(row)
        for region in {row.region, row.place[0]}:
            self.waits[region, row.epoch & 1] += 1
        self.memory.append(row)

    def find_slot(self, row):
        key, far = (row.region, row.epoch & 1), (OVER, row.epoch & 1)
        if self.slots[key] < self.capacity[row.region]:
            self.slots[key] += 1
        elif not self.overflows or not self.is_open(OVER, row.epoch):
            return None
        elif self.slots[far] < self.capacity[OVER]:
            self.slots[far] += 1
            self.moved[key] += 1
        else:
            return None
        for each in (key, far):
            self.books.rows[each] = self.slots[each] + self.moved[each]
        place = OVER if self.moved[key] else row.region
        return place, self.slots[place, row.epoch & 1] - 1

    def refuse(self, row):
        row.refused += 1
        self.books.refuse(
            {
                "known": 1,
                "plain": 0,
                "region": row.region,
                "epoch": self.number(row.epoch),
                "bytes": PIECE,
            }
        )

    def acknowledge(self):
        row = self.memory.pop(self.rng.randrange(len(self.memory)))
        row.acked += 1
        place, slot = row.place
        for region in {row.region, place}:
            self.waits[region, row.epoch & 1] -= 1
        context = {"counted": 1, "plain": 0, "region": row.region, "place": place, "poison": 0}
        group = 20 * place + slot // self.tile
        self.books.ack(context | {"bank": row.epoch & 1, "group": group, "bytes": PIECE}, ok=1)

    # -- software of the consumer --------------------------------------------------------------

    def software(self):
        """Orders that are possible now."""
        moves = []
        for region in self.order:
            for bank in (0, 1):
                moves += self._orders(region, bank)
        return moves

    def _orders(self, region, bank):
        book, last = self.books.banks[region, bank], self.opened(region, bank)
        epoch = bank if last is None else last + 2
        if book.state == RegionState.FREE:
            first = region == OVER or not self.overflows or self.opened(OVER, bank) == epoch
            if epoch < EPOCHS and first:
                return [lambda: self.command(RegionOp.OPEN, region, epoch)]
            return []
        moves = []
        primaries = REGIONS if self.overflows and region == OVER else ()
        released = all(
            self.books.banks[primary, bank].state == RegionState.FREE
            and self.opened(primary, bank) == last
            for primary in primaries
        )
        if book.state == RegionState.DONE and not self.waits[region, bank] and released:
            moves.append(lambda: self.release(region, last))
        if book.state == RegionState.OPEN and self.rng.random() < 0.002:
            moves.append(lambda: self.abort(region, last))
        return moves

    def command(self, op, region, epoch):
        refused = self.books.command(op, region, self.number(epoch))
        assert not refused, f"{op.name} of {region, epoch}: {refused.name}"

    def abort(self, region, epoch):
        self.aborted = True
        self.ended[region, epoch] = None
        self.command(RegionOp.ABORT, region, epoch)

    def release(self, region, epoch):
        if self.ended[region, epoch] is not None:
            self.command(RegionOp.RELEASE, region, epoch)
        self.books.freed(region, epoch & 1)
        for count in (self.slots, self.moved, self.books.rows):
            count[region, epoch & 1] = 0

    # -- judgement -----------------------------------------------------------------------------

    def liars(self, region, epoch):
        homes = REGIONS if region == OVER else (region,)
        return {
            producer.src
            for producer in self.producers
            if {*homes} & {*producer.regions} and producer.modes.get(epoch) in LIARS
        }

    def placed(self, region, epoch):
        every = [row for (_, e), rows in self.rows.items() if e == epoch for row in rows]
        return [row for row in every if row.place and row.place[0] == region]

    def listen(self):
        """What the books have to say comes out at once: READYs, then the end."""
        for (region, _), bank in self.books.banks.items():
            if bank.aborting:  # what was under way at an ABORT may come, or not
                bank.pending.clear()
            elif bank.pending:
                epoch = (bank.epoch.number - self.start) % 16
                keys = sorted(bank.pending, key=lambda key: (key[0] != EventKind.READY, str(key)))
                for key in keys:
                    self._event(bank, region, epoch, *key)

    def _event(self, bank, region, epoch, kind, group):
        content, name = bank.pending[kind, group], {"plain": 0, "region": region}
        name |= {"kind": kind, "epoch": bank.epoch.number}
        if kind == EventKind.READY:
            self.judge_ready(region, epoch, group - 20 * region, content)
            self.books.event(name | {"group": group, "rows": content})
            return
        need((region, epoch) not in self.ended, f"two ends of {region, epoch}")
        self.ended[region, epoch] = kind
        self.stats[kind] += 1
        if kind == EventKind.ALL:
            self.judge_all(region, epoch, bank.epoch.fired)
            self.books.event(name | {"rows": content[0], "refused": content[1]})
        else:
            self.judge_error(region, epoch, content[0], bank.epoch.broken)
            self.books.event(name | {"status": content[0]})

    def judge_ready(self, region, epoch, tile, rows):
        need((region, epoch, tile) not in self.fired, f"tile twice: {region, epoch, tile}")
        need((region, epoch) not in self.ended, f"READY after the end of {region, epoch}")
        here = [row for row in self.placed(region, epoch) if row.place[1] // self.tile == tile]
        whole = len(here) == rows and all(row.acked == PIECES for row in here)
        need(whole, f"READY too early: {region, epoch, tile}")
        self.fired[region, epoch, tile] = rows
        bank = self.bank(region, epoch)
        closed = bank.epoch.closes >= self.books.geometry[region]["expected"]
        self.stats.update({"rest": rows < self.tile, "rest early": rows < self.tile and not closed})

    def judge_all(self, region, epoch, fired):
        liars = self.liars(region, epoch)
        lost = {
            row.src
            for row in self.rows.get((region, epoch), ())
            if row.acked + row.refused < (row.stored if row.src in liars else row.pieces)
        }
        need(not lost, f"ALL of {region, epoch} without bytes of {sorted(lost)}")
        count = Counter(
            row.place[1] // self.tile + 20 * region for row in self.placed(region, epoch)
        )
        need(count == Counter(fired), f"tiles {fired} of {region, epoch}, are {dict(count)}")

    def judge_error(self, region, epoch, reason, broken):
        liars = self.liars(region, epoch)
        need({*broken} <= liars, f"ERROR blames {broken}, liars are {sorted(liars)}")
        rows = [
            row
            for (home, e), rows in self.rows.items()
            if e == epoch and region in (home, OVER)
            for row in rows
        ]
        torn = any(row.place and row.refused for row in rows)  # it straddled an OPEN
        excused = liars or torn or region == OVER and self.aborted
        need(excused and reason != Reason.EPOCH_EARLY, f"{reason.name} of honest {region, epoch}")

    def judge_lateness(self):
        """All told, slots final, each byte of the last tile acknowledged: then it has fired."""
        for (region, epoch), rows in self.rows.items():
            if not self.is_open(region, epoch) or self.liars(region, epoch):
                continue
            told = self.bank(region, epoch).epoch.tells >= self.books.geometry[region]["expected"]
            if not told or any(row.place and row.refused for row in rows):
                continue
            slots = self.slots[region, epoch & 1]
            full = slots == self.capacity[region]
            final = full or all(row.place or row.refused == PIECES for row in rows)
            tile, rest = divmod(slots, self.tile)
            there = all(
                row.acked == PIECES
                for row in self.placed(region, epoch)
                if row.place[1] // self.tile == tile
            )
            late = final and rest and there and (region, epoch, tile) not in self.fired
            need(not late, f"last tile late: {region, epoch, tile}")

    # -- a run ---------------------------------------------------------------------------------

    def step(self):
        """One random move of anybody; whether there was one."""
        moves = [move for producer in self.producers for move in producer.moves()]
        moves += self.software()
        moves += [self.deliver] * (1 if self.slow else 4) * bool(self.network)
        moves += [self.acknowledge] * 2 * bool(self.memory)
        if moves:
            self.rng.choice(moves)()
            self.listen()
        self.judge_lateness()
        return bool(moves)

    def owing(self):
        """At a standstill: who waits for ever; exactly they are missing in the open books."""
        stuck = [p for p in self.producers if p.accepts == p.epoch and p.mode in OWING]
        for (region, _), bank in self.books.banks.items():
            if region == OVER or bank.state != RegionState.OPEN:
                continue
            epoch = (bank.epoch.number - self.start) % 16
            here = [producer for producer in self.producers if region in producer.regions]
            missing = {producer.src for producer in here} - bank.epoch.closed
            guilty = {p.src for p in here if p in stuck and p.epoch <= epoch}
            need(missing and missing == guilty, f"{region, epoch}: {missing} missing, not {guilty}")
        return stuck

    def run(self):
        """To the end of all epochs; returns what has happened how often."""
        for _ in range(20000):
            if self.step():
                continue
            stuck = self.owing()
            if not stuck:
                break
            for producer in stuck:
                producer.close(False)  # they were named; software ends what they owe
        ends = {(region, epoch) for region in self.order for epoch in range(EPOCHS)}
        need(ends == {*self.ended}, f"no end of {sorted(ends - {*self.ended})}")
        need(all(p.accepts == EPOCHS for p in self.producers), "a producer stays behind")
        return self.stats


# -- planted bugs ----------------------------------------------------------------------------------


@dataclass
class Bug:
    """What is wrong, and the methods of one side that are so."""

    text: str
    books: dict = field(default_factory=dict)
    producer: dict = field(default_factory=dict)

    def run(self, seed):
        books = type("Books", (ScoreboardModel,), self.books)
        return Schedule(seed, books, type("Producer", (Producer,), self.producer)).run()


def _fire_unmarked(self, bank, group, rows):
    bank.epoch.rest = group
    bank.pending[EventKind.READY, group] = rows


def _look_not_at_refusals(self, item):
    number, self._look_at_rest = item["epoch"], lambda *bank: None
    try:
        ScoreboardModel.refuse(self, item | {"epoch": number})
    finally:
        del self._look_at_rest


def _aim_beyond_capacity(self, epoch, geometry):
    rows, torn = divmod(epoch.sent - epoch.refused, geometry["row_bytes"])
    return None if torn and rows < geometry["capacity"] else (rows, rows)


def _aim_at_whole_rows(self, epoch, geometry):
    torn = (epoch.sent - epoch.refused) % geometry["row_bytes"]
    return None if torn else ScoreboardModel._aim(self, epoch, geometry)


def _told_again(self, epoch, src, size):
    epoch.sent += size if src in epoch.told else 0
    ScoreboardModel._told(self, epoch, src, size)


def _promise_anyway(self, bank, rows):
    ScoreboardModel._promise(self, bank, 0)


BUGS = {
    "implicit_end": Bug(
        "no closes: ALL when acknowledged + refused = told",
        books={"_all_closed": lambda *_: True},
    ),
    "no_slot_check": Bug(
        "the last tile fires by bytes alone", books={"_slots_final": lambda *_: True}
    ),
    "no_fired": Bug("the last tile is not marked as fired", books={"_fire_rest": _fire_unmarked}),
    "busy_forgets": Bug(
        "news for a bank in use are dropped",
        books={"_keeps": lambda self, bank: bank.state == RegionState.FREE},
    ),
    "no_new_aim": Bug(
        "a refusal does not make the last tile be looked at again",
        books={"refuse": _look_not_at_refusals},
    ),
    "no_capacity": Bug("the last tile without capacity", books={"_aim": _aim_beyond_capacity}),
    "torn_waits": Bug(
        "a row refused in part holds back a full region's last tile",
        books={"_aim": _aim_at_whole_rows},
    ),
    "twice_counts": Bug("a second tell is added", books={"_told": _told_again}),
    "over_zero": Bug(
        "a primary tells its overflow region 0 whatever it was told",
        books={"_promise": _promise_anyway},
    ),
    "word_ignored": Bug(
        "short and over of a close are ignored", books={"_broken_word": lambda *_: None}
    ),
    "no_mark": Bug("a close does not wait for the pool", producer={"may_close": lambda *_: True}),
    "step_late": Bug(
        "the handle moves on when its close goes",
        producer={"step": lambda self: None, "may_close": lambda *_: True},
    ),
    "equal_zero": Bug("spent when left = 0, not <= 0", producer={"gone": lambda _, n: n == 0}),
    "late_word": Bug(
        "bytes sent before the tell are not counted", producer={"sent_before": lambda *_: 0}
    ),
}
