# SPDX-License-Identifier: Apache-2.0
"""Looking into a part through what it declares: its ``observe``. Only for helper invariants and
for cutting inner parts out; a promise speaks of ports."""

from amaranth import Const, Module, Value
from amaranth.lib import wiring

__all__ = ["known_word", "observe", "peek", "stand_in"]


def observe(part):
    """``part.observe``: a named tuple, documented beside the part, of registers, wires and inner
    parts. The part is elaborated now, once; its inner parts are not yet, so that they can still be
    observed, cut out or replaced, and memories still get a port."""
    if getattr(part, "observe", None) is None:
        module = part.elaborate(None)
        part.elaborate = lambda platform: module
    return part.observe


def peek(m, ram, address):
    """The word of a ``Ram`` at ``address`` in this cycle, for invariants about what is stored."""
    port = observe(ram).memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(address)
    return port.data


def known_word(spec, ram, row, name):
    """``(word, known)``: the word of a ``Ram`` in ``row`` in this cycle, and whether its walker has
    passed there. Lemmas, for the proof by induction: what was read of that row a cycle ago is the
    word now (the collision rule), and how far the walker goes."""
    word, walk = peek(spec.m, ram, row), observe(ram).walk
    here = spec.past(ram.r_en & (ram.r_addr == row), f"{name}_read_here")
    spec.lemma(f"{name} read", Value.cast(ram.r_data) == word, when=here)
    if walk is None:
        return word, Const(1)
    spec.lemma(f"{name} walk", walk <= ram.depth)
    return word, walk > row


def stand_in(part, double):
    """``double``, a component with the ports of ``part``, does its work from now on."""
    m = Module()
    m.submodules.double = double
    inner = {path: port for path, _, port in double.signature.flatten(double)}
    for path, member, port in part.signature.flatten(part):
        into = member.flow == wiring.In
        m.d.comb += inner[path].eq(port) if into else port.eq(inner[path])
    part.elaborate = lambda platform: m
    return double
