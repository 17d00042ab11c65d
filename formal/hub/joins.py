# SPDX-License-Identifier: Apache-2.0
"""Promises of the hub's wiring: which block speaks to which.

The blocks are cut out, so nothing is assumed of them but what a docstring says; what each does with
what it gets is proved in its own checks."""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import wiring

from formal.kit.spec import Stream, moves, streams
from formal.kit.streams import channels
from hub_rtl.contract.ports import hub_interfaces

from .cut import CutHub, fields_of, whole

__all__ = [
    "AcknowledgedAfterMemory",
    "ClearedMeansCleared",
    "CommandsAreAnsweredToTheirGiver",
    "NewsReachTheScoreboard",
    "OrdersReachAllLanes",
    "PacketsStayInTheirSlice",
    "PortsKeepWhatTheyOffer",
    "RefusalsReachTheirReaders",
    "StoresTakeTheirLane",
]


class StoresTakeTheirLane(CutHub):
    """Stores and answers of port i are those of decoder i; its stores for others go to packet
    manager i, those for the own rank through merge i mod loop_lanes to that loop lane's packet
    manager. ``can_accept`` of a rank is its packet manager's, one cycle later, that of the own rank
    the loop lane's."""

    def build(self, m):
        dut, cfg = self.hub(m), self.cfg
        decoders, pools = self.blocks["LogicalDestinationDecoder"], self.blocks["PacketManager"]
        merges, csr = self.blocks["StoreMerge"], self.one("CsrBank")
        for n, decoder in enumerate(decoders):
            loop, place = n % cfg.loop_lanes, n // cfg.loop_lanes
            self.joined(
                f"stores of lane {n}",
                self.port(f"s_store{n}", fields_of(cfg, "s_store0")),
                decoder.i_store,
            )
            self.joined(
                f"answers of lane {n}",
                decoder.o_response,
                self.port(f"m_response{n}", fields_of(cfg, "m_response0")),
            )
            self.joined(f"stores of lane {n} for others", decoder.o_link, pools[n].i_store)
            self.joined(
                f"stores of lane {n} for the own rank", decoder.o_loop, merges[loop].i_store[place]
            )
            self.same(
                f"decoder {n} knows where it is",
                (decoder.lane, Const(n, len(decoder.lane))),
                (decoder.rank, csr.rank),
                (decoder.peer_dead, csr.peer_dead),
            )
            for rank in range(cfg.ranks):
                own = pools[cfg.lanes + loop].can_accept[rank]
                before = self.past(Mux(csr.rank == rank, own, pools[n].can_accept[rank]))
                self.always(
                    f"can_accept of rank {rank} on lane {n}",
                    getattr(dut, f"can_accept{n}")[rank] == before,
                    when=self.started,
                )
        for n, merge in enumerate(merges):
            self.joined(f"stores of loop lane {n}", merge.o_store, pools[cfg.lanes + n].i_store)


class PacketsStayInTheirSlice(CutHub):
    """Packets of packet manager i leave through port i (links, then loop ports), with that port's
    credits and ledger, ``FenceAsks`` i and ``NewsLanes`` between them; what port i receives goes
    through ``NewsSplit`` i to slice i of the allocator, its writes to memory writer i, these to
    ``m_axi_mem{i}`` and their acknowledgements to slice i of the scoreboard, those of plain packets
    to ``FenceAnswers`` i, too. Questions and answers of fences go through their slice's port.
    The ports of links belong to the slices in order, and each slice knows its first."""

    def build(self, m):
        dut, cfg = self.hub(m), self.cfg
        csr, allocator, scoreboard = (
            self.one("CsrBank"),
            self.one("SlotAllocator"),
            self.one("ReadinessScoreboard"),
        )
        pools, writers = self.blocks["PacketManager"], self.blocks["MemoryWriter"]
        ledger = self.one("SendLedger")
        links, splits = self.blocks["LinkSlice"], self.blocks["NewsSplit"]
        news, control = self.one("NewsLanes"), self.one("ProducerControl")
        asks, answers = self.blocks["FenceAsks"], self.blocks["FenceAnswers"]
        self.joined("news", control.o_news, news.i_news)
        self.same(
            "credits of news",
            (control.wanted, news.wanted),
            (control.may_send, news.may_send),
            (control.claim, news.claim),
            (news.rank, csr.rank),
            (news.hold, ledger.hold),
        )
        for n, port in enumerate(links + self.blocks["LoopPort"]):
            self.joined(f"packets of slice {n}", pools[n].o_record, asks[n].i_record)
            self.joined(f"counted packets of slice {n}", asks[n].o_record, news.i_record[n])
            self.joined(f"packets and news of slice {n}", news.o_record[n], port.i_record)
            self.same(
                f"credits of slice {n}",
                (news.take[n], port.take),
                (pools[n].o_take, news.pool_take[n]),
                (pools[n].dest_ready, news.pool_ready[n]),
                (news.dest_ready[n], port.dest_ready),
            )
            self.same(f"bytes of slice {n} are counted", (pools[n].o_sent, ledger.sent[n]))
            self.same(f"port {n} knows its rank", (port.rank, csr.rank))
            self.joined(f"what arrives in slice {n}", port.o_record, splits[n].i_record)
            self.joined(f"records of slice {n} arrive", splits[n].o_record, allocator.i_record[n])
            self.joined(f"writes of slice {n}", allocator.o_write[n], writers[n].i_write)
            self.joined(f"beats of slice {n}", allocator.o_data[n], writers[n].i_data)
            self.joined(f"acknowledgements of slice {n}", writers[n].o_ack, scoreboard.i_ack[n])
            self._fences(n, asks[n], port, answers[n], writers[n].o_ack)
            self._bus(f"m_axi_mem{n}", dut, writers[n].mem)
            self.same(
                f"packet manager {n} is set up",
                (pools[n].policy, csr.policy),
                (pools[n].peer_dead, csr.peer_dead),
            )
        for n, part in enumerate(links):
            first = n * cfg.slice_links
            self.same(f"first link of slice {n}", (part.first, Const(first, cfg.link_width)))
            for link, (tx, rx) in enumerate(zip(part.tx, part.rx, strict=True), first):
                self._bus(f"m_axis_link{link}", dut, tx)
                self._bus(f"s_axis_link{link}", dut, rx)
            self.same(f"slice {n} knows the dead", (part.peer_dead, csr.peer_dead))
        self._bus("m_axi_spill", dut, self.one("SpillPortMerge").mem)
        self._bus("s_axil_csr", dut, csr.axil)
        self.joined("events", scoreboard.o_event, self.port("m_event", fields_of(cfg, "m_event")))
        self.joined("flags", scoreboard.o_flag, self.one("SpillPortMerge").i_flag)
        self.same(
            "observed allocations",
            *(
                (getattr(dut, f"obs_alloc_{name}"), allocator.obs_alloc[name])
                for name in fields_of(cfg, "obs_alloc")
            ),
        )

    def _fences(self, n, asks, port, answers, ack):
        """What a slice asks and answers, and what its answers count."""
        self.joined(f"questions of slice {n}", asks.o_ask, port.i_ask)
        self.joined(f"answers of fences of slice {n}", answers.o_answer, port.i_answer)
        context, acked = ack.p.context, answers.acked
        self.same(
            f"what is heard of fences in slice {n}",
            (answers.asked, port.asked),
            (asks.answered, port.answered),
        )
        self.same(
            f"plain packets of slice {n} are counted",
            (acked.en, moves(ack) & context.plain),
            (acked.rank, context.src),
            (acked.phase, context.phase),
            (acked.bad, ~ack.p.ok | context.poison),
        )

    def _bus(self, name, dut, bus):
        self.same(
            f"{name} is its block's",
            *(
                (getattr(dut, f"{name}_{member}"), getattr(bus, member))
                for member in bus.signature.members
            ),
        )


class OrdersReachAllLanes(CutHub):
    """What ProducerControl orders reaches every lane or slice one cycle later, unchanged. So does
    the strobe with which the registers write a geometry, window or range, and with it what they
    show then (register_bank.writes_stay: still the same). The scoreboard's orders to allocator and
    writers reach them at once, and so do the answers of all."""

    def build(self, m):
        self.hub(m)
        control, csr = self.one("ProducerControl"), self.one("CsrBank")
        allocator, scoreboard = self.one("SlotAllocator"), self.one("ReadinessScoreboard")
        decoders, pools, merges = (
            self.blocks[name]
            for name in ("LogicalDestinationDecoder", "PacketManager", "StoreMerge")
        )
        ledger, writers = self.one("SendLedger"), self.blocks["MemoryWriter"]
        asks = self.blocks["FenceAsks"]
        for name, order, targets in (
            ("handle writes", control.o_handle_write, [each.handle_write for each in decoders]),
            ("flush", control.o_flush, [each.flush for each in decoders]),
            ("flush of the merges", control.o_flush_merge, [each.flush for each in merges]),
            ("mark", control.o_mark, [each.mark for each in pools]),
            ("remote fence", control.o_remote, [each.fence for each in asks]),
        ):
            before = self.past(order)
            self.same(f"{name}, one cycle later", *((whole(target), before) for target in targets))
        for name, order, targets in (
            ("geometry", csr.geometry_write, [allocator.geometry_write, scoreboard.geometry_write]),
            ("windows", csr.window_write, [allocator.window_write]),
            ("ranges", csr.dep_write, [allocator.dep_write, scoreboard.dep_write]),
        ):
            before = self.past(order.en)
            self.same(
                f"{name}: the strobe, one cycle later", *((target.en, before) for target in targets)
            )
            self.same(
                f"{name}: what is written",
                *(
                    (target[field], order[field])
                    for target in targets
                    for field, _ in order.shape()
                    if field != "en"
                ),
            )
        self.same(
            "answers of the lanes",
            *((control.flushing[n], each.flushing) for n, each in enumerate(decoders)),
            *((control.merging[n], each.flushing) for n, each in enumerate(merges)),
            *((control.draining[n], each.draining) for n, each in enumerate(pools)),
            *((control.unanswered[n], each.unanswered) for n, each in enumerate(asks)),
        )
        incomplete = self.past(Cat(each.incomplete for each in asks).any())
        self.same("incomplete answers, one cycle later", (control.incomplete, incomplete))
        self.same(
            "ledger",
            (control.ledger_read, ledger.read),
            (control.ledger_word, ledger.word),
            (control.ledger_flush, ledger.flush),
            (control.ledger_flushing, ledger.flushing),
        )
        self.joined("promises", control.o_announce, ledger.i_announce)
        self.joined("what is spent", ledger.o_spent, control.i_spent)
        self.same("sunk entries", (control.sunk, Cat(each.counts.sunk for each in pools).any()))
        self.same(
            "handles of the registers",
            (control.handle_write, csr.handle_write),
            (control.handle_read, csr.handle_read),
            (csr.handle_data, control.handle_data),
            (control.peer_dead, csr.peer_dead),
        )
        self.same("states of the regions", (allocator.region_update, scoreboard.o_region_update))
        self.same(
            "end of a region",
            (allocator.purge, scoreboard.purge),
            (scoreboard.purging, allocator.purging),
            *((each.quiesce, scoreboard.quiesce) for each in writers),
            (scoreboard.quiescing, Cat(each.quiescing for each in writers).any()),
        )
        self.same(
            "rows of a region",
            (allocator.rows_query, scoreboard.rows_query),
            (scoreboard.rows, allocator.rows),
        )
        self.same("too many bytes", (scoreboard.overlap, allocator.o_overlap))
        self.joined("region commands", csr.o_region_command, scoreboard.i_command)
        self.same(
            "look at a region",
            (scoreboard.query, csr.query),
            (csr.status, scoreboard.status),
            (csr.missing_from, scoreboard.missing_from),
            (scoreboard.timeout, csr.timeout),
            (csr.timed_out, scoreboard.o_timeout),
            (csr.region_error, scoreboard.command_error),
            (csr.range_busy, scoreboard.dep_busy),
            (csr.purging, allocator.purging),
        )


class CommandsAreAnsweredToTheirGiver(CutHub):
    """An answer goes to the port only with the tag of a command taken there and not answered yet,
    and to the registers only for theirs; each command reaches ProducerControl once, unchanged. Tag
    of the port: an arbitrary one, which its user has given to one command at a time. Assumed:
    ProducerControl answers only commands that it took."""

    def build(self, m):
        dut, cfg = self.hub(m), self.cfg
        control, csr = self.one("ProducerControl"), self.one("CsrBank")
        tag, at_control = self.constant(cfg.tag_width, "tag"), control.i_command.payload
        fields = ("op", "handle", "epoch", "owner")
        command = self.port("s_command", fields)
        self.suppose_held(self.port("s_command", (*fields, "tag")), "s_command")
        self.suppose_held(csr.o_command, "o_command")
        given = self.dut.s_command_valid & (dut.s_command_tag == tag)
        came = moves(control.i_command)
        answer = control.o_response
        for name, ours, offers, payload, answered, taken in (
            (
                "port",
                at_control.tag == tag,
                given,
                command.payload,
                dut.m_command_response_valid & (dut.m_command_response_tag == tag),
                dut.m_command_response_ready,
            ),
            (
                "registers",
                at_control.tag[-1],
                csr.o_command.valid,
                Cat(csr.o_command.payload[field] for field in fields),
                csr.i_command_response.valid,
                csr.i_command_response.ready,
            ),
        ):
            ready = command.ready if name == "port" else csr.o_command.ready
            state = Signal(
                2, name=f"{name}_state"
            )  # 0 none, 1 on its way to ProducerControl, 2 there
            kept = Signal(len(payload), name=f"{name}_kept")
            self.suppose(f"{name}: one command at a time", state == 0, when=offers)
            there = came & ours
            answers = answer.valid & (
                answer.payload.tag[-1] if name == "registers" else answer.payload.tag == tag
            )
            self.suppose(f"{name}: only what was taken is answered", state == 2, when=answers)
            with m.If(offers & ready):
                m.d.sync += [
                    state.eq(1),
                    kept.eq(payload),
                ]
            with m.If(there):
                m.d.sync += state.eq(2)
            with m.If(answers & answer.ready):
                m.d.sync += state.eq(0)
            self.always(
                f"{name}: arrives once, unchanged",
                (state == 1) & (kept == Cat(at_control[each] for each in fields)),
                when=control.i_command.valid & ours,
            )
            self.always(f"{name}: answered when there", state == 2, when=answered)
            self.always(
                f"{name}: the answer is passed on",
                (answered == answers) & (answer.ready == taken),
                when=answers | answered,
            )
        self.always(
            "status at the port",
            dut.m_command_response_status == answer.payload.status,
            when=dut.m_command_response_valid,
        )
        self.same(
            "status in the registers",
            (csr.i_command_response.payload.status, answer.payload.status),
        )


class RefusalsReachTheirReaders(CutHub):
    """A refusal of a slice goes through its ``FenceAnswers``. What comes out there reaches the
    scoreboard once, unchanged, and in the cycle in which the scoreboard takes it the log and the
    sender of REJECT, each once. Followed: an arbitrary one, known by the top bit of its region,
    which nobody looks at here."""

    def build(self, m):
        self.hub(m)
        allocator, scoreboard = self.one("SlotAllocator"), self.one("ReadinessScoreboard")
        log, sender = self.one("RefusalLog"), self.one("RejectSender")
        answers = self.blocks["FenceAnswers"]
        for n, (slice_of, each) in enumerate(zip(allocator.o_refused, answers, strict=True)):
            self.joined(f"refusals of slice {n}", slice_of, each.i_refused)
        sources = [each.o_refused for each in answers]
        offers = Cat(port.valid & port.payload.region[-1] for port in sources)
        inside = Signal()
        gone = Signal()
        kept = Signal(scoreboard.i_refused.payload.shape())
        self.suppose(
            "one refusal is marked", (sum(offers) == 1) & ~inside & ~gone, when=offers.any()
        )
        for n, port in enumerate(sources):
            self.suppose_held(port, f"o_refused{n}")
            with m.If(offers[n] & port.ready):
                m.d.sync += [
                    inside.eq(1),
                    kept.eq(port.payload),
                ]
        taken = moves(scoreboard.i_refused)
        with m.If(taken & scoreboard.i_refused.payload.region[-1]):
            m.d.sync += [
                inside.eq(0),
                gone.eq(1),
            ]
        self.always(
            "to the scoreboard, once, unchanged",
            inside & (whole(scoreboard.i_refused.payload) == whole(kept)),
            when=scoreboard.i_refused.valid & scoreboard.i_refused.payload.region[-1],
        )
        for name, reader in (
            ("the log", (log.refusal_valid, log.refusal)),
            ("the sender of REJECT", (sender.i_refused.valid, sender.i_refused.payload)),
        ):
            self.same(
                f"to {name}, at once", (reader[0], taken), (reader[1], scoreboard.i_refused.payload)
            )


class NewsReachTheScoreboard(CutHub):
    """An entry of a slice reaches the scoreboard once, unchanged; one that closes is counted in the
    cycle in which that takes it. Followed: an arbitrary one, known by the top bit of its
    region, which nobody looks at here."""

    def build(self, m):
        self.hub(m)
        splits, news = self.blocks["NewsSplit"], self.one("ReadinessScoreboard").i_news
        sources = [split.o_news for split in splits]
        offers = Cat(port.valid & port.payload.region[-1] for port in sources)
        inside = Signal()
        gone = Signal()
        kept = Signal(sources[0].payload.shape())
        self.suppose("one entry is marked", (sum(offers) == 1) & ~inside & ~gone, when=offers.any())
        for n, port in enumerate(sources):
            self.suppose_held(port, f"o_news{n}")
            with m.If(offers[n] & port.ready):
                m.d.sync += [
                    inside.eq(1),
                    kept.eq(port.payload),
                ]
        came = news.payload
        with m.If(moves(news) & came.region[-1]):
            m.d.sync += [
                inside.eq(0),
                gone.eq(1),
            ]
        self.always(
            "once, unchanged",
            inside & (whole(came) == whole(kept)),
            when=news.valid & came.region[-1],
        )
        sums = self.one("CounterSums")
        self.same("counted when taken", (sums.single.closes_received, moves(news) & came.close))
        self.same("lost ones", (sums.lost, Cat(split.lost for split in splits)))


class ClearedMeansCleared(CutHub):
    """``cleared`` is 0 as long as any block clears its tables, and stays 1 once it is 1; it rises
    at the latest 3 cycles after the last block has finished. Assumed: what is cleared once is not
    cleared again (each block's walker runs after reset only)."""

    BLOCKS = (
        "ProducerControl",
        "LogicalDestinationDecoder",
        "SendLedger",
        "SlotAllocator",
        "ReadinessScoreboard",
        "LinkSlice",
        "FenceAsks",
        "FenceAnswers",
    )

    def build(self, m):
        dut = self.hub(m)
        clearing = Cat(block.clearing for name in self.BLOCKS for block in self.blocks[name])
        finished = Signal(len(clearing))
        m.d.sync += finished.eq(finished | ~clearing)
        self.suppose("cleared once", (finished & clearing) == 0, when=finished.any())
        idle = Signal(range(5))
        with m.If(clearing.any()):
            m.d.sync += idle.eq(0)
        with m.Elif(idle < 4):
            m.d.sync += idle.eq(idle + 1)
        old = self.past(self.past(dut.cleared & self.started))
        self.always("nothing clears", ~clearing.any(), when=dut.cleared)
        self.always("stays cleared", dut.cleared, when=old)
        self.always("rises in time", dut.cleared, when=idle >= 3)
        self.same("the registers know", (self.one("CsrBank").cleared, dut.cleared))


class PortsKeepWhatTheyOffer(CutHub):
    """Every item that the hub offers at a stream, AXI4-Stream, AXI4 or AXI4-Lite port stays as it
    is until it is taken. Assumed of the blocks behind: the same."""

    CHANNELS = ("aw", "w", "b", "ar", "r", "t")

    def build(self, m):
        dut = self.hub(m)
        for interface in hub_interfaces(self.cfg):
            fields = {port.field: port for port in interface.ports}
            for prefix in ("",) if interface.kind == "stream" else self.CHANNELS:
                if f"{prefix}valid" in fields and fields[f"{prefix}valid"].direction == "out":
                    names = [
                        name
                        for name in fields
                        if name.startswith(prefix) and not name.endswith(("valid", "ready"))
                    ]
                    member = [
                        getattr(dut, f"{interface.name}_{prefix}{each}")
                        for each in ("valid", "ready")
                    ]
                    payload = Cat(getattr(dut, f"{interface.name}_{name}") for name in names)
                    self.always_held(
                        Stream(*member, payload), f"{interface.name}.{prefix}".rstrip(".")
                    )
        for name in (
            "LogicalDestinationDecoder",
            "ProducerControl",
            "ReadinessScoreboard",
            "LinkSlice",
            "MemoryWriter",
            "SpillPortMerge",
            "CsrBank",
        ):
            for n, block in enumerate(self.blocks[name]):
                for each, flow, port in (*streams(block), *channels(block)):
                    if flow == wiring.Out or name == "CsrBank" and each in ("axil.b", "axil.r"):
                        self.suppose_held(port, f"{name}{n}.{each}")


class AcknowledgedAfterMemory(CutHub):
    """A slice never acknowledges more writes to the scoreboard than memory has answered at
    ``m_axi_mem`` of that slice; ``bready`` is always 1. With ``memory.acknowledgements``, which
    pairs answers with writes in order, and the scoreboard's count of acknowledged bytes: READY
    never comes before memory's answer to any byte of the tile. Memory answers as AXI4 asks: a burst
    after its last beat, once."""

    def build(self, m):
        dut, cfg = self.hub(m, keep=("MemoryWriter",)), self.cfg
        scoreboard, most = self.one("ReadinessScoreboard"), cfg.write_depth + 3
        for n in range(cfg.slices):
            port = {
                name: getattr(dut, f"m_axi_mem{n}_{name}")
                for name in ("bvalid", "bready", "wvalid", "wready", "wlast")
            }
            answered, writes = (
                Signal(range(most + 1), name=f"answered{n}"),
                Signal(range(most + 1), name=f"writes{n}"),
            )
            ack, answer = scoreboard.i_ack[n], port["bvalid"] & port["bready"]
            m.d.sync += [
                answered.eq(answered + answer - moves(ack)),
                writes.eq(writes + (port["wvalid"] & port["wready"] & port["wlast"]) - answer),
            ]
            self.suppose(f"slice {n}: memory answers bursts only", writes != 0, when=port["bvalid"])
            self.always(f"slice {n}: bready", port["bready"])
            self.always(f"slice {n}: acknowledged after the answer", answered != 0, when=ack.valid)
