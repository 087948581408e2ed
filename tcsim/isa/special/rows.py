"""Rows of the special functions: every spelling that the assembler accepts, and the steps that each is.

Sources: PTX ISA, sections ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div and their half precision variants; ptxas 12.9 and
13.5 (which targets accept which spelling, and what it emits).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType

from tcsim.core.targets import since
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.isa.special.steps import (
    LARGE,
    LOW,
    SUBNORMAL,
    Choose,
    CorrectlyRounded,
    Mufu,
    Ordinary,
    RefineRoot,
    Steps,
    When,
    of,
)
from tcsim.model.form import Form
from tcsim.model.operand import Role
from tcsim.model.row import Row, present
from tcsim.numbers.formats import FORMATS
from tcsim.numbers.rounding import Rounding

FUNCTIONS = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div")
"""The families, in the order of the PTX manual's chapters."""
REVOLUTIONS = 0.15915493667125701904
"""1 / (2 pi) as the f32 0x3e22f983: what sin and cos multiply by, because the unit takes revolutions."""

_REGISTERS = {"f16": ".b16", "bf16": ".b16", "f16x2": ".b32", "bf16x2": ".b32", "f32": ".f32", "f64": ".f64"}
_ROUNDINGS: dict[str, Rounding] = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}


@dataclass(frozen=True, kw_only=True)
class SpecialRow(Row):
    """A spelling, and what it is made of."""

    type: str  # as the spelling ends: "f32", "f16x2"
    steps: Steps
    """Of one element."""

    @cached_property
    def registers(self) -> MappingProxyType[str, Packed]:
        """The registers by name, in PTX's order, the result first."""
        return registers_of(self.forms[0])

    @property
    def unit(self) -> Mufu | None:
        """The step that asks the special function unit, of a row whose bits depend on it."""
        return next((step for step in self.steps if isinstance(step, Mufu)), None)


def _row(
    name: str,
    mode: str,
    ftz: str,
    type: str,
    steps: Steps,
    first: str = "sm_70",
    version: str = "6.0",
    period: str = "",
) -> SpecialRow:
    elements = 2 if type.endswith("x2") else 1
    format = FORMATS[type.removesuffix("x2")]

    def register(own: str, role: Role = "source") -> Packed:
        return Packed(own, role, type=_REGISTERS[type], format=format, elements=elements, field_bits=format.bits)

    sources = ("a", "b") if name == "div" else ("a",)
    operands = (register("d", "destination"), *map(register, sources))
    documented = not (type == "f64" and ftz and mode != "approx")
    mnemonic = ".".join(word for word in (name, mode, ftz, period, type) if word)
    form = Form(operands, since(first), version, together="thread", documented=documented)
    return SpecialRow(
        mnemonic, name, arithmetic=mode, forms=(form,), type=type, steps=steps, documented=documented,
        modifiers=present(rounding=f".{mode}", ftz=f".{ftz}" if ftz else "", period=f".{period}" if period else ""),
    )  # fmt: skip


def _times(
    d: str, a: str, b: str | float, when: When | None = None, ftz: bool = False, rounding: Rounding = "rne"
) -> Ordinary:
    return Ordinary(d, "multiply", a, b, when, rounding, ftz)


def _scaled(function: str, when: When, before: float, *after: Ordinary) -> Steps:
    """The unit's answer for an input that is scaled where the condition holds, and what is then made of it."""
    return (_times("x", "a", before, when), Mufu(function, "d", "x"), *after)


_RCP = Choose("k", ((LARGE, 0.25), (SUBNORMAL, 2.0**24)))
_PLAIN: dict[str, Steps] = {
    "ex2": _scaled("ex2", LOW, 0.5, _times("d", "d", "d", LOW)),
    "lg2": _scaled("lg2", SUBNORMAL, 2.0**24, Ordinary("d", "add", "d", -24.0, SUBNORMAL)),
    "rcp": (_RCP, _times("x", "a", "k"), Mufu("rcp", "d", "x"), _times("d", "k", "d")),
    "rsqrt": _scaled("rsqrt", SUBNORMAL, 2.0**24, _times("d", "d", 2.0**12, SUBNORMAL)),
    "sqrt": _scaled("sqrt", SUBNORMAL, 2.0**24, _times("d", "d", 2.0**-12, SUBNORMAL)),
    **{name: (_times("x", "a", REVOLUTIONS, rounding="rz"), Mufu(name, "d", "x")) for name in ("sin", "cos")},
}
"""Of `.approx.f32`: what keeps subnormal numbers and the ends of the range right."""


def _approximations() -> Iterator[SpecialRow]:
    for name, steps in _PLAIN.items():
        yield _row(name, "approx", "", "f32", steps)
        bare: Steps = steps if name in ("sin", "cos") else (Mufu(name),)
        yield _row(name, "approx", "ftz", "f32", bare)
    for name in ("sin", "cos"):
        yield _row(name, "approx", "ftz", "f32", (Mufu(name),), "sm_75", "9.5", "2pi")
    yield _row("tanh", "approx", "", "f32", (Mufu("tanh"),), "sm_75", "7.0")
    for name, (format, first, version), two in product(
        ("ex2", "tanh"), (("f16", "sm_75", "7.0"), ("bf16", "sm_90", "7.8")), ("", "x2")
    ):
        ftz = "ftz" if (name, format) == ("ex2", "bf16") else ""
        yield _row(name, "approx", ftz, format + two, (Mufu(name, format=format),), first, version)
    for name in ("rcp", "rsqrt"):
        yield _row(name, "approx", "ftz", "f64", (Mufu(name, format="f64"),))
    yield _row("rsqrt", "approx", "", "f64", (Mufu("rsqrt", "y", format="f64"), RefineRoot()))


def _quotients() -> Iterator[SpecialRow]:
    for mode, ftz in product(("approx", "full"), (False, True)):
        conditions = [(LARGE, 0.25)] * (mode == "full") + [(SUBNORMAL, 2.0**24)] * (not ftz)
        scaling = [
            _times(to, start if not place else to, factor, of(when, "b"), ftz)
            for place, (when, factor) in enumerate(conditions)
            for to, start in (("x", "b"), ("y", "a"))
        ]
        x, y = ("x", "y") if scaling else ("b", "a")
        steps = (*scaling, Mufu("rcp", "d", x), _times("d", y, "d", ftz=ftz))
        yield _row("div", mode, "ftz" * ftz, "f32", steps)


def _rounded() -> Iterator[SpecialRow]:
    for name, mode, ftz, type in product(("rcp", "sqrt", "div"), _ROUNDINGS, ("", "ftz"), ("f32", "f64")):
        if not (type == "f64" and ftz and name != "rcp"):  # of f64, rcp alone takes .ftz, which changes nothing
            flushed = bool(ftz) and type == "f32"
            operation: tuple[CorrectlyRounded] = (CorrectlyRounded(name, type, _ROUNDINGS[mode], flushed),)  # type: ignore[arg-type]
            yield _row(name, mode, ftz, type, operation)


def rows(family: str) -> tuple[SpecialRow, ...]:
    """The rows of a function."""
    return tuple(row for part in (_approximations, _quotients, _rounded) for row in part() if row.family == family)
