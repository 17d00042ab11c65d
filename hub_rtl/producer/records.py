# SPDX-License-Identifier: Apache-2.0
"""Records inside the producer's control: what its parts pass to each other."""

from functools import cache

from amaranth import signed
from amaranth.lib import data

from hub_rtl.contract.fields import EPOCH, LOG2_REPLICAS, OWNER, REASON, REPLICA, SENT16
from hub_rtl.contract.records import news_layout, types_of

__all__ = ["SUM", "ProducerTypes", "producer_types_of"]

SUM = 16  # bytes of a slice's packets that wait together: half of it, and those on their way


class ProducerTypes:
    """Layouts of one configuration."""

    def __init__(self, cfg):
        struct, handle = data.StructLayout, cfg.handle_width
        #: What a command asks of one handle. ``tell``: one replica is told; ``tell_rest``: those
        #: that were not told are told 0; neither: a close, ``abort`` belongs to it.
        self.ask = struct(
            {
                "valid": 1,
                "tell": 1,
                "tell_rest": 1,
                "index": handle,
                "epoch": EPOCH,
                "owner": OWNER,
                "replica": REPLICA,
                "abort": 1,
            }
        )
        #: The same of an ANNOUNCE.
        self.tell_ask = struct(
            {"valid": 1, "index": handle, "epoch": EPOCH, "owner": OWNER, "replica": REPLICA}
        )
        #: Answer of the handle table. ``held``: EPOCH_EARLY only because of the hold. ``wait``: the
        #: tell before is not sent yet, ask again. ``target``: the replica that is told.
        self.result = struct(
            {"valid": 1, "reason": REASON, "held": 1, "wait": 1, "target": types_of(cfg).replica}
        )
        #: A close of a handle, as the entry was at that moment. ``zero``: replicas that
        #: ``tell_rest`` told 0.
        self.staged_close = struct(
            {
                "index": handle,
                "epoch": EPOCH,
                "log2_replicas": LOG2_REPLICAS,
                "replica": data.ArrayLayout(types_of(cfg).replica, cfg.replicas),
                "abort": 1,
                "zero": cfg.replicas,
            }
        )
        self.closed = struct({"valid": 1, "close": self.staged_close})
        #: An accepted tell.
        self.tell = struct(
            {
                "dest": cfg.dest_width,
                "target": types_of(cfg).replica,
                "epoch": EPOCH,
                "bytes16": SENT16,
            }
        )
        #: A tell (``tell``) of a destination, or a close of it in a bank, was sent or dropped.
        self.unpend = struct({"valid": 1, "tell": 1, "dest": cfg.dest_width, "bank": 1})
        #: A tell or close that is listed, and one that leaves its list; of a tell ``bank``,
        #: ``abort`` and ``zero`` are 0.
        self.news_body = struct({"region": cfg.region_width, "epoch": EPOCH, "abort": 1, "zero": 1})
        self.popped = struct({"en": 1, "bank": 1, "dest": cfg.dest_width, "body": self.news_body})
        #: A close is listed: older stores of its handle are marked.
        self.close_mark = struct({"en": 1, "handle": handle})
        #: An entry for the packet that is being packed, or the end of that packet.
        self.news_put = struct({"en": 1, "end": 1, "rank": cfg.rank_width, "entry": news_layout()})
        #: Bytes of one or more packets of a (dest, bank), on their way to the ledger.
        self.sent_sum = struct({"dest": cfg.dest_width, "bank": 1, "bytes": SUM})
        #: Reads and clears a word of the send ledger.
        self.ledger_read = struct({"en": 1, "dest": cfg.dest_width, "bank": 1})
        #: Promises 16 * ``bytes16`` bytes to a destination; ``turn``: bit 1 of the epoch.
        self.ledger_announce = struct(
            {"dest": cfg.dest_width, "bank": 1, "turn": 1, "bytes16": SENT16}
        )
        #: ``left``: bytes promised less bytes sent; ``told``: something was promised; ``turn``: of
        #: the epoch of the promise.
        self.ledger_word = struct({"told": 1, "turn": 1, "left": signed(cfg.total_width + 1)})
        #: What was promised has left.
        self.spent = struct({"dest": cfg.dest_width, "bank": 1, "turn": 1})
        self.spent_strobe = struct({"en": 1, "spent": self.spent})


@cache
def producer_types_of(cfg):
    """The :class:`ProducerTypes` of a configuration."""
    return ProducerTypes(cfg)
