# SPDX-License-Identifier: Apache-2.0
"""Who gets the places of a receive pool by the golden model, which the network model takes too."""

import random

import pytest

from sim.golden.pool_grants import Grants

SOURCES = (0, 1, 2, 4, 5, 6, 7)
PLACES = 7 * 12 + 5


class Pool:
    """A pool and what its sources may still send; rounds of visits, eight to a period."""

    def __init__(self, slices=1, places=PLACES):
        self.grants = Grants(SOURCES, slices * places, slices)
        self.left = dict.fromkeys(SOURCES, self.grants.first)
        self.held = dict.fromkeys(SOURCES, 0)
        self.rounds = 0

    def round(self):
        told = self.grants.round(self.rounds % 8 == 0)
        self.rounds += 1
        for source, granted, back in told:
            self.left[source] += granted
            if back:
                part = self.grants.gives(self.left[source])
                self.left[source] -= part
                if part:
                    self.grants.returned(source, part)
        return told

    def period(self, each=None):
        """So many packets of each source come and leave in a period, as far as they may."""
        waiting = dict(each or {})
        for _ in range(8):
            for source, packets in waiting.items():
                count = min(packets, self.left[source])
                self.left[source] -= count
                waiting[source] -= count
                if count:
                    self.grants.arrived(source, count)
                    self.grants.freed(source, count)
            self.round()

    def has(self, source):
        return self.grants.sources[source].own


def test_places_are_neither_lost_nor_given_twice():
    """Whatever comes and goes: what all have and what is free are the places, and everybody keeps
    two of each slice."""
    for seed in range(20):
        rng = random.Random(seed)
        slices = rng.choice((1, 3))
        pool = Pool(slices)
        for _ in range(600):
            source = rng.choice(SOURCES)
            count = rng.randrange(pool.left[source] + 1)
            pool.left[source] -= count
            pool.held[source] += count
            done = rng.choice(SOURCES)
            if pool.held[done]:
                gone = rng.randrange(pool.held[done] + 1)
                pool.held[done] -= gone
                if gone:
                    pool.grants.arrived(done, gone)
                    pool.grants.freed(done, gone)
            pool.round()
            known = pool.grants.sources
            assert sum(one.own for one in known.values()) + pool.grants.free == slices * PLACES
            for name, one in known.items():
                # what it may use, what is told later, what it holds, what is seen at the next visit
                there = pool.left[name] + one.news + pool.held[name]
                assert one.own == there + one.gained
                assert one.own >= 2 * slices


@pytest.mark.parametrize("packets", [1, 3, 4, 8, 12, 19, 40])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_source_alone_has_what_it_needs(packets, slices):
    """Four times what came in a period and two of each slice, its first share at least; all but the
    reserve of the others if that is a quarter of it."""
    pool = Pool(slices)
    first, most = pool.grants.first, pool.grants.most
    assert (first, most) == (slices * 12, slices * (PLACES - 12))
    for _ in range(12):
        pool.period({4: packets * slices})
    needs = 4 * packets * slices + 2 * slices
    wanted = most if packets * slices >= most // 4 else max(first, needs)
    for _ in range(3):
        pool.period({4: packets * slices})
        assert pool.has(4) == min(wanted, most)


def test_one_that_is_quiet_gives_way_and_comes_back():
    pool = Pool()
    first, most = pool.grants.first, pool.grants.most
    for _ in range(16):
        pool.period({0: 40})
    assert pool.has(0) == most and pool.has(7) == 2
    for _ in range(20):
        pool.period({0: 40, 7: 40})
    assert min(pool.has(0), pool.has(7)) >= first
    for _ in range(12):
        pool.period()
    assert all(pool.has(source) >= first for source in SOURCES)
    assert pool.grants.settled and not pool.round()


def test_nobody_who_sends_is_kept_below_its_share():
    """One has all places; then all want all: the level falls, and each gets its first share."""
    pool = Pool()
    first = pool.grants.first
    for _ in range(16):
        pool.period({0: 40})
    assert pool.has(0) == pool.grants.most
    for _ in range(12):
        pool.period(dict.fromkeys(SOURCES, 40))
    assert [pool.has(source) for source in SOURCES[1:]] == [first] * 6
    assert first <= pool.has(0) <= first + PLACES - 7 * first


def test_a_few_grants_wait_to_be_told_together():
    """An eighth of what a source has, or 16; the rest at the beginning of a period."""
    pool = Pool(places=7 * 40)
    pool.round()
    pool.grants.arrived(1, 6)
    pool.grants.freed(1, 4)
    assert pool.round() == []
    pool.grants.freed(1, 1)
    assert pool.round() == [(1, 5, False)]
    pool.grants.freed(1, 1)
    while pool.rounds % 8:
        assert pool.round() == []
    assert pool.round() == [(1, 1, False)]


def test_who_is_asked_gives_a_quarter_of_what_it_has_not_used():
    one, three = Pool().grants, Pool(3).grants
    assert [one.gives(left) for left in (0, 2, 3, 7, 40)] == [0, 0, 1, 2, 10]
    assert [three.gives(left) for left in (0, 6, 9, 21, 120)] == [0, 0, 3, 6, 30]
