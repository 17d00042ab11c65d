# SPDX-License-Identifier: Apache-2.0
"""AXI interface signatures with plain member names, so that FPGA tools recognise them.

Members carry the AXI names in lower case (``awaddr``, ``tvalid``). A component port ``mem`` of such
a signature becomes ``mem__awaddr`` in Verilog; FPGA tools group ports by ``<interface>_<name>``, so
the hub top declares flat ports with :func:`flat_members` (prefix ``m_axi_mem0``:
``m_axi_mem0_awaddr``, ...) and joins them with :func:`connect_flat`. Signatures are written from
the initiator's side (the side that drives ``awvalid``, ``arvalid`` or ``tvalid``); use ``In(...)``
for a target.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .fields import ADDR, AXI_RESP, REGISTER, WORD
from .ports import axi_lite, axi_read, axi_stream, axi_write

__all__ = [
    "Axi4Write",
    "Axi4",
    "AxiLite",
    "AxiStream",
    "SpillSignature",
    "flat_members",
    "connect_flat",
    "BURST_INCR",
    "RESP_OKAY",
]

BURST_INCR = 1
RESP_OKAY = 0


def _members(table):
    """Members of a signature from a table of :mod:`~hub_rtl.contract.ports`."""
    return {name: (Out if way == "f" else In)(width) for name, (way, width) in table.items()}


class Axi4Write(wiring.Signature):
    """The three write channels of AXI4. Parameters: ``addr_width``, ``data_width`` (bits),
    ``id_width``, 1 or more."""

    def __init__(self, addr_width, data_width, id_width=1):
        super().__init__(_members(axi_write(addr_width, data_width, id_width)))


class Axi4(wiring.Signature):
    """All five channels of AXI4. Parameters as :class:`Axi4Write`."""

    def __init__(self, addr_width, data_width, id_width=1):
        write = axi_write(addr_width, data_width, id_width)
        super().__init__(_members(write | axi_read(addr_width, data_width, id_width)))


class AxiLite(wiring.Signature):
    """AXI4-Lite. Parameters: ``addr_width``, ``data_width`` (bits, 32 or 64)."""

    def __init__(self, addr_width, data_width=REGISTER):
        super().__init__(_members(axi_lite(addr_width, data_width)))


class AxiStream(wiring.Signature):
    """AXI4-Stream without ``tkeep``: whole flits only. Parameters: ``data_width``; ``dest_width``,
    bits of ``tdest``, 0: none."""

    def __init__(self, data_width, dest_width=0):
        table = axi_stream(data_width, dest_width)
        # ``tready`` behind what is driven with it: the order of the assignments in the Verilog.
        order = ("tdata", "tvalid", "tlast", "tready", "tdest")
        super().__init__(_members({name: table[name] for name in order if name in table}))


class SpillSignature(wiring.Signature):
    """What the spill engine drives: single 64-bit words, byte addresses that are multiples of 8.

    ``aw``/``w``: streams of addresses and of data, in the same order, neither waits for the other.
    ``b``: stream of AXI ``resp``, one per write, in order. ``ar``: stream of addresses; ``r``:
    stream {data, resp}, in order.
    """

    def __init__(self):
        super().__init__(
            {
                "aw": Out(stream.Signature(ADDR)),
                "w": Out(stream.Signature(WORD)),
                "b": In(stream.Signature(AXI_RESP)),
                "ar": Out(stream.Signature(ADDR)),
                "r": In(stream.Signature(data.StructLayout({"data": WORD, "resp": AXI_RESP}))),
            }
        )


def flat_members(prefix, signature):
    """Members ``<prefix>_<name>`` for a component's port list, one per member of ``signature``,
    same directions."""
    return {f"{prefix}_{name}": member for name, member in signature.members.items()}


def connect_flat(m, component, prefix, port):
    """Joins the flat ports ``<prefix>_<name>`` of ``component`` (its own, seen from inside) with an
    inner ``port``."""
    for name, member in port.signature.members.items():
        outer, inner = getattr(component, f"{prefix}_{name}"), getattr(port, name)
        m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
