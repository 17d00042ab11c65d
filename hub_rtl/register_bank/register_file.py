# SPDX-License-Identifier: Apache-2.0
"""Registers in hardware, made from the description in :mod:`hub_rtl.contract.registers`."""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.fields import REGISTER
from hub_rtl.contract.register_map import PAGE_BYTES
from hub_rtl.contract.registers import COUNTER_BASE, register_map
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.onehot import select

from .axil import FIRST_WORDS, RegisterBus

__all__ = ["RegisterFile"]

PAGE_WORDS = PAGE_BYTES // 4


def _port(page, register, field):
    name = f"{page.name}_{register.name.lower()}"
    return name if field.name == "value" else f"{name}_{field.name}"


class RegisterFileObserve(NamedTuple):
    """What a proof may see of a :class:`RegisterFile`."""

    step: Signal  #: of an access: 0 waiting, 1 page words read, 2 answer ready


class RegisterFile(wiring.Component):
    """Storage, decoder and read path of all registers.

    Contract: a read returns what the description says; a write changes the stored fields, clears
    ``w1c`` fields, or makes an order's strobe. Everything of one access happens in one cycle.
    Latency: ``done`` two cycles after ``request``, when ``hold`` is low; one access at a time.
    Stalls: while ``hold`` is 1 no access begins (an order still works on staged fields). Illegal
    input: unmapped address, write to a register without a writable field, or one with
    ``deny``: ``error``, no effect.

    Parameters: ``cfg``. Ports, names made of page, register and field (``control_timeout``,
    ``handles_flags_owner``; a field called ``value`` adds nothing): ``rw`` Out, its value; ``ro``
    In; ``w1c`` Out and ``.._set`` In; registers with ``load``: ``.._load`` In strobe and
    ``.._next`` In per field; orders: ``.._strobe`` Out, ``.._deny`` In, and the written fields Out,
    valid with the strobe; ``guarded``: ``.._deny`` In. ``external_en`` Out, ``external_index`` Out,
    ``external_data`` In: words behind COUNTER_BASE, data in the cycle after. ``bus`` In; ``hold``
    In. Source: docs/interfaces.md section 9, docs/registers.md.
    """

    observe: RegisterFileObserve  # once elaborated

    def __init__(self, cfg):
        self._map = register_map(cfg)
        ports = {
            "bus": In(RegisterBus()),
            "hold": In(1),
            "external_en": Out(1),
            "external_index": Out(PAGE_WORDS.bit_length() - 1),
            "external_data": In(REGISTER),
        }
        for page in self._map.pages:
            for register in page.registers:
                name = f"{page.name}_{register.name.lower()}"
                if register.order:
                    ports[f"{name}_strobe"] = Out(1)
                if register.order or register.guarded:
                    ports[f"{name}_deny"] = In(1)
                if register.load:
                    ports[f"{name}_load"] = In(1)
                for field in register.fields:
                    port = _port(page, register, field)
                    if field.access in ("rw", "w1c", "wo"):
                        ports[port] = Out(
                            field.width, init=field.reset if field.access == "rw" else 0
                        )
                    elif not register.constant and not register.external:
                        ports[port] = In(field.width)
                    if field.access == "w1c":
                        ports[f"{port}_set"] = In(field.width)
                    if register.load:
                        ports[f"{port}_next"] = In(field.width)
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        step = Signal(2)  # 0 waiting, 1 page words read, 2 answer ready
        self.observe = RegisterFileObserve(step)
        begin = Signal()
        writing = Signal()
        m.d.comb += [
            begin.eq(bus.request & (step == 0) & ~self.hold),
            writing.eq(begin & bus.write),
        ]
        m.d.comb += [
            self.external_en.eq(begin),
            self.external_index.eq(bus.addr - COUNTER_BASE // 4),
        ]

        words, mapped, writable, outside = [], [], [], []
        for page in self._map.pages:
            word = Signal(32, name=f"{page.name}_word")
            hit, takes, external = (
                Signal(name=f"{page.name}_{name}") for name in ("hit", "takes", "external")
            )
            words.append(Mux(hit, word, 0))
            mapped += [hit, external]
            writable.append(takes)
            outside.append(external)
            self._page(m, page, writing, word, (hit, takes, external))

        data = Signal(32)
        good = Signal()
        use_external = Signal()
        m.d.comb += [
            good.eq(Mux(bus.write, _any(writable), _any(mapped))),
            use_external.eq(_any(outside)),
            data.eq(_any(words)),
            bus.done.eq(step == 2),
        ]
        m.d.sync += step.eq(0)
        with m.If(begin):
            m.d.sync += step.eq(1)
        with m.Elif(step == 1):
            m.d.sync += [
                step.eq(2),
                bus.error.eq(~good),
            ]
            m.d.sync += bus.read_data.eq(Mux(use_external, self.external_data, data))
        return m

    def _page(self, m, page, writing, word, flags):
        """Decoder of one page. ``word`` and ``flags`` (mapped, takes a write, external) are
        registered. They follow the address alone, whether an access begins or not, and ``word``
        not even the page: it counts where the flags say mapped."""
        for register in page.registers:
            name = f"{page.name}_{register.name.lower()}"
            if register.load:
                with m.If(getattr(self, f"{name}_load")):
                    m.d.sync += [
                        getattr(self, port).eq(getattr(self, f"{port}_next"))
                        for port in (_port(page, register, f) for f in register.fields)
                    ]
            if register.order:
                m.d.comb += [
                    getattr(self, _port(page, register, f)).eq(
                        self.bus.data[f.low : f.low + f.width]
                    )
                    for f in register.fields
                    if f.access == "wo"
                ]
        bus, (hit, takes, external) = self.bus, flags
        chosen = Signal(name=f"{page.name}_chosen")
        m.d.comb += chosen.eq(
            mutant(
                "register_bank.page_seen_twice",
                bus.page[page.number],
                bus.page[page.number] | bus.page[page.number ^ 8],
            )
            & ~bus.addr[FIRST_WORDS.bit_length() - 1 : PAGE_WORDS.bit_length() - 1].any()
        )
        own = [register for register in page.registers if not register.external]
        at = Cat(bus.word[register.offset // 4] for register in own)
        accepts = [
            self._register(m, page, register, writing & chosen & at[n])
            for n, register in enumerate(own)
        ]
        m.d.sync += [
            word.eq(select(at, [self._shown(m, page, register) for register in own])),
            hit.eq(chosen & at.any()),
            takes.eq(chosen & select(at, accepts)),
        ]
        counters = [register.offset // 4 for register in page.registers if register.external]
        m.d.sync += external.eq(
            bus.page[page.number] & bus.addr[: PAGE_WORDS.bit_length() - 1].matches(*counters)
        )
        for register in page.registers:  # after the clears: setting wins
            for field in register.fields:
                if field.access == "w1c":
                    port = getattr(self, _port(page, register, field))
                    setter = getattr(self, _port(page, register, field) + "_set")
                    with m.If(setter.any()):
                        m.d.sync += port.eq(port | setter)

    def _shown(self, m, page, register):
        """What a read of the register returns."""
        shown = Signal(32, name=f"{page.name}_{register.name.lower()}_shown")
        m.d.comb += [
            shown[f.low : f.low + f.width].eq(
                f.reset if register.constant else getattr(self, _port(page, register, f))
            )
            for f in register.fields
            if register.constant or f.access != "wo"
        ]
        return shown

    def _register(self, m, page, register, written):
        """Returns whether it takes a write."""
        name = f"{page.name}_{register.name.lower()}"
        refuses = register.order or register.guarded
        denied = getattr(self, f"{name}_deny") if refuses else Const(0)
        for field in register.fields:
            port, bits = (
                _port(page, register, field),
                self.bus.data[field.low : field.low + field.width],
            )
            if field.access in ("rw", "w1c"):
                stored = getattr(self, port)
                with m.If(written & ~denied if register.guarded else written):
                    m.d.sync += stored.eq(
                        bits
                        if field.access == "rw"
                        else mutant(
                            "register_bank.clears_the_other_bits", stored & ~bits, stored & bits
                        )
                    )
        if register.order:
            m.d.comb += getattr(self, f"{name}_strobe").eq(written & ~denied)
        return ~denied if register.writable else Const(0)


def _any(signals):
    """OR of equal widths, as a tree."""
    signals = list(signals)
    while len(signals) > 1:
        pairs = [a | b for a, b in zip(signals[::2], signals[1::2], strict=False)]
        signals = pairs + signals[2 * len(pairs) :]
    return signals[0]
