# SPDX-License-Identifier: Apache-2.0
"""The network model: what links, credits and planes promise, and one message to the very cycle."""

import json

import numpy as np
import pytest

from sim.evaluate.calibrate import is_current
from sim.evaluate.machine.network import HUB_FILE, Network, NetworkSettings, flits_of
from sim.evaluate.machine.timeline import Timeline

FULL = 9  # flits of a full packet of 128 bytes
LATENCY, STORE, WRITE, CREDIT = 64, 14, 15, 17


def stream_of_blocks(network, **options):
    """Process: 200 blocks to rank 1, always one waiting behind the one that is leaving."""
    ahead = network.send(0, 1, 128, **options)
    for _ in range(200):
        ahead, before = network.send(0, 1, 128, **options), ahead
        yield before.left


def settings(**changes):
    """Hubs of one lane, in cycles."""
    return NetworkSettings(
        **{
            "ranks": 8,
            "rate": 16,
            "latency": LATENCY,
            "store_latency": STORE,
            "write_latency": WRITE,
            "places": 7 * 16,
            "credit_latency": CREDIT,
            "local_rate": 16,
            "local_latency": 40,
            "batch_packets": 1,
        }
        | changes
    )


def idle(**changes):
    """A network on which nothing has been sent, behind its clock."""
    env = Timeline()
    return env, Network(env, settings=settings(**changes))


def run(messages, **changes):
    """Sends (src, dst, bytes) or (src, dst, bytes, options) at time 0; returns the network and the
    transfers."""
    env, network = idle(**changes)
    transfers = [
        network.send(*message[:3], **(message[3] if len(message) > 3 else {}))
        for message in messages
    ]
    env.run()
    return network, transfers


def ends(transfers):
    assert all(transfer.processed for transfer in transfers)
    return [transfer.value for transfer in transfers]


@pytest.mark.parametrize(
    ("payload", "options", "packets", "flits"),
    [
        (128, {}, 1, 9),
        (16, {}, 1, 2),
        (8, {}, 1, 2),
        (129, {}, 2, 11),
        (4112, {}, 33, 290),
        (0, {}, 0, 0),
        (8 * 4096, {"row_bytes": 4096}, 256, 2304),
        (3 * 144, {"row_bytes": 144}, 6, 33),
        (4096, {"packet_bytes": 32}, 128, 384),
        (4096, {"packet_bytes": 256}, 16, 272),
    ],
)
def test_flits(payload, options, packets, flits):
    assert flits_of(payload, **options) == (packets, flits)


def test_one_message_takes_its_cycles_exactly():
    # Hub, its flits on the sender's link, fabric, its flits on the receiver's link, hub and memory.
    for payload in (16, 128):
        flits = flits_of(payload)[1]
        _, (transfer,) = run([(0, 3, payload)])
        assert ends([transfer]) == [STORE + flits + LATENCY + flits + WRITE]
        assert transfer.left.value == STORE + flits
        assert transfer.wire_bytes == 16 * flits


@pytest.mark.parametrize("batch", [1, 16, 128])
def test_long_message_streams_through_both_links(batch):
    _, (transfer,) = run([(0, 3, 128 * 1000)], places=None, batch_packets=batch)
    assert transfer.value == STORE + 1000 * FULL + LATENCY + FULL + WRITE


def test_bytes_are_conserved():
    rng = np.random.default_rng(1)
    messages = [
        (int(s), int(d), int(n))
        for s, d, n in zip(
            rng.integers(0, 8, 300),
            rng.integers(0, 8, 300),
            rng.integers(0, 9000, 300),
            strict=True,
        )
    ]
    network, transfers = run(messages)
    ends(transfers)
    far = [message for message in messages if message[0] != message[1]]
    assert network.payload_bytes == sum(n for _, _, n in far)
    assert network.local_bytes == sum(n for s, d, n in messages if s == d)
    assert (
        network.wire_bytes
        == 16 * sum(flits_of(n)[1] for _, _, n in far)
        == sum(t.wire_bytes for t in transfers)
    )
    for busy, end in ((network.egress_busy, 0), (network.ingress_busy, 1)):
        for gpu in range(8):
            flits = sum(flits_of(message[2])[1] for message in far if message[end] == gpu)
            assert flits <= busy[gpu] <= 1.15 * flits  # beside them only flits that tell credits


def test_egress_link_is_the_limit_of_one_sender():
    network, transfers = run([(0, dst, 12800) for dst in range(1, 8)])
    assert max(ends(transfers)) == pytest.approx(STORE + 700 * FULL + LATENCY + FULL + WRITE, abs=1)
    assert min(ends(transfers)) > 0.95 * max(ends(transfers))  # they took turns
    assert network.egress_busy[0] == 700 * FULL


def test_ingress_link_is_the_limit_of_incast():
    network, transfers = run([(src, 0, 12800) for src in range(1, 8)])
    assert max(ends(transfers)) == pytest.approx(STORE + FULL + LATENCY + 700 * FULL + WRITE, abs=1)
    assert network.ingress_busy[0] == 700 * FULL


@pytest.mark.parametrize("batch", [1, 4])
def test_congested_destination_holds_nobody_else_up(batch):
    crowd = [(src, 0, 128 * 800) for src in range(1, 8)]
    _, transfers = run([*crowd, (1, 3, 128 * 100)], batch_packets=batch)
    *crowded, free = ends(transfers)
    assert free < 2 * 100 * FULL + LATENCY + 100  # at least every second turn of its link
    assert min(crowded) > 2 * free


def test_credits_bound_a_single_stream():
    def rate(**changes):
        _, (transfer,) = run([(0, 1, 128 * 250)], **changes)
        return 250 * FULL / transfer.value

    # A window of 16 packets goes round in: an eighth of it, the fabric twice, a packet at the
    # receiver, the hubs' share, a flit.
    around = 2 * FULL + 2 * LATENCY + FULL + CREDIT + 1
    assert rate() == pytest.approx(16 * FULL / around, rel=0.05)
    assert rate(places=7 * 4) < 0.6 * rate() < rate() < rate(places=7 * 64)
    assert rate(places=None) > 0.95


def test_credits_come_back_through_the_senders_own_ingress():
    stream = (0, 1, 128 * 200)
    alone = ends(run([stream])[1])[0]
    crowded = ends(run([stream, *((src, 0, 128 * 200) for src in range(2, 8))])[1])[0]
    assert crowded > 2 * alone


def test_what_is_plain_waits_while_rows_are_there_and_other_destinations_have_their_turns():
    _, transfers = run(
        [
            (0, 1, 12800, {}),
            (0, 1, 12800, {"rowid": 0}),
            (0, 1, 12800, {"rowid": 0}),
            (0, 2, 1280, {}),
        ]
    )
    plain, first, second, other = ends(transfers)
    assert other < first < second < plain


def test_what_is_plain_grows_old_and_goes():
    def plain_after(age_limit):
        """A plain message beside a stream of rows for the same destination, two of which always
        wait."""
        env, network = idle(places=None, age_limit=age_limit, store_latency=0)
        env.process(stream_of_blocks(network, rowid=1))
        env.run(until=1)
        plain = network.send(0, 1, 128)
        env.run()
        return plain.value

    assert plain_after(float("inf")) > 1800
    assert 500 < plain_after(500) < 700


def test_own_rank_uses_no_link():
    network, transfers = run([(2, 2, 4096), (2, 3, 4096)])
    assert transfers[0].wire_bytes == 0
    assert transfers[0].value == 4096 / 16 + 40
    assert network.egress_busy[2] == 32 * FULL
    assert network.ingress_busy[2] <= 8  # credits for what it sent


@pytest.mark.parametrize("packet_bytes, beats", [(128, 2), (64, 1), (32, 1)])
def test_a_packet_for_the_own_rank_takes_whole_beats(packet_bytes, beats):
    """Stores that nothing merges fill a part of theirs."""
    _, (transfer,) = run(
        [(2, 2, 4096, {"packet_bytes": packet_bytes})], local_rate=64, beat_bytes=64
    )
    assert transfer.value == 4096 // packet_bytes * beats + 40


def test_planes_share_the_rate():
    alone = ends(run([(0, 1, 12800)], places=None, rate=64)[1])[0]
    spread = ends(run([(0, 1, 12800)], places=None, rate=64, planes=4)[1])[0]
    pinned = ends(
        run([(0, 1, 12800, {"plane": 2})], places=None, rate=64, planes=4, spray=False)[1]
    )[0]
    assert spread == alone
    assert pinned - LATENCY - STORE - WRITE == pytest.approx(101 * FULL)
    both = ends(
        run(
            [(0, 1, 12800, {"plane": plane}) for plane in range(4)],
            places=None,
            rate=64,
            planes=4,
            spray=False,
        )[1]
    )
    assert both == [pinned] * 4


def test_left_may_be_asked_for_late():
    env, network = idle()
    transfer = network.send(0, 1, 128)
    env.run(until=5)
    assert not transfer.left.processed
    env.run()
    assert transfer.left.value == STORE + FULL
    assert env.run(transfer.left) == STORE + FULL


def test_message_of_no_bytes_is_done_at_once():
    network, (transfer,) = run([(0, 1, 0)])
    assert transfer.value == 0 and network.wire_bytes == 0


def exchange(batch):
    """An uneven all-to-all; its messages' ends."""
    rng = np.random.default_rng(3)
    return ends(
        run(
            [
                (src, (src + step) % 8, int(rng.integers(1, 24)) * 4096, {"row_bytes": 4096})
                for step in range(1, 8)
                for src in range(8)
            ],
            batch_packets=batch,
            places=7 * 64,
        )[1]
    )


def test_same_calls_same_times():
    assert exchange(8) == exchange(8)


def test_batches_hardly_matter():
    fine, coarse = exchange(1), exchange(16)
    assert max(coarse) == pytest.approx(max(fine), rel=0.01)
    assert np.mean(coarse) == pytest.approx(np.mean(fine), rel=0.03)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda n: n.send(8, 0, 1), "src = 8: must be between 0 and 7"),
        (lambda n: n.send(0, -1, 1), "dst = -1"),
        (lambda n: n.send(0, 1, -5), "payload_bytes = -5"),
        (lambda n: n.send(0, 1, 5, plane=0), "plane = 0"),
        (lambda n: settings(rate=0), "rate = 0"),
        (lambda n: settings(latency=-1), "latency = -1"),
        (lambda n: settings(places=13), "places = 13: must be at least 14"),
        (lambda n: settings(pools=0), "pools = 0"),
        (lambda n: settings(period=0), "period = 0"),
        (lambda n: settings(ranks=0), "ranks = 0"),
        (lambda n: Network(n.env), "a network is made for a machine"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call(idle()[1])
    assert "\n" not in str(error.value)


def test_machine_gives_microseconds():
    from sim.evaluate.machine.hardware import machine

    env, preset = Timeline(), machine("h800_400", 8)
    network = Network(env, preset)
    transfers = [network.send(0, dst, 7_000_000) for dst in range(1, 8)]
    env.run()
    # 49 MB at 400 GB/s, eight ninths of it payload; half a microsecond to the other GPU.
    assert 122.5 * 9 / 8 + 0.5 < max(ends(transfers)) < 122.5 * 9 / 8 + 1
    assert Network(Timeline(), machine("gb200_nvl72", 72)).settings.ranks == 72


def test_hub_file_is_as_the_benchmark_writes_it():
    figures = json.loads(HUB_FILE.read_text())
    assert {
        "key",
        "config",
        "latency_cycles",
        "latency_means",
        "rates",
        "rows",
        "reports",
        "presets",
    } <= set(figures)
    assert figures["latency_cycles"].keys() == figures["latency_means"].keys()
    assert all(0 < value < 500 for value in figures["latency_cycles"].values())
    for row in figures["rows"]:
        packets, flits = flits_of(row["row_bytes"])
        assert (row["packets_per_row"], row["flits_per_row"]) == (
            packets,
            flits,
        )  # rows merge into whole packets


def test_layer_on_the_model_is_whole_and_the_same_each_time():
    from sim.evaluate.machine.rtl_layer import model_layer
    from sim.system.layer import plan_layer
    from sim.workload.models import model
    from sim.workload.traces import generate

    shape = model("tiny")
    plan = plan_layer(shape, generate(tokens=64, top_k=shape.top_k, experts=shape.experts), ranks=4)
    times, again = model_layer(plan), model_layer(plan)
    assert times == again
    assert [len(done) for done in times.done] == [plan.local] * 4
    assert [len(answers) for answers in times.answers] == [
        plan.combine_tiles(rank) for rank in range(4)
    ]
    rows = plan.routing.loads
    assert sum(len(ready) for ready in times.ready) == sum(
        -(-int(n) // plan.tile_rows) for n in rows
    )
    assert min(map(min, times.ready)) < max(map(max, times.done)) < max(map(max, times.answers))


@pytest.fixture(scope="module")
def comparison():
    """Both sides from the model, so that errors are known; nothing of the RTL runs."""
    from sim.evaluate import validate

    case = validate.Case(model="tiny", tokens=16, ranks=4)
    patch = pytest.MonkeyPatch()
    patch.setattr(
        validate,
        "rtl_layer",
        lambda plan, harness, check, threads: _as_rtl(validate, plan, harness),
    )
    yield validate.compare(case, spread=(-1, 0, 1), batches=(1, 4), progress=lambda text: None)
    patch.undo()


def _as_rtl(validate, plan, harness):
    from sim.evaluate.machine.rtl_layer import model_layer

    times = model_layer(plan, harness)
    return validate.times_by_rank(times.ready, times.done, times.answers) | {
        "wire_bytes": times.wire_bytes
    }


def test_comparison_of_a_side_with_itself_has_no_error(comparison):
    from sim.evaluate.validate import FIGURES, page, validation_table

    for name in FIGURES:
        assert comparison.error(name) == 0 and not comparison.rank_errors(name).any()
        assert comparison.whole(comparison.rtl, name).shape == (3,)
        assert comparison.spread(name) > 0  # other latencies, other times
    assert comparison.good
    assert validation_table(comparison).row_count == len(FIGURES) + 1
    text = page([comparison])
    assert text == page([comparison]) and "all answers ready" in text and "NO" not in text


def test_comparison_tells_what_is_outside(comparison):
    from sim.evaluate.validate import page

    kept = comparison.rtl["all_answers"]
    comparison.rtl["all_answers"] = kept / 1.06
    try:
        assert comparison.error("all_answers") == pytest.approx(0.06)
        assert not comparison.good
        assert "| NO |" in page([comparison])
    finally:
        comparison.rtl["all_answers"] = kept


def test_case_with_too_few_tokens_in_the_log_is_refused(tmp_path):
    from sim.evaluate.validate import Case
    from sim.workload.traces import generate, write_trace

    write_trace(generate(tokens=20, top_k=2, experts=4), tmp_path / "log")
    with pytest.raises(ValueError, match="has only 2 per rank for 8 ranks"):
        Case(model="tiny", trace=tmp_path / "log", tokens=16).plan()


def test_a_grant_travels_between_packets():
    """0 has a window of 8 packets for 1, and one packet more; 1's link is busy with packets for
    others, and what 0 may send more is told behind half of one."""
    _, (_, last, *_) = run(
        [(0, 1, 8 * 128), (0, 1, 128), *((1, dst, 20 * 128) for dst in range(2, 8))], places=7 * 8
    )
    freed = FULL + LATENCY + FULL + CREDIT  # the first packet has been taken at 1
    told = freed + FULL / 2 + LATENCY + 1
    assert last.left.value == STORE + told + FULL


def test_sources_are_visited_in_rounds():
    """What comes a cycle too late for a round of visits is granted in the next one."""
    ends = {}
    for visit in (0, 5):
        _, (_, last) = run([(0, 1, 8 * 128), (0, 1, 128)], places=7 * 8, visit=visit)
        ends[visit] = last.left.value
    freed = FULL + LATENCY + FULL + CREDIT
    assert ends[5] - ends[0] == 5 * 7 - freed % (5 * 7)


def test_a_source_alone_gets_the_places_of_the_others():
    """In periods of about a round trip it has all but their reserve, and its link is full."""

    def rate(**changes):
        network, (transfer,) = run([(0, 1, 128 * 2000)], places=7 * 12, visit=1, **changes)
        assert network.settings.first_share == 12
        return 2000 * FULL / transfer.value

    assert rate() < 0.75 and rate(period=200) > 0.95


def leave_order(*messages, **changes):
    """Indices of messages of one packet from 0 to 1, given as options of ``send``, in the order in
    which they leave."""
    _, transfers = run(
        [(0, 1, 128, options) for options in ({}, *messages)], places=None, **changes
    )  # {}: takes the link
    return sorted(range(len(messages)), key=lambda number: transfers[number + 1].left.value)


ROW, PLAIN, NOP = {"rowid": 0}, {}, {"rowid": 0, "nop": True}
TAIL = {"rowid": 0, "full": False}


@pytest.mark.parametrize(
    "messages, order",
    [
        ([{"rowid": rowid} for rowid in (7, 3, 5, 3)], [1, 3, 2, 0]),  # buckets, each in order
        ([{"rowid": rowid} for rowid in (2, 10, 9, 8)], [3, 2, 0, 1]),  # by the RowID's last bits
        ([PLAIN, ROW, PLAIN, ROW], [1, 3, 0, 2]),
        ([NOP, *[ROW] * 5], [1, 2, 3, 0, 4, 5]),  # one of four is for the rest
        ([TAIL, NOP, PLAIN], [1, 0, 2]),  # the better list; a row that is not full is one
        ([ROW, PLAIN, {"news": True}], [2, 0, 1]),
    ],
)
def test_messages_leave_in_the_packet_managers_order(messages, order):
    """docs/blocks/packet_manager.md, order and stalls."""
    assert leave_order(*messages) == order


def test_news_go_before_other_destinations_and_are_there_when_they_arrive():
    """Rows for six ranks wait for the link; news for the seventh leave behind the first of them."""
    messages = [(0, dst, 10 * 128, {"rowid": 0}) for dst in range(1, 7)]
    _, transfers = run([*messages, (0, 7, 32, {"packet_bytes": 32, "news": True})], places=None)
    assert transfers[-1].value == FULL + LATENCY + 2 * 3  # stored by the switch, and sent on


def test_a_large_rowid_grows_old_and_goes():
    def left(age_limit):
        env, network = idle(places=None, age_limit=age_limit, store_latency=0)
        env.process(stream_of_blocks(network, rowid=1))
        env.run(until=1)
        large = network.send(0, 1, 128, rowid=2)
        env.run()
        return large.value

    assert left(float("inf")) > 1800
    assert 500 < left(500) < 700


def test_hub_figures_are_of_the_present_design():
    assert is_current(), "the design has changed: moe-hub evaluate calibrate"
