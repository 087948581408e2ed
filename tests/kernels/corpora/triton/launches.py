"""What the launches of the Triton and Gluon kernels share: how a case is registered, types, buffers, tensor descriptors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.corpora import case as corpora
from tests.kernels.corpora.case import Array, Close, Inputs, Launch, Map, Parameter, Source, case, tensor_map

BOTH = ("sm_80", "sm_90a")
EVERY = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "s8": "i8", "s32": "i32", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
NONE = np.uint64(0)  # the two pointers that Triton adds: global scratch and profile


def jit(
    file: str, function: str, signature: str, constants: dict[str, Any] | None = None, targets: tuple[str, ...] = BOTH, name: str = "",
    divisible: str = "", compiler: str = "triton", **options: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """Register a case. signature: "a:*fp16 n:i32"; divisible: the arguments that are multiples of 16, "*" for all pointers."""
    types = tuple(tuple(item.split(":", 1)) for item in signature.split())
    pointers = tuple(own for own, kind in types if kind.startswith("*"))
    chosen = tuple(word for item in divisible.split() for word in (pointers if item == "*" else (item,)))
    choices = (
        ("signature", types), ("constants", tuple((constants or {}).items())), ("divisible", chosen), *sorted(options.items()),
    )  # fmt: skip
    return case(Source(compiler, file, function, choices), "", targets, name or function)


def wide(array: Array) -> Array:
    """Its numbers in double precision."""
    return array.astype(np.float64)


def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """A buffer that the kernel writes."""
    return np.zeros(shape, dtype)


def call(given: Mapping[str, Array], expected: Mapping[str, Close], *more: Parameter, **options: Any) -> Launch:
    """`case.call` with the two pointers that Triton adds."""
    return corpora.call(given, expected, *more, NONE, NONE, **options)


def descriptor(
    name: str, array: Array, data_type: str, box: tuple[int, ...], swizzle: str = "128B"
) -> tuple[Parameter, ...]:
    """What a tensor descriptor of a row-major array becomes as parameters: the map, sizes, strides in elements."""
    strides = (int(step) // array.itemsize for step in array.strides)
    return (
        Map(name, tensor_map(array, data_type, box[::-1], swizzle)),
        *map(np.int32, array.shape),
        *map(np.int64, strides),
    )


def described(
    inputs: Inputs,
    m: int,
    n: int,
    k: int,
    blocks: tuple[int, int, int],
    transposed: bool = False,
    swizzles: tuple[str, str, str] = ("128B", "128B", "128B"),
) -> Launch:
    """A product of f16 through descriptors: left, right (stored N by K if transposed), out."""
    a, b = inputs.normal((m, k), np.float16), inputs.normal((n, k) if transposed else (k, n), np.float16)
    d, (block_m, block_n, block_k) = zeros((m, n), np.float16), blocks
    box = (block_n, block_k) if transposed else (block_k, block_n)
    return Launch(
        {"left": a, "right": b, "out": d},
        (*descriptor("left", a, "FLOAT16", (block_m, block_k), swizzles[0]), *descriptor("right", b, "FLOAT16", box, swizzles[1]),
         *descriptor("out", d, "FLOAT16", (block_m, block_n), swizzles[2])),
        {"out": Close(wide(a) @ wide(b.T if transposed else b), np.float16, 2e-3, 1e-2)}, (m // block_m, n // block_n, 1),
    )  # fmt: skip
