# SPDX-License-Identifier: Apache-2.0
"""Lookup stage of a slice: decides what happens to each packet."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import CAUSE, REASON
from hub_rtl.contract.packets import SPILL_WORD, Reason
from hub_rtl.contract.records import layout_of, types_of
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import encode, select

from .plain_check import PlainCheck
from .rat import RowTags
from .records import REPLIES, VICTIM_RANKS, Kind, WaitCause, fold_key, slice_types_of
from .row_check import RowCheck
from .spill_filter import SpillFilter

__all__ = ["Lookup"]

WORD = layout_of(SPILL_WORD)  # a spill word as a struct


class Lookup(wiring.Component):
    """Finds or installs the row of each packet, one packet at a time, and tells the issue stage
    what to do with it.

    A row packet is refused, or hits, or is new (an allocation is requested and its answer goes to
    the issue stage, nobody waits here). 3 cycles per row
    packet, 4 per plain packet or new row whose set is full.

    Slow path, only with rows spilled or a full set: the filter says "maybe" → read the spill word,
    restore the row or find nothing. A way is needed and none is free → wait until all commands
    before are issued (then the data part is filled), choose a victim: oldest row whose epoch is
    over (dropped), else oldest row with a slot (spilled), else oldest refused row (dropped: its
    later packets count as a new row). A row whose bytes are all in this packet needs no way. A
    packet is served in the same step that restores its row, so a restored row has always served one
    before it is a victim.

    Stalls: command queue full; 4 allocations unanswered; spill memory; purge. More bytes than the
    row has left: the row retires, `o_overlap` tells, the bytes are written (they are inside the
    row); row packets wait until it has told. A spill that memory refuses: `o_overlap` too, since
    the row's slot is lost. A restore that memory refuses: the packet is refused with MEM_ERROR.

    Parameters: ``cfg``. Ports: ``i_head``, ``i_bytes`` In, streams, taken together; ``o_command``,
    ``o_alloc``, ``o_spill``, ``o_overlap`` Out, streams; ``alloc_taken`` In, an answer was used;
    ``spill_done`` In, strobe with ``spill_reply``; ``victim_look``, ``victim_index`` Out, read the
    data part, ``victim`` In next cycle; ``filled`` In, no command waits; ``issue_idle`` In, nothing
    of any command is left; ``purge`` In, ``purging`` Out; ``geometry_write``, ``region_update``,
    ``window_write``, ``ranges`` In; ``cause`` Out, why it waits; ``strobes`` Out; ``clearing`` Out,
    no header comes then."""

    def __init__(self, cfg):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own = cfg, own
        super().__init__(
            {
                "i_head": In(stream.Signature(own.head)),
                "i_bytes": In(stream.Signature(cfg.bytes_width)),
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
                "ranges": In(own.range_show),
                "cause": Out(CAUSE),
                "strobes": Out(own.lookup_strobes),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, own, ways = self._cfg, self._own, self._cfg.rat_ways
        m.submodules.tags = tags = RowTags(cfg)
        m.submodules.filter = spilled = SpillFilter(cfg.filter_depth, cfg.filter_width)
        m.submodules.rows = rows = RowCheck(cfg)
        m.submodules.plain = plain = PlainCheck(cfg)
        head, strobes = self.i_head.payload, self.strobes
        row, flat = data.View(own.row_body, head.body), data.View(own.plain_body, head.body)
        region, bank = row.region[: cfg.region_width], row.epoch[0]
        filter_width = ceil_log2(cfg.filter_depth)
        row_index = fold_key(row.region, bank, row.rowid, filter_width)
        m.d.comb += [
            rows.geometry_write.eq(self.geometry_write),
            rows.region_update.eq(self.region_update),
            plain.window_write.eq(self.window_write),
            plain.show.eq(self.ranges),
            rows.body.eq(row),
            rows.len.eq(head.len),
            plain.src.eq(head.src),
            plain.addr16.eq(flat.addr16),
            plain.len.eq(head.len),
            tags.region.eq(region),
            tags.epoch.eq(row.epoch),
            tags.rowid.eq(row.rowid),
            spilled.index.eq(row_index),
        ]

        cleared = Signal()
        m.d.comb += self.clearing.eq(
            tags.clearing | spilled.clearing | rows.clearing | plain.clearing
        )
        m.d.sync += cleared.eq(~self.clearing)

        # -- what CHECK found ----------------------------------------------------------------------
        hit, foreign, fetched, restored, erased = Signal(), Signal(), Signal(), Signal(), Signal()
        maybe, has_way = Signal(), Signal()
        way = Signal(ways)  # one-hot: of the hit, or to install in
        late_reason = Signal(REASON)  # found out while fetching
        word = Signal(
            data.StructLayout({"slot": cfg.slot_width, "overflow": 1})
        )  # of the restored row
        looked_set = Signal(max(1, own.set_width))
        refuse, need_way, complete, over = Signal(), Signal(), Signal(), Signal()
        base = Signal(cfg.row_bytes_width)  # bytes missing: of the hit, of the restored row, or all
        judging = Signal()
        judged, fits = (
            Signal(),
            Signal(),
        )  # in the cycle before: bytes were known, were the row's last
        m.d.comb += [
            complete.eq(
                mutant(
                    "slot_allocator.exact_end_is_not_complete",
                    ~(self.i_bytes.payload < base),
                    self.i_bytes.payload > base,
                )
            ),
            over.eq(self.i_bytes.payload > base),
            need_way.eq(~hit & ~complete),
        ]
        reason = Signal(REASON)
        with m.If(head.plain):
            m.d.comb += reason.eq(Mux(plain.allowed, Reason.OK, Reason.WINDOW))
        with m.Elif(rows.reason != Reason.OK):
            m.d.comb += reason.eq(rows.reason)
        with m.Elif(foreign):
            m.d.comb += reason.eq(Reason.FOREIGN)
        with m.Else():
            m.d.comb += reason.eq(late_reason)
        # Told apart from the reason, because it decides late what happens.
        m.d.comb += refuse.eq(
            Mux(head.plain, ~plain.allowed, rows.refused | foreign | late_reason.any())
        )

        # -- allocation requests, overlaps ---------------------------------------------------------
        unanswered = Signal(range(REPLIES + 1))
        alloc, overlap = self.o_alloc, self.o_overlap
        commit = Signal()  # the packet goes to the issue stage in this cycle
        acting = Signal()  # in ACT: a register, so that no state is decoded for it
        ask = Signal()  # ... with an allocation request
        m.d.comb += ask.eq(commit & ~head.plain & ~refuse & ~hit)
        with m.If(ask & ~self.alloc_taken):
            m.d.sync += unanswered.eq(unanswered + 1)
        with m.Elif(self.alloc_taken & ~ask):
            m.d.sync += unanswered.eq(unanswered - 1)
        with m.If(
            mutant(
                "slot_allocator.allocation_withdrawn", alloc.ready, alloc.ready | self.alloc_taken
            )
        ):
            m.d.sync += alloc.valid.eq(0)
        with m.If(ask):
            m.d.sync += alloc.valid.eq(1)
        with m.If(~alloc.valid):  # whether something is asked is known later than what
            m.d.sync += [
                alloc.p.translate.eq(restored),
                alloc.p.region.eq(region),
                alloc.p.bank.eq(bank),
                alloc.p.overflow.eq(word.overflow & restored),
                alloc.p.slot.eq(word.slot),
                alloc.p.rowid.eq(row.rowid),
            ]
        lost = Signal()  # the victim's spill was answered with an error
        losing = Signal()
        victim = Signal(own.tag)
        with m.If(overlap.ready):
            m.d.sync += overlap.valid.eq(0)
        with m.If((commit & ~head.plain & ~refuse & over) | lost):
            m.d.sync += overlap.valid.eq(1)
        with m.If(~overlap.valid):
            m.d.sync += [
                overlap.p.region.eq(
                    mutant(
                        "slot_allocator.fault_told_to_packets_region",
                        Mux(losing, victim.region, region),
                        region,
                    )
                ),
                overlap.p.bank.eq(
                    mutant(
                        "slot_allocator.fault_told_to_packets_bank",
                        Mux(losing, victim.epoch[0], bank),
                        bank,
                    )
                ),
            ]

        # -- command -------------------------------------------------------------------------------
        command = self.o_command.p
        index = Cat(encode(way)[: ceil_log2(ways)], looked_set[: own.set_width])
        m.d.comb += [
            self.o_command.valid.eq(commit),
            command.kind.eq(Mux(refuse, Kind.SINK, Mux(head.plain, Kind.PLAIN, Kind.ROW))),
            command.fresh.eq(ask),
            command.install.eq(
                mutant("slot_allocator.fetched_row_not_installed", need_way, need_way & ~fetched)
            ),
            command.index.eq(index),
            command.poison.eq(head.poison),
            command.len.eq(head.len),
            command.bytes.eq(self.i_bytes.payload),
            command.src.eq(head.src),
            command.body.eq(head.body),
            command.reason.eq(reason),
            command.known.eq(rows.known & ~head.plain),
            command.counted.eq(plain.counted),
            command.dep.eq(plain.dep),
            command.group_base.eq(plain.group_base),
            command.group_step.eq(plain.group_step),
            self.i_head.ready.eq(commit),
            self.i_bytes.ready.eq(commit),
            strobes.rat_hits.eq(commit & ~head.plain & ~refuse & hit),
        ]
        # -- RAT entry -----------------------------------------------------------------------------
        place = commit & ~head.plain & ~refuse & (hit | need_way)
        wipe = Signal(ways)  # a purge removes these
        m.d.comb += [
            tags.write.eq(Mux(place, way, wipe)),
            tags.install.eq(place & ~hit),
            tags.tag.valid.eq(place & ~complete),
            tags.tag.region.eq(region),
            tags.tag.epoch.eq(row.epoch),
            tags.tag.rowid.eq(row.rowid),
            tags.tag.src.eq(head.src),
            tags.tag.missing.eq((base - self.i_bytes.payload)[: cfg.row_bytes_width]),
        ]

        # -- purge ---------------------------------------------------------------------------------
        purge_bank = Signal(own.bank)
        walk = Signal(range(cfg.rat_sets + 1))
        with m.If(self.purge.en):
            m.d.sync += [
                self.purging.eq(1),
                purge_bank.region.eq(self.purge.region),
                purge_bank.bank.eq(self.purge.bank),
            ]

        # -- victim --------------------------------------------------------------------------------
        step = Signal(range(ways + 1))
        best = data.StructLayout(
            {"age": own.way_width, "rank": ceil_log2(VICTIM_RANKS)}
        )  # compared as one number: rank first, then age
        key, best_key = Signal(best), Signal(best)
        # One-hot. A way's bank is looked at, a cycle later its slot, in the third it is compared
        # with the best so far.
        best_way, rated_way, seen_way, scan_way = (
            Signal(ways),
            Signal(ways),
            Signal(ways),
            Signal(ways),
        )
        best_index, rated_index, seen_index = (
            Signal(filter_width) for _ in range(3)
        )  # in the filter
        rated_alive, rated_age = Signal(), Signal(own.way_width)
        best_slot = Signal(data.StructLayout({"slot": cfg.slot_width, "overflow": 1}))
        scanned = Signal(own.tag)
        m.d.comb += [
            scanned.eq(select(scan_way, [tags.tags[n].as_value() for n in range(ways)])),
            victim.eq(
                select(best_way, [tags.tags[n].as_value() for n in range(ways)])
            ),  # the set stays in view
            rows.region.eq(scanned.region),
            rows.epoch.eq(scanned.epoch),
            self.victim_index.eq(Cat(step[: ceil_log2(ways)], looked_set[: own.set_width])),
            # Oldest first: fewer older ways give a larger key. Rank 3: epoch over, 2: has a slot,
            # 1: refused.
            key.age.eq(~rated_age),
            key.rank.eq(Mux(rated_alive, Mux(self.victim.reason == Reason.OK, 2, 1), 3)),
        ]
        m.d.sync += [
            rated_way.eq(seen_way),
            rated_index.eq(seen_index),
            rated_alive.eq(rows.alive),
            rated_age.eq(select(seen_way, [tags.ages[n] for n in range(ways)])),
            seen_way.eq(scan_way),
            seen_index.eq(fold_key(scanned.region, scanned.epoch[0], scanned.rowid, filter_width)),
        ]
        spill = self.o_spill.p
        spill_word = _word(
            valid=1,
            epoch=victim.epoch,
            overflow=best_slot.overflow,
            slot=best_slot.slot,
            missing=victim.missing,
            src=victim.src,
            rowtag=victim.rowid,
        )
        look = Signal()
        m.d.comb += [
            rows.look.eq(look),
            plain.look.eq(look),
            tags.set.eq(fold_key(row.region, bank, row.rowid, own.set_width)),
        ]
        found = Signal(WORD)
        m.d.comb += found.eq(self.spill_reply.word)
        # A damaged word may name a slot beyond what a request holds: it must not become another
        # row's.
        slot = Mux(
            found.slot[cfg.slot_width :].any(),
            Const(-1, cfg.slot_width),
            found.slot[: cfg.slot_width],
        )
        stalled, fetching, wanting, erasing, waits = (
            Signal(),
            Signal(),
            Signal(),
            Signal(),
            Signal(),
        )
        m.d.comb += [
            fetching.eq(~hit & maybe & ~fetched),
            wanting.eq(~hit & ~has_way & ~(judged & fits)),
            erasing.eq(restored & ~erased),
            waits.eq(overlap.valid | ~hit & (alloc.valid | (unanswered == REPLIES))),
            commit.eq(
                acting
                & self.i_bytes.valid
                & self.o_command.ready
                & (head.plain | refuse | ~(fetching | wanting | erasing | waits))
            ),
        ]
        m.d.sync += [
            judged.eq(0),
            acting.eq(0),
        ]

        def act():
            m.d.sync += acting.eq(1)
            m.next = "ACT"

        with m.FSM() as fsm:
            with m.State("READ"):
                with m.If(self.purging):
                    m.d.sync += walk.eq(0)
                    with m.If(cleared):
                        m.next = "PURGE"
                with m.Elif(self.i_head.valid):
                    m.d.comb += [
                        look.eq(1),
                        tags.look.eq(1),
                        spilled.look.eq(1),
                    ]
                    m.d.sync += [
                        looked_set.eq(tags.set),
                        fetched.eq(0),
                        restored.eq(0),
                        erased.eq(0),
                        late_reason.eq(0),
                    ]
                    m.next = "CHECK"
            with m.State("CHECK"):
                missed = ~tags.match.any()  # matches come late: they only mask
                m.d.sync += [
                    hit.eq(~missed),
                    way.eq(tags.match | Mux(missed, tags.free, 0)),
                    has_way.eq(tags.free.any()),
                    foreign.eq(
                        Cat(
                            tags.match[n] & (tags.tags[n].src != head.src) for n in range(ways)
                        ).any()
                    ),
                    base.eq(
                        select(
                            Cat(tags.match, missed),
                            [*(tags.tags[n].missing for n in range(ways)), rows.row_bytes],
                        )
                    ),
                    maybe.eq(spilled.maybe),
                ]
                with m.If(head.plain):
                    m.next = "GROUP"
                with m.Else():
                    act()
            with m.State("GROUP"):
                act()
            with m.State("ACT"):
                m.d.sync += [
                    judged.eq(self.i_bytes.valid),
                    fits.eq(complete),
                    scan_way.eq(1),
                    acting.eq(1),
                ]
                with m.If(~self.i_bytes.valid):
                    pass
                with m.Elif(head.plain | refuse):
                    m.d.comb += stalled.eq(~commit)
                with m.Elif(fetching):
                    m.d.sync += acting.eq(0)
                    m.next = "FETCH"
                with m.Elif(wanting):
                    m.d.comb += judging.eq(~judged)
                    with m.If(judged):
                        m.d.sync += acting.eq(0)
                        m.next = "DRAIN"
                with m.Elif(erasing):
                    m.d.comb += spilled.look.eq(1)  # the victim's counter was looked at since
                    m.d.sync += acting.eq(0)
                    m.next = "UNCOUNT"
                with m.Else():
                    m.d.comb += stalled.eq(~commit)
                with m.If(commit):
                    m.d.sync += acting.eq(0)
                    m.next = "READ"
            # Was the row spilled?
            with m.State("FETCH"):
                m.d.comb += [
                    self.o_spill.valid.eq(1),
                    spill.region.eq(region),
                    spill.bank.eq(bank),
                    spill.rowid.eq(row.rowid),
                ]
                with m.If(self.o_spill.ready):
                    m.next = "FETCHED"
            with m.State("FETCHED"):
                with m.If(self.spill_done):
                    m.d.sync += [
                        fetched.eq(1),
                        word.slot.eq(slot),
                        word.overflow.eq(found.overflow),
                    ]
                    with m.If(self.spill_reply.error):
                        m.d.sync += late_reason.eq(Reason.MEM_ERROR)
                        m.d.comb += strobes.spill_errors.eq(1)
                    with m.Elif(
                        ~found.valid
                        | (found.epoch != row.epoch)
                        | (found.rowtag != row.rowid[: len(found.rowtag)])
                    ):
                        m.d.comb += strobes.filter_false.eq(1)
                    with m.Elif(found.src != head.src):
                        m.d.sync += late_reason.eq(Reason.FOREIGN)
                    with m.Else():
                        m.d.sync += [
                            restored.eq(1),
                            base.eq(found.missing),
                        ]
                        m.d.comb += strobes.restores.eq(1)
                    act()
            # A way is needed: choose a victim once every row of the set has its answer in the data
            # part.
            with m.State("DRAIN"):
                m.d.comb += rows.look_bank.eq(1)  # of the first way
                with m.If(
                    mutant(
                        "slot_allocator.full_room_misses_bytes",
                        self.filled,
                        self.filled & ~self.i_bytes.valid,
                    )
                ):
                    m.d.sync += [
                        step.eq(0),
                        scan_way.eq(scan_way << 1),
                        best_key.eq(0),
                    ]
                    m.next = "SCAN"
            with m.State("SCAN"):
                m.d.comb += [
                    self.victim_look.eq(step != ways),
                    rows.look_bank.eq(1),
                ]
                m.d.sync += [
                    step.eq(step + 1),
                    scan_way.eq(scan_way << 1),
                ]
                with m.If((step != 0) & (key.as_value() > best_key.as_value())):
                    m.d.sync += [
                        best_key.eq(key),
                        best_way.eq(rated_way),
                        best_index.eq(rated_index),
                        best_slot.slot.eq(self.victim.slot),
                        best_slot.overflow.eq(self.victim.overflow),
                    ]
                with m.If(step == ways):
                    m.d.sync += step.eq(0)
                    m.next = "VICTIM"
            with m.State("VICTIM"):
                m.d.sync += [
                    way.eq(best_way),
                    has_way.eq(1),
                ]
                m.d.comb += [
                    spilled.look.eq(1),
                    spilled.index.eq(
                        mutant("slot_allocator.victim_counted_at_own_row", best_index, row_index)
                    ),
                ]
                with m.If(best_key.rank == 2):
                    m.next = "COUNT"
                with m.Else():
                    m.d.comb += strobes.dropped.eq(1)
                    act()
            with m.State("COUNT"):
                m.d.comb += [
                    spilled.up.eq(mutant("slot_allocator.spill_not_counted", 1, 0)),
                    strobes.spills.eq(1),
                ]
                m.next = "SPILL"
            with m.State("SPILL"):
                m.d.comb += [
                    self.o_spill.valid.eq(1),
                    spill.write.eq(1),
                    spill.region.eq(victim.region),
                    spill.bank.eq(victim.epoch[0]),
                    spill.rowid.eq(victim.rowid),
                    spill.word.eq(spill_word),
                ]
                with m.If(self.o_spill.ready):
                    m.next = "SPILLED"
            with m.State("SPILLED"):
                with m.If(self.spill_done):
                    with m.If(self.spill_reply.error):
                        m.d.comb += strobes.spill_errors.eq(1)
                        m.next = "LOST"
                    with m.Else():
                        act()
            with m.State("LOST"):
                m.d.comb += [
                    losing.eq(1),
                    lost.eq(~overlap.valid),
                ]
                with m.If(lost):
                    act()
            # The restored row's word is overwritten and no longer counted.
            with m.State("UNCOUNT"):
                m.d.comb += spilled.down.eq(1)
                m.next = "ERASE"
            with m.State("ERASE"):
                m.d.comb += [
                    self.o_spill.valid.eq(1),
                    spill.write.eq(1),
                    spill.region.eq(region),
                    spill.bank.eq(bank),
                    spill.rowid.eq(row.rowid),
                ]
                with m.If(self.o_spill.ready):
                    m.next = "ERASED"
            with m.State("ERASED"):
                with m.If(self.spill_done):
                    m.d.sync += erased.eq(1)
                    m.d.comb += strobes.spill_errors.eq(self.spill_reply.error)
                    act()
            # Purge: two cycles per set, then everything before must leave.
            with m.State("PURGE"):
                m.d.comb += [
                    tags.look.eq(walk != cfg.rat_sets),
                    tags.set.eq(walk),
                ]
                m.next = "WIPE"
                with m.If(
                    mutant(
                        "slot_allocator.last_set_not_purged",
                        walk == cfg.rat_sets,
                        walk == cfg.rat_sets - 1,
                    )
                ):
                    m.next = "LEAVE"
            with m.State("WIPE"):
                m.d.comb += wipe.eq(
                    Cat(
                        (each.region == purge_bank.region) & (each.epoch[0] == purge_bank.bank)
                        for each in (tags.tags[n] for n in range(ways))
                    )
                )
                m.d.sync += walk.eq(walk + 1)
                m.next = "PURGE"
            with m.State("LEAVE"):
                with m.If(self.issue_idle):
                    m.d.sync += self.purging.eq(0)
                    m.next = "READ"

        slow = Cat(
            fsm.ongoing(name)
            for name in (
                "FETCH",
                "FETCHED",
                "DRAIN",
                "SCAN",
                "VICTIM",
                "COUNT",
                "SPILL",
                "SPILLED",
                "LOST",
                "UNCOUNT",
                "ERASE",
                "ERASED",
            )
        ).any()
        m.d.comb += [
            strobes.stall_spill.eq(slow | (judging & fetched)),
            strobes.stall_purge.eq(self.purging & self.i_head.valid),
            strobes.stall_lookup.eq(stalled),
            self.cause.eq(
                Mux(
                    strobes.stall_spill,
                    WaitCause.SPILL,
                    Mux(
                        strobes.stall_purge,
                        WaitCause.PURGE,
                        Mux(stalled, WaitCause.LOOKUP, WaitCause.NONE),
                    ),
                )
            ),
        ]
        return m


def _word(**fields):
    """A spill word as one value; fields are cut or filled with zeros to their width."""
    return Cat(
        Cat(fields[name], Const(0, width))[:width] for name, (_, width) in SPILL_WORD.items()
    )
