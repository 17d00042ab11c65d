# SPDX-License-Identifier: Apache-2.0
"""Hubs as they are generated, ``moehub_axi``, in one module, each port with ``a_`` or ``b_`` before
its name; and bugs on the wires around the last hub, one of which ``planted`` chooses."""

from flow.verilog.axi_wrapper import AXI_TOP, axi_interfaces
from sim.generated import generated

__all__ = ["BUGS", "SIDES", "hubs_verilog", "wires"]

SIDES = ("a", "b")

#: {name: (port, what the outside sees, the next value of a register of one bit)}. In the texts
#: ``{port}`` is what the hub gives, ``{bus}`` starts the names of its interface outside, ``{was}``
#: is the register.
BUGS = {
    "wrapper.wlast_early": ("m_axi_0_wlast", "1'b1", "1'b0"),
    "wrapper.bready_dropped": ("m_axi_0_bready", "~{was}", "{was} | {bus}_bvalid"),
    "wrapper.response_before_data": (
        "s_axil_bvalid",
        "{port} | {was}",
        "{bus}_awvalid & {bus}_awready | {was} & ~{bus}_bready",
    ),
    "wrapper.awvalid_dropped": (
        "m_axi_0_awvalid",
        "{port} & ~{was}",
        "{port} & ~{bus}_awready & ~{was}",
    ),
    "wrapper.wstrb_moves": ("m_axi_0_wstrb", "{port} ^ {was}", "{bus}_wvalid & ~{bus}_wready"),
    "wrapper.event_dropped": (
        "m_axis_event_tvalid",
        "{port} & ~{was}",
        "{port} & ~{bus}_tready & ~{was}",
    ),
}


def wires(cfg):
    """(direction, width, name) of the wrapper's ports, in order."""
    return [
        (port.direction, port.width, port.name)
        for interface in axi_interfaces(cfg)
        for port in interface.ports
    ]


def _range(width):
    return f"[{width - 1}:0] " if width > 1 else ""


def _bug(number, name, side):
    """Statements of one bug: its register, and the wire that the outside sees."""
    port, seen, after = BUGS[name]
    names = {
        "port": f"hub_{port}",
        "bus": f"{side}_{port.rpartition('_')[0]}",
        "was": name.rpartition(".")[2],
    }
    return [
        f"  reg {names['was']} = 0;",
        f"  always @(posedge aclk) {names['was']} <= aresetn & ({after.format(**names)});",
        f"  assign {side}_{port} = planted == {number} ? {seen.format(**names)} : {names['port']};",
    ]


def hubs_verilog(cfg, name, count):
    """Verilog of ``count`` hubs, 1 or 2, and of the module ``name`` around them."""
    sides = SIDES[:count]
    ports = wires(cfg)
    broken = {port: number for number, (port, _, _) in enumerate(BUGS.values(), 1)}
    lines = [
        f"module {name} (",
        "  input aclk,",
        "  input aresetn,",
        "  input [3:0] planted,",
        ",\n".join(
            f"  {way}put {_range(width)}{side}_{port}"
            for side in sides
            for way, width, port in ports
        ),
        ");",
        *(f"  wire {_range(w)}hub_{port};" for _, w, port in ports if port in broken),
    ]
    for number, bug in enumerate(BUGS, 1):
        lines += _bug(number, bug, sides[-1])
    for side in sides:
        pins = [".aclk(aclk)", ".aresetn(aresetn)"]
        for _, _, port in ports:
            inside = f"hub_{port}" if side == sides[-1] and port in broken else f"{side}_{port}"
            pins.append(f".{port}({inside})")
        lines += [f"  {AXI_TOP} {side} (", ",\n".join(f"    {pin}" for pin in pins), "  );"]
    return "".join([*generated(cfg).sources().values(), "\n".join([*lines, "endmodule", ""])])
