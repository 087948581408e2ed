"""The inputs of a case: numbers from a formula of integers, so that a recording holds outputs only."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "i64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}


def words(count: int, seed: int) -> NDArray[np.uint64]:
    """`count` words of 64 bits: splitmix64 of the index, started at `seed`."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def bell(w: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers of both signs up to 4, like normal ones (the sum of four 15-bit fields), with 38 significant bits; every step is exact in f64."""
    field = [((w >> np.uint64(s)) & np.uint64(0x7FFF)).astype(np.int64) for s in (0, 15, 30, 45)]
    total = field[0] + field[1] + field[2] + field[3] - 65534
    return (total * 2 + 1).astype(np.float64) * (2.0**20 + (w >> np.uint64(48)).astype(np.float64)) * 2.0**-35


def _power(w: NDArray[np.uint64]) -> NDArray[np.float64]:
    return np.ldexp(1.0, ((w >> np.uint64(7)) % np.uint64(17)).astype(np.int64) - 8)


def _specials(w: NDArray[np.uint64], dtype: str) -> NDArray[np.float64]:
    x = bell(w)
    pick = (w >> np.uint64(11)) % np.uint64(911)
    for number, special in enumerate((np.inf, -np.inf, np.nan, -0.0, 0.0)):
        x[pick == number] = special
    return x


KINDS: dict[str, Callable[[NDArray[np.uint64], str], NDArray[np.float64]]] = {
    "normal": lambda w, dtype: bell(w),
    "wide": lambda w, dtype: bell(w) * _power(w),
    "large": lambda w, dtype: bell(w) * 16,
    "offset": lambda w, dtype: bell(w) + 32,
    "integers": lambda w, dtype: np.floor(bell(w) * 4),
    "huge": lambda w, dtype: bell(w) * (2.0**12 if dtype == "f16" else 2.0**100),
    "tiny": lambda w, dtype: bell(w) * (2.0**-18 if dtype == "f16" else 2.0**-128),
    "masked": lambda w, dtype: np.where((w >> np.uint64(9)) % np.uint64(4) == 0, -np.inf, bell(w)),
    "specials": _specials,
    "near one": lambda w, dtype: 1 + bell(w) / 8,
}


def numbers(shape: tuple[int, ...], seed: int, kind: str, dtype: str) -> NDArray[np.generic]:
    """An array of `dtype` ("f32", "bf16", "f16", "bool", "i64"): `kind` is a name of KINDS, "bool", or "below N" for indices."""
    w = words(int(np.prod(shape, dtype=np.int64)), seed)
    if dtype == "bool":
        return ((w >> np.uint64(5)) % np.uint64(4) != 0).reshape(shape)
    if dtype == "i64":
        return (w % np.uint64(int(kind.split()[1]))).astype(np.int64).reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):
        values: NDArray[np.generic] = KINDS[kind](w, dtype).astype(np.float32).astype(DTYPES[dtype]).reshape(shape)
    return values


def viewed(shape: tuple[int, ...], view: str) -> tuple[tuple[int, ...], Callable[..., object], int]:
    """How a tensor of `shape` lies in memory: the shape to allocate, the view that makes `shape` of it (for NumPy and torch), the elements skipped at the front."""
    if view == "contiguous":
        return shape, lambda a: a, 0
    if view.startswith("offset"):
        return shape, lambda a: a, int(view.removeprefix("offset"))
    if view == "transposed":
        return (*shape[:-2], shape[-1], shape[-2]), lambda a: a.swapaxes(-1, -2), 0
    if view == "heads":
        return (shape[0], shape[2], shape[1], shape[3]), lambda a: a.swapaxes(1, 2), 0
    if view == "step2":
        return (*shape[:-1], 2 * shape[-1]), lambda a: a[..., ::2], 0
    if view == "slice":
        return (*shape[:-1], shape[-1] + 3), lambda a: a[..., 1:-2], 0
    raise ValueError(f"no view {view!r}: contiguous, offsetN, transposed, heads, step2, slice")
