"""barrier.cluster under test: two blocks exchange numbers, which come out wrong if the barrier does not wait for a warp."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Mutant, Testbench
from hwkernels.probes.barrier_cluster import ADDEND, BLOCKS, FACTOR, ROUNDS, STRIDE, THREADS, WARPS
from tcsim.isa.barrier_cluster import ClusterBarrier, ClusterBarrierInstruction

Words = npt.NDArray[np.uint32]


def numbers_after(numbers: Words, late: Words | None = None) -> Words:
    """The numbers (samples, 2, 128) after all rounds, in each of which every thread reads what one of the other block wrote.

    late: of a mistaken barrier, how many rounds too early each of the other block's 128 threads is read, 0 or 1.
    """
    written, now = np.zeros_like(numbers), numbers.copy()
    threads = np.arange(THREADS)
    for round in range(ROUNDS):
        before, written = written, now
        seen = written if late is None else np.where(late != 0, before, written)
        now = now * np.uint32(FACTOR) + seen[:, ::-1, (threads + STRIDE * (round + 1)) % THREADS] + np.uint32(ADDEND)
    return now


def _late(name: str, mistake: str, late: Words) -> Mutant:
    return Mutant(name, mistake, lambda item: True, lambda item, given: numbers_after(given["numbers"], late))


_WARP = np.arange(THREADS) // 32


class ClusterBarrierTestbench(Testbench):
    """Numbers in, numbers out."""

    names, count = ("rounds",), 32  # clusters
    mutants = (
        _late("nobody waits", "the barrier waits for no other block", np.ones(THREADS, np.uint32)),
        _late("first warp only", "the barrier waits for one warp of a block", (_WARP > 0).astype(np.uint32)),
        _late("last warp missing", "the barrier is one arrival short", (_WARP == WARPS - 1).astype(np.uint32)),
    )

    def kept(self, instruction: ClusterBarrierInstruction, name: str) -> int:
        """One cluster."""
        return 1

    def outputs(self, instruction: ClusterBarrierInstruction, samples: int) -> int:
        """Numbers."""
        return samples * BLOCKS * THREADS

    def inputs(self, instruction: ClusterBarrierInstruction, name: str, seed: int, samples: int) -> Inputs:
        """numbers uint32 (samples, 2, 128)."""
        words = Stream(instruction.mnemonic, name, seed).words((samples, BLOCKS, THREADS))
        return {"numbers": words.astype(np.uint32)}

    def model(self, instruction: ClusterBarrierInstruction, inputs: Inputs) -> Words:
        """The numbers after all rounds, once the barrier is found to let every meeting end, and none before its last warp."""
        meet(instruction, 2 * ROUNDS)
        return numbers_after(inputs["numbers"])

    def explain(self, instruction: ClusterBarrierInstruction, inputs: Inputs, place: Place) -> Expected:
        """A number of a thread."""
        began = f"it began with {int(inputs['numbers'][place]):#010x}"
        where = dict(zip(("sample", "block", "thread"), place, strict=True))
        return Expected(where, f"the number after {ROUNDS} rounds", (began, f"two meetings in each of {ROUNDS} rounds"))


def meet(instruction: ClusterBarrierInstruction, times: int) -> ClusterBarrier:
    """The barrier after a number of meetings of all warps.

    Raises ValueError if a warp would go on too early, or never.
    """
    arch = instruction.arch.name
    halves: dict[str, Any] = {
        name: tcsim.instruction(f"barrier.cluster.{name}", arch=arch) for name in ("arrive", "wait")
    } | {instruction.row.operation: instruction}
    barrier = ClusterBarrier([WARPS] * BLOCKS)
    warps = [(block, warp) for block in range(BLOCKS) for warp in range(WARPS)]
    for time in range(times):
        order = warps[time % len(warps) :] + warps[: time % len(warps)]
        for place in order:
            barrier = halves["arrive"].execute(barrier, *place)
            goes_on = halves["wait"].execute(barrier, *order[0])
            if goes_on != (place == order[-1]):
                raise ValueError(f"{instruction!r}: meeting {time} ends after warp {place} of {order}")
        if not all(halves["wait"].execute(barrier, *place) for place in warps):
            raise ValueError(f"{instruction!r}: meeting {time} does not end")
    return barrier


TESTBENCHES = {"barrier.cluster": ClusterBarrierTestbench()}
