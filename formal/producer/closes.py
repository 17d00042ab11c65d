# SPDX-License-Identifier: Apache-2.0
"""Promises of the pending closes (``hub_rtl/producer/close_engine.py``, docs/interfaces.md section
3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.producer.close_engine import CloseEngine

from .tables import OpenRam

__all__ = ["MessagesTellTotals", "OneMessagePerPeer"]


class ByteTotals(HubConfig):
    """A configuration with totals of 6 bits: they wrap earlier, nothing else."""

    total_width = 6


class _Engine(Spec):
    """The engine with free inputs; closes of one replica, each (handle, bank) accepted again only
    after its ``unpend``, as the decoder table does (producer.entries_atomic). The memories are
    parts.ram's double."""

    def __init__(self, cfg):
        super().__init__(ByteTotals(**cfg.as_dict()))

    def replace(self, engine):
        """Puts doubles into the engine."""
        for ram in (*observe(engine.lists), observe(engine.queue).ram):
            OpenRam(ram)

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = CloseEngine(cfg)
        self.replace(observe(dut))
        self.free_inputs(dut, but=("i_close",))
        self.free(dut.i_close.valid, dut.i_close.payload)  # never stalled, so nothing to hold
        close, unpend = dut.i_close.payload, dut.unpend
        self.put = moves(dut.i_close)
        self.sent = moves(dut.o_control)
        self.message = header_layout(PacketType.CLOSE)(dut.o_control.payload)
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


class MessagesTellTotals(_Engine):
    """While no peer is dead, every clearing read is followed by one CLOSE message, in order, with
    the sum of all ledgers' totals of the second cycle after the read; at most four are between.
    Nothing is dropped."""

    def specify(self, m, dut):
        self.suppose("no peer is dead", dut.peer_dead == 0)
        total = sum(dut.ledger_total[1:], dut.ledger_total[0])[: self._cfg.total_width]
        out, shown = self.message, self.past(self.past(dut.ledger_read.en))
        self.always_fifo(
            "total",
            shown,
            Cat(total[:4] != 0, total[4:]),
            self.sent,
            Cat(out.ragged, out.sent16[: self._cfg.total_width - 4]),
            most=4,
        )
        self.always(
            "a CLOSE",
            (out.type == PacketType.CLOSE)
            & ~out.abort
            & (out.sent16 >> self._cfg.total_width - 4 == 0),
            when=dut.o_control.valid,
        )
        self.always("sent told", dut.sent == self.sent)
        self.always("none dropped", ~dut.dropped)


class OneMessagePerPeer(_Engine):
    """From its choice until four cycles after ``ctl_done`` a peer is ``ctl_busy``, and no second
    message for it leaves. A peer is chosen only if it had a control credit and the other sender was
    not busy with it two cycles before. Closes of a dead peer are dropped and told; every read is
    followed by one message or one drop."""

    def specify(self, m, dut):
        cfg, past = self._cfg, self.past
        peer = self.constant(cfg.rank_width, "peer")

        def of(bits):
            return bits.bit_select(peer, 1)

        on_way, sends = Signal(), self.sent & (self.message.dst == peer)
        self.suppose("done after it was sent", on_way | sends, when=of(dut.ctl_done))
        self.flag(on_way, sends, of(dut.ctl_done), first=0)
        busy = of(dut.ctl_busy)
        offered = dut.o_control.valid & (self.message.dst == peer)
        self.always("one message at a time", ~on_way, when=offered)
        self.always("busy while it is inside or on its way", busy, when=offered | on_way)
        rises = busy & ~past(busy)
        self.always(
            "chosen with a credit", past(past(of(dut.ctl_ready) & ~of(dut.ctl_other))), when=rises
        )
        self.always(
            "busy falls only after done",
            past(past(past(past(of(dut.ctl_done))))),
            when=past(busy) & ~busy,
        )
        inside = Signal(4)
        m.d.sync += inside.eq(inside + dut.ledger_read.en - self.sent - dut.dropped)
        self.always(
            "a message or a drop for every read",
            inside != 0,
            when=dut.o_control.valid | dut.dropped,
        )
        self.always("at most four inside", inside <= 4)
