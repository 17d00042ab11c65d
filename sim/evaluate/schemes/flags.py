# SPDX-License-Identifier: Apache-2.0
"""The best that software could do on the same GPUs and links: stores, flags, and experts that begin
tile by tile.

Neither is a published system; they are what the hub has to beat. Both store rows and answers as
the hub's layer does (:mod:`.stored`), on links of today's GPUs, and keep one SM that polls and
hands out tiles, as FlashDMoE's scheduler does.

============  ======================================================================================
row_flags     A source has slots of its own at each expert, as many as it could ever send. So rows
              leave at once, by token or by expert, whichever ends first, their numbers before them.
              Each 128 bytes carry an 8-byte flag, as in NCCL's LL128, so there is no fence: a row
              is there when its flags are. A tile takes 128 rows of any sources as they come; its
              loads gather them by index and leave out the flags, at the cost that COMET's gathering
              GEMM has.
expert_flags  Counts are exchanged first, inside the kernel, so rows lie close together, by source.
              They leave by expert; a fence and a flag follow each expert's. A tile begins when the
              flags of the sources are there whose rows it has. A fence and a flag follow each batch
              of answers.
============  ======================================================================================
"""

from sim.evaluate.machine.engine import FLAG_BYTES
from sim.evaluate.systems import constants

from .scheme import Scheme
from .steps import fastest, scaled_gemms, stock_fabric
from .stored import Inbox, StoredLayer

__all__ = [
    "SCHEMES",
    "ExpertFlags",
    "PlacedInbox",
    "RowFlags",
    "expert_flags",
    "ordered",
    "row_flags",
]

COUNT_BYTES = 4  # rows of one source for one expert


class _Flags(StoredLayer):
    """A layer whose readiness is software's: one SM polls and hands out tiles."""

    def __init__(self, cluster, by_expert):
        stock_fabric(cluster)
        super().__init__(cluster, by_expert)
        for gpu in cluster.gpus:
            cluster.env.process(gpu.keep(constants("row_flags").scheduler_sms))

    def group(self, rank, expert, rows):
        self.env.process(self.release_group(rank, expert, rows, self.machine.gpu.poll_us))


class RowFlags(_Flags):
    """See the module's text."""

    def __init__(self, cluster, by_expert):
        super().__init__(cluster, by_expert)
        self.uncounted = [self.machine.ranks - 1] * self.machine.ranks
        self.counted = [cluster.env.event() for _ in range(self.machine.ranks)]
        share = constants("row_flags").packet_payload
        self.row_bytes = round(self.row_bytes / share)
        self.answer_bytes = round(self.answer_bytes / share)
        self.gemms = scaled_gemms(self.shape, constants("comet").gather_gemm_efficiency)

    def begin(self, gpu):
        """Numbers of rows leave before the rows, one store to every peer; nobody waits for them
        here."""
        for step in range(1, self.machine.ranks):
            peer = (gpu.rank + step) % self.machine.ranks
            size = COUNT_BYTES * len(self.experts_of[peer])
            sent = self.cluster.network.send(gpu.rank, peer, size)
            sent.callbacks.append(lambda _, peer=peer: self._count(peer))
        yield from super().begin(gpu)

    def _count(self, rank):
        self.uncounted[rank] -= 1
        if not self.uncounted[rank]:
            self.counted[rank].succeed()

    def group(self, rank, expert, rows):
        """An expert's last rows are known as such when all numbers are there."""
        self.env.process(self._group(rank, expert, rows))

    def _group(self, rank, expert, rows):
        if not self.boxes[expert].missing_rows:
            yield self.counted[rank]
        yield from self.release_group(rank, expert, rows, self.machine.gpu.poll_us)

    def answered(self, rank, source, rows):
        self.env.process(self._seen(source, rows))

    def _seen(self, source, rows):
        yield from self.cluster.gpus[source].poll()
        self.count_answers(source, rows)


class PlacedInbox(Inbox):
    """Rows of one expert at places by source: a group is there when all its sources' rows are.

    ``rows_of``: rows of each source."""

    def __init__(self, rows_of, group_rows, on_group):
        super().__init__(int(sum(rows_of)), group_rows, on_group)
        self.awaited = [int(rows) for rows in rows_of]
        self.here, self.missing = set(), []
        for source, rows in enumerate(self.awaited):
            while rows:
                if not self.missing or sum(self.missing[-1].values()) == group_rows:
                    self.missing.append({})
                group = self.missing[-1]
                group[source] = min(rows, group_rows - sum(group.values()))
                rows -= group[source]

    def arrive(self, source, rows):
        """Rows of a source are there: all that it has, or the first of them."""
        self.arrived += rows
        self.awaited[source] -= rows
        if self.awaited[source]:
            return
        self.here.add(source)
        there = [group for group in self.missing if group.keys() <= self.here]
        self.missing = [group for group in self.missing if not group.keys() <= self.here]
        for group in there:
            self.order.extend([source, rows] for source, rows in group.items())
            self.on_group(sum(group.values()))


class ExpertFlags(_Flags):
    """See the module's text."""

    def __init__(self, cluster):
        super().__init__(cluster, by_expert=True)

    def inbox(self, expert, group_rows, on_group):
        return PlacedInbox(self.workload.rows[:, expert], group_rows, on_group)

    def begin(self, gpu):
        """Where its rows begin a source knows from all counts; the grid waits for them."""
        yield from self.cluster.exchange(gpu.rank, COUNT_BYTES * self.shape.experts)
        yield from super().begin(gpu)

    def came(self, source, rank, counts):
        self.env.process(self._flagged(source, rank, lambda: self.arrive(source, rank, counts)))

    def answered(self, rank, source, rows):
        self.env.process(self._flagged(rank, source, lambda: self.count_answers(source, rows)))

    def _flagged(self, src, dst, then):
        """Stores are acknowledged, a flag follows and is seen."""
        if src != dst:
            yield self.env.timeout(self.machine.fabric.one_way_us)
            yield self.cluster.network.send(src, dst, FLAG_BYTES)
        yield from self.cluster.gpus[dst].poll()
        then()


def ordered(cluster, by_expert):
    """Row flags with rows in this order."""
    RowFlags(cluster, by_expert).run()


def row_flags(cluster):
    """Rows leave in the order with which the layer ends first."""
    ordered(cluster, fastest(cluster, ordered, (False, True)))


def expert_flags(cluster):
    """One flag per source and expert."""
    ExpertFlags(cluster).run()


SCHEMES = {
    "row_flags": Scheme(row_flags, "row flags", "#3a7d44", place=11),
    "expert_flags": Scheme(expert_flags, "expert flags", "#9bc59d", place=12),
}
