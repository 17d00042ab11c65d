# SPDX-License-Identifier: Apache-2.0
"""Command ``moe-hub campaign``: random traffic on random configurations, judged by the checker."""

import sys

import typer

from flow.tables import screen
from sim.campaign.run import again, commit_seed, run_seeds, settings_text
from sim.system.building import HarnessError

from .console import Progress, fail, table_console
from .options import number

__all__ = ["campaign"]

COLUMNS = ("rows", "rows refused", "stores refused", "bytes", "events", "spill words")


def campaign(
    seeds: number(1, 1_000_000, "Seeds to run; four share one configuration.") = 40,
    first: number(0, 2**62, "First seed; by default it changes with the commit.") = None,
    jobs: number(1, 256, "Configurations at a time.") = 2,
):
    """Run random systems of hubs, each on a random legal configuration, and judge them by the
    specification alone.

    Exit code 0: no promise was broken; 1: some was, with one line for each; 2: the order was wrong.
    """
    first = commit_seed() if first is None else first

    def tell(outcomes, seconds):
        broken = sum(len(outcome.violations) for outcome in outcomes)
        progress.show(f"{len(outcomes)} of {seeds} seeds, {broken} violation(s), {seconds:.0f} s")

    try:
        with Progress() as progress:
            progress.note(f"campaign: seeds {first} to {first + seeds - 1}")
            outcomes = run_seeds(range(first, first + seeds), jobs, tell)
    except HarnessError as error:
        fail(error, 1)
    for outcome in outcomes:
        for text in outcome.violations:
            print(
                f"moe-hub: campaign: seed {outcome.seed}: {text}; "
                f"{settings_text(outcome.config)}; again: "
                f"{again(outcome.seed)}",
                file=sys.stderr,
            )
    table_console().print(_table(outcomes))
    if any(outcome.violations for outcome in outcomes):
        raise typer.Exit(1)


def _table(outcomes):
    heads = ("configuration", "seeds", "cycles", *COLUMNS, "violations")
    table = screen(heads, title="campaign")
    groups = {}
    for outcome in outcomes:
        groups.setdefault(outcome.config, []).append(outcome)

    def line(name, part, **more):
        counts = (sum(outcome.figures[column] for outcome in part) for column in COLUMNS)
        table.add_row(
            name,
            str(len(part)),
            f"{sum(outcome.cycles for outcome in part):,}",
            *(f"{n:,}" for n in counts),
            str(sum(len(outcome.violations) for outcome in part)),
            **more,
        )

    for cfg, part in groups.items():
        line(
            f"{cfg.ranks} ranks, {cfg.lanes}+{cfg.loop_lanes} lanes, {cfg.packet_bytes} B, "
            f"{cfg.regions} regions, "
            f"RAT {cfg.rat_sets}x{cfg.rat_ways}",
            part,
            end_section=part is list(groups.values())[-1],
        )
    line(f"{len(groups)} configurations", outcomes)
    return table
