# SPDX-License-Identifier: Apache-2.0
"""Promises of the producer's commands (``hub_rtl/producer/producer.py``, docs/interfaces.md section
3)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, one_of
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.producer.producer import ProducerControl

from .tables import OpenRam

__all__ = [
    "LedgerIsReadForThePending",
    "OldStoresAreMarked",
    "OnlyTheDeadAreDropped",
    "PortsFollowTheParts",
]


class _Control(Spec):
    """The whole block with free inputs; at most two fences wait (eight in the hub), memories are
    parts.ram's double."""

    def build(self, m):
        m.submodules.dut = dut = ProducerControl(self._cfg, fences=2)
        inner = observe(dut)
        self.engine = engine = observe(inner.engine)
        closes, tells = observe(engine.closes), observe(engine.tells)
        cut(self, engine.packer)
        lists = *observe(closes.lists), *observe(tells.lists), tells.promises
        queues = observe(closes.queue).ram, observe(observe(inner.fences).queue).ram
        for ram in (observe(inner.table).table, *lists, *queues):
            OpenRam(ram)
        self.free_inputs(dut)
        self.taken = moves(dut.i_command)
        self.specify(m, dut)


class OldStoresAreMarked(_Control):
    """A mark comes only after a flush of the decoders that ended, then a flush of the merges that
    ended, each seen six cycles after its strobe or later. Strobes are one cycle long; marks follow
    one another."""

    def specify(self, m, dut):
        stage = Signal(2)  # last flush: 0 none, 1 of the decoders, 2 of the merges
        age = Signal(3)  # cycles since
        strobes = Cat(dut.o_flush, dut.o_flush_merge, dut.o_mark.en)
        with m.If(strobes[:2].any()):
            m.d.sync += [
                age.eq(0),
                stage.eq(Mux(dut.o_flush, 1, 2)),
            ]
        with m.Elif(age != 7):
            m.d.sync += age.eq(age + 1)
        ended = self.past(dut.flushing == 0), self.past(dut.merging == 0)
        # What is seen is one register old.
        ended = [self.past(each) for each in ended]
        empty = Signal()
        sees = (stage == 2) & (age >= 5) & ended[1]
        m.d.sync += empty.eq((empty | sees) & ~strobes[:2].any())
        self.always(
            "one strobe at a time",
            one_of(strobes, 0, 1, 2, 4),
        )
        self.always("flush after what was flushed", stage != 1, when=dut.o_flush)
        self.always(
            "merges after the decoders are empty",
            (stage == 1) & (age >= 5) & ended[0],
            when=dut.o_flush_merge,
        )
        self.always(
            "mark after the merges are empty",
            (stage == 2) & (empty | sees),
            when=dut.o_mark.en,
        )


class PortsFollowTheParts(_Control):
    """A CSR write of an entry is broadcast two cycles later; ``handle_data`` changes only two
    cycles after a read. A credit is claimed only where one was asked for and shown. Nothing is
    executed while the table is cleared."""

    def specify(self, m, dut):
        cfg, past, write = self._cfg, self.past, dut.handle_write
        written = write.en & ~dut.clearing & (write.index < cfg.handles)
        out = dut.o_handle_write
        self.always(
            "write broadcast",
            out.en
            & (out.index == past(past(write.index)))
            & (out.handle.as_value() == past(past(write.handle))),
            when=past(past(written)),
        )
        self.always(
            "data held",
            dut.handle_data.as_value() == past(dut.handle_data),
            when=past(past(~dut.handle_read.en)),
        )
        self.always(
            "claimed with a credit",
            past(dut.wanted & dut.may_send).bit_select(dut.claim.rank, 1),
            when=dut.claim.en,
        )
        self.always("table cleared once", ~dut.clearing, when=past(~dut.clearing) & self.started)
        self.always("nothing while clearing", ~self.taken, when=dut.clearing)


class OnlyTheDeadAreDropped(_Control):
    """A close or tell is dropped only after some peer was dead."""

    def specify(self, m, dut):
        ever_dead = Signal()
        counts = dut.counts
        m.d.sync += ever_dead.eq(ever_dead | dut.peer_dead.any())
        for name in ("closes_dropped", "tells_dropped"):
            self.always(f"{name} only for the dead", ever_dead, when=counts[name])


class LedgerIsReadForThePending(_Control):
    """The ledger is read only while, three cycles before, some peer had closes pending."""

    def specify(self, m, dut):
        past, engine = self.past, self.engine
        tells, closes, batch, step = engine.tells, engine.closes, engine.batch, engine.step
        told = observe(tells).lists.filled
        popped = tells.pop.en | closes.pop.en
        self.lemma("entries of a packet", engine.count <= Mux(batch.busy, NEWS_ENTRIES, 0))
        self.lemma("first cycle of a pop", (step == 1) == past(popped))
        self.lemma("second cycle of a pop", (step == 2) == past(past(popped)))
        self.lemma("no pop before the first one", step == 0, when=~batch.busy | ~engine.count.any())
        gone = (closes.ready & ~closes.filled) | ((tells.ready | tells.filled) & ~told)
        self.lemma("ready while filled", gone == 0, when=step != 2)
        self.lemma("ready as shown", (tells.ready & ~tells.filled) == 0, when=step == 0)
        self.lemma(
            "a packet's peer has news until the first one leaves",
            (tells.filled | closes.filled).bit_select(batch.rank, 1),
            when=batch.busy & ~engine.count.any(),
        )
        self.always(
            "only of pending peers", past(past(past(dut.pending.any()))), when=dut.ledger_read.en
        )
