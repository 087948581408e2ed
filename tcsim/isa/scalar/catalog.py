"""All scalar instructions by their spelling, in any order of modifiers."""

from __future__ import annotations

from functools import cache, lru_cache

from tcsim.isa.scalar import bits, compare, convert, floating, integer, special, video
from tcsim.isa.scalar.table import Scalar


@cache
def scalars() -> dict[str, Scalar]:
    """Every spelling; of one mnemonic with several lists of operands the further ones end in | or /3."""
    return {
        item.mnemonic: item
        for module in (integer, bits, floating, compare, convert, special, video)
        for item in module.table()
    }


@cache
def _by_modifiers() -> dict[tuple[str, frozenset[str], str], str]:
    """Mnemonics by stem, set of modifiers before the types, and what follows them: for orders that compilers choose."""
    return {_key(name): name for name in scalars()}


def _key(name: str) -> tuple[str, frozenset[str], str]:
    stem, *words = name.split(".")
    types = [word for word in words if word.rstrip("|/3x24")[1:].isdigit() or word.startswith(("bf16", "pred"))]
    return stem, frozenset(word for word in words if word not in types), ".".join(types)


@lru_cache(maxsize=1 << 14)
def scalar(name: str, sources: int | None = None, pair: bool = False) -> Scalar | None:
    """The instruction of a spelling, or None; of several lists of operands the one with that number of sources, or with two results.

    >>> scalar("add.ftz.rn.f32").mnemonic, scalar("min.f32", 3).mnemonic
    ('add.rn.ftz.f32', 'min.f32/3')
    """
    first = "|" if pair else "/3" if sources == 3 else ""
    for own in (name + first, name, name + "|"):  # the last: some have two results always
        known = own if own in scalars() else _by_modifiers().get(_key(own))
        if known:
            return scalars()[known]
    return None
