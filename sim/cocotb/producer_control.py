"""cocotb tests of ProducerControl: the bench plays decoders, merges, packet managers, ledgers and links around it."""

from collections import Counter, deque

import cocotb
from amaranth.lib import data

from hub_rtl.formats import BODIES, HEADER, CommandOp, PacketType, Reason, unpack
from hub_rtl.producer.handles import handle_broadcast
from hub_rtl.producer.ledger import ledger_read
from hub_rtl.lib.trees import tree_levels
from hub_rtl.types import types_of
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, Codec, StreamSink, StreamSource, bus_write, start_clock
from sim.golden.decoder import entry_usable
from sim.golden.producer_control import ProducerModel

CLOSE = {name: field for name, field in {**HEADER, **BODIES[PacketType.CLOSE]}.items() if name != "body"}
OWNERS = (1, 1, 1, 2)
INPUTS = ("handle_write", "handle_read", "flushing", "merging", "sunk", "ctl_ready", "ctl_other", "ctl_done", "peer_dead")


class Store:
    """A store that the bench's decoder accepted."""

    def __init__(self, number, dest, epoch, rank, size):
        self.number, self.dest, self.epoch, self.rank, self.size, self.marked = number, dest, epoch, rank, size, False


class Pipe:
    """A decoder's or merge's queue with the flush handshake."""

    def __init__(self, depth):
        self.items, self.older, self.depth = deque(), 0, depth

    def flush(self):
        self.older = len(self.items)

    def leave(self):
        self.older = max(0, self.older - 1)
        return self.items.popleft()


class World:
    """Everything around ProducerControl, and the checks.

    ``rate``: chance of a store per cycle; ``slow``: ranks whose packets never leave; ``broke``: ranks that give no control
    credit back; ``dead``: ranks in state DRAIN.
    """

    def __init__(self, dut, salt="", idle=None, stall=None, rate=0.5):
        self.dut = dut
        self.cfg, self.params, self.rng = cfg, _, rng = bench_params(salt)
        types = types_of(cfg)
        self.bench = start_clock(dut, watchdog=3000)
        self.commands = StreamSource(self.bench, "i_command", types.command, pause=idle, rng=rng)
        self.answers = StreamSink(self.bench, "o_response", types.command_response, pause=stall, rng=rng)
        self.control = StreamSink(self.bench, "o_control", pause=stall, rng=rng)
        self.commands.on_item(self._command)
        self.answers.on_item(self._answer)
        self.control.on_item(self._control)
        struct = data.StructLayout
        self.broadcast, self.read = Codec(handle_broadcast(cfg)), Codec(ledger_read(cfg))
        self.mark = Codec(struct({"en": 1, "all": 1, "handle": cfg.handle_width}))
        self.csr_write = Codec(struct({"en": 1, "index": cfg.handle_width, "handle": types.handle}))
        self.csr_read = Codec(struct({"en": 1, "index": cfg.handle_width}))
        self.counts = Codec(struct({"closes": 1, "closes_dropped": 1, "fences": 1}))
        self.rate, self.rank = rate, rng.randrange(cfg.ranks)
        self.slow, self.broke, self.dead = set(), set(), set()
        self.clear()
        self.bench.add(self)
        for name in INPUTS:
            bus_write(dut, name, 0)

    # -- agent ------------------------------------------------------------------------------------------------------------

    def clear(self, forget=True):
        cfg = self.cfg
        self.model = ProducerModel(cfg)
        self.view = {}                                              # what the decoders know: {handle: (entry, hold)}
        self.lanes = [Pipe(8) for _ in range(cfg.lanes)]
        self.merges = [Pipe(2) for _ in range(cfg.loop_lanes)]
        self.pools = [[] for _ in range(cfg.slices)]
        self.ledgers = [Counter() for _ in range(cfg.slices)]
        self.totals = [0] * cfg.slices
        self.accepted = Counter()                                   # bytes of (dest, epoch) that a close must carry
        self.number = 0
        self.csr, self.reads, self.jobs = {}, deque(), []
        self.open, self.running = {}, None                          # commands without answer by tag; the last close taken
        self.credits = dict.fromkeys(range(cfg.ranks), cfg.ctl_credits)
        self.shown, self.due = dict(self.credits), []               # as ctl_ready shows it; (cycle, what, rank)
        self.done, self.sunk, self.sinks, self.other = 0, 0, 0, 0
        self.last_dead = {}
        self.reasons, self.messages, self.dropped, self.stamps = [], [], 0, []

    def drive(self):
        dut, cfg = self.dut, self.cfg
        dut.flushing.value = sum((pipe.older > 0) << n for n, pipe in enumerate(self.lanes))
        dut.merging.value = sum((pipe.older > 0) << n for n, pipe in enumerate(self.merges))
        for n, pool in enumerate(self.pools):
            ranks = {store.rank for store in pool if store.marked}
            getattr(dut, f"draining__{n}").value = sum(1 << rank for rank in ranks)
            getattr(dut, f"ledger_total__{n}").value = self.totals[n]
        dut.ctl_ready.value = sum((self.shown[rank] > 0) << rank for rank in range(cfg.ranks))
        dut.ctl_done.value, dut.sunk.value, dut.ctl_other.value = self.done, self.sunk, self.other
        dut.peer_dead.value = sum(1 << rank for rank in self.dead)
        self.done = self.sunk = 0
        self.last_dead |= dict.fromkeys(self.dead, self.bench.cycle)

    def sample(self):
        self._links()
        self._store()
        self._move()
        self._write_entry()
        self._strobes()

    def __str__(self):
        return f"world: {len(self.open)} commands open, due {self.model.due}, {sum(map(len, self.pools))} entries"

    # -- around the block ---------------------------------------------------------------------------------------------------

    def _links(self):
        for event in [event for event in self.due if event[0] <= self.bench.cycle]:
            _, what, rank = event
            if what == "back" and rank in self.broke:
                continue
            self.due.remove(event)
            if what in ("back", "both"):
                self.credits[rank] += 1
            self.shown[rank] += 1 if what in ("back", "both") else -1
        if self.params.get("other") and self.rng.random() < 0.1:
            self.other = self.rng.getrandbits(self.cfg.ranks)

    def _store(self):
        if not self.view or self.rng.random() >= self.rate:
            return
        index = self.rng.choice(list(self.view))
        entry, hold = self.view[index]
        lane = self.rng.choice(self.lanes)
        if not entry_usable(self.cfg, entry) or hold or len(lane.items) == lane.depth:
            cover("producer.store_held", hold)
            return
        number = self.rng.randrange(1 << entry["log2_replicas"])
        rank = entry["replica"][number]["rank"]
        if sum(store.rank == rank for store in self._inside()) >= 24:
            return                                                  # as the crossbar does, by `can_accept`
        size = self.rng.choice((16, 32, self.rng.randint(1, self.cfg.packet_bytes)))
        dest = index * self.cfg.replicas + number
        lane.items.append(Store(self.number, dest, entry["epoch"], rank, size))
        self.accepted[dest, entry["epoch"]] += size
        self.number += 1

    def _inside(self):
        """Every store between its acceptance and the ledger."""
        return [store for items in (*(pipe.items for pipe in (*self.lanes, *self.merges)), *self.pools) for store in items]

    def _move(self):
        rng, cfg = self.rng, self.cfg
        for n, lane in enumerate(self.lanes):
            if lane.items and rng.random() < 0.7:
                merge = self.merges[n % cfg.loop_lanes]
                if lane.items[0].rank != self.rank:
                    self.pools[n].append(lane.leave())
                elif len(merge.items) < merge.depth:
                    merge.items.append(lane.leave())
        for n, merge in enumerate(self.merges):
            if merge.items and rng.random() < 0.6:
                self.pools[cfg.lanes + n].append(merge.leave())
        for pool, ledger in zip(self.pools, self.ledgers, strict=True):
            for store in [store for store in pool if store.rank in self.dead]:
                pool.remove(store)
                self.accepted[store.dest, store.epoch] -= store.size
                self.sunk, self.sinks = 1, self.sinks + 1
            ready = [store for store in pool if store.rank not in self.slow]
            if ready and rng.random() < 0.5:
                store = rng.choice(ready)
                pool.remove(store)
                ledger[store.dest, store.epoch & 1] += store.size

    def _write_entry(self):
        raw = int(self.dut.o_handle_write.value)
        if not raw & 1:
            assert self.bench.cycle not in self.csr, "a write of software was not broadcast after 2 cycles"
            return
        write = self.broadcast.unpack(raw)
        index, entry = write["index"], write["handle"]
        if self.bench.cycle in self.csr:
            wanted = self.csr.pop(self.bench.cycle)
            self.model.write(*wanted)
        elif entry == self.model.entries[index]:
            self.model.bank_read(*self.reads.popleft())
        else:
            command, now = self.running, self.model.entries[index]
            assert command is not None and command["epoch"] == now["epoch"], f"handle {index} closed without a command"
            assert command["op"] == CommandOp.CLOSE_ALL or command["handle"] == index, f"handle {index} closed for {command}"
            assert self.model.refusal(index, command["epoch"], command["owner"]) == Reason.OK
            self.model.close(index)
            command["closed"].add(index)
        assert entry == self.model.entries[index], f"broadcast {entry}\n expected {self.model.entries[index]}"
        assert write["hold"] == self.model.held(index), f"hold of handle {index}"
        self.view[index] = (entry, write["hold"])

    def _strobes(self):
        dut, cfg = self.dut, self.cfg
        if int(dut.o_flush.value):
            for pipe in self.lanes:
                pipe.flush()
        if int(dut.o_flush_merge.value):
            for pipe in self.merges:
                pipe.flush()
        mark = int(dut.o_mark.value)
        if mark & 1:
            mark = self.mark.unpack(mark)
            for store in (store for pool in self.pools for store in pool):
                store.marked |= bool(mark["all"] or store.dest // cfg.replicas == mark["handle"])
        read = int(dut.ledger_read.value)
        if read & 1:
            read = self.read.unpack(read)
            key = read["dest"], read["bank"]
            self.totals = [ledger.pop(key, 0) for ledger in self.ledgers]
            assert read["clear"]
            rank = next((rank for rank, due in self.model.due.items()
                         if due and (due[0][0], due[0][2] & 1) == key), None)
            assert rank is not None, f"dest {key[0]}, bank {key[1]} read out of turn; due: {self.model.due}"
            dest, region, epoch = self.model.sent(rank)
            wanted = self.accepted.pop((dest, epoch), 0)
            assert sum(self.totals) == wanted, f"close of dest {dest}, epoch {epoch}: {sum(self.totals)} of {wanted} bytes"
            cover("producer.ragged", wanted % 16)
            cover("producer.zero_rows", wanted == 0)
            self.jobs.append((rank, region, epoch, wanted, self.bench.cycle))
            self.reads.append((dest // cfg.replicas * cfg.replicas, read["bank"]))
            self.stamps.append(self.bench.cycle)
            self.bench.moved()
        if int(dut.counts.value) >> 1 & 1:
            # Drops come a fixed time after the reads; a message of the same peer may still wait for the link.
            job = next((job for job in self.jobs if job[4] == self.bench.cycle - tree_levels(cfg.slices) - 1), None)
            assert job is not None and self.bench.cycle - self.last_dead.get(job[0], -99) < 30, f"dropped {job}"
            self.jobs.remove(job)
            self.dropped += 1
            cover("producer.dropped")

    def _control(self, flit, cycle):
        header = unpack(CLOSE, flit)
        rank = header["dst"]
        job = next((job for job in self.jobs if job[0] == rank), None)
        assert job is not None, f"cycle {cycle}: a message for rank {rank} that nobody asked for"
        self.jobs.remove(job)
        _, region, epoch, size, _ = job
        wanted = dict.fromkeys(CLOSE, 0) | {"type": PacketType.CLOSE, "dst": rank, "region": region, "epoch": epoch,
                                            "sent16": size // 16, "ragged": int(size % 16 > 0)}
        assert header == wanted, f"{header}\n expected {wanted}"
        assert self.credits[rank] > 0 or rank in self.dead, f"cycle {cycle}: no control credit for rank {rank}"
        self.credits[rank] -= 1
        self.done |= 1 << rank
        self.due += [(cycle + 2, "show", rank), (cycle + self.rng.randint(6, 20), "back", rank)]
        self.messages.append((rank, region, epoch))
        cover("producer.own_rank", rank == self.rank)

    # -- commands -----------------------------------------------------------------------------------------------------------

    def _command(self, item, _):
        command = {**item, "limit": self.number, "sinks": self.sinks, "closed": set()}
        if item["op"] == CommandOp.CLOSE:
            command["reason"] = self.model.refusal(item["handle"], item["epoch"], item["owner"])
        if item["op"] == CommandOp.CLOSE_ALL:
            command["members"] = set(self.model.members(item["epoch"], item["owner"]))
            command["held"] = {index for index in command["members"] if self.model.held(index)}
        assert item["tag"] not in self.open
        self.open[item["tag"]] = command
        if item["op"] != CommandOp.FENCE:
            self.running = command

    def _answer(self, answer, cycle):
        command = self.open.pop(answer["tag"], None)
        assert command is not None, f"cycle {cycle}: an answer without a command: {answer}"
        status = Reason(answer["status"])
        self.reasons.append(status)
        op = command["op"]
        if op == CommandOp.FENCE:
            inside = [store for pipe in (*self.lanes, *self.merges) for store in pipe.items]
            left = [store for store in (*inside,
                                        *(one for pool in self.pools for one in pool)) if store.number < command["limit"]]
            assert not left, f"fence answered, {len(left)} older stores inside"
            assert status == Reason.OK or (status == Reason.PEER_DEAD and self.sinks)
        elif op == CommandOp.CLOSE:
            wanted = {Reason.OK} if command["closed"] else {command["reason"]}
            assert status in wanted, f"{command} answered {status!r}, expected {wanted}"
            if not command["closed"]:
                assert status != Reason.OK
        elif op == CommandOp.CLOSE_ALL:
            left = command["members"] - command["closed"]
            assert left <= command["held"], f"CLOSE_ALL left out {left - command['held']}"
            assert status == (Reason.EPOCH_EARLY if left else Reason.OK), f"{command} answered {status!r}, left {left}"
            cover("producer.close_all_held", left)
        else:
            assert status == Reason.UNKNOWN
        cover(f"producer.answer.{CommandOp(op).name if op < 3 else 'NONE'}.{status.name}")

    def command(self, op, **fields):
        """Queues a command with a free tag; returns False when none is free."""
        used = set(self.open) | {item["tag"] for _, item, _ in self.commands._queue}
        if self.commands._offered is not None:
            used.add(self.commands._offered[1]["tag"])
        free = [tag for tag in range(1 << min(self.cfg.tag_width, 6)) if tag not in used]
        if free:
            self.commands.put({"op": int(op), "handle": 0, "epoch": 0, "owner": 1, "tag": free[0], **fields})
        return bool(free)

    async def do(self, op, **fields):
        """One command and its answer."""
        before = self.answers.count
        assert self.command(op, **fields)
        await self.bench.until(lambda: self.answers.count > before, what=f"answer to {CommandOp(op).name}")
        return self.reasons[-1]

    def entry(self, **fields):
        cfg, rng = self.cfg, self.rng
        entry = {"valid": 1, "owner": rng.choice(OWNERS), "epoch": rng.randrange(16), "closed": 0,
                 "row_bytes": 16 * rng.randint(1, cfg.max_row_bytes // 16), "lane_mode": 0, "lane": 0,
                 "log2_replicas": rng.randrange(cfg.replicas.bit_length()),
                 "replica": [{"rank": rng.randrange(cfg.ranks),
                              "region": rng.randrange(cfg.regions)} for _ in range(cfg.replicas)]}
        return {**entry, **fields}

    async def write(self, index, entry):
        self.csr[self.bench.cycle + 2] = (index, entry)
        bus_write(self.dut, "handle_write", {"en": 1, "index": index, "handle": entry}, self.csr_write)
        await self.bench.cycles(1)
        self.dut.handle_write.value = 0

    async def ready(self, entries=True, **fields):
        """Reset, cleared tables, an entry for every handle."""
        await self.bench.reset()
        await self.bench.until(lambda: not int(self.dut.clearing.value), what="cleared table")
        for index in range(self.cfg.handles if entries else 0):
            await self.write(index, self.entry(**fields))
        await self.bench.cycles(3)

    async def idle(self, limit=20000):
        """All commands answered, all closes sent."""
        self.slow, self.broke = set(), set()
        await self.bench.until(lambda: not self.open and not self.commands.pending, limit, "all answers")
        await self.bench.until(lambda: not any(self.model.due.values()) and not self.jobs, limit, "all closes sent")
        await self.bench.cycles(60)
        assert not any(self.model.unsent.values()) and not self.reads
        assert not int(self.dut.pending.value)


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def random_commands(dut, grid):
    """Fences, closes and close-alls of all kinds under traffic; peers slow, without credits or dead now and then."""
    idle, stall = grid
    w = World(dut, str(grid), idle, stall)
    await w.ready()
    rng, cfg = w.rng, w.cfg
    for _ in range(w.params["commands"]):
        await w.bench.cycles(rng.choice((0, 5, 40)))
        index = rng.randrange(cfg.handles)
        entry = w.model.entries[index]
        op = rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))
        w.command(op, handle=rng.choice((index,) * 9 + ((1 << cfg.handle_width) - 1,)),
                  owner=rng.choice((entry["owner"],) * 6 + (5,)),
                  epoch=(entry["epoch"] + rng.choice((0,) * 8 + (1, 15, 7, 8))) % 16)
        w.slow = {rank for rank in range(cfg.ranks) if rng.random() < 0.2} if rng.random() < 0.3 else w.slow
        w.broke = {rank for rank in range(cfg.ranks) if rng.random() < 0.2} if rng.random() < 0.3 else w.broke
        w.dead = {rank for rank in range(cfg.ranks) if rng.random() < 0.3} if rng.random() < 0.1 else w.dead
        if len(w.open) > 4:
            w.slow, w.broke = set(), set()
            await w.bench.until(lambda: len(w.open) < 3, 20000, "answers")
    await w.idle()
    assert w.messages or w.dropped
    cover(f"producer.grid.{idle}.{stall}")


@cocotb.test()
async def two_epochs_ahead(dut):
    """While a close waits for its peer, the epoch after the next is held; its stores come again when the close went."""
    w = World(dut, rate=0.8)
    await w.ready(owner=1, epoch=3, replica=[{"rank": 1, "region": 0}] * w.cfg.replicas)
    await w.bench.cycles(60)
    w.slow = {1}
    await w.bench.cycles(60)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=3) == Reason.OK
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=3) == Reason.AFTER_CLOSE
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=4) == Reason.OK
    assert w.model.held(0)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE_ALL, epoch=5) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=12) == Reason.EPOCH_EARLY
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=2) == Reason.EPOCH_STALE
    changed = {**w.model.entries[0], "owner": 2}
    await w.write(0, changed)                   # software may write the entry: the hold stays
    await w.bench.cycles(4)
    assert w.view[0] == (changed, 1) and not w.messages
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5) == Reason.FOREIGN
    w.slow = set()
    await w.bench.until(lambda: w.view[0][1] == 0, what="end of the hold")
    await w.bench.cycles(100)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=5, owner=2) == Reason.OK
    await w.idle()
    assert {epoch for _, _, epoch in w.messages} == {3, 4, 5}
    cover("producer.hold")


@cocotb.test()
async def slow_peer(dut):
    """One peer that drains for ever, then one without credits: the others' closes go, fences wait, nothing else does."""
    w = World(dut, rate=0.7)
    await w.ready(entries=False)
    for index in range(w.cfg.handles):
        await w.write(index, w.entry(owner=1, epoch=0, log2_replicas=0,
                                     replica=[{"rank": index % w.cfg.ranks, "region": 0}] * w.cfg.replicas))
    for fault in ("slow", "broke"):
        setattr(w, fault, {0})
        await w.bench.cycles(100)
        w.command(CommandOp.FENCE)
        first = len(w.messages)
        epoch = w.model.entries[0]["epoch"]
        for index in range(w.cfg.handles):
            assert await w.do(CommandOp.CLOSE, handle=index, epoch=epoch) in (Reason.OK, Reason.PEER_DEAD)
        others = sum(index % w.cfg.ranks != 0 for index in range(w.cfg.handles))
        await w.bench.until(lambda f=first, n=others: sum(rank != 0 for rank, _, _ in w.messages[f:]) == n, 1500,
                            "others' closes")
        if fault == "slow":
            assert all(rank for rank, _, _ in w.messages) and any(one["op"] == 0 for one in w.open.values())
            cover("producer.fence_waits")
        await w.idle()
    cover("producer.slow_peer")


@cocotb.test()
async def dead_peer(dut):
    """Closes of a dead peer are dropped and counted; a fence names it once."""
    w = World(dut, rate=0.8)
    await w.ready(owner=1, epoch=0, log2_replicas=0, replica=[{"rank": 1, "region": 0}] * w.cfg.replicas)
    await w.bench.cycles(40)
    w.slow = {1}
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=0) == Reason.OK
    await w.bench.cycles(50)
    w.rate = 0
    await w.bench.cycles(50)
    w.dead = {1}
    await w.bench.until(lambda: w.dropped == 1, 500, "dropped close")
    assert await w.do(CommandOp.FENCE) == Reason.PEER_DEAD
    assert await w.do(CommandOp.FENCE) == Reason.OK
    await w.idle()
    assert not w.messages
    w.dead, w.rate = set(), 0.5
    await w.bench.cycles(100)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=1) == Reason.OK
    await w.idle()
    assert len(w.messages) == 1
    cover("producer.dead_peer")


@cocotb.test()
async def many_fences(dut):
    """More fences than the queue holds: they stall the commands, and all are answered."""
    w = World(dut, rate=0.6)
    await w.ready(owner=1, epoch=0)
    w.slow = {0, 1}
    await w.bench.cycles(150)
    total = 0
    while w.command(CommandOp.FENCE) and total < 14:
        total += 1
    await w.bench.cycles(200)
    cover("producer.fences_full", w.commands.pending > 0)
    w.slow = set()
    await w.idle()
    assert w.reasons == [Reason.OK] * len(w.reasons) and len(w.reasons) >= total
    cover("producer.many_fences")


@cocotb.test()
async def software_reads(dut):
    """Entries read back as they are, 2 cycles later, during a close-all too."""
    w = World(dut, rate=0)
    await w.ready(owner=1, epoch=0)
    for _ in range(4):
        w.command(CommandOp.CLOSE_ALL, epoch=w.model.entries[0]["epoch"])
        for _ in range(20):
            index = w.rng.randrange(w.cfg.handles)
            bus_write(dut, "handle_read", {"en": 1, "index": index}, w.csr_read)
            await w.bench.cycles(1)
            dut.handle_read.value = 0
            await w.bench.cycles(1)
            await w.bench.sampled()
            came = Codec(types_of(w.cfg).handle).unpack(int(dut.handle_data.value))
            assert came == w.model.entries[index], f"handle {index}: {came}\n expected {w.model.entries[index]}"
            await w.bench.cycles(1)
        await w.idle()
    cover("producer.software_reads")


@cocotb.test()
async def reset_in_traffic(dut):
    """A reset forgets entries, commands and pending closes."""
    w = World(dut, rate=0.6, idle="random", stall="random")
    for _ in range(2):
        await w.ready(owner=1, epoch=0)
        w.slow = {0}
        for index in range(w.cfg.handles):
            w.command(CommandOp.CLOSE, handle=index, epoch=0)
        w.command(CommandOp.FENCE)
        await w.bench.cycles(70)
        w.slow = set()
    await w.ready(entries=False)
    assert await w.do(CommandOp.CLOSE, handle=0, epoch=0) == Reason.UNKNOWN
    assert await w.do(CommandOp.FENCE) == Reason.OK
    await w.idle()
    assert not w.messages
    cover("producer.reset_in_traffic")


@cocotb.test()
async def close_all_rate(dut):
    """CLOSE_ALL over all handles: one message per 4 cycles after the drain when the links take them at once."""
    w = World(dut, rate=0)
    handles, ranks = w.cfg.handles, w.cfg.ranks
    await w.ready(entries=False)
    for index in range(handles):
        await w.write(index, w.entry(owner=1, epoch=9, replica=[{"rank": index * ranks // handles,
                                                                 "region": index % w.cfg.regions}]))
    w.credits = dict.fromkeys(range(ranks), 1 << 20)
    w.shown = dict(w.credits)
    await w.bench.cycles(4)
    start = w.bench.cycle
    assert await w.do(CommandOp.CLOSE_ALL, epoch=9) == Reason.OK
    answered = w.bench.cycle
    await w.idle()
    assert len(w.messages) == handles
    spread = (w.stamps[-1] - w.stamps[0]) / (handles - 1)
    dut._log.info("close all: answered after %d cycles, first message after %d, %.2f cycles per message",
                  answered - start, w.stamps[0] - start, spread)
    assert spread <= 4.5, f"{spread:.2f} cycles per message"
    assert w.stamps[0] - start <= handles + 60
    cover("producer.close_all_rate")
