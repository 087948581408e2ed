"""Zero-column masks of tcgen05.mma.ws: bits, and the columns they keep, against a slow model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim.descriptors.zero_column_mask import FIELDS, ZeroColumnMask
from tests.exact import tensor_multiply as exact


@given(st.integers(0, 2**62 - 1), st.sampled_from([32, 64, 128]), st.sampled_from([64, 128, 256]))
def test_zero_column_masks(value: int, m: int, n: int) -> None:
    value &= sum(field.mask for field in FIELDS) & ~(3 << 60)
    mask = ZeroColumnMask.decode(value)
    assert mask.encode() == value
    runs = 128 // m
    fits = all(
        getattr(mask, f"start_{i}") < 1 + (mask.skip_span if getattr(mask, f"first_{i}") else mask.use_span)
        for i in range(runs)
    )
    if mask.shift > (16 if m == 32 else 32):
        with pytest.raises(tcsim.OperandError, match="shift"):
            mask.columns(m, n)
    elif mask.nonzero and not fits:
        with pytest.raises(tcsim.OperandError, match="first span"):
            mask.columns(m, n)
    else:
        assert mask.columns(m, n).tolist() == [exact.zeroed(value, m, n, column) for column in range(n)]


def test_zero_column_masks_shift_only_so_far() -> None:
    for m, limit in ((32, 16), (64, 32), (128, 32)):
        assert not ZeroColumnMask(shift=limit).columns(m, 64).any()
        with pytest.raises(tcsim.OperandError, match=rf"M = {m}: shift={limit + 1}; valid: 0 to {limit}"):
            ZeroColumnMask(shift=limit + 1).columns(m, 64)
