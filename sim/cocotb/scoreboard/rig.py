# SPDX-License-Identifier: Apache-2.0
"""Surroundings of a scoreboard under test: streams, allocator and writers, software's orders, the
golden model as judge."""

from collections import Counter, defaultdict

from cocotb.triggers import Event, FallingEdge, RisingEdge

from hub_rtl.contract.packets import EventKind, OrderError, RegionOp, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.scoreboard.records import scoreboard_types
from sim.bench.runner import bench_params
from sim.bench.streams import Codec, StreamSink, StreamSource, bus_write, start_clock
from sim.golden.scoreboard import ScoreboardModel
from sim.quality.coverage import cover

from .watch import Inspector, Patience, Surroundings

__all__ = ["Rig", "make"]

PLAIN_INPUTS = (
    "geometry_write",
    "dep_write",
    "overlap",
    "rows",
    "purging",
    "quiescing",
    "query",
    "timeout",
)


def whole(source, item):
    """An item with all its fields."""
    return source.port.unpack(source.port.pack(item))


class Rig:
    """One scoreboard with all that is around it. Everything the design takes goes to the model,
    every event is judged."""

    def __init__(self, dut, cfg, rng, idle="none", stall="none", watchdog=4000):
        types, own = types_of(cfg), scoreboard_types(cfg)
        self.dut, self.cfg, self.rng = dut, cfg, rng
        self.codecs = {
            "strobe": Codec(own.bank_strobe),
            "name": Codec(own.bank_name),
            "status": Codec(own.status),
            "counts": Codec(own.counts),
            "update": Codec(types.region_update),
            "geometry": Codec(types.geometry_write),
            "dep": Codec(types.dep_write),
            "command_error": Codec(own.command_error),
            "bad_close": Codec(own.bad_close),
        }
        for name in PLAIN_INPUTS:
            getattr(dut, name).value = 0
        self.bench = bench = start_clock(dut, watchdog)
        self.acks = [
            StreamSource(bench, f"i_ack__{n}", types.ack, idle, rng) for n in range(cfg.slices)
        ]
        self.refusals = StreamSource(bench, "i_refused", types.refusal, idle, rng)
        self.closes = StreamSource(bench, "i_close", types.close, idle, rng)
        self.commands = StreamSource(bench, "i_command", types.region_command)
        self.events = StreamSink(bench, "o_event", types.event, stall, rng)
        self.flags = StreamSink(
            bench, "o_flag", own.flag, "none" if stall == "stop" else stall, rng
        )
        for source in self.acks:
            source.on_item(self._acked)
        self.refusals.on_item(self._refused)
        self.closes.on_item(self._closed)
        self.commands.on_item(self._ordered)
        self.events.on_item(self._event)
        self.forget()
        self.inspector, self.surroundings = Inspector(self), Surroundings(self)
        for agent in (self.surroundings, Patience(self), self.inspector):
            bench.add(agent)
        bench.on_sample(self._watch)

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
        self.ordered = None  # bank whose RELEASE or ABORT is under way
        self._waiting = defaultdict(list)

    async def start(self):
        """Reset, then the walkers clear the tables; nothing is taken meanwhile."""
        await self.bench.reset()
        await self.bench.sampled()
        assert int(self.dut.clearing.value) == 1
        await self.bench.until(lambda: not int(self.dut.clearing.value), what="cleared")

    # -- what the design takes and says ------------------------------------------------------------

    def _acked(self, item, cycle):
        item = whole(self.acks[0], item)
        context = item["context"]
        for region in {context["region"], context["place"]}:
            self.on_way[region, context["bank"]] -= not context["plain"]
            if not context["plain"]:
                self.inspector.touch(region, context["bank"])
        self.model.ack(context, item["ok"])

    def _refused(self, item, cycle):
        item = whole(self.refusals, item)
        self.inspector.touch(item["region"], item["epoch"] & 1)
        self.model.refuse(item)

    def _closed(self, item, cycle):
        item, before = whole(self.closes, item), self.model.counts["close_twice"]
        self.inspector.touch(item["region"], item["epoch"] & 1)
        self.model.close(item)
        if self.model.counts["close_twice"] != before:
            self.closed_twice.append(
                {"en": 1, **{name: item[name] for name in ("region", "epoch", "src")}}
            )

    def _ordered(self, item, cycle):
        key = item["region"], item["epoch"] & 1
        self.inspector.touch(*key)
        reason = self.model.command(item["op"], item["region"], item["epoch"])
        if item["op"] in (RegionOp.RELEASE, RegionOp.ABORT):
            self.ordered = None if reason else key
        elif item["op"] == RegionOp.OPEN and not reason:
            self.finals.pop(key, None)
        cover(
            f"scoreboard.order.{RegionOp(item['op']).name.lower()}.{OrderError(reason).name.lower()}"
        )
        self.errors.append({"en": 1, "command": item, "reason": reason} if reason else None)

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
        self._wake(key)

    def _wake(self, key):
        for event in self._waiting.pop(key, ()):
            self.bench.wake(event)

    def _watch(self, cycle):
        dut, codecs = self.dut, self.codecs
        update = int(dut.o_region_update.value)
        if update & 1:
            self._update(codecs["update"].unpack(update), cycle)
        for name, kept, codec in (
            ("o_timeout", self.timeouts, "strobe"),
            ("bad_close", self.bad_closes, "bad_close"),
        ):
            word = int(getattr(dut, name).value)
            if word & 1:
                kept.append((cycle, codecs[codec].unpack(word)))
        word = int(dut.command_error.value)
        if word & 1:
            refused = codecs["command_error"].unpack(word)
            assert refused == self.errors[-1], (
                f"command error {refused}, the model says {self.errors[-1]}"
            )
            self.errors[-1] = "reported"
        counts = int(dut.counts.value)
        if counts:
            self.counts.update(name for name, bit in codecs["counts"].unpack(counts).items() if bit)

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
            self.ordered = None
            self.surroundings.check_quiet(key)
            self.model.freed(*key)
            if int(self.events.port.valid.value) and not self.events._ready:
                item = self.events.port.unpack(self.events.port.read())
                if not item["plain"] and (item["region"], item["epoch"] & 1) == key:
                    self.ghosts.append(item)
            self._wake(key)

    # -- software ----------------------------------------------------------------------------------

    async def pulse(self, name, value, codec, cycles=1):
        bus_write(self.dut, name, value, self.codecs[codec])
        await self.bench.cycles(cycles)
        getattr(self.dut, name).value = 0

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
        await self.pulse(
            "geometry_write", {"en": 1, "region": region, "geometry": full}, "geometry"
        )

    async def set_dep(self, index, cycles=1, **fields):
        """Writes a dependency range, in each of some successive cycles."""
        await self.bench.cycles(1)
        await self.pulse("dep_write", {"en": 1, "index": index, "range": fields}, "dep", cycles)
        self.model.write_dep(index, fields)
        await self.bench.cycles(2)
        await self.bench.until(
            lambda: not int(self.dut.dep_busy.value), 100 + 8 * self.cfg.groups, "range cleared"
        )

    async def pulse_overlap(self, region, bank):
        self.inspector.touch(region, bank)
        self.model.overlap(region, bank)
        await self.pulse("overlap", {"en": 1, "region": region, "bank": bank}, "strobe")

    async def order(self, op, region, epoch):
        await self.commands.send({"op": op, "region": region, "epoch": epoch})

    async def open(self, region, epoch):
        """OPEN, until the broadcast: no row is placed and no byte acknowledged before it."""
        await self.order(RegionOp.OPEN, region, epoch)
        await self.bench.until(
            lambda: self.state[region, epoch & 1] != RegionState.FREE, what="OPEN"
        )

    async def final(self, region, bank):
        """The ALL or ERROR event of the bank's epoch."""
        key = region, bank
        while key not in self.finals:
            event = Event()
            self._waiting[key].append(event)
            await event.wait()
        return self.finals[key]

    async def give_back(self, op, region, epoch):
        """RELEASE or ABORT, until FREE."""
        key = region, epoch & 1
        await self.order(op, region, epoch)
        while self.state[key] != RegionState.FREE or self.model.banks[key].epoch is not None:
            event = Event()
            self._waiting[key].append(event)
            await event.wait()

    async def end(self, region, epoch):
        """Waits for the epoch's ALL or ERROR, gives the bank back, and returns that event."""
        final = await self.final(region, epoch & 1)
        await self.drained()
        await self.give_back(RegionOp.RELEASE, region, epoch)
        return final

    async def status(self, region, bank):
        return await self.inspector.look((region, bank))

    async def check_status(self, region, bank):
        got, missing = await self.status(region, bank)
        self.inspector.compare((region, bank), got, missing)
        return got

    def put_ack(self, context, ok=1, slice_=None):
        """One acknowledgement; fields that are not given are 0, ``place`` is the region."""
        context = {
            "counted": 1,
            "region": 0,
            "place": context.get("region", 0),
            "bank": 0,
            **context,
        }
        for region in {context["region"], context["place"]}:
            self.on_way[region, context["bank"]] += not context.get("plain", 0)
        at = self.rng.randrange(self.cfg.slices) if slice_ is None else slice_
        self.acks[at].put({"context": context, "ok": ok})

    def put_close(self, region, epoch, src=0, sent=0, **fields):
        self.closes.put({"region": region, "epoch": epoch, "src": src, "sent": sent, **fields})

    def close_all(self, region, epoch):
        """Closes of all expected producers, who have sent nothing."""
        for src in range(self.model.geometry[region]["expected"]):
            self.put_close(region, epoch, src)

    async def pour(self, items, cycles):
        """Offers the same item to each of some sources in every cycle, past the agents; returns how
        often it was taken."""
        ports = [(source.port, source.port.pack(item)) for source, item in items]
        taken = [0] * len(ports)
        await self.drained()
        self.bench.in_reset = True  # the agents rest
        for port, word in ports:
            port.write(word)
            port.valid.value = 1
        for _ in range(cycles):
            await FallingEdge(self.dut.clk)
            for n, (port, _) in enumerate(ports):
                taken[n] += int(port.ready.value)
        await RisingEdge(self.dut.clk)
        for port, _ in ports:
            port.valid.value = 0
        self.bench.in_reset = False
        self.bench.moved()
        for key in self.model.banks:
            self.inspector.touch(*key)
        for (source, item), count in zip(items, taken, strict=True):
            item = whole(source, item)
            for _ in range(count if source is self.refusals else 0):
                self.model.refuse(item)
            if source in self.acks:
                self.model.ack(
                    {**item["context"], "bytes": count * item["context"]["bytes"]}, item["ok"]
                )
        return taken

    @property
    def sources(self):
        return [*self.acks, self.refusals, self.closes, self.commands]

    async def drained(self):
        """All inputs were taken and worked off."""
        for source in self.sources:
            await source.drained()
        await self.bench.cycles(20 + 2 * self.cfg.slices * self.cfg.combine_depth)

    async def finish(self):
        """Everything expected has come, nothing extra does."""
        await self.drained()
        self.events.set_pause(None)
        self.flags.set_pause(None)
        await self.bench.until(lambda: not self.model.outstanding(), 6000, "all expected events")
        await self.bench.cycles(100)
        assert self.flags.items == self.expected_flags, (
            f"flags {self.flags.items}, expected {self.expected_flags}"
        )
        assert all(error in (None, "reported") for error in self.errors), (
            f"command errors {self.errors}"
        )
        kinds = Counter(item["kind"] for item in self.events.items)
        exact, near = (
            ["close_twice", "close_bad"],
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
        assert [strobe for _, strobe in self.bad_closes] == self.closed_twice


def make(dut, salt="", **more):
    """``(rig, cfg, params, rng)`` as the test was given them."""
    cfg, params, rng = bench_params(salt)
    return Rig(dut, cfg, rng, **more), cfg, params, rng
