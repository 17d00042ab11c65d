# SPDX-License-Identifier: Apache-2.0
"""First part of a slice: separates headers from what follows them."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import UNIT
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import tree_sum
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.stream import StreamQueue

from .records import COMMANDS, slice_types_of

__all__ = ["PacketSplit"]


class PacketSplitObserve(NamedTuple):
    """What a proof may see of a :class:`PacketSplit`."""

    pieces: StreamQueue  #: what follows the headers
    ends: RegisterQueue
    between: Signal  #: the next flit is a header
    some_err: Signal  #: a flit of the packet had ``err``
    masks_left: Signal  #: mask flits to come
    counted: Signal  #: the byte count is complete
    groups: list  #: set bits of each 8 of the mask flit before
    summing: Signal  #: they are added to the count
    last_mask: Signal  #: and are the last


class PacketSplit(wiring.Component):
    """Splits a packet stream into headers, byte counts, mask and payload flits, and packet ends.

    A header is offered the cycle after it came, its byte count then too, or 2 cycles after the last
    mask flit when the packet is masked (mask bits; an ``err`` mask flit counts as empty). One flit
    per cycle. A packet without payload is dropped. The input waits for: a header while the last one
    is still being looked up; room for payload; room for packet ends.

    Parameters: ``cfg``. Ports: ``i`` In, stream of flits; ``enable`` In, 0 stops the input;
    ``o_head``, ``o_bytes`` Out, streams, one of each per packet, taken together; ``o_piece`` Out,
    stream of mask and payload flits; ``o_end`` Out, stream, one item per packet once its last flit
    is in: some flit had ``err``.
    """

    observe: PacketSplitObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types, self._own = cfg, types_of(cfg), slice_types_of(cfg)
        super().__init__(
            {
                "i": In(stream.Signature(self._types.flit)),
                "enable": In(1),
                "o_head": Out(stream.Signature(self._own.head)),
                "o_bytes": Out(stream.Signature(cfg.bytes_width)),
                "o_piece": Out(stream.Signature(self._own.piece)),
                "o_end": Out(stream.Signature(1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, flit = self._cfg, self.i.payload
        # Room for the packet being issued, the one behind it and the latency of an allocation.
        m.submodules.pieces = pieces = StreamQueue(self._own.piece, 4 * cfg.packet_flits)
        m.submodules.ends = ends = RegisterQueue(1, COMMANDS)
        wiring.connect(m, pieces.o, wiring.flipped(self.o_piece))
        wiring.connect(m, ends.o, wiring.flipped(self.o_end))

        between = Signal(init=1)  # the next flit is a header
        some_err = Signal()
        masks_left = Signal(range(cfg.mask_flits + 1))
        head_valid, counted = Signal(), Signal()
        # Two conditions, as whether the header before goes in this cycle is known late.
        head_room, piece_room = Signal(), Signal()
        took, took_head, took_piece = Signal(), Signal(), Signal()
        m.d.comb += [
            head_room.eq(self.enable & between & (~head_valid | self.o_head.ready)),
            piece_room.eq(self.enable & ~between & pieces.i.ready & ends.i.ready),
            self.i.ready.eq(head_room | piece_room),
            took.eq(took_head | took_piece),
            took_head.eq(self.i.valid & head_room),
            took_piece.eq(self.i.valid & piece_room),
            pieces.i.valid.eq(self.i.valid & self.enable & ~between & ends.i.ready),
            pieces.i.payload.data.eq(flit.data),
            pieces.i.payload.err.eq(flit.err),
            ends.i.valid.eq(took_piece & flit.last),
            ends.i.payload.eq(some_err | flit.err),
        ]
        with m.If(took):
            m.d.sync += [
                between.eq(flit.last),
                some_err.eq(~between & ~flit.last & (some_err | flit.err)),
            ]

        header = Signal(header_layout())
        m.d.comb += header.eq(flit.data)
        with m.If(self.o_head.ready):
            m.d.sync += head_valid.eq(0)
        with m.If(took_head & ~flit.last):
            head = self.o_head.payload
            m.d.sync += [
                head_valid.eq(1),
                counted.eq(~header.masked),
                masks_left.eq(Mux(header.masked, cfg.mask_flits, 0)),
                head.plain.eq(header.type == PacketType.PLAIN),
                head.masked.eq(header.masked),
                head.poison.eq(header.poison),
                head.src.eq(header.src),
                head.len.eq(header.len),
                head.body.eq(header.body),
                self.o_bytes.payload.eq(Mux(header.masked, 0, Cat(Const(0, UNIT), header.len))),
            ]
        m.d.comb += [
            self.o_head.valid.eq(head_valid),
            self.o_bytes.valid.eq(head_valid & counted),
        ]

        count = self._count(m, took_piece, masks_left, counted)
        self.observe = PacketSplitObserve(
            pieces, ends, between, some_err, masks_left, counted, *count
        )
        return m

    def _count(self, m, took_piece, masks_left, counted):
        """Mask bits are counted in two steps: groups of 8 in the first cycle, their sum in the
        second. Returns the registers between."""
        cfg, flit = self._cfg, self.i.payload
        groups = [Signal(4, name=f"group{n}") for n in range(16)]
        summing, last_mask = Signal(), Signal()
        is_mask = took_piece & masks_left.any()
        m.d.sync += [
            summing.eq(is_mask),
            last_mask.eq(masks_left == 1),
        ]
        with m.If(is_mask):
            m.d.sync += masks_left.eq(masks_left - 1)
            for n, group in enumerate(groups):
                bits = flit.data[8 * n : 8 * n + 8]
                m.d.sync += group.eq(
                    Mux(
                        mutant("slot_allocator.error_flit_has_bytes", flit.err, 0),
                        0,
                        tree_sum([bits[k] for k in range(8)]),
                    )
                )
        with m.If(summing):
            before = self.o_bytes.payload if cfg.mask_flits > 1 else 0  # of the mask flits before
            m.d.sync += [
                self.o_bytes.payload.eq((before + tree_sum(groups))[: cfg.bytes_width]),
                counted.eq(last_mask),
            ]
        return groups, summing, last_mask
