"""The questions to a GPU about wmma's places, with the model, or something a bit worse, in the GPU's place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.suite import wmma_places as ask_places
from conformance.suite.hardware import Hardware
from hwkernels.device.driver import DeviceInfo
from hwkernels.device.worker import ContextLost
from hwkernels.probes.probe import Probe
from tcsim.core.addresses import AddressError
from tcsim.isa.wmma.tile import FragmentMove

GPU = DeviceInfo(0, "Imaginary GPU", "sm_90", "1.2.3", "13.0", 1, 1)


class Imaginary(Hardware):
    """A GPU that takes and computes what the model does; or plain strides, or any place."""

    def __init__(self, plain: bool = False, lenient: bool = False) -> None:
        super().__init__(GPU)
        self.plain, self.lenient = plain, lenient

    def run(self, made: Probe, inputs: dict[str, Any], repeat: int = 1) -> list[np.ndarray]:
        """The result, or a misaligned address."""
        ins = made.instruction
        assert isinstance(ins, FragmentMove) and made.complaint == ""
        made.launch(inputs)
        try:
            answer = ask_places.model(ins, inputs)
        except AddressError as error:
            if self.lenient:
                return [np.zeros(1, np.uint32)]
            raise ContextLost("CUDA_ERROR_MISALIGNED_ADDRESS") from error
        if self.plain:
            answer[inputs["stride"] % 2 == 1] ^= np.uint32(1)
        return [answer]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows."""
    every = ask_places.instructions("sm_90")
    monkeypatch.setattr(ask_places, "instructions", lambda arch: every[::60])


def test_a_gpu_that_agrees() -> None:
    answers = ask_places.ask(Imaginary(), 60, 0)
    assert answers.places > 100 and not answers.wrong and not answers.silent and not answers.not_asked
    assert len(answers.faulted) >= 5


def test_a_gpu_that_does_not() -> None:
    assert len(ask_places.ask(Imaginary(plain=True), 60, 0).wrong) >= 5
    answers = ask_places.ask(Imaginary(lenient=True), 60, 0)
    assert len(answers.silent) >= 5 and not answers.faulted


def test_time_runs_out() -> None:
    answers = ask_places.ask(Imaginary(), 0, 0)
    assert answers.places and not answers.faulted and len(answers.not_asked) >= 5
