# SPDX-License-Identifier: Apache-2.0
"""Promise of the address table (``hub_rtl/slot_allocator/address_table.py``) about full regions."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import one_of, same
from hub_rtl.contract.packets import Reason, RegionState

from .table import TableSpec

__all__ = ["RefusedOnlyWhenFull"]


class RefusedOnlyWhenFull(TableSpec):
    """A new row is answered REGION_FULL exactly if as many slots are given out as its region has,
    and it has no overflow region, or that one has no geometry, other ``row_bytes``, is not OPEN
    with the same epoch, or has given out all its slots too. Slots are those of ``obs_alloc`` up to
    three cycles before the answer. User: a bank keeps its epoch until it is FREE, and becomes FREE
    when what was asked before is answered (purge); an overflow region is one of the regions."""

    def build(self, m):
        cfg = self._cfg
        self.table(m)
        dut = self.dut
        region, bank = self.constant(cfg.region_width, "region"), self.constant(1, "bank")
        own = self.region(region)
        other = self.region(own.overflow)
        self.suppose(
            "regions exist",
            (region < cfg.regions)
            & Cat(each.p.region < cfg.regions for each in dut.i_request).all(),
        )
        self.suppose(
            "overflow regions exist",
            Cat(each.overflow < cfg.regions for each in self.regions).all(),
        )
        state = data.StructLayout({"state": 2, "epoch": 4})
        banks = {
            name: self._bank(m, name, number, bank, state)
            for name, number in (("own", region), ("other", own.overflow))
        }
        mine, there = banks["own"], banks["other"]
        req, who, open_, ahead, answer = self.follow(m)
        seen_state = state(self.past(there["state"], "other_before"))
        usable = Signal()
        full = Signal()
        m.d.comb += [
            usable.eq(
                own.overflow_en
                & other.valid
                & (other.row_bytes == own.row_bytes)
                & (seen_state.state == RegionState.OPEN)
                & (seen_state.epoch == mine["state"].epoch)
                & (there["slots"] < other.capacity)
            ),
            full.eq((mine["slots"] >= own.capacity) & ~usable),
        ]
        one_ago = self.past(full, "full_one")
        ours = same(req, region=region, bank=bank) & ~req.translate
        self.always(
            "full when it is full",
            (dut.reply.reason == Reason.REGION_FULL) == self.past(one_ago, "full_two"),
            when=answer & ours,
        )
        told = answer & ours & (dut.reply.reason == Reason.REGION_FULL)
        self.reach("full, no overflow region", told & ~own.overflow_en)
        self.reach(
            "both full",
            told & own.overflow_en & (there["slots"] == other.capacity) & (own.overflow != region),
        )
        self.reach(
            "other epoch",
            told
            & own.overflow_en
            & other.valid
            & (there["slots"] < other.capacity)
            & (there["state"].state == RegionState.OPEN)
            & (other.row_bytes == own.row_bytes),
        )
        self._lemmas(m, banks, req, who, open_, ahead, (full, one_ago), ours, region, bank, state)

    def _bank(self, m, name, number, bank, state):
        """A bank's environment, its state as its updates make it and the slots given out in it."""
        update, seen = self.dut.region_update, self.dut.obs_alloc
        opens = self.bank_of(m, number, bank, f"{name}: ")
        kept, slots, here = (
            Signal(state, name=f"{name}_state"),
            Signal(self._cfg.slot_width, name=f"{name}_slots"),
            Signal(name=f"{name}_here"),
        )
        ours = update.en & (update.region == number) & (update.bank == bank)
        with m.If(ours):
            m.d.sync += [
                kept.state.eq(update.state),
                kept.epoch.eq(update.epoch),
            ]
        free = update.state == RegionState.FREE
        self.suppose(
            f"{name}: epoch stays until FREE",
            update.epoch == kept.epoch,
            when=ours & ~free & (update.state != RegionState.OPEN),
        )
        self.suppose(
            f"{name}: FREE once all is answered",
            ~self.is_open & ~self.older.any(),
            when=ours & free,
        )
        m.d.comb += here.eq(
            seen.en
            & (Mux(seen.overflow, self.region(seen.region).overflow, seen.region) == number)
            & (seen.bank == bank)
        )
        m.d.sync += slots.eq(Mux(opens, 0, slots + here))
        return {
            "number": number,
            "state": kept,
            "slots": slots,
            "here": here,
            "is_open": self.is_open,
            "older": self.older,
        }

    def _lemmas(self, m, banks, req, who, open_, ahead, full, ours, region, bank, state):
        """Helper invariants: memories and what was read of them, and what the request has found so
        far."""
        cfg, dut, inside = self._cfg, self.dut, self.inside
        one, two, one_valid = inside.one, inside.two, inside.one_valid
        busy, target, pointer = inside.busy, inside.target, inside.pointers.r_data
        walks = {
            name: observe(getattr(inside, name)).walk for name in ("geometry", "states", "pointers")
        }
        found_state = inside.states.r_data
        at = self.stages(req, who, open_, ahead)
        own, mine = self.region(region), banks["own"]
        items, there = observe(inside.opened)
        self.lemma("opened filled in order", (there & (there + 1)) == 0)
        # At most 3 openings wait: the queue is empty when a request is granted or the overflow
        # region is read.
        at_most = Mux(
            busy == 2, 0b0, Mux(busy == 3, 0b1, Mux((busy == 0) & one_valid, 0b11, 0b111))
        )
        self.lemma("few openings wait", there <= Mux(dut.clearing, 0, at_most))
        self.lemma("moves in step 3", busy == 3, when=inside.moves)
        self.lemma(
            "target",
            (target == self.region(two.region).overflow) & self.region(two.region).overflow_en,
            when=one_of(busy, 1, 2),
        )
        for ram, depth in (
            ("geometry", cfg.regions),
            ("states", 2 * cfg.regions),
            ("pointers", 2 * cfg.regions),
        ):
            self.lemma(f"{ram} walked", walks[ram] <= depth)
        waits = one_of(busy, 1, 2)
        for name, each in banks.items():
            number, slots = each["number"], each["slots"] + each["here"]
            pending = Cat(
                there[n] & (item.region == number) & (item.bank == bank)
                for n, item in enumerate(items)
            ).any()
            at_one = one_valid & (one.region == number) & (one.bank == bank)
            at_two = waits & (two.region == number) & (two.bank == bank)
            found = (busy == 2) & (target == number) & (two.bank == bank)
            at_word = Cat(bank, number)
            word = pointer.shape()(peek(m, inside.pointers, at_word))
            kept = state(peek(m, inside.states, at_word))
            self.lemma(
                f"{name}: counted",
                word.slots == slots,
                when=(at_word < walks["pointers"]) & ~pending,
            )
            last_given = (slots != 0) & (slots >= self.region(number).capacity)
            self.lemma(
                f"{name}: counted full",
                word.full == last_given,
                when=(at_word < walks["pointers"]) & ~pending,
            )
            self.lemma(f"{name}: none yet", slots == 0, when=pending)
            self.lemma(
                f"{name}: clear",
                (slots == 0) & ~pending & ~each["is_open"] & (each["state"].as_value() == 0),
                when=dut.clearing,
            )
            self.lemma(
                f"{name}: state kept",
                kept.as_value() == each["state"].as_value(),
                when=at_word < walks["states"],
            )
            self.lemma(
                f"{name}: open", each["is_open"] == (each["state"].state == RegionState.OPEN)
            )
            self.lemma(f"{name}: older", each["older"] <= self.inflight)
            self.lemma(
                f"{name}: one is new",
                each["is_open"] | (each["older"] == self.inflight),
                when=at_one & ~one.translate,
            )
            self.lemma(
                f"{name}: two is new",
                each["is_open"] | (each["older"] + one_valid >= self.inflight),
                when=at_two & ~two.translate,
            )
            self.lemma(
                f"{name}: not opening",
                ~pending,
                when=(at_one & ~one.translate) | (at_two & ~two.translate),
            )
            self.lemma(
                f"{name}: read",
                same(pointer, slots=slots, full=last_given),
                when=(at_one & ~one.translate & (busy == 0)) | found,
            )
            self.lemma(
                f"{name}: state read",
                found_state.as_value() == each["state"].as_value(),
                when=(at_one & (busy == 0)) | found,
            )
            self.lemma(
                f"{name}: opened before",
                ~pending | ~(found_state.state == RegionState.OPEN),
                when=found,
            )
        self.lemma(
            "asked in its epoch", mine["is_open"] | (mine["older"] > ahead), when=open_ & ours
        )
        self.lemma(
            "epoch of one",
            found_state.epoch == mine["state"].epoch,
            when=at["one"] & ours & (busy == 0),
        )
        self.lemma(
            "goes elsewhere",
            same(inside, own_epoch=mine["state"].epoch, own_row_bytes=own.row_bytes)
            & (mine["slots"] + mine["here"] >= own.capacity),
            when=at["two"] & ours,
        )
        for stage, is_full in zip("ab", full, strict=True):
            self.lemma(
                f"full at {stage}",
                (getattr(inside, stage).reply.reason == Reason.REGION_FULL) == is_full,
                when=at[stage] & ours,
            )
