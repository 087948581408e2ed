"""What a page of a product shows beside A, B and D: metadata of a sparse A, and the scale factors of blocks, and where each of them lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.isa.tcgen05.multiply_operands import Described
from tcsim.layouts.sparsity import Sparsity
from tcsim.memory.tmem_matrix import TmemLayout


def sum_of(places: npt.NDArray[Any]) -> dict[str, Any]:
    """Places (rows, columns) as what the row and the column add; whole, if they are no such sum."""
    row, column = places[:, 0], places[0] - places[0, 0]
    if (row[:, None] + column == places).all():
        return {"row": row.tolist(), "column": column.tolist()}
    return {"all": places.reshape(-1).tolist()}


def cells(layout: TmemLayout, turned: bool = False) -> dict[str, Any]:
    """A matrix in Tensor Memory; `turned`: drawn with its rows as columns."""
    row, column = np.indices((layout.rows, layout.columns))
    cta, lane, at, slot = layout.where(row, column)
    low = slot * layout.element_bits
    if turned:
        lane, at, cta, low = lane.T, at.T, cta.T, low.T
    return {
        "kind": "tmem", "at": sum_of(lane * 65536 + at), "cta": sum_of(cta), "low": sum_of(low), "bits": layout.element_bits,
        "width": layout.width, "name": layout.name, "ctas": layout.ctas,
    }  # fmt: skip


def _in_lanes(byte_or_nibble: npt.NDArray[Any], bits: int, lanes: int) -> dict[str, Any]:
    """Fields of one register of each lane: (lane * fields + field)."""
    fields = 32 // bits
    return {
        "kind": "registers", "at": sum_of(byte_or_nibble), "values": fields, "lanes": lanes, "slots": fields, "bits": bits,
        "shift": 0, "width": bits, "only": True,
    }  # fmt: skip


def _part(name: str, of: str, span: int, format: str, shape: tuple[int, ...], home: dict[str, Any]) -> dict[str, Any]:
    """A board below the product: each of its elements is about `span` elements along K of a row of A or column of B."""
    return {
        "name": name, "of": of, "span": span, "format": format, "rows": shape[0], "columns": shape[1], "homes": [home],
    }  # fmt: skip


def sparse_parts(instruction: Any) -> dict[str, Any]:
    """Metadata: an example, the k that each kept element of A has with it, and the lane and bits of each group; nothing of a dense A."""
    own = getattr(instruction.row, "sparsity", None)
    if own is None:
        return {}
    selector = own.selectors[0]
    lane, bit = own.places(selector)
    part = _part("metadata", "a", own.group, "4-bit groups", lane.shape, _in_lanes(lane * 8 + bit // 4, 4, own.lanes))
    others = ", ".join(map(str, own.selectors))
    return _example(own) | {"extras": [part | {"note": f"selector {selector} of {others}"}]}


def _example(own: Sparsity) -> dict[str, Any]:
    """An example of metadata in which every pair of increasing indices occurs, and the k of each kept element of A."""
    row, group = np.indices((own.rows, own.groups))
    increasing = [pair for pair in own.valid if pair & 3 < pair >> 2]
    groups = np.array(increasing, np.uint8)[(row + group) % len(increasing)]
    return {"kept": own.columns(own.positions_of(groups)).tolist(), "groups": groups.tolist()}


def metadata_cells(plan: Described) -> dict[str, Any]:
    """Metadata of tcgen05.mma.sp in Tensor Memory: an example, the k that each kept element of A has with it, and the cell of each group."""
    own, layout = plan.instruction.sparsity(plan.desc), plan.layout("metadata")
    shape = (layout.rows, layout.columns)
    part = _part("metadata", "a", plan.desc.k // layout.columns, "4-bit groups", shape, cells(layout))
    return _example(own) | {"extras": [part | {"note": f"selector {plan.desc.sparsity_selector}{_copies(layout)}"}]}


def scale_parts(instruction: Any) -> dict[str, Any]:
    """Scale factors in registers: the lane and byte of each, with byte id and thread id 0; nothing where there are none."""
    scales = getattr(instruction, "scales", {})
    if not scales:
        return {}
    found = []
    for side in "ab":
        operand = scales[f"scale_{side}"]
        layout = operand.layout
        ids = ", ".join(map(str, layout.byte_ids)), ", ".join(map(str, layout.thread_ids))
        home = _in_lanes(layout.places(), 8, 32)
        shape = (layout.rows, layout.columns)
        part = _part(operand.name, side, instruction.block, operand.format.name, shape, home)
        found.append(part | {"note": f"byte id 0 of {ids[0]}; thread id 0 of {ids[1]}"})
    return {"extras": found}


def scale_cells(plan: Described) -> list[dict[str, Any]]:
    """Scale factors of tcgen05.mma in Tensor Memory."""
    found = []
    for side in "ab":
        layout = plan.layout(f"scale_{side}")
        home = cells(layout, side == "b")
        shape = (layout.rows, layout.columns) if side == "a" else (layout.columns, layout.rows)
        part = _part(f"scale_{side}", side, plan.desc.k // layout.columns, plan.formats["scale"].name, shape, home)
        found.append(part | {"note": _copies(layout).removeprefix("; ")})
    return found


def _copies(layout: TmemLayout) -> str:
    return f"; the first of {layout.copies} copies" if layout.copies > 1 else ""
