# SPDX-License-Identifier: Apache-2.0
"""Stream agents of the cocotb benches, and the one place to import what a bench of streams needs.

Agents drive and sample at the points that :mod:`sim.bench.clock` describes; :mod:`sim.bench.ports`
knows how ports are named and packed, :mod:`sim.bench.pauses` when an agent pauses. Their names can
be imported from here.
"""

import itertools
from collections import deque

from cocotb.triggers import Event

from .clock import Bench, start_clock
from .pauses import GRID, pause_pattern
from .ports import Codec, SignalPort, StreamPort, hub_port

__all__ = [
    "Bench",
    "Codec",
    "GRID",
    "SignalPort",
    "StreamMonitor",
    "StreamPort",
    "StreamSink",
    "StreamSource",
    "hub_port",
    "pause_pattern",
    "start_clock",
]


def _port(bench, port, shape):
    return StreamPort(bench.dut, port, shape) if isinstance(port, str) else port


class _Agent:
    EVERY_CYCLE = ()

    def __init__(self, bench, port, shape):
        self.bench = bench
        self.port = _port(bench, port, shape)
        self.name = self.port.name
        self.count = 0  # items that moved
        self.stamps = []  # the cycle in which each item moved
        self.callbacks = []  # each gets (item, cycle) of every item that moves
        bench.add(self, self.EVERY_CYCLE)

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

    ``put(item, ...)`` queues items; ``await send(item)`` returns once the item was taken (full rate
    also one by one); ``await drained()`` once all were. Once offered, an item stays offered:
    ``pause`` only delays the next. ``set_pause()`` changes the pattern.
    """

    def __init__(self, bench, port, shape=None, pause=None, rng=None):
        super().__init__(bench, port, shape)
        self.set_pause(pause, rng)
        self._working = False
        self._queue = deque()  # (raw, item, event or None)
        self._offered = None
        self._empty = []
        self.port.clear()
        self.port.write_valid(0)
        self._valid = False

    def set_pause(self, pause, rng=None):
        self._pause = pause_pattern(pause, rng)

    def _append(self, item, event=None):
        self._queue.append((self.port.pack(item), item, event))
        if not self._working:
            self._working = True
            self.bench.work(self)

    def put(self, *items):
        for item in items:
            self._append(item)

    async def send(self, item):
        event = Event()
        self._append(item, event)
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
        self.port.write_valid(0)
        self._valid = False
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
            self.port.write_valid(int(valid))
            self._valid = valid
        if valid:
            self.bench.offer(self)
        self._working = valid or bool(self._queue)
        return self._working

    def sample(self):
        if self._offered is not None and self.port.is_ready():
            _, item, event = self._offered
            self._offered = None
            if event is not None:
                self.bench.wake(event)
            if not self._queue and self._empty:
                for waiting in self._empty:
                    self.bench.wake(waiting)
                self._empty = []
            self._taken(item)

    def __str__(self):
        return (
            f"source {self.name}: {self.count} sent, {self.pending} waiting, "
            f"{'offered' if self._offered else 'idle'}"
        )


class _Watcher(_Agent):
    """Common part of sink and monitor: protocol check and bookkeeping of what moves."""

    EVERY_CYCLE = ("sample",)

    def __init__(self, bench, port, shape):
        super().__init__(bench, port, shape)
        self.items = []  # everything that moved
        self._held = None  # payload that was offered and not taken
        self._expected = None

    def expect(self, *items):
        """From the first call on, each item that moves must be the next expected one, or the test
        fails at once."""
        if self._expected is None:
            self._expected = deque()
        self._expected.extend(items)

    def finish(self):
        """Fails when an expected item has not come."""
        left = list(self._expected or ())
        assert not left, (
            f"{self.name}: {len(left)} expected items did not come, the first is {left[0]}"
        )

    def clear(self, forget=True):
        self._held = None
        if forget:
            self.items.clear()
            self.stamps.clear()
            if self._expected is not None:
                self._expected.clear()

    def _look(self):
        """Samples the port; returns the item when one moves, else None."""
        if not self.port.is_valid():
            assert self._held is None, (
                f"{self.name}: valid was withdrawn in cycle {self.bench.cycle} before the "
                "item was taken"
            )
            return None
        raw = self.port.read()
        assert self._held is None or raw == self._held, (
            f"{self.name}: payload changed in cycle {self.bench.cycle} before it was taken: "
            f"{self.port.unpack(self._held)} became {self.port.unpack(raw)}"
        )
        if not self.port.is_ready():
            self._held = raw
            return None
        self._held = None
        item = self.port.unpack(raw)
        if self._expected is not None:
            assert self._expected, (
                f"{self.name}: unexpected item in cycle {self.bench.cycle}: {item}"
            )
            wanted = self._expected.popleft()
            assert item == wanted, (
                f"{self.name}: item {self.count} in cycle {self.bench.cycle}\n  came     {item}\n"
                f"  expected {wanted}"
            )
        self.items.append(item)
        self._taken(item)
        return item


class StreamMonitor(_Watcher):
    """Watches a stream without driving it; checks that valid and payload are held until taken."""

    def sample(self):
        self._look()

    def __str__(self):
        return f"monitor {self.name}: {self.count} seen"


class StreamSink(_Watcher):
    """Takes the items of an output stream of the design, with the checks of :class:`StreamMonitor`.

    ``items`` holds all that came, ``stamps`` the cycles; ``await recv()`` hands them out one by
    one.
    """

    def __init__(self, bench, port, shape=None, pause=None, rng=None):
        super().__init__(bench, port, shape)
        self._given = 0  # items handed out by recv
        self._waiting = deque()
        self._ready = None
        self._working = False
        self.set_pause(pause, rng)

    def set_pause(self, pause, rng=None):
        self._pause = pause_pattern(pause, rng)
        if not self._working and self.port.ready is not None:
            self._working = True
            self.bench.work(self)

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
        if ready != self._ready:
            self.port.write_ready(ready)
            self._ready = ready
        self._working = not isinstance(self._pause, itertools.repeat)
        return self._working

    def sample(self):
        if self._look() is not None and self._waiting:
            for event in self._waiting:
                self.bench.wake(event)
            self._waiting.clear()

    def __str__(self):
        left = f", {len(self._expected)} expected" if self._expected is not None else ""
        return f"sink {self.name}: {self.count} came{left}, ready {self._ready}"
