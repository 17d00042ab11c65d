# SPDX-License-Identifier: Apache-2.0
"""Promises of the record splitter (``hub_rtl/slot_allocator/record_split.py``)."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec, moves
from hub_rtl.parts.onehot import tree_sum
from hub_rtl.slot_allocator.record_split import RecordSplit
from hub_rtl.slot_allocator.records import slice_types_of

__all__ = ["RecordsAreSplitExactly"]

HEADS = 3  # that may be inside


class RecordsAreSplitExactly(Spec):
    """Each record's head is offered once, in order, at the latest two cycles after its first beat
    if none was waiting, with the header's fields, the span from the first unit of the mask to its
    last one (the first of the part if there is none) and the number of bits in the mask. Every
    beat is passed on once, its strobes the mask's, or none if it is lost, through a queue, the
    only way to ``o_piece``, which keeps the order (proved by parts.stream_queue)."""

    def build(self, m):
        cfg, dut = self._cfg, RecordSplit(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        beat, head = dut.i.p, dut.o_head
        took, left = moves(dut.i), moves(head)
        begins = Signal(init=1)  # the next beat is a record's first
        with m.If(took):
            m.d.sync += begins.eq(beat.last)
        starts = took & begins
        waiting = Signal(range(HEADS + 1))
        m.d.sync += waiting.eq(waiting + starts - left)

        # One arbitrary record.
        pick = Signal()
        marked = Signal()
        open_ = Signal()
        ahead = Signal.like(waiting)
        fields = Signal(head.p.shape())
        now = self._expected(m, beat)
        self.free(pick)
        with m.If(starts & pick & ~marked):
            m.d.sync += [
                marked.eq(1),
                open_.eq(1),
                ahead.eq(waiting - left),
                fields.eq(now),
            ]
        with m.Elif(open_ & left):
            m.d.sync += [ahead.eq(ahead - 1), open_.eq(ahead != 0)]
        mine = open_ & (ahead == 0)
        self.always("no head invented", waiting != 0, when=head.valid)
        late = (waiting != 0) & ~self.past(starts, "started")
        self.always("head in time", head.valid, when=late)
        self.always(
            "head as it came", head.p.as_value() == fields.as_value(), when=mine & head.valid
        )
        self.always("no beat while off", ~took, when=~dut.enable)
        # Its ports, no lemma: that it keeps the order is proved by parts.stream_queue.
        queue = inside.pieces
        self.always("each beat is put once", moves(queue.i) == took)
        strobes = Mux(beat.lost, 0, beat.mask.word_select(beat.part, cfg.slice_bytes))
        self.always(
            "put as it came",
            (queue.i.p.data == beat.data)
            & (queue.i.p.part == beat.part)
            & (queue.i.p.last == beat.last)
            & (queue.i.p.strb == strobes),
            when=took,
        )
        self.always(
            "pieces are the queue's",
            (dut.o_piece.valid == queue.o.valid)
            & (dut.o_piece.ready == queue.o.ready)
            & (dut.o_piece.p.as_value() == queue.o.p.as_value()),
        )
        for name, happens in {
            "with holes": mine & left & (fields.bytes == 100),
            "without a byte": mine & left & (fields.bytes == 0),
            "third in line": open_ & (ahead == 2),
        }.items():
            self.reach(name, happens)

        # Helper invariants: the record is the one that was seen, or a head that waits.
        items, full = observe(inside.heads)
        level = full[0] + full[1]
        self.lemma("begins", inside.begins == begins)
        self.lemma("waiting", waiting == level + inside.seen)
        self.lemma("thermometer", full[0] | ~full[1])
        self.lemma("ahead", ahead < waiting, when=open_)
        made = inside.heads.i.p
        self.lemma(
            "seen",
            made.as_value() == fields.as_value(),
            when=open_ & inside.seen & (ahead == level),
        )
        item = Signal(made.shape())
        m.d.comb += item.eq(Array(items)[ahead])
        self.lemma(
            "a head that waits",
            item.as_value() == fields.as_value(),
            when=open_ & (ahead < level),
        )
        self.lemma("one", marked, when=open_)

    def _expected(self, m, beat):
        """Head of a record with this first beat."""
        cfg, own, header = self._cfg, slice_types_of(self._cfg), beat.header
        units = [beat.mask.word_select(n, 16).any() for n in range(cfg.packet_flits)]
        first = Signal(range(cfg.packet_flits))
        last = Signal(range(cfg.packet_flits))
        m.d.comb += [
            first.eq(beat.part * (cfg.slice_bytes // 16)),
            last.eq(beat.part * (cfg.slice_bytes // 16)),
        ]
        for n in range(cfg.packet_flits):
            with m.If(units[n]):
                m.d.comb += last.eq(n)
            with m.If(units[cfg.packet_flits - 1 - n]):
                m.d.comb += first.eq(cfg.packet_flits - 1 - n)
        head = Signal(own.head)
        row = Signal(own.row_body)
        flat = Signal(own.plain_body)
        groups = cfg.packet_bytes // 8
        m.d.comb += [
            *(row[name].eq(header[name]) for name in ("region", "epoch", "rowid")),
            row.row_off.eq(Cat(first, header.block)),
            flat.addr16.eq(Cat(first, header.block)),
            flat.phase.eq(header.phase),
            head.plain.eq(header.plain),
            head.poison.eq(header.poison),
            head.src.eq(header.rank),
            head.len.eq(last - first + 1),
            head.body.eq(Mux(header.plain, flat.as_value(), row.as_value())),
            head.bytes.eq(
                tree_sum(
                    [tree_sum([beat.mask[8 * n + k] for k in range(8)]) for n in range(groups)]
                )
            ),
        ]
        return head
