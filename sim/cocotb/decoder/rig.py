# SPDX-License-Identifier: Apache-2.0
"""The decoder with its agents: random entries and stores, every response checked against the golden
model."""

from collections import deque

from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, LaneMode, Reason, lane_of, pack
from hub_rtl.decoder.decoder import LogicalDestinationDecoder
from sim.bench.rig import Rig
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
        rng, size = self.rng, self.cfg.slice_bytes
        whole, unit = (1 << size) - 1, 0xFFFF << 16 * rng.randrange(size // 16)
        drawn = rng.getrandbits(size), 1 << rng.randrange(size)
        return rng.choice((whole, *drawn, 0, unit, whole ^ unit, whole))

    def store(self, model):
        cfg, rng = self.cfg, self.rng
        store = {
            "cls": rng.randrange(2),
            "owner": rng.choice((3, 3, 3, 3, 5)),
            "data": self.rng.getrandbits(8 * self.cfg.slice_bytes),
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
        mode = entry.get("lane_mode", 0), entry.get("lane", 0)
        for _ in range(cfg.lanes):
            if lane_of(store["operand"], cfg.lanes, cfg.packet_bytes, *mode) == self.lane:
                return
            if layout is OPERAND_PLAIN:
                operand["addr"] = (operand["addr"] + cfg.packet_bytes) % (1 << 48)
            else:
                operand["rowid"] = (operand["rowid"] + 1) % (1 << 24)
            store["operand"] = pack(layout, **operand)


class DecoderRig(Rig):
    """The decoder with its agents; every response is checked against the model's outcomes for the
    states of the table between the store's acceptance and its response (one state, unless the table
    is written meanwhile). ``lane``: any, if not given."""

    block = LogicalDestinationDecoder

    def __init__(self, dut, salt, idle=None, stall=None, lane=None):
        super().__init__(dut, salt, idle, stall, watchdog=1500)
        cfg, rng = self.cfg, self.rng
        lane = rng.randrange(cfg.lanes) if lane is None else lane
        rank = rng.randrange(cfg.ranks)
        self.model, self.traffic = DecoderModel(cfg, rank, lane), Traffic(cfg, rng, lane)
        self.i_store.on_item(self._accepted)
        self.o_link.on_item(lambda item, _: self.handed.append((False, item)))
        self.o_loop.on_item(lambda item, _: self.handed.append((True, item)))
        self.o_response.on_item(self._responded)
        self.on_sample(self._look)
        self.forget()
        self.set("rank", rank)
        self.set("lane", lane)

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
        report, counts = self.strobe("o_refused"), self.codec("counts").pack(self.get("counts"))
        port = self.i_store.port
        valid, ready = port.is_valid(), port.is_ready()
        assert counts == valid & ready | bool(report) << 1 | (valid & ~ready) << 2, (
            f"cycle {cycle}: counts {counts:#b}"
        )
        if self.inside[0] == cycle:
            # Two stores whose answers wait in their register are not in flight any more.
            _, inside = self.inside
            assert (inside > 2) <= self.get("in_flight") <= (inside > 0), (
                f"cycle {cycle}: {inside} inside"
            )
        self.inside = (cycle + 1, len(self.waiting))
        if report:
            report.pop("en")
            self.reports.append(report)
        self.delivered = self.o_link.count + self.o_loop.count
        if self.flush is not None:
            self.flush["cycles"] += 1
            if not self.get("flushing"):
                self.flushes.append({**self.flush, "delivered": self.delivered})
                self.flush = None

    async def write(self, index, entry, hold=0):
        self.model.write(index, entry, hold)
        self.changed()
        await self.pulse("handle_write", index=index, handle=entry, hold=hold)

    async def set_dead(self, dead):
        self.set("peer_dead", sum(1 << rank for rank in dead))
        self.model.dead = frozenset(dead)
        self.changed()
        await self.cycles(1)

    async def strobe_flush(self):
        """Stores accepted up to this cycle, with this one, count."""
        if self.flush is not None:
            return
        await self.pulse("flush")
        self.flush = {"accepted": self.accepted, "cycles": 0}

    async def drain(self):
        await self.i_store.drained()
        await self.until(lambda: not self.waiting, what="all responses")
        await self.cycles(4)
        self.judge()

    finish = drain

    def judge(self):
        assert not self.handed, f"handed over without a response: {self.handed[0]}"
        assert len(self.reports) == len(self.expected_reports), (
            "a refusal is missing in the log, or one too many"
        )
        for came, wanted in zip(self.reports, self.expected_reports, strict=True):
            assert any(
                all(value is None or came[key] == value for key, value in one.items())
                for one in wanted
            ), (came, wanted)
        assert not self.get("in_flight") and not self.get("flushing")
        for flush in self.flushes:
            wanted = sum(self.delivers[: flush["accepted"]])
            assert flush["delivered"] >= wanted, (
                f"flushing fell with {wanted - flush['delivered']} older stores inside"
            )

    def good_entry(self, **fields):
        """An entry whose stores belong to lane 0."""
        cfg, rng = self.cfg, self.rng
        zeros = self.codec("handle_write").unpack(0)["handle"]
        good = {
            "valid": 1,
            "owner": 1,
            "row_bytes": cfg.max_row_bytes,
            "lane_mode": LaneMode.FIXED,
            "replica": [
                {"rank": rng.randrange(cfg.ranks), "region": rng.randrange(cfg.regions)}
                for _ in range(cfg.replicas)
            ],
        }
        return zeros | good | fields

    def store(self, operand, **fields):
        rng = self.rng
        drawn = {
            "data": rng.getrandbits(8 * self.cfg.slice_bytes),
            "tag": rng.getrandbits(self.cfg.tag_width),
        }
        return {"operand": operand, "cls": rng.randrange(2), **drawn, **fields}

    def row_store(self, mask=1, **operand):
        """A store of the owner of :meth:`good_entry`."""
        operand = {"rowid": self.rng.getrandbits(24), **operand}
        return self.store(pack(OPERAND_ROW, **operand), mask=mask, owner=1)

    def put_plain(self, count):
        """Stores that are certainly good."""
        cfg, rng = self.cfg, self.rng
        for _ in range(count):
            addr = rng.randrange(1 << 20) * cfg.lanes * 4096 * cfg.packet_bytes % (1 << 48)
            operand = pack(OPERAND_PLAIN, addr=addr, rank=rng.randrange(cfg.ranks), plain=1)
            self.i_store.put(self.store(operand, mask=(1 << self.cfg.slice_bytes) - 1))

    def put_any(self, count):
        for _ in range(count):
            self.i_store.put(self.traffic.store(self.model))
