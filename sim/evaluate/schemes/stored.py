# SPDX-License-Identifier: Apache-2.0
"""Layers whose SMs store rows to other GPUs one by one, and whose experts begin tile by tile: what
the hub and the software that watches flags have in common.

A kernel on a few SMs stores the rank's rows, in the order of its tokens or in that of their
experts; thread blocks of GEMM1 run beside it, on the tiles that are ready. The epilogue of GEMM2
stores answers to their tokens, and a kernel sums tokens as they get complete. A row is sent per
token and expert, with a 16-byte column that says where the answer goes. How rows travel, who says
that they are there and what comes between is for a subclass to say.
"""

from collections import deque
from math import ceil

from sim.evaluate.machine.compute import TILE_ROWS, expert_gemms, group_tiles, pass_us, tiles_of
from sim.evaluate.machine.engine import GroupedGemm

__all__ = ["COLUMN_BYTES", "Inbox", "StoredLayer", "Sums"]

COLUMN_BYTES = 16  # docs/formats.md: address of the answer, source rank, token
CHUNK_BYTES = 1 << 18  # rows of one pair that are tracked together, at least
CHUNKS = 24  # parts of a rank's dispatch, at most
MESSAGES = 60_000  # of one direction, at most: larger machines track coarser parts
EPILOGUE_PARTS = 4  # points of a batch at which its finished columns have left


class Inbox:
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


class Sums:
    """Answers that have come back to one rank, and when its tokens' sums can be done."""

    def __init__(self, expected, per_token):
        self.expected, self.per_token, self.arrivals = expected, per_token, []
        self.count = 0

    def end(self, start, sum_us):
        """When the sums are done, if tiles of tokens are summed as they get complete: a token needs
        all its answers.

        With a fraction f of all answers here, about f**per_token of the tokens have all of theirs.
        """
        done, at, came = 0.0, start, 0
        for time, rows in sorted(self.arrivals):
            available = (came / self.expected) ** self.per_token
            done = min(available, done + max(0.0, time - at) / sum_us)
            at, came = max(at, time), came + rows
        return at + (1 - done) * sum_us


class StoredLayer:
    """One layer on all ranks: inboxes of all experts, the answers of all tokens.

    ``by_expert``: rows leave by the number of their expert at its rank, so that the first experts
    have all of theirs early; the grid sorts its own choices before. A subclass says what it does in
    place of: ``packet_bytes``, ``row_bytes``, ``answer_bytes`` (of one row, on the links),
    ``gemms``; :meth:`group`, which must be said; :meth:`inbox`, :meth:`sums_of`, :meth:`begin`,
    :meth:`dispatch_bytes`, :meth:`sent`, :meth:`came`, :meth:`room`, :meth:`store_answer`,
    :meth:`answered`, :meth:`settle`.
    """

    def __init__(self, cluster, by_expert=False):
        self.by_expert = by_expert
        self.cluster, self.env, self.workload = cluster, cluster.env, cluster.workload
        self.shape, self.machine = cluster.workload.shape, cluster.machine
        self.gemms = expert_gemms(self.shape)
        self.row_bytes = self.shape.dispatch_bytes + COLUMN_BYTES
        self.answer_bytes = self.shape.combine_bytes
        self.packet_bytes = self.machine.fabric.max_payload_bytes
        ranks = self.machine.ranks
        self.experts_of = [self.workload.experts_of(rank).tolist() for rank in range(ranks)]
        self.arrived_all = [self.env.event() for _ in range(ranks)]
        self.answers_here = [self.env.event() for _ in range(ranks)]
        self.sums = [self.sums_of(rank) for rank in range(ranks)]
        self.waiting_rows = [int(self.workload.rows_at(rank).sum()) for rank in range(ranks)]
        self.gemm1, self.boxes, self.waiting_groups = {}, {}, [0] * ranks
        self.launched = [self.env.event() for _ in range(ranks)]
        group_rows = TILE_ROWS * group_tiles(
            self.machine.gpu, self.gemms[0], len(self.experts_of[0])
        )
        for rank in range(ranks):
            for expert in self.experts_of[rank]:
                self.boxes[expert] = self.inbox(
                    expert,
                    group_rows,
                    lambda rows, rank=rank, expert=expert: self.group(rank, expert, rows),
                )
                self.waiting_groups[rank] += self.boxes[expert].groups
            if not self.waiting_rows[rank]:
                self.arrived_all[rank].succeed()

    def run(self):
        """Starts the layer; returns the processes of its ranks."""
        return [self.env.process(self._rank(gpu)) for gpu in self.cluster.gpus]

    # -- what a subclass says ----------------------------------------------------------------------

    def inbox(self, expert, group_rows, on_group):
        """Where the rows of an expert arrive."""
        return Inbox(self.workload.loads[expert], group_rows, on_group)

    def sums_of(self, rank):
        """The answers that a rank's tokens wait for."""
        return Sums(int(self.workload.tokens_of[rank]) * self.shape.top_k, self.shape.top_k)

    def begin(self, gpu):
        """What the dispatch kernel does before it stores rows. A generator."""
        if self.by_expert:
            yield self.env.timeout(gpu.gpu.grid_sync_us)

    def dispatch_bytes(self, rank, peer, counts):
        """Bytes that these rows are on the way to a peer."""
        return sum(counts.values()) * self.row_bytes

    def send(self, src, dst, size, row_bytes):
        """Stores of a rank to a rank, its own too; returns their transfer."""
        return self.cluster.network.send(
            src, dst, size, packet_bytes=self.packet_bytes, row_bytes=row_bytes
        )

    def sent(self, gpu, stored):
        """All stores of the dispatch have been issued; ``stored[peer]``: their transfers."""

    def came(self, source, rank, counts):
        """Rows are in a rank's memory."""
        self.arrive(source, rank, counts)

    def group(self, rank, expert, rows):
        """All rows of a group of thread blocks have arrived."""
        raise NotImplementedError

    def room(self, rank):
        """What thread blocks wait for whose stores find no room; None where there is room."""
        return None

    def answered(self, rank, source, rows):
        """Answers of a rank are in their source's memory."""
        self.count_answers(source, rows)

    def settle(self, gpu):
        """From the end of GEMM2 to the last sum: here, tokens are summed as they get complete. A
        generator."""
        rank = gpu.rank
        yield from gpu.launch()
        begun = self.env.now
        yield self.answers_here[rank]
        end = self.sums[rank].end(begun, pass_us(gpu.gpu, self.sum_bytes(rank)))
        yield from gpu.finish(begun, end, self.sum_bytes(rank))

    # -- one rank ----------------------------------------------------------------------------------

    def _rank(self, gpu):
        cluster, rank = self.cluster, gpu.rank
        rows = self.workload.rows_at(rank)
        taken = int(rows.sum())
        yield from cluster.gate(gpu)

        # Dispatch: a few SMs read tokens and store rows; thread blocks of GEMM1 run on the others,
        # as tiles get ready.
        work = self.gemm1[rank] = GroupedGemm(gpu, self.gemms[0], rows)
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
            self.gemms[1],
            rows,
            "gemm2",
            on_batch=lambda *batch: self._answer(gpu, leaving, *batch),
            room=lambda: self.room(rank),
        )
        if leaving:
            yield self.env.all_of(leaving)
        yield from self.settle(gpu)
        cluster.book("combine", self.env.now - start)
        cluster.done(rank)

    def sum_bytes(self, rank):
        """What the sum of a rank's tokens reads and writes."""
        answers = self.sums[rank].expected + int(self.workload.tokens_of[rank])
        return answers * self.shape.combine_bytes

    # -- rows to experts ---------------------------------------------------------------------------

    def _parts(self, total):
        """In how many parts ``total`` bytes leave; by expert, as many of each expert."""
        ranks, experts = self.machine.ranks, max(map(len, self.experts_of))
        parts = max(1, min(CHUNKS, MESSAGES // ranks**2, total // (ranks * CHUNK_BYTES)))
        return experts * ceil(parts / experts) if self.by_expert else parts

    def _portion(self, rank, peer, part, parts):
        """{expert: rows} of a part of the rank's rows for a peer."""
        rows, experts = self.workload.rows[rank], self.experts_of[peer]
        if self.by_expert:
            parts //= max(map(len, self.experts_of))
            first, part = divmod(part, parts)
            experts = experts[first : first + 1]
        return {
            expert: int(rows[expert]) * (part + 1) // parts - int(rows[expert]) * part // parts
            for expert in experts
        }

    def _dispatch(self, gpu):
        """Stores the rank's rows as fast as its SMs can, in parts that are tracked together."""
        ranks, rank, fabric = self.machine.ranks, gpu.rank, self.machine.fabric
        total = int(self.workload.rows[rank].sum()) * self.row_bytes
        sms = min(gpu.gpu.sms // 2, ceil(fabric.link_gbps / gpu.gpu.sm_copy_gbps))
        parts = self._parts(total)
        yield from gpu.hold(sms)
        yield from self.begin(gpu)
        part_us = total / parts / (sms * gpu.gpu.sm_copy_gbps * 1e3)
        leaving, stored = [], [[] for _ in range(ranks)]
        for part in range(parts):
            yield self.env.timeout(part_us)
            for step in range(ranks):
                peer = (rank + step) % ranks
                counts = self._portion(rank, peer, part, parts)
                size = self.dispatch_bytes(rank, peer, counts)
                if size:
                    transfer = self.send(rank, peer, size, self.row_bytes)
                    transfer.callbacks.append(
                        lambda _, peer=peer, counts=counts: self.came(rank, peer, counts)
                    )
                    leaving.append(transfer.left)
                    stored[peer].append(transfer)
        self.sent(gpu, stored)
        yield self.env.all_of(leaving)
        gpu.release(sms)

    def arrive(self, source, rank, counts):
        """The experts know of these rows."""
        for expert, rows in counts.items():
            if rows:
                self.boxes[expert].arrive(source, rows)
        self.waiting_rows[rank] -= sum(counts.values())
        if not self.waiting_rows[rank]:
            self.arrived_all[rank].succeed()

    def release(self, rank, expert, rows, delay=0.0):
        """Thread blocks of these rows may begin, ``delay`` from now. A generator."""
        yield self.env.timeout(delay)
        yield self.launched[rank]
        self.cluster.first_ready(rank)
        for tile in tiles_of(rows):
            self.gemm1[rank].ready(expert, tile)
        self.cluster.all_ready(rank, rows)

    def release_group(self, rank, expert, rows, delay):
        """:meth:`release` of a group; after a rank's last one nothing more comes."""
        yield from self.release(rank, expert, rows, delay)
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
                self.answered(rank, source, rows_of[source])

        for part in range(parts):
            at = start + (end - start) * (part + 1) / parts
            yield self.env.timeout(max(0.0, at - self.env.now))
            for source, rows in rows_of.items():
                size = rows * self.answer_bytes
                size = size * (part + 1) // parts - size * part // parts
                left += self.store_answer(rank, source, size, lambda source=source: arrived(source))
        yield self.env.all_of(left)
        finished.succeed()

    def store_answer(self, rank, source, size, arrived):
        """Stores a part of some answers, calls ``arrived()`` when memory has it; returns the events
        that the end of GEMM2 waits for."""
        transfer = self.send(rank, source, size, size)
        transfer.callbacks.append(lambda _: arrived())
        return [transfer.left]

    def count_answers(self, source, rows):
        """A token's rank can see these answers."""
        sums = self.sums[source]
        sums.arrivals.append((self.env.now, rows))
        sums.count += rows
        if sums.count == sums.expected:
            self.answers_here[source].succeed()
