"""What contradicts the suite's named mutants: `python -m tests.evaluation.mutation.named`, from the root of the tree.

It writes docs/measurements/named-mutants.json: of each family, which of its mutants a recording contradicts, and which only differ from
the model on the suite's inputs, on some arch. One instruction is asked of those of a family to which the same mutants apply; `pytest
conformance/ --proof` asks all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np

import tcsim
from conformance.isa import testbench_of
from conformance.suite.cases import Settings, Suite
from conformance.suite.proofs import Proof, proofs, survivors
from conformance.testbench import Mutant, Testbench
from tcsim import catalog
from tcsim.core.errors import TcsimError
from tcsim.core.targets import ARCHS
from tcsim.model.instruction import Instruction
from tests.evaluation.mutation.sites import ROOT

RESULT = ROOT / "docs/measurements/named-mutants.json"


def asked(suite: Suite) -> dict[str, list[Proof]]:
    """By family, a proof of each set of mutants."""
    found: dict[tuple[str, ...], Proof] = {}
    for proof in proofs(suite):
        family = catalog.rows()[proof.mnemonic].family
        found.setdefault((family, *(mutant.name for mutant in proof.mutants)), proof)
    return {
        family.name: [proof for (name, *_), proof in found.items() if name == family.name]
        for family in catalog.families()
    }


def applying(family: str, mutant: Mutant) -> Iterator[Instruction]:
    """The instructions that it applies to, of the newest arch first: none if the family only shares the list with another."""
    for arch in reversed(ARCHS):
        for row in catalog.on_arch(arch, family):
            instruction = tcsim.instruction(row.mnemonic, arch=arch)
            if mutant.applies(instruction):
                yield instruction


def told_apart(testbench: Testbench, instruction: Instruction, mutant: Mutant) -> bool:
    """Whether some input of the suite gets another answer than the model's, or none."""
    for name in testbench.every_class(instruction):
        inputs = testbench.inputs(instruction, name, 0, testbench.samples(instruction, name))
        try:
            answer = mutant.run(instruction, inputs)
        except TcsimError:
            return True
        if not np.array_equal(answer, testbench.model(instruction, inputs)):
            return True
    return False


def fates(family: str, asked: list[Proof], suite: Suite) -> dict[str, Any]:
    """What became of the mutants of a family; `survivors` are pairs of an instruction and a mutant that agrees with its recording."""
    testbench = testbench_of(family)
    alive = [(proof.mnemonic, mutant.name) for proof in asked for mutant in survivors(proof, suite)]
    by_recordings = {mutant.name for proof in asked for mutant in proof.mutants} - {name for _, name in alive}
    waiting = [mutant for mutant in testbench.mutants if mutant.name not in by_recordings]
    elsewhere = [mutant.name for mutant in waiting if next(applying(family, mutant), None) is None]
    differs = {
        mutant.name: any(told_apart(testbench, item, mutant) for item in applying(family, mutant))
        for mutant in waiting
        if mutant.name not in elsewhere
    }
    return {
        "instructions": len(asked), "recordings": sorted(by_recordings), "model": [name for name in differs if differs[name]],
        "neither": [name for name in differs if not differs[name]], "survivors": alive, "elsewhere": elsewhere,
    }  # fmt: skip


def main() -> None:
    """Run, report, write."""
    suite = Suite(Settings("sm_90", "replay"))
    families = {}
    for family, found in asked(suite).items():
        if testbench_of(family).mutants:
            families[family] = fates(family, found, suite)
            print(family, families[family], flush=True)
    RESULT.write_text(json.dumps({"date": date.today().isoformat(), "families": families}, indent=1) + "\n")


if __name__ == "__main__":
    main()
