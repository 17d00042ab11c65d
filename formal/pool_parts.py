"""Looking into a part of the packet manager, for helper invariants, and cutting one out of it."""

from amaranth import Module, Signal
from amaranth.lib import wiring

__all__ = ["cut", "look_into", "opened", "peek"]


def opened(part):
    """The module of ``part``, elaborated now: its submodules can still be cut out, its memories still get a port."""
    module = part.elaborate(None)
    part.elaborate = lambda platform: module
    return module


def look_into(part):
    """``(submodules, signals)`` of ``part`` by name: the signals that its own module drives."""
    module = opened(part)
    return ({name: entry[0] for name, entry in module._named_submodules.items()},
            {signal.name: signal for signal in module._driving})


def peek(ram, address):
    """The word of a ``Ram`` at ``address`` in this cycle, for invariants about what is stored."""
    memory = opened(ram)._named_submodules["memory"][0]
    port = memory.read_port(domain="comb")
    word = Signal.like(port.data)
    return port, address, word


def cut(spec, part):
    """Empties ``part``: its outputs may be anything."""
    part.elaborate = lambda platform: Module()
    for _, member, value in part.signature.flatten(part):
        if member.flow == wiring.Out:
            spec.free(value)
