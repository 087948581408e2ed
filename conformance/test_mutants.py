"""The committed cases can tell the model from every mutant: recorded hardware results contradict each."""

from __future__ import annotations

import numpy as np
import pytest

from conformance import isa
from conformance.suite.cases import Suite
from conformance.suite.recordings import result_digest


def test_mutants(recorded: str, suite: Suite) -> None:
    """Each mutant that applies to the instruction disagrees with the hardware somewhere."""
    instruction, recording = suite.instruction(recorded), suite.recording(recorded)
    if recording is None:
        raise ValueError(f"{recorded} has no recording")
    testbench = isa.testbench_of(instruction.row.family)
    alive = {mutant.name: mutant for mutant in testbench.mutants if mutant.applies(instruction)}
    applicable = len(alive)
    for (name, seed), hardware in recording.results.items():
        case = recording.cases[name, seed]
        inputs = testbench.inputs(instruction, name, seed, case.samples)
        for mutant in list(alive.values()):
            answer = mutant.run(instruction, inputs)
            digest = case.result_sha256
            if result_digest(answer) != digest if digest else not np.array_equal(answer, hardware):
                del alive[mutant.name]
        if not alive:
            break
    if alive:
        survivors = "; ".join(f"{mutant.name} ({mutant.mistake})" for mutant in alive.values())
        pytest.fail(f"{recorded}: {len(alive)} of {applicable} mutants survive every recorded case: {survivors}")
