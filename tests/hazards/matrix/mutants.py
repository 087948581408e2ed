"""The mutants of a kernel: a table of which instructions are changed, and how."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tcsim.core.errors import shortened
from tests.hazards.matrix.statements import Statement, Text

_NEXT = re.compile(
    r"(cp\.(async|reduce)|mbarrier|fence|membar|wgmma|tcgen05|bar|barrier|[ls]tmatrix|ldmatrix|(ld|st|atom|red)\S*\.shared|st\.async"
    r"|griddepcontrol|setmaxnreg|clusterlaunchcontrol)\b"
)
"""What a statement is moved past: the next one that synchronises, or accesses shared or Tensor Memory."""


@dataclass(frozen=True)
class Change:
    """One way to change instructions whose opcode begins with a pattern."""

    kind: str  # of mutant, as the table of the page has it
    opcode: str
    edit: str  # a name in EDITS
    operand: int = 0
    amount: int = 0
    note: str = ""
    sites: int = 1 << 30  # how many instructions of one opcode are changed, from the first on


@dataclass(frozen=True)
class Mutant:
    """A kernel with one statement changed."""

    kind: str
    line: int
    what: str  # "delete fence.proxy.async.shared::cta;"
    text: str


_SYNCHRONISES = {
    "fence": r"fence\.|membar|tcgen05\.fence|wgmma\.fence",
    "commit": r"cp\.async\.(bulk\.)?commit_group|wgmma\.commit_group|tcgen05\.commit|cp\.async\.mbarrier\.arrive",
    "wait": r"cp\.async\.(bulk\.)?wait|wgmma\.wait_group|tcgen05\.wait|griddepcontrol\.wait",
    "arrival": r"mbarrier\.arrive|griddepcontrol\.launch",
    "barrier": r"(bar|barrier)\.(cta\.|warp\.)?(sync|arrive|red)|barrier\.cluster",
}
_WAIT = r"cp\.async\.(bulk\.)?wait_group|wgmma\.wait_group"
_ALLOCATION = r"tcgen05\.(alloc|dealloc|relinquish)"
_PARITY = r"mbarrier\.(try|test)_wait\.parity"
_FIELDS = ((0, "start"), (16, "LBO"), (32, "SBO"), (49, "base offset"), (62, "swizzle"))
"""Fields of a matrix descriptor, by their lowest bit."""

CHANGES = (
    *(Change(kind, opcode, "delete") for kind, opcode in _SYNCHRONISES.items()),
    *(Change(f"{kind} moved", opcode, edit) for kind, opcode in _SYNCHRONISES.items() for edit in ("later", "earlier")),
    Change("wait", r"mbarrier\.(try|test)_wait", "pass"),
    Change("wait depth", _WAIT, "number", -1, 1),
    Change("wait depth", _WAIT, "number", -1, -1),
    Change("expect_tx", r"mbarrier\S*\.expect_tx", "add", -1, 16),
    Change("expect_tx", r"mbarrier\S*\.expect_tx", "add", -1, -16),
    Change("arrival count", r"mbarrier\.init", "add", 1, 1),
    Change("arrival count", r"mbarrier\.init", "add", 1, -1),
    *(Change("arrival count", r"mbarrier\.arrive\b(?!\S*expect_tx)", "add", -1, amount) for amount in (1, -1)),
    *(Change("barrier count", r"(bar|barrier)\.(cta\.)?(sync|arrive)", "add", 1, amount) for amount in (32, -32)),
    Change("init", r"mbarrier\.(init|inval)", "delete"),
    Change("parity", _PARITY, "flip", 2),
    *(
        Change("descriptor", opcode, "add", operand, amount << bit, f"{note} of {'ab'[operand - 1]}", 1)
        for opcode, operands in ((r"wgmma\.mma_async|tcgen05\.mma", (1, 2)), (r"tcgen05\.cp", (1,)))
        for operand in operands
        for bit, note in _FIELDS
        for amount in (1, -1)
    ),
    Change("instruction descriptor", r"tcgen05\.mma", "add", 3, 1 << 17, "N", 1),
    Change("instruction descriptor", r"tcgen05\.mma", "add", 3, -(1 << 24), "M", 1),
    Change("shared address", r"cp\.async\.(bulk\S*shared::c\w+\.(global|shared)|c[ag])", "add", 0, 16, "address", 2),
    Change("shared address", r"cp\.(async|reduce\.async)\.bulk\S*\.global\.shared", "add", 1, 16, "address", 2),
    Change("tensor address", r"tcgen05\.ld", "add", 1, 1, "column", 1),
    Change("tensor address", r"tcgen05\.st", "add", 0, 1, "column", 1),
    Change("shared address", r"ldmatrix", "add", 1, 16, "address", 2),
    Change("shared address", r"stmatrix", "add", 0, 16, "address", 2),
    *(
        Change("shared address", rf"{opcode}\.(\S+\.)?shared", "add", at, 16, "address", 1)
        for at, opcode in enumerate(("st", "ld"))
    ),
    Change("allocation", _ALLOCATION, "delete"),
    *(Change("allocation moved", _ALLOCATION, edit) for edit in ("later", "earlier")),
    Change("register pool", r"setmaxnreg", "number", -1, 8),
)
"""All changes. A change that gives nothing that can be read, or that was there before, makes no mutant."""


def _delete(text: Text, own: Statement, change: Change) -> str | None:
    return text.changed(own, "")


def _pass(text: Text, own: Statement, change: Change) -> str | None:
    """A wait that says at once that it is over."""
    head, operands = text.parts(own)
    predicate = head.split()[0] + " " if head.startswith("@") else ""
    return text.changed(own, f"{predicate}setp.eq.u32 {operands[0]}, 0, 0;")


def _later(text: Text, own: Statement, change: Change) -> str | None:
    past = next((found for found in text.around(own, 1) if _NEXT.match(found.item.opcode)), None)
    return text.moved(own, behind=past) if past else None


def _earlier(text: Text, own: Statement, change: Change) -> str | None:
    past = next((found for found in text.around(own, -1) if _NEXT.match(found.item.opcode)), None)
    return text.moved(own, before=past) if past else None


def _number(text: Text, own: Statement, change: Change) -> str | None:
    """Another number as an operand, not below 0."""
    head, operands = text.parts(own)
    value = int(operands[change.operand], 0) + change.amount
    operands[change.operand] = str(value)
    return text.changed(own, f"{head} {', '.join(operands)};") if value >= 0 else None


def _add(text: Text, own: Statement, change: Change) -> str | None:
    """Something is added to an operand: to a number, to an address, or to a register, in a scope of its own."""
    head, operands = text.parts(own)
    if len(operands) <= change.operand:
        return None
    operand = operands[change.operand]
    if operand.startswith("{"):
        return None
    if operand.startswith("["):
        if not change.kind.endswith(" address"):
            return None
        base, plus, offset = operand[1:-1].partition("+")
        operands[change.operand] = f"[{base}+{(int(offset, 0) if plus else 0) + change.amount}]"
        return text.changed(own, f"{head} {', '.join(operands)};")
    return _with(text, own, change, "add" if change.edit == "add" else "xor")


def _flip(text: Text, own: Statement, change: Change) -> str | None:
    return _with(text, own, change, "xor")


def _with(text: Text, own: Statement, change: Change, operation: str) -> str | None:
    head, operands = text.parts(own)
    operand, amount = operands[change.operand], change.amount or 1
    if operand[0] in "0123456789-":
        value = int(operand.rstrip("U"), 0)
        operands[change.operand] = str(value + amount if operation == "add" else value ^ amount)
        return text.changed(own, f"{head} {', '.join(operands)};")
    wide = change.kind == "descriptor"
    types = (f"{operation}.{'s' if operation == 'add' else 'b'}{64 if wide else 32}", 64 if wide else 32)
    operands[change.operand] = "%changed"
    said = f"{{ .reg .b{types[1]} %changed; {types[0]} %changed, {operand}, {amount}; {head} {', '.join(operands)}; }}"
    return text.changed(own, said)


EDITS = {
    "delete": _delete, "pass": _pass, "later": _later, "earlier": _earlier, "number": _number, "add": _add, "flip": _flip,
}  # fmt: skip


def mutants(text: Text, lines: frozenset[int]) -> Iterator[Mutant]:
    """The mutants of the statements on some lines: those that a launch executes."""
    seen = {text.text}
    sites: Counter[tuple[Change, str]] = Counter()
    for own in text.statements:
        for change in CHANGES if own.item.line in lines else ():
            if not re.match(change.opcode, own.item.opcode):
                continue
            made = EDITS[change.edit](text, own, change)
            if made is None or made in seen or sites[change, own.item.opcode] >= change.sites:
                continue
            sites[change, own.item.opcode] += 1
            seen.add(made)
            yield Mutant(change.kind, own.item.line, f"{_told(change)}: {shortened(text.source(own), 72)}", made)


def _told(change: Change) -> str:
    """What a change does, in words."""
    if not change.amount:
        return change.edit
    amount = change.amount if abs(change.amount) < 1 << 16 else change.amount // abs(change.amount)
    return f"{change.note} {amount:+d}".strip()
