# SPDX-License-Identifier: Apache-2.0
"""Do shared blocks limit a link of many lanes? ``moe-hub bench --lanes N``.

The worst case for what the lanes share (address table, scoreboard, registers, control): short rows,
every one new, all of one region, on every lane of the link at once.
"""

import numpy as np

from .bench_speed import SMALL, Line, close, one_to_many, row_packets, run_checked

__all__ = ["line_rate"]

ROW_BYTES = 1024
ROWS_PER_LANE = 24
POOL_PLACES = 64  # of each slice: more than the round trip of 2 x 20 cycles holds
#: A producer that obeys ``can_accept`` may store to a rank while there are entries for all that can
#: be on its way, 14; with 16 entries and one peer that is while the pool is all but empty (90 %).
POOL_DEPTH = 32
LANES_TARGET = 99  # percent, of the lane that was used least


def line_rate(lanes):
    """A producer fills every lane of its link with new rows of 1 KiB for one region of one
    consumer.

    Parameters: ``lanes`` of the link. Returns one line: share of cycles with a flit at the
    receiver, from the first to the last ROW packet of the lane, of the lane used least. Memory and
    events are compared with the golden model first. Preset ``small`` with 2 ranks and 32 pool
    entries. The simulation is built without the compiler's optimisation: at 18 lanes compiling
    takes longer than running.
    """
    cfg, rng = (
        SMALL.replace(
            name="small", ranks=2, lanes=lanes, pool_places=POOL_PLACES, pool_depth=POOL_DEPTH
        ),
        np.random.default_rng(lanes),
    )
    rows = lanes * ROWS_PER_LANE
    s = one_to_many(cfg, ROW_BYTES, consumers=(1,), tile=4)
    for rowid in range(rows):
        s.row(0, 1, rowid, rng.bytes(ROW_BYTES))
    close(s, (0,), (1,))
    result = run_checked(s, cfg, optimise=False)
    packets = row_packets(result, (1,))
    result.remove()
    busy = []
    for lane in range(lanes):
        mine = packets[packets["link"] == lane]
        busy.append(
            100 * float(mine["flits"].sum()) / float(mine["last"].max() - mine["first"].min() + 1)
        )
    return [
        Line(
            f"least busy of {lanes} lanes, new rows of 1 KiB of one region",
            min(busy),
            "%",
            ">=",
            LANES_TARGET,
        )
    ]
