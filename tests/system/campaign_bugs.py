# SPDX-License-Identifier: Apache-2.0
"""Bugs that a campaign must find: each changes what passes a block's ports, by name, in one build
of the hub.

A block under test keeps its logic. Its ``elaborate`` is replaced by a shell that stands between it
and its ports and lets all through, but for what the chosen bug changes. The number of the bug is an
input of the hub, ``planted_bug``; 0 is none.
"""

import copy
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from amaranth import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.packets import BODIES, PacketType
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from hub_rtl.hub.hub import Hub
from hub_rtl.link.link import LinkPort
from hub_rtl.memory.memory import MemoryWriter
from hub_rtl.producer.producer import ProducerControl
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard
from hub_rtl.slot_allocator.slot_allocator import SlotAllocator
from sim.bench.runner import to_verilog

__all__ = ["BUGS", "planted_verilog"]

BUG = Signal(4, name="bug")


class Shell:
    """What a bug may change. ``source(path)``: what drives a port; ``drive(path, value)``:
    something else does."""

    def __init__(self, m, outer, inner):
        self.m, self.outer, self.inner = m, outer, inner
        theirs = {path: value for path, _, value in inner.signature.flatten(inner)}
        self.ports = {}
        for path, member, value in outer.signature.flatten(outer):
            self.ports[path] = (
                (value, theirs[path]) if member.flow == Out else (theirs[path], value)
            )

    def source(self, *path):
        return self.ports[path][1]

    def drive(self, *path, value):
        self.ports[path] = (self.ports[path][0], value)

    def changed(self, *path, when, **fields):
        """A payload with fields replaced where ``when`` is 1."""
        old = self.source(*path)
        new = Signal.like(old)
        self.m.d.comb += new.eq(old)
        with self.m.If(when):
            self.m.d.comb += [new[name].eq(value) for name, value in fields.items()]
        self.drive(*path, value=new)

    def every(self, count, strobe):
        """1 while the ``count``-th item, of each ``count``, is the next."""
        number = Signal(range(count))
        with self.m.If(strobe):
            self.m.d.sync += number.eq(Mux(number == count - 1, 0, number + 1))
        return number == count - 1

    def lose(self, *path, when):
        """An item of an output stream is taken and never seen."""
        valid, ready = self.source(*path, "valid"), self.source(*path, "ready")
        self.drive(*path, "valid", value=valid & ~when)
        self.drive(*path, "ready", value=ready | when)

    def taken(self, *path):
        return self.source(*path, "valid") & self.ports[*path, "ready"][0]


def lost_acknowledgement(s, on):
    s.lose("o_ack", when=on & s.every(5, s.taken("o_ack")))


def early_acknowledgement(s, on):
    """The answer is made up as soon as the last beat is taken."""
    mem = s.inner.mem
    owed = Signal(10)
    s.m.d.sync += owed.eq(owed + (mem.wvalid & mem.wready & mem.wlast) - (mem.bvalid & mem.bready))
    s.drive("mem", "bvalid", value=Mux(on, owed != 0, s.source("mem", "bvalid")))
    s.drive("mem", "bresp", value=Mux(on, 0, Value.cast(s.source("mem", "bresp"))))


def wrong_slot(s, on):
    path = ("o_write", 0)
    addr = s.source(*path, "payload").addr
    s.changed(*path, "payload", when=on & s.every(3, s.taken(*path)), addr=addr ^ 256)


def wrong_bank(s, on):
    path = ("o_write", 0, "payload")
    context = s.source(*path).context
    wrong = Signal.like(context)
    s.m.d.comb += [
        wrong.eq(context),
        wrong.bank.eq(~context.bank),
    ]
    s.changed(*path, when=on & s.every(3, s.taken("o_write", 0)), context=wrong)


def mask_ignored(s, on):
    s.changed("o_data", 0, "payload", when=on, strb=0xFFFF)


def refusal_lost(s, on):
    s.lose("o_refused", 0, when=on)


def ready_lost(s, on):
    s.lose(
        "o_event",
        when=on & s.every(3, s.taken("o_event")) & (s.source("o_event", "payload").kind == 0),
    )


def ready_of_next_group(s, on):
    payload = s.source("o_event", "payload")
    s.changed("o_event", "payload", when=on & (payload.kind == 0), group=payload.group + 1)


def credit_kept(s, on):
    """No grant of a receive pool is ever told."""
    moved, first = s.inner.tx.tvalid & s.inner.tx.tready, Signal(init=1)
    with s.m.If(moved):
        s.m.d.sync += first.eq(s.inner.tx.tlast)
    data = s.source("tx", "tdata")
    grants = 1 << BODIES[PacketType.CREDIT]["grants"][0]
    kept = data & ~Mux(data[:4] == PacketType.CREDIT, grants, 0)
    s.drive("tx", "tdata", value=Mux(on & first, kept, data))


def nothing_drains(s, on):
    for path in [path for path in s.ports if path[0] == "draining"]:
        s.drive(*path, value=Mux(on, 0, s.source(*path)))


def refusal_answered_ok(s, on):
    s.changed("o_response", "payload", when=on, status=0)


#: name -> (block, what it changes); the number of a bug is its place in the table, from 1.
BUGS = {
    function.__name__: (block, function)
    for block, function in (
        (MemoryWriter, lost_acknowledgement),
        (MemoryWriter, early_acknowledgement),
        (SlotAllocator, wrong_slot),
        (SlotAllocator, wrong_bank),
        (SlotAllocator, mask_ignored),
        (SlotAllocator, refusal_lost),
        (ReadinessScoreboard, ready_lost),
        (ReadinessScoreboard, ready_of_next_group),
        (LinkPort, credit_kept),
        (ProducerControl, nothing_drains),
        (LogicalDestinationDecoder, refusal_answered_ok),
    )
}


class _Inside(Elaboratable):
    def __init__(self, component, elaborate):
        self._component, self._elaborate = component, elaborate

    def elaborate(self, platform):
        return self._elaborate(self._component, platform)


def _shelled(original, changes):
    def elaborate(self, platform):
        m, inner = Module(), copy.copy(self)
        fresh = self.signature.create()
        for name in self.signature.members:
            setattr(inner, name, getattr(fresh, name))
        m.submodules.inside = _Inside(inner, original)
        shell = Shell(m, self, inner)
        for number, change in changes:
            change(shell, BUG.matches(number))
        m.d.comb += [target.eq(source) for target, source in shell.ports.values()]
        return m

    return elaborate


@contextmanager
def _planted():
    blocks = {}
    for number, (block, change) in enumerate(BUGS.values(), 1):
        blocks.setdefault(block, []).append((number, change))
    with ExitStack() as stack:
        for block, changes in blocks.items():
            stack.enter_context(
                patch.object(block, "elaborate", _shelled(block.elaborate, changes))
            )
        yield


class _PlantedHub(wiring.Component):
    def __init__(self, cfg):
        self._hub = Hub(cfg)
        super().__init__({**dict(self._hub.signature.members.items()), "planted_bug": In(4)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub = self._hub
        m.d.comb += BUG.eq(self.planted_bug)
        for path, member, value in self._hub.signature.flatten(self._hub):
            mine = getattr(self, path[0])
            m.d.comb += mine.eq(value) if member.flow == Out else value.eq(mine)
        return m


def planted_verilog(cfg):
    """Verilog of a hub with all bugs in it, chosen by the input ``planted_bug``."""
    with _planted():
        return to_verilog(_PlantedHub(cfg), "moehub")
