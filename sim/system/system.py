# SPDX-License-Identifier: Apache-2.0
"""The native system: N generated hubs under Verilator, their memories and programs, joined by a
switch model.

A :class:`System` holds one :class:`Rank` per hub: programs of operations, payload bytes, the
memory's size, and the places of its regions. ``System.run`` writes all that to a folder, runs the
harness (:mod:`sim.system.building`), and returns a :class:`Result` whose logs are NumPy arrays. No
Python runs per cycle.

The binary formats are those of :mod:`sim.system.formats`; settings are those of
``sim/system/native/main.cpp``.
"""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, CommandOp, EventKind, lane_of, pack
from hub_rtl.contract.ports import hub_ports
from sim.bench.runner import BUILD

from .building import HarnessError, build
from .fabric import link_clock
from .formats import LOGS, OP, OpKind, bin_record

__all__ = [
    "System",
    "Rank",
    "Program",
    "Result",
    "PATTERNS",
    "FAULTS",
    "row_operand",
    "plain_operand",
]

PATTERNS = {"none": 0, "cyclic": 1, "random": 2}  # of stalls
FAULTS = ("drop", "duplicate", "corrupt", "truncate", "mute")


def row_operand(handle, epoch, rowid, row_off=0):
    """Operand of a row-sparse store."""
    return pack(OPERAND_ROW, handle=handle, epoch=epoch, rowid=rowid, row_off=row_off)


def plain_operand(rank, addr):
    """Operand of a plain store."""
    return pack(OPERAND_PLAIN, addr=addr, rank=rank, plain=1)


# -- programs --------------------------------------------------------------------------------------


class Program:
    """One thread of a rank's program: operations in order. Also a transport for
    :class:`~flow.driver.Driver`.

    Stores are handed to the lanes at once and run beside what follows; ``sync`` waits for all their
    answers.
    """

    def __init__(self, rank, thread=0):
        self._rank, self._thread, self._parts, self._rows = rank, thread, [], []

    def _add(self, kind, *, cls=0, owner=0, rank=0, a=0, b=0, n=0, m=0, c=0, d=0):
        self._rows.append((OpKind[kind], cls, owner, rank, self._thread, a, b, n, m, c, d))

    def _flush(self):
        if self._rows:
            self._parts.append(np.array(self._rows, dtype=OP))
            self._rows = []

    def bulk(self, kind, *, rank, a, b, n, m=0, c=0, d=0, cls=0, owner=0):
        """Many operations of one kind at once; arguments are arrays or scalars, named as in
        :class:`~sim.system.formats.OpKind`."""
        self._flush()
        ops = np.zeros(len(a), dtype=OP)
        ops["kind"], ops["thread"] = OpKind[kind], self._thread
        for name, value in (
            ("rank", rank),
            ("a", a),
            ("b", b),
            ("n", n),
            ("m", m),
            ("c", c),
            ("d", d),
            ("cls", cls),
            ("owner", owner),
        ):
            ops[name] = value
        self._parts.append(ops)

    def row(self, operand, dest, data, *, lane, cls=0, owner=0):
        """Row-sparse stores of ``data`` (bytes) from the operand's row_off on."""
        self._add(
            "ROW",
            a=operand,
            b=self._rank.add_payload(data),
            n=len(data),
            m=lane,
            rank=dest,
            cls=cls,
            owner=owner,
        )

    def plain(self, dest, addr, data, *, cls=0, owner=0):
        """Plain stores of ``data`` to ``addr`` at rank ``dest``; each lane takes its own blocks."""
        self._add(
            "PLAIN",
            a=addr,
            b=self._rank.add_payload(data),
            n=len(data),
            rank=dest,
            cls=cls,
            owner=owner,
        )

    def store(self, operand, dest, data, mask, *, lane, cls=0, owner=0):
        """One store exactly as given: 32 bytes of data and a byte mask."""
        self._add(
            "STORE",
            a=operand,
            b=self._rank.add_payload(bytes(data)),
            n=mask,
            m=lane,
            rank=dest,
            cls=cls,
            owner=owner,
        )

    def fence(self, owner=0, remote=False):
        """``remote``: answered when the peers' memories have answered."""
        op = CommandOp.FENCE_REMOTE if remote else CommandOp.FENCE
        self._add("COMMAND", a=op, owner=owner)

    def close(self, handle, epoch, owner=0, abort=False):
        self._add("COMMAND", a=CommandOp.CLOSE, b=handle, c=epoch, owner=owner, cls=abort)

    def close_all(self, epoch, owner=0):
        self._add("COMMAND", a=CommandOp.CLOSE_ALL, c=epoch, owner=owner)

    def announce(self, handle, epoch, size, *, replica=0, more=False, owner=0):
        """Tells that ``size`` bytes, a multiple of 16, come to a replica of the handle."""
        op = {"a": CommandOp.ANNOUNCE, "b": handle, "c": epoch, "owner": owner}
        self._add("COMMAND", **op, rank=replica, n=size // 16, m=more)

    def announce_all(self, epoch, owner=0):
        """Tells that nothing comes to those that were told nothing."""
        self._add("COMMAND", a=CommandOp.ANNOUNCE_ALL, c=epoch, owner=owner)

    def sync(self):
        """Until every store has been answered."""
        self._add("SYNC")

    def write(self, address, value):
        self._add("CSR_WRITE", a=address, c=value)

    def read(self, address):
        """The value goes to the log ``reads``."""
        self._add("CSR_READ", a=address)

    def poll(self, address, mask, value):
        self._add("CSR_POLL", a=address, c=mask, d=value)

    def wait_cycles(self, cycles):
        self._add("WAIT_CYCLES", a=cycles)

    def wait_events(self, kind, count, plain=False):
        """Until this rank has had ``count`` events of a kind since reset."""
        self._add("WAIT_EVENTS", a=EventKind(kind) + 4 * plain, b=count)

    def wait_memory(self, addr, mask=(1 << 64) - 1, value=None):
        """Until the 8-byte word has this value under the mask; with None: any value but 0."""
        self._add("WAIT_MEMORY", a=addr, c=mask, d=(1 << 64) - 1 if value is None else value)

    def barrier(self):
        """Until this thread of every rank is here. Costs no message: software's barrier is outside
        the measurement."""
        self._add("BARRIER")

    def mark(self, number):
        """The cycle goes to the log ``reads``, as a record with ``mark`` = 1 and ``address`` =
        number."""
        self._add("MARK", a=number)

    def wait_end(self, region, epoch, count=1):
        """Until this rank took ``count`` ALL or ERROR events of a region's epoch since reset."""
        self._add("WAIT_END", a=region, c=epoch, b=count)

    def wait_mark(self, number):
        """Until some thread of this rank has passed this mark."""
        self._add("WAIT_MARK", a=number)

    def again(self, steps, mask, value):
        """Goes back ``steps`` operations unless the value read last is ``value`` under the mask."""
        self._add("AGAIN", a=steps, c=mask, d=value)

    def expert(self, addr, rows, region, signals=0):
        """Hands ``rows`` rows from ``addr`` on, laid out as in ``region``, to the expert stand-in,
        once all signals came."""
        self._add("EXPERT", a=addr, n=rows, m=region, c=signals)

    def signal(self, number):
        """Gives signal 0..63 to the expert stand-in."""
        self._add("SIGNAL", a=number)

    def array(self):
        """All operations."""
        self._flush()
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=OP)


class Rank:
    """What one rank brings: programs, payload bytes, size of memory, places of regions (for the
    expert stand-in)."""

    def __init__(self, number):
        self.number, self.threads, self.arena = number, {}, 1 << 20
        # region -> (base0, base1, stride, row_bytes, group_base, log2_tile, expert)
        self.places = {}
        self._payload, self._size = [], 0

    def program(self, thread=0):
        """The thread's program, made at the first call."""
        return self.threads.setdefault(thread, Program(self, thread))

    def add_payload(self, data):
        """Offset of ``data`` in the rank's payload."""
        offset = self._size
        self._payload.append(bytes(data) if not isinstance(data, np.ndarray) else data)
        self._size += data.nbytes if isinstance(data, np.ndarray) else len(data)
        return offset

    def save(self, folder):
        with open(folder / f"rank{self.number}.payload", "wb") as file:
            for part in self._payload:
                file.write(
                    np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else part
                )
        with open(folder / f"rank{self.number}.program", "wb") as file:
            for thread in sorted(self.threads):
                file.write(self.threads[thread].array().tobytes())


class System:
    """N ranks and their surroundings.

    Parameters: ``cfg``; ``settings``, by name as in ``sim/system/native/main.cpp`` (scalars, or
    tuples of values).
    """

    def __init__(self, cfg, **settings):
        self.cfg, self.settings, self.extra = cfg, settings, []
        self.ranks = [Rank(n) for n in range(cfg.ranks)]

    def lane(self, operand, **more):
        return lane_of(operand, self.cfg.lanes, self.cfg.packet_bytes, **more)

    def setting(self, *words):
        """A setting that may come more than once (``region``, ``fault``, ``mem_error``,
        ``memory_of``, ``dead``, ``reset_of``, ``paused``, ``events_held``)."""
        self.extra.append(" ".join(map(str, words)))

    def fault(self, kind, dest, link=0, index=0, bit=0):
        """A fault of the packet number ``index`` that ``link`` delivers to rank ``dest``; see
        :data:`FAULTS`."""
        self.setting("fault", FAULTS.index(kind), dest, link, index, bit)

    def _config(self):
        cfg = self.cfg
        lines = [
            f"{name} {getattr(cfg, name)}"
            for name in ("ranks", "lanes", "links", "loop_lanes", "packet_bytes", "tag_width")
        ]
        ticks, cycles = link_clock(cfg)
        lines.append(f"link_clock {ticks} {cycles}")
        for name, value in self.settings.items():
            value = " ".join(map(str, map(int, value))) if isinstance(value, tuple) else int(value)
            lines.append(f"{name} {value}")
        lines += [f"arena {rank.number} {rank.arena}" for rank in self.ranks]
        lines += [
            f"region {rank.number} {region} {' '.join(map(str, place))}"
            for rank in self.ranks
            for region, place in sorted(rank.places.items())
        ]
        return "\n".join([*lines, *self.extra, ""])

    def run(self, program=None, folder=None, progress=None):
        """Runs the harness. ``progress(cycle, ranks_done, seconds)`` is called twice a second.

        The folder (a new one in ``build/native/runs`` unless given) holds the memory images:
        :meth:`Result.remove` it.
        """
        program = program or build(self.cfg)
        own = folder is None
        if own:
            (BUILD / "native" / "runs").mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix="run-", dir=BUILD / "native" / "runs")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config").write_text(self._config())
        for rank in self.ranks:
            rank.save(folder)
        with (
            open(folder / "errors", "w") as errors,
            subprocess.Popen(
                [program, folder], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            try:
                for line in process.stdout:
                    words = line.split()
                    if progress and words[:1] == ["progress"]:
                        progress(int(words[1]), int(words[2]), float(words[3]))
                code = process.wait()
            except BaseException:  # Ctrl-C: nobody will look at what it does
                process.kill()
                process.wait()
                if own:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
        if code not in (0, 2):
            raise HarnessError(
                f"the harness ended with code {code}: "
                f"{(folder / 'errors').read_text().strip() or 'no message'}"
            )
        return Result(self.cfg, folder)


class Result:
    """Outcome of a run: ``summary`` (a dictionary), ``ranks`` of it, and per-rank logs as arrays,
    read when asked for."""

    def __init__(self, cfg, folder):
        self.cfg, self.folder = cfg, folder
        self.summary = json.loads((folder / "summary.json").read_text())
        self.ranks = self.summary["ranks"]
        self.timed_out = self.summary["timed_out"]

    def log(self, name, rank):
        """Log ``name`` of a rank, one of ``LOGS``."""
        return np.fromfile(self.folder / f"rank{rank}.{name}", dtype=LOGS[name])

    def memory(self, rank):
        """Memory image of a rank, mapped read-only."""
        return np.memmap(self.folder / f"rank{rank}.mem", dtype=np.uint8, mode="r")

    def bins(self, rank):
        """Records :func:`~sim.system.formats.bin_record`, one for each ``bin`` cycles from the
        setting ``bin_from`` on."""
        return np.fromfile(self.folder / f"rank{rank}.bins", dtype=bin_record(self.cfg.links))

    def pins(self, rank):
        """All pins of a rank cycle by cycle, if the setting ``record`` named it; a record per
        cycle, wide pins as bytes."""
        fields = [("rst", 1), *((port.name, port.width) for port in hub_ports(self.cfg))]
        kind = np.dtype([(name, f"V{(width + 7) // 8}") for name, width in fields])
        return np.fromfile(self.folder / f"rank{rank}.pins", dtype=kind)

    def marks(self, rank):
        """{mark number: cycle of its last record}."""
        reads = self.log("reads", rank)
        reads = reads[reads["mark"] == 1]
        return {int(r["address"]): int(r["cycle"]) for r in reads}

    def reads(self, rank):
        """{register address: last value read}."""
        reads = self.log("reads", rank)
        reads = reads[reads["mark"] == 0]
        return {int(r["address"]): int(r["value"]) for r in reads}

    def total(self, name):
        """Sum of a figure over all ranks."""
        return sum(rank[name] for rank in self.ranks)

    def remove(self):
        """Deletes the run's folder with its memory images."""
        shutil.rmtree(self.folder, ignore_errors=True)
