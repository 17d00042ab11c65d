# SPDX-License-Identifier: Apache-2.0
"""One description that drives the hubs and the golden model: for system tests.

Every method writes the program of a rank and tells the model the same. ``run`` simulates;
``differences`` compares memories, events, answers to stores and commands, REJECT messages and the
registers of the regions.
"""

from collections import Counter

import numpy as np

from flow.driver import Driver
from hub_rtl.contract.packets import (
    BODIES,
    HEADER,
    OPERAND_ROW,
    CommandOp,
    EventKind,
    PacketType,
    Reason,
    pack,
    unpack,
)
from hub_rtl.contract.registers import register_map
from sim.golden.observed import check_arrivals
from sim.golden.system import ModelError, SystemModel

from .formats import COMMAND_REFUSAL, header_word
from .layer import MARK_QUERY, QUERY
from .layer_check import observed_events, wrong_totals
from .system import System, plain_operand, row_operand

__all__ = ["Scenario"]

DEFAULTS = {"latency": 20, "window": 20, "max_cycles": 100_000, "drain": 600}


class Scenario:
    """N ranks, their programs and the model beside them.

    Parameters: ``cfg``; ``arena``, bytes of memory per rank; ``hidden``, address ranges (low, high)
    that are not compared (spill tables, flags); ``timed``, see
    :class:`~sim.golden.system.SystemModel`; ``settings`` of :class:`~sim.system.system.System`.
    """

    def __init__(self, cfg, arena=1 << 18, hidden=(), timed=False, **settings):
        self.cfg, self.model, self.arena, self.hidden = (
            cfg,
            SystemModel(cfg, timed),
            arena,
            list(hidden),
        )
        self.system = System(cfg, **{**DEFAULTS, **settings})
        self.drivers, self.expected, self._lane_modes, self._queries = (
            [],
            [Counter() for _ in range(cfg.ranks)],
            {},
            [],
        )
        for rank in self.system.ranks:
            rank.arena = arena
            driver = Driver(cfg, rank.program())
            driver.start(rank.number)
            self.drivers.append(driver)

    def program(self, rank):
        return self.system.ranks[rank].program()

    # -- a rank's program --------------------------------------------------------------------------

    def fence(self, rank):
        self.program(rank).fence()

    def wait(self, rank, cycles):
        self.program(rank).wait_cycles(cycles)

    def wait_all(self, rank, count):
        """Until ``count`` regions of the rank have ended all-ready."""
        self.program(rank).wait_events(EventKind.ALL, count)

    def mark(self, rank, number):
        self.program(rank).mark(number)

    # -- set-up ------------------------------------------------------------------------------------

    def handle(self, rank, index, entry):
        self.drivers[rank].handle(index, entry)
        self.model.handle(rank, index, entry)
        self._lane_modes[rank, index] = {"mode": entry.lane_mode, "fixed": entry.lane}

    def region(self, rank, index, geometry, epochs=(0,)):
        self.drivers[rank].region(index, geometry)
        self.model.region(rank, index, geometry)
        for epoch in epochs:
            self.open(rank, index, epoch)

    def open(self, rank, index, epoch):
        self.drivers[rank].open(index, epoch)
        self.model.open(rank, index, epoch)

    def forget(self, rank, index, bank):
        self.drivers[rank].forget(index, bank)
        self.model.forget(rank, index, bank)

    def window(self, rank, source, base, limit):
        self.drivers[rank].window(source, base, limit)
        self.model.window(rank, source, base, limit)

    def dep_range(self, rank, index, dep):
        self.drivers[rank].dep_range(index, dep)
        self.model.dep_range(rank, index, dep)

    def barrier(self):
        for rank in range(self.cfg.ranks):
            self.program(rank).barrier()

    # -- stores ------------------------------------------------------------------------------------

    def lane(self, rank, operand):
        """The right lane for an operand."""
        more = (
            {}
            if unpack(OPERAND_ROW, operand)["plain"]
            else self._lane_modes.get((rank, unpack(OPERAND_ROW, operand)["handle"]), {})
        )
        return self.system.lane(operand, **more)

    def store(self, rank, operand, data, mask, dest=0, owner=0, cls=0, lane=None):
        """One store as given; by default in the right lane. ``dest`` is what the crossbar would
        look up in can_accept."""
        lane = self.lane(rank, operand) if lane is None else lane
        self.program(rank).store(operand, dest, data, mask, lane=lane, cls=cls, owner=owner)
        reason = self.model.store(rank, operand, bytes(data), mask, owner=owner, lane=lane)
        if reason:
            self.expected[rank][operand, int(reason), 0] += 1
        return reason

    def row(self, rank, handle, rowid, data, epoch=0, row_off=0, cls=0):
        """A row, or a piece of it from ``row_off`` (units of 16 bytes) on, that must be
        accepted."""
        operand = row_operand(handle, epoch, rowid, row_off)
        entry = self.model.handles[rank][handle][0]
        dest = entry.targets[0][0]
        self.program(rank).row(operand, dest, data, lane=self.lane(rank, operand), cls=cls)
        reason = self.model.row(rank, operand, bytes(data))
        assert reason == Reason.OK, reason

    def plain(self, rank, dest, addr, data, cls=0):
        self.program(rank).plain(dest, addr, data, cls=cls)
        assert self.model.plain(rank, dest, addr, bytes(data)) == Reason.OK

    def plain_store(self, rank, dest, addr, data, mask):
        return self.store(
            rank, plain_operand(dest, addr), data, mask, dest=min(dest, self.cfg.ranks - 1)
        )

    def sync(self, rank):
        self.program(rank).sync()

    def close(self, rank, handle, epoch=0, owner=0, abort=False):
        self.program(rank).close(handle, epoch, owner, abort)
        reason = self.model.close(rank, handle, epoch, owner, abort)
        return self._answered(rank, CommandOp.CLOSE, handle, reason)

    def _answered(self, rank, op, handle, reason):
        if reason:
            refused = pack(COMMAND_REFUSAL, handle=handle, op=op)
            self.expected[rank][refused, int(reason), 1] += 1
        return reason

    def announce(self, rank, handle, size, epoch=0, replica=0, owner=0, more=False):
        about = {"replica": replica, "owner": owner}
        self.program(rank).announce(handle, epoch, size, more=more, **about)
        reason = self.model.announce(rank, handle, epoch, size, **about)
        return self._answered(rank, CommandOp.ANNOUNCE, handle, reason)

    def announce_all(self, rank, epoch=0, owner=0):
        """After all answers: the rest is told that nothing comes."""
        self.sync(rank)
        self.program(rank).announce_all(epoch, owner)
        self.model.announce_all(rank, epoch, owner)

    def close_all(self, rank, epoch=0, owner=0):
        """After all answers: closes every handle of the epoch."""
        self.sync(rank)
        self.program(rank).close_all(epoch, owner)
        self.model.close_all(rank, epoch, owner)

    def query(self, rank, region, epoch=0):
        """Reads the region's registers here; they are compared with the model's final totals of the
        epoch."""
        registers, program = register_map(self.cfg), self.program(rank)
        program.write(registers.address("regions.INDEX"), region)
        program.write(registers.address("regions.QUERY"), epoch & 1)
        self.drivers[rank]._wait("query_busy")
        for name in QUERY:
            program.read(registers.address(f"regions.{name}"))
        program.mark(MARK_QUERY + len(self._queries))
        self._queries.append((rank, region, epoch))

    # -- verdict -----------------------------------------------------------------------------------

    def run(self, program=None, **more):
        return self.system.run(program, **more)

    def differences(self, result):
        """One line per difference between the run and the model; empty when all is well."""
        try:
            self._replay(result)
        except ModelError as error:
            return [f"placement: {error}"]
        out = []
        if result.timed_out:
            out.append(
                "timed out: "
                + ", ".join(f"rank {r['rank']} at operation {r['pc']}" for r in result.ranks)
            )
        for rank in range(self.cfg.ranks):
            for check in (self._memory, self._events, self._answers, self._rejects, self._figures):
                out += [f"rank {rank}: {text}" for text in check(result, rank)]
        return out + self._registers(result)

    def _replay(self, result):
        for rank in range(self.cfg.ranks):
            allocs = result.log("allocs", rank)
            for a in allocs.tolist():
                self.model.allocate(rank, a[3], a[4], a[1], a[2], a[5])
            check_arrivals(allocs, result.log("packets", rank), self._local(result, rank))
        self.model.settle()

    def _local(self, result, rank):
        for issue in result.log("issues", rank):
            f = unpack(OPERAND_ROW, int(issue["operand"]))
            state = self.model.handles[rank].get(f["handle"])
            for dest, region in state[0].targets if state else ():
                if dest == rank:
                    yield int(issue["cycle"]), region, f["epoch"], f["rowid"]

    def _memory(self, result, rank):
        expected, written = self.model.image(rank, self.arena)
        got = np.array(result.memory(rank))
        for low, high in self.hidden:
            got[low:high] = expected[low:high]
        wrong = np.flatnonzero(got != expected)
        if len(wrong):
            at = wrong[0]
            yield (
                f"{len(wrong)} bytes of memory differ, first at {at:#x}: {got[at]:#x}, "
                f"must be {expected[at]:#x}"
            )
        if result.ranks[rank]["bytes_written"] > written:
            yield (
                f"bytes_written = {result.ranks[rank]['bytes_written']}, must be at most {written}"
            )

    def _events(self, result, rank):
        got, want = (
            Counter(observed_events(result.log("events", rank))),
            Counter(self.model.events(rank)),
        )
        if got != want:
            yield (
                f"events too many {sorted((got - want).elements())[:4]}, missing "
                f"{sorted((want - got).elements())[:4]}"
            )

    def _answers(self, result, rank):
        got = Counter(
            (int(r["operand"]), int(r["status"]), int(r["command"]))
            for r in result.log("refusals", rank)
        )
        if got != self.expected[rank]:
            extra, missing = got - self.expected[rank], self.expected[rank] - got
            yield (
                f"refused: too many {list(extra.items())[:4]}, missing {list(missing.items())[:4]}"
            )

    def _rejects(self, result, rank):
        """REJECT messages that came to this rank name exactly the rows that others refused."""
        got = set()
        for p in result.log("packets", rank):
            word = header_word(p)
            header, body = unpack(HEADER, word), unpack(BODIES[PacketType.REJECT], word)
            if header["type"] == PacketType.REJECT:
                got.add(
                    (
                        body["reason"],
                        header["src"],
                        body["region"],
                        body["epoch"],
                        body["rowid"],
                    )
                )
        want = {
            (int(reason), dest, region, epoch, rowid)
            for dest in range(self.cfg.ranks)
            for reason, src, region, epoch, rowid in self.model.refusals[dest]
            if src == rank and dest != rank and region is not None
        }
        got = {key for key in got if key[0] != Reason.WINDOW}
        if got != want:
            yield f"REJECT: too many {sorted(got - want)[:4]}, missing {sorted(want - got)[:4]}"

    def _figures(self, result, rank):
        for name in ("bad_responses", "mem_bad", "spill_bad", "csr_errors", "tx_bad"):
            if result.ranks[rank][name]:
                yield f"{name} = {result.ranks[rank][name]}, must be 0"

    def _registers(self, result):
        paths = {register_map(self.cfg).address(f"regions.{name}"): name for name in QUERY}
        out, done = [], 0
        for rank in range(self.cfg.ranks):
            seen = {}
            for read in result.log("reads", rank):
                address = int(read["address"])
                if not read["mark"] and address in paths:
                    seen[paths[address]] = int(read["value"])
                elif read["mark"] and address >= MARK_QUERY:
                    done += 1
                    _, region, epoch = self._queries[address - MARK_QUERY]
                    want = self.model.totals(rank, region, epoch)
                    out += wrong_totals(rank, region, seen, want)
        if done != len(self._queries):
            out.append(f"{done} of {len(self._queries)} queries were made")
        return out
