"""Which rows a question means: all that have its words, the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.isa.index import Entry, index
from tcsim.search.likelihood import (
    COMPOSED,
    accumulator_cost,
    family_cost,
    head_cost,
    order_cost,
    shape_cost,
    spelling_cost,
    word_cost,
)
from tcsim.search.question import Question, ask

_PART, _BEGINS, _INSIDE, _LATER = 0.3, 0.8, 1.6, 0.5
"""What it costs if a word is one part of `x::y`, begins a row's word, is inside one, or is the next alternative."""
_OPCODE = 0.03  # a word of the machine instruction alone
_EXACT = 2.0  # the machine instruction, word for word
_EXTRA = 0.1  # a word of the machine instruction that was not asked for


class Match(NamedTuple):
    """A row that a question may mean."""

    mnemonic: str
    family: str
    targets: tuple[str, ...]
    cost: float  # the likeliest has the lowest
    special: float  # the cost of modifiers that were not asked for

    def __str__(self) -> str:
        return self.mnemonic


@dataclass(frozen=True)
class Found:
    """What a question finds."""

    question: Question
    matches: tuple[Match, ...]  # the likeliest first

    @property
    def only(self) -> Match | None:
        """The one that is meant: every other one is a special case of it, with modifiers that were not asked for."""
        if not self.matches:
            return None
        first, *others = self.matches
        return first if all(other.special > first.special + 0.5 for other in others) else None

    def elsewhere(self) -> str:
        """If nothing matches on the archs that were asked for: which have what the words mean, as a sentence; empty if none does."""
        if self.matches or self.question.targets is None:
            return ""
        matches = _matches(replace(self.question, targets=None))
        having = {TARGETS[target].arch for match in matches for target in match.targets}
        if not having:
            return ""
        archs = [name for name in ARCHS if name in having]
        asked = sorted({TARGETS[target].arch for target in self.question.targets}, key=lambda name: ARCHS[name].number)
        first = ARCHS[archs[0]].number
        later = having >= {name for name, arch in ARCHS.items() if arch.number >= first}
        need = (
            f"{archs[0]} or later"
            if later and len(archs) > 1
            else archs[0]
            if len(archs) == 1
            else f"one of {listing(archs)}"
        )
        older = all(ARCHS[name].number < first for name in asked)
        why = f"{listing(asked)} {'is' if len(asked) == 1 else 'are'} {'older' if older else 'not' if len(archs) == 1 else 'none of them'}"
        return f"{shortened(self.question.text)} needs {need}; {why}"

    def near(self, count: int = 3) -> tuple[tuple[str, Match], ...]:
        """If nothing matches: questions of nearly the same words that find something, and what they find."""
        return () if self.matches else _near(self.question, count)


def find(text: str, arch: str | None = None) -> tuple[Match, ...]:
    """The instructions that some words mean, the likeliest first; none if no row has them all.

    Words stand in any order, whole or in part: of a mnemonic, of SASS (`HMMA.16816.F32`), of a CuTe atom
    (`SM80_16x8x16_F32F16F16F32_TN`), types as others call them (`fp8`, `half`), chips and products (`h100`, `blackwell`).

    Raises TargetError for an arch that does not exist.

    >>> find("ldmatrix x4 trans")[0].mnemonic
    'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    >>> str(find("HMMA.16816.F32.BF16")[0])
    'mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    """
    return search(text, arch).matches


@lru_cache(maxsize=512)
def search(text: str, arch: str | None = None) -> Found:
    """What a question finds, and whether one of it is meant."""
    question = ask(text, arch)
    return Found(question, _matches(question))


def _matches(question: Question) -> tuple[Match, ...]:
    if not (question.groups or question.machine or question.targets is not None):
        return ()
    asked = set(question.targets) if question.targets is not None else None
    rows = [
        row
        for row in _candidates(question)
        if asked is None or not asked.isdisjoint(row.targets)
    ]  # fmt: skip
    here = None
    if asked is not None:
        here = frozenset(row.family for row in index().entries if not asked.isdisjoint(row.targets))
    found = (match for row in rows if (match := _matched(row, question, here)) is not None)
    return tuple(sorted(found, key=lambda match: match.cost))  # the catalog's order decides among equals


def _candidates(question: Question) -> Sequence[Entry]:
    """The rows of which the text has the letters of every group's words: quick, and too many."""
    entries = index().entries
    groups = [_having(question.machine)] if question.machine else []
    for group in question.groups:
        needles = {alternative[0].rpartition(":")[2] for alternative in group}
        groups.append(frozenset[int]().union(*map(_having, needles)))
    return [entries[place] for place in sorted(frozenset.intersection(*groups))] if groups else entries


@lru_cache(maxsize=512)
def _having(needle: str) -> frozenset[int]:
    """The rows of which the text has some letters."""
    return frozenset(place for place, text in enumerate(_texts()) if needle in text)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(f"{entry.mnemonic} {entry.formats} {entry.opcodes}".lower() for entry in index().entries)


class _Words(NamedTuple):
    """The words of a row."""

    own: list[str]  # the parts of its mnemonic
    format_of: dict[str, str]  # of each operand
    formats: frozenset[str]  # the same as words

    def cost(self, word: str, extra: Sequence[str]) -> tuple[float, str] | None:
        """What it costs to find a word here, and the row's word that is asked for with it; None: it is not here."""
        if word in self.own:
            return 0.0, word
        if word in self.formats:
            return 0.0, word.rpartition(":")[2]
        if word in extra:
            return _OPCODE, ""
        best: tuple[float, str] | None = None
        for own in self.own:
            if word in own and ":" not in word[1:2]:
                parts = _parts(own)
                price = (
                    _PART if word in parts else _BEGINS if own.startswith(word) or any(part.startswith(word) for part in parts) else _INSIDE
                )  # fmt: skip
                if len(word) == 1 and price > _PART:
                    continue
                if best is None or price < best[0]:
                    best = price, own
        return best


@cache
def _words(mnemonic: str, formats: str) -> _Words:
    return _Words(mnemonic.lower().split("."), *_formats(formats))


@cache
def _formats(text: str) -> tuple[dict[str, str], frozenset[str]]:
    """The formats of each operand, and as words; many rows have the same."""
    format_of = dict(item.split("=") for item in text.split())
    each = ((name, one) for name, formats in format_of.items() for one in formats.split(","))
    return format_of, frozenset(word for name, one in each for word in (one, f"{name}:{one}"))


@cache
def _parts(word: str) -> tuple[str, ...]:
    """The parts of `x::y`, of `m64n8k16`, of `x_y`."""
    found = word.split("::")
    if re.fullmatch(r"m\d+n\d+(k\d+)?", word):
        found += re.findall(r"[mnk]\d+", word)
    return tuple(found)


def _matched(row: Entry, question: Question, here: frozenset[str] | None) -> Match | None:
    opcodes = [name.lower().split(".") for name in row.opcodes.split()] if question.machine else [[]]
    own = [name for name in opcodes if not question.machine or name[0] == question.machine]
    best: Match | None = None
    for opcode in own:
        match = _matched_with(row, question, here, opcode)
        if match is not None and (best is None or match.cost < best.cost):
            best = match
    return best


def _matched_with(row: Entry, question: Question, here: frozenset[str] | None, opcode: Sequence[str]) -> Match | None:
    words = _words(row.mnemonic, row.formats)
    cost, given, asked = 0.0, list[str](), set[str]()
    for group in question.groups:
        found = _cheapest(group, words, opcode[1:])
        if found is None:
            return None
        price, taken, alternative = found
        asked.update(taken)
        given.extend(word.rpartition(":")[2] for word in alternative)
        cost += 2 * price
    prices = [word_cost(word) for word in words.own[1:] if word not in asked]
    whole = spelling_cost(row.mnemonic)
    special = sum(price for price in prices if price >= 1) + max(0.0, whole)
    special += bool(question.machine) and row.family in COMPOSED
    shaped = any(word in asked or _SHAPED.fullmatch(word) for word in (*words.own, *given) if _is_shape(word))
    cost += sum(prices) + whole + shape_cost(row.mnemonic, words.format_of.get("a", ""), shaped)
    cost += accumulator_cost(words.format_of) + order_cost(given, words.own) + head_cost(row.mnemonic, asked)
    if question.text.strip().lower() == row.mnemonic.lower():
        return Match(row.mnemonic, row.family, row.targets, 0.0, -1.0)  # its own name
    extra = sum(part not in given for part in opcode[1:])
    exact = len(opcode) > 1 and not extra and len(opcode) == len(question.words) + 1
    cost += family_cost(row.family, here) + _EXTRA * extra - _EXACT * exact
    return Match(row.mnemonic, row.family, row.targets, round(cost, 3), round(special, 3))


_SHAPED = re.compile(r"\d{3,}")  # as SASS spells a shape
_SHAPE = re.compile(r"m\d+n\d+|\d{3,}")


@cache
def _is_shape(word: str) -> bool:
    return _SHAPE.match(word) is not None


def _cheapest(
    group: Sequence[Sequence[str]], words: _Words, extra: Sequence[str]
) -> tuple[float, list[str], Sequence[str]] | None:
    """What the cheapest alternative costs, the row's words that are asked for with it, and itself; None: the row has none."""
    best: tuple[float, list[str], Sequence[str]] | None = None
    for place, alternative in enumerate(group):
        price, taken = _LATER * place, list[str]()
        if best is not None and price >= best[0]:
            break  # later ones cost more still
        for word in alternative:
            if (found := words.cost(word, extra)) is None:
                break
            price += found[0]
            taken.append(found[1])
        else:
            if best is None or price < best[0]:
                best = price, taken, alternative
    return best


def _near(question: Question, count: int) -> tuple[tuple[str, Match], ...]:
    words = question.words[:_NEAR_WORDS]
    found: dict[str, tuple[str, Match]] = {}
    fixed = [like for word in words for like in ([word] if _known(word) else _alike(word))]
    head = f"{question.machine} " if question.machine else ""
    tries = [fixed] + [
        [word for place, word in enumerate(fixed) if place not in left_out]
        for size in (1, 2)
        for left_out in combinations(range(len(fixed)), size)
        if len(fixed) > size
    ]
    for given in filter(None, tries):
        text = head + " ".join(given)
        inside = Question(text, ask(text).groups, tuple(given), question.targets, question.machine)
        matches = _matches(inside)
        if matches and matches[0].mnemonic not in found:
            found[matches[0].mnemonic] = (text.strip(), matches[0])
        if len(found) >= count:
            break
    return tuple(found.values())


def _alike(word: str) -> list[str]:
    """The word of a mnemonic that one is a misspelling of, if any is near."""
    close = nearest(word, _vocabulary(), 1)
    return [each for each in close if SequenceMatcher(None, word, each).ratio() >= _ALIKE]


_ALIKE = 0.6
_NEAR_WORDS = 8  # of a question that finds nothing: any one or two of them are left out in turn


@cache
def _vocabulary() -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for entry in index().entries for word in entry.mnemonic.lower().split(".")))


def _known(word: str) -> bool:
    """Whether any row has the word."""
    return any(_having(alternative[0].rpartition(":")[2]) for group in ask(word).groups for alternative in group)
