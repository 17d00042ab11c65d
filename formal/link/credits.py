# SPDX-License-Identifier: Apache-2.0
"""Promises of the books of a link's control buffers (``hub_rtl/link/credits.py``,
docs/interfaces.md section 5)."""

from amaranth import Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.link.credits import ReceiveCredits, SendCredits

__all__ = ["BadTotalsGiveNothing", "CreditsAreConserved", "ReportsComeInTime"]


def books_lemmas(spec, ranks, send, rank, left, heard, told, hears):
    """What the sender's books hold of a rank with ``left`` credits, ``heard`` its last total;
    ``told``: the one before us."""
    books = observe(send)
    for n in range(ranks):
        mine, none_at = rank == n, books.none_at[n]
        spec.lemma(
            f"credits of rank {n}",
            (books.left[n] == left) & (none_at == (heard - left)[:8]),
            when=mine,
        )
        spec.lemma(f"total of rank {n}", (books.told & (books.src == n)) == hears, when=mine)
        spec.lemma(
            f"credits after the total of rank {n}",
            books.after == (told - none_at)[:8],
            when=mine & hears,
        )


class CreditsAreConserved(Spec):
    """For a peer, always: credits at the sender + those heard of in the cycle before + flits on
    their way + buffers occupied + freed buffers not reported + reported ones of which the sender
    has not heard = the configured number. So the receiver is never full for an honest source, an
    honest total is never refused, and nothing leaks. Reports may be lost or late, but not overtake
    each other; whatever other ranks do changes nothing."""

    PEER = 1

    def build(self, m):
        cfg, peer, limit = self._cfg, self.PEER, self._cfg.ctl_credits
        m.submodules.send = send = SendCredits(cfg)
        m.submodules.receive = receive = ReceiveCredits(cfg)
        self.free_inputs(send)
        self.free_inputs(receive)
        reports, take, free = receive.reports, send.take, receive.free
        # Where each of the peer's `limit` buffers stands; and the two running totals that the parts
        # refer to.
        left = Signal(range(limit + 1), init=limit)
        gained = Signal(range(limit + 1))
        on_way, occupied, unreported, unheard = (
            Signal(range(limit + 1), name=what)
            for what in ("on_way", "occupied", "unreported", "unheard")
        )
        heard = Signal(8)
        freed = Signal(8)
        news = Signal(8)
        takes, frees = take.en & (take.rank == peer), free.en & (free.rank == peer)
        accepts = receive.accept.en & (receive.accept.rank == peer)
        tells = reports.report & (reports.dst == peer)
        hears = send.total.en & (send.total.rank == peer)
        m.d.comb += news.eq(send.total.total - heard)
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
        ready, full = send.ready, receive.full
        self.suppose("taken only when ready", ready[peer], when=takes)
        self.suppose("arrives only when sent", on_way != 0, when=accepts)
        self.suppose("freed only when occupied", occupied != 0, when=frees)
        self.suppose("totals are those told", news <= unheard, when=hears)
        self.always(
            "credits conserved", left + gained + on_way + occupied + unreported + unheard == limit
        )
        self.always("ready exactly with a credit left", ready[peer] == (left != 0))
        self.always("full exactly without a place", full[peer] == (occupied + unreported == limit))
        self.always("a flit on its way finds a place", ~full[peer], when=on_way != 0)
        self.always("total is what was freed", reports.total == freed, when=reports.dst == peer)
        self.reach("all credits out", left == 0)
        self.reach("a total is lost", self.past(reports.report) & send.total.en)
        self.always("an honest total is not refused", ~send.bad_total, when=self.past(hears))
        books_lemmas(self, cfg.ranks, send, peer, left, heard - gained, heard, self.past(hears))
        books = observe(receive)
        self.lemma("gained of what was heard", self.past(hears), when=gained != 0)
        self.lemma(
            "totals", (books.freed[peer] == freed) & ((freed - heard)[:8] == unreported + unheard)
        )
        self.lemma(
            "books",
            (books.room[peer] == limit - occupied - unreported)
            & (books.unreported[peer] == unreported)
            & (books.pending[peer] == (unreported != 0)),
        )


class BadTotalsGiveNothing(Spec):
    """Whatever a peer announces, it has never more credits than buffers: a total that would give
    more is told by ``bad_total``, and changes nothing; any other gives as many credits as it is
    ahead of the last good one. Other ranks' announcements and takes change nothing. A taken credit
    shows in the next cycle, an announcement in the one after."""

    def build(self, m):
        cfg, limit = self._cfg, self._cfg.ctl_credits
        m.submodules.send = send = SendCredits(cfg)
        self.free_inputs(send)
        rank = self.constant(cfg.rank_width, "rank")
        self.suppose("rank exists", rank < cfg.ranks)
        said, take, ready = send.total, send.take, send.ready
        left = Signal(range(limit + 1), init=limit)
        heard = Signal(8)
        news = Signal(8)
        hears = Signal()
        takes = Signal()
        refused = Signal()
        told = self.past(said.total, "told")
        m.d.comb += [
            news.eq(told - heard),
            hears.eq(self.past(said.en & (said.rank == rank))),
            takes.eq(take.en & (take.rank == rank)),
            refused.eq(hears & (news + left > limit)),
        ]
        self.suppose("taken only when ready", ready.bit_select(rank, 1), when=takes)
        with m.If(hears & ~refused):
            m.d.sync += [
                heard.eq(heard + news),
                left.eq(left + news - takes),
            ]
        with m.Else():
            m.d.sync += left.eq(left - takes)
        self.always("ready exactly with a credit left", ready.bit_select(rank, 1) == (left != 0))
        books_lemmas(self, cfg.ranks, send, rank, left, heard, told, hears)
        self.always(
            "impossible totals are told",
            send.bad_total == refused,
            when=self.past(said.rank == rank),
        )
        self.always("no total, none bad", ~send.bad_total, when=~self.past(said.en))
        self.reach("an impossible total", refused)


class ReportsComeInTime(Spec):
    """A quarter of a rank's buffers (at least one) freed and not reported makes the rank due at
    once; anything unreported does within the long interval. So it is reported 8 cycles later at
    most, with two ranks, if each CREDIT that is due is taken at once. Shown with the interval cut
    from 256 to 16 cycles."""

    HALF_INTERVAL = 3  # bits; 7 in the hub

    def build(self, m):
        cfg, limit = self._cfg, self._cfg.ctl_credits
        m.submodules.dut = dut = ReceiveCredits(cfg, tick_bits=self.HALF_INTERVAL)
        reports = dut.reports
        self.free_inputs(dut, but=("reports",))
        rank = self.constant(cfg.rank_width, "rank")
        leaves = Signal()
        leaving = Signal(cfg.rank_width)
        # The transmitter: a CREDIT leaves in the cycle after the taking, or a header to any rank
        # does.
        other = Signal()
        free_dst = Signal(cfg.rank_width)
        self.free(other, free_dst)
        m.d.comb += reports.due_take.eq(reports.due)
        m.d.sync += [
            leaves.eq(reports.due_take),
            leaving.eq(reports.due_rank),
        ]
        with m.If(leaves):
            m.d.comb += [
                reports.dst.eq(leaving),
                reports.report.eq(1),
            ]
        with m.Else():
            m.d.comb += [
                reports.dst.eq(free_dst),
                reports.report.eq(other),
            ]
        count = Signal(range(limit + 1))
        occupied = Signal(range(limit + 1))
        frees = dut.free.en & (dut.free.rank == rank)
        accepts = dut.accept.en & (dut.accept.rank == rank)
        tells = reports.report & (reports.dst == rank)
        age = Signal(6)
        quarter_age = Signal(6)
        m.d.sync += [
            age.eq(Mux(tells | (count == 0), 0, age + 1)),
            quarter_age.eq(Mux(tells | (count < max(1, limit // 4)), 0, quarter_age + 1)),
            count.eq(Mux(tells, 0, count) + frees),
            occupied.eq(occupied + accepts - frees),
        ]
        self.suppose("freed only when occupied", occupied != 0, when=frees)
        self.suppose("accepted only with a place", occupied + count != limit, when=accepts)
        self.always("reported within the interval", age <= (2 << self.HALF_INTERVAL) + 8)
        self.always("a quarter reported at once", quarter_age <= 8)
