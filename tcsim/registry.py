"""The registry: every instruction as a row of data, found by its mnemonic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any

from tcsim.errors import InstructionError, OperandError, listing, nearest
from tcsim.evidence import Evidence
from tcsim.formats import Format
from tcsim.layout import FragmentLayout
from tcsim.steps import Lowering
from tcsim.targets import ARCHS, TARGETS, Arch, accepting


@dataclass(frozen=True)
class Operand:
    """One register operand: its number format and where its elements live."""

    name: str  # "a", "b", "c" or "d"
    format: Format
    layout: FragmentLayout
    register_type: str  # how PTX declares one register: ".b32", ".f32", ".s32" or ".f64"

    @property
    def lanes(self) -> int:
        """Lanes that hold the operand: 32 for a warp."""
        return self.layout.lanes

    @property
    def registers(self) -> int:
        """32-bit registers per lane: the last axis of the register array; an f64 register counts two."""
        return self.layout.registers

    @property
    def ptx_registers(self) -> int:
        """Registers of the PTX operand vector: an f64 register counts one."""
        return self.registers // (2 if self.layout.element_bits == 64 else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        return self.layout.rows, self.layout.columns


class MissingOperandError(OperandError, KeyError):
    """A register operand that the instruction has not."""

    __str__ = OperandError.__str__


class _Operands(dict[str, Operand]):
    """Operands by name, which says what there is if asked for another."""

    def __init__(self, mnemonic: str, operands: Mapping[str, Operand]) -> None:
        super().__init__(operands)
        self._mnemonic = mnemonic

    def __missing__(self, name: object) -> Operand:
        has = f"valid: {listing(self)}" if self else "it has none"
        raise MissingOperandError(f"{self._mnemonic} has no register operand {name!r}; {has}")


@dataclass(frozen=True)
class Row:
    """One PTX spelling: what the manual's grammar and the assembler say of it, on every target."""

    mnemonic: str  # the full spelling
    family: str  # "mma.sync"
    shape: tuple[int, int, int]  # M, N, K of one matrix product
    operands: MappingProxyType[str, Operand]  # in PTX's operand order: d, a, b, c
    targets: tuple[str, ...]  # every PTX target whose assembler accepts it
    ptx_version: str  # lowest `.version` that has it
    arithmetic: str  # the row of the family's lowering table that says what it computes
    documented: bool = True  # listed by the PTX manual's grammar
    modifiers: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    dropped: str = ""  # why the accepted spelling is no instruction: it assembles to nothing
    facts: object = None  # what only the family's own instructions have, as a dataclass of the family

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", MappingProxyType(_Operands(self.mnemonic, self.operands)))

    @property
    def first_arch(self) -> Arch:
        """The earliest arch that runs it."""
        return min((ARCHS[TARGETS[t].arch] for t in self.targets), key=lambda arch: arch.number)


@dataclass(frozen=True)
class Family:
    """What a family module contributes to the registry."""

    name: str
    rows: Callable[[], tuple[Row, ...]]
    lowering: Callable[[Row, Arch], Lowering]
    evidence: Callable[[Row, Arch], Evidence]
    bind: Callable[..., Any]  # (row, arch, targets, lowering, evidence) -> the instruction with its execute
    without_steps: str = "none: it moves data"  # what a row does whose lowering has no arithmetic steps


def families() -> tuple[Family, ...]:
    """All families, in the order of issue of their first instruction."""
    from tcsim.families import (
        barrier_cluster,
        clusterlaunchcontrol,
        cp_async,
        cp_async_bulk,
        cvt,
        elect_sync,
        griddepcontrol,
        ldmatrix,
        mapa,
        mbarrier,
        mma_block_scale,
        mma_sp,
        mma_sync,
        movmatrix,
        ordering,
        remote_stores,
        setmaxnreg,
        spcompress,
        st_bulk,
        stmatrix,
        tcgen05_control,
        tcgen05_cp,
        tcgen05_ld_st,
        tcgen05_mma,
        tensor_copies,
        tensormap,
        wgmma,
        wgmma_sp,
        wmma_memory,
        wmma_mma,
    )

    return (
        mma_sync.FAMILY,
        mma_sp.FAMILY,
        mma_block_scale.DENSE_FAMILY,
        mma_block_scale.SPARSE_FAMILY,
        ldmatrix.FAMILY,
        stmatrix.FAMILY,
        movmatrix.FAMILY,
        wmma_memory.LOAD_FAMILY,
        wmma_memory.STORE_FAMILY,
        wmma_mma.FAMILY,
        wgmma.FAMILY,
        wgmma_sp.FAMILY,
        cvt.FAMILY,
        tcgen05_control.ALLOC_FAMILY,
        tcgen05_control.COMMIT_FAMILY,
        tcgen05_control.FENCE_FAMILY,
        tcgen05_control.WAIT_FAMILY,
        tcgen05_ld_st.LOAD_FAMILY,
        tcgen05_ld_st.STORE_FAMILY,
        tcgen05_ld_st.REDUCE_FAMILY,
        tcgen05_ld_st.COMPRESS_FAMILY,
        tcgen05_cp.COPY_FAMILY,
        tcgen05_cp.SHIFT_FAMILY,
        spcompress.FAMILY,
        *tcgen05_mma.FAMILIES,
        mbarrier.FAMILY,
        cp_async.FAMILY,
        cp_async_bulk.FAMILY,
        cp_async_bulk.REDUCE_FAMILY,
        ordering.FENCE_FAMILY,
        ordering.WGMMA_FAMILY,
        tensor_copies.COPY_FAMILY,
        tensor_copies.REDUCE_FAMILY,
        tensor_copies.PREFETCH_FAMILY,
        tensormap.FAMILY,
        setmaxnreg.FAMILY,
        elect_sync.FAMILY,
        barrier_cluster.FAMILY,
        mapa.FAMILY,
        remote_stores.STORE_FAMILY,
        remote_stores.REDUCE_FAMILY,
        st_bulk.FAMILY,
        clusterlaunchcontrol.FAMILY,
        griddepcontrol.FAMILY,
    )


@cache
def rows() -> MappingProxyType[str, Row]:
    """Every row of every family by mnemonic."""
    table: dict[str, Row] = {}
    for family in families():
        for row in _rows_of(family.name).values():
            if row.mnemonic in table:
                raise InstructionError(f"{row.mnemonic} has two rows")
            table[row.mnemonic] = row
    return MappingProxyType(table)


@cache
def _rows_of(family_name: str) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for row in family(family_name).rows():
        if row.mnemonic in table:
            raise InstructionError(f"{row.mnemonic} has two rows")
        table[row.mnemonic] = row
    return table


def row_of(mnemonic: str) -> Row | None:
    """The row of a mnemonic, or None. Families whose name begins as it does are asked first: others need not be built.

    >>> row_of("movmatrix.sync.aligned.m8n8.trans.b16").family
    'movmatrix'
    """
    head = str(mnemonic).split(".")[0]
    for item in sorted(families(), key=lambda family: family.name.split(".")[0] != head):
        if mnemonic in (table := _rows_of(item.name)):
            return table[mnemonic]
    return None


@cache
def family(name: str) -> Family:
    """A family by name.

    Raises InstructionError if there is none.
    """
    for item in families():
        if item.name == name:
            return item
    raise InstructionError(f"no family {name!r}; valid: {listing(f.name for f in families())}")


def on_arch(arch_or_target: str, family_name: str | None = None) -> Iterator[Row]:
    """Rows that an arch (any of its targets) or one target accepts, in table order; dropped ones left out."""
    _, targets = accepting(arch_or_target)
    for row in rows().values():
        if row.dropped or (family_name is not None and row.family != family_name):
            continue
        if set(row.targets) & set(targets):
            yield row


def nearest_mnemonics(mnemonic: str) -> list[str]:
    """The three mnemonics spelled most like one that does not exist, of its own family if that has as many."""
    head = str(mnemonic).split(".")[0] + "."
    kin = [name for name in rows() if name.startswith(head)]
    return nearest(str(mnemonic), kin if len(kin) >= 3 else rows(), 3)


def find(mnemonic: str, arch_or_target: str) -> tuple[Row, Arch, tuple[str, ...]]:
    """The row of a mnemonic, the arch, and those of the arch's targets (or the one named) that accept it.

    Raises InstructionError for an unknown mnemonic, one that assembles to nothing, or one that needs another target.
    """
    arch, candidates = accepting(arch_or_target)
    asked = f'tcsim.instruction("{mnemonic}", arch="{arch_or_target}")'
    row = row_of(mnemonic) if isinstance(mnemonic, str) else None
    if row is None:
        raise InstructionError(
            f"{asked}: no such instruction; nearest: {listing(nearest_mnemonics(mnemonic))}{_shapes_of(str(mnemonic))}"
        )
    if row.dropped:
        raise InstructionError(f"{asked}: {row.dropped}")
    accepted = tuple(t for t in candidates if t in row.targets)
    if not accepted:
        raise InstructionError(f"{asked}: {_unavailable(row, arch_or_target)}")
    return row, arch, accepted


_SHAPE = re.compile(r"\bm\d+n\d+k\d+\b")


def _shapes_of(mnemonic: str) -> str:
    """The shapes that the spelling has, if only its shape is wrong: "M 64, N 8 to 256 in steps of 8, K 16"."""
    rest = _SHAPE.sub("", mnemonic)
    shapes = (
        sorted({row.shape for name, row in rows().items() if _SHAPE.sub("", name) == rest}) if rest != mnemonic else []
    )
    if not shapes:
        return ""
    dimensions = [sorted(set(values)) for values in zip(*shapes, strict=True)]
    if len(shapes) <= 4 or len(shapes) != prod(map(len, dimensions)):  # few, or not every combination
        text = listing("m{}n{}k{}".format(*shape) for shape in shapes)
    else:
        text = ", ".join(f"{letter} {_values(found)}" for letter, found in zip("MNK", dimensions, strict=True))
    return f"; the same spelling exists for {text}"


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
    available = dict.fromkeys(r.operands["a"].format.name for r in on_arch(asked, row.family) if "a" in r.operands)
    same = dict.fromkeys(
        "m{}n{}k{}".format(*r.shape)
        for r in on_arch(asked, row.family)
        if r.operands["a"].format is row.operands["a"].format
    )
    text = f"{shape} with {kinds} {need}; {asked} has {listing(available) or 'no instruction of this family'}"
    return text + (f" ({row.operands['a'].format.name} in {listing(same)})" if same else "")


def check_registers(registers: object, operand: Operand, call: str) -> None:
    """Raise OperandError unless an array is uint32 (..., lanes, registers) for the operand."""
    dtype, shape = getattr(registers, "dtype", None), getattr(registers, "shape", ())
    want = f"uint32 (..., {operand.lanes}, {operand.registers})"
    if dtype != "uint32" or tuple(shape[-2:]) != (operand.lanes, operand.registers):
        raise OperandError(f"{call}: {operand.name} is {dtype} {tuple(shape)}; valid: {want}")
