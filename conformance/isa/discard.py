"""discard and applypriority under test: what is in the lines around, and in the line once it is written again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Mutant, Testbench
from hwkernels.probes.discard import LINES
from hwkernels.probes.images import LANES
from tcsim.isa.discard import DISCARD, PRIORITY, SIZE

Words = npt.NDArray[np.uint32]


def answer(instruction: Any, inputs: Inputs, widened: int = 0, written: bool = True) -> Words:
    """The lines (samples, 4, 32); what discard leaves open is zero before it is written again, on `widened` lines more."""
    out = inputs["words"].copy()
    for sample, line in enumerate(inputs["line"].tolist()):
        image = out[sample].reshape(-1).view(np.uint8)
        if instruction.row.family == DISCARD:
            lines = [SIZE * (each % LINES) for each in range(line, line + 1 + widened)]
            image[instruction.execute(image, lines)] = 0
            if written:
                out[sample, line] = inputs["news"][sample]
        else:
            image[:] = instruction.execute(image, [SIZE * line])
            if not written:
                out[sample, line] = 0
    return out


class CacheHintTestbench(Testbench):
    """Lines in, lines out."""

    names, count = ("lines",), 64  # warps
    mutants = (
        Mutant(
            "256 bytes", "discard loses two lines", lambda item: item.row.family == DISCARD,
            lambda item, given: answer(item, given, widened=1),
        ),
        Mutant("line lost", "the line reads as zero", lambda item: True, lambda item, given: answer(item, given, written=False)),
    )  # fmt: skip

    def kept(self, instruction: Any, name: str) -> int:
        """Two warps."""
        return 2

    def outputs(self, instruction: Any, samples: int) -> int:
        """Words."""
        return samples * LINES * LANES

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """words uint32 (samples, 4, 32), news uint32 (samples, 32), line uint32 (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        return {
            "words": stream.words((samples, LINES, LANES)).astype(np.uint32),
            "news": stream.words((samples, LANES)).astype(np.uint32),
            "line": stream.below(LINES, (samples,)).astype(np.uint32),
        }

    def model(self, instruction: Any, inputs: Inputs) -> Words:
        """uint32 (samples, 4, 32)."""
        return answer(instruction, inputs)

    def explain(self, instruction: Any, inputs: Inputs, place: Place) -> Expected:
        """A word of a line."""
        sample, line, word = place
        hinted = "the line of the hint" if line == int(inputs["line"][sample]) else "another line"
        return Expected({"sample": sample, "line": line, "word": word}, hinted)


TESTBENCHES = {DISCARD: CacheHintTestbench(), PRIORITY: CacheHintTestbench()}
