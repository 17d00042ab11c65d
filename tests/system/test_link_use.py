# SPDX-License-Identifier: Apache-2.0
"""What each link did in each bin, and why it was idle: seen at the pins and in the strobes of the
packet manager, told apart where the cause is known beforehand."""

import pytest

from sim.system.figures import counters_of
from sim.system.formats import LinkUse
from sim.system.four_hubs import CFG, PLAIN, FourHubs
from sim.system.history import BIN, MOST_BINS, best_software, history, link_use
from sim.system.layer import MARK_CLOSED, MARK_END, MARK_START, MARK_STORED, plan_layer
from sim.system.ways import WAYS
from sim.workload.models import model
from sim.workload.traces import generate

SHAPE = model("tiny")


def layer(tokens=16, tile_rows=4):
    routing = generate(tokens=tokens, top_k=SHAPE.top_k, experts=SHAPE.experts, seed=3)
    return plan_layer(SHAPE, routing, ranks=CFG.ranks, base=CFG, tile_rows=tile_rows)


@pytest.fixture
def ran(harness):
    """Runs a layer; its files go away with the test."""
    results = []

    def run(plan, way="hub", **settings):
        default = {"latency": 31, "window": 31, "max_cycles": 60_000, "bin": BIN}
        asked = default | {"bin_from": MARK_START} | settings
        results.append(WAYS[way].programs(plan, **asked).run(harness))
        assert WAYS[way].check(plan, results[-1]).good
        return results[-1]

    yield run
    for result in results:
        result.remove()


def uses(result):
    """Link cycles by use, of all ranks and links: [bin, use]."""
    return sum(
        result.bins(rank)["links"]["use"].sum(axis=1).astype(int) for rank in range(CFG.ranks)
    )


def share(result, use):
    total = uses(result)
    return total[:, use].sum() / total.sum()


def test_every_cycle_counts_once(ran):
    """Each bin has all of its cycles; flits are those that the links counted themselves."""
    result = ran(layer(), bin_from=0)
    for rank in range(CFG.ranks):
        bins, summary = result.bins(rank), result.ranks[rank]
        cycles = bins["links"]["use"].sum(axis=2)
        assert (cycles[1:-1] == BIN).all() and (cycles[0] < BIN).all()  # reset has no cycles
        assert bins["links"]["use"][..., LinkUse.SENT].sum() == summary["tx_flits"]
        assert bins["links"]["received"].sum() == summary["rx_flits"]
        assert bins["written"].sum() == summary["bytes_written"]


def test_bins_begin_with_the_layer(ran):
    """Set-up is not in them: the first flit comes as soon after the begin as a store takes."""
    plan = layer()
    result = ran(plan)
    whole = ran(plan, bin_from=0)
    start = whole.marks(0)[MARK_START]
    assert all(whole.marks(rank)[MARK_START] == start for rank in range(CFG.ranks))
    late = whole.bins(0)["written"].sum() - result.bins(0)["written"].sum()
    assert late == 0 and start > 10 * BIN
    assert uses(result)[0, LinkUse.SENT] > 0 == uses(whole)[0, LinkUse.SENT]
    assert len(whole.bins(0)) - len(result.bins(0)) == pytest.approx(start / BIN, abs=1)


def test_a_fabric_that_does_not_take_flits(ran):
    assert share(ran(layer()), LinkUse.WIRE) == 0
    slow = uses(ran(layer(), link_stall=(1, 0)))  # one cycle in four is open
    assert slow[:, LinkUse.WIRE].sum() == pytest.approx(3 * slow[:, LinkUse.SENT].sum(), rel=0.1)


def test_places_that_are_granted_late(ran):
    """All rows to one rank over a far fabric: its pool's places are what is waited for."""
    plan = layer(tokens=64, tile_rows=64)
    far = ran(plan, latency=500, window=500)
    found = uses(far)[:, LinkUse.CREDIT].sum()
    told = sum(counters_of(CFG, far, rank)["stall_credit"] for rank in range(CFG.ranks))
    assert 0 < found <= told, "more than the hub's own counters say"
    assert found > 5 * uses(ran(plan))[:, LinkUse.CREDIT].sum()


def test_software_that_waits_for_counts(ran):
    """The address-centric way stores nothing between the counts and the end of its prefix sums."""
    waits = uses(ran(layer(), "address", prefix_cycles=640))[:, LinkUse.SOFTWARE]
    assert waits.sum() >= 0.9 * 640 * CFG.links * CFG.ranks
    assert share(ran(layer(), "hub"), LinkUse.SOFTWARE) == 0


def test_experts_at_work(ran):
    """Links that wait for slow experts say so, between the last row and the first answer."""
    plan = layer()
    result = ran(plan, expert_cycles=2000)
    told = history(plan, result, "hub")
    last, first = (
        max(map(max, told.usable)) // told.bin + 2,
        min(map(min, told.answers)) // told.bin,
    )
    between = told.use[:, last : min(first, 2000 // told.bin)].sum(axis=(0, 1, 2))
    assert between[LinkUse.EXPERT] > 0.9 * between.sum()


def test_stores_without_room(ran):
    """Of a small hub: stores wait before the port where software looks at can_accept, else at it;
    the hub's counter has the latter alone."""
    plan, far = layer(tokens=64, tile_rows=64), {"latency": 500, "window": 500}
    for looks in (1, 0):
        result = ran(plan, use_can_accept=looks, **far)
        waited = [counters_of(CFG, result, rank)["stall_pool"] for rank in range(CFG.ranks)]
        assert uses(result)[:, LinkUse.ROOM].sum() > 0
        assert any(waited) == (not looks)


def test_bytes_that_wait_for_the_rest_of_their_packet(harness):
    """A store that is alone leaves when its time is up: until then its bytes are in the hub, after
    that there is nothing to send."""
    s = FourHubs(bin=BIN, bin_from=MARK_START)
    s.window(1, 0, PLAIN, PLAIN + 0x1000)
    s.barrier()
    s.mark(0, MARK_START)
    s.plain(0, 1, PLAIN, s.rng.randbytes(32))
    s.sync(0)
    s.wait(0, 2000)
    result = s.run(harness)
    use, own = result.bins(0)["links"]["use"].sum(axis=0), result.ranks[0]
    lane = int(use[:, LinkUse.SENT].argmax())
    held = own["first_flit"] - own["last_accept"]
    result.remove()
    assert held > 50 and use[lane, LinkUse.INSIDE] == pytest.approx(held, abs=4)
    assert use[lane, LinkUse.NOTHING] > 1000 and use[1 - lane, LinkUse.INSIDE] < 40


def test_history_of_a_layer(ran):
    """Times of tiles, answers and steps are those of the logs; bins cover the layer."""
    plan = layer()
    result = ran(plan)
    told = history(plan, result, "hub")
    marks = [result.marks(rank) for rank in range(CFG.ranks)]
    starts = [m[MARK_START] for m in marks]
    assert told.layer == max(m[MARK_END] for m in marks) - starts[0]
    assert (told.bins - 1) * told.bin < told.layer <= told.bins * told.bin
    for rank in range(CFG.ranks):
        allocs = result.log("allocs", rank)
        tiles = told.tiles[rank]
        assert sum(tile.rows for tile in tiles) == len(allocs)
        assert [tile.ready for tile in tiles] == told.usable[rank]
        assert all(0 < tile.first < tile.ready <= told.layer for tile in tiles)
        assert min(tile.first for tile in tiles) == allocs["cycle"].min() - starts[rank]
        assert told.steps[rank] == {
            "stored": marks[rank][MARK_STORED] - starts[rank],
            "closed": marks[rank][MARK_CLOSED] - starts[rank],
            "end": marks[rank][MARK_END] - starts[rank],
        }
        assert len(told.answers[rank]) == plan.combine_tiles(rank)
    sums = link_use(told)
    assert sums["bins"] == told.bins and sums["cycles"]["sent"] > 0
    assert sum(sums["cycles"].values()) == CFG.ranks * CFG.links * told.bin * told.bins


def test_long_layers_have_wider_bins(ran, monkeypatch):
    """As many neighbours are one as it takes; nothing is lost."""
    plan = layer()
    result = ran(plan)
    fine = history(plan, result, "hub")
    monkeypatch.setattr("sim.system.history.MOST_BINS", 5)
    wide = history(plan, result, "hub")
    assert fine.bins > 5 >= wide.bins and wide.bin % fine.bin == 0
    assert fine.bins <= MOST_BINS and fine.bin == BIN
    for name in ("use", "received", "written"):
        assert (getattr(fine, name).sum(axis=1) == getattr(wide, name).sum(axis=1)).all(), name


def test_best_software():
    made = {
        name: type("Told", (), {"way": name, "layer": layer})
        for name, layer in {"hub": 5, "flags": 9, "rowflag": 7, "address": 8}.items()
    }
    assert best_software(made) == "rowflag" and best_software({"hub": made["hub"]}) is None
