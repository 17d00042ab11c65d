# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort's credits against a Python peer: what is told when, what a source may
send, totals of all kinds."""

import itertools

import cocotb

from hub_rtl.contract.packets import PacketType
from sim.golden.link import CONTROL, DATA
from sim.quality.coverage import cover

from .peer import Peer
from .rig import random_control, random_packet, started


@cocotb.test()
async def credit_flits(dut):
    """A CREDIT goes at a quarter of the buffers, or after 256 cycles; under full load to others it
    waits a bounded time."""
    tb = await started(dut, "credit_flits")
    cfg, rng, src = tb.cfg, tb.rng, tb.peers[0]
    quarter = max(1, cfg.rx_credits // 4)
    for n in range(quarter):
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
        if n == quarter - 2:
            await tb.settle(30)
            assert not tb.told, "told before a quarter was free"
    await tb.settle(30)
    assert [(dst, totals[DATA]) for _, dst, totals in tb.told] == [(src, quarter)]
    cover("link.credit.quarter")
    if quarter > 1:
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1))
        await tb.settle()
        freed = tb.out.stamps[-1]
        await tb.bench.until(lambda: len(tb.told) == 2, limit=300, what="late CREDIT")
        assert 120 <= tb.told[-1][0] - freed <= 266, tb.told[-1][0] - freed
        cover("link.credit.late")
    # Full load to one rank, buffers freed for all the others.
    busy, before = tb.peers[-1], len(tb.told)
    others = tb.peers[:-1]
    stop = [False]
    told_total = [0]

    def credits(cycle):
        if (
            tb.sender.taken[busy] - told_total[0] > cfg.rx_credits // 2
            and not tb.wire_in.pending
            and tb.tx.sent.total() > 2
        ):
            done = tb.tx.sent[PacketType.ROW] + tb.tx.sent[PacketType.PLAIN]
            if done > told_total[0]:
                told_total[0] = done
                tb.send_credit(busy, [done, 0])
        if not stop[0] and tb.sender.pending < 4:
            tb.sender.put(busy, random_packet(cfg, rng, 0, busy, length=cfg.packet_flits))

    tb.bench.on_sample(credits)
    await tb.bench.cycles(100)
    for rank in others:
        for _ in range(quarter):
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=1))
    await tb.settle()
    start = tb.bench.cycle
    await tb.bench.until(
        lambda: {dst for _, dst, _ in tb.told[before:]} >= {*others},
        what="CREDIT under load",
        limit=64 + 3 * cfg.ranks * cfg.frame_flits,
    )
    waited = tb.bench.cycle - start
    # Not idle for a cycle meanwhile: the CREDIT had to push in.
    cover(
        "link.credit.under_load",
        others
        and waited > 0
        and tb.wire_out.stamps[-waited:] == [*range(tb.bench.cycle - waited, tb.bench.cycle)],
    )
    cocotb.log.info("CREDIT under load: %d cycles after the last buffer was freed", waited)
    stop[0] = True
    await tb.bench.until(lambda: not tb.sender.pending, limit=3000, what="all sent")
    await tb.bench.cycles(300)
    tb.finish()


@cocotb.test()
async def credit_flits_in_time(dut):
    """With nothing else to send, each peer is told of a quarter of its buffers at once, of less
    after 128 to 256 cycles."""
    tb = await started(dut, "in_time")
    cfg, rng = tb.cfg, tb.rng
    quarter = max(1, cfg.rx_credits // 4)

    async def told(src, sink, wait):
        seen, count = len(tb.told), sink.count
        await tb.bench.until(
            lambda: sink.count > count and any(dst == src for _, dst, _ in tb.told[seen:]),
            limit=400,
            what="CREDIT",
        )
        waited = tb.told[-1][0] - sink.stamps[-1]
        assert waited in wait, f"rank {src} was told after {waited} cycles, must be {wait}"
        await tb.bench.cycles(rng.randint(1, 150))

    for src in 4 * tb.peers:
        for count in {1, quarter - 1, quarter} - {0}:
            for _ in range(count):
                tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
            await tb.wire_in.drained()
            await told(src, tb.out, range(12) if count == quarter else range(120, 268))
        tb.send_wire([random_control(rng, src, tb.rank)])
        await told(src, tb.out_control, range(12))
    tb.finish()


@cocotb.test()
async def everything_blocked(dut):
    """Nothing leaves the port: every buffer that was promised fills up; then all comes out, and all
    is told as free."""
    tb = await started(dut, "blocked", stall="stop", wire="stop")
    cfg, rng = tb.cfg, tb.rng
    tb.out_control.set_pause("stop")
    for free_first in (False, True):  # what comes out before the wire does cannot be told yet
        tb.sender.put(tb.peers[0], random_packet(cfg, rng, 0, tb.peers[0], length=cfg.packet_flits))
        await tb.bench.cycles(10)  # it stands at the wire, no CREDIT can get in
        for rank in tb.peers:
            for _ in range(cfg.rx_credits):
                tb.send_wire(random_packet(cfg, rng, rank, tb.rank))
            for _ in range(cfg.ctl_credits):
                tb.send_wire([random_control(rng, rank, tb.rank)])
        await tb.settle(60)
        if free_first:
            tb.out.set_pause(None)
            tb.out_control.set_pause(None)
            await tb.bench.cycles(2 * len(tb.peers) * cfg.rx_credits * cfg.frame_flits)
        tb.wire_out.set_pause(None)
        tb.out.set_pause(None)
        tb.out_control.set_pause(None)
        await tb.bench.cycles(300 + 2 * len(tb.peers) * cfg.rx_credits * cfg.frame_flits)
        turns = 1 + free_first
        for rank in tb.peers:
            last = {}
            for _, dst, totals in tb.told:
                last.update(totals if dst == rank else {})
            assert last == {DATA: turns * cfg.rx_credits, CONTROL: turns * cfg.ctl_credits}
        for sink in (tb.wire_out, tb.out, tb.out_control):
            sink.set_pause("stop")
    for sink in (tb.wire_out, tb.out, tb.out_control):
        sink.set_pause(None)
    tb.finish()


@cocotb.test()
async def totals_wrap(dut):
    """Totals of both classes, to and from every peer, count beyond 255: credits are exact all the
    way."""
    tb = await started(dut, "wrap")
    cfg, rng, first = tb.cfg, tb.rng, tb.rank
    for own, ranks in ((first, tb.peers), (tb.peers[0], [first])):  # every rank is a peer once
        await tb.start(rank=own)
        for n in range(270):
            for rank in ranks:
                tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=1, masked=0))
                tb.controls.put(random_control(rng, 0, rank))
                tb.send_wire(
                    random_packet(cfg, rng, rank, own, length=1, masked=0),
                    credit_cls=DATA,
                    credit=n % 256,
                )
                tb.send_wire([random_control(rng, rank, own)], credit_cls=CONTROL, credit=n % 256)
            await tb.bench.until(
                lambda: (
                    not (
                        tb.sender.pending
                        or tb.controls.pending
                        or tb.wire_in.pending
                        or tb.tx.waiting
                    )
                ),
                limit=400,
                what="a packet and a control flit each way",
            )
            await tb.bench.cycles(8)
        await tb.bench.cycles(300)
        tb.finish()


@cocotb.test()
async def credit_abuse(dut):
    """A source that sends beyond its credits loses those packets and only those; the other sources
    lose nothing."""
    tb = await started(dut, "abuse", stall="stop")
    cfg, rng, rogue = tb.cfg, tb.rng, tb.peers[0]
    for _ in range(cfg.rx_credits + 3):
        tb.send_wire(random_packet(cfg, rng, rogue, tb.rank, length=cfg.packet_flits, masked=1))
    for rank in tb.peers[1:]:
        for _ in range(cfg.rx_credits):
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=cfg.packet_flits, masked=1))
    await tb.settle()
    assert tb.counts["credit_violations"] == 3 == tb.rx.counts["credit_violations"]
    cover("link.full")
    tb.out.set_pause(None)
    await tb.bench.cycles(300 + 2 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    tb.out_control.set_pause("stop")
    for _ in range(cfg.ctl_credits + 2):
        tb.send_wire([random_control(rng, rogue, tb.rank)])
    tb.send_wire(random_packet(cfg, rng, rogue, tb.rank))
    await tb.settle(30)
    assert tb.counts["credit_violations"] == 5
    tb.out_control.set_pause(None)
    await tb.bench.cycles(300)
    tb.finish()
    cover("link.violation.data")
    cover("link.violation.control")


@cocotb.test()
async def garbage_totals(dut):
    """Totals that cannot be are ignored and counted; the honest ones after them count again."""
    tb = await started(dut, "garbage")
    cfg, rng, dst = tb.cfg, tb.rng, tb.peers[0]
    for total in (1, 200, 255, cfg.rx_credits + 1):
        tb.send_credit(dst, [total, 0])
    tb.send_credit(dst, [0, cfg.ctl_credits + 1])
    await tb.settle()
    assert tb.counts["bad_totals"] == 5
    for _ in range(cfg.rx_credits + 4):
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst))
    await tb.bench.cycles(60 + 20 * cfg.rx_credits)
    assert tb.sender.taken[dst] == cfg.rx_credits, "garbage gave credits"
    tb.send_credit(dst, [cfg.rx_credits + 1, 0])
    tb.send_credit(dst, [1, 0])
    tb.send_credit(dst, [0, 0])  # stale: nothing is taken back, nothing is given
    await tb.bench.cycles(100)
    assert tb.sender.taken[dst] == cfg.rx_credits + 1
    for total in (2, 3, 4):
        tb.send_credit(dst, [total, 0])
        await tb.bench.cycles(60)
    assert not tb.sender.pending
    assert tb.counts["bad_totals"] == 7
    tb.finish()
    cover("link.garbage")


@cocotb.test()
async def exact_limits(dut):
    """Whatever was freed between two reports, each source may then send what it was told, and not
    one more."""
    tb = await started(dut, "limits")
    cfg, rng = tb.cfg, tb.rng

    def send(data, control):
        for _ in range(data):
            for rank in tb.peers:
                tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=1, masked=0))
        for _ in range(control):
            for rank in tb.peers:
                tb.send_wire([random_control(rng, rank, tb.rank)])

    for n in range(2 * cfg.rx_credits):
        count, busy = n % cfg.rx_credits + 1, tb.peers[0]
        if n == cfg.rx_credits:
            tb.finish()
            await tb.start(rank=busy)  # every rank is a peer once
            busy = tb.peers[0]
        tb.wire_out.set_pause("stop")  # a packet that cannot leave keeps reports inside
        tb.sender.put(busy, random_packet(cfg, rng, 0, busy, length=cfg.packet_flits))
        await tb.bench.cycles(10)
        send(count, 1 + count % cfg.ctl_credits)
        await tb.settle(60)
        tb.wire_out.set_pause(None)
        await tb.bench.cycles(40)
        before = tb.counts["credit_violations"]
        for sink, pause in (
            (tb.out, "stop"),
            (tb.out_control, "stop"),
            (tb.out, None),
            (tb.out_control, None),
        ):
            sink.set_pause(pause)
            if pause and sink is tb.out_control:
                tb.send_credit(busy, [count, 0])
                send(cfg.rx_credits + 1, cfg.ctl_credits + 1)
                await tb.settle()
        assert tb.counts["credit_violations"] - before >= 2 * len(tb.peers)
        await tb.bench.cycles(300)  # until all is told: what is told meanwhile would count, or not
    tb.finish()


@cocotb.test()
async def any_total(dut):
    """Totals of both classes near and far from the last one, at every level of the books: taken
    when they can be."""
    tb = await started(dut, "totals")
    cfg, rng = tb.cfg, tb.rng
    limits = (cfg.rx_credits, cfg.ctl_credits)
    for _ in range(400):
        rank, cls = rng.choice(tb.peers), rng.randrange(2)
        book, limit = tb.watch.books[cls][rank], limits[cls]
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
        totals = [tb.watch.books[each][rank].total for each in (DATA, CONTROL)]
        totals[cls] += gain
        tb.send_credit(rank, totals)
        await tb.settle(4)
        for _ in range(rng.choice((0, 0, 1, tb.watch.books[DATA][rank].left))):
            if tb.watch.books[DATA][rank].left:
                tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=1, masked=0))
        if tb.watch.books[CONTROL][rank].left and rng.random() < 0.5:
            tb.controls.put(random_control(rng, 0, rank))
        await tb.bench.until(
            lambda: not (tb.sender.pending or tb.controls.pending), limit=100, what="all sent"
        )
    await tb.settle()
    tb.finish()


@cocotb.test()
async def settled_by_headers(dut):
    """Headers that leave meanwhile tell a peer all, or one class of two: what is left is told in
    time, and not too early."""
    tb = await started(dut, "settled")
    cfg, rng = tb.cfg, tb.rng
    sent = [[0, 0] for _ in range(cfg.ranks)]
    for src in 10 * tb.peers:
        busy = rng.choice(tb.peers)
        if rng.random() < 0.8:
            tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1))
            await tb.bench.cycles(rng.randrange(30, 200))
        tb.sender.put(busy, random_packet(cfg, rng, 0, busy, length=cfg.packet_flits))
        await tb.bench.cycles(3)
        if rng.random() < 0.5:
            tb.wire_out.set_pause("stop")
        tb.send_wire([random_control(rng, src, tb.rank)])
        await tb.bench.cycles(rng.randrange(1, 5))
        for rank in {src, busy}:
            tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=1))
            sent[rank][DATA] += 1
        sent[busy][DATA] += 1
        if rng.random() < 0.5:
            tb.controls.put(random_control(rng, 0, src))
            sent[src][CONTROL] += 1
        await tb.bench.cycles(rng.choice((5, 100, 300)))
        tb.wire_out.set_pause(None)
        await tb.bench.cycles(rng.randrange(30))
        if rng.random() < 0.5:
            tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1))
        await tb.bench.until(
            lambda: not (tb.sender.pending or tb.controls.pending or tb.tx.waiting), what="all sent"
        )
        for rank in {src, busy}:
            tb.send_credit(rank, sent[rank])
        await tb.bench.cycles(rng.choice((10, 140, 270)))
    tb.finish()


@cocotb.test()
async def told_in_parts(dut):
    """While the wire stands a tick passes; then headers tell one class after the other: the rest is
    late at the next tick."""
    tb = await started(dut, "parts")
    cfg, rng = tb.cfg, tb.rng
    sent = [0] * cfg.ranks

    def put(rank, length):
        tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=length, masked=0))
        sent[rank] += 1

    for src in 6 * tb.peers:
        tb.wire_out.set_pause("stop")
        put(
            tb.peers[-1], rng.choice((1, 1, 2))
        )  # stands at the wire, and the next header behind it
        await tb.bench.cycles(4)
        put(src, cfg.packet_flits)
        await tb.bench.cycles(rng.randrange(4, 100))
        data = random_packet(cfg, rng, src, tb.rank, length=1, masked=0)
        before = rng.random() < 0.5
        if before:
            tb.send_wire(data)
        tb.send_wire([random_control(rng, src, tb.rank)])
        await tb.bench.cycles(140)
        if not before:
            tb.send_wire(data)
            await tb.settle(8)
        tb.wire_out.set_pause(None)
        if before:
            if sent[src] - tb.watch.books[DATA][src].total < cfg.rx_credits:
                put(src, 1)
            tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
        await tb.bench.cycles(280)
        for rank in tb.peers:
            tb.send_credit(rank, [sent[rank], 0])
        await tb.bench.until(lambda: not tb.sender.pending, limit=200, what="all sent")
        for rank in tb.peers:
            tb.send_credit(rank, [sent[rank], 0])
        await tb.settle(rng.randrange(128))
    tb.finish()


@cocotb.test()
async def fair_reports(dut):
    """Every peer has news all the time, the wire takes little: CREDITs go to all in turn, each
    tells something new."""
    tb = await started(dut, "fair", wire=itertools.cycle(11 * [True] + [False]))
    cfg, rng, peer = tb.cfg, tb.rng, Peer(tb)
    for _ in range(12 * cfg.rx_credits):
        for src in tb.peers:
            peer.queue.append(
                (src, DATA, random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
            )
            peer.queue.append((src, CONTROL, [random_control(rng, src, tb.rank)]))
    await tb.bench.until(lambda: not peer.queue, limit=6000, what="all sent")
    await tb.bench.cycles(400)
    tb.finish()


@cocotb.test()
async def credits_wait(dut):
    """CREDITs to all peers stand behind each other, and behind a packet, while the wire takes
    nothing: one to each peer."""
    tb = await started(dut, "wait")
    cfg, rng, quarter = tb.cfg, tb.rng, max(1, tb.cfg.rx_credits // 4)
    for flits in (1, 2, 3):
        tb.wire_out.set_pause("stop")
        if flits > 1:
            tb.sender.put(
                tb.peers[0], random_packet(cfg, rng, 0, tb.peers[0], length=flits - 1, masked=0)
            )
        await tb.settle(10)
        for _ in range(quarter):
            for src in rng.sample(tb.peers, len(tb.peers)):
                tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=1, masked=0))
        await tb.settle(rng.randrange(30, 60))
        tb.wire_out.set_pause(None)
        await tb.bench.cycles(40)
    tb.finish()
