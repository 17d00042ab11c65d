# SPDX-License-Identifier: Apache-2.0
"""Driver library: what system software writes to a hub's registers, in the order it has to.

Transport is a parameter: anything with ``write(address, value)`` and ``poll(address, mask,
value)``. The native harness' ``Program`` (``sim.system.system``) is one, :class:`Recorder` another.
Nothing here reads back: what can go wrong (SLVERR, a refused geometry) shows in the status
registers, see ``docs/registers.md``.
"""

from dataclasses import dataclass, field

from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.packets import LaneMode, RegionOp, replica_of
from hub_rtl.contract.registers import register_map

__all__ = ["Driver", "Handle", "Region", "DepRange", "Recorder", "rows_per_replica"]


def rows_per_replica(first, count, replicas):
    """Of ``count`` rows with RowIDs from ``first`` on, how many go to each replica of their handle:
    what ANNOUNCE is given, by the bytes of a row."""
    # Each aligned run of ``replicas`` RowIDs meets each replica once.
    head = min(count, -first % replicas)
    tail = (count - head) % replicas
    rows = [(count - head - tail) // replicas] * replicas
    for rowid in (*range(first, first + head), *range(first + count - tail, first + count)):
        rows[replica_of(rowid, replicas)] += 1
    return rows


@dataclass(frozen=True, kw_only=True)
class Handle:
    """One decoder entry at a producer. ``targets``: 1, 2 or 4 pairs (rank, region) between which
    rows are spread by hash."""

    targets: tuple
    row_bytes: int
    epoch: int = 0
    owner: int = 0
    lane_mode: LaneMode = LaneMode.ROTATE
    lane: int = 0
    closed: bool = False
    valid: bool = True


@dataclass(frozen=True, kw_only=True)
class Region:
    """Geometry of one region at a consumer. Addresses and lengths in bytes; pairs are (even epochs,
    odd epochs).

    ``expected``: closes that complete an epoch. ``overflow``: region that takes what finds this one
    full, or None. ``flag_base``: address of the flag of group ``group_base``, or None for no flags.
    """

    base: tuple
    stride: int
    row_bytes: int
    capacity: int
    group_base: int
    log2_tile: int
    expected: int
    row_first: int = 0
    row_span: int = 1 << 24
    spill_base: tuple = (0, 0)
    overflow: int | None = None
    flag_base: int | None = None

    @property
    def tile_rows(self):
        return 1 << self.log2_tile

    @property
    def tiles(self):
        return -(-self.capacity // self.tile_rows)


@dataclass(frozen=True, kw_only=True)
class DepRange:
    """Plain stores to ``base .. limit - 1`` count for group ``group_base + (address - base >>
    log2_stride)``."""

    base: int
    limit: int
    log2_stride: int
    group_base: int
    threshold: int
    armed: bool = True


@dataclass
class Recorder:
    """A transport that keeps the accesses: list of (kind, address, value, mask)."""

    accesses: list = field(default_factory=list)

    def write(self, address, value):
        self.accesses.append(("write", address, value, 0))

    def poll(self, address, mask, value):
        self.accesses.append(("poll", address, value, mask))


class Driver:
    """Orders to one hub.

    Parameters: ``cfg``, its configuration; ``port``, the transport.
    """

    def __init__(self, cfg: HubConfig, port):
        self._map, self._port = register_map(cfg), port

    def _write(self, path, value=None, **fields):
        register = self._map.register(path)
        if value is None:
            value = 0
            known = {f.name: f for f in register.fields}
            for name, number in fields.items():
                if not 0 <= int(number) < 1 << known[name].width:
                    raise ValueError(
                        f"{path}.{name} = {int(number)}: must fit {known[name].width} bits"
                    )
                value |= int(number) << known[name].low
        self._port.write(self._map.address(path), value)

    def _wide(self, path, value):
        self._write(f"{path}_LO", value & 0xFFFFFFFF)
        self._write(f"{path}_HI", value >> 32)

    def _wait(self, field_name, value=0):
        register = self._map.register("control.STATUS")
        low = next(f.low for f in register.fields if f.name == field_name)
        self._port.poll(self._map.address("control.STATUS"), 1 << low, value << low)

    # -- once after reset --------------------------------------------------------------------------

    def start(self, rank, merge_timeout=None, age_limit=None, timeout=None, max_entries=None):
        """Waits for the tables to be clear, gives the hub its rank, and sets what is not None.
        Cycles; pool entries."""
        self._wait("cleared", 1)
        self._write("id.RANK", rank)
        for path, value in (
            ("control.MERGE_TIMEOUT", merge_timeout),
            ("control.AGE_LIMIT", age_limit),
            ("control.TIMEOUT", timeout),
            ("peers.MAX_ENTRIES", max_entries),
        ):
            if value is not None:
                self._write(path, value)

    # -- tables ------------------------------------------------------------------------------------

    def handle(self, index, handle):
        """Writes decoder entry ``index``; it changes in one cycle, between two stores."""
        count = len(handle.targets)
        self._write("handles.INDEX", index)
        self._write(
            "handles.FLAGS",
            valid=handle.valid,
            closed=handle.closed,
            owner=handle.owner,
            epoch=handle.epoch,
            log2_replicas=count.bit_length() - 1,
            lane_mode=handle.lane_mode,
            lane=handle.lane,
        )
        self._write("handles.ROW_BYTES", handle.row_bytes)
        for n, (rank, region) in enumerate(handle.targets):
            self._write(f"handles.REPLICA{n}", rank=rank, region=region)
        self._write("handles.COMMIT", 1)

    def region(self, index, region):
        """Writes the geometry of region ``index``; both of its banks must be FREE."""
        self._write("regions.INDEX", index)
        self._write(
            "regions.FLAGS",
            valid=1,
            overflow_en=region.overflow is not None,
            flag_en=region.flag_base is not None,
            log2_tile=region.log2_tile,
            expected=region.expected,
            overflow=region.overflow or 0,
        )
        for bank in range(2):
            self._wide(f"regions.BASE{bank}", region.base[bank])
            self._wide(f"regions.SPILL_BASE{bank}", region.spill_base[bank])
        for name in ("stride", "row_bytes", "capacity", "group_base", "row_first", "row_span"):
            self._write(f"regions.{name.upper()}", getattr(region, name))
        self._wide("regions.FLAG_BASE", region.flag_base or 0)
        self._write("regions.COMMIT", 1)

    def window(self, rank, base, limit):
        """Lets plain stores of ``rank`` touch addresses ``base .. limit - 1``."""
        self._write("windows.INDEX", rank)
        self._wide("windows.BASE", base)
        self._wide("windows.LIMIT", limit)
        self._write("windows.COMMIT", 1)

    def dep_range(self, index, dep):
        """Arms (or disarms) dependency range ``index``."""
        self._write("deps.INDEX", index)
        self._write("deps.FLAGS", armed=dep.armed, log2_stride=dep.log2_stride)
        self._wide("deps.BASE", dep.base)
        self._wide("deps.LIMIT", dep.limit)
        self._write("deps.GROUP_BASE", dep.group_base)
        self._write("deps.THRESHOLD", dep.threshold)
        self._write("deps.COMMIT", 1)

    # -- per layer ---------------------------------------------------------------------------------

    def _region_order(self, op, index, epoch, count=1, again=False):
        self._write("regions.INDEX", index)
        self._write("regions.COMMAND", op=op, epoch=epoch, more=count - 1, again=int(again))
        self._wait("region_busy")

    def open(self, index, epoch, count=1):
        """Opens bank ``epoch[0]`` of ``count`` regions from ``index`` on for ``epoch``."""
        self._region_order(RegionOp.OPEN, index, epoch, count)

    def release(self, index, epoch, count=1, again=False):
        """Gives a DONE bank of ``count`` regions from ``index`` on back; ``again``: each is opened
        for ``epoch`` + 2 as soon as it is free."""
        self._region_order(RegionOp.RELEASE, index, epoch, count, again)

    def abort(self, index, epoch, count=1):
        """Gives a bank of ``count`` regions from ``index`` on back whatever its state; what has
        arrived is forgotten."""
        self._region_order(RegionOp.ABORT, index, epoch, count)

    def forget(self, index, bank):
        """Forgets the history of a FREE bank: any epoch of it may be opened next."""
        self._region_order(RegionOp.FORGET, index, bank)

    def announce(self, first, epoch, sizes, replica=0, owner=0):
        """Tells how many bytes, multiples of 16, come to a replica of the handles from ``first``
        on."""
        self._write("control.ANNOUNCE_TO", owner=owner, epoch=epoch, replica=replica, handle=first)
        for n, size in enumerate(sizes):
            self._write("control.ANNOUNCE", bytes16=size // 16, more=n + 1 < len(sizes))
            self._wait("command_busy")

    def drain(self, ranks):
        """Declares exactly these peers dead: what goes to them is sunk, and fences and closes
        complete without them."""
        words = {}
        for rank in ranks:
            words[rank // 32] = words.get(rank // 32, 0) | 1 << rank % 32
        for path, _, _ in list(self._map):
            if path.startswith("peers.DRAIN"):
                self._write(path, words.get(int(path.removeprefix("peers.DRAIN")), 0))

    def snapshot(self):
        """Freezes a copy of all counters, ready to be read at :meth:`counters`' addresses."""
        self._write("counters.SNAPSHOT", 1)
        self._wait("snapshot_busy")

    def counters(self):
        """{counter name: (address of the low word, address of the high word)}."""
        return {
            name: tuple(
                self._map.address(f"counters.{name.upper()}_{half}") for half in ("LO", "HI")
            )
            for name in self._map.counters
        }
