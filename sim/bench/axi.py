# SPDX-License-Identifier: Apache-2.0
"""AXI agents: device memory with a write log, the spill port's memory, an AXI4-Lite master.

``prefix`` is what stands before the AXI name in Verilog: ``"mem__"`` for a block with a port
``mem``, ``"m_axi_mem0_"`` at the hub's top. All agents use the sampling point of
:mod:`sim.bench.clock`.
"""

from collections import deque

from .streams import SignalPort, StreamPort, StreamSink, StreamSource

__all__ = ["AxiLiteMaster", "AxiMemory", "ByteMemory", "SpillMemory"]

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

    def __init__(self, bench, latency, rng, on_clear):
        self._bench, self._latency, self._rng, self._on_clear = bench, latency, rng, on_clear
        self._due = deque()  # (cycle, function)
        bench.add(self)

    def call(self, function):
        low, high = self._latency
        self._due.append(
            (self._bench.cycle + (low if low == high else self._rng.randint(low, high)), function)
        )

    def __len__(self):
        return len(self._due)

    def clear(self, forget=True):
        self._due.clear()
        self._on_clear()

    def drive(self):
        while self._due and self._due[0][0] <= self._bench.cycle:
            self._due.popleft()[1]()

    def sample(self):
        pass

    def __str__(self):
        return f"memory: {len(self._due)} answers under way"


def _latency(latency):
    return (latency, latency) if isinstance(latency, int) else tuple(latency)


class AxiMemory:
    """AXI4 memory at a write port, or at a read and write port (found by looking for ``arvalid``).

    A write changes ``memory`` only when its response is given: what is announced as ready too early
    is seen to be missing. Responses are in order (one ID). Checked: INCR bursts of full beats, no
    burst across 4 KiB, ``wlast`` on the last beat and only there, no data before memory could know
    its address (data may come with or after the address).

    Parameters: ``memory``, a :class:`ByteMemory`, shared by several ports if wanted; ``latency``,
    cycles from the last beat to the response, a number or (least, most), ``rng`` draws; ``pause``,
    patterns by channel (``{"aw": "cyclic"}``), see ``pause_pattern``; ``error``, function of
    (address, length in bytes): true answers SLVERR and leaves memory alone. Attributes: ``writes``,
    the log: {addr, data, strb, error, aw, b} with the cycles of the address and of the response;
    ``reads`` likewise; ``outstanding``, writes accepted and not answered; ``most_outstanding``.
    """

    def __init__(self, bench, prefix, *, memory=None, latency=4, pause=None, rng=None, error=None):
        self.bench, self.memory = bench, memory if memory is not None else ByteMemory()
        self.writes, self.reads = [], []
        self.outstanding = self.most_outstanding = 0
        self.error = error or (lambda addr, length: False)
        self._prefix = prefix
        self._addresses, self._beats, self._unanswered = deque(), [], deque()
        pause = pause or {}
        dut = bench.dut

        def port(channel, *fields):
            present = {
                field: f"{prefix}{channel}{field}"
                for field in fields
                if hasattr(dut, f"{prefix}{channel}{field}")
            }
            return SignalPort(
                dut,
                f"{prefix}{channel}",
                f"{prefix}{channel}valid",
                f"{prefix}{channel}ready",
                present,
            )

        self._later_b = _Later(bench, _latency(latency), rng, self._clear)
        burst = ("id", "addr", "len", "size", "burst", "cache", "prot")
        self.aw = StreamSink(bench, port("aw", *burst), pause=pause.get("aw"), rng=rng)
        self.w = StreamSink(bench, port("w", "data", "strb", "last"), pause=pause.get("w"), rng=rng)
        self.b = StreamSource(bench, port("b", "id", "resp"), pause=pause.get("b"), rng=rng)
        self._bytes = len(getattr(dut, f"{prefix}wdata")) // 8
        self.aw.on_item(self._address)
        self.w.on_item(self._beat)
        self.b.on_item(self._answered)
        if hasattr(dut, f"{prefix}arvalid"):
            self._later_r = _Later(bench, _latency(latency), rng, self._clear)
            self.ar = StreamSink(bench, port("ar", *burst), pause=pause.get("ar"), rng=rng)
            self.r = StreamSource(
                bench, port("r", "id", "data", "resp", "last"), pause=pause.get("r"), rng=rng
            )
            self.ar.on_item(self._read)

    def _clear(self):
        """Reset: what was accepted and not answered is forgotten, memory keeps what was
        answered."""
        self._addresses.clear()
        self._beats.clear()
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
            self._later_b.call(lambda entry=entry: self._answer(entry))

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

        self._later_r.call(answer)


class SpillMemory:
    """64-bit memory at the spill streams ``<prefix>aw``, ``w``, ``b``, ``ar``, ``r`` (see
    ``hub_rtl.contract.axi.SpillSignature``).

    Addresses must be multiples of 8. A write changes memory when its response is given; parameters,
    ``writes`` and ``reads`` as for :class:`AxiMemory`, 8 bytes each.
    """

    def __init__(self, bench, prefix, *, memory=None, latency=6, pause=None, rng=None, error=None):
        self.bench, self.memory = bench, memory if memory is not None else ByteMemory(0)
        self.writes, self.reads = [], []
        self.error = error or (lambda addr, length: False)
        self._addresses, self._words = deque(), deque()
        pause = pause or {}
        self._later_b = _Later(bench, _latency(latency), rng, self._clear)
        self._later_r = _Later(bench, _latency(latency), rng, self._clear)
        dut = bench.dut
        self.aw = StreamSink(bench, StreamPort(dut, f"{prefix}aw"), pause=pause.get("aw"), rng=rng)
        self.w = StreamSink(bench, StreamPort(dut, f"{prefix}w"), pause=pause.get("w"), rng=rng)
        self.b = StreamSource(bench, StreamPort(dut, f"{prefix}b"), pause=pause.get("b"), rng=rng)
        self.ar = StreamSink(bench, StreamPort(dut, f"{prefix}ar"), pause=pause.get("ar"), rng=rng)
        self.r = StreamSource(bench, StreamPort(dut, f"{prefix}r"), pause=pause.get("r"), rng=rng)
        self.aw.on_item(lambda addr, cycle: self._take(self._addresses, self._check(addr)))
        self.w.on_item(lambda word, cycle: self._take(self._words, word))
        self.ar.on_item(self._read)

    def _clear(self):
        self._addresses.clear()
        self._words.clear()

    def _check(self, addr):
        assert addr % 8 == 0, f"spill address {addr:#x} is not a multiple of 8"
        return addr

    def _take(self, queue, item):
        queue.append(item)
        while self._addresses and self._words:
            addr, word = self._addresses.popleft(), self._words.popleft()
            self._later_b.call(lambda addr=addr, word=word: self._answer(addr, word))

    def _answer(self, addr, word):
        error = bool(self.error(addr, 8))
        if not error:
            self.memory.write(addr, word.to_bytes(8, "little"))
        self.writes.append({"addr": addr, "word": word, "error": error})
        self.b.put(SLVERR if error else 0)

    def _read(self, addr, cycle):
        self._check(addr)
        self.reads.append({"addr": addr, "ar": cycle})
        error = bool(self.error(addr, 8))
        self._later_r.call(
            lambda: self.r.put(
                int.from_bytes(self.memory.read(addr, 8), "little") | (SLVERR if error else 0) << 64
            )
        )

    @property
    def idle(self):
        return not (
            self._addresses
            or self._words
            or len(self._later_b)
            or len(self._later_r)
            or self.b.pending
            or self.r.pending
        )


class AxiLiteMaster:
    """AXI4-Lite master: ``await read(addr)``, ``await write(addr, data)``; one access at a time.

    An answer that is not OKAY fails the test; ``read_resp`` and ``write_resp`` return it instead.
    """

    def __init__(self, bench, prefix, pause=None, rng=None):
        dut = bench.dut
        pause = pause or {}

        def port(channel, *fields):
            return SignalPort(
                dut,
                f"{prefix}{channel}",
                f"{prefix}{channel}valid",
                f"{prefix}{channel}ready",
                {field: f"{prefix}{channel}{field}" for field in fields},
            )

        self._aw = StreamSource(bench, port("aw", "addr"), pause=pause.get("aw"), rng=rng)
        self._w = StreamSource(bench, port("w", "data", "strb"), pause=pause.get("w"), rng=rng)
        self._b = StreamSink(bench, port("b", "resp"), pause=pause.get("b"), rng=rng)
        self._ar = StreamSource(bench, port("ar", "addr"), pause=pause.get("ar"), rng=rng)
        self._r = StreamSink(bench, port("r", "data", "resp"), pause=pause.get("r"), rng=rng)
        self._strobe = (1 << len(getattr(dut, f"{prefix}wdata")) // 8) - 1
        if hasattr(dut, f"{prefix}awprot"):
            getattr(dut, f"{prefix}awprot").value = 0
            getattr(dut, f"{prefix}arprot").value = 0

    async def write_resp(self, addr, data, strobe=None):
        """Writes; returns the response code."""
        self._aw.put({"addr": addr})
        self._w.put({"data": data, "strb": self._strobe if strobe is None else strobe})
        return (await self._b.recv())["resp"]

    async def read_resp(self, addr):
        """Reads; returns (data, response code)."""
        self._ar.put({"addr": addr})
        answer = await self._r.recv()
        return answer["data"], answer["resp"]

    async def write(self, addr, data, strobe=None):
        resp = await self.write_resp(addr, data, strobe)
        assert resp == 0, f"write of {data:#x} to CSR {addr:#x} was answered with {resp}"

    async def read(self, addr):
        data, resp = await self.read_resp(addr)
        assert resp == 0, f"read of CSR {addr:#x} was answered with {resp}"
        return data
