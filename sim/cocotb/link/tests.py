# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort against a Python peer: every wire event is ours to choose.

What holds in every cycle is judged by `watch.py` in all tests. Credits: `credits.py`; broken
rules: `faults.py`.
"""

from collections import Counter

from hub_rtl.contract.packets import HEADER, PacketType, unpack
from sim.bench.streams import GRID
from sim.golden.link import DATA, credit_class
from sim.quality.coverage import cover

from .peer import Peer, watch_headers
from .rig import SETTLE, LinkRig, random_control, random_packet, unfilled


@LinkRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Honest random traffic both ways on the grid: all arrives, nothing else; credits hold each
    cycle and all come home."""
    rig.wire_out.set_pause(grid[1], rng)
    peer = Peer(rig, grid[0])
    watch_headers(rig, peer)
    for _ in range(rig.params["packets"]):
        src, dst = rng.choice(rig.peers), rng.choice(rig.peers)
        peer.queue_packet(src)
        rig.put(dst)
        if rng.random() < 0.3:
            peer.queue_control(src)
            rig.i_control.put(unfilled(rng, random_control(rng, 0, dst)))
    await rig.until(
        lambda: (
            not (peer.queue or rig.sender.pending or rig.i_control.pending or rig.wire_in.pending)
        ),
        limit=30000,
        what="all sent",
    )
    await rig.until(
        lambda: (
            not rig.tx.waiting and len(rig.o_packet.items) == sum(len(p) for _, p in rig.rx.packets)
        ),
        limit=5000,
        what="all arrived",
    )
    # Everything unreported is told within 256 cycles; then all credits are back on both sides.
    await rig.cycles(340)
    assert all(book.left == book.limit for book in peer.books.values()), (
        "buffers that were never reported as free"
    )
    everyone = sum(1 << rank for rank in rig.peers)
    for _ in range(40):
        await rig.cycles(10)
        if all(book.left == book.limit for book in peer.port.values()):
            break
    peer.quiet = True
    await rig.settle()
    assert (
        rig.get("dest_ready") & everyone == everyone and rig.get("ctl_ready") & everyone == everyone
    )
    await rig.finish()
    cover(f"link.grid.{'.'.join(grid)}")
    cover("link.credit_stall", rig.counts["credit_stall"] > 0)
    cover("link.idle_and_ack", peer.chatter[PacketType.IDLE] and peer.chatter[PacketType.ACK])
    cover(
        "link.piggyback",
        any(len(totals) == 1 and any(totals.values()) for _, _, totals in rig.told),
    )
    cover("link.credit_flit", rig.tx.sent[PacketType.CREDIT] > 0)


@LinkRig.test()
async def rate(rig, cfg, rng):
    """Full load in and out with enough credits: no bubble; latencies as documented."""
    told = Counter()

    def generous(cycle):  # the peer frees at once and tells at once
        for dst in rig.peers:
            done = sent[dst]
            if done != told[dst] and not rig.wire_in.pending:
                told[dst] = done
                rig.send_credit(dst, [done, 0])
                return

    sent = Counter()
    inside = [False]

    def count(item, cycle):
        if not inside[0]:
            sent[item["dest"]] += credit_class(PacketType(item["data"] & 15)) == DATA
        inside[0] = not item["last"]

    rig.wire_out.on_item(count)
    rig.on_sample(generous)
    total = 60
    for n in range(total):
        dst = rig.peers[n % len(rig.peers)]
        rig.put(dst, length=cfg.packet_flits)
    await rig.all_packets("all sent", 6000)
    await rig.cycles(SETTLE)
    latency = rig.wire_out.stamps[0] - rig.i_packet.stamps[0]
    assert latency == 2, f"latency through LinkTx: {latency}"
    busy, lost = rig.counts["tx_busy"], rig.counts["tx_idle_waiting"]
    assert lost <= 2 + busy // 100, f"{busy} busy cycles, {lost} lost although flits waited"
    if cfg.rx_credits >= 4:
        span = rig.wire_out.stamps[-1] - rig.wire_out.stamps[0] + 1
        assert busy >= 0.99 * span, f"{busy} flits in {span} cycles"
        cover("link.rate.tx")
    # The other way: as many packets as there are buffers, at full rate.
    first = rig.wire_in.count
    seen = len(rig.o_packet.items)
    for n in range(len(rig.peers) * cfg.rx_credits):
        src = rig.peers[n % len(rig.peers)]
        rig.send_wire(
            random_packet(cfg, rng, src, rig.rank, length=cfg.packet_flits), credit=told[src]
        )
    await rig.settle(40)
    assert rig.wire_in.stamps[-1] - rig.wire_in.stamps[first] == rig.wire_in.count - first - 1
    assert rig.o_packet.stamps[seen] - rig.wire_in.stamps[first] == 3, "latency through LinkRx"
    assert (
        rig.o_packet.stamps[-1] - rig.o_packet.stamps[seen] == len(rig.o_packet.items) - seen - 1
    ), "bubble between received packets"
    await rig.cycles(300)
    cover("link.rate.rx")


@LinkRig.test()
async def control_flits(rig, cfg, rng):
    """Control goes between packets and before them; without a credit it waits and packets pass; for
    a dead peer it is sunk."""
    dst = rig.peers[0]
    rig.wire_out.set_pause("stop")
    for _ in range(min(2, cfg.rx_credits)):
        rig.put(dst, length=cfg.packet_flits)
    await rig.cycles(10)
    rig.put_control(dst)
    await rig.cycles(5)
    rig.wire_out.set_pause(None)
    await rig.all_packets("control between packets")
    kinds = [
        unpack(HEADER, rig.wire_out.items[n]["data"])["type"]
        for n in range(len(rig.wire_out.items))
        if n == 0 or rig.wire_out.items[n - 1]["last"]
    ]
    place = next(n for n, kind in enumerate(kinds) if kind == PacketType.REJECT)
    assert place == 1, kinds
    cover("link.control.between")
    for _ in range(cfg.ctl_credits):  # one more than the rest of the credits
        rig.put_control(dst)
    await rig.cycles(30)
    assert rig.i_control.pending == 1 and not rig.get("ctl_ready") >> dst & 1
    rig.send_credit(dst, [min(2, cfg.rx_credits), 0])
    rig.put(dst)
    await rig.all_packets("packet passes a control flit")
    assert rig.i_control.pending == 1
    cover("link.control.waits")
    rig.send_credit(dst, [min(2, cfg.rx_credits), 1])
    await rig.until(lambda: not rig.i_control.pending, limit=50, what="control after its credit")
    await rig.cycles(20)
    before = len(rig.wire_out.items)
    doomed = random_control(rng, 0, dst)
    for sunk, wire in enumerate((None, "stop"), 1):  # a wire that stands is no reason to wait
        rig.wire_out.set_pause(wire)
        rig.i_control.put(doomed)
        await rig.cycles(20)
        assert rig.i_control.pending == 1
        rig.set("peer_dead", 1 << dst)
        await rig.until(lambda: not rig.i_control.pending, limit=50, what="sunk")
        rig.tx._controls.clear()
        rig.set("peer_dead", 0)
        await rig.cycles(20)
        assert len(rig.wire_out.items) == before
        assert rig.counts["control_sunk"] == sunk
    rig.wire_out.set_pause(None)
    cover("link.control.sunk")


@LinkRig.test(stall="random")
async def reset_in_traffic(rig, cfg, rng):
    """Reset with packets half way in and out: afterwards everything is as at the start."""
    for rank in rig.peers:
        rig.put(rank, length=cfg.packet_flits)
        rig.send(rank, length=cfg.packet_flits)
    await rig.cycles(7)
    await rig.start()
    for cycles in range(6):  # one cycle of reset while the port hears of credits that cannot be
        rig.send_credit(rig.peers[0], [200, 200])
        await rig.settle(cycles)
        await rig.start(1)
    taken = Counter(rig.sender.taken)
    for rank in rig.peers:
        for _ in range(cfg.rx_credits):
            rig.put(rank)
            rig.send(rank)
    await rig.all_packets("all sent after reset")
    await rig.settle(60 + 4 * cfg.ranks * cfg.rx_credits * cfg.frame_flits)
    assert all(rig.sender.taken[rank] - taken[rank] == cfg.rx_credits for rank in rig.peers)
    cover("link.reset_in_traffic")
