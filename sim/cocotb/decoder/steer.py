# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the steering parts."""

from collections import deque

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, lane_of, pack
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .parts import Parts


class PartsRig(Rig):
    block = Parts


def any_store(rig, number):
    """A store for the steering, row or plain; the lane that it leaves on."""
    rng = rig.rng
    layout, plain = rng.choice(((OPERAND_PLAIN, 1), (OPERAND_ROW, 0)))
    fields = {name: rng.getrandbits(width) for name, (_, width) in layout.items()}
    item = {
        "operand": pack(layout, **fields | {"plain": plain}),
        "cls": number & 1,
        "owner": number % 16,
        "data": rng.getrandbits(256),
        "mask": rng.getrandbits(32),
        "tag": number % (1 << rig.cfg.tag_width),
    }
    return item, lane_of(item["operand"], rig.cfg.lanes, rig.cfg.packet_bytes)


@PartsRig.test(grid=GRID)
async def steers(rig, cfg, rng, grid):
    """Every store leaves once, unchanged, in order, on the lane of its operand."""
    for number in range(150):
        item, lane = any_store(rig, number)
        rig.steer_o[lane].expect(item)
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
    assert inside == 1, "one place"
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


@PartsRig.test(stall="stop")
async def steering_holds_four(rig, cfg, rng):
    """Four stores find room while no lane takes one, whatever their gaps; then all leave at once,
    one per cycle."""
    for turn in range(12):
        pauses = (None, "random", "cyclic")
        rig.steer_i.set_pause(pauses[turn % 3], rng)
        rig.pause("stop", *rig.steer_o)
        before = rig.steer_i.count
        for number in range(7):
            item, lane = any_store(rig, number)
            rig.steer_o[lane].expect(item)
            rig.steer_i.put(item)
        await rig.cycles(40)
        assert rig.steer_i.count - before == 4, rig.steer_i.count - before
        rig.steer_i.set_pause(None)
        rig.pause(None, *rig.steer_o)
        await rig.cycles(12)
        handed = sorted(stamp for sink in rig.steer_o for stamp in sink.stamps)[-7:]
        assert handed[-1] - handed[0] == 6, handed
        for sink in rig.steer_o:
            sink.finish()
    cover("decoder.steer.full")


@PartsRig.test(grid=GRID)
async def merges_in_turn(rig, cfg, rng, grid):
    """Stores of three lanes come out in the order in which they were taken, one is taken in each
    cycle in which nothing stays inside, nobody is passed over twice by the same other, and flushing
    is as long as what was inside at the strobe, to the cycle."""
    inside, older, waits = deque(), 0, [[] for _ in rig.merge_i]
    moved = {"enter": None, "leave": False}
    for n, source in enumerate(rig.merge_i):
        source.on_item(lambda item, cycle, n=n: moved.update(enter=(n, item)))

    def left(item, cycle):
        moved["leave"] = True
        assert item == inside.popleft(), f"cycle {cycle}"

    rig.merge_o.on_item(left)
    codec = rig.merge_o.port.codec
    for cycle in range(700):
        for source in rig.merge_i:
            if not source.pending and rng.random() < (0.2 if cycle % 200 < 60 else 0.9):
                source.put(codec.unpack(rng.getrandbits(codec.width)))
        flush = rng.random() < 0.1
        rig.set("merge_flush", int(flush))
        moved.update(enter=None, leave=False)
        empty = not inside
        await rig.sampled()
        assert rig.get("merge_flushing") == (older > 0), f"cycle {cycle}"
        valid = [source.port.is_valid() for source in rig.merge_i]
        entered = moved["enter"]
        room = empty or moved["leave"]
        assert (entered is not None) == (any(valid) and room), f"cycle {cycle}"
        if entered:
            inside.append(entered[1])
            waits[entered[0]] = []
            for n, wait in enumerate(waits):
                if valid[n] and n != entered[0]:
                    assert entered[0] not in wait, f"lane {n} is passed over"
                    wait.append(entered[0])
        older -= older > 0 and moved["leave"]
        older = len(inside) if flush else older
        await rig.cycles(1)
    assert rig.merge_o.count > 100
    cover(f"decoder.merge.grid.{'.'.join(grid)}")
