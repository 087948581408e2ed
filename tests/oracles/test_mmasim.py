"""Arithmetic against mmasim, instruction by instruction on every arch that it knows; and mmasim against recordings."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tcsim
from conformance.stimuli import classes as inputs
from conformance.stimuli.classes import InputClass, Matrices, Problem
from conformance.stimuli.stream import Stream
from conformance.suite import recordings
from tcsim.numbers.formats import FORMATS, Format
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare

PROJECT = "mmasim"
SCRIPT = "ask_mmasim.py"
ARCHS = {
    "Volta": "sm_70",
    "Turing": "sm_75",
    "Ampere": "sm_80",
    "Ada Lovelace": "sm_89",
    "Hopper": "sm_90",
    "Blackwell": "sm_100",
    "RTX Blackwell": "sm_120",
}
INSTRUCTIONS = {  # (model, arch) -> how many of mmasim's names are compared
    ("MMA", "Volta"): 3,
    ("MMA", "Turing"): 5,
    ("MMA", "Ampere"): 9,
    ("MMA", "Ada Lovelace"): 25,
    ("MMA", "Hopper"): 12,
    ("MMA", "Blackwell"): 9,
    ("MMA", "RTX Blackwell"): 75,
    ("WGMMA", "Hopper"): 36,
}
WGMMA_N = (8, 16, 40)  # the arithmetic is the same for every N
OUTPUTS = 1024  # of each input class of each instruction
ELSEWHERE = {  # compared in test_mmasim_scaled.py and test_mmasim_tcgen05.py
    ("MMABlockScale", "RTX Blackwell"),
    ("TCGen05MMA", "Blackwell"),
    ("TCGen05MMABlockScale", "Blackwell"),
}


class Operands(Problem):
    """What an input class needs to know to fill the operands of an instruction, whichever operands have registers."""

    def __init__(self, instruction: Any, count: int, formats: dict[str, Format]) -> None:
        super().__init__(instruction, count)
        object.__setattr__(self, "formats", formats)

    def format(self, name: str) -> Format:
        """The format of an operand."""
        formats: dict[str, Format] = self.formats  # type: ignore[attr-defined]
        return formats[name]

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns) of an operand."""
        m, n, k = self.shape
        return {"a": (self.count, m, k), "b": (self.count, k, n), "c": (self.count, m, n)}[name]


def mnemonic_of(model: str, name: str) -> str:
    """PTX's spelling of what mmasim calls `m16n8k16.f32.f16.f16.f32`."""
    shape, *rest = name.split(".")
    if model == "WGMMA":
        return f"wgmma.mma_async.sync.aligned.{name}"
    kind = f".{rest.pop(0)}" if rest[0].startswith("kind::") else ""
    return f"mma.sync.aligned{kind}.{shape}.row.col.{'.'.join(rest)}"


def formats_of(model: str, name: str) -> dict[str, Format]:
    """The formats of a, b and c."""
    d, a, b = name.split(".")[-3:] if model == "WGMMA" else name.split(".")[-4:-1]
    return {"a": FORMATS[a], "b": FORMATS[b], "c": FORMATS[d if model == "WGMMA" else name.split(".")[-1]]}


def filled(instruction: Any, formats: dict[str, Format], item: InputClass, count: int) -> Matrices:
    """The operands of one input class."""
    problem = Operands(instruction, count, formats)
    return item.make(problem, Stream("oracles", instruction.mnemonic, instruction.arch.name, item.name))


def job(model: str, arch: str, name: str, do: str = "run") -> dict[str, Any]:
    """The question's job."""
    formats = {operand: format.name for operand, format in formats_of(model, name).items()}
    return {"do": do, "model": model, "arch": arch, "name": name, "formats": formats}


def shown(matrices: Matrices, at: tuple[int, ...]) -> str:
    """The codes of one output's operands."""
    p, i, j = at
    a, b = matrices["a"][p, i, :].tolist(), matrices["b"][p, :, j].tolist()
    return f"a={[hex(x) for x in a]} b={[hex(x) for x in b]} c={int(matrices['c'][at]):#x}"


@cache
def known(folder: Path) -> list[tuple[str, str, str]]:
    """(model, arch, name) of all that mmasim knows."""
    (said,) = ask(PROJECT, SCRIPT, [Question({"do": "list"})], folder)
    return [(str(model), str(arch), str(name)) for model, arch, name in said["known"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """(model, arch, name) of all that mmasim knows."""
    return known(tmp_path_factory.mktemp("known"))


@pytest.mark.parametrize(("model", "arch"), INSTRUCTIONS)
def test_results_are_alike(model: str, arch: str, models: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """Each instruction on all input classes: random bits, wide exponents, cancellations, subnormals, zeros, specials."""
    names = [name for m, a, name in models if (m, a) == (model, arch)]
    if model == "WGMMA":
        names = [name for name in names if int(name.split("n")[1].split("k")[0]) in WGMMA_N]
    assert len(names) == INSTRUCTIONS[model, arch]
    questions, cases = [], []
    for name in names:
        instruction = tcsim.instruction(mnemonic_of(model, name), arch=ARCHS[arch])
        formats = formats_of(model, name)
        problem = Operands(instruction, 1, formats)
        kind = formats["a"].kind
        m, n, _ = instruction.shape
        for item in inputs.CLASSES.values():
            if kind in item.kinds and item.applies(problem):
                matrices = filled(instruction, formats, item, -(-OUTPUTS // (m * n)))
                do = "check the whole" if item.name == "wide" else "run"
                questions.append(Question(job(model, arch, name, do), dict(matrices)))
                cases.append((instruction, name, item.name, matrices))
    count = 0
    for (instruction, name, item_name, matrices), said in zip(
        cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True
    ):
        ours = instruction.matmul(matrices["a"], matrices["b"], matrices["c"])
        subject = f"{ARCHS[arch]} {model} {name} {item_name}"
        answers = Answers(PROJECT, subject, matrices, said["d"], ours)
        count += compare(answers, lambda at, given=matrices: shown(given, at))
    assert count >= OUTPUTS * len(cases) >= OUTPUTS * 10 * len(names)


def test_all_that_it_knows_is_compared(models: list[tuple[str, str, str]]) -> None:
    """Here, or in the two tests beside."""
    assert {(m, a) for m, a, _ in models} - set(INSTRUCTIONS) == ELSEWHERE


def test_against_the_recordings_of_an_h200(models: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """What mmasim says of Hopper's mma.sync is what the hardware answered: it is a witness, not an echo of tcsim."""
    questions, cases = [], []
    for model, arch, name in models:
        if (model, arch) != ("MMA", "Hopper"):
            continue
        instruction = tcsim.instruction(mnemonic_of(model, name), arch="sm_90")
        recording = recordings.read(instruction.mnemonic, "sm_90")
        assert recording is not None
        for (item_name, seed), case in recording.cases.items():
            if len(recording.results[item_name, seed]) < case.samples:  # of a further seed or level: its digest
                continue
            given = inputs.registers(instruction, inputs.CLASSES[item_name], seed, case.samples)
            assert inputs.digest(given) == case.inputs_sha256
            matrices = {operand: instruction.matrix(operand, registers) for operand, registers in given.items()}
            questions.append(Question(job(model, arch, name), matrices))
            hardware = instruction.matrix("d", recording.results[item_name, seed])
            cases.append((f"sm_90 MMA {name} {item_name}", matrices, hardware))
    count = 0
    for (subject, matrices, hardware), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        answers = Answers(PROJECT, subject, matrices, said["d"], hardware, "recordings of an H200")
        count += compare(answers, lambda at, given=matrices: shown(given, at))
    assert len(cases) > 120
    assert count > 250_000
