"""One MoE layer as programs for the hubs, and what must come of it.

``plan_layer`` lays out memory and groups and chooses the configuration; ``hub_programs`` turns the routing into programs (dispatch by
row-sparse stores, combine by the expert stand-in's plain stores); ``check_layer`` compares a run with the golden model, byte by byte.

A dispatched row is the token's activation followed by a 16-byte column {address of the answer, 8 bytes; source rank, 4; token, 4},
stored with class ``.nop``. An answer is the expert stand-in's transformation of the row (``docs/running.md``) and goes to
``combine buffer + token * token_stride + choice * answer_stride`` at the source.
"""

from dataclasses import dataclass

import numpy as np

from hub_rtl.config import HubConfig
from hub_rtl.formats import EventKind
from hub_rtl.models import ModelShape
from hub_rtl.registers import register_map
from sim.driver import DepRange, Driver, Handle, Region
from sim.golden.system import ModelError, SystemModel, check_arrivals, expert_rows
from sim.system import System, row_operand
from sim.traces import Routing

__all__ = ["LayerPlan", "plan_layer", "hub_programs", "check_layer", "Verdict", "MARK_START", "MARK_STORED", "MARK_CLOSED", "MARK_END"]

COLUMN = 16
EPOCH = 0
MARK_START, MARK_STORED, MARK_CLOSED, MARK_END = 1, 2, 3, 4
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
    starts: np.ndarray          # first token of each rank, and the total
    local: int                  # experts of a rank
    row_bytes: int
    stride: int
    capacity: int
    tile_rows: int
    combine_tile: int           # tokens whose answers are announced together
    spill_base: int
    region_base: int
    combine_base: int
    scratch: int                # free memory behind, for the address-centric way
    arena: int
    seed: int

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
        return self.cfg.regions * self.tiles

    def region(self, local):
        """Geometry of a rank's region number ``local``."""
        base = self.region_base + local * self.capacity * self.stride
        table = 8 * self.routing.tokens
        spill = tuple(self.spill_base + (2 * local + bank) * _up(table, 64) for bank in range(2))
        return Region(base=(base, base), stride=self.stride, row_bytes=self.row_bytes, capacity=self.capacity,
                      group_base=local * self.tiles, log2_tile=self.tile_rows.bit_length() - 1, expected=self.cfg.ranks,
                      row_span=self.routing.tokens, spill_base=spill)

    def experts(self, rank):
        """Experts of a rank, region 0 first; fewer (or none) at the last ranks when the number does not divide."""
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
            out.append(DepRange(base=self.combine_base, limit=split, log2_stride=shift, group_base=self.combine_groups,
                                threshold=self.combine_tile * answers))
        if left:
            out.append(DepRange(base=split, limit=split + left * self.token_stride, log2_stride=shift,
                                group_base=self.combine_groups + whole, threshold=left * answers))
        return out

    def combine_tiles(self, rank):
        return -(-self.tokens(rank) // self.combine_tile)

    def activations(self, rank):
        """The rank's tokens: (tokens, dispatch_bytes) random bytes."""
        rng = np.random.default_rng((self.seed, rank))
        return rng.integers(0, 256, (self.tokens(rank), self.shape.dispatch_bytes), dtype=np.uint8)

    def columns(self, rank):
        """Return columns of the rank's rows: (tokens, choices, 16) bytes."""
        tokens, choices = self.tokens(rank), self.routing.top_k
        out = np.zeros((tokens, choices), dtype=np.dtype([("address", "<u8"), ("rank", "<u4"), ("token", "<u4")]))
        token, choice = np.meshgrid(np.arange(tokens), np.arange(choices), indexing="ij")
        out["address"] = self.answer_address(token, choice)
        out["rank"], out["token"] = rank, token
        return out.view(np.uint8).reshape(tokens, choices, COLUMN)


def plan_layer(shape, routing, *, ranks, lanes=1, tile_rows=None, seed=1, **changes):
    """Layout and configuration for a layer.

    Parameters: ``shape``, the model; ``routing``, tokens of all ranks, dealt out in equal runs; ``tile_rows``, a power of two (by
    default about half of a mean expert's rows, 4..128); ``changes``, further fields of the configuration.
    """
    tokens, local = routing.tokens, shape.local_experts(ranks)
    if tokens < ranks:
        raise ValueError(f"tokens = {tokens}: must be at least ranks = {ranks}")
    starts = np.arange(ranks + 1) * tokens // ranks
    if tile_rows is None:
        mean = tokens * routing.top_k // shape.experts
        tile_rows = min(128, max(4, _power(mean // 2 + 1)))
    if tile_rows & (tile_rows - 1) or not 1 <= tile_rows <= 1024:
        raise ValueError(f"tile_rows = {tile_rows}: must be a power of two between 1 and 1024")
    packet = changes.get("packet_bytes", 128)
    row_bytes = shape.dispatch_bytes + COLUMN
    stride, capacity = _up(row_bytes, packet), tokens
    most = -(-tokens // ranks)
    token_stride = _power(routing.top_k * _up(shape.combine_bytes, packet))
    combine_tile = min(16, max(1, _power(most // 2)))
    while combine_tile > 1 and combine_tile * routing.top_k * shape.combine_bytes >= 1 << 24:
        combine_tile //= 2
    groups = _power(local * -(-capacity // tile_rows) + -(-most // combine_tile) + 1)
    fields = {"name": "run", "ranks": ranks, "lanes": lanes, "handles": shape.experts, "regions": local, "groups": max(4, groups),
              "capacity": capacity, "max_row_bytes": max(256, row_bytes, shape.combine_bytes), "pool_depth": max(16, _power(4 * ranks)), "rat_sets": 16,
              "rat_ways": 4, "write_depth": 64, "dep_ranges": 2, "log_depth": 16, "reject_depth": 8, **changes}
    cfg = HubConfig(**fields)
    shape.check(cfg)
    spill_base = 4096
    region_base = _up(spill_base + 2 * local * _up(8 * tokens, 64), 4096)
    combine_base = _up(region_base + local * capacity * stride, 4096)
    scratch = _up(combine_base + (most + combine_tile) * token_stride, 4096)
    arena = scratch + _up(ranks * (_up(4 * shape.experts, packet) + 32 * packet * lanes), 4096)
    return LayerPlan(cfg=cfg, shape=shape, routing=routing, starts=starts, local=local, row_bytes=row_bytes, stride=stride,
                     capacity=capacity, tile_rows=tile_rows, combine_tile=combine_tile, spill_base=spill_base,
                     region_base=region_base, combine_base=combine_base, scratch=scratch, arena=arena, seed=seed)


def new_system(plan, *, expert_cycles=200, expert_units=4, **settings):
    """A :class:`~sim.system.System` with the plan's memory and expert stand-ins."""
    cfg = plan.cfg
    system = System(cfg, expert=(expert_cycles, expert_units, plan.shape.combine_bytes),
                    mem_spill=(plan.spill_base, plan.region_base), **settings)
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
    experts = plan.routing.experts[plan.starts[rank]:plan.starts[rank + 1]]
    token, choice = np.meshgrid(np.arange(plan.tokens(rank)), np.arange(plan.routing.top_k), indexing="ij")
    return token.ravel(), choice.ravel(), experts.ravel().astype(np.int64)


def add_payload(plan, rank):
    """Adds the tokens and return columns to a rank's payload; returns their offsets."""
    return rank.add_payload(plan.activations(rank.number)), rank.add_payload(plan.columns(rank.number))


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


def hub_programs(plan, **settings):
    """The layer the hub's way: a :class:`~sim.system.System` ready to run."""
    system, cfg = new_system(plan, **settings), plan.cfg
    for rank in system.ranks:
        program, number = rank.program(), rank.number
        driver = Driver(cfg, program)
        driver.start(number)
        for expert in range(plan.shape.experts):
            driver.handle(expert, Handle(targets=(plan.place(expert),), row_bytes=plan.row_bytes, epoch=EPOCH))
        for local in range(len(plan.experts(number))):
            driver.region(local, plan.region(local))
            driver.open(local, EPOCH)
        set_up_combine(plan, driver, number)
        program.barrier()
        program.mark(MARK_START)
        data, columns = add_payload(plan, rank)
        token, choice, expert = rows_of(plan, number)
        rowid = plan.starts[number] + token
        operand = row_operand(0, EPOCH, 0) + expert + (rowid << 15)
        program.bulk("ROW", rank=expert // plan.local, a=operand, b=data + token * plan.shape.dispatch_bytes, n=plan.shape.dispatch_bytes,
                     m=(rowid + expert) % 4096 % cfg.lanes, c=columns + (token * plan.routing.top_k + choice) * COLUMN, d=COLUMN)
        program.sync()
        program.mark(MARK_STORED)
        program.close_all(EPOCH)
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
            program.mark(1000 + local)
    return system


# -- verdict ----------------------------------------------------------------------------------------------------------------

@dataclass
class Verdict:
    """Result of the comparison: figures that were compared, and one line per difference (empty: all is well)."""

    compared_bytes: int
    mismatches: int
    rows: int
    events: int
    differences: list

    @property
    def good(self):
        return not self.differences


def observed_events(log):
    """Event records in the form of :meth:`~sim.golden.system.SystemModel.events`: fields without meaning as 0."""
    out = []
    for e in log:
        kind, plain = int(e["kind"]), int(e["plain"])
        region_ready = kind == EventKind.READY and not plain
        out.append((kind, plain, int(e["region"]), 0 if plain else int(e["epoch"]), int(e["group"]) if kind == EventKind.READY else 0,
                    int(e["rows"]) if region_ready or kind == EventKind.ALL else 0,
                    int(e["status"]) if kind == EventKind.ERROR else 0, int(e["refused"]) if kind == EventKind.ALL else 0))
    return sorted(out)


def golden_layer(plan, result):
    """The golden model of the layer, with the placements that were observed; raises ModelError when they are impossible."""
    model, cfg = SystemModel(plan.cfg), plan.cfg
    data = [plan.activations(rank) for rank in range(cfg.ranks)]
    columns = [plan.columns(rank) for rank in range(cfg.ranks)]
    for rank in range(cfg.ranks):
        for local in range(len(plan.experts(rank))):
            model.region(rank, local, plan.region(local))
            model.open(rank, local, EPOCH)
        for expert in range(plan.shape.experts):
            model.handle(rank, expert, Handle(targets=(plan.place(expert),), row_bytes=plan.row_bytes, epoch=EPOCH))
        for source in range(cfg.ranks):
            model.window(rank, source, plan.combine_base, plan.scratch)
        for index, dep in enumerate(plan.dep_ranges(rank)):
            model.dep_range(rank, index, dep)
    for rank in range(cfg.ranks):
        column_off = plan.shape.dispatch_bytes // 16
        for token, choice, expert in zip(*(a.tolist() for a in rows_of(plan, rank)), strict=True):
            rowid = int(plan.starts[rank]) + token
            model.row(rank, row_operand(expert, EPOCH, rowid), data[rank][token])
            model.row(rank, row_operand(expert, EPOCH, rowid, column_off), columns[rank][token, choice])
        model.close_all(rank, EPOCH)
    for rank in range(cfg.ranks):
        for a in result.log("allocs", rank).tolist():
            _, rowid, slot, region, bank, overflow, _ = a
            model.allocate(rank, region, bank, rowid, slot, overflow)
    model.settle()
    for rank in range(cfg.ranks):
        answer_rows(plan, model, rank, data, columns)
    return model


def answer_rows(plan, model, rank, data, columns):
    """Adds the expert stand-ins' answers of one rank to the model."""
    for local, expert in enumerate(plan.experts(rank)):
        rowids = np.array([row.rowid for _, row in model.banks[rank][local, EPOCH & 1][0].placed], dtype=np.int64)
        if not len(rowids):
            continue
        source = np.searchsorted(plan.starts, rowids, side="right") - 1
        token = rowids - plan.starts[source]
        rows = np.stack([data[s][t] for s, t in zip(source, token, strict=True)])
        choice = np.argmax(plan.routing.experts[rowids] == expert, axis=1)
        answers = expert_rows(rows, expert, plan.shape.combine_bytes)
        for s, t, c, answer in zip(source.tolist(), token.tolist(), choice.tolist(), answers, strict=True):
            model.plain(rank, s, plan.answer_address(t, c), answer)


def compare(plan, result, model, ranks=None):
    """Compares memories, events and figures of a run with the model; see :class:`Verdict`."""
    verdict = Verdict(0, 0, 0, 0, [])
    if result.timed_out:
        verdict.differences.append(f"the run did not end within {result.summary['cycles']} cycles: {_where(result)}")
    for rank in range(plan.cfg.ranks):
        expected, written = model.image(rank, plan.arena)
        wrong = np.flatnonzero(result.memory(rank)[plan.region_base:] != expected[plan.region_base:])
        verdict.compared_bytes += plan.arena - plan.region_base
        verdict.mismatches += len(wrong)
        if len(wrong):
            verdict.differences.append(f"rank {rank}: {len(wrong)} bytes of memory differ, first at {plan.region_base + wrong[0]:#x}")
        figures = result.ranks[rank]
        got = observed_events(result.log("events", rank))
        expected_events = model.events(rank)
        verdict.events += len(got)
        verdict.rows += len(result.log("allocs", rank))
        if got != expected_events:
            extra, missing = _difference(got, expected_events)
            verdict.differences.append(f"rank {rank}: events differ: {len(extra)} too many {extra[:3]}, {len(missing)} missing {missing[:3]}")
        for name, value in (("bytes_written", written), ("bytes_rewritten", 0), ("stores_refused", 0), ("bad_responses", 0),
                            ("mem_bad", 0), ("spill_bad", 0), ("expert_lost", 0), ("csr_errors", 0), ("tx_bad", 0)):
            if figures[name] != value:
                verdict.differences.append(f"rank {rank}: {name} = {figures[name]}, must be {value}")
    return verdict


def _difference(got, expected):
    from collections import Counter
    a, b = Counter(got), Counter(expected)
    return list((a - b).elements()), list((b - a).elements())


def _where(result):
    return ", ".join(f"rank {r['rank']} at operation {r['pc']}" for r in result.ranks)


def check_layer(plan, result):
    """Compares a run of :func:`hub_programs` with the golden model."""
    try:
        model = golden_layer(plan, result)
        for rank in range(plan.cfg.ranks):
            local = [(int(i["cycle"]), plan.place(int(i["operand"]) & 0x7FF)[1], EPOCH, int(i["operand"]) >> 15 & 0xFFFFFF)
                     for i in result.log("issues", rank) if plan.place(int(i["operand"]) & 0x7FF)[0] == rank]
            check_arrivals(result.log("allocs", rank), result.log("packets", rank), local)
    except ModelError as error:
        return Verdict(0, 0, 0, 0, [f"placement: {error}"])
    verdict = compare(plan, result, model)
    if not result.timed_out:
        _check_registers(plan, result, model, verdict)
    return verdict


def _check_registers(plan, result, model, verdict):
    """The regions' registers must show the model's totals."""
    registers = register_map(plan.cfg)
    paths = {registers.address(f"regions.{name}"): name for name in QUERY}
    for rank in range(plan.cfg.ranks):
        seen = {}
        for read in result.log("reads", rank):
            address = int(read["address"])
            if read["mark"]:
                if address >= 1000:
                    want = model.totals(rank, address - 1000, EPOCH)
                    for name, key in (("SENT_LO", "sent"), ("ACKED_LO", "acked"), ("REFUSED_LO", "refused"), ("ROWS", "rows")):
                        if seen.get(name) != want[key] & 0xFFFFFFFF:
                            verdict.differences.append(
                                f"rank {rank} region {address - 1000}: {key} = {seen.get(name)} in the registers, must be {want[key]}")
                    seen = {}
            elif address in paths:
                seen[paths[address]] = int(read["value"])
