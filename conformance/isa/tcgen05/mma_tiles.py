"""Operands of one tcgen05.mma laid out as a kernel would lay them out: shared memory, Tensor Memory, descriptors, addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.tcgen05.mma_inputs import Described
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs
from tcsim.core.errors import OperandError
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor
from tcsim.descriptors.zero_column_mask import SUB_MASKS, ZeroColumnMask
from tcsim.isa.tcgen05.lookup_table import ROW_BYTES, packed
from tcsim.memory.tmem_layout import CONTAINER_SHIFT
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.form import Form
from tcsim.numbers.formats import FORMATS, Format

Codes = npt.NDArray[Any]
_SWIZZLES = ("NONE", "32B", "64B", "128B", "128B_ATOM_32B")
_SHIFTED_ROWS = 32  # columns of B that lie beyond N, for a mask that shifts
_AREA = 16  # columns of Tensor Memory behind D for each of A, both scales and the metadata


def filled(item: Described, form: Form, numbers: str, stream: Stream, turn: int) -> Inputs:
    """One sample for hwkernels/probes/tcgen05_mma.py, without its first axis; `turn` chooses what is free."""
    row, desc = item.instruction.row, item.desc
    matrices = {name: codes[0] for name, codes in item.make(numbers, stream, 1).items()}
    d = item.instruction.layout("d", desc)
    behind = 64 if d.width <= 64 else 256
    columns = 128 if behind == 64 else 512
    lane = d.lane_bases[turn % len(d.lane_bases)] << 16
    tmem = stream.words((row.cta_group, 128, columns)).astype(np.uint32)
    out: Inputs = {"d": np.array(lane, np.uint32), "idesc": np.array(desc.encode(), np.uint32)}
    keep = 0xFFFF0000 if item.formats["c"].bits == 16 else 0
    put(tmem, d, (lane >> 16, 0), matrices["c"].astype(np.uint32), keep)
    places = {"a": behind, "scale_a": behind + _AREA, "scale_b": behind + 2 * _AREA, "metadata": behind + 3 * _AREA}
    places["lookup"] = places["metadata"]  # of a dense A
    if row.lookup:  # as in the scales' words below
        area = slice(places["lookup"], places["lookup"] + _AREA)
        tmem[..., area] = np.tile(tmem[:, :32, area], (1, 4, 1))
    if row.block:  # what else the words of the scales hold is the same in all copies, too
        area = slice(places["scale_a"], places["metadata"])
        tmem[..., area] = np.tile(tmem[:1, :32, area], (row.cta_group, 4, 1))
    for name, layout, codes in _others(item, form, matrices):
        own = lane if len(layout.lane_bases) > 1 else 0
        put(tmem, layout, (own >> 16, places[name]), codes)
        out[name] = np.array(own + places[name], np.uint32)
    parts: list[tuple[str, Codes, Format, Major]] = []
    if not form["a"].space:
        parts.append(("a", matrices["a"], item.formats["a"], "MN" if desc.transpose_a else "K"))
    if row.lookup:
        parts.append(("b", _packed(matrices["indices"], stream, turn), FORMATS["u8"], "K"))
    else:
        b = np.concatenate([matrices["b"], _beyond(item, form, matrices["b"])], axis=1).T
        parts.append(("b", np.ascontiguousarray(b), item.formats["b"], "MN" if desc.transpose_b else "K"))
    images: list[npt.NDArray[np.uint8]] = []
    start = 0
    for name, codes, format, major in parts:
        rows = len(codes) // row.cta_group
        tile = _tile(rows, codes.shape[1], format, major, start, turn + len(name), item)
        images.append(np.stack([tile.image(codes[cta * rows : (cta + 1) * rows]) for cta in range(row.cta_group)]))
        one = replace(tile.descriptor, k_half=turn % 2) if name == "b" and row.lookup else tile.descriptor
        out[name] = np.uint64(one.encode())  # type: ignore[assignment]
        padding = -images[-1].shape[1] % 1024
        images.append(stream.words((row.cta_group, padding)).astype(np.uint8))
        start += tile.bytes + padding
    out["image"], out["tmem"] = np.concatenate(images, axis=1), tmem
    if "disable_output_lane" in form:
        out["lanes"] = stream.words((4 * row.cta_group,)).astype(np.uint32)
    if "zero_column_mask" in form:
        out["mask"] = np.array(_mask(desc.m, turn).encode(), np.uint64)
    return out


def placeable(item: Described, form: Form) -> Described:
    """The same without the transposes that its operands cannot have: A in Tensor Memory, and rows that fill no tile.

    A mask may shift B: then the descriptor says how far at most.
    """
    shapes = item.instruction.shapes(item.desc)
    group = item.instruction.row.cta_group
    more = min(_SHIFTED_ROWS, item.desc.n) if "zero_column_mask" in form else 0
    fields: dict[str, Any] = {"max_shift": 16} if "zero_column_mask" in form else {}
    for name, rows, k in (("a", item.desc.m, shapes["a"][1]), ("b", item.desc.n + more, item.desc.k)):
        if getattr(item.desc, f"transpose_{name}"):
            fits = name == "b" or not form["a"].space
            try:
                _tile(rows // group, k, item.formats[name], "MN", 0, 0, item)
            except OperandError:
                fits = False
            fields[f"transpose_{name}"] = fits
    return replace(item, desc=replace(item.desc, **fields))


def put(
    tmem: npt.NDArray[np.uint32],
    layout: TmemLayout,
    base: tuple[int, int],
    codes: Codes,
    keep: int = 0,
) -> None:
    """Write a matrix (rows, columns) into (ctas, 128, columns) where a layout has it, all copies; `keep`: bits to leave."""
    cta, lane, column, slot = layout.cells
    bits = layout.element_bits
    mask = (np.uint32((1 << bits) - 1) << (slot * bits).astype(np.uint32)) & np.uint32(~keep & 0xFFFFFFFF)
    value = codes.astype(np.uint32) << (slot * bits).astype(np.uint32) & mask
    cells = (cta, lane + base[0], column + base[1])
    np.bitwise_and.at(tmem, cells, ~mask)
    np.bitwise_or.at(tmem, cells, np.broadcast_to(value, cta.shape))


def _others(item: Described, form: Form, matrices: dict[str, Codes]) -> list[tuple[str, TmemLayout, Codes]]:
    """What lies in Tensor Memory beside D: name, layout, codes (rows, columns)."""
    desc, codes = item.desc, dict(matrices)
    if form["a"].space:
        small = item.formats["a"].bits < 8 and item.instruction.layout("a", desc).element_bits == 8
        shift = CONTAINER_SHIFT.get(desc.a_format, 0) if small else 0
        codes["a"] = matrices["a"].astype(np.uint32) << np.uint32(shift)
    if "scale_b" in form:
        codes["scale_b"] = matrices["scale_b"].T
    if "metadata" in form:
        codes["metadata"] = item.instruction.sparsity(desc).groups_for(matrices["metadata"])
    names = [name for name in ("a", "scale_a", "scale_b", "metadata", "lookup") if name in form and form[name].space]
    return [(name, item.instruction.layout(name, desc), codes[name]) for name in names]


def _packed(indices: Codes, stream: Stream, turn: int) -> Codes:
    """Rows of 48 bytes: the packed indices (K, N) in the half that `turn` says, noise in the other."""
    own = packed(indices.T)
    noise = stream.words(own.shape).astype(np.uint8)
    return np.concatenate([noise, own] if turn % 2 else [own, noise], axis=1)


def _beyond(item: Described, form: Form, b: Codes) -> Codes:
    """More columns of B, which only a mask that shifts can reach."""
    return np.roll(b, 3, axis=1)[:, :_SHIFTED_ROWS] if "zero_column_mask" in form else b[:, :0]


def _tile(rows: int, k: int, format: Format, major: Major, start: int, turn: int, item: Described) -> CanonicalTile:
    """A tile with one of the swizzles that it can have."""
    step = k if k * format.bits == ROW_BYTES * 8 else 0
    for place in range(len(_SWIZZLES)):
        swizzle = _SWIZZLES[(turn + place) % len(_SWIZZLES)]
        try:
            tile = MatrixDescriptor.for_tile(
                rows, k, format, major, swizzle, start, item.instruction.arch.name, item.desc.kind, step
            )
        except OperandError:
            continue
        if (
            major == "MN" or swizzle == "NONE" or k * tile.bits // 8 <= tile.swizzle.span
        ):  # one descriptor reaches it all
            return tile
    raise OperandError(f"{item.mnemonic}: no tile of {rows} x {k} {format.name}, {major}-major")


def _mask(m: int, turn: int) -> ZeroColumnMask:
    """A mask whose runs begin differently; every fourth sample none at all."""
    runs = SUB_MASKS[m]
    starts: dict[str, int] = {}
    for i in range(runs):
        starts |= {f"start_{i}": (turn + i) % 3, f"first_{i}": (turn // 3 + i) % 2}
    return ZeroColumnMask(
        **starts, nonzero=int(turn % 4 != 3), skip_span=2 + turn % 3, use_span=3, shift=turn % 5 * 4 if turn % 2 else 0
    )
