"""The accesses of a warp that wmma.load and wmma.store become, lane by lane (`tcsim.isa.wmma.accesses` says which machine instructions)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tcsim.isa.wmma.accesses import LDSM_BYTES
from tcsim.layouts.banks import INACTIVE, WARP_LANES
from tcsim.layouts.coalescing import Rows

_SIDE = 8  # of the matrices that LDSM and MOVM move


def tile_rows(model: Any, lines: Rows) -> Iterator[Rows]:
    """The addresses of each machine instruction, (warps, 32), of a tile whose lines begin at addresses (warps, lines)."""
    if model.accesses.by_ldsm:
        yield from _by_ldsm(lines, model.line_bytes)
        return
    size, layout = model.accesses.size, model.operand.layout
    place = layout.flat_element.reshape(WARP_LANES, -1)
    line, along = np.divmod(place, layout.columns)
    if not model.row_major:
        line, along = along, line
    step = max(1, 8 * size // layout.element_bits)
    moved = any(name.startswith("MOVM") for name, _ in model.accesses.opcodes)
    lanes = np.arange(WARP_LANES)
    for value in range(0, step * model.accesses.opcodes[0][1], step):  # copies of what a lane has are not loaded again
        own, first = line[:, value], along[:, value]
        if moved:  # each lane loads a part of a line; MOVM transposes
            own, first = own.min() + lanes // 4, first.min() + lanes % 4 * 2
        yield lines[:, own] + first * layout.element_bits // 8


def _by_ldsm(lines: Rows, line_bytes: int) -> Iterator[Rows]:
    """Four matrices of eight lines at a time."""
    chunks = np.arange(0, line_bytes, LDSM_BYTES)
    each = (lines.reshape(len(lines), -1, _SIDE)[:, :, None] + chunks[:, None]).reshape(len(lines), -1, _SIDE)
    for start in range(0, each.shape[1], WARP_LANES // _SIDE):
        own = each[:, start : start + WARP_LANES // _SIDE].reshape(len(lines), -1)
        yield np.pad(own, ((0, 0), (0, WARP_LANES - own.shape[1])), constant_values=INACTIVE)
