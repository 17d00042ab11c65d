# SPDX-License-Identifier: Apache-2.0
"""Description of the hub's outer ports: one list, used by the RTL top, the JSON sidecar, the
documentation and the benches.

Plain Python (no Amaranth). Every port is a plain vector with a flat name, because struct payloads
would otherwise come out of the Verilog writer as one anonymous vector.
"""

import dataclasses
from dataclasses import dataclass

from .fields import (
    ADDR,
    AXI_BURST,
    AXI_CACHE,
    AXI_LEN,
    AXI_PROT,
    AXI_RESP,
    AXI_SIZE,
    BYTE,
    COMMAND_OP,
    CSR_ADDR,
    EPOCH,
    FLIT,
    KIND,
    OWNER,
    REASON,
    REGISTER,
    REPLICA,
    ROWID,
    SENT16,
    WORD,
)

__all__ = [
    "CLOCKS",
    "Port",
    "Interface",
    "alloc_fields",
    "axi_lite",
    "axi_read",
    "axi_stream",
    "axi_write",
    "clocks",
    "command_fields",
    "event_fields",
    "hub_interfaces",
    "hub_ports",
    "ports_markdown",
    "response_fields",
    "store_fields",
]


# -- records of the outer streams: {field: width} --------------------------------------------------


def store_fields(cfg):
    """A store as the GPU crossbar delivers it."""
    return {
        "operand": WORD,
        "cls": 1,
        "owner": OWNER,
        "data": cfg.slice_bytes * BYTE,
        "mask": cfg.slice_bytes,
        "tag": cfg.tag_width,
    }


def response_fields(cfg):
    """Answer to a store or a command: ``status`` is a packets.Reason, OK when it was accepted."""
    return {"tag": cfg.tag_width, "status": REASON}


def command_fields(cfg):
    """Fences, close, close all, announce, announce all (packets.CommandOp). ``abort``: with a
    close, the producer gives up. Of ANNOUNCE: ``replica``, ``bytes16``, and ``more``, another one
    follows at once."""
    return {
        "op": COMMAND_OP,
        "handle": cfg.handle_width,
        "epoch": EPOCH,
        "owner": OWNER,
        "abort": 1,
        "replica": REPLICA,
        "bytes16": SENT16,
        "more": 1,
        "tag": cfg.tag_width,
    }


def event_fields(cfg):
    """READY, ALL, ERROR (packets.EventKind). ``plain``: ``region`` holds the dependency range.
    ``rows``: rows in the tile (READY) or in the region (ALL). ``refused``: some bytes were refused
    (ALL)."""
    return {
        "kind": KIND,
        "plain": 1,
        "region": max(cfg.region_width, cfg.dep_width),
        "epoch": EPOCH,
        "group": cfg.group_width,
        "rows": cfg.slot_width,
        "status": REASON,
        "refused": 1,
    }


def alloc_fields(cfg):
    """Observation: a row was given a slot in this cycle (``en``)."""
    return {
        "en": 1,
        "region": cfg.region_width,
        "bank": 1,
        "rowid": ROWID,
        "slot": cfg.slot_width,
        "overflow": 1,
    }


# -- buses: {member: ("f": driven by the initiator, "b": by the target; width)} --------------------


def _axi_address(prefix, addr, ident):
    return {
        f"{prefix}id": ("f", ident),
        f"{prefix}addr": ("f", addr),
        f"{prefix}len": ("f", AXI_LEN),
        f"{prefix}size": ("f", AXI_SIZE),
        f"{prefix}burst": ("f", AXI_BURST),
        f"{prefix}cache": ("f", AXI_CACHE),
        f"{prefix}prot": ("f", AXI_PROT),
        f"{prefix}valid": ("f", 1),
        f"{prefix}ready": ("b", 1),
    }


def axi_write(addr, data, ident=1):
    """The three write channels of AXI4."""
    return {
        **_axi_address("aw", addr, ident),
        "wdata": ("f", data),
        "wstrb": ("f", data // BYTE),
        "wlast": ("f", 1),
        "wvalid": ("f", 1),
        "wready": ("b", 1),
        "bid": ("b", ident),
        "bresp": ("b", AXI_RESP),
        "bvalid": ("b", 1),
        "bready": ("f", 1),
    }


def axi_read(addr, data, ident=1):
    """The two read channels of AXI4."""
    return {
        **_axi_address("ar", addr, ident),
        "rid": ("b", ident),
        "rdata": ("b", data),
        "rresp": ("b", AXI_RESP),
        "rlast": ("b", 1),
        "rvalid": ("b", 1),
        "rready": ("f", 1),
    }


def axi_lite(addr, data):
    """AXI4-Lite: AXI4 with one beat per burst and without what describes bursts."""
    left_out = {f"a{way}{name}" for way in "wr" for name in ("id", "len", "size", "burst", "cache")}
    left_out |= {"bid", "rid", "wlast", "rlast"}
    full = axi_write(addr, data) | axi_read(addr, data)
    return {name: member for name, member in full.items() if name not in left_out}


def axi_stream(data, dest=0):
    """AXI4-Stream without ``tkeep``: whole flits only; ``dest`` = 0: no ``tdest``."""
    members = {"tdata": ("f", data), "tvalid": ("f", 1), "tready": ("b", 1), "tlast": ("f", 1)}
    return members | ({"tdest": ("f", dest)} if dest else {})


# -- the hub ---------------------------------------------------------------------------------------

#: Clock and reset of each domain.
CLOCKS = {"sync": ("clk", "rst"), "link": ("link_clk", "link_rst")}


def clocks(cfg):
    """Clock and reset, by domain, of a hub of this configuration."""
    return {name: CLOCKS[name] for name in ("sync", *(["link"] if cfg.link_clock else []))}


@dataclass(frozen=True)
class Port:
    """One vector. ``direction`` is ``in`` or ``out``, seen from the hub; ``field`` is the name
    inside the interface."""

    name: str
    direction: str
    width: int
    field: str


@dataclass(frozen=True)
class Interface:
    """Ports that belong together. ``kind``: stream, axi4-stream, axi4-write, axi4, axi4-lite or
    plain.

    ``index``: lane or slice number, None when there is one per hub. ``domain``: of its clock.
    """

    name: str
    kind: str
    index: int | None
    ports: tuple
    text: str
    domain: str = "sync"


def _stream(name, role, fields, text, index=None):
    forward, back = ("in", "out") if role == "slave" else ("out", "in")
    ports = [Port(f"{name}_valid", forward, 1, "valid"), Port(f"{name}_ready", back, 1, "ready")]
    ports += [Port(f"{name}_{field}", forward, width, field) for field, width in fields.items()]
    return Interface(name, "stream", index, tuple(ports), text)


def _bus(name, kind, forward, back, fields, text, index=None, domain="sync"):
    """``fields``: {name: (direction seen from the side that drives ``forward``, width)}."""
    turn = {"f": forward, "b": back}
    return Interface(
        name,
        kind,
        index,
        tuple(
            Port(f"{name}_{field}", turn[way], width, field)
            for field, (way, width) in fields.items()
        ),
        text,
        domain,
    )


def hub_interfaces(cfg):
    """All interfaces of a hub of this configuration, in port order (:func:`clocks` are not among
    them)."""
    store, answer = store_fields(cfg), response_fields(cfg)
    out = []
    for n in range(cfg.lanes):
        out += [
            _stream(f"s_store{n}", "slave", store, "stores from the GPU crossbar for lane {n}", n),
            _stream(
                f"m_response{n}", "master", answer, "one answer per store of lane {n}, in order", n
            ),
            Interface(
                f"can_accept{n}",
                "plain",
                n,
                (Port(f"can_accept{n}", "out", cfg.ranks, "can_accept"),),
                "bit r: a store for rank r on lane {n} will find a place",
            ),
        ]
    out += [
        _stream(
            "s_command", "slave", command_fields(cfg), "fence, close, close-all, announcements"
        ),
        _stream(
            "m_command_response", "master", answer, "answers to commands, by tag, not in order"
        ),
        _stream("m_event", "master", event_fields(cfg), "READY, ALL and ERROR events"),
    ]
    wire = "link" if cfg.link_clock else "sync"
    for n in range(cfg.links):
        out += [
            _bus(
                f"m_axis_link{n}",
                "axi4-stream",
                "out",
                "in",
                axi_stream(FLIT, cfg.rank_width),
                "packets of link {n} to the fabric; tdest is the rank",
                n,
                wire,
            ),
            _bus(
                f"s_axis_link{n}",
                "axi4-stream",
                "in",
                "out",
                axi_stream(FLIT),
                "packets of link {n} from the fabric",
                n,
                wire,
            ),
        ]
    for n in range(cfg.slices):
        out.append(
            _bus(
                f"m_axi_mem{n}",
                "axi4-write",
                "out",
                "in",
                axi_write(ADDR, cfg.slice_bytes * BYTE),
                "rows to memory, slice {n} (links first, then loopback)",
                n,
            )
        )
    out += [
        _bus(
            "m_axi_spill",
            "axi4",
            "out",
            "in",
            axi_write(ADDR, WORD) | axi_read(ADDR, WORD),
            "spilled rows and flag writes",
        ),
        _bus(
            "s_axil_csr",
            "axi4-lite",
            "in",
            "out",
            axi_lite(CSR_ADDR, REGISTER),
            "registers",
        ),
        _bus(
            "obs_alloc",
            "plain",
            "out",
            "in",
            {name: ("f", width) for name, width in alloc_fields(cfg).items()},
            "observation: each slot allocation, in order",
        ),
        Interface("irq", "plain", None, (Port("irq", "out", 1, "irq"),), "level interrupt"),
        Interface(
            "cleared",
            "plain",
            None,
            (Port("cleared", "out", 1, "cleared"),),
            "every table has been cleared after reset; traffic may start",
        ),
    ]
    return [dataclasses.replace(i, text=i.text.replace("{n}", str(i.index))) for i in out]


def hub_ports(cfg):
    """All ports but clocks and resets, in order."""
    return [port for interface in hub_interfaces(cfg) for port in interface.ports]


def ports_markdown(cfg):
    """Port table of the hub; of interfaces that exist once per lane or slice only number 0 is
    listed."""
    lines = [
        "| Port | Direction | Bits | Interface |",
        "|---|---|---|---|",
    ]
    for domain, (clock, reset) in clocks(cfg).items():
        of = " of the links" if domain == "link" else ""
        lines += [
            f"| `{clock}` | in | 1 | clock{of} |",
            f"| `{reset}` | in | 1 | synchronous reset{of}, active high |",
        ]
    for interface in hub_interfaces(cfg):
        if interface.index:
            continue
        for n, port in enumerate(interface.ports):
            lines.append(
                f"| `{port.name}` | {port.direction} | {port.width} | "
                f"{interface.text if n == 0 else ''} |"
            )
    return "\n".join(lines) + "\n"
