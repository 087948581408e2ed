"""wmma.load and wmma.store: the rows the assembler accepts, and the memory accesses that each becomes on each arch.

Sources: PTX ISA, sections Warp-level Matrix Load Instruction wmma.load, Warp-level Matrix Store Instruction wmma.store and
Matrix Storage for WMMA (grammar, strides, alignment); ptxas 12.9 and 13.5 (which targets accept which spelling, and the
accesses they emit); tcsim.isa.wmma.fragments (layouts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import ARCHS, Arch, since
from tcsim.isa.mma.operands import REGISTER_TYPES
from tcsim.isa.wmma.fragments import fragment_layout
from tcsim.isa.wmma.mma import SHAPES_K16
from tcsim.isa.wmma.tile import FragmentLoad, FragmentStore, TileOrder
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.family import Family
from tcsim.model.operand import Fragment, fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS

LOAD, STORE = "wmma.load", "wmma.store"


# --- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Fragments that differ only in the listed choices."""

    names: str  # a, b (of wmma.load), c (of wmma.load, and d of wmma.store)
    shapes: tuple[tuple[int, int, int], ...]
    formats: tuple[str, ...]
    first: str  # the earliest arch
    ptx_version: str
    along_k_only: bool = False  # A row-major and B column-major only


_TF32, _F64, _INT4, _B1 = ((16, 16, 8),), ((8, 8, 4),), ((8, 8, 32),), ((8, 8, 128),)

_GROUPS = (
    _Group("ab", SHAPES_K16, ("f16",), "sm_70", "6.3"),
    _Group("c", SHAPES_K16, ("f16", "f32"), "sm_70", "6.3"),
    _Group("ab", SHAPES_K16, ("s8", "u8"), "sm_72", "6.3"),
    _Group("c", SHAPES_K16, ("s32",), "sm_72", "6.3"),
    _Group("ab", SHAPES_K16, ("bf16",), "sm_80", "7.0"),
    _Group("ab", _TF32, ("tf32",), "sm_80", "7.0"),
    _Group("c", _TF32, ("f32",), "sm_80", "7.0"),
    _Group("abc", _F64, ("f64",), "sm_80", "7.0"),
    _Group("ab", _INT4, ("s4", "u4"), "sm_75", "6.3", along_k_only=True),
    _Group("ab", _B1, ("b1",), "sm_75", "6.3", along_k_only=True),
    _Group("c", (*_INT4, *_B1), ("s32",), "sm_75", "6.3"),
)

_SPACES = {"": "6.0", ".global": "6.0", ".shared": "6.0", ".shared::cta": "7.8"}
"""State spaces, and the PTX version that brought each."""

_NEWEST = ARCHS["sm_90"]  # its layouts are those of every arch since sm_80, and what a row shows


def _operand(name: str, shape: tuple[int, int, int], format: str, row_major: bool, arch: Arch) -> Fragment:
    layout = fragment_layout(name, shape, FORMATS[format], row_major, arch)
    return fragment(name, FORMATS[format], layout, REGISTER_TYPES.get(format, ".b32"))


def _rows(family: str, names: Mapping[str, str]) -> Iterator[Row]:
    """`names`: what the family calls each fragment that it moves."""
    for group in _GROUPS:
        for given, order, shape, space, format in product(
            [name for name in group.names if name in names], ("row", "col"), group.shapes, _SPACES, group.formats
        ):
            if group.along_k_only and (given == "a") != (order == "row"):
                continue
            name = names[given]
            size = "m{}n{}k{}".format(*shape)
            version = max(group.ptx_version, _SPACES[space])
            operand = _operand(name, shape, format, order == "row", _NEWEST)
            yield Row(
                f"{family}.{name}.sync.aligned.{order}.{size}{space}.{format}", family, shape,
                MappingProxyType({name: operand}), since(group.first), version, "move",
                facts=TileOrder(order == "row", space),
            )  # fmt: skip


def load_rows() -> tuple[Row, ...]:
    """Every wmma.load spelling; each has a form with a stride and one without."""
    return tuple(_rows(LOAD, {"a": "a", "b": "b", "c": "c"}))


def store_rows() -> tuple[Row, ...]:
    """Every wmma.store spelling; each has a form with a stride and one without."""
    return tuple(_rows(STORE, {"c": "d"}))


# --- machine code ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spelling:
    """How the assembler spells accesses on a range of archs."""

    first: int  # arch numbers, inclusive
    last: int
    shared_load: str
    suffix: str  # of accesses that are not to shared memory


_SPELLINGS = (_Spelling(70, 75, "LDS.U", ".SYS"), _Spelling(80, 121, "LDS", ""))
_WIDTHS = {8: ".U8", 16: ".U16", 32: "", 64: ".64", 128: ".128"}
_FIRST_MOVM = 75  # arch number from which LDSM and MOVM move 8 x 8 matrices of 16-bit elements
_FIRST_LDSM_BY_4 = 80  # arch number from which wmma.load of 16-bit elements uses LDSM of four matrices


def lowering(row: Row, arch: Arch, stores: bool = False) -> Lowering:
    """The memory accesses of one lane and the transpositions, by opcode; nothing is computed."""
    (operand,) = _operands(row, arch).values()
    order, layout = _order(row), operand.layout
    registers = layout.registers // (1 if layout.copies_in_lanes else layout.copies)  # a lane's own copies: loaded once
    run = _run(layout, order.row_major)
    narrow = layout.element_bits <= 16 and arch.number >= _FIRST_MOVM
    transposes = layout.element_bits == 16 and run == 1 and narrow
    if narrow and not stores and operand.name in "ab" and ".shared" in order.space and (run > 1 or transposes):
        return Lowering("native", (), (_ldsm(registers, transposes, layout.element_bits, arch),))
    if transposes:
        return Lowering("native", (), ((_access(stores, order, 32, arch), registers), ("MOVM.16.MT88", registers)))
    width = min(128, run * layout.element_bits)
    return Lowering("native", (), ((_access(stores, order, width, arch), 32 * registers // width),))


def _ldsm(registers: int, transposes: bool, element_bits: int, arch: Arch) -> tuple[str, int]:
    most = 4 if element_bits == 16 and arch.number >= _FIRST_LDSM_BY_4 else 2
    matrices = min(registers, most)
    opcode = "LDSM.16.MT88" if transposes else "LDSM.16.M88"
    return opcode + (f".{matrices}" if matrices > 1 else ""), registers // matrices


def _access(stores: bool, order: TileOrder, width: int, arch: Arch) -> str:
    """The opcode of a load or store of one lane."""
    spelling = next(s for s in _SPELLINGS if s.first <= arch.number <= s.last)
    if ".shared" in order.space:
        return ("STS" if stores else spelling.shared_load) + _WIDTHS[width]
    return f"{'ST' if stores else 'LD'}{'G' if order.space else ''}.E{_WIDTHS[width]}{spelling.suffix}"


def _run(layout: FragmentLayout, row_major: bool) -> int:
    """How many values of a lane, from the first on, lie next to each other in memory."""
    rows, columns = np.divmod(layout.flat_element[: layout.value.size], layout.columns)
    line, place = (rows, columns) if row_major else (columns, rows)
    run = 1
    while run < len(line) and line[run] == line[0] and place[run] == place[0] + run:
        run += 1
    return run


def _order(row: Row) -> TileOrder:
    if not isinstance(row.facts, TileOrder):
        raise TypeError(f"{row.mnemonic} has no tile in memory")
    return row.facts


def _operands(row: Row, arch: Arch) -> MappingProxyType[str, Fragment]:
    """The one operand on an arch."""
    ((name, operand),) = row.operands.items()
    own = _operand(name, row.shape, operand.format.name, _order(row).row_major, arch)
    return MappingProxyType({name: own})


# --- evidence -------------------------------------------------------------------------------------------------------


def evidence(row: Row, arch: Arch) -> Evidence:
    """How the layout is known."""
    if arch.name == "sm_90":
        return RECORDED["sm_90"]
    return Evidence("literature", "the machine code that ptxas emits (nvdisasm), followed address by address")


def bind_load(row: Row, arch: Arch, targets: tuple[str, ...], lowered: Lowering, known: Evidence) -> FragmentLoad:
    """The instruction on an arch, with the arch's own layout."""
    return FragmentLoad(replace(row, operands=_operands(row, arch)), arch, targets, lowered, known)


def bind_store(row: Row, arch: Arch, targets: tuple[str, ...], lowered: Lowering, known: Evidence) -> FragmentStore:
    """The instruction on an arch, with the arch's own layout."""
    return FragmentStore(replace(row, operands=_operands(row, arch)), arch, targets, lowered, known)


LOAD_FAMILY = Family(LOAD, load_rows, lowering, evidence, bind_load)
STORE_FAMILY = Family(STORE, store_rows, partial(lowering, stores=True), evidence, bind_store)
