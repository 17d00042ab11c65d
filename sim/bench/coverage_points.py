"""Code coverage points: what Verilator counted in the runs of one program, kept, merged and read.

``keep`` is called by the runner after each passed run and adds the run's counts to ``build/code_coverage/<bench>/``;
``read`` gives them back as :class:`Point` with the Verilog they belong to.
"""

import json
import re
import shutil
from dataclasses import dataclass

from .runner import BUILD, lock

__all__ = ["FOLDER", "KINDS", "Point", "Source", "keep", "read"]

FOLDER = BUILD / "code_coverage"
KINDS = ("line", "branch", "expr", "toggle")

_RECORD = re.compile(r"^C '(.*)' (\d+)$", re.M)
_MODULE = re.compile(r"^module (\\\S+ |\w+)")
_NAME = re.compile(r"^ *(?:input|output|wire|reg)\b *(?:\[[^]]*\])? *(\\\S+|\w+)(.*)$")
_REGISTER = re.compile(r"^ *(\\\S+|\w+) *(?:\[[^]]*\])? *<= ")
_PORT = re.compile(r"^ *(?:input|output) *(?:\[[^]]*\])? *(\\\S+|\w+)")


@dataclass(frozen=True)
class Point:
    """Something that was counted.

    ``kind`` of :data:`KINDS`; ``line`` and ``column`` in the Verilog; ``what``: the side of a branch, the values of an
    expression's terms, or bit and direction of a toggle.
    """

    kind: str
    module: str
    line: int
    column: int
    what: str


class Source:
    """Verilog text of a bench, with what the rules ask about it."""

    def __init__(self, text):
        self.lines = ["", *text.splitlines()]
        self.ports, self.registers, self._modules = {}, {}, []     # by module; and the module of each line
        module = None
        for line in self.lines:
            if found := _MODULE.match(line):
                module = self.module_name(line)
                self.ports[module], self.registers[module] = set(), set()
            elif found := _PORT.match(line):
                self.ports[module].add(found[1])
            elif found := _REGISTER.match(line):
                self.registers[module].add(found[1])
            self._modules.append(module)

    @staticmethod
    def module_name(line):
        return _MODULE.match(line)[1].strip().lstrip("\\")

    def module(self, number):
        """Full name of the module that has this line."""
        return self._modules[number]

    def declared(self, number):
        """(name, is it an array) of the net declared in this line."""
        found = _NAME.match(self.lines[number])
        return found[1], found[2].strip().startswith("[")

    def text(self, number):
        return self.lines[number].strip()


def _points(text):
    """{Point: count} of a ``coverage.dat``."""
    points = {}
    for body, count in _RECORD.findall(text):
        field = dict(part.split("\x02", 1) for part in body.split("\x01")[1:])
        kind, what = field["t"], field["o"]
        if kind == "toggle":        # the name, in Verilator's spelling, stands in the source anyway
            what = re.sub(r"^[^[:]*", "", what).replace(":", " ").strip()
        point = (kind, field["h"], int(field["l"]), int(field["n"]), what)
        points[point] = points.get(point, 0) + int(count)
    return points


def keep(name, text, dat):
    """Adds the counts in file ``dat`` of a run of bench ``name`` with the Verilog ``text``."""
    folder = FOLDER / name
    with lock(FOLDER / f"{name}.lock"):
        source, counts = folder / "source.v", folder / "counts.json"
        if not source.exists() or source.read_text() != text:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            source.write_text(text)
        sums = {tuple(point): count for *point, count in json.loads(counts.read_text())} if counts.exists() else {}
        for point, count in _points(dat.read_text()).items():
            sums[point] = sums.get(point, 0) + count
        counts.write_text(json.dumps([[*point, count] for point, count in sums.items()]))


def read(name):
    """``(Source, {Point: count})`` of all runs of bench ``name`` since the folder was cleared."""
    folder = FOLDER / name
    source = Source((folder / "source.v").read_text())
    return source, {Point(*point): count for *point, count in json.loads((folder / "counts.json").read_text())}
