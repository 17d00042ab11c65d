# SPDX-License-Identifier: Apache-2.0
"""The one configuration object: every width, depth and count of the hub comes from here.

Plain Python on purpose (no Amaranth): the RTL, the golden model, the benches and the command line
all share it.
"""

import dataclasses
import re
from dataclasses import dataclass

from .fields import (
    ADDR,
    FLIT_BYTES,
    GRANT,
    HANDLE,
    LANE,
    MISSING,
    RANK,
    REGION,
    SLOT,
    TILE,
    TOTAL,
)

__all__ = ["ConfigError", "HubConfig", "PRESETS", "RESERVE", "first_share", "preset"]

RESERVE = 2  # places of a receive pool that every source keeps


class ConfigError(ValueError):
    """A configuration field breaks a rule; the text is ``field = value: rule`` on one line."""


def ceil_log2(n):
    """Bits needed to number ``n`` things (0 for one thing)."""
    return (n - 1).bit_length()


def index_width(n):
    """Width of a port that numbers ``n`` things: never zero, a zero-width port is not Verilog."""
    return max(1, ceil_log2(n))


def first_share(ranks, places):
    """Packets that each peer may send to a slice before it has heard of it: an equal share of the
    places of its receive pool."""
    return places // (ranks - 1)


@dataclass(frozen=True, kw_only=True)
class HubConfig:
    """Parameters of one hub; all hubs of a system share one value.

    Raises :class:`ConfigError` naming field, value and rule when a value is out of range.
    """

    name: str = "custom"
    ranks: int = 8  # GPUs in the system, 2..128
    lanes: int = 1  # link ports of the hub, 1..32
    loop_lanes: int = 1  # loopback lanes for the own rank, 1..lanes
    packet_bytes: int = 128  # largest payload of a packet, 128 or 256
    handles: int = 512  # entries of the decoder table, 1..2048
    replicas: int = 1  # (rank, region) pairs per handle: 1, 2 or 4
    regions: int = 32  # regions of this rank, 1..2048
    groups: int = 1024  # tile counters per epoch bank, power of two, 4..65536
    capacity: int = 1 << 16  # most slots a region may have, 1..2**20
    max_row_bytes: int = 16384  # longest row, multiple of 16, 16..16384
    pool_depth: int = 64  # PacketManager entries per lane, power of two, 4..256
    rat_sets: int = 64  # sets of a lane's RAT, power of two, 1..4096
    rat_ways: int = 4  # ways of a lane's RAT, 1..16
    filter_depth: int = 256  # counters of a lane's spill filter, power of two, 2..65536
    filter_width: int = 3  # bits of such a counter, 1..8
    pool_places: int = 256  # packets that a slice's receive pool holds, 2 per peer .. 2047
    ctl_credits: int = 2  # receive control buffers per (source, lane), 1..15
    write_depth: int = 128  # memory writes outstanding per lane, 2..512
    dep_ranges: int = 16  # dependency ranges for plain stores, 1..64
    combine_depth: int = 8  # acknowledgement accumulators per lane, 1..32
    log_depth: int = 64  # entries of the refusal log, 1..1024
    reject_depth: int = 16  # REJECT messages waiting to be sent, 1..256
    tag_width: int = 8  # bits of the store tag echoed by responses, 1..32
    slice_bytes: int = 32  # payload of a slice per cycle: 16, 32, 64 or 128
    slice_links: int = 1  # links of a lane's slice, 1..8
    victim_sets: int = 64  # sets of four spilled rows kept on chip, power of two to 1024, or 0
    link_clock: bool = False  # links have a clock of their own, at most twice as fast

    flit_bytes = FLIT_BYTES  # what a lane moves per cycle

    def __post_init__(self):
        def rule(field, ok, text):
            if not ok:
                raise ConfigError(f"{field} = {getattr(self, field)!r}: {text}")

        def between(field, low, high, power=False):
            value = getattr(self, field)
            rule(
                field, isinstance(value, int) and not isinstance(value, bool), "must be an integer"
            )
            rule(field, low <= value <= high, f"must be between {low} and {high}")
            if power:
                rule(field, value & (value - 1) == 0, "must be a power of two")

        # The name is part of comments in generated files of six languages.
        rule(
            "name",
            isinstance(self.name, str)
            and re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,63}", self.name, re.ASCII),
            "must be 1 to 64 letters, digits and . _ + -, the first no mark",
        )
        between("ranks", 2, 1 << RANK)
        between("lanes", 1, 1 << LANE)
        between("loop_lanes", 1, 1 << LANE)
        rule("loop_lanes", self.loop_lanes <= self.lanes, f"must not exceed lanes = {self.lanes}")
        rule("packet_bytes", self.packet_bytes in (128, 256), "must be 128 or 256")
        between("handles", 1, 1 << HANDLE)
        between("replicas", 1, 4, power=True)
        between("regions", 1, 1 << REGION)
        between("groups", 4, 65536, power=True)
        between("capacity", 1, 1 << SLOT)
        between("max_row_bytes", 16, 1 << MISSING - 1)
        rule("max_row_bytes", self.max_row_bytes % 16 == 0, "must be a multiple of 16")
        between("pool_depth", 4, 256, power=True)
        rule(
            "pool_depth",
            self.pool_depth > self.ranks,
            f"must exceed ranks = {self.ranks}: one entry is reserved per peer",
        )
        between("rat_sets", 1, 4096, power=True)
        between("rat_ways", 1, 16)
        between("filter_depth", 2, 65536, power=True)
        between("filter_width", 1, 8)
        between("victim_sets", 0, 1024, power=True)
        between("pool_places", RESERVE * (self.ranks - 1), (1 << GRANT - 1) - 1)
        between("ctl_credits", 1, 15)
        between("write_depth", 2, 512)
        between("dep_ranges", 1, 64)
        between("combine_depth", 1, 32)
        between("log_depth", 1, 1024)
        between("reject_depth", 1, 256)
        between("tag_width", 1, 32)
        between("slice_bytes", 16, 128, power=True)
        between("slice_links", 1, 8)
        rule("link_clock", self.link_clock in (False, True), "must be 0 or 1")
        object.__setattr__(self, "link_clock", bool(self.link_clock))
        rule(
            "slice_links",
            self.links <= 1 << LANE,
            f"must be at most {(1 << LANE) // self.lanes}, with lanes = {self.lanes}",
        )

    # -- derived sizes -----------------------------------------------------------------------------

    @property
    def slices(self):
        """Consumer slices: one per link lane, then one per loopback lane."""
        return self.lanes + self.loop_lanes

    @property
    def links(self):
        """Link ports: those of the first lane's slice, then those of the next one."""
        return self.lanes * self.slice_links

    @property
    def packet_flits(self):
        """Payload flits of a full packet."""
        return self.packet_bytes // self.flit_bytes

    @property
    def mask_flits(self):
        """Mask flits of a masked packet: one mask bit per byte of a packet-sized block."""
        return self.packet_bytes // 128

    @property
    def frame_flits(self):
        """Longest packet on the wire: header, mask flits, payload flits."""
        return 1 + self.mask_flits + self.packet_flits

    @property
    def dests(self):
        """Send counters per epoch bank: one per (handle, replica)."""
        return self.handles * self.replicas

    rank_width = property(lambda self: index_width(self.ranks))
    lane_width = property(lambda self: index_width(self.lanes))
    link_width = property(lambda self: index_width(self.links))
    slice_width = property(lambda self: index_width(self.slices))
    handle_width = property(lambda self: index_width(self.handles))
    dest_width = property(lambda self: index_width(self.dests))
    region_width = property(lambda self: index_width(self.regions))
    group_width = property(lambda self: index_width(self.groups))
    slot_width = property(
        lambda self: index_width(self.capacity + 1), doc="Holds a slot and also a row count."
    )
    dep_width = property(lambda self: index_width(self.dep_ranges))
    row_bytes_width = property(lambda self: (self.max_row_bytes).bit_length())
    stride_width = property(
        lambda self: (2 * max(self.max_row_bytes, self.packet_bytes)).bit_length()
    )
    row_block_width = property(
        lambda self: index_width(-(-self.max_row_bytes // self.packet_bytes))
    )
    addr_block_width = property(lambda self: ADDR - ceil_log2(self.packet_bytes))
    bytes_width = property(
        lambda self: self.packet_bytes.bit_length(), doc="Holds 0..packet_bytes."
    )
    tile_width = property(lambda self: TILE, doc="Bytes in one tile: 1024 rows x 16 KiB at most.")
    total_width = property(
        lambda self: TOTAL, doc="Byte totals of a region: a news entry has 30 bits of 16 B."
    )

    def replace(self, **changes):
        """A copy with fields changed; unknown names raise :class:`ConfigError` with the list of
        fields."""
        known = {f.name for f in dataclasses.fields(self)}
        for key in changes:
            if key not in known:
                raise ConfigError(
                    f"{key}: no such field; the fields are {', '.join(sorted(known))}"
                )
        return dataclasses.replace(self, **changes)

    def as_dict(self):
        """Fields as a plain dictionary, in declaration order."""
        return dataclasses.asdict(self)


PRESETS = {
    # Small enough for unbounded proofs; every structure still has two of everything.
    "tiny": HubConfig(
        name="tiny",
        ranks=2,
        handles=4,
        regions=2,
        groups=4,
        capacity=8,
        max_row_bytes=256,
        pool_depth=4,
        rat_sets=1,
        rat_ways=2,
        filter_depth=4,
        filter_width=2,
        pool_places=16,
        ctl_credits=1,
        write_depth=4,
        dep_ranges=2,
        combine_depth=2,
        log_depth=2,
        reject_depth=2,
        tag_width=4,
        victim_sets=0,
    ),
    # Benches and the native harness.
    "small": HubConfig(
        name="small",
        ranks=4,
        handles=32,
        replicas=2,
        regions=8,
        groups=64,
        capacity=1024,
        max_row_bytes=16384,
        pool_depth=16,
        rat_sets=8,
        rat_ways=4,
        filter_depth=64,
        victim_sets=4,
        pool_places=24,
        write_depth=32,
        dep_ranges=4,
        log_depth=16,
        reject_depth=8,
    ),
    # One lane that fits an ECP5-85F with room for the system around it.
    "fpga": HubConfig(
        name="fpga",
        ranks=4,
        handles=64,
        regions=16,
        groups=256,
        capacity=4096,
        max_row_bytes=8192,
        pool_depth=16,
        rat_sets=32,
        rat_ways=2,
        filter_depth=128,
        victim_sets=16,
        pool_places=48,
        write_depth=32,
        dep_ranges=4,
        combine_depth=4,
        log_depth=16,
        reject_depth=8,
    ),
    # DGX-H100 class: 8 GPUs, 18 NVLink4 ports, 256 experts. Three links a slice; a receive pool
    # holds what they carry in a microsecond.
    "nvl8": HubConfig(
        name="nvl8",
        ranks=8,
        lanes=6,
        slice_links=3,
        slice_bytes=64,
        link_clock=True,
        loop_lanes=2,
        handles=512,
        regions=64,
        groups=2048,
        pool_depth=128,
        pool_places=576,
    ),
    # GB200 NVL72 class.
    "nvl72": HubConfig(
        name="nvl72",
        ranks=72,
        lanes=6,
        slice_links=3,
        slice_bytes=64,
        link_clock=True,
        loop_lanes=1,
        packet_bytes=256,
        handles=1024,
        regions=32,
        groups=2048,
        pool_depth=128,
        pool_places=576,
    ),
}


def preset(name, /, **changes):
    """The preset ``name`` with fields changed.

    Raises :class:`ConfigError` when there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset = {name!r}: must be one of {', '.join(PRESETS)}")
    return PRESETS[name].replace(**changes)
