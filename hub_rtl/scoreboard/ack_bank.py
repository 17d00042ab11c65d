# SPDX-License-Identifier: Apache-2.0
"""Sums up the acknowledgements that wait for the scoreboard's shared pipeline, a sum per tile."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram

from .bank_queue import SMALL
from .name_ring import NameRing
from .records import OpKind, compose, scoreboard_types

__all__ = ["AckBank", "ack_banks", "bank_of", "bank_places", "fold"]

MOST = 8  # banks, however many slices there are


def ack_banks(cfg):
    """Banks of one scoreboard: one per slice, as a power of two, and not more than there are region
    banks."""
    return min(MOST, 1 << (cfg.slices - 1).bit_length(), 2 << cfg.region_width)


def bank_places(cfg):
    """Sums of one bank: of its tiles and of its region banks."""
    return ((2 << cfg.group_width) + (2 << cfg.region_width)) // ack_banks(cfg)


def bank_of(cfg, op):
    """Number of the bank for an ACK or OVER: its whole name is folded, so that tiles at a distance
    of any power of two lie in different ones."""
    return fold(cfg, op.bank, Mux(op.kind == OpKind.OVER, op.region, op.group))


def fold(cfg, bank, number):
    """:func:`bank_of`, of an epoch bank and the number of a group (ACK) or region (OVER)."""
    bits = ack_banks(cfg).bit_length() - 1
    name = Cat(bank, number)
    folded = Const(0, bits)
    for low in range(0, len(name), bits):
        folded = folded ^ name[low : low + bits]
    return folded[:bits]


class AckBankObserve(NamedTuple):
    """What a proof may see of an :class:`AckBank`."""

    sums: Ram  #: a sum {some, bytes, mem, poison, plain, owner} per name
    ring: NameRing  #: names of those with ``some``
    came: data.View  #: what is at the sum: an operation or, if ``visits``, a name
    valid: Signal  #: ``came`` means something
    visits: Signal  #: the sum leaves
    at: Signal  #: the place of the sum
    old: Signal  #: names at the head of the ring that are old
    fresh: Signal  #: what came in at the last sweep is not yet in the ring
    old_came: Signal  #: the sum that leaves is old
    old_out: Signal  #: what is offered is old


class AckBank(wiring.Component):
    """Sums of acknowledgements, one per tile (ACK) and one per region and epoch bank (OVER), of the
    names that :func:`bank_of` gives to one bank.

    Contract: the bytes that leave in operations of a name and owner (region, or range) are those
    that came in; a memory error or poison leaves with its name and owner, nothing else changes.
    Each name waits once, so that there is always room: what comes while the name waits is added to
    its sum. A sum of 64 KiB or of another owner leaves before. Latency: taken in cycle 0, offered
    in cycle 4 when nothing waits. Throughput: one per cycle in, less one cycle per operation out;
    one per three cycles out. Order: names leave in the order in which they came. Stall: ``i.ready``
    is low while a sum is read to leave, and while one that had to leave early waits for ``o``.

    Parameters: ``cfg``. Ports: ``i`` In stream(op), ACK and OVER; ``o`` Out stream(op); ``sweep``
    In: what is inside now, or comes in, is old; ``sweeping`` Out: something old is still inside;
    ``merged`` Out: strobe, an operation was added to one; ``clearing`` Out. Source:
    docs/interfaces.md section 8; rule R4 of docs/architecture.md.
    """

    observe: AckBankObserve  # once elaborated

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        self._bits = ack_banks(cfg).bit_length() - 1
        super().__init__(
            {
                "i": In(stream.Signature(self._types.op)),
                "o": Out(stream.Signature(self._types.op)),
                "sweep": In(1),
                "sweeping": Out(1),
                "merged": Out(1),
                "clearing": Out(1),
            }
        )
        #: What waits: a tile, or a region (``over``).
        self.name = data.StructLayout(
            {"over": 1, "bank": 1, "index": max(cfg.group_width, cfg.region_width)}
        )
        self._tiles, self.places = (2 << cfg.group_width) >> self._bits, bank_places(cfg)
        #: ``owner``: the region, or the range of what is ``plain``.
        self.sum = data.StructLayout(
            {
                "some": 1,
                "bytes": self._types.acc_width + 1,
                "mem": 1,
                "poison": 1,
                "plain": 1,
                "owner": max(cfg.region_width, cfg.dep_width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = Ram(
            self.sum, self.places, clear=True, quick=self.places <= SMALL
        )
        m.submodules.ring = ring = NameRing(self.name, self.places, self.places <= SMALL)
        op = self.i.payload
        name = Signal(self.name)
        came = Signal(data.StructLayout({"name": self.name, "sum": self.sum}), name="came")
        valid = Signal(name="valid")
        visits = Signal(name="visits")
        at = Signal.like(sums.r_addr)
        stuck = Signal()
        enters = Signal()
        leaves = Signal()
        is_over = op.kind == OpKind.OVER
        m.d.comb += [
            self.clearing.eq(sums.clearing),
            # Who waits longest is visited when its sum has a place to go to.
            ring.o.ready.eq(~stuck & ~self.o.valid & ~visits),
            self.i.ready.eq(~stuck & ~(ring.o.valid & ring.o.ready)),
            name.over.eq(is_over),
            name.bank.eq(op.bank),
            name.index.eq(Mux(is_over, op.region, op.group)),
            sums.r_en.eq(~stuck),
            sums.r_addr.eq(self.place(Mux(ring.o.valid & ring.o.ready, ring.o.payload, name))),
            ring.en.eq(enters),
            ring.name.eq(came.name),
        ]
        with m.If(~stuck):
            m.d.sync += [
                valid.eq(self.i.valid & self.i.ready),
                visits.eq(ring.o.valid & ring.o.ready),
                at.eq(sums.r_addr),
                came.name.eq(Mux(ring.o.valid & ring.o.ready, ring.o.payload, name)),
                came.sum.some.eq(1),
                came.sum.bytes.eq(op.bytes),
                came.sum.mem.eq(op.mem),
                came.sum.poison.eq(op.poison),
                came.sum.plain.eq(op.plain),
                came.sum.owner.eq(Mux(op.plain, op.dep, op.region)),
            ]
        self._change(m, sums, came, valid, visits, at, stuck, enters, leaves)
        marks = self._sweep(m, ring, enters, valid, visits, stuck, leaves)
        self.observe = AckBankObserve(sums, ring, came, valid, visits, at, *marks)
        return m

    def place(self, name):
        """Where the sum of a name is: within a bank its upper bits tell it from all others."""
        name = self.name(name)
        tile = Cat(name.bank, name.index[: self._cfg.group_width])[self._bits :]
        region = Cat(name.bank, name.index[: self._cfg.region_width])[self._bits :]
        return Mux(name.over, self._tiles + region, tile)

    def _change(self, m, sums, came, valid, visits, at, stuck, enters, leaves):
        """The sum that was read is added to, replaced or taken."""
        was, now, new = sums.r_data, Signal(self.sum, name="now"), came.sum
        same = (was.plain == new.plain) & (was.owner == new.owner)
        adds = Signal()
        early = Signal()
        m.d.comb += [
            adds.eq(valid & was.some & same & ~was.bytes[-1]),
            early.eq(valid & was.some & ~adds),
            stuck.eq((visits | early) & self.o.valid),
            leaves.eq((visits | early) & ~stuck),
            enters.eq(valid & ~was.some),
            self.merged.eq(adds),
            sums.w_en.eq((valid | visits) & ~stuck),
            sums.w_addr.eq(at),
            now.eq(new),
        ]
        with m.If(adds):
            m.d.comb += [
                now.bytes.eq(
                    mutant(
                        "scoreboard.waiting_bytes_counted_twice",
                        was.bytes + new.bytes,
                        was.bytes + (new.bytes << 1),
                    )
                ),
                now.mem.eq(
                    mutant("scoreboard.waiting_error_forgotten", was.mem | new.mem, new.mem)
                ),
                now.poison.eq(was.poison | new.poison),
            ]
        with m.If(visits):
            m.d.comb += now.eq(0)
        m.d.comb += sums.w_data.eq(now)
        with m.If(leaves):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.payload.eq(self._operation(came.name, was)),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

    def _operation(self, name, total):
        """A sum as an operation of the pipeline."""
        cfg = self._cfg
        owner = Mux(total.plain, 0, total.owner)[: cfg.region_width]
        return compose(
            self._types.op,
            kind=Mux(name.over, OpKind.OVER, OpKind.ACK),
            region=Mux(name.over, name.index, owner)[: cfg.region_width],
            bank=name.bank,
            plain=total.plain,
            dep=Mux(total.plain, total.owner, 0)[: cfg.dep_width],
            group=Mux(name.over, 0, name.index)[: cfg.group_width],
            bytes=total.bytes,
            mem=total.mem,
            poison=total.poison,
        )

    def _sweep(self, m, ring, enters, valid, visits, stuck, leaves):
        """What was inside at the last ``sweep``: so many names from the head of the ring on, what
        was about to enter, the sum that leaves, what is offered."""
        after = Signal(range(self.places + 1))
        old, fresh = Signal.like(after, name="old"), Signal(name="fresh")
        old_came, old_out = Signal(name="old_came"), Signal(name="old_out")
        goes = ring.o.valid & ring.o.ready
        m.d.comb += after.eq(ring.level + enters - goes)
        m.d.sync += fresh.eq(self.sweep | (fresh & stuck))
        with m.If(self.sweep | mutant("scoreboard.sweep_spares_what_enters", fresh, 0)):
            m.d.sync += old.eq(after)
        with m.Elif(goes & old.any()):
            m.d.sync += old.eq(old - 1)
        marking = self.sweep | fresh | old.any()
        with m.If(goes):
            m.d.sync += old_came.eq(marking)
        with m.Elif(self.sweep):
            m.d.sync += old_came.eq(1)
        with m.If(leaves):
            m.d.sync += old_out.eq(marking | (visits & old_came))
        with m.Elif(self.sweep):
            m.d.sync += old_out.eq(1)
        m.d.comb += self.sweeping.eq(
            fresh | old.any() | (visits & old_came) | (self.o.valid & old_out)
        )
        return old, fresh, old_came, old_out
