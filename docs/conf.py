"""The site of these pages, for Sphinx: `tox -e site`. The navigation is what docs/README.md and the indices of its folders link to."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "tcsim"
html_title = "tcsim"
extensions = ["myst_parser"]
root_doc = "README"
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = False
myst_heading_anchors = 4
myst_links_external_new_tab = True
suppress_warnings = ["misc.highlighting_failure"]  # an excerpt need not be a whole program


def navigation(text: str) -> str:
    """Hidden tables of contents: a caption and the pages of each section of an index, each page once."""
    trees, seen = [], {"README.md", "vocabulary.md"}
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        title = section.partition("\n")[0].lstrip("# ")
        pages = [page for page in re.findall(r"\]\(([\w./-]+\.md)\)", section) if page not in seen]
        seen.update(pages)
        if section.startswith("#"):  # what comes before the first section: the folders, or, of a folder, all
            trees.append((":hidden:", pages))
        elif pages:
            trees.append((f":hidden:\n:caption: {title}", pages))
    return "".join(
        f"\n```{{toctree}}\n{options}\n\n" + "\n".join(dict.fromkeys(pages)) + "\n```\n"
        for options, pages in trees[1:] + trees[:1]
    )


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """A page as the site wants it: an index with its navigation; links out of docs/ as the paths that they are."""
    text = re.sub(r"\[([^\]]+)\]\(\.\./([^)]+)\)", r"\1 (`\2`)", source[0]) if "/" not in name else source[0]
    if name == "README":
        text += navigation(text) + "\n```{toctree}\n:hidden:\n\nvocabulary.md\n```\n"
    elif name.endswith("/README"):
        text += navigation(text)
    source[0] = text


def index(app: Sphinx, failure: Exception | None) -> None:
    """index.html, which leads to the first page."""
    if failure is None and app.builder.name == "html":
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><title>tcsim</title><a href="README.html">tcsim</a>\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect them."""
    app.connect("source-read", read)
    app.connect("build-finished", index)
