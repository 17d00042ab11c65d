"""AXI interface signatures with plain member names, so that FPGA tools recognise them.

Members carry the AXI names in lower case (``awaddr``, ``tvalid``). A component port ``mem`` of such a signature becomes
``mem__awaddr`` in Verilog; FPGA tools group ports by ``<interface>_<name>``, so the hub top declares flat ports with
:func:`flat_members` (prefix ``m_axi_mem0``: ``m_axi_mem0_awaddr``, ...) and joins them with :func:`connect_flat`. Signatures
are written from the initiator's side (the side that drives ``awvalid``, ``arvalid`` or ``tvalid``); use ``In(...)`` for a
target.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import ADDR_WIDTH

__all__ = ["Axi4Write", "Axi4", "AxiLite", "AxiStream", "SpillSignature", "flat_members", "connect_flat", "BURST_INCR",
           "RESP_OKAY"]

BURST_INCR = 1
RESP_OKAY = 0


def _address(prefix, addr_width, id_width):
    return {f"{prefix}id": Out(id_width), f"{prefix}addr": Out(addr_width), f"{prefix}len": Out(8), f"{prefix}size": Out(3),
            f"{prefix}burst": Out(2), f"{prefix}cache": Out(4), f"{prefix}prot": Out(3), f"{prefix}valid": Out(1),
            f"{prefix}ready": In(1)}


def _write(addr_width, data_width, id_width):
    return {**_address("aw", addr_width, id_width),
            "wdata": Out(data_width), "wstrb": Out(data_width // 8), "wlast": Out(1), "wvalid": Out(1), "wready": In(1),
            "bid": In(id_width), "bresp": In(2), "bvalid": In(1), "bready": Out(1)}


class Axi4Write(wiring.Signature):
    """The three write channels of AXI4. Parameters: ``addr_width``, ``data_width`` (bits), ``id_width``, 1 or more."""

    def __init__(self, addr_width, data_width, id_width=1):
        super().__init__(_write(addr_width, data_width, id_width))


class Axi4(wiring.Signature):
    """All five channels of AXI4. Parameters as :class:`Axi4Write`."""

    def __init__(self, addr_width, data_width, id_width=1):
        super().__init__({**_write(addr_width, data_width, id_width), **_address("ar", addr_width, id_width),
                          "rid": In(id_width), "rdata": In(data_width), "rresp": In(2), "rlast": In(1), "rvalid": In(1),
                          "rready": Out(1)})


class AxiLite(wiring.Signature):
    """AXI4-Lite. Parameters: ``addr_width``, ``data_width`` (bits, 32 or 64)."""

    def __init__(self, addr_width, data_width=32):
        super().__init__({"awaddr": Out(addr_width), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
                          "wdata": Out(data_width), "wstrb": Out(data_width // 8), "wvalid": Out(1), "wready": In(1),
                          "bresp": In(2), "bvalid": In(1), "bready": Out(1),
                          "araddr": Out(addr_width), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
                          "rdata": In(data_width), "rresp": In(2), "rvalid": In(1), "rready": Out(1)})


class AxiStream(wiring.Signature):
    """AXI4-Stream without ``tkeep``: whole flits only. Parameters: ``data_width``; ``dest_width``, bits of ``tdest``, 0:
    none."""

    def __init__(self, data_width, dest_width=0):
        members = {"tdata": Out(data_width), "tvalid": Out(1), "tlast": Out(1), "tready": In(1)}
        if dest_width:
            members["tdest"] = Out(dest_width)
        super().__init__(members)


class SpillSignature(wiring.Signature):
    """What the spill engine drives: single 64-bit words, byte addresses that are multiples of 8.

    ``aw``/``w``: streams of addresses and of data, in the same order, neither waits for the other. ``b``: stream of AXI
    ``resp``, one per write, in order. ``ar``: stream of addresses; ``r``: stream {data, resp}, in order.
    """

    def __init__(self):
        super().__init__({"aw": Out(stream.Signature(ADDR_WIDTH)), "w": Out(stream.Signature(64)), "b": In(stream.Signature(2)),
                          "ar": Out(stream.Signature(ADDR_WIDTH)),
                          "r": In(stream.Signature(data.StructLayout({"data": 64, "resp": 2})))})


def flat_members(prefix, signature):
    """Members ``<prefix>_<name>`` for a component's port list, one per member of ``signature``, same directions."""
    return {f"{prefix}_{name}": member for name, member in signature.members.items()}


def connect_flat(m, component, prefix, port):
    """Joins the flat ports ``<prefix>_<name>`` of ``component`` (its own, seen from inside) with an inner ``port``."""
    for name, member in port.signature.members.items():
        outer, inner = getattr(component, f"{prefix}_{name}"), getattr(port, name)
        m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
