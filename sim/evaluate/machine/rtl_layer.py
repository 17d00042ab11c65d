# SPDX-License-Identifier: Apache-2.0
"""The layer of ``moe-hub run`` on the network model: the same rows, the same kind of crossbar, the
same expert stand-in.

The GPU side follows ``docs/running.md`` (simulation harness), at the granularity of packets in
place of stores and cycles: a few streams store one row each in turns, the hub's pool bounds what
waits for the links, tiles become ready when memory has acknowledged all their rows, and a stand-in
for the experts answers each row with plain stores that share the links with rows still being sent.
Unit of time: cycles of the hub.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from hub_rtl.producer.tell_list import PATIENCE
from hub_rtl.receive_pool.receive_pool import PERIOD
from sim.golden.pool_grants import VISIT
from sim.system.fabric import HOP_NS, one_way
from sim.system.layer import AGE_LIMIT, rows_of

from .network import Network, NetworkSettings, hub_figures
from .network_settings import credit_cycles
from .store_port import ANSWERS, ROWS, Job, StorePort
from .timeline import Timeline

__all__ = ["Harness", "LayerTimes", "model_layer"]

TELL_CYCLES = 2  # from one ANNOUNCE of a program to the next, while no news are packed
CLOSE_CYCLES = 20  # last packet of a handle, or what it told, to the mark of its close
CHOICE_CYCLES = 6  # news may go: until their packet is begun
POP_CYCLES = 3  # an entry of it
NEXT_CYCLES = 2  # behind its last one, until the next packet is begun
LINK_CYCLES, OWN_CYCLES = 20, 14  # last entry of it to the link, or to the own scoreboard
NEWS_OF_FLIT, NEWS_OF_PACKET = 2, 16
TOLD_CYCLES = 9  # last flit of news on the wire to the scoreboard
TAKE_CYCLES = 5 / 4  # an entry: four to a word, which takes a cycle more
# The finisher of a region, docs/blocks/scoreboard.md: one bank at a time.
ASKED_CYCLES = 13  # last tell to the finisher
AIM_CYCLES = 18  # beside division and sum
FINISH_CYCLES = 17  # from one bank to the next, whose aim is known
LAST_TILE_CYCLES = 25  # the byte that completes the last tile to its READY, the aim known
ALL_CYCLES = 30  # last byte or close to ALL, the aim known


@dataclass(frozen=True, kw_only=True)
class Harness:
    """Settings of the simulated surroundings, as in ``sim/native``: cycles, unless the name says
    otherwise."""

    latency: int = one_way(HOP_NS)  # packet's end at a hub to its begin at the other one
    mem_latency: int = 20
    expert_cycles: int = 200
    expert_units: int = 4
    streams: int = 4
    window: int = 32  # jobs of a source among which a stream chooses
    weight: int = 3  # jobs of the program for each one of the expert stand-in


@dataclass
class LayerTimes:
    """Cycles since the layer's start: of each tile that became ready, region done, tile of answers;
    lists per rank.

    ``stored``: last store answered. ``wire_bytes``: on all links, all flits.
    """

    ready: list
    done: list
    answers: list
    stored: list
    wire_bytes: int = 0


class _Layer:
    """Ranks, their memories as counts of rows, expert stand-ins; what :func:`model_layer` runs."""

    def __init__(self, plan, harness, hub, piece):
        cfg = plan.cfg
        self.plan, self.harness, self.hub, self.piece = plan, harness, hub["latency_cycles"], piece
        self.packet_bytes, self.env = cfg.packet_bytes, Timeline()
        self.call = self.env.call_after
        self.network = Network(self.env, settings=settings_of(cfg, harness, hub, piece))
        self.ports = [StorePort(self, rank) for rank in range(cfg.ranks)]
        self.free = [[0.0] * harness.expert_units for _ in range(cfg.ranks)]
        self.regions = [[_Region() for _ in plan.experts(rank)] for rank in range(cfg.ranks)]
        for expert, rows in enumerate(plan.routing.loads):
            rank, local = plan.place(expert)
            self.regions[rank][local].expected = int(rows)
        self.missing = [self._answer_counts(rank) for rank in range(cfg.ranks)]
        self.finisher_free = [0.0] * cfg.ranks
        # (what it does, region) that wait, by rank and peer
        self.news = [[deque() for _ in range(cfg.ranks)] for _ in range(cfg.ranks)]
        self.turns = [deque() for _ in range(cfg.ranks)]  # peers to which some go
        self.news_free = [0.0] * cfg.ranks  # when the scoreboard has taken what came before
        self.patient = [False] * cfg.ranks  # a tell waits for others
        self.unsent = [[] for _ in range(cfg.ranks)]  # rows that have not left, by expert
        self.times = LayerTimes(
            *([[] for _ in range(cfg.ranks)] for _ in range(3)), stored=[0.0] * cfg.ranks
        )

    def _answer_counts(self, rank):
        """Answers that each tile of the rank's tokens waits for."""
        tokens, tile = self.plan.tokens(rank), self.plan.combine_tile
        return [
            min(tile, tokens - first) * self.plan.routing.top_k for first in range(0, tokens, tile)
        ]

    def run(self):
        plan = self.plan
        whole, tail = divmod(plan.row_bytes, self.packet_bytes)
        for rank, port in enumerate(self.ports):
            token, choice, expert = rows_of(plan, rank)
            rowids = plan.rowids(rank)[token, choice]
            for t, e, rowid in zip(token.tolist(), expert.tolist(), rowids.tolist(), strict=True):
                dst, local = plan.place(e)
                port.push(
                    ROWS,
                    Job(
                        dst,
                        whole,
                        tail,
                        self.row_arrived,
                        row=(local, rank, t),
                        rowid=rowid,
                        expert=e,
                    ),
                )
        for rank in range(plan.cfg.ranks):
            self.unsent[rank] = self.rows_of(rank)
            self.tell(rank)
        self.env.run()
        self.times.wire_bytes = self.network.wire_bytes + self.network.report_bytes
        return self.times

    def row_arrived(self, job, packets):
        """Memory has acknowledged a piece of a row: its first one gives the row a slot, its last
        one may complete the tile."""
        local, *origin = job.row
        region = self.regions[job.dst][local]
        if not job.arrived_packets:
            job.slot = region.slots
            region.slots += 1
            region.origins.append(origin)
        job.arrived_packets += packets
        if job.arrived_packets < job.total:
            return
        region.rows += 1
        tile = job.slot // self.plan.tile_rows
        region.complete[tile] = region.complete.get(tile, 0) + 1
        if region.complete[tile] == self.plan.tile_rows:
            self.call(
                self.hub["answer_to_ready"],
                self.tile_ready,
                job.dst,
                region,
                tile,
                self.plan.tile_rows,
            )
        self.region_here(job.dst, region)

    def tell(self, rank, expert=0):
        """What the rank's rows bring to each expert is told one after the other; what gets nothing
        is closed then, the others when their last row has left. A tell waits for others to its
        peer, unless that one's list goes already."""
        if expert == self.plan.shape.experts:
            self.urge(rank)
            return
        dst, local = self.plan.place(expert)
        self.news[rank][dst].append((self.counts_told, self.regions[dst][local]))
        if dst not in self.turns[rank] and not self.patient[rank]:
            self.patient[rank] = True
            self.call(PATIENCE, self.urge, rank)
        if not self.unsent[rank][expert]:
            self.call(CLOSE_CYCLES, self.close, rank, expert)
        self.call(POP_CYCLES if self.turns[rank] else TELL_CYCLES, self.tell, rank, expert + 1)

    def urge(self, rank):
        """All lists that have something go, each until it is empty."""
        self.patient[rank] = False
        for dst, waiting in enumerate(self.news[rank]):
            if waiting:
                self.goes(rank, dst)

    def rows_of(self, rank):
        """Rows of a rank by expert."""
        first, end = self.plan.starts[rank : rank + 2]
        chosen = self.plan.routing.experts[first:end].ravel()
        return np.bincount(chosen, minlength=self.plan.shape.experts).tolist()

    def row_left(self, rank, expert):
        self.unsent[rank][expert] -= 1
        if not self.unsent[rank][expert]:
            self.call(CLOSE_CYCLES, self.close, rank, expert)

    def close(self, rank, expert):
        dst, _ = self.plan.place(expert)
        self.ports[rank].closes.mark(expert, dst)

    def tell_closes(self, rank, dst, experts):
        regions = [self.regions[dst][self.plan.place(expert)[1]] for expert in experts]
        self.pack(rank, dst, self.closed, regions)

    def pack(self, rank, dst, then, regions):
        """News for a peer share packets with what else is there when one is made."""
        self.news[rank][dst] += [(then, region) for region in regions]
        self.goes(rank, dst)

    def goes(self, rank, dst):
        """A peer gets its turn."""
        turns = self.turns[rank]
        if dst not in turns:
            turns.append(dst)
            if len(turns) == 1:
                self.call(CHOICE_CYCLES, self.next_news, rank, [])

    def next_news(self, rank, packed):
        """The peer whose turn it is gets a packet, entry by entry of what is there; then the next
        one."""
        turns = self.turns[rank]
        dst = turns[0]
        waiting = self.news[rank][dst]
        if waiting and len(packed) < NEWS_OF_PACKET:
            packed.append(waiting.popleft())
            self.call(POP_CYCLES, self.next_news, rank, packed)
            return
        way = OWN_CYCLES if dst == rank else LINK_CYCLES
        self.call(way, self.send_news, rank, dst, packed)
        turns.popleft()
        if waiting:
            turns.append(dst)
        if turns:
            self.call(NEXT_CYCLES, self.next_news, rank, [])

    def send_news(self, rank, dst, packed):
        if dst == rank:
            self.take_news(rank, packed)
            return
        size = -(-len(packed) // NEWS_OF_FLIT) * self.plan.cfg.flit_bytes
        transfer = self.network.send(rank, dst, size, packet_bytes=size, news=True)
        transfer.callbacks.append(lambda _: self.call(TOLD_CYCLES, self.take_news, dst, packed))

    def take_news(self, rank, packed):
        """The scoreboard takes one packet after the other."""
        now = self.env.now
        end = max(self.news_free[rank], now) + TAKE_CYCLES * len(packed)
        self.news_free[rank] = end
        self.call(end - now, self.news_here, rank, packed)

    def news_here(self, rank, packed):
        for then, region in packed:
            then(rank, region)

    def counts_told(self, rank, region):
        """A producer has told what comes; after the last of them it is found what the last tile
        is."""
        region.told += 1
        if region.told == self.plan.cfg.ranks:
            self.call(ASKED_CYCLES, self.aim, rank, region)

    def aim(self, rank, region):
        """The finisher divides, a bit of the quotient per cycle, and adds up the rows of the last
        tile, a bit of their number per cycle."""
        cfg = self.plan.cfg
        bits = min(cfg.total_width, cfg.slot_width + 1 + cfg.row_bytes_width) - 4
        bits += (region.expected % self.plan.tile_rows).bit_length()
        self.finish(rank, region, AIM_CYCLES + bits, AIM_CYCLES + bits, self.aimed)

    def closed(self, rank, region):
        """A producer has no more."""
        region.closes += 1
        self.region_here(rank, region)

    def finish(self, rank, region, takes, after, then):
        """The finisher looks at one region after the other."""
        now = self.env.now
        begin = max(self.finisher_free[rank], now)
        self.finisher_free[rank] = begin + takes
        self.call(begin + after - now, then, rank, region)

    def aimed(self, rank, region):
        region.aim = True
        if region.rows < region.expected:
            return
        self.last_tile(rank, region)
        self.region_here(rank, region)

    def region_here(self, rank, region):
        """All that was told has come: the last tile is ready; ALL, if nothing more comes."""
        if region.rows < region.expected or not region.aim:
            return
        if not region.announced:
            self.finish(rank, region, FINISH_CYCLES, LAST_TILE_CYCLES, self.last_tile)
            region.announced = True
        if region.closes == self.plan.cfg.ranks:
            self.finish(rank, region, FINISH_CYCLES, ALL_CYCLES, self.all_here)

    def last_tile(self, rank, region):
        """READY of the tile that is not full, if there is one."""
        region.announced = True
        last, rows = divmod(region.expected, self.plan.tile_rows)
        if rows:
            self.tile_ready(rank, region, last, rows)

    def all_here(self, rank, _):
        self.times.done[rank].append(self.env.now)

    def tile_ready(self, rank, region, tile, rows):
        """READY: a unit of the expert stand-in takes the tile, then the answers of its rows want to
        be stored."""
        self.times.ready[rank].append(self.env.now)
        units = self.free[rank]
        unit = units.index(min(units))
        units[unit] = max(units[unit], self.env.now) + self.harness.expert_cycles
        first = tile * self.plan.tile_rows
        self.call(
            units[unit] - self.env.now, self.answer, rank, region.origins[first : first + rows]
        )

    def answer(self, rank, origins):
        whole, tail = divmod(self.plan.shape.combine_bytes, self.packet_bytes)
        for source, token in origins:
            tile = token // self.plan.combine_tile
            self.ports[rank].push(
                ANSWERS, Job(source, whole, tail, self.answer_arrived, row=(tile,))
            )

    def answer_arrived(self, job, packets):
        job.arrived_packets += packets
        if job.arrived_packets < job.total:
            return
        missing, (tile,) = self.missing[job.dst], job.row
        missing[tile] -= 1
        if not missing[tile]:
            self.times.answers[job.dst].append(self.env.now + self.hub["answer_to_ready"])


class _Region:
    """Rows of one expert at its rank: slots given, rows complete, producers that told how many come
    and that have no more; ``aim``: it is known what the last tile is, ``announced``: it is ready;
    ``origins`` (source, token) by slot."""

    def __init__(self):
        self.slots = self.rows = self.expected = self.told = self.closes = 0
        self.aim = self.announced = False
        self.complete, self.origins = {}, []


def settings_of(cfg, harness, hub, piece):
    """The network between hubs of a configuration, in cycles."""
    cycles = hub["latency_cycles"]
    return NetworkSettings(
        ranks=cfg.ranks,
        rate=cfg.flit_bytes,
        latency=harness.latency,
        store_latency=cycles["store_to_link"],
        write_latency=cycles["arrival_to_write"] + harness.mem_latency,
        places=cfg.pool_places,
        visit=VISIT,
        period=PERIOD,
        credit_latency=credit_cycles(hub),
        local_rate=cfg.slice_bytes,
        beat_bytes=cfg.slice_bytes,
        local_latency=cycles["store_to_own_write"] + harness.mem_latency,
        age_limit=AGE_LIMIT,
        flit_bytes=cfg.flit_bytes,
        batch_packets=piece,
    )


def model_layer(plan, harness=None, hub=None, batch_packets=1):
    """Times of the layer of ``plan`` (:func:`sim.system.layer.plan_layer`, one lane) on the network
    model: :class:`LayerTimes`.

    ``batch_packets``: packets that are stored and sent as one.
    """
    if plan.cfg.links != 1:
        raise ValueError(f"links = {plan.cfg.links}: the harness is modelled for 1")
    return _Layer(plan, harness or Harness(), hub or hub_figures(), batch_packets).run()
