"""Mutants of tensor copies: mistakes about boxes, swizzles, strides, edges, offsets, and the types of elements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.isa.cp_async_bulk_tensor.testbench import run_loads, run_stores
from conformance.testbench import Array, Inputs, Mutant
from hwkernels.device.map_bytes import carried, carried_map
from hwkernels.probes.cp_async_bulk_tensor import image_bytes
from tcsim.core.addresses import ContestedRowError
from tcsim.core.errors import TcsimError
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorCopy
from tcsim.tma.box import HALO_STEP, BoxWalk, Flags, Integers, Places
from tcsim.tma.fields import WIDE_HALOS, TensorFields
from tcsim.tma.map import TensorMap
from tcsim.tma.reduce import TF32_NAN, flush
from tcsim.tma.types import TensorSwizzle

_SPARE = 1 << 17
"""Zeros after global memory, where a mutant may read or write."""


def _unchecked(tmap: TensorFields, **changes: Any) -> TensorFields:
    """A map with fields that the driver would not encode."""
    out = copy(tmap)
    for name, value in changes.items():
        object.__setattr__(out, name, value)
    return out


class _LateEdge(BoxWalk):
    def inside(self, index: Integers, size: int) -> Flags:
        return (index >= 0) & (index <= size)


class _StopsAtTheElement(BoxWalk):
    def stored(self, tmap: TensorFields) -> TensorFields:
        return tmap


class _Reversed(BoxWalk):
    def tiled(self, tmap: TensorFields, coordinates: Integers) -> Places:
        right = super().tiled(tmap, coordinates)
        counts = tmap.loaded[1:]
        order = np.arange(int(np.prod(counts))).reshape(counts).transpose().reshape(-1)
        return replace(right, rows=right.rows[..., order], rows_inside=right.rows_inside[..., order])


class _OffsetSwizzle(BoxWalk):
    def swizzled(self, swizzle: TensorSwizzle, plain: Integers, address: Integers) -> Integers:
        return address + np.asarray(swizzle(plain))  # type: ignore[arg-type]


class _NoSwizzle(BoxWalk):
    def swizzled(self, swizzle: TensorSwizzle, plain: Integers, address: Integers) -> Integers:
        return address + plain


class _Packed(BoxWalk):
    def pitch(self, tmap: TensorFields) -> int:
        return tmap.row_bytes


class _EveryElement(BoxWalk):
    def tiled(self, tmap: TensorFields, coordinates: Integers) -> Places:
        counts = _unchecked(tmap, box_dim=tmap.loaded, element_strides=(1,) * tmap.rank)
        return super().tiled(counts, coordinates)

    def im2col(self, tmap: TensorFields, coordinates: Integers, offsets: Integers) -> Places:
        return super().im2col(replace(tmap, element_strides=(1,) * tmap.rank), coordinates, offsets)

    def im2col_wide(self, tmap: TensorFields, coordinates: Integers, halo: int, shift: Integers) -> Places:
        return super().im2col_wide(replace(tmap, element_strides=(1,) * tmap.rank), coordinates, halo, shift)


class _NoOffsets(BoxWalk):
    def im2col(self, tmap: TensorFields, coordinates: Integers, offsets: Integers) -> Places:
        return super().im2col(tmap, coordinates, offsets * 0)


class _EveryImage(BoxWalk):
    def _image(self, tmap: TensorFields, coordinates: Integers, steps: Integers) -> Integers:
        return coordinates[..., -1, None] + steps


class _FirstSlice(BoxWalk):
    def tiled(self, tmap: TensorFields, coordinates: Integers) -> Places:
        return super().tiled(tmap, self._first(tmap, coordinates))

    def im2col(self, tmap: TensorFields, coordinates: Integers, offsets: Integers) -> Places:
        return super().im2col(tmap, self._first(tmap, coordinates), offsets)

    def _first(self, tmap: TensorFields, coordinates: Integers) -> Integers:
        place = tmap.rank - 2 if tmap.slice_bytes else tmap.rank
        return np.where(np.arange(tmap.rank) == place, 0, coordinates)


class _EverySlice(BoxWalk):
    def _innermost(self, tmap: TensorFields, column: Integers) -> tuple[Integers, Flags]:
        box, every = (tmap.loaded[0], *tmap.box_dim[1:]), (1, *tmap.element_strides[1:])
        return super()._innermost(_unchecked(tmap, box_dim=box, element_strides=every), column)


class _HalosBetween(BoxWalk):
    def wide_steps(self, tmap: TensorFields, halo: int) -> Integers:
        each = np.arange(0, tmap.loaded[1], HALO_STEP)[:, None] + np.arange(HALO_STEP + halo)
        return each.reshape(-1) if tmap.wide_mode == "W128" else super().wide_steps(tmap, halo)


class _HaloByHalo(BoxWalk):
    def wide_steps(self, tmap: TensorFields, halo: int) -> Integers:
        right, pixels = super().wide_steps(tmap, halo), tmap.loaded[1]
        if tmap.wide_mode != "W128":
            return right
        return np.concatenate([right[:pixels], right[pixels:].reshape(halo, WIDE_HALOS).transpose().reshape(-1)])


class _NoShift(BoxWalk):
    def im2col_wide(self, tmap: TensorFields, coordinates: Integers, halo: int, shift: Integers) -> Places:
        return super().im2col_wide(tmap, coordinates, halo, shift * 0)


class _WholeImage(BoxWalk):
    def im2col(self, tmap: TensorFields, coordinates: Integers, offsets: Integers) -> Places:
        zeros = (0,) * (tmap.rank - 2)
        whole = replace(tmap, pixel_box_lower_corner=zeros, pixel_box_upper_corner=zeros)
        return super().im2col(whole, coordinates, offsets)


def _kind(
    direction: str,
    *,
    map_mode: str | None = None,
    wide: str = "",
    narrow: bool = False,
    least: int = 1,
    rows4: bool | None = None,
) -> Callable[[Any], bool]:
    def applies(instruction: TensorCopy) -> bool:
        row = instruction.row
        right = row.operation == "load" if direction == "load" else row.operation in ("store", "reduce")
        return (
            right
            and not row.unmodelled
            and (map_mode is None or row.map_mode == map_mode)
            and (not wide or row.wide_mode == wide)
            and not (narrow and row.wide_mode)
            and row.dim >= least
            and (rows4 is None or row.rows4 == rows4)
        )

    return applies


def _load(walk: BoxWalk, change: Callable[[Inputs], Inputs] = lambda inputs: inputs) -> Callable[[Any, Inputs], Array]:
    def run(instruction: TensorCopy, inputs: Inputs) -> Array:
        return run_loads(instruction, change(inputs), walk, _SPARE)

    return run


def _store(walk: BoxWalk) -> Callable[[Any, Inputs], Array]:
    def run(instruction: TensorCopy, inputs: Inputs) -> Array:
        right = run_stores(instruction, inputs)
        for sample in range(len(right)):
            one = {name: array[sample : sample + 1] for name, array in inputs.items()}
            with suppress(ContestedRowError):  # two elements for one place: such a sample contradicts nothing
                right[sample] = run_stores(instruction, one, walk, None, _SPARE)[0]
        return right

    return run


def _remapped(change: Callable[[TensorMap], TensorMap]) -> Callable[[Inputs], Inputs]:
    def changed(inputs: Inputs) -> Inputs:
        maps = [change(carried_map(data.tobytes())) for data in inputs["maps"]]
        return inputs | {"maps": np.stack([np.frombuffer(carried(tmap), np.uint8) for tmap in maps])}

    return changed


def _recoded(types: tuple[str, ...], change: Callable[[Array], Array]) -> Callable[[Inputs], Inputs]:
    """Global memory of the samples of some types, its 32-bit words changed."""

    def changed(inputs: Inputs) -> Inputs:
        words = np.ascontiguousarray(inputs["memory"]).view("<u4")
        chosen = np.array([carried_map(data.tobytes()).data_type in types for data in inputs["maps"]])
        return inputs | {"memory": np.where(chosen[:, None], change(words), words).astype("<u4").view(np.uint8)}

    return changed


def _ties_away(words: Array) -> Array:
    return np.where(words & np.uint32(0x1FFF) == 0x1000, words | np.uint32(1), words)


def _kept_nans(instruction: TensorCopy, inputs: Inputs) -> Array:
    """Loads that round and leave NaNs as they are."""
    right, copied = (run_loads(instruction, change(inputs)) for change in (dict, _remapped(_copied_bits)))
    return np.where(right == TF32_NAN, copied, right)


def _zero_filled(tmap: TensorMap) -> TensorMap:
    return replace(tmap, oob_fill="NONE")


def _copied_bits(tmap: TensorMap) -> TensorMap:
    return replace(tmap, data_type="FLOAT32") if tmap.type.rounds else tmap


_TF32 = ("TFLOAT32", "TFLOAT32_FTZ")
_FTZ = ("FLOAT32_FTZ", "TFLOAT32_FTZ")

_WALKS: tuple[tuple[str, str, BoxWalk, dict[str, Any]], ...] = (
    ("late edge", "the index one beyond the tensor counts as inside", _LateEdge(), {}),
    ("box order reversed", "the box lies outermost dimension first", _Reversed(), {"map_mode": "", "least": 3}),
    ("offset swizzled", "the swizzle acts on the offset in the box, not on the absolute address", _OffsetSwizzle(), {}),
    ("swizzle ignored", "bytes lie as without a swizzle, rows a span apart", _NoSwizzle(), {}),
    ("rows packed", "under a swizzle rows follow each other without gaps", _Packed(), {"least": 2}),
    ("element strides ignored", "neighbours are taken", _EveryElement(), {"least": 2, "rows4": False}),
    ("whole image", "im2col walks over the whole image, not the pixel box", _WholeImage(), {"map_mode": "im2col"}),
    ("element stride along N ignored", "im2col goes on in the next image", _EveryImage(), {"map_mode": "im2col"}),
    (
        "first slice",
        "of an interleaved layout the first slice of channels is taken",
        _FirstSlice(),
        {"least": 3, "narrow": True},
    ),
    (
        "element stride of slices ignored",
        "the innermost element stride of an interleaved layout is ignored, too",
        _EverySlice(),
        {"least": 3, "map_mode": ""},
    ),
)

LOAD_MUTANTS: tuple[Mutant, ...] = (
    *(Mutant(f"load: {name}", mistake, _kind("load", **options), _load(walk)) for name, mistake, walk, options in _WALKS),
    Mutant("load: offsets ignored", "im2col offsets are taken for 0", _kind("load", map_mode="im2col"), _load(_NoOffsets())),
    Mutant("load: always zeros", "a NaN fill gives zeros", _kind("load"), _load(BoxWalk(), _remapped(_zero_filled))),
    Mutant("load: types only name sizes", "TFLOAT32 copies bits", _kind("load"),
           _load(BoxWalk(), _remapped(_copied_bits))),
    Mutant("load: ties away from zero", "TFLOAT32 rounds as cvt.rna does", _kind("load"),
           _load(BoxWalk(), _recoded(_TF32, _ties_away))),
    Mutant("load: NaNs kept", "TFLOAT32 leaves NaNs as they are", _kind("load"), _kept_nans),
    Mutant("load: subnormals flushed", "_FTZ types turn subnormal numbers into zeros", _kind("load"),
           _load(BoxWalk(), _recoded(_FTZ, flush))),
    Mutant("load: wOffset ignored", "wOffset is taken for 0", _kind("load", map_mode="im2col_wide"), _load(_NoShift())),
    Mutant("load: halos between", "each halo of .im2col::w::128 follows its 32 pixels", _kind("load", wide="W128"),
           _load(_HalosBetween())),
    Mutant("load: halo by halo", "behind the pixels of .im2col::w::128 lies one halo after the other",
           _kind("load", wide="W128"), _load(_HaloByHalo())),
)  # fmt: skip
"""Mistakes in loads."""


def _swapped(instruction: TensorCopy, inputs: Inputs) -> Array:
    """A reduction that stores instead."""
    stored = replace(instruction, row=replace(instruction.row, op="", operation="store"))
    return run_stores(stored, inputs)


def _adds(instruction: TensorCopy) -> bool:
    return instruction.row.op == "add" and not instruction.row.unmodelled


def _as_type(name: str) -> Callable[[Any, Inputs], Array]:
    """Additions of 32-bit floats as one of them makes them."""
    floats = ("FLOAT32", "FLOAT32_FTZ", "TFLOAT32")

    def change(tmap: TensorMap) -> TensorMap:
        return replace(tmap, data_type=name) if tmap.data_type in floats else tmap

    def run(instruction: TensorCopy, inputs: Inputs) -> Array:
        return run_stores(instruction, _remapped(change)(inputs))

    return run


STORE_MUTANTS: tuple[Mutant, ...] = (
    *(Mutant(f"store: {name}", mistake, _kind("store", **options), _store(walk)) for name, mistake, walk, options in _WALKS),
    Mutant("store: stops at the element", "what lies behind the end of a row in its last 16 bytes stays", _kind("store"),
           _store(_StopsAtTheElement())),
    Mutant("reduce: f32 flushes", "FLOAT32 and TFLOAT32 are added as FLOAT32_FTZ is", _adds, _as_type("FLOAT32_FTZ")),
    Mutant("reduce: f32 keeps subnormals", "FLOAT32_FTZ is added as FLOAT32 is", _adds, _as_type("FLOAT32")),
    Mutant("store: not reduced", "a reduction overwrites", lambda item: bool(item.row.op) and not item.row.unmodelled,
           _swapped),
)  # fmt: skip
"""Mistakes in stores and reductions."""


def _storable(tmap: TensorMap) -> TensorMap:
    """With the pixel box that a store takes."""
    if tmap.im2col_mode != "im2col":
        return tmap
    flat = (0,) * len(tmap.pixel_box_lower_corner)
    return replace(tmap, pixel_box_lower_corner=flat, pixel_box_upper_corner=flat)


def _prefetch_stores(instruction: TensorCopy, inputs: Inputs) -> Array:
    """The box, as a store of 0xff bytes in shared memory; where no store may reach, the memory stays."""
    inputs = _remapped(_storable)(inputs) | {"coordinates": np.maximum(inputs["coordinates"].view("<i4"), 0)}
    found = []
    for sample, memory in enumerate(inputs["memory"]):
        given = {name: array[sample : sample + 1] for name, array in inputs.items()}
        given |= {
            "image": np.full((1, image_bytes(instruction.row)), 0xFF, np.uint8),
            "address": np.zeros(1, np.uint32),
        }
        try:
            found.append(run_stores(instruction, given, spare=_SPARE)[0])
        except TcsimError:
            found.append(np.ascontiguousarray(memory).view("<u4"))
    return np.stack(found)


PREFETCH_MUTANTS = (
    Mutant("prefetch: taken for a store", "the box in global memory is written", lambda item: True, _prefetch_stores),
)
"""Mistakes in prefetches."""
