"""What the suite asks of its mutants: which proofs there are, and that none is empty."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.isa.wgmma.mutants import ARITHMETIC
from conformance.suite import recordings
from conformance.suite.cases import Settings, Suite
from conformance.suite.proofs import Proof, proofs, survivors, without_hints
from tests.support.suite_runs import suite_run

SUITE = Suite(Settings("sm_90", "replay", False, None, 0, recordings.ROOT))
FLOAT = {"F-1", "F+1", "other rounding", "addend last", "K halves chained", "subnormal multiplicands flushed",
         "subnormal addend flushed", "-0 kept", "registers swapped"}  # fmt: skip


@cache
def found() -> list[Proof]:
    return proofs(SUITE)


def test_every_proof_has_a_mutant() -> None:
    assert len(found()) > 2000
    assert all(proof.mutants for proof in found())


def test_every_recorded_spelling_has_a_proof_or_a_sibling_that_has_one() -> None:
    """But for those that change nothing: a sibling is a spelling without the hints."""
    proved = {without_hints(proof.mnemonic) for proof in found()}
    recorded = [row for row in SUITE.rows if SUITE.recording(row.mnemonic) is not None]
    missing = Counter(row.family for row in recorded if without_hints(row.mnemonic) not in proved)
    assert not missing
    assert len(found()) < len(recorded)


def test_hints_are_cache_hints_and_the_default_mode_of_a_tensor_copy() -> None:
    copy = "cp.async.bulk.tensor.2d.shared::cta.global{}.mbarrier::complete_tx::bytes{}"
    assert without_hints(copy.format(".tile", ".L2::cache_hint")) == copy.format("", "")
    assert without_hints(copy.format(".tile::gather4", "")) == copy.format(".tile::gather4", "")
    assert without_hints("tensormap.replace.tile.rank.b1024.b32") == "tensormap.replace.tile.rank.b1024.b32"


@pytest.mark.parametrize("family", ["wgmma", "wgmma.sp"])
def test_every_float_wgmma_spelling_has_the_mutants_of_the_sum(family: str) -> None:
    """Of every N; and were a GPU as the model says, the cases of an N that runs few classes would contradict each."""
    checked = Counter[str]()
    rows = [row for row in SUITE.rows if row.family == family]
    for row in rows:
        ins = SUITE.instruction(row.mnemonic)
        if ins.formats["a"].kind != "float":
            continue
        names = {mutant.name for mutant in testbench_of(family).mutants if mutant.applies(ins)}
        rounded = set() if ins.formats["a"].bits == 8 and ins.formats["d"].name == "f32" else {"other rounding"}
        assert names >= FLOAT - {"other rounding"} | rounded, (row.mnemonic, FLOAT - names)
        checked[ins.row.arithmetic] += 1
    assert set(checked) == {"half", "tf32", "fp8_wgmma"}
    assert min(checked.values()) >= 32


@pytest.mark.parametrize("mnemonic", [
    "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n120k16.f32.bf16.bf16",
    "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32",
    "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sync.aligned.m64n24k32.satfinite.s32.s8.u8",
    "wgmma.mma_async.sp.sync.aligned.m64n160k16.f32.tf32.tf32",
    "wgmma.mma_async.sp.sync.aligned.m64n16k64.satfinite.s32.s8.s8",
])  # fmt: skip
def test_the_arithmetic_class_would_show_every_mutant(mnemonic: str) -> None:
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    testbench = testbench_of(ins.row.family)
    alive = [mutant for mutant in testbench.mutants if mutant.applies(ins)]
    for name in testbench.every_class(ins):
        inputs = testbench.inputs(ins, name, 0, testbench.samples(ins, name))
        right = testbench.model(ins, inputs)
        alive = [mutant for mutant in alive if np.array_equal(mutant.run(ins, inputs), right)]
    assert ARITHMETIC in testbench.every_class(ins)
    assert not [mutant.name for mutant in alive]


def test_the_recordings_contradict_the_mutants_of_every_family() -> None:
    """One proof a family; `tox -e proof` runs them all."""
    first = {SUITE.instruction(proof.mnemonic).row.family: proof for proof in reversed(found())}
    assert len(first) > 20
    for proof in first.values():
        assert not survivors(proof, SUITE), proof.mnemonic


def test_a_run_of_mutants_that_asks_none_fails() -> None:
    """Not asked without --proof; and with it, where no mutant applies, nothing is collected that could pass."""
    run = suite_run("conformance/test_mutants.py", "-q", "-k", "elect.sync", "--arch", "sm_90", "--replay")
    assert run.returncode == 1
    assert "nothing was compared: this run proves nothing and fails" in run.stdout
    run = suite_run("conformance/test_mutants.py", "-q", "-k", "elect.sync", "--arch", "sm_90", "--replay", "--proof")
    assert run.returncode == 0
    assert "mutants: 1 instructions, " in run.stdout
