"""Clock, reset and stream agents of the cocotb benches.

**The sampling point.** Everything is driven just after the rising edge and sampled at the falling edge, when all
combinational paths (also those through the bench) have settled. What is sampled at the falling edge is what the design sees
at the next rising edge: ``valid & ready`` there means that the item moves. One :class:`Bench` per design does both for
all agents, in two simulator callbacks per cycle, so that agents cost little. Test code that awaits an agent or
``bench.cycles()`` goes on just after the rising edge, before the agents drive: an item it puts then is offered in that
cycle. Between awaits it may write to plain inputs (``bus_write``); read plain outputs with ``await bench.sampled()`` or in
an ``on_sample`` function.

Verilog names: a stream port ``i_x`` is ``i_x__payload``, ``i_x__valid``, ``i_x__ready``; one of an array
``i_x__0__payload``; a struct payload or a plain struct port is one flat vector, which :class:`Codec` packs.
"""

import itertools
from collections import deque

import cocotb
from amaranth.hdl import Shape
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import Event, FallingEdge, ReadWrite, RisingEdge

__all__ = ["Bench", "Codec", "GRID", "PAUSES", "SignalPort", "StreamMonitor", "StreamPort", "StreamSink", "StreamSource",
           "bus_pulse", "bus_read", "bus_write", "hub_port", "pause_pattern", "reset", "start_clock"]

PAUSES = ("none", "cyclic", "random")
GRID = tuple(itertools.product(PAUSES, PAUSES))     # (idle, back-pressure)


def pause_pattern(kind, rng=None):
    """Endless iterator of booleans, one per cycle: pause or not.

    ``none`` (or None); ``cyclic``, 3 go, 2 stop, 1 go, 1 stop; ``random``, runs of 1 to 6 cycles of either from ``rng``;
    ``stop``, always; or any iterable of your own.
    """
    if kind is None or kind == "none":
        return itertools.repeat(False)
    if kind == "cyclic":
        return itertools.cycle([False] * 3 + [True] * 2 + [False, True])
    if kind == "stop":
        return itertools.repeat(True)
    if kind == "random":
        if rng is None:
            raise ValueError("pause pattern 'random' needs an rng")
        return (value for _ in itertools.count() for value in [rng.random() < 0.5] * rng.choice((1, 1, 1, 2, 3, 6)))
    if isinstance(kind, str):
        raise ValueError(f"pause pattern {kind!r}: must be none, cyclic, random, stop or an iterable")
    return iter(kind)


class Codec:
    """Packs and unpacks the values of a shape: layouts become dictionaries (lists for arrays), nested as they are.

    ``pack`` takes a dictionary with any of the fields (the others are 0) or an integer; it raises ValueError for an unknown
    field or a value that does not fit. ``unpack`` gives all fields, unsigned.
    """

    def __init__(self, shape):
        self._fields = None
        self._list = False
        if isinstance(shape, type) and issubclass(shape, data.Struct):
            shape = data.Layout.cast(shape)
        if isinstance(shape, data.Layout):
            self._fields = {key: (field.offset, Codec(field.shape)) for key, field in shape}
            self._list = isinstance(shape, data.ArrayLayout)
        self.width = Shape.cast(shape).width
        self._mask = (1 << self.width) - 1

    def pack(self, value, name="value"):
        if self._fields is None or isinstance(value, int):
            value = int(value)
            if value & ~self._mask:
                raise ValueError(f"{name} = {value}: must fit {self.width} bits")
            return value
        word = 0
        for key, part in enumerate(value) if self._list else value.items():
            if key not in self._fields:
                raise ValueError(f"{name}.{key}: no such field; the fields are {', '.join(map(str, self._fields))}")
            offset, codec = self._fields[key]
            word |= codec.pack(part, f"{name}.{key}") << offset
        return word

    def unpack(self, word):
        if self._fields is None:
            return word & self._mask
        if self._list:
            return [codec.unpack(word >> offset) for offset, codec in self._fields.values()]
        return {key: codec.unpack(word >> offset) for key, (offset, codec) in self._fields.items()}


def _read(handle):
    return int(handle.value)


def _codec(shape):
    return shape if isinstance(shape, Codec) else Codec(shape)


def bus_write(dut, name, value, shape=None):
    """Writes a plain input (flat vector); a dictionary needs the layout as ``shape``."""
    getattr(dut, name).value = _codec(shape).pack(value, name) if shape is not None else int(value)


def bus_read(dut, name, shape=None):
    """Reads a plain port; a dictionary when ``shape`` is a layout."""
    word = _read(getattr(dut, name))
    return _codec(shape).unpack(word) if shape is not None else word


async def bus_pulse(bench, name, value, shape=None):
    """One-cycle write of a plain input, 0 afterwards: strobes such as ``mark`` or ``region_update``."""
    bus_write(bench.dut, name, value, shape)
    await bench.cycles(1)
    getattr(bench.dut, name).value = 0


class Bench:
    """Clock and scheduler of one design.

    Ports: ``clk`` and ``rst`` of the top module. ``watchdog``: the test fails when for this many cycles nothing has moved
    on any agent (0 = off). Started by :func:`start_clock`.
    """

    def __init__(self, dut, watchdog=5000, clk="clk", rst="rst"):
        self.dut = dut
        self.cycle = 0              # rising edges so far
        self.in_reset = False
        self.watchdog = watchdog
        self._clk, self._rst = getattr(dut, clk), getattr(dut, rst, None)
        self._agents = []
        self._wake = []             # events to set after the next rising edge
        self._timers = []           # (cycle, event)
        self._on_sample = []
        self._moved = 0             # cycle of the last movement
        self._sampled = None

    def start(self):
        Clock(self._clk, 2, unit="ns").start()
        cocotb.start_soon(self._run())

    def add(self, agent):
        """Adds an agent: ``drive()`` after each rising edge, ``sample()`` at each falling edge, ``clear()`` in reset."""
        self._agents.append(agent)

    def on_sample(self, function):
        """Calls ``function(cycle)`` at each falling edge, outside of reset."""
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
        """Waits for the next falling edge: the place to read plain outputs. Write inputs only after ``cycles(1)``."""
        if self._sampled is None:
            self._sampled = Event()
        await self._sampled.wait()

    async def until(self, condition, limit=10000, what="condition"):
        """Waits until ``condition()``, looked at after each rising edge, is true; fails after ``limit`` cycles."""
        start = self.cycle
        while not condition():
            assert self.cycle - start < limit, f"{what}: not within {limit} cycles"
            await self.cycles(1)

    async def reset(self, cycles=2, clear=True):
        """Synchronous reset for ``cycles`` edges. ``clear``: agents also forget what they have not yet sent or handed out."""
        self.in_reset = True
        if self._rst is not None:
            self._rst.value = 1
        for agent in self._agents:
            agent.clear(clear)
        await self.cycles(cycles)
        if self._rst is not None:
            self._rst.value = 0
        self.in_reset = False
        self._moved = self.cycle

    async def _run(self):
        rising, falling = RisingEdge(self._clk), FallingEdge(self._clk)
        while True:
            await rising
            self.cycle += 1
            if self._timers:
                self._wake += [event for cycle, event in self._timers if cycle <= self.cycle]
                self._timers = [timer for timer in self._timers if timer[0] > self.cycle]
            if self._wake:
                events, self._wake = self._wake, []
                for event in events:
                    event.set()
                await ReadWrite()               # test code runs first
            if not self.in_reset:
                for agent in self._agents:
                    agent.drive()
            await falling
            if not self.in_reset:
                for agent in self._agents:
                    agent.sample()
                for function in self._on_sample:
                    function(self.cycle)
                if self.watchdog and self.cycle - self._moved > self.watchdog:
                    raise AssertionError(f"watchdog: nothing moved for {self.watchdog} cycles\n" + self.state())
            if self._sampled is not None:
                event, self._sampled = self._sampled, None
                event.set()

    def state(self):
        """What each agent waits for, one line each."""
        return "\n".join(str(agent) for agent in self._agents)


def start_clock(dut, watchdog=5000):
    """Starts the clock; returns the :class:`Bench`. Call :func:`reset` before anything else."""
    bench = Bench(dut, watchdog)
    bench.start()
    return bench


async def reset(bench, cycles=2):
    """Resets design and agents, see :meth:`Bench.reset`."""
    await bench.reset(cycles)


class StreamPort:
    """A stream port of the design by its Verilog names; values of ``shape`` (None: integers)."""

    def __init__(self, dut, name, shape=None):
        self.name = name
        self.valid, self.ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self.codec = Codec(len(self._payload)) if shape is None else _codec(shape)
        if self.codec.width != len(self._payload):
            raise ValueError(f"{name}: the port has {len(self._payload)} bits, the shape {self.codec.width}")

    def pack(self, item):
        return self.codec.pack(item, self.name)

    def unpack(self, raw):
        return self.codec.unpack(raw)

    def read(self):
        return int(self._payload.value)

    def write(self, raw):
        self._payload.value = raw


class SignalPort:
    """A stream of separate signals: ``fields`` is {field name: signal name}; ``valid`` and ``ready`` are signal names.

    ``ready`` may be None for a channel that is always ready.
    """

    def __init__(self, dut, name, valid, ready, fields):
        self.name = name
        self.valid, self.ready = getattr(dut, valid), getattr(dut, ready) if ready is not None else None
        self.fields = {key: getattr(dut, signal) for key, signal in fields.items()}

    def pack(self, item):
        unknown = set(item) - set(self.fields)
        if unknown:
            raise ValueError(f"{self.name}: no such field {', '.join(unknown)}; the fields are {', '.join(self.fields)}")
        return tuple(int(item.get(key, 0)) for key in self.fields)

    def unpack(self, raw):
        return dict(zip(self.fields, raw, strict=True))

    def read(self):
        return tuple(int(handle.value) for handle in self.fields.values())

    def write(self, raw):
        for handle, value in zip(self.fields.values(), raw, strict=True):
            handle.value = value


def hub_port(dut, interface):
    """The :class:`SignalPort` of a stream or AXI4-Stream :class:`hub_rtl.top.hub_ports.Interface` of the hub's top.

    AXI4-Stream fields lose their ``t``: ``data``, ``last``, ``dest``.
    """
    letter = "t" if interface.kind == "axi4-stream" else ""
    names = {port.field.removeprefix(letter): port.name for port in interface.ports}
    return SignalPort(dut, interface.name, names.pop("valid"), names.pop("ready"), names)


def _port(bench, port, shape):
    return StreamPort(bench.dut, port, shape) if isinstance(port, str) else port


class _Agent:
    def __init__(self, bench, port, shape):
        self.bench = bench
        self.port = _port(bench, port, shape)
        self.name = self.port.name
        self.count = 0              # items that moved
        self.stamps = []            # the cycle in which each item moved
        self.callbacks = []         # each gets (item, cycle) of every item that moves
        bench.add(self)

    def on_item(self, function):
        """Calls ``function(item, cycle)`` for every item that moves."""
        self.callbacks.append(function)

    def _taken(self, item):
        self.count += 1
        self.stamps.append(self.bench.cycle)
        self.bench.moved()
        for function in self.callbacks:
            function(item, self.bench.cycle)


class StreamSource(_Agent):
    """Drives an input stream of the design.

    ``put(item, ...)`` queues items; ``await send(item)`` returns once the item was taken (full rate also one by one);
    ``await drained()`` once all were. Once offered, an item stays offered: ``pause`` only delays the next. ``set_pause()``
    changes the pattern.
    """

    def __init__(self, bench, port, shape=None, pause=None, rng=None):
        super().__init__(bench, port, shape)
        self.set_pause(pause, rng)
        self._queue = deque()       # (raw, item, event or None)
        self._offered = None
        self._empty = []
        self.port.valid.value = 0
        self._valid = 0

    def set_pause(self, pause, rng=None):
        self._pause = pause_pattern(pause, rng)

    def put(self, *items):
        for item in items:
            self._queue.append((self.port.pack(item), item, None))

    async def send(self, item):
        event = Event()
        self._queue.append((self.port.pack(item), item, event))
        await event.wait()

    async def drained(self):
        if self.pending:
            event = Event()
            self._empty.append(event)
            await event.wait()

    @property
    def pending(self):
        """Items not yet taken."""
        return len(self._queue) + (self._offered is not None)

    def clear(self, forget=True):
        self.port.valid.value = 0
        self._valid = 0
        if self._offered is not None:
            self._queue.appendleft(self._offered)
            self._offered = None
        if forget:
            for event in [event for *_, event in self._queue if event is not None] + self._empty:
                self.bench.wake(event)
            self._queue.clear()
            self._empty.clear()

    def drive(self):
        pause = next(self._pause)
        if self._offered is None and self._queue and not pause:
            self._offered = self._queue.popleft()
            self.port.write(self._offered[0])
        valid = self._offered is not None
        if valid != self._valid:
            self.port.valid.value = int(valid)
            self._valid = valid

    def sample(self):
        if self._offered is not None and (self.port.ready is None or int(self.port.ready.value)):
            _, item, event = self._offered
            self._offered = None
            if event is not None:
                self.bench.wake(event)
            if not self._queue and self._empty:
                self.bench._wake += self._empty
                self._empty = []
            self._taken(item)

    def __str__(self):
        return f"source {self.name}: {self.count} sent, {self.pending} waiting, {'offered' if self._offered else 'idle'}"


class _Watcher(_Agent):
    """Common part of sink and monitor: protocol check and bookkeeping of what moves."""

    def __init__(self, bench, port, shape):
        super().__init__(bench, port, shape)
        self.items = []             # everything that moved
        self._held = None           # payload that was offered and not taken
        self._expected = None

    def expect(self, *items):
        """From the first call on, each item that moves must be the next expected one, or the test fails at once."""
        if self._expected is None:
            self._expected = deque()
        self._expected.extend(items)

    def finish(self):
        """Fails when an expected item has not come."""
        left = list(self._expected or ())
        assert not left, f"{self.name}: {len(left)} expected items did not come, the first is {left[0]}"

    def clear(self, forget=True):
        self._held = None
        if forget:
            self.items.clear()
            self.stamps.clear()
            if self._expected is not None:
                self._expected.clear()

    def _look(self):
        """Samples the port; returns the item when one moves, else None."""
        valid = int(self.port.valid.value)
        if not valid:
            assert self._held is None, f"{self.name}: valid was withdrawn in cycle {self.bench.cycle} before the item was taken"
            return None
        raw = self.port.read()
        assert self._held is None or raw == self._held, (
            f"{self.name}: payload changed in cycle {self.bench.cycle} before it was taken: "
            f"{self.port.unpack(self._held)} became {self.port.unpack(raw)}")
        if self.port.ready is not None and not int(self.port.ready.value):
            self._held = raw
            return None
        self._held = None
        item = self.port.unpack(raw)
        if self._expected is not None:
            assert self._expected, f"{self.name}: unexpected item in cycle {self.bench.cycle}: {item}"
            wanted = self._expected.popleft()
            assert item == wanted, (f"{self.name}: item {self.count} in cycle {self.bench.cycle}\n  came     {item}\n"
                                    f"  expected {wanted}")
        self.items.append(item)
        self._taken(item)
        return item


class StreamMonitor(_Watcher):
    """Watches a stream without driving it; checks that valid and payload are held until taken."""

    def drive(self):
        pass

    def sample(self):
        self._look()

    def __str__(self):
        return f"monitor {self.name}: {self.count} seen"


class StreamSink(_Watcher):
    """Takes the items of an output stream of the design, with the checks of :class:`StreamMonitor`.

    ``items`` holds all that came, ``stamps`` the cycles; ``await recv()`` hands them out one by one.
    """

    def __init__(self, bench, port, shape=None, pause=None, rng=None):
        super().__init__(bench, port, shape)
        self.set_pause(pause, rng)
        self._given = 0             # items handed out by recv
        self._waiting = deque()
        self._ready = None

    def set_pause(self, pause, rng=None):
        self._pause = pause_pattern(pause, rng)

    async def recv(self):
        """The next item, waiting for it when there is none yet."""
        while self._given >= len(self.items):
            event = Event()
            self._waiting.append(event)
            await event.wait()
        self._given += 1
        return self.items[self._given - 1]

    async def recv_all(self, count):
        """The next ``count`` items."""
        return [await self.recv() for _ in range(count)]

    def clear(self, forget=True):
        super().clear(forget)
        if forget:
            self._given = 0

    def drive(self):
        ready = int(not next(self._pause))
        if ready != self._ready and self.port.ready is not None:
            self.port.ready.value = ready
            self._ready = ready

    def sample(self):
        if self._look() is not None and self._waiting:
            self.bench._wake += self._waiting
            self._waiting.clear()

    def __str__(self):
        left = f", {len(self._expected)} expected" if self._expected is not None else ""
        return f"sink {self.name}: {self.count} came{left}, ready {self._ready}"
