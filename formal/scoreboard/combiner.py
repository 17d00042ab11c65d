# SPDX-License-Identifier: Apache-2.0
"""Promises of the acknowledgement combiner (``hub_rtl/scoreboard/ack_combiner.py``)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.scoreboard.ack_combiner import AckCombiner
from hub_rtl.scoreboard.records import OpKind

__all__ = [
    "CombinerConservesBytes",
    "CombinerKeepsBadNews",
    "CombinerNeverStalls",
    "CombinerSweeps",
]


class _Combiner(Spec):
    """An AckCombiner with free inputs. ``over``: watch the second operations, for the region, not
    those for the tile."""

    def __init__(self, cfg, over=False):
        super().__init__(cfg)
        self._over = over

    def build(self, m):
        cfg, over = self._cfg, self._over
        self.dut = dut = AckCombiner(cfg)
        depth = cfg.combine_depth
        m.submodules.dut = dut
        inside = observe(dut)
        keys, self.totals, self.mem, self.poison, self.old, self.valid = inside[:6]
        self.some, self.head, self.tail, self.second = inside[6:10]
        self.free_inputs(dut)
        context, op = dut.i.payload.context, dut.o.payload
        self.taken = Signal()
        self.leaves = Signal()
        m.d.comb += [
            self.taken.eq(dut.i.valid & dut.i.ready & context.counted),
            self.leaves.eq(dut.o.valid & dut.o.ready),
        ]

        # What an operation shows of the key: the tile with ACK, the region with OVER.
        key = self.constant(2 + cfg.group_width + cfg.dep_width + cfg.region_width, "key")
        said = Cat(op.plain, op.bank, op.group, op.dep, op.region)
        came = Cat(
            context.plain,
            context.bank,
            context.group,
            context.dep,
            context.region if over else context.place,
        )
        self.mine_in = Signal()
        self.mine_out = Signal()
        self.holds = Signal(depth)  # lemma: accumulators that still owe an operation to the key
        m.d.comb += [
            self.mine_in.eq(self.taken & (came == key) & (self._doubled(context) if over else 1)),
            self.mine_out.eq(
                self.leaves & (said == key) & (op.kind == (OpKind.OVER if over else OpKind.ACK))
            ),
        ]
        for n in range(depth):
            plain, bank, group, dep, region, place = self._fields(keys[n])
            owes = ~plain & (region != place) if over else ~((self.head == n) & self.second)
            m.d.comb += self.holds[n].eq(
                self.valid[n]
                & owes
                & (Cat(plain, bank, group, dep, region if over else place) == key)
            )
        # Lemma: a queue; only its head can be half gone.
        inside = sum(self.valid[1:], self.valid[0])
        for head in range(depth):
            for count in range(depth + 1):
                busy = sum(1 << (head + n) % depth for n in range(count))
                self.always(
                    f"queue from {head} of {count}",
                    (self.valid == busy) & (self.tail == (head + count) % depth),
                    when=(self.head == head) & (inside == count),
                )
        self.always("queue ends", self.head < depth)
        self.always("some are in use", self.some == self.valid.any())
        head_key = Mux(self.head == 0, keys[0], 0)
        for n in range(1, depth):
            head_key = Mux(self.head == n, keys[n], head_key)
        plain, *_, region, place = self._fields(head_key)
        self.always(
            "half gone",
            self.valid.bit_select(self.head, 1) & ~plain & (region != place),
            when=self.second,
        )
        takes = [self.valid[n] & (self.head != n) & ~self.totals[n][-1] for n in range(depth)]
        for n in range(depth):
            for other in range(n):
                self.lemma(
                    f"{other} and {n} differ", keys[n] != keys[other], when=takes[n] & takes[other]
                )
        key = Cat(
            context.plain, context.bank, context.group, context.dep, context.region, context.place
        )
        self.merges = Cat(
            each & (key == mine) for each, mine in zip(takes, keys, strict=True)
        ).any()
        self.promise(m)

    def _fields(self, key):
        cfg, low, parts = self._cfg, 0, []
        for width in (1, 1, cfg.group_width, cfg.dep_width, cfg.region_width, cfg.region_width):
            parts.append(key[low : low + width])
            low += width
        return parts

    @staticmethod
    def _doubled(context):
        return ~context.plain & (context.region != context.place)


class CombinerConservesBytes(_Combiner):
    """For every tile, the bytes of its operations are the bytes acknowledged with ``ok``, and for
    every region, those that lie in its overflow region: never more than came in, and nothing is
    left behind when the combiner offers nothing."""

    def promise(self, m):
        dut, payload = self.dut, self.dut.i.payload
        owed = Signal(24)
        m.d.sync += owed.eq(
            owed
            + Mux(self.mine_in & payload.ok, payload.context.bytes, 0)
            - Mux(self.mine_out, dut.o.payload.bytes, 0)
        )
        self.always("nothing invented", dut.o.payload.bytes <= owed, when=self.mine_out)
        self.always("nothing kept back", owed == 0, when=~dut.o.valid)
        self.lemma(
            "inside",
            owed == sum(Mux(self.holds[n], total, 0) for n, total in enumerate(self.totals)),
        )
        limit = (1 << len(self.totals[0]) - 1) + self._cfg.packet_bytes  # the last one still fits
        for n, total in enumerate(self.totals):
            self.lemma(f"room {n}", (total < limit) | ~self.valid[n])
        bytes_are_packets = payload.context.bytes <= self._cfg.packet_bytes
        self.suppose("no more bytes than a packet", bytes_are_packets, when=dut.i.valid)
        self.always("no more than it holds", dut.o.payload.bytes < limit, when=dut.o.valid)
        self.reach("some merge", dut.merged & self.mine_in)


class CombinerKeepsBadNews(_Combiner):
    """A memory error and a poison leave with an operation of their tile and of their region, and no
    other key gets one."""

    def promise(self, m):
        dut, payload = self.dut, self.dut.i.payload
        for name, came, shown, kept in (
            ("error", ~payload.ok, dut.o.payload.mem, self.mem),
            ("poison", payload.context.poison, dut.o.payload.poison, self.poison),
        ):
            due, seen = Signal(name=f"{name}_due"), Signal(name=f"{name}_seen")
            with m.If(self.mine_in & came):
                m.d.sync += [
                    due.eq(1),
                    seen.eq(1),
                ]
            with m.Else():
                m.d.sync += [
                    due.eq(due & ~(self.mine_out & shown)),
                    seen.eq(seen & dut.o.valid),
                ]
            self.always(f"{name} told", ~due, when=~dut.o.valid)
            self.always(f"{name} not invented", seen, when=self.mine_out & shown)
            self.lemma(f"{name} inside", (self.holds & kept).any(), when=due)
            self.lemma(f"{name} came", seen, when=(self.holds & kept).any())


class CombinerNeverStalls(_Combiner):
    """An enabled combiner that is empty takes an acknowledgement and offers it in the next cycle;
    one that waits is taken at the latest after two operations have left, and in the second cycle if
    an accumulator behind the oldest has its key and room. There is one operation for each that was
    not merged."""

    def promise(self, m):
        dut = self.dut
        waits = Signal()
        left = Signal(2)
        ops = Signal(range(len(self.totals) + 1))
        m.d.comb += waits.eq(dut.enable & dut.i.valid & ~dut.i.ready)
        m.d.sync += [
            left.eq(Mux(waits, left + self.leaves, 0)),
            ops.eq(
                ops
                + (self.taken & ~dut.merged)
                - (self.leaves & (dut.o.payload.kind == OpKind.ACK))
            ),
        ]
        self.always("two operations make room", ~waits, when=left == 2)
        self.always(
            "what merges waits one cycle",
            ~self.merges,
            when=waits & self.past(waits, "waited_before"),
        )
        self.reach("a full one merges", dut.merged & self.valid.all())
        self.always("empty takes", dut.i.ready, when=dut.enable & ~dut.o.valid)
        self.always("offered at once", dut.o.valid, when=self.past(self.taken, "taken_before"))
        self.always("an operation for each", ops == 0, when=~dut.o.valid)
        self.always(
            "only acknowledgements and their seconds",
            (dut.o.payload.kind == OpKind.ACK) | (dut.o.payload.kind == OpKind.OVER),
        )
        inside = sum(self.valid[1:], self.valid[0])
        self.lemma("operations", ops == inside - self.second)
        self.lemma("full while it waits", self.valid.all(), when=waits)
        self.lemma("one gone is half gone", (left == 0) | self.second | ~self.valid.all())


class CombinerSweeps(_Combiner):
    """After ``sweep``, ``sweeping`` stays 1 exactly until every operation that was inside has
    left."""

    def promise(self, m):
        dut = self.dut
        ops = Signal(range(len(self.totals) + 1))
        old = Signal(range(len(self.totals) + 1))
        acks = self.leaves & (dut.o.payload.kind == OpKind.ACK)
        m.d.sync += ops.eq(ops + (self.taken & ~dut.merged) - acks)
        with m.If(dut.sweep):
            m.d.sync += old.eq(ops - acks)
        with m.Else():
            m.d.sync += old.eq(Mux(acks & (old != 0), old - 1, old))
        self.always("sweeping while old ones wait", dut.sweeping, when=old != 0)
        second = dut.o.valid & (dut.o.payload.kind == OpKind.OVER)
        self.always("no longer", ~dut.sweeping, when=(old == 0) & ~second)
        inside = sum(self.valid[1:], self.valid[0])
        self.lemma("operations", ops == inside - self.second)
