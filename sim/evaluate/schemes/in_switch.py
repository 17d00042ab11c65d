# SPDX-License-Identifier: Apache-2.0
"""Rows that the switch copies and answers that it adds up: DySHARP, and hubs that do the same.

Source: DySHARP (arXiv 2605.05607); no code is public. A token goes up its link once and comes to
each rank that has experts of it once; every packet lists its targets. The rank's hub gives it an
address for each of its experts (a table in memory, 4 bytes an entry) and, when memory has
acknowledged a tile of 128 rows, says so. A token whose answers are all made is *pulled*: its rank's
loads go to all ranks with experts of it, each adds up what its own have made, the switch adds up
the ranks, one row comes back.

Dispatch is heavy downwards, combine upwards. So that they overlap there is one *token-centric*
kernel: rows leave in the order of their tokens, tiles of both GEMMs run as they get ready, tokens
are pulled while later ones are still sent. What holds SMs: one that hands out tiles, as in other
such kernels, and as many as it takes to fill the links with stores and with loads; that the last
tile of an expert is known as such is taken for granted.

=======================  ===========================================================================
dysharp                  the above: software polls the tables of what is ready, loads pull
moe_hub_in_switch        MoE-Hub's kernels, one after the other, rows once to each rank, copied and
                         added by the switch; its hub pulls, no SM does. Credits are left out: they
                         are no limit to layers of many tokens
moe_hub_fused            MoE-Hub's hub and the token-centric kernel; rows once to each rank, sums
                         once from each, to be added at the token's rank; nothing in the switch
moe_hub_fused_in_switch  both
=======================  ===========================================================================

None of these hubs is built. Against ``moe_hub_once`` they say what is due to which.
"""

from dataclasses import replace
from math import ceil

import numpy as np

from sim.evaluate.machine.compute import tiles_of
from sim.evaluate.machine.engine import GroupedGemm
from sim.evaluate.machine.in_switch import InSwitchNetwork
from sim.evaluate.systems import constants

from .moe_hub import Hub, HubLayer, hub_scheme
from .scheme import Scheme
from .steps import stock_fabric

__all__ = ["SCHEMES", "DySharp", "InSwitchLayer", "Parts"]

CHUNKS = 24  # parts of a rank's tokens, at most
MESSAGES = 12_000  # copies of one direction, at most: larger machines track coarser parts
TURNS = 4  # of the links, that a part takes


class Parts:
    """The tokens of each rank in ``count`` parts, in their order, and where each part goes.

    Integer arrays: ``tokens[rank, part]``; ``leaving[rank, part]``, tokens with an expert at
    another rank; ``rows[rank, part, expert]``; ``once[rank, part, peer]``, tokens with an expert
    at the peer.
    """

    def __init__(self, workload, count):
        self.count, ranks, experts = count, workload.ranks, workload.shape.experts
        starts = np.concatenate([[0], np.cumsum(workload.tokens_of)])[:-1]
        number = np.arange(workload.tokens) - starts[workload.source_of]
        part = number * count // workload.tokens_of[workload.source_of]
        key, size = workload.source_of * count + part, ranks * count

        def counted(of=None):
            return np.bincount(key, weights=of, minlength=size).astype(np.int64).reshape(ranks, -1)

        hits = np.zeros((workload.tokens, ranks), dtype=bool)
        np.put_along_axis(hits, workload.rank_of[workload.experts], True, axis=1)
        others = hits.sum(axis=1) - hits[np.arange(workload.tokens), workload.source_of]
        self.tokens, self.leaving = counted(), counted(others > 0)
        self.once = np.stack([counted(hits[:, peer]) for peer in range(ranks)], axis=2)
        flat = (key[:, None] * experts + workload.experts).ravel()
        self.rows = np.bincount(flat, minlength=size * experts).reshape(ranks, count, experts)


class InSwitchLayer(HubLayer):
    """A layer whose tokens go once to each rank and whose sums come once from each.

    ``switch``: the switch copies and adds; else each rank gets its own and sends its own.
    ``fused``: one token-centric kernel; else the kernels of :class:`.moe_hub.HubLayer`.
    """

    def __init__(self, cluster, switch=True, fused=True):
        system, settings = constants("dysharp"), replace(cluster.network.settings, places=None)
        cluster.connect(
            settings,
            InSwitchNetwork,
            sum_latency=system.switch_cycles * settings.hub_cycle,
            buffer_flits=system.buffer_flits * (cluster.machine.ranks - 1),
            turns=TURNS,
        )
        super().__init__(cluster, Hub())
        self.switch, self.fused = switch, fused
        ranks, workload = self.machine.ranks, self.workload
        self.parts = Parts(workload, max(1, min(CHUNKS, MESSAGES // ranks**2)))
        local = ceil(self.shape.top_k / ranks / system.list_targets)
        self.list_flits = (ceil(self.shape.top_k / system.list_targets) if switch else local, local)
        made_at = [self.parts.rows[:, :, own].sum(axis=2) for own in self.experts_of]
        self.made_at = np.stack(made_at, axis=2)  # [home, part, rank]: answers
        self.unmade = self.made_at.copy()
        self.untold = np.count_nonzero(self.made_at, axis=2)  # ranks that a part waits for
        self.unsummed = [int(np.count_nonzero(self.parts.tokens[rank])) for rank in range(ranks)]
        leaving, once = self.parts.leaving.sum(), self.parts.once.sum()
        own = sum(self.parts.once[rank, :, rank].sum() for rank in range(ranks))
        copies = (once - own) / leaving if leaving and switch else 1.0
        rate = self.machine.fabric.link_gbps / max(1.0, copies)
        gpu = self.machine.gpu
        #: SMs that store, or load, as much as fills the links.
        self.copy_sms = min(gpu.sms // 3, ceil(rate / gpu.sm_copy_gbps))

    # -- rows to experts ---------------------------------------------------------------------------

    def _dispatch(self, gpu):
        yield from self.begin(gpu)
        yield from gpu.hold(self.copy_sms)
        left = []
        for part in range(self.parts.count):
            stores = self.parts.leaving if self.switch else self.parts.once.sum(axis=2)
            size = int(stores[gpu.rank, part]) * self.row_bytes
            yield self.env.timeout(size / (self.copy_sms * gpu.gpu.sm_copy_gbps * 1e3))
            left += self._store(gpu.rank, part)
        yield self.env.all_of(left)
        gpu.release(self.copy_sms)

    def _groups(self, rank, part):
        """({peer: tokens}, tokens) of each message of a part: one that the switch copies, or one
        for each peer."""
        once = self.parts.once[rank, part]
        of = {int(peer): int(once[peer]) for peer in np.flatnonzero(once) if peer != rank}
        if not self.switch:
            yield from (({peer: count}, count) for peer, count in of.items())
        elif of:
            yield of, int(self.parts.leaving[rank, part])

    def _store(self, rank, part):
        """Sends a part of the rank's tokens; returns the events of its leaving."""
        left, row, copies = [], self.row_bytes, {}
        for of, tokens in self._groups(rank, part):
            sent = self.cluster.network.multicast(
                rank,
                {peer: count * row for peer, count in of.items()},
                tokens * row,
                row_bytes=row,
                list_flits=self.list_flits,
            )
            left.append(sent.left)
            copies |= sent.copies
        if own := int(self.parts.once[rank, part, rank]):
            copies[rank] = self.send(rank, rank, own * row, row)
            left.append(copies[rank].left)
        for peer, copy in copies.items():
            copy.callbacks.append(lambda _, peer=peer: self._placed(rank, part, peer))
        return left

    def _placed(self, rank, part, peer):
        """Tokens are at a peer: memory takes a row for each of its experts, and their addresses."""
        rows = self.parts.rows[rank, part]
        counts = {expert: int(rows[expert]) for expert in self.experts_of[peer]}
        total = sum(counts.values())
        more = (total - int(self.parts.once[rank, part, peer])) * self.shape.dispatch_bytes
        more += total * constants("dysharp").address_bytes
        self.cluster.gpus[peer].times.write(self.env.now, more)
        self.arrive((rank, part), peer, counts)

    # -- the token-centric kernel ------------------------------------------------------------------

    def _rank(self, gpu):
        return self._kernel(gpu) if self.fused else super()._rank(gpu)

    def kernel_sms(self):
        """SMs that the kernel keeps to its end, for other work than tiles."""
        return 0

    def between_us(self):
        """From the end of a tile of GEMM1 to the start of GEMM2 on its rows."""
        return self.ready_us

    def _kernel(self, gpu):
        cluster, rank, sms = self.cluster, gpu.rank, self.kernel_sms()
        rows, leaving = self.workload.rows_at(rank), []
        yield from cluster.gate(gpu)
        start = self.env.now
        yield from gpu.launch()
        yield from gpu.hold(sms)
        second = GroupedGemm(
            gpu,
            self.gemms[1],
            rows,
            on_batch=lambda expert, *batch: self.env.process(
                self._store_answers(rank, self.boxes[expert].take(batch[0]), *batch[1:], leaving)
            ),
        )
        rest = [int(rows.sum())]
        first = self.gemm1[rank] = GroupedGemm(
            gpu,
            self.gemms[0],
            rows,
            on_batch=lambda *batch: self.env.process(self._follow(second, rest, *batch)),
        )
        if not rest[0]:
            first.close()
            second.close()
        sent = self.env.process(self._dispatch(gpu))
        self.launched[rank].succeed()
        yield self.arrived_all[rank]
        cluster.book("dispatch", self.env.now - start)
        yield first.done & sent
        cluster.book("dispatch and gemm1", self.env.now - start)
        cluster.gemm1_done(rank)
        yield second.done
        if leaving:
            yield self.env.all_of(leaving)
        yield from self.settle(gpu)
        gpu.release(sms)
        cluster.book("dispatch to combine", self.env.now - start)
        cluster.done(rank)

    def _follow(self, second, rest, expert, rows, start, end):
        """Rows of GEMM1, activation in its epilogue, go on to GEMM2."""
        yield self.env.timeout(end - self.env.now + self.between_us())
        for tile in tiles_of(rows):
            second.ready(expert, tile)
        rest[0] -= rows
        if not rest[0]:
            second.close()

    # -- answers back ------------------------------------------------------------------------------

    def store_answer(self, rank, source, size, arrived):
        """Into the rank's own memory, which the GEMM's own bytes count."""
        arrived()
        return []

    def answered(self, rank, source, rows):
        """With the last answer of a part that a rank makes its sums leave, or the home is told: of
        each answer, in messages that are simulated together."""
        self.unmade[*source, rank] -= rows
        if self.unmade[*source, rank]:
            return
        home, part = source
        if self.switch:
            size = constants("dysharp").notice_bytes
            total = int(self.made_at[*source, rank]) * size
            told = self.cluster.network.send(rank, home, total, packet_bytes=size, full=False)
        else:
            self._add(rank, source)
            size = self.shape.combine_bytes
            told = self.send(rank, home, int(self.parts.once[*source, rank]) * size, size)
        told.callbacks.append(lambda _: self._told(home, part))

    def _told(self, home, part):
        self.untold[home, part] -= 1
        if not self.untold[home, part]:
            self.env.process(self._pull(home, part) if self.switch else self._sum(home, part))

    def _add(self, rank, source):
        """A rank reads what its experts have made of a part, to add it up."""
        made = int(self.made_at[*source, rank])
        self.cluster.gpus[rank].times.write(self.env.now, made * self.shape.combine_bytes)

    def pull_us(self, home, size):
        """Until the pull of a part whose sums have ``size`` bytes begins."""
        return self.ready_us

    def _pull(self, home, part):
        answer = self.shape.combine_bytes
        groups = list(self._groups(home, part))
        size = answer * sum(tokens for _, tokens in groups)
        yield self.env.timeout(self.pull_us(home, size))
        for rank in range(self.machine.ranks):
            self._add(rank, (home, part))
        for of, tokens in groups:
            yield self.cluster.network.pull(
                home,
                {peer: count * answer for peer, count in of.items()},
                tokens * answer,
                row_bytes=answer,
                list_flits=self.list_flits,
                read=constants("dysharp").read_us,
            )
        self._summed(home)

    def _sum(self, home, part):
        """The sums of all ranks are here: the home adds them up."""
        size = (self.parts.once[home, part].sum() + self.parts.tokens[home, part]) * (
            self.shape.combine_bytes
        )
        yield self.env.timeout(self.ready_us)
        self.cluster.gpus[home].times.write(self.env.now, int(size))
        self._summed(home)

    def _summed(self, home):
        self.unsummed[home] -= 1
        if not self.unsummed[home]:
            self.answers_here[home].succeed()

    def settle(self, gpu):
        """Hubs write the sums and say when they are there: nothing is launched."""
        yield self.answers_here[gpu.rank]
        yield self.env.timeout(self.ready_us)


class DySharp(InSwitchLayer):
    """See the module's text."""

    def __init__(self, cluster):
        stock_fabric(cluster)
        super().__init__(cluster)
        self.row_bytes = self.shape.dispatch_bytes  # the address of a packet says whose it is
        self.loads_free = [0.0] * self.machine.ranks

    def group(self, rank, expert, rows):
        self.env.process(self.release_group(rank, expert, rows, self.machine.gpu.poll_us))

    def kernel_sms(self):
        """One hands out tiles, others load sums."""
        return constants("dysharp").scheduler_sms + self.copy_sms

    def between_us(self):
        return self.machine.gpu.poll_us

    def pull_us(self, home, size):
        """Polled, then loads, one part after the other."""
        now, gpu = self.env.now, self.machine.gpu
        begin = max(now + gpu.poll_us, self.loads_free[home])
        self.loads_free[home] = begin + size / (self.copy_sms * gpu.sm_copy_gbps * 1e3)
        return begin - now

    def settle(self, gpu):
        yield from super().settle(gpu)
        free = self.loads_free[gpu.rank]
        yield self.env.timeout(max(0.0, free - self.env.now))
        yield from gpu.poll()


def dysharp(cluster):
    """One token-centric kernel per rank."""
    DySharp(cluster).run()


def _hub(title, color, place, switch, fused):
    made = hub_scheme(title, color, place, switch, fused, layer=InSwitchLayer)
    return replace(made, fused=fused)


SCHEMES = {
    "dysharp": Scheme(dysharp, "DySHARP", "#8f2d56", place=20, fused=True),
    "moe_hub_in_switch": _hub("MoE-Hub, in switch", "#c77dff", 21, True, False),
    "moe_hub_fused": _hub("MoE-Hub, fused", "#7b2cbf", 22, False, True),
    "moe_hub_fused_in_switch": _hub("MoE-Hub, fused, in switch", "#3c096c", 23, True, True),
}
