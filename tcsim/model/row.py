"""One PTX spelling as data: its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from tcsim.core.errors import OperandError, listing
from tcsim.core.targets import ARCHS, TARGETS, Arch
from tcsim.core.versions import earliest
from tcsim.model.form import Form
from tcsim.model.operand import Fragment


class MissingOperandError(OperandError, KeyError):
    """A register operand that the instruction does not have."""

    __str__ = OperandError.__str__


class _Operands(dict[str, Fragment]):
    """Operands by name, which says what there is if asked for another."""

    def __init__(self, mnemonic: str, operands: Mapping[str, Fragment]) -> None:
        super().__init__(operands)
        self._mnemonic = mnemonic

    def __missing__(self, name: object) -> Fragment:
        has = f"valid: {listing(self)}" if self else "it has none"
        raise MissingOperandError(f"{self._mnemonic} has no register operand {name!r}; {has}")


NO_FRAGMENTS: MappingProxyType[str, Fragment] = MappingProxyType({})
NO_MODIFIERS: MappingProxyType[str, str] = MappingProxyType({})


def present(**modifiers: str) -> Mapping[str, str]:
    """The modifiers that a spelling has, of those that it could have: the ones that are not empty.

    >>> dict(present(space=".shared::cta", order=""))
    {'space': '.shared::cta'}
    """
    return MappingProxyType({name: text for name, text in modifiers.items() if text})


@dataclass(frozen=True)
class Row:
    """One PTX spelling: what the manual's grammar and the assembler say of it, on every target.

    A family whose rows say more than this has a subclass with a field for each further fact.
    """

    mnemonic: str  # the full spelling
    family: str  # "mma.sync"
    shape: tuple[int, int, int] = (0, 0, 0)  # M, N, K of one matrix product
    operands: Mapping[str, Fragment] = field(
        default_factory=lambda: NO_FRAGMENTS
    )  # the fragments, in PTX's operand order: d, a, b, c
    targets: tuple[str, ...] = ()  # every PTX target whose assembler accepts it; not given: those of its forms
    ptx_version: str = ""  # lowest `.version` that has it; not given: that of its forms
    arithmetic: str = ""  # the row of the family's lowering table that says what it computes
    documented: bool = True  # listed by the PTX manual's grammar
    modifiers: Mapping[str, str] = field(default_factory=lambda: NO_MODIFIERS)
    dropped: str = ""  # why the accepted spelling is not an instruction: it assembles to nothing
    forms: tuple[
        Form, ...
    ] = ()  # the lists of operands that it takes, the plainest first; not given: one, its fragments
    operation: str = ""  # which of the family's operations: "init", "arrive", "copy"; empty if there is one
    may_wait: bool = False  # whether its effects may be that it has to wait
    meets: bool = True  # whether those that execute it together are there at once; barriers count who has come
    lands_later: bool = False  # whether the registers that it writes come after it, and what reads them waits for them
    warps_apart: bool = False  # of a warpgroup's: whether its warps may each execute an instruction of their own

    @property
    def combines(self) -> bool:
        """Whether it changes memory by what is there: it adds to it, or takes a minimum with it."""
        return False

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)  # the dataclass is frozen
        if not self.forms:
            put(
                "forms",
                (Form(tuple(self.operands.values()), self.targets, self.ptx_version, documented=self.documented),),
            )
        if not self.targets:
            put("targets", tuple(name for name in TARGETS if any(name in form.targets for form in self.forms)))
        if not self.ptx_version:
            put("ptx_version", earliest(*(form.ptx_version for form in self.forms)))
        put("operands", MappingProxyType(_Operands(self.mnemonic, self.operands)))

    def has(self, operand: str) -> bool:
        """Whether its plainest form has an operand."""
        return operand in self.forms[0]

    @property
    def first_arch(self) -> Arch:
        """The earliest arch that runs it."""
        return min((ARCHS[TARGETS[t].arch] for t in self.targets), key=lambda arch: arch.number)


def check_registers(registers: object, operand: Fragment, call: str) -> None:
    """Raise OperandError unless an array is uint32 (..., lanes, registers) for the operand."""
    dtype, shape = getattr(registers, "dtype", None), getattr(registers, "shape", ())
    want = f"uint32 (..., {operand.lanes}, {operand.registers})"
    if dtype != "uint32" or tuple(shape[-2:]) != (operand.lanes, operand.registers):
        raise OperandError(f"{call}: {operand.name} is {dtype} {tuple(shape)}; valid: {want}")
