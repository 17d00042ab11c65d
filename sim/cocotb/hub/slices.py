# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of a slice of all ranks over a switch: links, receive pools, credits."""

from collections import Counter
from itertools import permutations

from hub_rtl.contract.packets import (
    BODIES,
    HEADER,
    NEWS_ENTRIES,
    PacketType,
    Reason,
    link_of,
    unpack,
)
from sim.bench.fabric import Switch, corrupt, drop, duplicate, shorten
from sim.bench.rig import Rig
from sim.bench.slice_mesh import SliceMesh
from sim.bench.slice_sender import Sender, random_record
from sim.bench.streams import GRID
from sim.cocotb.link.rig import random_control, same_record
from sim.golden.link import CONTROL, DATA, arrived, is_message, with_fields
from sim.quality.coverage import cover

#: What each hop fills in, of a control flit.
CLEAN = {"seq": 0, "credit": 0}


class MeshRig(Rig):
    """Sources, sinks and books of every rank's slice; ``sent`` and ``came`` hold records, or
    control flits without what each hop fills in, by (src, dst, class)."""

    block, nested = SliceMesh, True

    def __init__(self, dut, salt, idle=None, stall=None, **switch):
        super().__init__(dut, salt, idle, stall)
        ranks = range(self.cfg.ranks)
        for rank in ranks:
            self.set(f"p{rank}__rank", rank)
        self.switch = Switch(
            self.wires,
            self.cfg.ranks,
            self.cfg.slice_links,
            lambda rank, link: f"p{rank}__tx__{link}__",
            lambda rank, link: f"p{rank}__rx__{link}__",
            rng=self.rng,
            fault=self._message,
            **switch,
        )
        self.controls = self.of_all("i_control")
        self.senders = [
            Sender(self, self.cfg, source, f"p{rank}__")
            for rank, source in enumerate(self.of_all("i_record"))
        ]
        for rank, source in enumerate(self.of_all("i_record")):
            source.on_item(lambda item, cycle, rank=rank: self._leaves(rank, item))
        self.sent, self.came, self.freed = {}, {}, Counter()
        self.links, self.turn = {}, Counter()  # of each record that left; of rows of each rank
        self.counts, self.bad = [Counter() for _ in ranks], [[] for _ in ranks]
        self._record = [[] for _ in ranks]
        outputs = zip(self.of_all("o_record"), self.of_all("o_control"), strict=True)
        for rank, (records, controls) in enumerate(outputs):
            records.on_item(lambda item, cycle, rank=rank: self._beat(rank, item))
            controls.on_item(lambda item, cycle, rank=rank: self._control(rank, item))
        self.on_sample(self._look)

    def of_all(self, port):
        """The agents at this port of every rank."""
        return [getattr(self, f"p{rank}__{port}") for rank in range(self.cfg.ranks)]

    def _message(self, src, dst, link, flits):
        """What slices tell each other keeps to a link."""
        if unpack(HEADER, flits[0])["type"] == PacketType.CREDIT:
            body = unpack(BODIES[PacketType.CREDIT], flits[0])
            here = link == dst % self.cfg.slice_links
            assert here or not is_message(body), f"for {dst} on {link}"

    def _leaves(self, src, beat):
        """The link of a record whose last beat it is."""
        head, links = beat["header"], self.cfg.slice_links
        if beat["last"]:
            link = link_of(head["block"], self.cfg.lanes, links)
            if not head["plain"]:
                link, self.turn[src] = self.turn[src], (self.turn[src] + 1) % links
            self.links.setdefault((src, head["rank"]), []).append(link)

    def _note(self, src, dst, cls, item):
        self.came.setdefault((src, dst, cls), []).append(item)
        self.freed[src, dst, cls] += 1

    def _control(self, dst, item):
        self._note(unpack(HEADER, item)["src"], dst, CONTROL, with_fields(item, **CLEAN))

    def _beat(self, dst, item):
        self._record[dst].append(item)
        if item["last"]:
            self._note(item["header"]["rank"], dst, DATA, self._record[dst])
            self._record[dst] = []

    def _look(self, cycle):
        """Strobes, and conservation: never more packets on their way to a rank than it has
        places."""
        for src in range(self.cfg.ranks):
            for link in range(self.cfg.slice_links):
                for name, value in self.get(f"p{src}__counts__{link}").items():
                    self.counts[src][name] += value
                if bad := self.strobe(f"p{src}__o_bad__{link}"):
                    self.bad[src].append(bad["reason"])
        for dst in range(self.cfg.ranks):
            sources = [src for src in range(self.cfg.ranks) if src != dst]
            out = sum(self.senders[src].taken[dst] - self.freed[src, dst, DATA] for src in sources)
            assert out <= self.cfg.pool_places, f"{out} packets on their way to {dst}"

    def put(self, src, dst, control=0.2):
        news = self.rng.randint(1, NEWS_ENTRIES) if self.rng.random() < 0.1 else 0
        beats = self.record(dst, news=news)
        record = arrived(self.cfg, self.cfg.slice_bytes, beats, src)
        self.sent.setdefault((src, dst, DATA), []).append(record)
        self.senders[src].put(dst, beats)
        if self.rng.random() < control:
            flit = random_control(self.rng, src, dst)
            self.sent.setdefault((src, dst, CONTROL), []).append(with_fields(flit, **CLEAN))
            self.controls[src].put(flit)

    def record(self, dst, **more):
        return random_record(self.cfg, self.cfg.slice_bytes, self.rng, rank=dst, **more)

    def forget(self):
        """After a reset."""
        per_rank = (*self.counts, *self.bad, *self._record)
        taken = [sender.taken for sender in self.senders]
        for book in (self.sent, self.came, self.freed, self.links, self.turn, *per_rank, *taken):
            book.clear()

    def pairs(self):
        return [*permutations(range(self.cfg.ranks), 2)]

    def complete(self, keys=None):
        return all(len(self.came.get(key, ())) == len(self.sent[key]) for key in keys or self.sent)

    def check(self, keys=None):
        for key in keys or {*self.sent, *self.came}:
            came, sent = self.came.get(key, []), self.sent.get(key, [])
            assert len(came) == len(sent), f"(src, dst, class) {key}: {len(came)} of {len(sent)}"
            if key[2] == CONTROL:
                assert came == sent, f"control flits of (src, dst) {key[:2]}"
            else:
                self._each_in_order(key[:2], came, sent)

    def _each_in_order(self, pair, came, sent):
        """Each record that came is the next one of its link."""
        ways = [[] for _ in range(self.cfg.slice_links)]
        for n, (record, link) in enumerate(zip(sent, self.links[pair], strict=True)):
            ways[link].append((n, record))
        for n, record in enumerate(came):
            nexts = (way for way in ways if way)
            same = (w for w in nexts if same_record(self.cfg.slice_bytes, record, w[0][1]))
            way = next(same, None)
            assert way, f"(src, dst) {pair}: what came as number {n} is next on no link"
            cover("hub.slices.overtaken", way.pop(0)[0] > n)

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
    cover(f"hub.slices.{'.'.join(grid)}")


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
            rig.senders[0].put(1, rig.record(1, mask=(1 << cfg.packet_bytes) - 1))
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
        cover(f"hub.slices.fault.{kind}")


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
    cover("hub.slices.stalled_port")


@MeshRig.test(fits=lambda cfg: cfg.link_clock and cfg.slice_links == 3, finish=False, latency=1)
async def line_rate(rig, cfg, rng):
    """Full rows of one rank to another fill all links of a slice at 3 : 2."""
    for _ in range(600):
        rig.senders[0].put(1, rig.record(1, plain=0, mask=(1 << cfg.packet_bytes) - 1))
    await rig.cycles(200)
    flits, cycles, ticks = rig.total("tx_busy"), rig.cycle, rig.wires.cycle
    await rig.cycles(600)
    sent = (rig.total("tx_busy") - flits) / cfg.slice_links / (rig.wires.cycle - ticks)
    print(f"line rate: {sent:.4f}, {(rig.wires.cycle - ticks) / (rig.cycle - cycles):.4f} ticks")
    assert sent > 0.99, f"links are busy {100 * sent:.1f} %"
