# SPDX-License-Identifier: Apache-2.0
"""Takes the acknowledgements of all slices and offers them to the pipeline, one at a time."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select

from .ack_bank import AckBank, ack_banks
from .ack_combiner import AckCombiner
from .records import scoreboard_types

__all__ = ["AckIntake"]


class AckIntakeObserve(NamedTuple):
    """What a proof may see of an :class:`AckIntake`."""

    combiners: list  #: AckCombiner per slice
    banks: list  #: AckBank by number
    slices: RoundRobin  #: whose oldest acknowledgement is offered
    sources: RoundRobin  #: the slices in turn with the banks


class AckIntake(wiring.Component):
    """Acknowledgements of all slices, as operations of the pipeline.

    Contract: the bytes that leave in operations of a tile and owner, and of a region's overflowed
    rows, are those that came in with ``ok``; a memory error or poison leaves with its tile. What
    the pipeline does not take at once is summed up, so that the rate of the slices does not depend
    on the pipeline's. Latency: taken in cycle 0, offered in cycle 1 when nothing waits. Throughput:
    one per slice and cycle in, as long as the oldest ones of two slices do not meet in a bank for
    long; one operation per cycle out. Order: each slice's and each bank's own; slices and banks in
    turn. Stall: when ``o`` is taken within four cycles, an acknowledgement is within 8 * slices *
    (1 + banks) + 1. ``o`` is not a held stream: its operation may be another one in the next cycle.

    Parameters: ``cfg``. Ports: ``i`` In stream(ack) per slice; ``o`` Out stream(op), ACK and OVER;
    ``sweep`` In strobe: what is inside now is old; ``sweeping`` Out: something old is still inside;
    ``merged`` Out: strobe, an acknowledgement was added to one; ``enable`` In; ``clearing`` Out.
    Source: docs/interfaces.md section 8; rule R4 of docs/architecture.md.
    """

    observe: AckIntakeObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._op = cfg, scoreboard_types(cfg).op
        super().__init__(
            {
                "i": In(stream.Signature(types_of(cfg).ack)).array(cfg.slices),
                "o": Out(stream.Signature(self._op)),
                "sweep": In(1),
                "sweeping": Out(1),
                "merged": Out(1),
                "enable": In(1),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        combiners = [AckCombiner(cfg) for _ in range(cfg.slices)]
        for n, combiner in enumerate(combiners):
            m.submodules[f"combiner_{n}"] = combiner
            wiring.connect(m, wiring.flipped(self.i[n]), combiner.i)
            m.d.comb += [
                combiner.enable.eq(mutant("scoreboard.taken_before_clear", self.enable, 1)),
                combiner.sweep.eq(self.sweep),
            ]
        banks = [AckBank(cfg) for _ in range(ack_banks(cfg))]
        for n, bank in enumerate(banks):
            m.submodules[f"waiting_{n}"] = bank
            # What an old accumulator brings is old.
            m.d.comb += bank.sweep.eq(self.sweep | Cat(each.sweeping for each in combiners).any())
        parts = (*combiners, *banks)
        m.d.comb += [
            self.sweeping.eq(Cat(each.sweeping for each in parts).any()),
            self.merged.eq(Cat(each.merged for each in parts).any()),
            self.clearing.eq(banks[0].clearing),  # all have so many words
        ]
        heads = [combiner.o for combiner in combiners]
        direct = self._offer(m, heads, banks)
        self._wait(m, combiners, banks, direct)
        self.observe = AckIntakeObserve(combiners, banks, m.submodules.slices, m.submodules.sources)
        return m

    def _offer(self, m, heads, banks):
        """The oldest of the slices in turn, and that in turn with the sums. Returns which slice's
        goes to the pipeline."""
        m.submodules.slices = slices = RoundRobin(len(heads))
        m.submodules.sources = sources = RoundRobin(1 + len(banks))
        direct, turn = Signal(len(heads), name="direct"), sources.grant_onehot
        m.d.comb += [
            slices.requests.eq(Cat(head.valid for head in heads)),
            slices.advance.eq(self.o.ready & turn[0]),
            sources.requests.eq(
                Cat(slices.requests.any(), (bank.o.valid for bank in banks)),
            ),
            sources.advance.eq(self.o.ready),
            direct.eq(Mux(self.o.ready & turn[0], slices.grant_onehot, 0)),
            self.o.valid.eq(sources.requests.any()),
            self.o.payload.eq(
                select(
                    Cat(Mux(turn[0], slices.grant_onehot, 0), turn[1:]),
                    [each.payload for each in (*heads, *(bank.o for bank in banks))],
                )
            ),
        ]
        for n, bank in enumerate(banks, 1):
            m.d.comb += bank.o.ready.eq(self.o.ready & turn[n])
        return direct

    def _wait(self, m, combiners, banks, direct):
        """What the pipeline leaves behind goes to the bank of its name."""
        heads, takes = [combiner.o for combiner in combiners], []
        for n, bank in enumerate(banks):
            arbiter = RoundRobin(len(heads))
            m.submodules[f"waiting_arbiter_{n}"] = arbiter
            granted = mutant("scoreboard.sums_take_nothing", arbiter.grant_onehot, 0)
            taken = Signal(len(heads), name=f"taken_{n}")
            m.d.comb += [
                arbiter.requests.eq(
                    Cat(combiner.o.valid & (combiner.sums == n) for combiner in combiners)
                ),
                taken.eq(mutant("scoreboard.direct_is_added_too", granted & ~direct, granted)),
                arbiter.advance.eq(bank.i.ready),
                bank.i.valid.eq(taken.any()),
                bank.i.payload.eq(select(arbiter.grant_onehot, [head.payload for head in heads])),
            ]
            takes.append(Mux(bank.i.ready, granted, 0))
        for n, head in enumerate(heads):
            leaves = direct[n] | Cat(taken[n] for taken in takes).any()
            m.d.comb += head.ready.eq(
                mutant(
                    "scoreboard.slices_have_priorities",
                    leaves,
                    leaves & ~Cat(first.valid for first in heads[:n]).any(),
                )
            )
