# SPDX-License-Identifier: Apache-2.0
"""Records inside the producer's control: what its parts pass to each other."""

from functools import cache

from amaranth.lib import data

from hub_rtl.contract.fields import EPOCH, LOG2_REPLICAS, OWNER, REASON
from hub_rtl.contract.records import news_layout, types_of

__all__ = ["ProducerTypes", "producer_types_of"]


class ProducerTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, handle = data.StructLayout, cfg.handle_width
        #: A close of one handle.
        self.close_request = struct({"valid": 1, "index": handle, "epoch": EPOCH, "owner": OWNER})
        #: An accepted close, as the entry was at that moment.
        self.staged_close = struct(
            {
                "index": handle,
                "epoch": EPOCH,
                "log2_replicas": LOG2_REPLICAS,
                "replica": data.ArrayLayout(types_of(cfg).replica, cfg.replicas),
            }
        )
        #: Answer of the handle table to a close. ``held``: EPOCH_EARLY only because of the hold.
        self.result = struct({"valid": 1, "reason": REASON, "held": 1, "staged": self.staged_close})
        #: A close of a handle's bank was sent or dropped.
        self.unpend = struct({"valid": 1, "index": handle, "bank": 1})
        #: An entry for the packet that is being packed, or the end of that packet.
        self.news_put = struct({"en": 1, "end": 1, "rank": cfg.rank_width, "entry": news_layout()})
        #: Reads a total of the send ledger; with ``clear`` it is 0 afterwards.
        self.ledger_read = struct({"en": 1, "dest": cfg.dest_width, "bank": 1, "clear": 1})


@cache
def producer_types_of(cfg):
    """The :class:`ProducerTypes` of a configuration."""
    return ProducerTypes(cfg)
