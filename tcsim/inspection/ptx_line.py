"""One PTX statement for each instruction, operands included, as an example of how it is written.

Registers are named as the probes of hwkernels name them; the tests compare the two. What stands beside the register
operands depends on the class of the row's `facts`; a class that is not known here has no example.
"""

from __future__ import annotations

from functools import singledispatch
from types import NoneType
from typing import Any

from tcsim.isa.matrix.semantics import MatrixRows
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.isa.wgmma.multiply import WarpgroupFacts
from tcsim.isa.wmma.tile import TileOrder
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tcsim.numbers.conversion import Form


def ptx_line(row: Row) -> str | None:
    """The statement, or None if it is not known how the row's operands are written.

    >>> row = tcsim.catalog.rows()["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    >>> print(ptx_line(row))
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1}, {%b0}, {%c0, %c1, %c2, %c3};
    """
    if isinstance(row, MultiplyRow):
        return _multiply(row)
    if row.facts is None and len(row.forms[0].operands) > len(row.operands):
        return None  # more than fragments
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


def _multiply(row: MultiplyRow) -> str:
    """The shortest form: A by descriptor, or in Tensor Memory if .ashift wants it there."""
    names = {"b": "%desc_b", "enable_input_d": "%enable"} | ({} if row.forms[0]["a"].space else {"a": "%desc_a"})
    return row.forms[0].statement(row.mnemonic, names)


@_operands.register
def _(facts: MatrixRows, row: Row) -> list[str] | None:
    """Registers from the address of each lane's row, or to it."""
    place = "[%row]" if facts.space else "[%generic]"
    (operand,) = row.operands.values()
    return [vector(operand), place] if operand.name == "d" else [place, vector(operand)]


@_operands.register
def _(facts: TileOrder, row: Row) -> list[str] | None:
    """The warp's pointer, the registers, and the stride."""
    (operand,) = row.operands.values()
    pair = [vector(operand), "[%place]"]
    return [*(pair[::-1] if operand.name == "d" else pair), "%stride"]


@_operands.register
def _(facts: Form, row: Row) -> list[str] | None:
    """Single registers; four sources are one vector."""
    names = list(facts.registers)
    operands = [f"%{name}" for name in names]
    if "f" in names:
        at = names.index("a")
        operands[at : at + 4] = ["{" + ", ".join(operands[at : at + 4]) + "}"]
    return operands
