"""The operations against an H200's torch 2.11, recorded by tests/support/record_elementwise.py: digests of 16 segments a case."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tcsim.aten import elementwise as aten
from tcsim.core.errors import OperandError
from tests.support import extent
from tests.support.elementwise_cases import SEGMENTS, SETS, binary, codes_of, digest, operands, unary

LONG = 1 << 20
FILE = Path(__file__).parents[3] / "data/aten/elementwise_h200.npz"


@cache
def recorded() -> dict[str, npt.NDArray[Any]]:
    with np.load(FILE) as data:
        return {name: data[name] for name in data.files}


@cache
def inputs(key: str, format: str) -> Any:
    return operands(format, SETS[key])


def segments_of(place: int, size: int) -> list[int]:
    """The segments that are compared: of long arrays two, an even and an odd one, others for each operation; all of them in a whole run."""
    every = extent.WHOLE or size < LONG
    return list(range(SEGMENTS)) if every else [2 * (place % 8), 2 * (place // 8 % 8) + 1]


CASES = [
    (key, format, kind) for key in SETS if f"names{key}" in recorded() for format in aten.FORMATS for kind in ("unary", "binary")
]  # fmt: skip


@pytest.mark.parametrize(("key", "format", "kind"), CASES)
def test_recorded(key: str, format: str, kind: str) -> None:
    one, two = inputs(key, format)
    calls, arrays = (unary(SETS[key]), one) if kind == "unary" else (binary(SETS[key]), two)
    places = {name: place for place, name in enumerate(recorded()[f"names{key}"].tolist())}
    calls.pop(f"to({format})", None)
    wrong, rows = [], [array.reshape(SEGMENTS, -1) for array in arrays]
    with np.errstate(all="ignore"):
        for name, call in calls.items():
            place = places[f"{name}|{format}"]
            segments = segments_of(place, arrays[0].size)
            codes = codes_of(call(*(row[segments].reshape(-1) for row in rows))).reshape(len(segments), -1)
            digests = (digest(codes, segments) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            if not np.array_equal(codes[:, :2], recorded()[f"sample{key}"][place][segments]):
                wrong.append(f"{name}: sample")
            elif not np.array_equal(digests, recorded()[f"digests{key}"][place][segments]):
                wrong.append(name)
    assert not wrong


def test_every_recorded_case_is_compared() -> None:
    for key, of in SETS.items():
        if f"names{key}" in recorded():
            names = {name.partition("|")[0] for name in recorded()[f"names{key}"].tolist()}
            assert names == set(unary(of)) | set(binary(of))


def test_every_exact_operation_is_recorded() -> None:
    called: set[str] = set()
    original = aten.Operation.__call__
    try:
        aten.Operation.__call__ = lambda self, *a, **n: (called.add(self.name), original(self, *a, **n))[1]  # type: ignore[method-assign,return-value,func-returns-value]
        x = np.ones(16, np.float32)
        for call in unary(SETS["1"]).values():
            call(x)
        for call in binary(SETS["1"]).values():
            call(x, x)
    finally:
        aten.Operation.__call__ = original  # type: ignore[method-assign]
    assert {name for name, row in aten.OPERATIONS.items() if row.known == "exact"} <= called


def test_shapes() -> None:
    assert aten.add(np.ones((2, 1), np.float16), np.ones(3, np.float16), alpha=2).shape == (2, 3)
    assert aten.exp(np.zeros((0, 4), np.float32)).shape == (0, 4)


@pytest.mark.parametrize("given", [(np.ones(3),), (np.ones(3, np.int32),), (), (np.ones(2, np.float16),) * 2])
def test_wrong_operands(given: tuple[Any, ...]) -> None:
    with pytest.raises(OperandError, match="valid: 1 arrays of one of f32, bf16, f16"):
        aten.exp(*given)
