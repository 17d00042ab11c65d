# SPDX-License-Identifier: Apache-2.0
"""The Verilog of a hub and the files around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flow.verilog.generate import TOP, named, write_files
from flow.verilog.generate import generate as texts_of
from hub_rtl.contract.config import HubConfig
from hub_rtl.contract.config import preset as preset_of

from .needs import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Verilog", "generate"]


@dataclass(frozen=True, kw_only=True)
class Verilog:
    """A hub as files.

    ``config``: of the hub. ``files``: texts by file name. ``sidecar``: what tools need to know of
    it, as ``moehub.json`` has it: ports, sizes, maps, memories.
    """

    config: HubConfig
    files: Mapping[str, str]
    sidecar: Mapping[str, Any]

    def write(self, folder: str | Path) -> list[Path]:
        """Writes all files or none; returns their paths. Raises OSError."""
        return write_files(folder, self.files)

    def ports(self) -> pd.DataFrame:
        """A row for each port of the hub's module: ``interface``, ``kind``, ``name``,
        ``direction``, ``width`` in bits."""
        return _table(
            {"interface": interface["name"], "kind": interface["kind"]}
            | {name: port[name] for name in ("name", "direction", "width")}
            for interface in self.sidecar["interfaces"]
            for port in interface["ports"]
        )

    def memories(self) -> pd.DataFrame:
        """A row for each memory: where it is, ``depth`` in words, ``width`` in bits, ports."""
        return _table(self.sidecar["memories"])


def _table(rows):
    need("moe_hub.Verilog", ("pandas",))
    import pandas

    return pandas.DataFrame(rows)


def generate(
    preset: str = "small",
    *,
    changes: Mapping[str, int] | None = None,
    ram_modules: bool = False,
    name: str = TOP,
    source: bool = False,
) -> Verilog:
    """Elaborates a hub. Seconds for small presets, a minute for ``nvl72``; same order, same bytes.

    Parameters:
        preset: Configuration to start from, a name of ``hub_rtl.contract.config.PRESETS``.
        changes: Fields of the configuration, in place of the preset's.
        ram_modules: Each memory is an instance of a module named after its shape.
        name: In place of ``moehub`` in all names, so that two hubs stand in one design.
        source: Modules, signals and cells say which line of the source they are from.

    Raises:
        ValueError: The configuration breaks a rule (of
            ``hub_rtl.contract.config.ConfigError``), or ``name`` is no lower-case identifier.
    """
    cfg = preset_of(preset, **dict(changes or {}))
    named({}, name)  # a wrong one is told at once
    texts = texts_of(cfg, ram_modules, source)
    return Verilog(config=cfg, files=named(texts.files(), name), sidecar=texts.sidecar)
