# SPDX-License-Identifier: Apache-2.0
"""Golden model of fence, close and the decoder entries' master copy: what a command may answer and
which messages follow."""

from dataclasses import dataclass, field

from hub_rtl.contract.packets import (
    BODIES,
    HEADER,
    NEWS_ENTRIES,
    NEWS_ENTRY,
    PacketType,
    Reason,
    pack,
    unpack,
)

from .decoder import entry_usable, epoch_reason

__all__ = ["ProducerModel", "news_of"]


def news_of(flits, rank):
    """The entries of a NEWS packet to a rank, as its sender gives it to a link. Raises
    AssertionError when it is not one."""
    head, *body = flits
    count = unpack(BODIES[PacketType.NEWS], head)["count"]
    wanted = pack(HEADER, type=PacketType.NEWS, dst=rank, len=len(body))
    assert head == wanted | pack(BODIES[PacketType.NEWS], count=count), f"header {head:#x}"
    assert 1 <= count <= NEWS_ENTRIES and len(body) == -(-count // 2), (
        f"{count} entries in {len(body)} flits"
    )
    words = [flit >> 64 * half & (1 << 64) - 1 for flit in body for half in (0, 1)]
    entries = [unpack(NEWS_ENTRY, word) for word in words[:count]]
    packed = [pack(NEWS_ENTRY, **entry) for entry in entries]
    assert words == packed + [0] * (count % 2), "bits outside the fields of the entries"
    return entries


@dataclass
class ProducerModel:
    """Entries, and the closes that are accepted and not yet sent.

    ``unsent``: {(handle, bank): messages to go}; ``due``: {rank: [(dest, region, epoch), ...]} in
    the order of sending.
    """

    cfg: object
    entries: dict = field(default_factory=dict)
    unsent: dict = field(default_factory=dict)
    due: dict = field(default_factory=dict)

    def write(self, index, entry):
        """Software writes an entry; closes that are not sent yet stay."""
        if index < self.cfg.handles:
            self.entries[index] = dict(entry)

    def held(self, index):
        """The entry's own epoch may not begin: its bank still has closes to be sent."""
        return bool(self.unsent.get((index, self.entries[index]["epoch"] & 1)))

    def refusal(self, index, epoch, owner):
        """Reason with which a close of one handle is answered; OK if it is accepted."""
        entry = self.entries.get(index, {})
        if not entry_usable(self.cfg, entry):
            return Reason.UNKNOWN
        if entry["owner"] != owner:
            return Reason.FOREIGN
        return epoch_reason(epoch, entry, self.held(index))

    def close(self, index):
        """Accepts the close of the entry's epoch."""
        entry = self.entries[index]
        epoch, count = entry["epoch"], 1 << entry["log2_replicas"]
        entry.update(epoch=(epoch + 1) % 16, closed=1)
        self.unsent[index, epoch & 1] = count
        for number, replica in enumerate(entry["replica"][:count]):
            self.due.setdefault(replica["rank"], []).append(
                (index * self.cfg.replicas + number, replica["region"], epoch)
            )

    def members(self, epoch, owner):
        """Handles that CLOSE_ALL means, held ones too."""
        return [
            index
            for index, entry in self.entries.items()
            if entry_usable(self.cfg, entry) and entry["owner"] == owner and entry["epoch"] == epoch
        ]

    def bank_read(self, dest, bank):
        """The totals of a close were taken: one message less to go."""
        key = dest // self.cfg.replicas, bank
        assert self.unsent.get(key), (
            f"totals of dest {dest}, bank {bank} read, but no close of it is pending"
        )
        self.unsent[key] -= 1

    def sent(self, rank):
        """The message that must be the next one for this rank (sent or dropped)."""
        assert self.due.get(rank), f"a close for rank {rank}, but none is due"
        return self.due[rank].pop(0)
