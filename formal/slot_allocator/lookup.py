# SPDX-License-Identifier: Apache-2.0
"""Promises of the lookup stage (``hub_rtl/slot_allocator/lookup.py``): a row keeps its slot
wherever its mapping is."""

from types import SimpleNamespace
from unittest import mock

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from formal.kit.spec import Spec
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import Reason
from hub_rtl.slot_allocator import lookup
from hub_rtl.slot_allocator.lookup import WORD, Lookup
from hub_rtl.slot_allocator.records import Kind, fold_key

from .inner import Inside, free_part

__all__ = ["RowKeepsItsSlot"]


class RowKeepsItsSlot(Spec):
    """For any row of an open bank, from its first packet until its last byte was looked up, across
    spills and restores: it asks for a new slot once; each later packet finds the entry of its
    answer, or asks for the address of the slot it was given; its entry counts the bytes it still
    misses. It is spilled and restored with exactly that, and restored only when spilled.

    Supposed: the bank stays open and is not purged; a memory that works; the entry of the answer
    holds what the table gave; a row of an open bank passes its checks; the filter says "maybe" for
    a spilled row."""

    def __init__(self, cfg, covered=True, steered=False):
        super().__init__(cfg)
        self._covered, self._steered = covered, steered

    #: Covers of a restore and of what leads to it, more than 20 cycles deep: of
    #: slot_allocator.row_slot_restores.
    DEEP = (
        "restored",
        "restored with a victim",
        "old slot asked for again: when",
        "counted out only when spilled: when",
        "filter knows: when",
    )

    def reach(self, name, happens):
        """Only with ``covered`` the deep covers too."""
        if self._covered or name not in self.DEEP:
            super().reach(name, happens)

    GHOST = (
        "rowid",
        "region",
        "epoch",
        "src",
        "slot",
        "overflow",
        "in_rat",
        "in_memory",
        "index",
        "missing",
        "word",
        "busy",
        "reading",
        "head",
        "row_bytes",
        "dut",
    )

    def build(self, m):
        cfg = self._cfg
        self.dut = dut = Lookup(cfg)
        with mock.patch.multiple(
            lookup,
            **{
                name: free_part(getattr(lookup, name))
                for name in ("RowCheck", "PlainCheck", "SpillFilter")
            },
        ):
            inside = self.inside = Inside(m, dut)
        self.free_inputs(dut)
        head, command, alloc, spill = dut.i_head, dut.o_command, dut.o_alloc, dut.o_spill
        body = data.View(inside["own"].row_body, head.p.body)
        rowid, region, epoch = (
            self.constant(24, "rowid"),
            self.constant(cfg.region_width, "region"),
            self.constant(4, "epoch"),
        )
        src, row_bytes = self.constant(7, "src"), self.constant(cfg.row_bytes_width, "row_bytes")
        slot, overflow = self.constant(cfg.slot_width, "slot"), self.constant(1, "overflow")
        self.suppose("region exists", region < cfg.regions)
        self.suppose("row is some bytes long", (row_bytes != 0) & (row_bytes <= cfg.max_row_bytes))
        self.suppose("bytes with the head", head.valid, when=dut.i_bytes.valid)
        self.suppose("no header while clearing", ~head.valid, when=dut.clearing)
        self.suppose("bytes fit", dut.i_bytes.p <= cfg.packet_bytes)

        # The row's packets, and where its mapping is.
        ours = Signal()
        m.d.comb += ours.eq(
            head.valid
            & ~head.p.plain
            & (body.region == region)
            & (body.epoch == epoch)
            & (body.rowid == rowid)
        )
        taken = command.valid & command.ready & ours & (command.p.kind == Kind.ROW)
        in_rat, in_memory, index, missing = (
            Signal(),
            Signal(),
            Signal.like(command.p.index),
            Signal(cfg.row_bytes_width),
        )
        after = Signal(range(-cfg.packet_bytes, 2 * cfg.max_row_bytes))
        m.d.comb += after.eq(Mux(in_rat | in_memory, missing, row_bytes) - dut.i_bytes.p)
        writes = (
            spill.valid
            & spill.ready
            & spill.p.write
            & (spill.p.region == region)
            & (spill.p.bank == epoch[0])
            & (spill.p.rowid == rowid)
        )
        reads = (
            spill.valid
            & spill.ready
            & ~spill.p.write
            & (spill.p.region == region)
            & (spill.p.bank == epoch[0])
            & (spill.p.rowid == rowid)
        )
        sent = Signal(WORD)
        m.d.comb += sent.eq(spill.p.word)
        with m.If(taken):
            m.d.sync += [
                in_memory.eq(0),
                in_rat.eq(after > 0),
                missing.eq(after),
                index.eq(command.p.index),
            ]
        with m.Elif(writes & sent.valid):
            m.d.sync += [
                in_memory.eq(1),
                in_rat.eq(0),
            ]

        # Memory: one request at a time; the row's word is what was written last.
        word, busy, reading = Signal(WORD), Signal(), Signal()
        with m.If(writes):
            m.d.sync += word.eq(sent)
        with m.If(spill.valid & spill.ready):
            m.d.sync += [
                busy.eq(1),
                reading.eq(reads),
            ]
        with m.Elif(dut.spill_done):
            m.d.sync += busy.eq(0)
        self.suppose("memory answers what was asked", busy, when=dut.spill_done)
        self.suppose(
            "memory keeps words",
            dut.spill_reply.word == word.as_value(),
            when=dut.spill_done & reading,
        )
        self.suppose("memory works", ~dut.spill_reply.error, when=dut.spill_done)
        # What other parts promise.
        step_index = self.past(dut.victim_index, "looked_index")
        at_ours = self.past(dut.victim_look, "looked") & in_rat & (step_index == index)
        self.suppose(
            "entry holds the answer",
            (dut.victim.slot == slot)
            & (dut.victim.overflow == overflow)
            & (dut.victim.reason == Reason.OK),
            when=at_ours,
        )
        scanned = data.View(inside["own"].tag, self.past(inside["scanned"], "scanned"))
        state = inside.state
        acting = ~Cat(
            state(name) for name in ("READ", "CHECK", "GROUP", "PURGE", "WIPE", "LEAVE")
        ).any()
        said = Cat(inside["rows.reason"], inside["plain.allowed"])
        self.suppose(
            "what a check says holds",
            said == self.past(said, "said"),
            when=acting & self.past(acting, "acted"),
        )
        self.suppose(
            "refused for a reason", inside["rows.refused"] == (inside["rows.reason"] != Reason.OK)
        )
        self.suppose(
            "row passes its checks", inside["rows.reason"] == Reason.OK, when=ours & acting
        )
        self.suppose(
            "length of the row", inside["rows.row_bytes"] == row_bytes, when=ours & state("CHECK")
        )
        self.suppose(
            "no such region",
            inside["rows.reason"] != Reason.OK,
            when=acting & (body.region >= cfg.regions),
        )
        self.suppose(
            "other epochs refused",
            inside["rows.reason"] != Reason.OK,
            when=acting
            & (body.region == region)
            & (body.epoch[0] == epoch[0])
            & (body.epoch != epoch),
        )
        self.suppose(
            "bank open",
            inside["rows.alive"] == (scanned.epoch == epoch),
            when=state("SCAN") & (scanned.region == region) & (scanned.epoch[0] == epoch[0]),
        )
        self.suppose(
            "no purge",
            ~(dut.purge.en & (dut.purge.region == region) & (dut.purge.bank == epoch[0])),
        )
        self.suppose("one source", head.p.src == src, when=ours)
        self.suppose(
            "filter knows", inside["spilled.maybe"], when=ours & in_memory & state("CHECK")
        )

        # Promises.
        asked = self.past(taken, "taken")
        self.always(
            "one new slot", ~in_rat, when=taken & command.p.fresh
        )  # in memory: the old slot, see below
        self.always(
            "later packets find it",
            in_rat & (command.p.index == index),
            when=taken & ~command.p.fresh,
        )
        self.always(
            "asks with its command",
            alloc.valid
            & (alloc.p.region == region)
            & (alloc.p.bank == epoch[0])
            & (alloc.p.rowid == rowid),
            when=asked & self.past(command.p.fresh, "fresh"),
        )
        self.always(
            "old slot asked for again",
            alloc.p.translate & (alloc.p.slot == slot) & (alloc.p.overflow == overflow),
            when=asked & self.past(command.p.fresh & in_memory, "again"),
        )
        self.always(
            "no translation of a new row",
            ~alloc.p.translate,
            when=asked & self.past(command.p.fresh & ~in_memory, "new"),
        )
        self.always(
            "kept if bytes are missing",
            command.p.install,
            when=taken & command.p.fresh & (after > 0),
        )
        self.always("spilled when mapped", in_rat, when=writes & sent.valid)
        self.always(
            "spilled as it is",
            (sent.slot == slot)
            & (sent.overflow == overflow)
            & (sent.missing == missing)
            & (sent.epoch == epoch)
            & (sent.src == src)
            & (sent.rowtag == rowid[:16]),
            when=writes & sent.valid,
        )
        self.always(
            "too many bytes tell", dut.o_overlap.valid, when=self.past(taken & (after < 0), "over")
        )
        self.always("counted out only when spilled", in_memory, when=inside["spilled.down"] & ours)
        if self._steered:
            self._steer(body, rowid, region, epoch)
        self._lemmas(
            ours, acting, {name: value for name, value in locals().items() if name in self.GHOST}
        )
        for name, happens in {
            "hit": taken & in_rat,
            "restored": taken & in_memory,
            "spilled": writes & sent.valid,
            "restored with a victim": taken & in_memory & inside["has_way"],
        }.items():
            self.reach(name, happens)

    def _steer(self, body, rowid, region, epoch):
        """Traffic in which deep covers are found soon: packets of two rows of one bank, and
        neighbours that never wait."""
        inside, dut = self.inside, self.dut
        self.suppose(
            "two rows of one bank",
            ~dut.i_head.p.plain
            & (body.region == region)
            & (body.epoch == epoch)
            & (body.rowid[1:] == rowid[1:]),
            when=dut.i_head.valid,
        )
        self.suppose("no refusal", inside["rows.reason"] == Reason.OK)
        self.suppose(
            "neighbours never wait",
            dut.o_command.ready
            & dut.o_alloc.ready
            & dut.o_overlap.ready
            & dut.filled
            & dut.o_spill.ready
            & dut.alloc_taken
            & ~dut.purge.en,
        )
        head = dut.i_head.p
        self.suppose(
            "packets of one kind",
            ~head.poison
            & (head.len == 1)
            & (dut.i_bytes.p == 16)
            & (inside["rows.row_bytes"] == 64),
            when=dut.i_head.valid,
        )
        self.suppose("only the row is spilled", inside["spilled.maybe"] == (body.rowid == rowid))
        self.suppose("victims are placed", inside["rows.alive"] & (dut.victim.reason == Reason.OK))
        self.suppose(
            "packets come at once",
            dut.i_head.valid & dut.i_bytes.valid,
            when=~dut.clearing & self.past(~dut.clearing, "ran"),
        )

    def _lemmas(self, ours, acting, ghost):
        """Helper invariants: what tags, spill word and registers hold of the row, state by
        state."""
        inside, ways, g = self.inside, self._cfg.rat_ways, SimpleNamespace(**ghost)
        m, state = self.m, inside.state

        def within(*names):
            return Cat(state(name) for name in names).any()

        def is_ours(tag):
            return (tag.region == g.region) & (tag.epoch == g.epoch) & (tag.rowid == g.rowid)

        def one_hot(value):
            return (value != 0) & ((value & (value - 1)) == 0)

        tag, tags = inside["own"].tag, inside["tags"]
        looked, read = inside["tags.looked"], tags.tags
        home, kept = self._sets(m, inside, tag, g)
        at_home = looked == home
        writing = inside["tags.writing"]  # on its way to memory
        match = Cat(kept[n].valid & is_ours(kept[n]) & ~g.dut.clearing for n in range(ways))
        set_width, way_bits = inside["own"].set_width, ceil_log2(ways)
        ours_at = Cat(g.index[:way_bits] == n for n in range(ways))
        hit, way, fetched, restored, erased, maybe, has_way = (
            inside[name]
            for name in ("hit", "way", "fetched", "restored", "erased", "maybe", "has_way")
        )
        best_way, best_key, best_slot, step = (
            inside[name] for name in ("best_way", "best_key", "best_slot", "step")
        )
        looking = acting | within("CHECK", "GROUP")
        # Tags.
        self.lemma("acting", inside["acting"] == state("ACT"))
        self.lemma("cleared", ~g.dut.clearing, when=inside["cleared"])
        self.lemma("walked", inside["tags.tag_ram.walk"] <= self._cfg.rat_sets)
        self.lemma(
            "waits for clearing", state("READ") & ~g.in_rat & ~g.in_memory, when=g.dut.clearing
        )
        body = data.View(inside["own"].row_body, g.head.p.body)
        self.lemma(
            "own set",
            looked == fold_key(body.region, body.epoch[0], body.rowid, set_width),
            when=looking & ~g.head.p.plain,
        )
        self.lemma("set of the command", inside["looked_set"] == looked, when=looking)
        self.lemma("index in its set", g.index[way_bits:] == home[:set_width], when=g.in_rat)
        walk, sets = inside["walk"], self._cfg.rat_sets
        self.lemma("walk", (walk <= sets) & ~(state("WIPE") & (walk == sets)))
        self.lemma("walks", looked == walk, when=state("WIPE"))
        self.lemma("written at once", writing == 0, when=~within("READ", "PURGE") | g.dut.clearing)
        passed = inside["tags.kept"]
        self.lemma(
            "compared ahead",
            inside["tags.same"]
            == (
                passed.valid
                & (passed.region == tags.region)
                & (passed.epoch == tags.epoch)
                & (passed.rowid == tags.rowid)
            ),
            when=state("CHECK"),
        )
        self.lemma("entry matches", (match == ours_at) & (g.index[:way_bits] < ways), when=g.in_rat)
        stale = (match != 0) & ~g.in_rat
        self.lemma(
            "stale entry goes",
            g.in_memory
            & within("SPILLED", "ACT", "UNCOUNT", "ERASE", "ERASED")
            & ~hit
            & has_way
            & inside["need_way"]
            & (match == way)
            & ~ours
            & ~g.head.p.plain
            & ~inside["refuse"]
            & at_home
            & g.dut.i_bytes.valid
            & (fetched | ~maybe),
            when=stale,
        )
        self.lemma(
            "entry complete",
            Cat(
                ~ours_at[n] | (kept[n].src == g.src) & (kept[n].missing == g.missing)
                for n in range(ways)
            ).all()
            & (g.missing != 0),
            when=g.in_rat,
        )
        self.lemma("one place", ~(g.in_rat & g.in_memory))
        # The packet in hand.
        self.lemma("head stays", g.head.valid, when=looking)
        self.lemma(
            "bytes stay",
            g.dut.i_bytes.valid & ~g.head.p.plain & ~hit & ~inside["refuse"],
            when=acting & ~state("ACT"),
        )
        self.lemma(
            "hit",
            (hit == g.in_rat) & Mux(hit, (way == ours_at) & ~inside["foreign"], 1),
            when=ours & acting,
        )
        self.lemma(
            "bytes missing",
            inside["base"] == Mux(hit | restored, g.missing, g.row_bytes),
            when=ours & acting,
        )
        self.lemma(
            "judged",
            g.dut.i_bytes.valid & (inside["fits"] == inside["complete"]),
            when=state("ACT") & inside["judged"],
        )
        self.lemma("foreign hits", hit, when=acting & inside["foreign"])
        self.lemma(
            "other hits",
            (way & match) == 0,
            when=at_home & acting & hit & ~ours & ~g.head.p.plain & ~inside["refuse"],
        )
        self.lemma("memory works", ~state("LOST"))
        self.lemma("plain", g.head.p.plain, when=state("GROUP"))
        self.lemma("no hit while fetching", ~hit | ~(fetched | restored), when=acting)
        self.lemma("maybe", maybe | fetched, when=ours & acting & g.in_memory)
        self.lemma(
            "restored",
            (restored == (fetched & g.in_memory)) & (inside["late_reason"] == Reason.OK),
            when=ours & acting,
        )
        self.lemma(
            "restored was fetched", (fetched | ~restored) & (restored | ~erased), when=acting
        )
        self.lemma(
            "begins clean",
            ~fetched & ~restored & ~erased & (inside["late_reason"] == Reason.OK),
            when=within("CHECK", "GROUP"),
        )
        self.lemma(
            "fetching comes first",
            fetched | ~maybe,
            when=acting & ~within("ACT", "FETCH", "FETCHED"),
        )
        self.lemma("fetching once", ~fetched & ~restored & ~erased, when=within("FETCH", "FETCHED"))
        self.lemma("erasing once", restored & ~erased, when=within("UNCOUNT", "ERASE", "ERASED"))
        found = inside["word"]
        self.lemma(
            "found",
            (found.slot == g.slot) & (found.overflow == g.overflow),
            when=ours & acting & restored,
        )
        # Memory.
        self.lemma("busy", g.busy == within("FETCHED", "SPILLED", "ERASED"))
        self.lemma("reading", g.reading == ours, when=state("FETCHED"))
        gone = ours & acting & (erased | state("ERASED"))
        w = g.word
        self.lemma(
            "word kept",
            w.valid
            & (w.epoch == g.epoch)
            & (w.overflow == g.overflow)
            & (w.slot == g.slot)
            & (w.missing == g.missing)
            & (w.src == g.src)
            & (w.rowtag == g.rowid[:16])
            & (g.missing != 0),
            when=g.in_memory & ~gone,
        )
        self.lemma("word erased", ~w.valid, when=~g.in_memory | gone)
        # The victim.
        full = Cat(each.valid for each in (read[n] for n in range(ways))).all()
        self.lemma(
            "set is full",
            full & ~has_way & inside["need_way"],
            when=within("DRAIN", "SCAN", "VICTIM"),
        )
        self.lemma("no way, full set", full, when=acting & ~has_way)
        self.lemma(
            "still needed",
            inside["need_way"] & has_way & (way == best_way),
            when=within("COUNT", "SPILL", "SPILLED"),
        )
        self.lemma("steps", step <= ways)
        victim = Signal(tag, name="best")
        for n in range(ways):
            self.lemma(
                f"rates {n}", inside["rated_way"] == 1 << n, when=state("SCAN") & (step == n + 1)
            )
            self.lemma(
                f"scanned {n}", inside["seen_way"] == 1 << n, when=state("SCAN") & (step == n)
            )
            self.lemma(
                f"alive {n}",
                inside["rated_alive"] == (read[n].epoch == g.epoch),
                when=state("SCAN")
                & (step == n + 1)
                & (read[n].region == g.region)
                & (read[n].epoch[0] == g.epoch[0]),
            )
            self.lemma(
                f"scans {n}",
                inside["scan_way"] == 1 << n,
                when=state("SCAN") & (step + 1 == n) | (state("DRAIN") if n == 0 else 0),
            )
            with m.If(best_way[n]):
                m.d.comb += victim.eq(read[n])
        chosen = (state("SCAN") & (step > 1)) | within("VICTIM", "COUNT", "SPILL")
        self.lemma("a victim", one_hot(best_way) & (best_key.rank != 0), when=chosen)
        self.lemma("no victim yet", best_key.as_value() == 0, when=state("SCAN") & (step <= 1))
        self.lemma(
            "victim in order",
            Cat(~best_way[n] | (step > n + 1) for n in range(ways)).all(),
            when=state("SCAN") & (step > 1),
        )
        self.lemma(
            "our row as victim",
            g.in_rat
            & (best_way == ours_at)
            & (best_slot.slot == g.slot)
            & (best_key.rank == 2)
            & (best_slot.overflow == g.overflow),
            when=chosen & is_ours(victim),
        )
        self.lemma(
            "old row as victim",
            best_key.rank == 3,
            when=chosen
            & (victim.region == g.region)
            & (victim.epoch[0] == g.epoch[0])
            & (victim.epoch != g.epoch),
        )
        self.lemma("only placed rows spill", best_key.rank == 2, when=within("COUNT", "SPILL"))
        self.lemma(
            "way is free",
            one_hot(way) & ~((way & match) != 0) | g.in_memory,
            when=at_home
            & ~hit
            & has_way
            & within("ACT", "FETCH", "FETCHED", "UNCOUNT", "ERASE", "ERASED", "SPILLED"),
        )
        self.lemma("way is one", one_hot(way), when=has_way & acting & ~hit)
        self.lemma("our row as victim at home", at_home, when=chosen & is_ours(victim))
        # Purges of others.
        bank = inside["purge_bank"]
        purging = g.dut.purging
        self.lemma("purging", purging, when=within("PURGE", "WIPE", "LEAVE"))
        self.lemma(
            "others purged", (bank.region != g.region) | (bank.bank != g.epoch[0]), when=purging
        )

    def _sets(self, m, inside, tag, g):
        """The row's set, and its entries: in memory or on their way there. Every set holds only
        rows of its own: the lowest bits of a RowID are not compared."""
        ways, width = self._cfg.rat_ways, inside["own"].set_width
        array = data.ArrayLayout(tag, ways)
        looked, writing, state = inside["tags.looked"], inside["tags.writing"], inside.state
        in_view = ~Cat(state(name) for name in ("READ", "PURGE", "LEAVE")).any()
        home = Signal(max(1, width), name="home")
        m.d.comb += home.eq(fold_key(g.region, g.epoch[0], g.rowid, width))
        kept = [Signal(tag, name=f"kept{n}") for n in range(ways)]
        for place in range(self._cfg.rat_sets):
            stored = array(inside.word(m, "tags.tag_ram.memory", place, f"stored{place}"))
            here = [Signal(tag, name=f"set{place}_{n}") for n in range(ways)]
            m.d.comb += [
                each.eq(
                    Mux(
                        writing[n] & (looked == place),
                        inside["tags.written"].as_value(),
                        stored[n].as_value(),
                    )
                )
                for n, each in enumerate(here)
            ]
            with m.If(home == place):
                m.d.comb += [each.eq(found) for each, found in zip(kept, here, strict=True)]
            self.lemma(
                f"reads set {place}",
                inside["tags"].tags.as_value() == stored.as_value(),
                when=in_view & (looked == place),
            )
            self.lemma(
                f"set {place} cleared",
                stored.as_value() == 0,
                when=g.dut.clearing & (inside["tags.tag_ram.walk"] > place),
            )
            self.lemma(
                f"rows of set {place}",
                Cat(
                    ~each.valid | (fold_key(each.region, each.epoch[0], each.rowid, width) == place)
                    for each in here
                ).all(),
                when=~g.dut.clearing,
            )
        return home, kept
