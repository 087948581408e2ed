"""redux.sync under test: words and masks in, what every member gets out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.redux import ABSENT
from tcsim.isa.redux import LANES, ReduceLanes, ReductionRow

Words = npt.NDArray[np.uint32]
_CORNERS = (
    0, 1, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF, 0x007F_FFFF, 0x807F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7F80_0001,
    0x3F80_0000,
)  # fmt: skip
"""Ends of the integers; of f32 also zeros, subnormal numbers, infinities and NaNs."""


def answer(instruction: ReduceLanes, inputs: Inputs) -> Words:
    """What the lanes store (samples, 32)."""
    members = inputs["membermask"][:, None] >> np.arange(LANES, dtype=np.uint32) & 1
    reduced = instruction.execute(inputs["a"], inputs["membermask"])
    return np.where(members != 0, reduced[:, None], np.uint32(ABSENT)).astype(np.uint32)


def _changed(
    name: str, mistake: str, applies: Callable[[ReductionRow], bool], change: Callable[[ReductionRow], ReductionRow]
) -> Mutant:
    """The instruction with another row."""

    def run(instruction: ReduceLanes, given: Inputs) -> Array:
        return answer(replace(instruction, row=change(instruction.row)), given)

    return Mutant(name, mistake, lambda item: applies(item.row), run)


def _all_lanes(instruction: ReduceLanes, given: Inputs) -> Array:
    members = given["membermask"][:, None] >> np.arange(LANES, dtype=np.uint32) & 1
    return np.where(members != 0, instruction.execute(given["a"])[:, None], np.uint32(ABSENT)).astype(np.uint32)


def _swapped(row: ReductionRow) -> ReductionRow:
    other = {"min": "max", "max": "min", "and": "or", "or": "xor", "xor": "or", "add": "or"}
    return replace(row, op=other[row.op])


def _resigned(row: ReductionRow) -> ReductionRow:
    return replace(row, type={"s32": "u32", "u32": "s32"}[row.type])


class LaneReductionTestbench(Testbench):
    """a and membermask in; the members' result out."""

    names, count = ("full", "masks", "single", "corners"), 64
    mutants = (
        _changed("another operation", "the lanes' words are put together in another way", lambda row: True, _swapped),
        _changed(
            "signed", "words are ordered with a sign where they have none, or without where they have one",
            lambda row: row.op in ("min", "max") and row.type != "f32", _resigned,
        ),
        Mutant("mask ignored", "lanes outside the mask count as well", lambda item: True, _all_lanes),
        _changed("NaN", "whether a NaN is the result", lambda row: row.type == "f32", lambda row: replace(row, nan=not row.nan)),
        _changed("abs", "whether signs count", lambda row: row.type == "f32", lambda row: replace(row, absolute=not row.absolute)),
    )  # fmt: skip

    def inputs(self, instruction: ReduceLanes, name: str, seed: int, samples: int) -> Inputs:
        """a uint32 (samples, 32), membermask uint32 (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        words = stream.words((samples, LANES)).astype(np.uint32)
        masks = stream.words((samples,)).astype(np.uint32)
        few = masks & stream.words((samples,)).astype(np.uint32) & stream.words((samples,)).astype(np.uint32)
        masks = np.where(stream.chance(1, 2, (samples,)), masks, few)
        lane = stream.below(LANES, (samples,)).astype(np.uint32)
        if name == "full":
            masks = np.full(samples, 0xFFFF_FFFF, np.uint32)
        elif name == "corners":
            words = stream.choice(np.array(_CORNERS, np.uint32), (samples, LANES))
        single = np.uint32(1) << lane
        masks = np.where((masks == 0) | (name == "single"), single, masks).astype(np.uint32)
        return {"a": words, "membermask": masks}

    def model(self, instruction: ReduceLanes, inputs: Inputs) -> Words:
        """What each lane stores: uint32 (samples, 32)."""
        return answer(instruction, inputs)

    def explain(self, instruction: ReduceLanes, inputs: Inputs, place: Place) -> Expected:
        """The word of a lane."""
        sample, lane = place
        mask = int(inputs["membermask"][sample])
        member = "of the members" if mask >> lane & 1 else "the lane is not in the mask"
        words = " ".join(f"{word:#x}" for each, word in enumerate(inputs["a"][sample].tolist()) if mask >> each & 1)
        source = f"{instruction.row.op} {member}, membermask {mask:#010x}"
        return Expected({"sample": sample, "lane": lane}, source, (f"of {words}",))


TESTBENCHES = {"redux.sync": LaneReductionTestbench()}
