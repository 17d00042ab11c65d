# SPDX-License-Identifier: Apache-2.0
"""The small parts around the decoder, for their bench."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.records import types_of
from hub_rtl.decoder.steer import StoreMerge, StoreSteer


class Parts(wiring.Component):
    """The small parts around the decoder, side by side in one simulation."""

    def __init__(self, cfg):
        types = types_of(cfg)
        store, resolved = stream.Signature(types.store), stream.Signature(types.resolved)
        super().__init__(
            {
                "steer_i": In(store),
                "steer_o": Out(store).array(cfg.lanes),
                "merge_i": In(resolved).array(3),
                "merge_o": Out(resolved),
                "merge_flush": In(1),
                "merge_flushing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        m.submodules.steer = steer = StoreSteer(self._cfg)
        m.submodules.merge = merge = StoreMerge(self._cfg, 3)
        wiring.connect(m, wiring.flipped(self.steer_i), steer.i_store)
        wiring.connect(m, merge.o_store, wiring.flipped(self.merge_o))
        for mine, its in zip(self.steer_o, steer.o_store, strict=True):
            wiring.connect(m, its, wiring.flipped(mine))
        for mine, its in zip(self.merge_i, merge.i_store, strict=True):
            wiring.connect(m, wiring.flipped(mine), its)
        m.d.comb += [
            merge.flush.eq(self.merge_flush),
            self.merge_flushing.eq(merge.flushing),
        ]
        return m
