# SPDX-License-Identifier: Apache-2.0
"""Models and machines of one's own: TOML files in place of names."""

import pytest
from typer.testing import CliRunner

import moe_hub
from hub_rtl.contract.config import ConfigError
from moe_hub.command.cli import app
from sim.evaluate.kept import Kept
from sim.evaluate.machine.hardware import HardwareError, machine
from sim.evaluate.own_machine import machine_asked
from sim.evaluate.runner import Point, run_point, run_points
from sim.workload.models import model

MODEL = """[mine]
layers = 24
hidden = 2048
experts = 64
top_k = 4
inter = 1408
heads = 16
kv_heads = 16
head_dim = 128
"""
MACHINE = 'base = "h800"\nmax_ranks = 12\n[gpu]\nsms = 66\n[fabric]\nlink_gbps = 100\n'


def file(folder, text, name="mine.toml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_model_of_a_file_is_the_model(tmp_path):
    mine, known = model(file(tmp_path, MODEL)), model("qwen2-moe-2.7b")
    assert mine.name == "mine" and mine.dtype == "bf16"
    same = known.changed(name="mine", source=mine.source, shared=mine.shared)
    assert mine == same.changed(dense_layers=mine.dense_layers)


@pytest.mark.parametrize(
    "text, rule",
    [
        ("", "must have one table"),
        ("layers = 3\n", "must have one table"),
        (MODEL + "[other]\nlayers = 3\n", "must have one table"),
        ("[mine\n", "mine.toml: Expected"),
        (MODEL + "size = 3\n", "mine.size: a model has no such field"),
        (MODEL + 'name = "x"\n', "mine.name: a model has no such field"),
        (MODEL.replace("layers = 24\n", ""), "mine: must say layers"),
        (MODEL.replace("64", "6.5"), "mine.experts = 6.5: must be of type int"),
        (MODEL.replace("64", "true"), "mine.experts = True: must be of type int"),
        (MODEL.replace("64", "3"), "mine: top_k = 4: must not exceed experts = 3"),
    ],
)
def test_wrong_models_are_refused_in_one_line(tmp_path, text, rule):
    with pytest.raises(ConfigError, match=rule) as error:
        model(file(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_machine_of_a_file_differs_where_it_says(tmp_path):
    own = machine_asked(file(tmp_path, MACHINE, "box.toml"), 12)
    assert (own.name, own.ranks, own.max_ranks) == ("box", 12, 12)
    changed = machine("h800", 12).changed(gpu={"sms": 66}, fabric={"link_gbps": 100})
    assert (own.gpu, own.fabric) == (changed.gpu, changed.fabric)
    assert machine_asked("h800", 4) == machine("h800", 4)


@pytest.mark.parametrize(
    "text, rule",
    [
        ("", "base: must name the machine"),
        ('base = "h900"\n', "machine = 'h900': must be one of"),
        (MACHINE + "[host]\n", "host: must be one of base, max_ranks, gpu, fabric"),
        (MACHINE.replace("sms", "smz"), "gpu.smz: mine has no such field"),
        (MACHINE.replace("66", '"66"'), "gpu.sms = '66': must be a whole number"),
        (MACHINE.replace("66", "66.5"), "gpu.sms = 66.5: must be a whole number"),
        (MACHINE.replace("100", "true"), "fabric.link_gbps = True: must be a number"),
        (MACHINE.replace("100", "0"), "link_gbps = 0: must be above 0"),
        ('base = "h800"\ngpu = 3\n', r"gpu = 3: must be a table, \[gpu\]"),
        (MACHINE.replace("12", "1.5"), "max_ranks = 1.5: must be a whole number"),
        (MACHINE.replace("12", "4"), "ranks = 8: mine must have between 2 and 4"),
        ("base = \n", "Invalid value"),
    ],
)
def test_wrong_machines_are_refused_in_one_line(tmp_path, text, rule):
    path = file(tmp_path, text)
    with pytest.raises(HardwareError, match=rule) as error:
        machine_asked(path, 8)
    assert "\n" not in str(error.value) and str(error.value).startswith(path)


def test_files_that_are_not_there():
    with pytest.raises(ConfigError, match="none.toml: No such file"):
        model("none.toml")
    with pytest.raises(HardwareError, match="none.toml: No such file"):
        machine_asked("none.toml")


def test_a_layer_of_files_is_the_same_layer_and_is_not_kept(tmp_path):
    fields = {"gpu": (("sms", 66),), "fabric": (("link_gbps", 100),)}
    own = Point(
        "deepep_v2",
        file(tmp_path, MODEL),
        64,
        machine=file(tmp_path, MACHINE, "box.toml"),
        ranks=4,
    )
    named = Point("deepep_v2", "qwen2-moe-2.7b", 64, ranks=4, **fields)
    kept = Kept(tmp_path / "kept")
    assert run_points([own], jobs=1, kept=kept)[own].us == run_point(named).us
    assert kept.get(own) is None and not list(tmp_path.glob("kept/**/*.json"))


def test_a_file_that_changes_is_another_model(tmp_path):
    """Also in a process that goes on, a notebook's."""
    times = []
    for experts in ("64", "32"):
        path = file(tmp_path, MODEL.replace("64", experts))
        times.append(run_point(Point("ideal", path, 64, ranks=4)).us)
    assert times[0] > times[1]


def test_the_command_and_the_face_take_files(tmp_path):
    model_file, box = file(tmp_path, MODEL), file(tmp_path, MACHINE, "box.toml")
    made = moe_hub.predict(model_file, tokens=8, ranks=4, systems=["ideal"], machine=box)
    assert list(made.frame().index) == ["ideal", "moe_hub"]
    order = ["evaluate", "layer", "--model", model_file, "--machine", box, "--tokens", "64"]
    more = ["--system", "ideal", "--ranks", "4", "--jobs", "1", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, order + more)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "layer.csv").read_text().count("box.toml") == 2
    wrong = CliRunner().invoke(app, ["evaluate", "layer", "--machine", str(tmp_path / "no.toml")])
    assert wrong.exit_code == 2 and "no.toml: No such file" in wrong.output
