"""What rows of ordinary instructions write through: lines of generated source, and who gives the names that stand in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tcsim.model.statement import Instruction, Operand, Register


class Line(NamedTuple):
    """A line of generated source, and what is known of it."""

    text: str
    calls_machine: bool = False
    ends: bool = False  # whether it says where the threads go next: the last line of a block
    bound: Any = None  # the instruction of the catalog that it runs, and nothing else

    @property
    def source(self) -> str:
        """The line as Python."""
        return f"return {self.text}" if self.ends else self.text


Lines = list[Line]


def machine(text: str, ends: bool = False) -> Line:
    """A line that calls the machine."""
    return Line(text, True, ends)


class Emitter(Protocol):
    """A function of a program while its source is written."""

    index: int  # in the function's body, of the instruction that is written
    block: int  # the number of its basic block
    watched: bool  # whether an observer is attached
    tells_order: bool  # whether atomics tell or leave what may depend on the order of threads
    competes: bool  # whether blocks may see in which order they come: by atomics outside of shared memory

    @property
    def following(self) -> int:
        """The block that begins behind the instruction; -1 for none."""

    @property
    def home(self) -> int:
        """The block in which the function returns; -1 where its end is that of the thread."""

    @property
    def guard(self) -> str:
        """The source of the instruction's predicate; empty for none."""

    def label(self, name: str) -> int:
        """The block at a label."""

    def targets(self, table: Operand | None) -> tuple[int, ...] | None:
        """The blocks of a list of branch targets; None for what is not one."""

    def constant(self, value: Any) -> str:
        """The name of a constant."""

    def register(self, operand: Register) -> str:
        """The array of a register."""

    def type_of(self, operand: Register) -> str:
        """The declared type of a register."""

    def error(self, message: str) -> ValueError:
        """An error at the instruction."""

    def value(self, operand: Operand, type: str) -> str:
        """The source of an operand as codes of a type."""

    def put(self, operand: Operand, source: str, type: str, calls_machine: bool = False) -> Line:
        """The statement that assigns codes of a type to a destination."""

    def place(self, operand: Operand, space: str) -> tuple[str, str]:
        """The source of an address as 64 bits, and its state space."""

    def space_of(self, name: str) -> str:
        """The state space of a variable."""

    def narrow(self, space: str, size: int) -> None:
        """Count the bytes of an ordinary access, in a state space or, without one, in any."""

    def is_read(self, to: Operand) -> bool:
        """Whether what the instruction writes to an operand may be read."""
        ...

    def needed(self, to: Operand) -> int:
        """The bits that matter of what the instruction writes to an operand."""


Emit = Callable[[Emitter, Instruction], Lines]
"""How an instruction becomes source."""
