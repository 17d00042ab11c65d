# SPDX-License-Identifier: Apache-2.0
"""Banks that wait for something, each at most once, in the order in which they came."""

from typing import NamedTuple

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .name_ring import NameRing
from .records import bank_index, scoreboard_types

__all__ = ["BankQueue"]

SMALL = 64  # banks up to which FPGA tools are asked for distributed memory


class BankQueueObserve(NamedTuple):
    """What a proof may see of a :class:`BankQueue`."""

    came: Ram  #: a bit per bank, turned when it comes in
    gone: Ram  #: a bit per bank, turned when it goes
    ring: NameRing  #: the queue {bank, turn}
    asked: Signal  #: a bank was put in one cycle ago
    asked_bank: Signal  #: which one


class BankQueue(wiring.Component):
    """A set of banks that is also a queue. All that grows with the number of banks is in memories.

    Contract: a bank that is put in is offered once; put in again before it is taken it keeps its
    place and counts once; put in when or after it is taken it is offered again. It never overflows.
    Latency: put in in cycle 0, offered in cycle 2 when nothing else waits. Throughput: one per
    cycle in, one per two cycles out. Order: first come, first served. Nothing may be put in while
    ``clearing``. Structure: a bank is inside when its bits in two tables differ; one is turned when
    it comes in, the other when it goes, so that each table has one writer.

    Parameters: ``cfg``. Ports: ``put`` In {en, region, bank}; ``o`` Out stream(number of a bank);
    ``clearing`` Out.
    """

    observe: BankQueueObserve  # once elaborated

    def __init__(self, cfg):
        self._types = types = scoreboard_types(cfg)
        super().__init__(
            {
                "put": In(types.bank_strobe),
                "o": Out(stream.Signature(types.bank_width)),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        types = self._types
        width, quick = types.bank_width, types.banks <= SMALL
        m.submodules.came = came = Ram(1, types.banks, clear=True, quick=quick)
        m.submodules.gone = gone = Ram(1, types.banks, clear=True, quick=quick)
        m.submodules.ring = ring = NameRing(
            data.StructLayout({"bank": width, "turn": 1}), types.banks, quick
        )
        m.d.comb += self.clearing.eq(came.clearing | gone.clearing)

        # What is put in is looked up, and comes in behind the others if it is not inside.
        asked, asked_bank = Signal(name="asked"), Signal(width, name="asked_bank")
        self.observe = BankQueueObserve(came, gone, ring, asked, asked_bank)
        name = bank_index(self.put.region, self.put.bank)
        enters = Signal()
        m.d.sync += [
            asked.eq(self.put.en),
            asked_bank.eq(name),
        ]
        m.d.comb += enters.eq(
            mutant(
                "scoreboard.overlap_lost_as_one_leaves",
                asked & (came.r_data == gone.r_data),
                asked & (came.r_data == gone.r_data) & ~(self.o.valid & self.o.ready),
            )
        )
        for table in (came, gone):
            m.d.comb += [
                table.r_en.eq(self.put.en),
                table.r_addr.eq(name),
            ]
        m.d.comb += [
            came.w_en.eq(enters),
            came.w_addr.eq(asked_bank),
            came.w_data.eq(~came.r_data),
            ring.en.eq(enters),
            ring.name.bank.eq(asked_bank),
            ring.name.turn.eq(~came.r_data),
            self.o.valid.eq(ring.o.valid),
            self.o.payload.eq(ring.o.payload.bank),
            ring.o.ready.eq(self.o.ready),
            gone.w_addr.eq(ring.o.payload.bank),
            gone.w_data.eq(ring.o.payload.turn),
            gone.w_en.eq(self.o.valid & self.o.ready),
        ]
        return m
