# SPDX-License-Identifier: Apache-2.0
"""The proofs of the short set, and the runner that has them made."""

import dataclasses
import importlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from amaranth import Signal
from amaranth.hdl import Fragment

from formal.kit import engine, ports
from formal.kit import run as runs
from formal.kit.elaborate import build
from formal.kit.engine import TASKS, MissingTool, run_task
from formal.kit.ports import ports_without_assertion
from formal.kit.run import passed, targets, verdict
from formal.kit.spec import Spec
from formal.kit.table import Check, TableError, grounds, load_table, undischarged
from hub_rtl.contract.config import preset
from hub_rtl.parts.mutants import MutantError
from sim.bench.runner import ROOT

TABLE = load_table()
#: Stream register whose bug lets a waiting item be overwritten.
TOY = Check(
    name="toy.held",
    spec="kit.streams:BlockHoldsItems",
    arguments={"block": "hub_rtl.parts.stream:StreamRegister", "shape": 8},
    bug="parts.register_pushed_over_waiting",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for results, so that nothing comes from the cache."""
    monkeypatch.setattr(engine, "BUILD", ROOT / "build" / "formal" / "test" / tmp_path.name)
    yield
    shutil.rmtree(engine.BUILD)


@pytest.mark.parametrize("task", ["prove", "cover", pytest.param("bug", marks=pytest.mark.night)])
@pytest.mark.parametrize("name", [name for name, check in TABLE.items() if check.quick])
def test_quick_set(name, task):
    outcome = run_task(TABLE[name], task)
    assert verdict(TABLE[name], outcome)[1], (
        f"{outcome.status}, see {outcome.folder}: {outcome.failed} {outcome.log}"
    )


def test_every_specification_says_what_it_promises():
    for check in TABLE.values():
        module, _, name = check.spec.partition(":")
        text = getattr(importlib.import_module(f"formal.{module}"), name).__doc__
        assert text and len(text.split()) > 5, (
            f"{check.name}: {check.spec} does not state its promise"
        )


def test_three_tasks_and_the_cache(folder):
    first = {task: run_task(TOY, task) for task in TASKS}
    assert {task: each.status for task, each in first.items()} == {
        "prove": "pass",
        "cover": "pass",
        "bug": "fail",
    }
    assert passed([TOY], {(TOY.name, task): each for task, each in first.items()})
    assert first["bug"].failed == ["o: payload held"]
    assert "StreamRegister.o.payload" in first["prove"].ports
    assert not any(each.cached for each in first.values())
    assert all(run_task(TOY, task).cached for task in TASKS)
    assert not run_task(dataclasses.replace(TOY, depth=3), "prove").cached


def test_a_failure_is_a_failure_with_its_trace(folder, monkeypatch):
    """The proof of the broken design fails, names the property, leaves waveform and text, and is
    never taken from the cache."""
    broken = engine.elaborate
    monkeypatch.setattr(engine, "elaborate", lambda check, bug: broken(check, bug=True))
    outcome = run_task(TOY, "prove")
    assert verdict(TOY, outcome) == ("FAILED", False) and outcome.failed == ["o: payload held"]
    assert (ROOT / outcome.folder / "trace.vcd").exists()
    text = (ROOT / outcome.folder / "trace.txt").read_text()
    assert "dut.i " in text and text.endswith("failed: o: payload held\n")
    assert not run_task(TOY, "prove").cached
    assert ("proved without bound: 0 = 0.0% (at least 90 %)", False) in targets(
        [TOY], {(TOY.name, "prove"): outcome}
    )


def test_an_uncaught_bug_and_an_unreached_cover_are_failures(folder):
    harmless = dataclasses.replace(TOY, bug="parts.register_loses_spare")  # but what is there stays
    assert verdict(harmless, run_task(harmless, "bug")) == ("bug NOT CAUGHT", False)
    assert verdict(TOY, run_task(dataclasses.replace(TOY, cover_depth=1), "cover")) == (
        "NOT REACHED",
        False,
    )


def test_a_time_out_is_undetermined(folder):
    slow = dataclasses.replace(
        TOY, mode="bmc", engine="smtbmc yices", depth=100000, because="never ends", timeout=3
    )
    assert verdict(slow, run_task(slow, "prove")) == ("UNDETERMINED", False)


def test_what_is_undetermined_is_tried_once_more(monkeypatch):
    """After all else; what is undetermined twice stays so."""
    tried = []

    def task_of(check, task, *_):
        tried.append(task)
        status = "unknown" if task == "bug" or tried.count(task) < 2 else "pass"
        return engine.Outcome(check.name, task, status, 0.0)

    monkeypatch.setattr(runs, "run_task", task_of)
    monkeypatch.setattr(runs, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    outcomes = runs.run_checks([TOY], tasks=("prove", "bug"))
    assert tried == ["prove", "bug"] * 2
    assert {task: each.status for (_, task), each in outcomes.items()} == {
        "prove": "pass",
        "bug": "unknown",
    }


def test_patience_is_of_the_machine_not_of_the_result(folder):
    assert not run_task(TOY, "cover", patience=3).cached
    assert "timeout 900" in (engine.BUILD / TOY.name / "cover" / "run.sby").read_text()
    assert run_task(TOY, "cover").cached


def test_a_bug_that_is_not_in_the_design_is_an_error():
    with pytest.raises(MutantError, match="no such mutant in what was elaborated"):
        run_task(dataclasses.replace(TOY, bug="parts.merge_turn_stays"), "bug")


class Named(Spec):
    """A property called after an object."""

    def build(self, m):
        with pytest.raises(ValueError, match="another name in each run"):
            self.always(f"as {object()}", 1)
        self.always("as an object", 1)


def test_a_name_with_an_address_is_an_error():
    """The report and the cache's key would be others in each run."""
    spec = Named(preset("tiny"))
    Fragment.get(spec, None)
    assert spec.properties == ["as an object"]


def test_a_missing_solver_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(engine.sysconfig, "get_paths", lambda: {"scripts": str(tmp_path)})
    with pytest.raises(MissingTool, match=r"yowasp-sby: not found at .*: run `make setup`"):
        engine.tools()


@pytest.mark.parametrize(
    "text, error",
    [
        (
            "[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = 'x.y'\ncolour = 1",
            "unknown field 'colour'",
        ),
        (
            "[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = ['f', 'o', 'n']",
            "must be the name of a mutant",
        ),
        ("[[check]]\nname = 'a.b'\nspec = 'x:Y'", "'bug' is missing"),
        (
            "[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = 'parts.merge_turn_stays'\nmode = 'bmc'",
            "says why it is bounded",
        ),
        (
            "[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = 'parts.merge_turn_stays'\n" * 2,
            "is there twice",
        ),
        ("[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = 'x.y'", "bug = x.y: no such mutant"),
        ("[[check]", "Expected"),
    ],
)
def test_a_bad_table_names_file_entry_and_rule(tmp_path, text, error):
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "checks.toml").write_text(text)
    with pytest.raises(TableError, match=error) as found:
        load_table(tmp_path)
    assert str(found.value).startswith("block/checks.toml: ") and "\n" not in str(found.value)


ENTRY = (
    "[[check]]\nname = 'a.{0}'\nspec = 'x:{0}'\nbug = 'parts.register_pushed_over_waiting'\n{1}\n"
)


def load(tmp_path, text):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checks.toml").write_text(text)
    return load_table(tmp_path)


@pytest.mark.parametrize(
    "text, error",
    [
        (
            ENTRY.format("x", "proved_by = { n = 'a.y' }"),
            "check 'a.x': proved_by = 'a.y': no such check",
        ),
        (
            ENTRY.format("x", "") + "[proved_by.'x:x']\nn = 'a.y'",
            "check 'a.x': proved_by = 'a.y': no such check",
        ),
        (ENTRY.format("x", "proved_by = { n = [] }"), "must name a check or a contract"),
        (ENTRY.format("x", "proved_by = { n = true }"), "must be a name or a list of them"),
        (
            ENTRY.format("x", "proved_by = { n = 'somebody' }"),
            "must be a check, a section of a page, or one of followed",
        ),
        (ENTRY.format("x", "proved_by = { n = 'interfaces.md section 99' }"), "no such section"),
        (
            ENTRY.format("x", "") + "[proved_by.y]\nn = 'memory'",
            "no such specification in this file",
        ),
        (
            ENTRY.format("x", "") + "[proved_by.any]\nn = 'a.x'",
            "a check is named for a specification, not for all",
        ),
        (ENTRY.format("x", "proved_by = { n = 'a.x' }"), "runs in a circle: a.x -> a.x"),
        (
            ENTRY.format("x", "proved_by = { n = 'a.y' }")
            + ENTRY.format("y", "proved_by = { o = ['memory', 'a.z'] }")
            + ENTRY.format("z", "proved_by = { p = 'a.x' }"),
            "runs in a circle: a.x -> a.y -> a.z -> a.x",
        ),
    ],
)
def test_what_an_assumption_rests_on_exists_and_is_no_circle(tmp_path, text, error):
    with pytest.raises(TableError, match=error) as found:
        load(tmp_path, text)
    assert "\n" not in str(found.value)


def test_a_circle_that_is_broken_in_time_is_none(tmp_path):
    table = load(
        tmp_path,
        ENTRY.format("x", "proved_by = { n = 'a.y' }\nbefore = ['n']")
        + ENTRY.format("y", "proved_by = { '* stays' = 'a.x' }"),
    )
    assert undischarged(table["a.y"], ["it stays", "in: valid held", "it goes"]) == ["it goes"]


def test_an_empty_table_is_an_error(tmp_path):
    with pytest.raises(TableError, match="no checks found"):
        load_table(tmp_path)


def test_an_assumption_that_rests_on_nothing_is_an_error():
    check = TABLE["parts.flush"]
    bare = {pattern: names for pattern, names in check.proved_by.items() if pattern != "fits"}
    with pytest.raises(TableError, match="check 'parts.flush': proved_by says nothing of 'fits'"):
        run_task(dataclasses.replace(check, proved_by=bare), "prove")


@pytest.mark.night
def test_every_assumption_rests_on_something_and_nothing_is_said_in_vain():
    """Of all specifications, elaborated."""
    said = {(check.spec, pattern): 0 for check in TABLE.values() for pattern in check.proved_by}
    for check in TABLE.values():
        assumptions = build(check).assumptions
        assert undischarged(check, assumptions) == [], check.name
        for each in assumptions:
            said[check.spec, grounds(check, each)[0]] += 1
    checks = {
        (check.spec, pattern)
        for check in TABLE.values()
        for pattern, names in check.proved_by.items()
        if any(name in TABLE for name in names)
    }
    assert [each for each in sorted(checks) if not said[each]] == []


class Follower(Spec):
    """A wire, or a register, that follows an input which is supposed to be 1."""

    def __init__(self, registered):
        super().__init__()
        self._registered, self.before = registered, ("given",)

    def build(self, m):
        given = Signal()
        self.free(given)
        self.suppose("given", given)
        self.always("followed", self.past(~given) == 0 if self._registered else given)


@pytest.mark.parametrize("registered, wanted", [(True, "proved"), (False, "FAILED")])
def test_before_rests_on_earlier_cycles_alone(folder, monkeypatch, registered, wanted):
    """What is shown of a cycle may not need what is supposed of that cycle: so two promises may
    rest on each other."""
    monkeypatch.setattr("formal.kit.elaborate.specification", lambda check: Follower(registered))
    toy = dataclasses.replace(TOY, name="toy.before", proved_by={"given": ("scenario",)})
    assert verdict(toy, run_task(toy, "prove"))[0] == wanted


def test_ports_without_assertion_names_them(monkeypatch):
    engine.tools()
    few = {name: ports.BLOCKS[name] for name in ("PacketManager", "MemoryWriter")}
    monkeypatch.setattr(ports, "BLOCKS", few)
    missing = ports_without_assertion({"PacketManager.o_take"}, str(engine.BUILD / "yosys"))
    assert "PacketManager.o_sent" in missing and "PacketManager.o_take" not in missing
    assert "MemoryWriter.mem.awaddr" in missing and "MemoryWriter.mem.awid" not in missing, (
        "a constant needs no assertion"
    )


def test_command_line():
    def run(*arguments):
        command = [sys.executable, "-m", "moe_hub", "formal", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    listed = run("--list")
    assert listed.returncode == 0 and listed.stdout.split() == list(TABLE)
    unknown = run("nothing.such")
    assert unknown.returncode == 2 and unknown.stderr == (
        "moe-hub: nothing.such: no such check; `moe-hub formal --list` prints them\n"
    )
    assert run("--task", "dance").returncode == 2
