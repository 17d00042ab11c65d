# SPDX-License-Identifier: Apache-2.0
"""What LinkPort promises for each cycle, judged at its ports: strobes, credit books, order and
latency both ways.

The numbers of cycles are those of docs/blocks/link.md, "Timing". Reports of freed buffers:
`link_reports.py`.
"""

from collections import deque

from hub_rtl.contract.packets import HEADER, unpack
from hub_rtl.contract.records import LINK_COUNTS
from sim.bench.streams import Codec
from sim.golden.link import CONTROL, DATA, SendBook

from .reports import ReportWatch

__all__ = ["PortWatch"]

TO_WIRE = 2  # cycles from `i_packet` to the wire
TO_OUTPUT = (3, 4)  # from the wire to `o_packet`, to `o_control`
TO_BOOKS = 4  # from a total on the wire to `dest_ready`
PORTS = (
    "tx__tvalid",
    "tx__tready",
    "rx__tvalid",
    "rx__tready",
    "i_packet__valid",
    "i_control__valid",
    "o_packet__valid",
    "o_control__valid",
    "dest_ready",
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
        self._handles = {name: getattr(tb.dut, name) for name in PORTS}
        self._counts, self.counts = Codec(LINK_COUNTS), {}  # strobes of the cycle
        limits = (self.cfg.rx_credits, self.cfg.ctl_credits)
        self.books = [[SendBook(limit) for _ in range(self.cfg.ranks)] for limit in limits]
        self._news = deque()  # (cycle, class, rank, total): reaches the books then
        self._heard = 0  # totals of the model that are in there
        self._took, self._taking = (
            [],
            [],
        )  # (class, rank): credits taken in the last cycle, in this one
        self._before = None  # ports of the last cycle
        self._strobes = dict.fromkeys(STROBES, 0)  # due in the next cycle
        self._inside = 0  # flits that are in the port on their way to the wire
        self._offered = deque([False] * TO_WIRE)
        self._packet_open = self._was_open = self._new_packet = self._wire_open = False
        self._kind, self._since_wire, self._flowing = None, 0, 0
        self._moved = [-1, -1]  # cycles in which the last two flits left
        self._start = (tb.o_packet.count, tb.o_control.count)
        self._arrivals, self._complete, self._flits = (
            (deque(), deque()),
            0,
            0,
        )  # arrivals: (cycle, flits until then) per class
        self._available, self._gone = [0, 0], [0, 0]
        self.reports = ReportWatch(self.cfg, tb.peers)

    # What the agents see, in the cycle in which it happens.

    def took_credit(self, rank):
        self._taking.append((DATA, rank))

    def packet_flit(self, item, cycle):
        if not self._packet_open:
            self._new_packet, self._kind = True, "a packet"
            self.reports.accepted(unpack(HEADER, item["data"])["dst"])
        self._packet_open = not item["last"]
        self._inside += 1

    def control_flit(self, item, cycle):
        dst = unpack(HEADER, item)["dst"]
        if int(self._handles["ctl_ready"].value) >> dst & 1:  # else it is sunk
            self._taking.append((CONTROL, dst))
            self._inside += 1
            self._kind = "a control flit"
            self.reports.accepted(dst)

    def wire_in(self, cycle):
        """A flit came on the wire, the model has seen it."""
        packets, totals = self.tb.rx.packets, self.tb.rx.totals
        while self._complete < len(packets) - 1:
            self._flits += len(packets[self._complete][1])
            self._complete += 1
        flits = self._flits + (len(packets[-1][1]) if packets else 0)
        for cls, arrived in ((DATA, flits), (CONTROL, len(self.tb.rx.controls))):
            self._arrivals[cls].append((cycle + TO_OUTPUT[cls], arrived))
        for src, cls, total in totals[self._heard :]:
            self._news.append((cycle + TO_BOOKS, cls, src, total))
        self._heard = len(totals)

    # Once per cycle, when all agents have sampled.

    def look(self, cycle):
        now = {name: int(handle.value) for name, handle in self._handles.items()}
        now["counts"] = self.counts = self._counts.unpack(now["counts"])
        self._inside += now["counts"]["credits_sent"]  # chosen in the cycle before
        self._judge_books(now, cycle)
        self._judge_strobes(now, cycle)
        self._judge_arrivals(now, cycle)
        self._judge_order(now, cycle)
        self._before = now

    def _judge_books(self, now, cycle):
        """Ready exactly while a credit is left; totals that cannot be are counted."""
        refused = False
        while self._news and self._news[0][0] == cycle:
            _, cls, rank, total = self._news.popleft()
            refused |= not self.books[cls][rank].announce(total)
        for cls, rank in self._took:
            self.books[cls][rank].take()
        self._took, self._taking = self._taking, []
        for name, books in (("dest_ready", self.books[DATA]), ("ctl_ready", self.books[CONTROL])):
            left = sum((book.left > 0) << rank for rank, book in enumerate(books))
            assert now[name] == left, (
                f"{name} in cycle {cycle}: {now[name]:#b}, credits are left for {left:#b}"
            )
        assert now["counts"]["bad_totals"] == refused, f"bad_totals in cycle {cycle}"

    def _judge_strobes(self, now, cycle):
        """Strobes that the ports of the cycle before decide."""
        shown = {name: now["counts"][name] for name in self._strobes}
        assert shown == self._strobes, f"counts in cycle {cycle}: {shown}, must be {self._strobes}"
        # It rises with the first edge out of reset: what came before would be forgotten.
        assert now["rx__tready"] == (self._before is not None), (
            f"rx.tready is {now['rx__tready']} in cycle {cycle}"
        )
        dst = (
            unpack(HEADER, int(self.tb.dut.i_control__payload.value))["dst"]
            if now["i_control__valid"]
            else 0
        )
        has_credit = now["ctl_ready"] >> dst & 1
        stalled = now["i_control__valid"] & ~has_credit
        now["sendable"] = now["i_control__valid"] & has_credit
        moved = now["tx__tvalid"] & now["tx__tready"]
        waits = self._inside or now["i_packet__valid"] or now["i_control__valid"]
        came, sunk = now["rx__tvalid"] & now["rx__tready"], stalled & now["peer_dead"] >> dst
        self._strobes = dict(
            zip(STROBES, (moved, int(bool(waits and not moved)), came, stalled, sunk), strict=True)
        )
        self._inside -= moved

    def _judge_arrivals(self, now, cycle):
        """What has come on the wire is handed out as soon as it may be, without a gap."""
        for cls, name, sink in (
            (DATA, "o_packet", self.tb.o_packet),
            (CONTROL, "o_control", self.tb.o_control),
        ):
            arrivals = self._arrivals[cls]
            while arrivals and arrivals[0][0] == cycle:
                _, self._available[cls] = arrivals.popleft()
            valid = self._available[cls] > self._gone[cls]
            assert now[f"{name}__valid"] == valid, (
                f"{name}.valid in cycle {cycle}: {1 - valid}, must be {int(valid)}"
            )
            self._gone[cls] = sink.count - self._start[cls]

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
        others = bool(now["i_packet__valid"] or now["sendable"])
        self._offered.append(bool(now["i_packet__valid"] or now["sendable"] and boundary))
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
            now["counts"]["credits_sent"],
            header,
            first_fill,
            boundary and others,
            boundary and not others and self._flowing > TO_WIRE,
            self._kind,
        )
        self._kind, self._new_packet, self._was_open = None, False, self._packet_open
