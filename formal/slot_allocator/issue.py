# SPDX-License-Identifier: Apache-2.0
"""Promises of the issue stage (``hub_rtl/slot_allocator/issue.py``)."""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from formal.kit.inside import observe, peek
from formal.kit.spec import Spec, blocked, moves, same
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
        self.specify(m, dut, observe(dut))


class CommandsBecomeWritesOrRefusals(_Issue):
    """Every command becomes, in the cycle after it is taken, exactly one write or one refusal, and
    nothing else becomes one. A row's write goes to the address of its answer plus row_off, in its
    place and group; a fresh command takes the next answer in order, every other one that which was
    kept in its entry; a refusal names the packet, its exact bytes and its reason, and reports a row
    refused by the table with its first packet only, any other not twice in a row. ``victim`` shows
    the entry. User: at most ``REPLIES`` answers wait; an entry is used after it was filled."""

    def specify(self, m, dut, inside):
        cfg, command, write, refused = self._cfg, dut.i_command.p, dut.o_write, dut.o_refused
        own = slice_types_of(cfg)
        fire = moves(dut.i_command)
        level = Signal(range(REPLIES + 1))
        m.d.sync += level.eq(level + dut.reply_en - dut.alloc_taken)
        self.suppose("answers fit", level < REPLIES, when=dut.reply_en)
        self.suppose("victims only between commands", ~dut.i_command.valid, when=dut.victim_look)

        # One arbitrary answer, and one arbitrary entry with the answer kept in it.
        pick, marked, open_, ahead = Signal(), Signal(), Signal(), Signal(range(REPLIES + 1))
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
        index, filled, entry = (
            self.constant(len(command.index), "index"),
            Signal(),
            Signal(dut.reply.shape()),
        )
        row, known = Signal(dut.reply.shape()), Signal()
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
        self.suppose("entry filled", command.index < own.rat_entries, when=dut.i_command.valid)

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
        self.always(
            "row's address",
            write.valid & (write.p.addr == (row_before.addr + body.row_off * 16)[:48]),
            when=was["row"],
        )
        self.always(
            "row's context",
            context.counted
            & ~context.plain
            & (context.region == body.region[: cfg.region_width])
            & (context.bank == body.epoch[0])
            & (context.place == row_before.place)
            & (context.group == row_before.group),
            when=was["row"],
        )
        self.always(
            "plain address",
            write.valid & (write.p.addr == Cat(Const(0, 4), flat.addr16)),
            when=was["plain"],
        )
        self.always(
            "plain context",
            context.plain
            & (context.counted == before.counted)
            & (context.dep == before.dep)
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
            (write.p.beats == before.len)
            & (context.bytes == before.bytes)
            & (context.poison == (before.poison | self.past(dut.i_end.p, "end"))),
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
        last, some = Signal(len(thing)), Signal()
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
            ~(dut.i_command.valid | write.valid | refused.valid | dut.o_data.valid),
            when=dut.idle,
        )
        self.always("end with command", moves(dut.i_end), when=fire)
        self.always("one end each", fire, when=moves(dut.i_end))
        self.reach("kept entry used", was["row"] & ~before.fresh)
        self._lemmas(
            m, inside, dut, level, open_, ahead, answer, index, filled, entry, last, some, thing
        )

    def _lemmas(
        self, m, inside, dut, level, open_, ahead, answer, index, filled, entry, last, some, thing
    ):
        """Helper invariants: where the answer waits, what the entry holds, what was refused
        last."""
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
        self.lemma("entry kept", peek(m, inside.rows, index) == entry.as_value(), when=filled)
        command, known, asks = dut.i_command.p, inside.known, inside.asks
        row = command.kind == Kind.ROW
        self.lemma(
            "entry read",
            inside.rows.r_data == entry,
            when=known & row & (command.index == index) & filled,
        )
        self.lemma(
            "decoded",
            dut.i_command.valid
            & (known ^ asks)
            & (asks == (row & command.fresh))
            & (inside.keeps == (asks & command.install))
            & (inside.is_row == row)
            & (inside.is_sink == (command.kind == Kind.SINK))
            & (inside.is_fresh == command.fresh),
            when=known | asks,
        )
        self.lemma(
            "compared",
            inside.repeated == (inside.some & (inside.last == inside.whom)),
            when=known | asks,
        )
        fresh = dut.o_refused.valid & ~self.past(blocked(dut.o_refused), "refusal_waits")
        self.lemma("last refused", thing == last, when=some & ~fresh)
        self.lemma("some refused", inside.some == (some | fresh))


class BeatsFollowTheirWrite(_Issue):
    """The pieces of each packet in order: mask flits, then ``len`` payload flits, each of which
    becomes one beat with its data, ``last`` on the last; strobes are all bytes, or the mask's bits
    of that unit of the block, or none for an ``err`` flit or mask. The pieces of a refused packet
    are taken and leave nothing. A piece is taken only for a command taken before.

    User: packets have at least one payload flit and do not leave their block."""

    def specify(self, m, dut, inside):
        cfg, command, beat, piece = self._cfg, dut.i_command.p, dut.o_data, dut.i_piece
        self.suppose(
            "some payload",
            (command.len != 0) & (command.len <= cfg.packet_flits),
            when=dut.i_command.valid,
        )
        fire, take = moves(dut.i_command), moves(piece)
        own = slice_types_of(cfg)
        body = data.View(own.row_body, command.body)
        flat = data.View(own.plain_body, command.body)
        size = Signal(6)
        m.d.comb += size.eq(command.len + Mux(command.masked, cfg.mask_flits, 0))
        total = Signal(8)  # pieces of the commands taken that have not come yet
        m.d.sync += total.eq(total + Mux(fire, size, 0) - take)
        self.always("no piece without a command", total != 0, when=take)

        # One arbitrary packet. Its kind is told by what its command became.
        pick, marked, open_, ahead, done = Signal(), Signal(), Signal(), Signal(8), Signal(6)
        masked, length, unit = Signal(), Signal(5), Signal(range(cfg.packet_flits))
        mask, sink, just = Signal(128 * cfg.mask_flits), Signal(), Signal()
        self.free(pick)
        m.d.sync += just.eq(fire & pick & ~marked)
        with m.If(fire & pick & ~marked):
            m.d.sync += [
                marked.eq(1),
                open_.eq(1),
                ahead.eq(total - take),
                masked.eq(command.masked),
                length.eq(command.len),
                unit.eq(Mux(command.kind == Kind.ROW, body.row_off, flat.addr16)),
                done.eq(0),
            ]
        kept = Signal()
        became = Mux(
            just,
            dut.o_refused.valid & ~self.past(blocked(dut.o_refused), "refusing"),
            kept,
        )
        m.d.sync += kept.eq(became)
        m.d.comb += sink.eq(became)
        mine, masks = take & open_ & (ahead == 0), Mux(masked, cfg.mask_flits, 0)
        first = done < masks
        with m.If(take & open_):
            with m.If(ahead != 0):
                m.d.sync += ahead.eq(ahead - 1)
            with m.Else():
                m.d.sync += [
                    done.eq(done + 1),
                    open_.eq(done + 1 != masks + length),
                ]
                with m.If(first):
                    m.d.sync += mask.eq(Cat(mask, Mux(piece.p.err, 0, piece.p.data))[128:])
        at = (unit + (done - masks))[: len(unit)]
        strobe = Mux(piece.p.err, 0, Mux(masked, mask.word_select(at, 16), 0xFFFF))
        was = {
            name: self.past(value, f"was_{name}")
            for name, value in {
                "beat": mine & ~first & ~sink,
                "quiet": mine & (first | sink),
                "waits": blocked(beat),
                "take": take,
                "last": done + 1 == masks + length,
                "strobe": strobe,
                "data": piece.p.data,
            }.items()
        }
        self.always("beat", beat.valid & (beat.p.data == was["data"]), when=was["beat"])
        self.always("strobe", beat.p.strb == was["strobe"], when=was["beat"])
        self.always("last", beat.p.last == was["last"], when=was["beat"])
        self.always("no beat", ~beat.valid | was["waits"], when=was["quiet"] | ~was["take"])
        self.always("sunk at once", piece.ready, when=open_ & (ahead == 0) & sink & inside.active)
        for name, happens in {
            "masked last beat": was["beat"] & was["last"] & masked,
            "sunk": was["quiet"] & sink,
            "second in line": just & (ahead != 0),
        }.items():
            self.reach(name, happens)
        # Helper invariants: pieces left, and the packet's place.
        active, left, next_valid, job = (
            inside.active,
            inside.left,
            inside.next_valid,
            inside.next_job,
        )
        now = Mux(active, left + inside.masks, 0)
        then = Mux(next_valid, job.len + Mux(job.masked, cfg.mask_flits, 0), 0)
        self.lemma("total", total == now + then)
        self.lemma(
            "sizes",
            (left != 0) & (left <= cfg.packet_flits) & (inside.masks <= cfg.mask_flits),
            when=active,
        )
        self.lemma("job", (job.len != 0) & (job.len <= cfg.packet_flits), when=next_valid)
        waiting = open_ & (done == 0) & (ahead == now) & next_valid
        working = open_ & active & ~waiting
        self.lemma("somewhere", waiting | (active & (ahead == 0)), when=open_)
        self.lemma(
            "waiting",
            same(job, len=length, masked=masked, unit=unit, sink=sink),
            when=waiting,
        )
        self.lemma(
            "working",
            (ahead == 0)
            & (now == masks + length - done)
            & (inside.masks == Mux(first, masks - done, 0))
            & (inside.sink == sink)
            & (inside.plain_strb == ~masked)
            & (inside.unit == Mux(first, unit, at)),
            when=working,
        )
        self.lemma("mask", inside.mask == mask, when=working & ~first & masked)
        self.lemma("not done", done < masks + length, when=open_)
        self.lemma("known", masks + length <= cfg.packet_flits + cfg.mask_flits, when=open_)
        self.lemma("one", marked, when=open_ | just)
        self.lemma("fresh", open_ & (done == 0), when=just)
