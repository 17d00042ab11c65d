# SPDX-License-Identifier: Apache-2.0
"""Two hubs on a board: what the switches say goes as a row from one to the other, and to the
LEDs."""

from amaranth import Elaboratable, Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from flow.driver import Driver, Handle, Recorder, Region
from flow.fpga.plan import Step
from flow.fpga.sequencer import Sequencer
from hub_rtl.contract.axi import Axi4Write, connect_flat
from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import EventKind
from hub_rtl.hub.hub import Hub

CFG = preset("tiny")
ROW_BYTES = 128
SENDER, RECEIVER = 0, 1  # ranks


def software(rank):
    """The register accesses of one hub, as the driver library orders them; ``go`` at their end."""
    recorder = Recorder()
    driver = Driver(CFG, recorder)
    driver.start(rank)
    if rank == SENDER:
        driver.handle(0, Handle(targets=((RECEIVER, 0),), row_bytes=ROW_BYTES))
        driver.announce(0, epoch=0, sizes=[ROW_BYTES])  # one row will come: no close is needed
    else:
        room = {"base": (0, ROW_BYTES), "stride": ROW_BYTES, "capacity": 1, "row_span": 1}
        one = {"group_base": 0, "log2_tile": 0, "expected": 1}
        driver.region(0, Region(row_bytes=ROW_BYTES, **room, **one))
        driver.open(0, epoch=0)
    return [*(Step(*access) for access in recorder.accesses), Step("go")]


class RowSender(wiring.Component):
    """Stores one row, all of whose bytes are ``value``, when ``start`` comes.

    Ports: ``start``, ``value`` In; ``valid``, ``operand``, ``data``, ``mask`` Out, ``ready`` In:
    the hub's store port.
    """

    start: In(1)
    value: In(8)
    valid: Out(1)
    ready: In(1)
    operand: Out(64)
    data: Out(8 * CFG.slice_bytes)
    mask: Out(CFG.slice_bytes)

    def elaborate(self, platform):
        m = Module()
        last = ROW_BYTES // CFG.slice_bytes - 1
        part = Signal(range(last + 1))
        busy = Signal()
        done = Signal()
        with m.If(self.start & ~done):
            m.d.sync += [busy.eq(1), done.eq(1)]
        with m.If(self.valid & self.ready):
            m.d.sync += [part.eq(part + 1), busy.eq(part != last)]
        m.d.comb += [
            self.valid.eq(busy),
            # Handle, epoch and RowID are 0; row_off counts 16 bytes, from bit 39.
            self.operand.eq(part * (CFG.slice_bytes // 16) << 39),
            self.data.eq(self.value.replicate(CFG.slice_bytes)),
            self.mask.eq(-1),
        ]
        return m


class RowMemory(wiring.Component):
    """Memory of both banks of the region behind AXI4's write channels; answers behind the last
    beat.

    Ports: ``mem`` In, AXI4 write; ``first`` Out, the first byte of the first row.
    """

    mem: In(Axi4Write(48, 8 * CFG.slice_bytes))
    first: Out(8)

    def elaborate(self, platform):
        m = Module()
        words = 2 * ROW_BYTES // CFG.slice_bytes
        m.submodules.words = memory = Memory(shape=8 * CFG.slice_bytes, depth=words, init=[])
        write = memory.write_port(granularity=8)
        read = memory.read_port()
        mem = self.mem
        at = Signal(range(words))
        busy = Signal()
        beat = mem.wvalid & mem.wready
        m.d.comb += [
            mem.awready.eq(~busy),
            mem.wready.eq(busy),
            write.addr.eq(at),
            write.data.eq(mem.wdata),
            write.en.eq(Mux(beat, mem.wstrb, 0)),
            self.first.eq(read.data[:8]),
        ]
        with m.If(mem.awvalid & mem.awready):
            m.d.sync += [at.eq(mem.awaddr // CFG.slice_bytes), busy.eq(1)]
        with m.If(beat):
            m.d.sync += [at.eq(at + 1), busy.eq(~mem.wlast)]
        m.d.sync += mem.bvalid.eq(beat & mem.wlast)  # the hub's bready is always 1
        return m


class TwoHubs(wiring.Component):
    """Two hubs joined by their links; one row goes from the first one's store port to the second
    one's memory.

    Ports: ``value`` In, what the row is made of; ``ready`` Out, the second hub has said READY, for
    good; ``shown`` Out, the byte in memory from then on, 0 before.
    """

    value: In(8)
    ready: Out(1)
    shown: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.hub0, m.submodules.hub1 = hubs = Hub(CFG), Hub(CFG)
        players = [Sequencer(software(rank)) for rank in (SENDER, RECEIVER)]
        m.submodules.player0, m.submodules.player1 = players
        m.submodules.sender, m.submodules.memory = sender, memory = RowSender(), RowMemory()

        for hub, player, peer in zip(hubs, players, hubs[::-1], strict=True):
            connect_flat(m, hub, "s_axil_csr", player.axil)
            for n in range(CFG.links):
                for name in ("tdata", "tvalid", "tlast"):
                    output = getattr(hub, f"m_axis_link{n}_{name}")
                    m.d.comb += getattr(peer, f"s_axis_link{n}_{name}").eq(output)
                ready = getattr(peer, f"s_axis_link{n}_tready")
                m.d.comb += getattr(hub, f"m_axis_link{n}_tready").eq(ready)
            m.d.comb += [hub.m_response0_ready.eq(1), hub.m_event_ready.eq(1)]

        hub, far = hubs
        m.d.comb += [
            sender.start.eq(players[SENDER].waits & players[RECEIVER].waits),
            sender.value.eq(self.value),
            sender.ready.eq(hub.s_store0_ready),
            hub.s_store0_valid.eq(sender.valid),
            hub.s_store0_operand.eq(sender.operand),
            hub.s_store0_data.eq(sender.data),
            hub.s_store0_mask.eq(sender.mask),
        ]
        # What comes by link 0 is written by slice 0. Nothing comes to the other memory ports: a
        # hub without rows of its own, and too few rows to spill one.
        connect_flat(m, far, "m_axi_mem0", memory.mem)
        with m.If(far.m_event_valid & (far.m_event_kind == EventKind.READY)):
            m.d.sync += self.ready.eq(1)
        m.d.comb += self.shown.eq(Mux(self.ready, memory.first, 0))
        return m


class Board(Elaboratable):
    """:class:`TwoHubs` on the pins of an ECP5-5G evaluation board: eight switches, eight LEDs; the
    reset button sends again."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.hubs = hubs = TwoHubs()
        for n in range(8):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request("led", n, dir="-"))
            switch = io.Buffer("i", platform.request("switch", n + 1, dir="-"))
            m.submodules[f"switch{n}"] = switch
            m.d.comb += led.o.eq(hubs.shown[n])
            m.d.sync += hubs.value[n].eq(switch.i)
        return m
