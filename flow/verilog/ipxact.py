# SPDX-License-Identifier: Apache-2.0
"""The AXI wrapper as an IP-XACT component (IEEE 1685-2014): bus interfaces with their port maps,
memory map, model, file sets.

Bus interfaces are those of ARM's definitions (``amba.com:AMBA4``), clock and reset of each are in
its port map. What is no bus (vectors, interrupt) is a port with a description.
"""

import xml.etree.ElementTree as ElementTree

from hub_rtl.contract.fields import ADDR, REGISTER
from hub_rtl.contract.ports import clocks
from hub_rtl.contract.register_map import PAGE_BYTES
from hub_rtl.contract.registers import VERSION, register_map
from hub_rtl.contract.words import enumeration_of

from .axi_wrapper import AXI_TOP, OUTER_CLOCKS, axi_interfaces
from .licence import SPDX

__all__ = ["BUSES", "NAMESPACE", "ipxact_component"]

NAMESPACE = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"
#: ARM's bus definition of an interface's kind.
BUSES = {
    "axi4-stream": "AXI4Stream",
    "axi4-write": "AXI4",
    "axi4": "AXI4",
    "axi4-lite": "AXI4-Lite",
}
_REVISION = "r0p0"
#: Access of a field, by access in the description, and what a write does beside storing.
_ACCESS = {
    "ro": ("read-only", None),
    "rw": ("read-write", None),
    "w1c": ("read-write", "oneToClear"),
    "wo": ("write-only", None),
}


def _add(parent, tag, text=None, **attributes):
    """A new element, in the namespace; returns it."""
    child = ElementTree.SubElement(parent, f"ipxact:{tag}", attributes)
    child.text = None if text is None else str(text)
    return child


def _named(parent, tag, name, text=""):
    child = _add(parent, tag)
    _add(child, "name", name)
    if text:
        _add(child, "description", text)
    return child


def _bus(parent, interface):
    name = BUSES[interface.kind]
    valid = "tvalid" if interface.kind == "axi4-stream" else "awvalid"
    master = next(port for port in interface.ports if port.field == valid).direction == "out"
    bus = _named(parent, "busInterface", interface.name, interface.text)
    kind = {"vendor": "amba.com", "library": "AMBA4", "version": _REVISION}
    _add(bus, "busType", name=name, **kind)
    abstraction = _add(_add(bus, "abstractionTypes"), "abstractionType")
    _add(abstraction, "abstractionRef", name=f"{name}_rtl", **kind)
    maps = _add(abstraction, "portMaps")
    clock, reset = OUTER_CLOCKS[interface.domain]
    pins = {"ACLK": clock, "ARESETn": reset}
    pins |= {port.field.upper(): port.name for port in interface.ports}
    for logical, physical in pins.items():
        pair = _add(maps, "portMap")
        _add(_add(pair, "logicalPort"), "name", logical)
        _add(_add(pair, "physicalPort"), "name", physical)
    role = _add(bus, "master" if master else "slave")
    if interface.kind == "axi4-lite":
        _add(role, "memoryMapRef", memoryMapRef="registers")
    elif interface.kind != "axi4-stream":
        _add(role, "addressSpaceRef", addressSpaceRef=interface.name)


def _address_spaces(component, interfaces):
    spaces = _add(component, "addressSpaces")
    for interface in interfaces:
        if interface.kind in ("axi4", "axi4-write"):
            space = _named(spaces, "addressSpace", interface.name, "device memory")
            width = next(port.width for port in interface.ports if port.field == "wdata")
            _add(space, "range", f"'h{1 << ADDR:x}")
            _add(space, "width", width)
            _add(space, "addressUnitBits", 8)


def _memory_map(component, cfg):
    page_map = _named(_add(component, "memoryMaps"), "memoryMap", "registers", "32-bit registers")
    for page in register_map(cfg).pages:
        block = _named(page_map, "addressBlock", page.name, page.text)
        _add(block, "baseAddress", f"'h{page.base:x}")
        _add(block, "range", f"'h{PAGE_BYTES:x}")
        _add(block, "width", REGISTER)
        _add(block, "usage", "register")
        for register in page.registers:
            _register(block, register)
    _add(page_map, "addressUnitBits", 8)


def _register(block, register):
    entry = _named(block, "register", register.name, register.text)
    _add(entry, "addressOffset", f"'h{register.offset:x}")
    _add(entry, "size", REGISTER)
    for field in register.fields:
        access, modified = _ACCESS[field.access]
        item = _named(entry, "field", field.name, field.text)
        _add(item, "bitOffset", field.low)
        reset = _add(_add(item, "resets"), "reset")
        _add(reset, "value", f"'h{field.reset:x}")
        _add(item, "bitWidth", field.width)
        changes = field.access in ("ro", "w1c") and not register.constant
        _add(item, "volatile", str(changes).lower())
        _add(item, "access", access)
        if field.values:
            values = _add(item, "enumeratedValues")
            for each in field.values:
                value = _add(values, "enumeratedValue")
                _add(value, "name", f"{enumeration_of(field.values)}_{each.name}")
                _add(value, "value", f"'h{int(each):x}")
        if modified:
            _add(item, "modifiedWriteValue", modified)


def _model(component, cfg, interfaces):
    model = _add(component, "model")
    view = _named(_add(model, "views"), "view", "rtl")
    _add(view, "envIdentifier", "verilogSource::")
    _add(view, "componentInstantiationRef", "verilog")
    instance = _named(_add(model, "instantiations"), "componentInstantiation", "verilog")
    _add(instance, "language", "Verilog")
    _add(instance, "moduleName", AXI_TOP)
    for files in ("rtl", "timing"):
        _add(_add(instance, "fileSetRef"), "localName", files)
    ports = _add(model, "ports")
    for domain in clocks(cfg):
        clock, reset = OUTER_CLOCKS[domain]
        _port(ports, clock, "in", 1, "clock, rising edge")
        _port(ports, reset, "in", 1, "reset, active low, synchronous")
    for interface in interfaces:
        for port in interface.ports:
            text = "" if interface.kind in BUSES else interface.text
            _port(ports, port.name, port.direction, port.width, text)


def _port(ports, name, direction, width, text):
    wire = _add(_named(ports, "port", name, text), "wire")
    _add(wire, "direction", direction)
    if width > 1:
        vector = _add(_add(wire, "vectors"), "vector")
        _add(vector, "left", width - 1)
        _add(vector, "right", 0)


def _file_sets(component, files):
    sets = _add(component, "fileSets")
    for name, (kind, names) in files.items():
        each = _named(sets, "fileSet", name)
        for file in names:
            entry = _add(each, "file")
            _add(entry, "name", file)
            _add(entry, "fileType", kind)


def ipxact_component(cfg, sources, sdc, bench):
    """XML of the component. ``sources``: Verilog files; ``sdc`` and ``bench``: file names."""
    interfaces = axi_interfaces(cfg)
    component = ElementTree.Element("ipxact:component", {"xmlns:ipxact": NAMESPACE})
    for tag, text in {
        "vendor": "moe-hub",
        "library": "hub",
        "name": AXI_TOP,
        "version": ".".join(map(str, VERSION)),
    }.items():
        _add(component, tag, text)
    buses = _add(component, "busInterfaces")
    for interface in interfaces:
        if interface.kind in BUSES:
            _bus(buses, interface)
    _address_spaces(component, interfaces)
    _memory_map(component, cfg)
    _model(component, cfg, interfaces)
    files = {
        "rtl": ("verilogSource-2001", sources),
        "timing": ("SDC", [sdc]),
        "bench": ("verilogSource", [bench]),
    }
    _file_sets(component, files)
    _add(component, "description", f"MoE-Hub, configuration {cfg.name}, with the ports of AXI")
    ElementTree.indent(component)
    text = ElementTree.tostring(component, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {SPDX} -->\n{text}\n'
