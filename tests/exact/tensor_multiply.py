"""What tcgen05.mma does, one output at a time on Python integers and fractions: from the bytes and words that it reads.

Places are those of exact.tcgen05; arithmetic is docs/numerics.md, sections 1, 2 and 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import tcgen05 as places
from .numbers import canonical_nan, decode, encode, encode_rz_overflow_to_infinity, infinity, scaled
from .steps import integer_dot

MNEMONIC = re.compile(
    r"tcgen05\.mma(?P<ws>\.ws)?(?P<sparse>\.sp)?\.cta_group::(?P<group>[12])\.kind::(?P<kind>\w+)(?P<scaled>\.block_scale)?"
    r"(?P<lookup>\.decompress::lut::b)?"
    r"(?P<vector>\.scale_vec::\dX|\.block\d\d)?(?P<ashift>\.ashift)?(?:\.collector::\w+::\w+)*"
)
STORED = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "e3m2": 6,
    "e2m3": 6,
    "e2m1": 4,
    "u8": 8,
    "s8": 8,
    "s1z4m11": 16,
}
FLOORS = {"f32": -133, "f16": -21}


@dataclass(frozen=True)
class Memories:
    """What an instruction reads: bytes of shared memory [cta][byte], words of Tensor Memory [cta][lane][column]."""

    shared: Sequence[Sequence[int]]
    tensor: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Run:
    """One instruction: its spelling, the fields of its instruction descriptor, and its operands by name."""

    mnemonic: str
    fields: dict[str, Any]
    operands: dict[str, Any]
    memories: Memories

    @property
    def spelled(self) -> dict[str, str | None]:
        """The parts of the mnemonic."""
        match = MNEMONIC.fullmatch(self.mnemonic)
        if match is None:
            raise ValueError(f"{self.mnemonic!r} is not spelled like a tcgen05.mma that is modelled")
        return match.groupdict()

    @property
    def group(self) -> int:
        """CTAs."""
        return int(self.spelled["group"] or 1)


def _word(run: Run, address: int, place: tuple[int, ...]) -> int:
    cta, lane, column = place[:3]
    return int(run.memories.tensor[cta][(address >> 16) + lane][(address & 0xFFFF) + column])


def _shared(run: Run, cta: int, descriptor: int, row: int, k: int, name: str, transposed: bool) -> int:
    bits = STORED[name]
    padded = bits < 8 and "f8f6f4" in run.fields["kind"]
    first = places.shared_bit(descriptor, row, k, bits, transposed, padded)
    memory = run.memories.shared[cta]
    last = (first + bits - 1) // 8
    octets = sum(int(memory[byte]) << 8 * (byte - first // 8) for byte in range(first // 8, last + 1))
    return octets >> first % 8 & ((1 << bits) - 1)


def negated(code: int, name: str, negate: bool) -> int:
    """A code with its sign turned, if the descriptor says so."""
    return code ^ 1 << (STORED[name] - 1) if negate else code


def a_row(run: Run, row: int, bank: int) -> list[int]:
    """The stored codes of a row of A, for a bank of D's columns."""
    said, f = run.spelled, run.fields
    rows = f["m"] // run.group
    if said["ashift"] and row % rows != rows - 1:
        row += 1
    count = f["k"] // 2 if f["sparse"] else f["k"]
    name, codes = f["a_format"], []
    for k in range(count):
        if run.operands["a_is_descriptor"]:
            codes.append(_shared(run, row // rows, run.operands["a"], row % rows, k, name, f["transpose_a"]))
            continue
        bits = 8 if "f8f6f4" in f["kind"] else STORED[name]
        found = sorted(
            places.a_places(f["m"], run.group, bool(said["ws"]), f["sparse"], bits, row, k), key=lambda x: x[1]
        )
        place = found[bank % len(found)]
        code = _word(run, run.operands["a"], place) >> place[3] * bits & ((1 << bits) - 1)
        if bits == 8 and STORED[name] < 8:
            code = code >> (2 if STORED[name] == 4 else 0) & ((1 << STORED[name]) - 1)
        codes.append(code)
    return [negated(code, name, f["negate_a"]) for code in codes]


def met(run: Run, row: int, bank: int) -> list[int]:
    """The k of every stored element of a row of A."""
    f = run.fields
    if not f["sparse"]:
        return list(range(f["k"]))
    said, kind = run.spelled, f["kind"]
    columns: list[int] = []
    of_pairs = 4 if f["arch"] == "sm_107" else 8  # 4-bit elements: one by one on sm_107
    span = {"tf32": 2, "mxf4": of_pairs, "mxf4nvf4": of_pairs}.get(kind, 4)
    for number in range(f["k"] // span):
        selector = f["sparsity_selector"] if kind in ("f16", "tf32", "ti16") else 0
        found = sorted(
            places.metadata_places(kind, f["m"], run.group, bool(said["ws"]), selector, row, number), key=lambda x: x[1]
        )
        place = found[bank % len(found)]
        code = _word(run, run.operands["metadata"], place) >> 4 * place[3] & 15
        first, second = code & 3, code >> 2
        start = number * span
        if span == 2:
            columns.append(start + {0b0100: 0, 0b1110: 1}[code])
        elif span == 4:
            columns += [start + first, start + second]
        else:
            columns += [start + 2 * first, start + 2 * first + 1, start + 2 * second, start + 2 * second + 1]
    return columns


def zeroed(mask: int, m: int, n: int, column: int) -> bool:
    """Whether a column of B counts as zeros: from the examples of the PTX ISA, spans unrolled bit by bit."""
    if not mask >> 39 & 1:
        return False
    runs = 128 // m
    number, place = divmod(column, n // runs)
    ones, zeros = (mask >> 40 & 255) + 1, (mask >> 48 & 255) + 1
    start, value = mask >> 8 * number & 255, bool(mask >> (32 + number) & 1)
    left = (ones if value else zeros) - start
    for _ in range(place):
        left -= 1
        if left == 0:
            value = not value
            left = ones if value else zeros
    return value


def b_code(run: Run, k: int, column: int) -> int:
    """An element of B; each CTA of a pair has half of the columns."""
    f = run.fields
    mask = run.operands.get("mask", 0)
    if zeroed(mask, f["m"], f["n"], column):
        return negated(0, f["b_format"], f["negate_b"])
    columns = f["n"] // run.group
    row = column % columns + (mask >> 56 & 63)
    if run.spelled["lookup"]:
        return negated(looked_up(run, column // columns, k, row), f["b_format"], f["negate_b"])
    code = _shared(run, column // columns, run.operands["b"], row, k, f["b_format"], f["transpose_b"])
    return negated(code, f["b_format"], f["negate_b"])


def looked_up(run: Run, cta: int, k: int, row: int) -> int:
    """The number for which an index stands: rows of 128 indices of three bits, low bits first, a table for each 8 rows."""
    descriptor, memory = run.operands["b"], run.memories.shared[cta]
    first = 3 * (k + 64 * (descriptor >> 53 & 1))
    index = 0
    for place in range(3):
        byte, bit = divmod(first + place, 8)
        octet = int(memory[places.shared_bit(descriptor & ~(1 << 53), row, byte, 8, False, False) // 8])
        index |= (octet >> bit & 1) << place
    return _word(run, run.operands["lookup"], (cta, row // 8, index // 4)) >> 8 * (index % 4) & 255


def scale(run: Run, side: str, row: int, vector: int) -> int:
    """A scale factor of a row of A or a column of B."""
    f = run.fields
    rows = f["m"] if side == "a" else f["n"]
    found = places.scale_places(side, rows, f["m"], run.group, f[f"scale_{side}_id"], row, vector, f["scale_a_lanes"])
    cta, lane, column, byte = min(found)
    return _word(run, run.operands[f"scale_{side}"], (cta, lane, column)) >> 8 * byte & 255


def element(run: Run, row: int, column: int) -> tuple[tuple[int, int, int], int]:
    """(CTA, lane, column) of one element of D in Tensor Memory, and its code."""
    said, f = run.spelled, run.fields
    ws = bool(said["ws"])
    cta, lane, place = places.accumulator_place(f["m"], f["n"], run.group, ws, f["sparse"], row, column)
    d = run.operands["d"]
    at = (cta, lane + (d >> 16), place + (d & 0xFFFF))
    banks = len({places.accumulator_place(f["m"], f["n"], run.group, ws, f["sparse"], 0, n)[1] for n in range(f["n"])})
    bank = column // (f["n"] // banks)
    a = a_row(run, row, bank)
    b = [b_code(run, k, column) for k in met(run, row, bank)]
    c = _word(run, 0, at) if run.operands["enable_input_d"] else 0
    if f["d_format"] == "f16":
        c &= 0xFFFF
    if f["d_format"] == "s32":
        return at, integer_dot(a, b, c, a_format=f["a_format"], b_format=f["b_format"], saturate=f["saturate"])
    blocks: list[tuple[int, int]] = []
    if said["scaled"]:
        of = 16 if said["vector"] in (".block16", ".scale_vec::4X") else 32
        blocks = [(scale(run, "a", row, i), scale(run, "b", column, i)) for i in range(len(a) // of)]
    return at, fused(a, b, c, f, blocks, run.operands.get("scale_d", 0))


def fused(a: list[int], b: list[int], c: int, f: dict[str, Any], blocks: list[tuple[int, int]], scale_d: int) -> int:
    """The sum of the products, with their scales, and the addend times 2**-scale_d: aligned, cut, added, rounded once."""
    output, kind = f["d_format"], f["kind"]
    factors = [(decode(x, f["a_format"]), decode(y, f["b_format"])) for x, y in zip(a, b, strict=True)]
    scales = [(decode(x, f["scale_format"]), decode(y, f["scale_format"])) for x, y in blocks]
    addend = decode(c, output)
    signs = {addend.sign} if addend.kind == "infinity" else set()
    for x, y in factors:
        if "nan" in (x.kind, y.kind) or {x.kind, y.kind} == {"infinity", "zero"}:
            return canonical_nan(output)
        if "infinity" in (x.kind, y.kind):
            signs.add(x.sign ^ y.sign)
    if addend.kind == "nan" or len(signs) == 2 or any(s.kind == "nan" for pair in scales for s in pair):
        return canonical_nan(output)
    if signs:
        return infinity(signs.pop(), output)
    terms: list[tuple[int, Fraction]] = []  # exponent, exact value
    if kind in ("mxf4", "mxf4nvf4"):
        bits, floor = 35, -139
        for start in range(0, len(a), 16):
            p, q = scales[start * len(scales) // len(a)]
            run = [x.value * y.value for x, y in factors[start : start + 16]]
            if p.significand and q.significand and any(run):
                terms.append((p.exponent + q.exponent, sum(run, Fraction(0)) * p.value * q.value))
    else:
        bits, floor = 25, FLOORS[output]
        for place, (x, y) in enumerate(factors):
            exponent, value = x.exponent + y.exponent, x.value * y.value
            if scales:
                p, q = scales[place * len(scales) // len(a)]
                exponent, value = exponent + p.exponent + q.exponent, value * p.value * q.value
            if value:
                terms.append((exponent, value))
    if addend.significand:
        terms.append((addend.exponent - scale_d, addend.value / 2**scale_d))
    largest = max([floor, *(exponent for exponent, _ in terms)])
    unit = scaled(1, largest - bits)
    total = sum(int(value / unit) for _, value in terms)  # int() cuts toward zero
    exact = total * unit
    code = encode(exact, 0, "f16", "rne") if output == "f16" else encode_rz_overflow_to_infinity(exact, "f32")
    return 0 if decode(code, output).kind == "zero" else code
