# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the steering parts and of the send ledger."""

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


@PartsRig.test(watchdog=0)
async def ledger_totals(rig, cfg, rng):
    """Updates and reads, each every second cycle at most, with and without clear give the right
    totals."""
    totals = {}
    await rig.until(lambda: not rig.get("ledger_clearing"), what="cleared ledger")
    last_sent = last_read = -9
    recent = {}  # (dest, bank): cycle of the last update
    due = {}  # cycle: key and total that shows in it

    def any_key():  # of few, so that one is often changed again at once
        return rng.randrange(min(cfg.dests, rng.choice((1, 2, cfg.dests)))), rng.randrange(2)

    for cycle in range(3000):
        sent = read = None
        if cycle - last_sent >= 2 and rng.random() < 0.8:
            dest, bank = any_key()
            sent = {"en": 1, "dest": dest, "bank": bank, "bytes": rng.randint(1, cfg.packet_bytes)}
            last_sent = cycle
            recent[dest, bank] = cycle
        if cycle - last_read >= 2 and rng.random() < 0.6:
            key = any_key()
            if cycle - recent.get(key, -9) >= 2:
                read = {"en": 1, "dest": key[0], "bank": key[1], "clear": rng.randrange(2)}
                last_read = cycle
        rig.set("ledger_sent", sent or 0)
        rig.set("ledger_read", read or 0)
        if read:
            due[cycle + 2] = key, totals.pop(key, 0) if read["clear"] else totals.get(key, 0)
            cover("producer.ledger.clear", read["clear"] and due[cycle + 2][1])
        if sent:
            totals[dest, bank] = totals.get((dest, bank), 0) + sent["bytes"]
            cover("producer.ledger.update_meets_read", read is not None)
        if cycle in due:
            key, wanted = due.pop(cycle)
            await rig.sampled()
            assert rig.get("ledger_total") == wanted, f"cycle {cycle}: {key}"
        await rig.cycles(1)
