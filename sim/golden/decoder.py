# SPDX-License-Identifier: Apache-2.0
"""Golden model of the decoder: one store, one table, one answer."""

from dataclasses import dataclass, field

from hub_rtl.contract import packets
from hub_rtl.contract.packets import Reason

__all__ = ["DecoderModel", "Outcome", "entry_usable", "epoch_reason"]


@dataclass
class Outcome:
    """What becomes of a store. ``resolved`` is None when nothing is handed over; ``own``: it goes
    to the loop lane."""

    status: Reason
    resolved: dict | None = None
    own: bool = False
    refused: dict | None = None


def entry_usable(cfg, entry):
    """An entry that stores may use: everything it names exists."""
    if not entry.get("valid") or 1 << entry["log2_replicas"] > cfg.replicas:
        return False
    if entry["row_bytes"] % 16 or entry["row_bytes"] > cfg.max_row_bytes:
        return False
    used = entry["replica"][: 1 << entry["log2_replicas"]]
    return all(one["rank"] < cfg.ranks and one["region"] < cfg.regions for one in used)


def epoch_reason(epoch, entry, hold):
    """How an epoch relates to that of an entry. ``hold``: the entry's own epoch may not begin
    yet."""
    if epoch == entry["epoch"]:
        return Reason.EPOCH_EARLY if hold else Reason.OK
    if epoch == (entry["epoch"] - 1) % 16 and entry["closed"]:
        return Reason.AFTER_CLOSE
    return (
        Reason.EPOCH_EARLY if (epoch - entry["epoch"]) % 16 in range(1, 8) else Reason.EPOCH_STALE
    )


@dataclass
class DecoderModel:
    """One lane's decoder. ``entries``: {handle: (entry, hold)}; ``dead``: set of ranks in state
    DRAIN."""

    cfg: object
    rank: int
    lane: int
    entries: dict = field(default_factory=dict)
    dead: frozenset = frozenset()

    def write(self, index, entry, hold=0):
        if index < self.cfg.handles:
            self.entries = {
                **self.entries,
                index: (entry, hold),
            }  # a new dictionary: outcomes of older tables stay valid

    def state(self):
        """All that decides about a store, to be given to :meth:`decode` later."""
        return self.entries, self.dead

    def decode(self, store, state=None):
        """The :class:`Outcome` of a store (fields as in the type ``store``)."""
        entries, dead = state if state is not None else self.state()
        operand = store["operand"]
        if packets.unpack(packets.OPERAND_ROW, operand)["plain"]:
            return self._plain(store, packets.unpack(packets.OPERAND_PLAIN, operand), dead)
        return self._row(store, packets.unpack(packets.OPERAND_ROW, operand), entries, dead)

    def _plain(self, store, plain, dead):
        cfg, rank = self.cfg, plain["rank"]
        if rank >= cfg.ranks:
            status = Reason.UNKNOWN
        elif packets.lane_of(store["operand"], cfg.lanes, cfg.packet_bytes) != self.lane:
            status = Reason.BAD_LANE
        elif rank in dead:
            status = Reason.PEER_DEAD
        else:
            status = Reason.OK
        if status != Reason.OK:
            return Outcome(
                status,
                refused={
                    "handle": 0,
                    "rowid": 0,
                    "plain": 1,
                    "rank": rank,
                    "reason": int(status),
                    "owner": store["owner"],
                    "epoch": 0,
                },
            )
        block, rest = divmod(plain["addr"], cfg.packet_bytes)
        return self._good(
            store,
            rank,
            plain=1,
            block=block,
            part=rest // cfg.slice_bytes,
            full=cfg.packet_bytes,
            region=0,
            epoch=0,
            rowid=0,
            dest=0,
        )

    def _row(self, store, row, entries, dead):
        cfg = self.cfg
        entry, hold = entries.get(row["handle"], ({}, 0))
        first = 16 * row["row_off"] // cfg.slice_bytes * cfg.slice_bytes
        number, replica = 0, {"rank": None}
        if not entry_usable(cfg, entry):
            status = Reason.UNKNOWN
        else:
            number = packets.replica_of(row["rowid"], 1 << entry["log2_replicas"])
            replica = entry["replica"][number]
            lane = packets.lane_of(
                store["operand"], cfg.lanes, cfg.packet_bytes, entry["lane_mode"], entry["lane"]
            )
            epoch = epoch_reason(row["epoch"], entry, hold)
            if entry["owner"] != store["owner"]:
                status = Reason.FOREIGN
            elif epoch != Reason.OK:
                status = epoch
            elif lane != self.lane:
                status = Reason.BAD_LANE
            elif first + store["mask"].bit_length() > entry["row_bytes"] and store["mask"]:
                status = Reason.ROW_OVERRUN
            elif replica["rank"] in dead:
                status = Reason.PEER_DEAD
            else:
                status = Reason.OK
        if status != Reason.OK:
            return Outcome(
                status,
                refused={
                    "handle": row["handle"],
                    "rowid": row["rowid"],
                    "plain": 0,
                    "rank": replica["rank"],
                    "reason": int(status),
                    "owner": store["owner"],
                    "epoch": row["epoch"],
                },
            )
        block, rest = divmod(first, cfg.packet_bytes)
        return self._good(
            store,
            replica["rank"],
            plain=0,
            block=block,
            part=rest // cfg.slice_bytes,
            region=replica["region"],
            epoch=row["epoch"],
            rowid=row["rowid"],
            dest=row["handle"] * cfg.replicas + number,
            full=min(cfg.packet_bytes, entry["row_bytes"] - block * cfg.packet_bytes),
        )

    def _good(self, store, rank, **fields):
        if not store["mask"]:
            return Outcome(Reason.OK)
        resolved = {
            "rank": rank,
            "cls": store["cls"],
            "data": store["data"],
            "mask": store["mask"],
            **fields,
        }
        return Outcome(Reason.OK, resolved, rank == self.rank)
