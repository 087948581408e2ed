"""Which spellings of instructions exist: those of the tables, and those of the instructions that the machine itself runs.

A spelling is known if a table has it with its modifiers in an order that the assembler takes; from then on the instruction has the manual's.
Its lowest version of PTX ISA is asked when it is read; what a kernel's target and arch have, when it is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

from tcsim import catalog
from tcsim.core.errors import listing, nearest, shortened
from tcsim.core.targets import TARGETS, at_least
from tcsim.core.versions import earliest, latest
from tcsim.isa.ordinary.catalog import ORDINARY, of_stem
from tcsim.isa.ordinary.table import VECTOR, Ordinary
from tcsim.isa.scalar.catalog import scalar, scalars
from tcsim.isa.scalar.table import Scalar
from tcsim.isa.scalar.versions import version_of
from tcsim.model.form import Form
from tcsim.model.grammar import Grammar
from tcsim.model.statement import Operand, Sink, Special, Vector
from tcsim.ptx.text.fitting import Registers, fitting

_TEXTURES = "textures and surfaces are not modelled"
_VIDEO = "of the video instructions there are vabsdiff2 and vabsdiff4 with .u32 results, as compilers emit them"
_OUTSIDE = {
    **dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"), _TEXTURES),
    **dict.fromkeys((f"v{way}{parts}" for way in ("add", "sub", "absdiff", "min", "max", "set", "avrg", "shl", "shr", "mad") for parts in ("", 2, 4)), _VIDEO),
}  # fmt: skip
"""Instructions of PTX that no table has, by stem, and why."""
_FABRIC = "the fabric proxy reaches the memory of other GPUs, and the model has only one"
_OPERATIONS = frozenset(("submit", "wait", "try_get", "try_put", "try_red", "try_pullred", "try_atom"))
"""The instructions fabric.* (ptxas 13.5.37)."""
_RELEASED = "an asynchronous store or reduction that releases, without an mbarrier, is not modelled"
_MIXED = "packed arithmetic of sm_107 whose operands have different types, or compares bytes or halves, is not modelled"
_PACKED = frozenset(("f32x2", "f16x2", "bf16x2"))
_SMALL = frozenset(("u8x4", "s8x4", "u16x2", "s16x2"))
_UNDOCUMENTED = {
    "override::global_": "what .override puts in place of the map's fields is not documented",
    "mbarrier::report::": "what .mbarrier::report puts into the mbarrier is not documented",
}
"""Modifiers by how they begin, and why no copy is modelled with them."""
_OF_COPIES = (*_UNDOCUMENTED, "relaxed", "L2::cache_hint", "ignore_oob", "cp_mask", "multicast::cluster::")
_COMBINED: dict[str, tuple[str, ...]] = {
    "ld": ("proxy::readonly",),
    "mbarrier": ("layout::",),
    "tcgen05": ("collector::", "ashift"),
    **dict.fromkeys(("cp", "applypriority"), _OF_COPIES),
    "multimem": (*_OF_COPIES, "weak"),
}
"""Modifiers by stem and by how they begin that the assembler takes beside more others than the tables have."""
_SILENT = {
    "weak": (("cp.async.bulk",), "9.3", frozenset(TARGETS)),
    "mbarrier::report::disabled": (("cp.async.bulk", "cp.async.bulk.tensor"), "9.4", frozenset(("sm_107f", "sm_107a"))),
}
"""Modifiers with which ptxas 13.5.37 makes the machine code of the copy without them: the families, the lowest version, the targets."""
_FROM_GLOBAL = frozenset(("global", "mbarrier::complete_tx::bytes"))
"""What the copies that take these have."""
_SCOPES = frozenset(("cta", "cluster", "gpu", "sys"))
_MOST = 6
"""Such modifiers in one spelling: all of what is left without some of them is looked up."""


class Known(NamedTuple):
    """A spelling that exists."""

    opcode: str  # with its modifiers in the manual's order
    version: str  # lowest version of PTX ISA
    targets: frozenset[str]  # that have it
    number: int  # the compute capability from which on targets before those of the tables have it
    forms: tuple[Form, ...] = ()  # of an instruction of the catalog, if they have different versions
    vectors: tuple[int, ...] = ()  # the operands that are vectors
    width: int = 1  # their length

    def check(self, operands: Sequence[Operand]) -> None:
        """Raise ValueError where an operand that must be a vector is none, or has another length."""
        for place in self.vectors:
            own = operands[place]
            if not isinstance(own, (Sink, Special)) and not (isinstance(own, Vector) and len(own.items) == self.width):
                raise ValueError(f"operand {place + 1} is not a vector; valid: a vector of {self.width} registers")

    def version_of(self, operands: Sequence[Operand], registers: Registers, target: str) -> str:
        """The lowest version of PTX ISA that has it with some operands for a target."""
        found = [form.ptx_version for form in fitting(self.forms, operands, registers) if target in form.targets]
        return earliest(*found) if found else self.version


@lru_cache(maxsize=1 << 14)
def known(opcode: str, sources: int | None = None, pair: bool = False) -> Known:
    """A spelling with its modifiers in any order that the assembler takes; of several lists of operands that with a number of sources.

    Raises ValueError that says what is not known, and what is nearest, or why it is not modelled.

    >>> known("vote.ballot.sync.b32").opcode, known("ld.sys.relaxed.mmio.u32").version
    ('vote.sync.ballot.b32', '8.2')
    >>> known("ld.globl.f32")
    Traceback (most recent call last):
    ValueError: 'ld.globl.f32' is not known: no modifier .globl; nearest: global, local, b128
    """
    if len(opcode) > catalog.LONGEST_MNEMONIC:
        raise ValueError(f"{shortened(opcode)} is not known: it is too long")
    stem, *words = opcode.split(".")
    item = scalar(opcode, sources, pair) or scalar(opcode, 3)
    if item is not None:
        if sources is not None:
            _check(item, sources, pair)
        version, number = version_of(item.mnemonic)
        return Known(item.mnemonic.rstrip("|").removesuffix("/3"), version, item.targets, number)
    complaint, row = "", of_stem(opcode)
    if row is not None and row.grammar is not None:
        try:
            ordered = row.grammar.ordered(words)
            complaint = row.refusal((stem, *ordered)) if row.refusal is not None else ""
        except ValueError as error:
            complaint = str(error)
        if not complaint:
            if sources is not None:
                row.grammar.check(words, sources + 1)
            return _ordinary(row, row.grammar, ordered)
    listed = catalog.row_of(opcode)
    if listed is not None:
        first = min(TARGETS[name].number for name in listed.targets)
        forms = listed.forms if len({form.ptx_version for form in listed.forms}) > 1 else ()
        return Known(listed.mnemonic, listed.ptx_version, frozenset(listed.targets), first, forms)
    if (plain := _without_silent(stem, words)) is not None:
        return plain
    if reason := unmodelled(opcode):
        raise ValueError(f"{shortened(opcode)} is not modelled: {reason}")
    complaint = complaint or _OUTSIDE.get(stem, "")
    if complaint:
        raise ValueError(f"{shortened(opcode)} is not known: {complaint}")
    raise ValueError(f"{shortened(opcode)} is not known; nearest: {listing(nearest(opcode, _known()))}")


def unmodelled(opcode: str) -> str:
    """Why an instruction that the assembler takes is not in the tables; empty if that is not known.

    >>> unmodelled("fabric.submit"), unmodelled("fabric.go")
    ('the fabric proxy reaches the memory of other GPUs, and the model has only one', '')
    >>> unmodelled("mbarrier.pending_count.layout::v0.b64")
    'only without .layout::v0'
    """
    stem, *words = opcode.split(".")
    fenced = stem == "fence" and any("fabric" in word for word in words)
    if fenced or (stem == "fabric" and _OPERATIONS.intersection(words[:1])):
        return _FABRIC
    if stem in ("st", "red") and {"async", "release"} <= set(words):
        return _RELEASED
    mixed = stem in ("add", "sub", "mul", "fma") and sum(word in _PACKED for word in words) > 1
    if mixed or (stem == "set" and _SMALL & set(words)):
        return _MIXED
    return _without(stem, words)


def _without_silent(stem: str, words: list[str]) -> Known | None:
    """A copy without the modifiers that change nothing, or applypriority with the .global that it need not have; None if there is none."""
    silent = [word for word in words if word in _SILENT]
    rest = [word for word in words if word not in _SILENT]
    if stem == "applypriority" and "global" not in rest:
        rest.append("global")
    elif not silent or len(set(silent)) < len(silent):
        return None
    elif {"weak", "relaxed"} <= set(words) or not set(rest) >= _FROM_GLOBAL:
        return None
    row = catalog.row_of(".".join((stem, *rest)))
    if row is None or any(row.family not in _SILENT[word][0] for word in silent):
        return None
    version = latest(row.ptx_version, *(_SILENT[word][1] for word in silent))
    targets = frozenset(row.targets).intersection(*(_SILENT[word][2] for word in silent))
    return Known(row.mnemonic, version, targets, min(TARGETS[name].number for name in targets))


def _without(stem: str, words: list[str]) -> str:
    """Which of a spelling's modifiers keep it out of the tables: the fewest of `_COMBINED` without which it is there."""
    if stem == "applypriority" and "global" not in words:
        words = [*words, "global"]
    if set(words) >= _FROM_GLOBAL:
        words = [word for word in words if word not in _SILENT]
    places = [place for place, word in enumerate(words) if word.startswith(_COMBINED.get(stem, ()))]
    if len(places) > _MOST:
        return ""
    for count in range(1, len(places) + 1):
        for left in combinations(places, count):
            gone = set(left)
            if any(words[place] == "relaxed" for place in left):  # with its scope and type
                gone |= {place for place, word in enumerate(words) if word in _SCOPES or word == "b128"}
            if _listed(stem, [word for place, word in enumerate(words) if place not in gone]):
                first = (why for word in words for begins, why in _UNDOCUMENTED.items() if word.startswith(begins))
                return next(first, f"only without {listing(f'.{words[place]}' for place in sorted(gone))}")
    return ""


def _listed(stem: str, words: list[str]) -> bool:
    """Whether a table has a spelling."""
    row = of_stem(stem) if stem == "ld" else None
    if row is not None and row.grammar is not None:
        try:
            row.grammar.ordered(words)
        except ValueError:
            return False
        return True
    return catalog.row_of(".".join((stem, *words))) is not None


def _ordinary(row: Ordinary, grammar: Grammar, ordered: tuple[str, ...]) -> Known:
    """A spelling of an ordinary instruction, with its modifiers in the manual's order."""
    version, number = grammar.needs(ordered)
    width = next((int(word[1:]) for word in ordered if word in VECTOR.words), 1)
    vectors = grammar.vectors if width > 1 else ()
    return Known(".".join((row.stem, *ordered)), version, at_least(number), number, (), vectors, width)


def _check(item: Scalar, sources: int, pair: bool) -> None:
    """Raise ValueError where a scalar instruction has another number of operands."""
    if pair != (len(item.results) == 2):
        raise ValueError("one destination, not two" if pair else "two destinations: a|b")
    if sources != len(item.sources):
        raise ValueError(f"{max(sources, 0)} sources; valid: {len(item.sources)}")


def refusal(opcode: str) -> str | None:
    """Why an opcode with its modifiers is not known, and what is nearest; None if it is.

    >>> refusal("add.ftz.rn.f32"), refusal("ld.global.v4.f32"), refusal("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    (None, None, None)
    """
    try:
        known(opcode)
    except ValueError as error:
        return str(error)
    return None


@cache
def _known() -> tuple[str, ...]:
    names = (name.rstrip("|").removesuffix("/3") for name in scalars())
    return (*names, *catalog.rows(), *(own.stem for own in ORDINARY.values() if own.grammar))
