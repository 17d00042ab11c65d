# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong is one line on stderr and an exit code: 2, the order was wrong; 1, it failed;
130, Ctrl-C."""

import errno
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hub_rtl.contract.config import ConfigError
from moe_hub.command.cli import app
from moe_hub.command.console import Progress
from moe_hub.command.program import program
from moe_hub.files import output_folder, write_text
from sim.bench.runner import ROOT
from sim.evaluate import runner

from .interrupt import interrupt

MOE_HUB = [sys.executable, "-W", "error", "-m", "moe_hub"]


def call(*arguments):
    return CliRunner().invoke(app, arguments)


def one_line(result, code, text):
    assert (result.exit_code, result.stdout) == (code, "")
    assert (
        result.stderr.startswith("moe-hub: ")
        and result.stderr.count("\n") == 1
        and text in result.stderr
    )


@pytest.mark.parametrize(
    "order, line",
    [
        ("run --ranks 0", "ranks = 0: must be between 2 and 128"),
        ("run --ranks many", "ranks = 'many': must be an integer"),
        ("run --tokens -5", "tokens = -5: must be between 0 and 1048576"),
        ("run --seed -1", "seed = -1: must be between 0 and 4294967295"),
        ("run --threads 0", "threads = 0: must be between 1 and 128"),
        ("run --lanes 33", "lanes = 33: must be between 1 and 32"),
        ("run --latency=-1", "latency = -1.0: must be between 0 and 1000000"),
        ("run --max-cycles 0", "max_cycles = 0: must be between 1 and 1000000000000"),
        ("run --expert-cycles -1", "expert_cycles = -1: must be between 0 and 1000000000"),
        ("run --prefix-cycles -1", "prefix_cycles = -1: must be between 0 and 1000000000"),
        ("run --experts 0", "experts = 0: must be between 1 and 2048"),
        ("run --row-bytes 8", "row_bytes = 8: must be between 16 and 16384"),
        ("run --tile-rows 0", "tile_rows = 0: must be between 1 and 1024"),
        ("run --packet-bytes 200", "packet_bytes = 200: must be 128 or 256"),
        ("run --numbering odd", "numbering = 'odd': must be one of token, "),
        ("run --model gpt-99", "model = 'gpt-99': must be one of tiny, "),
        ("bench --lanes 0", "lanes = 0: must be between 1 and 32"),
        ("lanes --ranks 1", "ranks = 1: must be between 2 and 128"),
        ("lanes --lanes 0", "lanes = 0: must be between 1 and 32"),
        ("evaluate layer --jobs 0", "jobs = 0: must be between 1 and 1024"),
        ("evaluate layer --seed -1", "seed = -1: must be between 0 and 4294967295"),
        ("evaluate layer --tokens -1", "tokens = -1: must be between 0 and 16777216"),
        ("formal --jobs 0", "jobs = 0: must be between 1 and 1024"),
        ("formal --task dance", "task = 'dance': must be one of "),
        ("synth wheel", "part = 'wheel': must be one of decoder, "),
        ("synth --seeds 0", "seeds = 0: must be between 1 and 1000"),
        ("synth --target 0", "target = 0: must be between 1 and 1000000"),
        ("synth --flow x", "flow = 'x': must be one of generic, ecp5, cells"),
        ("ppa --only x", "only = 'x': must be one of blocks, "),
        ("fpga --rounds 17", "rounds = 17: must be between 1 and 16"),
        ("mutate wheel", "block = 'wheel': must be one of decoder, "),
        ("coverage wheel", "block = 'wheel': must be one of decoder, "),
        ("generate --set name=a/b", "name = 'a/b': must be 1 to 64 letters, digits"),
        ("dance", "command = 'dance': must be one of generate, lint, "),
        ("run --dance", "No such option: --dance"),
        ("run --ranks", "Option '--ranks' requires an argument"),
        ("run now", "Got unexpected extra argument(s) (now)"),
        ("synth --liberty none.lib", "liberty: file 'none.lib' does not exist"),
    ],
)
def test_wrong_orders(order, line):
    one_line(call(*order.split()), 2, line)


def test_a_name_of_ones_own(tmp_path):
    """`--set name=...` names the configuration in the files; the folder stays the preset's."""
    result = call("registers", "--preset", "tiny", "--set", "name=foo")
    assert result.exit_code == 0 and "here `foo`" in result.stdout


@pytest.mark.parametrize(
    "order",
    [
        "generate -p tiny",
        "run --model tiny --ranks 2 --tokens 8",
        "bench",
        "evaluate layer --model qwen2-moe-2.7b",
        "synth link",
        "fpga",
        "ppa",
    ],
)
def test_a_folder_that_cannot_be_written_is_found_before_the_work(order, tmp_path, monkeypatch):
    monkeypatch.setattr("moe_hub.verilog.texts_of", None)
    (tmp_path / "file").write_text("")
    result = call(*order.split(), "--output", str(tmp_path / "file" / "out"))
    one_line(result, 2, "Not a directory")
    assert str(tmp_path / "file" / "out") in result.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_a_full_disk():
    """The device is written to, not replaced; what was asked for was right, so the exit code is
    1."""
    one_line(call("registers", "--output", "/dev/full"), 1, "/dev/full: No space left on device")
    assert Path("/dev/full").is_char_device()
    with pytest.raises(OSError) as error:
        write_text("/dev/full", "text")
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, "/dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MOE_HUB, "registers"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "moe-hub: output: No space left on device\n")


def test_a_reader_that_has_enough():
    """`moe-hub registers | head -1`: no word about the rest."""
    with subprocess.Popen(
        [*MOE_HUB, "registers", "-p", "nvl72"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert said == ""


def toy(action):
    app = program("A toy.")
    app.command("act")(action)
    app.command("other")(lambda: None)
    return app


@pytest.mark.parametrize(
    "error, code, text",
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ConfigError("lanes = 0: must be between\n1 and 32"),
            2,
            "lanes = 0: must be between 1 and 32",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "output: No space left on device"),
        (OSError(errno.EACCES, "Permission denied", "file"), 2, "file: Permission denied"),
    ],
)
def test_the_handler(error, code, text):
    def act():
        raise error

    result = CliRunner().invoke(toy(act), ["act"])
    assert (result.exit_code, result.stderr) == (code, f"moe-hub: {text}\n")
    shown = CliRunner().invoke(toy(act), ["--traceback", "act"])
    assert shown.exit_code == code and ("Traceback" in shown.stderr) == (code != 130)


def test_a_bug_is_not_hidden():
    def act():
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(toy(act), ["act"]).exception, ZeroDivisionError)


def test_ctrl_c():
    """A real signal to a real process, while a verb works."""
    script = (
        "import time\nfrom moe_hub.command.program import program\napp = program('A toy.')\n"
        "@app.command()\ndef act():\n    print('working', flush=True)\n    time.sleep(60)\n"
        "app.command('other')(lambda: None)\napp(['act'])\n"
    )
    interrupt(script, "working")


def test_workers_end_silently(monkeypatch, capfd):
    """Ctrl-C reaches the workers of an evaluation too: they are told to end by it, without a
    word."""
    given = {}

    class Pool(ProcessPoolExecutor):
        def __init__(self, *arguments, **options):
            given.update(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    points = [runner.Point("moe_hub", "qwen2-moe-2.7b", tokens, ranks=4) for tokens in (64, 128)]
    assert len(runner.run_points(points, jobs=2)) == 2
    with ProcessPoolExecutor(1, **given) as worker:
        assert worker.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_DFL


def test_version():
    result = call("--version")
    assert (
        result.exit_code == 0
        and result.stdout.split()[0] == "moe-hub"
        and result.stdout.count(".") == 2
    )


def test_progress_without_a_terminal(capsys, monkeypatch):
    """Every stage, and now and then how far it is; on stderr."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress(period=10) as progress:
        progress.stage("building")
        for now[0] in (1.0, 9.0, 11.0, 12.0, 22.0):
            progress.show(f"at {now[0]:.0f}")
        progress.note("done")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "building\nat 11\nat 22\ndone\n")


def test_output_folder_leaves_nothing_behind(tmp_path):
    assert list(output_folder(tmp_path / "a" / "b").iterdir()) == []
