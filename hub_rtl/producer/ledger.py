"""SendLedger: bytes sent per destination and epoch bank, on the producer's side."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import index_width
from ..lib.ram import Ram

__all__ = ["LEDGER_CYCLES", "SendLedger", "ledger_read", "ledger_sent"]

LEDGER_CYCLES = 2       # from a read to its total


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

    Latency: ``total`` two cycles after ``read.en``, held until the next read's. One update per cycle, but a read takes the
    memory's read port: on average an update may come in at most every second cycle (a row packet has two flits or more), and
    two reads are at least two cycles apart. An update that meets a read waits in a register. A total is read in one cycle,
    registered in the next and written back in the third; one that is changed in two cycles after each other is passed on.

    Nothing stalls. After reset a walker clears the totals: ``clearing`` is 1, neither updates nor reads may come.

    Parameters: ``cfg``. Ports: ``sent`` In :func:`ledger_sent`; ``read`` In :func:`ledger_read`; ``total`` Out
    ``total_width``; ``clearing`` Out.
    Source: our specification, rule R1.
    """

    def __init__(self, cfg):
        super().__init__({"sent": In(ledger_sent(cfg)), "read": In(ledger_read(cfg)), "total": Out(cfg.total_width),
                          "clearing": Out(1)})
        self._cfg = cfg

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

        # First cycle: the memory is read. Second: its word is registered. Third: the new total is written.
        stage = data.StructLayout({"address": index_width(depth), "write": 1, "bytes": cfg.bytes_width, "clear": 1})
        second, third, same, old, new = Signal(stage), Signal(stage), Signal(), *(Signal(cfg.total_width) for _ in range(2))
        read2, word = Signal(), Signal(cfg.total_width)
        m.d.comb += [
            totals.r_en.eq(self.read.en | update.en),
            totals.r_addr.eq(Mux(self.read.en, self.read.dest << 1 | self.read.bank, update.dest << 1 | update.bank)),
            new.eq(Mux(third.clear, 0, old + third.bytes)), word.eq(Mux(same, new, totals.r_data)),
            totals.w_en.eq(third.write), totals.w_addr.eq(third.address), totals.w_data.eq(new),
        ]
        m.d.sync += [
            second.address.eq(totals.r_addr), second.write.eq(Mux(self.read.en, self.read.clear, update.en)),
            second.clear.eq(self.read.en), second.bytes.eq(update.bytes), read2.eq(self.read.en),
            # The word that was just read is being changed: what the memory gave is out of date.
            same.eq(second.write & (totals.r_addr == second.address)),
            third.eq(second), old.eq(word),
        ]
        with m.If(read2):
            m.d.sync += self.total.eq(word)
        return m
