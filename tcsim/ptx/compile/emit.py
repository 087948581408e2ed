"""What the parts of the compiler write through: names of registers and constants, places of variables, errors at an instruction."""

from __future__ import annotations

from typing import Any, Protocol

from tcsim.ptx.compile.compiled import Context
from tcsim.ptx.compile.contraction import Choices
from tcsim.ptx.text.syntax import Function, Instruction, Operand, PtxError, Register


class Emitter(Protocol):
    """A function while its source is written (`tcsim.ptx.compile.program.Compiler`)."""

    function: Function
    context: Context  # what the functions of a program share
    instruction: Instruction | None  # that is compiled
    index: int  # its place in the body
    number_of_block: int
    numbers: dict[str, int]  # of registers, by name
    block_of: dict[int, int]  # by the first instruction of a block: its number
    sites: dict[int, int]  # of calls with results, by instruction: the block that takes them
    bounds: dict[str, Any]  # of lines of source: the instruction of the catalog that they run, and nothing else
    framed: bool  # whether its variables lie on the stack
    frame_bytes: int
    base: str  # the register that holds where the frame begins
    local: dict[str, int]  # where variables lie in local memory, or in the frame
    choices: Choices  # what the assembler makes of what the PTX leaves open
    # By register that may hold a product: the two registers that keep its factors, and the one that says whether it does.
    factors: dict[str, tuple[str, str, str]]

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        ...

    def register(self, operand: Register) -> str:
        """The array of a register."""
        ...

    def type_of(self, operand: Register) -> str:
        """The declared type of a register."""
        ...

    def error(self, message: str) -> PtxError:
        """An error at the instruction that is compiled."""
        ...

    def require(self, targets: frozenset[str], number: int = 0) -> None:
        """Raise PtxError if the module's target does not have an instruction."""
        ...

    def value(self, operand: Operand, type: str) -> str:
        """The source of an operand as codes of a type."""
        ...

    def put(self, operand: Operand, source: str, type: str) -> str:
        """The statement that assigns codes of a type to a destination."""
        ...

    def place(self, operand: Operand, space: str) -> tuple[str, str]:
        """The source of an address as 64 bits, and its state space."""
        ...

    def space_of(self, name: str) -> str:
        """The state space of a variable."""
        ...

    def narrow(self, space: str, size: int) -> None:
        """Count the bytes of an ordinary access, in a state space or, without one, in any."""
        ...

    def needed(self, to: Operand) -> int:
        """The bits that matter of what an instruction writes to an operand."""
        ...

    def after(self, index: int) -> int:
        """The block that begins with an instruction; -1 for none."""
        ...
