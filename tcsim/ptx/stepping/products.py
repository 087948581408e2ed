"""What an element of a matrix product was made of: the bytes of its row of A, of its column of B, and of the accumulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.isa.mma.product import MatrixProduct
from tcsim.isa.tcgen05.multiply_operands import Multiplication
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.stepping.log import Asked, Work
from tcsim.ptx.stepping.matrices import operands_of, registers_of
from tcsim.ptx.stepping.moves import DIGIT, Numbered, Tagged, by_digits, octets_of
from tcsim.ptx.stepping.places import Byte, taken_apart

Cell = tuple[int, int, int]
"""Unit (warp, warpgroup or instruction), row and column of D."""


@dataclass(eq=False)
class Factors:
    """The elements that some elements of D were made of: name, and the bytes of each element in the order of K."""

    d: str  # "D[0, 1]"
    parts: tuple[tuple[str, tuple[tuple[Byte, ...], ...]], ...]  # ("A[0, 0:16]", elements)


def is_product(asked: Asked, work: Work | None) -> bool:
    """Whether an instruction multiplies matrices in a way that is followed element by element."""
    if work is not None and isinstance(getattr(work.pending.fetch, "__self__", None), Multiplication):
        return True
    return isinstance(asked.bound.model, MatrixProduct)


def factors(site: Site, asked: Asked, work: Work | None, block: int, bytes: Iterable[Byte]) -> Factors:
    """What the elements of D that hold some bytes were made of."""
    multiplication = getattr(work.pending.fetch, "__self__", None) if work is not None else None
    if work is not None and isinstance(multiplication, Multiplication):
        return _in_tensor_memory(multiplication, asked, work, bytes)
    cells = _cells(site, asked, bytes)
    found: dict[str, list[tuple[Byte, ...]]] = {"A": [], "B": [], "C": []}
    rows, columns = _unique((unit, row) for unit, row, _ in cells), _unique((unit, column) for unit, _, column in cells)
    codes = None
    if work is not None and isinstance(asked.bound.model, WarpgroupMultiply):
        held = "a" in asked.bound.model.operands and asked.bound.form["a"].kind == "vector"
        codes = _fetched(asked, work, lambda taken: {name: getattr(taken, name) for name in ("b" if held else "ab")})
    depth = asked.bound.model.shape[2]
    kept = depth
    for name, label, lines in (("a", "A", rows), ("b", "B", columns)):
        if codes is not None and asked.bound.model.formats[name].kind == "bit":
            continue  # several elements in a byte
        for unit, line in lines:
            if codes is not None and name in codes:
                matrix = codes[name][int(np.searchsorted(asked.threads, unit * asked.bound.lanes)) // asked.bound.lanes]
                own = matrix[line] if name == "a" else matrix[:, line]
                assert work is not None
                elements = [_numbered(Numbered(work.reads, (), block), numbers) for numbers in own]
            else:
                layout = _layout(asked, name)
                extent = layout.columns if name == "a" else layout.rows
                places = [(line, k) if name == "a" else (k, line) for k in range(extent)]
                elements = [_held(site, asked, block, name, unit, *place) for place in places]
            kept = len(elements) if name == "a" else kept
            found[label] += elements
    accumulator = "c" if "c" in asked.bound.form else "d"
    adds = np.asarray(asked.operands.get("scale_d", True)).any()
    for unit, row, column in cells if adds else ():
        found["C"].append(_held(site, asked, block, accumulator, unit, row, column))
    return _named(cells, found, kept, depth)


def _named(cells: Sequence[Cell], found: Mapping[str, list[tuple[Byte, ...]]], width: int, depth: int) -> Factors:
    """The elements with the names of what they are of; width: columns of A, depth: rows of B."""
    rows, columns = _extent(row for _, row, _ in cells), _extent(column for _, _, column in cells)
    texts = {"A": f"A[{rows}, 0:{width}]", "B": f"B[0:{depth}, {columns}]", "C": f"C[{rows}, {columns}]"}
    parts = tuple((text, tuple(own for own in found[name] if own)) for name, text in texts.items())
    return Factors(f"D[{rows}, {columns}]", parts)


def _unique(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _extent(numbers: Iterable[int]) -> str:
    own = sorted(set(numbers))
    if len(own) == 1:
        return str(own[0])
    whole = own == list(range(own[0], own[-1] + 1))
    return f"{own[0]}:{own[-1] + 1}" if whole else ",".join(map(str, own[:4])) + ("..." if len(own) > 4 else "")


# --- registers


def _layout(asked: Asked, name: str) -> FragmentLayout:
    found: FragmentLayout = asked.bound.model.operands[name].layout
    return found


def _cells(site: Site, asked: Asked, bytes: Iterable[Byte]) -> list[Cell]:
    """The elements of D that registers hold."""
    numbers = registers_of(site, operands_of(site, asked.bound)["d"])
    layout, lanes = _layout(asked, "d"), max(asked.bound.lanes, LANES)
    wide = 2 if layout.element_bits > 32 else 1
    found = []
    for byte in bytes:
        if isinstance(byte, int) or byte[1] not in numbers:
            continue
        _, number, thread, at = byte
        unit, lane = divmod(thread, lanes)
        word = numbers.index(number) * wide + (at // 4 if wide > 1 else 0)
        row, column = layout(lane, word, at % 4 * 8 // layout.element_bits if wide == 1 else 0)
        matrix = 0 if layout.matrix is None else int(layout.matrix(lane))
        found.append((unit * layout.matrices + matrix, int(row), int(column)))
    return _unique(found)


def _held(site: Site, asked: Asked, block: int, name: str, unit: int, row: int, column: int) -> tuple[Byte, ...]:
    """The bytes of an element in registers; none where the operand is a number."""
    layout, lanes = _layout(asked, name), max(asked.bound.lanes, LANES)
    unit, matrix = divmod(unit, _layout(asked, "d").matrices)
    lane, word, slot = layout.where(row, column, matrix if layout.matrices > 1 else 0)
    wide = 2 if layout.element_bits > 32 else 1
    number = registers_of(site, operands_of(site, asked.bound)[name])[word // wide]
    if number is None:
        return ()
    first = slot * layout.element_bits // 8
    return tuple((block, number, unit * lanes + lane, first + at) for at in range(max(1, layout.element_bits // 8)))


# --- shared memory and Tensor Memory


def _fetched(asked: Asked, work: Work, codes: Callable[[Any], Mapping[Any, Array]]) -> dict[Any, Array]:
    """The numbers of the bytes of elements that come from memory: (..., bytes). codes: those of what work fetches."""
    if work.moved is None:

        def octets(digit: int) -> Mapping[Any, Array]:
            found = codes(work.pending.fetch(Tagged(asked, work.reads, digit)))
            return {key: _seven(own) for key, own in found.items()}

        work.moved = by_digits(sum(Numbered(work.reads, (), 0).sizes), octets)
    kept: dict[Any, Array] = work.moved
    return kept


def _seven(codes: Array) -> Array:
    """Codes as their bytes, of each seven bits."""
    return octets_of(codes).reshape(*codes.shape, codes.dtype.itemsize) & (1 << DIGIT) - 1


def _numbered(numbered: Numbered, numbers: Array) -> tuple[Byte, ...]:
    """The bytes of one element, from the number of the highest: of tf32 the lowest bits are not read."""
    top, size = int(numbers[-1]), len(numbers)
    found = [numbered.byte(number) for number in range(top - size + 1, top + 1) if top]
    return tuple(own for own in found if own is not None)


def _in_tensor_memory(own: Multiplication, asked: Asked, work: Work, bytes: Iterable[Byte]) -> Factors:
    places = _unique(cell for byte in bytes if isinstance(byte, int) for cell in _tensor_cell(own, byte))
    rows, columns = _unique(row for row, _ in places), _unique(column for _, column in places)
    banks = _fetched(asked, work, lambda parts: {(name, n): own[name] for n, own in enumerate(parts) for name in "abc"})
    width, numbered = own.desc.n // (len(banks) // 3), Numbered(work.reads, (), work.record.block)
    found: dict[str, list[tuple[Byte, ...]]] = {"A": [], "B": [], "C": []}
    whole = {name: own.plan.formats[name].bits >= 8 and not own.row.lookup for name in "ab"}
    for row in rows if whole["a"] else ():
        found["A"] += [_numbered(numbered, numbers) for numbers in banks["a", 0][row]]
    for column in columns if whole["b"] else ():
        found["B"] += [_numbered(numbered, numbers) for numbers in banks["b", column // width][:, column % width]]
    for row, column in places:
        found["C"].append(_numbered(numbered, banks["c", column // width][row, column % width]))
    cells = [(0, row, column) for row, column in places]
    return _named(cells, found, len(found["A"]) // max(len(rows), 1), len(found["B"]) // max(len(columns), 1))


def _tensor_cell(own: Multiplication, byte: int) -> Iterable[tuple[int, int]]:
    """The element of D in a cell."""
    desc, offset = own.desc, taken_apart(byte).offset
    places = np.arange(desc.m * desc.n, dtype=np.uint32).reshape(desc.m, desc.n) + 1
    for write in own.d.writes(places, own._disabled):
        addresses = write.at.address.reshape(-1)
        for row in np.flatnonzero((addresses <= offset) & (addresses + write.at.size > offset)).tolist():
            words = np.ascontiguousarray(write.data.reshape(-1, write.at.size)[row]).view("<u4")
            number = int(words[(offset - int(addresses[row])) // 4])
            if number:
                yield divmod(number - 1, desc.n)
