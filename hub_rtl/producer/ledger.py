"""SendLedger: bytes sent per destination and epoch bank, on the producer's side."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import index_width
from ..lib.ram import Ram
from ..types import types_of

__all__ = ["SendLedger", "ledger_read", "ledger_sent"]


def ledger_sent(cfg):
    """Layout of one update: {en, dest, bank, bytes}."""
    return data.StructLayout({"en": 1, "dest": cfg.dest_width, "bank": 1, "bytes": cfg.bytes_width})


def ledger_read(cfg):
    """Layout of one read: {en, dest, bank, clear}."""
    return data.StructLayout({"en": 1, "dest": cfg.dest_width, "bank": 1, "clear": 1})


class SendLedger(wiring.Component):
    """Totals of the bytes one packet manager has sent, per (dest, bank); one memory with one read and one write port.

    Contract: a read in cycle t shows all updates of cycles before t - 1; with ``clear`` the total is 0 afterwards and later
    updates count on from there. Totals are free-running modulo ``2**total_width``.

    Latency: ``total`` in the cycle after ``read.en``, held until the next read. One update per cycle, but a read takes the
    memory's read port: on average an update may come in at most every second cycle (a row packet has two flits or more), and
    two reads are at least two cycles apart. An update that meets a read waits in a register.

    Nothing stalls. After reset a walker clears the totals: ``clearing`` is 1, neither updates nor reads may come.

    Parameters: ``cfg``. Ports: ``sent`` In :func:`ledger_sent`; ``read`` In :func:`ledger_read`; ``total`` Out
    ``total_width``; ``clearing`` Out.
    Source: our specification, rule R1.
    """

    def __init__(self, cfg):
        super().__init__({"sent": In(ledger_sent(cfg)), "read": In(ledger_read(cfg)), "total": Out(cfg.total_width),
                          "clearing": Out(1)})
        self._cfg, self._types = cfg, types_of(cfg)

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        depth = 2 * cfg.dests
        m.submodules.totals = totals = Ram(cfg.total_width, depth, clear=True)
        waiting = Signal(ledger_sent(cfg))
        update = Signal(ledger_sent(cfg))
        m.d.comb += [self.clearing.eq(totals.clearing), update.eq(Mux(waiting.en, waiting, self.sent))]
        # The register takes what the memory cannot take now.
        with m.If(self.read.en | waiting.en):
            with m.If(self.sent.en | ~self.read.en):
                m.d.sync += waiting.eq(self.sent)

        address, write, bytes_, clear = Signal(index_width(depth)), Signal(), Signal(cfg.bytes_width), Signal()
        m.d.comb += [
            totals.r_en.eq(self.read.en | update.en),
            totals.r_addr.eq(Mux(self.read.en, self.read.dest << 1 | self.read.bank, update.dest << 1 | update.bank)),
            totals.w_en.eq(write), totals.w_addr.eq(address), totals.w_data.eq(Mux(clear, 0, totals.r_data + bytes_)),
        ]
        m.d.sync += [
            address.eq(totals.r_addr), write.eq(Mux(self.read.en, self.read.clear, update.en)),
            clear.eq(self.read.en), bytes_.eq(update.bytes),
        ]
        # The memory's output moves on with the next update: keep the total of a read.
        was_read, kept = Signal(), Signal(cfg.total_width)
        m.d.sync += was_read.eq(self.read.en)
        with m.If(was_read):
            m.d.sync += kept.eq(totals.r_data)
        m.d.comb += self.total.eq(Mux(was_read, totals.r_data, kept))
        return m
