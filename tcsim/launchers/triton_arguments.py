"""The arguments of a Triton launch as the parameters of its PTX, and tensor descriptors as tensor maps.

What Triton's own launcher for NVIDIA GPUs does (triton/backends/nvidia/driver.py and driver.c, Triton 3.7 to 3.9), without a GPU.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.tma.map import TensorMap
from tcsim.tma.types import DATA_TYPES

Meta = Mapping[str, Any]  # what Triton's compiler says of a descriptor
Flat = tuple[str, Any]  # a type as Triton spells it, and a value

_TF32 = DATA_TYPES["TFLOAT32"].driver
_BY_PTX = {row.ptx: row for row in DATA_TYPES.values()}
_BY_DRIVER = {row.driver: row for row in DATA_TYPES.values()}
_SWIZZLES = ("NONE", "32B", "64B", "128B")  # by CUtensorMapSwizzle
_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}


def flattened(signature: Sequence[Any], arguments: Sequence[Any], metas: Sequence[Meta] | None) -> list[Flat]:
    """The parameters that are passed, in order: constants are not, tuples are by their items, descriptors by their parts.

    signature: a type for each argument, a tuple of types for a tuple. metas: of each descriptor that is passed as a tensor map; none
    where the kernel was lowered to plain pointers.

    >>> flattened(("*fp32", ("i32", "constexpr"), "fp32"), ("x", (3, 4), 0.5), None)
    [('*fp32', 'x'), ('i32', 3), ('fp32', 0.5)]
    """
    return list(_flattened(signature, arguments, iter(metas or ()), bool(metas)))


def _flattened(
    signature: Sequence[Any], arguments: Sequence[Any], metas: Iterator[Meta], mapped: bool
) -> Iterator[Flat]:
    for kind, value in zip(signature, arguments, strict=True):
        if isinstance(kind, (tuple, list)):
            yield from _flattened(kind, value, metas, mapped)
        elif kind.startswith("tensordesc"):
            yield from _descriptor(kind, value, next(metas) if mapped else None)
        elif kind != "constexpr":
            yield kind, value


def _descriptor(kind: str, value: Any, meta: Meta | None) -> Iterator[Flat]:
    """A descriptor: its map, or pointer, shape, strides, padding and rounding; then shape and strides."""
    if meta is not None:
        yield "nvTmaDesc", (value, meta)
    else:
        yield "*" + kind.partition("<")[2].partition("[")[0], value.base
        yield from (("i64", item) for item in (*value.shape, *value.strides))
        yield from (("i1", item) for item in (value.padding == "nan", value.round_f32_to_tf32))
    yield from (("i32", item) for item in value.shape)
    yield from (("i64", item) for item in value.strides)


def pointed(flat: Iterable[Flat]) -> Iterator[Any]:
    """What the parameters point to."""
    for kind, value in flat:
        if kind == "nvTmaDesc":
            yield value[0].base
        elif kind.startswith("*"):
            yield value


def packed(kind: str, value: Any, size: int) -> bytes:
    """The bytes of a parameter.

    Raises OperandError for a value that does not fit its type.

    >>> packed("i32", -2, 4).hex(), packed("fp16", 1.5, 2).hex(), packed("*fp32", None, 8).hex()
    ('feffffff', '003e', '0000000000000000')
    """
    try:
        if kind == "nvTmaDesc":
            descriptor, meta = value
            return bytes(tensor_map(descriptor, meta).encode(descriptor.base.data_ptr()))
        if kind.startswith("*"):
            return _address(value).to_bytes(size, "little")
        if kind in _FLOATS:
            return struct.pack(_FLOATS[kind], float(value))
        if kind == "bf16":  # the upper half, as Triton's launcher passes it
            return np.float32(value).tobytes()[2:]
        return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    except (TypeError, OverflowError, struct.error) as error:
        raise OperandError(f"an argument of type {kind} is {value!r}: {error}") from None


def _address(value: Any) -> int:
    if value is None:
        return 0
    return int(value.data_ptr() if hasattr(value, "data_ptr") else value)


def tensor_map(descriptor: Any, meta: Meta) -> TensorMap:
    """The map of a host's descriptor: triton.tools.tensor_descriptor.TensorDescriptor, or one of Gluon's.

    Raises a subclass of TensorMapError for what the driver would not encode.
    """
    row = _BY_DRIVER[_TF32] if descriptor.round_f32_to_tf32 else _BY_PTX[meta["elem_type"]]
    size, shape = meta["elem_size"], list(descriptor.shape)
    if meta["fp4_padded"]:
        shape[-1] *= 2  # two elements in a byte
    common: dict[str, Any] = {
        "data_type": row.name, "global_dim": tuple(shape[::-1]),
        "global_strides": tuple(size * step for step in descriptor.strides[-2::-1]),
        "swizzle": _SWIZZLES[meta["swizzle"]], "l2_promotion": "L2_128B",
        "oob_fill": "NAN_REQUEST_ZERO_FMA" if descriptor.padding == "nan" else "NONE",
    }  # fmt: skip
    block = tuple(meta["block_size"])
    if not meta.get("is_im2col", False):
        return TensorMap(box_dim=block[::-1], **common)
    strides = descriptor.element_strides or [1] * len(shape)
    return TensorMap.im2col(
        pixel_box_lower_corner=descriptor.pixel_box_lower_corner[::-1], element_strides=tuple(strides[::-1]),
        pixel_box_upper_corner=descriptor.pixel_box_upper_corner[::-1], pixels_per_column=block[0], channels_per_pixel=block[1], **common,
    )  # fmt: skip
