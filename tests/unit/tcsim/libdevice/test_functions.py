"""The functions against an H200's results, recorded by tests/support/libdevice_digests.cu: digests of all 2**32 inputs, of pairs, and samples."""

from __future__ import annotations

import os
import random
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim.libdevice as libdevice
from tests.support.elementwise_cases import codes_of, mix

FILE = Path(__file__).parents[3] / "data/libdevice/h200.npz"
WHOLE = os.environ.get("TCSIM_LIBDEVICE") == "1"  # all 2**32 inputs: half an hour of two processors with numba
BLOCK = 1 << 22
NUMBA = find_spec("numba") is not None


@cache
def recorded() -> dict[str, npt.NDArray[Any]]:
    with np.load(FILE) as data:
        return {name: data[name] for name in data.files}


UNARY, PAIRS = recorded()["unary"].tolist(), recorded()["pairs"].tolist()


def row(kind: str, name: str) -> npt.NDArray[Any]:
    return recorded()[f"{'unary' if name in UNARY else 'pair'}_{kind}"][(UNARY if name in UNARY else PAIRS).index(name)]


def digest(first: int, results: npt.NDArray[np.float32]) -> int:
    index = np.arange(first, first + results.size, dtype=np.uint64)
    return int(mix(index << np.uint64(32) | codes_of(results).astype(np.uint64)).sum(dtype=np.uint64)) & 0xFFFFFFFF


def sample(i: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Every sign and exponent with 64 mantissas, then codes at random."""
    i = i.astype(np.uint64)
    k = (i & np.uint64(63)).astype(np.int64)
    random_mantissa = (mix(i) & np.uint64(0x7FFFFF)).astype(np.int64)
    mantissa = np.where(
        k < 8, k, np.where(k < 16, 0x7FFFFF - (k - 8), np.where(k < 39, 1 << np.clip(k - 16, 0, 22), random_mantissa))
    )
    corner = (i >> np.uint64(6)) << np.uint64(23) | mantissa.astype(np.uint64)
    codes = np.where(i < 32768, corner, mix(np.uint64(0x5EED00000000) + i) >> np.uint64(16))
    return codes.astype(np.uint32).view(np.float32)


def pair(block: int, i: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Block 0: special values squared; to 64: codes at random; the others: exponents near that of one."""
    i = i.astype(np.uint64)
    if block == 0:
        a, b = i >> np.uint64(10), i & np.uint64(1023)
        return sample(32 * a + a % np.uint64(7)), sample(32 * b + b % np.uint64(5))
    h = mix((np.uint64(block) << np.uint64(32)) + i + np.uint64(0x1234500000000000))
    g = mix(h)
    a, b = h >> np.uint64(32), g >> np.uint64(32)
    if block > 64:
        keep, one = np.uint64(0x807FFFFF), np.uint64(112)
        a = a & keep | one + (h & np.uint64(31)) << np.uint64(23)
        b = b & keep | one + (g & np.uint64(31)) << np.uint64(23)
        a = np.where(h & np.uint64(32) != 0, a & np.uint64(0x7FFFFFFF), a)
    return a.astype(np.uint32).view(np.float32), b.astype(np.uint32).view(np.float32)


def test_every_function_is_recorded() -> None:
    assert set(UNARY) | set(PAIRS) == set(libdevice.FUNCTIONS)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("engine", ["numpy", *(["numba"] if NUMBA else [])])
def test_special_values(name: str, engine: str) -> None:
    results = libdevice.FUNCTIONS[name](sample(np.arange(0, 65536, 64)), engine=engine)
    assert np.array_equal(codes_of(results), row("sample", name))


@pytest.mark.parametrize("name", UNARY)
def test_all_inputs(name: str) -> None:
    blocks = range(1024) if WHOLE else random.Random(name).sample(range(1024), 2 if NUMBA else 1)
    for block in blocks:
        codes = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint32)
        assert (
            digest(block * BLOCK, libdevice.FUNCTIONS[name](codes.view(np.float32))) == row("digests", name)[block]
        ), hex(block * BLOCK)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    for block in range(129) if WHOLE else (0, 1, 65):
        operands = pair(block, np.arange(1 << 20))
        assert digest(block << 20, libdevice.FUNCTIONS[name](*operands)) == row("digests", name)[block], block


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("engine", ["numpy", *(["numba"] if NUMBA else [])])
def test_special_pairs(name: str, engine: str) -> None:
    i = np.arange(0, 65536, 64)
    assert np.array_equal(
        codes_of(libdevice.FUNCTIONS[name](*pair(0, i * 16 + (i & 15)), engine=engine)), row("sample", name)
    )


def test_engines_agree() -> None:
    if not NUMBA:
        pytest.skip("numba is not installed")
    x = sample(np.arange(65536))
    for name in UNARY:
        function = libdevice.FUNCTIONS[name]
        assert np.array_equal(codes_of(function(x, engine="numpy")), codes_of(function(x, engine="numba"))), name


def test_shapes() -> None:
    x = np.ones((2, 3, 1), np.float32)
    assert libdevice.exp(x).shape == (2, 3, 1)
    assert libdevice.exp(x[:, :0]).shape == (2, 0, 1)
    assert libdevice.exp(np.float32(1)).shape == ()
    assert libdevice.divide(x, np.ones(4, np.float32)).shape == (2, 3, 4)
    assert np.array_equal(libdevice.log(np.ones((4, 4), np.float32).T[::2]), np.zeros((2, 4)))


@pytest.mark.parametrize("operands", [(np.ones(3),), (np.ones(3, np.float32),) * 2, (np.ones(3, np.float16),), ()])
def test_wrong_operands(operands: tuple[Any, ...]) -> None:
    with pytest.raises(libdevice.FunctionError, match="valid: 1 of float32"):
        libdevice.exp(*operands)
