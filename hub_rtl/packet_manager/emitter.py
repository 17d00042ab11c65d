# SPDX-License-Identifier: Apache-2.0
"""Turns a locked pool entry into a packet: header, mask flits, payload flits, without a bubble."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import SECTOR
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.parts.arbiter import any_before
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import tree_sum

from .records import encode, pool_types_of

__all__ = ["Emitter"]

# flits left to load when the next entry is picked: pick + 3 is the lock, and then its header is
# built
NEXT_PICK = 4


class Emitter(wiring.Component):
    """Sends locked entries as packets, one flit per cycle.

    Contract: a packet spans from the first to the last 16-byte unit with a byte in it. If a byte of
    the span is missing, the packet is ``masked``: mask flits for the whole block follow the header.
    Bytes that no store wrote are sent as 0. ``src``, ``lane``, ``seq``, credits and ``crc`` of the
    header are 0, for the link to fill.

    Latency: the header is valid 2 cycles after the lock when idle. Packets of 5 flits and more
    follow one another without a gap when the next entry can be picked in time; never a gap inside a
    packet. ``go`` allows a pick when its lock will find a free place: at most one entry is locked
    ahead of the one being sent, and as late as the full rate allows.

    Parameters: ``cfg``, HubConfig. Ports: ``lock`` In, strobe; ``locked`` In, the entry, from the
    next cycle on; ``fetch`` Out, ``payload`` In, a sector one cycle later; ``o_packet`` Out
    stream(flit), registered; ``go`` Out; ``release`` Out {en, index, rank}: the entry's last flit
    has been copied; ``tail`` Out: {waiting, row, rank, dest, bank}, the packet whose last flit
    waits at the output; ``tail_taken`` Out strobe; ``tail_bytes`` Out, with it: bytes of that
    packet.

    Source: docs/formats.md (header), docs/interfaces.md section 4 (masked packets).
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, pool_types_of(cfg)
        t = self._types
        super().__init__(
            {
                "lock": In(1),
                "locked": In(t.locked),
                "fetch": Out(t.fetch),
                "payload": In(SECTOR),
                "o_packet": Out(stream.Signature(t.flit)),
                "go": Out(1),
                "release": Out(t.release),
                "tail": Out(t.tail),
                "tail_taken": Out(1),
                "tail_bytes": Out(cfg.bytes_width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        pending = Signal()  # an entry is locked and its header not yet loaded
        busy, masks_left = Signal(), Signal(range(cfg.mask_flits + 1))
        left = Signal(range(cfg.frame_flits))  # flits to load after the header
        unit = Signal(t.log2_units)  # next unit to load
        mask = Signal(cfg.packet_bytes)
        current, index = Signal(t.tail), Signal(t.index_width)
        takes = Signal(32)  # bytes of the fetched sector that the next flit takes
        header, first, length, masked, low_index = self._header(m)

        load, load_header, last = Signal(), Signal(), Signal()
        m.d.comb += [
            load.eq(
                self.o_packet.ready
                | ~mutant("packet_manager.packet_overwritten_between", self.o_packet.valid, busy)
            ),
            load_header.eq(load & ~busy & pending),
            last.eq(left == 1),
            self.go.eq(~pending & (~busy | (left <= NEXT_PICK))),
        ]
        with m.If(self.lock):
            m.d.sync += pending.eq(1)
        with m.Elif(load_header):
            m.d.sync += pending.eq(0)

        flit = self.o_packet.p
        unit_data, mask_flit, other = Signal(128), Signal(128), Signal(128)
        bytes_taken = [Mux(takes[n], self.payload.word_select(n, 8), 0) for n in range(32)]
        m.d.comb += [
            unit_data.eq(
                Cat(
                    lower | upper
                    for lower, upper in zip(bytes_taken[:16], bytes_taken[16:], strict=True)
                )
            ),
            mask_flit.eq(
                mask[:128]
                if cfg.mask_flits == 1
                else Mux(
                    mutant("packet_manager.masks_in_wrong_order", masks_left == 2, masks_left == 1),
                    mask[:128],
                    mask[128:],
                )
            ),
            other.eq(Mux(busy, Mux(masks_left != 0, mask_flit, 0), header)),
        ]
        with m.If(load):
            m.d.sync += [
                self.o_packet.valid.eq(busy | pending),
                flit.first.eq(~busy),
                flit.last.eq(last),
                flit.data.eq(unit_data | other),
            ]
            with m.If(busy & (masks_left != 0)):
                m.d.sync += [
                    masks_left.eq(masks_left - 1),
                    left.eq(left - 1),
                ]
            with m.Elif(busy):
                m.d.sync += [
                    unit.eq(unit + 1),
                    left.eq(left - 1),
                    busy.eq(~last),
                ]

        # The payload arrives late in its cycle, so what is taken of it is known a cycle ahead.
        # Without mask flits a packet has all bytes from its first unit on.
        next_unit, next_mask, whole = Signal(t.log2_units), Signal(16), Signal()
        m.d.comb += [
            next_unit.eq(Mux(masks_left == 0, unit + 1, unit)),
            next_mask.eq(mask.word_select(next_unit, 16)),
            whole.eq(pending & ~masked),
        ]
        with m.If(load & ~busy):
            m.d.sync += takes.eq(
                Cat((whole & ~first[0]).replicate(16), (whole & first[0]).replicate(16))
            )
        with m.Elif(load):
            goes_on = ~last if cfg.mask_flits == 1 else ~last & (masks_left <= 1)
            m.d.sync += takes.eq(
                Cat(
                    Mux(goes_on & ~next_unit[0], next_mask, 0),
                    Mux(goes_on & next_unit[0], next_mask, 0),
                )
            )
        info = self.locked.info
        with m.If(load_header):
            m.d.sync += [
                busy.eq(1),
                masks_left.eq(Mux(masked, cfg.mask_flits, 0)),
                left.eq(Mux(masked, length + cfg.mask_flits, length)),
                unit.eq(first),
                mask.eq(self.locked.mask),
                index.eq(self.locked.index),
                current.row.eq(~info.plain),
                current.rank.eq(info.rank),
                current.dest.eq(info.dest),
                current.bank.eq(info.epoch[0]),
            ]

        # A sector is fetched with the header, and with the last unit of the sector before.
        load_unit, load_last = load & busy & (masks_left == 0), Signal()
        m.d.comb += [
            load_last.eq(load & last),  # none is left when idle, and no mask flit is the last one
            self.fetch.en.eq(load_header | (load_unit & unit[0] & ~last)),
            self.fetch.index.eq(Mux(busy, index, self.locked.index)),
            self.fetch.sector.eq(
                Mux(
                    busy,
                    mutant("packet_manager.next_sector_is_same", unit[1:] + 1, unit[1:]),
                    low_index,
                )
            ),
            self.release.en.eq(load_last),
            self.release.index.eq(index),
            self.release.rank.eq(current.rank),
        ]

        tail = Signal(t.tail)
        m.d.comb += [
            self.tail.eq(tail),
            self.tail_taken.eq(tail.waiting & self.o_packet.ready),
        ]
        with m.If(load_last):
            m.d.sync += [
                tail.eq(current),
                tail.waiting.eq(1),
            ]
        with m.Elif(self.tail_taken):
            m.d.sync += tail.waiting.eq(0)

        # The mask of a packet stays until the next header is loaded, when the last flit has been
        # taken.
        counts = [Signal(5, name=f"unit_bytes_{n}") for n in range(t.units)]
        m.d.sync += [count.eq(tree_sum(mask.word_select(n, 16))) for n, count in enumerate(counts)]
        m.d.comb += self.tail_bytes.eq(tree_sum(counts))
        return m

    def _header(self, m):
        """Header of the locked entry, its first unit, its units, whether it needs a mask, and its
        first sector."""
        t, info = self._types, self.locked.info
        count, sectors = self._cfg.packet_sectors, self.locked.sectors
        upward = Signal(count, name="sectors_upward")
        m.d.comb += upward.eq(sectors[::-1])
        below, above = (
            any_before(m, sectors, "sectors_below"),
            any_before(m, upward, "sectors_above")[::-1],
        )
        low, high = (
            Signal(count),
            Signal(count),
        )  # one-hot: first and last sector, known before their units
        low_index, high_index = (
            Signal(t.log2_units - 1, name=f"{name}_index") for name in ("low", "high")
        )
        # Each of the entry's sectors has a byte: of the first one only the lower unit is asked, of
        # the last one the upper.
        some, whole = self.locked.some, self.locked.all
        starts, ends, missing = Signal(), Signal(), Signal(count)
        first, length, masked = Signal(t.log2_units), Signal(5), Signal()
        m.d.comb += [
            low.eq(sectors & ~below),
            high.eq(sectors & ~above),
            low_index.eq(Cat(encode(low, len(low_index)))),
            high_index.eq(Cat(encode(high, len(high_index)))),
            starts.eq((low & some[::2]).any()),
            ends.eq((high & some[1::2]).any()),
            missing.eq(
                (
                    sectors
                    & (
                        (
                            (
                                mutant(
                                    "packet_manager.lower_unit_missing_inside",
                                    some[::2] | below,
                                    some[::2],
                                )
                            )
                            & ~whole[::2]
                        )
                        | ((some[1::2] | above) & ~whole[1::2])
                    )
                )
                | (~sectors & below & above)
            ),
            first.eq(Cat(~starts, low_index)),
            masked.eq(missing.any()),
            length.eq(
                Cat(starts ^ ends, (high_index - low_index)[: len(low_index)] + (starts & ends))
            ),
        ]
        bits = {
            kind: Signal(128, name=f"header_{kind.name.lower()}")
            for kind in (PacketType.ROW, PacketType.PLAIN)
        }
        row, plain = (data.View(header_layout(kind), bits[kind]) for kind in bits)
        for kind, view in ((PacketType.ROW, row), (PacketType.PLAIN, plain)):
            m.d.comb += [
                view.type.eq(kind),
                view.cls.eq(self.locked.nop),
                view.masked.eq(masked),
                view.dst.eq(info.rank),
                view.len.eq(length),
            ]
        place = Cat(first, info.block)
        m.d.comb += [
            row.region.eq(info.region),
            row.epoch.eq(info.epoch),
            row.rowid.eq(info.rowid),
            row.row_off.eq(place[: len(row.row_off)]),
            plain.addr16.eq(place[: len(plain.addr16)]),
        ]
        return (
            Mux(info.plain, bits[PacketType.PLAIN], bits[PacketType.ROW]),
            first,
            length,
            masked,
            low_index,
        )
