"""mapa under test: values read through mapped addresses, and how far those are from a lane's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.images import LANES
from hwkernels.probes.mapa import BLOCKS, IMAGE_WORDS, WORDS
from tcsim.isa.mapa import RANK_SHIFT, MapAddress, rank_of

Words = npt.NDArray[np.uint32]
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


def _asked(ranks: str, offsets: str = "as given") -> Mutant:
    own = np.arange(BLOCKS, dtype=np.uint32)[:, None]

    def run(instruction: MapAddress, given: Inputs) -> Array:
        rank, offset = given["rank"], given["offset"]
        asked = {"own": rank * 0 + own, "as given": rank, "relative": (rank + own) % BLOCKS}[ranks]
        return answer(instruction, given, asked.astype(np.uint32), offset if offsets == "as given" else offset * 0)

    names = {
        ("own", "as given"): ("rank ignored", "the address stays in the lane's own block"),
        ("relative", "as given"): ("rank relative", "the rank counts from the lane's own block"),
        ("as given", "lost"): ("offset lost", "every address becomes the first one of the block"),
    }
    return Mutant(*names[ranks, offsets], lambda item: True, run)


class ClusterAddressTestbench(Testbench):
    """Offsets and ranks in; values and differences out."""

    names, count = ("places",), 16  # clusters
    mutants = (_asked("own"), _asked("relative"), _asked("as given", "lost"))

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

    def explain(self, instruction: MapAddress, inputs: Inputs, place: Place) -> Expected:
        """One of the three words of a lane."""
        *lane, word = place
        offset, rank = (int(inputs[name][tuple(lane)]) for name in ("offset", "rank"))
        asked = f"offset {offset:#x} of block {rank}"
        what = ("the value there", "address less own, low word", "address less own, high word")[word]
        where = dict(zip(("sample", "block", "lane"), lane, strict=True))
        return Expected(where, f"{what}: {asked}", (f"bits 24 to 31 become the rank: {asked}",))


TESTBENCHES = {"mapa": ClusterAddressTestbench()}
