"""Lists of operands: one spelling may take several, each with targets of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperandForm:
    """One list of operands that a spelling takes."""

    name: str  # "", or what tells it from the others: "state", "sink+count", "hint", "size=4;srcsize"
    # before the address (of mbarrier): "state", "_" (sink), "complete", "report", "value", "matches"
    results: tuple[str, ...]
    operands: tuple[str, ...]  # after the addresses: "count", "tx_count", "parity", "source_size", "cache_policy", ...
    targets: tuple[str, ...]
    ptx_version: str
    documented: bool = True


def forms_for(forms: tuple[OperandForm, ...], targets: tuple[str, ...]) -> tuple[OperandForm, ...]:
    """The lists of operands that any of some targets takes.

    >>> form = OperandForm("", (), (), ("sm_90", "sm_90a"), "8.0")
    >>> forms_for((form,), ("sm_80",)), forms_for((form,), ("sm_90",)) == (form,)
    ((), True)
    """
    return tuple(form for form in forms if set(form.targets) & set(targets))
