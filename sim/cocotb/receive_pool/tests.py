# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the receive pool against its golden model."""

from itertools import cycle

from sim.bench.streams import GRID
from sim.golden.receive_pool import TOTALS
from sim.quality.coverage import cover

from .rig import BATCH, PoolRig


@PoolRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Packets of all kinds from all sources over all links, some cut, some sources held; reset in
    traffic, then all over again."""
    for again in range(2):
        for src in rig.sources:
            rig.want(src, count=rng.randrange(1, rig.params["packets"]), cut=0.1)
        while not rig.quiet and rig.cycle < 100000:
            await rig.cycles(rng.choice((1, 5, 30)))
            rig.set("hold", rng.choice((0, 0, rng.getrandbits(cfg.ranks))))
            if not again and rng.random() < 0.1:
                break
        cover("receive_pool.reset.in_traffic", not again and not rig.quiet)
        rig.set("hold", 0)
        if not again:
            await rig.start()
    await rig.finish()
    cover(f"receive_pool.grid.{'.'.join(grid)}")
    cover("receive_pool.lost", any(beat["lost"] for beat in rig.o_record.items))
    cover("receive_pool.news", any(beat["header"]["news"] for beat in rig.o_record.items))


@PoolRig.test()
async def latency(rig, cfg, rng):
    """Into an idle pool: the first beat 3 cycles after the last one came in, then one per cycle."""
    for length in range(1, cfg.packet_flits + 1):
        for link in range(rig.links):
            rig.want(rng.choice(rig.sources), link, length=length)
            await rig.until(lambda: rig.quiet, what="the packet")
            await rig.cycles(rng.randrange(1, 60))
            end, _, beats = rig.records[-1]
            assert end - beats + 1 - rig.i_beat[link].stamps[-1] == 3
    cover("receive_pool.latency")


@PoolRig.test()
async def offered_before_taken(rig, cfg, rng):
    """The first beat is offered as soon whether it is taken or not, and stays."""
    for link in range(rig.links):
        rig.pause(cycle([1]), rig.o_record)
        rig.want(rng.choice(rig.sources), link)
        await rig.until(lambda: rig.all_in, what="the packet to come in")
        await rig.cycles(4)
        for _ in range(rng.randrange(1, 9)):
            assert rig.o_record.port.is_valid(), "waits to be asked"
            await rig.cycles(1)
        rig.o_record.set_pause(None)
        await rig.until(lambda: rig.quiet, what="the packet")
    cover("receive_pool.offered_before_taken")


@PoolRig.test()
async def waits_for_clearing(rig, cfg, rng):
    """What is there from the first cycle after reset waits until tables are cleared, and comes."""
    for src in rig.sources:
        rig.want(src, count=rig.model.first)
    await rig.reset()
    await rig.cycles(1)
    while rig.get("clearing"):
        assert not any(source.stamps for source in rig.i_source), "taken while tables are cleared"
        await rig.cycles(1)
    await rig.finish()
    cover("receive_pool.waits_for_clearing")


@PoolRig.test(cases={"length": ["full", "short"], "spread": ["one", "all"]})
async def rate(rig, cfg, rng, length, spread):
    """A beat in every cycle, of one source as of all, of whole packets as of those of one beat."""
    sources = rig.sources if spread == "all" else rig.sources[:1]
    await queued(rig, sources, **rig.full() if length == "full" else {"length": 1, "masked": 0})
    rig.set("hold", 0)
    first = len(rig.o_record.stamps)
    while not rig.quiet:
        await rig.cycles(1)
    stamps = rig.o_record.stamps[first:]
    assert stamps[-1] - stamps[0] == len(stamps) - 1, "a gap"
    # And while packets come in: as fast as the links bring them, a beat per cycle.
    for src in sources:
        rig.want(src, count=60 // len(sources), **rig.full())
    await rig.finish()
    cover(f"receive_pool.rate.{length}.{spread}")


async def queued(rig, sources, **fields):
    """All grants of the sources are used, and their packets wait in the pool."""
    rig.set("hold", (1 << rig.cfg.ranks) - 1)
    for src in sources:
        rig.want(src, count=rig.books[src].left, **fields)
    await rig.until(lambda: rig.all_in, what="all to come in")
    await rig.cycles(8)


@PoolRig.test(fits=lambda cfg: cfg.ranks > 2)
async def turns(rig, cfg, rng):
    """Sources with packets take turns, whatever the own number; a held one has none, and loses
    none."""
    for rank in range(cfg.ranks):
        rig.stands_at(rank)
        await rig.start()
        await turns_of(rig, rng)
    cover("receive_pool.turns")


async def turns_of(rig, rng):
    """The same at this number."""
    await queued(rig, rig.sources)
    held = rng.choice(rig.sources)
    rig.set("hold", 1 << held)
    others = [src for src in rig.sources if src != held]
    each = rig.model.first
    await rig.until(lambda: len(rig.records) == each * len(others), what="the others")
    order = [src for _, src, _ in rig.records]
    for n in range(0, len(order), len(others)):
        assert sorted(order[n : n + len(others)]) == others, order
    await rig.cycles(20)
    assert rig.model.held[held] == each
    rig.set("hold", 0)
    await rig.finish()
    for _ in range(6):  # packets of one beat, whoever was served last, and one without any
        sources = rng.sample(rig.sources, rng.randint(2, len(rig.sources)))
        first = len(rig.records)
        await queued(rig, sources, length=1, masked=0)
        rig.set("hold", 0)
        await rig.until(lambda: rig.quiet, what="all packets")
        order = [src for _, src, _ in rig.records[first:]]
        least = min(map(order.count, sources)) * len(sources)
        for n in range(len(sources), least):
            assert order[n] == order[n - len(sources)], order
        await rig.cycles(rng.randrange(9))


@PoolRig.test(cases={"where": ["inside", "held"]}, fits=lambda cfg: cfg.ranks > 2)
async def one_stands_still(rig, cfg, rng, where):
    """A source that stops inside a packet, or whose packets are not taken, holds nobody else."""
    stopped, *others = rig.sources
    link = rng.randrange(rig.links)
    if where == "inside":
        flits, beats = rig.packet(stopped, **rig.full())
        rig.send(stopped, link, flits, beats[:-1])
        rig.books[stopped].left -= 1
        if len(beats) == 1:
            rig.i_source[link].put(stopped)
            rig.flying[link].clear()
        await rig.cycles(10)
    else:
        rig.set("hold", 1 << stopped)
        rig.want(stopped, count=2 * rig.model.places)
    links = [n for n in range(rig.links) if n != link or where == "held"]
    for src in others if links else ():
        rig.want(src, links[0], count=3 * rig.model.places)
    limit = 400 * rig.model.places
    await rig.until(lambda: not any(rig.wanted[src] for src in others), limit, "others to be sent")
    await rig.until(lambda: sum(map(rig.model.held.get, others)) == 0, what="others to come")
    cover(f"receive_pool.still.{where}")
    rig.set("hold", 0)
    if where == "inside":
        rig.i_beat[link].put(beats[-1])
    await rig.finish()


@PoolRig.test(fits=lambda cfg: cfg.ranks > 2)
async def need(rig, cfg, rng):
    """A source alone gets all places but the others' reserve; one that sends a little has its first
    share soon, and keeps it; when all want some they share; once all is quiet everybody has its
    first share again."""
    alone, *others = rig.sources
    model = rig.model
    rig.want(alone, count=120 * model.most, **rig.full())
    await rig.until(lambda: all(model.has(src) == 2 for src in others), 20000, "all places")
    assert model.has(alone) >= model.most - BATCH, model.has(alone)
    cover("receive_pool.need.alone")
    while model.has(others[0]) < model.first:
        assert rig.wanted[alone], "the pool is not short any more"
        rig.want(others[0], count=1, **rig.full())
        await rig.cycles(rig.params["period"] // 2)
    for _ in range(16):
        rig.want(others[0], count=1, **rig.full())
        await rig.cycles(rig.params["period"] // 2)
        assert model.has(others[0]) >= model.first - 2, model.has(others[0])
    assert rig.wanted[alone], "the pool is not short any more"
    cover("receive_pool.need.few")
    for src in others:
        rig.want(src, count=20 * model.first, **rig.full())
    fair = 2 * model.first // 3
    await rig.until(lambda: min(map(model.has, rig.sources)) >= fair, 40000, "a fair share")
    cover("receive_pool.need.shared")
    await rig.finish()
    await rig.settled(12)
    shares = {src: model.has(src) for src in rig.sources}
    assert min(shares.values()) >= model.first - 1, shares
    cover("receive_pool.need.quiet")


@PoolRig.test(watchdog=0)
async def silent_at_first(rig, cfg, rng):
    """Nobody is told anything before a packet has come: the own rank may not be set yet."""
    await rig.cycles(4 * rig.params["period"])
    assert not rig.grants, rig.grants
    rig.want(rng.choice(rig.sources), count=4 * rig.model.most)
    await rig.finish()
    cover("receive_pool.silent_at_first")


@PoolRig.test()
async def abuse(rig, cfg, rng):
    """A source sends what it may not, over any link: its packets are dropped and counted, nobody's
    grants shrink, the pool never has more packets than places; then it behaves again."""
    for link in range(rig.links):
        for culprit in rig.sources:
            await rig.start()  # grants of before the reset are not those of after
            await abuse_over(rig, link, culprit)
    cover("receive_pool.violation")


async def abuse_over(rig, link, culprit):
    """The same over one link, of one source."""
    others = [src for src in rig.sources if src != culprit]
    rig.set("hold", (1 << rig.cfg.ranks) - 1)
    beyond = 5
    for n in range(rig.model.first + beyond):
        flits, beats = rig.packet(culprit, **rig.full())
        if n >= rig.model.first:
            rig.refused.append(beats[0])
        rig.send(culprit, link, flits, beats)
    rig.books[culprit].left = 0
    for src in others:
        rig.want(src, count=rig.model.first)
    await rig.until(lambda: rig.all_in, what="all to come in")
    await rig.cycles(10)
    assert rig.counts["violation"] == beyond
    assert rig.model.held[culprit] == rig.model.first
    rig.set("hold", 0)
    for src in rig.sources:
        rig.want(src, count=10)
    await rig.finish()


@PoolRig.test(watchdog=0)
async def limits_are_exact(rig, cfg, rng):
    """Whatever the totals, a source may use its last grant and not one more, and gives back none
    that it has used."""
    src = rig.sources[0]
    for turn in range(9):  # to beyond 2048, and once around
        rig.want(src, count=rng.randrange(430, 560), length=1, masked=0)
        await rig.until(lambda: not rig.wanted[src], 60000, "the packets")
        rig.set("hold", (1 << cfg.ranks) - 1)
        await rig.settled(2)
        while rig.books[src].left:  # what it is told meanwhile it uses, too
            rig.want(src, count=rig.books[src].left, length=1, masked=0)
            await rig.settled(2)
        rig.wanted[src].clear()  # it may have been asked for its last ones
        assert rig.all_in
        before = rig.counts.copy()
        flits, beats = rig.packet(src, length=1, masked=0)
        rig.refused.append(beats[0])
        rig.send(src, turn % rig.links, flits, beats)
        await rig.settled(0)
        assert rig.counts["violation"] == before["violation"] + 1
        rig.says(src, (rig.books[src].returned + rng.randrange(1, 3)) % TOTALS, true=False)
        await rig.settled(0)
        assert rig.counts["impossible"] > before["impossible"]
        rig.says(src, rig.books[src].returned)
        rig.set("hold", 0)
    await rig.finish()
    cover("receive_pool.limits_are_exact")


@PoolRig.test(cases={"pause": ["random", "long"]}, watchdog=0)
async def messages_wait(rig, cfg, rng, pause):
    """Messages to sources are taken late: each is held until then, none is lost for good."""
    rig.visited_in *= 8
    rig.pause("random" if pause == "random" else cycle([1] * 13 + [0]), rig.o_grant)
    for _ in range(6):
        for src in rig.sources:
            rig.want(src, count=rng.randrange(2 * rig.model.places), length=1, masked=0)
        await rig.until(lambda: rig.quiet, 60000, "all packets")
    rig.o_grant.set_pause(None)
    await rig.finish()
    cover("receive_pool.messages_wait")


@PoolRig.test()
async def false_returns(rig, cfg, rng):
    """A source says that it gave back what it has used, or never had: nothing changes."""
    src = rng.choice(rig.sources)
    await queued(rig, [src])
    for lie in (rig.model.has(src), rig.model.most + 1, 4095):
        before = rig.counts["impossible"]
        rig.says(src, (rig.books[src].returned + lie) % 4096, true=False)
        await rig.cycles(20 * cfg.ranks)
        assert rig.counts["impossible"] > before, lie
    rig.says(src, rig.books[src].returned)
    rig.set("hold", 0)
    rig.want(src, count=5 * rig.model.most)
    await rig.finish()
    cover("receive_pool.impossible")


@PoolRig.test()
async def claims_beyond_all(rig, cfg, rng):
    """A source that says it gave back more than it has, however much, changes nothing, not even for
    a cycle: what it may send comes in."""
    src = rng.choice(rig.sources)
    for bit in [*range(12), *range(12)]:
        await rig.settled(2)  # it has been told all that it has
        has = rig.model.has(src)
        near = (1 << bit) + rng.randrange(has)  # but for this bit it would be true
        lie = near if near > has else has + 1 + rng.randrange(1 << bit)
        before = rig.counts.copy()
        rig.says(src, (rig.books[src].returned + lie) % TOTALS, true=False)
        few = max(1, rig.model.first // 4 - 1)  # of more it needs more, and then has what it claims
        rig.want(src, count=few, length=1, masked=0)
        await rig.until(lambda: rig.quiet, what="all packets")
        await rig.cycles(2 * rig.visited_in)
        assert rig.counts["impossible"] > before["impossible"], lie
        assert rig.counts["violation"] == before["violation"], f"refused while it claimed {lie}"
        rig.says(src, rig.books[src].returned)
    await rig.finish()
    cover("receive_pool.claims_beyond_all")


@PoolRig.test(watchdog=0)
async def totals_wrap(rig, cfg, rng):
    """More packets than totals can tell apart."""
    src = rig.sources[0]
    for _ in range(9):
        rig.want(src, count=500, length=1, masked=0)
        await rig.until(lambda: not rig.wanted[src], 60000, "500 packets")
    await rig.finish()
    cover("receive_pool.totals_wrap")


@PoolRig.test(
    cases={"sources": ["one", "all", "stopped"]},
    fits=lambda cfg: cfg.ranks == 8,
    delay=521,
    paced=True,
    finish=False,
)
async def over_a_microsecond(rig, cfg, rng, sources):
    """Links with a microsecond there and back, three flits in two cycles: a source alone keeps
    them full, so do all together, and all but one that stopped inside a packet."""
    senders = rig.sources[: 1 if sources == "one" else None]
    if sources == "stopped":
        stopped, *senders = senders
        flits, beats = rig.packet(stopped, **rig.full())
        rig.i_source[0].put(stopped)
        rig.i_beat[0].put(beats[0])
    links = rig.links - (sources == "stopped")
    if sources == "stopped":  # what shares the link with that packet waits on the wire
        rig.closed = {0}
    warm_up, measured = 14 * 1042, 2 * 1042
    each = (warm_up + measured) * links // 6 // len(senders) + 700
    for src in senders:
        rig.want(src, count=each, spread=True, **rig.full())
    await rig.cycles(warm_up)
    before = len(rig.records)
    await rig.cycles(measured)
    share = (len(rig.records) - before) * 6 / links / measured
    if figures := rig.params.get("figures"):
        with open(figures, "a") as file:
            file.write(f"{sources} {share:.4f}\n")
    assert share >= 0.98, f"{share:.3f} of the links"
    cover(f"receive_pool.microsecond.{sources}")
