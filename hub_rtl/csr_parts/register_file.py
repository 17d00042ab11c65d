"""Registers in hardware, made from the description in :mod:`hub_rtl.registers`."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axil import RegisterBus
from ..register_map import PAGE_BYTES
from ..registers import COUNTER_BASE, register_map

__all__ = ["RegisterFile"]

PAGE_WORDS = PAGE_BYTES // 4


def _port(page, register, field):
    name = f"{page.name}_{register.name.lower()}"
    return name if field.name == "value" else f"{name}_{field.name}"


class RegisterFile(wiring.Component):
    """Storage, decoder and read path of all registers.

    Contract: a read returns what the description says; a write changes the stored fields, clears ``w1c`` fields, or makes an
    order's strobe. Everything of one access happens in one cycle.
    Latency: ``done`` three cycles after ``request``, when ``hold`` is low; one access at a time.
    Stalls: while ``hold`` is 1 no access begins (an order still works on staged fields).
    Illegal input: unmapped address, write to a register without a writable field, or an order with ``deny``: ``error``, no
    effect.

    Parameters: ``cfg``.
    Ports, names made of page, register and field (``control_timeout``, ``handles_flags_owner``; a field called ``value`` adds
    nothing): ``rw`` Out, its value; ``ro`` In; ``w1c`` Out and ``.._set`` In; registers with ``load``: ``.._load`` In strobe
    and ``.._next`` In
    per field; orders: ``.._strobe`` Out, ``.._deny`` In, and the written fields Out, valid with the strobe. ``external_en``
    Out, ``external_index`` Out,
    ``external_data`` In: words behind COUNTER_BASE, data in the cycle after. ``bus`` In; ``hold`` In.
    Source: architecture section 7, CSR pages.
    """

    def __init__(self, cfg):
        self._map = register_map(cfg)
        ports = {"bus": In(RegisterBus()), "hold": In(1), "external_en": Out(1),
                 "external_index": Out(PAGE_WORDS.bit_length() - 1),
                 "external_data": In(32)}
        for page in self._map.pages:
            for register in page.registers:
                name = f"{page.name}_{register.name.lower()}"
                if register.order:
                    ports |= {f"{name}_strobe": Out(1), f"{name}_deny": In(1)}
                if register.load:
                    ports[f"{name}_load"] = In(1)
                for field in register.fields:
                    port = _port(page, register, field)
                    if field.access in ("rw", "w1c", "wo"):
                        ports[port] = Out(field.width, init=field.reset if field.access == "rw" else 0)
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
        step = Signal(2)            # 0 waiting, 1 page words read, 2 answer ready
        begin, writing = Signal(), Signal()
        m.d.comb += [begin.eq(bus.request & (step == 0) & ~self.hold), writing.eq(begin & bus.write)]
        m.d.comb += [self.external_en.eq(begin), self.external_index.eq(bus.addr - COUNTER_BASE // 4)]

        words, mapped, writable, outside = [], [], [], []
        for page in self._map.pages:
            word = Signal(32, name=f"{page.name}_word")
            hit, takes, external = (Signal(name=f"{page.name}_{name}") for name in ("hit", "takes", "external"))
            words.append(word)
            mapped.append(hit)
            writable.append(takes)
            outside.append(external)
            m.d.sync += [word.eq(0), hit.eq(0), takes.eq(0), external.eq(0)]
            chosen = Signal(name=f"{page.name}_chosen")
            m.d.comb += chosen.eq(bus.addr[PAGE_WORDS.bit_length() - 1:] == page.number)
            self._page(m, page, chosen, writing, word, (hit, takes, external))

        data, good, use_external = Signal(32), Signal(), Signal()
        m.d.comb += [good.eq(Mux(bus.write, _any(writable), _any(mapped))), use_external.eq(_any(outside)),
                     data.eq(_any(words)), bus.done.eq(step == 2)]
        m.d.sync += step.eq(0)
        with m.If(begin):
            m.d.sync += step.eq(1)
        with m.Elif(step == 1):
            m.d.sync += [step.eq(2), bus.error.eq(~good)]
            m.d.sync += bus.read_data.eq(Mux(use_external, self.external_data, data))
        return m

    def _page(self, m, page, chosen, writing, word, flags):
        """Decoder of one page; ``word`` and ``flags`` (mapped, takes a write, external) are registered and 0 unless the page
        was chosen; they follow the address alone: that an access begins comes later in the cycle."""
        for register in page.registers:
            name = f"{page.name}_{register.name.lower()}"
            if register.load:
                with m.If(getattr(self, f"{name}_load")):
                    m.d.sync += [getattr(self, port).eq(getattr(self, f"{port}_next"))
                                 for port in (_port(page, register, f) for f in register.fields)]
            if register.order:
                m.d.comb += [getattr(self, _port(page, register, f)).eq(self.bus.data[f.low:f.low + f.width])
                             for f in register.fields if f.access == "wo"]
        with m.If(chosen):
            with m.Switch(self.bus.addr[:PAGE_WORDS.bit_length() - 1]):
                for register in page.registers:
                    with m.Case(register.offset // 4):
                        self._register(m, page, register, writing, word, flags)
        for register in page.registers:         # after the clears: setting wins
            for field in register.fields:
                if field.access == "w1c":
                    port = getattr(self, _port(page, register, field))
                    setter = getattr(self, _port(page, register, field) + "_set")
                    with m.If(setter.any()):
                        m.d.sync += port.eq(port | setter)

    def _register(self, m, page, register, writing, word, flags):
        name = f"{page.name}_{register.name.lower()}"
        data = self.bus.data
        hit, takes, external = flags
        for field in register.fields:
            if register.constant:
                m.d.sync += word[field.low:field.low + field.width].eq(field.reset)
            elif not register.external and field.access != "wo":
                m.d.sync += word[field.low:field.low + field.width].eq(getattr(self, _port(page, register, field)))
        denied = getattr(self, f"{name}_deny") if register.order else 0
        m.d.sync += [hit.eq(1), takes.eq(~denied if register.writable else 0), external.eq(register.external)]
        for field in register.fields:
            port, bits = _port(page, register, field), data[field.low:field.low + field.width]
            if field.access == "rw":
                with m.If(writing):
                    m.d.sync += getattr(self, port).eq(bits)
            elif field.access == "w1c":
                with m.If(writing):
                    m.d.sync += getattr(self, port).eq(getattr(self, port) & ~bits)
        if register.order:
            m.d.comb += getattr(self, f"{name}_strobe").eq(writing & ~denied)


def _any(signals):
    """OR of equal widths, as a tree."""
    signals = list(signals)
    while len(signals) > 1:
        pairs = [a | b for a, b in zip(signals[::2], signals[1::2], strict=False)]
        signals = pairs + signals[2 * len(pairs):]
    return signals[0]
