"""Mends of a kernel: small changes of its PTX that may put right what is wrong with it. Each is only a candidate; the launch is run with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.model.statement import Address, Immediate, Instruction, Register, Vector
from tcsim.ptx import Hazard
from tcsim.ptx.text.syntax import place_of, rebuilt, statement, written

_NAMED = 2
"""Changes that are named, of several."""
Change = tuple[int, int, str]
"""What stands in the place of the statement at a line and a column; "{}" is the statement itself."""


@dataclass(frozen=True)
class Mend:
    """A change of some statements."""

    said: str
    changes: tuple[Change, ...]
    cause: str = ""  # what is wrong without it; empty: what the check says

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


def with_operand(item: Instruction, at: int, operand: Any) -> str:
    """A statement with another operand."""
    return statement(item._replace(operands=(*item.operands[:at], operand, *item.operands[at + 1 :])))


def instead(item: Instruction, new: str) -> Change:
    """Another statement in its place."""
    return item.line, item.column, new


def _other_load(item: Instruction, change: Mapping[str, Any]) -> Iterator[Change]:
    if "trans" in change:
        yield instead(item, statement(item._replace(opcode=_turned(item.opcode))))
    for name, operation in (("add", "add.s32"), ("xor", "xor.b32")):
        if name in change:
            base: Any = item.operands[1]
            copied = (
                f"add.s32 %mended, {written(base.base)}, {base.offset}; {operation} %mended, %mended, {change[name]};"
            )
            yield instead(
                item, f"{{ .reg .b32 %mended; {copied} {with_operand(item, 1, Address(Register('%mended')))} }}"
            )


def _turned(opcode: str) -> str:
    return opcode.replace(".trans", "") if ".trans" in opcode else opcode.replace(".shared", ".trans.shared")


# --- order, bytes and counts


@dataclass(frozen=True)
class Row:
    """What is put in for rules: "before" or "after" the instruction that is named, or "behind" the one that it conflicts with."""

    rules: tuple[str, ...]
    statements: str
    places: tuple[str, ...] = ("before", "behind")


_BARRIER = "bar.sync 0;"
_CUDA = {_BARRIER: "__syncthreads();", "bar.warp.sync 0xffffffff;": "__syncwarp();"}
"""Statements that CUDA C++ spells as a call."""
_CLUSTER = "barrier.cluster.arrive; barrier.cluster.wait;"
_STORED = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
ROWS = (
    Row(
        (
            "SMEM_RACE_RAW",
            "SMEM_RACE_WAR",
            "SMEM_RACE_WAW",
            "GMEM_RACE",
            "MBAR_USED_BEFORE_INIT_VISIBLE",
            "TMEM_ADDR_NOT_PUBLISHED",
        ),
        _BARRIER,
    ),
    Row(("SMEM_RACE_RAW",), f"fence.proxy.async; {_BARRIER}", ("behind", "before")),
    Row(("WARP_SYNC_MISSING",), "bar.warp.sync 0xffffffff;"),
    Row(("WARP_SYNC_MISSING",), _BARRIER, ("before",)),  # where other warps are in the same conflict
    Row(("PROXY_FENCE_MISSING", "PROXY_FENCE_GLOBAL"), "fence.proxy.async;", ("behind", "before")),
    Row(("CP_ASYNC_UNCOMMITTED",), "cp.async.commit_group;", ("behind",)),
    Row(
        ("CP_ASYNC_WAIT_MISSING", "CP_ASYNC_UNCOMMITTED", "CP_ASYNC_WAW"), f"cp.async.wait_all; {_BARRIER}", ("before",)
    ),
    Row(("BULK_GROUP_UNCOMMITTED",), "cp.async.bulk.commit_group;", ("behind",)),
    Row(
        ("TMA_STORE_SRC_REUSED", "BULK_GROUP_UNCOMMITTED", "BULK_WAIT_WRONG_THREAD"),
        f"{_STORED} {_BARRIER}",
        ("behind",),
    ),
    Row(("TMA_STORE_NOT_VISIBLE",), f"{_STORED} {_BARRIER}", ("behind", "before")),
    Row(("ASYNC_AT_EXIT",), _STORED, ("after",)),
    Row(("WGMMA_MISSING_FENCE",), "wgmma.fence.sync.aligned;", ("before",)),
    Row(
        ("WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE", "WGMMA_WAIT_DEPTH", "WGMMA_ACC_READ_IN_FLIGHT"),
        f"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {_BARRIER}",
        ("before", "behind"),
    ),
    Row(("TMEM_WAIT_LD_MISSING",), "tcgen05.wait::ld.sync.aligned;", ("before", "behind")),
    Row(("TMEM_WAIT_ST_MISSING",), "tcgen05.wait::st.sync.aligned;", ("before", "behind")),
    Row(("MBAR_INIT_NOT_FENCED",), "fence.mbarrier_init.release.cluster;", ("behind",)),
    Row(("MBAR_USED_BEFORE_INIT_VISIBLE",), f"fence.mbarrier_init.release.cluster; {_CLUSTER}", ("behind", "before")),
    Row(("CLUSTER_LATE_START",), _CLUSTER, ("before",)),
    Row(("CLUSTER_EARLY_EXIT",), _CLUSTER, ("after",)),
    Row(("SETMAXNREG_UNORDERED",), _BARRIER, ("before",)),
)
"""What is put in for rules."""
_WAITS = ("cp.async.wait_group", "cp.async.bulk.wait_group", "wgmma.wait_group")
"""Waits that leave some groups under way."""
_RING = ("CP_ASYNC_WAIT_MISSING", "TMA_STORE_SRC_REUSED", "TMA_STORE_NOT_VISIBLE", "WGMMA_WAIT_DEPTH")


def boxes(own: Hazard, by_line: Mapping[int, Sequence[Instruction]]) -> Iterator[Mend]:
    """The bytes of the boxes that are copied are expected."""
    if "boxes" in own.detail:
        for item in by_line.get(own.other_line or 0, ()):
            if "expect_tx" in item.opcode:
                bytes = own.detail["boxes"]
                yield Mend(
                    f"expect {bytes} bytes instead of {own.detail['expected']}",
                    (instead(item, with_operand(item, len(item.operands) - 1, Immediate(bytes))),),
                )


def _of_rule(own: Hazard, body: Sequence[Instruction], by_line: Mapping[int, Sequence[Instruction]]) -> Iterator[Mend]:
    """What an error needs."""
    yield from boxes(own, by_line)
    if own.name in _RING:
        for item in body:
            if item.opcode.startswith(_WAITS) and item.operands and isinstance(item.operands[0], Immediate):
                for count in range(item.operands[0].value - 1, -1, -1):
                    new = with_operand(item, 0, Immediate(count))
                    yield Mend(f"`{new}` instead of `{statement(item)}`", (instead(item, new),))
    for row in ROWS:
        for place in row.places if own.name in row.rules else ():
            line = own.other_line if place == "behind" else own.line
            for item in by_line.get(line or 0, ())[:1]:
                new = f"{row.statements}\n{{}}" if place == "before" else f"{{}}\n{row.statements}"
                yield Mend(
                    _put_in(row.statements, "before" if place == "before" else "after", item),
                    (instead(item, new),),
                )


def _put_in(statements: str, where: str, item: Instruction) -> str:
    """What is put in, in CUDA C++ at the line of the source, if both are known."""
    source = place_of(item)
    if source is None:
        return f"`{statements}` {where} line {item.line}"
    at = source.rpartition("/")[2]
    if statements in _CUDA:
        return f"`{_CUDA[statements]}` {where} {at} (`{statements}` {where} PTX line {item.line})"
    return f"`{statements}` {where} {at} (PTX line {item.line})"


# --- registers and .trans: what an element that is wrong was read from


@dataclass(frozen=True)
class Misread:
    """What an element of the result was made of in the place of what it needs."""

    name: str = ""  # "a", "b": an operand; "d": it lies elsewhere; empty: nothing, or not known
    lines: tuple[int, ...] = ()  # of products that read it
    loads: tuple[int, ...] = ()  # of what loaded it
    registers: tuple[int, int] | None = (
        None  # that it needs, and that was taken: of a thread's registers of the operand
    )


def of_registers(body: Sequence[Instruction], opcode: str, misread: Misread) -> Iterator[Mend]:
    """Two registers exchanged, another in the place of one that stands twice, stores of others; .trans of loads."""
    products = [own for own in body if own.opcode == opcode]
    groups = [products, [own for own in products if own.line in misread.lines]]
    needed, taken = misread.registers or (0, 0)
    if misread.name == "d" and misread.registers:
        yield from _other_stores(body, products, needed, taken)
    for group in groups if misread.name in ("a", "b") and misread.registers else ():
        yield from _other_registers(body, group, misread.name, needed, taken)
    yield from _other_majors(body, products, misread)
    loads = [own for own in body if own.opcode.startswith("ldmatrix") and own.line in misread.loads]
    same = [own for own in body if own.opcode in {one.opcode for one in loads}]
    for chosen in (same, loads) if loads else ():
        said = f"`{_turned(loads[0].opcode)}` instead of `{loads[0].opcode}`"
        changes = tuple(instead(own, statement(own._replace(opcode=_turned(own.opcode)))) for own in chosen)
        yield Mend(said, changes, f"ldmatrix {'has' if '.trans' in loads[0].opcode else 'lacks'} .trans")


def _other_majors(body: Sequence[Instruction], products: Sequence[Instruction], misread: Misread) -> Iterator[Mend]:
    """The fragments of an operand of wmma by the other order of rows and columns."""
    stem, at = f"wmma.load.{misread.name}.sync.aligned", {"a": 4, "b": 5}.get(misread.name, 0)
    loads = [own for own in body if own.opcode.startswith(stem)]
    if not at or not any(own.line in misread.loads for own in loads):
        return
    before, new = (".row", ".col") if f"{stem}.row" in loads[0].opcode else (".col", ".row")
    changes = [
        instead(own, statement(own._replace(opcode=own.opcode.replace(stem + before, stem + new)))) for own in loads
    ]
    for own in products:
        words = own.opcode.split(".")
        words[at] = new[1:]
        changes.append(instead(own, statement(own._replace(opcode=".".join(words)))))
    said = f"`wmma::{new[1:]}_major` instead of `wmma::{before[1:]}_major` for matrix_{misread.name}"
    yield Mend(
        said, tuple(changes), f"the fragments of {misread.name} are loaded by the wrong order of rows and columns"
    )


def _vectors(items: Iterable[Instruction], at: int) -> Iterator[tuple[Instruction, tuple[Any, ...]]]:
    for own in items:
        operand = own.operands[at] if len(own.operands) > at else None
        if isinstance(operand, Vector):
            yield own, operand.items


def _other_registers(
    body: Sequence[Instruction], items: Sequence[Instruction], name: str, needed: int, taken: int
) -> Iterator[Mend]:
    at = {"a": 1, "b": 2}[name]
    exchanged, others = list[Change](), list[Change]()
    for own, vector in _vectors(items, at):
        if max(needed, taken) >= len(vector):
            return
        order = list(vector)
        order[needed], order[taken] = vector[taken], vector[needed]
        exchanged.append(instead(own, with_operand(own, at, Vector(tuple(order)))))
        free = _beside(body, vector[taken], vector)
        if free is not None:
            others.append(instead(own, with_operand(own, at, Vector((*vector[:needed], free, *vector[needed + 1 :])))))
    if others:
        cause = f"registers {needed} and {taken} of {name} are one register"
        yield Mend(f"the register that was loaded with it as register {needed} of {name}", tuple(others), cause)
    first, last = sorted((needed, taken))
    cause = f"registers {first} and {last} of {name} are exchanged"
    yield Mend(f"registers {first} and {last} of {name} the other way round", tuple(exchanged), cause)


def _beside(body: Sequence[Instruction], taken: Any, vector: Sequence[Any]) -> Any:
    """The register that was loaded together with one, and that a product does not take; None if that is not one."""
    for own in body:
        head = own.operands[0] if own.operands else None
        if isinstance(head, Vector) and taken in head.items and own.opcode.startswith(("ld", "tcgen05.ld")):
            free = [one for one in head.items if one not in vector and isinstance(one, Register)]
            return free[0] if len(free) == 1 else None
    return None


def _other_stores(
    body: Sequence[Instruction], products: Sequence[Instruction], needed: int, taken: int
) -> Iterator[Mend]:
    """What is stored of the accumulators exchanged, register by register."""
    other: dict[Any, Any] = {}
    for _, vector in _vectors(products, 0):
        other |= {
            own: vector[place ^ needed ^ taken]
            for place, own in enumerate(vector)
            if place ^ needed ^ taken < len(vector)
        }
    changes = []
    for own in body:
        if own.opcode.startswith(("st.global", "st.shared", "cvt.")):
            operands = rebuilt(own.operands, lambda leaf: other.get(leaf, leaf))
            if operands != own.operands:
                changes.append(instead(own, statement(own._replace(operands=operands))))
    if changes:
        first, last = sorted((needed, taken))
        cause = f"registers {first} and {last} of d are exchanged where they are stored, and others alike"
        yield Mend(
            f"registers {first} and {last} of d the other way round in the stores, and others alike",
            tuple(changes),
            cause,
        )
