# SPDX-License-Identifier: Apache-2.0
"""What the self-test does, as numbers: the configuration, the layout of memory, the rows, the
register accesses."""

from dataclasses import dataclass

from flow.driver import Driver, Handle, Recorder, Region
from hub_rtl.contract.config import HubConfig, ceil_log2

__all__ = ["Plan", "Step", "CONFIG", "RANKS"]

RANKS = 2

#: Small enough that the hub and the system around it take half of an ECP5-85F and are built in
#: minutes: one region, half of the payload per cycle. A RAT that is too small for the rows and no
#: victim store behind it, so that mappings go to memory and come back all the time.
CONFIG = HubConfig(
    name="selftest",
    ranks=RANKS,
    handles=2,
    regions=1,
    groups=16,
    capacity=64,
    max_row_bytes=256,
    pool_depth=4,
    rat_sets=2,
    rat_ways=2,
    filter_depth=8,
    pool_places=2 * RANKS,
    ctl_credits=1,
    write_depth=4,
    dep_ranges=1,
    combine_depth=1,
    log_depth=2,
    reject_depth=2,
    tag_width=1,
    slice_bytes=16,
    victim_sets=0,
)

STRIDE = 256  # bytes from row to row
ROW_BYTES = 144  # a packet of 128 bytes and one of 16
BANK = 1 << 16  # rows of even epochs start here, those of odd ones at twice this
SPILL = 1 << 18
GROUP_ROWS = 4  # rows that are stored in turn, part by part


@dataclass(frozen=True)
class Step:
    """``write``: value to address. ``poll``: read until (value & mask) is there. ``go``: traffic of
    the next epoch, until all is checked. ``end``: nothing more."""

    kind: str
    address: int = 0
    value: int = 0
    mask: int = 0


@dataclass(frozen=True)
class Plan:
    """``rows``: to each rank, a multiple of GROUP_ROWS, a power of two; ``rounds``:
    epochs, one after the other."""

    cfg: HubConfig = CONFIG
    rows: int = 32
    rounds: int = 16

    units = ROW_BYTES // 16

    @property
    def parts(self):
        """Stores of a row."""
        return -(-ROW_BYTES // self.cfg.slice_bytes)

    @property
    def region_rows(self):
        """Rows that arrive in the region: from both ranks."""
        return RANKS * self.rows

    @property
    def slot_width(self):
        return ceil_log2(self.region_rows)

    def steps(self):
        """Register accesses, as system software of rank 0 would make them."""
        steps = []
        recorder = Recorder()
        driver = Driver(self.cfg, recorder)

        def recorded():
            steps.extend(
                Step(kind, address, value, mask) for kind, address, value, mask in recorder.accesses
            )
            recorder.accesses.clear()

        driver.start(0, merge_timeout=64)
        for peer in range(RANKS):
            driver.handle(peer, Handle(targets=((peer, 0),), row_bytes=ROW_BYTES))
        driver.region(
            0,
            Region(
                base=(BANK, 2 * BANK),
                stride=STRIDE,
                row_bytes=ROW_BYTES,
                capacity=self.region_rows,
                group_base=0,
                log2_tile=2,
                expected=RANKS,
                row_span=self.region_rows,
                spill_base=(SPILL, SPILL + 8 * self.region_rows),
            ),
        )
        for n in range(self.rounds):
            driver.open(0, n % 16)
            recorded()
            steps.append(Step("go"))
            driver.release(0, n % 16)
        recorded()
        return [*steps, Step("end")]
