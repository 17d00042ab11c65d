# SPDX-License-Identifier: Apache-2.0
"""The table of checks: ``formal/<block>/checks.toml``, one file per block."""

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from hub_rtl.parts.mutants import MutantError
from sim.quality.mutation.names import known

__all__ = ["CONTRACTS", "Check", "TableError", "grounds", "load_table", "undischarged"]

FOLDER = Path(__file__).parents[1]
DOCS = Path(__file__).resolve().parents[2] / "docs"

#: What an assumption may rest on besides checks; docs/verification.md says what each word means.
CONTRACTS = ("followed", "stream rules", "memory", "fairness", "scenario", "unproved")
#: ... or a section of a page: ``interfaces.md section 8``.
SECTION = re.compile(r"(\w+\.md) section (\d+)")
#: Rests of every specification: ``suppose_held``.
EVERYWHERE = {"*: valid held": ("stream rules",), "*: payload held": ("stream rules",)}


class TableError(ValueError):
    """An entry of the table breaks a rule; one line that names it."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One entry.

    name: ``block.promise``. spec: ``module:Class`` within the package ``formal``. preset, set:
    configuration given as ``cfg`` (none without ``preset``). with: further keyword arguments. mode:
    ``prove`` (no bound) or ``bmc`` (to ``depth`` cycles, then ``because`` says why). engine: its
    engine line. cover_depth: cycles within which every cover is reached. bug: the name of a
    mutant (:mod:`hub_rtl.parts.mutants`) that breaks the promise; bug_depth: cycles within which it
    is caught. memories: ``any`` (contents after power-up are arbitrary) or ``zero``. timeout:
    seconds for each task. quick: part of the short set. covers: ``always``, or ``nightly``: only
    with ``--nightly``.

    proved_by: what each assumption rests on, ``{pattern: (checks and words)}``; of the entry, then
    of the tables ``[proved_by."module:Class"]``, ``[proved_by.module]`` and ``[proved_by.any]`` of
    its file. before: assumptions (patterns) of which only earlier cycles count
    (:class:`~formal.kit.spec.Spec`).
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
    bug: str = ""
    bug_depth: int = 20
    bug_engine: str = "smtbmc yices"
    memories: str = "any"
    timeout: int = 300
    quick: bool = False
    before: tuple = ()
    covers: str = "always"
    proved_by: dict = field(default_factory=EVERYWHERE.copy)

    @property
    def block(self):
        return self.name.partition(".")[0]


FIELDS = {each.name for each in dataclasses.fields(Check)} - {"arguments"} | {"with"}


def load_table(folder=FOLDER):
    """Every check by name, in the order of the files. Raises TableError."""
    table = {}
    for path in sorted(folder.glob("*/checks.toml")):
        where = f"{path.parent.name}/{path.name}"
        try:
            content = tomllib.loads(path.read_text())
            entries = content["check"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise TableError(f"{where}: {error}") from None
        shared = {
            spec: _names(f"{where}: proved_by.{spec}", given)
            for spec, given in content.get("proved_by", {}).items()
        }
        _shared(where, shared, {entry.get("spec", "") for entry in entries})
        for entry in entries:
            check = _check(where, entry, shared)
            if check.name in table:
                raise TableError(f"{where}: check {check.name!r} is there twice")
            table[check.name] = check
    if not table:
        raise TableError(f"{folder}: no checks found")
    _discharge(table)
    return table


def _known(where, name):
    if not isinstance(name, str):
        raise TableError(f"{where}: bug = {name!r}: must be the name of a mutant")
    try:
        known(name)
    except MutantError as error:
        raise TableError(f"{where}: bug = {error}") from None


def grounds(check, assumption):
    """``(pattern, (checks and words))`` that ``assumption`` of ``check`` rests on, or None: nobody
    has said."""
    if assumption in check.proved_by:
        return assumption, check.proved_by[assumption]
    for pattern, names in check.proved_by.items():
        if fnmatchcase(assumption, pattern):
            return pattern, names
    return None


def undischarged(check, assumptions):
    """Those of ``assumptions`` of which the table says nothing."""
    return [each for each in assumptions if grounds(check, each) is None]


def _names(where, given):
    """``{pattern: tuple of names}``, each a word, a section that exists, or what may be a check."""
    found = {}
    for pattern, names in given.items():
        each = [names] if isinstance(names, str) else names
        if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
            raise TableError(f"{where}: {pattern!r} = {names!r}: must be a name or a list of them")
        found[pattern] = names = tuple(each)
        if not names:
            raise TableError(f"{where}: {pattern!r} = []: must name a check or a contract")
        for name in names:
            section = SECTION.fullmatch(name)
            if section and not _has_section(*section.groups()):
                raise TableError(f"{where}: {pattern!r} = {name!r}: no such section")
            if not section and name not in CONTRACTS and not re.fullmatch(r"\w+\.\w+", name):
                raise TableError(
                    f"{where}: {pattern!r} = {name!r}: must be a check, a section of a "
                    "page, or one of "
                    f"{', '.join(CONTRACTS)}"
                )
    return found


def _shared(file, shared, specs):
    """What a file says of assumptions is of specifications that it has; what it says of all names
    no check."""
    for spec, given in shared.items():
        where = f"{file}: proved_by.{spec}"
        if spec != "any" and not any(spec in (each, each.partition(":")[0]) for each in specs):
            raise TableError(f"{where}: no such specification in this file")
        checks = sorted({name for names in given.values() for name in names} - set(_words(given)))
        if spec == "any" and checks:
            raise TableError(
                f"{where}: {checks[0]}: a check is named for a specification, not for all"
            )


def _words(given):
    """Of the names in ``given`` those that are no checks."""
    return [
        name
        for names in given.values()
        for name in names
        if name in CONTRACTS or SECTION.fullmatch(name)
    ]


def _has_section(page, number):
    path = DOCS / page
    return path.exists() and re.search(rf"^## {number}\.", path.read_text(), re.M)


def _edges(check):
    """Checks that ``check`` rests on."""
    names = {name for names in check.proved_by.values() for name in names}
    return names - set(_words(check.proved_by))


def _needs(check):
    """Checks that ``check`` rests on for the very cycle that it speaks of."""
    return _edges(
        dataclasses.replace(
            check,
            proved_by={
                pattern: names
                for pattern, names in check.proved_by.items()
                if pattern not in check.before
            },
        )
    )


def _discharge(table):
    """Raises TableError for a name that is no check, and for a circle of checks that is not broken
    in time."""
    for check in table.values():
        for name in sorted(_edges(check)):
            if name not in table:
                raise TableError(f"check {check.name!r}: proved_by = {name!r}: no such check")
    # By induction over cycles, and in a cycle along these edges, all hold: no circle may consist of
    # them.
    done = set()

    def walk(name, path):
        if name in path:
            circle = " -> ".join([*path[path.index(name) :], name])
            raise TableError(
                f"proved_by runs in a circle: {circle}; one of these must name its "
                "assumption in `before`"
            )
        if name in done:
            return
        for other in sorted(_needs(table[name])):
            walk(other, [*path, name])
        done.add(name)

    for name in table:
        walk(name, [])


def _check(file, entry, shared):
    where = f"{file}: check {entry.get('name', '?')!r}"
    unknown = set(entry) - FIELDS
    if unknown:
        raise TableError(
            f"{where}: unknown field {sorted(unknown)[0]!r}, must be one of "
            f"{', '.join(sorted(FIELDS))}"
        )
    missing = {"name", "spec", "bug"} - set(entry)
    if missing:
        raise TableError(f"{where}: {sorted(missing)[0]!r} is missing")
    entry = {("arguments" if key == "with" else key): value for key, value in entry.items()}
    _known(where, entry["bug"])
    merged = _names(where, entry.get("proved_by", {}))
    for given in (
        shared.get(entry["spec"]),
        shared.get(entry["spec"].partition(":")[0]),
        shared.get("any"),
        EVERYWHERE,
    ):
        merged |= {
            pattern: names for pattern, names in (given or {}).items() if pattern not in merged
        }
    entry["proved_by"] = merged
    check = Check(**entry)
    if check.mode not in ("prove", "bmc"):
        raise TableError(f"{where}: mode = {check.mode!r}: must be prove or bmc")
    if check.memories not in ("any", "zero"):
        raise TableError(f"{where}: memories = {check.memories!r}: must be any or zero")
    unknown = [each for each in check.before if each not in check.proved_by]
    if unknown:
        raise TableError(f"{where}: before = {unknown[0]!r}: must be a pattern of proved_by")
    if check.covers not in ("always", "nightly"):
        raise TableError(f"{where}: covers = {check.covers!r}: must be always or nightly")
    if (check.mode == "bmc") != bool(check.because):
        raise TableError(
            f"{where}: a bounded check, and only that, says why it is bounded (because)"
        )
    return check
