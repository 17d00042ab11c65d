"""cocotb tests of LinkPort against a Python peer: every wire event is ours to choose."""

from collections import Counter, deque

import cocotb

from hub_rtl.config import ceil_log2
from hub_rtl.links.credits import RankStrobe
from hub_rtl.formats import BODIES, HEADER, PacketType, Reason, unpack
from hub_rtl.link import LINK_COUNTS
from hub_rtl.links.link_rx import BadHeader
from hub_rtl.types import types_of
from sim.bench.coverage import cover
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, Codec, SignalPort, StreamSink, StreamSource, bus_read, pause_pattern, start_clock
from sim.golden.link import CONTROL, DATA, LinkRxModel, LinkTxModel, SendBook, credit_class, header, with_fields

LANE = 0
SETTLE = 12     # cycles until everything that came in is visible on ports and counters


def random_packet(cfg, rng, src, dst, lane=LANE, length=None, **fields):
    """A good packet as a list of flits; ``length``: payload flits."""
    length = length or rng.choice((1, 1, 2, cfg.packet_flits, cfg.packet_flits, rng.randint(1, cfg.packet_flits)))
    first = rng.randrange(cfg.packet_flits - length + 1)
    masked = fields.pop("masked", rng.random() < 0.3)
    if rng.random() < 0.8:
        body = {"region": rng.randrange(2048), "epoch": rng.randrange(16), "rowid": rng.randrange(1 << 24),
                "row_off": rng.randrange(1024 // cfg.packet_flits) * cfg.packet_flits + first}
        kind = PacketType.ROW
    else:
        kind = PacketType.PLAIN
        body = {"addr16": rng.randrange(1 << 44 - ceil_log2(cfg.packet_flits)) * cfg.packet_flits + first}
    flit = header(kind, body, **{"src": src, "dst": dst, "lane": lane, "len": length, "masked": masked, "cls": rng.randrange(2),
                                 "poison": rng.random() < 0.1, **fields})
    return [flit, *(rng.getrandbits(128) for _ in range(length + masked * cfg.mask_flits))]


def random_control(rng, src, dst, lane=LANE):
    """A good CLOSE or REJECT flit."""
    kind = rng.choice((PacketType.CLOSE, PacketType.REJECT))
    body = {name: rng.getrandbits(width) for name, (_, width) in BODIES[kind].items()}
    return header(kind, body, src=src, dst=dst, lane=lane)


def as_stream(flits):
    """Flits as items of a packet stream."""
    return [{"data": data, "first": int(n == 0), "last": int(n == len(flits) - 1), "err": 0} for n, data in enumerate(flits)]


class Sender:
    """Stands for the packet manager: takes a credit for each packet, then hands it over. Any rank with credits goes."""

    def __init__(self, bench, cfg, source, prefix=""):
        self.bench, self.source = bench, source
        self.taken = Counter()
        self._take, self._ready = getattr(bench.dut, prefix + "take"), getattr(bench.dut, prefix + "dest_ready")
        self._codec = Codec(RankStrobe(cfg))
        self._queues = {rank: deque() for rank in range(cfg.ranks)}
        self._turn = 0
        self.on_take = []
        self.clear()
        bench.add(self)

    def put(self, dst, flits):
        self._queues[dst].append(flits)

    @property
    def pending(self):
        return sum(map(len, self._queues.values())) + self.source.pending

    def clear(self, forget=True):
        self._credits, self._last = 0, None
        self._take.value = 0
        self._driven = False
        for queue in self._queues.values():
            queue.clear()

    def drive(self):
        ranks = len(self._queues)
        able = [rank for rank in self._queues if self._queues[rank] and self._credits >> rank & 1 and rank != self._last]
        self._last = min(able, key=lambda rank: (rank - self._turn) % ranks) if able and self.source.pending < 40 else None
        if self._last is not None:
            self._turn = self._last + 1
            self.source.put(*as_stream(self._queues[self._last].popleft()))
            self.taken[self._last] += 1
            for function in self.on_take:
                function(self._last)
        if self._last is not None or self._driven:
            self._take.value = self._codec.pack({"en": int(self._last is not None), "rank": self._last or 0})
        self._driven = self._last is not None

    def sample(self):
        self._credits = int(self._ready.value)

    def __str__(self):
        return f"sender: {self.pending} flits or packets waiting, credits {self._credits:#b}"


class TB:
    """One LinkPort with stream agents, models of both directions, and its strobes summed up."""

    def __init__(self, dut, salt="", idle=None, stall=None, wire=None):
        self.cfg, self.params, self.rng = bench_params(salt)
        cfg, rng = self.cfg, self.rng
        self.rank = cfg.ranks - 1
        self.peers = [rank for rank in range(cfg.ranks) if rank != self.rank]
        self.dut = dut
        dut.rank.value, dut.lane.value, dut.peer_dead.value = self.rank, LANE, 0
        self.bench = bench = start_clock(dut, watchdog=2000)
        flit = types_of(cfg).flit
        self.packets = StreamSource(bench, "i_packet", flit, idle, rng)
        self.controls = StreamSource(bench, "i_control", None, idle, rng)
        self.out = StreamSink(bench, "o_packet", flit, stall, rng)
        self.out_control = StreamSink(bench, "o_control", None, None if stall == "stop" else stall, rng)
        names = {"data": "tdata", "last": "tlast"}
        self.wire_in = StreamSource(bench, SignalPort(dut, "rx", "rx__tvalid", "rx__tready",
                                                      {key: f"rx__{name}" for key, name in names.items()}), pause=idle, rng=rng)
        self.wire_out = StreamSink(bench, SignalPort(dut, "tx", "tx__tvalid", "tx__tready", {
            "data": "tx__tdata", "last": "tx__tlast", "dest": "tx__tdest"}), pause=wire, rng=rng)
        self.sender = Sender(bench, cfg, self.packets)
        self.counts, self.bad = Counter(), []
        bench.on_sample(self._strobes)
        self.rx, self.tx = LinkRxModel(cfg, self.rank, LANE), LinkTxModel(cfg, self.rank, LANE)
        self.told = []              # (cycle, dst, totals) of each header on the wire
        self.seq = 0
        self._src = None
        self._awake = 0             # cycles since reset
        self.wire_in.on_item(lambda item, cycle: self.rx.flit(item["data"], item["last"]))
        self.wire_out.on_item(self._wire_flit)
        self.out.on_item(self._out_flit)
        self.out_control.on_item(lambda item, cycle: self.tx.freed(unpack(HEADER, item)["src"], CONTROL))
        self.controls.on_item(lambda item, cycle: self.tx.control(item))
        self._building = []
        self.packets.on_item(self._in_flit)

    def _strobes(self, cycle):
        for name, value in bus_read(self.dut, "counts", LINK_COUNTS).items():
            self.counts[name] += value
        bad = bus_read(self.dut, "o_bad", BadHeader())
        if bad["en"]:
            self.bad.append((bad["header"], bad["reason"]))
        ready, self._awake = int(self.dut.rx__tready.value), self._awake + 1
        assert ready or self._awake == 1, "rx.tready is 0"      # it rises with the first edge out of reset

    def _in_flit(self, item, cycle):
        self._building.append(item["data"])
        if item["last"]:
            self.tx.packet(self._building)
            self._building = []

    def _out_flit(self, item, cycle):
        if item["first"]:
            self._src = unpack(HEADER, item["data"])["src"]
        if item["last"]:
            self.tx.freed(self._src, DATA)

    def _wire_flit(self, item, cycle):
        # The model must have the whole packet before its first flit: it gets it flit by flit, so look at the rest later.
        self._pending_wire.append((item, cycle))

    _pending_wire = None

    async def start(self):
        self._pending_wire = deque()
        self.bench.on_sample(self._judge_wire)
        await self.reset()

    async def reset(self):
        await self.bench.reset()
        self._awake = 0

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
                    for cls, total in told[1].items():
                        self.rx.reported(told[0], cls, total)

    def send_wire(self, flits, seq=None, **changes):
        """Queues a frame for the wire, numbered in order unless ``seq`` is given."""
        self.seq = self.seq if seq is None else seq
        first = with_fields(flits[0], seq=self.seq, **changes)
        self.seq = (self.seq + 1) % 1024
        self.raw([first, *flits[1:]])

    def raw(self, flits, ended=True):
        self.wire_in.put(*({"data": data, "last": int(ended and n == len(flits) - 1)} for n, data in enumerate(flits)))

    def send_credit(self, src, totals, **changes):
        body = {"total0": totals[0] % 256, "total1": totals[1] % 256}
        self.send_wire([header(PacketType.CREDIT, body, src=src, dst=self.rank, lane=LANE)], **changes)

    async def settle(self, cycles=SETTLE):
        await self.wire_in.drained()
        await self.bench.cycles(cycles)

    def finish(self, **counts):
        """Everything that the models expect came, nothing else; strobes as the models say, others 0 unless given."""
        expected = [flit for _, packet in self.rx.packets for flit in packet]
        assert self.out.items == expected, f"o_packet: {len(self.out.items)} flits, expected {len(expected)}"
        assert self.out_control.items == self.rx.controls, "o_control differs"
        assert self.bad == self.rx.bad, f"o_bad: {self.bad}, expected {self.rx.bad}"
        assert self.tx.waiting == 0, f"{self.tx.waiting} items did not come on the wire"
        wanted = {**self.rx.counts, **counts}
        for name in ("seq_errors", "credit_violations", "truncated", "bad_totals", "control_sunk"):
            assert self.counts[name] == wanted.get(name, 0), f"{name}: {self.counts[name]}, expected {wanted.get(name, 0)}"
        assert self.counts["credits_sent"] == self.tx.sent[PacketType.CREDIT]
        assert self.counts["rx_busy"] == self.wire_in.count and self.counts["tx_busy"] == self.wire_out.count


class Peer:
    """All other ranks in one: sends with credits, buffers what the port sends, frees it later, reports totals."""

    def __init__(self, tb, pause=None):
        self.tb, self.bench = tb, tb.bench
        cfg = tb.cfg
        self.limits = (cfg.rx_credits, cfg.ctl_credits)
        self.books = {(rank, cls): SendBook(self.limits[cls]) for rank in tb.peers for cls in (DATA, CONTROL)}
        self.port = {(rank, cls): SendBook(self.limits[cls]) for rank in tb.peers for cls in (DATA, CONTROL)}
        self.held, self.freed, self.told = Counter(), Counter(), Counter()
        self.queue = deque()        # (src, class, flits) to send
        self._due = deque()         # (cycle, rank, class) buffers to free
        self._pause = pause_pattern(pause, tb.rng)
        self._seen = 0
        self.quiet = False
        self.chatter = Counter()    # IDLE and ACK flits sent
        tb.sender.on_take.append(lambda rank: self.port[rank, DATA].take())
        self.bench.add(self)

    def clear(self, forget=True):
        pass

    def drive(self):
        self._listen()
        while self._due and self._due[0][0] <= self.bench.cycle:
            _, rank, cls = self._due.popleft()
            self.held[rank, cls] -= 1
            self.freed[rank, cls] += 1
        if self.tb.wire_in.pending > 30 or next(self._pause) or self.quiet:
            return
        rng = self.tb.rng
        sent = False
        for _ in range(len(self.queue)):
            src, cls, flits = self.queue[0]
            if self.books[src, cls].left:
                self.queue.popleft()
                self.books[src, cls].take()
                self._send(src, flits)
                sent = True
                break
            self.queue.rotate(-1)
        if not sent and rng.random() < 0.3:
            late = [rank for rank in self.tb.peers if any(self.told[rank, cls] != self.freed[rank, cls] for cls in (0, 1))]
            if late:
                rank = rng.choice(late)
                self._tell(rank, DATA, CONTROL)
                self.tb.send_credit(rank, [self.freed[rank, cls] for cls in (DATA, CONTROL)])
            elif rng.random() < 0.1:
                self.chatter[PacketType.IDLE] += 1
                self.tb.raw([header(PacketType.IDLE)])
            elif rng.random() < 0.1:
                self.chatter[PacketType.ACK] += 1
                self.tb.send_wire([header(PacketType.ACK, {"next": rng.randrange(1024)}, src=rng.choice(self.tb.peers),
                                          dst=self.tb.rank)])

    def _send(self, src, flits):
        cls = self.tb.rng.randrange(2)
        self._tell(src, cls)
        self.tb.send_wire(flits, credit_cls=cls, credit=self.freed[src, cls] % 256)

    def _tell(self, rank, *classes):
        for cls in classes:
            self.told[rank, cls] = self.freed[rank, cls]
            assert self.port[rank, cls].announce(self.freed[rank, cls] % 256)

    def _listen(self):
        """What the port has told and sent on its wire since the last look."""
        for _, dst, totals in self.tb.told[self._seen:]:
            for cls, total in totals.items():
                assert self.books[dst, cls].announce(total), "the port told a total that cannot be"
        self._seen = len(self.tb.told)

    def took(self, item):
        """A header came out of the port."""
        fields = unpack(HEADER, item)
        cls = credit_class(PacketType(fields["type"]))
        if cls is None:
            return
        rank = fields["dst"]
        if cls == CONTROL:
            self.port[rank, CONTROL].take()
        self.held[rank, cls] += 1
        assert self.held[rank, cls] <= self.limits[cls], f"rank {rank} has no buffer for this: class {cls}"
        self._due.append((max(self.bench.cycle + self.tb.rng.randint(1, 60), self._due[-1][0] if self._due else 0), rank, cls))

    def sample(self):
        pass

    def __str__(self):
        return f"peer: {len(self.queue)} packets to send"


def watch_headers(tb, peer):
    """Tells the peer of every header that leaves the port."""
    inside = [False]

    def look(item, cycle):
        if not inside[0]:
            peer.took(item["data"])
        inside[0] = not item["last"]
    tb.wire_out.on_item(look)


def conservation(tb, peer):
    """Each cycle: ready for a rank exactly while credits are there (as many as were taken and told, give or take the way)."""
    history = {rank: deque(maxlen=SETTLE) for rank in tb.peers}

    def look(cycle):
        ready = int(tb.dut.dest_ready.value)
        for rank in tb.peers:
            book = peer.port[rank, DATA]
            history[rank].append(bool(book.left))
            # What was told and is still on its way in may come late; nothing may be there that was not told.
            if ready >> rank & 1:
                assert any(history[rank]), f"dest_ready for rank {rank} without credit in cycle {cycle}"
    tb.bench.on_sample(look)


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Honest random traffic both ways on the grid: all arrives, nothing else; credits hold each cycle and all come home."""
    idle, stall = grid
    tb = TB(dut, f"traffic{grid}", idle, stall, stall)
    peer = Peer(tb, idle)
    watch_headers(tb, peer)
    await tb.start()
    conservation(tb, peer)
    count = tb.params["packets"]
    for _ in range(count):
        src, dst = tb.rng.choice(tb.peers), tb.rng.choice(tb.peers)
        peer.queue.append((src, DATA, random_packet(tb.cfg, tb.rng, src, tb.rank)))
        tb.sender.put(dst, random_packet(tb.cfg, tb.rng, 0, dst))
        if tb.rng.random() < 0.3:
            peer.queue.append((src, CONTROL, [random_control(tb.rng, src, tb.rank)]))
            tb.controls.put(random_control(tb.rng, 0, dst))
    await tb.bench.until(lambda: not (peer.queue or tb.sender.pending or tb.controls.pending or tb.wire_in.pending),
                         limit=30000, what="all sent")
    await tb.bench.until(lambda: tb.tx.waiting == 0 and len(tb.out.items) == sum(len(p) for _, p in tb.rx.packets),
                         limit=5000, what="all arrived")
    # Everything unreported is told within 256 cycles; then all credits are back on both sides.
    await tb.bench.cycles(340)
    assert all(book.left == book.limit for book in peer.books.values()), "buffers that were never reported as free"
    everyone = sum(1 << rank for rank in tb.peers)
    for _ in range(40):
        await tb.bench.cycles(10)
        if all(book.left == book.limit for book in peer.port.values()):
            break
    peer.quiet = True
    await tb.settle()
    assert int(dut.dest_ready.value) & everyone == everyone and int(dut.ctl_ready.value) & everyone == everyone
    tb.finish()
    cover(f"link.grid.{idle}.{stall}")
    cover("link.credit_stall", tb.counts["credit_stall"] > 0)
    cover("link.idle_and_ack", peer.chatter[PacketType.IDLE] and peer.chatter[PacketType.ACK])
    cover("link.piggyback", any(len(totals) == 1 and any(totals.values()) for _, _, totals in tb.told))
    cover("link.credit_flit", tb.tx.sent[PacketType.CREDIT] > 0)


@cocotb.test()
async def bad_headers(dut):
    """Each reason for which a header is refused, with payload behind it, between good packets."""
    tb = TB(dut, "bad")
    await tb.start()
    cfg, rng, good = tb.cfg, tb.rng, tb.peers[0]
    units = cfg.packet_flits
    row = {"region": 1, "epoch": 2, "rowid": 3, "row_off": units}
    base = {"src": good, "dst": tb.rank, "lane": LANE}
    cases = {f"type{kind}": header(PacketType.IDLE, **base) | kind for kind in range(7, 16)}
    cases |= {
        "len0": header(PacketType.ROW, row, **base),
        "row_span": header(PacketType.ROW, {**row, "row_off": units - 1}, len=2, **base),
        "long": header(PacketType.ROW, row, len=units + 1, **base),
        "plain_span": header(PacketType.PLAIN, {"addr16": 5 * units + 1}, len=units, **base),
        "control_len": header(PacketType.CLOSE, len=1, **base), "control_masked": header(PacketType.REJECT, masked=1, **base),
        "credit_len": header(PacketType.CREDIT, len=1, **base), "fan": header(PacketType.ROW, row, len=1, fan=1, **base),
        "own_src": header(PacketType.ROW, row, len=1, **{**base, "src": tb.rank}),
        "far_src": header(PacketType.ROW, row, len=1, **{**base, "src": cfg.ranks}),
        "dst": header(PacketType.ROW, row, len=1, **{**base, "dst": good}),
        "far_dst": header(PacketType.CLOSE, **{**base, "dst": 127}),
        "lane": header(PacketType.ROW, row, len=1, **{**base, "lane": 31}),
        "lane_control": header(PacketType.CLOSE, **{**base, "lane": 1}),
    }
    for name, flit in cases.items():
        tb.send_wire([flit, *(rng.getrandbits(128) for _ in range(rng.randrange(4)))])
        await tb.settle(2)
        cover(f"link.bad.{'type' if name.startswith('type') else name}")
    tb.raw([with_fields(header(PacketType.IDLE), seq=tb.seq), 1, 2])      # IDLE that goes on
    tb.seq += 1
    for _ in range(20):                                                 # any other single bit
        flits = random_packet(cfg, rng, good, tb.rank, length=1)
        tb.send_wire([flits[0] ^ 1 << rng.randrange(32), *flits[1:]])
        await tb.bench.cycles(20)
        for rank in tb.peers:
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank))
        await tb.settle(40)
    assert len(tb.bad) >= len(cases) + 1
    assert {reason for _, reason in tb.bad} == {Reason.BAD_HEADER, Reason.BAD_LANE}
    tb.finish()


@cocotb.test()
async def wrong_length(dut):
    """Packets that end early are padded, those that go on are cut, at every length; the next packet is whole again."""
    tb = TB(dut, "length", stall="random")
    await tb.start()
    cfg, rng, src = tb.cfg, tb.rng, tb.peers[0]
    for length in range(1, cfg.packet_flits + 1):
        flits = random_packet(cfg, rng, src, tb.rank, length=length)
        for end in {1, 2, len(flits) - 1, len(flits), rng.randint(1, len(flits))}:
            tb.send_wire(flits[:end])
            tb.send_wire(random_packet(cfg, rng, tb.peers[-1], tb.rank, length=1))
            await tb.settle(60)
            cover("link.short.header_only", end == 1 < len(flits))
            cover("link.short.payload", 1 < end < len(flits))
        for more in (1, 3):
            tb.send_wire(flits + [rng.getrandbits(128) for _ in range(more)])
            await tb.settle(60)
    for kind in (PacketType.CLOSE, PacketType.CREDIT, PacketType.ACK):
        tb.send_wire([header(kind, src=src, dst=tb.rank, lane=LANE), rng.getrandbits(128)])
        await tb.settle(10)
    tb.send_wire(random_packet(cfg, rng, src, tb.rank))
    await tb.settle(120)
    assert tb.counts["truncated"] > 10
    tb.finish()
    cover("link.long")


@cocotb.test()
async def sequence(dut):
    """Gaps are counted, repeats dropped, and numbering heals after both; the number wraps."""
    tb = TB(dut, "sequence")
    await tb.start()
    cfg, rng, src = tb.cfg, tb.rng, tb.peers[0]
    for seq in (0, 1, 1, 2, 5, 6, 3, 4, 515, 516, 4, 5, 6, 1023, 0, 1, 0):
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1), seq=seq)
        await tb.settle(40)
    delivered = len(tb.rx.packets)
    assert delivered == 13 and tb.counts["seq_errors"] == 7, (delivered, tb.counts)
    for _ in range(1030):
        tb.send_wire([header(PacketType.ACK, src=src, dst=tb.rank, lane=LANE)])
    await tb.settle()
    tb.finish()
    cover("link.seq.repeat")
    cover("link.seq.gap")
    cover("link.seq.wrap")


@cocotb.test()
async def credit_abuse(dut):
    """A source that sends beyond its credits loses those packets and only those; the other sources lose nothing."""
    tb = TB(dut, "abuse", stall="stop")
    await tb.start()
    cfg, rng, rogue = tb.cfg, tb.rng, tb.peers[0]
    for _ in range(cfg.rx_credits + 3):
        tb.send_wire(random_packet(cfg, rng, rogue, tb.rank, length=cfg.packet_flits, masked=1))
    for rank in tb.peers[1:]:
        for _ in range(cfg.rx_credits):
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=cfg.packet_flits, masked=1))
    await tb.settle()
    assert tb.counts["credit_violations"] == 3 == tb.rx.counts["credit_violations"]
    cover("link.full")
    tb.out.set_pause(None)
    await tb.bench.cycles(300 + 2 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    tb.out_control.set_pause("stop")
    for _ in range(cfg.ctl_credits + 2):
        tb.send_wire([random_control(rng, rogue, tb.rank)])
    tb.send_wire(random_packet(cfg, rng, rogue, tb.rank))
    await tb.settle(30)
    assert tb.counts["credit_violations"] == 5
    tb.out_control.set_pause(None)
    await tb.bench.cycles(300)
    tb.finish()
    cover("link.violation.data")
    cover("link.violation.control")


@cocotb.test()
async def garbage_totals(dut):
    """Totals that cannot be are ignored and counted; the honest ones after them count again."""
    tb = TB(dut, "garbage")
    await tb.start()
    cfg, rng, dst = tb.cfg, tb.rng, tb.peers[0]
    for total in (1, 200, 255, cfg.rx_credits + 1):
        tb.send_credit(dst, [total, 0])
    tb.send_credit(dst, [0, cfg.ctl_credits + 1])
    await tb.settle()
    assert tb.counts["bad_totals"] == 5
    for _ in range(cfg.rx_credits + 4):
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst))
    await tb.bench.cycles(60 + 20 * cfg.rx_credits)
    assert tb.sender.taken[dst] == cfg.rx_credits, "garbage gave credits"
    tb.send_credit(dst, [cfg.rx_credits + 1, 0])
    tb.send_credit(dst, [1, 0])
    tb.send_credit(dst, [0, 0])                     # stale: nothing is taken back, nothing is given
    await tb.bench.cycles(100)
    assert tb.sender.taken[dst] == cfg.rx_credits + 1
    for total in (2, 3, 4):
        tb.send_credit(dst, [total, 0])
        await tb.bench.cycles(60)
    assert not tb.sender.pending
    tb.finish(bad_totals=7)
    cover("link.garbage")


@cocotb.test()
async def credit_flits(dut):
    """A CREDIT goes at a quarter of the buffers, or after 256 cycles; under full load to others it waits a bounded time."""
    tb = TB(dut, "credit_flits")
    await tb.start()
    cfg, rng, src = tb.cfg, tb.rng, tb.peers[0]
    quarter = max(1, cfg.rx_credits // 4)
    for n in range(quarter):
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
        if n == quarter - 2:
            await tb.settle(30)
            assert not tb.told, "told before a quarter was free"
    await tb.settle(30)
    assert [(dst, totals[DATA]) for _, dst, totals in tb.told] == [(src, quarter)]
    cover("link.credit.quarter")
    if quarter > 1:
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1))
        await tb.settle()
        freed = tb.out.stamps[-1]
        await tb.bench.until(lambda: len(tb.told) == 2, limit=300, what="late CREDIT")
        assert 120 <= tb.told[-1][0] - freed <= 266, tb.told[-1][0] - freed
        cover("link.credit.late")
    # Full load to one rank, buffers freed for all the others.
    busy, before = tb.peers[-1], len(tb.told)
    others = tb.peers[:-1]
    stop = [False]
    told_total = [0]

    def credits(cycle):
        if tb.sender.taken[busy] - told_total[0] > cfg.rx_credits // 2 and not tb.wire_in.pending and tb.tx.sent.total() > 2:
            done = tb.tx.sent[PacketType.ROW] + tb.tx.sent[PacketType.PLAIN]
            if done > told_total[0]:
                told_total[0] = done
                tb.send_credit(busy, [done, 0])
        if not stop[0] and tb.sender.pending < 4:
            tb.sender.put(busy, random_packet(cfg, rng, 0, busy, length=cfg.packet_flits))
    tb.bench.on_sample(credits)
    await tb.bench.cycles(100)
    for rank in others:
        for _ in range(quarter):
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=1))
    await tb.settle()
    start = tb.bench.cycle
    await tb.bench.until(lambda: {dst for _, dst, _ in tb.told[before:]} >= {*others}, what="CREDIT under load",
                         limit=64 + 3 * cfg.ranks * cfg.frame_flits)
    waited = tb.bench.cycle - start
    # Not idle for a cycle meanwhile: the CREDIT had to push in.
    cover("link.credit.under_load", others and waited > 0 and tb.wire_out.stamps[-waited:] == [*range(
        tb.bench.cycle - waited, tb.bench.cycle)])
    cocotb.log.info("CREDIT under load: %d cycles after the last buffer was freed", waited)
    stop[0] = True
    await tb.bench.until(lambda: not tb.sender.pending, limit=3000, what="all sent")
    await tb.bench.cycles(300)
    tb.finish()


@cocotb.test()
async def rate(dut):
    """Full load in and out with enough credits: no bubble; latencies as documented."""
    tb = TB(dut, "rate")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    told = Counter()

    def generous(cycle):            # the peer frees at once and tells at once
        for dst in tb.peers:
            done = sent[dst]
            if done != told[dst] and not tb.wire_in.pending:
                told[dst] = done
                tb.send_credit(dst, [done, 0])
                return
    sent = Counter()
    inside = [False]

    def count(item, cycle):
        if not inside[0]:
            sent[item["dest"]] += credit_class(PacketType(item["data"] & 15)) == DATA
        inside[0] = not item["last"]
    tb.wire_out.on_item(count)
    tb.bench.on_sample(generous)
    total = 60
    for n in range(total):
        dst = tb.peers[n % len(tb.peers)]
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst, length=cfg.packet_flits))
    await tb.bench.until(lambda: not tb.sender.pending and tb.tx.waiting == 0, limit=6000, what="all sent")
    await tb.bench.cycles(SETTLE)
    latency = tb.wire_out.stamps[0] - tb.packets.stamps[0]
    assert latency == 2, f"latency through LinkTx: {latency}"
    busy, lost = tb.counts["tx_busy"], tb.counts["tx_idle_waiting"]
    assert lost <= 2 + busy // 100, f"{busy} busy cycles, {lost} lost although flits waited"
    if cfg.rx_credits >= 4:
        span = tb.wire_out.stamps[-1] - tb.wire_out.stamps[0] + 1
        assert busy >= 0.99 * span, f"{busy} flits in {span} cycles"
        cover("link.rate.tx")
    # The other way: as many packets as there are buffers, at full rate.
    first = tb.wire_in.count
    seen = len(tb.out.items)
    for n in range(len(tb.peers) * cfg.rx_credits):
        src = tb.peers[n % len(tb.peers)]
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=cfg.packet_flits), credit=told[src])
    await tb.settle(40)
    assert tb.wire_in.stamps[-1] - tb.wire_in.stamps[first] == tb.wire_in.count - first - 1
    assert tb.out.stamps[seen] - tb.wire_in.stamps[first] == 3, "latency through LinkRx"
    assert tb.out.stamps[-1] - tb.out.stamps[seen] == len(tb.out.items) - seen - 1, "bubble between received packets"
    await tb.bench.cycles(300)
    tb.finish()
    cover("link.rate.rx")


@cocotb.test()
async def control_flits(dut):
    """Control goes between packets and before them; without a credit it waits and packets pass; for a dead peer it is sunk."""
    tb = TB(dut, "control")
    await tb.start()
    cfg, rng, dst = tb.cfg, tb.rng, tb.peers[0]
    tb.wire_out.set_pause("stop")
    for _ in range(min(2, cfg.rx_credits)):
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst, length=cfg.packet_flits))
    await tb.bench.cycles(10)
    tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(5)
    tb.wire_out.set_pause(None)
    await tb.bench.until(lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="control between packets")
    kinds = [unpack(HEADER, tb.wire_out.items[n]["data"])["type"] for n in range(len(tb.wire_out.items))
             if n == 0 or tb.wire_out.items[n - 1]["last"]]
    place = next(n for n, kind in enumerate(kinds) if kind in (PacketType.CLOSE, PacketType.REJECT))
    assert place == 1, kinds
    cover("link.control.between")
    for _ in range(cfg.ctl_credits):                # one more than the rest of the credits
        tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(30)
    assert tb.controls.pending == 1 and not int(dut.ctl_ready.value) >> dst & 1
    tb.send_credit(dst, [min(2, cfg.rx_credits), 0])
    tb.sender.put(dst, random_packet(cfg, rng, 0, dst))
    await tb.bench.until(lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="packet passes a control flit")
    assert tb.controls.pending == 1
    cover("link.control.waits")
    tb.send_credit(dst, [min(2, cfg.rx_credits), 1])
    await tb.bench.until(lambda: not tb.controls.pending, limit=50, what="control after its credit")
    await tb.bench.cycles(20)
    before = len(tb.wire_out.items)
    doomed = random_control(rng, 0, dst)
    tb.controls.put(doomed)
    await tb.bench.cycles(20)
    assert tb.controls.pending == 1
    dut.peer_dead.value = 1 << dst
    await tb.bench.until(lambda: not tb.controls.pending, limit=50, what="sunk")
    tb.tx._controls.clear()
    dut.peer_dead.value = 0
    await tb.bench.cycles(20)
    assert len(tb.wire_out.items) == before
    tb.finish(control_sunk=1)
    cover("link.control.sunk")


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with packets half way in and out: afterwards everything is as at the start."""
    tb = TB(dut, "reset", stall="random")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    for rank in tb.peers:
        tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=cfg.packet_flits))
        tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=cfg.packet_flits))
    await tb.bench.cycles(7)
    tb.out.clear()
    await tb.reset()
    tb.rx, tb.tx = LinkRxModel(cfg, tb.rank, LANE), LinkTxModel(cfg, tb.rank, LANE)
    tb.seq, tb._building = 0, []
    tb._pending_wire.clear()
    tb.counts.clear()
    tb.wire_in.count = tb.wire_out.count = 0
    taken = Counter(tb.sender.taken)
    for rank in tb.peers:
        for _ in range(cfg.rx_credits):
            tb.sender.put(rank, random_packet(cfg, rng, 0, rank))
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank))
    await tb.bench.until(lambda: not tb.sender.pending and tb.tx.waiting == 0, what="all sent after reset")
    await tb.settle(60 + 4 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    assert all(tb.sender.taken[rank] - taken[rank] == cfg.rx_credits for rank in tb.peers)
    tb.finish()
    cover("link.reset_in_traffic")
