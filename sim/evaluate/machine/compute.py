# SPDX-License-Identifier: Apache-2.0
"""Time of kernels on one GPU: tiles of grouped GEMMs on SMs, weights from HBM, passes over memory.

A GEMM is cut into tiles of 128 rows by 128 columns (fewer columns when there would be fewer tiles
than SMs, rows in steps of 64, as CUTLASS and DeepGEMM choose them). One tile is one thread block on
one SM and takes::

    2 * rows * columns * K / (main loop rate / SMs) + fill and epilogue

so a GEMM whose tiles do not fill the last wave of SMs loses what real ones lose. Tiles of up to
:data:`GROUP_TILES` row tiles of one expert run together and share one stream of its weights; a
batch cannot end before HBM has delivered what it reads. ``moe-hub evaluate gemm`` compares this
with published measurements.
"""

from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import ceil

__all__ = [
    "GROUP_TILES",
    "TILE_ROWS",
    "Gemm",
    "GpuTimes",
    "expert_gemms",
    "gate_us",
    "group_tiles",
    "grouped_gemm_us",
    "pass_us",
    "run_batch",
    "tiles_of",
]

TILE_ROWS = 128
ROW_STEP = 64  # rows of the smallest tensor-core instruction of a warp group
COLUMN_CHOICES = (128, 64, 32)
GROUP_TILES = 8  # row tiles that are worked on together (the swizzle of CUTLASS and DeepGEMM)
DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4, "tf32": 4}


@dataclass(frozen=True)
class Gemm:
    """One expert's matrix: ``k`` inputs, ``n`` outputs; ``dtype`` of the rows; ``weight_bytes`` of
    one weight."""

    n: int
    k: int
    dtype: str = "bf16"
    weight_bytes: float = 2
    columns: int = 128

    @property
    def bytes_of_weights(self):
        return self.n * self.k * self.weight_bytes

    @property
    def blocks(self):
        """Thread blocks per row tile."""
        return ceil(self.n / self.columns)

    def flops(self, rows):
        return 2 * rows * self.n * self.k

    def tile_us(self, gpu, rows):
        """One tile of ``rows`` rows on one SM, its data at hand."""
        padded = ceil(rows / ROW_STEP) * ROW_STEP
        math = 2 * padded * self.columns * self.k / (gpu.gemm_tflops(self.dtype) * 1e6 / gpu.sms)
        load = self.columns * self.k * self.weight_bytes / (gpu.sm_hbm_gbps * 1e3)
        return max(math, load) + gpu.tile_overhead_us

    def row_bytes(self, rows):
        """Bytes that ``rows`` rows read and write in memory, weights apart."""
        return rows * (self.k * DTYPE_BYTES[self.dtype] + self.n * 2)

    def fitted(self, gpu, rows_per_expert):
        """The same GEMM with as narrow a tile as it takes to give every SM one."""
        row_tiles = sum(ceil(rows / TILE_ROWS) for rows in rows_per_expert)
        for columns in COLUMN_CHOICES:
            narrower = replace(self, columns=columns)
            if row_tiles * narrower.blocks >= gpu.sms:
                break
        return narrower


def expert_gemms(shape):
    """(GEMM1, GEMM2) of an expert, of the shape's matrices."""
    return tuple(Gemm(n, k, shape.dtype, shape.weight_bytes) for n, k in shape.matrices)


def tiles_of(rows):
    """Rows of each tile: 128, 128, ..., what is left."""
    whole, rest = divmod(int(rows), TILE_ROWS)
    return [TILE_ROWS] * whole + ([rest] if rest else [])


def pass_us(gpu, bytes_moved, sms=None):
    """A kernel that only moves ``bytes_moved`` through HBM, with ``sms`` SMs (all by default)."""
    rate = gpu.stream_gbps if sms is None else min(gpu.stream_gbps, sms * gpu.sm_hbm_gbps)
    return gpu.tile_overhead_us + bytes_moved / (rate * 1e3)


def gate_us(gpu, shape, tokens):
    """Router: a GEMM of ``tokens`` rows to one score per expert, then a kernel for softmax and
    top-k; gap between them."""
    router = Gemm(shape.experts, shape.hidden)
    return (
        grouped_gemm_us(gpu, router, [tokens])
        + gpu.kernel_gap_us
        + pass_us(gpu, tokens * (4 * shape.experts + 12 * shape.top_k))
    )


class GpuTimes:
    """Which SM is free when, and when HBM has delivered: list scheduling, as the thread-block
    scheduler does it.

    ``held``: SMs that belong to other kernels. Times in microseconds; jobs are placed in the order
    of the calls.
    """

    def __init__(self, gpu):
        self.gpu = gpu
        self._free = [(0.0, gpu.sms)]  # heap of (time, SMs that get free then)
        self._hbm_free = 0.0
        self._streamed = 0.0  # bytes that have passed level-2 cache so far
        self._seen = {}  # weights: value of _streamed when they were last read
        self.sm_us = 0.0  # SM time taken

    def next_free(self):
        """Time at which the first SM is free; it may lie in the past."""
        return self._free[0][0]

    @property
    def sms(self):
        """SMs that nobody holds."""
        return sum(count for _, count in self._free)

    @property
    def idle_at(self):
        """Time at which all SMs are free."""
        return max(time for time, _ in self._free)

    def run(self, at, jobs, hbm_bytes=0.0):
        """Places thread blocks: ``jobs``, a list of (number, microseconds each). Returns (start,
        end).

        HBM delivers ``hbm_bytes`` for them, one job after the other; when that takes longer, the
        SMs are busy longer.
        """
        start, end, placed, free = None, at, {}, self._free
        for count, each in jobs:
            self.sm_us += count * each
            while count:
                time, sms = heappop(free)
                taken = min(sms, count)
                if sms > taken:
                    heappush(free, (time, sms - taken))
                begin = max(time, at)
                start = begin if start is None else start
                heappush(free, (begin + each, taken))
                placed[begin + each] = True
                count -= taken
                end = max(end, begin + each)
        start = at if start is None else start
        if hbm_bytes:
            # The loads of a batch that follows at once are issued while the one before ends.
            begin = self._hbm_free if start - self._hbm_free <= self.gpu.tile_overhead_us else start
            self._streamed += hbm_bytes
            self._hbm_free = begin + hbm_bytes / (self.gpu.stream_gbps * 1e3)
            late = self._hbm_free + self.gpu.tile_overhead_us - end
            if late > 0:
                self._free = [(time + late if time in placed else time, sms) for time, sms in free]
                heapify(self._free)
                end += late
        if len(self._free) > self.gpu.sms:
            self._merge()
        return start, end

    def _merge(self):
        merged = {}
        for time, sms in self._free:
            merged[time] = merged.get(time, 0) + sms
        self._free = list(merged.items())
        heapify(self._free)

    def weights(self, key, size):
        """Bytes of the weights ``key`` that must come from HBM now: 0 while they are still in
        level-2 cache."""
        cache = self.gpu.l2_mbytes * 1e6
        last = self._seen.get(key)
        here = last is not None and self._streamed - last + size <= cache
        self._seen[key] = self._streamed
        return 0.0 if here else size

    def write(self, at, size):
        """Bytes that come from elsewhere: they take their time of HBM and their room in level-2
        cache."""
        self._streamed += size
        self._hbm_free = max(self._hbm_free, at) + size / (self.gpu.stream_gbps * 1e3)

    def hold(self, at, sms):
        """Takes SMs away for a kernel of unknown length, those that are free first; returns when it
        has all of them."""
        ready = at
        if sms >= sum(count for _, count in self._free):
            raise ValueError(f"sms = {sms}: a kernel cannot hold all SMs that are left")
        while sms:
            time, count = heappop(self._free)
            taken = min(sms, count)
            if count > taken:
                heappush(self._free, (time, count - taken))
            ready, sms = max(ready, time), sms - taken
        return ready

    def release(self, at, sms):
        """Gives SMs back at a time."""
        heappush(self._free, (at, sms))


def group_tiles(gpu, gemm, experts):
    """Row tiles of an expert that wait for each other before their thread blocks start: a power of
    two, as the hub's dependency range has it.

    One, where the weights of all ``experts`` of a rank stay in level-2 cache. Else every group
    streams its expert's weights from HBM anew, so there are as many tiles as it takes to compute
    for as long as that stream takes.
    """
    if experts * gemm.bytes_of_weights <= gpu.l2_mbytes * 1e6:
        return 1
    stream_us = gemm.bytes_of_weights / (gpu.stream_gbps * 1e3)
    tiles = 1
    while tiles * gemm.blocks * gemm.tile_us(gpu, TILE_ROWS) / gpu.sms < stream_us:
        tiles *= 2
    return tiles


def run_batch(times, at, gemm, expert, tiles):
    """Places the row tiles (rows of each) of one expert; returns (start, end)."""
    jobs = {}
    for rows in tiles:
        each = gemm.tile_us(times.gpu, rows)
        jobs[each] = jobs.get(each, 0) + gemm.blocks
    read = times.weights((gemm.n, gemm.k, expert), gemm.bytes_of_weights) + gemm.row_bytes(
        sum(tiles)
    )
    return times.run(at, [(count, each) for each, count in jobs.items()], read)


def grouped_gemm_us(gpu, gemm, rows_per_expert, held=0):
    """A grouped GEMM whose rows are all there, alone on the GPU but for ``held`` SMs."""
    gemm, times, end = gemm.fitted(gpu, rows_per_expert), GpuTimes(gpu), 0.0
    if held:
        times.hold(0.0, held)
    for expert, rows in enumerate(rows_per_expert):
        tiles = tiles_of(rows)
        for first in range(0, len(tiles), GROUP_TILES):
            end = max(
                end, run_batch(times, 0.0, gemm, expert, tiles[first : first + GROUP_TILES])[1]
            )
    return end
