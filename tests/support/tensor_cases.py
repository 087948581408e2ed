"""Random tensor maps with coordinates for the tests of TMA copies, each as the fast model's map and as the exact one's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import tcsim
from tcsim.tma.types import DATA_TYPES, SWIZZLE_MODES, TensorType, padded_swizzles
from tests.exact import tensor_copy as exact

SMEM = 4096
TYPES = tuple(DATA_TYPES)


@dataclass(frozen=True)
class Case:
    """One copy."""

    tmap: tcsim.TensorMap
    slow: exact.Map
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...] | None
    address: int
    memory: np.ndarray
    smem: np.ndarray


def draw_bytes(draw: st.DrawFn, size: int) -> np.ndarray:
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def _memory_bytes(dims: tuple[int, ...], strides: tuple[int, ...], bits: int) -> int:
    row = -(-dims[0] * bits // 128) * 16  # as far as stores write
    return row + sum((size - 1) * stride for size, stride in zip(dims[1:], strides, strict=True))


def swizzles(direction: str) -> tuple[str, ...]:
    return tuple(name for name, mode in SWIZZLE_MODES.items() if direction == "load" or not mode.load_only)


def _strides(draw: st.DrawFn, dims: tuple[int, ...], bits: int, unit: int) -> tuple[int, ...]:
    """Rows that do not overlap, with a gap now and then."""
    size, strides = -(-dims[0] * bits // 8), []
    for extent in dims[1:]:
        stride = -(-size // unit) * unit + unit * draw(st.integers(0, 1))
        strides.append(stride)
        size = stride * extent
    return tuple(strides)


@st.composite
def tiled(draw: st.DrawFn, types: tuple[str, ...] = TYPES, direction: str = "load", rows4: bool = False) -> Case:
    """A tiled map, or one of gather4 and scatter4."""
    facts = DATA_TYPES[draw(st.sampled_from(types))]
    modes = padded_swizzles(facts).get(direction, swizzles(direction))
    swizzle = draw(st.sampled_from(modes))
    span = SWIZZLE_MODES[swizzle].span
    step = facts.box or (32 if facts.bits == 4 else 128 // facts.bits)
    most = min(256, 8 * (span or 128) // facts.bits) // step
    width = facts.box or step * draw(st.integers(1, max(1, most)))
    rank = 2 if rows4 else draw(st.integers(1, 5))
    box = (width, *([1] if rows4 else (draw(st.integers(1, 4 if rank > 3 else 7)) for _ in range(rank - 1))))
    every = tuple(1 if rows4 else draw(st.sampled_from((1, 1, 2, 3, 8))) for _ in range(rank))  # the first is ignored
    multiple = facts.dim_multiple
    dims = (
        max(1, draw(st.integers(1, 2 * width)) // multiple) * multiple,
        *(draw(st.integers(1, 6)) for _ in range(rank - 1)),
    )
    strides = _strides(draw, dims, facts.bits, facts.address_multiple)
    low = 0 if direction == "store" else -1
    column = step * draw(st.integers(low, 2))
    count = 4 if rows4 else rank - 1
    rest = draw(st.permutations(range(low, 7)))[:4] if rows4 else [draw(st.integers(3 * low, 6)) for _ in range(count)]
    nan = facts.floating and draw(st.booleans())
    tmap = tcsim.TensorMap(
        facts.name, dims, strides, box, every, swizzle=swizzle, oob_fill="NAN_REQUEST_ZERO_FMA" if nan else "NONE"
    )
    slow = exact.Map(facts.name, dims, strides, box, every, swizzle, nan)
    rows = 4 if rows4 else int(np.prod(tmap.loaded[1:]))
    needed = -(-rows * (span or tmap.row_bytes) // 1024) * 1024
    address = 128 * draw(st.integers(0, 9))
    return Case(
        tmap, slow, (column, *rest), None, address,
        draw_bytes(draw, _memory_bytes(dims, strides, facts.bits)), draw_bytes(draw, 1024 + address + needed),
    )  # fmt: skip


def _pixel_box(
    draw: st.DrawFn, sizes: tuple[int, ...], direction: str
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Lower and upper corners, and where a walk may start."""
    lower, upper, base = [], [], []
    for size in sizes:
        low = 0 if direction == "store" else draw(st.integers(-2, size - 1))
        high = draw(st.integers(low, size - 1 + (0 if direction == "store" else 2)))
        lower.append(low)
        upper.append(high - size + 1)
        base.append(draw(st.integers(low, high)))
    return lower, upper, base


@st.composite
def columns(draw: st.DrawFn, direction: str = "load", types: tuple[str, ...] = TYPES[:13]) -> Case:
    """An im2col map."""
    facts = DATA_TYPES[draw(st.sampled_from(types))]
    swizzle = draw(st.sampled_from(swizzles(direction)))
    span = SWIZZLE_MODES[swizzle].span
    step = 128 // facts.bits
    channels = step * draw(st.integers(1, max(1, 8 * (span or 64) // facts.bits // step)))
    spatial = draw(st.integers(1, 3))
    dims = (
        draw(st.integers(1, 2 * channels)),
        *(draw(st.integers(1, 5)) for _ in range(spatial)),
        draw(st.integers(1, 3)),
    )
    strides = _strides(draw, dims, facts.bits, 16)
    every = (*(draw(st.integers(1, 3)) for _ in range(spatial + 1)), draw(st.sampled_from((1, 1, 2, 3))))
    lower, upper, base = _pixel_box(draw, dims[1:-1], direction)
    offsets = None if direction == "store" else tuple(draw(st.integers(0, 3)) for _ in range(spatial))
    pixels = draw(st.integers(1, 24))
    if direction == "store":  # no pixel twice
        pixels = min(pixels, dims[-1] * int(np.prod(dims[1:-1])))
    nan = facts.floating and draw(st.booleans())
    tmap = tcsim.TensorMap.im2col(
        facts.name, dims, strides, lower, upper, channels, pixels, every, swizzle=swizzle,
        oob_fill="NAN_REQUEST_ZERO_FMA" if nan else "NONE",
    )  # fmt: skip
    slow = exact.Map(
        facts.name, dims, strides, (), every, swizzle, nan, tuple(lower), tuple(upper), channels, pixels, offsets or ()
    )
    first = step * draw(st.integers(0, 2) if direction == "store" else st.integers(-1, 2))
    at = (first, *base, draw(st.integers(0, dims[-1])))
    address = 128 * draw(st.integers(0, 9))
    needed = -(-pixels * (span or tmap.row_bytes) // 1024) * 1024
    return Case(
        tmap, slow, at, offsets, address,
        draw_bytes(draw, _memory_bytes(dims, strides, facts.bits)), draw_bytes(draw, 1024 + address + needed),
    )  # fmt: skip


def _interleave(draw: st.DrawFn, types: tuple[str, ...]) -> tuple[TensorType, int, dict[str, str]]:
    """A data type, the bytes of a slice, and what the map says of them."""
    facts, slice_bytes = DATA_TYPES[draw(st.sampled_from(types))], draw(st.sampled_from((16, 32)))
    nan = facts.floating and draw(st.booleans())
    modes = {
        "interleave": f"{slice_bytes}B", "swizzle": "32B" if slice_bytes == 32 else "NONE",
        "oob_fill": "NAN_REQUEST_ZERO_FMA" if nan else "NONE",
    }  # fmt: skip
    return facts, slice_bytes, modes


def _slice_strides(draw: st.DrawFn, dims: tuple[int, ...], slice_bytes: int) -> tuple[int, ...]:
    return _strides(draw, dims, 8 * slice_bytes, slice_bytes)


INTERLEAVED = TYPES[:14]
"""Types without padding."""


@st.composite
def interleaved(draw: st.DrawFn, direction: str = "load", types: tuple[str, ...] = INTERLEAVED) -> Case:
    """A tiled map of an interleaved layout: W[, H[, D]], slices, N."""
    facts, slice_bytes, modes = _interleave(draw, types)
    rank = draw(st.integers(3, 5))
    multiple = facts.dim_multiple
    dims = (draw(st.integers(1, 5)) * multiple, *(draw(st.integers(1, 4)) for _ in range(rank - 1)))
    strides = _slice_strides(draw, dims, slice_bytes)
    step = 128 // facts.bits
    box = (step * draw(st.integers(1, 2)), *(draw(st.integers(1, 6 if d < 2 else 3)) for d in range(1, rank)))
    every = tuple(draw(st.sampled_from((1, 1, 2, 3, 8))) for _ in range(rank))
    low = 0 if direction == "store" else -2
    at = tuple(draw(st.integers(low, size)) for size in dims)
    tmap = tcsim.TensorMap(facts.name, dims, strides, box, every, **modes)
    slow = exact.Map(
        facts.name, dims, strides, box, every, modes["swizzle"], modes["oob_fill"] != "NONE", slice_bytes=slice_bytes
    )
    address = 128 * draw(st.integers(0, 9))
    needed = int(np.prod(tmap.loaded)) * slice_bytes
    return Case(
        tmap, slow, at, None, address,
        draw_bytes(draw, _memory_bytes(dims, strides, 8 * slice_bytes)), draw_bytes(draw, 256 + address + needed),
    )  # fmt: skip


@st.composite
def interleaved_columns(draw: st.DrawFn, direction: str = "load", types: tuple[str, ...] = INTERLEAVED) -> Case:
    """An im2col map of an interleaved layout."""
    facts, slice_bytes, modes = _interleave(draw, types)
    spatial = draw(st.integers(1, 3))
    multiple = facts.dim_multiple
    dims = (draw(st.integers(1, 4)) * multiple, *(draw(st.integers(1, 4)) for _ in range(spatial + 1)))
    strides = _slice_strides(draw, dims, slice_bytes)
    every = tuple(draw(st.sampled_from((1, 1, 2, 3))) for _ in range(spatial + 2))
    lower, upper, base = _pixel_box(draw, dims[:-2], direction)
    offsets = None if direction == "store" else tuple(draw(st.integers(0, 3)) for _ in range(spatial))
    pixels = draw(st.integers(1, 24))
    if direction == "store":  # no pixel twice
        pixels = min(pixels, dims[-1] * int(np.prod(dims[:-2])))
    low = 0 if direction == "store" else -1
    at = (*base, draw(st.integers(low, dims[-2])), draw(st.integers(low, dims[-1])))
    tmap = tcsim.TensorMap.im2col(
        facts.name, dims, strides, lower, upper, 128 // facts.bits * draw(st.integers(1, 2)), pixels, every, **modes
    )
    slow = exact.Map(
        facts.name, dims, strides, (), every, modes["swizzle"], modes["oob_fill"] != "NONE", tuple(lower), tuple(upper),
        pixels=pixels, offsets=offsets or (), slice_bytes=slice_bytes,
    )  # fmt: skip
    address = 128 * draw(st.integers(0, 9))
    return Case(
        tmap, slow, at, offsets, address,
        draw_bytes(draw, _memory_bytes(dims, strides, 8 * slice_bytes)),
        draw_bytes(draw, 256 + address + pixels * slice_bytes),
    )  # fmt: skip


@st.composite
def wide(draw: st.DrawFn, direction: str = "load", types: tuple[str, ...] = TYPES[:13], mode: str = "") -> Case:
    """An im2col-wide map; of a load with wHalo and wOffset."""
    facts = DATA_TYPES[draw(st.sampled_from(types))]
    swizzle = draw(st.sampled_from(("64B", "128B", "128B_ATOM_32B")))
    span, step = SWIZZLE_MODES[swizzle].span, 128 // facts.bits
    mode = mode or draw(st.sampled_from(("W", "W", "W128")))
    channels = step * draw(st.integers(1, 1 if mode == "W128" else 8 * span // facts.bits // step))
    spatial = draw(st.integers(1, 3))
    dims = (
        draw(st.integers(1, 2 * channels)), draw(st.integers(1, 9)), *(draw(st.integers(1, 3)) for _ in range(spatial)),
    )  # fmt: skip
    strides = _strides(draw, dims, facts.bits, 16)
    every = (1, draw(st.integers(1, 3)), *(1 for _ in range(spatial - 1)), draw(st.sampled_from((1, 1, 2))))
    lower, upper, base = _pixel_box(draw, (dims[1],), direction)
    load = direction == "load"
    first = base[0] - (draw(st.integers(0, 3)) if load else 0)  # a start to the left of the pixel box is allowed
    halo, shift = (draw(st.integers(0, 31 if mode == "W128" else 40)), draw(st.integers(0, 31))) if load else (0, 0)
    pixels = draw(st.integers(1, 24))
    if not load:
        pixels = min(pixels, -(-(dims[1] - first) // every[1]))
    nan = facts.floating and draw(st.booleans())
    tmap = tcsim.TensorMap.im2col_wide(
        facts.name, dims, strides, lower[0], upper[0], channels, pixels, every, mode=mode, swizzle=swizzle,
        oob_fill="NAN_REQUEST_ZERO_FMA" if nan else "NONE",
    )  # fmt: skip
    slow = exact.Map(
        facts.name, dims, strides, (), every, swizzle, nan, tuple(lower), tuple(upper), channels, pixels,
        wide={"W": "w", "W128": "w::128"}[mode], halo=halo, shift=shift,
    )  # fmt: skip
    middle = tuple(draw(st.integers(0 if not load else -1, size)) for size in dims[2:])
    at = (step * draw(st.integers(-1 if load else 0, 2)), first, *middle)
    rows = (128 + 4 * halo) if mode == "W128" else pixels + halo
    return Case(
        tmap, slow, at, (halo, shift) if load else None, address := 128 * draw(st.integers(0, 9)),
        draw_bytes(draw, _memory_bytes(dims, strides, facts.bits)),
        draw_bytes(draw, 1024 + address + -(-rows * span // 1024) * 1024),
    )  # fmt: skip
