# SPDX-License-Identifier: Apache-2.0
"""Links: LinkPort against a Python peer, its parts, the loop lane, bugs."""

from functools import partial

import pytest

from hub_rtl.contract.config import preset
from hub_rtl.link.deserializer import Deserializer
from hub_rtl.link.link import LinkPort
from hub_rtl.link.loop_port import LoopPort
from hub_rtl.link.serializer import Serializer
from hub_rtl.link.slice_credits import SliceCredits
from sim.bench.runner import run_bench
from sim.quality.caught import assert_caught

PEER = "sim.cocotb.link.tests,sim.cocotb.link.credits,sim.cocotb.link.faults"
CONFIGS = {
    "tiny": preset("tiny"),
    "small": preset("small", ctl_credits=8),
    "odd": preset("tiny", ranks=3, packet_bytes=256, ctl_credits=1),
}


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_against_peer(name):
    cfg = CONFIGS[name]
    run_bench(LinkPort(cfg), name=f"link_{name}", module=PEER, cfg=cfg, params={"packets": 40})


def test_first_rank():
    """The same as rank 0: the last rank is a peer now."""
    cfg = CONFIGS["small"]
    run_bench(
        LinkPort(cfg), name="link_small", module=PEER, cfg=cfg, params={"packets": 40, "rank": 0}
    )


def loop(tests=None, bug=None):
    cfg = CONFIGS["odd"]
    run_bench(
        partial(LoopPort, cfg),
        name="loop_port",
        module="sim.cocotb.link.loop",
        tests=tests,
        cfg=cfg,
        params={"packets": 25},
        bug=bug,
    )


def test_loop_port():
    loop()


@pytest.mark.night
@pytest.mark.parametrize(
    "name, test, config",
    [
        # A CREDIT flit may push in between the flits of a packet.
        ("link.credit_flit_splits_packet", "traffic", "tiny"),
        # A buffer counts as free as soon as the flit is let in: sources get credits for places that
        # are taken.
        ("link.place_free_when_let_in", "traffic", "tiny"),
        # A control flit of a source that has used up its credits is let in.
        ("link.control_let_in_without_room", "credit_abuse", "tiny"),
        # A due CREDIT never pushes in before packets that keep coming.
        ("link.credit_flit_never_pushes_in", "credit_flits", "small"),
        # A control flit for a dead rank counts as sunk only while the link can send.
        ("link.sunk_counted_when_ready", "control_flits", "tiny"),
        # A bad header with a wrong number counts as one error, not two.
        ("link.bad_flit_hides_seq_error", "sequence", "tiny"),
        # A NEWS packet says it has more entries than fit.
        ("link.news_of_17_entries_taken", "bad_headers", "tiny"),
    ],
)
def test_mutants(name, test, config):
    cfg = CONFIGS[config]
    assert_caught(
        lambda: run_bench(
            partial(LinkPort, cfg),
            name=f"link_{config}",
            module=PEER,
            cfg=cfg,
            tests=[test],
            params={"packets": 40},
            bug=name,
        )
    )


def test_loop_counts_own_takes_only():
    """A credit that another rank's packet takes is none of the loop lane."""
    assert_caught(lambda: loop(["loop_full"], "link.loop_place_taken_by_any_rank"))


def serializer(packet_bytes, slice_bytes, tests=None, bug=None):
    cfg = preset("tiny", packet_bytes=packet_bytes)
    run_bench(
        partial(Serializer, cfg, slice_bytes),
        name=f"serializer_{packet_bytes}_{slice_bytes}",
        module="sim.cocotb.link.serializer",
        tests=tests,
        cfg=cfg,
        params={"slice_bytes": slice_bytes, "records": 60},
        bug=bug,
    )


@pytest.mark.parametrize("packet_bytes, slice_bytes", [(128, 64), (256, 32), (128, 16), (128, 128)])
def test_serializer(packet_bytes, slice_bytes):
    serializer(packet_bytes, slice_bytes)


@pytest.mark.night
@pytest.mark.parametrize(
    "bug, test",
    [
        ("link.third_record_let_in", "full"),
        ("link.bytes_without_mask", "records"),
        ("link.holes_of_units_only", "records"),
        ("link.absent_unit_is_old", "records"),
        ("link.mask_of_other_record", "records"),
        ("link.odd_news_masked", "records"),
    ],
)
def test_bug_of_serializer(bug, test):
    """A record lands where one waits; what was never written is sent; a hole within a unit needs no
    mask; where no beat came the last packet's bytes are sent; a packet has the other record's mask;
    half a unit of entries is a hole."""
    assert_caught(lambda: serializer(128, 32, [test], bug))


def deserializer(packet_bytes, slice_bytes, tests=None, bug=None):
    cfg = preset("tiny", ranks=4, pool_depth=8, packet_bytes=packet_bytes)
    run_bench(
        partial(Deserializer, cfg, slice_bytes),
        name=f"deserializer_{packet_bytes}_{slice_bytes}",
        module="sim.cocotb.link.deserializer",
        tests=tests,
        cfg=cfg,
        params={"slice_bytes": slice_bytes, "packets": 40},
        bug=bug,
    )


@pytest.mark.parametrize("packet_bytes, slice_bytes", [(128, 64), (256, 32), (128, 16), (256, 128)])
def test_deserializer(packet_bytes, slice_bytes):
    deserializer(packet_bytes, slice_bytes)


@pytest.mark.night
@pytest.mark.parametrize(
    "bug, test",
    [
        ("link.mask_beyond_span", "packets"),
        ("link.cut_packet_is_whole", "packets"),
        ("link.cut_packet_never_ends", "packets"),
        ("link.room_for_flits_on_their_way", "full"),
    ],
)
def test_bug_of_deserializer(bug, test):
    """A mask names bytes that were not sent; a packet that was cut counts as whole, or ends in the
    next one; the wire goes on while nobody takes beats."""
    assert_caught(lambda: deserializer(128, 64 if "room" not in bug else 16, [test], bug))


def slice_credits(tests=None, bug=None):
    cfg, params = preset("tiny", ranks=3), {"places": 15}
    run_bench(
        partial(SliceCredits, cfg, **params),
        name="slice_credits",
        module="sim.cocotb.link.slice_credits",
        tests=tests,
        cfg=cfg,
        params={"events": 100, **params},
        bug=bug,
    )


def test_slice_credits():
    slice_credits()


@pytest.mark.night
@pytest.mark.parametrize(
    "bug, test",
    [
        ("link.take_at_grant_lost", "credits"),
        ("link.more_grants_than_places", "false_totals"),
        ("link.returned_grants_kept", "asked_back"),
    ],
)
def test_bug_of_slice_credits(bug, test):
    """A packet is sent on no credit; a total that cannot be counts; what was given back is used."""
    assert_caught(lambda: slice_credits([test], bug))
