# SPDX-License-Identifier: Apache-2.0
"""Compares the run of a layer with the golden model: placements, memories, events, figures,
registers."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from flow.driver import Handle
from hub_rtl.contract.packets import OPERAND_ROW, EventKind, unpack
from hub_rtl.contract.registers import register_map
from sim.golden.observed import check_arrivals, expert_rows
from sim.golden.system import ModelError, SystemModel

from .layer import EPOCH, MARK_QUERY, QUERY, rows_of
from .system import row_operand

__all__ = ["Verdict", "check_layer", "compare", "observed_events", "timed_out", "wrong_totals"]


@dataclass
class Verdict:
    """Result of the comparison: figures that were compared, and one line per difference (empty: all
    is well)."""

    compared_bytes: int
    mismatches: int
    rows: int
    events: int
    differences: list

    @property
    def good(self):
        return not self.differences


def observed_events(log):
    """Event records in the form of :meth:`~sim.golden.system.SystemModel.events`: fields without
    meaning as 0."""
    out = []
    for e in log:
        kind, plain = int(e["kind"]), int(e["plain"])
        region_ready = kind == EventKind.READY and not plain
        out.append(
            (
                kind,
                plain,
                int(e["region"]),
                0 if plain else int(e["epoch"]),
                int(e["group"]) if kind == EventKind.READY else 0,
                int(e["rows"]) if region_ready or kind == EventKind.ALL else 0,
                int(e["status"]) if kind == EventKind.ERROR else 0,
                int(e["refused"]) if kind == EventKind.ALL else 0,
            )
        )
    return sorted(out)


def golden_layer(plan, result):
    """The golden model of the layer, with the placements that were observed; raises ModelError when
    they are impossible."""
    model, cfg = SystemModel(plan.cfg), plan.cfg
    data = [plan.activations(rank) for rank in range(cfg.ranks)]
    columns = [plan.columns(rank) for rank in range(cfg.ranks)]
    for rank in range(cfg.ranks):
        for local in range(len(plan.experts(rank))):
            model.region(rank, local, plan.region(local))
            model.open(rank, local, EPOCH)
        for expert in range(plan.shape.experts):
            model.handle(
                rank,
                expert,
                Handle(targets=(plan.place(expert),), row_bytes=plan.row_bytes, epoch=EPOCH),
            )
        for source in range(cfg.ranks):
            model.window(rank, source, plan.combine_base, plan.scratch)
        for index, dep in enumerate(plan.dep_ranges(rank)):
            model.dep_range(rank, index, dep)
    for rank in range(cfg.ranks):
        column_off = plan.shape.dispatch_bytes // 16
        token, choice, expert = rows_of(plan, rank)
        rows = (token, choice, expert, plan.rowids(rank)[token, choice])
        for token, choice, expert, rowid in zip(*(a.tolist() for a in rows), strict=True):
            model.row(rank, row_operand(expert, EPOCH, rowid), data[rank][token])
            model.row(
                rank, row_operand(expert, EPOCH, rowid, column_off), columns[rank][token, choice]
            )
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
        placed, origins = model.banks[rank][local, EPOCH & 1][0].placed, plan.origins(expert)
        if not placed:
            continue
        rows = [origins[row.rowid] for _, row in placed]
        answers = expert_rows(
            np.stack([data[source][token] for source, token, _ in rows]),
            expert,
            plan.shape.combine_bytes,
        )
        for (source, token, choice), answer in zip(rows, answers, strict=True):
            model.plain(rank, source, plan.answer_address(token, choice), answer)


def compare(plan, result, model, ranks=None):
    """Compares memories, events and figures of a run with the model; see :class:`Verdict`."""
    verdict = Verdict(0, 0, 0, 0, [])
    for rank in range(plan.cfg.ranks):
        expected, written = model.image(rank, plan.arena)
        wrong = np.flatnonzero(
            result.memory(rank)[plan.region_base :] != expected[plan.region_base :]
        )
        verdict.compared_bytes += plan.arena - plan.region_base
        verdict.mismatches += len(wrong)
        if len(wrong):
            at = plan.region_base + wrong[0]
            verdict.differences.append(
                f"rank {rank}: {len(wrong)} bytes of memory differ, first at {at:#x}"
            )
        figures = result.ranks[rank]
        got = observed_events(result.log("events", rank))
        expected_events = model.events(rank)
        verdict.events += len(got)
        verdict.rows += len(result.log("allocs", rank))
        if got != expected_events:
            extra, missing = _difference(got, expected_events)
            verdict.differences.append(
                f"rank {rank}: events differ: {len(extra)} too many {extra[:3]}, "
                f"{len(missing)} missing {missing[:3]}"
            )
        for name, value in (
            ("bytes_written", written),
            ("bytes_rewritten", 0),
            ("stores_refused", 0),
            ("bad_responses", 0),
            ("mem_bad", 0),
            ("spill_bad", 0),
            ("expert_lost", 0),
            ("csr_errors", 0),
            ("tx_bad", 0),
        ):
            if figures[name] != value:
                verdict.differences.append(
                    f"rank {rank}: {name} = {figures[name]}, must be {value}"
                )
    return verdict


def _difference(got, expected):
    a, b = Counter(got), Counter(expected)
    return list((a - b).elements()), list((b - a).elements())


def timed_out(result):
    """The verdict on a run that the watchdog ended: where each rank's program stood."""
    where = ", ".join(f"rank {r['rank']} at operation {r['pc']}" for r in result.ranks)
    return Verdict(
        0, 0, 0, 0, [f"the run did not end within {result.summary['cycles']} cycles: {where}"]
    )


def check_layer(plan, result):
    """Compares a run of :func:`hub_programs` with the golden model."""
    if result.timed_out:
        return timed_out(result)
    try:
        model = golden_layer(plan, result)
        for rank in range(plan.cfg.ranks):
            local = []
            for issue in result.log("issues", rank):
                row = unpack(OPERAND_ROW, int(issue["operand"]))
                place, region = plan.place(row["handle"])
                if place == rank:
                    local.append((int(issue["cycle"]), region, EPOCH, row["rowid"]))
            check_arrivals(result.log("allocs", rank), result.log("packets", rank), local)
    except ModelError as error:
        return Verdict(0, 0, 0, 0, [f"placement: {error}"])
    verdict = compare(plan, result, model)
    _check_registers(plan, result, model, verdict)
    return verdict


def wrong_totals(rank, region, seen, want):
    """What the registers of a region, ``seen``, show wrongly of the model's totals ``want``."""
    for name, key in zip(QUERY[1:], ("sent", "acked", "refused", "rows"), strict=True):
        if seen.get(name) != want[key] & 0xFFFFFFFF:
            yield (
                f"rank {rank} region {region}: {key} = {seen.get(name)} in the registers, "
                f"must be {want[key]}"
            )


def _check_registers(plan, result, model, verdict):
    """The regions' registers must show the model's totals."""
    registers = register_map(plan.cfg)
    paths = {registers.address(f"regions.{name}"): name for name in QUERY}
    for rank in range(plan.cfg.ranks):
        seen = {}
        for read in result.log("reads", rank):
            address = int(read["address"])
            if read["mark"]:
                if address >= MARK_QUERY:
                    region = address - MARK_QUERY
                    want = model.totals(rank, region, EPOCH)
                    verdict.differences += wrong_totals(rank, region, seen, want)
                    seen = {}
            elif address in paths:
                seen[paths[address]] = int(read["value"])
