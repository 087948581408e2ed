"""Single elements of K, tiles of K in another order, strides of elements, operands that passed through another format, requantized sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
F64 = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
RANDOM = np.random.default_rng(11)
A, B = RANDOM.standard_normal((32, 128)), RANDOM.standard_normal((128, 24))


def said(a: Any, b: Any, observed: Any, mma: str = MMA, c: Any = None) -> str:
    """What is said of an observed product; C is given only where there is one."""
    given = {"a": a, "b": b} if c is None else {"a": a, "b": b, "c": c}
    return "\n".join(tcsim.diagnose(mma, observed=observed, **given).lines())


def through(x: Any, format: str, name: str, rounding: Any = "rne") -> Any:
    """Codes of `format` that are numbers of another one; tf32 lies in memory as f32."""
    return tcsim.encode(tcsim.decode(tcsim.encode(x, name, rounding=rounding), name).astype(np.float64), format)


@pytest.mark.parametrize("lost", [40, 61])
def test_one_k_that_is_lost(lost: int) -> None:
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    without = a.copy()
    without[:, lost] = 0
    assert f"K {lost} not added" in said(a, b, tcsim.gemm(without, b, instruction=MMA))


def test_a_mask_of_the_last_tile_in_the_first() -> None:
    a, b = tcsim.encode(A[:, :104], "f16"), tcsim.encode(B[:104], "f16")
    without = a.copy()
    without[:, 8:32] = 0
    told = said(a, b, tcsim.gemm(without, b, instruction=MMA))
    assert "K 8-31 not added" in told and " + " not in told


def test_two_stages_of_four_exchanged_are_one_mistake() -> None:
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    wrong = a.reshape(32, 2, 4, 16)[:, :, [0, 2, 1, 3]].reshape(32, 128)
    told = said(a, b, tcsim.gemm(wrong, b, instruction=MMA))
    assert "in each 64 along K the order of the parts of 16 is 0, 2, 1, 3" in told and " + " not in told


@pytest.mark.parametrize(
    ("place", "words"), [(lambda at: 2 * at, "2 times as far"), (lambda at: at // 2, "1 / 2 as far")]
)
def test_strides_of_elements(place: Any, words: str) -> None:
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    at = place(np.arange(a.size))
    wrong = np.where(at < a.size, a.reshape(-1)[np.minimum(at, a.size - 1)], 0).astype(a.dtype).reshape(a.shape)
    told = said(a, b, tcsim.gemm(wrong, b, instruction=MMA))
    assert "a: stride of elements wrong" in told and words in told


@pytest.mark.parametrize(
    ("mma", "format", "name", "rounding"),
    [
        (TF32, "tf32", "bf16", "rne"),
        (TF32, "tf32", "bf16", "rz"),
        (MMA, "f16", "bf16", "rne"),
        (F64, "f64", "f32", "rne"),
    ],
)
def test_operands_that_passed_through_another_format(mma: str, format: str, name: str, rounding: str) -> None:
    held = format.replace("tf32", "f32")
    a, b = (tcsim.encode(x, held) for x in (A, B))
    one, two = (through(tcsim.decode(x, held), format, name, rounding) for x in (a, b))
    how = "is cut" if rounding == "rz" else "is rounded"
    for wrong, expected in (
        ((one, b), f"a passed through {name} ("),
        ((one, two), f"a passed through {name} + b passed"),
    ):
        told = said(a, b, tcsim.gemm(*wrong, instruction=mma), mma)
        assert expected in told and how in told


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda x: x >> 6, "a shift right by 6"),
        (lambda x: np.trunc(x / 64), "cut toward zero"),
        (lambda x: np.clip(np.rint(x * 0.0037), -128, 127), "rounded to the nearest; from -128 to 127"),
    ],
)
def test_requantized_sums(run: Any, words: str) -> None:
    a, b = (RANDOM.integers(-128, 128, x.shape).astype(np.int8) for x in (A, B))
    right = tcsim.gemm(a, b, instruction=S8).view(np.int32)
    told = said(a, b, run(right).astype(np.int32), S8)
    assert "result scaled" in told and words in told


def test_c_of_the_right_outputs_decides_among_rules_of_c() -> None:
    """Each pair of columns takes the first of C: at the wrong outputs alone, neighbours that are exchanged would do."""
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    c = RANDOM.standard_normal((32, 24)).astype(np.float32) * 9
    wrong = np.ascontiguousarray(c[:, np.arange(24) // 2 * 2])
    assert "always the first of every 2" in said(a, b, tcsim.gemm(a, b, wrong, instruction=MMA), c=c)


def test_metadata_and_c_of_the_next_line_round_the_end() -> None:
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    bias = np.repeat(RANDOM.standard_normal((1, 24)).astype(np.float32) * 9, 32, axis=0)
    told = said(a, b, tcsim.gemm(a, b, np.roll(bias, 1, axis=1), instruction=MMA), c=bias)
    assert "the first takes the last" in told


def test_factors_of_matrices_and_factors_below_rounding() -> None:
    a, b = (tcsim.encode(np.stack([x, x[::-1]]), "f16") for x in (A, B))
    right = tcsim.gemm(a, b, instruction=MMA).view(np.float32)
    assert "matrices scaled (factors 3 in matrices 1)" in said(a, b, right * np.float32([[[1]], [[3]]]))
    for factor, words in ((1e-6, "times 1e-06"), (1 / 448, "times 0.00223214")):
        told = said(a, b, right * np.float32(factor))
        assert "bit for bit" in told and words in told


def test_partial_sums_of_all_blocks_but_the_owner_are_narrow() -> None:
    a, b = tcsim.encode(A, "f16"), tcsim.encode(B, "f16")
    one, two = (tcsim.gemm(a[:, k], b[k], instruction=MMA).view(np.float32) for k in (slice(64), slice(64, None)))
    told = said(a, b, one.astype(np.float16).astype(np.float32) + two)
    assert "partial sums kept in f16 (K in 2 parts of 64: each but the last is f16" in told


@pytest.mark.parametrize("axis", [0, 1])
def test_functions_along_lines_that_an_instruction_pads(axis: int) -> None:
    a, b = tcsim.encode(A / 8, "f16"), tcsim.encode(B, "f16")
    wide = "tcgen05.mma.cta_group::1.kind::f16"
    given = {
        "a": a,
        "b": b,
        "idesc": tcsim.InstructionDescriptor(kind="f16", a_format="f16", b_format="f16", m=128, n=64),
    }
    right = tcsim.gemm(a, b, instruction=wide, arch="sm_100", idesc=given["idesc"]).view(np.float32).astype(float)
    power = np.exp(right - right.max(axis=axis, keepdims=True))
    soft, centred = power / power.sum(axis=axis, keepdims=True), right - right.mean(axis=1, keepdims=True)
    observed = {f"softmax of each {('column', 'row')[axis]}": soft}
    observed["layer normalization of each row"] = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    for words, numbers in observed.items():
        found = tcsim.diagnose(wide, arch="sm_100", observed=numbers.astype(np.float32), **given)
        assert words in "\n".join(found.lines())


@pytest.mark.parametrize("computed", [False, True])
def test_f64_that_is_stored_or_computed_as_f32_is_not_right(computed: bool) -> None:
    right = (A.astype(np.float32) @ B.astype(np.float32)) if computed else A @ B
    told = said(A, B, right.astype(np.float32).astype(np.float64), F64)
    assert "result passed through a narrower format (f32)" in told and "correct" not in told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (lambda a, b: 5 * b.sum(0) - 3 * a.sum(1)[:, None] - 15 * 128, "5 more in each element of a, -3 in each of b"),
        (lambda a, b: 5 * b.sum(0) - 3 * a.sum(1)[:, None], "zero points corrected wrongly"),
        (lambda a, b: 960, "each output is off by 960"),
        (lambda a, b: (np.roll(a.sum(1), 1) - a.sum(1))[:, None], "bias added (one number for each row"),
    ],
)
def test_sums_that_correct_for_zero_points(more: Any, words: str) -> None:
    a, b = (RANDOM.integers(-99, 99, x.shape).astype(np.int8) for x in (A, B))
    right = tcsim.gemm(a, b, instruction=S8).view(np.int32)
    told = said(a, b, (right + more(a.astype(np.int64), b.astype(np.int64))).astype(np.int32), S8)
    assert words in told and "bit for bit" in told


def test_sums_whose_squares_are_no_numbers_leave_standard_output_alone(capfd: pytest.CaptureFixture[str]) -> None:
    observed = RANDOM.standard_normal((32, 24)) * 1e298
    found = tcsim.diagnose(F64, a=np.abs(A) * 1e307, b=B * 1e-10, observed=observed)
    assert found.verdict == "not explained" and not capfd.readouterr().out
