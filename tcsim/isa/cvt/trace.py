"""One result of a conversion, element by element: the value, its two neighbours in the target, and which was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.isa.cvt.registers import Packed
from tcsim.isa.cvt.semantics import DIRECTIONS, Convert
from tcsim.numbers.conversion import Conversion, convert, numbers
from tcsim.numbers.formats import INFINITY, Format


def trace_conversion(instruction: Convert, registers: Mapping[str, int]) -> list[str]:
    """Lines of text that follow each element of one result; `registers` holds one unsigned integer per operand.

    >>> cvt = tcsim.instruction("cvt.rn.satfinite.e4m3x2.f32", arch="sm_90")
    >>> print("\\n".join(trace_conversion(cvt, {"a": 0x3F880000, "b": 0x7FC00000})))
    cvt.rn.satfinite.e4m3x2.f32 on sm_90: native, F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C
    d[15:8]: 0x3f880000 (1.0625) between 0x38 (1.0) and 0x39 (1.125), to nearest, ties to even -> 0x38 (1.0)
    d[7:0]: 0x7fc00000 (nan) -> 0x7f (nan)
    """
    row, conversion = instruction.row, instruction.lowering.conversion
    arrays = {name: np.array([value], instruction.registers[name].dtype) for name, value in registers.items()}
    d = instruction.registers["d"]
    codes = np.concatenate([instruction.registers[name].unpack(arrays[name]) for name in row.sources])
    results = d.unpack(instruction.execute(**arrays))
    scales = None
    if "scale" in arrays:
        scales = np.broadcast_to(instruction.registers["scale"].unpack(arrays["scale"]), codes.shape)
    machine = [opcode + (f" x{times}" if times > 1 else "") for opcode, times in instruction.lowering.opcodes]
    head = f"{instruction.mnemonic} on {instruction.arch.name}: {instruction.lowering.kind}"
    lines = [f"{head}, {', '.join(machine) or instruction.lowering.note}"]
    for place in range(d.elements):
        scale = None if scales is None else scales[place]
        text = _source(codes[place], conversion, scale)
        if row.random:
            text += f", random bits {_random(arrays['rbits'], row.random[place])}"
        lines.append(
            f"{_field(d, place)}: {text}{_neighbours(codes[place], conversion, scale)} -> {_show(results[place], d.format)}"
        )
    if "c" in arrays:
        lines.append(f"above them: {int(arrays['c'][0]):#x} moved up by {d.elements * d.field_bits} bits")
    return lines


def _field(register: Packed, place: int) -> str:
    low = register.field_bits * (register.elements - 1 - place)
    width = register.field_bits if register.elements > 1 else 8 * register.dtype.itemsize
    return f"{register.name}[{low + width - 1}:{low}]"


def _show(code: Any, format: Format) -> str:
    digits = -(-(format.bits + format.ignored_low_bits) // 4)
    return f"0x{int(code[0]):0{digits}x} ({_value(code, format)!r})"


def _value(code: Any, format: Format) -> float | int:
    value = float(numbers(code, format)[0])
    return value if format.kind == "float" or format.fraction_bits else int(value)


def _source(code: Any, conversion: Conversion, scale: Any) -> str:
    text = _show(code, conversion.source)
    if scale is not None:
        sign = "*" if conversion.scale == "multiply" else "/"
        text += f" {sign} 2**{int(scale[0]) - 127}" if int(scale[0]) != 0xFF else f" {sign} NaN"
    return text


def _random(words: Any, bits: tuple[int, ...]) -> str:
    return "".join(str(int(words[0]) >> bit & 1) for bit in bits)


def _neighbours(code: Any, conversion: Conversion, scale: Any) -> str:
    """The two numbers of the target that enclose a finite value, if it is neither, and the rule that chooses."""
    source, target = conversion.source, conversion.target
    if source.kind == "float" and source.fields(code).kind[0] >= INFINITY:
        return ""
    if target.kind != "float":
        return f", {DIRECTIONS[conversion.rounding]}, clamped" if source.kind == "float" else ", clamped"
    plain = replace(conversion, rounding="rz", random_bits=0, relu=False, positive_zero=False, saturate=True)
    below = convert(code, plain, scale)
    if _exact(code, below, conversion, scale):
        return ""
    magnitude = (int(below[0]) >> target.ignored_low_bits) & ((1 << target.sign_shift) - 1)
    above = below + target.dtype.type(1 << target.ignored_low_bits)
    upper = "no larger number" if magnitude == target.largest_code else _show(above, target)
    how = "by the carry out of the random bits" if conversion.random_bits else DIRECTIONS[conversion.rounding]
    return f" between {_show(below, target)} and {upper}, {how}"


def _exact(code: Any, result: Any, conversion: Conversion, scale: Any) -> bool:
    power = 0 if scale is None else int(scale[0]) - 127
    value = np.ldexp(float(_value(code, conversion.source)), power if conversion.scale == "multiply" else -power)
    return bool(value == _value(result, conversion.target))
