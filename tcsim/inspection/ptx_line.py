"""One PTX statement for each instruction, operands included, as an example of how it is written.

Registers are named as the probes of hwkernels name them; the tests compare the two. What stands beside the register
operands depends on the class of the row's `facts`; a class that is not known here has no example.
"""

from __future__ import annotations

from functools import singledispatch
from types import NoneType
from typing import Any

from tcsim.isa.matrix.semantics import MatrixRows
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.isa.tcgen05.mma_form import MultiplyForm
from tcsim.isa.wmma.fragments import TileRow
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tcsim.numbers.conversion import Form

_PROBE_NAMES: dict[str, str | tuple[str, ...]] = {
    "metadata": "%metadata0", "scale_d": "%scale", "address": "%place", "scale_a": "%scale_a0", "scale_b": "%scale_b0",
    "ids_a": ("%half0", "%half1"), "ids_b": ("%half2", "%half3"),
}  # fmt: skip
"""How the probes name registers of operands, where they do not name them after the operand."""


def ptx_line(row: Row) -> str | None:
    """The statement, or None if it is not known how the row's operands are written.

    >>> row = tcsim.catalog.rows()["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    >>> print(ptx_line(row))
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1}, {%b0}, {%c0, %c1, %c2, %c3};
    """
    if isinstance(row, SparseRow | TileRow):
        form = row.forms[0]
        given = {name: own for name, own in _PROBE_NAMES.items() if name in form and form[name].kind != "immediate"}
        given |= {
            item.name: f"%descriptor_{item.name}"
            for item in form.operands
            if item.type == ".b64" and item.proxy == "async"
        }
        return form.statement(row.mnemonic, given)
    operands = _operands(row.facts, row)
    return None if operands is None else f"{row.mnemonic} {', '.join(operands)};"


def vector(operand: Fragment) -> str:
    """The registers of an operand in braces."""
    return "{" + ", ".join(f"%{operand.name}{i}" for i in range(operand.count)) + "}"


@singledispatch
def _operands(facts: Any, row: Row) -> list[str] | None:
    return None


@_operands.register(NoneType)
def _(facts: Any, row: Row) -> list[str] | None:
    """Registers only."""
    if "d" not in row.operands:
        return None
    movable = len(row.operands) == 2 and all(operand.count == 1 for operand in row.operands.values())
    if movable:  # one register from and to: no vectors
        return [f"%{name}0" for name in _d_first(row)]
    return [vector(row.operands[name]) for name in _d_first(row)]


def _d_first(row: Row) -> list[str]:
    return [*(name for name in ("d",) if name in row.operands), *(name for name in row.operands if name != "d")]


@_operands.register
def _(facts: MultiplyForm, row: Row) -> list[str] | None:
    """The shortest form: A by descriptor, or in Tensor Memory if .ashift wants it there."""
    places = {form.a for form in facts.forms}
    parts = ["[%d]", "%desc_a" if "desc" in places else "[%a]", "%desc_b"]
    parts += ["[%metadata]"] * facts.sparse + ["[%lookup]"] * facts.lookup + ["%idesc"]
    return [*parts, *["[%scale_a]", "[%scale_b]"] * facts.kind.block_scaled, "%enable"]


@_operands.register
def _(facts: MatrixRows, row: Row) -> list[str] | None:
    """Registers from the address of each lane's row, or to it."""
    place = "[%row]" if facts.space else "[%generic]"
    (operand,) = row.operands.values()
    return [vector(operand), place] if operand.name == "d" else [place, vector(operand)]


@_operands.register
def _(facts: Form, row: Row) -> list[str] | None:
    """Single registers; four sources are one vector."""
    names = list(facts.registers)
    operands = [f"%{name}" for name in names]
    if "f" in names:
        at = names.index("a")
        operands[at : at + 4] = ["{" + ", ".join(operands[at : at + 4]) + "}"]
    return operands
