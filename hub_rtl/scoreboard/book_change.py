# SPDX-License-Identifier: Apache-2.0
"""What an operation of the scoreboard does to the book of its bank."""

from typing import NamedTuple

from amaranth import Const, Mux, Signal
from amaranth.lib import data

from hub_rtl.contract.fields import REASON
from hub_rtl.contract.packets import Reason, RegionState
from hub_rtl.parts.mutants import mutant

from .records import TICKS, OpKind

__all__ = ["Change", "Stage", "change", "decide", "tell_status"]


class Stage(NamedTuple):
    """An operation in the cycle in which its book is changed, and what is known of it by then: all
    but ``now`` are registers."""

    valid: Signal
    op: data.View
    was: data.View  #: its book
    now: data.View  #: the book as it becomes
    shape: data.View  #: the region's geometry
    hit: Signal  #: of its tile, by TileCounters: READY follows
    over: Signal
    live: Signal
    held: Signal
    full_rows: Signal
    does: dict  #: by kind of operation: it is one
    acks: Signal  #: an acknowledgement of a region
    plain_ack: Signal  #: one of a dependency range
    news: Signal  #: of refused bytes, or of a producer
    answers: Signal  #: somebody waits for the result
    fails: Signal  #: a verdict that the bank cannot be complete
    homeless: Signal  #: ORPHAN names the region into which this one overflows
    fit: data.View  #: see :data:`FIT`


class Change(NamedTuple):
    """What an operation does to its book, and what of it others have to know."""

    busy: Signal  #: the bank is not FREE
    opened: Signal  #: the bank is OPEN
    opens: Signal
    kept: Signal  #: news of the epoch that would be opened are there
    forgets: Signal  #: the bank goes back to never opened
    take: Signal  #: news of this epoch or the next
    stands: Signal  #: that change something
    tells: Signal  #: for the first time
    closes: Signal  #: for the first time
    resets: Signal  #: what was told or refused changes, on which the aim rests
    fail: Signal  #: bad news for an open bank
    ok: Signal  #: an order is carried out
    moved: Signal  #: some total grows
    ends: Signal  #: the finisher's ALL
    bad_news: Signal
    ready_tile: Signal
    rest_there: Signal  #: the last tile was looked for and is there, as an ACK found it
    rest_ready: Signal  #: the same, as the AIM found it
    broken: Signal
    aborts: Signal
    orphaned: Signal
    status: Signal  #: reason of an ERROR


def decide(m, at):
    """The :class:`Change` that an operation makes."""
    op, was, does, fit = at.op, at.was, at.does, at.fit
    same, early, acks = fit.same, fit.early, at.acks
    busy = Signal()
    opened = Signal()
    opens = Signal()
    kept = Signal()
    forgets = Signal()
    take = Signal()
    stands = Signal()
    says = Signal()
    tells = Signal()
    closes = Signal()
    resets = Signal()
    fail = Signal()
    status = Signal(REASON)
    ok = Signal()
    moved = Signal()
    ends = Signal()
    bad_news = op.mem | op.poison | at.over
    ready_tile = (
        acks
        & does[OpKind.ACK]
        & mutant("scoreboard.ready_after_the_end", opened, busy)
        & at.hit
        & ~bad_news
    )
    rest_there = (
        acks
        & does[OpKind.ACK]
        & was.aim.known
        & ~was.rest
        & (op.group == was.aim.group)
        & (at.held == was.aim.bytes)
    )
    rest_ready = does[OpKind.AIM] & opened & same & at.hit
    broken = op.close & (op.abort | op.exceeds)
    aborts = does[OpKind.ABORT] & same & busy
    orphaned = does[OpKind.ORPHAN] & at.homeless & same & busy
    m.d.comb += [
        busy.eq(was.state != RegionState.FREE),
        opened.eq(was.state == RegionState.OPEN),
        opens.eq(
            does[OpKind.OPEN]
            & ~busy
            & at.shape.valid
            & mutant("scoreboard.tainted_bank_opens_old_epoch", early, early | was.taint.any())
        ),
        forgets.eq(does[OpKind.FORGET] & ~busy),
        kept.eq(was.held & fit.mine),
        take.eq(
            fit.current
            | mutant(
                "scoreboard.news_of_busy_bank_dropped",
                mutant("scoreboard.news_of_other_owner_taken", early & fit.mine, early),
                early & fit.mine & ~busy,
            )
        ),
        says.eq((does[OpKind.NEWS] | does[OpKind.PASS]) & take),
        tells.eq(says & op.tell & mutant("scoreboard.told_twice_counts", ~fit.told, 1)),
        closes.eq(says & op.close & ~fit.closed),
        stands.eq((does[OpKind.REFUSE] & take) | tells | closes),
        resets.eq(((does[OpKind.REFUSE] & take) | tells) & fit.current),
        moved.eq((acks & busy) | (stands & fit.current)),
        ends.eq(does[OpKind.FINISH] & opened & same & ~at.fails),
        ok.eq(
            opens
            | forgets
            | (
                does[OpKind.RELEASE]
                & same
                & (mutant("scoreboard.busy_bank_released", was.state == RegionState.DONE, busy))
            )
            | aborts
            | does[OpKind.FREE]
            | ((does[OpKind.FINISH] | does[OpKind.AIM]) & opened & same)
        ),
        fail.eq(
            (
                opened
                & (
                    (acks & bad_news)
                    | (closes & same & broken)
                    | does[OpKind.OVERLAP]
                    | (does[OpKind.FINISH] & same & at.fails)
                    | orphaned
                )
            )
            | (opens & (fit.lost | (kept & was.next.broken)))
        ),
    ]
    return Change(
        busy,
        opened,
        opens,
        kept,
        forgets,
        take,
        stands,
        tells,
        closes,
        resets,
        fail,
        ok,
        moved,
        ends,
        bad_news,
        ready_tile,
        rest_there,
        rest_ready,
        broken,
        aborts,
        orphaned,
        status,
    )


def tell_status(m, at, do):
    """The reason of an ERROR."""
    op, was, status = at.op, at.was, do.status
    with m.Switch(op.kind):
        with m.Case(OpKind.ACK, OpKind.OVER):
            m.d.comb += status.eq(
                mutant(
                    "scoreboard.overlap_before_memory_error",
                    Mux(
                        op.mem,
                        Reason.MEM_ERROR,
                        Mux(at.over, Reason.OVERLAP, Reason.INCOMPLETE),
                    ),
                    Mux(
                        at.over,
                        Reason.OVERLAP,
                        Mux(op.mem, Reason.MEM_ERROR, Reason.INCOMPLETE),
                    ),
                )
            )
        with m.Case(OpKind.OVERLAP):
            m.d.comb += status.eq(Reason.OVERLAP)
        with m.Case(OpKind.OPEN):
            m.d.comb += status.eq(
                Mux(
                    at.fit.lost,
                    Reason.EPOCH_EARLY,
                    Mux(was.next.exceeded, Reason.OVERLAP, Reason.INCOMPLETE),
                )
            )
        with m.Case(OpKind.NEWS, OpKind.PASS):
            m.d.comb += status.eq(Mux(op.abort, Reason.INCOMPLETE, Reason.OVERLAP))
        with m.Case(OpKind.FINISH):
            m.d.comb += status.eq(op.status)
        with m.Default():
            m.d.comb += status.eq(Reason.INCOMPLETE)


def change(m, types, at, do, timeout):
    """The book after the operation; ``timeout`` is 1 when the stall clock makes a report.
    ``types``: of :func:`~hub_rtl.scoreboard.records.scoreboard_types`."""
    op, was, now, does = at.op, at.was, at.now, at.does
    m.d.comb += now.eq(was)
    with m.If(at.acks & do.busy):
        m.d.comb += now.acked.eq(was.acked + op.bytes)
        with m.If(does[OpKind.OVER]):
            m.d.comb += [
                now.over.eq(was.over + op.bytes),
                now.touched.eq(1),
            ]
    with m.If(do.ready_tile):
        m.d.comb += now.tiles.eq(was.tiles + 1)
    account = _account(m, types, op, at.fit, was, does, do.tells, do.closes, do.broken)
    with m.If(do.stands & at.fit.current):
        m.d.comb += now.account.eq(account)
    with m.If(do.resets):
        m.d.comb += [
            now.looked.eq(0),
            now.aim.known.eq(mutant("scoreboard.aim_outlives_account", 0, was.aim.known)),
        ]
    with m.If(at.news & do.take & ~at.fit.current):
        m.d.comb += [
            now.next.eq(account),
            now.held.eq(1),
            now.tag.eq(op.epoch[1:]),
        ]
    with m.If(does[OpKind.LOOK] & do.opened & (op.source == 0)):
        m.d.comb += now.looked.eq(1)
    with m.If(does[OpKind.AIM] & do.opened & at.fit.same):
        m.d.comb += [
            now.promised.eq(was.promised | op.tell),
            now.rest.eq(was.rest | at.hit),
        ]
        with m.If(mutant("scoreboard.old_aim_is_kept", was.looked, 1)):
            m.d.comb += [
                now.aim.known.eq(1),
                now.aim.exact.eq(op.exact),
                now.aim.rows.eq(op.rows),
                now.aim.group.eq(op.group),
                now.aim.bytes.eq(op.bytes),
            ]
    with m.If(
        mutant(
            "scoreboard.late_news_do_not_taint",
            at.news & ~do.take,
            at.news & ~do.take & at.fit.early,
        )
    ):
        m.d.comb += now.taint.eq(was.taint | (Const(1, 8) << op.epoch[1:])[:8])
    with m.If(do.moved):
        m.d.comb += [
            now.moved.eq(1),
            now.seen.eq(1),
        ]
    with m.If(do.ends):
        m.d.comb += [
            now.passed.eq(1),
            now.account.brought.eq(op.rows),
        ]
    with m.If(do.orphaned):  # what it would tell is of an opening that is over
        m.d.comb += now.passed.eq(1)
    _tick(m, does[OpKind.TICK] & do.opened & was.seen, was, now, timeout)
    with m.If(does[OpKind.FREE] | do.opens | do.forgets):
        m.d.comb += now.eq(0)
    with m.If(does[OpKind.FREE]):  # only the history stays, and what is of the next epoch
        m.d.comb += [
            now.epoch.eq(was.epoch),
            now.used.eq(1),
            now.taint.eq(was.taint),
            now.held.eq(was.held),
            now.tag.eq(was.tag),
            now.next.eq(was.next),
        ]
    with m.If(do.opens | do.forgets):
        _taints(m, op, was, now, do.kept, do.forgets)
    with m.If(do.opens):
        m.d.comb += [
            now.state.eq(RegionState.OPEN),
            now.epoch.eq(op.epoch),
            now.used.eq(1),
            now.seen.eq(do.kept),
            now.moved.eq(do.kept),
        ]
        with m.If(do.kept):
            m.d.comb += now.account.eq(was.next)
    with m.If(do.ends | do.aborts | do.fail):
        m.d.comb += now.state.eq(RegionState.DONE)
    with m.If(do.fail):
        m.d.comb += now.status.eq(do.status)


def _account(m, types, op, fit, was, does, tells, closes, broken):
    """The account that news are of, the present one or the next, after them."""
    old, new = Signal(types.account, name="account_was"), Signal(types.account, name="account")
    ranks = len(was.account.told)
    source = Mux(does[OpKind.NEWS], (Const(1, ranks) << op.src)[:ranks], 0)
    m.d.comb += [
        old.eq(Mux(fit.current, was.account, was.next)),
        new.eq(old),
    ]
    with m.If(does[OpKind.REFUSE]):
        m.d.comb += new.refused.eq(old.refused + op.bytes)
    with m.If(tells):
        m.d.comb += [
            new.told.eq(old.told | source),
            new.num_told.eq(old.num_told + 1),
            new.sent.eq(mutant("scoreboard.sent_is_of_last_close", old.sent + op.bytes, op.bytes)),
        ]
    with m.If(closes):
        m.d.comb += [
            new.closes.eq(old.closes | source),
            new.num_closes.eq(old.num_closes + 1),
            new.brought.eq(old.brought + op.rows),
            new.broken.eq(old.broken | broken),
        ]
        with m.If(broken & ~old.broken):
            m.d.comb += new.exceeded.eq(~op.abort)
        with m.If(broken & ~old.blame.valid & does[OpKind.NEWS]):
            m.d.comb += [
                new.blame.valid.eq(1),
                new.blame.rank.eq(op.src),
            ]
    return new


def _taints(m, op, was, now, kept, forgets):
    """OPEN, FORGET: what was kept for an epoch that is not opened now is dropped and taints
    that one.

    FORGET keeps all taints. OPEN uses up its own epoch's, and those of epochs that are over
    with it; before the first OPEN none is.
    """
    bits = Signal(8)
    dropped = was.held & (forgets | ~kept)
    m.d.comb += bits.eq(was.taint | Mux(dropped, (Const(1, 8) << was.tag)[:8], 0))
    for n in range(8):
        ahead = (Const(n, 3) - op.epoch[1:])[:3]
        stays = forgets | (ahead.any() & (~was.used | (ahead <= 3)))
        m.d.comb += now.taint[n].eq(bits[n] & stays)


def _tick(m, runs, was, now, timeout):
    """Stall clock: four ticks without motion after the tick that saw the last motion make one
    report."""
    with m.If(runs & was.moved):
        m.d.comb += [
            now.moved.eq(0),
            now.ticks.eq(0),
            now.reported.eq(0),
        ]
    with m.Elif(runs & ~was.reported):
        m.d.comb += [
            now.ticks.eq(was.ticks + 1),
            now.reported.eq(was.ticks == TICKS - 1),
        ]
        m.d.comb += timeout.eq(
            mutant(
                "scoreboard.stall_one_tick_early",
                was.ticks == TICKS - 1,
                was.ticks == TICKS - 2,
            )
        )
