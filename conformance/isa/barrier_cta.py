"""barrier.cta and bar.warp.sync under test: numbers that threads tell each other, and reductions of predicates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.barrier_cta import ADDEND, FACTOR, ROUNDS, STRIDE, THREADS
from tcsim.isa.barrier_cta import LANES, NAME, WARP, ArriveAtBarrier, CtaBarrier, SyncWarp

Words = npt.NDArray[np.uint32]
_FORMS = {"": "plain", "count": "counted", "register": "register", "register+count": "registers"}
"""The input class of each list of operands; of red, those with edges begin so."""


def exchanged(instruction: ArriveAtBarrier, words: Words, early: int = 0) -> Words:
    """The numbers after all rounds: uint32 (samples, 128). early: a warp that the others do not wait for."""
    arrives = instruction.row.operation == "arrive"
    threads, numbers = np.arange(THREADS), words.copy()
    for turn in range(1, ROUNDS + 1):
        at = (threads + STRIDE * turn) % (THREADS // 2 if arrives else THREADS)
        if arrives:
            at = np.where(threads < THREADS // 2, threads, _halved(turn))
        seen = numbers.copy()
        if early:
            seen[:, :LANES] = 0
        numbers = numbers * np.uint32(FACTOR) + seen[:, at] + np.uint32(ADDEND)
    return numbers


def _halved(turn: int) -> npt.NDArray[np.int64]:
    """What thread t of the upper half reads: its place is reduced in every round."""
    at = np.arange(THREADS)
    for _ in range(turn):
        at = (at + STRIDE) % (THREADS // 2)
    return at


def reduced(instruction: ArriveAtBarrier, words: Words, reduction: str = "") -> Words:
    """What every thread gets in every round: uint32 (samples, 8, 128)."""
    out = np.empty((len(words), ROUNDS, THREADS), np.uint32)
    for sample, turn in np.ndindex(*out.shape[:2]):
        barrier, predicates = CtaBarrier(), (words[sample] >> np.uint32(turn) & 1).astype(bool)
        for warp in range(THREADS // LANES):
            barrier = instruction.execute(barrier, THREADS, predicates[warp * LANES : (warp + 1) * LANES])
        out[sample, turn] = barrier.reduced(reduction or instruction.row.reduction)
    return out


def _other(instruction: ArriveAtBarrier, given: Inputs) -> Array:
    other = {"popc": "or", "and": "or", "or": "and"}[instruction.row.reduction]
    return reduced(instruction, given["words"], other)


class CtaBarrierTestbench(Testbench):
    """Words in; numbers after all rounds, or reductions, out."""

    count = 16  # blocks
    mutants = (
        Mutant(
            "a warp too early", "nobody waits for warp 0", lambda item: not item.row.reduction,
            lambda item, given: exchanged(item, given["words"], early=1),
        ),
        Mutant("another reduction", "what the predicates are put together with", lambda item: bool(item.row.reduction), _other),
        Mutant(
            "predicates lost", "the barrier is met without predicates", lambda item: bool(item.row.reduction),
            lambda item, given: reduced(
                replace(item, row=replace(item.row, reduction="", operation="sync")), given["words"], item.row.reduction
            ),
        ),
    )  # fmt: skip

    def classes(self, instruction: ArriveAtBarrier) -> list[str]:
        """One for each list of operands."""
        return [_FORMS[form.name] for form in instruction.forms]

    def inputs(self, instruction: ArriveAtBarrier, name: str, seed: int, samples: int) -> Inputs:
        """words uint32 (samples, 128), form (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        words = stream.words((samples, THREADS)).astype(np.uint32)
        if instruction.row.reduction:  # round by round: any, all, none, all but one, one alone, any
            one = stream.below(THREADS, (samples,))[:, None] == np.arange(THREADS)
            rounds = np.array([0, 1, 0, 1, 0, 0, 0, 0], bool) | np.zeros((samples, THREADS, 1), bool)
            rounds[..., 3], rounds[..., 4] = ~one, one
            chosen = (rounds.astype(np.uint32) << np.arange(ROUNDS, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32)
            words = words & ~np.uint32(0b11110) | chosen
        form = [_FORMS[form.name] for form in instruction.forms].index(name)
        return {"words": words.astype(np.uint32), "form": np.full(samples, form, np.uint32)}

    def model(self, instruction: ArriveAtBarrier, inputs: Inputs) -> Words:
        """uint32 (samples, 128), of red (samples, 8, 128)."""
        if instruction.row.reduction:
            return reduced(instruction, inputs["words"])
        return exchanged(instruction, inputs["words"])

    def explain(self, instruction: ArriveAtBarrier, inputs: Inputs, place: Place) -> Expected:
        """A thread's number, or what it got in a round."""
        if not instruction.row.reduction:
            sample, thread = place
            return Expected({"sample": sample, "thread": thread}, f"number after {ROUNDS} rounds", ("everyone waits",))
        sample, turn, thread = place
        true = int((inputs["words"][sample] >> np.uint32(turn) & 1).sum())
        where = {"sample": sample, "round": turn, "thread": thread}
        return Expected(where, f"{instruction.row.reduction} of {THREADS} predicates, {true} of them true")


def met(inputs: Inputs, waits: bool = True) -> Words:
    """What lanes of the mask read: uint32 (samples, 32)."""
    lanes = np.arange(LANES)
    members = (inputs["membermask"][:, None] >> lanes.astype(np.uint32) & 1) != 0
    new = inputs["words"] * np.uint32(FACTOR) + np.uint32(ADDEND)
    told = np.where(members & waits, new, inputs["words"])
    return np.where(members, told[:, (lanes + STRIDE) % LANES], 0).astype(np.uint32)


class WarpSyncTestbench(Testbench):
    """Words and masks in; what was read out."""

    names, count = ("full", "masks"), 64
    mutants = (
        Mutant(
            "no wait",
            "lanes read before the others have stored",
            lambda item: True,
            lambda item, given: met(given, False),
        ),
    )

    def inputs(self, instruction: SyncWarp, name: str, seed: int, samples: int) -> Inputs:
        """words uint32 (samples, 32), membermask uint32 (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        masks = stream.words((samples,)).astype(np.uint32) | np.uint32(1)
        words = stream.words((samples, LANES)).astype(np.uint32)
        return {"words": words, "membermask": np.full_like(masks, 0xFFFF_FFFF) if name == "full" else masks}

    def model(self, instruction: SyncWarp, inputs: Inputs) -> Words:
        """uint32 (samples, 32)."""
        for mask in inputs["membermask"].tolist():
            instruction.execute(mask)
        return met(inputs)

    def explain(self, instruction: SyncWarp, inputs: Inputs, place: Place) -> Expected:
        """The number that a lane read."""
        sample, lane = place
        mask = f"membermask {int(inputs['membermask'][sample]):#010x}"
        return Expected({"sample": sample, "lane": lane}, f"number of lane {(lane + STRIDE) % LANES}, {mask}")


TESTBENCHES = {NAME: CtaBarrierTestbench(), WARP: WarpSyncTestbench()}
