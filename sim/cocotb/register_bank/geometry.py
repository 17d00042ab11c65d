# SPDX-License-Identifier: Apache-2.0
"""Geometries for the tests of the register bank: random good ones, and each rule broken."""

__all__ = ["BREAK", "good_geometry", "stage_geometry"]


def good_rows(rng):
    first = rng.choice((0, rng.getrandbits(24)))
    return {
        "row_first": first,
        "row_span": rng.choice(((1 << 24) - first, rng.randint(1, (1 << 24) - first))),
    }


def good_geometry(cfg, rng):
    row_bytes = 16 * rng.randint(1, cfg.max_row_bytes // 16)
    log2_tile = rng.randint(0, 6)
    capacity = rng.randint(1, min(cfg.capacity, (cfg.groups - 1) << log2_tile))
    stride = -(-row_bytes // cfg.packet_bytes) * cfg.packet_bytes
    return {
        "valid": 1,
        "row_bytes": row_bytes,
        "stride": stride,
        "capacity": capacity,
        "log2_tile": log2_tile,
        "group_base": rng.randint(0, cfg.groups - (-(-capacity >> log2_tile)) - 1),
        **good_rows(rng),
        "base": [rng.getrandbits(48) & ~255, rng.getrandbits(48) & ~255],
        "spill_base": [rng.getrandbits(48) & ~7, rng.getrandbits(48) & ~7],
        "flag_en": rng.getrandbits(1),
        "flag_base": rng.getrandbits(48) & ~7,
        "expected": rng.randint(1, cfg.ranks),
        "overflow_en": 0,
        "overflow": 0,
    }


def misalign(rng, g):
    """One bit too many in one of the addresses."""
    name = rng.choice(("base", "base", "spill_base", "flag_base"))
    bit = 1 << rng.randrange(7 if name == "base" else 3)
    if name == "flag_base":
        g[name] |= bit
    else:
        g[name][rng.randrange(2)] |= bit


BREAK = {
    "row_bytes": lambda cfg, rng, g: g.update(
        row_bytes=rng.choice((0, 8, g["row_bytes"] | rng.randint(1, 15)))
    ),
    "stride": lambda cfg, rng, g: g.update(
        stride=rng.choice((g["stride"] | 1 << rng.randrange(7), g["stride"] - cfg.packet_bytes))
    ),
    "base": lambda cfg, rng, g: misalign(rng, g),
    "capacity": lambda cfg, rng, g: g.update(capacity=rng.choice((0, cfg.capacity + 1))),
    "groups": lambda cfg, rng, g: g.update(
        rng.choice(
            ({"log2_tile": 11}, {"log2_tile": 0, "capacity": 2, "group_base": cfg.groups - 1})
        )
    ),
    "rows": lambda cfg, rng, g: g.update(
        rng.choice(({"row_span": 0}, {"row_first": 1, "row_span": 1 << 24}))
    ),
    "overflow": lambda cfg, rng, g: g.update(overflow_en=1, overflow=g["index"]),
    "valid": lambda cfg, rng, g: g.update(valid=0),
}


async def stage_geometry(rig, index, g):
    await rig.write("regions.INDEX", index)
    await rig.fields(
        "regions.FLAGS",
        **{
            name: g[name]
            for name in ("valid", "overflow_en", "flag_en", "log2_tile", "expected", "overflow")
        },
    )
    for name in ("stride", "row_bytes", "capacity", "group_base", "row_first", "row_span"):
        await rig.write(f"regions.{name.upper()}", g[name])
    wide = {
        "BASE0": g["base"][0],
        "BASE1": g["base"][1],
        "SPILL_BASE0": g["spill_base"][0],
        "SPILL_BASE1": g["spill_base"][1],
        "FLAG_BASE": g["flag_base"],
    }
    for name, value in wide.items():
        await rig.write(f"regions.{name}_LO", value & 0xFFFFFFFF)
        await rig.write(f"regions.{name}_HI", value >> 32)
