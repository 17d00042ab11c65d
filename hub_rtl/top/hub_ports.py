"""Description of the hub's outer ports: one list, used by the RTL top, the JSON sidecar, the documentation and the benches.

Plain Python (no Amaranth). Every port is a plain vector with a flat name, because struct payloads would otherwise come out
of the Verilog writer as one anonymous vector.
"""

from dataclasses import dataclass

from ..config import ADDR_WIDTH, EPOCH_WIDTH, ROWID_WIDTH

__all__ = ["CSR_ADDR_WIDTH", "Port", "Interface", "hub_interfaces", "hub_ports", "ports_markdown"]

CSR_ADDR_WIDTH = 16     # ten pages of 4 KiB


@dataclass(frozen=True)
class Port:
    """One vector. ``direction`` is ``in`` or ``out``, seen from the hub; ``field`` is the name inside the interface."""

    name: str
    direction: str
    width: int
    field: str


@dataclass(frozen=True)
class Interface:
    """Ports that belong together. ``kind``: stream, axi4-stream, axi4-write, axi4, axi4-lite or plain.

    ``index``: lane or slice number, None when there is one per hub.
    """

    name: str
    kind: str
    index: int | None
    ports: tuple
    text: str


def _stream(name, role, fields, text, index=None):
    forward, back = ("in", "out") if role == "slave" else ("out", "in")
    ports = [Port(f"{name}_valid", forward, 1, "valid"), Port(f"{name}_ready", back, 1, "ready")]
    ports += [Port(f"{name}_{field}", forward, width, field) for field, width in fields.items()]
    return Interface(name, "stream", index, tuple(ports), text)


def _bus(name, kind, forward, back, fields, text, index=None):
    """``fields``: {name: (direction seen from the side that drives ``forward``, width)}."""
    turn = {"f": forward, "b": back}
    return Interface(name, kind, index, tuple(Port(f"{name}_{field}", turn[way], width, field)
                                              for field, (way, width) in fields.items()), text)


def _axi_write(data):
    return {"awid": ("f", 1), "awaddr": ("f", ADDR_WIDTH), "awlen": ("f", 8), "awsize": ("f", 3), "awburst": ("f", 2),
            "awcache": ("f", 4), "awprot": ("f", 3), "awvalid": ("f", 1), "awready": ("b", 1),
            "wdata": ("f", data), "wstrb": ("f", data // 8), "wlast": ("f", 1), "wvalid": ("f", 1), "wready": ("b", 1),
            "bid": ("b", 1), "bresp": ("b", 2), "bvalid": ("b", 1), "bready": ("f", 1)}


def _axi_read(data):
    return {"arid": ("f", 1), "araddr": ("f", ADDR_WIDTH), "arlen": ("f", 8), "arsize": ("f", 3), "arburst": ("f", 2),
            "arcache": ("f", 4), "arprot": ("f", 3), "arvalid": ("f", 1), "arready": ("b", 1),
            "rid": ("b", 1), "rdata": ("b", data), "rresp": ("b", 2), "rlast": ("b", 1), "rvalid": ("b", 1),
            "rready": ("f", 1)}


def hub_interfaces(cfg):
    """All interfaces of a hub of this configuration, in port order (``clk`` and ``rst`` are not among them)."""
    store = {"operand": 64, "cls": 1, "owner": 4, "data": 256, "mask": 32, "tag": cfg.tag_width}
    answer = {"tag": cfg.tag_width, "status": 4}
    command = {"op": 2, "handle": cfg.handle_width, "epoch": EPOCH_WIDTH, "owner": 4, "tag": cfg.tag_width}
    event = {"kind": 2, "plain": 1, "region": max(cfg.region_width, cfg.dep_width), "epoch": EPOCH_WIDTH,
             "group": cfg.group_width, "rows": cfg.slot_width, "status": 4, "refused": 1}
    out = []
    for n in range(cfg.lanes):
        out += [
            _stream(f"s_store{n}", "slave", store, "stores from the GPU crossbar for lane {n}", n),
            _stream(f"m_response{n}", "master", answer, "one answer per store of lane {n}, in order", n),
            Interface(f"can_accept{n}", "plain", n, (Port(f"can_accept{n}", "out", cfg.ranks, "can_accept"),),
                      "bit r: a store for rank r on lane {n} will find a place"),
        ]
    out += [
        _stream("s_command", "slave", command, "fence, close and close-all"),
        _stream("m_command_response", "master", answer, "answers to commands, by tag, not in order"),
        _stream("m_event", "master", event, "READY, ALL and ERROR events"),
    ]
    for n in range(cfg.lanes):
        out += [
            _bus(f"m_axis_link{n}", "axi4-stream", "out", "in",
                 {"tdata": ("f", 128), "tvalid": ("f", 1), "tready": ("b", 1), "tlast": ("f", 1),
                  "tdest": ("f", cfg.rank_width)}, "packets of lane {n} to the fabric; tdest is the rank", n),
            _bus(f"s_axis_link{n}", "axi4-stream", "in", "out",
                 {"tdata": ("f", 128), "tvalid": ("f", 1), "tready": ("b", 1), "tlast": ("f", 1)},
                 "packets of lane {n} from the fabric", n),
        ]
    for n in range(cfg.slices):
        out.append(_bus(f"m_axi_mem{n}", "axi4-write", "out", "in", _axi_write(128),
                        "rows to memory, slice {n} (links first, then loopback)", n))
    out += [
        _bus("m_axi_spill", "axi4", "out", "in", _axi_write(64) | _axi_read(64), "spilled rows and flag writes"),
        _bus("s_axil_csr", "axi4-lite", "in", "out", {
            "awaddr": ("f", CSR_ADDR_WIDTH), "awprot": ("f", 3), "awvalid": ("f", 1), "awready": ("b", 1),
            "wdata": ("f", 32), "wstrb": ("f", 4), "wvalid": ("f", 1), "wready": ("b", 1),
            "bresp": ("b", 2), "bvalid": ("b", 1), "bready": ("f", 1),
            "araddr": ("f", CSR_ADDR_WIDTH), "arprot": ("f", 3), "arvalid": ("f", 1), "arready": ("b", 1),
            "rdata": ("b", 32), "rresp": ("b", 2), "rvalid": ("b", 1), "rready": ("f", 1)}, "registers"),
        _bus("obs_alloc", "plain", "out", "in", {
            "en": ("f", 1), "region": ("f", cfg.region_width), "bank": ("f", 1), "rowid": ("f", ROWID_WIDTH),
            "slot": ("f", cfg.slot_width), "overflow": ("f", 1)}, "observation: each slot allocation, in order"),
        Interface("irq", "plain", None, (Port("irq", "out", 1, "irq"),), "level interrupt"),
        Interface("cleared", "plain", None, (Port("cleared", "out", 1, "cleared"),),
                  "every table has been cleared after reset; traffic may start"),
    ]
    return [Interface(i.name, i.kind, i.index, i.ports, i.text.replace("{n}", str(i.index))) for i in out]


def hub_ports(cfg):
    """All ports but ``clk`` and ``rst``, in order."""
    return [port for interface in hub_interfaces(cfg) for port in interface.ports]


def ports_markdown(cfg):
    """Port table of the hub; of interfaces that exist once per lane or slice only number 0 is listed."""
    lines = ["| Port | Direction | Bits | Interface |", "|---|---|---|---|",
             "| `clk` | in | 1 | clock |", "| `rst` | in | 1 | synchronous reset, active high |"]
    for interface in hub_interfaces(cfg):
        if interface.index:
            continue
        for n, port in enumerate(interface.ports):
            lines.append(f"| `{port.name}` | {port.direction} | {port.width} | {interface.text if n == 0 else ''} |")
    return "\n".join(lines) + "\n"
