# SPDX-License-Identifier: Apache-2.0
"""Promises of the pending closes (``hub_rtl/producer/close_engine.py``, docs/interfaces.md section
3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import HubConfig
from hub_rtl.producer.close_engine import CloseEngine

from .tables import OpenRam

__all__ = ["EntriesTellTotals"]


class ByteTotals(HubConfig):
    """A configuration with totals of 6 bits: they wrap earlier, nothing else."""

    total_width = 6


class _Engine(Spec):
    """The engine with free inputs; closes of one replica, each (handle, bank) accepted again only
    after its ``unpend``, as the decoder table does (producer.entries_atomic). The memories are
    parts.ram's double. The packer is cut out (``producer.news_packed``): it has room or not as it
    likes; ``sent`` is an entry that it gets."""

    def __init__(self, cfg):
        super().__init__(ByteTotals(**cfg.as_dict()))

    def replace(self, engine):
        """Puts doubles into the engine."""
        for ram in (*observe(engine.lists), observe(engine.queue).ram):
            OpenRam(ram)

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = CloseEngine(cfg)
        inner = observe(dut)
        self.replace(inner)
        self.packer = inner.packer
        cut(self, self.packer)
        self.free_inputs(dut, but=("i_close",))
        self.free(dut.i_close.valid, dut.i_close.payload)  # never stalled, so nothing to hold
        close, unpend = dut.i_close.payload, dut.unpend
        self.put = moves(dut.i_close)
        self.entry, self.sent = self.packer.put.entry, self.packer.put.en
        self.suppose(
            "handles and ranks exist",
            (close.index < cfg.handles)
            & (close.replica[0].rank < cfg.ranks)
            & (close.log2_replicas == 0),
            when=dut.i_close.valid,
        )
        unsent = Signal(2 * cfg.handles)
        node = close.index << 1 | close.epoch[0]
        for n in range(len(unsent)):
            self.flag(
                unsent[n],
                self.put & (node == n),
                dut.unpend_granted & ((unpend.index << 1 | unpend.bank) == n),
            )
        self.suppose(
            "one close of a bank at a time", ~unsent.bit_select(node, 1), when=dut.i_close.valid
        )
        staged = Signal(range(cfg.handles + 1))  # since none was: those of one command
        m.d.sync += staged.eq(Mux(dut.staged | self.put, staged + self.put, 0))
        self.suppose(
            "at most one close per handle in a command",
            staged != cfg.handles,
            when=dut.i_close.valid,
        )
        self.suppose("grants follow requests", unpend.valid, when=dut.unpend_granted)
        self.specify(m, dut)


class EntriesTellTotals(_Engine):
    """While no peer is dead, every clearing read is followed by one entry, in order, that tells and
    closes with the sum of all ledgers' totals of the second cycle after the read; at most two are
    between. Nothing is dropped."""

    def specify(self, m, dut):
        self.suppose("no peer is dead", dut.peer_dead == 0)
        total = sum(dut.ledger_total[1:], dut.ledger_total[0])[: self._cfg.total_width]
        entry, shown = self.entry, self.past(self.past(dut.ledger_read.en))
        self.always_fifo(
            "total",
            shown,
            Cat(total[:4] != 0, total[4:]),
            self.sent,
            Cat(entry.ragged, entry.bytes16[: self._cfg.total_width - 4]),
            most=2,
        )
        self.always(
            "an entry that tells and closes",
            entry.tell
            & entry.close
            & ~(entry.abort | entry.short | entry.over)
            & (entry.bytes16 >> self._cfg.total_width - 4 == 0),
            when=self.sent,
        )
        self.always("sent told", dut.sent == self.sent)
        self.always("none dropped", ~dut.dropped)
