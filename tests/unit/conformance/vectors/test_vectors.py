"""Vectors for other implementations: what files hold, that they come again from a seed, and that wrong answers are told by kind."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.vectors import release
from conformance.vectors.errors import Kind, _by_bits, _chains, classify, evaluated
from conformance.vectors.forms import records_of
from conformance.vectors.sets import Order, entries_of, fields_of, make, subject_of
from conformance.vectors.subjects import BLOCK, Field, Multiply, subject
from conformance.vectors.verify import _shown, verify
from tcsim.arithmetic.steps import DotAdd
from tcsim.core.errors import OperandError
from tcsim.numbers.formats import FORMATS
from tests.exact.machine import element
from tests.support.cli_runs import answer, data, refusal

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
F16 = tcsim.InstructionDescriptor(kind="f16", a_format="bf16", m=64, n=8)
SCALED = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
ORDERS = {
    "mma": Order(MMA, "sm_90", classes=("edges",)),
    "sparse": Order("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90", classes=("normal",), outputs=256),
    "warpgroup": Order("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3", "sm_90", classes=("normal",)),
    "scaled": Order(SCALED, "sm_120", classes=("scales",), outputs=256),
    "corners": Order(SCALED, "sm_120", level=2),
    "tensor memory": Order("tcgen05.mma.cta_group::1.kind::f16", "sm_100", F16.encode(), ("wide",)),
    "integers": Order("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32", "sm_90", classes=("saturation",), outputs=256),
    "conversion": Order("cvt.rn.f16.f32", "sm_90", classes=("edges",), outputs=500),
}  # fmt: skip


def said(folder: Path, change: Any = lambda codes: codes) -> Path:
    """Answers to a folder of vectors: the expected codes, changed."""
    out = folder.parent / "answers"
    out.mkdir(exist_ok=True)
    for path, entry in entries_of(folder):
        parts = [part["d"].ravel() for part in records_of(path, entry["form"], fields_of(entry), subject_of(entry))]
        codes = change(np.concatenate(parts).astype(np.uint64))
        (out / f"{path.stem}.txt").write_text("".join(f"{code:x}\n" for code in codes.tolist()))
    return out


@pytest.mark.parametrize("name", ORDERS)
def test_every_form_holds_the_same_and_right_answers_pass(name: str, tmp_path: Path) -> None:
    digests = set()
    for form in ("npz", "jsonl", "hex") if name != "corners" else ("hex",):
        entries = make(tmp_path / form / "v", replace(ORDERS[name], form=form))
        found = verify(tmp_path / form / "v", said(tmp_path / form / "v"))
        assert (found.differ, found.outputs) == (0, sum(entry["outputs"] for entry in entries))
        assert found.outputs >= 200
        digests |= {entry["expected"] for entry in entries if len(entries) == 1}
    assert len(digests) <= 1


def test_a_line_of_digits_is_what_the_page_says(tmp_path: Path) -> None:
    """Read from the right: 16 codes of A, 16 of B, c, d; and d is what the slow exact model gives."""
    make(tmp_path, Order(MMA, "sm_90", classes=("edges", "subnormals"), form="hex"))
    checked = 0
    for path in tmp_path.glob("*.hex"):
        for line in path.read_text().splitlines()[::101]:
            word = int(line, 16)
            codes = [word >> 16 * at & 0xFFFF for at in range(32)]
            c, d = word >> 512 & 0xFFFFFFFF, word >> 544
            assert element(MMA, "sm_90", codes[:16], codes[16:], c) == d
            checked += 1
    assert checked >= 40


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for folder, seed in (("one", 3), ("two", 3), ("three", 4)):
        make(tmp_path / folder, Order(MMA, "sm_90", classes=("normal",), seed=seed, form="hex"))
    one, two, three = (
        json.loads((tmp_path / name / "manifest.json").read_text())["files"][0] for name in ("one", "two", "three")
    )
    assert one == two
    assert one["sha256"] != three["sha256"]


def test_blocks_are_bounded_and_as_many_outputs_come_as_are_asked_for() -> None:
    sizes = [expected.size for _, expected in subject(MMA, "sm_90").blocks("normal", 0, 3 * BLOCK)]
    assert max(sizes) <= BLOCK
    assert sum(sizes) == 3 * BLOCK


def wrong_of(change: Any, name: str = "edges", arch: str = "sm_90") -> tuple[int, dict[Kind, int]]:
    """How many outputs a changed unit gets wrong, and of which kinds they are said to be."""
    own = subject(MMA, arch)
    assert isinstance(own, Multiply)
    lowering = own.instruction.lowering
    steps = tuple(
        replace(step, unit=change(step.unit)) if isinstance(step, DotAdd) else step for step in lowering.steps
    )
    operands, expected = next(own.blocks(name, 0, 4096))
    got = replace(own.instruction, lowering=replace(lowering, steps=steps)).matmul(**operands)
    at = np.flatnonzero((got != expected).ravel())
    records = {key: array[at] for key, array in own.as_records(operands, expected).items()}
    kinds = classify(own, records, got.ravel()[at].astype(np.uint64), np.ones(len(at), bool))
    return len(at), {kind: kinds.count(kind) for kind in set(kinds)}


@pytest.mark.parametrize(("name", "change", "kind", "what"), [
    ("edges", {"fraction_bits": 24}, "alignment width", "24 bits kept below the largest exponent, not 25 bits"),
    ("normal", {"rounding": "rne"}, "rounding", "the sum is rounded RNE, not RZ"),
    ("zeros", {"keep_negative_zero": True}, "zero", "a zero keeps the sign of its sum"),
])  # fmt: skip
def test_errors_are_told_by_kind(name: str, change: dict[str, Any], kind: str, what: str) -> None:
    count, kinds = wrong_of(lambda unit: replace(unit, **change), name)
    assert count > 10
    assert max(kinds, key=kinds.__getitem__) == Kind(kind, what)
    assert kinds[Kind(kind, what)] >= 0.9 * count


def test_what_two_codes_say_by_themselves() -> None:
    """A subnormal number that became zero, a number that became an infinity, and the other way round: each is one kind."""
    expected, got = (
        np.array(codes, np.uint64) for codes in ([0x0001, 0x7BFF, 0x7C00, 0x3C00], [0x0000, 0x7C00, 0x7BFF, 0x3C01])
    )
    found = [[kind.what for kind, where in _by_bits(expected, got, FORMATS["f16"]) if where[at]] for at in range(4)]
    assert found == [
        ["a subnormal result is flushed to zero"],
        ["an infinity where a number is expected"],
        ["an infinity expected"],
        [],
    ]


@pytest.mark.parametrize("mnemonic", [MMA, MMA.replace("f32.f16.f16.f32", "f16.f16.f16.f16")])
def test_sums_without_a_tensor_core_are_sums(mnemonic: str) -> None:
    """Every order of summation gives the sum where all numbers are small integers."""
    own = subject(mnemonic, "sm_90")
    assert isinstance(own, Multiply)
    random = np.random.default_rng(3)
    a, b, c = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 16, 16), (1, 16, 8), (1, 16, 8)))
    operands = {name: tcsim.encode(x, own.formats[name].name) for name, x in (("a", a), ("b", b), ("c", c))}
    expected = tcsim.encode(a @ b + c, own.formats["d"].name)
    records = own.as_records(operands, expected)
    chains = _chains(own)
    assert len(chains) >= 4
    for name, chain in chains.items():
        assert np.array_equal(evaluated(own, chain, records, False), expected.reshape(-1)), name


def test_rows_of_a_sparse_product_of_corners_keep_the_same_columns() -> None:
    """In every product: B is made for those of the first row. Of other classes in every other one."""
    own = subject("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90")
    for name, every in (("corners", 1), ("normal", 2)):
        found = own.operands(name, 4, 0, 0)["metadata"]
        alike = [bool((rows == rows[0]).all()) for rows in found]
        assert alike == [not place % every for place in range(4)]


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        ([7, 0, 0, 0], "[0]=0x7"),
        ([7, 1, 0, 0], "0x7 0x1 0x0 0x0"),
        ([0] * 4, "all 0"),
        ([0, 0, 0, 3, 2, 0, 0, 0], "[3]=0x3 [4]=0x2"),
        ([7, 0, 0, 0, 0], "[0]=0x7"),
    ],
)
def test_of_many_zeros_only_others_are_shown(codes: list[int], text: str) -> None:
    """Where at most a quarter is not zero."""
    assert _shown(Field("a", len(codes), "s4", 1), np.array(codes, np.uint64)) == text


def test_a_release_is_made_in_the_folder_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(release, "make", lambda folder, order: made.append(folder))
    monkeypatch.setattr(release, "entries_of", lambda folder: [])
    monkeypatch.setattr(sys, "argv", ["release", str(tmp_path)])
    assert release.main() == 0 and {own.parent for own in made} == {tmp_path} and len(made) > 20


def test_nan_and_unknown_digits(tmp_path: Path) -> None:
    make(tmp_path / "v", Order(MMA, "sm_90", classes=("uniform",)))
    nan = said(tmp_path / "v", lambda codes: np.where(codes == 0x7FFFFFFF, np.uint64(0x7FC00000), codes))
    found = verify(tmp_path / "v", nan)
    assert found.differ > 100
    assert found.kinds == {Kind("NaN payload", "another NaN"): found.differ}
    path = next(nan.iterdir())
    path.write_text("// from a simulator\n@0\n" + path.read_text().replace("7fc00000\n", "xxxxxxxx\n"))
    assert verify(tmp_path / "v", nan).kinds == {
        Kind("unknown", "x or z: the implementation does not know it"): found.differ
    }


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(OperandError, match="valid: uniform"):
        make(tmp_path, Order(MMA, "sm_90", classes=("nothing",)))
    with pytest.raises(OperandError, match="no form 'csv'"):
        make(tmp_path, Order(MMA, "sm_90", form="csv"))
    with pytest.raises(OperandError, match="valid: --form npz"):
        make(tmp_path, Order("ldmatrix.sync.aligned.m8n8.x1.b16", "sm_90", form="hex"))
    with pytest.raises(OperandError, match=r"has no manifest\.json"):
        verify(tmp_path, tmp_path)
    make(tmp_path / "v", Order(MMA, "sm_90", classes=("normal",), form="hex"))
    answers = said(tmp_path / "v")
    path = next(answers.iterdir())
    text = path.read_text()
    for changed, words in (
        (text[9:], "2,047 answers; valid: 2,048"),
        (text + "0\n", "more answers"),
        ("hello\n", "valid: a hexadecimal"),
    ):
        path.write_text(changed)
        with pytest.raises(OperandError, match=words):
            verify(tmp_path / "v", answers)
    vectors = next((tmp_path / "v").glob("*.hex"))
    vectors.write_text(vectors.read_text().replace("1", "2", 1))
    with pytest.raises(OperandError, match="make it again"):
        verify(tmp_path / "v", answers)


def test_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    made = data("vectors", "make", MMA, "--arch", "sm_90", "--classes", "normal", "--form", "hex", "--out", folder)
    assert made["files"][0]["outputs"] == 2048
    assert made["files"][0]["evidence"] == "measured"
    assert data("vectors", "classes", MMA, "--arch", "sm_90")["levels"]["2"] == ["corners"]
    assert "0 of 2,048 outputs differ" in answer("vectors", "verify", folder, said(folder))
    shown = answer("vectors", "verify", folder, said(folder, lambda codes: codes ^ np.uint64(1 << 31)), status=1)
    assert "2,048 of 2,048 outputs differ" in shown
    assert "expected 0x" in shown
    assert "has no class dense" in refusal("vectors", "make", MMA, "--classes", "dense", "--out", folder)
