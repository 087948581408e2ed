"""Arithmetic of tcgen05.mma against mmasim: every kind and every mix of formats that it knows, 10^6 outputs and more a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tcsim
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.stimuli.stream import Stream
from tcsim.descriptors.instruction import InstructionDescriptor
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.test_mmasim import ARCHS, PROJECT, SCRIPT, known, shown

OUTPUTS = 1_000_000  # of each kind
LINES = {  # kind -> how many of mmasim's names are compared: one N of each M, for the arithmetic is the same for every N
    "tf32": 2,
    "f16": 6,
    "f8f6f4": 100,
    "mxf8f6f4": 25,
    "mxf4": 1,
    "mxf4nvf4": 3,
}
N = 16
SPELLINGS = {"mxf8f6f4": ".block_scale", "mxf4": ".block_scale", "mxf4nvf4": ".block_scale.{block}"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """(model, arch, name) of all that mmasim knows of tcgen05."""
    return [line for line in known(tmp_path_factory.mktemp("known")) if line[0].startswith("TCGen05")]


def described(name: str) -> Described:
    """The instruction that mmasim calls `m128n16k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3`."""
    shape, kind, *rest = name.split(".")
    kind = kind.removeprefix("kind::")
    block = rest.pop(0) if rest[0].startswith("block") else ""
    d, a, b, *scale = rest
    m, n = int(shape[1:].split("n")[0]), int(shape.split("n")[1].split("k")[0])
    mnemonic = f"tcgen05.mma.cta_group::1.kind::{kind}{SPELLINGS.get(kind, '').format(block=block)}"
    desc = InstructionDescriptor(
        kind=kind, m=m, n=n, d_format=d, a_format=a, b_format=b, scale_format=scale[0] if scale else ""
    )
    assert shape == f"m{m}n{n}k{desc.k}"
    return Described(tcsim.instruction(mnemonic, arch="sm_100a"), desc)


@pytest.mark.parametrize("kind", LINES)
def test_results_are_alike(kind: str, models: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """Each mix of formats on all input classes, with scales of any bits, NaN and the smallest included."""
    lines = [line for line in models if f".kind::{kind}." in line[2] and f"n{N}k" in line[2]]
    assert len(lines) == LINES[kind]
    questions, cases = [], []
    for model, arch, name in lines:
        assert ARCHS[arch] == "sm_100"
        item = described(name)
        m, n, _ = item.shape
        each = -(-OUTPUTS // (len(lines) * len(item.classes) * m * n))
        formats = {operand: format.name for operand, format in item.formats.items()}
        for index, of in enumerate(item.classes):
            matrices = item.make(of, Stream("oracles", name, of), each)
            do = "check the whole" if index == 0 else "run"
            packed = kind in ("mxf4", "mxf4nvf4")
            job: dict[str, Any] = {"do": do, "model": model, "arch": arch, "name": name, "formats": formats}
            questions.append(Question({**job, "packed": packed}, dict(matrices)))
            cases.append((item, name, of, matrices))
    count = 0
    for (item, name, of, matrices), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        scales = {side: codes for side, codes in matrices.items() if side.startswith("scale")}
        abc = (matrices[operand] for operand in "abc")
        ours = item.instruction.matmul(*abc, idesc=item.desc, **scales)
        answers = Answers(PROJECT, f"sm_100 TCGen05 {name} {of}", matrices, said["d"], ours)
        count += compare(answers, lambda at, given=matrices: shown(given, at))
    assert count >= OUTPUTS


def test_all_that_it_knows_of_tcgen05_is_compared(models: list[tuple[str, str, str]]) -> None:
    kinds = {name.split(".")[1].removeprefix("kind::") for _, _, name in models}
    assert kinds == set(LINES)
    assert {arch for _, arch, _ in models} == {"Blackwell"}
