# SPDX-License-Identifier: Apache-2.0
"""Credit books of a link lane: what may be sent, and what must be reported.

Credits are counted in packet buffers, in two classes: ``DATA`` (ROW, PLAIN, NEWS) and ``CONTROL``
(REJECT). Both ends start with the configured numbers from reset; afterwards only free-running
totals mod 256 cross the link, so a lost or repeated report heals with the next one.
"""

from typing import NamedTuple

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import CLASSES
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant

from .records import link_types_of

__all__ = [
    "DATA",
    "CONTROL",
    "ReportSignature",
    "SendCredits",
    "ReceiveCredits",
]

DATA, CONTROL = 0, 1
TICK_BITS = 7  # half of the 256 cycles after which anything unreported is reported


def _of_rank(values, rank):
    """The value of a rank; unused rank numbers give 0, which keeps the case statement complete."""
    return Array([*values, *(Const(0) for _ in range((1 << len(rank)) - len(values)))])[rank]


class ReportSignature(wiring.Signature):
    """Between the transmitter and :class:`ReceiveCredits`, seen from the transmitter.

    ``dst`` names a rank; ``total`` and ``pending`` (unreported buffers exist) per class answer in
    the same cycle. ``report``: the totals of these classes leave for ``dst`` in this cycle.
    ``due``: ``due_rank`` needs a CREDIT flit; ``due_take``: one is on its way; it must be reported
    (both classes at once) before the next is taken.
    """

    def __init__(self, cfg):
        super().__init__(
            {
                "dst": Out(cfg.rank_width),
                "total": In(link_types_of(cfg).total),
                "pending": In(CLASSES),
                "report": Out(CLASSES),
                "due": In(1),
                "due_rank": In(cfg.rank_width),
                "due_take": Out(1),
            }
        )


class SendCreditsObserve(NamedTuple):
    """What a proof may see of :class:`SendCredits`: registers, of each a list by class; in it,
    where it says so, one per rank."""

    left: list  #: per rank, credits left
    none_at: list  #: per rank, the total at which none would be left
    told: list  #: a total came in the cycle before
    src: list  #: whose
    after: list  #: the credits that it leaves, were it good


class SendCredits(wiring.Component):
    """Credits for sending: how many packets each peer has room for.

    A taken credit shows in the next cycle, an announced total one later. One announcement per
    cycle, both classes at once. An announcement that would leave more credits than the peer has
    buffers is ignored and counted: a garbled or stale total neither gives credits nor disturbs the
    honest totals after it. ``take`` and ``control_take`` only while the rank's ready bit is set.

    Parameters: ``cfg``. Ports: ``take``, ``control_take`` In {en, rank}; ``totals`` In
    record ``totals``; ``ready``, ``control_ready`` Out ``ranks``, registers; ``bad_total`` Out,
    strobe in the cycle after the total.
    """

    observe: SendCreditsObserve  # once elaborated

    def __init__(self, cfg):
        strobe = types_of(cfg).rank_strobe
        super().__init__(
            {
                "take": In(strobe),
                "control_take": In(strobe),
                "totals": In(link_types_of(cfg).totals),
                "ready": Out(cfg.ranks, init=(1 << cfg.ranks) - 1),
                "control_ready": Out(cfg.ranks, init=(1 << cfg.ranks) - 1),
                "bad_total": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, totals = self._cfg, self.totals
        bad = Signal(2)
        self.observe = SendCreditsObserve([], [], [], [], [])
        for cls, limit, take, ready in (
            (DATA, cfg.rx_credits, self.take, self.ready),
            (CONTROL, cfg.ctl_credits, self.control_take, self.control_ready),
        ):
            # Per rank: credits left, and the total at which none would be (the packets sent, less
            # the buffers, mod 256).
            left = [
                Signal(range(limit + 1), init=limit, name=f"left{cls}_{n}")
                for n in range(cfg.ranks)
            ]
            none_at = [
                Signal(8, init=256 - limit, name=f"none_at{cls}_{n}") for n in range(cfg.ranks)
            ]
            # First cycle: the credits that the total leaves, were it good; a credit taken meanwhile
            # is one less.
            told, src = Signal(name=f"told{cls}"), Signal(cfg.rank_width, name=f"src{cls}")
            after, total, none = (
                Signal(8, name=f"after{cls}"),
                totals.total[cls],
                Signal(8, name=f"none{cls}"),
            )
            for each, seen in zip(self.observe, (left, none_at, told, src, after), strict=True):
                each.append(seen)
            m.d.comb += none.eq(_of_rank(none_at, totals.src))
            m.d.sync += [
                told.eq(totals.en[cls]),
                src.eq(totals.src),
                after.eq(Mux(take.en & (take.rank == totals.src), total + ~none, total - none)),
            ]  # + ~x: - x - 1
            # Second cycle: it is good if it takes none away and gives no more than there are
            # buffers.
            possible = Signal(name=f"possible{cls}")
            m.d.comb += [
                possible.eq(
                    mutant(
                        "link.total_above_limit_counts",
                        (after <= limit) & (after >= _of_rank(left, src)),
                        after >= _of_rank(left, src),
                    )
                ),
                bad[cls].eq(told & ~possible),
            ]
            for n in range(cfg.ranks):
                good, taken = told & possible & (src == n), take.en & (take.rank == n)
                m.d.sync += [
                    left[n].eq(Mux(good, after - taken, left[n] - taken)),
                    ready[n].eq(Mux(good, after != taken, Mux(taken, left[n] != 1, ready[n]))),
                ]
                with m.If(taken):
                    m.d.sync += none_at[n].eq(none_at[n] + 1)
        m.d.comb += self.bad_total.eq(bad.any())
        return m


class ReceiveCreditsObserve(NamedTuple):
    """What a proof may see of :class:`ReceiveCredits`: registers, of each a list by class; in it
    one per source."""

    freed: list  #: packets freed, modulo 256
    room: list  #: what the source may still send
    unreported: list  #: freed and not yet reported
    pending: list  #: one signal, a bit per source: something is unreported


class ReceiveCredits(wiring.Component):
    """Buffers of this lane, per source: which are used, which have been freed and not yet reported.

    A buffer is used from ``accept`` until its free has been *reported*, so ``full`` is exactly "the
    source has used up what it was told". A CREDIT is due when a quarter of the buffers (at least
    one) is unreported, or when anything has been unreported for 128 to 256 cycles: at two ticks,
    the last of each 128 cycles since reset, after each other. Due ranks are served round-robin; a
    rank whose totals left with another header meanwhile is passed over. Picking takes one cycle;
    all updates show in the next cycle.

    Parameters: ``cfg``; ``tick_bits``, the ticks are 2**tick_bits cycles apart.

    Ports: ``accept`` In {en per class, src}; ``free``, ``control_free`` In
    {en, rank}; ``full``, ``control_full`` Out ``ranks``; ``reports`` In :class:`ReportSignature`.
    """

    observe: ReceiveCreditsObserve  # once elaborated

    def __init__(self, cfg, tick_bits=TICK_BITS):
        strobe = types_of(cfg).rank_strobe
        super().__init__(
            {
                "accept": In(link_types_of(cfg).accept),
                "free": In(strobe),
                "control_free": In(strobe),
                "full": Out(cfg.ranks),
                "control_full": Out(cfg.ranks),
                "reports": In(ReportSignature(cfg)),
            }
        )
        self._cfg, self._tick_bits = cfg, tick_bits

    def elaborate(self, platform):
        m = Module()
        ranks = self._cfg.ranks
        pending = [Signal(ranks, name=f"pending{cls}") for cls in (DATA, CONTROL)]
        enough = [Signal(ranks, name=f"enough{cls}") for cls in (DATA, CONTROL)]
        self.observe = ReceiveCreditsObserve([], [], [], pending)
        self._count(m, pending, enough)
        late = self._age(m, pending)
        self._serve(m, enough, late)
        return m

    def _count(self, m, pending, enough):
        """Per class and source: what it may still send, what is freed and not yet reported."""
        cfg, reports, ranks = self._cfg, self.reports, self._cfg.ranks
        for cls, limit, free, full in (
            (DATA, cfg.rx_credits, self.free, self.full),
            (CONTROL, cfg.ctl_credits, self.control_free, self.control_full),
        ):
            freed = [Signal(8, name=f"freed{cls}_{n}") for n in range(ranks)]
            rooms = [
                Signal(range(limit + 1), init=limit, name=f"room{cls}_{n}") for n in range(ranks)
            ]  # what the source may still send
            counts = [Signal(range(limit + 1), name=f"unreported{cls}_{n}") for n in range(ranks)]
            self.observe.freed.append(freed)
            self.observe.room.append(rooms)
            self.observe.unreported.append(counts)
            m.d.comb += [
                reports.total[cls].eq(_of_rank(freed, reports.dst)),
                reports.pending[cls].eq(pending[cls].bit_select(reports.dst, 1)),
            ]
            for n, (room, unreported) in enumerate(zip(rooms, counts, strict=True)):
                is_freed = mutant(
                    "link.place_free_when_let_in",
                    free.en & (free.rank == n),
                    self.accept.en[cls] & (self.accept.src == n),
                )
                accepts = self.accept.en[cls] & (self.accept.src == n)
                reported = reports.report[cls] & (reports.dst == n)
                after_report, quarter = room + unreported, max(1, limit // 4)
                one_more = 1 if quarter == 1 else unreported >= quarter - 1  # is enough
                with m.If(is_freed):
                    m.d.sync += freed[n].eq(freed[n] + 1)
                m.d.sync += [
                    unreported.eq(Mux(reported, 0, unreported) + is_freed),
                    # Each outcome is computed, then one chosen; what the others look at is known a
                    # cycle ahead.
                    room.eq(
                        Mux(
                            mutant(
                                "link.freed_place_reported_twice", reported, reported | is_freed
                            ),
                            Mux(accepts, after_report - 1, after_report),
                            Mux(accepts, room - 1, room),
                        )
                    ),
                    full[n].eq(
                        Mux(
                            reported,
                            Mux(accepts, after_report == 1, after_report == 0),
                            Mux(accepts, room == 1, full[n]),
                        )
                    ),
                    pending[cls][n].eq(is_freed | (pending[cls][n] & ~reported)),
                    enough[cls][n].eq(
                        Mux(
                            reported,
                            is_freed & int(quarter == 1),
                            Mux(is_freed, one_more, enough[cls][n]),
                        )
                    ),
                ]

    def _age(self, m, pending):
        """The sources of which something has been unreported for long enough."""
        reports, ranks = self.reports, self._cfg.ranks
        # A shared tick marks what is pending; what is still pending and marked at the next tick has
        # waited long enough.
        tick = Signal(self._tick_bits)
        marked, late = Signal(ranks), Signal(ranks)
        m.d.sync += tick.eq(tick + 1)
        for n in range(ranks):
            waiting = pending[DATA][n] | pending[CONTROL][n]
            left = Cat(pending[DATA][n], pending[CONTROL][n]) & ~reports.report
            with m.If(
                (reports.dst == n) & ~left.any()
            ):  # without a report: nothing is pending, so nothing is marked
                m.d.sync += [
                    marked[n].eq(0),
                    late[n].eq(0),
                ]
            with m.Elif(tick.all()):
                m.d.sync += [
                    marked[n].eq(waiting),
                    late[n].eq(
                        mutant("link.report_never_late", late[n] | (marked[n] & waiting), late[n])
                    ),
                ]
        return late

    def _serve(self, m, enough, late):
        """Takes the sources that are due in turn, and offers one at a time for a CREDIT flit."""
        cfg, reports, ranks = self._cfg, self.reports, self._cfg.ranks
        m.submodules.arbiter = arbiter = RoundRobin(ranks)
        due, sending, pick = (
            Signal(ranks),
            Signal(ranks),
            Signal(ranks),
        )  # pick and sending: one-hot or none
        m.d.comb += [
            due.eq((enough[DATA] | enough[CONTROL] | late) & ~sending),
            reports.due.eq((pick & due).any()),
            arbiter.requests.eq(due & ~Mux(reports.due_take, pick, 0)),
            arbiter.advance.eq(~reports.due | reports.due_take),
        ]
        with m.If(arbiter.advance):
            m.d.sync += pick.eq(arbiter.grant_onehot)
            for bit in range(cfg.rank_width):
                m.d.sync += reports.due_rank[bit].eq(
                    Cat(arbiter.grant_onehot[n] for n in range(ranks) if n >> bit & 1).any()
                )
        with m.If(reports.due_take):
            m.d.sync += sending.eq(pick)
        with m.Elif(reports.report.all()):
            m.d.sync += sending.eq(0)
