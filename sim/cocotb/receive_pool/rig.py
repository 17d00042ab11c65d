# SPDX-License-Identifier: Apache-2.0
"""Rig of the receive pool: links that bring packets of sources which keep to their grants, or do
not."""

from collections import Counter, deque

from hub_rtl.receive_pool.receive_pool import PERIOD, ReceivePool
from sim.bench.rig import Rig
from sim.cocotb.link.rig import random_packet
from sim.golden.link import beats_of
from sim.golden.receive_pool import RESERVE, TOTALS, PoolModel, SourceBook, whole_record

BATCH = 16  # grants that a source is told at the latest
MEANS_NOTHING = ("plain", "phase", "cls", "region", "epoch", "rowid", "block", "poison")


class PoolRig(Rig):
    """A pool, its links and sources.

    ``delay``, cycles of the wire each way; ``paced``: a link brings three flits in two cycles, else
    beats follow at once. ``held``: sources of which nothing is taken. In every test it watches what
    the page promises of grants: when reserves are given, how often a source is told little, or
    asked back, and that nobody who tells the truth is called a liar.
    """

    def __init__(self, dut, salt, idle=None, stall=None, delay=0, paced=False, watchdog=3000):
        super().__init__(dut, salt, idle, stall, watchdog)
        self.size, self.links = self.params["slice_bytes"], self.params["links"]
        self.delay, self.paced = delay, paced
        self.stands_at(self.rng.randrange(self.cfg.ranks))
        for source in self.i_source:
            source.set_pause(None)
        self.o_grant.set_pause(None)
        self.o_record.on_item(self._came)
        self.o_grant.on_item(self._told)
        for n, (source, beats) in enumerate(zip(self.i_source, self.i_beat, strict=True)):
            source.on_item(lambda src, cycle: None)
            beats.on_item(lambda beat, cycle, n=n: self._arrived(n, beat, cycle))
        self.on_sample(self._look)
        self.add(self)
        peers, self.period = len(self.sources), self.params.get("period", PERIOD)
        self.visited_in = 8 * peers  # cycles, at the latest

    def stands_at(self, rank):
        """The own number, from the next start on."""
        self.rank = rank
        self.sources = [each for each in range(self.cfg.ranks) if each != rank]

    def component(self):
        return ReceivePool(self.cfg, **self.params_of(self.params))

    @staticmethod
    def params_of(params):
        names = ("slice_bytes", "links", "places", "most", "period")
        return {name: params[name] for name in names if name in params}

    async def start(self):
        self.set("rank", self.rank)
        self.set("hold", 0)
        self.set("returned", 0)
        self.model = PoolModel(self.params["places"], self.cfg.ranks, self.params.get("most"))
        self.books = {src: SourceBook(self.model.first) for src in self.sources}
        self.wanted = {src: deque() for src in self.sources}  # (link, beats) to be sent
        self.flying = [deque() for _ in range(self.links)]  # (cycle, beat) on their way
        self._to_hear, self._to_return = deque(), deque()  # (cycle, ...), messages on their way
        self._busy_until = [0] * self.links
        self._turn = 0
        self.closed = set()  # links over which nothing goes
        self.records, self.leaving, self._partial = [], [], [[] for _ in range(self.links)]
        self.refused = deque()  # packets that must not come in
        self.counts, self.grants, self.sent = Counter(), [], Counter()
        self._lied, self._poor_since, self._last = False, {}, {}
        await self.reset()
        await self.until(lambda: not self.get("clearing"), what="clearing")

    # -- traffic -----------------------------------------------------------------------------------

    def packet(self, src, cut=0.0, **fields):
        """A record of a packet from there, as a deserializer gives it."""
        cfg, rng = self.cfg, self.rng
        flits = random_packet(cfg, rng, src, self.rank, **fields)
        end = rng.randrange(1, len(flits)) if rng.random() < cut else len(flits)
        beats = [{"data": flit, "err": int(n >= end)} for n, flit in enumerate(flits)]
        beats = [each | {"data": 0} if each["err"] else each for each in beats]
        return len(flits), beats_of(cfg, self.size, beats)

    def want(self, src, link=None, count=1, spread=False, **fields):
        """A source wants to send packets, over this link, or each over one that is drawn, or, if
        they may be ``spread``, over the next one that has room."""
        for _ in range(count):
            number = self.rng.randrange(self.links) if link is None else link
            self.wanted[src].append((None if spread else number, *self.packet(src, **fields)))

    def full(self):
        """Fields of a packet of the whole block."""
        return {"length": self.cfg.packet_flits, "masked": 0}

    def send(self, src, link, flits, beats):
        """A packet on its way, whatever the source may."""
        start = max(self.cycle, self._busy_until[link])
        took = -(-2 * flits // 3) if self.paced else 0
        self._busy_until[link] = start + took
        for n, beat in enumerate(beats, 1):
            self.flying[link].append((start + self.delay + took * n // len(beats), n == 1, beat))
        self.sent[src] += 1

    def drive(self):
        for link, flying in enumerate(self.flying):
            while flying and flying[0][0] <= self.cycle:
                _, first, beat = flying.popleft()
                if first:
                    self.i_source[link].put(beat["header"]["rank"])
                self.i_beat[link].put(beat)
        while self._to_hear and self._to_hear[0][0] <= self.cycle:
            _, told = self._to_hear.popleft()
            returned = self.books[told["rank"]].granted(told["total"], told["back"])
            if returned is not None:
                self.says(told["rank"], returned)
        self.set("returned", 0)
        if self._to_return and self._to_return[0][0] <= self.cycle:
            _, src, total, true = self._to_return.popleft()
            self.set("returned", {"en": 1, "what": {"rank": src, "total": total}})
            if true:
                self.model.gave_back(src, total)
        order = self.sources[self._turn :] + self.sources[: self._turn]
        self._turn = (self._turn + 1) % len(self.sources)
        free = {n for n in range(self.links) if self._room(n)} - self.closed
        for src in order:
            wanted = self.wanted[src]
            while wanted and self.books[src].left and free:
                link = min(free) if wanted[0][0] is None else wanted[0][0]
                if link not in free:
                    break
                _, flits, beats = wanted.popleft()
                self.books[src].left -= 1
                self.send(src, link, flits, beats)
                if not self._room(link):
                    free.discard(link)

    def _room(self, link):
        if self.paced:
            return self._busy_until[link] <= self.cycle
        return self.i_beat[link].pending + len(self.flying[link]) < 6

    def says(self, src, total, true=True):
        """A source says how many grants it has given back; that may not be so."""
        self._lied |= not true
        self._to_return.append((self.cycle + self.delay, src, total, true))

    def gives_back(self, src, count):
        """A source gives back grants without being asked."""
        book = self.books[src]
        assert 0 < count <= book.left, count
        book.left -= count
        book.returned = (book.returned + count) % TOTALS
        self.says(src, book.returned)

    def clear(self, forget=True):
        pass

    # -- what comes --------------------------------------------------------------------------------

    def _arrived(self, link, beat, cycle):
        partial, src = self._partial[link], beat["header"]["rank"]
        if not partial:
            if self.refused and self.refused[0] is beat:
                self.refused.popleft()
                partial.append(None)
            else:
                self.model.begins(src)
        partial.append(beat)
        if beat["last"]:
            if partial[0] is not None:
                self.model.arrives(src, link, whole_record(partial, self.size))
            partial.clear()

    def _came(self, beat, cycle):
        self.leaving.append(beat)
        if beat["last"]:
            src = beat["header"]["rank"]
            self.model.leaves(src, self.leaving, self.same)
            self.records.append((cycle, src, len(self.leaving)))
            self.leaving = []

    def same(self, came, wanted):
        """The two records are one, in all that means something."""
        return len(came) == len(wanted) and all(map(self._same_beat, came, wanted))

    def _same_beat(self, came, wanted):
        named = wanted["mask"] >> wanted["part"] * self.size & (1 << self.size) - 1
        bits = (
            0 if wanted["lost"] else sum(0xFF << 8 * n for n in range(self.size) if named >> n & 1)
        )
        one, other = (dict(each["header"]) for each in (came, wanted))
        if other["news"]:
            one = {name: one[name] for name in other}
        elif other["plain"]:
            one |= dict.fromkeys(("region", "epoch", "rowid"), 0)
        return came | {"header": one, "data": came["data"] & bits} == wanted

    def _told(self, told, cycle):
        self.grants.append((cycle, told))
        src, total = told["rank"], told["total"]
        news = (total - self.model.told[src]) % TOTALS
        self.model.granted(src, total)
        self._poor_since.pop(src, None)  # what left in the meantime is for the next visit
        if told["back"]:
            self._once_per_period("asked back", src, cycle)
        elif news < min(BATCH, self.model.has(src) // 8):
            self._once_per_period("told little", src, cycle)
        self._to_hear.append((cycle + self.delay, told))

    def _once_per_period(self, what, src, cycle):
        """It happens in one certain round of a period only."""
        before = self._last.get((what, src))
        least = self.period - 2 * self.visited_in
        assert before is None or cycle - before >= least, f"{src} {what} after {cycle - before}"
        self._last[what, src] = cycle

    def _look(self, cycle):
        self.model.check(self.sources)
        for name in ("violation", "impossible"):
            self.counts[name] += self.get(name)
        assert self._lied or not self.counts["impossible"], "nobody has lied"
        for src in self.sources:  # the visit under way, the next one to its end, the message
            if self.model.has(src) >= RESERVE:
                self._poor_since.pop(src, None)
            else:
                since = self._poor_since.setdefault(src, cycle)
                assert cycle - since <= self.visited_in + 12, f"{src} lacks its reserve"

    def sample(self):
        pass

    @property
    def all_in(self):
        """All that was wanted has been sent and is in the pool."""
        beats = any(self.flying) or any(each.pending for each in self.i_beat)
        return not (any(self.wanted.values()) or beats)

    @property
    def quiet(self):
        """All that was wanted has come."""
        return self.all_in and not any(self.model.inside.values())

    async def finish(self):
        await self.until(lambda: self.quiet, limit=40000, what="all packets")
        await self.cycles(20)
        assert not self.leaving and not self.o_record.port.is_valid()
        assert sum(self.model.held.values()) == 0
        assert len(self.records) == sum(self.sent.values()) - self.counts["violation"]

    async def settled(self, periods=3):
        """Until the policy has nothing to do."""
        await self.cycles(periods * self.params["period"] + 100)

    def __str__(self):
        left = {src: (len(self.wanted[src]), self.books[src].left) for src in self.sources}
        return f"sources (packets to send, grants): {left}; held {dict(self.model.held)}"
