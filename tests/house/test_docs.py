"""The documentation says what the code does: its examples run, its links lead somewhere, its tables are current."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import conformance
import hwkernels
import tcsim

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>[\w-]*)(?P<file> file=\S+)?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
"""A block; one of `LANGUAGE file=NAME` is a file that commands of the page find."""
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)


def name_of(path: Path) -> str:
    """A path relative to the root of the project."""
    return path.relative_to(ROOT).as_posix()


# --- fenced blocks


class Example(NamedTuple):
    """A ```python block, and the ```text block right after it, if there is one: what the code prints."""

    code: str
    line: int  # of the first line of code
    printed: str | None


def examples(text: str) -> Iterator[Example]:
    """The examples of a page in order."""
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences, None][1:], strict=True):
        if fence["language"] == "python" and not fence["file"]:
            adjacent = following is not None and not text[fence.end() : following.start()].strip()
            printed = following["body"] if following and adjacent and following["language"] == "text" else None
            yield Example(fence["body"], text.count("\n", 0, fence.start("body")) + 1, printed)


WITH_EXAMPLES = [path for path in PAGES if any(examples(path.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_of_a_page_run(path: Path) -> None:
    """The ```python blocks run from top to bottom in one namespace and print what the ```text blocks say."""
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for example in examples(path.read_text(encoding="utf-8")):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * (example.line - 1) + example.code, path, "exec"), namespace)
        if example.printed is not None:
            assert output.getvalue() == example.printed, f"{name_of(path)}, line {example.line}"


def test_the_guides_have_examples() -> None:
    """Looking for examples finds them."""
    assert {"README.md", "docs/fragments.md", "docs/numerics.md"} <= {name_of(path) for path in WITH_EXAMPLES}


def test_examples_are_found_with_what_they_print() -> None:
    """The convention itself: a text block belongs to the python block right before it, and to no other."""
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nx = 2\n```\nSo:\n```text\nnot output\n```\n"
    assert list(examples(page)) == [Example("print(1)\n", 2, "1\n"), Example("x = 2\n", 10, None)]
    files = "```ptx file=k.ptx\nret;\n```\n```python file=k.py\nx\n```\n```python\nprint(2)\n```\n```text\n2\n```\n"
    assert list(examples(files)) == [Example("print(2)\n", 8, "2\n")]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_fence_is_of_a_block(path: Path) -> None:
    """One that is not recognised would be paired with that of the next block."""
    text = path.read_text(encoding="utf-8")
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(FENCE.findall(text))


# --- docstrings


def modules_of(package: ModuleType) -> list[str]:
    """The names of a package and of all modules below it."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [package.__name__, *(module.name for module in found)]


NEEDED = {
    "tcsim.launchers.torch_cuda": "torch",
    "tcsim.launchers.triton_driver": "triton",
    "tcsim.engines.kernels": "numba",
    "tcsim.engines.columns": "numba",
    "tcsim.engines.decoding": "numba",
    "tcsim.engines.fragments": "numba",
    "conformance.explain.on_torch": "torch",
    "conformance.explain.on_cublaslt": "torch",
    "tcsim.torch": "torch",
    "hwkernels.aten.large": "transformers",
    "hwkernels.aten.models": "transformers",
    "hwkernels.aten.training": "transformers",
    "hwkernels.plans.calls": "torch",
    "hwkernels.plans.chain": "torch",
    "hwkernels.plans.compare": "torch",
    "conformance.explain.on_triton": "triton",
    "conformance.explain.triton_kernels": "triton",
}
"""Modules that an extra's project is needed for; where it is not there, `tox -e triton` runs their examples."""
MODULES = [
    name
    for package in (tcsim, hwkernels, conformance)
    for name in modules_of(package)
    if importlib.util.find_spec(NEEDED.get(name, "tcsim")) is not None
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str, doctest_namespace: dict[str, Any]) -> None:
    """Every `>>>` of a module is run and answers as written; one in a place where none is found fails."""
    module = importlib.import_module(name)
    tests = doctest.DocTestFinder().find(module, extraglobs=doctest_namespace)
    written = len(PROMPT.findall(Path(str(module.__file__)).read_text(encoding="utf-8")))
    assert sum(len(test.examples) for test in tests) == written
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_there_are_docstring_examples() -> None:
    """Looking for examples in docstrings finds them."""
    sources = [Path(str(importlib.import_module(name).__file__)) for name in MODULES]
    assert sum(len(PROMPT.findall(source.read_text(encoding="utf-8"))) for source in sources) > 10


# --- what pages refer to


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    """Relative links name files, and their anchors headings, that exist."""
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
        if "://" not in link:
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{name_of(path)}: {link}"
            assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), f"{name_of(path)}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_named_files_exist(path: Path) -> None:
    """A path in backticks that begins with a folder of the project exists."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for named in re.findall(r"`((?:tcsim|hwkernels|conformance|tests|docs|benchmarks)/[\w./-]*)`", text):
        assert (ROOT / named).exists(), f"{name_of(path)}: {named}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_named_objects_exist(path: Path) -> None:
    """A dotted name in backticks that begins with a package of the project is a module, or is in one."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for named in re.findall(r"`((?:tcsim|hwkernels|conformance)(?:\.[A-Za-z_]\w*)+)", text):
        needed = next((own for name, own in NEEDED.items() if f"{named}.".startswith(f"{name}.")), "tcsim")
        if importlib.util.find_spec(needed) is None:
            continue
        found: Any = importlib.import_module(named.partition(".")[0])
        for part in named.split(".")[1:]:
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)


def test_cited_pages_exist() -> None:
    """A page that a source file cites exists."""
    cited = {
        (source, page)
        for folder in ("tcsim", "hwkernels", "conformance", "tests", "benchmarks")
        for source in (ROOT / folder).rglob("*.py")
        for page in re.findall(r"\bdocs/[\w/.-]+\.md\b", source.read_text(encoding="utf-8"))
    }
    assert cited
    assert [(name_of(source), page) for source, page in cited if not (ROOT / page).exists()] == []


WRITTEN = [
    path
    for path in PAGES
    if ROOT / "docs" in path.parents and "<!-- Written by " not in path.read_text(encoding="utf-8")[:300]
]
MOST_PAGES, MOST_WORDS = 40, 75_000


def test_the_indices_list_every_page() -> None:
    """docs/README.md links to the pages beside it and to the indices of the folders, which link to theirs."""
    for folder in ("docs", "docs/reference", "docs/reference/tables"):
        index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        beside = [path.name for path in PAGES if path.parent == ROOT / folder and path.name != "README.md"]
        below = ["reference/README.md", "reference/tables/README.md"] if folder == "docs" else []
        assert [page for page in [*beside, *below] if f"({page})" not in index] == []


def test_people_write_few_pages_and_words() -> None:
    """What commands write is data: its first line names the command."""
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in WRITTEN)
    assert 20 < len(WRITTEN) <= MOST_PAGES
    assert words <= MOST_WORDS, f"{words} words in {len(WRITTEN)} pages"
    assert all(path.parent == ROOT / "docs" for path in WRITTEN)


PICTURES = sorted((ROOT / "docs/figures").iterdir())
MOST_PICTURE_BYTES = 150_000


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_every_picture_is_shown_and_small(path: Path) -> None:
    """A page shows it, with words for those who cannot see it; it is what its name says."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = re.findall(rf"!\[([^\]]*)\]\((?:docs/)?figures/{re.escape(path.name)}\)", text)
    assert shown and all(len(words) >= 15 for words in shown)
    content = path.read_bytes()
    assert len(content) <= MOST_PICTURE_BYTES
    assert content.startswith({".png": b"\x89PNG\r\n", ".svg": b"<svg "}[path.suffix])


def test_there_are_pictures() -> None:
    """Drawn ones, and screenshots in light and dark."""
    names = {path.name for path in PICTURES}
    assert {"mma-m16n8k16-a.svg", "page-product-light.png", "page-instruction-dark.png"} <= names


def test_every_layer_is_on_the_map() -> None:
    """docs/reference/tables/layers.md names every package and loose module of the three packages, but for what pytest collects."""
    text = (ROOT / "docs/reference/tables/layers.md").read_text(encoding="utf-8")
    folders = [ROOT / name for name in ("tcsim", "hwkernels", "conformance")]
    modules = [path for folder in folders for path in folder.glob("*.py") if not path.name.startswith(("__", "test_"))]
    packages = [path.parent for folder in folders for path in folder.glob("*/__init__.py")]
    names = [name_of(path) for path in modules] + [f"{name_of(path)}/" for path in packages]
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in text] == []
