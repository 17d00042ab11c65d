# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the send ledger."""

from collections import Counter, deque

import cocotb

from hub_rtl.producer.ledger import PLACES, SendLedger, ledger_banks
from hub_rtl.producer.records import SUM
from sim.bench.rig import Rig
from sim.quality.coverage import cover

ASKED = 12  # words that slices send for, the others are told and read only


class LedgerRig(Rig):
    """The ledger, what all have told it and what it must still say is spent."""

    block = SendLedger

    def __init__(self, dut, salt, **options):
        super().__init__(dut, salt, **options)
        self.left, self.told, self.spent, self.named = Counter(), {}, set(), Counter()
        self.last = None  # for which a packet was sent
        self._reads = deque()  # (cycle, key, word) that will show
        self.keys = [(dest, bank) for dest in range(self.cfg.dests) for bank in range(2)]
        self.i_announce.on_item(self._announce)
        self.o_spent.on_item(lambda item, _: self._spent(**item))

    def _announce(self, item, _):
        key = item["dest"], item["bank"]
        self.told[key] = item["turn"]
        self.left[key] += 16 * item["bytes16"]
        cover("producer.ledger.told_late", self.left[key] <= 0 and item["bytes16"])
        self._note(key)

    def _spent(self, dest, bank, turn):
        assert turn == self.told[dest, bank]
        self.named[dest, bank] += 1

    def _note(self, key):
        if key in self.told and self.left[key] <= 0:
            self.spent.add(key)

    async def traffic(self, cycles, busy, keys=None, slices=None, aside=False, whole=False):
        """Packets that the slices began while they did not hold, two cycles before at least.
        ``keys``: one for each slice, where it sends to one destination only. ``slices``: those that
        send. ``aside``: words that nobody sends for are told and read meanwhile. ``whole``: all
        packets are full."""
        self.sent = Counter()
        holds = deque([-1])  # what is read here was shown in the cycle before
        for _ in range(cycles):
            holds.append(self.get("hold"))
            hold = holds.popleft()
            cover("producer.ledger.hold", hold not in (-1, 0))
            for n in range(self.cfg.slices):
                key = keys[n] if keys else self.rng.choice(self.keys[:ASKED])
                size = self.rng.randint(
                    self.cfg.packet_bytes if whole else 1, self.cfg.packet_bytes
                )
                sent = {"en": 0, "dest": key[0], "bank": key[1], "bytes": size}
                sends = slices is None or n in slices
                if sends and not hold >> n & 1 and self.rng.random() < busy:
                    sent["en"] = 1
                    self.left[key] -= size
                    self.sent[n] += size
                    self.last = key
                    self._note(key)
                self.set(f"sent__{n}", sent)
            if aside:
                await self._aside()
            await self.cycles(1)
        for n in range(self.cfg.slices):
            self.set(f"sent__{n}", 0)
        if aside:
            self.set("read", 0)
            self._reads.clear()

    async def _aside(self):
        """At times a word that nobody sends for is told more, or read; what was read shows two
        cycles later."""
        self.set("read", 0)
        if self._reads and self._reads[0][0] == self.cycle:
            _, key, wanted = self._reads.popleft()
            await self.sampled()
            word = self.get("word")
            assert {name: word[name] for name in wanted} == wanted, f"{key}: {word}"
            return
        quiet = self.keys[ASKED:]
        if not quiet or self._reads:
            return
        key = self.rng.choice(quiet)
        if self.rng.random() < 0.1 and not self.i_announce.pending:
            self.i_announce.put(
                {"dest": key[0], "bank": key[1], "turn": 1, "bytes16": 1 + self.rng.getrandbits(20)}
            )
        elif self.rng.random() < 0.2:
            self.set("read", {"en": 1, "dest": key[0], "bank": key[1]})
            wanted = {"told": int(key in self.told), "left": self.left.pop(key, 0)}
            self.told.pop(key, None)
            self._reads.append((self.cycle + 2, key, wanted))

    async def read(self, key, flush=True):
        """The word behind a flush, of its own or the last one."""
        if flush:
            await self.pulse("flush")
            await self.cycles(1)  # `flushing` shows behind it
        await self.until(lambda: not self.get("flushing"), 400, "end of the flush")
        await self.pulse("read", dest=key[0], bank=key[1])
        await self.cycles(1)
        await self.sampled()
        word = self.get("word")
        await self.cycles(self.rng.randint(1, 3))
        await self.sampled()
        assert self.get("word") == word, "it stays until the next one is read"
        await self.cycles(1)
        return word


@LedgerRig.test(cases={"stall": ["none", "random"]})
async def words(rig, cfg, rng, stall):
    """Updates of all slices, announcements and clearing reads: a read behind a flush shows promise
    less bytes; each promise is spent once, when its bytes have left, and a slice that does not hold
    loses nothing."""
    rig.o_spent.set_pause(stall, rng)
    for _ in range(60):
        key = rng.choice(rig.keys[:ASKED])
        if key not in rig.told and not rig.i_announce.pending:
            units = rng.choice((0, 1, 8, 40, 200, rng.getrandbits(30)))
            turn = rng.randrange(2)
            rig.i_announce.put({"dest": key[0], "bank": key[1], "turn": turn, "bytes16": units})
        busy = rng.sample(range(cfg.slices), rng.randint(1, cfg.slices))
        await rig.traffic(rng.randrange(60), rng.choice((0.05, 0.9)), slices=busy, aside=True)
        await rig.until(lambda: not rig.i_announce.pending, 200, "the announcement")
        key = rng.choice(rig.keys[:ASKED])
        word, left = await rig.read(key), rig.left.pop(key, 0)
        wanted = {"told": int(key in rig.told), "left": left % (1 << cfg.total_width + 1)}
        assert word == wanted | {"turn": rig.told.get(key, word["turn"])}, f"{key}: {left}"
        cover("producer.ledger.over", word["told"] and left < 0)
        cover("producer.ledger.short", word["told"] and left > 0)
        await rig.until(lambda: rig.named == Counter(rig.spent), 400, f"{rig.spent}, {rig.named}")
        rig.told.pop(key, None)
        rig.spent.discard(key)
        rig.named.pop(key, None)
    cover("producer.ledger.clear")


async def stopped(rig, keys, turn=0):
    """Nobody takes what is spent, and these keys are spent as they are told: until a memory takes
    nothing more. Returns its number."""
    rig.o_spent.set_pause("stop")
    for dest, bank in keys:
        rig.i_announce.put({"dest": dest, "bank": bank, "turn": turn, "bytes16": 0})
    before = rig.i_announce.count
    await rig.cycles(40)
    assert rig.i_announce.pending, "the memories go on"
    return keys[rig.i_announce.count - before][0] % ledger_banks(rig.cfg)


@LedgerRig.test(fits=lambda cfg: cfg.dests > 7)
async def piles_up(rig, cfg, rng):
    """Nobody takes what is spent: the memories stop, packets of a destination add up in each
    slice's queue, and none is kept back; a flush waits. Then all is told, once, and every sum is
    right to the byte."""
    for turn in range(6):
        keys = rng.sample(rig.keys, len(rig.keys))
        sending = (keys[-4:] * cfg.slices)[: cfg.slices]
        still, taken = await stopped(rig, keys[:-4], turn & 1), rig.i_announce.count
        await rig.traffic(rng.choice((30, 300)), 0.9, sending)
        assert not rig.get("hold"), "two places are enough for one destination"
        assert rig.i_announce.count == taken, "the memories go on"
        await rig.pulse("flush")
        await rig.cycles(60)
        waits = any(dest % ledger_banks(cfg) == still for dest, _ in sending)
        assert rig.get("flushing") or not waits, "updates wait"
        rig.o_spent.set_pause(rng.choice((None, "random")), rng)
        for dest, bank in set(sending):
            units = max(0, -rig.left[dest, bank]) // 16 + rng.choice((-40, -1, 0, 1, 40))
            rig.i_announce.put(
                {"dest": dest, "bank": bank, "turn": turn & 1, "bytes16": max(0, units)}
            )
        await rig.until(lambda: not rig.i_announce.pending, 400, "the announcements")
        await rig.cycles(60)
        for key in keys:
            word, left = await rig.read(key), rig.left.pop(key, 0)
            assert word["left"] == left % (1 << cfg.total_width + 1), f"{key}: {left}"
            assert word["told"] == (key in rig.told)
            rig.told.pop(key, None)
        assert rig.named == Counter(rig.spent), f"{rig.spent}, {rig.named}"
        rig.spent.clear()
        rig.named.clear()
    cover("producer.ledger.piled")


@LedgerRig.test(fits=lambda cfg: cfg.dests > 7)
async def waits_long(rig, cfg, rng):
    """Nobody takes what is spent for longer than a sum can count: each slice that sends is held at
    half of it, no earlier, and every sum is right to the byte."""
    for turn in range(2):
        keys = rng.sample(rig.keys, len(rig.keys))
        banks = ledger_banks(cfg)
        still = await stopped(rig, keys[:-4], turn)
        key = next(key for key in keys if key[0] % banks == still)
        bound, packets = 1 << SUM - 1, (1 << SUM) // cfg.packet_bytes
        await rig.traffic(packets + 200, 1, [key] * cfg.slices, whole=True)
        assert rig.get("hold") == (1 << cfg.slices) - 1, "each slice waits"
        for n in range(cfg.slices):  # the place that is offered has one packet or two
            assert bound <= rig.sent[n] <= bound + 5 * cfg.packet_bytes, rig.sent
        rig.o_spent.set_pause(None)
        await rig.until(lambda: not rig.i_announce.pending, 400, "the announcements")
        await rig.until(lambda: not rig.get("hold"), 60, "the end of holding")
        for each in rig.keys:
            left = (await rig.read(each))["left"]
            assert left == rig.left.pop(each, 0) % (1 << cfg.total_width + 1), each
        for state in (rig.told, rig.spent, rig.named):
            state.clear()
    cover("producer.ledger.waits_long")


@LedgerRig.test(fits=lambda cfg: cfg.dests > 7)
async def flushes(rig, cfg, rng):
    """A flush while a memory stands: it ends when all that was sent before is in the words, be it
    one packet or five places of one slice; who reads then sees the last one."""
    banks = ledger_banks(cfg)
    for turn in range(40):
        keys = rng.sample(rig.keys, len(rig.keys))
        still, slice = await stopped(rig, keys[:-4], turn & 1), rng.randrange(cfg.slices)
        if turn & 1:
            dest, bank = rig.last = next(key for key in rig.keys if key[0] % banks == still)
            await rig.pulse(f"sent__{slice}", dest=dest, bank=bank, bytes=1 + turn)
            rig.left[dest, bank] -= 1 + turn
            rig._note((dest, bank))
            await rig.cycles(6)
        else:
            await rig.traffic(60, 0.9, slices=[slice])
        await rig.pulse("flush")
        await rig.cycles(rng.randint(3, 20))
        assert rig.get("flushing") or rig.last[0] % banks != still
        rig.o_spent.set_pause(rng.choice((None, "random")), rng)
        last = rig.last
        others = [key for key in rig.keys if key != last and (key[0] - last[0]) % banks == 0]
        busy = cocotb.start_soon(  # they have their turns before it
            rig.traffic(
                100,
                0.95,
                [rng.choice(others) for _ in range(cfg.slices)],
                [n for n in range(cfg.slices) if n != slice],
            )
        )
        left = rig.left.pop(last)
        word = await rig.read(last, flush=False)
        assert word["left"] == left % (1 << cfg.total_width + 1), f"{last}: {left}, {word}"
        await busy
        await rig.until(lambda: not rig.i_announce.pending, 400, "the announcements")
        await rig.cycles(60)
        for key in rig.keys:
            await rig.read(key)
        for state in (rig.left, rig.told, rig.spent, rig.named):
            state.clear()
    cover("producer.ledger.flush")


@LedgerRig.test(fits=lambda cfg: cfg.dests > 7)
async def jumps(rig, cfg, rng):
    """A promise of which one bit is left, whichever, and then all at once: it is spent."""
    for bit in range(4, 16):
        key, size = rng.choice(rig.keys), cfg.packet_bytes
        still = key[0] % ledger_banks(cfg)
        others = [each for each in rig.keys if each != key and each[0] % ledger_banks(cfg) == still]
        dest, bank = key
        units = (2 * size + (1 << bit)) // 16
        rig.i_announce.put({"dest": dest, "bank": bank, "turn": bit & 1, "bytes16": units})
        await rig.until(lambda: not rig.i_announce.pending, what="the promise")
        await stopped(rig, others)
        parts = [size] * 2 + [size] * ((1 << bit) // size) + [(1 << bit) % size]
        for part in filter(None, parts):
            await rig.pulse("sent__0", dest=dest, bank=bank, bytes=part)
            rig.left[key] -= part
        rig._note(key)
        assert key in rig.spent and not rig.named[key]
        rig.o_spent.set_pause(None)
        await rig.until(lambda: not rig.i_announce.pending, 400, "the announcements")
        await rig.cycles(60)
        assert rig.named == Counter(rig.spent), f"bit {bit}: {rig.spent}, {rig.named}"
        for each in rig.keys:
            word = await rig.read(each)
            assert word["left"] == rig.left.pop(each, 0) == 0, each
            rig.told.pop(each, None)
        rig.spent.clear()
        rig.named.clear()
    cover("producer.ledger.jumps")


async def held_for(rig, slice, keys):
    """Nobody takes what is spent while a slice sends full packets, one in every cycle; then all is
    taken. Returns how many cycles the slice was held behind that, the same whatever came before."""
    await rig.reset()
    rig.o_spent.set_pause("stop")
    await rig.until(lambda: not rig.get("clearing"), what="cleared words")
    for state in (rig.left, rig.told, rig.spent, rig.named):
        state.clear()
    banks, size = ledger_banks(rig.cfg), rig.cfg.packet_bytes
    await stopped(rig, [key for key in rig.keys if (key[0] - keys[0][0]) % banks == 0])
    for at, (dest, bank) in enumerate([keys[0], *keys]):
        rig.set(f"sent__{slice}", {"en": 1, "dest": dest, "bank": bank, "bytes": size})
        rig.left[dest, bank] -= size
        rig._note((dest, bank))
        await rig.cycles(1)
        rig.set(f"sent__{slice}", 0)
        if not at:  # it goes to where the memory takes updates from: those behind it wait
            await rig.cycles(6)
    await rig.cycles(4)
    rig.o_spent.set_pause(None)
    begin = rig.cycle
    await rig.until(lambda: not rig.get("hold"), 200, "the end of holding")
    held = rig.cycle - begin
    await rig.until(lambda: not rig.i_announce.pending, 400, "the announcements")
    await rig.cycles(60)
    assert rig.named == Counter(rig.spent), f"{rig.spent}, {rig.named}"
    for key in rig.keys:
        left = (await rig.read(key))["left"]
        assert left == rig.left.pop(key, 0) % (1 << rig.cfg.total_width + 1), key
    return held


@LedgerRig.test(fits=lambda cfg: cfg.dests > 7)
async def joins_what_waits(rig, cfg, rng):
    """A packet joins one of the same word that waits: it takes no place, so its slice is held as
    long as without it, and the sum of both is right to the byte. Also the packets that were on
    their way when their slice was held."""
    for slice in range(cfg.slices):
        first = rng.randrange(cfg.dests)
        banks = ledger_banks(cfg)
        keys = rng.sample([key for key in rig.keys if (key[0] - first) % banks == 0], PLACES - 1)
        for last in range(1, PLACES - 1):
            alone = await held_for(rig, slice, keys[: last + 1])
            for more in range(1, PLACES - last):
                held = await held_for(rig, slice, keys[: last + 1] + keys[last : last + 1] * more)
                assert held == alone, f"slice {slice}, place {last}, {more} more: {held}, {alone}"
    cover("producer.ledger.joins")


@LedgerRig.test()
async def slices_in_turn(rig, cfg, rng):
    """Slices that send all the time have as many packets taken, each; none is passed over. A flush
    ends meanwhile, when what waited before it has had its turn."""
    counts, since = Counter(), 0
    for cycle in range(1200):
        hold = rig.get("hold")
        since = since + 1 if rig.get("flushing") else 0
        assert since <= (PLACES + 1) * cfg.slices + 4, f"it flushes for {since} cycles"
        await rig.cycles(1)
        rig.set("flush", cycle % 100 == 70)
        for n in range(cfg.slices):
            sent = 0
            if not hold >> n & 1:
                dest, bank = rng.choice(rig.keys)
                sent = {"en": 1, "dest": dest, "bank": bank, "bytes": 16}
                rig.left[dest, bank] -= 16
                counts[n] += 1
            rig.set(f"sent__{n}", sent)
        await rig.sampled()
    await rig.cycles(1)
    for n in range(cfg.slices):
        rig.set(f"sent__{n}", 0)
    assert min(counts[n] for n in range(cfg.slices)) > 0.75 * max(counts.values()), counts
    for key in rig.keys:
        left = (await rig.read(key))["left"]
        assert left == rig.left.pop(key, 0) % (1 << cfg.total_width + 1), key


@LedgerRig.test()
async def reset_forgets(rig, cfg, rng):
    """Reset in traffic: whatever was in words, queues and registers, all words are 0, nothing is
    spent, no flush goes on; it takes a cycle per word of a memory."""
    for turn in range(4):
        for dest, bank in rng.sample(rig.keys, len(rig.keys)):
            rig.i_announce.put({"dest": dest, "bank": bank, "turn": 1, "bytes16": turn})
        rig.o_spent.set_pause("stop" if turn & 1 else None)
        await rig.traffic(rng.randrange(40, 80), 0.9)
        if turn & 2:
            await rig.pulse("flush")
        await rig.reset()
        await rig.sampled()
        assert not rig.get("flushing")
        await rig.cycles(1)
        for state in (rig.left, rig.told, rig.spent, rig.named):
            state.clear()
        rig.o_spent.set_pause(None)
        begin = rig.cycle - 1
        await rig.until(lambda: not rig.get("clearing"), what="cleared words")
        depth = 2 * -(-cfg.dests // ledger_banks(cfg))
        assert depth <= rig.cycle - begin <= depth + 3, rig.cycle - begin
        assert not rig.get("flushing") and not rig.get("hold")
        await rig.cycles(1)
        for key in rig.keys:
            word = await rig.read(key)
            assert word == {"told": 0, "turn": 0, "left": 0}, key
        assert not rig.named
    cover("producer.ledger.reset")
