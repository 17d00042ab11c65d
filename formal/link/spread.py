# SPDX-License-Identifier: Apache-2.0
"""Promise of what spreads records over links (``hub_rtl/link/spread.py``)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.link.spread import RecordSpread

__all__ = ["RecordsKeepToALink"]


class RecordsKeepToALink(Spec):
    """Each beat of a record is offered as it is, at one link, and taken when that link takes it.
    All beats of a record are offered at one link: of a plain one at the one it names, of the others
    at one after the other."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = RecordSpread(cfg)
        self.free_inputs(dut)
        record, links = dut.i_record, cfg.slice_links
        header = record.p.header
        turn = Signal(range(links))
        begun = Signal()
        last = Signal(links)
        first = Signal.like(header)
        offered = Cat(out.valid for out in dut.o_record)
        with m.If(moves(record)):
            m.d.sync += [begun.eq(~record.p.last), last.eq(offered), first.eq(header)]
            with m.If(record.p.last & ~header.plain):
                m.d.sync += turn.eq((turn + 1) % links)
        self.lemma("a turn is one link's", turn < links)
        self.lemma("turns", observe(dut).turn == 1 << turn)
        goes = Mux(first.plain, first.link, turn)
        self.lemma("a record has its link", last == 1 << goes, when=begun)
        self.suppose("links exist", header.link < links, when=record.valid & header.plain)
        self.suppose(
            "records: one header",
            header.as_value() == first.as_value(),
            when=begun & record.valid,
        )
        self.always("one link", sum(offered[n] for n in range(links)) == record.valid)
        self.always("parts stay together", offered == last, when=begun & record.valid)
        for n, out in enumerate(dut.o_record):
            mine = out.valid
            self.always(f"as it is at {n}", out.p.as_value() == record.p.as_value(), when=mine)
            self.always(f"taken with {n}", record.ready == out.ready, when=mine)
            self.always(f"the one it names at {n}", header.link == n, when=mine & header.plain)
            self.always(f"in turn at {n}", turn == n, when=mine & ~header.plain)
            self.always_held(out, f"o_record{n}")
