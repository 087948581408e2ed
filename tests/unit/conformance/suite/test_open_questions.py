"""Questions to a GPU: each is one that the model refuses, its candidates differ, and no answer passes."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.suite import open_questions
from conformance.suite.cases import Settings, Suite
from conformance.suite.hardware import Workshop
from conformance.suite.open_questions import QUESTIONS
from conformance.suite.recordings import RecordingError
from conformance.test_open_questions import outcome
from hwkernels.device.worker import Hang
from hwkernels.probes.cp_async_bulk_tensor import BODY, IMAGE_BYTES
from tcsim.tma.types import NotModelledError
from tests.unit.conformance.suite.test_conformance_live import Imaginary


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_question_is_one(question):
    """No map of it is modelled; the probe takes its inputs; each two candidates disagree on some map."""
    for tmap in question.maps:
        with pytest.raises(NotModelledError):
            tmap.load(np.zeros(8192, np.uint8), (0, 0, 0), np.zeros(IMAGE_BYTES, np.uint8))
    given = open_questions.inputs(question)
    BODY.plan(Suite(Settings("sm_90", "live")).instruction(question.mnemonic).row, given)
    assert (given["expect"] > 0).all() and len(given["maps"]) == len(question.maps)
    said = list(open_questions.answers(question).values())
    different = [(a != b).any() for place, a in enumerate(said) for b in said[:place]]
    assert all(different) and len(different) >= 3


def asked(question, answer, tmp_path, record=False):
    suite = Suite(Settings("sm_90", "live", record=record, root=tmp_path), Imaginary(answer))
    suite.__dict__["workshop"] = Workshop([suite.instruction(question.mnemonic)])
    return outcome(question, suite)


def test_an_answer_is_told_recorded_and_never_passes(tmp_path):
    question = open_questions.find("interleave-16b-swizzle-64b")
    name, right = list(open_questions.answers(question).items())[2]
    found = asked(question, lambda made, given, repeat: [right] * repeat, tmp_path, record=True)
    assert (found.verdict, found.outputs) == ("UNVERIFIED", 0)
    assert f"of 18 maps 18 are as '{name}'" in found.how
    again = outcome(question, Suite(Settings("sm_90", "replay", root=tmp_path)))
    assert again.verdict == "UNVERIFIED" and f"18 are as '{name}'" in again.how and "Imaginary" in again.how
    other = open_questions.find("interleave-16b-swizzle-32b")
    assert outcome(other, Suite(Settings("sm_90", "replay", root=tmp_path))).verdict == "UNTESTED"
    (tmp_path / "sm_90" / "open.interleave-16b-swizzle-64b.npz").rename(
        tmp_path / "sm_90" / "open.interleave-16b-swizzle-32b.npz"
    )
    with pytest.raises(RecordingError, match="other inputs"):
        outcome(other, Suite(Settings("sm_90", "replay", root=tmp_path)))


def test_no_candidate_a_hang_and_an_unsteady_answer_are_told(tmp_path):
    question = open_questions.find("interleave-32b-swizzle-64b")
    right = open_questions.answers(question)["slices packed, swizzled"]
    nothing = asked(question, lambda made, given, repeat: [right * 0] * repeat, tmp_path)
    assert nothing.verdict == "UNVERIFIED" and "0 are as no candidate" in nothing.how
    unsteady = asked(question, lambda made, given, repeat: [right, right + 1], tmp_path)
    assert unsteady.verdict == "UNVERIFIED" and "two runs differ" in unsteady.how

    def never(made, given, repeat):
        raise Hang("no answer", 1.0)

    hung = asked(question, never, tmp_path)
    assert hung.verdict == "UNVERIFIED" and "Hang: " in hung.how
    assert outcome(question, Suite(Settings("sm_100", "replay", root=tmp_path))).verdict == "UNTESTED"


def test_a_question_that_does_not_exist():
    with pytest.raises(ValueError, match="valid: interleave-16b"):
        open_questions.find("what")
