# SPDX-License-Identifier: Apache-2.0
"""Golden model of fence, close and the decoder entries' master copy: what a command may answer and
which messages follow."""

from dataclasses import dataclass, field

from hub_rtl.contract.packets import (
    NEWS_ENTRIES,
    NEWS_ENTRY,
    Reason,
    pack,
    unpack,
)

from .decoder import entry_usable, epoch_reason

__all__ = ["ProducerModel", "news_of"]


def news_of(cfg, beats, rank):
    """The entries of a NEWS packet to a rank, as its sender gives its record to a link. Raises
    AssertionError when it is not one."""
    head, mask = beats[0]["header"], beats[0]["mask"]
    count, size = mask.bit_count() // 8, cfg.slice_bytes
    assert head == dict.fromkeys(head, 0) | {"news": 1, "rank": rank}, f"header {head}"
    assert 1 <= count <= NEWS_ENTRIES and mask == (1 << 8 * count) - 1, f"mask {mask:#x}"
    word = 0
    for part, beat in enumerate(beats):
        last = int((part + 1) * size >= 8 * count)
        assert beat == beats[0] | {"part": part, "last": last, "data": beat["data"]}, f"beat {beat}"
        word |= beat["data"] << 8 * size * part
    words = [word >> 64 * n & (1 << 64) - 1 for n in range(len(beats) * size // 8)]
    entries = [unpack(NEWS_ENTRY, word) for word in words[:count]]
    packed = [pack(NEWS_ENTRY, **entry) for entry in entries]
    rest = [0] * (len(words) - count)
    assert words == packed + rest, "bits outside the fields of the entries"
    return entries


@dataclass
class Told:
    """What one destination has told in the epoch of its entry, and what has left."""

    promise: int | None = None  # bytes; None: nothing is told
    rest: bool = False  # told 0 as one of the rest
    sent: int = 0  # bytes that have left
    spent: bool = False  # told, and all that was told had left once


@dataclass
class ProducerModel:
    """Entries, what their replicas have told, and the news that are not yet sent.

    ``told``: {dest: :class:`Told`} of the entries' epochs; ``unsent``: {(handle, bank): closes to
    go}; ``due``: {rank: [close, ...]}, ``tells``: {rank: [entry, ...]} in the order of sending; a
    close is {dest, region, epoch, told, abort}.
    """

    cfg: object
    entries: dict = field(default_factory=dict)
    told: dict = field(default_factory=dict)
    unsent: dict = field(default_factory=dict)
    due: dict = field(default_factory=dict)
    tells: dict = field(default_factory=dict)

    def write(self, index, entry):
        """Software writes an entry; what is told and closes that are not sent yet stay."""
        if index < self.cfg.handles:
            self.entries[index] = dict(entry)

    def held(self, index):
        """The entry's own epoch may not begin: its bank still has closes to be sent."""
        return bool(self.unsent.get((index, self.entries[index]["epoch"] & 1)))

    def refusal(self, index, epoch, owner, replica=None):
        """Reason with which a close of one handle, or a tell of one replica, is answered; OK if it
        is accepted."""
        entry = self.entries.get(index, {})
        if not entry_usable(self.cfg, entry) or (replica or 0) >= 1 << entry["log2_replicas"]:
            return Reason.UNKNOWN
        if entry["owner"] != owner:
            return Reason.FOREIGN
        reason = epoch_reason(epoch, entry, self.held(index))
        if (
            reason == Reason.OK
            and replica is not None
            and self._of(index, replica).promise is not None
        ):
            return Reason.AFTER_CLOSE
        return reason

    def _of(self, index, replica):
        return self.told.setdefault(index * self.cfg.replicas + replica, Told())

    def _replicas(self, index):
        return [self._of(index, n) for n in range(1 << self.entries[index]["log2_replicas"])]

    def announce(self, index, replica, size):
        """Promises bytes to one replica."""
        entry, told = self.entries[index], self._of(index, replica)
        target = entry["replica"][replica]
        told.promise = size
        told.spent = told.sent >= size
        self.tells.setdefault(target["rank"], []).append(
            {"region": target["region"], "epoch": entry["epoch"], "bytes": size}
        )

    def announce_rest(self, index):
        """Promises 0 to every replica of a handle that has told nothing."""
        for told in self._replicas(index):
            if told.promise is None:
                told.promise, told.rest, told.spent = 0, True, True

    def leave(self, dest, epoch, size):
        """Bytes have left for a destination; those of an older epoch are in its close."""
        entry = self.entries[dest // self.cfg.replicas]
        if entry["epoch"] == epoch:
            told = self._of(*divmod(dest, self.cfg.replicas))
            told.sent += size
            told.spent |= told.promise is not None and told.sent >= told.promise

    def closes_itself(self, index):
        """Every replica is told, and what was told has left, once for each; none is held."""
        usable = entry_usable(self.cfg, self.entries.get(index, {})) and not self.held(index)
        return usable and all(told.spent for told in self._replicas(index))

    def close(self, index, abort=False):
        """The close of the entry's epoch, by a command or by itself."""
        entry = self.entries[index]
        epoch, count = entry["epoch"], 1 << entry["log2_replicas"]
        told = self._replicas(index)
        for number in range(count):
            self.told.pop(index * self.cfg.replicas + number)
        entry.update(epoch=(epoch + 1) % 16, closed=1)
        self.unsent[index, epoch & 1] = count
        for number, replica in enumerate(entry["replica"][:count]):
            self.due.setdefault(replica["rank"], []).append(
                {
                    "dest": index * self.cfg.replicas + number,
                    "region": replica["region"],
                    "epoch": epoch,
                    "told": told[number],
                    "abort": abort,
                }
            )

    def members(self, epoch, owner):
        """Handles that CLOSE_ALL and ANNOUNCE_ALL mean, held ones too."""
        return [
            index
            for index, entry in self.entries.items()
            if entry_usable(self.cfg, entry) and entry["owner"] == owner and entry["epoch"] == epoch
        ]

    def bank_read(self, dest, bank):
        """The word of a close was taken: one entry less to go."""
        key = dest // self.cfg.replicas, bank
        assert self.unsent.get(key), (
            f"word of dest {dest}, bank {bank} read, but no close of it is pending"
        )
        self.unsent[key] -= 1

    def sent(self, rank):
        """The close that must be the next one for this rank (sent or dropped)."""
        assert self.due.get(rank), f"a close for rank {rank}, but none is due"
        return self.due[rank].pop(0)

    @staticmethod
    def entry(close, size):
        """The entry of a close whose epoch has sent ``size`` bytes: it tells if nothing was told,
        or if that goes with the close, and says whether the promise was kept."""
        told = close["told"]
        known, tells = told.promise is not None, told.promise is None or told.rest
        amount = 0 if known else size
        return {
            "region": close["region"],
            "tell": int(tells),
            "close": 1,
            "abort": int(bool(close["abort"])),
            "short": int(known and size < told.promise),
            "over": int(known and size > told.promise),
            "ragged": int(amount % 16 > 0),
            "epoch": close["epoch"],
            "bytes16": amount // 16,
        }
