# SPDX-License-Identifier: Apache-2.0
"""Promises of the flags in memory: of the flag writer (``hub_rtl/scoreboard/event_flags.py``) and
of the whole scoreboard."""

from amaranth import Cat, Signal, Value
from amaranth.hdl import Const
from amaranth.lib.data import View

from formal.kit.inside import known_word, observe, peek
from formal.kit.spec import Spec
from hub_rtl.contract.packets import EventKind, RegionOp
from hub_rtl.scoreboard.event_flags import EventFlags
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

__all__ = ["EachReadyHasItsFlag", "FlagsFollowTheirEvents"]


class _Flags(Spec):
    """A part with ``geometry_write`` and ``o_flag``."""

    def build(self, m):
        m.submodules.dut = self.dut = self.make()
        self.free_inputs(self.dut)
        self.promise(m)

    def follow(self, m, announced, event, writer):
        """Asserts that each READY ``event`` that is ``announced`` has its flag. ``writer``: the
        flag writer, for lemmas. Returns the number of flags made and not taken, and when the
        watched one is taken."""
        cfg, dut = self._cfg, self.dut
        write = dut.geometry_write
        ready = announced & (event.kind == EventKind.READY) & ~event.plain
        # An arbitrary region, and the other one: the tiny hub has two. What was written up to the
        # cycle before the event.
        region = self.constant(cfg.region_width, "region")
        mark = Signal()
        self.free(mark)
        base = [Signal(48, name=f"base_{n}") for n in (0, 1)]
        group_base = [Signal(cfg.group_width, name=f"first_{n}") for n in (0, 1)]
        enabled = [Signal(name=f"enabled_{n}") for n in (0, 1)]
        regions = (region, ~region[0])
        flagged = 0
        for n, each in enumerate(regions):
            with m.If(write.en & (write.region == each)):
                m.d.sync += [
                    base[n].eq(write.geometry.flag_base),
                    group_base[n].eq(write.geometry.group_base),
                    enabled[n].eq(write.geometry.flag_en),
                ]
            flagged = flagged | (ready & enabled[n] & (event.region == each))
        taken = dut.o_flag.valid & dut.o_flag.ready
        inside = Signal(3)
        ahead = Signal(3)
        watched = Signal()
        addr = Signal(48)
        data = Signal(64)
        m.d.sync += inside.eq(inside + flagged - taken)
        with m.If(~watched & mark & flagged & (event.region == region)):
            m.d.sync += [
                watched.eq(1),
                ahead.eq(inside - taken),
                data.eq(Cat(event.kind, event.epoch, event.rows)),
                addr.eq(base[0] + ((event.group - group_base[0])[: cfg.group_width] << 3)),
            ]
        with m.Elif(watched & taken):
            m.d.sync += [
                ahead.eq(ahead - 1),
                watched.eq(ahead != 0),
            ]
        shown = dut.o_flag.payload
        mine = taken & watched & (ahead == 0)
        self.owed("the flag of its event", (shown.addr == addr) & (shown.data == data), mine)
        self.owed("nothing else is a flag", inside != 0, dut.o_flag.valid)
        self.always("at most four wait", inside <= 4)
        empty = Signal(3)
        m.d.sync += empty.eq((empty + 1)[:3] & ((inside != 0) & ~dut.o_flag.valid).replicate(3))
        self.always("offered within three cycles", empty <= 2)
        self._held(self.owed, dut.o_flag, "o_flag")
        self._lemmas(
            observe(writer),
            ready,
            event,
            (regions, enabled, base, group_base),
            (inside, ahead, watched, addr, data),
        )
        return inside, mine

    def owed(self, name, holds, when):
        """As :meth:`always`."""
        self.always(name, holds, when)

    def _lemmas(self, writer, ready, event, tables, followed):
        """What the table, the register behind it and the queue hold."""
        inside, ahead, watched, addr, data = followed
        for n, (each, enabled, base, group_base) in enumerate(zip(*tables, strict=True)):
            word, known = known_word(self, writer.words, each, f"words_{n}")
            self.lemma(f"table {n}", word == Cat(enabled, base, group_base), when=known)
            self.lemma(f"nothing in the table {n}", ~enabled, when=~known)
        queue = writer.queue
        fifo = observe(queue).fifo
        ring = observe(fifo)
        first, last, shows = ring.first, ring.last, queue.o.valid
        depth, level = ring.memory.depth, queue.level - shows  # of the memory
        end = (first + level - depth * (first + level >= depth))[: len(last)]
        self.lemma("pointers", (first < depth) & (level <= depth) & (last == end) & (last < depth))
        self.lemma("in the register", writer.valid == ready)
        self.lemma(
            "what is in the register",
            (writer.group == event.group)
            & (writer.data == Cat(event.kind, event.epoch, event.rows)),
            when=ready,
        )
        self.lemma("all inside", inside == level + shows)
        expected = Cat(addr, data)
        position = Signal(4)
        self.m.d.comb += position.eq(ahead - shows)
        self.lemma("it is inside", ahead < inside, when=watched)
        place = first + position
        for n in range(depth):
            self.lemma(
                f"slot {n}",
                peek(self.m, fifo, n) == expected,
                when=watched
                & ((ahead != 0) | ~shows)
                & (position < level)
                & ((place == n) | (place == n + depth)),
            )
        shown = Value.cast(queue.o.payload)
        self.lemma("at the exit", shown == expected, when=watched & (ahead == 0) & shows)


class EachReadyHasItsFlag(_Flags):
    """Each READY of a region with flag_en makes one flag, in order, at flag_base + 8 * (group -
    group_base) with kind, epoch and rows of the event; nothing else makes one. None is lost while
    events are loaded only when there is room. (READYs of one arbitrary region are watched, the
    others come between them.)"""

    def make(self):
        return EventFlags(self._cfg)

    def promise(self, m):
        dut = self.dut
        self.suppose("events are loaded when there is room", dut.room, when=dut.loaded)
        self.suppose(
            "nothing comes while clearing", ~dut.loaded & ~dut.geometry_write.en, when=dut.clearing
        )
        event = View(dut.event.shape(), self.past(dut.event, "event"))
        inside, _ = self.follow(m, self.past(dut.loaded, "announced"), event, dut)
        self.always("room when nothing waits", dut.room, when=inside == 0)


class FlagsFollowTheirEvents(_Flags):
    """Of the whole scoreboard: each READY that begins to wait at ``o_event``, of a region whose
    geometry has flag_en, makes one flag at ``o_flag``, in order, at the flag_base + 8 * (group -
    group_base) of the geometry written last, with kind, epoch and rows of the event; nothing else
    makes one, and none is lost however long events and flags wait. A geometry comes only after the
    tables are clear. (One arbitrary region is watched, the other's come between.)"""

    def make(self):
        return ReadinessScoreboard(self._cfg)

    def promise(self, m):
        dut = self.dut
        self.suppose("no geometry while clearing", ~dut.geometry_write.en, when=dut.clearing)
        waited = self.past(dut.o_event.valid & ~dut.o_event.ready, "waited")
        inside = observe(dut)
        announced = dut.o_event.valid & ~waited
        _, mine = self.follow(m, announced, dut.o_event.payload, inside.flags)
        # Nothing can have become ready while the flag writer clears its table.
        age = Signal(3)
        depth = self._cfg.regions
        m.d.sync += age.eq(age + (age != 7))
        walk = observe(observe(inside.flags).words).walk
        self.lemma("walk", walk == (age & (age < depth).replicate(3)) + depth * (age >= depth))
        self.lemma("nothing is ready at first", ~inside.scan.loaded, when=age < 4)
        told = self._script(m)
        self.reach("a flag is taken", told & mine)
        self.reach("a flag waits", told & dut.o_flag.valid & ~dut.o_flag.ready)

    def owed(self, name, holds, when):
        """Without a cover of ``when``, which is too far away for a free search: the script leads
        there."""
        self.always(name, ~Value.cast(when).bool() | holds)

    def _script(self, m):
        """1 as long as the inputs did nothing but what makes a tile ready: a geometry with flags
        and rows of 16 bytes, an OPEN for it, and after its broadcast one acknowledgement of a
        row."""
        dut = self.dut
        write, command, ack = dut.geometry_write, dut.i_command, dut.i_ack[0]
        geometry, op = write.geometry, command.payload
        written, ordered, opened, acked, strayed = (
            Signal(name=name) for name in ("written", "ordered", "opened", "acked", "strayed")
        )
        m.d.sync += [
            written.eq(written | write.en),
            ordered.eq(ordered | (command.valid & command.ready)),
            opened.eq(opened | dut.o_region_update.en),
            acked.eq(acked | (ack.valid & ack.ready)),
        ]
        fields = {
            "valid": 1,
            "row_bytes": 16,
            "stride": 16,
            "capacity": 1,
            "group_base": 0,
            "log2_tile": 0,
            "expected": 1,
            "flag_en": 1,
            "overflow_en": 0,
            "row_first": 0,
            "row_span": 1,
        }
        quiet = ~Cat(
            *(port.valid for port in (*dut.i_ack[1:], dut.i_refused, dut.i_news)),
            dut.dep_write.en,
            dut.overlap.en,
            dut.purging,
            dut.quiescing,
            dut.timeout,
        ).any()
        steps = (
            (
                write.en,
                ~written & ~dut.clearing,
                (write.region == 0)
                & Cat(getattr(geometry, name) == value for name, value in fields.items()).all(),
            ),
            (
                command.valid,
                written & ~ordered,
                op == Const({"op": RegionOp.OPEN, "region": 0, "epoch": 0}, op.shape()),
            ),
            (
                ack.valid,
                opened & ~acked,
                (
                    ack.payload
                    == Const({"ok": 1, "context": {"counted": 1, "bytes": 16}}, ack.payload.shape())
                ),
            ),
        )
        as_told = Cat((happens == due) & (~happens | good) for happens, due, good in steps).all()
        m.d.sync += strayed.eq(strayed | ~(quiet & as_told))
        return ~strayed
