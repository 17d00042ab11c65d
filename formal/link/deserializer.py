# SPDX-License-Identifier: Apache-2.0
"""Promise of the receiving end of a slice's link (``hub_rtl/link/deserializer.py``)."""

from functools import reduce
from operator import and_

from amaranth import Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.link.deserializer import PLACES, Deserializer
from hub_rtl.parts.onehot import tree_sum

__all__ = ["BeatsFindAPlace"]


class BeatsFindAPlace(Spec):
    """Whatever the wire brings, and however late beats are taken: each beat finds a place, and each
    packet's source, if sources are taken before their packets' last beats."""

    def __init__(self, cfg, slice_bytes):
        super().__init__(cfg)
        self._slice_bytes = slice_bytes

    def build(self, m):
        m.submodules.dut = dut = Deserializer(self._cfg, self._slice_bytes)
        inner = observe(dut)
        self.free_inputs(dut)
        behind = Signal(range(2 * PLACES))  # packets whose source was taken, and which are not out
        gone = moves(dut.o_beat) & dut.o_beat.p.last
        m.d.sync += behind.eq(behind + moves(dut.o_source) - gone)
        self.suppose("source first", (behind != 0) | moves(dut.o_source), when=gone)
        for name in ("beats", "sources"):
            queue = getattr(inner, name)
            self.always(f"place for {name}", queue.i.ready, when=queue.i.valid)

        first, arrived, out = inner.first, inner.arrived, dut.o_beat
        beats, sources = observe(inner.beats), observe(inner.sources)
        on_their_way = arrived.valid + first.valid + dut.rx.tready
        ends = tree_sum([beats.full[n] & item.last for n, item in enumerate(beats.items)])
        packets = ends + (out.valid & out.p.last) + inner.inside
        for queue, name in ((beats, "beats"), (sources, "sources")):
            filled = [queue.full[n] | ~queue.full[n + 1] for n in range(PLACES - 1)]
            self.lemma(f"{name} fill up", reduce(and_, filled))
        self.lemma("counted", inner.held == tree_sum(beats.full))
        self.lemma("room for flits", inner.held + on_their_way < PLACES)
        self.lemma("each packet's source", packets == tree_sum(sources.full) + behind)
        self.lemma("frame goes on", inner.within == ~arrived.last, arrived.valid)
        self.lemma("packet goes on", inner.within, inner.inside & ~arrived.valid)
        self.lemma("one packet at a time", ~inner.checked.begins, inner.inside & arrived.valid)
        self.lemma("header of a flit", arrived.valid, inner.checked.begins)
        self.lemma("header judged", inner.checked.begins, inner.checked.data)
