# SPDX-License-Identifier: Apache-2.0
"""Libraries of standard cells: Liberty files that belong together, and what the flow has to know of
their cells."""

import gzip
import os
import re
import shutil
from pathlib import Path

from flow.kept import digest

__all__ = ["Library", "libraries"]

_CELL = re.compile(r"^\s*cell\s*\(", re.M)
_NAME = re.compile(r'\s*"?(\w+)')
_AREA = re.compile(r'\barea\s*:\s*"?([\d.]+)')
_FLOP = re.compile(r"\bff\s*\(")


class Library:
    """One library, of one or more Liberty files (plain or ``.gz``), in the order in which cells are
    taken.

    ``name``: what the files' library names begin with. ``nand_area``: of its smallest two-input
    NAND, the unit of gate equivalents. ``register_area``: of its smallest flip-flop. ``driver``: a
    small buffer, which stands for what drives a register's output net. ``digest``: of the files'
    text. ``store``: folder for the plain files, which are written once. Raises ValueError when a
    kind of cell is missing, OSError.
    """

    def __init__(self, files, store):
        self.files, self.store = [Path(each) for each in files], Path(store)
        texts = [_text(each) for each in self.files]
        self.name = _library_name(self.files[0], texts[0])
        self.digest = digest("".join(texts), length=64)
        areas, flops = {}, []
        for text in texts:
            for cell in _CELL.split(text)[1:]:
                name, area = _NAME.match(cell)[1], _AREA.search(cell)
                if area:
                    areas[name] = float(area[1])
                    if _FLOP.search(cell):
                        flops.append(name)
        nands = [area for name, area in areas.items() if re.search("nand2", name, re.I)]
        buffers = {
            name: area for name, area in areas.items() if re.search(r"buf_?x?\d", name, re.I)
        }
        for kind, found, use in (
            ("two-input NAND", nands, "its area is the unit of gate equivalents"),
            ("buffer", buffers, "it stands for what drives a register's output net"),
            ("flip-flop", flops, "registers need one"),
        ):
            if not found:
                raise ValueError(f"liberty: no {kind} cell found in {self.name}, {use}")
        self.nand_area, self.register_area = min(nands), min(areas[name] for name in flops)
        self.driver = sorted(buffers, key=lambda name: (buffers[name], name))[len(buffers) // 4]

    def unpack(self):
        """Absolute paths of the plain files."""
        folder = (self.store / self.digest[:16]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        targets = [folder / path.name.removesuffix(".gz") for path in self.files]
        for path, target in zip(self.files, targets, strict=True):
            if not target.exists():
                scratch = target.with_name(f"{target.name}.{os.getpid()}")
                with (
                    (gzip.open if path.suffix == ".gz" else open)(path, "rb") as source,
                    open(scratch, "wb") as sink,
                ):
                    shutil.copyfileobj(source, sink)
                scratch.rename(target)
        return targets


def libraries(files, store):
    """The :class:`Library` objects of ``files``: those whose library names share the first word, up
    to ``_``, are one."""
    found = {}
    for path in map(Path, files):
        found.setdefault(_library_name(path, _text(path)), []).append(path)
    return [Library(paths, store) for paths in found.values()]


def _text(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as source:
        return source.read().decode(errors="replace")


def _library_name(path, text):
    found = re.search(r'^\s*library\s*\(\s*"?([A-Za-z0-9]+)', text, re.M)
    if not found:
        raise ValueError(f"{path.name}: not a Liberty file, no library (...) in it")
    return found[1]
