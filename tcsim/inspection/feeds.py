"""What feeds one output of an instruction: which lanes and registers hold it, or where in memory it lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from tcsim.core.errors import OperandError
from tcsim.core.ranges import runs
from tcsim.inspection.places import Place, places_of
from tcsim.isa.matrix.semantics import LoadMatrix, SharedMatrix, StoreMatrix, TransposeMatrix
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply
from tcsim.isa.tcgen05.move import LoadTensorMemory, ReduceTensorMemory, StoreTensorMemory, TensorMemoryMove
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore
from tcsim.model.instruction import Instruction


@dataclass(frozen=True)
class Source:
    """One value that goes into the output: in registers (several places are copies), or in memory."""

    operand: str
    row: int
    column: int
    places: tuple[Place, ...] = ()
    memory: str = ""  # where, if it is not in registers

    def __str__(self) -> str:
        return str(self.places[0]) if self.places else self.memory

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "operand": self.operand, "row": self.row, "column": self.column,
            "places": [place.as_dict() for place in self.places], "memory": self.memory or None,
        }  # fmt: skip


@dataclass(frozen=True)
class Feed:
    """The sources of one output."""

    output: Source
    products: tuple[tuple[int, Source, tuple[Source, ...]], ...]  # (k, element of A, elements of B: one, or candidates)
    addend: Source | None
    others: tuple[Source, ...] = ()  # metadata, or the one source of a move

    @property
    def lanes(self) -> dict[str, tuple[int, ...]]:
        """The lanes that hold something, by operand."""
        found: dict[str, set[int]] = {}
        for source in self._all():
            if source.places:
                found.setdefault(source.operand, set()).update(place.lane for place in source.places)
        return {name: tuple(sorted(lanes)) for name, lanes in found.items()}

    def _all(self) -> list[Source]:
        pairs = [source for _, a, b in self.products for source in (a, *b)]
        return [self.output, *pairs, *([self.addend] if self.addend else []), *self.others]

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "output": self.output.as_dict(),
            "products": [
                {"k": k, "a": a.as_dict(), "b": [source.as_dict() for source in b]} for k, a, b in self.products
            ],
            "addend": self.addend.as_dict() if self.addend else None,
            "others": [source.as_dict() for source in self.others],
            "lanes": {name: list(lanes) for name, lanes in self.lanes.items()},
        }


@singledispatch
def feed_of(instruction: Any, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    """What element (row, column) of the result is made of. `selector` counts for sparse instructions only.

    Raises OperandError for an element or selector that does not exist, or an instruction whose sources are not modelled.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> feed = feed_of(mma, 8, 3)
    >>> str(feed.output), feed.lanes["a"], feed.lanes["b"]
    ('d3[31:0] of lane 1', (0, 1, 2, 3), (12, 13, 14, 15))
    """
    raise OperandError(
        f"{instruction!r}: its elements are not fed by fragments that tcsim follows; valid: products and moves of fragments"
    )


def _held(instruction: Instruction, name: str, row: int, column: int, matrix: int) -> Source:
    return Source(name, row, column, places_of(instruction.operands[name], row, column, matrix))


@feed_of.register
def _(instruction: MatrixMultiply, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    products = []
    output = _held(instruction, "d", row, column, matrix)
    for k in range(instruction.shape[2]):
        a = _held(instruction, "a", row, k, matrix)
        products.append((k, a, (_held(instruction, "b", k, column, matrix),)))
    return Feed(output, tuple(products), _held(instruction, "c", row, column, matrix))


@feed_of.register
def _(instruction: SparseMatrixMultiply, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    """Each kept element meets one of the elements of B in its group: metadata says which."""
    sparsity, products = instruction.sparsity, []
    output = _held(instruction, "d", row, column, matrix)
    per_group = sparsity.kept // sparsity.groups
    for kept in range(sparsity.kept):
        first = kept // per_group * sparsity.group
        met = tuple(_held(instruction, "b", k, column, matrix) for k in range(first, first + sparsity.group))
        products.append((kept, _held(instruction, "a", row, kept, matrix), met))
    lanes, bits = sparsity.places(selector)
    words = tuple(
        Source(
            "metadata",
            row,
            group,
            (Place("metadata", 0, row, group, int(lane), 0, int(bit) // 4, int(bit) + 3, int(bit), (0,)),),
        )
        for group, (lane, bit) in enumerate(zip(lanes[row], bits[row], strict=True))
    )
    return Feed(output, tuple(products), _held(instruction, "c", row, column, matrix), words)


@feed_of.register
def _(instruction: WarpgroupMultiply, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    """A from registers or behind a descriptor, B behind a descriptor."""
    products = []
    output = _held(instruction, "d", row, column, matrix)
    for k in range(instruction.operands["a"].shape[1]):
        registers = places_of(instruction.operands["a"], row, k)
        a = Source("a", row, k, registers, f"row {row}, k {k} of descriptor a")
        products.append((k, a, (Source("b", k, column, (), f"row {column}, k {k} of descriptor b"),)))
    return Feed(output, tuple(products), _held(instruction, "c", row, column, matrix))


@feed_of.register
def _(instruction: TransposeMatrix, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    return Feed(_held(instruction, "d", row, column, 0), (), None, (_held(instruction, "a", column, row, 0),))


def _row_place(instruction: SharedMatrix, row: int, column: int, matrix: int) -> str:
    """Which lane's address points to the line of an element, and the bits of it."""
    layout = next(iter(instruction.operands.values())).layout
    line, place = (column, row) if instruction.row.transposed else (row, column)
    lines = layout.columns if instruction.row.transposed else layout.rows
    first = place * instruction.row.stored.bits
    last = first + instruction.row.stored.bits - 1
    return f"bits {last}:{first} from the address of lane {matrix * lines + line}"


@feed_of.register
def _(instruction: LoadMatrix, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    output = _held(instruction, "d", row, column, matrix)
    source = Source("smem", row, column, (), _row_place(instruction, row, column, matrix))
    return Feed(output, (), None, (source,))


@feed_of.register
def _(instruction: StoreMatrix, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    held = _held(instruction, "registers", row, column, matrix)
    output = Source("smem", row, column, (), _row_place(instruction, row, column, matrix))
    return Feed(output, (), None, (held,))


def _tile_place(instruction: FragmentMove, row: int, column: int) -> str:
    line, place = (row, column) if instruction.row_major else (column, row)
    bits = instruction.operand.layout.element_bits
    inside = f"{place * bits // 8}" if place * bits % 8 == 0 else f"{place * bits}/8"
    return f"address + {line} * stride * {bits}/8 + {inside} bytes"


@feed_of.register
def _(instruction: FragmentLoad, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    name = instruction.operand.name
    source = Source("memory", row, column, (), _tile_place(instruction, row, column))
    return Feed(_held(instruction, name, row, column, matrix), (), None, (source,))


@feed_of.register
def _(instruction: FragmentStore, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    held = _held(instruction, instruction.operand.name, row, column, matrix)
    output = Source("memory", row, column, (), _tile_place(instruction, row, column))
    return Feed(output, (), None, (held,))


def _cell(instruction: TensorMemoryMove, row: int, column: int) -> str:
    """Which cell of Tensor Memory an element is, counted from the address; of a packed one the low half."""
    half, inside = divmod(column, instruction.row.half_columns)
    start = " and half_split_offset" if half else ""
    bits = "bits 15:0 of " if instruction.row.packed else ""
    return f"{bits}lane {row}, column {inside} from address{start} on"


@feed_of.register(LoadTensorMemory)
@feed_of.register(ReduceTensorMemory)
def _(instruction: TensorMemoryMove, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    output = _held(instruction, "d", row, column, matrix)
    return Feed(output, (), None, (Source("tmem", row, column, (), _cell(instruction, row, column)),))


@feed_of.register
def _(instruction: StoreTensorMemory, row: int, column: int, matrix: int = 0, selector: int = 0) -> Feed:
    held = _held(instruction, "registers", row, column, matrix)
    return Feed(Source("tmem", row, column, (), _cell(instruction, row, column)), (), None, (held,))


def range_text(numbers: tuple[int, ...]) -> str:
    """Numbers as ranges.

    >>> range_text((0, 1, 2, 5))
    '0-2,5'
    """
    return runs(tuple(sorted(set(numbers))))
