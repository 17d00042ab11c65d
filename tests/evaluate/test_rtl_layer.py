# SPDX-License-Identifier: Apache-2.0
"""What the model of a simulated layer has of the hub beside the network: closes, and the finisher
of regions."""

from collections import deque
from itertools import accumulate
from types import SimpleNamespace

import pytest

from hub_rtl.producer.tell_list import PATIENCE
from sim.evaluate.machine.rtl_layer import (
    CHOICE_CYCLES,
    LINK_CYCLES,
    NEXT_CYCLES,
    OWN_CYCLES,
    POP_CYCLES,
    TAKE_CYCLES,
    TELL_CYCLES,
    _Layer,
)
from sim.evaluate.machine.store_port import ROWS, Closes, Job, StorePort
from sim.evaluate.machine.timeline import Timeline


class Port:
    """A store port whose pool holds so many packets for each rank; ``told`` says when handles'
    closes went."""

    def __init__(self, *entries):
        self.env = Timeline()
        self.entries, self.told = list(entries), {}
        self.layer = SimpleNamespace(call=self.env.call_after)
        self.closes = Closes(self, self.tell)

    def tell(self, dst, handles):
        self.told |= dict.fromkeys(handles, self.env.now)

    def leaves(self, dst, stored_at):
        self.entries[dst] -= 1
        self.closes.left(dst, 1, stored_at)

    def at(self, time):
        self.env.run(until=time)


def test_a_close_waits_until_the_pool_was_looked_through():
    for entries in ((0, 0, 0), (3, 0, 5)):
        port = Port(*entries)
        port.at(10)
        port.closes.mark(7, dst=1)
        port.at(100)
        assert port.told == {7: 10 + sum(entries)}


def test_marks_that_meet_wait_for_all_that_is_there():
    """Also for packets of other handles, and of either's peer."""
    port = Port(2, 3, 0)
    port.at(10)
    port.closes.mark(7, dst=0)
    port.at(12)
    port.closes.mark(8, dst=1)
    port.entries[0] += 1  # stored later: not covered
    for time, dst, stored_at in ((20, 0, 5), (25, 0, 15), (30, 1, 5), (40, 0, 5), (60, 1, 5)):
        port.at(time)
        port.leaves(dst, stored_at)
    port.at(70)
    port.leaves(1, 5)
    assert port.told == {7: 40, 8: 70}


@pytest.mark.parametrize("second, meets", [((7, 12), False), ((8, 30), False), ((8, 12), True)])
def test_marks_of_one_handle_and_those_behind_each_other_do_not_meet(second, meets):
    handle, time = second
    port = Port(5, 0, 0)
    port.at(10)
    port.closes.mark(7, dst=1)
    port.at(time)
    port.closes.mark(handle, dst=2)
    port.at(100)
    assert (port.closes.handle is None) == meets
    assert handle in port.told  # nothing for that rank is there


def test_the_finisher_looks_at_one_region_at_a_time():
    port, seen = Port(0), []
    layer = SimpleNamespace(
        env=port.env, finisher_free=[0.0, 0.0], call=lambda *order: port.layer.call(*order)
    )

    def ends(rank, region):
        seen.append((rank, region, port.env.now))

    port.at(100)
    for rank, region in ((0, "a"), (0, "b"), (1, "c")):
        _Layer.finish(layer, rank, region, 17, 25, ends)
    port.at(500)
    assert sorted(seen) == [(0, "a", 125), (0, "b", 142), (1, "c", 125)]


class News:
    """The part of a layer that packs news, of one rank with two peers of two experts each; what it
    sends by (time, peer): entries."""

    tell, urge, pack, goes, next_news = (
        getattr(_Layer, name) for name in ("tell", "urge", "pack", "goes", "next_news")
    )
    counts_told = None

    def __init__(self):
        self.env, self.sent = Timeline(), {}
        self.call = self.env.call_after
        self.news, self.turns, self.patient = [[deque(), deque()]], [deque()], [False]
        self.unsent, self.regions = [[1] * 4], [range(2), range(2)]
        shape = SimpleNamespace(experts=4)
        self.plan = SimpleNamespace(shape=shape, place=lambda expert: divmod(expert, 2))

    def send_news(self, rank, dst, packed):
        self.sent[self.env.now, dst] = len(packed)


def test_news_for_a_peer_share_packets_and_peers_take_turns():
    layer = News()
    layer.env.run(until=10)
    for dst, regions in ((0, range(20)), (1, range(3)), (1, range(2))):
        layer.pack(0, dst, None, regions)
    layer.env.run()
    first = 10 + CHOICE_CYCLES + 16 * POP_CYCLES
    second = first + NEXT_CYCLES + 5 * POP_CYCLES
    third = second + NEXT_CYCLES + 4 * POP_CYCLES
    assert layer.sent == {
        (first + OWN_CYCLES, 0): 16,
        (second + LINK_CYCLES, 1): 5,
        (third + OWN_CYCLES, 0): 4,
    }


def test_news_that_come_while_a_packet_is_packed_are_in_it():
    layer = News()
    layer.pack(0, 0, None, range(2))
    layer.env.run(until=CHOICE_CYCLES + 1)
    layer.pack(0, 0, None, range(1))
    layer.env.run()
    assert layer.sent == {(CHOICE_CYCLES + 3 * POP_CYCLES + OWN_CYCLES, 0): 3}


def test_tells_wait_for_each_other_and_go_when_all_are_told():
    layer = News()
    layer.tell(0)
    layer.env.run()
    begun = 4 * TELL_CYCLES + CHOICE_CYCLES
    assert min(time for time, _ in layer.sent) == begun + 2 * POP_CYCLES + OWN_CYCLES
    assert list(layer.sent.values()) == [2, 2]


def test_a_tell_waits_no_longer_than_its_patience():
    layer = News()
    layer.plan = SimpleNamespace(
        shape=SimpleNamespace(experts=1000), place=lambda expert: (expert % 2, 0)
    )
    layer.unsent = [[1] * 1000]
    layer.tell(0)
    layer.env.run()
    first, entries = min(layer.sent.items())
    assert first == (PATIENCE + CHOICE_CYCLES + 16 * POP_CYCLES + OWN_CYCLES, 0)
    assert entries == 16 and sum(layer.sent.values()) == 1000


def test_a_scoreboard_takes_one_packet_of_news_after_the_other():
    """Each rank's has its own time, and what comes late waits for nothing."""
    env, taken = Timeline(), []
    layer = SimpleNamespace(
        env=env,
        news_free=[0.0, 0.0],
        call=env.call_after,
        news_here=lambda rank, packed: taken.append((rank, len(packed), env.now)),
    )
    env.run(until=10)
    for rank, count in ((0, 16), (0, 8), (1, 4)):
        _Layer.take_news(layer, rank, [None] * count)
    env.run(until=100)
    _Layer.take_news(layer, 0, [None] * 8)
    env.run()
    each = TAKE_CYCLES
    assert sorted(taken) == [
        (0, 8, 10 + 24 * each),
        (0, 8, 100 + 8 * each),
        (0, 16, 10 + 16 * each),
        (1, 4, 10 + 4 * each),
    ]


@pytest.mark.parametrize("packets, tail", [(2, 16), (2, 0), (0, 48)])
def test_the_last_packet_of_a_row_leaves_as_soon_as_its_bytes_are_there(packets, tail):
    """It is full with them, as the others with theirs (docs/blocks/packet_manager.md)."""
    sent, env = [], Timeline()
    layer = SimpleNamespace(
        env=env,
        harness=SimpleNamespace(streams=1, weight=3, window=1),
        plan=SimpleNamespace(cfg=SimpleNamespace(ranks=2, pool_depth=16)),
        piece=1,
        packet_bytes=128,
        call=env.call_after,
        tell_closes=print,
        times=SimpleNamespace(stored=[0, 0]),
        network=SimpleNamespace(
            send=lambda src, dst, length, **_: sent.append((env.now, length)) or Sent()
        ),
    )
    StorePort(layer, 0).push(ROWS, Job(1, packets, tail, None, rowid=7))
    env.run()
    lengths = [128] * packets + [tail] * (tail > 0)
    assert sent == list(zip(accumulate(-(-one // 32) for one in lengths), lengths, strict=True))


class Sent:
    """A message that never arrives."""

    def __init__(self):
        self.callbacks, self.left = [], SimpleNamespace(callbacks=[])
