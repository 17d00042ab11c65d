# SPDX-License-Identifier: Apache-2.0
"""What the site does with the pages: three files of the root become pages, and a link to a file
that is no page, a source, becomes its name."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the site that lie outside of docs/.
OUTER = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files, config):
    """Adds the pages of the root."""
    for source, page in OUTER.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=_from_root(text)))
    return files


def _from_root(text):
    """Links of a file of the root, as from docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    for source, page in OUTER.items():
        text = text.replace(f"]({source}", f"]({page}")
    return text


def on_page_markdown(markdown, page, files, **_):
    """A link to what is not in the site becomes text: sources, the README."""
    folder = posixpath.dirname(page.file.src_uri)

    def shown(match):
        text, target, anchor = match.groups()
        if "://" in target:
            return match.group(0)
        path = posixpath.normpath(posixpath.join(folder, target))
        outer = OUTER.get(path.removeprefix("../"))
        if outer:
            return f"[{text}]({posixpath.relpath(outer, folder or '.')}{anchor or ''})"
        if files.get_file_from_path(path) or not (ROOT / "docs" / path).exists():
            return match.group(0)
        return text

    return LINK.sub(shown, markdown)
