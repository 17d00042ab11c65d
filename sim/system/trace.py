# SPDX-License-Identifier: Apache-2.0
"""Runs of a layer as a trace for Perfetto or chrome://tracing: Chrome's trace event format, JSON.

A process is a rank of a way; all ways begin at 0. Its tracks: counters of each link; *idle*, a
slice for each gap of a link with the cause that most of it had; *tiles*, from the first row's
placing to READY; *usable*, *answers*, *program*. Time stamps are microseconds, as the format has
them, with the nanoseconds behind the point; the cycle stands beside each.
"""

import json

import numpy as np

from .fabric import cycle_ns
from .formats import LinkUse
from .history import USES

__all__ = ["trace", "trace_text"]

#: A bin counts as idle from this share of a link's cycles without a flit on.
GAP = 0.1
THREADS = 10_000  # numbers of threads for each process: no two of a trace are the same
_STEPS = (("stored", "stores rows"), ("closed", "fence or close"), ("end", "waits for answers"))


class _Rank:
    """Events of one rank of one way."""

    def __init__(self, told, rank, process):
        self.told, self.rank, self.process = told, rank, process
        self.ns, self.events, self.tracks = cycle_ns(told.cfg), [], {}

    def add(self, phase, name, cycle, track=None, **more):
        """An event; ``track``: what a thread, as a viewer calls it, stands for."""
        thread = self.tracks.setdefault(track, len(self.tracks) + 1) if track else 0
        thread += THREADS * self.process
        at = {"pid": self.process, "tid": thread, "ts": self.us(cycle)}
        self.events.append({"ph": phase, **at, "name": name, **more})

    def us(self, cycles):
        return round(float(cycles) * self.ns / 1000, 6)

    def slice(self, name, begin, end, track, **args):
        self.add("X", name, begin, track, dur=self.us(end - begin), args={"cycle": begin, **args})

    def counter(self, name, values, unit):
        """Values of the bins, rounded, where they change, and 0 behind the last."""
        values = np.append(np.rint(values), 0).astype(int)
        for at in np.flatnonzero(np.diff(values, prepend=-1)).tolist():
            self.add("C", name, at * self.told.bin, args={unit: int(values[at])})

    def links(self):
        use, received = self.told.use[self.rank], self.told.received[self.rank]
        for link in range(use.shape[1]):
            cycles = np.maximum(use[:, link].sum(axis=1), 1)
            self.counter(f"link {link} tx", 100 * use[:, link, LinkUse.SENT] / cycles, "%")
            self.counter(f"link {link} rx", 100 * received[:, link] / cycles, "%")
            self.gaps(link, use[:, link], cycles)
        self.counter("memory", self.told.written[self.rank] / self.told.bin, "bytes per cycle")

    def gaps(self, link, use, cycles):
        """Neighbouring bins with the same cause are one slice."""
        idle = cycles - use[:, LinkUse.SENT]
        causes = np.where(idle >= GAP * cycles, use[:, 1:].argmax(axis=1) + 1, LinkUse.SENT)
        edges = np.flatnonzero(np.diff(causes, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if causes[begin] == LinkUse.SENT:
                continue
            total = use[begin:end].sum(axis=0)
            self.slice(
                USES[LinkUse(int(causes[begin]))].words,
                begin * self.told.bin,
                min(end * self.told.bin, self.told.layer),
                f"link {link} idle",
                **{
                    f"{USES[kind].words}, link cycles": int(total[kind])
                    for kind in LinkUse
                    if total[kind]
                },
            )

    def work(self):
        told, rank = self.told, self.rank
        free = []  # by track of tiles: when its last one was over
        for tile in sorted(told.tiles[rank], key=lambda tile: tile.first):
            track = next((n for n, cycle in enumerate(free) if cycle <= tile.first), len(free))
            free[track : track + 1] = [tile.ready]
            self.slice(
                f"region {tile.region} tile {tile.number}",
                tile.first,
                tile.ready,
                f"tiles, {track}",
                rows=tile.rows,
                **{"READY, cycle": tile.ready},
            )
        what = "READY" if told.way == "hub" else "set or tile usable"
        for track, name, cycles in (
            ("usable", what, told.usable[rank]),
            ("answers", "answers ready", told.answers[rank]),
        ):
            for done, cycle in enumerate(cycles, 1):
                args = {"cycle": cycle, "of them": f"{done} of {len(cycles)}"}
                self.add("i", name, cycle, track, s="t", args=args)
        begin = 0
        for step, name in _STEPS:
            end = told.steps[rank].get(step, begin)
            self.slice(name, begin, end, "program")
            begin = end

    def names(self):
        """What process and tracks are called, and the order of processes."""
        title = f"{self.told.title}, rank {self.rank}"
        own = {"ph": "M", "pid": self.process}
        yield {**own, "name": "process_name", "args": {"name": title}}
        yield {**own, "name": "process_sort_index", "args": {"sort_index": self.process}}
        for track, thread in self.tracks.items():
            tid = THREADS * self.process + thread
            yield {**own, "tid": tid, "name": "thread_name", "args": {"name": track}}


def trace(histories, title):
    """The trace of histories, by name of the way, as a dictionary for JSON."""
    ranks = [(told, rank) for told in histories.values() for rank in range(told.ranks)]
    events = []
    for process, (told, rank) in enumerate(ranks, 1):
        one = _Rank(told, rank, process)
        one.work()
        one.links()
        events += [*one.names(), *one.events]
    cfg = next(iter(histories.values())).cfg
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "title": title,
            "time": "0 is the start of the layer; ts and dur in microseconds",
            "nanoseconds of a cycle": cycle_ns(cfg),
            **{f"idle, {use.words}": use.means for kind, use in USES.items() if kind},
        },
        "traceEvents": events,
    }


def trace_text(histories, title):
    """The same as text, a line per event; same input, same bytes."""
    whole = trace(histories, title)
    events = whole.pop("traceEvents")
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    head = json.dumps(whole, **compact)[:-1]
    return (
        head
        + ',"traceEvents":[\n'
        + ",\n".join(json.dumps(e, **compact) for e in events)
        + "\n]}\n"
    )
