# SPDX-License-Identifier: Apache-2.0
"""Promises of the address table (``hub_rtl/slot_allocator/address_table.py``)."""

from amaranth import Array, Cat, Mux, Signal

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, moves, one_of, same
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.slot_allocator.address_table import AddressTable

__all__ = ["TableAnswersEach", "TableGivesDenseSlots"]


class TableSpec(Spec):
    """Address table with arbitrary constant geometries, written while nothing is asked.

    A bank is opened only after every request taken before it was left is answered (it is purged in
    between), and new rows of a bank are asked for from the cycle after its opening until it is left
    (the slices look at the bank first).
    """

    GEOMETRY = (
        "valid",
        "stride",
        "row_bytes",
        "capacity",
        "group_base",
        "log2_tile",
        "overflow_en",
        "overflow",
        "base",
    )

    def table(self, m):
        """Builds the table and its environment."""
        cfg = self._cfg
        self.dut = dut = AddressTable(cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.free_inputs(dut)
        write = dut.geometry_write
        self.regions = [
            self.constant(write.geometry.shape(), f"region{n}") for n in range(cfg.regions)
        ]
        asked = Cat(each.valid for each in dut.i_request).any()
        self.busy = Signal()
        self.written = Signal(cfg.regions)
        with m.If(asked):
            m.d.sync += self.busy.eq(1)
        inside = self.inside
        self.lemma("second step", inside.second == (inside.busy == 2))
        self.lemma(
            "step 1", inside.now == (inside.second | (inside.one_valid & (inside.busy == 0)))
        )
        self.taken = Signal()
        self.inflight = Signal(4)
        m.d.comb += self.taken.eq(Cat(moves(each) for each in dut.i_request).any())
        m.d.sync += self.inflight.eq(self.inflight + self.taken - dut.reply_en.any())
        for n, region in enumerate(self.regions):
            self.suppose(
                f"geometry {n} constant",
                Cat(write.geometry[name] == region[name] for name in self.GEOMETRY).all(),
                when=write.en & (write.region == n),
            )
            with m.If(write.en & (write.region == n)):
                m.d.sync += self.written[n].eq(1)
            self.suppose(f"geometry {n} written", self.written[n], when=asked)
        self.suppose("geometry before rows", ~write.en, when=asked | self.busy)
        self.suppose(
            "nothing while clearing", ~(write.en | dut.region_update.en | asked), when=dut.clearing
        )

    def region(self, number):
        """Constant geometry of a region."""
        return Array(self.regions)[number]

    def bank_of(self, m, region, bank, name=""):
        """Environment of one bank: its updates, when it was left, requests for it. Returns the
        cycle of its opening."""
        dut = self.dut
        update = dut.region_update
        ours = update.en & (update.region == region) & (update.bank == bank)
        opens = Signal()
        m.d.comb += opens.eq(ours & (update.state == RegionState.OPEN))
        is_open = Signal()
        older = Signal(4)  # requests taken before the bank was left, unanswered
        with m.If(ours):
            m.d.sync += is_open.eq(opens)
        answered = dut.reply_en.any()
        with m.If(is_open):
            m.d.sync += older.eq(self.inflight + self.taken - answered)
        with m.Elif(answered & older.any()):
            m.d.sync += older.eq(older - 1)
        self.is_open, self.older = is_open, older
        self.suppose(f"{name}opened when free", ~is_open & ~older.any(), when=opens)
        for n, each in enumerate(dut.i_request):
            self.suppose(
                f"{name}bank open for {n}",
                is_open,
                when=each.valid
                & ~each.p.translate
                & (each.p.region == region)
                & (each.p.bank == bank),
            )
        return opens

    def follow(self, m):
        """One arbitrary request, its slice, whether it is unanswered, the answers ahead of it, the
        cycle of its answer."""
        cfg, dut = self._cfg, self.dut
        pick = Signal()
        marked = Signal()
        open_ = Signal()
        ahead = Signal(4)
        req = Signal(dut.i_request[0].p.shape())
        who = Signal(cfg.slices)
        taken_by = Signal(cfg.slices)
        self.free(pick)
        m.d.comb += taken_by.eq(Cat(moves(each) for each in dut.i_request))
        answered = dut.reply_en.any()
        answer = Signal()
        m.d.comb += answer.eq(answered & open_ & (ahead == 0))
        with m.If(self.taken & pick & ~marked):
            m.d.sync += [
                marked.eq(1),
                open_.eq(1),
                ahead.eq(self.inflight - answered),
                who.eq(taken_by),
            ]
            for n, each in enumerate(dut.i_request):
                with m.If(taken_by[n]):
                    m.d.sync += req.eq(each.payload)
        with m.Elif(answer):
            m.d.sync += open_.eq(0)
        with m.Elif(answered & open_):
            m.d.sync += ahead.eq(ahead - 1)
        return req, who, open_, ahead, answer

    def stages(self, req, who, open_, ahead):
        """Helper invariants: the pipeline, and the geometry it has read. Returns for each stage if
        the request is there."""
        dut, inside = self.dut, self.inside
        one, one_valid, two, busy = inside.one, inside.one_valid, inside.two, inside.busy
        a, b, target = inside.a, inside.b, inside.target
        own = self.region(req.region)
        stages = {
            "reply": dut.reply_en.any(),
            "b": b.slice.any(),
            "a": a.slice.any(),
            "two": one_of(busy, 1, 2),
            "one": one_valid,
        }
        self.lemma("occupancy", self.inflight == sum(stages.values()))
        self.lemma("older ones", ahead < self.inflight, when=open_)
        for name, slices, full in (
            ("a", a.slice, stages["a"]),
            ("b", b.slice, stages["b"]),
            ("one", inside.one_slice, one_valid),
            ("two", inside.two_slice, stages["two"]),
        ):
            self.lemma(
                f"a slice at {name}", (slices != 0) & ((slices & (slices - 1)) == 0), when=full
            )
        at, older = {}, 0
        for name, full in stages.items():
            at[name] = open_ & full & (ahead == older)
            older = older + full
        self.lemma("at one", (one == req) & (inside.one_slice == who), when=at["one"])
        self.lemma(
            "at two",
            (two == req)
            & (inside.two_slice == who)
            & (target == own.overflow)
            & own.overflow_en
            & Mux(req.translate, req.overflow, 1),
            when=at["two"],
        )
        # Geometry: in memory, as read, on its way.
        g, pointer = inside.geometry.r_data, inside.pointers.r_data
        walk = observe(inside.pointers).walk
        for n, region in enumerate(self.regions):

            def same(view, region=region):
                return Cat(
                    *(view[name] == region[name] for name in self.GEOMETRY if name != "capacity"),
                    view.last == (region.capacity - 1)[: len(view.last)],
                    view.no_slots == (region.capacity == 0),
                ).all()

            word = g.shape()(peek(self.m, inside.geometry, n))
            self.lemma(f"geometry {n} kept", same(word), when=self.written[n])
            read = (one_valid & (busy == 0) & (one.region == n)) | ((busy == 2) & (target == n))
            self.lemma(f"geometry {n} read", same(g), when=read)

            def below(view, region=region):
                return view.full | (view.slots < region.capacity) | (region.capacity == 0)

            for bank in range(2):
                at_word = 2 * n + bank
                word = pointer.shape()(peek(self.m, inside.pointers, at_word))
                self.lemma(f"pointer {at_word} below capacity", below(word), when=walk > at_word)
            self.lemma(f"pointer of {n} read", below(pointer), when=read)
        self.lemma("all written", self.written.all(), when=self.inflight != 0)
        self.lemma("asked before", self.busy, when=self.inflight != 0)
        self.lemma("cleared before", ~dut.clearing, when=self.written.any())
        return at


class TableGivesDenseSlots(TableSpec):
    """For any bank: the slots given out in it since it was opened, to its own rows and to those of
    regions that overflow into it, are 0, 1, 2 and so on, all below its capacity."""

    def build(self, m):
        cfg = self._cfg
        self.table(m)
        dut = self.dut
        region, bank = self.constant(cfg.region_width, "region"), self.constant(1, "bank")
        opens = self.bank_of(m, region, bank)
        seen = dut.obs_alloc
        count = Signal(cfg.slot_width)
        mine = Signal()
        place = Mux(seen.overflow, self.region(seen.region).overflow, seen.region)
        m.d.comb += mine.eq(seen.en & (place == region) & (seen.bank == bank))
        with m.If(opens):
            m.d.sync += count.eq(0)
        with m.Elif(mine):
            m.d.sync += count.eq(count + 1)
        self.always("next slot", seen.slot == count, when=mine)
        self.always("below capacity", seen.slot < self.region(region).capacity, when=mine)
        self.reach("overflow", mine & seen.overflow)
        again = Signal()
        with m.If(opens & (count != 0)):
            m.d.sync += again.eq(1)
        self.reach("opened again", mine & again)


class TableAnswersEach(TableSpec):
    """Every request is answered once, in order, to its slice. A new row's OK comes two cycles after
    its ``obs_alloc``, with that slot; a known slot's OK names that slot, and only a slot outside
    its region is a MEM_ERROR. With OK go the place (the region, or its overflow region), addr =
    base[bank] + slot * stride and group = group_base + slot / tile of that place."""

    def build(self, m):
        cfg = self._cfg
        self.table(m)
        dut = self.dut
        seen, reply = dut.obs_alloc, dut.reply
        req, who, open_, ahead, answer = self.follow(m)
        answered = dut.reply_en.any()
        self.suppose(
            "regions exist", Cat(each.p.region < cfg.regions for each in dut.i_request).all()
        )

        before = [Signal(seen.shape(), name=f"seen{n}") for n in range(2)]  # one, two cycles ago
        m.d.sync += [
            before[0].eq(seen),
            before[1].eq(before[0]),
        ]
        self.always("one answer at a time", (dut.reply_en & (dut.reply_en - 1)) == 0)
        self.always("to the asking slice", dut.reply_en == who, when=answer)
        self.always("never unasked", self.inflight != 0, when=answered)
        self._content(self.always, "", answer, req, reply, before[1])
        low, there = (cfg.packet_bytes - 1).bit_length(), self.region(reply.place)
        base, ok = Mux(req.bank, there.base[1], there.base[0]), reply.reason == Reason.OK
        self.always(
            "address",
            reply.addr[low:] == (base[low:] + reply.slot * there.stride[low:])[: 48 - low],
            when=answer & ok,
        )
        self.always("address aligned", reply.addr[:low] == 0, when=answer)
        self.always(
            "group",
            reply.group == (there.group_base + (reply.slot >> there.log2_tile))[: cfg.group_width],
            when=answer & ok,
        )
        age = Signal(5)
        with m.If(open_):
            m.d.sync += age.eq(age + ~age.all())
        self._lemmas(req, who, open_, ahead, before[0])
        self.reach("overflowed", answer & ok & reply.overflow & ~req.translate)
        self.reach("last of three", answer & (age >= 6))

    def _content(self, add, where, when, req, reply, seen):
        """What a request's answer says, but for address and group: a promise of it, a lemma of what
        is on its way (``add``)."""
        own, ok, over = self.region(req.region), reply.reason == Reason.OK, reply.overflow
        there = self.region(reply.place)
        add(f"{where}place", reply.place == Mux(over, own.overflow, req.region), when=when & ok)
        add(f"{where}slot inside", reply.slot < there.capacity, when=when & ok)
        add(f"{where}overflow where allowed", own.overflow_en, when=when & ok & over)
        add(
            f"{where}new row observed",
            ok
            == (
                seen.en
                & (seen.region == req.region)
                & (seen.bank == req.bank)
                & (seen.rowid == req.rowid)
            ),
            when=when & ~req.translate,
        )
        add(
            f"{where}new slot",
            (reply.slot == seen.slot) & (over == seen.overflow),
            when=when & ok & ~req.translate,
        )
        add(
            f"{where}new row or full",
            ok | (reply.reason == Reason.REGION_FULL),
            when=when & ~req.translate,
        )
        add(
            f"{where}known slot",
            (reply.slot == req.slot) & (over == req.overflow),
            when=when & ok & req.translate,
        )
        known = self.region(Mux(req.overflow, own.overflow, req.region))
        usable = Mux(req.overflow, own.overflow_en & known.valid, 1) & (req.slot < known.capacity)
        add(
            f"{where}known slot or error",
            reply.reason == Mux(usable, Reason.OK, Reason.MEM_ERROR),
            when=when & req.translate,
        )

    def _lemmas(self, req, who, open_, ahead, seen_before):
        """Helper invariants: where the request is in the pipeline, and what is there."""
        dut, inside, cfg = self.dut, self.inside, self._cfg
        low = (cfg.packet_bytes - 1).bit_length()
        a, b = inside.a, inside.b
        at = self.stages(req, who, open_, ahead)
        for where, stage, seen in (("a: ", a, dut.obs_alloc), ("b: ", b, seen_before)):
            self._content(self.lemma, where, at[where[0]], req, stage.reply, seen)
            self.lemma(f"{where}slice", stage.slice == who, when=at[where[0]])
        there = self.region(a.reply.place)
        ok = at["a"] & (a.reply.reason == Reason.OK)
        self.lemma(
            "a: geometry",
            same(
                inside,
                stride=there.stride[low:],
                group_base=there.group_base,
                log2_tile=there.log2_tile,
                base_a=Mux(req.bank, there.base[1][low:], there.base[0][low:]),
            ),
            when=ok,
        )
        there = self.region(b.reply.place)
        ok = at["b"] & (b.reply.reason == Reason.OK)
        half = len(inside.product_low) - cfg.slot_width  # of the stride
        self.lemma(
            "b: product",
            inside.product_low + (inside.product_high << half) == b.reply.slot * there.stride[low:],
            when=ok,
        )
        self.lemma(
            "b: base",
            inside.base_b == Mux(req.bank, there.base[1][low:], there.base[0][low:]),
            when=ok,
        )
        self.lemma(
            "b: group",
            b.reply.group
            == (there.group_base + (b.reply.slot >> there.log2_tile))[: cfg.group_width],
            when=ok,
        )
