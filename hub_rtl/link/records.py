# SPDX-License-Identifier: Apache-2.0
"""Records inside a link lane."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.fields import CREDIT, FLIT

__all__ = ["LinkTypes", "link_types_of"]


class LinkTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, rank = data.StructLayout, cfg.rank_width
        #: Control buffers that a peer has freed since reset, as it says.
        self.total = struct({"en": 1, "rank": rank, "total": CREDIT})
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
