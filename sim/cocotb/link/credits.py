# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort's credits against a Python peer: what is told when, what a source may
send, totals of all kinds."""

import itertools

import cocotb

from hub_rtl.contract.packets import DATA_TYPES
from sim.golden.link import CONTROL, DATA
from sim.quality.coverage import cover

from .peer import Peer
from .rig import LinkRig, random_control, random_packet


@LinkRig.test()
async def credit_flits(rig, cfg, rng):
    """A CREDIT goes at a quarter of the buffers, or after 256 cycles; under full load to others it
    waits a bounded time."""
    src = rig.peers[0]
    quarter = max(1, cfg.rx_credits // 4)
    for n in range(quarter):
        rig.send(src, length=1, masked=0)
        if n == quarter - 2:
            await rig.settle(30)
            assert not rig.told, "told before a quarter was free"
    await rig.settle(30)
    assert [(dst, totals[DATA]) for _, dst, totals in rig.told] == [(src, quarter)]
    cover("link.credit.quarter")
    if quarter > 1:
        rig.send(src, length=1)
        await rig.settle()
        freed = rig.o_packet.stamps[-1]
        await rig.until(lambda: len(rig.told) == 2, limit=300, what="late CREDIT")
        assert 120 <= rig.told[-1][0] - freed <= 266, rig.told[-1][0] - freed
        cover("link.credit.late")
    # Full load to one rank, buffers freed for all the others.
    busy, before = rig.peers[-1], len(rig.told)
    others = rig.peers[:-1]
    stop = [False]
    told_total = [0]

    def credits(cycle):
        if (
            rig.sender.taken[busy] - told_total[0] > cfg.rx_credits // 2
            and not rig.wire_in.pending
            and rig.tx.sent.total() > 2
        ):
            done = sum(rig.tx.sent[kind] for kind in DATA_TYPES)
            if done > told_total[0]:
                told_total[0] = done
                rig.send_credit(busy, [done, 0])
        if not stop[0] and rig.sender.pending < 4:
            rig.put(busy, length=cfg.packet_flits)

    rig.on_sample(credits)
    await rig.cycles(100)
    for rank in others:
        for _ in range(quarter):
            rig.send(rank, length=1)
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
    await rig.until(lambda: not rig.sender.pending, limit=3000, what="all sent")
    await rig.cycles(300)


@LinkRig.test()
async def credit_flits_in_time(rig, cfg, rng):
    """With nothing else to send, each peer is told of a quarter of its buffers at once, of less
    after 128 to 256 cycles."""
    quarter = max(1, cfg.rx_credits // 4)

    async def told(src, sink, wait):
        seen, count = len(rig.told), sink.count
        await rig.until(
            lambda: sink.count > count and any(dst == src for _, dst, _ in rig.told[seen:]),
            limit=400,
            what="CREDIT",
        )
        waited = rig.told[-1][0] - sink.stamps[-1]
        assert waited in wait, f"rank {src} was told after {waited} cycles, must be {wait}"
        await rig.cycles(rng.randint(1, 150))

    for src in 4 * rig.peers:
        for count in {1, quarter - 1, quarter} - {0}:
            for _ in range(count):
                rig.send(src, length=1, masked=0)
            await rig.wire_in.drained()
            await told(src, rig.o_packet, range(12) if count == quarter else range(120, 268))
        rig.send_control(src)
        await told(src, rig.o_control, range(12))


@LinkRig.test(stall="stop", wire="stop")
async def everything_blocked(rig, cfg, rng):
    """Nothing leaves the port: every buffer that was promised fills up; then all comes out, and all
    is told as free."""
    rig.o_control.set_pause("stop")
    for free_first in (False, True):  # what comes out before the wire does cannot be told yet
        rig.put(rig.peers[0], length=cfg.packet_flits)
        await rig.cycles(10)  # it stands at the wire, no CREDIT can get in
        for rank in rig.peers:
            for _ in range(cfg.rx_credits):
                rig.send(rank)
            for _ in range(cfg.ctl_credits):
                rig.send_control(rank)
        await rig.settle(60)
        if free_first:
            rig.pause(None, rig.o_packet, rig.o_control)
            await rig.cycles(2 * len(rig.peers) * cfg.rx_credits * cfg.frame_flits)
        rig.pause(None, *rig.outputs)
        await rig.cycles(300 + 2 * len(rig.peers) * cfg.rx_credits * cfg.frame_flits)
        turns = 1 + free_first
        for rank in rig.peers:
            last = {}
            for _, dst, totals in rig.told:
                last.update(totals if dst == rank else {})
            assert last == {DATA: turns * cfg.rx_credits, CONTROL: turns * cfg.ctl_credits}
        rig.pause("stop", *rig.outputs)
    rig.pause(None, *rig.outputs)


@LinkRig.test()
async def totals_wrap(rig, cfg, rng):
    """Totals of both classes, to and from every peer, count beyond 255: credits are exact all the
    way."""
    first = rig.rank
    for own, ranks in ((first, rig.peers), (rig.peers[0], [first])):  # every rank is a peer once
        await rig.start(rank=own)
        for n in range(270):
            for rank in ranks:
                rig.put(rank, length=1, masked=0)
                rig.put_control(rank)
                rig.send_wire(
                    random_packet(cfg, rng, rank, own, length=1, masked=0),
                    credit_cls=DATA,
                    credit=n % 256,
                )
                rig.send_wire([random_control(rng, rank, own)], credit_cls=CONTROL, credit=n % 256)
            await rig.until(
                lambda: (
                    not (
                        rig.sender.pending
                        or rig.i_control.pending
                        or rig.wire_in.pending
                        or rig.tx.waiting
                    )
                ),
                limit=400,
                what="a packet and a control flit each way",
            )
            await rig.cycles(8)
        await rig.cycles(300)
        await rig.finish()


@LinkRig.test(stall="stop")
async def credit_abuse(rig, cfg, rng):
    """A source that sends beyond its credits loses those packets and only those; the other sources
    lose nothing."""
    rogue = rig.peers[0]
    for _ in range(cfg.rx_credits + 3):
        rig.send(rogue, length=cfg.packet_flits, masked=1)
    for rank in rig.peers[1:]:
        for _ in range(cfg.rx_credits):
            rig.send(rank, length=cfg.packet_flits, masked=1)
    await rig.settle()
    assert rig.counts["credit_violations"] == 3 == rig.rx.counts["credit_violations"]
    cover("link.full")
    rig.o_packet.set_pause(None)
    await rig.cycles(300 + 2 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    rig.o_control.set_pause("stop")
    for _ in range(cfg.ctl_credits + 2):
        rig.send_control(rogue)
    rig.send(rogue)
    await rig.settle(30)
    assert rig.counts["credit_violations"] == 5
    rig.o_control.set_pause(None)
    await rig.cycles(300)
    cover("link.violation.data")
    cover("link.violation.control")


@LinkRig.test()
async def garbage_totals(rig, cfg, rng):
    """Totals that cannot be are ignored and counted; the honest ones after them count again."""
    dst = rig.peers[0]
    for total in (1, 200, 255, cfg.rx_credits + 1):
        rig.send_credit(dst, [total, 0])
    rig.send_credit(dst, [0, cfg.ctl_credits + 1])
    await rig.settle()
    assert rig.counts["bad_totals"] == 5
    for _ in range(cfg.rx_credits + 4):
        rig.put(dst)
    await rig.cycles(60 + 20 * cfg.rx_credits)
    assert rig.sender.taken[dst] == cfg.rx_credits, "garbage gave credits"
    rig.send_credit(dst, [cfg.rx_credits + 1, 0])
    rig.send_credit(dst, [1, 0])
    rig.send_credit(dst, [0, 0])  # stale: nothing is taken back, nothing is given
    await rig.cycles(100)
    assert rig.sender.taken[dst] == cfg.rx_credits + 1
    for total in (2, 3, 4):
        rig.send_credit(dst, [total, 0])
        await rig.cycles(60)
    assert not rig.sender.pending
    assert rig.counts["bad_totals"] == 7
    cover("link.garbage")


@LinkRig.test()
async def exact_limits(rig, cfg, rng):
    """Whatever was freed between two reports, each source may then send what it was told, and not
    one more."""

    def send(data, control):
        for _ in range(data):
            for rank in rig.peers:
                rig.send(rank, length=1, masked=0)
        for _ in range(control):
            for rank in rig.peers:
                rig.send_control(rank)

    for n in range(2 * cfg.rx_credits):
        count, busy = n % cfg.rx_credits + 1, rig.peers[0]
        if n == cfg.rx_credits:
            await rig.finish()
            await rig.start(rank=busy)  # every rank is a peer once
            busy = rig.peers[0]
        rig.wire_out.set_pause("stop")  # a packet that cannot leave keeps reports inside
        rig.put(busy, length=cfg.packet_flits)
        await rig.cycles(10)
        send(count, 1 + count % cfg.ctl_credits)
        await rig.settle(60)
        rig.wire_out.set_pause(None)
        await rig.cycles(40)
        before = rig.counts["credit_violations"]
        for sink, pause in (
            (rig.o_packet, "stop"),
            (rig.o_control, "stop"),
            (rig.o_packet, None),
            (rig.o_control, None),
        ):
            sink.set_pause(pause)
            if pause and sink is rig.o_control:
                rig.send_credit(busy, [count, 0])
                send(cfg.rx_credits + 1, cfg.ctl_credits + 1)
                await rig.settle()
        assert rig.counts["credit_violations"] - before >= 2 * len(rig.peers)
        await rig.cycles(300)  # until all is told: what is told meanwhile would count, or not


@LinkRig.test()
async def any_total(rig, cfg, rng):
    """Totals of both classes near and far from the last one, at every level of the books: taken
    when they can be."""
    limits = (cfg.rx_credits, cfg.ctl_credits)
    for _ in range(400):
        rank, cls = rng.choice(rig.peers), rng.randrange(2)
        book, limit = rig.watch.books[cls][rank], limits[cls]
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
        totals = [rig.watch.books[each][rank].total for each in (DATA, CONTROL)]
        totals[cls] += gain
        rig.send_credit(rank, totals)
        await rig.settle(4)
        for _ in range(rng.choice((0, 0, 1, rig.watch.books[DATA][rank].left))):
            if rig.watch.books[DATA][rank].left:
                rig.put(rank, length=1, masked=0)
        if rig.watch.books[CONTROL][rank].left and rng.random() < 0.5:
            rig.put_control(rank)
        await rig.until(
            lambda: not (rig.sender.pending or rig.i_control.pending), limit=100, what="all sent"
        )
    await rig.settle()


@LinkRig.test()
async def settled_by_headers(rig, cfg, rng):
    """Headers that leave meanwhile tell a peer all, or one class of two: what is left is told in
    time, and not too early."""
    sent = [[0, 0] for _ in range(cfg.ranks)]
    for src in 10 * rig.peers:
        busy = rng.choice(rig.peers)
        if rng.random() < 0.8:
            rig.send(src, length=1)
            await rig.cycles(rng.randrange(30, 200))
        rig.put(busy, length=cfg.packet_flits)
        await rig.cycles(3)
        if rng.random() < 0.5:
            rig.wire_out.set_pause("stop")
        rig.send_control(src)
        await rig.cycles(rng.randrange(1, 5))
        for rank in {src, busy}:
            rig.put(rank, length=1)
            sent[rank][DATA] += 1
        sent[busy][DATA] += 1
        if rng.random() < 0.5:
            rig.put_control(src)
            sent[src][CONTROL] += 1
        await rig.cycles(rng.choice((5, 100, 300)))
        rig.wire_out.set_pause(None)
        await rig.cycles(rng.randrange(30))
        if rng.random() < 0.5:
            rig.send(src, length=1)
        await rig.all_sent()
        for rank in {src, busy}:
            rig.send_credit(rank, sent[rank])
        await rig.cycles(rng.choice((10, 140, 270)))


@LinkRig.test()
async def told_in_parts(rig, cfg, rng):
    """While the wire stands a tick passes; then headers tell one class after the other: the rest is
    late at the next tick."""
    sent = [0] * cfg.ranks

    def put(rank, length):
        rig.put(rank, length=length, masked=0)
        sent[rank] += 1

    for src in 6 * rig.peers:
        rig.wire_out.set_pause("stop")
        put(
            rig.peers[-1], rng.choice((1, 1, 2))
        )  # stands at the wire, and the next header behind it
        await rig.cycles(4)
        put(src, cfg.packet_flits)
        await rig.cycles(rng.randrange(4, 100))
        data = random_packet(cfg, rng, src, rig.rank, length=1, masked=0)
        before = rng.random() < 0.5
        if before:
            rig.send_wire(data)
        rig.send_control(src)
        await rig.cycles(140)
        if not before:
            rig.send_wire(data)
            await rig.settle(8)
        rig.wire_out.set_pause(None)
        if before:
            if sent[src] - rig.watch.books[DATA][src].total < cfg.rx_credits:
                put(src, 1)
            rig.send(src, length=1, masked=0)
        await rig.cycles(280)
        for rank in rig.peers:
            rig.send_credit(rank, [sent[rank], 0])
        await rig.until(lambda: not rig.sender.pending, limit=200, what="all sent")
        for rank in rig.peers:
            rig.send_credit(rank, [sent[rank], 0])
        await rig.settle(rng.randrange(128))


@LinkRig.test(wire=itertools.cycle(11 * [True] + [False]))
async def fair_reports(rig, cfg, rng):
    """Every peer has news all the time, the wire takes little: CREDITs go to all in turn, each
    tells something new."""
    peer = Peer(rig)
    for _ in range(12 * cfg.rx_credits):
        for src in rig.peers:
            peer.queue_packet(src, length=1, masked=0)
            peer.queue_control(src)
    await rig.until(lambda: not peer.queue, limit=6000, what="all sent")
    await rig.cycles(400)


@LinkRig.test()
async def credits_wait(rig, cfg, rng):
    """CREDITs to all peers stand behind each other, and behind a packet, while the wire takes
    nothing: one to each peer."""
    quarter = max(1, cfg.rx_credits // 4)
    for flits in (1, 2, 3):
        rig.wire_out.set_pause("stop")
        if flits > 1:
            rig.put(rig.peers[0], length=flits - 1, masked=0)
        await rig.settle(10)
        for _ in range(quarter):
            for src in rng.sample(rig.peers, len(rig.peers)):
                rig.send(src, length=1, masked=0)
        await rig.settle(rng.randrange(30, 60))
        rig.wire_out.set_pause(None)
        await rig.cycles(40)
