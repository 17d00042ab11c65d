# SPDX-License-Identifier: Apache-2.0
"""Promise of the receiving end of a slice's link (``hub_rtl/link/deserializer.py``)."""

from amaranth import Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.link.deserializer import PLACES, Deserializer

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
        self.always_held(dut.o_beat, "o_beat")
