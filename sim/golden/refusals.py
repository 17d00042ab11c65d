# SPDX-License-Identifier: Apache-2.0
"""Golden models of the REJECT sender and of the refusal log."""

from dataclasses import dataclass, field

from hub_rtl.contract.packets import BODIES, HEADER, PacketType, pack, unpack

__all__ = ["LogModel", "RejectModel", "reject_flit"]

FIELDS = ("reason", "side", "remote", "plain", "owner", "epoch", "number", "rowid", "rank")
REJECT = {**HEADER, **BODIES[PacketType.REJECT]}
ROW = {**HEADER, **BODIES[PacketType.ROW]}


def reject_flit(refusal):
    """The REJECT header of a refusal."""
    return pack(
        {key: value for key, value in REJECT.items() if key != "body"},
        type=PacketType.REJECT,
        dst=refusal["src"],
        **{key: refusal[key] for key in ("region", "epoch", "rowid", "reason")},
    )


@dataclass
class RejectModel:
    """Messages that are owed: each is sent once, or counted as dropped because the queue was full
    or its rank is dead."""

    cfg: object
    owed: list = field(default_factory=list)

    def refused(self, refusal):
        if refusal["report"]:
            self.owed.append(refusal)

    def sent(self, flit):
        """The refusal that a message belongs to: the oldest equal one."""
        for n, refusal in enumerate(self.owed):
            if reject_flit(refusal) == flit:
                return self.owed.pop(n)
        raise AssertionError(f"a REJECT that nobody owes: {unpack(REJECT, flit)}")

    def dropped_full(self, refusal, before):
        """The queue had no place for this refusal: then at least as many as it holds were owed
        ``before`` it."""
        assert before >= self.cfg.reject_depth, f"dropped with {before} messages waiting"
        self.owed = [one for one in self.owed if one is not refusal]


@dataclass
class LogModel:
    """What a log must hold: per source the entries in order; together the oldest ones."""

    cfg: object
    sources: dict = field(default_factory=dict)

    def _add(self, source, **fields):
        self.sources.setdefault(source, []).append({**dict.fromkeys(FIELDS, 0), **fields})

    def store(self, lane, pulse):
        self._add(
            ("store", lane),
            side=1,
            number=pulse["handle"],
            **{key: pulse[key] for key in ("reason", "plain", "owner", "epoch", "rowid", "rank")},
        )

    def refusal(self, refusal):
        if refusal["report"]:
            self._add(
                ("refusal",),
                number=refusal["region"],
                rank=refusal["src"],
                **{key: refusal[key] for key in ("reason", "plain", "epoch", "rowid")},
            )

    def reject(self, flit):
        header = unpack(REJECT, flit)
        self._add(
            ("reject",),
            remote=1,
            number=header["region"],
            rank=header["src"],
            **{key: header[key] for key in ("reason", "epoch", "rowid")},
        )

    def bad(self, lane, flit, reason):
        header = unpack(ROW, flit)
        self._add(
            ("bad", lane),
            side=1,
            remote=1,
            reason=reason,
            plain=int(header["type"] == PacketType.PLAIN),
            number=header["region"],
            rank=header["src"],
            **{key: header[key] for key in ("epoch", "rowid")},
        )

    @property
    def total(self):
        return sum(map(len, self.sources.values()))

    def check(self, entries, lost, overflow=False):
        """``entries`` as read from the log. With ``overflow`` sources may have lost entries before
        the log was full."""
        assert len(entries) + lost == self.total, (
            f"{len(entries)} kept, {lost} lost of {self.total}"
        )
        if not overflow:
            assert len(entries) == min(self.total, self.cfg.log_depth)
        left = {source: list(wanted) for source, wanted in self.sources.items()}
        for n, entry in enumerate(entries):
            for wanted in left.values():
                if overflow and entry in wanted:
                    del wanted[: wanted.index(entry) + 1]
                    break
                if wanted and wanted[0] == entry:
                    del wanted[0]
                    break
            else:
                raise AssertionError(f"entry {n} was not reported, or not in this order: {entry}")
