# SPDX-License-Identifier: Apache-2.0
"""AXI agents: device memory with a write log, the spill port's memory, an AXI4-Lite master.

``prefix`` is what stands before the AXI name in Verilog: ``"mem__"`` for a block with a port
``mem``, ``"m_axi_mem0_"`` at the hub's top. All agents use the sampling point of
:mod:`sim.bench.clock`.

The generated wrapper is judged by the models of ``cocotbext-axi`` (``sim/cocotb/wrapper``). The
blocks have these, for what those cannot do:

* memory changes when the *response* is given, after a latency that a test sets or draws. Theirs
  changes with each beat, and answers at once: an acknowledgement that comes before memory's would
  find the bytes there;
* errors by the address of a burst, and a log with the cycles of address and response, from which
  latencies are checked;
* patterns of pauses on each channel that are the same cycle by cycle as those of the block's other
  ports;
* the ports inside the hub are not all AXI: spilled words pass as streams (:class:`SpillMemory`);
* the register master queues reads and writes apart from each other, gives strobes of any kind, and
  fails on an answer that nobody expected to be bad.
"""

from collections import deque

from .streams import SignalPort, StreamPort, StreamSink, StreamSource

__all__ = ["AxiLiteMaster", "AxiMemory", "ByteMemory", "SpillMemory", "axi_port", "spill_port"]

PAGE = 4096
SLVERR = 2


class ByteMemory:
    """Sparse byte-addressed memory. Bytes never written read as ``fill`` and are known as such
    (``written``)."""

    def __init__(self, fill=0xA5):
        self._fill = fill
        self._pages = {}  # number: (bytes, written flags)

    def _page(self, addr):
        number = addr // PAGE
        if number not in self._pages:
            self._pages[number] = (bytearray([self._fill]) * PAGE, bytearray(PAGE))
        return self._pages[number]

    def write(self, addr, data, strobe=None):
        """Writes ``data`` (bytes); bit n of ``strobe`` enables byte n, all by default."""
        for n, byte in enumerate(data):
            if strobe is None or strobe >> n & 1:
                values, flags = self._page(addr + n)
                values[(addr + n) % PAGE] = byte
                flags[(addr + n) % PAGE] = 1

    def read(self, addr, count):
        return bytes(
            self._page(addr + n)[0][(addr + n) % PAGE]
            if (addr + n) // PAGE in self._pages
            else self._fill
            for n in range(count)
        )

    def written(self):
        """``{address: byte}`` of everything written so far."""
        return {
            number * PAGE + n: values[n]
            for number, (values, flags) in self._pages.items()
            for n in range(PAGE)
            if flags[n]
        }


class _Later:
    """Agent that hands things on after a delay, in order. Must be added before the source that it
    feeds."""

    def __init__(self, bench, latency, rng):
        self._bench, self._rng = bench, rng
        self.latency = (latency, latency) if isinstance(latency, int) else tuple(latency)
        self._due = deque()  # (cycle, function)
        bench.add(self)

    def call(self, function):
        low, high = self.latency
        delay = low if low == high else self._rng.randint(low, high)
        self._due.append((self._bench.cycle + delay, function))

    def __len__(self):
        return len(self._due)

    def clear(self, forget=True):
        self._due.clear()

    def drive(self):
        while self._due and self._due[0][0] <= self._bench.cycle:
            self._due.popleft()[1]()

    def sample(self):
        pass

    def __str__(self):
        return f"memory: {len(self._due)} answers under way"


BURST = ("id", "addr", "len", "size", "burst", "cache", "prot")
FIELDS = {
    "aw": BURST,
    "w": ("data", "strb", "last"),
    "b": ("id", "resp"),
    "ar": BURST,
    "r": ("id", "data", "resp", "last"),
}


def axi_port(dut, prefix, channel):
    """A channel of an AXI port, with those fields that the port has."""
    name = f"{prefix}{channel}"
    fields = {field: name + field for field in FIELDS[channel] if hasattr(dut, name + field)}
    return SignalPort(dut, name, f"{name}valid", f"{name}ready", fields)


def spill_port(dut, prefix, channel):
    """A channel of a spill port."""
    return StreamPort(dut, prefix + channel)


class _Agents:
    """Sinks and sources of the channels of one port, as attributes ``aw``, ``w``, ``b``, ``ar``,
    ``r``. ``pause``: a pattern, or patterns by channel (``{"aw": "cyclic"}``)."""

    def __init__(self, bench, prefix, sinks, sources, port, pause, rng):
        for channel in sinks + sources:
            kind = StreamSink if channel in sinks else StreamSource
            pattern = pause.get(channel) if isinstance(pause, dict) else pause
            agent = kind(bench, port(bench.dut, prefix, channel), pause=pattern, rng=rng)
            setattr(self, channel, agent)


class _Memory(_Agents):
    """What the memories have in common: the answers, after a delay; the logs; what reset forgets.

    Parameters: ``memory``, a :class:`ByteMemory`, shared by several ports if wanted; ``latency``,
    cycles from the last beat to the response, a number or (least, most), ``rng`` draws; ``pause``,
    see ``pause_pattern``, of all channels or by channel; ``error``, function of (address, length in
    bytes): true answers SLVERR and leaves memory alone.
    """

    def __init__(self, bench, prefix, channels, port, memory, latency, pause, rng, error):
        self.bench, self.memory = bench, memory
        self.writes, self.reads = [], []
        self.error = error or (lambda addr, length: False)
        self._addresses, self._beats = deque(), []
        bench.add(self)
        self.later_b, self.later_r = _Later(bench, latency, rng), _Later(bench, latency, rng)
        sinks, sources = (
            [c for c in group if c in channels] for group in (("aw", "w", "ar"), "br")
        )
        super().__init__(bench, prefix, sinks, sources, port, pause, rng)

    def clear(self, forget=True):
        """Reset: what was accepted and not answered is forgotten, memory keeps what was
        answered."""
        self._addresses.clear()
        self._beats.clear()

    def drive(self):
        pass

    def sample(self):
        pass

    def __str__(self):
        return f"memory: {len(self._addresses)} writes without data"


class AxiMemory(_Memory):
    """AXI4 memory at a write port, or at a read and write port (found by looking for ``arvalid``).

    A write changes ``memory`` only when its response is given: what is announced as ready too early
    is seen to be missing. Responses are in order (one ID). Checked: INCR bursts of full beats, no
    burst across 4 KiB, ``wlast`` on the last beat and only there, no data before memory could know
    its address (data may come with or after the address).

    Parameters: see :class:`_Memory`. Attributes: ``writes``, the log: {addr, data, strb, error, aw,
    b} with the cycles of the address and of the response; ``reads`` likewise; ``outstanding``,
    writes accepted and not answered; ``most_outstanding``.
    """

    def __init__(self, bench, prefix, *, memory=None, latency=4, pause=None, rng=None, error=None):
        memory = ByteMemory() if memory is None else memory
        reads = hasattr(bench.dut, f"{prefix}arvalid")
        channels = ("aw", "w", "b", *(("ar", "r") if reads else ()))
        super().__init__(bench, prefix, channels, axi_port, memory, latency, pause, rng, error)
        self.outstanding = self.most_outstanding = 0
        self._prefix = prefix
        self._unanswered = deque()
        self._bytes = len(getattr(bench.dut, f"{prefix}wdata")) // 8
        self.aw.on_item(self._address)
        self.w.on_item(self._beat)
        self.b.on_item(self._answered)
        if reads:
            self.ar.on_item(self._read)

    def clear(self, forget=True):
        super().clear(forget)
        self.outstanding = 0
        self._unanswered.clear()

    @property
    def idle(self):
        """Nothing accepted is unanswered."""
        return not self._addresses and not self._beats and self.outstanding == 0

    def _burst(self, item):
        length = (item.get("len", 0) + 1) * self._bytes
        where = f"{self._prefix}: burst of {length} bytes at {item['addr']:#x}"
        assert item.get("burst", 1) == 1, f"{where}: not INCR"
        assert 1 << item.get("size", self._bytes.bit_length() - 1) == self._bytes, (
            f"{where}: size is not the full data width"
        )
        assert item["addr"] % self._bytes == 0, f"{where}: not aligned"
        assert item["addr"] // PAGE == (item["addr"] + length - 1) // PAGE, (
            f"{where}: crosses 4 KiB"
        )
        return length

    def _address(self, item, cycle):
        self._burst(item)
        self._addresses.append((item, cycle))
        self.outstanding += 1
        self.most_outstanding = max(self.most_outstanding, self.outstanding)
        self._join()

    def _beat(self, item, cycle):
        self._beats.append(item)
        self._join()

    def _join(self):
        while self._addresses:
            item, cycle = self._addresses[0]
            count = item.get("len", 0) + 1
            beats = self._beats[:count]
            for n, beat in enumerate(beats):
                assert beat.get("last", n == count - 1) == (n == count - 1), (
                    f"{self._prefix}: wlast is {beat['last']} on beat {n} of {count} at "
                    f"{item['addr']:#x}"
                )
            if len(beats) < count:
                return
            del self._beats[:count]
            self._addresses.popleft()
            data = b"".join(beat["data"].to_bytes(self._bytes, "little") for beat in beats)
            strobe = sum(beat["strb"] << n * self._bytes for n, beat in enumerate(beats))
            entry = {
                "addr": item["addr"],
                "data": data,
                "strb": strobe,
                "error": bool(self.error(item["addr"], len(data))),
                "aw": cycle,
                "b": None,
                "id": item.get("id", 0),
            }
            self.later_b.call(lambda entry=entry: self._answer(entry))

    def _answer(self, entry):
        if not entry["error"]:
            self.memory.write(entry["addr"], entry["data"], entry["strb"])
        self.writes.append(entry)
        self._unanswered.append(entry)
        self.b.put(
            {
                "resp": SLVERR if entry["error"] else 0,
                **({"id": entry["id"]} if "id" in self.b.port.fields else {}),
            }
        )

    def _answered(self, item, cycle):
        self.outstanding -= 1
        self._unanswered.popleft()["b"] = cycle

    def _read(self, item, cycle):
        length = self._burst(item)
        self.reads.append({"addr": item["addr"], "length": length, "ar": cycle})
        error = bool(self.error(item["addr"], length))

        def answer():
            for n in range(0, length, self._bytes):
                beat = {
                    "data": int.from_bytes(
                        self.memory.read(item["addr"] + n, self._bytes), "little"
                    ),
                    "resp": SLVERR if error else 0,
                    "last": int(n + self._bytes == length),
                    "id": item.get("id", 0),
                }
                self.r.put({key: value for key, value in beat.items() if key in self.r.port.fields})

        self.later_r.call(answer)


class SpillMemory(_Memory):
    """64-bit memory at the spill streams ``<prefix>aw``, ``w``, ``b``, ``ar``, ``r`` (see
    ``hub_rtl.contract.axi.SpillSignature``).

    Addresses must be multiples of 8. A write changes memory when its response is given; parameters
    as for :class:`_Memory`; ``writes`` and ``reads`` as for :class:`AxiMemory`, 8 bytes each.
    """

    def __init__(self, bench, prefix, *, memory=None, latency=6, pause=None, rng=None, error=None):
        memory = ByteMemory(0) if memory is None else memory
        super().__init__(bench, prefix, FIELDS, spill_port, memory, latency, pause, rng, error)
        self.aw.on_item(lambda addr, cycle: self._take(self._addresses, self._check(addr)))
        self.w.on_item(lambda word, cycle: self._take(self._beats, word))
        self.ar.on_item(self._read)

    def _check(self, addr):
        assert addr % 8 == 0, f"spill address {addr:#x} is not a multiple of 8"
        return addr

    def _take(self, queue, item):
        queue.append(item)
        while self._addresses and self._beats:
            addr, word = self._addresses.popleft(), self._beats.pop(0)
            self.later_b.call(lambda addr=addr, word=word: self._answer(addr, word))

    def _answer(self, addr, word):
        error = bool(self.error(addr, 8))
        if not error:
            self.memory.write(addr, word.to_bytes(8, "little"))
        self.writes.append({"addr": addr, "word": word, "error": error})
        self.b.put(SLVERR if error else 0)

    def _read(self, addr, cycle):
        self._check(addr)
        self.reads.append({"addr": addr, "ar": cycle})
        code = SLVERR if self.error(addr, 8) else 0
        self.later_r.call(
            lambda: self.r.put(int.from_bytes(self.memory.read(addr, 8), "little") | code << 64)
        )

    @property
    def idle(self):
        waiting = (self._addresses, self._beats, self.later_b, self.later_r)
        return not (any(map(len, waiting)) or self.b.pending or self.r.pending)


class AxiLiteMaster(_Agents):
    """AXI4-Lite master: ``await read(addr)``, ``await write(addr, data)``; one access at a time,
    or any number queued with ``put_read`` and ``put_write``.

    An answer that is not OKAY fails the test; ``read_resp`` and ``write_resp`` return it instead.
    """

    def __init__(self, bench, prefix, pause=None, rng=None):
        dut = bench.dut
        super().__init__(bench, prefix, ["b", "r"], ["aw", "w", "ar"], axi_port, pause, rng)
        self._strobe = (1 << len(getattr(dut, f"{prefix}wdata")) // 8) - 1

    def put_write(self, addr, data, strobe=None):
        self.aw.put({"addr": addr})
        self.w.put({"data": data, "strb": self._strobe if strobe is None else strobe})

    def put_read(self, addr):
        self.ar.put({"addr": addr})

    async def write_resp(self, addr, data, strobe=None):
        """Writes; returns the response code."""
        self.put_write(addr, data, strobe)
        return (await self.b.recv())["resp"]

    async def read_resp(self, addr):
        """Reads; returns (data, response code)."""
        self.put_read(addr)
        answer = await self.r.recv()
        return answer["data"], answer["resp"]

    async def write(self, addr, data, strobe=None):
        resp = await self.write_resp(addr, data, strobe)
        assert resp == 0, f"write of {data:#x} to CSR {addr:#x} was answered with {resp}"

    async def read(self, addr):
        data, resp = await self.read_resp(addr)
        assert resp == 0, f"read of CSR {addr:#x} was answered with {resp}"
        return data
