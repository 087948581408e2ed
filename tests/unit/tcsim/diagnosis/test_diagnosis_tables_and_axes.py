"""Scale factors of another table or layout, C along another axis: each planted mistake is named, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis.rules import part_rules

MX = tcsim.instruction(
    "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", arch="sm_120"
)
MMA = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
M, N, K, BLOCKS = 40, 24, 256, 8


def scaled() -> dict[str, Any]:
    """Operands of a scaled product whose M and N differ."""
    random = np.random.default_rng(3)
    return {
        "a": tcsim.encode(random.standard_normal((M, K)), "e4m3"),
        "b": tcsim.encode(random.standard_normal((K, N)), "e4m3"),
        "scale_a": random.integers(122, 132, (M, BLOCKS)).astype(np.uint8),
        "scale_b": random.integers(122, 132, (BLOCKS, N)).astype(np.uint8),
    }


def reported(given: dict[str, Any], **used: Any) -> tcsim.Diagnosis:
    """What is said of a product of other factors."""
    observed = tcsim.gemm(**(given | used), instruction=MX).view(np.float32)
    return tcsim.diagnose(MX, observed=observed, **given)


def ones(lines: int) -> np.ndarray[Any, Any]:
    """Factors of 1."""
    return np.full((lines, BLOCKS), 127, np.uint8)


@pytest.mark.parametrize(("operand", "constant"), [("a", 1.0), ("b", -8.0)])
def test_a_zero_point_is_no_bias(operand: str, constant: float) -> None:
    """A constant in every element of an operand is named, though it comes to a number for each row or column."""
    random = np.random.default_rng(5)
    a, b = (random.integers(-8, 9, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    c = np.zeros((M, N), np.float32)
    left, right = (x + np.float16(constant) if name == operand else x for name, x in (("a", a), ("b", b)))
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.gemm(left, right, c, instruction=MMA).view(np.float32))
    assert found.verdict == "explained"
    assert found.mistake == f"constant added to {operand}"


def test_scales_exchanged_where_m_and_n_differ() -> None:
    """Rows behind the other table's end count as 1."""
    given = scaled()
    a, b = ones(M), ones(N)
    a[:N], b[:] = given["scale_b"].T, given["scale_a"][:N]
    found = reported(given, scale_a=a, scale_b=b.T)
    assert found.verdict == "explained"
    assert found.mistake == "scale_a and scale_b exchanged"
    assert "row i of a takes the factors of column i of b; column i of b takes the factors of row i of a" in str(found)


@pytest.mark.parametrize("name", ["a", "b"])
def test_scales_read_as_interleaved(name: str) -> None:
    """The blocks of 128 x 4 of cuBLAS, of a table that lies row by row."""
    given = scaled()
    table = given["scale_a"] if name == "a" else given["scale_b"].T
    row, block = np.indices(table.shape)
    at = row // 128 * 1024 + block // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
    read = np.where(at < table.size, table.ravel()[np.minimum(at, table.size - 1)], 127).astype(np.uint8)
    found = reported(given, **{f"scale_{name}": read if name == "a" else read.T})
    assert found.verdict == "explained"
    assert found.mistake == f"scale_{name} in another layout"
    assert "read as if they were in the order: interleaved in blocks of 128 x 4" in str(found)


def test_scales_of_one_operand_applied_inversely_and_the_others_twice() -> None:
    """Two tables of other values."""
    given = scaled()
    inverse, twice = 254 - given["scale_a"], given["scale_b"] * 2 - 127
    found = reported(given, scale_a=inverse.astype(np.uint8), scale_b=twice.astype(np.uint8))
    assert found.verdict == "explained"
    assert found.mistake == "scale_a inverse + scale_b applied twice"


@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (32, 96)])
def test_bias_along_the_other_axis(rows: int, columns: int) -> None:
    """A bias for each column that is added by row, whichever extent is longer."""
    random = np.random.default_rng(5)
    a, b = (
        random.standard_normal((rows, 32)).astype(np.float16),
        random.standard_normal((32, columns)).astype(np.float16),
    )
    bias = random.standard_normal(columns).astype(np.float32)
    c = np.broadcast_to(bias, (rows, columns))
    wrong = np.repeat(bias[np.arange(rows) % columns][:, None], columns, axis=1)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.gemm(a, b, wrong, instruction=MMA))
    assert found.verdict == "explained" and found.mistake in ("c transposed", "c read from another place"), str(found)


def test_scale_factors_behind_the_end_are_missing() -> None:
    """Where blocks that move begin does not show if none of them is read; a block that is another's stays one."""
    rules = [rule for rule in part_rules("scale", 16, 16, 10, 1) if rule.detail.endswith("16 for every 8")]
    assert [rule.mistake for rule in rules] == ["scale_{x} missing in a part of K"]
    assert rules[0].detail.startswith("blocks 8-9 of 10, the last, are not read: behind the end")
    assert any(rule.mistake == "scale_{x} of another block" for rule in part_rules("scale", 16, 16, 10, 1))


def test_scale_factors_in_padded_rows_are_read_without_the_padding() -> None:
    """K of 6 blocks: rows of 8, of which the last two were never written."""
    given = scaled()
    given |= {
        "a": given["a"][:, :192],
        "b": given["b"][:192],
        "scale_a": given["scale_a"][:, :6],
        "scale_b": given["scale_b"][:6],
    }
    memory = np.pad(given["scale_a"], ((0, 0), (0, 2))).reshape(-1)
    found = reported(given, scale_a=memory[: M * 6].reshape(M, 6))
    assert found.verdict == "explained"
    assert "rows are padded to 8, a multiple of 4, and are read with a pitch of 6" in found.explanations[0].detail


@pytest.mark.parametrize(("held", "read"), [("f32", "bf16"), ("f16", "f32")])
def test_c_read_as_another_type(held: str, read: str) -> None:
    """Behind the end of narrow elements nothing lies."""
    random = np.random.default_rng(8)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((M, 64), (64, N)))
    c = random.standard_normal((M, N)).astype(np.float16).astype(np.float32)
    memory = tcsim.encode(c, held).tobytes() + bytes(4 * M * N)
    wrong = np.frombuffer(memory, tcsim.encode(c, read).dtype)[: M * N].reshape(M, N)
    used = tcsim.decode(wrong, read).astype(np.float32)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.gemm(a, b, used, instruction=MMA).view(np.float32))
    assert found.verdict == "explained", str(found)
    assert (
        str(found.explanations[0])
        == f"c read as another type (it lies there as {held}, row by row, and is read as {read})"
    )


@pytest.mark.parametrize(("operand", "zero"), [("b", 8.0), ("a", -0.375)])
def test_a_zero_point_of_floats_is_rounded_with_each_element(operand: str, zero: float) -> None:
    """Outputs are off by nearly the zero point times sums of lines; the elements with it give every bit."""
    random = np.random.default_rng(3)
    given = {
        name: random.standard_normal(shape).astype(np.float16) for name, shape in (("a", (16, 64)), ("b", (64, 24)))
    }
    observed = tcsim.gemm(**given | {operand: given[operand] + np.float16(zero)}, instruction=MMA)
    found = tcsim.diagnose(MMA, **given, observed=observed)
    assert (found.verdict, found.mistake, found.explanations[0].bits) == (
        "explained", f"{operand}: off by a constant", True,
    )  # fmt: skip
    assert f"{abs(zero)} is {'added to' if zero > 0 else 'subtracted from'} every element".replace(".0 ", " ") in str(
        found
    )


def test_tables_of_scales_of_few_values_and_of_other_formats() -> None:
    """Bits of the codes of scales, a table of 16 values in 16 bits, codes of another format with its negative zero; rows of scales that lie apart."""
    random = np.random.default_rng(17)
    table = np.sort(random.uniform(-1, 1, 16)).astype(np.float16)
    a, q = random.standard_normal((48, 64)).astype(np.float16), random.integers(0, 16, (64, 24))
    wrong = table.copy()
    wrong[[3, 9]] = table[[4, 2]]
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    found = tcsim.diagnose(mma, a=a, b=table[q], observed=tcsim.gemm(a, wrong[q], instruction=mma).view(np.float32))
    assert found.mistake == "b: codes taken for other values" and f"{table[3]:g} counts as {table[4]:g}" in str(found)
    mma = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
    given = {
        "a": random.integers(0, 16, (48, 128)).astype(np.uint8),
        "b": random.integers(0, 16, (128, 24)).astype(np.uint8),
    }
    given |= {
        "scale_a": random.integers(40, 80, (48, 8)).astype(np.uint8),
        "scale_b": random.integers(40, 80, (8, 24)).astype(np.uint8),
    }
    rows, second = np.full((48, 12), 0x38, np.uint8), np.arange(128) % 2 == 1
    for a, said in (
        (given["a"][:, np.arange(128) & ~1], "the first of each pair along K is taken for both"),
        (np.where(second, given["a"] & 7, given["a"]), "a: signs lost (of the second of each two elements"),
    ):
        found = tcsim.diagnose(
            mma, arch="sm_120a", **given, observed=tcsim.gemm(instruction=mma, arch="sm_120a", **{**given, "a": a})
        )
        assert found.verdict == "explained" and said in str(found), found
    rows[:, :8] = given["scale_a"]
    for scales, said in (
        (given["scale_a"] & 0x3F, "scale_a: bits cleared (of every code the bits 0x40"),
        (given["scale_a"][np.arange(48) ^ 7], "in every 8 rows the parts of 1 are parts 7, 6, 5, 4, 3, 2, 1, 0"),
        (rows.reshape(-1)[: 48 * 8].reshape(48, 8), "their rows lie 12 apart, and are read with a pitch of 8"),
    ):
        found = tcsim.diagnose(
            mma,
            arch="sm_120a",
            **given,
            observed=tcsim.gemm(instruction=mma, arch="sm_120a", **{**given, "scale_a": scales}),
        )
        assert found.verdict == "explained" and said in str(found), found
    mma = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    a, b = (
        random.integers(0, 100, shape).astype(np.uint8) ^ np.uint8(128) * random.integers(0, 2, shape).astype(np.uint8)
        for shape in ((48, 64), (64, 24))
    )
    observed = tcsim.decode(a, "s8").astype(float) @ tcsim.decode(b, "e4m3").astype(float)
    found = tcsim.diagnose(mma, arch="sm_89", a=a, b=b, observed=observed.astype(np.float32))
    assert found.mistake == "a: codes taken for s8", found
