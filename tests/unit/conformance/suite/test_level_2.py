"""`--level 2`: every pair of corner values is there, what is recorded is a digest, and one wrong bit anywhere is found."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.kernels import record
from conformance.stimuli.corners import corners, count, few
from conformance.stimuli.problem import Problem
from conformance.suite import packs, recordings
from conformance.suite.cases import RAW_BYTES, Case, Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from tcsim import catalog
from tcsim.numbers.formats import FORMATS
from tests.exact import level_2_proof, machine
from tests.support.suite_runs import GPU

E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FLOATS = [format for format in FORMATS.values() if format.kind == "float"]


@pytest.mark.parametrize("format", FLOATS, ids=lambda format: format.name)
def test_corners_are_what_they_are_said_to_be(format: Any) -> None:
    """Each once, of both signs; of a small format all; zeros, subnormals, the least normal, one, the largest, infinity, NaN."""
    found = corners(format)
    assert len(set(found.tolist())) == len(found)
    assert 0 < len(few(format)) <= 64 and set(few(format).tolist()) <= set(found.tolist())
    if format.bits <= 8:
        assert found.tolist() == list(range(1 << format.bits))
        return
    values = np.asarray(tcsim.decode(found, format), np.float64)
    least = 2.0 ** (format.minimum_exponent - format.fraction_bits)
    ulp = 2.0**-format.fraction_bits
    largest = float(tcsim.decode(np.array([format.largest_code << format.ignored_low_bits], format.dtype), format)[0])
    for wanted in (0.0, least, 2.0**format.minimum_exponent, 1.0, 1 + ulp, 1 - ulp / 2, 2.0**12, 2.0**-12, largest):
        assert wanted in values and -wanted in values, wanted
    assert np.isinf(values).any() and np.isnan(values).sum() >= 4
    assert np.signbit(values[values == 0]).any()


def inputs_of(mnemonic: str) -> tuple[Any, dict[str, np.ndarray]]:
    """An instruction, and the matrices of its case."""
    instruction = tcsim.instruction(mnemonic, arch="sm_90")
    testbench = testbench_of(instruction.row.family)
    samples = testbench.samples(instruction, "corners")
    assert samples * instruction.matrices >= count(Problem(instruction, 1))
    given = testbench.inputs(instruction, "corners", 0, samples)
    return instruction, {name: instruction.matrix(name, given[name]) for name in "abc"}


@pytest.mark.parametrize("mnemonic", [E4M3, F16])
def test_every_pair_is_there(mnemonic: str) -> None:
    """As factors, where nothing else is multiplied; as product and addend; and every place along K is used."""
    instruction, matrices = inputs_of(mnemonic)
    a, b, c = matrices["a"], matrices["b"], matrices["c"]
    left, right, addend = (instruction.operands[name].format for name in "abc")
    factors, products, places = set(), set(), set()
    one = left.bias << left.fraction_bits
    for x, y, z in zip(a, b, c, strict=True):
        k = np.flatnonzero(x.any(axis=0) | y.any(axis=1))
        places |= set(k.tolist())
        if len(k) == 1:
            factors |= {(p, q) for p in x[:, k[0]].tolist() for q in y[k[0]].tolist()}
            if set(y[k[0]].tolist()) == {one}:
                products |= {(p, q) for p in x[:, k[0]].tolist() for q in z[0].tolist()}
    every = corners(left).tolist()
    assert {(p, q) for p in every for q in corners(right).tolist()} <= factors
    assert {(p, q) for p in every for q in few(addend).tolist()} <= products
    assert places == set(range(instruction.shape[2]))
    assert len(factors) >= (65_536 if left.bits == 8 else 18_000)


class Imaginary(Hardware):
    """A GPU that is the model, but for one bit of one register."""

    def __init__(self, wrong: tuple[int, ...] | None = None) -> None:
        super().__init__(GPU)
        self.wrong = wrong

    def run(self, made: Any, inputs: Any, repeat: int = 1) -> list[np.ndarray]:
        """Both repetitions."""
        answer = testbench_of(made.instruction.row.family).model(made.instruction, inputs).copy()
        if self.wrong is not None:
            answer[self.wrong] ^= np.uint32(1)
        return [answer, answer]


def recorded(root: Path, level: int, seed: int, wrong: tuple[int, ...] | None = None) -> list[str]:
    """Record one instruction; the verdicts."""
    settings = Settings("sm_90", "live", record=True, seed=seed, root=root, level=level)
    suite = Suite(settings, Imaginary(wrong))
    suite.__dict__["workshop"] = Workshop([suite.instruction(F16)])
    return [suite.run(Case(F16, name, seed)).verdict for name in suite.names(F16)]


def replayed(root: Path, level: int, seed: int) -> list[str]:
    """The verdicts of a replay of what is in a folder."""
    suite = Suite(Settings("sm_90", "replay", seed=seed, root=root, level=level))
    suite.__dict__["rows"] = [catalog.rows()[F16]]  # not those that have no recording there
    return [suite.run(case).verdict for case in suite.cases()]


def test_level_2_is_recorded_as_a_digest(tmp_path: Path) -> None:
    """A few hundred bytes; it replays, at its own level alone; a model that differs in one bit of the hundred thousand does not."""
    assert recorded(tmp_path, 2, 0) == ["PASS"]
    path = recordings.path_of(F16, "sm_90", tmp_path)
    assert path.stat().st_size < 3000
    assert replayed(tmp_path, 2, 0) == ["REPLAYED"]
    with pytest.raises(recordings.RecordingError, match="no recording with --seed 3"):
        replayed(tmp_path, 2, 3)
    found = recordings.read(F16, "sm_90", tmp_path)
    assert found is not None and [*found.cases] == [("corners", 0)]
    digest = found.cases["corners", 0].result_sha256
    recorded(tmp_path, 2, 0, wrong=(401, 31, 3))
    again = recordings.read(F16, "sm_90", tmp_path)
    assert again is not None
    assert (
        again.cases["corners", 0].result_sha256 == "" and len(again.results["corners", 0]) == 441
    )  # all, as it differs
    assert replayed(tmp_path, 2, 0) == ["FAIL"]
    again.add(
        found.cases["corners", 0].__class__("corners", 0, 441, found.cases["corners", 0].inputs_sha256, "0" * 64),
        found.results["corners", 0],
    )
    recordings.write(again, tmp_path)
    assert digest != "0" * 64 and replayed(tmp_path, 2, 0) == ["FAIL"]


def test_a_further_seed_is_recorded_as_digests(tmp_path: Path) -> None:
    """Of every class, with one raw sample where that is small; it is read with the first seed and replays alone."""
    assert set(recorded(tmp_path, 1, 5)) == {"PASS"}
    found = recordings.read(F16, "sm_90", tmp_path)
    assert found is not None and {seed for _, seed in found.cases} == {5}
    for key, case in found.cases.items():
        assert case.result_sha256 and found.results[key].nbytes <= RAW_BYTES
    assert packs.pack(tmp_path, "sm_90", "seed-5")
    assert set(replayed(tmp_path, 1, 5)) == {"REPLAYED"}


def test_what_is_missing_is_recorded(tmp_path: Path) -> None:
    """Rows of which the committed recordings and the folder lack a class of the seed and level; nothing of what is there."""

    def wanted(seed: int = 0) -> list[str]:
        suite = Suite(Settings("sm_90", "live", root=tmp_path, seed=seed))
        suite.__dict__["rows"] = [row for row in catalog.on_arch("sm_90") if row.family in ("mma.sync", "tensormap")]
        return record.missing(suite)

    first = set(wanted())
    assert not any(recordings.read(mnemonic, "sm_90") for mnemonic in first)
    assert F16 not in first and F16 in wanted(77)
    recorded(tmp_path, 1, 77)
    assert F16 not in wanted(77) and len(wanted(77)) > 100


@pytest.mark.parametrize("family", level_2_proof.FAMILIES)
def test_a_share_of_every_arch_agrees_with_the_slow_model(family: str) -> None:
    """Eight outputs of every third arithmetic; `python -m tests.exact.level_2_proof` compares all of them."""
    compared = 0
    for task in itertools.islice(level_2_proof.tasks((family,)), 0, None, 3):
        number, wrong = level_2_proof.differences(task, share=2)
        assert wrong == []
        compared += number
    assert compared >= 8 * 4


def test_another_datapath_is_found() -> None:
    """What sm_80 computes, in two steps with one fraction bit fewer, is not what sm_90 does."""
    last = slice(-60, None)  # sums of two terms
    for arch in ("sm_80", "sm_90"):
        task = level_2_proof.dense(tcsim.instruction(F16, arch=arch), "sm_90", machine.element)
        whole = task.fast(last)
        some = {name: codes[last] for name, codes in task.matrices.items()}
        compared, wrong = level_2_proof.differences(replace(task, matrices=some, fast=whole.__getitem__))
        assert compared == 60 * 128
        assert bool(wrong) == (arch == "sm_80")
