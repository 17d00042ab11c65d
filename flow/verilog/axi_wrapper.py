# SPDX-License-Identifier: Apache-2.0
"""The hub with the port names of AXI: a thin module around ``moehub``, as Verilog text.

Only wires: no register, no gate but the inverter of the reset. Items that are not packets (stores,
answers, commands, events) become AXI4-Stream, one item per beat, with each field of ``tdata`` on a
byte boundary, in the hub's order, lowest first. The attributes make Vivado's IP packager group the
ports.
"""

from dataclasses import dataclass

from hub_rtl.contract.ports import clocks, hub_interfaces
from hub_rtl.contract.words import PORTS, values_text

from .licence import SPDX

__all__ = [
    "AXI_TOP",
    "OUTER_CLOCKS",
    "OuterInterface",
    "OuterPort",
    "axi_interfaces",
    "axi_instance",
    "axi_wrapper",
    "axi_sidecar",
    "link_clock_sidecar",
]

AXI_TOP, CLOCK, RESET = "moehub_axi", "aclk", "aresetn"
#: Clock and reset, active low, of each domain.
OUTER_CLOCKS = {"sync": (CLOCK, RESET), "link": ("link_aclk", "link_aresetn")}

#: Start of the hub's interface name -> start of the wrapper's.
_RENAMED = {
    "s_store": "s_axis_store",
    "m_response": "m_axis_response",
    "s_command": "s_axis_command",
    "m_command_response": "m_axis_command_response",
    "m_event": "m_axis_event",
    "m_axis_link": "m_axis_tx",
    "s_axis_link": "s_axis_rx",
    "m_axi_mem": "m_axi_",
    "s_axil_csr": "s_axil",
}

#: Signals of AXI4 that the hub does not have: an ordinary access, without QoS and region.
_TIED = {"lock": 1, "qos": 4, "region": 4}

_BUS = {"axi4-stream": "axis", "axi4-write": "aximm", "axi4": "aximm", "axi4-lite": "aximm"}


@dataclass(frozen=True)
class OuterPort:
    """A port of the wrapper. ``inner``: ((hub port, lowest bit, width), ...); bits that are not in
    it are padding or 0."""

    name: str
    field: str
    direction: str
    width: int
    inner: tuple

    @property
    def padding(self):
        """[(lowest bit, width)] of the bits without a hub port."""
        gaps, at = [], 0
        for _, low, width in (*self.inner, (None, self.width, 0)):
            gaps += [(at, low - at)] if low > at else []
            at = low + width
        return gaps


@dataclass(frozen=True)
class OuterInterface:
    """Ports that belong together; ``kind`` is axi4-stream, axi4-write, axi4, axi4-lite or plain."""

    name: str
    kind: str
    ports: tuple
    text: str
    domain: str = "sync"


def _renamed(interface):
    index = "" if interface.index is None else str(interface.index)
    start = interface.name[: len(interface.name) - len(index)]
    return _RENAMED.get(start, start) + index


def _item(name, interface):
    """A stream of the hub as AXI4-Stream."""
    valid, ready, *fields = interface.ports
    inner, at = [], 0
    for port in fields:
        inner.append((port.name, at, port.width))
        at += -(-port.width // 8) * 8
    return (
        OuterPort(f"{name}_tdata", "tdata", valid.direction, at, tuple(inner)),
        OuterPort(f"{name}_tvalid", "tvalid", valid.direction, 1, ((valid.name, 0, 1),)),
        OuterPort(f"{name}_tready", "tready", ready.direction, 1, ((ready.name, 0, 1),)),
    )


def _bus(name, interface):
    ports = []
    for port in interface.ports:
        outer = port.name if interface.kind == "plain" else f"{name}_{port.field}"
        ports.append(
            OuterPort(outer, port.field, port.direction, port.width, ((port.name, 0, port.width),))
        )
        if port.field in ("awprot", "arprot") and interface.kind != "axi4-lite":
            ports += [
                OuterPort(
                    f"{name}_{port.field[:2]}{field}",
                    port.field[:2] + field,
                    port.direction,
                    width,
                    (),
                )
                for field, width in _TIED.items()
            ]
    return tuple(ports)


def axi_interfaces(cfg):
    """All :class:`OuterInterface` of the wrapper, in port order, without clocks and resets."""
    out = []
    for interface in hub_interfaces(cfg):
        name = _renamed(interface)
        item = interface.kind == "stream"
        out.append(
            OuterInterface(
                name,
                "axi4-stream" if item else interface.kind,
                _item(name, interface) if item else _bus(name, interface),
                interface.text,
                interface.domain,
            )
        )
    return out


def link_clock_sidecar(cfg, clock, reset, active):
    """For the JSON sidecar: the clock of the links' ports, if they have one of their own."""
    pin = {"name": reset, "active": active, "synchronous": True}
    return {"link_clock": {"name": clock, "reset": pin}} if cfg.link_clock else {}


def axi_sidecar(cfg):
    """For the JSON sidecar: how a port of the wrapper is made of the hub's."""
    return {
        "name": AXI_TOP,
        "clock": CLOCK,
        "reset": {"name": RESET, "active": 0, "synchronous": True},
        **link_clock_sidecar(cfg, *OUTER_CLOCKS["link"], active=0),
        "interfaces": [
            {
                "name": i.name,
                "kind": i.kind,
                "text": i.text,
                "ports": [
                    {
                        "name": p.name,
                        "field": p.field,
                        "direction": p.direction,
                        "width": p.width,
                        "hub": [
                            {"name": name, "low": low, "width": width}
                            for name, low, width in p.inner
                        ],
                    }
                    for p in i.ports
                ],
            }
            for i in axi_interfaces(cfg)
        ],
    }


def _parameters(cfg, interface):
    """What Vivado should know about an interface, beyond what it reads off the ports."""
    width = {port.field: port.width for port in interface.ports}
    if interface.kind == "axi4-stream":
        return {
            "TDATA_NUM_BYTES": width["tdata"] // 8,
            "TDEST_WIDTH": width.get("tdest", 0),
            "TID_WIDTH": 0,
            "TUSER_WIDTH": 0,
            "HAS_TREADY": 1,
            "HAS_TSTRB": 0,
            "HAS_TKEEP": 0,
            "HAS_TLAST": int("tlast" in width),
        }
    common = {"DATA_WIDTH": width["wdata"], "ADDR_WIDTH": width["awaddr"]}
    if interface.kind == "axi4-lite":
        return {"PROTOCOL": "AXI4LITE", **common, "READ_WRITE_MODE": "READ_WRITE"}
    write = interface.kind == "axi4-write"
    return {
        "PROTOCOL": "AXI4",
        **common,
        "ID_WIDTH": width["awid"],
        "READ_WRITE_MODE": "WRITE_ONLY" if write else "READ_WRITE",
        "SUPPORTS_NARROW_BURST": 0,
        "MAX_BURST_LENGTH": cfg.packet_flits if write else 1,
    }


def _attributes(info, name, parameters):
    """Attribute lines of a port; ``parameters`` for one port of each interface, None for the
    others."""
    lines = [f'  (* X_INTERFACE_INFO = "xilinx.com:{info}" *)']
    if parameters:
        values = ", ".join(f"{key} {value}" for key, value in parameters.items())
        lines.append(f'  (* X_INTERFACE_PARAMETER = "XIL_INTERFACENAME {name}, {values}" *)')
    return lines


def _range(width):
    return f"[{width - 1}:0] " if width > 1 else ""


def _part(port, low, width):
    if width == port.width:
        return port.name
    return f"{port.name}[{low}]" if width == 1 else f"{port.name}[{low + width - 1}:{low}]"


def _values(port):
    """Behind the name of a port of the hub: what its values mean."""
    return f" ({values_text(PORTS[port])})" if port in PORTS else ""


def _declarations(cfg, interfaces):
    """Lists of lines, each list one port; the last line of each has no comma yet."""
    for domain in clocks(cfg):
        clock, reset = OUTER_CLOCKS[domain]
        buses = ":".join(i.name for i in interfaces if i.kind in _BUS and i.domain == domain)
        yield [
            *_attributes(
                f"signal:clock:1.0 {clock} CLK",
                clock,
                {"ASSOCIATED_BUSIF": buses, "ASSOCIATED_RESET": reset},
            ),
            f"  input  wire {clock}",
        ]
        yield [
            *_attributes(f"signal:reset:1.0 {reset} RST", reset, {"POLARITY": "ACTIVE_LOW"}),
            f"  input  wire {reset}",
        ]
    for interface in interfaces:
        for n, port in enumerate(interface.ports):
            lines = [f"  // {interface.text}"] if n == 0 else []
            if interface.kind in _BUS:
                lines += _attributes(
                    f"interface:{_BUS[interface.kind]}:1.0 {interface.name} {port.field.upper()}",
                    interface.name,
                    _parameters(cfg, interface) if n == 0 else None,
                )
                if len(port.inner) > 1:
                    lines += [
                        f"  //   {_part(port, low, width)}: {inner}{_values(inner)}"
                        for inner, low, width in port.inner
                    ]
            elif interface.name == "irq":
                lines += _attributes(
                    "signal:interrupt:1.0 irq INTERRUPT", "irq", {"SENSITIVITY": "LEVEL_HIGH"}
                )
            way = "input " if port.direction == "in" else "output"
            yield [*lines, f"  {way} wire {_range(port.width)}{port.name}"]


def axi_wrapper(cfg, hub):
    """Verilog of the wrapper around the module ``hub``."""
    interfaces = axi_interfaces(cfg)
    ports = [port for interface in interfaces for port in interface.ports]
    pins = []
    for domain, (clock, reset) in clocks(cfg).items():
        outer_clock, outer_reset = OUTER_CLOCKS[domain]
        pins += [f".{clock}({outer_clock})", f".{reset}(~{outer_reset})"]
    pins += [
        f".{inner}({_part(port, low, width)})" for port in ports for inner, low, width in port.inner
    ]
    gaps = [(port, _part(port, low, width), width) for port in ports for low, width in port.padding]
    zeros = [
        f"  assign {part} = {width}'d0;" for port, part, width in gaps if port.direction == "out"
    ]
    unused = [part for port, part, _ in gaps if port.direction == "in"]
    return "\n".join(
        [
            f"// {SPDX}",
            f"// MoE-Hub, configuration {cfg.name}, with the port names of AXI. Generated; "
            f"nothing but wires around `{hub}`.",
            "`default_nettype none",
            f"module {AXI_TOP} (",
            ",\n".join("\n".join(lines) for lines in _declarations(cfg, interfaces)),
            ");",
            f"  {hub} hub (",
            ",\n".join(f"    {pin}" for pin in pins),
            "  );",
            "  // Signals of AXI4 that the hub does not use, and padding.",
            *zeros,
            *([f"  wire unused = &{{1'b0, {', '.join(unused)}}};"] if unused else []),
            "endmodule",
            "`default_nettype wire",
            "",
        ]
    )


def axi_instance(cfg):
    """A template to copy: the wrapper's instance, each port with a wire of its name, declared above
    it."""
    ports = [(pin, 1, "") for domain in clocks(cfg) for pin in OUTER_CLOCKS[domain]]
    for interface in axi_interfaces(cfg):
        ports += [
            (port.name, port.width, interface.text if n == 0 else "")
            for n, port in enumerate(interface.ports)
        ]
    wires = []
    for name, width, text in ports:
        wires += [f"// {text}"] if text else []
        wires.append(f"wire {_range(width)}{name};")
    return "\n".join(
        [
            f"// {SPDX}",
            f"// To copy: an instance of {AXI_TOP}, configuration {cfg.name}, and its wires.",
            *wires,
            "",
            f"{AXI_TOP} {AXI_TOP}_0 (",
            ",\n".join(f"  .{name}({name})" for name, _, _ in ports),
            ");",
            "",
        ]
    )
