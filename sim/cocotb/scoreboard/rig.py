# SPDX-License-Identifier: Apache-2.0
"""Surroundings of a scoreboard under test: streams, allocator and writers, software's orders, the
golden model as judge."""

from collections import Counter, defaultdict

from cocotb.triggers import Event, FallingEdge, RisingEdge

from hub_rtl.contract.packets import EventKind, OrderError, RegionOp, RegionState
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from sim.bench.rig import Rig
from sim.golden.scoreboard import ScoreboardModel
from sim.quality.coverage import cover

from .watch import Inspector, Patience, Surroundings

__all__ = ["ScoreboardRig", "entry"]


def whole(source, item):
    """An item with all its fields."""
    return source.port.unpack(source.port.pack(item))


def entry(region, epoch, src=0, sent=0, **fields):
    """One entry of news."""
    assert sent % 16 == 0, f"{sent} bytes: must be whole units of 16"
    return {"region": region, "epoch": epoch, "src": src, "bytes16": sent // 16, **fields}


class ScoreboardRig(Rig):
    """One scoreboard with all that is around it. Everything the design takes goes to the model,
    every event is judged."""

    block = ReadinessScoreboard

    def __init__(self, dut, salt, idle=None, stall=None, watchdog=4000):
        super().__init__(dut, salt, idle, stall, watchdog)
        self.i_command.set_pause(None)
        if stall == "stop":
            self.o_flag.set_pause(None)
        for source in self.i_ack:
            source.on_item(self._acked)
        self.i_refused.on_item(self._refused)
        self.i_news.on_item(self._said)
        self.i_command.on_item(self._ordered)
        self.o_event.on_item(self._event)
        self.forget()
        self.inspector, self.surroundings = Inspector(self), Surroundings(self)
        self.add(self.surroundings)
        self.add(Patience(self), ("sample",))
        self.add(self.inspector)
        self.on_sample(self._watch)

    def forget(self):
        """Everything as after a reset."""
        self.model = ScoreboardModel(self.cfg)
        self.state = defaultdict(lambda: RegionState.FREE)  # as broadcast
        self.changed = {}  # cycle of the last broadcast
        self.on_way = Counter()  # (region, bank) -> acknowledgements not yet taken
        self.finals = {}  # (region, bank) -> ALL or ERROR event of its epoch
        self.expected_flags = []
        self.ghosts = []  # events that were offered when their bank was freed
        self.timeouts, self.errors, self.bad_closes = [], [], []
        self.closed_twice = []
        self.counts = Counter()
        self.ordered = set()  # banks whose RELEASE or ABORT is under way
        self.reopens = {}  # of these, the epochs for which they are opened then
        self._waiting = defaultdict(list)

    @property
    def keys(self):
        """(region, bank) of all banks."""
        return [*self.model.banks]

    @property
    def geometry(self):
        return self.model.geometry

    async def all_events(self, what):
        """All events that are due have come."""
        await self.until(lambda: not self.model.outstanding(), what=what)

    async def start(self):
        """Reset, then the walkers clear the tables; nothing is taken meanwhile."""
        await self.reset()
        await self.sampled()
        assert self.get("clearing") == 1
        await self.until(lambda: not self.get("clearing"), what="cleared")

    # -- what the design takes and says ------------------------------------------------------------

    def _acked(self, item, cycle):
        item = whole(self.i_ack[0], item)
        context = item["context"]
        for region in {context["region"], context["place"]}:
            self.on_way[region, context["bank"]] -= not context["plain"]
            if not context["plain"]:
                self.inspector.touch(region, context["bank"])
        self.model.ack(context, item["ok"])

    def _refused(self, item, cycle):
        item = whole(self.i_refused, item)
        self.inspector.touch(item["region"], item["epoch"] & 1)
        self.model.refuse(item)

    def _said(self, item, cycle):
        item, before = whole(self.i_news, item), self.model.counts["close_twice"]
        key = item["region"], item["epoch"] & 1
        self.inspector.touch(*key)
        if key in self.model.banks:
            self.inspector.touch_overflow(*key)
        self.model.news(item)
        if self.model.counts["close_twice"] != before:
            self.closed_twice.append(
                {"en": 1, **{name: item[name] for name in ("region", "epoch", "src")}}
            )

    def _ordered(self, item, cycle):
        last, again = item.pop("last"), item.pop("again")
        regions = range(item["region"], last + 1)
        if last >= self.cfg.regions:  # refused whole
            self.errors.append({"en": 1, "command": item, "reason": OrderError.UNKNOWN})
            cover(f"scoreboard.order.{RegionOp(item['op']).name.lower()}.unknown")
            regions = ()
        for region in regions:
            key = region, item["epoch"] & 1
            if self._judged(item | {"region": region}) and again:
                self.reopens[key] = (item["epoch"] + 2) % 16

    def _judged(self, item):
        """One region's order; whether it is carried out."""
        key = item["region"], item["epoch"] & 1
        self.inspector.touch(*key)
        reason = self.model.command(item["op"], item["region"], item["epoch"])
        if item["op"] in (RegionOp.RELEASE, RegionOp.ABORT) and not reason:
            self.ordered.add(key)
        elif item["op"] == RegionOp.OPEN and not reason:
            self.finals.pop(key, None)
        cover(
            f"scoreboard.order.{RegionOp(item['op']).name.lower()}.{OrderError(reason).name.lower()}"
        )
        self.errors.append({"en": 1, "command": item, "reason": reason} if reason else None)
        return not reason

    def _event(self, item, cycle):
        if item in self.ghosts:
            self.ghosts.remove(item)
            cover("scoreboard.abort.offered_event")
            return
        bank = self.model.event(item)
        if bank is None:
            return
        key = bank.region, bank.bank
        if item["kind"] == EventKind.READY:
            geometry = self.model.geometry[bank.region]
            assert self.state[key] != RegionState.FREE, (
                f"event before the broadcast of OPEN: {item}"
            )
            if geometry["flag_en"]:
                distance = (item["group"] - geometry["group_base"]) % self.cfg.groups
                self.expected_flags.append(
                    {
                        "addr": geometry["flag_base"] + 8 * distance,
                        "data": item["kind"] | item["epoch"] << 2 | item["rows"] << 6,
                    }
                )
            return
        assert self.state[key] == RegionState.DONE, f"event before the broadcast of DONE: {item}"
        self.finals[key] = item
        self.inspector.touch(*key)
        self._wake_bank(key)

    def _wake_bank(self, key):
        for event in self._waiting.pop(key, ()):
            self.wake(event)

    async def _woken(self, key):
        """Waits for the next event or broadcast of a bank."""
        event = Event()
        self._waiting[key].append(event)
        await event.wait()

    def _watch(self, cycle):
        if update := self.strobe("o_region_update"):
            self._update(update, cycle)
        if strobe := self.strobe("o_timeout"):
            self.timeouts.append((cycle, strobe))
        if strobe := self.strobe("bad_close"):
            self.bad_closes.append(strobe)
        if refused := self.strobe("command_error"):
            due = next((n for n, each in enumerate(self.errors) if isinstance(each, dict)), None)
            assert due is not None and refused == self.errors[due], (
                f"command error {refused}, the model says {self.errors}"
            )
            self.errors[due] = "reported"
        if counts := self.shown("counts"):
            self.counts.update(name for name, bit in counts.items() if bit)

    def _update(self, update, cycle):
        key, state = (update["region"], update["bank"]), RegionState(update["state"])
        legal = {
            RegionState.FREE: (RegionState.OPEN, RegionState.DONE),
            RegionState.OPEN: (RegionState.DONE,),
            RegionState.DONE: (RegionState.FREE,),
        }
        assert state in legal[self.state[key]], (
            f"bank {key}: {self.state[key].name} to {state.name}"
        )
        assert state == RegionState.FREE or update["epoch"] == self.model.banks[key].epoch.number
        self.state[key], self.changed[key] = state, cycle
        self.inspector.touch(*key)
        self.inspector.touch_overflow(*key)
        if state == RegionState.FREE:
            self.ordered.discard(key)
            self.surroundings.check_quiet(key)
            self.model.freed(*key)
            if key in self.reopens:
                epoch = self.reopens.pop(key)
                self._judged({"op": RegionOp.OPEN, "region": key[0], "epoch": epoch})
            if self.o_event.port.is_valid() and not self.o_event._ready:
                item = self.o_event.port.unpack(self.o_event.port.read())
                if not item["plain"] and (item["region"], item["epoch"] & 1) == key:
                    self.ghosts.append(item)
            self._wake_bank(key)

    # -- software ----------------------------------------------------------------------------------

    async def set_geometry(self, region, **fields):
        """Writes a region's geometry; the model keeps it too. What the scoreboard does not look at
        is random."""
        draw = self.rng.getrandbits
        full = {
            "valid": 1,
            "row_bytes": 64,
            "log2_tile": 1,
            "group_base": 0,
            "capacity": 4,
            "expected": 1,
            "overflow_en": 0,
            "overflow": 0,
            "flag_en": 0,
            "flag_base": 0,
            "base": [draw(48), draw(48)],
            "stride": draw(self.cfg.stride_width),
            "row_first": draw(24),
            "row_span": draw(25),
            "spill_base": [draw(48), draw(48)],
            **fields,
        }
        self.model.geometry[region] = full
        await self.pulse("geometry_write", region=region, geometry=full)

    async def one_row(self, region, **fields):
        """A region of one row, which is a tile."""
        few = {"row_bytes": 16, "log2_tile": 0, "capacity": 1}
        await self.set_geometry(region, **few | fields)

    async def set_dep(self, index, cycles=1, **fields):
        """Writes a dependency range, in each of some successive cycles."""
        await self.cycles(1)
        await self.pulse("dep_write", cycles, index=index, range=fields)
        self.model.write_dep(index, fields)
        await self.cycles(2)
        await self.until(
            lambda: not self.get("dep_busy"), 100 + 8 * self.cfg.groups, "range cleared"
        )

    async def set_span(self, index, limit, threshold, armed=1, base=0, group_base=0, cycles=1):
        """A range with tiles of 16 bytes."""
        await self.set_dep(
            index,
            cycles,
            armed=armed,
            base=base,
            limit=limit,
            log2_stride=4,
            group_base=group_base,
            threshold=threshold,
        )

    async def pulse_overlap(self, region, bank):
        self.inspector.touch(region, bank)
        self.model.overlap(region, bank)
        await self.pulse("overlap", region=region, bank=bank)

    async def order(self, op, region, epoch, last=None, again=0):
        last = region if last is None else last
        await self.i_command.send(
            {"op": op, "region": region, "epoch": epoch, "last": last, "again": again}
        )

    async def open(self, region, epoch, rows=None):
        """OPEN, until the broadcast: no row is placed and no byte acknowledged before it. ``rows``:
        so many are placed."""
        if rows is not None:
            self.model.rows[region, epoch & 1] = rows
        await self.order(RegionOp.OPEN, region, epoch)
        await self.until(lambda: self.state[region, epoch & 1] != RegionState.FREE, what="OPEN")

    async def final(self, region, bank):
        """The ALL or ERROR event of the bank's epoch."""
        while (region, bank) not in self.finals:
            await self._woken((region, bank))
        return self.finals[region, bank]

    async def give_back(self, op, region, epoch):
        """RELEASE or ABORT, until FREE."""
        key = region, epoch & 1
        await self.order(op, region, epoch)
        while self.state[key] != RegionState.FREE or self.model.banks[key].epoch is not None:
            await self._woken(key)

    async def abort(self, region, epoch):
        await self.give_back(RegionOp.ABORT, region, epoch)

    async def release(self, region, epoch):
        await self.give_back(RegionOp.RELEASE, region, epoch)

    async def end(self, region, epoch):
        """Waits for the epoch's ALL or ERROR, gives the bank back, and returns that event."""
        final = await self.final(region, epoch & 1)
        await self.drained()
        await self.release(region, epoch)
        return final

    async def ends_well(self, region, epoch):
        assert (await self.end(region, epoch))["kind"] == EventKind.ALL

    async def ends_in(self, reason, region, epoch):
        final = await self.end(region, epoch)
        assert (final["kind"], final["status"]) == (EventKind.ERROR, reason), final

    async def status(self, region, bank):
        return await self.inspector.look((region, bank))

    async def check_status(self, region, bank):
        shown = await self.status(region, bank)
        self.inspector.compare((region, bank), *shown)
        return shown[0]

    def put_ack(self, ok=1, slice_=None, **context):
        """One acknowledgement; fields that are not given are 0, ``place`` is the region."""
        region = context.get("region", 0)
        context = {"counted": 1, "region": region, "place": region, "bank": 0, **context}
        for region in {context["region"], context["place"]}:
            self.on_way[region, context["bank"]] += not context.get("plain", 0)
        at = self.rng.randrange(self.cfg.slices) if slice_ is None else slice_
        self.i_ack[at].put({"context": context, "ok": ok})

    def put_plain(self, group, dep=0, size=16, **more):
        """One of a dependency range."""
        self.put_ack(plain=1, group=group, dep=dep, bytes=size, **more)

    def refuse(self, region, epoch, size=16, src=0):
        """A refusal that names a row of a known region."""
        self.i_refused.put(
            {"known": 1, "region": region, "epoch": epoch, "src": src, "bytes": size}
        )

    def put_news(self, region, epoch, src=0, sent=0, **fields):
        """One entry; ``sent``: bytes told, all that the source has told or closed is given."""
        self.i_news.put(entry(region, epoch, src, sent, **fields))

    def put_close(self, region, epoch, src=0, sent=0, **fields):
        """The one entry of a producer that tells nothing before it closes."""
        self.put_news(region, epoch, src, sent, tell=1, close=1, **fields)

    def put_tell(self, region, epoch, src=0, sent=0):
        self.put_news(region, epoch, src, sent, tell=1)

    def close_all(self, region, epoch):
        """Tells and closes of all expected producers, who have sent nothing."""
        for src in range(self.model.geometry[region]["expected"]):
            self.put_close(region, epoch, src)

    async def pour(self, items, cycles):
        """Offers the same item to each of some sources in every cycle, past the agents; returns how
        often it was taken."""
        ports = [(source.port, source.port.pack(item)) for source, item in items]
        taken = [0] * len(ports)
        await self.drained()
        self.in_reset = True  # the agents rest
        for port, word in ports:
            port.write(word)
            port.valid.value = 1
        for _ in range(cycles):
            await FallingEdge(self.dut.clk)
            for n, (port, _) in enumerate(ports):
                taken[n] += port.is_ready()
        await RisingEdge(self.dut.clk)
        for port, _ in ports:
            port.valid.value = 0
        self.in_reset = False
        self.moved()
        for key in self.model.banks:
            self.inspector.touch(*key)
        # Nobody has counted meanwhile what was counted, nor what was merged.
        counts = Counter(self.model.counts)
        self.counts["merges"] += any(source in self.i_ack for source, _ in items)
        for (source, item), count in zip(items, taken, strict=True):
            item = whole(source, item)
            for _ in range(count if source is self.i_refused else 0):
                self.model.refuse(item)
            if source in self.i_ack:
                self.model.ack(
                    {**item["context"], "bytes": count * item["context"]["bytes"]}, item["ok"]
                )
        self.model.counts = counts
        return taken

    @property
    def sources(self):
        return [*self.i_ack, self.i_refused, self.i_news, self.i_command]

    async def drained(self):
        """All inputs were taken and worked off."""
        for source in self.sources:
            await source.drained()
        await self.cycles(20 + 2 * self.cfg.slices * self.cfg.combine_depth)

    async def finish(self):
        """Everything expected has come, nothing extra does."""
        await self.drained()
        self.o_event.set_pause(None)
        self.o_flag.set_pause(None)
        await self.until(lambda: not self.model.outstanding(), 6000, "all expected events")
        await self.cycles(100)
        assert self.o_flag.items == self.expected_flags, (
            f"flags {self.o_flag.items}, expected {self.expected_flags}"
        )
        assert all(error in (None, "reported") for error in self.errors), (
            f"command errors {self.errors}"
        )
        kinds = Counter(item["kind"] for item in self.o_event.items)
        exact, near = (
            ["told_twice", "close_twice", "close_bad"],
            ["close_stale", "refused_stale", "early_kept", "tainted"],
        )
        if not self.counts["merges"]:  # what merges is counted once
            exact += ["mem_errors", "poisoned", "overlaps"]
            near += ["acks_stray"]
        counted = {
            "ready": kinds[EventKind.READY],
            "all": kinds[EventKind.ALL],
            "error": kinds[EventKind.ERROR],
            "timeouts": len(self.timeouts),
            **{name: self.model.counts[name] for name in exact},
        }
        for name, count in counted.items():
            assert self.counts[name] == count, (
                f"counts: {name} {self.counts[name]} times, expected {count}"
            )
        # News that meets an order inside may be judged before or after it.
        for name in near:
            assert abs(self.counts[name] - self.model.counts[name]) <= 2, (
                f"counts: {name} {self.counts[name]} times"
            )
        assert self.bad_closes == self.closed_twice
