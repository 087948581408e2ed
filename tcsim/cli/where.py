"""`tcsim where`: from an element to the register that holds it."""

from __future__ import annotations

from typing import Any

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.places import Place, operand_of, places_of
from tcsim.inspection.report import Lines, Report


def where(
    mnemonic: options.Mnemonic,
    element: options.Element,
    operand: options.Operand = None,
    matrix: options.Matrix = 0,
    arch: options.Arch = None,
    json: options.Json = False,
) -> None:
    """Say which lane and register hold an element."""
    instruction = options.instruction_of(mnemonic, arch)
    chosen = operand_of(instruction, operand)
    row, column = options.element_of(element)
    places = places_of(chosen, row, column, matrix)
    data = {
        "mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "operand": chosen.name, "row": row, "column": column,
        "matrix": matrix, "places": [place.as_dict() for place in places],
    }  # fmt: skip
    emit(
        "where",
        lambda: data,
        lambda: Report("", (Lines(tuple(_lines(chosen, places))),)),
        form="json" if json else "text",
    )


def _lines(operand: Any, places: tuple[Place, ...]) -> list[str]:
    first = places[0]
    which = f", matrix {first.matrix}" if operand.layout.matrices > 1 else ""
    head = f"{operand.name}({first.row}, {first.column}){which} is "
    lines = [f"{head}{places[0]}"]
    return lines + [f"{'and ' * bool(head)}".rjust(len(head)) + str(place) for place in places[1:]]
