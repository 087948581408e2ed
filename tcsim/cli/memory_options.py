"""The options of `where` and `what` for operands that lie in memory, and which of them an operand needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tcsim.cli import options
from tcsim.core.errors import OperandError
from tcsim.inspection.tensor_memory_text import TENSOR_MEMORY
from tcsim.model.instruction import Instruction

if TYPE_CHECKING:
    from tcsim.inspection.memory_places import SharedOperand

Descriptor = Annotated[
    str | None,
    typer.Option("--descriptor", help="Of an operand in shared memory: the 64 bits that read it.", metavar="VALUE"),
]
Swizzle = Annotated[
    str | None,
    typer.Option(
        "--swizzle",
        help="Without a descriptor: of a canonical tile. Default 128B.",
        autocompletion=options.complete_swizzle,
    ),
]
Major = Annotated[str | None, typer.Option("--major", help="K or MN. Default K, or what --idesc says.")]
Start = Annotated[str, typer.Option("--start", help="Shared address of a tile's first byte.")]
TileK = Annotated[int, typer.Option("--k", help="K of the whole tile; default: of one instruction.")]
Address = Annotated[str, typer.Option("--address", help="Tensor Memory address of the matrix.")]
InTmem = Annotated[bool, typer.Option("--tmem", help="A comes from Tensor Memory.")]


def place_of(instruction: Instruction, operand: str | None, asked: bool, tmem: bool) -> str:
    """Where an operand is: "registers", "shared" or "tmem"; `asked`: options of shared memory were given."""
    name = (operand or "").lower()
    if instruction.row.family.startswith(TENSOR_MEMORY):
        if not name:
            raise OperandError(f"{instruction.mnemonic}: which operand? valid: a, b, d, scale_a, scale_b, metadata")
        return "shared" if name in ("a", "b") and not tmem else "tmem"
    described = instruction.row.family in ("wgmma", "wgmma.sp") and name in ("a", "b")
    return "shared" if described and (asked or name not in instruction.operands) else "registers"


def shared_of(
    instruction: Instruction, operand: str, descriptor: str | None, swizzle: str | None, major: str | None, start: str, k: int,
    idesc: str | None,
) -> SharedOperand:  # fmt: skip
    """The matrix in shared memory that the options say."""
    from tcsim.inspection.memory_places import shared_operand  # the families behind descriptors: registers do without

    number = None if descriptor is None else options.integer_of(descriptor, "--descriptor")
    lies: Any = major.upper() if major else None
    return shared_operand(
        instruction, operand.lower(), number, (swizzle or "128B").upper(), lies, options.integer_of(start, "--start"), k,
        idesc_of(idesc),
    )  # fmt: skip


def idesc_of(idesc: str | None) -> int | None:
    """The instruction descriptor of --idesc."""
    return None if idesc is None else options.integer_of(idesc, "--idesc")
