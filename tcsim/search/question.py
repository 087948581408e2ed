"""A question taken apart: groups of alternatives, one for each word, the archs that it names, and the machine instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tcsim.core.targets import ARCHS, PRODUCTS, TARGETS, accepting, product_named
from tcsim.isa.index import index
from tcsim.numbers.names import TYPES
from tcsim.search.atoms import words_of_atom
from tcsim.search.words import ALIASES, CONVERSION, NOISE, PHRASES, Alternatives

LONGEST = 400
"""Letters of a question that are read."""
MOST_WORDS = 24
"""Words of a question that are read."""


@dataclass(frozen=True)
class Question:
    """What is asked for."""

    text: str
    groups: tuple[Alternatives, ...]  # one for each word, in its order
    words: tuple[str, ...]  # the words themselves
    targets: frozenset[str] | None  # of the archs that were named; None: all
    machine: str  # the first word of a machine instruction, in small letters; empty without one


def ask(text: str, arch: str | None = None) -> Question:
    """Take a question apart.

    Raises TargetError for an arch that does not exist.

    >>> ask("fp8 h100").groups, sorted(ask("fp8 h100").targets)
    (((('e4m3',), ('e5m2',), ('fp8',)),), ['sm_90', 'sm_90a'])
    """
    words, targets, machine = [], _targets(arch), ""
    for word in _rewritten(text[:LONGEST])[:MOST_WORDS]:
        if not machine and word in opcode_heads():
            machine = word
            continue
        named = _targets_named(word)
        if named is not None:
            targets = named if targets is None else targets & named
            continue
        words.append(word)
    groups = [_alternatives(word, NOISE if not machine else frozenset()) for word in words]
    kept = [(group, word) for group, word in zip(groups, words, strict=True) if group]
    return Question(text, tuple(group for group, _ in kept), tuple(word for _, word in kept), targets, machine)


@cache
def opcode_heads() -> frozenset[str]:
    """The first words of all machine instructions, in small letters, but those that are PTX's too."""
    heads = frozenset(name.split(".")[0].lower() for entry in index().entries for name in entry.opcodes.split())
    return heads - {word for entry in index().entries for word in entry.mnemonic.split(".")}


def _rewritten(text: str) -> list[str]:
    atoms = " ".join(words_of_atom(word) or word for word in text.replace("<", " ").replace(">", " ").split())
    low = atoms.lower()
    if found := CONVERSION.search(low):
        source, result = _format(found["source"]), _format(found["result"])
        if source and result:
            low = f"{low[: found.start()]} cvt d:{result} a:{source} {low[found.end() :]}".replace("convert", "")
    for pattern, meaning in PHRASES:
        low = pattern.sub(meaning, low)
    return [word for word in re.split(r"[\s,;()\[\]{}<>/.]+", low) if word and word != "->"]


def _format(word: str) -> str:
    """The format that a word names, or several with bars; empty for none."""
    known = {name for names in TYPES.values() for name in names}
    if word in TYPES or word in known or word in ("fp8", "fp6"):
        return "|".join(ways[0] for ways in ALIASES.get(word, ((word,),)) if len(ways) == 1 and "x" not in ways[0])
    return ""


def _alternatives(word: str, noise: frozenset[str]) -> Alternatives:
    if ":" in word and word.partition(":")[0] in ("a", "b", "c", "d"):
        name, _, formats = word.partition(":")
        each = formats.split("|")
        return tuple((f"{name}:{way[0]}",) for one in each for way in ALIASES.get(one, ((one,),)))
    if word.isdigit():
        return ((f"x{word}",), (word,))
    own = ALIASES.get(word, ())
    if word in noise and not own:
        return ()
    return (*own, (word,)) if own and word not in TYPES else own or ((word,),)


def _targets(arch: str | None) -> frozenset[str] | None:
    return None if arch is None else (_targets_named(arch.lower()) or frozenset(accepting(arch)[1]))


@cache
def _names() -> dict[str, tuple[str, ...]]:
    """Archs by what they are called: generation, product, number."""
    found: dict[str, tuple[str, ...]] = {}
    for arch in ARCHS.values():
        found[arch.generation.lower()] = (*found.get(arch.generation.lower(), ()), arch.name)
    return found | {name: (arch,) for name, arch in PRODUCTS.items()}


def _targets_named(word: str) -> frozenset[str] | None:
    spelled = re.fullmatch(r"(?:sm_?|compute_)?(\d{2,3}[af]?)", word)
    target = f"sm_{spelled[1]}" if spelled else ""
    if target in ARCHS:
        return frozenset(accepting(target)[1])
    if target in TARGETS:
        return frozenset((target,))
    called = product_named(word) or word
    if called in _names():
        return frozenset(target for name in _names()[called] for target in accepting(name)[1])
    return None
