# SPDX-License-Identifier: Apache-2.0
"""Promises of the parts of the registers: AXI4-Lite front end, register file, region access. The
bank: ``csr_bank.py``."""

from amaranth import Cat, Const, Mux, Signal

from formal.kit.spec import Spec, Stream, moves, same
from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.packets import RegionOp, RegionState
from hub_rtl.contract.registers import register_map
from hub_rtl.register_bank.axil import AxiLiteTarget
from hub_rtl.register_bank.csr_regions import GeometryCheck, RegionAccess
from hub_rtl.register_bank.register_file import RegisterFile

from .bus import bus_obeys

__all__ = [
    "AccessesAreAnswered",
    "GeometryIsChecked",
    "GeometryRulesAreExact",
    "OnlyGoodGeometriesAreWritten",
    "RegisterKeepsItsValue",
]

SLVERR = 2


class AccessesAreAnswered(Spec):
    """Every write (address and data) and every read gets one answer; answers wait unchanged; a
    write whose strobes are all set reaches the registers once, with its own address and data, other
    ones never; the answer is SLVERR if the registers said so, or a strobe is missing. Reads and
    writes take turns, and an access that waits begins within 12 cycles.

    The registers answer a request (``done``) within 3 cycles."""

    def build(self, m):
        m.submodules.dut = dut = AxiLiteTarget()
        self.free_inputs(dut)
        port, bus = bus_obeys(self, dut), dut.bus
        for name in ("b", "r"):
            self.always_held(port[name], name)
        taken = {name: moves(each) for name, each in port.items()}
        serves = Signal(2)
        m.d.sync += serves.eq(Mux(bus.request & ~bus.done, serves + 1, 0))
        self.suppose("done on request", bus.request, when=bus.done)
        self.suppose("done in time", bus.done, when=serves == 2)
        # Of each channel the registers hold one item, the last one taken, until its access is over.
        last = {}
        for name, value in (
            ("aw", dut.axil.awaddr),
            ("ar", dut.axil.araddr),
            ("w", Cat(dut.axil.wdata, dut.axil.wstrb)),
        ):
            last[name] = Signal(len(value), name=f"last_{name}")
            with m.If(taken[name]):
                m.d.sync += last[name].eq(value)
        open_of = {}
        for name, answer in (("aw", "b"), ("w", "b"), ("ar", "r")):
            count = open_of[name] = Signal(range(4), name=f"open_{name}")
            m.d.sync += count.eq(count + taken[name] - taken[answer])
            self.always(f"{name} no more than two open", count <= 2)
            self.always(f"{name} answered only when asked", count != 0, when=port[answer].valid)
        writes, reads = bus.request & bus.write, bus.request & ~bus.write
        self.always(
            "write as asked",
            (bus.addr == last["aw"][2:]) & (Cat(bus.data, Const(15, 4)) == last["w"]),
            when=writes,
        )
        self.always(
            "write has both parts",
            (open_of["aw"] > port["b"].valid) & (open_of["w"] > port["b"].valid),
            when=writes,
        )
        self.always("page of the address", bus.page == 1 << bus.addr[10:], when=bus.request)
        self.always("word of the address", bus.word == 1 << bus.addr[:6], when=bus.request)
        self.always(
            "read as asked",
            (bus.addr == last["ar"][2:]) & (open_of["ar"] > port["r"].valid),
            when=reads,
        )
        for kind, name, wanted in (("written", "b", bus.write), ("read", "r", ~bus.write)):
            done, error = Signal(name=f"{kind}_done"), Signal(name=f"{kind}_error")
            ends = bus.done & bus.request & wanted
            with m.If(ends):
                m.d.sync += [
                    done.eq(1),
                    error.eq(bus.error),
                ]
            with m.Elif(taken[name]):
                m.d.sync += done.eq(0)
            self.always(f"{kind} once", ~done, when=ends)
            if name == "b":
                self.always_fifo("strobes", taken["w"], dut.axil.wstrb.all(), taken["b"], done, 2)
                self.always(
                    "write answer",
                    dut.axil.bresp == Mux(~done | error, SLVERR, 0),
                    when=port["b"].valid,
                )
            else:
                value = Signal(32)
                with m.If(ends):
                    m.d.sync += value.eq(bus.read_data)
                self.always(
                    "read answer",
                    done & (dut.axil.rdata == value) & (dut.axil.rresp == Mux(error, SLVERR, 0)),
                    when=port["r"].valid,
                )
        for kind, busy, waiting in (
            ("write", writes, (open_of["aw"] != 0) & (open_of["w"] != 0) & ~port["b"].valid),
            ("read", reads, (open_of["ar"] != 0) & ~port["r"].valid),
        ):
            waits = Signal(4, name=f"{kind}_waits")
            m.d.sync += waits.eq(Mux(waiting & ~busy, waits + 1, 0))
            self.always(f"{kind} begins in time", waits < 12)


class RegisterKeepsItsValue(Spec):
    """A read gives what the description says and changes nothing; a stored field changes only by a
    write to its own register (or by a load, or, if it is ``w1c``, when it is set), and then to what
    was written; an order's strobe comes only from a write to its register that is not denied, with
    the written fields. Unmapped addresses, writes without a writable field and denied writes answer
    with an error and change nothing. ``done`` comes two cycles after the access began. Followed:
    any one address."""

    def build(self, m):
        m.submodules.dut = dut = RegisterFile(self._cfg)
        self.free_inputs(dut)
        bus = dut.bus
        request = Cat(bus.request, bus.write, bus.addr, bus.data)
        waits = self.past(bus.request & ~bus.done, "open")
        self.suppose("page of the address", bus.page == 1 << bus.addr[10:], when=bus.request)
        self.suppose("word of the address", bus.word == 1 << bus.addr[:6], when=bus.request)
        self.suppose("a request stays", request == self.past(request, "request"), when=waits)
        progress = Signal(2)
        begin = Signal()
        m.d.comb += begin.eq(bus.request & ~dut.hold & (progress == 0))
        m.d.sync += progress.eq(
            Mux(progress == 2, 0, Mux(begin | (progress == 1), progress + 1, 0))
        )
        self.always("done in time", bus.done == (progress == 2))

        here = self.constant(len(bus.addr), "here")
        mine = begin & (bus.addr == here)
        writes = mine & bus.write
        w = dict.fromkeys(("shown", "rw", "w1c", "stored", "next", "set", "orders", "ordered"), 0)
        flags = dict.fromkeys(
            ("mapped", "writable", "external", "deny", "load", "strobe", "order"), 0
        )

        def port(page, register, suffix="", field=None):
            name = f"{page.name}_{register.name.lower()}"
            return getattr(
                dut,
                name
                + ("" if field is None or field.name == "value" else f"_{field.name}")
                + suffix,
            )

        for page in register_map(self._cfg).pages:
            for register in page.registers:
                match = here == (page.base + register.offset) // 4

                def add(table, name, value, low=0, match=match):
                    table[name] = table[name] | Mux(match, value << low if low else value, 0)

                add(flags, "mapped", 1)
                add(flags, "writable", int(register.writable))
                add(flags, "external", int(register.external))
                if register.order or register.guarded:
                    add(flags, "deny", port(page, register, "_deny"))
                if register.order:
                    add(flags, "order", 1)
                    add(flags, "strobe", port(page, register, "_strobe"))
                if register.load:
                    add(flags, "load", port(page, register, "_load"))
                for field in register.fields:
                    ones = ((1 << field.width) - 1) << field.low
                    if field.access == "wo":
                        add(w, "orders", ones)
                        add(w, "ordered", port(page, register, "", field), field.low)
                    elif not register.external:
                        value = (
                            Const(field.reset, field.width)
                            if register.constant
                            else port(page, register, "", field)
                        )
                        add(w, "shown", value, field.low)
                    if field.access in ("rw", "w1c"):
                        add(w, field.access, ones)
                        add(w, "stored", port(page, register, "", field), field.low)
                    if field.access == "w1c":
                        add(w, "set", port(page, register, "_set", field), field.low)
                    if register.load:
                        add(w, "next", port(page, register, "_next", field), field.low)
        words, bits = {}, {}
        for name, value in w.items():
            words[name] = Signal(32, name=f"word_{name}")
            m.d.comb += words[name].eq(value)
        for name, value in flags.items():
            bits[name] = Signal(name=f"flag_{name}")
            m.d.comb += bits[name].eq(value)

        # What is stored.
        expected = Signal(32)
        m.d.comb += expected.eq(words["stored"])
        with m.If(bits["load"]):
            m.d.comb += expected.eq(
                (words["stored"] & ~words["rw"]) | (words["next"] & words["rw"])
            )
        with m.If(writes & ~bits["deny"]):
            m.d.comb += expected.eq(
                (bus.data & words["rw"]) | (words["stored"] & words["w1c"] & ~bus.data)
            )
        told = self.past(expected | words["set"], "told")
        tie = self.past(bits["load"] & writes, "tie")
        self.always("stored as described", words["stored"] == told, when=self.started & ~tie)
        # What is answered.
        error = Signal()
        read = Signal()
        value = Signal(32)
        outside = Signal()
        with m.If(mine):
            m.d.sync += [
                error.eq(
                    Mux(
                        bus.write,
                        ~bits["writable"] | bits["deny"],
                        ~bits["mapped"],
                    )
                ),
                read.eq(~bus.write),
                value.eq(words["shown"]),
                outside.eq(bits["external"]),
            ]
        ours = bus.done & (bus.addr == here)
        external = self.past(dut.external_data, "external")
        self.always("error as described", bus.error == error, when=ours)
        self.always(
            "read as described",
            bus.read_data == Mux(error, 0, Mux(outside, external, value)),
            when=ours & read,
        )
        self.always(
            "asks for the counter",
            dut.external_en & (dut.external_index == bus.addr[: len(dut.external_index)] - 64),
            when=mine & ~bus.write & bits["external"],
        )
        # Orders.
        self.always(
            "order only when written",
            bits["strobe"] == (writes & ~bits["deny"]),
            when=bits["order"],
        )
        self.always(
            "order with its fields",
            words["ordered"] == (bus.data & words["orders"]),
            when=bits["order"] & bits["strobe"],
        )


class GeometryRulesAreExact(Spec):
    """Two cycles after a geometry is there ``errors`` names exactly the rules of
    ``registers.GEOMETRY_RULES`` that it breaks (the state of the banks aside)."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = GeometryCheck(cfg)
        self.free_inputs(dut)
        g, staged = dut.geometry, Cat(dut.region, dut.geometry)
        self.suppose("fields stay", staged == self.past(staged, "staged"), when=self.started)
        rules = Signal(9)
        low = ceil_log2(cfg.packet_bytes)
        tiles, size = 1 << g.log2_tile, g.row_bytes << g.log2_tile
        m.d.comb += rules.eq(
            Cat(
                Const(0, 1),
                (g.row_bytes[:4] != 0) | (g.row_bytes == 0) | (g.row_bytes > cfg.max_row_bytes),
                (g.stride[:low] != 0) | (g.stride < g.row_bytes),
                Cat(
                    g.base[0][:low],
                    g.base[1][:low],
                    g.spill_base[0][:3],
                    g.spill_base[1][:3],
                    g.flag_base[:3],
                ).any(),
                (g.capacity == 0) | (g.capacity > cfg.capacity),
                (g.group_base + ((g.capacity + tiles - 1) >> g.log2_tile) > cfg.groups)
                | (g.log2_tile > 10)
                | (size >= 1 << 24),
                (g.row_span == 0) | (g.row_first + g.row_span > 1 << 24),
                g.overflow_en & ((g.overflow == dut.region) | (g.overflow >= cfg.regions)),
                ~g.valid,
            )
        )
        settled = self.past(self.past(self.started, "one"), "two")
        self.always("rules named", dut.errors == rules, when=settled)
        for n in range(1, 9):
            self.reach(f"breaks rule {n}", settled & (dut.errors == 1 << n))


class GeometryIsChecked(Spec):
    """A geometry is written only for the region that was committed, as it was staged, when it
    breaks no rule (register_bank.geometry_good), both banks of the region are FREE and no command
    for it is on its way; otherwise ``errors`` names the broken rules. One of both follows each
    COMMIT within 20 cycles. A command is handed on once, as given. Followed: any region.

    Fields stay staged while ``busy``; orders only when not busy. The scoreboard answers a query at
    most 4 cycles later; a bank leaves FREE only from when an order that opens it was taken until 4
    cycles after the next could be."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = RegionAccess(cfg)
        self.free_inputs(dut, but=("status",))
        g, region, command = (
            dut.geometry,
            self.constant(cfg.region_width, "followed"),
            dut.o_command,
        )
        staged = Cat(dut.region, g)
        self.suppose("fields stay", staged == self.past(staged, "staged"), when=dut.busy)
        self.suppose("orders when idle", ~dut.busy, when=dut.commit | dut.command_en | dut.query_en)
        self.suppose("command when idle", ~dut.command_busy, when=dut.command_en)
        self.suppose("query when idle", ~dut.query_busy, when=dut.query_en)
        self.always_held(Stream(command.valid, command.ready, command.payload), "o_command")
        self.always_fifo(
            "commands",
            dut.command_en,
            dut.command,
            moves(command),
            command.payload.as_value(),
            1,
        )

        # The scoreboard: the state of the followed region's banks, seen by a query with a delay.
        window = Signal(3)
        states = [Signal(2, name=f"state{n}") for n in range(2)]
        wish = Signal(4)
        self.free(wish)
        span = command.payload
        under_way = Signal()
        named = (span.region <= region) & (region <= span.last)
        opens = moves(command) & named & ((span.op == RegionOp.OPEN) | span.again)
        self.flag(under_way, opens, command.ready)
        with m.If(opens | (under_way & ~command.ready)):
            m.d.sync += window.eq(4)
        with m.Elif(window != 0):
            m.d.sync += window.eq(window - 1)
        for n, state in enumerate(states):
            m.d.sync += state.eq(
                Mux((state != RegionState.FREE) | (window != 0), wish[2 * n : 2 * n + 2], state)
            )
        other = Signal(len(dut.status.as_value()), name="other_status")
        self.free(other)
        asked = self.past(self.past(dut.query, "asked1"), "asked2")
        seen = Signal(dut.status.shape())
        m.d.comb += seen.eq(other)
        with m.If(asked[: cfg.region_width] == region):
            m.d.comb += seen.state.eq(Mux(asked[cfg.region_width], states[1], states[0]))
        m.d.comb += dut.status.as_value().eq(
            self.past(self.past(seen.as_value(), "seen1"), "seen2")
        )

        written, refused = dut.geometry_write.en, dut.errors.any()
        self.always(
            "written as staged",
            same(dut.geometry_write, region=dut.region, geometry=g),
            when=written,
        )
        ours = written & (dut.geometry_write.region == region)
        self.always(
            "banks are free",
            (states[0] == RegionState.FREE) & (states[1] == RegionState.FREE),
            when=ours,
        )
        self.always(
            "no command on its way",
            ~(command.valid & named),
            when=ours,
        )
        self.always("written or refused", ~(written & refused))
        waits = Signal(6)
        open_commit = Signal()
        self.flag(open_commit, dut.commit, written | refused)
        m.d.sync += waits.eq(Mux(open_commit & ~written & ~refused, waits + 1, 0))
        self.always("judged once", open_commit, when=written | refused)
        self.always("judged in time", waits < 21)
        ended = self.past(dut.query_busy, "was_asked") & ~dut.query_busy
        self.always(
            "query shows the status",
            (dut.result.as_value() == self.past(dut.status, "status_before"))
            & (dut.missing == self.past(dut.missing_from, "missing_before"))
            & (dut.mute == self.past(dut.silent, "silent_before")),
            when=ended,
        )
        guess = self.constant(cfg.region_width + 1, "guess")
        told = Signal()
        with m.If(dut.timeout.en & (Cat(dut.timeout.region, dut.timeout.bank) == guess)):
            m.d.sync += told.eq(1)
        shown = dut.timeout_result
        self.always(
            "timeout that was told",
            told,
            when=dut.timeout_set & (Cat(shown.region, shown.bank) == guess),
        )


class OnlyGoodGeometriesAreWritten(Spec):
    """A geometry is written only if it breaks no rule, and refused with the rules that it breaks
    (as register_bank.geometry_rules proves them of ``GeometryCheck``, which stands beside).

    Fields stay staged while ``busy``."""

    def build(self, m):
        cfg = self._cfg
        m.submodules.dut = dut = RegionAccess(cfg)
        m.submodules.rules = rules = GeometryCheck(cfg)
        self.free_inputs(dut)
        m.d.comb += [
            rules.region.eq(dut.region),
            rules.geometry.eq(dut.geometry),
        ]
        staged = Cat(dut.region, dut.geometry)
        self.suppose("fields stay", staged == self.past(staged, "staged"), when=dut.busy)
        self.always("rules hold", rules.errors == 0, when=dut.geometry_write.en)
        self.always("rules named", dut.errors[1:] == rules.errors[1:], when=dut.errors.any())
