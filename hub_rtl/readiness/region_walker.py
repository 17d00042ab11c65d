"""Carries out software's orders to regions, and clears what an epoch leaves behind."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ADDR_WIDTH
from ..lib.arbiter import lowest_set
from ..lib.onehot import encode
from ..lib.ram import Ram
from .scoreboard_types import OpKind, compose, scoreboard_types
from ..types import types_of

__all__ = ["RegionWalker"]

SETTLE = 2          # cycles in which a purge or quiesce strobe shows at its busy signal
FLUSH = 8           # cycles after which everything that left the combiners has passed the pipeline


class RegionWalker(wiring.Component):
    """Commands OPEN, RELEASE, ABORT, one at a time; clearing of a region's or a dependency range's tiles.

    Contract: OPEN takes effect or is an error at once. RELEASE and ABORT: the bank goes to DONE, is purged from the allocator,
    the writers and the combiners are emptied of what they hold, its tiles' counters and pending bits are cleared, the overflow
    region is told if it was not yet (abort, if some byte of this epoch went there), then the bank is FREE. A range that is
    written with ``armed`` = 0 has its groups cleared.
    Latency: OPEN to its broadcast 7 cycles. RELEASE and ABORT: purge and quiesce, then one cycle per tile of the capacity and
    about 42.
    Order: as taken; ``i_command.ready`` is low meanwhile. Waits for the allocator's, writers' and pipeline's progress only.
    Illegal input: a command that does not fit the bank's state or epoch, or names no region with a geometry, changes
    nothing and pulses ``command_error``.

    Parameters: ``cfg``. Ports: ``i_command`` In stream(region_command); ``command_error`` Out {en, command}; ``dep_write`` In;
    ``dep_busy`` Out: a disarmed range is not yet clear; ``o_op`` Out stream(op); ``result`` In; ``purge`` Out, ``purging`` In;
    ``quiesce`` Out, ``quiescing`` In; ``sweep`` Out, ``sweeping`` In (combiners); ``judging`` In, ``judged_at`` In (finisher);
    ``kill`` Out {en, region, bank}: events of this bank not yet offered are dropped; ``enable`` In.
    Source: docs/interfaces.md section 8.
    """

    def __init__(self, cfg):
        self._cfg, self._types = cfg, scoreboard_types(cfg)
        own, types = self._types, types_of(cfg)
        super().__init__({
            "i_command": In(stream.Signature(types.region_command)), "command_error": Out(own.command_error),
            "dep_write": In(types.dep_write), "dep_busy": Out(1),
            "o_op": Out(stream.Signature(own.op)), "result": In(own.result),
            "purge": Out(own.bank_strobe), "purging": In(1), "quiesce": Out(1), "quiescing": In(1), "sweep": Out(1),
            "sweeping": In(1), "judging": In(1), "judged_at": In(own.bank_name), "kill": Out(own.bank_strobe), "enable": In(1)})

    def elaborate(self, platform):
        m = Module()
        cfg, types = self._cfg, self._types
        command = Signal(types_of(cfg).region_command)
        bank = command.epoch[0]
        book, shape = self.result.book, self.result.geometry
        answered = self.result.valid & (self.result.source == 1)
        kind, telling = Signal(4), Signal()

        # -- dependency ranges that were disarmed -------------------------------------------------------------------------
        m.submodules.ranges = ranges = Ram(types_of(cfg).dep_range, cfg.dep_ranges, quick=True)
        dirty, served = Signal(cfg.dep_ranges), Signal(cfg.dep_ranges)
        first_dirty = lowest_set(m, dirty, "dirty_first")
        span, shift = Signal(ADDR_WIDTH), Signal(6)
        armed = Signal(name="armed")                    # the range that was written off had been armed
        m.d.comb += [ranges.w_en.eq(self.dep_write.en), ranges.w_addr.eq(self.dep_write.index),
                     ranges.w_data.eq(self.dep_write.range)]
        written = Signal(cfg.dep_ranges)
        m.d.comb += written.eq((self.dep_write.en & ~self.dep_write.range.armed) << self.dep_write.index)
        m.d.sync += dirty.eq((dirty & ~served) | written)

        # -- the walk -----------------------------------------------------------------------------------------------------
        group, left, of_range = Signal(cfg.group_width), Signal(max(cfg.slot_width, cfg.group_width) + 1), Signal()
        tell, over_at, abort = Signal(), Signal(cfg.region_width), Signal()
        wait = Signal(range(FLUSH + 1))
        rest = Signal(name="rest")                                  # a last, partial tile
        asks = Signal(name="asks")                                  # registered: the state alone would be late for the pipeline
        m.d.comb += [
            self.o_op.payload.eq(compose(
                types.op, kind=kind, source=1, region=Mux(telling, over_at, command.region), bank=bank & ~of_range,
                epoch=command.epoch, group=group, plain=of_range, abort=abort)),
            self.purge.region.eq(command.region), self.purge.bank.eq(bank),
            self.kill.region.eq(command.region), self.kill.bank.eq(bank),
            self.command_error.command.eq(command), self.o_op.valid.eq(asks),
        ]
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)

        with m.FSM() as fsm:
            m.d.comb += self.dep_busy.eq(dirty.any() | (of_range & ~fsm.ongoing("IDLE")))
            with m.State("IDLE"):
                m.d.sync += of_range.eq(0)
                m.d.comb += self.i_command.ready.eq(self.enable & ~dirty.any())
                with m.If(dirty.any()):
                    m.d.comb += [served.eq(first_dirty), ranges.r_en.eq(1), ranges.r_addr.eq(encode(first_dirty))]
                    m.d.sync += of_range.eq(1)
                    m.next = "RANGE"
                with m.Elif(self.i_command.valid & self.enable):
                    asked = self.i_command.payload
                    m.d.sync += [command.eq(asked), asks.eq((asked.region < cfg.regions) & (asked.op != 3))]
                    m.next = "ORDER"
            with m.State("ORDER"):
                # OPEN, RELEASE and ABORT have the same order in both enumerations.
                m.d.comb += kind.eq(OpKind.OPEN + command.op)
                with m.If(~asks):                       # no such region or order
                    m.d.comb += self.command_error.en.eq(1)
                    m.next = "IDLE"
                with m.Elif(self.o_op.ready):
                    m.d.sync += asks.eq(0)
                    m.next = "ORDERED"
            with m.State("ORDERED"):
                with m.If(answered):
                    m.d.comb += self.command_error.en.eq(~self.result.ok)
                    m.next = "IDLE"
                    with m.If(self.result.ok & (command.op != 0)):
                        m.d.comb += self.kill.en.eq(1)
                        m.next = "PURGE"
            with m.State("PURGE"):
                m.d.comb += [self.kill.en.eq(1), self.purge.en.eq(1)]
                m.d.sync += wait.eq(SETTLE)
                m.next = "PURGING"
            with m.State("PURGING"):
                m.d.comb += self.kill.en.eq(1)
                with m.If((wait == 0) & ~self.purging):
                    m.d.comb += self.quiesce.eq(1)
                    m.d.sync += wait.eq(SETTLE)
                    m.next = "QUIESCING"
            with m.State("QUIESCING"):
                m.d.comb += self.kill.en.eq(1)
                with m.If((wait == 0) & ~self.quiescing):
                    m.d.comb += self.sweep.eq(1)
                    m.d.sync += wait.eq(SETTLE)
                    m.next = "SWEEPING"
            with m.State("SWEEPING"):
                m.d.comb += self.kill.en.eq(1)
                with m.If((wait == 0) & ~self.sweeping):
                    m.d.sync += wait.eq(FLUSH)
                    m.next = "FLUSHING"
            with m.State("FLUSHING"):
                m.d.comb += self.kill.en.eq(1)
                # A verdict that was under way finds the bank DONE and ends by itself.
                mine = self.judging & (self.judged_at.region == command.region) & (self.judged_at.bank == bank)
                with m.If((wait == 0) & ~mine):
                    m.d.sync += asks.eq(1)
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [self.kill.en.eq(1), kind.eq(OpKind.LOOK)]
                with m.If(self.o_op.ready):
                    m.d.sync += asks.eq(0)
                    m.next = "LOOKED"
            with m.State("LOOKED"):
                m.d.comb += self.kill.en.eq(1)
                m.d.sync += [group.eq(shape.group_base), left.eq(shape.capacity >> shape.log2_tile),
                             rest.eq((shape.capacity & ((1 << shape.log2_tile) - 1)).any()), over_at.eq(shape.overflow),
                             tell.eq(shape.overflow_en & ~book.passed), abort.eq(book.touched)]
                with m.If(answered):
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += self.kill.en.eq(~of_range)
                m.d.sync += [left.eq(left + rest), asks.eq(left.any() | rest)]
                m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += [self.kill.en.eq(~of_range), kind.eq(OpKind.CLEAR)]
                with m.If(~asks):                       # none is left
                    m.d.sync += asks.eq(~of_range)
                    m.next = "FREE"
                    with m.If(of_range):
                        m.next = "IDLE"
                    with m.Elif(tell):
                        m.next = "TELL"
                with m.Elif(self.o_op.ready):
                    m.d.sync += [left.eq(left - 1), asks.eq(left != 1), group.eq(group + 1)]
            with m.State("TELL"):
                m.d.comb += [self.kill.en.eq(1), kind.eq(OpKind.PASS), telling.eq(1)]
                with m.If(self.o_op.ready):
                    m.next = "FREE"
            with m.State("FREE"):
                m.d.comb += [self.kill.en.eq(1), kind.eq(OpKind.FREE)]
                with m.If(self.o_op.ready):
                    m.d.sync += asks.eq(0)
                    m.next = "FREED"
            with m.State("FREED"):
                m.d.comb += self.kill.en.eq(1)
                with m.If(answered):
                    m.d.sync += wait.eq(1)
                    m.next = "QUIET"
            with m.State("QUIET"):
                # The last CLEAR may be two cycles old: what the event scan had picked up before it comes out now.
                m.d.comb += self.kill.en.eq(1)
                with m.If(wait == 0):
                    m.next = "IDLE"
            with m.State("RANGE"):
                gone = ranges.r_data
                # limit - base - 1, and a carry if the limit is above the base.
                m.d.sync += [Cat(span, armed).eq(gone.limit + (~gone.base)[:ADDR_WIDTH]), shift.eq(gone.log2_stride),
                             group.eq(gone.group_base), rest.eq(0)]
                m.next = "SHIFT"
            with m.State("SHIFT"):                      # one bit per cycle: no 48-bit shifter for a rare command
                with m.If(~armed):                      # it never was
                    m.next = "IDLE"
                with m.Elif(shift != 0):
                    m.d.sync += [shift.eq(shift - 1), span.eq(span >> 1)]
                with m.Else():
                    m.d.sync += left.eq(Mux(span >= cfg.groups, cfg.groups, span[:cfg.group_width] + 1))
                    m.next = "COUNT"
        return m
