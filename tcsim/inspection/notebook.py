"""What notebooks show of instructions, layouts, tiles and descriptors: `_repr_html_` and `_repr_svg_` come from here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from tcsim.core.texts import markup
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor
from tcsim.diagnosis.error_map import ErrorMap
from tcsim.diagnosis.report import Diagnosis
from tcsim.explanation.report import Explanation
from tcsim.inspection import object_reports as reports
from tcsim.inspection.counters_view import counters_report
from tcsim.inspection.html_page import MOST_ELEMENTS, instruction_page, tile_page
from tcsim.inspection.product_page import has_picture, product_page
from tcsim.inspection.report import Facts, Report, table
from tcsim.inspection.report_html import report_page
from tcsim.inspection.svg import Cell, grid
from tcsim.inspection.swizzle_view import swizzle_report, swizzle_view
from tcsim.inspection.tensor_map_view import tensor_map_report
from tcsim.layouts.banks import BankConflicts
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.layouts.swizzle import Swizzle
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.instruction import Instruction
from tcsim.numbers.formats import Format
from tcsim.ptx.counters.counters import Counters
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.kernel import Kernel, Module, Run
from tcsim.tma.map import TensorMap

MOST_CELLS = 4096
"""Cells of a picture; larger layouts are shown as text."""


def frame(page: str, height: int = 620) -> str:
    """A page inside a notebook: a frame of its own, so that neither's style touches the other's.

    >>> frame('<p title="x">')[:40]
    '<iframe srcdoc="&lt;p title=&quot;x&quot'
    """
    return f'<iframe srcdoc="{markup(page)}" style="width:100%;height:{height}px;border:0"></iframe>'


def instruction_html(instruction: Instruction) -> str:
    """The picture of a product, else the page of an instruction; of one without fragments, what it rests on."""
    if has_picture(instruction):
        return frame(product_page(instruction))
    if not instruction.operands:
        facts = ("evidence", str(instruction.evidence)), ("targets", ", ".join(instruction.targets))
        return framed(Report(f"{instruction.mnemonic} on {instruction.arch.name}", (Facts(facts),)))
    return frame(instruction_page(instruction))


def tile_html(tile: CanonicalTile) -> str:
    """The page of a tile; of one too large for a page, its layout in words."""
    if tile.rows * tile.k > MOST_ELEMENTS:
        return f"<code>{markup(str(tile))}</code>"
    return frame(tile_page(tile))


def fragment_svg(layout: FragmentLayout) -> str | None:
    """Lane, register and slot of every element, a colour a lane; None for a layout of more than `MOST_CELLS`.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> fragment_svg(mma.operands["a"].layout)[:4]
    '<svg'
    """
    if layout.matrices * layout.rows * layout.columns > MOST_CELLS:
        return None
    matrix, row, column = np.indices((layout.matrices, layout.rows, layout.columns))
    lane, register, slot = layout.where(row, column, matrix)
    cells = [
        Cell(
            int(m) * layout.rows + int(r), int(c), f"{x}:{y}" + (f".{z}" if layout.slots > 1 else ""), int(x)
        )
        for m, r, c, x, y, z in zip(*(a.reshape(-1) for a in (matrix, row, column, lane, register, slot)), strict=True)
    ]  # fmt: skip
    several = layout.matrices > 1
    rows = [f"{m}: {r}" if several else str(r) for m in range(layout.matrices) for r in range(layout.rows)]
    return grid(f"{layout}: lane:register", cells, rows, [str(c) for c in range(layout.columns)])


def layout_svg(layout: Layout) -> str | None:
    """The index at every coordinate: rows are the first mode, columns the others; None beyond `MOST_CELLS`.

    >>> layout_svg(tcsim.Layout((4, 8), (8, 1)))[:4]
    '<svg'
    """
    if layout.size > MOST_CELLS:
        return None
    shape = layout.shape
    first = shape[0] if isinstance(shape, tuple) and len(shape) > 1 else layout.size
    rows = int(np.prod(np.array(_flat(first))))
    cells = [Cell(i % rows, i // rows, str(int(layout(i))), i // rows) for i in range(layout.size)]
    return grid(str(layout), cells, [str(r) for r in range(rows)], [str(c) for c in range(layout.size // rows)])


def _flat(shape: Any) -> list[int]:
    return [shape] if isinstance(shape, int) else [x for item in shape for x in _flat(item)]


def framed(report: Report) -> str:
    """The page of a report, in a frame that it makes as high as itself."""
    return frame(report_page(report), 420)


def swizzle_html(swizzle: Swizzle) -> str:
    """Where a swizzle puts 16-byte chunks, and their banks."""
    return framed(swizzle_report(swizzle_view(f"{swizzle.bits},{swizzle.base},{swizzle.shift}")))


def idesc_html(descriptor: InstructionDescriptor) -> str:
    """The fields of an instruction descriptor."""
    title = f"{descriptor.encode():#010x}: kind::{descriptor.kind} on {descriptor.arch}, K = {descriptor.k}"
    return framed(Report(title, (table(("bits", "field", "value", "meaning"), descriptor.rows()),)))


def tensor_map_html(tensor_map: TensorMap) -> str:
    """The fields of a tensor map."""
    return framed(
        tensor_map_report(tensor_map, {own.name: getattr(tensor_map, own.name) for own in fields(tensor_map)})
    )


def tmem_html(layout: TmemLayout) -> str:
    """The shape of a matrix in Tensor Memory, and its CuTe layout."""
    facts = (
        ("matrix", f"{layout.rows} x {layout.columns}, {layout.element_bits} bits each"), ("columns", str(layout.width)),
        ("CTAs", str(layout.ctas)), ("layout", str(layout)), ("evidence", str(layout.evidence)),
    )  # fmt: skip
    return framed(Report(layout.name, (Facts(facts),)))


_REPORTS: dict[type, Callable[[Any], Report]] = {
    BankConflicts: reports.conflicts_report,
    Counters: counters_report,
    Diagnosis: reports.named_diagnosis,
    ErrorMap: reports.errors_report,
    Explanation: reports.explanation_report,
    Format: reports.format_report,
    Hazard: reports.hazard_report,
    Kernel: reports.kernel_report,
    MBarrier: reports.barrier_report,
    MatrixDescriptor: reports.descriptor_report,
    Module: reports.module_report,
    Run: reports.run_report,
    TensorMemory: reports.tensor_memory_report,
}


def _reported(report: Callable[[Any], Report]) -> Callable[[Any], str | None]:
    """The renderer of a type that a report is made of."""
    return lambda item: framed(report(item))


_PAGES: dict[type, Callable[[Any], str | None]] = {
    Instruction: instruction_html,
    CanonicalTile: tile_html,
    FragmentLayout: fragment_svg,
    Layout: layout_svg,
    Swizzle: swizzle_html,
    InstructionDescriptor: idesc_html,
    TensorMap: tensor_map_html,
    TmemLayout: tmem_html,
}
RENDERERS = _PAGES | {kind: _reported(report) for kind, report in _REPORTS.items()}
"""Who shows objects of a type (`tcsim.core.display`)."""
