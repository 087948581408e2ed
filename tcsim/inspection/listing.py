"""Which instructions there are: lists by arch, family and type, and the arch to take where none was named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from tcsim import catalog
from tcsim.core.errors import FormatError, InstructionError, TargetError, listing, nearest, shortened
from tcsim.core.evidence import Level
from tcsim.core.targets import ARCHS, TARGETS, accepting, named, since, suffixed_since
from tcsim.isa.index import Entry as Brief
from tcsim.isa.index import index

if TYPE_CHECKING:
    from tcsim.model.row import Row

LEVELS: tuple[str, ...] = get_args(Level)
"""Levels of evidence, strongest first."""
_LEVEL_OF = {level[0]: level for level in LEVELS}


@dataclass(frozen=True)
class Entry:
    """One line of a list."""

    mnemonic: str
    family: str
    archs: tuple[str, ...]  # the one asked for, or all that run it
    levels: str  # of evidence on each of these archs, by their first letters

    @property
    def row(self) -> Row:
        """All of it."""
        return catalog.rows_of(self.family)[self.mnemonic]

    @property
    def evidence(self) -> dict[str, str]:
        """Arch -> level."""
        return {name: _LEVEL_OF[letter] for name, letter in zip(self.archs, self.levels, strict=True)}

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        row = self.row
        return {
            "mnemonic": row.mnemonic, "family": row.family, "formats": formats_of(row), "targets": list(row.targets),
            "ptx_version": row.ptx_version, "documented": row.documented, "evidence": self.evidence,
        }  # fmt: skip


@dataclass(frozen=True)
class FamilyEntry:
    """A family and how much of it there is."""

    family: str
    instructions: int
    archs: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {**asdict(self), "archs": list(self.archs)}


def formats_of(row: Row) -> dict[str, str]:
    """The number format of each operand, registers and others that the row's facts name.

    >>> formats_of(catalog.rows()["cvt.rn.satfinite.e4m3x2.f32"])
    {'d': 'e4m3', 'a': 'f32', 'b': 'f32'}
    """
    found = {name: operand.format.name for name, operand in row.operands.items()}
    return found | {
        item.name: item.format.name for item in row.forms[0].operands if item.format and item.name not in found
    }


@cache
def archs_of(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The archs of some targets, in order."""
    own = {TARGETS[target].arch for target in targets}
    return tuple(arch for arch in ARCHS if arch in own)


def entries(
    arch: str | None = None, family: str | None = None, type: str | None = None, text: str = ""
) -> tuple[Entry, ...]:
    """Instructions on an arch or target, of a family, with an operand of a type: those that words mean, the likeliest first.

    Without words they stand in the registry's order.

    Raises TargetError, InstructionError or FormatError for an arch, family or type that does not exist.

    >>> len(entries(arch="sm_90", family="mma.sync", type="bf16"))
    2
    >>> entries(text="ldmatrix trans x4")[0].mnemonic
    'ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    """
    if family is not None:
        catalog.family(family)
    if type is not None:
        _check_type(type)
    chip, targets = accepting(arch) if arch is not None else (None, ())
    asked = _found(text, arch) if text else index().entries
    return tuple(
        _entry(row, chip.name if chip is not None else None)
        for row in asked
        if (family is None or row.family == family)
        and (type is None or type in _types_in(row.formats))
        and (chip is None or not set(targets).isdisjoint(row.targets))
    )


def _entry(row: Brief, arch: str | None) -> Entry:
    archs = archs_of(row.targets)
    if arch is None:
        return Entry(row.mnemonic, row.family, archs, row.evidence)
    return Entry(row.mnemonic, row.family, (arch,), row.evidence[archs.index(arch)])


def _found(text: str, arch: str | None) -> list[Brief]:
    from tcsim.search import find  # its patterns take 10 ms, and a mnemonic or a whole list needs none

    known = {entry.mnemonic: entry for entry in index().entries}
    return [known[match.mnemonic] for match in find(text, arch)]


_N = re.compile(r"(?<=\.m)(\d+)n(\d+)(?=k\d+\.)")


def by_n(rows: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Pairs of a word and a mnemonic; those that differ in N alone together, at the place of the first, with N and what it may be.

    >>> by_n([("sm_90", "wgmma.m64n8k16.f32"), ("sm_90", "ldmatrix"), ("sm_90", "wgmma.m64n16k16.f32"), ("sm_90", "wgmma.m64n24k16.f32")])
    [('sm_90', 'wgmma.m64nNk16.f32', '8 to 24 in steps of 8'), ('sm_90', 'ldmatrix')]
    """
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for word, mnemonic in rows:
        shape = _N.search(mnemonic)
        found.setdefault((word, _N.sub(r"\1nN", mnemonic)), []).append((int(shape[2]) if shape else 0, mnemonic))
    return [
        (word, same, _steps(sorted(n for n, _ in own))) if own[1:] else (word, own[0][1])
        for (word, same), own in found.items()
    ]


def _steps(numbers: Sequence[int]) -> str:
    """Ascending numbers, runs of one step joined.

    >>> _steps([8, 16, 24, 32, 48, 64, 80]), _steps([8, 16])
    ('8 to 32 in steps of 8, 48 to 80 in steps of 16', '8, 16')
    """
    parts, rest = list[str](), list(numbers)
    while rest:
        step, last = (rest[1] - rest[0] if rest[1:] else 0), 1
        while last < len(rest) and rest[last] - rest[last - 1] == step:
            last += 1
        parts.append(f"{rest[0]} to {rest[last - 1]} in steps of {step}" if last > 2 else str(rest[0]))
        rest = rest[last if last > 2 else 1 :]
    return ", ".join(parts)


@cache
def _types_in(formats: str) -> frozenset[str]:
    return frozenset(name for item in formats.split() for name in item.partition("=")[2].split(","))


def types() -> tuple[str, ...]:
    """Every number format that some instruction has, formats of `tcsim.FORMATS` first."""
    from tcsim.numbers.conversion import OTHER_FORMATS  # which import NumPy, and a list needs only their order
    from tcsim.numbers.formats import FORMATS

    used = _used_types()
    ordered = [name for name in (*FORMATS, *OTHER_FORMATS) if name in used]
    return (*ordered, *sorted(used - set(ordered)))


@cache
def _used_types() -> frozenset[str]:
    return frozenset[str]().union(*(_types_in(entry.formats) for entry in index().entries))


def _check_type(type: str) -> None:
    if type in _used_types():
        return
    from tcsim.numbers.formats import FORMATS  # as above

    if type not in FORMATS:
        known = types()
        raise FormatError(f"no type {type!r}; nearest: {listing(nearest(type, known, 2))}; valid: {listing(known, 40)}")


def families(arch: str | None = None) -> tuple[FamilyEntry, ...]:
    """Every family, how many instructions it has (on an arch or target), and on which archs.

    Raises TargetError for an arch that does not exist.
    """
    counts: Counter[str] = Counter()
    archs: dict[str, set[str]] = {}
    targets = set(accepting(arch)[1]) if arch is not None else set(TARGETS)
    for row in index().entries:
        if not targets.isdisjoint(row.targets):
            counts[row.family] += 1
            archs.setdefault(row.family, set()).update(archs_of(row.targets))
    return tuple(
        FamilyEntry(family, counts[family], tuple(name for name in ARCHS if name in archs[family]))
        for family in index().families
        if counts[family]
    )


def default_arch(mnemonic: str) -> str:
    """The arch that most is known about: the earliest with the strongest evidence.

    Raises InstructionError for a mnemonic that does not exist or that assembles to nothing.

    >>> default_arch("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    'sm_90'
    """
    row = catalog.row_of(mnemonic)
    if row is None:
        close = catalog.nearest_mnemonics(mnemonic)
        raise InstructionError(
            f"no instruction {shortened(mnemonic, 256)}; nearest: {listing(close)}; valid: see tcsim list"
        )
    if row.dropped:
        raise InstructionError(f"{mnemonic}: {row.dropped}")
    evidence = catalog.family(row.family).evidence
    return min(archs_of(row.targets), key=lambda name: LEVELS.index(evidence(row, ARCHS[name]).level))


def arch_list(text: str) -> tuple[str, ...]:
    """Archs, targets or products separated by commas, as archs and targets.

    Raises TargetError if one does not exist or none is named.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise TargetError(f"no arch in {shortened(text)}; valid: names separated by commas, of {listing(ARCHS)}")
    for name in names:
        accepting(name)
    return tuple(named(name) or name for name in names)


def arch_ranges(names: Iterable[str]) -> str:
    """Archs in ascending order, runs of neighbours joined.

    >>> arch_ranges(["sm_80", "sm_86", "sm_87", "sm_120"])
    'sm_80 to sm_87, sm_120'
    """
    order = list(ARCHS)
    places = sorted({order.index(name) for name in names})
    parts = []
    while places:
        last = 0
        while last + 1 < len(places) and places[last + 1] == places[0] + last + 1:
            last += 1
        run, places = [order[place] for place in places[: last + 1]], places[last + 1 :]
        parts.append(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run))
    return ", ".join(parts)


def target_text(targets: Iterable[str]) -> str:
    """Targets in few words.

    >>> target_text(since("sm_80")), target_text(["sm_90a"]), target_text(suffixed_since("sm_90"))
    ('sm_80 and later', 'sm_90a', 'f and a targets of sm_90 and later')
    """
    given = tuple(targets)
    for arch in reversed(ARCHS):  # f and a targets begin with sm_90a: earlier archs have the same set
        if set(given) == set(since(arch)):
            return f"{arch} and later"
        if set(given) == set(suffixed_since(arch)):
            return f"f and a targets of {arch} and later"
    return ", ".join(given)
