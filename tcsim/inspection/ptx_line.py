"""One PTX statement for each instruction, operands included, as an example of how it is written.

Registers are named as the probes of hwkernels name them; the tests compare the two. What stands beside the register
operands depends on the class of the row's `facts`; a class that is not known here has no example.
"""

from __future__ import annotations

from functools import singledispatch
from types import NoneType
from typing import Any

from tcsim.isa.cvt.rows import CvtRow
from tcsim.isa.matrix.rows import MatrixRow
from tcsim.isa.tcgen05.mma_form import MultiplyForm
from tcsim.isa.wgmma.multiply import WarpgroupFacts
from tcsim.isa.wmma.tile import TileOrder
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.operand import Fragment
from tcsim.model.row import Row


def ptx_line(row: Row) -> str | None:
    """The statement, or None if it is not known how the row's operands are written.

    >>> row = tcsim.catalog.rows()["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    >>> print(ptx_line(row))
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1}, {%b0}, {%c0, %c1, %c2, %c3};
    """
    if isinstance(row, MatrixRow) and "address" in row.forms[0]:
        generic = row.forms[0]["address"].space == "generic"
        return row.forms[0].statement(row.mnemonic, {"address": "%generic" if generic else "%row"})
    if isinstance(row, CvtRow):
        return row.forms[0].statement(row.mnemonic)
    operands = _operands(row.facts, row)
    return None if operands is None else f"{row.mnemonic} {', '.join(operands)};"


def vector(operand: Fragment) -> str:
    """The registers of an operand in braces."""
    return "{" + ", ".join(f"%{operand.name}{i}" for i in range(operand.count)) + "}"


@singledispatch
def _operands(facts: Any, row: Row) -> list[str] | None:
    return None


@_operands.register(NoneType)
@_operands.register(str)
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
def _(facts: Sparsity, row: Row) -> list[str] | None:
    """a, b, c, the metadata of each lane, and the selector, an immediate."""
    return [*(vector(row.operands[name]) for name in _d_first(row)), "%metadata0", str(facts.selectors[0])]


@_operands.register
def _(facts: WarpgroupFacts, row: Row) -> list[str] | None:
    """Both multiplicands by descriptor; of a sparse A metadata and selector; scale-d, the signs of a and b, their majors."""
    metadata = [] if facts.sparsity is None else ["%metadata0", str(facts.sparsity.selectors[0])]
    immediates = ["1"] * 2 * facts.signs + ["0"] * 2 * facts.majors
    return [vector(row.operands["d"]), "%descriptor_a", "%descriptor_b", *metadata, "%scale", *immediates]


@_operands.register
def _(facts: MultiplyForm, row: Row) -> list[str] | None:
    """The shortest form: A by descriptor, or in Tensor Memory if .ashift wants it there."""
    places = {form.a for form in facts.forms}
    parts = ["[%d]", "%desc_a" if "desc" in places else "[%a]", "%desc_b"]
    parts += ["[%metadata]"] * facts.sparse + ["[%lookup]"] * facts.lookup + ["%idesc"]
    return [*parts, *["[%scale_a]", "[%scale_b]"] * facts.kind.block_scaled, "%enable"]


@_operands.register
def _(facts: TileOrder, row: Row) -> list[str] | None:
    """The warp's pointer, the registers, and the stride."""
    (operand,) = row.operands.values()
    pair = [vector(operand), "[%place]"]
    return [*(pair[::-1] if operand.name == "d" else pair), "%stride"]
