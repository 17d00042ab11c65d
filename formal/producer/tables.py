# SPDX-License-Identifier: Apache-2.0
"""Promises of the producer's tables (``hub_rtl/producer``, docs/interfaces.md section 3): send
totals and decoder entries."""

from itertools import combinations

from amaranth import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring

from formal.kit.inside import observe, stand_in
from formal.kit.spec import Spec, moves, one_of, same
from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.producer.handle_table import HandleTable
from hub_rtl.producer.ledger import LedgerBank, SentQueue, SpentQueue
from hub_rtl.producer.records import SUM

__all__ = ["EntriesAreAtomic", "LeftIsExact", "SpentIsKept", "UpdatesWaitInOrder"]


class NarrowTotals(HubConfig):
    """A configuration with totals of 6 bits: they wrap earlier, nothing else."""

    total_width = 6


class LeftIsExact(Spec):
    """A read shows the promise less the bytes of the updates before it, whether anything was
    promised, and in which turn, since the read before; it takes all away. ``spent`` pulses exactly
    when, with a promise, what is left becomes 0 or less, three cycles after that update or
    announcement. Shown of any (dest, bank), modulo 128. Updates and announcements wait only for
    ``stop``, for reads and updates for announcements."""

    def __init__(self, cfg):
        super().__init__(NarrowTotals(**cfg.as_dict()))

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = LedgerBank(cfg)
        inner = observe(dut)
        memory = OpenRam(inner.words)
        self.free_inputs(dut)
        update, announce, read = dut.i_update, dut.i_announce, dut.read
        dest, bank = self.constant(cfg.dest_width, "dest"), self.constant(1, "bank")
        self.suppose("dest exists", dest < cfg.dests)
        for name, en, key in (
            ("an update", update.valid, update.payload),
            ("a read", read.en, read),
            ("an announcement", announce.valid, announce.payload),
        ):
            self.suppose(f"dest of {name} exists", key.dest < cfg.dests, when=en)
        self.suppose("nothing while clearing", ~read.en, when=dut.clearing)

        def mine(en, key):
            return en & (key.dest == dest) & (key.bank == bank)

        reads, tells = mine(read.en, read), mine(moves(announce), announce.payload)
        takes = mine(moves(update), update.payload)
        told = Signal()
        turn = Signal()
        left = Signal(signed(cfg.total_width + 1))
        next_told = Signal.like(told)
        next_left = Signal.like(left)
        change = Mux(tells, announce.payload.bytes16 << 4, 0) - Mux(takes, update.payload.bytes, 0)
        m.d.comb += [
            next_told.eq(~reads & (told | tells)),
            next_left.eq(Mux(reads, 0, left + change)),
        ]
        m.d.sync += [
            told.eq(next_told),
            turn.eq(Mux(tells, announce.payload.turn, turn)),
            left.eq(next_left),
        ]
        self.always(
            "the word is the promise less the bytes",
            (dut.word.told == past(past(told)))
            & (dut.word.turn == past(past(turn)))
            & (dut.word.left.as_unsigned() == past(past(left.as_unsigned()))),
            when=past(past(reads)),
        )
        spends = next_told & (next_left <= 0) & ~(told & (left <= 0))
        spent = mine(dut.spent.en, dut.spent.spent)
        self.always("spent once", spent == past(past(past(spends))))
        self.always("spent in its turn", dut.spent.spent.turn == past(past(turn)), when=spent)
        free = ~(read.en | dut.stop | dut.clearing)
        self.always("announcements wait for the two only", announce.ready == free)
        self.always("updates wait for the three only", update.ready == (free & ~announce.valid))

        # Helper: memory and the operations on their way to it make what is told and left.
        def changed(op, word):
            keeps = ~(op.write & op.read)
            return Cat(
                keeps & (word.told | (op.write & op.tell)),
                Mux(op.write & op.tell, op.turn, word.turn),
                Mux(keeps, word.left + Mux(op.write, op.change, 0), 0)[: cfg.total_width + 1],
            )

        address, word = Cat(bank, dest), inner.word
        stored = memory.words[address]
        here = [op.write & (Cat(op.bank, op.dest) == address) for op in (inner.third, inner.second)]
        self.lemma(
            "what is changed is what is stored",
            word.as_value() == stored.as_value(),
            when=here[0],
        )
        first = Signal(inner.new.shape())
        m.d.comb += first.as_value().eq(Mux(here[0], inner.new.as_value(), stored.as_value()))
        after = changed(inner.second, first)
        self.lemma("on its way", Cat(told, turn, left) == Mux(here[1], after, first.as_value()))
        self.reach("spent late", past(past(past(spends & tells & ~takes))) & (left < 0))


class SpentIsKept(Spec):
    """What is spent finds a place, when operations begin only without ``stop``: each is spent three
    cycles later, if at all; it leaves as it came."""

    def build(self, m):
        m.submodules.dut = dut = SpentQueue(self._cfg)
        queue = observe(dut)
        self.free_inputs(dut)
        begins = Signal()
        past = self.past
        self.free(begins)
        self.suppose("begins without stop", ~dut.stop, when=begins)
        self.suppose("spent three cycles later", past(past(past(begins))), when=dut.i.en)
        self.always("a place", queue.i.ready, when=dut.i.en)
        self.always_fifo(
            "spent",
            dut.i.en,
            dut.i.spent.as_value(),
            moves(dut.o),
            dut.o.payload.as_value(),
            most=SpentQueue.ON_WAY + 2,
        )


class UpdatesWaitInOrder(Spec):
    """All bytes that a packet manager has told of a (dest, bank), any, and that have not left stand
    in the places of its queue; so none is lost or counted twice. ``flushing`` falls when all that
    waited at the flush has left. The slice begins a packet, whose update is one, only without
    ``hold``; two at most are on their way; none has more than a packet's bytes."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = SentQueue(cfg)
        places, filled, waited_before = observe(dut)
        self.free_inputs(dut)
        dest, bank = self.constant(cfg.dest_width, "dest"), self.constant(1, "bank")
        begins = Signal()
        begun = Signal(range(3))
        self.free(begins)
        self.suppose("begins without hold", ~dut.hold, when=begins)
        self.suppose("two on their way", begun - dut.sent.en < 2, when=begins)
        self.suppose("an update of a packet", begun != 0, when=dut.sent.en)
        self.suppose("bytes of a packet", dut.sent.bytes <= cfg.packet_bytes, when=dut.sent.en)
        m.d.sync += begun.eq(begun + begins - dut.sent.en)

        def mine(key):
            return (key.dest == dest) & (key.bank == bank)

        waits = Signal(SUM + 4)  # more than all places can count
        taken = Mux(moves(dut.o) & mine(dut.o.payload), dut.o.payload.bytes, 0)
        m.d.sync += waits.eq(waits + Mux(dut.sent.en & mine(dut.sent), dut.sent.bytes, 0) - taken)
        stand = [Mux(filled[n] & mine(place), place.bytes, 0) for n, place in enumerate(places)]
        self.always("all stand in the queue", waits == sum(stand))
        for n, place in enumerate(places):
            most = (1 << SUM - 1) + (3 - begun) * cfg.packet_bytes
            self.lemma(f"{n} can count those on their way", place.bytes < most, when=filled[n])
        self.lemma("a thermometer", one_of(filled, 0, 1, 3, 7, 15, 31))
        for a, b in combinations(range(1, len(places)), 2):
            alike = (places[a].dest == places[b].dest) & (places[a].bank == places[b].bank)
            self.lemma(f"{a} and {b} differ", ~alike, when=filled[b])
        older = Signal(range(len(places) + 1))
        count = sum(filled[n] for n in range(len(places)))
        self.lemma("room for those on their way", count + begun <= len(places))
        waited = Mux(dut.flush, count, older)
        m.d.sync += older.eq(waited - (moves(dut.o) & (waited != 0)))
        self.always("flushing", dut.flushing == (older != 0))
        self.lemma(
            "older ones",
            waited_before == Cat(older > n for n in range(len(places))),
        )
        self.lemma("older ones are there", older <= count)
        self.always_held(dut.o, "o")


def entry_usable(cfg, handle):
    """docs/interfaces.md section 2: what makes an entry usable (else UNKNOWN)."""
    needed = 1 << handle.log2_replicas
    pairs = Cat(
        (needed <= n) | ((pair.rank < cfg.ranks) & (pair.region < cfg.regions))
        for n, pair in enumerate(handle.replica[n] for n in range(cfg.replicas))
    )
    return (
        handle.valid
        & (needed <= cfg.replicas)
        & pairs.all()
        & (handle.row_bytes % 16 == 0)
        & (handle.row_bytes <= cfg.max_row_bytes)
    )


class OpenRam(wiring.Component):
    """Stands for ``ram``, a :class:`~hub_rtl.parts.ram.Ram` (``parts.ram`` proves the same of
    it), with ``words`` that an invariant can name."""

    def __init__(self, ram):
        super().__init__(ram.signature)
        self._clear = ram.clear
        self.words = Array(Signal.like(ram.r_data, name=f"word{n}") for n in range(ram.depth))
        stand_in(ram, self)

    def elaborate(self, platform):
        m = Module()
        if self._clear:
            cleared = Signal(range(len(self.words) + 1))
            m.d.comb += self.clearing.eq(cleared != len(self.words))
            m.d.sync += cleared.eq(cleared + self.clearing)
        with m.If(self.w_en & ~self.clearing):
            m.d.sync += self.words[self.w_addr].eq(self.w_data)
        with m.If(self.r_en):
            m.d.sync += self.r_data.eq(
                Mux(self.w_en & (self.w_addr == self.r_addr), self.w_data, self.words[self.r_addr])
            )
        return m


class EntriesAreAtomic(Spec):
    """Operations on an entry take effect whole and in the order in which they are granted (write,
    read, spent, unpend, ask). A write changes the entry alone. An ask is refused like a store
    (UNKNOWN, FOREIGN, EPOCH_*, AFTER_CLOSE; EPOCH_EARLY while held), a tell of a replica that is
    told with AFTER_CLOSE too, and then changes nothing, nor does a tell that waits. Of an accepted
    one: a close turns the entry into {epoch + 1, closed}; a tell tells its replica; ``tell_rest``
    those that are not told, which are spent then. What is spent counts for a replica that is told
    in that epoch (mod 4). A usable entry of which all replicas are told and spent closes by itself
    then and there, and never otherwise. Each change of an entry, and nothing else, is broadcast two
    cycles later, with ``hold`` exactly while closes of the entry's own bank are not all sent.

    ``unpend`` of a close comes at most once per replica of it.
    """

    def build(self, m):
        cfg, past = self._cfg, self.past
        m.submodules.dut = dut = HandleTable(cfg)
        memory = OpenRam(observe(dut).table)
        self.free_inputs(dut)
        write, read, ask, unpend = dut.write, dut.read, dut.ask, dut.unpend
        spend, spent = dut.i_spent.payload, moves(dut.i_spent)
        index = self.constant(cfg.handle_width, "index")
        self.suppose("handle exists", index < cfg.handles)
        entry = Signal(types_of(cfg).handle)
        unsent = [Signal(range(cfg.replicas + 1), name=f"unsent{n}") for n in range(2)]
        told, done, zero, listed = (
            Signal(cfg.replicas, name=name) for name in ("told", "done", "zero", "listed")
        )
        bits = cfg.replicas.bit_length() - 1
        idle = ~dut.clearing
        writes = write.en & idle & (write.index == index)
        unpends = dut.unpend_granted & (unpend.dest >> bits == index)
        asks = dut.ask_granted & (ask.index == index)
        spends = spent & (spend.dest >> bits == index)
        unsent_there = Mux(unpend.bank, unsent[1], unsent[0])
        self.suppose("unpend of an accepted close", unsent_there != 0, when=unpends & ~unpend.tell)
        self.suppose("one kind of ask", ~(ask.tell & ask.tell_rest))
        self.suppose(
            "dests exist",
            ((spend.dest < cfg.dests) | ~dut.i_spent.valid)
            & ((unpend.dest < cfg.dests) | ~unpend.valid),
        )

        def one(number):
            return (Const(1, 1) << number)[: cfg.replicas]

        held = Mux(entry.epoch[0], unsent[1], unsent[0]) != 0
        ahead, usable = (ask.epoch - entry.epoch)[:4], entry_usable(cfg, entry)
        every = Signal(cfg.replicas)
        m.d.comb += every.eq((1 << (1 << entry.log2_replicas)) - 1)
        in_order = Mux(
            ahead == 0,
            Mux(held, Reason.EPOCH_EARLY, Reason.OK),
            Mux(
                (ahead == 15) & entry.closed,
                Reason.AFTER_CLOSE,
                Mux(ahead < 8, Reason.EPOCH_EARLY, Reason.EPOCH_STALE),
            ),
        )
        again = ask.tell & (ahead == 0) & ((told & one(ask.replica)) != 0)
        there = ~ask.tell | (ask.replica < (1 << entry.log2_replicas))
        reason = Signal(4)
        m.d.comb += reason.eq(
            Mux(
                usable & there,
                Mux(
                    entry.owner == ask.owner,
                    Mux(again, Reason.AFTER_CLOSE, in_order),
                    Reason.FOREIGN,
                ),
                Reason.UNKNOWN,
            )
        )
        good = Signal()
        waits = Signal()
        rest, tells, ends, commanded, closes = (
            Signal(cfg.replicas, name="rest"),
            Signal(cfg.replicas, name="tells"),
            Signal(cfg.replicas, name="ends"),
            Signal(name="commanded"),
            Signal(name="closes"),
        )
        m.d.comb += [
            good.eq(asks & (reason == Reason.OK)),
            waits.eq(good & ask.tell & ((listed & one(ask.replica)) != 0)),
            rest.eq(Mux(good & ask.tell_rest, every & ~told, 0)),
            tells.eq(Mux(good & ask.tell & ~waits, one(ask.replica), 0)),
            ends.eq(
                Mux(
                    spends & (Cat(spend.bank, spend.turn) == entry.epoch[:2]),
                    one(spend.dest[:bits] if bits else 0) & told,
                    0,
                )
            ),
            commanded.eq(good & ~ask.tell & ~ask.tell_rest),
            closes.eq(
                commanded
                | (
                    (spends | (good & ask.tell_rest))
                    & usable
                    & ~held
                    & ((every & ~(done | rest | ends)) == 0)
                )
            ),
        ]
        changes = Signal()
        m.d.comb += changes.eq(writes | unpends | closes)
        with m.If(writes):
            m.d.sync += entry.eq(write.handle)
        with m.Elif(closes):
            m.d.sync += [
                entry.epoch.eq(entry.epoch + 1),
                entry.closed.eq(1),
                *[each.eq(0) for each in (told, done, zero)],
            ]
        with m.Elif(asks | spends):
            m.d.sync += [
                told.eq(told | rest | tells),
                done.eq(done | rest | ends),
                zero.eq(zero | rest),
                listed.eq(listed | tells),
            ]
        with m.If(unpends & unpend.tell):
            m.d.sync += listed.eq(listed & ~one(unpend.dest[:bits] if bits else 0))
        for n in range(2):
            with m.If(unpends & ~unpend.tell & (unpend.bank == n)):
                m.d.sync += unsent[n].eq(unsent[n] - 1)
            with m.Elif(closes & (entry.epoch[0] == n)):
                m.d.sync += unsent[n].eq(1 << entry.log2_replicas)

        busy, waiting = write.en | read.en, dut.i_spent.valid
        self.always(
            "granted in order",
            (spent == (waiting & idle & ~busy))
            & same(
                dut,
                unpend_granted=unpend.valid & idle & ~busy & ~waiting,
                ask_granted=ask.valid & idle & ~busy & ~waiting & ~unpend.valid,
            ),
        )
        out, result = dut.o_write, dut.result
        now = past(entry, "now")  # the entry after the operation granted two cycles ago
        self.always(
            "every change is broadcast", (out.en & (out.index == index)) == past(past(changes))
        )
        self.always(
            "broadcast is the entry", out.handle.as_value() == now, when=past(past(changes))
        )
        self.always(
            "hold while closes are unsent",
            out.hold == past(Mux(entry.epoch[0], unsent[1], unsent[0]) != 0),
            when=past(past(changes)),
        )
        self.always("an ask is answered", result.valid == past(past(dut.ask_granted)))
        self.always(
            "reason as documented",
            (result.reason == past(past(reason))) & (result.wait == past(past(waits))),
            when=past(past(asks)),
        )
        self.always(
            "held tells why",
            result.held == past(past((reason == Reason.EPOCH_EARLY) & (ahead == 0))),
            when=past(past(asks)),
        )
        before = Signal(types_of(cfg).handle)
        close = dut.closed.close
        m.d.comb += before.eq(past(past(entry)))
        replica = past(past(ask.replica))[:bits] if bits else 0
        target = before.replica.as_value().word_select(replica, len(result.target.as_value()))
        self.always("target of a tell", result.target.as_value() == target, when=past(past(asks)))
        self.always("one close of a bank at a time", ~held, when=closes)
        self.always(
            "closed exactly then",
            (dut.closed.valid & (close.index == index)) == past(past(closes)),
        )
        self.always(
            "closed as the entry was",
            same(
                close,
                epoch=before.epoch,
                log2_replicas=before.log2_replicas,
                abort=past(past(asks & ask.abort)),
                zero=past(past(zero | rest)),
            )
            & (close.replica.as_value() == before.replica.as_value()),
            when=past(past(closes)),
        )
        reads = read.en & ~write.en & idle & (read.index == index)
        self.always("entry is read", dut.read_data.as_value() == now, when=past(past(reads)))
        self.always(
            "read is held",
            dut.read_data.as_value() == past(dut.read_data),
            when=past(past(~read.en)) & past(self.started),
        )
        # Helper: the word in memory is the entry of one operation earlier.
        word = memory.words[index]
        state = Cat(entry, *unsent, told, done, zero, listed)
        stored = Cat(word.handle, word.unsent, word.told, word.spent, word.zero, word.listed)
        self.always("memory holds the entry", stored == past(state, "entry_before"))
        self.reach("refused for the hold", past(past(asks)) & result.held)
        self.reach("closed by itself", past(past(closes & ~commanded)))
