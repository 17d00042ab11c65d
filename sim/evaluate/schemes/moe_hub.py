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
and expert, answers are summed at the source (:mod:`.stored`).

``moe_hub_by_expert`` is the same hub; software stores the rows in another order.

``moe_hub_once`` is a hub that is not built: a token goes once to each rank that holds experts of it
and is written there for each of them; their answers are added up where they are made, in the rank's
memory, and one sum per token and rank goes back. What that is worth is asked before it is built.
"""

from dataclasses import dataclass

from sim.evaluate.machine.engine import FLAG_BYTES
from sim.evaluate.machine.network_settings import hub_figures

from .scheme import Scheme
from .stored import COLUMN_BYTES, StoredLayer, Sums

__all__ = ["SCHEMES", "SECTOR_BYTES", "Hub", "HubLayer", "OnceLayer", "hub_scheme"]

SECTOR_BYTES = 32  # a store as it leaves an SM, when nothing merges it


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Which parts of the hub there are beside address allocation; both is MoE-Hub. ``by_expert``:
    the order in which software stores its rows, see :class:`.stored.StoredLayer`."""

    packets: bool = True
    signal: bool = True
    by_expert: bool = False


class HubLayer(StoredLayer):
    """A layer through hubs with these parts."""

    def __init__(self, cluster, hub):
        super().__init__(cluster, hub.by_expert)
        self.hub = hub
        if not hub.packets:
            self.packet_bytes = SECTOR_BYTES
        self.cycle_us = cluster.network.settings.hub_cycle
        self.ready_us = hub_figures()["latency_cycles"]["answer_to_ready"] * self.cycle_us
        self.flags = [0] * self.machine.ranks
        self.silent, self.told = self.machine.ranks, cluster.env.event()
        self.pool_bytes = cluster.network.settings.pool_packets * self.packet_bytes
        self.unsent, self.drained = [0] * self.machine.ranks, [None] * self.machine.ranks

    def begin(self, gpu):
        """Sources say first how much they will send: without that nobody knows an expert's last
        rows as such."""
        yield from super().begin(gpu)
        self.env.process(self._tell())

    def _tell(self):
        yield self.env.timeout(self.machine.fabric.one_way_us)
        self.silent -= 1
        if not self.silent:
            self.told.succeed()

    def group(self, rank, expert, rows):
        """All rows of a group are in memory: the hub releases its thread blocks."""
        if self.hub.signal:
            last = not self.boxes[expert].missing_rows
            self.env.process(self._ready(rank, expert, rows, last))

    def _ready(self, rank, expert, rows, last):
        if last:
            yield self.told
        delay = self.last_us(rank, expert) if last else self.ready_us
        yield from self.release_group(rank, expert, rows, delay)

    def last_us(self, rank, expert):
        """The last group waits for the producers' closes: they follow the data, one expert's after
        the other's in the same packets."""
        hub, before = hub_figures()["latency_cycles"], self.experts_of[rank].index(expert)
        cycles = hub["close_to_all"] + before * hub["close_to_next"]
        return self.machine.fabric.one_way_us + cycles * self.cycle_us

    def settle(self, gpu):
        if self.hub.signal:
            yield from super().settle(gpu)
        else:
            yield self.env.timeout(
                self.machine.fabric.one_way_us
            )  # their acknowledgements: the fence
            yield from self.cluster.device_barrier(gpu.rank)
            yield from gpu.move(self.sum_bytes(gpu.rank), "sum")

    # -- without readiness: software's flags -------------------------------------------------------

    def sent(self, gpu, stored):
        if not self.hub.signal:
            for peer in range(self.machine.ranks):
                self.env.process(self._flag(gpu, peer, stored[peer]))

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
                    yield from self.release(peer, expert, self.boxes[expert].total)
            self.gemm1[peer].close()

    # -- answers, and the pool that they wait in ---------------------------------------------------

    def store_answer(self, rank, source, size, arrived):
        transfer = self.send(rank, source, size, size)
        self.unsent[rank] += size
        transfer.left.callbacks.append(lambda _: self._went(rank, size))
        transfer.callbacks.append(lambda _: arrived())
        # without readiness the fence of what comes then waits for all of them
        return [transfer.left] if self.hub.signal else [transfer.left, transfer]

    def _went(self, rank, size):
        """Answers have left the hub's pool."""
        self.unsent[rank] -= size
        if self.drained[rank] is not None and self.unsent[rank] <= self.pool_bytes:
            self.drained[rank].succeed()
            self.drained[rank] = None

    def room(self, rank):
        """What thread blocks wait for whose stores would find the pool full; None where there is
        room."""
        if self.unsent[rank] <= self.pool_bytes:
            return None
        if self.drained[rank] is None:
            self.drained[rank] = self.env.event()
        return self.drained[rank]


class OnceLayer(HubLayer):
    """A layer through hubs that write a row for each expert of a rank, and add up its answers."""

    def __init__(self, cluster):
        super().__init__(cluster, Hub())
        self.made = {}  # (rank, source): answers that were added up there
        self.stored = {}  # (rank, peer): rows on their way, or there

    def _tokens(self, source, rank):
        """Tokens of a source with experts at a rank, and their rows there."""
        return int(self.workload.distinct[source, rank]), int(self.workload.pair_rows[source, rank])

    def sums_of(self, rank):
        sums = int(self.workload.distinct[rank].sum())
        return Sums(sums, sums / int(self.workload.tokens_of[rank]))

    def dispatch_bytes(self, rank, peer, counts):
        """Each token's values once, a column for each of its rows; spread evenly over the rows."""
        tokens, rows = self._tokens(rank, peer)
        total = tokens * self.shape.dispatch_bytes + rows * COLUMN_BYTES
        before = self.stored.get((rank, peer), 0)
        self.stored[rank, peer] = after = before + sum(counts.values())
        return rows and after * total // rows - before * total // rows

    def came(self, source, rank, counts):
        """Memory takes a row for each expert, not only those that came."""
        tokens, rows = self._tokens(source, rank)
        more = sum(counts.values()) * (1 - tokens / rows) * self.shape.dispatch_bytes
        self.cluster.gpus[rank].times.write(self.env.now, more)
        super().came(source, rank, counts)

    def store_answer(self, rank, source, size, arrived):
        """Into the rank's own memory: nothing leaves before a token's last answer there."""
        self.cluster.gpus[rank].times.write(self.env.now, size)
        arrived()
        return []

    def answered(self, rank, source, rows):
        """Sums of the tokens all of whose answers at this rank are there go to their source."""
        tokens, total = self._tokens(source, rank)
        before = self.made.get((rank, source), 0)
        self.made[rank, source] = after = before + rows
        first, last = (
            int(tokens * (count / total) ** (total / tokens) + 1e-9) for count in (before, after)
        )
        if last > first:
            size = (last - first) * self.shape.combine_bytes
            super().store_answer(
                rank, source, size, lambda: self.count_answers(source, last - first)
            )


def hub_scheme(title, color, place, *parts, layer=HubLayer):
    """The scheme of GPUs with hubs, ``layer(cluster, *parts)`` on all ranks."""

    def run(cluster):
        layer(cluster, *parts).run()

    return Scheme(run, title, color, place, hub=True)


SCHEMES = {
    "moe_hub_base": hub_scheme("base", "#f7c6c5", 13, Hub(packets=False, signal=False)),
    "moe_hub_packets": hub_scheme("+ packets", "#f08a86", 14, Hub(signal=False)),
    "moe_hub_signal": hub_scheme("+ signalling", "#e5534b", 15, Hub(packets=False)),
    "moe_hub": hub_scheme("MoE-Hub", "#d00000", 16, Hub()),
    "moe_hub_by_expert": hub_scheme("MoE-Hub, by expert", "#ff7b00", 17, Hub(by_expert=True)),
    "moe_hub_once": hub_scheme("MoE-Hub, once per GPU", "#7a0000", 18, layer=OnceLayer),
}
