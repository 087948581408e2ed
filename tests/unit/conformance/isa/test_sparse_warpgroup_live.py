"""wgmma.mma_async.sp in the conformance suite: live with the model (or something worse) for a GPU, recorded, replayed, unrecorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa.wgmma.sparse import SPARSE_WARPGROUP
from conformance.suite import recordings
from conformance.suite.cases import Case, Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from conformance.suite.proofs import proofs, survivors
from hwkernels.probes.probe import Probe
from tests.support.suite_runs import GPU, suite_run

F16 = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f16.f16.f16"
SMALL = "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32"
CLASSES = SPARSE_WARPGROUP.classes(tcsim.instruction(F16, arch="sm_90"))


class Obedient(Hardware):
    """A GPU that answers as the model does, but for the bits that it is told to flip in the first register of lane 9."""

    def __init__(self, flipped: int = 0) -> None:
        super().__init__(GPU)
        self.flipped = np.uint32(flipped)

    def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[npt.NDArray[np.uint32]]:
        """The model's answer."""
        answer = SPARSE_WARPGROUP.model(made.instruction, inputs)  # type: ignore[arg-type]
        answer[0, 9, 0] ^= self.flipped
        return [answer.copy() for _ in range(repeat)]


def suite(mode: Any, hardware: Hardware | None = None, **settings: Any) -> Suite:
    """A suite whose workshop makes the probes of the two instructions only."""
    made = Suite(Settings("sm_90", mode, **settings), hardware)
    made.__dict__["workshop"] = Workshop([made.instruction(name) for name in (F16, SMALL)])
    return made


def test_a_live_run_selects_every_class_and_compares_every_bit() -> None:
    """As `pytest conformance/ --arch sm_90 --live -k wgmma.mma_async.sp` would, on one instruction with N = 64."""
    live = suite("live", Obedient(), samples=2)
    ids = [case.id for case in live.cases() if "wgmma.mma_async.sp" in case.id]
    assert len(ids) == 429 + 3 * 508
    compared = 0
    for name in CLASSES:
        case = Case(F16, name, 0)
        assert case.id in ids
        outcome = live.run(case)
        assert (outcome.verdict, outcome.mismatches) == ("PASS", 0), outcome.text
        compared += outcome.outputs
    assert compared == len(CLASSES) * 2 * 64 * 64


@pytest.mark.parametrize("name", ["wide", "registers", "negatedtwice", "repeated", "descriptorssmallkn"])
def test_a_wrong_bit_is_explained(name: str) -> None:
    """The row of A as it was kept, the elements of B that it meets, and the trace of the kept products."""
    outcome = suite("live", Obedient(flipped=1), samples=2).run(Case(F16, name, 0))
    assert (outcome.verdict, outcome.outputs, outcome.mismatches) == ("FAIL", 2 * 64 * 64, 1)
    lines = outcome.text.splitlines()
    assert lines[1].startswith("MISMATCH warp 0 lane 9 register 0 slot 0 (row 2, column 2): a=[0x")
    hardware, model = (int(word.split()[0], 16) for word in lines[1].split(" hardware ")[1].split(" model "))
    assert hardware == model ^ 1
    assert lines[2].startswith("rerun: ") and "/test_cases.py::test_case[wgmma.mma_async.sp." in lines[2]
    assert "fused dot-add of k 0-15 and c" in outcome.text
    assert lines[-1].startswith(f"  d = 0x{model:04x} (")  # the trace comes to the model's bits


def test_what_a_gpu_said_can_be_recorded_and_replayed(tmp_path: Path) -> None:
    """Recorded whole, replayed with the same outputs; the mutants are asked as soon as there is a recording."""
    live = suite("live", Obedient(), samples=2, record=True, root=tmp_path)
    for name in CLASSES:
        assert live.run(Case(F16, name, 0)).verdict == "PASS"
    assert live.written == [recordings.path_of(F16, "sm_90", tmp_path)]
    replay = suite("replay", root=tmp_path)
    cases = list(replay.cases())
    assert [case.name for case in cases] == CLASSES
    outcomes = [replay.run(case) for case in cases]
    assert {outcome.verdict for outcome in outcomes} == {"REPLAYED"}
    assert sum(outcome.outputs for outcome in outcomes) == len(CLASSES) * 2 * 64 * 64
    (proof,) = proofs(replay)
    assert proof.mnemonic == F16
    assert not survivors(proof, replay)
    assert F16 not in set(replay.unproven())
    assert SMALL in set(replay.unproven())


def test_a_recording_of_a_mutant_is_not_believed(tmp_path: Path) -> None:
    """Where the recorded bits are those of a mutant, the replay fails and that mutant survives."""
    (nibbles,) = [mutant for mutant in SPARSE_WARPGROUP.mutants if mutant.name == "metadata nibbles swapped"]

    class Wrong(Obedient):
        """A GPU with its nibbles swapped."""

        def run(self, made: Probe, inputs: dict[str, npt.NDArray[Any]], repeat: int = 1) -> list[Any]:
            return [nibbles.run(made.instruction, inputs) for _ in range(repeat)]

    live = suite("live", Wrong(), samples=2, record=True, root=tmp_path)
    verdicts = [live.run(Case(F16, name, 0)).verdict for name in CLASSES]
    assert verdicts.count("FAIL") > len(CLASSES) // 2
    (proof,) = proofs(suite("replay", root=tmp_path))
    assert [mutant.name for mutant in survivors(proof, suite("replay", root=tmp_path))] == ["metadata nibbles swapped"]


def test_without_a_recording_it_is_assembled_and_unverified(tmp_path: Path) -> None:
    """An empty folder of recordings: no case, no test of a mutant, verdict UNVERIFIED, whatever the evidence says."""
    replay = suite("replay", root=tmp_path)
    assert not [case for case in replay.cases() if "wgmma.mma_async.sp" in case.mnemonic]
    assert {F16, SMALL} <= set(replay.unproven())
    for name in (F16, SMALL):
        outcome = replay.assemble(name)
        assert (outcome.verdict, outcome.outputs) == ("UNVERIFIED", 0)
        assert "assembled for sm_90a; no hardware and no recording; " in outcome.how


def test_a_run_without_recordings_proves_nothing_and_fails(tmp_path: Path) -> None:
    """The whole command without a GPU, of the tests of mutants: there are none to pass."""
    run = suite_run(
        "conformance/test_mutants.py", "-k", "wgmma.mma_async.sp", "--arch", "sm_90", "--replay",
        "--recordings", str(tmp_path), "--proof",
    )  # fmt: skip
    assert run.returncode != 0
    assert "nothing was compared: this run proves nothing and fails" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr
