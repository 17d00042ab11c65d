# SPDX-License-Identifier: Apache-2.0
"""Promises of the hub's own small parts in ``hub_rtl/hub``: control messages, counter increments,
the view of one slice."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.spec import Spec, blocked, moves
from hub_rtl.contract.packets import PacketType, Reason
from hub_rtl.contract.records import header_layout
from hub_rtl.contract.registers import COUNTERS
from hub_rtl.hub.control_router import ControlRouter
from hub_rtl.hub.status import CounterSums, SliceView

__all__ = [
    "ControlDoneIsExact",
    "ControlReachesItsReader",
    "ControlWaitsForItsReaderOnly",
    "CountersGetEveryStrobe",
    "ViewShowsTheChosenSlice",
]

REJECT = header_layout(PacketType.REJECT)


def _wide(value, width):
    return Cat(value, Const(0, width - len(value)))


class RouterSpec(Spec):
    """A router with everything free. A flit is recognised by the top bit of its region, which the
    router only carries: at most one flit with it set is ever offered, whoever offers it."""

    def router(self, m):
        m.submodules.dut = self.dut = dut = ControlRouter(self._cfg)
        self.free_inputs(dut, but=("rank",))
        m.d.comb += dut.rank.eq(self.constant(self._cfg.rank_width, "rank"))
        self.sender = dut.i_control, REJECT(dut.i_control.payload)
        plain = header_layout()(dut.i_control.payload)
        filled = Signal(header_layout())
        m.d.comb += [filled[name].eq(plain[name]) for name in ("type", "dst", "body")]
        self.suppose(
            "sender fills type, dst and body",
            dut.i_control.payload == filled.as_value(),
            when=dut.i_control.valid,
        )
        self.received = [(port, REJECT(port.payload)) for port in dut.i_received]
        return dut

    def track(self, m):
        """``inside``: the marked flit was taken and has not left; ``kept``: the flit; ``own``: from
        this rank to this rank."""
        sources = [self.sender, *self.received]
        offers = [port.valid & flit.region[-1] for port, flit in sources]
        taken = [offer & port.ready for offer, (port, _) in zip(offers, sources, strict=True)]
        self.inside, self.past_it, self.sent = (
            Signal(name="inside"),
            Signal(name="past_it"),
            Signal(name="sent"),
        )
        self.kept = kept = Signal(REJECT, name="kept")
        self.suppose(
            "one flit is marked", (sum(offers) == 1) & ~self.past_it, when=Cat(offers).any()
        )
        with m.If(Cat(taken).any()):
            m.d.sync += [
                self.inside.eq(1),
                self.past_it.eq(1),
                self.sent.eq(taken[0]),
            ]
        for take, (_, flit) in zip(taken, sources, strict=True):
            with m.If(take):
                m.d.sync += kept.eq(flit)
        self.own = self.sent & (kept.dst == self.dut.rank)
        self.taken = Cat(taken).any()


class ControlReachesItsReader(RouterSpec):
    """A control flit leaves once: the sender's for another rank unchanged to the link; a REJECT for
    the own rank, or received, with its fields to the log; an own one with the own rank as its
    source. Any other type goes nowhere."""

    def build(self, m):
        dut = self.router(m)
        self.track(m)
        kept, to_reader = self.kept, ~self.sent | self.own
        link, reject = REJECT(dut.o_link.payload), dut.reject
        at_link = dut.o_link.valid & link.region[-1]
        at_log = dut.reject_valid & reject.region[-1]
        source = Mux(self.own, dut.rank, kept.src)
        with m.If((at_link & dut.o_link.ready) | at_log):
            m.d.sync += self.inside.eq(0)
        self.always(
            "at the link: still inside, for another rank, unchanged",
            self.inside & self.sent & ~self.own & (link.as_value() == kept.as_value()),
            when=at_link,
        )
        self.always("at the log: still inside, for a reader", self.inside & to_reader, when=at_log)
        self.always(
            "at the log: fields",
            (kept.type == PacketType.REJECT)
            & (
                Cat(reject.region, reject.epoch, reject.rowid, reject.reason)
                == Cat(kept.region, kept.epoch, kept.rowid, kept.reason)
            )
            & (reject.src == source),
            when=at_log,
        )
        self.reach("own, at the log", at_log & self.own)


class ControlWaitsForItsReaderOnly(RouterSpec):
    """The sender's flit for another rank is accepted within 4 cycles in which the link is ready,
    one for the own rank and a received one within 10 cycles. What was accepted for the link is
    offered there from the next cycle on."""

    LINK, READER = 4, 10

    def build(self, m):
        dut = self.router(m)
        inside = Signal(3)
        (port, flit) = self.sender
        local = flit.dst == dut.rank
        m.d.sync += inside.eq(inside + (moves(port) & ~local) - moves(dut.o_link))
        self.always("offered to the link", dut.o_link.valid == (inside != 0))
        self.always("at most two for the link inside", inside <= 2)
        waits = blocked(port)
        self._bounded(m, "taken for the link", waits & ~local, dut.o_link.ready, self.LINK)
        self._bounded(m, "taken for the own rank", waits & local, 1, self.READER)
        for n, (port, _) in enumerate(self.received):
            self._bounded(m, f"received {n}: taken", blocked(port), 1, self.READER)

    def _bounded(self, m, name, waits, ready, limit):
        waited = Signal(range(limit + 2), name="waited")
        with m.If(~waits):
            m.d.sync += waited.eq(0)
        with m.Elif(ready & (waited <= limit)):
            m.d.sync += waited.eq(waited + 1)
        self.always(name, waited <= limit)
        self.reach(f"{name}: had to wait", waits)


class ControlDoneIsExact(RouterSpec):
    """``ctl_done`` of another rank pulses when the link takes a flit for it, and only then; that of
    the own rank never more often than own flits were accepted, of which at most two wait.
    ``ctl_ready`` is the link's, and 1 for the own rank."""

    def build(self, m):
        cfg, dut = self._cfg, self.router(m)
        link = header_layout()(dut.o_link.payload)
        took = moves(dut.o_link)
        own = Signal(3)  # own flits accepted and not yet done
        for rank in range(cfg.ranks):
            self.always(
                f"done of rank {rank} is the link's",
                dut.ctl_done[rank] == (took & (link.dst == rank)),
                when=dut.rank != rank,
            )
            self.always(
                f"done of rank {rank} is the own",
                own != 0,
                when=(dut.rank == rank) & dut.ctl_done[rank],
            )
            self.always(
                f"ready of rank {rank}",
                dut.ctl_ready[rank] == (dut.link_ready[rank] | (dut.rank == rank)),
            )
        done = dut.ctl_done.bit_select(dut.rank, 1)
        m.d.sync += own.eq(own + (moves(dut.i_control) & (self.sender[1].dst == dut.rank)) - done)
        self.always("at most two own flits wait", own <= 2)
        self.always("the link gets no own flit", link.dst != dut.rank, when=dut.o_link.valid)


class CountersGetEveryStrobe(Spec):
    """Each counter's increment is the number of its strobes two cycles before, over all lanes and
    slices."""

    #: Where the counter has another name than its strobe.
    OTHER = {
        "stores_refused": "refused",
        "store_stalls": "stall",
        "row_overlaps": "overlaps",
        "ack_merges": "merges",
    }

    def build(self, m):
        m.submodules.dut = dut = CounterSums(self._cfg)
        self.free_inputs(dut)
        by_lane = {
            **dict.fromkeys(("stores", "stores_refused", "store_stalls"), dut.store),
            **{
                name: ports
                for ports in (dut.pool, dut.link, dut.memory)
                for name, _ in ports[0].shape()
            },
        }
        for name in COUNTERS:
            if name == "bad_packets":
                strobes = list(dut.bad)
            elif name == "news_lost":
                strobes = list(dut.lost)
            elif name in by_lane:
                strobes = [port[self.OTHER.get(name, name)] for port in by_lane[name]]
            elif name.startswith("refused_") and name != "refused_stale":
                strobes = [dut.alloc.refused[Reason[name.removeprefix("refused_").upper()]]]
            else:
                (port,) = (
                    port
                    for port in (dut.single, dut.close, dut.alloc, dut.ready)
                    if self.OTHER.get(name, name) in dict(iter(port.shape()))
                )
                strobes = [port[self.OTHER.get(name, name)]]
            told = self.past(self.past(sum(strobes, Const(0, 1))))
            self.always(f"counter {name}", dut.counts[name] == told)


class ViewShowsTheChosenSlice(Spec):
    """``view`` is that of slice ``slice`` one cycle before."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = SliceView(cfg)
        self.free_inputs(dut)
        for n in range(cfg.slices):
            shown = Cat(
                dut.oldest[n].as_value(),
                dut.waiting[n].as_value(),
                _wide(dut.outstanding[n], 16),
                ~dut.dest_ready[n],
                ~dut.ctl_ready[n],
            )
            self.always(
                f"view of slice {n}",
                dut.view.as_value() == self.past(shown),
                when=self.past(dut.slice == n),
            )
