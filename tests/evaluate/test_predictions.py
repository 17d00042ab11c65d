# SPDX-License-Identifier: Apache-2.0
"""Predictions: what is asked can be asked, the record only grows, and blind is who was first."""

import subprocess

import pytest

from sim.evaluate import predictions, published
from sim.evaluate.predictions import PAGE, PUBLISHED, asked, blind, commit_of, predict, read
from sim.evaluate.published_layers import workload_of

HEAD = "# Predictions\n\n| Figure |\n|---|\n"
LINE = "| `a.b` | dispatch of a | 12.5 | us | `0123456789ab` | a paper |\n"


def test_what_is_asked():
    """A metric, a machine and rows that there are; no figure that has been looked up; each is in
    the record."""
    figures = [figure for figure, _ in asked()]
    ids = {figure.id for figure in figures}
    assert len(ids) == len(figures) >= 20
    assert not ids & {figure.id for figure in published.figures()}
    for figure, where in asked():
        assert figure.metric in published.METRICS and where
        assert published.machine_of(figure)[0].ranks == figure.ranks
        if figure.metric == "alltoall_us":
            assert figure.options["bytes"] % figure.ranks == 0
        elif figure.set:
            assert all(made.ranks == figure.ranks for made, _ in published.set_of(figure))
        else:
            assert workload_of(figure).tokens % figure.ranks == 0
    assert ids <= read(PAGE.read_text()).keys()


def test_record_only_grows(monkeypatch):
    monkeypatch.setattr(predictions, "ask", lambda figure, layers: 1234.5)
    first = predict(HEAD + LINE, "0123456789ab")
    assert first.startswith(HEAD + LINE) and len(read(first)) == 1 + len(asked())
    assert predict(first, "ba9876543210") == first
    line = read(first)[asked()[0][0].id]
    assert (line.value, line.unit, line.commit) == (1234, asked()[0][0].unit, "0123456789ab")


@pytest.mark.parametrize(
    "text, said",
    [
        (LINE.replace("12.5", "soon"), r"predictions.md:1: is no prediction: "),
        (LINE + LINE, "predictions.md:2: a.b is predicted twice"),
    ],
)
def test_a_wrong_record_is_one_line(text, said):
    with pytest.raises(ValueError, match=said):
        read(text)


@pytest.fixture
def repository(tmp_path):
    """A repository with a commit of the model, then one with the figure ``a.b``."""

    def git(*words):
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "-q")
    path = tmp_path / PUBLISHED
    path.parent.mkdir(parents=True)
    commits = []
    for text in ("", 'id = "a.b"\n', 'id = "a.b"\nid = "c"\n'):
        path.write_text(text)
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "x")
        commits.append(git("rev-parse", "--short=12", "HEAD"))
    return tmp_path, commits


def test_blind(repository):
    """Predicted before the value came; with it, or after it, is too late; nobody's is not."""
    root, commits = repository
    texts = [LINE.replace("0123456789ab", commit) for commit in commits]
    assert [blind("a.b", text, root) for text in texts] == [True, False, False]
    assert not blind("c", texts[0], root) and not blind("a.b", "", root)


def test_a_prediction_names_its_model(repository, tmp_path_factory):
    root, commits = repository
    assert commit_of(root) == commits[-1]
    (root / PUBLISHED).write_text("other")
    with pytest.raises(ValueError, match="differs from its commit: commit first"):
        commit_of(root)
    with pytest.raises(ValueError, match="needs a repository"):
        commit_of(tmp_path_factory.mktemp("none"))
