# SPDX-License-Identifier: Apache-2.0
"""Packets, rows and whole epochs of traffic for the bench of the slot allocator."""

from hub_rtl.contract.packets import BODIES, HEADER, PacketType, pack
from sim.golden.slot_allocator import fold


def set_of(cfg, rowid):
    """The set of the RAT that a row of region 0, epoch 1 belongs to."""
    return fold(rowid ^ 1 << 12, cfg.rat_sets)


def packet(src=0, data=(), *, mask=None, came=None, poison=0, mask_flits=1, **body):
    """A packet as a list of flits {data, err}; ``addr`` makes it a plain one. Of those behind the
    header only so many ``came``."""
    kind = PacketType.PLAIN if "addr" in body else PacketType.ROW
    if kind == PacketType.PLAIN:
        body = {"addr16": body["addr"] // 16, "phase": body.get("phase", 0)}
    fields = {
        "type": kind,
        "masked": mask is not None,
        "poison": poison,
        "src": src,
        "len": len(data),
    }
    head = pack(HEADER, **fields) | pack(BODIES[kind], **body)
    masks = [] if mask is None else [mask >> 128 * n & (1 << 128) - 1 for n in range(mask_flits)]
    flits = [*masks, *data]
    came = len(flits) if came is None else came
    return [
        {"data": head, "err": 0},
        *({"data": word if n < came else 0, "err": int(n >= came)} for n, word in enumerate(flits)),
    ]


class Traffic:
    """Makes packets of rows: each row in packet-sized blocks, a block whole, in two spans, or in
    two masked parts."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.far = 0  # where plain stores go

    def words(self, count):
        return [self.rng.getrandbits(128) for _ in range(count)]

    def mask(self, units):
        """Some bytes of so many units: any, or whole units."""
        if self.rng.random() < 0.5:
            return self.rng.getrandbits(16 * units)
        return sum(0xFFFF << 16 * n for n in range(units) if self.rng.random() < 0.5)

    def block(self, units, first, src, body):
        """Packets that cover ``units`` 16-byte units of a row from unit ``first``, all in one
        block, each byte once."""
        rng, cfg = self.rng, self.cfg
        flits = cfg.packet_flits
        kind = rng.choice(("whole", "whole", "spans", "masked"))
        if kind == "spans" and units > 1:
            cut = rng.randrange(1, units)
            return [
                packet(src, self.words(cut), row_off=first, **body),
                packet(src, self.words(units - cut), row_off=first + cut, **body),
            ]
        if kind == "masked":
            low = 16 * (first % flits)
            whole = ((1 << 16 * units) - 1) << low
            one = self.mask(units) << low | 1 << low
            out = []
            for mask in (one, whole & ~one):
                if mask:
                    start, stop = (mask & -mask).bit_length() - 1 >> 4, mask.bit_length() - 1 >> 4
                    row_off = first - first % flits + start
                    masked = {"mask": mask, "mask_flits": cfg.mask_flits, "row_off": row_off}
                    out.append(packet(src, self.words(stop + 1 - start), **masked, **body))
            return out
        return [packet(src, self.words(units), row_off=first, **body)]

    def row(self, row_bytes, src, **body):
        """All packets of one row, in random order."""
        out = []
        for first in range(0, row_bytes // 16, self.cfg.packet_flits):
            out += self.block(min(self.cfg.packet_flits, row_bytes // 16 - first), first, src, body)
        self.rng.shuffle(out)
        return out

    def plain(self, ranks, span=4096):
        rng, cfg = self.rng, self.cfg
        first = rng.randrange(cfg.packet_flits)
        units = rng.randrange(1, cfg.packet_flits - first + 1)
        addr = self.far + rng.randrange(span // cfg.packet_bytes) * cfg.packet_bytes + 16 * first
        mask = self.mask(units) << 16 * first if rng.random() < 0.3 else None
        body = {"addr": addr, "phase": rng.getrandbits(1), "mask_flits": cfg.mask_flits}
        return packet(rng.randrange(ranks), self.words(units), mask=mask, **body)

    def weave(self, rows, window):
        """One list of packets; ``window`` rows are on their way at a time."""
        rng, rows, live, out = self.rng, list(rows), [], []
        while rows or live:
            while rows and len(live) < window:
                live.append(list(rows.pop(0)))
            each = rng.choice(live)
            out.append(each.pop(0))
            if not each:
                live.remove(each)
        return out


async def mixed_traffic(rig, rows, epoch, faults=0.1):
    """One epoch of rows in all regions, with plain packets, foreign, early, late, overlong and
    strange packets in between."""
    cfg, rng, traffic = rig.cfg, rig.rng, rig.traffic
    lists = [[] for _ in range(cfg.slices)]
    for region in range(cfg.regions):
        geometry = rig.model.regions[region]
        first, row_bytes = geometry["row_first"], geometry["row_bytes"]
        outside = [first + geometry["row_span"], (1 << 24) - 1, max(first - 1, 0) or (1 << 24) - 1]
        for n in range(rows):
            rowid = first + n * 3
            src = rng.randrange(cfg.ranks)
            body = {"region": region, "epoch": epoch, "rowid": rowid}
            out = traffic.row(row_bytes, src, **body)
            units = 2 if row_bytes > 16 else 1
            end = row_bytes // 16 - (row_bytes % cfg.packet_bytes > 0)
            strange = [
                {"src": (src + 1) % cfg.ranks},  # FOREIGN if late
                {"epoch": (epoch + rng.randrange(1, 16)) % 16},
                {"row_off": end, "count": 2},  # ROW_OVERRUN
                {"rowid": rng.choice(outside)},
                {"region": rng.randrange(cfg.regions, 2048)},
                {"poison": rng.randrange(2), "came": rng.randrange(2)},  # overlap or a new row
                {  # mask lost, or empty: also where its first bytes lie before it
                    "count": units,
                    "row_off": units * rng.randrange(row_bytes // 16 // units),
                    **({"came": 0} if units > 1 else {}),
                    "mask": 0xFFFF if units > 1 else 0,
                    "mask_flits": cfg.mask_flits,
                },
            ]
            for fields in strange:
                if rng.random() < faults:
                    fields = {"src": src, "row_off": 0, "count": 1, **body, **fields}
                    data = traffic.words(fields.pop("count"))
                    out.insert(rng.randrange(len(out) + 1), packet(data=data, **fields))
            lists[rng.randrange(cfg.slices)].append(out)
            if rng.random() < 0.3:
                lists[rng.randrange(cfg.slices)].append(
                    [traffic.plain(cfg.ranks) for _ in range(rng.randrange(1, 4))]
                )
    for each in lists:
        rng.shuffle(each)
    await rig.run([traffic.weave(each, rng.choice((1, 3, 6))) for each in lists])


async def set_up(rig):
    """Regions of mixed geometry (region 0 overflows into the last one), windows, ranges."""
    cfg, rng, last = rig.cfg, rig.rng, rig.cfg.regions - 1
    long = min(cfg.max_row_bytes, 3 * cfg.packet_bytes)
    for region in range(cfg.regions):
        row_bytes = (long, max(16, long - 16), 16, long)[region % 4] if region != last else long
        stride = (region % 2 + -(-row_bytes // cfg.packet_bytes)) * cfg.packet_bytes
        full = region == 0 < last
        fields = {
            "row_bytes": row_bytes,
            "stride": min(stride, 2 * max(cfg.max_row_bytes, cfg.packet_bytes)),
            "row_first": rng.randrange((1 << 24) - 4100),
            "row_span": 4000,
            "capacity": min(cfg.capacity, 3 if full else 6 + region),
            "log2_tile": region % 3,
            "overflow_en": int(full),
            "overflow": last,
        }
        await rig.region(region, **fields)
    far = rng.randrange(1 << 36) << 12
    rig.traffic.far = far
    await rig.window(0, far, far + 4096)
    await rig.window(1, far + 1024, far + 3072)
    for index in range(cfg.dep_ranges):
        await rig.dep(
            index,
            armed=int(rng.random() < 0.7),
            base=far + 300 * index,
            limit=far + 600 + 900 * index,
            log2_stride=5 + index,
            group_base=index,
            threshold=rng.getrandbits(24),
        )
