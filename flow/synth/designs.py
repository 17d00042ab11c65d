# SPDX-License-Identifier: Apache-2.0
"""What is measured, as RTLIL files kept by content: the same sources and configuration are
elaborated once."""

import hashlib
import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import hub_rtl
from flow.kept import digest, write
from flow.verilog import netlist

from . import census, parts

__all__ = ["Design", "DesignStore"]


@dataclass(frozen=True)
class Design:
    """digest: of the text. path: the file with it."""

    digest: str
    path: Path

    def text(self):
        return self.path.read_text()


class DesignStore:
    """RTLIL files in ``folder``/designs, and an index by sources, configuration and kind of
    design."""

    def __init__(self, folder):
        self._folder = Path(folder) / "designs"
        self._sources = None

    def part(self, name, cfg):
        """The :class:`Design` of a part. Raises ConfigError for an unknown one."""
        return self.made(f"part {name}", cfg, lambda: parts.part_rtlil(name, cfg))

    def made(self, kind, cfg, make):
        """The :class:`Design` of the RTLIL that ``make()`` returns for this configuration;
        ``kind``: what it is."""
        return self._kept(kind, cfg, lambda: {kind: (1, make())})[0][kind][1]

    def census(self, cfg):
        """``{unit: (instances, Design)}`` of :func:`~.census.take_census`."""
        return self._kept("census", cfg, lambda: census.take_census(cfg))[0]

    def has_part(self, name, cfg):
        """Has this part been elaborated from these sources?"""
        return self._index(f"part {name}", cfg).exists()

    def has_census(self, cfg):
        """Has this hub been taken apart from these sources?"""
        return self._index("census", cfg).exists()

    def census_seconds(self, cfg):
        """CPU time that elaborating the hub took."""
        return self._kept("census", cfg, lambda: census.take_census(cfg))[1]

    def _index(self, kind, cfg):
        if self._sources is None:
            self._sources = _sources()
        fields = {name: value for name, value in cfg.as_dict().items() if name != "name"}
        key = digest(repr((kind, sorted(fields.items()), self._sources)), length=32)
        return self._folder / f"{key}.json"

    def _kept(self, kind, cfg, make):
        index = self._index(kind, cfg)
        if not index.exists():
            start = time.process_time()
            made = make()
            seconds = time.process_time() - start
            listed = {name: [count, self._write(text)] for name, (count, text) in made.items()}
            write(index, json.dumps({"seconds": round(seconds, 1), "designs": listed}))
        known = json.loads(index.read_text())
        designs = {
            name: (count, Design(found, self._path(found)))
            for name, (count, found) in known["designs"].items()
        }
        if not all(design.path.exists() for _, design in designs.values()):
            index.unlink()
            return self._kept(kind, cfg, make)
        return designs, known["seconds"]

    def _path(self, digest):
        return self._folder / f"{digest[:32]}.il"

    def _write(self, text):
        found = digest(text, length=64)
        if not self._path(found).exists():
            write(self._path(found), text)
        return found


def _sources():
    """Digest of everything the RTLIL comes from."""
    text = hashlib.sha256(version("amaranth").encode())
    files = [
        path
        for root in (Path(hub_rtl.__file__).parent, Path(netlist.__file__).parent)
        for path in sorted(root.rglob("*.py"))
    ]
    for path in (*files, Path(census.__file__), Path(parts.__file__)):
        text.update(path.read_bytes())
    return text.hexdigest()
