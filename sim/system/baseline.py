# SPDX-License-Identifier: Apache-2.0
"""The same layer on the same hubs the address-centric way: what software does when it can only
store to addresses.

1. Every rank plain-stores its row counts per expert (plus one: 0 means "not here yet") to all
   others, and waits for theirs.
2. Prefix sums: expert by expert, ranks in order, every row gets its address. Takes
   ``prefix_cycles``.
3. Rows are plain-stored to those addresses.
4. A fence, then one flag per link to every rank: "I have sent all".
5. A consumer may use a tile when the flags of all ranks with rows in it are there (one flag per
   source, as COMET does).

Combine is as in the hub's way. Merging, links, credits and memory are the same, so what differs is
the way alone.
"""

import numpy as np

from flow.driver import Driver
from hub_rtl.contract.fields import LANE_KEY
from hub_rtl.contract.packets import Reason
from sim.golden.observed import expert_rows
from sim.golden.system import SystemModel

from .layer import (
    COLUMN,
    MARK_CLOSED,
    MARK_START,
    MARK_STORED,
    add_payload,
    finish,
    new_system,
    rows_of,
)
from .layer_check import compare, timed_out

__all__ = [
    "baseline_programs",
    "check_baseline",
    "check_stores",
    "row_counts",
    "store_rows",
    "tile_cycles",
    "windows",
]

MARK_FLAG = 100  # + source: its flags have come


def row_counts(plan):
    """(ranks, experts) rows that each rank sends to each expert."""
    out = np.zeros((plan.cfg.ranks, plan.shape.experts), dtype=np.int64)
    for rank in range(plan.cfg.ranks):
        out[rank] = np.bincount(rows_of(plan, rank)[2], minlength=plan.shape.experts)
    return out


def _offsets(counts):
    """(ranks, experts) slot of each rank's first row in each expert's region."""
    return np.cumsum(counts, axis=0) - counts


def _count_bytes(plan):
    return -(-4 * plan.shape.experts // plan.cfg.packet_bytes) * plan.cfg.packet_bytes


def _count_address(plan, source):
    return plan.scratch + source * _count_bytes(plan)


def _flag_address(plan, source, link):
    """One packet-sized block per (source, link), chosen so that plain stores to it take that link:
    blocks go round the lanes, those of a lane round its links."""
    packet, links = plan.cfg.packet_bytes, plan.cfg.links
    base = plan.scratch + plan.cfg.ranks * _count_bytes(plan)
    blocks = [base // packet + source * 2 * links + n for n in range(2 * links)]
    return next(block for block in blocks if block % (1 << LANE_KEY) % links == link) * packet


def _addresses(plan, rank, offsets):
    """(expert, address) of each row of a rank, in the order of sending."""
    token, choice, expert = rows_of(plan, rank)
    order = np.argsort(expert, kind="stable")
    position = np.empty(len(expert), dtype=np.int64)
    position[order] = np.arange(len(expert)) - np.searchsorted(expert[order], expert[order])
    slot = offsets[rank, expert] + position
    region = expert % plan.local
    return token, choice, expert, plan.region_base + (region * plan.capacity + slot) * plan.stride


def _tiles(plan, rank, counts, offsets):
    """(region, first slot, rows, bit mask of the sources) of each tile of a rank."""
    for region, expert in enumerate(plan.experts(rank)):
        total = int(counts[:, expert].sum())
        for first in range(0, total, plan.tile_rows):
            rows = min(plan.tile_rows, total - first)
            sources = (offsets[:, expert] < first + rows) & (
                offsets[:, expert] + counts[:, expert] > first
            )
            yield region, first, rows, sum(1 << int(s) for s in np.flatnonzero(sources))


def windows(plan, driver, rank):
    """All ranks may store to this one's regions, answers and scratch; the answers are counted."""
    for source in range(plan.cfg.ranks):
        driver.window(source, plan.region_base, plan.arena)
    for index, dep in enumerate(plan.dep_ranges(rank)):
        driver.dep_range(index, dep)


def store_rows(plan, program, payload, rows):
    """Plain-stores rows with their columns. ``payload``: as ``add_payload`` gave it; ``rows``:
    arrays (token, choice, expert, address)."""
    data, columns = payload
    token, choice, expert, address = rows
    program.bulk(
        "PLAIN",
        rank=expert // plan.local,
        a=address,
        b=data + token * plan.shape.dispatch_bytes,
        n=plan.shape.dispatch_bytes,
        c=columns + (token * plan.routing.top_k + choice) * COLUMN,
        d=COLUMN,
    )


def baseline_programs(plan, prefix_cycles=500, **settings):
    """The layer the address-centric way: a :class:`~sim.system.system.System` ready to run."""
    if plan.cfg.ranks > 64:
        raise ValueError(
            f"ranks = {plan.cfg.ranks}: the address-centric way is modelled for at most 64"
        )
    system, cfg = new_system(plan, **settings), plan.cfg
    counts = row_counts(plan)
    offsets = _offsets(counts)
    for rank in system.ranks:
        number, program = rank.number, rank.program()
        driver = Driver(cfg, program)
        driver.start(number)
        windows(plan, driver, number)
        for region, first, rows, sources in _tiles(plan, number, counts, offsets):
            program.expert(
                plan.region_base + (region * plan.capacity + first) * plan.stride,
                rows,
                region,
                sources,
            )
        program.barrier()
        program.mark(MARK_START)
        own = (counts[number] + 1).astype("<u4")
        for dest in range(cfg.ranks):
            program.plain(dest, _count_address(plan, number), own.tobytes())
        for source in range(cfg.ranks):
            for word in range(0, 4 * plan.shape.experts, 32):
                program.wait_memory(_count_address(plan, source) + word)
        program.wait_cycles(prefix_cycles)
        rows = _addresses(plan, number, offsets)
        store_rows(plan, program, add_payload(plan, rank), rows)
        program.sync()
        program.mark(MARK_STORED)
        program.fence()
        program.mark(MARK_CLOSED)
        for dest in range(cfg.ranks):
            for link in range(cfg.links):
                program.plain(dest, _flag_address(plan, number, link), b"\1" * 32)
        for source in range(cfg.ranks):
            watcher = rank.program(1 + source)
            for link in range(cfg.links):
                watcher.wait_memory(_flag_address(plan, source, link))
            watcher.mark(MARK_FLAG + source)
            watcher.signal(source)
        finish(plan, program, number, counters=True)
    return system


def tile_cycles(plan, result):
    """For each rank a list of the cycles, since its start, at which each tile became usable: with
    the flags of all its sources."""
    counts = row_counts(plan)
    offsets = _offsets(counts)
    out = []
    for rank in range(plan.cfg.ranks):
        marks = result.marks(rank)
        out.append(
            [
                max(marks[MARK_FLAG + s] for s in range(plan.cfg.ranks) if sources >> s & 1)
                - marks[MARK_START]
                for _, _, _, sources in _tiles(plan, rank, counts, offsets)
            ]
        )
    return out


def check_baseline(plan, result):
    """Compares a run of :func:`baseline_programs` with the golden model."""
    counts = row_counts(plan)
    offsets = _offsets(counts)

    def counts_and_flags(rank):
        own = (counts[rank] + 1).astype("<u4").tobytes()
        for dest in range(plan.cfg.ranks):
            yield dest, _count_address(plan, rank), own
            for link in range(plan.cfg.links):
                yield dest, _flag_address(plan, rank, link), b"\1" * 32

    return check_stores(
        plan, result, lambda plan, rank: _addresses(plan, rank, offsets), counts_and_flags
    )


def check_stores(plan, result, addresses, more):
    """Compares a run of plain stores with the golden model; see
    :class:`~sim.system.layer_check.Verdict`.

    ``addresses(plan, rank)``: arrays (token, choice, expert, address) of the rank's rows;
    ``more(rank)``: (consumer, address, bytes) of what it stores beside rows.
    """
    if result.timed_out:
        return timed_out(result)
    model, cfg = SystemModel(plan.cfg), plan.cfg
    for rank in range(cfg.ranks):
        for source in range(cfg.ranks):
            model.window(rank, source, plan.region_base, plan.arena)
        for index, dep in enumerate(plan.dep_ranges(rank)):
            model.dep_range(rank, index, dep)
    for rank in range(cfg.ranks):
        token, choice, expert, address = addresses(plan, rank)
        data, columns = plan.activations(rank), plan.columns(rank)
        answers = {}
        for e in np.unique(expert):
            answers.update(
                zip(
                    np.flatnonzero(expert == e).tolist(),
                    expert_rows(data[token[expert == e]], int(e), plan.shape.combine_bytes),
                    strict=True,
                )
            )
        for n, (t, c, e, a) in enumerate(
            zip(token.tolist(), choice.tolist(), expert.tolist(), address.tolist(), strict=True)
        ):
            dest = e // plan.local
            assert model.plain(rank, dest, a, data[t]) == Reason.OK
            model.plain(rank, dest, a + plan.shape.dispatch_bytes, columns[t, c])
            model.plain(dest, rank, plan.answer_address(t, c), answers[n])
        for dest, a, words in more(rank):
            model.plain(rank, dest, a, words)
    return compare(plan, result, model)
