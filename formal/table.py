"""The table of checks: ``formal/checks/*.toml``, one file per block."""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Bug", "Check", "TableError", "load_table"]

FOLDER = Path(__file__).parent / "checks"


class TableError(ValueError):
    """An entry of the table breaks a rule; one line that names it."""


@dataclass(frozen=True)
class Bug:
    """A change of the RTL that the check must notice: ``old``, which occurs once in ``file``, becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """One entry.

    name: ``block.promise``. spec: ``module:Class`` within the package ``formal``. preset, set: configuration given as ``cfg``
    (none without ``preset``). with: further keyword arguments. mode: ``prove`` (no bound) or ``bmc`` (to ``depth`` cycles, then
    ``because`` says why). engine: its engine line. cover_depth: cycles within which every cover is reached. bug: a planted
    bug, ``[file, old, new]``; bug_depth: cycles within which it is caught. memories: ``any`` (contents after power-up are
    arbitrary) or ``zero``. timeout: seconds for each task. quick: part of the short set.
    """

    name: str
    spec: str
    preset: str = ""
    set: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)
    mode: str = "prove"
    engine: str = "abc pdr"
    depth: int = 20
    because: str = ""
    cover_depth: int = 20
    cover_engine: str = "smtbmc yices"
    bug: Bug = None
    bug_depth: int = 20
    bug_engine: str = "smtbmc yices"
    memories: str = "any"
    timeout: int = 300
    quick: bool = False

    @property
    def block(self):
        return self.name.partition(".")[0]


FIELDS = {each.name for each in dataclasses.fields(Check)} - {"arguments"} | {"with"}


def load_table(folder=FOLDER):
    """Every check by name, in the order of the files. Raises TableError."""
    table = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text())["check"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise TableError(f"{path.name}: {error}") from None
        for entry in entries:
            check = _check(path.name, entry)
            if check.name in table:
                raise TableError(f"{path.name}: check {check.name!r} is there twice")
            table[check.name] = check
    return table


def _check(file, entry):
    where = f"{file}: check {entry.get('name', '?')!r}"
    unknown = set(entry) - FIELDS
    if unknown:
        raise TableError(f"{where}: unknown field {sorted(unknown)[0]!r}, must be one of {', '.join(sorted(FIELDS))}")
    missing = {"name", "spec", "bug"} - set(entry)
    if missing:
        raise TableError(f"{where}: {sorted(missing)[0]!r} is missing")
    entry = {("arguments" if key == "with" else key): value for key, value in entry.items()}
    entry["bug"] = Bug(*entry["bug"])
    check = Check(**entry)
    if check.mode not in ("prove", "bmc"):
        raise TableError(f"{where}: mode = {check.mode!r}: must be prove or bmc")
    if check.memories not in ("any", "zero"):
        raise TableError(f"{where}: memories = {check.memories!r}: must be any or zero")
    if (check.mode == "bmc") != bool(check.because):
        raise TableError(f"{where}: a bounded check, and only that, says why it is bounded (because)")
    return check
