# SPDX-License-Identifier: Apache-2.0
"""MoE-Hub and its ablations: rows are stored to logical destinations, the hub packs, places, and
says what is ready.

The paper's steps, each adding one part of the hub (arXiv 2605.05888):

================
============================================================================================================
moe_hub_base     kernels store rows to addresses: counts are exchanged, offsets computed, ranks
synchronised before and after moe_hub_packets  + packet manager: 32-byte stores are merged into full
packets moe_hub_signal   + readiness: thread blocks start tile by tile, no barrier behind the
transfers moe_hub          + address allocation: rows go to {expert, RowID}, nothing is counted or
exchanged first ================
============================================================================================================

Latencies of the hub are those of the network model, measured on the RTL. A row is sent per token
and expert, with a 16-byte column that says where the answer goes; answers are stored by the
epilogue of GEMM2 and summed at the source.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil

import simpy

from sim.evaluate.machine.compute import TILE_ROWS, expert_gemms, pass_us, tiles_of
from sim.evaluate.machine.engine import GroupedGemm
from sim.evaluate.machine.network_settings import HUB_GHZ, hub_figures

from .scheme import Scheme

__all__ = ["SCHEMES", "Hub", "hub_layer"]

COLUMN_BYTES = 16  # docs/formats.md: address of the answer, source rank, token
SECTOR_BYTES = 32  # a store as it leaves an SM, when nothing merges it
CHUNK_BYTES = 1 << 18  # rows of one pair that are tracked together, at least
CHUNKS = 24  # parts of a rank's dispatch, at most
MESSAGES = 60_000  # of one direction, at most: larger machines track coarser parts
EPILOGUE_PARTS = 4  # points of a batch at which its finished columns have left


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Which parts of the hub there are; all True is MoE-Hub, all False plain stores between
    GPUs."""

    packets: bool
    signal: bool
    allocation: bool


def group_tiles(gpu, gemm, experts):
    """Row tiles whose thread blocks the hub releases together: a power of two, as a dependency
    range has it.

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


class _Inbox:
    """Rows of one expert as they arrive: in which group of thread blocks they lie, and whose they
    are.

    ``dense``: rows lie in the order of arrival (the slot allocator); else in the order of their
    source ranks, at offsets known before. ``on_group(rows)`` is called when all rows of a group,
    ``group_rows`` of them, are in memory.
    """

    def __init__(self, rows_of_source, dense, group_rows, on_group):
        self.expected, self.dense, self.on_group = (
            [int(rows) for rows in rows_of_source],
            dense,
            on_group,
        )
        self.total, self.arrived, self.order = sum(self.expected), 0, deque()
        self.come = [0] * len(self.expected)
        self.size, self.next_group, self.groups = group_rows, 0, ceil(self.total / group_rows)
        if not dense:
            starts = [sum(self.expected[:source]) for source in range(len(self.expected))]
            self.missing = [{} for _ in range(self.groups)]
            for source, (start, count) in enumerate(zip(starts, self.expected, strict=True)):
                for group in range(
                    start // self.size, ceil((start + count) / self.size) if count else 0
                ):
                    self.missing[group][source] = min(count, (group + 1) * self.size - start)
            self.open = list(range(self.groups))

    def arrive(self, source, rows):
        """Rows of a source are in memory."""
        self.arrived += rows
        self.come[source] += rows
        self.order.append([source, rows])
        if self.dense:
            while (
                self.next_group < self.groups
                and min((self.next_group + 1) * self.size, self.total) <= self.arrived
            ):
                self._release(self.next_group)
                self.next_group += 1
            return
        for group in [
            g for g in self.open if all(self.come[s] >= need for s, need in self.missing[g].items())
        ]:
            self.open.remove(group)
            self._release(group)

    @property
    def missing_rows(self):
        return self.total - self.arrived

    def _release(self, group):
        self.on_group(min(self.size, self.total - group * self.size))

    def take(self, rows):
        """{source: rows} of the next ``rows`` rows, for the answers."""
        taken = {}
        while rows:
            source, count = self.order[0]
            part = min(count, rows)
            taken[source] = taken.get(source, 0) + part
            rows -= part
            if part == count:
                self.order.popleft()
            else:
                self.order[0][1] -= part
        return taken


class _Sums:
    """Answers that have come back to one rank, and when its tokens' sums can be done."""

    def __init__(self, expected):
        self.expected, self.arrivals = expected, []
        self.count = 0

    def end(self, start, top_k, sum_us):
        """When the sums are done, if tiles of tokens are summed as they get complete: a token needs
        all its answers.

        With a fraction f of all answers here, about f**top_k of the tokens have all of theirs.
        """
        done, at, came = 0.0, start, 0
        for time, rows in sorted(self.arrivals):
            available = (came / self.expected) ** top_k
            done = min(available, done + max(0.0, time - at) / sum_us)
            at, came = max(at, time), came + rows
        return at + (1 - done) * sum_us


class _Stored(simpy.Timeout):
    """Stores to the own memory: no way to go, over at once."""

    def __init__(self, env):
        super().__init__(env, 0)
        self.left = env.timeout(0)


def hub_layer(hub):
    """The scheme of a machine whose hubs have these parts."""

    def scheme(cluster):
        layer = _Layer(cluster, hub)
        for gpu in cluster.gpus:
            cluster.env.process(layer.rank(gpu))

    scheme.hub = hub.packets
    return scheme


class _Layer:
    """What the ranks share: inboxes of all experts, the answers of all tokens."""

    def __init__(self, cluster, hub):
        self.cluster, self.env, self.hub, self.workload = (
            cluster,
            cluster.env,
            hub,
            cluster.workload,
        )
        self.shape, self.machine = cluster.workload.shape, cluster.machine
        self.row_bytes = self.shape.dispatch_bytes + COLUMN_BYTES
        self.packet_bytes = self.machine.fabric.max_payload_bytes if hub.packets else SECTOR_BYTES
        ranks = self.machine.ranks
        self.experts_of = [self.workload.experts_of(rank).tolist() for rank in range(ranks)]
        self.arrived_all = [self.env.event() for _ in range(ranks)]
        self.answered = [self.env.event() for _ in range(ranks)]
        self.sums = [
            _Sums(int(self.workload.tokens_of[rank]) * self.shape.top_k) for rank in range(ranks)
        ]
        self.waiting_rows = [int(self.workload.rows_at(rank).sum()) for rank in range(ranks)]
        self.ready_us = hub_figures()["latency_cycles"]["answer_to_ready"] / (HUB_GHZ * 1e3)
        self.gemm1, self.boxes, self.waiting_groups = {}, {}, [0] * ranks
        self.launched = [self.env.event() for _ in range(ranks)]
        group_rows = TILE_ROWS * group_tiles(
            self.machine.gpu, expert_gemms(self.shape)[0], len(self.experts_of[0])
        )
        for rank in range(ranks):
            for expert in self.experts_of[rank]:
                self.boxes[expert] = _Inbox(
                    self.workload.rows[:, expert],
                    hub.allocation,
                    group_rows,
                    lambda rows, rank=rank, expert=expert: self._ready(rank, expert, rows),
                )
                self.waiting_groups[rank] += self.boxes[expert].groups
            if not self.waiting_rows[rank]:
                self.arrived_all[rank].succeed()

    # -- one rank ----------------------------------------------------------------------------------

    def rank(self, gpu):
        cluster, rank, hub = self.cluster, gpu.rank, self.hub
        rows = self.workload.rows_at(rank)
        taken, tokens = int(rows.sum()), int(self.workload.tokens_of[rank])
        first, second = expert_gemms(self.shape)
        yield from cluster.gate(gpu)
        if not hub.allocation:
            yield from self._addresses(gpu)

        # Dispatch: a few SMs read tokens and store rows; thread blocks of GEMM1 run on the others,
        # as tiles get ready.
        work = self.gemm1[rank] = GroupedGemm(gpu, first, rows)
        if not taken or not hub.signal:
            work.close()
        start = self.env.now
        yield from gpu.launch()
        self.launched[rank].succeed()
        sent = self.env.process(self._dispatch(gpu))
        if hub.signal:
            yield self.arrived_all[rank]
            cluster.book("dispatch", self.env.now - start)
            yield work.done & sent
            cluster.book("dispatch and gemm1", self.env.now - start)
        else:
            yield sent
            yield from cluster.device_barrier(rank)
            cluster.book("dispatch", self.env.now - start)
            cluster.first_ready(rank)
            cluster.all_ready(rank)
            yield from gpu.gemm(first, rows, "gemm1")
        yield from gpu.move(taken * 6 * self.shape.inter, "activation")

        # GEMM2: its epilogue stores answers to their tokens.
        start = self.env.now
        leaving = []
        yield from gpu.gemm(
            second, rows, "gemm2", on_batch=lambda *batch: self._answer(gpu, leaving, *batch)
        )
        if leaving:
            yield self.env.all_of(leaving)
        sum_us = pass_us(gpu.gpu, tokens * (self.shape.top_k + 1) * self.shape.combine_bytes)
        if hub.signal:
            # Sums run as tiles of tokens get complete; the stream is at the kernel since GEMM2 was
            # placed.
            yield self.answered[rank]
            end = self.sums[rank].end(start, self.shape.top_k, sum_us)
            yield self.env.timeout(max(0.0, end - self.env.now))
        else:
            yield from cluster.device_barrier(rank)
            yield from gpu.move(tokens * (self.shape.top_k + 1) * self.shape.combine_bytes, "sum")
        cluster.book("combine", self.env.now - start)
        cluster.done(rank)

    def _addresses(self, gpu):
        """Address mediation: count, exchange, prefix sums; the host reads the sizes of the grouped
        GEMM."""
        counts = 4 * self.shape.experts
        tokens = int(self.workload.tokens_of[gpu.rank])
        yield from gpu.move(tokens * self.shape.top_k * 8, "counts")
        yield from gpu.launch()
        yield from self.cluster.exchange(gpu.rank, counts)
        yield from gpu.move(self.machine.ranks * counts, "counts")
        yield from gpu.host_sync()

    # -- rows to experts ---------------------------------------------------------------------------

    def _dispatch(self, gpu):
        """Stores the rank's rows in the order of its tokens, as fast as its SMs can, in parts that
        are tracked together."""
        ranks, rank, fabric = self.machine.ranks, gpu.rank, self.machine.fabric
        total = int(self.workload.rows[rank].sum()) * self.row_bytes
        sms = min(gpu.gpu.sms // 2, ceil(fabric.link_gbps / gpu.gpu.sm_copy_gbps))
        parts = max(1, min(CHUNKS, MESSAGES // ranks**2, total // (ranks * CHUNK_BYTES)))
        yield from gpu.hold(sms)
        part_us = total / parts / (sms * gpu.gpu.sm_copy_gbps * 1e3)
        leaving = []
        for part in range(parts):
            yield self.env.timeout(part_us)
            for step in range(ranks):
                peer = (rank + step) % ranks
                counts = {}
                for expert in self.experts_of[peer]:
                    rows = int(self.workload.rows[rank, expert])
                    counts[expert] = rows * (part + 1) // parts - rows * part // parts
                size = sum(counts.values()) * self.row_bytes
                if size:
                    transfer = self._send(rank, peer, size, self.row_bytes)
                    transfer.callbacks.append(
                        lambda _, peer=peer, counts=counts: self._arrive(rank, peer, counts)
                    )
                    leaving.append(transfer.left)
        yield self.env.all_of(leaving)
        gpu.release(sms)

    def _send(self, src, dst, size, row_bytes):
        """Stores to a peer, through the hub; to the own rank too, where the hub has to count
        them."""
        if src == dst and not self.hub.signal:
            return _Stored(self.env)
        return self.cluster.network.send(
            src, dst, size, packet_bytes=self.packet_bytes, row_bytes=row_bytes
        )

    def _arrive(self, source, rank, counts):
        """Memory has acknowledged these rows."""
        for expert, rows in counts.items():
            if rows:
                self.boxes[expert].arrive(source, rows)
        self.waiting_rows[rank] -= sum(counts.values())
        if not self.waiting_rows[rank]:
            self.arrived_all[rank].succeed()

    def _ready(self, rank, expert, rows):
        """All rows of a group are in memory: the hub releases its thread blocks."""
        if self.hub.signal:
            last = self.hub.allocation and not self.boxes[expert].missing_rows
            self.env.process(
                self._release(
                    rank, expert, rows, self.last_us(rank, expert) if last else self.ready_us
                )
            )

    def last_us(self, rank, expert):
        """The last group waits for the producers' closes: they follow the data, one expert's after
        the other's in the same packets."""
        hub, before = hub_figures()["latency_cycles"], self.experts_of[rank].index(expert)
        cycles = hub["close_to_all"] + before * hub["close_to_next"]
        return self.machine.fabric.one_way_us + cycles * 1e-3 / HUB_GHZ

    def _release(self, rank, expert, rows, delay):
        yield self.env.timeout(delay)
        yield self.launched[rank]
        self.cluster.first_ready(rank)
        for tile in tiles_of(rows):
            self.gemm1[rank].ready(expert, tile)
        self.waiting_groups[rank] -= 1
        if not self.waiting_groups[rank]:
            self.gemm1[rank].close()
            self.cluster.all_ready(rank)

    # -- answers back ------------------------------------------------------------------------------

    def _answer(self, gpu, leaving, index, rows, start, end):
        """A batch of GEMM2 was placed: its blocks store their columns as they finish."""
        expert = self.experts_of[gpu.rank][index]
        self.env.process(
            self._store_answers(gpu.rank, self.boxes[expert].take(rows), start, end, leaving)
        )

    def _store_answers(self, rank, rows_of, start, end, leaving):
        finished = self.env.event()
        leaving.append(finished)
        parts = EPILOGUE_PARTS if self.machine.ranks <= 16 else 1
        left, missing = [], dict.fromkeys(rows_of, parts)

        def arrived(source):
            missing[source] -= 1
            if not missing[source]:
                self._answered(source, rows_of[source])

        for part in range(parts):
            at = start + (end - start) * (part + 1) / parts
            yield self.env.timeout(max(0.0, at - self.env.now))
            for source, rows in rows_of.items():
                size = rows * self.shape.combine_bytes
                size = size * (part + 1) // parts - size * part // parts
                transfer = self._send(rank, source, size, size)
                left.append(transfer.left)
                transfer.callbacks.append(lambda _, source=source: arrived(source))
        yield self.env.all_of(left)
        finished.succeed()

    def _answered(self, source, rows):
        sums = self.sums[source]
        sums.arrivals.append((self.env.now, rows))
        sums.count += rows
        if sums.count == sums.expected:
            self.answered[source].succeed()


SCHEMES = {
    "moe_hub_base": Scheme(
        hub_layer(Hub(packets=False, signal=False, allocation=False)), "base", "#f7c6c5", place=11
    ),
    "moe_hub_packets": Scheme(
        hub_layer(Hub(packets=True, signal=False, allocation=False)),
        "+ packets",
        "#f08a86",
        place=12,
    ),
    "moe_hub_signal": Scheme(
        hub_layer(Hub(packets=True, signal=True, allocation=False)),
        "+ signalling",
        "#e5534b",
        place=13,
    ),
    "moe_hub": Scheme(
        hub_layer(Hub(packets=True, signal=True, allocation=True)), "MoE-Hub", "#d00000", place=14
    ),
}
