"""Compiled code gives the bits of the NumPy functions that it was made from."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.isa.scalar.catalog import scalars
from tcsim.lowering.traced import Untraceable
from tests.unit.tcsim.lowering.lowered_rows import LEFT, compared, compared_function, conversions, converted

PARTS = 24
EACH = 12
"""One row in 12 is compiled here; `tox -e engines` compiles all."""


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_as_compiled_code(part: int) -> None:
    """Corners, numbers and bits at random; a row is compiled, or is one of the few that are known to run in NumPy."""
    rows = list(scalars().values())[part::PARTS][part % EACH :: EACH]
    assert len(rows) >= 20
    outputs = 0
    for row in rows:
        try:
            found = compared(row, 1536)
        except Untraceable:
            assert row.mnemonic in LEFT
            continue
        assert not found.different
        outputs += found.inputs
    assert outputs >= 1536 * (len(rows) - 3)


@pytest.mark.parametrize("part", range(6))
def test_special_functions_and_conversions(part: int) -> None:
    """All of them are compiled."""
    names = conversions()[part::6]
    assert len(names) >= 30
    for name in names:
        found = converted(name, 1 << 14)
        assert found.inputs == 1 << 14 and not found.different


def test_powers_of_two_round_once() -> None:
    """Up to beyond the ends of the range: only the last product may round."""

    def scaled(codes: np.ndarray, power: np.ndarray) -> np.ndarray:
        value = codes.view(np.float64)
        found: np.ndarray = np.ldexp(np.where(np.isnan(value), 1.0, value), power.view(np.int32) >> 19).view(np.uint64)
        return found

    def small(codes: np.ndarray, power: np.ndarray) -> np.ndarray:
        """Numbers of 12 bits near 2^-45, a few of whose bits are left."""
        value = (codes & np.uint64(0xFFF << 40) | np.uint64(1023 - 45 << 52)).view(np.float64)
        found: np.ndarray = np.ldexp(value, -1022 - (power & np.uint32(7)).view(np.int32)).view(np.uint64)
        return found

    for function in (scaled, small):
        found = compared_function("ldexp", function, ["f64", "u32"], 1 << 16)
        assert found.inputs == 1 << 16 and not found.different
