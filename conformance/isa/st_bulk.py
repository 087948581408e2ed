"""st.bulk under test: ranges of zeros in images of shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.images import IMAGE_BYTES
from tcsim.isa.st_bulk import UNIT_BYTES, ZeroFill

Words = npt.NDArray[np.uint32]
_CLASSES = {"": ("ranges", "whole"), "size32": ("shortranges", "shortwhole")}
"""The input classes of each list of operands."""


def _sized(name: str, mistake: str, size: Callable[[int], int]) -> Mutant:
    def run(instruction: ZeroFill, given: Inputs) -> Array:
        out = given["smem"].copy()
        for sample, (at, number) in enumerate(
            zip(given["address"][:, 0].tolist(), given["size"][:, 0].tolist(), strict=True)
        ):
            out[sample, at : at + size(number)] = 0
        return out.view("<u4")

    return Mutant(name, mistake, lambda item: True, run)


class ZeroFillTestbench(Testbench):
    """Images in, images out."""

    count = 16  # images
    mutants = (
        _sized("nothing filled", "the memory stays as it was", lambda size: 0),
        _sized("one unit short", "the last 8 bytes stay", lambda size: max(size - UNIT_BYTES, 0)),
        _sized("size in units", "the size counts pieces of 8 bytes", lambda size: size * UNIT_BYTES),
    )

    def classes(self, instruction: ZeroFill) -> list[str]:
        """Random ranges and all of the image, with a size of 64 bits and of 32."""
        return [name for form in instruction.forms for name in _CLASSES[form.name]]

    def inputs(self, instruction: ZeroFill, name: str, seed: int, samples: int) -> Inputs:
        """smem uint8 (samples, 1024), address and size uint32 (samples, 1), form (samples,)."""
        stream, units = Stream(instruction.mnemonic, name, seed), IMAGE_BYTES // UNIT_BYTES
        size = np.full((samples, 1), units) if name.endswith("whole") else stream.below(units, (samples, 1))
        at = (stream.below(2**20, (samples, 1)) * (units - size + 1)) >> 20
        form = next(place for place, form in enumerate(instruction.forms) if name in _CLASSES[form.name])
        return {
            "smem": stream.words((samples, IMAGE_BYTES // 8)).astype("<u8").view(np.uint8) | np.uint8(1),
            "address": (at * UNIT_BYTES).astype(np.uint32),
            "size": (size * UNIT_BYTES).astype(np.uint32),
            "form": np.full(samples, form, np.uint32),
        }

    def model(self, instruction: ZeroFill, inputs: Inputs) -> Words:
        """The images as words (samples, 256)."""
        cases = zip(inputs["smem"], inputs["address"][:, 0].tolist(), inputs["size"][:, 0].tolist(), strict=True)
        return np.ascontiguousarray([instruction.execute(image, at, size) for image, at, size in cases]).view("<u4")

    def explain(self, instruction: ZeroFill, inputs: Inputs, place: Place) -> Expected:
        """A word of an image."""
        sample, word = place
        at, size = int(inputs["address"][sample, 0]), int(inputs["size"][sample, 0])
        where = {"sample": sample, "address": hex(4 * word)}
        return Expected(where, f"zeros from {at:#x} to {at + size:#x}", (f"size {size}",))


TESTBENCHES = {"st.bulk": ZeroFillTestbench()}
