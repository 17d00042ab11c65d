# SPDX-License-Identifier: Apache-2.0
"""Agents around a scoreboard under test: what surrounds it, a reader of its status port, a judge of
its inputs' waits."""

from collections import deque

from cocotb.triggers import Event

from hub_rtl.contract.packets import EventKind, RegionState
from sim.bench.ports import writer
from sim.golden.scoreboard import Epoch

__all__ = ["Inspector", "Patience", "Surroundings"]


class _Errand:
    """Work that a strobe asks for: its busy signal rises within two cycles and falls when the work
    is done."""

    def __init__(self, rng):
        self._rng = rng
        self.late = self.left = 0

    def start(self):
        self.late, self.left = self._rng.choice((0, 0, 1)), self._rng.choice((0, 1, 2, 9))

    def step(self, more=False):
        """The busy signal of this cycle; ``more``: there is work that does not depend on time."""
        late, busy = self.late, self.left > 0 or more
        self.late = max(0, late - 1)
        self.left -= busy and not late and self.left > 0
        return int(busy and not late)


class _First:
    """Draws the first of what there is to choose from."""

    @staticmethod
    def choice(options):
        return options[0]


class Surroundings:
    """Answers of the slot allocator (rows, purge) and of the memory writers (quiesce)."""

    def __init__(self, rig):
        self.rig = rig
        self._shown = {}
        self._at = self._bank = None  # what is asked for rows, packed and not
        self.clear()

    def clear(self, forget=True):
        self._queries = deque([0, 0], maxlen=2)
        self._purge, self._quiesce = _Errand(self.rig.rng), _Errand(self.rig.rng)
        self._purged = set()  # banks
        self.quiet = True  # the writers have finished what they had
        self.took = 0  # cycles of purge and quiesce of the last order

    def prompt(self):
        """From now on errands rise at once and take no time of their own."""
        self._purge, self._quiesce = _Errand(_First()), _Errand(_First())

    def drive(self):
        rig = self.rig
        self._show("rows", self._queries[0])
        self._show("purging", self._purge.step())
        # Nothing of the purged bank may still be on its way when the writers are quiet.
        waiting = not self.quiet and any(rig.on_way[key] > 0 for key in self._purged)
        self._show("quiescing", self._quiesce.step(waiting))
        self.quiet = not waiting and not self._quiesce.left
        self.took += bool(self._purge.left) or not self.quiet

    def _show(self, port, value):
        """Drives a port of which only changes are written."""
        if self._shown.get(port) != value:
            self._shown[port] = value
            self.rig.set(port, value)

    def sample(self):
        rig = self.rig
        at = rig.port_word("rows_query")
        if at != self._at:
            self._at, asked = at, rig.get("rows_query")
            self._bank = asked["region"], asked["bank"]
        self._queries.append(rig.model.rows[self._bank])
        if purge := rig.strobe("purge"):
            run = range(purge["region"], purge["last"] + 1)
            self._purged = {(region, purge["bank"]) for region in run}
            assert self._purged and self._purged <= rig.ordered, (
                f"purge of {self._purged}, the order is for {rig.ordered}"
            )
            for key in self._purged:
                assert rig.state[key] == RegionState.DONE, (
                    f"purge of bank {key} in state {rig.state[key]}"
                )
                rig.model.rows[key] = 0
            self._purge.start()
            self.took = 0
        if rig.get("quiesce"):
            assert self._purged and not self._purge.left, "quiesce before the purge is through"
            self._quiesce.start()
            self.quiet = False

    def check_quiet(self, key):
        """A bank is FREE only after all that was on its way."""
        assert key in self._purged and self.quiet, (
            f"{key} is FREE before it was purged and the writers were quiet"
        )
        self._purged.discard(key)

    def __str__(self):
        return (
            f"surroundings: purge {self._purge.left}, quiesce {self._quiesce.left}, "
            f"purged {self._purged}"
        )


#: What adds up in an open bank's status.
TOTALS = ("told", "closes", "sent", "acked", "refused", "rows")


class Inspector:
    """Queries another bank in each cycle; two cycles later what is shown must be what the model
    knows of a bank at rest.

    A bank is at rest when nothing of it was taken or broadcast for as long as the shared pipeline
    may need. ``await look(key)`` gives ``(status, missing_from, silent)`` as shown, at rest or not.
    """

    def __init__(self, rig):
        self.rig = rig
        names = 2 * (rig.cfg.groups + rig.cfg.regions)  # each may wait in the sums, for its turn
        self._settling = 100 + 8 * rig.cfg.slices * rig.cfg.combine_depth + 6 * names
        self._codes = {
            key: rig.codec("query").pack({"region": key[0], "bank": key[1]})
            for key in rig.model.banks
        }
        self._keys, self._ask = [*self._codes], writer(rig.dut.query)
        self.clear()

    def clear(self, forget=True):
        self._asked = deque()  # (key, event, where the answer goes)
        self._under_way = deque([None, None], maxlen=2)
        self._touched, self._cleared = {}, self.rig.cycle
        self._agreed = {}  # key: what was shown and compared since the last touch
        self._shown = {}  # key: (word, what it says), as shown last

    def touch(self, *key):
        self._touched[key] = self.rig.cycle
        self._agreed.pop(key, None)

    def touch_overflow(self, region, bank):
        """A primary tells its overflow region how it ended."""
        geometry = self.rig.model.geometry[region]
        if geometry["overflow_en"]:
            self.touch(geometry["overflow"], bank)

    async def look(self, key):
        event, answer = Event(), []
        self._asked.append((key, event, answer))
        await event.wait()
        return answer[0]

    def drive(self):
        asked = (
            self._asked.popleft()
            if self._asked
            else (self._keys[self.rig.cycle % len(self._keys)], None, None)
        )
        self._ask(self._codes[asked[0]])
        self._next = asked

    def sample(self):
        rig, now = self.rig, self._under_way[0]
        self._under_way.append(self._next)
        if now is None:
            return
        key, event, answer = now
        self._grows(key, rig.port_word("status"))
        if event is None and not self._rests(key):
            return
        word, *owing = map(rig.port_word, ("status", "missing_from", "silent"))
        if event is not None:
            answer.append((rig.codec("status").unpack(word), *owing))
            rig.wake(event)
        elif self._agreed.get(key) != (word, owing):
            self.compare(key, rig.codec("status").unpack(word), *owing)
            self._agreed[key] = word, owing

    def _grows(self, key, word):
        """While a bank is open, at rest or not, no total that is shown becomes less."""
        last, before = self._shown.get(key, (None, {"state": RegionState.FREE}))
        if word == last:
            return
        now = self.rig.codec("status").unpack(word)
        self._shown[key] = word, now
        if now["state"] == before["state"] == RegionState.OPEN and now["epoch"] == before["epoch"]:
            less = {name for name in TOTALS if now[name] < before[name]}
            assert not less, f"status of {key}: {sorted(less)} less in {now} than in {before}"

    def _rests(self, key):
        rig = self.rig
        if rig.cycle - self._touched.get(key, self._cleared) <= self._settling:
            return False
        if key in rig.ordered and any(
            geometry["overflow_en"] and geometry["overflow"] == key[0]
            for geometry in rig.model.geometry.values()
        ):
            # it is being given back: whether a primary still told it is a matter of cycles
            return False
        # The model knows of a primary's end before the design, which tells the overflow region
        # then.
        return not any(
            geometry["overflow_en"]
            and geometry["overflow"] == key[0]
            and (
                rig.state[region, key[1]] != rig.model.banks[region, key[1]].state
                or (region, key[1]) in rig.ordered
            )
            for region, geometry in rig.model.geometry.items()
        )

    def compare(self, key, shown, missing, silent):
        """Every field that the contract describes."""
        rig, bank = self.rig, self.rig.model.banks[key]
        wanted = rig.model.status(*key) | {"state": rig.state[key]}
        final = rig.finals.get(key)
        if rig.state[key] != RegionState.FREE:
            wanted["epoch"] = bank.epoch.number
            if rig.state[key] == RegionState.OPEN:
                wanted["rows"] = bank.epoch.brought
            elif final:
                wanted["error"] = final["status"]
                if final["kind"] == EventKind.ALL:
                    wanted["rows"] = final["rows"]
        if any(each["overflow_en"] for each in rig.geometry.values()):
            wanted.pop("told")  # a primary that ends before its aim is known tells with its close
        found = {name: shown[name] for name in wanted}
        assert found == wanted, f"status of {key}: shows {found}, expected {wanted}"
        broken, blame = (bank.epoch or bank.kept or Epoch(None)).broken, shown["blame"]
        assert blame["rank"] in broken if blame["valid"] else not broken, (
            f"{key} blames {blame}, of {broken}"
        )
        for what, bits, heard in (("closes", missing, "closed"), ("tells", silent, "told")):
            here = getattr(bank.epoch, heard) if rig.state[key] == RegionState.OPEN else None
            ranks = range(rig.cfg.ranks) if here is not None else ()
            expected = sum(1 << rank for rank in ranks if rank not in here)
            assert bits == expected, f"{what} of {key} missing {bits:#b}, expected {expected:#b}"

    def __str__(self):
        return f"inspector: {len(self._asked)} questions"


class Patience:
    """Whatever the outputs do, inputs wait for their turn in the pipeline only."""

    def __init__(self, rig):
        slices = len(rig.i_ack)
        self._limits = [(source, 8 * slices + 1) for source in rig.i_ack] + [
            (rig.i_refused, 4),
            (rig.i_news, 4),
        ]
        self._rig = rig
        self.clear()

    def clear(self, forget=True):
        self._waits = [0] * len(self._limits)
        self._clearing = True

    def sample(self):
        if self._clearing:
            self._clearing = self._rig.get("clearing")
            return
        for n, (source, limit) in enumerate(self._limits):
            if source._offered is not None:
                self._waits[n] += 1
                assert self._waits[n] <= limit, (
                    f"{source.name}: an item waits for {self._waits[n]} cycles, at most {limit}"
                )
            else:
                self._waits[n] = 0

    def __str__(self):
        return f"waits: {self._waits}"
