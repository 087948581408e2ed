"""createpolicy under test: fractions, addresses and sizes in, the two words of a policy out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.createpolicy import WORDS
from tcsim.isa.createpolicy import CreatePolicy, PolicyRow

Words = npt.NDArray[np.uint32]
_ONE = 0x3F80_0000
_CLASSES = {"fractional": ("whole", "fractions"), "range": ("sizes", "edges", "empty"), "cvt": ("properties",)}
_OTHER = {
    "evict_first": "evict_last", "evict_last": "evict_normal", "evict_normal": "evict_unchanged", "evict_unchanged": "evict_first",
}  # fmt: skip


def answer(instruction: Any, inputs: Inputs, whole: bool = False, moved: int = 0) -> Words:
    """The policies as two words (samples, 2)."""
    words = inputs["words"]
    wide = words[:, 4].astype(np.uint64) | words[:, 5].astype(np.uint64) << np.uint64(32)
    if instruction.row.operation == "fractional":
        takes = "fraction" in instruction.forms[int(inputs["form"][0])]
        found = instruction.execute(words[:, 0] if takes and not whole else np.full(len(words), _ONE, np.uint32))
    elif instruction.row.operation == "range":
        found = instruction.execute(wide + np.uint64(moved), words[:, 1], words[:, 2])
    else:
        found = instruction.execute(wide)
    return np.ascontiguousarray(found).view(np.uint32).reshape(-1, 2)


def _levels(name: str, mistake: str, field: str) -> Mutant:
    def run(instruction: CreatePolicy, given: Inputs) -> Array:
        row: PolicyRow = instruction.row
        if field == "primary":
            changed = replace(row, primary=_OTHER[row.primary])
        else:
            changed = replace(row, secondary="evict_unchanged" if row.secondary == "evict_first" else "evict_first")
        return answer(replace(instruction, row=changed), given)

    return Mutant(name, mistake, lambda item: item.row.operation != "cvt", run)


class PolicyTestbench(Testbench):
    """Words in, policies out."""

    count = 64
    mutants = (
        _levels("another priority", "the primary priority is that of another name", "primary"),
        _levels("secondary", "the secondary priority is the other one", "secondary"),
        Mutant(
            "fraction ignored", "all of the accesses have the primary priority",
            lambda item: item.row.operation == "fractional", lambda item, given: answer(item, given, whole=True),
        ),
        Mutant(
            "a block further", "the range begins 2**12 bytes later",
            lambda item: item.row.operation == "range", lambda item, given: answer(item, given, moved=1 << 12),
        ),
        Mutant(
            "property halves", "the words of an access property are swapped", lambda item: item.row.operation == "cvt",
            lambda item, given: answer(item, {**given, "words": given["words"][:, [0, 1, 2, 3, 5, 4]]}),
        ),
    )  # fmt: skip

    def classes(self, instruction: CreatePolicy) -> list[str]:
        """Those of the operation."""
        return list(_CLASSES[instruction.row.operation])

    def inputs(self, instruction: CreatePolicy, name: str, seed: int, samples: int) -> Inputs:
        """words uint32 (samples, 6), form (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        words = stream.words((samples, WORDS)).astype(np.uint32)
        mantissa = words[:, 0] & np.uint32(0x7F_FFFF)
        words[:, 0] = (stream.between(120, 126, (samples,)).astype(np.uint32) << np.uint32(23)) | mantissa  # 2**-7 to 1
        words[:8, 0] = [_ONE, 1, 0x3F7F_FFFF, 0x3E80_0000, 0x3F00_0000, 0x3F40_0000, 0x3D80_0000, 0x3D80_2901][
            : len(words)
        ]
        power = np.uint32(1) << stream.between(5, 31, (samples,)).astype(np.uint32)
        total = power | (words[:, 2] & (power - np.uint32(1)))
        if name == "edges":  # a power of two, half as much again, one byte less than all 32 bits
            total = np.where(stream.chance(1, 2, (samples,)), power, power | power >> np.uint32(1))
            total[:1] = 0xFFFF_FFFF
        if name == "empty":
            total = np.zeros(samples, np.uint32)
        words[:, 2] = total
        words[:, 1] = (words[:, 1].astype(np.uint64) % (total.astype(np.uint64) + np.uint64(1))).astype(np.uint32)
        if name == "edges":
            words[:, 1] = np.where(stream.chance(1, 2, (samples,)), words[:, 2], words[:, 1])
        if instruction.row.operation != "cvt":
            words[:, 5] &= np.uint32(0xFFFF)  # an address of 48 bits
        form = int(name == "fractions")
        return {"words": words, "form": np.full(samples, form, np.uint32)}

    def model(self, instruction: CreatePolicy, inputs: Inputs) -> Words:
        """The policies: uint32 (samples, 2)."""
        return answer(instruction, inputs)

    def explain(self, instruction: CreatePolicy, inputs: Inputs, place: Place) -> Expected:
        """One word of a policy."""
        sample, word = place
        given = " ".join(f"{value:#x}" for value in inputs["words"][sample].tolist())
        return Expected({"sample": sample, "word": word}, f"fraction, sizes, -, address or property: {given}")


TESTBENCHES = {"createpolicy": PolicyTestbench()}
