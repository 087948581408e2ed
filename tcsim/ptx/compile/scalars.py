"""How the compiler writes scalar instructions: one call of the row's function on whole arrays."""

from __future__ import annotations

from tcsim.arithmetic import mufu
from tcsim.isa.scalar.catalog import scalar
from tcsim.isa.scalar.table import CONTAINERS, Scalar
from tcsim.isa.scalar.versions import version_of
from tcsim.model.emit import Line, machine
from tcsim.ptx.compile import contractions
from tcsim.ptx.compile.writer import Writer
from tcsim.ptx.text.syntax import Immediate, Instruction, Negated, Operand, Pair, Register


def statement(writer: Writer, item: Instruction) -> Line | None:
    """The source line of a scalar instruction; None for what is not one.

    Raises PtxError where the operands do not fit, or the module's target does not have the instruction.
    """
    first, *given = item.operands or (None,)
    found = scalar(item.opcode, len(given), isinstance(first, Pair))
    if found is None or first is None:
        return None
    writer.require(found.targets, version_of(found.mnemonic)[1])
    sources = [
        _source(writer, found, place, operand, type)
        for place, (operand, type) in enumerate(zip(given, found.sources, strict=True))
    ]
    if not any(isinstance(operand, (Register, Negated)) for operand in given):  # functions take arrays
        sources = [
            source if place in found.immediates else f"np.asarray({source})" for place, source in enumerate(sources)
        ]
    folded = found.folded if writer.index in writer.choices.folded else None
    if item.predicate is not None and found.guarded and isinstance(first, Register):
        old, compute = writer.value(first, found.results[0]), writer.constant(found.guarded)
        line = _assigned(writer, first, f"{compute}({', '.join([writer.guard, old, *sources])})", found.results[0])
        if CONTAINERS[found.results[0]].itemsize == 2:  # what the upper half of the register holds goes into it
            return machine(f"inexact.note({writer.constant(item.opcode)}, w); {line.text}")
        return line
    call = f"{writer.constant(folded or found.compute)}({', '.join([*sources, *(['T.carry'] if found.reads_carry else [])])})"
    if found.writes_carry:
        return machine(
            f"x_, c_ = {call}; copyto(T.carry, c_, where=w); {writer.put(first, 'x_', found.results[0]).text}"
        )
    if isinstance(first, Pair):
        one, two = (
            writer.put(operand, value, type).text
            for operand, value, type in zip((first.first, first.second), ("x_", "y_"), found.results, strict=True)
        )
        return Line(f"x_, y_ = {call}; {one}; {two}", found.reads_carry)
    summed = writer.choices.sums.get(writer.index)
    if summed is not None:
        return contractions.sum(writer, item, summed, sources, call, found.results[0])
    if found.inexact and writer.context.arch not in mufu.MEASURED:
        note = f"inexact.note({writer.constant(item.opcode)}, w)"
        return machine(f"{note}; {_assigned(writer, first, call, found.results[0]).text}")
    return _assigned(writer, first, call, found.results[0], found.reads_carry)


def selecting(item: Instruction) -> Scalar | None:
    """The row of a scalar instruction that takes its guard for a source: the assembler does not execute it under its guard.

    >>> [bool(selecting(Instruction(own, (Register("%r0"),) * 3, 1, 1, Register("%p0")))) for own in ("set.lt.f32.f32", "set.lt.u32.f32")]
    [True, False]
    """
    if item.predicate is None or not item.operands or not isinstance(item.operands[0], Register):
        return None
    found = scalar(item.opcode, len(item.operands) - 1)
    return found if found is not None and found.guarded is not None else None


def _source(writer: Writer, found: Scalar, place: int, operand: Operand, type: str) -> str:
    if place not in found.immediates:
        return writer.value(operand, type)
    if not isinstance(operand, Immediate):
        raise writer.error(f"source {place + 1} is an immediate")
    return writer.constant(operand.value)


def _assigned(writer: Writer, to: Operand, source: str, type: str, calls_machine: bool = False) -> Line:
    """A result into its register; a signed integer into a wider one with its sign."""
    if type[0] == "s" and isinstance(to, Register) and "x" not in type:
        own, part = CONTAINERS[writer.type_of(to)].itemsize, CONTAINERS[type].itemsize
        if own > part:
            source = f"{source}.view({writer.constant(f'i{part}')}).astype({writer.constant(f'i{own}')})"
    return writer.put(to, source, type, calls_machine)
