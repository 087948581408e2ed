"""One self-contained HTML page of an instruction, or of a tile that a descriptor reads: hover, search, arrow keys.

The page holds its data as JSON and draws itself; it needs no server and no network. Layouts go in as CuTe shape:stride, so
that a page stays small whatever the fragment.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.matrix import CanonicalTile, Major, MatrixDescriptor
from tcsim.inspection.description import describe
from tcsim.inspection.descriptor_fields import fields_of
from tcsim.inspection.page_file import filled
from tcsim.inspection.places import no_fragments
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.numbers.formats import Format
from tcsim.numbers.formats import format as find_format
from tcsim.numbers.packing import field_shift

MOST_ELEMENTS = 1 << 15
"""Elements of a tile that one page shows."""

_FORMS = {
    "fragment": 'search for an element "a 3,7", a register "5 a2" or a lane "lane 5"',
    "memory": 'search for an element "3,7" or a byte "0x90"',
}
_HINT = "Point at an element."


def instruction_page(instruction: Instruction) -> str:
    """The page of an instruction: every fragment as matrix and as registers, and what is known of it.

    Raises OperandError for an instruction that has no fragments.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> page = instruction_page(mma)
    >>> page[:15], len(page) < 300_000
    ('<!doctype html>', True)
    """
    if not instruction.operands:
        raise OperandError(f"{instruction!r} has no fragments to show: {no_fragments(instruction)}")
    known = describe(instruction)
    shapes = {name: operand.shape for name, operand in instruction.operands.items()}
    views = [
        _fragment_view(operand, shapes)
        for operand in instruction.operands.values()
        if not _is_also_d(operand, instruction)
    ]
    what = [
        ("types", ", ".join(f"{name} {kind}" for name, kind in known.types.items())),
        ("targets", ", ".join(known.targets)),
        *(("constraint", line) for line in known.constraints),
        *(("execution", line) for line in known.execution),
    ]
    arithmetic = [(f"step {number}", text) for number, text in enumerate(known.steps, 1)]
    parts = [("What it is", what), *([(f"Arithmetic: {known.lowering_kind}", arithmetic)] if arithmetic else [])]
    for operand in known.operands:
        rows = [("layout", operand.layout), ("index", operand.index), *(("", text) for text in operand.formulas)]
        parts.append((f"Fragment {operand.name}", rows))
    evidence = f"evidence {known.evidence_level}: {known.evidence_source}"
    return _page(f"{instruction.mnemonic} on {instruction.arch.name}", views, parts, "fragment", evidence)


def tile_page(tile: CanonicalTile) -> str:
    """The page of a canonical tile: every element's shared byte, the memory line by line with its banks.

    Raises OperandError for a tile of more than `MOST_ELEMENTS` elements.

    >>> tile = tcsim.MatrixDescriptor.for_tile(64, 64, "f16", "K", "128B")
    >>> "banks" in tile_page(tile)
    True
    """
    own = tile.descriptor
    rows = [
        ("layout", f"{tile.swizzle} of {tile.layout}, in elements"),
        ("bytes", f"{tile.bytes}"),
        *(
            (f"K step {number}", f"{descriptor.encode():#018x}: start + {advance} bytes")
            for number, (advance, descriptor) in enumerate(zip(tile.advances, tile.descriptors, strict=True))
        ),
    ]
    title = f"{tile.rows} x {tile.k} {tile.format.name}, {tile.major}-major, swizzle {own.swizzle}"
    view = _memory_view(tile.addresses, tile.format, tile.bits, tile.major)
    return _page(title, [view], [("Tile", rows), ("Descriptor", _fields(own))], "memory")


def descriptor_page(
    descriptor: MatrixDescriptor, rows: int, k: int, format: str | Format, major: Major = "K", kind: str = ""
) -> str:
    """The page of what a descriptor reads: a tile of rows x k elements, whatever lies there, and what is wrong with it.

    Raises OperandError for more than `MOST_ELEMENTS` elements, and as `MatrixDescriptor.addresses` does.

    >>> descriptor = tcsim.MatrixDescriptor(stride_byte_offset=1024, swizzle="128B")
    >>> "0x4000004000000000" in descriptor_page(descriptor, 64, 16, "f16")
    True
    """
    element = find_format(format)
    found = descriptor.check(rows, k, element, major, kind=kind)
    bits = element.container_bits if element.bits >= 8 else element.bits
    view = _memory_view(descriptor.addresses(rows, k, element, major, kind), element, bits, major)
    verdict = "every element has a place of its own inside memory" if found.ok else "wrong"
    notes = [("verdict", verdict), *(("note", message) for message in found.messages)]
    title = f"{descriptor.encode():#018x} reads {rows} x {k} {element.name}, {major}-major"
    return _page(title, [view], [("Check", notes), ("Descriptor", _fields(descriptor))], "memory")


def _fields(descriptor: MatrixDescriptor) -> list[tuple[str, str]]:
    return [(f"bits {own.high}:{own.low}", f"{own.name} = {own.value}: {own.meaning}") for own in fields_of(descriptor)]


def _layout(layout: Layout) -> dict[str, Any]:
    return {"shape": layout.shape, "stride": layout.stride}


def _is_also_d(operand: Fragment, instruction: Instruction) -> bool:
    """c lies where d lies: one picture is enough."""
    d = instruction.operands.get("d")
    return operand.name == "c" and d is not None and (d.layout, d.format) == (operand.layout, operand.format)


def _fragment_view(operand: Fragment, shapes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    layout = operand.layout
    bits = layout.element_bits
    dense = {"a", "b"} <= shapes.keys() and shapes["a"][1] == shapes["b"][0]  # of a sparse A the kept half is there
    multiplied = operand.name in "cd" and dense and shapes.get("d") == operand.shape
    return {
        "id": operand.name,
        "name": operand.name,
        "title": f"{operand.name}: {operand.shape[0]} x {operand.shape[1]} {operand.format.name}",
        "rows": layout.rows,
        "columns": layout.columns,
        "matrices": layout.matrices,
        "bits": bits,
        "width": min(bits, operand.format.bits + operand.format.ignored_low_bits),
        "shift": field_shift(operand.format, bits) if bits < 32 else 0,
        "thread": _layout(layout.thread),
        "value": _layout(layout.value),
        "columnFastest": layout.column_fastest,
        "matrix": None if layout.matrix is None else _layout(layout.matrix),
        "elements": None
        if type(layout) is FragmentLayout
        else _words(layout.flat_element),  # thread and value do not say all
        "fedBy": ["a", "b"] if multiplied else None,
    }


def _memory_view(addresses: Any, format: Format, bits: int, major: str) -> dict[str, Any]:
    if addresses.size > MOST_ELEMENTS:
        raise OperandError(
            f"a page of {addresses.size} elements: valid are at most {MOST_ELEMENTS}; show a part of the tile"
        )
    rows, columns = addresses.shape
    return {
        "id": "tile",
        "name": "tile",
        "title": f"{rows} x {columns} {format.name} in shared memory",
        "rows": rows,
        "columns": columns,
        "bits": bits,
        "major": major,
        "along": "M or N",
        "addresses": _words(addresses),
    }


def _words(numbers: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, "<u4").tobytes()).decode("ascii")


def _page(
    title: str,
    views: list[dict[str, Any]],
    facts: list[tuple[str, list[tuple[str, str]]]],
    kind: str,
    evidence: str = "",
) -> str:
    if kind not in _FORMS:
        raise OperandError(f"no page of kind {kind!r}; valid: {listing(_FORMS)}")
    data = {
        "title": title,
        "evidence": evidence,
        "hint": _HINT,
        "forms": _FORMS[kind],
        "views": views,
        "facts": [{"title": name, "rows": rows} for name, rows in facts],
    }
    return filled(data)
