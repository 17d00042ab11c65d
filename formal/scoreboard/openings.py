# SPDX-License-Identifier: Apache-2.0
"""The promise that joins slot allocator, memory writers and scoreboard: an acknowledgement counts
only for the opening in which its slot was given. The walker is the RTL's, the others do whatever
their own promises allow."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import known_word, observe
from formal.kit.spec import Spec
from hub_rtl.contract.packets import RegionOp, RegionState
from hub_rtl.scoreboard.records import OpKind, scoreboard_types
from hub_rtl.scoreboard.region_walker import RegionWalker

__all__ = ["AcknowledgementsCountForTheirOpening"]

NONE, LOOKED_UP, WRITING, COMBINED, COUNTING = range(5)  # where the followed packet is
PIPELINE = 6  # cycles from the combiner to the book, at most


class _Bank:
    """State and epoch of a bank as broadcast."""

    def __init__(self, name, region):
        self.region, self.state = region, Signal(2, name=f"{name}_state")
        self.epoch = Signal(4, name=f"{name}_epoch")

    def is_now(self, state):
        return self.state == state


class AcknowledgementsCountForTheirOpening(Spec):
    """For any bank (the place), any region that overflows into it, any row of it with a slot there
    and any packet of that row: its acknowledgement is counted while the place is in the opening in
    which the slot was given, never in a later one and never after it is FREE. When the place is
    purged, nobody who overflows there is OPEN in its epoch.

    Assumed of the blocks around the walker, one packet and one row being followed: states
    change only by orders, by FREE and from OPEN to DONE, orders succeed only where they may
    (scoreboard.books_answer_orders, books_broadcast_states); an ORPHAN ends who overflows there
    (scoreboard.books_orphans_end), before what was asked behind it is answered
    (scoreboard.orphans_end_before_the_answer); geometry changes only while FREE
    (hub.geometry_of_busy_region_stays); a slot elsewhere is given only while that place is OPEN
    in the row's epoch (slot_allocator.full), to a packet that was looked up while its own bank
    was OPEN in that epoch (slot_allocator.row_check, slot_allocator.closed_rows_are_sunk); a
    row's slot is forgotten before its own bank is FREE (slot_allocator.purge; spill tables as
    software must leave them, docs/blocks/slot_allocator.md); ``purging``, ``quiescing`` and
    ``sweeping`` last until what was there before has left (slot_allocator.purge,
    memory.quiesce, scoreboard.combiner_sweeps, scoreboard.sums_sweep); from there to the book it
    takes at most 6 cycles (scoreboard.orphans_end_before_the_answer)."""

    def build(self, m):
        self.dut = dut = RegionWalker(self._cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.free_inputs(dut)
        width = self._cfg.region_width
        self.bank = self.constant(1, "bank")
        self.place = _Bank("place", self.constant(width, "place_region"))
        self.home = _Bank("home", self.constant(width, "home_region"))
        self.suppose(
            "two regions",
            (self.place.region != self.home.region)
            & (self.place.region < self._cfg.regions)
            & (self.home.region < self._cfg.regions),
        )
        self._geometry(m)
        self._books(m)
        order = dut.i_command.payload
        self.suppose("a range goes up", order.region <= order.last, when=dut.i_command.valid)
        self.strobed = {}
        self._packet(m)
        self._lemmas()

    def _free_bit(self, name):
        bit = Signal(name=name)
        self.free(bit)
        return bit

    def _geometry(self, m):
        """Whether the row's own region overflows into the place."""
        write = self.dut.geometry_write
        self.into = Signal()
        ours = write.en & (write.region == self.home.region)
        with m.If(ours):
            m.d.sync += self.into.eq(
                write.geometry.overflow_en & (write.geometry.overflow == self.place.region)
            )
        self.suppose("no geometry while clearing", ~write.en, when=self.dut.clearing)
        self.wrote = ours

    def _books(self, m):
        """What becomes of the walker's questions about the two banks."""
        dut, op, result = self.dut, self.dut.o_op.payload, self.dut.result
        # Questions without an answer are of one kind and of neighbouring regions
        # (scoreboard.orders_take_their_steps): `asked`, the first of `waits`.
        taken = Signal()
        asked = Signal(scoreboard_types(self._cfg).op)
        waits = Signal(self._cfg.region_width + 1)
        answer = Signal()
        asks = Signal()
        quiet = Cat(op.kind == kind for kind in (OpKind.CLEAR, OpKind.PASS, OpKind.ORPHAN)).any()
        m.d.comb += [
            taken.eq(dut.o_op.valid & dut.o_op.ready),
            answer.eq(result.valid & (result.source == 1)),
            asks.eq(taken & ~quiet),
        ]
        m.d.sync += waits.eq(waits + asks - answer)
        with m.If(answer):
            m.d.sync += asked.region.eq(asked.region + 1)
        with m.If(asks & (waits == 0)):
            m.d.sync += asked.eq(op)
        self.suppose("an answer follows a question", waits != 0, when=answer)
        self.suppose(
            "the answer shows the geometry",
            result.geometry.overflow_en,
            when=answer & self.into & (asked.region == self.home.region),
        )
        orphan = Signal()
        orphan_epoch = Signal(4)
        orphaned = self._free_bit("orphaned")  # the operation does what it does
        with m.If(
            taken
            & (op.kind == OpKind.ORPHAN)
            & (op.region == self.home.region)
            & (op.bank == self.bank)
            & (op.bytes == self.place.region)
            & ~op.plain
        ):
            m.d.sync += [
                orphan.eq(1),
                orphan_epoch.eq(op.epoch),
            ]
        with m.Elif(orphaned):
            m.d.sync += orphan.eq(0)
        self.suppose("it is done before the answer behind it", ~orphan, when=answer)
        opening = Signal()
        self.freed = Signal()  # the place becomes FREE
        self.orphan, self.orphan_epoch, self.asked, self.waits = orphan, orphan_epoch, asked, waits
        for bank in (self.place, self.home):
            name = "place" if bank is self.place else "home"
            here = answer & (asked.region == bank.region) & (asked.bank == self.bank)
            same, busy = asked.epoch == bank.epoch, bank.state != RegionState.FREE
            ends = self._free_bit(f"{name}_ends")
            allowed = {
                OpKind.OPEN: ~busy,
                OpKind.ABORT: busy & same,
                OpKind.RELEASE: bank.is_now(RegionState.DONE) & same,
            }
            for kind, may in allowed.items():
                self.suppose(
                    f"{kind.name} of the {name}", may, when=here & (asked.kind == kind) & result.ok
                )
            with m.If(bank.is_now(RegionState.OPEN) & ends):
                m.d.sync += bank.state.eq(RegionState.DONE)
            with m.If(here & (asked.kind == OpKind.OPEN) & result.ok):
                m.d.sync += [
                    bank.state.eq(RegionState.OPEN),
                    bank.epoch.eq(asked.epoch),
                ]
            with m.If(here & (asked.kind == OpKind.ABORT) & result.ok):
                m.d.sync += bank.state.eq(RegionState.DONE)
            with m.If(here & (asked.kind == OpKind.FREE)):
                m.d.sync += bank.state.eq(RegionState.FREE)
        away = (self.home.region - asked.region)[: len(asked.region)]
        opens = (asked.kind == OpKind.OPEN) & (self.home.region >= asked.region) & (away < waits)
        m.d.comb += [
            self.freed.eq(
                answer
                & (asked.kind == OpKind.FREE)
                & (asked.bank == self.bank)
                & (asked.region == self.place.region)
            ),
            opening.eq(
                opens | (taken & (op.kind == OpKind.OPEN) & (op.region == self.home.region))
            ),
        ]
        self.suppose(
            "geometry rests while its bank is in use",
            self.home.is_now(RegionState.FREE) & ~opening,
            when=self.wrote,
        )
        purges = (
            dut.purge.en
            & (dut.purge.region <= self.place.region)
            & (self.place.region <= dut.purge.last)
            & (dut.purge.bank == self.bank)
        )
        self.always(
            "nobody whose rows may lie there is open when it is purged",
            ~(
                self.into
                & self.home.is_now(RegionState.OPEN)
                & (self.home.epoch == self.place.epoch)
            ),
            when=purges,
        )
        with m.If(
            orphan
            & orphaned
            & self.into
            & self.home.is_now(RegionState.OPEN)
            & (orphan_epoch == self.home.epoch)
        ):
            m.d.sync += self.home.state.eq(RegionState.DONE)

    def _packet(self, m):
        """A row's slot in the place, and one packet of the row on its way."""
        dut, home, place = self.dut, self.home, self.place
        slot = Signal()  # the row has its slot
        stale = Signal()  # of an opening that is over
        at = Signal(3)  # the packet
        has = Signal()  # it has the slot
        late = Signal()  # which is of an opening that is over
        epoch = Signal(4)
        looks, places, moves, forgets = (
            self._free_bit(name) for name in ("looks", "places", "moves", "forgets")
        )
        old = Signal(3)
        age = Signal(3)
        live = home.is_now(RegionState.OPEN)
        given = (
            places
            & (at == LOOKED_UP)
            & ~slot
            & ~has
            & self.into
            & (place.is_now(RegionState.OPEN))
            & (place.epoch == epoch)
        )
        # The row.
        with m.If(home.is_now(RegionState.FREE)):
            m.d.sync += slot.eq(0)
        with m.Elif(given):
            m.d.sync += [
                slot.eq(1),
                stale.eq(self.freed),
            ]
        with m.Elif(forgets):
            m.d.sync += slot.eq(0)
        with m.Elif(self.freed):
            m.d.sync += stale.eq(1)
        # The packet.
        counted = Signal()
        m.d.comb += counted.eq((at == COUNTING) & (moves | (age == PIPELINE)))
        m.d.sync += age.eq(age + (age != PIPELINE))
        with m.If((at == NONE) & looks & live):
            m.d.sync += [
                at.eq(LOOKED_UP),
                epoch.eq(home.epoch),
                has.eq(slot),
                late.eq(stale | self.freed),
            ]
        with m.Elif(given):
            m.d.sync += [
                has.eq(1),
                late.eq(self.freed),
            ]
        with m.Elif(self.freed):
            m.d.sync += late.eq(1)
        with m.If((at == LOOKED_UP) & has & moves):
            m.d.sync += at.eq(WRITING)
        with m.If((at == WRITING) & moves):
            m.d.sync += at.eq(COMBINED)
        with m.If((at == COMBINED) & moves):
            m.d.sync += [
                at.eq(COUNTING),
                age.eq(0),
            ]
        with m.If(counted):
            m.d.sync += [
                at.eq(NONE),
                has.eq(0),
            ]
        with m.If(
            (at == LOOKED_UP) & ~has & forgets & ~given
        ):  # refused, or placed in its own region
            m.d.sync += at.eq(NONE)
        self.always(
            "an acknowledgement counts in the opening of its slot",
            ~late & ~place.is_now(RegionState.FREE),
            when=counted,
        )
        self.reach("a slot is given", given)
        self.reach("a row has its slot and its bank is ended", slot & home.is_now(RegionState.DONE))

        # What was there before stays noticed until it has left.
        leaves = {LOOKED_UP: moves & has, WRITING: moves, COMBINED: moves}
        signs = {
            LOOKED_UP: (dut.purge.en, dut.purging),
            WRITING: (dut.quiesce, dut.quiescing),
            COMBINED: (dut.sweep, dut.sweeping),
        }
        for number, (stage, (strobe, busy)) in enumerate(signs.items()):
            enters = {
                LOOKED_UP: (at == NONE) & looks & live,
                WRITING: (at == LOOKED_UP) & moves & has,
                COMBINED: 0,
            }[stage]
            gone = (at == stage) & leaves[stage]
            if stage == LOOKED_UP:
                gone = gone | (~has & forgets & ~given & (at == stage))
            with m.If(strobe):
                m.d.sync += old[number].eq(((at == stage) & ~gone) | enters)
            with m.Elif(gone):
                m.d.sync += old[number].eq(0)
            self.strobed[number] = before = self.past(strobe, f"strobed_{number}")
            self.suppose(
                f"stage {number} shows what is old", busy, when=old[number] & ~before & ~strobe
            )
        self.row, self.packet = (slot, stale), (at, has, late, epoch, age, old)

    def _lemmas(self):
        """Where the walker is, and what can then still be under way."""
        inside, place, home = self.inside, self.place, self.home
        is_in, command, asks = inside.is_in, inside.command, inside.asks
        wait, of_range = inside.wait, inside.of_range

        def within(*states):
            return Cat(is_in[name] for name in states).any()

        # The walker, and what it has asked.
        run, at, opens, waits = inside.run, inside.at, inside.opens, self.waits
        first, final, heard, some = run.first, run.final, run.heard, run.some
        orders = within("ORDER", "ORDERED")
        walks = within("LOAD", "TELL", "FREE") | (is_in["WALK"] & ~of_range)
        before = within("ORPHAN", "ORPHANED", "PURGE", "PURGING")
        drained = within("QUIESCING", "SWEEP", "SWEEPING", "FLUSHING", "LOOK", "LOOKED")
        ends = before | drained | walks | within("FREED", "QUIET")
        rests = within("IDLE", "RANGE") | (is_in["WALK"] & of_range)
        gives = (command.op == RegionOp.RELEASE) | (command.op == RegionOp.ABORT)
        known = command.last < self._cfg.regions
        question = self.asked
        self.lemma("a state", within(*is_in))
        self.lemma("no range in an order", ~of_range, when=orders | ends)
        self.lemma("a range", of_range, when=is_in["RANGE"])
        self.lemma("a run", some == (ends | (orders & some & ~opens)))
        self.lemma("an order that ends", gives, when=some | (opens & ~rests))
        self.lemma("of known regions", known | (is_in["ORDER"] & ~asks), when=~rests)
        self.lemma("asks if it is", asks == known, when=is_in["ORDER"])
        self.lemma("goes up", command.region <= command.last, when=~rests)
        self.lemma("nothing of others", (waits == 0) & ~some & ~opens, when=orders & ~known)
        self.lemma("rests", ~some & ~opens & (waits == 0), when=rests)
        self.lemma("opens alone", ~some, when=opens)
        self.lemma(
            "in the order",
            (command.region <= first) & (first <= command.last),
            when=some | (orders & known),
        )
        self.lemma("its banks", (first <= final) & (final <= command.last), when=some | opens)
        self.lemma("of those heard", final < heard, when=some & orders)
        plain = orders & gives & ~opens
        self.lemma("none yet", run.stop | (first == heard), when=plain & ~some)
        self.lemma("contiguous", run.stop | (final == heard - 1), when=plain & some)
        last = Mux(opens, final, command.last)
        self.lemma(
            "asking",
            (waits == (at - heard)[: len(waits)])
            & (first <= heard)
            & (heard <= at)
            & (first <= last)
            & (at <= last + is_in["ORDERED"]),
            when=orders & known,
        )
        self.lemma("questions are counted", inside.pending == waits)
        kind = OpKind.OPEN + command.op
        epoch = command.epoch + Mux(opens, 2, 0)
        self.lemma(
            "an order's question",
            (question.kind == Mux(opens, OpKind.OPEN, kind))
            & (question.region == heard)
            & (question.epoch == epoch[: len(question.epoch)]),
            when=orders & (waits != 0),
        )
        self.lemma("whose bank", question.bank == command.epoch[0], when=waits != 0)
        looks = is_in["LOOKED"] | (is_in["ORPHANED"] & ~asks)
        self.lemma("a look", question.kind == OpKind.LOOK, when=looks)
        frees = within("WALK", "TELL", "FREE", "FREED") & ~of_range
        self.lemma("one question", waits == looks, when=~(orders | frees))
        self.lemma(
            "frees",
            (question.kind == OpKind.FREE)
            & (first <= question.region)
            & (question.region + waits == at),
            when=frees & (waits != 0),
        )
        self.lemma("not more", waits <= at - first, when=frees)
        self.lemma("all freed", at == final + 1, when=is_in["FREED"])
        self.lemma("walking", (first <= at) & (at <= final), when=walks)
        self.lemma("at the first", at == first, when=before | drained | is_in["LOAD"])
        self.lemma("asks as its state", asks, when=within("ORPHAN", "LOOK", "TELL", "FREE"))
        self.lemma(
            "asks in its states",
            within("ORDER", "ORPHAN", "ORPHANED", "LOOK", "WALK", "TELL", "FREE"),
            when=asks,
        )
        mine = {}
        for bank in (place, home):
            here = some & (first <= bank.region) & (bank.region <= final)
            here = here & (command.epoch[0] == self.bank)
            free_asked = (frees & (bank.region < at)) | is_in["QUIET"]
            held = (waits != 0) & (question.kind == OpKind.FREE) & (question.region <= bank.region)
            done = here & (~free_asked | (held & ~is_in["QUIET"]))
            name = "place" if bank is place else "home"
            self.lemma(
                f"the {name} is given back",
                bank.is_now(RegionState.DONE) & (bank.epoch == command.epoch),
                when=done,
            )
            self.lemma(f"the {name} was freed", bank.is_now(RegionState.FREE), when=here & ~done)
            self.lemma(f"the {name} is in a state", bank.state <= RegionState.DONE)
            self.lemma(
                f"the {name}'s bank",
                bank.epoch[0] == self.bank,
                when=bank.state != RegionState.FREE,
            )
            mine[bank] = done
        # Who overflows there has been asked.
        busy_home = self.into & (home.state != RegionState.FREE)
        shared = observe(run).shared
        word, named = known_word(self, shared, place.region, "shared")
        self.lemma("named", word & named, when=self.into)
        self.lemma("looks one ahead", self.past(shared.r_addr, "looks_at") == heard)
        at_place = some & (first <= place.region) & (place.region <= final)
        self.lemma("it is asked", run.hosts & (first == final), when=at_place & busy_home)
        self.lemma("hosts are alone", run.alone, when=some & run.hosts)
        self.lemma("alone", first == final, when=some & run.alone)
        alive = (
            self.into & home.is_now(RegionState.OPEN) & (home.epoch == place.epoch) & mine[place]
        )
        self.lemma(
            "an ORPHAN is the order's",
            within("ORPHAN", "ORPHANED")
            & (self.orphan_epoch == command.epoch)
            & (first == place.region)
            & (command.epoch[0] == self.bank),
            when=self.orphan,
        )
        self.lemma(
            "it will be asked",
            (inside.primary <= home.region) | self.orphan,
            when=alive & is_in["ORPHAN"],
        )
        self.lemma("it has been asked", self.orphan, when=alive & is_in["ORPHANED"])
        self.lemma("it has ended", ~alive, when=~(orders | within("ORPHAN", "ORPHANED")))
        # The row.
        (slot, stale), (at, has, late, epoch, age, old) = self.row, self.packet
        self.lemma(
            "a slot of this opening",
            (place.state != RegionState.FREE)
            & (home.is_now(RegionState.FREE) | (self.into & (place.epoch == home.epoch))),
            when=slot & ~stale,
        )
        self.lemma(
            "a slot of an opening that is over", ~home.is_now(RegionState.OPEN), when=slot & stale
        )
        self.lemma("a slot goes with its bank", some, when=slot & home.is_now(RegionState.FREE))
        # The packet.
        self.lemma("nobody has nothing", ~has, when=at == NONE)
        self.lemma("it is somewhere", at <= COUNTING)
        self.lemma("it has its slot", has, when=at > LOOKED_UP)
        self.lemma("of its opening", ~late & (place.state != RegionState.FREE), when=has)
        self.lemma(
            "of its epoch",
            (epoch == home.epoch) & ~home.is_now(RegionState.FREE),
            when=at == LOOKED_UP,
        )
        self.lemma("the age", age <= PIPELINE)
        for name, here, there in (("place", mine[place], has), ("home", mine[home], 1)):
            up = (at == LOOKED_UP) & there
            self.lemma(f"{name}: purged", ~up | old[0], when=here & is_in["PURGING"])
            self.lemma(
                f"{name}: looked up before",
                ~up,
                when=here & ~(orders | before),
            )
        here = mine[place] & has
        self.lemma("written", old[1], when=here & is_in["QUIESCING"] & (at == WRITING))
        self.lemma(
            "was written",
            at != WRITING,
            when=here & ~(orders | before | is_in["QUIESCING"]),
        )
        self.lemma("combined", old[2], when=here & is_in["SWEEPING"] & (at == COMBINED))
        self.lemma(
            "in the pipeline", (at == COUNTING) & (age + wait >= 8), when=here & is_in["FLUSHING"]
        )
        self.lemma(
            "nothing is left",
            ~here,
            when=within("LOOK", "LOOKED", "LOAD", "WALK", "TELL", "FREE", "FREED"),
        )
        self.lemma("settling", (wait == 2) | ~self.strobed[0], when=is_in["PURGING"])
        self.lemma("settling writers", (wait == 2) | ~self.strobed[1], when=is_in["QUIESCING"])
        self.lemma("settling combiners", (wait == 2) | ~self.strobed[2], when=is_in["SWEEPING"])
