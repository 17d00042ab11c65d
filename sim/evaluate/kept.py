# SPDX-License-Identifier: Apache-2.0
"""Layers that were simulated before are read back, so that an interrupted set goes on and a page is
written anew in seconds.

A layer is kept under a key of everything that it depends on: the point, and the text of every file
of this package but those that only choose points or show results, of the models, and of the policy
of receive pools. Layers of files, routing logs, models and machines of one's own, are not kept: a
file may change.
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

from flow.kept import digest, write
from sim.golden import pool_grants
from sim.workload.models import TABLE

__all__ = ["FOLDER", "Kept", "model_key"]

PACKAGE = Path(__file__).parent
FOLDER = PACKAGE.parents[1] / "build" / "evaluate_layers"
#: Files and folders that no layer's time depends on.
SHOWING = {
    "alltoall.py",
    "assumptions.py",
    "bench.py",
    "calibrate.py",
    "commands.py",
    "end_to_end.py",
    "experiments.py",
    "explore.py",
    "fit.py",
    "host.py",
    "hub_area.py",
    "kept.py",
    "own_machine.py",
    "page",
    "predictions.py",
    "published.py",
    "published_machines.py",
    "questions",
    "rtl_layer.py",
    "runner.py",
    "study.py",
    "sweeps.py",
    "validate.py",
    "asked.toml",
    "energy.toml",
    "questions.toml",
    "hub_area.json",
    "silicon.toml",
    "published.toml",
    "fitted_hardware.toml",
    "gemm_published.toml",
}


@cache
def model_key():
    """Key of the model: names and text of all files that a layer's time depends on."""
    files = sorted(
        path
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".toml", ".json")
        and SHOWING.isdisjoint(path.relative_to(PACKAGE).parts)
    )
    parts = [f"{path.relative_to(PACKAGE)}\0{path.read_text(encoding='utf-8')}" for path in files]
    more = TABLE, Path(pool_grants.__file__)
    parts += [path.read_text(encoding="utf-8") for path in more]
    return digest(*parts)


def _plain(value):
    """A number of numpy as one of Python."""
    return value.item()


def _of_files(point):
    return (
        bool(point.trace) or str(point.model).endswith(".toml") or point.machine.endswith(".toml")
    )


class Kept:
    """Fields of results by point, and the processor seconds that each took, in ``folder``.

    ``fresh``: nothing is read back, what is simulated is kept in place of what was."""

    def __init__(self, folder=FOLDER, fresh=False):
        self.folder, self.fresh = Path(folder) / model_key(), fresh

    def _path(self, point):
        return self.folder / f"{digest(repr(point), length=24)}.json"

    def get(self, point):
        """(fields of the result without the point, seconds), or None."""
        if _of_files(point) or self.fresh:
            return None
        try:
            entry = json.loads(self._path(point).read_text(encoding="utf-8"))
        except (
            FileNotFoundError,
            ValueError,
        ):  # never simulated, or interrupted while it was written
            return None
        fields = entry["result"] | {
            name: tuple(entry["result"][name]) for name in ("rank_us", "usable_rows")
        }
        fields["read"] = tuple((section, name) for section, name in entry["result"]["read"])
        fields["breakdown"] = tuple((name, us) for name, us in entry["result"]["breakdown"])
        return fields, entry["seconds"]

    def put(self, point, result, seconds):
        """Keeps a result; one that cannot be written is only simulated again."""
        if _of_files(point):
            return
        fields = asdict(result)
        del fields["point"]
        entry = {"point": repr(point), "result": fields, "seconds": seconds}
        write(self._path(point), json.dumps(entry, default=_plain))
