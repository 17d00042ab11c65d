# SPDX-License-Identifier: Apache-2.0
"""``examples/soft_core``: the driver runs on the core, and its program can fail."""

import importlib.util
import subprocess
import sys

import pytest

from flow.verilog.generate import write_files
from hub_rtl.contract.config import preset
from sim.bench.runner import ROOT
from sim.generated import generated

RUN = ROOT / "examples/soft_core/run.py"
SPEC = importlib.util.spec_from_file_location("soft_core", RUN)
soft_core = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(soft_core)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A folder as ``moe-hub generate --preset tiny`` leaves it, in which the example has run."""
    folder = tmp_path_factory.mktemp("tiny")
    write_files(folder, generated(preset("tiny")).files())
    done = subprocess.run([sys.executable, RUN, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(3 * "READY\nREADY\nALL\n" + "PASS, ")
    return folder


@pytest.mark.night
def test_driver_says_why(hub, tmp_path):
    """Rows of 100 bytes break a rule of a region: the driver hands the hub's answer on."""
    firmware = soft_core.compile_firmware(hub, tmp_path, "-DROW_BYTES=100")
    said = soft_core.run(hub / "soft_core/Vsoc", firmware)
    row_bytes = 2  # regions.ERROR.row_bytes
    assert said == f"moehub_region(REGION, &region) is not 0\nFAIL: {row_bytes}\n"


@pytest.mark.night
def test_program_that_says_nothing(hub, tmp_path):
    """A core that hangs is no pass."""
    loop = tmp_path / "firmware.hex"
    loop.write_text("6f\n00\n00\n00\n")  # jump to itself
    said = soft_core.run(hub / "soft_core/Vsoc", loop)
    assert said == "FAIL: no verdict in 50,000 cycles\n"


def test_folder_without_verilog(tmp_path):
    done = subprocess.run([sys.executable, RUN, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == (
        f"FOLDER = {tmp_path}: must be one that `moe-hub generate` has written\n"
    )
