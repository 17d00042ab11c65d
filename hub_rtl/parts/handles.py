# SPDX-License-Identifier: Apache-2.0
"""Checks of a decoder entry, the same in the decoders and in the owner of the master copy."""

from amaranth import Const, Mux

from hub_rtl.contract.fields import EPOCH, UNIT
from hub_rtl.contract.packets import Reason

__all__ = ["check_epoch", "entry_known"]


def entry_known(cfg, handle):
    """1 when an entry may be used: valid, ranks and regions of its replicas in range, replicas and
    row length possible."""
    ok = handle.valid & (handle.row_bytes <= cfg.max_row_bytes) & (handle.row_bytes[:UNIT] == 0)
    ok &= handle.log2_replicas <= cfg.replicas.bit_length() - 1
    for n in range(cfg.replicas):
        needed = (Const(1, 3) << handle.log2_replicas) > n
        ok &= ~needed | (
            (handle.replica[n].rank < cfg.ranks) & (handle.replica[n].region < cfg.regions)
        )
    return ok


def check_epoch(epoch, handle, hold):
    """Reason of an operand's epoch against an entry: OK, AFTER_CLOSE, EPOCH_EARLY or
    EPOCH_STALE."""
    ahead = (epoch - handle.epoch)[:EPOCH]
    return Mux(
        ahead == 0,
        Mux(hold, Reason.EPOCH_EARLY, Reason.OK),
        Mux(
            (ahead == (1 << EPOCH) - 1) & handle.closed,
            Reason.AFTER_CLOSE,
            Mux(ahead[-1], Reason.EPOCH_STALE, Reason.EPOCH_EARLY),
        ),
    )
