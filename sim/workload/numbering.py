# SPDX-License-Identifier: Apache-2.0
"""How a producer numbers its rows, and how evenly they use the lanes of its links.

A RowID has to be unique in its region, and it decides two things more: smaller ones leave first,
and the row travels on lane (RowID + handle) mod lanes (``packets.lane_of``, mode ROTATE). Software
is free in its choice, so an even use of the lanes costs no hardware. Ranks number in ranges of
their own: no rank needs to ask another one.

Source: design section 3, "Lanes".
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hub_rtl.contract.fields import LANE_KEY

__all__ = ["NUMBERINGS", "Numbering", "lane_use"]


def _by_token(experts, first, lanes, own):
    """The token's number over all ranks. Nothing to count; the lanes of a token's rows are those of
    its experts' numbers."""
    return np.broadcast_to(first + np.arange(len(experts))[:, None], experts.shape)


def _by_place(experts, first, lanes, own):
    """The row's place among the rank's rows for the same expert: each expert's rows go round the
    lanes, one after the other.

    The count per expert is one that a dispatch has anyway, of its own tokens only.
    """
    flat = experts.ravel()
    order = np.argsort(flat, kind="stable")
    place = np.empty(flat.size, dtype=np.int64)
    place[order] = np.arange(flat.size) - np.searchsorted(flat[order], flat[order])
    return first + place.reshape(experts.shape)


def _by_turn(experts, first, lanes, own):
    """The rank's rows go round the lanes, whomever they are for; those to the own rank, which share
    no lane with the others, by themselves.

    Counts rows per lane, and per expert and lane the RowIDs that are taken. A range has as many
    turns of the lanes as its tokens fill: of the lanes that an expert has not taken all of, the one
    with the fewest rows has the next row.
    """
    turns, taken = -(-len(experts) // lanes), Counter()
    loads, out = ([0] * lanes, [0] * lanes), np.empty_like(experts)
    for at, expert in np.ndenumerate(experts):
        load = loads[int(own[at])]
        free = (lane for lane in range(lanes) if taken[expert, lane] < turns)
        lane = min(free, key=load.__getitem__)
        start = first + lanes * taken[expert, lane]
        out[at] = start + (lane - (start + expert) % (1 << LANE_KEY)) % lanes
        taken[expert, lane] += 1
        load[lane] += 1
    return out


@dataclass(frozen=True)
class Numbering:
    """rowids: function of a rank's experts [tokens, k], the first RowID of its range, the lanes of
    a hub, and which of the rows are for the own rank [tokens, k]; gives RowIDs [tokens, k]. whole:
    the range ends with a turn of all lanes; else it is as long as the rank has tokens."""

    rowids: Callable
    whole: bool = False

    def starts(self, tokens, lanes):
        """First RowID of each rank that has so many ``tokens``, and the end of the last range."""
        lengths = -(-np.asarray(tokens) // lanes) * lanes if self.whole else tokens
        return np.concatenate([[0], np.cumsum(lengths)])


NUMBERINGS = {
    "token": Numbering(_by_token),
    "place": Numbering(_by_place),
    "turn": Numbering(_by_turn, whole=True),
}


def lane_use(routing, ranks, lanes, numbering):
    """Share of its link that each rank can use until its fullest lane has sent all: an array
    [ranks], 0..1.

    Rows of one length, of tokens dealt out in equal runs, to experts dealt out in equal runs; rows
    to the own rank do not count, a rank without any other has 1. Raises KeyError for an unknown
    numbering.
    """
    local, rows = -(-routing.num_experts // ranks), NUMBERINGS[numbering]
    starts = np.arange(ranks + 1) * routing.tokens // ranks
    firsts = rows.starts(np.diff(starts), lanes)
    out = np.ones(ranks)
    for rank in range(ranks):
        experts = routing.experts[starts[rank] : starts[rank + 1]].astype(np.int64)
        own = experts // local == rank
        lane = (rows.rowids(experts, firsts[rank], lanes, own) + experts) % (1 << LANE_KEY) % lanes
        loads = np.bincount(lane[~own], minlength=lanes)
        if loads.any():
            out[rank] = loads.mean() / loads.max()
    return out
