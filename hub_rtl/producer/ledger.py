# SPDX-License-Identifier: Apache-2.0
"""SendLedger: bytes sent per destination and epoch bank, on the producer's side."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .records import producer_types_of

__all__ = ["LEDGER_CYCLES", "SendLedger"]

LEDGER_CYCLES = 2  # from a read to its total


class SendLedger(wiring.Component):
    """Totals of the bytes one packet manager has sent, per (dest, bank); one memory with one read
    and one write port.

    Contract: a read in cycle t shows all updates of cycles before t - 1; with ``clear`` the total
    is 0 afterwards and later updates count on from there. Totals are free-running modulo
    ``2**total_width``.

    Latency: ``total`` two cycles after ``read.en``, held until the next read's. One update per
    cycle, but a read takes the memory's read port: on average an update may come in at most every
    second cycle (a row packet has two flits or more), and two reads are at least two cycles apart.
    An update that meets a read waits in a register. A total is read in one cycle, registered in the
    next and written back in the third; one that is changed again before it is back is passed on.

    Nothing stalls. After reset a walker clears the totals: ``clearing`` is 1, neither updates nor
    reads may come.

    Parameters: ``cfg``. Ports: ``sent`` In, record ``sent``; ``read`` In, record ``ledger_read``;
    ``total`` Out ``total_width``; ``clearing`` Out. Source: our specification, rule R1.
    """

    def __init__(self, cfg):
        super().__init__(
            {
                "sent": In(types_of(cfg).sent),
                "read": In(producer_types_of(cfg).ledger_read),
                "total": Out(cfg.total_width),
                "clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        depth = 2 * cfg.dests
        m.submodules.totals = totals = Ram(cfg.total_width, depth, clear=True, bypass=False)
        waiting = Signal(types_of(cfg).sent)
        update = Signal(types_of(cfg).sent)
        m.d.comb += [
            self.clearing.eq(totals.clearing),
            update.eq(Mux(waiting.en, waiting, self.sent)),
        ]
        # The register takes what the memory cannot take now.
        with m.If(self.read.en | waiting.en):
            with m.If(
                mutant(
                    "producer.read_total_not_cleared", self.sent.en | ~self.read.en, self.sent.en
                )
            ):
                m.d.sync += waiting.eq(self.sent)

        # First cycle: the memory is read. Second: its word is registered. Third: the new total is
        # written.
        stage = data.StructLayout(
            {"address": index_width(depth), "write": 1, "bytes": cfg.bytes_width, "clear": 1}
        )
        second, third, read2, read3 = Signal(stage), Signal(stage), Signal(), Signal()
        width = cfg.total_width
        old, word, new, written, kept = (
            Signal(width, name=name) for name in ("old", "word", "new", "written", "kept")
        )
        # The word is changed in the cycle in which it is read, or in the next: what the memory
        # gives is out of date. It comes late in its cycle, so what was written is put in its place
        # on the way into the next register, or behind it.
        changed, changes, same = Signal(), Signal(), Signal()
        m.d.comb += [
            totals.r_en.eq(self.read.en | update.en),
            totals.r_addr.eq(
                Mux(
                    self.read.en,
                    self.read.dest << 1 | self.read.bank,
                    update.dest << 1 | update.bank,
                )
            ),
            word.eq(mutant("producer.sum_before_last_missed", Mux(same, written, old), old)),
            new.eq(Mux(third.clear, 0, word + third.bytes)),
            totals.w_en.eq(third.write),
            totals.w_addr.eq(third.address),
            totals.w_data.eq(new),
            self.total.eq(Mux(read3, word, kept)),
        ]
        m.d.sync += [
            second.address.eq(totals.r_addr),
            second.write.eq(Mux(self.read.en, self.read.clear, update.en)),
            second.clear.eq(self.read.en),
            second.bytes.eq(update.bytes),
            read2.eq(self.read.en),
            changed.eq(third.write & (totals.r_addr == third.address)),
            changes.eq(second.write & (totals.r_addr == second.address)),
            same.eq(changes),
            third.eq(second),
            read3.eq(read2),
            old.eq(
                mutant(
                    "producer.sum_before_that_missed",
                    Mux(changed, written, totals.r_data),
                    totals.r_data,
                )
            ),
            written.eq(new),
            kept.eq(self.total),
        ]
        return m
