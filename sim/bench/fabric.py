# SPDX-License-Identifier: Apache-2.0
"""The fabric between hubs: a switch per lane, for benches with several hubs (or links) in one
design.

Store and forward: a packet is taken whole from an output port of the design, waits ``latency``
cycles and leaves at the input port of its destination on the same lane, in order per destination.
The switch is a hop of its own, so it stamps ``seq`` anew on each of its outputs. It has room for
everything: what must not overflow is behind the far hub's credits.
"""

from collections import Counter, deque

from hub_rtl.contract.packets import HEADER, unpack

from .ports import reader
from .streams import pause_pattern

__all__ = ["Switch", "corrupt", "drop", "duplicate", "shorten"]

SEQ_LOW, SEQ_WIDTH = HEADER["seq"]


def drop(flits):
    """Fault: the packet is lost."""
    return []


def duplicate(flits):
    """Fault: the packet comes twice, with the same sequence number."""
    return [flits, flits]


def corrupt(mask):
    """Fault: these bits of the header are flipped."""
    return lambda flits: [[flits[0] ^ mask, *flits[1:]]]


def shorten(count):
    """Fault: only the first ``count`` flits come."""
    return lambda flits: [flits[:count]]


class _Port:
    """Signals of an AXI-Stream port of the design."""

    def __init__(self, dut, prefix):
        self.data, self.valid = getattr(dut, prefix + "tdata"), getattr(dut, prefix + "tvalid")
        self.last, self.ready = getattr(dut, prefix + "tlast"), getattr(dut, prefix + "tready")
        self.is_valid, self.is_ready = reader(self.valid), reader(self.ready)
        self.clear()

    def clear(self):
        self.flits, self.driven = deque(), None


class _Output(_Port):
    """Output port of the switch: drives an AXI-Stream input of the design."""

    def clear(self):
        super().clear()
        self.packets = deque()  # (due cycle, flits)
        self.seq, self.offered = 0, False
        self.valid.value = 0


class _Input(_Port):
    """Input port of the switch: takes from an AXI-Stream output of the design."""

    def __init__(self, dut, prefix):
        super().__init__(dut, prefix)
        self.read_data, self.is_last = reader(self.data), reader(self.last)
        self.read_dest = reader(getattr(dut, prefix + "tdest"))


class Switch:
    """Connects ``ranks`` x ``lanes`` ports of one design; an agent of a
    :class:`~sim.bench.clock.Bench`.

    Parameters: ``bench``; ``ranks``, ``lanes``; ``tx``, ``rx``, functions of (rank, lane) that give
    the prefix before ``tdata`` of the design's output and input (``lambda rank, lane:
    f"h{rank}_m_axis_link{lane}_"``); ``latency``, cycles from the last flit in to the first flit
    out, a number or (least, most), at least 1, drawn from ``rng``; ``pause_tx``, back-pressure on
    the design's outputs; ``pause_rx``, gaps between flits to the design's inputs, patterns as
    ``pause_pattern``.

    Faults: ``fault`` is None or a function of (src, dst, lane, flits) that returns None (leave it)
    or one of :func:`drop`, :func:`duplicate`, :func:`corrupt`, :func:`shorten`; it acts after the
    stamping. ``stall_tx`` and ``stall_rx`` are sets of (rank, lane) whose output is not taken,
    whose input gets nothing (from the next packet on). ``packets`` counts what was delivered by
    (src, dst, lane), ``faults`` what a fault hit. ``idle``: nothing is inside.
    """

    def __init__(
        self,
        bench,
        ranks,
        lanes,
        tx,
        rx,
        *,
        latency=4,
        rng=None,
        pause_tx=None,
        pause_rx=None,
        fault=None,
    ):
        self.bench, self.fault = bench, fault
        self.stall_tx, self.stall_rx = set(), set()
        self.packets, self.faults = Counter(), Counter()
        self._rng = rng
        names = [(rank, lane) for rank in range(ranks) for lane in range(lanes)]
        self._inputs = {name: _Input(bench.dut, tx(*name)) for name in names}
        self._outputs = {name: _Output(bench.dut, rx(*name)) for name in names}
        self.set_pauses(latency, pause_tx, pause_rx)
        bench.add(self)

    def set_pauses(self, latency, pause_tx=None, pause_rx=None):
        """Other latency and patterns from now on."""
        self._latency = (latency, latency) if isinstance(latency, int) else tuple(latency)
        for ports, pause in ((self._inputs, pause_tx), (self._outputs, pause_rx)):
            for port in ports.values():
                port.pause = pause_pattern(pause, self._rng)

    @property
    def idle(self):
        return not any(port.flits for port in self._inputs.values()) and not any(
            port.packets or port.flits or port.offered for port in self._outputs.values()
        )

    def clear(self, forget=True):
        """Reset: what is inside is lost."""
        for port in (*self._inputs.values(), *self._outputs.values()):
            port.clear()

    def drive(self):
        for name, port in self._inputs.items():
            ready = int(not next(port.pause) and name not in self.stall_tx)
            if ready != port.driven:
                port.ready.value = port.driven = ready
        for name, port in self._outputs.items():
            self._offer(name, port, next(port.pause))

    def _offer(self, name, port, pause):
        if not port.offered and not pause:
            if (
                not port.flits
                and port.packets
                and port.packets[0][0] <= self.bench.cycle
                and name not in self.stall_rx
            ):
                self._stamp(name, port)
            if port.flits:
                port.data.value, port.last.value = port.flits[0], int(self._ends(port))
                port.offered = True
        if port.driven != port.offered:
            port.valid.value = int(port.offered)
            port.driven = port.offered

    @staticmethod
    def _ends(port):
        return len(port.flits) == 1 or port.flits[1] is None

    def _stamp(self, name, port):
        """The next packet takes its number; a fault may then change, double or remove it."""
        _, flits = port.packets.popleft()
        fields = unpack(HEADER, flits[0])
        flits = [flits[0] & ~(((1 << SEQ_WIDTH) - 1) << SEQ_LOW) | port.seq << SEQ_LOW, *flits[1:]]
        port.seq = (port.seq + 1) % (1 << SEQ_WIDTH)
        key = (fields["src"], *name)
        self.packets[key] += 1
        fault = self.fault(*key, flits) if self.fault is not None else None
        self.faults[key] += fault is not None
        for each in [flits] if fault is None else fault(flits):
            port.flits.extend([*each, None])  # None: end of the packet

    def sample(self):
        for (_, lane), port in self._inputs.items():
            if port.driven and port.is_valid():
                self.bench.moved()
                port.flits.append(port.read_data())
                if port.is_last():
                    low, high = self._latency
                    wait = low if low == high else self._rng.randint(low, high)
                    target = self._outputs[port.read_dest(), lane]
                    due = max(
                        self.bench.cycle + wait, target.packets[-1][0] if target.packets else 0
                    )
                    target.packets.append((due, list(port.flits)))
                    port.flits = deque()
        for port in self._outputs.values():
            if port.offered and port.is_ready():
                self.bench.moved()
                port.offered = False
                port.flits.popleft()
                if port.flits and port.flits[0] is None:
                    port.flits.popleft()

    def __str__(self):
        waiting = {
            name: len(port.packets)
            for name, port in self._outputs.items()
            if port.packets or port.flits
        }
        return (
            f"switch: packets waiting by (rank, lane): {waiting}, stalled: "
            f"{self.stall_tx | self.stall_rx or 'none'}"
        )
