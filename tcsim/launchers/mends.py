"""Mends of a kernel: small changes of its PTX that may put right what is wrong with it. Each is only a candidate; the launch is run with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from typing import Any

from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.model.statement import Address, Immediate, Instruction, Register, Vector, registers_in
from tcsim.ptx import Hazard
from tcsim.ptx.text.syntax import statement, written

_NAMED = 2
"""Changes that are named, of several."""
_FEW = 8
"""Registers that a product may have meant."""


Change = tuple[int, int, str]
"""What stands in the place of the statement at a line and a column; "{}" is the statement itself."""


@dataclass(frozen=True)
class Mend:
    """A change of some statements."""

    said: str
    changes: tuple[Change, ...]

    def applied(self, text: str) -> str:
        """The PTX with it."""
        lines = text.split("\n")
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        for line, column, new in sorted(self.changes, reverse=True):
            first = starts[line - 1] + _begins(lines[line - 1], column - 1)
            last = text.index(";", first) + 1
            text = text[:first] + new.replace("{}", text[first:last]) + text[last:]
        return text


def _begins(line: str, column: int) -> int:
    """Where the statement at a column begins: with its guard."""
    guard = line.rfind("@", 0, column + 1)
    between = line[guard:column]
    return guard if guard >= 0 and ";" not in between and ":" not in between and "{" not in between else column


def mends(body: Sequence[Instruction], hazards: Sequence[Hazard], arch: str) -> Iterator[tuple[Hazard, Mend]]:
    """Those of what a check found, the likeliest first: what operands need, all at once, then what each error needs."""
    by_line: dict[int, list[Instruction]] = {}
    for item in body:
        by_line.setdefault(item.line, []).append(item)
    layout = [own for own in hazards if own.detail.get("change")]
    changes = tuple(_as_described(layout, by_line, arch))
    if changes:
        said = dict.fromkeys(f"{own.detail['operand'].upper()}: {own.detail['mend']}" for own in layout)
        yield layout[0], Mend("; ".join(_alike(said)), changes)
    for own in hazards:
        for mend in _of_rule(own, body, by_line):
            yield own, mend


def _alike(said: Iterable[str]) -> list[str]:
    """What is needed of A and of B, once if it is the same.

    >>> _alike(["A: SBO 1024 instead of 512", "B: SBO 1024 instead of 512"])
    ['A and B: SBO 1024 instead of 512']
    """
    found: dict[str, list[str]] = {}
    for own in said:
        name, _, what = own.partition(": ")
        found.setdefault(what, []).append(name)
    every = [f"{' and '.join(sorted(names))}: {what}" for what, names in found.items()]
    return every[:_NAMED] + ([f"and {len(every) - _NAMED} more"] if every[_NAMED:] else [])


# --- operands


def _as_described(
    hazards: Sequence[Hazard], by_line: Mapping[int, Sequence[Instruction]], arch: str
) -> Iterator[Change]:  # fmt: skip
    """The changes of operands: of their descriptors, of the addresses they are loaded from, or of .trans."""
    described: dict[tuple[int, int], tuple[Instruction, dict[int, Sequence[str]]]] = {}
    loaded: dict[Change, None] = {}
    for own in hazards:
        change = own.detail["change"]
        for item in by_line.get(own.line or 0, ()) if "descriptor" in own.detail else ():
            if item.opcode.startswith(("wgmma.mma", "tcgen05.mma")):
                operations = _field_changes(int(own.detail["descriptor"], 16), change, arch)
                at = {"a": 1, "b": 2}[own.detail["operand"]]
                described.setdefault((item.line, item.column), (item, {}))[1].setdefault(at, operations)
        for item in by_line.get(own.other_line or 0, ()) if "descriptor" not in own.detail else ():
            if item.opcode.startswith("ldmatrix"):
                loaded |= dict.fromkeys(_other_load(item, change))
    yield from loaded
    for item, operands in described.values():
        text, changed = "", item
        for at, operations in operands.items():
            name = f"%mended_{at}"
            text += f".reg .b64 {name}; mov.b64 {name}, {written(item.operands[at])}; "
            text += "".join(operation.format(name, name) for operation in operations)
            changed = changed._replace(operands=(*changed.operands[:at], Register(name), *changed.operands[at + 1 :]))
        yield item.line, item.column, f"{{ {text}{statement(changed)} }}"


def _field_changes(descriptor: int, change: Mapping[str, Any], arch: str) -> Sequence[str]:
    """Operations on a 64-bit register that give fields of a descriptor other values, whatever the rest is."""
    fields = {name: value for name, value in change.items() if name != "start_address"}
    flipped = replace(MatrixDescriptor.decode(descriptor, arch=arch), **fields).encode() ^ descriptor
    moved = change.get("start_address", 0) // 16
    operations = [f"xor.b64 {{}}, {{}}, {flipped}; "] if flipped else []
    return operations + ([f"add.s64 {{}}, {{}}, {moved}; "] if moved else [])


def _with(item: Instruction, at: int, operand: Any) -> str:
    """A statement with another operand."""
    return statement(item._replace(operands=(*item.operands[:at], operand, *item.operands[at + 1 :])))


def _instead(item: Instruction, new: str) -> Change:
    return item.line, item.column, new


def _other_load(item: Instruction, change: Mapping[str, Any]) -> Iterator[Change]:
    if "trans" in change:
        yield _instead(item, statement(item._replace(opcode=_turned(item.opcode))))
    for name, operation in (("add", "add.s32"), ("xor", "xor.b32")):
        if name in change:
            base: Any = item.operands[1]
            copied = (
                f"add.s32 %mended, {written(base.base)}, {base.offset}; {operation} %mended, %mended, {change[name]};"
            )
            yield _instead(item, f"{{ .reg .b32 %mended; {copied} {_with(item, 1, Address(Register('%mended')))} }}")


def _turned(opcode: str) -> str:
    return opcode.replace(".trans", "") if ".trans" in opcode else opcode.replace(".shared", ".trans.shared")


# --- order, bytes and counts


@dataclass(frozen=True)
class Row:
    """What is put in for rules: before the instruction that is named, or behind the one that it conflicts with."""

    rules: tuple[str, ...]
    statements: str
    places: tuple[str, ...] = ("before", "behind")


_BARRIER = "bar.sync 0;"
ROWS = (
    Row(("SMEM_RACE_RAW", "SMEM_RACE_WAR", "SMEM_RACE_WAW", "MBAR_USED_BEFORE_INIT_VISIBLE", "TMEM_ADDR_NOT_PUBLISHED"), _BARRIER),
    Row(("WARP_SYNC_MISSING",), "bar.warp.sync 0xffffffff;"),
    Row(("PROXY_FENCE_MISSING", "PROXY_FENCE_GLOBAL"), "fence.proxy.async;", ("behind", "before")),
    Row(("CP_ASYNC_UNCOMMITTED",), "cp.async.commit_group;", ("behind",)),
    Row(("CP_ASYNC_WAIT_MISSING", "CP_ASYNC_UNCOMMITTED", "CP_ASYNC_WAW"), f"cp.async.wait_all; {_BARRIER}", ("before",)),
    Row(("BULK_GROUP_UNCOMMITTED", "ASYNC_AT_EXIT"), "cp.async.bulk.commit_group;", ("behind",)),
    Row(("TMA_STORE_SRC_REUSED", "BULK_GROUP_UNCOMMITTED"), f"cp.async.bulk.wait_group.read 0; {_BARRIER}", ("before",)),
    Row(("TMA_STORE_NOT_VISIBLE", "ASYNC_AT_EXIT"), "cp.async.bulk.wait_group 0;", ("before", "behind")),
    Row(("WGMMA_MISSING_FENCE",), "wgmma.fence.sync.aligned;", ("before",)),
    Row(("WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE", "WGMMA_WAIT_DEPTH", "WGMMA_ACC_READ_IN_FLIGHT"), "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", ("before",)),
    Row(("TMEM_WAIT_LD_MISSING",), "tcgen05.wait::ld.sync.aligned;", ("before",)),
    Row(("TMEM_WAIT_ST_MISSING",), "tcgen05.wait::st.sync.aligned;", ("before", "behind")),
    Row(("MBAR_INIT_NOT_FENCED",), "fence.mbarrier_init.release.cluster;", ("behind",)),
)  # fmt: skip
_WAITS = ("cp.async.wait_group", "cp.async.bulk.wait_group", "wgmma.wait_group")
"""Waits that leave some groups under way."""
_RING = ("CP_ASYNC_WAIT_MISSING", "TMA_STORE_SRC_REUSED", "TMA_STORE_NOT_VISIBLE", "WGMMA_WAIT_DEPTH")


def _of_rule(own: Hazard, body: Sequence[Instruction], by_line: Mapping[int, Sequence[Instruction]]) -> Iterator[Mend]:
    """What an error needs."""
    if "boxes" in own.detail:
        for item in by_line.get(own.other_line or 0, ()):
            if "expect_tx" in item.opcode:
                bytes = own.detail["boxes"]
                yield Mend(
                    f"expect {bytes} bytes instead of {own.detail['expected']}",
                    (_instead(item, _with(item, len(item.operands) - 1, Immediate(bytes))),),
                )
    if own.name in _RING:
        for item in body:
            if item.opcode.startswith(_WAITS) and item.operands and isinstance(item.operands[0], Immediate):
                for count in range(item.operands[0].value - 1, -1, -1):
                    new = _with(item, 0, Immediate(count))
                    yield Mend(f"`{new}` instead of `{statement(item)}`", (_instead(item, new),))
    for row in ROWS:
        for place in row.places if own.name in row.rules else ():
            line = own.line if place == "before" else own.other_line
            for item in by_line.get(line or 0, ())[:1]:
                new = f"{row.statements}\n{{}}" if place == "before" else f"{{}}\n{row.statements}"
                yield Mend(f"`{row.statements}` {place} line {line}", (_instead(item, new),))
    if own.name in ("DEADLOCK", "MBAR_ARRIVE_MISSING"):
        yield from _other_counts(own, body)


def _other_counts(own: Hazard, body: Sequence[Instruction]) -> Iterator[Mend]:
    """mbarriers that expect the arrivals of one thread, of one of each warp, or of all."""
    for item in body:
        if item.opcode.startswith("mbarrier.init"):
            for count in (1, 2, 4, 8, 32, 64, 128, 256):
                new = _with(item, 1, Immediate(count))
                if new != statement(item):
                    yield Mend(f"`{new}` instead of `{statement(item)}`", (_instead(item, new),))


# --- registers and .trans, where a check finds nothing


def of_numbers(body: Sequence[Instruction], products: Iterable[int], loads: Iterable[int]) -> Iterator[Mend]:
    """Those of what the numbers say: registers of a product's operand exchanged, or others; .trans of its loads."""
    of_lines = set(products)
    items = [own for own in body if own.line in of_lines and own.opcode.startswith(("mma.", "wgmma.mma"))]
    groups: list[list[Instruction]] = [items, *([own] for own in items if len(items) > 1)]
    for group in groups:
        for at, name in ((1, "a"), (2, "b")):
            yield from _exchanged(group, at, name)
    for group in groups:
        for at, name in ((1, "a"), (2, "b")):
            yield from _others(body, group, at, name)
    lines = set(loads)
    matrices = [own for own in body if own.opcode.startswith("ldmatrix")]
    for line in lines:
        same = [own for own in matrices if own.line == line]
        shape = {own.opcode for own in same}
        for chosen in (same, [own for own in matrices if own.opcode in shape]):
            if chosen:
                said = f"`{_turned(chosen[0].opcode)}` instead of `{chosen[0].opcode}`"
                yield Mend(
                    said, tuple(_instead(own, statement(own._replace(opcode=_turned(own.opcode)))) for own in chosen)
                )


def _exchanged(items: Sequence[Instruction], at: int, name: str) -> Iterator[Mend]:
    """Two registers of an operand in each other's place."""
    vectors = [own.operands[at] for own in items if len(own.operands) > at]
    if not vectors or not all(isinstance(own, Vector) for own in vectors):
        return
    count = min(len(own.items) for own in vectors)  # type: ignore[union-attr]
    for first, second in combinations(range(min(count, _FEW)), 2):
        changes = []
        for item in items:
            order = list(item.operands[at].items)  # type: ignore[union-attr]
            order[first], order[second] = order[second], order[first]
            changes.append(_instead(item, _with(item, at, Vector(tuple(order)))))
        yield Mend(f"registers {first} and {second} of {name} exchanged", tuple(changes))


def _others(body: Sequence[Instruction], items: Sequence[Instruction], at: int, name: str) -> Iterator[Mend]:
    """Another register in the place of one that stands twice: one that is written and never read."""
    for item in items[:1]:
        vector = item.operands[at] if len(item.operands) > at else None
        if not isinstance(vector, Vector):
            continue
        names = [written(own) for own in vector.items]
        for place, own in enumerate(names):
            if names.count(own) > 1:
                for other in _dead(body)[:_FEW]:
                    changed = Vector((*vector.items[:place], other, *vector.items[place + 1 :]))
                    new = _with(item, at, changed)
                    yield Mend(
                        f"register {written(other)} instead of {own} as register {place} of {name}",
                        (_instead(item, new),),
                    )


def _dead(body: Sequence[Instruction]) -> list[Any]:
    """Registers that are written and never read."""
    written_there: dict[str, Any] = {}
    read: set[str] = set()
    for item in body:
        stores = item.opcode.startswith(("st.", "red.", "bar.", "mbarrier.arrive"))
        head, rest = ((), item.operands) if stores else (item.operands[:1], item.operands[1:])
        read |= {name for own in rest for name in registers_in(own)} | (
            {item.predicate.name} if item.predicate else set()
        )
        for own in head:
            items = own.items if isinstance(own, Vector) else (own,)
            written_there |= {registers_in(one)[0]: one for one in items if registers_in(one)}
    return [own for name, own in written_there.items() if name not in read]
