# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of LinkPort against a Python peer: every wire event is ours to choose.

What holds in every cycle is judged by `watch.py` in all tests. Credits: `credits.py`; broken
rules: `faults.py`.
"""

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.packets import HEADER, PacketType, unpack
from sim.bench.streams import GRID
from sim.quality.coverage import cover

from .peer import Peer, watch_headers
from .rig import LinkRig, random_control, random_message, unfilled


@LinkRig.test(grid=GRID)
async def traffic(rig, cfg, rng, grid):
    """Honest random traffic both ways on the grid, messages of a slice in between: all arrives,
    nothing else; credits hold each cycle and all come home."""
    rig.wire_out.set_pause(grid[1], rng)
    peer = Peer(rig, grid[0])
    watch_headers(rig, peer)
    for _ in range(rig.params["packets"]):
        src, dst = rng.choice(rig.peers), rng.choice(rig.peers)
        peer.queue_packet(src)
        rig.put(dst)
        if rng.random() < 0.2:
            rig.put_message(dst)
            rig.send_credit(src, peer.told[src], **random_message(rng))
        if rng.random() < 0.3:
            peer.queue_control(src)
            rig.i_control.put(unfilled(rng, random_control(rng, 0, dst)))
    await rig.until(
        lambda: (
            not (
                peer.queue
                or rig.i_packet.pending
                or rig.i_control.pending
                or rig.i_message.pending
                or rig.wire_in.pending
            )
        ),
        limit=30000,
        what="all sent",
    )
    await rig.until(
        lambda: not rig.tx.waiting and len(rig.o_source.items) == len(rig.rx.packets),
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
    assert rig.get("ctl_ready") & everyone == everyone
    await rig.finish()
    cover(f"link.grid.{'.'.join(grid)}")
    cover("link.credit_stall", rig.counts["credit_stall"] > 0)
    cover("link.idle_and_ack", peer.chatter[PacketType.IDLE] and peer.chatter[PacketType.ACK])
    cover(
        "link.piggyback",
        any(total for _, _, total in rig.told) and rig.tx.sent[PacketType.ROW],
    )
    cover("link.credit_flit", rig.tx.sent[PacketType.CREDIT] > 0)


@LinkRig.test()
async def rate(rig, cfg, rng):
    """Full load in and out: no bubble; latencies as documented."""
    for n in range(60):
        rig.put(rig.peers[n % len(rig.peers)], length=cfg.packet_flits)
        src = rig.peers[(n + 1) % len(rig.peers)]
        rig.send(src, length=cfg.packet_flits, masked=0)
    await rig.all_packets("all sent", 6000)
    await rig.settle(40)
    wire, came = rig.wire_out.stamps, rig.wire_in.stamps
    assert wire[0] - rig.i_packet.stamps[0] == 2, "latency through LinkTx"
    assert wire[-1] - wire[0] == len(wire) - 1 == rig.counts["tx_busy"] - 1, "a bubble on the wire"
    cover("link.rate.tx")
    assert came[-1] - came[0] == len(came) - 1, "a flit waited"
    assert rig.o_source.stamps[0] - came[0] == 3, "latency to the source"
    assert rig.o_beat.stamps[-1] - came[-1] == 4, "latency to a beat"
    cover("link.rate.rx")


@LinkRig.test()
async def messages(rig, cfg, rng):
    """What a slice tells another goes at the next boundary between packets, one at a time; alone it
    takes the way of a packet."""
    dst = rig.peers[0]
    rig.put_message(dst)
    await rig.until(lambda: rig.tx.sent[PacketType.CREDIT] == 1, limit=20, what="a message")
    assert rig.wire_out.stamps[-1] - rig.i_message.stamps[-1] == 2
    await rig.cycles(20)
    first = len(rig.wire_out.items)
    for _ in range(4):
        rig.put(dst, length=cfg.packet_flits)
    await rig.cycles(2)
    for _ in range(3):
        rig.put_message(dst)
    await rig.all_packets("messages between packets")
    kinds = [
        unpack(HEADER, rig.wire_out.items[n]["data"])["type"] == PacketType.CREDIT
        for n in range(first, len(rig.wire_out.items))
        if rig.wire_out.items[n - 1]["last"]
    ]
    assert kinds == [False, True, False, True, False, True, False], kinds
    cover("link.message")


@LinkRig.test(fits=lambda cfg: cfg.ranks > 2)
async def messages_first(rig, cfg, rng):
    """A message and a CREDIT wait behind a packet: the message goes first. With messages and short
    packets in turn the CREDIT goes once it has waited for 64 cycles, and with packets alone."""
    src, quarter = rig.peers[0], max(1, cfg.ctl_credits // 4)
    busy = {"length": 1, "masked": 0}
    for messages, packets in ((1, 0), (60, 60), *(6 * [(0, 80)])):
        await rig.cycles(rng.randrange(9))
        rig.wire_out.set_pause("stop")
        rig.put(rig.peers[-1], **busy)
        await rig.cycles(6)
        for _ in range(quarter):
            rig.send_control(src)
        for _ in range(messages):
            rig.put_message(rig.peers[-1])
        for _ in range(packets):
            rig.put(rig.peers[-1], **busy)
        await rig.settle(20)
        first = len(rig.told)
        rig.wire_out.set_pause(None)
        await rig.all_packets()
        await rig.cycles(20)
        order = [dst for _, dst, _ in rig.told[first:]]
        place = order.index(src)
        assert place == 2 if not packets else place < len(order) - 30, order
        await rig.cycles(300)
    cover("link.credit.behind_message")


@LinkRig.test(fits=lambda cfg: cfg.ctl_credits >= 8)
async def late_reports_take_turns(rig, cfg, rng):
    """Reports that become late in one cycle go in the order of the ranks behind the one that was
    told last."""
    judged = 0
    for last in 3 * rig.peers:
        for _ in range(cfg.ctl_credits // 4):
            rig.send_control(last)
        await rig.settle(300)
        first = len(rig.told)
        some = sorted({last, *rng.sample(rig.peers, len(rig.peers) - 1)})
        for src in some:
            rig.send_control(src)
        await rig.settle(300)
        when, order = zip(*[(cycle, dst) for cycle, dst, _ in rig.told[first:]], strict=True)
        if when[-1] - when[0] < 100:  # one tick made them all late
            judged += 1
            turn = sorted(some, key=lambda rank: (rank - last - 1) % cfg.ranks)
            assert [*order] == turn, (last, order)
    assert judged > len(rig.peers)
    cover("link.credit.late_turns")


@LinkRig.test()
async def control_flits(rig, cfg, rng):
    """Control goes between packets and before them; without a credit it waits and packets pass; for
    a dead peer it is sunk."""
    dst = rig.peers[0]
    rig.wire_out.set_pause("stop")
    for _ in range(2):
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
    rig.put(dst)
    await rig.all_packets("packet passes a control flit")
    assert rig.i_control.pending == 1
    cover("link.control.waits")
    rig.send_credit(dst, 1)
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


@LinkRig.test()
async def control_of_all(rig, cfg, rng):
    """A control flit without a credit waits for a peer that lives, whoever else is dead; it is sunk
    when its own peer is."""
    for dst in rig.peers:
        for _ in range(cfg.ctl_credits + 1):
            rig.put_control(dst)
        rig.set("peer_dead", sum(1 << rank for rank in rig.peers if rank != dst))
        await rig.cycles(40)
        assert rig.i_control.pending == 1, f"sunk for {dst}"
        rig.set("peer_dead", 1 << dst)
        await rig.until(lambda: not rig.i_control.pending, limit=50, what="sunk")
        rig.tx._controls.clear()
        rig.set("peer_dead", 0)
    cover("link.control.of_all")


@LinkRig.test()
async def sparse_masks(rig, cfg, rng):
    """Packets whose mask names one byte, all but one, or bytes of some parts only: a beat for each
    part with a byte, none for the others."""
    parts = cfg.packet_bytes // cfg.slice_bytes
    for n in range(120):
        some = rng.getrandbits(parts)
        bits = [
            1 << rng.randrange(cfg.packet_bytes),
            (1 << cfg.packet_bytes) - 1 - (1 << rng.randrange(cfg.packet_bytes)),
            sum(
                rng.getrandbits(8) << rng.randrange(cfg.slice_bytes - 7) + part * cfg.slice_bytes
                for part in range(parts)
                if some >> part & 1
            ),
        ][n % 3]
        flits = rig.good_packet(rng.choice(rig.peers), rig.rank, length=cfg.packet_flits, masked=1)
        for place in range(cfg.mask_flits):
            flits[1 + place] = bits >> FLIT * place & (1 << FLIT) - 1
        rig.send_wire(flits)
    await rig.settle(60)
    cover("link.sparse_masks")


@LinkRig.test(stall="random")
async def reset_in_traffic(rig, cfg, rng):
    """Reset with packets half way in and out: afterwards everything is as at the start."""
    for rank in rig.peers:
        rig.put(rank, length=cfg.packet_flits)
        rig.send(rank, length=cfg.packet_flits)
    await rig.cycles(7)
    await rig.start()
    for cycles in range(6):  # one cycle of reset while the port hears of credits that cannot be
        rig.send_credit(rig.peers[0], 200)
        await rig.settle(cycles)
        await rig.start(1)
    for cycles in range(7):  # or of a packet that ends early
        rig.send_wire(rig.good_packet(rig.peers[0], rig.rank, length=2)[:2])
        await rig.settle(cycles)
        await rig.start(1)
        await rig.cycles(3)
        assert not rig.counts["truncated"], f"told after the reset, {cycles} cycles before it"
    for rank in rig.peers:
        for _ in range(3):
            rig.put(rank)
            rig.send(rank)
        for _ in range(cfg.ctl_credits):
            rig.put_control(rank)
    await rig.all_sent()
    await rig.settle(200)
    cover("link.reset_in_traffic")
