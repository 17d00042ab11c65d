# SPDX-License-Identifier: Apache-2.0
"""Register bank of the hub: AXI4-Lite on one side, configuration, orders and views of the blocks on
the other."""

from typing import NamedTuple

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hub_rtl.contract.axi import AxiLite
from hub_rtl.contract.config import index_width
from hub_rtl.contract.fields import (
    COUNTER,
    CSR_ADDR,
    FLIT,
    REASON,
    REGISTER,
)
from hub_rtl.contract.packets import CommandOp, RegionOp
from hub_rtl.contract.records import LOG_ENTRY, types_of
from hub_rtl.contract.registers import GEOMETRY_RULES, IRQ_SOURCES, policies
from hub_rtl.parts.mutants import mutant

from .axil import AxiLiteTarget
from .counters import Counters
from .csr_regions import RegionAccess
from .register_file import RegisterFile

__all__ = ["CsrBank"]

# from the order until `handle_data` shows the entry: one register, two in the table, one to spare
FETCH_CYCLES = 4


class CsrBankObserve(NamedTuple):
    """What a proof may see of a :class:`CsrBank`: its parts."""

    front: AxiLiteTarget
    file: RegisterFile
    regions: RegionAccess
    counters: Counters


class CsrBank(wiring.Component):
    """All registers of the hub.

    Contract: the registers are those of :mod:`hub_rtl.contract.registers`. An indirect entry
    (handle, region, range, window) changes in one cycle, with its COMMIT: the staged fields are
    what is written, and stay for a cycle more. A geometry is written only if it breaks no rule and
    no bank of the region is in use. Latency: an access takes five cycles, one behind regions.COMMIT
    up to 19; nothing outside this block can stall an access. Illegal input: answered SLVERR,
    without effect.

    Parameters: ``cfg``; ``counter_width``, see :class:`~hub_rtl.register_bank.counters.Counters`.
    Ports: ``axil`` In; configuration Out: ``rank``, ``policy``, ``timeout`` (cycles),
    ``peer_dead``; orders Out: ``o_command`` stream(command, tag 0),
    ``i_command_response`` In, ``handle_write``, ``handle_read`` {en, index} with ``handle_data``
    In, the handle, ``geometry_write``, ``dep_write``, ``window_write``, ``o_region_command``; views
    In: ``region_error``, ``query`` Out with ``status``, ``missing_from`` and ``silent``,
    ``timed_out``, ``event_valid``, ``event_error`` (strobe), ``refused`` (strobe), ``bad``,
    ``counts``, ``log_index`` Out with ``log_entry``, ``log_count``, ``log_lost``, ``log_clear``
    Out; ``slice`` Out with ``view`` In; ``cleared``, ``purging``, ``in_flight``, ``range_busy`` In;
    ``irq`` Out, level. Source: docs/interfaces.md section 9, docs/registers.md.
    """

    observe: CsrBankObserve  # once elaborated

    def __init__(self, cfg, counter_width=COUNTER):
        t = types_of(cfg)
        super().__init__(
            {
                "axil": In(AxiLite(CSR_ADDR)),
                "irq": Out(1),
                "rank": Out(cfg.rank_width),
                "policy": Out(t.policy),
                "timeout": Out(REGISTER),
                "peer_dead": Out(cfg.ranks),
                "o_command": Out(stream.Signature(t.command)),
                "i_command_response": In(stream.Signature(t.command_response)),
                "handle_write": Out(t.handle_write),
                "handle_read": Out(t.handle_read),
                "handle_data": In(t.handle),
                "geometry_write": Out(t.geometry_write),
                "dep_write": Out(t.dep_write),
                "window_write": Out(t.window_write),
                "o_region_command": Out(stream.Signature(t.region_order)),
                "region_error": In(t.command_error),
                "query": Out(t.bank_name),
                "status": In(t.status),
                "missing_from": In(cfg.ranks),
                "silent": In(cfg.ranks),
                "timed_out": In(t.bank_strobe),
                "event_valid": In(1),
                "event_error": In(1),
                "refused": In(1),
                "bad": In(t.first_bad),
                "counts": In(t.counts),
                "log_index": Out(index_width(cfg.log_depth)),
                "log_entry": In(LOG_ENTRY),
                "log_count": In(cfg.log_depth.bit_length()),
                "log_lost": In(REGISTER),
                "log_clear": Out(1),
                "slice": Out(cfg.slice_width),
                "view": In(t.view),
                "cleared": In(1),
                "purging": In(1),
                "in_flight": In(1),
                "range_busy": In(1),
            }
        )
        self._cfg, self._counter_width = cfg, counter_width

    def elaborate(self, platform):
        m = Module()
        cfg = self._cfg
        m.submodules.front = front = AxiLiteTarget()
        m.submodules.file = r = RegisterFile(cfg)
        m.submodules.regions = regions = RegionAccess(cfg)
        m.submodules.counters = counters = Counters(cfg, self._counter_width)
        self.observe = CsrBankObserve(front, r, regions, counters)
        connect(m, flipped(self.axil), front.axil)
        connect(m, front.bus, r.bus)
        m.d.comb += [
            self.rank.eq(r.id_rank),
            self.timeout.eq(r.control_timeout),
            self.peer_dead.eq(
                Cat(getattr(r, f"peers_drain{n}") for n in range(-(-cfg.ranks // 32)))
            ),
            r.control_status_cleared.eq(self.cleared),
            r.control_status_purging.eq(self.purging),
            r.control_status_in_flight.eq(self.in_flight),
            r.control_status_range_busy.eq(self.range_busy),
        ]
        m.d.comb += [
            self.policy[name].eq(getattr(r, path.lower().replace(".", "_")))
            for name, path in policies(cfg).items()
        ]
        self._identity(m, r)
        self._commands(m, r)
        self._handles(m, r)
        self._regions(m, r, regions)
        self._tables(m, r)
        self._counters(m, r, counters)
        self._logs(m, r)
        self._hang(m, r, regions)
        self._interrupt(m, r, regions)
        return m

    def _identity(self, m, r):
        """The own rank is in every packet and in the books of credits: no other one once either
        has begun."""
        counts = self.counts
        used = Signal()
        moved = counts.tx_busy.any() | counts.rx_busy.any() | counts.stores.any()
        with m.If(mutant("register_bank.rank_changes_in_traffic", self.in_flight | moved, 0)):
            m.d.sync += used.eq(1)
        beyond = r.bus.data >= self._cfg.ranks
        m.d.comb += r.id_rank_deny.eq(used | mutant("register_bank.rank_beyond_ranks", beyond, 0))

    def _commands(self, m, r):
        """Doorbells: one command at a time, its answer stays readable."""
        busy = Signal()
        status = Signal(REASON)
        out, to = self.o_command, "control_announce_to"
        with m.If(r.control_announce_strobe):
            m.d.sync += [
                busy.eq(1),
                out.valid.eq(1),
                out.payload.eq(0),
                out.payload.op.eq(CommandOp.ANNOUNCE),
                out.payload.bytes16.eq(r.control_announce_bytes16),
                out.payload.more.eq(r.control_announce_more),
                *[
                    out.payload[name].eq(getattr(r, f"{to}_{name}"))
                    for name in ("owner", "epoch", "replica", "handle")
                ],
            ]
        with m.Elif(r.control_command_strobe):
            m.d.sync += [
                busy.eq(1),
                out.valid.eq(1),
                out.payload.eq(0),
                out.payload.op.eq(r.control_command_op),
                out.payload.abort.eq(r.control_command_abort),
                out.payload.owner.eq(r.control_command_owner),
                out.payload.epoch.eq(r.control_command_epoch),
                out.payload.handle.eq(r.control_command_handle),
            ]
        with m.Elif(
            out.valid
            & mutant("register_bank.event_taken_while_offered", out.ready, self.event_valid)
        ):
            m.d.sync += out.valid.eq(0)
        with m.If(self.i_command_response.valid):
            m.d.sync += [
                busy.eq(0),
                status.eq(self.i_command_response.payload.status),
            ]
        m.d.comb += [
            self.i_command_response.ready.eq(1),
            r.control_command_deny.eq(mutant("register_bank.not_busy", busy, 0) | ~self.cleared),
            r.control_announce_deny.eq(busy | ~self.cleared),
            r.control_announce_to_load.eq(r.control_announce_strobe),
            r.control_announce_to_handle_next.eq(
                r.control_announce_to_handle + mutant("register_bank.announces_same_handle", 1, 0)
            ),
            *[
                getattr(r, f"{to}_{name}_next").eq(getattr(r, f"{to}_{name}"))
                for name in ("owner", "epoch", "replica")
            ],
            r.control_status_command_busy.eq(busy),
            r.control_answer_busy.eq(busy),
            r.control_answer_status.eq(status),
        ]

    def _handles(self, m, r):
        cfg = self._cfg
        fetching = Signal()
        missing = Signal()
        m.d.comb += [
            missing.eq((r.handles_index >= cfg.handles) | ~self.cleared),
            r.handles_commit_deny.eq(missing),
            r.handles_fetch_deny.eq(missing | fetching),
            r.control_status_fetch_busy.eq(fetching),
        ]
        write, answer = self.handle_write, self.handle_data
        m.d.sync += write.en.eq(r.handles_commit_strobe)
        m.d.comb += [
            write.index.eq(r.handles_index),
            write.handle.row_bytes.eq(r.handles_row_bytes),
        ]
        m.d.comb += r.handles_row_bytes_next.eq(answer.row_bytes)
        for name in ("valid", "closed", "owner", "epoch", "log2_replicas", "lane_mode", "lane"):
            m.d.comb += getattr(write.handle, name).eq(getattr(r, f"handles_flags_{name}"))
            m.d.comb += getattr(r, f"handles_flags_{name}_next").eq(getattr(answer, name))
        loads = [r.handles_flags_load, r.handles_row_bytes_load]
        for n in range(cfg.replicas):
            for name in ("rank", "region"):
                m.d.comb += getattr(write.handle.replica[n], name).eq(
                    getattr(r, f"handles_replica{n}_{name}")
                )
                m.d.comb += getattr(r, f"handles_replica{n}_{name}_next").eq(
                    getattr(answer.replica[n], name)
                )
            loads.append(getattr(r, f"handles_replica{n}_load"))
        wait = Signal(range(FETCH_CYCLES + 1))
        m.d.sync += self.handle_read.en.eq(r.handles_fetch_strobe)
        with m.If(r.handles_fetch_strobe):
            m.d.sync += [
                wait.eq(FETCH_CYCLES),
                self.handle_read.index.eq(r.handles_index),
            ]
        with m.Elif(fetching):
            m.d.sync += wait.eq(wait - 1)
        m.d.comb += fetching.eq(wait != 0)
        m.d.comb += [load.eq(wait == 1) for load in loads]

    def _regions(self, m, r, regions):
        cfg, g = self._cfg, regions.geometry
        missing = Signal()
        last = Signal(cfg.region_width + 1)
        m.d.comb += [
            missing.eq((r.regions_index >= cfg.regions) | ~self.cleared),
            regions.region.eq(r.regions_index),
            g.valid.eq(r.regions_flags_valid),
            g.overflow_en.eq(r.regions_flags_overflow_en),
            g.flag_en.eq(r.regions_flags_flag_en),
            g.log2_tile.eq(r.regions_flags_log2_tile),
            g.expected.eq(r.regions_flags_expected),
            g.overflow.eq(r.regions_flags_overflow),
            g.base[0].eq(_wide(r, "regions_base0")),
            g.base[1].eq(_wide(r, "regions_base1")),
            g.stride.eq(r.regions_stride),
            g.row_bytes.eq(r.regions_row_bytes),
            g.capacity.eq(r.regions_capacity),
            g.group_base.eq(r.regions_group_base),
            g.row_first.eq(
                mutant("register_bank.row_first_is_span", r.regions_row_first, r.regions_row_span)
            ),
            g.row_span.eq(r.regions_row_span),
            g.spill_base[0].eq(_wide(r, "regions_spill_base0")),
            g.spill_base[1].eq(_wide(r, "regions_spill_base1")),
            g.flag_base.eq(_wide(r, "regions_flag_base")),
            # Commit: the bus waits meanwhile, since the check reads the staged fields.
            regions.commit.eq(r.regions_commit_strobe),
            r.regions_commit_deny.eq(missing),
            r.hold.eq(regions.busy),
            self.geometry_write.eq(regions.geometry_write),
            # Commands
            regions.command_en.eq(r.regions_command_strobe),
            regions.command.op.eq(r.regions_command_op),
            regions.command.epoch.eq(r.regions_command_epoch),
            regions.command.region.eq(r.regions_index),
            regions.command.last.eq(mutant("register_bank.range_one_short", last, r.regions_index)),
            regions.command.again.eq(r.regions_command_again),
            last.eq(r.regions_index + r.regions_command_more),
            r.regions_command_deny.eq(
                missing
                | regions.command_busy
                | mutant("register_bank.range_beyond_regions", last >= cfg.regions, 0)
                | (r.regions_command_again & (r.regions_command_op != RegionOp.RELEASE))
            ),
            r.control_status_region_busy.eq(regions.command_busy),
            # State
            regions.query_en.eq(r.regions_query_strobe),
            regions.query_bank.eq(r.regions_query),
            r.regions_query_deny.eq(missing | regions.query_busy),
            r.control_status_query_busy.eq(regions.query_busy),
            self.query.eq(regions.query),
            regions.status.eq(self.status),
            regions.missing_from.eq(self.missing_from),
            regions.silent.eq(self.silent),
        ]
        connect(m, regions.o_command, flipped(self.o_region_command))
        result = regions.result
        m.d.comb += [
            getattr(r, f"regions_state_{name}").eq(getattr(result, name))
            for name in ("state", "epoch", "error", "closes")
        ]
        for name in ("sent", "acked", "refused"):
            value = getattr(result, name)
            m.d.comb += [
                getattr(r, f"regions_{name}_lo").eq(value[:REGISTER]),
                getattr(r, f"regions_{name}_hi").eq(value[REGISTER:]),
            ]
        m.d.comb += [
            r.regions_rows.eq(result.rows),
            r.regions_told.eq(result.told),
            r.regions_blame_valid.eq(result.blame.valid),
            r.regions_blame_rank.eq(result.blame.rank),
        ]
        _bitmap(m, r, "regions_missing", regions.missing)
        _bitmap(m, r, "regions_silent", regions.mute)
        for bit, name in enumerate(GEOMETRY_RULES):
            m.d.comb += getattr(r, f"regions_error_{name}_set").eq(regions.errors[bit])
        # The first failing command is kept.
        failed = Signal(self.region_error.shape())
        with m.If(self.region_error.en & ~r.regions_command_error_valid):
            m.d.sync += failed.eq(self.region_error)
        m.d.comb += [
            r.regions_command_error_valid_set.eq(self.region_error.en),
            r.regions_command_error_op.eq(failed.command.op),
            r.regions_command_error_epoch.eq(failed.command.epoch),
            r.regions_command_error_reason.eq(failed.reason),
            r.regions_command_error_region.eq(failed.command.region),
        ]

    def _tables(self, m, r):
        """Dependency ranges and windows: one cycle, nothing to check but the index."""
        cfg = self._cfg
        dep, window = self.dep_write, self.window_write
        m.d.comb += [
            r.deps_commit_deny.eq(
                (r.deps_index >= cfg.dep_ranges) | self.range_busy | ~self.cleared
            ),
            r.windows_commit_deny.eq((r.windows_index >= cfg.ranks) | ~self.cleared),
        ]
        m.d.sync += [
            dep.en.eq(r.deps_commit_strobe),
            window.en.eq(r.windows_commit_strobe),
        ]
        m.d.comb += [
            dep.index.eq(r.deps_index),
            dep.range.armed.eq(r.deps_flags_armed),
            dep.range.log2_stride.eq(r.deps_flags_log2_stride),
            dep.range.base.eq(_wide(r, "deps_base")),
            dep.range.limit.eq(_wide(r, "deps_limit")),
            dep.range.group_base.eq(r.deps_group_base),
            dep.range.threshold.eq(r.deps_threshold),
            window.rank.eq(r.windows_index),
            window.window.base.eq(_wide(r, "windows_base")),
            window.window.limit.eq(_wide(r, "windows_limit")),
        ]

    def _counters(self, m, r, counters):
        m.d.comb += [
            counters.counts.eq(self.counts),
            counters.freeze.eq(r.counters_control_freeze),
            counters.snapshot.eq(r.counters_snapshot_strobe),
            counters.clear.eq(r.counters_clear_strobe),
            r.counters_snapshot_deny.eq(counters.busy),
            r.counters_clear_deny.eq(counters.busy),
            r.control_status_snapshot_busy.eq(counters.busy),
            counters.read_en.eq(r.external_en),
            counters.read_index.eq(r.external_index),
            r.external_data.eq(counters.read_data),
        ]

    def _logs(self, m, r):
        entry = self.log_entry
        m.d.comb += [
            self.log_index.eq(r.logs_index),
            self.log_clear.eq(r.logs_clear_strobe),
            r.logs_clear_deny.eq(0),
            r.logs_count.eq(self.log_count),
            r.logs_lost.eq(self.log_lost),
            r.logs_entry_row_rowid.eq(entry.rowid),
            r.logs_entry_row_rank.eq(entry.rank),
            *[
                getattr(r, f"logs_entry_{name}").eq(getattr(entry, name))
                for name in ("reason", "side", "remote", "plain", "owner", "epoch", "number")
            ],
        ]
        kept = Signal(self.bad.shape())  # the first bad packet
        with m.If(self.bad.en & ~r.logs_bad_valid):
            m.d.sync += kept.eq(self.bad)
        m.d.comb += [
            r.logs_bad_valid_set.eq(self.bad.en),
            r.logs_bad_reason.eq(kept.reason),
            r.logs_bad_lane.eq(kept.lane),
        ]
        m.d.comb += [
            getattr(r, f"logs_bad_header{n}").eq(kept.header[32 * n : 32 * n + 32])
            for n in range(FLIT // REGISTER)
        ]

    def _hang(self, m, r, regions):
        oldest, waiting = self.view.oldest, self.view.waiting
        m.d.comb += self.slice.eq(r.hang_slice)
        m.d.comb += [
            getattr(r, f"hang_oldest_{name}").eq(getattr(oldest, name))
            for name in ("valid", "plain", "epoch", "rank", "region", "rowid", "age")
        ]
        m.d.comb += [
            getattr(r, f"hang_waiting_{name}").eq(getattr(waiting, name))
            for name in ("valid", "cause", "region", "rowid")
        ]
        m.d.comb += [
            r.hang_outstanding.eq(self.view.outstanding),
            regions.timeout.eq(self.timed_out),
            r.hang_timeout_valid_set.eq(regions.timeout_set),
            r.hang_timeout_bank.eq(regions.timeout_result.bank),
            r.hang_timeout_epoch.eq(regions.timeout_result.epoch),
            r.hang_timeout_region.eq(regions.timeout_result.region),
        ]
        _bitmap(m, r, "hang_timeout_missing", regions.timeout_missing)
        _bitmap(m, r, "hang_timeout_silent", regions.timeout_mute)
        _bitmap(m, r, "hang_no_credit", self.view.no_credit)
        _bitmap(m, r, "hang_no_ctl_credit", self.view.no_ctl_credit)

    def _interrupt(self, m, r, regions):
        sources = {
            "error": self.event_error,
            "timeout": regions.timeout_set,
            "refusal": self.refused,
            "command": self.region_error.en,
            "geometry": regions.errors.any(),
            "bad_packet": self.bad.en,
        }
        m.d.comb += [
            getattr(r, f"control_irq_status_{name}_set").eq(signal)
            for name, signal in sources.items()
        ]
        m.d.comb += r.control_irq_status_event.eq(self.event_valid)
        pending = Cat(
            getattr(r, f"control_irq_status_{name}") & getattr(r, f"control_irq_enable_{name}")
            for name in IRQ_SOURCES
        )
        m.d.sync += self.irq.eq(
            mutant(
                "register_bank.irq_falls_with_event",
                pending.any(),
                pending.any() & ~self.event_valid,
            )
        )


def _wide(r, name):
    """A value in two registers."""
    return Cat(getattr(r, f"{name}_lo"), getattr(r, f"{name}_hi"))


def _bitmap(m, r, name, value):
    """One bit per rank, 32 per register."""
    m.d.comb += [
        getattr(r, f"{name}{n}").eq(value[32 * n : 32 * n + 32])
        for n in range(-(-len(value) // 32))
    ]
