"""What wmma.load, wmma.store and wmma.mma do, one lane, field and result at a time.

A warp's registers are 32 lists of 32-bit integers, memory is one integer whose bit i is bit i % 8 of byte i // 8, matrices
are lists of rows of codes. Which element a field holds is written as the PTX manual writes it for mma, with groupID and
threadID_in_group; what a product is, as a chain of the mma.sync instructions of exact.machine. Nothing here is fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from . import machine
from .steps import convert

Place = tuple[int, int]  # row and column of an operand as it is written: A is M x K, B is K x N, C and D are M x N
Registers = list[list[int]]
Matrix = Sequence[Sequence[int]]

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip


# ---- which element a field holds


def register_words(letter: str, shape: str, type: str) -> int:
    """32-bit registers of a lane: f16 A and B always take 8; the rest what their elements need."""
    if type == "f16" and letter in "ab":
        return 8
    rows, columns = size(letter, shape)
    return rows * columns * BITS[type] // (32 * 32)


def size(letter: str, shape: str) -> Place:
    """Rows and columns of an operand."""
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    return {"a": (m, k), "b": (k, n)}.get(letter, (m, n))


def place(letter: str, shape: str, type: str, order: str, sm: int, lane: int, i: int) -> Place:
    """Row and column of field i of a lane: of operand a, b, c or d, whose tile in memory is `row` or `col`."""
    if sm < 75 and shape.endswith("k16") and type in ("f16", "f32"):
        return volta_place(letter, shape, type, order, lane, i)
    group, thread = lane >> 2, lane % 4
    if letter in "cd":
        return accumulator_place(shape, type, sm, group, thread, i)
    # along k: the element inside a register, then threads, then (16-bit: 8 further on, tf32: 4) another register
    per_register = max(1, 32 // BITS[type])
    register, slot = divmod(i, per_register)
    k = thread * per_register + slot
    if type in ("f64", "s4", "u4", "b1"):
        outer = group
    elif type in ("s8", "u8"):
        outer = group + 8 * register
    elif type == "tf32":
        first, second = register % 2, register // 2
        outer, k = (group + 8 * first, k + 4 * second) if letter == "a" else (group + 8 * second, k + 4 * first)
    else:
        extent = size("a", shape)[0] if letter == "a" else size("b", shape)[1]
        low, middle, high = register % 2, register // 2 % 2, register // 4
        if extent == 8:
            outer, k = group, k + 8 * low
        elif extent == 32:  # the sixteen-row operand of two products
            outer, k = group + 8 * low + 16 * high, k + 8 * middle
        else:  # 16 by 16: A steps first down its rows, B first down k
            outer, k = (group + 8 * low, k + 8 * middle) if letter == "a" else (group + 8 * middle, k + 8 * low)
    return (outer, k) if letter == "a" else (k, outer)


def accumulator_place(shape: str, type: str, sm: int, group: int, thread: int, i: int) -> Place:
    """C and D since Turing: two neighbours of a row; of a column where m8n32k16 is computed transposed."""
    pair, odd = divmod(i, 2)
    if shape == "m8n32k16" and not (type == "s32" and sm < 80):
        return thread * 2 + odd, group + 8 * pair
    if shape == "m8n32k16":
        return group, thread * 2 + odd + 8 * pair
    if shape == "m32n8k16":
        return group + 8 * pair, thread * 2 + odd
    return group + 8 * (pair % 2), thread * 2 + odd + 8 * (pair // 2)


def volta_place(letter: str, shape: str, type: str, order: str, lane: int, i: int) -> Place:
    """Quad pair q = lanes 4q to 4q + 3 and 16 more computes one 8 x 8 block; which, its two bits say."""
    q, high, u = lane // 4 % 4, 4 * (lane // 16), lane % 4
    block_row, block_column = {"m16n16k16": (q % 2, q // 2), "m32n8k16": (q, 0), "m8n32k16": (0, q)}[shape]
    if letter == "a":
        row, column = (u, i) if order == "row" else (i % 4, u + i // 4 * 4)
        return 8 * block_row + high + row, column
    if letter == "b":
        row, column = (i, u) if order == "col" else (u + i // 4 * 4, i % 4)
        return row, 8 * block_column + high + column
    if type == "f16":
        return 8 * block_row + high + u, 8 * block_column + i
    return 8 * block_row + high + (u & 1) + (i & 2), 8 * block_column + (u & 2) + (i & 1) + (i & 4)


# ---- loads and stores

MOVE = re.compile(
    r"wmma\.(?P<verb>load|store)\.(?P<letter>[abcd])\.sync\.aligned\.(?P<order>row|col)\.(?P<shape>m\d+n\d+k\d+)"
    r"(?P<space>(?:\.global|\.shared(?:::cta)?)?)\.(?P<type>\w+)"
)


@dataclass(frozen=True)
class Move:
    """What the mnemonic of a load or a store says."""

    letter: str
    order: str
    shape: str
    type: str

    @property
    def fields(self) -> int:
        """Fields of a lane's registers."""
        return register_words(self.letter, self.shape, self.type) * 32 // BITS[self.type]


@cache
def parse_move(mnemonic: str) -> Move:
    """The parts of a mnemonic; ValueError if it is none of wmma.load or wmma.store."""
    match = MOVE.fullmatch(mnemonic)
    if match is None:
        raise ValueError(f"{mnemonic!r} is neither wmma.load nor wmma.store")
    return Move(match["letter"], match["order"], match["shape"], match["type"])


def bit_of(move: Move, address: int, stride: int | None, row: int, column: int) -> int:
    """The number of the memory bit where an element begins."""
    rows, columns = size(move.letter, move.shape)
    line, inside, length = (row, column, columns) if move.order == "row" else (column, row, rows)
    return 8 * address + (line * (length if stride is None else stride) + inside) * BITS[move.type]


def load(mnemonic: str, sm: int, memory: int, address: int, stride: int | None) -> Registers:
    """The registers that a load leaves."""
    move = parse_move(mnemonic)
    bits = BITS[move.type]
    registers = []
    for lane in range(32):
        packed = 0
        for i in range(move.fields):
            row, column = place(move.letter, move.shape, move.type, move.order, sm, lane, i)
            code = memory >> bit_of(move, address, stride, row, column) & ((1 << bits) - 1)
            packed |= code << bits * i
        registers.append(_words(packed, register_words(move.letter, move.shape, move.type)))
    return registers


def store(mnemonic: str, sm: int, memory: int, address: int, stride: int | None, registers: Registers) -> int:
    """The memory that a store leaves."""
    move = parse_move(mnemonic)
    bits = BITS[move.type]
    for lane in range(32):
        packed = sum(word << 32 * n for n, word in enumerate(registers[lane]))
        for i in range(move.fields):
            row, column = place(move.letter, move.shape, move.type, move.order, sm, lane, i)
            at = bit_of(move, address, stride, row, column)
            code = packed >> bits * i & ((1 << bits) - 1)
            memory = memory & ~(((1 << bits) - 1) << at) | code << at
    return memory


def _words(packed: int, count: int) -> list[int]:
    return [packed >> 32 * n & 0xFFFFFFFF for n in range(count)]


# ---- products

PRODUCT = re.compile(
    r"wmma\.mma(?P<bits>(?:\.xor|\.and)\.popc)?\.sync\.aligned\.(?P<a_order>row|col)\.(?P<b_order>row|col)"
    r"\.(?P<shape>m\d+n\d+k(?P<k>\d+))(?P<rounding>\.r[nzmp])?\.(?P<types>[\w.]+?)(?P<saturate>\.satfinite)?"
)


@dataclass(frozen=True)
class Product:
    """What the mnemonic of a wmma.mma says."""

    shape: str
    k: int
    d: str
    a: str
    b: str
    c: str
    a_order: str
    b_order: str
    suffix: str  # ".xor.popc" or ".and.popc" of b1
    infix: str  # ".satfinite" or a rounding, where mma.sync writes it

    def order(self, letter: str) -> str:
        """The order of an operand's tile in memory, as far as the mnemonic says."""
        return {"a": self.a_order, "b": self.b_order}.get(letter, "row")

    def type(self, letter: str) -> str:
        """The format of an operand."""
        return {"a": self.a, "b": self.b, "c": self.c, "d": self.d}[letter]


@cache
def parse_product(mnemonic: str) -> Product:
    """The parts of a mnemonic; ValueError if it is no wmma.mma."""
    match = PRODUCT.fullmatch(mnemonic)
    if match is None:
        raise ValueError(f"{mnemonic!r} is no wmma.mma")
    types = match["types"].split(".")
    d, a, b, c = types if len(types) == 4 else (types[0], "f16", "f16", types[1])
    infix = (match["rounding"] or "") + (match["saturate"] or "")
    return Product(
        match["shape"], int(match["k"]), d, a, b, c, match["a_order"], match["b_order"], match["bits"] or "", infix
    )


def links(product: Product, sm: int) -> tuple[str, int]:
    """The mma.sync shape that does the work, and its K."""
    if product.a in ("f16", "bf16"):
        return ("m8n8k4", 4) if sm < 75 else ("m16n8k8", 8) if sm == 75 else ("m16n8k16", 16)
    if product.a in ("s8", "u8"):
        return ("m8n8k16", 16) if sm < 80 else ("m16n8k16", 16)
    return {"tf32": ("m16n8k4", 4), "f64": ("m8n8k4", 4), "b1": ("m8n8k128", 128)}.get(product.a, ("m8n8k32", 32))


def element(mnemonic: str, arch: str, a_row: Sequence[int], b_column: Sequence[int], c: int) -> int:
    """One element of D: mma.sync instructions over ascending k, accumulating in f32 if C or D is f32.

    Volta's first mma.sync takes an f16 C as it is; later ones have no such form, and C is widened before.
    """
    product = parse_product(mnemonic)
    sm = int(arch.removeprefix("sm_"))
    shape, step = links(product, sm)
    kept = "f32" if "f32" in (product.c, product.d) else product.d
    runs_on = "sm_75" if arch == "sm_72" and product.a in ("s8", "u8") else arch  # mma.sync has int8 from sm_75 on
    accumulator, held = (c, product.c) if sm < 75 or product.c == kept else (convert(c, product.c, kept), kept)
    for start in range(0, product.k, step):
        types = f"{kept}.{product.a}.{product.b}.{held}"
        own = f"mma.sync.aligned.{shape}.row.col{product.infix}.{types}{product.suffix}"
        part = slice(start, start + step)
        accumulator, held = machine.element(own, runs_on, a_row[part], b_column[part], accumulator), kept
    return convert(accumulator, kept, product.d) if product.d != kept else accumulator


def matrix_of(registers: Registers, holder: Callable[[int, int], Place], shape: Place, bits: int) -> list[list[int]]:
    """The matrix that registers hold: of several copies of an element, the one in the lowest field of the lowest lane."""
    rows: list[list[int]] = [[-1] * shape[1] for _ in range(shape[0])]
    for lane in reversed(range(32)):
        packed = sum(word << 32 * n for n, word in enumerate(registers[lane]))
        for i in reversed(range(32 * len(registers[lane]) // bits)):
            row, column = holder(lane, i)
            rows[row][column] = packed >> bits * i & ((1 << bits) - 1)
    return rows


def execute(mnemonic: str, arch: str, a: Registers, b: Registers, c: Registers) -> Registers:
    """Registers in, registers out."""
    product, sm = parse_product(mnemonic), int(arch.removeprefix("sm_"))

    def holder(letter: str) -> Callable[[int, int], Place]:
        return lambda lane, i: place(letter, product.shape, product.type(letter), product.order(letter), sm, lane, i)

    x, y, z = (
        matrix_of(registers, holder(letter), size(letter, product.shape), BITS[product.type(letter)])
        for letter, registers in (("a", a), ("b", b), ("c", c))
    )
    columns = list(zip(*y, strict=True))
    bits = BITS[product.d]
    out, count = [], register_words("d", product.shape, product.d)
    for lane in range(32):
        packed = 0
        for i in range(count * 32 // bits):
            row, column = holder("d")(lane, i)
            packed |= element(mnemonic, arch, x[row], columns[column], z[row][column]) << bits * i
        out.append(_words(packed, count))
    return out
