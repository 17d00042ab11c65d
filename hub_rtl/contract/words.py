# SPDX-License-Identifier: Apache-2.0
"""Every enumeration and every word that software meets, in one table: what the C header, the JSON
sidecar, SystemRDL, the comments of the Verilog and the pages say of them comes from here.

Plain Python (no Amaranth).
"""

from dataclasses import dataclass

from .fields import WORD
from .packets import (
    NEWS_ENTRY,
    OPERAND_PLAIN,
    OPERAND_ROW,
    SPILL_WORD,
    CommandOp,
    EventKind,
    LaneMode,
    OrderError,
    PacketType,
    Reason,
    RegionOp,
    RegionState,
)

__all__ = ["ENUMERATIONS", "PORTS", "STRUCTURES", "Structure", "enumeration_of", "values_text"]


@dataclass(frozen=True)
class Structure:
    """A word of ``bits`` bits in memory or at a port. ``fields``: {name: (lowest bit, width)}."""

    text: str
    fields: dict
    bits: int = WORD


#: By the name that they have in generated files.
ENUMERATIONS = {
    "event_kind": EventKind,
    "reason": Reason,
    "command": CommandOp,
    "region_order": RegionOp,
    "order_error": OrderError,
    "region_state": RegionState,
    "lane_mode": LaneMode,
    "packet_type": PacketType,
}

STRUCTURES = {
    "operand_row": Structure("Operand of a row-sparse store; plain is 0", OPERAND_ROW),
    "operand_plain": Structure("Operand of a plain store; plain is 1", OPERAND_PLAIN),
    "spill_word": Structure("A spilled row, in the spill table in memory", SPILL_WORD),
    "news_entry": Structure("What a producer says of a region and epoch, in a packet", NEWS_ENTRY),
}


#: Ports of the hub whose values are of an enumeration.
PORTS = {"m_event_kind": EventKind, "s_command_op": CommandOp}


def enumeration_of(values):
    """The name of an enumeration of the table."""
    return next(name for name, each in ENUMERATIONS.items() if each is values)


def values_text(values):
    """``0 READY, 1 ALL, 2 ERROR``."""
    return ", ".join(f"{int(each)} {each.name}" for each in values)
