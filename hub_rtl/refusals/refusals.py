# SPDX-License-Identifier: Apache-2.0
"""What was refused, told to others (RejectSender) and kept for software (RefusalLog)."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import (
    EPOCH,
    FLIT,
    RANK,
    REASON,
    REGION,
    REGISTER,
    ROWID,
)
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import (
    BAD_PACKET,
    LOG_ENTRY,
    REJECT_REPORT,
    STORE_REFUSAL,
    header_layout,
    types_of,
)
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.control_gate import ControlGate
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import ones, select
from hub_rtl.parts.pulse_queue import PulseQueue
from hub_rtl.parts.ram import Ram

__all__ = ["RefusalLog", "RejectSender"]


class RejectSender(wiring.Component):
    """Sends a REJECT message for every refusal that asks for one.

    Contract: a refusal with ``report`` becomes one REJECT to its ``src``, or ``dropped`` counts it:
    the queue of ``reject_depth`` was full, or the rank is dead or does not exist. The input is
    never stalled. Between its choice and ``ctl_done`` no second message for the same rank is
    chosen: a link never holds one without a credit.

    Latency 5 cycles; one message per 4 cycles. One that must wait goes to the back of the queue
    after 4: a rank without control credits delays the others by at most that for each of its
    messages.

    Order: as they came while all ranks have credits.

    Parameters: ``cfg``. Ports: ``i_refused`` In stream(refusal), ready is always 1; ``o_control``
    Out stream(128), REJECT with dst filled; ``ctl_ready``, ``ctl_done``, ``peer_dead`` In
    ``ranks``: see interfaces section 10; ``sent``, ``dropped`` Out strobes. Source: our
    specification, rule R6.
    """

    def __init__(self, cfg):
        super().__init__(
            {
                "i_refused": In(stream.Signature(types_of(cfg).refusal)),
                "o_control": Out(stream.Signature(FLIT)),
                "ctl_ready": In(cfg.ranks),
                "ctl_done": In(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "sent": Out(1),
                "dropped": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        depth = cfg.reject_depth
        message = data.StructLayout(
            {"region": REGION, "epoch": EPOCH, "rowid": ROWID, "reason": REASON, "rank": RANK}
        )
        m.submodules.ram = ram = Ram(message, depth)
        m.submodules.gate = gate = ControlGate(cfg.ranks)
        head = Signal(index_width(depth))
        tail = Signal(index_width(depth))
        stored = Signal(range(depth + 1))  # in memory; one in hand keeps its place
        room = Signal()
        in_hand = Signal()
        hand = Signal(message)
        shown = Signal(message)
        one_hot = Signal(cfg.ranks)
        arrival = Signal(message)
        arrived = Signal()
        refused = self.i_refused.payload
        put_new = Signal()
        put_back = Signal()
        take = Signal()

        def after(pointer):
            return Mux(
                mutant(
                    "refusals.queue_wraps_early", pointer == depth - 1, pointer == max(0, depth - 2)
                ),
                0,
                pointer + 1,
            )

        m.d.comb += [
            self.i_refused.ready.eq(1),
            gate.done.eq(self.ctl_done),
            room.eq(
                mutant(
                    "refusals.room_forgets_one_in_hand", stored + in_hand != depth, stored != depth
                )
            ),
            put_new.eq(arrived & room),
            ram.w_en.eq(put_new | put_back),
            ram.w_addr.eq(tail),
            ram.w_data.eq(Mux(put_new, arrival, hand)),
            ram.r_en.eq(take),
            ram.r_addr.eq(head),
            hand.eq(ram.r_data),
            one_hot.eq(Cat(hand.rank == n for n in range(cfg.ranks))),
        ]
        m.d.sync += [
            arrived.eq(
                mutant(
                    "refusals.unasked_is_sent",
                    self.i_refused.valid & refused.report,
                    self.i_refused.valid,
                )
            ),
            arrival.rank.eq(refused.src),
            *[arrival[name].eq(refused[name]) for name in ("region", "epoch", "rowid", "reason")],
            stored.eq(stored + (put_new | put_back) - take),
            shown.eq(hand),  # a long way from here: the router decides by it
        ]
        with m.If(put_new | put_back):
            m.d.sync += tail.eq(after(tail))
        with m.If(take):
            m.d.sync += head.eq(after(head))
        self._show(m, shown)
        self._choose(m, gate, one_hot, stored, arrived, room, in_hand, take, put_new, put_back)
        return m

    def _show(self, m, shown):
        """The message that is in hand, as a flit."""
        header = Signal(header_layout(PacketType.REJECT))
        m.d.comb += [
            header.type.eq(PacketType.REJECT),
            header.dst.eq(shown.rank),
            header.region.eq(shown.region),
            header.epoch.eq(shown.epoch),
            header.rowid.eq(shown.rowid),
            header.reason.eq(shown.reason),
            self.o_control.payload.eq(header),
        ]

    def _choose(self, m, gate, one_hot, stored, arrived, room, in_hand, take, put_new, put_back):
        """Takes a message in hand and sends it, drops it, or puts it back in the queue."""
        may_go = Signal()
        gone = Signal()
        discard = Signal()
        chosen = Signal()
        m.d.sync += [
            may_go.eq(
                mutant(
                    "refusals.one_credit_for_two",
                    (one_hot & self.ctl_ready & ~gate.busy).any(),
                    (one_hot & self.ctl_ready).any(),
                )
            ),
            gone.eq(
                (
                    one_hot
                    & mutant(
                        "refusals.dead_with_credit_is_sent",
                        self.peer_dead,
                        self.peer_dead & ~self.ctl_ready,
                    )
                ).any()
                | mutant("refusals.unknown_rank_goes_round", ~one_hot.any(), 0)
            ),
            self.sent.eq(self.o_control.valid & self.o_control.ready),
            self.dropped.eq(
                mutant("refusals.full_queue_not_counted", (arrived & ~room) | discard, discard)
            ),
        ]
        m.d.comb += gate.choose.eq(Mux(chosen, one_hot, 0))
        with m.FSM():
            with m.State("TAKE"):
                with m.If(stored.any()):
                    m.d.comb += take.eq(1)
                    m.d.sync += in_hand.eq(1)
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "JUDGE"
            with m.State("JUDGE"):
                with m.If(gone):
                    # A new refusal in this cycle may be dropped too, and there is one strobe.
                    with m.If(mutant("refusals.overflow_not_counted", ~(arrived & ~room), 1)):
                        m.d.comb += discard.eq(1)
                        m.d.sync += in_hand.eq(0)
                        m.next = "TAKE"
                with m.Elif(may_go):
                    m.d.comb += chosen.eq(1)
                    m.next = "SEND"
                with m.Else():
                    m.next = "BACK"
            with m.State("SEND"):
                m.d.comb += self.o_control.valid.eq(mutant("refusals.message_withdrawn", 1, may_go))
                with m.If(self.o_control.ready):
                    m.d.sync += in_hand.eq(0)
                    m.next = "TAKE"
            with m.State("BACK"):
                # New refusals write first; they stop at the latest when the queue is full.
                with m.If(mutant("refusals.back_collides_with_new", ~put_new, 1)):
                    m.d.comb += put_back.eq(1)
                    m.d.sync += in_hand.eq(0)
                    m.next = "TAKE"


class RefusalLog(wiring.Component):
    """Keeps the oldest refusals with enough detail to name the culprit, and counts the rest.

    Contract: every pulse becomes one entry, or ``lost`` grows by one: the log was full, or pulses
    of ``waiting`` earlier cycles were still waiting. Bad packets wait apart from the others, so
    neither kind can displace the other there. Of packets refused here only those with ``report``
    count (one per row). ``clear`` empties the log, ``lost`` too.

    Latency 4 cycles from a pulse to ``count``, 3 to ``lost`` when it finds no place; one entry per
    cycle. ``entry`` belongs to the ``index`` of the cycle before.

    Order: of bad packets, and of all others, as they came; of those of one cycle refusal, REJECT,
    stores, each by its lane. When both kinds wait they go in turn. Nothing is ever stalled.

    Parameters: ``cfg``; ``waiting``, cycles with pulses that wait of bad packets, and of all
    others, 3 or more. Ports: ``stores`` In, one ``STORE_REFUSAL`` per lane;
    ``refusal_valid`` In, ``refusal`` In; ``reject_valid`` In, ``reject`` In, a received REJECT;
    ``bad`` In, one ``BAD_PACKET`` per link; ``index`` In; ``entry`` Out ``LOG_ENTRY``;
    ``count`` Out, entries; ``lost`` Out 32, saturating; ``clear`` In strobe; ``logged`` Out strobe,
    something was written (``count`` shows it) or lost (``lost`` shows it in the next cycle);
    ``o_bad`` Out {en, lane, header, reason}, the bad packet that goes to the log in this cycle.
    Source: our specification, guarantee G6.
    """

    def __init__(self, cfg, waiting=8):
        super().__init__(
            {
                "stores": In(STORE_REFUSAL).array(cfg.lanes),
                "refusal_valid": In(1),
                "refusal": In(types_of(cfg).refusal),
                "reject_valid": In(1),
                "reject": In(REJECT_REPORT),
                "bad": In(BAD_PACKET).array(cfg.links),
                "index": In(index_width(cfg.log_depth)),
                "entry": Out(LOG_ENTRY),
                "count": Out(range(cfg.log_depth + 1)),
                "lost": Out(REGISTER),
                "clear": In(1),
                "logged": Out(1),
                "o_bad": Out(types_of(cfg).first_bad),
            }
        )
        self._cfg, self._waiting = cfg, waiting

    def elaborate(self, platform):
        m = Module()
        others = self._wait_others(m)
        bads, told = self._wait_bads(m)
        self._write(m, others, bads, told)
        return m

    def _wait_others(self, m):
        """The queue of refusals, REJECTs and stores, as log entries."""
        refusal, reject = self.refusal, self.reject
        sources = [
            (
                self.refusal_valid & refusal.report,
                {
                    "reason": refusal.reason,
                    "plain": refusal.plain,
                    "epoch": refusal.epoch,
                    "number": refusal.region,
                    "rowid": refusal.rowid,
                    "rank": refusal.src,
                },
            ),
            (
                self.reject_valid,
                {
                    "remote": 1,
                    "reason": reject.reason,
                    "epoch": reject.epoch,
                    "number": reject.region,
                    "rowid": reject.rowid,
                    "rank": reject.src,
                },
            ),
            *(
                (
                    one.en,
                    {
                        "side": 1,
                        "reason": one.reason,
                        "plain": one.plain,
                        "owner": one.owner,
                        "epoch": one.epoch,
                        "number": one.handle,
                        "rowid": one.rowid,
                        "rank": one.rank,
                    },
                )
                for one in self.stores
            ),
        ]
        m.submodules.others = others = PulseQueue(LOG_ENTRY, len(sources), self._waiting)
        for n, (valid, fields) in enumerate(sources):
            m.d.comb += others.en[n].eq(valid)
            m.d.comb += [others.items[n][name].eq(value) for name, value in fields.items()]
        return others

    def _wait_bads(self, m):
        """The queue of bad packets, and the first of them as a log entry."""
        cfg = self._cfg
        m.submodules.bads = bads = PulseQueue(
            data.StructLayout({"header": FLIT, "reason": REASON}), cfg.links, self._waiting
        )
        for n, one in enumerate(self.bad):
            m.d.comb += [
                bads.en[n].eq(one.en),
                bads.items[n].header.eq(one.header),
                bads.items[n].reason.eq(one.reason),
            ]
        bad = bads.o.payload
        told = Signal(LOG_ENTRY)
        header = header_layout(PacketType.ROW)(bad.header)
        m.d.comb += [
            told.side.eq(1),
            told.remote.eq(1),
            told.reason.eq(bad.reason),
            told.plain.eq(header.type == PacketType.PLAIN),
            told.epoch.eq(header.epoch),
            told.number.eq(header.region),
            told.rowid.eq(header.rowid),
            told.rank.eq(mutant("refusals.bad_packet_of_destination", header.src, header.dst)),
            self.o_bad.en.eq(bads.o.valid & bads.o.ready),
            self.o_bad.lane.eq(mutant("refusals.bad_packet_of_lane_0", bads.source, 0)),
            self.o_bad.header.eq(bad.header),
            self.o_bad.reason.eq(bad.reason),
        ]
        return bads, told

    def _write(self, m, others, bads, told):
        """One entry per cycle to the log, of either queue in turn; what is lost is counted."""
        cfg = self._cfg
        m.submodules.log = log = Ram(LOG_ENTRY, cfg.log_depth)
        m.submodules.turns = turns = RoundRobin(2)
        full = Signal()
        write = Signal()
        lost = Cat(others.lost, bads.lost)
        lost_q = Signal(len(lost))
        extra = Signal(range(len(lost) + 2))
        total = Signal(REGISTER + 1)
        m.d.comb += [
            turns.requests.eq(Cat(others.o.valid, bads.o.valid)),
            turns.advance.eq(mutant("refusals.log_turn_stays", write, 0)),
            others.o.ready.eq(turns.grant_onehot[0] & ~self.clear),
            bads.o.ready.eq(
                mutant(
                    "refusals.clear_takes_bad_packet",
                    turns.grant_onehot[1] & ~self.clear,
                    turns.grant_onehot[1],
                )
            ),
            full.eq(
                mutant(
                    "refusals.log_one_short",
                    self.count == cfg.log_depth,
                    self.count == cfg.log_depth - 1,
                )
            ),
            write.eq(turns.requests.any() & ~self.clear),
            log.w_en.eq(write & ~full),
            log.w_addr.eq(mutant("refusals.log_skips_odd_places", self.count, self.count & ~1)),
            log.w_data.eq(select(turns.grant_onehot, [others.o.payload, told])),
            log.r_en.eq(1),
            log.r_addr.eq(self.index),
            self.entry.eq(log.r_data),
            total.eq(self.lost + extra),
        ]
        m.d.sync += [
            lost_q.eq(lost),
            extra.eq(
                ones(m, lost_q, "lost")
                + (mutant("refusals.full_log_loses_silently", write & full, 0))
            ),
            self.logged.eq(mutant("refusals.loss_not_told", write | lost_q.any(), write)),
        ]
        with m.If(self.clear):
            m.d.sync += [
                self.count.eq(0),
                self.lost.eq(0),
            ]
        with m.Else():
            m.d.sync += [
                self.count.eq(self.count + (write & ~full)),
                self.lost.eq(
                    mutant(
                        "refusals.losses_forgotten",
                        Mux(total[REGISTER], Const(-1, REGISTER), total),
                        Mux(self.logged, total, 0),
                    )
                ),
            ]
