# SPDX-License-Identifier: Apache-2.0
"""What the system model needs beside the hubs: a check of the observed order of placement, and the
expert stand-in."""

import numpy as np

from hub_rtl.contract.packets import BODIES, HEADER, PacketType

from .system import ModelError

__all__ = ["check_arrivals", "expert_rows"]


def expert_rows(rows, expert, out_bytes):
    """What the expert stand-in makes of rows: (count, payload) bytes to (count, out_bytes) bytes.

    Byte j of the result is ``row[j mod payload] * 5 + expert * 29 + (j div payload) * 17 + 7``,
    modulo 256.
    """
    payload = rows.shape[1]
    j = np.arange(out_bytes)
    add = (expert * 29 + (j // payload) * 17 + 7).astype(np.uint8)
    return np.ascontiguousarray(rows[:, j % payload] * np.uint8(5) + add)


def _field(packets, name):
    """A field of header or ROW body out of packet records' header words ``low`` and ``high``."""
    low, width = {**HEADER, **BODIES[PacketType.ROW]}[name]
    words = (
        packets["low"].astype(np.uint64) >> np.uint64(low)
        if low < 64
        else packets["high"] >> np.uint64(low - 64)
    )
    if low < 64 < low + width:
        words = words | packets["high"] << np.uint64(64 - low)
    return words & np.uint64((1 << width) - 1)


def check_arrivals(allocs, packets, local=()):
    """Checks observed allocations of one rank against the packets it received.

    ``allocs``: records with cycle, region, bank, rowid; ``packets``: records with first (cycle of
    the header flit) and the header's low and high words; ``local``: (cycle, region, epoch, rowid)
    of the first store of each row of the own rank.

    Returns the number of rows checked; raises ModelError when a row was placed before anything of
    it had arrived.
    """
    first = {}
    rows = packets[_field(packets, "type") == PacketType.ROW]
    keys = zip(
        *(_field(rows, name).tolist() for name in ("region", "epoch", "rowid")),
        rows["first"].tolist(),
        strict=True,
    )
    for region, epoch, rowid, cycle in [*keys, *((r, e, i, c) for c, r, e, i in local)]:
        key = region, epoch & 1, rowid
        first.setdefault(key, []).append(cycle)
    earliest = {key: min(cycles) for key, cycles in first.items()}
    for alloc in allocs:
        key = int(alloc["region"]), int(alloc["bank"]), int(alloc["rowid"])
        if key not in earliest:
            raise ModelError(
                f"region {key[0]} RowID {key[2]}: placed, but no packet of it has arrived"
            )
        if alloc["cycle"] <= earliest[key]:
            raise ModelError(
                f"region {key[0]} RowID {key[2]}: placed in cycle {alloc['cycle']}, "
                f"its first packet came in cycle {earliest[key]}"
            )
    return len(allocs)
