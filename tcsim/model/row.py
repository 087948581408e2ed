"""One PTX spelling as data: its row, and the fragments of its register operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tcsim.core.errors import OperandError, listing
from tcsim.core.targets import ARCHS, TARGETS, Arch
from tcsim.layouts.layout import FragmentLayout
from tcsim.numbers.formats import Format


@dataclass(frozen=True)
class Operand:
    """One register operand: its number format and where its elements live."""

    name: str  # "a", "b", "c" or "d"
    format: Format
    layout: FragmentLayout
    register_type: str  # how PTX declares one register: ".b32", ".f32", ".s32" or ".f64"

    @property
    def lanes(self) -> int:
        """Lanes that hold the operand: 32 for a warp."""
        return self.layout.lanes

    @property
    def registers(self) -> int:
        """32-bit registers per lane: the last axis of the register array; an f64 register counts two."""
        return self.layout.registers

    @property
    def ptx_registers(self) -> int:
        """Registers of the PTX operand vector: an f64 register counts one."""
        return self.registers // (2 if self.layout.element_bits == 64 else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        return self.layout.rows, self.layout.columns


class MissingOperandError(OperandError, KeyError):
    """A register operand that the instruction has not."""

    __str__ = OperandError.__str__


class _Operands(dict[str, Operand]):
    """Operands by name, which says what there is if asked for another."""

    def __init__(self, mnemonic: str, operands: Mapping[str, Operand]) -> None:
        super().__init__(operands)
        self._mnemonic = mnemonic

    def __missing__(self, name: object) -> Operand:
        has = f"valid: {listing(self)}" if self else "it has none"
        raise MissingOperandError(f"{self._mnemonic} has no register operand {name!r}; {has}")


@dataclass(frozen=True)
class Row:
    """One PTX spelling: what the manual's grammar and the assembler say of it, on every target."""

    mnemonic: str  # the full spelling
    family: str  # "mma.sync"
    shape: tuple[int, int, int]  # M, N, K of one matrix product
    operands: MappingProxyType[str, Operand]  # in PTX's operand order: d, a, b, c
    targets: tuple[str, ...]  # every PTX target whose assembler accepts it
    ptx_version: str  # lowest `.version` that has it
    arithmetic: str  # the row of the family's lowering table that says what it computes
    documented: bool = True  # listed by the PTX manual's grammar
    modifiers: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    dropped: str = ""  # why the accepted spelling is no instruction: it assembles to nothing
    facts: object = None  # what only the family's own instructions have, as a dataclass of the family

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", MappingProxyType(_Operands(self.mnemonic, self.operands)))

    @property
    def first_arch(self) -> Arch:
        """The earliest arch that runs it."""
        return min((ARCHS[TARGETS[t].arch] for t in self.targets), key=lambda arch: arch.number)


def check_registers(registers: object, operand: Operand, call: str) -> None:
    """Raise OperandError unless an array is uint32 (..., lanes, registers) for the operand."""
    dtype, shape = getattr(registers, "dtype", None), getattr(registers, "shape", ())
    want = f"uint32 (..., {operand.lanes}, {operand.registers})"
    if dtype != "uint32" or tuple(shape[-2:]) != (operand.lanes, operand.registers):
        raise OperandError(f"{call}: {operand.name} is {dtype} {tuple(shape)}; valid: {want}")
