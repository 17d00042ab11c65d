# SPDX-License-Identifier: Apache-2.0
"""Promise of a link lane's receive queues (``hub_rtl/link/link.py``, docs/interfaces.md section 5):
there is always a place."""

from amaranth import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import wiring

from formal.kit.cuts import cut
from formal.kit.inside import observe, stand_in
from formal.kit.spec import same
from hub_rtl.contract.records import header_layout
from hub_rtl.link.link import LinkPort
from hub_rtl.parts.register_queue import RegisterQueue

from .rx import Receiver

__all__ = ["FlitsFindAPlace"]


class EarlyDouble(wiring.Component):
    """Stands for ``queue``, an :class:`~hub_rtl.parts.early_queue.EarlyQueue` (parts.early_queue,
    parts.register_queue prove the same of both), with items that an invariant can see, and without
    the word that it has at its output."""

    def __init__(self, queue):
        super().__init__(queue.signature)
        shape = queue.o.payload.shape()
        self.queue = RegisterQueue(shape, max(2, queue.depth))
        self.before = Signal(Shape.cast(shape).width)
        stand_in(queue, self)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.queue
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.sync += self.before.eq(self.early)
        m.d.comb += [
            queue.i.valid.eq(self.push),
            queue.i.payload.eq(self.before),
        ]
        return m


class FlitsFindAPlace(Receiver):
    """Whatever the wire brings, from sources that keep their credits or not, however late packets
    and control flits are taken: each flit that is queued finds a place, in the queue of packets and
    in that of control flits, so the wire need never wait. Queues of registers of the same depth
    stand for those in memories (same promise: parts.ram_queue, parts.register_queue). The
    transmitter is cut out: totals may be reported in any cycle."""

    part, unused = LinkPort, ("i_packet", "i_control")

    def prepare(self, dut):
        self.port = observe(dut)
        cut(self, self.port.tx)
        self.inside = observe(self.port.rx)
        self.packets = EarlyDouble(self.inside.packets)
        self.controls = EarlyDouble(self.inside.controls)
        return dut

    def specify(self, m, dut):
        self.always("the wire never waits", dut.rx.tready, when=self.started)
        for name, queue in (
            ("packets", self.packets.queue),
            ("control flits", self.controls.queue),
        ):
            self.always(f"{name} find a place", queue.i.ready, when=queue.i.valid)
            self.reach(
                f"every place for {name} of others is used",
                observe(queue).full[self._places(name) - 1],
            )
        self.packet_lemmas()
        self.control_lemmas()

    def _places(self, name):
        """Places that others' packets or control flits can fill."""
        cfg = self._cfg
        return (cfg.ranks - 1) * (
            cfg.rx_credits * cfg.frame_flits if name == "packets" else cfg.ctl_credits
        )

    def _source_exists(self, src):
        return (src < self._cfg.ranks) & (src != self.rank)

    def _book_lemmas(self, port, cls, limit, inside, free):
        """The books of class ``cls`` hold what is inside (``inside``: source to sum), its freeing,
        and what is unreported."""
        books = observe(port.buffers)
        for n in range(self._cfg.ranks):
            room, unreported = (
                books.room[cls][n],
                books.unreported[cls][n],
            )
            self.lemma(
                f"books of class {cls}, source {n}",
                limit == room + unreported + inside(n) + (free.en & (free.rank == n)),
            )
            full = (port.buffers.full, port.buffers.control_full)[cls]
            self.lemma(f"no room in class {cls}, source {n}", full[n] == ~room.any())

    def control_lemmas(self):
        port, queue, comes = self.port, observe(self.controls.queue), self.controls.queue.i
        sources = [header_layout()(item).src for item in queue.items]
        comes, comer = comes.valid, header_layout()(comes.payload).src
        self.lemma("a control flit that comes has a source", self._source_exists(comer), when=comes)
        for n, src in enumerate(sources):
            self.lemma(
                f"control item {n} has a source", self._source_exists(src), when=queue.full[n]
            )
            if n:
                self.lemma(f"no gap before control item {n}", queue.full[n - 1], when=queue.full[n])
        self._book_lemmas(
            port,
            1,
            self._cfg.ctl_credits,
            lambda rank: sum(
                (queue.full[n] & (src == rank) for n, src in enumerate(sources)),
                comes & (comer == rank),
            ),
            port.rx.control_free,
        )

    def packet_lemmas(self):
        """What is queued are packets, none longer than its header says; the first may have begun to
        leave, the last may still be arriving. So there are at most ``frame_flits`` for each, and
        the books bound their number."""
        cfg, m, port, queue = (
            self._cfg,
            self.m,
            self.port,
            observe(self.packets.queue),
        )
        inside = self.inside
        self.arrival_lemmas(inside)
        arriving, to_arrive = inside.arriving, inside.to_arrive
        leaving, leaver, padding = inside.leaving, inside.leaver, inside.padding
        to_leave = Signal(range(cfg.frame_flits), name="to_leave")
        m.d.comb += to_leave.eq(inside.data_to_leave + inside.masks_to_leave)
        self.lemma(
            "what may be pushed",
            self.packets.before == Cat(inside.arrived.data, inside.arrived.last),
        )
        self.lemma(
            "flits to leave",
            (inside.data_to_leave != 0)
            & (inside.data_to_leave <= cfg.packet_flits)
            & (inside.masks_to_leave <= cfg.mask_flits)
            & self._source_exists(leaver),
            when=leaving,
        )
        self.lemma(
            "nothing to leave",
            same(inside, data_to_leave=0, masks_to_leave=0),
            when=~leaving,
        )
        self.lemma("padding is within a packet", leaving, when=padding)
        partly = leaving & ~padding  # the first item goes on with the packet that leaves
        begins, is_open, left = ~partly, partly, Mux(partly, to_leave, 0)
        headers, bound = [], left  # of each item: whether it is a header, and its source
        for n, item in enumerate(queue.items):
            there, header = queue.full[n], header_layout()(item.data)
            length = (header.len + Mux(header.masked, cfg.mask_flits, 0))[: to_leave.shape().width]
            after = Signal(
                to_leave.shape(), name=f"after{n}"
            )  # flits that the packet still has after this one
            m.d.comb += after.eq(Mux(begins, length, left - 1))
            if n:
                self.lemma(f"no gap before item {n}", queue.full[n - 1], when=there)
            self.lemma(
                f"header {n} is good",
                (header.len != 0)
                & (header.len <= cfg.packet_flits)
                & self._source_exists(header.src),
                when=there & begins,
            )
            self.lemma(f"item {n} was announced", left != 0, when=there & ~begins)
            headers.append((there & begins, header.src))
            top = Signal(range(cfg.frame_flits * (n + 3)), name=f"bound{n}")
            m.d.comb += top.eq(bound + Mux(begins, cfg.frame_flits, 0))
            bound = top
            self.lemma(f"places of items to {n}", n + 1 + after <= bound, when=there)
            ends = item.last | (after == 0)
            is_open, left, begins = Mux(there, ~ends, is_open), Mux(there, after, left), ends
        self.lemma("a packet arrives", arriving == is_open)
        self.lemma("flits to arrive", to_arrive == left, when=arriving)
        packets = sum((header for header, _ in headers), Const(0, 1)) + leaving
        self.lemma(
            "flits of packets",
            sum(queue.full[n] for n in range(len(headers))) + Mux(arriving, to_arrive, 0)
            <= packets * cfg.frame_flits,
        )
        self.lemma("packets inside", packets <= (cfg.ranks - 1) * cfg.rx_credits)
        self._book_lemmas(
            port,
            0,
            cfg.rx_credits,
            lambda rank: sum(
                (header & (src == rank) for header, src in headers), leaving & (leaver == rank)
            ),
            port.rx.free,
        )
        return headers, packets
