# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of ProducerControl: latencies, whose turn it is, full queues, software at the full
rate."""

from itertools import cycle, pairwise, permutations, product

from hub_rtl.contract.packets import NEWS_ENTRIES, CommandOp, Reason
from sim.quality.coverage import cover

from .rig import ProducerRig

CLOSE_CYCLES, FENCE_CYCLES = 7, 29  # from a command to its answer in an idle hub
TELL_CYCLES = 7  # from an ANNOUNCE with ``more`` to its answer
REMOTE_CYCLES = 34  # from a FENCE_REMOTE to its answer, nobody to be asked
NEWS_CYCLES = 46  # from a CLOSE to the end of its packet


@ProducerRig.test(rate=0, peek=0, hops=0, prompt=1)
async def latency(rig, cfg, rng):
    """Nothing under way: answers and message come in the cycles that the documentation names."""
    await rig.start(owner=1, epoch=2, log2_replicas=0)
    rig.memories.asked, rig.unasked = set(), 0
    for index in range(cfg.handles):
        for op, cycles, fields in (
            (CommandOp.CLOSE, CLOSE_CYCLES, {"handle": index, "epoch": 2}),
            (CommandOp.FENCE, FENCE_CYCLES, {}),
            (CommandOp.FENCE_REMOTE, REMOTE_CYCLES, {}),
        ):
            assert await rig.do(op, **fields) == Reason.OK
            took = rig.o_response.stamps[-1] - rig.i_command.stamps[-1]
            assert took == cycles, f"{op.name} answered after {took} cycles"
            await rig.idle()
            if op == CommandOp.CLOSE:
                took = rig.o_news.stamps[-1] - rig.i_command.stamps[-1]
                assert took == NEWS_CYCLES, f"news after {took} cycles"
    cover("producer.latency")


def unlike(cfg, rng, bit, apart):
    """Eight destinations, of handles that there are and others; the last one is there. Two, so far
    apart, differ by this bit. Never 0, which after a reset may wait as if it had been asked."""
    every = range(1, cfg.replicas << cfg.handle_width)
    one = rng.choice([dest for dest in every if dest ^ 1 << bit in every])
    rest = [dest for dest in every if dest not in (one, one ^ 1 << bit)]
    last = rng.choice([dest for dest in rest if dest < cfg.dests])
    others = rng.sample([dest for dest in rest if dest != last], 5)
    return [one, *others[1:apart], one ^ 1 << bit, *others[apart:], others[0], last]


@ProducerRig.test(rate=0, peek=0, hops=0, prompt=1, fits=lambda cfg: cfg.handles > 4)
async def announced_at_once(rig, cfg, rng):
    """Announcements of different destinations, however alike, are accepted or refused and answered
    one per cycle; the last, without ``more``, is answered three cycles later."""
    log2 = cfg.replicas.bit_length() - 1
    rounds = list(product(range(log2 + cfg.handle_width), range(1, 6)))
    rounds = 2 * rounds if cfg.handles <= 8 else rng.sample(rounds, 5)
    for bit, apart in rounds:
        await rig.start(owner=1, epoch=2, log2_replicas=log2)
        dests = unlike(cfg, rng, bit, apart)
        for dest in dests:
            handle, replica = divmod(dest, cfg.replicas)
            told = {"epoch": 2, "bytes16": 2, "more": dest != dests[-1]}
            rig.command(CommandOp.ANNOUNCE, handle=handle, replica=replica, **told)
        await rig.until(lambda: len(rig.answered) == 8, 200, "answers")
        came, stamps = rig.i_command.stamps[-8:], rig.o_response.stamps[-8:]
        assert [stamp - came[0] for stamp in came] == [*range(8)], came
        took = [stamp - first for stamp, first in zip(stamps, came, strict=True)]
        assert took == [TELL_CYCLES] * 7 + [TELL_CYCLES + 3], took
        wanted = [Reason.OK if dest < cfg.dests else Reason.UNKNOWN for dest in dests]
        assert rig.reasons == wanted, f"{dests}: {rig.reasons}"
        await rig.idle()
        tells = [entry["bytes16"] for _, entry in rig.entries if entry["tell"]]
        assert tells == [2] * wanted.count(Reason.OK)
    cover("producer.announced_at_once")


@ProducerRig.test(rate=0, peek=0)
async def turns(rig, cfg, rng):
    """Fences hold up no commands; a full answer port holds up both."""
    await rig.start(owner=1, epoch=2)
    for again in range(3):
        before = len(rig.answered)
        closes = [CommandOp.CLOSE] * 4
        for op in (CommandOp.FENCE, *closes, CommandOp.FENCE, CommandOp.FENCE, *closes):
            rig.command(op, epoch=9)
        rig.o_response.set_pause("stop" if again == 1 else "none")
        await rig.cycles(150)
        rig.o_response.set_pause("none")
        await rig.idle()
        ops = [one["op"] for one in rig.answered[before:]]
        assert len(ops) == 11
        if again != 1:
            # No fence holds up a close; those that come while one is under way wait for the next.
            assert ops[0] == CommandOp.CLOSE and ops[-1] == CommandOp.FENCE, ops
    cover("producer.turns")


@ProducerRig.test(rate=0, peek=0)
async def slow_answers(rig, cfg, rng):
    """Answers are taken slowly: those of fences and of other commands go by turns."""
    for op in (CommandOp.CLOSE, CommandOp.ANNOUNCE):
        await rig.start(owner=1, epoch=2)
        rig.o_response.set_pause(cycle([True] * 40 + [False]))
        for _ in range(4):
            rig.command(CommandOp.FENCE)
        for _ in range(10):
            rig.command(op, epoch=9)
        await rig.idle()
        fences = [n for n, one in enumerate(rig.answered) if one["op"] == CommandOp.FENCE]
        assert len(fences) == 4 and fences[0] < 6, fences
        assert all(later - earlier == 2 for earlier, later in pairwise(fences[1:])), fences
    cover("producer.slow_answers")


@ProducerRig.test(rate=0, peek=0)
async def most_closes(rig, cfg, rng):
    """Two closes of every handle, as many as there can be, wait for a flush that does not end; the
    second by command, or by itself when what it told has left. Nothing of this waits, what is spent
    is taken, a third is held; then all go, marked and sent in order."""
    by_itself = [False, True, True]
    for told in by_itself:
        await rig.start(entries=False)
        await rig.write_all([rig.mine(epoch=4, closed=0) for _ in range(cfg.handles)])
        await rig.cycles(4)
        rig.halted = True
        rig.store(rig.lanes[0], 0, 4, rig.model.entries[0]["replica"][0]["rank"], 16)
        rig.command(CommandOp.FENCE)
        assert await rig.close_all(4) == Reason.OK
        if told:
            await keep_all(rig, 5)
        else:
            assert await rig.close_all(5) == Reason.OK
        await rig.until(lambda: rig.epochs == {6}, 2000, "the second close of each handle")
        assert await rig.close_all(6) == Reason.EPOCH_EARLY
        await rig.cycles(150)
        assert rig.open and not rig.messages, "the flush has not ended"
        await rig.idle()
        assert rig.epochs == {6}
        cover("producer.most_closes.told", told)
    cover("producer.most_closes")


async def keep_all(rig, epoch):
    """Every replica is told some bytes, which leave by a packet manager that is not halted."""
    for index, entry in list(rig.model.entries.items()):
        for replica in range(1 << entry["log2_replicas"]):
            dest, rank = index * rig.cfg.replicas + replica, entry["replica"][replica]["rank"]
            assert await rig.announce(index, epoch, 32, replica) == Reason.OK
            rig.store(rig.rng.choice(rig.pools), dest, epoch, rank, 32)


def news_for_one(rig, tells, closes):
    """Queues tells of so many destinations, of any size, then closes of the first handles."""
    cfg = rig.cfg
    for dest in rig.rng.sample(range(cfg.dests), tells):
        handle, replica = divmod(dest, cfg.replicas)
        told = {"replica": replica, "bytes16": rig.rng.getrandbits(30), "more": 1}
        assert rig.command(CommandOp.ANNOUNCE, handle=handle, epoch=3, **told)
    for handle in range(closes):
        assert rig.command(CommandOp.CLOSE, handle=handle, epoch=3)


async def only_one_peer(rig):
    """Everything is for rank 1, which gives no credit."""
    log2 = rig.cfg.replicas.bit_length() - 1
    await rig.start(entries=False)
    entry = {"epoch": 3, "closed": 0, "log2_replicas": log2, "replica": rig.all_to(1)}
    await rig.write_all([rig.mine(**entry) for _ in range(rig.cfg.handles)])
    await rig.cycles(4)
    rig.credits[1] = 0


@ProducerRig.test(rate=0, prompt=1, stall="random", fits=lambda cfg: cfg.dests <= 20)
async def packets_of_each_size(rig, cfg, rng):
    """One to sixteen tells and closes, any bytes in each, wait for a credit of their peer: they
    make one packet."""
    for size in range(1, min(NEWS_ENTRIES, 2 * cfg.dests) + 1):
        least = max(0, -(-(size - cfg.dests) // cfg.replicas))
        closes = rng.randint(least, max(least, min(cfg.handles, size // cfg.replicas)))
        await only_one_peer(rig)
        news_for_one(rig, size - closes * cfg.replicas, closes)
        await rig.cycles(160)
        rig.credits[1] = 2
        await rig.idle()
        assert rig.packets == [size], rig.packets
        cover("producer.packet_of_11", size == 11)


@ProducerRig.test(rate=0, prompt=1, stall="random", fits=lambda cfg: cfg.dests <= 20)
async def more_than_a_packet(rig, cfg, rng):
    """Tells of all destinations and two closes of each wait for a credit, then for the port: one
    flush for each CLOSE_ALL, full packets but the last, all bytes in them."""
    for again in range(3):
        await only_one_peer(rig)
        flushes = []
        rig.on_sample(lambda cycle, seen=flushes: seen.append(rig.get("o_flush")))
        for dest in range(cfg.dests):
            replica = {"replica": dest % cfg.replicas, "bytes16": rng.getrandbits(30), "more": 1}
            rig.command(CommandOp.ANNOUNCE, handle=dest // cfg.replicas, epoch=3, **replica)
            if dest % 8 == 7:
                await rig.until(lambda: not rig.open, 100, "answers")
        for epoch in (3, 4):
            assert await rig.close_all(epoch) == Reason.OK
            await rig.cycles(60)  # the flush is over
            for dest in range(cfg.dests if epoch == 3 else 0):
                size = rng.getrandbits(cfg.total_width)
                rig.store(rig.lanes[dest % cfg.lanes], dest, 4, 1, max(1, size))
            await rig.until(lambda: not rig.inside(), 1000, "all stores")
        await rig.cycles(200)
        assert sum(flushes) == 2, f"{sum(flushes)} flushes for two CLOSE_ALLs"
        rig.o_news.set_pause("stop" if again else "random", rng)
        rig.credits[1] = 2
        await rig.cycles(150)
        rig.o_news.set_pause("random", rng)
        await rig.idle()
        full, rest = divmod(3 * cfg.dests, NEWS_ENTRIES)
        assert rig.packets == [NEWS_ENTRIES] * full + [rest] * (rest > 0), rig.packets
    cover("producer.more_than_a_packet")


@ProducerRig.test(rate=0, prompt=1, peek=0, fits=lambda cfg: 2 < cfg.ranks <= cfg.dests)
async def peers_in_turn(rig, cfg, rng):
    """Peers that get credits at the same time are served in the order of their numbers, from the
    one after the last on and that one at the end, whoever of them is missing."""
    log2, epoch = cfg.replicas.bit_length() - 1, 0
    handles = min(cfg.handles, NEWS_ENTRIES // cfg.replicas)  # one packet for each peer
    await rig.start(entries=False)
    for last in range(cfg.ranks):
        for gap in range(1, cfg.ranks):
            after = [(last + gap + n) % cfg.ranks for n in range(cfg.ranks - gap + 1)]
            for ranks in [last], after, [last], after[:1] + after[2:]:
                for index in range(handles):
                    dests = range(index * cfg.replicas, (index + 1) * cfg.replicas)
                    replica = [{"rank": ranks[dest % len(ranks)], "region": 0} for dest in dests]
                    entry = {"epoch": epoch, "closed": 0, "log2_replicas": log2}
                    await rig.write(index, rig.mine(**entry, replica=replica))
                await rig.cycles(4)
                rig.credits, rig.due = dict.fromkeys(range(cfg.ranks), 0), []
                assert await rig.close_all(epoch) == Reason.OK
                await rig.cycles(60 + 4 * cfg.dests)  # all are listed, and ask for credits
                assert not rig.claims
                first = len(rig.served)
                rig.credits = dict.fromkeys(range(cfg.ranks), 2)
                await rig.idle()
                assert rig.served[first:] == ranks, f"{rig.served[first:]}, expected {ranks}"
                epoch = (epoch + 1) % 16
    cover("producer.peers_in_turn")


@ProducerRig.test(rate=0, prompt=1, peek=0, fits=lambda cfg: min(cfg.ranks, cfg.handles) > 1)
async def peers_wait_alone(rig, cfg, rng):
    """What one peer waits for, a credit or the ledger, holds up no other: its tells and closes go.
    A close that waits for a credit asks for one flush of the ledger."""
    flushes = []
    rig.on_sample(lambda _: flushes.append(rig.get("ledger_flush")))

    def came(rank, what):
        return any(to == rank and entry[what] for to, entry in rig.entries)

    for a, b in permutations(range(cfg.ranks), 2):
        await rig.start(entries=False)
        for index, rank in enumerate((a, b)):
            entry = {"epoch": 3, "closed": 0, "log2_replicas": 0, "replica": rig.all_to(rank)}
            await rig.write(index, rig.mine(**entry), settle=4)
        rig.credits = dict.fromkeys(range(cfg.ranks), 0)
        for handle in range(2):
            assert await rig.announce(handle, 3, 160) == Reason.OK
        await rig.cycles(40)
        rig.credits[b] = 1
        await rig.until(lambda b=b: came(b, "tell"), 100, f"what rank {b} is told, while {a} waits")
        rig.credits[a] = 1
        await rig.until(lambda a=a: came(a, "tell"), 100, f"what rank {a} is told")
        await rig.cycles(30)
        rig.credits = dict.fromkeys(range(cfg.ranks), 0)
        flushes.clear()
        assert await rig.close(0, 3) == Reason.OK
        await rig.cycles(100)
        assert sum(flushes) == 1, f"{sum(flushes)} flushes for one close of rank {a}"
        rig.ledger_stands = True
        rig.store(rig.pools[0], cfg.replicas, 3, b, 32)
        await rig.cycles(20)
        assert await rig.close(1, 3) == Reason.OK
        await rig.cycles(80)
        assert rig.get("ledger_flushing") and not came(a, "close")
        rig.credits = dict.fromkeys(range(cfg.ranks), 1)
        await rig.until(lambda a=a: came(a, "close"), 100, f"rank {a}'s close, while {b} waits")
        assert rig.get("ledger_flushing") and not came(b, "close")
        rig.ledger_stands = False
        await rig.idle()
    cover("producer.peers_wait_alone")


@ProducerRig.test(rate=0.6)
async def blocked_messages(rig, cfg, rng):
    """Nobody takes packets: the closes of two are read meanwhile; then all go, the peers in
    turn."""
    await rig.start(entries=False)
    await rig.write_all(
        [
            rig.mine(
                epoch=9,
                replica=[
                    {"rank": (index + n) % cfg.ranks, "region": n % cfg.regions}
                    for n in range(cfg.replicas)
                ],
            )
            for index in range(cfg.handles)
        ]
    )
    await rig.cycles(60)
    rig.rate = 0
    rig.o_news.set_pause("stop")
    assert await rig.close_all(9) == Reason.OK
    await rig.until(lambda: rig.claims, 600, "the first packet")
    await rig.cycles(100 + 2 * cfg.dests)  # all are listed
    peers = len({rank for rank, due in rig.model.due.items() if due} | {job[0] for job in rig.jobs})
    begun = len(rig.claims)
    assert not rig.messages and begun == min(2, peers) and len(rig.jobs) <= 2 * NEWS_ENTRIES, (
        f"{len(rig.jobs)} closes of {begun} packets on their way, peers {peers}"
    )
    cover("producer.messages_blocked", begun == 2)
    rig.o_news.set_pause("none")
    await rig.idle()
    # Two were chosen before all could have a turn.
    assert len(set(rig.served[: 2 + peers])) == peers, f"a peer had no turn: {rig.served}"


@ProducerRig.test(rate=0, peek=0)
async def software_turns(rig, cfg, rng):
    """Software reads and writes in every cycle: they go first, nothing granted is lost, and closes
    go on afterwards."""
    for _ in range(6):
        await rig.start(owner=1, epoch=4)
        rig.broke = {rng.randrange(cfg.ranks)}
        rig.command(CommandOp.CLOSE_ALL, epoch=4)
        await rig.cycles(rng.randrange(6))
        rig.asks.extend(rng.randrange(cfg.handles) for _ in range(24))
        await rig.until(lambda: not rig.open and not rig.i_command.pending, what="answer")
        # Two closes may wait per handle, one of each bank, whatever software makes of the entry.
        for _ in range(40):
            index = rng.randrange(cfg.handles)
            other = rng.randrange(cfg.handles)
            rig.asks.extend(rng.choice(((index,), (index, index), (other,), ())))
            await rig.write(index, rig.entry())
        rig.broke = set()
        await rig.until(lambda: not any(rig.model.due.values()), 2000, "all closes")
        rig.asks.extend(range(cfg.handles))
        await rig.idle()
    cover("producer.software_turns")


@ProducerRig.test(rate=0, peek=0)
async def before_cleared(rig, cfg, rng):
    """While the table is cleared, software's writes are lost and commands wait."""
    cleared = []
    rig.on_sample(lambda cycle: cleared.append(not rig.get("clearing")))
    await rig.reset()
    rig.command(CommandOp.CLOSE_ALL, epoch=1)
    rig.command(CommandOp.FENCE)
    for index in range(cfg.handles):
        await rig.pulse("handle_write", index=cfg.handles - 1 - index, handle=rig.entry())
        assert not rig.i_command.stamps, "a command was taken before the table was cleared"
    await rig.cycles(1)
    assert cleared == [False] * cfg.handles + [True], f"the table was cleared by cycles {cleared}"
    rig.asks.extend(range(cfg.handles))
    await rig.idle()
    assert rig.reasons == [Reason.OK] * 2
    cover("producer.before_cleared")


@ProducerRig.test(rate=0.9)
async def drains(rig, cfg, rng):
    """Packets of some peers stay in some packet managers: closes and fences wait for just these,
    and for each of them."""
    await rig.start(entries=False)
    for again in range(12):
        epoch = again % 16
        ranks = rng.sample(range(cfg.ranks), rng.randint(1, cfg.ranks))
        rig.rate = 0
        await rig.write_all(
            [
                rig.mine(
                    epoch=epoch,
                    log2_replicas=min(1, cfg.replicas.bit_length() - 1),
                    replica=[
                        {"rank": rng.choice(ranks), "region": index % cfg.regions}
                        for _ in range(cfg.replicas)
                    ],
                )
                for index in range(cfg.handles)
            ]
        )
        rig.stuck = {(n, rank) for n in range(cfg.slices) for rank in ranks if rng.random() < 0.2}
        rig.broke = {rank for rank in ranks if rng.random() < 0.3}
        await rig.cycles(5)  # the decoders know the entries
        rig.rate = 0.9
        await rig.cycles(50)
        if rng.random() < 0.5:
            rig.command(CommandOp.FENCE)
        for index in rng.sample(range(cfg.handles), cfg.handles):
            assert await rig.close(index, epoch) in (Reason.OK, Reason.PEER_DEAD)
            rig.stuck |= {
                (n, rank) for n in range(cfg.slices) for rank in ranks if rng.random() < 0.05
            }
            if rng.random() < 0.3:
                rig.broke = set()
        rig.rate, rig.broke = 0, set()
        await rig.until(
            lambda: (
                {rank for rank, due in rig.model.due.items() if due}
                <= {store.rank for pool in rig.pools for store in pool if store.marked}
            ),
            1000,
            "closes",
        )
        await rig.cycles(20)
        while rig.stuck:
            rig.stuck.pop()
            await rig.cycles(rng.choice((0, 4, 12)))
        await rig.idle()
        await rig.until(lambda: not rig.inside(), 1000, "stores of the next epoch")
    cover("producer.drains")


@ProducerRig.test(rate=0, peek=0, prompt=1)
async def each_packet_manager_is_awaited(rig, cfg, rng):
    """Some packet manager alone has stores of some peers, of one or of all: their closes wait, and
    so does a fence, the others' go."""
    await rig.start(entries=False)
    peers = list(range(min(cfg.handles, cfg.ranks)))
    for rank in peers:
        entry = rig.mine(epoch=0, closed=0, log2_replicas=0, replica=rig.all_to(rank))
        await rig.write(rank, entry)
    await rig.cycles(4)
    turns = [(at, ranks) for at in range(cfg.slices) for ranks in (peers, *([p] for p in peers))]
    for turn, (at, ranks) in enumerate(turns):
        epoch, first = turn % 16, len(rig.messages)
        rig.stuck = {(at, rank) for rank in ranks}
        for rank in ranks:
            rig.store(rig.pools[at], rank * cfg.replicas, epoch, rank, 48)
        assert await rig.close_all(epoch) == Reason.OK
        rig.command(CommandOp.FENCE)
        await rig.cycles(100 + 8 * len(peers))
        went = {rank for rank, _, _ in rig.messages[first:]}
        assert went == set(peers) - set(ranks), f"packet manager {at} keeps {ranks}: {went} went"
        assert rig.open, f"packet manager {at} keeps {ranks}: the fence did not wait"
        await rig.idle()
        cover("producer.each_drains")


@ProducerRig.test(rate=0.8)
async def dead_turns(rig, cfg, rng):
    """Many closes for dead peers, which wait for no link: each has its turn."""
    for _ in range(4):
        rig.dead = set()
        await rig.start(entries=False)
        ranks = rng.sample(range(cfg.ranks), min(3, cfg.ranks))
        await rig.write_all(
            [
                rig.mine(
                    epoch=2,
                    log2_replicas=cfg.replicas.bit_length() - 1,
                    replica=[
                        {"rank": ranks[(index + n) % len(ranks)], "region": 0}
                        for n in range(cfg.replicas)
                    ],
                )
                for index in range(cfg.handles)
            ]
        )
        await rig.cycles(40)
        rig.slow = set(ranks)
        await rig.cycles(40)
        assert await rig.close_all(2) == Reason.OK
        await rig.cycles(60 + 2 * cfg.dests)  # all are listed
        rig.dead = set(ranks)
        await rig.cycles(8)  # what was chosen before has been read
        first = len(rig.turns)
        left = {rank: len(due) for rank, due in rig.model.due.items()}
        await rig.until(lambda: not any(rig.model.due.values()), 500, "dropped closes")
        since = {}
        for at, rank in enumerate(rig.turns[first:]):
            before = since.get(rank, -1)  # the first turns depend on when each peer has drained
            missed = [other for other, seen in since.items() if left[other] and seen < before]
            assert not missed, f"rank {rank} again, but not {missed}: {rig.turns[first:]}"
            since[rank] = at
            left[rank] -= 1
        rig.rate = 0
        await rig.idle()
    cover("producer.dead_turns")
