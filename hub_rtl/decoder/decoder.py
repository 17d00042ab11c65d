# SPDX-License-Identifier: Apache-2.0
"""LogicalDestinationDecoder: from the name a store carries (handle and row, or rank and address) to
where it goes."""

from functools import reduce
from operator import xor
from typing import NamedTuple

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hub_rtl.contract.config import ceil_log2
from hub_rtl.contract.fields import (
    ADDR,
    BYTE,
    EPOCH,
    FLIT_BYTES,
    HANDLE,
    LANE_KEY,
    OWNER,
    RANK,
    REASON,
    UNIT,
    WORD,
)
from hub_rtl.contract.packets import OPERAND_PLAIN, OPERAND_ROW, LaneMode, Reason
from hub_rtl.contract.records import STORE_COUNTS, STORE_REFUSAL, layout_of, types_of
from hub_rtl.parts.early_queue import EarlyQueue
from hub_rtl.parts.flush import FlushCounter
from hub_rtl.parts.handles import check_epoch, entry_known
from hub_rtl.parts.mutants import mutant
from hub_rtl.parts.ram import Ram
from hub_rtl.parts.residue import is_residue, residue_parts
from hub_rtl.parts.stream import StreamRegister

__all__ = ["LogicalDestinationDecoder"]

STORES = 4  # inside at most: accepted, looked up, and two judged


def _row_hash(rowid):
    """XOR of the RowID's pieces of LANE_KEY bits."""
    return reduce(xor, [rowid[low : low + LANE_KEY] for low in range(0, len(rowid), LANE_KEY)])


class LogicalDestinationDecoderObserve(NamedTuple):
    """What a proof may see of a :class:`LogicalDestinationDecoder`: its pipeline."""

    entry: stream.Interface  #: second stage: its entry is read
    table: Ram  #: the entries
    looked_up: Signal  #: third stage {store, rank_ok, handle_ok, keys}; its word leaves the table
    look_valid: Signal
    judged: Signal  #: fourth stage
    judged_valid: Signal
    waiting: EarlyQueue  #: bytes and mask of the stores inside


class LogicalDestinationDecoder(wiring.Component):
    """Resolves the stores of one lane and refuses those that may not be.

    Contract: every accepted store gets exactly one response, in order. OK means: handed to a packet
    manager (or to the merge in front of the loop lane's), or that its mask is empty and nothing is
    to be done. Any other status means that nothing of it goes anywhere. Checks, the first that
    fails is the status: plain: rank exists (UNKNOWN), lane (BAD_LANE), PEER_DEAD. Row-sparse: the
    handle exists and its entry is usable (UNKNOWN, see ``handles.entry_known``), owner (FOREIGN),
    epoch (AFTER_CLOSE, EPOCH_EARLY, EPOCH_STALE), lane (BAD_LANE), bytes within the row
    (ROW_OVERRUN), PEER_DEAD. An entry is looked up once per store, whole; a store meets the entry
    before or after a write, never a mixture. A store accepted after the cycle of ``handle_write``
    meets the new one.

    Latency 3 cycles from ``i_store`` to ``o_link`` or ``o_loop``, 4 to the response; one store per
    cycle.

    Order and stalls: one pipeline, so a store waits for those before it, whatever their
    destination; the crossbar avoids that with the packet managers' ``can_accept``. A response that
    is not taken stalls stores before they are handed over. The table is cleared by a walker after
    reset: nothing is accepted while ``clearing``.

    Illegal input: any operand is answered; lane modes that do not exist count as ROTATE.

    Parameters: ``cfg``. Ports: ``i_store`` In stream(store); ``o_response`` Out
    stream(store_response); ``o_link``, ``o_loop`` Out stream(resolved); ``rank`` In, own rank;
    ``lane`` In, own lane; ``peer_dead`` In ``ranks``; ``handle_write`` In
    ``handle_broadcast``; ``o_refused`` Out ``STORE_REFUSAL``, one-cycle pulse;
    ``flush`` In strobe, ``flushing`` Out: stores accepted up to the strobe are not all handed over;
    ``clearing`` Out; ``counts`` Out strobes: ``stores`` accepted, ``refused``, ``stall`` (a store
    waits). Source: paper section on MallocID resolution; docs/interfaces.md section 2.
    """

    observe: LogicalDestinationDecoderObserve  # once elaborated

    def __init__(self, cfg):
        types = types_of(cfg)
        super().__init__(
            {
                "i_store": In(stream.Signature(types.store)),
                "o_response": Out(stream.Signature(types.store_response)),
                "o_link": Out(stream.Signature(types.resolved)),
                "o_loop": Out(stream.Signature(types.resolved)),
                "rank": In(cfg.rank_width),
                "lane": In(cfg.lane_width),
                "peer_dead": In(cfg.ranks),
                "handle_write": In(types.handle_broadcast),
                "o_refused": Out(STORE_REFUSAL),
                "flush": In(1),
                "flushing": Out(1),
                "in_flight": Out(1),
                "clearing": Out(1),
                "counts": Out(STORE_COUNTS),
            }
        )
        self._cfg, self._types = cfg, types
        #: What the lane keeps of an entry: the range checks are made once, when it is written.
        self._word = data.StructLayout({"known": 1, "hold": 1, "handle": types.handle})
        self._units = cfg.slice_bytes // FLIT_BYTES
        #: Of a store, what decides: instead of the mask, which of its 16-byte units have bytes.
        self._asked = data.StructLayout(
            {
                "operand": WORD,
                "cls": 1,
                "owner": OWNER,
                "tag": cfg.tag_width,
                "units": self._units,
            }
        )
        self._bytes = data.StructLayout({"data": cfg.slice_bytes * BYTE, "mask": cfg.slice_bytes})
        self._placed = data.StructLayout(
            {name: field.shape for name, field in types.resolved if name not in ("data", "mask")}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Ram(self._word, self._cfg.handles, clear=True)
        m.submodules.flusher = flusher = FlushCounter(STORES)
        # Bytes and mask decide nothing: they wait in memory and meet their store where it leaves.
        # One is at the output by then.
        m.submodules.waiting = waiting = EarlyQueue(self._bytes, STORES - 1, quick=True)

        entry = stream.Signature(self._asked).create(path=("entry",))
        accept, store = self.i_store.valid & self.i_store.ready, self.i_store.payload
        m.d.comb += [
            self.i_store.ready.eq(
                (~entry.valid | entry.ready)
                & mutant("decoder.store_before_cleared", ~table.clearing, 1)
            ),
            self.clearing.eq(table.clearing),
            flusher.enter.eq(
                mutant("decoder.flush_misses_entry_stage", accept, entry.valid & entry.ready)
            ),
            flusher.flush.eq(self.flush),
            self.flushing.eq(flusher.flushing),
            self.in_flight.eq(flusher.occupied),
            self.counts.stores.eq(accept),
            self.counts.stall.eq(self.i_store.valid & ~self.i_store.ready),
        ]
        with m.If(~entry.valid | entry.ready):
            m.d.sync += [
                entry.valid.eq(accept),
                *(
                    entry.payload.units[n].eq(store.mask.word_select(n, FLIT_BYTES).any())
                    for n in range(self._units)
                ),
                *(
                    entry.payload[name].eq(store[name])
                    for name in ("operand", "cls", "owner", "tag")
                ),
            ]
        m.d.comb += [
            waiting.early.data.eq(store.data),
            waiting.early.mask.eq(store.mask),
            waiting.write.eq(accept),
        ]
        m.d.sync += waiting.push.eq(accept)
        self._write_table(m, table)

        looked_up, look_valid, look_ready = self._look_up(m, entry, table)
        judged = Signal(self._judged())
        judged_valid = Signal()
        leave = Signal()
        self._two_places(
            m,
            look_valid,
            look_ready,
            self._judge(m, looked_up, table.r_data),
            judged,
            judged_valid,
            leave,
        )
        self.observe = LogicalDestinationDecoderObserve(
            entry, table, looked_up, look_valid, judged, judged_valid, waiting
        )
        m.d.comb += flusher.leave.eq(leave)
        self._hand_over(m, judged, judged_valid, leave, waiting.o)
        return m

    def _two_places(self, m, valid, ready, verdict, judged, judged_valid, leave):
        """Two places filled and emptied in turn: whether one leaves now decides nothing about the
        wide registers before it.

        An empty place takes whatever stands before it; ``full`` says whether that counts."""
        places = [Signal.like(judged, name=f"place{n}") for n in range(2)]
        full = Signal(2)
        fill = Signal()
        drain = Signal()
        m.d.comb += [
            ready.eq(mutant("decoder.accepts_when_full", ~full.all(), 1)),
            judged.eq(Mux(drain, *reversed(places))),
            judged_valid.eq(full.any()),
        ]
        m.d.sync += [
            fill.eq(fill ^ (valid & ready)),
            drain.eq(drain ^ leave),
        ]
        for n, place in enumerate(places):
            with m.If(~full[n]):
                m.d.sync += [
                    place.eq(verdict),
                    full[n].eq(valid & (fill == n)),
                ]
            with m.Elif(leave & (drain == n)):
                m.d.sync += full[n].eq(0)

    def _write_table(self, m, table):
        cfg = self._cfg
        written = Signal.like(self.handle_write)
        m.d.sync += written.eq(self.handle_write)
        m.d.comb += [
            table.w_en.eq(
                written.en
                & (
                    mutant(
                        "decoder.last_entry_not_written",
                        written.index < cfg.handles,
                        written.index < cfg.handles - 1,
                    )
                )
            ),
            table.w_addr.eq(written.index),
            table.w_data.handle.eq(written.handle),
            table.w_data.hold.eq(written.hold),
            table.w_data.known.eq(entry_known(cfg, written.handle)),
        ]

    def _look_up(self, m, source, table):
        """Second cycle: the entry is read; what needs no entry is worked out beside it."""
        cfg = self._cfg
        store = source.payload
        row, plain = (
            layout_of(OPERAND_ROW)(store.operand),
            layout_of(OPERAND_PLAIN)(store.operand),
        )
        block_bits = ceil_log2(cfg.packet_bytes)
        address_key = Signal(LANE_KEY)
        rotate_key = Signal(LANE_KEY)
        hash_key = Signal(LANE_KEY)
        m.d.comb += [
            address_key.eq(plain.addr[block_bits:]),
            rotate_key.eq(row.rowid + row.handle),
            hash_key.eq(_row_hash(row.rowid) + row.handle),
        ]
        keys = [
            residue_parts(
                m, Mux(row.plain, address_key, rotate_key)[:LANE_KEY], cfg.lanes, "rotate"
            ),
            residue_parts(m, hash_key, cfg.lanes, "hash"),
        ]

        bit = {"rank_ok": plain.rank < cfg.ranks, "handle_ok": row.handle < cfg.handles}
        held = Signal(
            data.StructLayout(
                {
                    "store": self._asked,
                    **dict.fromkeys(bit, 1),
                    "keys": data.ArrayLayout(data.ArrayLayout(cfg.lane_width, len(keys[0])), 2),
                }
            ),
            name="looked_up",
        )
        valid, ready = Signal(name="look_valid"), Signal(name="look_ready")
        m.d.comb += [
            source.ready.eq(~valid | ready),
            table.r_en.eq(source.valid & source.ready),
            table.r_addr.eq(row.handle),
        ]
        with m.If(source.ready):
            m.d.sync += [
                valid.eq(source.valid),
                held.store.eq(store),
                *(held[name].eq(value) for name, value in bit.items()),
            ]
            m.d.sync += [
                held.keys[n][k].eq(part) for n, key in enumerate(keys) for k, part in enumerate(key)
            ]
        return held, valid, ready

    def _judged(self):
        return data.StructLayout(
            {
                "resolved": self._placed,
                "status": REASON,
                "deliver": 1,
                "own": 1,
                "tag": self._cfg.tag_width,
                "owner": OWNER,
                "handle": HANDLE,
                "rank": RANK,
                "epoch": EPOCH,
            }
        )

    def _judge(self, m, held, word):
        """Third cycle: the checks, all side by side, and the destination."""
        judged = Signal(self._judged(), name="verdict")
        cfg, store = self._cfg, held.store
        row, plain = (
            layout_of(OPERAND_ROW)(store.operand),
            layout_of(OPERAND_PLAIN)(store.operand),
        )
        handle = word.handle
        block_bits = ceil_log2(cfg.packet_bytes)

        on_rotate = Signal()
        on_hash = Signal()
        on_fixed = Signal()
        on_lane = Signal()
        m.d.comb += [
            on_rotate.eq(is_residue(held.keys[0], self.lane, cfg.lanes)),
            on_hash.eq(is_residue(held.keys[1], self.lane, cfg.lanes)),
            on_fixed.eq(
                (handle.lane == self.lane)
                | (
                    mutant(
                        "decoder.fixed_lane_without_wrap",
                        handle.lane == self.lane + Const(cfg.lanes),
                        0,
                    )
                )
            ),
            on_lane.eq(on_rotate),
        ]
        with m.If(~row.plain & (handle.lane_mode == LaneMode.HASH)):
            m.d.comb += on_lane.eq(on_hash)
        with m.Elif(~row.plain & (handle.lane_mode == LaneMode.FIXED)):
            m.d.comb += on_lane.eq(on_fixed)

        which = Signal(range(max(2, cfg.replicas)))
        if cfg.replicas > 1:
            m.d.comb += which.eq(
                _row_hash(row.rowid)
                & (
                    mutant(
                        "decoder.replica_mask_of_one_bit",
                        (Const(1, 3) << handle.log2_replicas) - 1,
                        1,
                    )
                )
            )
        replica = handle.replica[which] if cfg.replicas > 1 else handle.replica[0]
        rank = Signal(cfg.rank_width)
        dead = Signal()
        m.d.comb += [
            rank.eq(Mux(row.plain, plain.rank, replica.rank)),
            dead.eq(
                self.peer_dead.bit_select(
                    mutant("decoder.own_rank_asked_for_dead", rank, self.rank), 1
                )
            ),
        ]

        # Row lengths are multiples of 16: whole parts, and some units of one more.
        size, per_part = ceil_log2(cfg.slice_bytes), ceil_log2(self._units)
        part, parts = row.row_off[per_part:], handle.row_bytes[size:]
        rest, every = handle.row_bytes[UNIT:size], (1 << self._units) - 1
        allowed = Signal(self._units)
        overrun = Signal()
        inside = mutant("decoder.part_behind_is_inside", parts > part, parts >= part)
        with m.If(inside if len(parts) else 0):
            m.d.comb += allowed.eq(every)
        with m.Elif(parts == part):
            m.d.comb += allowed.eq((1 << rest) - 1)
        watched = mutant("decoder.last_unit_never_overruns", every, every >> 1)
        m.d.comb += overrun.eq((store.units & ~allowed & watched).any())

        status = Signal(REASON)
        epoch_status = Signal(REASON)
        m.d.comb += epoch_status.eq(check_epoch(row.epoch, handle, word.hold))
        with m.If(Mux(row.plain, ~held.rank_ok, ~held.handle_ok | ~word.known)):
            m.d.comb += status.eq(Reason.UNKNOWN)
        with m.Elif(~row.plain & (handle.owner != store.owner)):
            m.d.comb += status.eq(Reason.FOREIGN)
        with m.Elif(~row.plain & (epoch_status != Reason.OK)):
            m.d.comb += status.eq(epoch_status)
        with m.Elif(~on_lane):
            m.d.comb += status.eq(Reason.BAD_LANE)
        with m.Elif(~row.plain & overrun):
            m.d.comb += status.eq(Reason.ROW_OVERRUN)
        with m.Elif(dead):
            m.d.comb += status.eq(Reason.PEER_DEAD)

        # Bytes that make the block complete: a row's last block may be short.
        row_block = Cat(row.row_off)[block_bits - 4 :]
        whole = handle.row_bytes[block_bits:] > row_block if cfg.row_bytes_width > block_bits else 0
        full = Mux(row.plain | whole, cfg.packet_bytes, handle.row_bytes[:block_bits])
        out = judged.resolved
        m.d.comb += [
            out.plain.eq(row.plain),
            out.cls.eq(store.cls),
            out.rank.eq(rank),
            out.region.eq(Mux(row.plain, 0, replica.region)),
            out.epoch.eq(Mux(row.plain, 0, row.epoch)),
            out.rowid.eq(Mux(row.plain, 0, row.rowid)),
            out.full.eq(full),
            out.block.eq(Mux(row.plain, plain.addr[block_bits:ADDR], row_block)),
            out.part.eq(
                Mux(
                    row.plain,
                    plain.addr[size:block_bits],
                    row.row_off[per_part : block_bits - UNIT],
                )
            ),
            out.dest.eq(
                Mux(
                    row.plain,
                    0,
                    mutant(
                        "decoder.counts_for_replica_0",
                        Cat(which, row.handle) if cfg.replicas > 1 else row.handle,
                        Cat(Const(0, len(which)), row.handle) if cfg.replicas > 1 else 0,
                    ),
                )
            ),
            judged.status.eq(status),
            judged.deliver.eq((status == Reason.OK) & store.units.any()),
            judged.own.eq(
                mutant(
                    "decoder.plain_store_never_own",
                    rank == self.rank,
                    (rank == self.rank) & ~row.plain,
                )
            ),
            judged.tag.eq(store.tag),
            judged.owner.eq(store.owner),
            judged.handle.eq(
                mutant(
                    "decoder.plain_store_reports_handle", Mux(row.plain, 0, row.handle), row.handle
                )
            ),
            judged.epoch.eq(
                mutant("decoder.plain_store_reports_epoch", Mux(row.plain, 0, row.epoch), row.epoch)
            ),
            judged.rank.eq(Mux(row.plain, plain.rank, rank)),
        ]
        return judged

    def _hand_over(self, m, judged, judged_valid, leave, bytes_):
        """To the packet manager and, in the same cycle, the response into its register. Only that
        register's state lets ``o_link`` or ``o_loop`` become valid; it never goes back, so a valid
        store stays valid."""
        m.submodules.answer = answer = StreamRegister(self._types.store_response)
        wiring.connect(m, answer.o, wiring.flipped(self.o_response))
        may_leave = judged_valid & mutant(
            "decoder.leaves_when_reader_is_ready", answer.i.ready, self.o_response.ready
        )
        for out in (self.o_link.payload, self.o_loop.payload):
            m.d.comb += [
                out.data.eq(bytes_.payload.data),
                out.mask.eq(bytes_.payload.mask),
                *(out[name].eq(judged.resolved[name]) for name, _ in self._placed),
            ]
        m.d.comb += [
            bytes_.ready.eq(leave),
            self.o_link.valid.eq(may_leave & judged.deliver & ~judged.own),
            self.o_loop.valid.eq(may_leave & judged.deliver & judged.own),
            leave.eq(
                mutant("decoder.store_leaves_before_answer", may_leave, judged_valid)
                & (~judged.deliver | Mux(judged.own, self.o_loop.ready, self.o_link.ready))
            ),
            answer.i.valid.eq(leave),
            answer.i.payload.tag.eq(judged.tag),
            answer.i.payload.status.eq(judged.status),
        ]
        refused = leave & (
            mutant(
                "decoder.empty_store_counts_as_refused", judged.status != Reason.OK, ~judged.deliver
            )
        )
        m.d.sync += [
            self.counts.refused.eq(refused),
            self.o_refused.en.eq(refused),
        ]
        with m.If(refused):
            m.d.sync += [
                self.o_refused.handle.eq(judged.handle),
                self.o_refused.rowid.eq(judged.resolved.rowid),
                self.o_refused.plain.eq(judged.resolved.plain),
                self.o_refused.rank.eq(judged.rank),
                self.o_refused.reason.eq(judged.status),
                self.o_refused.owner.eq(judged.owner),
                self.o_refused.epoch.eq(judged.epoch),
            ]
