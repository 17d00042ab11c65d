# SPDX-License-Identifier: Apache-2.0
"""Promises of the checks of packets (``hub_rtl/slot_allocator/row_check.py``,
``hub_rtl/slot_allocator/plain_check.py``)."""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.slot_allocator.plain_check import PlainCheck
from hub_rtl.slot_allocator.range_table import RangeTable
from hub_rtl.slot_allocator.records import EPOCH_NEVER
from hub_rtl.slot_allocator.row_check import RowCheck

__all__ = ["PlainPacketsAreCheckedExactly", "RangesAreShown", "RowPacketsAreCheckedExactly"]


class RowPacketsAreCheckedExactly(Spec):
    """For any region: ``alive`` from the cycle after ``look`` or ``look_bank`` on, and ``reason``,
    ``known`` and ``row_bytes`` after the ``move`` that follows a ``look``, are those of the
    region's geometry and of its banks in the cycle of the look, checked in the documented order.
    User: nothing is looked at or written while clearing; the body is of the region and the epoch
    that were looked at."""

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
        said = Cat(dut.reason, dut.known, dut.row_bytes)
        stays = said == self.past(said, "said")
        self.always("stays until the next move", stays, when=self.started & ~self.past(dut.move))
        self.always("refused for a reason", dut.refused == (dut.reason != Reason.OK))
        # The region as its writes and updates make it, and as a check that starts in this cycle
        # sees it.
        view = data.StructLayout(
            {"valid": 1, "row_bytes": cfg.row_bytes_width, "row_first": 24, "row_span": 25}
        )
        bank = data.StructLayout({"state": 2, "epoch": 4})
        geometry = Signal(view)
        geometry_now = Signal(view)
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

        # What was looked at last, and what it was then.
        seen = Signal(view)
        seen_bank = Signal(bank)
        mine = Signal()  # it is the region's
        fresh = Signal()  # a packet was looked at
        region = Signal(cfg.region_width)
        epoch = Signal(4)
        with m.If(look):
            m.d.sync += [
                mine.eq(dut.region == number),
                fresh.eq(dut.look),
                region.eq(dut.region),
                epoch.eq(dut.epoch),
                seen_bank.eq(Mux(dut.epoch[0], banks_now[1], banks_now[0])),
            ]
        with m.If(dut.look):
            m.d.sync += seen.eq(geometry_now)
        self.suppose(
            "body is of what was looked at",
            (body.region[: cfg.region_width] == region) & (body.epoch == epoch),
            when=fresh,
        )
        ahead = Signal(4)
        alive = Signal()
        early = Signal()
        unknown = Signal()
        place = Signal(range(-(1 << 24), 1 << 24))
        m.d.comb += [
            ahead.eq(epoch - seen_bank.epoch),
            alive.eq((seen_bank.state == RegionState.OPEN) & (ahead == 0)),
            early.eq((ahead >= 1) & (ahead <= 7)),
            place.eq(body.rowid - seen.row_first),
            unknown.eq((body.region >= cfg.regions) | ~seen.valid),
        ]
        reason = Signal(4)
        with m.If(unknown):
            m.d.comb += reason.eq(Reason.UNKNOWN)
        with m.Elif(~alive):
            m.d.comb += reason.eq(Mux(early, Reason.EPOCH_EARLY, Reason.EPOCH_STALE))
        with m.Elif((body.row_off + dut.len) * 16 > seen.row_bytes):
            m.d.comb += reason.eq(Reason.ROW_OVERRUN)
        with m.Elif((place < 0) | (place >= seen.row_span)):
            m.d.comb += reason.eq(Reason.ROW_RANGE)

        answer = data.StructLayout(
            {"valid": 1, "reason": 4, "known": 1, "row_bytes": cfg.row_bytes_width}
        )
        two = Signal(answer)
        with m.If(dut.move):
            m.d.sync += [
                two.valid.eq(fresh & (mine | (body.region >= cfg.regions))),
                two.reason.eq(reason),
                two.known.eq(~unknown),
                two.row_bytes.eq(seen.row_bytes),
            ]
        self.always("reason exact", dut.reason == two.reason, when=two.valid)
        self.always("refused exact", dut.refused == (two.reason != Reason.OK), when=two.valid)
        self.always("known exact", dut.known == two.known, when=two.valid)
        self.always("row bytes exact", dut.row_bytes == two.row_bytes, when=two.valid & two.known)
        self.always("alive exact", dut.alive == alive, when=mine)
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
        read, read_bank = inside.views.r_data, inside.states.r_data
        self.lemma(
            "geometry read",
            Cat(read[name] == seen[name] for name in ("valid", "row_bytes", "row_first")).all()
            & (read.row_behind == seen.row_first + seen.row_span),
            when=mine & fresh,
        )
        kept_epoch = read_bank.epoch ^ Cat(epoch[0], Const(EPOCH_NEVER >> 1, 3))
        self.lemma(
            "bank read",
            (read_bank.state == seen_bank.state) & (kept_epoch == seen_bank.epoch),
            when=mine,
        )
        self.lemma("epoch looked for", inside.wanted == epoch)
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
    """For any source rank, of the packet that went in two moves before: ``allowed`` says that the
    whole packet lies in the rank's window; ``counted``, ``dep`` and the group, ``group_base +
    group_step``, are those of the lowest armed range that held its address when it went in. User:
    nothing while clearing; a packet that goes in is looked at."""

    def build(self, m):
        cfg, dut = self._cfg, PlainCheck(self._cfg)
        m.submodules.dut = dut
        inside = observe(dut)
        self.free_inputs(dut)
        rank, write = self.constant(cfg.rank_width, "rank"), dut.window_write
        self.suppose("rank exists", rank < cfg.ranks)
        self.suppose("nothing while clearing", ~(write.en | dut.look), when=dut.clearing)
        stays = dut.allowed == self.past(dut.allowed, "allowed_before")
        self.always("stays until the next move", stays, when=self.started & ~self.past(dut.move))
        self.suppose("goes in", dut.move, when=dut.look)
        window, now = (Signal(write.window.shape(), name=name) for name in ("window", "now"))
        m.d.comb += now.eq(Mux(write.en & (write.rank == rank), write.window, window))
        m.d.sync += window.eq(now)

        # The packet at each step.
        step = data.StructLayout(
            {
                "valid": 1,
                "mine": 1,
                "nobody": 1,
                "addr": 48,
                "end": 49,
                "window": write.window.shape(),
                "holds": 1,
                "dep": cfg.dep_width,
                "group": cfg.group_width,
            }
        )
        one = Signal(step)
        two = Signal(step)
        addr, end = Cat(Const(0, 4), dut.addr16), Cat(Const(0, 4), dut.addr16 + dut.len)
        with m.If(dut.move):
            m.d.sync += [
                two.eq(one),
                one.valid.eq(dut.look),
                one.mine.eq(dut.src == rank),
                one.nobody.eq(dut.src >= cfg.ranks),
                one.addr.eq(addr),
                one.end.eq(end),
                one.window.eq(now),
                one.holds.eq(0),
            ]
            for n in reversed(range(cfg.dep_ranges)):
                each = dut.ranges[n]
                with m.If(each.armed & (each.base <= addr) & (addr < each.limit)):
                    group = ((addr - each.base)[:48] >> each.log2_stride) + each.group_base
                    m.d.sync += [
                        one.holds.eq(1),
                        one.dep.eq(n),
                        one.group.eq(group),
                    ]
        inside_window = (two.window.base <= two.addr) & (two.end <= two.window.limit)
        self.always("allowed exact", dut.allowed == inside_window, when=two.valid & two.mine)
        self.always("no rank, no window", ~dut.allowed, when=two.valid & two.nobody)
        self.always("counted exact", dut.counted == two.holds, when=two.valid)
        self.always("range exact", dut.dep == two.dep, when=two.valid & two.holds)
        group = (dut.group_base + dut.group_step)[: cfg.group_width]
        self.always("group exact", group == two.group, when=two.valid & two.holds)
        self.reach("inside the window", two.valid & two.mine & dut.allowed)
        self.reach("second range", two.valid & dut.counted & (dut.dep == 1))
        # Helper invariants: the memory word is the rank's window; the step between.
        read = inside.windows.r_data.as_value() == one.window.as_value()
        self.lemma("window read", read, when=one.valid & one.mine)
        self.lemma("rank judged", inside.is_rank == ~one.nobody, when=one.valid)
        self.lemma(
            "address kept", (inside.addr == one.addr) & (inside.end == one.end), when=one.valid
        )
        found = inside.found
        group = (((one.addr - found.base)[:48] >> found.log2_stride) + found.group_base)[
            : cfg.group_width
        ]
        right = (found.armed == one.holds) & (~one.holds | (inside.dep == one.dep))
        self.lemma("range found", right, when=one.valid)
        self.lemma("group found", group == one.group, when=one.valid & one.holds)
        self.lemma("a rank", ~one.mine | ~one.nobody)
        word, walk = peek(m, inside.windows, rank), observe(inside.windows).walk
        self.lemma("window kept", word == window.as_value(), when=rank < walk)
        self.lemma("window untouched", window.as_value() == 0, when=dut.clearing)
        self.lemma("walked", walk <= cfg.ranks)


class RangesAreShown(Spec):
    """Each dependency range is shown from the cycle after it was written on, as it was written;
    none is armed before. User: ranges exist."""

    def build(self, m):
        cfg, dut = self._cfg, RangeTable(self._cfg)
        m.submodules.dut = dut
        self.free_inputs(dut)
        write = dut.dep_write
        self.suppose("range exists", write.index < cfg.dep_ranges, when=write.en)
        index = self.constant(cfg.dep_width, "index")
        kept = Signal(dut.ranges[0].shape())
        self.suppose("a range", index < cfg.dep_ranges)
        with m.If(write.en & (write.index == index)):
            m.d.sync += [kept[name].eq(write.range[name]) for name, _ in kept.shape()]
        for n in range(cfg.dep_ranges):
            shown = dut.ranges[n].as_value() == kept.as_value()
            self.always(f"range {n} as written", shown, when=index == n)
        self.reach("a range shown", dut.ranges[0].armed)
