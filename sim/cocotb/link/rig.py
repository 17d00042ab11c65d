# SPDX-License-Identifier: Apache-2.0
"""Rig of the LinkPort bench: one port, its agents and the models of both directions."""

from collections import Counter, deque

from hub_rtl.contract.packets import BODIES, HEADER, NEWS_ENTRIES, PacketType, unpack
from hub_rtl.contract.records import MESSAGES
from hub_rtl.link.link import LinkPort
from sim.bench.rig import Rig
from sim.bench.slice_sender import as_stream
from sim.bench.streams import SignalPort, StreamSink, StreamSource
from sim.golden.link import LinkRxModel, LinkTxModel, beats_of, header, with_fields

from .watch import PortWatch

LANE = 0
SETTLE = 12  # cycles until everything that came in is visible on ports and counters


def random_packet(cfg, rng, src, dst, lane=LANE, length=None, kind=None, **fields):
    """A good packet as a list of flits; ``length``: payload flits; ``kind``: its type."""
    flits = cfg.packet_flits
    length = length or rng.choice((1, 1, 2, flits, flits, rng.randint(1, flits)))
    first = rng.randrange(flits - length + 1)
    masked = fields.pop("masked", rng.random() < 0.3)
    kinds = [*[PacketType.ROW] * 4, PacketType.PLAIN]
    if length <= NEWS_ENTRIES // 2 and not masked:
        kinds.append(PacketType.NEWS)
    kind = kind or rng.choice(kinds)
    body = random_body(rng, kind)
    if kind == PacketType.NEWS:
        body["count"] = 2 * length - rng.randrange(2)
    else:
        unit = "row_off" if kind == PacketType.ROW else "addr16"
        body[unit] += first - body[unit] % flits
    common = {"src": src, "dst": dst, "lane": lane, "len": length, "masked": masked}
    drawn = {"cls": rng.randrange(2), "poison": rng.random() < 0.1, **spare(rng)}
    flit = header(kind, body, **common | drawn | fields)
    return [flit, *(rng.getrandbits(128) for _ in range(length + masked * cfg.mask_flits))]


def random_body(rng, kind):
    return {name: rng.getrandbits(width) for name, (_, width) in BODIES[kind].items()}


def random_control(rng, src, dst, lane=LANE):
    """A good REJECT flit."""
    kind = PacketType.REJECT
    drawn = {"cls": rng.randrange(2), "poison": rng.randrange(2), **spare(rng)}
    return header(kind, random_body(rng, kind), src=src, dst=dst, lane=lane, **drawn)


def spare(rng):
    """Header fields that nobody looks at and everybody passes on."""
    return {"zero": rng.getrandbits(4), "crc": rng.getrandbits(24)}


def unfilled(rng, flit):
    """A flit as senders hand it to a link: the fields that the link fills are anything."""
    names = ("src", "lane", "seq", "credit")
    return with_fields(flit, **{name: rng.getrandbits(HEADER[name][1]) for name in names})


def same_record(size, came, wanted):
    """The two are one record, in all that means something."""
    pairs = zip(came, wanted, strict=False)
    return len(came) == len(wanted) and all(_as_wanted(size, *pair) == pair[1] for pair in pairs)


def same_beat(size, came, wanted, what):
    """The two are one beat, in all that means something."""
    assert _as_wanted(size, came, wanted) == wanted, f"{what}\n  {came}\n  expected {wanted}"


def _as_wanted(size, came, wanted):
    """The beat that came, what means nothing in the wanted one as it is there."""
    named = wanted["mask"] >> wanted["part"] * size & (1 << size) - 1
    bits = 0 if wanted["lost"] else sum(0xFF << 8 * n for n in range(size) if named >> n & 1)
    header = came["header"]
    if wanted["header"]["news"]:
        header = {name: header[name] for name in ("rank", "news")}
    elif wanted["header"]["plain"]:
        header = header | dict.fromkeys(("region", "epoch", "rowid"), 0)
    return came | {"header": header, "data": came["data"] & bits}


def random_message(rng):
    """Body of a CREDIT: one of what slices tell each other."""
    return rng.choice(
        (
            {"grants": 1, "granted": rng.getrandbits(12), "back": rng.randrange(2)},
            {"returns": 1, "returned": rng.getrandbits(12)},
            {"asks": 1, "plains": rng.getrandbits(12), "phase": rng.randrange(2)},
            {"answers": 1, "bad": rng.randrange(2)},
        )
    )


class LinkRig(Rig):
    """One LinkPort with stream agents, models of both directions, and its strobes summed up.
    ``wire``: back-pressure on the wire."""

    block = LinkPort

    def __init__(self, dut, salt, idle=None, stall=None, wire=None):
        super().__init__(dut, salt, idle, stall, watchdog=2000)
        cfg, rng = self.cfg, self.rng
        self._own(self.params.get("rank", rng.randrange(cfg.ranks)))  # another one in each test
        self.set("lane", LANE)
        if stall == "stop":
            self.o_control.set_pause(None)

        def stream(prefix, *fields):
            names = {field: f"{prefix}__t{field}" for field in fields}
            return SignalPort(dut, prefix, f"{prefix}__tvalid", f"{prefix}__tready", names)

        self.wire_in = StreamSource(self, stream("rx", "data", "last"), pause=idle, rng=rng)
        self.wire_out = StreamSink(self, stream("tx", "data", "last", "dest"), pause=wire, rng=rng)
        self.outputs = (self.wire_out, self.o_beat, self.o_control)
        self.o_source.set_pause(None)  # it is taken before its packet is
        self.counts, self.bad = Counter(), []
        self.told = []  # (cycle, dst, total) of each header on the wire
        self.messages = []  # (kind, what) that came
        self.wire_in.on_item(self._arrived)
        # The model must have the whole packet before its first flit: it gets it flit by flit, so
        # look at the rest later.
        self.wire_out.on_item(lambda item, cycle: self._pending_wire.append((item, cycle)))
        self.o_control.on_item(lambda item, cycle: self._freed(unpack(HEADER, item)["src"], cycle))
        self.i_control.on_item(self._in_control)
        self.i_packet.on_item(self._in_flit)
        self.i_message.on_item(self._in_message)
        self.on_sample(self._look)
        self.on_sample(self._judge_wire)

    def _own(self, rank):
        self.rank = rank
        self.set("rank", rank)
        self.peers = [peer for peer in range(self.cfg.ranks) if peer != rank]

    def _look(self, cycle):
        self.watch.look(cycle)
        for name, value in self.watch.counts.items():
            self.counts[name] += value
        if bad := self.strobe("o_bad"):
            self.bad.append((bad["header"], bad["reason"]))
        for name in MESSAGES:
            if told := self.strobe(name):
                self.messages.append((name, told["what"]))

    async def start(self, cycles=2, rank=None):
        """Reset, maybe with another own rank, and models that know nothing yet."""
        if rank is not None:
            self._own(rank)
        await self.reset(cycles)
        self.rx = LinkRxModel(self.cfg, self.rank, LANE)
        self.tx = LinkTxModel(self.cfg, self.rank, LANE)
        self.watch = PortWatch(self)
        self.seq, self._building, self._pending_wire = 0, [], deque()
        self.messages.clear()
        self.counts.clear()
        self.wire_in.count = self.wire_out.count = 0

    def _arrived(self, item, cycle):
        self.rx.flit(item["data"], item["last"])
        self.watch.wire_in(cycle)

    def _in_message(self, item, cycle):
        self.tx.message(item["data"])
        self.watch.message_flit(item["data"], cycle)

    def _in_control(self, item, cycle):
        self.tx.control(item)
        self.watch.control_flit(item, cycle)

    def _in_flit(self, item, cycle):
        self.watch.packet_flit(item, cycle)
        self._building.append(item["data"])
        if item["last"]:
            self.tx.packet(self._building)
            self._building = []

    def _freed(self, src, cycle):
        self.tx.freed(src)
        self.watch.reports.freed(src, cycle)

    def _judge_wire(self, cycle):
        """Judges the frames on the wire once they are complete."""
        while self._pending_wire and any(item["last"] for item, _ in self._pending_wire):
            last = 0
            while not last:
                item, when = self._pending_wire.popleft()
                told = self.tx.flit(item["data"], item["last"], item["dest"])
                last = item["last"]
                if told is not None:
                    self.told.append((when, *told))
                    self.rx.reported(*told)

    def send_wire(self, flits, seq=None, **changes):
        """Queues a frame for the wire, numbered in order unless ``seq`` is given."""
        self.seq = self.seq if seq is None else seq
        first = with_fields(flits[0], seq=self.seq, **changes)
        self.seq = (self.seq + 1) % 1024
        self.raw([first, *flits[1:]])

    def raw(self, flits, ended=True):
        last = len(flits) - 1 if ended else None
        self.wire_in.put(*({"data": data, "last": n == last} for n, data in enumerate(flits)))

    def good_packet(self, src, dst, **fields):
        return random_packet(self.cfg, self.rng, src, dst, **fields)

    def good_control(self, src, dst):
        return random_control(self.rng, src, dst)

    def send(self, src, **fields):
        """A good packet from there on the wire."""
        self.send_wire(self.good_packet(src, self.rank, **fields))

    def send_control(self, src):
        self.send_wire([self.good_control(src, self.rank)])

    def put(self, dst, **fields):
        """A good packet for there at the input."""
        self.i_packet.put(*as_stream(self.good_packet(0, dst, **fields)))

    def put_control(self, dst):
        self.i_control.put(self.good_control(0, dst))

    def send_credit(self, src, total, **body):
        """A CREDIT flit from there; ``body``: a message."""
        flit = header(PacketType.CREDIT, body, src=src, dst=self.rank, lane=LANE)
        self.send_wire([flit], credit=total % 256)

    def put_message(self, dst):
        """Something to be told to that rank's slice."""
        said = random_message(self.rng)
        self.i_message.put(*as_stream([header(PacketType.CREDIT, said, dst=dst)]))

    async def settle(self, cycles=SETTLE):
        await self.wire_in.drained()
        await self.cycles(cycles)

    async def all_packets(self, what="all sent", limit=10000):
        """All packets have left."""
        await self.until(lambda: not (self.i_packet.pending or self.tx.waiting), limit, what)

    async def all_sent(self):
        """All packets and control flits have left."""
        await self.until(
            lambda: not (self.i_packet.pending or self.i_control.pending or self.tx.waiting),
            what="all sent",
        )

    async def finish(self):
        """Everything that the models expect came, nothing else; strobes as the models say. Those
        that the watch does not judge in each cycle."""
        size = self.cfg.slice_bytes
        expected = [
            beat for _, packet in self.rx.packets for beat in beats_of(self.cfg, size, packet)
        ]
        assert len(self.o_beat.items) == len(expected), (len(self.o_beat.items), len(expected))
        for number, (came, wanted) in enumerate(zip(self.o_beat.items, expected, strict=True)):
            same_beat(size, came, wanted, f"beat {number}")
        assert self.o_source.items == [src for src, _ in self.rx.packets]
        assert self.messages == self.rx.messages
        assert self.o_control.items == self.rx.controls, "o_control differs"
        assert self.bad == self.rx.bad, f"o_bad: {self.bad}, expected {self.rx.bad}"
        assert self.tx.waiting == 0, f"{self.tx.waiting} items did not come on the wire"
        for name in ("seq_errors", "credit_violations", "truncated"):
            assert self.counts[name] == self.rx.counts[name], (
                f"{name}: {self.counts[name]}, expected {self.rx.counts[name]}"
            )
        assert self.counts["credits_sent"] == self.tx.sent[PacketType.CREDIT]
