# SPDX-License-Identifier: Apache-2.0
"""The decoder with its agents: random entries and stores, every response checked against the golden
model."""

from collections import deque

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, Reason, lane_of, pack
from hub_rtl.contract.records import STORE_REFUSAL, types_of
from sim.bench.streams import Codec, StreamSink, StreamSource, bus_pulse, bus_write, start_clock
from sim.golden.decoder import DecoderModel
from sim.quality.coverage import cover


class Traffic:
    """Random entries and stores that reach every outcome with a fair chance."""

    def __init__(self, cfg, rng, lane):
        self.cfg, self.rng, self.lane = cfg, rng, lane

    FAULTS = ("valid", "rank", "region", "replicas", "row_bytes", "row_length")

    def entry(self, good=0.85):
        return self.broken(self.rng.choice(self.FAULTS) if self.rng.random() > good else None)

    def broken(self, fault):
        """A random entry with this fault, or none."""
        cfg, rng = self.cfg, self.rng
        log2 = rng.randrange(cfg.replicas.bit_length())
        top = {
            name: (1 << width) - 1
            for name, width in (("rank", cfg.rank_width), ("region", cfg.region_width))
        }
        entry = {
            "valid": int(fault != "valid"),
            "owner": rng.choice((3, 3, 3, 5)),
            "epoch": rng.randrange(16),
            "closed": rng.randrange(2),
            "row_bytes": 16 * rng.randint(1, cfg.max_row_bytes // 16),
            "lane_mode": rng.choice((0, 0, 1, 2, 3)),
            "lane": rng.choice((self.lane, self.lane, rng.randrange(1 << cfg.lane_width))),
            "log2_replicas": log2,
            "replica": [
                {"rank": rng.randrange(cfg.ranks), "region": rng.randrange(cfg.regions)}
                for _ in range(cfg.replicas)
            ],
        }
        if fault == "replicas":
            entry["log2_replicas"] = cfg.replicas.bit_length()
        elif fault == "row_bytes":
            entry["row_bytes"] = (1 << cfg.row_bytes_width) - 16
        elif fault == "row_length":
            entry["row_bytes"] |= rng.randint(1, 15)
        elif fault in top:
            rng.choice(entry["replica"])[fault] = top[fault]
        return entry

    def mask(self):
        rng = self.rng
        return rng.choice(
            (
                0xFFFFFFFF,
                rng.getrandbits(32),
                1 << rng.randrange(32),
                0,
                0xFFFF,
                0xFFFF0000,
                0xFFFFFFFF,
            )
        )

    def store(self, model):
        cfg, rng = self.cfg, self.rng
        store = {
            "cls": rng.randrange(2),
            "owner": rng.choice((3, 3, 3, 3, 5)),
            "data": rng.getrandbits(256),
            "mask": self.mask(),
            "tag": rng.getrandbits(cfg.tag_width),
        }
        if rng.random() < 0.25:
            operand = {
                "rank": rng.choice((rng.randrange(cfg.ranks),) * 7 + (rng.randrange(128),)),
                "addr": rng.getrandbits(48),
                "plain": 1,
            }
            layout = OPERAND_PLAIN
        else:
            handle = rng.choice((rng.randrange(cfg.handles),) * 9 + (rng.randrange(2048),))
            entry, _ = model.entries.get(handle, ({"epoch": 0, "row_bytes": 16, "owner": 3}, 0))
            store["owner"] = rng.choice((entry["owner"],) * 8 + (9,))
            last = max(0, entry["row_bytes"] // 16 - 1)
            operand = {
                "handle": handle,
                "epoch": (entry["epoch"] + rng.choice((0,) * 12 + (15, 1, rng.randrange(16)))) % 16,
                "rowid": rng.getrandbits(24),
                "row_off": rng.choice((rng.randint(0, last), last, min(1023, last + 1))),
            }
            layout = OPERAND_ROW
        store["operand"] = pack(layout, **operand)
        if rng.random() < 0.9:
            self._to_lane(store, layout, operand, model)
        return store

    def _to_lane(self, store, layout, operand, model):
        """Moves row or address so that the store belongs to the lane under test."""
        cfg = self.cfg
        entry, _ = model.entries.get(operand.get("handle"), ({}, 0))
        for _ in range(cfg.lanes):
            if (
                lane_of(
                    store["operand"],
                    cfg.lanes,
                    cfg.packet_bytes,
                    entry.get("lane_mode", 0),
                    entry.get("lane", 0),
                )
                == self.lane
            ):
                return
            if layout is OPERAND_PLAIN:
                operand["addr"] = (operand["addr"] + cfg.packet_bytes) % (1 << 48)
            else:
                operand["rowid"] = (operand["rowid"] + 1) % (1 << 24)
            store["operand"] = pack(layout, **operand)


class DecoderBench:
    """The decoder with its agents; every response is checked against the model's outcomes for the
    states of the table between the store's acceptance and its response (one state, unless the table
    is written meanwhile)."""

    def __init__(self, dut, cfg, rng, lane, idle=None, stall=None):
        types = types_of(cfg)
        self.dut, self.cfg, self.rng = dut, cfg, rng
        self.bench = start_clock(dut, watchdog=1500)
        self.rank = rng.randrange(cfg.ranks)
        self.model = DecoderModel(cfg, self.rank, lane)
        self.traffic = Traffic(cfg, rng, lane)
        self.source = StreamSource(self.bench, "i_store", types.store, pause=idle, rng=rng)
        self.link = StreamSink(self.bench, "o_link", types.resolved, pause=stall, rng=rng)
        self.loop = StreamSink(self.bench, "o_loop", types.resolved, pause=stall, rng=rng)
        self.responses = StreamSink(
            self.bench, "o_response", types.store_response, pause=stall, rng=rng
        )
        self.source.on_item(self._accepted)
        self.link.on_item(lambda item, _: self.handed.append((False, item)))
        self.loop.on_item(lambda item, _: self.handed.append((True, item)))
        self.responses.on_item(self._responded)
        self.bench.on_sample(self._look)
        self.broadcast, self.refusal = Codec(types_of(cfg).handle_broadcast), Codec(STORE_REFUSAL)
        self.forget()
        for name, value in (
            ("rank", self.rank),
            ("lane", lane),
            ("peer_dead", 0),
            ("handle_write", 0),
            ("flush", 0),
        ):
            bus_write(dut, name, value)

    def forget(self):
        self.states = [self.model.state()]
        self.waiting, self.handed, self.reports = deque(), deque(), deque()
        self.expected_reports = deque()
        self.accepted, self.delivers, self.delivered, self.outcomes = 0, [], 0, []
        self.flushes, self.flush = [], None
        self.inside = (0, 0)  # cycle, stores that have no response when it begins

    def changed(self):
        """The table or the set of dead peers is not the same any more."""
        self.states.append(self.model.state())

    def _accepted(self, store, _):
        self.accepted += 1
        self.waiting.append((store, len(self.states) - 1))

    def _responded(self, response, cycle):
        assert self.waiting, f"cycle {cycle}: a response without a store: {response}"
        store, first = self.waiting.popleft()
        # The entry is read one cycle before the set of dead peers is looked at: the latter may be
        # newer.
        states = self.states[first:]
        wanted = [
            self.model.decode(store, (entries, dead))
            for n, (entries, _) in enumerate(states)
            for _, dead in states[n:]
        ]
        fits = [one for one in wanted if one.status == response["status"]]
        assert fits and response["tag"] == store["tag"], (
            f"cycle {cycle}: response {response} to {store}\n expected "
            f"{wanted[0].status!r}, tag {store['tag']}"
        )
        if fits[0].resolved is not None:
            assert self.handed, f"cycle {cycle}: OK before the store was handed over"
            own, item = self.handed.popleft()
            fits = [one for one in fits if (one.own, one.resolved) == (own, item)]
            assert fits, (
                f"cycle {cycle}: handed over to {'loop' if own else 'link'}\n {item}\n "
                f"expected {wanted[0]}"
            )
            cover("decoder.own_rank", own)
            cover("decoder.plain", item["plain"])
            cover("decoder.row", not item["plain"])
            cover("decoder.short_last_block", item["full"] < self.cfg.packet_bytes)
            cover(
                f"decoder.replica{item['dest'] % self.cfg.replicas}",
                self.cfg.replicas > 1 and not item["plain"],
            )
        else:
            cover("decoder.empty_mask", fits[0].status == Reason.OK)
        self.delivers.append(fits[0].resolved is not None)
        self.outcomes.append(fits[0].status)
        if fits[0].refused is not None:
            self.expected_reports.append([one.refused for one in fits])
        cover(f"decoder.status.{Reason(response['status']).name}")

    def _look(self, cycle):
        raw, counts = int(self.dut.o_refused.value), int(self.dut.counts.value)
        valid, ready = int(self.dut.i_store__valid.value), int(self.dut.i_store__ready.value)
        assert counts == valid & ready | (raw & 1) << 1 | (valid & ~ready) << 2, (
            f"cycle {cycle}: counts {counts:#b}"
        )
        if self.inside[0] == cycle:
            # Two stores whose answers wait in their register are not in flight any more.
            _, inside = self.inside
            assert (inside > 2) <= int(self.dut.in_flight.value) <= (inside > 0), (
                f"cycle {cycle}: {inside} inside"
            )
        self.inside = (cycle + 1, len(self.waiting))
        if raw & 1:
            report = self.refusal.unpack(raw)
            report.pop("en")
            self.reports.append(report)
        self.delivered = self.link.count + self.loop.count
        if self.flush is not None:
            self.flush["cycles"] += 1
            if not int(self.dut.flushing.value):
                self.flushes.append({**self.flush, "delivered": self.delivered})
                self.flush = None

    async def write(self, index, entry, hold=0):
        self.model.write(index, entry, hold)
        self.changed()
        await bus_pulse(
            self.bench,
            "handle_write",
            {"en": 1, "index": index, "handle": entry, "hold": hold},
            self.broadcast,
        )

    async def set_dead(self, dead):
        bus_write(self.dut, "peer_dead", sum(1 << rank for rank in dead))
        self.model.dead = frozenset(dead)
        self.changed()
        await self.bench.cycles(1)

    async def strobe_flush(self):
        """Stores accepted up to this cycle, with this one, count."""
        if self.flush is not None:
            return
        self.dut.flush.value = 1
        await self.bench.cycles(1)
        self.dut.flush.value = 0
        self.flush = {"accepted": self.accepted, "cycles": 0}

    async def drain(self):
        await self.source.drained()
        await self.bench.until(lambda: not self.waiting, what="all responses")
        await self.bench.cycles(4)
        self.finish()

    def finish(self):
        assert not self.handed, f"handed over without a response: {self.handed[0]}"
        assert len(self.reports) == len(self.expected_reports), (
            "a refusal is missing in the log, or one too many"
        )
        for came, wanted in zip(self.reports, self.expected_reports, strict=True):
            assert any(
                all(value is None or came[key] == value for key, value in one.items())
                for one in wanted
            ), (came, wanted)
        assert not int(self.dut.in_flight.value) and not int(self.dut.flushing.value)
        for flush in self.flushes:
            wanted = sum(self.delivers[: flush["accepted"]])
            assert flush["delivered"] >= wanted, (
                f"flushing fell with {wanted - flush['delivered']} older stores inside"
            )

    async def ready(self):
        await self.bench.reset()
        await self.bench.until(lambda: not int(self.dut.clearing.value), what="cleared table")


def plain_store(cfg, rng, lane, rank):
    """A store that is certainly good."""
    block = rng.randrange(1 << 20) * cfg.lanes * 4096 + lane
    return {
        "operand": pack(
            OPERAND_PLAIN, addr=(block * cfg.packet_bytes) % (1 << 48), rank=rank, plain=1
        ),
        "cls": 0,
        "owner": 0,
        "data": rng.getrandbits(256),
        "mask": 0xFFFFFFFF,
        "tag": rng.getrandbits(cfg.tag_width),
    }
