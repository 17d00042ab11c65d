# SPDX-License-Identifier: Apache-2.0
"""The results page of ``moe-hub evaluate``: its tables are those the code writes, its pictures are
there, layers are kept."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flow.pages.fill import MARK, NOT_RUN, fill
from flow.pages.rows import csv_text
from moe_hub.command.cli import app
from sim.evaluate import assumptions
from sim.evaluate.commands import PAGE
from sim.evaluate.experiments import EXPERIMENTS
from sim.evaluate.kept import SHOWING, Kept, model_key
from sim.evaluate.page.page import TABLES
from sim.evaluate.page.plots import PICTURES, draw_all
from sim.evaluate.page.rows import markdown
from sim.evaluate.published import Row, figures
from sim.evaluate.runner import Point, Result, run_points
from sim.evaluate.study import Options
from sim.workload.traces import generate, write_trace

PACKAGE = PAGE.parents[2] / "sim" / "evaluate"


class Layers(dict):
    """A result of every point that is asked; nothing is simulated."""

    def __missing__(self, point):
        us = 1000.0 + len(point.system) * 10 + point.tokens / 100
        ranks, steps = point.ranks, (("gemm1", us / 3),)
        return self.setdefault(
            point,
            Result(
                point,
                us,
                us / 4,
                us / 2,
                *(100, 80, 0.5, 1.0, steps, us / 3),
                rank_us=(us,) * ranks,
                usable_rows=(1,) * ranks,
            ),
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """CSV files of all experiments with made-up times, in the form that the command writes."""
    made = tmp_path_factory.mktemp("csv")
    logs = []
    for name, experts, top_k in (("olmoe", 64, 8), ("qwen", 60, 4)):
        logs.append(str(made / f"{name}.jsonl"))
        write_trace(generate(tokens=64, top_k=top_k, experts=experts, seed=1), Path(logs[-1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            assumptions,
            "asked",
            lambda select, results: [
                Row(one, 1.01 * one.value) for one in figures() if select(one)
            ],
        )
        for name, experiment in EXPERIMENTS.items():
            report = experiment.report(Options(traces=tuple(logs)), Layers())
            (made / f"{name}.csv").write_text(csv_text(report.rows))
            (made / f"{name}-summary.csv").write_text(csv_text(report.summary))
    return made


def forms(text):
    """{table: (first line, number of lines, first cells, text)} of a page; numbers do not
    matter."""
    found = {}
    for name, body in MARK.findall(text):
        lines = [line for line in body.splitlines() if line.startswith("|")]
        found[name] = lines[:1], len(lines), [line.split(" | ")[0] for line in lines], body
    return found


def test_tables_of_the_page_have_the_form_the_code_writes(folder):
    text = PAGE.read_text()
    page, written = forms(text), forms(fill(text, folder, TABLES))
    assert page.keys() == TABLES.keys(), "a table is not on the page, or a mark is wrong"
    for name in TABLES:
        if NOT_RUN in page[name][3]:
            continue
        if name in (
            "sensitivity",
            "published_groups",
        ):  # rows are ordered by their numbers, or depend on them
            assert page[name][:2] == written[name][:2], name
            assert sorted(page[name][2]) == sorted(written[name][2]), name
        else:
            assert page[name][:3] == written[name][:3], name


def test_filling_twice_changes_nothing(folder):
    once = fill(PAGE.read_text(), folder, TABLES)
    assert fill(once, folder, TABLES) == once


def test_pictures_of_the_page_are_there():
    shown = set(re.findall(r"\.\./images/(evaluation_\w+)\.png", PAGE.read_text()))
    assert (
        {"evaluation_layer", "evaluation_averages"}
        <= shown
        <= {f"evaluation_{name}" for name in PICTURES}
    )
    assert all((PAGE.parents[1] / "images" / f"{name}.png").is_file() for name in shown)


def test_pictures_are_drawn_the_same_twice(folder, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        draw_all(folder, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_command_writes_the_page(folder, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "images").mkdir()
    page = tmp_path / "results" / "page.md"
    page.write_text("text\n\n<!-- table: machines -->\n<!-- end -->\n\nmore\n")
    result = CliRunner().invoke(
        app, ["evaluate", "page", "--page", str(page), "--output", str(folder)]
    )
    assert result.exit_code == 0, result.output
    assert "| `h800` | 132 |" in page.read_text() and page.read_text().endswith(
        "\n<!-- end -->\n\nmore\n"
    )
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == sorted(
        f"evaluation_{n}.png" for n in PICTURES
    )


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["page", "layer"], "page: must stand alone"),
        (["validate"], "validate: needs --model"),
        (
            ["validate", "--trace", "a", "--trace", "b", "--model", "olmoe-1b-7b"],
            "2 logs for 1 models",
        ),
        (["validate", "--model", "gpt-99"], "gpt-99"),
    ],
)
def test_wrong_orders_give_one_line(arguments, text):
    result = CliRunner().invoke(app, ["evaluate", *arguments])
    assert result.exit_code == 2
    assert text in result.stderr and result.stderr.count("\n") == 1


def test_a_page_says_what_has_not_been_run(tmp_path):
    text = fill("<!-- table: skew -->\nold\n<!-- end -->", tmp_path, TABLES, "moe-hub evaluate")
    assert text == f"<!-- table: skew -->\n\n{NOT_RUN} `moe-hub evaluate skew`.\n\n<!-- end -->"
    assert draw_all(tmp_path, tmp_path) == []


def test_an_unknown_table_is_an_error(folder):
    with pytest.raises(ValueError, match="table = 'nothing'"):
        fill("<!-- table: nothing -->\n<!-- end -->", folder, TABLES)


def test_markdown_aligns_numbers():
    assert markdown(["a", "b"], [["x", 1]]) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"


def test_fitting_writes_and_prints_what_is_left(tmp_path, monkeypatch):
    from sim.evaluate import fit

    files = {name: tmp_path / name for name in ("FITTED_FILE", "HARDWARE_FILE")}
    for name, path in files.items():
        monkeypatch.setattr(fit, name, path)
    found = {
        "comet": {"gather_gemm_efficiency": (0.75, {"a.figure": 0.01})},
        "b200": {"collective_us": (4.5, {"b.figure": 0.02})},
    }
    monkeypatch.setattr(fit, "fit_all", lambda report: tuple({name: found[name]} for name in found))
    result = CliRunner().invoke(app, ["evaluate", "fit"])
    assert result.exit_code == 0 and "a.figure" in result.output and "b.figure" in result.output
    software, machines = (path.read_text() for path in files.values())
    assert "[comet.gather_gemm_efficiency]" in software and "b200" not in software
    assert "[b200.collective_us]" in machines


# -- layers kept -----------------------------------------------------------------------------------


def test_kept_layers_are_not_simulated_again(tmp_path, monkeypatch):
    from sim.evaluate import runner

    points = [
        Point(system, "qwen2-moe-2.7b", 64, ranks=4) for system in ("moe_hub", "megatron", "ideal")
    ]
    first = run_points(points, jobs=1, kept=Kept(tmp_path))
    monkeypatch.setattr(runner, "run_point", lambda point: pytest.fail("simulated again"))
    assert run_points(points, jobs=1, kept=Kept(tmp_path)) == first
    assert Kept(tmp_path).get(replace(points[0], seed=2)) is None


def test_a_damaged_file_and_a_log_are_simulated(tmp_path):
    point = Point("ideal", "qwen2-moe-2.7b", 64, ranks=4)
    run_points([point], jobs=1, kept=Kept(tmp_path))
    next(tmp_path.rglob("*.json")).write_text("{")
    assert Kept(tmp_path).get(point) is None
    assert Kept(tmp_path).get(replace(point, trace="a.jsonl")) is None


def test_files_that_no_layer_depends_on_are_named_as_they_are():
    assert len(model_key()) == 16
    assert not {name for name in SHOWING if not list(PACKAGE.rglob(name))}
