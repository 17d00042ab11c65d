"""The proofs of the short set, and the runner that has them made."""

import dataclasses
import importlib
import shutil
import subprocess
import sys

import pytest

from formal import engine
from formal.engine import TASKS, MissingTool, run_task
from formal.ports import ports_without_assertion
from formal.run import passed, targets, verdict
from formal.table import Bug, Check, TableError, load_table
from sim.bench.runner import ROOT

TABLE = load_table()
#: Stream register whose planted bug lets a waiting item be overwritten.
TOY = Check(name="toy.held", spec="streams:BlockHoldsItems",
            arguments={"block": "hub_rtl.lib.stream:StreamRegister", "shape": 8},
            bug=Bug("hub_rtl/lib/stream.py", "m.If(self.o.ready | ~self.o.valid)", "m.If(self.o.ready | self.i.valid)"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for results, so that nothing comes from the cache."""
    monkeypatch.setattr(engine, "BUILD", ROOT / "build" / "formal" / "test" / tmp_path.name)
    yield
    shutil.rmtree(engine.BUILD)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", [name for name, check in TABLE.items() if check.quick])
def test_quick_set(name, task):
    outcome = run_task(TABLE[name], task)
    assert verdict(TABLE[name], outcome)[1], f"{outcome.status}, see {outcome.folder}: {outcome.failed} {outcome.log}"


def test_every_specification_says_what_it_promises():
    for check in TABLE.values():
        module, _, name = check.spec.partition(":")
        text = getattr(importlib.import_module(f"formal.{module}"), name).__doc__
        assert text and len(text.split()) > 5, f"{check.name}: {check.spec} does not state its promise"


def test_three_tasks_and_the_cache(folder):
    first = {task: run_task(TOY, task) for task in TASKS}
    assert {task: each.status for task, each in first.items()} == {"prove": "pass", "cover": "pass", "bug": "fail"}
    assert passed([TOY], {(TOY.name, task): each for task, each in first.items()})
    assert first["bug"].failed == ["o: payload held"]
    assert "StreamRegister.o.payload" in first["prove"].ports
    assert not any(each.cached for each in first.values())
    assert all(run_task(TOY, task).cached for task in TASKS)
    assert not run_task(dataclasses.replace(TOY, depth=3), "prove").cached


def test_a_failure_is_a_failure_with_its_trace(folder, monkeypatch):
    """The proof of the broken design fails, names the property, leaves waveform and text, and is never taken from the cache."""
    broken = engine.elaborate
    monkeypatch.setattr(engine, "elaborate", lambda check, bug: broken(check, bug=True))
    outcome = run_task(TOY, "prove")
    assert verdict(TOY, outcome) == ("FAILED", False) and outcome.failed == ["o: payload held"]
    assert (ROOT / outcome.folder / "trace.vcd").exists()
    text = (ROOT / outcome.folder / "trace.txt").read_text()
    assert "dut.i " in text and text.endswith("failed: o: payload held\n")
    assert not run_task(TOY, "prove").cached
    assert ("proved without bound: 0 = 0.0% (at least 90 %)", False) in targets([TOY], {(TOY.name, "prove"): outcome})


def test_an_uncaught_bug_and_an_unreached_cover_are_failures(folder):
    bug = Bug("hub_rtl/lib/stream.py", "with m.If(spare_valid):", "with m.If(spare_valid == 1):")
    harmless = dataclasses.replace(TOY, bug=bug)
    assert verdict(harmless, run_task(harmless, "bug")) == ("bug NOT CAUGHT", False)
    assert verdict(TOY, run_task(dataclasses.replace(TOY, cover_depth=1), "cover")) == ("NOT REACHED", False)


def test_a_time_out_is_undetermined(folder):
    slow = dataclasses.replace(TOY, mode="bmc", engine="smtbmc yices", depth=100000, because="never ends", timeout=3)
    assert verdict(slow, run_task(slow, "prove")) == ("UNDETERMINED", False)


def test_planted_bugs_fit_the_text():
    for check in TABLE.values():
        text = (ROOT / check.bug.file).read_text()
        assert text.count(check.bug.old) == 1, f"{check.name}: {check.bug.old!r} in {check.bug.file}"


def test_a_bug_that_does_not_fit_the_text_is_an_error():
    with pytest.raises(ValueError, match="occurs 0 times, must be exactly once"):
        run_task(dataclasses.replace(TOY, bug=Bug("hub_rtl/lib/stream.py", "no such text", "")), "bug")
    assert sys.modules["formal.engine"] is engine, "nothing was forgotten"


def test_a_missing_solver_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(engine.sysconfig, "get_paths", lambda: {"scripts": str(tmp_path)})
    with pytest.raises(MissingTool, match=r"yowasp-sby: not found at .*: run `make setup`"):
        engine.tools()


@pytest.mark.parametrize("text, error", [
    ("[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = ['f', 'o', 'n']\ncolour = 1", "unknown field 'colour'"),
    ("[[check]]\nname = 'a.b'\nspec = 'x:Y'", "'bug' is missing"),
    ("[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = ['f', 'o', 'n']\nmode = 'bmc'", "says why it is bounded"),
    ("[[check]]\nname = 'a.b'\nspec = 'x:Y'\nbug = ['f', 'o', 'n']\n" * 2, "is there twice"),
    ("[[check]", "Expected"),
])
def test_a_bad_table_names_file_entry_and_rule(tmp_path, text, error):
    (tmp_path / "block.toml").write_text(text)
    with pytest.raises(TableError, match=error) as found:
        load_table(tmp_path)
    assert str(found.value).startswith("block.toml: ") and "\n" not in str(found.value)


def test_ports_without_assertion_names_them():
    engine.tools()
    missing = ports_without_assertion({"PacketManager.o_take"}, str(engine.BUILD / "yosys"))
    assert "PacketManager.o_sent" in missing and "PacketManager.o_take" not in missing
    assert "MemoryWriter.mem.awaddr" in missing and "MemoryWriter.mem.awid" not in missing, "a constant needs no assertion"


def test_command_line():
    def run(*arguments):
        command = [sys.executable, "-m", "hub_rtl.cli", "formal", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    listed = run("--list")
    assert listed.returncode == 0 and listed.stdout.split() == list(TABLE)
    unknown = run("nothing.such")
    assert unknown.returncode == 2 and unknown.stderr == (
        "moe-hub: nothing.such: no such check; `moe-hub formal --list` prints them\n")
    assert run("--task", "dance").returncode == 2
