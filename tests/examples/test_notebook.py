# SPDX-License-Identifier: Apache-2.0
"""``examples/notebook``: every cell runs, on the smallest layer; its file has no outputs, which
would be those of another day."""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from sim.bench.runner import ROOT

FILE = ROOT / "examples" / "notebook" / "layer.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(FILE, as_version=4)


def test_file_has_no_outputs(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@pytest.mark.night
# Libraries of the kernel, not ours, warn.
@pytest.mark.filterwarnings("ignore")
def test_every_cell_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert settings.source.startswith("MODEL, RANKS, TOKENS = ")
    # The hubs of the system tests, so that their harness does.
    settings.source = (
        'MODEL, RANKS, TOKENS, LOG = "tiny", 4, 4, "routes.jsonl"\n'
        'HUBS = {"preset": "small", "lanes": 2}'
    )
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    assert sum("text/html" in each for each in shown) == 3  # tables
    assert sum("image/png" in each for each in shown) == 3  # plots
    assert (tmp_path / "routes.jsonl").exists()
