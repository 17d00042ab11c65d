# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort against a Python peer that breaks the rules: headers, lengths,
numbers."""

from hub_rtl.contract.fields import FLIT, SEQ
from hub_rtl.contract.packets import HEADER, PacketType, Reason, unpack
from sim.golden.link import header, with_fields
from sim.quality.coverage import cover

from .rig import LANE, LinkRig, random_control, random_message, random_packet


@LinkRig.test()
async def bad_headers(rig, cfg, rng):
    """Each reason for which a header is refused, with payload behind it, between good packets."""
    good = rig.peers[0]
    units = cfg.packet_flits
    row = {"region": 1, "epoch": 2, "rowid": 3, "row_off": units}
    base = {"src": good, "dst": rig.rank, "lane": LANE}
    cases = {f"type{kind}": header(PacketType.IDLE, **base) | kind for kind in (3, *range(8, 16))}
    cases |= {
        "len0": header(PacketType.ROW, row, **base),
        "row_span": header(PacketType.ROW, {**row, "row_off": units - 1}, len=2, **base),
        "long": header(PacketType.ROW, row, len=units + 1, **base),
        "plain_span": header(PacketType.PLAIN, {"addr16": 5 * units + 1}, len=units, **base),
        "control_len": header(PacketType.REJECT, len=1, **base),
        "control_masked": header(PacketType.REJECT, masked=1, **base),
        "news_none": header(PacketType.NEWS, {"count": 0}, len=1, **base),
        "news_many": header(PacketType.NEWS, {"count": 17}, len=9, **base),
        "news_short": header(PacketType.NEWS, {"count": 5}, len=2, **base),
        "news_long": header(PacketType.NEWS, {"count": 4}, len=3, **base),
        "news_masked": header(PacketType.NEWS, {"count": 2}, len=1, masked=1, **base),
        "credit_len": header(PacketType.CREDIT, len=1, **base),
        "fan": header(PacketType.ROW, row, len=1, fan=1, **base),
        "own_src": header(PacketType.ROW, row, len=1, **{**base, "src": rig.rank}),
        "far_src": header(PacketType.ROW, row, len=1, **{**base, "src": cfg.ranks}),
        "dst": header(PacketType.ROW, row, len=1, **{**base, "dst": good}),
        "far_dst": header(PacketType.REJECT, **{**base, "dst": 127}),
        "lane": header(PacketType.ROW, row, len=1, **{**base, "lane": 31}),
        "lane_control": header(PacketType.REJECT, **{**base, "lane": 1}),
    }
    for name, flit in cases.items():
        rig.send_wire([flit, *(rng.getrandbits(128) for _ in range(rng.randrange(4)))])
        await rig.settle(2)
        cover(f"link.bad.{'type' if name.startswith('type') else name}")
    rig.raw([with_fields(header(PacketType.IDLE), seq=rig.seq), 1, 2])  # IDLE that goes on
    rig.seq += 1
    for _ in range(20):  # any other single bit
        flits = random_packet(cfg, rng, good, rig.rank, length=1)
        rig.send_wire([flits[0] ^ 1 << rng.randrange(32), *flits[1:]])
        await rig.cycles(20)
        for rank in rig.peers:
            rig.send(rank)
        await rig.settle(40)
    assert len(rig.bad) >= len(cases) + 1
    assert {reason for _, reason in rig.bad} == {Reason.BAD_HEADER, Reason.BAD_LANE}


@LinkRig.test()
async def garbage_headers(rig, cfg, rng):
    """Headers with one to three fields of anything, among good ones: each is judged as the model
    does."""
    widths = {
        "type": 4,
        "fan": 1,
        "dst": 7,
        "src": 7,
        "lane": 5,
        "len": 5,
        "masked": 1,
        "poison": 1,
        "zero": 4,
    }
    for n in range(250):
        src = rng.choice(rig.peers)
        flits = (
            random_packet(cfg, rng, src, rig.rank)
            if rng.random() < 0.7
            else [random_control(rng, src, rig.rank)]
        )
        if n % 4:
            fields = {
                name: rng.getrandbits(widths[name])
                for name in rng.sample(list(widths), rng.randint(1, 3))
            }
            if rng.random() < 0.5:  # near misses: a single bit, and units at the end of their block
                fields = {name: value % 3 for name, value in fields.items()}
                flits[0] |= rng.getrandbits(4) << (71 if rng.random() < 0.5 else 32)
            if fields.get("type") != PacketType.CREDIT:  # its totals are another test's
                flits[0] = with_fields(
                    flits[0],
                    **{name: value % (1 << widths[name]) for name, value in fields.items()},
                )
        rig.send_wire(flits, credit=rng.getrandbits(8))
        await rig.settle(rng.choice((4, 30)))
    await rig.settle(60)
    assert len(rig.bad) > 40 and len(rig.rx.packets) > 40


@LinkRig.test()
async def every_bit(rig, cfg, rng):
    """Each bit of a good header of every type, flipped."""
    src = rig.peers[0]
    good = [
        random_packet(cfg, rng, src, rig.rank, kind=kind, length=length, masked=0)
        for kind, length in ((PacketType.ROW, 1), (PacketType.PLAIN, None), (PacketType.NEWS, 2))
    ]
    good += [[random_control(rng, src, rig.rank)]]
    others = (PacketType.IDLE, {}), (PacketType.ACK, {}), (PacketType.CREDIT, random_message(rng))
    good += [[header(kind, body, src=src, dst=rig.rank, lane=LANE)] for kind, body in others]
    for flits in good:
        for bit in range(FLIT):
            wrong = with_fields(flits[0], seq=rig.seq) ^ 1 << bit
            rig.raw([wrong, *flits[1:]])
            fields = unpack(HEADER, wrong)
            if fields["type"] != PacketType.IDLE or len(flits) > 1:
                rig.seq = (fields["seq"] + 1) % (1 << SEQ)
            await rig.settle(24)  # a control flit's buffer is free again, and that was told
    cover("link.every_bit")


@LinkRig.test(stall="random")
async def wrong_length(rig, cfg, rng):
    """Packets that end early end in a lost beat, those that go on are cut, at every length; the
    next packet is whole again."""
    src = rig.peers[0]
    for length in range(1, cfg.packet_flits + 1):
        flits = random_packet(cfg, rng, src, rig.rank, length=length)
        for end in {1, 2, len(flits) - 1, len(flits), rng.randint(1, len(flits))}:
            rig.send_wire(flits[:end])
            rig.send(rig.peers[-1], length=1)
            await rig.settle(60)
            cover("link.short.header_only", end == 1 < len(flits))
            cover("link.short.payload", 1 < end < len(flits))
        for more in (1, 3):
            rig.send_wire(flits + [rng.getrandbits(128) for _ in range(more)])
            await rig.settle(60)
    for kind in (PacketType.REJECT, PacketType.CREDIT, PacketType.ACK):
        rig.send_wire([header(kind, src=src, dst=rig.rank, lane=LANE), rng.getrandbits(128)])
        await rig.settle(10)
    rig.send(src)
    await rig.settle(120)
    assert rig.counts["truncated"] > 10
    cover("link.long")


@LinkRig.test()
async def sequence(rig, cfg, rng):
    """Gaps are counted, repeats dropped, and numbering heals after both; the number wraps."""
    src = rig.peers[0]
    for seq in (0, 1, 1, 2, 5, 6, 3, 4, 515, 516, 4, 5, 6, 1023, 0, 1, 0):
        rig.send_wire(random_packet(cfg, rng, src, rig.rank, length=1), seq=seq)
        await rig.settle(40)
    rig.seq = 10  # a gap, and a header that is refused in the very next cycle
    rig.send_control(src)
    rig.send_wire([header(PacketType.IDLE, src=src, dst=rig.rank, lane=LANE) | 9])
    rig.seq = 0
    await rig.settle()
    delivered = len(rig.rx.packets)
    assert delivered == 13 and rig.counts["seq_errors"] == 8, (delivered, rig.counts)
    for _ in range(1030):
        rig.send_wire([header(PacketType.ACK, src=src, dst=rig.rank, lane=LANE)])
    await rig.settle()
    cover("link.seq.repeat")
    cover("link.seq.gap")
    cover("link.seq.wrap")


@LinkRig.test()
async def numbers_anywhere(rig, cfg, rng):
    """Numbers ahead and behind by anything, also by just half of all: those in front are taken, the
    others are not."""
    number = 0
    for step in (0, 511, 0, 512, 0, 1023, 0, *(rng.getrandbits(10) for _ in range(60))):
        src = rng.choice(rig.peers)
        number = (number + step) % 1024
        rig.send_wire(random_packet(cfg, rng, src, rig.rank, length=1), seq=number)
        number += 1
        await rig.settle(40)
