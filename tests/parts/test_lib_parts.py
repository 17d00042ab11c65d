# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""Queues, trees, residues and the flush counter in Amaranth's own simulator, against a few lines of
Python."""

import random
from collections import deque

import pytest
from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hub_rtl.parts.flush import FlushCounter
from hub_rtl.parts.mutants import mutated
from hub_rtl.parts.onehot import encode, select, several, tree_sum
from hub_rtl.parts.ram_queue import RamQueue
from hub_rtl.parts.register_queue import RegisterQueue
from hub_rtl.parts.residue import is_residue, residue, residue_parts
from hub_rtl.parts.stream import StreamQueue, StreamRegister
from sim.bench.runner import bench_seed


def simulate(part, bench):
    simulator = Simulator(part)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


# part, items that fit with the output stalled, latency in cycles
QUEUES = {
    "register": (lambda: StreamRegister(8), 2, 1),
    "queue 3": (lambda: StreamQueue(8, 3), 3, 2),
    "queue 6": (lambda: StreamQueue(8, 6), 6, 2),
    "ram 1": (lambda: RamQueue(8, 1), 2, 1),
    "ram 2": (lambda: RamQueue(8, 2), 3, 1),
    "ram 5": (lambda: RamQueue(8, 5), 6, 1),
    "flops 2": (lambda: RegisterQueue(8, 2), 2, 1),
    "flops 5": (lambda: RegisterQueue(8, 5), 5, 1),
}


def check_queue(part, room, latency):
    rng = random.Random(bench_seed())

    async def bench(ctx):
        sent, now, inside, seen_full = (
            0,
            0,
            deque(),
            False,
        )  # inside: (item, cycle in which it went in)
        offered = None

        async def cycle(offer, take):
            """One cycle; returns (went in, came out)."""
            nonlocal sent, now, offered, seen_full
            offer = offer or offered is not None  # an offer is never withdrawn
            offered = sent % 251 if offer else None
            ctx.set(part.i.valid, offer)
            ctx.set(part.i.payload, sent % 251 if offer else 255)
            ctx.set(part.o.ready, take)
            went, came = offer and ctx.get(part.i.ready), take and ctx.get(part.o.valid)
            assert len(inside) < room or not went, "took more than fits"
            seen_full |= len(inside) == room
            if ctx.get(part.o.valid):
                assert inside, "an item from nowhere"
                assert ctx.get(part.o.payload) == inside[0][0], "order"
            else:
                assert not inside or now - inside[0][1] < latency, (
                    "an item is inside and does not come"
                )
            await ctx.tick()
            if came:
                inside.popleft()
            if went:
                inside.append((sent % 251, now))
                offered = None
                sent += 1
            now += 1
            return went, came

        assert not ctx.get(part.o.valid)
        assert (await cycle(True, True))[0]
        waited = 1
        while not (await cycle(False, True))[1]:
            waited += 1
        assert waited == latency, "latency"
        flow = [await cycle(True, True) for _ in range(40)]
        assert all(went and came for went, came in flow[latency + 1 :]), "not one item per cycle"
        for offer, take in ((0.9, 0.2), (0.2, 0.9), (0.5, 0.5), (1, 0), (0, 1), (1, 0.5)):
            for _ in range(60):
                await cycle(rng.random() < offer, rng.random() < take)
        assert seen_full, "was never full"
        while inside or offered is not None:
            await cycle(False, True)
        assert sent > 100

    simulate(part, bench)


@pytest.mark.parametrize("name", QUEUES)
def test_queue(name):
    part, room, latency = QUEUES[name]
    check_queue(part(), room, latency)


def test_overtaking_queue_is_noticed():
    with mutated("parts.register_queue_overtakes"), pytest.raises(AssertionError):
        check_queue(RegisterQueue(8, 3), 3, 1)


def test_register_queue_depth_refused():
    with pytest.raises(ValueError, match="^depth = 1: must be at least 2"):
        RegisterQueue(8, 1)


class Function(wiring.Component):
    """Output ``o`` as a function of input ``i``; ``build(m, i)`` gives the value."""

    def __init__(self, width_in, width_out, build):
        super().__init__({"i": In(width_in), "o": Out(width_out)})
        self._build = build

    def elaborate(self, platform):
        m = Module()
        m.d.sync += Signal(name="clocked").eq(1)
        m.d.comb += self.o.eq(self._build(m, self.i))
        return m


def check_function(part, cases):
    async def bench(ctx):
        for value, wanted in cases:
            ctx.set(part.i, value)
            assert ctx.get(part.o) == wanted, f"f({value})"

    simulate(part, bench)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 18, 31, 32])
def test_residue(divisor):
    """All 12-bit values."""
    check_function(
        Function(12, 8, lambda m, value: residue(residue_parts(m, value, divisor), divisor)),
        [(value, value % divisor) for value in range(4096)],
    )
    number = divisor // 2
    check_function(
        Function(
            12, 1, lambda m, value: is_residue(residue_parts(m, value, divisor), number, divisor)
        ),
        [(value, value % divisor == number) for value in range(4096)],
    )


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_onehot(count):
    onehot = [(0, None)] + [(1 << n, n) for n in range(count)]
    check_function(
        Function(count, 8, lambda m, value: encode(value)), [(bits, n or 0) for bits, n in onehot]
    )
    words = [7 * n + 3 for n in range(count)]
    check_function(
        Function(count, 8, lambda m, value: select(value, words)),
        [(bits, 0 if n is None else words[n]) for bits, n in onehot],
    )


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_several(count):
    """All values: two bits or more."""
    check_function(
        Function(count, 1, lambda m, value: several(value)),
        [(value, value.bit_count() > 1) for value in range(1 << count)],
    )


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_sums(count):
    rng = random.Random(bench_seed())
    cases = []
    for _ in range(50):
        word = rng.getrandbits(4 * count)
        cases.append((word, sum(word >> 4 * n & 15 for n in range(count))))

    def parts(value):
        return [value[4 * n : 4 * n + 4] for n in range(count)]

    check_function(Function(4 * count, 8, lambda m, value: tree_sum(parts(value))), cases)


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_flush_counter(depth):
    """``flushing`` is 1 exactly while something that was inside at the last strobe is inside."""
    rng = random.Random(bench_seed())
    part = FlushCounter(depth)

    async def bench(ctx):
        inside, number, limit = deque(), 0, -1
        for _ in range(600):
            assert ctx.get(part.occupied) == bool(inside)
            assert ctx.get(part.flushing) == any(item <= limit for item in inside)
            leave = bool(inside) and rng.random() < 0.5
            enter = len(inside) < depth and rng.random() < 0.5
            flush = rng.random() < 0.1
            ctx.set(Cat(part.enter, part.leave, part.flush), enter | leave << 1 | flush << 2)
            await ctx.tick()
            if leave:
                inside.popleft()
            if enter:
                number += 1
                inside.append(number)
            if flush:
                limit = number

    simulate(part, bench)
