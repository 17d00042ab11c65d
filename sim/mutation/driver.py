"""cocotb side: one simulator process tries all mutants, each in a child made by fork before the first test.

The test ``mutants`` is first in the queue. Its process stays at time 0 and forks; a child sets ``mutsel``, runs the bench's own
tests, those likely to fail first, and ends at the first failure. The parent collects, and at last runs all tests itself
with the unmutated design, so that :func:`sim.bench.runner.run_bench` judges that.

Parameters (``bench_params()``): ``mutation``: {mutants: [numbers], hints: {number: name of a test that killed it before},
out: file for the results, one JSON line each, jobs: children at a time, factor: a child may take this many times the
unmutated design's time}.
"""

import gc
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import cocotb
from cocotb import regression

from sim.bench.runner import ROOT, bench_params

LEAST_SECONDS = 60      # a child is never stopped earlier
POLL = 0.005


class Campaign:
    """Runs children and notes what became of them."""

    def __init__(self, dut):
        options = bench_params()[1]["mutation"]
        self._dut, self._manager = dut, regression._manager_inst
        self._hints, self._jobs, self._factor = options["hints"], options["jobs"], options["factor"]
        self._todo = list(options["mutants"])
        self._out = Path(options["out"])
        self._limit = None
        self._children = {}         # process: (number, its result file, started)
        self._kills, self._seconds = {}, {}

    def run(self):
        self._note({"sources": _sources()})
        if self._start(0):
            return
        plain = self._wait()
        self._note(plain)
        if plain["verdict"] != "survived":
            return
        self._seconds = plain["tests"]
        self._limit = max(LEAST_SECONDS, self._factor * sum(self._seconds.values()))
        while self._todo or self._children:
            if self._todo and len(self._children) < self._jobs:
                if self._start(self._todo.pop(0)):
                    return
                continue
            result = self._wait()
            if "test" in result:
                self._kills[result["test"]] = self._kills.get(result["test"], 0) + 1
            self._note(result)

    def _note(self, entry):
        with open(self._out, "a") as file:
            file.write(json.dumps(entry) + "\n")

    def _start(self, number):
        """Forks; true in the child, which has to go on to the tests."""
        result = self._out.with_name(f"child-{number}")
        result.unlink(missing_ok=True)
        sys.stdout.flush()
        gc.freeze()
        process = os.fork()
        if process:
            self._children[process] = (number, result, time.monotonic())
            return False
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.environ["MOE_HUB_COVERAGE"] = os.devnull         # what a mutant reaches is no coverage
        self._dut.mutsel.value = number
        hint = self._hints.get(str(number))
        self._manager._test_queue.sort(key=lambda test: (test.fullname != hint, -self._worth(test.fullname)))
        _Judge(self._manager, number, result)
        return True

    def _worth(self, test):
        """Kills per second so far; before the first, the quickest test is the best."""
        return (self._kills.get(test, 0) + 1) / (self._seconds.get(test, 1) + 0.05)

    def _wait(self):
        """The result of the next child that ends; stops those that take too long."""
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process:
                number, path, _ = self._children.pop(process)
                if path.exists():
                    text = path.read_text()
                    path.unlink()
                    return json.loads(text)
                stopped = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                return {"mutant": number, "verdict": "timeout" if stopped else "crash"}
            for process, (_, _, started) in self._children.items():
                if self._limit is not None and time.monotonic() - started > self._limit:
                    os.kill(process, signal.SIGKILL)
            time.sleep(POLL)


class _Judge:
    """In a child: follows the regression and ends the process at the first failure, or when all tests have passed."""

    def __init__(self, manager, number, result):
        self._manager, self._number, self._result = manager, number, result
        self._tests = {}
        self._execute = manager._execute
        manager._score_test, manager._execute = self._score, self._next

    def _score(self, error, seconds, *_):
        name = self._manager._test.fullname
        if name.endswith(".mutants"):
            return
        if error is not None:
            self._end({"verdict": "killed", "test": name, "error": type(error).__name__})
        self._tests[name] = round(seconds, 3)

    def _next(self):
        if not self._manager._test_queue:
            self._end({"verdict": "survived", "tests": self._tests})
        self._execute()

    def _end(self, verdict):
        scratch = self._result.with_suffix(".new")
        scratch.write_text(json.dumps({"mutant": self._number, **verdict}))
        scratch.rename(self._result)
        os._exit(0)


def _sources():
    """{file of the project that this process has loaded: hash}."""
    files = {Path(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    return {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            for path in sorted(files) if path.is_relative_to(ROOT) and ".venv" not in path.parts and path.exists()}


@cocotb.test(stage=-1)
async def mutants(dut):
    """Tries every mutant; the tests after this one run on the unmutated design."""
    dut.mutsel.value = 0
    Campaign(dut).run()
