# SPDX-License-Identifier: Apache-2.0
"""How LinkPort tells its peers of freed buffers: what a header carries, which CREDITs are due, late
or needless.

From docs/interfaces.md, section 5, docs/blocks/link.md, "Timing" and "Ordering and stalls", and the
ticks of ReceiveCredits.
"""

from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field

from hub_rtl.contract.packets import BODIES, HEADER, PacketType, unpack
from sim.golden.link import is_message

__all__ = ["ReportWatch"]

# cycles from the last flit out of a buffer until a CREDIT may be due, or the wire shows the total
FREED = 3
TICK = 128  # cycles between ticks: what is unreported at one and at the next is due then
PATIENCE = 64  # cycles that due CREDITs let others go first
PICK = 2  # cycles from a change of what is due until another rank is picked


@dataclass
class _Peer:
    """What one peer is owed. Events are cycles in which a flit left its buffer."""

    events: list = field(default_factory=list)
    told: int = 0
    since: int | None = None  # from then on something was unreported at all times ...
    surely: int | None = (
        None  # ... if totals were filled in at that time which suits it best, or least
    )
    due_since: int | None = None  # from then on a CREDIT was due, for certain
    not_before: int = 0  # after a CREDIT the next one is not picked before

    def freed(self, cycle):
        """Buffers freed up to a cycle."""
        return bisect_right(self.events, cycle)

    def untold(self, cycle):
        return self.freed(cycle) - self.told

    def oldest(self):
        """The first buffer freed that is not told."""
        return self.events[self.told] if self.told < len(self.events) else None


@dataclass
class _Choice:
    """A cycle in which the port could choose what goes next. ``kind``: what it chose, if not a
    CREDIT."""

    cycle: int
    others: bool  # a packet or control flit could go
    free: bool  # nothing else could go, and the wire did not stall
    kind: str | None
    possible: set  # ranks for which a CREDIT may be due
    possible_since: int | None
    certain: dict  # rank: since when one is due for certain
    run: int | None  # since when some are due for certain, without a gap


class ReportWatch:
    """The reports of one port since its reset: ``accepted``, ``freed``, then ``look`` once per
    cycle."""

    def __init__(self, cfg, peers):
        self._peers = {rank: _Peer() for rank in peers}
        self._enough = max(1, cfg.ctl_credits // 4)
        self._under_way = Counter()  # headers in the port, by rank
        self._credits = deque()  # CREDITs in the port: the choices
        self._start = self._last_kind = self._last_choice = None
        self._possible_since = self._run = None
        self._last_header = (None, False)  # rank; it is a CREDIT of the link itself
        self._settled = -PICK  # cycle of the last header other than a CREDIT
        self._served = {}  # rank: (cycle of its last CREDIT's choice, ranks served since)

    def accepted(self, rank):
        """The port takes a header to ``rank``."""
        self._under_way[rank] += 1

    def freed(self, rank, cycle):
        """A flit has left a buffer of ``rank``."""
        assert rank in self._peers, f"a buffer of rank {rank}, which sends nothing, is freed"
        peer = self._peers[rank]
        peer.events.append(cycle)
        peer.since = cycle if peer.since is None else peer.since
        peer.surely = cycle if peer.surely is None else peer.surely

    def look(self, cycle, credit_sent, header, first_fill, others, free, kind):
        """Judges a cycle. ``credit_sent``: a CREDIT was chosen in the one before; ``header``: one
        is on the wire for the first time, its totals were filled in between the cycle
        ``first_fill`` and the last one; the others: see :class:`_Choice`."""
        if self._last_choice is not None:
            self._judge_choice(self._last_choice, credit_sent)
        if header is not None:
            self._judge_header(cycle, header, first_fill)
        self._start = cycle if self._start is None else self._start
        possible = set()
        for rank, peer in self._peers.items():
            certain = False
            if peer.since is not None and (
                cycle + 1 >= self._late(peer.since) or self._much(peer, cycle + 1 - FREED)
            ):
                possible.add(rank)
                certain = not self._under_way[rank] and (
                    cycle >= self._late(peer.surely) or self._much(peer, cycle - FREED)
                )
            since = peer.due_since if peer.due_since is not None else max(cycle, peer.not_before)
            peer.due_since = since if certain else None
        due = {
            rank: peer.due_since for rank, peer in self._peers.items() if peer.due_since is not None
        }
        self._possible_since = (self._possible_since or cycle) if possible else None
        self._run = (self._run or cycle) if due else None
        self._last_choice = _Choice(
            cycle, others, free, kind, possible, self._possible_since, due, self._run
        )

    def _much(self, peer, cycle):
        """A quarter of the buffers was freed up to then, and is not told."""
        return peer.untold(cycle) >= self._enough

    def _late(self, event):
        """The cycle from which a CREDIT is due for what was freed then."""
        seen = event + FREED - 1 - self._start  # in the books, since reset
        return self._start + (seen // TICK + 2) * TICK + 1

    def _judge_choice(self, choice, credit):
        cycle = choice.cycle
        if credit:
            assert choice.possible, f"cycle {cycle}: a CREDIT though none is due"
            if choice.others:
                assert cycle - choice.possible_since > PATIENCE, (
                    f"cycle {cycle}: a CREDIT went before others, too early"
                )
                assert self._last_kind != "credit", (
                    f"cycle {cycle}: two CREDITs in a row before others"
                )
            self._credits.append(choice)
            self._last_kind = "credit"
            return
        owed = [
            rank
            for rank, since in choice.certain.items()
            if since <= cycle and self._settled < cycle
        ]
        assert not choice.free or len(owed) <= len(self._credits), (
            f"cycle {cycle}: no CREDIT though due for ranks {owed}"
        )
        if not self._credits:
            assert (
                not choice.kind
                or self._last_kind == "credit"
                or choice.run is None
                or cycle - choice.run < PATIENCE
            ), f"cycle {cycle}: {choice.kind} goes, CREDITs are due since cycle {choice.run}"
        self._last_kind = choice.kind or self._last_kind

    def _judge_header(self, cycle, data, first_fill):
        """A header shows what was freed when it was filled in."""
        fields = unpack(HEADER, data)
        rank, kind, total = fields["dst"], fields["type"], fields["credit"]
        peer, own = self._peers[rank], kind == PacketType.CREDIT
        if own:  # else it is a slice's message
            body = unpack(BODIES[PacketType.CREDIT], data)
            own = not is_message(body)
        times = [
            when
            for when in range(first_fill + 1 - FREED, cycle + 1 - FREED)
            if peer.freed(when) % 256 == total
        ]
        assert times, (
            f"cycle {cycle}: total {total} for rank {rank}; told {peer.told}, freed "
            f"{peer.freed(cycle - FREED)}"
        )
        news = (total - peer.told) % 256
        peer.told += news
        settled = [not peer.untold(when) for when in times]
        peer.since = peer.oldest() if all(settled) else peer.since
        peer.surely = peer.oldest() if any(settled) else peer.surely
        if own:
            # It may have been chosen just before a header told the same.
            assert news or self._last_header[0] == rank and not self._last_header[1], (
                f"cycle {cycle}: a CREDIT for rank {rank} tells nothing new"
            )
            self._judge_turn(rank, self._credits.popleft())
            peer.due_since, peer.not_before = None, cycle + 1
            others = [
                since
                for since in (each.due_since for each in self._peers.values())
                if since is not None
            ]
            if not others or min(others) > self._served[rank][0] - PICK:
                self._run = cycle + PICK
        else:
            self._under_way[rank] -= 1
            self._settled = cycle
            if news:
                self._run = cycle + PICK
        self._last_header = rank, own

    def _judge_turn(self, rank, choice):
        """A CREDIT was due, and nobody who waits longer than since the rank's last one was passed
        over."""
        assert rank in choice.possible, (
            f"CREDIT for rank {rank}, chosen in cycle {choice.cycle}: not due"
        )
        before, served = self._served.get(rank, (None, set()))
        passed = before is not None and [
            other
            for other, since in choice.certain.items()
            if other != rank and other not in served and since <= before - PICK
        ]
        assert not passed, (
            f"CREDIT for rank {rank} again, chosen in cycle {choice.cycle}; ranks {passed} "
            "are due since before"
        )
        for _, others in self._served.values():
            others.add(rank)
        self._served[rank] = (choice.cycle, set())
