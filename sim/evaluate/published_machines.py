# SPDX-License-Identifier: Apache-2.0
"""The machines that published figures are of: ``hardware`` of ``data/published.toml``, with what
was fitted, from ``data/fitted_hardware.toml``."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from sim.evaluate.machine.hardware import load_data, machine

__all__ = ["FREE", "entry", "fabric", "fitted_of", "free", "hardware", "names", "override"]

#: Constants that are fitted; meaning in published.toml.
FREE = ("shared_gbps", "collective_us", "host_factor")
_tried = {}


@cache
def _data():
    return load_data("published.toml")["hardware"]


@cache
def _fitted():
    return load_data("fitted_hardware.toml")


def names():
    """Of all machines."""
    return tuple(_data())


def free():
    """{machine: {constant: (low, high, figure ids)}} of what is fitted."""
    found = {
        name: {
            constant: tuple(fields[constant][key] for key in ("low", "high", "fitted"))
            for constant in FREE
            if constant in fields
        }
        for name, fields in _data().items()
    }
    return {name: constants for name, constants in found.items() if constants}


@contextmanager
def override(name, **values):
    """With other constants of a machine inside, for a search."""
    before = _tried.get(name, {})
    _tried[name] = before | values
    try:
        yield
    finally:
        _tried[name] = before


def entry(name):
    """Fields of a machine, its fitted constants as numbers."""
    known = {constant: one["value"] for constant, one in _fitted().get(name, {}).items()}
    fixed = {field: value for field, value in _data()[name].items() if field not in FREE}
    return fixed | known | _tried.get(name, {})


def fabric(fields, ranks):
    """What a machine of such fields and so many GPUs has in place of its base's fabric."""
    shared = {"link_gbps": fields["shared_gbps"] / ranks} if "shared_gbps" in fields else {}
    return fields.get("fabric", {}) | shared


def fitted_of(name):
    """{constant: value, None where the machine has none} of what is fitted."""
    fields = entry(name)
    return {constant: fields.get(constant) for constant in FREE}


def hardware(name, ranks):
    """(machine, options of its nodes) of so many GPUs."""
    fields = entry(name)
    base = replace(machine(fields["base"]), max_ranks=max(ranks, 72))
    nodes = {field: fields[field] for field in ("nodes_of", "nic_gbps") if field in fields}
    return base.changed(gpu=fields.get("gpu"), fabric=fabric(fields, ranks), ranks=ranks), nodes
