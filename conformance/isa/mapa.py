"""The exercise of mapa: values read through mapped addresses, and how far those are from a lane's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison.words import compare_words
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli.stream import Stream
from hwkernels.probes.images import LANES
from hwkernels.probes.mapa import BLOCKS, IMAGE_WORDS, WORDS
from tcsim.isa.mapa import RANK_SHIFT, MapAddress, rank_of

Words = npt.NDArray[np.uint32]
SAMPLES = 16
_WINDOW = 0x7F00_0000_0000
"""Where shared memory begins in the generic address space; no result depends on it, but that its lower 32 bits are zero."""


def answer(instruction: MapAddress, inputs: Inputs, ranks: Words, offsets: Words) -> Words:
    """What lanes store (samples, 4, 32, 3) that ask for these ranks and offsets."""
    own = np.arange(BLOCKS, dtype=np.uint64)[:, None]
    near = (
        np.uint64(_WINDOW if instruction.row.generic else 0)
        + (own << np.uint64(RANK_SHIFT))
        + offsets.astype(np.uint64)
    )
    if instruction.row.bits == 32:
        low = near & np.uint64(0xFFFF_FFFF)
        mapped = instruction.execute(low, ranks).astype(np.uint64)
        difference = mapped - low & np.uint64(0xFFFF_FFFF)
    else:
        mapped = instruction.execute(near, ranks).astype(np.uint64)
        difference = mapped - near
    out = np.empty((*ranks.shape, WORDS), np.uint32)
    sample = np.arange(len(ranks))[:, None, None]
    out[..., 0] = inputs["images"][
        sample, rank_of(mapped), (mapped & np.uint64((1 << RANK_SHIFT) - 1)).astype(int) // 4
    ]
    out[..., 1], out[..., 2] = difference & np.uint64(0xFFFF_FFFF), difference >> np.uint64(32)
    return out


def _asked(ranks: str, offsets: str = "as given") -> WrongModel:
    own = np.arange(BLOCKS, dtype=np.uint32)[:, None]

    def run(instruction: MapAddress, given: Inputs) -> Array:
        rank = {"own": given["rank"] * 0 + own, "as given": given["rank"], "relative": (given["rank"] + own) % BLOCKS}[
            ranks
        ]
        return answer(
            instruction,
            given,
            rank.astype(np.uint32),
            given["offset"] if offsets == "as given" else given["offset"] * 0,
        )

    names = {
        ("own", "as given"): ("rank ignored", "the address stays in the lane's own block"),
        ("relative", "as given"): ("rank relative", "the rank counts from the lane's own block"),
        ("as given", "lost"): ("offset lost", "every address becomes the first one of the block"),
    }
    return WrongModel(*names[ranks, offsets], lambda item: True, run)


class ClusterAddressExercise:
    """Offsets and ranks in; values and differences out."""

    wrong_models: tuple[WrongModel, ...] = (_asked("own"), _asked("relative"), _asked("as given", "lost"))

    def classes(self, instruction: MapAddress) -> list[str]:
        """Random places in all blocks."""
        return ["places"]

    def samples(self, instruction: MapAddress, name: str) -> int:
        """Clusters."""
        return SAMPLES

    def inputs(self, instruction: MapAddress, name: str, seed: int, samples: int) -> Inputs:
        """images uint32 (samples, 4, 64), offset (bytes) and rank uint32 (samples, 4, 32)."""
        stream = Stream(instruction.mnemonic, name, seed)
        return {
            "images": stream.words((samples, BLOCKS, IMAGE_WORDS)).astype(np.uint32),
            "offset": (4 * stream.below(IMAGE_WORDS, (samples, BLOCKS, LANES))).astype(np.uint32),
            "rank": stream.below(BLOCKS, (samples, BLOCKS, LANES)).astype(np.uint32),
        }

    def model(self, instruction: MapAddress, inputs: Inputs) -> Words:
        """Value, and the difference of the addresses in two words: uint32 (samples, 4, 32, 3)."""
        return answer(instruction, inputs, inputs["rank"], inputs["offset"])

    def compare(self, instruction: MapAddress, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Word by word."""

        def explain(index: tuple[int, ...]) -> tuple[str, str, tuple[str, ...]]:
            sample, block, lane, word = index
            asked = f"offset {int(inputs['offset'][sample, block, lane]):#x} of block {int(inputs['rank'][sample, block, lane])}"
            what = ("the value there", "address less own, low word", "address less own, high word")[word]
            return (
                f"sample {sample} block {block} lane {lane}",
                f"{what}: {asked}",
                (f"bits 24 to 31 become the rank: {asked}",),
            )

        return compare_words(hardware, model, explain)


ADDRESS = ClusterAddressExercise()

EXERCISES = {"mapa": ADDRESS}
