# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl: what is promised, and what its closes say of it."""

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .rig import ProducerRig

PATIENCE = 64  # cycles that a tell waits for others
SENT = 40  # cycles from an answer to the end of a packet with one entry, credits there


@ProducerRig.test(grid=GRID)
async def random_promises(rig, cfg, rng, grid):
    """Tells of all kinds before, between and behind the stores; producers that keep them mostly;
    closes and close-alls between; peers slow, without credits or dead now and then."""
    for _ in range(2 * rig.params["commands"]):
        await rig.cycles(rng.choice((0, 5, 40)))
        index = rng.randrange(cfg.handles)
        entry = rig.model.entries[index]
        replica = rng.randrange(cfg.replicas)
        already = rig.accepted[index * cfg.replicas + replica, entry["epoch"]]
        rig.command(
            rng.choice((CommandOp.ANNOUNCE,) * 12 + (0, 1, 2, 4)),
            handle=index,
            replica=replica,
            bytes16=min((already >> 4) + rng.choice((0, 0, 1, 4, 30)), (1 << 30) - 1),
            more=rng.random() < 0.5,
            abort=rng.random() < 0.1,
            owner=rng.choice((entry["owner"],) * 9 + (5,)),
            epoch=(entry["epoch"] + rng.choice((0,) * 8 + (1, 15))) % 16,
        )
        for fault, often, share in (("slow", 0.2, 0.2), ("broke", 0.2, 0.2), ("dead", 0.05, 0.3)):
            if rng.random() < often:
                setattr(rig, fault, {rank for rank in range(cfg.ranks) if rng.random() < share})
        if len(rig.open) > 4:
            rig.slow, rig.broke = set(), set()
            await rig.until(lambda: len(rig.open) < 3, 20000, "answers")
    await rig.idle()
    assert any(not entry["close"] for _, entry in rig.entries) or rig.counted["tells_dropped"]
    cover(f"producer.promises.grid.{'.'.join(grid)}")


async def one_handle(rig, epoch=3, rank=1):
    """A handle of one replica, that of a rank, and nothing else."""
    await rig.start(entries=False)
    replica = [{"rank": rank, "region": 0}] * rig.cfg.replicas
    await rig.write(0, rig.mine(epoch=epoch, closed=0, log2_replicas=0, replica=replica), settle=4)


async def sends(rig, size):
    """The handle's stores leave, so many bytes in total."""
    key, before = (0, rig.view[0][0]["epoch"]), rig.rate
    while rig.accepted[key] < size and rig.view[0][0]["epoch"] == key[1]:
        rig.rate = 1
        await rig.cycles(1)
    rig.rate = before


def words(rig):
    """The entries that came, as (tell, close, abort, short, over, bytes16)."""
    names = ("tell", "close", "abort", "short", "over", "bytes16")
    return [tuple(entry[name] for name in names) for _, entry in rig.entries]


@ProducerRig.test(rate=0, prompt=1)
async def kept(rig, cfg, rng):
    """Told, then sent: the handle closes by itself, and says that it kept its word."""
    await one_handle(rig)
    assert await rig.announce(0, 3, 512) == Reason.OK
    rig.exact = True
    await sends(rig, 512)
    await rig.until(lambda: rig.model.entries[0]["epoch"] == 4, 500, "the close")
    await rig.idle()
    assert words(rig) == [(1, 0, 0, 0, 0, 32), (0, 1, 0, 0, 0, 0)]
    assert await rig.close(0, 3) == Reason.AFTER_CLOSE
    assert await rig.close_all(3) == Reason.OK
    await rig.idle()
    assert len(rig.entries) == 2
    cover("producer.kept_alone")


@ProducerRig.test(rate=0, prompt=1, cases={"how": ["short", "over", "nothing", "late", "abort"]})
async def broken(rig, cfg, rng, how):
    """Less than told, and more; nothing told; told when all has left; given up."""
    await one_handle(rig)
    if how == "late":
        rig.exact = False
        await sends(rig, 600)
        await rig.until(lambda: not rig.inside(), 500, "all stores")
        sent = rig.accepted[0, 3]
        assert await rig.announce(0, 3, sent // 16 * 16) == Reason.OK
        await rig.until(lambda: rig.model.entries[0]["epoch"] == 4, 500, "the close")
        over = int(sent % 16 > 0)
        wanted = [(1, 0, 0, 0, 0, sent // 16), (0, 1, 0, 0, over, 0)]
    elif how == "over":
        rig.exact = False
        await sends(rig, 600)
        assert await rig.announce(0, 3, 16) == Reason.OK
        wanted = [(1, 0, 0, 0, 0, 1), (0, 1, 0, 0, 1, 0)]
    else:
        told = how == "short"
        if told:
            assert await rig.announce(0, 3, 4096) == Reason.OK
        rig.exact = True
        await sends(rig, 512)
        sent = rig.accepted[0, 3]
        assert await rig.close(0, 3, abort=how == "abort") == Reason.OK
        untold = (1, 1, int(how == "abort"), 0, 0, sent // 16)
        wanted = [(1, 0, 0, 0, 0, 256), (0, 1, 0, 1, 0, 0)] if told else [untold]
    await rig.idle()
    assert words(rig) == wanted
    cover(f"producer.broken.{how}")


@ProducerRig.test(rate=0, prompt=1)
async def refused(rig, cfg, rng):
    """Of a replica that is told or not there, of another owner or epoch: nothing is promised."""
    await one_handle(rig)
    assert await rig.announce(0, 3, 64, owner=2) == Reason.FOREIGN
    assert await rig.announce(0, 4, 64) == Reason.EPOCH_EARLY
    assert await rig.announce(0, 2, 64) == Reason.EPOCH_STALE
    assert await rig.announce(0, 3, 64, replica=1) == Reason.UNKNOWN
    assert await rig.announce(0, 3, 64) == Reason.OK
    assert await rig.announce(0, 3, 64) == Reason.AFTER_CLOSE
    assert await rig.close(0, 3) == Reason.OK
    await rig.idle()
    assert words(rig) == [(1, 0, 0, 0, 0, 4), (0, 1, 0, 1, 0, 0)]
    cover("producer.announce_refused")


@ProducerRig.test(rate=0, prompt=1, fits=lambda cfg: cfg.replicas > 1)
async def replicas(rig, cfg, rng):
    """A handle closes when all its replicas are told and spent, not before; those that are not told
    are told 0 with the rest."""
    targets = [{"rank": n % cfg.ranks, "region": n} for n in range(cfg.replicas)]
    log2 = cfg.replicas.bit_length() - 1
    for rest in (False, True):
        await rig.start(entries=False)
        entry = rig.mine(epoch=6, closed=0, log2_replicas=log2, replica=targets)
        await rig.write(0, entry, settle=4)
        for replica in range(cfg.replicas - 1):
            assert await rig.announce(0, 6, 0, replica=replica) == Reason.OK
        await rig.cycles(200)
        assert rig.model.entries[0]["epoch"] == 6
        if rest:
            assert await rig.announce_all(6) == Reason.OK
        else:
            assert await rig.announce(0, 6, 0, replica=cfg.replicas - 1) == Reason.OK
        await rig.until(lambda: rig.model.entries[0]["epoch"] == 7, 100, "the close")
        await rig.idle()
        assert sorted(words(rig)) == sorted(
            [(1, 0, 0, 0, 0, 0)] * (cfg.replicas - rest)
            + [(0, 1, 0, 0, 0, 0)] * (cfg.replicas - rest)
            + [(1, 1, 0, 0, 0, 0)] * rest
        )
    cover("producer.replicas_told")


@ProducerRig.test(rate=0, prompt=1)
async def the_rest(rig, cfg, rng):
    """ANNOUNCE_ALL: handles that told nothing tell 0 and close, in one entry; what they sent is
    over; those that are told go on."""
    await rig.start(owner=1, epoch=5, closed=0, log2_replicas=0)
    assert await rig.announce(0, 5, 1 << 20) == Reason.OK
    rig.exact = True
    if cfg.handles > 1:
        rig.rate = 0.5
        await rig.until(lambda: rig.accepted[cfg.replicas, 5] > 64, 2000, "stores")
        rig.rate = 0
    assert await rig.announce_all(5) == Reason.OK
    await rig.cycles(10)
    epochs = [rig.model.entries[n]["epoch"] for n in range(cfg.handles)]
    assert epochs == [5] + [6] * (cfg.handles - 1)
    assert await rig.close_all(5) == Reason.OK
    await rig.idle()
    one = [entry for _, entry in rig.entries if entry["tell"] and entry["close"]]
    assert len(one) == cfg.handles - 1 and all(not entry["bytes16"] for entry in one)
    assert cfg.handles == 1 or any(entry["over"] for entry in one)
    cover("producer.the_rest")


@ProducerRig.test(rate=0, peek=0, prompt=1, hops=0)
async def when_tells_go(rig, cfg, rng):
    """At once without ``more``; else with the 16th for the peer, after 64 cycles at the latest, or
    with a close for it."""
    await rig.start(owner=1, epoch=5, closed=0, log2_replicas=0, replica=rig.all_to(1))
    began = rig.cycle
    assert await rig.announce(0, 5, 64) == Reason.OK
    await rig.idle()
    assert rig.o_news.stamps[-1] - began < SENT
    rig.command(CommandOp.CLOSE_ALL, epoch=5)
    await rig.idle()
    assert await rig.announce(0, 6, 64, more=1) == Reason.OK
    began = rig.cycle
    await rig.idle()
    assert PATIENCE - 8 < rig.o_news.stamps[-1] - began < PATIENCE + SENT
    cover("producer.tell_waits")
    if cfg.handles >= NEWS_ENTRIES:
        first = len(rig.packets)
        assert await rig.close_all(6) == Reason.OK
        await rig.idle()
        for index in range(NEWS_ENTRIES):
            rig.command(CommandOp.ANNOUNCE, handle=index, epoch=7, bytes16=1, more=1)
        await rig.idle()
        assert rig.packets[first:].count(NEWS_ENTRIES), rig.packets[first:]
        cover("producer.sixteen_tells")


@ProducerRig.test(rate=0, prompt=1)
async def two_tells(rig, cfg, rng):
    """A tell waits until that of the epoch before has gone; then the handle's two closes go too."""
    await one_handle(rig)
    rig.credits[1] = 0
    assert await rig.announce(0, 3, 160) == Reason.OK
    assert await rig.close(0, 3) == Reason.OK
    rig.command(CommandOp.ANNOUNCE, handle=0, epoch=4, bytes16=20)
    await rig.cycles(300)
    assert rig.open and not rig.entries
    rig.credits[1] = 2
    await rig.until(lambda: not rig.open, 200, "the answer")
    assert await rig.close(0, 4) == Reason.OK
    await rig.idle()
    assert sorted(words(rig)) == sorted(
        [(1, 0, 0, 0, 0, 10), (0, 1, 0, 1, 0, 0), (1, 0, 0, 0, 0, 20), (0, 1, 0, 1, 0, 0)]
    )
    cover("producer.tell_waits_for_tell")


@ProducerRig.test(rate=0, prompt=1, peek=0)
async def same_replica_twice(rig, cfg, rng):
    """Of two announcements of a replica the first counts, the second is refused: whenever the tell
    of the epoch before goes, also between the two."""
    await one_handle(rig, epoch=0)
    for delay in range(48):
        epoch = 2 * delay % 16
        assert await rig.announce(0, epoch, 160, more=1) == Reason.OK
        assert await rig.close(0, epoch) == Reason.OK
        await rig.cycles(delay)
        after = (epoch + 1) % 16
        for bytes16 in (20, 30):
            rig.command(CommandOp.ANNOUNCE, handle=0, epoch=after, bytes16=bytes16)
        await rig.idle()
        assert [one["status"] for one in rig.answered[-2:]] == [Reason.OK, Reason.AFTER_CLOSE]
        assert await rig.close(0, after) == Reason.OK
        await rig.idle()
        assert words(rig)[-2][0] == 1 and words(rig)[-2][-1] == 20, words(rig)
    cover("producer.same_replica_twice")


@ProducerRig.test(rate=0, prompt=1, fits=lambda cfg: cfg.replicas > 1)
async def tell_waits_beside_others(rig, cfg, rng):
    """A tell waits until that of its replica of the epoch before has gone, whatever is asked of the
    handle meanwhile; those of other replicas wait for nothing."""
    for replica in range(cfg.replicas):
        other = (replica + 1) % cfg.replicas
        await rig.start(entries=False)
        shape = {"log2_replicas": cfg.replicas.bit_length() - 1, "replica": rig.all_to(1)}
        await rig.write(0, rig.mine(epoch=3, closed=0, **shape), settle=4)
        rig.credits[1] = 0
        assert await rig.announce(0, 3, 160, replica=replica, more=1) == Reason.OK
        assert await rig.announce(0, 3, 320, replica=other, owner=2) == Reason.FOREIGN
        assert await rig.close(0, 3) == Reason.OK
        assert await rig.announce(0, 4, 320, replica=other, more=1) == Reason.OK
        rig.command(CommandOp.ANNOUNCE, handle=0, epoch=4, bytes16=20, replica=replica)
        await rig.cycles(200)
        assert rig.open and not rig.entries, f"the tell of replica {replica} did not wait"
        rig.credits[1] = 2
        await rig.until(lambda: not rig.open, 200, "the answer")
        assert await rig.close(0, 4) == Reason.OK
        await rig.idle()
    cover("producer.tell_waits_beside_others")


@ProducerRig.test(rate=0, prompt=1, fits=lambda cfg: cfg.replicas > 1)
async def tell_waits_though_others_go(rig, cfg, rng):
    """A tell waits for that of its replica of the epoch before, also when those of the others have
    gone meanwhile."""
    for replica in range(cfg.replicas):
        await rig.start(entries=False)
        to = [{"rank": int(one == replica), "region": 0} for one in range(cfg.replicas)]
        shape = {"log2_replicas": cfg.replicas.bit_length() - 1, "replica": to}
        await rig.write(0, rig.mine(epoch=3, closed=0, **shape), settle=4)
        rig.credits[1] = 0
        for one in (replica, *(one for one in range(cfg.replicas) if one != replica)):
            assert await rig.announce(0, 3, 160, replica=one) == Reason.OK
        await rig.until(lambda: len(rig.entries) == cfg.replicas - 1, 400, "the others' tells")
        assert await rig.close(0, 3) == Reason.OK
        rig.command(CommandOp.ANNOUNCE, handle=0, epoch=4, bytes16=20, replica=replica)
        await rig.cycles(200)
        assert rig.open, f"the tell of replica {replica} did not wait"
        rig.credits[1] = 2
        await rig.until(lambda: not rig.open, 200, "the answer")
        assert await rig.close(0, 4) == Reason.OK
        await rig.idle()
    cover("producer.tell_waits_though_others_go")


@ProducerRig.test(rate=0, prompt=1, fits=lambda cfg: cfg.dests <= 15)
async def many_tells_wait(rig, cfg, rng):
    """Tells of all destinations, of any owner, wait one behind the other for those of the epoch
    before: none is answered before, all are accepted then, in order."""
    for _ in range(6):
        await rig.start(entries=False)
        shape = {"log2_replicas": cfg.replicas.bit_length() - 1, "replica": rig.all_to(1)}
        owners = [rng.randrange(16) for _ in range(cfg.handles)]
        await rig.write_all([rig.entry(owner=own, epoch=3, closed=0, **shape) for own in owners])
        await rig.cycles(4)
        rig.credits[1] = 0
        dests = rng.sample(range(cfg.dests), cfg.dests)
        for epoch in (3, 4):
            for handle, replica in (divmod(dest, cfg.replicas) for dest in dests):
                told = {"owner": owners[handle], "replica": replica, "more": 1}
                size = {"epoch": epoch, "bytes16": rng.randint(1, 1 << 20)}
                rig.command(CommandOp.ANNOUNCE, handle=handle, **told, **size)
            await rig.cycles(100)
            if epoch == 4:
                assert len(rig.answered) == cfg.dests + cfg.handles
                rig.credits[1] = 2
            await rig.until(lambda: not rig.open and not rig.i_command.pending, 500, "answers")
            for handle, owner in enumerate(owners):
                assert await rig.close(handle, epoch, owner=owner) == Reason.OK
        assert {one["status"] for one in rig.answered} == {Reason.OK}
        await rig.idle()
    cover("producer.many_tells_wait")


@ProducerRig.test(rate=0, peek=0, cases={"stopped": ["answers", "ledger", "both"]})
async def tells_held_up(rig, cfg, rng, stopped):
    """Announcements come one after the other while nobody takes the answers, the ledger takes
    nothing, or both: none is lost, and each says what it was told."""
    for _ in range(4):
        log2 = cfg.replicas.bit_length() - 1
        await rig.start(owner=1, epoch=5, closed=0, log2_replicas=log2)
        rig.credits = dict.fromkeys(range(cfg.ranks), 0)
        if stopped != "ledger":
            rig.o_response.set_pause("stop")
        if stopped != "answers":
            rig.o_announce.set_pause("stop")
        beyond = 1 << cfg.handle_width
        dests = range(beyond * cfg.replicas)
        for dest in rng.sample(dests, min(len(dests), 15)):
            handle, replica = divmod(dest, cfg.replicas)
            told = {"replica": replica, "bytes16": rng.randint(1, (1 << 30) - 1)}
            owner = rng.choice((1, 1, 1, 5))
            rig.command(CommandOp.ANNOUNCE, handle=handle, epoch=5, owner=owner, more=1, **told)
        await rig.cycles(100)
        rig.o_response.set_pause("none")
        rig.o_announce.set_pause("none")
        await rig.cycles(60)
        assert await rig.close_all(5) == Reason.OK
        rig.credits = dict.fromkeys(range(cfg.ranks), 2)
        await rig.idle()
    cover(f"producer.held_up.{stopped}")


@ProducerRig.test(rate=0, prompt=1, peek=0, hops=0, fits=lambda cfg: 9 < cfg.dests <= 20)
async def sixteen_in_a_row(rig, cfg, rng):
    """Tells of one peer with ``more`` wait for 64 cycles; those that wait as the 16th in a row
    comes go at once: of each peer."""
    await rig.start(entries=False)
    log2, epoch = cfg.replicas.bit_length() - 1, 0
    for rank in reversed(range(cfg.ranks)):  # the last one told is not the first in line
        entry = {"closed": 0, "log2_replicas": log2, "replica": rig.all_to(rank)}
        await rig.write_all([rig.mine(epoch=epoch, **entry) for _ in range(cfg.handles)])
        await rig.cycles(4)
        for count in (2, 4, 10):
            before = len(rig.packets)
            for dest in rng.sample(range(cfg.dests), count):
                handle, replica = divmod(dest, cfg.replicas)
                told = {"epoch": epoch, "replica": replica, "bytes16": 1, "more": 1}
                await rig.cycles(4 if count < 10 else 1)  # ten before any has waited for long
                assert not rig.claims and len(rig.packets) == before, f"rank {rank}: too early"
                rig.command(CommandOp.ANNOUNCE, handle=handle, **told)
            await rig.idle()
            ended, came = rig.o_news.stamps[-1], rig.i_command.stamps[-count:]
            if count == 10:
                assert ended - came[-1] < SENT + 3 * count, f"rank {rank}: {ended}, told {came}"
            else:
                assert ended - came[0] > PATIENCE, f"rank {rank}: {ended}, told {came}"
            assert await rig.close_all(epoch) == Reason.OK
            await rig.idle()
            epoch = (epoch + 1) % 16
    cover("producer.sixteen_in_a_row")


@ProducerRig.test(rate=0, prompt=1)
async def spent_late(rig, cfg, rng):
    """What is spent is said only when the epoch after the next is told: it does not close that."""
    await one_handle(rig)
    assert await rig.announce(0, 3, 512) == Reason.OK
    await rig.idle()
    rig.i_spent.set_pause("stop")
    rig.exact = True
    await sends(rig, 512)
    assert await rig.close(0, 3) == Reason.OK
    assert await rig.close(0, 4) == Reason.OK
    await rig.idle()
    assert await rig.announce(0, 5, 512) == Reason.OK
    rig.i_spent.set_pause("none")
    await rig.cycles(200)
    assert rig.model.entries[0]["epoch"] == 5
    assert await rig.close(0, 5) == Reason.OK
    await rig.idle()
    cover("producer.spent_late")


@ProducerRig.test(rate=0.6)
async def dead_told(rig, cfg, rng):
    """A peer dies: its tells are dropped, and a handle that promised it bytes waits for a close."""
    await one_handle(rig)
    rig.slow, rig.exact = {1}, False
    await rig.cycles(60)
    rig.credits[1] = 0
    size = rig.accepted[0, 3] // 16 * 16 + 160
    assert await rig.announce(0, 3, size) == Reason.OK
    rig.rate, rig.dead = 0, {1}
    await rig.cycles(300)
    assert rig.model.entries[0]["epoch"] == 3 and rig.counted["tells_dropped"] == 1
    assert await rig.close(0, 3) == Reason.OK
    await rig.idle()
    assert not rig.entries and rig.dropped == 1
    cover("producer.dead_told")
