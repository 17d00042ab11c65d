# SPDX-License-Identifier: Apache-2.0
"""The campaign: a few seeds that change with the commit, and bugs that its checker must find."""

import ast
import io
import tokenize

import numpy as np
import pytest
from typer.testing import CliRunner

from hub_rtl.contract.packets import CommandOp
from moe_hub.command.cli import app
from sim.bench.runner import ROOT
from sim.campaign.checker import judge
from sim.campaign.draw import SHARE, draw_config, draw_plan
from sim.campaign.run import again, commit_seed, run_seed, run_seeds, settings_text
from sim.system.building import build
from sim.system.system import Result

from .campaign_bugs import BUGS, planted_verilog

#: Seeds on one small configuration; each bug is found by one of them.
SEEDS = range(136, 136 + SHARE)
HUNG = 30_000  # cycles after which a run with a bug counts as hung


def test_seeds_of_this_commit():
    """Other traffic on another configuration with every commit; a failure names its seeds."""
    first = commit_seed()
    print(again(first))
    broken = [
        f"seed {outcome.seed}: {text}; {settings_text(outcome.config)}; again: "
        f"{again(outcome.seed)}"
        for outcome in run_seeds(range(first, first + SHARE), jobs=1)
        for text in outcome.violations
    ]
    assert not broken, "\n".join(broken)


@pytest.fixture(scope="module")
def planted():
    """One build with every bug in it."""
    cfg = draw_config(SEEDS[0])
    return build(cfg, verilog=planted_verilog(cfg), optimise=False, pins=[("planted_bug", 4)])


@pytest.mark.night
@pytest.mark.parametrize("name", ["nothing", *BUGS])
def test_planted(planted, name):
    number = ["nothing", *BUGS].index(name)
    found = []
    for seed in SEEDS:
        found += run_seed(seed, planted, planted=number, max_cycles=HUNG).violations
        if found and number:
            break
    print(*found, sep="\n")
    assert bool(found) == bool(number), found


#: What a run may be made to have shown: name -> (log, records it may happen to, field, change). No
#: field: the record is lost.
FORGED = {
    "row in another place": (
        "beats",
        lambda x: x["strobe"] == 0xFFFF,
        "addr",
        lambda v: v ^ np.uint64(1 << 20),
    ),
    "byte too many": (
        "beats",
        lambda x: (x["strobe"] & 1 == 0) & (x["strobe"] > 0),
        "strobe",
        lambda v: v | 1,
    ),
    "write not acknowledged": ("beats", lambda x: x["strobe"] == 0xFFFF, None, None),
    "acknowledged late": (
        "beats",
        lambda x: x["strobe"] == 0xFFFF,
        "answered",
        lambda v: v + np.uint64(HUNG),
    ),
    "READY lost": ("events", lambda x: (x["kind"] == 0) & (x["plain"] == 0), None, None),
    "ALL lost": ("events", lambda x: x["kind"] == 1, None, None),
    "a row too many": ("events", lambda x: x["kind"] < 2, "rows", lambda v: v + 1),
    "another slot": ("allocs", lambda x: x["slot"] >= 0, "slot", lambda v: v + 1),
    "a store without answer": ("stores", lambda x: x["tag"] >= 0, None, None),
    "another answer": ("stores", lambda x: x["tag"] >= 0, "status", lambda v: v ^ 1),
    "a fence answered early": (
        "commands",
        lambda x: x["op"] == CommandOp.FENCE,
        "answered",
        lambda v: v * 0 + 1,
    ),
    "a remote fence answered early": (
        "commands",
        lambda x: x["op"] == CommandOp.FENCE_REMOTE,
        "answered",
        lambda v: v * 0 + 1,
    ),
    "a packet less": ("sent", lambda x: x["bytes"] > 0, None, None),
}


@pytest.fixture(scope="module")
def seen(planted):
    """Plan and result of a run in which all was well."""
    plan = draw_plan(SEEDS[0])
    result = plan.system.run(planted)
    yield plan, result
    result.remove()


class Forged(Result):
    """A result in which one log of one rank shows something else."""

    def __init__(self, result, name, rank, log):
        super().__init__(result.cfg, result.folder)
        self._forged = (name, rank), log

    def log(self, name, rank):
        return self._forged[1] if self._forged[0] == (name, rank) else super().log(name, rank)


@pytest.mark.night
@pytest.mark.parametrize("name", FORGED)
def test_forged(seen, name):
    """The judge finds each of these in the record of a run that was good."""
    plan, result = seen
    log, where, field, change = FORGED[name]
    assert judge(plan, result)[0] == []
    found = []
    for rank in range(plan.cfg.ranks):
        records = result.log(log, rank)
        for at in np.flatnonzero(where(records))[:5]:
            forged = records.copy()
            if field:
                forged[field][at] = change(forged[field][at])
            else:
                forged = np.delete(forged, at)
            found += judge(plan, Forged(result, log, rank, forged))[0]
    print(*found, sep="\n")
    assert found


def test_checker_stays_small():
    """Short enough to be read beside the specification: 200 statements, and none of them long.
    Lines would be the formatter's: it made 356 of 201 without a word more."""
    source = (ROOT / "sim/campaign/checker.py").read_text()
    docs = {
        n
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for n in range(node.lineno, node.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kinds = [token.type for token in tokens if token.start[0] not in docs]
    no_words = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
    statements = kinds.count(tokenize.NEWLINE)
    assert statements <= 200
    assert len([kind for kind in kinds if kind not in no_words]) - statements <= 3800
    assert "golden" not in source


def test_a_seed_is_one_run():
    """Same seed, same configuration, programs and settings; neighbours share the configuration
    only."""
    one, same, other = (draw_plan(seed) for seed in (8, 8, 9))
    programs = [
        [rank.program(n).array().tobytes() for rank in plan.system.ranks for n in range(3)]
        for plan in (one, same, other)
    ]
    assert one.cfg == same.cfg == other.cfg and one.system.settings == same.system.settings
    assert programs[0] == programs[1] != programs[2]


def test_configurations_are_many():
    configs = {draw_config(seed) for seed in range(0, 40 * SHARE, SHARE)}
    assert len(configs) == 40
    for field, values in (("packet_bytes", {128, 256}), ("lanes", {1, 2, 3}), ("replicas", {1, 2})):
        assert {getattr(cfg, field) for cfg in configs} == values
    assert any(cfg.ranks % 2 for cfg in configs) and any(
        cfg.rat_sets * cfg.rat_ways <= 2 for cfg in configs
    )


def test_overflow_regions_end():
    """One waits for those producers that have it and those regions that spill over into it and are
    opened: what nobody has is not."""
    unopened = 0
    for seed in range(31000, 31060):
        plan = draw_plan(seed)
        for rank, regions in enumerate(plan.regions):
            closing = [0] * plan.cfg.regions
            for handle in (each for handles in plan.handles for each in handles.values()):
                for dest, region in handle.targets:
                    closing[region] += dest == rank
            for region in regions:
                if region.overflow is not None:
                    closing[region.overflow] += region.expected > 0
                    unopened += region.expected == 0
            assert [region.expected for region in regions] == closing, seed
    assert unopened


def test_seed_of_the_commit(monkeypatch):
    monkeypatch.setenv("MOE_HUB_SEED", "7")
    assert commit_seed() == 7 * SHARE
    monkeypatch.delenv("MOE_HUB_SEED")
    assert commit_seed() == commit_seed() and commit_seed() % SHARE == 0
    monkeypatch.setattr("sim.campaign.run.ROOT", "/")
    assert commit_seed() == 100


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--first", "-1"], ["--jobs", "0"]])
def test_wrong_orders(arguments):
    assert CliRunner().invoke(app, ["campaign", *arguments]).exit_code == 2
