# SPDX-License-Identifier: Apache-2.0
"""What the wide packet manager promises beside the packets: side ports while nothing moves, drains
that end."""

from hub_rtl.wide_packet_manager.quota import ON_THE_WAY
from sim.cocotb.packet_manager import checks

__all__ = ["SidePorts"]

STILL = 24  # cycles without any movement after which the side ports have settled


class SidePorts(checks.SidePorts):
    """The same ports, with a sweep of its own."""

    still, falls = STILL, 5
    on_the_way = ON_THE_WAY

    def _eligible(self, queue, cycle):
        golden = self._rig.golden
        timeout = min(golden.merge_timeout, golden.age_limit)
        surely = (
            golden.merged(queue)["bytes"] == queue[0].full
            or any(s.marked is not None and cycle - s.marked > golden.sweep for s in queue)
            or cycle - max(queue[0].placed + timeout, self._rig.changed) >= golden.sweep
        )
        return surely, golden.early(list(queue), cycle + STILL)

    def _sweeps(self):
        sweep = self._rig.golden.sweep
        return 3 * sweep, 2 * sweep + STILL, 2 * sweep, 0

    def _idle(self, cycle, mark, rank):
        # A mark covers all until a sweep has told the others, and what is just leaving.
        golden = self._rig.golden
        met = golden.met >= 0 and any(
            tag[1] == rank and queue[0].placed <= golden.met
            for tag, queue in golden.pending.items()
        )
        waits = any(s.marked is not None for s in golden.arriving)
        reason = mark or met or golden.covered[rank] or waits or golden.died
        self._clear[rank] = 0 if reason else self._clear[rank] + 1
        if golden.in_flight[rank]:
            self._leaving[rank] = cycle
        return (
            cycle - self._leaving[rank] >= STILL and self._clear[rank] >= 2 * golden.sweep + STILL
        )
