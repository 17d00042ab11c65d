# SPDX-License-Identifier: Apache-2.0
"""The far side of the LinkPort bench: an honest peer."""

from collections import Counter, deque
from itertools import product

from hub_rtl.contract.packets import HEADER, PacketType, unpack
from sim.bench.streams import pause_pattern
from sim.golden.link import CONTROL, DATA, SendBook, credit_class, header


class Peer:
    """All other ranks in one: sends with credits, buffers what the port sends, frees it later,
    reports totals."""

    def __init__(self, tb, pause=None):
        self.tb = tb
        cfg = tb.cfg
        self.limits = (cfg.rx_credits, cfg.ctl_credits)
        keys = [*product(tb.peers, (DATA, CONTROL))]
        self.books, self.port = (
            {(rank, cls): SendBook(self.limits[cls]) for rank, cls in keys} for _ in range(2)
        )
        self.held, self.freed, self.told = Counter(), Counter(), Counter()
        self.queue = deque()  # (src, class, flits) to send
        self._due = deque()  # (cycle, rank, class) buffers to free
        self._pause = pause_pattern(pause, tb.rng)
        self._seen = 0
        self.quiet = False
        self.chatter = Counter()  # IDLE and ACK flits sent
        tb.sender.on_take.append(lambda rank: self.port[rank, DATA].take())
        self.tb.add(self)

    def queue_packet(self, src, **fields):
        tb = self.tb
        self.queue.append((src, DATA, tb.good_packet(src, tb.rank, **fields)))

    def queue_control(self, src):
        self.queue.append((src, CONTROL, [self.tb.good_control(src, self.tb.rank)]))

    def clear(self, forget=True):
        pass

    def drive(self):
        self._listen()
        while self._due and self._due[0][0] <= self.tb.cycle:
            _, rank, cls = self._due.popleft()
            self.held[rank, cls] -= 1
            self.freed[rank, cls] += 1
        if self.tb.wire_in.pending > 30 or next(self._pause) or self.quiet:
            return
        rng = self.tb.rng
        sent = False
        for _ in range(len(self.queue)):
            src, cls, flits = self.queue[0]
            if self.books[src, cls].left:
                self.queue.popleft()
                self.books[src, cls].take()
                self._send(src, flits)
                sent = True
                break
            self.queue.rotate(-1)
        if not sent and rng.random() < 0.3:
            late = [
                rank
                for rank in self.tb.peers
                if any(self.told[rank, cls] != self.freed[rank, cls] for cls in (0, 1))
            ]
            if late:
                rank = rng.choice(late)
                self._tell(rank, DATA, CONTROL)
                self.tb.send_credit(rank, [self.freed[rank, cls] for cls in (DATA, CONTROL)])
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
        cls = self.tb.rng.randrange(2)
        self._tell(src, cls)
        self.tb.send_wire(flits, credit_cls=cls, credit=self.freed[src, cls] % 256)

    def _tell(self, rank, *classes):
        for cls in classes:
            self.told[rank, cls] = self.freed[rank, cls]
            assert self.port[rank, cls].announce(self.freed[rank, cls] % 256)

    def _listen(self):
        """What the port has told and sent on its wire since the last look."""
        for _, dst, totals in self.tb.told[self._seen :]:
            for cls, total in totals.items():
                assert self.books[dst, cls].announce(total), "the port told a total that cannot be"
        self._seen = len(self.tb.told)

    def took(self, item):
        """A header came out of the port."""
        fields = unpack(HEADER, item)
        cls = credit_class(PacketType(fields["type"]))
        if cls is None:
            return
        rank = fields["dst"]
        if cls == CONTROL:
            self.port[rank, CONTROL].take()
        self.held[rank, cls] += 1
        assert self.held[rank, cls] <= self.limits[cls], (
            f"rank {rank} has no buffer for this: class {cls}"
        )
        self._due.append(
            (
                max(
                    self.tb.cycle + self.tb.rng.randint(1, 60), self._due[-1][0] if self._due else 0
                ),
                rank,
                cls,
            )
        )

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
