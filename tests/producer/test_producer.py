# SPDX-License-Identifier: Apache-2.0
"""ProducerControl under cocotb, against its golden model."""

from functools import partial

import pytest

from hub_rtl.contract.config import HubConfig
from hub_rtl.producer.ledger import SendLedger
from hub_rtl.producer.news import NewsLanes
from hub_rtl.producer.producer import ProducerControl
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

SMALLEST = HubConfig(
    name="smallest",
    ranks=2,
    lanes=1,
    handles=1,
    regions=1,
    groups=4,
    capacity=1,
    max_row_bytes=16,
    pool_depth=4,
    ctl_credits=1,
    tag_width=4,
)
ODD = HubConfig(
    name="odd",
    ranks=3,
    lanes=3,
    loop_lanes=2,
    handles=5,
    replicas=4,
    regions=5,
    max_row_bytes=2000,
    pool_depth=4,
    tag_width=5,
)
WIDE = HubConfig(
    name="wide", ranks=8, lanes=18, loop_lanes=3, handles=256, regions=64, pool_depth=64
)
WIDER = SMALLEST.replace(name="wider", handles=20, ranks=3)
MANY = ODD.replace(name="many", lanes=12)
TESTS = [
    "random_commands",
    "every_fault",
    "two_epochs_ahead",
    "slow_peer",
    "dead_peer",
    "remote_fences",
    "each_memory_is_awaited",
    "many_fences",
    "software_reads",
    "reset_in_traffic",
    "latency",
    "turns",
    "slow_answers",
    "most_closes",
    "packets_of_each_size",
    "more_than_a_packet",
    "credits_not_asked_for",
    "blocked_messages",
    "software_turns",
    "before_cleared",
    "drains",
    "each_packet_manager_is_awaited",
    "dead_turns",
    "peers_in_turn",
    "peers_wait_alone",
]
PROMISES = [
    "random_promises",
    "kept",
    "broken",
    "refused",
    "replicas",
    "the_rest",
    "when_tells_go",
    "two_tells",
    "tell_waits_beside_others",
    "tell_waits_though_others_go",
    "same_replica_twice",
    "many_tells_wait",
    "tells_held_up",
    "sixteen_in_a_row",
    "spent_late",
    "dead_told",
]
MOMENTS = [
    "sink_meets_verdict",
    "fence_meets_answer",
    "close_all_but_one",
    "hold_ends_in_close_all",
    "closed_before_answer",
    "write_meets_close",
    "death_meets_message",
    "close_meets_other",
    "listed_before_first_entry",
    "reset_meets_command",
    "reset_meets_listing",
    "end_meets_fence",
]
MODULES = ",".join(
    f"sim.cocotb.producer.{part}" for part in ("tests", "limits", "moments", "announce")
)


def run(component, cfg, name, tests=TESTS, bug=None, seed=None):
    run_bench(
        component,
        name=name,
        module=MODULES,
        tests=tests,
        cfg=cfg,
        params={"commands": 40},
        bug=bug,
        seed=seed,
    )


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_producer_control(cfg):
    run(partial(ProducerControl, cfg), cfg, f"producer_{cfg.name}")


@pytest.mark.parametrize(
    "cfg, seed, test",
    [
        # A rank dies in the cycle in which it has answered.
        (SMALLEST, 1, "random_commands/grid=4"),
        # Two commands say the same, but for two bits of the epoch.
        (SMALLEST, 20, "random_commands/grid=8"),
        # A rank lives again while its packet of many closes is dropped.
        (WIDER, 20, "random_commands/grid=6"),
        # A fence is marked while the answer of the one before waits for its taker.
        (WIDER, 21, "random_commands/grid=5"),
        # Every tell is that of a dead peer.
        (SMALLEST, 6, "random_promises/grid=2"),
        # Of two commands that are alike the first is refused.
        (SMALLEST, 7, "random_promises/grid=5"),
    ],
)
def test_rare_orders(cfg, seed, test):
    """Random commands that once met what the bench had not thought of, though it is promised."""
    run(partial(ProducerControl, cfg), cfg, f"producer_{cfg.name}", [test], seed=seed)


@pytest.mark.parametrize("cfg", [SMALLEST, ODD], ids=lambda cfg: cfg.name)
def test_moments(cfg):
    run(partial(ProducerControl, cfg), cfg, f"producer_{cfg.name}", MOMENTS)


@pytest.mark.parametrize("cfg", [SMALLEST, ODD, WIDER], ids=lambda cfg: cfg.name)
def test_promises(cfg):
    few = [test for test in PROMISES if test != "replicas" or cfg.replicas > 1]
    run(partial(ProducerControl, cfg), cfg, f"producer_{cfg.name}", few)


def test_many_peers():
    run(
        partial(ProducerControl, WIDE),
        WIDE,
        "producer_wide",
        ["close_all_rate", "announced_at_once", "blocked_messages"],
    )


@pytest.mark.night
def test_long_packet_is_noticed():
    """A NEWS packet has 16 entries at most."""
    bug, test = "producer.packet_of_17_entries", ["close_all_rate"]
    assert_caught(lambda: run(partial(ProducerControl, WIDE), WIDE, "producer_wide", test, bug))


@pytest.mark.night
def test_mask_of_other_entries_is_noticed():
    """The mask of a NEWS packet names all its entries."""
    bug = "producer.last_entry_not_named"
    assert_caught(
        lambda: run(partial(ProducerControl, ODD), ODD, "producer", ["random_commands"], bug=bug)
    )


@pytest.mark.night
def test_early_close_is_noticed():
    """A close that does not wait for its peer to drain carries too few bytes."""
    bug = "producer.close_while_draining"
    assert_caught(
        lambda: run(partial(ProducerControl, ODD), ODD, "producer", ["random_commands"], bug=bug)
    )


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("producer.sink_at_verdict_missed", "sink_meets_verdict"),
        ("producer.held_by_last_only", "close_all_but_one"),
        ("producer.unpend_lost_at_access", "write_meets_close"),
    ],
)
def test_moments_are_noticed(name, test):
    """Of two events in one cycle, or of one handle and the others, only one counts."""
    assert_caught(lambda: run(partial(ProducerControl, ODD), ODD, "producer", [test], bug=name))


@pytest.mark.night
@pytest.mark.parametrize(
    "name",
    [
        "producer.remote_fence_is_local",
        "producer.remote_fence_never_waits",
        "producer.remote_fence_waits_for_dead",
        "producer.dead_peer_says_ok",
        "producer.spoilt_says_ok",
    ],
)
def test_wrong_remote_fence_is_noticed(name):
    """A remote fence asks nobody, waits for nobody, or for ever; or says that all is well."""
    test = ["remote_fences"]
    assert_caught(lambda: run(partial(ProducerControl, ODD), ODD, "producer", test, bug=name))


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test",
    [
        ("producer.told_twice", "refused"),
        ("producer.news_without_credit", "kept"),
        ("producer.new_close_with_old", "end_meets_fence"),
        ("producer.peer_waits_for_all", "kept"),
        ("producer.close_read_early", "close_meets_other"),
        ("producer.entry_before_its_word", "kept"),
        ("producer.closes_at_first_replica", "replicas"),
        ("producer.spent_of_epoch_before", "spent_late"),
        ("producer.told_over_waiting_tell", "two_tells"),
        ("producer.tells_wait_for_urge", "when_tells_go"),
        ("producer.urged_before_ledger", "when_tells_go"),
        ("producer.tell_again_when_urged", "random_promises"),
        ("producer.same_dest_overtakes", "same_replica_twice"),
        ("producer.short_not_said", "broken"),
        ("producer.over_not_said", "broken"),
        ("producer.left_told_as_sent", "broken"),
        ("producer.word_of_other_bank", "random_promises"),
        ("producer.ledger_not_flushed", "random_promises"),
        ("producer.close_not_marked", "random_promises"),
        ("producer.close_counts_in_even_bank", "random_promises"),
        ("producer.dropped_for_the_living", "random_promises"),
        ("producer.ready_after_the_last", "random_promises"),
    ],
)
def test_broken_promise_is_noticed(name, test):
    """A promise is made twice, ends with another replica or epoch, or waits for ever; a close does
    not say that it was broken; it is dropped, or read too early, of another bank, without a mark,
    or when none is left."""
    assert_caught(lambda: run(partial(ProducerControl, ODD), ODD, "producer", [test], bug=name))


def ledger(cfg, bug=None):
    module = "sim.cocotb.producer.ledger"
    run_bench(partial(SendLedger, cfg), name=f"ledger_{cfg.name}", module=module, cfg=cfg, bug=bug)


@pytest.mark.parametrize("cfg", [SMALLEST, ODD, MANY], ids=lambda cfg: cfg.name)
def test_ledger(cfg):
    ledger(cfg)


@pytest.mark.night
@pytest.mark.parametrize(
    "name",
    [
        "producer.sum_before_last_missed",
        "producer.sum_before_that_missed",
        "producer.joined_bytes_missed",
        "producer.spent_at_zero_only",
        "producer.spent_twice",
        "producer.word_not_cleared",
        "producer.sums_without_end",
    ],
)
def test_wrong_ledger_is_noticed(name):
    """A change on its way to the memory is not seen, one that is joined is lost, or one too many is
    joined; packets jump over
    the end of a promise; a promise is spent again; a word stays for the next epoch."""
    assert_caught(lambda: ledger(ODD, name))


def news_lanes(bug=None):
    module = "sim.cocotb.producer.lanes"
    run_bench(partial(NewsLanes, ODD), name="news_lanes", module=module, cfg=ODD, bug=bug)


def test_news_lanes():
    news_lanes()


@pytest.mark.night
@pytest.mark.parametrize(
    "bug",
    [
        "producer.news_on_first_lane_only",
        "producer.claimed_credit_let_go",
        "producer.news_takes_no_credit",
        "producer.news_credit_not_kept",
        "producer.news_cuts_packet",
    ],
)
def test_wrong_lanes_are_noticed(bug):
    """All news go over one lane; a claimed credit, or one that is kept for them, is offered to the
    packet manager as well; none is taken; news go into the middle of a packet."""
    assert_caught(lambda: news_lanes(bug))
