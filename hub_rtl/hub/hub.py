# SPDX-License-Identifier: Apache-2.0
"""Top of the hub: the two halves, the links between them, control messages, registers; flat ports
with AXI names."""

from typing import NamedTuple

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hub_rtl.contract.axi import connect_flat
from hub_rtl.contract.config import ConfigError
from hub_rtl.contract.packets import EventKind
from hub_rtl.contract.ports import hub_ports
from hub_rtl.contract.records import types_of
from hub_rtl.link.loop_port import LoopPort
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.placing import placer
from hub_rtl.parts.stream import StreamMerge
from hub_rtl.refusals.refusals import RefusalLog, RejectSender
from hub_rtl.register_bank.register_bank import CsrBank

from .consumer_half import HubConsumer
from .control_router import ControlRouter
from .link_slice import LinkSlice
from .producer_half import HubProducer, command_config
from .status import CounterSums, SliceView

__all__ = ["Hub"]


class HubObserve(NamedTuple):
    """What a proof may see of a :class:`Hub`: its parts."""

    producer: HubProducer
    consumer: HubConsumer
    csr: CsrBank
    router: ControlRouter
    links: list  #: LinkSlice per lane
    loops: list  #: LoopPort per loop lane
    reject: RejectSender
    commands: StreamMerge
    sums: CounterSums
    views: SliceView
    log: RefusalLog


class Hub(wiring.Component):
    """One hub: stores and commands in, packets to and from the links, rows to memory, events out.

    Contract: guarantees G1 to G7 of the architecture, as each block gives its part. All hubs of a
    system have one configuration and different ranks (``id.RANK``). Traffic may start when
    ``cleared`` is 1 and the rank is set. Latency and throughput: one flit per cycle and lane each
    way. Idle hubs take a packet of 128 bytes from its last store to the far memory's ``awvalid`` in
    52 cycles (31 for the own rank), and from memory's answer to READY in 8. Ordering and stalls:
    stores of a lane are answered in order. Received packets wait for memory only. Nothing waits for
    ``m_event``. Illegal input: refused, counted, named in a register or log.

    Parameters: ``cfg``; ``library``, a :class:`~flow.verilog.netlist.ModuleLibrary` in which equal
    lanes become one Verilog module; without it the hub is one flat tree, as simulation and proofs
    want it. Ports: :func:`~hub_rtl.contract.ports.hub_ports`. Clock ``clk``, synchronous reset
    ``rst``. Source: architecture section 3; paper arXiv 2605.05888, GPU hub.
    """

    observe: HubObserve  # once elaborated

    def __init__(self, cfg, library=None):
        if cfg.tag_width > 31:
            raise ConfigError(
                f"tag_width = {cfg.tag_width}: must be at most 31 in a hub, one more bit "
                "tells the registers' "
                "commands from the port's"
            )
        super().__init__(
            {
                port.name: (In if port.direction == "in" else Out)(port.width)
                for port in hub_ports(cfg)
            }
        )
        self._cfg, self._library = cfg, library

    def elaborate(self, platform):
        m = Module()
        cfg, place = self._cfg, placer(self._library)
        m.submodules.producer = producer = HubProducer(cfg, self._library)
        m.submodules.consumer = consumer = HubConsumer(cfg, self._library)
        m.submodules.csr = csr = CsrBank(cfg)
        m.submodules.router = router = ControlRouter(cfg)
        links = [place("moehub_link_slice", lambda: LinkSlice(cfg)) for _ in range(cfg.lanes)]
        loops = [place("moehub_loop_port", lambda: LoopPort(cfg)) for _ in range(cfg.loop_lanes)]
        ports = links + loops

        for n in range(cfg.lanes):
            self._take(m, f"s_store{n}", producer.i_store[n])
            self._give(m, f"m_response{n}", producer.o_store_response[n])
            m.d.comb += getattr(self, f"can_accept{n}").eq(producer.can_accept[n])
            m.submodules[f"link{n}"] = links[n]
            m.d.comb += [
                links[n].peer_dead.eq(csr.peer_dead),
                links[n].first.eq(mutant("hub.slices_name_first_link", n, 0) * cfg.slice_links),
            ]
        for n in range(cfg.links):
            at, link = divmod(n, cfg.slice_links)
            connect_flat(m, self, f"m_axis_link{n}", links[at].tx[link])
            connect_flat(m, self, f"s_axis_link{n}", links[at].rx[link])
        for n, port in enumerate(loops):
            m.submodules[f"loop{n}"] = port
        for n, port in enumerate(ports):
            connect(m, producer.o_record[n], port.i_record)
            connect(m, port.o_record, consumer.i_record[n])
            connect(m, port.o_control, router.i_received[n])
            connect(m, producer.o_ask[n], port.i_ask)
            connect(m, consumer.o_answer[n], port.i_answer)
            m.d.comb += [
                consumer.asked[n].eq(port.asked),
                producer.answered[n].eq(port.answered),
                port.take.eq(producer.take[n]),
                producer.dest_ready[n].eq(port.dest_ready),
                port.rank.eq(csr.rank),
            ]
            connect_flat(m, self, f"m_axi_mem{n}", consumer.mem[n])
        connect_flat(m, self, "m_axi_spill", consumer.spill)
        connect_flat(m, self, "s_axil_csr", csr.axil)

        reject = self._control(m, consumer, router, csr, links[0])
        commands = self._commands(m, producer, csr)
        self._registers(m, producer, consumer, csr, links)
        status = self._status(m, producer, consumer, router, csr, ports, reject)
        self.observe = HubObserve(
            producer, consumer, csr, router, links, loops, reject, commands, *status
        )
        return m

    def _take(self, m, prefix, target):
        """Flat ports of an input stream to an inner one; also the other fields of the payload by
        name."""
        m.d.comb += [
            target.valid.eq(getattr(self, f"{prefix}_valid")),
            getattr(self, f"{prefix}_ready").eq(target.ready),
        ]
        m.d.comb += [
            target.payload[name].eq(getattr(self, f"{prefix}_{name}"))
            for name, _ in target.payload.shape()
        ]

    def _give(self, m, prefix, source):
        """An inner stream to the flat ports of an output stream."""
        m.d.comb += [
            getattr(self, f"{prefix}_valid").eq(source.valid),
            source.ready.eq(getattr(self, f"{prefix}_ready")),
        ]
        m.d.comb += [
            getattr(self, f"{prefix}_{name}").eq(source.payload[name])
            for name, _ in source.payload.shape()
        ]

    def _control(self, m, consumer, router, csr, link):
        """REJECT between its sender, link lane 0 and the own rank. Returns the sender."""
        m.submodules.reject_sender = reject = RejectSender(self._cfg)
        connect(m, reject.o_control, router.i_control)
        connect(m, router.o_link, link.i_control)
        m.d.comb += [
            router.rank.eq(csr.rank),
            router.link_ready.eq(link.ctl_ready),
            reject.i_refused.valid.eq(consumer.refusal_valid),
            reject.i_refused.payload.eq(consumer.refusal),
            reject.peer_dead.eq(csr.peer_dead),
            reject.ctl_ready.eq(router.ctl_ready),
            reject.ctl_done.eq(router.ctl_done),
        ]
        return reject

    def _commands(self, m, producer, csr):
        """Commands of the port and of the registers share ProducerControl; the highest tag bit
        marks the registers'. Returns their merge."""
        cfg = self._cfg
        own = cfg.tag_width
        m.submodules.commands = commands = StreamMerge(types_of(command_config(cfg)).command, 2)
        connect(m, commands.o, producer.i_command)
        self._take(m, "s_command", commands.i[0])
        m.d.comb += [
            commands.i[1].valid.eq(csr.o_command.valid),
            csr.o_command.ready.eq(commands.i[1].ready),
        ]
        m.d.comb += [
            commands.i[1].payload[name].eq(csr.o_command.payload[name])
            for name, _ in csr.o_command.payload.shape()
            if name != "tag"
        ]
        m.d.comb += commands.i[1].payload.tag.eq(1 << own)
        answer = producer.o_response
        from_csr = Signal()
        m.d.comb += [
            from_csr.eq(
                mutant(
                    "hub.answer_goes_where_there_is_room",
                    answer.payload.tag[own],
                    csr.i_command_response.ready,
                )
            ),
            csr.i_command_response.valid.eq(answer.valid & from_csr),
            csr.i_command_response.payload.status.eq(answer.payload.status),
            self.m_command_response_valid.eq(
                mutant("hub.register_answer_at_port_too", answer.valid & ~from_csr, answer.valid)
            ),
            self.m_command_response_tag.eq(answer.payload.tag),
            self.m_command_response_status.eq(answer.payload.status),
            answer.ready.eq(
                Mux(from_csr, csr.i_command_response.ready, self.m_command_response_ready)
            ),
        ]
        return commands

    def _registers(self, m, producer, consumer, csr, links):
        """Configuration from the registers to the blocks."""
        connect(m, csr.o_region_command, consumer.i_command)
        m.d.comb += [
            producer.rank.eq(csr.rank),
            producer.peer_dead.eq(csr.peer_dead),
            producer.policy.eq(csr.policy),
            producer.handle_write.eq(csr.handle_write),
            producer.handle_read.eq(csr.handle_read),
            csr.handle_data.eq(producer.handle_data),
            consumer.geometry_write.eq(csr.geometry_write),
            consumer.window_write.eq(csr.window_write),
            consumer.dep_write.eq(csr.dep_write),
            consumer.query.eq(csr.query),
            consumer.timeout.eq(csr.timeout),
            csr.status.eq(consumer.status),
            csr.missing_from.eq(consumer.missing_from),
            csr.silent.eq(consumer.silent),
            csr.timed_out.eq(consumer.o_timeout),
            csr.region_error.eq(consumer.command_error),
            csr.range_busy.eq(consumer.dep_busy),
            csr.purging.eq(consumer.purging),
            csr.in_flight.eq(producer.in_flight),
            csr.cleared.eq(self.cleared),
            self.irq.eq(csr.irq),
        ]
        pools = Cat(link.clearing for link in links)
        m.d.sync += self.cleared.eq(~(producer.clearing | consumer.clearing | pools.any()))

    def _status(self, m, producer, consumer, router, csr, ports, reject):
        """Events, counters and the HANG page. Returns the parts that make them."""
        cfg = self._cfg
        links = ports[: cfg.lanes]
        bads = [bad for link in links for bad in link.o_bad]
        m.submodules.sums = sums = CounterSums(cfg)
        m.submodules.views = views = SliceView(cfg)
        m.submodules.log = log = RefusalLog(cfg)
        self._give(m, "m_event", consumer.o_event)
        event = consumer.o_event
        m.d.comb += [
            csr.event_valid.eq(event.valid),
            csr.event_error.eq(
                mutant(
                    "hub.error_event_counted_while_offered", event.valid & event.ready, event.valid
                )
                & (event.payload.kind == EventKind.ERROR)
            ),
            csr.counts.eq(sums.counts),
            csr.view.eq(views.view),
            csr.bad.eq(log.o_bad),
            views.slice.eq(csr.slice),
            sums.close.eq(producer.close_counts),
            sums.alloc.eq(consumer.alloc_counts),
            sums.ready.eq(consumer.ready_counts),
            sums.bad.eq(Cat(bad.en for bad in bads)),
            sums.lost.eq(consumer.news_lost),
            sums.single.flag_errors.eq(consumer.flag_error),
            sums.single.closes_received.eq(consumer.close_taken),
            sums.single.rejects_received.eq(router.reject_valid),
        ]
        for n in range(cfg.lanes):
            m.d.comb += sums.store[n].eq(producer.store_counts[n])
        counts = [each for link in links for each in link.counts]
        counts += [loop.counts for loop in ports[cfg.lanes :]]
        m.d.comb += [total.eq(each) for total, each in zip(sums.link, counts, strict=True)]
        for n, port in enumerate(ports):
            m.d.comb += [
                sums.pool[n].eq(producer.pool_counts[n]),
                sums.memory[n].eq(consumer.memory_counts[n]),
                views.oldest[n].eq(producer.oldest[n]),
                views.waiting[n].eq(consumer.waiting[n]),
                views.outstanding[n].eq(consumer.outstanding[n]),
                views.dest_ready[n].eq(port.dest_ready),
                views.ctl_ready[n].eq(port.ctl_ready),
            ]
        m.d.comb += [
            log.refusal_valid.eq(consumer.refusal_valid),
            log.refusal.eq(consumer.refusal),
            log.reject_valid.eq(router.reject_valid),
            log.reject.eq(router.reject),
            log.index.eq(csr.log_index),
            log.clear.eq(csr.log_clear),
            csr.log_entry.eq(log.entry),
            csr.log_count.eq(log.count),
            csr.log_lost.eq(log.lost),
            csr.refused.eq(log.logged),
            sums.single.rejects_sent.eq(reject.sent),
            sums.single.rejects_lost.eq(reject.dropped),
        ]
        m.d.comb += [log.stores[n].eq(producer.o_refused[n]) for n in range(cfg.lanes)]
        m.d.comb += [each.eq(bad) for each, bad in zip(log.bad, bads, strict=True)]
        for name, _ in consumer.obs_alloc.shape():
            m.d.comb += getattr(self, f"obs_alloc_{name}").eq(consumer.obs_alloc[name])
        return sums, views, log
