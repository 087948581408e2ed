"""Every row in brief, read from one small file: names are searched, and one family imported, without building them all.

`python docs/generate.py` writes the file from the rows; a test compares them. What it says is what the rows say: nothing is added to it by hand.
"""

from __future__ import annotations

import json
import lzma
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

FILE = "index.json.xz"
"""The file, in this package."""


class Entry(NamedTuple):
    """A row in brief."""

    mnemonic: str
    family: str
    targets: tuple[str, ...]
    formats: str  # "d=f32 a=f16,bf16 b=f16,bf16": of each operand, those that it may have
    opcodes: str  # "HMMA.16816.F32": machine code on any arch
    evidence: str  # "mli": the first letter of its level on each arch that runs it, in the archs' order


class Home(NamedTuple):
    """Where a family is."""

    module: str
    words: tuple[str, ...]  # with which its mnemonics begin


@dataclass(frozen=True)
class Index:
    """All rows that assemble to something, in the catalog's order, and all families."""

    families: Mapping[str, Home]
    entries: tuple[Entry, ...]
    dropped: frozenset[str]  # mnemonics that assemble to nothing


@cache
def index() -> Index:
    """The file's contents.

    >>> index().families["movmatrix"]
    Home(module='tcsim.isa.matrix.semantics', words=('movmatrix',))
    """
    data = json.loads(lzma.decompress(pkgutil.get_data(__package__, FILE) or b""))
    families = {name: Home(module, tuple(words)) for name, (module, words) in data["families"].items()}
    names, targets = tuple(families), tuple(map(tuple, data["targets"]))
    mnemonics, family, target, formats, opcodes, evidence = zip(*data["rows"], strict=True)
    columns = (
        mnemonics, map(names.__getitem__, family), map(targets.__getitem__, target),
        map(data["formats"].__getitem__, formats), opcodes, map(data["evidence"].__getitem__, evidence),
    )  # fmt: skip
    entries = tuple(map(Entry._make, zip(*columns, strict=True)))
    return Index(MappingProxyType(families), entries, frozenset(data["dropped"]))


@cache
def _by_mnemonic() -> dict[str, Entry]:
    return {each.mnemonic: each for each in index().entries}


def entry(mnemonic: str) -> Entry | None:
    """A row in brief, of a mnemonic that is spelled as its row is; None for another text.

    >>> entry("movmatrix.sync.aligned.m8n8.trans.b16").family
    'movmatrix'
    """
    return _by_mnemonic().get(mnemonic)


def family_of(mnemonic: str) -> str | None:
    """The family of a mnemonic that is spelled as its row is; None for another text.

    >>> family_of("movmatrix.sync.aligned.m8n8.trans.b16"), family_of("movmatrix")
    ('movmatrix', None)
    """
    found = entry(mnemonic)
    return None if found is None else found.family


@cache
def families_of_head(head: str) -> tuple[str, ...]:
    """The families of which mnemonics begin with a word.

    >>> families_of_head("ldmatrix")
    ('ldmatrix',)
    """
    return tuple(name for name, home in index().families.items() if head in home.words)


def packed(data: Mapping[str, Any]) -> bytes:
    """The bytes of the file."""
    text = json.dumps(data, separators=(",", ":"))
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
