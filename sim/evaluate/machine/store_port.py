# SPDX-License-Identifier: Apache-2.0
"""One lane's store port of a rank in the model of a simulated layer: streams of stores, the hub's
pool of packets, and the closes that wait for it."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from math import inf

from hub_rtl.packet_manager.quota import ON_THE_WAY

__all__ = ["ANSWERS", "ROWS", "Closes", "Job", "StorePort"]

ROWS, ANSWERS = 0, 1  # sources of stores: the program, the expert stand-in


@dataclass(slots=True)
class Job:
    """A row or an answer at one rank's store port; ``arrived`` is called with each piece that
    memory has acknowledged."""

    dst: int
    packets: int
    tail_bytes: int  # of a last, short packet
    arrived: object
    row: tuple = ()
    rowid: int | None = None  # of an answer none: plain stores
    sent: int = 0  # packets
    left_packets: int = 0
    arrived_packets: int = 0
    slot: int = -1
    expert: int | None = None  # of a row

    @property
    def total(self):
        return self.packets + (self.tail_bytes > 0)


class Closes:
    """Closes of a rank's handles: each is marked in the pool, and told when what the mark covers
    has left. Marks that meet are one mark of all entries (``docs/blocks/packet_manager.md``)."""

    def __init__(self, port, tell):
        self.port, self.env, self.tell = port, port.env, tell
        self.covered = [0] * len(port.entries)  # packets by destination
        self.waiting = [[] for _ in port.entries]  # handles
        self.handle, self.at, self.swept = None, -inf, -inf

    def mark(self, handle, dst):
        """A handle for a destination closes: all of its own has left."""
        port, now = self.port, self.env.now
        meets = any(self.covered) or now < self.swept
        self.handle = handle if self.handle == handle or not meets else None
        self.waiting[dst].append(handle)
        self.at = now
        if self.handle is None:
            self.covered = list(port.entries)
        else:  # entries are looked through; none of them is the handle's
            self.swept = now + sum(port.entries)
        port.layer.call(max(0.0, self.swept - now), self.look, dst)

    def left(self, dst, packets, stored_at):
        """Packets have left the pool that were stored then."""
        if stored_at <= self.at and self.covered[dst]:
            self.covered[dst] -= packets
            self.look(dst)

    def look(self, dst):
        if self.waiting[dst] and not self.covered[dst] and self.env.now >= self.swept:
            handles, self.waiting[dst] = self.waiting[dst], []
            self.tell(dst, handles)


class StorePort:
    """One lane's stores of a rank: ``streams`` jobs in turns, each as long as the pool has room for
    its destination."""

    def __init__(self, layer, rank):
        self.layer, self.rank, self.env = layer, rank, layer.env
        cfg, harness = layer.plan.cfg, layer.harness
        self.queues = [deque(), deque()]
        self.active = [None] * harness.streams
        self.current = self.turn = 0
        self.busy = False
        self.spare = cfg.pool_depth - cfg.ranks  # entries that are not reserved
        self.entries = [0] * cfg.ranks
        self.unstored = [0, 0]  # jobs per source
        self.closes = Closes(self, partial(layer.tell_closes, rank))

    def push(self, source, job):
        self.unstored[source] += 1
        self.queues[source].append((source, job))
        if not self.busy:
            self.step()

    def room(self, dst):
        """``can_accept``: the first entry of a destination is reserved, others need shared ones for
        all stores under way."""
        if not self.entries[dst]:
            return True
        own = dst == self.rank
        used = sum(
            max(0, count - 1)
            for rank, count in enumerate(self.entries)
            if (rank == self.rank) == own
        )
        return self.spare - used >= min(ON_THE_WAY, self.spare)

    def next_job(self):
        """As the harness chooses: for a peer with room that no stream works for, else with room,
        else the first."""
        weight, best = self.layer.harness.weight, (3, 0, 0)
        favoured = ROWS if self.turn < weight else ANSWERS
        taken = {job.dst for _, job in filter(None, self.active)}
        for source in (favoured, 1 - favoured):
            for place, (_, job) in enumerate(self.queues[source]):
                if place >= self.layer.harness.window or best[0] == 0:
                    break
                rank = 2 if not self.room(job.dst) else 1 if job.dst in taken else 0
                if rank < best[0]:
                    best = rank, source, place
            if best[0] < 2:
                break
        if best[0] == 3:
            return None
        _, source, place = best
        found = self.queues[source][place]
        del self.queues[source][place]
        if source == favoured:
            self.turn = (self.turn + 1) % (weight + 1)
        return found

    def step(self):
        """Stores the next piece of the next stream whose destination has room; without one, waits
        for the pool."""
        streams = len(self.active)
        for n in range(streams):
            stream = (self.current + n) % streams
            if self.active[stream] is None:
                self.active[stream] = self.next_job()
            if self.active[stream] is None:
                continue
            source, job = self.active[stream]
            if self.room(job.dst):
                self.current = (stream + 1) % streams
                self.store(stream, source, job)
                return
        self.busy = False

    def store(self, stream, source, job):
        layer = self.layer
        packets = min(layer.piece, job.packets - job.sent)
        length = packets * layer.packet_bytes or job.tail_bytes
        job.sent += packets or 1
        ends = job.sent == job.total
        if ends:
            self.active[stream] = None
        self.busy = True
        layer.call(
            -(-length // 32),
            self.stored,
            source,
            job,
            length,
            packets or 1,
            ends,
        )

    def stored(self, source, job, length, packets, ends):
        """The piece is in the pool, and ready: a row's last packet is full with the bytes that are
        left."""
        self.send(job, length, packets)
        self.unstored[source] -= ends
        if ends and source == ROWS and not self.unstored[ROWS]:
            self.layer.times.stored[self.rank] = self.env.now
        self.step()
        # can_accept shows a packet's entry only when the next one is already under way.
        self.entries[job.dst] += packets

    def send(self, job, length, packets):
        transfer = self.layer.network.send(
            self.rank,
            job.dst,
            length,
            packet_bytes=self.layer.packet_bytes,
            rowid=job.rowid,
        )
        at = self.env.now
        transfer.left.callbacks.append(lambda _: self.release(job, packets, at))
        transfer.callbacks.append(lambda _: job.arrived(job, packets))

    def release(self, job, packets, stored_at):
        self.entries[job.dst] -= packets
        self.closes.left(job.dst, packets, stored_at)
        job.left_packets += packets
        if job.left_packets == job.total and job.expert is not None:
            self.layer.row_left(self.rank, job.expert)
        if not self.busy:
            self.step()
