"""The catalog: every instruction of every family, found by its mnemonic."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tcsim import isa as isa
from tcsim.core.errors import InstructionError, listing, nearest
from tcsim.core.targets import TARGETS, Arch, accepting
from tcsim.isa.index import families_of_head, family_of, index
from tcsim.model.spelling import Spelling, spelling

if TYPE_CHECKING:
    from tcsim.model.family import Family
    from tcsim.model.instruction import Instruction
    from tcsim.model.row import Row

_ORDER = (
    "mma.sync", "mma.sp", "mma.sync.block_scale", "mma.sp.block_scale", "ldmatrix", "stmatrix", "movmatrix",
    "wmma.load", "wmma.store", "wmma.mma", "wgmma", "wgmma.sp", "cvt",
    "tcgen05.alloc", "tcgen05.commit", "tcgen05.fence", "tcgen05.wait", "tcgen05.ld", "tcgen05.st", "tcgen05.ld.red",
    "tcgen05.ld.spcompress", "tcgen05.cp", "tcgen05.shift", "spcompress",
    "tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp",
    "mbarrier", "cp.async", "cp.async.bulk", "cp.reduce.async.bulk", "fence", "wgmma.sync",
    "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor", "tensormap",
    "setmaxnreg", "elect.sync", "barrier.cluster", "mapa", "st.async", "red.async", "st.bulk", "clusterlaunchcontrol",
    "griddepcontrol", "redux.sync", "barrier.cta", "bar.warp.sync", "createpolicy", "getctarank", "discard", "applypriority",
    "cvta.param", "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div",
    "multimem.ld_reduce", "multimem.st", "multimem.red", "multimem.st.async", "multimem.red.async", "multimem.cp.async.bulk",
    "multimem.cp.reduce.async.bulk",
)  # fmt: skip
"""In which order lists show the families; one that is not named here comes after these."""


@cache
def families() -> tuple[Family[Any], ...]:
    """All families: what the modules of `tcsim.isa` define, in the order of `_ORDER`, the others by name."""
    found: dict[str, Family[Any]] = {}
    for item in pkgutil.walk_packages(isa.__path__, f"{isa.__name__}."):
        found |= families_in(item.name)
    rank = {name: place for place, name in enumerate(_ORDER)}
    return tuple(sorted(found.values(), key=lambda each: (rank.get(each.name, len(rank)), each.name)))


def families_in(module: str) -> dict[str, Family[Any]]:
    """The families that a module of `tcsim.isa` has, by name."""
    from tcsim.model.family import Family  # a list of names needs no family, and not NumPy

    values = vars(importlib.import_module(module)).values()
    each = (item for value in values for item in (value if isinstance(value, tuple) else (value,)))
    return {item.name: item for item in each if isinstance(item, Family)}


@cache
def rows() -> MappingProxyType[str, Row]:
    """Every row of every family by mnemonic."""
    table: dict[str, Row] = {}
    for family in families():
        for row in rows_of(family.name).values():
            if row.mnemonic in table:
                raise InstructionError(f"{row.mnemonic} has two rows")
            table[row.mnemonic] = row
    return MappingProxyType(table)


LONGEST_MNEMONIC = 256
"""Letters beyond which a word is not looked up: the longest mnemonic has 137."""


@cache
def rows_of(family_name: str) -> dict[str, Row]:
    """The rows of one family by mnemonic."""
    table: dict[str, Row] = {}
    for row in family(family_name).rows():
        if row.mnemonic in table:
            raise InstructionError(f"{row.mnemonic} has two rows")
        table[row.mnemonic] = row
    return table


@cache
def _by_spelling(family_name: str) -> dict[Spelling, Row]:
    return {spelling(mnemonic): row for mnemonic, row in rows_of(family_name).items()}


def row_of(mnemonic: str) -> Row | None:
    """The row of a mnemonic in any order of modifiers that the assembler takes, or None.

    Only its family is imported and built; of another spelling, those of which a mnemonic begins as it does.

    >>> row_of("movmatrix.sync.aligned.trans.m8n8.b16").mnemonic
    'movmatrix.sync.aligned.m8n8.trans.b16'
    """
    if len(mnemonic) > LONGEST_MNEMONIC:
        return None
    if (own := family_of(mnemonic)) is not None and (row := rows_of(own).get(mnemonic)) is not None:
        return row
    head, asked = mnemonic.split(".")[0], spelling(mnemonic)
    names = families_of_head(head) or tuple(family.name for family in families() if head in family.words)
    found = (row for name in names if (row := rows_of(name).get(mnemonic)) is not None)
    read = (row for name in names if (row := _by_spelling(name).get(asked)) is not None)
    return next(chain(found, read), None)


@cache
def family(name: str) -> Family[Any]:
    """A family by name.

    Raises InstructionError if there is none.
    """
    if name in index().families:
        return families_in(index().families[name].module)[name]
    for item in families():
        if item.name == name:
            return item
    raise InstructionError(f"no family {name!r}; valid: {listing(f.name for f in families())}")


def on_arch(arch_or_target: str, family_name: str | None = None) -> Iterator[Row]:
    """Rows that an arch (any of its targets) or one target accepts, in table order; dropped ones left out."""
    targets = set(accepting(arch_or_target)[1])
    for row in (rows() if family_name is None else rows_of(family_name)).values():
        if not row.dropped and not targets.isdisjoint(row.targets):
            yield row


def nearest_mnemonics(mnemonic: str) -> list[str]:
    """The three mnemonics spelled most like one that does not exist, of its own family if that has three."""
    mnemonic = str(mnemonic)[:LONGEST_MNEMONIC]
    kin = _kin().get(mnemonic.split(".")[0], ())
    return nearest(mnemonic, kin if len(kin) >= 3 else [entry.mnemonic for entry in index().entries], 3)


@cache
def _kin() -> dict[str, tuple[str, ...]]:
    """The mnemonics that begin with each first word."""
    found: dict[str, list[str]] = {}
    for entry in index().entries:
        found.setdefault(entry.mnemonic.split(".")[0], []).append(entry.mnemonic)
    return {head: tuple(names) for head, names in found.items()}


def find(mnemonic: str, arch_or_target: str) -> tuple[Row, Arch, tuple[str, ...]]:
    """The row of a mnemonic, the arch, and those of the arch's targets (or the one named) that accept it.

    Raises InstructionError for an unknown mnemonic, one that assembles to nothing, or one that needs another target.
    """
    arch, candidates = accepting(arch_or_target)
    quoted = str(mnemonic)[:LONGEST_MNEMONIC]
    quoted = quoted if quoted.isprintable() else repr(quoted)[1:-1]
    asked = f'tcsim.instruction("{quoted}", arch="{arch_or_target}")'
    row = row_of(mnemonic) if isinstance(mnemonic, str) else None
    if row is None:
        raise InstructionError(
            f"{asked}: no such instruction; nearest: {listing(nearest_mnemonics(mnemonic))}{_shapes_of(str(mnemonic)[:LONGEST_MNEMONIC])}"
        )
    if row.dropped:
        raise InstructionError(f"{asked}: {row.dropped}")
    accepted = tuple(t for t in candidates if t in row.targets)
    if not accepted:
        raise InstructionError(f"{asked}: {_unavailable(row, arch_or_target)}")
    return row, arch, accepted


_SHAPE = re.compile(r"\bm(\d+)n(\d+)k(\d+)\b")


def _shapes_of(mnemonic: str) -> str:
    """The shapes that the spelling has, if only its shape is wrong: "M 64, N 8 to 256 in steps of 8, K 16"."""
    shapes = sorted(_shapes().get(_SHAPE.sub("", mnemonic), ())) if _SHAPE.search(mnemonic) else []
    if not shapes:
        return ""
    dimensions = [sorted(set(values)) for values in zip(*shapes, strict=True)]
    if len(shapes) <= 4 or len(shapes) != prod(map(len, dimensions)):  # few, or not every combination
        text = listing("m{}n{}k{}".format(*shape) for shape in shapes)
    else:
        text = ", ".join(f"{letter} {_values(found)}" for letter, found in zip("MNK", dimensions, strict=True))
    return f"; the same spelling exists for {text}"


@cache
def _shapes() -> dict[str, set[tuple[int, ...]]]:
    """The shapes of each spelling without its shape."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for entry in index().entries:
        if shape := _SHAPE.search(entry.mnemonic):
            found.setdefault(_SHAPE.sub("", entry.mnemonic), set()).add(tuple(map(int, shape.groups())))
    return found


def _values(found: list[int]) -> str:
    steps = {later - earlier for earlier, later in pairwise(found)}
    if len(found) > 3 and len(steps) == 1:
        return f"{found[0]} to {found[-1]} in steps of {steps.pop()}"
    return listing(found)


def _unavailable(row: Row, asked: str) -> str:
    first = row.first_arch.name
    later = [t for t in TARGETS if TARGETS[t].number >= row.first_arch.number]
    need = f"needs {first} or later" if set(later) <= set(row.targets) else f"needs one of {listing(row.targets, 30)}"
    if not {"a", "b"} <= row.operands.keys():  # no product
        close = nearest(row.mnemonic, (other.mnemonic for other in on_arch(asked, row.family)), 3)
        return f"{row.mnemonic} {need}; {asked} has {listing(close) or 'no instruction of this family'}"
    shape = "m{}n{}k{}".format(*row.shape)
    kinds = " x ".join(dict.fromkeys((row.operands["a"].format.name, row.operands["b"].format.name)))
    there = tuple(on_arch(asked, row.family))
    available = dict.fromkeys(r.operands["a"].format.name for r in there if "a" in r.operands)
    same = dict.fromkeys(
        "m{}n{}k{}".format(*r.shape) for r in there if r.operands["a"].format is row.operands["a"].format
    )
    text = f"{shape} with {kinds} {need}; {asked} has {listing(available) or 'no instruction of this family'}"
    return text + (f" ({row.operands['a'].format.name} in {listing(same)})" if same else "")


def instruction(mnemonic: str, arch: str) -> Instruction:
    """Look an instruction up by its full PTX spelling on an arch (`sm_90`) or a target (`sm_90a`).

    Modifiers may stand in any order that the assembler takes; `.mnemonic` is the manual's.

    Raises InstructionError if the mnemonic does not exist or not there, TargetError if the arch does not.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> str(mma.operands["a"].layout)
    '((4,8),(2,2,2)):((32,1),(16,8,128))'
    >>> mma.operands["a"].layout.where(3, 7)
    (15, 0, 1)
    """
    row, chip, targets = find(mnemonic, arch)
    return family(row.family).instruction(row, chip, targets)
