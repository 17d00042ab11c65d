# SPDX-License-Identifier: Apache-2.0
"""HandleTable: the master copy of the decoder entries, what they have told, and which of their news
are still to be sent."""

from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.handles import check_epoch, entry_known
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import producer_types_of

__all__ = ["HandleTable"]


class HandleTableObserve(NamedTuple):
    """What a proof may see of a :class:`HandleTable`."""

    #: per handle {handle, unsent, told, spent, zero, listed}, as the last operation but one left it
    table: Ram


class HandleTable(wiring.Component):
    """One read-modify-write per cycle on the master copy; every change is broadcast to the
    decoders.

    Each word is the entry; per epoch bank, how many closes (one per replica) are accepted and not
    yet sent; per replica, whether it is told in the entry's epoch, told 0 as one of the rest
    (``zero``), spent (all that it was told has left, once), and whether a tell of it waits
    (``listed``). An entry whose own bank has unsent closes is broadcast with ``hold``.

    Contract: operations are atomic and take effect in the order in which they are granted: first a
    CSR write, then a CSR read, then ``i_spent``, then ``unpend``, then ``ask``. A CSR write changes
    the entry only. An ``ask`` is refused like a store; a held entry answers EPOCH_EARLY. A close
    turns the entry into {epoch + 1, closed}, adds its replicas to the bank's count and forgets what
    was told. ``tell``: AFTER_CLOSE if this replica is told, UNKNOWN if there is none; ``wait`` and
    no change while its tell of another epoch is listed; else it is told and listed. ``tell_rest``:
    the replicas that are not told are told 0, and spent. A usable entry of which every replica is
    told and spent closes by itself, in the same operation, unless it is held (software wrote it so
    after it was told). So a bank has one close at a time. ``i_spent`` of another epoch (mod 4) than
    the entry's, or of a replica that is not told, changes nothing.

    Latency: granted in cycle t, ``result``, ``closed`` and ``o_write`` in t + 2. One operation per
    cycle. Nothing is granted while ``clearing``; CSR writes and reads then are lost. ``i_spent``
    waits for CSR accesses only: what is sent is counted whatever else waits.

    Parameters: ``cfg``. Ports: ``write`` In {en, index, handle}; ``read`` In {en, index},
    ``read_data`` Out handle, 2 cycles later, held; ``ask`` In, record ``ask``, ``ask_granted``
    Out, ``result`` Out record ``result``; ``i_spent`` In stream(``spent``); ``closed`` Out
    record ``closed``; ``unpend`` In record ``unpend``, ``unpend_granted`` Out;
    ``o_write`` Out record ``handle_broadcast``; ``clearing`` Out.
    """

    observe: HandleTableObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), producer_types_of(cfg)
        super().__init__(
            {
                "write": In(types.handle_write),
                "read": In(types.handle_read),
                "read_data": Out(types.handle),
                "ask": In(own.ask),
                "ask_granted": Out(1),
                "result": Out(own.result),
                "i_spent": In(stream.Signature(own.spent)),
                "closed": Out(own.closed),
                "unpend": In(own.unpend),
                "unpend_granted": Out(1),
                "o_write": Out(types.handle_broadcast),
                "clearing": Out(1),
            }
        )
        self._cfg, self._types = cfg, types
        self._word = data.StructLayout(
            {
                "handle": types.handle,
                "unsent": data.ArrayLayout(cfg.replicas.bit_length(), 2),
                **dict.fromkeys(("told", "spent", "zero", "listed"), cfg.replicas),
            }
        )
        #: What the second cycle knows of an operation. ``replica``: one-hot.
        self._op = data.StructLayout(
            {
                **dict.fromkeys(("write", "read", "spent", "unpend", "ask"), 1),
                "index": cfg.handle_width,
                "replica": cfg.replicas,
                "bank": 1,
                "turn": 1,
                "tell": 1,
                "asked": own.ask,
                "handle": types.handle,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Ram(self._word, self._cfg.handles, clear=True)
        self.observe = HandleTableObserve(table)
        op = self._choose(m, table)
        word = Signal(self._word)
        after = Signal(self._word)
        m.d.comb += [
            word.eq(table.r_data),
            after.eq(word),
            # Written back even if nothing changes: then it is what was read.
            table.w_en.eq(op.write | op.spent | op.unpend | op.ask),
            table.w_addr.eq(op.index),
            table.w_data.eq(after),
        ]
        known, held, reason = self._judge(m, op, word)
        change = Signal()
        self._change(m, op, word, after, change, known, reason)
        m.d.sync += [
            self.o_write.en.eq(change),
            self.o_write.index.eq(op.index),
            self.o_write.handle.eq(after.handle),
            self.o_write.hold.eq(after.unsent[after.handle.epoch[0]].any()),
            self.result.held.eq((reason == Reason.EPOCH_EARLY) & held),
            self.closed.close.index.eq(op.index),
            self.closed.close.epoch.eq(word.handle.epoch),
            self.closed.close.log2_replicas.eq(word.handle.log2_replicas),
            self.closed.close.replica.eq(word.handle.replica),
        ]
        with m.If(op.read):
            m.d.sync += self.read_data.eq(word.handle)
        return m

    def _choose(self, m, table):
        """Cycle 1: one operation is chosen and reads its word. Returns what the next cycle needs of
        it."""
        cfg = self._cfg
        op = Signal(self._op)
        idle = ~table.clearing
        index = Signal(cfg.handle_width)
        csr = Signal()
        write_ok = self.write.en & idle & (self.write.index < cfg.handles)
        spent, unpend, ask = self.i_spent, self.unpend, self.ask
        bits = ceil_log2(cfg.replicas)  # of a destination that name the replica

        def handle_of(dest):
            return dest[bits:] if len(dest) > bits else Const(0, 1)

        def replica_of(dest):
            return 1 << dest[:bits]

        m.d.comb += [
            self.clearing.eq(table.clearing),
            csr.eq(self.write.en | self.read.en),
            spent.ready.eq(idle & ~csr),
            self.unpend_granted.eq(
                unpend.valid
                & mutant("producer.unpend_lost_at_access", idle & ~csr & ~spent.valid, idle)
            ),
            self.ask_granted.eq(ask.valid & idle & ~csr & ~spent.valid & ~unpend.valid),
            index.eq(
                Mux(
                    csr,
                    Mux(self.write.en, self.write.index, self.read.index),
                    Mux(
                        spent.valid,
                        handle_of(spent.payload.dest),
                        Mux(unpend.valid, handle_of(unpend.dest), ask.index),
                    ),
                )
            ),
            table.r_addr.eq(index),
            table.r_en.eq(
                write_ok
                | self.read.en
                | (spent.valid & spent.ready)
                | self.unpend_granted
                | self.ask_granted
            ),
        ]
        m.d.sync += [
            op.write.eq(write_ok),
            op.read.eq(self.read.en & ~self.write.en),
            op.spent.eq(spent.valid & spent.ready),
            op.unpend.eq(self.unpend_granted),
            op.ask.eq(self.ask_granted),
            op.index.eq(index),
            op.replica.eq(
                Mux(
                    spent.valid,
                    replica_of(spent.payload.dest),
                    Mux(unpend.valid, replica_of(unpend.dest), 1 << ask.replica),
                )
            ),
            op.bank.eq(Mux(spent.valid, spent.payload.bank, unpend.bank)),
            op.turn.eq(spent.payload.turn),
            op.tell.eq(unpend.tell),
            op.asked.eq(ask),
            op.handle.eq(self.write.handle),
        ]
        return op

    def _judge(self, m, op, word):
        """Cycle 2: whether the entry is usable, whether it is held, and the reason of the
        answer."""
        cfg, ask = self._cfg, op.asked
        known = Signal()
        told = Signal()
        reason = Signal(REASON)
        held = word.unsent[word.handle.epoch[0]].any() & (ask.epoch == word.handle.epoch)
        m.d.comb += [
            known.eq(entry_known(cfg, word.handle) & (op.index < cfg.handles)),
            told.eq((word.told & op.replica).any()),
        ]
        with m.If(~known | (ask.tell & (ask.replica >= (1 << word.handle.log2_replicas)))):
            m.d.comb += reason.eq(Reason.UNKNOWN)
        with m.Elif(word.handle.owner != ask.owner):
            m.d.comb += reason.eq(Reason.FOREIGN)
        with m.Else():
            m.d.comb += reason.eq(check_epoch(ask.epoch, word.handle, held))
            with m.If(
                ask.tell & mutant("producer.told_twice", told, 0) & (ask.epoch == word.handle.epoch)
            ):
                m.d.comb += reason.eq(Reason.AFTER_CLOSE)
        m.d.sync += [
            self.result.valid.eq(op.ask),
            self.result.reason.eq(reason),
            self.result.target.eq(word.handle.replica[ask.replica[: ceil_log2(cfg.replicas)]]),
        ]
        return known, held, reason

    def _change(self, m, op, word, after, change, known, reason):
        """Cycle 2: the word as it is written back, and a close if that makes one."""
        count, ask, own_bank = self._cfg.replicas, op.asked, word.handle.epoch[0]
        ok = Signal()
        wait = Signal()
        closes = Signal()
        every, rest, told, spent, zero = (
            Signal(count, name=name) for name in ("every", "rest", "told", "spent", "zero")
        )  # every: replicas that there are
        m.d.comb += [
            ok.eq(op.ask & (reason == Reason.OK)),
            wait.eq(ok & ask.tell & (word.listed & op.replica).any()),
            every.eq((1 << (Const(1, 3) << word.handle.log2_replicas)) - 1),
            rest.eq(Mux(ok & ask.tell_rest, every & ~word.told, 0)),
            zero.eq(word.zero | rest),
            told.eq(word.told | rest | Mux(ok & ask.tell & ~wait, op.replica, 0)),
            spent.eq(
                word.spent
                | rest
                | Mux(
                    op.spent
                    & (op.bank == own_bank)
                    & mutant("producer.spent_of_epoch_before", op.turn == word.handle.epoch[1], 1),
                    op.replica & word.told,
                    0,
                )
            ),
            closes.eq(
                (ok & ~ask.tell & ~ask.tell_rest)
                | (
                    (op.spent | (ok & ask.tell_rest))
                    & known
                    & mutant("producer.closes_though_held", ~word.unsent[own_bank].any(), 1)
                    & mutant("producer.closes_at_first_replica", (every & ~spent) == 0, spent.any())
                )
            ),
        ]
        with m.If(op.write):
            m.d.comb += [
                after.handle.eq(op.handle),
                change.eq(1),
            ]
        with m.Elif(op.unpend):
            m.d.comb += change.eq(1)
            with m.If(op.tell):
                m.d.comb += after.listed.eq(word.listed & ~op.replica)
            with m.Else():
                m.d.comb += after.unsent[op.bank].eq(word.unsent[op.bank] - 1)
        with m.Elif(closes):
            m.d.comb += [
                after.handle.epoch.eq(word.handle.epoch + 1),
                after.handle.closed.eq(1),
                *[after[name].eq(0) for name in ("told", "spent", "zero")],
                change.eq(1),
                after.unsent[mutant("producer.close_counts_in_even_bank", own_bank, 0)].eq(
                    1 << word.handle.log2_replicas
                ),
            ]
        with m.Elif(op.ask | op.spent):
            m.d.comb += [
                after.told.eq(told),
                after.spent.eq(spent),
                after.zero.eq(zero),
                after.listed.eq(word.listed | Mux(ok & ask.tell & ~wait, op.replica, 0)),
            ]
        m.d.sync += [
            self.result.wait.eq(wait),
            self.closed.valid.eq(closes & ~op.write & ~op.unpend),
            self.closed.close.abort.eq(op.ask & ask.abort),
            self.closed.close.zero.eq(zero),
        ]
