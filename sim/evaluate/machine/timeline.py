# SPDX-License-Identifier: Apache-2.0
"""The model's time: simpy's, with plain calls beside its events."""

from heapq import heappop, heappush
from itertools import count

import simpy
from simpy.core import EmptySchedule, Infinity, StopSimulation
from simpy.events import NORMAL, URGENT

__all__ = ["Timeline"]


class Timeline(simpy.Environment):
    """simpy's environment, in which a function can be called at a time.

    Of a layer's events nearly all are such calls, hundreds of thousands that nobody waits for: an
    event object for each, and a step of simpy's loop, take longer than what is called. What happens
    at one time happens in the order in which it was asked for, calls and events alike, urgent
    events first.
    """

    now = 0.0

    def __init__(self):
        super().__init__()
        self._entries, self._numbers = [], count()  # (time, priority, number, what, arguments)

    def call_at(self, time, function, *arguments):
        """Calls ``function(*arguments)`` at ``time``, or now if that is over."""
        if time < self.now:
            time = self.now
        heappush(self._entries, (time, NORMAL, next(self._numbers), function, arguments))

    def call_after(self, delay, function, *arguments):
        """Calls ``function(*arguments)`` after ``delay``."""
        self.call_at(self.now + delay, function, *arguments)

    def schedule(self, event, priority=NORMAL, delay=0):
        """As simpy's: the event happens after ``delay``."""
        entry = (self.now + delay, priority, next(self._numbers), event, None)
        heappush(self._entries, entry)

    def peek(self):
        """As simpy's: time of what comes next, ``inf`` when nothing does."""
        return self._entries[0][0] if self._entries else Infinity

    def step(self):
        """As simpy's: what comes next happens. Raises :class:`simpy.core.EmptySchedule`, and what
        an event failed with that nobody took."""
        try:
            self.now, _, _, what, arguments = heappop(self._entries)
        except IndexError:
            raise EmptySchedule from None
        if arguments is None:
            self._happen(what)
        else:
            what(*arguments)

    def run(self, until=None):
        """As simpy's. Nearly all that happens does so in here: a call of :meth:`step` for each is a
        part of a layer's time that can be seen."""
        if until is not None:
            return super().run(until)
        entries = self._entries
        while entries:
            self.now, _, _, what, arguments = heappop(entries)
            if arguments is None:
                self._happen(what)
            else:
                what(*arguments)

    def _happen(self, what):
        """An event happens now."""
        callbacks, what.callbacks = what.callbacks, None
        try:
            for callback in callbacks:
                callback(what)
        except StopSimulation:  # those behind are for the next run
            what.callbacks = callbacks[callbacks.index(callback) + 1 :]
            heappush(self._entries, (self.now, URGENT - 1, next(self._numbers), what, None))
            raise
        if not what.ok and not what.defused:
            raise what.value
