# SPDX-License-Identifier: Apache-2.0
"""A design with an agent at every port, made from the signature of its component.

::

    class QueueRig(Rig):
        block = StreamQueue

    @QueueRig.test(stall="random")
    async def keeps_order(rig, cfg, rng):
        rig.i.put(*range(9))
        ...
"""

import functools
import gc
import itertools
import warnings

import cocotb
from amaranth.lib import stream, wiring

from .clock import Bench
from .ports import reader, writer
from .runner import bench_params, needs
from .streams import Codec, StreamSink, StreamSource

__all__ = ["Rig", "Testbench"]


#: Of the component, by class of the rig: one configuration in a simulation.
_SIGNATURES = {}


def _ports(signature, nested, path=()):
    """(Verilog name, name, indices, member) of each port; of what is in a port of ports, too, if
    ``nested``."""
    for name, member in signature.members.items():
        for indices in itertools.product(*map(range, member.dimensions)):
            yield "__".join([*path, name, *map(str, indices)]), name, indices, member
        if nested and member.is_signature and not _is_stream(member):
            yield from _ports(member.signature, nested, (*path, name, *map(str, indices)))


def _is_stream(member):
    described = member.signature.flip() if member.flow == wiring.In else member.signature
    return isinstance(described, stream.Signature)


LINK_PERIOD = 1334  # ps of a second clock, nearly 3 : 2: it passes through all phases


class Testbench(Bench):
    """A bench whose tests get it started, and leave it to be finished.

    Parameters: ``salt`` of the random numbers; ``watchdog``, see :class:`Bench`. Attributes:
    ``cfg``, ``params``, ``rng`` (``bench_params``).
    """

    def __init__(self, dut, salt="", watchdog=3000):
        super().__init__(dut, watchdog)
        self.cfg, self.params, self.rng = bench_params(salt)
        self.run_clock()
        if hasattr(dut, "link_clk"):
            self.second_clock(self.params.get("link_period", LINK_PERIOD))

    def pause(self, pattern, *agents):
        """The same pattern for some agents."""
        for agent in agents:
            agent.set_pause(pattern, self.rng)

    async def start(self):
        """What comes before a test."""
        await self.reset()

    async def finish(self):
        """Everything expected has come, nothing else has."""

    @classmethod
    def test(cls, *, fits=None, cases=None, grid=None, finish=True, **options):
        """Decorator of a cocotb test ``async def name(rig, cfg, rng, **case)``.

        The rig is new, with ``options``, and has been started; after the test it is finished,
        unless ``finish`` is False. ``fits(cfg)`` says for which configurations the test is
        (``needs``). ``cases`` is {parameter: values} of a test that runs once per value; ``grid``,
        pairs of patterns (idle, stall), is one of them.
        """
        cases = (cases or {}) | ({"grid": grid} if grid else {})

        def decorate(test):
            @functools.wraps(test)
            async def run(dut, **case):
                idle, stall = case.get("grid", (None, None))
                pauses = {"idle": idle, "stall": stall} if grid else {}
                rig = cls(dut, f"{test.__name__}{[*case.values()]}", **pauses, **options)
                await rig.start()
                began = rig.cycle
                await test(rig, rig.cfg, rig.rng, **case)
                assert rig.cycle > began, "the test did nothing"
                if finish:
                    await rig.finish()

            made = needs(fits)(run) if fits else run
            return cocotb.test()(cocotb.parametrize(**cases)(made) if cases else made)

        return decorate


class Rig(Testbench):
    """The bench of one design, with an agent at every port.

    An input stream has a :class:`StreamSource` and an output stream a :class:`StreamSink`, as an
    attribute with the port's name: ``rig.i_close.put(...)``; an array of ports has a list of them.
    Plain inputs are 0 at first; ``set``, ``pulse`` and ``get`` pack and unpack what the port is
    made of. AXI ports are left to the rig of the block (:mod:`sim.bench.axi`).

    Parameters: as for :class:`Testbench`; ``idle``, ``stall``, patterns of the sources and of the
    sinks (``pause_pattern``).
    """

    block = None  # class of the component, or a function of the configuration
    nested = False  # ports of ports have agents, too: ``rig.p0__i_packet``

    def __init__(self, dut, salt="", idle=None, stall=None, watchdog=3000):
        super().__init__(dut, salt, watchdog)
        self._codecs, self._port_readers, self._port_writers = {}, {}, {}
        if type(self) not in _SIGNATURES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the component is never elaborated here
                _SIGNATURES[type(self)] = self.component().signature
            # What is there now stays to the end: the collector need not look at it in every test.
            gc.freeze()
        for port, name, indices, member in _ports(_SIGNATURES[type(self)], self.nested):
            if member.is_port:
                self._plain(port, member)
            elif _is_stream(member):
                shape = member.signature.members["payload"].shape
                if member.flow == wiring.In:
                    agent = StreamSource(self, port, shape, idle, self.rng)
                else:
                    agent = StreamSink(self, port, shape, stall, self.rng)
                if indices:
                    self.__dict__.setdefault(name, []).append(agent)
                else:
                    setattr(self, port, agent)

    def component(self):
        """The component under test: its signature says which ports there are."""
        return self.block(self.cfg)

    def _plain(self, port, member):
        handle, self._codecs[port] = getattr(self.dut, port), Codec(member.shape)
        self._port_readers[port] = reader(handle)
        if member.flow == wiring.In:
            self._port_writers[port] = writer(handle)
            self._port_writers[port](0)

    # -- plain ports -------------------------------------------------------------------------------

    def set(self, port, value):
        """Drives a plain input: a number, or a dictionary of its fields (the others are 0)."""
        assert not self.reading, f"{port} is written at the end of a cycle: first `cycles(1)`"
        self._port_writers[port](self._codecs[port].pack(value, port))

    async def pulse(self, port, cycles=1, **fields):
        """Drives 1, or ``en`` and these fields, for some cycles, then 0."""
        self.set(port, {"en": 1, **fields} if self._codecs[port].is_layout else 1)
        await self.cycles(cycles)
        self.set(port, 0)

    def get(self, port):
        """What a plain port shows: a number, or a dictionary of its fields."""
        return self._codecs[port].unpack(self._port_readers[port]())

    def port_word(self, port):
        """What a plain port shows, not unpacked."""
        return self._port_readers[port]()

    def shown(self, port):
        """The fields of an output, None while all of them are 0."""
        word = self._port_readers[port]()
        return self._codecs[port].unpack(word) if word else None

    def strobe(self, port):
        """The fields of an output whose lowest bit says that it means something, else None."""
        word = self._port_readers[port]()
        return self._codecs[port].unpack(word) if word & 1 else None

    def codec(self, port):
        """The :class:`Codec` of a plain port."""
        return self._codecs[port]

    async def start(self):
        """Reset, and until the tables are cleared, if there are any."""
        await self.reset()
        if "clearing" in self._port_readers:
            await self.until(lambda: not self.get("clearing"), what="clearing")
