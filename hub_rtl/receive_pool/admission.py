# SPDX-License-Identifier: Apache-2.0
"""Who may come in, and where to: a place for each packet, before its payload is there."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import GRANT
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue

__all__ = ["Admission"]

TICKETS = 2  # of a link: for the packet that comes in and the next one


class Admission(wiring.Component):
    """Gives each packet a ticket: a place, if its source has a grant left.

    Contract: tickets of a link are those of its packets, in order. A source gets as many places as
    ``limits`` says beyond its first share, mod 4096, and not one more: what it sends beyond is not
    admitted (``violation``). A place is given to one packet at a time.

    Latency: a ticket 2 cycles after the source was offered; one per cycle and pool, one every
    second cycle per link. Stalls: ``i_source`` waits while the link has two tickets.

    Parameters: ``cfg``, ``types``, ``links``. Ports: ``i_source`` In, stream(rank) per link;
    ``o_ticket`` Out, stream(ticket) per link; ``limit_write`` In {en, rank, total}, packets that a
    source may have sent beyond its first share; ``look`` In rank, ``arrived`` Out, its packets that
    were admitted since reset, in the next cycle; ``free`` In {en, place}; ``violation`` Out strobe;
    ``clearing`` Out.
    """

    def __init__(self, cfg, types, links):
        rank = cfg.rank_width
        super().__init__(
            {
                "i_source": In(stream.Signature(rank)).array(links),
                "o_ticket": Out(stream.Signature(types.ticket)).array(links),
                "limit_write": In(data.StructLayout({"en": 1, "rank": rank, "total": GRANT})),
                "look": In(rank),
                "arrived": Out(GRANT),
                "free": In(data.StructLayout({"en": 1, "place": types.place_width})),
                "violation": Out(1),
                "clearing": Out(1),
            }
        )
        self._cfg, self._types, self._links = cfg, types, links

    def elaborate(self, platform):
        m = Module()
        cfg, t = self._cfg, self._types
        tickets = [RegisterQueue(t.ticket, TICKETS) for _ in range(self._links)]
        m.submodules.limits = limits = Ram(GRANT, cfg.ranks, clear=True)
        m.submodules.arrived = arrived = Ram(GRANT, cfg.ranks, clear=True)
        m.submodules.arrived_seen = seen = Ram(GRANT, cfg.ranks, clear=True)
        m.submodules.turns = turns = RoundRobin(self._links)
        judged = Signal(self._links)  # one-hot or none
        src = Signal(cfg.rank_width)  # its source
        for n, (queue, source) in enumerate(zip(tickets, self.i_source, strict=True)):
            m.submodules[f"tickets_{n}"] = queue
            wiring.connect(m, queue.o, wiring.flipped(self.o_ticket[n]))
            m.d.comb += [
                turns.requests[n].eq(
                    source.valid
                    & queue.i.ready
                    & ~mutant("receive_pool.ticket_without_room", judged[n], 0)
                    & mutant("receive_pool.taken_while_clearing", ~self.clearing, 1)
                ),
                source.ready.eq(turns.grant_onehot[n]),
            ]
        asks = Signal(cfg.rank_width)
        room = Signal(GRANT)
        admitted = Signal()
        place, there = self._places(m, admitted)
        m.d.comb += [
            turns.advance.eq(1),
            asks.eq(select(turns.grant_onehot, [source.payload for source in self.i_source])),
            self.clearing.eq(limits.clearing),
            limits.w_en.eq(self.limit_write.en),
            limits.w_addr.eq(self.limit_write.rank),
            limits.w_data.eq(self.limit_write.total),
            *(ram.r_addr.eq(asks) for ram in (limits, arrived)),
            *(ram.r_en.eq(1) for ram in (limits, arrived, seen)),
            # More than half of all numbers ahead: it has sent more than it may.
            room.eq(limits.r_data + t.first - arrived.r_data),
            admitted.eq(
                judged.any()
                & mutant("receive_pool.admitted_without_grant", room.any() & ~room[-1], 1)
                & there
            ),
            *(ram.w_en.eq(admitted) for ram in (arrived, seen)),
            *(ram.w_addr.eq(src) for ram in (arrived, seen)),
            *(ram.w_data.eq(arrived.r_data + 1) for ram in (arrived, seen)),
            seen.r_addr.eq(self.look),
            self.arrived.eq(seen.r_data),
        ]
        for n, queue in enumerate(tickets):
            m.d.comb += [
                queue.i.valid.eq(judged[n]),
                queue.i.p.admitted.eq(admitted),
                queue.i.p.place.eq(place),
            ]
        m.d.sync += [
            judged.eq(turns.grant_onehot),
            src.eq(asks),
            self.violation.eq(judged.any() & ~admitted),
        ]
        return m

    def _places(self, m, takes):
        """Free places, first in first out; those that were never used come first. Returns the next
        one, and whether there is one."""
        t = self._types
        m.submodules.freed = freed = RamQueue(t.place_width, t.places)
        unused = Signal(range(t.places + 1))
        all_used = Signal()
        m.d.comb += [
            freed.i.valid.eq(self.free.en),
            freed.i.payload.eq(self.free.place),
            freed.o.ready.eq(takes & all_used),
        ]
        with m.If(takes & ~all_used):
            m.d.sync += [
                unused.eq(unused + 1),
                all_used.eq(
                    unused == mutant("receive_pool.place_beyond_the_last", t.places - 1, t.places)
                ),
            ]
        return (
            Mux(all_used, freed.o.payload, Cat(unused)[: t.place_width]),
            ~all_used | freed.o.valid,
        )
