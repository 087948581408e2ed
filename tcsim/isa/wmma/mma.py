"""wmma.mma: the rows the assembler accepts, and the mma.sync steps that each consists of on each arch.

Sources: PTX ISA, section Warp-level Matrix Multiply-and-Accumulate Instruction wmma.mma (grammar, shapes, types); ptxas
12.9 and 13.5 (which targets accept which spelling; which registers feed which tensor-core instruction, and in what
order); tcsim.isa.wmma.fragments (layouts); tcsim.isa.mma.sync (what one tile computes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Arithmetic, DotAdd, Lowering, Step
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.rules import in_force
from tcsim.core.targets import ARCHS, Arch, since
from tcsim.isa.mma import sync as mma_sync
from tcsim.isa.wmma.fragments import TileRow, shown
from tcsim.isa.wmma.multiply import FragmentMultiply
from tcsim.model.family import Family
from tcsim.model.row import Row

NAME = "wmma.mma"


# --- rows -----------------------------------------------------------------------------------------------------------

SHAPES_K16 = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
FOUR_LAYOUTS = ("row.row", "row.col", "col.row", "col.col")


@dataclass(frozen=True)
class _Group:
    """Rows that differ only in the listed choices."""

    shapes: tuple[tuple[int, int, int], ...]
    types: tuple[tuple[str, str, str, str], ...]  # d, a, b, c
    first: str  # the earliest arch
    ptx_version: str
    arithmetic: str  # key of _TILES
    layouts: tuple[str, ...] = FOUR_LAYOUTS
    modifiers: tuple[tuple[str, str], ...] = (("", ""),)  # (key, value): one row each
    form: str = "{name}.sync.aligned.{layouts}.{shape}.{types}{modifier}"
    implied: bool = False  # the mnemonic leaves out the formats of A and B


_SATURATE = (("", ""), ("saturate", ".satfinite"))
_ROUNDINGS = (("", ""), ("rounding", ".rn"), ("rounding", ".rz"), ("rounding", ".rm"), ("rounding", ".rp"))
_ROUNDING_FORM = "{name}.sync.aligned.{layouts}.{shape}{modifier}.{types}"
_BITS_FORM = "{name}{modifier}.sync.aligned.{layouts}.{shape}.{types}"


def _alike(d: str, *kinds: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((d, kind, kind, d) for kind in kinds)


_GROUPS = (
    _Group(SHAPES_K16, tuple((d, "f16", "f16", c) for d, c in product(("f16", "f32"), repeat=2)), "sm_70", "6.3", "half",
           implied=True),
    _Group(SHAPES_K16, _alike("s32", "s8", "u8"), "sm_72", "6.3", "int8", modifiers=_SATURATE),
    _Group(SHAPES_K16, _alike("f32", "bf16"), "sm_80", "7.0", "half"),
    _Group(((16, 16, 8),), _alike("f32", "tf32"), "sm_80", "7.0", "tf32"),
    _Group(((8, 8, 4),), _alike("f64", "f64"), "sm_80", "7.0", "f64", modifiers=_ROUNDINGS, form=_ROUNDING_FORM),
    _Group(((8, 8, 32),), _alike("s32", "s4", "u4"), "sm_75", "6.3", "int4", ("row.col",), _SATURATE),
    _Group(((8, 8, 128),), _alike("s32", "b1"), "sm_75", "6.3", "b1", ("row.col",), (("bits", ".xor.popc"),), _BITS_FORM),
    _Group(((8, 8, 128),), _alike("s32", "b1"), "sm_80", "7.1", "b1", ("row.col",), (("bits", ".and.popc"),), _BITS_FORM),
)  # fmt: skip


def rows() -> tuple[TileRow, ...]:
    """Every wmma.mma spelling."""
    return tuple(_rows())


def _rows() -> Iterator[TileRow]:
    for group in _GROUPS:
        for layouts, shape, types, (key, value) in product(group.layouts, group.shapes, group.types, group.modifiers):
            mnemonic = group.form.format(
                name=NAME,
                layouts=layouts,
                shape="m{}n{}k{}".format(*shape),
                types=".".join((types[0], types[3]) if group.implied else types),
                modifier=value,
            )
            row_major = dict(zip("ab", (word == "row" for word in layouts.split(".")), strict=True))
            operands = {
                name: shown(name, shape, format, row_major.get(name, True))
                for name, format in zip("dabc", types, strict=True)
            }
            yield TileRow(
                mnemonic, NAME, shape, MappingProxyType(operands), since(group.first), group.ptx_version,
                group.arithmetic, modifiers=MappingProxyType({key: value} if key else {}),
                row_major=MappingProxyType(row_major),
            )  # fmt: skip


# --- arithmetic -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tile:
    """The mma.sync instruction that does the work of an arithmetic class from an arch on, until a later row of the class."""

    arithmetic: str
    first: int  # number of the earliest arch
    shape: tuple[int, int, int]  # of the mma.sync; along K it is chained in ascending order
    stands_in: str = ""  # the arch whose mma.sync lowering is taken, where the arch itself has no such mma.sync
    takes_other_addend: bool = False  # C may have another format than D


_TILES = (
    _Tile("half", 70, (8, 8, 4), takes_other_addend=True),
    _Tile("half", 75, (16, 8, 8)),
    _Tile("half", 80, (16, 8, 16)),
    _Tile("tf32", 80, (16, 8, 4)),
    _Tile("f64", 80, (8, 8, 4)),
    _Tile("int8", 72, (8, 8, 16), stands_in="sm_75"),
    _Tile("int8", 75, (8, 8, 16)),
    _Tile("int8", 80, (16, 8, 16)),
    _Tile("int4", 75, (8, 8, 32)),
    _Tile("b1", 75, (8, 8, 128)),
)


@dataclass(frozen=True)
class _Conversion:
    """The machine code that converts a whole f16 or f32 accumulator fragment, from an arch on until a later row."""

    to: str
    first: int  # number of the earliest arch
    opcode: tuple[str, int]


_CONVERSIONS = (
    _Conversion("f32", 75, ("HADD2.F32", 8)),
    _Conversion("f16", 70, ("F2F.F16.F32", 8)),
    _Conversion("f16", 80, ("F2FP.PACK_AB", 4)),
    _Conversion("f16", 89, ("F2FP.F16.F32.PACK_AB", 4)),
)


def _tile(row: Row, arch: Arch) -> _Tile:
    return in_force((tile for tile in _TILES if tile.arithmetic == row.arithmetic), arch)


@cache
def _mma_rows() -> tuple[Row, ...]:
    return mma_sync.rows()


def _mma(row: Row, tile: _Tile, types: tuple[str, ...]) -> Row:
    """The mma.sync row of a tile, for formats d, a, b, c and the modifiers of a wmma.mma row."""
    return next(
        candidate
        for candidate in _mma_rows()
        if candidate.shape == tile.shape
        and tuple(candidate.operands[name].format.name for name in "dabc") == types
        and candidate.modifiers == row.modifiers
    )


def lowering(row: TileRow, arch: Arch) -> Lowering:
    """The arch's mma.sync steps on the tiles of the result, chained over ascending k, and conversions of C or D.

    Where C and D differ in format, the steps accumulate in f32: an f16 C is widened first, an f16 D rounded last.
    """
    tile, (d, a, b, c) = _tile(row, arch), (row.operands[name].format.name for name in "dabc")
    kept = "f32" if d != c else d  # the format of the accumulator
    widens, narrows = c != kept and not tile.takes_other_addend, d != kept
    chunks = row.shape[2] // tile.shape[2]
    steps: list[Step] = [Arithmetic("convert", "acc", ("c",), kept)] if widens else []
    opcodes: Counter[str] = Counter()
    kinds = set()
    for chunk in range(chunks):
        addend = c if chunk == 0 and not widens else kept
        mma = _mma(row, tile, (kept, a, b, addend))
        part = mma_sync.lowering(mma, ARCHS[tile.stands_in] if tile.stands_in else arch)
        start = "c" if chunk == 0 and not widens else "acc"
        end = "d" if chunk == chunks - 1 and not narrows else "acc"
        steps += _chained(part.steps, chunk * tile.shape[2], start, end)
        matrices = mma.operands["d"].layout.matrices
        tiles = row.shape[0] * row.shape[1] // (mma.shape[0] * mma.shape[1] * matrices)
        for opcode, count in part.opcodes:
            opcodes[opcode] += tiles * count
        kinds.add(part.kind)
    if narrows:
        steps.append(Arithmetic("convert", "d", ("acc",), d))
    for format in ([kept] if widens else []) + ([d] if narrows else []):
        opcode, count = in_force((x for x in _CONVERSIONS if x.to == format), arch).opcode
        opcodes[opcode] += count
    (kind,) = kinds
    if kind == "native" and opcodes.total() > 1:
        kind = "split"
    return Lowering(kind, tuple(steps), tuple(opcodes.items()), "mma.sync m{}n{}k{}".format(*tile.shape))


def _chained(steps: tuple[Step, ...], k: int, start: str, end: str) -> list[Step]:
    """The dot-adds of one mma.sync as part of a chain: products from `k` on, the addend `start`, the result `end`."""
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, DotAdd):
            addend, result = {"c": start}.get(step.addend, step.addend), {"d": end}.get(step.result, step.result)
            changed.append(replace(step, k=tuple(i + k for i in step.k), addend=addend, result=result))
        else:
            changed.append(step)
    return changed


# --- evidence -------------------------------------------------------------------------------------------------------

_SASS = "the machine code that ptxas emits (nvdisasm): mma.sync instructions whose own evidence is {}"


def evidence(row: TileRow, arch: Arch) -> Evidence:
    """How what `lowering` says is known: at best as well as the mma.sync it consists of."""
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    tile, types = _tile(row, arch), tuple(row.operands[name].format.name for name in "dabc")
    if tile.stands_in:
        return Evidence("inferred", f"as {tile.stands_in}: nothing of {arch.name} itself was measured")
    kept = "f32" if types[0] != types[3] else types[0]
    own = mma_sync.evidence(_mma(row, tile, (kept, *types[1:3], kept)), arch)
    return own if own.level == "inferred" else Evidence("literature", _SASS.format(own.level))


FAMILY = Family(NAME, rows, lowering, evidence, FragmentMultiply)
