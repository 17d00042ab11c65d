# SPDX-License-Identifier: Apache-2.0
"""The rules of AXI, watched: a monitor written from the specification alone (AMBA AXI and ACE,
IHI 0022, chapter A3; AXI4-Stream, IHI 0051, section 2.2). It knows nothing of hubs.

It judges both ends of a port: a model that breaks a rule is named like a design that does.
"""

from cocotb.triggers import FallingEdge

from sim.bench.ports import reader

__all__ = ["Monitor", "ProtocolError", "ReadPort", "Stream", "WritePort"]

PAGE = 4096  # A3.4.1: no burst crosses it
INCR = 1


class ProtocolError(AssertionError):
    """A rule was broken; the text names the port, the rule and the values."""


class Channel:
    """One handshake, its payload by field. A3.2.1: once valid, it stays valid until taken and does
    not change. Not a rule of AXI: it is taken within ``patience`` cycles, or is lost."""

    def __init__(self, dut, name, fields, patience):
        self.name, self._patience = name, patience
        self._valid, self._ready = (reader(getattr(dut, name + end)) for end in ("valid", "ready"))
        self._fields = {
            field: reader(getattr(dut, name + field))
            for field in fields
            if hasattr(dut, name + field)
        }
        self.clear()

    def clear(self):
        self._held, self._waited = None, 0
        self.offered = False

    def wrong(self, what):
        raise ProtocolError(f"{self.name}: {what}")

    def quiet(self):
        """In reset: A3.1.2, nothing is offered."""
        self.clear()
        if self._valid():
            self.wrong("valid during reset")

    def sample(self):
        """The payload if it is taken in this cycle."""
        self.offered = bool(self._valid())
        if not self.offered:
            if self._held is not None:
                self.wrong(f"valid was withdrawn, {self._held} was not taken yet")
            return None
        item = {field: read() for field, read in self._fields.items()}
        if self._held not in (None, item):
            self.wrong(f"changed while it waited: {self._held} became {item}")
        if self._ready():
            self._held, self._waited = None, 0
            return item
        self._held, self._waited = item, self._waited + 1
        if self._waited > self._patience:
            self.wrong(f"{item} was not taken within {self._patience} cycles")
        return None


class Stream:
    """AXI4-Stream: the handshake."""

    def __init__(self, dut, name, patience):
        self.channels = [Channel(dut, f"{name}_t", ("data", "last", "dest"), patience)]

    def sample(self):
        self.channels[0].sample()

    def idle(self):
        pass


class _Port:
    """The bursts of one direction."""

    def __init__(self, dut, name, patience, **channels):
        self.name = name
        self._bytes = len(getattr(dut, f"{name}_wdata")) // 8
        self.channels = []
        for channel, fields in channels.items():
            made = Channel(dut, f"{name}_{channel}", fields, patience)
            setattr(self, channel, made)
            self.channels.append(made)
        self.clear()

    def _length(self, channel, item):
        """Beats of the burst of an address; A3.4.1."""
        beats, size = item.get("len", 0) + 1, 1 << item.get("size", self._bytes.bit_length() - 1)
        if size > self._bytes:
            channel.wrong(f"{item}: beats wider than the port")
        first = item["addr"] // size * size
        if item.get("burst", INCR) == INCR and first // PAGE != (first + beats * size - 1) // PAGE:
            channel.wrong(f"{item}: crosses a boundary of {PAGE} bytes")
        return beats


ADDRESS = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos", "region")


class WritePort(_Port):
    """Channels AW, W, B of AXI4 or AXI4-Lite. A3.4.1: WLAST with the last beat and only there.
    A3.3.1: a response comes after the address and the last beat were taken. Every burst gets
    one."""

    def __init__(self, dut, name, patience):
        super().__init__(
            dut, name, patience, aw=ADDRESS, w=("data", "strb", "last"), b=("id", "resp")
        )

    def clear(self):
        self._lengths = []  # of bursts whose data are not complete
        self._beats = []  # `last` of beats that belong to none of those that are
        self._unanswered = 0

    def sample(self):
        response = self.b.sample()
        if self.b.offered and not self._unanswered:
            self.b.wrong("a response, and no burst with its address and all its data")
        self._unanswered -= response is not None
        address, beat = self.aw.sample(), self.w.sample()
        if address is not None:
            self._lengths.append(self._length(self.aw, address))
        if beat is not None:
            self._beats.append(beat.get("last"))
        while self._lengths and self._beats:
            count = self._lengths[0]
            for n, last in enumerate(self._beats[:count]):
                if last not in (None, n + 1 == count):
                    self.w.wrong(f"last is {last} with beat {n + 1} of {count}")
            if len(self._beats) < count:
                break
            del self._beats[:count]
            del self._lengths[0]
            self._unanswered += 1

    def idle(self):
        """At the end: nothing is under way."""
        if self._lengths or self._beats or self._unanswered:
            raise ProtocolError(
                f"{self.name}: {len(self._lengths)} bursts without all their data, "
                f"{len(self._beats)} beats without a burst, {self._unanswered} without a response"
            )


class ReadPort(_Port):
    """Channels AR, R. A3.3.1: data come after their address was taken; A3.4.1: as many beats as
    were asked for, RLAST with the last."""

    def __init__(self, dut, name, patience):
        super().__init__(dut, name, patience, ar=ADDRESS, r=("id", "data", "resp", "last"))

    def clear(self):
        self._left = []  # beats to come of each burst

    def sample(self):
        beat = self.r.sample()
        if self.r.offered and not self._left:
            self.r.wrong("data, and no address was taken")
        if beat is not None:
            self._left[0] -= 1
            if beat.get("last", not self._left[0]) != (not self._left[0]):
                self.r.wrong(f"last is {beat['last']} with {self._left[0]} beats to come")
            if not self._left[0]:
                del self._left[0]
        address = self.ar.sample()
        if address is not None:
            self._left.append(self._length(self.ar, address))

    def idle(self):
        if self._left:
            raise ProtocolError(f"{self.name}: {len(self._left)} reads without all their data")


class Monitor:
    """Watches ports in every cycle, at the falling edge: what is seen there is what both ends see
    at the next rising edge. ``reset`` is active low; its first cycle is not looked at, in which
    registers still show what they held."""

    def __init__(self, clock, reset, ports):
        self._clock, self._reset, self._ports = clock, reader(reset), ports

    async def run(self):
        edge, resetting = FallingEdge(self._clock), True
        while True:
            await edge
            before, resetting = resetting, not self._reset()
            for port in self._ports:
                if not resetting:
                    port.sample()
                    continue
                for channel in port.channels:
                    channel.quiet() if before else channel.clear()
                if hasattr(port, "clear"):
                    port.clear()

    def idle(self):
        """At the end of a test."""
        for port in self._ports:
            port.idle()
