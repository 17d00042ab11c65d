# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort against a Python peer: every wire event is ours to choose.

What holds in every cycle is judged by `link_watch.py` in all tests. Credits: `link_credits.py`;
broken rules: `link_faults.py`.
"""

from collections import Counter

import cocotb

from hub_rtl.contract.packets import HEADER, PacketType, unpack
from sim.bench.streams import GRID
from sim.golden.link import CONTROL, DATA, credit_class
from sim.quality.coverage import cover

from .peer import Peer, watch_headers
from .rig import SETTLE, random_control, random_packet, started, unfilled


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def traffic(dut, grid):
    """Honest random traffic both ways on the grid: all arrives, nothing else; credits hold each
    cycle and all come home."""
    idle, stall = grid
    tb = await started(dut, f"traffic{grid}", idle, stall, stall)
    peer = Peer(tb, idle)
    watch_headers(tb, peer)
    count = tb.params["packets"]
    for _ in range(count):
        src, dst = tb.rng.choice(tb.peers), tb.rng.choice(tb.peers)
        peer.queue.append((src, DATA, random_packet(tb.cfg, tb.rng, src, tb.rank)))
        tb.sender.put(dst, random_packet(tb.cfg, tb.rng, 0, dst))
        if tb.rng.random() < 0.3:
            peer.queue.append((src, CONTROL, [random_control(tb.rng, src, tb.rank)]))
            tb.controls.put(unfilled(tb.rng, random_control(tb.rng, 0, dst)))
    await tb.bench.until(
        lambda: not (peer.queue or tb.sender.pending or tb.controls.pending or tb.wire_in.pending),
        limit=30000,
        what="all sent",
    )
    await tb.bench.until(
        lambda: tb.tx.waiting == 0 and len(tb.out.items) == sum(len(p) for _, p in tb.rx.packets),
        limit=5000,
        what="all arrived",
    )
    # Everything unreported is told within 256 cycles; then all credits are back on both sides.
    await tb.bench.cycles(340)
    assert all(book.left == book.limit for book in peer.books.values()), (
        "buffers that were never reported as free"
    )
    everyone = sum(1 << rank for rank in tb.peers)
    for _ in range(40):
        await tb.bench.cycles(10)
        if all(book.left == book.limit for book in peer.port.values()):
            break
    peer.quiet = True
    await tb.settle()
    assert (
        int(dut.dest_ready.value) & everyone == everyone
        and int(dut.ctl_ready.value) & everyone == everyone
    )
    tb.finish()
    cover(f"link.grid.{idle}.{stall}")
    cover("link.credit_stall", tb.counts["credit_stall"] > 0)
    cover("link.idle_and_ack", peer.chatter[PacketType.IDLE] and peer.chatter[PacketType.ACK])
    cover(
        "link.piggyback", any(len(totals) == 1 and any(totals.values()) for _, _, totals in tb.told)
    )
    cover("link.credit_flit", tb.tx.sent[PacketType.CREDIT] > 0)


@cocotb.test()
async def rate(dut):
    """Full load in and out with enough credits: no bubble; latencies as documented."""
    tb = await started(dut, "rate")
    cfg, rng = tb.cfg, tb.rng
    told = Counter()

    def generous(cycle):  # the peer frees at once and tells at once
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
    await tb.bench.until(
        lambda: not tb.sender.pending and tb.tx.waiting == 0, limit=6000, what="all sent"
    )
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
        tb.send_wire(
            random_packet(cfg, rng, src, tb.rank, length=cfg.packet_flits), credit=told[src]
        )
    await tb.settle(40)
    assert tb.wire_in.stamps[-1] - tb.wire_in.stamps[first] == tb.wire_in.count - first - 1
    assert tb.out.stamps[seen] - tb.wire_in.stamps[first] == 3, "latency through LinkRx"
    assert tb.out.stamps[-1] - tb.out.stamps[seen] == len(tb.out.items) - seen - 1, (
        "bubble between received packets"
    )
    await tb.bench.cycles(300)
    tb.finish()
    cover("link.rate.rx")


@cocotb.test()
async def control_flits(dut):
    """Control goes between packets and before them; without a credit it waits and packets pass; for
    a dead peer it is sunk."""
    tb = await started(dut, "control")
    cfg, rng, dst = tb.cfg, tb.rng, tb.peers[0]
    tb.wire_out.set_pause("stop")
    for _ in range(min(2, cfg.rx_credits)):
        tb.sender.put(dst, random_packet(cfg, rng, 0, dst, length=cfg.packet_flits))
    await tb.bench.cycles(10)
    tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(5)
    tb.wire_out.set_pause(None)
    await tb.bench.until(
        lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="control between packets"
    )
    kinds = [
        unpack(HEADER, tb.wire_out.items[n]["data"])["type"]
        for n in range(len(tb.wire_out.items))
        if n == 0 or tb.wire_out.items[n - 1]["last"]
    ]
    place = next(n for n, kind in enumerate(kinds) if kind in (PacketType.CLOSE, PacketType.REJECT))
    assert place == 1, kinds
    cover("link.control.between")
    for _ in range(cfg.ctl_credits):  # one more than the rest of the credits
        tb.controls.put(random_control(rng, 0, dst))
    await tb.bench.cycles(30)
    assert tb.controls.pending == 1 and not int(dut.ctl_ready.value) >> dst & 1
    tb.send_credit(dst, [min(2, cfg.rx_credits), 0])
    tb.sender.put(dst, random_packet(cfg, rng, 0, dst))
    await tb.bench.until(
        lambda: tb.tx.waiting == 0 and not tb.sender.pending, what="packet passes a control flit"
    )
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
    assert tb.counts["control_sunk"] == 1
    tb.finish()
    cover("link.control.sunk")


@cocotb.test()
async def reset_in_traffic(dut):
    """Reset with packets half way in and out: afterwards everything is as at the start."""
    tb = await started(dut, "reset", stall="random")
    cfg, rng = tb.cfg, tb.rng
    for rank in tb.peers:
        tb.sender.put(rank, random_packet(cfg, rng, 0, rank, length=cfg.packet_flits))
        tb.send_wire(random_packet(cfg, rng, rank, tb.rank, length=cfg.packet_flits))
    await tb.bench.cycles(7)
    await tb.start()
    for cycles in range(6):  # one cycle of reset while the port hears of credits that cannot be
        tb.send_credit(tb.peers[0], [200, 200])
        await tb.settle(cycles)
        await tb.start(1)
    taken = Counter(tb.sender.taken)
    for rank in tb.peers:
        for _ in range(cfg.rx_credits):
            tb.sender.put(rank, random_packet(cfg, rng, 0, rank))
            tb.send_wire(random_packet(cfg, rng, rank, tb.rank))
    await tb.bench.until(
        lambda: not tb.sender.pending and tb.tx.waiting == 0, what="all sent after reset"
    )
    await tb.settle(60 + 4 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    assert all(tb.sender.taken[rank] - taken[rank] == cfg.rx_credits for rank in tb.peers)
    tb.finish()
    cover("link.reset_in_traffic")
