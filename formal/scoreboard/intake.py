# SPDX-License-Identifier: Apache-2.0
"""Promises of the intake of acknowledgements (``hub_rtl/scoreboard/ack_intake.py``)."""

from amaranth import Cat, Mux, Signal

from formal.kit.inside import observe
from formal.kit.spec import Spec
from hub_rtl.scoreboard.ack_bank import bank_of, bank_places
from hub_rtl.scoreboard.ack_intake import AckIntake
from hub_rtl.scoreboard.records import OpKind

__all__ = ["IntakeOffersAcknowledgements", "IntakeServes"]


def turns_to_wait(m, arbiter, number, name):
    """How many requesters of a RoundRobin may be served before ``number``. And whether it is in a
    state that it can have: one was served last."""
    last = observe(arbiter).last
    count = len(last)
    distance, alone = Signal(range(max(2, count)), name=f"{name}_distance"), Signal(name=name)
    for n in range(count):
        with m.If(last == 1 << n):
            m.d.comb += [
                distance.eq((number - n - 1) % count),
                alone.eq(1),
            ]
    return distance, alone


class _Intake(Spec):
    """The intake with free inputs."""

    def build(self, m):
        self.dut = dut = AckIntake(self._cfg)
        m.submodules.dut = dut
        self.inside = observe(dut)
        self.free_inputs(dut)
        self.promise(m)


class IntakeOffersAcknowledgements(_Intake):
    """Nothing but acknowledgements leaves, nothing is taken while the intake is not enabled, and it
    is clear after as many cycles as a bank of sums has words. A bank gets acknowledgements of its
    names, and second halves of regions only."""

    def promise(self, m):
        dut, inside = self.dut, self.inside
        op = dut.o.payload
        acks = (op.kind == OpKind.ACK) | (op.kind == OpKind.OVER)
        self.always("acknowledgements leave", (op.source == 0) & acks, when=dut.o.valid)
        taken = Cat(port.ready for port in dut.i)
        self.always("nothing is taken before", ~taken.any(), when=~dut.enable)
        age = Signal(8)
        places = bank_places(self._cfg)
        m.d.sync += age.eq(age + (age != 255))
        self.always("clear in time", dut.clearing == (age < places))
        for n, bank in enumerate(inside.banks):
            walk = observe(observe(bank).sums).walk
            self.lemma(f"walk of bank {n}", walk == Mux(age < places, age, places))
            op = bank.o.payload
            acks = (op.kind == OpKind.ACK) | (op.kind == OpKind.OVER)
            self.lemma(f"sums of bank {n}", (op.source == 0) & acks, when=bank.o.valid)
            op = bank.i.payload
            acks = (op.kind == OpKind.ACK) | ((op.kind == OpKind.OVER) & ~op.plain)
            self.always(
                f"bank {n} gets its names",
                acks & (bank_of(self._cfg, op) == n),
                when=bank.i.valid,
            )
        for n, combiner in enumerate(inside.combiners):
            keys, *_, valid, some, head, tail, second, _ = observe(combiner)
            depth = len(keys)
            queues = (
                (valid == sum(1 << (first + n) % depth for n in range(count)))
                & (head == first)
                & (tail == (first + count) % depth)
                for first in range(depth)
                for count in range(depth + 1)
            )
            self.lemma(f"combiner {n} is a queue", Cat(queues).any())
            self.lemma(f"some are in use at {n}", some == valid.any())
            oldest = valid.bit_select(head, 1) & ~keys[head][0]  # the key begins with `plain`
            self.lemma(f"the second half at {n} is of a region", oldest, when=second)
            bank = bank_of(self._cfg, combiner.o.payload)
            self.lemma(f"bank of {n}", combiner.sums == bank, when=combiner.o.valid)


class IntakeServes(_Intake):
    """If the pipeline takes what is offered within four cycles, an acknowledgement is taken within
    eight cycles per slice, each for the slices and every bank of sums, and one; the oldest one of a
    slice leaves its combiner, each half of it, in half of that."""

    def promise(self, m):
        cfg, dut, inside = self._cfg, self.dut, self.inside
        offered = Signal(2, name="offered")
        m.d.sync += offered.eq(Mux(dut.o.valid & ~dut.o.ready, offered + 1, 0))
        self.suppose("the pipeline takes", dut.o.ready, when=dut.o.valid & (offered == 3))
        turns = 1 + len(inside.banks)
        for number, (port, combiner) in enumerate(zip(dut.i, inside.combiners, strict=True)):
            waits = Signal(8, name=f"waits_{number}")
            waiting = dut.enable & port.valid & ~port.ready
            m.d.sync += waits.eq(Mux(waiting, waits + (waits != 255), 0))
            most = 8 * cfg.slices * turns
            self.always(f"acknowledgements of slice {number} are taken", waits <= most + 1)

            # Its oldest one, first and second half, does in half of that.
            oldest, gone = Signal(8, name=f"oldest_{number}"), combiner.o.valid & combiner.o.ready
            m.d.sync += oldest.eq(Mux(combiner.o.valid & ~gone, oldest + (oldest != 255), 0))
            self.always(f"the oldest of slice {number} leaves", oldest < most >> 1)

            # Lemmas: the first or the second half has gone, and how long the rest waits at most.
            accumulators, left = observe(combiner), Signal(2, name=f"left_{number}")
            m.d.sync += left.eq(Mux(waiting, left + gone, 0))
            second = accumulators.second
            outer, outer_alone = turns_to_wait(m, inside.sources, 0, f"source_{number}")
            inner, inner_alone = turns_to_wait(m, inside.slices, number, f"slice_{number}")
            self.lemma(f"served last {number}", outer_alone & inner_alone)
            self.lemma(f"some are in use at {number}", combiner.o.valid == accumulators.valid.any())
            self.lemma(f"slice {number} is full", accumulators.valid.all(), when=waiting)
            self.lemma(
                f"slice {number} has the first gone",
                (left == 0) | (second & (left == 1)),
                when=waiting,
            )
            before = (3 - offered)[:2] + 4 * (outer + turns * inner)
            self.lemma(
                f"turn of the oldest of slice {number}",
                oldest + before < most >> 1,
                when=combiner.o.valid,
            )
            self.lemma(
                f"turn of slice {number}",
                waits + before + Mux(second, 0, most >> 1) < most,
                when=waiting,
            )
