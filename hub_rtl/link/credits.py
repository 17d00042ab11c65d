# SPDX-License-Identifier: Apache-2.0
"""Books of the control buffers (REJECT) of a link: what may be sent, and what must be reported.

Both ends start with ``ctl_credits`` from reset; afterwards only free-running totals mod 256 cross
the link, so a lost or repeated report heals with the next one.
"""

from typing import NamedTuple

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import CREDIT
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant

from .records import link_types_of

__all__ = ["ReportSignature", "SendCredits", "ReceiveCredits"]

TICK_BITS = 7  # half of the 256 cycles after which anything unreported is reported


def _of_rank(values, rank):
    """The value of a rank; unused rank numbers give 0, which keeps the case statement complete."""
    return Array([*values, *(Const(0) for _ in range((1 << len(rank)) - len(values)))])[rank]


class ReportSignature(wiring.Signature):
    """Between the transmitter and :class:`ReceiveCredits`, seen from the transmitter.

    ``dst`` names a rank; ``total`` answers in the same cycle. ``report``: it leaves for ``dst`` in
    this cycle. ``due``: ``due_rank`` needs a CREDIT flit; ``due_take``: one is on its way; it must
    be reported before the next is taken.
    """

    def __init__(self, cfg):
        super().__init__(
            {
                "dst": Out(cfg.rank_width),
                "total": In(CREDIT),
                "report": Out(1),
                "due": In(1),
                "due_rank": In(cfg.rank_width),
                "due_take": Out(1),
            }
        )


class SendCreditsObserve(NamedTuple):
    """What a proof may see of :class:`SendCredits`: registers; in a list, one per rank."""

    left: list  #: credits left
    none_at: list  #: the total at which none would be left
    told: Signal  #: a total came in the cycle before
    src: Signal  #: whose
    after: Signal  #: the credits that it leaves, were it good


class SendCredits(wiring.Component):
    """Credits for sending: how many control flits each peer has room for.

    A taken credit shows in the next cycle, an announced total one later. One announcement per
    cycle. An announcement that would leave more credits than the peer has buffers is ignored and
    counted: a garbled or stale total neither gives credits nor disturbs the honest totals after it.
    ``take`` only while the rank's ready bit is set.

    Parameters: ``cfg``. Ports: ``take`` In {en, rank}; ``total`` In {en, rank, total}; ``ready``
    Out ``ranks``, registers; ``bad_total`` Out, strobe in the cycle after the total.
    """

    observe: SendCreditsObserve  # once elaborated

    def __init__(self, cfg):
        super().__init__(
            {
                "take": In(types_of(cfg).rank_strobe),
                "total": In(link_types_of(cfg).total),
                "ready": Out(cfg.ranks, init=(1 << cfg.ranks) - 1),
                "bad_total": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        ranks, limit = self._cfg.ranks, self._cfg.ctl_credits
        take, said = self.take, self.total
        # Per rank: credits left, and the total at which none would be (the flits sent, less the
        # buffers, mod 256).
        left = [Signal(range(limit + 1), init=limit, name=f"left_{n}") for n in range(ranks)]
        none_at = [
            Signal(CREDIT, init=(1 << CREDIT) - limit, name=f"none_at_{n}") for n in range(ranks)
        ]
        # First cycle: the credits that the total leaves, were it good; a credit taken meanwhile is
        # one less.
        told = Signal()
        src = Signal(self._cfg.rank_width)
        after = Signal(CREDIT)
        none = Signal(CREDIT)
        self.observe = SendCreditsObserve(left, none_at, told, src, after)
        m.d.comb += none.eq(_of_rank(none_at, said.rank))
        m.d.sync += [
            told.eq(said.en),
            src.eq(said.rank),
            # + ~x: - x - 1
            after.eq(
                Mux(take.en & (take.rank == said.rank), said.total + ~none, said.total - none)
            ),
        ]
        # Second cycle: it is good if it takes none away and gives no more than there are buffers.
        possible = Signal()
        m.d.comb += [
            possible.eq(
                mutant(
                    "link.total_above_limit_counts",
                    (after <= limit) & (after >= _of_rank(left, src)),
                    after >= _of_rank(left, src),
                )
            ),
            self.bad_total.eq(told & ~possible),
        ]
        for n in range(ranks):
            good, taken = told & possible & (src == n), take.en & (take.rank == n)
            m.d.sync += [
                left[n].eq(Mux(good, after - taken, left[n] - taken)),
                self.ready[n].eq(
                    Mux(good, after != taken, Mux(taken, left[n] != 1, self.ready[n]))
                ),
            ]
            with m.If(taken):
                m.d.sync += none_at[n].eq(none_at[n] + 1)
        return m


class ReceiveCreditsObserve(NamedTuple):
    """What a proof may see of :class:`ReceiveCredits`: registers; in a list, one per source."""

    freed: list  #: flits freed, modulo 256
    room: list  #: what the source may still send
    unreported: list  #: freed and not yet reported
    pending: Signal  #: a bit per source: something is unreported


class ReceiveCredits(wiring.Component):
    """Control buffers of this link, per source: which are used, which have been freed and not yet
    reported.

    A buffer is used from ``accept`` until its free has been *reported*, so ``full`` is exactly "the
    source has used up what it was told". A CREDIT is due when a quarter of the buffers (at least
    one) is unreported, or when anything has been unreported for 128 to 256 cycles: at two ticks,
    the last of each 128 cycles since reset, after each other. Due ranks are served round-robin; a
    rank whose total left with another header meanwhile is passed over. Picking takes one cycle;
    all updates show in the next cycle.

    Parameters: ``cfg``; ``tick_bits``, the ticks are 2**tick_bits cycles apart. Ports: ``accept``,
    ``free`` In {en, rank}; ``full`` Out ``ranks``; ``reports`` In :class:`ReportSignature`.
    """

    observe: ReceiveCreditsObserve  # once elaborated

    def __init__(self, cfg, tick_bits=TICK_BITS):
        strobe = types_of(cfg).rank_strobe
        super().__init__(
            {
                "accept": In(strobe),
                "free": In(strobe),
                "full": Out(cfg.ranks),
                "reports": In(ReportSignature(cfg)),
            }
        )
        self._cfg, self._tick_bits = cfg, tick_bits

    def elaborate(self, platform):
        m = Module()
        ranks = self._cfg.ranks
        pending = Signal(ranks)
        enough = Signal(ranks)
        self.observe = ReceiveCreditsObserve([], [], [], pending)
        self._count(m, pending, enough)
        late = self._age(m, pending)
        self._serve(m, enough | late)
        return m

    def _count(self, m, pending, enough):
        """Per source: what it may still send, what is freed and not yet reported."""
        reports, limit, ranks = self.reports, self._cfg.ctl_credits, self._cfg.ranks
        freed, rooms, counts, _ = self.observe
        quarter = max(1, limit // 4)
        for n in range(ranks):
            freed.append(Signal(CREDIT, name=f"freed_{n}"))
            rooms.append(Signal(range(limit + 1), init=limit, name=f"room_{n}"))
            counts.append(Signal(range(limit + 1), name=f"unreported_{n}"))
            room, unreported, after_report = rooms[n], counts[n], rooms[n] + counts[n]
            accepts = self.accept.en & (self.accept.rank == n)
            is_freed = mutant(
                "link.place_free_when_let_in", self.free.en & (self.free.rank == n), accepts
            )
            reported = reports.report & (reports.dst == n)
            one_more = 1 if quarter == 1 else unreported >= quarter - 1  # is enough
            with m.If(is_freed):
                m.d.sync += freed[n].eq(freed[n] + 1)
            m.d.sync += [
                unreported.eq(Mux(reported, 0, unreported) + is_freed),
                # Each outcome is computed beside the others, then one chosen: what chooses passes
                # no adder.
                room.eq(
                    Mux(
                        mutant("link.freed_place_reported_twice", reported, reported | is_freed),
                        Mux(accepts, after_report - 1, after_report),
                        Mux(accepts, room - 1, room),
                    )
                ),
                self.full[n].eq(
                    Mux(
                        reported,
                        Mux(accepts, after_report == 1, after_report == 0),
                        Mux(accepts, room == 1, self.full[n]),
                    )
                ),
                pending[n].eq(is_freed | (pending[n] & ~reported)),
                enough[n].eq(
                    Mux(
                        reported,
                        is_freed & int(quarter == 1),
                        Mux(is_freed, one_more, enough[n]),
                    )
                ),
            ]
        m.d.comb += reports.total.eq(_of_rank(freed, reports.dst))

    def _age(self, m, pending):
        """The sources of which something has been unreported for long enough."""
        reports, ranks = self.reports, self._cfg.ranks
        # A shared tick marks what is pending; what is still pending and marked at the next tick has
        # waited long enough.
        tick = Signal(self._tick_bits)
        marked = Signal(ranks)
        late = Signal(ranks)
        m.d.sync += tick.eq(tick + 1)
        for n in range(ranks):
            # Without a report: nothing is pending, so nothing is marked.
            with m.If((reports.dst == n) & ~(pending[n] & ~reports.report)):
                m.d.sync += [
                    marked[n].eq(0),
                    late[n].eq(0),
                ]
            with m.Elif(tick.all()):
                m.d.sync += [
                    marked[n].eq(pending[n]),
                    late[n].eq(
                        mutant(
                            "link.report_never_late", late[n] | (marked[n] & pending[n]), late[n]
                        )
                    ),
                ]
        return late

    def _serve(self, m, waits):
        """Takes the sources that are due in turn, and offers one at a time for a CREDIT flit."""
        cfg, reports, ranks = self._cfg, self.reports, self._cfg.ranks
        m.submodules.arbiter = arbiter = RoundRobin(ranks)
        due = Signal(ranks)
        sending = Signal(ranks)  # one-hot or none
        pick = Signal(ranks)  # one-hot or none
        m.d.comb += [
            due.eq(waits & ~sending),
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
        with m.Elif(reports.report):
            m.d.sync += sending.eq(0)
