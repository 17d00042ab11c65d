# SPDX-License-Identifier: Apache-2.0
"""Promises of the hub's registers in the middle of traffic: what software does to one region leaves
the others alone."""

from amaranth import Cat, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import moves
from formal.register_bank.bus import BusWatch, always_answers, always_interrupts
from hub_rtl.contract.axi import AxiLite
from hub_rtl.contract.fields import CSR_ADDR
from hub_rtl.contract.packets import EventKind, RegionOp, RegionState

from .cut import CutHub, whole

__all__ = ["GeometryOfBusyRegionStays", "InterruptTellsWhatIsEnabled", "RegistersAlwaysAnswer"]


class RegistersSpec(CutHub):
    """A hub with its real registers but for the event counters; the other blocks are cut out."""

    def registers(self, m):
        """The hub; ``bus``: the accesses to its registers; ``bank``: what these consist of."""
        dut = self.hub(m, keep=("CsrBank",))
        self.bank = observe(observe(dut).csr)
        cut(self, self.bank.counters)
        names = AxiLite(CSR_ADDR).members
        self.bus = BusWatch(
            self, self.cfg, {name: getattr(dut, f"s_axil_csr_{name}") for name in names}
        )
        return dut


class GeometryOfBusyRegionStays(RegistersSpec):
    """Whatever software writes and when, a geometry is written only for the region that INDEX named
    when COMMIT was answered, and reaches allocator and scoreboard only while both banks of that
    region are FREE and no OPEN for it is under way; a command names the region of INDEX. Followed:
    one region. Assumed of the scoreboard: it takes no command while an OPEN is under way and for at
    most 4 cycles after; a bank leaves FREE by OPEN only; ``status`` is that of ``query`` 2 cycles
    before."""

    SHOWS = 4

    def build(self, m):
        self.registers(m)
        cfg, scoreboard = self.cfg, self.one("ReadinessScoreboard")
        region = self.constant(cfg.region_width, "region")
        command = scoreboard.i_command
        order = command.payload
        ours = (order.region <= region) & (region <= order.last)
        # The books of the region: a bank is FREE or in use; it may leave FREE while an order that
        # opens it is under way (`due`).
        free = Signal(2, init=3)
        due = Signal(2)
        age = Signal(range(self.SHOWS + 2))
        opening = moves(command) & ((order.op == RegionOp.OPEN) | order.again)
        changes = Signal(2)  # when the state changes is the scoreboard's affair
        self.free(changes)
        with m.If(opening):
            m.d.sync += age.eq(0)
        with m.Elif((command.ready | (age != 0)) & (age < self.SHOWS)):
            m.d.sync += age.eq(age + 1)
        for bank in range(2):
            with m.If(opening & ours & (order.epoch[0] == bank)):
                m.d.sync += due[bank].eq(1)
            with m.Elif(age == self.SHOWS):
                m.d.sync += due[bank].eq(0)
            with m.If((due[bank] | ~free[bank]) & changes[bank]):
                m.d.sync += free[bank].eq(~free[bank])
        self.suppose("busy with an OPEN at first", ~command.ready, when=self.past(opening))
        asked = self.past(
            self.past(
                Cat(
                    whole(scoreboard.query.region) == region,
                    free.bit_select(scoreboard.query.bank, 1),
                )
            )
        )
        self.suppose(
            "status of the region",
            (scoreboard.status.state == RegionState.FREE) == asked[1],
            when=asked[0],
        )

        write = scoreboard.geometry_write
        index = Signal(cfg.region_width)
        named = Signal(cfg.region_width)
        with m.If(self.bus.wrote("regions.INDEX")):
            m.d.sync += index.eq(self.bus.data)
        with m.If(self.bus.wrote("regions.COMMIT")):
            m.d.sync += named.eq(index)
        self.always(
            "both banks are FREE, nothing opens",
            (free == 3) & (due == 0),
            when=write.en & (write.region == region),
        )
        self.always("the region that COMMIT meant", write.region == named, when=write.en)
        offered = self.past(command.valid)
        self.always(
            "the command's region is INDEX",
            command.payload.region == index,
            when=command.valid & ~offered,
        )
        used = Signal()
        m.d.sync += used.eq(used | ~free.all())
        self.reach(
            "a geometry, after the region was in use", write.en & (write.region == region) & used
        )


class InterruptTellsWhatIsEnabled(RegistersSpec):
    """``irq`` is 1 exactly when some source is set in IRQ_STATUS and enabled in IRQ_ENABLE, one
    cycle before. ``event`` is set while an event waits; each other source from its strobe until
    software writes a 1 to its bit. Followed: the sources one by one; a source whose strobe came
    while such a write was under way is not judged until it is set or cleared again."""

    def build(self, m):
        dut = self.registers(m)
        regions, scoreboard = self.bank.regions, self.one("ReadinessScoreboard")
        cut(self, regions)
        event = scoreboard.o_event
        strobes = {
            "error": moves(event) & (event.payload.kind == EventKind.ERROR),
            "timeout": regions.timeout_set,
            "refusal": self.one("RefusalLog").logged,
            "command": scoreboard.command_error.en,
            "geometry": regions.errors.any(),
            "bad_packet": self.one("RefusalLog").o_bad.en,
        }
        always_interrupts(self, self.bus, dut.irq, event.valid, strobes)


class RegistersAlwaysAnswer(RegistersSpec):
    """Every register access gets one answer, and no answer comes without an access; whatever hangs
    in the other blocks, it comes within 40 cycles after address and data, if earlier answers were
    taken. Reads and writes alternate when both wait."""

    LIMIT = 40  # an access of the other kind, and a COMMIT's check, may come first

    def build(self, m):
        self.registers(m)
        always_answers(self, self.bus.port, self.LIMIT)
