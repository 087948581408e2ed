"""Lanes of a warp that store to one place: whose bytes stay, as an H200 left them."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.machine.accesses import store_order

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; {place} mul.wide.u32 %d1, %r1, 4; add.s64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r0; ret;
}}
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("mov.u32 %r1, 0;", [32, 9, 9, 9]),  # the second warp, and of it the lowest lane
        ("and.b32 %r1, %r0, 3;", [32, 33, 34, 35]),
        ("not.b32 %r1, %r0; and.b32 %r1, %r1, 3;", [35, 34, 33, 32]),
        ("shr.u32 %r1, %r0, 4;", [0, 16, 32, 48]),
    ],
)
def test_the_lowest_lane_comes_last(place: str, expected: list[int]) -> None:
    memory = Memory()
    out = memory.allocate(np.full(4, 9, np.uint32).view(np.uint8))
    assert parse(KERNEL.format(place=place)).kernel().launch(memory, [out], block=(64, 1, 1), check=False).completed
    assert memory.read(out, 16).view(np.uint32).tolist() == expected


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_the_order_of_any_threads(size: int) -> None:
    """As sorting by the thread with the lane in its part turned round gives it."""
    rng = np.random.default_rng(size)
    for count in (1, 2, 31, 32, 33, 200, 1024):
        threads = np.sort(rng.choice(1024, count, replace=False))
        expected = np.argsort(threads ^ (min(32, 128 // size) - 1))
        assert np.array_equal(store_order(threads, size), expected)
