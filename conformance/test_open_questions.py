"""What no source says about tensor copies: asked of a GPU, reported, never counted as compared."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.suite import open_questions
from conformance.suite.cases import Outcome, Suite
from conformance.suite.hardware import NoAssembler, Unassembled
from conformance.suite.open_questions import QUESTIONS, Question
from hwkernels.device.worker import ContextLost, Hang


@pytest.mark.parametrize("name", [question.name for question in QUESTIONS])
def test_open_questions(name: str, suite: Suite, conclude: Any) -> None:
    """What a copy that is not modelled does, next to candidates: UNVERIFIED whatever comes out."""
    question = open_questions.find(name)
    conclude("open questions", question.name, outcome(question, suite))


def outcome(question: Question, suite: Suite) -> Outcome:
    """Ask the GPU, or read what one answered; nothing is compared with a model, because none exists."""
    settings = suite.settings
    if settings.arch != "sm_90":
        return Outcome("UNTESTED", how="asked of sm_90 only")
    if settings.mode == "live" and suite.hardware is not None:
        instruction = suite.instruction(question.mnemonic)
        try:
            made = suite.workshop.probe(instruction, instruction.targets[0])
            results = suite.hardware.run(made, open_questions.inputs(question), repeat=2)
        except (Hang, ContextLost) as error:
            return Outcome("UNVERIFIED", how=f"{question.asked}: {type(error).__name__}: {error}".partition("\n")[0])
        except (NoAssembler, Unassembled) as error:
            return Outcome("UNTESTED", how=str(error))
        if (results[0] != results[1]).any():
            return Outcome("UNVERIFIED", how=f"{question.asked}: two runs differ")
        found, how = results[0], suite.hardware.text
        if settings.record:
            suite.written.append(open_questions.record(question, settings.arch, found, how, settings.root))
    else:
        recorded = open_questions.replay(question, settings.arch, settings.root)
        if recorded is None:
            return Outcome("UNTESTED", how=f"{question.asked}: waits for a GPU")
        found, how = recorded
    return Outcome("UNVERIFIED", how=f"{open_questions.report(question, found)}; {how}")
