"""wmma.load and wmma.store: the rows the assembler accepts, and how much is known about them.

Sources: PTX ISA, sections Warp-level Matrix Load Instruction wmma.load, Warp-level Matrix Store Instruction wmma.store and
Matrix Storage for WMMA (grammar, strides, alignment); ptxas 12.9 and 13.5 (which targets accept which spelling);
tcsim.isa.wmma.fragments (layouts); tcsim.isa.wmma.accesses (machine code).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import latest
from tcsim.isa.wmma.accesses import lowering
from tcsim.isa.wmma.fragments import TileRow, shown
from tcsim.isa.wmma.mma import SHAPES_K16
from tcsim.isa.wmma.tile import FragmentLoad, FragmentStore
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


# --- evidence -------------------------------------------------------------------------------------------------------


def evidence(row: TileRow, arch: Arch) -> Evidence:
    """How the layout is known."""
    if arch.name == "sm_90":
        return RECORDED["sm_90"]
    return Evidence("literature", "the machine code that ptxas emits (nvdisasm), followed address by address")


LOAD_FAMILY = Family(LOAD, load_rows, lowering, evidence, FragmentLoad)
STORE_FAMILY = Family(STORE, store_rows, lowering, evidence, FragmentStore)
