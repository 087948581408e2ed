"""Cases: an instruction, operands and an output that is not their product, all drawn from the number of the case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim

Codes = npt.NDArray[np.unsignedinteger[Any]]
Random = np.random.Generator
MXFP8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
NVFP4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
INSTRUCTIONS = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", "sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90"),
    ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "sm_90a"),
    (MXFP8, "sm_120a"),
    (NVFP4, "sm_120a"),
)
SIZES = (1, 8, 16, 64)


@dataclass(frozen=True)
class Case:
    """Arguments of `tcsim.diagnose`, and how they were made."""

    number: int
    said: str
    instruction: Any
    arguments: dict[str, Any]


def _extreme(random: Random, values: Any) -> Any:
    """Some NaN, infinities, zeros, and the largest and smallest numbers of f32."""
    some = random.random(values.shape) < 0.02
    return np.where(some, random.choice([np.nan, np.inf, -np.inf, 0.0, 2.0**127, 2.0**-149], values.shape), values)


OPERANDS: dict[str, Callable[[Random, Any], Any]] = {
    "ordinary": lambda random, values: values,
    "large": lambda random, values: values * 1e3,
    "small": lambda random, values: values * 1e-3,
    "of all sizes": lambda random, values: values * 2.0 ** random.integers(-20, 20, (len(values), 1)),
    "small integers": lambda random, values: np.round(values),
    "with extremes": _extreme,
    "sparse": lambda random, values: values * (random.random(values.shape) < 0.2),
}
"""What A and B are, from normal numbers."""

Output = Callable[[Random, Any, Any], Any]


def _shuffled(random: Random, right: Any, other: Any) -> Any:
    return random.permutation(right.reshape(-1)).reshape(right.shape)


def _signs(random: Random, right: Any, other: Any) -> Any:
    return right * random.choice([-1.0, 1.0], right.shape)


def _sized(size: float) -> Output:
    return lambda random, right, other: random.standard_normal(right.shape) * size


def _alike(random: Random, right: Any, other: Any) -> Any:
    finite = right[np.isfinite(right)]
    return random.standard_normal(right.shape) * (np.abs(finite).mean() if finite.size else 1.0)


OUTPUTS: dict[str, Output] = {
    "noise as large as the product": _alike,
    "noise of 1e-6": _sized(1e-6),
    "noise of 1": _sized(1.0),
    "noise of 1e5": _sized(1e5),
    "the product's numbers in another order": _shuffled,
    "the product with random signs": _signs,
    "the product of other operands": lambda random, right, other: other,
    "the product with factors": lambda random, right, other: right * random.uniform(0.5, 2, right.shape),
    "small integers": lambda random, right, other: random.integers(-8, 9, right.shape).astype(np.float64),
}
"""What stands in the place of the product."""
EPILOGUES: dict[str, Callable[[Any], Any]] = {
    "none": lambda values: values,
    "ReLU": lambda values: np.maximum(values, 0),
    "bf16": lambda values: tcsim.decode(tcsim.encode(values, "bf16"), "bf16").astype(np.float64),
    "sigmoid": lambda values: 1 / (1 + np.exp(-np.clip(values, -80, 80))),
}


def case(number: int) -> Case | None:
    """The case of a number; None where the output would be the product, or one number everywhere."""
    random = np.random.default_rng((20261129, number))
    mnemonic, arch = INSTRUCTIONS[number % len(INSTRUCTIONS)]
    instruction = tcsim.instruction(mnemonic, arch=arch)
    formats = {name: own.name for name, own in instruction.formats.items()}
    m, n = (int(random.choice(SIZES)) for _ in range(2))
    if m * n < 64:
        return None  # too few outputs for any claim
    k = int(random.choice((32, 64, 128))) * (2 if "m16n8k64" in mnemonic else 1)
    how, what, end = (str(random.choice(list(own))) for own in (OPERANDS, OUTPUTS, EPILOGUES))
    integer = formats["d"] == "s32"
    given: dict[str, Any] = {}
    pairs = []
    for _ in range(2):
        pair = [OPERANDS[how](random, random.standard_normal(shape)) for shape in ((m, k), (n, k))]
        if integer:
            pair = [np.clip(np.nan_to_num(np.round(np.abs(own) * 8)), 0, 127) for own in pair]
        if formats["a"] == "e2m1":
            pair = [np.nan_to_num(own, posinf=6, neginf=-6) for own in pair]
        codes = [tcsim.encode(own, formats[name], saturate=True) for name, own in zip("ab", pair, strict=True)]
        values = [tcsim.decode(own, formats[name]).astype(np.float64) for name, own in zip("ab", codes, strict=True)]
        pairs.append((codes, values))
    (a, b), _ = pairs[0]
    given |= {"a": a, "b": np.ascontiguousarray(b.T)}
    with np.errstate(all="ignore"):
        right, other = (values[0] @ values[1].T for _, values in pairs)
        if "scale_vec" in mnemonic:
            block, low, high = (32, 120, 134) if mnemonic == MXFP8 else (16, 40, 72)
            given["scale_a"] = random.integers(low, high, (m, k // block)).astype(np.uint8)
            given["scale_b"] = random.integers(low, high, (k // block, n)).astype(np.uint8)
        if random.random() < 0.3 and not integer:
            given["c"] = tcsim.encode(random.standard_normal((m, n)), formats["c"])
        output = OUTPUTS[what](random, right, other)
        output = output if integer else EPILOGUES[end](output)
        output = np.clip(np.nan_to_num(np.round(output)), -(2**31), 2**31 - 1) if integer else output
        observed = tcsim.encode(output, formats["d"])
    if len(np.unique(observed)) < 8 or (what != "noise" and np.isnan(right).mean() > 0.5):
        return None
    said = f"{mnemonic} {m} x {n} x {k}, operands {how}: {what}, epilogue {end}"
    return Case(number, said, instruction, given | {"observed": observed})
