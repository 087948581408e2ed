"""Compiled code gives the bits of the NumPy functions that it was made from."""

from __future__ import annotations

import pytest

from tcsim.isa.scalar.catalog import scalars
from tcsim.lowering.traced import Untraceable
from tests.unit.tcsim.lowering.lowered_rows import LEFT, compared, conversions, converted

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
