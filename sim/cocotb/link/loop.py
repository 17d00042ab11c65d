# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of the LoopPort."""

from hub_rtl.contract.fields import FLIT
from hub_rtl.contract.packets import NEWS_ENTRIES
from hub_rtl.link.loop_port import LoopPort
from sim.bench.rig import Rig
from sim.bench.slice_sender import Sender, random_record
from sim.bench.streams import GRID
from sim.golden.link import arrived, with_fields
from sim.quality.coverage import cover

from .rig import random_control, same_beat, unfilled


class LoopRig(Rig):
    """The loop lane of some rank, and the beats that must come."""

    block = LoopPort

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=500)

    async def start(self):
        self.rank = self.rng.randrange(self.cfg.ranks)
        self.set("rank", self.rank)
        self.wanted = []
        await self.reset()

    def record(self, **fields):
        """A record as the packet manager hands it over; its beats will be wanted."""
        beats = random_record(self.cfg, self.cfg.slice_bytes, self.rng, rank=self.rank, **fields)
        self.wanted += arrived(self.cfg, self.cfg.slice_bytes, beats, self.rank)
        return beats

    def check(self, first=0):
        """The beats that came, from this one on, are those wanted."""
        came = self.o_record.items[first:]
        assert len(came) == len(self.wanted), f"{len(came)} beats of {len(self.wanted)}"
        for n, (beat, wanted) in enumerate(zip(came, self.wanted, strict=True)):
            same_beat(self.cfg.slice_bytes, beat, wanted, f"beat {n}")


@LoopRig.test(grid=GRID)
async def loop_traffic(rig, cfg, rng, grid):
    """The loop lane: all comes out once and in order as from the own rank, control beside it,
    credits right."""
    source, out, own = rig.i_record, rig.o_record, {"src": rig.rank, "dst": rig.rank}
    sender = Sender(rig, cfg, source)
    freed = [0]
    out.on_item(lambda item, cycle: freed.__setitem__(0, freed[0] + item["last"]))

    due = {}  # cycle: counts that the ports of the one before decide
    control_left = cfg.ctl_credits

    def look(cycle):
        nonlocal control_left
        counts = rig.get("counts")
        assert all(counts[name] == value for name, value in due.pop(cycle, {}).items()), (
            f"counts in cycle {cycle}: {counts}"
        )
        names = ("i_record", "o_record", "i_control", "o_control")
        ports = {name: getattr(rig, name).port for name in names}
        port = {name: (port.is_valid(), port.is_ready()) for name, port in ports.items()}
        moves = {name: valid & ready for name, (valid, ready) in port.items()}
        due[cycle + 1] = {
            "tx_busy": moves["i_record"],
            "rx_busy": moves["o_record"],
            "tx_idle_waiting": port["i_record"][0] - moves["i_record"],
            "credit_stall": port["i_control"][0] - moves["i_control"],
        }
        assert moves["i_record"] == port["i_record"][0], "a record with a credit waits"
        assert rig.get("ctl_ready") == (control_left > 0) << rig.rank, f"{control_left} are left"
        control_left += moves["o_control"] - moves["i_control"]
        assert sender.taken[rig.rank] - freed[0] <= 4
        assert rig.get("dest_ready") in (0, 1 << rig.rank), "credit for another rank"

    rig.on_sample(look)
    for n in range(2 * rig.params["packets"]):
        whole = {"mask": (1 << cfg.packet_bytes) - 1} if grid == ("none", "none") else {}
        news = 0 if whole or n % 5 else rng.randint(1, NEWS_ENTRIES)
        sender.put(rig.rank, rig.record(news=news, **whole))
        if n % 3 == 0:
            control = unfilled(rng, random_control(rng, 1, 2))
            rig.i_control.put(control)
            rig.o_control.expect(with_fields(control, **own))
    await rig.until(
        lambda: not sender.pending and not rig.i_control.pending, limit=20000, what="all in"
    )
    await rig.cycles(400)
    rig.check()
    rig.o_control.finish()
    if grid == ("none", "none"):
        assert out.stamps[-1] - source.stamps[-1] == 1
        assert source.stamps[-1] - source.stamps[0] <= source.count + 40, "a beat waits"
    assert rig.get("dest_ready") == rig.get("ctl_ready") == 1 << rig.rank
    cover(f"link.loop.grid.{'.'.join(grid)}")


@LoopRig.test()
async def loop_messages(rig, cfg, rng):
    """What a remote fence asks the own rank is heard in the same cycle, and so is the answer;
    control flits keep all bits but their ranks."""
    for said, heard in (("i_ask", "asked"), ("i_answer", "answered")):
        source, came = getattr(rig, said), []

        def look(item, cycle, heard=heard, came=came):
            came.append((item, rig.strobe(heard)["what"]))

        source.on_item(look)
        for _ in range(9):
            rest = {"i_ask": {"total": rng.getrandbits(12), "phase": rng.getrandbits(1)}}
            rest = rest.get(said, {"bad": rng.getrandbits(1)})
            source.put({"rank": rng.randrange(cfg.ranks), **rest})
        await source.drained()
        assert len(came) == 9 and all(item == what for item, what in came), f"{came}"
    own = {"src": rig.rank, "dst": rig.rank}
    for bit in range(FLIT):  # control flits of anything, with each bit in turn the only one
        flits = [rng.getrandbits(FLIT), 1 << bit]
        rig.i_control.put(*flits)
        rig.o_control.expect(*(with_fields(flit, **own) for flit in flits))
    await rig.i_control.drained()
    await rig.cycles(9)
    rig.o_control.finish()
    cover("link.loop.messages")


@LoopRig.test()
async def loop_offers(rig, cfg, rng):
    """What came is offered in the next cycle, whether it is taken or not. Records beyond the
    credits wait at the port as long as there is no room, which is counted; nothing is lost."""
    whole = (1 << cfg.packet_bytes) - 1
    rig.pause("stop", rig.o_record, rig.o_control)
    rig.i_control.put(random_control(rng, 1, 2))
    rig.i_record.put(*rig.record(mask=1))
    await rig.until(lambda: rig.i_record.count and rig.i_control.count, what="both in")
    await rig.cycles(1)
    await rig.sampled()
    assert rig.o_record.port.is_valid() and rig.o_control.port.is_valid()
    waited = 0

    def look(cycle):
        nonlocal waited
        waited += rig.get("counts")["tx_idle_waiting"]

    rig.on_sample(look)
    for packets in (4, 3):  # beside the beat at the output four have room
        for _ in range(packets):
            rig.i_record.put(*rig.record(mask=whole))
        await rig.cycles(60)
        assert bool(rig.i_record.pending) == (packets == 3)
        assert waited > 20 if rig.i_record.pending else not waited, waited
    rig.pause("random", rig.o_record, rig.o_control)
    await rig.until(lambda: not rig.i_record.pending, what="all in")
    await rig.cycles(80)
    rig.check()
    cover("link.loop.offers")


@LoopRig.test()
async def loop_full(rig, cfg, rng):
    """Nobody takes: the loop lane gives as many credits as it promised, and no more; then all
    comes. A reset forgets all."""
    source, out, own = rig.i_record, rig.o_record, None
    for turn in ("kept", "forgotten", "after"):
        await rig.start()
        own = 1 << rig.rank
        rig.pause("stop", out, rig.o_control)
        await rig.cycles(2)
        assert not out.port.is_valid() | rig.o_control.port.is_valid()
        assert rig.get("dest_ready") == rig.get("ctl_ready") == own
        first = len(out.items)
        for rank in range(cfg.ranks):  # what others take is not of this lane
            if rank != rig.rank:
                await rig.pulse("take", rank=rank)
        for n in range(4):  # credits for four packets
            assert rig.get("dest_ready") == own, f"{n} credits taken"
            await rig.pulse("take", rank=rig.rank)
            await rig.cycles(1)
        await rig.sampled()
        assert not rig.get("dest_ready"), "a fifth credit"
        await rig.cycles(1)
        for _ in range(4):
            source.put(*rig.record(mask=(1 << cfg.packet_bytes) - 1))
        rig.i_control.put(*(random_control(rng, 1, 2) for _ in range(cfg.ctl_credits + 2)))
        await rig.cycles(4 * cfg.frame_flits + 20)
        assert rig.i_control.pending == 2 and not rig.get("ctl_ready")
        if turn == "forgotten":
            continue
        rig.pause(None, out, rig.o_control)
        await rig.cycles(4 * cfg.frame_flits + 40)
        rig.check(first)
        assert rig.o_control.count >= cfg.ctl_credits + 2 and not rig.i_control.pending
