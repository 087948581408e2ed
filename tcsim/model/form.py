"""Forms: the lists of operands that one spelling takes, each with targets of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tcsim.model.operand import Names, Operand, Scope

NO_NAMES: Names = {}


@dataclass(frozen=True)
class Form:
    """One list of operands that a spelling takes, in PTX's order, and who executes it."""

    operands: tuple[Operand, ...]
    targets: tuple[str, ...]  # every PTX target whose assembler accepts it
    ptx_version: str  # lowest `.version` that has it
    together: Scope = "warp"  # who executes it as one
    agent: Scope = "thread"  # whose order and whose groups count
    name: str = ""  # what tells it from the other forms of the spelling: "sink+count", "hint"; empty if there is one
    documented: bool = True  # listed by the PTX manual's grammar

    def __getitem__(self, name: str) -> Operand:
        """An operand by name. Raises KeyError if the form does not have it."""
        for operand in self.operands:
            if operand.name == name:
                return operand
        raise KeyError(f"no operand {name!r}; valid: {', '.join(self.names)}")

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the operands, in PTX's order."""
        return tuple(operand.name for operand in self.operands)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The names of the registers that it writes; a sink is not among them."""
        return tuple(operand.name for operand in self.operands if operand.role == "destination" and operand.named)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The names of the registers and numbers that it takes besides addresses."""
        return tuple(operand.name for operand in self.operands if operand.role != "destination" and operand.named)

    def statement(self, mnemonic: str, names: Names = NO_NAMES) -> str:
        """The PTX statement, its registers named as given, else after the operands.

        >>> form = Form((Operand("d", "destination", "vector", count=2), Operand("a", kind="address")), ("sm_90",), "8.0")
        >>> form.statement("load.b32", {"a": "%r1"})
        'load.b32 {%d0, %d1}, [%r1];'
        >>> Form((), ("sm_90",), "8.0").statement("fence.proxy.async")
        'fence.proxy.async;'
        """
        text = ""
        for operand in self.operands:
            given = names.get(operand.name)
            own = operand.text((given,) if isinstance(given, str) else given)
            text += ("|" if operand.joined else ", " if text else " ") + own
        return f"{mnemonic}{text};"


def forms_for(forms: Iterable[Form], targets: Iterable[str]) -> tuple[Form, ...]:
    """The forms that any of some targets takes.

    >>> form = Form((), ("sm_90", "sm_90a"), "8.0")
    >>> forms_for((form,), ("sm_80",)), forms_for((form,), ("sm_90",)) == (form,)
    ((), True)
    """
    wanted = set(targets)
    return tuple(form for form in forms if wanted & set(form.targets))
