# SPDX-License-Identifier: Apache-2.0
"""Constants of the software systems: ``data/systems.toml``, with what was fitted from
``data/fitted.toml`` in place of it."""

from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from importlib.resources import files

from sim.evaluate.machine.hardware import load_data

__all__ = [
    "SYSTEMS",
    "UnknownSystem",
    "all_constants",
    "constants",
    "override",
    "parameters",
    "provenance",
    "ranges",
    "reads",
    "replaced",
    "values_of",
]


class UnknownSystem(ValueError):
    """A system or constant that is not there; one line with the name and what there is."""


@cache
def _systems():
    return load_data("systems.toml")


SYSTEMS = tuple(_systems())
_overrides = {}  # {system: ((name, value), ...)}
_reads = set()  # (system, name)


@cache
def _fitted_values():
    there = (files(__package__) / "data" / "fitted.toml").is_file()
    return load_data("fitted.toml") if there else {}


def _entry(system):
    if system not in SYSTEMS:
        raise UnknownSystem(f"system = {system!r}: must be one of {', '.join(SYSTEMS)}")
    return _systems()[system]


class _Constants:
    """Constants of a system by name; each that is read is noted (:func:`reads`)."""

    def __init__(self, system, values):
        self._system, self._values = system, values

    def __getattr__(self, name):
        try:
            value = self._values[name]
        except KeyError:
            raise AttributeError(f"{self._system}: no constant {name}") from None
        _reads.add((self._system, name))
        return value


@lru_cache(maxsize=1024)  # a search asks for ever new ones
def _in_force(system, changes):
    values = {name: entry["value"] for name, entry in _entry(system).items()}
    values |= {name: entry["value"] for name, entry in _fitted_values().get(system, {}).items()}
    return _Constants(system, values | dict(changes))


def constants(system):
    """The constants of ``system`` by name: ``constants("comet").combine_ctas``. Raises
    :class:`UnknownSystem`."""
    return _in_force(system, _overrides.get(system, ()))


def values_of(system):
    """{name: value} of the constants of ``system``, none of which counts as read."""
    return dict(constants(system)._values)


def all_constants():
    """(system, name, value) of every constant in force: what an answer that is kept hangs on."""
    return tuple((system, *entry) for system in SYSTEMS for entry in values_of(system).items())


@contextmanager
def reads():
    """``with reads() as read: ...``: a set of (system, name) of the constants that are read inside.
    What is done there is the same whatever all others are."""
    _reads.clear()
    yield _reads


class override:
    """``with override("comet", combine_ctas=20): ...``: other constants inside, for a search or a
    sensitivity table."""

    def __init__(self, system, **values):
        unknown = values.keys() - _entry(system).keys()
        if unknown:
            raise UnknownSystem(
                f"{system}: no constant {', '.join(sorted(unknown))}; there are "
                f"{', '.join(_entry(system))}"
            )
        self.system, self.values = system, values

    def __enter__(self):
        self.before = _overrides.get(self.system, ())
        _overrides[self.system] = tuple({**dict(self.before), **self.values}.items())

    def __exit__(self, *_):
        _overrides[self.system] = self.before


@contextmanager
def replaced(changes):
    """With other constants inside: ``changes``, (system, name, value) of each, the last of a name
    counts."""
    with ExitStack() as stack:
        for system, name, value in changes:
            stack.enter_context(override(system, **{name: value}))
        yield


def ranges(system):
    """{name: (low, high)} of the constants of ``system`` that have a range and are not fitted."""
    return {
        name: (entry["low"], entry["high"])
        for name, entry in _entry(system).items()
        if "low" in entry and "fitted" not in entry
    }


def parameters(system):
    """{name: (start, low, high, figure ids)} of the constants of ``system`` that are fitted."""
    return {
        name: (entry["value"], entry["low"], entry["high"], tuple(entry["fitted"]))
        for name, entry in _entry(system).items()
        if "fitted" in entry
    }


def provenance(system):
    """{name: (value in use, source)}, with the figures named where the value is fitted."""
    used = values_of(system)
    fitted = _fitted_values().get(system, {})
    return {
        name: (
            used[name],
            f"fitted on {', '.join(fitted[name]['figures'])}"
            if name in fitted
            else entry["source"],
        )
        for name, entry in _entry(system).items()
    }
