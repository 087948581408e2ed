"""The exceptions of tcsim. Each message says what was asked, why it is refused, and what would be valid."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import nsmallest
from itertools import islice, pairwise

_FULL_COMPARISONS = 16  # of spellings, letter by letter: each costs up to a millisecond
_COMPARED = 200  # letters of a word that are compared; the longest mnemonic has fewer


class TcsimError(ValueError):
    """Base class of all errors that wrong use of tcsim raises."""


class FormatError(TcsimError):
    """A number format that does not exist, or a value or code that a format cannot hold."""


class InstructionError(TcsimError):
    """A mnemonic that the assembler would reject, for every target or for this one."""


class TargetError(TcsimError):
    """An arch or target that does not exist."""


class OperandError(TcsimError):
    """An argument, such as registers, codes or addresses, whose shape, dtype or value does not fit."""


class NotModelledError(TcsimError):
    """Something that the assembler accepts and the hardware does, but that no source known to us defines."""


def nearest(word: str, choices: Iterable[str], count: int = 3) -> list[str]:
    """The `count` choices whose spelling is closest to `word`, best first.

    >>> nearest("e4m2", ["e4m3", "bf16", "f16"], 1)
    ['e4m3']
    """
    return list(_nearest(word[:_COMPARED], tuple(choices), count))


@lru_cache(maxsize=256)
def _nearest(word: str, choices: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(word, _shortlist(word, choices), n=count, cutoff=0.0))


def _shortlist(word: str, choices: tuple[str, ...]) -> list[str]:
    """The choices that have most in common with the word, compared by dotted parts, or by pairs of letters if it has none."""
    if len(choices) <= _FULL_COMPARISONS:
        return list(choices)
    split = _parts if "." in word else _pairs
    own = split(word)
    places, sizes = _index(choices, split)
    common: Counter[int] = Counter()
    for part in own & places.keys():
        common.update(places[part])
    best = nsmallest(
        _FULL_COMPARISONS, common, key=lambda index: (-common[index] / (len(own) + sizes[index] - common[index]), index)
    )
    others = (
        index for index in range(len(choices)) if index not in common
    )  # those that have nothing in common come last
    return [choices[index] for index in (*best, *islice(others, _FULL_COMPARISONS - len(best)))]


@lru_cache(maxsize=64)
def _index(choices: tuple[str, ...], split: Callable[[str], frozenset[str]]) -> tuple[dict[str, list[int]], list[int]]:
    """Which of the choices have each part, and how many parts each choice has."""
    found: dict[str, list[int]] = {}
    parts = [split(choice) for choice in choices]
    for index, own in enumerate(parts):
        for part in own:
            found.setdefault(part, []).append(index)
    return found, [len(own) for own in parts]


def _parts(word: str) -> frozenset[str]:
    return frozenset(word.split("."))


def _pairs(word: str) -> frozenset[str]:
    return frozenset(map("".join, pairwise(word)))


def listing(choices: Iterable[object], limit: int = 24) -> str:
    """The choices, joined with commas; after `limit` of them it only says how many more there are."""
    items = [str(choice) for choice in choices]
    if len(items) <= limit:
        return ", ".join(items)
    return ", ".join(items[:limit]) + f", ... ({len(items) - limit} more)"


def printable(text: str) -> str:
    """Text as a terminal may get it: characters that steer it, or that cannot be seen, as escapes; ends of lines and tabs stay.

    >>> printable("a" + chr(27) + "[31mb" + chr(0x202E))
    'a\\\\x1b[31mb\\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)


def shortened(value: object, limit: int = 60) -> str:
    """How an error quotes what it was given: as Python writes it, or the beginning of that.

    >>> shortened("1e5"), shortened("1" * 5000, 10)
    ("'1e5'", "'111111111...")
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, very deep nesting
        text = f"{type(value).__name__} too long to show"
    return text if len(text) <= limit else text[:limit] + "..."
