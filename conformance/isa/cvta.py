"""cvta.param under test: the parameters of a kernel, read through addresses that it made."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Mutant, Testbench
from hwkernels.probes.cvta import NUMBERS
from tcsim.isa.cvta import WINDOW, ConvertAddress

Words = npt.NDArray[np.uint32]


def answer(instruction: ConvertAddress, inputs: Inputs, window: int = WINDOW) -> Words:
    """What is read (8, 2): generic addresses begin at WINDOW, whatever the instruction takes for it."""
    image = np.zeros(NUMBERS, np.uint64)
    image[: len(inputs["given"])] = inputs["given"]
    own = 8 * np.arange(NUMBERS, dtype=np.uint64)
    back = instruction.row.operation == "to"
    converted = instruction.execute(own + np.uint64(WINDOW if back else 0), window)
    place = (converted if back else converted - np.uint64(WINDOW)).astype(np.int64)
    return image[place // 8 % NUMBERS].view(np.uint32).reshape(NUMBERS, 2)


class ParameterTestbench(Testbench):
    """Numbers in, numbers out."""

    count = NUMBERS
    mutants = (
        Mutant(
            "next parameter",
            "addresses are 8 bytes off",
            lambda item: True,
            lambda item, given: answer(item, given, WINDOW + 8),
        ),
    )

    def classes(self, instruction: ConvertAddress) -> list[str]:
        """An address in a register; the name of a parameter."""
        return ["variable" if form.name else "register" for form in instruction.forms]

    def inputs(self, instruction: ConvertAddress, name: str, seed: int, samples: int) -> Inputs:
        """given uint64 (samples,), form (samples,)."""
        form = np.full(samples, int(name == "variable"), np.uint32)
        return {"given": Stream(instruction.mnemonic, name, seed).words((samples,)), "form": form}

    def model(self, instruction: ConvertAddress, inputs: Inputs) -> Words:
        """uint32 (8, 2)."""
        return answer(instruction, inputs)

    def explain(self, instruction: ConvertAddress, inputs: Inputs, place: Place) -> Expected:
        """A word of a parameter."""
        return Expected({"parameter": place[0], "word": place[1]}, "what was passed")


TESTBENCHES = {"cvta.param": ParameterTestbench()}
