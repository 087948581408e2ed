"""One result of a special function, step by step: the segment, its coefficients, the terms in binary, and the bits that are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tcsim.arithmetic.mufu import Unit
from tcsim.isa.cvt.registers import Packed
from tcsim.isa.special.semantics import SpecialFunction
from tcsim.isa.special.steps import Choose, Codes, Mufu, Ordinary, Values
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS, Format

WIDTH = 42
"""Binary digits of a term: S is below 2**41, and one more shows its sign."""
SIGNIFICANT = 24


def trace_special(instruction: SpecialFunction, registers: Mapping[str, int]) -> list[str]:
    """Lines of text that follow each element of one result; `registers` holds one unsigned integer per operand.

    >>> ex2 = tcsim.instruction("ex2.approx.ftz.f32", arch="sm_90")
    >>> print("\\n".join(trace_special(ex2, {"a": 0x3F123456})))
    ex2.approx.ftz.f32 on sm_90: native, MUFU.EX2
    a = 0x3f123456 (0.5711110830307007)
    d = MUFU.EX2(a) = 0x3fbe2a59 (1.48566734790802)
      segment 36 of ex2: C0 49554065, C1 33543, C2 730; X = 72235, square(X) >> 19 = 9950; in units of 2**-40:
      C0 << 15             010111101000010001010010001000000000000000
      C1 * X << 2          000000001001000001101011101110000010110100
      C2 * square << 2     000000000000000001101110110101010000110000
      bias                 000000000000000000000000000101111110001000
      S                    010111110001010100101100110001010001101100
      cut to 24 bits       0101111100010101001011001|10001010001101100
    """
    d = instruction.registers["d"]
    machine = [opcode + (f" x{times}" if times > 1 else "") for opcode, times in instruction.lowering.opcodes]
    head = f"{instruction.mnemonic} on {instruction.arch.name}: {instruction.lowering.kind}"
    lines = [f"{head}, {', '.join(machine) or instruction.lowering.note}"]
    own = {name: np.array([value], instruction.registers[name].dtype) for name, value in registers.items()}
    codes = {name: instruction.registers[name].unpack(array) for name, array in own.items()}
    for place in range(d.elements):
        if d.elements > 1:
            lines.append(f"{_field(d, place)}:")
        values: Values = {name: np.ascontiguousarray(code[place]) for name, code in codes.items()}
        lines += [f"{name} = {_shown(code, d.format)}" for name, code in values.items()]
        for step in instruction.lowering.steps:
            before = dict(values)
            step.run(values, instruction.unit)
            if isinstance(step, Mufu):
                lines.append(f"{step.text} = {_shown(values[step.d], d.format)}")
                lines += [f"  {line}" for line in _datapath(step, before[step.a], instruction.unit)]
            elif isinstance(step, (Ordinary, Choose)):
                lines.append(f"{step.text}: {_shown(values[step.d], d.format)}")
            else:
                lines.append(f"{step.text}: {_shown(values['d'], d.format)}")
    return lines


def _field(register: Packed, place: int) -> str:
    low = register.field_bits * (register.elements - 1 - place)
    return f"{register.name}[{low + register.field_bits - 1}:{low}]"


def _shown(code: Codes, format: Format) -> str:
    return f"0x{int(code[0]):0{format.bits // 4}x} ({float(decode(code, format)[0])!r})"


def _datapath(step: Mufu, given: Codes, unit: Unit) -> Iterator[str]:
    """What the interpolator does with one input, or that it does not."""
    code, more = _widened(step, given)
    if code is None or not unit.interpolated(step.function, code)[0]:
        yield "not interpolated: a result of its own"
        return
    own = unit.functions[step.function]
    at = unit.argument(step.function, code)
    row, x = int(at.row[0]), int(at.x[0])
    c0, c1, c2 = (int(value) for value in unit.tables[own.table][row])
    square = int(unit.squares[x])
    yield (
        f"segment {row} of {own.table}: C0 {c0}, C1 {c1}, C2 {c2}; X = {x}, square(X) >> 19 = {square}; in units of 2**-40:"
    )
    a0, a1, a2 = own.shifts
    a1 = a1 if at.odd is None else int(at.odd[0])
    terms = [int(term[0]) for term in unit.terms(step.function, at)]
    names = (f"C0 << {a0}", f"C1 * X << {a1}", f"C2 * square << {a2}", "bias")
    for name, term in zip(names, (*terms, own.bias), strict=True):
        yield f"{name:<20} {_binary(term)}"
    total = int(unit.interpolate(step.function, at)[0])
    yield f"{'S':<20} {_binary(total)}"
    if step.function == "lg2":
        exponent = (int(code[0]) >> 23 & 0xFF) - 127
        total = (exponent << 36) + (total >> own.cut)
        yield f"exponent {exponent} put before S >> {own.cut}, in units of 2**-36: {total}" + (
            f", negative: its one's complement {~total}" if total < 0 else ""
        )
        total = ~total if total < 0 else total
    cut = own.cut + more if own.cut and step.function != "lg2" else max(total.bit_length() - SIGNIFICANT, 0)
    digits = _binary(total)
    kept = total.bit_length() - cut
    yield f"{f'cut to {kept} bits':<20} {digits[: WIDTH - cut]}|{digits[WIDTH - cut :]}"


def _widened(step: Mufu, given: Codes) -> tuple[Codes | None, int]:
    """The input as the code of an f32 that is interpolated in the same way, and how many bits more are cut."""
    if step.format == "f32":
        return given, 0
    if step.format == "f64":
        high = int(given[0]) >> 32
        exponent = high >> 20 & 0x7FF
        if exponent in (0, 0x7FF):
            return None, 3
        near = (high & 0x80000000) | ((exponent & 1) + 126 << 23) | (high & 0xFFFFF) << 3
        return np.array([near], np.uint32), 3
    value = decode(given, FORMATS[step.format])
    return np.asarray(value, np.float32).view(np.uint32), 0


def _binary(value: int) -> str:
    """Two's complement."""
    return f"{value & ((1 << WIDTH) - 1):0{WIDTH}b}"
