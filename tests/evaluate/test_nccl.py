# SPDX-License-Identifier: Apache-2.0
"""NCCL: which protocol and how many channels a message gets, what is sent, and what that takes."""

import numpy as np
import pytest

from sim.evaluate import bench
from sim.evaluate.alltoall import alltoall_report
from sim.evaluate.machine.engine import Cluster
from sim.evaluate.machine.hardware import machine
from sim.evaluate.published_layers import no_rows
from sim.evaluate.schemes.nccl import SendRecv, channels, ring_us, way
from sim.evaluate.schemes.steps import link_payload_gbps
from sim.evaluate.study import Options
from sim.evaluate.systems import constants, override

BOX = machine("h100", 8)
KB, MB = 1 << 10, 1 << 20


def alltoall(size, made=BOX):
    return bench.alltoall_us(made, no_rows(made.ranks), size)


def ended(bytes_to, made=None):
    """(cluster after an exchange, when each rank ended)"""
    made = made or machine("h100", len(bytes_to))
    cluster, ends = Cluster(made, no_rows(made.ranks)), {}
    exchange = SendRecv(cluster, bytes_to)

    def rank(number):
        yield from exchange.run(number)
        yield exchange.arrived[number]
        ends[number] = cluster.env.now

    for number in range(made.ranks):
        cluster.env.process(rank(number))
    cluster.env.run()
    return cluster, [ends[number] for number in range(made.ranks)]


# -- protocols and channels ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, ranks, expected",
    [("h100", 8, 32), ("h800", 8, 16), ("h800_400", 8, 32), ("b200", 8, 32)],
)
def test_two_channels_for_each_link(name, ranks, expected):
    """A power of two; as NCCL_DEBUG=INFO says on eight H100."""
    assert channels(machine(name, ranks)) == expected


@pytest.mark.parametrize(
    "size, low_latency, used",
    [
        (1, True, 1),
        (16 * KB, True, 1),
        (16 * KB + 1, False, 1),
        (64 * KB, False, 1),
        (64 * KB + 1, False, 2),
        (256 * KB, False, 4),
        (64 * MB, False, 4),
        (64 * MB + 1, False, 8),
        (1024 * MB, False, 32),
    ],
)
def test_way_of_a_message(size, low_latency, used):
    """Of addP2pToPlan on eight H100: at least 64 KB a channel, at most 16 MB while there are more
    channels."""
    made = way(BOX, size)
    assert (made.low_latency, made.channels) == (low_latency, used)


@pytest.mark.parametrize("ranks, used", [(2, 16), (3, 8), (4, 8), (8, 4), (16, 2), (72, 1)])
def test_peers_share_the_channels(ranks, used):
    assert way(machine("h100", ranks), 16 * MB).channels == used


# -- an exchange -----------------------------------------------------------------------------------


def test_every_byte_is_sent_once_or_with_its_flags():
    """LL sends a flag beside each word; nothing is sent of nothing."""
    bytes_to = np.array([[0, 4 * MB, 3], [5 * KB, 70 * KB, 0], [16 * KB, 16 * KB + 1, 9]])
    cluster, _ = ended(bytes_to)
    assert cluster.network.payload_bytes == 4 * MB + 2 * (3 + 5 * KB + 16 * KB) + 16 * KB + 1
    assert cluster.network.local_bytes == 70 * KB + 9


def test_an_exchange_of_nothing_ends_at_once():
    cluster, ends = ended(np.zeros((3, 3), dtype=int))
    assert ends == [0.0] * 3 and not cluster.network.messages


def test_only_those_wait_who_get_or_send():
    bytes_to = np.zeros((4, 4), dtype=int)
    bytes_to[1, 2] = 8 * MB
    _, ends = ended(bytes_to)
    assert ends[0] == ends[3] == 0.0 < ends[1] < ends[2]


def test_a_receiver_copies_what_comes():
    """The last chunk is copied after it has come, at the rate of its channels."""
    bytes_to = np.array([[0, 512 * KB], [0, 0]])
    made = machine("h100", 2)
    _, ends = ended(bytes_to, made)
    used = way(made, 512 * KB).channels
    copy = 512 * KB / (used * made.gpu.nccl_channel_gbps * 1e3)
    hop = constants("nccl").simple_hop_us - made.fabric.one_way_us
    wire = 512 * KB / (link_payload_gbps(made) * constants("nccl").link_efficiency * 1e3)
    assert ends[1] == pytest.approx(made.fabric.one_way_us + wire + hop + copy, rel=0.05)


def test_own_rows_take_their_copy():
    _, ends = ended(np.diag([32 * MB, 0, 0]))
    rate = way(machine("h100", 3), 32 * MB).channels * machine("h100", 3).gpu.nccl_channel_gbps
    assert ends == [pytest.approx(32 * MB / (rate * 1e3), abs=0.1), 0.0, 0.0]


def test_a_full_buffer_holds_its_sender_up():
    """With channels that copy slowly a sender waits for its buffer; with a longer one it does not
    end before the receiver has copied either."""
    bytes_to = np.array([[0, 256 * MB], [0, 0]])
    slow = machine("h100", 2).changed(gpu={"nccl_channel_gbps": 1.0})
    ends = {}
    for chunks in (1, 8):
        with override("nccl", buffer_chunks=chunks):
            ends[chunks] = ended(bytes_to, slow)[1]
    assert ends[1][0] > ends[8][0] and ends[1][1] > ends[8][1]


def test_messages_that_share_channels_share_their_rate():
    """32 ranks, eight channels: all of them together are no faster than the channels."""
    made = machine("h100", 32).changed(fabric={"link_gbps": 45000.0})
    with override("nccl", channels=8):
        floor = 31 * MB / (channels(made) * made.gpu.nccl_channel_gbps * 1e3)
        assert floor < alltoall(32 * MB, made)
    assert alltoall(32 * MB, made) < floor


# -- all-to-alls and rings -------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_more_bytes_take_longer(ranks):
    made = machine("h100", ranks)
    times = [alltoall(size * ranks, made) for size in (1, 1024, 16 * KB, 64 * KB, 1 * MB, 16 * MB)]
    assert times == sorted(times)


def test_the_smallest_takes_the_protocols_latency():
    nccl = constants("nccl")
    assert alltoall(8) == pytest.approx(nccl.ll_base_us + nccl.ll_hop_us, abs=0.1)


def test_the_largest_takes_the_links():
    """No faster than what the stores leave of them."""
    rate = link_payload_gbps(BOX) * constants("nccl").link_efficiency
    least = 512 * MB * 7 / 8 / (rate * 1e3)
    assert least < alltoall(512 * MB) < 1.05 * least


def test_a_ring_takes_the_protocol_that_is_fastest():
    nccl = constants("nccl")
    assert ring_us(BOX, 0, 7) == pytest.approx(nccl.ll_base_us + 7 * nccl.ll_hop_us)
    sizes = [4**power for power in range(16)]
    times = [ring_us(BOX, size, 7) for size in sizes]
    assert times == sorted(times)
    rate = sizes[-1] * 7 / 8 / times[-1] / 1e3
    assert rate == pytest.approx(link_payload_gbps(BOX), rel=0.02)
    with override("nccl", ll_base_us=100.0):
        assert ring_us(BOX, 0, 7) == pytest.approx(nccl.ll128_base_us + 7 * nccl.ll128_hop_us)


# -- the experiment --------------------------------------------------------------------------------


def test_the_curve_has_the_published_points():
    report = alltoall_report(Options(machine="h100", ranks=4), {})
    assert {row["machine"] for row in report.rows} == {"h100"}
    known = {row["bytes"]: row["published, us"] for row in report.rows if row["published, us"]}
    assert known[524288000] == 1174.14 and 64 * KB in known
    sizes = [row["bytes"] for row in report.rows]
    assert sizes == sorted(set(sizes)) and sizes[0] == 4 * KB and sizes[-1] == 1024 * MB
    for row in report.rows:
        assert row["GB/s"] * row["us"] * 1e3 == pytest.approx(row["bytes"] * 3 / 4)


def test_constants_that_are_asked_for_are_taken():
    def smallest(options):
        return alltoall_report(options, {}).rows[0]["us"]

    plain = smallest(Options(ranks=2))
    more = smallest(Options(ranks=2, constants=(("nccl", "ll_base_us", 16.6),)))
    assert more == pytest.approx(plain + 10) and smallest(Options(ranks=2)) == plain
