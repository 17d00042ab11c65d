# SPDX-License-Identifier: Apache-2.0
"""What the model of a simulated layer has of the hub beside the network: closes, and the finisher
of regions."""

from collections import deque
from types import SimpleNamespace

import pytest
import simpy

from sim.evaluate.machine.network import Network, NetworkSettings
from sim.evaluate.machine.rtl_layer import NEWS_CYCLES, POP_CYCLES, _Layer
from sim.evaluate.machine.store_port import Closes


class Port:
    """A store port whose pool holds so many packets for each rank; ``told`` says when handles'
    closes went."""

    def __init__(self, *entries, partial=()):
        self.env = simpy.Environment()
        self.entries, self.partial, self.told = list(entries), list(partial), {}
        self.layer = Network(self.env, settings=NetworkSettings(ranks=2, rate=16, latency=1))
        self.closes = Closes(self, self.tell)

    def tell(self, dst, handles):
        self.told |= dict.fromkeys(handles, self.env.now)

    def let_go(self, held):
        self.partial.remove(held)

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
    """Also for packets of other handles, and of either's peer; what is not full goes."""
    port = Port(2, 3, 0, partial=["tail"])
    port.at(10)
    port.closes.mark(7, dst=0)
    port.at(12)
    port.closes.mark(8, dst=1)
    assert not port.partial
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


def test_news_for_a_peer_share_packets_and_peers_take_turns():
    port, sent = Port(0), []
    layer = SimpleNamespace(
        news=[[[], []]],
        turns=[deque()],
        call=lambda *order: port.layer.call(*order),
        send_news=lambda rank, dst, packed: sent.append((port.env.now, dst, len(packed))),
    )
    layer.next_news = lambda rank: _Layer.next_news(layer, rank)
    layer.news_packed = lambda rank: _Layer.news_packed(layer, rank)
    port.at(10)
    for dst, regions in ((0, range(20)), (1, range(3)), (1, range(2))):
        _Layer.pack(layer, 0, dst, None, regions)
    port.at(500)
    first = 10 + NEWS_CYCLES
    assert sent == [
        (first + 16 * POP_CYCLES, 0, 16),
        (first + 21 * POP_CYCLES, 1, 5),
        (first + 25 * POP_CYCLES, 0, 4),
    ]
