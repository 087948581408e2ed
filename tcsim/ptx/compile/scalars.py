"""How the compiler writes scalar instructions: one call of the row's function on whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.isa.scalar.versions import version_of
from tcsim.ptx.compile import contractions
from tcsim.ptx.compile.emit import Emitter
from tcsim.ptx.compile.exactness import unmeasured
from tcsim.ptx.text.syntax import Immediate, Instruction, Negated, Operand, Pair, Register

UFUNCS: dict[Any, str] = {
    np.add: "add",
    np.subtract: "subtract",
    np.bitwise_and: "bitwise_and",
    np.bitwise_or: "bitwise_or",
    np.bitwise_xor: "bitwise_xor",
}
"""Functions that can write into a register at once, by their names in generated source."""


def statement(compiler: Emitter, item: Instruction) -> str | None:
    """The source line of a scalar instruction; None for what is not one.

    Raises PtxError where the operands do not fit, or the module's target does not have the instruction.
    """
    first, *given = item.operands or (None,)
    found = scalar(item.opcode, len(given), isinstance(first, Pair))
    if found is None or first is None:
        return None
    compiler.require(found.targets, version_of(found.mnemonic)[1])
    sources = [
        _source(compiler, found, place, operand, type)
        for place, (operand, type) in enumerate(zip(given, found.sources, strict=True))
    ]
    name = UFUNCS.get(found.compute)
    if name and isinstance(first, Register) and CONTAINERS[compiler.type_of(first)] == CONTAINERS[found.results[0]]:
        return f"{name}({', '.join(sources)}, out={compiler.register(first)}, where=w)"
    if not any(isinstance(operand, (Register, Negated)) for operand in given):  # functions take arrays
        sources = [
            source if place in found.immediates else f"np.asarray({source})" for place, source in enumerate(sources)
        ]
    own = compiler.function.body[compiler.index] is item  # else one that another is made of
    folded = found.folded if own and compiler.index in compiler.choices.folded else None
    call = f"{compiler.constant(folded or found.compute)}({', '.join([*sources, *(['T.carry'] if found.reads_carry else [])])})"
    if found.writes_carry:
        return f"x_, c_ = {call}; copyto(T.carry, c_, where=w); {compiler.put(first, 'x_', found.results[0])}"
    if isinstance(first, Pair):
        one, two = (
            compiler.put(operand, value, type)
            for operand, value, type in zip((first.first, first.second), ("x_", "y_"), found.results, strict=True)
        )
        return f"x_, y_ = {call}; {one}; {two}"
    summed = compiler.choices.sums.get(compiler.index) if own else None
    if summed is not None:
        return contractions.sum(compiler, item, summed, sources, call, found.results[0])
    note = f"inexact.note({compiler.constant(item.opcode)}, w); " if unmeasured(found, compiler.context.arch) else ""
    return note + _assigned(compiler, first, call, found.results[0])


def _source(compiler: Emitter, found: Scalar, place: int, operand: Operand, type: str) -> str:
    if place not in found.immediates:
        return compiler.value(operand, type)
    if not isinstance(operand, Immediate):
        raise compiler.error(f"source {place + 1} is an immediate")
    return compiler.constant(operand.value)


def _assigned(compiler: Emitter, to: Operand, source: str, type: str) -> str:
    """A result into its register; a signed integer into a wider one with its sign."""
    if type[0] == "s" and isinstance(to, Register) and "x" not in type:
        own, part = CONTAINERS[compiler.type_of(to)].itemsize, CONTAINERS[type].itemsize
        if own > part:
            source = f"{source}.view({compiler.constant(f'i{part}')}).astype({compiler.constant(f'i{own}')})"
    return compiler.put(to, source, type)
