# SPDX-License-Identifier: Apache-2.0
"""Fits the few free constants of the software systems, once, on the published figures whose role is
"fit", and what is known of a published machine by such figures alone.

Which constant hangs on which figures is said in ``data/systems.toml``, and for machines under
``hardware`` in ``data/published.toml``; a figure of another role cannot be named there. The search
is deterministic: golden section on one constant after the other, over the bounds given, until
nothing moves. It minimises the squares of the logarithms of ours over published. The results go to
``data/fitted.toml`` and ``data/fitted_hardware.toml``, with the figures and the error they keep;
what these files held before does not matter.
"""

from functools import partial
from math import log, sqrt
from pathlib import Path

from flow.verilog.licence import SPDX

from . import published, systems
from . import published_machines as machines

__all__ = [
    "FITTED_FILE",
    "HARDWARE_FILE",
    "check_roles",
    "fit_all",
    "fit_hardware",
    "fit_system",
    "golden_search",
    "write",
]

FITTED_FILE = Path(__file__).parent / "data" / "fitted.toml"
HARDWARE_FILE = FITTED_FILE.with_name("fitted_hardware.toml")
GOLDEN = (sqrt(5) - 1) / 2
ROUNDS = 12  # over all constants that share figures
TOLERANCE = 1e-3  # of a constant's range


def golden_search(function, low, high):
    """The argument between ``low`` and ``high`` at which ``function`` is least, to
    :data:`TOLERANCE` of the range."""
    span = (high - low) * TOLERANCE
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = function(a), function(b)
    while high - low > span:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = function(b)
    return (low + high) / 2


def check_roles(system, figures):
    """ValueError when one of ``figures`` is there to judge by, not to fit on."""
    for figure in figures:
        if figure.role != "fit":
            raise ValueError(
                f"{system}: {figure.id} has role {figure.role!r}: only figures of role "
                "'fit' may be fitted on"
            )


def _distance(figures):
    """Sum of the squared logarithms of ours over published."""
    return sum(log(published.ask(figure) / figure.value) ** 2 for figure in figures)


def _left(figures):
    """{figure id: relative error}."""
    return {figure.id: published.ask(figure) / figure.value - 1 for figure in figures}


def _loss(system, figures, values):
    with systems.override(system, **values):
        return _distance(figures)


def _search(system, figures, bounds, known):
    """{constant: value} of least loss; ``bounds``: {constant: (start, low, high)}; ``known``:
    constants found before."""
    values = {name: start for name, (start, _, _) in bounds.items()}
    for _ in range(ROUNDS if len(bounds) > 1 else 1):
        before = dict(values)
        for name, (_, low, high) in bounds.items():
            others = known | values
            values[name] = golden_search(partial(_at, system, figures, others, name), low, high)
        if all(
            abs(values[name] - before[name]) <= 2 * TOLERANCE * (high - low)
            for name, (_, low, high) in bounds.items()
        ):
            break
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _at(system, figures, values, name, value):
    return _loss(system, figures, values | {name: value})


def fit_system(system):
    """{constant: (value, {figure id: relative error left})} of one system; empty when it has no
    free constant."""
    groups = {}
    for name, (start, low, high, ids) in systems.parameters(system).items():
        groups.setdefault(ids, {})[name] = (start, low, high)
    fitted, known = (
        {},
        {name: start for bounds in groups.values() for name, (start, _, _) in bounds.items()},
    )
    for ids, bounds in groups.items():
        figures = [published.figure(id) for id in ids]
        check_roles(system, figures)
        found = _search(system, figures, bounds, known)
        known |= found
        with systems.override(system, **known):
            errors = _left(figures)
        fitted |= {name: (value, errors) for name, value in found.items()}
    return fitted


def fit_hardware(name):
    """{constant: (value, {figure id: relative error left})} of one machine of published.toml."""
    found = {}
    for constant, (low, high, ids) in machines.free()[name].items():
        figures = [published.figure(id) for id in ids]
        check_roles(name, figures)

        def loss(value, constant=constant, figures=figures):
            with machines.override(name, **{constant: value}):
                return _distance(figures)

        value = float(f"{golden_search(loss, low, high):.4g}")
        with machines.override(name, **{constant: value}):
            found[constant] = value, _left(figures)
    return found


def fit_all(report=lambda system: None):
    """({system: :func:`fit_system`}, {machine: :func:`fit_hardware`}) of all that have free
    constants; ``report`` is called with each name before it is fitted."""
    software, hardware = {}, {}
    for system in systems.SYSTEMS:
        if systems.parameters(system):
            report(system)
            software[system] = fit_system(system)
    for name in machines.free():
        report(name)
        hardware[name] = fit_hardware(name)
    return software, hardware


def write(fitted, path=FITTED_FILE):
    """Writes what :func:`fit_all` found; same values, same bytes."""
    lines = [
        f"# {SPDX}",
        "# Written by sim/evaluate/fit.py: constants fitted on published figures of role "
        "fit; the error these keep.",
        "",
    ]
    for system, constants in fitted.items():
        for name, (value, errors) in constants.items():
            ids, left = (
                ", ".join(f'"{id}"' for id in errors),
                ", ".join(f"{error:.4f}" for error in errors.values()),
            )
            lines += [
                f"[{system}.{name}]",
                f"value = {value}",
                f"figures = [{ids}]",
                f"left = [{left}]",
                "",
            ]
    path.write_text("\n".join(lines), encoding="utf-8")
