# SPDX-License-Identifier: Apache-2.0
"""Lookup stage of a slice: decides what happens to each packet, one packet per cycle."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import CAUSE, REASON
from hub_rtl.contract.packets import Reason
from hub_rtl.contract.records import types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, select
from hub_rtl.parts.register_queue import RegisterQueue

from .judge import Judge
from .plain_check import PlainCheck
from .purge import Purge
from .rat import RowTags
from .records import REPLIES, Kind, WaitCause, fold_key, slice_types_of
from .row_check import RowCheck
from .row_counts import RowCounts
from .spill_filter import SpillFilter
from .spill_path import SpillPath
from .victim import VictimSearch

__all__ = ["RowPipe"]

#: What is known of a plain packet's dependency range.
GROUP = ("counted", "dep", "group_base", "group_step")


class RowPipeObserve(NamedTuple):
    """Parts, stages and wires of a :class:`RowPipe`; a proof may see them."""

    tags: RowTags
    counts: RowCounts
    spilled: SpillFilter
    rows: RowCheck
    plain: PlainCheck
    judge: Judge
    path: SpillPath
    search: VictimSearch
    purger: Purge
    asked: RegisterQueue  #: requests on their way out
    first: data.View  #: R1
    second: data.View  #: R2
    third: data.View  #: R3
    far: data.View  #: how the packet in R1 is related to that in R3
    near: data.View  #: how the packet in R2 is
    move: Signal  #: all go on
    take: Signal  #: a packet comes in
    place: Signal  #: the packet in R3 is of a row and not refused
    absent: Signal  #: and its row has no entry
    leave: Signal  #: the packet in R3 leaves
    missing: Signal  #: bytes that its row misses before it
    complete: Signal  #: and none after it
    unanswered: Signal  #: requests whose answer was not used


class RowPipe(wiring.Component):
    """Finds or installs the row of each packet and tells the issue stage what to do with it.

    A row packet is refused, or hits, or is new (an allocation is requested and its answer goes to
    the issue stage, nobody waits here). One packet per cycle, rows and plain ones in any mix, of
    any rows; 3 cycles from header to command:

    * R0, the packet at the input: the set of the RAT, its region, its window are read;
    * R1: tags are compared, geometry and state judged; the spill filter is read;
    * R2: what packets in front change is taken in; missing bytes and ages are read;
    * R3: hit, new or slow; counts are changed, the command goes.

    All stages move together, when the packet in R3 leaves or none is there. How a packet is related
    to the one that is leaving was compared a cycle before (:class:`Judge`).

    Slow, only with rows spilled or a full set: the packet stands in R3, those behind it too, until
    :class:`SpillPath` is done with it. A row whose bytes are all in this packet needs no way.

    Stalls: command queue full; 6 allocations unanswered; spill memory; purge. More bytes than the
    row has left: the row retires, `o_overlap` tells, the bytes are written (they are inside the
    row); row packets wait until it has told. A spill that memory refuses: `o_overlap` too, since
    the row's slot is lost. A restore that memory refuses: the packet is refused with MEM_ERROR.

    Parameters: ``cfg``. Ports: ``i_head`` In, stream; ``o_command``, ``o_alloc``, ``o_spill``,
    ``o_overlap`` Out, streams; ``alloc_taken`` In, an answer was used; ``spill_done`` In, strobe
    with ``spill_reply``; ``victim_look``, ``victim_index`` Out, read the data part, ``victim`` In
    next cycle; ``filled`` In, no command waits; ``issue_idle`` In, nothing of any command is
    left; ``purge`` In, ``purging`` Out; ``geometry_write``, ``region_update``, ``window_write``,
    ``ranges`` In; ``cause`` Out, why its oldest packet waits, ``waits`` Out, that packet's row;
    ``strobes`` Out; ``clearing`` Out, no header comes then."""

    observe: RowPipeObserve  # once elaborated

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        packet = {
            "head": own.head,
            "set": max(1, own.set_width),
            "counter": ceil_log2(cfg.filter_depth),  # of its row in the spill filter
        }
        self._first = data.StructLayout({"valid": 1, **packet})
        self._third = data.StructLayout(
            {
                "valid": 1,
                **packet,
                "refused": 1,
                "reason": REASON,
                "known": 1,
                "maybe": 1,
                "whole": cfg.row_bytes_width,  # that the row misses if it has no entry
                "fits": 1,  # and the packet has them all
                **{name: own.command[name].shape for name in GROUP},
            }
        )
        super().__init__(
            {
                "i_head": In(stream.Signature(own.head)),
                "o_command": Out(stream.Signature(own.command)),
                "o_alloc": Out(stream.Signature(types.alloc_request)),
                "alloc_taken": In(1),
                "o_spill": Out(stream.Signature(own.spill_request)),
                "spill_done": In(1),
                "spill_reply": In(own.spill_reply),
                "o_overlap": Out(stream.Signature(own.bank)),
                "victim_look": Out(1),
                "victim_index": Out(own.index_width),
                "victim": In(own.alloc_reply),
                "filled": In(1),
                "issue_idle": In(1),
                "purge": In(own.purge),
                "purging": Out(1),
                "geometry_write": In(types.geometry_write),
                "region_update": In(types.region_update),
                "window_write": In(types.window_write),
                "ranges": In(own.ranges),
                "cause": Out(CAUSE),
                "waits": Out(own.name),
                "strobes": Out(own.lookup_strobes),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own = self._cfg, self._own
        m.submodules.tags = tags = RowTags(cfg)
        m.submodules.counts = counts = RowCounts(cfg)
        m.submodules.spilled = spilled = SpillFilter(cfg.filter_depth, cfg.filter_width)
        m.submodules.rows = rows = RowCheck(cfg)
        m.submodules.plain = plain = PlainCheck(cfg)
        m.submodules.judge = judge = Judge(cfg)
        m.submodules.path = path = SpillPath(cfg)
        m.submodules.search = search = VictimSearch(cfg)
        m.submodules.purger = purger = Purge(cfg)
        m.submodules.asked = asked = RegisterQueue(self.o_alloc.payload.shape(), 2)
        wiring.connect(m, asked.o, wiring.flipped(self.o_alloc))
        wiring.connect(m, path.o_spill, wiring.flipped(self.o_spill))
        first = Signal(self._first)
        second = Signal(self._first)
        third = Signal(self._third)
        far = Signal(own.twin)
        near = Signal(own.twin)
        move, take, place, absent, leave, complete = (
            Signal(name=name) for name in ("move", "take", "place", "absent", "leave", "complete")
        )
        missing = Signal(cfg.row_bytes_width)
        unanswered = Signal(range(REPLIES + 1))
        self.observe = RowPipeObserve(
            *(tags, counts, spilled, rows, plain, judge, path, search, purger, asked),
            *(first, second, third, far, near, move, take),
            *(place, absent, leave, missing, complete, unanswered),
        )
        for step in (
            self._look,
            self._look_again,
            self._go_on,
            self._compare,
            self._decide,
            self._ask,
            self._change,
            self._make_place,
            self._purge,
            self._command,
            self._tell_overlap,
            self._tell_cause,
        ):
            step(m)
        return m

    def _row(self, body):
        """The row that a packet's body names."""
        body, row = data.View(self._own.row_body, body), self._own.row
        return data.View(row, Cat(body[name][: field.width] for name, field in row))

    def _index(self, row, width):
        """Of a row in a table of 2 ** ``width`` words."""
        return fold_key(row.region, row.epoch[0], row.rowid, width)

    def _look(self, m):
        """R0 and R1: what is read for a packet. R2: what changes with each."""
        inside, own, head = self.observe, self._own, self.i_head.payload
        tags, rows, plain, first = inside.tags, inside.rows, inside.plain, inside.first
        row, flat = self._row(head.body), data.View(own.plain_body, head.body)
        m.d.comb += [
            tags.look.eq(inside.take),
            tags.set.eq(self._index(row, own.set_width)),
            rows.look.eq(inside.take),
            rows.region.eq(row.region),
            rows.epoch.eq(row.epoch),
            rows.body.eq(first.head.body),
            rows.len.eq(first.head.len),
            rows.move.eq(inside.move),
            rows.geometry_write.eq(self.geometry_write),
            rows.region_update.eq(self.region_update),
            plain.look.eq(inside.take),
            plain.src.eq(head.src),
            plain.addr16.eq(flat.addr16),
            plain.len.eq(head.len),
            plain.move.eq(inside.move),
            plain.ranges.eq(self.ranges),
            plain.window_write.eq(self.window_write),
            inside.spilled.look.eq(inside.move & first.valid),
            inside.spilled.index.eq(first.counter),
            inside.counts.look.eq(inside.move & inside.second.valid),
            inside.counts.set.eq(inside.second.set),
        ]
        parts = (tags, inside.counts, inside.spilled, rows, plain)
        m.d.comb += self.clearing.eq(Cat(part.clearing for part in parts).any())

    def _look_again(self, m):
        """What is read while a packet stands in R3, and once it is served, again for those behind
        it. Nothing else is read then."""
        inside = self.observe
        path, search, rows, spilled = inside.path, inside.search, inside.rows, inside.spilled
        with m.If(path.look_set):
            m.d.comb += [
                inside.tags.look.eq(1),
                inside.tags.set.eq(inside.third.set),
            ]
        with m.If(path.look):
            m.d.comb += [
                spilled.look.eq(1),
                spilled.index.eq(path.index),
            ]
        with m.If(search.look_bank):
            m.d.comb += [
                rows.look_bank.eq(1),
                rows.region.eq(search.region),
                rows.epoch.eq(search.epoch),
            ]
        with m.If(mutant("slot_allocator.not_looked_at_again", path.again, 0)):
            first = self._row(inside.first.head.body)
            m.d.comb += [
                inside.tags.look.eq(1),
                inside.tags.set.eq(inside.first.set),
                rows.look.eq(1),
                rows.region.eq(first.region),
                rows.epoch.eq(first.epoch),
                spilled.look.eq(1),
                spilled.index.eq(inside.second.counter),
            ]

    def _go_on(self, m):
        """The stages."""
        inside, head = self.observe, self.i_head.payload
        first, second, third = inside.first, inside.second, inside.third
        rows, plain, path = inside.rows, inside.plain, inside.path
        foreign = inside.judge.foreign_next
        m.d.comb += [
            inside.move.eq(~third.valid | inside.leave),
            inside.take.eq(inside.move & self.i_head.valid & ~self.purging),
            self.i_head.ready.eq(inside.take),
        ]
        with m.If(inside.move):
            m.d.sync += [
                first.valid.eq(inside.take),
                first.head.eq(head),
                first.set.eq(inside.tags.set),
                first.counter.eq(self._index(self._row(head.body), len(first.counter))),
                second.eq(first),
                *(third[name].eq(second[name]) for name, _ in self._first),
                third.known.eq(rows.known & ~second.head.plain),
                third.maybe.eq(inside.spilled.maybe),
                third.whole.eq(rows.row_bytes),
                third.fits.eq(
                    mutant(
                        "slot_allocator.exact_end_is_not_complete",
                        ~(second.head.bytes < rows.row_bytes),
                        second.head.bytes > rows.row_bytes,
                    )
                ),
                *(third[name].eq(getattr(plain, name)) for name in GROUP),
            ]
            with m.If(second.head.plain):
                m.d.sync += [
                    third.refused.eq(~plain.allowed),
                    third.reason.eq(Mux(plain.allowed, Reason.OK, Reason.WINDOW)),
                ]
            with m.Else():
                m.d.sync += [
                    third.refused.eq(rows.refused | foreign),
                    third.reason.eq(Mux(foreign & ~rows.refused, Reason.FOREIGN, rows.reason)),
                ]
        with m.If(path.found):
            m.d.sync += [
                third.whole.eq(path.missing),
                third.fits.eq(~(third.head.bytes < path.missing)),
            ]
        with m.If(path.refuse):
            m.d.sync += [
                third.refused.eq(1),
                third.reason.eq(mutant("slot_allocator.sunk_without_reason", path.reason, 0)),
            ]

    def _compare(self, m):
        """How packets are related, a cycle before it is needed: then the one in R2 is in R3."""
        inside, head, set_ = self.observe, self.i_head.payload, self.observe.tags.set
        first, second, third = inside.first, inside.second, inside.third

        def relate(twin, packet, packet_set, other):
            return [
                twin.set.eq(packet_set == other.set),
                twin.row.eq(self._row(packet.body) == self._row(other.head.body)),
                twin.stranger.eq(packet.src != other.head.src),
            ]

        here = Signal(self._own.twin)
        m.d.comb += [
            *relate(here, head, set_, third),
            inside.tags.twin.eq(here.row),
            inside.tags.row.eq(self._row(first.head.body)),
            inside.tags.src.eq(first.head.src),
            inside.judge.seen.eq(inside.tags.seen),
            inside.judge.far.eq(inside.far),
            inside.judge.near.eq(inside.near),
            inside.judge.move.eq(inside.move),
        ]
        with m.If(inside.move):
            m.d.sync += [
                *relate(inside.far, head, set_, second),
                *relate(inside.near, first.head, first.set, second),
            ]

    def _decide(self, m):
        """What becomes of the packet in R3, and when it leaves."""
        inside, third, judge = self.observe, self.observe.third, self.observe.judge
        entry = select(judge.way, list(inside.counts.missing))
        may_ask = inside.asked.i.ready & (inside.unanswered != REPLIES)
        m.d.comb += [
            inside.missing.eq(Mux(judge.hit, entry, third.whole)),
            # Whether a new row fits is in a register: it decides on the slow way.
            inside.complete.eq(Mux(judge.hit, ~(third.head.bytes < entry), third.fits)),
            inside.place.eq(third.valid & ~third.head.plain & ~third.refused),
            inside.absent.eq(inside.place & ~judge.hit),
            self.o_command.valid.eq(
                third.valid
                & ~inside.path.holds
                & ~(inside.place & self.o_overlap.valid)
                & ~(inside.absent & ~may_ask)
            ),
            inside.leave.eq(self.o_command.valid & self.o_command.ready),
        ]

    def _ask(self, m):
        """The request of a new or restored row."""
        inside, third, asked = self.observe, self.observe.third, self.observe.asked.i
        row = self._row(third.head.body)
        path = inside.path
        ask = Signal()
        m.d.comb += [
            ask.eq(inside.leave & inside.absent),
            asked.valid.eq(ask),
            asked.p.translate.eq(path.restored),
            asked.p.region.eq(row.region),
            asked.p.bank.eq(row.epoch[0]),
            asked.p.overflow.eq(path.slot.overflow & path.restored),
            asked.p.slot.eq(path.slot.slot),
            asked.p.rowid.eq(row.rowid),
        ]
        m.d.sync += inside.unanswered.eq(inside.unanswered + ask - self.alloc_taken)

    def _change(self, m):
        """What the packet that leaves does to its set."""
        inside, third = self.observe, self.observe.third
        judge, tags, change = inside.judge, inside.tags, inside.judge.change
        row = self._row(third.head.body)
        m.d.comb += [
            change.write.eq(inside.leave & inside.place & (judge.hit | ~inside.complete)),
            change.way.eq(judge.way),
            change.keeps.eq(~inside.complete),
            tags.write.eq(Mux(change.write, judge.way, inside.purger.wipe)),
            tags.write_set.eq(Mux(self.purging & ~third.valid, inside.purger.set, third.set)),
            tags.tag.valid.eq(change.write & change.keeps),
            *(tags.tag[name].eq(row[name]) for name, _ in self._own.row),
            tags.tag.src.eq(third.head.src),
            inside.counts.write.eq(Mux(change.write, judge.way, 0)),
            inside.counts.install.eq(~judge.hit),
            inside.counts.left.eq(inside.missing - third.head.bytes),
        ]

    def _make_place(self, m):
        """The slow way of the packet in R3."""
        inside, third, path, search = (
            self.observe,
            self.observe.third,
            self.observe.path,
            self.observe.search,
        )
        judge, tags, counts = inside.judge, inside.tags, inside.counts
        m.d.comb += [
            path.absent.eq(inside.absent),
            path.maybe.eq(third.maybe),
            path.lacks.eq(~judge.has_way & ~third.fits),
            path.move.eq(inside.leave),
            path.row.eq(self._row(third.head.body)),
            path.src.eq(third.head.src),
            path.counter.eq(third.counter),
            path.spill_done.eq(self.spill_done),
            path.spill_reply.eq(self.spill_reply),
            path.filled.eq(self.filled),
            path.searched.eq(search.done),
            path.victim_rank.eq(search.rank),
            path.victim_slot.eq(search.slot),
            path.victim_index.eq(search.index),
            path.victim_tag.eq(select(search.way, list(tags.tags))),  # the set stays in view
            path.victim_missing.eq(select(search.way, list(counts.missing))),
            path.may_tell.eq(~self.o_overlap.valid),
            judge.freed.eq(path.freed),
            judge.freed_way.eq(search.way),
            search.run.eq(path.search),
            search.tags.eq(tags.tags),
            search.ages.eq(counts.ages),
            search.set.eq(third.set),
            search.alive.eq(inside.rows.alive),
            self.victim_look.eq(search.look_slot),
            self.victim_index.eq(search.slot_index),
            search.slot_found.eq(self.victim),
            inside.spilled.up.eq(path.up),
            inside.spilled.down.eq(path.down),
        ]

    def _purge(self, m):
        """Purges, while the pipe is empty."""
        inside, purger = self.observe, self.observe.purger
        stages = inside.first, inside.second, inside.third
        m.d.comb += [
            purger.purge.eq(self.purge),
            self.purging.eq(purger.purging),
            purger.empty.eq(~self.clearing & ~Cat(each.valid for each in stages).any()),
            purger.issue_idle.eq(self.issue_idle),
            purger.tags.eq(inside.tags.tags),
        ]
        with m.If(purger.look):
            m.d.comb += [
                inside.tags.look.eq(1),
                inside.tags.set.eq(purger.set),
            ]

    def _command(self, m):
        """What the issue stage is told of the packet in R3."""
        inside, third, judge = self.observe, self.observe.third, self.observe.judge
        command, head = self.o_command.p, self.observe.third.head
        installs = inside.absent & ~inside.complete
        kind = Mux(head.plain, Kind.PLAIN, Kind.ROW)
        m.d.comb += [
            command.kind.eq(Mux(third.refused, Kind.SINK, kind)),
            command.fresh.eq(inside.absent),
            command.install.eq(
                mutant(
                    "slot_allocator.fetched_row_not_installed",
                    installs,
                    installs & ~third.maybe,
                )
            ),
            command.index.eq(
                Cat(
                    encode(judge.way)[: ceil_log2(self._cfg.rat_ways)],
                    third.set[: self._own.set_width],
                )
            ),
            *(command[name].eq(head[name]) for name in ("poison", "len", "bytes", "src", "body")),
            *(command[name].eq(third[name]) for name in ("reason", "known", *GROUP)),
        ]

    def _tell_overlap(self, m):
        """A row got more bytes than it missed, or its spilled mapping was lost."""
        inside, third, path = self.observe, self.observe.third, self.observe.path
        overlap, row = self.o_overlap, self._row(third.head.body)
        over = inside.leave & inside.place & (third.head.bytes > inside.missing)
        with m.If(
            mutant(
                "slot_allocator.overlap_withdrawn",
                overlap.ready,
                overlap.ready | self.alloc_taken,
            )
        ):
            m.d.sync += overlap.valid.eq(0)
        with m.If(over | path.lost):
            m.d.sync += overlap.valid.eq(1)
        with m.If(~overlap.valid):
            m.d.sync += [
                overlap.p.region.eq(Mux(path.losing, path.lost_bank.region, row.region)),
                overlap.p.bank.eq(Mux(path.losing, path.lost_bank.bank, row.epoch[0])),
            ]

    def _tell_cause(self, m):
        """Counters, and why the oldest packet waits."""
        inside, third, path, strobes = (
            self.observe,
            self.observe.third,
            self.observe.path,
            self.strobes,
        )
        body = data.View(
            self._own.row_body, Mux(third.valid, third.head.body, self.i_head.payload.body)
        )
        plain = Mux(third.valid, third.head.plain, self.i_head.payload.plain)
        m.d.comb += [
            strobes.rat_hits.eq(inside.leave & inside.place & inside.judge.hit),
            *(
                strobes[name].eq(getattr(path, name))
                for name in ("spills", "restores", "filter_false", "dropped", "spill_errors")
            ),
            strobes.stall_spill.eq(path.holds),
            strobes.stall_purge.eq(self.purging & self.i_head.valid),
            strobes.stall_lookup.eq(third.valid & ~path.holds & ~inside.leave),
            self.waits.region.eq(Mux(plain, 0, body.region)),
            self.waits.rowid.eq(Mux(plain, 0, body.rowid)),
        ]
        for name in ("purge", "lookup", "spill"):  # the last one wins: the oldest packet's
            with m.If(strobes[f"stall_{name}"]):
                m.d.comb += self.cause.eq(WaitCause[name.upper()])
