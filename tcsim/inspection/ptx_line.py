"""One PTX statement for each instruction, operands included, as an example of how it is written."""

from __future__ import annotations

from tcsim.model.row import Row


def ptx_line(row: Row) -> str:
    """The statement of the plainest form, registers named after the operands.

    >>> row = tcsim.catalog.rows()["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    >>> print(ptx_line(row))
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1}, {%b0}, {%c0, %c1, %c2, %c3};
    """
    return row.forms[0].statement(row.mnemonic)
