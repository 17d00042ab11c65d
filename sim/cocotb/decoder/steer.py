# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the steering parts."""

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, lane_of, pack
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .parts import Parts


class PartsRig(Rig):
    block = Parts


@PartsRig.test(grid=GRID)
async def steers(rig, cfg, rng, grid):
    """Every store leaves once, unchanged, in order, on the lane of its operand."""
    for number in range(150):
        layout, plain = rng.choice(((OPERAND_PLAIN, 1), (OPERAND_ROW, 0)))
        fields = {name: rng.getrandbits(width) for name, (_, width) in layout.items()} | {
            "plain": plain
        }
        item = {
            "operand": pack(layout, **fields),
            "cls": number & 1,
            "owner": number % 16,
            "data": rng.getrandbits(256),
            "mask": rng.getrandbits(32),
            "tag": number % (1 << cfg.tag_width),
        }
        rig.steer_o[lane_of(item["operand"], cfg.lanes, cfg.packet_bytes)].expect(item)
        rig.steer_i.put(item)
    await rig.until(lambda: sum(sink.count for sink in rig.steer_o) == 150, what="all stores")
    await rig.cycles(30)
    for sink in rig.steer_o:
        sink.finish()
    if grid == ("none", "none"):
        handed = sorted(stamp for sink in rig.steer_o for stamp in sink.stamps)
        assert [b - a for a, b in zip(rig.steer_i.stamps, handed, strict=True)] == [3] * 150, (
            "3 cycles, one store per cycle"
        )
    cover(f"decoder.steer.grid.{'.'.join(grid)}")


@PartsRig.test(idle="random", stall="stop")
async def merges_and_flushes(rig, cfg, rng):
    """Own-rank stores of three lanes join; flushing tells when those of before the strobe are out,
    whatever comes later."""
    codec, sent = rig.merge_o.port.codec, [[] for _ in rig.merge_i]
    for number in range(90):  # the rest of a RowID by 3 says which lane it came from
        item = codec.unpack(rng.getrandbits(codec.width)) | {
            "rowid": 3 * rng.randrange((1 << 24) // 3) + number % 3
        }
        rig.merge_i[number % 3].put(item)
        sent[number % 3].append(item)
    await rig.cycles(30)
    inside = sum(source.count for source in rig.merge_i)
    assert inside == 2, "two places"
    await rig.pulse("merge_flush")
    await rig.sampled()
    assert rig.get("merge_flushing")
    await rig.cycles(20)
    assert rig.get("merge_flushing")
    rig.merge_o.set_pause("none")
    start = rig.cycle
    while rig.get("merge_flushing"):
        await rig.sampled()
    assert rig.cycle - start <= 4 and rig.merge_o.count >= inside
    for source in rig.merge_i:
        await source.drained()
    await rig.cycles(5)
    for n in range(3):
        assert [item for item in rig.merge_o.items if item["rowid"] % 3 == n] == sent[n]
    cover("decoder.merge.flush")
