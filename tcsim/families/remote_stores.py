"""st.async and red.async with a barrier: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 9.4, sections st.async, red.async; ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word. Their
other forms, which release a store to global memory and have no barrier, are not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tcsim.evidence import RECORDED, Evidence
from tcsim.families.plain_rows import later, plain_row
from tcsim.operand_form import OperandForm
from tcsim.reduction import Reduction
from tcsim.registry import Family, Row
from tcsim.remote_store import RemoteFacts, bind, remote_facts
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

STORE, REDUCE = "st.async", "red.async"

_TARGETS = since("sm_90")
_SPACES = (".shared::cluster", "")
_TO_BARRIER = ".mbarrier::complete_tx::bytes"
_TYPES = {
    "": ("b32", "b64", "f32", "s32", "u32", "u64", "s64", "f64", "b128"),
    ".v2": ("b32", "b64", "f32", "s32", "u32", "u64", "s64", "f64"),
    ".v4": ("b32", "f32", "s32", "u32"),  # 16 bytes at most
}
"""The types of each vector."""
_LATE = {"b128": "9.2"}
"""Types that came after PTX ISA 8.1."""
_REDUCTIONS = (
    *(("inc", "u32"), ("dec", "u32")),
    *product(("min", "max"), ("u32", "s32")),
    *product(("and", "or", "xor"), ("b32",)),
    *product(("add",), ("u32", "s32", "u64")),
)


def _row(
    family: str, mnemonic: str, space: str, kind: str, type: str, elements: int, reduction: Reduction | None
) -> Row:
    version = later("8.1", _LATE.get(type, "8.1"))
    form = OperandForm("", (), ("value", "barrier"), _TARGETS, version)
    facts = RemoteFacts(type, elements, space, (form,), reduction)
    modifiers = {"space": space, "type": f".{type}"}
    return plain_row(family, mnemonic, _TARGETS, version, kind, facts, modifiers)


def store_rows() -> tuple[Row, ...]:
    """Every st.async that signals a barrier."""
    return tuple(
        _row(
            STORE,
            f"{STORE}{order}{space}{_TO_BARRIER}{vector}.{type}",
            space,
            f"store {vector}".strip(),
            type,
            int(vector[2:] or 1),
            None,
        )
        for order, space, vector in product((".weak", ""), _SPACES, _TYPES)
        for type in _TYPES[vector]
    )


def _reductions() -> Iterator[Row]:
    for space, (operation, type) in product(_SPACES, _REDUCTIONS):
        name = f"{REDUCE}.relaxed.cluster{space}{_TO_BARRIER}.{operation}.{type}"
        yield _row(REDUCE, name, space, operation, type, 1, Reduction(operation, type))


def reduce_rows() -> tuple[Row, ...]:
    """Every red.async that signals a barrier."""
    return tuple(_reductions())


_SIZES = {4: "", 8: ".64", 16: ".128"}
_KINDS = {"s32": ".S32", "u64": ".64"}


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    facts = remote_facts(row)
    if facts.reduction is None:
        return Lowering("native", (), ((f"STAS{_SIZES[facts.bytes]}", 1),))
    return Lowering("native", (), ((f"REDAS.{facts.reduction.operation.upper()}{_KINDS.get(facts.type, '')}", 1),))


_MANUAL = {name: Evidence("literature", f"PTX ISA 9.4, section {name}") for name in (STORE, REDUCE)}


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL[row.family])


STORE_FAMILY = Family(STORE, store_rows, lowering, evidence, bind)
REDUCE_FAMILY = Family(REDUCE, reduce_rows, lowering, evidence, bind)
