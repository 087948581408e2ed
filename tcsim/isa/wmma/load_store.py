"""wmma.load and wmma.store: the rows the assembler accepts, and the memory accesses that each becomes on each arch.

Sources: PTX ISA, sections Warp-level Matrix Load Instruction wmma.load, Warp-level Matrix Store Instruction wmma.store and
Matrix Storage for WMMA (grammar, strides, alignment); ptxas 12.9 and 13.5 (which targets accept which spelling, and the
accesses they emit); tcsim.isa.wmma.fragments (layouts).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import latest
from tcsim.isa.wmma.fragments import TileRow, operands_on, shown
from tcsim.isa.wmma.mma import SHAPES_K16
from tcsim.isa.wmma.tile import FragmentLoad, FragmentStore
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Space

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

_SPACES: dict[Space, tuple[str, str]] = {
    "generic": ("", "6.0"),
    "global": (".global", "6.0"),
    "shared": (".shared", "6.0"),
    "shared::cta": (".shared::cta", "7.8"),
}
"""State spaces: how each is spelled, and the PTX version that brought it."""

_STRIDE = Operand("stride", per="warp")


def _rows(family: str) -> Iterator[TileRow]:
    store = family == STORE
    moved = {"c": "d"} if store else {"a": "a", "b": "b", "c": "c"}  # what the family calls each fragment that it moves
    addresses = {
        space: Operand("address", "destination" if store else "source", "address", type=".b64", space=space, per="warp")
        for space in _SPACES
    }
    for group in _GROUPS:
        for given, order, shape, space, format in product(
            [name for name in group.names if name in moved], ("row", "col"), group.shapes, _SPACES, group.formats
        ):
            if group.along_k_only and (given == "a") != (order == "row"):
                continue
            name, (spelled, version) = moved[given], _SPACES[space]
            size, targets, version = "m{}n{}k{}".format(*shape), since(group.first), latest(group.ptx_version, version)
            operand = shown(name, shape, format, order == "row", "source" if store else "destination")
            pair = (addresses[space], operand) if store else (operand, addresses[space])
            forms = (("stride", (*pair, _STRIDE)), ("packed", pair))
            yield TileRow(
                f"{family}.{name}.sync.aligned.{order}.{size}{spelled}.{format}", family, shape,
                MappingProxyType({name: operand}), targets, version, "move",
                forms=tuple(Form(operands, targets, version, name=form) for form, operands in forms),
                row_major=MappingProxyType({name: order == "row"}),
            )  # fmt: skip


def load_rows() -> tuple[TileRow, ...]:
    """Every wmma.load spelling; each has a form with a stride and one without."""
    return tuple(_rows(LOAD))


def store_rows() -> tuple[TileRow, ...]:
    """Every wmma.store spelling; each has a form with a stride and one without."""
    return tuple(_rows(STORE))


# --- machine code ---------------------------------------------------------------------------------------------------

_WIDTHS = {8: ".U8", 16: ".U16", 32: "", 64: ".64", 128: ".128"}
_FIRST_MOVM = 75  # arch number from which LDSM and MOVM move 8 x 8 matrices of 16-bit elements
_FIRST_LDSM_BY_4 = 80  # arch number from which wmma.load of 16-bit elements uses LDSM of four matrices
_FIRST_PLAIN = 80  # arch number from which opcodes are spelled without .U and .SYS


def lowering(row: TileRow, arch: Arch, stores: bool = False) -> Lowering:
    """The memory accesses of one lane and the transpositions, by opcode; nothing is computed."""
    (operand,) = operands_on(row, arch).values()
    layout, space = operand.layout, row.forms[0]["address"].space
    registers = layout.registers // (1 if layout.copies_in_lanes else layout.copies)  # a lane's own copies: loaded once
    run = _run(layout, row.row_major[operand.name])
    narrow = layout.element_bits <= 16 and arch.number >= _FIRST_MOVM
    transposes = layout.element_bits == 16 and run == 1 and narrow
    if narrow and not stores and operand.name in "ab" and space.startswith("shared") and (run > 1 or transposes):
        return Lowering("native", (), (_ldsm(registers, transposes, layout.element_bits, arch),))
    if transposes:
        return Lowering("native", (), ((_access(stores, space, 32, arch), registers), ("MOVM.16.MT88", registers)))
    width = min(128, run * layout.element_bits)
    return Lowering("native", (), ((_access(stores, space, width, arch), 32 * registers // width),))


def _ldsm(registers: int, transposes: bool, element_bits: int, arch: Arch) -> tuple[str, int]:
    most = 4 if element_bits == 16 and arch.number >= _FIRST_LDSM_BY_4 else 2
    matrices = min(registers, most)
    opcode = "LDSM.16.MT88" if transposes else "LDSM.16.M88"
    return opcode + (f".{matrices}" if matrices > 1 else ""), registers // matrices


def _access(stores: bool, space: Space, width: int, arch: Arch) -> str:
    """The opcode of a load or store of one lane."""
    plain = arch.number >= _FIRST_PLAIN
    if space.startswith("shared"):
        return ("STS" if stores else "LDS" if plain else "LDS.U") + _WIDTHS[width]
    return f"{'ST' if stores else 'LD'}{'G' if space == 'global' else ''}.E{_WIDTHS[width]}{'' if plain else '.SYS'}"


def _run(layout: FragmentLayout, row_major: bool) -> int:
    """How many values of a lane, from the first on, lie next to each other in memory."""
    rows, columns = np.divmod(layout.flat_element[: layout.value.size], layout.columns)
    line, place = (rows, columns) if row_major else (columns, rows)
    run = 1
    while run < len(line) and line[run] == line[0] and place[run] == place[0] + run:
        run += 1
    return run


# --- evidence -------------------------------------------------------------------------------------------------------


def evidence(row: TileRow, arch: Arch) -> Evidence:
    """How the layout is known."""
    if arch.name == "sm_90":
        return RECORDED["sm_90"]
    return Evidence("literature", "the machine code that ptxas emits (nvdisasm), followed address by address")


LOAD_FAMILY = Family(LOAD, load_rows, lowering, evidence, FragmentLoad)
STORE_FAMILY = Family(STORE, store_rows, partial(lowering, stores=True), evidence, FragmentStore)
