"""`tcsim what`: from a register to the elements that it holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError, shortened
from tcsim.inspection.places import contents_of, operand_of
from tcsim.inspection.report import Report, table


def what(
    mnemonic: options.Mnemonic,
    lane: Annotated[int, typer.Option("--lane", "-l", help="Lane, from 0.")],
    register: Annotated[str, typer.Option("--register", "-r", help="Number of the PTX register, or its name: 2, a2.")],
    operand: options.Operand = None,
    arch: options.Arch = None,
    json: options.Json = False,
) -> None:
    """Say which elements a register of a lane holds."""
    instruction = options.instruction_of(mnemonic, arch)
    name, number = _register(register, instruction, operand)
    chosen = operand_of(instruction, name)
    places = contents_of(chosen, lane, number)
    data = {
        "mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "operand": chosen.name, "lane": lane, "register": number,
        "places": [place.as_dict() for place in places],
    }  # fmt: skip
    several = chosen.layout.matrices > 1
    head = ("bits", *(("matrix",) if several else ()), "row", "column")
    rows = [(place.name, *((place.matrix,) if several else ()), place.row, place.column) for place in places]
    right = tuple(range(1, len(head)))
    title = f"{chosen.name}{number} of lane {lane}: {chosen.format.name}"
    emit(
        "what", lambda: data, lambda: Report(title, (table(head, rows, right=right),)), form="json" if json else "text"
    )


def _register(text: str, instruction: Any, operand: str | None) -> tuple[str | None, int]:
    """The operand and the number that "2" or "a2" name."""
    found = re.fullmatch(r"%?([a-z]*)([0-9]{1,9})", text.strip().lower())
    if found is None or (found[1] and operand is not None and found[1] != operand.lower()):
        names = ", ".join(f"{name}0 to {name}{own.count - 1}" for name, own in instruction.operands.items())
        raise OperandError(f"--register {shortened(text)}: valid: a number, or {names}")
    return found[1] or operand, int(found[2])
