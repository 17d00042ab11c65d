# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: Apache-2.0
"""Memory wrapper and arbiters in Amaranth's own simulator: many parameters, short runs, against a
few lines of Python."""

import random

import pytest
from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from flow.verilog.netlist import to_rtlil
from hub_rtl.parts.arbiter import RoundRobin, any_before, lowest_set
from hub_rtl.parts.mutants import mutated
from hub_rtl.parts.ram import Ram
from sim.bench.runner import bench_seed


def drive(ctx, part, **values):
    for port, value in values.items():
        ctx.set(getattr(part, port), value)


def simulate(part, bench):
    simulator = Simulator(part)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


def check_ram(part, width, depth, granules, clear):
    rng = random.Random(bench_seed())
    grain = width // granules
    words = [0] * depth
    collisions = set()

    async def bench(ctx):
        if clear:
            for _ in range(depth):
                assert ctx.get(part.clearing)
                ctx.set(part.w_en, (1 << granules) - 1)  # lost: the walker owns the port
                ctx.set(part.w_data, (1 << width) - 1)
                await ctx.tick()
        assert not ctx.get(part.clearing)
        expected = None
        for _ in range(300):
            write, read = rng.randrange(1 << granules), rng.random() < 0.7
            w_addr = rng.randrange(depth)
            r_addr = w_addr if rng.random() < 0.4 else rng.randrange(depth)
            word = rng.getrandbits(width)
            drive(ctx, part, w_en=write, w_addr=w_addr, w_data=word, r_en=read, r_addr=r_addr)
            await ctx.tick()
            for n in range(granules):
                if write >> n & 1:
                    mask = (1 << grain) - 1 << n * grain
                    words[w_addr] = words[w_addr] & ~mask | word & mask
            if read:
                expected = words[r_addr]  # the new word when both meet
                if w_addr == r_addr:
                    collisions.add(write)
            if expected is not None:
                assert ctx.get(part.r_data) == expected, "read data"

    simulate(part, bench)
    assert collisions == set(range(1 << granules))


@pytest.mark.parametrize(
    "width, depth, granules, clear",
    [
        (8, 1, 1, False),
        (8, 1, 1, True),
        (12, 5, 3, True),
        (1, 2, 1, False),
        (16, 8, 4, False),
        (128, 7, 2, True),
    ],
)
def test_ram(width, depth, granules, clear):
    check_ram(Ram(width, depth, granules, clear), width, depth, granules, clear)


def test_ram_of_structs():
    part = Ram(data.StructLayout({"a": 3, "b": 5}), 3)

    async def bench(ctx):
        drive(ctx, part, w_en=1, w_addr=2, w_data={"a": 5, "b": 17}, r_en=1, r_addr=2)
        await ctx.tick()
        assert ctx.get(part.r_data.a) == 5 and ctx.get(part.r_data.b) == 17

    simulate(part, bench)


def test_ram_without_bypass():
    """Reads of words that are not written in the same cycle are as ever; no register is kept beside
    the memory."""
    part, rng, words, expected = Ram(8, 5, bypass=False), random.Random(bench_seed()), [0] * 5, None

    async def bench(ctx):
        nonlocal expected
        for _ in range(300):
            write, read, w_addr, word = (
                rng.random() < 0.5,
                rng.random() < 0.7,
                rng.randrange(5),
                rng.getrandbits(8),
            )
            r_addr = rng.choice([n for n in range(5) if n != w_addr])
            drive(ctx, part, w_en=write, w_addr=w_addr, w_data=word, r_en=read, r_addr=r_addr)
            await ctx.tick()
            expected = words[r_addr] if read else expected
            words[w_addr] = word if write else words[w_addr]
            assert expected is None or ctx.get(part.r_data) == expected

    simulate(part, bench)
    assert "kept" not in to_rtlil(Ram(8, 5, bypass=False), "part") and "kept" in to_rtlil(
        Ram(8, 5), "part"
    )


def test_collision_is_noticed():
    """Without the bypass a read sees the old word."""
    with (
        mutated("parts.ram_collision_reads_old"),
        pytest.raises(AssertionError, match="read data"),
    ):
        check_ram(Ram(8, 4), 8, 4, 1, False)


def check_round_robin(part, count):
    rng = random.Random(bench_seed())

    async def bench(ctx):
        last = count - 1
        waiting = [0] * count
        for cycle in range(400):
            requests = (1 << count) - 1 if cycle < 2 * count else rng.getrandbits(count)
            hold, advance = (
                cycle >= 2 * count and rng.random() < 0.2,
                cycle < 2 * count or rng.random() < 0.7,
            )
            ctx.set(part.requests, requests)
            ctx.set(part.hold, hold)
            ctx.set(part.advance, advance)
            order = [(last + 1 + n) % count for n in range(count)]
            first = last if hold else next((n for n in order if requests >> n & 1), None)
            assert ctx.get(part.grant_onehot) == (1 << first if first is not None else 0), "grant"
            if advance and first is not None:
                last = first
                waiting = [
                    0 if n == first or not requests >> n & 1 else waiting[n] + (not hold)
                    for n in range(count)
                ]
                assert max(waiting) < count, "a steady request waits too long"
            await ctx.tick()

    simulate(part, bench)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_round_robin(count):
    check_round_robin(RoundRobin(count), count)


@pytest.mark.parametrize("bug", ["parts.arbiter_wraps_always", "parts.arbiter_has_priorities"])
def test_unfair_turns_are_noticed(bug):
    with mutated(bug), pytest.raises(AssertionError):
        check_round_robin(RoundRobin(3), 3)


class Prefix(wiring.Component):
    def __init__(self, width):
        super().__init__(
            {"bits": In(width), "before": Out(width), "lowest": Out(width), "ticks": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.ticks.eq(~self.ticks)
        m.d.comb += [
            self.before.eq(any_before(m, self.bits)),
            self.lowest.eq(lowest_set(m, self.bits)),
        ]
        return m


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_prefix(width):
    """All words of the width."""
    part = Prefix(width)

    async def bench(ctx):
        for bits in range(1 << width):
            ctx.set(part.bits, bits)
            assert ctx.get(part.before) == sum(
                bool(bits & ((1 << n) - 1)) << n for n in range(width)
            )
            assert ctx.get(part.lowest) == bits & -bits

    simulate(part, bench)


def test_ram_granules_refused():
    with pytest.raises(ValueError, match="^granules = 3: must divide the word width 8$"):
        Ram(8, 4, granules=3)
