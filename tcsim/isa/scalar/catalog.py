"""All scalar instructions by their spelling, in any order of modifiers."""

from __future__ import annotations

from functools import cache

from tcsim.isa.scalar import compare, convert, floating, integer, special
from tcsim.isa.scalar.table import Scalar


@cache
def scalars() -> dict[str, Scalar]:
    """Every spelling; of one mnemonic with several lists of operands the further ones end in | or /3."""
    return {item.mnemonic: item for module in (integer, floating, compare, convert, special) for item in module.table()}


@cache
def _by_modifiers() -> dict[tuple[str, frozenset[str], str], str]:
    """Mnemonics by stem, set of modifiers before the types, and what follows them: for orders that compilers choose."""
    return {_key(name): name for name in scalars()}


def _key(name: str) -> tuple[str, frozenset[str], str]:
    stem, *words = name.split(".")
    types = [word for word in words if word.rstrip("|/3x24")[1:].isdigit() or word.startswith(("bf16", "pred"))]
    return stem, frozenset(word for word in words if word not in types), ".".join(types)


def scalar(name: str) -> Scalar | None:
    """The instruction of a spelling, or None.

    >>> scalar("add.ftz.rn.f32").mnemonic
    'add.rn.ftz.f32'
    """
    found = scalars().get(name)
    if found is None:
        known = _by_modifiers().get(_key(name))
        found = scalars()[known] if known else None
    return found
