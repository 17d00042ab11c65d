# SPDX-License-Identifier: Apache-2.0
"""Promises of two joined hubs, from a store at one to memory and events at the other, on the whole
RTL between them."""

from amaranth import Cat, Signal
from amaranth.lib import wiring

from formal.kit.cuts import empty
from formal.kit.inside import observe
from formal.kit.spec import Spec, same
from hub_rtl.contract.packets import OPERAND_ROW, EventKind, Reason, RegionOp
from hub_rtl.hub.hub import Hub

__all__ = ["RowReachesTheOtherRank"]

ROW_BYTES, STRIDE, ROWID = 32, 128, 5


class PairSpec(Spec):
    """Hubs of ranks 0 and 1 with their links joined: ``a`` sends, ``b`` receives. Cut out are the
    register bank (its outputs are what software would have written, at given times after both hubs
    are ``cleared``), the views that only registers show, and the idle halves: the consumer of ``a``
    and the producer of ``b``."""

    DELAY = 4

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def join(self, m):
        self.a, self.b = a, b = Hub(self.cfg), Hub(self.cfg)
        self.csr = []
        for n, (hub, half) in enumerate(((a, "consumer"), (b, "producer"))):
            m.submodules[f"hub{n}"] = hub
            parts = observe(hub)
            csr, idle = parts.csr, getattr(parts, half)
            for part in (csr, idle, parts.log, parts.sums, parts.views):
                empty(part)
            m.d.comb += [
                value.eq(0)
                for _, member, value in idle.signature.flatten(idle)
                if member.flow == wiring.Out
            ]
            self.csr.append(csr)
            m.d.comb += [
                csr.rank.eq(n),
                csr.policy.merge_timeout.eq(2),
                csr.policy.age_limit.eq(100),
                csr.policy.max_entries.eq(self.cfg.pool_depth),
            ]
        for sender, receiver in ((a, b), (b, a)):
            for name in ("tdata", "tvalid", "tlast"):
                m.d.comb += getattr(receiver, f"s_axis_link0_{name}").eq(
                    getattr(sender, f"m_axis_link0_{name}")
                )
            m.d.comb += sender.m_axis_link0_tready.eq(receiver.s_axis_link0_tready)
        self.time = Signal(8, name="time")  # cycles since both hubs are cleared
        m.d.sync += self.time.eq(self.time + (a.cleared & b.cleared))

    def memory(self, m, hub, n):
        """Memory at a write port of ``hub``: takes everything at once, answers OKAY ``DELAY``
        cycles after the last beat."""
        history = Signal(self.DELAY, name="last_beats")
        m.d.sync += history.eq(
            Cat(getattr(hub, f"m_axi_mem{n}_wvalid") & getattr(hub, f"m_axi_mem{n}_wlast"), history)
        )
        m.d.comb += [
            getattr(hub, f"m_axi_mem{n}_awready").eq(1),
            getattr(hub, f"m_axi_mem{n}_wready").eq(1),
            getattr(hub, f"m_axi_mem{n}_bvalid").eq(history[-1]),
        ]


class RowReachesTheOtherRank(PairSpec):
    """A row of 32 bytes, with any data and tag, stored at rank 0 for a region of rank 1 of which
    each tile is one row: the store is answered once, OK and with its tag; every byte is written
    once, in one burst at the region's base, and nothing else is written; READY comes once, only
    after memory's answer. Clearing takes at most 14 cycles, then the row is written within 60 and
    READY there within 72 (the store comes in cycle 6): a bound of 86 cycles and more sees the whole
    way."""

    CLEARED, WRITTEN, READY = 14, 60, 72

    def build(self, m):
        self.join(m)
        a, b, cfg, time = self.a, self.b, self.cfg, self.time
        data, tag = self.constant(256, "data"), self.constant(cfg.tag_width, "tag")
        base, beats = self.constant(30, "base_block"), ROW_BYTES // cfg.slice_bytes
        handle, geometry, command = (
            self.csr[0].handle_write,
            self.csr[1].geometry_write,
            self.csr[1].o_region_command,
        )
        m.d.comb += [
            handle.en.eq(time == 1),
            handle.handle.valid.eq(1),
            handle.handle.row_bytes.eq(ROW_BYTES),
            handle.handle.replica[0].rank.eq(1),
            geometry.en.eq(time == 1),
            geometry.geometry.valid.eq(1),
            geometry.geometry.base[0].eq(base << 7),
            geometry.geometry.stride.eq(STRIDE),
            geometry.geometry.row_bytes.eq(ROW_BYTES),
            geometry.geometry.capacity.eq(4),
            geometry.geometry.row_span.eq(1 << 24),
            geometry.geometry.expected.eq(1),
            command.payload.op.eq(RegionOp.OPEN),
            a.s_store0_operand.eq(ROWID << OPERAND_ROW["rowid"][0]),
            a.s_store0_data.eq(data),
            a.s_store0_mask.eq((1 << 32) - 1),
            a.s_store0_tag.eq(tag),
            a.m_response0_ready.eq(1),
            b.m_event_ready.eq(1),
        ]
        for start, valid, ready in (
            (4, command.valid, command.ready),
            (6, a.s_store0_valid, a.s_store0_ready),
        ):
            done = Signal(name="done")
            m.d.comb += valid.eq((time >= start) & ~done)
            with m.If(valid & ready):
                m.d.sync += done.eq(1)
        self.memory(m, b, 0)

        answered = Signal()
        written = Signal(2)
        acked = Signal()
        ready_seen = Signal()
        ready = b.m_event_valid & (b.m_event_kind == EventKind.READY)
        m.d.sync += [
            answered.eq(answered | a.m_response0_valid),
            written.eq(written + b.m_axi_mem0_wvalid),
            acked.eq(acked | b.m_axi_mem0_bvalid),
            ready_seen.eq(ready_seen | ready),
        ]
        self.always(
            "the answer is OK and has the tag",
            ~a.m_response0_valid
            | (~answered & (a.m_response0_status == Reason.OK) & (a.m_response0_tag == tag)),
        )
        self.always(
            "one burst, at the slot",
            ~b.m_axi_mem0_awvalid
            | (same(b, m_axi_mem0_awaddr=base << 7, m_axi_mem0_awlen=beats - 1) & (written == 0)),
        )
        self.always(
            "every byte, once",
            ~b.m_axi_mem0_wvalid
            | (
                (b.m_axi_mem0_wdata == data.word_select(written, 8 * cfg.slice_bytes))
                & (written < beats)
                & b.m_axi_mem0_wstrb.all()
                & (b.m_axi_mem0_wlast == (written == beats - 1))
            ),
        )
        self.always("nothing at the loop lane", ~b.m_axi_mem1_awvalid & ~b.m_axi_mem1_wvalid)
        self.always(
            "READY once, after memory's answer",
            ~ready | (acked & ~ready_seen & (b.m_event_rows == 1) & (b.m_event_group == 0)),
        )
        self.always("no other event", ~b.m_event_valid | ready)
        self.always("written in time", (time < self.WRITTEN) | (written == beats))
        self.always("READY in time", (time < self.READY) | ready_seen)
        cycle = Signal(
            8
        )  # from reset: clearing ends in time, so the limits above lie within the bound
        m.d.sync += cycle.eq(cycle + 1)
        self.always("cleared in time", time + self.CLEARED >= cycle)
        self.reach("the store is answered", a.m_response0_valid)
