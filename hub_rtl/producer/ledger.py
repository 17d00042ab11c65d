# SPDX-License-Identifier: Apache-2.0
"""SendLedger: of each destination and epoch bank, what was promised less what was sent, on the
producer's side."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import UNIT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.stream import StreamMerge, StreamStage

from .records import producer_types_of

__all__ = ["LEDGER_CYCLES", "LedgerBank", "SendLedger", "SentQueue", "SpentQueue", "ledger_banks"]

LEDGER_CYCLES = 2  # from a read to its word
PLACES = 5  # of a slice's queue; the last two are for the packets on their way
SLICES = 6  # that share a bank: their full packets take nine cycles


def ledger_banks(cfg):
    """Memories of the ledger, a power of two."""
    return 1 << (-(-cfg.slices // SLICES) - 1).bit_length()


class SentQueueObserve(NamedTuple):
    """What a proof may see of a :class:`SentQueue`."""

    places: list  #: updates, the oldest first
    filled: Signal  #: bit n: place n is there; a thermometer
    older: Signal  #: the same, of what waited at the last flush


class LedgerBankObserve(NamedTuple):
    """What a proof may see of a :class:`LedgerBank`."""

    words: Ram  #: {told, left} by address
    second: Signal  #: operation whose word the memory gives
    third: Signal  #: operation whose word is changed and written
    word: Signal  #: that word
    new: Signal  #: as it becomes


class SentQueue(wiring.Component):
    """What one packet manager has sent, on its way to the ledger.

    Contract: an update of the same (dest, bank) as one that waits is added to it, unless that is
    offered; else it waits behind all others. ``hold`` is 1 when few places are left, or one counts
    half of what it can: the slice begins no packet meanwhile, then those on their way find a place
    that can count them and nothing is lost. ``flushing`` is 1 from the cycle after ``flush`` until
    all that waited then has left. Latency one cycle, one update per cycle.

    Parameters: ``cfg``. Ports: ``sent`` In, record ``sent``; ``o`` Out stream(``sent_sum``);
    ``hold`` Out; ``flush`` In, ``flushing`` Out.
    """

    observe: SentQueueObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "sent": In(types_of(cfg).sent),
                "o": Out(stream.Signature(own.sent_sum)),
                "hold": Out(1),
                "flush": In(1),
                "flushing": Out(1),
            }
        )
        self._sum = own.sent_sum

    def elaborate(self, platform):
        m = Module()
        places = [Signal(self._sum, name=f"place{n}") for n in range(PLACES)]
        filled = Signal(PLACES)  # a thermometer
        many = Cat(place.bytes[-1] for place in places)
        take = Signal()
        sent = self.sent
        key = Cat(sent.bank, sent.dest)
        m.d.comb += [
            self.o.valid.eq(filled[0]),
            self.o.payload.eq(places[0]),
            take.eq(self.o.valid & self.o.ready),
            self.hold.eq(
                filled[PLACES - 3] | mutant("producer.sums_without_end", (filled & many).any(), 0)
            ),
        ]
        older = Signal(PLACES)  # of what waited at the last flush
        self.observe = SentQueueObserve(places, filled, older)
        m.d.comb += self.flushing.eq(older[0])
        m.d.sync += older.eq(Mux(self.flush, filled, older) >> take)
        after = Signal(PLACES)
        m.d.comb += after.eq(Mux(take, filled >> 1, filled))
        moved = [Mux(take, late, early) for early, late in zip(places, places[1:], strict=False)]
        moved.append(places[-1])
        joins = Signal(PLACES)  # what stays, is not offered and has this key: one at most
        for n, (place, now) in enumerate(zip(places, moved, strict=True)):
            stays = Signal(self._sum, name=f"stays{n}")
            is_next = ~after[n] & (after[n - 1] if n else 1)
            m.d.comb += [
                stays.eq(now),
                joins[n].eq(after[n] & (Cat(stays.bank, stays.dest) == key) & (1 if n else take)),
            ]
            m.d.sync += place.eq(stays)
            with m.If(sent.en & joins[n]):
                m.d.sync += place.bytes.eq(
                    mutant("producer.joined_bytes_missed", stays.bytes + sent.bytes, stays.bytes)
                )
            with m.Elif(sent.en & is_next & ~joins.any()):
                m.d.sync += [
                    place.dest.eq(sent.dest),
                    place.bank.eq(sent.bank),
                    place.bytes.eq(sent.bytes),
                ]
            m.d.sync += filled[n].eq(after[n] | (sent.en & is_next & ~joins.any()))
        return m


class LedgerBank(wiring.Component):
    """Per (dest, bank) of its destinations: {told, turn, left}, left = bytes promised - bytes sent;
    one memory with one read and one write port.

    Contract: an update takes its bytes from ``left``; an announcement adds 16 * ``bytes16`` and
    sets ``told`` and ``turn``; ``read`` shows the word as all updates and announcements before have
    left it, and clears ``told`` and ``left``. ``spent`` pulses when ``told`` is set and ``left`` is
    0 or less for the first time since the word was cleared, once. Sums are modulo
    ``2**(total_width + 1)``, signed.

    Latency: ``word`` two cycles after ``read.en``, held until the next read's; ``spent`` 3 cycles
    after what caused it. One operation per cycle: a read goes first, then an announcement, then an
    update; the latter two wait while ``stop``. After reset a walker clears the words: ``clearing``
    is 1, no read may come.

    Parameters: ``cfg``; ``skip``, low bits of a destination that are the same in this bank. Ports:
    ``i_update`` In stream(``sent_sum``), ``i_announce`` In stream(``ledger_announce``), ``stop``
    In; ``read`` In, record ``ledger_read``; ``word`` Out, record ``ledger_word``; ``spent`` Out
    {en, spent}; ``clearing`` Out. Source: our specification, rule R1.
    """

    observe: LedgerBankObserve  # once elaborated

    def __init__(self, cfg, skip=0):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_update": In(stream.Signature(own.sent_sum)),
                "i_announce": In(stream.Signature(own.ledger_announce)),
                "stop": In(1),
                "read": In(own.ledger_read),
                "word": Out(own.ledger_word),
                "spent": Out(own.spent_strobe),
                "clearing": Out(1),
            }
        )
        self._cfg, self._skip = cfg, skip

    def elaborate(self, platform):
        m = Module()
        depth = 2 * -(-self._cfg.dests // (1 << self._skip))
        word = producer_types_of(self._cfg).ledger_word
        m.submodules.words = words = Ram(word, depth, clear=True, bypass=False)
        m.d.comb += self.clearing.eq(words.clearing)
        second = self._choose(m, words)
        self.observe = LedgerBankObserve(words, second, *self._change(m, words, second))
        return m

    def _choose(self, m, words):
        """First cycle: one operation reads its word. Returns it, a cycle later."""
        cfg, read = self._cfg, self.read
        announce, update = self.i_announce, self.i_update
        second = Signal(
            data.StructLayout(
                {
                    "dest": cfg.dest_width,
                    "bank": 1,
                    "write": 1,
                    "read": 1,
                    "tell": 1,
                    "turn": 1,
                    "change": signed(cfg.total_width + 1),
                }
            )
        )
        key = Signal.like(read)
        tells = Signal()
        free = Signal()
        m.d.comb += [
            free.eq(~read.en & ~self.stop & ~words.clearing),
            announce.ready.eq(free),
            update.ready.eq(free & ~announce.valid),
            tells.eq(announce.valid & free),
            key.dest.eq(
                Mux(
                    read.en,
                    read.dest,
                    Mux(announce.valid, announce.payload.dest, update.payload.dest),
                )
            ),
            key.bank.eq(
                Mux(
                    read.en,
                    read.bank,
                    Mux(announce.valid, announce.payload.bank, update.payload.bank),
                )
            ),
            words.r_en.eq(read.en | announce.valid | update.valid),
            words.r_addr.eq(self._address(key)),
        ]
        m.d.sync += [
            second.dest.eq(key.dest),
            second.bank.eq(key.bank),
            second.write.eq(read.en | tells | (update.valid & update.ready)),
            second.read.eq(read.en),
            second.tell.eq(tells),
            second.turn.eq(announce.payload.turn),
            second.change.eq(
                Mux(announce.valid, announce.payload.bytes16 << UNIT, -update.payload.bytes)
            ),
        ]
        return second

    def _address(self, key):
        return Cat(key.bank, key.dest[self._skip :])

    def _change(self, m, words, second):
        """Second cycle: the word is registered. Third: the new one is written. What is changed in
        between is put in the place of what the memory gave. Returns the third cycle's operation,
        its word and the new one."""
        own = producer_types_of(self._cfg)
        third = Signal.like(second)
        old, word, new, written, kept = (
            Signal(own.ledger_word, name=name) for name in ("old", "word", "new", "written", "kept")
        )
        changed = Signal()
        changes = Signal()
        same = Signal()
        was_spent = Signal()
        is_spent = Signal()
        m.d.comb += [
            word.eq(mutant("producer.sum_before_last_missed", Mux(same, written, old), old)),
            new.told.eq(~third.read & (word.told | third.tell)),
            new.turn.eq(Mux(third.tell, third.turn, word.turn)),
            new.left.eq(Mux(third.read, 0, word.left + third.change)),
            was_spent.eq(word.told & (word.left <= 0)),
            is_spent.eq(
                new.told & mutant("producer.spent_at_zero_only", new.left <= 0, new.left == 0)
            ),
            words.w_en.eq(third.write),
            words.w_addr.eq(self._address(third)),
            words.w_data.eq(mutant("producer.word_not_cleared", new, Mux(third.read, word, new))),
            self.word.eq(Mux(third.read, word, kept)),
        ]
        m.d.sync += [
            changed.eq(third.write & (words.r_addr == self._address(third))),
            changes.eq(second.write & (words.r_addr == self._address(second))),
            same.eq(changes),
            third.eq(second),
            old.eq(
                mutant(
                    "producer.sum_before_that_missed",
                    Mux(changed, written, words.r_data),
                    words.r_data,
                )
            ),
            written.eq(words.w_data),
            kept.eq(self.word),
            self.spent.en.eq(
                third.write & is_spent & ~mutant("producer.spent_twice", was_spent, 0)
            ),
            self.spent.spent.dest.eq(third.dest),
            self.spent.spent.bank.eq(third.bank),
            self.spent.spent.turn.eq(new.turn),
        ]
        return third, word, new


class SpentQueue(wiring.Component):
    """What is spent, until the table takes them. ``stop`` is 1 when those
    that may be on their way in a :class:`LedgerBank` would fill it, so nothing is lost. Latency one
    cycle. Ports: ``i`` In {en, spent}; ``o`` Out stream(``spent``); ``stop`` Out."""

    observe: RegisterQueue  # once elaborated

    ON_WAY = 3  # operations of a bank that have begun when ``stop`` rises

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i": In(own.spent_strobe),
                "o": Out(stream.Signature(own.spent)),
                "stop": Out(1),
            }
        )
        self._spent = own.spent

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = RegisterQueue(self._spent, self.ON_WAY + 2)
        level = Signal(range(self.ON_WAY + 3))
        self.observe = queue
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            queue.i.valid.eq(self.i.en),
            queue.i.payload.eq(self.i.spent),
        ]
        m.d.sync += [
            level.eq(level + self.i.en - (self.o.valid & self.o.ready)),
            self.stop.eq(mutant("producer.spent_without_place", level + self.i.en > 1, level > 3)),
        ]
        return m


class SendLedger(wiring.Component):
    """Per (dest, bank), over all packet managers: what was promised less what was sent, in
    ``ledger_banks(cfg)`` memories, by the low bits of the destination.

    Contract: as of :class:`LedgerBank`, each name of ``o_spent`` offered until it is taken.

    Latency: ``word`` two cycles after ``read.en``; ``o_spent`` 7 cycles after an update that waits
    for nothing. Updates of a slice wait in its :class:`SentQueue`, which joins those of one
    (dest, bank); its ``hold`` keeps that slice's next packet back: each bank has one update per
    cycle, the slices in turn. ``flushing`` is 1 from the cycle after ``flush`` until the ledger
    shows all that the slices have told before.

    After reset walkers clear the words: ``clearing`` is 1, no read may come.

    Parameters: ``cfg``. Ports: per slice ``sent`` In, record ``sent``, ``hold`` Out; ``flush`` In,
    ``flushing`` Out; ``i_announce`` In stream(``ledger_announce``); ``read`` In, record
    ``ledger_read``; ``word`` Out, record ``ledger_word``; ``o_spent`` Out stream(``spent``);
    ``clearing`` Out. Source: our specification, rule R1.
    """

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "sent": In(types_of(cfg).sent).array(cfg.slices),
                "hold": Out(cfg.slices),
                "flush": In(1),
                "flushing": Out(1),
                "i_announce": In(stream.Signature(own.ledger_announce)),
                "read": In(own.ledger_read),
                "word": Out(own.ledger_word),
                "o_spent": Out(stream.Signature(own.spent)),
                "clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, own = self._cfg, producer_types_of(self._cfg)
        count = ledger_banks(cfg)
        skip = count.bit_length() - 1
        banks = [LedgerBank(cfg, skip) for _ in range(count)]
        merges = [StreamMerge(own.sent_sum, cfg.slices, stage=StreamStage) for _ in banks]
        m.submodules.spents = spents = StreamMerge(own.spent, count)
        wiring.connect(m, spents.o, wiring.flipped(self.o_spent))
        announced, read, shown = (
            Signal(count, name=name) for name in ("announced", "reads", "shown")
        )  # bit n: it is bank n's
        m.d.comb += [
            announced.eq(1 << self.i_announce.payload.dest[:skip]),
            read.eq(1 << self.read.dest[:skip]),
            self.word.eq(select(shown, [bank.word for bank in banks])),
            self.i_announce.ready.eq(
                (announced & Cat(bank.i_announce.ready for bank in banks)).any()
            ),
            self.clearing.eq(Cat(bank.clearing for bank in banks).any()),
        ]
        with m.If(self.read.en):
            m.d.sync += shown.eq(read)
        for n, (bank, merge) in enumerate(zip(banks, merges, strict=True)):
            m.submodules[f"bank{n}"], m.submodules[f"merge{n}"] = bank, merge
            m.submodules[f"spent{n}"] = spent = SpentQueue(cfg)
            wiring.connect(m, merge.o, bank.i_update)
            wiring.connect(m, spent.o, spents.i[n])
            m.d.comb += [
                bank.i_announce.valid.eq(self.i_announce.valid & announced[n]),
                bank.i_announce.payload.eq(self.i_announce.payload),
                bank.read.eq(self.read),
                bank.read.en.eq(self.read.en & read[n]),
                spent.i.eq(bank.spent),
                bank.stop.eq(spent.stop),
            ]
        self._queues(m, merges, skip)
        return m

    def _queues(self, m, merges, skip):
        """The updates of each slice to their bank; a flush of all."""
        cfg = self._cfg
        flushing = Signal(cfg.slices)
        for n in range(cfg.slices):
            m.submodules[f"queue{n}"] = queue = SentQueue(cfg)
            mine = Signal(len(merges), name=f"bank_of{n}")
            m.d.comb += mine.eq(1 << queue.o.payload.dest[:skip])
            for bank, merge in enumerate(merges):
                m.d.comb += [
                    merge.i[n].valid.eq(queue.o.valid & mine[bank]),
                    merge.i[n].payload.eq(queue.o.payload),
                ]
            m.d.comb += [
                queue.o.ready.eq((mine & Cat(merge.i[n].ready for merge in merges)).any()),
                queue.sent.eq(self.sent[n]),
                queue.flush.eq(self.flush),
                flushing[n].eq(queue.flushing),
                self.hold[n].eq(queue.hold),
            ]
        # What has left the queues stands in a merge's register, if anywhere.
        waits = Cat(merge.o.valid & ~merge.o.ready for merge in merges)
        with m.If(self.flush):
            m.d.sync += self.flushing.eq(1)
        with m.Elif(~flushing.any() & ~waits.any()):
            m.d.sync += self.flushing.eq(0)
