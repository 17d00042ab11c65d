# SPDX-License-Identifier: Apache-2.0
"""Promises of the credit books of a link lane (``hub_rtl/link/credits.py``, docs/interfaces.md
section 5)."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.link.credits import CONTROL, DATA, ReceiveCredits, SendCredits

__all__ = ["BadTotalsGiveNothing", "CreditsAreConserved", "ReportsComeInTime"]


def books_lemmas(spec, ranks, send, cls, rank, left, heard, told, hears):
    """What the sender's books hold of a rank with ``left`` credits, ``heard`` its last total;
    ``told``: the one before us."""
    books = observe(send)
    for n in range(ranks):
        mine, none_at = rank == n, books.none_at[cls][n]
        spec.lemma(
            f"credits of class {cls}, rank {n}",
            (books.left[cls][n] == left) & (none_at == (heard - left)[:8]),
            when=mine,
        )
        spec.lemma(
            f"total of class {cls}, rank {n}",
            (books.told[cls] & (books.src[cls] == n)) == hears,
            when=mine,
        )
        spec.lemma(
            f"credits after the total of class {cls}, rank {n}",
            books.after[cls] == (told - none_at)[:8],
            when=mine & hears,
        )


class CreditsAreConserved(Spec):
    """For a peer, in each class, always: credits at the sender + those heard of in the cycle before
    + packets on their way + buffers occupied + freed buffers not reported + reported ones of which
    the sender has not heard = the configured number. So the receiver is never full for an honest
    source, an honest total is never refused, and nothing leaks. Reports may be lost or late, but
    not overtake each other; whatever other ranks do changes nothing."""

    PEER = 1

    def build(self, m):
        cfg, peer = self._cfg, self.PEER
        m.submodules.send = send = SendCredits(cfg)
        m.submodules.receive = receive = ReceiveCredits(cfg)
        self.free_inputs(send)
        self.free_inputs(receive)
        reports = receive.reports
        for cls, limit, take, ready, free, full, name in (
            (DATA, cfg.rx_credits, send.take, send.ready, receive.free, receive.full, "data"),
            (
                CONTROL,
                cfg.ctl_credits,
                send.control_take,
                send.control_ready,
                receive.control_free,
                receive.control_full,
                "control",
            ),
        ):
            # Where each of the peer's `limit` packet buffers stands; and the two running totals
            # that the parts refer to.
            left = Signal(range(limit + 1), init=limit, name=f"{name}_left")
            on_way, occupied, unreported, unheard = (
                Signal(range(limit + 1), name=f"{name}_{what}")
                for what in ("on_way", "occupied", "unreported", "unheard")
            )
            heard, freed, news = (
                Signal(8, name=f"{name}_heard"),
                Signal(8, name=f"{name}_freed"),
                Signal(8),
            )
            gained = Signal(range(limit + 1), name=f"{name}_gained")
            takes, frees = take.en & (take.rank == peer), free.en & (free.rank == peer)
            accepts = receive.accept.en[cls] & (receive.accept.src == peer)
            tells, hears = (
                reports.report[cls] & (reports.dst == peer),
                send.totals.en[cls] & (send.totals.src == peer),
            )
            m.d.comb += news.eq(send.totals.total[cls] - heard)
            m.d.sync += [
                gained.eq(Mux(hears, news, 0)),
                left.eq(left - takes + gained),
                on_way.eq(on_way + takes - accepts),
                occupied.eq(occupied + accepts - frees),
                unreported.eq(Mux(tells, 0, unreported) + frees),
                unheard.eq(unheard + Mux(tells, unreported, 0) - Mux(hears, news, 0)),
                freed.eq(freed + frees),
                heard.eq(heard + Mux(hears, news, 0)),
            ]
            self.suppose(f"{name} taken only when ready", ready[peer], when=takes)
            self.suppose(f"{name} arrives only when sent", on_way != 0, when=accepts)
            self.suppose(f"{name} freed only when occupied", occupied != 0, when=frees)
            self.suppose(f"{name} totals are those told", news <= unheard, when=hears)
            self.always(
                f"{name} credits conserved",
                left + gained + on_way + occupied + unreported + unheard == limit,
            )
            self.always(f"{name} ready exactly with a credit left", ready[peer] == (left != 0))
            self.always(
                f"{name} full exactly without a place",
                full[peer] == (occupied + unreported == limit),
            )
            self.always(f"{name} a packet on its way finds a place", ~full[peer], when=on_way != 0)
            self.always(
                f"{name} total is what was freed",
                reports.total[cls] == freed,
                when=reports.dst == peer,
            )
            self.always(
                f"{name} pending exactly while unreported",
                reports.pending[cls] == (unreported != 0),
                when=reports.dst == peer,
            )
            self.reach(f"{name} all credits out", left == 0)
            books_lemmas(
                self, cfg.ranks, send, cls, peer, left, heard - gained, heard, self.past(hears)
            )
            books = observe(receive)
            self.lemma(f"{name} gained of what was heard", self.past(hears), when=gained != 0)
            self.lemma(
                f"{name} totals",
                (books.freed[cls][peer] == freed) & ((freed - heard)[:8] == unreported + unheard),
            )
            self.lemma(
                f"{name} books",
                (books.room[cls][peer] == limit - occupied - unreported)
                & (books.unreported[cls][peer] == unreported)
                & (books.pending[cls][peer] == (unreported != 0)),
            )
        self.reach("a total is lost", self.past(reports.report.any()) & send.totals.en.any())
        self.always(
            "an honest total is not refused",
            ~send.bad_total,
            when=self.past(send.totals.en.any() & (send.totals.src == peer)),
        )


class BadTotalsGiveNothing(Spec):
    """Whatever a peer announces, it has never more credits than buffers: a total that would give
    more is told by ``bad_total``, and changes nothing; any other gives as many credits as it is
    ahead of the last good one. Other ranks' announcements and takes change nothing. A taken credit
    shows in the next cycle, an announcement in the one after."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.send = send = SendCredits(cfg)
        self.free_inputs(send)
        rank = self.constant(cfg.rank_width, "rank")
        self.suppose("rank exists", rank < cfg.ranks)
        refused = Signal(2)
        for cls, limit, take, ready, name in (
            (DATA, cfg.rx_credits, send.take, send.ready, "data"),
            (CONTROL, cfg.ctl_credits, send.control_take, send.control_ready, "control"),
        ):
            left, heard = (
                Signal(range(limit + 1), init=limit, name=f"{name}_left"),
                Signal(8, name=f"{name}_heard"),
            )
            news, hears, takes = Signal(8, name=f"{name}_news"), Signal(), Signal()
            told = self.past(send.totals.total[cls], f"{name}_told")
            m.d.comb += [
                news.eq(told - heard),
                hears.eq(self.past(send.totals.en[cls] & (send.totals.src == rank))),
                takes.eq(take.en & (take.rank == rank)),
                refused[cls].eq(hears & (news + left > limit)),
            ]
            self.suppose(f"{name} taken only when ready", ready.bit_select(rank, 1), when=takes)
            with m.If(hears & ~refused[cls]):
                m.d.sync += [
                    heard.eq(heard + news),
                    left.eq(left + news - takes),
                ]
            with m.Else():
                m.d.sync += left.eq(left - takes)
            self.always(
                f"{name} ready exactly with a credit left", ready.bit_select(rank, 1) == (left != 0)
            )
            books_lemmas(self, cfg.ranks, send, cls, rank, left, heard, told, hears)
        self.always(
            "impossible totals are told",
            send.bad_total == refused.any(),
            when=self.past(send.totals.src == rank),
        )
        self.always("no totals, none bad", ~send.bad_total, when=~self.past(send.totals.en.any()))
        self.reach("impossible total of each class", refused.all())


class ReportsComeInTime(Spec):
    """A quarter of a rank's buffers (at least one) freed and not reported, of either class, makes
    the rank due at once; anything unreported does within the long interval. So it is reported 8
    cycles later at most, with two ranks, if each CREDIT that is due is taken at once. Shown with
    the interval cut from 256 to 16 cycles."""

    HALF_INTERVAL = 3  # bits; 7 in the hub

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = ReceiveCredits(cfg, tick_bits=self.HALF_INTERVAL)
        reports = dut.reports
        self.free_inputs(dut, but=("reports",))
        rank = self.constant(cfg.rank_width, "rank")
        taken, leaves, leaving = Signal(), Signal(), Signal(cfg.rank_width)
        # The transmitter: a CREDIT leaves in the cycle after the taking, or a header to any rank
        # does.
        other, other_class = Signal(), Signal()
        self.free(other, other_class)
        free_dst = Signal(cfg.rank_width)
        self.free(free_dst)
        m.d.comb += [
            reports.due_take.eq(reports.due),
            taken.eq(reports.due_take),
        ]
        m.d.sync += [
            leaves.eq(taken),
            leaving.eq(reports.due_rank),
        ]
        with m.If(leaves):
            m.d.comb += [
                reports.dst.eq(leaving),
                reports.report.eq(3),
            ]
        with m.Else():
            m.d.comb += [
                reports.dst.eq(free_dst),
                reports.report.eq(Mux(other, Mux(other_class, 2, 1), 0)),
            ]
        for cls, limit, free, name in (
            (DATA, cfg.rx_credits, dut.free, "data"),
            (CONTROL, cfg.ctl_credits, dut.control_free, "control"),
        ):
            count, occupied = (
                Signal(range(limit + 1), name=f"{name}_{what}")
                for what in ("unreported", "occupied")
            )
            frees, accepts = (
                free.en & (free.rank == rank),
                dut.accept.en[cls] & (dut.accept.src == rank),
            )
            tells, age, quarter_age = (
                reports.report[cls] & (reports.dst == rank),
                Signal(6),
                Signal(6),
            )
            m.d.sync += [
                age.eq(Mux(tells | (count == 0), 0, age + 1)),
                quarter_age.eq(Mux(tells | (count < max(1, limit // 4)), 0, quarter_age + 1)),
                count.eq(Mux(tells, 0, count) + frees),
                occupied.eq(occupied + accepts - frees),
            ]
            self.suppose(f"{name} freed only when occupied", occupied != 0, when=frees)
            self.suppose(
                f"{name} accepted only with a place", occupied + count != limit, when=accepts
            )
            self.always(
                f"{name} reported within the interval", age <= (2 << self.HALF_INTERVAL) + 8
            )
            self.always(f"{name} a quarter reported at once", quarter_age <= 8)
