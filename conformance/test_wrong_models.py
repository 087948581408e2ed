"""The committed cases can tell the model from every named wrong one: recorded hardware results contradict each."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.isa import exercise_of
from conformance.slice import result_digest
from conformance.suite.cases import Suite


def test_wrong_models(recorded: str, suite: Suite) -> None:
    """Each wrong model that applies to the instruction disagrees with the hardware somewhere."""
    instruction, recording = suite.instruction(recorded), suite.recording(recorded)
    if recording is None:
        raise ValueError(f"{recorded} has no recording")
    exercise = exercise_of(instruction.row.family)
    alive = {model.name: model for model in exercise.wrong_models if model.applies(instruction)}
    applicable = len(alive)
    for (name, seed), hardware in recording.results.items():
        case = recording.cases[name, seed]
        inputs = exercise.inputs(instruction, name, seed, case.samples)
        for model in list(alive.values()):
            answer = model.run(instruction, inputs)
            digest = case.result_sha256
            if result_digest(answer) != digest if digest else not np.array_equal(answer, hardware):
                del alive[model.name]
        if not alive:
            break
    if alive:
        survivors = "; ".join(f"{model.name} ({model.mistake})" for model in alive.values())
        pytest.fail(f"{recorded}: {len(alive)} of {applicable} wrong models survive every recorded case: {survivors}")
