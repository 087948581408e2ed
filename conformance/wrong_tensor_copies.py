"""Named wrong models of tensor copies: the right one with one mistake, which the cases must contradict."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.exercises import Array, Inputs, WrongModel
from tcsim.shared_rows import ContestedRowError
from tcsim.tensor_box import BoxWalk, Flags, Integers, Places
from tcsim.tensor_instruction import TensorCopy
from tcsim.tensor_map import TensorMap
from tcsim.tensor_types import TensorSwizzle

_SPARE = 1 << 17
"""Zeros after global memory, where a wrong model may read or write."""


class _LateEdge(BoxWalk):
    def inside(self, index: Integers, size: int) -> Flags:
        return (index >= 0) & (index <= size)


class _Reversed(BoxWalk):
    def tiled(self, tmap: TensorMap, coordinates: Integers) -> Places:
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
    def pitch(self, tmap: TensorMap) -> int:
        return tmap.row_bytes


class _EveryElement(BoxWalk):
    def tiled(self, tmap: TensorMap, coordinates: Integers) -> Places:
        counts = replace(tmap, box_dim=(tmap.box_dim[0], *tmap.loaded[1:]), element_strides=(1,) * tmap.rank)
        return super().tiled(counts, coordinates)

    def im2col(self, tmap: TensorMap, coordinates: Integers, offsets: Integers) -> Places:
        return super().im2col(replace(tmap, element_strides=(1,) * tmap.rank), coordinates, offsets)


class _NoOffsets(BoxWalk):
    def im2col(self, tmap: TensorMap, coordinates: Integers, offsets: Integers) -> Places:
        return super().im2col(tmap, coordinates, offsets * 0)


class _WholeImage(BoxWalk):
    def im2col(self, tmap: TensorMap, coordinates: Integers, offsets: Integers) -> Places:
        zeros = (0,) * (tmap.rank - 2)
        whole = replace(tmap, pixel_box_lower_corner=zeros, pixel_box_upper_corner=zeros)
        return super().im2col(whole, coordinates, offsets)


def _kind(
    direction: str, *, map_mode: str | None = None, least: int = 1, rows4: bool | None = None
) -> Callable[[Any], bool]:
    def applies(instruction: TensorCopy) -> bool:
        facts = instruction.facts
        right = facts.direction == "load" if direction == "load" else facts.direction in ("store", "reduce")
        return (
            right
            and not facts.unmodelled
            and (map_mode is None or facts.map_mode == map_mode)
            and facts.dim >= least
            and (rows4 is None or facts.rows4 == rows4)
        )

    return applies


def _load(walk: BoxWalk, change: Callable[[Inputs], Inputs] = lambda inputs: inputs) -> Callable[[Any, Inputs], Array]:
    def run(instruction: TensorCopy, inputs: Inputs) -> Array:
        from conformance.exercises.tensor_copy import run_loads  # it needs this module

        return run_loads(instruction, change(inputs), walk, _SPARE)

    return run


def _store(walk: BoxWalk) -> Callable[[Any, Inputs], Array]:
    def run(instruction: TensorCopy, inputs: Inputs) -> Array:
        from conformance.exercises.tensor_copy import run_stores  # it needs this module

        right = run_stores(instruction, inputs)
        for sample in range(len(right)):
            one = {name: array[sample : sample + 1] for name, array in inputs.items()}
            with suppress(ContestedRowError):  # two elements for one place: such a sample contradicts nothing
                right[sample] = run_stores(instruction, one, walk, "", _SPARE)[0]
        return right

    return run


def _remapped(change: Callable[[TensorMap], TensorMap]) -> Callable[[Inputs], Inputs]:
    def changed(inputs: Inputs) -> Inputs:
        maps = [change(TensorMap.decode(data.tobytes())) for data in inputs["maps"]]
        return inputs | {"maps": np.stack([np.frombuffer(tmap.encode(0), np.uint8) for tmap in maps])}

    return changed


def _zero_filled(tmap: TensorMap) -> TensorMap:
    return replace(tmap, oob_fill="NONE")


def _copied_bits(tmap: TensorMap) -> TensorMap:
    return replace(tmap, data_type="FLOAT32") if tmap.type.flushes or tmap.type.rounds else tmap


_WALKS: tuple[tuple[str, str, BoxWalk, dict[str, Any]], ...] = (
    ("late edge", "the index one beyond the tensor counts as inside", _LateEdge(), {}),
    ("box order reversed", "the box lies outermost dimension first", _Reversed(), {"map_mode": "", "least": 3}),
    ("offset swizzled", "the swizzle acts on the offset in the box, not on the absolute address", _OffsetSwizzle(), {}),
    ("swizzle ignored", "bytes lie as without a swizzle, rows a span apart", _NoSwizzle(), {}),
    ("rows packed", "under a swizzle rows follow each other without gaps", _Packed(), {"least": 2}),
    ("element strides ignored", "neighbours are taken", _EveryElement(), {"least": 2, "rows4": False}),
    ("whole image", "im2col walks over the whole image, not the pixel box", _WholeImage(), {"map_mode": "im2col"}),
)

WRONG_LOADS: tuple[WrongModel, ...] = (
    *(WrongModel(f"load: {name}", mistake, _kind("load", **options), _load(walk)) for name, mistake, walk, options in _WALKS),
    WrongModel("load: offsets ignored", "im2col offsets are taken for 0", _kind("load", map_mode="im2col"), _load(_NoOffsets())),
    WrongModel("load: always zeros", "a NaN fill gives zeros", _kind("load"), _load(BoxWalk(), _remapped(_zero_filled))),
    WrongModel("load: types only name sizes", "TFLOAT32 and _FTZ types copy bits", _kind("load"),
               _load(BoxWalk(), _remapped(_copied_bits))),
)  # fmt: skip
"""Mistakes in loads."""


def _swapped(instruction: TensorCopy, inputs: Inputs) -> Array:
    """A reduction that stores instead."""
    from conformance.exercises.tensor_copy import run_stores

    facts = instruction.facts
    stored = replace(instruction, row=replace(instruction.row, facts=replace(facts, op="", direction="store")))
    return run_stores(stored, inputs)


WRONG_STORES: tuple[WrongModel, ...] = (
    *(WrongModel(f"store: {name}", mistake, _kind("store", **options), _store(walk)) for name, mistake, walk, options in _WALKS),
    WrongModel("store: not reduced", "a reduction overwrites", lambda item: bool(item.facts.op) and not item.facts.unmodelled,
               _swapped),
)  # fmt: skip
"""Mistakes in stores and reductions."""
