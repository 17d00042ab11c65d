# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort's control credits against a Python peer: what is told when, what a
source may send, totals of all kinds."""

import itertools
from collections import Counter

import cocotb

from sim.quality.coverage import cover

from .peer import Peer
from .rig import LinkRig, random_control


@LinkRig.test()
async def credit_flits(rig, cfg, rng):
    """A CREDIT goes at a quarter of the buffers, or after 256 cycles; under full load to others it
    waits a bounded time."""
    src = rig.peers[0]
    quarter = max(1, cfg.ctl_credits // 4)
    for n in range(quarter):
        rig.send_control(src)
        if n == quarter - 2:
            await rig.settle(30)
            assert not rig.told, "told before a quarter was free"
    await rig.settle(30)
    assert [(dst, total) for _, dst, total in rig.told] == [(src, quarter)]
    cover("link.credit.quarter")
    if quarter > 1:
        rig.send_control(src)
        await rig.settle()
        freed = rig.o_control.stamps[-1]
        await rig.until(lambda: len(rig.told) == 2, limit=300, what="late CREDIT")
        assert 120 <= rig.told[-1][0] - freed <= 266, rig.told[-1][0] - freed
        cover("link.credit.late")
    # Full load to one rank, buffers freed for all the others.
    busy, before = rig.peers[-1], len(rig.told)
    others = rig.peers[:-1]
    stop = [False]

    def load(cycle):
        if not stop[0] and rig.i_packet.pending < 20:
            rig.put(busy, length=cfg.packet_flits)

    rig.on_sample(load)
    await rig.cycles(100)
    for rank in others:
        for _ in range(quarter):
            rig.send_control(rank)
    await rig.settle()
    start = rig.cycle
    await rig.until(
        lambda: {dst for _, dst, _ in rig.told[before:]} >= {*others},
        what="CREDIT under load",
        limit=64 + 3 * cfg.ranks * cfg.frame_flits,
    )
    waited = rig.cycle - start
    # Not idle for a cycle meanwhile: the CREDIT had to push in.
    cover(
        "link.credit.under_load",
        others
        and waited > 0
        and rig.wire_out.stamps[-waited:] == [*range(rig.cycle - waited, rig.cycle)],
    )
    cocotb.log.info("CREDIT under load: %d cycles after the last buffer was freed", waited)
    stop[0] = True
    await rig.all_packets()
    await rig.cycles(300)


@LinkRig.test()
async def credit_flits_in_time(rig, cfg, rng):
    """With nothing else to send, each peer is told of a quarter of its buffers at once, of less
    after 128 to 256 cycles."""
    quarter = max(1, cfg.ctl_credits // 4)

    async def told(src, wait):
        seen, count = len(rig.told), rig.o_control.count
        await rig.until(
            lambda: (
                rig.o_control.count > count and any(dst == src for _, dst, _ in rig.told[seen:])
            ),
            limit=400,
            what="CREDIT",
        )
        waited = rig.told[-1][0] - rig.o_control.stamps[-1]
        assert waited in wait, f"rank {src} was told after {waited} cycles, must be {wait}"
        await rig.cycles(rng.randint(1, 150))

    for src in 4 * rig.peers:
        for count in {1, quarter - 1, quarter} - {0}:
            for _ in range(count):
                rig.send_control(src)
            await rig.wire_in.drained()
            await told(src, range(12) if count == quarter else range(120, 268))


@LinkRig.test()
async def reports_take_turns(rig, cfg, rng):
    """Sources whose buffers are freed while the wire stands are told of them one after the other,
    in the order of their numbers behind the one that was told last."""
    quarter = max(1, cfg.ctl_credits // 4)
    for _ in range(12):
        rig.wire_out.set_pause("stop")
        rig.put(rig.peers[0], length=cfg.packet_flits)
        await rig.cycles(10)
        some = rng.sample(rig.peers, rng.randint(1, len(rig.peers)))
        for src in some:
            for _ in range(quarter):
                rig.send_control(src)
        await rig.settle(20)
        before = len(rig.told)
        rig.wire_out.set_pause(None)
        await rig.all_packets()
        await rig.cycles(20 + 8 * cfg.ranks)
        told = [dst for _, dst, _ in rig.told[before:]]
        first = told[1]  # the first one was chosen before the others had something to tell
        assert told[0] == rig.peers[0], told
        assert told[1:] == sorted(some, key=lambda rank: (rank - first) % cfg.ranks), (some, told)
    cover("link.credit.turns")


@LinkRig.test(stall="stop")
async def nothing_taken(rig, cfg, rng):
    """Nobody takes sources or beats: as many packets, short or full, as find room come in;
    then the sources are taken, and the beats behind them, offered in any case."""
    for length in (1, 1, 1, cfg.packet_flits, cfg.packet_flits):
        rig.pause("stop", rig.o_source, rig.o_beat)
        for _ in range(12):
            rig.send(rng.choice(rig.peers), length=length, masked=0)
        for _ in range(6):
            rig.send(rng.choice(rig.peers))
        await rig.cycles(60)
        assert rig.wire_in.pending
        rig.o_source.set_pause(None)
        await rig.cycles(9)
        assert rig.o_beat.port.is_valid()
        for _ in range(30):
            rig.send(rng.choice(rig.peers), length=length, masked=0)
        rig.pause("random", rig.o_beat)  # beats go while others come
        await rig.settle(60)
        rig.pause(None, rig.o_beat)
        await rig.settle(60)
    cover("link.nothing_taken")


@LinkRig.test(stall="stop", wire="stop")
async def everything_blocked(rig, cfg, rng):
    """Nothing leaves the port: every control buffer that was promised fills up; then all comes out,
    and all is told as free."""
    rig.o_control.set_pause("stop")
    for turn in (1, 2):
        rig.put(rig.peers[0], length=cfg.packet_flits)
        await rig.cycles(10)  # it stands at the wire, no CREDIT can get in
        for rank in rig.peers:
            for _ in range(cfg.ctl_credits):
                rig.send_control(rank)
        await rig.settle(60)
        if turn == 2:  # what comes out before the wire does cannot be told yet
            rig.pause(None, rig.o_control)
            await rig.cycles(40)
        rig.pause(None, *rig.outputs)
        await rig.cycles(300)
        for rank in rig.peers:
            last = [total for _, dst, total in rig.told if dst == rank][-1]
            assert last == turn * cfg.ctl_credits
        rig.pause("stop", *rig.outputs)
    rig.pause(None, *rig.outputs)


@LinkRig.test()
async def totals_wrap(rig, cfg, rng):
    """Totals to and from every peer count beyond 255: credits are exact all the way."""
    first = rig.rank
    for own, ranks in ((first, rig.peers), (rig.peers[0], [first])):  # every rank is a peer once
        await rig.start(rank=own)
        for n in range(270):
            for rank in ranks:
                rig.put_control(rank)
                rig.send_wire([random_control(rng, rank, own)], credit=n % 256)
            await rig.until(
                lambda: not (rig.i_control.pending or rig.wire_in.pending or rig.tx.waiting),
                limit=400,
                what="a control flit each way",
            )
            await rig.cycles(8)
        await rig.cycles(300)
        await rig.finish()


@LinkRig.test(stall="stop")
async def credit_abuse(rig, cfg, rng):
    """A source that sends beyond its credits loses those flits and only those; the other sources
    lose nothing, and packets pass."""
    rogue = rig.peers[0]
    rig.pause(None, rig.o_beat)
    rig.o_control.set_pause("stop")
    for _ in range(cfg.ctl_credits + 2):
        rig.send_control(rogue)
    for rank in rig.peers[1:]:
        for _ in range(cfg.ctl_credits):
            rig.send_control(rank)
    rig.send(rogue)
    await rig.settle(30)
    assert rig.counts["credit_violations"] == 2 == rig.rx.counts["credit_violations"]
    cover("link.full")
    rig.o_control.set_pause(None)
    await rig.cycles(300)
    cover("link.violation.control")


@LinkRig.test()
async def garbage_totals(rig, cfg, rng):
    """Totals that cannot be are ignored and counted; the honest ones after them count again."""
    dst, limit = rig.peers[0], cfg.ctl_credits
    for total in (1, 200, 255, limit + 1):
        rig.send_credit(dst, total)
    await rig.settle()
    assert rig.counts["bad_totals"] == 4
    for _ in range(limit + 1):
        rig.put_control(dst)
    await rig.cycles(60)
    assert rig.i_control.pending == 1, "garbage gave credits"
    rig.send_credit(dst, limit + 1)
    rig.send_credit(dst, 1)
    rig.send_credit(dst, 0)  # stale: nothing is taken back, nothing is given
    await rig.cycles(60)
    assert not rig.i_control.pending
    assert rig.counts["bad_totals"] == 6
    cover("link.garbage")


@LinkRig.test()
async def exact_limits(rig, cfg, rng):
    """Whatever was freed between two reports, each source may then send what it was told, and not
    one more."""

    def send(count):
        for _ in range(count):
            for rank in rig.peers:
                rig.send_control(rank)

    for n in range(2 * cfg.ctl_credits):
        count, busy = n % cfg.ctl_credits + 1, rig.peers[0]
        if n == cfg.ctl_credits:
            await rig.finish()
            await rig.start(rank=busy)  # every rank is a peer once
            busy = rig.peers[0]
        rig.wire_out.set_pause("stop")  # a packet that cannot leave keeps reports inside
        rig.put(busy, length=cfg.packet_flits)
        await rig.cycles(10)
        send(count)
        await rig.settle(60)
        rig.wire_out.set_pause(None)
        await rig.cycles(40)
        before = rig.counts["credit_violations"]
        rig.o_control.set_pause("stop")
        send(cfg.ctl_credits + 1)
        await rig.settle()
        rig.o_control.set_pause(None)
        await rig.settle()
        assert rig.counts["credit_violations"] - before >= len(rig.peers)
        await rig.cycles(300)  # until all is told: what is told meanwhile would count, or not


@LinkRig.test()
async def any_total(rig, cfg, rng):
    """Totals near and far from the last one, at every level of the books: taken when they can
    be."""
    limit = cfg.ctl_credits
    for _ in range(400):
        rank = rng.choice(rig.peers)
        book = rig.watch.books[rank]
        gain = rng.choice(
            (
                rng.getrandbits(8),
                rng.randrange(limit + 2),
                limit - book.left,
                limit - book.left + 1,
                255 - rng.randrange(limit + 1),
                1 << rng.randrange(8),
            )
        )
        rig.send_credit(rank, book.total + gain)
        await rig.settle(4)
        for _ in range(rng.choice((0, 0, 1, book.left))):
            if book.left and rng.random() < 0.5:
                rig.put_control(rank)
        await rig.settle()
    for rank in rig.peers:
        rig.send_credit(rank, rig.watch.books[rank].total + limit - rig.watch.books[rank].left)
    await rig.until(lambda: not rig.i_control.pending, limit=400, what="all sent")
    await rig.settle()


@LinkRig.test()
async def settled_by_headers(rig, cfg, rng):
    """Headers that leave meanwhile tell a peer all: nothing more is told, and what comes later is
    told in time."""
    sent = [0] * cfg.ranks
    for src in 10 * rig.peers:
        busy = rng.choice(rig.peers)
        if rng.random() < 0.8:
            rig.send_control(src)
            await rig.cycles(rng.randrange(30, 200))
        rig.put(busy, length=cfg.packet_flits)
        await rig.cycles(3)
        if rng.random() < 0.5:
            rig.wire_out.set_pause("stop")
        rig.send_control(src)
        await rig.cycles(rng.randrange(1, 5))
        for rank in {src, busy}:
            rig.put(rank, length=1)
        if rng.random() < 0.5:
            rig.put_control(src)
            sent[src] += 1
        await rig.cycles(rng.choice((5, 100, 300)))
        rig.wire_out.set_pause(None)
        await rig.all_sent()
        rig.send_credit(src, sent[src])
        await rig.cycles(rng.choice((270, 300, 340)))


@LinkRig.test(wire=itertools.cycle(11 * [True] + [False]), cases={"own": [0, -1]})
async def fair_reports(rig, cfg, rng, own):
    """Every peer has news all the time, the wire takes little: CREDITs go to all in turn, each
    tells something new."""
    await rig.start(rank=own % cfg.ranks)
    peer = Peer(rig)
    for _ in range(24 * cfg.ctl_credits):
        for src in rig.peers:
            peer.queue_control(src)
    await rig.until(lambda: not peer.queue, limit=12000, what="all sent")
    told = Counter(dst for _, dst, _ in rig.told)
    assert max(told.values()) - min(told.values()) <= 2, told
    await rig.cycles(400)


@LinkRig.test()
async def limits_after_traffic(rig, cfg, rng):
    """Control flits come in while headers to their sources leave, in any cycle, with any number of
    buffers full: each source may then send what it was told, and not one more."""
    for own in (0, cfg.ranks - 1):
        await rig.start(rank=own)
        for _ in range(60):
            rig.o_control.set_pause("stop")
            some = {src: rng.randrange(max(1, cfg.ctl_credits - 2)) for src in rig.peers}
            for src, count in some.items():
                for _ in range(count):
                    rig.send_control(src)
            await rig.settle()
            for src in rng.sample(rig.peers, len(rig.peers)):
                rig.put(src, length=1)
            await rig.cycles(rng.randrange(6))
            for src in rng.sample(rig.peers, len(rig.peers)):
                if some[src] + 2 <= cfg.ctl_credits:
                    rig.send_control(src)
            await rig.settle()
            rig.o_control.set_pause(None)
            await rig.all_packets()
            await rig.cycles(60)
        await rig.cycles(300)
        rig.o_control.set_pause("stop")
        for src in rig.peers:
            for _ in range(cfg.ctl_credits + 1):
                rig.send_control(src)
        await rig.settle(30)
        assert rig.counts["credit_violations"] == len(rig.peers)
        rig.o_control.set_pause(None)
        await rig.cycles(300)
        await rig.finish()
    cover("link.credit.exact")


@LinkRig.test()
async def credits_wait(rig, cfg, rng):
    """CREDITs to all peers stand behind each other, and behind a packet, while the wire takes
    nothing: one to each peer."""
    quarter = max(1, cfg.ctl_credits // 4)
    for flits in (1, 2, 3):
        rig.wire_out.set_pause("stop")
        if flits > 1:
            rig.put(rig.peers[0], length=flits - 1, masked=0)
        await rig.settle(10)
        for _ in range(quarter):
            for src in rng.sample(rig.peers, len(rig.peers)):
                rig.send_control(src)
        await rig.settle(rng.randrange(30, 60))
        rig.wire_out.set_pause(None)
        await rig.cycles(40)
