"""All scalar instructions by their spelling, in any order of modifiers."""

from __future__ import annotations

from functools import cache, lru_cache

from tcsim.isa.scalar import bits, compare, convert, floating, integer, special, video
from tcsim.isa.scalar.table import Scalar
from tcsim.model.spelling import Spelling, spelling


@cache
def scalars() -> dict[str, Scalar]:
    """Every spelling; of one mnemonic with several lists of operands the further ones end in | or /3."""
    return {
        item.mnemonic: item
        for module in (integer, bits, floating, compare, convert, special, video)
        for item in module.table()
    }


@cache
def _by_spelling() -> dict[tuple[Spelling, str], str]:
    """Mnemonics by what the order of their modifiers does not change, and what tells their lists of operands apart."""
    return {_key(name): name for name in scalars()}


def _key(name: str) -> tuple[Spelling, str]:
    end = next((end for end in ("|", "/3") if name.endswith(end)), "")
    return spelling(name.removesuffix(end)), end


@lru_cache(maxsize=1 << 14)
def scalar(name: str, sources: int | None = None, pair: bool = False) -> Scalar | None:
    """The instruction of a spelling, or None; of several lists of operands the one with that number of sources, or with two results.

    >>> scalar("add.ftz.rn.f32").mnemonic, scalar("min.f32", 3).mnemonic
    ('add.rn.ftz.f32', 'min.f32/3')
    """
    first = "|" if pair else "/3" if sources == 3 else ""
    for own in (name + first, name, name + "|"):  # the last: some have two results always
        known = own if own in scalars() else _by_spelling().get(_key(own))
        if known:
            return scalars()[known]
    return None
