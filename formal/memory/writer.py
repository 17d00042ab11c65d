# SPDX-License-Identifier: Apache-2.0
"""Promises of the memory writer (``hub_rtl/memory/memory.py``, docs/interfaces.md section 7)."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves, same
from hub_rtl.contract.axi import RESP_OKAY
from hub_rtl.memory.memory import MemoryWriter

__all__ = [
    "AcknowledgementsPair",
    "AddressesFollowCommands",
    "BeatsMatchCommands",
    "NothingIdles",
    "QuiesceIsExact",
]


class _Writer(Spec):
    """The writer with free inputs, and what crosses its ports."""

    def build(self, m):
        m.submodules.dut = self.dut = dut = MemoryWriter(self._cfg)
        self.free_inputs(dut)
        self.accepted = moves(dut.i_write)
        self.beat = moves(dut.i_data)
        self.aw, self.w = dut.mem.awvalid & dut.mem.awready, dut.mem.wvalid & dut.mem.wready
        self.acked = moves(dut.o_ack)
        self.specify(m, dut)

    def difference(self, name, plus, minus):
        """How many more of ``plus`` than of ``minus`` there were in the cycles before."""
        count = Signal(range(-2, self._cfg.write_depth + 3), name=name)
        self.m.d.sync += count.eq(count + plus - minus)
        return count

    def answered(self):
        """An answer comes for a burst all of whose beats are written; any other is ignored."""
        waits = self.difference(
            "unanswered", self.w & self.dut.mem.wlast, now := Signal(name="answered")
        )
        self.m.d.comb += now.eq(self.dut.mem.bvalid & self.dut.mem.bready & (waits != 0))
        return now


class AddressesFollowCommands(_Writer):
    """Every accepted command becomes one burst address, in order, with its address and beats; one
    that stays within 4 KiB on ``i_write`` does so on ``aw``."""

    def specify(self, m, dut):
        command, mem = dut.i_write.payload, dut.mem
        length = Signal(8)
        m.d.comb += length.eq(command.beats - 1)
        self.always_fifo("aw", self.accepted, command.addr, self.aw, mem.awaddr, most=2)
        self.always_fifo("awlen", self.accepted, length, self.aw, mem.awlen, most=2)
        self.always(
            "constant fields",
            same(
                mem,
                awid=0,
                awsize=self._cfg.slice_bytes.bit_length() - 1,
                awburst=1,
                awcache=0,
                awprot=0,
            ),
        )
        self.suppose(
            "commands stay within 4 KiB",
            command.addr[:12] + command.beats * self._cfg.slice_bytes <= 4096,
            when=dut.i_write.valid,
        )
        self.suppose(
            "commands have beats",
            (command.beats >= 1) & (command.beats <= 16),
            when=dut.i_write.valid,
        )
        self.always(
            "bursts stay within 4 KiB",
            mem.awaddr[:12] + (mem.awlen + 1) * self._cfg.slice_bytes <= 4096,
            when=mem.awvalid,
        )
        self.always("bursts have at most 16 beats", mem.awlen < 16, when=mem.awvalid)


class BeatsMatchCommands(_Writer):
    """Beats leave unchanged and in order, none before its command was accepted, and ``wlast`` is on
    the last beat that the command's address announces, if ``i_data`` has ``last`` there."""

    def specify(self, m, dut):
        mem, offered = dut.mem, dut.i_write.payload.beats
        item = dut.i_data.payload
        beat = Signal(item.shape().size)
        m.d.comb += beat.eq(Cat(mem.wdata, mem.wstrb, mem.wlast))
        self.always_fifo("w", self.beat, item, self.w, beat, most=2)
        ends_in, ends_out = self.beat & item.last, self.w & mem.wlast
        unfed = self.difference("unfed", self.accepted, ends_in)
        unwritten = self.difference("unwritten", self.accepted, ends_out)
        self.always("no beat before its command", (unfed != 0) | self.accepted, when=self.beat)
        self.always("no beat on the wire before its command", unwritten != 0, when=self.w)

        # An arbitrary command is followed: bursts before it and its own beats so far, at i_data and
        # at w.
        chosen = Signal()
        follows = Signal()
        beats = Signal(5)
        before_in = Signal(3)
        before_out = Signal(3)
        beats_in = Signal(5)
        beats_out = Signal(5)
        self.free(chosen)
        first = self.accepted & chosen & ~follows
        now = Mux(follows, beats, offered)
        mine_in = (follows & (before_in == 0)) | (first & (unfed == 0))
        mine_out = follows & (before_out == 0)
        m.d.sync += [
            beats.eq(now),
            beats_in.eq(beats_in + (self.beat & mine_in)),
            beats_out.eq(beats_out + (self.w & mine_out)),
        ]
        with m.If(first):
            m.d.sync += [
                follows.eq(1),
                before_in.eq(Mux(unfed == 0, ends_in, unfed - ends_in)),
                before_out.eq(unwritten - ends_out),
            ]
        with m.Elif(follows):
            m.d.sync += [
                before_in.eq(before_in - (ends_in & ~mine_in)),
                before_out.eq(before_out - (ends_out & ~mine_out)),
            ]
        self.suppose(
            "commands have beats", (offered >= 1) & (offered <= 16), when=dut.i_write.valid
        )
        done_in = Signal()
        done_out = Signal()
        m.d.sync += [
            done_in.eq(done_in | (ends_in & mine_in)),
            done_out.eq(done_out | (ends_out & mine_out)),
        ]
        self.suppose(
            "last on a command's last beat",
            item.last == (beats_in == now - 1),
            when=self.beat & mine_in & ~done_in,
        )
        self.always(
            "wlast on the last beat announced",
            mem.wlast == (beats_out == beats - 1),
            when=self.w & mine_out & ~done_out,
        )
        self.reach("a burst of two beats is done", done_out & (beats == 2))


class AcknowledgementsPair(_Writer):
    """Every accepted command gives one acknowledgement, in order, with its context and ``ok``
    exactly if its burst, in order, was answered OKAY; ``bready`` is always 1; ``outstanding`` is
    the number of commands not acknowledged and taken, at most ``write_depth``. Answers without a
    burst change nothing."""

    def specify(self, m, dut):
        depth, answered = self._cfg.write_depth, self.answered()
        inside, *_ = self.always_fifo(
            "context",
            self.accepted,
            dut.i_write.payload.context,
            self.acked,
            dut.o_ack.payload.context,
            most=depth,
        )
        self.always_fifo(
            "answer",
            answered,
            dut.mem.bresp == RESP_OKAY,
            self.acked,
            dut.o_ack.payload.ok,
            most=depth,
        )
        self.always("outstanding exact", dut.outstanding == inside)
        self.always("answers are always taken", dut.mem.bready)
        self.reach("memory error acknowledged", self.acked & ~dut.o_ack.payload.ok)
        self.reach("all places used", dut.outstanding == depth)


class NothingIdles(_Writer):
    """An address, a beat, an acknowledgement is offered from the cycle after it came until it is
    taken; a command is accepted unless ``write_depth`` are outstanding or memory took no address in
    the cycle before, a beat unless no command waits for one or memory took no beat in the cycle
    before. The counters' strobes tell what memory did in the cycle before."""

    def specify(self, m, dut):
        mem, counts = dut.mem, dut.counts
        addresses = self.difference("addresses", self.accepted, self.aw)
        beats = self.difference("beats", self.beat, self.w)
        answers = self.difference("answers", self.answered(), self.acked)
        commands = self.difference("commands", self.accepted, self.beat & dut.i_data.payload.last)
        self.always("address offered while one waits", mem.awvalid == (addresses != 0))
        self.always("beat offered while one waits", mem.wvalid == (beats != 0))
        self.always("acknowledgement offered while one waits", dut.o_ack.valid == (answers != 0))
        self.always(
            "command accepted",
            dut.i_write.ready,
            when=(dut.outstanding != self._cfg.write_depth)
            & ~self.past(mem.awvalid & ~mem.awready),
        )
        self.always(
            "beat accepted",
            dut.i_data.ready,
            when=((commands != 0) | self.accepted) & ~self.past(mem.wvalid & ~mem.wready),
        )
        for name, event in (
            ("writes", self.aw),
            ("beats", self.w),
            ("stall_aw", mem.awvalid & ~mem.awready),
            ("stall_w", mem.wvalid & ~mem.wready),
        ):
            self.always(f"count {name}", counts[name] == self.past(event), when=self.started)


class QuiesceIsExact(_Writer):
    """After a ``quiesce`` strobe, ``quiescing`` is 1 from the next cycle exactly until every
    command accepted up to the strobe's cycle was acknowledged and its acknowledgement taken; later
    commands do not prolong it."""

    def specify(self, m, dut):
        inside, ahead, follows = self.always_fifo(
            "command", self.accepted, 0, self.acked, 0, most=self._cfg.write_depth
        )
        older = Signal()  # the followed command came no later than the last strobe
        chosen = self.accepted & ~follows
        self.flag(older, dut.quiesce, chosen)
        self.always("waits for older commands", dut.quiescing, when=follows & older)
        self.always(
            "does not wait for later ones", ~dut.quiescing, when=follows & ~older & (ahead == 0)
        )
        self.always("over when all are acknowledged", ~dut.quiescing, when=inside == 0)
        self.reach(
            "ends while a later command waits",
            self.past(dut.quiescing) & ~dut.quiescing & (inside != 0),
        )
