# SPDX-License-Identifier: Apache-2.0
"""A slice's way to the wires and from them: its links, its receive pool, and the credits of
others'."""

import operator
from typing import NamedTuple

from amaranth import Cat, DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import BAD_PACKET, header_layout, types_of
from hub_rtl.link.crossing import LINK, Crossing
from hub_rtl.link.link import LinkPort, slice_ports
from hub_rtl.link.loop_port import inner_ports
from hub_rtl.link.serializer import Serializer
from hub_rtl.link.slice_credits import CreditPackets, SliceCredits
from hub_rtl.link.spread import RecordSpread
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.stream import StreamMerge, StreamStage
from hub_rtl.receive_pool.receive_pool import ReceivePool

__all__ = ["LinkSlice"]


class LinkSliceObserve(NamedTuple):
    """What a proof may see of a :class:`LinkSlice`: its parts."""

    spread: RecordSpread
    serializers: list  #: Serializer per link
    links: list  #: LinkPort per link
    pool: ReceivePool
    credits: SliceCredits
    messages: CreditPackets
    controls: StreamMerge


class LinkSlice(wiring.Component):
    """One slice of the hub between packet manager, slot allocator and wires.

    Contract: a record whose credit was taken arrives at the same slice of its rank, whole, and
    finds room there: the rank's receive pool has granted it. It travels as a packet of one of the
    slice's links. What slices tell each other travels in CREDIT flits between the packets, on the
    link whose number is the receiver's rank modulo ``slice_links``, so that they stay in order.
    Control flits leave on the first link. Contract, latency, ordering and stalls otherwise as of
    the parts: :class:`~hub_rtl.link.spread.RecordSpread`,
    :class:`~hub_rtl.link.serializer.Serializer`, :class:`~hub_rtl.link.link.LinkPort`,
    :class:`~hub_rtl.receive_pool.receive_pool.ReceivePool`,
    :class:`~hub_rtl.link.slice_credits.SliceCredits`.

    Parameters: ``cfg``. Ports: :func:`~hub_rtl.link.loop_port.inner_ports`: ``i_record`` waits for
    the wire alone, ``dest_ready`` shows a ``take`` in the next cycle, ``o_record`` may wait;
    ``first`` In, number of its first link; per link ``tx``, ``rx``, ``o_bad``, ``counts`` as of
    LinkPort; ``peer_dead`` In; ``clearing`` Out.
    """

    observe: LinkSliceObserve  # once elaborated

    def __init__(self, cfg):
        links = cfg.slice_links
        super().__init__(
            {
                **inner_ports(cfg),
                "first": In(cfg.link_width),
                "tx": Out(AxiStream(FLIT, cfg.rank_width)).array(links),
                "rx": In(AxiStream(FLIT)).array(links),
                "peer_dead": In(cfg.ranks),
                "o_bad": Out(BAD_PACKET).array(links),
                "counts": Out(types_of(cfg).link_counts).array(links),
                "clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, connect, flipped = self._cfg, wiring.connect, wiring.flipped
        count = cfg.slice_links
        m.submodules.spread = spread = RecordSpread(cfg)
        m.submodules.pool = pool = ReceivePool(cfg, cfg.slice_bytes, count, cfg.pool_places)
        m.submodules.credits = credits = SliceCredits(cfg, cfg.pool_places)
        m.submodules.messages = messages = CreditPackets(cfg)
        m.submodules.controls = controls = StreamMerge(FLIT, count, stage=StreamStage)
        serializers = [Serializer(cfg, cfg.slice_bytes) for _ in range(count)]
        links = [LinkPort(cfg) for _ in range(count)]
        self.observe = LinkSliceObserve(
            spread, serializers, links, pool, credits, messages, controls
        )
        nears = [self._near(m, *each) for each in enumerate(zip(serializers, links, strict=True))]
        connect(m, flipped(self.i_record), spread.i_record)
        connect(m, flipped(self.i_control), nears[0].i_control)
        connect(m, controls.o, flipped(self.o_control))
        connect(m, pool.o_record, flipped(self.o_record))
        connect(m, pool.o_grant, messages.i_grant)
        connect(m, credits.o_returned, messages.i_returned)
        connect(m, flipped(self.i_ask), messages.i_ask)
        connect(m, flipped(self.i_answer), messages.i_answer)
        for n, (link, serializer, near) in enumerate(zip(links, serializers, nears, strict=True)):
            record = near.i_record if cfg.link_clock else serializer.i_record
            connect(m, spread.o_record[n], record)
            connect(m, serializer.o_packet, link.i_packet)
            connect(m, link.tx, flipped(self.tx[n]))
            connect(m, flipped(self.rx[n]), near.rx)
            connect(m, near.o_control, controls.i[n])
            connect(m, near.o_source, pool.i_source[n])
            connect(m, near.o_beat, pool.i_beat[n])
            m.d.comb += [
                near.rank.eq(self.rank),
                link.lane.eq(self.first + n),
                near.peer_dead.eq(self.peer_dead),
                self.o_bad[n].eq(near.o_bad),
                self.counts[n].eq(near.counts),
            ]
        self._messages(m, nears, messages.o_packet, pool, credits)
        m.d.comb += [
            pool.rank.eq(self.rank),
            credits.take.eq(self.take),
            self.dest_ready.eq(credits.ready),
            self.ctl_ready.eq(nears[0].ctl_ready),
            self.clearing.eq(pool.clearing | credits.clearing),
        ]
        self._count(m, nears[0].counts, pool, credits)
        return m

    def _near(self, m, n, ends):
        """What the slice sees of a link: itself, or its crossing if it has a clock of its own."""
        serializer, link = ends
        if not self._cfg.link_clock:
            m.submodules[f"serializer{n}"] = serializer
            m.submodules[f"link{n}"] = link
            return link
        m.submodules[f"crossing{n}"] = crossing = Crossing(self._cfg)
        m.submodules[f"serializer{n}"] = DomainRenamer(LINK)(serializer)
        m.submodules[f"link{n}"] = DomainRenamer(LINK)(link)
        wiring.connect(m, crossing.o_record, serializer.i_record)
        wiring.connect(m, crossing.o_rx, link.rx)
        for name, member in slice_ports(self._cfg).items():
            near, far = getattr(crossing.link, name), getattr(link, name)
            if member.is_signature:
                wiring.connect(m, near, far)
            else:
                m.d.comb += far.eq(near) if member.flow == In else near.eq(far)
        return crossing

    def _count(self, m, first, pool, credits):
        """What is of the slice is counted with its first link."""
        add = operator.add if self._cfg.link_clock else operator.or_
        violation = mutant("hub.packet_without_grant_not_counted", pool.violation, 0)
        totals = add(first.bad_totals, credits.bad_total)
        m.d.comb += [
            self.counts[0].credit_violations.eq(add(first.credit_violations, violation)),
            self.counts[0].bad_totals.eq(add(totals, pool.impossible)),
        ]

    def _messages(self, m, links, packet, pool, credits):
        """Messages to a rank go over one link, and come over one."""
        ranks, count = self._cfg.ranks, len(links)

        def towards(rank):
            """One-hot, the link of messages to this rank."""
            return Cat(
                Cat(rank == each for each in range(n, ranks, count)).any() for n in range(count)
            )

        to = header_layout()(packet.p.data).dst
        goes = Signal(count)
        own = Signal(count)
        m.d.comb += [
            goes.eq(towards(mutant("hub.messages_by_sender", to, self.rank))),
            own.eq(towards(self.rank)),
            packet.ready.eq(select(goes, [link.i_message.ready for link in links])),
        ]
        for name, listener in (
            ("granted", credits.granted),
            ("returned", pool.returned),
            ("asked", self.asked),
            ("answered", self.answered),
        ):
            said = [getattr(link, name).as_value() for link in links]
            m.d.comb += listener.eq(select(own, said))
        for n, link in enumerate(links):
            m.d.comb += [
                link.i_message.valid.eq(packet.valid & goes[n]),
                link.i_message.payload.eq(packet.payload),
            ]
