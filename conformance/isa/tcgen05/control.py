"""Exercises of tcgen05.alloc, dealloc, relinquish_alloc_permit and commit: addresses, and completed barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison.words import compare_words
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli.stream import Stream
from tcsim.isa.tcgen05.control import Commit
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import TensorMemory

Words = npt.NDArray[np.uint32]
PAIRS = ((512, 512), (256, 256), (256, 32), (128, 64), (64, 32), (32, 32))
"""Columns of two allocations one after the other; the first only where they need not live together."""


def _held(instruction: Any) -> bool:
    """Whether the probe has both allocations at once."""
    return bool(instruction.row.operation == "alloc" and not instruction.row.exclusive)


class AllocationExercise:
    """Columns in, addresses out."""

    wrong_models: tuple[WrongModel, ...] = (
        WrongModel(
            "from the top",
            "an alloc takes the highest free columns",
            _held,
            lambda i, given: (
                (512 - np.cumsum(given["columns"].astype(np.int64), axis=-1)).astype(np.uint32)[:, None]
                + np.zeros((1, i.row.cta_group, 1), np.uint32)
            ),
        ),
    )

    def classes(self, instruction: Any) -> list[str]:
        """Sizes."""
        return ["sizes"]

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

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Address by address."""

        def explain(index: tuple[int, ...]) -> tuple[str, str, tuple[str, ...]]:
            sample, cta, place = index
            columns = inputs["columns"][sample].tolist()
            return f"sample {sample} CTA {cta} allocation {place}", f"columns {columns}", ("the lowest free, aligned",)

        return compare_words(hardware, model, explain)


def _completed(instruction: Commit, masks: Array) -> Words:
    out = np.empty((len(masks), 2), np.uint32)
    for sample, mask in enumerate(masks):
        after = instruction.execute([MBarrier(1), MBarrier(1)], mask=int(mask) if instruction.row.mask_bits else None)
        out[sample] = [barrier.phase for barrier in after]
    return out


class CommitExercise:
    """Masks in, completed phases out."""

    wrong_models: tuple[WrongModel, ...] = (
        WrongModel(
            "mask ignored",
            "only the committing CTA's barrier gets the arrival",
            lambda i: bool(i.row.mask_bits),
            lambda i, given: np.tile(np.array([1, 0], np.uint32), (len(given["mask"]), 1)),
        ),
        WrongModel(
            "mask mirrored",
            "bit 0 of the mask is the last CTA",
            lambda i: bool(i.row.mask_bits),
            lambda i, given: _completed(i, given["mask"] >> 1 | (given["mask"] & 1) << 1),
        ),
    )

    def classes(self, instruction: Commit) -> list[str]:
        """Masks."""
        return ["masks"]

    def samples(self, instruction: Commit, name: str) -> int:
        """Every mask of two CTAs but none."""
        return 3

    def inputs(self, instruction: Commit, name: str, seed: int, samples: int) -> Inputs:
        """mask uint32 (samples,)."""
        first = int(Stream(instruction.mnemonic, name, seed).below(3, (1,))[0])
        return {"mask": ((first + np.arange(samples)) % 3 + 1).astype(np.uint32)}

    def model(self, instruction: Commit, inputs: Inputs) -> Words:
        """Whether each CTA's first phase is complete (samples, 2)."""
        return _completed(instruction, inputs["mask"])

    def compare(self, instruction: Commit, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Barrier by barrier."""

        def explain(index: tuple[int, ...]) -> tuple[str, str, tuple[str, ...]]:
            sample, cta = index
            return (
                f"sample {sample} CTA {cta}",
                f"mask {int(inputs['mask'][sample]):#x}",
                ("1: its first phase is complete",),
            )

        return compare_words(hardware, model, explain)


ALLOCATION = AllocationExercise()
COMMIT = CommitExercise()

EXERCISES = {"tcgen05.alloc": ALLOCATION, "tcgen05.commit": COMMIT}
