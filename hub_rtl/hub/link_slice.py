# SPDX-License-Identifier: Apache-2.0
"""A slice's way to the wire and from it: its link, its receive pool, and the credits of others'."""

from typing import NamedTuple

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import AxiStream
from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.records import BAD_PACKET
from hub_rtl.link.link import LinkPort
from hub_rtl.link.loop_port import inner_ports
from hub_rtl.link.slice_credits import CreditPackets, SliceCredits
from hub_rtl.parts.mutants import mutant
from hub_rtl.receive_pool.receive_pool import ReceivePool

__all__ = ["LinkSlice"]


class LinkSliceObserve(NamedTuple):
    """What a proof may see of a :class:`LinkSlice`: its parts."""

    link: LinkPort
    pool: ReceivePool
    credits: SliceCredits
    messages: CreditPackets


class LinkSlice(wiring.Component):
    """One slice of the hub between packet manager, slot allocator and wire.

    Contract: a packet whose credit was taken arrives at the same slice of its rank as a whole
    record, and finds room there: the rank's receive pool has granted it. What pools tell each
    other travels in CREDIT flits between the packets. Contract, latency, ordering and stalls
    otherwise as of the parts: :class:`~hub_rtl.link.link.LinkPort`,
    :class:`~hub_rtl.receive_pool.receive_pool.ReceivePool`,
    :class:`~hub_rtl.link.slice_credits.SliceCredits`.

    Parameters: ``cfg``. Ports: :func:`~hub_rtl.link.loop_port.inner_ports`: ``i_packet`` waits for
    the wire alone, ``dest_ready`` shows a ``take`` in the next cycle, ``o_record`` may wait;
    ``tx``, ``rx``, ``peer_dead``, ``o_bad`` as of LinkPort; ``clearing`` Out.
    """

    observe: LinkSliceObserve  # once elaborated

    def __init__(self, cfg):
        super().__init__(
            {
                **inner_ports(cfg),
                "tx": Out(AxiStream(FLIT, cfg.rank_width)),
                "rx": In(AxiStream(FLIT)),
                "peer_dead": In(cfg.ranks),
                "o_bad": Out(BAD_PACKET),
                "clearing": Out(1),
            }
        )
        self._cfg = cfg

    def elaborate(self, platform):
        m = Module()
        cfg, connect, flipped = self._cfg, wiring.connect, wiring.flipped
        m.submodules.link = link = LinkPort(cfg)
        m.submodules.pool = pool = ReceivePool(cfg, cfg.slice_bytes, 1, cfg.pool_places)
        m.submodules.credits = credits = SliceCredits(cfg, cfg.pool_places)
        m.submodules.messages = messages = CreditPackets(cfg)
        self.observe = LinkSliceObserve(link, pool, credits, messages)
        connect(m, flipped(self.i_packet), link.i_packet)
        connect(m, flipped(self.i_control), link.i_control)
        connect(m, link.tx, flipped(self.tx))
        connect(m, flipped(self.rx), link.rx)
        connect(m, link.o_control, flipped(self.o_control))
        connect(m, link.o_source, pool.i_source[0])
        connect(m, link.o_beat, pool.i_beat[0])
        connect(m, pool.o_record, flipped(self.o_record))
        connect(m, pool.o_grant, messages.i_grant)
        connect(m, credits.o_returned, messages.i_returned)
        connect(m, messages.o_packet, link.i_message)
        m.d.comb += [
            link.rank.eq(self.rank),
            link.lane.eq(self.lane),
            link.peer_dead.eq(self.peer_dead),
            pool.rank.eq(self.rank),
            pool.returned.eq(link.returned),
            credits.granted.eq(link.granted),
            credits.take.eq(self.take),
            self.dest_ready.eq(credits.ready),
            self.ctl_ready.eq(link.ctl_ready),
            self.clearing.eq(pool.clearing | credits.clearing),
            self.o_bad.eq(link.o_bad),
            self.counts.eq(link.counts),
            self.counts.credit_violations.eq(
                link.counts.credit_violations
                | mutant("hub.packet_without_grant_not_counted", pool.violation, 0)
            ),
            self.counts.bad_totals.eq(link.counts.bad_totals | credits.bad_total | pool.impossible),
        ]
        return m
