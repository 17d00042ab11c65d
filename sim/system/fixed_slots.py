# SPDX-License-Identifier: Apache-2.0
"""The same layer on the same hubs with fixed slots: software that waits for no counts before it
sends.

Every rank has a run of slots of its own in each expert's region, as long as the rows that it could
send there; so rows go out at once, in two ways:

* ``flags``, as DeepEP's low-latency kernels do: rows in order of their experts, one rank after the
  other; when those of an expert have left (a fence, which a few experts share), a flag to the
  consumer with their number. A consumer may use the rows of a source when its flag is there.
* ``rowflag``: the number of rows per expert goes first, then the rows, and no fence and no flag. A
  consumer that has a source's numbers watches the last words of each row: of the row, its return
  column, and of each of its packets. The column alone will not do, though it is stored last: no
  memory model promises that it comes last, and with a crowd at one rank it overtook other packets
  of its row. Real software would have to set a word aside in every packet, as NCCL's LL128 does (8
  bytes of 128); here it costs nothing.

What a consumer hands to its experts is a *set*: rows of one source for one expert, at most
``tile_rows`` of them. Combine is as in the hub's way.
"""

from dataclasses import dataclass

import numpy as np

from flow.driver import Driver

from .baseline import check_stores, row_counts, store_rows, windows
from .layer import (
    MARK_CLOSED,
    MARK_START,
    MARK_STORED,
    add_payload,
    finish,
    new_system,
    rows_of,
)

__all__ = ["check_fixed_slots", "flags_programs", "rowflag_programs", "set_cycles"]

MARK_SET = 1 << 16  # + number of a set: it may be used
FENCED = 4  # experts that share a fence: as many as streams of stores work side by side
WORD = 4  # bytes of a flag or of a number of rows, which is sent plus one: 0 is "not here yet"


@dataclass(frozen=True)
class RowSet:
    """Rows of a ``source`` for a region of a consumer: ``count`` of them from its ``first`` on."""

    source: int
    region: int
    first: int
    count: int


def _sets(plan, rank, counts):
    """The sets of a consumer, of each source and region one after the other."""
    return [
        RowSet(source, region, first, min(plan.tile_rows, int(counts[source, expert]) - first))
        for source in range(plan.cfg.ranks)
        for region, expert in enumerate(plan.experts(rank))
        for first in range(0, int(counts[source, expert]), plan.tile_rows)
    ]


def _slot(plan, source, region, index):
    """Address of a source's row number ``index`` in a region."""
    first = plan.region_base + (region * plan.capacity + plan.starts[source]) * plan.stride
    return first + index * plan.stride


def _addresses(plan, rank):
    """(token, choice, expert, address) of a rank's rows, in the order of tokens."""
    token, choice, expert = rows_of(plan, rank)
    order = np.argsort(expert, kind="stable")
    index = np.empty(len(expert), dtype=np.int64)
    index[order] = np.arange(len(expert)) - np.searchsorted(expert[order], expert[order])
    return token, choice, expert, _slot(plan, rank, expert % plan.local, index)


def _word(plan, source, region=0):
    """Where a source's flag or number of rows for a region is, at every consumer."""
    size, packet = WORD * plan.local, plan.cfg.packet_bytes
    return plan.scratch + source * -(-size // packet) * packet + region * WORD


def _words(numbers):
    return (np.asarray(numbers) + 1).astype("<u4").tobytes()


def _others_first(plan, rank):
    """All ranks, beginning behind ``rank``: not everybody at the same one."""
    return [(rank + step) % plan.cfg.ranks for step in range(1, plan.cfg.ranks + 1)]


def _start(plan, system, rank):
    program, driver = rank.program(), Driver(plan.cfg, rank.program())
    driver.start(rank.number)
    windows(plan, driver, rank.number)
    program.barrier()
    program.mark(MARK_START)
    return program


def _last_words(plan, row):
    """The last word of each packet of the row at an address; of the last one the column's first,
    which is never 0."""
    column, packet = row + plan.shape.dispatch_bytes, plan.cfg.packet_bytes
    return [*range(row + packet - 8, column, packet), column]


def watch_rows(plan, watcher, piece):
    watcher.wait_memory(_word(plan, piece.source, piece.region), mask=(1 << 8 * WORD) - 1)
    for index in range(piece.first, piece.first + piece.count):
        for word in _last_words(plan, int(_slot(plan, piece.source, piece.region, index))):
            watcher.wait_memory(word)


def watch_flag(plan, watcher, piece):
    watcher.wait_memory(_word(plan, piece.source, piece.region), mask=(1 << 8 * WORD) - 1)


def _consume(plan, rank, counts, watch):
    """A thread per set: waits as ``watch`` says, then hands the rows to the experts."""
    for number, piece in enumerate(_sets(plan, rank.number, counts)):
        watcher = rank.program(1 + number)
        watch(plan, watcher, piece)
        watcher.mark(MARK_SET + number)
        row = int(_slot(plan, piece.source, piece.region, piece.first))
        watcher.expert(row, piece.count, piece.region)


def rowflag_programs(plan, **settings):
    """The layer with numbers of rows sent at once and every row watched: a
    :class:`~sim.system.system.System` ready to run."""
    system, counts = new_system(plan, **settings), row_counts(plan)
    for rank in system.ranks:
        program, number = _start(plan, system, rank), rank.number
        for dest in _others_first(plan, number):
            own = _words(counts[number, list(plan.experts(dest))])
            program.plain(dest, _word(plan, number), own)
        store_rows(plan, program, add_payload(plan, rank), _addresses(plan, number))
        program.sync()
        program.mark(MARK_STORED)
        program.mark(MARK_CLOSED)
        _consume(plan, rank, counts, watch_rows)
        finish(plan, program, number)
    return system


def _flag(plan, program, source, expert, counts):
    dest, region = plan.place(expert)
    program.plain(dest, _word(plan, source, region), _words([counts[source, expert]]))


def flags_programs(plan, **settings):
    """The layer with a flag per source and expert: a :class:`~sim.system.system.System` ready to
    run.

    The next experts' rows are stored before the fence of the ones before, so that links do not wait
    for its answer. Experts without rows get their flags at the end.
    """
    system, counts = new_system(plan, **settings), row_counts(plan)
    for rank in system.ranks:
        program, number = _start(plan, system, rank), rank.number
        payload, rows = add_payload(plan, rank), _addresses(plan, number)
        experts = [
            expert
            for region in range(plan.local)
            for dest in _others_first(plan, number)
            for expert in plan.experts(dest)[region : region + 1]
        ]
        chosen = [expert for expert in experts if counts[number, expert]]
        groups = [chosen[n : n + FENCED] for n in range(0, len(chosen), FENCED)]
        for before, group in zip([[], *groups], [*groups, []], strict=True):
            program.sync()
            here = np.isin(rows[2], group)
            store_rows(plan, program, payload, [values[here] for values in rows])
            if before:
                program.fence()
            for expert in before:
                _flag(plan, program, number, expert, counts)
        program.sync()
        program.mark(MARK_STORED)
        for expert in experts:
            if not counts[number, expert]:
                _flag(plan, program, number, expert, counts)
        program.mark(MARK_CLOSED)
        _consume(plan, rank, counts, watch_flag)
        finish(plan, program, number)
    return system


def set_cycles(plan, result):
    """For each rank a list of the cycles, since its start, at which each set became usable."""
    return [
        [cycle - marks[MARK_START] for mark, cycle in marks.items() if mark >= MARK_SET]
        for marks in map(result.marks, range(plan.cfg.ranks))
    ]


def check_fixed_slots(plan, result):
    """Compares a run of either way with the golden model: flags and numbers are the same bytes."""
    counts = row_counts(plan)

    def numbers(rank):
        for dest in range(plan.cfg.ranks):
            yield dest, _word(plan, rank), _words(counts[rank, list(plan.experts(dest))])

    return check_stores(plan, result, _addresses, numbers)
