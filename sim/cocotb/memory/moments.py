# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the memory writer: two events that meet at one register, each pair in every
run."""

from itertools import product

import cocotb

from sim.quality.coverage import cover

from .tests import TB


def on_call(gate):
    """A pause but for the cycles in which ``gate["go"]`` is set."""
    while True:
        yield not gate["go"]


@cocotb.test()
async def quiesce_moments(dut):
    """``quiesce`` in one cycle with an acknowledgement taken, a command accepted, both, neither;
    also while one lasts."""
    tb = TB(dut, "moments", latency=1)
    acks, commands = {"go": False}, {"go": True}
    tb.acks.set_pause(on_call(acks))
    tb.writes.set_pause(on_call(commands))
    await tb.bench.reset()
    depth = tb.cfg.write_depth
    counts = sorted({1, 2, depth - 1, depth})
    for inside, ack, accept, again in product(counts, (0, 1), (0, 1), (0, 1)):
        if accept and inside == depth:
            continue  # there is no room for one more
        where = f"{inside} inside, ack {ack}, accept {accept}, again {again}"
        commands["go"] = True
        for _ in range(inside):
            tb.put(beats=1)
        await tb.bench.until(
            lambda n=inside: tb.model.outstanding == n and tb.memory.idle, 200, where
        )
        await tb.bench.cycles(4)  # the answers have met their contexts
        commands["go"] = False
        if accept:
            tb.put(beats=1)
        if again:
            await tb.quiesce()
            await tb.bench.cycles(1)
        await tb.bench.cycles(2)
        taken, accepted = tb.acks.count, tb.writes.count
        acks["go"], commands["go"] = bool(ack), bool(accept)
        await tb.quiesce()
        acks["go"] = commands["go"] = False
        assert (tb.acks.count, tb.writes.count) == (taken + ack, accepted + accept), (
            f"{where}: did not meet"
        )
        cover(f"memory.quiesce.{'ack' if ack else 'no_ack'}.{'accept' if accept else 'no_accept'}")
        cover("memory.quiesce.again", again and ack)
        left = inside + accept - ack
        await tb.bench.sampled()
        assert int(dut.quiescing.value) == (left > 0), f"{where}: {left} left"
        # A later command is not waited for.
        later = left < depth
        await tb.bench.cycles(1)
        if later:
            commands["go"] = True
            tb.put(beats=1)
        await tb.bench.cycles(12)
        for n in range(left, 0, -1):
            assert int(dut.quiescing.value), f"{where}: {n} acknowledgements are not taken"
            acks["go"] = True
            await tb.bench.cycles(1)
            acks["go"] = False
            await tb.bench.cycles(2)
        assert not int(dut.quiescing.value), where
        acks["go"] = True
        await tb.done()
        acks["go"] = False
    tb.finish()


@cocotb.test()
async def counts_both_ways(dut):
    """A burst written and another answered, a command accepted and another acknowledged, in the
    same cycle again and again."""
    tb = TB(dut, "both", latency=1)
    met = {"written": 0, "accepted": 0}

    def look(cycle):
        wlast = int(dut.mem__wvalid.value) & int(dut.mem__wready.value) & int(dut.mem__wlast.value)
        met["written"] += wlast & int(dut.mem__bvalid.value)
        met["accepted"] += tb.acks.stamps[-1:] == [cycle] == tb.writes.stamps[-1:]

    tb.bench.on_sample(look)
    await tb.bench.reset()
    # With a place or two the bursts come in turns only: random pauses let the events meet there
    # too.
    for pause in (None, "random"):
        tb.writes.set_pause(pause, tb.rng)
        for _ in range(120):
            tb.put(beats=1)
        await tb.done()
    tb.finish()
    assert int(dut.outstanding.value) == 0
    cover("memory.written_as_answered", met["written"])
    cover("memory.accepted_as_acked", met["accepted"])
    # Nothing was lost: exactly as many commands fit as ever.
    tb.acks.set_pause("stop")
    for _ in range(tb.cfg.write_depth + 2):
        tb.put(beats=1)
    await tb.bench.cycles(40 + 4 * tb.cfg.write_depth)
    assert tb.model.outstanding == tb.cfg.write_depth
    tb.acks.set_pause(None)
    await tb.done()
    tb.finish()
