"""Canonical tiles and the check of a descriptor, against the formulas measured on an H200 and against the multiplication."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim.descriptors.checks import _conflicts
from tcsim.descriptors.matrix import CanonicalTile, Major, MatrixDescriptor
from tcsim.layouts.swizzle import SWIZZLES

FORMATS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1")


def element_bits(name: str) -> int:
    return {"tf32": 32, "f16": 16, "bf16": 16, "b1": 1}.get(name, 8)


@st.composite
def tiles(draw: st.DrawFn) -> CanonicalTile:
    swizzle = draw(st.sampled_from(sorted(SWIZZLES)))
    name = draw(st.sampled_from(FORMATS))
    major: Major = draw(st.sampled_from(["K", "MN"])) if element_bits(name) == 16 else "K"
    span, step = SWIZZLES[swizzle].span, 256 // element_bits(name)
    width = span * 8 // element_bits(name)
    fits = [k for k in range(step, 8 * step + 1, step) if major == "MN" or k <= width or k % width == 0]
    rows = [r for r in range(8, 257, 8) if major == "K" or r <= width or r % width == 0]
    start = SWIZZLES[swizzle].period * draw(st.integers(0, 4))
    return MatrixDescriptor.for_tile(
        draw(st.sampled_from(rows)), draw(st.sampled_from(fits)), name, major, swizzle, start
    )


@given(tile=tiles())
def test_every_k_step_reads_its_part_of_the_tile(tile: CanonicalTile) -> None:
    steps = [one.addresses(tile.rows, tile.step, tile.format, tile.major) for one in tile.descriptors]
    assert len(steps) * tile.step == tile.k
    np.testing.assert_array_equal(np.concatenate(steps, axis=1), tile.addresses)


@given(tile=tiles())
def test_the_check_finds_nothing_wrong_with_a_canonical_tile(tile: CanonicalTile) -> None:
    for number, one in enumerate(tile.descriptors):
        report = one.check(tile.rows, tile.step, tile.format, tile.major)
        assert report.ok
        assert report.conflict_degree == 1
        assert (report.off_phase == 0) == (tile.advances[number] % tile.swizzle.period == 0)
    start = tile.descriptor.start_address
    assert tile.addresses.min() >= start
    assert tile.addresses.max() + max(1, tile.bits // 8) <= start + tile.bytes


def _codes(tile: CanonicalTile, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if tile.format.name == "tf32":  # small whole numbers, so that any order of sums is exact
        return random.integers(-4, 5, (tile.rows, tile.k)).astype(np.float32).view(np.uint32)
    if tile.format.name in ("s8", "u8", "b1"):
        return random.integers(0, 2 if tile.format.name == "b1" else 100, (tile.rows, tile.k)).astype(np.uint8)
    return tcsim.encode(random.integers(-4, 5, (tile.rows, tile.k)).astype(np.float64), tile.format)


CASES = [
    (name, swizzle, a, b)
    for name, swizzle in itertools.product(FORMATS, SWIZZLES)
    for a, b in itertools.product(("K", "MN") if element_bits(name) == 16 else ("K",), repeat=2)
]


@pytest.mark.parametrize(("name", "swizzle", "a_major", "b_major"), CASES)
def test_the_steps_multiply_the_whole_tile(name: str, swizzle: str, a_major: Major, b_major: Major) -> None:
    """Images in shared memory, one wgmma for each K step: the product of the two tiles, which is exact here."""
    k = 4 * 256 // element_bits(name)
    n = 8 if b_major == "K" else 64
    a = MatrixDescriptor.for_tile(64, k, name, a_major, swizzle)
    b = MatrixDescriptor.for_tile(n, k, name, b_major, swizzle, start_address=-(-a.bytes // 1024) * 1024)
    codes_a, codes_b = _codes(a, 1), _codes(b, 2)
    smem = np.zeros(b.descriptor.start_address + b.bytes, np.uint8)
    smem[: a.bytes] = a.image(codes_a)
    smem[b.descriptor.start_address :] = b.image(codes_b)
    kind = {"b1": "s32.b1.b1.and.popc", "s8": "s32.s8.s8", "u8": "s32.u8.u8"}.get(name, f"f32.{name}.{name}")
    wgmma = tcsim.instruction(f"wgmma.mma_async.sync.aligned.m64n{n}k{a.step}.{kind}", arch="sm_90a")
    d = np.zeros((128, wgmma.operands["d"].registers), np.uint32)
    flags = {"trans_a": int(a_major == "MN"), "trans_b": int(b_major == "MN")} if element_bits(name) == 16 else {}
    for one, other in zip(a.descriptors, b.descriptors, strict=True):
        d = wgmma.execute(smem=smem, a=one.encode(), b=other.encode(), c=d, **flags)
    got = wgmma.matrix("d", d).reshape(64, n)
    values = [tcsim.decode(codes, name).astype(np.float64) for codes in (codes_a, codes_b)]
    wanted = values[0] @ values[1].T
    assert np.count_nonzero(wanted) > wanted.size // 2
    np.testing.assert_array_equal(tcsim.decode(got, wgmma.operands["d"].format), wanted)


def test_the_layout_of_cute() -> None:
    """CuTe's Layout_K_SW128_Atom of half_t and its kin, tiled to 128 x 128: the strings that print(layout) gives there."""
    k = MatrixDescriptor.for_tile(128, 128, "f16", "K", "128B")
    assert str(k.swizzle) == "Swizzle<3,4,3>"  # of bytes; CuTe recasts it to Swizzle<3,3,3> of half_t
    assert str(k.layout) == "((8,16),(64,2)):((64,512),(1,8192))"
    mn = MatrixDescriptor.for_tile(128, 64, "f16", "MN", "128B")
    assert str(mn.layout) == "((64,2),(8,8)):((1,4096),(64,512))"
    assert (mn.descriptor.leading_byte_offset, mn.descriptor.stride_byte_offset) == (8192, 1024)
    assert mn.advances == (0, 2048, 4096, 6144)


def test_a_tile_narrower_than_the_swizzle_leaves_the_ends_of_rows_unused() -> None:
    tile = MatrixDescriptor.for_tile(64, 16, "f16", "K", "128B")
    assert tile.bytes == 64 * 128
    report = tile.descriptor.check(64, 16, "f16")
    assert report.ok
    assert report.unused == report.last + 1 - report.first - 64 * 32
    assert any(f"{report.unused} bytes" in text for text in report.messages)


@pytest.mark.parametrize(
    ("rows", "k", "name", "major", "swizzle", "start", "valid"),
    [
        (12, 16, "f16", "K", "128B", 0, "valid: multiples of 8"),
        (0, 16, "f16", "K", "128B", 0, "valid: multiples of 8"),
        (64, 8, "f16", "K", "128B", 0, "valid: multiples of 16"),
        (64, 16, "e4m3", "K", "128B", 0, "valid: multiples of 32"),
        (64, 80, "f16", "K", "128B", 0, "valid: at most 64, or multiples of it"),
        (72, 16, "f16", "MN", "128B", 0, "valid: at most 64, or multiples of it"),
        (64, 8, "tf32", "MN", "128B", 0, "only 16-bit elements"),
        (64, 16, "f16", "N", "128B", 0, "valid: K, MN"),
        (64, 16, "f16", "K", "256B", 0, "valid: NONE"),
        (64, 16, "f16", "K", "128B", 512, "valid: multiples of 1024 bytes"),
        (64, 16, "f16", "K", "NONE", 8, "valid: multiples of 16 bytes"),
    ],
)
def test_tiles_that_cannot_be(rows: int, k: int, name: str, major: Major, swizzle: str, start: int, valid: str) -> None:
    with pytest.raises(tcsim.OperandError, match=re.escape(valid)):
        MatrixDescriptor.for_tile(rows, k, name, major, swizzle, start)


def test_images_of_other_shapes_are_refused() -> None:
    tile = MatrixDescriptor.for_tile(64, 16, "f16")
    with pytest.raises(tcsim.OperandError, match=r"valid: \(\.\.\., 64, 16\)"):
        tile.image(np.zeros((16, 64), np.uint16))


def test_the_check_names_the_common_mistakes() -> None:
    right = MatrixDescriptor.for_tile(64, 16, "f16", "K", "NONE").descriptor
    in_units = replace(right, stride_byte_offset=16)
    report = in_units.check(64, 16, "f16")
    assert len(report.shared) == 64 * 16 - len(np.unique(in_units.addresses(64, 16, "f16"))) > 0
    assert "SBO=16" in report.messages[0]
    late = replace(right, start_address=227 * 1024 - 1024)
    report = late.check(64, 16, "f16")
    assert len(report.outside) == int((late.addresses(64, 16, "f16") + 2 > 227 * 1024).sum()) > 0
    assert "outside" in report.messages[0]
    with pytest.raises(tcsim.OperandError, match="memory=0"):
        right.check(64, 16, "f16", memory=0)


@given(value=st.integers(0, 2**14 - 1), stride=st.integers(0, 2**14 - 1), swizzle=st.sampled_from(sorted(SWIZZLES)))
def test_no_descriptor_has_conflicts_within_a_core_matrix(value: int, stride: int, swizzle: str) -> None:
    """The 8 rows of 16 bytes lie one swizzle span apart, and the swizzle spreads just those: that is what it is for."""
    descriptor = MatrixDescriptor(value * 16, stride * 16, stride * 16, swizzle=swizzle)
    for major in ("K", "MN"):
        assert descriptor.check(64, 16, "f16", major).conflict_degree == 1


def test_the_conflict_degree_counts() -> None:
    """Rows that all lie in the same banks, which no descriptor can describe, would take 8 passes."""
    address = np.arange(8)[:, None] * 128 + np.arange(8)[None, :] * 2
    assert _conflicts(address, 8) == 8
