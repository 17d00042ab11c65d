# SPDX-License-Identifier: Apache-2.0
"""Machines of one's own: a TOML file in place of a name of ``data/hardware.toml``.

::

    base = "h800"            # what is not said here is taken from there
    max_ranks = 32           # optional

    [gpu]                    # optional: fields of sim.evaluate.machine.hardware.Gpu
    sms = 144

    [fabric]                 # optional: of sim.evaluate.machine.hardware.Fabric
    link_gbps = 450.0
"""

import tomllib
from dataclasses import fields, replace
from pathlib import Path

from .machine.hardware import HardwareError, machine

__all__ = ["machine_asked"]

KEYS = "base", "max_ranks", "gpu", "fabric"


def machine_asked(name, ranks=8):
    """The machine called ``name``, or that of the file if ``name`` ends in ``.toml``, with
    ``ranks`` GPUs.

    Raises :class:`HardwareError`: there is no such machine or file, or a line of it is wrong.
    """
    if not name.endswith(".toml"):
        return machine(name, ranks)
    try:
        return _read(Path(name), ranks)
    except OSError as error:
        raise HardwareError(f"{name}: {error.strerror}") from None
    except (HardwareError, tomllib.TOMLDecodeError) as error:
        raise HardwareError(f"{name}: {error}") from None


def _read(path, ranks):
    entry = tomllib.loads(path.read_text(encoding="utf-8"))
    for key in entry:
        if key not in KEYS:
            raise HardwareError(f"{key}: must be one of {', '.join(KEYS)}")
    if "base" not in entry:
        raise HardwareError("base: must name the machine that this one differs from")
    made = machine(entry["base"], 8)
    most = entry.get("max_ranks", made.max_ranks)
    if type(most) is not int:
        raise HardwareError(f"max_ranks = {most!r}: must be a whole number")
    changes = {part: _numbers(part, entry.get(part, {}), getattr(made, part)) for part in KEYS[2:]}
    return replace(made, name=path.stem, ranks=ranks, max_ranks=most).changed(**changes)


def _numbers(part, values, old):
    """The values of a part. Raises :class:`HardwareError` for one that is not the field's."""
    if not isinstance(values, dict):
        raise HardwareError(f"{part} = {values!r}: must be a table, [{part}]")
    whole = {field.name for field in fields(old) if field.type is int}
    for name, value in values.items():
        if type(value) not in ((int,) if name in whole else (int, float)):
            kind = "a whole number" if name in whole else "a number"
            raise HardwareError(f"{part}.{name} = {value!r}: must be {kind}")
    return values
