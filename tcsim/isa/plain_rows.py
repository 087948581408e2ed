"""Rows without fragments and arithmetic: what the small families around a kernel have in common."""

from __future__ import annotations

from types import MappingProxyType

from tcsim.model.row import Row


def plain_row(
    family: str,
    mnemonic: str,
    targets: tuple[str, ...],
    version: str,
    kind: str,
    facts: object,
    modifiers: dict[str, str] | None = None,
) -> Row:
    """A row with no register operands; `kind` heads its section of the family's page."""
    shown = {name: text for name, text in (modifiers or {}).items() if text}
    return Row(
        mnemonic,
        family,
        (0, 0, 0),
        MappingProxyType({}),
        targets,
        version,
        kind,
        modifiers=MappingProxyType(shown),
        facts=facts,
    )


def later(*versions: str) -> str:
    """The latest of some PTX ISA versions.

    >>> later("8.1", "9.2")
    '9.2'
    """
    return max(versions, key=lambda version: tuple(map(int, version.split("."))))
