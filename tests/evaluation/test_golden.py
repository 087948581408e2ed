"""The golden store: what changes is found and shown, and a few real answers are the same when they are asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.evaluation.golden import asking
from tests.evaluation.golden.__main__ import main
from tests.evaluation.golden.kind import Entry, Scope
from tests.evaluation.golden.store import read

TEXTS = {"first": "one\ntwo\nthree", "second": "same"}


def _kind(scope: Scope) -> Iterator[Entry]:
    for name, text in TEXTS.items():
        yield name, partial(str, text)
    yield "bytes", lambda: bytes(len(TEXTS["first"]))


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(asking, "KINDS", {"reports": _kind, "stepping": asking.KINDS["stepping"]})
    monkeypatch.setitem(TEXTS, "first", TEXTS["first"])
    return TEXTS


def test_a_changed_text_is_found_and_shown(
    texts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = tmp_path / "golden.xz", ("--kind", "reports")
    assert main(["record", str(path), *words]) == 0
    assert main(["compare", str(path), *words]) == 0
    assert "reports: 3 same, 0 changed, 0 gone, 0 new" in capsys.readouterr().out
    texts["first"] = "one\n2\nthree!"
    assert main(["compare", str(path), "--texts", *words]) == 1
    out = capsys.readouterr().out
    assert "reports: 1 same, 2 changed, 0 gone, 0 new" in out and "  changed first\n" in out
    assert "-two\n-three\n+2\n+three!\n" in out and "\nbytes: " in out


def test_names_that_come_and_go_are_told(
    monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But not those that were not asked for."""
    path, words = tmp_path / "golden.xz", ("--kind", "reports")
    assert main(["record", str(path), *words]) == 0
    monkeypatch.setitem(texts, "third", "new")
    monkeypatch.delitem(texts, "second")
    assert main(["compare", str(path), *words]) == 1
    out = capsys.readouterr().out
    assert "2 same, 0 changed, 1 gone, 1 new" in out and "  gone second\n  new third" in out
    assert main(["compare", str(path), *words, "--only", "first|bytes"]) == 0
    monkeypatch.setattr(asking, "KINDS", {"sources": _kind})
    assert main(["record", str(path), "--kind", "sources"]) == 0
    assert {kind: len(own) for kind, own in read(path).answers.items()} == {"reports": 3, "sources": 3}


def _asked(kind: str, name: str) -> str:
    _, found, _ = asking.part(kind, Scope(reports=1), f"^{name}$", 0, 1)
    assert list(found) == [name] and not asking.raised(found)
    return str(found[name].text)


def test_an_answer_is_the_same_again() -> None:
    name = "second FineSplitBackwards"
    text = _asked("reports", name)
    assert "correct: all 1,104 outputs" in text and text == _asked("reports", name)


def test_launches_of_a_test_file_are_written_down() -> None:
    text = _asked("tested", "test_deadlocks")
    assert text.startswith("pytest says 0\n--- test_") and "error DEADLOCK line" in text


def test_a_call_that_raises_is_an_answer(monkeypatch: pytest.MonkeyPatch, texts: dict[str, str]) -> None:
    monkeypatch.setattr(asking, "KINDS", {"reports": lambda scope: iter([("half", lambda: str(1 // 0))])})
    _, found, _ = asking.part("reports", Scope(), "", 0, 1)
    assert asking.raised(found) == ["half"] and str(found["half"].text).startswith("raised ZeroDivisionError")
