# SPDX-License-Identifier: Apache-2.0
"""Golden model of a remote fence: which packets a question covers, and when it may be answered."""

from collections import Counter

from hub_rtl.contract.fields import PLAINS

__all__ = ["Dealt", "Sent"]

TOTALS = 1 << PLAINS


class Sent:
    """The sender's end of one slice. Packets are known by (rank, number)."""

    def __init__(self, ranks):
        self.sent = {rank: [] for rank in range(ranks)}  # phase of each plain packet
        self.safe = Counter()  # packets of a rank that are known to be dealt with
        self.asked = {}  # {rank: (packets, phase)}, without an answer
        self.covered = Counter()  # packets of a rank that some fence waits for

    def begins(self, rank, phase):
        """A plain packet goes; while a phase is asked about, nothing joins it."""
        assert rank not in self.asked or phase != self.asked[rank][1], (
            f"rank {rank}: a packet of phase {phase}, which was asked about"
        )
        self.sent[rank].append(phase)

    def fence(self, sent):
        """What was sent so far is waited for: {rank: packets}."""
        self.covered.update({rank: count - self.covered[rank] for rank, count in sent.items()})

    def ask(self, rank, total, phase):
        """A question: it covers every packet behind those that an answer covered, but for some
        of the other phase at the end."""
        assert rank not in self.asked, f"rank {rank} is asked twice"
        sent, new = self.sent[rank], self.sent[rank][self.safe[rank] :]
        assert total == sent.count(phase) % TOTALS, f"{total} packets, sent {sent.count(phase)}"
        count = new.count(phase)
        assert count and set(new[:count]) == {phase}, f"rank {rank}, phase {phase} of {new}"
        self.asked[rank] = self.safe[rank] + count, phase

    def answer(self, rank):
        self.safe[rank], _ = self.asked.pop(rank)

    def waits(self):
        """Ranks that a fence still waits for."""
        return {rank for rank, count in self.covered.items() if count > self.safe[rank]}


class Dealt:
    """The receiver's end of one slice."""

    def __init__(self):
        self.dealt, self.bad = Counter(), set()  # by (rank, phase)
        self.asks = {}  # {rank: (total, phase)} without an answer

    def deal(self, rank, phase, bad):
        self.dealt[rank, phase] += 1
        if bad:
            self.bad.add((rank, phase))

    def due(self):
        """{rank: bad} of the questions that can be answered."""
        return {
            rank: (rank, phase) in self.bad
            for rank, (total, phase) in self.asks.items()
            if self.dealt[rank, phase] % TOTALS == total
        }

    def answer(self, rank, bad):
        """Raises AssertionError when this answer is not due."""
        due = self.due()
        assert rank in due, f"rank {rank} answered, asked {self.asks}, dealt with {self.dealt}"
        assert bad == due[rank], f"rank {rank}: bad {bad}, must be {due[rank]}"
        _, phase = self.asks.pop(rank)
        self.bad.discard((rank, phase))
