# SPDX-License-Identifier: Apache-2.0
"""Promises of the LogicalDestinationDecoder: where a store goes, what its answer says (section 2 of
docs/interfaces.md).

One store, any, is followed. It is recognised at the outputs by a colour: its ``tag[0]`` and
``data[0]`` are 1 and those of all other stores are 0. Tags and data decide nothing, so what holds
of coloured stores holds of all.
"""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe
from formal.kit.spec import Spec, blocked, moves, same
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, LaneMode, Reason
from hub_rtl.contract.records import layout_of, types_of
from hub_rtl.decoder.decoder import STORES, LogicalDestinationDecoder
from hub_rtl.parts.handles import entry_known

__all__ = [
    "AnswersAreOnePerStore",
    "FlushCoversOlderStores",
    "RefusalsAreReported",
    "StoreGoesWhereItsEntrySays",
    "StoreGetsTheRightAnswer",
    "StoreKeepsItsBytes",
]


def _divided(value, divisor):
    """Quotient and remainder; without a divider, which no solver likes, when the divisor is a power
    of two."""
    if divisor & (divisor - 1):
        return value // divisor, value % divisor
    low = divisor.bit_length() - 1
    return value >> low, value & (divisor - 1)


def _hash(rowid):
    return rowid[:12] ^ rowid[12:]


class _Followed(Spec):
    """A decoder with any stores and entries; one store followed from its acceptance to its answer,
    one entry in a copy.

    The entry is not written while the table is being cleared; ``rank`` and ``lane`` stay and
    exist."""

    def build(self, m):
        cfg, types = self._cfg, types_of(self._cfg)
        m.submodules.dut = self.dut = dut = LogicalDestinationDecoder(cfg)
        self.stages = observe(dut)
        self.free_inputs(dut, but=("rank", "lane"))
        self.always_held_all(dut)
        m.d.comb += [
            dut.rank.eq(self.constant(cfg.rank_width, "own_rank")),
            dut.lane.eq(self.constant(cfg.lane_width, "own_lane")),
        ]
        self.suppose("own numbers exist", (dut.rank < cfg.ranks) & (dut.lane < cfg.lanes))
        self.suppose("tables are written when cleared", ~dut.handle_write.en, when=dut.clearing)

        # The followed store. Inside: accepted and not answered.
        offered, self.accept = dut.i_store.payload, moves(dut.i_store)
        self.came = Signal()
        self.inside = Signal()
        self.store = Signal(types.store)
        colour = Signal()
        self.comes = Signal()
        answer = dut.o_response
        self.answer = moves(answer) & answer.payload.tag[0]
        m.d.comb += [
            colour.eq(offered.tag[0]),
            self.comes.eq(self.accept & colour),
        ]
        self.suppose(
            "colour", (offered.data[0] == colour) & ~(colour & self.came), when=dut.i_store.valid
        )
        with m.If(self.comes):
            m.d.sync += [
                self.came.eq(1),
                self.inside.eq(1),
                self.store.eq(offered),
            ]
        with m.If(self.answer):
            m.d.sync += self.inside.eq(0)
        self.hands = {
            name: moves(port) & port.payload.data[0]
            for name, port in (("link", dut.o_link), ("loop", dut.o_loop))
        }
        self.given = Signal()
        with m.If(Cat(self.hands.values()).any()):
            m.d.sync += self.given.eq(1)

        # The entry that it names, as it is in each cycle; judged again while it is inside.
        self.index = self.constant(cfg.handle_width, "index")
        self.suppose("entry exists", self.index < cfg.handles)
        self.entry = Signal(types.handle)
        self.hold = Signal()
        write = dut.handle_write
        with m.If(write.en & (write.index == self.index)):
            m.d.sync += [
                self.entry.eq(write.handle),
                self.hold.eq(write.hold),
            ]
        self.watched = Signal(types.store)  # also in the cycle in which it comes
        m.d.comb += self.watched.eq(Mux(self.comes, offered, self.store))
        self.row = layout_of(OPERAND_ROW)(self.watched.operand)
        self.plain = layout_of(OPERAND_PLAIN)(self.watched.operand)
        self.mine = (
            self.row.plain | (self.row.handle == self.index) | (self.row.handle >= cfg.handles)
        )
        self.now = self.comes | self.inside
        self.status, self.place = self.judge(m, self.entry, self.hold)
        self.promise(m)

    def _same(self, store):
        mask = self.store.mask
        return Cat(
            *(store[field] == self.store[field] for field in ("operand", "owner", "cls")),
            *(
                store.units[n] == mask.word_select(n, 16).any()
                for n in range(self._cfg.slice_bytes // 16)
            ),
        ).all()

    def met(self, m):
        """Status and destination by the entry that the followed store met, which a lemma says to be
        in the third stage."""
        stages = self.stages
        met = Signal(self.entry.shape())
        hold = Signal()
        with m.If(stages.table.r_en & stages.entry.payload.tag[0]):
            m.d.sync += [
                met.eq(self.entry),
                hold.eq(self.hold),
            ]
        here = self.mine & stages.look_valid & stages.looked_up.store.tag[0]
        self.place_lemmas = {
            "entry": (
                same(stages.table.r_data, handle=met, hold=hold, known=entry_known(self._cfg, met)),
                here & ~self.row.plain & (self.row.handle == self.index),
            ),
            **{
                name: (
                    self.inside & ~self.given & self.came & self._same(store),
                    valid & store.tag[0],
                )
                for name, valid, store in (
                    ("second", stages.entry.valid, stages.entry.payload),
                    ("third", stages.look_valid, stages.looked_up.store),
                )
            },
            "last": (
                self.inside & ~self.given & self.came,
                stages.judged_valid & stages.judged.tag[0],
            ),
        }
        return here, *self.judge(m, met, hold)

    def judge(self, m, entry, hold):
        """``status`` by the checks up to the last but one, and the destination, by an entry."""
        cfg, row, plain = self._cfg, self.row, self.plain
        mask = self.watched.mask
        used = Signal(4)
        m.d.comb += used.eq(1 << entry.log2_replicas)
        usable = (
            entry.valid
            & (used <= cfg.replicas)
            & (entry.row_bytes[:4] == 0)
            & (entry.row_bytes <= cfg.max_row_bytes)
        )
        for n in range(cfg.replicas):
            usable &= (used <= n) | (
                (entry.replica[n].rank < cfg.ranks) & (entry.replica[n].region < cfg.regions)
            )
        key = Signal(12)
        lane = Signal(8)
        m.d.comb += key.eq(
            Mux(
                row.plain,
                _divided(plain.addr, cfg.packet_bytes)[0],
                Mux(entry.lane_mode == LaneMode.HASH, _hash(row.rowid), row.rowid) + row.handle,
            )
        )
        m.d.comb += lane.eq(_divided(key, cfg.lanes)[1])
        with m.If(~row.plain & (entry.lane_mode == LaneMode.FIXED)):
            m.d.comb += lane.eq(_divided(entry.lane, cfg.lanes)[1])
        room = Signal(16)
        ahead = Signal(4)
        overrun = Signal()
        size = cfg.slice_bytes
        start = _divided(row.row_off << 4, size)[0] * size
        m.d.comb += [
            ahead.eq(row.epoch - entry.epoch),
            room.eq(Mux(entry.row_bytes > start, entry.row_bytes - start, 0)),
            overrun.eq((room < size) & (mask >> room[: ceil_log2(size)]).any()),
        ]
        status = Signal(4)
        with m.If(Mux(row.plain, plain.rank >= cfg.ranks, (row.handle >= cfg.handles) | ~usable)):
            m.d.comb += status.eq(Reason.UNKNOWN)
        with m.Elif(~row.plain & (entry.owner != self.watched.owner)):
            m.d.comb += status.eq(Reason.FOREIGN)
        with m.Elif(~row.plain & (ahead == 15) & entry.closed):
            m.d.comb += status.eq(Reason.AFTER_CLOSE)
        with m.Elif(~row.plain & (((ahead >= 1) & (ahead <= 7)) | ((ahead == 0) & hold))):
            m.d.comb += status.eq(Reason.EPOCH_EARLY)
        with m.Elif(~row.plain & (ahead != 0)):
            m.d.comb += status.eq(Reason.EPOCH_STALE)
        with m.Elif(lane != self.dut.lane):
            m.d.comb += status.eq(Reason.BAD_LANE)
        with m.Elif(~row.plain & overrun):
            m.d.comb += status.eq(Reason.ROW_OVERRUN)
        number = Signal(range(cfg.replicas + 1))
        m.d.comb += number.eq(_hash(row.rowid) & (used - 1))
        pair = entry.replica[number] if cfg.replicas > 1 else entry.replica[0]
        left = Signal(16)
        m.d.comb += left.eq(
            entry.row_bytes
            - (_divided(row.row_off, cfg.packet_bytes // 16)[0] << ceil_log2(cfg.packet_bytes))
        )
        #: What of a handed-over store comes from the entry.
        place = Signal(
            data.StructLayout(
                {
                    "rank": cfg.rank_width,
                    "region": cfg.region_width,
                    "full": cfg.bytes_width,
                    "dest": cfg.dest_width,
                }
            )
        )
        m.d.comb += [
            place.rank.eq(Mux(row.plain, plain.rank, pair.rank)),
            place.region.eq(Mux(row.plain, 0, pair.region)),
            place.full.eq(Mux(row.plain | (left > cfg.packet_bytes), cfg.packet_bytes, left)),
            place.dest.eq(Mux(row.plain, 0, row.handle * cfg.replicas + number)),
        ]
        return status, place

    def together(self, name, **statements):
        """One lemma of several statements ``(holds, when)``: so each may lean on the others in the
        step of an induction."""
        for each, (_, when) in statements.items():
            self.reach(f"{name}, {each}: when", when)
        self.lemma(name, Cat(holds | ~when for holds, when in statements.values()).all())

    def ever(self, m, condition, shape, name):
        """Bits of ``condition`` that were 1 in some cycle from the followed store's acceptance up
        to this one."""
        past, result = Signal(shape, name=f"{name}_before"), Signal(shape, name=name)
        m.d.comb += result.eq(Mux(self.comes, 0, past) | Mux(self.now, condition, 0))
        m.d.sync += past.eq(result)
        return result

    def promise(self, m):
        raise NotImplementedError


class StoreGetsTheRightAnswer(_Followed):
    """A store is answered once, after it came, with the reason of the first check that failed for
    an entry it met while it was inside; OK only after it was handed over (or its mask is empty),
    anything else only if it never was."""

    def promise(self, m):
        cfg, status = self._cfg, self.dut.o_response.payload.status
        good = self.status == Reason.OK
        guess = self.constant(4, "guess")  # any status: so of all
        seen = self.ever(m, self.status == guess, 1, "seen")
        fitting = self.ever(m, Mux(good, 1 << self.place.rank, 0), 1 << cfg.rank_width, "fitting")
        dead = self.ever(m, self.dut.peer_dead, 1 << cfg.rank_width, "dead")
        alive = self.ever(m, ~self.dut.peer_dead, 1 << cfg.rank_width, "alive")
        self.always("answered once", self.inside, when=self.answer)
        mine = self.answer & self.mine
        here, looked, where = self.met(m)
        there, judged = (
            self.mine & self.stages.judged_valid & self.stages.judged.tag[0],
            self.stages.judged,
        )
        rank, bad = judged.resolved.rank, judged.status == Reason.PEER_DEAD
        gives = self.given | Cat(self.hands.values()).any()
        self.always(
            "handed over if and only if good",
            gives == ((status == Reason.OK) & self.store.mask.any()),
            when=self.answer,
        )
        self.together(
            "answer of an entry that was met",
            **self.place_lemmas,
            met=(seen, here & (looked == guess)),
            met_rank=(fitting.bit_select(where.rank, 1), here & (looked == Reason.OK)),
            judged=(
                seen,
                there
                & (judged.status == guess)
                & (guess != Reason.OK)
                & (guess != Reason.PEER_DEAD),
            ),
            judged_rank=(fitting.bit_select(rank, 1), there & ((judged.status == Reason.OK) | bad)),
            judged_dead=(dead.bit_select(rank, 1), there & bad),
            judged_alive=(alive.bit_select(rank, 1), there & (judged.status == Reason.OK)),
        )
        # The answer itself: its register keeps what was judged.
        self.always(
            "refused for its reason",
            seen,
            when=mine & (status == guess) & (status != Reason.OK) & (status != Reason.PEER_DEAD),
        )
        self.always("dead peer", (fitting & dead).any(), when=mine & (status == Reason.PEER_DEAD))
        self.always("good", (fitting & alive).any(), when=mine & (status == Reason.OK))
        for reason in (
            "UNKNOWN",
            "FOREIGN",
            "AFTER_CLOSE",
            "EPOCH_EARLY",
            "EPOCH_STALE",
            "BAD_LANE",
            "ROW_OVERRUN",
        ):
            self.reach(reason, mine & ~self.row.plain & (status == Reason[reason]))


class StoreGoesWhereItsEntrySays(_Followed):
    """A store is handed over at most once, while inside, to ``o_loop`` if its rank is the own one
    and else to ``o_link``, with the rank, region, send counter and block size that an entry gave
    which it met while it was inside, to a peer that was not dead all that time, and with its own
    row, epoch, block and part."""

    def promise(self, m):
        cfg, row, plain = self._cfg, self.row, self.plain
        out, hands = self.dut.o_link.payload, Cat(self.hands.values()).any()
        guess = self.constant(self.place.shape().as_shape(), "guess")  # any place: so of all
        allowed = self.ever(
            m, (self.status == Reason.OK) & (self.place.as_value() == guess), 1, "allowed"
        )
        alive = self.ever(m, ~self.dut.peer_dead, 1 << cfg.rank_width, "alive")
        here, looked, where = self.met(m)
        there, judged = (
            self.mine & self.stages.judged_valid & self.stages.judged.tag[0],
            self.stages.judged,
        )
        given, where = judged.resolved, where.as_value()
        self.together(
            "place from an entry that was met",
            **self.place_lemmas,
            met=(allowed, here & (looked == Reason.OK) & (where == guess)),
            judged=(
                allowed,
                there
                & judged.deliver
                & (Cat(given.rank, given.region, given.full, given.dest) == guess),
            ),
        )
        self.always("once", self.inside & ~self.given, when=hands)
        self.always("to one side", ~(self.hands["link"] & self.hands["loop"]))
        self.always(
            "same word to both",
            self.dut.o_link.payload.as_value() == self.dut.o_loop.payload.as_value(),
        )
        self.always(
            "own rank to the loop", (out.rank == self.dut.rank) == self.hands["loop"], when=hands
        )
        place = Cat(out.rank, out.region, out.full, out.dest)
        self.always("place from the entry", allowed, when=hands & self.mine & (place == guess))
        self.always("peer alive", alive.bit_select(out.rank, 1), when=hands)
        self.always(
            "row and class",
            same(
                out,
                plain=row.plain,
                cls=self.store.cls,
                rowid=Mux(row.plain, 0, row.rowid),
                epoch=Mux(row.plain, 0, row.epoch),
            ),
            when=hands,
        )
        block, rest = _divided(plain.addr, cfg.packet_bytes)
        row_block, unit = _divided(row.row_off, cfg.packet_bytes // 16)
        self.always("block number", out.block == Mux(row.plain, block, row_block), when=hands)
        part = _divided(Mux(row.plain, rest, unit << 4), cfg.slice_bytes)[0]
        self.always("number of its part", out.part == part, when=hands)


class StoreKeepsItsBytes(_Followed):
    """Data and mask of a store are handed over unchanged; it is answered within 5 cycles in which
    nobody downstream waits."""

    def promise(self, m):
        dut, hands = self.dut, Cat(self.hands.values()).any()
        self.always("data", dut.o_link.payload.data == self.store.data, when=hands)
        self.always("mask", dut.o_link.payload.mask == self.store.mask, when=hands)
        # In memory, and at its output, what was written and has the colour is the followed store's,
        # also after it has left.
        waiting = self.stages.waiting
        queue = observe(waiting)
        mine = Cat(self.store.data, self.store.mask)
        written = Signal(STORES)
        read = Signal()
        with m.If(waiting.write):
            m.d.sync += written.bit_select(queue.next_word, 1).eq(1)
        with m.If(queue.load):
            m.d.sync += read.eq(written.bit_select(queue.head, 1))
        for n in range(STORES):
            port = queue.storage.read_port(domain="comb")
            m.d.comb += port.addr.eq(n)
            self.lemma(f"word {n}", self.came & (port.data == mine), when=port.data[0] & written[n])
        out = dut.o_link.payload
        self.lemma(
            "word at the output",
            self.came & (Cat(out.data, out.mask) == mine),
            when=out.data[0] & read,
        )
        self.lemma("written before it is read", read, when=waiting.o.valid)
        moves = Signal(4)
        m.d.sync += moves.eq(
            Mux(
                self.inside, moves + (dut.o_response.ready & dut.o_link.ready & dut.o_loop.ready), 0
            )
        )
        self.always("bounded wait", moves < 6, when=self.inside)


class AnswersAreOnePerStore(Spec):
    """Every store is answered once, in order, with its tag; nothing is accepted while ``clearing``,
    which ends; ``stores`` and ``stall`` count exactly; ``in_flight`` is 0 when all are answered."""

    def build(self, m):
        m.submodules.dut = dut = LogicalDestinationDecoder(self._cfg)
        self.free_inputs(dut)
        put, take = (
            moves(dut.i_store),
            moves(dut.o_response),
        )
        inside, *_ = self.always_fifo(
            "answers", put, dut.i_store.payload.tag, take, dut.o_response.payload.tag, 6
        )
        cycles = Signal(range(self._cfg.handles + 1))
        m.d.sync += cycles.eq(Mux(cycles == self._cfg.handles, cycles, cycles + 1))
        self.always("nothing accepted while clearing", ~put, when=dut.clearing)
        self.always("clearing ends", dut.clearing == (cycles != self._cfg.handles))
        self.always("stores counts", dut.counts.stores == put)
        self.always("stall counts", dut.counts.stall == blocked(dut.i_store))
        self.always("in flight means unanswered", inside != 0, when=dut.in_flight)
        waits = Signal()
        m.d.sync += waits.eq(waits | ~(dut.o_response.ready & dut.o_link.ready & dut.o_loop.ready))
        self.always("one store per cycle", dut.i_store.ready, when=~waits & ~dut.clearing)
        ages = [self.past(put, "put0")]
        for n in range(1, 4):
            ages.append(self.past(ages[-1], f"put{n}"))
        self.always("answer after 4 cycles", dut.o_response.valid == ages[3], when=~waits)


class FlushCoversOlderStores(_Followed):
    """``flushing`` is 1 from the cycle after the strobe until every store accepted up to the strobe
    is handed over, and 0 at the latest when all of these are answered; ``in_flight`` is 1 as long
    as a store that will be handed over is inside."""

    def promise(self, m):
        dut = self.dut
        covered = Signal()
        steady = Signal()
        flying = Signal()
        hands = Cat(self.hands.values()).any()
        with m.If(dut.flush & self.now & ~hands & ~self.given):
            m.d.sync += [
                covered.eq(1),
                steady.eq(1),
            ]
        with m.If(covered):
            m.d.sync += steady.eq((steady | dut.flush) & dut.flushing)
        m.d.sync += flying.eq(Mux(self.comes, 1, flying & dut.in_flight))
        self.always("until handed over", steady & dut.flushing, when=hands & covered)
        self.always("in flight until handed over", flying & dut.in_flight, when=hands)
        put, take = self.accept, moves(dut.o_response)
        inside = Signal(4)
        older = Signal(4)
        after = Signal(4)
        m.d.comb += after.eq(inside + put - take)
        m.d.sync += [
            inside.eq(after),
            older.eq(Mux(dut.flush, after, older - (take & (older != 0)))),
        ]
        self.always("later stores do not count", older != 0, when=dut.flushing)


class RefusalsAreReported(_Followed):
    """Every answer other than OK comes with one pulse of ``o_refused`` and ``counts.refused``, not
    later than the answer and in the same order, with the reason, and with handle, row, owner, epoch
    and rank of its store; there are no other pulses."""

    def promise(self, m):
        dut, cfg, answer = self.dut, self._cfg, self.dut.o_response
        pulse = dut.o_refused
        bad = moves(answer) & (answer.payload.status != Reason.OK)
        # The answer is looked at one cycle later: its pulse has come by then.
        take, status = self.past(bad, "bad"), self.past(answer.payload.status, "status")
        self.always_fifo("reports", pulse.en, pulse.reason, take, status, 3, placed=True)
        self.always("refused counts", dut.counts.refused == pulse.en)
        queue = [Signal.like(pulse, name=f"pulse{n}") for n in range(4)]
        level = Signal(3)
        m.d.sync += level.eq(level + pulse.en - take)
        for n, one in enumerate(queue):
            with m.If(pulse.en & (level - take == n)):
                m.d.sync += one.eq(pulse)
            with m.Elif(take & (n < 3)):
                m.d.sync += one.eq(queue[min(n + 1, 3)])
        mine, row = (
            self.past(bad & self.answer, "mine"),
            layout_of(OPERAND_ROW)(self.store.operand),
        )
        first = queue[0]
        self.always("who", same(first, owner=self.store.owner, plain=row.plain), when=mine)
        self.always(
            "which row",
            same(first, handle=row.handle, rowid=row.rowid, epoch=row.epoch),
            when=mine & ~row.plain,
        )
        self.always(
            "no row",
            same(first, handle=0, rowid=0, epoch=0),
            when=mine & row.plain,
        )
        known = self.ever(
            m,
            Mux(self.status != Reason.UNKNOWN, 1 << self.place.rank, 0),
            1 << cfg.rank_width,
            "known",
        )
        plain_rank = layout_of(OPERAND_PLAIN)(self.store.operand).rank
        self.always("which plain rank", first.rank == plain_rank, when=mine & row.plain)
        was = self.past(known, "was")
        self.always(
            "which rank",
            was.bit_select(first.rank, 1) & (first.rank < cfg.ranks),
            when=mine & ~row.plain & (status != Reason.UNKNOWN) & self.past(self.mine, "its"),
        )
