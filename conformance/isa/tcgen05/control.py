"""tcgen05.alloc, dealloc, relinquish_alloc_permit and commit under test: addresses, and completed barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from tcsim.isa.tcgen05.control import Commit
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import TensorMemory

Words = npt.NDArray[np.uint32]
PAIRS = ((512, 512), (256, 256), (256, 32), (128, 64), (64, 32), (32, 32))
"""Columns of two allocations one after the other; the first only where they need not live together."""


def _held(instruction: Any) -> bool:
    """Whether the probe has both allocations at once."""
    return bool(instruction.row.operation == "alloc" and not instruction.row.exclusive)


class AllocationTestbench(Testbench):
    """Columns in, addresses out."""

    names = ("sizes",)
    mutants = (
        Mutant(
            "from the top",
            "an alloc takes the highest free columns",
            _held,
            lambda i, given: (
                (512 - np.cumsum(given["columns"].astype(np.int64), axis=-1)).astype(np.uint32)[:, None]
                + np.zeros((1, i.row.cta_group, 1), np.uint32)
            ),
        ),
    )

    def samples(self, instruction: Any, name: str) -> int:
        """Every pair of sizes."""
        return len(PAIRS) - _held(instruction)

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """columns uint32 (samples, 2), beginning at another pair for another seed."""
        pairs = PAIRS[1:] if _held(instruction) else PAIRS
        return {"columns": np.array([pairs[(i + seed) % len(pairs)] for i in range(samples)], np.uint32).reshape(-1, 2)}

    def model(self, instruction: Any, inputs: Inputs) -> Words:
        """Addresses (samples, ctas, 2)."""
        group, exclusive = instruction.row.cta_group, instruction.row.exclusive
        out = np.empty((len(inputs["columns"]), group, 2), np.uint32)
        for sample, columns in enumerate(inputs["columns"]):
            tmem = TensorMemory(ctas=group)
            for place, count in enumerate(columns):
                out[sample, :, place] = address = tmem.alloc(int(count), cta_group=group, exclusive=exclusive)
                if not _held(instruction):
                    tmem.dealloc(address, int(count), cta_group=group, exclusive=exclusive)
        return out

    def explain(self, instruction: Any, inputs: Inputs, place: Place) -> Expected:
        """An address."""
        where = dict(zip(("sample", "CTA", "allocation"), place, strict=True))
        return Expected(where, f"columns {inputs['columns'][place[0]].tolist()}", ("the lowest free, aligned",))


def _completed(instruction: Commit, masks: Array) -> Words:
    out = np.empty((len(masks), 2), np.uint32)
    for sample, mask in enumerate(masks):
        after = instruction.execute([MBarrier(1), MBarrier(1)], mask=int(mask) if instruction.row.mask_bits else None)
        out[sample] = [barrier.phase for barrier in after]
    return out


class CommitTestbench(Testbench):
    """Masks in, completed phases out."""

    names, count = ("masks",), 3  # every mask of two CTAs but none
    mutants = (
        Mutant(
            "mask ignored",
            "only the committing CTA's barrier gets the arrival",
            lambda i: bool(i.row.mask_bits),
            lambda i, given: np.tile(np.array([1, 0], np.uint32), (len(given["mask"]), 1)),
        ),
        Mutant(
            "mask mirrored",
            "bit 0 of the mask is the last CTA",
            lambda i: bool(i.row.mask_bits),
            lambda i, given: _completed(i, given["mask"] >> 1 | (given["mask"] & 1) << 1),
        ),
    )

    def inputs(self, instruction: Commit, name: str, seed: int, samples: int) -> Inputs:
        """mask uint32 (samples,)."""
        first = int(Stream(instruction.mnemonic, name, seed).below(3, (1,))[0])
        return {"mask": ((first + np.arange(samples)) % 3 + 1).astype(np.uint32)}

    def model(self, instruction: Commit, inputs: Inputs) -> Words:
        """Whether each CTA's first phase is complete (samples, 2)."""
        return _completed(instruction, inputs["mask"])

    def explain(self, instruction: Commit, inputs: Inputs, place: Place) -> Expected:
        """A CTA's barrier."""
        sample, cta = place
        mask = f"mask {int(inputs['mask'][sample]):#x}"
        return Expected({"sample": sample, "CTA": cta}, mask, ("1: its first phase is complete",))
