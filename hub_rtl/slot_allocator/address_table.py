# SPDX-License-Identifier: Apache-2.0
"""APT: gives out slots and turns slots into addresses, for all slices."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import ADDR, EPOCH, LOG2_TILE, STATE
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.register_queue import RegisterQueue

from .records import slice_types_of

__all__ = ["AddressTable"]


class AddressTableObserve(NamedTuple):
    """What a proof may see of an :class:`AddressTable`."""

    geometry: Ram  #: per region
    states: Ram  #: per (region, bank) {state, epoch}
    pointers: Ram  #: per (region, bank) {slots, full, moved}
    shown: Ram  #: per (region, bank) {slots, moved}, for ``rows_query``
    opened: RegisterQueue  #: banks whose pointers are to become 0
    one: Signal  #: the request in step 1
    one_valid: Signal
    one_slice: Signal  #: who asked, one-hot
    two: Signal  #: the request that overflows
    two_slice: Signal  #: who asked, one-hot
    target: Signal  #: its overflow region
    busy: Signal  #: 0: normal; 1, 2, 3: steps of a request that overflows
    second: Signal  #: busy is 2
    now: Signal  #: step 1 has a request
    own_row_bytes: Signal  #: of the region that overflows
    own_epoch: Signal  #: of the bank that overflows
    moves: Signal  #: a row counts as moved at its own region
    a: Signal  #: step 2 {slice, reply}
    b: Signal  #: step 3 {slice, reply}
    stride: Signal  #: of a, in packets
    base_a: Signal  #: of a, in packets
    base_b: Signal  #: of b, in packets
    group_base: Signal  #: of a
    log2_tile: Signal  #: of a
    product_low: Signal  #: of b: slot by the low half of the stride
    product_high: Signal  #: of b: slot by the high half of the stride


class AddressTable(wiring.Component):
    """Row pointer and geometry of every (region, bank); one allocation per cycle, also within one
    region.

    A new row gets the region's next slot; a full region's row gets the next slot of its overflow
    region, if that is OPEN with the same epoch and has the same row_bytes; else the answer is
    REGION_FULL. A request with ``translate`` gets the address of a slot it knows; a slot outside
    the region is answered MEM_ERROR. Row address = base[bank] + slot * stride, by a multiplier
    pipelined over two cycles (stride and base count in packets, their low bits are ignored: rule
    R5).

    Latency 4 cycles from the request taken to the answer. One request per cycle; one that goes to
    an overflow region stops the table for 3 cycles more (and until banks just opened have pointer
    0). Answers in request order per slice, the slices in turn; an answer cannot be held up. A
    bank's pointers start at 0 when ``region_update`` opens it: requests wait while such updates are
    applied. Geometry is written only while both banks of its region are FREE (the registers see to
    that), so never while a request for the region is read; one that overflows waits while that of
    its overflow region is written.

    Parameters: ``cfg``. Ports: ``i_request`` In, stream per slice; ``reply_en`` Out, one bit per
    slice, with ``reply``; ``geometry_write``, ``region_update`` In; ``rows_query`` In {region,
    bank}, 2 cycles later ``slots`` Out (slots given out in this region), ``moved`` Out (rows of
    this region's producers that went to its overflow region) and ``rows``, their sum; ``obs_alloc``
    Out, a slot was given out; ``clearing`` Out, after reset."""

    observe: AddressTableObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._types, self._own = cfg, types, own
        super().__init__(
            {
                "i_request": In(stream.Signature(types.alloc_request)).array(cfg.slices),
                "reply_en": Out(cfg.slices),
                "reply": Out(types.alloc_reply),
                "geometry_write": In(types.geometry_write),
                "region_update": In(types.region_update),
                "rows_query": In(own.bank),
                "rows": Out(cfg.slot_width + 1),
                "slots": Out(cfg.slot_width),
                "moved": Out(cfg.slot_width),
                "obs_alloc": Out(own.obs_alloc),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        geometry, states, pointers, shown, opened = self._add_tables(m)
        busy = Signal(2)  # 0: normal; 1, 2, 3: steps of a request that overflows
        chosen, granted = self._choose(m, busy)
        one = Signal(types.alloc_request)
        one_valid = Signal()
        one_slice = Signal(cfg.slices)
        two = Signal(types.alloc_request)  # the request that overflows
        two_slice = Signal(cfg.slices)
        target = Signal(cfg.region_width)
        second = Signal()  # busy is 2
        now = Signal()  # step 1 has a request
        self._read(m, chosen, granted, busy, one, one_valid, one_slice, two, target, second, now)
        req = Signal(types.alloc_request)
        m.d.comb += req.eq(Mux(second, two, one))
        slot, given, fresh, elsewhere, asker = self._give(
            m, req, busy, one, one_slice, two, two_slice, target, second, now
        )
        own_row_bytes, own_epoch, own_moved = asker
        place, moves = self._count(m, req, busy, two, target, second, now, fresh, own_moved)
        who = Mux(now & ~elsewhere, Mux(second, two_slice, one_slice), 0)
        steps = self._translate(m, req, who, slot, place, second, given, fresh)
        self._show(m)
        self.observe = AddressTableObserve(
            *(geometry, states, pointers, shown, opened),
            *(one, one_valid, one_slice, two, two_slice, target, busy, second, now),
            *(own_row_bytes, own_epoch, moves),
            *steps,
        )
        return m

    def _add_tables(self, m):
        """Geometry, states, pointers; they change as they are told."""
        cfg, types, own = self._cfg, self._types, self._own
        names = (
            "valid",
            "stride",
            "row_bytes",
            "group_base",
            "log2_tile",
            "overflow_en",
            "overflow",
            "base",
        )
        # A region's last slot is kept in place of its capacity, and with a bank's pointer whether
        # it has given out all: a request then waits for no comparison. ``moved`` has one bit to
        # spare there, both halves of a word are of one width.
        shapes = {
            **{name: types.geometry[name].shape for name in names},
            "last": cfg.slot_width,
            "no_slots": 1,
        }
        pointer_word = data.StructLayout(
            {"slots": cfg.slot_width, "full": 1, "moved": cfg.slot_width + 1}
        )
        count = data.StructLayout({"slots": cfg.slot_width, "moved": cfg.slot_width})
        m.submodules.geometry = geometry = Ram(
            data.StructLayout(shapes), cfg.regions, clear=True, bypass=False
        )
        m.submodules.states = states = Ram(
            data.StructLayout({"state": STATE, "epoch": EPOCH}), 2 * cfg.regions, clear=True
        )
        m.submodules.pointers = pointers = Ram(
            pointer_word, 2 * cfg.regions, granules=2, clear=True
        )
        m.submodules.shown = shown = Ram(
            count, 2 * cfg.regions, granules=2, clear=True
        )  # copy for rows_query
        m.submodules.opened = opened = RegisterQueue(
            own.bank, 4
        )  # three wait at most, whatever is being answered
        write, update = self.geometry_write, self.region_update
        m.d.comb += [
            geometry.w_en.eq(write.en),
            geometry.w_addr.eq(write.region),
            *(geometry.w_data[name].eq(write.geometry[name]) for name in names),
            geometry.w_data.last.eq(write.geometry.capacity - 1),
            geometry.w_data.no_slots.eq(write.geometry.capacity == 0),
            states.w_en.eq(update.en),
            states.w_addr.eq(Cat(update.bank, update.region)),
            states.w_data.state.eq(update.state),
            states.w_data.epoch.eq(update.epoch),
            opened.i.valid.eq(update.en & (update.state == RegionState.OPEN)),
            opened.i.payload.region.eq(update.region),
            opened.i.payload.bank.eq(update.bank),
            self.clearing.eq(
                geometry.clearing | states.clearing | pointers.clearing | shown.clearing
            ),
        ]
        return geometry, states, pointers, shown, opened

    # -- step 0: one request, tables are read ------------------------------------------------------

    def _choose(self, m, busy):
        """One request of all slices, and which slice is granted."""
        cfg, types, opened = self._cfg, self._types, m.submodules.opened
        m.submodules.arbiter = arbiter = RoundRobin(cfg.slices)
        granted = Signal(cfg.slices)
        stop = (busy != 0) | opened.o.valid | self.clearing
        m.d.comb += [
            arbiter.requests.eq(Cat(each.valid for each in self.i_request)),
            granted.eq(Mux(stop, 0, arbiter.grant_onehot)),
            arbiter.advance.eq(granted.any()),
        ]
        chosen = Signal(types.alloc_request)
        m.d.comb += [
            chosen.eq(
                select(arbiter.grant_onehot, [each.payload.as_value() for each in self.i_request])
            ),
            *(each.ready.eq(granted[n]) for n, each in enumerate(self.i_request)),
        ]
        return chosen, granted

    def _read(self, m, chosen, granted, busy, one, one_valid, one_slice, two, target, second, now):
        """Reads what there is of the request's bank, or of its overflow region's."""
        cfg, write, opened = self._cfg, self.geometry_write, m.submodules.opened
        geometry, states, pointers = (
            m.submodules.geometry,
            m.submodules.states,
            m.submodules.pointers,
        )
        region = Signal(cfg.region_width)
        bank = Signal()
        read = Signal()
        with m.Switch(busy):
            with m.Case(0):  # read even if nothing is granted: ``one_valid`` says so
                m.d.comb += [
                    region.eq(chosen.region),
                    bank.eq(chosen.bank),
                    read.eq(1),
                ]
                m.d.sync += [
                    one.eq(chosen),
                    one_valid.eq(granted.any()),
                    one_slice.eq(granted),
                    now.eq(granted.any()),
                ]
            with m.Case(1):  # the overflow region may be opening: its pointer must be 0 first
                rewritten = write.en & (write.region == target)
                m.d.comb += [
                    region.eq(target),
                    bank.eq(two.bank),
                    read.eq(~(opened.i.valid | opened.o.valid | rewritten)),
                ]
                with m.If(read):
                    m.d.sync += [
                        busy.eq(2),
                        second.eq(1),
                        now.eq(1),
                    ]
            with m.Case(2):
                m.d.sync += [
                    busy.eq(3),
                    second.eq(0),
                    now.eq(0),
                ]
            with m.Case(3):  # the request behind reads again
                m.d.comb += [
                    region.eq(one.region),
                    bank.eq(one.bank),
                    read.eq(1),
                ]
                m.d.sync += [
                    busy.eq(0),
                    now.eq(one_valid),
                ]
        at = Cat(bank, region)
        m.d.comb += [
            geometry.r_en.eq(read),
            geometry.r_addr.eq(region),
            states.r_en.eq(read),
            states.r_addr.eq(at),
            pointers.r_en.eq(read),
            pointers.r_addr.eq(at),
        ]

    # -- step 1: slot ------------------------------------------------------------------------------

    def _give(self, m, req, busy, one, one_slice, two, two_slice, target, second, now):
        """The request's slot; whether it is given, freshly given, or has to go elsewhere: then what
        its own region asks of the other is kept, and returned last {row_bytes, epoch, moved}."""
        cfg, tables = self._cfg, m.submodules
        g, state, pointer = tables.geometry.r_data, tables.states.r_data, tables.pointers.r_data
        own_row_bytes = Signal(cfg.row_bytes_width)
        own_epoch = Signal(EPOCH)
        own_moved = Signal(cfg.slot_width)
        full = Signal()
        inside = Signal()
        usable = Signal()
        elsewhere = Signal()
        given = Signal()
        m.d.comb += [
            full.eq(pointer.full | g.no_slots),
            inside.eq((req.slot <= g.last) & ~g.no_slots),
            usable.eq(
                ~second
                | (
                    g.valid
                    & (
                        req.translate
                        | (
                            (state.state == RegionState.OPEN)
                            & (
                                mutant(
                                    "slot_allocator.overflow_of_older_epoch",
                                    state.epoch == own_epoch,
                                    state.epoch >= own_epoch,
                                )
                            )
                            & (g.row_bytes == own_row_bytes)
                        )
                    )
                )
            ),
            elsewhere.eq(now & ~second & g.overflow_en & Mux(req.translate, req.overflow, full)),
            given.eq(usable & Mux(req.translate, inside & (second | ~req.overflow), ~full)),
        ]
        slot = Mux(req.translate, req.slot, pointer.slots)
        fresh = Signal()  # one that overflows is full
        m.d.comb += fresh.eq(now & ~req.translate & ~full & usable)
        with m.If(elsewhere):
            m.d.sync += [
                busy.eq(1),
                now.eq(0),
                two.eq(one),
                two_slice.eq(one_slice),
                target.eq(g.overflow),
                own_row_bytes.eq(g.row_bytes),
                own_epoch.eq(state.epoch),
                own_moved.eq(
                    mutant("slot_allocator.moved_counts_slots", pointer.moved, pointer.slots)
                ),
            ]
        return slot, given, fresh, elsewhere, (own_row_bytes, own_epoch, own_moved)

    def _count(self, m, req, busy, two, target, second, now, fresh, own_moved):
        """Pointers go on, or to 0 in a bank just opened. Returns the region of the slot, and
        whether a row counts as moved."""
        cfg, opened = self._cfg, m.submodules.opened
        pointers, shown = m.submodules.pointers, m.submodules.shown
        g, pointer = m.submodules.geometry.r_data, pointers.r_data
        moves = Signal()  # the row counts as moved at its own region in the next cycle
        m.d.sync += moves.eq(fresh & second)
        place = Signal(cfg.region_width)
        m.d.comb += place.eq(Mux(second, target, req.region))
        # One write port: a slot given out, a row moved, a bank opened; the last waits for a cycle
        # without the others.
        m.d.comb += pointers.w_data.full.eq(
            mutant(
                "slot_allocator.one_slot_too_many", pointer.slots >= g.last, pointer.slots > g.last
            )
        )
        for ram in (pointers, shown):
            m.d.comb += [
                ram.w_data.slots.eq(pointer.slots + 1),
                ram.w_data.moved.eq((own_moved + 1)[: cfg.slot_width]),
            ]
            with m.If(now):
                m.d.comb += [
                    ram.w_en.eq(fresh),
                    ram.w_addr.eq(Cat(req.bank, place)),
                ]
            with m.Elif(moves):
                m.d.comb += [
                    ram.w_en.eq(0b10),
                    ram.w_addr.eq(Cat(two.bank, two.region)),
                ]
            with m.Elif(opened.o.valid & ~busy[1]):
                m.d.comb += [
                    ram.w_en.eq(0b11),
                    ram.w_addr.eq(Cat(opened.o.payload.bank, opened.o.payload.region)),
                    ram.w_data.eq(0),
                    opened.o.ready.eq(1),
                ]
        return place, moves

    # -- steps 2 and 3: multiply, add --------------------------------------------------------------

    def _translate(self, m, req, who, slot, place, second, given, fresh):
        """The slot's address, and the answer to the slice ``who``. Returns the registers of steps 2
        and 3."""
        cfg, types, g = self._cfg, self._types, m.submodules.geometry.r_data
        low = ceil_log2(cfg.packet_bytes)
        stage = data.StructLayout({"slice": cfg.slices, "reply": types.alloc_reply})
        a = Signal(stage)
        b = Signal(stage)
        stride_width, half = cfg.stride_width - low, (cfg.stride_width - low + 1) // 2
        stride = Signal(stride_width)
        base_a = Signal(ADDR - low)
        base_b = Signal(ADDR - low)
        group_base = Signal(cfg.group_width)
        log2_tile = Signal(LOG2_TILE)
        m.d.sync += [
            a.slice.eq(who),
            a.reply.reason.eq(
                Mux(given, Reason.OK, Mux(req.translate, Reason.MEM_ERROR, Reason.REGION_FULL))
            ),
            a.reply.slot.eq(slot),
            a.reply.overflow.eq(second),
            a.reply.place.eq(place),
            stride.eq(g.stride[low:]),
            base_a.eq(Mux(req.bank, g.base[1][low:], g.base[0][low:])),
            group_base.eq(g.group_base),
            log2_tile.eq(g.log2_tile),
            self.obs_alloc.en.eq(fresh),
            self.obs_alloc.region.eq(req.region),
            self.obs_alloc.bank.eq(req.bank),
            self.obs_alloc.rowid.eq(req.rowid),
            self.obs_alloc.slot.eq(slot),
            self.obs_alloc.overflow.eq(second),
        ]
        product_low = Signal(cfg.slot_width + half)
        product_high = Signal(cfg.slot_width + stride_width)
        m.d.sync += [
            b.eq(a),
            b.reply.group.eq(
                (mutant("slot_allocator.group_of_next_slot", a.reply.slot, slot) >> log2_tile)[
                    : cfg.group_width
                ]
                + group_base
            ),
            base_b.eq(base_a),
            product_low.eq(a.reply.slot * stride[:half]),
            product_high.eq(a.reply.slot * stride[half:]),
        ]
        m.d.sync += [
            self.reply_en.eq(b.slice),
            self.reply.eq(b.reply),
            self.reply.addr.eq(
                Cat(Signal(low, name="addr_low"), base_b + product_low + (product_high << half))
            ),
        ]
        return a, b, stride, base_a, base_b, group_base, log2_tile, product_low, product_high

    def _show(self, m):
        """Answers ``rows_query``."""
        shown = m.submodules.shown
        m.d.comb += [
            shown.r_en.eq(1),
            shown.r_addr.eq(Cat(self.rows_query.bank, self.rows_query.region)),
        ]
        m.d.sync += [
            self.slots.eq(shown.r_data.slots),
            self.moved.eq(shown.r_data.moved),
            self.rows.eq(shown.r_data.slots + shown.r_data.moved),
        ]
