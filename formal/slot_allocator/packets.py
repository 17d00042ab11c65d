# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet splitter (``hub_rtl/slot_allocator/packet_split.py``)."""

from amaranth import Array, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.parts.onehot import tree_sum
from hub_rtl.slot_allocator.packet_split import PacketSplit
from hub_rtl.slot_allocator.records import COMMANDS

__all__ = ["PacketsAreSplitExactly"]


class PacketsAreSplitExactly(Spec):
    """Each packet's header is offered from the next cycle until taken, with its fields; its byte
    count is the number of bits in its mask flits without ``err``, or 16 times its length, and comes
    at the latest two cycles after its last mask flit; each packet has one end, in order, which
    tells whether any flit after the header had ``err``; every such flit is passed on once through a
    queue, the only way to ``o_piece``, which keeps the order (proved by parts.stream_queue).

    User: packets have the flits that their header names, at least one of payload (the link checks
    it); header and byte count are taken together."""

    def build(self, m):
        cfg, dut = self._cfg, PacketSplit(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        flit, head, count = dut.i.p, dut.o_head, dut.o_bytes
        took = dut.i.valid & dut.i.ready
        header = data.View(header_layout(), flit.data)
        left, masks, bad = (
            Signal(6),
            Signal(range(cfg.mask_flits + 1)),
            Signal(),
        )  # flits of the packet that are to come
        starts, mask = took & (left == 0), took & (left != 0) & (masks != 0)
        with m.If(starts):
            m.d.sync += [
                left.eq(header.len + Mux(header.masked, cfg.mask_flits, 0)),
                bad.eq(0),
                masks.eq(Mux(header.masked, cfg.mask_flits, 0)),
            ]
        with m.Elif(took):
            m.d.sync += [
                left.eq(left - 1),
                masks.eq(masks - (masks != 0)),
                bad.eq(bad | flit.err),
            ]
        self.suppose(
            "payload",
            (header.len != 0) & (header.len <= cfg.packet_flits),
            when=dut.i.valid & (left == 0),
        )
        self.suppose("length as told", flit.last == (left == 1), when=dut.i.valid)
        self.suppose("taken together", head.ready == count.ready)
        self.suppose("taken when counted", count.valid, when=count.ready)

        have, fields = Signal(), Signal(head.p.shape())
        amount, complete = Signal(cfg.bytes_width), Signal(2)
        groups = [tree_sum([flit.data[8 * n + k] for k in range(8)]) for n in range(16)]
        with m.If(starts):
            m.d.sync += [
                have.eq(1),
                fields.plain.eq(header.type == PacketType.PLAIN),
                amount.eq(Mux(header.masked, 0, header.len << 4)),
                complete.eq(Mux(header.masked, 0, 2)),
                *(
                    fields[name].eq(header[name])
                    for name in ("masked", "poison", "src", "len", "body")
                ),
            ]
        with m.Elif(head.ready):
            m.d.sync += have.eq(0)
        with m.Elif(mask):
            m.d.sync += [
                amount.eq(amount + Mux(flit.err, 0, tree_sum(groups))),
                complete.eq(masks == 1),
            ]
        with m.Elif(complete == 1):
            m.d.sync += complete.eq(2)
        self.always("one head", head.valid == have)
        self.always("head as it came", head.p.as_value() == fields.as_value(), when=head.valid)
        self.always("bytes exact", count.p == amount, when=count.valid)
        self.always("bytes of a head", have, when=count.valid)
        self.always("bytes in time", count.valid, when=have & (complete == 2))
        self.always("bytes complete", complete != 0, when=count.valid)
        self.always("no flit while off", ~took, when=~dut.enable)

        # One arbitrary packet's end.
        end = dut.o_end
        ends = Signal(range(COMMANDS + 1))
        ended = took & (left == 1)
        m.d.sync += ends.eq(ends + ended - (end.valid & end.ready))
        pick, open_, ahead, value = Signal(), Signal(), Signal.like(ends), Signal()
        marked = Signal()
        self.free(pick)
        with m.If(ended & pick & ~marked):
            m.d.sync += [
                marked.eq(1),
                open_.eq(1),
                value.eq(bad | flit.err),
                ahead.eq(ends - (end.valid & end.ready)),
            ]
        with m.Elif(end.valid & end.ready & open_):
            m.d.sync += [
                ahead.eq(ahead - 1),
                open_.eq(ahead != 0),
            ]
        self.always("one end each", end.valid == (ends != 0))
        self.always("end tells errors", end.p == value, when=end.valid & open_ & (ahead == 0))
        # Pieces: all of them, counted.
        pieces, full = (
            Signal(range(4 * cfg.packet_flits + 2)),
            dut.o_piece.valid & dut.o_piece.ready,
        )
        m.d.sync += pieces.eq(pieces + (took & (left != 0)) - full)
        self.always("no piece invented", pieces != 0, when=dut.o_piece.valid)
        # Its ports, no lemma: that it keeps the order is proved by parts.stream_queue.
        queue = inside.pieces
        put = queue.i.valid & queue.i.ready
        self.always("each flit is put once", put == (took & (left != 0)))
        self.always(
            "put as it came", (queue.i.p.data == flit.data) & (queue.i.p.err == flit.err), when=put
        )
        self.always(
            "pieces are the queue's",
            (dut.o_piece.valid == queue.o.valid)
            & (dut.o_piece.ready == queue.o.ready)
            & (dut.o_piece.p.as_value() == queue.o.p.as_value()),
        )
        for name, happens in {
            "masked": count.valid & fields.masked & (amount == 100),
            "two ends": open_ & (ahead == 1),
        }.items():
            self.reach(name, happens)

        # Helper invariants.
        self.lemma("between", inside.between == (left == 0))
        self.lemma("some err", inside.some_err == Mux(left == 0, 0, bad))
        self.lemma("masks left", inside.masks_left == masks)
        self.lemma(
            "sizes",
            (left <= cfg.packet_flits + cfg.mask_flits)
            & (masks <= cfg.mask_flits)
            & (left >= masks),
        )
        summing = inside.summing
        sums = tree_sum(inside.groups)
        self.lemma("counted", inside.counted == (complete == 2), when=have)
        self.lemma("summing", (complete == 1) == (summing & inside.last_mask), when=have)
        self.lemma("sum", (count.p + Mux(summing, sums, 0))[: cfg.bytes_width] == amount, when=have)
        self.lemma("first sum", count.p == 0, when=have & (complete == 1) & (cfg.mask_flits == 1))
        self.lemma("nothing yet", count.p == 0, when=have & (complete == 0) & (cfg.mask_flits == 1))
        self.lemma("counting", (complete == 0) == (masks != 0), when=have & fields.masked)
        self.lemma("all counted", masks == 0, when=~have | ~fields.masked)
        self.lemma("idle sum", ~summing, when=~have)
        self.lemma("three steps", complete != 3)
        items, full = observe(inside.ends)
        self.lemma("ends", full == ((1 << ends) - 1))
        self.lemma("end waits", (Array(items)[ahead] == value) & (ahead < ends), when=open_)
        self.lemma("one", marked, when=open_)
        self.lemma("level", pieces == inside.pieces.level)
