# SPDX-License-Identifier: Apache-2.0
"""cocotb tests of a slice from records to records: a record comes out as it went in."""

from sim.bench.rig import Rig
from sim.bench.slice_pair import RECEIVER, SENDER, SlicePair
from sim.bench.slice_sender import random_record
from sim.bench.streams import GRID
from sim.cocotb.link.rig import same_record
from sim.golden.link import arrived
from sim.quality.coverage import cover


class PairRig(Rig):
    """Sends records as credits allow; each one that comes must be the next of its link."""

    def __init__(self, dut, salt, idle=None, stall=None):
        super().__init__(dut, salt, idle, stall, watchdog=1500)
        self.size = self.params["slice_bytes"]
        self.o_record.on_item(self._came)
        self.on_sample(self._look)
        self.add(self)

    def component(self):
        names = ("slice_bytes", "links", "places", "period")
        return SlicePair(self.cfg, **{name: self.params[name] for name in names})

    async def start(self):
        self.wanted, self.taken, self.credit, self.just = [], 0, 0, False
        self.sent = [[] for _ in self.i_record]
        self.leaving, self.came = [], 0
        await super().start()

    def drive(self):
        # What is sampled shows a take two cycles later.
        go = self.wanted and self.credit and not self.just and self.rng.random() < 0.8
        self.just = go
        if go:
            link = self.rng.randrange(len(self.i_record))
            beats = self.wanted.pop()
            self.i_record[link].put(*beats)
            self.sent[link].append(arrived(self.cfg, self.size, beats, SENDER))
            self.taken += 1
        self.set("take", {"en": int(bool(go)), "rank": RECEIVER})

    def _look(self, cycle):
        self.credit = self.get("ready") >> RECEIVER & 1
        assert not self.get("wrong"), f"{self.get('wrong'):#b}"

    def _came(self, beat, cycle):
        self.leaving.append(beat)
        if not beat["last"]:
            return
        for sent in self.sent:
            if sent and same_record(self.size, self.leaving, sent[0]):
                sent.pop(0)
                self.came += 1
                self.leaving = []
                return
        raise AssertionError(f"came {self.leaving}, next are {[s[:1] for s in self.sent]}")

    def clear(self, forget=True):
        pass

    def sample(self):
        pass

    async def finish(self):
        await self.until(lambda: not self.wanted and not any(self.sent), 40000, "all records")
        assert self.came == self.taken and not self.leaving


@PairRig.test(grid=GRID)
async def records(rig, cfg, rng, grid):
    """Records over all links of a slice, more than there are places; reset in traffic."""
    for again in range(2):
        records = range(rig.params["records"])
        rig.wanted = [random_record(cfg, rig.size, rng, rank=RECEIVER) for _ in records]
        await rig.cycles(rng.randrange(20, 200))
        if not again:
            await rig.start()
    await rig.finish()
    cover(f"receive_pool.pair.{'.'.join(grid)}")
