# SPDX-License-Identifier: Apache-2.0
"""Signals and memory words inside a part, by name: only for helper invariants, never for a
promise."""

import sys

from amaranth import Const, Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Fragment
from amaranth.lib import wiring

__all__ = ["Inside", "free_part"]


class Inside:
    """The part ``part`` as the submodule ``dut`` of ``m``, open for lemmas.

    Names are the variables of the part's ``elaborate`` and of the methods it calls, or its ports:
    ``inside["views.kept"]`` is ``kept`` in the part that the variable ``views`` holds.
    ``state("WAIT")`` is 1 in that state of the state machine; ``word(m, "views.memory", address)``
    is a memory word, read without delay.
    """

    def __init__(self, m, part):
        self._part, self._variables, self._results = part, {}, {}
        before = sys.getprofile()
        sys.setprofile(self._returned)
        try:
            fragment = Fragment.get(part, None)
        finally:
            sys.setprofile(before)
        m.submodules.dut = _Elaborated(fragment)

    def _returned(self, frame, event, result):
        part = frame.f_locals.get("self")
        if event == "return" and isinstance(part, wiring.Component):
            # `elaborate` returns last: of two variables with one name its own is meant.
            self._variables.setdefault(id(part), {}).update(frame.f_locals)
            if frame.f_code.co_name == "elaborate":
                self._results[id(part)] = result

    def __getitem__(self, path):
        found = self._part
        for name in path.split("."):
            if isinstance(found, list):
                found = found[int(name)]
            else:
                variables = self._variables.get(id(found), {})
                found = variables[name] if name in variables else getattr(found, name)
        return found

    def state(self, name, path="m"):
        """1 while the state machine of the module ``path`` is in state ``name``."""
        fsm = self[path]._generated["fsm"]
        return fsm.state == fsm.encoding[name]

    def word(self, m, path, address, name="word"):
        """The word of a memory at ``address``."""
        instance = self._results[id(self[path])]
        value, at = (
            Signal(instance._data.shape, name=name),
            Signal(range(instance._data.depth), name=f"{name}_address"),
        )
        m.d.comb += at.eq(address)
        instance.read_port(domain="comb", addr=at, data=value, en=Const(1), transparent_for=())
        return value


class _Elaborated(Elaboratable):
    def __init__(self, fragment):
        self._fragment = fragment

    def elaborate(self, platform):
        return self._fragment


def free_part(part, cleared=True):
    """A component with the ports of ``part`` whose outputs may be anything; with ``cleared``,
    ``clearing`` is 0."""

    class Free(part):
        def elaborate(self, platform):
            m = Module()
            for path, member, value in self.signature.flatten(self):
                if member.flow == wiring.Out and not (cleared and path == ("clearing",)):
                    bits = value.as_value() if hasattr(value, "as_value") else value
                    m.d.comb += bits.eq(AnySeq(len(bits)))
            return m

    return Free
