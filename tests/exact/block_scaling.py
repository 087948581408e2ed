"""What a block-scaled mma.sync or mma.sp computes, on Python integers and fractions; see docs/sparsity.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from .numbers import CANONICAL_NAN, Number, decode, encode_rz_overflow_to_infinity, infinity, scaled

Codes = Sequence[int]

MNEMONIC = re.compile(
    r"mma\.(?P<sparse>sp::ordered_metadata\.)?(?:sync\.)+aligned\.kind::(?P<kind>mxf8f6f4|mxf4|mxf4nvf4)\.block_scale"
    r"(?:\.scale_vec::(?P<blocks>[124])X)?\.m16n8k(?P<k>\d+)\.row\.col\.f32\.(?P<a>\w+)\.(?P<b>\w+)\.f32\.(?P<scale>\w+)"
)
DEFAULT_BLOCKS = {"mxf8f6f4": 1, "mxf4": 2}  # mxf4nvf4 has none: the spelling must name it


@dataclass(frozen=True)
class Scaled:
    """One block-scaled instruction: D = (A * scale_a) * (B * scale_b) + C; A is 16 x K, B is K x 8."""

    kind: str
    sparse: bool  # half of each row of A is kept
    k: int  # of the dense row
    blocks: int  # scales of a row of A, and of a column of B
    a: str  # the formats
    b: str
    scale: str

    @property
    def kept(self) -> int:
        """Elements of a row of A that are multiplied."""
        return self.k // 2 if self.sparse else self.k

    @property
    def stored_bits(self) -> int:
        """Bits of an element of A or B in a register: mxf8f6f4 gives each a byte, the others pack two into one."""
        return 8 if self.kind == "mxf8f6f4" else 4


@cache
def parse(mnemonic: str) -> Scaled:
    """The instruction that `mnemonic` names; ValueError if it is not spelled like one."""
    match = MNEMONIC.fullmatch(mnemonic)
    if match is None or not (match["blocks"] or match["kind"] in DEFAULT_BLOCKS):
        raise ValueError(f"{mnemonic!r} is not spelled like a block-scaled instruction")
    blocks = int(match["blocks"] or DEFAULT_BLOCKS[match["kind"]])
    return Scaled(
        match["kind"], match["sparse"] is not None, int(match["k"]), blocks, match["a"], match["b"], match["scale"]
    )


# ---- registers


def scale_place_a(row: int, block: int, byte_id: int, thread_id: int) -> tuple[int, int]:
    """(lane, byte) of the scale of a block of a row of A: of four lanes, the pair thread_id, its second lane for row + 8."""
    quad = row if row < 8 else row - 8
    return 4 * quad + (2 if thread_id else 0) + (1 if row >= 8 else 0), byte_id + block


def scale_place_b(column: int, block: int, byte_id: int, thread_id: int) -> tuple[int, int]:
    """(lane, byte) of the scale of a block of a column of B: of four lanes, lane thread_id."""
    return 4 * column + thread_id, byte_id + block


def byte_of(words: Codes, lane: int, number: int) -> int:
    """Byte `number` of a lane's word, the lowest first."""
    return words[lane] // 256**number % 256


def element_place(instruction: Scaled, operand: str, row: int, column: int) -> tuple[int, int, int]:
    """(lane, register, lowest bit) of an element: (m, k) of A as it is kept, (k, n) of B, (m, n) of C and D.

    Four lanes share a row of A (column of B), each holds 32 bits of neighbours along K, then 128 bits further the next.
    """
    if operand == "c":
        return 4 * (row % 8) + column // 2, 2 * (row // 8) + column % 2, 0
    outer, k = (row, column) if operand == "a" else (column, row)
    per_register = 32 // instruction.stored_bits
    chunk, inside = divmod(k, 4 * per_register)
    lane, slot = divmod(inside, per_register)
    register = 2 * chunk + outer // 8 if operand == "a" else chunk
    return 4 * (outer % 8) + lane, register, slot * instruction.stored_bits


def code_of(instruction: Scaled, operand: str, registers: Sequence[Codes], row: int, column: int) -> int:
    """The code of an element in registers [lane][register]; of fp6 and fp4 in a byte its bits 5:0."""
    lane, register, bit = element_place(instruction, operand, row, column)
    word = registers[lane][register] >> bit
    if operand == "c":
        return word
    name = instruction.a if operand == "a" else instruction.b
    if instruction.stored_bits == 4:
        return word & 0xF
    return word & (0x3F if name in ("e3m2", "e2m3", "e2m1") else 0xFF)


def group_of_word(words: Codes, row: int, group: int) -> int:
    """The 4 bits of metadata of a group of a row of A; 16 groups a row: of four lanes, two serve row, two serve row + 8."""
    lane = 4 * (row % 8) + row // 8 + 2 * (group // 8)
    return words[lane] >> 4 * (group % 8) & 0xF


def kept_columns(instruction: Scaled, words: Codes, row: int) -> list[int]:
    """The dense column of every kept element of a row: each 4 bits name two of four units of 8 bits."""
    width = 8 // instruction.stored_bits  # elements of a unit
    columns = []
    for group in range(instruction.k // (4 * width)):
        bits = group_of_word(words, row, group)
        for unit in (bits & 3, bits >> 2):
            columns += [4 * width * group + width * unit + place for place in range(width)]
    return columns


# ---- arithmetic


def element(mnemonic: str, a: Codes, b: Codes, c: int, scales_a: Codes, scales_b: Codes) -> int:
    """One element of D: the kept codes of a row of A, those of B that they meet, one of C, the scales of both."""
    instruction = parse(mnemonic)
    if not len(a) == len(b) == instruction.kept or not len(scales_a) == len(scales_b) == instruction.blocks:
        raise ValueError(f"{mnemonic} multiplies {instruction.kept} elements in {instruction.blocks} blocks")
    length = instruction.kept // instruction.blocks
    factors = [(decode(x, instruction.a), decode(y, instruction.b)) for x, y in zip(a, b, strict=True)]
    scales = [
        (decode(x, instruction.scale), decode(y, instruction.scale)) for x, y in zip(scales_a, scales_b, strict=True)
    ]
    addend = decode(c, "f32")
    special = _special([number for pair in scales for number in pair], factors, addend)
    if special is not None:
        return special
    if instruction.kind == "mxf8f6f4":
        terms, fraction_bits, floor = _by_product(factors, scales, length), 25, -133
    else:
        terms, fraction_bits, floor = _by_group(factors, scales, length), 35, -139
    if addend.significand:
        terms.append((addend.exponent, addend.value / scaled(1, addend.exponent)))
    e_max = max([floor, *(exponent for exponent, _ in terms)])
    total = 0
    for exponent, significand in terms:
        units = significand * scaled(1, exponent - e_max + fraction_bits)
        total += int(units)  # toward zero
    code = encode_rz_overflow_to_infinity(Fraction(total) * scaled(1, e_max - fraction_bits), "f32")
    return 0 if code << 1 & 0xFFFFFFFF == 0 else code


def _by_product(
    factors: Sequence[tuple[Number, Number]], scales: Sequence[tuple[Number, Number]], length: int
) -> list[tuple[int, Fraction]]:
    """(exponent, signed significand) of every product that is not zero: four exponents are added."""
    terms = []
    for k, (x, y) in enumerate(factors):
        if x.significand and y.significand:
            p, q = scales[k // length]
            exponent = x.exponent + y.exponent + p.exponent + q.exponent
            value = x.value * y.value * p.value * q.value
            terms.append((exponent, value / scaled(1, exponent)))
    return terms


def _by_group(
    factors: Sequence[tuple[Number, Number]], scales: Sequence[tuple[Number, Number]], length: int
) -> list[tuple[int, Fraction]]:
    """(exponent, signed significand) of every run of 16: the exact sum times the scales' significands, at their exponents."""
    terms = []
    for start in range(0, len(factors), 16):
        run = factors[start : start + 16]
        p, q = scales[start // length]
        if p.significand == 0 or q.significand == 0 or all(x.significand * y.significand == 0 for x, y in run):
            continue
        exponent = p.exponent + q.exponent
        value = sum((x.value * y.value for x, y in run), Fraction(0)) * p.value * q.value
        terms.append((exponent, value / scaled(1, exponent)))
    return terms


def _special(scales: Sequence[Number], factors: Sequence[tuple[Number, Number]], addend: Number) -> int | None:
    """The result if a NaN or an infinity takes part, else None. A NaN scale counts even where all it scales is zero."""
    signs = set()
    if addend.kind == "nan" or any(number.kind == "nan" for number in scales):
        return CANONICAL_NAN["f32"]
    for x, y in factors:
        kinds = {x.kind, y.kind}
        if "nan" in kinds or kinds == {"infinity", "zero"}:
            return CANONICAL_NAN["f32"]
        if "infinity" in kinds:
            signs.add(x.sign ^ y.sign)
    if addend.kind == "infinity":
        signs.add(addend.sign)
    if len(signs) == 2:
        return CANONICAL_NAN["f32"]
    return infinity(signs.pop(), "f32") if signs else None


# ---- a whole instruction on registers


def execute(mnemonic: str, registers: dict[str, Sequence[Codes]], words: dict[str, Codes], selectors: dict[str, int],
            places: Sequence[tuple[int, int]]) -> list[int]:  # fmt: skip
    """Some elements (m, n) of D, from registers [lane][register] of a, b and c and a word a lane of the others.

    An e2m1 in a byte is read as e2m3: an RTX PRO 6000 does so (docs/sparsity.md).
    """
    instruction = parse(mnemonic)
    if instruction.stored_bits == 8:
        mnemonic = mnemonic.replace("e2m1", "e2m3")
    results = []
    for m, n in places:
        a = [code_of(instruction, "a", registers["a"], m, k) for k in range(instruction.kept)]
        columns = kept_columns(instruction, words["metadata"], m) if instruction.sparse else range(instruction.k)
        b = [code_of(instruction, "b", registers["b"], k, n) for k in columns]
        c = code_of(instruction, "c", registers["c"], m, n)
        blocks = range(instruction.blocks)
        at_a = [scale_place_a(m, i, selectors["byte_id_a"], selectors["thread_id_a"]) for i in blocks]
        at_b = [scale_place_b(n, i, selectors["byte_id_b"], selectors["thread_id_b"]) for i in blocks]
        scales_a = [byte_of(words["scale_a"], *place) for place in at_a]
        scales_b = [byte_of(words["scale_b"], *place) for place in at_b]
        results.append(element(mnemonic, a, b, c, scales_a, scales_b))
    return results
