# SPDX-License-Identifier: Apache-2.0
"""A command from its acceptance to its answer (``hub_rtl/producer/producer.py``, docs/interfaces.md
section 3)."""

from amaranth import Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.lib import wiring

from formal.kit.inside import observe, stand_in
from formal.kit.spec import Spec, moves, one_of
from hub_rtl.contract.packets import CommandOp, Reason
from hub_rtl.parts.stream import StreamMerge
from hub_rtl.producer.close_engine import CloseEngine
from hub_rtl.producer.handle_table import HandleTable
from hub_rtl.producer.producer import ProducerControl

from .doubles import OpenQueue

__all__ = ["ClosesAskTheTable", "CommandsAreAnsweredOnce", "FencesWaitForPeers", "MarksHaveACause"]


def _free_outputs(m, part, but=()):
    for path, member, value in part.signature.flatten(part):
        if member.flow == wiring.Out and path[0] not in but:
            value = getattr(value, "as_value", lambda value=value: value)()
            m.d.comb += value.eq(AnySeq(len(value)))


class _AnyTable(HandleTable):
    """Of the table only what ``producer.entries_atomic`` proves of ``close``: granted when asked,
    after any time; answered two cycles later, in any way, ``held`` only with EPOCH_EARLY. Its
    clearing ends once."""

    def elaborate(self, platform):
        m = Module()
        _free_outputs(m, self, ("close_granted", "unpend_granted", "result", "clearing"))
        granted, clearing = Signal(), Signal(init=1)
        result, held = Signal.like(self.result), Signal()
        m.d.comb += [
            self.close_granted.eq(self.close.valid & ~clearing & AnySeq(1)),
            self.clearing.eq(clearing),
            held.eq(AnySeq(1)),
            self.unpend_granted.eq(self.unpend.valid & ~clearing & AnySeq(1)),
            result.eq(AnySeq(len(result.as_value()))),
            self.result.eq(result),
        ]
        valid = Signal()
        m.d.sync += [
            granted.eq(self.close_granted),
            valid.eq(granted),
            clearing.eq(clearing & AnySeq(1)),
        ]
        m.d.comb += [
            self.result.valid.eq(valid),
            self.result.held.eq(held & (result.reason == Reason.EPOCH_EARLY)),
        ]
        return m


class _AnyEngine(CloseEngine):
    """Pending closes that do anything."""

    def elaborate(self, platform):
        m = Module()
        _free_outputs(m, self, ("i_close",))
        m.d.comb += self.i_close.ready.eq(AnySeq(1))
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
        self.engine = stand_in(inner.closes, _AnyEngine(self._cfg))
        self.fences = OpenQueue(inner.fences)
        self.answers = inner.answers
        if self.merge:
            stand_in(self.answers, self.merge(self.answers.o.payload.shape(), 2))
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
    operation that does not exist is answered UNKNOWN, a fence OK or PEER_DEAD. The merge of the
    answers is replaced by what ``parts.merge`` keeps."""

    merge = _AnyMerge

    def specify(self, m, dut):
        op, status = self.command.op, dut.o_response.payload.status
        first, fences = self.answers.i[0], self.fences
        # Helper: the followed command is under way, or one of the fences.
        under_way, current = Signal(), Signal.like(dut.i_command.payload)
        with m.If(self.taken & (dut.i_command.payload.op != CommandOp.FENCE)):
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
            (n < fences.level) & (place == self.tag) for n, place in enumerate(fences.places)
        ]
        self.lemma("one place", sum(waiting, under_way & (current.tag == self.tag)) == self.open)
        self.lemma("in the queue", op == CommandOp.FENCE, when=sum(waiting) != 0)
        self.always("answer of a command", self.open, when=self.answered)
        self.always("no such operation", status == Reason.UNKNOWN, when=self.answered & (op == 3))
        self.always(
            "status of a fence",
            one_of(status, Reason.OK, Reason.PEER_DEAD),
            when=self.answered & (op == CommandOp.FENCE),
        )


class FencesWaitForPeers(_Sequence):
    """A fence is answered only after a mark of everything that came after it, and after each peer
    was seen, six cycles after that mark or later, in a cycle in which no packet manager drained it.
    The merge as in :class:`CommandsAreAnsweredOnce`."""

    merge = _AnyMerge

    def specify(self, m, dut):
        peer = self.constant(self._cfg.rank_width, "peer")
        self.suppose("peer exists", peer < self._cfg.ranks)
        age, seen = Signal(3), Signal()  # cycles since the mark, 0: not yet
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
            when=self.answered & (self.command.op == CommandOp.FENCE),
        )
        self.reach("waited", self.past((age == 6) & ~seen & drains) & ~drains)


class ClosesAskTheTable(_Sequence):
    """A close asks the table once, for its handle, epoch and owner, and its answer is the table's;
    a close-all asks once for every handle and for nothing else, and its answer is EPOCH_EARLY if
    some entry was held, else OK. Nothing else asks."""

    def specify(self, m, dut):
        table, command = self.table, self.command
        handle = self.constant(self._cfg.handle_width, "handle")
        self.suppose("handle exists", handle < self._cfg.handles)
        close, result, status = table.close, table.result, dut.o_response.payload.status
        current, asked, held, reason = (
            Signal(),
            Signal(2),
            Signal(),
            Signal(4),
        )  # current: the last accepted one is it
        all_of_them = command.op == CommandOp.CLOSE_ALL
        with m.If(self.taken):
            m.d.sync += current.eq(self.comes)
        with m.If(self.comes):
            m.d.sync += [
                asked.eq(0),
                held.eq(0),
            ]
        with m.Elif(current):
            with m.If(table.close_granted & (~all_of_them | (close.index == handle))):
                m.d.sync += asked.eq(Mux(asked == 3, 3, asked + 1))
            with m.If(result.valid):
                m.d.sync += [
                    held.eq(held | result.held),
                    reason.eq(result.reason),
                ]
        closes = command.op == CommandOp.CLOSE
        self.always(
            "asks as told",
            (closes | all_of_them)
            & (close.epoch == command.epoch)
            & (close.owner == command.owner)
            & (all_of_them | (close.index == command.handle))
            & (closes | (close.index < self._cfg.handles)),
            when=close.valid & current,
        )
        self.always("close asks once", asked == 1, when=self.answered & (closes | all_of_them))
        self.always(
            "answer of a close is the table's", status == reason, when=self.answered & closes
        )
        self.always(
            "answer of a close-all",
            status == Mux(held, Reason.EPOCH_EARLY, Reason.OK),
            when=self.answered & all_of_them,
        )


class MarksHaveACause(_Sequence):
    """Flushes and marks come only for a fence or after the table accepted a close since the mark
    before: so a refused command causes none. A mark of one handle is of the close accepted last.
    Closes are listed only six cycles after their mark."""

    def specify(self, m, dut):
        table, mark = self.table, dut.o_mark
        accepts = table.result.valid & (table.result.reason == Reason.OK)
        accepted, fenced, index = Signal(), Signal(), Signal(self._cfg.handle_width)
        asked = self.past(self.past(table.close.index))
        fence = self.taken & (dut.i_command.payload.op == CommandOp.FENCE)
        m.d.sync += [
            accepted.eq((accepted & ~mark.en) | accepts),
            fenced.eq((fenced & ~(mark.en & ~accepted)) | fence),
        ]
        with m.If(accepts):
            m.d.sync += index.eq(asked)
        age = Signal(3)
        m.d.sync += age.eq(Mux(mark.en, 1, Mux(accepts, 0, age + ((age != 0) & (age != 6)))))
        self.always("flush has a cause", accepted | fenced, when=dut.o_flush)
        self.always("mark of everything has a cause", accepted | fenced, when=mark.en & mark.all)
        self.always(
            "mark of a handle is of a close",
            accepted & (mark.handle == index),
            when=mark.en & ~mark.all,
        )
        self.always("listed six cycles after the mark", age == 6, when=self.engine.release)
        self.always("an accepted close is given to be sent", self.engine.i_close.valid == accepts)
