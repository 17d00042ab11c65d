# SPDX-License-Identifier: Apache-2.0
"""CloseEngine: accepted closes wait here, listed by peer, until their bytes are out and a control
message may go."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import EPOCH, FLIT, UNIT
from hub_rtl.contract.packets import PacketType
from hub_rtl.contract.records import header_layout
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.control_gate import ControlGate
from hub_rtl.parts.multi_queue import MultiQueue
from hub_rtl.parts.mutants import mutant, variant
from hub_rtl.parts.onehot import encode
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue

from .ledger import LEDGER_CYCLES
from .records import producer_types_of

__all__ = ["CloseEngine", "sum_cycles"]

JOBS = 4  # closes between being chosen and leaving on o_control
ADDED = 4  # totals that are added in one cycle


def sum_cycles(cfg):
    """Cycles from the read of the ledgers to the sum of their totals."""
    cycles, parts = LEDGER_CYCLES, cfg.slices
    while parts > 1:
        cycles, parts = cycles + 1, -(-parts // ADDED)
    return cycles


class CloseEngineObserve(NamedTuple):
    """What a proof may see of a :class:`CloseEngine`: its storage."""

    lists: MultiQueue  #: per peer, the closes to be sent; a node is (dest, bank)
    queue: RamQueue  #: staged closes


class CloseEngine(wiring.Component):
    """Keeps one list of pending closes per peer, in memory, and sends from those peers that are
    ready.

    Contract: a close staged before ``release`` is sent exactly once, after its peer's ``draining``
    was seen 0 once since it was listed, with the sum of all ledgers' totals of (dest, epoch[0]),
    which are cleared by the same reads. A dead peer's closes are counted and dropped, their totals
    cleared. ``unpend`` follows the clearing reads. From its choice until ``ctl_done`` tells that a
    link took it, no second message for the same peer is chosen: a link never holds one without a
    credit.

    Latency: 6 cycles + log4(slices), rounded up, from the choice of a peer to ``o_control``; one
    close per 4 cycles over all peers. One replica is listed per cycle while nothing is sent, one
    per 2 cycles else.

    Order: per peer as staged; peers round-robin. A peer that drains, has no control credit or is
    slow holds up only its own list.

    Parameters: ``cfg``. Ports: ``i_close`` In stream(``staged_close``), never stalls;
    ``release`` In, staged closes may be listed; ``staged`` Out, some are not listed yet;
    ``draining`` In ``ranks``, of all packet managers; ``ctl_ready``, ``ctl_other``, ``peer_dead``
    In ``ranks``; ``ctl_done`` In ``ranks``, pulses; ``ctl_busy`` Out ``ranks``; ``ledger_read`` Out
    record ``ledger_read``, ``ledger_total`` In, one per slice; ``unpend`` Out {valid, index, bank},
    ``unpend_granted`` In; ``o_control`` Out stream(128); ``pending`` Out ``ranks``: closes are
    listed; ``sent``, ``dropped`` Out strobes.
    """

    observe: CloseEngineObserve  # once elaborated

    def __init__(self, cfg):
        own = producer_types_of(cfg)
        super().__init__(
            {
                "i_close": In(stream.Signature(own.staged_close)),
                "release": In(1),
                "staged": Out(1),
                "draining": In(cfg.ranks),
                "ctl_ready": In(cfg.ranks),
                "ctl_other": In(cfg.ranks),
                "ctl_done": In(cfg.ranks),
                "ctl_busy": Out(cfg.ranks),
                "peer_dead": In(cfg.ranks),
                "ledger_read": Out(own.ledger_read),
                "ledger_total": In(cfg.total_width).array(cfg.slices),
                "unpend": Out(own.unpend),
                "unpend_granted": In(1),
                "o_control": Out(stream.Signature(FLIT)),
                "pending": Out(cfg.ranks),
                "sent": Out(1),
                "dropped": Out(1),
            }
        )
        self._cfg = cfg
        #: What is kept of a pending close; its node number is dest and bank.
        self._body = data.StructLayout({"region": cfg.region_width, "epoch": EPOCH})
        self._job = data.StructLayout(
            {"valid": 1, "drop": 1, "rank": cfg.rank_width, "body": self._body}
        )

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.lists = lists = MultiQueue(self._body, cfg.ranks, 2 * cfg.dests)
        m.submodules.gate = gate = ControlGate(cfg.ranks)
        m.d.comb += [
            gate.done.eq(self.ctl_done),
            self.ctl_busy.eq(gate.busy),
            self.pending.eq(lists.filled),
        ]
        queue = self._list(m, lists)
        self.observe = CloseEngineObserve(lists, queue)
        job = self._choose(m, lists, gate)
        self._send(m, job)
        return m

    def _list(self, m, lists):
        """Takes staged closes apart into replicas and appends each to the list of its peer.
        Returns their queue."""
        cfg = self._cfg
        m.submodules.queue = queue = RamQueue(producer_types_of(cfg).staged_close, cfg.handles)
        wiring.connect(m, wiring.flipped(self.i_close), queue.i)
        close, append = queue.o.payload, lists.append
        go, listing = Signal(), Signal()
        m.d.comb += [
            go.eq(queue.o.valid & self.release & lists.may_append),
            append.en.eq(go),
            append.body.epoch.eq(close.epoch),
            self.staged.eq(queue.o.valid | listing),
        ]
        m.d.sync += listing.eq(go)  # until `filled` shows it
        if cfg.replicas == 1:
            pair, dest, last = close.replica[0], close.index, 1
        else:
            which = Signal(ceil_log2(cfg.replicas))
            pair, dest, last = (
                close.replica[which],
                Cat(which, close.index),
                which == (1 << close.log2_replicas) - 1,
            )
            with m.If(go):
                m.d.sync += which.eq(Mux(last, 0, which + 1))
        m.d.comb += [
            queue.o.ready.eq(go & last),
            append.queue.eq(pair.rank),
            append.body.region.eq(pair.region),
            append.node.eq(Cat(close.epoch[0], dest)),
        ]
        return queue

    def _choose(self, m, lists, gate):
        """Every fourth cycle: one peer that may be served, and the first close of its list."""
        cfg = self._cfg
        m.submodules.arbiter = arbiter = RoundRobin(cfg.ranks)
        drained, eligible, dead = Signal(cfg.ranks), Signal(cfg.ranks), Signal(cfg.ranks)
        listed, step, jobs, leave = Signal(cfg.ranks), Signal(2), Signal(range(JOBS + 1)), Signal()
        rank, drop, choose = Signal(cfg.rank_width), Signal(), Signal()
        with m.If(lists.append.en):
            m.d.comb += listed.eq(1 << lists.append.queue)
        m.d.sync += [
            # A newly listed close makes its peer wait for "drained" once more: closes are finite,
            # so this ends.
            drained.eq(
                mutant(
                    "producer.close_read_twice",
                    (
                        mutant("producer.close_while_draining", drained, drained | self.draining)
                        | mutant(
                            "producer.peer_waits_for_all", ~self.draining, ~self.draining.any()
                        )
                    )
                    & lists.filled
                    & ~listed,
                    (drained | ~self.draining) & lists.filled,
                )
            ),
            eligible.eq(
                lists.filled
                & drained
                & ~listed
                & (
                    self.peer_dead
                    | (
                        mutant(
                            "producer.gate_busy_ignored",
                            self.ctl_ready & ~gate.busy,
                            self.ctl_ready,
                        )
                        & ~self.ctl_other
                    )
                )
            ),
            dead.eq(self.peer_dead),
            jobs.eq(jobs + choose - leave),
        ]
        m.d.comb += [
            arbiter.requests.eq(eligible),
            arbiter.advance.eq(choose),
            choose.eq(
                (step == 0)
                & eligible.any()
                & (jobs != JOBS)
                & (~self.unpend.valid | self.unpend_granted)
            ),
            gate.choose.eq(Mux(choose, arbiter.grant_onehot & ~dead, 0)),
            lists.pop.en.eq(step == 1),
            lists.pop.queue.eq(rank),
        ]
        with m.If(choose | (step != 0)):
            m.d.sync += step.eq(step + 1)
        with m.If(choose):
            m.d.sync += [
                rank.eq(encode(arbiter.grant_onehot)),
                drop.eq((arbiter.grant_onehot & dead).any()),
            ]

        # Third cycle after the choice: ledgers are read; then the handle's count of unsent closes
        # goes down.
        job, popped = Signal(self._job), lists.popped
        dest = popped.node[1:]
        m.d.comb += [
            self.ledger_read.en.eq(popped.en),
            self.ledger_read.clear.eq(1),
            self.ledger_read.dest.eq(dest),
            self.ledger_read.bank.eq(
                mutant("producer.total_of_other_bank", popped.node[0], popped.body.epoch[1])
            ),
        ]
        m.d.sync += [
            job.valid.eq(popped.en),
            job.drop.eq(drop),
            job.rank.eq(rank),
            job.body.eq(popped.body),
        ]
        with m.If(popped.en):
            m.d.sync += [
                self.unpend.valid.eq(1),
                self.unpend.index.eq(dest >> ceil_log2(cfg.replicas) if len(dest) else 0),
                self.unpend.bank.eq(popped.node[0]),
            ]
        with m.Elif(self.unpend_granted):
            m.d.sync += self.unpend.valid.eq(0)
        m.d.comb += leave.eq(self.dropped | self.sent)
        return job

    def _send(self, m, job):
        """Adds the ledgers' totals, four at a time, and writes the message."""
        cfg = self._cfg
        for n in range(
            variant("producer.message_before_its_total", sum_cycles(cfg) - 1, sum_cycles(cfg) - 2)
        ):  # the job is one cycle behind the read
            later = Signal(self._job, name=f"job{n}")
            m.d.sync += later.eq(job)
            job = later
        parts, level = list(self.ledger_total), 0
        while len(parts) > 1:
            sums = [
                Signal(cfg.total_width, name=f"total{level}_{n}")
                for n in range(-(-len(parts) // ADDED))
            ]
            m.d.sync += [
                each.eq(sum(parts[n * ADDED : (n + 1) * ADDED])) for n, each in enumerate(sums)
            ]
            parts, level = sums, level + 1
        (total,) = parts
        m.submodules.out = out = RegisterQueue(128, JOBS)
        wiring.connect(m, out.o, wiring.flipped(self.o_control))
        header = Signal(header_layout(PacketType.CLOSE))
        m.d.comb += [
            header.type.eq(PacketType.CLOSE),
            header.dst.eq(job.rank),
            header.region.eq(job.body.region),
            header.epoch.eq(job.body.epoch),
            header.sent16.eq(total[UNIT:]),
            header.ragged.eq(total[:UNIT].any()),
            out.i.payload.eq(header),
            out.i.valid.eq(job.valid & ~job.drop),
            self.dropped.eq(job.valid & job.drop),
            self.sent.eq(self.o_control.valid & self.o_control.ready),
        ]
