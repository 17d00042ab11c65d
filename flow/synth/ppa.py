# SPDX-License-Identifier: Apache-2.0
"""The whole measurement of area and clock, step by step: what is run, where it is kept, what has
been found so far."""

from pathlib import Path

from hub_rtl.contract.config import preset

from .designs import DesignStore
from .measure import Settings, Task, kept, part_tasks, run
from .parts import PARTS
from .processes import process_of
from .sweeps import SWEEPS, reference
from .whole import whole_timing

__all__ = ["STEPS", "Measurement"]

#: In this order: what is quick first.
STEPS = {
    "blocks": "blocks and hub of preset fpga: gates",
    "units": "units of the reference hub: gates",
    "sweeps": "units of the sweeps: gates",
    "units-cells": (
        "units of the reference hub: standard cells, and the timing of a slice as a whole"
    ),
    "blocks-cells": "blocks and hub of preset fpga: standard cells",
    "ecp5": "blocks and hub of preset fpga: ECP5 place and route",
    "sweeps-cells": "units of the sweeps: standard cells",
}


class Measurement:
    """All steps over one folder.

    ``libraries``: :class:`~.liberty.Library` objects, steps with cells need one. ``seeds``: of the
    placer. ``parts``, measured in configuration ``blocks``. ``hub``: the reference hub. ``sweeps``:
    :class:`~.sweeps.Sweep` by name.
    """

    def __init__(
        self,
        folder,
        libraries=(),
        seeds=(1, 2, 3),
        blocks=None,
        parts=tuple(PARTS),
        hub=None,
        sweeps=None,
    ):
        self.folder, self.libraries, self.seeds = Path(folder), list(libraries), tuple(seeds)
        self.block_cfg, self.parts, self.hub_cfg = (
            blocks or preset("fpga"),
            parts,
            hub or reference(),
        )
        self.sweeps = SWEEPS if sweeps is None else sweeps
        self._store = DesignStore(folder)
        self.errors = {}

    def steps(self):
        """Names of the steps that can be run with what was given."""
        return [name for name in STEPS if self.libraries or not name.endswith("-cells")]

    def run(self, step, jobs=None, tell=print):
        """Runs a step; what is kept is not run again. What failed is in ``errors``: {step: [one
        line each]}."""
        _, errors = run(self._tasks(step), jobs, False, tell)
        self.errors[step] = list(errors.values())
        if step == "units-cells" and not errors:
            for library in self.libraries:
                try:
                    self.whole(library, measure=True)
                except (ValueError, OSError) as error:
                    self.errors[step].append(f"whole slice, {library.name}: {error}")

    def settings(self, library=None):
        goal = process_of(library).goal_ps if library else 200
        return Settings(self.seeds, library, goal)

    # -- what has been found -----------------------------------------------------------------------

    def blocks(self):
        """``{part: {flow: figures}}`` of the blocks, flows ``generic``, ``ecp5`` and one per
        library; what is known."""
        found = {name: {} for name in self.parts}
        known = [name for name in self.parts if self._store.has_part(name, self.block_cfg)]
        flows = [
            ("generic", None, "generic"),
            ("ecp5", None, "ecp5"),
            *(("cells", each, each.name) for each in self.libraries),
        ]
        for flow, library, title in flows:
            for (name, _), task in part_tasks(
                self.block_cfg, known, (flow,), self.settings(library), self.folder
            ).items():
                if (figures := kept(task)) is not None:
                    found[name][title] = figures
        return found

    def census(self, cfg, library=None):
        """``({unit: figures}, {unit: instances})`` of a hub, or None when a unit is missing."""
        if not self._store.has_census(cfg):
            return None
        designs = self._store.census(cfg)
        found = {
            name: kept(self._unit(name, design, library)) for name, (_, design) in designs.items()
        }
        if None in found.values():
            return None
        return found, {name: count for name, (count, _) in designs.items()}

    def whole(self, library, measure=False):
        """``{ps, start, end, gates, clocks}`` of the reference hub's slice in ``library``, or None;
        with ``measure`` it is timed if it is not known."""
        cfg = self.hub_cfg
        if not measure and not self._store.has_census(cfg):
            return None
        tasks = {
            name: self._unit(name, design, library)
            for name, (_, design) in self._store.census(cfg).items()
        }
        figures = {name: kept(task) for name, task in tasks.items()}
        folder = self.folder / "whole" / library.name
        if None in figures.values() or any(
            each["timer"] != "OpenSTA" for each in figures.values() if each["ps"]
        ):
            return None
        if not measure and not (folder / "result.json").exists():
            return None
        return whole_timing(
            {name: task.folder for name, task in tasks.items()}, cfg, library, folder
        )

    def elaboration_seconds(self):
        """CPU time from Python to RTLIL of the reference hub, or None."""
        return (
            self._store.census_seconds(self.hub_cfg)
            if self._store.has_census(self.hub_cfg)
            else None
        )

    def hub_figures(self):
        """All that is known of the reference hub and of the sweeps, as plain data."""

        def census(cfg, library=None):
            found = self.census(cfg, library)
            return found and {
                name: {"instances": found[1][name]} | each for name, each in found[0].items()
            }

        choices = [None, *self.libraries]
        names = ["generic", *(library.name for library in self.libraries)]
        return {
            "reference": {"configuration": self.hub_cfg.as_dict()}
            | {
                name: census(self.hub_cfg, library)
                for name, library in zip(names, choices, strict=True)
            },
            "whole": {library.name: self.whole(library) for library in self.libraries},
            "sweeps": {
                field: {"refused": sweep.refusal()}
                if sweep.refusal()
                else {
                    str(value): {
                        name: census(cfg, library)
                        for name, library in zip(names, choices, strict=True)
                    }
                    for value, cfg in sweep.configurations()
                }
                for field, sweep in self.sweeps.items()
            },
        }

    # -- tasks -------------------------------------------------------------------------------------

    def _tasks(self, step):
        what, _, cells = step.partition("-")
        choices = self.libraries if cells else [None]
        if what in ("blocks", "ecp5"):
            flow = "cells" if cells else {"blocks": "generic", "ecp5": "ecp5"}[what]
            return [
                task
                for library in choices
                for task in part_tasks(
                    self.block_cfg, self.parts, (flow,), self.settings(library), self.folder
                ).values()
            ]
        hubs = (
            [self.hub_cfg]
            if what == "units"
            else [
                cfg
                for sweep in self.sweeps.values()
                if not sweep.refusal()
                for _, cfg in sweep.configurations()
            ]
        )
        return [
            self._unit(name, design, library)
            for cfg in hubs
            for name, (_, design) in self._store.census(cfg).items()
            for library in choices
        ]

    def _unit(self, name, design, library):
        flow = "cells" if library else "generic"
        place = f"cells_{library.name}" if library else flow
        return Task(
            name,
            flow,
            design,
            self.settings(library),
            self.folder / "units" / f"{name}-{design.digest[:16]}" / place,
        )
