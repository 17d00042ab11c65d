"""The decoder entry as it is broadcast and checked: shared by the decoders and by the owner of the master copy."""

from amaranth import Const, Mux
from amaranth.lib import data

from ..formats import Reason
from ..types import types_of

__all__ = ["check_epoch", "entry_known", "handle_broadcast", "store_refusal"]


def handle_broadcast(cfg):
    """Layout of the broadcast write of one decoder entry: {en, index, handle, hold}.

    ``hold``: a close of the epoch that used the same bank before is not sent yet. Stores of the entry's epoch are
    EPOCH_EARLY as long as it is set, else their bytes would be counted into that close.
    """
    return data.StructLayout({"en": 1, "index": cfg.handle_width, "handle": types_of(cfg).handle, "hold": 1})


def store_refusal(cfg):
    """Layout of a decoder's one-cycle report of a refused store: {en, handle, rowid, plain, rank, reason, owner, epoch}.

    ``handle`` and ``rank`` are as wide as the operand's fields, so that numbers out of range are shown as they came.
    """
    return data.StructLayout({"en": 1, "handle": 11, "rowid": 24, "plain": 1, "rank": 7, "reason": 4, "owner": 4, "epoch": 4})


def entry_known(cfg, handle):
    """1 when an entry may be used: valid, ranks and regions of its replicas in range, replicas and row length possible."""
    ok = handle.valid & (handle.row_bytes <= cfg.max_row_bytes) & (handle.row_bytes[:4] == 0)
    ok &= (handle.log2_replicas <= cfg.replicas.bit_length() - 1)
    for n in range(cfg.replicas):
        needed = (Const(1, 3) << handle.log2_replicas) > n
        ok &= ~needed | ((handle.replica[n].rank < cfg.ranks) & (handle.replica[n].region < cfg.regions))
    return ok


def check_epoch(epoch, handle, hold):
    """Reason of an operand's epoch against an entry: OK, AFTER_CLOSE, EPOCH_EARLY or EPOCH_STALE."""
    ahead = (epoch - handle.epoch)[:4]
    return Mux(ahead == 0, Mux(hold, Reason.EPOCH_EARLY, Reason.OK),
               Mux((ahead == 15) & handle.closed, Reason.AFTER_CLOSE,
                   Mux(ahead[3], Reason.EPOCH_STALE, Reason.EPOCH_EARLY)))
