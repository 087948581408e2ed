"""Block-scaled arithmetic against mmasim's MMABlockScale, which it has for sm_120: a million results of each kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tcsim
from conformance.stimuli import scaled as scaled_inputs
from conformance.stimuli.classes import Matrices
from conformance.stimuli.scaled import ScaledProblem
from conformance.stimuli.stream import Stream
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.test_mmasim import ARCHS, PROJECT, SCRIPT, known

MODEL, ARCH = "MMABlockScale", "RTX Blackwell"
OUTPUTS = 1_000_000  # of each kind
NAMES = {"mxf8f6f4": 25, "mxf4": 1, "mxf4nvf4": 3}  # how many of mmasim's names are compared


def mnemonic_of(name: str) -> str:
    """PTX's spelling of what mmasim calls `m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3`."""
    shape, kind, block, *types = name.split(".")
    vector = int(shape.split("k")[1]) // int(block.removeprefix("block"))
    return f"mma.sync.aligned.{kind}.block_scale.scale_vec::{vector}X.{shape}.row.col.{'.'.join(types)}"


def shown(matrices: Matrices, at: tuple[int, ...]) -> str:
    """The codes of one output's operands."""
    p, i, j = at
    rows = {name: matrices[name][p, i].tolist() for name in ("a", "scale_a")}
    columns = {name: matrices[name][p, :, j].tolist() for name in ("b", "scale_b")}
    text = " ".join(f"{name}={[hex(x) for x in codes]}" for name, codes in (rows | columns).items())
    return f"{text} c={int(matrices['c'][at]):#x}"


@pytest.mark.parametrize("kind", NAMES)
def test_scaled_results_are_alike(kind: str, tmp_path: Path) -> None:
    """Each instruction on all input classes, scales with NaN, zeros, subnormals and ignored signs among them."""
    names = [name for m, arch, name in known(tmp_path) if (m, arch) == (MODEL, ARCH) and f"::{kind}." in name]
    assert len(names) == NAMES[kind]
    questions: list[Question] = []
    cases: list[tuple[ScaledMatrixMultiply, str, Matrices]] = []
    seen: Counter[str] = Counter()
    for name in names:
        mma: Any = tcsim.instruction(mnemonic_of(name), arch=ARCHS[ARCH])
        formats = {operand: mma.operands[operand].format.name for operand in "abc"} | {
            "scale": mma.row.scale_a.format.name
        }
        items = [item for item in scaled_inputs.CLASSES.values() if item.applies(mma)]
        for item in items:
            problem = ScaledProblem(mma, -(-OUTPUTS // (len(names) * len(items) * 128)))
            matrices = item.make(problem, Stream("oracles", mma.mnemonic, item.name))
            job = {"do": "run", "model": MODEL, "arch": ARCH, "name": name, "formats": formats}
            questions.append(Question(job, dict(matrices)))
            cases.append((mma, f"{name} {item.name}", matrices))
            seen[item.name] += 1
    count = 0
    for (mma, subject, matrices), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        answers = Answers(PROJECT, f"sm_120 {MODEL} {subject}", matrices, said["d"], mma.matmul(**matrices))
        count += compare(answers, lambda at, given=matrices: shown(given, at))
    assert count >= OUTPUTS
    assert set(seen) == set(scaled_inputs.CLASSES)
