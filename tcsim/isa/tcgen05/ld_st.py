"""tcgen05.ld, .ld.red, .ld.spcompress and .st: the rows the assembler accepts, their fragments and machine code.

Sources: PTX ISA, section Tensor Memory and Register Load/Store Instructions; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.matrix.fragments import B16
from tcsim.isa.tcgen05.fragments import B32, SHAPES, Shape, reduced
from tcsim.isa.tcgen05.ld_red import Extreme, Reduction, Type
from tcsim.isa.tcgen05.move import (
    CompressTensorMemory,
    LoadTensorMemory,
    MoveRow,
    ReduceTensorMemory,
    StoreTensorMemory,
)
from tcsim.isa.tcgen05.targets import FAMILY_TARGETS, SINCE_SM_103, SM_107A, known
from tcsim.layouts.compression import Selection
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Fragment, Operand, fragment
from tcsim.numbers.formats import FORMATS, Format

LOAD, STORE, REDUCE, COMPRESS = "tcgen05.ld", "tcgen05.st", "tcgen05.ld.red", "tcgen05.ld.spcompress"

U32 = Format("u32", "integer", 32, 32, signed=False, source="PTX ISA, section Fundamental Types")
RESULTS: dict[Type, Format] = {"f32": FORMATS["f32"], "u32": U32, "s32": FORMATS["s32"]}
"""The types of `.red`."""
OPERATIONS: tuple[Extreme, ...] = ("min", "max")
TYPES = tuple(
    (type, absolute, nan)
    for type in RESULTS
    for absolute, nan in (product((False, True), repeat=2) if type == "f32" else ((False, False),))
)
"""(type, `.abs`, `.NaN`) of `.red`."""

_SHAPES = f"{PTX_MANUAL}, section Data Movement Shape; CUTLASS, copy_traits_sm100"
_EVIDENCE = {
    "plain": Evidence("literature", _SHAPES),
    "pack": Evidence("literature", _SHAPES),
    "unpack": Evidence("inferred", "tcgen05.st without unpacking: the upper halves of the cells as EXPAND16BIT reads"),
    "integer": Evidence("literature", f"{_SHAPES}; section tcgen05.ld"),
    "float": Evidence("inferred", "min.f32 and max.f32: order of zeros, NaN and subnormals; section tcgen05.ld says the rest"),
    "compress": Evidence("literature", f"{PTX_MANUAL}, sections tcgen05.ld and spcompress (figure 43: the order of what stays)"),
}  # fmt: skip


_SPLIT = Operand("half_split_offset", kind="immediate")


def _row(
    mnemonic: str, family: str, shape: Shape, count: int, fragments: tuple[Fragment, ...], targets: tuple[str, ...],
    version: str, arithmetic: str, modifiers: dict[str, str], packed: bool = False, reduction: Reduction | None = None,
    selection: Selection | None = None,
) -> MoveRow:  # fmt: skip
    layout = shape.layout(count, packed)
    stored = fragments[0].role == "source"
    address = Operand("address", "destination" if stored else "source", "address", space="tensor")
    cells = (address, *[_SPLIT] * (shape.halves == 2))
    return MoveRow(
        mnemonic, family, (layout.rows, layout.columns, 0),  # nothing is multiplied: no K
        MappingProxyType({operand.name: operand for operand in fragments}), arithmetic=arithmetic,
        modifiers=MappingProxyType({"shape": f".{shape.name}", "count": f".x{count}", **modifiers}),
        forms=(Form((*cells, *fragments) if stored else (*fragments, *cells), targets, version),),
        lands_later=not stored, movement=shape, layout=layout, packed=packed, reduction=reduction, selection=selection,
    )  # fmt: skip


def _plain(family: str, name: str, word: str, packed_arithmetic: str) -> Iterator[MoveRow]:
    for shape in SHAPES.values():
        for count, packed in product(shape.counts, (False, True)):
            pack = word if packed else ""
            yield _row(
                f"{family}.sync.aligned.{shape.name}.x{count}{pack}.b32", family, shape, count,
                (fragment(name, B16 if packed else B32, shape.layout(count, packed)),), FAMILY_TARGETS, "8.6",
                packed_arithmetic if packed else "plain", {"pack": pack}, packed,
            )  # fmt: skip


def load_rows() -> tuple[MoveRow, ...]:
    """tcgen05.ld."""
    return tuple(_plain(LOAD, "d", ".pack::16b", "pack"))


def store_rows() -> tuple[MoveRow, ...]:
    """tcgen05.st."""
    return tuple(_plain(STORE, "registers", ".unpack::16b", "unpack"))


def _redval(shape: Shape, type: Type) -> Fragment:
    """One register, without braces."""
    own = fragment("redval", RESULTS[type], reduced(shape), ".f32" if type == "f32" else ".b32", "destination")
    return replace(own, kind="register")


def _reductions() -> Iterator[MoveRow]:
    for name in ("32x32b", "16x32bx2"):
        shape = SHAPES[name]
        for count, operation, (type, absolute, nan) in product(shape.counts[1:], OPERATIONS, TYPES):
            words = {"abs": ".abs" if absolute else "", "nan": ".NaN" if nan else ""}
            yield _row(
                f"{REDUCE}.sync.aligned.{name}.x{count}.{operation}{words['abs']}{words['nan']}.{type}",
                REDUCE, shape, count, (fragment("d", B32, shape.layout(count, False)), _redval(shape, type)),
                SINCE_SM_103, "8.8", "float" if type == "f32" else "integer",
                {"operation": f".{operation}", **words, "type": f".{type}"},
                reduction=Reduction(operation, type, absolute, nan),
            )  # fmt: skip


def reduce_rows() -> tuple[MoveRow, ...]:
    """tcgen05.ld.red."""
    return tuple(_reductions())


def _lane_rows(columns: int) -> FragmentLayout:
    """A lane holds a row of its own, one register an element."""
    return FragmentLayout(Layout(32, columns), Layout(columns, 1), 32, columns, 32, column_fastest=True)


def _compressions() -> Iterator[MoveRow]:
    shape = SHAPES["32x32b"]
    for count, operation, absolute, (red, nan) in product(
        shape.counts[2:], OPERATIONS, (False, True), ((False, False), (True, False), (True, True))
    ):
        words = {"red": ".red" if red else "", "abs": ".abs" if absolute else "", "nan": ".NaN" if nan else ""}
        metadata = max(32, count)  # 2-bit indices of count / 2 elements, in whole registers
        mdata = fragment("mdata", B32, _lane_rows(metadata // 32), role="destination")
        cdata = fragment("cdata", B32, _lane_rows(count // 2), role="destination")
        yield _row(
            f"tcgen05.ld{words['red']}.spcompress.sync.aligned.32x32b.x{count}.{operation}.sp::2:4{words['abs']}{words['nan']}"
            ".f32.b2",
            COMPRESS, shape, count, (mdata, cdata, *[_redval(shape, "f32")] * red), SM_107A, "9.4", "compress",
            {"operation": f".{operation}", **words},
            reduction=Reduction(operation, "f32", absolute, nan) if red else None,
            selection=Selection(operation.upper() + "ABS" * absolute, "f32"),
        )  # fmt: skip


def compress_rows() -> tuple[MoveRow, ...]:
    """tcgen05.ld.spcompress and tcgen05.ld.red.spcompress."""
    return tuple(_compressions())


def lowering(row: MoveRow, arch: Arch, opcode: str = "LDTM", packed: str = "PACK16BIT") -> Lowering:
    """One machine instruction, two for `.16x32bx2`."""
    shape, reduction, selection = row.movement, row.reduction, row.selection
    parts, tail = [opcode], []
    if (times := row.layout.columns // shape.columns(1, row.packed)) > 1:
        tail.append(f"x{times}")
    if row.packed:
        tail.append(packed)
    if reduction:
        parts.append("STAT")
        operation = reduction.operation.upper() + "ABS" * reduction.absolute
        type = [] if reduction.type == "u32" else [reduction.type.upper()]  # u32 is not named
        tail += [operation, *type, *["NAN"] * reduction.nan]
    if selection:
        parts.append("SPARSIFY.U2.2TO4")
        tail += [] if reduction else [selection.operation, "F32"]
    shapes = [f"{shape.opcode}_t0_t15", f"{shape.opcode}_t16_t31"] if shape.halves == 2 else [shape.opcode]
    names = [".".join([*parts, *([own] if own else []), *tail]) for own in shapes]
    return Lowering("split" if shape.halves == 2 else "native", (), tuple((name, 1) for name in names))


def evidence(row: MoveRow, arch: Arch) -> Evidence:
    """What the manual and CUTLASS say; no GPU was asked."""
    return known(arch, _EVIDENCE[row.arithmetic])


LOAD_FAMILY = Family(LOAD, load_rows, lowering, evidence, LoadTensorMemory)
_STORES = partial(lowering, opcode="STTM", packed="EXPAND16BIT")
STORE_FAMILY = Family(STORE, store_rows, _STORES, evidence, StoreTensorMemory)
REDUCE_FAMILY = Family(
    REDUCE,
    reduce_rows,
    lowering,
    evidence,
    ReduceTensorMemory,
    "none of a product: the smallest or largest value that a lane loads",
)
COMPRESS_FAMILY = Family(COMPRESS, compress_rows, lowering, evidence, CompressTensorMemory, "none: it selects elements")
