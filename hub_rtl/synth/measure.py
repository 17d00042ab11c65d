"""Runs the flows over the parts, some at a time; a result is kept until the design, the flow or its settings change."""

import hashlib
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from . import cells, ecp5, generic, yosys
from .parts import part_rtlil

__all__ = ["FLOWS", "FlowError", "Settings", "measure"]

#: Name of each flow, and what its module adds to the design to make the result.
FLOWS = ("generic", "ecp5", "cells")


class FlowError(RuntimeError):
    """A tool failed on a part: ``part, flow: what it said``, one line."""


class Settings:
    """seeds: of the placer. libraries: Liberty files, in the order in which cells are taken. target_ps: what the mapper
    aims for."""

    def __init__(self, seeds=(1, 2, 3), libraries=(), target_ps=200):
        self.seeds, self.libraries, self.target_ps = tuple(seeds), tuple(map(Path, libraries)), target_ps

    def run(self, flow, rtlil, folder):
        """Figures of one design, a dict. Raises YosysError, OSError, ValueError, CalledProcessError."""
        if flow == "generic":
            return generic.measure_generic(rtlil, folder).as_dict()
        if flow == "ecp5":
            return ecp5.place_ecp5(rtlil, folder, self.seeds).as_dict()
        return cells.map_cells(rtlil, self.libraries, self.target_ps, folder).as_dict()

    def key(self, flow):
        """What the result depends on, beside the design."""
        module = {"generic": generic, "ecp5": ecp5, "cells": cells}[flow]
        more = {"generic": (), "ecp5": self.seeds,
                "cells": (self.target_ps, [hashlib.sha256(each.read_bytes()).hexdigest() for each in self.libraries])}[flow]
        return repr(([Path(each.__file__).read_text() for each in (module, yosys)], more))


def measure(cfg, parts, flows, settings, folder, jobs=None, force=False, tell=print):
    """``{part: {flow: figures}}`` in the order of ``parts``; ``tell(text)`` hears of each as it is done.

    Files stay in ``folder/<preset>/<part>/<flow>``. Raises FlowError at the first failure.
    """
    designs = {name: part_rtlil(name, cfg) for name in parts}
    found = {name: dict.fromkeys(flows) for name in parts}
    work = [(name, flow) for flow in reversed(flows) for name in parts]
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = {pool.submit(_figures, designs[name], flow, settings, folder / cfg.name / name / flow, force): (name, flow)
                   for name, flow in work}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                name, flow = futures[future]
                found[name][flow] = _result(future, name, flow)
                tell(f"[{done}/{len(work)}] {name}, {flow}")
        except FlowError:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _figures(rtlil, flow, settings, folder, force):
    key = hashlib.sha256((rtlil + settings.key(flow)).encode()).hexdigest()
    kept = folder / "result.json"
    if kept.exists() and not force:
        known = json.loads(kept.read_text())
        if known["key"] == key:
            return known["figures"]
    kept.unlink(missing_ok=True)
    figures = settings.run(flow, rtlil, folder)
    scratch = folder / "result.new"
    scratch.write_text(json.dumps({"key": key, "figures": figures}))
    scratch.rename(kept)
    return figures


def _result(future, name, flow):
    try:
        return future.result()
    except subprocess.CalledProcessError as error:
        said = (error.stdout or error.stderr or str(error)).strip().splitlines()[-1]
    except (yosys.YosysError, OSError, ValueError) as error:
        said = str(error)
    raise FlowError(f"{name}, {flow}: {said}")
