# SPDX-License-Identifier: Apache-2.0
"""StoreSteer: takes stores from one port to the lane they are pinned to; StoreMerge: joins the
lanes' own-rank stores."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import LANE_KEY
from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW
from hub_rtl.contract.records import layout_of, types_of
from hub_rtl.parts.flush import FlushCounter
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.residue import residue, residue_parts
from hub_rtl.parts.stream import StreamMerge, StreamRegister, StreamStage

__all__ = ["INSIDE", "StoreMerge", "StoreSteer"]

INSIDE = 1  # stores in a merge at most


class StoreSteer(wiring.Component):
    """Optional part in front of the decoders, for users whose crossbar does not know lanes.

    Contract: each store leaves once, unchanged, on the lane that ``packets.lane_of`` names with
    lane mode ROTATE. Handles in the modes HASH and FIXED need a crossbar that knows them: their
    stores may be refused with BAD_LANE.

    Latency 3 cycles, one store per cycle. Order is kept; a lane that does not take its store holds
    up all behind it.

    Parameters: ``cfg``. Ports: ``i_store`` In stream(store); ``o_store`` Out, ``lanes``
    streams(store). Source: our specification, section 3 (lanes).
    """

    def __init__(self, cfg):
        store = types_of(cfg).store
        super().__init__(
            {
                "i_store": In(stream.Signature(store)),
                "o_store": Out(stream.Signature(store)).array(cfg.lanes),
            }
        )
        self._cfg, self._store = cfg, store

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.input = entry = StreamRegister(self._store)
        wiring.connect(m, wiring.flipped(self.i_store), entry.i)

        store = entry.o.payload
        row, plain = (
            layout_of(OPERAND_ROW)(store.operand),
            layout_of(OPERAND_PLAIN)(store.operand),
        )
        key = Signal(LANE_KEY)
        m.d.comb += key.eq(
            Mux(
                row.plain,
                mutant(
                    "decoder.steers_by_unit_not_packet",
                    plain.addr[ceil_log2(cfg.packet_bytes) :],
                    plain.addr[4:],
                ),
                row.rowid + row.handle,
            )
        )
        parts = residue_parts(m, key, cfg.lanes)
        parts_q = [Signal.like(part, name=f"part{n}") for n, part in enumerate(parts)]
        keyed = Signal(self._store)
        keyed_valid = Signal()
        keyed_ready = Signal()
        out = Signal(self._store)
        out_lane = Signal(cfg.lanes)  # one-hot, 0 when empty
        taken = Signal()
        m.d.comb += [
            entry.o.ready.eq(~keyed_valid | keyed_ready),
            keyed_ready.eq(
                ~out_lane.any() | mutant("decoder.steer_overwrites_waiting", taken, keyed_valid)
            ),
            taken.eq((out_lane & Cat(o.ready for o in self.o_store)).any()),
        ]
        with m.If(entry.o.ready):
            m.d.sync += [
                keyed_valid.eq(entry.o.valid),
                keyed.eq(store),
                *(q.eq(part) for q, part in zip(parts_q, parts, strict=True)),
            ]
        with m.If(keyed_ready):
            m.d.sync += out.eq(keyed)
            lane = residue(parts_q, cfg.lanes)
            m.d.sync += [out_lane[n].eq(keyed_valid & (lane == n)) for n in range(cfg.lanes)]
        for n, o in enumerate(self.o_store):
            m.d.comb += [
                o.valid.eq(out_lane[n]),
                o.payload.eq(out),
            ]
        return m


class StoreMerge(wiring.Component):
    """Joins resolved stores of several lanes in front of a loopback lane's packet manager, fair and
    in order per lane.

    Latency one cycle, one store per cycle in total, at most one inside. The inputs' ``ready``
    follow the packet manager's in the same cycle, which is a register there. ``flushing`` works
    like the decoder's: what was in here at the strobe ``flush`` has not all been handed over.

    Parameters: ``cfg``; ``count``, inputs, 1 or more. Ports: ``i_store`` In, ``count``
    streams(resolved); ``o_store`` Out stream(resolved); ``flush`` In, ``flushing`` Out.
    """

    def __init__(self, cfg, count):
        resolved = types_of(cfg).resolved
        super().__init__(
            {
                "i_store": In(stream.Signature(resolved)).array(count),
                "o_store": Out(stream.Signature(resolved)),
                "flush": In(1),
                "flushing": Out(1),
            }
        )
        self._resolved, self._count = resolved, count

    def elaborate(self, platform):
        m = Module()
        m.submodules.merge = merge = StreamMerge(self._resolved, self._count, stage=StreamStage)
        m.submodules.flusher = flusher = FlushCounter(INSIDE)
        for mine, its in zip(self.i_store, merge.i, strict=True):
            wiring.connect(m, wiring.flipped(mine), its)
        wiring.connect(m, merge.o, wiring.flipped(self.o_store))
        m.d.comb += [
            flusher.enter.eq(
                mutant(
                    "decoder.merge_counts_first_input_only",
                    Cat(i.valid & i.ready for i in self.i_store).any(),
                    self.i_store[0].valid & self.i_store[0].ready,
                )
            ),
            flusher.leave.eq(self.o_store.valid & self.o_store.ready),
            flusher.flush.eq(self.flush),
            self.flushing.eq(flusher.flushing),
        ]
        return m
