"""The bits of a product that is fused with a sum: every spelling, source and sign against exact arithmetic; and what counts as different."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.isa.scalar import floating
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.ptx.compile.contraction import Source, differ, fused
from tests.exact import scalar as exact

SUMS = sorted(row.mnemonic for row in floating.table() if row.signs is not None)
_PARTS = {"f16x2": ("f16", 16), "bf16x2": ("bf16", 16), "f32x2": ("f32", 32)}
_TOP = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}
_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}


def codes(type: str) -> list[int]:
    """Numbers that one and two roundings tell apart, both zeros, the smallest, the ends, infinities and NaN."""
    bits = CONTAINERS[type].itemsize * 8
    one, top = _ONE[type], _TOP[type]
    sizes = [
        0,
        1,
        one,
        one + 1,
        one + 3,
        one - 1,
        top - 1,
        top,
        top | 1,
        top + (top & -top) // 2,
        (top & -top),
        (top & -top) - 1,
    ]
    return [size | sign << bits - 1 for size in sizes for sign in (0, 1)]


def columns(type: str) -> list[np.ndarray[Any, Any]]:
    """Of each operand an array: every pair of two, with the third another each time."""
    half, bits = _PARTS.get(type, (type, 0))
    own = codes(half)
    rows = [(own[i], own[j], own[(3 * i + 5 * j) % len(own)]) for i in range(len(own)) for j in range(len(own))]
    if bits:
        rows = [
            tuple(one | two << bits for one, two in zip(rows[at], rows[at - 7], strict=True)) for at in range(len(rows))
        ]  # type: ignore[misc]
    return [np.array(column, CONTAINERS[type]) for column in zip(*rows, strict=True)]


def negated(codes: np.ndarray[Any, Any], type: str) -> np.ndarray[Any, Any]:
    half, bits = _PARTS.get(type, (type, 0))
    sign = 1 << CONTAINERS[half].itemsize * 8 - 1
    return codes ^ codes.dtype.type(sign | (sign << bits if bits else 0))


@pytest.mark.parametrize("opcode", SUMS)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_rounding(opcode: str, place: int, sign: int) -> None:
    """The product with its sign, and the other source with the one that a difference gives it, in one exact fma."""
    stem, *words = opcode.split(".")
    type = words[-1]
    other, a, b = columns(type)
    given = fused(SimpleNamespace(opcode=opcode), Source(place, "%r", True, 0, True, sign))(other, a, b)  # type: ignore[arg-type]
    minus = sign < 0
    if stem == "sub" and place == 1:
        minus = not minus
    rest = negated(other, type) if stem == "sub" and place == 0 else other
    product = negated(a, type) if minus else a
    name = ".".join(["fma", "rn", *(word for word in words if word in ("ftz", "sat")), type])
    want = [exact.compute(name, tuple(map(int, row)), table=0)[0] for row in zip(product, b, rest, strict=True)]
    wrong = np.flatnonzero(np.asarray(given) != np.array(want, CONTAINERS[type]))
    assert not len(wrong), [hex(int(own[wrong[0]])) for own in (other, a, b)]
    assert len(want) == len(codes(_PARTS.get(type, (type, 0))[0])) ** 2


def test_every_sum_is_there() -> None:
    assert {name.split(".")[0] for name in SUMS} == {"add", "sub"}
    assert {name.split(".")[-1] for name in SUMS} >= {"f32", "f16", "f16x2", "f64"}


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
def test_nan_is_nan_and_nothing_else(type: str) -> None:
    """Any NaN is as any other, of either sign; infinities and zeros are what their bits say."""
    own = np.array(codes(type), CONTAINERS[type])
    below = (own & own.dtype.type((1 << own.dtype.itemsize * 8 - 1) - 1)).astype(object)
    for place, code in enumerate(own):
        found = differ(type, np.full(len(own), code, own.dtype), own)
        nan = [bool(size > _TOP[type]) for size in below]
        assert found.tolist() == [bool(code != other) and not (nan[place] and nan[at]) for at, other in enumerate(own)]


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_either_part_of_a_packed_pair_differs(half: str) -> None:
    one = np.uint32(_ONE[half] | _ONE[half] << 16)
    other = np.array([one, one ^ np.uint32(1), one ^ np.uint32(1 << 16), one ^ np.uint32(0x10001)], np.uint32)
    assert differ(f"{half}x2", np.full(4, one, np.uint32), other).tolist() == [False, True, True, True]
    nan = np.array([(_TOP[half] | 1) << 16 | 5, (_TOP[half] | 1) << 16 | 6], np.uint32)
    again = np.array([(_TOP[half] | 2) << 16 | 5, (_TOP[half] | 2) << 16 | 5], np.uint32)
    assert differ(f"{half}x2", nan, again).tolist() == [False, True]
