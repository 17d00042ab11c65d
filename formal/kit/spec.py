# SPDX-License-Identifier: Apache-2.0
"""What every specification is made of: free inputs, assumptions with a witness, assertions,
covers."""

from fnmatch import fnmatchcase
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from amaranth import ClockDomain, Elaboratable, Module, Shape, Signal, Value
from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cover, ValueCastable
from amaranth.lib import wiring

__all__ = ["Spec", "Stream", "blocked", "moves", "one_of", "same", "streams"]


class Stream(NamedTuple):
    """The three members of a stream port."""

    valid: Value
    ready: Value
    payload: Value


def streams(part):
    """``(name, flow, Stream)`` of every stream among the ports of a component, in arrays and in
    deeper interfaces too."""
    ports = {path: (member.flow, value) for path, member, value in part.signature.flatten(part)}
    for path, (flow, valid) in ports.items():
        rest = [path[:-1] + (member,) for member in ("ready", "payload")]
        if path[-1] == "valid" and all(each in ports for each in rest):
            yield (
                ".".join(map(str, path[:-1])),
                flow,
                Stream(valid, *(ports[each][1] for each in rest)),
            )


def moves(port):
    """An item of the stream moves in this cycle."""
    return port.valid & port.ready


def blocked(port):
    """An item of the stream waits in this cycle."""
    return port.valid & ~port.ready


def same(record, **fields):
    """These fields of a record have these values."""
    return reduce(and_, (getattr(record, name) == value for name, value in fields.items()))


def one_of(value, *others):
    """The value is one of the others."""
    return reduce(or_, (value == each for each in others))


def _bits(value):
    return value.as_value() if isinstance(value, ValueCastable) else Value.cast(value)


class Spec(Elaboratable):
    """One promise about one part, as a module around it. Subclasses write :meth:`build`; their
    docstring is the promise.

    Names of properties are unique within a specification and read as a statement: ``payload held``.
    An assertion or assumption with ``when`` is an implication, and gets a cover of ``when``:
    nothing is proved, and nothing assumed, about a case that cannot occur. Time starts with the
    state that reset leaves; reset stays low.

    ``before`` (a field of the table) names assumptions of which only earlier cycles count: what is
    shown of a cycle does not rest on them in that cycle. So two promises may be supposed of each
    other, if one of them needs the other only before.
    """

    before = ()

    def __init__(self, cfg=None):
        self._cfg = cfg  # the configuration, of specifications whose part has one
        self.properties, self.assumptions, self.covers = [], [], []
        self.parts = []  # whose inputs are free
        self.clk = Signal()
        self.wrapped = {}  # the submodules by name, once elaborated as RTLIL

    def build(self, m):
        """Adds the part under proof, the environment and the properties to ``m``."""
        raise NotImplementedError

    def elaborate(self, platform):
        self.m = m = Module()
        m.domains.sync = sync = ClockDomain()
        m.d.comb += [
            sync.clk.eq(self.clk),
            sync.rst.eq(0),
        ]
        self.started = Signal(
            name="started"
        )  # 0 in the first cycle, where past values mean nothing
        m.d.sync += self.started.eq(1)
        self.broken = Signal(name="broken")  # one of `before` did not hold in an earlier cycle
        self.build(m)
        return m

    # -- the environment ---------------------------------------------------------------------------

    def free(self, *values):
        """Each of ``values`` (inputs of the part) may be anything in every cycle."""
        for value in map(_bits, values):
            self.m.d.comb += value.eq(AnySeq(len(value)))

    def free_outputs(self, part, but=()):
        """Every output of ``part``, which drives none itself, may be anything, except ports named
        in ``but``."""
        for path, member, value in part.signature.flatten(part):
            if member.flow == wiring.Out and path[0] not in but:
                self.free(value)

    def constant(self, shape=1, name="constant"):
        """An arbitrary value that stays the same: what is proved of it is proved of all."""
        chosen = Signal(shape, name=name)
        self.m.d.comb += _bits(chosen).eq(AnyConst(Shape.cast(shape).width))
        return chosen

    def free_inputs(self, part, but=()):
        """Every input of ``part`` may be anything, except ports named in ``but``; its input streams
        obey the stream rules."""
        self.parts.append(part)
        for path, member, value in part.signature.flatten(part):
            if member.flow == wiring.In and path[0] not in but:
                self.free(value)
        for name, flow, port in streams(part):
            if flow == wiring.In and name.split(".")[0] not in but:
                self.suppose_held(port, name)

    # -- properties --------------------------------------------------------------------------------

    def always(self, name, holds, when=None):
        """``holds`` is true in every cycle (in which ``when`` is true)."""
        self._add(Assert, self.properties, name, holds, when)

    def lemma(self, name, holds, when=1):
        """A helper invariant of a proof, no promise: asserted, but without a cover, since nothing
        is lost if ``when`` never occurs; and a mutant must be caught without it."""
        self._add(Assert, self.properties, f"lemma: {name}", ~Value.cast(when).bool() | holds, None)

    def suppose(self, name, holds, when=None):
        """The environment keeps ``holds`` in every cycle (in which ``when`` is true)."""
        self._add(Assume, self.assumptions, name, holds, when)

    def reach(self, name, happens):
        """Some run leads to a cycle with ``happens``."""
        if name in self.covers:
            raise ValueError(f"{type(self).__name__}: cover {name!r} is declared twice")
        self.covers.append(name)
        self.m.d.comb += Cover(happens, name)

    def _add(self, kind, names, name, holds, when):
        if name in self.properties + self.assumptions:
            raise ValueError(f"{type(self).__name__}: property {name!r} is declared twice")
        if " at 0x" in name:
            raise ValueError(f"{type(self).__name__}: property {name!r}: another name in each run")
        names.append(name)
        holds = holds if when is None else ~Value.cast(when).bool() | holds
        if kind is Assume and any(fnmatchcase(name, pattern) for pattern in self.before):
            with self.m.If(~Value.cast(holds).bool()):
                self.m.d.sync += self.broken.eq(1)
        elif kind is Assert and self.before:
            self.m.d.comb += kind(self.broken | Value.cast(holds).bool(), name)
        else:
            self.m.d.comb += kind(holds, name)
        if when is not None:
            self.reach(f"{name}: when", when)

    def past(self, value, name=None):
        """``value`` one cycle ago; 0 in the first cycle."""
        value = _bits(value)
        before = Signal(len(value), name=name or "past")
        self.m.d.sync += before.eq(value)
        return before

    def flag(self, flag, set, clear, first=1):
        """``flag`` becomes 1 with ``set`` and 0 with ``clear``; when both happen, ``first``."""
        ways = [(set, 1), (clear, 0)] if first else [(clear, 0), (set, 1)]
        with self.m.If(ways[0][0]):
            self.m.d.sync += flag.eq(ways[0][1])
        with self.m.Elif(ways[1][0]):
            self.m.d.sync += flag.eq(ways[1][1])

    # -- queues ------------------------------------------------------------------------------------

    def always_fifo(self, name, put, item, take, result, most, placed=False):
        """The items taken are those put, in order, each once: an arbitrary one is followed. At most
        ``most`` are between the two sides. ``placed``: with the lemma that it is inside, which
        helps some proofs. Returns their number, the followed one's place (0: next; without meaning
        outside), whether it is inside."""
        item, result = _bits(item), _bits(result)
        inside, ahead, kept, chosen, follows = (
            Signal(shape, name=f"{name.replace(' ', '_')}_{what}")
            for shape, what in (
                (range(most + 2), "inside"),
                (range(most + 2), "ahead"),
                (len(item), "kept"),
                (1, "chosen"),
                (1, "follows"),
            )
        )
        self.free(chosen)
        self.m.d.sync += inside.eq(inside + put - take)
        with self.m.If(follows):
            self.m.d.sync += [
                ahead.eq(ahead - take),
                follows.eq(~(take & (ahead == 0))),
            ]
        with self.m.Elif(put & chosen):
            self.m.d.sync += [
                ahead.eq(inside - take),
                follows.eq(1),
                kept.eq(item),
            ]
        self.always(f"{name}: nothing invented", inside != 0, when=take)
        self.always(f"{name}: at most {most} inside", inside <= most)
        self.always(
            f"{name}: as it came, in order", result == kept, when=take & follows & (ahead == 0)
        )
        if placed:
            self.lemma(f"{name}: the followed one is inside", ahead < inside, when=follows)
        return inside, ahead, follows

    # -- stream rules ------------------------------------------------------------------------------

    def _held(self, add, port, name):
        waits = self.past(port.valid & ~port.ready, f"{name}_waits")
        add(f"{name}: valid held", port.valid, waits)
        if len(_bits(port.payload)):
            add(
                f"{name}: payload held",
                _bits(port.payload) == self.past(_bits(port.payload), f"{name}_payload_before"),
                waits,
            )

    def suppose_held(self, port, name):
        """Assume of an input stream: an item that waits stays as it is."""
        self._held(self.suppose, port, name)

    def always_held(self, port, name):
        """Assert of an output stream: an item that waits stays as it is."""
        self._held(self.always, port, name)

    def always_held_all(self, part, but=()):
        """:meth:`always_held` of every output stream of ``part``, except ports named in ``but``."""
        for name, flow, port in streams(part):
            if flow == wiring.Out and name.split(".")[0] not in but:
                self.always_held(port, name)
