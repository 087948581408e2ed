"""Which tensor maps the driver encodes: every rule of cuTensorMapEncodeTiled, ...Im2col and ...Im2colWide, as a named error.

Source: cuda.h 13.5, the comments of the three functions, and CUTLASS (copy_traits_sm90_tma); for tiled and im2col maps of
sm_90 the driver itself: on an NVIDIA H200 (driver 580.159.04) it took and refused 9,000 maps as these rules do. It differs
from the comments in four things, and so do the rules: a stride may be less than the dimension, dimensions reach 2**32,
interleave 32B goes with every swizzle, and rows are multiples of 16 bytes in interleaved layouts and im2col maps, too. Of
the size of a box (MOST_BOX_BYTES) they say nothing. For types of less than a byte and im2col-wide maps no driver was asked.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsim.core.arguments import integer
from tcsim.core.errors import listing
from tcsim.tma.fields import TensorFields
from tcsim.tma.types import (
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLE_MODES,
    WIDE_MODES,
    TensorMapError,
    find_mode,
    padded_swizzles,
)

MOST_RANK = 5
MOST_DIM = 1 << 32
MOST_STRIDE = 1 << 40  # a stride is less
MOST_BOX = 256
MOST_BOX_BYTES = 228 * 1024
"""The most bytes of a box, as `box_bytes` counts them (measured on an H200: 233,472 are taken, 233,856 refused)."""
MOST_ELEMENT_STRIDE = 8
MOST_PIXELS = 1024
CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""Bits of a signed corner of the pixel box, by rank."""
WIDE_SWIZZLES = ("64B", "128B", "128B_ATOM_32B")
"""The swizzles that cuTensorMapEncodeIm2colWide takes."""


class TensorRankError(TensorMapError):
    """A number of dimensions that maps, or maps of this kind, cannot have; or arrays whose lengths do not fit it."""


class GlobalDimError(TensorMapError):
    """A size of the tensor that a map cannot hold."""


class GlobalStrideError(TensorMapError):
    """A stride that is not a multiple of 16 bytes (or 32), or too large."""


class GlobalAddressError(TensorMapError):
    """A global address that is not a multiple of 16 bytes (or 32)."""


class BoxDimError(TensorMapError):
    """A box beyond 256, empty, or whose innermost row is not a multiple of 16 bytes."""


class ElementStrideError(TensorMapError):
    """An element stride that is not 1 to 8."""


class InterleaveError(TensorMapError):
    """An interleave that does not go with the rank, the data type or the swizzle."""


class SwizzleModeError(TensorMapError):
    """A swizzle that does not go with the data type, or whose span the innermost row of the box exceeds."""


class OutOfBoundsFillError(TensorMapError):
    """A NaN fill for a data type that is not a floating-point type."""


class BoxBytesError(TensorMapError):
    """A box of more bytes than shared memory has."""


class PixelBoxError(TensorMapError):
    """Corners of an im2col box that a map cannot hold, or that leave no pixel."""


class PixelCountError(TensorMapError):
    """Pixels per column, or channels per pixel, beyond what a map holds."""


Rule = Callable[[TensorFields], None]


def _rank(tmap: TensorFields) -> None:
    least = 3 if tmap.im2col_mode else 1
    if not least <= tmap.rank <= MOST_RANK:
        kind = "an im2col map has 3 to 5" if tmap.im2col_mode else "a map has 1 to 5"
        raise TensorRankError(f"{tmap}: global_dim={tmap.global_dim} has {tmap.rank} dimensions; {kind}")
    lengths = {"global_strides": tmap.rank - 1, "element_strides": tmap.rank}
    if tmap.im2col_mode == "im2col":
        lengths |= {"pixel_box_lower_corner": tmap.rank - 2, "pixel_box_upper_corner": tmap.rank - 2}
    elif tmap.im2col_mode:
        lengths |= {"pixel_box_lower_corner": 1, "pixel_box_upper_corner": 1}
    else:
        lengths["box_dim"] = tmap.rank
    for name, length in lengths.items():
        given = getattr(tmap, name)
        if len(given) != length:
            why = ": the innermost dimension has no stride" if name == "global_strides" else ""
            raise TensorRankError(
                f"{tmap}: {name}={given} has {len(given)} entries; rank {tmap.rank} needs {length}{why}"
            )


def _global_dim(tmap: TensorFields) -> None:
    for place, size in enumerate(tmap.global_dim):
        if not 1 <= size <= MOST_DIM:
            raise GlobalDimError(f"{tmap}: global_dim[{place}]={size}; valid: 1 to 2**32 elements")
    multiple = tmap.type.dim_multiple
    if tmap.global_dim[0] % multiple:
        raise GlobalDimError(
            f"{tmap}: global_dim[0]={tmap.global_dim[0]}; {tmap.data_type} needs a multiple of {multiple} elements"
        )


def _strides(tmap: TensorFields) -> None:
    unit = stride_multiple(tmap)
    for place, stride in enumerate(tmap.global_strides):
        if not 0 <= stride < MOST_STRIDE or stride % unit:
            raise GlobalStrideError(
                f"{tmap}: global_strides[{place}]={stride} bytes (from one index of dimension {place + 1} to the next); "
                f"valid: multiples of {unit} bytes below 2**40{_why_32(tmap, unit)}"
            )


def stride_multiple(tmap: TensorFields) -> int:
    """What strides and the global address of a map are multiples of, in bytes."""
    return max(tmap.type.address_multiple, 32 if tmap.interleave == "32B" else 16)


def _why_32(tmap: TensorFields, unit: int) -> str:
    if unit == 16:
        return ""
    return f" (interleave={tmap.interleave!r}, {tmap.data_type})"


def check_address(tmap: TensorFields, address: int) -> None:
    """Raise GlobalAddressError unless a map can have the global address."""
    unit = stride_multiple(tmap)
    address = integer(address, f"{tmap}: global address", GlobalAddressError)
    if not 0 <= address < 1 << 64 or address % unit:
        raise GlobalAddressError(
            f"{tmap}: global address {address:#x}; valid: multiples of {unit} bytes below 2**64{_why_32(tmap, unit)}"
        )


def _box(tmap: TensorFields) -> None:
    if tmap.im2col_mode:
        return
    for place, size in enumerate(tmap.box_dim):
        if not 1 <= size <= MOST_BOX:
            raise BoxDimError(f"{tmap}: box_dim[{place}]={size}; valid: 1 to {MOST_BOX} elements")
    row = tmap.type
    if row.box and tmap.box_dim[0] != row.box:
        raise BoxDimError(f"{tmap}: box_dim[0]={tmap.box_dim[0]}; {tmap.data_type} takes {row.box} elements only")


def _rows(tmap: TensorFields) -> None:
    row, inner = tmap.type, tmap.inner_elements
    if inner * row.bits % 128:
        name = "channels_per_pixel" if tmap.im2col_mode else "box_dim[0]"
        step = 128 // row.bits if 128 % row.bits == 0 else 64
        raise (PixelCountError if tmap.im2col_mode else BoxDimError)(
            f"{tmap}: {name}={inner} elements of {row.bits} bits are {inner * row.bits / 8:g} bytes; "
            f"the innermost row must be a multiple of 16 bytes: a multiple of {step} elements of {tmap.data_type}"
        )


def box_bytes(tmap: TensorFields) -> int:
    """The bytes of a box as the driver counts them: it divides by the element stride and rounds down.

    A copy moves the quotient rounded up, so that this is less than `TensorMap.transaction_bytes` for other strides than 1,
    and 0 where an element stride exceeds the box. Of an im2col map: channels times pixels. Interleaved layouts count the
    innermost element stride, too; slices count as elements. Source: the driver's own number in bytes 64 to 67 of 4,701
    maps, and which of 9,000 maps it refuses (NVIDIA H200, driver 580.159.04).

    >>> matrix = tcsim.TensorMap("FLOAT16", (256, 100), (512,), (64, 9), (1, 2))
    >>> box_bytes(matrix), matrix.transaction_bytes
    (512, 640)
    """
    elements = tmap.inner_elements
    if tmap.im2col_mode:
        return elements * tmap.pixels_per_column * tmap.type.bits // 8
    if tmap.slice_bytes:
        elements //= tmap.element_strides[0]
    for size, stride in zip(tmap.box_dim[1:], tmap.element_strides[1:], strict=True):
        elements *= size // stride
    return elements * tmap.type.bits // 8


def _box_bytes(tmap: TensorFields) -> None:
    if tmap.im2col_mode == "im2col_wide":  # not known
        return
    size = box_bytes(tmap)
    if size > MOST_BOX_BYTES:
        counted = "channels_per_pixel * pixels_per_column" if tmap.im2col_mode else "box_dim / element_strides"
        raise BoxBytesError(
            f"{tmap}: {counted} is {size} bytes; valid: at most {MOST_BOX_BYTES} (228 KiB of shared memory)"
        )


def _element_strides(tmap: TensorFields) -> None:
    for place, stride in enumerate(tmap.element_strides):
        if not 1 <= stride <= MOST_ELEMENT_STRIDE:
            raise ElementStrideError(
                f"{tmap}: element_strides[{place}]={stride}; valid: 1 to {MOST_ELEMENT_STRIDE} elements"
            )


def _interleave(tmap: TensorFields) -> None:
    find_mode("interleave", tmap.interleave, INTERLEAVES)
    if tmap.interleave == "NONE":
        return
    asked = f"{tmap}: interleave={tmap.interleave!r}"
    if tmap.rank < 3:
        raise InterleaveError(f"{asked} with {tmap.rank} dimensions; it needs 3 to 5")
    if tmap.im2col_mode == "im2col_wide":
        raise InterleaveError(f"{asked}: im2col-wide maps have no interleaved layout (PTX ISA, Interleave layout)")
    if tmap.data_type == "16U6_ALIGN16B":
        raise InterleaveError(f"{asked} with 16U6_ALIGN16B, which takes NONE only")


def _swizzle(tmap: TensorFields) -> None:
    mode = find_mode("swizzle", tmap.swizzle, SWIZZLE_MODES)
    padded = padded_swizzles(tmap.type)
    valid = sorted({name for names in padded.values() for name in names})
    if padded and tmap.swizzle not in valid:
        raise SwizzleModeError(f"{tmap}: swizzle={tmap.swizzle!r} with {tmap.data_type}; valid: {listing(valid)}")
    if tmap.im2col_mode == "im2col_wide" and tmap.swizzle not in WIDE_SWIZZLES:
        raise SwizzleModeError(
            f"{tmap}: swizzle={tmap.swizzle!r} of an im2col-wide map; valid: {listing(WIDE_SWIZZLES)}"
        )
    if tmap.interleave != "NONE" or not mode.span:
        return
    inner = tmap.inner_elements * tmap.type.bits / 8
    if inner > mode.span:
        name = "channels_per_pixel" if tmap.im2col_mode else "box_dim[0]"
        wider = [other.name for other in SWIZZLE_MODES.values() if other.span >= inner or not other.span]
        raise SwizzleModeError(
            f"{tmap}: {name}={tmap.inner_elements} is {inner:g} bytes, more than the {mode.span} bytes that swizzle "
            f"{tmap.swizzle} spans; valid: at most {mode.span * 8 // tmap.type.bits} elements, or swizzle {listing(wider)}"
        )


def _fill(tmap: TensorFields) -> None:
    find_mode("l2_promotion", tmap.l2_promotion, L2_PROMOTIONS)
    find_mode("oob_fill", tmap.oob_fill, OOB_FILLS)
    if tmap.oob_fill != "NONE" and not tmap.type.floating:
        raise OutOfBoundsFillError(
            f"{tmap}: oob_fill={tmap.oob_fill!r} needs a floating-point type; {tmap.data_type} is filled with zeros: 'NONE'"
        )


def _pixels(tmap: TensorFields) -> None:
    if not tmap.im2col_mode:
        return
    limits = {"channels_per_pixel": MOST_BOX}
    if tmap.im2col_mode == "im2col_wide":
        find_mode("wide_mode", tmap.wide_mode, WIDE_MODES)
    if tmap.wide_mode != "W128":  # which ignores the number
        limits["pixels_per_column"] = MOST_PIXELS
    for name, most in limits.items():
        value = getattr(tmap, name)
        if not 1 <= value <= most:
            raise PixelCountError(f"{tmap}: {name}={value}; valid: 1 to {most}")
    if tmap.type.box and tmap.channels_per_pixel != tmap.type.box:
        raise PixelCountError(
            f"{tmap}: channels_per_pixel={tmap.channels_per_pixel}; {tmap.data_type} takes {tmap.type.box} only"
        )
    bits = 16 if tmap.im2col_mode == "im2col_wide" else CORNER_BITS[tmap.rank]
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    for name in ("pixel_box_lower_corner", "pixel_box_upper_corner"):
        for place, value in enumerate(getattr(tmap, name)):
            if not least <= value <= most:
                raise PixelBoxError(f"{tmap}: {name}[{place}]={value}; rank {tmap.rank} holds {least} to {most}")
    for place, (low, high) in enumerate(zip(tmap.pixel_box_lower_corner, tmap.pixel_box_upper_corner, strict=True)):
        size = tmap.global_dim[tmap.first_spatial + place]
        if size + high - low < 1:
            raise PixelBoxError(
                f"{tmap}: the pixel box of {'WHD'[place]} reaches from {low} to {size - 1 + high} ({size} - 1 + upper corner): "
                "it holds no pixel"
            )


RULES: tuple[Rule, ...] = (
    _rank, _global_dim, _strides, _interleave, _pixels, _box, _rows, _element_strides, _swizzle, _fill, _box_bytes,
)  # fmt: skip
"""Every rule, in the order in which they are asked."""


def check(tmap: TensorFields) -> None:
    """Raise the error of the first rule that a map breaks."""
    for rule in RULES:
        rule(tmap)
