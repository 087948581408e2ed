"""clusterlaunchcontrol under test: work that must be done by whoever gets it, and answers that are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.clusterlaunchcontrol import FACTOR, WORDS, blocks_of, words_of
from tcsim.isa.clusterlaunchcontrol import CANCELED_BIT, RESPONSE_BYTES, QueryCancel, TryCancel
from tcsim.memory.mbarrier import MBarrier

Cancel = QueryCancel | TryCancel
Words = npt.NDArray[np.uint32]
CLUSTERS, ANSWERS = 8192, 256
"""Samples of try_cancel, more than run at once; and of query_cancel."""
CANCELED = 128
"""Clusters that the model lets be cancelled; a GPU may cancel others, or none."""


def _asks(item: Cancel) -> bool:
    return item.row.operation == "try_cancel"


def _tells(item: Cancel) -> bool:
    return item.row.operation == "is_canceled"


def _places(item: Cancel) -> bool:
    return item.row.operation == "get_first_ctaid"


def _undone(instruction: Cancel, given: Inputs) -> Array:
    """Only the first half of the clusters starts, and the work of the others is lost."""
    out = given["numbers"] * np.uint32(FACTOR)
    out[len(out) // 2 :] = 0
    return out


def _first_block(instruction: Cancel, given: Inputs) -> Array:
    out = given["numbers"] * np.uint32(FACTOR)
    out[:, 1:] = 0
    return out


def _other_words(change: Any) -> Any:
    def run(instruction: Any, given: Inputs) -> Array:
        changed = change(given["response"].copy())
        changed[:, 2] |= 1
        return _answer(instruction, changed)

    return run


def _swapped(words: Words) -> Words:
    words[:, 1] = words[:, 1] >> 16 | words[:, 1] << 16
    return words


def _lowest(instruction: Cancel, given: Inputs) -> Array:
    lowest: Array = given["response"][:, :1]
    return lowest % np.uint32(2)


def _any_bit(instruction: Cancel, given: Inputs) -> Array:
    response: Array = given["response"]
    return np.where(response.any(axis=1), 1, 0).astype(np.uint32)[:, None]


def _narrow(words: Words) -> Words:
    words[:, 0] &= 0xFFFF
    return words


def _answer(instruction: Any, response: Words) -> Words:
    return np.asarray(instruction.execute(response)).reshape(len(response), words_of(instruction.row)).astype(np.uint32)


def work_done(instruction: Any, numbers: Words) -> Words:
    """The work (samples, blocks): the first cluster cancels the last `CANCELED` of the others, one by one, and does theirs.

    Raises ValueError if its barriers do not get the bytes of an answer.
    """
    arch, many = instruction.arch.name, instruction.row.multicast
    cancelled = tcsim.instruction("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", arch=arch)
    first = tcsim.instruction("clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128", arch=arch)
    out, blocks = np.zeros_like(numbers), numbers.shape[1]
    flat, done = numbers.reshape(-1), out.reshape(-1)
    smem = np.zeros((blocks, RESPONSE_BYTES) if many else RESPONSE_BYTES, np.uint8)
    started = blocks * max(1, len(numbers) - CANCELED)  # blocks
    done[blocks:started] = flat[blocks:started] * np.uint32(FACTOR)
    place: int | None = 0  # of the first block of the cluster whose work is done now
    while place is not None:
        mine = slice(place, place + blocks)
        done[mine] = flat[mine] * np.uint32(FACTOR)
        barriers = [MBarrier(1) for _ in range(blocks)]
        states = [barrier.arrive_expect_tx(RESPONSE_BYTES) for barrier in barriers]
        following = max(place + blocks, started)
        left = (following, 0, 0) if following < len(flat) else None
        smem, after = instruction.execute(smem, 0, barriers if many else barriers[0], first_ctaid=left)
        after = after if many else [after]
        if not all(barrier.test_wait(state) for barrier, state in zip(after, states, strict=True)):
            raise ValueError(f"{instruction!r}: an answer's bytes do not end the phase: {after}")
        answers = smem.view(np.uint32).reshape(-1, WORDS)
        places = {int(first.execute(words)) for words in answers} if cancelled.execute(answers).all() else {None}
        (place,) = places  # every block gets the same answer
    return out


class LaunchCancellationTestbench(Testbench):
    """Numbers in, their multiples out; or answers in, what they say out."""

    mutants = (
        Mutant("work lost", "the work of a cancelled cluster is not done", _asks, _undone),
        Mutant("one block does all", "only the first block of a cluster gets the answer",
               lambda item: _asks(item) and item.row.multicast, _first_block),
        Mutant("lowest bit tells", "bit 0 says whether a cluster was cancelled", _tells,
               _lowest),
        Mutant("any bit tells", "an answer that is not zero means a cancelled cluster", _tells,
               _any_bit),
        Mutant("y and z swapped", "z lies below y", lambda item: _places(item) and item.row.dimension != "x",
               _other_words(_swapped)),
        Mutant("x of 16 bits", "x is as narrow as y and z", lambda item: _places(item) and item.row.dimension in ("", "x"),
               _other_words(_narrow)),
    )  # fmt: skip

    def classes(self, instruction: Cancel) -> list[str]:
        """Work, or answers."""
        return ["work"] if _asks(instruction) else ["answers"]

    def samples(self, instruction: Cancel, name: str) -> int:
        """Clusters, or answers."""
        return CLUSTERS if _asks(instruction) else ANSWERS

    def inputs(self, instruction: Cancel, name: str, seed: int, samples: int) -> Inputs:
        """numbers uint32 (samples, blocks); or response uint32 (samples, 4), all of cancelled clusters where places are asked for."""
        stream = Stream(instruction.mnemonic, name, seed)
        if _asks(instruction):
            return {"numbers": stream.words((samples, blocks_of(instruction.row))).astype(np.uint32) | np.uint32(1)}
        response = stream.words((samples, WORDS)).astype(np.uint32)
        if _places(instruction):
            response[:, CANCELED_BIT // 32] |= np.uint32(1)
        return {"response": response}

    def model(self, instruction: Cancel, inputs: Inputs) -> Words:
        """Every block's work, done; or what each answer says (samples, 1 or 3)."""
        if _asks(instruction):
            return work_done(instruction, inputs["numbers"])
        return _answer(instruction, inputs["response"])

    def explain(self, instruction: Cancel, inputs: Inputs, place: Place) -> Expected:
        """The work of a block, or a word read from an answer."""
        sample, word = place
        if _asks(instruction):
            work = f"{FACTOR} times {int(inputs['numbers'][place]):#x}"
            return Expected({"cluster": sample, "block": word}, "its work", (work,))
        answer = " ".join(f"{part:#010x}" for part in inputs["response"][sample].tolist())
        where = {"answer": sample, "word": word}
        return Expected(where, f"of {answer}", ("bit 64: cancelled; x 0-31, y 32-47, z 48-63",))


TESTBENCHES = {"clusterlaunchcontrol": LaunchCancellationTestbench()}
