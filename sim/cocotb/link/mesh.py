# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of all ranks' LinkPorts over a switch, and of the LoopPort."""

from collections import Counter
from itertools import permutations

from hub_rtl.contract.packets import HEADER, PacketType, Reason, unpack
from sim.bench.fabric import Switch, corrupt, drop, duplicate, shorten
from sim.bench.link_mesh import LinkMesh
from sim.bench.rig import Rig
from sim.bench.streams import GRID
from sim.golden.link import DATA, credit_class, with_fields
from sim.quality.coverage import cover

from .rig import Sender, as_stream, random_control, random_packet, unfilled

CLEAN = {"seq": 0, "credit": 0, "credit_cls": 0}


def clean(flits):
    """A frame without what each hop fills in."""
    return [with_fields(flits[0], **CLEAN), *flits[1:]]


class MeshRig(Rig):
    """Sources, sinks and books of every rank's port; ``sent`` and ``came`` hold frames by (src,
    dst), own fields cleared."""

    block, nested = LinkMesh, True

    def __init__(self, dut, salt, idle=None, stall=None, **switch):
        super().__init__(dut, salt, idle, stall)
        ranks = range(self.cfg.ranks)
        self.switch = Switch(
            self,
            self.cfg.ranks,
            1,
            lambda rank, lane: f"p{rank}__tx__",
            lambda rank, lane: f"p{rank}__rx__",
            rng=self.rng,
            **switch,
        )
        self.controls = self.of_all("i_control")
        self.senders = [
            Sender(self, self.cfg, source, f"p{rank}__")
            for rank, source in enumerate(self.of_all("i_packet"))
        ]
        self.sent, self.came, self.freed = {}, {}, Counter()
        self.counts, self.bad = [Counter() for _ in ranks], [[] for _ in ranks]
        self._frame = [[] for _ in ranks]
        self._before = [Counter() for _ in ranks]
        outputs = zip(self.of_all("o_packet"), self.of_all("o_control"), strict=True)
        for rank, (packets, controls) in enumerate(outputs):
            packets.on_item(lambda item, cycle, rank=rank: self._flit(rank, item))
            controls.on_item(lambda item, cycle, rank=rank: self._note(rank, [item]))
        self.on_sample(self._look)

    def of_all(self, port):
        """The agents at this port of every rank."""
        return [getattr(self, f"p{rank}__{port}") for rank in range(self.cfg.ranks)]

    def _note(self, dst, flits):
        fields = unpack(HEADER, flits[0])
        key = (fields["src"], dst, credit_class(PacketType(fields["type"])))
        self.came.setdefault(key, []).append(clean(flits))
        self.freed[key] += 1

    def _flit(self, dst, item):
        self._frame[dst].append(item["data"])
        if item["last"]:
            self._note(dst, self._frame[dst])
            self._frame[dst] = []

    def _look(self, cycle):
        """Strobes, and conservation: never more packets taken and not freed than buffers; ready
        only while there is one."""
        for src, sender in enumerate(self.senders):
            for name, value in self.get(f"p{src}__counts").items():
                self.counts[src][name] += value
            if bad := self.strobe(f"p{src}__o_bad"):
                self.bad[src].append(bad["reason"])
            ready = self.get(f"p{src}__dest_ready")
            for dst in range(self.cfg.ranks):
                out = sender.taken[dst] - self.freed[src, dst, DATA]
                assert out <= self.cfg.rx_credits, f"{src} to {dst}: {out} packets on their way"
                new = sender.taken[dst] - self._before[src][dst]
                assert dst == src or not ready >> dst & 1 or out - new < self.cfg.rx_credits, (
                    f"{src}: no credit for {dst}"
                )
            self._before[src] = Counter(sender.taken)

    def put(self, src, dst, control=0.2):
        flits = random_packet(self.cfg, self.rng, src, dst)
        self.sent.setdefault((src, dst, DATA), []).append(clean(flits))
        self.senders[src].put(dst, flits)
        if self.rng.random() < control:
            flit = random_control(self.rng, src, dst)
            self.sent.setdefault((src, dst, 1), []).append(clean([flit]))
            self.controls[src].put(flit)

    def forget(self):
        """After a reset."""
        per_rank = (*self.counts, *self.bad, *self._frame, *self._before)
        taken = [sender.taken for sender in self.senders]
        for book in (self.sent, self.came, self.freed, *per_rank, *taken):
            book.clear()

    def pairs(self):
        return [*permutations(range(self.cfg.ranks), 2)]

    def complete(self, keys=None):
        return all(len(self.came.get(key, ())) == len(self.sent[key]) for key in keys or self.sent)

    def check(self, keys=None):
        for key in keys or {*self.sent, *self.came}:
            assert self.came.get(key, []) == self.sent.get(key, []), (
                f"(src, dst, class) {key} differs"
            )

    def total(self, name):
        return sum(counts[name] for counts in self.counts)


@MeshRig.test(grid=GRID)
async def everyone_to_everyone(rig, cfg, rng, grid):
    """All pairs at once through the switch on the grid: each pair's frames in order, once; credits
    conserved each cycle."""
    idle, stall = grid
    latency = {"none": 1, "cyclic": (1, 8), "random": (5, 80)}[stall]
    rig.switch.set_pauses(latency, pause_tx=stall, pause_rx=idle)
    for _ in range(rig.params["packets"]):
        rig.put(*rng.choice(rig.pairs()))
    await rig.until(rig.complete, limit=40000, what="all arrived")
    await rig.until(lambda: rig.switch.idle, what="switch empty")
    await rig.cycles(300)
    rig.check()
    for name in ("seq_errors", "credit_violations", "truncated", "bad_totals", "control_sunk"):
        assert rig.total(name) == 0, name
    cover(f"link.mesh.{'.'.join(grid)}")


@MeshRig.test(latency=(1, 6))
async def faults_stay_local(rig, cfg, rng):
    """What the fabric does to one pair's packets (lost, doubled, damaged, cut) never touches
    another pair's."""
    kinds = {
        "drop": drop,
        "duplicate": duplicate,
        "corrupt": corrupt(1 << HEADER["fan"][0]),
        "wrong_lane": corrupt(2 << HEADER["lane"][0]),
        "shorten": shorten(2),
    }
    chosen, hit = [None], []

    def fault(src, dst, lane, flits):
        if (src, dst) != (0, 1) or len(flits) < 3 or chosen[0] is None:
            return None
        kind, chosen[0] = chosen[0], None
        hit.append(kind)
        return kinds[kind]

    rig.switch.fault = fault
    others = [pair for pair in rig.pairs() if pair != (0, 1)]
    for kind in kinds:
        await rig.reset()
        chosen[0] = kind
        rig.forget()
        for _ in range(4):
            rig.senders[0].put(1, random_packet(cfg, rng, 0, 1, length=cfg.packet_flits))
        for _ in range(rig.params["packets"]):
            rig.put(*rng.choice(others))
        keys = list(rig.sent)
        await rig.until(
            lambda keys=keys: rig.complete(keys), limit=20000, what=f"the other pairs after {kind}"
        )
        await rig.cycles(400)
        rig.check(keys)
        gained, came = rig.counts[1], len(rig.came.get((0, 1, DATA), ()))
        assert hit.pop() == kind
        if kind == "duplicate":
            assert gained["seq_errors"] == 1 and came == 4
        elif kind == "shorten":
            assert gained["truncated"] == 1 and came == 4
        elif kind == "drop":
            assert came < 4
        else:
            assert rig.bad[1] == [Reason.BAD_LANE if kind == "wrong_lane" else Reason.BAD_HEADER]
        cover(f"link.fault.{kind}")


@MeshRig.test(latency=3)
async def stalled_port(rig, cfg, rng):
    """A rank that gets nothing for a while stops only traffic from and to itself; afterwards
    everything arrives."""
    rig.switch.stall_rx.add((1, 0))
    for _ in range(rig.params["packets"]):
        for pair in rig.pairs():
            rig.put(*pair, control=0)
    await rig.until(
        lambda: rig.complete([(0, 2, DATA), (2, 0, DATA)]),
        limit=20000,
        what="traffic beside the stall",
    )
    assert not rig.complete()
    rig.switch.stall_rx.clear()
    await rig.until(rig.complete, limit=40000, what="all after the stall")
    rig.check()
    cover("link.stalled_port")


class LoopRig(Rig):
    """The loop lane; its agents, without the prefix of the port."""

    nested = True

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=500)
        for name in ("i_packet", "o_packet", "i_control", "o_control"):
            setattr(self, name, getattr(self, f"loop__{name}"))

    def component(self):
        return LinkMesh(self.cfg, ranks=0)


@LoopRig.test(grid=GRID)
async def loop_traffic(rig, cfg, rng, grid):
    """The loop lane: all comes out once and in order with own numbers filled in, control beside it,
    credits right."""
    source, out = rig.i_packet, rig.o_packet
    sender = Sender(rig, cfg, source, "loop__")
    freed = [0]
    out.on_item(lambda item, cycle: freed.__setitem__(0, freed[0] + item["last"]))

    due = {}  # cycle: counts that the ports of the one before decide

    def look(cycle):
        counts = rig.get("loop__counts")
        assert all(counts[name] == value for name, value in due.pop(cycle, {}).items()), (
            f"counts in cycle {cycle}: {counts}"
        )
        ports = {name: getattr(rig, name).port for name in ("i_packet", "o_packet", "i_control")}
        port = {
            name: (int(port.valid.value), int(port.ready.value)) for name, port in ports.items()
        }
        moves = {name: valid & ready for name, (valid, ready) in port.items()}
        due[cycle + 1] = {
            "tx_busy": moves["i_packet"],
            "rx_busy": moves["o_packet"],
            "tx_idle_waiting": port["i_packet"][0] - moves["i_packet"],
            "credit_stall": port["i_control"][0] - moves["i_control"],
        }
        assert sender.taken[0] - freed[0] <= 4
        assert not rig.get("loop__dest_ready") >> 1, "credit for another rank"

    rig.on_sample(look)
    for n in range(2 * rig.params["packets"]):
        flits = random_packet(
            cfg, rng, 1, 2, lane=5, length=cfg.packet_flits if grid == ("none", "none") else None
        )
        sender.put(0, flits)
        out.expect(*as_stream([with_fields(flits[0], src=0, dst=0, lane=0), *flits[1:]]))
        if n % 3 == 0:
            control = unfilled(rng, random_control(rng, 1, 2))
            rig.i_control.put(control)
            rig.o_control.expect(with_fields(control, src=0, dst=0, lane=0))
    await rig.until(
        lambda: not sender.pending and not rig.i_control.pending, limit=20000, what="all in"
    )
    await rig.cycles(400)
    out.finish()
    rig.o_control.finish()
    if grid == ("none", "none"):
        assert out.stamps[0] - source.stamps[0] == 1
        assert out.stamps[-1] - out.stamps[0] == out.count - 1, "bubble on the loop lane"
    assert rig.get("loop__dest_ready") == 1 and rig.get("loop__ctl_ready") == 1
    cover(f"link.loop.grid.{'.'.join(grid)}")


@LoopRig.test()
async def loop_full(rig, cfg, rng):
    """Nobody takes: the loop lane keeps as much as it promised, and no more; then all comes. A
    reset forgets all."""
    source, out = rig.i_packet, rig.o_packet
    for turn in ("kept", "forgotten", "after"):
        await rig.reset()
        rig.pause("stop", out, rig.o_control)
        await rig.cycles(2)
        assert not int(out.port.valid.value) | int(rig.o_control.port.valid.value)
        assert rig.get("loop__dest_ready") == 1 and rig.get("loop__ctl_ready") == 1
        flits = [
            flit
            for _ in range(6)
            for flit in random_packet(cfg, rng, 1, 2, length=cfg.packet_flits, masked=1)
        ]
        packets = as_stream(flits)
        first = source.count
        for rank in range(1, cfg.ranks):  # what others take is not of this lane
            await rig.pulse("loop__take", rank=rank)
        for n in range(4):  # credits for four packets
            assert rig.get("loop__dest_ready") == 1, f"{n} credits taken"
            await rig.pulse("loop__take", rank=0)
            await rig.cycles(1)
        await rig.sampled()
        assert not rig.get("loop__dest_ready"), "a fifth credit"
        await rig.cycles(1)
        source.put(*packets)
        rig.i_control.put(*(random_control(rng, 1, 2) for _ in range(cfg.ctl_credits + 2)))
        await rig.cycles(len(packets) + 20)
        assert source.count - first == 4 * cfg.frame_flits + 1  # one stands at the output
        assert rig.i_control.pending == 2 and not rig.get("loop__ctl_ready")
        if turn == "forgotten":
            continue
        rig.pause(None, out, rig.o_control)
        await rig.cycles(len(packets) + 20)
        assert [item["data"] >> 32 for item in out.items] == [flit >> 32 for flit in flits]
        assert rig.o_control.count >= cfg.ctl_credits + 2 and not rig.i_control.pending
