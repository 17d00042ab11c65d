# SPDX-License-Identifier: Apache-2.0
"""Switches that copy rows and add answers up: bytes of each link, order, and what shares a link."""

import numpy as np
import pytest

from sim.evaluate.machine.in_switch import InSwitchNetwork
from sim.evaluate.machine.network import Network, flits_of
from sim.evaluate.machine.network_settings import NetworkSettings
from sim.evaluate.machine.timeline import Timeline

ROW = 1024
FLITS = flits_of(ROW)[1]


def settings(**changes):
    """Hubs of one link, in cycles of a flit."""
    return NetworkSettings(
        **{
            "ranks": 8,
            "rate": 16,
            "latency": 64,
            "store_latency": 14,
            "write_latency": 15,
            "credit_latency": 17,
            "batch_packets": 4,
        }
        | changes
    )


def idle(kind=InSwitchNetwork, more=None, **changes):
    env = Timeline()
    return env, kind(env, settings=settings(**changes), **(more or {}))


def unicast(size, **changes):
    """When a message of rows from GPU 0 to 1 is there."""
    env, network = idle(Network, **changes)
    sent = network.send(0, 1, size, row_bytes=ROW)
    env.run()
    return sent


def links(network):
    """(flits up, flits down) of all GPUs."""
    return np.round(network.egress_busy).tolist(), np.round(network.ingress_busy).tolist()


# -- multicast -------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [None, 7 * 3, 7 * 16])
@pytest.mark.parametrize("batch", [1, 4, 128])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_to_one_is_a_unicast(rows, batch, places):
    changes = {"batch_packets": batch, "places": places}
    plain = unicast(rows * ROW, **changes)
    env, network = idle(**changes)
    sent = network.multicast(0, {1: rows * ROW}, rows * ROW, row_bytes=ROW)
    env.run()
    assert sent.copies[1].value == pytest.approx(plain.value)
    assert sent.left.value == pytest.approx(plain.left.value)
    assert sent.value == pytest.approx(plain.value)
    assert (network.wire_bytes, network.payload_bytes) == (plain.wire_bytes, rows * ROW)


def test_rows_go_up_once_and_down_as_often_as_they_are_wanted():
    env, network = idle()
    wanted = {1: 30 * ROW, 4: 60 * ROW, 7: 10 * ROW}
    network.multicast(0, wanted, 60 * ROW, row_bytes=ROW)
    env.run()
    up, down = links(network)
    assert up == [60 * FLITS] + [0] * 7
    assert down == [wanted.get(gpu, 0) // ROW * FLITS for gpu in range(8)]
    assert network.up_bytes == 60 * FLITS * 16 and network.down_bytes == 100 * FLITS * 16
    assert network.wire_bytes == 80 * FLITS * 16 and network.payload_bytes == 80 * ROW


def test_a_copy_takes_no_longer_for_the_others():
    """All receivers at once: as long as one, seven times the bytes."""
    env, network = idle()
    sent = network.multicast(0, dict.fromkeys(range(1, 8), 50 * ROW), 50 * ROW, row_bytes=ROW)
    env.run()
    assert {round(copy.value, 6) for copy in sent.copies.values()} == {
        round(unicast(50 * ROW).value, 6)
    }


def test_two_multicasts_share_a_link():
    """Of one sender its own link; of two senders that of the receiver they have in common."""
    env, network = idle(batch_packets=1)
    alone = unicast(100 * ROW).value
    first, second = (
        network.multicast(0, {1: 100 * ROW, 2: 100 * ROW}, 100 * ROW, row_bytes=ROW)
        for _ in range(2)
    )
    env.run()
    assert first.value == pytest.approx(alone, rel=0.01)  # first in, first out
    assert second.value == pytest.approx(alone + 100 * FLITS, rel=0.01)
    env, network = idle(batch_packets=1)
    one = network.multicast(0, {2: 100 * ROW, 3: 100 * ROW}, 100 * ROW, row_bytes=ROW)
    two = network.multicast(1, {2: 100 * ROW, 4: 100 * ROW}, 100 * ROW, row_bytes=ROW)
    env.run()
    assert max(one.copies[2].value, two.copies[2].value) == pytest.approx(
        alone + 100 * FLITS, rel=0.01
    )
    assert one.copies[3].value == pytest.approx(alone) == two.copies[4].value


def test_a_multicast_and_messages_take_turns():
    env, network = idle(batch_packets=1)
    alone = unicast(100 * ROW).value
    sent = network.multicast(0, {1: 100 * ROW, 2: 100 * ROW}, 100 * ROW, row_bytes=ROW)
    plain = network.send(0, 3, 100 * ROW, row_bytes=ROW)
    env.run()
    assert sent.value == pytest.approx(alone + 100 * FLITS, rel=0.01)
    assert plain.value == pytest.approx(sent.value, rel=0.01)


def test_lists_of_targets_are_flits_of_every_packet():
    env, network = idle()
    network.multicast(0, {1: ROW, 2: ROW}, ROW, row_bytes=ROW, list_flits=(2, 1))
    env.run()
    up, down = links(network)
    packets = flits_of(ROW)[0]
    assert up[0] == FLITS + 2 * packets and down[1] == down[2] == FLITS + packets


def test_a_receiver_without_credits_holds_a_multicast_up():
    """As many packets as it has places are on their way, and no more until it has freed some."""
    env, network = idle(places=7 * 2, write_latency=15)
    network.send(0, 1, 64 * ROW, row_bytes=ROW)
    env.run(until=200)
    both = network.multicast(0, {1: ROW, 2: ROW}, ROW, row_bytes=ROW)
    free = network.multicast(3, {2: ROW, 4: ROW}, ROW, row_bytes=ROW)
    env.run()
    assert free.value < both.value
    assert network.payload_bytes == (64 + 3) * ROW  # nothing is lost


def test_a_multicast_waits_while_the_switch_is_full():
    """Rows queue at their senders instead; the links carry them as fast as before."""
    ends, lefts = [], []
    for buffer in (None, 200):
        env, network = idle(more={"buffer_flits": buffer})
        sent = [
            network.multicast(src, {0: 50 * ROW, 1: 50 * ROW}, 50 * ROW, row_bytes=ROW)
            for src in range(2, 8)
        ]
        env.run()
        ends.append(max(one.value for one in sent))
        lefts.append(max(one.left.value for one in sent))
    assert ends[1] == pytest.approx(ends[0], rel=0.03)
    assert lefts[0] < 0.25 * ends[0] and lefts[1] > 0.85 * ends[1]


def test_memory_is_told_of_every_copy():
    env, network = idle()
    told = []
    network.written = lambda gpu, size: told.append((gpu, size))
    network.multicast(0, {1: ROW, 2: 3 * ROW}, 3 * ROW, row_bytes=ROW)
    network.sums(5, {1: ROW, 2: 2 * ROW}, 2 * ROW, row_bytes=ROW)
    env.run()
    assert sorted(told) == [(1, ROW), (2, 3 * ROW), (5, 2 * ROW)]


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4, 128])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_a_sum_of_one_is_a_unicast(rows, batch):
    plain = unicast(rows * ROW, batch_packets=batch)
    env, network = idle(batch_packets=batch)
    made = network.sums(1, {0: rows * ROW}, rows * ROW, row_bytes=ROW)
    env.run()
    assert made.value == pytest.approx(plain.value)
    assert network.wire_bytes == plain.wire_bytes


def test_terms_go_up_and_one_sum_down():
    env, network = idle()
    terms = {1: 30 * ROW, 4: 60 * ROW, 7: 10 * ROW}
    network.sums(0, terms, 60 * ROW, row_bytes=ROW)
    env.run()
    up, down = links(network)
    assert down == [60 * FLITS] + [0] * 7
    assert up == [terms.get(gpu, 0) // ROW * FLITS for gpu in range(8)]
    assert network.wire_bytes == 80 * FLITS * 16 and network.payload_bytes == 80 * ROW


def test_sums_take_no_longer_than_a_term():
    env, network = idle()
    made = network.sums(0, dict.fromkeys(range(1, 8), 50 * ROW), 50 * ROW, row_bytes=ROW)
    env.run()
    assert made.value == pytest.approx(unicast(50 * ROW).value)
    assert network.waiting_sums[0] <= 4 * FLITS * 16  # all come together: a batch of packets


def test_a_sum_waits_for_its_last_term():
    """One GPU's link is taken until then: the switch holds what the others have sent."""
    env, network = idle()
    busy = network.send(3, 7, 200 * ROW, row_bytes=ROW)
    made = network.sums(0, dict.fromkeys(range(1, 8), 20 * ROW), 20 * ROW, row_bytes=ROW)
    env.run()
    # Its 20 rows take turns with the others: twice as long as alone.
    assert made.value == pytest.approx(unicast(40 * ROW).value, rel=0.05)
    assert busy.value > made.value
    assert network.waiting_sums[0] > 5 * FLITS * 16


def test_sums_do_not_wait_for_rows_but_delay_them():
    """They are another class; the link carries both."""
    env, network = idle()
    rows = [network.multicast(src, {0: 50 * ROW}, 50 * ROW, row_bytes=ROW) for src in range(1, 5)]
    sums = network.sums(0, {5: 20 * ROW, 6: 20 * ROW}, 20 * ROW, row_bytes=ROW)
    late = network.send(7, 0, ROW)
    env.run()
    assert sums.value == pytest.approx(unicast(20 * ROW).value)
    last = max(one.value for one in (*rows, late))
    assert last == pytest.approx(unicast((4 * 50 + 20) * ROW).value, rel=0.05)


def test_terms_for_different_gpus_take_turns():
    """Two sums of the same GPUs end together, not one after the other."""
    env, network = idle()
    made = [
        network.sums(dst, {4: 100 * ROW, 5: 100 * ROW}, 100 * ROW, row_bytes=ROW) for dst in (0, 1)
    ]
    env.run()
    both = unicast(200 * ROW).value
    assert [one.value for one in made] == [pytest.approx(both, rel=0.02)] * 2


def test_a_pull_is_a_request_and_then_sums():
    """Requests take the links against the terms': a header there, answers after the read."""
    read, rows = 300.0, 10
    env, network = idle()
    made = network.pull(1, {0: rows * ROW}, rows * ROW, row_bytes=ROW, read=read)
    env.run()
    packets = flits_of(rows * ROW, row_bytes=ROW)[0]
    asked = 14 + 1 + packets + 64 + 15  # a flit each; the switch passes the first one on
    assert made.value == pytest.approx(asked + read + unicast(rows * ROW).value, abs=4)
    up, down = links(network)
    assert (up[1], down[0]) == (packets, packets)
    assert (up[0], down[1]) == (rows * FLITS, rows * FLITS)


def test_the_switch_adds_its_time():
    env, network = idle()
    slow = InSwitchNetwork(env, settings=settings(), sum_latency=10.0)
    ends = [
        (made.multicast(0, {1: ROW, 2: ROW}, ROW), made.sums(3, {1: ROW, 2: ROW}, ROW))
        for made in (network, slow)
    ]
    env.run()
    assert [b.value - a.value for a, b in zip(*ends, strict=True)] == [10.0, 10.0]


# -- both ------------------------------------------------------------------------------------------


def test_what_comes_back_to_the_sender_takes_its_links():
    env, network = idle()
    network.multicast(2, {2: ROW, 3: ROW}, ROW, row_bytes=ROW)
    network.sums(5, {5: ROW, 6: ROW}, ROW, row_bytes=ROW)
    env.run()
    up, down = links(network)
    assert (up[2], down[2], up[5], down[5]) == (FLITS,) * 4


@pytest.mark.parametrize("seed", range(5))
def test_every_link_carries_its_bytes(seed):
    """Random messages of all kinds, credits or not; the same calls give the same times."""
    ends = []
    for _ in range(2):
        rng = np.random.default_rng(seed)
        env, network = idle(places=[None, 7 * 6][seed % 2], batch_packets=3)
        up, down, sent = np.zeros(8), np.zeros(8), []
        for _ in range(60):
            gpu, others = int(rng.integers(8)), rng.permutation(8)[: rng.integers(1, 8)]
            rows = int(rng.integers(1, 40))
            parts = {int(one): int(rng.integers(0, rows + 1)) * ROW for one in others}
            parts[int(others[0])] = rows * ROW
            way = ("multicast", "sums", "pull")[int(rng.integers(3))]
            sent.append(getattr(network, way)(gpu, parts, rows * ROW, row_bytes=ROW))
            one, many = (up, down) if way == "multicast" else (down, up)
            one[gpu] += rows * FLITS
            for other, size in parts.items():
                many[other] += size // ROW * FLITS
            if way == "pull":
                packets = flits_of(ROW)[0]
                up[gpu] += rows * packets
                for other, size in parts.items():
                    down[other] += size // ROW * packets
        env.run()
        ends.append([one.value for one in sent])
        reports = network.report_bytes // 16
        assert links(network)[1] == down.tolist()
        assert up.sum() <= sum(links(network)[0]) <= up.sum() + reports
        assert network.up_bytes == 16 * up.sum() and network.down_bytes == 16 * down.sum()
    assert ends[0] == ends[1]


@pytest.mark.parametrize("way", ["multicast", "sums", "pull"])
@pytest.mark.parametrize(
    "parts, size, message",
    [
        ({}, 128, "must name a GPU"),
        ({1: 0}, 128, "must name a GPU"),
        ({1: 128, 2: 256}, 128, "payload_bytes = 128: must be between 256"),
        ({1: 128, 2: 64}, 256, "payload_bytes = 256: must be between 128"),
        ({1: 128, 2: -1}, 128, "must be between"),
        ({8: 128}, 128, "GPU 8: must be between 0 and 7"),
        ({1: 0}, 0, "must name a GPU"),
    ],
)
def test_what_cannot_be_is_refused(way, parts, size, message):
    _, network = idle()
    with pytest.raises(ValueError, match=message):
        getattr(network, way)(0, parts, size)


def test_planes_that_carry_different_messages_are_refused():
    with pytest.raises(ValueError, match="spray = False"):
        idle(planes=2, spray=False)
