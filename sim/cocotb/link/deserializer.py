# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the deserializer: packets good and broken, as the wire brings them."""

from collections import Counter
from itertools import product

from hub_rtl.contract.fields import FLIT, SEQ
from hub_rtl.contract.packets import HEADER, NEWS_ENTRIES, PacketType, unpack
from hub_rtl.contract.records import MESSAGES
from hub_rtl.link.deserializer import Deserializer
from sim.bench.rig import Rig
from sim.bench.streams import GRID, SignalPort, StreamSource
from sim.golden.link import LinkRxModel, beats_of, header, with_fields
from sim.quality.coverage import cover

from .rig import LANE, random_control, random_message, random_packet, same_beat


class DeserializerRig(Rig):
    """A deserializer and the model of the wire's receiving end, without limits on credits."""

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=500)
        self.rank = self.rng.randrange(self.cfg.ranks)
        self.peers = [rank for rank in range(self.cfg.ranks) if rank != self.rank]
        names = {field: f"rx__t{field}" for field in ("data", "last")}
        port = SignalPort(dut, "rx", "rx__tvalid", "rx__tready", names)
        self.wire = StreamSource(self, port, pause=idle, rng=self.rng)
        self.wire.on_item(lambda item, cycle: self.model.flit(item["data"], item["last"]))
        self.o_source.set_pause(None)  # it is taken before its packet is
        self.on_sample(self._look)

    def component(self):
        return Deserializer(self.cfg, self.params["slice_bytes"])

    async def start(self):
        self.set("rank", self.rank)
        self.set("lane", LANE)
        await self.reset()
        self.model = LinkRxModel(self.cfg, self.rank, LANE, limit=float("inf"))
        self.seq, self.bad, self.counts, self.told, self.controls = 0, [], Counter(), [], []
        self.totals = []

    def _look(self, cycle):
        if bad := self.strobe("bad"):
            self.bad.append((bad["header"], bad["reason"]))
        self.counts["seq_errors"] += self.get("seq_error")
        self.counts["truncated"] += self.get("truncated")
        if control := self.strobe("control"):
            self.controls.append(control["header"])
        if total := self.strobe("total"):
            self.totals.append((total["rank"], total["total"]))
        for name in MESSAGES:
            if told := self.strobe(name):
                self.told.append((name, told["what"]))

    def send(self, flits, cut=None, more=0, flip=0, **changes):
        """A frame: ``cut``, only so many flits of it; ``more``, flits behind it; ``flip``, bits of
        its header that are wrong. The next one has the number behind its."""
        first = with_fields(flits[0], seq=self.seq, **changes) ^ flip
        flits = [first, *flits[1:], *(self.rng.getrandbits(128) for _ in range(more))][:cut]
        fields = unpack(HEADER, first)
        if fields["type"] != PacketType.IDLE or len(flits) > 1:
            self.seq = (fields["seq"] + 1) % (1 << SEQ)
        self.wire.put(*({"data": d, "last": n == len(flits) - 1} for n, d in enumerate(flits)))

    def packet(self, **fields):
        """A good packet; some masks name few bytes."""
        rng = self.rng
        flits = random_packet(self.cfg, rng, rng.choice(self.peers), self.rank, **fields)
        if unpack(HEADER, flits[0])["masked"] and rng.random() < 0.5:
            for n in range(1, 1 + self.cfg.mask_flits):
                flits[n] = sum(1 << rng.randrange(128) for _ in range(rng.randrange(4)))
        return flits

    async def finish(self):
        await self.wire.drained()
        await self.cycles(60)
        size = self.params["slice_bytes"]
        expected = [
            beat for _, flits in self.model.packets for beat in beats_of(self.cfg, size, flits)
        ]
        assert len(self.o_beat.items) == len(expected), (len(self.o_beat.items), len(expected))
        for number, (came, wanted) in enumerate(zip(self.o_beat.items, expected, strict=True)):
            same_beat(size, came, wanted, f"beat {number}")
        assert self.o_source.items == [src for src, _ in self.model.packets]
        assert self.bad == self.model.bad
        assert self.controls == self.model.controls
        assert self.totals == self.model.totals
        assert self.told == self.model.messages
        for name, count in self.counts.items():
            assert count == self.model.counts[name], (name, count, self.model.counts[name])


@DeserializerRig.test(grid=GRID)
async def packets(rig, cfg, rng, grid):
    """Packets of all kinds, good ones and some that end too early or too late, control flits,
    credits and headers that are refused."""
    for _ in range(rig.params["packets"]):
        kind = rng.random()
        if kind < 0.08:
            rig.send([random_control(rng, rng.choice(rig.peers), rig.rank)])
        elif kind < 0.14:
            rig.send(rig.packet(), fan=1)
        elif kind < 0.2:
            flits = rig.packet()
            rig.send(flits, cut=rng.randrange(1, len(flits)))
        elif kind < 0.25:
            rig.send(rig.packet(), more=rng.randrange(1, 4))
        elif kind < 0.28:
            rig.seq = (rig.seq - 5) % 1024  # a repeat, or a gap
            rig.send(rig.packet())
        else:
            rig.send(rig.packet())
    await rig.until(lambda: not rig.wire.pending, limit=20000, what="all flits")
    cover(f"link.deserializer.grid.{'.'.join(grid)}")
    for name in ("seq_errors", "truncated"):
        cover(f"link.deserializer.{name}", rig.model.counts[name])
    headers = [unpack(HEADER, flits[0]["data"]) for _, flits in rig.model.packets]
    for name, kind in (
        ("row", PacketType.ROW),
        ("plain", PacketType.PLAIN),
        ("news", PacketType.NEWS),
    ):
        cover(f"link.deserializer.{name}", any(each["type"] == kind for each in headers))
    cover("link.deserializer.masked", any(each["masked"] for each in headers))
    await rig.finish()
    cover("link.deserializer.lost", any(beat["lost"] for beat in rig.o_beat.items))


@DeserializerRig.test()
async def headers(rig, cfg, rng):
    """Each bit of a good header of every type, flipped."""
    good = [rig.packet(kind=kind, masked=0) for kind in (PacketType.ROW, PacketType.PLAIN)]
    good += [rig.packet(kind=PacketType.NEWS, length=2, masked=0)]
    good += [[random_control(rng, rng.choice(rig.peers), rig.rank)]]
    others = (PacketType.IDLE, {}), (PacketType.ACK, {}), (PacketType.CREDIT, random_message(rng))
    for kind, body in others:
        credit, src = rng.getrandbits(8), rng.choice(rig.peers)
        good.append([header(kind, body, credit=credit, src=src, dst=rig.rank, lane=LANE)])
    for flits in good:
        for bit in range(FLIT):
            rig.send(flits, flip=1 << bit)
            rig.send(flits)
    await rig.until(lambda: not rig.wire.pending, limit=20000, what="all flits")
    await rig.finish()
    cover("link.deserializer.headers")


@DeserializerRig.test()
async def limits(rig, cfg, rng):
    """Spans and ranks at and beyond their ends, NEWS of too few and too many entries, every
    distance of a sequence number."""
    units, sent = cfg.packet_flits, rng.choice((PacketType.ROW, PacketType.PLAIN))
    flits = rig.packet(kind=sent, length=1, masked=0)
    for length in range(units + 2):
        for first in {*range(units), units - length} & {*range(units)}:
            body = {"row_off" if sent == PacketType.ROW else "addr16": first}
            fields = {"src": rng.choice(rig.peers), "dst": rig.rank, "len": length}
            rig.send([header(sent, body, **fields)], more=length)
    for src in range(2 * cfg.ranks):
        rig.send(flits, src=src)
    for count in range(2 * NEWS_ENTRIES):
        for length in {count // 2, (count + 1) // 2, count // 2 + 1}:
            fields = {"src": rng.choice(rig.peers), "dst": rig.rank, "len": length}
            rig.send([header(PacketType.NEWS, {"count": count}, **fields)], more=length)
    for distance in (*range(0, 1 << SEQ, 61), (1 << SEQ) // 2 - 1, (1 << SEQ) // 2):
        rig.seq = (rig.seq + distance) % (1 << SEQ)
        rig.send(flits)
    await rig.until(lambda: not rig.wire.pending, limit=20000, what="all flits")
    await rig.finish()
    cover("link.deserializer.limits")


@DeserializerRig.test()
async def rate(rig, cfg, rng):
    """Whole packets without a gap: no flit waits, a beat comes 4 cycles after its last flit, the
    source 3 after the header."""
    for _ in range(8):
        rig.send(rig.packet(length=cfg.packet_flits, masked=0))
    await rig.finish()
    flits = rig.wire.stamps
    assert flits[-1] - flits[0] == len(flits) - 1, "a flit waited"
    per_part = rig.params["slice_bytes"] // 16
    assert rig.o_beat.stamps[0] - flits[per_part] == 4
    assert rig.o_beat.stamps[-1] - flits[-1] == 4
    assert rig.o_source.stamps[0] - flits[0] == 3
    cover("link.deserializer.rate")


@DeserializerRig.test()
async def credits(rig, cfg, rng):
    """What a CREDIT says to a slice comes as it was sent; a repeated one says nothing."""
    wanted = []
    said = ("grants", "returns", "asks", "answers")
    for flags in (*product((0, 1), repeat=len(said)), (1, 0, 0, 0)):
        src = rng.choice(rig.peers)
        body = {name: rng.getrandbits(12) for name in ("granted", "returned", "plains")}
        body |= {name: rng.getrandbits(1) for name in ("back", "phase", "bad")}
        body |= dict(zip(said, flags, strict=True))
        rig.send([header(PacketType.CREDIT, body, src=src, dst=rig.rank, lane=LANE)])
        told = (
            ("granted", {"total": body["granted"], "back": body["back"]}),
            ("returned", {"total": body["returned"]}),
            ("asked", {"total": body["plains"], "phase": body["phase"]}),
            ("answered", {"bad": body["bad"]}),
        )
        wanted += [
            (name, {"rank": src, **what})
            for on, (name, what) in zip(flags, told, strict=True)
            if on
        ]
    rig.seq -= 1
    rig.send([header(PacketType.CREDIT, {"grants": 1}, src=src, dst=rig.rank, lane=LANE)])
    await rig.wire.drained()
    await rig.cycles(9)
    assert rig.told == wanted
    cover("link.deserializer.credits")


@DeserializerRig.test(stall="stop")
async def full(rig, cfg, rng):
    """While nobody takes beats the wire waits, and nothing is lost; a reset forgets all."""
    for turn in ("kept", "forgotten", "after"):
        rig.pause("stop", rig.o_beat, rig.o_source)
        for _ in range(12):
            rig.send(rig.packet(length=1, masked=0))
        for _ in range(12):
            rig.send(rig.packet(length=1))
            rig.send(rig.packet())
        await rig.cycles(12 * cfg.frame_flits)
        assert rig.wire.pending, turn
        if turn == "forgotten":
            await rig.start()
            await rig.cycles(3)
            assert not rig.o_beat.port.is_valid()
            continue
        rig.pause(None, rig.o_source)
        await rig.cycles(9)
        rig.pause(None, rig.o_beat)
        await rig.finish()
    cover("link.deserializer.full")
