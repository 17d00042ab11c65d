# SPDX-License-Identifier: Apache-2.0
"""Helpers for systems in which somebody misbehaves: looks into registers, and verdicts that leave
out what no model can know.

A :class:`Registers` look is put into a rank's program where it is called; it gives a function that
tells, after the run, what was read there. ``but`` of :func:`differences` names epochs of regions
that were driven behind the model's back, see :func:`unmodelled`.
"""

from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from flow.driver import Handle
from hub_rtl.contract.packets import (
    BODIES,
    HEADER,
    LaneMode,
    PacketType,
    Reason,
    RegionState,
    unpack,
)
from hub_rtl.contract.registers import register_map

from .formats import header_word
from .four_hubs import ROW, FourHubs, all_to_all, finish, region, scatter

__all__ = [
    "CULPRIT",
    "VICTIM",
    "WRONG",
    "HANDLE",
    "ROWID",
    "Registers",
    "Runs",
    "Unmodelled",
    "differences",
    "aim",
    "ends",
    "error_of",
    "next_epoch",
    "rows_and_close",
    "unmodelled_row",
    "order_error",
    "others",
    "playground",
    "send",
    "start",
    "unmodelled",
]

CULPRIT, VICTIM, WRONG, HANDLE, ROWID = (
    1,
    2,
    3,
    30,
    20,
)  # ranks, region, handle and RowID of most tests
FIRST_MARK = 100  # marks of looks; below: free for tests


class Registers:
    """Looks into the registers of the ranks of a scenario."""

    def __init__(self, scenario):
        self._s, self._map, self._next = scenario, register_map(scenario.cfg), FIRST_MARK

    def write(self, rank, path, value):
        self._s.program(rank).write(self._map.address(path), value)

    def fields(self, path, value):
        return {
            f.name: value >> f.low & (1 << f.width) - 1 for f in self._map.register(path).fields
        }

    def wait(self, path, rank=VICTIM, **fields):
        """Polls until the fields have these values."""
        mask = value = 0
        for f in self._map.register(path).fields:
            if f.name in fields:
                mask, value = (
                    mask | (1 << f.width) - 1 << f.low,
                    value | int(fields[f.name]) << f.low,
                )
        self._s.program(rank).poll(self._map.address(path), mask, value)

    def _look(self, rank, steps):
        """Reads paths and writes (path, value) pairs; gives a function from the result to the list
        of values read."""
        number, program = self._next, self._s.program(rank)
        self._next += 1
        program.mark(number)
        for step in steps:
            if isinstance(step, str):
                program.read(self._map.address(step))
            else:
                self.write(rank, *step)
        count = sum(isinstance(step, str) for step in steps)

        def values(result):
            reads = result.log("reads", rank)
            start = np.flatnonzero((reads["mark"] == 1) & (reads["address"] == number))
            assert len(start) == 1, f"rank {rank} never came to its look {number}"
            rest = reads[start[0] :]
            return [int(value) for value in rest[rest["mark"] == 0]["value"][:count]]

        return values

    def read(self, path, rank=VICTIM):
        """Value of a register, as {field: value}."""
        values = self._look(rank, [path])
        return lambda result: self.fields(path, values(result)[0])

    def word(self, path, rank=VICTIM):
        """Value of a register, as a number."""
        values = self._look(rank, [path])
        return lambda result: values(result)[0]

    def timeout(self, rank=VICTIM):
        """The stall that was reported, and the producers that are missing."""
        return self.read("hang.TIMEOUT", rank), self.word("hang.TIMEOUT_MISSING0", rank)

    def log(self, rank=VICTIM):
        """Entries of the refusal log, oldest first. None may be lost."""
        depth = self._s.cfg.log_depth
        pairs = [
            step
            for n in range(depth)
            for step in (("logs.INDEX", n), "logs.ENTRY", "logs.ENTRY_ROW")
        ]
        values = self._look(rank, ["logs.COUNT", "logs.LOST", *pairs])

        def entries(result):
            count, lost, *words = values(result)
            assert lost == 0 and count <= depth
            return [
                self.fields("logs.ENTRY", words[2 * n])
                | self.fields("logs.ENTRY_ROW", words[2 * n + 1])
                for n in range(count)
            ]

        return entries

    def counters(self, rank=VICTIM):
        """All counters, by name."""
        names = list(self._s.drivers[rank].counters())
        self._s.drivers[rank].snapshot()
        values = self._look(rank, [f"counters.{name.upper()}_LO" for name in names])
        return lambda result: dict(zip(names, values(result), strict=True))

    def bank(self, rank=VICTIM, region=WRONG, epoch=0):
        """What the registers say about a region's bank: {state, epoch, error, closes, sent, acked,
        refused, rows, missing}."""
        paths = ["STATE", "SENT_LO", "ACKED_LO", "REFUSED_LO", "ROWS", "MISSING0"]
        self.write(rank, "regions.INDEX", region)
        self.write(rank, "regions.QUERY", epoch & 1)
        self.wait("control.STATUS", rank, query_busy=0)
        values = self._look(rank, [f"regions.{path}" for path in paths])

        def status(result):
            state, *rest = values(result)
            names = ("sent", "acked", "refused", "rows", "missing")
            return self.fields("regions.STATE", state) | dict(zip(names, rest, strict=True))

        return status

    def hang(self, rank, slice_):
        """The HANG page of a slice: {register: {field: value}}."""
        paths = [
            "OLDEST",
            "OLDEST_ROWID",
            "OLDEST_AGE",
            "WAITING",
            "WAITING_ROWID",
            "OUTSTANDING",
            "NO_CREDIT0",
        ]
        values = self._look(rank, [("hang.SLICE", slice_), *(f"hang.{path}" for path in paths)])

        def page(result):
            out = {
                path: self.fields(f"hang.{path}", value)
                for path, value in zip(paths, values(result), strict=True)
            }
            return {path: next(iter(f.values())) if len(f) == 1 else f for path, f in out.items()}

        return page

    def wait_free(self, rank=VICTIM, region=WRONG, epoch=0):
        """Waits long enough for a bank that is being given back, and looks: it must be FREE."""
        self._s.wait(rank, 800)
        status = self.bank(rank, region, epoch)
        return lambda result: status(result)["state"] == RegionState.FREE


@dataclass(frozen=True)
class Unmodelled:
    """An epoch of a region at a rank of which the model knows nothing, until the rank's mark of
    this number (None: ever)."""

    rank: int = VICTIM
    region: int = WRONG
    epoch: int = 0
    until: int | None = None


@contextmanager
def unmodelled(scenario):
    """Orders given inside go to the hubs; of them the model learns only what has become of the
    handles."""
    kept = scenario.model
    scenario.model = deepcopy(kept)
    yield
    kept.handles, scenario.model = scenario.model.handles, kept


class _View:
    """A result without what belongs to unmodelled epochs, or came before a cycle."""

    def __init__(self, result, but, since, dead):
        self._result, self._but, self._since, self._dead = result, but, since, dead

    def __getattr__(self, name):
        return getattr(self._result, name)

    def log(self, name, rank):
        records = self._result.log(name, rank)
        if len(records) == 0:
            return records
        cycle = records["first" if name == "packets" else "cycle"]
        keep = cycle >= self._since
        if self._dead and name == "refusals":
            keep &= records["status"] != Reason.PEER_DEAD
        for one in self._but:
            until = (
                self._result.marks(one.rank)[one.until] if one.until is not None else ~np.uint64(0)
            )
            mine = np.zeros(len(records), dtype=bool)
            if name in ("allocs", "events") and rank == one.rank:
                epoch = (
                    records["bank"] == one.epoch & 1
                    if name == "allocs"
                    else records["epoch"] == one.epoch
                )
                mine = (records["region"] == one.region) & epoch
                if name == "events":
                    mine &= records["plain"] == 0
            elif name == "packets":
                mine = np.array([self._reject_of(one, rank, p) for p in records])
            keep &= ~(mine & (cycle < until))
        return records[keep]

    @staticmethod
    def _reject_of(one, rank, packet):
        word = header_word(packet)
        header = unpack(HEADER, word)
        if (header["type"], header["src"]) != (PacketType.REJECT, one.rank):
            return False
        body = unpack(BODIES[PacketType.REJECT], word)
        return (body["region"], body["epoch"]) == (one.region, one.epoch)


def differences(scenario, result, but=(), since=0, dead=()):
    """Differences of a run from the model, but for unmodelled epochs (whose bytes are not counted),
    for all before the cycle ``since``, and for dead ranks and the PEER_DEAD answers that they
    cause."""
    lines = scenario.differences(_View(result, but, since, dead))
    lost = {f"rank {rank}: " for rank in dead}
    return [
        line
        for line in lines
        if not any(line.startswith(text) for text in lost) and not (but and "bytes_written" in line)
    ]


def ends(result, *regions):
    """Events of the victim's ``regions`` (all) but READY and plain ones, in the order they were
    taken: [(kind, region, epoch, status, refused)]."""
    return [
        tuple(int(e[name]) for name in ("kind", "region", "epoch", "status", "refused"))
        for e in result.log("events", VICTIM)
        if e["kind"] and not e["plain"] and (not regions or e["region"] in regions)
    ]


def error_of(bank):
    """Why the bank, which is DONE, ended in ERROR."""
    assert bank["state"] == RegionState.DONE
    return bank["error"]


def order_error(op, epoch, reason, number=WRONG):
    """What COMMAND_ERROR shows of an order for a region."""
    return {"valid": 1, "op": op, "epoch": epoch, "region": number, "reason": reason}


def start(**settings):
    """A scenario whose barriers fix the order of what matters, and looks into its registers."""
    s = FourHubs(timed=True, **settings)
    return s, Registers(s)


def aim(s, rank=CULPRIT, handle=HANDLE, region=WRONG, **more):
    """A handle of the culprit names a region of the victim."""
    s.handle(rank, handle, Handle(**{"targets": ((VICTIM, region),), "row_bytes": ROW, **more}))


def send(s, rank=CULPRIT, rowid=ROWID, data=None, handle=HANDLE, **more):
    """A row, or a piece of it; it has been judged when the rank's program goes on."""
    s.row(rank, handle, rowid, data, **more)
    s.sync(rank)
    s.settle(rank)


def unmodelled_row(s):
    """A row of the culprit and its close, of which the model does not learn; then a barrier."""
    with unmodelled(s):
        send(s)
        s.close(CULPRIT, HANDLE)
    s.barrier()


def rows_and_close(s, rows, epoch):
    """So many rows of the culprit, and its close."""
    for rowid in range(rows):
        s.row(CULPRIT, HANDLE, rowid, epoch=epoch)
    s.sync(CULPRIT)
    s.close(CULPRIT, HANDLE, epoch)


def next_epoch(s):
    """After mark 1 of the victim: five rows in epoch 2 of the region, whose bank was given back;
    where they lie is compared."""
    s.mark(VICTIM, 1)
    s.open(VICTIM, WRONG, 2)
    aim(s, epoch=2)
    s.barrier()
    rows_and_close(s, 5, epoch=2)
    low, high = region(WRONG).base
    s.hidden.append((low + 5 * 384, high))


def playground(s, **changes):
    """Region 3 of the victim, for the culprit's handle, in lane 0; and regions for everybody."""
    s.region(VICTIM, WRONG, region(WRONG, **{"expected": 1, **changes}))
    aim(s, lane_mode=LaneMode.FIXED, lane=0)
    all_to_all(s)


def others(s, rows=4, ends=0):
    """All ranks send rows beside it. The end of the run, when ``ends`` regions of the victim are
    all-ready, the two that all send to among them."""
    scatter(s, rows)
    if ends:
        s.wait_all(VICTIM, ends)
    finish(s)


class Runs:
    """Runs scenarios; all but what ``more`` excepts (see :func:`differences`) must be as the golden
    model says."""

    def __init__(self, harness):
        self._harness, self._results = harness, []

    def __call__(self, s, **more):
        result = s.run(self._harness)
        self._results.append(result)
        found = differences(s, result, **more)
        assert not found, "\n".join(found)
        return result

    def remove(self):
        for result in self._results:
            result.remove()
