# SPDX-License-Identifier: Apache-2.0
"""Promises of the register bank as a whole (``hub_rtl/register_bank/register_bank.py``,
docs/registers.md, docs/blocks/register_bank.md)."""

from amaranth import Cat, Mux, Signal

from formal.kit.cuts import cut
from formal.kit.inside import observe
from formal.kit.spec import Spec, moves, same
from formal.kit.streams import BlockHoldsItems
from hub_rtl.contract.packets import CommandOp
from hub_rtl.contract.registers import policies, register_map
from hub_rtl.register_bank.register_bank import CsrBank

from .bus import BusWatch, always_answers, always_interrupts, bus_obeys

__all__ = [
    "AccessesFindTheBankReady",
    "CommandsComeOneAtATime",
    "CsrHoldsItems",
    "GeometryIsWhatWasStaged",
    "InterruptOfTheBank",
    "OutputsFollowTheirRegister",
    "RankStays",
    "WritesStay",
]


class _Bank(Spec):
    """The bank with free inputs, and the accesses on its bus."""

    cuts = ()  # names of parts that are taken out of the bank

    def build(self, m):
        m.submodules.dut = dut = CsrBank(self._cfg)
        self.inner = observe(dut)
        for name in self.cuts:
            cut(self, getattr(self.inner, name))
        self.free_inputs(dut, but=("i_command_response",))
        self.free(
            dut.i_command_response.valid, dut.i_command_response.payload
        )  # taken at once: nothing waits
        bus_obeys(self, dut)
        self.bus = BusWatch(
            self, self._cfg, {name: getattr(dut.axil, name) for name in dut.axil.signature.members}
        )
        self.specify(m, dut)


class AccessesFindTheBankReady(_Bank):
    """The bank takes a write's address, its data and a read's address exactly while it holds none
    of the channel that it has not answered: so at most two are open. Each gets one answer, whatever
    hangs elsewhere, within 40 cycles after address and data, if earlier answers were taken."""

    LIMIT = 40  # an access of the other kind, and a COMMIT's check, may come first

    def specify(self, m, dut):
        always_answers(self, self.bus.port, self.LIMIT)


class CommandsComeOneAtATime(_Bank):
    """A command of the registers is offered only when the one before was answered."""

    cuts = ("regions", "counters")

    def specify(self, m, dut):
        taken = Signal()
        answered = dut.i_command_response.valid
        self.flag(taken, moves(dut.o_command), answered)
        self.suppose("answer to a command", taken, when=answered)
        self.always("one command at a time", ~taken, when=dut.o_command.valid)


class InterruptOfTheBank(_Bank):
    """``irq`` is 1 exactly when some source is set in IRQ_STATUS and enabled in IRQ_ENABLE, one
    cycle before: ``event`` while an event waits, each other source from its strobe until software
    writes a 1 to its bit. (The part that looks up a timeout and refuses a geometry is cut out:
    register_bank.geometry tells when it does.)"""

    cuts = ("regions", "counters")

    def specify(self, m, dut):
        regions = self.inner.regions
        always_interrupts(
            self,
            self.bus,
            dut.irq,
            dut.event_valid,
            {
                "error": dut.event_error,
                "timeout": regions.timeout_set,
                "refusal": dut.refused,
                "command": dut.region_error.en,
                "geometry": regions.errors.any(),
                "bad_packet": dut.bad.en,
            },
        )


class GeometryIsWhatWasStaged(_Bank):
    """A geometry is written at most once for each write to regions.COMMIT that had all strobes and
    was answered OKAY, only for the region that INDEX named then, and with the values last written
    to the registers of the page, whatever software writes meanwhile. Followed: any one of these
    registers."""

    def specify(self, m, dut):
        bus, write = self.bus, dut.geometry_write
        page = next(page for page in register_map(self._cfg).pages if page.name == "regions")
        registers = {register.name: register for register in page.registers}
        chosen = self.constant(len(bus.address) - 2, "chosen")
        held = Signal(32)
        mask = Signal(32)
        g = write.geometry
        shown = {
            "BASE0": g.base[0],
            "BASE1": g.base[1],
            "STRIDE": g.stride,
            "ROW_BYTES": g.row_bytes,
            "CAPACITY": g.capacity,
            "GROUP_BASE": g.group_base,
            "ROW_FIRST": g.row_first,
            "ROW_SPAN": g.row_span,
            "SPILL_BASE0": g.spill_base[0],
            "SPILL_BASE1": g.spill_base[1],
            "FLAG_BASE": g.flag_base,
        }
        words = {}
        for name, value in shown.items():
            if f"{name}_LO" in registers:
                words |= {f"{name}_LO": value[:32], f"{name}_HI": value[32:]}
            else:
                words[name] = value
        flags = Signal(32)
        for field in registers["FLAGS"].fields:
            m.d.comb += flags[field.low : field.low + field.width].eq(getattr(g, field.name))
        words["FLAGS"] = flags
        told = Signal(32)
        stored = Signal(32)
        is_staged = 0
        for name, word in words.items():
            bits = sum(((1 << field.width) - 1) << field.low for field in registers[name].fields)
            here = chosen == bus.map.address(f"regions.{name}") // 4
            is_staged = is_staged | here
            with m.If(here):
                m.d.comb += [
                    told.eq(word),
                    mask.eq(bits),
                ]
                m.d.comb += [
                    stored[field.low : field.low + field.width].eq(self._stored(name, field))
                    for field in registers[name].fields
                ]
        self.suppose("a staged register is followed", is_staged)
        index = Signal(self._cfg.region_width)
        named = Signal(self._cfg.region_width)
        ordered = Signal()
        with m.If(bus.accessed & (bus.address[2:] == chosen)):
            m.d.sync += held.eq(bus.data)
        with m.If(bus.wrote("regions.INDEX")):
            m.d.sync += index.eq(bus.data)
        with m.If(bus.wrote("regions.COMMIT")):
            m.d.sync += [
                ordered.eq(bus.full),
                named.eq(index),
            ]
        with m.Elif(write.en):
            m.d.sync += ordered.eq(0)
        self.always("one for each COMMIT", ordered, when=write.en)
        self.always("the region that COMMIT meant", write.region == named, when=write.en)
        self.always("as it was staged", ((told ^ held) & mask) == 0, when=write.en)
        number = self.inner.file.regions_index
        stay = Cat(stored, number) == self.past(Cat(stored, number), "staged_before")
        access = self.inner.regions
        orders = access.commit | access.command_en | access.query_en
        self.always("fields stay while it is checked", stay, when=access.busy)
        self.always("orders when idle", ~access.busy, when=orders)
        self.always("command when idle", ~access.command_busy, when=access.command_en)
        self.always("query when idle", ~access.query_busy, when=access.query_en)
        self._lemmas(bus, write, (chosen, held, mask, told, stored), (index, named, ordered))
        for name in ("FLAGS", "FLAG_BASE_HI"):
            self.reach(
                f"a value in {name}",
                write.en
                & (held & mask).any()
                & (chosen == bus.map.address(f"regions.{name}") // 4),
            )

    def _lemmas(self, bus, write, followed, order):
        """The front end's access is the one on the bus; a register holds what was written, from the
        access on, and rests while the geometry is checked."""
        (chosen, held, mask, told, stored), (index, named, ordered) = followed, order
        front, file = self.inner.front, self.inner.file
        inside, access, at = observe(front), front.bus, bus.address[2:]
        writes, step = access.request & access.write, observe(file).step
        self.lemma("address held", inside.aw_addr == at, when=inside.aw_held)
        self.lemma(
            "data held",
            same(inside, w_data=bus.data, w_full=bus.full),
            when=inside.w_held,
        )
        self.lemma(
            "write under way",
            inside.aw_held
            & inside.w_held
            & bus.full
            & (access.addr == at)
            & (access.data == bus.data)
            & ~bus.port["bvalid"],
            when=writes,
        )
        self.lemma("page of the address", access.page == 1 << access.addr[10:], when=access.request)
        self.lemma("word of the address", access.word == 1 << access.addr[:6], when=access.request)
        self.lemma("register under way", (access.request | (step == 0)) & (step != 3))
        self.lemma("answered as written", ~writes, when=bus.answered)
        under_way = (writes & (step != 0)) | bus.accessed
        self.lemma(
            "stored", ((stored ^ Mux(under_way & (at == chosen), bus.data, held)) & mask) == 0
        )
        at_index = under_way & bus.aims_at("regions.INDEX")
        self.lemma(
            "index stored", file.regions_index == Mux(at_index, bus.data, index)[: len(index)]
        )
        regions = observe(self.inner.regions)
        commit, orders = regions.commit, writes & bus.aims_at("regions.COMMIT") & (step != 0)
        answers = bus.wrote("regions.COMMIT")
        self.lemma("checks a COMMIT", commit, when=regions.checks)
        self.lemma(
            "a COMMIT was written",
            Mux(orders | answers, bus.full, ordered & (named == index)),
            when=commit,
        )
        self.lemma("one at a time", self.inner.regions.busy, when=write.en | commit)
        self.lemma(
            "in the checker",
            (((told ^ stored) & mask) == 0)
            & (write.region == file.regions_index)
            & (step == 0)
            & ~bus.accessed
            & ordered
            & (named == index),
            when=write.en,
        )

    def _stored(self, name, field):
        """The field in the register file."""
        port = f"regions_{name.lower()}" + ("" if field.name == "value" else f"_{field.name}")
        return getattr(self.inner.file, port)


class WritesStay(_Bank):
    """What a strobe writes to a handle, a geometry, a range or a window is still shown in the cycle
    after the strobe."""

    cuts = ("counters",)

    def specify(self, m, dut):
        for name in ("handle_write", "geometry_write", "dep_write", "window_write"):
            write = getattr(dut, name)
            shown = Cat(write[field] for field, _ in write.shape() if field != "en")
            self.always(
                f"{name} stays",
                shown == self.past(shown, f"{name}_before"),
                when=self.started & self.past(write.en, f"{name}_strobe"),
            )


class CsrHoldsItems(BlockHoldsItems):
    """The bank's output streams and AXI channels keep valid and payload until the item is taken.

    A command is answered after it was taken, once."""

    def __init__(self, cfg):
        super().__init__(
            "hub_rtl.register_bank.register_bank:CsrBank", cfg, never_wait=["i_command_response"]
        )

    def build(self, m):
        super().build(m)
        dut = self._part
        taken = Signal()
        self.flag(taken, moves(dut.o_command), dut.i_command_response.valid)
        self.suppose("answer to a command", taken, when=dut.i_command_response.valid)


class RankStays(_Bank):
    """``rank`` is one of the system's. Once a store was held or counted, or a flit has moved, it
    stays as it is until reset."""

    cuts = ("regions", "counters")

    def specify(self, m, dut):
        used, counts = Signal(name="used"), dut.counts
        with m.If(dut.in_flight | Cat(counts.stores, counts.tx_busy, counts.rx_busy).any()):
            m.d.sync += used.eq(1)
        self.always("one of the system's", dut.rank < self._cfg.ranks)
        self.always(
            "stays", dut.rank == self.past(dut.rank, "rank"), when=self.past(used, "was_used")
        )


class OutputsFollowTheirRegister(_Bank):
    """An output of the bank that software sets changes, and an order of software is given, only by
    a write to its own register with all strobes: a write to any other address changes nothing
    there. (Values and regions: register_bank.registers, register_bank.geometry_staged.)"""

    def specify(self, m, dut):
        bus, order = self.bus, dut.o_region_command
        span = order.payload
        self.always("a range of regions", span.region <= span.last, when=order.valid)
        self.always("of those there are", span.last < self._cfg.regions, when=order.valid)
        command = dut.o_command
        begins = Signal()
        m.d.comb += begins.eq(command.valid & ~self.past(command.valid, "command"))
        doorbells = bus.aims_at("control.COMMAND") | bus.aims_at("control.ANNOUNCE")
        self.always("a command only by its registers", bus.full & doorbells, when=begins)
        values = {
            "id.RANK": dut.rank,
            "control.TIMEOUT": dut.timeout,
            "peers.DRAIN0": dut.peer_dead,
            "logs.INDEX": dut.log_index,
            "hang.SLICE": dut.slice,
        } | {path: dut.policy[name] for name, path in policies(self._cfg).items()}
        orders = {
            "control.COMMAND": begins & (command.payload.op != CommandOp.ANNOUNCE),
            "control.ANNOUNCE": begins & (command.payload.bytes16 != 0),
            "regions.COMMAND": dut.o_region_command.valid
            & ~self.past(dut.o_region_command.valid, "region_command"),
            "handles.COMMIT": dut.handle_write.en,
            "handles.FETCH": dut.handle_read.en,
            "deps.COMMIT": dut.dep_write.en,
            "windows.COMMIT": dut.window_write.en,
            "logs.CLEAR": dut.log_clear,
        }
        for path, value in values.items():
            orders[path] = self.started & (
                value != self.past(value, f"{path}_before".replace(".", "_"))
            )
        regions = self.inner.regions
        self.always(
            "a range is ordered when none is under way",
            ~regions.command_busy,
            when=regions.command_en,
        )
        for path, happens in orders.items():
            self.always(f"{path} only by its register", bus.full & bus.aims_at(path), when=happens)
