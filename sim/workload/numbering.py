# SPDX-License-Identifier: Apache-2.0
"""How a producer numbers its rows, and how evenly they use the lanes of its links.

A RowID has to be unique in its region, and it decides two things more: smaller ones leave first,
and the row travels on lane (RowID + handle) mod lanes (``packets.lane_of``, mode ROTATE). Software
is free in its choice, so an even use of the lanes costs no hardware. Ranks number in ranges of
their own, as long as they have tokens: no rank needs to ask another one.

Source: design section 3, "Lanes".
"""

import numpy as np

from hub_rtl.contract.fields import LANE_KEY

__all__ = ["NUMBERINGS", "lane_use"]


def by_token(experts, first):
    """The token's number over all ranks. Nothing to count; the lanes of a token's rows are those of
    its experts' numbers."""
    return np.broadcast_to(first + np.arange(len(experts))[:, None], experts.shape)


def by_place(experts, first):
    """The row's place among the rank's rows for the same expert: each expert's rows go round the
    lanes, one after the other.

    The count per expert is one that a dispatch has anyway, of its own tokens only.
    """
    flat = experts.ravel()
    order = np.argsort(flat, kind="stable")
    place = np.empty(flat.size, dtype=np.int64)
    place[order] = np.arange(flat.size) - np.searchsorted(flat[order], flat[order])
    return first + place.reshape(experts.shape)


#: Name: function of a rank's experts [tokens, k] and its first token's number over all ranks; gives
#: RowIDs [tokens, k].
NUMBERINGS = {"token": by_token, "place": by_place}


def lane_use(routing, ranks, lanes, numbering):
    """Share of its link that each rank can use until its fullest lane has sent all: an array
    [ranks], 0..1.

    Rows of one length, of tokens dealt out in equal runs, to experts dealt out in equal runs; rows
    to the own rank do not count, a rank without any other has 1. Raises KeyError for an unknown
    numbering.
    """
    local = -(-routing.num_experts // ranks)
    starts = np.arange(ranks + 1) * routing.tokens // ranks
    out = np.ones(ranks)
    for rank in range(ranks):
        experts = routing.experts[starts[rank] : starts[rank + 1]].astype(np.int64)
        lane = (NUMBERINGS[numbering](experts, starts[rank]) + experts) % (1 << LANE_KEY) % lanes
        loads = np.bincount(lane[experts // local != rank], minlength=lanes)
        if loads.any():
            out[rank] = loads.mean() / loads.max()
    return out
