"""Random tensor maps, boxes and memories for the probes of tensor copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs
from hwkernels.device.map_bytes import carried
from hwkernels.probes.cp_async_bulk_tensor import MEMORY_BYTES, image_bytes
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorCopyRow
from tcsim.tma.copy import WIDE_HALO, WIDE_OFFSET
from tcsim.tma.fields import WIDE_HALOS, WIDE_PIXELS
from tcsim.tma.map import TensorMap
from tcsim.tma.reduce import REDUCTIONS
from tcsim.tma.rules import WIDE_SWIZZLES
from tcsim.tma.types import DATA_TYPES, L2_PROMOTIONS, SLICES, SWIZZLE_MODES, TensorType


@dataclass(frozen=True)
class TensorClass:
    """One input class of tensor copies."""

    strided: bool = False  # element strides above 1
    crossing: bool = False  # boxes that reach beyond the tensor on all sides
    interleaved: bool = False  # 16- and 32-byte slices of channels, element strides, boxes across the edges
    converted: bool = False  # types whose names speak of a conversion, on ties, subnormal numbers, infinities and NaNs
    numbers: bool = False  # reductions of zeros, subnormal numbers, infinities, NaNs and extremes


CLASSES: dict[str, TensorClass] = {
    "tile": TensorClass(),
    "bounds": TensorClass(crossing=True),
    "strides": TensorClass(strided=True, crossing=True),
    "interleaved": TensorClass(strided=True, crossing=True, interleaved=True),
    "convert": TensorClass(converted=True),
    "numbers": TensorClass(numbers=True),
    "single": TensorClass(crossing=True),  # one sample, whose map is a kernel parameter
}
"""The input classes by name."""

_CONVERTED = ("FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")
_COPIED = tuple(name for name, row in DATA_TYPES.items() if name not in _CONVERTED and not row.packed)
_F32 = ("FLOAT32", "FLOAT32_FTZ", "TFLOAT32")
_STORED_PADDED = "16U6_ALIGN16B"


def classes(copy: TensorCopyRow) -> list[str]:
    """The classes that an instruction has."""
    if copy.unmodelled or copy.operation == "prefetch":
        return [] if copy.unmodelled else ["tile", "single"]
    names = ["tile", "bounds", "single"]
    if not copy.rows4:
        names.insert(2, "strides")
    if copy.dim >= 3 and not copy.wide_mode:
        names.append("interleaved")
    if not copy.op:
        names.append("convert")
    if copy.op:
        names.append("numbers")
    return names


def types_of(copy: TensorCopyRow, item: TensorClass, arch: int) -> tuple[str, ...]:
    """Data types of a class. Types with padding are left out: nobody knows what becomes of it."""
    if copy.op:
        return REDUCTIONS[copy.op]
    if item.converted:
        return _CONVERTED
    return (*_COPIED, "16U4_ALIGN8B") if 100 <= arch < 120 else _COPIED


def make(copy: TensorCopyRow, arch: int, name: str, stream: Stream, samples: int) -> Inputs:
    """What hwkernels/probes/cp_async_bulk_tensor.py takes, for a class."""
    item = CLASSES[name]
    drawn = [_sample(copy, arch, item, stream) for _ in range(samples)]
    out: Inputs = {
        "maps": np.stack([np.frombuffer(carried(tmap), np.uint8) for tmap, *_ in drawn]),
        "coordinates": _padded([at for _, at, _, _ in drawn], 5).astype(np.int32),
        "offsets": _padded([offsets for _, _, offsets, _ in drawn], 3).astype(np.uint32),
        "address": np.array([address for *_, address in drawn], np.uint32),
        "memory": _memory(copy, item, [tmap for tmap, *_ in drawn], stream, (samples, MEMORY_BYTES)),
    }
    if copy.operation == "load":
        rows = 4 if copy.rows4 else 1
        halos = [offsets[0] if copy.wide_mode else 0 for _, _, offsets, _ in drawn]
        counts = [
            tmap.transaction_bytes * rows + halo * tmap.halo_bytes
            for (tmap, *_), halo in zip(drawn, halos, strict=True)
        ]
        out["expect"] = np.array(counts, np.uint32)
    elif copy.operation != "prefetch":
        out["image"] = _memory(copy, item, [tmap for tmap, *_ in drawn], stream, (samples, image_bytes(copy)))
    return out


def _padded(rows: list[tuple[int, ...]], width: int) -> npt.NDArray[np.int64]:
    return np.array([[*row, *(0,) * (width - len(row))] for row in rows], np.int64).reshape(len(rows), width)


def _one(stream: Stream, low: int, high: int) -> int:
    return int(stream.between(low, high, (1,))[0])


def _pick(stream: Stream, values: tuple[str, ...]) -> str:
    return values[_one(stream, 0, len(values) - 1)]


_EXTENTS = {1: 1, 2: 12, 3: 9, 4: 5, 5: 4}
"""The largest outer dimensions, by rank: so that tensors fit into the memory without being cut much."""

Sample = tuple[TensorMap, tuple[int, ...], tuple[int, ...], int]  # map, coordinates, offsets, shared address


def _sample(copy: TensorCopyRow, arch: int, item: TensorClass, stream: Stream) -> Sample:
    row = DATA_TYPES[_pick(stream, types_of(copy, item, arch))]
    if item.interleaved:
        return _interleaved(copy, stream, row, _pick(stream, ("16B", "32B")))
    swizzle = _pick(stream, _swizzles(copy, arch))
    span = SWIZZLE_MODES[swizzle].span
    step = 128 // row.bits
    most = min(256 * row.bits // 128, (span or 128) // 16)
    most = min(most, 2) if copy.dim > 3 else most  # the outer dimensions get their share of the memory
    width = step * _one(stream, 1, most)
    pitch = span or width * row.bits // 8
    address = 128 * _one(stream, 0, 11)
    rows = (image_bytes(copy) - address) // pitch
    draw = _wide if copy.wide_mode else _im2col if copy.map_mode else _tiled
    return draw(copy, item, stream, row, swizzle, width, rows, address)


def _tiled(
    copy: TensorCopyRow, item: TensorClass, stream: Stream, row: TensorType, swizzle: str, width: int, rows: int,
    address: int,
) -> Sample:  # fmt: skip
    step, dim, low = 128 // row.bits, copy.dim, 0 if copy.operation not in ("load", "prefetch") else -1
    box, every, left = [width], [1], min(rows, 64)
    for place in range(dim - 1):
        least = 2 if place == 0 else 1
        stride = _one(stream, least, 8 if _one(stream, 0, 3) == 0 else 3) if item.strided else 1
        count = 1 if copy.rows4 else _one(stream, 1, min(left, 9))
        left //= count
        box.append(max(1, count * stride - (_one(stream, 0, stride - 1) if stride > 1 else 0)))
        every.append(stride)
    even = row.dim_multiple
    dims = [max(even, _one(stream, 1, 2 * width) // even * even)]
    dims += [_one(stream, 3 if item.strided and not place else 1, _EXTENTS[dim]) for place in range(dim - 1)]
    strides, dims = _strides(stream, dims, row.bits)
    if item.crossing:
        at = [step * _one(stream, low * (width // step), dims[0] // step + 1)]
        at += [
            _one(stream, low * (size + 1), extent + 1)
            if _one(stream, 0, 2) == 0 and not item.strided
            else _one(stream, 0, (extent - 1) // (2 if item.strided else 1))
            for size, extent in zip(box[1:], dims[1:], strict=True)
        ]
    else:
        at = [step * _one(stream, 0, (dims[0] - 1) // step)]
        at += [_one(stream, 0, extent - 1) for extent in dims[1:]]
    if copy.rows4:
        at = [at[0], *_four_rows(stream, dims[1], low, item)]
    tmap = TensorMap(
        row.name, tuple(dims), tuple(strides), tuple(box), tuple(every), swizzle=swizzle, oob_fill=_fill(stream, row),
        l2_promotion=_pick(stream, tuple(L2_PROMOTIONS)),
    )  # fmt: skip
    return tmap, tuple(at), (), address


def _four_rows(stream: Stream, size: int, low: int, item: TensorClass) -> list[int]:
    """Four different rows, some outside the tensor if boxes may cross its edges."""
    first = low * 2 if item.crossing else 0
    rows = list(range(first, max(size, first + 4) + (3 if item.crossing else 0)))
    order = np.argsort(stream.words((len(rows),)), kind="stable")[:4]
    return [rows[place] for place in order.tolist()]


def _im2col(
    copy: TensorCopyRow, item: TensorClass, stream: Stream, row: TensorType, swizzle: str, width: int, rows: int,
    address: int,
) -> Sample:  # fmt: skip
    step, spatial, load = 128 // row.bits, copy.dim - 2, copy.operation in ("load", "prefetch")
    even = row.dim_multiple
    dims = [
        max(even, _one(stream, 1, 2 * width) // even * even),
        *(_one(stream, 3 if item.strided and not place else 1, 7) for place in range(spatial)),
    ]
    strides, dims = _strides(stream, [*dims, _one(stream, 1, 4)], row.bits)
    lower, upper, base = _pixel_box(stream, dims[1:-1], item.strided, load)
    every = [1, *(_one(stream, 1 + (not place), 3) if item.strided else 1 for place in range(spatial))]
    every.append(_one(stream, 1, 3) if item.strided else 1)
    pixels = _one(stream, min(rows, 4), min(rows, 64))
    image = _one(stream, 0, dims[-1] - (not item.crossing))
    at = (step * _one(stream, -1 if load and item.crossing else 0, (dims[0] - 1) // step + item.crossing), *base, image)
    offsets = tuple(_one(stream, 0, 3) for _ in range(spatial)) if load else ()
    tmap = TensorMap.im2col(
        row.name, dims, strides, lower, upper, width, pixels, every, swizzle=swizzle, oob_fill=_fill(stream, row),
        l2_promotion=_pick(stream, tuple(L2_PROMOTIONS)),
    )  # fmt: skip
    return tmap, at, offsets, address


def _wide(
    copy: TensorCopyRow, item: TensorClass, stream: Stream, row: TensorType, swizzle: str, width: int, rows: int,
    address: int,
) -> Sample:  # fmt: skip
    step, load, everywhere = 128 // row.bits, copy.operation in ("load", "prefetch"), copy.wide_mode == "W128"
    even, middle = row.dim_multiple, copy.dim - 3
    dims = [max(even, _one(stream, 1, 2 * width) // even * even), _one(stream, 3 if item.strided else 1, 24)]
    dims += [*(_one(stream, 1, 3) for _ in range(middle)), _one(stream, 1, 6)]
    strides, dims = _strides(stream, dims, row.bits)
    lower, upper, base = _pixel_box(stream, dims[1:2], item.strided, load)
    first = base[0] - (_one(stream, 0, 3) if load and item.crossing else 0)
    every = [1, _one(stream, 2, 3), *(1 for _ in range(middle)), _one(stream, 1, 2)] if item.strided else [1] * copy.dim
    low = -1 if load and item.crossing else 0
    at = [step * _one(stream, low, (dims[0] - 1) // step + item.crossing), first]
    at += [_one(stream, low, size - 1 + item.crossing) for size in dims[2:]]
    offsets: tuple[int, ...] = ()
    most = (rows - WIDE_PIXELS) // WIDE_HALOS if everywhere else rows // 2
    if load:
        offsets = (
            _one(stream, 0, min(WIDE_HALO[copy.wide_mode], most)),
            _one(stream, 0, 3 if _one(stream, 0, 3) else WIDE_OFFSET),
        )
    pixels = WIDE_PIXELS if everywhere else _one(stream, min(rows - most, 4), min(rows - most, 64))
    tmap = TensorMap.im2col_wide(
        row.name, dims, strides, lower[0], upper[0], width, pixels, every, mode=copy.wide_mode, swizzle=swizzle,
        oob_fill=_fill(stream, row), l2_promotion=_pick(stream, tuple(L2_PROMOTIONS)),
    )  # fmt: skip
    return tmap, tuple(at), offsets, address


def _interleaved(copy: TensorCopyRow, stream: Stream, row: TensorType, interleave: str) -> Sample:
    """A tiled or an im2col map of W[, H[, D]], slices of channels, N."""
    size, spatial, load = SLICES[interleave], copy.dim - 2, copy.operation in ("load", "prefetch")
    even, low = row.dim_multiple, -1 if load else 0
    dims = [max(even, _one(stream, 3, 6) // even * even), *(_one(stream, 1, 4) for _ in range(copy.dim - 1))]
    strides, dims = _strides(stream, dims, 8 * size, size)
    every, step = [_one(stream, 1, 3) for _ in dims], 128 // row.bits
    address = 128 * _one(stream, 0, 11)
    outer = [
        _one(stream, low, extent - (1 if _one(stream, 0, 3) else 0)) for extent in dims[-2:]
    ]  # the slice, the image
    common: dict[str, Any] = {
        "interleave": interleave, "swizzle": "32B" if size == 32 else "NONE", "oob_fill": _fill(stream, row),
        "l2_promotion": _pick(stream, tuple(L2_PROMOTIONS)),
    }  # fmt: skip
    if copy.map_mode:
        lower, upper, base = _pixel_box(stream, dims[:-2], False, load)
        offsets = tuple(_one(stream, 0, 3) for _ in range(spatial)) if load else ()
        pixels, channels = _one(stream, 4, 64), step * _one(stream, 1, 256 // step)  # the channels say nothing here
        tmap = TensorMap.im2col(row.name, dims, strides, lower, upper, channels, pixels, every, **common)
        return tmap, (*base, *outer), offsets, address
    box = [_one(stream, 1, 3 if copy.dim > 4 else 5) * stride for stride in every]
    every[0] = _one(
        stream, 3, 4
    )  # few of each row: the box is a multiple of 16 bytes of pixels, which the driver wants
    box[0] = step * _one(stream, 1, max(1, (8 if copy.dim > 4 else 16) // step))
    at = [_one(stream, low, extent - (1 if _one(stream, 0, 3) else 0)) for extent in dims[1:-2]]
    at.insert(0, _one(stream, low, dims[0] // 3 if _one(stream, 0, 3) else dims[0]))  # so that the stride along W shows
    return (
        TensorMap(row.name, tuple(dims), tuple(strides), tuple(box), tuple(every), **common),
        (*at, *outer),
        (),
        address,
    )


def _pixel_box(
    stream: Stream, sizes: list[int], strided: bool, load: bool
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Lower corners, upper corners, and where the walk starts."""
    lower, upper, base = [], [], []
    for size in sizes:
        most = (size - 1) // (3 if strided else 1)
        first = _one(stream, -2, most) if load else _one(stream, 0, most)
        last = _one(stream, first, size - 1 + 2 * load)
        lower.append(first)
        upper.append(last - size + 1)
        base.append(_one(stream, first, last))
    return lower, upper, base


def _swizzles(copy: TensorCopyRow, arch: int) -> tuple[str, ...]:
    """The swizzles that a spelling takes on an arch."""
    if copy.wide_mode:
        return WIDE_SWIZZLES
    load = copy.operation == "load"
    new = arch >= 100 and not (arch >= 120 and load)
    return tuple(
        name for name, mode in SWIZZLE_MODES.items() if (new or not mode.atomicity) and (load or not mode.load_only)
    )


def _fill(stream: Stream, row: TensorType) -> str:
    return "NAN_REQUEST_ZERO_FMA" if row.floating and _one(stream, 0, 1) else "NONE"


def _strides(stream: Stream, dims: list[int], bits: int, unit: int = 16) -> tuple[list[int], list[int]]:
    """Strides without overlap, some with a gap; dimensions cut so that the tensor fits into the memory."""
    size, strides, kept = -(-dims[0] * bits // 8), [], [dims[0]]
    for extent in dims[1:]:
        stride = -(-size // unit) * unit + unit * _one(stream, 0, 1)
        extent = max(1, min(extent, (MEMORY_BYTES - size) // stride + 1))
        strides.append(stride)
        kept.append(extent)
        size += stride * (extent - 1)
    return strides, kept


def _memory(
    copy: TensorCopyRow, item: TensorClass, maps: list[TensorMap], stream: Stream, shape: tuple[int, int]
) -> Array:
    """Random bytes; of numbers and conversions, half of the elements from a table of edges."""
    words = stream.words((shape[0], shape[1] // 8))
    memory = words.astype("<u8").view(np.uint8).reshape(shape)
    if not (item.numbers or item.converted):
        return memory
    for sample, tmap in enumerate(maps):
        bits = tmap.type.bits
        elements = memory[sample].view(f"<u{bits // 8}")
        chosen = stream.chance(1, 2, elements.shape)
        edges = np.array(_edges(tmap.data_type), np.uint64).astype(elements.dtype)
        elements[chosen] = stream.choice(edges, (int(chosen.sum()),))
        if item.converted:  # ties of the rounding to tf32
            ties, tiny = stream.chance(1, 8, elements.shape), stream.chance(1, 8, elements.shape)
            elements[ties] = elements[ties] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
            elements[tiny] &= np.uint32(0x807FFFFF)
        elif tmap.data_type in _F32:  # subnormal numbers, which one of the three flushes
            elements[stream.chance(1, 4, elements.shape)] &= np.uint32(0x807FFFFF)
    return memory


def _edges(data_type: str) -> list[int]:
    """Codes at which arithmetic has its corners."""
    bits = DATA_TYPES[data_type].bits
    fraction = {"FLOAT16": 10, "BFLOAT16": 7}.get(data_type, 23 if DATA_TYPES[data_type].floating else 0)
    if not fraction:
        top = 1 << bits - 1
        return [0, 1, 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1]
    normal, infinity = 1 << fraction, (1 << bits - 1) - (1 << fraction)
    magnitudes = [0, 1, normal - 1, normal, normal + 1, infinity - 1, infinity, infinity + 1, infinity + normal // 2,
                  infinity // 2, infinity // 2 + 1]  # fmt: skip
    return [code | sign << bits - 1 for code in magnitudes for sign in (0, 1)]
