# SPDX-License-Identifier: Apache-2.0
"""Promises of the checks of packets (``hub_rtl/slot_allocator/row_check.py``,
``hub_rtl/slot_allocator/plain_check.py``)."""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.slot_allocator.plain_check import PlainCheck
from hub_rtl.slot_allocator.range_ring import RangeRing
from hub_rtl.slot_allocator.records import EPOCH_NEVER, RANGE_STEPS, slice_types_of
from hub_rtl.slot_allocator.row_check import RowCheck

__all__ = ["PlainPacketsAreCheckedExactly", "RangesAreShownInTurn", "RowPacketsAreCheckedExactly"]


class RowPacketsAreCheckedExactly(Spec):
    """For any region: ``reason``, ``known`` two cycles after ``look``, ``row_bytes`` one cycle
    after it, and ``alive`` one cycle after ``look`` or ``look_bank``, are those of the region's
    last geometry and of its banks' last updates, checked in the documented order. User: nothing is
    looked at or written while clearing; body and length hold for the cycle after ``look``."""

    def build(self, m):
        cfg, dut = self._cfg, RowCheck(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        number = self.constant(cfg.region_width, "region")
        self.suppose("region exists", number < cfg.regions)
        write, update, body = dut.geometry_write, dut.region_update, dut.body
        look = dut.look | dut.look_bank
        self.suppose("nothing while clearing", ~(write.en | update.en | look), when=dut.clearing)
        looked = self.past(dut.look, "looked")
        self.suppose(
            "fields hold",
            (body.as_value() == self.past(body)) & (dut.len == self.past(dut.len)),
            when=looked,
        )

        # The region as its writes and updates make it, and as a check that starts in this cycle
        # sees it.
        view = data.StructLayout(
            {"valid": 1, "row_bytes": cfg.row_bytes_width, "row_first": 24, "row_span": 25}
        )
        bank = data.StructLayout({"state": 2, "epoch": 4})
        geometry, geometry_now = Signal(view), Signal(view)
        banks = [Signal(bank, name=f"bank{n}", init={"epoch": EPOCH_NEVER + n}) for n in range(2)]
        banks_now = [Signal(bank, name=f"bank{n}_now") for n in range(2)]
        m.d.comb += geometry_now.eq(geometry)
        with m.If(write.en & (write.region == number)):
            m.d.comb += [geometry_now[name].eq(write.geometry[name]) for name, _ in view]
        m.d.sync += geometry.eq(geometry_now)
        for n in range(2):
            m.d.comb += banks_now[n].eq(banks[n])
            with m.If(update.en & (update.region == number) & (update.bank == n)):
                m.d.comb += [
                    banks_now[n].state.eq(update.state),
                    banks_now[n].epoch.eq(update.epoch),
                ]
            m.d.sync += banks[n].eq(banks_now[n])

        epoch = Mux(dut.look, body.epoch, dut.epoch)
        now = Signal(bank)
        m.d.comb += now.eq(Mux(epoch[0], banks_now[1], banks_now[0]))
        ahead, alive, early, unknown = Signal(4), Signal(), Signal(), Signal()
        place = Signal(range(-(1 << 24), 1 << 24))
        m.d.comb += [
            ahead.eq(epoch - now.epoch),
            alive.eq((now.state == RegionState.OPEN) & (ahead == 0)),
            early.eq((ahead >= 1) & (ahead <= 7)),
            place.eq(body.rowid - geometry_now.row_first),
            unknown.eq((body.region >= cfg.regions) | ~geometry_now.valid),
        ]
        reason = Signal(4)
        with m.If(unknown):
            m.d.comb += reason.eq(Reason.UNKNOWN)
        with m.Elif(~alive):
            m.d.comb += reason.eq(Mux(early, Reason.EPOCH_EARLY, Reason.EPOCH_STALE))
        with m.Elif((body.row_off + dut.len) * 16 > geometry_now.row_bytes):
            m.d.comb += reason.eq(Reason.ROW_OVERRUN)
        with m.Elif((place < 0) | (place >= geometry_now.row_span)):
            m.d.comb += reason.eq(Reason.ROW_RANGE)

        answer = data.StructLayout(
            {"valid": 1, "reason": 4, "known": 1, "row_bytes": cfg.row_bytes_width}
        )
        one, two = Signal(answer), Signal(answer)
        mine = Mux(dut.look, body.region >= cfg.regions, 0) | (
            Mux(dut.look, body.region, dut.region) == number
        )
        with m.If(dut.look):
            m.d.sync += [
                one.valid.eq(mine),
                one.reason.eq(reason),
                one.known.eq(~unknown),
                one.row_bytes.eq(geometry_now.row_bytes),
            ]
        with m.If(looked):
            m.d.sync += two.eq(one)
        bank_mine, bank_alive = Signal(), Signal()
        with m.If(look):
            m.d.sync += [
                bank_mine.eq(Mux(dut.look, body.region, dut.region) == number),
                bank_alive.eq(alive),
            ]
        self.always("reason exact", dut.reason == two.reason, when=two.valid)
        self.always("refused exact", dut.refused == (two.reason != Reason.OK), when=two.valid)
        self.always("known exact", dut.known == two.known, when=two.valid)
        self.always(
            "row bytes exact",
            dut.row_bytes == one.row_bytes,
            when=one.valid & (one.reason != Reason.UNKNOWN),
        )
        self.always("alive exact", dut.alive == bank_alive, when=bank_mine)
        for each in (
            Reason.OK,
            Reason.UNKNOWN,
            Reason.EPOCH_EARLY,
            Reason.EPOCH_STALE,
            Reason.ROW_OVERRUN,
            Reason.ROW_RANGE,
        ):
            self.reach(f"{each.name}", two.valid & (dut.reason == each))

        # Helper invariants: memory words are the region's values; epochs are kept relative to
        # EPOCH_NEVER.
        kept_view = inside.views.r_data.shape()(peek(m, inside.views, number))
        walks = {name: observe(getattr(inside, name)).walk for name in ("views", "states")}
        self.lemma(
            "geometry kept",
            Cat(
                kept_view[name] == geometry[name] for name in ("valid", "row_bytes", "row_first")
            ).all()
            & (kept_view.row_behind == geometry.row_first + geometry.row_span),
            when=number < walks["views"],
        )
        self.lemma("geometry untouched", geometry.as_value() == 0, when=dut.clearing)
        for n in range(2):
            kept = bank(peek(m, inside.states, Cat(Const(n, 1), number)))
            self.lemma(
                f"bank {n} kept",
                (kept.state == banks[n].state) & (kept.epoch == banks[n].epoch ^ (EPOCH_NEVER + n)),
                when=Cat(Const(n, 1), number) < walks["states"],
            )
            self.lemma(
                f"bank {n} untouched",
                (banks[n].state == 0) & (banks[n].epoch == EPOCH_NEVER + n),
                when=dut.clearing,
            )
        for ram, depth in (("views", cfg.regions), ("states", 2 * cfg.regions)):
            self.lemma(f"{ram} walked", walks[ram] <= depth)


class PlainPacketsAreCheckedExactly(Spec):
    """For any source rank: three cycles after ``look``, ``allowed`` says that the whole packet lies
    in the rank's window; ``counted``, ``dep`` and the group, ``group_base + group_step``, are those
    of the lowest armed range that holds its address. User: nothing while clearing; all ranges are
    shown in turn; the packet's fields and the ranges hold for three cycles after ``look``."""

    def build(self, m):
        cfg, dut = self._cfg, PlainCheck(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        rank, write = self.constant(cfg.rank_width, "rank"), dut.window_write
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("nothing while clearing", ~(write.en | dut.look), when=dut.clearing)
        own = slice_types_of(cfg)
        ranges, step = (
            Signal(data.ArrayLayout(own.range, cfg.dep_ranges)),
            Signal(range(RANGE_STEPS)),
        )
        self.free(ranges)
        m.d.sync += step.eq(Mux(step == RANGE_STEPS - 1, 0, step + 1))
        self.suppose("ranges in turn", dut.show.step == step)
        for n in range(RANGE_STEPS * own.range_places):
            shown, turn = dut.show.ranges[n % own.range_places], step == n // own.range_places
            if n < cfg.dep_ranges:
                self.suppose(
                    f"range {n} shown", shown.as_value() == ranges[n].as_value(), when=turn
                )
            else:
                self.suppose(f"no range {n}", ~shown.armed, when=turn)
        fields = Cat(dut.src, dut.addr16, dut.len, ranges)
        since = Signal(2)  # cycles since look while the fields hold, 0: none
        same = fields == self.past(fields, "fields")
        self.suppose("fields hold", same, when=since != 0)
        with m.If(dut.look):
            m.d.sync += since.eq(1)
        with m.Elif((since != 0) & (since != 3)):
            m.d.sync += since.eq(since + 1)
        with m.Elif(since == 3):
            m.d.sync += since.eq(0)
        window, now, seen = (
            Signal(dut.window_write.window.shape(), name=name) for name in ("window", "now", "seen")
        )
        mine, nobody = Signal(), Signal()
        m.d.comb += now.eq(Mux(write.en & (write.rank == rank), write.window, window))
        m.d.sync += window.eq(now)
        with m.If(dut.look):
            m.d.sync += [
                seen.eq(now),
                mine.eq(dut.src == rank),
                nobody.eq(dut.src >= cfg.ranks),
            ]
        addr, end = Cat(Const(0, 4), dut.addr16), Cat(Const(0, 4), dut.addr16 + dut.len)
        self.always(
            "allowed exact",
            dut.allowed == ((seen.base <= addr) & (end <= seen.limit)),
            when=(since == 3) & mine,
        )
        self.always("no rank, no window", ~dut.allowed, when=(since == 3) & nobody)
        holds, dep, first = Signal(), Signal(cfg.dep_width), Signal(ranges[0].shape())
        for n in reversed(range(cfg.dep_ranges)):
            each = ranges[n]
            with m.If(each.armed & (each.base <= addr) & (addr < each.limit)):
                m.d.comb += [
                    holds.eq(1),
                    dep.eq(n),
                    first.eq(each),
                ]
        place = Signal(48)
        m.d.comb += place.eq(addr - first.base)
        group = ((place >> first.log2_stride) + first.group_base)[: cfg.group_width]
        self.always("counted exact", dut.counted == holds, when=since == 3)
        self.always("range exact", dut.dep == dep, when=since == 3)
        self.always(
            "group exact",
            (dut.group_base + dut.group_step)[: cfg.group_width] == group,
            when=(since == 3) & holds,
        )
        self.reach("inside the window", (since == 3) & mine & dut.allowed)
        self.reach("second range", (since == 3) & dut.counted & (dut.dep == 1))
        # Helper invariants: the memory word is the rank's window.
        self.lemma("window read", inside.windows.r_data == seen, when=(since != 0) & mine)
        self.lemma("rank judged", inside.is_rank == ~nobody, when=(since != 0) & nobody)
        self.lemma(
            "window judged",
            (inside.above == (seen.base <= addr)) & (inside.below == (end <= seen.limit)),
            when=(since >= 2) & mine,
        )
        word, walk = peek(m, inside.windows, rank), observe(inside.windows).walk
        self.lemma("window kept", word == window.as_value(), when=rank < walk)
        self.lemma("window untouched", window.as_value() == 0, when=dut.clearing)
        self.lemma("walked", walk <= cfg.ranks)


class RangesAreShownInTurn(Spec):
    """Each dependency range is shown once in any three cycles, in its place of its step, as it was
    written up to two cycles before. Places behind the last range are not armed. User: ranges exist;
    nothing is written while clearing."""

    def build(self, m):
        cfg, dut = self._cfg, RangeRing(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        own, write, show = slice_types_of(cfg), dut.dep_write, dut.show
        self.suppose("range exists", write.index < cfg.dep_ranges, when=write.en)
        self.suppose("nothing while clearing", ~write.en, when=dut.clearing)
        index, kept = self.constant(cfg.dep_width, "index"), Signal(own.range)
        self.suppose("a range", index < cfg.dep_ranges)
        with m.If(write.en & (write.index == index)):
            m.d.sync += [kept[name].eq(write.range[name]) for name, _ in own.range]
        ready = ~self.past(self.past(dut.clearing, "cleared"), "cleared_before") & self.past(
            self.started, "started_before"
        )
        before = self.past(kept, "before")
        for n in range(RANGE_STEPS * own.range_places):
            there = ready & (show.step == n // own.range_places)
            if n < cfg.dep_ranges:
                self.always(
                    f"range {n} as written",
                    show.ranges[n % own.range_places].as_value() == before,
                    when=there & (index == n),
                )
            else:
                self.always(f"no range {n}", ~show.ranges[n % own.range_places].armed, when=there)
        ram, step, shown = inside
        self.always(
            "in turn",
            show.step
            == Mux(self.past(show.step, "step") == RANGE_STEPS - 1, 0, self.past(show.step) + 1),
            when=ready & self.past(ready, "was_ready"),
        )
        self.reach("a range shown", ready & show.ranges[0].armed)
        # Helper invariants: steps on their way; memory words.
        self.lemma(
            "steps",
            (step < RANGE_STEPS) & (step == Mux(shown == RANGE_STEPS - 1, 0, shown + 1)),
            when=self.started,
        )
        self.lemma("step begins", step == 0, when=~self.started)
        self.lemma(
            "steps shown",
            shown == Mux(show.step == RANGE_STEPS - 1, 0, show.step + 1),
            when=self.past(self.started, "running"),
        )
        walk = observe(ram).walk
        self.lemma("walked", walk <= RANGE_STEPS)
        self.lemma("untouched", kept.as_value() == 0, when=dut.clearing)
        for n in range(RANGE_STEPS * own.range_places):
            at, place = n // own.range_places, n % own.range_places
            word = ram.r_data.shape()(peek(m, ram, at))[place]
            read = ram.r_data[place]
            if n < cfg.dep_ranges:
                self.lemma(
                    f"range {n} kept",
                    word.as_value() == kept.as_value(),
                    when=(index == n) & (at < walk),
                )
                self.lemma(
                    f"range {n} read",
                    read.as_value() == kept.as_value(),
                    when=(index == n)
                    & (shown == at)
                    & ~self.past(dut.clearing, "was_clearing")
                    & self.started,
                )
            else:
                self.lemma(f"no range {n} kept", ~word.armed, when=at < walk)
                self.lemma(
                    f"no range {n} read",
                    ~read.armed,
                    when=(shown == at) & ~self.past(dut.clearing, "was_clearing") & self.started,
                )
