"""setmaxnreg under test: what threads hold must outlast the move of registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.setmaxnreg import COUNTS, FIRST, REGISTERS, THREADS, WARPGROUPS, WORDS, moves_before
from tcsim.isa.setmaxnreg import MoveRegisters, RegisterPool

Words = npt.NDArray[np.uint32]
_NAMES = {24: "fewest", 40: "forty", 128: "half", 232: "many", 240: "more", 256: "most"}
"""The input class of each count that was assembled."""


def pool_after(instruction: MoveRegisters, count: int) -> RegisterPool:
    """The block's registers after the moves of the probe.

    Raises ValueError if a move would wait for registers, OperandError if one is undefined.
    """
    arch = instruction.arch.name
    pool = RegisterPool.at_launch(WARPGROUPS, REGISTERS)
    own = "inc" if instruction.row.increase else "dec"
    for who, word, number in (*moves_before(instruction.row, count), (FIRST, own, count)):
        move: Any = tcsim.instruction(f"setmaxnreg.{word}.sync.aligned.u32", arch=arch)
        for warpgroup in range(1) if who == FIRST else range(1, WARPGROUPS):
            goes_on, pool = move.execute(pool, warpgroup, number)
            if not goes_on:
                raise ValueError(f"{move!r}: warpgroup {warpgroup} would wait for {number} registers: {pool}")
    return pool


def _lost(name: str, mistake: str, threads: slice) -> Mutant:
    def run(instruction: MoveRegisters, given: Inputs) -> Array:
        out = given["words"].copy()
        out[:, threads] = 0
        return out

    return Mutant(name, mistake, lambda item: True, run)


class RegisterPoolTestbench(Testbench):
    """Words in, the same words out."""

    count = 8  # blocks
    mutants = (
        _lost("registers cleared", "what the threads of the warpgroup hold is lost", slice(0, 128)),
        _lost("others cleared", "what the threads of other warpgroups hold is lost", slice(128, THREADS)),
    )

    def classes(self, instruction: MoveRegisters) -> list[str]:
        """One for each count; not .dec to 256, which no thread can own before."""
        return [_NAMES[count] for count in COUNTS if instruction.row.increase or count < max(_NAMES)]

    def kept(self, instruction: MoveRegisters, name: str) -> int:
        """One block."""
        return 1

    def outputs(self, instruction: MoveRegisters, samples: int) -> int:
        """Words."""
        return samples * THREADS * WORDS

    def inputs(self, instruction: MoveRegisters, name: str, seed: int, samples: int) -> Inputs:
        """words uint32 (samples, 384, 8), form (samples,)."""
        names = [_NAMES[count] for count in COUNTS]
        words = Stream(instruction.mnemonic, name, seed).words((samples, THREADS, WORDS)).astype(np.uint32)
        return {"words": words, "form": np.full(samples, names.index(name), np.uint32)}

    def model(self, instruction: MoveRegisters, inputs: Inputs) -> Words:
        """The words, once the pool is found to let every move go on."""
        pool_after(instruction, COUNTS[int(inputs["form"][0])])
        return inputs["words"].copy()

    def explain(self, instruction: MoveRegisters, inputs: Inputs, place: Place) -> Expected:
        """A word of a thread."""
        sample, thread, word = place
        moved = str(pool_after(instruction, COUNTS[int(inputs["form"][0])]))
        return Expected({"sample": sample, "thread": thread}, f"word {word} that it held", (f"afterwards: {moved}",))


TESTBENCHES = {"setmaxnreg": RegisterPoolTestbench()}
