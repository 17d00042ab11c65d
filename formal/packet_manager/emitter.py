# SPDX-License-Identifier: Apache-2.0
"""Promises of the packet manager's emitter (``hub_rtl/packet_manager/emitter.py``): packets in the
form of interfaces section 4."""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.spec import Spec
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.packet_manager.emitter import Emitter
from hub_rtl.packet_manager.records import pool_types_of
from hub_rtl.parts.onehot import tree_sum

from .parts import look_into

__all__ = ["PacketsAreEntries"]


def highest_set(bits):
    """Number of the highest set bit, 0 when none is set."""
    value = 0
    for n in range(len(bits)):
        value = Mux(bits[n], n, value)
    return value


class PacketsAreEntries(Spec):
    """Each locked entry leaves as one packet, in the order of the locks, without a bubble: a header
    with its class, rank, place and length; mask flits exactly if a byte between its first and last
    unit is missing; the units from the first to the last one with a byte, each byte as the payload
    memory holds it, and 0 where the mask has none. ``release`` comes once per packet, with its last
    flit copied; ``tail``, ``tail_taken`` and ``tail_bytes`` name it, and the number of bytes that
    stores wrote, when its last flit is taken.

    Of the payload an arbitrary byte of an arbitrary entry is followed. Entries are locked three
    cycles after a ``go`` with no other lock between (``packet_manager.locks_allowed``), hold still
    from lock to release and have a byte (``packet_manager.bytes_merge``); which units have bytes,
    and which have all, is told with them (``packet_manager.bytes_counted``).
    """

    def __init__(self, cfg):
        super().__init__(cfg)
        self._types = pool_types_of(cfg)

    def build(self, m):
        cfg, t = self._cfg, self._types
        m.submodules.dut = dut = Emitter(cfg)
        inner = look_into(dut)
        self.free_inputs(dut)
        out = dut.o_packet

        # The environment: locks, the locked entry, and what the memory holds at one place of it.
        may_lock = dut.go
        for n in range(3):
            may_lock = self.past(may_lock & ~dut.lock, f"may_lock_{n}")
            self.lemma(
                f"place for a lock, {n}", ~inner.pending, when=may_lock
            )  # a helper, like those at the end
        just = self.past(dut.lock, "just")
        self.suppose("locks when it may", may_lock, when=dut.lock)
        locked = dut.locked
        self.suppose(
            "locked entry holds", locked.as_value() == self.past(locked), when=inner.pending & ~just
        )
        sectors = Cat(locked.mask.word_select(n, 32).any() for n in range(cfg.packet_sectors))
        self.suppose(
            "locked entry has a byte", sectors.any() & (locked.sectors == sectors), when=just
        )
        units = [locked.mask.word_select(n, 16) for n in range(t.units)]
        told = (locked.some == Cat(unit.any() for unit in units)) & (
            locked.all == Cat(unit.all() for unit in units)
        )
        self.suppose("units are told", told, when=just)
        self.lemma("units stay told", told, when=inner.pending)  # a helper
        entry, place = (
            self.constant(t.index_width, "entry"),
            self.constant(5 + cfg.sector_width, "place"),
        )
        content, held, fetched, next_content = Signal(8), Signal(), Signal(), Signal(8)
        self.free(next_content)
        comes = just & (locked.index == entry)
        with m.If(comes):
            m.d.sync += held.eq(1)
        with m.Elif(dut.release.en & (dut.release.index == entry)):
            m.d.sync += held.eq(0)
        self.suppose("an entry is locked once until its release", ~held, when=comes)
        with m.If(~held & ~comes):
            m.d.sync += content.eq(next_content)
        with m.If(dut.fetch.en):
            m.d.sync += fetched.eq((dut.fetch.index == entry) & (dut.fetch.sector == place[5:]))
        self.suppose(
            "memory answers", dut.payload.word_select(place[:5], 8) == content, when=fetched & held
        )

        # Packets locked and not yet taken: the first one, the one behind it; flits of the first one
        # that were taken.
        wanted = data.StructLayout({"entry": t.locked, "value": 8})
        first, second = Signal(wanted), Signal(wanted)
        queued, sent = Signal(2), Signal(range(cfg.frame_flits + 1))
        arrival = Signal(wanted)
        m.d.comb += [
            arrival.entry.eq(locked),
            arrival.value.eq(content),
        ]
        taken, ends = out.valid & out.ready, Signal()
        m.d.sync += queued.eq(queued + just - (taken & ends))
        with m.If(taken & ends):
            m.d.sync += [
                first.eq(Mux(queued == 2, second, arrival)),
                second.eq(arrival),
            ]
        with m.Else():
            with m.If(queued == 0):
                m.d.sync += first.eq(arrival)
            with m.If(queued <= 1):
                m.d.sync += second.eq(arrival)
        m.d.sync += sent.eq(Mux(taken, Mux(ends, 0, sent + 1), sent))

        # What the first one has to look like.
        of = first.entry
        has = Cat(of.mask.word_select(n, 16).any() for n in range(t.units))
        whole = Cat(of.mask.word_select(n, 16).all() for n in range(t.units))
        begin, end = Signal(t.log2_units), Signal(t.log2_units)
        m.d.comb += [
            begin.eq(t.units - 1 - highest_set(has[::-1])),
            end.eq(highest_set(has)),
        ]
        in_span = Cat((begin <= n) & (n <= end) for n in range(t.units))
        masked, length, flits, masks = (
            Signal(),
            Signal(5),
            Signal(range(cfg.frame_flits + 1)),
            Signal(2),
        )
        m.d.comb += [
            masked.eq((in_span & ~whole).any()),
            length.eq(end - begin + 1),
            masks.eq(Mux(masked, cfg.mask_flits, 0)),
            flits.eq(1 + masks + length),
            ends.eq(sent == flits - 1),
        ]
        header = Signal(128)
        row, plain = (
            data.View(header_layout(kind), Signal(128, name=kind.name.lower()))
            for kind in (PacketType.ROW, PacketType.PLAIN)
        )
        at = Cat(begin, of.info.block)
        for kind, view in ((PacketType.ROW, row), (PacketType.PLAIN, plain)):
            m.d.comb += [
                view.type.eq(kind),
                view.cls.eq(of.nop),
                view.masked.eq(masked),
                view.dst.eq(of.info.rank),
                view.len.eq(length),
            ]
        m.d.comb += [
            row.region.eq(of.info.region),
            row.epoch.eq(of.info.epoch),
            row.rowid.eq(of.info.rowid),
            row.row_off.eq(at),
            plain.addr16.eq(at),
            header.eq(Mux(of.info.plain, plain.as_value(), row.as_value())),
        ]
        unit = Signal(t.log2_units)
        m.d.comb += unit.eq(begin + sent - 1 - masks)
        is_header, is_mask = sent == 0, (sent != 0) & (sent <= masks)
        is_unit = (sent != 0) & (sent > masks)

        self.always("nothing invented", queued != 0, when=out.valid)
        self.always("at most two packets", queued <= 2)
        self.always("no bubble in a packet", out.valid, when=sent != 0)
        self.always("first flit marked, and only that", out.p.first == is_header, when=out.valid)
        self.always("last flit marked, and only that", out.p.last == ends, when=out.valid)
        self.always("no flit marked bad", ~out.p.err)
        self.always("header as the entry", out.p.data == header, when=out.valid & is_header)
        for n in range(cfg.mask_flits):
            self.always(
                f"mask flit {n} as the entry",
                out.p.data == of.mask.word_select(n, 128),
                when=out.valid & is_mask & (sent == n + 1),
            )
        byte, bit = Signal(4), Signal()
        m.d.comb += [
            byte.eq(place),
            bit.eq(of.mask.bit_select(Cat(place[:4], unit), 1)),
        ]
        value = out.p.data.word_select(byte, 8)
        self.always(
            "bytes as in memory",
            value == first.value,
            when=out.valid & is_unit & bit & (of.index == entry) & (unit == place[4:]),
        )
        self.always("bytes that no store wrote are 0", value == 0, when=out.valid & is_unit & ~bit)
        self.always("last flit told", dut.tail_taken == (taken & ends))
        tail = dut.tail
        self.always(
            "packet sent told",
            (tail.row == ~of.info.plain)
            & (tail.rank == of.info.rank)
            & (tail.dest == of.info.dest)
            & (tail.bank == of.info.epoch[0]),
            when=dut.tail_taken,
        )
        bytes_of = [tree_sum(of.mask.word_select(n, 16)) for n in range(t.units)]
        self.always("bytes sent told", dut.tail_bytes == tree_sum(bytes_of), when=dut.tail_taken)
        self.always("last flit waits", tail.waiting == (out.valid & ends))
        self.always(
            "released as the last flit is copied", dut.release.en == (taken & (sent + 2 == flits))
        )
        self.always(
            "entry and rank released",
            (dut.release.index == of.index) & (dut.release.rank == of.info.rank),
            when=dut.release.en,
        )
        waited, was_released = (
            self.past(tail.waiting & ~dut.tail_taken, "waited"),
            self.past(dut.release.en, "was_released"),
        )
        self.always("last flit waits from its release on", tail.waiting == (was_released | waited))
        self.always("released when no last flit waits", ~tail.waiting, when=dut.release.en)
        self.always("nothing is picked after a lock", ~dut.go, when=just)
        self.reach("masked packet of two units", taken & ends & masked & (length == 2))
        self.reach("packets back to back", taken & is_header & self.past(taken & ends, "ended"))

        # Helpers: what the emitter's registers mean.
        busy, pending, newest = inner.busy, inner.pending & ~just, Signal(wanted)
        m.d.comb += newest.eq(Mux(out.valid, second, first))
        self.lemma("sends what is at the output", out.valid, when=busy)
        self.lemma("packets counted", queued + just == inner.pending + out.valid)
        self.lemma("starts at the header", sent == 0, when=~out.valid)
        self.lemma(
            "newest is the locked one", newest.entry.as_value() == locked.as_value(), when=pending
        )
        self.lemma(
            "newest has its byte", newest.value == content, when=pending & (locked.index == entry)
        )
        self.lemma("flits to come", (inner.left == flits - 1 - sent) & ~ends, when=busy)
        self.lemma("no flit to come when idle", inner.left == 0, when=~busy)
        self.lemma("last flit copied", ends, when=out.valid & ~busy)
        self.lemma(
            "masks to come", inner.masks_left == Mux(masks > sent, masks - sent, 0), when=busy
        )
        self.lemma(
            "unit next", inner.unit == Mux(masks > sent, begin, begin + sent - masks), when=busy
        )
        self.lemma(
            "its mask, entry and byte",
            (inner.mask == of.mask)
            & (inner.index == of.index)
            & ((first.value == content) | (of.index != entry)),
            when=busy,
        )
        comes_now = Mux(busy & (inner.masks_left == 0), inner.mask.word_select(inner.unit, 16), 0)
        self.lemma(
            "takes the unit that comes",
            inner.takes == Mux(inner.unit[0], Cat(Const(0, 16), comes_now), comes_now),
        )
        self.lemma(
            "fetched its sector",
            fetched == ((of.index == entry) & (inner.unit[1:] == place[5:])),
            when=busy,
        )
        for name, record in (("current", inner.current), ("tail", tail)):
            self.lemma(
                f"{name} is the packet",
                (record.row == ~of.info.plain)
                & (record.rank == of.info.rank)
                & (record.dest == of.info.dest)
                & (record.bank == of.info.epoch[0]),
                when=busy if name == "current" else tail.waiting,
            )
        self.lemma("mask of the last flit", inner.mask == of.mask, when=tail.waiting)
        for n, count in enumerate(inner.counts):
            self.lemma(
                f"bytes of unit {n}", count == bytes_of[n], when=(sent != 0) & (busy | tail.waiting)
            )
        sends, waits = busy & (of.index == entry), pending & (locked.index == entry)
        self.lemma("held from lock to release", (held == (sends | waits)) & ~(sends & waits))
        for name, each, when in (("first", first, queued != 0), ("second", second, queued == 2)):
            parts = Cat(each.entry.mask.word_select(n, 32).any() for n in range(cfg.packet_sectors))
            self.lemma(f"{name} has a byte", parts.any() & (each.entry.sectors == parts), when=when)
