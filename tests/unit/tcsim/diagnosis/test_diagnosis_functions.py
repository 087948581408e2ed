"""Results that are a function of the right ones: activations, clamps, casts that wrap, everywhere or in some tiles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INTEGER = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


def floats(c: bool = True) -> dict[str, np.ndarray]:
    """A, B and perhaps C at random; sums of a few."""
    random = np.random.default_rng(21)
    given = {
        name: random.standard_normal(shape).astype(np.float16) for name, shape in (("a", (48, 48)), ("b", (48, 40)))
    }
    return given | ({"c": random.standard_normal((48, 40)).astype(np.float32)} if c else {})


def integers() -> dict[str, np.ndarray]:
    """Codes of s8, and C."""
    random = np.random.default_rng(22)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((32, 64), (64, 48)))
    return {"a": a, "b": b, "c": random.integers(-900, 900, (32, 48)).astype(np.int32)}


def right(given: dict[str, np.ndarray], mnemonic: str = MMA) -> np.ndarray:
    """The product with C."""
    arch = "sm_90" if mnemonic == MMA else "sm_80"
    return tcsim.gemm(**given, instruction=mnemonic, arch=arch).view(np.float32 if mnemonic == MMA else np.int32)


def named(given: dict[str, np.ndarray], observed: Any, mnemonic: str = MMA) -> str:
    """What is said of all outputs."""
    found = tcsim.diagnose(mnemonic, arch="sm_90" if mnemonic == MMA else "sm_80", **given, observed=observed)
    assert found.verdict == "explained", str(found)
    return str(found.explanations[0])


@pytest.mark.parametrize("before_c", [False, True])
@pytest.mark.parametrize(
    ("said", "function"),
    [
        ("GELU (its tanh form)", lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))),
        ("SiLU", lambda x: x / (1 + np.exp(-x))),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("leaky ReLU: negative results times 0.125", lambda x: np.where(x < 0, x / 8, x)),
        ("absolute value", np.abs),
        ("30 tanh(x / 30)", lambda x: 30 * np.tanh(x / 30)),
    ],
)
def test_activations(said: str, function: Any, before_c: bool) -> None:
    """Of the result, or of the product that C is then added to."""
    given = floats()
    bare = right({name: given[name] for name in "ab"})
    observed = function(bare) + given["c"] if before_c else function(right(given))
    text = named(given, observed.astype(np.float32))
    assert text == f"activation applied ({said}{', before c is added' if before_c else ''})"


@pytest.mark.parametrize(
    ("low", "high", "said"), [(-8, 8, "from -8 to 8"), (0, 6, "from 0 to 6"), (-np.inf, 5, "to 5 and less")]
)
def test_bounds_are_read_off(low: float, high: float, said: str) -> None:
    """Of a clamp; ReLU6 is one clamp, not a ReLU and something else."""
    given = floats()
    assert named(given, np.clip(right(given), low, high).astype(np.float32)) == f"result clamped ({said})"


def test_an_activation_in_some_tiles() -> None:
    """A tile of 16 x 8 goes through the activation, the others do not."""
    given = floats()
    observed = right(given)
    observed[16:32, 8:16] = np.maximum(observed[16:32, 8:16], 0)
    assert named(given, observed) == "ReLU applied (negative results are 0; in rows 16-31, columns 8-15)"


@pytest.mark.parametrize(
    ("said", "function"),
    [
        ("result clamped (to s8, from -128 to 127)", lambda x: np.clip(x, -128, 127)),
        ("result wraps around (to s8, from -128 to 127: its lower 8 bits)", lambda x: x.astype(np.int8)),
        ("result wraps around (to u16, from 0 to 65535: its lower 16 bits)", lambda x: x & 0xFFFF),
    ],
)
def test_casts_of_integers(said: str, function: Any) -> None:
    """Every output bit for bit."""
    given = integers()
    assert named(given, function(right(given, INTEGER)).astype(np.int32), INTEGER) == said


def test_saturation_at_the_end() -> None:
    """The sums of a part of K pass the largest s32 and come back: only the end is clamped."""
    given = integers()
    given["c"] = np.full((32, 48), 2**31 - 60000, np.int32)
    exact = given["a"].astype(np.int64) @ given["b"].astype(np.int64) + given["c"]
    observed = np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)
    assert named(given, observed, INTEGER) == "result clamped (to s32, from -2147483648 to 2147483647)"


def test_right_results_stay_right() -> None:
    """What a function does not change is no function's."""
    given = {name: np.abs(x) for name, x in floats().items()}
    assert tcsim.diagnose(MMA, **given, observed=np.maximum(right(given), 0)).verdict == "correct"


def test_results_beyond_f16_are_no_f16_read_as_bf16() -> None:
    """Infinite in the other format they say nothing: the mistake that made them is named."""
    random = np.random.default_rng(3)
    a, b = (tcsim.encode(100 * random.standard_normal(shape), "f16") for shape in ((32, 64), (64, 24)))
    wrong = tcsim.gemm(a, np.roll(b, 32, axis=0), instruction=MMA).view(np.float32).astype(ml_dtypes.bfloat16)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=wrong)
    assert "blocks of 32 exchanged in pairs" in str(found) and "f16" not in str(found), str(found)


def test_an_activation_of_results_that_are_stored_as_bf16() -> None:
    """Coarse results reach far, and a function as steep as the result itself no further."""
    given = floats(c=False)
    x = right(given).astype(np.float64)
    assert "SiLU" in named(given, (x / (1 + np.exp(-x))).astype(ml_dtypes.bfloat16))


def test_conversions_in_a_part_of_the_output_and_of_c() -> None:
    """A narrower format in some columns, whole numbers, a narrow C, a softmax beside padding, a swizzle; rows that are another's are no store past the end."""
    random = np.random.default_rng(21)
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((64, 32), (32, 32)))
    c = random.standard_normal((64, 32)).astype(np.float32)
    right = tcsim.gemm(a, b, instruction=mma).view(np.float32)
    power = np.exp(right[:, :20].astype(float))
    i, j = np.indices(right.shape)
    for observed, said in (
        (np.where(np.arange(32) < 16, tcsim.decode(tcsim.encode(right, "bf16"), "bf16"), right), "narrower format (bf16; in rows 0-63, columns 0-15)"),
        (np.floor(right), "result converted to integers (rounded down"),
        (right[i, j ^ i // 2 % 4 * 8], "d: swizzle of the staging tile not undone (in every 32 columns chunk c of 8 is chunk c XOR (row / 2) % 4)"),
        (right[np.arange(64) - (np.arange(64) >= 32)], "block i of 32 rows starts at 31 i"),
    ):  # fmt: skip
        found = tcsim.diagnose(mma, a=a, b=b, observed=observed.astype(np.float32))
        assert found.verdict == "explained" and said in str(found), found
    observed = (power / power.sum(axis=1, keepdims=True)).astype(np.float32)
    found = tcsim.diagnose(mma, a=a, b=b[:, :20], observed=observed)
    assert "softmax of each row" in str(found), found
    narrow = np.asarray(tcsim.decode(tcsim.encode(c, "bf16"), "bf16"), np.float32)
    found = tcsim.diagnose(mma, a=a, b=b, c=c, observed=tcsim.gemm(a, b, narrow, instruction=mma))
    assert found.mistake == "c passed through bf16", found
    for observed, said in (
        (right + np.maximum(c, 0), "ReLU of c is added"),
        (right * c, "the product times c"),
        (right / (1 + np.exp(-right.astype(float))) * c, "SiLU of the product times c"),
    ):
        found = tcsim.diagnose(mma, a=a, b=b, c=c, observed=observed.astype(np.float32))
        assert found.verdict == "explained" and said in str(found), found


def test_activations_of_scaled_sums() -> None:
    """The scale comes after the activation, or before it, or the activation twice."""
    random = np.random.default_rng(22)
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 32), (32, 24)))
    x = tcsim.gemm(a, b, instruction=mma).view(np.float32).astype(float)
    for observed, said in (
        (0.3 * x / (1 + np.exp(-x)), "SiLU, the result times 0.3"),
        (x / 8 / (1 + np.exp(-x / 8)), "SiLU of 0.125 times the sum"),
        (np.tanh(np.tanh(x)), "tanh, applied twice"),
    ):
        found = tcsim.diagnose(mma, a=a, b=b, observed=observed.astype(np.float32))
        assert found.verdict == "explained" and said in str(found), found


def test_a_factor_is_no_scaled_activation() -> None:
    """Where sums are small, tanh of a part of them is nearly that part; of zeros any activation times 0 is zero."""
    random = np.random.default_rng(4)
    a, b, c = (
        tcsim.encode(random.standard_normal(shape), name)
        for shape, name in (((32, 32), "f16"), ((32, 24), "f16"), ((32, 24), "f32"))
    )
    right = tcsim.gemm(a, b, instruction=MMA).view(np.float32)
    added = c.view(np.float32)
    assert (
        "result scaled (the product times 0.25)"
        in tcsim.diagnose(MMA, a=a, b=b, c=c, observed=right / 4 + added).lines()[2]
    )
    lost = np.where(np.arange(32)[:, None] < 24, right + added, added)
    assert "activation" not in "\n".join(tcsim.diagnose(MMA, a=a, b=b, c=c, observed=lost).lines())
