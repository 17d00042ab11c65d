# SPDX-License-Identifier: Apache-2.0
"""What the model says of figures before they are looked up: ``data/asked.toml``, and the record,
``docs/results/predictions.md``, a line each, never changed.

A published figure is *blind* if its line is older than its value: the commit of the line is an
ancestor of the commit that brought the figure into ``data/published.toml``.
"""

import math
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sim.evaluate.machine.hardware import load_data

from .published import Figure, Layers, ask

__all__ = ["PAGE", "Line", "asked", "blind", "commit_of", "predict", "read"]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "predictions.md"
PUBLISHED = "sim/evaluate/data/published.toml"
_LINE = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([\d.e+-]+) \|([^|]*)\| `([0-9a-f]+)` \| (.+) \|$")


@dataclass(frozen=True)
class Line:
    """A prediction: ``value`` in ``unit`` of the figure called ``id`` by the model of ``commit``;
    ``where`` the published one should be found."""

    id: str
    what: str
    value: float
    unit: str
    commit: str
    where: str

    def text(self):
        """Its line of the page."""
        return (
            f"| `{self.id}` | {self.what} | {self.value:.4g} | {self.unit} | `{self.commit}` | "
            f"{self.where} |"
        )


def asked():
    """[(:class:`~sim.evaluate.published.Figure` without value, where it should be found)]."""
    out = []
    for entry in load_data("asked.toml")["asked"]:
        where = entry["where"]
        rest = {name: value for name, value in entry.items() if name != "where"}
        out.append((Figure(value=math.nan, source="", role="test", **rest), where))
    return out


def read(text):
    """{id: :class:`Line`} of a page's text. Raises ValueError for a line that is none, and for a
    figure with two."""
    lines = {}
    for number, row in enumerate(text.splitlines(), 1):
        if row.startswith("| `"):
            match = _LINE.match(row)
            if not match:
                raise ValueError(f"predictions.md:{number}: is no prediction: {row}")
            id, what, value, unit, commit, where = match.groups()
            if id in lines:
                raise ValueError(f"predictions.md:{number}: {id} is predicted twice")
            lines[id] = Line(id, what.strip(), float(value), unit.strip(), commit, where)
    return lines


def _what(figure):
    """The figure in words."""
    options = "".join(f", {name} {value}" for name, value in figure.options.items())
    options += "".join(f", over {other}" for other in figure.over)
    what = figure.workload or figure.set or figure.system
    return (
        f"{figure.metric.rsplit('_', 1)[0].replace('_', ' ')} of {figure.system}, "
        f"{figure.ranks} x {figure.hardware}, {what}{options}"
    )


def predict(text, commit, report=lambda figure: None):
    """The page's text with a line more for each asked figure that has none; ``commit`` of the
    model. ``report`` is called before each is asked."""
    known, new, layers = read(text), [], Layers()
    for figure, where in asked():
        if figure.id not in known:
            report(figure)
            line = Line(figure.id, _what(figure), ask(figure, layers), figure.unit, commit, where)
            new.append(line.text() + "\n")
    return text + "".join(new)


def _git(root, *words):
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def commit_of(root=ROOT):
    """The commit whose model this is. Raises ValueError without one, or when what the model is made
    of has changed since."""
    code, commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if code:
        raise ValueError("predict: needs a repository of git: a prediction names its commit")
    if _git(root, "status", "--porcelain", "--", "sim", "hub_rtl")[1]:
        raise ValueError("predict: sim/ or hub_rtl/ differs from its commit: commit first")
    return commit


def blind(id, text, root=ROOT):
    """Whether the published figure ``id`` was predicted before it was known; ``text`` of the
    page."""
    line = read(text).get(id)
    if line is None:
        return False
    code, log = _git(root, "log", "--format=%H", "--reverse", f'-Sid = "{id}"', "--", PUBLISHED)
    if code or not log:
        return False
    came = log.splitlines()[0]
    same = _git(root, "rev-parse", line.commit)[1] == came
    return not same and _git(root, "merge-base", "--is-ancestor", line.commit, came)[0] == 0
