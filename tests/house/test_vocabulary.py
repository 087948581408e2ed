"""The phrases that docs/vocabulary.md refuses are not in pages, docstrings and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.test_docs import PAGES, ROOT, name_of

PAGE = ROOT / "docs" / "vocabulary.md"
PHRASES = re.findall(
    r"`([^`]+)`",
    "".join(line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").partition("| not |")[2].splitlines()[2:]),
)
SOURCES = [path for folder in ("tcsim", "hwkernels", "conformance") for path in sorted((ROOT / folder).rglob("*.py"))]


def plain(text: str) -> str:
    """In lower case, with single spaces."""
    return " ".join(text.split()).lower()


def texts() -> Iterator[tuple[str, str]]:
    """Where each text is, and the text: pages but the vocabulary and the changelog, docstrings and messages."""
    for path in PAGES:
        if path != PAGE and path.name != "CHANGELOG.md":
            yield name_of(path), plain(path.read_text(encoding="utf-8"))
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{name_of(path)}:{node.lineno}", plain(node.value)


@pytest.fixture(scope="module")
def all_texts() -> list[tuple[str, str]]:
    return list(texts())


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_is_not_written(phrase: str, all_texts: list[tuple[str, str]]) -> None:
    assert [where for where, text in all_texts if plain(phrase) in text] == []


def test_there_are_phrases_and_texts(all_texts: list[tuple[str, str]]) -> None:
    assert len(PHRASES) >= 10 and len(all_texts) > 5000
