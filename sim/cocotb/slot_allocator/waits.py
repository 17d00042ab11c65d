# SPDX-License-Identifier: Apache-2.0
"""What the slot allocator says about waiting, against what its streams show: port ``waiting`` and
the stall counters."""

from hub_rtl.slot_allocator.records import WaitCause
from sim.quality.coverage import cover

#: Causes that the packet at the outputs has, in the order in which they are told.
OUTPUTS = (WaitCause.DATA, WaitCause.WRITE, WaitCause.REFUSED)
#: Causes of the oldest packet that has not left; those after them belong to one of the records that
#: have begun.
ISSUE = (*OUTPUTS, WaitCause.PAYLOAD, WaitCause.ALLOC)
LOOKUP = (WaitCause.LOOKUP, WaitCause.SPILL, WaitCause.PURGE)
#: What may be told of a slice instead, although it waits for this, too.
BEFORE = {
    WaitCause.SPILL: ISSUE,
    WaitCause.PURGE: (*ISSUE, WaitCause.SPILL, WaitCause.LOOKUP),
    WaitCause.LOOKUP: ISSUE,
}
#: So many cycles beyond its beats may pass without a movement before a packet that is in has to be
#: told what it waits for.
QUIET = 12
#: Records of one beat, and full ones, that a slice has room for; heads that wait before the lookup.
SHORT, FULL, HEADS = 16, 4, 3
#: Cycles that a beat takes to where it is missed.
BEAT_LATENCY = 3
#: Packets that may be looked up and not issued.
COMMANDS = 8


class WaitMonitor:
    """Watches one bench. Causes are checked at once, which row they name when the model has seen
    the packets (``check``)."""

    def __init__(self, rig):
        self.rig = rig
        self._decode = _Cached(
            rig.codec("waiting__0"), lambda fields: (WaitCause(fields["cause"]), fields)
        )
        self._count = _Cached(
            rig.codec("counts"),
            lambda fields: {
                cause: fields[f"stall_{cause.name.lower()}"] for cause in ISSUE + LOOKUP
            },
        )
        self._slices, self._parts = (
            range(rig.cfg.slices),
            rig.cfg.packet_bytes // rig.cfg.slice_bytes,
        )
        self._ports = [f"waiting__{n}" for n in self._slices]
        # The packet before may be sunk while one waits.
        self._limit = QUIET + self._parts
        self.reset()
        for n in self._slices:
            rig.i_record[n].on_item(lambda item, cycle, n=n: self._took(n, item))
        rig.on_sample(self._sample)

    def reset(self):
        """Design and agents start anew."""
        self.heads, self.ends = [0 for _ in self._slices], [0 for _ in self._slices]
        self._arrived = []  # beats of this cycle
        self._part = [None for _ in self._slices]  # of the last beat, if its record goes on
        self._ended = [[0] * BEAT_LATENCY for _ in self._slices]  # ends of the cycles before
        self._silent, self._moved = [0 for _ in self._slices], [None for _ in self._slices]
        self._before = None  # what the streams showed a cycle ago
        self._told = ()  # causes told then
        self._refused = [None for _ in self._slices]  # refusals taken until then
        self._taken = [False for _ in self._slices]  # one was taken then
        self._inside = [0 for _ in self._slices]  # beats that may be inside, at most
        self._beats = [0 for _ in self._slices]  # beats that were out when nothing was inside
        self._moves = [0 for _ in self._slices]  # cycle of a slice's last beat
        self._purging = [0, 0, 0]
        self._clearing = 1
        self.named = set()

    def _took(self, n, item):
        before, part = self._part[n], item["part"]
        self._part[n] = None if item["last"] else part
        # A part that does not come leaves nevertheless.
        self._arrived.append(
            (n, before is None, item["last"], 1 if before is None else part - before)
        )

    def _sample(self, cycle):
        told = [self._decode(self.rig.port_word(port)) for port in self._ports]
        causes = tuple(cause for cause, _ in told)
        if self._before is not None:
            for n in self._slices:
                self._cause(cycle, n, *told[n], self._before[n])
        counts = self._count(self.rig.port_word("counts"))
        if any(counts.values()) or any(self._told):
            self._stalls(cycle, counts)
        self._before, self._told = [self._streams(n) for n in self._slices], causes
        self._clearing = self._clearing and self.rig.get("clearing")
        for n in self._slices:
            assert not (self._clearing and self.rig.i_record[n].port.is_ready()), (
                f"slice {n} takes records while clearing"
            )
            self._input(cycle, n, *self._before[n][1:])
        self._purging = [*self._purging[1:], self.rig.get("purging")]
        for n in self._slices:
            self._ended[n] = [*self._ended[n][1:], self.ends[n]]
        for n, first, last, beats in self._arrived:
            self.heads[n] += first
            self.ends[n] += last
            self._inside[n] += beats
            self._moves[n] = cycle
        self._arrived.clear()

    def _streams(self, n):
        """What the streams of a slice show: the blocked output, items taken, packets issued,
        headers and ends in before."""
        sinks = self.rig.o_data[n], self.rig.o_write[n], self.rig.o_refused[n]
        blocked = [sink._held is not None for sink in sinks]
        counts = [len(sink.items) for sink in sinks]
        # A slice goes on in the cycle after its refusal was taken: it waits in this one too.
        self._taken[n] = not blocked[2] and self._refused[n] not in (None, counts[2])
        waiting = [*blocked[:2], blocked[2] or self._taken[n]]
        self._refused[n] = counts[2]
        first = next((cause for cause, waits in zip(OUTPUTS, waiting, strict=True) if waits), None)
        return first, counts, sum(counts[1:]) + sum(blocked[1:]), self.heads[n], self.ends[n]

    def _cause(self, cycle, n, cause, told, was):
        """``told`` is what the streams of the cycle before, ``was``, allow."""
        first, counts, issued, heads, ends = was
        if not (told["valid"] or cause or first) and ends <= issued:
            return
        where = f"slice {n} in cycle {cycle}: {cause.name}"
        assert told["valid"] == (cause != WaitCause.NONE), where
        assert (cause if cause in OUTPUTS else None) == first, (
            f"{where}, but the streams show {first}"
        )
        if cause == WaitCause.NONE:
            late = ends > issued and counts == self._moved[n]
            self._silent[n] = self._silent[n] + 1 if late else 0
            assert self._silent[n] <= self._limit, f"{where}, but packet {issued} does not leave"
        else:
            low = high = issued
            if cause in OUTPUTS:
                low = high = counts[OUTPUTS.index(cause)] - (
                    cause == WaitCause.REFUSED and self._taken[n]
                )
            elif cause == WaitCause.PAYLOAD:
                low, high = self._ended[n][0], ends
                assert low < heads, f"{where}, but all beats are in"
            elif cause in LOOKUP:
                high = heads - 1
            assert cause in (*OUTPUTS, WaitCause.PAYLOAD) or heads > issued, (
                f"{where}, but no packet is there"
            )
            assert cause != WaitCause.PURGE or self._purging[-1], f"{where}, but nothing is purged"
            self._silent[n] = 0
            self.named.add((n, cause, low, high + 1, told["region"], told["rowid"]))
            cover(f"slot_allocator.waits.{cause.name}")
        self._moved[n] = counts

    def _input(self, cycle, n, counts, issued, heads, ends):
        """A record waits for the heads before it, any beat for room."""
        beats, source = self.rig.o_data[n], self.rig.i_record[n]
        # Two packets may have gone whose beats have not, and some of them are sunk unseen.
        quiet = cycle - max([self._moves[n], *beats.stamps[-1:]]) > self._limit + self._parts
        if issued == heads == ends and beats._held is None and quiet:
            self._inside[n], self._beats[n] = 0, counts[0]  # what was sunk has left, too
        if source._offered is not None and not self._clearing:
            now = beats.stamps[-1:] == [cycle]  # it makes room for the next cycle
            inside = self._inside[n] - (counts[0] - now - self._beats[n])
            free = inside < max(SHORT, FULL * self._parts) and (
                self._part[n] is not None or heads - issued < HEADS
            )
            assert not free, f"slice {n} in cycle {cycle}: a beat waits although there is room"

    def _stalls(self, cycle, counts):
        """A cycle after a cause was told its counter counts the slice; a lookup's waiting may be
        behind an output's."""
        for cause, count in counts.items():
            least = most = self._told.count(cause)
            if cause in LOOKUP:
                most += sum(self._told.count(other) for other in BEFORE[cause])
            if cause == WaitCause.PURGE and not self._purging[-2]:
                most = 0
            assert least <= count <= most, (
                f"cycle {cycle}: {cause.name}: {count} counted, not {least} to {most}"
            )

    def check(self):
        """The rows that were named are those of the packets that waited. The model has seen all
        packets that were sent."""
        for n, each in enumerate(self.rig.model.slices):
            owners = {
                WaitCause.WRITE: [k for k, packet in enumerate(each.packets) if packet["written"]],
                WaitCause.REFUSED: [
                    k for k, packet in enumerate(each.packets) if not packet["written"]
                ],
                WaitCause.DATA: [],
            }
            for k, write in zip(owners[WaitCause.WRITE], each.writes, strict=True):
                owners[WaitCause.DATA] += [k] * write["beats"]
            for _, cause, first, behind, *row in sorted(
                entry for entry in self.named if entry[0] == n
            ):
                span = [owners[cause][first]] if cause in OUTPUTS else range(first, behind)
                packets = [each.packets[k] for k in span if k < len(each.packets)]
                found = [packet for packet in packets if packet["row"] == tuple(row)]
                assert found, (
                    f"slice {n}: {row} is said to wait for {cause.name}, but packets "
                    f"{[*span]} are of {[packet['row'] for packet in packets]}"
                )
                for waits, field in ((WaitCause.ALLOC, "fresh"), (WaitCause.SPILL, "slow")):
                    assert cause != waits or any(packet[field] for packet in found), (
                        f"slice {n}: no packet of {found} had to wait for {cause.name}"
                    )
                assert (
                    cause != WaitCause.LOOKUP
                    or len(packets) > COMMANDS
                    or any(packet["fresh"] or packet["over"] for packet in packets)
                ), f"slice {n}: one of {found} waits for a place although there is one"
        self.named.clear()


class _Cached:
    """Decodes words of a port; the same few come again and again."""

    def __init__(self, codec, then):
        self._codec, self._then, self._known = codec, then, {}

    def __call__(self, raw):
        if raw not in self._known:
            self._known[raw] = self._then(self._codec.unpack(raw))
        return self._known[raw]
