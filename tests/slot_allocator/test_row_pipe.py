# SPDX-License-Identifier: Apache-2.0
"""The row lookup's pipe alone, a packet in each cycle: what becomes of each row, and how fast."""

import random

import pytest
from amaranth.sim import Simulator

from hub_rtl.contract.config import preset
from hub_rtl.contract.packets import SPILL_WORD, Reason, RegionState, unpack
from hub_rtl.parts.mutants import mutated
from hub_rtl.slot_allocator.records import Kind, slice_types_of
from hub_rtl.slot_allocator.row_pipe import RowPipe
from sim.bench.runner import bench_seed
from sim.golden.slot_allocator import fold
from sim.quality.coverage import cover

ROW_BYTES, EPOCH = 64, 2
SMALL = preset("small", rat_sets=2, rat_ways=2)


class Pipe:
    """A pipe with a region in epoch 2 and a window for rank 0, everything else as memory and the
    stages behind do it; each command is compared with what the packets before it ask for.

    ``packets``: a row's number (-1: plain), source, bytes. ``gaps``: per cent of the cycles in
    which no packet comes. ``after``: cycles from a request to the use of its answer.
    """

    def __init__(self, cfg, packets, rng, gaps=0, after=4):
        self.cfg, self.packets, self.rng, self.gaps, self.after = cfg, packets, rng, gaps, after
        self.own, self.dut = slice_types_of(cfg), RowPipe(cfg)
        # By row: (index, missing) in the RAT, word in the table, missing when it was taken out,
        # (slot, source).
        self.entries, self.memory, self.back, self.slots = {}, {}, {}, {}
        self.data, self.answers, self.told = {}, [], 0  # data part; cycles; commands
        self.first = self.last = None  # cycles: first packet in, last command out
        self.spills = self.hits = self.behind_itself = 0
        self.before = None, 0  # row and cycle of the command before
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-9)
        simulator.add_testbench(self.bench)
        simulator.run()
        assert self.told == len(packets)

    async def bench(self, ctx):
        dut = self.dut
        while ctx.get(dut.clearing):
            await ctx.tick()
        geometry = {"valid": 1, "row_bytes": ROW_BYTES, "row_span": 1 << 20, "row_first": 0}
        ctx.set(dut.geometry_write, {"en": 1, "region": 0, "geometry": geometry})
        ctx.set(
            dut.region_update,
            {"en": 1, "region": 0, "bank": 0, "state": RegionState.OPEN, "epoch": EPOCH},
        )
        ctx.set(dut.window_write, {"en": 1, "rank": 0, "window": {"base": 0, "limit": 4096}})
        await ctx.tick()
        for port in (dut.geometry_write, dut.region_update, dut.window_write):
            ctx.set(port.en, 0)
        for port in (dut.filled, dut.o_command.ready, dut.o_alloc.ready, dut.o_overlap.ready):
            ctx.set(port, 1)
        sent, self.cycle, self.reply, self.look = 0, 0, None, None
        while self.told < len(self.packets):
            comes = sent < len(self.packets) and self.rng.randrange(100) >= self.gaps
            ctx.set(dut.i_head.valid, comes)
            if comes:
                self.offer(ctx, *self.packets[sent])
            ctx.set(dut.alloc_taken, bool(self.answers) and self.answers[0] <= self.cycle)
            self.serve(ctx)
            if ctx.get(dut.alloc_taken):
                self.answers.pop(0)
            if comes and ctx.get(dut.i_head.ready):
                self.first = self.cycle if self.first is None else self.first
                sent += 1
            if ctx.get(dut.o_alloc.valid):
                self.answers.append(self.cycle + self.after)
            if ctx.get(dut.o_command.valid):
                self.command(ctx.get(dut.o_command.p), *self.packets[self.told])
                self.told, self.last = self.told + 1, self.cycle
            self.cycle += 1
            assert self.cycle < 60 * len(self.packets) + 100, "the pipe stands still"
            await ctx.tick()
        await ctx.tick().repeat(4)

    def offer(self, ctx, rowid, src, count):
        body = self.own.row_body.const({"region": 0, "epoch": EPOCH, "rowid": max(0, rowid)})
        if rowid < 0:
            body = self.own.plain_body.const({"addr16": 16})
        head = {"plain": rowid < 0, "src": src, "len": 1, "bytes": count, "body": body.as_bits()}
        ctx.set(self.dut.i_head.p, head)

    def serve(self, ctx):
        """The spill table, two cycles after it was asked; the data part, one cycle."""
        dut = self.dut
        ctx.set(dut.victim, {"slot": self.data.get(self.look, 0), "reason": Reason.OK})
        self.look = ctx.get(dut.victim_index) if ctx.get(dut.victim_look) else None
        ctx.set(dut.spill_done, self.reply is not None)
        ctx.set(dut.spill_reply, {"word": self.reply or 0, "error": 0})
        busy, self.reply = self.reply is not None, None
        ctx.set(dut.o_spill.ready, not busy)
        if ctx.get(dut.o_spill.valid) and not busy:
            asked = ctx.get(dut.o_spill.p)
            self.reply = self.memory.get(asked.rowid, 0)
            if asked.write and asked.word:
                _, missing = self.entries.pop(asked.rowid)
                word, (slot, src) = unpack(SPILL_WORD, asked.word), self.slots[asked.rowid]
                wanted = {"missing": missing, "slot": slot, "src": src}
                assert wanted.items() <= word.items(), (word, wanted)
                self.spills += 1
            elif asked.write:
                self.back[asked.rowid] = unpack(SPILL_WORD, self.reply)["missing"]
            if asked.write:
                self.memory[asked.rowid] = asked.word

    def command(self, command, rowid, src, count):
        if rowid < 0:
            assert command.kind == (Kind.SINK if src else Kind.PLAIN)
            return
        where = f"packet {self.told} of row {rowid}"
        spilled = unpack(SPILL_WORD, self.memory.get(rowid, 0))["valid"]
        if rowid in self.entries or spilled or rowid in self.back:
            if self.slots[rowid][1] != src:
                assert command.kind == Kind.SINK and command.reason == Reason.FOREIGN, where
                return
        else:
            self.slots[rowid] = len(self.slots) % (1 << self.cfg.slot_width), src
        assert command.kind == Kind.ROW and not spilled, where
        assert command.fresh == (rowid not in self.entries), where
        taken = [index for index, _ in self.entries.values()]
        missing = self.back.pop(rowid, ROW_BYTES)
        if not command.fresh:
            index, missing = self.entries.pop(rowid)
            assert command.index == index, where
            self.hits += 1
            self.behind_itself += self.before == (rowid, self.cycle - 1)
        self.before = rowid, self.cycle
        left = missing - count
        assert command.install == (command.fresh and left > 0), where
        assert not command.install or command.index not in taken, f"{where}: another row's entry"
        if left > 0:
            self.entries[rowid] = command.index, left
            self.data[command.index] = self.slots[rowid][0]


def rows_of_one_set(cfg, count):
    return [n for n in range(1 << 12) if fold(n, cfg.rat_sets) == 0][:count]


@pytest.mark.parametrize("kind", ["rows", "plain", "mixed", "one row", "new rows"])
def test_one_packet_per_cycle(kind):
    """One-beat packets, a packet in each cycle: as many cycles as packets, and 3."""
    rng = random.Random(bench_seed())
    few = rows_of_one_set(SMALL, SMALL.rat_ways)
    packets = {
        "rows": [(rng.choice(few), 0, 16) for _ in range(200)],
        "plain": [(-1, rng.randrange(2), 16) for _ in range(200)],
        "mixed": [(rng.choice([*few, -1]), rng.randrange(2), 16) for _ in range(200)],
        "one row": [(few[0], 0, 16) for _ in range(200)],
        "new rows": [(n, 0, ROW_BYTES) for n in range(200)],
    }[kind]
    pipe = Pipe(SMALL, packets, rng)
    assert pipe.last - pipe.first == len(packets) + 2, f"{pipe.last - pipe.first + 1} cycles"
    cover("slot_allocator.pipe.packet_per_cycle")


@pytest.mark.parametrize("gaps", [0, 30, 70])
@pytest.mark.parametrize("turn", range(3))
def test_more_rows_than_ways(gaps, turn):
    """Rows of one set, more than it has ways, of two sources, packets of any length: each keeps its
    slot and its missing bytes, whatever stands beside it in the pipe."""
    rng = random.Random(bench_seed() + turn)
    few = rows_of_one_set(SMALL, 2 * SMALL.rat_ways)
    packets, last = [], few[0]
    for _ in range(400):
        last = rng.choice([last, *few])
        packets.append(
            (rng.choice([last, last, -1]), int(rng.random() < 0.1), 16 * rng.randrange(1, 4))
        )
    pipe = Pipe(SMALL, packets, rng, gaps)
    assert pipe.spills > 10 and pipe.hits > 10
    cover("slot_allocator.pipe.spills")
    cover("slot_allocator.pipe.hit_behind_itself", pipe.behind_itself)


@pytest.mark.parametrize(
    "bug",
    [
        # What a packet in front does to the set is not told to the one behind it.
        "slot_allocator.twin_not_told",
        # After a slow packet counters and set are not read again for those behind it.
        "slot_allocator.not_looked_at_again",
        # A tag written while its set is read.
        "slot_allocator.tag_not_passed",
        "slot_allocator.passed_tag_not_compared",
        "slot_allocator.tag_not_written_while_looked_at",
    ],
)
def test_mutants(bug):
    def run():
        with mutated(bug):
            test_more_rows_than_ways(0, 0)

    with pytest.raises(AssertionError):
        run()
