# SPDX-License-Identifier: Apache-2.0
"""Runs the seeds of a campaign, configuration by configuration."""

import os
import subprocess
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby

from flow.workers import end_with_parent
from sim.bench.runner import ROOT
from sim.system.building import HarnessError, build

from .checker import judge
from .draw import SHARE, draw_config, draw_plan

__all__ = ["Outcome", "again", "commit_seed", "run_seeds", "settings_text"]

FALLBACK = 100  # outside a repository


@dataclass(frozen=True)
class Outcome:
    """Of one seed. ``figures`` counts rows, bytes, events, what was refused; ``violations`` are
    lines."""

    seed: int
    config: object
    cycles: int
    figures: Counter
    violations: tuple


def commit_seed():
    """A seed that changes with the commit: ``MOE_HUB_SEED``, else from the commit's hash, else a
    fixed one."""
    if "MOE_HUB_SEED" in os.environ:
        return int(os.environ["MOE_HUB_SEED"]) * SHARE
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return FALLBACK
    return int(done.stdout[:7], 16) * SHARE if done.returncode == 0 else FALLBACK


def settings_text(cfg):
    """A configuration on one line."""
    return " ".join(f"{name}={value}" for name, value in cfg.as_dict().items() if name != "name")


def again(seed):
    """The command that runs one seed again."""
    return f"moe-hub campaign --seeds 1 --first {seed}"


def run_seed(seed, program=None, **settings):
    """The :class:`Outcome` of one seed; ``settings`` of the harness in place of drawn ones."""
    plan = draw_plan(seed)
    plan.system.settings.update(settings)
    result = plan.system.run(program or build(plan.cfg, optimise=False))
    try:
        violations, figures = judge(plan, result)
    finally:
        result.remove()
    return Outcome(seed, plan.cfg, result.summary["cycles"], figures, tuple(violations))


def _run_group(seeds):
    """Seeds of one configuration. A harness that ends with an error breaks a rule too."""
    program, out = build(draw_config(seeds[0]), jobs=1, optimise=False), []
    for seed in seeds:
        try:
            out.append(run_seed(seed, program))
        except HarnessError as error:
            out.append(
                Outcome(seed, draw_config(seed), 0, Counter(), (f"the harness runs: {error}",))
            )
    return out


def run_seeds(seeds, jobs=2, progress=None):
    """The :class:`Outcome` of each seed, in order. ``progress(outcomes so far, seconds)`` is called
    after each configuration.

    Raises :class:`~sim.system.system.HarnessError` when a hub could not be built.
    """
    begin, out = time.monotonic(), []
    groups = [list(group) for _, group in groupby(sorted(seeds), key=lambda seed: seed // SHARE)]
    with ProcessPoolExecutor(min(jobs, len(groups)), initializer=end_with_parent) as pool:
        for done in as_completed([pool.submit(_run_group, group) for group in groups]):
            out += done.result()
            if progress:
                progress(out, time.monotonic() - begin)
    return sorted(out, key=lambda outcome: outcome.seed)
