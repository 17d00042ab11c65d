"""cocotb tests of LinkPort against a Python peer: every wire event is ours to choose. Broken rules: `link_faults.py`."""

from collections import Counter

import cocotb

from hub_rtl.formats import HEADER, PacketType, unpack
from sim.bench.coverage import cover
from sim.bench.streams import GRID
from sim.cocotb.link_peer import Peer, watch_headers
from sim.cocotb.link_rig import SETTLE, TB, random_control, random_packet, unfilled
from sim.golden.link import CONTROL, DATA, credit_class


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Honest random traffic both ways on the grid: all arrives, nothing else; credits hold each cycle and all come home."""
    idle, stall = grid
    tb = TB(dut, f"traffic{grid}", idle, stall, stall)
    peer = Peer(tb, idle)
    watch_headers(tb, peer)
    await tb.start()
    count = tb.params["packets"]
    for _ in range(count):
        src, dst = tb.rng.choice(tb.peers), tb.rng.choice(tb.peers)
        peer.queue.append((src, DATA, random_packet(tb.cfg, tb.rng, src, tb.rank)))
        tb.sender.put(dst, random_packet(tb.cfg, tb.rng, 0, dst))
        if tb.rng.random() < 0.3:
            peer.queue.append((src, CONTROL, [random_control(tb.rng, src, tb.rank)]))
            tb.controls.put(unfilled(tb.rng, random_control(tb.rng, 0, dst)))
    await tb.bench.until(lambda: not (peer.queue or tb.sender.pending or tb.controls.pending or tb.wire_in.pending),
                         limit=30000, what="all sent")
    await tb.bench.until(lambda: tb.tx.waiting == 0 and len(tb.out.items) == sum(len(p) for _, p in tb.rx.packets),
                         limit=5000, what="all arrived")
    # Everything unreported is told within 256 cycles; then all credits are back on both sides.
    await tb.bench.cycles(340)
    assert all(book.left == book.limit for book in peer.books.values()), "buffers that were never reported as free"
    everyone = sum(1 << rank for rank in tb.peers)
    for _ in range(40):
        await tb.bench.cycles(10)
        if all(book.left == book.limit for book in peer.port.values()):
            break
    peer.quiet = True
    await tb.settle()
    assert int(dut.dest_ready.value) & everyone == everyone and int(dut.ctl_ready.value) & everyone == everyone
    tb.finish()
    cover(f"link.grid.{idle}.{stall}")
    cover("link.credit_stall", tb.counts["credit_stall"] > 0)
    cover("link.idle_and_ack", peer.chatter[PacketType.IDLE] and peer.chatter[PacketType.ACK])
    cover("link.piggyback", any(len(totals) == 1 and any(totals.values()) for _, _, totals in tb.told))
    cover("link.credit_flit", tb.tx.sent[PacketType.CREDIT] > 0)


@cocotb.test()
async def credit_flits(dut):
    """A CREDIT goes at a quarter of the buffers, or after 256 cycles; under full load to others it waits a bounded time."""
    tb = TB(dut, "credit_flits")
    await tb.start()
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
        if tb.sender.taken[busy] - told_total[0] > cfg.rx_credits // 2 and not tb.wire_in.pending and tb.tx.sent.total() > 2:
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
    await tb.bench.until(lambda: {dst for _, dst, _ in tb.told[before:]} >= {*others}, what="CREDIT under load",
                         limit=64 + 3 * cfg.ranks * cfg.frame_flits)
    waited = tb.bench.cycle - start
    # Not idle for a cycle meanwhile: the CREDIT had to push in.
    cover("link.credit.under_load", others and waited > 0 and tb.wire_out.stamps[-waited:] == [*range(
        tb.bench.cycle - waited, tb.bench.cycle)])
    cocotb.log.info("CREDIT under load: %d cycles after the last buffer was freed", waited)
    stop[0] = True
    await tb.bench.until(lambda: not tb.sender.pending, limit=3000, what="all sent")
    await tb.bench.cycles(300)
    tb.finish()


@cocotb.test()
async def credit_flits_in_time(dut):
    """With nothing else to send, each peer is told of a quarter of its buffers at once, of less after 128 to 256 cycles."""
    tb = TB(dut, "in_time")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    quarter = max(1, cfg.rx_credits // 4)

    async def told(src, sink, wait):
        seen, count = len(tb.told), sink.count
        await tb.bench.until(lambda: sink.count > count and any(dst == src for _, dst, _ in tb.told[seen:]), limit=400,
                             what="CREDIT")
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
async def rate(dut):
    """Full load in and out with enough credits: no bubble; latencies as documented."""
    tb = TB(dut, "rate")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    told = Counter()

    def generous(cycle):            # the peer frees at once and tells at once
        for dst in tb.peers:
            done = sent[dst]
            if done != told[dst] and not tb.wire_in.pending:
                told[dst] = done
                tb.send_credit(dst, [done, 0])
                return
    sent = Counter()
    inside = [False]

    def count(item, cycle):
        if not inside[0]:
            sent[item["dest"]] += credit_class(PacketType(item["data"] & 15)) == DATA
        inside[0] = not item["last"]
    tb.wire_out.on_item(count)
    tb.bench.on_sample(generous)
    total = 60
    for n in range(total):
        dst = tb.peers[n % len(tb.peers)]
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst, length=cfg.packet_flits))
    await tb.bench.until(lambda: not tb.sender.pending and tb.tx.waiting == 0, limit=6000, what="all sent")
    await tb.bench.cycles(SETTLE)
    latency = tb.wire_out.stamps[0] - tb.packets.stamps[0]
    assert latency == 2, f"latency through LinkTx: {latency}"
    busy, lost = tb.counts["tx_busy"], tb.counts["tx_idle_waiting"]
    assert lost <= 2 + busy // 100, f"{busy} busy cycles, {lost} lost although flits waited"
    if cfg.rx_credits >= 4:
        span = tb.wire_out.stamps[-1] - tb.wire_out.stamps[0] + 1
        assert busy >= 0.99 * span, f"{busy} flits in {span} cycles"
        cover("link.rate.tx")
    # The other way: as many packets as there are buffers, at full rate.
    first = tb.wire_in.count
    seen = len(tb.out.items)
    for n in range(len(tb.peers) * cfg.rx_credits):
        src = tb.peers[n % len(tb.peers)]
        tb.send_wire(random_packet(cfg, rng, src, tb.rank, length=cfg.packet_flits), credit=told[src])
    await tb.settle(40)
    assert tb.wire_in.stamps[-1] - tb.wire_in.stamps[first] == tb.wire_in.count - first - 1
    assert tb.out.stamps[seen] - tb.wire_in.stamps[first] == 3, "latency through LinkRx"
    assert tb.out.stamps[-1] - tb.out.stamps[seen] == len(tb.out.items) - seen - 1, "bubble between received packets"
    await tb.bench.cycles(300)
    tb.finish()
    cover("link.rate.rx")


@cocotb.test()
async def control_flits(dut):
    """Control goes between packets and before them; without a credit it waits and packets pass; for a dead peer it is sunk."""
    tb = TB(dut, "control")
    await tb.start()
    cfg, rng, dst = tb.cfg, tb.rng, tb.peers[0]
    tb.wire_out.set_pause("stop")
    for _ in range(min(2, cfg.rx_credits)):
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst, length=cfg.packet_flits))
    await tb.bench.cycles(10)
    tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(5)
    tb.wire_out.set_pause(None)
    await tb.bench.until(lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="control between packets")
    kinds = [unpack(HEADER, tb.wire_out.items[n]["data"])["type"] for n in range(len(tb.wire_out.items))
             if n == 0 or tb.wire_out.items[n - 1]["last"]]
    place = next(n for n, kind in enumerate(kinds) if kind in (PacketType.CLOSE, PacketType.REJECT))
    assert place == 1, kinds
    cover("link.control.between")
    for _ in range(cfg.ctl_credits):                # one more than the rest of the credits
        tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(30)
    assert tb.controls.pending == 1 and not int(dut.ctl_ready.value) >> dst & 1
    tb.send_credit(dst, [min(2, cfg.rx_credits), 0])
    tb.sender.put(dst, random_packet(cfg, rng, 0, dst))
    await tb.bench.until(lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="packet passes a control flit")
    assert tb.controls.pending == 1
    cover("link.control.waits")
    tb.send_credit(dst, [min(2, cfg.rx_credits), 1])
    await tb.bench.until(lambda: not tb.controls.pending, limit=50, what="control after its credit")
    await tb.bench.cycles(20)
    before = len(tb.wire_out.items)
    doomed = random_control(rng, 0, dst)
    tb.controls.put(doomed)
    await tb.bench.cycles(20)
    assert tb.controls.pending == 1
    dut.peer_dead.value = 1 << dst
    await tb.bench.until(lambda: not tb.controls.pending, limit=50, what="sunk")
    tb.tx._controls.clear()
    dut.peer_dead.value = 0
    await tb.bench.cycles(20)
    assert len(tb.wire_out.items) == before
    tb.finish(control_sunk=1)
    cover("link.control.sunk")


@cocotb.test()
async def everything_blocked(dut):
    """Nothing leaves the port: every buffer that was promised fills up; then all comes out, and all is told as free."""
    tb = TB(dut, "blocked", stall="stop", wire="stop")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    tb.out_control.set_pause("stop")
    for free_first in (False, True):        # what comes out before the wire does cannot be told yet
        tb.sender.put(tb.peers[0], random_packet(cfg, rng, 0, tb.peers[0], length=cfg.packet_flits))
        await tb.bench.cycles(10)           # it stands at the wire, no CREDIT can get in
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
    """Totals of both classes, to and from every peer, count beyond 255: credits are exact all the way."""
    tb = TB(dut, "wrap")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    for n in range(270):
        for rank in tb.peers:
            tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=1, masked=0))
            tb.controls.put(random_control(rng, 0, rank))
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=1, masked=0), credit_cls=DATA, credit=n % 256)
            tb.send_wire([random_control(rng, rank, tb.rank)], credit_cls=CONTROL, credit=n % 256)
        await tb.bench.until(lambda: not (tb.sender.pending or tb.controls.pending or tb.wire_in.pending or tb.tx.waiting),
                             limit=400, what="a packet and a control flit each way")
        await tb.bench.cycles(8)
    await tb.bench.cycles(300)
    tb.finish()


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with packets half way in and out: afterwards everything is as at the start."""
    tb = TB(dut, "reset", stall="random")
    await tb.start()
    cfg, rng = tb.cfg, tb.rng
    for rank in tb.peers:
        tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=cfg.packet_flits))
        tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=cfg.packet_flits))
    await tb.bench.cycles(7)
    await tb.start()
    taken = Counter(tb.sender.taken)
    for rank in tb.peers:
        for _ in range(cfg.rx_credits):
            tb.sender.put(rank, random_packet(cfg, rng, 0, rank))
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank))
    await tb.bench.until(lambda: not tb.sender.pending and tb.tx.waiting == 0, what="all sent after reset")
    await tb.settle(60 + 4 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    assert all(tb.sender.taken[rank] - taken[rank] == cfg.rx_credits for rank in tb.peers)
    tb.finish()
    cover("link.reset_in_traffic")
