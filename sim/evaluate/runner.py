# SPDX-License-Identifier: Apache-2.0
"""Points of an experiment, run over the cores of this machine or over a Dask cluster; same points,
same results."""

import gc
import json
import os
import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from threading import Lock
from time import process_time

from flow.workers import end_with_parent
from sim.evaluate.machine.engine import run_layer
from sim.evaluate.machine.placement import drifted
from sim.evaluate.machine.workload import TYPICAL_SKEW, Workload
from sim.evaluate.pipelines.run import run_program
from sim.evaluate.schemes import scheme
from sim.workload.models import ModelShape, model
from sim.workload.traces import read_trace

from .own_machine import machine_asked
from .systems import reads, replaced

__all__ = ["Point", "Result", "machine_of", "run_point", "run_points", "workload_of"]


# replaced constants are seen by the whole process, and a cluster's worker may have several threads
_CONSTANTS = Lock()
RINGS = 200_000  # objects made between two searches of the garbage collector, in a worker


@dataclass(frozen=True)
class Point:
    """One layer to simulate. ``model``, ``machine``: a name or the path of a TOML file; ``model``
    also a :class:`sim.workload.models.ModelShape`. ``gpu``, ``fabric``: fields of the machine to
    replace, as (name, value) pairs.

    ``trace``: path of a routing log in place of ``skew``; ``tokens`` 0 takes all of it.
    ``constants``: constants of software to replace, as (section of systems.toml, name, value).
    ``network``: options of ``NetworkSettings.of``, as (name, value). ``delays``: microseconds that
    each rank begins late, ``inf`` never. ``balance``: arguments of
    :func:`sim.evaluate.machine.placement.drifted`, as (name, value), in place of experts as they
    are numbered and of routing that stays. ``program``: layers beside each other in place of one
    alone, a name of :data:`sim.evaluate.pipelines.run.PROGRAMS`.
    """

    system: str
    model: str | ModelShape
    tokens: int
    machine: str = "h800"
    ranks: int = 8
    skew: float = TYPICAL_SKEW
    seed: int = 1
    trace: str = ""
    gpu: tuple = ()
    fabric: tuple = ()
    constants: tuple = ()
    network: tuple = ()
    delays: tuple = ()
    balance: tuple = ()
    program: str = ""

    @property
    def shape(self):
        """The model's shape. Raises :class:`hub_rtl.contract.config.ConfigError`."""
        return self.model if isinstance(self.model, ModelShape) else model(self.model)


@dataclass(frozen=True)
class Result:
    """What :func:`run_point` found; times in microseconds, see
    :class:`sim.evaluate.machine.engine.LayerResult`. ``read``: (section, name) of the constants of
    software that the layer hangs on."""

    point: Point
    us: float
    first_ready_us: float
    all_ready_us: float
    wire_bytes: int
    payload_bytes: int
    sm_busy: float
    imbalance: float
    breakdown: tuple
    gemm1_us: float | None = None
    rank_us: tuple = ()
    usable_rows: tuple = ()
    read: tuple = ()

    def row(self):
        """Flat dictionary, for a CSV."""
        row = {field.name: getattr(self.point, field.name) for field in fields(Point)}
        row["model"] = getattr(self.point.model, "name", self.point.model)
        row["trace"] = os.path.basename(row["trace"])
        if not self.point.program:
            del row["program"]
        for name in ("gpu", "fabric", "network", "balance"):
            row[name] = json.dumps(dict(row[name])) if row[name] else ""
        row["delays"] = " ".join(f"{us:g}" for us in row["delays"])
        row["constants"] = " ".join(
            f"{part}.{name}={value:g}" for part, name, value in self.point.constants
        )
        row |= {
            name: getattr(self, name)
            for name in (
                "us",
                "first_ready_us",
                "all_ready_us",
                "gemm1_us",
                "wire_bytes",
                "payload_bytes",
                "sm_busy",
                "imbalance",
            )
        }
        return row | {"breakdown": json.dumps({name: round(us, 3) for name, us in self.breakdown})}


def machine_of(point):
    """The machine of a point. Raises :class:`sim.evaluate.machine.hardware.HardwareError`."""
    return machine_asked(point.machine, point.ranks).changed(
        gpu=dict(point.gpu), fabric=dict(point.fabric)
    )


@lru_cache(maxsize=4)
def _trace(path):
    return read_trace(path)


@lru_cache(maxsize=16)
def _workload(model_shape, ranks, tokens, seed, skew, trace, balance):
    if balance:
        return drifted(model_shape, ranks, tokens, seed, skew, **dict(balance))
    return Workload.make(
        model_shape,
        ranks,
        tokens or None,
        seed=seed,
        skew=skew,
        routing=_trace(trace) if trace else None,
    )


def workload_of(point):
    """The workload of a point. Raises :class:`sim.evaluate.machine.workload.WorkloadError`, and
    what reading a trace raises."""
    return _workload(
        point.shape,
        point.ranks,
        point.tokens,
        point.seed,
        point.skew,
        point.trace,
        point.balance,
    )


def run_point(point):
    """Simulates one layer."""
    workload = workload_of(point)
    run = partial(run_program, point.program, point.system) if point.program else run_layer
    options = dict(point.network) | ({"delays": point.delays} if point.delays else {})
    with _CONSTANTS, replaced(point.constants), reads() as read:
        layer = run(scheme(point.system), machine_of(point), workload, point.seed, **options)
        read = tuple(sorted(read))
    return Result(
        point,
        layer.us,
        layer.first_ready_us,
        layer.all_ready_us,
        layer.wire_bytes,
        layer.payload_bytes,
        layer.sm_busy,
        workload.imbalance,
        tuple(layer.breakdown.items()),
        layer.gemm1_us,
        layer.rank_us,
        layer.usable_rows,
        read,
    )


def _timed(point):
    """(result, processor seconds)"""
    start = process_time()
    result = run_point(point)
    return result, process_time() - start


def _begin_worker():
    """Ctrl-C reaches every process of the terminal: a worker just ends, the parent says so. Of a
    layer's millions of objects few are rings: to search them less often saves a tenth of the
    time."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()
    gc.set_threshold(RINGS)


def _pool(points, jobs):
    """Yields (number, (result, seconds)) from this machine's cores as they come."""
    jobs = min(jobs, len(points))
    if jobs <= 1:
        for number, point in enumerate(points):
            yield number, _timed(point)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker) as pool:
        running = {pool.submit(_timed, point): number for number, point in enumerate(points)}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:  # an error or Ctrl-C: do not work on what nobody will see
            pool.shutdown(cancel_futures=True)
            raise


def _client(address):
    """A client of the Dask scheduler there. Raises ValueError when nobody answers."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler: needs the package `distributed` (pip install moe-hub[cluster])"
        ) from None
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ValueError(f"--scheduler {address}: {error}") from None


def _cluster(points, client):
    """As :func:`_pool`, from the workers of a cluster; they need this package, and traces under the
    same path."""
    from distributed import as_completed as completed

    running = {
        future: number for number, future in enumerate(client.map(_timed, points, pure=False))
    }
    for done, result in completed(list(running), with_results=True):
        yield running[done], result


def _reads_none(point, result):
    """Whether the layer of ``result`` reads none of the point's constants."""
    return not {(section, name) for section, name, _ in point.constants} & set(result.read)


def run_points(points, *, jobs=None, scheduler=None, progress=None, kept=None):
    """{point: result} of all points, equal ones once, longest first. One with other constants is
    not simulated where the layer without them is asked for, too, and reads none of them.

    ``jobs``: processes, all cores by default. ``scheduler``: address of a Dask scheduler in their
    place; it has to answer, also when there is nothing to simulate. ``progress``: a
    :class:`moe_hub.command.console.Progress` that is told how many are done and what they cost.
    ``kept``: a :class:`sim.evaluate.kept.Kept`, layers in it are not simulated again. Raises
    ValueError when the cluster cannot be used, and what a point raises.
    """
    unique = sorted(
        dict.fromkeys(points), key=lambda p: (-p.tokens * p.shape.top_k * p.ranks, repr(p))
    )
    before = (
        {point: found for point in unique if (found := kept.get(point)) is not None} if kept else {}
    )
    results = {point: Result(point, **found) for point, (found, _) in before.items()}
    seconds, todo = (
        sum(spent for _, spent in before.values()),
        [point for point in unique if point not in results],
    )
    asked, alike = set(unique), 0
    plain = {p: one for p in todo if p.constants and (one := replace(p, constants=())) in asked}
    with _client(scheduler) if scheduler else nullcontext() as client:
        for turn in ([p for p in todo if p not in plain], list(plain)):
            left = []
            for point in turn:
                if point in plain and _reads_none(point, results[plain[point]]):
                    results[point], alike = replace(results[plain[point]], point=point), alike + 1
                else:
                    left.append(point)
            done = _cluster(left, client) if client else _pool(left, jobs or os.cpu_count() or 1)
            for number, (result, spent) in done:
                results[left[number]], seconds = result, seconds + spent
                if kept:
                    kept.put(left[number], result, spent)
                if progress:
                    progress.show(f"{len(results)} of {len(unique)} layers")
    if progress and unique:
        progress.note(
            f"{len(unique)} layers, {seconds:.0f} processor seconds; {len(before)} were "
            f"kept from before, {alike} read none of the constants that differ"
        )
    return {point: results[point] for point in unique}
