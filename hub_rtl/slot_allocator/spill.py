# SPDX-License-Identifier: Apache-2.0
"""Spill engine: reads and writes rows' mappings in device memory."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.axi import RESP_OKAY, SpillSignature
from hub_rtl.contract.fields import ADDR, ROWID
from hub_rtl.contract.records import types_of
from hub_rtl.parts.arbiter import RoundRobin
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select
from hub_rtl.parts.ram import Ram

from .records import slice_types_of

__all__ = ["SpillEngine"]


class SpillEngineObserve(NamedTuple):
    """What a proof may see of a :class:`SpillEngine`."""

    views: Ram  #: per region {row_first, spill_base}
    request: Signal  #: the request under way
    base: Signal  #: of its list of words
    distance: Signal  #: of its row from the first
    is_in: dict  #: 1 in that state: IDLE, TAKE, LOOK, DISTANCE, ADDRESS, WAIT


class SpillEngine(wiring.Component):
    """One word of the spill table at a time: address = spill_base[bank] + 8 * (RowID - row_first).

    A request is answered when memory has answered, so whoever waits for the answer never reads
    before its write has landed. 5 cycles plus the memory's latency per request, which is taken in
    the second of them; the users in turn. Waits for memory only.

    Parameters: ``cfg``; ``users``, the slices, or 1, their victim store. Ports: ``i_request`` In,
    stream per user; ``done`` Out, one bit per user, with ``reply`` {word, error};
    ``geometry_write`` In; ``mem`` Out, :class:`~hub_rtl.contract.axi.SpillSignature`; ``clearing``
    Out, after reset."""

    observe: SpillEngineObserve  # once elaborated

    def __init__(self, cfg, users):
        types, own = types_of(cfg), slice_types_of(cfg)
        self._cfg, self._own, self._users = cfg, own, users
        super().__init__(
            {
                "i_request": In(stream.Signature(own.spill_request)).array(users),
                "done": Out(users),
                "reply": Out(own.spill_reply),
                "geometry_write": In(types.geometry_write),
                "mem": Out(SpillSignature()),
                "clearing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cfg, mem, write = self._cfg, self.mem, self.geometry_write
        view = data.StructLayout({"row_first": ROWID, "spill_base": data.ArrayLayout(ADDR, 2)})
        m.submodules.views = views = Ram(view, cfg.regions, clear=True)
        m.submodules.arbiter = arbiter = RoundRobin(self._users)
        request = Signal(self._own.spill_request)
        who = Signal(self._users)
        base = Signal(ADDR)
        distance = Signal(ROWID)
        address = Signal(ADDR)
        m.d.comb += [
            views.w_en.eq(write.en),
            views.w_addr.eq(write.region),
            views.w_data.row_first.eq(write.geometry.row_first),
            views.w_data.spill_base.eq(write.geometry.spill_base),
            views.r_addr.eq(request.region),
            self.clearing.eq(views.clearing),
            arbiter.requests.eq(Cat(each.valid for each in self.i_request)),
            mem.aw.payload.eq(address),
            mem.ar.payload.eq(address),
            mem.w.payload.eq(request.word),
        ]
        m.d.sync += self.done.eq(0)
        self._offer(m)
        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.comb += arbiter.advance.eq(1)
                m.d.sync += who.eq(arbiter.grant_onehot)
                with m.If(arbiter.requests.any()):
                    m.next = "TAKE"
            # A step of its own: grants of all users, and back, are a long way.
            with m.State("TAKE"):
                m.d.comb += [each.ready.eq(who[n]) for n, each in enumerate(self.i_request)]
                m.d.sync += request.eq(
                    select(who, [each.payload.as_value() for each in self.i_request])
                )
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += views.r_en.eq(1)
                m.next = "DISTANCE"
            with m.State("DISTANCE"):
                m.d.sync += [
                    base.eq(
                        Mux(request.bank, views.r_data.spill_base[1], views.r_data.spill_base[0])
                    ),
                    distance.eq(
                        mutant(
                            "slot_allocator.spill_address_of_16_bits",
                            (request.rowid - views.r_data.row_first)[:ROWID],
                            (request.rowid - views.r_data.row_first)[:16],
                        )
                    ),
                ]
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.sync += [
                    address.eq(base + Cat(Const(0, 3), distance)),
                    mem.aw.valid.eq(request.write),
                    mem.w.valid.eq(request.write),
                    mem.ar.valid.eq(~request.write),
                ]
                m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += [
                    mem.b.ready.eq(1),
                    mem.r.ready.eq(1),
                ]
                with m.If(mem.b.valid | mem.r.valid):
                    self._reply(m, who, request)
                    m.next = "IDLE"
        is_in = {name: fsm.ongoing(name) for name in fsm.encoding}
        self.observe = SpillEngineObserve(views, request, base, distance, is_in)
        return m

    def _offer(self, m):
        """An address or a word is offered until memory takes it."""
        mem = self.mem
        with m.If(mem.aw.ready):
            m.d.sync += mem.aw.valid.eq(0)
        with m.If(mem.w.ready):
            m.d.sync += mem.w.valid.eq(
                mutant("slot_allocator.spill_data_offered_again", 0, mem.aw.valid)
            )
        with m.If(mem.ar.ready):
            m.d.sync += mem.ar.valid.eq(0)

    def _reply(self, m, who, request):
        """Memory's answer to the one who asked."""
        mem = self.mem
        resp = mutant(
            "slot_allocator.write_fault_hidden",
            Mux(request.write, mem.b.payload, mem.r.p.resp),
            mem.r.p.resp,
        )
        m.d.sync += [
            self.done.eq(who),
            self.reply.word.eq(mem.r.p.data),
            self.reply.error.eq(resp != RESP_OKAY),
        ]
