# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of all ranks' LinkPorts over a switch, and of the LoopPort."""

from collections import Counter

import cocotb

from hub_rtl.contract.packets import HEADER, PacketType, Reason, unpack
from hub_rtl.contract.records import BAD_PACKET, LINK_COUNTS, types_of
from sim.bench.fabric import Switch, corrupt, drop, duplicate, shorten
from sim.bench.runner import bench_params
from sim.bench.streams import GRID, StreamSink, StreamSource, bus_read, start_clock
from sim.golden.link import DATA, credit_class, with_fields
from sim.quality.coverage import cover

from .rig import Sender, as_stream, random_control, random_packet, unfilled

CLEAN = {"seq": 0, "credit": 0, "credit_cls": 0}


class Mesh:
    """Sources, sinks and books of every rank's port; ``sent`` and ``came`` hold frames by (src,
    dst), own fields cleared."""

    def __init__(self, dut, salt, idle=None, stall=None, **switch):
        self.cfg, self.params, self.rng = bench_params(salt)
        cfg, rng, self.dut = self.cfg, self.rng, dut
        self.bench = bench = start_clock(dut, watchdog=3000)
        flit = types_of(cfg).flit
        ranks = range(cfg.ranks)
        self.switch = Switch(
            bench,
            cfg.ranks,
            1,
            lambda rank, lane: f"p{rank}__tx__",
            lambda rank, lane: f"p{rank}__rx__",
            rng=rng,
            **switch,
        )
        sources = [StreamSource(bench, f"p{rank}__i_packet", flit, idle, rng) for rank in ranks]
        self.controls = [
            StreamSource(bench, f"p{rank}__i_control", None, idle, rng) for rank in ranks
        ]
        self.senders = [
            Sender(bench, cfg, source, f"p{rank}__") for rank, source in enumerate(sources)
        ]
        self.outs = [StreamSink(bench, f"p{rank}__o_packet", flit, stall, rng) for rank in ranks]
        self.out_controls = [
            StreamSink(bench, f"p{rank}__o_control", None, stall, rng) for rank in ranks
        ]
        self.sent, self.came, self.freed, self.counts = (
            {},
            {},
            Counter(),
            [Counter() for _ in ranks],
        )
        self.bad = [[] for _ in ranks]
        self._frame = [[] for _ in ranks]
        self._before = [Counter() for _ in ranks]
        for rank in ranks:
            getattr(dut, f"p{rank}__peer_dead").value = 0
            self.outs[rank].on_item(lambda item, cycle, rank=rank: self._flit(rank, item))
            self.out_controls[rank].on_item(lambda item, cycle, rank=rank: self._note(rank, [item]))
        bench.on_sample(self._look)

    def _note(self, dst, flits):
        fields = unpack(HEADER, flits[0])
        key = (fields["src"], dst, credit_class(PacketType(fields["type"])))
        self.came.setdefault(key, []).append([with_fields(flits[0], **CLEAN), *flits[1:]])
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
            for name, value in bus_read(self.dut, f"p{src}__counts", LINK_COUNTS).items():
                self.counts[src][name] += value
            bad = bus_read(self.dut, f"p{src}__o_bad", BAD_PACKET)
            if bad["en"]:
                self.bad[src].append(bad["reason"])
            ready = int(getattr(self.dut, f"p{src}__dest_ready").value)
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
        self.sent.setdefault((src, dst, DATA), []).append(
            [with_fields(flits[0], **CLEAN), *flits[1:]]
        )
        self.senders[src].put(dst, flits)
        if self.rng.random() < control:
            flit = random_control(self.rng, src, dst)
            self.sent.setdefault((src, dst, 1), []).append([with_fields(flit, **CLEAN)])
            self.controls[src].put(flit)

    def forget(self):
        """After a reset."""
        for book in (
            self.sent,
            self.came,
            self.freed,
            *self.counts,
            *self.bad,
            *self._frame,
            *self._before,
        ):
            book.clear()
        for sender in self.senders:
            sender.taken.clear()

    def pairs(self):
        return [
            (src, dst)
            for src in range(self.cfg.ranks)
            for dst in range(self.cfg.ranks)
            if src != dst
        ]

    def complete(self, keys=None):
        return all(len(self.came.get(key, ())) == len(self.sent[key]) for key in keys or self.sent)

    def check(self, keys=None):
        for key in keys or {*self.sent, *self.came}:
            assert self.came.get(key, []) == self.sent.get(key, []), (
                f"(src, dst, class) {key} differs"
            )

    def total(self, name):
        return sum(counts[name] for counts in self.counts)


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def everyone_to_everyone(dut, grid):
    """All pairs at once through the switch on the grid: each pair's frames in order, once; credits
    conserved each cycle."""
    idle, stall = grid
    latency = {"none": 1, "cyclic": (1, 8), "random": (5, 80)}[stall]
    mesh = Mesh(dut, f"mesh{grid}", idle, stall, latency=latency, pause_tx=stall, pause_rx=idle)
    await mesh.bench.reset()
    for _ in range(mesh.params["packets"]):
        mesh.put(*mesh.rng.choice(mesh.pairs()))
    await mesh.bench.until(mesh.complete, limit=40000, what="all arrived")
    await mesh.bench.until(lambda: mesh.switch.idle, what="switch empty")
    await mesh.bench.cycles(300)
    mesh.check()
    for name in ("seq_errors", "credit_violations", "truncated", "bad_totals", "control_sunk"):
        assert mesh.total(name) == 0, name
    cover(f"link.mesh.{idle}.{stall}")


@cocotb.test()
async def faults_stay_local(dut):
    """What the fabric does to one pair's packets (lost, doubled, damaged, cut) never touches
    another pair's."""
    rng = bench_params("faults")[2]
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

    mesh = Mesh(dut, "faults", latency=(1, 6), fault=fault)
    others = [pair for pair in mesh.pairs() if pair != (0, 1)]
    for kind in kinds:
        await mesh.bench.reset()
        chosen[0] = kind
        mesh.forget()
        for _ in range(4):
            mesh.senders[0].put(1, random_packet(mesh.cfg, rng, 0, 1, length=mesh.cfg.packet_flits))
        for _ in range(mesh.params["packets"]):
            mesh.put(*rng.choice(others))
        keys = list(mesh.sent)
        await mesh.bench.until(
            lambda keys=keys: mesh.complete(keys), limit=20000, what=f"the other pairs after {kind}"
        )
        await mesh.bench.cycles(400)
        mesh.check(keys)
        gained, came = mesh.counts[1], len(mesh.came.get((0, 1, DATA), ()))
        assert hit.pop() == kind
        if kind == "duplicate":
            assert gained["seq_errors"] == 1 and came == 4
        elif kind == "shorten":
            assert gained["truncated"] == 1 and came == 4
        elif kind == "drop":
            assert came < 4
        else:
            assert mesh.bad[1] == [Reason.BAD_LANE if kind == "wrong_lane" else Reason.BAD_HEADER]
        cover(f"link.fault.{kind}")


@cocotb.test()
async def stalled_port(dut):
    """A rank that gets nothing for a while stops only traffic from and to itself; afterwards
    everything arrives."""
    mesh = Mesh(dut, "stalled", latency=3)
    await mesh.bench.reset()
    mesh.switch.stall_rx.add((1, 0))
    for _ in range(mesh.params["packets"]):
        for pair in mesh.pairs():
            mesh.put(*pair, control=0)
    await mesh.bench.until(
        lambda: mesh.complete([(0, 2, DATA), (2, 0, DATA)]),
        limit=20000,
        what="traffic beside the stall",
    )
    assert not mesh.complete()
    mesh.switch.stall_rx.clear()
    await mesh.bench.until(mesh.complete, limit=40000, what="all after the stall")
    mesh.check()
    cover("link.stalled_port")


@cocotb.test()
@cocotb.parametrize(grid=GRID)
async def loop_traffic(dut, grid):
    """The loop lane: all comes out once and in order with own numbers filled in, control beside it,
    credits right."""
    idle, stall = grid
    cfg, params, rng = bench_params(f"loop{grid}")
    bench = start_clock(dut, watchdog=500)
    flit = types_of(cfg).flit
    source = StreamSource(bench, "loop__i_packet", flit, idle, rng)
    out = StreamSink(bench, "loop__o_packet", flit, stall, rng)
    controls = StreamSource(bench, "loop__i_control", None, idle, rng)
    out_control = StreamSink(bench, "loop__o_control", None, stall, rng)
    sender = Sender(bench, cfg, source, "loop__")
    freed = [0]
    out.on_item(lambda item, cycle: freed.__setitem__(0, freed[0] + item["last"]))

    due = {}  # cycle: counts that the ports of the one before decide

    def look(cycle):
        counts = bus_read(dut, "loop__counts", LINK_COUNTS)
        assert all(counts[name] == value for name, value in due.pop(cycle, {}).items()), (
            f"counts in cycle {cycle}: {counts}"
        )
        port = {
            name: (
                int(getattr(dut, f"loop__{name}__valid").value),
                int(getattr(dut, f"loop__{name}__ready").value),
            )
            for name in ("i_packet", "o_packet", "i_control")
        }
        moves = {name: valid & ready for name, (valid, ready) in port.items()}
        due[cycle + 1] = {
            "tx_busy": moves["i_packet"],
            "rx_busy": moves["o_packet"],
            "tx_idle_waiting": port["i_packet"][0] - moves["i_packet"],
            "credit_stall": port["i_control"][0] - moves["i_control"],
        }
        assert sender.taken[0] - freed[0] <= 4
        assert not int(dut.loop__dest_ready.value) >> 1, "credit for another rank"

    bench.on_sample(look)
    await bench.reset()
    for n in range(2 * params["packets"]):
        flits = random_packet(
            cfg, rng, 1, 2, lane=5, length=cfg.packet_flits if grid == ("none", "none") else None
        )
        sender.put(0, flits)
        out.expect(*as_stream([with_fields(flits[0], src=0, dst=0, lane=0), *flits[1:]]))
        if n % 3 == 0:
            control = unfilled(rng, random_control(rng, 1, 2))
            controls.put(control)
            out_control.expect(with_fields(control, src=0, dst=0, lane=0))
    await bench.until(
        lambda: not sender.pending and not controls.pending, limit=20000, what="all in"
    )
    await bench.cycles(400)
    out.finish()
    out_control.finish()
    if grid == ("none", "none"):
        assert out.stamps[0] - source.stamps[0] == 1
        assert out.stamps[-1] - out.stamps[0] == out.count - 1, "bubble on the loop lane"
    assert int(dut.loop__dest_ready.value) == 1 and int(dut.loop__ctl_ready.value) == 1
    cover(f"link.loop.grid.{idle}.{stall}")


@cocotb.test()
async def loop_full(dut):
    """Nobody takes: the loop lane keeps as much as it promised, and no more; then all comes. A
    reset forgets all."""
    cfg, _, rng = bench_params("loop_full")
    bench = start_clock(dut, watchdog=500)
    source = StreamSource(bench, "loop__i_packet", types_of(cfg).flit)
    out = StreamSink(bench, "loop__o_packet", types_of(cfg).flit, "stop")
    controls, out_control = (
        StreamSource(bench, "loop__i_control"),
        StreamSink(bench, "loop__o_control", None, "stop"),
    )
    dut.loop__take.value = 0
    for turn in ("kept", "forgotten", "after"):
        await bench.reset()
        out.set_pause("stop")
        out_control.set_pause("stop")
        await bench.cycles(2)
        assert not int(dut.loop__o_packet__valid.value) and not int(
            dut.loop__o_control__valid.value
        )
        assert int(dut.loop__dest_ready.value) == 1 and int(dut.loop__ctl_ready.value) == 1
        flits = [
            flit
            for _ in range(6)
            for flit in random_packet(cfg, rng, 1, 2, length=cfg.packet_flits, masked=1)
        ]
        packets = as_stream(flits)
        first = source.count
        for n in range(4):  # credits for four packets
            assert int(dut.loop__dest_ready.value) == 1, f"{n} credits taken"
            dut.loop__take.value = 1
            await bench.cycles(1)
            dut.loop__take.value = 0
            await bench.cycles(1)
        await bench.sampled()
        assert not int(dut.loop__dest_ready.value), "a fifth credit"
        await bench.cycles(1)
        source.put(*packets)
        controls.put(*(random_control(rng, 1, 2) for _ in range(cfg.ctl_credits + 2)))
        await bench.cycles(len(packets) + 20)
        assert source.count - first == 4 * cfg.frame_flits + 1  # one stands at the output
        assert controls.pending == 2 and not int(dut.loop__ctl_ready.value)
        if turn == "forgotten":
            continue
        out.set_pause(None)
        out_control.set_pause(None)
        await bench.cycles(len(packets) + 20)
        assert [item["data"] >> 32 for item in out.items] == [flit >> 32 for flit in flits]
        assert out_control.count >= cfg.ctl_credits + 2 and not controls.pending
