# SPDX-License-Identifier: Apache-2.0
"""One MoE layer as programs for the hubs.

``plan_layer`` lays out memory and groups and chooses the configuration; ``hub_programs`` turns the
routing into programs: dispatch by row-sparse stores, combine by the expert stand-in's plain stores.
``sim/system/layer_check.py`` compares a run with the golden model.

A dispatched row is the token's activation followed by a 16-byte column {address of the answer, 8
bytes; source rank, 4; token, 4}, stored with class ``.nop``. An answer is the expert stand-in's
transformation of the row (``docs/running.md``) and goes to ``combine buffer + token * token_stride
+ choice * answer_stride`` at the source.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flow.driver import DepRange, Driver, Handle, Region
from hub_rtl.contract.config import ConfigError, HubConfig
from hub_rtl.contract.fields import LANE_KEY
from hub_rtl.contract.packets import OPERAND_ROW, EventKind
from hub_rtl.contract.registers import register_map
from sim.workload.models import ModelShape
from sim.workload.numbering import NUMBERINGS
from sim.workload.traces import Routing

from .formats import RETURN
from .system import System, row_operand

__all__ = [
    "LayerPlan",
    "plan_layer",
    "hub_programs",
    "new_system",
    "set_up_combine",
    "add_payload",
    "rows_of",
    "finish",
    "COLUMN",
    "EPOCH",
    "ORDERS",
    "QUERY",
    "MARK_START",
    "MARK_STORED",
    "MARK_CLOSED",
    "MARK_END",
    "MARK_QUERY",
]

COLUMN = 16
MOST_TILE_ROWS = 1024  # docs/formats.md
LARGEST_USUAL_TILE = 128  # the M-tile of a GEMM
EPOCH = 0
MARK_START, MARK_STORED, MARK_CLOSED, MARK_END, MARK_TOLD = 1, 2, 3, 4, 5
STREAMS = 4  # of stores, for each link
TELLER = 1  # thread of a rank that tells what comes
#: Cycles for which rows may go before answers. The default is for plain stores, whose last packet
#: is rarely full: software without the hub is slower with this one.
AGE_LIMIT = 8192
#: Orders in which a rank stores its rows: as its tokens come, or all for the first experts of all
#: ranks before all for the second ones, so that these can begin early.
ORDERS = ("token", "expert")
MARK_QUERY = 1000  # + region: its registers have been read
QUERY = ("STATE", "SENT_LO", "ACKED_LO", "REFUSED_LO", "ROWS")


def _up(value, unit):
    return -(-value // unit) * unit


def _power(value):
    """Smallest power of two from ``value`` on."""
    return 1 << max(0, (value - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """Where everything lies; the same at each rank. Lengths and addresses in bytes."""

    cfg: HubConfig
    shape: ModelShape
    routing: Routing
    starts: np.ndarray  # first token of each rank, and the total
    first_rows: np.ndarray  # first RowID of each rank, and the end of the last range
    local: int  # experts of a rank
    row_bytes: int
    stride: int
    capacity: int
    tile_rows: int
    combine_tile: int  # tokens whose answers are announced together
    spill_base: int
    region_base: int
    combine_base: int
    scratch: int  # free memory behind, for the address-centric way
    arena: int
    seed: int
    numbering: str = "token"  # of the rows, one of sim.workload.numbering.NUMBERINGS
    order: str = "token"  # in which a rank stores its rows, one of ORDERS

    def tokens(self, rank):
        return int(self.starts[rank + 1] - self.starts[rank])

    @property
    def tiles(self):
        return -(-self.capacity // self.tile_rows)

    @property
    def answer_stride(self):
        return _up(self.shape.combine_bytes, self.cfg.packet_bytes)

    @property
    def token_stride(self):
        return _power(self.routing.top_k * self.answer_stride)

    @property
    def combine_groups(self):
        """First group of the combine buffer: behind those of the regions."""
        return self.local * self.tiles

    def region(self, local):
        """Geometry of a rank's region number ``local``."""
        base = self.region_base + local * self.capacity * self.stride
        table = 8 * self.row_span
        spill = tuple(self.spill_base + (2 * local + bank) * _up(table, 64) for bank in range(2))
        return Region(
            base=(base, base),
            stride=self.stride,
            row_bytes=self.row_bytes,
            capacity=self.capacity,
            group_base=local * self.tiles,
            log2_tile=self.tile_rows.bit_length() - 1,
            expected=self.cfg.ranks,
            row_span=self.row_span,
            spill_base=spill,
        )

    def experts(self, rank):
        """Experts of a rank, region 0 first; fewer (or none) at the last ranks when the number does
        not divide."""
        return range(rank * self.local, min((rank + 1) * self.local, self.shape.experts))

    def place(self, expert):
        """(rank, region) of an expert."""
        return expert // self.local, expert % self.local

    def answer_address(self, token, choice):
        """Where the answer to choice ``choice`` of the rank's token number ``token`` goes."""
        return self.combine_base + token * self.token_stride + choice * self.answer_stride

    def dep_ranges(self, rank):
        """Ranges that count the answers: whole tiles of tokens, then what is left."""
        tile_bytes = self.combine_tile * self.token_stride
        answers = self.routing.top_k * self.shape.combine_bytes
        whole, left = divmod(self.tokens(rank), self.combine_tile)
        shift = tile_bytes.bit_length() - 1
        split = self.combine_base + whole * tile_bytes
        out = []
        if whole:
            out.append(
                DepRange(
                    base=self.combine_base,
                    limit=split,
                    log2_stride=shift,
                    group_base=self.combine_groups,
                    threshold=self.combine_tile * answers,
                )
            )
        if left:
            out.append(
                DepRange(
                    base=split,
                    limit=split + left * self.token_stride,
                    log2_stride=shift,
                    group_base=self.combine_groups + whole,
                    threshold=left * answers,
                )
            )
        return out

    def combine_tiles(self, rank):
        return -(-self.tokens(rank) // self.combine_tile)

    @property
    def row_span(self):
        """RowIDs of a region, of all ranks."""
        return int(self.first_rows[-1])

    @cached_property
    def _rowids(self):
        number, out = NUMBERINGS[self.numbering].rowids, []
        for rank in range(self.cfg.ranks):
            experts = self.routing.experts[self.starts[rank] : self.starts[rank + 1]]
            own, first = experts // self.local == rank, self.first_rows[rank]
            out.append(number(experts.astype(np.int64), first, self.cfg.lanes, own))
        return out

    def rowids(self, rank):
        """RowIDs [tokens, choices] of a rank's rows."""
        return self._rowids[rank]

    def origins(self, expert):
        """{RowID: (rank, local token, choice)} of all rows for an expert."""
        out = {}
        for rank in range(self.cfg.ranks):
            chosen = self.routing.experts[self.starts[rank] : self.starts[rank + 1]] == expert
            rowids = self.rowids(rank)[chosen].tolist()
            out |= {
                rowid: (rank, *place)
                for rowid, place in zip(rowids, np.argwhere(chosen).tolist(), strict=True)
            }
        return out

    def activations(self, rank):
        """The rank's tokens: (tokens, dispatch_bytes) random bytes."""
        rng = np.random.default_rng((self.seed, rank))
        return rng.integers(0, 256, (self.tokens(rank), self.shape.dispatch_bytes), dtype=np.uint8)

    def columns(self, rank):
        """Return columns of the rank's rows: (tokens, choices, 16) bytes."""
        tokens, choices = self.tokens(rank), self.routing.top_k
        out = np.zeros((tokens, choices), dtype=RETURN)
        token, choice = np.meshgrid(np.arange(tokens), np.arange(choices), indexing="ij")
        out["address"] = self.answer_address(token, choice)
        out["rank"], out["token"] = rank, token
        return out.view(np.uint8).reshape(tokens, choices, COLUMN)


def roomy(ranks):
    """A hub of one lane with room for layers of every shape and size that is usually run.

    Its packet manager and receive pool are those that the paper's link rates ask for of a slice of
    three links: 128 entries, packets of a microsecond. What a layer takes of the rest is told to
    the hub by its registers, so that runs with other tokens, tiles or models are runs of the same
    Verilog.
    """
    return HubConfig(
        name="run",
        ranks=ranks,
        handles=256,
        regions=32,
        groups=8192,
        capacity=1 << 16,
        max_row_bytes=16384,
        pool_depth=128,
        pool_places=576,
        rat_sets=16,
        rat_ways=4,
        write_depth=64,
        dep_ranges=2,
        log_depth=16,
        reject_depth=8,
    )


def usual_tile(routing, ranks):
    """Rows of a tile: the power of two nearest to what an expert gets from one rank. Those of small
    batches have one row and wait for no other.
    """
    rows = routing.tokens * routing.top_k / (routing.num_experts * ranks)
    return min(LARGEST_USUAL_TILE, 1 << max(0, round(math.log2(rows))))


def plan_layer(
    shape,
    routing,
    *,
    ranks,
    lanes=None,
    tile_rows=None,
    seed=1,
    packet_bytes=None,
    base=None,
    changes=None,
    numbering="token",
    order="token",
):
    """Layout and configuration for a layer.

    Parameters: ``shape``, the model; ``routing``, tokens of all ranks, dealt out in equal runs;
    ``tile_rows``, a power of two (by default :func:`usual_tile`, or larger where the hub has not so
    many groups); ``base``, a configuration to use, with these ranks, in place of :func:`roomy`,
    which grows where the layer needs more; ``lanes``, ``packet_bytes`` and ``changes`` (by field)
    in place of the configuration's; ``numbering`` of the rows; ``order``, one of :data:`ORDERS`.
    Raises ConfigError when the layer does not fit.
    """
    if order not in ORDERS:
        raise ConfigError(f"order = {order!r}: must be one of {', '.join(ORDERS)}")
    if numbering not in NUMBERINGS:
        raise ConfigError(f"numbering = {numbering!r}: must be one of {', '.join(NUMBERINGS)}")
    tokens, local = routing.tokens, shape.local_experts(ranks)
    if tokens < ranks:
        raise ConfigError(f"tokens = {tokens}: must be at least ranks = {ranks}")
    starts = np.arange(ranks + 1) * tokens // ranks
    asked = {"ranks": ranks, "lanes": lanes, "packet_bytes": packet_bytes, **(changes or {})}
    cfg = (base or roomy(ranks)).replace(
        **{name: value for name, value in asked.items() if value is not None}
    )
    packet_bytes = cfg.packet_bytes
    row_bytes, capacity = shape.dispatch_bytes + COLUMN, tokens
    stride, most = _up(row_bytes, packet_bytes), -(-tokens // ranks)
    token_stride = _power(routing.top_k * _up(shape.combine_bytes, packet_bytes))
    combine_tile = min(16, max(1, _power(most // 2)))
    while combine_tile > 1 and combine_tile * routing.top_k * shape.combine_bytes >= 1 << 24:
        combine_tile //= 2

    def groups_of(tile):
        return local * -(-capacity // tile) + -(-most // combine_tile)

    if tile_rows is None:
        tile_rows = usual_tile(routing, ranks)
        while groups_of(tile_rows) > cfg.groups and tile_rows < MOST_TILE_ROWS:
            tile_rows *= 2
    if tile_rows & (tile_rows - 1) or not 1 <= tile_rows <= MOST_TILE_ROWS:
        raise ConfigError(
            f"tile_rows = {tile_rows}: must be a power of two between 1 and {MOST_TILE_ROWS}"
        )
    needs = {
        "handles": shape.experts,
        "regions": local,
        "groups": groups_of(tile_rows),
        "capacity": capacity,
        "max_row_bytes": max(row_bytes, shape.combine_bytes),
        "dep_ranges": 2,
    }
    short = {name: need for name, need in needs.items() if getattr(cfg, name) < need}
    if base is None:
        cfg = cfg.replace(**{name: _power(need) for name, need in short.items()})
    shape.check(cfg)
    for name, need in needs.items():
        if getattr(cfg, name) < need:
            raise ConfigError(f"{name} = {getattr(cfg, name)}: the layer needs {need}")
    first_rows = NUMBERINGS[numbering].starts(np.diff(starts), cfg.lanes)
    spill_base = 4096
    region_base = _up(spill_base + 2 * local * _up(8 * int(first_rows[-1]), 64), 4096)
    combine_base = _up(region_base + local * capacity * stride, 4096)
    scratch = _up(combine_base + (most + combine_tile) * token_stride, 4096)
    arena = scratch + _up(
        ranks * (_up(4 * shape.experts, packet_bytes) + 32 * packet_bytes * cfg.links), 4096
    )
    return LayerPlan(
        cfg=cfg,
        shape=shape,
        routing=routing,
        starts=starts,
        first_rows=first_rows,
        local=local,
        row_bytes=row_bytes,
        stride=stride,
        capacity=capacity,
        tile_rows=tile_rows,
        combine_tile=combine_tile,
        spill_base=spill_base,
        region_base=region_base,
        combine_base=combine_base,
        scratch=scratch,
        arena=arena,
        seed=seed,
        numbering=numbering,
        order=order,
    )


def new_system(plan, *, expert_cycles=200, expert_units=4, **settings):
    """A :class:`~sim.system.system.System` with the plan's memory and expert stand-ins, and with
    as many streams of stores (think of SMs) for each link."""
    cfg = plan.cfg
    system = System(
        cfg,
        streams=STREAMS * cfg.slice_links,
        expert=(expert_cycles, expert_units, plan.shape.combine_bytes),
        mem_spill=(plan.spill_base, plan.region_base),
        **settings,
    )
    for rank in system.ranks:
        rank.arena = plan.arena
        for local, expert in enumerate(plan.experts(rank.number)):
            g = plan.region(local)
            rank.places[local] = (*g.base, g.stride, g.row_bytes, g.group_base, g.log2_tile, expert)
    return system


def set_up_combine(plan, driver, rank):
    """Windows and dependency ranges for the answers."""
    for source in range(plan.cfg.ranks):
        driver.window(source, plan.combine_base, plan.scratch)
    for index, dep in enumerate(plan.dep_ranges(rank)):
        driver.dep_range(index, dep)


def rows_of(plan, rank):
    """(local token, choice, expert) of each row of a rank, in the order of sending."""
    experts = plan.routing.experts[plan.starts[rank] : plan.starts[rank + 1]]
    token, choice = np.meshgrid(
        np.arange(plan.tokens(rank)), np.arange(plan.routing.top_k), indexing="ij"
    )
    rows = token.ravel(), choice.ravel(), experts.ravel().astype(np.int64)
    if plan.order == "token":
        return rows
    sending = np.argsort(rows[2] % plan.local, kind="stable")
    return tuple(values[sending] for values in rows)


def add_payload(plan, rank):
    """Adds the tokens and return columns to a rank's payload; returns their offsets."""
    return rank.add_payload(plan.activations(rank.number)), rank.add_payload(
        plan.columns(rank.number)
    )


def finish(plan, program, rank, counters=True):
    """Waits for the answers, then for all ranks, and reads the counters."""
    program.wait_events(EventKind.READY, plan.combine_tiles(rank), plain=True)
    program.mark(MARK_END)
    program.barrier()
    if counters:
        driver = Driver(plan.cfg, program)
        driver.snapshot()
        for pair in driver.counters().values():
            for address in pair:
                program.read(address)


def announce(plan, program, expert):
    """What a rank's rows bring to each expert, nothing too, told while the first of them leave.

    The zeros as well: a tile that is not full waits for what every producer tells, and of those
    that ANNOUNCE_ALL would tell it goes with the close, behind the rows that wait."""
    program.wait_mark(MARK_START)
    rows = np.bincount(expert, minlength=plan.shape.experts).tolist()
    for number, count in enumerate(rows):
        more = number + 1 < len(rows)
        program.announce(number, EPOCH, count * plan.row_bytes, more=more)
    program.sync()
    program.mark(MARK_TOLD)


def hub_programs(plan, close_at_end=False, **settings):
    """The layer the hub's way: a :class:`~sim.system.system.System` ready to run. Producers tell
    what comes, or, ``close_at_end``, only that nothing more does."""
    system, cfg = new_system(plan, **settings), plan.cfg
    for rank in system.ranks:
        program, number = rank.program(), rank.number
        driver = Driver(cfg, program)
        driver.start(number, age_limit=AGE_LIMIT)
        for expert in range(plan.shape.experts):
            driver.handle(
                expert, Handle(targets=(plan.place(expert),), row_bytes=plan.row_bytes, epoch=EPOCH)
            )
        for local in range(len(plan.experts(number))):
            driver.region(local, plan.region(local))
        driver.open(0, EPOCH, len(plan.experts(number)))
        set_up_combine(plan, driver, number)
        program.barrier()
        program.mark(MARK_START)
        data, columns = add_payload(plan, rank)
        token, choice, expert = rows_of(plan, number)
        rowid = plan.rowids(number)[token, choice]
        if not close_at_end:
            announce(plan, rank.program(TELLER), expert)
        operand = row_operand(0, EPOCH, 0) + sum(
            value << OPERAND_ROW[name][0] for name, value in (("handle", expert), ("rowid", rowid))
        )
        length = plan.shape.dispatch_bytes
        program.bulk(
            "ROW",
            rank=expert // plan.local,
            m=(rowid + expert) % (1 << LANE_KEY) % cfg.lanes,
            a=operand,
            b=data + token * length,
            n=length,
            c=columns + (token * plan.routing.top_k + choice) * COLUMN,
            d=COLUMN,
        )
        program.sync()
        program.mark(MARK_STORED)
        if close_at_end:
            program.close_all(EPOCH)
        else:
            program.wait_mark(MARK_TOLD)
        program.mark(MARK_CLOSED)
        program.wait_events(EventKind.ALL, len(plan.experts(number)))
        finish(plan, program, number)
        registers = register_map(cfg)
        for local in range(len(plan.experts(number))):
            program.write(registers.address("regions.INDEX"), local)
            program.write(registers.address("regions.QUERY"), EPOCH & 1)
            driver._wait("query_busy")
            for name in QUERY:
                program.read(registers.address(f"regions.{name}"))
            program.mark(MARK_QUERY + local)
    return system
