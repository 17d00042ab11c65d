# SPDX-License-Identifier: Apache-2.0
"""Records inside a link lane."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.fields import CREDIT, FLIT
from hub_rtl.contract.records import types_of

__all__ = ["LinkTypes", "MESSAGES", "link_types_of"]

#: What slices tell each other in CREDIT flits, and the records of it.
MESSAGES = {"granted": "grant", "returned": "returned", "asked": "ask", "answered": "answer"}


class LinkTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, rank = data.StructLayout, cfg.rank_width
        #: Control buffers that a peer has freed since reset, as it says.
        self.total = struct({"en": 1, "rank": rank, "total": CREDIT})
        types = types_of(cfg)
        #: A message, strobe and record, by its name.
        self.messages = {
            name: struct({"en": 1, "what": getattr(types, what)}) for name, what in MESSAGES.items()
        }
        #: A flit from the wire, as it came; as it leaves for the wire.
        self.arrived = struct({"valid": 1, "data": FLIT, "last": 1})
        self.chosen = struct({"data": FLIT, "first": 1, "last": 1})
        self.wire = struct({"data": FLIT, "last": 1, "dest": rank})
        #: What is known of a header one stage later: its kind, whether it may be taken.
        judged = ("begins", "off_sequence", "bad", "bad_lane", "data", "control", "credit")
        self.checked = struct(dict.fromkeys(judged, 1))


@cache
def link_types_of(cfg):
    """The :class:`LinkTypes` of a configuration."""
    return LinkTypes(cfg)
