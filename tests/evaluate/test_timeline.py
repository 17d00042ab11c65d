# SPDX-License-Identifier: Apache-2.0
"""The model's time: calls beside simpy's events."""

import pytest
import simpy

from sim.evaluate.machine.timeline import Timeline


def test_calls_and_events_of_one_time_happen_as_they_were_asked_for():
    """... and as simpy has them: what is urgent, a process's begin, before both."""
    env, seen = Timeline(), []

    def process():
        seen.append(("begun", env.now))
        yield env.timeout(2)
        seen.append(("process", env.now))

    env.call_at(2, lambda: seen.append(("first", env.now)))
    env.call_at(0, lambda: seen.append(("now", env.now)))
    env.process(process())
    env.timeout(2).callbacks.append(lambda _: seen.append(("event", env.now)))
    env.call_at(2, lambda what: seen.append((what, env.now)), "last")
    env.run()
    assert seen == [
        ("begun", 0),
        ("now", 0),
        ("first", 2),
        ("event", 2),
        ("last", 2),
        ("process", 2),
    ]


def test_a_call_in_the_past_happens_now():
    env, seen = Timeline(), []
    env.call_at(5, env.call_at, 3, lambda: seen.append(env.now))
    env.run()
    assert seen == [5]


def test_it_stops_where_it_is_told_to_and_goes_on():
    env, seen = Timeline(), []
    event = env.timeout(4)
    env.call_at(6, seen.append, "call")
    env.run(until=3)
    assert env.now == 3
    env.process(waits(env, event, seen))
    env.run(until=event)
    assert env.now == 4
    env.run()
    assert seen == ["event", "call"] and env.peek() == float("inf")


def waits(env, event, seen):
    yield event
    seen.append("event")


def test_what_fails_in_a_process_is_raised():
    env = Timeline()

    def process():
        yield env.timeout(1)
        raise ValueError("too late")

    env.process(process())
    with pytest.raises(ValueError, match="too late"):
        env.run()
    with pytest.raises(simpy.core.EmptySchedule):
        env.step()
