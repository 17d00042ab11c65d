# SPDX-License-Identifier: Apache-2.0
"""Promise of the scoreboard (``hub_rtl/scoreboard/scoreboard.py``) about what joins its parts."""

from amaranth import Value
from amaranth.lib import wiring

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.scoreboard.scoreboard import ReadinessScoreboard

__all__ = ["PartsReachThePorts"]

#: Ports of the scoreboard that are the walker's.
WALKERS = ("purge", "purging", "quiesce", "quiescing", "command_error", "dep_busy")


class PartsReachThePorts(Spec):
    """Whatever the parts say: the books answer the query; the finisher asks the allocator; overlaps
    come in and stalls, second closes and states go out; the walker's purge, quiesce and errors are
    the ports'. All in the same cycle, stalls in the next."""

    def build(self, m):
        m.submodules.dut = dut = ReadinessScoreboard(self._cfg)
        inside = observe(dut)
        books, finisher, walker = inside.books, inside.finisher, inside.walker
        for part in inside:
            if isinstance(part, wiring.Component):
                cut(self, part)
        self.free_inputs(dut)
        pairs = {
            "query": (books.query, dut.query),
            "status": (dut.status, books.status),
            "missing_from": (dut.missing_from, books.missing),
            "silent": (dut.silent, books.silent),
            "o_region_update": (dut.o_region_update, books.region_update),
            "bad_close": (dut.bad_close, books.bad_close),
            "rows_query": (dut.rows_query, finisher.rows_query),
            "rows": (finisher.rows, dut.rows),
            "overlap": (inside.overlaps.overlap, dut.overlap),
            "timeout": (inside.clock.timeout, dut.timeout),
            **{name: (getattr(walker, name), getattr(dut, name)) for name in WALKERS},
        }
        for name, (inner, outer) in pairs.items():
            self.always(name, Value.cast(inner) == Value.cast(outer))
        stalled = self.past(books.timeout, "stalled")
        self.always("o_timeout", Value.cast(dut.o_timeout) == stalled)
