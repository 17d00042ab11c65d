# SPDX-License-Identifier: Apache-2.0
"""Register accesses as they are seen on an AXI4-Lite port, and what is owed there; for the bank
alone and for a whole hub."""

from amaranth import Cat, Signal

from formal.kit.streams import channels
from hub_rtl.contract.registers import IRQ_SOURCES, register_map

__all__ = ["BusWatch", "always_answers", "always_interrupts", "bus_obeys"]


def bus_obeys(spec, part):
    """Assumes that the bus of ``part`` keeps what waits; returns its channels by name."""
    found = {name.split(".")[-1]: (name, port) for name, _, port in channels(part)}
    for each in ("aw", "w", "ar"):
        spec.suppose_held(found[each][1], found[each][0])
    return {name: port for name, (_, port) in found.items()}


class BusWatch:
    """``port`` holds the signals of the AXI4-Lite port by name. ``answered``: a write was answered
    in this cycle, ``accessed``: with OKAY; ``address``, ``data``, ``full`` (all strobes set): of
    the write under way, which is ``in_flight`` from its address to its answer."""

    def __init__(self, spec, cfg, port):
        m, self.port, self.map = spec.m, port, register_map(cfg)
        self.address, self.data, self.full = (
            Signal(16, name="address"),
            Signal(32, name="data"),
            Signal(name="full"),
        )
        address_taken = port["awvalid"] & port["awready"]
        with m.If(address_taken):
            m.d.sync += self.address.eq(port["awaddr"])
        with m.If(port["wvalid"] & port["wready"]):
            m.d.sync += [
                self.data.eq(port["wdata"]),
                self.full.eq(port["wstrb"].all()),
            ]
        self.answered = port["bvalid"] & ~spec.past(port["bvalid"] & ~port["bready"])
        self.accessed = self.answered & (port["bresp"] == 0)
        began = Signal(name="began")
        m.d.sync += began.eq(address_taken | (began & ~self.answered))
        self.in_flight = began & ~self.answered

    def aims_at(self, path):
        """The write under way, or answered last, is to this register."""
        return self.address[2:] == self.map.address(path) // 4

    def wrote(self, path):
        """A write to this register was answered OKAY in this cycle."""
        return self.accessed & self.aims_at(path)


def always_answers(spec, port, limit):
    """Every access gets one answer, and no answer comes without an access. A channel takes an item
    exactly while none is held there that has no answer yet; so at most two are open. The answer
    comes within ``limit`` cycles after address and data, if earlier ones were taken."""
    m = spec.m
    took = {
        name: port[f"{name}valid"] & port[f"{name}ready"] for name in ("aw", "w", "ar", "b", "r")
    }
    pending = {
        name: Signal(name=f"{name}_pending") for name in ("aw", "w", "ar")
    }  # taken, not answered yet
    for answer, asks in (("b", ("aw", "w")), ("r", ("ar",))):
        valid, shown, fresh = (
            port[f"{answer}valid"],
            Signal(name=f"{answer}_shown"),
            Signal(name=f"{answer}_fresh"),
        )
        m.d.sync += shown.eq(valid & ~port[f"{answer}ready"])
        m.d.comb += fresh.eq(valid & ~shown)
        waited = Signal(range(limit + 2), name=f"{answer}_waited")
        complete = Cat(pending[ask] for ask in asks).all()
        for ask in asks:
            opened = Signal(range(4), name=f"{ask}_open")
            m.d.sync += [
                pending[ask].eq(took[ask] | (pending[ask] & ~fresh)),
                opened.eq(opened + took[ask] - took[answer]),
            ]
            spec.always(
                f"{ask}: taken exactly while none is held",
                port[f"{ask}ready"] == (~pending[ask] | fresh),
            )
            spec.always(f"{ask}: no more than two open", opened <= 2)
        spec.always(f"{answer}: there was an access", complete, when=fresh)
        with m.If(fresh | ~complete):
            m.d.sync += waited.eq(0)
        with m.Elif(~port["bvalid"] & ~port["rvalid"] & (waited <= limit)):
            m.d.sync += waited.eq(waited + 1)
        spec.always(f"{answer}: comes in time", waited <= limit)
    spec.reach("both wait", pending["ar"] & pending["aw"] & pending["w"])


def always_interrupts(spec, bus, irq, event, strobes):
    """``irq`` is 1 exactly when some source is set in IRQ_STATUS and enabled in IRQ_ENABLE, one
    cycle before. ``event`` is a level; each of ``strobes`` {name: strobe} is set from then on until
    software writes a 1 to its bit. A source whose strobe came while such a write was under way is
    not judged until it is set or cleared again."""
    m = spec.m
    cleared, enable = bus.wrote("control.IRQ_STATUS"), Signal(len(IRQ_SOURCES), name="enable")
    with m.If(bus.wrote("control.IRQ_ENABLE")):
        m.d.sync += enable.eq(bus.data)
    aimed = {
        path: (bus.in_flight | bus.answered) & bus.aims_at(path)
        for path in ("control.IRQ_STATUS", "control.IRQ_ENABLE")
    }
    status, unsure = [event], []
    for bit, name in enumerate(list(IRQ_SOURCES)[1:], 1):
        strobe = strobes[name]
        is_set, doubt, met = (
            Signal(name=name),
            Signal(name=f"{name}_doubt"),
            Signal(name=f"{name}_met"),
        )
        m.d.sync += met.eq(bus.in_flight & aimed["control.IRQ_STATUS"] & (met | strobe))
        with m.If(strobe):
            m.d.sync += [
                is_set.eq(1),
                doubt.eq(0),
            ]
        with m.Elif(cleared & bus.data[bit]):
            m.d.sync += [
                is_set.eq(0),
                doubt.eq(met),
            ]
        status.append(is_set)
        unsure.append(doubt)
    judged = ~Cat(unsure, *aimed.values()).any()
    expected = spec.past((Cat(status) & enable).any(), "expected")
    spec.always("irq is what is set and enabled", irq == expected, when=spec.past(judged) & judged)
    for bit, name in enumerate(IRQ_SOURCES):
        spec.reach(f"irq by {name}", irq & (enable == 1 << bit) & spec.past(judged))
