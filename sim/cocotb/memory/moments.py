# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the memory writer: two events that meet at one register, each pair in every
run."""

from itertools import product

from sim.quality.coverage import cover

from .rig import WriterRig


def on_call(gate):
    """A pause but for the cycles in which ``gate["go"]`` is set."""
    while True:
        yield not gate["go"]


@WriterRig.test(latency=1)
async def quiesce_moments(rig, cfg, rng):
    """``quiesce`` in one cycle with an acknowledgement taken, a command accepted, both, neither;
    also while one lasts."""
    acks, commands = {"go": False}, {"go": True}
    rig.o_ack.set_pause(on_call(acks))
    rig.i_write.set_pause(on_call(commands))
    depth = cfg.write_depth
    counts = sorted({1, 2, depth - 1, depth})
    for inside, ack, accept, again in product(counts, (0, 1), (0, 1), (0, 1)):
        if accept and inside == depth:
            continue  # there is no room for one more
        where = f"{inside} inside, ack {ack}, accept {accept}, again {again}"
        commands["go"] = True
        rig.put_many(inside, beats=1)
        await rig.until(lambda n=inside: rig.model.outstanding == n and rig.memory.idle, 200, where)
        await rig.cycles(4)  # the answers have met their contexts
        commands["go"] = False
        if accept:
            rig.put(beats=1)
        if again:
            await rig.quiesce()
            await rig.cycles(1)
        await rig.cycles(2)
        taken, accepted = rig.o_ack.count, rig.i_write.count
        acks["go"], commands["go"] = bool(ack), bool(accept)
        await rig.quiesce()
        acks["go"] = commands["go"] = False
        assert (rig.o_ack.count, rig.i_write.count) == (taken + ack, accepted + accept), (
            f"{where}: did not meet"
        )
        cover(f"memory.quiesce.{'ack' if ack else 'no_ack'}.{'accept' if accept else 'no_accept'}")
        cover("memory.quiesce.again", again and ack)
        left = inside + accept - ack
        await rig.sampled()
        assert rig.get("quiescing") == (left > 0), f"{where}: {left} left"
        # A later command is not waited for.
        later = left < depth
        await rig.cycles(1)
        if later:
            commands["go"] = True
            rig.put(beats=1)
        await rig.cycles(12)
        for n in range(left, 0, -1):
            assert rig.get("quiescing"), f"{where}: {n} acknowledgements are not taken"
            acks["go"] = True
            await rig.cycles(1)
            acks["go"] = False
            await rig.cycles(2)
        assert not rig.get("quiescing"), where
        acks["go"] = True
        await rig.done()
        acks["go"] = False


@WriterRig.test(latency=1)
async def counts_both_ways(rig, cfg, rng):
    """A burst written and another answered, a command accepted and another acknowledged, in the
    same cycle again and again."""
    met = {"written": 0, "accepted": 0}

    def look(cycle):
        wlast = all(rig.offered("w")) and int(rig.dut.mem__wlast.value)
        met["written"] += wlast & rig.offered("b")[0]
        met["accepted"] += rig.o_ack.stamps[-1:] == [cycle] == rig.i_write.stamps[-1:]

    rig.on_sample(look)
    # With a place or two the bursts come in turns only: random pauses let the events meet there
    # too.
    for pause in (None, "random"):
        rig.i_write.set_pause(pause, rng)
        rig.put_many(120, beats=1)
        await rig.finish()
    assert rig.get("outstanding") == 0
    cover("memory.written_as_answered", met["written"])
    cover("memory.accepted_as_acked", met["accepted"])
    # Nothing was lost: exactly as many commands fit as ever.
    rig.o_ack.set_pause("stop")
    rig.put_many(cfg.write_depth + 2, beats=1)
    await rig.cycles(40 + 4 * cfg.write_depth)
    assert rig.model.outstanding == cfg.write_depth
    rig.o_ack.set_pause(None)
