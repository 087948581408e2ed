"""Mistakes about the arithmetic: another element type, another accumulator, another generation's rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.catalog import instruction as find_instruction
from tcsim.catalog import on_arch
from tcsim.core.errors import TcsimError
from tcsim.core.targets import ARCHS
from tcsim.descriptors.kinds import KINDS
from tcsim.diagnosis.problem import Attempt, Codes, Finish, Part, Problem
from tcsim.model.row import Row
from tcsim.multiplication import Machine, machine_of
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.rounding import RoundingName

OTHER_ARCH = "rounding of another arch"


def attempts(problem: Problem) -> Iterator[Attempt]:
    """Other instructions that take the same registers, the same on other archs, and work that no tensor core does."""
    multiply = problem.machine.instruction
    yield from _descriptors(problem)
    for row in _kin(problem):
        said = f"look at the element types and modifiers of the instruction that was emitted{_reads(problem, row)}"
        run = partial(_replaced, problem, row.mnemonic, multiply.arch.name)
        yield Attempt("another instruction", row.mnemonic, said, run)
    for arch in ARCHS:
        if arch != multiply.arch.name:
            said = "the result is another generation's: look at the arch that was asked for"
            yield Attempt(OTHER_ARCH, arch, said, partial(_other_arch, problem, arch))
    if problem.machine.formats["d"].name == problem.machine.formats["c"].name == "f32":
        for mnemonic, machine in _half_accumulators(problem):
            yield Attempt(
                "accumulator in f16",
                f"{mnemonic}, and its result widened",
                "look at the types of C and D of the instruction that was emitted, or for an accumulator that is kept as f16 between instructions",
                partial(_widened, problem, machine),
            )


def _kin(problem: Problem) -> Iterator[Row]:
    """Instructions of the family and arch whose operands take the same registers."""
    row = problem.machine.instruction.row
    if not row.operands:
        return  # tcgen05.mma: the instruction descriptor says what it is
    for other in on_arch(problem.machine.instruction.arch.name, row.family):
        if other is not row and other.shape == row.shape and _places(other) == _places(row):
            yield other


def _reads(problem: Problem, row: Row) -> str:
    """Which operands an instruction takes for other numbers than they are."""
    read = {item.name: item.format.name for item in row.forms[0].operands if item.format is not None}
    held = {name: problem.machine.formats[name].name for name in "ab"}
    other = [name for name in "ab" if read.get(name, held[name]) != held[name]]
    found = " and ".join(f"operand {name} as {read[name]}, not {held[name]}" for name in other)
    if len(other) == 2 and (read["a"], read["b"]) == (held["b"], held["a"]):
        found += ": the formats of a and b are exchanged"
    return f": it reads {found}" if found else ""


def _places(row: Row) -> dict[str, tuple[int, str]]:
    return {name: (item.layout.element_bits, str(item.layout)) for name, item in row.operands.items()}


def _half_accumulators(problem: Problem) -> Iterator[tuple[str, Machine]]:
    """The instructions of the same A and B whose C and D are f16."""
    own = problem.machine
    if own.descriptor is not None:
        with suppress(TcsimError):
            descriptor = replace(own.descriptor, d_format="f16")
            yield "D in f16 in the descriptor", machine_of(own.instruction, "tcsim.diagnose", descriptor)
        return
    for row in on_arch(own.instruction.arch.name, own.instruction.row.family):
        if row.shape != own.instruction.row.shape or row.operands["d"].format.name != "f16":
            continue
        if row.operands["a"].format == own.formats["a"]:
            other = machine_of(find_instruction(row.mnemonic, arch=own.instruction.arch.name), "tcsim.diagnose")
            same = (other.kept, other.blocks, other.formats["b"]) == (own.kept, own.blocks, own.formats["b"])
            if same and other.formats["c"].name == "f16":
                yield row.mnemonic, other


def _widened(problem: Problem, other: Machine) -> Problem:
    """On a machine of f16 accumulators; its results as f32."""
    c = encode(decode(problem.c, "f32"), "f16")
    machine = replace(other, formats={**other.formats, "d": problem.machine.formats["d"]})
    return replace(problem, machine=machine, c=c, finish=partial(_as_f32, problem.finish))


def _as_f32(finish: Finish | None, problem: Problem, part: Part, codes: Codes) -> Codes:
    wide = encode(decode(codes.astype(np.uint16), "f16"), "f32")
    return wide if finish is None else finish(problem, part, wide)


def _replaced(problem: Problem, mnemonic: str, arch: str) -> Problem | None:
    own = problem.machine
    try:
        other = machine_of(find_instruction(mnemonic, arch=arch), "tcsim.diagnose", own.descriptor)
    except TcsimError:
        return None
    return _on(problem, other)


def _on(problem: Problem, other: Machine) -> Problem | None:
    """The same codes on another machine; None if it computes the same, or does not take them."""
    own = problem.machine
    if (other.shape, other.kept, other.blocks) != (own.shape, own.kept, own.blocks):
        return None
    if any(other.formats[name].dtype != format.dtype for name, format in own.formats.items()):
        return None
    if other.lowering == own.lowering and other.formats == own.formats:
        return None
    a, b, c = (getattr(problem, name) & other.formats[name].dtype.type(_mask(other, name)) for name in "abc")
    return replace(problem, machine=other, a=a, b=b, c=c)


def _mask(other: Machine, name: str) -> int:
    format = other.formats[name]
    return (1 << (format.bits + format.ignored_low_bits)) - 1


def _descriptors(problem: Problem) -> Iterator[Attempt]:
    """Other element formats in tcgen05.mma's instruction descriptor."""
    own = problem.machine.descriptor
    if own is None:
        return
    advice = "look at the formats in the instruction descriptor that was sent"
    names = list(KINDS[own.kind].ab_formats)
    for a in names:
        for b in names:
            if (a, b) != (own.a_format, own.b_format):
                yield Attempt("another descriptor", f"A {a}, B {b}", advice, partial(_redescribed, problem, a, b))


def _redescribed(problem: Problem, a: str, b: str) -> Problem | None:
    machine = problem.machine
    if machine.descriptor is None:
        return None
    try:
        other = replace(machine.descriptor, a_format=a, b_format=b)
        return _on(problem, machine_of(machine.instruction, "tcsim.diagnose", other))
    except TcsimError:
        return None


def _other_arch(problem: Problem, arch: str) -> Problem | None:
    return _replaced(problem, problem.machine.instruction.mnemonic, arch)


def narrowed(codes: Codes, name: str, rounding: RoundingName = "rne") -> Codes:
    """f32 or f64 codes after a round trip through a narrower format."""
    wide = "f64" if codes.dtype.itemsize == 8 else "f32"
    return encode(decode(encode(decode(codes, wide), name, rounding), name).astype(np.float64), wide)
