# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort against a Python peer that breaks the rules: headers, lengths,
numbers."""

import cocotb

from hub_rtl.contract.packets import PacketType, Reason
from sim.golden.link import header, with_fields
from sim.quality.coverage import cover

from .rig import LANE, random_control, random_packet, started


@cocotb.test()
async def bad_headers(dut):
    """Each reason for which a header is refused, with payload behind it, between good packets."""
    tb = await started(dut, "bad")
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
        "control_len": header(PacketType.CLOSE, len=1, **base),
        "control_masked": header(PacketType.REJECT, masked=1, **base),
        "credit_len": header(PacketType.CREDIT, len=1, **base),
        "fan": header(PacketType.ROW, row, len=1, fan=1, **base),
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
    tb.raw([with_fields(header(PacketType.IDLE), seq=tb.seq), 1, 2])  # IDLE that goes on
    tb.seq += 1
    for _ in range(20):  # any other single bit
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
async def garbage_headers(dut):
    """Headers with one to three fields of anything, among good ones: each is judged as the model
    does."""
    tb = await started(dut, "garbage")
    cfg, rng = tb.cfg, tb.rng
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
        src = rng.choice(tb.peers)
        flits = (
            random_packet(cfg, rng, src, tb.rank)
            if rng.random() < 0.7
            else [random_control(rng, src, tb.rank)]
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
        tb.send_wire(flits, credit_cls=rng.randrange(2), credit=rng.getrandbits(8))
        await tb.settle(rng.choice((4, 30)))
    await tb.settle(60)
    assert len(tb.bad) > 40 and len(tb.rx.packets) > 40
    tb.finish()


@cocotb.test()
async def wrong_length(dut):
    """Packets that end early are padded, those that go on are cut, at every length; the next packet
    is whole again."""
    tb = await started(dut, "length", stall="random")
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
    tb = await started(dut, "sequence")
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
async def numbers_anywhere(dut):
    """Numbers ahead and behind by anything, also by just half of all: those in front are taken, the
    others are not."""
    tb = await started(dut, "numbers")
    cfg, rng, number = tb.cfg, tb.rng, 0
    for step in (0, 511, 0, 512, 0, 1023, 0, *(rng.getrandbits(10) for _ in range(60))):
        src = rng.choice(tb.peers)
        number = (number + step) % 1024
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1), seq=number)
        number += 1
        await tb.settle(40)
    tb.finish()
