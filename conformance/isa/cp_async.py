"""cp.async under test: images of memory, the addresses and sizes of every thread, groups and barriers that wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.isa.copies import Copies, class_of, random_bytes
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs
from hwkernels.probes.cp_async import MEMORY_BYTES
from hwkernels.probes.images import IMAGE_BYTES, LANES
from tcsim.isa.copies import CopyInstruction
from tcsim.memory.mbarrier import MBarrier


class AsyncTestbench(Copies):
    """cp.async by every thread of a warp."""

    def classes(self, instruction: CopyInstruction) -> list[str]:
        """One for each list of operands."""
        return [class_of(form) for form in instruction.forms]

    def inputs(self, instruction: CopyInstruction, name: str, seed: int, samples: int) -> Inputs:
        """Images uint8, and source, destination, reads uint32 (samples, 32); size and form uint32 (samples, 1), (samples,).

        `reads` is what the kernel gets: the source size, or whether the source is ignored; `taken` is how many bytes that is.
        """
        stream, forms = Stream(instruction.mnemonic, name, seed), instruction.row.forms
        place = next(at for at, form in enumerate(forms) if class_of(form) == name)
        width = forms[place]["size"].values[0] if "size" in forms[place] else 16
        lines = np.argsort(stream.words((samples, IMAGE_BYTES // width)), axis=1)[:, :LANES]
        reads = np.zeros((samples, LANES), np.uint32)
        taken = np.full((samples, LANES), width, np.int64)
        if "source_size" in forms[place]:
            taken = stream.below(width + 1, (samples, LANES))
            reads = taken.astype(np.uint32)
        elif "ignore" in forms[place]:
            skip = stream.chance(1, 2, (samples, LANES))
            reads, taken = skip.astype(np.uint32), np.where(skip, np.int64(0), np.int64(width))
        return {
            "memory": random_bytes(stream, (samples, MEMORY_BYTES)),
            "smem": random_bytes(stream, (samples, IMAGE_BYTES)),
            "source": (stream.below(MEMORY_BYTES // width, (samples, LANES)) * width).astype(np.uint32),
            "destination": (lines * width).astype(np.uint32),
            "reads": reads,
            "taken": taken.astype(np.uint32),
            "size": np.full((samples, 1), width, np.uint32),
            "form": np.full(samples, place, np.uint32),
        }

    def model(self, instruction: CopyInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """The new shared memory as words (samples, 256)."""
        item: Any = instruction
        row, form = instruction.row, instruction.row.forms[int(inputs["form"][0])]
        given: dict[str, Any] = {name: inputs[name] for name in ("memory", "smem", "source", "destination")}
        given["size"] = int(inputs["size"][0, 0])
        if row.operation == "copy":
            if "source_size" in form:
                given["source_size"] = inputs["reads"]
            if "ignore" in form:
                given["ignore"] = inputs["reads"] != 0
            return item.execute(**given).view("<u4")
        if row.operation == "arrive" and not self._passes(item):
            return np.zeros((len(inputs["form"]), IMAGE_BYTES // 4), np.uint32)
        copy = tcsim.instruction("cp.async.ca.shared.global", arch=instruction.arch.name)
        return copy.execute(**given).view("<u4")

    @staticmethod
    def _passes(item: Any) -> bool:
        """Whether the phase that the kernel waits for ends."""
        barrier = MBarrier(LANES)
        for _ in range(LANES):
            barrier = item.execute(barrier)
            if item.row.increments:
                barrier.arrive()
        return barrier.phase == 1


TESTBENCHES = {"cp.async": AsyncTestbench()}
