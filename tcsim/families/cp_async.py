"""cp.async: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 7.0 to 9.4, sections cp.async, cp.async.commit_group, cp.async.wait_group, cp.async.mbarrier.arrive;
ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import MappingProxyType

from tcsim.async_copy import bind
from tcsim.copy_instruction import CopyFacts, copy_facts
from tcsim.evidence import RECORDED, Evidence
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

NAME = "cp.async"

_TARGETS = since("sm_80")
_SIZES = MappingProxyType({".ca": (4, 8, 16), ".cg": (16,)})
_CACHE = ("", ".L2::cache_hint")
_PREFETCH = ("", ".L2::64B", ".L2::128B", ".L2::256B")
WAITS = (0, 1, 7)
"""Numbers of groups that wait_group was assembled with; any number is taken."""


def _row(mnemonic: str, version: str, arithmetic: str, facts: CopyFacts, **modifiers: str) -> Row:
    return Row(
        mnemonic,
        NAME,
        (0, 0, 0),
        MappingProxyType({}),
        _TARGETS,
        version,
        arithmetic,
        modifiers=MappingProxyType({name: text for name, text in modifiers.items() if text}),
        facts=facts,
    )


def _copies() -> Iterator[Row]:
    for (cache, sizes), space, hint, prefetch in product(
        _SIZES.items(), (".shared", ".shared::cta"), _CACHE, _PREFETCH
    ):
        version = "7.4" if hint or prefetch else "7.0"
        policy = ("cache_policy",) if hint else ()
        forms = tuple(
            OperandForm(f"size={size}{name}", (), (*operands, *policy), _TARGETS, max(version, first))
            for size in sizes
            for name, operands, first in (
                ("", (), "7.0"),
                (";srcsize", ("source_size",), "7.0"),
                (";ignore", ("ignore",), "7.5"),
            )
        )
        yield _row(
            f"cp.async{cache}{space}.global{hint}{prefetch}",
            version,
            f"copy{cache}",
            CopyFacts("copy", space, ".global", forms, sizes, bypasses=cache == ".cg"),
            space=space,
            hint=hint,
            prefetch=prefetch,
        )


def rows() -> tuple[Row, ...]:
    """Every cp.async spelling."""

    def group(operation: str, mnemonic: str, names: tuple[str, ...]) -> Row:
        forms = tuple(OperandForm(name, (), ("groups",) if name else (), _TARGETS, "7.0") for name in names)
        return _row(mnemonic, "7.0", mnemonic.removeprefix("cp.async."), CopyFacts(operation, "", "", forms))

    found = [*_copies(), group("commit", "cp.async.commit_group", ("",)), group("wait", "cp.async.wait_all", ("",))]
    found.append(group("wait", "cp.async.wait_group", tuple(f"N={number}" for number in WAITS)))
    for count, (space, name, version) in product(
        ("", ".noinc"), (("", "generic", "7.0"), (".shared", "shared", "7.0"), (".shared::cta", "shared::cta", "7.8"))
    ):
        form = OperandForm(name, (), (), _TARGETS, version)
        facts = CopyFacts("arrive", space, "", (form,), increments=not count)
        stem = f"mbarrier.arrive{count}"
        found.append(_row(f"cp.async.{stem}{space}.b64", version, stem, facts, space=space))
    return tuple(found)


def opcodes(row: Row, form: OperandForm, arch: Arch) -> tuple[tuple[str, int], ...]:
    """The machine instructions that a spelling becomes with one of its lists of operands."""
    facts = copy_facts(row)
    if facts.operation == "copy":
        size = int(form.name.removeprefix("size=").partition(";")[0])
        prefetch = row.modifiers.get("prefetch", "").replace(".L2::", ".LTC")
        words = ["LDGSTS.E", ".BYPASS" if facts.bypasses else "", prefetch, "" if size == 4 else f".{8 * size}"]
        return (("".join([*words, ".ZFILL" if "source_size" in form.operands else ""]), 1),)
    if facts.operation == "arrive":
        mode = "" if arch.number < 90 else ".TRANSCNT" if facts.increments else ".ARVCNT"
        return (("ARRIVES.LDGSTSBAR.64" + mode, 1),)
    return () if "groups" in form.operands else (("LDGDEPBAR", 1),)  # wait_all is a commit and a wait


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction; of the shortest list of operands."""
    found = opcodes(row, copy_facts(row).forms[0], arch)
    return Lowering("native", (), found, "" if found else "DEPBAR.LE")


_MANUAL = Evidence("literature", "PTX ISA 9.4, sections cp.async and cp.async.mbarrier.arrive")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
