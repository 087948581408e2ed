"""Which recordings must contradict which mutants: one proof for spellings that differ in a hint alone, none where no mutant applies."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from conformance.isa import testbench_of
from conformance.suite.cases import Suite
from conformance.suite.recordings import result_digest
from conformance.testbench import Mutant

_HINTS = re.compile(r"\.L2::(?:cache_hint|64B|128B|256B)|(?<!replace)\.tile(?=\.|$)")
"""Modifiers that change nothing that an instruction computes: cache hints, and `.tile`, the default of a tensor copy."""


def without_hints(mnemonic: str) -> str:
    """A mnemonic without the modifiers that change nothing that could be compared.

    >>> without_hints("cp.async.bulk.prefetch.tensor.1d.L2.global.tile.L2::cache_hint")
    'cp.async.bulk.prefetch.tensor.1d.L2.global'
    """
    return _HINTS.sub("", mnemonic)


@dataclass(frozen=True)
class Proof:
    """An instruction whose recording must contradict every one of some mutants."""

    mnemonic: str
    mutants: tuple[Mutant, ...]


def proofs(suite: Suite) -> list[Proof]:
    """One for each group of recorded spellings to which the same mutants apply and that differ in hints alone: its shortest.

    Post-conditions: `proof.mutants` is never empty.
    """
    found: dict[tuple[str, tuple[str, ...]], Proof] = {}
    for row in suite.rows:
        instruction, recording = suite.instruction(row.mnemonic), suite.recording(row.mnemonic)
        if recording is None:
            continue
        names = {name for name, _ in recording.cases}
        mutants = (mutant for mutant in testbench_of(row.family).mutants if mutant.applies(instruction))
        applicable = tuple(item for item in mutants if not (needs := item.needs(instruction)) or names & set(needs))
        if not applicable:
            continue
        key = without_hints(row.mnemonic), tuple(mutant.name for mutant in applicable)
        if key not in found or len(row.mnemonic) < len(found[key].mnemonic):
            found[key] = Proof(row.mnemonic, applicable)
    return list(found.values())


def survivors(proof: Proof, suite: Suite) -> list[Mutant]:
    """The mutants that agree with the recorded hardware results of every case.

    Raises ValueError if there is no recording, or nothing in it.
    """
    instruction, recording = suite.instruction(proof.mnemonic), suite.recording(proof.mnemonic)
    if recording is None or not recording.results:
        raise ValueError(f"{proof.mnemonic} has no recorded case")
    testbench = testbench_of(instruction.row.family)
    alive = list(proof.mutants)
    for (name, seed), hardware in recording.results.items():
        case = recording.cases[name, seed]
        inputs = testbench.inputs(instruction, name, seed, case.samples)
        for mutant in tuple(alive):
            answer = mutant.run(instruction, inputs)
            digest = case.result_sha256
            if result_digest(answer) != digest if digest else not np.array_equal(answer, hardware):
                alive.remove(mutant)
        if not alive:
            break
    return alive
