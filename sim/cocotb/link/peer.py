# SPDX-License-Identifier: Apache-2.0
"""The far side of the LinkPort bench: an honest peer."""

from collections import Counter, deque

from hub_rtl.contract.packets import HEADER, PacketType, unpack
from sim.bench.streams import pause_pattern
from sim.golden.link import CONTROL, SendBook, credit_class, header


class Peer:
    """All other ranks in one: sends packets, and control flits with credits; buffers those that the
    port sends, frees them later, reports totals."""

    def __init__(self, tb, pause=None):
        self.tb = tb
        cfg = tb.cfg
        self.limit = cfg.ctl_credits
        self.books, self.port = (
            {rank: SendBook(self.limit) for rank in tb.peers} for _ in range(2)
        )
        self.held, self.freed, self.told = Counter(), Counter(), Counter()
        self.queue = deque()  # (src, it is a control flit, flits) to send
        self._due = deque()  # (cycle, rank) buffers to free
        self._pause = pause_pattern(pause, tb.rng)
        self._seen = 0
        self.quiet = False
        self.chatter = Counter()  # IDLE and ACK flits sent
        self.tb.add(self)

    def queue_packet(self, src, **fields):
        tb = self.tb
        self.queue.append((src, False, tb.good_packet(src, tb.rank, **fields)))

    def queue_control(self, src):
        self.queue.append((src, True, [self.tb.good_control(src, self.tb.rank)]))

    def clear(self, forget=True):
        pass

    def drive(self):
        self._listen()
        while self._due and self._due[0][0] <= self.tb.cycle:
            _, rank = self._due.popleft()
            self.held[rank] -= 1
            self.freed[rank] += 1
        if self.tb.wire_in.pending > 30 or next(self._pause) or self.quiet:
            return
        rng = self.tb.rng
        sent = False
        for _ in range(len(self.queue)):
            src, control, flits = self.queue[0]
            if self.books[src].left or not control:
                self.queue.popleft()
                if control:
                    self.books[src].take()
                self._send(src, flits)
                sent = True
                break
            self.queue.rotate(-1)
        if not sent and rng.random() < 0.3:
            late = [rank for rank in self.tb.peers if self.told[rank] != self.freed[rank]]
            if late:
                rank = rng.choice(late)
                self._tell(rank)
                self.tb.send_credit(rank, self.freed[rank])
            elif rng.random() < 0.1:
                self.chatter[PacketType.IDLE] += 1
                self.tb.raw([header(PacketType.IDLE)])
            elif rng.random() < 0.1:
                self.chatter[PacketType.ACK] += 1
                self.tb.send_wire(
                    [
                        header(
                            PacketType.ACK,
                            {"next": rng.randrange(1024)},
                            src=rng.choice(self.tb.peers),
                            dst=self.tb.rank,
                        )
                    ]
                )

    def _send(self, src, flits):
        self._tell(src)
        self.tb.send_wire(flits, credit=self.freed[src] % 256)

    def _tell(self, rank):
        self.told[rank] = self.freed[rank]
        assert self.port[rank].announce(self.freed[rank] % 256)

    def _listen(self):
        """What the port has told and sent on its wire since the last look."""
        for _, dst, total in self.tb.told[self._seen :]:
            assert self.books[dst].announce(total), "the port told a total that cannot be"
        self._seen = len(self.tb.told)

    def took(self, item):
        """A header came out of the port."""
        fields = unpack(HEADER, item)
        if credit_class(PacketType(fields["type"])) != CONTROL:
            return
        rank = fields["dst"]
        self.port[rank].take()
        self.held[rank] += 1
        assert self.held[rank] <= self.limit, f"rank {rank} has no buffer for this"
        last = self._due[-1][0] if self._due else 0
        self._due.append((max(self.tb.cycle + self.tb.rng.randint(1, 60), last), rank))

    def sample(self):
        pass

    def __str__(self):
        return f"peer: {len(self.queue)} packets to send"


def watch_headers(tb, peer):
    """Tells the peer of every header that leaves the port."""
    inside = [False]

    def look(item, cycle):
        if not inside[0]:
            peer.took(item["data"])
        inside[0] = not item["last"]

    tb.wire_out.on_item(look)
