# SPDX-License-Identifier: Apache-2.0
"""A hub that sends rows to itself, within and over its links, with everything around it, and a
verdict."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.hub.hub import Hub

from .memory import RowChecker, SpillMemory
from .mirror import Mirror
from .plan import Plan
from .sequencer import Sequencer
from .traffic import Traffic

__all__ = ["SelfTest", "CODES"]

#: What ``code`` says: its set bits, from bit 0.
CODES = (
    "registers",
    "answers or events",
    "row memory",
    "spill memory",
    "number of units",
    "no progress",
)
WATCHDOG = 18  # bits: cycles without an end of the round


class SelfTest(wiring.Component):
    """Runs epochs of rows through a hub whose peer is its mirror image (:class:`.mirror.Mirror`);
    every byte that reaches a memory is checked in hardware.

    Contract: ``passed`` when all rounds are through and nothing was wrong, ``failed`` as soon as
    something is, with ``code`` (bits of CODES). Then nothing more changes. Memories pause at
    random.

    Parameters: ``plan``, :class:`~flow.fpga.plan.Plan`; ``fault``: with a port ``fault``, In, that
    plants one wrong bit, so that the test must fail. Ports: ``running``, ``passed``, ``failed``
    Out; ``code`` Out; ``cycles`` Out, 32 bits, since reset until the verdict.
    """

    def __init__(self, plan=None, fault=False):
        self._plan, self._fault = plan or Plan(), fault
        super().__init__(
            {
                "running": Out(1),
                "passed": Out(1),
                "failed": Out(1),
                "code": Out(len(CODES)),
                "cycles": Out(32),
                **({"fault": In(1)} if fault else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        plan = self._plan
        noise = Signal(31, init=1)  # x^31 + x^28 + 1
        m.d.sync += noise.eq(Cat(noise[30] ^ noise[27], noise[:30]))
        epoch = Signal(4)
        start = Signal()
        go_on = Signal()
        m.submodules.hub = hub = Hub(plan.cfg)
        node = self._node(m, hub, noise, epoch, start, go_on)
        for n in range(plan.cfg.links):
            m.submodules[f"mirror{n}"] = mirror = Mirror()
            self._join(m, hub, f"m_axis_link{n}", mirror.i)
            self._join(m, hub, f"s_axis_link{n}", mirror.o)

        patience = Signal(WATCHDOG)
        wrong = Signal(len(CODES))
        m.d.comb += wrong.eq(
            Cat(
                *(node[name] for name in ("csr", "gpu", "rows", "spill")),
                Const(0, 1),
                patience.all(),
            )
        )
        over = self.passed | self.failed
        with m.If(~over):
            m.d.sync += [
                self.cycles.eq(self.cycles + 1),
                patience.eq(Mux(start | go_on, 0, patience + 1)),
                self.code.eq(wrong),
                self.failed.eq(wrong.any()),
            ]
        m.d.comb += self.running.eq(~over)
        with m.FSM():
            with m.State("SET UP"):
                with m.If(node["waits"]):
                    m.d.comb += start.eq(1)
                    m.next = "TRAFFIC"
                with m.Elif(node["ended"] & ~self.failed):
                    m.d.sync += self.passed.eq(~wrong.any())
            with m.State("TRAFFIC"):
                with m.If(node["done"] & ~start):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(~node["whole"]):
                    m.d.sync += [
                        self.failed.eq(1),
                        self.code[CODES.index("number of units")].eq(1),
                    ]
                m.d.comb += go_on.eq(1)
                m.d.sync += epoch.eq(epoch + 1)
                m.next = "SET UP"
        return m

    def _node(self, m, hub, noise, epoch, start, go_on):
        """The hub's GPU, software and memories; what is known of them."""
        plan = self._plan
        software, gpu = Sequencer(plan.steps()), Traffic(plan)
        if self._fault:
            m.d.comb += gpu.fault.eq(self.fault)
        checkers, spill = [RowChecker(plan) for _ in range(plan.cfg.slices)], SpillMemory(plan)
        for name, part in {"software": software, "gpu": gpu, "spill": spill}.items():
            m.submodules[name] = part
        self._join(m, hub, "s_axil_csr", software.axil)
        self._join(m, hub, "m_axi_spill", spill.mem)
        for n, checker in enumerate(checkers):
            m.submodules[f"rows{n}"] = checker
            self._join(m, hub, f"m_axi_mem{n}", checker.mem)
            m.d.comb += [
                checker.start.eq(start),
                checker.epoch.eq(epoch),
                checker.noise.eq(noise.bit_select(2 * n, 2) | noise[20:22]),
            ]
        m.d.comb += [
            software.go_on.eq(go_on),
            gpu.start.eq(start),
            gpu.epoch.eq(epoch),
        ]
        m.d.comb += [
            getattr(hub, f"s_store0_{name}").eq(getattr(gpu, f"store_{name}"))
            for name in ("valid", "operand", "data", "mask")
        ]
        m.d.comb += [
            gpu.store_ready.eq(hub.s_store0_ready),
            gpu.command_ready.eq(hub.s_command_ready),
            hub.s_command_valid.eq(gpu.command_valid),
            hub.s_command_op.eq(gpu.command_op),
            hub.s_command_epoch.eq(gpu.command_epoch),
        ]
        for ours, theirs, names in (
            ("response", "m_response0", ("valid", "status")),
            ("command_response", "m_command_response", ("valid", "status")),
            ("event", "m_event", ("valid", "kind", "rows", "refused")),
        ):
            m.d.comb += [
                getattr(gpu, f"{ours}_{name}").eq(getattr(hub, f"{theirs}_{name}"))
                for name in names
            ]
            m.d.comb += getattr(hub, f"{theirs}_ready").eq(1)
        units = sum(checker.units for checker in checkers)
        return {
            "waits": software.waits,
            "ended": software.ended,
            "done": gpu.done,
            "csr": software.error,
            "gpu": gpu.error,
            "rows": Cat(checker.error for checker in checkers).any(),
            "spill": spill.error,
            "whole": units == plan.region_rows * plan.units,
        }

    @staticmethod
    def _join(m, hub, prefix, bus):
        """The hub's flat ports to a bus of a part beside it."""
        for (name, *_), member, value in bus.signature.flatten(bus):
            port = getattr(hub, f"{prefix}_{name}")
            m.d.comb += port.eq(value) if member.flow == Out else value.eq(port)
