"""Shared-memory descriptors of sm_100: addresses against the slow model, canonical tiles, what is refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim.descriptors.addresses import element_bit_addresses
from tcsim.descriptors.forms import FORMS
from tcsim.descriptors.matrix import CanonicalTile, Major, MatrixDescriptor
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES
from tests.exact.tcgen05 import shared_bit

# format, kind, bits of an element, whether 16 of them take 16 bytes
ELEMENTS = [
    ("tf32", "tf32", 32, False), ("f16", "f16", 16, False), ("bf16", "f16", 16, False), ("e4m3", "f8f6f4", 8, False),
    ("u8", "i8", 8, False), ("e3m2", "f8f6f4", 6, True), ("e2m3", "mxf8f6f4", 6, True), ("e2m1", "mxf8f6f4", 4, True),
    ("e2m1", "mxf4", 4, False), ("e2m1", "mxf4nvf4", 4, False),
]  # fmt: skip
MODES = sorted(FORMS["sm_100"].modes)


def fits(bits: int, major: str, swizzle: str) -> bool:
    if major == "K":
        return swizzle != "128B_ATOM_32B"
    return bits >= 8 and (swizzle == "128B_ATOM_32B") == (bits == 32)


COMBINATIONS = [
    (element, major, swizzle)
    for element, major, swizzle in itertools.product(ELEMENTS, ("K", "MN"), MODES)
    if fits(element[2], major, swizzle)
]


@pytest.mark.parametrize(("element", "major", "swizzle"), COMBINATIONS)
def test_addresses_of_random_descriptors(element: tuple[str, str, int, bool], major: Major, swizzle: str) -> None:
    format, kind, bits, padded = element
    random = np.random.default_rng(COMBINATIONS.index((element, major, swizzle)))
    words = random.integers(0, 1 << 14, (4, 3)).astype(np.uint64)
    mode = np.uint64(FORMS["sm_100"].modes[swizzle])
    values = words[:, 0] | words[:, 1] << np.uint64(16) | words[:, 2] << np.uint64(32) | np.uint64(1 << 46)
    values |= mode << np.uint64(61)
    k = 256 // (8 if padded else bits)
    found = element_bit_addresses(values, 40, k, tcsim.format(format), major, "sm_103a", kind)
    compared = 0
    for value, table in zip(values.tolist(), found, strict=True):
        for row, column in itertools.product(range(0, 40, 3), range(k)):
            assert table[row, column] == shared_bit(value, row, column, bits, major == "MN", padded)
            compared += 1
        single = MatrixDescriptor.decode(value, arch="sm_100")
        np.testing.assert_array_equal(single.bit_addresses(40, k, format, major, kind), table)
        np.testing.assert_array_equal(single.addresses(40, k, format, major, kind), table // 8)
    assert compared == 4 * 14 * k


def test_an_absolute_leading_address_continues_the_rows_elsewhere() -> None:
    """K = 96 of fp4 takes 48 bytes: from byte 96 of a 128-byte row, 32 of them, and 16 of the tile at LBO."""
    tile = MatrixDescriptor(1024 + 96, 9216, 1024, swizzle="128B", leading_mode=1, arch="sm_103")
    found = tile.bit_addresses(128, 96, "e2m1", "K", "mxf4nvf4")
    compared = 0
    for row, k in itertools.product(range(128), range(96)):
        assert found[row, k] == shared_bit(tile.encode(), row, k, 4, False, False)
        compared += 1
    assert compared == 128 * 96
    assert (found[:, :64] // 8 < 1024 + 128 * 128).all()
    assert ((found[:, 64:] // 8 >= 9216) & (found[:, 64:] // 8 < 9216 + 128 * 128)).all()
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize(("k", "swizzle", "far"), [(96, "128B", 0), (768, "128B", 2), (768, "NONE", 0)])
def test_tiles_with_steps_of_96(k: int, swizzle: str, far: int) -> None:
    """Three panels of 256 fp4 are eight steps of K = 96; two of them begin in one panel and end in the next."""
    tile = MatrixDescriptor.for_tile(128, k, "e2m1", "K", swizzle, 4096, "sm_103", "mxf4nvf4", 96)
    assert tile.step == 96 and len(tile.descriptors) == k // 96
    assert sum(one.leading_mode for one in tile.descriptors) == far
    steps = [one.bit_addresses(128, 96, "e2m1", "K", "mxf4nvf4") for one in tile.descriptors]
    np.testing.assert_array_equal(np.concatenate(steps, axis=1), tile.bit_addresses)
    codes = np.arange(128 * k).reshape(128, k) % 13 % 16
    image = np.concatenate([np.zeros(4096, np.uint8), tile.image(codes.astype(np.uint8))])
    for step, one in enumerate(tile.descriptors):
        for row, place in itertools.product(range(0, 128, 17), range(0, 96, 5)):
            bit = shared_bit(one.encode(), row, place, 4, False, False)
            assert int(image[bit // 8]) >> bit % 8 & 15 == codes[row, 96 * step + place]


def test_a_tile_with_steps_of_96_is_multiplied() -> None:
    """A and B of K = 768 in shared memory: eight instructions, two with an LBO that is an address, give the sum of all."""
    name = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"
    mma = tcsim.instruction(name, arch="sm_103a")
    idesc = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=16, scale_format="ue4m3", k=96, arch="sm_103")
    stream = np.random.default_rng(7)
    a, b = (stream.integers(0, 16, (rows, 768)).astype(np.uint8) for rows in (128, 16))
    of_a = MatrixDescriptor.for_tile(128, 768, "e2m1", "K", "128B", 0, "sm_103", "mxf4nvf4", 96)
    of_b = MatrixDescriptor.for_tile(16, 768, "e2m1", "K", "128B", of_a.bytes, "sm_103", "mxf4nvf4", 96)
    smem = np.concatenate([of_a.image(a), of_b.image(b)])
    tmem = tcsim.TensorMemory.allocated()
    tmem.write(np.arange(128)[:, None], np.arange(64, 96), np.full((128, 32), 0x38383838, np.uint32))  # scales of 1
    want = np.zeros((128, 16), np.uint32)
    one = np.full((128, 6), 0x38, np.uint8)
    for step, (left, right) in enumerate(zip(of_a.descriptors, of_b.descriptors, strict=True)):
        tmem = mma.execute(
            tmem,
            smem,
            d=0,
            a=left.encode(),
            b=right.encode(),
            idesc=idesc,
            scale_a=64,
            scale_b=80,
            enable_input_d=step > 0,
        )
        part = slice(96 * step, 96 * step + 96)
        want = mma.matmul(a[:, part], b[:, part].T, want, idesc=idesc, scale_a=one, scale_b=one[:16].T)
    np.testing.assert_array_equal(tmem.read(np.arange(128)[:, None], np.arange(16)), want)
    assert np.count_nonzero(want) > 2000


@st.composite
def tiles(draw: st.DrawFn) -> CanonicalTile:
    (format, kind, bits, padded), major, swizzle = draw(st.sampled_from(COMBINATIONS))
    unit = 8 if padded else bits
    pattern, step = DESCRIPTOR_SWIZZLES[swizzle], 256 // unit
    width = pattern.span * 8 // unit
    depth = [k for k in range(step, 8 * step + 1, step) if major == "MN" or k <= width or k % width == 0]
    rows = [r for r in range(8, 257, 8) if major == "K" or r <= width or r % width == 0]
    start = pattern.period * draw(st.integers(0, 4))
    return MatrixDescriptor.for_tile(
        draw(st.sampled_from(rows)), draw(st.sampled_from(depth)), format, major, swizzle, start, "sm_100a", kind
    )  # type: ignore[arg-type]


@given(tile=tiles())
def test_every_k_step_reads_its_part_of_the_tile(tile: CanonicalTile) -> None:
    steps = [one.bit_addresses(tile.rows, tile.step, tile.format, tile.major, tile.kind) for one in tile.descriptors]
    assert len(steps) * tile.step == tile.k
    np.testing.assert_array_equal(np.concatenate(steps, axis=1), tile.bit_addresses)
    np.testing.assert_array_equal(tile.addresses, tile.bit_addresses // 8)
    report = tile.descriptor.check(tile.rows, tile.step, tile.format, tile.major, kind=tile.kind)
    assert report.ok
    assert report.conflict_degree == 1
    assert report.off_phase == 0


@pytest.mark.parametrize("element", ELEMENTS)
def test_images_hold_the_codes(element: tuple[str, str, int, bool]) -> None:
    format, kind, bits, padded = element
    tile = MatrixDescriptor.for_tile(16, 512 // (8 if padded else bits), format, "K", "64B", 512, "sm_100", kind)
    row = tcsim.format(format)
    codes = np.random.default_rng(bits).integers(0, row.code_mask + 1, (2, 16, tile.k), np.uint64).astype(row.dtype)
    image = tile.image(codes)
    assert image.shape == (2, tile.bytes)
    whole = [int.from_bytes(one.tobytes(), "little") for one in image]
    mask, base = (1 << max(bits, row.bits)) - 1, tile.descriptor.start_address * 8
    compared = 0
    for b, r, k in itertools.product(range(2), range(16), range(tile.k)):
        at = shared_bit(tile.descriptor.encode(), r, k, bits, False, padded) - base
        assert whole[b] >> at & mask == int(codes[b, r, k])
        compared += 1
    assert compared == codes.size


def test_tiles_are_those_of_cute() -> None:
    """CUTLASS's Layout_MN_SW128_32B_Atom<tf32> tiled to 64 x 16: 4 k of 128 bytes an atom."""
    tile = MatrixDescriptor.for_tile(64, 16, "tf32", "MN", "128B_ATOM_32B", arch="sm_100")
    assert str(tile.swizzle) == "Swizzle<2,5,2>"
    assert str(tile.layout) == "((32,2),(4,4)):((1,512),(32,128))"
    assert (tile.descriptor.leading_byte_offset, tile.descriptor.stride_byte_offset) == (2048, 512)
    assert tile.advances == (0, 1024)
    assert tile.swizzle.period == 512


def test_known_words() -> None:
    """The descriptor that many public kernels for B200 build: LBO 16, SBO 1024, 128-byte swizzle."""
    one = MatrixDescriptor(0, 16, 1024, swizzle="128B", arch="sm_100")
    assert one.encode() == 0x4000404000010000
    lines = one.describe()
    assert lines[3] == "bits 48:46  version              1          1: the form of sm_100"
    assert lines[-1].startswith("bits 63:61  swizzle              128B")
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: MatrixDescriptor(arch="sm_100").addresses(8, 8, "tf32", "MN"), "32-bit elements need the swizzle 128B_ATOM_32B"),
        (lambda: MatrixDescriptor(swizzle="128B_ATOM_32B", arch="sm_100").addresses(8, 16, "f16", "MN"), "is for 32-bit"),
        (lambda: MatrixDescriptor(swizzle="128B_ATOM_32B", arch="sm_100").addresses(8, 8, "tf32"), "MN-major tiles only"),
        (lambda: MatrixDescriptor(arch="sm_100").addresses(8, 32, "e2m1", "MN", "mxf4"), "only 8-bit, 16-bit and 32-bit"),
        (lambda: MatrixDescriptor(arch="sm_100").addresses(8, 32, "e2m1"), "which kind?"),
        (lambda: MatrixDescriptor(arch="sm_100").addresses(8, 32, "e3m2", kind="mxf4"), "which kind?"),
        (lambda: MatrixDescriptor(arch="sm_100").addresses(8, 32, "f16", "N"), "valid are K, MN"),  # type: ignore[arg-type]
        (lambda: MatrixDescriptor(base_offset=1, swizzle="64B", arch="sm_100").addresses(8, 16, "f16"), "not published; valid: 0"),
        (lambda: MatrixDescriptor(leading_mode=1, swizzle="64B", arch="sm_100").addresses(8, 16, "f16"), "128B swizzle only"),
        (lambda: MatrixDescriptor(leading_mode=1, swizzle="128B", arch="sm_100").addresses(8, 16, "f16", "MN"), "K-major tiles"),
        (lambda: MatrixDescriptor.decode(1 << 46 | 3 << 61, arch="sm_100"), "swizzle mode 3 does not exist"),
        (lambda: MatrixDescriptor.decode(3 << 46, arch="sm_100"), "must be set to 1"),
        (lambda: MatrixDescriptor.decode(0, arch="sm_100"), "must be set"),
        (lambda: MatrixDescriptor.for_tile(64, 64, "tf32", "MN", arch="sm_100"), "need the swizzle 128B_ATOM_32B"),
        (lambda: MatrixDescriptor.for_tile(64, 96, "e2m1", kind="mxf4", arch="sm_100"), "multiples of 64"),
        (lambda: MatrixDescriptor.for_tile(64, 80, "e2m1", kind="mxf4", arch="sm_103", step=80), "step=80; valid: 64, 96, 128"),
        (lambda: MatrixDescriptor.for_tile(64, 96, "e2m1", swizzle="64B", kind="mxf4", arch="sm_103", step=96), "with the swizzle 128B or NONE"),
        (lambda: MatrixDescriptor.for_tile(64, 24, "f16", step=24), "step=24; valid: 16"),
        (lambda: MatrixDescriptor.for_tile(64, 64, "f16", swizzle="128B_ATOM_32B"), "no such swizzle; valid: NONE, 128B, 64B, 32B"),
        (lambda: element_bit_addresses(np.array([5 << 61], np.uint64), 8, 16, tcsim.format("f16"), "K", "sm_100"), "does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be(call: Callable[[], object], text: str) -> None:
    with pytest.raises(tcsim.OperandError, match=re.escape(text)):
        call()


def test_the_descriptor_of_sm_107() -> None:
    """A bit more of what may be an address, and one for the half of lookup indices; the rest as on sm_100."""
    compared = 0
    for start, leading, far in ((1 << 14, 0, 0), (0x7FFF, 0x4001, 0), (0x7F00, 0x7123, 1)):
        one = MatrixDescriptor(
            16 * start, 16 * leading, 1024, 0, "128B" if far else "NONE", far, k_half=1, arch="sm_107"
        )
        assert (
            one.encode() == start | leading << 16 | 64 << 32 | 1 << 46 | far << 52 | 1 << 53 | (2 if far else 0) << 61
        )
        assert MatrixDescriptor.decode(one.encode(), "sm_107a") == one
        found = one.bit_addresses(16, 48, "u8")
        for row, k in itertools.product(range(16), range(48)):
            assert found[row, k] == shared_bit(one.encode() & ~(1 << 53), row, k, 8, False, False)
            compared += 1
        for arch in ("sm_100", "sm_103"):
            with pytest.raises(tcsim.OperandError, match="belong to no field"):
                MatrixDescriptor.decode(one.encode(), arch)
    assert compared == 3 * 16 * 48
    with pytest.raises(tcsim.OperandError, match="sm_103 descriptors have no field k_half"):
        MatrixDescriptor(k_half=1, arch="sm_103").encode()
    tile = MatrixDescriptor.for_tile(64, 48, "u8", arch="sm_107", step=48)
    assert (tile.step, tile.advances) == (48, (0,))


def test_archs_without_descriptors() -> None:
    with pytest.raises(tcsim.TargetError, match="sm_120 has no matrix descriptors"):
        MatrixDescriptor.for_tile(64, 64, "f16", arch="sm_120")
