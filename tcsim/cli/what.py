"""`tcsim what`: from a register, a byte of shared memory or a cell of Tensor Memory to the elements that it holds."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from tcsim.cli import memory_options as memory
from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.core.errors import OperandError, shortened
from tcsim.inspection.memory_places import tensor_memory_operand
from tcsim.inspection.places import contents_of, operand_of
from tcsim.inspection.report import Report, table


@memory.in_memory
def what(
    mnemonic: options.Mnemonic,
    lane: Annotated[int | None, typer.Option("--lane", "-l", help="Lane, from 0.")] = None,
    register: Annotated[
        str | None, typer.Option("--register", "-r", help="Number of the PTX register, or its name: 2, a2.")
    ] = None,
    operand: options.Operand = None,
    byte: Annotated[str | None, typer.Option("--byte", help="Byte of shared memory.")] = None,
    column: Annotated[int | None, typer.Option("--column", help="Column of Tensor Memory, from the matrix's.")] = None,
    *,
    lies: memory.Lies,
    arch: options.Arch = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Say which elements a register of a lane, a byte or a cell holds."""
    instruction = options.instruction_of(mnemonic, arch)
    head: tuple[str, ...]
    if byte is not None:
        name = str(operand).lower()
        number = options.integer_of(byte, "--byte")
        shared = lies.shared(instruction, name)
        found = shared.at_byte(number)
        asked: dict[str, Any] = {"byte": number}
        title, head = f"byte {number:#x} of {name}: {shared.format.name}", ("begins", "row", "column")
        rows: list[tuple[Any, ...]] = [
            (f"{one.byte:#x}" + f".{one.bit}" * (one.bits < 8), one.row, one.column) for one in found
        ]
        data = [one.as_dict() for one in found]
    elif column is not None:
        name = str(operand).lower()
        layout = tensor_memory_operand(instruction, name, lies.words)
        cells = [
            (cta, slot, *layout(_lane(lane), column, slot, cta))
            for cta in range(layout.ctas)
            for slot in range(layout.slots)
        ]
        asked = {"lane": lane, "column": column}
        title, head = f"lane {lane}, column {column} of {name}: {layout}", ("CTA", "slot", "row", "column")
        rows = list(cells)
        data = [dict(zip(("cta", "slot", "row", "column"), cell, strict=True)) for cell in cells]
    else:
        if register is None:
            raise OperandError(
                "what is asked about? valid: --lane and --register; --byte; --lane and --column of Tensor Memory"
            )
        own, number = _register(register, instruction, operand)
        chosen = operand_of(instruction, own)
        places = contents_of(chosen, _lane(lane), number)
        several = chosen.layout.matrices > 1
        name, asked = chosen.name, {"lane": lane, "register": number}
        head = ("bits", *(("matrix",) if several else ()), "row", "column")
        rows = [(place.name, *((place.matrix,) if several else ()), place.row, place.column) for place in places]
        title = f"{chosen.name}{number} of lane {lane}: {chosen.format.name}"
        data = [place.as_dict() for place in places]
    answer = {"mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "operand": name, **asked, "places": data}
    right = tuple(range(1, len(head)))
    emit(
        "what",
        lambda: answer,
        lambda: Report(title, (table(head, rows, right=right),)),
        json=json,
        html=html,
    )


def _lane(lane: int | None) -> int:
    if lane is None:
        raise OperandError("which lane? valid: --lane N")
    return lane


def _register(text: str, instruction: Any, operand: str | None) -> tuple[str | None, int]:
    """The operand and the number that "2" or "a2" name."""
    found = re.fullmatch(r"%?([a-z]*)([0-9]{1,9})", text.strip().lower())
    if found is None or (found[1] and operand is not None and found[1] != operand.lower()):
        names = ", ".join(f"{name}0 to {name}{own.count - 1}" for name, own in instruction.operands.items())
        raise OperandError(f"--register {shortened(text)}: valid: a number, or {names}")
    return found[1] or operand, int(found[2])
