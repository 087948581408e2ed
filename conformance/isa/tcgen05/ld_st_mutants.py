"""Mutants of the instructions on Tensor Memory: mistakes about lanes, columns, halves, order, directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.tcgen05.memory_models import result_of
from conformance.testbench import Array, Inputs, Mutant
from hwkernels.probes.tcgen05_ld_st import geometry
from tcsim.layouts.layout import FragmentLayout, Layout

Words = npt.NDArray[np.uint32]
Change = Callable[[Any], Any]
"""An instruction with one fact changed."""


def _changed(change: Change) -> Callable[[Any, Inputs], Array]:
    """The right model of an instruction whose facts are wrong."""

    def run(instruction: Any, inputs: Inputs) -> Array:
        return result_of(change(instruction), inputs)

    return run


def _on_result(change: Callable[[Any, Array], Array]) -> Callable[[Any, Inputs], Array]:
    def run(instruction: Any, inputs: Inputs) -> Array:
        return change(instruction, result_of(instruction, inputs))

    return run


def _on_inputs(change: Callable[[Any, Inputs], Inputs]) -> Callable[[Any, Inputs], Array]:
    def run(instruction: Any, inputs: Inputs) -> Array:
        return result_of(instruction, change(instruction, dict(inputs)))

    return run


def _with_facts(instruction: Any, **facts: Any) -> Any:
    return replace(instruction, row=replace(instruction.row, **facts))


def _with_layout(change: Callable[[FragmentLayout], FragmentLayout]) -> Change:
    return lambda instruction: _with_facts(instruction, layout=change(instruction.row.layout))


# --- ld and st


def _rows_of_lanes(layout: FragmentLayout) -> FragmentLayout:
    """Lane i holds rows i and i + 8 of one column after the other: quads run down, not across."""
    shape, stride = layout.thread.shape, layout.thread.stride
    if not isinstance(shape, tuple) or not isinstance(stride, tuple):
        raise TypeError(f"{layout} has no quads")
    return replace(layout, thread=Layout((shape[-1], *shape[:-1]), (stride[-1], *stride[:-1])))


def _quads(instruction: Any) -> bool:
    return instruction.row.movement.name in ("16x64b", "16x128b", "16x256b")


def _upper_rows_next(layout: FragmentLayout) -> FragmentLayout:
    """The second row of a lane is the next one, not that 8 further on: rows 2q and 2q + 1 of quad q."""
    far, columns = 8 * layout.columns, layout.columns

    def swap(stride: Any) -> Any:
        if isinstance(stride, tuple):
            return tuple(swap(item) for item in stride)
        return columns if stride == far else 2 * columns if stride == columns else stride

    thread = Layout(layout.thread.shape, swap(layout.thread.stride))
    return replace(layout, thread=thread, value=Layout(layout.value.shape, swap(layout.value.stride)))


def _halves_swapped(instruction: Any, words: Array) -> Array:
    return np.asarray(words << np.uint32(16) | words >> np.uint32(16), np.uint32)


def _packed(instruction: Any) -> bool:
    return bool(instruction.row.packed)


def _cells_halved(instruction: Any, inputs: Inputs) -> Inputs:
    return inputs | {"tmem": inputs["tmem"] >> np.uint32(16)}


def _registers_halved(instruction: Any, inputs: Inputs) -> Inputs:
    return inputs | {"registers": _halves_swapped(instruction, inputs["registers"])}


def _upper_kept(instruction: Any, inputs: Inputs) -> Array:
    """Where the store wrote, the upper half of the cell from before."""
    right = result_of(instruction, inputs)
    written = right != inputs["tmem"]
    keep = inputs["tmem"] & np.uint32(0xFFFF0000) | right & np.uint32(0xFFFF)
    return np.where(written, keep, right)


def _next_warp(instruction: Any, inputs: Inputs) -> Inputs:
    return inputs | {"tmem": np.roll(inputs["tmem"], -32, axis=-2)}


def _upper_sixteen(instruction: Any, inputs: Inputs) -> Inputs:
    """Bits 31:16 of the offset ignored: always the first 16 lanes of the warp."""
    return inputs | {"offset": inputs["offset"] & np.uint32(0xFFFF)}


def _sixteen(instruction: Any) -> bool:
    return instruction.row.layout.rows == 16


def _two(instruction: Any) -> bool:
    return instruction.row.movement.halves == 2


def _contiguous(instruction: Any, inputs: Inputs) -> Inputs:
    width = instruction.row.layout.columns // 2
    return inputs | {"split": np.full_like(inputs["split"], width)}


def _halves_exchanged(layout: FragmentLayout) -> FragmentLayout:
    """Lanes 0-15 hold the second half."""
    half = layout.columns // 2
    order = np.argsort(np.arange(32) ^ 16)
    flat = layout.flat_element.reshape(32, -1)[order].reshape(-1)
    new = replace(layout)
    new.__dict__["flat_element"] = flat
    assert half
    return new


_MOVES: tuple[tuple[str, str, Callable[[Any], bool], Callable[[Any, Inputs], Array]], ...] = (
    ("quads run down", "neighbouring lanes hold neighbouring rows, not columns", _quads,
     _changed(_with_layout(_rows_of_lanes))),
    ("next row in the lane", "a lane's two rows are neighbours, not 8 apart", _quads, _changed(_with_layout(_upper_rows_next))),
    ("upper 16 lanes ignored", "the lane of the address counts for the warp only", _sixteen, _on_inputs(_upper_sixteen)),
    ("split ignored", "the second access follows the first", lambda i: _two(i) and _splits(i) > 1, _on_inputs(_contiguous)),
    ("split halves exchanged", "lanes 0-15 take the second access", _two, _changed(_with_layout(_halves_exchanged))),
)  # fmt: skip


def _splits(instruction: Any) -> int:
    return len(geometry(instruction.row).splits)


# --- ld.red and spcompress


def _reduces(instruction: Any, type: str = "") -> bool:
    reduction = instruction.row.reduction
    return reduction is not None and (not type or reduction.type == type)


def _reduction(**changes: Any) -> Change:
    return lambda i: _with_facts(i, reduction=replace(i.row.reduction, **changes))


def _other_extreme(instruction: Any) -> Any:
    other = "max" if instruction.row.reduction.operation == "min" else "min"
    return _reduction(operation=other)(instruction)


def _zeros_equal(instruction: Any, inputs: Inputs) -> Array:
    """-0 counts as +0."""
    tmem = np.where(inputs["tmem"] == 0x80000000, np.uint32(0), inputs["tmem"])
    right = result_of(instruction, inputs)
    wrong = result_of(instruction, inputs | {"tmem": tmem})
    return np.concatenate([right[..., :-1], wrong[..., -1:]], axis=-1)


def _flushed(instruction: Any, inputs: Inputs) -> Array:
    """Subnormals count as zeros of their sign."""
    words = inputs["tmem"]
    tmem = np.where(words & np.uint32(0x7F800000) == 0, words & np.uint32(0x80000000), words)
    right = result_of(instruction, inputs)
    wrong = result_of(instruction, inputs | {"tmem": tmem})
    return np.concatenate([right[..., :-1], wrong[..., -1:]], axis=-1)


def _whole_row(instruction: Any, inputs: Inputs) -> Array:
    """Both halves of a row reduced together."""
    right = result_of(instruction, inputs)
    both = np.concatenate([right[:, :, :16, :-1], right[:, :, 16:, :-1]], axis=-1)
    value = instruction.row.reduction(both)[..., None]
    return np.concatenate([right[..., :-1], np.concatenate([value, value], axis=2)], axis=-1)


def _unsigned(instruction: Any) -> Any:
    kinds = {"u32": "s32", "s32": "u32", "f32": "s32"}
    return _reduction(type=kinds[instruction.row.reduction.type])(instruction)


def _other_selection(instruction: Any) -> Any:
    selection = instruction.row.selection
    swapped = selection.operation.replace("MAX", "#").replace("MIN", "MAX").replace("#", "MIN")
    return _with_facts(instruction, selection=replace(selection, operation=swapped))


def _absolute_selection(instruction: Any) -> Any:
    selection = instruction.row.selection
    operation = selection.operation[:3] if selection.operation.endswith("ABS") else selection.operation + "ABS"
    return _with_facts(instruction, selection=replace(selection, operation=operation))


def _pairs_swapped(instruction: Any, words: Array) -> Array:
    """The two values of a group in falling order of their index."""
    first = instruction.operands["mdata"].registers
    kept = words[..., first : first + instruction.operands["cdata"].registers]
    swapped = kept.reshape(*kept.shape[:-1], -1, 2)[..., ::-1].reshape(kept.shape)
    return np.concatenate([words[..., :first], swapped, words[..., first + kept.shape[-1] :]], axis=-1)


def _selects(instruction: Any) -> bool:
    return instruction.row.selection is not None


def _float_red(instruction: Any) -> bool:
    return _reduces(instruction, "f32") and not _selects(instruction)


_REDUCTIONS: tuple[tuple[str, str, Callable[[Any], bool], Callable[[Any, Inputs], Array]], ...] = (
    ("other extreme", "min is taken for max", _reduces, _changed(_other_extreme)),
    ("whole row reduced", "lanes i and i + 16 have the result of their whole row", lambda i: _reduces(i) and _two(i), _whole_row),
    ("other type", "the words are compared as another type", _reduces, _changed(_unsigned)),
    (".abs ignored or assumed", "magnitudes count where values should, or the other way round", lambda i: _reduces(i, "f32"),
     _changed(lambda i: _reduction(absolute=not i.row.reduction.absolute)(i))),
    (".NaN ignored or assumed", "a NaN loses where it should win, or the other way round", _float_red,
     _changed(lambda i: _reduction(nan=not i.row.reduction.nan)(i))),
    ("zeros equal", "-0 and +0 are the same", lambda i: _float_red(i) and not i.row.reduction.absolute, _zeros_equal),
    ("subnormals flushed", "subnormals count as zeros", _float_red, _flushed),
    ("other selection", "the two smallest stay where the largest should", _selects, _changed(_other_selection)),
    ("other magnitudes", "magnitudes select where values should, or the other way round", _selects,
     _changed(_absolute_selection)),
    ("pairs swapped", "the second of a group comes first", _selects, _on_result(_pairs_swapped)),
)  # fmt: skip


LOAD_MUTANTS: tuple[Mutant, ...] = (
    *(Mutant(*item) for item in _MOVES),
    Mutant("next warp's lanes", "a warp reads the lanes of the next one", lambda i: True, _on_inputs(_next_warp)),
    Mutant("packed halves swapped", "the first column is in the upper half", _packed, _on_result(_halves_swapped)),
    Mutant("upper halves packed", "the upper halves of the cells are packed", _packed, _on_inputs(_cells_halved)),
    *(Mutant(*item) for item in _REDUCTIONS),
)
"""Mutants of tcgen05.ld and its kin."""

STORE_MUTANTS: tuple[Mutant, ...] = (
    *(Mutant(*item) for item in _MOVES),
    Mutant(
        "unpacked halves swapped", "the upper half goes to the first column", _packed, _on_inputs(_registers_halved)
    ),
    Mutant("upper halves kept", "unpacking leaves the upper half of a cell as it was", _packed, _upper_kept),
)
"""Mutants of tcgen05.st."""


# --- cp and shift


def _side_by_side(instruction: Any, inputs: Inputs) -> Array:
    right = result_of(instruction, inputs)
    out = inputs["tmem"].copy()
    for sample, offset in enumerate(inputs["offset"]):
        lane, columns = int(offset) >> 16, slice(int(offset) & 0xFFFF, (int(offset) & 0xFFFF) + 8)
        out[sample, :, lane : lane + 4, columns] = right[sample, :, lane::32, columns]
    return out


def _offsets_swapped(instruction: Any, inputs: Inputs) -> Inputs:
    value = inputs["descriptor"]
    low, high = value >> np.uint64(16) & np.uint64(0x3FFF), value >> np.uint64(32) & np.uint64(0x3FFF)
    rest = value & ~np.uint64(0x3FFF << 16 | 0x3FFF << 32)
    return inputs | {"descriptor": rest | high << np.uint64(16) | low << np.uint64(32)}


def _unswizzled(instruction: Any, inputs: Inputs) -> Inputs:
    return inputs | {"descriptor": inputs["descriptor"] & np.uint64((1 << 61) - 1)}


def _fp4_low(instruction: Any, inputs: Inputs) -> Array:
    """fp4 in bits 3:0, as ldmatrix leaves it: undo the shift of what was copied."""
    right = result_of(instruction, inputs)
    copied = right != inputs["tmem"]
    return np.where(copied, right >> np.uint32(2) & np.uint32(0x0F0F0F0F), right)


def _as_stored(instruction: Any) -> Any:
    return _with_facts(instruction, source="b8")


def _multicast(instruction: Any, *words: str) -> bool:
    return instruction.row.tile.multicast in words


COPY_MUTANTS: tuple[Mutant, ...] = (
    Mutant("LBO and SBO swapped", "the two offsets of the descriptor change places",
           lambda i: i.row.tile.row_bytes > 16 and i.row.tile.rows > 8, _on_inputs(_offsets_swapped)),
    Mutant("swizzle ignored", "the descriptor's swizzle is taken for none",
           lambda i: i.row.tile.rows > 8, _on_inputs(_unswizzled)),
    Mutant("other pairs", "warps 0 and 1 are a pair where 0 and 2 should be, or the other way round",
           lambda i: _multicast(i, ".warpx2::02_13", ".warpx2::01_23"),
           _changed(lambda i: _with_facts(i, tile=replace(
               i.row.tile,
               multicast=".warpx2::01_23" if i.row.tile.multicast.endswith("02_13") else ".warpx2::02_13")))),
    Mutant("rows side by side", "the four rows of .4x256b go to neighbouring lanes",
           lambda i: _multicast(i, ".4x256b"), _side_by_side),
    Mutant("not decompressed", "the bytes are copied as they are",
           lambda i: i.row.source != "b8", _changed(_as_stored)),
    Mutant("fp4 in the low bits", "a decompressed fp4 code is in bits 3:0",
           lambda i: i.row.source == "b4x16_p64", _fp4_low),
)  # fmt: skip
"""Mutants of tcgen05.cp."""


def _shifted_up(instruction: Any, inputs: Inputs) -> Array:
    """Row i to row i + 1."""
    out = inputs["tmem"].copy()
    for sample, offset in enumerate(inputs["offset"]):
        lane, column = int(offset) >> 16, int(offset) & 0xFFFF
        area = inputs["tmem"][sample, :, lane : lane + 32, column : column + 8]
        out[sample, :, lane + 1 : lane + 32, column : column + 8] = area[:, :-1]
    return out


def _wrapped(instruction: Any, inputs: Inputs) -> Array:
    """The first row goes to the last."""
    out = result_of(instruction, inputs).copy()
    for sample, offset in enumerate(inputs["offset"]):
        lane, column = int(offset) >> 16, int(offset) & 0xFFFF
        out[sample, :, lane + 31, column : column + 8] = inputs["tmem"][sample, :, lane, column : column + 8]
    return out


SHIFT_MUTANTS: tuple[Mutant, ...] = (
    Mutant("the other direction", "row i goes to row i + 1", lambda i: True, _shifted_up),
    Mutant("rotated", "the first row becomes the last", lambda i: True, _wrapped),
)
"""Mutants of tcgen05.shift."""
