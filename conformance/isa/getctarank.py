"""getctarank under test: ranks that addresses were mapped into, and the ranks that are read from them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Mutant, Testbench
from hwkernels.probes.getctarank import BLOCKS, IMAGE_WORDS
from hwkernels.probes.images import LANES
from tcsim.isa.getctarank import RankOfAddress

Words = npt.NDArray[np.uint32]


def answer(instruction: RankOfAddress, inputs: Inputs, shift: int = 24) -> Words:
    """The ranks (samples, 4, 32) of addresses that hold the rank from a bit on."""
    return instruction.execute(
        inputs["rank"].astype(np.uint64) << np.uint64(shift) | inputs["offset"].astype(np.uint64)
    )


class RankTestbench(Testbench):
    """Offsets and ranks in, ranks out."""

    names, count = ("places",), 16  # clusters
    mutants = (
        Mutant(
            "a bit lower",
            "the rank stands one bit lower",
            lambda item: True,
            lambda item, given: answer(item, given, 23),
        ),
        Mutant(
            "a bit higher",
            "the rank stands one bit higher",
            lambda item: True,
            lambda item, given: answer(item, given, 25),
        ),
    )

    def inputs(self, instruction: RankOfAddress, name: str, seed: int, samples: int) -> Inputs:
        """offset (bytes) and rank uint32 (samples, 4, 32)."""
        stream, shape = Stream(instruction.mnemonic, name, seed), (samples, BLOCKS, LANES)
        return {
            "offset": (4 * stream.below(IMAGE_WORDS, shape)).astype(np.uint32),
            "rank": stream.below(BLOCKS, shape).astype(np.uint32),
        }

    def model(self, instruction: RankOfAddress, inputs: Inputs) -> Words:
        """uint32 (samples, 4, 32)."""
        return answer(instruction, inputs)

    def explain(self, instruction: RankOfAddress, inputs: Inputs, place: Place) -> Expected:
        """The rank of a lane's address."""
        where = dict(zip(("sample", "block", "lane"), place, strict=True))
        return Expected(
            where, f"rank of offset {int(inputs['offset'][place]):#x} in block {int(inputs['rank'][place])}"
        )


TESTBENCHES = {"getctarank": RankTestbench()}
