"""`tcsim tmem`: the lanes and columns of Tensor Memory that a matrix of tcgen05.mma takes."""

from __future__ import annotations

from typing import Annotated

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError
from tcsim.inspection.report import Facts, Report, table
from tcsim.memory.tmem_layout import a_layout, accumulator_layout
from tcsim.memory.tmem_matrix import TmemLayout

COLUMNS, FEWEST = 512, 32


def tmem(
    m: Annotated[int, typer.Option("--m", help="Rows of D; of both CTAs for --cta-group 2.")],
    n: Annotated[int, typer.Option("--n", help="Columns of D.")] = 0,
    cta_group: Annotated[int, typer.Option("--cta-group", help="1, or 2: a pair of CTAs.")] = 1,
    ws: Annotated[bool, typer.Option("--ws", help="Weight stationary.")] = False,
    sparse: Annotated[bool, typer.Option("--sparse", help="A is sparse.")] = False,
    k: Annotated[int, typer.Option("--k", help="Instead of D: A from Tensor Memory, so long along K.")] = 0,
    type: Annotated[str, typer.Option("--type", "-t", help="Format of A.")] = "f16",
    kind: Annotated[str, typer.Option("--kind", help="Kind, which fp4 needs.")] = "",
    stages: Annotated[int, typer.Option("--stages", help="How many of it are held at once.")] = 1,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say which Tensor Memory lanes and columns a tile takes, and how many columns to allocate."""
    if bool(n) == bool(k):
        raise OperandError("tmem: valid: --n for D, or --k for A from Tensor Memory")
    if k:
        layout, name = a_layout(m, k, type, cta_group, kind=kind, ws=ws, sparse=sparse), "A"
    else:
        layout, name = accumulator_layout(m, n, cta_group, ws=ws, sparse=sparse), "D"
    columns = layout.width * stages
    allocated = next((size for size in (32, 64, 128, 256, 512) if size >= columns), None)
    if stages < 1 or allocated is None:
        raise OperandError(
            f"tmem: {stages} x {layout.width} columns; valid: 1 to {COLUMNS // layout.width} of them, {COLUMNS} columns in all"
        )
    rows = _corners(layout)
    data = {
        "operand": name.lower(), "m": layout.rows, "n": layout.columns, "cta_group": cta_group, "layout": str(layout), "name": layout.name,
        "columns": layout.width, "stages": stages, "allocate": allocated,
        "copies": layout.copies, "evidence": str(layout.evidence),
    }  # fmt: skip
    facts = (
        ("layout", f"{layout.name.split(', ')[-1]}: {layout}, in elements; a lane is {65536 * layout.slots}"),
        ("columns", f"{layout.width}" + (f", {stages} times: {columns}" if stages > 1 else "")),
        ("allocate", f"{allocated} columns of {COLUMNS} (a power of two, at least {FEWEST})"),
        ("lane bases", ", ".join(map(str, layout.lane_bases))),
        ("evidence", str(layout.evidence)),
    )
    head = ("row", "column", "CTA", "lane", "column", "bits")
    title = f"{name} {layout.rows} x {layout.columns} in Tensor Memory, cta_group::{cta_group}{' .ws' * ws}{' sparse' * sparse}"
    emit(
        "tmem", lambda: data, lambda: Report(title, (Facts(facts), table(head, rows, "Some elements", right=(0, 1, 2, 3, 4)))),
        json=json, html=html,
    )  # fmt: skip


def _corners(layout: TmemLayout) -> list[tuple[int, int, int, int, int, str]]:
    """Where elements at the corners of the matrix and of its blocks lie."""
    found = []
    for row in sorted({0, 1, 16, 32, 64, layout.rows // 2, layout.rows - 1}):
        for column in sorted({0, 1, layout.columns // 2, layout.columns - 1}):
            if row < layout.rows:
                cta, lane, at, slot = layout.where(row, column)
                low = slot * layout.element_bits
                found.append((row, column, cta, lane, at, f"{low + layout.element_bits - 1}:{low}"))
    return found
