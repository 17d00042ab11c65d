# SPDX-License-Identifier: Apache-2.0
"""Everything around ProducerControl, and the checks: the bench plays decoders, merges, packet
managers, ledgers, links."""

from collections import Counter, deque

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from hub_rtl.producer.ledger import LEDGER_CYCLES
from hub_rtl.producer.producer import ProducerControl
from sim.bench.rig import Rig
from sim.cocotb.decoder.rig import Traffic
from sim.golden.decoder import entry_usable
from sim.golden.producer import ProducerModel, news_of
from sim.quality.coverage import cover

from .checks import FENCES, Fences, Marks, Memories, Peers, Software
from .parts import Pipe, Store

COUNTS = ("closes", "closes_dropped", "tells", "tells_dropped", "fences")
UNSAID = dict.fromkeys(("handle", "epoch", "abort", "replica", "bytes16", "more"), 0) | {"owner": 1}
#: From the choice of a peer to the last entry of its packet: 3 cycles for each, and the ways.
PACKET_CYCLES = 3 * NEWS_ENTRIES + 12
NOTHING = {"told": 0, "turn": 0, "left": 0}  # word of the ledger


def word(bits):
    """A bit for each of these truths, the first lowest."""
    return sum(bool(bit) << n for n, bit in enumerate(bits))


def of_ranks(ranks):
    """A bit for each of these ranks."""
    return sum(1 << rank for rank in {*ranks})


class ProducerRig(Rig):
    """Everything around ProducerControl, and the checks.

    ``rate``: chance of a store per cycle; ``peek``: of software reading an entry; ``prompt``: of a
    credit that is there being shown, ``unasked``: the same of one that nobody asked for; ``hops``:
    registers on the way to decoders and packet managers and on the way back, 0 or 1; ``slow``:
    ranks whose packets never leave; ``stuck``: the same for a (packet manager, rank); ``broke``:
    ranks that give no credit back; ``dead``: ranks in state DRAIN; ``halted``: nothing leaves the
    decoders; ``ledger_stands``: it takes no updates.
    """

    block = ProducerControl

    def __init__(
        self, dut, salt, idle=None, stall=None, rate=0.5, peek=0.03, hops=None, prompt=0.2
    ):
        super().__init__(dut, salt, idle, stall)
        self.i_command.on_item(self._command)
        self.o_response.on_item(self._answer)
        self.o_news.on_item(self._beat)
        self.o_announce.on_item(self._announced)
        self.o_announce.set_pause("none")
        self.rate, self.peek, self.prompt = rate, peek, prompt
        self.rank = self.rng.randrange(self.cfg.ranks)
        self.hops = self.rng.randrange(2) if hops is None else hops
        self.slow, self.broke, self.dead, self.stuck = set(), set(), set(), set()
        self.halted, self.merges_stand, self.ledger_stands, self.unasked = False, False, False, 0.02
        self.traffic = Traffic(self.cfg, self.rng, 0)
        self.clear()
        self.add(self)

    # -- agent -------------------------------------------------------------------------------------

    def clear(self, forget=True):
        cfg = self.cfg
        self.model = ProducerModel(cfg)
        self.view = {}  # what the decoders know: {handle: (entry, hold)}
        self.lanes = [Pipe(8) for _ in range(cfg.lanes)]
        self.merges = [Pipe(2) for _ in range(cfg.loop_lanes)]
        self.pools = [[] for _ in range(cfg.slices)]
        self.ledger, self.queues = {}, [deque() for _ in range(cfg.slices)]
        self.word = self.shown_word = NOTHING
        self.pace = 0.3
        self.older = 0  # updates in front of the ledger at the last flush
        self.accepted = Counter()  # bytes of (dest, epoch) that a close must carry
        self.number = 0
        self.csr, self.reads, self.jobs = {}, deque(), []
        self.asks, self.ways = deque(), {}  # reads of software; what is in the hub's registers
        self.marks, self.fences, self.memories = Marks(self), Fences(), Memories(self)
        self.peers, self.software = Peers(self), Software(self)
        self.counted = dict.fromkeys(COUNTS, 0)
        self.open, self.running = {}, None  # commands without answer by tag; the last close taken
        self.credits, self.due = dict.fromkeys(range(cfg.ranks), 2), []  # due back: (cycle, rank)
        self.may_send, self.wanted = set(), 0  # shown in this cycle; asked for in the one before
        self.claims, self.beats = (
            deque(),
            [],
        )  # ranks whose packets come; beats of the one that does
        self.sunk = 0
        self.last_dead = {}
        self.reasons, self.answered = [], []
        self.messages, self.dropped, self.stamps, self.turns = [], 0, [], []
        self.entries = []  # what has come in packets: (rank, entry)
        self.exact = None  # stores keep what is told; None: mostly, and some are long
        self.listed, self.lost_tells = Counter(), 0  # tells by handle; those of the dead
        self.unsaid = []  # ANNOUNCEs that were answered OK before the ledger took what they say
        self.packets, self.served = [], []  # entries of each packet; its rank

    def drive(self):
        cfg = self.cfg
        for port, pipes in (("flushing", self.lanes), ("merging", self.merges)):
            self.set(port, self.late(port, word(pipe.older for pipe in pipes)))
        for n, pool in enumerate(self.pools):
            port = f"draining__{n}"
            ranks = of_ranks(store.rank for store in pool if store.marked)
            self.set(port, self.late(port, ranks))
        self.set("ledger_word", self.shown_word)
        self.shown_word = self.word  # two cycles after the read
        self.set("ledger_flushing", int(self.older > 0))
        self.may_send = {
            rank for rank in range(cfg.ranks) if self.credits[rank] and self._shows_credit(rank)
        }
        self.set("may_send", of_ranks(self.may_send))
        self.memories.drive()
        self.set("sunk", self.sunk)
        self.set("peer_dead", of_ranks(self.dead))
        if self.sunk:
            self.fences.sunk(self.cycle)
        self.sunk = 0
        if not self.asks and self.rng.random() < self.peek:
            self.asks.append(self.rng.randrange(cfg.handles))
        ask = {"en": 1, "index": self.asks.popleft()} if self.asks else 0
        self.set("handle_read", ask)
        self.last_dead |= dict.fromkeys(self.dead, self.cycle)

    def sample(self):
        for command in self.open.values():
            if command["op"] in (CommandOp.CLOSE, CommandOp.ANNOUNCE):
                command["reasons"].add(self._refusal(command))
        self._credits()
        self._store()
        self._move()
        self._write_entry()
        self._strobes()
        self.software.look()
        self.peers.look(self.cycle)

    def late(self, way, value):
        """What comes out of the hub's registers on this way."""
        registers = self.ways.setdefault(way, deque([0] * self.hops))
        registers.append(value)
        return registers.popleft()

    def __str__(self):
        return (
            f"world: {len(self.open)} commands open, due {self.model.due}, "
            f"{sum(map(len, self.pools))} entries"
        )

    # -- around the block --------------------------------------------------------------------------

    def _credits(self):
        for event in [event for event in self.due if event[0] <= self.cycle]:
            if event[1] not in self.broke:
                self.due.remove(event)
                self.credits[event[1]] += 1
        if claim := self.strobe("claim"):
            rank = claim["rank"]
            assert self.peers.may_claim(rank), f"claim for rank {rank}, which may not be sent to"
            assert self.credits[rank] > 0
            self.credits[rank] -= 1
            self.may_send.discard(rank)
            self.claims.append(rank)
            assert len(self.claims) <= 2, f"packets begun for {self.claims}"
            cover("producer.own_rank", rank == self.rank)
        self.wanted = self.get("wanted")

    def _shows_credit(self, rank):
        """A credit that was asked for is shown until it is taken, another one now and then."""
        if not self.wanted >> rank & 1:
            return self.rng.random() < self.unasked
        return rank in self.may_send or self.rng.random() < self.prompt

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
        if sum(store.rank == rank for store in self.inside()) >= 24:
            return  # as the crossbar does, by `can_accept`
        # Now and then one stands for many: totals use their whole width.
        few, many = (
            self.rng.randint(1, self.cfg.packet_bytes),
            self.rng.getrandbits(self.cfg.total_width),
        )
        size = self.rng.choice((16, 32, *[few] * 10, many))
        dest = index * self.cfg.replicas + number
        size = self._honest(dest, entry["epoch"], size)
        if size:
            self.store(lane, dest, entry["epoch"], rank, size)

    def store(self, place, dest, epoch, rank, size):
        """A decoder accepts a store, and it is in this lane's queue, or in this packet manager's
        pool."""
        getattr(place, "items", place).append(Store(self.number, dest, epoch, rank, size))
        self.accepted[dest, epoch] += size
        self.number += 1

    def _honest(self, dest, epoch, size):
        """What is left of the promise, mostly; less than the totals can hold, always."""
        already, told = self.accepted[dest, epoch], self.model.told.get(dest)
        size = min(size, (1 << self.cfg.total_width) - 1 - already)
        keeps = self.rng.random() < 0.9 if self.exact is None else self.exact
        if told and told.promise is not None and keeps:
            size = max(0, min(size, told.promise - already))
        return size if self.exact is None else min(size, self.cfg.packet_bytes)

    @property
    def epochs(self):
        """Those of the entries."""
        return {entry["epoch"] for entry in self.model.entries.values()}

    def inside(self):
        """Every store between its acceptance and the ledger's queues."""
        return [
            store
            for items in (*(pipe.items for pipe in (*self.lanes, *self.merges)), *self.pools)
            for store in items
        ]

    def _move(self):
        rng, cfg = self.rng, self.cfg
        for n, lane in enumerate(self.lanes):
            if lane.items and not self.halted and rng.random() < 0.7:
                merge = self.merges[n % cfg.loop_lanes]
                # The own rank's, and some others': to this block all packet managers are alike.
                if lane.items[0].rank != self.rank and lane.items[0].number % 4:
                    self.pools[n].append(lane.leave())
                elif len(merge.items) < merge.depth:
                    merge.items.append(lane.leave())
        for n, merge in enumerate(self.merges):
            if merge.items and not self.merges_stand and rng.random() < 0.6:
                self.pools[cfg.lanes + n].append(merge.leave())
        self._count()
        for n, (pool, queue) in enumerate(zip(self.pools, self.queues, strict=True)):
            for store in [store for store in pool if store.rank in self.dead]:
                pool.remove(store)
                self.accepted[store.dest, store.epoch] -= store.size
                self.sunk = 1
            ready = [
                store
                for store in pool
                if store.rank not in self.slow and (n, store.rank) not in self.stuck
            ]
            if ready and rng.random() < 0.5:
                store = rng.choice(ready)
                pool.remove(store)
                queue.append(store)

    def _count(self):
        """Updates leave the slices' queues for the ledger, which is busy now and then."""
        if self.cycle % 128 == 0:
            self.pace = self.rng.choice((0.3, 0.3, 0.02))
        for queue in self.queues:
            if queue and not self.ledger_stands and self.rng.random() < self.pace:
                store = queue.popleft()
                self._change(store.dest, store.epoch & 1, -store.size)
                self.model.leave(store.dest, store.epoch, store.size)
                self.older -= self.older > 0 and store.number in self.before
        if self.get("ledger_flush"):
            self.before = {store.number for queue in self.queues for store in queue}
            self.older = len(self.before)

    def _change(self, dest, bank, size, turn=None):
        """The ledger's word changes; what is spent then is said once."""
        word = dict(self.ledger.get((dest, bank), NOTHING))
        was = word["told"] and word["left"] <= 0
        word["left"] += size
        if turn is not None:
            word |= {"told": 1, "turn": turn}
        self.ledger[dest, bank] = word
        if word["told"] and word["left"] <= 0 and not was:
            self.i_spent.put({"dest": dest, "bank": bank, "turn": word["turn"]})

    def _says(self, command, item):
        """Whether it is an ANNOUNCE that has not been told, and means this."""
        epoch = command["epoch"]
        means = {
            "dest": command["handle"] * self.cfg.replicas + command["replica"],
            "bank": epoch & 1,
            "turn": epoch >> 1 & 1,
            "bytes16": command["bytes16"],
        }
        return command["op"] == CommandOp.ANNOUNCE and not command["told"] and means == item

    def _accept(self, item):
        """The first command that says this, and may be accepted, is told."""
        said = [one for one in (*self.unsaid, *self.open.values()) if self._says(one, item)]
        assert said, f"no command says {item}: {list(self.open.values())}"
        # The item has two bits of the epoch: one that is refused may say the same.
        fit = [one for one in said if Reason.OK in one["reasons"] | {self._refusal(one)}]
        assert fit, f"accepted, but is to be refused: {said}"
        fit[0]["told"] = item
        self.unsaid = [one for one in self.unsaid if not one["told"]]

    def _announced(self, item, cycle):
        """An accepted tell: what the ledger is told is what the command said."""
        self._accept(item)
        index, replica = divmod(item["dest"], self.cfg.replicas)
        size = 16 * item["bytes16"]
        self.model.announce(index, replica, size)
        self.listed[index] += 1
        self._change(item["dest"], item["bank"], size, item["turn"])
        cover("producer.told_late", self.model.told[item["dest"]].spent)

    def _write_entry(self):
        write = self.strobe("o_handle_write")
        if known := self.late("table", write):
            self.view[known["index"]] = known["handle"], known["hold"]
        if not write:
            assert self.cycle not in self.csr, (
                "a write of software was not broadcast after 2 cycles"
            )
            return
        index, entry = write["index"], write["handle"]
        if self.cycle in self.csr:
            wanted = self.csr.pop(self.cycle)
            self.model.write(*wanted)
        elif entry == self.model.entries[index] and self.reads:
            self.model.bank_read(*self.reads.popleft())
        elif entry == self.model.entries[index]:
            assert self.listed[index], f"a tell of handle {index} that was not listed"
            self.listed[index] -= 1
        else:
            self._closed(index)
        assert entry == self.model.entries[index], (
            f"broadcast {entry}\n expected {self.model.entries[index]}"
        )
        assert write["hold"] == self.model.held(index), f"hold of handle {index}"

    def _closed(self, index):
        """A handle closes: for a command, or by itself when its promises are spent, or both."""
        command, now = self.running or {"op": None}, self.model.entries[index]
        meant = (
            command["op"] is not None
            and command["tag"] in self.open
            and command["epoch"] == now["epoch"]
            and (command["handle"] == index or command["op"] != CommandOp.CLOSE)
            and self.model.refusal(index, command["epoch"], command["owner"]) == Reason.OK
        )
        if meant and command["op"] == CommandOp.ANNOUNCE_ALL:
            self.model.announce_rest(index)
        by_itself = self.model.closes_itself(index)
        asked = meant and command["op"] in (CommandOp.CLOSE, CommandOp.CLOSE_ALL)
        assert by_itself or asked, f"handle {index} closed without a cause, for {command}"
        abort = asked and command["op"] == CommandOp.CLOSE and bool(command["abort"])
        self.marks.close(index, now["epoch"], self.cycle)
        self.model.close(index, None if by_itself and abort else abort)
        if asked:
            command["closed"].add(index)
            command["perhaps"] |= {index} if by_itself else set()
        for one in self.open.values():
            one["moved"] |= by_itself and self.model.entries[index]["epoch"] == one["epoch"]
        cover("producer.closes_itself", not asked)
        cover("producer.closes_itself_asked", by_itself and asked)

    def _strobes(self):
        cfg = self.cfg
        for port, told, pipes in (
            ("o_flush", self.marks.flush, self.lanes),
            ("o_flush_merge", self.marks.flush_merge, self.merges),
        ):
            flush = self.get(port)
            if flush:
                told()
            if self.late(port, flush):
                for pipe in pipes:
                    pipe.flush()
        mark = self.strobe("o_mark")
        if mark and (fences := self.marks.mark(mark)) is not None:
            self.fences.group(fences, self.cycle)
        if self.get("o_remote"):
            self.memories.ask()
        if mark := self.late("mark", mark):
            for store in (store for pool in self.pools for store in pool):
                store.marked |= bool(mark["all"] or store.dest // cfg.replicas == mark["handle"])
        if read := self.strobe("ledger_read"):
            self._read(read["dest"], read["bank"])
        counts = self.get("counts")
        for name, on in counts.items():
            self.counted[name] += on
        if counts["closes_dropped"]:
            # Drops come a fixed time after the reads; a message of the same peer may still wait for
            # the link.
            job = next((job for job in self.jobs if job[3] == self.cycle - LEDGER_CYCLES), None)
            assert job is not None and self._was_dead(job[0]), f"dropped {job}"
            self.jobs.remove(job)
            self.dropped += 1
            cover("producer.dropped")
        if counts["tells_dropped"]:
            dead = [
                rank for rank, tells in self.model.tells.items() if tells and self._was_dead(rank)
            ]
            assert dead, "dropped a tell of a peer that is not dead"
            self.lost_tells += 1
            cover("producer.tell_dropped")

    def _was_dead(self, rank):
        """Whether what is dropped now may be this rank's: it was dead when its packet was begun."""
        return self.cycle - self.last_dead.get(rank, -PACKET_CYCLES) < PACKET_CYCLES

    def _read(self, dest, bank):
        """A close takes its word of the ledger, when all its bytes are in it."""
        modulus, key = 2 << self.cfg.total_width, (dest, bank)
        word = self.ledger.pop(key, NOTHING)
        self.word = word | {"left": word["left"] % modulus}
        ranks = [
            rank
            for rank, due in self.model.due.items()
            if due and (due[0]["dest"], due[0]["epoch"] & 1) == key
        ]
        assert ranks, f"dest, bank {key} read out of turn; due: {self.model.due}"
        close, rank = self.model.sent(ranks[0]), ranks[0]
        told, size = close["told"], self.accepted.pop((dest, close["epoch"]), 0)
        promised = 0 if told.promise is None or told.rest else told.promise
        assert word["left"] == promised - size, f"{close}: {word}, {size} bytes accepted"
        cover("producer.ragged", size % 16)
        cover("producer.zero_rows", size == 0)
        entry = self.model.entry(close, size)
        cover("producer.kept", told.promise is not None and not entry["short"] | entry["over"])
        for name in ("short", "over", "abort"):
            cover(f"producer.{name}", entry[name])
        self.jobs.append((rank, entry, close["abort"] is None, self.cycle))
        self.peers.read(rank, dest, close["epoch"])
        self.reads.append((dest // self.cfg.replicas * self.cfg.replicas, bank))
        self.stamps.append(self.cycle)
        self.turns.append(rank)
        self.moved()

    def _beat(self, beat, cycle):
        """A beat of a NEWS packet; with the last one its entries are compared with what was read,
        and with what was told."""
        self.beats.append(beat)
        if not beat["last"]:
            return
        rank = self.claims.popleft()
        entries, self.beats = news_of(self.cfg, self.beats, rank), []
        for entry in entries:
            if entry["close"]:
                to, wanted, any_abort, _ = self.jobs.pop(0)
                wanted = wanted | ({"abort": entry["abort"]} if any_abort else {})
                assert (to, wanted) == (rank, entry), f"rank {rank}: {entry}\n expected {wanted}"
                self.messages.append((rank, entry["region"], entry["epoch"]))
            else:
                self._told(rank, entry)
            self.entries.append((rank, entry))
        self.due.append((cycle + self.rng.randint(6, 20), rank))
        self.packets.append(len(entries))
        self.served.append(rank)
        cover("producer.full_packet", len(entries) == 16)
        cover("producer.odd_packet", len(entries) % 2)
        cover("producer.tells_and_closes", len({entry["close"] for entry in entries}) == 2)

    def _told(self, rank, entry):
        """The next tell of this rank; those of a peer that was dead may be lost."""
        tells = self.model.tells.get(rank, [])
        while tells:
            tell = dict.fromkeys(entry, 0) | tells.pop(0) | {"tell": 1}
            size = tell.pop("bytes")
            if entry == tell | {"bytes16": size // 16}:
                return
            assert self.lost_tells and rank in self.last_dead, f"{entry}\n expected {tell}"
            self.lost_tells -= 1
        raise AssertionError(f"rank {rank}: a tell too many: {entry}")

    # -- commands ----------------------------------------------------------------------------------

    def _refusal(self, command):
        """Reason for which a command of one handle is refused now."""
        replica = command["replica"] if command["op"] == CommandOp.ANNOUNCE else None
        return self.model.refusal(command["handle"], command["epoch"], command["owner"], replica)

    def _command(self, item, cycle):
        command = {**item, "limit": self.number, "closed": set(), "perhaps": set(), "told": None}
        command |= {"cycle": cycle, "moved": False}
        if item["op"] in (CommandOp.CLOSE, CommandOp.ANNOUNCE):
            command["reasons"] = {self._refusal(command)}
        if item["op"] in (CommandOp.CLOSE_ALL, CommandOp.ANNOUNCE_ALL):
            command["members"] = set(self.model.members(item["epoch"], item["owner"]))
            command["held"] = {index for index in command["members"] if self.model.held(index)}
        assert item["tag"] not in self.open
        self.open[item["tag"]] = command
        if item["op"] not in FENCES:
            self.running = command

    def _answer(self, answer, cycle):
        command = self.open.pop(answer["tag"], None)
        assert command is not None, f"cycle {cycle}: an answer without a command: {answer}"
        status = Reason(answer["status"])
        self.reasons.append(status)
        self.answered.append(command | {"status": status})
        op = command["op"]
        if op in FENCES:
            left = [store for store in self.inside() if store.number < command["limit"]]
            assert not left, f"fence answered, {len(left)} older stores inside"
            self.fences.answer(command, status, cycle, self.memories)
        elif op == CommandOp.CLOSE:
            refusals = (command["reasons"] | {self._refusal(command)}) - {Reason.OK}
            wanted = {Reason.OK} if command["closed"] else refusals
            wanted |= {Reason.AFTER_CLOSE} if command["perhaps"] else set()
            assert status in wanted, f"{command} answered {status!r}, expected {wanted}"
        elif op == CommandOp.ANNOUNCE:
            refusals = (command["reasons"] | {self._refusal(command)}) - {Reason.OK}
            if command["told"] and status in refusals:  # then it was a later one that says the same
                self._accept(command["told"])
                command["told"] = None
            waits = not command["told"] and not refusals and self.o_announce.port.is_valid()
            if waits:  # the ledger takes what was accepted before
                self.unsaid.append(command)
                refusals = {Reason.OK}
            wanted = {Reason.OK} if command["told"] else refusals
            assert status in wanted, f"{command} answered {status!r}, expected {wanted}"
        elif op == CommandOp.CLOSE_ALL:
            missed = command["members"] - command["closed"]
            left = {
                index for index in missed if self.model.entries[index]["epoch"] == command["epoch"]
            }
            assert left <= command["held"], f"CLOSE_ALL left out {left - command['held']}"
            wanted = {Reason.EPOCH_EARLY if left else Reason.OK}
            # While the answer waits, what was met held may be closed by the next command.
            early = command["moved"] or missed & command["held"]
            wanted |= {Reason.EPOCH_EARLY} if early else set()
            assert status in wanted, f"{command} answered {status!r}, left {left}"
            cover("producer.close_all_held", left)
        elif op == CommandOp.ANNOUNCE_ALL:
            early = status == Reason.EPOCH_EARLY and (command["held"] or command["moved"])
            assert status == Reason.OK or early, f"{command} answered {status!r}"
            # A held handle has told nothing: told the rest, it would have closed.
            for index in command["members"] - command["held"]:
                if self.model.entries[index]["epoch"] == command["epoch"]:
                    self.model.announce_rest(index)
        else:
            assert status == Reason.UNKNOWN
        name = CommandOp(op).name if op in list(CommandOp) else "NONE"
        cover(f"producer.answer.{name}.{status.name}")

    def command(self, op, **fields):
        """Queues a command with a free tag; returns False when none is free."""
        used = set(self.open) | {item["tag"] for _, item, _ in self.i_command._queue}
        if self.i_command._offered is not None:
            used.add(self.i_command._offered[1]["tag"])
        free = [tag for tag in range(1 << min(self.cfg.tag_width, 6)) if tag not in used]
        if free:
            self.i_command.put({**UNSAID, "op": int(op), "tag": free[0], **fields})
        return bool(free)

    async def do(self, op, **fields):
        """One command and its answer."""
        before = self.o_response.count
        assert self.command(op, **fields)
        await self.until(
            lambda: self.o_response.count > before, what=f"answer to {CommandOp(op).name}"
        )
        return self.reasons[-1]

    async def close(self, handle, epoch, **fields):
        return await self.do(CommandOp.CLOSE, handle=handle, epoch=epoch, **fields)

    async def announce(self, handle, epoch, size, replica=0, **fields):
        """A tell of ``size`` bytes."""
        fields = {"bytes16": size // 16, "replica": replica, **fields}
        return await self.do(CommandOp.ANNOUNCE, handle=handle, epoch=epoch, **fields)

    async def announce_all(self, epoch):
        return await self.do(CommandOp.ANNOUNCE_ALL, epoch=epoch)

    async def close_all(self, epoch):
        return await self.do(CommandOp.CLOSE_ALL, epoch=epoch)

    async def fence(self, remote=False):
        return await self.do(CommandOp.FENCE_REMOTE if remote else CommandOp.FENCE)

    def entry(self, **fields):
        """A random entry but for these fields."""
        return self.traffic.entry(1) | {"owner": self.rng.choice((1, 1, 1, 2))} | fields

    def mine(self, **fields):
        """One of the owner whose commands come."""
        return self.entry(owner=1, **fields)

    def all_to(self, rank):
        """All replicas there."""
        return [{"rank": rank, "region": 0}] * self.cfg.replicas

    async def write(self, index, entry, settle=0):
        """Software writes an entry; after four cycles the decoders know it."""
        self.csr[self.cycle + 2] = (index, entry)
        await self.pulse("handle_write", index=index, handle=entry)
        await self.cycles(settle)

    async def write_all(self, entries):
        """The whole table."""
        for index, entry in enumerate(entries):
            await self.write(index, entry)

    async def read_back(self, index):
        """Software reads an entry; what it sees is looked at in every cycle."""
        self.asks.append(index)
        await self.cycles(4)

    async def start(self, entries=True, **fields):
        """Reset, cleared tables, an entry for every handle; ``fields`` of all of them."""
        await super().start()
        if entries:
            await self.write_all([self.entry(**fields) for _ in range(self.cfg.handles)])
        await self.cycles(3)

    async def idle(self, limit=20000):
        """All commands answered, all closes sent."""
        self.slow, self.broke, self.stuck, self.halted = set(), set(), set(), False
        rate, self.rate = self.rate, 0
        await self.until(lambda: not self.open and not self.i_command.pending, limit, "all answers")
        await self.until(lambda: not self.inside() and not any(self.queues), limit, "all stores")
        await self.until(
            lambda: not any(map(self.model.closes_itself, self.model.entries)), limit, "all closed"
        )
        await self.until(
            lambda: not any(self.model.due.values()) and not self.jobs, limit, "all closes sent"
        )
        await self.until(
            lambda: sum(map(len, self.model.tells.values())) == self.lost_tells, limit, "all tells"
        )
        await self.cycles(30)
        self.marks.finish()
        assert not self.unsaid, f"answered OK, but not told: {self.unsaid}"
        assert not any(self.model.unsent.values()) and not self.reads
        assert not self.get("pending")
        fences = sum(one["op"] in FENCES for one in self.answered)
        tells = sum(not entry["close"] for _, entry in self.entries)
        wanted = {"closes": len(self.messages), "closes_dropped": self.dropped, "fences": fences}
        wanted |= {"tells": tells, "tells_dropped": self.counted["tells_dropped"]}
        assert self.counted == wanted, f"counted {self.counted}, expected {wanted}"
        self.rate = rate
