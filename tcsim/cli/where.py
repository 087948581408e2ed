"""`tcsim where`: from an element to the register, the byte of shared memory or the cell of Tensor Memory that holds it."""

from __future__ import annotations

from typing import Any

from tcsim.cli import memory_options as memory
from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.memory_places import cell_text, tensor_memory_operand
from tcsim.inspection.places import Place, operand_of, places_of
from tcsim.inspection.report import Lines, Report


@memory.in_memory
def where(
    mnemonic: options.Mnemonic,
    element: options.Element,
    operand: options.Operand = None,
    matrix: options.Matrix = 0,
    address: memory.Address = "0",
    *,
    lies: memory.Lies,
    arch: options.Arch = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say where an element lies: lane and register, byte of shared memory, or cell of Tensor Memory."""
    instruction = options.instruction_of(mnemonic, arch)
    row, column = options.element_of(element)
    kind = lies.home(instruction, operand)
    if kind == "registers":
        chosen = operand_of(instruction, operand)
        places = places_of(chosen, row, column, matrix)
        name, found = chosen.name, [place.as_dict() for place in places]
        lines = _lines(chosen, places)
    elif kind == "shared":
        name = str(operand).lower()
        own = lies.shared(instruction, name)
        place = own.place(row, column)
        found = [place.as_dict()]
        pair = f" of CTA {place.cta}" if own.ctas > 1 else ""
        lines = [f"{name}({row}, {column}) is {place}{pair}", f"descriptor {own.descriptor.encode():#018x}: LBO "
                 f"{own.descriptor.leading_byte_offset}, SBO {own.descriptor.stride_byte_offset} bytes, swizzle {own.descriptor.swizzle}"]  # fmt: skip
    else:
        name = str(operand).lower()
        layout = tensor_memory_operand(instruction, name, lies.words)
        base = options.integer_of(address, "--address")
        cells = [layout.where(row, column, copy) for copy in range(layout.copies)]
        found = [dict(zip(("cta", "lane", "column", "slot"), cell, strict=True)) for cell in cells]
        lines = [f"{name}({row}, {column}) is {cell_text(layout, cell, base)}" for cell in cells]
    data = {
        "mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "operand": name, "row": row, "column": column,
        "matrix": matrix, "places": found,
    }  # fmt: skip
    emit("where", lambda: data, lambda: Report("", (Lines(tuple(lines)),)), json=json, html=html)


def _lines(operand: Any, places: tuple[Place, ...]) -> list[str]:
    first = places[0]
    which = f", matrix {first.matrix}" if operand.layout.matrices > 1 else ""
    head = f"{operand.name}({first.row}, {first.column}){which} is "
    lines = [f"{head}{places[0]}"]
    return lines + [f"{'and ' * bool(head)}".rjust(len(head)) + str(place) for place in places[1:]]
