# SPDX-License-Identifier: Apache-2.0
"""Promises of the issue stage (``hub_rtl/slot_allocator/issue.py``)."""

from amaranth import Array, Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, blocked, moves, same
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import Reason
from hub_rtl.slot_allocator.issue import Issue
from hub_rtl.slot_allocator.records import REPLIES, Kind, slice_types_of

__all__ = ["BeatsFollowTheirWrite", "CommandsBecomeWritesOrRefusals"]


class _Issue(Spec):
    """The issue stage with free inputs; a command has a reason exactly if it is to be sunk."""

    def build(self, m):
        dut = Issue(self._cfg)
        m.submodules.dut = dut
        self.free_inputs(dut)
        command = dut.i_command
        self.suppose("kinds", command.p.kind <= Kind.SINK, when=command.valid)
        self.suppose(
            "reasons",
            (command.p.reason != Reason.OK) == (command.p.kind == Kind.SINK),
            when=command.valid,
        )
        self.suppose("victims only between commands", dut.filled, when=dut.victim_look)
        # The command that was taken and has not become anything yet.
        held = Signal()
        taken = Signal(command.p.shape())
        with m.If(command.ready):
            m.d.sync += [held.eq(command.valid), taken.eq(command.p)]
        self.lemma(
            "held",
            (inside := observe(dut)).held == held,
        )
        self.lemma(
            "taken",
            (inside.now.command == taken)
            & (inside.now.row == (taken.kind == Kind.ROW))
            & (inside.asks == ((taken.kind == Kind.ROW) & taken.fresh))
            & (taken.kind <= Kind.SINK)
            & ((taken.reason != Reason.OK) == (taken.kind == Kind.SINK)),
            when=held,
        )
        self.specify(m, dut, inside, taken, held, held & command.ready)

    def first_unit(self, command):
        """Where in its block a command's packet begins, in units of 16 bytes."""
        own, body = slice_types_of(self._cfg), command.body
        plain, row = data.View(own.plain_body, body).addr16, data.View(own.row_body, body).row_off
        return Mux(command.kind == Kind.PLAIN, plain, row)[: ceil_log2(self._cfg.packet_flits)]

    def span_parts(self, command):
        """Parts from the first to the last of a command's packet."""
        unit, shift = self.first_unit(command), ceil_log2(self._cfg.slice_bytes // 16)
        return ((unit + command.len - 1) >> shift) - (unit >> shift) + 1

    def in_block(self, command):
        """It has a span, which does not leave its block."""
        ends = self.first_unit(command) + command.len
        return (command.len != 0) & (ends <= self._cfg.packet_flits)


class CommandsBecomeWritesOrRefusals(_Issue):
    """Every command becomes, in the cycle after it leaves, exactly one write or one refusal, and
    nothing else becomes one. A row's write goes to the address of its answer plus row_off, rounded
    down to a beat, in its place and group, with a beat for each part of its span; a fresh command
    takes the next answer in order, every other one that which was
    kept in its entry; a refusal names the packet, its exact bytes and its reason, and reports a row
    refused by the table with its first packet only, any other not twice in a row. ``victim`` shows
    the entry. User: at most ``REPLIES`` answers wait; an entry is used after it was filled."""

    def specify(self, m, dut, inside, command, held, fire):
        cfg, write, refused = self._cfg, dut.o_write, dut.o_refused
        own = slice_types_of(cfg)
        self.suppose(
            "a span in its block", self.in_block(dut.i_command.p), when=dut.i_command.valid
        )
        level = Signal(range(REPLIES + 1))
        m.d.sync += level.eq(level + dut.reply_en - dut.alloc_taken)
        self.suppose("answers fit", level < REPLIES, when=dut.reply_en)

        # One arbitrary answer, and one arbitrary entry with the answer kept in it.
        pick = Signal()
        marked = Signal()
        open_ = Signal()
        ahead = Signal(range(REPLIES + 1))
        answer = Signal(dut.reply.shape())
        self.free(pick)
        begins = dut.reply_en & pick & ~marked
        at_once, later = begins & (level == 0), open_ & (ahead == 0)
        with m.If(begins):
            m.d.sync += [
                marked.eq(1),
                answer.eq(dut.reply),
                ahead.eq(level - dut.alloc_taken),
                open_.eq(~(dut.alloc_taken & (level == 0))),
            ]
        with m.Elif(dut.alloc_taken & open_):
            m.d.sync += [
                ahead.eq(ahead - 1),
                open_.eq(ahead != 0),
            ]
        used = dut.alloc_taken & (at_once | later)
        index = self.constant(len(command.index), "index")
        filled = Signal()
        entry = Signal(dut.reply.shape())
        row = Signal(dut.reply.shape())
        known = Signal()
        m.d.comb += row.eq(Mux(command.fresh, Mux(later, answer, dut.reply), entry))
        m.d.comb += known.eq(Mux(command.fresh, used, filled & (command.index == index)))
        with m.If(
            fire
            & (command.kind == Kind.ROW)
            & command.fresh
            & command.install
            & (command.index == index)
        ):
            m.d.sync += [
                filled.eq(used),
                entry.eq(row),
            ]
        self.suppose(
            "entry filled", dut.i_command.p.index < own.rat_entries, when=dut.i_command.valid
        )

        is_row, sink = command.kind == Kind.ROW, command.kind == Kind.SINK
        good, bad = known & (row.reason == Reason.OK), known & (row.reason != Reason.OK)
        was = {
            name: self.past(value, f"was_{name}")
            for name, value in {
                "fire": fire,
                "write": blocked(write),
                "refused": blocked(refused),
                "row": fire & is_row & good,
                "full": fire & is_row & bad,
                "plain": fire & (command.kind == Kind.PLAIN),
                "sink": fire & sink,
            }.items()
        }
        before = data.View(command.shape(), self.past(command, "command"))
        row_before = data.View(row.shape(), self.past(row, "row"))
        body, flat = data.View(own.row_body, before.body), data.View(own.plain_body, before.body)
        context = write.p.context
        self.always(
            "answer taken by fresh rows", dut.alloc_taken == (fire & is_row & command.fresh)
        )
        self.always(
            "one of the two",
            (write.valid & ~was["write"]) ^ (refused.valid & ~was["refused"]),
            when=was["fire"],
        )
        self.always(
            "nothing of its own",
            ~(write.valid & ~was["write"]) & ~(refused.valid & ~was["refused"]),
            when=~was["fire"],
        )
        low = ceil_log2(cfg.slice_bytes)

        def aligned(unit):
            return Cat(Const(0, low), unit[low - 4 :])

        self.always(
            "row's address",
            write.valid & (write.p.addr == (row_before.addr + aligned(body.row_off))[:48]),
            when=was["row"],
        )
        self.always(
            "row's context",
            context.counted
            & ~context.plain
            & (context.region == body.region[: cfg.region_width])
            & (context.bank == body.epoch[0])
            & (context.place == row_before.place)
            & (context.group == row_before.group)
            & (context.src == 0)
            & ~context.phase,
            when=was["row"],
        )
        self.always(
            "plain address",
            write.valid & (write.p.addr == aligned(flat.addr16)),
            when=was["plain"],
        )
        self.always(
            "plain context",
            context.plain
            & (context.counted == before.counted)
            & (context.dep == before.dep)
            & (context.src == before.src[: cfg.rank_width])
            & (context.phase == flat.phase)
            & (
                context.group
                == Mux(
                    before.counted, (before.group_base + before.group_step)[: cfg.group_width], 0
                )
            ),
            when=was["plain"],
        )
        self.always(
            "length and bytes",
            (write.p.beats == self.span_parts(before))
            & (context.bytes == before.bytes)
            & (context.poison == before.poison),
            when=was["row"] | was["plain"],
        )
        self.always(
            "full row refused",
            refused.valid
            & refused.p.known
            & ~refused.p.plain
            & (refused.p.reason == row_before.reason)
            & (refused.p.report == before.fresh),
            when=was["full"],
        )
        windowed = before.reason == Reason.WINDOW
        self.always(
            "packet refused",
            refused.valid
            & (refused.p.reason == before.reason)
            & (refused.p.known == before.known)
            & (refused.p.plain == windowed),
            when=was["sink"],
        )
        refusal = was["full"] | was["sink"]
        self.always(
            "refused bytes",
            same(refused.p, bytes=before.bytes, src=before.src),
            when=refusal,
        )
        self.always(
            "refused phase",
            refused.p.phase == (was["sink"] & windowed & flat.phase),
            when=refusal,
        )
        named = was["full"] | was["sink"] & ~windowed
        self.always(
            "refused row named",
            same(refused.p, region=body.region, epoch=body.epoch, rowid=body.rowid),
            when=named,
        )
        # Reports: not twice in a row for one thing.
        thing = Cat(
            refused.p.plain, refused.p.src, refused.p.region, refused.p.epoch, refused.p.rowid
        )
        last = Signal(len(thing))
        some = Signal()
        with m.If(refused.valid & ~was["refused"]):
            m.d.sync += [
                last.eq(thing),
                some.eq(1),
            ]
        self.always("report once", refused.p.report == ~(some & (last == thing)), when=was["sink"])
        self.always(
            "victim is the entry",
            dut.victim == entry,
            when=filled & self.past(dut.victim_look & (dut.victim_index == index), "looked"),
        )
        self.always(
            "idle is empty",
            ~(dut.i_command.valid | held | write.valid | refused.valid | dut.o_data.valid),
            when=dut.idle,
        )
        self.always("filled is empty", dut.filled == ~(dut.i_command.valid | held))
        self.reach("kept entry used", was["row"] & ~before.fresh)
        self._remember(m, inside, dut, level, open_, ahead, answer)
        self.lemma("entry kept", peek(m, inside.rows, index) == entry.as_value(), when=filled)
        self.lemma(
            "entry read",
            inside.rows.r_data == entry,
            when=held & is_row & ~command.fresh & (command.index == index) & filled,
        )
        self.lemma("parts", inside.now.beats == self.span_parts(command), when=held)
        named = data.View(own.row_body, command.body)
        shown = (command.reason != Reason.WINDOW) & (command.kind != Kind.PLAIN)
        self.lemma(
            "whose",
            same(
                inside.whom,
                plain=command.reason == Reason.WINDOW,
                src=command.src,
                region=Mux(shown, named.region, 0),
                epoch=Mux(shown, named.epoch, 0),
                rowid=Mux(shown, named.rowid, 0),
            ),
            when=held,
        )
        fresh = refused.valid & ~self.past(blocked(refused), "refusal_waits")
        self.lemma(
            "compared",
            inside.repeated == (inside.some & (inside.last == inside.whom)),
            when=held & ~fresh,
        )
        self.lemma("last refused", thing == last, when=some & ~fresh)
        self.lemma("some refused", inside.some == (some | fresh))

    def _remember(self, m, inside, dut, level, open_, ahead, answer):
        """Helper invariants: where the answer waits."""
        out, queue = inside.replies.o, observe(inside.replies)
        head, stored = queue.head, queue.stored

        def place(at):
            return Mux(at < REPLIES, at, at - REPLIES)[: len(head)]

        self.lemma("level", (level == stored + out.valid) & (level <= REPLIES))
        self.lemma(
            "queue",
            (queue.tail == place(head + stored))
            & (head < REPLIES)
            & (out.valid | (stored == 0))
            & (queue.some == (stored != 0))
            & (queue.room == (stored != REPLIES)),
        )
        self.lemma(
            "answer at the output", out.p.as_value() == answer.as_value(), when=open_ & (ahead == 0)
        )
        self.lemma(
            "answer waits",
            peek(m, queue.ram, place((head + ahead - 1).as_unsigned())) == answer.as_value(),
            when=open_ & (ahead != 0),
        )
        self.lemma("answer ahead", ahead < level, when=open_)


class BeatsFollowTheirWrite(_Issue):
    """The pieces of each packet in order: each becomes one beat, the one with the number of its
    part, counted from that of the first, with its data and strobes, ``last`` on the last; a beat
    without strobes stands for each part that does not come. The pieces of a refused packet are
    taken and leave nothing. A piece is taken only for a command that left before."""

    def specify(self, m, dut, inside, command, held, fire):
        beat, piece = dut.o_data, dut.i_piece
        take = moves(piece)
        ends = take & piece.p.last
        total = Signal(3)  # packets that left and whose pieces have not all come
        m.d.sync += total.eq(total + fire - ends)
        self.always("no piece without a packet", total != 0, when=take)
        self.always("no beat without a packet", total != 0, when=beat.valid)

        # One arbitrary packet. Its kind is told by what its command became.
        pick = Signal()
        marked = Signal()
        open_ = Signal()
        ahead = Signal.like(total)
        sink = Signal()
        just = Signal()
        kept = Signal()
        begun = Signal()
        first = Signal.like(piece.p.part)
        given = Signal.like(piece.p.part)
        self.free(pick)
        m.d.sync += just.eq(fire & pick & ~marked)
        refused = dut.o_refused.valid & ~self.past(blocked(dut.o_refused), "refusing")
        m.d.comb += sink.eq(Mux(just, refused, kept))
        m.d.sync += kept.eq(sink)
        with m.If(fire & pick & ~marked):
            m.d.sync += [marked.eq(1), open_.eq(1), ahead.eq(total - ends)]
        with m.Elif(open_ & ends):
            m.d.sync += [ahead.eq(ahead - 1), open_.eq(ahead != 0)]
        at = open_ & (ahead == 0)  # it is its turn
        mine = take & at
        with m.If(mine):
            m.d.sync += begun.eq(1)
            with m.If(~begun):
                m.d.sync += first.eq(piece.p.part)
        sent = moves(beat) & at
        with m.If(sent):
            m.d.sync += given.eq(given + 1)
        goes = mine & ~sink
        self.always(
            "beat",
            sent & same(beat.p, data=piece.p.data, strb=piece.p.strb, last=piece.p.last),
            when=goes,
        )
        number = piece.p.part - Mux(begun, first, piece.p.part)
        self.always("number", given == number[: len(given)], when=goes)
        self.always(
            "a part that did not come",
            begun & (beat.p.strb == 0) & ~beat.p.last,
            when=sent & ~mine,
        )
        self.always("refused leaves nothing", ~beat.valid, when=at & sink)
        self.always("sunk at once", piece.ready, when=at & sink & piece.valid)
        for name, happens in {
            "a hole": sent & ~mine,
            "last of four": goes & piece.p.last & (given == 3),
            "sunk": mine & sink & begun,
            "second in line": just & (ahead != 0),
        }.items():
            self.reach(name, happens)
        # Helper invariants: the jobs that wait, and where the packet is.
        items, full = observe(inside.jobs)
        self.lemma("jobs", (total == full[0] + full[1]) & (full[0] | ~full[1]))
        self.lemma("ahead", ahead < total, when=open_)
        self.lemma("its kind", Array(items)[ahead[0]].sink == sink, when=open_)
        self.lemma("inside", inside.inside == begun, when=at)
        self.lemma("inside one", total != 0, when=inside.inside)
        self.lemma("begun in turn", at, when=begun & open_)
        number = (first + given)[: len(first)]
        self.lemma("its number", inside.part == number, when=at & begun & ~sink)
        self.lemma("nothing yet", given == 0, when=~begun)
        self.lemma("not before", ~begun, when=~marked)
        self.lemma("one", marked, when=open_ | just)
        self.lemma("at first", open_ & ~begun, when=just)
