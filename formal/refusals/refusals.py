# SPDX-License-Identifier: Apache-2.0
"""Promises of RejectSender and RefusalLog (section 10 of docs/interfaces.md)."""

from amaranth import Cat, Mux, Signal

from formal.kit.spec import Spec, moves, one_of, same
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import LOG_ENTRY, header_layout
from hub_rtl.refusals.refusals import RefusalLog, RejectSender

__all__ = [
    "EveryPulseIsLogged",
    "FirstBadPacketIsShown",
    "LogShowsWhatCame",
    "LostNeverFalls",
    "MessageHasItsCredit",
    "ReportsAreSentOrCounted",
]


class ReportsAreSentOrCounted(Spec):
    """Every refusal with ``report`` becomes one REJECT to its source, with its region, epoch, row
    and reason, or one ``dropped``; without dead or unknown ranks one is dropped only when
    ``reject_depth`` are inside. The input never waits. If every rank can take messages and none is
    on its way, one leaves within 24 cycles.

    One refusal, any, is followed: its ``rowid[0]`` is 1 and that of others 0; a row number decides
    nothing."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = RejectSender(cfg)
        for value in (
            dut.i_refused.valid,
            dut.i_refused.payload,
            dut.o_control.ready,
            dut.ctl_ready,
            dut.ctl_done,
            dut.peer_dead,
        ):
            self.free(value)
        refused, message = (
            dut.i_refused.payload,
            header_layout(PacketType.REJECT)(dut.o_control.payload),
        )
        came, gone = dut.i_refused.valid & refused.report, moves(dut.o_control)
        self.always("never waits", dut.i_refused.ready)
        self.always("sent counts", dut.sent == self.past(gone, "gone"))
        inside = Signal(range(-1, 2 * cfg.reject_depth + 4))
        depth = cfg.reject_depth
        m.d.sync += inside.eq(inside + came - gone - dut.dropped)
        filled = Signal(header_layout())
        m.d.comb += [filled[name].eq(message[name]) for name in ("type", "dst")]
        m.d.comb += filled.body.eq(header_layout()(dut.o_control.payload).body)
        self.always(
            "fills type, dst and body, no more",
            (dut.o_control.payload == filled.as_value()) & (message.type == PacketType.REJECT),
            when=dut.o_control.valid,
        )
        self.always("none lost, none invented", (inside >= 0) & (inside <= depth + 2))
        harmless = Signal(init=1)
        m.d.sync += harmless.eq(
            harmless & ~dut.peer_dead.any() & (~came | (refused.src < cfg.ranks))
        )
        self.always(
            "dropped only when full",
            self.past(inside, "inside_before") >= depth,
            when=dut.dropped & harmless,
        )

        item = Signal.like(refused)
        has = Signal()
        done = Signal()
        self.suppose("one is coloured", ~(has & refused.rowid[0]), when=came)
        with m.If(came & refused.rowid[0]):
            m.d.sync += [
                has.eq(1),
                item.eq(refused),
            ]
        coloured = dut.o_control.valid & message.rowid[0]
        with m.If(coloured & gone):
            m.d.sync += done.eq(1)
        self.always("sent once", has & ~done, when=coloured)
        self.always(
            "told what was refused",
            same(
                message,
                region=item.region,
                epoch=item.epoch,
                rowid=item.rowid,
                reason=item.reason,
                dst=item.src,
            ),
            when=coloured,
        )
        self.always(
            "a REJECT",
            (message.type == PacketType.REJECT) & (message.dst < cfg.ranks),
            when=dut.o_control.valid,
        )

        on_way = Signal(cfg.ranks)
        m.d.sync += on_way.eq(
            (on_way & ~dut.ctl_done) | Mux(gone, 1 << message.dst[: cfg.rank_width], 0)
        )
        waits = Signal(range(32))
        calm = dut.ctl_ready.all() & dut.o_control.ready & ~on_way.any()
        m.d.sync += waits.eq(
            Mux((inside > 0) & calm & ~gone & ~dut.dropped, waits + (waits != 31), 0)
        )
        self.always("bounded wait", waits < 24)


class MessageHasItsCredit(Spec):
    """A message for a rank is offered only when that rank has a control credit and none is on its
    way to it. Followed: any one rank. The link: its ``ctl_ready`` is at most 3 cycles old,
    ``ctl_done`` follows a message."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = RejectSender(cfg)
        for value in (
            dut.i_refused.valid,
            dut.i_refused.payload,
            dut.o_control.ready,
            dut.peer_dead,
        ):
            self.free(value)
        rank = self.constant(cfg.rank_width, "rank")
        self.suppose("rank exists", rank < cfg.ranks)
        done = Signal()
        frees = Signal()
        other_ready = Signal(cfg.ranks)
        other_done = Signal(cfg.ranks)
        self.free(done, frees, other_ready, other_done)
        credits = Signal(2, init=1)
        ready = [Signal(name=f"ready{n}", init=1) for n in range(3)]
        # For other ranks than the followed one anything may come.
        mine = Signal(cfg.ranks)
        m.d.comb += mine.eq(1 << rank)
        our_out = Signal()
        m.d.comb += [
            dut.ctl_ready.eq(Mux(ready[-1], other_ready | mine, other_ready & ~mine)),
            dut.ctl_done.eq(Mux(done, other_done | mine, other_done & ~mine)),
        ]
        message = header_layout(PacketType.REJECT)(dut.o_control.payload)
        offered = dut.o_control.valid & (message.dst == rank)
        gone = offered & dut.o_control.ready
        self.suppose("done follows a message", our_out, when=done)
        self.suppose("a buffer is freed", credits < 2, when=frees)
        m.d.sync += [
            credits.eq(credits + frees - (done & (credits != 0))),
            *(late.eq(early) for late, early in zip(ready, [credits != 0, *ready], strict=False)),
            our_out.eq((our_out & ~done) | gone),
        ]
        self.always("has a credit", credits != 0, when=offered)
        self.always("alone on the way", ~our_out, when=offered)
        self.always("credit while on the way", credits != 0, when=our_out)


class _Log(Spec):
    """A log with any pulses. Sources in order: refusal, REJECT, a store per lane, a bad packet per
    lane. ``waiting``: of the log; every place of its queues is alike."""

    def __init__(self, cfg, waiting=3):
        super().__init__(cfg)
        self._waiting = waiting

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = self.dut = dut = RefusalLog(cfg, self._waiting)
        self.free_inputs(dut)
        reject = dut.reject
        bad = [header_layout(PacketType.ROW)(each.header) for each in dut.bad]
        self.pulses = Cat(
            dut.refusal_valid & dut.refusal.report,
            dut.reject_valid,
            (s.en for s in dut.stores),
            (b.en for b in dut.bad),
        )
        self.rows = [
            dut.refusal.rowid,
            reject.rowid,
            *(s.rowid for s in dut.stores),
            *(b.rowid for b in bad),
        ]
        entries = [
            {
                "reason": dut.refusal.reason,
                "plain": dut.refusal.plain,
                "epoch": dut.refusal.epoch,
                "number": dut.refusal.region,
                "rowid": dut.refusal.rowid,
                "rank": dut.refusal.src,
            },
            {
                "remote": 1,
                "reason": reject.reason,
                "epoch": reject.epoch,
                "number": reject.region,
                "rowid": reject.rowid,
                "rank": reject.src,
            },
            *(
                {
                    "side": 1,
                    "reason": s.reason,
                    "plain": s.plain,
                    "owner": s.owner,
                    "epoch": s.epoch,
                    "number": s.handle,
                    "rowid": s.rowid,
                    "rank": s.rank,
                }
                for s in dut.stores
            ),
            *(
                {
                    "side": 1,
                    "remote": 1,
                    "reason": one.reason,
                    "plain": header.type == PacketType.PLAIN,
                    "epoch": header.epoch,
                    "number": header.region,
                    "rowid": header.rowid,
                    "rank": header.src,
                }
                for one, header in zip(dut.bad, bad, strict=True)
            ),
        ]
        self.entries = []
        for n, fields in enumerate(entries):
            entry = Signal(LOG_ENTRY, name=f"entry{n}")
            m.d.comb += [entry[name].eq(value) for name, value in fields.items()]
            self.entries.append(entry)
        self.promise(m)

    def promise(self, m):
        raise NotImplementedError


class EveryPulseIsLogged(_Log):
    """``logged`` pulses with each entry and before each loss shows in ``lost``; ``clear`` sets
    ``count`` and ``lost`` to 0; ``count`` stays within the log and grows by one at most; ``lost``
    changes only after a pulse."""

    def promise(self, m):
        dut = self.dut
        cleared = self.past(dut.clear, "cleared")
        before, lost_before = (
            self.past(dut.count, "count_before"),
            self.past(dut.lost, "lost_before"),
        )
        steady = self.started & ~cleared
        came = Signal()
        m.d.sync += came.eq(came | self.pulses.any())
        self.always("count within the log", dut.count <= self._cfg.log_depth)
        self.always("clear empties the log", same(dut, count=0, lost=0), when=cleared)
        self.always("count grows by one", one_of(dut.count, before, before + 1), when=steady)
        self.always("logged with the entry", dut.logged, when=steady & (dut.count != before))
        self.always(
            "logged with the loss",
            self.past(dut.logged, "logged_before"),
            when=steady & (dut.lost != lost_before),
        )
        self.always("only what came", came, when=dut.logged | (dut.count != 0) | (dut.lost != 0))


class LostNeverFalls(_Log):
    """``lost`` never falls and never wraps, but for ``clear``."""

    def promise(self, m):
        before = self.past(self.dut.lost, "before")
        self.always(
            "never falls",
            self.dut.lost >= before,
            when=self.started & ~self.past(self.dut.clear, "cleared"),
        )


class LogShowsWhatCame(_Log):
    """An entry of the log shows a pulse that came, with all its fields; it stays as it is; no pulse
    is there twice; pulses of one source stand in the order in which they came.

    Followed: two pulses, any, of one source, any, coloured 1 and 2 in ``rowid[1:0]``, those of
    others are 0; a row number decides nothing. The log is not cleared. Compared: the lowest bit of
    every field and the colour; a field's other bits are wires like it."""

    def promise(self, m):
        dut, cfg = self.dut, self._cfg
        self.suppose("not cleared", ~dut.clear)
        source = self.constant(range(len(self.rows)), "source")

        def seen(entry):
            return Cat(*(entry[name][0] for name, _ in LOG_ENTRY), entry.rowid[1])

        shown = seen(dut.entry)
        expected = [Signal(len(shown), name=f"expected{n}") for n in range(2)]
        came = Signal(2)
        for n, (row, entry) in enumerate(zip(self.rows, self.entries, strict=True)):
            pulse, colour = self.pulses[n], row[:2]
            self.suppose(
                f"colours of source {n}",
                (colour == 0) | ((source == n) & (colour == came + 1) & (came < 2)),
                when=pulse,
            )
            for which in range(2):
                with m.If(pulse & (colour == which + 1)):
                    m.d.sync += [
                        expected[which].eq(seen(entry)),
                        came.eq(which + 1),
                    ]
        low, high = (
            self.constant(range(cfg.log_depth), "low"),
            self.constant(range(cfg.log_depth), "high"),
        )
        read = self.past(dut.index, "read_index")
        known = self.past(dut.index < dut.count, "read_known")
        first = Signal(len(shown))
        first_colour = Signal(2)
        first_known = Signal()
        with m.If(known & (read == low)):
            m.d.sync += [
                first.eq(shown),
                first_colour.eq(dut.entry.rowid[:2]),
                first_known.eq(1),
            ]
        colour = dut.entry.rowid[:2]
        for which in range(2):
            self.always(
                f"shows pulse {which + 1}",
                (came > which) & (shown == expected[which]),
                when=known & (colour == which + 1),
            )
        self.always("only what came", colour != 3, when=known)
        self.always("stays", shown == first, when=first_known & (read == low))
        both = first_known & known & (read == high) & (low < high) & (first_colour != 0)
        self.always("not twice", colour != first_colour, when=both)
        self.always("as they came", (first_colour == 1) | (colour == 0), when=both)


class FirstBadPacketIsShown(_Log):
    """The first ``o_bad`` is the first bad packet that came, of several in one cycle that of the
    lowest lane, whatever else fills the log. It comes at the latest 5 cycles after the packet in
    which the log is not being cleared."""

    LIMIT = 5

    def promise(self, m):
        dut = self.dut
        came = Signal()
        shown = Signal()
        lane = Signal.like(dut.o_bad.lane)
        first = Signal(dut.bad[0].shape())
        waited = Signal(range(self.LIMIT + 2))
        with m.If(~came):
            for n, port in reversed(list(enumerate(dut.bad))):
                with m.If(port.en):
                    m.d.sync += [
                        came.eq(1),
                        lane.eq(n),
                        first.eq(port),
                    ]
        with m.Elif(~dut.clear & (waited <= self.LIMIT)):
            m.d.sync += waited.eq(waited + 1)
        with m.If(dut.o_bad.en):
            m.d.sync += shown.eq(1)
        self.always(
            "the first one",
            came
            & (dut.o_bad.lane == lane)
            & (dut.o_bad.header == first.header)
            & (dut.o_bad.reason == first.reason),
            when=dut.o_bad.en & ~shown,
        )
        self.always("in time", shown, when=waited > self.LIMIT)
