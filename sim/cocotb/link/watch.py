# SPDX-License-Identifier: Apache-2.0
"""What LinkPort promises for each cycle, judged at its ports: strobes, credit books, order and
latency both ways.

The numbers of cycles are those of docs/blocks/link.md, "Timing". Reports of freed buffers:
`reports.py`.
"""

from collections import deque

from hub_rtl.contract.packets import HEADER, unpack
from hub_rtl.contract.records import LINK_COUNTS
from sim.bench.ports import Codec, reader
from sim.golden.link import SendBook

from .reports import ReportWatch

__all__ = ["PortWatch"]

TO_WIRE = 2  # cycles from `i_packet` to the wire
TO_OUTPUT = 4  # from the wire to `o_control`
TO_BOOKS = 4  # from a total on the wire to `ctl_ready`
PORTS = (
    "tx__tvalid",
    "tx__tready",
    "rx__tvalid",
    "rx__tready",
    "i_packet__valid",
    "i_control__valid",
    "i_message__valid",
    "o_control__valid",
    "ctl_ready",
    "peer_dead",
    "counts",
)
STROBES = (
    "tx_busy",
    "tx_idle_waiting",
    "rx_busy",
    "credit_stall",
    "control_sunk",
)  # decided by the ports one cycle before


class PortWatch:
    """Watches one port since its reset; made anew for each. ``tb`` brings agents and the models of
    both directions."""

    def __init__(self, tb):
        self.tb, self.cfg = tb, tb.cfg
        self._readers = {name: reader(getattr(tb.dut, name)) for name in PORTS}
        self._counts, self.counts = Codec(LINK_COUNTS), {}  # strobes of the cycle
        self.books = [SendBook(self.cfg.ctl_credits) for _ in range(self.cfg.ranks)]
        self._news = deque()  # (cycle, rank, total): reaches the books then
        self._heard = 0  # totals of the model that are in there
        self._took, self._taking = (
            [],
            [],
        )  # ranks: credits taken in the last cycle, in this one
        self._before = None  # ports of the last cycle
        self._strobes = dict.fromkeys(STROBES, 0)  # due in the next cycle
        self._inside = 0  # flits that are in the port on their way to the wire
        self._offered = deque([False] * TO_WIRE)
        self._packet_open = self._was_open = self._new_packet = self._wire_open = False
        self._kind, self._since_wire, self._flowing = None, 0, 0
        self._moved = [-1, -1]  # cycles in which the last two flits left
        self._said = self._message = False  # one was taken in the last cycle, in this one
        self._start = tb.o_control.count
        self._arrivals = deque()  # (cycle, control flits until then)
        self._available = self._gone = 0
        self.reports = ReportWatch(self.cfg, tb.peers)

    # What the agents see, in the cycle in which it happens.

    def packet_flit(self, item, cycle):
        if not self._packet_open:
            self._new_packet, self._kind = True, "a packet"
            self.reports.accepted(unpack(HEADER, item["data"])["dst"])
        self._packet_open = not item["last"]
        self._inside += 1

    def control_flit(self, item, cycle):
        dst = unpack(HEADER, item)["dst"]
        if self._readers["ctl_ready"]() >> dst & 1:  # else it is sunk
            self._taking.append(dst)
            self._inside += 1
            self._kind = "a control flit"
            self.reports.accepted(dst)

    def message_flit(self, data, cycle):
        self._kind, self._message = "a message", True
        self.reports.accepted(unpack(HEADER, data)["dst"])

    def wire_in(self, cycle):
        """A flit came on the wire, the model has seen it."""
        totals = self.tb.rx.totals
        self._arrivals.append((cycle + TO_OUTPUT, len(self.tb.rx.controls)))
        for src, total in totals[self._heard :]:
            self._news.append((cycle + TO_BOOKS, src, total))
        self._heard = len(totals)

    # Once per cycle, when all agents have sampled.

    def look(self, cycle):
        now = {name: read() for name, read in self._readers.items()}
        now["counts"] = self.counts = self._counts.unpack(now["counts"])
        self._inside += now["counts"]["credits_sent"]  # chosen in the cycle before
        self._judge_books(now, cycle)
        self._judge_strobes(now, cycle)
        self._judge_arrivals(now, cycle)
        self._judge_order(now, cycle)
        self._before = now
        self._said, self._message = self._message, False

    def _judge_books(self, now, cycle):
        """Ready exactly while a credit is left; totals that cannot be are counted."""
        refused = False
        while self._news and self._news[0][0] == cycle:
            _, rank, total = self._news.popleft()
            refused |= not self.books[rank].announce(total)
        for rank in self._took:
            self.books[rank].take()
        self._took, self._taking = self._taking, []
        left = sum((book.left > 0) << rank for rank, book in enumerate(self.books))
        assert now["ctl_ready"] == left, (
            f"ctl_ready in cycle {cycle}: {now['ctl_ready']:#b}, credits are left for {left:#b}"
        )
        assert now["counts"]["bad_totals"] == refused, f"bad_totals in cycle {cycle}"

    def _judge_strobes(self, now, cycle):
        """Strobes that the ports of the cycle before decide."""
        shown = {name: now["counts"][name] for name in self._strobes}
        assert shown == self._strobes, f"counts in cycle {cycle}: {shown}, must be {self._strobes}"
        dst = (
            unpack(HEADER, int(self.tb.dut.i_control__payload.value))["dst"]
            if now["i_control__valid"]
            else 0
        )
        has_credit = now["ctl_ready"] >> dst & 1
        stalled = now["i_control__valid"] & ~has_credit
        now["sendable"] = now["i_control__valid"] & has_credit
        moved = now["tx__tvalid"] & now["tx__tready"]
        offers = ("i_packet__valid", "i_control__valid", "i_message__valid")
        waits = self._inside or any(now[name] for name in offers)
        came, sunk = now["rx__tvalid"] & now["rx__tready"], stalled & now["peer_dead"] >> dst
        self._strobes = dict(
            zip(STROBES, (moved, int(bool(waits and not moved)), came, stalled, sunk), strict=True)
        )
        self._inside -= moved

    def _judge_arrivals(self, now, cycle):
        """Control flits that have come on the wire are handed out as soon as they may be."""
        while self._arrivals and self._arrivals[0][0] == cycle:
            _, self._available = self._arrivals.popleft()
        valid = self._available > self._gone
        assert now["o_control__valid"] == valid, (
            f"o_control.valid in cycle {cycle}: {1 - valid}, must be {int(valid)}"
        )
        self._gone = self.tb.o_control.count - self._start

    def _judge_order(self, now, cycle):
        """Control first, packets whole, no bubble on the wire; then what is told there."""
        tb, before, boundary = self.tb, self._before, not self._was_open
        assert not (self._new_packet and now["sendable"]), (
            f"cycle {cycle}: a packet goes before a control flit"
        )
        offered = self._offered.popleft()
        assert now["tx__tvalid"] or not offered, (
            f"cycle {cycle}: nothing on the wire though something was offered"
        )
        single = now["sendable"] or now["i_message__valid"]
        others = bool(now["i_packet__valid"] or single)
        self._offered.append(bool(now["i_packet__valid"] or single and boundary))
        header, first_fill = None, cycle - 1
        if now["tx__tvalid"] and (
            before is None or before["tx__tready"] or not before["tx__tvalid"]
        ):
            if before is not None and before["tx__tvalid"]:
                # If that one stood, this one may have been filled in since; two that are filled in
                # fit in the port.
                first_fill = min(max(self._since_wire, self._moved[0] + 1), first_fill)
            self._since_wire = cycle
            if not self._wire_open:
                header = int(tb.dut.tx__tdata.value)
            self._wire_open = not int(tb.dut.tx__tlast.value)
        if now["tx__tvalid"] and now["tx__tready"]:
            self._moved = [self._moved[1], cycle]
        self._flowing = self._flowing + 1 if now["tx__tready"] or not now["tx__tvalid"] else 0
        self.reports.look(
            cycle,
            now["counts"]["credits_sent"] - self._said,
            header,
            first_fill,
            boundary and others,
            boundary and not others and self._flowing > TO_WIRE,
            self._kind,
        )
        self._kind, self._new_packet, self._was_open = None, False, self._packet_open
