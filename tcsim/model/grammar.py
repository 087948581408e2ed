"""How modifiers combine, as data: those of one instruction in the manual's order, what stands beside what, and from which version on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tcsim.core.errors import listing, nearest
from tcsim.core.versions import latest

Words = frozenset[str]


class Slot(NamedTuple):
    """Modifiers, at most one of which a spelling has, and whether it must have one."""

    needed: bool
    words: Words


class Rule(NamedTuple):
    """Where a word of each of some sets stands, one of others must stand too, or none may."""

    given: tuple[Words, ...]
    others: Words
    beside: bool


class Since(NamedTuple):
    """A spelling that has a word of each of some sets needs a version of PTX ISA and a compute capability."""

    given: tuple[Words, ...]
    version: str
    number: int = 0


@dataclass(frozen=True)
class Grammar:
    """The modifiers of one instruction."""

    slots: tuple[Slot, ...]  # in the manual's order
    rules: tuple[Rule, ...] = ()
    since: tuple[Since, ...] = ()
    named: str = ""  # a modifier that is part of the name: it stands first if it is there
    operands: tuple[int, ...] = ()  # how many it takes; empty: any number
    further: Words = frozenset()  # modifiers that bring an operand each
    vectors: tuple[int, ...] = ()  # the operands that are vectors where .v2, .v4 or .v8 stands

    def needs(self, words: Sequence[str]) -> tuple[str, int]:
        """The lowest version of PTX ISA and compute capability that have a spelling; "1.0" and 0 for all."""
        return needs(self.since, words)

    def check(self, words: Sequence[str], operands: int) -> None:
        """Raise ValueError where there are more or fewer operands than an instruction with some modifiers takes."""
        valid = [count + len(self.further.intersection(words)) for count in self.operands]
        if valid and operands not in valid:
            raise ValueError(f"{operands} operands; valid: {listing(valid)}")

    def ordered(self, words: Sequence[str]) -> tuple[str, ...]:
        """Modifiers, which stand in any order, in that of the manual. Raises ValueError that says what is wrong."""
        chosen: dict[int, str] = {}
        if self.named in words[1:]:
            raise ValueError(f".{self.named} is part of the name; valid: before the other modifiers")
        for word in words:
            place = next((place for place, slot in enumerate(self.slots) if word in slot.words), None)
            if place is None:
                known = sorted({own for slot in self.slots for own in slot.words})
                raise ValueError(f"no modifier .{word}; nearest: {listing(nearest(word, known)) or 'it has none'}")
            if place in chosen:
                valid = listing(sorted(self.slots[place].words))
                raise ValueError(
                    f".{word} beside another modifier of its kind, .{chosen[place]}; valid: one of {valid}"
                )
            chosen[place] = word
        for place, slot in enumerate(self.slots):
            if slot.needed and place not in chosen:
                raise ValueError(f"one of these is missing: {listing(sorted(slot.words))}")
        given = frozenset(words)
        for rule in self.rules:
            if not all(own & given for own in rule.given) or bool(rule.others & given) == rule.beside:
                continue
            shown = "".join(f".{min(own & given)}" for own in rule.given)
            if rule.beside:
                raise ValueError(f"{shown} without one of {listing(sorted(rule.others))}")
            raise ValueError(f"{shown} beside .{min(rule.others & given)}")
        return tuple(chosen[place] for place in sorted(chosen))


def needs(since: Iterable[Since], words: Iterable[str]) -> tuple[str, int]:
    """The lowest version of PTX ISA and compute capability that have all of some words; "1.0" and 0 for all.

    >>> needs((since("7.8", 90, "cluster"), since("8.2", 70, "mmio")), ("mmio", "relaxed", "cluster"))
    ('8.2', 90)
    """
    given = frozenset(words)
    found = [own for own in since if all(one & given for one in own.given)]
    return latest("1.0", *(own.version for own in found)), max((own.number for own in found), default=0)


def words_of(words: str) -> Words:
    """The words of a text."""
    return frozenset(words.split())


def one(words: str) -> Slot:
    """A slot that must have one of some words."""
    return Slot(True, words_of(words))


def some(words: str) -> Slot:
    """A slot that may have one of some words."""
    return Slot(False, words_of(words))


def need(others: str, *given: str) -> Rule:
    """Where a word of each of some sets stands, one of others must stand."""
    return Rule(tuple(map(words_of, given)), words_of(others), True)


def apart(others: str, *given: str) -> Rule:
    """Where a word of each of some sets stands, none of others may stand."""
    return Rule(tuple(map(words_of, given)), words_of(others), False)


def since(version: str, number: int, *given: str) -> Since:
    """What a spelling with a word of each of some sets needs."""
    return Since(tuple(map(words_of, given)), version, number)
