"""Tensor maps: every rule of the driver's encode functions and every use that cannot be, as an error with a name."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.core.addresses import ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import OperandError
from tcsim.tma import rules
from tcsim.tma.copy import CoordinateError, DirectionError, MisalignedCoordinateError, StoreCoordinateError
from tcsim.tma.reduce import ReductionError
from tcsim.tma.types import DATA_TYPES, SWIZZLE_MODES, NotModelledError, TensorMapError, UnknownModeError

MATRIX = {"data_type": "FLOAT16", "global_dim": (256, 100), "global_strides": (512,), "box_dim": (64, 8)}
CUBE = {"data_type": "FLOAT16", "global_dim": (64, 9, 3), "global_strides": (128, 1152), "box_dim": (16, 2, 2)}
IMAGE = {
    "data_type": "FLOAT16", "global_dim": (64, 9, 14, 3), "global_strides": (128, 1152, 16128),
    "pixel_box_lower_corner": (-1, -1), "pixel_box_upper_corner": (-1, -1), "channels_per_pixel": 32,
    "pixels_per_column": 64, "swizzle": "64B",
}  # fmt: skip
WIDE = {
    "data_type": "FLOAT16", "global_dim": (64, 9, 3), "global_strides": (128, 1152), "channels_per_pixel": 64,
    "pixels_per_column": 128,
}  # fmt: skip

TILED_FAULTS = [
    (MATRIX, {"data_type": "FLOAT_16"}, UnknownModeError, "nearest: FLOAT16"),
    (MATRIX, {"swizzle": "96B"}, UnknownModeError, "no CU_TENSOR_MAP_SWIZZLE_96B"),
    (MATRIX, {"interleave": "64B"}, UnknownModeError, "all: NONE, 16B, 32B"),
    (MATRIX, {"l2_promotion": "128B"}, UnknownModeError, "nearest: L2_128B"),
    (MATRIX, {"oob_fill": "NAN"}, UnknownModeError, "NAN_REQUEST_ZERO_FMA"),
    (MATRIX, {"global_dim": (256.0, 100)}, TensorMapError, "valid: integers"),
    (MATRIX, {"global_dim": 256}, TensorMapError, "sequence of integers"),
    (MATRIX, {"global_dim": ()}, rules.TensorRankError, "0 dimensions; a map has 1 to 5"),
    (MATRIX, {"global_dim": (8,) * 6, "box_dim": (8,) * 6, "global_strides": (16,) * 5}, rules.TensorRankError, "6 dim"),
    (MATRIX, {"global_strides": (512, 51200)}, rules.TensorRankError, "2 entries; rank 2 needs 1: the innermost"),
    (MATRIX, {"box_dim": (64,)}, rules.TensorRankError, "1 entries; rank 2 needs 2"),
    (MATRIX, {"element_strides": (1, 1, 1)}, rules.TensorRankError, "3 entries; rank 2 needs 2"),
    (MATRIX, {"global_dim": (0, 100)}, rules.GlobalDimError, "global_dim\\[0\\]=0; valid: 1 to 2"),
    (MATRIX, {"global_dim": (256, 2**32 + 1)}, rules.GlobalDimError, "global_dim\\[1\\]=4294967297"),
    (MATRIX, {"global_strides": (520,)}, rules.GlobalStrideError, "multiples of 16 bytes below 2"),
    (MATRIX, {"global_strides": (2**40,)}, rules.GlobalStrideError, "global_strides\\[0\\]=1099511627776"),
    (MATRIX, {"global_strides": (-16,)}, rules.GlobalStrideError, "=-16"),
    (CUBE, {"global_strides": (144, 1152), "interleave": "32B", "swizzle": "32B"}, rules.GlobalStrideError, "of 32 bytes"),
    (MATRIX, {"box_dim": (64, 257)}, rules.BoxDimError, "box_dim\\[1\\]=257; valid: 1 to 256"),
    (MATRIX, {"box_dim": (64, 0)}, rules.BoxDimError, "box_dim\\[1\\]=0"),
    (MATRIX, {"box_dim": (60, 8)}, rules.BoxDimError, "120 bytes; .* multiple of 8 elements of FLOAT16"),
    (MATRIX, {"element_strides": (1, 9)}, rules.ElementStrideError, "element_strides\\[1\\]=9; valid: 1 to 8"),
    (MATRIX, {"element_strides": (1, 0)}, rules.ElementStrideError, "=0"),
    (MATRIX, {"interleave": "16B"}, rules.InterleaveError, "2 dimensions; it needs 3"),
    (CUBE, {"interleave": "16B", "box_dim": (4, 2, 2)}, rules.BoxDimError, "8 bytes; .* multiple of 16 bytes"),
    (CUBE, {"box_dim": (64, 64, 64)}, rules.BoxBytesError, "box_dim / element_strides is 524288 bytes; .* at most 233472"),
    (MATRIX, {"box_dim": (72, 8)}, rules.SwizzleModeError, "144 bytes, more than the 128 bytes .* at most 64 elements"),
    (MATRIX, {"swizzle": "32B"}, rules.SwizzleModeError, "at most 16 elements, or swizzle NONE, 128B"),
    (MATRIX, {"swizzle": "128B_ATOM_64B", "box_dim": (72, 8)}, rules.SwizzleModeError, "more than the 128"),
    (MATRIX, {"data_type": "UINT16", "oob_fill": "NAN_REQUEST_ZERO_FMA"}, rules.OutOfBoundsFillError, "UINT16 is filled"),
    (MATRIX, {"data_type": "16U4_ALIGN8B", "oob_fill": "NAN_REQUEST_ZERO_FMA"}, rules.OutOfBoundsFillError, "16U4"),
    (MATRIX, {"data_type": "16U4_ALIGN8B", "box_dim": (48, 8)}, rules.BoxDimError, "24 bytes; .* multiple of 32"),
    (MATRIX, {"data_type": "16U4_ALIGN8B", "global_dim": (255, 100)}, rules.GlobalDimError, "multiple of 2"),
    (MATRIX, {"data_type": "16U6_ALIGN16B"}, rules.BoxDimError, "takes 128 elements only"),
    (MATRIX, {"data_type": "16U6_ALIGN16B", "global_dim": (192, 100)}, rules.GlobalDimError, "multiple of 128"),
    (MATRIX, {"data_type": "16U4_ALIGN16B", "global_strides": (528,)}, rules.GlobalStrideError, "multiples of 32"),
    (MATRIX, {"data_type": "16U4_ALIGN16B", "box_dim": (128, 8), "swizzle": "64B"}, rules.SwizzleModeError, "valid: 128B"),
    (CUBE, {"data_type": "16U6_ALIGN16B", "global_dim": (128, 9, 3), "interleave": "16B"}, rules.InterleaveError, "NONE only"),
]  # fmt: skip


@pytest.mark.parametrize(("valid", "fault", "error", "words"), TILED_FAULTS)
def test_tiled_maps_that_the_driver_would_not_encode(valid, fault, error, words):
    tcsim.TensorMap(**valid)
    with pytest.raises(error, match=words):
        tcsim.TensorMap(**valid | fault)


IM2COL_FAULTS = [
    ({"global_dim": (64, 9), "global_strides": (128,)}, rules.TensorRankError, "an im2col map has 3 to 5"),
    ({"pixel_box_lower_corner": (-1,)}, rules.TensorRankError, "pixel_box_lower_corner"),
    ({"pixel_box_lower_corner": (-129, 0)}, rules.PixelBoxError, "lower_corner\\[0\\]=-129; rank 4 holds -128 to 127"),
    ({"pixel_box_upper_corner": (0, 128)}, rules.PixelBoxError, "upper_corner\\[1\\]=128"),
    ({"pixel_box_lower_corner": (8, 0)}, rules.PixelBoxError, "W reaches from 8 to 7 .* no pixel"),
    ({"channels_per_pixel": 257, "swizzle": "NONE"}, rules.PixelCountError, "channels_per_pixel=257; valid: 1 to 256"),
    ({"channels_per_pixel": 4}, rules.PixelCountError, "8 bytes; .* multiple of 8 elements of FLOAT16"),
    ({"channels_per_pixel": 256, "swizzle": "NONE", "pixels_per_column": 457}, rules.BoxBytesError, "is 233984 bytes"),
    ({"channels_per_pixel": 0}, rules.PixelCountError, "=0"),
    ({"pixels_per_column": 1025}, rules.PixelCountError, "pixels_per_column=1025; valid: 1 to 1024"),
    ({"channels_per_pixel": 64}, rules.SwizzleModeError, "channels_per_pixel=64 is 128 bytes"),
    ({"element_strides": (1, 9, 1, 1)}, rules.ElementStrideError, "=9"),
    ({"data_type": "16U4_ALIGN16B", "global_dim": (128, 9, 14, 3)}, rules.PixelCountError, "takes 128 only"),
]


@pytest.mark.parametrize(("fault", "error", "words"), IM2COL_FAULTS)
def test_im2col_maps_that_the_driver_would_not_encode(fault, error, words):
    tcsim.TensorMap.im2col(**IMAGE)
    with pytest.raises(error, match=words):
        tcsim.TensorMap.im2col(**IMAGE | fault)


def test_an_interleaved_im2col_copy_moves_one_slice_of_channels():
    """And a plain one its channels, with as many pixels."""
    assert tcsim.TensorMap.im2col(**IMAGE).loaded == (32, 64)
    channels = {"global_dim": (9, 14, 3, 2), "global_strides": (288, 4032, 12096), "swizzle": "NONE"}
    assert tcsim.TensorMap.im2col(**IMAGE | channels | {"interleave": "16B"}).loaded == (1, 64)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ({"mode": "X"}, UnknownModeError, "all: W, W128"),
        ({"swizzle": "32B", "channels_per_pixel": 16}, rules.SwizzleModeError, "64B, 128B, 128B_ATOM_32B"),
        ({"pixels_per_column": 1025}, rules.PixelCountError, "1025"),
        ({"pixel_box_upper_corner_width": 32768}, rules.PixelBoxError, "32768"),
        ({"pixel_box_upper_corner_width": -9}, rules.PixelBoxError, "no pixel"),
        ({"interleave": "16B"}, rules.InterleaveError, "no interleaved layout"),
    ],
)
def test_im2col_wide_maps_that_the_driver_would_not_encode(fault, error, words):
    tcsim.TensorMap.im2col_wide(**WIDE)
    with pytest.raises(error, match=words):
        tcsim.TensorMap.im2col_wide(**WIDE | fault)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_corners_of_im2col_wide_have_16_bits_at_any_rank(rank):
    """Those of im2col have 16, 8 or 5."""
    image = WIDE | {"global_dim": (64, 9, *(1,) * (rank - 2)), "global_strides": (128, *(1152,) * (rank - 2))}
    tmap = tcsim.TensorMap.im2col_wide(**image, pixel_box_lower_corner_width=-32768, pixel_box_upper_corner_width=32767)
    assert tmap.pixel_box_lower_corner == (-32768,)
    with pytest.raises(rules.PixelBoxError, match=f"rank {rank} holds -32768 to 32767"):
        tcsim.TensorMap.im2col_wide(**image, pixel_box_lower_corner_width=-32769)


def test_w128_ignores_the_number_of_pixels():
    assert tcsim.TensorMap.im2col_wide(**WIDE | {"mode": "W128", "pixels_per_column": 5000}).wide_mode == "W128"


def test_limits_are_inclusive():
    tcsim.TensorMap("UINT8", (2**32, 1), (2**40 - 16,), (256, 256), (8, 8), swizzle="NONE")
    tcsim.TensorMap("UINT8", (64, 64, 64), (64, 4096), (256, 256, 28), (1, 8, 1), swizzle="NONE")  # 256 * 32 * 28
    tcsim.TensorMap(
        "UINT8", (64, 64, 64), (64, 4096), (256, 15, 250), (8, 8, 1), swizzle="NONE"
    )  # 256 * 1 * 250, not 2
    tcsim.TensorMap("UINT32", (64, 64, 64), (256, 16384), (228, 256, 1), swizzle="NONE")
    with pytest.raises(rules.BoxBytesError, match="is 237568 bytes"):
        tcsim.TensorMap("UINT32", (64, 64, 64), (256, 16384), (232, 256, 1), swizzle="NONE")
    tcsim.TensorMap("UINT8", (1, 1), (0,), (16, 1), swizzle="NONE")  # CUTLASS gives strides of 0
    tcsim.TensorMap.im2col("UINT8", (1, 1, 1), (16, 16), (-32768,), (32767,), 256, 912, swizzle="NONE")
    tcsim.TensorMap.im2col("UINT8", (1, 1, 1), (16, 16), (-32768,), (32767,), 16, 1024, swizzle="NONE")


MEMORY, SMEM = np.zeros(51200, np.uint8), np.zeros(4096, np.uint8)


def matrix(**fault: object) -> tcsim.TensorMap:
    return tcsim.TensorMap(**MATRIX | fault)


def test_an_innermost_coordinate_off_16_bytes_says_what_would_happen():
    for column in (4, -4, 1):
        with pytest.raises(MisalignedCoordinateError, match=r"CUDA_ERROR_ILLEGAL_INSTRUCTION.*multiple of 8 elements"):
            matrix().load(MEMORY, (column, 0), SMEM)
        with pytest.raises(MisalignedCoordinateError):
            matrix(box_dim=(64, 1)).gather4(MEMORY, (column, 0, 1, 2, 3), SMEM)
    matrix().load(MEMORY, (-8, 0), SMEM)
    with pytest.raises(MisalignedCoordinateError, match="multiple of 128 elements"):
        tcsim.TensorMap("16U6_ALIGN16B", (256, 4), (192,), (128, 1)).load(MEMORY, (64, 0), SMEM)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"coordinates": (0,)}, CoordinateError, "valid: integers \\(..., 2\\)"),
        ({"coordinates": (0.0, 0.0)}, CoordinateError, "float64"),
        ({"coordinates": (0, 2**31)}, CoordinateError, "32 bits"),
        ({"address": 64}, MisalignedAddressError, "0x40.*multiple of 128"),
        ({"address": 0.5}, OperandError, "address is float64"),
        ({"smem": SMEM[:1000]}, OutsideMemoryError, "a byte of the box .* lie in the 1000 bytes of smem"),
        ({"address": 4096}, OutsideMemoryError, "a byte of the box .* lie in the 4096"),
        (
            {"memory": MEMORY[:5000]},
            OutsideMemoryError,
            "an element of the tensor of 2 bytes does not lie in the 5000 bytes of memory",
        ),
        ({"smem": SMEM.astype(np.int8)}, OperandError, "smem is int8"),
        ({"memory": 5}, OperandError, "memory is int64"),
        ({"coordinates": np.zeros((2, 2), int), "smem": np.zeros((3, 4096), np.uint8)}, OperandError, "broadcast"),
        ({"offsets": (0,)}, CoordinateError, "only im2col maps"),
    ],
)
def test_operands_of_loads(arguments, error, words):
    valid = {"memory": MEMORY, "coordinates": (0, 8), "smem": SMEM}
    matrix().load(**valid)
    with pytest.raises(error, match=words):
        matrix().load(**valid | arguments)


def test_memory_holds_the_last_element_whole():
    tmap = tcsim.TensorMap("FLOAT32", (8, 2), (48,), (8, 2), swizzle="NONE")
    exact = np.zeros(48 + 32, np.uint8)
    for move in (tmap.load, tmap.store):
        move(exact, (0, 0), SMEM)
        with pytest.raises(
            OutsideMemoryError, match="offset = 0x4c: an element of the tensor of 4 bytes does not lie in the 79 bytes"
        ):
            move(exact[:-1], (0, 0), SMEM)


def test_coordinates_have_32_bits():
    for corner in (-(2**31), 2**31 - 1):
        assert not matrix().load(MEMORY, (0, corner), SMEM).any()
    for corner in (-(2**31) - 1, 2**31):
        with pytest.raises(CoordinateError, match="32 bits"):
            matrix().load(MEMORY, (0, corner), SMEM)


def test_stores_of_negative_coordinates_are_refused():
    with pytest.raises(StoreCoordinateError, match="not negative"):
        matrix().store(MEMORY, (0, -1), SMEM)
    with pytest.raises(StoreCoordinateError, match="pixel box from \\(-1, -1\\)"):
        tcsim.TensorMap.im2col(**IMAGE).store(np.zeros(48384, np.uint8), (0, 0, 0, 0), SMEM)
    for lower, upper in (((0, 0), (0, 1)), ((0, -1), (0, 0))):
        image = tcsim.TensorMap.im2col(**IMAGE | {"pixel_box_lower_corner": lower, "pixel_box_upper_corner": upper})
        with pytest.raises(StoreCoordinateError, match="upper corners not positive"):
            image.store(np.zeros(48384, np.uint8), (0, 0, 0, 0), SMEM)


@pytest.mark.parametrize(
    ("name", "size", "written"), [("UINT8", 9, 16), ("FLOAT16", 9, 16), ("UINT32", 3, 4), ("UINT64", 5, 6)]
)
def test_stores_end_a_row_at_16_bytes_and_loads_at_the_element(name, size, written):
    """Measured on an H200: what lies behind the end of a row in its last 16 bytes is overwritten."""
    bits = DATA_TYPES[name].bits
    tmap = tcsim.TensorMap(name, (size, 2), (128,), (1024 // bits, 2), swizzle="NONE")
    ones = np.full(256, 255, np.uint8)
    row = tmap.store(np.zeros(256, np.uint8), (0, 0), ones)[:128]
    assert row.nonzero()[0].tolist() == list(range(written * bits // 8))
    assert tmap.load(ones, (0, 0), np.zeros(256, np.uint8))[:128].nonzero()[0].tolist() == list(range(size * bits // 8))
    added = tcsim.TensorMap("UINT32", (1,), (), (4,), swizzle="NONE").reduce(
        "add", np.ones(4, "<u4").view(np.uint8), (0,), ones
    )
    assert not added.any()  # 1 + 0xFFFFFFFF, in all four
    with pytest.raises(OutsideMemoryError, match="up to a multiple of 16 bytes a row"):
        tmap.store(np.zeros(128 + size * bits // 8, np.uint8), (0, 0), ones)


def test_two_elements_for_one_place_are_refused():
    still = matrix(global_strides=(0,))
    still.load(MEMORY, (0, 0), SMEM)
    for move in (still.store, lambda *a: still.reduce("add", *a)):
        with pytest.raises(ContestedRowError, match="one place of the tensor"):
            move(MEMORY, (0, 0), SMEM)


def test_an_im2col_base_outside_the_pixel_box_is_refused():
    image, memory = tcsim.TensorMap.im2col(**IMAGE), np.zeros(48384, np.uint8)
    image.load(memory, (0, 7, 12, 0), SMEM)
    with pytest.raises(CoordinateError, match=r"W coordinate 8 .* from -1 to 7"):
        image.load(memory, (0, 8, 0, 0), SMEM)
    image.load(memory, (0, -1, -1, 0), SMEM)
    with pytest.raises(CoordinateError, match=r"H coordinate -2 .* from -1 to 12"):
        image.load(memory, (0, -1, -2, 0), SMEM)
    with pytest.raises(CoordinateError, match="rank 4 has 0 to 255"):
        image.load(memory, (0, 0, 0, 0), SMEM, offsets=(0, 256))


@pytest.mark.parametrize(("rank", "most"), [(3, 65535), (4, 255), (5, 31)])
def test_im2col_offsets_have_what_16_bits_leave_to_each(rank, most):
    corner, sizes = (0,) * (rank - 2), (1,) * (rank - 1)
    image = tcsim.TensorMap.im2col("UINT8", (16, *sizes), (16,) * (rank - 1), corner, corner, 16, 1, swizzle="NONE")
    memory, at = np.ones(16, np.uint8), (0,) * rank
    assert not image.load(memory, at, SMEM, offsets=(most, *corner[1:])).any()
    for wrong in (most + 1, -1):
        with pytest.raises(CoordinateError, match=f"rank {rank} has 0 to {most}"):
            image.load(memory, at, SMEM, offsets=(*corner[1:], wrong))


def test_reductions_that_a_type_does_not_have():
    with pytest.raises(ReductionError, match="no reduction 'mul'; valid: add"):
        matrix().reduce("mul", MEMORY, (0, 0), SMEM)
    with pytest.raises(
        ReductionError, match="no such reduction; xor takes UINT32, INT32, UINT64; FLOAT16 has add, min, max"
    ):
        matrix().reduce("xor", MEMORY, (0, 0), SMEM)
    with pytest.raises(ReductionError, match="UINT8 has no reduction"):
        matrix(data_type="UINT8").reduce("add", MEMORY, (0, 0), SMEM)


def test_gather4_needs_rows():
    with pytest.raises(TensorMapError, match="2 dimensions with box_dim\\[1\\] = 1"):
        matrix().gather4(MEMORY, (0, 0, 1, 2, 3), SMEM)
    with pytest.raises(CoordinateError, match="the column and four rows"):
        matrix(box_dim=(64, 1)).gather4(MEMORY, (0, 0), SMEM)


SLICED = {"data_type": "FLOAT64", "global_dim": (6, 4, 3), "global_strides": (96, 384), "box_dim": (4, 2, 2), "swizzle": "NONE",
          "interleave": "16B"}  # fmt: skip


def test_an_interleaved_box_is_one_slice_of_channels():
    """Dimensions W, slices, N: each index is 16 bytes, whatever the type and the box of slices, and W's stride counts."""
    tmap = tcsim.TensorMap(**SLICED)
    assert (tmap.loaded, tmap.transaction_bytes, tmap.row_bytes) == ((4, 1, 2), 128, 64)
    memory = np.arange(6 * 4 * 3, dtype=np.uint8).repeat(16)  # each byte says which slice it is of
    got = tmap.load(memory, (4, 2, 1), np.full(128, 255, np.uint8))
    assert got[::16].tolist() == [40, 41, 0, 0, 64, 65, 0, 0]
    assert (got.reshape(-1, 16) == got[::16, None]).all()
    halves = tcsim.TensorMap(**SLICED | {"data_type": "FLOAT16", "box_dim": (8, 4, 1), "element_strides": (4, 3, 1)})
    assert (halves.loaded, halves.transaction_bytes) == ((2, 1, 1), 32)
    assert halves.load(memory, (1, 0, 0), np.zeros(128, np.uint8))[::16].tolist()[:3] == [1, 5, 0]


def test_32_byte_slices_are_swizzled():
    tmap = tcsim.TensorMap(
        "UINT32", (4, 1, 1), (128, 128), (4, 1, 1), interleave="32B", swizzle="32B"
    )  # fmt: skip
    got = tmap.load(np.arange(8, dtype=np.uint8).repeat(16), (0, 0, 0), np.zeros(256, np.uint8), address=128)
    assert got[128::16].tolist() == [1, 0, 3, 2, 5, 4, 7, 6]


@pytest.mark.parametrize("number", [0, 1])
def test_what_was_seen_of_interleaved_boxes_on_hopper(number):
    """Ventus GPGPU's TMA comparison, H100: 4096 bytes complete the first; the second writes 8192 bytes."""
    box = ((8, 8, 32), (16, 8, 32))[number]
    tmap = tcsim.TensorMap("UINT16", (64, 8, 64), (16 * 64, 16 * 512), box, interleave="16B", swizzle="NONE")
    assert tmap.transaction_bytes == (4096, 8192)[number]


def test_halos_of_im2col_wide():
    """An image of 8 pixels: .im2col::w walks on into its halo, .im2col::w::128 puts the halos behind all pixels."""
    image = {"data_type": "UINT8", "global_dim": (16, 8, 64), "global_strides": (16, 128), "channels_per_pixel": 16,
             "swizzle": "64B", "element_strides": (1, 1, 1)}  # fmt: skip
    memory = np.arange(512).astype("<u2").repeat(8).view(np.uint8)  # each 16 bytes say which pixel they are
    smem = np.zeros(1 << 14, np.uint8)
    swizzle = SWIZZLE_MODES["64B"]

    def pixels(tmap: tcsim.TensorMap, at: tuple[int, ...], offsets: tuple[int, int], count: int) -> list[int]:
        words = tmap.load(memory, at, smem, offsets=offsets).view("<u2")
        return [int(words[swizzle(64 * row) // 2]) for row in range(count)]

    plain = tcsim.TensorMap.im2col_wide(**image, pixels_per_column=4)
    assert (plain.transaction_bytes, plain.halo_bytes) == (64, 16)
    assert pixels(plain, (0, 5, 1), (2, 0), 7) == [13, 14, 15, 16, 17, 18, 0]
    assert pixels(plain, (0, 5, 1), (0, 1), 4) == [14, 15, 0, 17]  # the pixel box moves with wOffset
    every32 = tcsim.TensorMap.im2col_wide(**image, mode="W128", pixels_per_column=0)
    assert (every32.loaded, every32.transaction_bytes, every32.halo_bytes) == ((16, 128), 2048, 64)
    want = [*range(16, 144), 48, 80, 112, 144, 49, 81, 113, 145]
    assert pixels(every32, (0, 0, 2), (2, 0), 136) == want


@pytest.mark.parametrize(
    ("mode", "at", "offsets", "words"),
    [
        ("W", (0, 0, 0), (512, 0), "wHalo .* mode W has 0 to 511"),
        ("W128", (0, 0, 0), (32, 0), "wHalo .* mode W128 has 0 to 31"),
        ("W", (0, 0, 0), (0, 32), "wOffset .* has 0 to 31"),
        ("W", (0, 0, 0), (-1, 0), "wHalo"),
        ("W", (0, 0, 0), (0, 0, 0), "wHalo and wOffset"),
        ("W", (0, 0, 0), [(1, 0), (2, 0)], "one wHalo"),
        ("W", (0, 9, 0), (0, 0), "W coordinate 9 is beyond the pixel box, which ends at 8"),
    ],
)
def test_operands_of_im2col_wide(mode, at, offsets, words):
    tmap = tcsim.TensorMap.im2col_wide(**WIDE | {"mode": mode, "channels_per_pixel": 32})
    smem, memory = np.zeros(1 << 15, np.uint8), np.zeros(4096, np.uint8)
    tmap.load(memory, (0, 8, 0), smem, offsets=(31, 31))
    tmap.load(memory, (0, -2, 0), smem)  # the left is allowed
    with pytest.raises(CoordinateError, match=words):
        tmap.load(memory, at, smem, offsets=offsets)


PADDED = [("16U4_ALIGN16B", 64, 128), ("16U6_ALIGN16B", 96, 128)]


@pytest.mark.parametrize(("name", "payload", "row"), PADDED)
def test_padding_is_not_counted(name, payload, row):
    """CUTLASS, sm_100 collectives: TmaTransactionBytes has 4 and 6 bits an element, where shared memory has bytes."""
    tmap = matrix(data_type=name, global_strides=(512,), box_dim=(128, 8))
    assert (tmap.transaction_bytes, tmap.row_bytes) == (8 * payload, row)


@pytest.mark.parametrize(
    ("fault", "move", "words"),
    [
        ({"data_type": "16U4_ALIGN16B", "box_dim": (128, 8)}, "store", "16U4_ALIGN16B has no store"),
        ({"swizzle": "128B_ATOM_32B_FLIP_8B"}, "store", "FLIP_8B has no store"),
        (
            {"data_type": "16U6_ALIGN16B", "box_dim": (128, 8), "swizzle": "128B_ATOM_64B"},
            "load",
            "no load .* valid: NONE",
        ),
    ],
)
def test_types_and_swizzles_of_one_direction(fault, move, words):
    with pytest.raises(DirectionError, match=words):
        getattr(matrix(**fault), move)(MEMORY, (0, 0), SMEM)


def test_stores_copy_the_types_that_loads_round():
    tmap = tcsim.TensorMap("TFLOAT32", (4,), (), (4,), swizzle="NONE")
    smem = np.resize(np.uint32([0x3F800001, 0x7F800001, 1, 0]), 32).view(np.uint8)
    assert tmap.store(np.zeros(16, np.uint8), (0,), smem).tolist() == smem[:16].tolist()


NOT_MODELLED = [
    (lambda: tcsim.TensorMap(**CUBE | {"interleave": "16B"}).load(MEMORY, (0, 0, 0), SMEM), "interleave='16B'.*known: .*32B"),
    (
        lambda: tcsim.TensorMap(**SLICED | {"data_type": "16U4_ALIGN16B", "global_dim": (128, 4, 3), "box_dim": (128, 2, 2),
                                            "global_strides": (2048, 8192)}).load(MEMORY, (0, 0, 0), SMEM),
        "padded",
    ),
    (lambda: tcsim.TensorMap(**CUBE | {"interleave": "32B", "swizzle": "NONE"}).load(MEMORY, (0, 0, 0), SMEM), "='32B' with swizzle='NONE'"),
    (
        lambda: tcsim.instruction(W, arch="sm_100").check_map(tcsim.TensorMap.im2col_wide(**WIDE | {"mode": "W128"})),
        "mode W128 with .im2col::w: .*known: a map of mode W",
    ),
]  # fmt: skip
W = "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(("attempt", "words"), NOT_MODELLED)
def test_what_nobody_knows_is_an_error_that_says_so(attempt, words):
    with pytest.raises(NotModelledError, match=words):
        attempt()


def test_the_manuals_first_im2col_example_starts_where_it_says():
    """PTX ISA, im2col example 1: base (7, 4) of image 7 (the manual lists N first), offsets (0, 0)."""
    image = tcsim.TensorMap.im2col(
        "UINT8", (64, 14, 9, 64), (64, 896, 8064), (-1, -1), (-1, -1), 16, 64, swizzle="NONE", oob_fill="NONE"
    )
    memory = np.zeros(64 * 8064, np.uint8)
    memory.reshape(64, 9, 14, 64)[7, 7, 4] = 5
    got = image.load(memory, (0, 4, 7, 7), np.zeros(1024, np.uint8))
    assert got[:16].tolist() == [5] * 16
    assert not got[16:].any()


def test_tables_name_each_number_once():
    assert sorted(row.driver for row in DATA_TYPES.values()) == list(range(16))
    assert sorted(row.ptx for row in DATA_TYPES.values()) == list(range(16))
    assert [row.driver for row in SWIZZLE_MODES.values()] == list(range(7))
