# SPDX-License-Identifier: Apache-2.0
"""Clock, reset and scheduler of the cocotb benches.

**The sampling point.** Everything is sampled at the rising edge, before the design sees it: all
combinational paths (also those through the bench) have settled, and ``valid & ready`` means that
the item moves at this edge. What is driven then holds from behind the edge to the next one. One
:class:`Bench` per design does both for all agents, in one simulator callback per cycle, so that
agents cost little. Test code that awaits an agent or ``bench.cycles()`` goes on after the edge,
before the agents drive: an item it puts then is offered in that cycle. Between awaits it may write
to plain inputs; read plain outputs with ``await bench.sampled()`` or in an ``on_sample`` function.
"""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, NullTrigger, ReadWrite, RisingEdge

from .planted import choose

__all__ = ["Bench", "start_clock"]

RESET = 4  # cycles of each of two clocks in which both are reset


class Bench:
    """Clock and scheduler of one design.

    Ports: ``clk`` and ``rst`` of the top module. ``watchdog``: the test fails when for this many
    cycles nothing has moved on any agent (0 = off). ``period``: of the clock, in ps. Started by
    :func:`start_clock`; a :class:`~sim.bench.rig.Rig` is a bench with an agent at every port.

    A design with a second clock has a second bench for the agents of its ports, ``wires``: that
    is reset with this one, and its reset ends up to three of its cycles later or earlier.
    """

    def __init__(self, dut, watchdog=5000, clk="clk", rst="rst", period=2000):
        self.dut = dut
        self.cycle = 0  # rising edges so far
        self.in_reset = False
        self.reading = False  # a cycle ends: what is written now would not be in any
        self.watchdog = watchdog
        self._clk, self._rst = getattr(dut, clk), getattr(dut, rst, None)
        self._agents = []
        self._samples = []  # what agents do in every cycle
        self._drives = []
        self._working = []  # agents that have something to drive
        self._offering = []  # sources that offer something
        self._wake = []  # events to set after the next rising edge
        self._timers = []  # (cycle, event)
        self._on_sample = []
        self._moved = 0  # cycle of the last movement
        self._sampled = None
        self._period = period
        self.wires = self  # the bench of the links' clock

    def second_clock(self, period):
        """Gives the agents of the links a clock of their own."""
        self.wires = Bench(self.dut, 0, "link_clk", "link_rst", period)
        self.wires.run_clock()

    def run_clock(self):
        """Starts clock and agents."""
        choose(self.dut)
        Clock(self._clk, self._period, unit="ps").start()
        cocotb.start_soon(self._run())

    def add(self, agent, every_cycle=("sample", "drive")):
        """Adds an agent: ``sample()`` at each rising edge, ``drive()`` behind it, ``clear()`` in
        reset. ``every_cycle``: which of them; an agent that rests most of the time asks for the
        others by :meth:`work` and :meth:`offer`."""
        self._agents.append(agent)
        if "sample" in every_cycle:
            self._samples.append(agent.sample)
        if "drive" in every_cycle:
            self._drives.append(agent.drive)

    def work(self, agent):
        """Calls ``agent.drive()`` in each cycle, from this or the next one, until it returns
        False."""
        self._working.append(agent)

    def offer(self, agent):
        """Calls ``agent.sample()`` at the end of this cycle."""
        self._offering.append(agent)

    def on_sample(self, function):
        """Calls ``function(cycle)`` at the end of each cycle, outside of reset."""
        self._on_sample.append(function)

    def moved(self):
        """Agents call this when an item moves: feeds the watchdog."""
        self._moved = self.cycle

    def wake(self, event):
        """Sets the event after the next rising edge."""
        self._wake.append(event)

    async def cycles(self, count=1):
        """Waits for ``count`` rising edges."""
        if count > 0:
            event = Event()
            self._timers.append((self.cycle + count, event))
            await event.wait()

    async def sampled(self):
        """Waits for the end of this cycle: the place to read plain outputs. Write inputs only after
        ``cycles(1)``."""
        if self._sampled is None:
            self._sampled = Event()
        await self._sampled.wait()

    async def until(self, condition, limit=10000, what="condition"):
        """Waits until ``condition()``, looked at after each rising edge, is true; fails after
        ``limit`` cycles."""
        start = self.cycle
        while not condition():
            assert self.cycle - start < limit, f"{what}: not within {limit} cycles"
            await self.cycles(1)

    async def reset(self, cycles=2, clear=True):
        """Synchronous reset for ``cycles`` edges. ``clear``: agents also forget what they have not
        yet sent or handed out."""
        self._hold(clear)
        if self.wires is self:
            await self.cycles(cycles)
        else:
            self.wires._hold(clear)
            await self.cycles(max(cycles, RESET))
            await self.wires.cycles(RESET)
            cocotb.start_soon(self.wires._release(1 + self.cycle // 3 % 4))
            await self.cycles(1 + self.cycle % 3)
        await self._release(0)

    def _hold(self, clear):
        self.in_reset = True
        if self._rst is not None:
            self._rst.value = 1
        for agent in self._agents:
            agent.clear(clear)

    async def _release(self, cycles):
        await self.cycles(cycles)
        if self._rst is not None:
            self._rst.value = 0
        self.in_reset = False
        self._moved = self.cycle

    async def _run(self):
        rising, read_write, here = RisingEdge(self._clk), ReadWrite(), NullTrigger()
        while True:
            await rising
            if not self.in_reset:
                self._end_of_cycle()
            if self._sampled is not None:
                event, self._sampled = self._sampled, None
                event.set()
                self.reading = True
                await here  # cocotb runs what was woken before this first: it reads
                self.reading = False
            self.cycle += 1
            if self._timers:
                self._wake += [event for cycle, event in self._timers if cycle <= self.cycle]
                self._timers = [timer for timer in self._timers if timer[0] > self.cycle]
            if self._wake:
                events, self._wake = self._wake, []
                for event in events:
                    event.set()
                await read_write  # test code runs first
            if not self.in_reset:
                self._working = [agent for agent in self._working if agent.drive()]
                for drive in self._drives:
                    drive()

    def _end_of_cycle(self):
        offering, self._offering = self._offering, []
        for agent in offering:
            agent.sample()
        for sample in self._samples:
            sample()
        for function in self._on_sample:
            function(self.cycle)
        if self.watchdog and self.cycle - self._moved > self.watchdog:
            raise AssertionError(
                f"watchdog: nothing moved for {self.watchdog} cycles\n" + self.waiting_for()
            )

    def waiting_for(self):
        """What each agent waits for, one line each."""
        return "\n".join(str(agent) for agent in self._agents)


def start_clock(dut, watchdog=5000):
    """Starts the clock; returns the :class:`Bench`. Call ``reset`` before anything else."""
    bench = Bench(dut, watchdog)
    bench.run_clock()
    return bench
