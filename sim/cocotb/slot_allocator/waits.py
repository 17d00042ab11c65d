# SPDX-License-Identifier: Apache-2.0
"""What the slot allocator says about waiting, against what its streams show: port ``waiting`` and
the stall counters."""

from hub_rtl.slot_allocator.records import WaitCause
from sim.quality.coverage import cover

#: Causes that the packet at the outputs has, in the order in which they are told.
OUTPUTS = (WaitCause.DATA, WaitCause.WRITE, WaitCause.REFUSED)
#: Causes of the oldest packet that has not left; those after them belong to one whose header is in.
ISSUE = (*OUTPUTS, WaitCause.PAYLOAD, WaitCause.ALLOC)
LOOKUP = (WaitCause.LOOKUP, WaitCause.SPILL, WaitCause.PURGE)
#: What may be told of a slice instead, although it waits for this, too.
BEFORE = {
    WaitCause.SPILL: ISSUE,
    WaitCause.PURGE: (*ISSUE, WaitCause.SPILL, WaitCause.LOOKUP),
    WaitCause.LOOKUP: ISSUE,
}
#: So many cycles beyond its flits may pass without a movement before a packet that is in has to be
#: told what it waits for.
QUIET = 10
#: Packet ends that a slice has room for, and full packets of payload.
ENDS, PACKETS = 8, 4
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
        self._slices = range(rig.cfg.slices)
        self._ports = [getattr(rig.dut, f"waiting__{n}") for n in self._slices]
        # The packet before may be sunk while one waits.
        self._limit = QUIET + rig.cfg.packet_flits + rig.cfg.mask_flits
        self.reset()
        for n in self._slices:
            rig.i_packet[n].on_item(lambda item, cycle, n=n: self._took(n, item))
        rig.on_sample(self._sample)

    def reset(self):
        """Design and agents start anew."""
        self.heads, self.ends = [0 for _ in self._slices], [0 for _ in self._slices]
        self._arrived = []  # headers and ends of this cycle
        self._silent, self._moved = [0 for _ in self._slices], [None for _ in self._slices]
        self._before = None  # what the streams showed a cycle ago
        self._told = ()  # causes told then
        self._refused = [None for _ in self._slices]  # refusals taken until then
        self._taken = [False for _ in self._slices]  # one was taken then
        self._flits = [0 for _ in self._slices]  # of payload and masks that may be inside, at most
        self._beats = [0 for _ in self._slices]  # beats that were out when nothing was inside
        self._moves = [0 for _ in self._slices]  # cycle of a slice's last flit
        self._purging = [0, 0, 0]
        self._clearing = 1
        self.named = set()

    def _took(self, n, item):
        if not (item["first"] and item["last"]):  # a header without payload is dropped
            self._arrived.append((n, item["first"], item["last"]))

    def _sample(self, cycle):
        told = [self._decode(int(port.value)) for port in self._ports]
        causes = tuple(cause for cause, _ in told)
        if self._before is not None:
            for n in self._slices:
                self._cause(cycle, n, *told[n], self._before[n])
        counts = self._count(int(self.rig.dut.counts.value))
        if any(counts.values()) or any(self._told):
            self._stalls(cycle, counts)
        self._before, self._told = [self._streams(n) for n in self._slices], causes
        self._clearing = self._clearing and self.rig.get("clearing")
        for n in self._slices:
            assert not (self._clearing and int(self.rig.i_packet[n].port.ready.value)), (
                f"slice {n} takes packets while clearing"
            )
            self._input(cycle, n, *self._before[n][1:])
        self._purging = [*self._purging[1:], self.rig.get("purging")]
        for n, first, last in self._arrived:
            self.heads[n] += first
            self.ends[n] += last
            self._flits[n] += not first
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
            which = counts[OUTPUTS.index(cause)] if cause in OUTPUTS else issued
            which -= cause == WaitCause.REFUSED and self._taken[n]
            last = heads if cause in LOOKUP else which + 1
            assert cause in OUTPUTS or heads > issued, f"{where}, but no packet is there"
            assert cause != WaitCause.PAYLOAD or ends <= issued, f"{where}, but the packet is in"
            assert cause != WaitCause.PURGE or self._purging[-1], f"{where}, but nothing is purged"
            self._silent[n] = 0
            self.named.add((n, cause, which, last, told["region"], told["rowid"]))
            cover(f"slot_allocator.waits.{cause.name}")
        self._moved[n] = counts

    def _input(self, cycle, n, counts, issued, heads, ends):
        """A header waits only for the one before to be looked up, another flit only for room."""
        beats, source, room = (
            self.rig.o_data[n],
            self.rig.i_packet[n],
            PACKETS * self.rig.cfg.packet_flits,
        )
        if issued == heads == ends and beats._held is None and cycle - self._moves[n] > self._limit:
            self._flits[n], self._beats[n] = 0, counts[0]  # what was sunk has left, too
        if source._offered is not None and not self._clearing:
            inside = self._flits[n] - (counts[0] + (beats._held is not None) - self._beats[n])
            free = (
                heads == issued
                if source._offered[1]["first"]
                else ends - issued < ENDS and inside < room
            )
            assert not free, f"slice {n} in cycle {cycle}: a flit waits although there is room"

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
            for _, cause, which, last, region, rowid in sorted(
                entry for entry in self.named if entry[0] == n
            ):
                span = range(which, last)
                if cause in OUTPUTS:
                    span = owners[cause][which : which + 1]
                packets = [each.packets[k] for k in span]
                found = [packet for packet in packets if packet["row"] == (region, rowid)]
                assert found, (
                    f"slice {n}: {(region, rowid)} is said to wait for {cause.name}, but packets "
                    f"{span} are of {[packet['row'] for packet in packets]}"
                )
                for cause_, field in (
                    (WaitCause.ALLOC, "fresh"),
                    (WaitCause.SPILL, "slow"),
                ):
                    assert cause != cause_ or any(packet[field] for packet in found), (
                        f"slice {n}: no packet of {found} had to wait for {cause.name}"
                    )
                assert (
                    cause != WaitCause.LOOKUP
                    or len(span) > COMMANDS
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
