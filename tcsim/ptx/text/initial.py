"""The initial values of variables: lists in braces, numbers of every type, addresses, single bytes of addresses."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import shortened
from tcsim.model.statement import TYPE_BYTES, Symbol
from tcsim.ptx.text.operands import constant, number, read_operand
from tcsim.ptx.text.syntax import Initial, PtxError, Relocation, Variable

_TOKEN = re.compile(r"[{},]|[^{},]+")
_GENERIC = re.compile(r"generic\(\s*([^()]+?)\s*\)\s*(?:([+-])\s*(.+))?", re.DOTALL)
_MASKED = re.compile(r"0[xX][fF][fF]((?:00)*+)\s*\((.+)\)", re.DOTALL)
MOST_VALUES = 1 << 20
"""That are read value by value, some microseconds each."""
_SHORT = 4096  # characters of a value that is read value by value
_NOT_DECIMAL = re.compile(r"\d\s+\d|[^-\d\s,{}]", re.ASCII)
_BRACES = re.compile(r"\{[-\d,]++\}", re.ASCII)
# Octal, operators, values that are missing, or long.
_NOT_NUMBERS = re.compile(r"(?<!\d)0\d|\d-|-(?!\d)|,,|\{,|,\}|\d{19}", re.ASCII)


def initialised(variable: Variable, text: str) -> Variable:
    """A variable with the value that a text gives it; what the text leaves out is zero, and takes no memory.

    Raises PtxError for a value that does not fit the variable's shape or type.

    >>> matrix = Variable("m", "global", "u8", None, shape=(None, 2))
    >>> initialised(matrix, "{{1}, {3, 4}}").initial.runs
    ((0, b'\\x01'), (2, b'\\x03\\x04'))
    """
    if variable.space not in ("global", "const"):
        raise PtxError(f"a variable of .{variable.space} has no initial value; valid: .global, .const")
    width = variable.element_bytes
    codes = _decimal(text, variable.shape, variable.type)
    if codes is not None:
        shape = variable.shape if None not in variable.shape else (len(codes),)
        return replace(variable, count=shape[0], shape=shape, initial=Initial(((0, codes.tobytes()),)))
    values, extent = _placed(text, variable.shape)
    shape = variable.shape if None not in variable.shape else (extent, *variable.shape[1:])
    count = prod(own or 1 for own in shape)
    runs: list[tuple[int, bytearray]] = []
    addresses = []
    for index, value in values:
        if not 0 <= index < count:
            raise PtxError(f"more values than its {count} elements")
        place = index * width
        found = number(value)
        relocation = _address(value, place, width) if found is None else None
        if relocation is not None:
            addresses.append(relocation)
            continue
        code = _bytes_of(*(found.value, found.kind) if found else (constant(value), "int"), variable.type)
        if not runs or runs[-1][0] + len(runs[-1][1]) != place:
            runs.append((place, bytearray()))
        runs[-1][1].extend(code)
    initial = Initial(tuple((at, bytes(run)) for at, run in runs), tuple(addresses))
    return replace(variable, count=count, shape=shape, initial=initial)


def _decimal(text: str, shape: tuple[int | None, ...], type: str) -> npt.NDArray[Any] | None:
    """A list of decimal integers for a variable of one extent, as compilers write tables: NumPy reads millions in a second. None for any other."""
    if len(shape) != 1 or type in ("f32", "f64", "b128") or len(text) < _SHORT or _NOT_DECIMAL.search(text):
        return None
    compact = "".join(text.split())
    if not _BRACES.fullmatch(compact) or _NOT_NUMBERS.search(compact):
        return None
    values = np.fromstring(compact[1:-1], np.int64, sep=",")
    if shape[0] is not None and len(values) > shape[0]:
        return None
    return values.astype(np.uint64).astype(f"<u{TYPE_BYTES[type]}")


def _placed(text: str, shape: tuple[int | None, ...]) -> tuple[list[tuple[int, str]], int]:
    """Values with the numbers of their elements, and how many there are along the first axis.

    Braces follow the extents, or there is one pair of them around all values.
    """
    text = text.strip()
    if text.count(",") >= MOST_VALUES:
        raise PtxError(f"more than {MOST_VALUES} values that are not decimal integers")
    if not shape:
        if "{" in text or "," in text:
            raise PtxError(f"{shortened(text)} for a variable of one element")
        return [(0, text)], 1
    strides = [prod(own or 1 for own in shape[axis + 1 :]) for axis in range(len(shape))]
    flat = text.count("{") == 1
    found: list[tuple[int, str]] = []
    counts: list[int] = []
    full = closed = False  # whether a value or list stands before the next comma; whether the outer brace was closed
    for token in _TOKEN.findall(text):
        if token.isspace():
            continue
        if closed or (token != "{" and not counts):
            raise PtxError(f"{shortened(text)} is not a list of values in braces")
        if token == "{":
            if len(counts) == len(shape) or full:
                raise PtxError(f"braces that its {len(shape)} extents do not have")
            counts.append(0)
        elif token == "}":
            first = counts.pop() + full
            limit = shape[len(counts)]
            if limit is not None and first > (prod(own or 1 for own in shape) if flat else limit):
                raise PtxError(f"{first} values where {limit} are declared")
            full, closed = True, not counts
        elif token == ",":
            if not full:
                raise PtxError("a comma without a value before it")
            counts[-1] += 1
            full = False
        else:
            if full or (len(counts) != len(shape) and not flat):
                raise PtxError(f"{shortened(token.strip())} stands where a list in braces should be")
            index = counts[0] if flat else sum(own * stride for own, stride in zip(counts, strides, strict=True))
            found.append((index, token.strip()))
            full = True
    if not closed:
        raise PtxError(f"{shortened(text)} is not a list of values in braces")
    return found, max(-(-first // strides[0]) if flat else first, 1)


def _bytes_of(value: int, kind: str, type: str) -> bytes:
    width = TYPE_BYTES[type]
    floating = type in ("f32", "f64")
    if floating == (kind == "int"):
        raise PtxError(f"{'an integer' if kind == 'int' else 'a floating-point number'} for a .{type}")
    if floating:
        given = np.array(value, "<u8" if kind == "f64" else "<u4").view("<f8" if kind == "f64" else "<f4")
        with np.errstate(all="ignore"):
            return given.astype(f"<f{width}").tobytes()
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _address(text: str, place: int, width: int) -> Relocation | None:
    """An address: a symbol with an offset, in generic() or not, or one byte of it behind a mask; None for anything else."""
    shift = 0
    if masked := _MASKED.fullmatch(text):
        if width != 1 or len(masked[1]) > 14:
            raise PtxError(f"{shortened(text)}: one byte of an address for {width} bytes")
        text, shift = masked[2].strip(), 4 * len(masked[1])
    addend = 0
    if inner := _GENERIC.fullmatch(text):
        text = inner[1]
        addend = (constant(inner[3]) if inner[2] == "+" else -constant(inner[3])) if inner[2] else 0
    if not text[:1].isalpha() and text[:1] not in "_$%":
        return None
    operand = read_operand(text, lambda _: None)
    if not isinstance(operand, Symbol):
        return None
    if width not in (4, 8) and not masked:
        raise PtxError(f"an address for {width} bytes; valid: 4 or 8, or one byte of it: 0xFF({operand.name[:40]})")
    return Relocation(place, operand.name, operand.offset + addend, width, shift)
