# SPDX-License-Identifier: Apache-2.0
"""HandleTable: the master copy of the decoder entries and which of their closes are still to be
sent."""

from typing import NamedTuple

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

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

    table: Ram  #: per handle {handle, unsent}, as the last operation but one left it


class HandleTable(wiring.Component):
    """One read-modify-write per cycle on the master copy; every change is broadcast to the
    decoders.

    Each word is the entry and, per epoch bank, how many closes (one per replica) are accepted and
    not yet sent. An entry whose own bank has such closes is broadcast with ``hold``.

    Contract: operations are atomic and take effect in the order in which they are granted: first a
    CSR write, then a CSR read, then ``unpend``, then ``close``. A CSR write keeps the counts of
    unsent closes. ``close`` is refused like a store; OK turns the entry into {epoch + 1, closed}
    and adds its replicas to the bank's count. A held entry answers EPOCH_EARLY.

    Latency: granted in cycle t, ``result`` and ``o_write`` in t + 2. One operation per cycle.
    Nothing is granted while ``clearing``; CSR writes and reads then are lost.

    Parameters: ``cfg``. Ports: ``write`` In {en, index, handle}; ``read`` In {en, index},
    ``read_data`` Out handle, 2 cycles later, held; ``close`` In, record ``close_request``,
    ``close_granted`` Out; ``result`` Out {valid, reason, held, staged}, ``held``: EPOCH_EARLY only
    because of the hold; ``unpend`` In {valid, index, bank}, ``unpend_granted`` Out: a close of that
    bank was sent or dropped; ``o_write`` Out record ``handle_broadcast``; ``clearing`` Out.
    """

    observe: HandleTableObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), producer_types_of(cfg)
        super().__init__(
            {
                "write": In(types.handle_write),
                "read": In(types.handle_read),
                "read_data": Out(types.handle),
                "close": In(own.close_request),
                "close_granted": Out(1),
                "result": Out(own.result),
                "unpend": In(own.unpend),
                "unpend_granted": Out(1),
                "o_write": Out(types.handle_broadcast),
                "clearing": Out(1),
            }
        )
        self._cfg, self._types = cfg, types

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        word_layout = data.StructLayout(
            {"handle": self._types.handle, "unsent": data.ArrayLayout(cfg.replicas.bit_length(), 2)}
        )
        m.submodules.table = table = Ram(word_layout, cfg.handles, clear=True)
        self.observe = HandleTableObserve(table)
        self._change(m, table, word_layout, *self._choose(m, table))
        return m

    def _choose(self, m, table):
        """Cycle 1: one operation is chosen and reads its word. Returns what the next cycle needs:
        the operations, one-hot or none; the close; the entry that is written; the bank of which a
        close was sent; the handle."""
        cfg = self._cfg
        idle = ~table.clearing
        write_ok = self.write.en & idle & (self.write.index < cfg.handles)
        op = {name: Signal(name=f"op_{name}") for name in ("write", "read", "unpend", "close")}
        index = Signal(cfg.handle_width)
        op_in = Signal.like(self.close)
        written, bank, op_index = Signal(self._types.handle), Signal(), Signal(cfg.handle_width)
        m.d.comb += [
            self.clearing.eq(table.clearing),
            self.unpend_granted.eq(
                mutant(
                    "producer.unpend_lost_at_access",
                    self.unpend.valid & idle & ~self.write.en & ~self.read.en,
                    self.unpend.valid & idle,
                )
            ),
            self.close_granted.eq(
                self.close.valid & idle & ~self.write.en & ~self.read.en & ~self.unpend.valid
            ),
            index.eq(
                Mux(
                    self.write.en | self.read.en,
                    Mux(self.write.en, self.write.index, self.read.index),
                    Mux(self.unpend.valid, self.unpend.index, self.close.index),
                )
            ),
            table.r_addr.eq(index),
            table.r_en.eq(write_ok | self.read.en | self.unpend_granted | self.close_granted),
        ]
        m.d.sync += [
            op["write"].eq(write_ok),
            op["read"].eq(self.read.en & ~self.write.en),
            op["unpend"].eq(self.unpend_granted),
            op["close"].eq(self.close_granted),
            op_in.eq(self.close),
            written.eq(self.write.handle),
            bank.eq(self.unpend.bank),
            op_index.eq(index),
        ]
        return op, op_in, written, bank, op_index

    def _change(self, m, table, word_layout, op, op_in, written, bank, op_index):
        """Cycle 2: the word is judged and written back, the change and the answer go out."""
        cfg = self._cfg
        word, after = Signal(word_layout), Signal(word_layout)
        reason, epoch_reason, change = Signal(REASON), Signal(REASON), Signal()
        held = word.unsent[word.handle.epoch[0]].any()
        m.d.comb += [
            word.eq(table.r_data),
            after.eq(word),
            epoch_reason.eq(check_epoch(op_in.epoch, word.handle, held)),
            # Written back even if a close is refused and nothing changes: whether it is, is known
            # late.
            table.w_en.eq(op["write"] | op["unpend"] | op["close"]),
            table.w_addr.eq(op_index),
            table.w_data.eq(after),
        ]
        with m.If((op_in.index >= cfg.handles) | ~entry_known(cfg, word.handle)):
            m.d.comb += reason.eq(Reason.UNKNOWN)
        with m.Elif(word.handle.owner != op_in.owner):
            m.d.comb += reason.eq(Reason.FOREIGN)
        with m.Else():
            m.d.comb += reason.eq(epoch_reason)
        with m.If(op["write"]):
            m.d.comb += [
                after.handle.eq(written),
                change.eq(1),
            ]
        with m.Elif(op["unpend"]):
            m.d.comb += [
                after.unsent[bank].eq(word.unsent[bank] - 1),
                change.eq(1),
            ]
        with m.Elif(op["close"] & (reason == Reason.OK)):
            m.d.comb += [
                after.handle.epoch.eq(word.handle.epoch + 1),
                after.handle.closed.eq(1),
                change.eq(1),
                after.unsent[mutant("producer.close_counts_in_even_bank", op_in.epoch[0], 0)].eq(
                    1 << word.handle.log2_replicas
                ),
            ]

        m.d.sync += [
            self.o_write.en.eq(change),
            self.o_write.index.eq(op_index),
            self.o_write.handle.eq(after.handle),
            self.o_write.hold.eq(after.unsent[after.handle.epoch[0]].any()),
            self.result.valid.eq(op["close"]),
            self.result.reason.eq(reason),
            self.result.held.eq(
                (reason == Reason.EPOCH_EARLY) & (op_in.epoch == word.handle.epoch)
            ),
            self.result.staged.index.eq(op_index),
            self.result.staged.epoch.eq(op_in.epoch),
            self.result.staged.log2_replicas.eq(word.handle.log2_replicas),
            self.result.staged.replica.eq(word.handle.replica),
        ]
        with m.If(op["read"]):
            m.d.sync += self.read_data.eq(word.handle)
