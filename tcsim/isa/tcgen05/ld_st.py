"""tcgen05.ld, .ld.red, .ld.spcompress and .st: the rows the assembler accepts, their fragments and machine code.

Sources: PTX ISA 9.4, section Tensor Memory and Register Load/Store Instructions; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.isa.matrix.fragments import B16
from tcsim.isa.tcgen05.fragments import B32, SHAPES, Shape, reduced
from tcsim.isa.tcgen05.ld_red import Reduction
from tcsim.isa.tcgen05.move import (
    CompressTensorMemory,
    LoadTensorMemory,
    ReduceTensorMemory,
    StoreTensorMemory,
    TensorMemoryAccess,
    access_of,
)
from tcsim.isa.tcgen05.targets import FAMILY_TARGETS, SINCE_SM_103, SM_107A
from tcsim.layouts.compression import Selection
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.family import Family
from tcsim.model.operand import Fragment, fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS, Format

LOAD, STORE, REDUCE, COMPRESS = "tcgen05.ld", "tcgen05.st", "tcgen05.ld.red", "tcgen05.ld.spcompress"

U32 = Format("u32", "integer", 32, 32, signed=False, source="PTX ISA, section Fundamental Types")
RESULTS: dict[str, Format] = {"f32": FORMATS["f32"], "u32": U32, "s32": FORMATS["s32"]}
"""The types of `.red`."""
TYPES = tuple(
    (type, absolute, nan)
    for type in RESULTS
    for absolute, nan in (product((False, True), repeat=2) if type == "f32" else ((False, False),))
)
"""(type, `.abs`, `.NaN`) of `.red`."""

_SHAPES = "PTX ISA 9.4, section Data Movement Shape; CUTLASS, copy_traits_sm100"
_EVIDENCE = {
    "plain": Evidence("literature", _SHAPES),
    "unpack": Evidence("inferred", "tcgen05.st without unpacking: the upper halves of the cells as EXPAND16BIT reads"),
    "integer": Evidence("literature", f"{_SHAPES}; section tcgen05.ld"),
    "float": Evidence("inferred", "min.f32 and max.f32: order of zeros, NaN and subnormals; section tcgen05.ld says the rest"),
    "compress": Evidence("literature", "PTX ISA 9.4, sections tcgen05.ld and spcompress (figure 43: the order of what stays)"),
}  # fmt: skip


def _row(
    mnemonic: str,
    family: str,
    shape: Shape,
    count: int,
    operands: dict[str, Fragment],
    targets: tuple[str, ...],
    version: str,
    arithmetic: str,
    facts: TensorMemoryAccess,
    modifiers: dict[str, str],
) -> Row:
    return Row(
        mnemonic,
        family,
        (facts.layout.rows, facts.layout.columns, 0),  # nothing is multiplied: no K
        MappingProxyType(operands),
        targets,
        version,
        arithmetic,
        modifiers=MappingProxyType({"shape": f".{shape.name}", "count": f".x{count}", **modifiers}),
        facts=facts,
    )


def _plain(family: str, name: str, word: str) -> Iterator[Row]:
    for shape in SHAPES.values():
        for count, packed in product(shape.counts, (False, True)):
            layout = shape.layout(count, packed)
            pack = word if packed else ""
            yield _row(
                f"{family}.sync.aligned.{shape.name}.x{count}{pack}.b32",
                family, shape, count,
                {name: fragment(name, B16 if packed else B32, layout)},
                FAMILY_TARGETS, "8.6", word[1:].split(":")[0] if packed else "plain",
                TensorMemoryAccess(shape.name, layout, shape.halves, packed),
                {"pack": pack},
            )  # fmt: skip


def load_rows() -> tuple[Row, ...]:
    """tcgen05.ld."""
    return tuple(_plain(LOAD, "d", ".pack::16b"))


def store_rows() -> tuple[Row, ...]:
    """tcgen05.st."""
    return tuple(_plain(STORE, "registers", ".unpack::16b"))


def _reductions() -> Iterator[Row]:
    for name in ("32x32b", "16x32bx2"):
        shape = SHAPES[name]
        for count, operation, (type, absolute, nan) in product(shape.counts[1:], ("min", "max"), TYPES):
            layout = shape.layout(count, False)
            words = {"abs": ".abs" if absolute else "", "nan": ".NaN" if nan else ""}
            yield _row(
                f"{REDUCE}.sync.aligned.{name}.x{count}.{operation}{words['abs']}{words['nan']}.{type}",
                REDUCE, shape, count,
                {
                    "d": fragment("d", B32, layout),
                    "redval": fragment("redval", RESULTS[type], reduced(shape), ".f32" if type == "f32" else ".b32", "destination"),
                },
                SINCE_SM_103, "8.8", "float" if type == "f32" else "integer",
                TensorMemoryAccess(
                    name, layout, shape.halves, False, Reduction(operation, type, absolute, nan)  # type: ignore[arg-type]
                ),
                {"operation": f".{operation}", **words, "type": f".{type}"},
            )  # fmt: skip


def reduce_rows() -> tuple[Row, ...]:
    """tcgen05.ld.red."""
    return tuple(_reductions())


def _lane_rows(columns: int) -> FragmentLayout:
    """A lane holds a row of its own, one register an element."""
    return FragmentLayout(Layout(32, columns), Layout(columns, 1), 32, columns, 32, column_fastest=True)


def _compressions() -> Iterator[Row]:
    shape = SHAPES["32x32b"]
    for count, operation, absolute, (red, nan) in product(
        shape.counts[2:], ("min", "max"), (False, True), ((False, False), (True, False), (True, True))
    ):
        layout = shape.layout(count, False)
        words = {"red": ".red" if red else "", "abs": ".abs" if absolute else "", "nan": ".NaN" if nan else ""}
        selection = Selection(operation.upper() + ("ABS" if absolute else ""), "f32")
        metadata = max(32, count)  # 2-bit indices of count / 2 elements, in whole registers
        operands = {
            "mdata": fragment("mdata", B32, _lane_rows(metadata // 32), role="destination"),
            "cdata": fragment("cdata", B32, _lane_rows(count // 2), role="destination"),
        }
        if red:
            operands["redval"] = fragment("redval", RESULTS["f32"], reduced(shape), ".f32", "destination")
        reduction = Reduction(operation, "f32", absolute, nan) if red else None  # type: ignore[arg-type]
        yield _row(
            f"tcgen05.ld{words['red']}.spcompress.sync.aligned.32x32b.x{count}.{operation}.sp::2:4{words['abs']}{words['nan']}"
            ".f32.b2",
            COMPRESS, shape, count, operands, SM_107A, "9.4", "compress",
            TensorMemoryAccess("32x32b", layout, 1, False, reduction, selection),
            {"operation": f".{operation}", **words},
        )  # fmt: skip


def compress_rows() -> tuple[Row, ...]:
    """tcgen05.ld.spcompress and tcgen05.ld.red.spcompress."""
    return tuple(_compressions())


def lowering(row: Row, arch: Arch, opcode: str = "LDTM", packed: str = "PACK16BIT") -> Lowering:
    """One machine instruction, two for `.16x32bx2`."""
    facts = access_of(row)
    parts = [opcode]
    if facts.reduction:
        parts.append("STAT")
    if facts.selection:
        parts.append("SPARSIFY.U2.2TO4")
    tail = [] if row.modifiers["count"] == ".x1" else [row.modifiers["count"][1:]]
    if facts.packed:
        tail.append(packed)
    if facts.reduction or facts.selection:
        operation = facts.selection.operation if facts.selection else _operation(facts)
        tail += [operation, *_type(facts)]
    lanes = SHAPES[facts.shape].opcode
    shapes = [f"{lanes}_t0_t15", f"{lanes}_t16_t31"] if facts.halves == 2 else [lanes]
    names = [".".join([*parts, *([shape] if shape else []), *tail]) for shape in shapes]
    return Lowering("split" if facts.halves == 2 else "native", (), tuple((name, 1) for name in names))


def _operation(facts: TensorMemoryAccess) -> str:
    assert facts.reduction is not None
    return facts.reduction.operation.upper() + ("ABS" if facts.reduction.absolute else "")


def _type(facts: TensorMemoryAccess) -> list[str]:
    """SASS names the type unless it is u32."""
    reduction = facts.reduction
    if reduction is None:
        return ["F32"]
    return [*([] if reduction.type == "u32" else [reduction.type.upper()]), *(["NAN"] if reduction.nan else [])]


def evidence(row: Row, arch: Arch) -> Evidence:
    """What the manual and CUTLASS say; no GPU was asked."""
    return _EVIDENCE[{"pack": "plain"}.get(row.arithmetic, row.arithmetic)]


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
