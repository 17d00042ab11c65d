# SPDX-License-Identifier: Apache-2.0
"""The site: it is built without a warning, its four roads lead to every page, and what pages tell a
reader to type is there to be typed."""

import os
import posixpath
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from moe_hub.command.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
ROADS = ("rtl", "verification", "architect", "software")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(folder, what the tool said) of the site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    return folder, done


def test_site_builds_without_a_warning(site):
    folder, done = site
    assert (done.returncode, done.stderr) == (0, "")
    assert all((folder / "roads" / f"{road}.html").exists() for road in ROADS)


def test_nothing_is_fetched(site):
    """A page, opened from its file without a network, has all that it is made of."""
    made_of = r'<(?:script|img|link[^>]*stylesheet)[^>]*(?:src|href)="?(https?:[^" >]+)'
    for page in site[0].rglob("*.html"):
        found = re.findall(made_of, page.read_text())
        assert not found, f"{page.name}: {found}"


def links(page):
    """Pages that a page leads to, as paths below docs/."""
    here = posixpath.dirname(page)
    for target in re.findall(r"\]\(([^)#\s]+\.md)", (DOCS / page).read_text()):
        if "://" not in target:
            yield posixpath.normpath(posixpath.join(here, target))


def test_every_page_is_reached():
    waiting, found = [f"roads/{road}.md" for road in ROADS], set()
    while waiting:
        page = waiting.pop()
        if page not in found and (DOCS / page).exists():
            found.add(page)
            waiting += links(page)
    every = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert every - found == {"index.md"}  # which leads to the roads


@cache
def options_of(verb):
    app = typer.Typer(add_completion=False)
    app.command(verb.name)(verb.load())
    return {name for param in get_command(app).params for name in param.opts} | {"--help"}


def typed(text):
    """Command lines of `moe-hub` that a page tells the reader to type."""
    for block in re.findall(r"^```(?:sh|shell|bash|console)?\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"\s*(?:\$ )?(?:\S+=\S+ )*(?:\S*/)?moe-hub\s+(.*)", line)
            if found:
                yield shlex.split(found.group(1), comments=True)
    for line in re.findall(r"`(?:\S*/)?moe-hub ([^`]+)`", text):
        if "<" not in line:
            yield line.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_real(page):
    verbs = {verb.name: verb for verb in VERBS}
    for name, *words in typed(page.read_text()):
        if name.startswith("--") or not name.islower():
            continue
        assert name in verbs, f"moe-hub {name}: no such verb"
        for word in words:
            option = word.partition("=")[0].rstrip(",;:.")
            if re.fullmatch(r"--?[a-z][a-z-]*", option):
                assert option in options_of(verbs[name]), f"moe-hub {name}: no option {option}"
