"""The options of `where` and `what` for operands that lie in memory, and which of them an operand needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import typer

from tcsim.cli import options
from tcsim.core.errors import OperandError
from tcsim.inspection.memory_places import TENSOR_MEMORY, SharedOperand, shared_operand
from tcsim.model.instruction import Instruction

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


@dataclass(frozen=True)
class Lies:
    """Where an operand lies in memory, as the options say it."""

    descriptor: Descriptor = None
    swizzle: Swizzle = None
    major: Major = None
    start: Start = "0"
    k: TileK = 0
    idesc: options.Idesc = None
    tmem: InTmem = False

    @property
    def words(self) -> int | None:
        """The instruction descriptor."""
        return None if self.idesc is None else options.integer_of(self.idesc, "--idesc")

    def home(self, instruction: Instruction, operand: str | None) -> str:
        """Where an operand is: "registers", "shared" or "tmem".

        Raises OperandError if none is named and the instruction has them in several places.
        """
        name = (operand or "").lower()
        if instruction.row.family.startswith(TENSOR_MEMORY):
            if not name:
                raise OperandError(f"{instruction.mnemonic}: which operand? valid: a, b, d, scale_a, scale_b, metadata")
            return "shared" if name in ("a", "b") and not self.tmem else "tmem"
        asked = bool(self.descriptor or self.swizzle or self.major or self.k)
        described = instruction.row.family in ("wgmma", "wgmma.sp") and name in ("a", "b")
        return "shared" if described and (asked or name not in instruction.operands) else "registers"

    def shared(self, instruction: Instruction, operand: str) -> SharedOperand:
        """The matrix in shared memory."""
        number = None if self.descriptor is None else options.integer_of(self.descriptor, "--descriptor")
        major: Any = self.major.upper() if self.major else None
        return shared_operand(
            instruction, operand.lower(), number, (self.swizzle or "128B").upper(), major,
            options.integer_of(self.start, "--start"), self.k, self.words,
        )  # fmt: skip


def in_memory(command: Callable[..., None]) -> Callable[..., None]:
    """A subcommand whose parameter `lies` is the options of `Lies`."""
    own, shared = (
        {
            name: item.replace(annotation=get_type_hints(kind, include_extras=True)[name], kind=Parameter.KEYWORD_ONLY)
            for name, item in signature(kind).parameters.items()
        }
        for kind in (command, Lies)
    )

    @wraps(command)
    def spread(**given: Any) -> None:
        command(lies=Lies(**{name: given.pop(name) for name in shared}), **given)

    del own["lies"]
    last = {name: own.pop(name) for name in ("arch", "json")}
    listed = own | shared | last
    spread.__signature__ = signature(command).replace(parameters=list(listed.values()))  # type: ignore[attr-defined]
    spread.__annotations__ = {name: item.annotation for name, item in listed.items()}
    return spread
