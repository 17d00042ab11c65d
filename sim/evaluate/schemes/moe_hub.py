# SPDX-License-Identifier: Apache-2.0
"""MoE-Hub and its ablations: rows are stored to logical destinations, the hub packs, places, and
says what is ready.

The paper's steps (arXiv 2605.05888). Rows go to {expert, RowID} and the hub gives them their
addresses in all of them; what is added is how they travel and who says that they are there:

===============  ===================================================================================
moe_hub_base     32-byte stores, each a packet; software orchestrates: a flag of every source behind
                 its rows, GEMM1's thread blocks poll for them, a barrier before the sums
moe_hub_packets  + packet manager: stores are merged into full packets
moe_hub_signal   + readiness, without the packet manager: the hub releases thread blocks tile by
                 tile, tokens are summed as they get complete
moe_hub          both
===============  ===================================================================================

Latencies of the hub are those of the network model, measured on the RTL. A row is sent per token
and expert, with a 16-byte column that says where the answer goes; answers are stored by the
epilogue of GEMM2 and summed at the source.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil

from sim.evaluate.machine.compute import TILE_ROWS, expert_gemms, group_tiles, pass_us, tiles_of
from sim.evaluate.machine.engine import FLAG_BYTES, GroupedGemm
from sim.evaluate.machine.network_settings import hub_figures

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
    """Which parts of the hub there are beside address allocation; both is MoE-Hub."""

    packets: bool
    signal: bool


class _Inbox:
    """Rows of one expert as they arrive: they lie in the order of arrival, in groups of thread
    blocks.

    ``on_group(rows)`` is called when all rows of a group, ``group_rows`` of them, are in memory.
    """

    def __init__(self, total, group_rows, on_group):
        self.total, self.size, self.on_group = int(total), group_rows, on_group
        self.arrived = self.released = 0
        self.order = deque()  # [source, rows]

    @property
    def groups(self):
        return ceil(self.total / self.size)

    @property
    def missing_rows(self):
        return self.total - self.arrived

    def arrive(self, source, rows):
        """Rows of a source are in memory."""
        self.arrived += rows
        self.order.append([source, rows])
        while (
            self.released < self.total
            and min(self.released + self.size, self.total) <= self.arrived
        ):
            group = min(self.size, self.total - self.released)
            self.released += group
            self.on_group(group)

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


def hub_layer(hub):
    """The scheme of a machine whose hubs have these parts."""

    def scheme(cluster):
        layer = _Layer(cluster, hub)
        for gpu in cluster.gpus:
            cluster.env.process(layer.rank(gpu))

    scheme.hub = True
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
        self.cycle_us = cluster.network.settings.hub_cycle
        self.ready_us = hub_figures()["latency_cycles"]["answer_to_ready"] * self.cycle_us
        self.gemm1, self.boxes, self.waiting_groups = {}, {}, [0] * ranks
        self.launched = [self.env.event() for _ in range(ranks)]
        self.flags = [0] * ranks
        self.pool_bytes = cluster.network.settings.pool_packets * self.packet_bytes
        self.unsent, self.drained = [0] * ranks, [None] * ranks
        group_rows = TILE_ROWS * group_tiles(
            self.machine.gpu, expert_gemms(self.shape)[0], len(self.experts_of[0])
        )
        for rank in range(ranks):
            for expert in self.experts_of[rank]:
                self.boxes[expert] = _Inbox(
                    self.workload.loads[expert],
                    group_rows,
                    lambda rows, rank=rank, expert=expert: self._ready(rank, expert, rows),
                )
                self.waiting_groups[rank] += self.boxes[expert].groups
            if not self.waiting_rows[rank]:
                self.arrived_all[rank].succeed()

    # -- one rank ----------------------------------------------------------------------------------

    def rank(self, gpu):
        cluster, rank = self.cluster, gpu.rank
        rows = self.workload.rows_at(rank)
        taken, tokens = int(rows.sum()), int(self.workload.tokens_of[rank])
        first, second = expert_gemms(self.shape)
        yield from cluster.gate(gpu)

        # Dispatch: a few SMs read tokens and store rows; thread blocks of GEMM1 run on the others,
        # as tiles get ready.
        work = self.gemm1[rank] = GroupedGemm(gpu, first, rows)
        if not taken:
            work.close()
        start = self.env.now
        yield from gpu.launch()
        sent = self.env.process(self._dispatch(gpu))
        yield from gpu.launch()
        self.launched[rank].succeed()
        yield self.arrived_all[rank]
        cluster.book("dispatch", self.env.now - start)
        yield work.done & sent
        cluster.book("dispatch and gemm1", self.env.now - start)
        cluster.gemm1_done(rank)
        yield from gpu.move(taken * 6 * self.shape.inter, "activation")

        # GEMM2: its epilogue stores answers to their tokens.
        start = self.env.now
        leaving = []
        yield from gpu.gemm(
            second,
            rows,
            "gemm2",
            on_batch=lambda *batch: self._answer(gpu, leaving, *batch),
            room=lambda: self._room(rank),
        )
        if leaving:
            yield self.env.all_of(leaving)
        sum_bytes = tokens * (self.shape.top_k + 1) * self.shape.combine_bytes
        if self.hub.signal:
            yield from gpu.launch()
            begun = self.env.now
            yield self.answered[rank]
            end = self.sums[rank].end(begun, self.shape.top_k, pass_us(gpu.gpu, sum_bytes))
            yield self.env.timeout(max(0.0, end - self.env.now))
        else:
            yield self.env.timeout(
                self.machine.fabric.one_way_us
            )  # their acknowledgements: the fence
            yield from cluster.device_barrier(rank)
            yield from gpu.move(sum_bytes, "sum")
        cluster.book("combine", self.env.now - start)
        cluster.done(rank)

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
        leaving, stored = [], [[] for _ in range(ranks)]
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
                    stored[peer].append(transfer)
        if not self.hub.signal:
            for peer in range(ranks):
                self.env.process(self._flag(gpu, peer, stored[peer]))
        yield self.env.all_of(leaving)
        gpu.release(sms)

    def _flag(self, gpu, peer, stored):
        """Software says that a source's rows are there: once they are acknowledged, a flag follows;
        the peer's thread blocks poll for those of all sources, as rows lie in the order of
        arrival."""
        yield self.env.all_of(stored)
        if peer != gpu.rank:
            yield self.env.timeout(self.machine.fabric.one_way_us)
            yield self.cluster.network.send(gpu.rank, peer, FLAG_BYTES)
        yield from self.cluster.gpus[peer].poll()
        self.flags[peer] += 1
        if self.flags[peer] == self.machine.ranks:
            for expert in self.experts_of[peer]:
                if self.boxes[expert].total:
                    yield from self._release(peer, expert, self.boxes[expert].total)
            self.gemm1[peer].close()

    def _send(self, src, dst, size, row_bytes):
        """Stores through the hub; to the own rank too, it has to count them."""
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
            last = not self.boxes[expert].missing_rows
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
        return self.machine.fabric.one_way_us + cycles * self.cycle_us

    def _release(self, rank, expert, rows, delay=0.0):
        yield self.env.timeout(delay)
        yield self.launched[rank]
        self.cluster.first_ready(rank)
        for tile in tiles_of(rows):
            self.gemm1[rank].ready(expert, tile)
        self.cluster.all_ready(rank)
        if self.hub.signal:
            self.waiting_groups[rank] -= 1
            if not self.waiting_groups[rank]:
                self.gemm1[rank].close()

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
                self.unsent[rank] += size
                transfer.left.callbacks.append(lambda _, size=size: self._went(rank, size))
                left.append(transfer.left)
                if not self.hub.signal:  # the fence of what comes then waits for all of them
                    left.append(transfer)
                transfer.callbacks.append(lambda _, source=source: arrived(source))
        yield self.env.all_of(left)
        finished.succeed()

    def _went(self, rank, size):
        """Answers have left the hub's pool."""
        self.unsent[rank] -= size
        if self.drained[rank] is not None and self.unsent[rank] <= self.pool_bytes:
            self.drained[rank].succeed()
            self.drained[rank] = None

    def _room(self, rank):
        """What thread blocks wait for whose stores would find the pool full; None where there is
        room."""
        if self.unsent[rank] <= self.pool_bytes:
            return None
        if self.drained[rank] is None:
            self.drained[rank] = self.env.event()
        return self.drained[rank]

    def _answered(self, source, rows):
        sums = self.sums[source]
        sums.arrivals.append((self.env.now, rows))
        sums.count += rows
        if sums.count == sums.expected:
            self.answered[source].succeed()


SCHEMES = {
    "moe_hub_base": Scheme(
        hub_layer(Hub(packets=False, signal=False)), "base", "#f7c6c5", place=11
    ),
    "moe_hub_packets": Scheme(
        hub_layer(Hub(packets=True, signal=False)), "+ packets", "#f08a86", place=12
    ),
    "moe_hub_signal": Scheme(
        hub_layer(Hub(packets=False, signal=True)), "+ signalling", "#e5534b", place=13
    ),
    "moe_hub": Scheme(hub_layer(Hub(packets=True, signal=True)), "MoE-Hub", "#d00000", place=14),
}
