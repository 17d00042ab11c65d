# SPDX-License-Identifier: Apache-2.0
"""Golden model of the readiness scoreboard, written from the specification: sets and sums, no
order, no time.

Inputs are given to it when the design takes them; it then says which events must come
(:attr:`Bank.pending`), exactly. What it cannot know is the order in which the design works off
inputs of different ports; an epoch with an error therefore keeps all possible causes, and the
design's ERROR must name one of them.
"""

from collections import Counter
from dataclasses import dataclass, field

from hub_rtl.contract.packets import EventKind, OrderError, Reason, RegionOp, RegionState

__all__ = ["Bank", "Epoch", "ScoreboardModel"]


@dataclass
class Epoch:
    """What is known of one epoch of one region."""

    number: int
    acked: int = 0
    refused: int = 0
    sent: int = 0
    over: int = 0  # acknowledged bytes that lie in the overflow region
    brought: int = 0  # rows that primaries have left here
    touched: bool = False  # ... some acknowledgement, good or bad, came from there
    tells: int = 0
    closes: int = 0
    told: set = field(default_factory=set)  # ranks
    closed: set = field(default_factory=set)  # ranks
    broken: list = field(default_factory=list)  # ranks whose close says that they broke their word
    tiles: Counter = field(default_factory=Counter)  # group -> bytes
    fired: dict = field(default_factory=dict)  # group -> rows
    rest: int = None  # the last tile, not full, once it was announced: its group
    spilt: set = field(default_factory=set)  # groups that were offered bytes too many
    causes: list = field(default_factory=list)  # reasons to be in ERROR
    verdict: tuple = None  # (rows, refused) once ALL


class Bank:
    """One epoch bank: at most one epoch in use, at most one kept in advance."""

    def __init__(self, region, bank):
        self.region, self.bank = region, bank
        self.state = RegionState.FREE
        self.last = None  # number of the last epoch
        self.epoch = None  # in use
        self.kept = None  # news of the epoch to come, whether this one is over or not
        self.taints = set()
        self.pending = {}  # event key -> content, must still come
        self.promised = False  # the overflow region was told that nothing comes
        self.passed = False  # the overflow region knows how this one ended
        self.ended = False  # ALL or ERROR has come out, or the bank is given back
        self.losing = False  # its overflow region is being given back: it ends, or has just ended
        self.aborting = (
            False  # an acknowledgement may be worked off before the ABORT that was taken before it
        )


class ScoreboardModel:
    """The scoreboard of one hub. ``rows[region, bank]`` is the allocator's count, set by the
    bench."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rows = Counter()
        self.geometry = {}
        self.banks = {(r, b): Bank(r, b) for r in range(cfg.regions) for b in (0, 1)}
        self.deps = {}  # index -> range, with `failed`
        self.plain_tiles = Counter()
        self.plain_pending = Counter()
        self.counts = Counter()

    # -- news with an epoch ------------------------------------------------------------------------

    def _early(self, bank, number):
        return bank.last is None or (number - bank.last) % 16 in range(1, 8)

    def _epoch_of(self, region, number, what):
        """The epoch that news belongs to, or None when it is lost."""
        bank = self.banks[region, number & 1]
        if bank.state != RegionState.FREE and bank.epoch.number == number:
            return bank.epoch
        early = self._early(bank, number)
        if early and self._keeps(bank):
            bank.kept = bank.kept or Epoch(number)
            if bank.kept.number == number:
                self.counts["early_kept"] += 1
                return bank.kept
        bank.taints.add(number)  # dropped, and its epoch knows
        self.counts["tainted" if early else what + "_stale"] += 1
        return None

    def refuse(self, item):
        if not item["known"] or item["plain"] or item["region"] >= self.cfg.regions:
            return
        epoch = self._epoch_of(item["region"], item["epoch"], "refused")
        if epoch:
            epoch.refused += item["bytes"]
            self._settle(item["region"], item["epoch"] & 1)

    def _keeps(self, bank):
        """Whether news of the epoch to come has a place; it has, also while the bank is in use."""
        return True

    def news(self, item):
        """A producer's announcement: a tell, a close, or both."""
        if item["region"] >= self.cfg.regions or item["src"] >= self.cfg.ranks:
            self.counts["close_bad"] += 1
            return
        epoch = self._epoch_of(item["region"], item["epoch"], "close")
        if epoch is None:
            return
        if item["tell"]:
            self._told(epoch, item["src"], 16 * item["bytes16"])
        if item["close"] and item["src"] in epoch.closed:
            self.counts["close_twice"] += 1
        elif item["close"]:
            epoch.closed.add(item["src"])
            reason = self._broken_word(item)
            if reason:
                epoch.broken.append(item["src"])
            self._closed(epoch, reason)
        self._settle(item["region"], item["epoch"] & 1)

    def _told(self, epoch, src, size):
        if src in epoch.told:
            self.counts["told_twice"] += 1
            return
        epoch.told.add(src)
        epoch.tells += 1
        epoch.sent += size

    def _broken_word(self, item):
        """What a close says of its producer's word, as the reason of an ERROR; None: it kept it."""
        if item["abort"] or item["ragged"] or item["short"]:
            return Reason.INCOMPLETE
        return Reason.OVERLAP if item["over"] else None

    def _closed(self, epoch, reason):
        epoch.closes += 1
        if reason:
            epoch.causes.append(reason)

    def _promise(self, bank, rows):
        """All of a primary's bytes were told, and as ``rows`` they fit: nothing will overflow."""
        geometry = self.geometry[bank.region]
        if not geometry["overflow_en"] or bank.promised or bank.passed:
            return
        if rows > geometry["capacity"]:
            return
        bank.promised = True
        epoch = self._epoch_of(geometry["overflow"], bank.epoch.number, "close")
        if epoch:
            epoch.tells += 1
            self._settle(geometry["overflow"], bank.bank)

    def _pass(self, region, number, sent, aborted):
        """Internal close of a primary at its overflow region: bytes and rows that it has left
        there; with the tell, unless that nothing would come was told before."""
        geometry = self.geometry[region]
        bank = self.banks[region, number & 1]
        if not geometry["overflow_en"] or bank.passed:
            return
        bank.passed = True
        epoch = self._epoch_of(geometry["overflow"], number, "close")
        if epoch is None:
            return
        epoch.brought += sent // geometry["row_bytes"]
        if not bank.promised:
            epoch.tells += 1
            epoch.sent += sent
        over = Reason.OVERLAP if sent and bank.promised else None
        self._closed(epoch, Reason.INCOMPLETE if aborted else over)
        self._settle(geometry["overflow"], number & 1)

    # -- memory's answers --------------------------------------------------------------------------

    def ack(self, context, ok):
        if not context["counted"]:
            return
        size = context["bytes"] if ok else 0
        bad = not ok or context["poison"]
        cause = Reason.INCOMPLETE if ok else Reason.MEM_ERROR
        self.counts["mem_errors"] += not ok
        self.counts["poisoned"] += context["poison"]
        if context["plain"]:
            return self._plain(context, size, bad, cause)
        where = self.banks[context["place"], context["bank"]]
        if where.state != RegionState.FREE:
            self._count_tile(where, context["group"], size)
        for region in {context["region"], context["place"]}:
            bank = self.banks[region, context["bank"]]
            if bank.state == RegionState.FREE:
                self.counts["acks_stray"] += 1
                continue
            epoch = bank.epoch
            epoch.acked += size
            if bad:
                epoch.causes.append(cause)
            if region != context["place"]:
                epoch.over += size
                epoch.touched = True
        for region in {context["region"], context["place"]}:
            self._settle(region, context["bank"])

    def _count_tile(self, bank, group, size):
        geometry, epoch = self.geometry[bank.region], bank.epoch
        limit = geometry["row_bytes"] << geometry["log2_tile"]
        epoch.tiles[group] += size
        if epoch.tiles[group] == limit and group not in epoch.fired:
            self._fire(bank, group, 1 << geometry["log2_tile"])
        elif size and (group in epoch.fired or epoch.tiles[group] > limit):
            epoch.causes.append(Reason.OVERLAP)
            self.counts["overlaps"] += 1
            epoch.tiles[group] -= (
                size  # what is too many is not counted; what comes later is judged without it
            )
            epoch.spilt.add(group)

    def _fire(self, bank, group, rows):
        bank.epoch.fired[group] = rows
        if not bank.ended or bank.aborting:
            bank.pending[EventKind.READY, group] = rows

    def _plain(self, context, size, bad, cause):
        dep = self.deps.get(context["dep"])
        if not dep or not dep["armed"]:
            self.counts["acks_stray"] += 1
            return
        key = context["group"]
        self.plain_tiles[key] += size
        self.counts["overlaps"] += bool(size) and self.plain_tiles[key] > dep["threshold"]
        if bad or self.plain_tiles[key] > dep["threshold"]:
            dep["causes"].append(cause if bad else Reason.OVERLAP)
        elif self.plain_tiles[key] == dep["threshold"] and size:
            self.plain_tiles[key] = 0
            self.plain_pending[context["dep"], key] += 1

    # -- software ----------------------------------------------------------------------------------

    def write_dep(self, index, given):
        self.deps[index] = {**given, "causes": []}
        if not given["armed"]:
            count = (given["limit"] - given["base"] - 1 >> given["log2_stride"]) + 1
            for n in range(min(count, self.cfg.groups)):
                group = (given["group_base"] + n) % self.cfg.groups
                self.plain_tiles[group] = 0
                self.plain_pending.pop((index, group), None)

    def overlap(self, region, bank):
        target = self.banks[region, bank]
        self.counts["overlaps"] += 1
        if target.state == RegionState.OPEN:
            target.epoch.causes.append(Reason.OVERLAP)
            self._settle(region, bank)

    def command(self, op, region, number):
        """Why the command is not possible; :attr:`OrderError.NONE` when it is."""
        if region >= self.cfg.regions:
            return OrderError.UNKNOWN
        bank = self.banks[region, number & 1]
        if op == RegionOp.OPEN:
            return self._open(bank, number)
        if op == RegionOp.FORGET:
            return self._forget(bank)
        if bank.state == RegionState.FREE or bank.epoch.number != number:
            return OrderError.NOT_IN_USE
        if op == RegionOp.RELEASE and bank.state != RegionState.DONE:
            return OrderError.NOT_DONE
        for primary in self._primaries(region, number):
            primary.losing = True
        bank.aborting = bank.state == RegionState.OPEN
        bank.state = RegionState.DONE
        bank.ended = True
        return OrderError.NONE

    def _drop_kept(self, bank):
        """What was kept for an epoch that is not opened next is lost."""
        bank.taints.add(bank.kept.number)
        bank.kept = None
        self.counts["tainted"] += 1

    def _forget(self, bank):
        if bank.state != RegionState.FREE:
            return OrderError.IN_USE
        if bank.kept:
            self._drop_kept(bank)
        bank.last = None
        return OrderError.NONE

    def _primaries(self, region, number):
        """Banks in use that may have rows of this epoch in the region."""
        banks = [
            self.banks[primary, number & 1]
            for primary, geometry in self.geometry.items()
            if geometry["overflow_en"] and geometry["overflow"] == region
        ]
        return [
            each for each in banks if each.state != RegionState.FREE and each.epoch.number == number
        ]

    def _lose(self, primary):
        """Its overflow region is given back: it ends, if it has not, and has nothing to tell."""
        primary.passed = True
        if primary.state == RegionState.OPEN:
            primary.epoch.causes.append(Reason.INCOMPLETE)
            self._settle(primary.region, primary.bank)

    def _open(self, bank, number):
        geometry = self.geometry.get(bank.region)
        if not geometry or not geometry["valid"] or geometry["row_bytes"] < 16:
            return OrderError.UNKNOWN
        if bank.state != RegionState.FREE:
            return OrderError.IN_USE
        if not self._early(bank, number):
            return OrderError.EPOCH
        if bank.kept and bank.kept.number != number:
            self._drop_kept(bank)
        kept, bank.kept = bank.kept, None
        first = bank.last is None
        bank.state, bank.last = RegionState.OPEN, number
        bank.ended = bank.promised = bank.passed = bank.aborting = bank.losing = False
        bank.epoch = kept or Epoch(number)
        bank.pending = {}
        if number in bank.taints:
            bank.epoch.causes.append(Reason.EPOCH_EARLY)
        # An epoch that is over with this OPEN has no marks left; before the first OPEN none is.
        bank.taints = {n for n in bank.taints if n != number and (first or self._early(bank, n))}
        self._settle(bank.region, bank.bank)
        return OrderError.NONE

    def freed(self, region, bank):
        """The design says FREE: RELEASE or ABORT is through. Returns what was still pending, now
        forgotten."""
        target = self.banks[region, bank]
        assert target.state == RegionState.DONE, (
            f"region {region} bank {bank}: FREE out of state {target.state.name}"
        )
        assert target.ended, f"region {region} bank {bank}: FREE without an order"
        epoch = target.epoch
        for primary in self._primaries(region, epoch.number):
            self._lose(primary)
        self._pass(region, epoch.number, 0, epoch.touched)
        left, target.pending = target.pending, {}
        target.state, target.epoch = RegionState.FREE, None
        return left

    # -- verdicts ----------------------------------------------------------------------------------

    def _settle(self, region, bank):
        target = self.banks[region, bank]
        if target.state == RegionState.FREE or target.epoch.verdict:
            return
        epoch, geometry = target.epoch, self.geometry[region]
        if epoch.tells >= geometry["expected"]:
            self._look_at_rest(target, epoch, geometry)
            if self._all_closed(epoch, geometry):
                total = epoch.acked + epoch.refused
                if total > epoch.sent:
                    epoch.causes.append(Reason.OVERLAP)
                elif total == epoch.sent and not epoch.causes:
                    self._judge(target, epoch, geometry)
            if target.state == RegionState.OPEN and not epoch.causes:
                self._promise(target, -(-(epoch.sent - epoch.refused) // geometry["row_bytes"]))
        if epoch.causes and target.state == RegionState.OPEN:
            target.state = RegionState.DONE
            target.pending[EventKind.ERROR, None] = epoch.causes

    def _all_closed(self, epoch, geometry):
        return epoch.closes >= geometry["expected"]

    def _aim(self, epoch, geometry):
        """Rows that will lie in the region when all that was told has come, and the same if its
        capacity did not matter; None when that is not a number of rows."""
        rows, torn = divmod(epoch.sent - epoch.refused, geometry["row_bytes"])
        if rows < 0 or torn and rows < geometry["capacity"]:
            return None
        return min(rows, geometry["capacity"]), rows

    def _slots_final(self, bank, here, rows):
        """No slot is given out any more: each row that was told has its own, or the region is
        full."""
        placed = self.rows[bank.region, bank.bank]
        full = rows >= self.geometry[bank.region]["capacity"]
        return placed >= here if full else placed == here

    def _look_at_rest(self, bank, epoch, geometry):
        """The last tile, if it is not full, is ready when all were told and its bytes are there:
        it waits for no close."""
        aim = self._aim(epoch, geometry)
        if aim is None or epoch.rest is not None or bank.ended:
            return
        tile, rest = divmod(aim[0], 1 << geometry["log2_tile"])
        group = (geometry["group_base"] + tile) % self.cfg.groups
        there = epoch.tiles[group] == rest * geometry["row_bytes"]
        if rest and there and group not in epoch.fired and self._slots_final(bank, *aim):
            self._fire_rest(bank, group, rest)

    def _fire_rest(self, bank, group, rows):
        bank.epoch.rest = group
        self._fire(bank, group, rows)

    def _judge(self, bank, epoch, geometry):
        row_bytes, tile = geometry["row_bytes"], 1 << geometry["log2_tile"]
        here, over = epoch.acked - epoch.over, epoch.over
        known = self.rows[bank.region, bank.bank]
        rows = here // row_bytes
        if (
            here % row_bytes
            or over % row_bytes
            or rows + over // row_bytes != known
            or len(epoch.fired.keys() - {epoch.rest}) != rows // tile
        ):
            epoch.causes.append(Reason.INCOMPLETE)
            return
        if rows % tile and epoch.rest is None:
            group = (geometry["group_base"] + rows // tile) % self.cfg.groups
            self._fire_rest(bank, group, rows % tile)
        epoch.verdict = (rows, bool(epoch.refused))
        bank.state = RegionState.DONE
        bank.pending[EventKind.ALL, None] = epoch.verdict
        self._pass(bank.region, epoch.number, over, False)

    def void(self, region, bank):
        """News met the verdict before it was given: the bank is judged anew."""
        target = self.banks[region, bank]
        del target.pending[EventKind.ALL, None]
        target.state, target.epoch.verdict = RegionState.OPEN, None

    # -- what comes out ----------------------------------------------------------------------------

    def event(self, item):
        """Checks one event that came out; returns the bank it belongs to (None: dependency range).
        Raises AssertionError."""
        kind = EventKind(item["kind"])
        if item["plain"]:
            dep = self.deps[item["region"]]
            if kind == EventKind.READY:
                key = (item["region"], item["group"])
                assert self.plain_pending[key], f"plain READY too early or twice: {item}"
                self.plain_pending[key] = (
                    0  # a pending bit: uses that follow before it is taken are one event
                )
            else:
                assert kind == EventKind.ERROR and item["status"] in dep["causes"], (
                    f"{item}, causes {dep['causes']}"
                )
                dep["causes"] = []
            return None
        bank = self.banks[item["region"], item["epoch"] & 1]
        assert bank.epoch and bank.epoch.number == item["epoch"], (
            f"event of an epoch that is not in use: {item}"
        )
        key = (kind, item["group"] if kind == EventKind.READY else None)
        if bank.losing and not bank.ended and kind == EventKind.ERROR:
            # Its overflow region is on the way to FREE, or was while the verdict was found: both
            # ends are right.
            self._lose(bank)
            if bank.pending.pop((EventKind.ALL, None), None):
                bank.pending[key] = [Reason.INCOMPLETE]
        if (
            kind == EventKind.READY
            and key not in bank.pending
            and not bank.ended
            and item["group"] in bank.epoch.spilt
        ):
            # In another order of the slices' bytes the tile was full before the ones too many came.
            if item["group"] not in bank.epoch.fired:
                self._fire(bank, item["group"], 1 << self.geometry[bank.region]["log2_tile"])
        assert key in bank.pending, (
            f"too early, twice or never: {item}; pending {bank.pending}, epoch {bank.epoch}"
        )
        wanted = bank.pending.pop(key)
        if kind == EventKind.READY:
            assert item["rows"] == wanted, f"rows of {item}: expected {wanted}"
            return bank
        left = [group for what, group in bank.pending if what == EventKind.READY]
        if kind == EventKind.ALL:
            assert not left, f"ALL before READY of groups {left}: {item}"
            assert (item["rows"], bool(item["refused"])) == wanted, (
                f"{item}: expected rows, refused = {wanted}"
            )
        else:
            # Bytes too many here and, until they come, too few there: which of the two is seen
            # first is a matter of order.
            causes = {*wanted, Reason.INCOMPLETE} if Reason.OVERLAP in wanted else set(wanted)
            assert item["status"] in causes, f"{item}: causes are {causes}"
            bank.pending = {}  # READYs that the ERROR overtook will not come
        bank.ended = True
        return bank

    def outstanding(self):
        """Everything that should still come out."""
        banks = {
            (b.region, b.bank, *key): value
            for b in self.banks.values()
            for key, value in b.pending.items()
        }
        return {
            **banks,
            **{("plain", *key): n for key, n in self.plain_pending.items() if n},
            **{
                ("plain error", index): dep["causes"]
                for index, dep in self.deps.items()
                if dep["causes"]
            },
        }

    def status(self, region, bank):
        """The counters that a query must show once the design has settled."""
        target = self.banks[region, bank]
        epoch = target.epoch or target.kept or Epoch(None)
        return {
            "state": target.state,
            "acked": epoch.acked,
            "refused": epoch.refused,
            "sent": epoch.sent,
            "told": epoch.tells,
            "closes": epoch.closes,
        }
