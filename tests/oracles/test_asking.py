"""Asking and comparing: whatever becomes of another project is a failure of the test that asked, and shows what was printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.oracles import asking, comparing
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare

ANSWER = """
import sys
sys.path.insert(0, {folder!r})
import answering
answering.version = lambda distribution: {version!r}
answering.main("gfloat", lambda job, arrays: {{"d": arrays["d"] + job["more"]}})
"""


def script(folder: Path, text: str) -> str:
    """The path of a script."""
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_answers_come_back_in_order(tmp_path: Path) -> None:
    """Each question's own arrays and job."""
    text = ANSWER.format(folder=str(asking.HERE), version=asking.VERSIONS["gfloat"])
    questions = [Question({"more": i}, {"d": [10 * i]}) for i in range(12)]
    answers = ask("gfloat", script(tmp_path, text), questions, tmp_path)
    assert [answer["d"].tolist() for answer in answers] == [[11 * i] for i in range(12)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import os; print('about to crash', flush=True); os.abort()", r"(?s)status -6.*about to crash"),
        ("import no_such_project", r"(?s)status 1.*ModuleNotFoundError: No module named 'no_such_project'"),
        ("print('nothing to say')", r"(?s)status 0 and no answer.*nothing to say"),
    ],
)
def test_a_project_that_does_not_answer_fails(text: str, shown: str, tmp_path: Path) -> None:
    """A crash, a missing project, silence."""
    with pytest.raises(pytest.fail.Exception, match=shown):
        ask("gfloat", script(tmp_path, text), [Question({})], tmp_path)


def test_a_project_that_hangs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed."""
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.5)
    with pytest.raises(pytest.fail.Exception, match="gave no answer"):
        ask("gfloat", script(tmp_path, "import time; time.sleep(60)"), [Question({})], tmp_path)


def test_another_version_fails(tmp_path: Path) -> None:
    """The table of disagreements speaks of one version."""
    text = ANSWER.format(folder=str(asking.HERE), version="0.0.1")
    with pytest.raises(AssertionError, match=r"gfloat is 0\.0\.1"):
        ask("gfloat", script(tmp_path, text), [Question({"more": 1}, {"d": [1]})], tmp_path)


def test_a_difference_that_is_not_listed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where, with which inputs, what each says; equal answers are counted all the same."""
    monkeypatch.setattr(comparing, "TALLIES", {})
    theirs, ours = np.array([1, 2, 3], np.uint8), np.array([1, 7, 3], np.uint8)
    shown = r"disagree on 1 of 3 outputs of e4m3 rz,(?s:.*)\(1,\): value 0.5: gfloat 0x2, tcsim 0x7$"
    with pytest.raises(AssertionError, match=shown):
        compare(Answers("gfloat", "e4m3 rz", {"value": np.array([0.25, 0.5, 1.0])}, theirs, ours))
    tally = comparing.TALLIES["gfloat", "tcsim"]
    assert (tally.compared, tally.equal, tally.known.total()) == (3, 2, 0)


def test_a_listed_difference_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on its own inputs: a middle that gfloat rounds to the even code is listed, another value is not."""
    monkeypatch.setattr(comparing, "TALLIES", {})
    theirs, ours = np.array([0, 5], np.uint8), np.array([1, 5], np.uint8)
    assert compare(Answers("gfloat", "ue8m0 rne", {"value": np.array([1.5, 8.0]) * 2.0**-127}, theirs, ours)) == 2
    assert comparing.TALLIES["gfloat", "tcsim"].known == {"ue8m0 ties": 1}
    with pytest.raises(AssertionError, match="disagree on 1 of 2"):
        compare(Answers("gfloat", "ue8m0 rne", {"value": np.array([1.25, 8.0]) * 2.0**-127}, theirs, ours))
