# SPDX-License-Identifier: Apache-2.0
"""A command from its acceptance to its answer (``hub_rtl/producer/producer.py``, docs/interfaces.md
section 3)."""

from amaranth import Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.lib import wiring

from formal.kit.inside import observe, stand_in
from formal.kit.spec import Spec, moves, one_of, same
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.stream import StreamMerge
from hub_rtl.producer.announcer import Announcer
from hub_rtl.producer.handle_table import HandleTable
from hub_rtl.producer.news_engine import NewsEngine
from hub_rtl.producer.producer import ProducerControl

from .doubles import OpenQueue

__all__ = [
    "CommandsAskTheTable",
    "CommandsAreAnsweredOnce",
    "FencesWaitForPeers",
    "MarksHaveACause",
]


def _is_fence(op):
    return one_of(op, CommandOp.FENCE, CommandOp.FENCE_REMOTE)


def _free_outputs(m, part, but=()):
    for path, member, value in part.signature.flatten(part):
        if member.flow == wiring.Out and path[0] not in but:
            value = getattr(value, "as_value", lambda value=value: value)()
            m.d.comb += value.eq(AnySeq(len(value)))


class _AnyTable(HandleTable):
    """Of the table only what ``producer.entries_atomic`` proves of ``ask``: granted when asked,
    after any time; answered two cycles later, in any way, ``held`` only with EPOCH_EARLY, ``wait``
    only with OK. Its clearing ends once."""

    def elaborate(self, platform):
        m = Module()
        _free_outputs(m, self, ("ask_granted", "unpend_granted", "result", "clearing"))
        granted = Signal()
        clearing = Signal(init=1)
        result = Signal.like(self.result)
        held = Signal()
        m.d.comb += [
            self.ask_granted.eq(self.ask.valid & ~clearing & AnySeq(1)),
            self.clearing.eq(clearing),
            held.eq(AnySeq(1)),
            self.unpend_granted.eq(self.unpend.valid & ~clearing & AnySeq(1)),
            result.eq(AnySeq(len(result.as_value()))),
            self.result.eq(result),
        ]
        valid = Signal()
        m.d.sync += [
            granted.eq(self.ask_granted),
            valid.eq(granted),
            clearing.eq(clearing & AnySeq(1)),
        ]
        m.d.comb += [
            self.result.valid.eq(valid),
            self.result.held.eq(held & (result.reason == Reason.EPOCH_EARLY)),
            self.result.wait.eq(result.wait & (result.reason == Reason.OK)),
        ]
        return m


class _AnyEngine(NewsEngine):
    """Tells and closes that do anything."""

    def elaborate(self, platform):
        m = Module()
        _free_outputs(m, self)
        return m


class _AnyAnnouncer(Announcer):
    """Of announcements only what ``producer.announcements_answered`` proves: busy exactly while
    some are inside; answered in order, each once, after any time and with any reason. Asks, tells
    and urges as it likes while it is busy. At most two are inside (ten in the hub)."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.commands = RegisterQueue(self.i.payload.shape(), 2)

    def elaborate(self, platform):
        m = Module()
        m.submodules.commands = commands = self.commands
        wiring.connect(m, wiring.flipped(self.i), commands.i)
        answer, tell, busy = self.o_answer, self.o_tell, self.busy
        for record in (self.ask, tell.payload, answer.payload):
            m.d.comb += record.as_value().eq(AnySeq(len(record.as_value())))
        m.d.comb += [
            busy.eq(commands.o.valid),
            self.urge.eq(busy & AnySeq(1)),
            self.ask.valid.eq(busy & AnySeq(1)),
            tell.valid.eq(busy & AnySeq(1)),
            answer.valid.eq(busy & AnySeq(1)),
            answer.payload.tag.eq(commands.o.payload.tag),
            commands.o.ready.eq(moves(answer)),
        ]
        return m


class _AnyMerge(StreamMerge):
    """Passes on the items of any input, in any order between them: what ``parts.merge`` keeps but
    time and fairness."""

    def elaborate(self, platform):
        m = Module()
        second = Signal()
        m.d.comb += second.eq(AnySeq(1))
        for n, i in enumerate(self.i):
            with m.If(second == n):
                m.d.comb += [
                    self.o.valid.eq(i.valid),
                    self.o.payload.eq(i.payload),
                    i.ready.eq(self.o.ready),
                ]
        return m


class _Sequence(Spec):
    """The sequence with free inputs, a table and pending closes that do anything; at most two
    fences wait (eight in the hub). An arbitrary tag is followed; of it alone it is supposed that no
    command comes with it while one is not answered."""

    merge = None  # what stands for the merge of the answers

    def build(self, m):
        m.submodules.dut = dut = ProducerControl(self._cfg, fences=2)
        inner = observe(dut)
        self.table = stand_in(inner.table, _AnyTable(self._cfg))
        self.engine = stand_in(inner.engine, _AnyEngine(self._cfg))
        self.fences = OpenQueue(observe(inner.fences).queue)
        self.announcer = stand_in(inner.announcer, _AnyAnnouncer(self._cfg))
        self.answers = inner.answers
        if self.merge:
            stand_in(self.answers, self.merge(self.answers.o.payload.shape(), 3))
        self.free_inputs(dut)
        offered, answer = dut.i_command.payload, dut.o_response.payload
        self.tag = tag = self.constant(self._cfg.tag_width, "tag")
        self.taken = moves(dut.i_command)
        self.comes = self.taken & (offered.tag == tag)
        self.answered = moves(dut.o_response) & (answer.tag == tag)
        self.open, self.command = Signal(name="open"), Signal.like(offered, name="followed")
        with m.If(self.comes):
            m.d.sync += [
                self.open.eq(1),
                self.command.eq(offered),
            ]
        with m.Elif(self.answered):
            m.d.sync += self.open.eq(0)
        self.suppose("tag not in use", ~self.open, when=dut.i_command.valid & (offered.tag == tag))
        self.specify(m, dut)


class CommandsAreAnsweredOnce(_Sequence):
    """Every answer is that of a command with its tag that was accepted and not answered before. An
    operation that does not exist is answered UNKNOWN, a fence OK or PEER_DEAD, or INCOMPLETE. The
    merge of the answers is replaced by what ``parts.merge`` keeps."""

    merge = _AnyMerge

    def specify(self, m, dut):
        op, status = self.command.op, dut.o_response.payload.status
        first, fences = self.answers.i[0], self.fences
        inside, tells = observe(self.announcer.commands), CommandOp.ANNOUNCE
        # Helper: the followed command is under way, or one of the fences.
        under_way = Signal()
        current = Signal.like(dut.i_command.payload)
        offered = dut.i_command.payload
        with m.If(self.taken & ~_is_fence(offered.op) & (offered.op != tells)):
            m.d.sync += [
                under_way.eq(1),
                current.eq(dut.i_command.payload),
            ]
        with m.Elif(moves(first)):
            m.d.sync += under_way.eq(0)
        self.lemma(
            "first answers", under_way & (first.payload.tag == current.tag), when=first.valid
        )
        self.lemma(
            "under way",
            self.open & (self.command.as_value() == current.as_value()),
            when=under_way & (current.tag == self.tag),
        )
        waiting = [
            (n < fences.level) & (place.tag == self.tag) for n, place in enumerate(fences.places)
        ]
        told = [inside.full[n] & (item.tag == self.tag) for n, item in enumerate(inside.items)]
        self.lemma(
            "one place",
            sum([*waiting, *told], under_way & (current.tag == self.tag)) == self.open,
        )
        self.lemma("in the queue", _is_fence(op), when=sum(waiting) != 0)
        self.lemma("announced", op == tells, when=sum(told) != 0)
        self.always("answer of a command", self.open, when=self.answered)
        self.always("no such operation", status == Reason.UNKNOWN, when=self.answered & (op > 5))
        self.always(
            "status of a fence",
            one_of(status, Reason.OK, Reason.PEER_DEAD, Reason.INCOMPLETE),
            when=self.answered & _is_fence(op),
        )


class FencesWaitForPeers(_Sequence):
    """A fence is answered only after a mark of everything that came after it, and after each peer
    was seen, six cycles after that mark or later, in a cycle in which no packet manager drained it.
    A remote fence is answered only after ``o_remote``, given after that; and then each peer was
    dead, or was seen, two cycles after ``o_remote`` or later, in a cycle in which it was unanswered
    in no slice; its answer is PEER_DEAD if some peer was not. The merge as in
    :class:`CommandsAreAnsweredOnce`."""

    merge = _AnyMerge

    def specify(self, m, dut):
        peer = self.constant(self._cfg.rank_width, "peer")
        self.suppose("peer exists", peer < self._cfg.ranks)
        age = Signal(3)  # cycles since the mark, 0: not yet
        seen = Signal()
        drains = sum(each.bit_select(peer, 1) for each in dut.draining) != 0
        with m.If(self.comes):
            m.d.sync += [
                age.eq(0),
                seen.eq(0),
            ]
        with m.Else():
            with m.If((age != 0) | (dut.o_mark.en & dut.o_mark.all)):
                m.d.sync += age.eq(age + (age != 6))
            m.d.sync += seen.eq(seen | ((age == 6) & ~drains))
        self.always(
            "drained after its mark",
            seen,
            when=self.answered & _is_fence(self.command.op),
        )
        self._remote(m, dut, peer, seen)
        self.reach("waited", self.past((age == 6) & ~seen & drains) & ~drains)

    def _remote(self, m, dut, peer, seen):
        """What of a remote fence comes after its peers were ``seen`` drained."""
        order = Signal(2)  # cycles since `o_remote`, 0: not yet
        late = Signal()
        over, answers = Signal(name="over"), Signal(name="answers")  # dead or answered; answered
        m.d.comb += late.eq(order == 3)
        asked = sum(each.bit_select(peer, 1) for each in dut.unanswered) != 0
        there = ~self.past(asked, "asked_before")
        with m.If(self.comes):
            m.d.sync += [order.eq(0), over.eq(0), answers.eq(0)]
        with m.Else():
            with m.If((order != 0) | (dut.o_remote & seen)):
                m.d.sync += order.eq(order + (order != 3))
            m.d.sync += [
                answers.eq(answers | (late & there)),
                over.eq(over | (late & (there | dut.peer_dead.bit_select(peer, 1)))),
            ]
        remote = self.answered & (self.command.op == CommandOp.FENCE_REMOTE)
        told = dut.o_response.payload.status != Reason.PEER_DEAD
        self.always("asked, and answered or dead", over, when=remote)
        self.always("all answered, or told", answers, when=remote & told)
        self.reach("a dead peer did not answer", remote & over & ~answers)


class CommandsAskTheTable(_Sequence):
    """A close asks the table once, for its handle, epoch and owner; its answer is the table's.
    CLOSE_ALL and ANNOUNCE_ALL ask once for every handle and for nothing else, and their answer is
    EPOCH_EARLY if some entry was held, else OK. They are executed only when all announcements
    before them are answered, and ask only when the ledger has those. What the announcer asks goes
    to the table as it is, the table's answer to it, its tells and urges to the list; nothing else
    asks or tells."""

    def specify(self, m, dut):
        table, command = self.table, self.command
        handle = self.constant(self._cfg.handle_width, "handle")
        self.suppose("handle exists", handle < self._cfg.handles)
        ask, result, status = table.ask, table.result, dut.o_response.payload.status
        current = Signal()
        asked = Signal(2)
        held = Signal()
        reason = Signal(4)
        # current: the last accepted one is it
        of = {op: command.op == op for op in CommandOp}
        every = of[CommandOp.CLOSE_ALL] | of[CommandOp.ANNOUNCE_ALL]
        single = of[CommandOp.CLOSE]
        announcer = self.announcer
        own = ask.valid & ~announcer.ask.valid
        with m.If(self.taken):
            m.d.sync += current.eq(self.comes)
        with m.If(self.comes):
            m.d.sync += [each.eq(0) for each in (asked, held)]
        with m.Elif(current):
            granted = own & table.ask_granted & (~every | (ask.index == handle))
            m.d.sync += asked.eq(Mux(asked == 3, 3, asked + granted))
            with m.If(result.valid):
                m.d.sync += [
                    held.eq(held | result.held),
                    reason.eq(result.reason),
                ]
        self.always(
            "asks as told",
            (single | every)
            & same(ask, epoch=command.epoch, owner=command.owner, tell=0)
            & (every | (ask.index == command.handle))
            & (single | (ask.index < self._cfg.handles))
            & (ask.tell_rest == of[CommandOp.ANNOUNCE_ALL])
            & (ask.abort == (command.abort & of[CommandOp.CLOSE])),
            when=own & current,
        )
        self.always("asks once", asked == 1, when=self.answered & (single | every))
        self.always("its answer is the table's", status == reason, when=self.answered & single)
        self.always(
            "answer of all of them",
            status == Mux(held, Reason.EPOCH_EARLY, Reason.OK),
            when=self.answered & every,
        )
        self.always("no other while announcements are inside", ~announcer.busy, when=own)
        self.always(
            "asks when the ledger has all",
            self.past(~self.engine.telling) | self.past(own),
            when=own,
        )
        self.always(
            "an announcement asks as it is",
            same(ask, tell=1, tell_rest=0, abort=0)
            & same(ask, **{name: announcer.ask[name] for name, _ in announcer.ask.shape()})
            & (announcer.ask_granted == table.ask_granted),
            when=announcer.ask.valid,
        )
        self.always(
            "the table's answer to it",
            (announcer.result.as_value() == result.as_value()),
            when=announcer.busy,
        )
        self.always(
            "tells and urges",
            (moves(self.engine.i_tell) == moves(announcer.o_tell))
            & (self.engine.i_tell.payload.as_value() == announcer.o_tell.payload.as_value())
            & (self.engine.urge == announcer.urge)
            & (announcer.telling == self.engine.telling),
        )


class MarksHaveACause(_Sequence):
    """Flushes come only for a fence or for closes that are staged: so a refused command causes
    none. A mark of everything is for a fence, after the flush of the merges; others are those of
    the closes that are listed then. A flush cuts off the closes that it is for; they are released
    only after the flushes of decoders and merges have ended. What the table closes is staged."""

    def specify(self, m, dut):
        table, mark, engine = self.table, dut.o_mark, self.engine
        fences = Signal(4)
        fence = self.taken & _is_fence(dut.i_command.payload.op)
        ended = moves(self.answers.i[1])
        m.d.sync += fences.eq(fences + fence - ended)
        staged = self.past(engine.staged)
        self.always("flush has a cause", staged | (fences != 0), when=dut.o_flush)
        self.always("mark of everything has a cause", fences != 0, when=mark.en & mark.all)
        self.always("a flush cuts", engine.cut == dut.o_flush)
        self.suppose("marks of what is left", engine.release & engine.left, when=engine.mark.en)
        stage = Signal(2)  # 0 none, 1 flush, 2 flush of the merges
        with m.If(dut.o_flush):
            m.d.sync += stage.eq(1)
        with m.Elif(dut.o_flush_merge):
            m.d.sync += stage.eq(2)
        self.always("released after the flushes", stage == 2, when=engine.release)
        self.always("marked after the flushes", stage == 2, when=mark.en & mark.all)
        self.always(
            "other marks are of closes",
            (mark.en == engine.mark.en) & (mark.handle == engine.mark.handle),
            when=~(mark.en & mark.all),
        )
        self.always(
            "what is closed is staged",
            (engine.i_close.valid == table.closed.valid)
            & (engine.i_close.payload.as_value() == table.closed.close.as_value()),
        )
