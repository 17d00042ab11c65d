# SPDX-License-Identifier: Apache-2.0
"""Records inside a link lane."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.fields import CLASSES, CREDIT, FLIT

__all__ = ["LinkTypes", "link_types_of"]


class LinkTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, rank = data.StructLayout, cfg.rank_width
        #: Totals of freed buffers, one per credit class.
        self.total = data.ArrayLayout(CREDIT, CLASSES)
        #: Totals that a peer has announced; ``en`` per class.
        self.totals = struct({"en": CLASSES, "src": rank, "total": self.total})
        #: A packet of a peer was accepted; ``en`` per class.
        self.accept = struct({"en": CLASSES, "src": rank})
        #: A flit from the wire, as it came; as it is queued; as it leaves for the wire.
        self.arrived = struct({"valid": 1, "data": FLIT, "last": 1})
        self.queued = struct({"data": FLIT, "last": 1})
        self.chosen = struct({"data": FLIT, "first": 1, "last": 1})
        self.wire = struct({"data": FLIT, "last": 1, "dest": rank})
        #: What is known of a header one stage later: its kind, whether it may be taken, its totals.
        judged = ("begins", "off_sequence", "bad", "bad_lane", "data", "control", "credit")
        self.checked = struct(
            {**dict.fromkeys(judged, 1), "totals_en": CLASSES, "total": self.total}
        )


@cache
def link_types_of(cfg):
    """The :class:`LinkTypes` of a configuration."""
    return LinkTypes(cfg)
