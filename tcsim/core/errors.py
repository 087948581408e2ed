"""The exceptions of tcsim: what was asked, why it cannot be, what would be valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

_FULL_COMPARISONS = 16  # of spellings, letter by letter: each costs up to a millisecond


class TcsimError(ValueError):
    """Base of every error that wrong use of tcsim raises."""


class FormatError(TcsimError):
    """A number format that does not exist, or a value or code it cannot hold."""


class InstructionError(TcsimError):
    """A mnemonic that the assembler would not accept, or not for that target."""


class TargetError(TcsimError):
    """An arch or target that does not exist."""


class OperandError(TcsimError):
    """Registers, codes or addresses whose shape, dtype or value does not fit the instruction."""


class NotModelledError(TcsimError):
    """Something that the assembler accepts and the hardware does, but that nothing known to us defines."""


def nearest(word: str, choices: Iterable[str], count: int = 3) -> list[str]:
    """Return the `count` choices spelled most like `word`, best first.

    >>> nearest("e4m2", ["e4m3", "bf16", "f16"], 1)
    ['e4m3']
    """
    return list(_nearest(word, tuple(choices), count))


@lru_cache(maxsize=256)
def _nearest(word: str, choices: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(word, _shortlist(word, choices), n=count, cutoff=0.0))


def _shortlist(word: str, choices: tuple[str, ...]) -> list[str]:
    """The choices that share the largest part of what they have with the word: dotted parts, or else pairs of letters."""
    if len(choices) <= _FULL_COMPARISONS:
        return list(choices)
    split = _parts if "." in word else _pairs
    own = split(word)

    def alike(choice: str) -> float:
        other = split(choice)
        return len(own & other) / (len(own | other) or 1)

    return sorted(choices, key=alike, reverse=True)[:_FULL_COMPARISONS]


@lru_cache(maxsize=1 << 14)
def _parts(word: str) -> frozenset[str]:
    return frozenset(word.split("."))


def _pairs(word: str) -> frozenset[str]:
    return frozenset(map("".join, pairwise(word)))


def listing(choices: Iterable[object], limit: int = 24) -> str:
    """Join choices with commas, eliding after `limit` and saying how many were left out."""
    items = [str(choice) for choice in choices]
    if len(items) <= limit:
        return ", ".join(items)
    return ", ".join(items[:limit]) + f", ... ({len(items) - limit} more)"
